"""The objective of a fit, and the point where its search stops."""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy import ndarray

from .. import numpy as np
from .._core.errors import ArgumentError, Attempt
from ._model import LinearGaussian, Start, model_after
from ._objective import MissingValues, MissingValuesObjective, ModelObjective
from ._observations import Observations
from ._parameters import Parameters


class Prior:
    """The logarithm of a prior density of the parameters.

    It is a function of all parameters, or a dict of functions or distributions such as
    `tapegrad.stats.norm(0, 1)` for some of them. Densities of an array are multiplied."""

    def __init__(self, given):
        self.given = given
        parts = given.values() if isinstance(given, Mapping) else [given]
        for part in parts:
            if not callable(part) and not hasattr(part, "logpdf"):
                raise ArgumentError(
                    f"prior: {part!r}; wanted a function to a log density, or a dict of names to such or to "
                    f"distributions"
                )

    def __call__(self, params):
        if not isinstance(self.given, Mapping):
            return self.given(params)
        for name in self.given:
            if not isinstance(params, Mapping) or name not in params:
                raise ArgumentError(f"prior: {name!r} is not a parameter; the model has {', '.join(params)}")
        return sum(
            [
                np.sum((g.logpdf if hasattr(g, "logpdf") else g)(params[name]))
                for name, g in self.given.items()
            ]
        )


class LostFunction:
    """Replaces a function that could not be pickled."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, *_):
        raise ArgumentError(
            f"this fit was pickled without its {self.name}, which pickle cannot find by name; define it by "
            f"def at the top level of a module"
        )


@dataclass(frozen=True)
class FitProblem:
    """A log density of parameters: a model built from them, data, and perhaps a prior.

    `described` describes a library model. `offset` is added to the log-likelihood. The first `used_up`
    observations only begin differences and do not count. `quick` is the same function in a cheaper form, if
    any. `others` are starts (free parameters) for a search that fails from the first. `name` identifies
    everything that `build` depends on, except for the parameters and the data; later processes find the
    kernel on disk under it. The first `past` steps of `build` lie before the data, which then start from `begin`. All covariances are
    proportional to the parameter `scale`, and means are linear in `linear`, if these are given. Results
    leave the scale out with `without_scale`."""

    build: Callable[[Any], LinearGaussian]
    data: Observations
    parameters: Parameters
    joseph: bool = False
    prior: Callable[[Any], Any] | None = None
    described: Any = None
    offset: float = 0.0
    used_up: int = 0
    quick: "FitProblem | None" = None
    others: tuple[ndarray, ...] = ()
    name: str | None = None
    past: int = 0
    begin: Start | None = None
    scale: str | None = None
    linear: tuple[str, ...] = ()
    without_scale: bool = False
    missing: MissingValues | None = None

    @property
    def concentrated(self) -> bool:
        """Return whether the last parameter is a scale that results leave out."""
        return self.without_scale and self.parameters.names[-1] == self.scale

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("build", "prior"):
            with Attempt() as tried:  # the user's function may hold objects with any error
                pickle.dumps(state[name])
            if tried.failed:
                state[name] = LostFunction(name)
        return state

    def model(self, params, described=None) -> LinearGaussian:
        """Return the model of the data at these parameters, or of data that `described` also covers."""
        model = (described or self.build)(params)
        return model if self.begin is None else model_after(model, self.past, self.begin)

    def ahead(self, steps: int, exog, call: str, dated: bool = True):
        """Return the description that covers the next steps too, None for a function of the user.

        `dated`: the dates of regressors must be those of the steps."""
        if dated:
            self.data.labels.require_next_dates(call, getattr(exog, "index", None), steps)
        if self.described is None:
            if exog is not None:
                raise ArgumentError(
                    "exog is for models of the library; let build return matrices for the steps ahead too"
                )
            return None
        return self.described.extended(steps, exog)

    def on(self, data: Observations, described, u: ndarray) -> "FitProblem":
        """Return the problem of other data, with the start u; `described` is None for a function of the
        user."""
        parameters = self.parameters.moved(u)
        if described is None:
            return replace(self, data=data, parameters=parameters, past=0, begin=None)
        return described.on(data, parameters, self.joseph, self.prior)

    def objective(self) -> ModelObjective:
        """Return minus the log-likelihood and log prior as a function of the free parameters."""
        if self.quick is not None:
            return replace(self.quick, parameters=self.parameters).objective()
        given = self.build, self.data, self.parameters, self.joseph, self.prior, self.offset, self.name
        return (
            ModelObjective(*given) if self.missing is None else MissingValuesObjective(self.missing, *given)
        )

    def scores(self, u: ndarray) -> ndarray:
        """Return the derivatives of the log-likelihood terms with respect to the free parameters, (n, k)."""
        return self.objective().scores(u)


@dataclass(frozen=True, kw_only=True)
class SearchEffort:
    """The counts of a search.

    They are `iterations` of the optimiser, the `newton_steps` after them, and, for both, `evaluations` of
    value and gradient, `hessians` and `products` (Hessian times vector)."""

    method: str
    message: str
    iterations: int
    newton_steps: int
    evaluations: int
    hessians: int
    products: int


@dataclass(frozen=True, kw_only=True)
class Stop(SearchEffort):
    """The point where the search stopped.

    It holds the free parameters u (k,), minus the log-likelihood (and log prior) with its first and second
    derivatives, how the likelihood was computed, and from how many starts there were searches."""

    u: ndarray
    value: float
    gradient: ndarray
    hessian: ndarray
    way: str = ""
    starts: int = 1
