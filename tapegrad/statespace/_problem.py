"""What a fit maximises, and where the search came to rest."""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy

from .. import numpy as np
from .._core.errors import ArgumentError
from ._model import LinearGaussian, Observations
from ._objective import ModelObjective
from ._parameters import Parameters


class Prior:
    """The logarithm of a prior density of the parameters: a function of all of them, or a dict of functions, or of
    distributions as `tapegrad.stats.norm(0, 1)`, of some; densities of an array are multiplied."""

    def __init__(self, given: Any):
        self.given = given
        parts = given.values() if isinstance(given, Mapping) else [given]
        for part in parts:
            if not callable(part) and not hasattr(part, "logpdf"):
                raise ArgumentError(f"prior: {part!r}; wanted a function to a log density, or a dict of names to such or to distributions")

    def __call__(self, params: Any) -> Any:
        if not isinstance(self.given, Mapping):
            return self.given(params)
        for name in self.given:
            if not isinstance(params, Mapping) or name not in params:
                raise ArgumentError(f"prior: {name!r} is not a parameter; the model has {', '.join(params)}")
        return sum([np.sum(getattr(g, "logpdf", g)(params[name])) for name, g in self.given.items()])


class Left:
    """In the place of a function that could not be pickled."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, *_: Any) -> Any:
        raise ArgumentError(
            f"this fit was pickled without its {self.name}, which pickle cannot find by name; define it by def at the top level of a module"
        )


@dataclass(frozen=True)
class Problem:
    """A model built from parameters, data, and perhaps a prior: a function of the parameters to a log density.  `described`
    is the model in words and parts, where it is one of the library's; `offset` is added to the log-likelihood, and the `used_up` first
    observations do not count, for they only begin differences.  `quick` is the same function in a cheaper form, where there is one;
    `others` are starts for a search that the first leads nowhere.  `name` says all that `build` depends on but the parameters and the
    numbers of the data: a kernel made of it is found on disk in a later process."""

    build: Callable[[Any], LinearGaussian]
    data: Observations
    parameters: Parameters
    joseph: bool = False
    prior: Callable[[Any], Any] | None = None
    described: Any = None
    offset: float = 0.0
    used_up: int = 0
    quick: "Problem | None" = None
    others: tuple[Parameters, ...] = ()
    name: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("build", "prior"):
            try:
                pickle.dumps(state[name])
            except Exception:  # by what a user's function holds, anything may go wrong
                state[name] = Left(name)
        return state

    def objective(self) -> ModelObjective:
        """Minus the log-likelihood, less the logarithm of the prior, of the free parameters."""
        if self.quick is not None:
            return self.quick.objective()
        return ModelObjective(self.build, self.data, self.parameters, self.joseph, self.prior, self.offset, self.name)

    def scores(self, u: numpy.ndarray) -> numpy.ndarray:
        """The derivatives of the log-likelihood terms of each step by the free parameters, (n, k)."""
        return self.objective().scores(u)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a search took: `iterations` of the optimiser, `newton_steps` that followed; `evaluations` (of value and gradient), `hessians`,
    `products` (Hessian times vector) count both."""

    method: str
    message: str
    iterations: int
    newton_steps: int
    evaluations: int
    hessians: int
    products: int


@dataclass(frozen=True, kw_only=True)
class Stop(Taken):
    """Where the search came to rest: the free parameters u (k,), minus the log-likelihood (and prior) with its gradient and
    its second derivatives there, and how the likelihood was computed."""

    u: numpy.ndarray
    value: float
    gradient: numpy.ndarray
    hessian: numpy.ndarray
    way: str = ""
