"""Gains and states from the moments of a filter, for all steps at once.

For a diffuse start this includes the states given the rows so far."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy

from ... import numpy as np
from ..._core.arrays import xp_of
from ..._core.primitive import is_tracked, layout_of
from ...kernels.library.observation import innovations
from .._matrices import ModelMatrices
from .._observations import Observations
from .arrays import Moments, first_state, observed_moments
from .augmented import DiffuseRegression, DiffuseStart, diffuse_regression, start_of
from .diffuse_start import begin_of, is_determined


@dataclass(frozen=True)
class Gains:
    """The gain K = P Z' F^-1 of each step, and its ingredients.

    Z and F treat a missing element as zero with an error of variance 1. The innovations are v (n, p, k). T
    leads out of the step. `here` marks the present elements, or is None for all."""

    Z: Any
    F: Any
    K: Any
    v: Any
    T: Any
    here: Any

    @cached_property
    def Y(self):
        """F^-1 Z."""
        Z = self.Z + xp_of(layout_of(self.F)).zeros((len(self.F), 1, 1))
        return Z / self.F if Z.shape[1] == 1 else np.linalg.solve(self.F, Z)

    @cached_property
    def L(self):
        """T (I - K Z)."""
        return self.T - (self.T @ self.K) @ self.Z


def gains(s: ModelMatrices, data: Observations, x: Moments, begin: int, end: int) -> Gains:
    """Return the gains of steps begin to end."""
    n, xp, here = end - begin, s.xp, None
    Z, H, d = (s.at(slice(begin, end), name) for name in "ZHd")
    y = data.values[begin:end] - d
    if any([len(rows) < data.width for rows in data.rows[begin:end]]):
        here = xp.asarray(
            numpy.array([numpy.isin(numpy.arange(data.width), row) for row in data.rows[begin:end]], float)
        )
        Z, y = Z * here[:, :, None], y * here
        H = H * (here[:, :, None] * here[:, None, :]) + xp.eye(data.width) * (1.0 - here)[:, :, None]
    k = x.mean.shape[-1]
    seen = (
        y[:, :, None] if k == 1 else np.concatenate([y[:, :, None], xp.zeros((n, data.width, k - 1))], axis=2)
    )
    v, U, F = innovations(x.mean, x.cov, Z, H, seen)
    K = U / F if data.width == 1 else np.linalg.solve(F, U)
    T = s.at(numpy.minimum(numpy.arange(begin, end) + s.predict_first, data.steps - 1), "T")
    return Gains(Z, F, K.mT, v, T, here)


@dataclass(frozen=True)
class StateMoments:
    """Means (n, m) and covariances (n, m, m) before and after the observations, and those of Z x before."""

    mean: Any
    cov: Any
    filtered_mean: Any
    filtered_cov: Any
    signal: Any
    signal_cov: Any


def filtered(of) -> tuple[StateMoments, Any, Any]:
    """Return states, log-likelihood terms (n,), and the factors of infinity in the first covariances, (steps,
    m, m).

    The augmented filter runs until the start may be collapsed."""
    s, data, n = of.s, of.data, of.data.steps
    start = start_of(s, data)
    if start is None:
        return *_ordinary(of, *first_state(s, None), 0), s.xp.zeros((0, *s.cov.shape))
    moving, dropped = is_tracked(s.T) or is_tracked(s.Z), n if start.dropped is None else start.dropped
    k = max(
        start.least if is_determined(s, data, moving) else begin_of(s, data, moving, of.joseph).steps, dropped
    )
    x = of.moments(*first_state(s, start), 0, min(k + 1, n))
    head = x.first(k)
    factors, signs, free, logs, partial = rows_so_far(
        head, start, numpy.array([len(rows) for rows in data.rows[:k]], int)
    )

    def marginal(mean, cov, at: slice) -> tuple[Any, Any]:
        moved = mean[..., 1:] @ factors[at]
        Y = moved[..., 1:]
        return mean[..., 0] + moved[..., 0], cov + (Y * signs) @ Y.mT

    before = slice(0, k)
    signal = marginal(*observed_moments(s, head.mean, head.cov, 0, k), before)
    found = StateMoments(
        *marginal(head.mean, head.cov, before),
        *marginal(head.filtered_mean, head.filtered_cov, slice(1, k + 1)),
        *signal,
    )
    terms = logs[:-1] - logs[1:] - 0.5 * head.size
    last = min(max(dropped, partial), k)  # a covariance is infinite up to here
    unseen = head.mean[:last, :, 1:] @ free[:last]
    infinite = unseen @ unseen.mT
    if k == n:
        return found, terms, infinite
    later, more = _ordinary(of, *marginal(x.mean[k:], x.cov[k:], slice(k, k + 1)), k)
    both = [np.concatenate([getattr(found, f.name), getattr(later, f.name)]) for f in fields(StateMoments)]
    return StateMoments(*both), np.concatenate([terms, more]), infinite


def _ordinary(of, mean, cov, begin: int) -> tuple[StateMoments, Any]:
    """Return states and terms from step `begin` on, with known mean and covariance."""
    m = cov.shape[-1]
    x = of.moments(mean.reshape((m,)), cov.reshape((m, m)), begin, of.data.steps)
    signal, spread = observed_moments(of.s, x.mean, x.cov, begin, of.data.steps)
    square = np.sum(x.white * x.white, axis=(1, 2))
    return StateMoments(
        x.mean[..., 0], x.cov, x.filtered_mean[..., 0], x.filtered_cov, signal[..., 0], spread
    ), -0.5 * (x.size + square)


BLOCK = 16  # steps whose rows are factorised at once


def rows_so_far(x: Moments, start: DiffuseStart, numbers: numpy.ndarray) -> tuple:
    """Return the regression of delta on the rows before each step, and on all rows.

    Given these rows, delta is N(estimate, R S R') with factors [estimate, R] and signs S on the diagonal, and
    with infinite variance along `free` (q, q). This is the limit of a start of covariance kappa I, along
    which there is no finite variance. The other results are half the residual square plus log |det R|, and
    the number of steps with too few rows. `numbers` counts the rows of each step.

    The first independent rows span all rows so far. While there are fewer than elements, delta is regressed
    in as many orthogonal directions. The others have rows of their own, so all steps of a block have one
    shape. As long as all rows are independent, they are equations, and the regression solves them."""
    r, q, xp = start.rank, start.centre.size, xp_of(layout_of(x.white))
    picked, at = start.independent, numpy.flatnonzero(numbers)
    count = (picked[:, 0] <= at[:, None]).sum(axis=1)
    eye, centre, c = xp.eye(q), xp.asarray(start.centre[:, None]), len(picked)
    plain = U = eye[:, :c]
    if (count < r).any():
        U = np.concatenate(
            [np.linalg.qr(x.white[picked[:, 0], picked[:, 1], 1 : r + 1].T)[0], xp.zeros((q - r, c))]
        )
    each = numpy.arange(c)
    above = x.white[picked[:, 0], picked[:, 1]]
    square = 0.0
    tables, logs = [np.concatenate([-centre, xp.zeros((q, c)), eye], axis=1)[None]], [xp.zeros(1)]

    def add(basis, used, estimate, root) -> None:
        free = eye - (basis * used) @ basis.mT
        tables.append(np.concatenate([basis @ estimate - free @ centre, basis @ (root * used), free], axis=2))

    solved = int((numpy.cumsum(numbers[at]) == count).sum())
    if solved:
        known = count[:solved, None]
        used = xp.asarray((1.0 * (each < known))[:, None])
        basis = np.where(xp.asarray(known < r)[:, :, None], U, plain)
        rows = above * used.mT
        equations = xp.eye(c) * (1.0 - used) - rows[:, :, 1:] @ basis * used
        root = np.linalg.inv(equations)
        add(basis, used, root @ rows[:, :, :1], root)
        logs.append(np.linalg.slogdet(equations)[1])
    above = above[: count[solved - 1] if solved else 0]
    for k in range(solved, at.size, BLOCK):
        now, known = at[k : k + BLOCK], count[k : k + BLOCK, None]
        n, used = now.size, 1.0 * (each < known)
        here = numpy.repeat(numpy.tril(numpy.ones((n, n))), x.white.shape[1], axis=1)
        here = xp.asarray(numpy.concatenate([numpy.ones((n, above.shape[0])), here], axis=1)[:, :, None])
        others = numpy.zeros((n, c, 1 + c))
        others[:, each, 1 + each] = 1.0 - used
        used = xp.asarray(used[:, None])
        basis = np.where(xp.asarray(known < r)[:, :, None], U, plain)
        rows = np.concatenate([above, x.white[now].reshape((-1, 1 + q))]) * here
        white = np.concatenate([rows[:, :, :1], rows[:, :, 1:] @ basis * used], axis=2)
        part = diffuse_regression(np.concatenate([white, xp.asarray(others)], axis=1), c, c)
        add(basis, used, part.estimate[:, :, None], part.root)
        logs.append(0.5 * (part.square + square) + part.log_det)
        above = np.concatenate([part.u[-1][:, None], -(part.R[-1] * used[-1].T) @ basis[-1].T], axis=1)
        square = square + part.square[-1]
    step = numpy.concatenate([[0], numpy.cumsum(numbers > 0)])
    table, partial = np.concatenate(tables)[step], (numpy.concatenate([[0], count])[step] < r).sum()
    sizes, signs = [
        xp.asarray(numpy.concatenate([numpy.ones(n), x]))
        for n, x in ((1 + c, numpy.sqrt(start.spread)), (c, -numpy.ones(q)))
    ]
    return table * sizes, signs, table[:, :, 1 + c :], np.concatenate(logs)[step], int(partial)


def delta_of(x: Moments, start: DiffuseStart | None) -> DiffuseRegression | None:
    """Return the regression of the diffuse elements on all rows."""
    if start is None:
        return None
    judge = lambda R: start.require_conditioned(R, True)
    return diffuse_regression(x.rows(0, x.white.shape[0]), start.rank, start.centre.size, judge=judge)
