"""Random calls of solve_ivp with events, dense output, and intervals whose ends depend on parameters."""

import random
from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp

K = np.array([1.3, 0.15, 0.4, 0.7])
RIGHT_SIDES = (
    lambda t, y, k: np.stack([y[1], -k[0] * y[0] - k[1] * y[1] + k[2] * np.sin(t)]),
    lambda t, y, k: [k[0] * y[0] - y[0] * y[1], -k[3] * y[1] + k[2] * y[0] * y[1]],
    lambda t, y, k: np.array([y[1], k[0] * (1.0 - y[0] ** 2) * y[1] - k[3] * y[0] + 0 * t]),
)
EVENTS = (
    lambda t, y, k: y[0] - 0.8 * k[3],
    lambda t, y, k: y[1] - 0.1,
    lambda t, y, k: np.sin(2.0 * t) - k[1],
    lambda t, y, k: y[0] - y[1],
    lambda t, y, k: t * k[2] - 0.9 if k[2] > 0 else y[0],
)


class Problem:
    """A loss of parameters: a sum of what a result shows, with fixed weights.

    `shape`: how many events there were, and whether one ended the solution."""

    def __init__(self, seed: int, methods: tuple):
        rng = random.Random(seed)
        self.method = rng.choice(methods)
        self.f = rng.choice(RIGHT_SIDES)
        self.way = rng.choice((1.0, 1.0, -1.0))
        self.ends = rng.choice((False, False, True)), rng.choice((False, True))
        self.events = [self.event(rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        for g in self.events[seed % 2 :]:
            g.terminal *= 1 + seed % 2  # the second crossing ends the solution
        self.times = sorted(rng.uniform(0.1, 2.5) for _ in range(4)) if rng.random() < 0.5 else None
        self.dense = rng.random() < 0.5
        self.shape = None

    @staticmethod
    def event(rng: random.Random) -> Callable:
        chosen = rng.choice(EVENTS)
        g = lambda t, y, k: chosen(t, y, k)
        g.terminal = rng.random() < 0.3
        g.direction = rng.choice((-1, 0, 0, 1))
        return g

    def __call__(self, k, rtol: float = 1e-8, method: str | None = None):
        start = 0.05 * k[2] if self.ends[0] else 0.0
        bound = self.way * (3.0 + k[0] if self.ends[1] else 4.0)
        times = self.times and self.way * np.array(self.times)
        s = solve_ivp(
            self.f, (start, bound), np.stack([0.5 + k[0], k[3]]), method or self.method, times,
            self.dense, self.events or None, args=(k,), rtol=rtol, atol=1e-2 * rtol,
        )  # fmt: skip
        self.shape = s.status, *[len(t) for t in s.t_events or ()]
        parts = [s.y if times is not None else s.y[:, -1], s.t[-1] if times is None else 0.0]
        parts += [t for t in s.t_events or () if len(t)] + [y for y in s.y_events or () if len(y)]
        if self.dense:
            end = (
                s.t[-1]
                if times is None
                else max([self.way * t[-1] for t in s.t_events or () if len(t)] or [2.0])
            )
            end = end if times is None else self.way * end
            parts += [s.sol(0.5 * end), s.sol(np.array([0.4, 0.2, 0.3]) * end)]
        flat = np.concatenate([np.reshape(x, -1) for x in parts])
        return np.sum(np.cos(np.arange(len(flat)) + 1.0) * flat)

    def by_differences(self, k, h: float = 1e-5):
        """Return the gradient by central differences of accurate solutions; None where counts of events change."""
        found, shapes = [], set()
        for e in np.eye(len(k)):
            ends = []
            for sign in (1.0, -1.0):
                ends.append(self(k + sign * h * e, 1e-12, "DOP853"))
                shapes.add(self.shape)
            found.append((ends[0] - ends[1]) / (2 * h))
        return np.array(found) if len(shapes) == 1 else None
