"""What follows from the moments of a filter: gains and the states behind the observations, for all steps at once; and, of a diffuse start,
the states given the rows so far."""

from dataclasses import dataclass, fields
from typing import Any

import numpy

from ... import numpy as np
from ..._core.arrays import xp_of
from ..._core.primitive import is_tracked, layout_of
from .._model import Observations, System
from .arrays import Moments, first_state, through
from .augmented import DiffuseStart, Regression, regression, start_of
from .diffuse_start import begin_of


@dataclass(frozen=True)
class Gains:
    """Of each step: Z and H, in which a missing element is seen as nothing with an error of variance 1, Y = F^-1 Z, the gain K, the
    innovations v (n, p, k), the transition T out of the step, and L = T (I - K Z).  `here`: which elements are there, or None for all."""

    Z: Any
    H: Any
    F: Any
    Y: Any
    K: Any
    v: Any
    T: Any
    L: Any
    here: Any

    def updated(self, x: Moments, joseph: bool) -> tuple[Any, Any]:
        """Mean and covariance behind the observations."""
        KZ = self.K @ self.Z
        if joseph:
            G, K = numpy.eye(x.cov.shape[-1]) - KZ, self.K
            P = G @ x.cov @ np.swapaxes(G, -1, -2) + K @ self.H @ np.swapaxes(K, -1, -2)
        else:
            P = x.cov - KZ @ x.cov
        return x.mean + self.K @ self.v, (P + np.swapaxes(P, -1, -2)) * 0.5


def gains(s: System, data: Observations, x: Moments, begin: int, end: int) -> Gains:
    """Those of steps begin to end."""
    n, xp, here = end - begin, s.xp, None
    Z, H, d = (getattr(s, name)[begin:end] if name in s.varying else getattr(s, name) for name in "ZHd")
    y = data.values[begin:end] - d
    if any([len(rows) < data.width for rows in data.rows[begin:end]]):
        here = xp.asarray(numpy.array([numpy.isin(numpy.arange(data.width), row) for row in data.rows[begin:end]], float))
        Z, y = Z * here[:, :, None], y * here
        H = H * (here[:, :, None] * here[:, None, :]) + xp.eye(data.width) * (1.0 - here)[:, :, None]
    k = x.mean.shape[-1]
    seen = y[:, :, None] if k == 1 else np.concatenate([y[:, :, None], xp.zeros((n, data.width, k - 1))], axis=2)
    U = Z @ x.cov
    F = U @ np.swapaxes(Z, -1, -2) + H
    Z_each = Z + xp.zeros((n, 1, 1))
    G, Y = (U / F, Z_each / F) if data.width == 1 else (np.linalg.solve(F, U), np.linalg.solve(F, Z_each))
    K = np.swapaxes(G, -1, -2)
    T = s.T[numpy.minimum(numpy.arange(begin, end) + s.predict_first, data.steps - 1)] if "T" in s.varying else s.T
    return Gains(Z, H, F, Y, K, seen - Z @ x.mean, T, T - (T @ K) @ Z, here)


@dataclass(frozen=True)
class States:
    """Means (n, m) and covariances (n, m, m) before and behind the observations, and those of Z x before."""

    mean: Any
    cov: Any
    filtered_mean: Any
    filtered_cov: Any
    signal: Any
    signal_cov: Any


def filtered(of: Any) -> tuple[States, Any, Any]:
    """The states by a filter, the log-likelihood terms (n,), and what multiplies infinity in the first covariances, (steps, m, m).  The
    augmented filter runs until the start may be collapsed."""
    s, data, n = of.s, of.data, of.data.steps
    start = start_of(s, data)
    if start is None:
        return *_ordinary(of, *first_state(s, None), 0), s.xp.zeros((0, *s.cov.shape))
    hidden = n if start.dropped is None else start.dropped  # so long the variance of some states is infinite
    k = max(begin_of(s, data, is_tracked(s.T) or is_tracked(s.Z), of.joseph).steps, hidden)
    x = of.moments(*first_state(s, start), 0, min(k + 1, n))
    head = x.first(k)
    known, picked = [RowsSoFar.none(start, s.xp)], start.independent()
    for t in range(k):
        known.append(known[-1].more(head, start, picked[picked[:, 0] <= t], t) if data.rows[t] else known[-1])
    estimate, root, minus = (np.stack([getattr(step, name) for step in known]) for name in ("estimate", "root", "minus"))

    def marginal(mean: Any, cov: Any, at: slice) -> tuple[Any, Any]:
        A = mean[..., 1:]
        Y, D = A @ root[at], A @ minus[at]
        cov = cov + Y @ np.swapaxes(Y, -1, -2) - D @ np.swapaxes(D, -1, -2)
        return mean[..., 0] + (A @ estimate[at][:, :, None])[..., 0], cov

    updated = gains(s, data, head, 0, k).updated(head, of.joseph)
    before = slice(0, k)
    signal = marginal(*through(s, head.mean, head.cov, 0, k), before)
    found = States(*marginal(head.mean, head.cov, before), *marginal(*updated, slice(1, k + 1)), *signal)
    logs = np.stack([0.5 * step.square + step.log_det for step in known])
    terms = logs[:-1] - logs[1:] - 0.5 * head.size
    factors = [
        head.mean[t][:, 1:] @ known[t].free[:, : None if t < hidden else start.rank]
        for t in range(k)
        if t < hidden or known[t].count < start.rank
    ]
    infinite = np.stack([f @ f.T for f in factors]) if factors else s.xp.zeros((0, *s.cov.shape))
    if k == n:
        return found, terms, infinite
    later, more = _ordinary(of, *marginal(x.mean[k:], x.cov[k:], slice(k, k + 1)), k)
    both = [np.concatenate([getattr(found, f.name), getattr(later, f.name)]) for f in fields(States)]
    return States(*both), np.concatenate([terms, more]), infinite


def _ordinary(of: Any, mean: Any, cov: Any, begin: int) -> tuple[States, Any]:
    """States and terms from step `begin` on, of which mean and covariance are known."""
    m = cov.shape[-1]
    x = of.moments(mean.reshape((m,)), cov.reshape((m, m)), begin, of.data.steps)
    g = gains(of.s, of.data, x, begin, of.data.steps)
    mean, P = g.updated(x, of.joseph)
    signal, spread = through(of.s, x.mean, x.cov, begin, of.data.steps)
    square = np.sum(x.white * x.white, axis=(1, 2))
    return States(x.mean[..., 0], x.cov, mean[..., 0], P, signal[..., 0], spread), -0.5 * (x.size + square)


@dataclass(frozen=True)
class RowsSoFar:
    """What the rows so far, `count` of them independent, say of the q elements of delta: N(estimate, root root' - minus minus'), and
    infinite variance along `free` (q, q).  The limit of a start of covariance kappa I, along which there is no finite variance."""

    count: int
    estimate: Any
    root: Any
    minus: Any
    free: Any
    square: Any
    log_det: Any
    found: Regression | None = None

    @staticmethod
    def none(start: DiffuseStart, xp: Any) -> "RowsSoFar":
        """Before the first observation."""
        q = start.centre.size
        zero, spread = xp.zeros(()), xp.asarray(numpy.diag(numpy.sqrt(start.spread)))
        return RowsSoFar(0, xp.asarray(-start.centre), xp.zeros((q, start.rank)), spread[:, : start.rank], xp.eye(q), zero, zero)

    def more(self, x: Moments, start: DiffuseStart, picked: numpy.ndarray, t: int) -> "RowsSoFar":
        """With the rows of step t; `picked`: those of the rows so far that are independent."""
        r, q, xp = start.rank, start.centre.size, xp_of(layout_of(x.white))
        if self.found is not None:
            return RowsSoFar.all_seen(regression(x.rows(t, t + 1), r, q, self.found), start, xp)
        if len(picked) == r:
            return RowsSoFar.all_seen(regression(x.rows(0, t + 1), r, q), start, xp)
        if not len(picked):
            return self
        U = np.linalg.qr(x.white[picked[:, 0], picked[:, 1], 1 : r + 1].T)[0]  # the rows of W so far, orthogonal
        rows = x.rows(0, t + 1)
        part = regression(np.concatenate([rows[:, :1], rows[:, 1 : r + 1] @ U], axis=1), len(picked), len(picked))
        free = xp.eye(r) - U @ U.T
        wide = lambda y: np.concatenate([np.concatenate([y, xp.zeros((r, r - y.shape[1]))], axis=1), xp.zeros((q - r, r))])
        estimate = U @ part.estimate - free @ xp.asarray(start.centre[:r])
        root, minus = wide(U @ part.root), wide(free * xp.asarray(numpy.sqrt(start.spread[:r])))
        free = np.concatenate([wide(free), xp.eye(q)[:, r:]], axis=1)
        return RowsSoFar(len(picked), np.concatenate([estimate, xp.zeros(q - r)]), root, minus, free, part.square, part.log_det)

    @staticmethod
    def all_seen(found: Regression, start: DiffuseStart, xp: Any) -> "RowsSoFar":
        """Where all that can be seen has been seen; what is left is hidden."""
        q, r = start.centre.size, start.rank
        free = xp.asarray(numpy.diag(1.0 * (numpy.arange(q) >= r)))
        return RowsSoFar(r, found.estimate, found.root, xp.zeros((q, r)), free, found.square, found.log_det, found)


def delta_of(x: Moments, start: DiffuseStart | None) -> Regression | None:
    """What all rows say of the diffuse elements."""
    if start is None:
        return None
    judge = lambda R: start.require_conditioned(R, True)
    return regression(x.rows(0, x.white.shape[0]), start.rank, start.centre.size, judge=judge)
