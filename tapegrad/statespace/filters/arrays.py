"""The Kalman filter on arrays: for models without a compiled filter, and the reference of that one.

Read `run_recursion` first: one loop serves filter, likelihood, forecast and smoother. A step with one
observed element divides by its variance; a step with several solves with their covariance. With a diffuse
start the mean is a matrix (`filters.augmented`). `scalar_loglik` is the same recursion in plain numbers, for
models with one state and one observation.

Invariant: the structure (observed elements, dependence on a diffuse start) is determined on the host before
anything is differentiated. The arithmetic never branches on a value."""

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy
from numpy import ndarray

from ... import numpy as np
from ..._core.errors import NotPositiveDefiniteError
from ..._core.primitive import seen
from ..._transforms.tape import value
from ...kernels.library.observation import innovations, joint_update, log_determinant, update
from .._matrices import ModelMatrices, checked_fields, checked_start
from .._model import LinearGaussian
from .._observations import Observations
from .augmented import DiffuseStart

LOG_2PI = math.log(2 * math.pi)


class NotCompiled(Exception):
    """The reason why a model has no kernel."""


@dataclass(frozen=True)
class FilterResult:
    """The states before (`predicted`) and after (`filtered`) the filter sees y[t].

    Attributes
    ----------
    predicted_mean, filtered_mean : arrays of shape (n, m)
        Means of the states.
    predicted_cov, filtered_cov : arrays of shape (n, m, m)
        Covariances of the states.
    innovations : array of shape (n, p)
        y - E(y | past), nan where y is missing.
    innovation_cov : array of shape (n, p, p)
        Their covariances.
    loglik_terms : array of shape (n,)
        Terms that sum to `loglik`.
    loglik : scalar
        The log-likelihood.
    diffuse_steps : int
        The number of first steps in which a covariance is infinite. There `predicted_cov`, `filtered_cov` and
        `innovation_cov` hold the finite part.
    predicted_diffuse_cov : array of shape (diffuse_steps, m, m)
        The factor of infinity in these steps.
    """

    predicted_mean: Any
    predicted_cov: Any
    filtered_mean: Any
    filtered_cov: Any
    innovations: Any
    innovation_cov: Any
    loglik_terms: Any
    loglik: Any
    diffuse_steps: int
    predicted_diffuse_cov: Any


@dataclass(frozen=True)
class ForecastResult:
    """Forecasts of observations and states.

    Attributes
    ----------
    mean, cov : arrays of shape (steps, p) and (steps, p, p)
        Of the observations.
    state_mean, state_cov : arrays of shape (steps, m) and (steps, m, m)
        Of the states.
    """

    mean: Any
    cov: Any
    state_mean: Any
    state_cov: Any


@dataclass
class Path:
    """Means and covariances before and after each observation, and the innovations.

    Of a single element, `elements` hold step, innovation and its variance F. Of several, `blocks` hold by
    their number step, the Cholesky factor of F, and the innovations in units of F. With a matrix mean (m, k) innovations
    have a further axis k: see `filters.augmented`."""

    mean: list = field(default_factory=list)
    cov: list = field(default_factory=list)
    filtered_mean: list = field(default_factory=list)
    filtered_cov: list = field(default_factory=list)
    elements: list[tuple[int, Any, Any]] = field(default_factory=list)
    blocks: dict[int, list[tuple[int, Any, Any]]] = field(default_factory=dict)

    def whitened(self) -> list[tuple[ndarray, Any, Any]]:
        """Return steps, log det 2 pi F (N,), and innovations in units of F (N, i, k), by block size.

        Single elements come first. Raise if a variance is not positive."""
        found = []
        for size, steps in (1, self.elements), *self.blocks.items():
            if steps:
                at = numpy.array([t for t, *_ in steps])
                left, right = np.stack([x for _, x, _ in steps]), np.stack([x for *_, x in steps])
                if size == 1:
                    require_positive(at, right)
                    left, right = (
                        LOG_2PI + np.log(right),
                        left / np.sqrt(right).reshape((-1, *[1] * (left.ndim - 1))),
                    )
                else:
                    left = log_determinant(left)
                found.append((at, left, right.reshape((len(at), size, -1))))
        return found


def require_positive(at, F) -> None:
    plain = value(F)
    if type(plain) is ndarray and (plain <= 0).any():
        i = int(numpy.argmax(plain <= 0))
        raise NotPositiveDefiniteError(
            f"the variance of y[{at[i]}] given the past is {plain[i]}; wanted a positive number"
        )


@dataclass(frozen=True)
class Moments:
    """The moments of each step.

    They are mean (n, m, k) and covariance (n, m, m) of the state before the observation, log det 2 pi F (n,),
    and the innovations in units of F, (n, p, k), zero where missing. Mean and covariance after the
    observation are `filtered_mean` and `filtered_cov`. k is 1, and more for a diffuse start."""

    mean: Any
    cov: Any
    size: Any
    white: Any
    filtered_mean: Any
    filtered_cov: Any

    def first(self, steps: int) -> "Moments":
        """Return the first steps."""
        return Moments(*[getattr(self, x.name)[:steps] for x in fields(self)])

    def rows(self, begin: int, end: int):
        """Return the innovations of these steps, (N, k)."""
        return self.white[begin:end].reshape((-1, self.white.shape[-1]))


@dataclass(frozen=True)
class ArrayFilter:
    """The filter of a model by operations on arrays."""

    s: ModelMatrices
    data: Observations
    joseph: bool

    def moments(self, mean, cov, begin: int, end: int) -> Moments:
        """Return the moments of steps begin to end, from the state before them; raise for a nonpositive
        variance."""
        s = self.s
        n = end - begin
        p = self.data.width
        k = mean.shape[-1] if mean.ndim > 1 else 1
        with numpy.errstate(divide="ignore", invalid="ignore"):
            path = run_recursion(s, self.data, self.joseph, mean, cov, begin, end)
            found = path.whitened()
        # step by step and element by element, with zeros in gaps
        every = [t for at, *_ in found for t in at]
        here = [(t - begin, i) for t in every for i in self.data.rows[t]]
        step, place = numpy.full(n, len(every)), numpy.full((n, p), len(here))
        step[numpy.array(every, int) - begin] = numpy.arange(len(every))
        place[tuple(numpy.array(here, int).reshape(-1, 2).T)] = numpy.arange(len(here))
        size = np.concatenate([*(size for _, size, _ in found), s.xp.zeros(1)])[step]
        white = np.concatenate([*(white.reshape((-1, k)) for *_, white in found), s.xp.zeros((1, k))])[place]
        means = [np.stack(x).reshape((n, -1, k)) for x in (path.mean, path.filtered_mean)]
        last = np.stack(path.filtered_cov)
        return Moments(means[0], np.stack(path.cov), size, white, means[1], (last + last.mT) * 0.5)

    def weights(self, L, u, W) -> tuple[Any, Any]:
        """Return r <- u + L' r and N <- W + L' N L of each step, from zeros after the last."""
        r, N = u[-1], W[-1]
        found = []
        for t in reversed(range(len(u))):
            r, N = (u[t] + L[t].T @ r, W[t] + L[t].T @ N @ L[t]) if found else (r, N)
            found.append((r, N))
        return np.stack([r for r, _ in found[::-1]]), np.stack([N for _, N in found[::-1]])


def first_state(s: ModelMatrices, start: DiffuseStart | None) -> tuple[Any, Any]:
    """Return mean and covariance before the first observation."""
    mean, cov = (s.mean, s.cov) if start is None else start.state(s)
    return _predictor(s)(0, mean, cov) if s.predict_first else (mean, cov)


def run_recursion(
    s: ModelMatrices, data: Observations, joseph: bool, a, P, begin: int, end: int | None = None
) -> Path:
    """Run the filter over steps begin to end, from mean and covariance before the first of them."""
    end = data.steps if end is None else end
    eye = s.xp.eye(len(s.diffuse)) if joseph else None
    unit = None if a.ndim == 1 else s.xp.asarray(numpy.eye(1, a.shape[1])[0])
    predict, read = _predictor(s), _reader(s, data)
    path = Path()
    for t in range(begin, end):
        path.mean.append(a)
        path.cov.append(P)
        count = len(data.rows[t])
        if count:
            Z, H, y = read(t)
            y = y if unit is None else y * unit if count == 1 else np.outer(y, unit)
            if count == 1:
                a, P, v, F = update(a, P, Z, H, y, None, eye)
                path.elements.append((t, v, F))
            else:
                v, U, S = innovations(a, P, Z, H, y)
                try:
                    a, P, L, z = joint_update(a, P, U, S, v, (Z, H) if joseph else None)
                except numpy.linalg.LinAlgError as error:
                    raise NotPositiveDefiniteError(
                        f"the covariance of y[{t}] given the past is not positive definite"
                    ) from error
                path.blocks.setdefault(count, []).append((t, L, z))
        path.filtered_mean.append(a)
        path.filtered_cov.append(P)
        if t + 1 < end:
            a, P = predict(t + 1 if s.predict_first else t, a, P)
    return path


def observed_moments(s: ModelMatrices, mean, cov, begin: int, end: int) -> tuple[Any, Any]:
    """Return means (n, p, k) and covariances (n, p, p) of Z x, given those of the states x of these steps.

    With a diffuse start they keep digits that a state covariance with large entries has lost."""
    Z = s.at(slice(begin, end), "Z")
    return Z @ mean, Z @ cov @ Z.mT


def with_noise(s: ModelMatrices, mean, cov, begin: int, end: int) -> tuple[Any, Any]:
    """Return means (n, p) and covariances (n, p, p) of the observations, given those of Z x."""
    steps = slice(begin, end)
    return mean + s.at(steps, "d"), cov + s.at(steps, "H")


def _predictor(s: ModelMatrices):
    """Return the function from (t, a, P) to the moments after one transition.

    P is halved and added to its transpose, so it is exactly symmetric. No observation damps the antisymmetric
    part of the rounding errors, which could otherwise grow."""
    constant = "T" not in s.varying
    T, c = s.T, s.c
    half, transposed = (T * 0.5, T.T) if constant else (None, None)
    shifted = "c" in s.varying or not is_known_number(c, 0.0)

    def predict(t: int, a, P) -> tuple[Any, Any]:
        Tt = T if constant else T[t]
        back = transposed if constant else Tt.T
        a = Tt @ a
        if shifted:
            ct = s.at(t, "c")
            a = a + (ct if a.ndim == 1 else np.reshape(ct, (-1, 1)) * s.xp.eye(1, a.shape[1]))
        X = (half if constant else Tt * 0.5) @ P @ back
        return a, X + X.T + s.at(t, "Q")

    return predict


def _reader(s: ModelMatrices, data: Observations):
    """Return the function from t to the observed part of y = Z x + d: (Z, H, y - d).

    For a single element these have shapes (m,), scalar, scalar."""
    fixed: dict[tuple[int, ...], tuple[Any, Any]] = {}
    constant = not s.varying & {"Z", "H"}
    shifted = "d" in s.varying or not is_known_number(s.d, 0.0)
    y, full = data.values, data.width

    def select(t: int, rows: list[int]) -> tuple[Any, Any]:
        Z, H = s.at(t, "Z"), s.at(t, "H")
        if len(rows) == 1:
            return Z[rows[0]], H[rows[0], rows[0]]
        at = numpy.array(rows)
        return (Z, H) if len(rows) == full else (Z[at], H[at[:, None], at])

    def read(t: int) -> tuple[Any, Any, Any]:
        rows = data.rows[t]
        if constant:
            key = tuple(rows)
            if key not in fixed:
                fixed[key] = select(t, rows)
            Z, H = fixed[key]
        else:
            Z, H = select(t, rows)
        e = y[t]
        if shifted:
            e = e - s.at(t, "d")
        if len(rows) == 1:
            e = e[rows[0]]
        elif len(rows) < full:
            e = e[numpy.array(rows)]
        return Z, H, e

    return read


def _sum_of_terms(v: list, F: list, steps: list[int], count: int):
    """-1/2 [count log 2 pi + sum(log F + v^2 / F)]."""
    total = -0.5 * LOG_2PI * count
    if not v:
        return total
    e, spread = np.stack(v), np.stack(F)
    require_positive(steps, spread)
    return total - 0.5 * np.sum(np.log(spread) + e * e / spread)


def is_known_number(x, number: float) -> bool:
    """Return whether x is this number, known on the host and not tracked."""
    return issubclass(type(x), (numpy.generic, float, int)) and bool(x == number)


def scalar_loglik(model: LinearGaussian, data: Observations):
    """Return the log-likelihood of a model with one state and one observation, in numbers; otherwise None.

    A local level takes 7 operations a step. A diffuse level without a factor is the first observation."""
    field, m = checked_fields(model, data)
    mean, cov, mark = checked_start(model.start, m, data)
    n, first, unknown = data.steps, model.start.predict_first, bool(mark.any())
    if m > 1 or getattr(field["R"], "shape", (1, 1))[-1] > 1:
        return None
    T, Z, Q, H, c, d = (scalar_series(field[x], n, 1 if x in "cd" else 2) for x in "TZQHcd")
    if field["R"] is not None:
        Q = [q * r * r for q, r in zip(Q, scalar_series(field["R"], n, 2), strict=True)]
    still, direct = _all_are(T, 1.0), _all_are(Z, 1.0)
    if unknown and not (still and direct):
        return None
    moving = not (still and _all_are(c, 0.0))
    y = scalar_series(data.values[:, 0], n, 0)
    if not _all_are(d, 0.0):
        y = [e - x for e, x in zip(y, d, strict=True)]
    a, P = scalar_series(mean, 1, 2)[0], scalar_series(cov, 1, 2)[0]
    if model.start.stationary:
        if unknown or any(x[0] is not x[-1] for x in (T, Q, c)):
            return None
        shown = T[0] if type(T[0]) is float else seen(T[0])
        if shown is not None and not abs(shown) < 1.0:
            return None  # the general filter reports it
        a, P = c[0] / (1.0 - T[0]), Q[0] / (1.0 - T[0] * T[0])
    v, F, steps = [], [], []
    for t in range(n):
        if t or first:
            i = t if first else t - 1
            if moving:
                a = a * T[i] + c[i]
            P = P + Q[i] if still else P * T[i] * T[i] + Q[i]
        if not data.rows[t]:
            continue
        if unknown:
            a, P, unknown = y[t], H[t], False
            continue
        if direct:
            e, f = y[t] - a, P + H[t]
            K = P / f
            P = K * H[t]
        else:
            M = Z[t] * P
            e, f = y[t] - Z[t] * a, M * Z[t] + H[t]
            K, P = M / f, P * H[t] / f
        a = a + K * e
        v.append(e)
        F.append(f)
        steps.append(t)
    return _sum_of_terms(v, F, steps, data.count)


def scalar_series(x, n: int, axes: int) -> list:
    """Return the numbers of a one-element field, step by step; fields of more than `axes` axes vary.

    Data (axes 0) become Python floats, the fastest partners of a tracked number. The rest stay NumPy scalars,
    for which 0 / 0 is nan."""
    if x.ndim > axes:
        if type(x) is ndarray:
            return x.reshape(-1).tolist() if axes == 0 and x.dtype == float else list(x.reshape(-1))
        return [x[(t,) + (0,) * axes] for t in range(n)]
    return [x[(0,) * x.ndim] if x.ndim else x] * n


def _all_are(series: list, number: float) -> bool:
    return is_known_number(series[0], number) and all(x is series[0] for x in series)
