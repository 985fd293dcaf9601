"""A model of the library together with its data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._core.errors import ArgumentError
from ._observations import Observations
from ._problem import Prior
from .results.names import OtherNames
from .results.result import FitResult, maximise

# Arguments of statsmodels' `fit`, and its models' attributes: what to write here.
REPLACED = {
    "start_params": "start={name: value}",
    "maxiter": "options={'maxiter': n}",
    "cov_type": "fit.cov(kind) and fit.summary(cov=kind), 'exact', 'opg' or 'robust'",
    "fit_constrained": "fit(fixed={name: value})",
    "fix_params": "fit(fixed={name: value})",
    "loglike": "ss.loglik(model.model(params), model.data)",
    "filter": "ss.filter(model.model(params), model.data), or fit.apply(y)",
    "smooth": "ss.smooth(model.model(params), model.data), or fit.apply(y)",
    "simulate": "ss.simulate(model.model(params), steps), or fit.simulate(steps)",
    "clone": "fit.apply(y)",
}


@dataclass(frozen=True)
class BoundModel(OtherNames):
    """A model together with its data, as `sarimax`, `var` and `dynamic_factor` return it."""

    model: Any
    data: Observations

    _noun = "the model"
    _replaced = REPLACED

    def __repr__(self) -> str:
        return f"{self.model.title} of {self.data.steps} steps"

    def fit(
        self,
        start: Mapping[str, Any] | None = None,
        constraints: Any = None,
        method: str = "auto",
        *,
        options: Mapping[str, Any] | None = None,
        progress: bool | str = "auto",
        joseph: bool = False,
        prior: Any = None,
        fixed: Mapping[str, Any] | None = None,
        disp: bool | None = None,
        **unknown: Any,
    ) -> FitResult:
        """The maximum of the likelihood.  start, constraints, prior, fixed are dicts of some parameters; the
        rest as in `ss.fit`.  `disp`, as statsmodels calls it, is `progress`."""
        for name in unknown:
            wanted = f"; write {REPLACED[name]}" if name in REPLACED else ""
            raise ArgumentError(f"fit: there is no argument {name!r}{wanted}")
        progress = progress if disp is None else bool(disp)
        problem = self.model.problem(
            self.data, start, constraints, joseph, None if prior is None else Prior(prior), fixed
        )
        return maximise(problem, method, options=options, progress=progress)
