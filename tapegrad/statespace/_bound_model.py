"""A model of the library together with its data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._observations import Observations
from ._problem import Prior
from .results.result import FitResult, maximise


@dataclass(frozen=True)
class BoundModel:
    """A model together with its data, as `sarimax`, `var` and `dynamic_factor` return it."""

    model: Any
    data: Observations

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
    ) -> FitResult:
        """The maximum of the likelihood.  start, constraints, prior, fixed are dicts of some parameters; the
        rest as in `ss.fit`."""
        problem = self.model.problem(
            self.data, start, constraints, joseph, None if prior is None else Prior(prior), fixed
        )
        return maximise(problem, method, options=options, progress=progress)
