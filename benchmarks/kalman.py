"""The gradient of a Kalman filter written with arrays, beside NumPy's own value time and the peers.

    python benchmarks/kalman.py [--save] [--quick]

One text of each filter serves NumPy, tapegrad, PyTorch and autograd: only the module handed to it differs.
JAX needs the loop written as a scan; it is jitted, so it stands in the table as what compiled code
reaches."""

import time
from pathlib import Path

import _harness as bench
import numpy as np

import tapegrad as tg

NILE = Path(__file__).resolve().parent.parent / "examples" / "data" / "nile.csv"
B = np.array([[1.0, 0.0, 0.5, 0.2], [0.0, 1.0, -0.3, 0.4]])


def four_states(np, y, B):
    """22 parameters: the 4 x 4 transition, four log-variances of the states, two of the observations."""
    I = np.eye(4)

    def loglik(theta):
        A = theta[:16].reshape((4, 4))
        Q = np.diag(np.exp(theta[16:20]))
        R = np.diag(np.exp(theta[20:]))
        m, P, total = np.zeros(4), I, 0.0
        for obs in y:
            m = A @ m
            P = A @ P @ A.T + Q
            r = obs - B @ m
            PB = P @ B.T
            S = B @ PB + R
            L = np.linalg.cholesky(S)
            z = np.linalg.solve(L, r)
            K = np.linalg.solve(S, PB.T).T
            total = total - 0.5 * (z @ z) - np.sum(np.log(np.diag(L)))
            m = m + K @ r
            P = P - K @ PB.T
        return total

    return loglik


def four_states_jax(jax, y, B):
    np = jax.numpy
    y, B = np.asarray(y), np.asarray(B)

    def loglik(theta):
        A = theta[:16].reshape((4, 4))
        Q = np.diag(np.exp(theta[16:20]))
        R = np.diag(np.exp(theta[20:]))

        def step(carry, obs):
            m, P, total = carry
            m = A @ m
            P = A @ P @ A.T + Q
            r = obs - B @ m
            PB = P @ B.T
            S = B @ PB + R
            L = np.linalg.cholesky(S)
            z = np.linalg.solve(L, r)
            K = np.linalg.solve(S, PB.T).T
            total = total - 0.5 * (z @ z) - np.sum(np.log(np.diag(L)))
            return (m + K @ r, P - K @ PB.T, total), None

        return jax.lax.scan(step, (np.zeros(4), np.eye(4), 0.0), y)[0][2]

    return loglik


def stacked_rows(torch):
    """np.array of nested lists of numbers, for PyTorch."""
    return lambda rows: torch.stack([torch.stack(row) for row in rows])


def four_states_elements(np, y, B):
    """The same, the 2 x 2 part element by element: 18 element reads and 3 stacks a step."""
    I = np.eye(4)
    array = np.array if hasattr(np, "array") else stacked_rows(np)

    def loglik(theta):
        A = theta[:16].reshape((4, 4))
        Q = np.diag(np.exp(theta[16:20]))
        R = np.diag(np.exp(theta[20:]))
        m, P, total = np.zeros(4), I, 0.0
        for obs in y:
            m = A @ m
            P = A @ P @ A.T + Q
            r = obs - B @ m
            PB = P @ B.T
            S = B @ PB + R
            det = S[0, 0] * S[1, 1] - S[0, 1] * S[1, 0]
            W = array([[S[1, 1], -S[0, 1]], [-S[1, 0], S[0, 0]]]) / det
            square = r[0] * W[0, 0] * r[0] + r[0] * (W[0, 1] + W[1, 0]) * r[1] + r[1] * W[1, 1] * r[1]
            total = total - 0.5 * (square + np.log(det))
            K = PB @ W
            m = m + K @ r
            P = P - K @ PB.T
            # rounding errors of the odd part would grow: after 1,000 steps nothing would be right
            P = 0.5 * (P + P.T)
        return total

    return loglik


def local_level(np, y):
    """Two log-variances; exact diffuse start, so the first observation only sets the level."""

    def loglik(theta):
        noise, drift = np.exp(theta[0]), np.exp(theta[1])
        a, P, total = y[0], noise + drift, 0.0
        for obs in y[1:]:
            v, F = obs - a, P + noise
            total = total - 0.5 * (np.log(F) + v * v / F)
            K = P / F
            a, P = a + K * v, P * (1 - K) + drift
        return total

    return loglik


def local_level_jax(jax, y):
    np = jax.numpy
    y = np.asarray(y)

    def loglik(theta):
        noise, drift = np.exp(theta)

        def step(carry, obs):
            a, P, total = carry
            v, F = obs - a, P + noise
            total = total - 0.5 * (np.log(F) + v * v / F)
            K = P / F
            return (a + K * v, P * (1 - K) + drift, total), None

        return jax.lax.scan(step, (y[0], noise + drift, 0.0), y[1:])[0][2]

    return loglik


def simulated(T):
    """Observations of the four-state model, and the parameters they come from."""
    g = np.random.default_rng(3)
    A = np.array([[0.9, 0.1, 0.0, 0.0], [-0.1, 0.8, 0.1, 0.0], [0.0, 0.1, 0.7, 0.2], [0.1, 0.0, -0.1, 0.6]])
    m, y = np.zeros(4), np.empty((T, 2))
    for t in range(T):
        m = A @ m + 0.7 * g.standard_normal(4)
        y[t] = B @ m + 0.5 * g.standard_normal(2)
    return y, np.concatenate([A.ravel(), np.log(np.full(4, 0.49)), np.log(np.full(2, 0.25))])


def jobs_of(model, model_jax, theta, *data):
    """Value and gradient by each system, the plain value by NumPy, and how long JAX took to compile."""
    plain = model(np, *data)
    jobs = {"NumPy value": lambda: plain(theta), "tapegrad": lambda: tg.value_and_grad(plain)(theta)}
    torch, autograd, jax, compiling = bench.torch(), bench.autograd(), bench.jax(), bench.NOT_INSTALLED
    jobs |= dict.fromkeys(("PyTorch", "autograd", "JAX jit"), bench.NOT_INSTALLED)
    if torch is not None:
        in_torch, leaf = (
            model(torch, *[torch.tensor(d) for d in data]),
            torch.tensor(theta, requires_grad=True),
        )

        def with_torch():
            value = in_torch(leaf)
            return value, torch.autograd.grad(value, leaf)[0]

        jobs["PyTorch"] = with_torch
    if autograd is not None:
        in_autograd = autograd.value_and_grad(model(autograd.numpy, *data))
        jobs["autograd"] = lambda: in_autograd(theta)
    if jax is not None:
        jitted = jax.jit(jax.value_and_grad(model_jax(jax, *data)))
        begin = time.perf_counter()
        jax.block_until_ready(jitted(theta))
        compiling = time.perf_counter() - begin
        jobs["JAX jit"] = lambda: jax.block_until_ready(jitted(theta))
    return jobs, compiling


def main():
    report = bench.start(__doc__)
    report.table(
        "value and gradient: milliseconds",
        [
            "model",
            "NumPy, value alone",
            "tapegrad, recorded",
            "PyTorch",
            "HIPS autograd",
            "JAX jit (compiled)",
            "JAX compiling",
        ],
    )
    y, theta = simulated(100 if report.quick else 1000)
    flow = np.loadtxt(NILE, delimiter=",", skiprows=3, usecols=1)
    models = {
        f"4 states, 2 observations, T = {len(y)}, 22 parameters": (four_states, four_states_jax, theta, y, B),
        "the same in element form": (four_states_elements, four_states_jax, theta, y, B),
        f"local level, Nile, n = {len(flow)}, 2 parameters": (
            local_level,
            local_level_jax,
            np.log([1e4, 1e3]),
            flow,
        ),
    }
    shares = []
    for title, model in models.items():
        jobs, compiling = jobs_of(*model)
        t = bench.measure(jobs, seconds=3)
        report.row(title, *[bench.times(s, 1e3) for s in t.values()], bench.times(compiling, 1e3))
        shares.append(
            (title, bench.ratio(t["tapegrad"], t["NumPy value"]), bench.ratio(t["tapegrad"], t["PyTorch"]))
        )
    report.say()
    for (title, of_numpy, of_torch), bound in zip(shares, (5, 8), strict=False):
        report.goal(f"G1d, {title}: tapegrad / NumPy's value", of_numpy, bound)
        if bound == 5:
            report.goal(f"{title}: tapegrad / PyTorch", of_torch, 0.25)
    for title, of_numpy, of_torch in shares[2:]:
        report.say(
            f"- {title}: tapegrad / NumPy's value {bench.cell(of_numpy)}, tapegrad / PyTorch "
            f"{bench.cell(of_torch)} (no goal set)"
        )
    report.close()


if __name__ == "__main__":
    main()
