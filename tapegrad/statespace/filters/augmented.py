"""A start with diffuse elements, exactly: the augmented filter (P. de Jong, Annals of Statistics 19 (1991)
1073-1083; DK 5.7).

The first state is x[0] = mean + A delta + a finite part, with a column of A for each diffuse element and a
flat prior on delta.  The filter runs for all delta at once: its mean is a matrix (m, 1 + q), whose first
column belongs to delta = 0, and whose others say how the mean moves with delta.  The first column sees the
data, the others zeros; the covariance P is the same for all.  The innovations in units of their covariance
are e in the first column and -W in the others, and delta is their regression.  With W = Q R and u = Q'e,

    delta ~ N(R^-1 u, R^-1 R^-T),    log-likelihood = -1/2 (sum of log det 2 pi F + |e - Q u|^2) - log |det
    R|.

Three choices leave these figures as they are.  A constant on delta, so that the first column stands near the
data.  A small finite covariance along A, so that F is positive for models without observation noise.
Directions of delta that the transition and observation matrices hide from all data count for nothing: A is
turned so that its last columns are these.

After enough steps the start is collapsed: the state is N(a + A R^-1 u, P + A R^-1 R^-T A'), and the ordinary
filter goes on.  The relative error of that is the rounding error times the square of the condition number of
W, so that number is to be small."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy
from numpy import ndarray

from ... import numpy as np
from ..._core.arrays import to_host, xp_of
from ..._core.errors import ArgumentError, DataError
from ..._core.primitive import layout_of, primal_of, seen
from ..._core.variable import Variable
from ...ops.linalg.factorizations import solve_triangular
from .._matrices import ModelMatrices
from .._observations import Observations
from .step_kernel import triangle_places

# Singular values of the diffuse columns, relative to the largest, below which nothing is seen of a direction,
# what is seen is too little, and a start that was collapsed has lost digits.
HIDDEN, DEPENDENT, LOST = 1e-13, 1e-10, 3e-4
DIFFUSE_CONDITION = 1e3  # condition number of the diffuse columns at which enough rows were read
DIFFUSE_SPREAD = 1e-2  # the finite variance along the diffuse columns, in units of what the data say


class IllConditionedError(DataError, numpy.linalg.LinAlgError):
    """The data determine the diffuse elements of a start too poorly.  A search takes it for a point outside
    of the model."""


class DiffuseRegression(NamedTuple):
    """delta ~ N(estimate, root root'), (q,) and (q, r); `square` is |e - Q u|^2, `log_det` is log |det R|; R
    (r, r) and u (r,)."""

    estimate: Any
    root: Any
    square: Any
    log_det: Any
    R: Any
    u: Any


def diffuse_regression(white, rank: int, columns: int, judge: Callable | None = None) -> DiffuseRegression:
    """Return the regression on rows white (..., N, 1 + q); `judge` raises if it rejects R.

    The first `rank` columns after the first depend on delta."""
    e, W = white[..., 0], -white[..., 1 : 1 + rank]
    xp = xp_of(layout_of(white))
    if not rank:
        of = lambda *size: xp.zeros(e.shape[:-1] + size)
        return DiffuseRegression(of(columns), of(columns, 0), _dot(e, e), of(), of(0, 0), of(0))
    Q, R = np.linalg.qr(W)
    if judge is not None:
        judge(R)
    back = Q.mT
    u = _times(back, e)
    left = e - _times(Q, u)
    more = _times(back, left)  # once more, for the digits of what is left
    left, u = left - _times(Q, more), u + more
    root = solve_triangular(R, xp.eye(rank) + xp.zeros(R.shape))
    estimate, padding = _times(root, u), columns - rank
    if padding:
        estimate = np.concatenate([estimate, xp.zeros(padding)])
        root = np.concatenate([root, xp.zeros((padding, rank))])
    log_det = np.sum(np.log(np.abs(np.diagonal(R, axis1=-2, axis2=-1))), axis=-1)
    # of many models one must not stop the others: nan where digits were lost
    if judge is not None and (R.ndim > 2 or seen(R) is None):
        size = np.sqrt(np.sum(R * R, axis=-2))
        lost = np.where(
            np.sum((size[..., None] * root[..., :rank, :]) ** 2, axis=(-2, -1)) < DEPENDENT**-2,
            0.0,
            numpy.nan,
        )
        log_det, estimate = log_det + lost, estimate + lost[..., None]
    return DiffuseRegression(estimate, root, _dot(left, left), log_det, R, u)


def _times(X, v):
    return (X @ v[..., None])[..., 0]


def _dot(x, y):
    return np.sum(x * y, axis=-1)


def at_estimate(mean, cov, x: DiffuseRegression | None) -> tuple[Any, Any]:
    """Return mean and covariance of states (..., m), given those for each delta: (..., m, 1 + q), (..., m,
    m)."""
    if x is None:
        return mean[..., 0], cov
    A = mean[..., 1:]
    Y = A @ x.root
    return mean[..., 0] + _times(A, x.estimate), cov + Y @ Y.mT


def collapsed(white, state, start: "DiffuseStart", whole: bool):
    """Behind rows white (..., N, 1 + r) and a state, mean (m, 1 + r) and upper triangle of the covariance, in
    one vector: mean and triangle given the rows, and their log-likelihood without log det 2 pi F.  `whole`:
    these are all rows."""
    m, c = start.columns.shape[0], white.shape[-1]
    x = diffuse_regression(white, start.rank, start.rank, judge=lambda R: start.require_conditioned(R, whole))
    mean = state[..., : m * c].reshape((*state.shape[:-1], m, c))
    Y = mean[..., 1:] @ x.root
    P = (Y @ Y.mT).reshape((*state.shape[:-1], m * m))[..., triangle_places(m)[0]]
    total = -0.5 * x.square - x.log_det
    return np.concatenate(
        [mean[..., 0] + _times(mean[..., 1:], x.estimate), state[..., m * c :] + P, total[..., None]], axis=-1
    )


def _column_lengths(X: ndarray):
    """Return the lengths of the columns of X (..., N, k), (..., 1, k), and 1 for a column of zeros."""
    size = numpy.linalg.norm(X, axis=-2, keepdims=True)
    return numpy.where(size > 0, size, 1.0)


def _conditioned(R: ndarray, least: float):
    """Return whether the smallest scaled singular value of R (..., r, r) exceeds this part of the largest."""
    scaled = R / _column_lengths(R)
    good = numpy.isfinite(scaled).all(axis=(-2, -1))
    found = numpy.linalg.svd(
        numpy.where(good[..., None, None], scaled, numpy.eye(R.shape[-1])), compute_uv=False
    )
    return found[..., -1] >= least * found[..., 0]


def condition(X: ndarray) -> float:
    """Return the condition number of the columns scaled to length 1; infinite where undefined."""
    if X.shape[0] < X.shape[1] or not numpy.isfinite(X).all():
        return numpy.inf
    found = numpy.linalg.svd(X / _column_lengths(X), compute_uv=False)
    return float(found[0] / found[-1]) if found[-1] > 0 else numpy.inf


class LostDigits(Exception):
    """The diffuse start was collapsed too early for these numbers of the model."""


@dataclass(frozen=True)
class DiffuseStart:
    """What transition, observation matrix and data say of a diffuse start: constants for every derivative.

    `columns` (m, q) is A, of which observations see the first `rank`, in `rows` (N, rank) without noise;
    these are of steps and elements `at` (N, 2).  They see nothing of the others, of which nothing is left
    after `dropped` steps (None: something is left for ever). `centre` (q,) is the constant on delta, `spread`
    (q,) the finite variance, `names` (m,) are those of the states."""

    columns: ndarray
    rank: int
    rows: ndarray
    at: ndarray
    dropped: int | None
    names: tuple[str, ...]
    centre: Any = None
    spread: Any = None

    def state(self, s: ModelMatrices) -> tuple[Any, Any]:
        """Return mean (m, 1 + q) and covariance before the first observation, or before the first
        transition."""
        A, centre, spread = self.columns, self.centre, self.spread
        if s.xp is not numpy:
            A, centre, spread = (s.xp.asarray(x) for x in (A, centre, spread))
        return np.concatenate([(s.mean + A @ centre)[:, None], A], axis=1), s.cov + (A * spread) @ A.T

    def seen(self) -> "DiffuseStart":
        """Return the start without columns that no observation depends on; the log-likelihood needs no
        more."""
        r = self.rank
        return (
            self
            if r == self.centre.size
            else replace(self, columns=self.columns[:, :r], centre=self.centre[:r], spread=self.spread[:r])
        )

    @property
    def least(self) -> int:
        """Return the number of steps after which there are as many rows as elements, if there ever are."""
        return int(self.at[min(self.rank, len(self.at)) - 1, 0]) + 1

    @cached_property
    def condition(self) -> float:
        """Return the condition number of the first rows that are as many as the elements."""
        return condition(self.rows[: self.rank])

    @cached_property
    def independent(self) -> ndarray:
        """Return the first linearly independent rows, (rank, 2): step and element of each."""
        basis = numpy.zeros((self.rank, self.rank))
        picked = []
        scale = numpy.linalg.norm(self.rows, axis=0)
        for row, at in zip(self.rows / scale, self.at, strict=True):
            left = row - (basis @ row) @ basis
            left = left - (basis @ left) @ basis
            size = math.sqrt(left @ left)
            if size > DEPENDENT * math.sqrt(row @ row):
                basis[len(picked)] = left / size
                picked.append(at)
            if len(picked) == self.rank:
                break
        return numpy.array(picked, int).reshape(-1, 2)

    def require_determined(self, call: str, step: int, first: bool = True) -> None:
        """Raise if something is infinite still at this step, or, with `first`, if something was not seen
        before it was left out."""
        if self.dropped is None or self.dropped > step:
            raise DataError(
                f"{call}: the data do not determine every diffuse element of the start, whose variance is "
                f"infinite, of these states: {self.named(self.columns[:, self.rank :])}; give more data, or "
                "a start with a finite covariance"
            )
        if first and self.rank < self.centre.size:
            raise DataError(
                f"{call}: the transition leaves out {self.centre.size - self.rank} of {self.centre.size} "
                "diffuse elements of the start before an observation tells what they are, so that the first "
                "states have an infinite variance; give the start a finite covariance there"
            )

    def require_conditioned(self, R, whole: bool) -> None:
        """Raise where R (..., r, r) of the actual numbers shows that digits were lost: for good if it is of
        the `whole` sample."""
        R = seen(R)
        if R is None or (whole and R.ndim > 2) or _conditioned(R, DEPENDENT if whole else LOST).all():
            return
        if not whole:
            raise LostDigits
        _, found, V = numpy.linalg.svd(R / numpy.linalg.norm(R, axis=0))
        poor = found < found[0] * DEPENDENT
        raise IllConditionedError(
            f"the data hardly determine the diffuse start of these states: {self.named(self.columns[:, : self.rank] @ V[poor].T)}; to "
            f"{-numpy.log10(DEPENDENT):.0f} digits the effect of one on the observations is a sum of those "
            f"of others.  Give more data, "
            "fewer waves, or a start with a finite covariance"
        )

    def named(self, directions: ndarray) -> str:
        """Return the names of the states with a part in these directions, (m, k)."""
        return _named(self.names, directions)


def _named(names: tuple[str, ...], directions: ndarray) -> str:
    return ", ".join(
        dict.fromkeys([names[i] for i in numpy.flatnonzero((numpy.abs(directions) > 0.1).any(axis=1))])
    )


def start_of(s: ModelMatrices, data: Observations, placed: bool = True) -> DiffuseStart | Any:
    """The diffuse start of a model, if it has one, `placed` near the data; of a model and data that were
    asked for last, at once."""
    if not s.diffuse.any():
        return None
    key = None
    if not s.varying & {"T", "Z"} and not s.hidden:
        key = (s.host(0, "T").tobytes(), s.host(0, "Z").tobytes(), s.diffuse.tobytes(), s.predict_first)
    known = data.start
    if known is None or key is None or known[0] != key:
        known = data.start = key, diffuse_estimate(s, data)
    if placed and known[1].centre is None:
        known = data.start = key, _placed(data, known[1])
    return known[1]


def diffuse_estimate(s: ModelMatrices, data: Observations) -> DiffuseStart:
    E = numpy.eye(len(s.diffuse))[:, s.diffuse]
    q = E.shape[1]
    X, at, found, V, size = noise_free_rows(s, data, E, 2 * q)
    hidden = found <= HIDDEN * max(found[0], HIDDEN)
    if not hidden.any():
        return DiffuseStart(E, q, X, at, 0, s.names)
    if s.hidden:
        raise ArgumentError(
            f"tapegrad.vmap: no observation tells of the diffuse start of these states: "
            f"{_named(s.names, E @ V[hidden].T)}; with a transition or observation matrix for each sample "
            f"give them a finite start, or loop over the samples"
        )
    r = q - int(hidden.sum())
    turned = numpy.linalg.qr((V[hidden] / size).T, mode="complete")[0]
    A = E @ numpy.concatenate([turned[:, q - r :], turned[:, : q - r]], axis=1)
    return DiffuseStart(A, r, X @ turned[:, q - r :], at, _dropped(s, data.steps, A[:, r:]), s.names)


def _placed(data: Observations, start: DiffuseStart) -> DiffuseStart:
    """With the constant on delta that brings the first column near the data, and the finite variance that
    these suggest."""
    r, q = start.rank, start.columns.shape[1]
    centre, spread = numpy.zeros(q), numpy.zeros(q)
    X, at = start.rows, start.at
    if r:
        y = data.host.astype(float)[at[:, 0], at[:, 1]]
        scale = numpy.linalg.norm(X, axis=0)
        centre[:r] = numpy.linalg.lstsq(X / scale, y, rcond=DEPENDENT)[0] / scale
        left = y - X @ centre[:r]
        size = DIFFUSE_SPREAD * (left @ left or y @ y or 1.0) / scale**2
        spread[:r] = 4.0 ** numpy.round(numpy.log2(size) / 2)  # its root is exact
    return replace(start, centre=centre, spread=spread)


def noise_free_rows(s: ModelMatrices, data: Observations, A: ndarray, enough: int) -> tuple[ndarray, ...]:
    """How observations depend on delta without noise (N, q), and which they are, (N, 2): of as many steps as
    tell, and `enough` rows. Also the singular values (q,) and right vectors of the columns, scaled to length
    1, and the lengths before."""
    q, rows, at = A.shape[1], [numpy.zeros((0, A.shape[1]))], []
    for t in range(data.steps):
        if t or s.predict_first:
            A = s.host(t if s.predict_first else t - 1, "T") @ A
        if data.rows[t]:
            rows.append(s.host(t, "Z")[data.rows[t]] @ A)
            at += [(t, i) for i in data.rows[t]]
        if len(at) >= enough or t + 1 == data.steps:
            enough *= 2
            X = numpy.concatenate(rows)
            size = _column_lengths(X)
            _, found, V = numpy.linalg.svd(X / size, full_matrices=len(X) < q)
            found = numpy.concatenate([found, numpy.zeros(q - found.size)])
            if found[-1] * DIFFUSE_CONDITION >= found[0] > 0:
                break
    return X, numpy.array(at, int).reshape(-1, 2), found, V, size[0]


def _dropped(s: ModelMatrices, steps: int, A: ndarray) -> int | None:
    """Return the number of steps after which nothing is left of A, up to rounding relative to the terms."""
    for t in range(steps):
        if t or s.predict_first:
            T = s.host(t if s.predict_first else t - 1, "T")
            A = numpy.where(numpy.abs(T @ A) > 1e-9 * (numpy.abs(T) @ numpy.abs(A)), T @ A, 0.0)
        if not A.any():
            return t
    return None


def plain_model(s: ModelMatrices) -> dict[str, Any] | None:
    """Return the numbers of a model on the host, or None if a transform hides one of them."""
    found = {name: primal_of(getattr(s, name)) for name in ("T", "Z", "Q", "H", "c", "d", "mean", "cov")}
    return (
        None
        if any(isinstance(x, Variable) for x in found.values())
        else {name: to_host(x) for name, x in found.items()}
    )
