"""The programs of `kernels.py` in PyTorch, Warp, Dr.Jit and statsmodels, each in the way its own documents
advise.

Every function gives a job, which returns value and gradient as NumPy arrays, or an Absent that says why there
is none."""

import _harness as bench
import numpy as np

try:
    import warp as wp

    wp.config.quiet = True
except ImportError:
    wp = None
try:
    import drjit as dr
    from drjit.llvm.ad import Float64, UInt32
except ImportError:
    dr = None
try:
    from statsmodels.tsa.statespace.mlemodel import MLEModel
except ImportError:
    MLEModel = None

LOG2PI = float(np.log(2 * np.pi))

# --- the Gaussian of four parameters: theta (4, B), x (2, N) ---


def jax_gaussian(jax, theta, x):
    if jax is None:
        return bench.NOT_INSTALLED
    jnp = jax.numpy

    def loglik(th, x):
        d1, d2 = (x[0] - th[0]) / th[2], (x[1] - th[1]) / th[3]
        return jnp.sum(-0.5 * (d1 * d1 + d2 * d2)) - x.shape[1] * (jnp.log(th[2]) + jnp.log(th[3]) + LOG2PI)

    g = jax.jit(jax.vmap(jax.value_and_grad(loglik), in_axes=(1, None), out_axes=(0, 1)))
    many, data = jnp.asarray(theta), jnp.asarray(x)
    return lambda: jax.block_until_ready(g(many, data))


def torch_gaussians(torch, theta, x):
    """Eager and compiled."""
    if torch is None:
        return bench.NOT_INSTALLED, bench.NOT_INSTALLED
    leaf, data = torch.tensor(theta, requires_grad=True), torch.tensor(x)

    def value(th):
        d1, d2 = (data[0] - th[0][:, None]) / th[2][:, None], (data[1] - th[1][:, None]) / th[3][:, None]
        return (-0.5 * (d1 * d1 + d2 * d2)).sum(1) - data.shape[1] * (
            torch.log(th[2]) + torch.log(th[3]) + LOG2PI
        )

    def run(f):
        v = f(leaf)
        return [v.detach(), torch.autograd.grad(v.sum(), leaf)[0]]

    compiled = torch.compile(value)
    try:
        run(compiled)
    except Exception:  # no compiler for it here
        return lambda: run(value), bench.CANNOT
    return lambda: run(value), lambda: run(compiled)


def jax_celerite(jax, theta, t, y, variance):
    """The recursion of the article on celerite for complex terms: theta (4 J, B), the rows of a term being a,
    b, c, d."""
    if jax is None:
        return bench.NOT_INSTALLED
    jnp = jax.numpy
    data = [jnp.asarray(x) for x in (t, np.diff(t, prepend=t[0]), y, variance)]

    def loglik(theta):
        a, b, c, d = theta.reshape((-1, 4)).T
        slow = jnp.concatenate([c, c])

        def step(carry, datum):
            f, S, W, D, z = carry
            t, gap, y, variance = datum
            cos, sin, phi = jnp.cos(d * t), jnp.sin(d * t), jnp.exp(-slow * gap)
            U, V = jnp.concatenate([a * cos + b * sin, a * sin - b * cos]), jnp.concatenate([cos, sin])
            S = jnp.outer(phi, phi) * (S + D * jnp.outer(W, W))
            f = phi * (f + W * z)
            q = S @ U
            D = variance + a.sum() - U @ q
            z = y - U @ f
            return (f, S, (V - q) / D, D, z), -0.5 * (jnp.log(D) + z * z / D + LOG2PI)

        n = len(slow)
        start = jnp.zeros(n), jnp.zeros((n, n)), jnp.zeros(n), jnp.zeros(()), jnp.zeros(())
        return jax.lax.scan(step, start, data)[1].sum()

    g = jax.jit(jax.vmap(jax.value_and_grad(loglik), in_axes=1, out_axes=(0, 1)))
    many = jnp.asarray(theta)
    return lambda: jax.block_until_ready(g(many))


if wp is not None:

    @wp.kernel
    def warp_normal(
        theta: wp.array2d(dtype=wp.float64),
        x: wp.array2d(dtype=wp.float64),
        value: wp.array(dtype=wp.float64),
    ):
        b = wp.tid()
        mu1, mu2, s1, s2 = theta[0, b], theta[1, b], theta[2, b], theta[3, b]
        quad = wp.float64(0.0)
        for i in range(x.shape[1]):
            d1 = (x[0, i] - mu1) / s1
            d2 = (x[1, i] - mu2) / s2
            quad += d1 * d1 + d2 * d2
        n = wp.float64(x.shape[1])
        value[b] = wp.float64(-0.5) * quad - n * (wp.log(s1) + wp.log(s2) + wp.float64(1.8378770664093453))


def warp_gaussian(theta, x):
    if wp is None:
        return bench.NOT_INSTALLED
    return warp_job(warp_normal, theta, x)


def warp_job(kernel, theta, data):
    t = wp.array(theta, dtype=wp.float64, requires_grad=True, device="cpu")
    data = wp.array(data, dtype=wp.float64, device="cpu")
    value = wp.zeros(theta.shape[1], dtype=wp.float64, requires_grad=True, device="cpu")
    both = [value.numpy(), t.grad.numpy()]  # the memory that each run fills

    def run():
        with wp.Tape() as tape:
            wp.launch(kernel, dim=theta.shape[1], inputs=[t, data], outputs=[value], device="cpu")
        value.grad.fill_(1.0)
        t.grad.zero_()
        tape.backward()
        return both

    return run


def drjit_gaussian(theta, x):
    if dr is None:
        return bench.NOT_INSTALLED
    dr.set_thread_count(1)
    rows, (x1, x2) = [Float64(row) for row in theta], (Float64(row) for row in x)
    n = x.shape[1]

    def loglik(mu1, mu2, s1, s2):
        def body(i, quad):
            d1 = (dr.gather(Float64, x1, i) - mu1) / s1
            d2 = (dr.gather(Float64, x2, i) - mu2) / s2
            return i + 1, quad + d1 * d1 + d2 * d2

        start = UInt32(0), dr.zeros(Float64, dr.width(mu1))
        _, quad = dr.while_loop(start, lambda i, quad: i < n, body, max_iterations=n)
        return -0.5 * quad - n * (dr.log(s1) + dr.log(s2) + LOG2PI)

    return lambda: drjit_run(loglik, rows)


def drjit_run(loglik, rows):
    leaves = [Float64(r) for r in rows]
    dr.enable_grad(*leaves)
    v = loglik(*leaves)
    dr.set_grad(v, 1.0)
    dr.enqueue(dr.ADMode.Backward, v)
    dr.traverse(dr.ADMode.Backward)
    grads = [dr.grad(leaf) for leaf in leaves]
    dr.eval(v, *grads)
    dr.sync_thread()
    return [Rows(dr.detach(v)), Rows(*grads)]


class Rows:
    """Dr.Jit's vectors, as one array when NumPy asks."""

    def __init__(self, *vectors):
        self.vectors = vectors

    def __array__(self, dtype=None, copy=None):
        rows = [np.array(v) for v in self.vectors]
        return rows[0] if len(rows) == 1 else np.stack(rows)


# --- the local level model for many pairs of log variances: theta (2, B), y (T,) ---

if wp is not None:

    @wp.kernel
    def warp_level_kernel(
        theta: wp.array2d(dtype=wp.float64), y: wp.array(dtype=wp.float64), value: wp.array(dtype=wp.float64)
    ):
        b = wp.tid()
        obs, drift = wp.exp(theta[0, b]), wp.exp(theta[1, b])
        a, P, total = wp.float64(0.0), wp.float64(1.0e7), wp.float64(0.0)
        for t in range(y.shape[0]):
            F = P + obs
            v = y[t] - a
            K = P / F
            total += wp.float64(-0.5) * (wp.float64(1.8378770664093453) + wp.log(F) + v * v / F)
            a = a + K * v
            P = P - K * P + drift
        value[b] = total


def warp_level(theta, y):
    if wp is None:
        return bench.NOT_INSTALLED
    return warp_job(warp_level_kernel, theta, y)


def drjit_level(theta, y):
    if dr is None:
        return bench.NOT_INSTALLED
    dr.set_thread_count(1)
    rows, data, n = [Float64(row) for row in theta], Float64(y), len(y)

    def loglik(log_obs, log_drift):
        obs, drift = dr.exp(log_obs), dr.exp(log_drift)

        def body(i, a, P, total):
            F = P + obs
            v = dr.gather(Float64, data, i) - a
            K = P / F
            return i + 1, a + K * v, P - K * P + drift, total - 0.5 * (LOG2PI + dr.log(F) + v * v / F)

        width = dr.width(obs)
        start = UInt32(0), dr.zeros(Float64, width), dr.full(Float64, 1e7, width), dr.zeros(Float64, width)
        return dr.while_loop(start, lambda i, a, P, total: i < n, body, max_iterations=n)[-1]

    return lambda: drjit_run(loglik, rows)


# --- the filter of four states and two observations: one parameter vector (22,), y (T, 2) ---


def torch_four_states(torch, theta, y, H):
    """Eager, one parameter vector (22, 1) or many (22, B); a filter step on matrices (B, 4, 4)."""
    if torch is None:
        return bench.NOT_INSTALLED
    data, design = torch.tensor(y), torch.tensor(H)

    def loglik(th):
        batch = th.shape[1]
        A = th[:16].T.reshape(batch, 4, 4)
        Q, R = torch.diag_embed(torch.exp(th[16:20]).T), torch.diag_embed(torch.exp(th[20:]).T)
        m, P, total = torch.zeros(batch, 4, 1), torch.eye(4).expand(batch, 4, 4), torch.zeros(batch)
        for obs in data:
            m, P = A @ m, A @ P @ A.mT + Q
            v, PH = obs[:, None] - design @ m, P @ design.T
            S = design @ PH + R
            a, b, c = S[:, 0, 0], S[:, 0, 1], S[:, 1, 1]
            det = a * c - b * b
            Si = torch.stack([torch.stack([c, -b], -1), torch.stack([-b, a], -1)], -2) / det[:, None, None]
            K = PH @ Si
            P = P - K @ PH.mT
            P = 0.5 * (P + P.mT)
            total = total - 0.5 * (torch.log(det) + (v.mT @ Si @ v)[:, 0, 0] + 2 * LOG2PI)
            m = m + K @ v
        return total

    leaf = torch.tensor(theta, requires_grad=True)

    def run():
        v = loglik(leaf)
        return [v.detach(), torch.autograd.grad(v.sum(), leaf)[0]]

    return run


def statsmodels_four_states(theta, y, H):
    """The log-likelihood, and the score by complex steps: (value job, value and gradient job)."""
    if MLEModel is None:
        return bench.NOT_INSTALLED, bench.NOT_INSTALLED

    class Filter(MLEModel):
        def __init__(self):
            super().__init__(
                y,
                k_states=4,
                k_posdef=4,
                initialization="known",
                constant=np.zeros(4),
                stationary_cov=np.eye(4),
            )
            self["design"], self["selection"] = H, np.eye(4)
            self.ssm.loglikelihood_burn, self.ssm.tolerance = 0, 0.0  # all steps, no steady state

        def update(self, params, transformed=True, includes_fixed=False, complex_step=False):
            params = super().update(params, transformed, includes_fixed, complex_step)
            A, Q = params[:16].reshape(4, 4), np.diag(np.exp(params[16:20]))
            self["transition"], self["state_cov"], self["obs_cov"] = A, Q, np.diag(np.exp(params[20:]))
            self.ssm.initialize_known(np.zeros(4, A.dtype), A @ A.T + Q)  # predicted from N(0, I)

    model, vector = Filter(), theta[:, 0]
    value = lambda: [np.array([model.loglike(vector)])]
    both = lambda: [
        np.array([model.loglike(vector)]),
        model.score(vector, method="approx", approx_complex_step=True)[:, None],
    ]
    return value, both
