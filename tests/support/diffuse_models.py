"""Models with diffuse starts, for which tests/support/diffuse_truth.json holds what is true.

T, Q and H are linear in the parameters q: T = T0 + sum q_i DT_i, Q = sum q_i DQ_i, H = sum q_i DH_i.  Plain NumPy, so that the script that
makes the numbers (diffuse_truth.py) needs nothing of the package."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Model:
    T0: np.ndarray
    Z: np.ndarray
    DQ: np.ndarray
    DH: np.ndarray
    q: np.ndarray
    y: np.ndarray
    DT: np.ndarray
    cov: np.ndarray
    mark: np.ndarray
    entry: int | None = None  # the gradient's entry that is known; None: all
    steps: list = field(default_factory=list)  # the smoothed states that are known

    def matrices(self, q, times=lambda x, D: x * D):
        """T, Q and H; `times`: a number times a matrix."""
        add = lambda base, Ds: sum([times(x, D) for x, D in zip(q, Ds, strict=True) if D.any()], base)
        return add(self.T0, self.DT), add(0.0 * self.DQ[0], self.DQ), add(0.0 * self.DH[0], self.DH)


def blocks(parts):
    m = sum([len(x) for x in parts])
    A, at = np.zeros((m, m)), 0
    for x in parts:
        A[at : at + len(x), at : at + len(x)] = x
        at += len(x)
    return A


def waves(period, count):
    return blocks(
        [
            np.array([[np.cos(w), np.sin(w)], [-np.sin(w), np.cos(w)]])
            for w in 2 * np.pi * np.arange(1, count + 1) / period
        ]
    )


def dummies(period):
    T = np.eye(period - 1, k=-1)
    T[0] = -1.0
    return T


def part(kind, setting, variances):
    """Transition, loading, and for each variance which states it enters."""
    if kind == "level":
        return np.eye(1), [1.0], [(variances, [1.0])]
    if kind == "trend":
        return (
            np.array([[1.0, 1.0], [0.0, 1.0]]),
            [1.0, 0.0],
            [(variances[0], [1.0, 0.0]), (variances[1], [0.0, 1.0])],
        )
    if kind == "waves":
        T = waves(*setting)
        return T, [1.0, 0.0] * setting[1], [(variances, np.ones(len(T)))]
    if kind == "dummies":
        first = np.eye(setting - 1)[0]
        return dummies(setting), first, [(variances, first)]
    return np.array([[setting]]), [1.0], [(variances, [1.0])]  # an autoregression of order 1


def model(y, noise, *parts, H=None, loadings=None, known=(), moving=(), entry=None, steps=()):
    """A sum of parts (kind, setting, variances) and noise of variance `noise` (None: there is none), seen by
    the loadings of the series; `known`: states with a start of variance 0.1; `moving`: states whose diagonal
    entry of T is a parameter."""
    made = [part(*x) for x in parts]
    T, z = blocks([T for T, *_ in made]), np.concatenate([z for _, z, _ in made])
    m, at, q, DQ = (
        len(T),
        0,
        [] if noise is None else [noise],
        [] if noise is None else [np.zeros((len(T), len(T)))],
    )
    for X, _, variances in made:
        for v, where in variances:
            D = np.zeros(m)
            D[at : at + len(where)] = where
            DQ.append(np.diag(D))
            q.append(v)
        at += len(X)
    Z = z[None] if loadings is None else np.asarray(loadings)[:, None] * z
    y = np.array(y, float).reshape(len(y), -1)
    DH = np.zeros((len(q), len(Z), len(Z)))
    if noise is not None:
        DH[0] = np.eye(len(Z)) if H is None else H
    DT = np.zeros((len(q), m, m))
    for i in moving:
        q.append(T[i, i])
        D = np.zeros((m, m))
        D[i, i] = 1.0
        DT, DQ, DH = np.concatenate([DT, D[None]]), [*DQ, 0.0 * DQ[0]], np.concatenate([DH, 0.0 * DH[:1]])
        T[i, i] = 0.0
    mark = ~np.isin(np.arange(m), known)
    return Model(
        T, Z, np.array(DQ), DH, np.array(q, float), y, DT, np.diag(0.1 * ~mark), mark, entry, list(steps)
    )


def series(n, period=365.25, offset=5.0, seed=0):
    g, t = np.random.default_rng(seed), np.arange(n)
    walk = np.cumsum(0.02 * g.normal(size=n))
    return (
        offset
        + walk
        + np.sin(2 * np.pi * t / period)
        + 0.4 * np.cos(4 * np.pi * t / period + 1)
        + 0.3 * g.normal(size=n)
    )


def missing(y, *places):
    y = np.array(y, float)
    for place in places:
        y[place] = np.nan
    return y


LEVEL, TREND = ("level", None, 4e-4), ("trend", None, (4e-4, 1e-6))


def wave(period, count, variance=1e-6):
    return "waves", (period, count), variance


def two_series(n):
    g, y = np.random.default_rng(3), series(n)
    Y = np.stack([y, 0.5 * y + 0.2 * g.normal(size=n)], axis=1)
    return missing(Y, (slice(0, 30), 0), (slice(20, 50), 1), slice(5, 9))


def regression(n):
    """Coefficients of 1, t and t^2 that are random walks."""
    made, t = (
        model(series(n), 0.09, LEVEL, ("level", None, 1e-10), ("level", None, 1e-15)),
        np.arange(float(n)),
    )
    made.Z = np.stack([np.ones(n), t, t * t], axis=1)[:, None]
    return made


NAMED = {
    "365.25/1": lambda: model(series(120), 0.09, LEVEL, wave(365.25, 1), steps=[0, 1, 60, 119]),
    "365.25/2": lambda: model(series(120), 0.09, LEVEL, wave(365.25, 2)),
    "365.25/3": lambda: model(series(120), 0.09, LEVEL, wave(365.25, 3)),
    "365.25/10": lambda: model(series(400), 0.09, LEVEL, wave(365.25, 10), entry=1),
    "100/2": lambda: model(series(120), 0.09, LEVEL, wave(100, 2)),
    "52/3": lambda: model(series(120), 0.09, LEVEL, wave(52, 3)),
    "24/3": lambda: model(series(200, 24), 0.09, LEVEL, wave(24, 3), steps=[0, 1, 3, 6, 10, 100, 199]),
    "trend, 52/1": lambda: model(series(200, 52), 0.09, TREND, wave(52, 1), steps=[0, 1, 2, 5, 100, 199]),
    "trend, 365.25/1": lambda: model(series(400), 0.09, TREND, wave(365.25, 1), steps=[0, 1, 10, 200, 399]),
    "24/3, 168/2": lambda: model(series(400, 24), 0.09, LEVEL, wave(24, 3), wave(168, 2), entry=2),
    "trend, 7/3, 365.25/2": lambda: model(
        series(400), 0.09, TREND, wave(7, 3), wave(365.25, 2, 1e-7), entry=3
    ),
    "gaps at the start": lambda: model(
        missing(series(250), slice(0, 40), slice(60, 75), slice(100, 200, 3)),
        0.09,
        LEVEL,
        wave(365.25, 3),
        steps=[0, 39, 65, 249],
    ),
    "two series": lambda: model(
        two_series(200),
        0.09,
        LEVEL,
        wave(365.25, 3),
        H=np.array([[1.0, 0.3], [0.3, 0.7]]),
        loadings=[1.0, 0.5],
        steps=[0, 7, 25, 199],
    ),
    "dummies of 52": lambda: model(series(180, 52), 0.09, LEVEL, ("dummies", 52, 1e-4), entry=2),
    "trend, dummies of 12": lambda: model(
        series(120, 12), 0.09, TREND, ("dummies", 12, 1e-5), steps=[0, 5, 119]
    ),
    "varying coefficients": lambda: regression(150),
    "no observation noise": lambda: model(series(150), None, LEVEL, wave(365.25, 2)),
    "8766/2": lambda: model(series(600), 0.09, LEVEL, wave(8766, 2, 1e-9)),
    "far from 0": lambda: model(series(200, offset=1e6), 0.09, LEVEL, wave(365.25, 3)),
    "autoregression": lambda: model(
        series(200), 0.09, LEVEL, ("ar", 0.7, 0.05), wave(365.25, 2), known=(1,), moving=(1,)
    ),
    "large units": lambda: model(1e4 * series(120), 9e6, ("level", None, 4e4), wave(365.25, 3, 1e2)),
    "small noise": lambda: model(series(200), 1e-8, LEVEL, wave(365.25, 2)),
}

PERIODS = [7, 12, 24, 48, 52, 52.18, 100, 168, 336, 365.25, 730, 8766]


def drawn(seed):
    """A random model of one or two series, with up to 30 diffuse states and with gaps."""
    g = np.random.default_rng(seed)
    while True:
        n = int(g.choice([80, 150, 300]))
        level = ("level", None, 10 ** g.uniform(-6, -1))
        parts = (
            [level]
            if g.random() < 0.6
            else [("trend", None, (10 ** g.uniform(-6, -1), 10 ** g.uniform(-9, -4)))]
        )
        for _ in range(g.integers(1, 3)):
            period = float(g.choice([*PERIODS, np.round(10 ** g.uniform(0.9, 3.9), 2)]))
            parts.append(
                wave(period, int(min(g.integers(1, 11), max(1, period // 2 - 1))), 10 ** g.uniform(-9, -3))
            )
        q = sum([len(part(*x)[0]) for x in parts])
        if q <= 30 and n > 1.5 * q:
            break
    t = np.arange(n)
    y = 10 ** g.uniform(-2, 3) * g.normal() + np.cumsum(0.02 * g.normal(size=n)) + 0.3 * g.normal(size=n)
    y = y + sum([np.sin(2 * np.pi * t / x[1][0] + 1) for x in parts[1:]])
    if g.random() < 0.4:
        y[: int(g.integers(1, n // 4))] = np.nan
    if g.random() < 0.4:
        y[n // 3 : n // 2 : int(g.integers(1, 4))] = np.nan
    H = loadings = None
    if g.random() < 0.25:
        loading, c = g.normal(), g.uniform(-0.8, 0.8)
        H, loadings = np.array([[1.0, c], [c, 1.0]]), [1.0, loading]
        y = np.stack([y, loading * y + 0.3 * g.normal(size=n)], axis=1)
        y[g.random(y.shape) < 0.1] = np.nan
    made = model(y, 10 ** g.uniform(-4, 0), *parts, H=H, loadings=loadings)
    made.entry = int(g.integers(len(made.q)))
    return made
