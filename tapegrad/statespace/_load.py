"""Fits from files."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy

from .._core.errors import ArgumentError
from ._model import Start
from ._observations import Observations
from ._parameters import parameters_from
from ._problem import FitProblem, Prior, Stop
from .models.arima import Arima
from .models.assembled import AssembledModel
from .models.components import ModelComponent
from .models.factors import DynamicFactor
from .models.vector import VectorAutoregression
from .results.archive import read_fit, stored_frame
from .results.continued import with_estimates
from .results.result import FitResult, fit_result

KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Arima,
        AssembledModel,
        DynamicFactor,
        Start,
        VectorAutoregression,
        *ModelComponent.__subclasses__(),
    )
}


def load(path: Any, build: Callable | None = None, prior: Any = None) -> FitResult:
    """Read a fit that ``fit.save(path)`` wrote.

    The file holds no code. Later versions read it too, and compute what follows from the maximum anew.

    Parameters
    ----------
    path : str or path
        The file.
    build : callable, optional
        The model function, for a fit of a function of your own.
    prior : dict or callable, optional
        The prior, for a fit with one.

    Returns
    -------
    FitResult

    Raises
    ------
    ArgumentError
        If it is no such file, or of a later format, or `build` or `prior` is missing.

    See Also
    --------
    fit : Estimates a model.

    Examples
    --------
    >>> import tempfile, os
    >>> from tapegrad import statespace as ss
    >>> fit = ss.fit(ss.level(), [1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 4.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "level.fit")
    ...     fit.save(path)
    ...     again = ss.load(path)
    >>> print(again.estimates.round(6))
    [0.714048 0.616082]
    """
    return _restored(read_fit(path, KINDS), build, None if prior is None else Prior(prior))


def _restored(saved: dict[str, Any], build: Callable | None, prior: Prior | None) -> FitResult:
    given: dict[str, Any] = {"build": build, "prior": prior}
    for name in saved["needs"]:
        if given[name] is None:
            raise ArgumentError(
                f"load: the file cannot hold the function {name}; write ss.load(path, {name}={name})"
            )
    described, stop = saved["described"], Stop(**saved["stop"])
    data, parameters = Observations(stored_frame(saved)), parameters_from(saved["parameters"])
    if described is None:
        problem = FitProblem(given["build"], data, parameters, prior=prior)
    elif saved["problem"]["begin"] is None:
        problem = described.on(data, parameters, saved["problem"]["joseph"], prior)
    else:
        problem = FitProblem(described, data, parameters, prior=prior, described=described)
    problem = replace(problem, **saved["problem"])
    if saved["origin"] is not None:
        return with_estimates(_restored(saved["origin"], build, prior), problem)
    fit = fit_result(problem, stop)
    if not numpy.isclose(problem.objective()(stop.u)[0], stop.value, rtol=1e-6, atol=1e-6):
        raise ArgumentError(
            "load: the log-likelihood at the estimates is not the saved one; is build or prior another "
            "function?"
        )
    return fit
