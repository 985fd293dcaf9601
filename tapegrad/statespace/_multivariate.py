"""Vector autoregressions and dynamic factors."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy

from .. import numpy as np
from .._core.arrays import to_host
from .._core.errors import ArgumentError, DataError, ShapeError
from .._transforms.tape import value
from ..ops.linalg.block_matrices import block_diag
from ._bound_model import BoundModel
from ._constraints import positive, stationary, unconstrained
from ._labels import LibraryBound
from ._model import LinearGaussian, Observations, RegressionOffset, Start
from ._parameters import ParameterBlock, Parameters, parameters_of
from ._problem import FitProblem
from ._structural import checked_regressors, future_regressors, require_rank


def var(Y: Any, order: int = 1, trend: str = "c", exog: Any = None) -> BoundModel:
    """Make a stationary vector autoregression, to be fitted with ``.fit()`` by the exact likelihood.

    The model is y[t] = c + A[1] y[t-1] + ... + beta x[t] + e[t].

    Parameters
    ----------
    Y : array of shape (n, p), or DataFrame
        The data, nan where missing.
    order : int, default 1
        The number of lags.
    trend : {'c', 'n'}, default 'c'
        'c' is an intercept for each series, 'n' none.
    exog : array of shape (n, r), optional
        Regressors, which enter beside the past. Before the first step they are assumed to be as at the first.

    Returns
    -------
    model
        Its method ``fit()`` returns a `FitResult`. The covariance of the noise is parametrised by its
        triangular factor: sqrt.var, sqrt.cov.

    Raises
    ------
    ArgumentError
        If an option is not valid.
    ShapeError
        If Y has one series, or `exog` has another number of rows.
    DataError
        If there are too few data.

    See Also
    --------
    dynamic_factor : Many series with few common factors.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> ss.var(np.random.default_rng(0).normal(size=(30, 2)), order=2)
    VAR(2) of 2 series of 30 steps
    """
    data = _several("var", Y)
    return _bound("var", VectorAutoregression, data, order, trend, exog)


def dynamic_factor(
    Y: Any, factors: int = 1, order: int = 1, error_order: int = 0, trend: str = "c", exog: Any = None
) -> BoundModel:
    """Make a dynamic factor model, to be fitted with ``.fit()``.

    The model is y = mean + loadings f + beta x + e. f is a vector autoregression whose noise has unit
    covariance.

    Parameters
    ----------
    Y : array of shape (n, p), or DataFrame
        The data, nan where missing.
    factors : int, default 1
        The number of common factors. The k-th factor does not enter the first k - 1 series, which fixes the
        rotation. The sign is that of the start.
    order : int, default 1
        The number of lags of the factors.
    error_order : int, default 0
        The order of the autoregression of each error e. With 0 the errors are noise.
    trend : {'c', 'n'}, default 'c'
        'n' leaves out the means.
    exog : array of shape (n, r), optional
        Regressors.

    Returns
    -------
    model
        Its method ``fit()`` returns a `FitResult`.

    Raises
    ------
    ArgumentError
        If an option is not valid.
    ShapeError
        If Y has one series, or `exog` has another number of rows.
    DataError
        If there are too few data.

    See Also
    --------
    var : Without common factors.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> ss.dynamic_factor(np.random.default_rng(0).normal(size=(30, 3)), factors=1, order=2)
    dynamic factors (1, order 2) of 3 series of 30 steps
    """
    data = _several("dynamic_factor", Y)
    if not (_is_positive(factors) and factors < data.width):
        raise ArgumentError(
            f"dynamic_factor: factors={factors!r} for {data.width} series; wanted at least 1, and fewer "
            f"than series"
        )
    if not (error_order == 0 or _is_positive(error_order)):
        raise ArgumentError(
            f"dynamic_factor: error_order={error_order!r}; wanted a whole number, 0 for noise"
        )
    return _bound("dynamic_factor", DynamicFactor, data, order, trend, exog, int(factors), int(error_order))


def _bound(
    call: str, kind: type, data: Observations, order: int, trend: str, exog: Any, *more: int
) -> BoundModel:
    """Return a model of this kind with its data, after the checks that both kinds have."""
    if not _is_positive(order):
        raise ArgumentError(f"{call}: order={order!r}; wanted a whole number, at least 1")
    if trend not in ("c", "n"):
        raise ArgumentError(f"{call}: trend={trend!r}; wanted 'c' or 'n'")
    model = kind(
        data.labels.columns, int(order), trend, data.xp, *_regressors(call, exog, data, trend), *more
    )
    complete = sum([len(rows) == data.width for rows in data.rows])
    wanted = data.width * model.order + 2
    if complete < wanted:
        raise DataError(
            f"{call}: {complete} steps without missing values are too few for {model.title}; wanted "
            f"{wanted} at least"
        )
    return BoundModel(model, data)


def _several(call: str, Y: Any) -> Observations:
    data = Y if isinstance(Y, Observations) else Observations(Y)
    if data.width < 2:
        raise ShapeError(f"{call}: Y has one series; wanted (n, p) with p at least 2")
    return data


def _regressors(
    call: str, exog: Any, data: Observations, trend: str
) -> tuple[numpy.ndarray, tuple[str, ...]]:
    """Return regressors (n, r) and their names; without any, r = 0."""
    if exog is None:
        return numpy.zeros((data.steps, 0)), ()
    X, names = checked_regressors(call, exog)
    if len(X) != data.steps:
        raise ShapeError(f"{call}: exog has {len(X)} rows and Y has {data.steps}; wanted one for each step")
    data.labels.require_same_dates(f"{call}: exog", getattr(exog, "index", None))
    whole, other = (numpy.hstack([numpy.ones((len(X), 1)), X]), "intercept") if trend == "c" else (X, "")
    require_rank(call, whole, data.rows, names, other)
    return X, names


def _is_positive(x: Any) -> bool:
    return isinstance(x, (int, numpy.integer)) and x >= 1


@dataclass(frozen=True)
class _Process(LibraryBound):
    """The base class of both models."""

    columns: tuple[str, ...]
    order: int
    trend: str
    xp: ModuleType = field(repr=False)
    X: numpy.ndarray = field(repr=False)
    regressors: tuple[str, ...]
    remarks = ()

    def _level(self, y: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
        """Return mean, coefficients of the regressors (k, r) and residuals, by least squares for each
        series."""
        r, k = self.X.shape[1], len(self.columns)
        design = numpy.hstack([numpy.ones((len(y), 1)), self.X]) if self.trend == "c" else self.X
        found = numpy.zeros((design.shape[1], k))
        for i in range(k if design.size else 0):
            seen = ~numpy.isnan(y[:, i])
            found[:, i] = numpy.linalg.lstsq(design[seen], y[seen, i], rcond=None)[0]
        mean = found[0] if self.trend == "c" else numpy.zeros(k)
        return mean, found[found.shape[0] - r :].T, y - design @ found

    def _beta(self, start: numpy.ndarray) -> dict[str, ParameterBlock]:
        labels = [f"beta.{x}.{name}" for name in self.columns for x in self.regressors]
        return {"beta": ParameterBlock(start, unconstrained(), labels)} if self.regressors else {}

    def problem(
        self, data: Observations, start: Any, constraints: Any, joseph: bool, prior: Any, fixed: Any = None
    ) -> FitProblem:
        blocks = self.start(to_host(value(data.raw)))
        return self.on(data, parameters_of(self.title, blocks, start, constraints, fixed), joseph, prior)

    def on(self, data: Observations, parameters: Parameters, joseph: bool, prior: Any) -> FitProblem:
        """Return the problem of these data."""
        return FitProblem(self, data, parameters, joseph, prior, described=self)

    def extended(self, steps: int, exog: Any, keep: int | None = None) -> Any:
        """Return the model with regressors for `steps` more, after the first `keep` (default: all)."""
        new = future_regressors(exog, [self.regressors] if self.regressors else [], steps)
        return replace(self, X=numpy.concatenate([self.X[:keep], new[0]])) if new else self


@dataclass(frozen=True)
class VectorAutoregression(_Process):
    @property
    def title(self) -> str:
        return f"VAR({self.order}) of {len(self.columns)} series" + "".join(
            f" + {name}" for name in self.regressors
        )

    def start(self, y: numpy.ndarray) -> dict[str, ParameterBlock]:
        """Start from least squares, pulled inside the stationary region."""
        names, k = self.columns, len(self.columns)
        mean, beta, rest = self._level(y)
        A, left = _autoregression(rest, self.order)
        L = numpy.linalg.cholesky(left)
        A_sum = sum([A[:, i * k : i * k + k] for i in range(self.order)])
        below = [(i, j) for i in range(k) for j in range(i)]
        blocks = (
            {
                "intercept": ParameterBlock(
                    mean - A_sum @ mean, unconstrained(), [f"intercept.{n}" for n in names]
                )
            }
            if self.trend == "c"
            else {}
        )
        blocks |= self._beta(beta - A_sum @ beta)
        labels = [
            f"L{lag}.{source}.{target}"
            for target in names
            for lag in range(1, self.order + 1)
            for source in names
        ]
        blocks["coefficients"] = ParameterBlock(A, unconstrained(), labels)
        blocks["sqrt.var"] = ParameterBlock(
            numpy.diag(L).copy(), positive(), [f"sqrt.var.{n}" for n in names]
        )
        covs = numpy.array([L[i, j] for i, j in below])
        blocks["sqrt.cov"] = ParameterBlock(
            covs, unconstrained(), [f"sqrt.cov.{names[j]}.{names[i]}" for i, j in below]
        )
        return blocks

    def __call__(self, p: Mapping[str, Any]) -> LinearGaussian:
        k, xp = len(self.columns), self.xp
        A, m = p["coefficients"], k * self.order
        T = _companion(A, xp)
        L = _lower(p["sqrt.var"], p["sqrt.cov"], xp)
        mean = 0.0
        if self.trend == "c" or self.regressors:
            rest = xp.eye(k) - sum([A[:, i * k : i * k + k] for i in range(1, self.order)], A[:, :k])
            mean = np.linalg.solve(rest, p["intercept"]) if self.trend == "c" else 0.0
            if self.regressors:
                mean = mean + self._carried(A, rest, xp.asarray(self.X) @ p["beta"].T)
        eye = xp.eye(k, m)
        return LinearGaussian(T, eye, L @ L.T, 0.0, xp.eye(m, k), 0.0, mean, Start(stationary=True))

    def _carried(self, A: Any, rest: Any, inputs: Any) -> Any:
        """Return the response of the series (n, k) to the inputs (n, k), given constant inputs before step
        0."""
        path = [np.linalg.solve(rest, inputs[0])] * self.order
        for t in range(1, inputs.shape[0]):
            path.append(A @ np.concatenate(path[: -self.order - 1 : -1]) + inputs[t])
        return np.stack(path[self.order - 1 :])


@dataclass(frozen=True)
class DynamicFactor(_Process):
    factors: int
    error_order: int

    @property
    def title(self) -> str:
        errors = f", errors AR({self.error_order})" if self.error_order else ""
        title = f"dynamic factors ({self.factors}, order {self.order}{errors}) of {len(self.columns)} series"
        return title + "".join(f" + {name}" for name in self.regressors)

    @property
    def _loaded(self) -> list[tuple[int, int]]:
        """Return (series, factor) of the nonzero loadings."""
        return [(i, j) for j in range(self.factors) for i in range(len(self.columns)) if i >= j]

    def start(self, y: numpy.ndarray) -> dict[str, ParameterBlock]:
        """Start from principal components, their autoregression, and those of the residuals."""
        names, r = self.columns, self.factors
        mean, beta, x = self._level(y)
        full = numpy.where(numpy.isnan(x), 0.0, x)
        scale = full.std(axis=0)
        if not (scale > 0).all():
            raise DataError(f"dynamic_factor: {names[int(numpy.argmin(scale))]} is constant")
        f = (full / scale) @ numpy.linalg.svd(full / scale, full_matrices=False)[2][:r].T
        A, left = _autoregression(f, self.order)
        root = numpy.linalg.cholesky(left)
        # g = W f with noise of unit covariance, rotated to triangular loadings
        W = numpy.linalg.inv(root)
        loadings = numpy.linalg.lstsq(f @ W.T, full, rcond=None)[0].T
        turn = numpy.linalg.qr(loadings[:r].T)[0]
        W, loadings = turn.T @ W, loadings @ turn
        A = numpy.concatenate(
            [W @ A[:, i * r : i * r + r] @ numpy.linalg.inv(W) for i in range(self.order)], axis=1
        )
        rest = full - f @ W.T @ loadings.T
        blocks = (
            {"mean": ParameterBlock(mean, unconstrained(), [f"mean.{n}" for n in names])}
            if self.trend == "c"
            else {}
        )
        blocks |= self._beta(beta)
        entries = numpy.array([loadings[i, j] for i, j in self._loaded])
        blocks["loadings"] = ParameterBlock(
            entries, unconstrained(), [f"loading.f{j + 1}.{names[i]}" for i, j in self._loaded]
        )
        variances = numpy.maximum(rest.var(axis=0), 0.05 * scale**2)
        blocks["sigma2"] = ParameterBlock(variances, positive(), [f"sigma2.{n}" for n in names])
        labels = [
            f"L{lag}.f{b + 1}.f{a + 1}"
            for a in range(r)
            for lag in range(1, self.order + 1)
            for b in range(r)
        ]
        blocks["transition"] = (
            ParameterBlock(A[0], stationary(), labels)
            if r == 1
            else ParameterBlock(A, unconstrained(), labels)
        )
        if self.error_order:
            for name, e in zip(names, rest.T, strict=True):
                labels = [f"L{lag}.e({name}).e({name})" for lag in range(1, self.error_order + 1)]
                blocks[f"error_ar.{name}"] = ParameterBlock(
                    _autoregression(e[:, None], self.error_order)[0][0], stationary(), labels
                )
        return blocks

    def __call__(self, p: Mapping[str, Any]) -> LinearGaussian:
        k, r, xp = len(self.columns), self.factors, self.xp
        at = {place: n for n, place in enumerate(self._loaded)}
        zero = xp.zeros(())
        loadings = np.stack(
            [
                np.stack([p["loadings"][at[i, j]] if (i, j) in at else zero for j in range(r)])
                for i in range(k)
            ]
        )
        Z, T, m = loadings, _companion(p["transition"].reshape((r, r * self.order)), xp), r * self.order
        if m > r:
            Z = np.concatenate([Z, xp.zeros((k, m - r))], axis=1)
        mean, start = p["mean"] if self.trend == "c" else 0.0, Start(stationary=True)
        if self.regressors:
            X = numpy.hstack([numpy.ones((len(self.X), int(self.trend == "c"))), self.X])
            rows = np.concatenate(([mean[:, None]] if self.trend == "c" else []) + [p["beta"]], axis=1)
            mean = RegressionOffset(
                numpy.stack([numpy.kron(numpy.eye(k), x) for x in X]), rows.reshape((-1,))
            )
        if not self.error_order:
            return LinearGaussian(T, Z, np.asarray(xp.ones(r)), p["sigma2"], xp.eye(m, r), 0.0, mean, start)
        # The errors at each lag are further states
        e = self.error_order
        eye, phi = xp.eye(k), np.stack([p[f"error_ar.{name}"] for name in self.columns])
        errors = _companion(np.concatenate([phi[:, i][:, None] * eye for i in range(e)], axis=1), xp)
        T = block_diag(T, errors)
        Z = np.concatenate([Z, eye] + ([xp.zeros((k, k * (e - 1)))] if e > 1 else []), axis=1)
        R = numpy.zeros((m + k * e, r + k))
        R[:r, :r], R[m : m + k, r:] = numpy.eye(r), numpy.eye(k)
        return LinearGaussian(
            T, Z, np.concatenate([xp.ones(r), p["sigma2"]]), 0.0, xp.asarray(R), 0.0, mean, start
        )


def _companion(A: Any, xp: ModuleType) -> Any:
    """Return the transition of (x[t], x[t-1], ...) for x[t+1] = A (x[t], x[t-1], ...)."""
    k, m = A.shape
    return A if k == m else np.concatenate([A, xp.eye(m - k, m)], axis=0)


def _lower(diagonal: Any, below: Any, xp: ModuleType) -> Any:
    """Return a lower triangle from its diagonal and the rows below it."""
    k, at = diagonal.shape[0], 0
    rows = []
    for i in range(k):
        rows.append(np.concatenate([below[at : at + i], diagonal[i : i + 1], xp.zeros(k - i - 1)]))
        at += i
    return np.stack(rows)


def _autoregression(x: numpy.ndarray, order: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return least-squares coefficients (k, k order), shrunk until stationary, and the noise covariance."""
    n, k = x.shape
    lagged = numpy.concatenate([x[order - 1 - i : n - 1 - i] for i in range(order)], axis=1)
    good = ~numpy.isnan(lagged).any(1) & ~numpy.isnan(x[order:]).any(1)
    lagged, now = lagged[good], x[order:][good]
    A = numpy.linalg.lstsq(lagged, now, rcond=None)[0].T
    left = now - lagged @ A.T
    cov = left.T @ left / len(left) + 1e-9 * numpy.diag(numpy.maximum(numpy.nanvar(x, axis=0), 1e-300))
    powers = numpy.repeat(numpy.arange(1, order + 1), k)
    for _ in range(100):
        if (
            abs(numpy.linalg.eigvals(numpy.concatenate([A, numpy.eye(k * order - k, k * order)]))).max()
            < 0.97
        ):
            break
        A = A * 0.95**powers
    return A, cov
