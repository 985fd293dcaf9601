"""Levenberg-Marquardt for many small problems at once, with bounds; `_residuals_many` calls this module.

What a problem does between two evaluations is one function of its state. It is compiled as a kernel. The
steps, the damping and the end of a problem are its own. References: Marquardt, SIAM J. Appl. Math. 11 (1963),
for the damping in units of the diagonal; Nielsen, report IMM-REP-1999-05, for its update; Kanzow, Yamashita
and Fukushima, J. Comput. Appl. Math. 172 (2004), for the projection on bounds."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ..kernels.generated.map import MapKernel
from ..kernels.trace.loops import loop
from ._batched import FINISHED, GRADIENT, LIMIT, LOST, ROUNDING, RUNNING, SMALL_GAIN, START, STUCK

FIRST_DAMPING = 1e-3  # in units of the diagonal
MOST_DAMPING = 1e20
SHORT_STEP = 1e-12  # relative length of a step after which a problem has converged
NOISE = 10  # times the rounding error of the cost: what its differences do not tell


def solved(H, b):
    """Solve H y = b by LDL', for a symmetric H; nan if H is not positive definite to rounding."""
    p, L, y = len(H), H.copy(), b.copy()
    over = (slice(None), *[None] * (b.ndim - 1))
    for j in range(p):
        pivot = np.where(L[j, j] > p * np.finfo(float).eps * H[j, j], L[j, j], np.nan)
        ratios = L[j + 1 :, j] / pivot
        L[j + 1 :, j + 1 :] -= ratios[:, None] * L[j + 1 :, j]
        L[j + 1 :, j] = ratios
        y[j + 1 :] -= ratios[over] * y[j]
        y[j] /= pivot
    for j in range(p - 1, 0, -1):
        y[:j] -= L[j, :j][over] * y[j]
    return y


def symmetric(packed, p: int):
    """Return the matrix of which `packed` is the upper triangle, row by row."""
    places = np.zeros((p, p), int)
    places[np.triu_indices(p)] = np.arange(p * (p + 1) // 2)
    return packed[np.maximum(places, places.T)]


def inverse(packed, p: int):
    A = symmetric(packed, p)
    size = np.sqrt(np.diag(A))
    return solved(A / (size[:, None] * size), np.eye(p) + 0.0 * A) / (size[:, None] * size)


@functools.cache
def inverse_kernel(p: int) -> MapKernel:
    return MapKernel(lambda packed: inverse(packed, p))


def at_bounds(x, g, low, high):
    """Return which parameters stay at a bound, because the cost falls beyond it."""
    return (x <= low) & (g > 0) | (x >= high) & (g < 0)


def cosine(f, g, diagonal, fixed):
    """Return the largest cosine between the residuals and a column of the Jacobian, of the free
    parameters."""
    return np.max(np.where(fixed | (g == 0), 0.0, abs(g) / np.sqrt(2 * f * diagonal)))


def calm(f, cosine, diagonal, x, eps):
    """Return whether rounding hides what the cost can gain along any one parameter.

    That gain is the cost times the squared cosine. The residuals carry at least the rounding errors of x."""
    size = np.sqrt(np.max(diagonal * x * x))
    return f * cosine**2 <= NOISE * eps * (f + np.sqrt(2 * f) * size + eps * size**2)


def lost(diagonal, largest, eps):
    """Return which columns of the Jacobian have vanished, beside the largest norm that they had."""
    return (diagonal <= eps * largest) & (largest > 0)


def damped_step(x, g, A, damping, D, bounds: tuple | None):
    """Return the step that minimises the damped model between the bounds."""
    H = A + np.diag(damping * np.where(D > 0, D, 1.0))
    if bounds is None:
        return solved(H, -g)
    low, high = bounds
    p = len(g)

    def reduced(_, carry: tuple) -> tuple:
        """Solve for the free parameters; one that would leave its bounds is fixed there."""
        s, fixed = carry
        held = fixed > 0
        rest = np.where(held, s, -g - H @ np.where(held, s, 0.0))
        s = solved(np.where(held[:, None] | held, np.eye(p), H), rest)
        inside = np.minimum(np.maximum(x + s, low), high) - x
        over = ~held & ((x + s < low) | (x + s > high))
        return np.where(over, inside, s), np.where(over, 1.0, fixed)

    return loop(p + 1, reduced, (np.zeros(p), np.where(at_bounds(x, g, low, high), 1.0, 0.0)))[0]


@functools.cache
def step_kernel(p: int, bounded: bool) -> MapKernel:
    """Return the kernel of what a problem does between two evaluations.

    It takes the state, the new point with its cost, gradient and matrix, gtol, maxiter and eps. It returns
    the new state and the next point. The state is the rows x, g, D (p each), A (packed), cost, damping, its
    growth, status and the number of steps, which is -1 before the first evaluation; and the bounds, if
    any."""
    q = p * (p + 1) // 2
    ends = np.cumsum([0, p, p, p, q])

    def after(state, new, limits, gtol, maxiter, eps) -> tuple:
        x, g, D, packed = [state[a:b] for a, b in zip(ends, ends[1:], strict=False)]
        f, damping, growth, status, steps = [state[ends[-1] + k] for k in range(5)]
        x1, f1, g1, packed1 = new[:p], new[p], new[p + 1 : 2 * p + 1], new[2 * p + 1 :]
        bounds = (limits[:p], limits[p:]) if bounded else None
        A, A1 = symmetric(packed, p), symmetric(packed1, p)
        held = [np.zeros(p, bool) if bounds is None else at_bounds(*at, *bounds) for at in ((x, g), (x1, g1))]
        s, gain, first = x1 - x, f - f1, steps < 0
        noise = NOISE * eps * f
        expected = -(s @ (g + 0.5 * A @ s))
        finite = abs(f1 + g1.sum() + packed1.sum()) < np.inf
        before, now = cosine(f, g, np.diag(A), held[0]), cosine(f1, g1, np.diag(A1), held[1])
        hidden = (expected <= SMALL_GAIN * f) & (now < before) & (f1 <= (1 + SMALL_GAIN) * f)
        better = (gain > 1e-4 * expected) & (gain > noise) | hidden
        running = status < 0
        taken = running & finite & (first | better)
        failed = running & ~taken
        scale = np.maximum(1 / 3, 1 - (2 * np.where(hidden, 1.0, gain / expected) - 1) ** 3)
        short = ~first & (damping < 1) & ((D * s * s).sum() <= SHORT_STEP**2 * (D * x * x).sum())
        exact = calm(f, before, np.diag(A), x, eps) & (short | failed & finite & (damping >= 1))
        gone, none = [~at & lost(np.diag(H), D, e) for at, H, e in ((held[0], A, eps), (held[1], A1, 0.0))]
        stuck = failed & (damping >= MOST_DAMPING)
        ended = [
            (failed & first, START),
            (taken & (f1 == 0), GRADIENT),
            (taken & (now <= gtol) & none.any() | stuck & gone.any(), LOST),
            (taken & (now <= gtol), GRADIENT),
            (exact & ~first, ROUNDING),
            (stuck, STUCK),
            (steps + 1 >= maxiter, LIMIT),
        ]
        for which, code in ended[::-1]:
            status = np.where(running & which, float(code), status)
        damping = damping * np.where(first, 1.0, np.where(taken, scale, growth))
        growth = np.where(taken, 2.0, 2 * growth)
        x, g, packed, f = [np.where(taken, b, a) for a, b in ((x, x1), (g, g1), (packed, packed1), (f, f1))]
        A = symmetric(packed, p)
        largest = np.maximum(D, np.diag(A))
        # short steps stay short, but not shorter, where the diagonal grows: it nearly vanishes while all
        # residuals are outliers of a robust loss
        shrunk = np.min(np.where(D > 0, D / largest, 1.0))
        damping = np.where(taken & (damping > 1), damping * shrunk, damping)
        D = largest
        steps = np.where(running, steps + 1, steps)
        step = damped_step(x, g, A, damping, D, bounds)
        return np.concatenate([x, g, D, packed, np.stack([f, damping, growth, status, steps])]), x + step

    return MapKernel(after)


def fitted(
    evaluate: Callable, X, bounds: tuple | None, xp: ModuleType, gtol: float, maxiter: int
) -> dict[str, Any]:
    """Solve all problems from the starts X (p, n), and return the last point of each.

    `evaluate(X, which)` returns costs (b,), gradients (p, b) and matrices (packed, b) at points of the
    problems with the numbers `which`. The bounds are arrays (p, n)."""
    p, n = X.shape
    kernel = step_kernel(p, bounds is not None)
    limits = xp.zeros((0, n)) if bounds is None else xp.concatenate(bounds)
    state = xp.zeros((3 * p + p * (p + 1) // 2 + 5, n))
    found, which, x = xp.zeros(state.shape), xp.arange(n), X.astype(np.float64)
    state[:p], state[-4:] = x, xp.array([FIRST_DAMPING, 2.0, RUNNING, -1.0])[:, None]
    while len(which):
        x = (
            xp.clip(x.astype(X.dtype).astype(np.float64), limits[:p], limits[p:])
            if bounds
            else x.astype(X.dtype)
        )
        f, g, A = evaluate(xp.ascontiguousarray(x, dtype=X.dtype), which)
        new = xp.concatenate([x, f[None], g, A])
        state, x = kernel(state, new, limits, gtol, float(maxiter), float(np.finfo(X.dtype).eps))
        done = state[-2] >= 0
        count = int(done.sum())
        if count and count >= FINISHED * len(done):
            found[:, which[done]] = state[:, done]
            left = xp.flatnonzero(~done)
            state, x, limits, which = [a.take(left, axis=-1) for a in (state, x, limits, which)]
    ends = np.cumsum([0, p, p, p, len(found) - 3 * p - 5])
    x, g, _, A = [found[a:b] for a, b in zip(ends, ends[1:], strict=False)]
    return {
        "x": x,
        "g": g,
        "A": A,
        "f": found[-5],
        "status": found[-2].astype(int),
        "iterations": found[-1].astype(int),
    }
