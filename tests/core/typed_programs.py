"""Three programs as users write them, with types: `mypy --strict` finds nothing in them, and tests/core/test_types.py runs them."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import tapegrad as tg
from tapegrad import statespace as ss

Floats: TypeAlias = NDArray[np.float64]


# --- a model of a series: the maximum of its likelihood, standard errors, a forecast ---


def random_walk(n: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(np.cumsum(rng.normal(size=n)) + rng.normal(size=n), dtype=np.float64)


def level(p: dict[str, float]) -> ss.LinearGaussian:
    return ss.local_level(p["level"], p["noise"])


def fit_level(y: Floats) -> tuple[dict[str, float], Floats]:
    fitted = ss.fit(level, y, {"level": 1.0, "noise": 1.0}, ss.positive())
    params: dict[str, float] = fitted.params
    forecast = fitted.forecast(3)
    return params, np.asarray(forecast.mean, dtype=np.float64)


# --- a simulation in place, fitted to data ---


@dataclass
class Rod:
    """Heat in a rod, its temperatures in memory that is used again."""

    steps: int
    u: Floats

    def run(self, k: Floats) -> Floats:
        self.u[:] = 0.0
        self.u[0] = 1.0
        for _ in range(self.steps):
            self.u[1:-1] += k[0] * (self.u[2:] - 2.0 * self.u[1:-1] + self.u[:-2])
        return self.u

    def misfit(self, k: Floats, seen: Floats) -> float:
        return float_of(((self.run(k) - seen) ** 2).sum())


def float_of(x: np.float64) -> float:
    """A number of NumPy's is one of Python's for type checkers, and stays what it is."""
    return x


def fit_rod(seen: Floats) -> Floats:
    rod = Rod(20, np.zeros(seen.size))
    start: Floats = np.array([0.05])
    slope: Floats = tg.grad(rod.misfit)(start, seen)
    assert slope.shape == start.shape
    result = tg.optimize.minimize(rod.misfit, start, args=(seen,), method="trust-ncg")
    return np.asarray(result.x, dtype=np.float64)


# --- Newton's method by products, and many starts at once ---


def banana(x: Floats) -> float:
    return float_of((100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum())


def newton(x: Floats, steps: int = 30) -> Floats:
    prepared = tg.prepare(banana, x)
    for _ in range(steps):
        g: Floats = prepared.grad(x)
        H: Floats = np.stack([tg.hvp(banana, x, e) for e in np.eye(x.size)])
        step = np.asarray(np.linalg.solve(H, g), dtype=np.float64)
        t = 1.0
        while banana(x - t * step) > banana(x) and t > 1e-6:
            t /= 2
        x = x - t * step
    return x


def slopes(starts: Floats) -> Floats:
    many: Floats = tg.vmap(tg.grad(banana))(starts)
    return many


def by_hand(x: Floats) -> Floats:
    with tg.Tape() as tape:
        v = tape.watch(x)
        y: tg.Variable = (v * v).sum() + v[0]
    return np.asarray(tape.grad(y, v), dtype=np.float64)
