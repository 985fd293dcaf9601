"""Structural models as sums: `ss.level() + ss.trend() + ss.seasonal(12) + ss.regression(X)`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy
import scipy.linalg

from .. import numpy as np
from .._core.arrays import to_host
from .._core.errors import ArgumentError, DataError, ShapeError
from .._transforms.tape import value
from ..ops.linalg.block_matrices import block_diag
from ._components import (
    AutoregressiveComponent,
    ComponentStates,
    Cycle,
    Harmonics,
    Level,
    ModelComponent,
    Noise,
    RegressionComponent,
    Sample,
    Seasonal,
    Trend,
    checked_variance,
)
from ._labels import LibraryBound
from ._model import LinearGaussian, Observations, RegressionOffset, Start, system
from ._parameters import ParameterBlock, Parameters, parameters_of
from ._problem import FitProblem
from .filters.arrays import is_known_number
from .filters.augmented import start_of
from .filters.compiled import loglik

# Starting shares of the variance of the changes: noise, level, rest.
SHARES = [(1.0, 1.0, 1.0), (2.0, 0.04, 0.04), (0.1, 3.0, 0.2), (1.0, 0.1, 4.0)]


def level(var: float | None = None, name: str = "level") -> "Structural":
    """A component: a random walk.

    Parameters
    ----------
    var : float, optional
        The variance of its noise. It is estimated if it is not given. 0 makes the level a constant.
    name : str, default 'level'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components, which `fit` accepts. Every sum has observation noise, unless ``noise(var=0)``
        removes it.

    Raises
    ------
    ArgumentError
        If `var` is negative.

    See Also
    --------
    trend, seasonal, cycle, ar, regression, noise : The other components.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> y = [1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 4.0]
    >>> fit = ss.fit(ss.level(), y)
    >>> fit.names, fit.estimates.round(6)
    (['sigma2.irregular', 'sigma2.level'], array([0.714048, 0.616082]))
    """
    checked_variance("level", var)
    return Structural((Level(name, var, "level"),))


def trend(var: float | None = None, name: str = "trend") -> "Structural":
    """A component: a slope of the level, itself a random walk.

    Parameters
    ----------
    var : float, optional
        The variance of its noise. It is estimated if it is not given. 0 makes a constant drift.
    name : str, default 'trend'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components. Without `level`, the level under the trend has no noise of its own: a smooth
        trend.

    Raises
    ------
    ArgumentError
        If `var` is negative.

    See Also
    --------
    level : The level.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.trend() + ss.seasonal(12))
    level + trend + seasonal(12)
    """
    checked_variance("trend", var)
    return Structural((Trend(name, var, "trend"),))


def seasonal(
    period: int, var: float | None = None, harmonics: int | None = None, name: str = "seasonal"
) -> "Structural":
    """A component: a pattern that repeats and changes slowly.

    Parameters
    ----------
    period : int or float
        The number of steps. A period that is not an integer needs `harmonics`.
    var : float, optional
        The variance of its noise. It is estimated if it is not given. 0 makes a constant pattern.
    harmonics : int, optional
        The number of waves whose sum is the pattern, for a long period.
    name : str, default 'seasonal'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components.

    Raises
    ------
    ArgumentError
        If the period or `harmonics` is not valid.

    See Also
    --------
    cycle : A wave whose period is estimated.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.seasonal(12, harmonics=3))
    level + seasonal(12, harmonics=3)
    """
    checked_variance("seasonal", var)
    if harmonics is None:
        if not (isinstance(period, (int, numpy.integer)) and period >= 2):
            raise ArgumentError(
                f"seasonal({period!r}): wanted a whole number of steps, at least 2; harmonics= allows others"
            )
        return Structural((Seasonal(name, var, f"seasonal({period})", int(period)),))
    if not (isinstance(harmonics, (int, numpy.integer)) and 1 <= harmonics <= period / 2):
        raise ArgumentError(
            f"seasonal({period}, harmonics={harmonics!r}): wanted a whole number from 1 to half the period"
        )
    return Structural(
        (Harmonics(name, var, f"seasonal({period}, harmonics={harmonics})", period, int(harmonics)),)
    )


def cycle(
    period: Any = None, damping: float | None = None, var: float | None = None, name: str = "cycle"
) -> "Structural":
    """A component: a stochastic cycle.

    Parameters
    ----------
    period : float or (low, high), optional
        A fixed period, or bounds between which it is estimated. The default is from 2 steps to the length of
        the data.
    damping : float or (low, high), optional
        The same for the damping, between 0 and 1. With 1 the start is diffuse, otherwise stationary.
    var : float, optional
        The variance of its noise. It is estimated if it is not given.
    name : str, default 'cycle'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components.

    Raises
    ------
    ArgumentError
        If the period or the damping is not valid.

    See Also
    --------
    seasonal : A pattern of a known period.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.cycle(period=(18, 96)))
    level + cycle
    """
    checked_variance("cycle", var)
    if damping is not None and not 0 < damping <= 1:
        raise ArgumentError(f"cycle(damping={damping!r}): wanted a number above 0 and at most 1, or None")
    if period is not None and not (
        period > 0 if numpy.isscalar(period) else len(period) == 2 and 0 < period[0] < period[1]
    ):
        raise ArgumentError(
            f"cycle(period={period!r}): wanted a positive number, or (low, high) with 0 < low < high"
        )
    return Structural((Cycle(name, var, "cycle", period, damping),))


def ar(order: int, var: float | None = None, name: str = "ar") -> "Structural":
    """A component: a stationary autoregression about 0.

    Parameters
    ----------
    order : int
        The number of lags.
    var : float, optional
        The variance of its noise. It is estimated if it is not given.
    name : str, default 'ar'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components.

    Raises
    ------
    ArgumentError
        If `order` is not a positive integer.

    See Also
    --------
    sarimax : ARIMA models.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.ar(2))
    level + ar(2)
    """
    checked_variance("ar", var)
    if not (isinstance(order, (int, numpy.integer)) and order >= 1):
        raise ArgumentError(f"ar({order!r}): wanted a whole number, at least 1")
    return Structural((AutoregressiveComponent(name, var, f"ar({order})", int(order)),))


def regression(X: Any, varying: bool = False, var: float | None = None, name: str = "beta") -> "Structural":
    """A component: regressors with coefficients.

    Parameters
    ----------
    X : array of shape (n,) or (n, k), Series or DataFrame
        The regressors.
    varying : bool, default False
        Whether the coefficients are random walks from a diffuse start. Otherwise they are parameters.
    var : float, optional
        The variance of the random walks. They are estimated if it is not given. With ``varying=True, var=0``
        the coefficients are constants that the filter estimates.
    name : str, default 'beta'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components.

    Raises
    ------
    ShapeError
        If X is not (n,) or (n, k).
    DataError
        If X is not finite.

    See Also
    --------
    level : The level.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.regression(np.arange(10.0)))
    level + regression(x1)
    """
    checked_variance("regression", var)
    values, columns = checked_regressors("regression", X)
    return Structural(
        (
            RegressionComponent(
                name,
                var,
                f"regression({', '.join(columns)})",
                values,
                columns,
                bool(varying),
                getattr(X, "index", None),
            ),
        )
    )


def noise(var: float | None = None, name: str = "irregular") -> "Structural":
    """A component: the noise of the observations, which every sum has.

    Parameters
    ----------
    var : float, optional
        Its variance. It is estimated if it is not given. 0 removes the noise.
    name : str, default 'irregular'
        The name in parameters and plots.

    Returns
    -------
    Structural
        A sum of components.

    Raises
    ------
    ArgumentError
        If `var` is negative.

    See Also
    --------
    level : The level.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(ss.level() + ss.noise(var=0))
    level + noise
    """
    checked_variance("noise", var)
    return Structural((Noise(name, var, "noise"),))


def checked_regressors(call: str, X: Any) -> tuple[numpy.ndarray, tuple[str, ...]]:
    """Regressors (n, k) on the host, and their names."""
    try:
        values = numpy.asarray(X.to_numpy(dtype=float) if hasattr(X, "to_numpy") else to_host(X), dtype=float)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{call}: X is a {type(X).__name__} that does not hold real numbers alone: {error}"
        ) from error
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.size == 0:
        raise ShapeError(f"{call}: X has shape {numpy.shape(X)}; wanted (n,) or (n, k), time first")
    for t, i in numpy.argwhere(~numpy.isfinite(values))[:1]:
        raise DataError(f"{call}: X[{t}, {i}] is {values[t, i]}; regressors must be known at every step")
    columns = getattr(X, "columns", None)
    if columns is None and getattr(X, "name", None) is not None:
        columns = [X.name]
    return values, tuple(map(str, columns)) if columns is not None else _numbered(values.shape[1])


def _numbered(k: int) -> tuple[str, ...]:
    return tuple([f"x{i + 1}" for i in range(k)])


@dataclass(frozen=True)
class Structural:
    """A sum of components, for `fit`. The operator + adds sums.

    See Also
    --------
    level, trend, seasonal, cycle, ar, regression, noise : The components.
    """

    parts: tuple[ModelComponent, ...]

    def __add__(self, other: Any) -> "Structural":
        if not isinstance(other, Structural):
            raise ArgumentError(
                f"{self} + a {type(other).__name__}: wanted another part of the model, as ss.seasonal(12)"
            )
        return Structural(self.parts + other.parts)

    __radd__ = __add__

    @property
    def title(self) -> str:
        return " + ".join(part.title for part in self.parts)

    def __str__(self) -> str:
        return self.title

    def problem(
        self,
        data: Observations,
        start: Any = None,
        constraints: Any = None,
        joseph: bool = False,
        prior: Any = None,
        fixed: Mapping[str, Any] | None = None,
        ranked: bool = True,
    ) -> FitProblem:
        """What `fit` maximises for these data. If `ranked`, the best of its starts comes first, and the
        levels are checked, which takes longer than the rest."""
        if data.width != 1:
            raise ShapeError(f"fit: {self} is a model of one series, and y has {data.width}")
        parts = self._completed(data)
        whole = AssembledModel(parts, data.xp)
        blocks = whole.blocks(_sample(parts, data))
        _require_identified(self, whole, blocks, data)
        if ranked:
            _require_one_level(self, whole, blocks, data)
        if not blocks:
            raise ArgumentError(
                f"fit: every variance of {self} is given, so that there is nothing to estimate"
            )
        starts = [start]
        if not start:
            starts = _starts(whole, {name: block.start for name, block in blocks.items()})
            starts = _ranked(starts, whole, data, joseph) if ranked else starts
        parameters = parameters_of(str(self), blocks, starts[0], constraints, fixed)
        others = tuple([parameters.start_at(x) for x in starts[1:]])
        return replace(whole.on(data, parameters, joseph, prior), others=others)

    def _completed(self, data: Observations) -> tuple[ModelComponent, ...]:
        """The parts with what they imply: noise first, a level under a slope, a range for the period of a
        cycle, names that differ."""
        kinds = {kind: [p for p in self.parts if isinstance(p, kind)] for kind in (Noise, Level, Trend)}
        for found in kinds.values():
            if len(found) > 1:
                raise ArgumentError(
                    f"{self}: two parts of one kind ({found[0].title}) cannot be told apart; write one"
                )
        parts = [*(kinds[Noise] or [Noise("irregular", None, "noise")])]
        if kinds[Level] or kinds[Trend]:
            base = (kinds[Level] or [Level("level", 0.0, "level")])[0]
            parts.append(replace(base, slope=kinds[Trend][0]) if kinds[Trend] else base)
        parts += [p for p in self.parts if not isinstance(p, (Noise, Level, Trend))]
        names = [p.name for p in parts]
        for i, p in enumerate(parts):
            if names.count(p.name) > 1:
                parts[i] = p = replace(p, name=f"{p.name}{names[: i + 1].count(p.name)}")
            if isinstance(p, Cycle) and p.period is None:
                parts[i] = replace(p, period=(2.0, float(max(data.steps, 3))))
            if isinstance(p, RegressionComponent) and len(p.X) != data.steps:
                raise ShapeError(
                    f"fit: regression has {len(p.X)} rows and y has {data.steps}; wanted one for each step"
                )
            if isinstance(p, RegressionComponent):
                data.labels.require_same_dates("fit: regression", p.index)
        return tuple(parts)


def _require_identified(
    model: Structural,
    whole: "AssembledModel",
    blocks: Mapping[str, ParameterBlock],
    data: Observations,
) -> None:
    """Raise `DataError` where the data cannot tell parameters or states apart, whatever they say."""
    parts = whole.terms
    levels = [p for p in parts if isinstance(p, Level)]
    t = numpy.arange(float(data.steps))[:, None]
    columns = [t**k for k in range(2 if levels and levels[0].slope else 1 if levels else 0)]
    regressors = [p.X for p in parts if isinstance(p, RegressionComponent)]
    if regressors:
        names = [name for p in parts if isinstance(p, RegressionComponent) for name in p.columns]
        require_rank(
            "fit", numpy.hstack([*columns, *regressors]), data.rows, names, "level" if columns else ""
        )
    plain = {name: numpy.asarray(block.start, float) for name, block in blocks.items()}
    diffuse = sum([len(s.T) for s in (p.states(plain) for p in _with_states(parts)) if s.cov is None])
    count = sum([numpy.size(block.start) for block in blocks.values()])
    if data.count < diffuse + count:
        values = "value is" if data.count == 1 else "values are"
        raise DataError(
            f"fit: {data.count} observed {values} too few for {model}: {diffuse} diffuse states and {count} "
            f"parameters"
        )


def _require_one_level(
    model: Structural, whole: "AssembledModel", blocks: Mapping[str, ParameterBlock], data: Observations
) -> None:
    """Raise `DataError` if another component has a level or a slope too, of which only the sum is seen."""
    if not (whole.parts and isinstance(whole.parts[0], Level)):
        return
    built = whole({name: data.xp.asarray(block.start, float)[()] for name, block in blocks.items()})
    for seen in (data, Observations(numpy.zeros(data.steps))):  # gaps may hide a state, and do no harm
        start = start_of(system(built, seen), seen, placed=False)
        hidden = start.columns[:, start.rank :]
        if not (abs(hidden[: 2 if whole.parts[0].slope else 1]) > 0.1).any():
            return
    raise DataError(
        f"fit: {model}: observations depend on these states only through a sum of them: "
        f"{start.named(hidden)}; leave out the level, or the component that has one too"
    )


def _with_states(parts: tuple[ModelComponent, ...]) -> list[Any]:
    return [
        p
        for p in parts
        if not isinstance(p, Noise) and not (isinstance(p, RegressionComponent) and not p.varying)
    ]


def require_rank(
    call: str, X: numpy.ndarray, rows: list[list[int]], names: Sequence[str], other: str
) -> None:
    """Raise `DataError` if the columns of X (n, k) depend on each other at the steps with data.

    The last of them are the regressors with these names."""
    seen = X[[bool(elements) for elements in rows]]
    size = numpy.linalg.norm(seen, axis=0)
    seen = seen / numpy.where(size > 0, size, 1.0)
    if seen.size and (not size.all() or numpy.linalg.matrix_rank(seen) < min(seen.shape)):
        ranks = [numpy.linalg.matrix_rank(seen[:, : k + 1]) for k in range(seen.shape[1])]
        added = numpy.diff(ranks, prepend=0)[-len(names) :]
        found = ", ".join([name for name, more in zip(names, added, strict=True) if not more])
        beside = f", or belongs to the {other}" if other else ""
        raise DataError(
            f"{call}: regressors are collinear: where there are data, {found} is a sum of those before, or "
            f"0{beside}; leave it out"
        )


def _sample(parts: tuple[ModelComponent, ...], data: Observations) -> Sample:
    y = to_host(value(data.raw))[:, 0]
    s2 = float(change_variances(parts, y[None])[0])
    if not s2 > 0:
        what = "there is 1 observed value" if data.count == 1 else "all observations are equal"
        raise DataError(f"fit: {what}; variances cannot be estimated")
    return Sample(y, s2)


def change_variances(parts: tuple[ModelComponent, ...], Y: numpy.ndarray) -> numpy.ndarray:
    """Return the variance of the changes of each series (k, n), without a seasonal pattern, or else of its
    values."""
    period = round(max([p.period for p in parts if isinstance(p, (Seasonal, Harmonics))], default=0))
    pattern = 0 < period < Y.shape[1] - 2
    changes = numpy.diff(Y[:, period:] - Y[:, :-period] if pattern else Y)
    found = _variances(changes) / (2 if pattern else 1)
    return numpy.where(found > 0, found, _variances(Y))


def _variances(X: numpy.ndarray) -> numpy.ndarray:
    """Return the variance of the numbers of each row, 0 for fewer than two."""
    seen = numpy.isfinite(X)
    count = numpy.maximum(seen.sum(axis=1), 1)
    mean = numpy.where(seen, X, 0.0).sum(axis=1) / count
    return (numpy.where(seen, X - mean[:, None], 0.0) ** 2).sum(axis=1) / count


def _starts(whole: "AssembledModel", plain: dict[str, Any]) -> list[dict[str, Any]]:
    """A few divisions of the variance."""
    found = []
    for noise_share, level_share, other in SHARES:
        share = {Noise: noise_share, Level: level_share}
        factors = {part.variance: share.get(type(part), other) for part in (whole.noise, *whole.parts)}
        found.append({name: x * factors.get(name, 1.0) for name, x in plain.items()})
    return found


def _ranked(
    starts: list[dict[str, Any]], whole: "AssembledModel", data: Observations, joseph: bool
) -> list[dict[str, Any]]:
    """The starts with a likelihood, or else the first; the one with the highest comes first."""
    placed = [{name: data.xp.asarray(x)[()] for name, x in trial.items()} for trial in starts]
    found = [(float(to_host(loglik(whole(p), data, joseph))), x) for p, x in zip(placed, starts, strict=True)]
    found = [pair for pair in found if numpy.isfinite(pair[0])] or found[:1]
    return [trial for _, trial in sorted(found, key=lambda pair: -pair[0])]


class AssembledModel(LibraryBound):
    """The parts as one state space model: called with parameters, it is what `fit` builds models with."""

    remarks = ()
    stored = ("terms", "xp")

    def __init__(self, terms: tuple[ModelComponent, ...], xp: ModuleType):
        self.terms, self.xp = terms, xp
        self.noise, *self.parts = terms
        self.offsets = [p for p in self.parts if isinstance(p, RegressionComponent) and not p.varying]
        self.moving = _with_states(terms)
        titles = [
            title
            for p in self.parts
            for title in ([p.title, p.slope.title] if isinstance(p, Level) and p.slope else [p.title])
        ]
        self.title = " + ".join(titles) or "noise"

    def blocks(self, sample: Sample) -> dict[str, ParameterBlock]:
        return {
            name: block for part in (self.noise, *self.parts) for name, block in part.blocks(sample).items()
        }

    def __call__(self, p: Mapping[str, Any]) -> LinearGaussian:
        states, xp = self._states(p), self.xp
        known = [s.cov is not None for s in states]
        mark = numpy.repeat([not k for k in known], [len(s.T) for s in states])
        cov = (
            self._diagonal([numpy.zeros(s.T.shape) if s.cov is None else s.cov for s in states])
            if any(known)
            else 0.0
        )
        variances = [v for s in states for v in s.variances]
        R = scipy.linalg.block_diag(*[s.R for s in states])
        live = [i for i, v in enumerate(variances) if not is_known_number(v, 0.0)] or [0]
        return LinearGaussian(
            self._diagonal([s.T for s in states]),
            xp.asarray(_loadings([s.z for s in states])),
            np.stack([variances[i] for i in live]),
            self.noise.variance_of(p),
            xp.asarray(R[:, live]),
            observation_offset=self._offset(p),
            start=Start(0.0, cov, True if mark.all() else mark.tolist()),
            state_names=self._names(states),
        )

    def _names(self, states: list[ComponentStates]) -> list[str]:
        """Of the states; one that stays 0 has none."""
        found = [
            name for part, s in zip(self.moving, states, strict=False) for name in part.state_names(len(s.T))
        ]
        return found + [""] * (len(states) - len(self.moving))

    def _states(self, p: Mapping[str, Any]) -> list[ComponentStates]:
        """Those of the parts; where nothing moves, one more that stays 0."""
        still = ComponentStates(numpy.zeros((1, 1)), numpy.zeros(1), numpy.eye(1), [0.0], numpy.zeros((1, 1)))
        found = [part.states(p) for part in self.moving]
        return found if any([s.variances for s in found]) else [*found, still]

    def _offset(self, p: Mapping[str, Any]) -> Any:
        """What regressors with constant coefficients add."""
        if not self.offsets:
            return 0.0
        X = numpy.hstack([part.X for part in self.offsets])
        return RegressionOffset(X[:, None], np.concatenate([p[part.name] for part in self.offsets]))

    def _diagonal(self, blocks: list[Any]) -> Any:
        """Matrices, tracked or plain, along the diagonal of one; a plain one if all are."""
        if all([type(x) is numpy.ndarray for x in blocks]):
            return self.xp.asarray(scipy.linalg.block_diag(*blocks))
        return block_diag(*[self.xp.asarray(x) if type(x) is numpy.ndarray else x for x in blocks])

    def on(self, data: Observations, parameters: Parameters, joseph: bool, prior: Any) -> FitProblem:
        """The problem of these data."""
        return FitProblem(self, data, parameters, joseph, prior, described=self)

    def extended(self, steps: int, exog: Any, keep: int | None = None) -> "AssembledModel":
        """The model with regressors for `steps` more, after the first `keep` (default: all)."""
        wanted = [p for p in self.parts if isinstance(p, RegressionComponent)]
        new = future_regressors(exog, [p.columns for p in wanted], steps)
        longer = {
            id(p): replace(p, X=numpy.concatenate([p.X[:keep], X])) for p, X in zip(wanted, new, strict=True)
        }
        return AssembledModel((self.noise, *(longer.get(id(p), p) for p in self.parts)), self.xp)

    def components(self, fit: Any) -> dict[str, tuple[numpy.ndarray, numpy.ndarray]]:
        """Means and variances (n,) of what the parts add, given all data."""
        mean, cov = to_host(fit.smoothed.mean), to_host(fit.smoothed.cov)
        params = {name: to_host(x) for name, x in fit.params.items()}
        found, at = {}, 0
        for part in self.moving:
            s = part.states(params)
            inside = slice(at, at + len(s.T))
            at = inside.stop
            for name, z in part.readings(s):
                z = numpy.broadcast_to(
                    z[fit.problem.past :] if numpy.ndim(z) == 2 else z, (len(mean), len(s.T))
                )
                found[name] = (
                    (z * mean[:, inside]).sum(1),
                    numpy.einsum("ti,tij,tj->t", z, cov[:, inside, inside], z),
                )
        for part in self.offsets:
            places = [i for i, name in enumerate(fit.names) if name in part.labels]
            X = part.X[fit.problem.past :]
            free = X[:, [part.labels.index(fit.names[i]) for i in places]]
            found[part.name] = (
                X @ params[part.name],
                numpy.einsum("ti,ij,tj->t", free, fit.covariance[numpy.ix_(places, places)], free),
            )
        if self.noise.var != 0:
            left = to_host(value(fit.data.raw))[:, 0] - to_host(fit.smoothed.signal)[:, 0]
            found[self.noise.name] = (
                left,
                numpy.where(numpy.isnan(left), numpy.nan, to_host(fit.smoothed.signal_cov)[:, 0, 0]),
            )
        return found


def future_regressors(exog: Any, columns: list[tuple[str, ...]], steps: int) -> list[numpy.ndarray]:
    """The regressors of the steps ahead, part by part; `columns`: their names."""
    widths = [len(names) for names in columns]
    if not widths and exog is None:
        return []
    if not widths:
        raise ArgumentError("exog is given, and the model has no regressors")
    if exog is None:
        named = ", ".join([name for part in columns for name in part])
        raise ArgumentError(
            f"the model has regressors; give their values at the steps ahead, exog=X of {steps} rows: {named}"
        )
    X, names = checked_regressors("exog", exog)
    wanted = tuple([name for part in columns for name in part])
    if hasattr(exog, "columns") and not any(part == _numbered(len(part)) for part in columns):
        absent = [name for name in wanted if name not in names]
        if absent:
            raise DataError(
                f"exog has the columns {', '.join(names)}, and the regressors are {', '.join(wanted)}: no "
                f"{', '.join(absent)}"
            )
        X = X[:, [names.index(name) for name in wanted]]
    X = X.T if X.shape == (sum(widths), 1) and steps == 1 else X
    if X.shape != (steps, sum(widths)):
        raise ShapeError(f"exog has shape {X.shape}; wanted ({steps}, {sum(widths)}), a row for each step")
    return numpy.split(X, numpy.cumsum(widths)[:-1], axis=1)


def _loadings(z: list[numpy.ndarray]) -> numpy.ndarray:
    """(m,), or (n, 1, m) if one of them varies."""
    n = next((len(x) for x in z if x.ndim == 2), None)
    if n is None:
        return numpy.concatenate(z)
    return numpy.concatenate([numpy.broadcast_to(x, (n, x.shape[-1])) for x in z], axis=1)[:, None]
