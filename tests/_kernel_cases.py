"""The fixed list of generated kernels that is compiled, budgeted, and run in every way: name -> kernel, parameters, data."""

from functools import cache

import numpy as np
from test_kernels_likelihood import THETA, X, gaussian
from test_kernels_recursion import MODELS, NILE, POINTS, known, step, unseen

import tapegrad as tg

kernels = tg.kernels


def dense_kalman(k: int):
    """k states, one observation of the first: parameters A (k, k), log variances of the states (k) and of the observation."""
    h = np.eye(k)[0]

    def start(theta):
        return np.zeros(k), np.eye(k)

    def step(carry, theta, y):
        m, P = carry
        A = theta[: k * k].reshape(k, k)
        m, P = A @ m, A @ P @ A.T + np.diag(np.exp(theta[k * k : k * k + k]))
        v, S = y - h @ m, h @ P @ h + np.exp(theta[-1])
        K = P @ h / S
        return (m + K * v, P - np.outer(K, h @ P)), -0.5 * (np.log(S) + v * v / S + np.log(2 * np.pi))

    rng = np.random.default_rng(k)
    A = 0.7 * np.linalg.qr(rng.normal(size=(k, k)))[0]
    theta = np.concatenate([A.ravel(), np.log(np.full(k, 0.3)), [np.log(0.5)]])
    return kernels.recursion(start, step), theta[:, None], rng.normal(size=23)


def model(name: str):
    init, step, theta, data = MODELS[name]()
    return kernels.recursion(init, step), theta[:, None], data


CASES = {
    "gaussian": lambda: (kernels.likelihood(gaussian), THETA, np.tile(X, 30)),
    "local level": lambda: (kernels.recursion(known, step, missing=unseen), POINTS, NILE),
    **{f"kalman {k}": lambda k=k: dense_kalman(k) for k in (1, 2, 3, 4)},
    "garch": lambda: model("garch"),
    "hidden markov": lambda: model("hidden Markov"),
}
MATRICES = {
    "kalman inv": lambda: model("kalman inv"),
    "kalman solve": lambda: model("kalman solve"),
    "kalman cholesky": lambda: model("kalman cholesky"),
    "window": lambda: model("written in place"),
}
WAYS = [("F", 0), ("VG", 0), ("R", 1)]  # value; value and gradient; Hessian times a vector


@cache
def case(name: str) -> tuple:
    """(kernel, parameters (p, 11), data)."""
    k, theta, data = {**CASES, **MATRICES}[name]()
    rng = np.random.default_rng(0)
    many = np.tile(theta, 11)[:, :11]
    return k, many * (1 + 0.05 * rng.normal(size=many.shape)), data


def escape(x, y):
    """A while loop: steps until the point is outside of a circle, at most 60."""
    u, v = kernels.while_loop(
        lambda c: c[0] * c[0] + c[1] * c[1] < 4.0, lambda c: (c[0] * c[0] - c[1] * c[1] + x, 2 * c[0] * c[1] + y), (x, y), 60
    )
    return u * u + np.sin(v)


def power_sum(x, n):
    """A loop whose number of steps each sample has of its own."""
    return kernels.loop(n, lambda i, s: s * x + np.sin(s) * i, 1.0)


ESCAPE, POWER_SUM = kernels.map(escape), kernels.map(power_sum)
MAPS = {"escape": ESCAPE, "power sum": POWER_SUM}


def program(k, name: str, kind: str, order: int, missing: bool = False, dtype=np.float64):
    """The program of one derivative of kernel k, which is that called `name`."""
    if name in MAPS:
        family, _ = k._family(((), ()), (False, name == "power sum"))
        low = tg.kernels._lower.lowered(family.derived("R" if kind == "VG" else kind, (order, 0), ()))
    else:
        _, theta, data = case(name)
        low = k.lowered(theta.shape[0], 0 if data.ndim == 1 else data.shape[0], kind, order, missing, dtype)
    low.name = f"{name}.{kind}{order}"
    return low


def lowered(name: str, kind: str, order: int, missing: bool = False):
    """The program of one kernel of the list."""
    return program(MAPS[name] if name in MAPS else case(name)[0], name, kind, order, missing)


def fresh(name: str):
    """A kernel of the list of which no derivative has been made: what is made first decides on the order of instructions."""
    return kernels.map(MAPS[name].f) if name in MAPS else CASES[name]()[0]
