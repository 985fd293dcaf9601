"""Seasonal autoregressive integrated moving averages with regressors, in the notation of G. E. P. Box and G.
M. Jenkins:

    phi(B) Phi(B^s) w[t] = c + b t + theta(B) Theta(B^s) e[t],   w = (1 - B)^d (1 - B^s)^D (y - X beta)

The model of y has the process w (Harvey's form, DK 3.4) and the last y before time t as states; the latter
have an exact diffuse start.  The likelihood is searched on the differenced series, which has the
same one with fewer states: the first d + s D observations then stand outside.  A few missing values are
integrated out there."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy
from numpy import ndarray
from scipy.special import comb

from ... import numpy as np
from ..._core.arrays import to_host, xp_of
from ..._core.errors import DataError, NotPositiveDefiniteError
from ..._core.primitive import seen
from ..._transforms.tape import value
from .._constraints import invertible, positive, stationary, unconstrained
from .._labels import LibraryBound
from .._matrices import SMALL_STATE_COUNT, stationary_covariance
from .._model import LinearGaussian, RegressionOffset, Start, arma
from .._objective import MissingValues
from .._observations import Observations
from .._parameters import ParameterBlock, Parameters, parameters_of
from .._problem import FitProblem
from .._regressors import future_regressors, require_rank
from ..filters.arrays import LOG_2PI
from ..filters.augmented import condition
from .spectral_starts import spectral_maxima

# missing values, and the condition number of their effects, up to which the differenced series serves
MISSING_VALUES, MISSING_CONDITION = 64, 1e3


TRENDS = {None: (), "n": (), "c": (0,), "t": (1,), "ct": (0, 1)}  # the powers of time


def _result_names(kind: str) -> dict[str, Any]:
    """Return what statsmodels says of the "ar" or "ma" part: coefficients, polynomial, roots, frequencies."""

    def polynomial(fit) -> ndarray:
        found = to_host(fit.problem.described._polynomials(fit.params)[kind == "ma"])
        return numpy.r_[1.0, found if kind == "ma" else -found]

    def roots(fit) -> ndarray:
        return 1 / numpy.roots(polynomial(fit))

    def params(fit, prefix: str = "") -> ndarray:
        return to_host(fit.params.get(prefix + kind, numpy.zeros(0)))

    return {
        f"polynomial_reduced_{kind}": polynomial,
        f"{kind}roots": roots,
        f"{kind}freq": lambda fit: numpy.angle(roots(fit)) / (2 * numpy.pi),
        f"{kind}params": params,
        f"seasonal{kind}params": partial(params, prefix="seasonal_"),
    }


def _lags(order: int | tuple[int, ...]) -> tuple[int, ...]:
    return order if isinstance(order, tuple) else tuple(range(1, order + 1))


@dataclass(frozen=True)
class Arima(LibraryBound):
    """The process as a model of the levels; a call with parameters builds the model."""

    order: tuple
    seasonal: tuple
    powers: tuple[int, ...]
    X: Any = field(repr=False)
    columns: tuple[str, ...]
    steps: int
    xp: ModuleType = field(repr=False)
    noisy: bool = False
    concentrated: bool = False

    several_maxima = True
    result_names = _result_names("ar") | _result_names("ma")

    @property
    def title(self) -> str:
        season = f"({', '.join(map(str, self.seasonal))})" if any(self.seasonal[:3]) else ""
        known = {powers: name for name, powers in TRENDS.items()}
        trend = (
            f" + trend {known.get(self.powers) or [int(k in self.powers) for k in range(self.degree + 1)]}"
            if self.powers
            else ""
        )
        more = "".join([f" + {x}" for x in (*self.columns, *["measurement error"] * self.noisy)])
        return f"ARIMA({', '.join(map(str, self.order))}){season}{trend}{more}"

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        return (
            sum([len(lags) for lags in self.lags.values()])
            + len(self.columns)
            + len(self.powers)
            + 1
            + self.noisy
        )

    @property
    def lags(self) -> dict[str, tuple[int, ...]]:
        """Return the lags of each polynomial; seasonal ones count seasons."""
        (p, _, q), (P, _, Q, _) = self.order, self.seasonal
        return {"ar": _lags(p), "seasonal_ar": _lags(P), "ma": _lags(q), "seasonal_ma": _lags(Q)}

    @property
    def degree(self) -> int:
        """Return the degree of the trend, -1 without one."""
        return max(self.powers, default=-1)

    @property
    def trends(self) -> dict[int, str]:
        """Return the names of the coefficients of the powers of time."""
        return {k: ("intercept", "drift")[k] if k < 2 else f"trend.{k}" for k in self.powers}

    @property
    def remarks(self) -> tuple[str, ...]:
        return (
            (f"log-likelihood of the differenced series: {self.lost} observations begin the differences",)
            if self.lost
            else ()
        )

    @property
    def delta(self) -> ndarray:
        """Return the coefficients of (1 - B)^d (1 - B^s)^D, from power 0 on."""
        d, (_, D, _, s) = self.order[1], self.seasonal
        result = numpy.ones(1)
        for factor, times in (
            (numpy.array([1.0, -1.0]), d),
            (numpy.r_[1.0, numpy.zeros(max(s - 1, 0)), -1.0], D),
        ):
            for _ in range(times):
                result = numpy.convolve(result, factor)
        return result

    @property
    def lost(self) -> int:
        return self.order[1] + self.seasonal[1] * self.seasonal[3]

    def differenced(self, x: ndarray) -> ndarray:
        """Return delta(B) x[t] along the first axis, for the t where all lags exist."""
        n = len(x) - self.lost
        return sum([c * x[self.lost - k : self.lost - k + n] for k, c in enumerate(self.delta) if c])

    # --- parameters ---

    def regressed(self, data: Observations) -> tuple[ndarray, ndarray]:
        """Regress the differenced series on trend and regressors; return residuals and coefficients.

        Raise if the data cannot be fitted."""
        w = self.differenced(data.host[:, 0])
        t = numpy.arange(float(self.lost), data.steps)
        design = [t**k for k in self.powers]
        design += list(self.differenced(self.X).T) if self.X is not None else []
        seen, coefficients = ~numpy.isnan(w), numpy.zeros(0)
        if self.X is not None:
            rows = [[0] if x else [] for x in seen]
            other = "trend" if self.powers else "differences" if self.lost else ""
            require_rank("sarimax", numpy.column_stack(design), rows, self.columns, other)
        if design and seen.sum() > len(design):
            matrix = numpy.column_stack(design)
            coefficients = numpy.linalg.lstsq(matrix[seen], w[seen], rcond=None)[0]
            w = w - matrix @ coefficients
        if not numpy.nanvar(w) > 0:
            raise DataError("sarimax: the differenced series is constant; its variance cannot be estimated")
        return w, coefficients

    def start(self, data: Observations) -> dict[str, ParameterBlock]:
        """Return starting values: least squares for trend and regressors, then the spectrum of the rest."""
        return self._starts(data)[0]

    def _starts(self, data: Observations) -> list[dict[str, ParameterBlock]]:
        """Return starts at the local maxima of Whittle's likelihood, the highest first."""
        w, coefficients = self.regressed(data)
        s = self.seasonal[3]
        lags = {
            name: [lag * (s if name.startswith("seasonal") else 1) for lag in lags]
            for name, lags in self.lags.items()
        }
        return [self._start_at(coefficients, lags, *found) for found in spectral_maxima(w, lags)]

    def _start_at(
        self, coefficients: ndarray, all_lags: Mapping, found: Mapping[str, ndarray], var: float
    ) -> dict[str, ParameterBlock]:
        one, other = found["ar"].sum(), found["seasonal_ar"].sum()
        share = 1.0 - one - other + one * other
        blocks = {}
        for name in self.trends.values():
            blocks[name] = ParameterBlock(coefficients[len(blocks)] * share, unconstrained())
        if self.X is not None:
            blocks["beta"] = ParameterBlock(coefficients[len(blocks) :], unconstrained(), list(self.columns))
        for name, label, rule in (
            ("ar", "ar.L", stationary()),
            ("ma", "ma.L", invertible()),
            ("seasonal_ar", "ar.S.L", stationary()),
            ("seasonal_ma", "ma.S.L", invertible()),
        ):
            lags = all_lags[name]
            if lags:
                rule = unconstrained() if self._has_gaps(name) else rule
                blocks[name] = ParameterBlock(found[name], rule, [f"{label}{lag}" for lag in lags])
        blocks["sigma2"] = ParameterBlock(var, positive())
        return blocks | ({"sigma2.measurement": ParameterBlock(var / 10, positive())} if self.noisy else {})

    def problem(self, data: Observations, start, constraints, joseph: bool, prior, fixed=None) -> FitProblem:
        blocks, *further = self._starts(data)
        parameters = parameters_of(self.title, blocks, start, constraints, fixed)
        others = tuple([parameters.start_at(x) for x in ([] if start else further)])
        return replace(self.on(data, parameters, joseph, prior), others=others)

    def again(self, problem: FitProblem) -> FitProblem:
        """Return the problem with the starts that its data imply."""
        starts = [problem.parameters.start_at(x) for x in self._starts(problem.data)]
        return replace(problem, others=tuple(starts))

    def on(self, data: Observations, parameters: Parameters, joseph: bool, prior) -> FitProblem:
        """Return the problem of these data."""
        name = None if self.lost else self._name
        linear, scale = (*self.trends.values(), *self.columns), None if self.noisy else "sigma2"
        whole = FitProblem(
            self,
            data,
            parameters,
            joseph,
            prior,
            self,
            self.lost * LOG_2PI / 2,
            self.lost,
            name=name,
            scale=scale,
            linear=linear,
            without_scale=self.concentrated,
        )
        if not 0 < self.lost < data.steps or self.noisy:
            return whole
        if data.count < data.steps:
            return replace(whole, missing=self._missing_values(data))
        w = Observations(data.xp.asarray(self.differenced(data.host)))
        quick = FitProblem(self.of_differences, w, parameters, joseph, prior, name=self._name, scale="sigma2")
        return replace(whole, quick=quick)

    def _missing_values(self, data: Observations) -> MissingValues | None:
        """Return the differenced series and what each missing value changes in it, or None.

        None means: many values, or values that the differences do not determine."""
        if data.xp is not numpy or data.steps - data.count > MISSING_VALUES:
            return None
        y = data.host[:, 0]
        gaps = numpy.flatnonzero(numpy.isnan(y))
        filled = numpy.interp(numpy.arange(y.size), numpy.flatnonzero(~numpy.isnan(y)), y[~numpy.isnan(y)])
        w = self.differenced(filled)
        unit = float(numpy.std(w)) or 1.0
        directions = self.differenced(unit * (numpy.arange(y.size)[:, None] == gaps))
        if condition(directions) > MISSING_CONDITION:
            return None
        return MissingValues(self.of_differences, Observations(w), directions, unit, self._name)

    @property
    def _name(self) -> str | None:
        """Identify what `of_differences` depends on, except for the parameters and the numbers of the data.

        Return None if a loop that reads numbers finds the start."""
        ar = max(self.lags["ar"], default=0) + self.seasonal[3] * max(self.lags["seasonal_ar"], default=0)
        if ar > SMALL_STATE_COUNT or self._has_gaps("ar") or self._has_gaps("seasonal_ar"):
            return None
        return f"arima {self.order} {self.seasonal} {self.powers} {self.noisy} {0 if self.X is None else self.X.shape[1]}"

    def _has_gaps(self, name: str) -> bool:
        lags = self.lags[name]
        return lags != tuple(range(1, len(lags) + 1))

    # --- the state space models ---

    def _polynomials(self, p: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the coefficients of phi(B) Phi(B^s) and theta(B) Theta(B^s), as `arma` takes them."""
        s, xp, whole = self.seasonal[3], self.xp, {}
        for name, lags in self.lags.items():
            whole[name] = p[name] if lags else None
            if self._has_gaps(name):
                at = numpy.zeros((lags[-1], len(lags)))
                at[numpy.array(lags) - 1, numpy.arange(len(lags))] = 1.0
                whole[name] = xp.asarray(at) @ p[name]
                if name.endswith("ar") and not stationary().inside(to_host(value(whole[name]))):
                    raise NotPositiveDefiniteError(
                        f"sarimax: the coefficients {name} are not those of a stationary process"
                    )
        return (
            lag_product(whole["ar"], whole["seasonal_ar"], s, -1.0, xp),
            lag_product(whole["ma"], whole["seasonal_ma"], s, 1.0, xp),
        )

    def _line(self, p: Mapping[str, Any], phi):
        """The coefficients a of the mean mu[t] = sum a[k] t^k of w, for which phi(B) mu[t] = sum b[k] t^k;
        (degree + 1,).

        phi(B) t^j = t^j - sum phi[i] (t - i)^j, and the binomial formula gives its coefficients."""
        xp, n = self.xp, self.degree + 1
        b = np.stack([p[self.trends[k]] if k in self.powers else xp.zeros(()) for k in range(n)])
        if not phi.shape[0]:
            return b
        if n == 1:
            return b / (1.0 - np.sum(phi))
        lags, powers = numpy.arange(1.0, phi.shape[0] + 1.0)[:, None, None], numpy.arange(n)
        shifted = comb(powers, powers[:, None]) * (-lags) ** numpy.maximum(powers - powers[:, None], 0)
        return np.linalg.solve(xp.eye(n) - np.sum(phi[:, None, None] * xp.asarray(shifted), axis=0), b)

    def of_differences(self, p: Mapping[str, Any]) -> LinearGaussian:
        """Return the model of w + delta(B) X beta."""
        phi, theta = self._polynomials(p)
        line = self._line(p, phi) if self.powers else None
        model = arma(phi, theta, p["sigma2"], self._offset(line, p, self.lost), self._noise(p))
        if phi.shape[0] > SMALL_STATE_COUNT:
            return model
        return replace(model, start=Start(0.0, p["sigma2"] * state_covariance(phi, theta)))

    def _noise(self, p: Mapping[str, Any]):
        return p["sigma2.measurement"] if self.noisy else 0.0

    def _offset(self, line, p: Mapping[str, Any], first: int):
        """Return line and regressors, those of differences if they begin at a step after 0."""
        if self.X is None and self.degree < 1:
            return 0.0 if line is None else line[0]
        X = numpy.arange(float(first), self.steps)[:, None] ** numpy.arange(self.degree + 1)
        if self.X is not None:
            X = numpy.hstack([X, self.differenced(self.X) if first else self.X])
        known = [x for x in (line, p["beta"] if self.X is not None else None) if x is not None]
        return RegressionOffset(X[:, None], np.concatenate(known))

    def __call__(self, p: Mapping[str, Any]) -> LinearGaussian:
        if not self.lost:
            return self.of_differences(p)
        phi, theta = self._polynomials(p)
        xp, k = self.xp, self.lost
        inner = arma(phi, theta, p["sigma2"])
        T, R = inner.transition, inner.selection
        m, short = T.shape[0], phi.shape[0] <= SMALL_STATE_COUNT
        Z = numpy.r_[1.0, numpy.zeros(m - 1), -self.delta[1:]]
        below = xp.asarray(numpy.vstack([Z, numpy.eye(k - 1, m + k, m)]))
        cov = p["sigma2"] * (state_covariance(phi, theta) if short else stationary_covariance(T, R @ R.T, xp))
        T = np.concatenate([np.concatenate([T, xp.zeros((m, k))], axis=1), below], axis=0)
        R = np.concatenate([R, xp.zeros((k, 1))], axis=0)
        cov = np.concatenate([np.concatenate([cov, xp.zeros((m, k))], axis=1), xp.zeros((k, m + k))], axis=0)
        line = self._line(p, phi) if self.powers else None
        entry = numpy.eye(m + k)[m]
        shift = 0.0 if line is None else line[0] * xp.asarray(entry)
        if self.degree > 0:
            times = numpy.arange(0.0, self.steps)[:, None] ** numpy.arange(self.degree + 1)
            shift = RegressionOffset(times[:, None, :] * entry[:, None], line)
        start = Start(0.0, cov, [False] * m + [True] * k)
        return LinearGaussian(
            T, xp.asarray(Z), p["sigma2"], self._noise(p), R, shift, self._offset(line, p, 0), start
        )

    def extended(self, steps: int, exog, keep: int | None = None) -> "Arima":
        """Return the model with regressors for `steps` more, after the first `keep` (default: all)."""
        keep = self.steps if keep is None else keep
        new = future_regressors(exog, [] if self.X is None else [self.columns], steps)
        return replace(
            self, steps=keep + steps, X=numpy.concatenate([self.X[:keep], new[0]]) if new else None
        )


def state_covariance(phi, theta):
    """Return the stationary covariance (m, m) of the states of `arma` with unit noise; nan if there is none.

    The states are sums of the last y and e, with the coefficients on antidiagonals. The autocovariances of y
    solve the Yule-Walker equations, and the covariances of y and e are the weights psi (P. J. Brockwell and
    R. A. Davis 1991, section 3.3)."""
    p, q, xp = phi.shape[0], theta.shape[0], xp_of(value(phi))
    m, whole = max(p, q + 1), np.concatenate([xp.ones(1), theta, xp.zeros(1)])
    places = numpy.add.outer(numpy.arange(m), numpy.arange(q + 1))
    E = whole[numpy.minimum(places, q + 1)]
    if not p:
        return E @ E.T
    if seen(phi) is not None and not stationary().inside(seen(phi)):
        raise NotPositiveDefiniteError(
            f"sarimax: the coefficients {seen(phi)} are not those of a stationary process"
        )
    psi = [whole[0]]
    for k in range(1, q + 1):
        psi.append(sum([phi[j] * psi[k - 1 - j] for j in range(min(p, k))], whole[k]))
    lags = abs(numpy.subtract.outer(numpy.arange(p + 1), numpy.arange(1, p + 1)))
    turned = xp.asarray(numpy.eye(p + 1)[lags])  # (p + 1, p, p + 1)
    right = [sum([whole[j] * psi[j - k] for j in range(k, q + 1)], xp.zeros(())) for k in range(p + 1)]
    M = sum([-phi[j] * turned[:, j] for j in range(p)], xp.eye(p + 1))
    gamma = np.linalg.solve(M, np.stack(right))
    if seen(phi) is None:
        gamma = np.where(_is_stationary(phi), gamma, numpy.nan)
    Y = np.concatenate([phi, xp.zeros(1)])[
        numpy.minimum(numpy.add.outer(numpy.arange(m), numpy.arange(p)), p)
    ]
    ahead = numpy.subtract.outer(-numpy.arange(1, p + 1), -numpy.arange(q + 1))
    across = np.concatenate([np.stack(psi), xp.zeros(1)])[numpy.where(ahead < 0, q + 1, ahead)]
    mixed = Y @ across @ E.T
    return E @ E.T + mixed + mixed.T + Y @ gamma[lags[1:]] @ Y.T


def _is_stationary(phi):
    """Return whether all partial autocorrelations are inside (-1, 1), where numbers cannot be looked at."""
    good = True
    for k in range(phi.shape[0] - 1, -1, -1):
        last, phi = phi[k], phi[:k]
        good = good & (np.abs(last) < 1)
        phi = (phi + last * phi[::-1]) / (1 - last * last)
    return good


def lag_product(a, b, s: int, sign: float, xp: ModuleType):
    """Return the coefficients of (1 + sign a(B)) (1 + sign b(B^s)), without the leading 1, times sign."""
    if b is None:
        return xp.zeros(0) if a is None else a
    size = (0 if a is None else a.shape[0]) + s * b.shape[0]

    def at(x, place: int):
        return np.concatenate([xp.zeros(place), x, xp.zeros(size - place - x.shape[0])])

    one = xp.ones(1)
    total = xp.zeros(size) if a is None else at(a, 0)
    for k in range(b.shape[0]):
        factor = b[k : k + 1]
        term = one if a is None else np.concatenate([one, sign * a])
        total = total + at(factor * term, s * (k + 1) - 1)
    return total
