"""Seasonal autoregressive integrated moving averages with regressors, in the notation of G. E. P. Box and G. M. Jenkins:

    phi(B) Phi(B^s) w[t] = c + b t + theta(B) Theta(B^s) e[t],   w = (1 - B)^d (1 - B^s)^D (y - X beta)

The model of y has the process w (Harvey's form, DK 3.4) and the last y before time t as states; the latter have an exact
diffuse start.  If no data are missing, the likelihood is searched on the differenced series, which has the same one with
fewer states: the first d + s D observations then stand outside."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy

from .. import numpy as np
from .._recording import value
from ..errors import ArgumentError, DataError, ShapeError
from ..optimize import to_host
from ._constraints import invertible, positive, stationary, unconstrained
from ._filter import LOG_2PI
from ._labels import OnLibrary
from ._model import SMALL, LinearGaussian, Observations, Start, arma, stationary_covariance
from ._parameters import Block, parameters_of
from ._problem import Problem
from ._specified import Specified
from ._structural import checked_regressors, future_regressors, require_rank

TRENDS = (None, "n", "c", "t", "ct")


def sarimax(
    y: Any,
    order: tuple[int, int, int] = (1, 0, 0),
    seasonal_order: tuple[int, int, int, int] = (0, 0, 0, 0),
    exog: Any = None,
    trend: str | None = None,
) -> Specified:
    """A seasonal ARIMA model with regressors for `.fit()`: order (p, d, q), seasonal_order (P, D, Q, s).

    trend 'c' is an intercept of the differenced series, 't' a drift times the number of the step (0 at the first),
    'ct' both; the process starts on its own line.  The log-likelihood is that of the differenced series, as R and
    statsmodels give it; with missing data it is the diffuse one of the levels, on the same scale.

    >>> from tapegrad import statespace as ss
    >>> y = [3.0, 2.5, 4.1, 3.7, 5.2, 4.8, 5.9, 6.4, 5.8, 7.1, 7.0, 8.3]
    >>> fit = ss.sarimax(y, order=(1, 1, 0), trend="c").fit()
    >>> fit.names, fit.estimates.round(4)
    (['intercept', 'ar.L1', 'sigma2'], array([ 0.9178, -0.8753,  0.1785]))
    """
    data = y if isinstance(y, Observations) else Observations(y)
    if data.width != 1:
        raise ShapeError(f"sarimax: y has {data.width} series; wanted one (ss.var for several)")
    for name, given, count in (("order", order, 3), ("seasonal_order", seasonal_order, 4)):
        if not isinstance(given, (tuple, list)) or len(given) != count or not all([_is_count(x) for x in given]):
            raise ArgumentError(f"sarimax: {name}={given!r}; wanted {count} whole numbers, {'(p, d, q)' if count == 3 else '(P, D, Q, s)'}")
    if any(seasonal_order[:3]) and seasonal_order[3] < 2:
        raise ArgumentError(f"sarimax: seasonal_order={seasonal_order}; its last number is the steps of a season, at least 2")
    if trend not in TRENDS:
        raise ArgumentError(f"sarimax: trend={trend!r}; wanted one of {', '.join(map(repr, TRENDS))}")
    X, columns = (None, ()) if exog is None else checked_regressors("sarimax", exog)
    if X is not None and len(X) != data.steps:
        raise ShapeError(f"sarimax: exog has {len(X)} rows and y has {data.steps}; wanted one for each step")
    data.labels.require_same_dates("sarimax: exog", getattr(exog, "index", None))
    process = Arima(tuple(order), tuple(seasonal_order), trend or "n", X, columns, data.steps, data.xp)
    if data.count <= process.lost + process.parameters:
        raise DataError(f"sarimax: {data.count} observed values are too few for {process.title}")
    process.start(data)  # raises where the data cannot be fitted
    return Specified(process, data)


def _is_count(x: Any) -> bool:
    return isinstance(x, (int, numpy.integer)) and x >= 0


@dataclass(frozen=True)
class Arima(OnLibrary):
    """The process as a model of the levels: called with parameters, it is what builds them."""

    order: tuple[int, int, int]
    seasonal: tuple[int, int, int, int]
    trend: str
    X: numpy.ndarray | None = field(repr=False)
    columns: tuple[str, ...]
    steps: int
    xp: ModuleType = field(repr=False)

    @property
    def title(self) -> str:
        season = f"({', '.join(map(str, self.seasonal))})" if any(self.seasonal[:3]) else ""
        trend = f" + trend {self.trend}" if self.trend != "n" else ""
        return f"ARIMA({', '.join(map(str, self.order))}){season}{trend}" + (f" + {', '.join(self.columns)}" if self.columns else "")

    @property
    def parameters(self) -> int:
        """How many there are."""
        (p, _, q), (P, _, Q, _) = self.order, self.seasonal
        return p + q + P + Q + len(self.columns) + len(self.trend.removeprefix("n")) + 1

    @property
    def remarks(self) -> tuple[str, ...]:
        return (f"log-likelihood of the differenced series: {self.lost} observations begin the differences",) if self.lost else ()

    @property
    def delta(self) -> numpy.ndarray:
        """(1 - B)^d (1 - B^s)^D, from the power 0 on."""
        d, (_, D, _, s) = self.order[1], self.seasonal
        result = numpy.ones(1)
        for factor, times in ((numpy.array([1.0, -1.0]), d), (numpy.r_[1.0, numpy.zeros(max(s - 1, 0)), -1.0], D)):
            for _ in range(times):
                result = numpy.convolve(result, factor)
        return result

    @property
    def lost(self) -> int:
        return self.order[1] + self.seasonal[1] * self.seasonal[3]

    def differenced(self, x: numpy.ndarray) -> numpy.ndarray:
        """delta(B) x[t], along the first axis, for the t where it can be formed."""
        n = len(x) - self.lost
        return sum([c * x[self.lost - k : self.lost - k + n] for k, c in enumerate(self.delta)])

    # --- parameters ---

    def start(self, data: Observations) -> dict[str, Block]:
        """Least squares for trend and regressors, then E. J. Hannan and J. Rissanen's regression on lagged values and the
        residuals of a long autoregression (Biometrika 69 (1982) 81-94)."""
        (p, _, q), (P, _, Q, s) = self.order, self.seasonal
        w = self.differenced(to_host(value(data.raw))[:, 0])
        t = numpy.arange(float(self.lost), data.steps)
        design = [column for letter, column in (("c", numpy.ones(w.size)), ("t", t)) if letter in self.trend]
        design += list(self.differenced(self.X).T) if self.X is not None else []
        seen, coefficients = ~numpy.isnan(w), numpy.zeros(0)
        if self.X is not None:
            rows = [[0] if x else [] for x in seen]
            require_rank("sarimax", numpy.column_stack(design), rows, "trend" if self.trend != "n" else "differences" if self.lost else "")
        if design and seen.sum() > len(design):
            matrix = numpy.column_stack(design)
            coefficients = numpy.linalg.lstsq(matrix[seen], w[seen], rcond=None)[0]
            w = w - matrix @ coefficients
        lags = [list(range(1, p + 1)), [s * k for k in range(1, P + 1)], list(range(1, q + 1)), [s * k for k in range(1, Q + 1)]]
        phi, theta, var = _hannan_rissanen(w, lags)
        share, blocks = 1.0 - phi[0].sum() - phi[1].sum() + phi[0].sum() * phi[1].sum(), {}
        for letter, name in (("c", "intercept"), ("t", "drift")):
            if letter in self.trend:
                blocks[name] = Block(coefficients[len(blocks)] * share, unconstrained())
        if self.X is not None:
            blocks["beta"] = Block(coefficients[len(blocks) :], unconstrained(), list(self.columns))
        for name, label, start, rule, step in (
            ("ar", "ar.L", phi[0], stationary(), 1),
            ("ma", "ma.L", theta[0], invertible(), 1),
            ("seasonal_ar", "ar.S.L", phi[1], stationary(), s),
            ("seasonal_ma", "ma.S.L", theta[1], invertible(), s),
        ):
            if start.size:
                blocks[name] = Block(start, rule, [f"{label}{step * (k + 1)}" for k in range(start.size)])
        blocks["sigma2"] = Block(var, positive())
        return blocks

    def problem(self, data: Observations, start: Any, constraints: Any, joseph: bool, prior: Any) -> Problem:
        parameters = parameters_of(self.title, self.start(data), start, constraints)
        name = None if self.lost else self._name
        whole = Problem(self, data, parameters, joseph, prior, self, self.lost * LOG_2PI / 2, self.lost, name=name)
        if data.count < data.steps or not self.lost:
            return whole
        w = Observations(data.xp.asarray(self.differenced(to_host(value(data.raw)))))
        return replace(whole, quick=Problem(self.of_differences, w, parameters, joseph, prior, name=self._name))

    @property
    def _name(self) -> str | None:
        """Says all that `of_differences` depends on but the parameters and the numbers of the data; None where the start is found by a
        loop that looks at numbers."""
        (p, _, q), (P, _, Q, s) = self.order, self.seasonal
        if p + s * P and max(p + s * P, q + s * Q + 1) > SMALL:
            return None
        return f"arima {self.order} {self.seasonal} {self.trend} {0 if self.X is None else self.X.shape[1]}"

    # --- the state space models ---

    def _polynomials(self, p: Mapping[str, Any]) -> tuple[Any, Any]:
        """The coefficients of phi(B) Phi(B^s) and theta(B) Theta(B^s), as `arma` takes them."""
        s = self.seasonal[3]
        return _product(p.get("ar"), p.get("seasonal_ar"), s, -1.0, self.xp), _product(p.get("ma"), p.get("seasonal_ma"), s, 1.0, self.xp)

    def _line(self, p: Mapping[str, Any], phi: Any) -> tuple[Any, Any]:
        """Height and slope of the mean mu[t] of w, the line with phi(B) mu[t] = c + b t."""
        rest = 1.0 - np.sum(phi) if phi.shape[0] else 1.0
        slope = p["drift"] / rest if "t" in self.trend else 0.0
        if self.trend == "n":
            return 0.0, 0.0
        lagged = np.sum(phi * self.xp.asarray(numpy.arange(1.0, phi.shape[0] + 1.0))) if phi.shape[0] and "t" in self.trend else 0.0
        return (p.get("intercept", 0.0) - slope * lagged) / rest, slope

    def of_differences(self, p: Mapping[str, Any]) -> LinearGaussian:
        """The model of w + delta(B) X beta.  Slope and coefficients are states that start from the parameters and stay, so that what
        varies over time is data alone."""
        phi, theta = self._polynomials(p)
        height, slope = self._line(p, phi)
        inner = arma(phi, theta, p["sigma2"], height)
        known = [slope.reshape((1,))] if "t" in self.trend else []
        known += [p["beta"]] if self.X is not None else []
        if not known:
            return inner
        X = numpy.arange(float(self.lost), self.steps)[:, None] if "t" in self.trend else numpy.zeros((self.steps - self.lost, 0))
        X = numpy.hstack([X, self.differenced(self.X)]) if self.X is not None else X
        (m, k), xp = (inner.transition.shape[0], X.shape[1]), self.xp
        Z = numpy.hstack([numpy.tile(numpy.eye(1, m), (len(X), 1)), X])[:, None]
        mean = np.concatenate([xp.zeros(m), *known])
        T, R, cov = self._beside(inner, p, xp.asarray(numpy.eye(k, m + k, m)), k)
        return LinearGaussian(T, xp.asarray(Z), p["sigma2"], 0.0, R, 0.0, height, Start(mean, cov))

    def _beside(self, inner: LinearGaussian, p: Mapping[str, Any], below: Any, k: int) -> tuple[Any, Any, Any]:
        """The process with k more states without noise, whose transition is `below`: transition, selection and the covariance of the
        start."""
        T, R, xp = inner.transition, inner.selection, self.xp
        m = T.shape[0]
        cov = stationary_covariance(T, R @ R.T * p["sigma2"], xp)
        if k:
            T = np.concatenate([np.concatenate([T, xp.zeros((m, k))], axis=1), below], axis=0)
            R = np.concatenate([R, xp.zeros((k, 1))], axis=0)
            cov = np.concatenate([np.concatenate([cov, xp.zeros((m, k))], axis=1), xp.zeros((k, m + k))], axis=0)
        return T, R, cov

    def __call__(self, p: Mapping[str, Any]) -> LinearGaussian:
        if not self.lost:
            return self.of_differences(p)
        phi, theta = self._polynomials(p)
        xp, k = self.xp, self.lost
        inner = arma(phi, theta, p["sigma2"])
        m = inner.transition.shape[0]
        Z = numpy.r_[1.0, numpy.zeros(m - 1), -self.delta[1:]]
        T, R, cov = self._beside(inner, p, xp.asarray(numpy.vstack([Z, numpy.eye(k - 1, m + k, m)])), k)
        height, slope = self._line(p, phi)
        path = height + slope * xp.asarray(numpy.arange(0.0, self.steps)) if "t" in self.trend else height
        offset = path if self.X is None else path + xp.asarray(self.X) @ p["beta"]
        entry = xp.asarray(numpy.eye(m + k)[m])
        shift = 0.0 if self.trend == "n" else path[:, None] * entry if "t" in self.trend else path * entry
        offset = offset[:, None] if getattr(offset, "ndim", 0) else offset
        return LinearGaussian(T, xp.asarray(Z), p["sigma2"], 0.0, R, shift, offset, Start(0.0, cov, [False] * m + [True] * k))

    def extended(self, steps: int, exog: Any) -> "Arima":
        """The model with regressors for the steps after the data."""
        new = future_regressors(exog, [] if self.X is None else [self.X.shape[1]], steps)
        return replace(self, steps=self.steps + steps, X=numpy.concatenate([self.X, new[0]]) if new else None)


def _product(a: Any, b: Any, s: int, sign: float, xp: ModuleType) -> Any:
    """The coefficients of (1 + sign a(B)) (1 + sign b(B^s)), less the leading 1, times sign."""
    if b is None:
        return xp.zeros(0) if a is None else a
    size = (0 if a is None else a.shape[0]) + s * b.shape[0]

    def at(x: Any, place: int) -> Any:
        return np.concatenate([xp.zeros(place), x, xp.zeros(size - place - x.shape[0])])

    one = xp.ones(1)
    total = xp.zeros(size) if a is None else at(a, 0)
    for k in range(b.shape[0]):
        factor = b[k : k + 1]
        term = one if a is None else np.concatenate([one, sign * a])
        total = total + at(factor * term, s * (k + 1) - 1)
    return total


Pair = tuple[numpy.ndarray, numpy.ndarray]


def _hannan_rissanen(w: numpy.ndarray, lags: list[list[int]]) -> tuple[Pair, Pair, float]:
    """Starting values (ar, seasonal ar), (ma, seasonal ma) and the variance, from the lags of these four; within the region
    of the constraints."""
    ar, seasonal_ar, ma, seasonal_ma = lags
    variance = float(numpy.nanvar(w))
    if not variance > 0:
        raise DataError("sarimax: the differenced series is constant; its variance cannot be estimated")
    parts = [numpy.zeros(len(x)) for x in lags]
    if any(lags):
        long = min(max(2 * max(sum(lags, [])), 4), max(w.size // 3, 1))
        noise = _residuals(w, [(w, k) for k in range(1, long + 1)])[0] if ma or seasonal_ma else w
        left, found = _residuals(w, [(w, k) for k in ar + seasonal_ar] + [(noise, k) for k in ma + seasonal_ma])
        if found is not None:
            parts = numpy.split(found, numpy.cumsum([len(x) for x in lags[:3]]))
            variance = float(numpy.nanvar(left)) or variance
    phi, seasonal_phi, theta, seasonal_theta = parts
    return (_shrunk(phi), _shrunk(seasonal_phi)), (-_shrunk(-theta), -_shrunk(-seasonal_theta)), variance


def _residuals(w: numpy.ndarray, columns: list[tuple[numpy.ndarray, int]]) -> tuple[numpy.ndarray, numpy.ndarray | None]:
    """What a regression of w on lagged series leaves (nan where it cannot be formed), and its coefficients."""
    design = numpy.column_stack([numpy.r_[numpy.full(k, numpy.nan), x[: x.size - k]] if k < x.size else x * numpy.nan for x, k in columns])
    good = ~numpy.isnan(design).any(1) & ~numpy.isnan(w)
    if good.sum() <= len(columns):
        return w, None
    coefficients = numpy.linalg.lstsq(design[good], w[good], rcond=None)[0]
    return w - design @ coefficients, coefficients


def _shrunk(phi: numpy.ndarray) -> numpy.ndarray:
    """The coefficients of an autoregression, pulled inside the stationary region by moving its roots outwards."""
    powers = numpy.arange(1, phi.size + 1)
    for _ in range(200):
        if not phi.size or (stationary().inside(phi) and abs(numpy.tanh(stationary().unconstrained(phi))).max() < 0.97):
            return phi
        phi = phi * 0.95**powers
    return numpy.zeros(phi.size)
