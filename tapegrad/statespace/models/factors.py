"""Dynamic factors: many series with few common movements, perhaps of two frequencies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import scipy.linalg
from numpy import ndarray

from ... import numpy as np
from ..._core.errors import ArgumentError, DataError
from ...ops.linalg.block_matrices import block_diag
from .._bound_model import BoundModel
from .._constraints import positive, stationary, unconstrained
from .._model import LinearGaussian, Start
from .._observations import Observations
from .._parameters import ParameterBlock
from .multivariate import (
    VectorProcess,
    bound_process,
    companion,
    inputs_of,
    lag_matrices,
    least_squares_autoregression,
    required_count,
    required_trend,
    several_series,
)

# A quarter's growth is this sum of the growth of its months and of those before (R. S. Mariano and Y.
# Murasawa, Journal of Applied Econometrics 18 (2003) 427-443).
MONTHS = numpy.array([1.0, 2.0, 3.0, 2.0, 1.0])


def dynamic_factor(
    Y: Any,
    factors: int = 1,
    order: int = 1,
    error_order: int = 0,
    trend: str = "c",
    exog: Any = None,
    quarterly: Sequence[int | str] = (),
) -> BoundModel:
    """Make a dynamic factor model, to be fitted with ``.fit()``.

    The model is y = mean + loadings f + beta x + e. f is a vector autoregression whose noise has unit
    covariance.

    Parameters
    ----------
    Y : array of shape (n, p), or DataFrame
        As for `var`.
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
    quarterly : sequence of str or int, optional
        The series, by name or number of the column, that are growth rates of quarters. The steps are months,
        and such a series is observed in the last month of a quarter. It is the sum of 1, 2, 3, 2 and 1 times
        the growth of five months (Mariano and Murasawa 2003), in factors and errors; its mean is that of
        quarters.

    Returns
    -------
    model
        Its method ``fit()`` returns a `FitResult`.

    Raises
    ------
    ArgumentError, ShapeError, DataError
        As for `var`.

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
    call = "dynamic_factor"
    data = several_series(call, Y)
    order, trend = required_count(call, "order", order), required_trend(call, trend, ("c", "n"))
    errors = required_count(call, "error_order", error_order, 0)
    places = _quarterly(data, quarterly)
    monthly = data.width - len(places)
    if not (0 < required_count(call, "factors", factors) < data.width and factors <= monthly):
        raise ArgumentError(
            f"dynamic_factor: factors={factors!r} for {data.width} series, {monthly} of them monthly; wanted "
            f"fewer than series, and no more than monthly ones"
        )
    return bound_process(call, DynamicFactor, data, order, trend, exog, int(factors), errors, places)


def _quarterly(data: Observations, given: Sequence[int | str]) -> tuple[int, ...]:
    """Return the numbers of the quarterly series."""
    names, found = list(data.labels.columns), set()
    for x in [given] if isinstance(given, str) else given:
        if x not in names and not (isinstance(x, Integral) and 0 <= x < data.width):
            raise ArgumentError(
                f"dynamic_factor: quarterly={given!r}; {x!r} is no column of Y, which has {', '.join(names)}"
            )
        found.add(names.index(x) if x in names else int(x))
    for i in sorted(found):
        steps = [t for t, rows in enumerate(data.rows) if i in rows]
        for t, after in zip(steps, steps[1:], strict=False):
            if (after - t) % 3:
                raise DataError(
                    f"dynamic_factor: the quarterly series {names[i]} has values at the steps {t} and "
                    f"{after}; wanted nan but for the last month of each quarter"
                )
    return tuple(sorted(found))


def _factors_of(fit) -> SimpleNamespace:
    """Return filtered and smoothed factors (factors, n) with their covariances, as statsmodels has them."""
    r = fit.problem.described.factors
    names = ("filtered", "filtered_cov", "smoothed", "smoothed_cov")
    found = [getattr(fit, name.replace("ed", "ed_state", 1)) for name in names]
    return SimpleNamespace(
        **{name: x[:r] if x.ndim == 2 else x[:r, :r] for name, x in zip(names, found, strict=True)}
    )


@dataclass(frozen=True)
class DynamicFactor(VectorProcess):
    factors: int
    error_order: int
    quarterly: tuple[int, ...] = ()
    several_maxima = True
    result_names = {
        "factors": _factors_of,
        "coefficient_matrices_var": lag_matrices("transition"),
    }

    @property
    def title(self) -> str:
        errors = f", errors AR({self.error_order})" if self.error_order else ""
        title = f"dynamic factors ({self.factors}, order {self.order}{errors}) of {len(self.columns)} series"
        title += f", {len(self.quarterly)} of them quarterly" if self.quarterly else ""
        return title + "".join(f" + {name}" for name in self.regressors)

    @property
    def _loaded(self) -> list[tuple[int, int]]:
        """Return (series, factor) of the nonzero loadings."""
        return [(i, j) for j in range(self.factors) for i in range(len(self.columns)) if i >= j]

    @property
    def complete(self) -> int:
        return len(self.columns) - len(self.quarterly)

    @property
    def terms(self) -> tuple[str, ...]:
        """Return the name of the coefficients of the trend."""
        return ("mean",) if self.trend == "c" else ()

    def start(self, y: ndarray) -> dict[str, ParameterBlock]:
        """Start from principal components, their autoregression, and those of the residuals."""
        names, r = self.columns, self.factors
        found, x = self.level_of(y)
        scale = numpy.nanstd(x, axis=0)
        if not (scale > 0).all():
            raise DataError(f"dynamic_factor: {names[int(numpy.argmin(scale))]} is constant")
        monthly = [i for i in range(len(names)) if i not in self.quarterly]
        full = numpy.where(numpy.isnan(x), 0.0, x / scale)[:, monthly]
        f = full @ numpy.linalg.svd(full, full_matrices=False)[2][:r].T
        A, left, *_ = least_squares_autoregression(f, self.order)
        # g = W f with noise of unit covariance, rotated to triangular loadings
        W = numpy.linalg.inv(numpy.linalg.cholesky(left))
        loadings, rest = self._regressed(x, f @ W.T)
        turn = numpy.linalg.qr(loadings[:r].T)[0]
        W, loadings = turn.T @ W, loadings @ turn
        A = numpy.concatenate(
            [W @ A[:, i * r : i * r + r] @ numpy.linalg.inv(W) for i in range(self.order)], axis=1
        )
        blocks = self.level_blocks(self.terms, found)
        entries = numpy.array([loadings[i, j] for i, j in self._loaded])
        blocks["loadings"] = ParameterBlock(
            entries, unconstrained(), [f"loading.f{j + 1}.{names[i]}" for i, j in self._loaded]
        )
        variances = numpy.maximum(numpy.nanvar(rest, axis=0), 0.05 * scale**2)
        variances[list(self.quarterly)] /= MONTHS @ MONTHS
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
        for i, name in enumerate(names if self.error_order else ()):
            labels = [f"L{lag}.e({name}).e({name})" for lag in range(1, self.error_order + 1)]
            first = numpy.zeros(self.error_order)
            if i in monthly:
                first = least_squares_autoregression(rest[:, i : i + 1], self.error_order)[0][0]
            blocks[f"error_ar.{name}"] = ParameterBlock(first, stationary(), labels)
        return blocks

    def _regressed(self, x: ndarray, f: ndarray) -> tuple[ndarray, ndarray]:
        """Return loadings on the factors f, and residuals, by least squares for each series."""
        sums = numpy.full(f.shape, numpy.nan)
        sums[4:] = sum([w * f[4 - lag : len(f) - lag] for lag, w in enumerate(MONTHS)])
        loadings, rest = numpy.zeros((x.shape[1], f.shape[1])), x.copy()
        for i in range(x.shape[1]):
            g = sums if i in self.quarterly else f
            seen = ~numpy.isnan(x[:, i]) & ~numpy.isnan(g[:, 0])
            loadings[i] = numpy.linalg.lstsq(g[seen], x[seen, i], rcond=None)[0]
            rest[:, i] -= g @ loadings[i]
        return loadings, rest

    def __call__(self, p: Mapping[str, Any]) -> LinearGaussian:
        k, r, xp, e = len(self.columns), self.factors, self.xp, self.error_order
        lags = max(self.order, MONTHS.size if self.quarterly else 1)
        A = p["transition"].reshape((r, r * self.order))
        blocks, noise = [companion(_padded(A, r * lags, xp), xp)], [numpy.eye(r * lags, r)]
        # The weights of the lags of factors, and of the errors that are states
        of_factors, of_errors = numpy.zeros((k, lags)), []
        for i, name in enumerate(self.columns):
            weights = MONTHS if i in self.quarterly else numpy.ones(1)
            of_factors[i, : weights.size] = weights
            if i in self.quarterly or e:
                size = max(weights.size, e)
                own = p[f"error_ar.{name}"][None] if e else xp.zeros((1, 1))
                blocks.append(companion(_padded(own, size, xp), xp))
                noise.append(numpy.eye(size, 1))
                of_errors.append((i, numpy.pad(weights, (0, size - weights.size))))
        Z = [xp.asarray(of_factors[:, lag, None]) * self._loadings(p) for lag in range(lags)]
        for i, weights in of_errors:
            Z.append(xp.asarray(numpy.outer(numpy.eye(k)[i], weights)))
        inside = [i for i, _ in of_errors]
        H = 0.0 if len(inside) == k else p["sigma2"]
        if inside and len(inside) < k:
            H = H * xp.asarray((~numpy.isin(numpy.arange(k), inside)).astype(float))
        Q = np.concatenate([xp.ones(r), p["sigma2"][numpy.array(inside)]]) if inside else xp.ones(r)
        mean = inputs_of(self.design, self.level_coefficients(self.terms, p)) if self.regressors else 0.0
        mean = p["mean"] if self.terms and not self.regressors else mean
        R = xp.asarray(scipy.linalg.block_diag(*noise))
        T, Z = block_diag(*blocks) if of_errors else blocks[0], np.concatenate(Z, axis=1)
        return LinearGaussian(T, Z, Q, H, R, 0.0, mean, Start(stationary=True))

    def _loadings(self, p: Mapping[str, Any]):
        """Return the loadings (series, factors), of which the upper triangle is 0."""
        zero, at = self.xp.zeros(()), {place: n for n, place in enumerate(self._loaded)}
        rows = [
            [p["loadings"][at[i, j]] if (i, j) in at else zero for j in range(self.factors)]
            for i in range(len(self.columns))
        ]
        return np.stack([np.stack(row) for row in rows])


def _padded(A, columns: int, xp: ModuleType):
    """Return A with columns of zeros behind."""
    missing = columns - A.shape[1]
    return np.concatenate([A, xp.zeros((A.shape[0], missing))], axis=1) if missing else A
