"""The state space model that the components of a sum make together."""

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import scipy.linalg
from numpy import ndarray

from ... import numpy as np
from ..._core.arrays import to_host
from .._labels import LibraryBound
from .._model import LinearGaussian, RegressionOffset, Start
from .._observations import Observations
from .._parameters import ParameterBlock, Parameters
from .._problem import FitProblem
from .._regressors import future_regressors
from ..filters.arrays import is_known_number
from .components import (
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
)


def with_states(parts: tuple[ModelComponent, ...]) -> list:
    return [
        p
        for p in parts
        if not isinstance(p, Noise) and not (isinstance(p, RegressionComponent) and not p.varying)
    ]


def _parts_of(kind: type, fit) -> list:
    """Return the filtered and smoothed components of a kind with their variances, as statsmodels does."""
    smoothed, filtered = fit.components(), fit.components(filtered=True)
    return [
        SimpleNamespace(
            smoothed=smoothed[name].mean,
            smoothed_cov=smoothed[name].standard_errors ** 2,
            filtered=filtered[name].mean,
            filtered_cov=filtered[name].standard_errors ** 2,
        )
        for part in fit.problem.described.moving
        for name in ([part.slope.name] if kind is Trend and isinstance(part, Level) and part.slope else [])
        + [part.name] * isinstance(part, kind)
    ]


def _part_of(kind: type):
    """Return the function from a fit to its component of a kind, or None."""
    return lambda fit: next(iter(_parts_of(kind, fit)), None)


class AssembledModel(LibraryBound):
    """The parts as one state space model: called with parameters, it is what `fit` builds models with."""

    remarks = ()
    stored = ("terms", "xp")
    result_names = {
        "level": _part_of(Level),
        "trend": _part_of(Trend),
        "seasonal": _part_of(Seasonal),
        "freq_seasonal": lambda fit: _parts_of(Harmonics, fit),
        "cycle": _part_of(Cycle),
        "autoregressive": _part_of(AutoregressiveComponent),
    }

    def __init__(self, terms: tuple[ModelComponent, ...], xp: ModuleType):
        self.terms, self.xp = terms, xp
        self.noise, *self.parts = terms
        self.offsets = [p for p in self.parts if isinstance(p, RegressionComponent) and not p.varying]
        self.moving = with_states(terms)
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

    def _offset(self, p: Mapping[str, Any]):
        """What regressors with constant coefficients add."""
        if not self.offsets:
            return 0.0
        X = numpy.hstack([part.X for part in self.offsets])
        return RegressionOffset(X[:, None], np.concatenate([p[part.name] for part in self.offsets]))

    def _diagonal(self, blocks: list):
        """Matrices, tracked or plain, along the diagonal of one; a plain one if all are."""
        if all([type(x) is ndarray for x in blocks]):
            return self.xp.asarray(scipy.linalg.block_diag(*blocks))
        size, at, rows = sum([len(x) for x in blocks]), 0, []
        for x in [self.xp.asarray(x) if type(x) is ndarray else x for x in blocks]:
            k = len(x)
            sides = [self.xp.zeros((k, n)) for n in (at, size - at - k)]
            rows.append(np.concatenate([sides[0], x, sides[1]], axis=1))
            at += k
        return np.concatenate(rows, axis=0)

    def on(self, data: Observations, parameters: Parameters, joseph: bool, prior) -> FitProblem:
        """The problem of these data."""
        fixed = not any([isinstance(p, RegressionComponent) for p in self.parts])
        name = f"sum {self.terms}" if fixed else None
        return FitProblem(self, data, parameters, joseph, prior, described=self, name=name)

    def extended(self, steps: int, exog, keep: int | None = None) -> "AssembledModel":
        """The model with regressors for `steps` more, after the first `keep` (default: all)."""
        wanted = [p for p in self.parts if isinstance(p, RegressionComponent)]
        new = future_regressors(exog, [p.columns for p in wanted], steps)
        longer = {
            id(p): replace(p, X=numpy.concatenate([p.X[:keep], X])) for p, X in zip(wanted, new, strict=True)
        }
        return AssembledModel((self.noise, *(longer.get(id(p), p) for p in self.parts)), self.xp)

    def components(
        self, fit, mean: ndarray, cov: ndarray, filtered: bool
    ) -> dict[str, tuple[ndarray, ndarray]]:
        """Means and variances (n,) of what the parts add, from moments of the states."""
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
        if self.noise.var != 0 and not filtered:
            left = fit.data.host[:, 0] - to_host(fit.smoothed.signal)[:, 0]
            found[self.noise.name] = (
                left,
                numpy.where(numpy.isnan(left), numpy.nan, to_host(fit.smoothed.signal_cov)[:, 0, 0]),
            )
        return found


def _loadings(z: list[ndarray]) -> ndarray:
    """(m,), or (n, 1, m) if one of them varies."""
    n = next((len(x) for x in z if x.ndim == 2), None)
    if n is None:
        return numpy.concatenate(z)
    return numpy.concatenate([numpy.broadcast_to(x, (n, x.shape[-1])) for x in z], axis=1)[:, None]
