"""The Kalman filter on arrays: states and log-likelihood of what has no compiled filter, and the reference of that.

Read `recursion` first: one loop serves filter, likelihood, forecast and smoother.  A step with one observed
element divides by its variance, one with several solves with their covariance, and the first steps after a
diffuse start take the elements one by one (DK 5.2 and 6.4).  `_scalar_loglik` is the same recursion in plain
numbers, for models with one state and one observation.

The structure (which elements are observed, which of them meet an infinite variance) is settled on the host
before anything is differentiated; the arithmetic never looks at a value.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy

from .. import numpy as np
from .._primitive import seen
from .._recording import value
from ..errors import DataError, NotPositiveDefiniteError
from ..ops.linalg import solve_triangular
from ._diffuse import Element, elements, plan_of, term, unknown
from ._model import LinearGaussian, Observations, System, checked_fields, checked_start, system

LOG_2PI = math.log(2 * math.pi)


class NotCompiled(Exception):
    """Why a model has no kernel, in words."""


@dataclass(frozen=True)
class FilterResult:
    """What the filter knows before (`predicted`) and after (`filtered`) it sees y[t].

    Means are (n, m), covariances (n, m, m), innovations y - E(y | past) (n, p), nan where y is missing, with
    covariances (n, p, p).  `loglik_terms` (n,) sum to `loglik`.  During the first `diffuse_steps` steps of a
    diffuse start a covariance is infinite: then `predicted_cov`, `filtered_cov`, `innovation_cov` hold the
    finite part, and `predicted_diffuse_cov` (diffuse_steps, m, m) what multiplies infinity.
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
    """Forecasts of the observations, mean (steps, p) and cov (steps, p, p), and of the states behind them."""

    mean: Any
    cov: Any
    state_mean: Any
    state_cov: Any


@dataclass
class Scalar:
    """One observed element, of variance F: gain K = M / F with M = P z, innovation v."""

    z: Any
    v: Any
    F: Any
    M: Any
    K: Any


@dataclass
class Block:
    """Several observed elements: innovations v with covariance S, G = S^-1 Z P the transposed gain."""

    Z: Any
    v: Any
    S: Any
    G: Any


@dataclass
class Path:
    """States before and after each observation as (mean, covariance, A or None), and the updates of each step: of a step with an A
    the elements, with those that meet something infinite."""

    predicted: list[tuple[Any, Any, Any]] = field(default_factory=list)
    filtered: list[tuple[Any, Any, Any]] = field(default_factory=list)
    updates: list[list[Any]] = field(default_factory=list)

    @property
    def steps(self) -> int:
        return len(self.updates)

    @property
    def met(self) -> int:
        """How many elements met an infinite variance."""
        return sum([type(x) is Element and x.infinite for updates in self.updates for x in updates])


def loglik_on_arrays(model: LinearGaussian, data: Observations, joseph: bool = False, s: System | None = None) -> Any:
    """The log-likelihood by operations on arrays, one step after the other; `s`: the system of the model."""
    with numpy.errstate(divide="ignore", invalid="ignore"):
        total = _scalar_loglik(model, data) if data.width == 1 else None
        return loglik_of(recursion(s or system(model, data), data, joseph)[0], data) if total is None else total


@dataclass(frozen=True)
class Moments:
    """Means and covariances of the states before and after the observation, and the log-likelihood term of each step: (n, ...); and A
    before the first observations, where the covariance has a part kappa A A'."""

    mean: Any
    cov: Any
    filtered_mean: Any
    filtered_cov: Any
    terms: Any
    infinite: Any


def moments_on_arrays(s: System, data: Observations, joseph: bool) -> tuple[Moments, Path, Any, bool]:
    """Also the path, the log-likelihood, and whether the data settle every diffuse element.  Raises if a variance is not positive."""
    with numpy.errstate(divide="ignore", invalid="ignore"):
        path, settled = recursion(s, data, joseph)
        total = loglik_of(path, data)
    return moments_of(path, s.xp), path, total, settled


def moments_of(path: Path, xp: Any) -> Moments:
    mean, cov, infinite = stacked(path.predicted)
    filtered_mean, filtered_cov, _ = stacked(path.filtered)
    return Moments(mean, cov, filtered_mean, filtered_cov, np.stack([terms_of(updates, xp) for updates in path.updates]), infinite)


def filter_result(x: Moments, total: Any, s: System, data: Observations) -> FilterResult:
    fitted, spread = observed(s, x.mean, x.cov, 0, data.steps)
    A = np.stack(x.infinite) if len(x.infinite) else s.xp.zeros((0, x.mean.shape[1], 0))
    B = A @ np.swapaxes(A, 1, 2)
    innovations = data.raw - fitted
    return FilterResult(x.mean, x.cov, x.filtered_mean, x.filtered_cov, innovations, spread, x.terms, total, len(x.infinite), B)


def recursion(s: System, data: Observations, joseph: bool, plan: list[list[bool]] | None = None) -> tuple[Path, bool]:
    """Run the filter over the data.  Also tells whether the data settle every diffuse element; `plan`: how they do, if it is known."""
    plan, settled = plan_of(s, data) if plan is None else (plan, True)
    a, P, A = s.mean, s.cov, s.xp.asarray(unknown(s)) if s.diffuse.any() else None
    eye = s.xp.eye(len(s.diffuse)) if joseph else None
    predict, read = _predictor(s), _reader(s, data)
    path = Path()
    for t in range(data.steps):
        if s.predict_first:
            a, P, A = predict(t, a, P, A)
        path.predicted.append((a, P, A))
        count = len(data.rows[t])
        if count == 0:
            updates = []
        elif A is not None:
            a, P, A, updates = update_diffuse(a, P, A, read(t), plan[t], s.xp)
        elif count == 1:
            a, P, updates = _update_scalar(a, P, read(t), eye)
        else:
            a, P, updates = _update_block(a, P, read(t), eye, t)
        if A is not None and settled and t + 1 == len(plan):
            A = None
        path.filtered.append((a, P, A))
        path.updates.append(updates)
        if not s.predict_first and t + 1 < data.steps:
            a, P, A = predict(t, a, P, A)
    return path, settled


def begun(s: System, data: Observations, steps: int, joseph: bool, plan: list[list[bool]] | None = None) -> tuple[Any, Any, Path]:
    """Mean and covariance of the state at step `steps` given what was seen before it, and the path there.  Raises `NotCompiled` if
    something is infinite still."""
    a, P, path = s.mean, s.cov, Path()
    if steps:
        path, _ = recursion(s, data.first(steps), joseph, plan)
        a, P, infinite = path.filtered[-1]
        if infinite is not None:
            raise NotCompiled("how many steps settle the diffuse start depends on the parameters")
    return *after(s, steps, a, P), path


def after(s: System, steps: int, a: Any, P: Any, A: Any = None) -> tuple:
    """The state at step `steps`, from that before the transition into it; with A, where that is given."""
    found = _predictor(s)(steps if s.predict_first else steps - 1, a, P, A)
    return found[:2] if A is None else found


def require_settled(settled: bool, call: str) -> None:
    if not settled:
        raise DataError(
            f"{call}: the data do not determine every diffuse element of the start, whose variance is "
            "infinite; give more data, or a start with a finite covariance"
        )


def require_determined(met: int, s: System, call: str) -> None:
    """Raise if something of the start was infinite until the transition left it out: the first states have an infinite variance."""
    left = int(s.diffuse.sum()) - met
    if left > 0:
        raise DataError(
            f"{call}: the transition leaves out {left} of {left + met} diffuse elements of the start before an observation tells what they "
            "are, so that the first states have an infinite variance; give the start a finite covariance there"
        )


def observed(s: System, mean: Any, cov: Any, begin: int, end: int, noise: bool = True) -> tuple[Any, Any]:
    """Means (n, p) and covariances (n, p, p) of the observations from those of the states, steps begin to
    end."""
    Z, H, d = (getattr(s, x)[begin:end] if x in s.varying else getattr(s, x) for x in "ZHd")
    spread = Z @ cov @ np.swapaxes(Z, -1, -2)
    return (Z @ mean[:, :, None])[:, :, 0] + d, spread + H if noise else spread


def _predictor(s: System):
    """(t, a, P, A) one transition on.  P enters halved and is added to its transpose: symmetric to the last
    bit, so that the antisymmetric part of the rounding errors, which no observation damps, cannot grow."""
    constant = "T" not in s.varying
    T, c = s.T, s.c
    half, transposed = (T * 0.5, T.T) if constant else (None, None)
    shifted = "c" in s.varying or not is_number(c, 0.0)

    def predict(t: int, a: Any, P: Any, A: Any) -> tuple[Any, Any, Any]:
        Tt = T if constant else T[t]
        back = transposed if constant else Tt.T
        a = Tt @ a
        if shifted:
            a = a + s.at(t, "c")
        X = (half if constant else Tt * 0.5) @ P @ back
        return a, X + X.T + s.at(t, "Q"), None if A is None else Tt @ A

    return predict


def _reader(s: System, data: Observations):
    """t to what is observed at time t, of y = Z x + d: (Z, H, y - d), as (m,), scalar, scalar if it is a
    single element."""
    fixed: dict[tuple[int, ...], tuple[Any, Any]] = {}
    constant = not s.varying & {"Z", "H"}
    shifted = "d" in s.varying or not is_number(s.d, 0.0)
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


def _update_scalar(a: Any, P: Any, seen: tuple[Any, Any, Any], eye: Any) -> tuple[Any, Any, list[Any]]:
    z, h, e = seen
    v = e - z @ a
    M = P @ z
    F = z @ M + h
    K = M / F
    if eye is None:
        P = P - np.outer(M, K)
    else:
        G = eye - np.outer(K, z)
        P = G @ P @ G.T + np.outer(K * h, K)
    return a + K * v, P, [Scalar(z, v, F, M, K)]


def _update_block(a: Any, P: Any, seen: tuple[Any, Any, Any], eye: Any, t: int) -> tuple[Any, Any, list[Any]]:
    Z, H, e = seen
    U = Z @ P
    S = U @ Z.T + H
    try:
        G = np.linalg.solve(S, U)
    except numpy.linalg.LinAlgError as error:
        raise _not_positive_definite(t) from error
    v = e - Z @ a
    if eye is None:
        P = P - U.T @ G
    else:
        I_KZ = eye - G.T @ Z
        P = I_KZ @ P @ I_KZ.T + G.T @ H @ G
    return a + v @ G, P, [Block(Z, v, S, G)]


def update_diffuse(
    a: Any, P: Any, A: Any, seen: tuple[Any, Any, Any], informative: list[bool], xp: Any
) -> tuple[Any, Any, Any, list[Element]]:
    """The elements of one observation, while something is infinite."""
    Z, H, e = seen
    finite = [not infinite for infinite in informative]
    if len(informative) == 1:
        return elements(a, P, A, [Z], [H], [e], finite, informative, True)
    return elements(a, P, A, Z, H, e, finite, informative, False, xp)


def loglik_of(path: Path, data: Observations) -> Any:
    """The sum of all log-likelihood terms: logarithms and factors are taken of whole stacks at once."""
    v, F, infinite, steps = [], [], [], []
    blocks: dict[int, list[tuple[int, Block]]] = {}
    for t, updates in enumerate(path.updates):
        for x in updates:
            if type(x) is Element and x.infinite:
                infinite.append(x.w)
            elif type(x) is not Block:
                v.append(x.v)
                F.append(x.F)
                steps.append(t)
            else:
                blocks.setdefault(x.v.shape[0], []).append((t, x))
    total = _sum_of_terms(v, F, steps, data.count)
    for same in blocks.values():
        S, e = np.stack([x.S for _, x in same]), np.stack([x.v for _, x in same])
        try:
            L = np.linalg.cholesky(S)
        except numpy.linalg.LinAlgError as error:
            bad = [t for t, x in same if not _is_positive_definite(value(x.S))]
            raise _not_positive_definite(bad[0] if bad else same[0][0]) from error
        u = solve_triangular(L, e[:, :, None], lower=True)
        total = total - np.sum(np.log(np.diagonal(L, axis1=-2, axis2=-1))) - 0.5 * np.sum(u * u)
    return total - 0.5 * np.sum(np.log(np.sum(np.stack(infinite) ** 2, axis=1))) if infinite else total


def _is_positive_definite(S: numpy.ndarray) -> bool:
    return bool((numpy.linalg.eigvalsh(S) > 0).all())


def _not_positive_definite(t: int) -> NotPositiveDefiniteError:
    return NotPositiveDefiniteError(f"the covariance of y[{t}] given the past is not positive definite")


def _sum_of_terms(v: list[Any], F: list[Any], steps: list[int], count: int) -> Any:
    """-1/2 [count log 2 pi + sum(log F + v^2 / F)]."""
    total = -0.5 * LOG_2PI * count
    if not v:
        return total
    v, F = np.stack(v), np.stack(F)
    plain = value(F)
    if type(plain) is numpy.ndarray and (plain <= 0).any():
        i = int(numpy.argmax(plain <= 0))
        raise NotPositiveDefiniteError(f"the variance of y[{steps[i]}] given the past is {plain[i]}; wanted a positive number")
    return total - 0.5 * np.sum(np.log(F) + v * v / F)


def terms_of(updates: list[Any], xp: Any) -> Any:
    """The log-likelihood term of one step."""
    total = xp.zeros(())
    for x in updates:
        if type(x) is Scalar:
            total = total - 0.5 * (LOG_2PI + np.log(x.F) + x.v * x.v / x.F)
        elif type(x) is Element:
            total = total - 0.5 * term(x)
        else:
            L = np.linalg.cholesky(x.S)
            u = solve_triangular(L, x.v, lower=True)
            total = total - 0.5 * (LOG_2PI * x.v.shape[0] + u @ u) - np.sum(np.log(np.diagonal(L)))
    return total


def stacked(states: list[tuple[Any, Any, Any]]) -> tuple[Any, Any, list[Any]]:
    """Means (n, m), covariances (n, m, m) made symmetric, and the infinite parts of the first steps."""
    P = np.stack([P for _, P, _ in states])
    mean = np.stack([a for a, _, _ in states])
    return mean, (P + np.swapaxes(P, -1, -2)) * 0.5, [A for _, _, A in states if A is not None]


def is_number(x: Any, number: float) -> bool:
    """Is x this very number, known on the host and not tracked?"""
    return issubclass(type(x), (numpy.generic, float, int)) and bool(x == number)


def _scalar_loglik(model: LinearGaussian, data: Observations) -> Any:
    """The log-likelihood of a model with one state and one observation in numbers, 7 operations a step for a
    local level; None if the model is not of that kind.  A diffuse level that nothing multiplies is the first
    observation."""
    field, m = checked_fields(model, data)
    mean, cov, mark = checked_start(model.start, m, data)
    n, first, unknown = data.steps, model.start.predict_first, mark.any()
    if m > 1 or getattr(field["R"], "shape", (1, 1))[-1] > 1:
        return None
    T, Z, Q, H, c, d = (_series(field[x], n, 1 if x in "cd" else 2) for x in "TZQHcd")
    if field["R"] is not None:
        Q = [q * r * r for q, r in zip(Q, _series(field["R"], n, 2), strict=True)]
    still, direct = _all_are(T, 1.0), _all_are(Z, 1.0)
    if unknown and not (still and direct):
        return None
    moving = not (still and _all_are(c, 0.0))
    y = _series(data.values[:, 0], n, 0)
    if not _all_are(d, 0.0):
        y = [e - x for e, x in zip(y, d, strict=True)]
    a, P = _series(mean, 1, 2)[0], _series(cov, 1, 2)[0]
    if model.start.stationary:
        if unknown or any(x[0] is not x[-1] for x in (T, Q, c)):
            return None
        shown = T[0] if type(T[0]) is float else seen(T[0])
        if shown is not None and not abs(shown) < 1.0:
            return None  # the long way says so
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


def _series(x: Any, n: int, axes: int) -> list[Any]:
    """The numbers of a field with one element, step by step; a field of more than `axes` axes varies.  Data
    (axes 0) become Python's floats, the fastest partners of a tracked number; the rest stay NumPy's, for
    which 0 / 0 is nan."""
    if x.ndim > axes:
        if type(x) is numpy.ndarray:
            return x.reshape(-1).tolist() if axes == 0 and x.dtype == float else list(x.reshape(-1))
        return [x[(t,) + (0,) * axes] for t in range(n)]
    return [x[(0,) * x.ndim] if x.ndim else x] * n


def _all_are(series: list[Any], number: float) -> bool:
    return is_number(series[0], number) and all(x is series[0] for x in series)
