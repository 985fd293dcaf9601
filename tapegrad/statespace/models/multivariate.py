"""What vector autoregressions and dynamic factors share: checks, regressors, starting values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy
from numpy import ndarray

from ... import numpy as np
from ..._core.arrays import to_host
from ..._core.errors import ArgumentError, DataError, ShapeError
from .._bound_model import BoundModel
from .._constraints import unconstrained
from .._labels import LibraryBound
from .._model import RegressionOffset
from .._observations import Observations, as_observations
from .._parameters import ParameterBlock, Parameters, parameters_of
from .._problem import FitProblem
from .._regressors import checked_regressors, future_regressors, require_rank
from .arima import TRENDS


def bound_process(
    call: str, kind: type, data: Observations, order: int, trend: str, exog, *more
) -> BoundModel:
    """Return a model of this kind with its data, after the checks that both kinds have."""
    model = kind(data.labels.columns, int(order), trend, data.xp, *_regressors(call, exog, data), *more)
    if model.regressors:
        other = {"c": "intercept", "n": ""}.get(trend, "trend")
        require_rank(call, model.design, data.rows, model.regressors, other)
    complete = sum([len(rows) >= model.complete for rows in data.rows])
    wanted = data.width * model.lags + 2
    if complete < wanted:
        raise DataError(
            f"{call}: {complete} steps without missing values are too few for {model.title}; wanted "
            f"{wanted} at least"
        )
    return BoundModel(model, data)


def several_series(call: str, Y) -> Observations:
    data = as_observations(Y)
    if data.width < 2:
        raise ShapeError(f"{call}: Y has one series; wanted (n, p) with p at least 2")
    return data


def _regressors(call: str, exog, data: Observations) -> tuple[ndarray, tuple[str, ...]]:
    """Return regressors (n, r) and their names; without any, r = 0."""
    if exog is None:
        return numpy.zeros((data.steps, 0)), ()
    X, names = checked_regressors(call, exog)
    if len(X) != data.steps:
        raise ShapeError(f"{call}: exog has {len(X)} rows and Y has {data.steps}; wanted one for each step")
    data.labels.require_same_dates(f"{call}: exog", getattr(exog, "index", None))
    return X, names


def required_count(call: str, name: str, x, least: int = 1) -> int:
    """Return a whole number; raise unless it is one and at least `least`."""
    if isinstance(x, (int, numpy.integer)) and not isinstance(x, bool) and x >= least:
        return int(x)
    raise ArgumentError(f"{call}: {name}={x!r}; wanted a whole number, at least {least}")


def required_trend(call: str, trend, known: tuple[str, ...]) -> str:
    """Return a trend that the model knows."""
    if isinstance(trend, str) and trend in known:
        return trend
    raise ArgumentError(f"{call}: trend={trend!r}; wanted {', '.join(map(repr, known))}")


def lag_matrices(name: str):
    """Return the function from a fit to the coefficients of each lag, (lags, k, k), None without them."""

    def of(fit) -> ndarray | None:
        if name not in fit.params:
            return None
        A = numpy.atleast_2d(to_host(fit.params[name]))
        return A.reshape(len(A), -1, len(A)).swapaxes(0, 1)

    return of


@dataclass(frozen=True)
class VectorProcess(LibraryBound):
    """The base class of both models; they build a model from parameters, and know their title and start."""

    columns: tuple[str, ...]
    order: int
    trend: str
    xp: ModuleType = field(repr=False)
    X: ndarray = field(repr=False)
    regressors: tuple[str, ...]
    remarks = ()
    several_maxima = False

    @property
    def title(self) -> str:
        raise NotImplementedError

    def start(self, y: ndarray) -> dict[str, ParameterBlock]:
        raise NotImplementedError

    def __call__(self, p):
        raise NotImplementedError

    @property
    def lags(self) -> int:
        """Return the number of lags for which there must be complete steps."""
        return self.order

    @property
    def complete(self) -> int:
        """Return the number of series that a complete step has."""
        return len(self.columns)

    @property
    def design(self) -> ndarray:
        """Return the powers of time in the trend, and the regressors, (n, k)."""
        time = numpy.arange(float(len(self.X)))[:, None]
        return numpy.hstack([*[time**k for k in TRENDS[self.trend]], self.X])

    def level_of(self, y: ndarray) -> tuple[ndarray, ndarray]:
        """Return the coefficients of the design (k, series) and residuals, by least squares for each
        series."""
        design = self.design
        found = numpy.zeros((design.shape[1], len(self.columns)))
        for i in range(len(self.columns) if design.size else 0):
            seen = ~numpy.isnan(y[:, i])
            found[:, i] = numpy.linalg.lstsq(design[seen], y[seen, i], rcond=None)[0]
        return found, y - design @ found

    def level_blocks(self, terms: tuple[str, ...], found: ndarray) -> dict[str, ParameterBlock]:
        """Return the parameters of the design: a vector for each of the terms, and `beta`."""
        blocks = {
            term: ParameterBlock(x, unconstrained(), [f"{term}.{name}" for name in self.columns])
            for term, x in zip(terms, found, strict=False)
        }
        labels = [f"beta.{x}.{name}" for name in self.columns for x in self.regressors]
        if self.regressors:
            blocks["beta"] = ParameterBlock(found[len(terms) :].T, unconstrained(), labels)
        return blocks

    def level_coefficients(self, terms: tuple[str, ...], p: Mapping[str, Any]):
        """Return the coefficients of the design, (series, k)."""
        beta = [p["beta"]] if self.regressors else []
        return np.concatenate([p[term][:, None] for term in terms] + beta, axis=1)

    def problem(self, data: Observations, start, constraints, joseph: bool, prior, fixed=None) -> FitProblem:
        blocks = self.start(data.host)
        parameters = parameters_of(self.title, blocks, start, constraints, fixed)
        rng, count = numpy.random.default_rng(0), 8 if self.several_maxima else 0  # half of them stationary
        others = tuple([parameters.start + rng.normal(size=parameters.start.size) for _ in range(count)])
        return replace(self.on(data, parameters, joseph, prior), others=others)

    def on(self, data: Observations, parameters: Parameters, joseph: bool, prior) -> FitProblem:
        """Return the problem of these data."""
        return FitProblem(self, data, parameters, joseph, prior, described=self)

    def extended(self, steps: int, exog, keep: int | None = None):
        """Return the model with regressors for `steps` more, after the first `keep` (default: all)."""
        new = future_regressors(exog, [self.regressors] if self.regressors else [], steps)
        new = new or [numpy.zeros((steps, 0))]
        return replace(self, X=numpy.concatenate([self.X[:keep], new[0]]))


def inputs_of(design: ndarray, coefficients, size: int = 0) -> RegressionOffset:
    """Return the offset of the first states: design (n, k) @ coefficients (series, k)', and then zeros."""
    k = coefficients.shape[0]
    rows = numpy.zeros((len(design), max(size, k), coefficients.size))
    for i in range(k):
        rows[:, i, i * design.shape[1] : (i + 1) * design.shape[1]] = design
    return RegressionOffset(rows, coefficients.reshape((-1,)))


def companion(A, xp: ModuleType):
    """Return the transition of (x[t], x[t-1], ...) for x[t+1] = A (x[t], x[t-1], ...)."""
    k, m = A.shape
    return A if k == m else np.concatenate([A, xp.eye(m - k, m)], axis=0)


def least_squares_autoregression(
    x: ndarray, order: int, noise: ndarray | None = None, ma_order: int = 0
) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """Return coefficients (k, k order) of x, the covariance of residuals, these (n, k), and coefficients of
    the noise (k, k ma_order), by least squares; the coefficients are shrunk until stationary, invertible."""
    n, k = x.shape
    lags: list[tuple[Any, int]] = [(x, i) for i in range(1, order + 1)]
    lags += [(noise, i) for i in range(1, ma_order + 1)]
    lagged = numpy.full((n, k * len(lags)), numpy.nan)
    for j, (series, i) in enumerate(lags):
        lagged[i:, j * k : j * k + k] = series[: n - i]
    good = ~numpy.isnan(lagged).any(1) & ~numpy.isnan(x).any(1)
    found = numpy.linalg.lstsq(lagged[good], x[good], rcond=None)[0].T
    left = numpy.full(x.shape, numpy.nan)
    left[good] = x[good] - lagged[good] @ found.T
    cov = left[good].T @ left[good] / max(good.sum(), 1)
    cov += 1e-9 * numpy.diag(numpy.maximum(numpy.nanvar(x, axis=0), 1e-300))
    return _shrunk_inside(found[:, : k * order]), cov, left, -_shrunk_inside(-found[:, k * order :])


def _shrunk_inside(A: ndarray) -> ndarray:
    """Return coefficients (k, k order), shrunk until the autoregression is stationary."""
    k, m = A.shape
    powers = numpy.repeat(numpy.arange(1, m // k + 1), k)
    for _ in range(100):
        if not m or abs(numpy.linalg.eigvals(companion(A, numpy))).max() < 0.97:
            break
        A = A * 0.95**powers
    return A
