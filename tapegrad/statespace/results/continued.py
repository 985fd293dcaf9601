"""A fit on other data: new observations behind, only those, or another series, with the same parameters."""

from dataclasses import replace

from ..._core.arrays import to_host
from ..._core.errors import ArgumentError, DataError, ShapeError
from .._model import LinearGaussian, Start
from .._observations import Observations, as_observations
from .._problem import FitProblem
from ..filters.compiled import kalman_filter, loglik


def appended(fit, y, exog) -> FitProblem:
    """The problem of the data with new ones behind."""
    data = fit.data.followed_by("append", y)
    new = fit.problem.on(
        data, fit.problem.ahead(data.steps - fit.data.steps, exog, "append"), fit.unconstrained
    )
    return replace(new, past=fit.problem.past, begin=fit.problem.begin)


def extended(fit, y, exog) -> FitProblem:
    """The problem of the new data alone, which start from the state that all before imply."""
    n, problem = fit.data.steps, fit.problem
    data = fit.data.followed_by("extend", y).since(n)
    described = problem.ahead(data.steps, exog, "extend")
    start = state_after(problem.model(fit.params, described), fit.data, problem.joseph)
    matrices = {"build": described, "described": described} if described is not None else {}
    return replace(
        problem,
        data=data,
        **matrices,
        past=problem.past + n,
        begin=start,
        offset=0.0,
        used_up=0,
        quick=None,
        missing=None,
    )


def state_after(model: LinearGaussian, data: Observations, joseph: bool) -> Start:
    """The distribution of the state that follows the data, from a model that covers one step more."""
    n, entering = data.steps, model.start.predict_first
    r = kalman_filter(model, data if entering else data.extended(1), joseph)
    if r.diffuse_steps > n - entering:
        raise DataError("extend: the data leave a diffuse element of the state undetermined; use append")
    mean, cov = (r.filtered_mean, r.filtered_cov) if entering else (r.predicted_mean, r.predicted_cov)
    return Start(mean[n - entering], cov[n - entering], predict_first=entering)


def applied(fit, y, exog) -> FitProblem:
    """The problem of other data."""
    data, described = as_observations(y), fit.problem.described
    if data.width != fit.data.width:
        raise ShapeError(f"apply: y has {data.width} series, and the model {fit.data.width}")
    if described is None:
        return fit.problem.on(data, None, fit.unconstrained)
    data.labels.require_same_dates("apply: exog", getattr(exog, "index", None))
    return fit.problem.on(data, described.extended(data.steps, exog, 0), fit.unconstrained)


def with_estimates(fit, problem: FitProblem):
    """The estimates of a fit on the data of another problem."""
    model = problem.model(fit.params)
    total = float(to_host(loglik(model, problem.data, problem.joseph))) + problem.offset
    return replace(
        fit,
        problem=problem,
        model=model,
        loglik=total,
        observations=problem.data.count,
        origin=fit.origin or fit,
    )


def require_whole(fit) -> None:
    """Raise if the fit is one of new data alone."""
    if fit.problem.past:
        raise ArgumentError(
            "refit: these data start from the state that earlier ones imply; call append(y, refit=True) on "
            "the fit of those"
        )
