"""Sums of components: the model that they make for a series, its checks and its starting values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy
from numpy import ndarray

from ..._core.errors import ArgumentError, DataError, ShapeError
from .._matrices import system
from .._observations import Observations
from .._parameters import ParameterBlock, parameters_of
from .._problem import FitProblem
from .._regressors import require_rank
from ..filters.augmented import start_of
from .assembled import AssembledModel, with_states
from .components import (
    Cycle,
    Harmonics,
    Level,
    ModelComponent,
    Noise,
    RegressionComponent,
    Sample,
    Seasonal,
    Trend,
)

# Starting shares of the variance of the changes: noise, level, rest.
SHARES = [(1.0, 1.0, 1.0), (2.0, 0.04, 0.04), (0.1, 3.0, 0.2), (1.0, 0.1, 4.0)]


@dataclass(frozen=True)
class Structural:
    """A sum of components, for `fit`. The operator + adds sums.

    See Also
    --------
    level, trend, seasonal, cycle, ar, regression, noise : The components.
    """

    parts: tuple[ModelComponent, ...]

    def __add__(self, other) -> "Structural":
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
        checked: bool = False,
    ) -> FitProblem:
        """What `fit` maximises for these data. The levels are checked, unless they have been, which takes
        longer than the rest."""
        if data.width != 1:
            raise ShapeError(f"fit: {self} is a model of one series, and y has {data.width}")
        parts = self._completed(data)
        whole = AssembledModel(parts, data.xp)
        blocks = whole.blocks(_sample(parts, data))
        _require_identified(self, whole, blocks, data)
        if not checked:
            _require_one_level(self, whole, blocks, data)
        if not blocks:
            raise ArgumentError(
                f"fit: every variance of {self} is given, so that there is nothing to estimate"
            )
        starts = [start]
        if not start:
            starts = _starts(whole, {name: block.start for name, block in blocks.items()})
        parameters = parameters_of(str(self), blocks, starts[0], constraints, fixed)
        others = tuple([parameters.start_at(x) for x in starts[1:]])
        return replace(whole.on(data, parameters, joseph, prior), others=others)

    def _completed(self, data: Observations) -> tuple[ModelComponent, ...]:
        """The parts with what they imply: noise first, a level under a slope, a range for the period of a
        cycle, names that differ."""
        kinds: dict[type, list] = {
            kind: [p for p in self.parts if isinstance(p, kind)] for kind in (Noise, Level, Trend)
        }
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
    diffuse = sum([len(s.T) for s in (p.states(plain) for p in with_states(parts)) if s.cov is None])
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


def _sample(parts: tuple[ModelComponent, ...], data: Observations) -> Sample:
    y = data.host[:, 0]
    s2 = float(change_variances(parts, y[None])[0])
    if not s2 > 0:
        what = "there is 1 observed value" if data.count == 1 else "all observations are equal"
        raise DataError(f"fit: {what}; variances cannot be estimated")
    return Sample(y, s2)


def change_variances(parts: tuple[ModelComponent, ...], Y: ndarray) -> ndarray:
    """Return the variance of the changes of each series (k, n), without a seasonal pattern, or else of its
    values."""
    period = round(max([p.period for p in parts if isinstance(p, (Seasonal, Harmonics))], default=0))
    pattern = 0 < period < Y.shape[1] - 2
    changes = numpy.diff(Y[:, period:] - Y[:, :-period] if pattern else Y)
    found = _variances(changes) / (2 if pattern else 1)
    still = ~(found > 0)
    if still.any():
        found[still] = _variances(Y[still])
    return found


def _variances(X: ndarray) -> ndarray:
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
