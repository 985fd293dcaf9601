"""The fixed list of generated kernels that is compiled, budgeted, and run in every way: name -> kernel,
parameters, data."""

from functools import cache

import numpy as np
import scipy.interpolate
from kernel_programs import THETA, X, gaussian
from kernel_recursions import MODELS, NILE, POINTS, known, step, unseen

import tapegrad as tg

kernels = tg.kernels


def dense_kalman(k: int):
    """k states, one observation of the first: parameters A (k, k), log variances of the states (k) and of the
    observation."""
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


def anomaly(M, e):
    """Kepler's equation E - e sin E = M by Newton's steps."""
    miss = lambda E: E - e * np.sin(E) - M
    return kernels.while_loop(
        lambda E: np.abs(miss(E)) > 1e-5, lambda E: E - miss(E) / (1.0 - e * np.cos(E)), M + e * np.sin(M), 40
    )


def orbit(theta, datum):
    """Radial velocity of a planet: log period, excentricity, amplitude, argument of the pericentre, log
    noise."""
    t, v = datum
    e = theta[1]
    E = anomaly(2 * np.pi * t * np.exp(-theta[0]), e)
    rate = 1.0 / (1.0 - e * np.cos(E))
    model = (
        theta[2] * rate * (np.sqrt(1.0 - e * e) * np.cos(E) * np.cos(theta[3]) - np.sin(E) * np.sin(theta[3]))
    )
    return -0.5 * ((v - model) * np.exp(-theta[4])) ** 2 - theta[4]


def kepler():
    rng = np.random.default_rng(5)
    theta = np.array([np.log(3.1), 0.35, 1.2, 0.4, np.log(0.3)])
    return (
        kernels.likelihood(orbit),
        theta[:, None],
        np.stack([np.sort(rng.uniform(0, 9, 29)), rng.normal(size=29)]),
    )


def predator(state, theta, h):
    """A step of length h of Runge and Kutta's for predators and prey."""
    slope = lambda s: np.array([s[0] * (theta[0] - theta[1] * s[1]), s[1] * (theta[2] * s[0] - theta[3])])
    a = slope(state)
    b = slope(state + 0.5 * h * a)
    c = slope(state + 0.5 * h * b)
    return state + h / 6 * (a + 2 * b + 2 * c + slope(state + h * c))


def filtered(state, theta, datum):
    """As many steps as the datum says, and a correction by what was seen."""
    y, n = datum
    state = kernels.loop(n, lambda i, s: predator(s, theta, 0.04), state)
    r = y - state[0]
    return state + 0.2 * np.array([r, 0.0]), -0.5 * r * r * np.exp(-2 * theta[4]) - theta[4]


def substeps():
    rng = np.random.default_rng(6)
    theta = np.array([1.1, 0.4, 0.3, 0.6, np.log(0.4)])
    data = np.stack([1.5 + 0.3 * rng.normal(size=23), rng.integers(0, 7, 23)])
    return (
        kernels.recursion(lambda theta: np.array([1.4, 1.1]) + 0.1 * theta[0], filtered),
        theta[:, None],
        data,
    )


NODES = np.linspace(0.0, 9.0, 40) ** 1.2
DOSE = scipy.interpolate.CubicSpline(NODES, np.sin(NODES))


def forced(theta, datum):
    """A dose by a spline, an effect by a table whose heights are parameters."""
    t, v = datum
    dose = theta[0] * DOSE(t) + np.interp(t, NODES, NODES**0.5)
    effect = theta[3:][np.searchsorted(NODES[:10] - 2.0, dose - theta[1])]
    return -0.5 * ((v - effect * dose) * np.exp(-theta[2])) ** 2 - theta[2]


def tables():
    rng = np.random.default_rng(7)
    theta = np.concatenate([[0.7, 0.3, np.log(0.4)], rng.uniform(0.5, 1.5, 11)])
    data = np.stack([np.sort(rng.uniform(0, 9, 29)), rng.normal(size=29)])
    return kernels.likelihood(forced), theta[:, None], data


CASES = {
    "gaussian": lambda: (kernels.likelihood(gaussian), THETA, np.tile(X, 30)),
    "local level": lambda: (kernels.recursion(known, step, missing=unseen), POINTS, NILE),
    **{f"kalman {k}": lambda k=k: dense_kalman(k) for k in (1, 2, 3, 4)},
    "garch": lambda: model("garch"),
    "hidden markov": lambda: model("hidden Markov"),
    "kepler": kepler,
    "substeps": substeps,
    "tables": tables,
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
        lambda c: c[0] * c[0] + c[1] * c[1] < 4.0,
        lambda c: (c[0] * c[0] - c[1] * c[1] + x, 2 * c[0] * c[1] + y),
        (x, y),
        60,
    )
    return u * u + np.sin(v)


def power_sum(x, n):
    """A loop whose number of steps each sample has of its own."""
    return kernels.loop(n, lambda i, s: s * x + np.sin(s) * i, 1.0)


def triangle(x, n):
    """Three loops deep: as many steps as the counter says, in each a root by Newton's."""

    def root(a):
        return kernels.while_loop(
            lambda r: np.abs(r * r - a) > 1e-3 * a, lambda r: 0.5 * (r + a / r), 1.0 + 0.1 * a, 30
        )

    def body(i, s):
        return kernels.loop(i + 1, lambda j, u: 0.5 * u + root(x * x + 0.01 * j + s * s), s)

    return kernels.loop(n, body, x)


ESCAPE, POWER_SUM, TRIANGLE = kernels.map(escape), kernels.map(power_sum), kernels.map(triangle)
MAPS = {"escape": ESCAPE, "power sum": POWER_SUM, "triangle": TRIANGLE}


def program(k, name: str, kind: str, order: int, missing: bool = False, dtype=np.float64):
    """The program of one derivative of kernel k, which is that called `name`."""
    if name in MAPS:
        family, _ = k._family(((), ()), (False, name != "escape"))
        low = tg.kernels.emit.lower.lower_program(
            family.derived("R" if kind == "VG" else kind, (order, 0), ())
        )
    else:
        _, theta, data = case(name)
        low = k.lowered(theta.shape[0], 0 if data.ndim == 1 else data.shape[0], kind, order, missing, dtype)
    low.name = f"{name}.{kind}{order}"
    return low


def lowered(name: str, kind: str, order: int, missing: bool = False):
    """The program of one kernel of the list."""
    return program(MAPS[name] if name in MAPS else case(name)[0], name, kind, order, missing)


def fresh(name: str):
    """A kernel of the list of which no derivative has been made: what is made first decides on the order of
    instructions."""
    return kernels.map(MAPS[name].f) if name in MAPS else CASES[name]()[0]
