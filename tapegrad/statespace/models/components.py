"""The components of structural models.

Each component defines its parameters, with starting values from the data, and its part of the state space
model. That part is a set of states with transition T, loading z and noise through R, or an offset of the
observation. Reference: A. C. Harvey, Forecasting, Structural Time Series Models and the Kalman Filter (1989),
chapter 2, and DK section 3.2."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy
from numpy import ndarray

from ... import numpy as np
from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError
from ..._transforms.tape import value
from .._constraints import interval, positive, stationary, unconstrained
from .._parameters import ParameterBlock


@dataclass
class Sample:
    """The data for starting values: y (n,), its seasonal period if any, and the variance s2 of its changes.

    The changes are those from step to step, without a seasonal pattern."""

    y: ndarray
    s2: float


@dataclass
class ComponentStates:
    """The states of a component.

    T is (k, k), z is (k,) or over time (n, k), R is (k, r), with variances of r noises. cov (k, k) is that of
    a known start; it is None for a diffuse one."""

    T: Any
    z: ndarray
    R: ndarray
    variances: list
    cov: Any = None


@dataclass(frozen=True)
class ModelComponent:
    """A component: its `name`, its variance `var` if that is not estimated, and its `title`."""

    name: str
    var: float | None
    title: str

    share = 4.0  # of the variance of the changes over that with which it starts

    def __post_init__(self):
        if self.var is not None and not (
            numpy.ndim(self.var) == 0 and numpy.isfinite(self.var) and self.var >= 0
        ):
            raise ArgumentError(
                f"{self.title.partition('(')[0]}(var={self.var!r}): wanted None, for a variance that is "
                "estimated, or a number that is not negative"
            )

    @property
    def variance(self) -> str:
        return f"sigma2.{self.name}"

    def variance_of(self, p: Mapping[str, Any]):
        return p[self.variance] if self.var is None else float(self.var)

    def variance_block(self, start: float) -> dict[str, ParameterBlock]:
        return {self.variance: ParameterBlock(start, positive())} if self.var is None else {}

    def blocks(self, sample: Sample) -> dict[str, ParameterBlock]:
        """Return the component's parameters, with starting values for a sample."""
        return self.variance_block(sample.s2 / self.share)

    def readings(self, s: ComponentStates) -> list[tuple[str, Any]]:
        """Return what is read from the component's states: names and loadings."""
        return [(self.name, s.z)]

    def state_names(self, k: int) -> list[str]:
        """Return the names of the k states in errors."""
        return [self.name] if k == 1 else [f"{self.name}[{i}]" for i in range(k)]


@dataclass(frozen=True)
class Noise(ModelComponent):
    pass


@dataclass(frozen=True)
class Trend(ModelComponent):
    """The slope of a level: nu[t+1] = nu[t] + zeta[t]."""

    share = 100.0


@dataclass(frozen=True)
class Level(ModelComponent):
    """mu[t+1] = mu[t] + nu[t] + eta[t], with or without a slope nu (DK 3.2.1)."""

    slope: Trend | None = None

    def blocks(self, sample: Sample) -> dict[str, ParameterBlock]:
        return super().blocks(sample) | (self.slope.blocks(sample) if self.slope else {})

    def states(self, p: Mapping[str, Any]) -> ComponentStates:
        if self.slope is None:
            return ComponentStates(numpy.eye(1), numpy.ones(1), numpy.eye(1), [self.variance_of(p)])
        variances = [self.variance_of(p), self.slope.variance_of(p)]
        return ComponentStates(
            numpy.array([[1.0, 1.0], [0.0, 1.0]]), numpy.array([1.0, 0.0]), numpy.eye(2), variances
        )

    def state_names(self, k: int) -> list[str]:
        return [self.name, self.slope.name] if self.slope else [self.name]

    def readings(self, s: ComponentStates) -> list[tuple[str, Any]]:
        return (
            [(part.name, row) for part, row in zip([self, self.slope], numpy.eye(2), strict=True)]
            if self.slope
            else [(self.name, s.z)]
        )


@dataclass(frozen=True)
class Seasonal(ModelComponent):
    """The effects of a period sum to noise (DK 3.2.2)."""

    period: int

    share = 50.0

    def states(self, p: Mapping[str, Any]) -> ComponentStates:
        k = self.period - 1
        T = numpy.eye(k, k=-1)
        T[0] = -1.0
        first = numpy.eye(k)[0]
        return ComponentStates(T, first, first[:, None], [self.variance_of(p)])


@dataclass(frozen=True)
class Harmonics(ModelComponent):
    """A seasonal pattern of waves at the harmonics of the period, each a random rotation (DK 3.2.2); one
    variance."""

    period: float
    count: int

    share = 200.0

    def states(self, p: Mapping[str, Any]) -> ComponentStates:
        sizes = [1 if 2 * j == self.period else 2 for j in range(1, self.count + 1)]
        k, at = sum(sizes), 0
        T, z = numpy.zeros((k, k)), numpy.zeros(k)
        for j, size in enumerate(sizes, start=1):
            angle = 2 * numpy.pi * j / self.period
            turn = numpy.array([[numpy.cos(angle), numpy.sin(angle)], [-numpy.sin(angle), numpy.cos(angle)]])
            T[at : at + size, at : at + size] = turn[:size, :size]
            z[at] = 1.0
            at += size
        return ComponentStates(T, z, numpy.eye(k), [self.variance_of(p)] * k)

    def state_names(self, k: int) -> list[str]:
        return [f"{self.name} (wave {i // 2 + 1})" for i in range(k)]


@dataclass(frozen=True)
class Cycle(ModelComponent):
    """psi[t+1] = damping * rotation by 2 pi / period of psi[t], plus noise.

    The start is stationary, or diffuse without damping."""

    period: Any
    damping: float | None

    share = 8.0

    def blocks(self, sample: Sample) -> dict[str, ParameterBlock]:
        found = super().blocks(sample)
        if not numpy.isscalar(self.period):
            low, high = self.period
            found[f"period.{self.name}"] = ParameterBlock(
                _main_period(sample.y, low, high), interval(low, high)
            )
        if self.damping is None:
            found[f"damping.{self.name}"] = ParameterBlock(0.9, interval(0.0, 1.0))
        return found

    def states(self, p: Mapping[str, Any]) -> ComponentStates:
        period: Any = self.period if numpy.isscalar(self.period) else p[f"period.{self.name}"]
        rho = p[f"damping.{self.name}"] if self.damping is None else float(self.damping)
        var, angle = self.variance_of(p), 2 * numpy.pi / period
        c, s = rho * np.cos(angle), rho * np.sin(angle)
        T = np.stack([np.stack([c, s]), np.stack([-s, c])])
        known = not (self.damping is not None and self.damping >= 1)
        scale: Any = var / (1.0 - rho * rho) if known else None
        cov = np.stack([np.stack([scale, 0.0 * scale]), np.stack([0.0 * scale, scale])]) if known else None
        return ComponentStates(T, numpy.array([1.0, 0.0]), numpy.eye(2), [var, var], cov)


@dataclass(frozen=True)
class AutoregressiveComponent(ModelComponent):
    """A stationary autoregression about 0."""

    order: int

    def blocks(self, sample: Sample) -> dict[str, ParameterBlock]:
        start = numpy.zeros(self.order)
        start[0] = 0.5
        labels = [f"{self.name}.L{i + 1}" for i in range(self.order)]
        return {self.name: ParameterBlock(start, stationary(), labels), **super().blocks(sample)}

    def states(self, p: Mapping[str, Any]) -> ComponentStates:
        k, phi, var = self.order, p[self.name], self.variance_of(p)
        T = np.concatenate([phi[None], _beside(phi, numpy.eye(k - 1, k))])
        first = numpy.eye(k)[0]
        return ComponentStates(T, first, first[:, None], [var], var * autocovariances(phi))


@dataclass(frozen=True)
class RegressionComponent(ModelComponent):
    """X times coefficients: constant ones are parameters, varying ones are random walks with a diffuse
    start."""

    X: ndarray = field(repr=False, compare=False)
    columns: tuple[str, ...]
    varying: bool
    index: Any = field(default=None, repr=False, compare=False)

    @property
    def labels(self) -> list[str]:
        return [f"{self.name}.{column}" for column in self.columns]

    def blocks(self, sample: Sample) -> dict[str, ParameterBlock]:
        if not self.varying:
            seen = ~numpy.isnan(sample.y)
            design = numpy.column_stack([numpy.ones(len(sample.y)), self.X])[seen]
            start = numpy.linalg.lstsq(design, sample.y[seen], rcond=None)[0][1:]
            return {self.name: ParameterBlock(start, unconstrained(), self.labels)}
        size = numpy.maximum(numpy.mean(self.X**2, axis=0), 1e-300)
        labels = [f"sigma2.{label}" for label in self.labels]
        block = ParameterBlock(sample.s2 / (100 * size), positive(), labels)
        return {self.variance: block} if self.var is None else {}

    def states(self, p: Mapping[str, Any]) -> ComponentStates:
        k = self.X.shape[1]
        variances = [float(self.var)] * k if self.var is not None else [p[self.variance][i] for i in range(k)]
        return ComponentStates(numpy.eye(k), self.X, numpy.eye(k), variances)

    def state_names(self, k: int) -> list[str]:
        return self.labels

    def readings(self, s: ComponentStates) -> list[tuple[str, Any]]:
        return [(self.name, s.z), *zip(self.labels, numpy.eye(len(self.labels)), strict=True)]


def autocovariances(phi):
    """Return the covariance (k, k) of k successive values of a stationary autoregression with unit noise.

    It is the inverse of A'A - B'B with the coefficients on triangles (I. Gohberg and A. Semencul 1972). No
    equations in k^2 unknowns need to be solved."""
    k = phi.shape[0]
    a = np.concatenate([_beside(phi, numpy.ones(1)), -phi])
    lower = numpy.subtract.outer(numpy.arange(k), numpy.arange(k))
    inside = _beside(phi, numpy.asarray(lower >= 0, float))
    A = a[numpy.where(lower >= 0, lower, 0)] * inside
    B = a[numpy.where(lower >= 0, k - lower, 0)] * inside
    inverse = A @ A.T - B @ B.T
    return np.linalg.inv((inverse + inverse.T) * 0.5)


def _beside(x, constant: ndarray):
    """Return a constant in the array library of x."""
    return xp_of(value(x)).asarray(constant)


def _main_period(y: ndarray, low: float, high: float) -> float:
    """Return the period between low and high of the largest wave in the detrended y."""
    x = numpy.where(numpy.isnan(y), numpy.nanmean(y), y)
    t = numpy.arange(x.size)
    x = x - numpy.polyval(numpy.polyfit(t, x, 1), t)
    periods = numpy.geomspace(low, high, 202)[1:-1]
    size = abs(numpy.exp(-2j * numpy.pi * t / periods[:, None]) @ x)
    return float(periods[int(numpy.argmax(size))])
