"""The grid programs of `loops.py` in JAX, and their adjoints by hand in Numba."""

import numba
import numpy as np


@numba.njit
def wave_by_hand(u, v, c2, dt, steps, states):
    """(value, gradient by u, v, c2); states (segment, n, n) holds u of the steps of one segment."""
    n, m = u.shape
    segment = states.shape[0]
    count = (steps + segment - 1) // segment
    kept_u, kept_v = np.empty((count, n, m)), np.empty((count, n, m))
    for h in range(count):
        kept_u[h], kept_v[h] = u, v
        wave_steps(u, v, c2, dt, min(segment, steps - h * segment), states, False)
    value = np.sum(u * u)
    ub, vb, cb, w = 2.0 * u, np.zeros((n, m)), np.zeros((n, m)), np.zeros((n, m))
    for h in range(count - 1, -1, -1):
        u[:], v[:] = kept_u[h], kept_v[h]
        here = min(segment, steps - h * segment)
        wave_steps(u, v, c2, dt, here, states, True)
        for t in range(here - 1, -1, -1):
            x = states[t]
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    vb[i, j] += dt * ub[i, j]
                    w[i, j] = dt * c2[i, j] * vb[i, j]
                    near = x[i + 1, j] + x[i - 1, j] + x[i, j + 1] + x[i, j - 1] - 4.0 * x[i, j]
                    cb[i, j] += dt * near * vb[i, j]
            gather(ub, w)
    return value, ub, vb, cb


@numba.njit
def wave_steps(u, v, c2, dt, steps, states, keep):
    n, m = u.shape
    for t in range(steps):
        if keep:
            states[t] = u
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                near = u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1] - 4.0 * u[i, j]
                v[i, j] += dt * c2[i, j] * near
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                u[i, j] += dt * v[i, j]


@numba.njit
def gather(ub, w):
    """ub += the transpose of the five points, of w, which is 0 at the border."""
    n, m = ub.shape
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            ub[i, j] += w[i + 1, j] + w[i - 1, j] + w[i, j + 1] + w[i, j - 1] - 4.0 * w[i, j]
    for j in range(1, m - 1):
        ub[0, j] += w[1, j]
        ub[n - 1, j] += w[n - 2, j]
    for i in range(1, n - 1):
        ub[i, 0] += w[i, 1]
        ub[i, m - 1] += w[i, m - 2]


@numba.njit
def heat_by_hand(u, new, k, steps, states):
    """(value, gradient by u, which is the start of both arrays); states as above."""
    n, m = u.shape
    segment = states.shape[0]
    count = (steps + segment - 1) // segment
    kept_u, kept_new = np.empty((count, n, m)), np.empty((count, n, m))
    for h in range(count):
        kept_u[h], kept_new[h] = u, new
        u, new = heat_steps(u, new, k, min(segment, steps - h * segment), states, False)
    value = np.sum(u * u)
    ub, old, w = 2.0 * u, np.zeros((n, m)), np.zeros((n, m))
    for h in range(count - 1, -1, -1):
        u[:], new[:] = kept_u[h], kept_new[h]
        here = min(segment, steps - h * segment)
        heat_steps(u, new, k, here, states, True)
        for t in range(here - 1, -1, -1):
            x = states[t]
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    near = x[i + 1, j] + x[i - 1, j] + x[i, j + 1] + x[i, j - 1] - 4.0 * x[i, j]
                    w[i, j] = k * x[i, j] * ub[i, j]
                    old[i, j] += ub[i, j] * (1.0 + k * near)
                    ub[i, j] = 0.0
            gather(old, w)
            ub, old = old, ub
    return value, ub + old


@numba.njit
def heat_steps(u, new, k, steps, states, keep):
    n, m = u.shape
    for t in range(steps):
        if keep:
            states[t] = u
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                near = u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1] - 4.0 * u[i, j]
                new[i, j] = u[i, j] + k * u[i, j] * near
        u, new = new, u
    return u, new


def wave_jax(jax, steps):
    """The gradient by u, v and c2, and the plain program, compiled."""
    jnp = jax.numpy

    def loss(u, v, c2):
        def step(_, state):
            u, v = state
            near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]
            v = v.at[1:-1, 1:-1].add(0.01 * c2[1:-1, 1:-1] * near)
            return u.at[1:-1, 1:-1].add(0.01 * v[1:-1, 1:-1]), v

        root = int(np.sqrt(steps)) + 1
        part = jax.checkpoint(lambda state, n: jax.lax.fori_loop(0, root, step, state))
        state = u, v
        whole, rest = divmod(steps, root)
        state, _ = jax.lax.scan(lambda s, _: (part(s, root), None), state, None, length=whole)
        state = jax.lax.fori_loop(0, rest, step, state)
        return jnp.sum(state[0] ** 2)

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2))), jax.jit(loss)


WAVE = """
template <std::size_t N>
void wave(enzyme::tensor<double, 1>& out, const enzyme::tensor<double, N, N>& u0,
          const enzyme::tensor<double, N, N>& v0, const enzyme::tensor<double, N, N>& c2) {
  double* u = (double*)__builtin_malloc(8 * N * N);
  double* v = (double*)__builtin_malloc(8 * N * N);
  for (std::size_t i = 0; i < N; i++)
    for (std::size_t j = 0; j < N; j++) { u[i * N + j] = u0[i][j]; v[i * N + j] = v0[i][j]; }
  for (int t = 0; t < STEPS; t++) {
    for (std::size_t i = 1; i < N - 1; i++)
      for (std::size_t j = 1; j < N - 1; j++)
        v[i * N + j] += 0.01 * c2[i][j] * (u[(i + 1) * N + j] + u[(i - 1) * N + j] + u[i * N + j + 1]
                                           + u[i * N + j - 1] - 4.0 * u[i * N + j]);
    for (std::size_t i = 1; i < N - 1; i++)
      for (std::size_t j = 1; j < N - 1; j++) u[i * N + j] += 0.01 * v[i * N + j];
  }
  double sum = 0.0;
  for (std::size_t i = 0; i < N * N; i++) sum += u[i] * u[i];
  out[0] = sum;
  __builtin_free(u);
  __builtin_free(v);
}
"""


def wave_enzyme(jax, steps):
    """The same by Enzyme, from C++; None where its wheel is not installed."""
    try:
        from enzyme_ad.jax import cpp_call
    except ImportError:
        return None

    def loss(u, v, c2):
        shapes, source = [jax.core.ShapedArray((1,), np.float64)], WAVE.replace("STEPS", str(steps))
        return cpp_call(u, v, c2, out_shapes=shapes, source=source, fn="wave", argv=("-O3",))[0][0]

    def both(*args):
        value, pullback = jax.vjp(loss, *args)
        return value, pullback(1.0)

    return jax.jit(both), jax.jit(loss)
