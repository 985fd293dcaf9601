"""Maximum likelihood of one model for many series: one kernel, and an optimiser with a stop for each
series."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy
from numpy import ndarray

from .._core.errors import ArgumentError, ConvergenceError, DataError, ShapeError
from .._core.registry import load
from .._core.scope import entry
from ._bound_model import BoundModel
from ._fit import fit, require_function, require_model
from ._labels import Labels
from ._model import LinearGaussian
from ._observations import Observations, as_observations
from ._parameters import Parameters
from ._problem import FitProblem
from ._search import NEARLY_ONE
from ._series_kernel import nothing, solved_together
from .models.components import Cycle, RegressionComponent
from .models.sums import Structural, change_variances
from .results.result import FitResult, maximise


@dataclass(frozen=True)
class ManyFits:
    """The result of `fit_many`, for k series and p parameters.

    Attributes
    ----------
    names : list of str
        Names of the p parameters.
    estimates, standard_errors : arrays of shape (k, p)
        A parameter at the bound of its constraint has the standard error nan. So have all parameters of a
        series that has not converged.
    unconstrained : array of shape (k, p)
        The free parameters of the search.
    loglik : array of shape (k,)
        The log-likelihoods.
    converged : array of bool, shape (k,)
        Whether each search has converged.
    message : array of str, shape (k,)
        How each search ended.
    series : list
        Names of the series: the keys of a dict, the columns of a DataFrame, or 0 to k - 1.
    """

    names: list[str]
    estimates: ndarray
    standard_errors: ndarray
    loglik: ndarray
    converged: ndarray
    unconstrained: ndarray
    message: ndarray
    way: str
    series: list

    @property
    def failures(self) -> dict[Any, str]:
        """The messages of the series that have not converged, by the names of the series."""
        return {
            name: text
            for name, good, text in zip(self.series, self.converged, self.message, strict=True)
            if not good
        }

    def frame(self) -> Any:
        """Return a DataFrame with a row for each series: estimates, standard errors, log-likelihood,
        success."""
        columns = dict(zip(self.names, self.estimates.T, strict=True))
        columns |= {f"se({name})": x for name, x in zip(self.names, self.standard_errors.T, strict=True)}
        columns |= {"loglik": self.loglik, "converged": self.converged}
        return load("pandas").DataFrame(columns, index=self.series)

    to_frame = frame

    def report(self) -> str:
        """Say how the likelihood was computed, and how many series have converged."""
        return f"{self.way}\n{int(self.converged.sum())} of {len(self.converged)} series converged"

    def __repr__(self) -> str:
        return f"<{len(self.converged)} series, {int(self.converged.sum())} converged, of {', '.join(self.names)}>"


@entry
def fit_many(
    build: Callable[[Any], LinearGaussian] | Callable[[Any], BoundModel] | Structural,
    Y: Any,
    start: Any = None,
    constraints: Any = None,
    *,
    client: Any = None,
    store: Any = None,
    progress: bool | str = "auto",
) -> ManyFits:
    """Estimate one model for many series at once.

    The model function becomes a kernel for all series. A function without a kernel is fitted series by
    series; ``report()`` says so. A series that fails does not stop the others.

    Parameters
    ----------
    build : callable or Structural
        A sum of components; or a function from a series to a model, ``lambda y: ss.sarimax(y, order=...)``.
        Starts are then found for each series. Or, with `start`, ``build(params)`` returns a
        `LinearGaussian`. It must be a function that `tapegrad.kernels.map` accepts: no ``if`` on a
        parameter.
    Y : array of shape (k, T), list or dict of arrays of shape (T,), or DataFrame
        The series, of any lengths in a list or dict, nan where missing. In a DataFrame each column is one.
    start : dict or array, optional
        Starting values for all series, as for `fit`.
    constraints : optional
        As for `fit`.
    client : dask.distributed.Client or concurrent.futures.Executor, optional
        Who computes, in parts of 256 series. Default: this process, in parts of 4,096 series, which bound
        the memory. What the function captures is pickled.
    store : path, optional
        A folder in which finished parts are kept. A later call with the same arguments reads them there, and
        computes only the rest.
    progress : bool or 'auto', default 'auto'
        Whether a progress bar counts the parts (package tqdm). 'auto': in a terminal, after two seconds.

    Returns
    -------
    ManyFits
        Estimates and standard errors of each series.

    Raises
    ------
    ArgumentError
        If a start violates its constraint, or is missing.
    ShapeError
        If Y is not (k, T).
    DataError
        If data are infinite, or a series has no observation.

    See Also
    --------
    fit : One series.
    tapegrad.parallel.run_parts : The scheduler behind `client` and `store`.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> Y = np.random.default_rng(0).normal(size=(3, 50)).cumsum(axis=1) + np.random.default_rng(1).normal(size=(3, 50))
    >>> r = ss.fit_many(lambda p: ss.local_level(p["a"], p["b"]), Y, {"a": 1.0, "b": 1.0}, ss.positive())
    >>> r.estimates.shape, r.converged
    ((3, 2), array([ True,  True,  True]))
    >>> ss.fit_many(ss.level(), Y).estimates.shape
    (3, 2)
    """
    require_function("fit_many", build, Y)
    series = padded_series(Y)
    if hasattr(Y, "columns"):
        Labels(Y.index).warn_of_gaps()
    if start is not None and not isinstance(build, Structural):
        require_model("fit_many", build, Parameters(start, constraints))
    size = SERIES_AT_ONCE if client is None and store is None else SERIES_OF_PART
    parts = [series[k : k + size] for k in range(0, len(series), size)]
    fit_part = partial(fitted, build, start, constraints)
    if len(parts) == 1 and size == SERIES_AT_ONCE and progress in (False, "auto"):
        each = [fit_part(parts[0])]  # without the modules for several processes
    else:
        run_parts = load("tapegrad.parallel.workers").run_parts
        each = run_parts(fit_part, parts, client, store=store, progress=progress)
    found = [numpy.concatenate(column) for column in zip(*[columns for columns, *_ in each], strict=True)]
    way = "\n".join(dict.fromkeys([way for _, way, _ in each]))
    if len(each) > 1 or size == SERIES_OF_PART:
        way = f"{len(each)} parts of up to {size} series\n{way}"
    estimates, errors, loglik, converged, unconstrained, message = found
    return ManyFits(
        each[0][2], estimates, errors, loglik, converged, unconstrained, message, way, names_of_series(Y)
    )


NOT_SCALED = Cycle, RegressionComponent  # their starts are no multiples of the variance of the changes
SERIES_OF_PART = 256  # for several processes, or a store
SERIES_AT_ONCE = 4096  # in one process; they bound the memory


def fitted(build, start, constraints, series: ndarray) -> tuple[list, str, list]:
    """Return the results of these series, how they were computed, and the names of the parameters."""
    if start is None or isinstance(build, Structural):
        return ModelsOfSeries(build, start, constraints, series).fitted()
    parameters = Parameters(start, constraints)
    starts = numpy.repeat(parameters.start[None, :, None], len(series), axis=2)
    found, rest, way = solved_together(build, series, parameters, starts)
    for b in rest:
        fit_one_series(found, b, partial(fit, build, series[b], start, constraints))
    return found, way, parameters.names


class AlikeSeries(NamedTuple):
    """Series of models that differ in their numbers alone: a problem of one of them, their numbers, their
    rows (k, n), and s starts of each (s, p, k)."""

    problem: FitProblem
    members: ndarray
    rows: ndarray
    starts: ndarray


class ModelsOfSeries:
    """A library model of each series (k, T), `build` a sum of components or a function of a series.

    Models that differ in their numbers alone go through one kernel, on differenced series where the search
    for one series takes these. Each series has its own starts. A series whose search fails, and one with
    regressors, are fitted alone."""

    def __init__(self, build, start, constraints, series: ndarray):
        self.total = len(series)
        self.start = start
        self.constraints = constraints
        self.errors: dict[int, DataError] = {}
        self.specified: dict[int, tuple[Any, ndarray | Observations]] = {}
        for b, y in enumerate(series):
            try:
                self.specified[b] = model_of_series(build, y)
            except DataError as error:
                self.errors[b] = error
        self.checked = False
        self.groups = self._scaled()
        taken = {b for group in self.groups for b in group.members}
        found = {b: self._problem(b) for b in self.specified if b not in taken}
        self.problems = {b: problem for b, problem in found.items() if problem is not None}
        known = [*[(group.members[0], group.problem) for group in self.groups], *self.problems.items()]
        if not known:
            raise self.errors[min(self.errors)]
        self.parameters, self.concentrated = known[0][1].parameters, known[0][1].concentrated
        names = self.parameters.names
        for b, problem in known:
            if names != (other := problem.parameters.names):
                raise ArgumentError(
                    f"fit_many: series {b} has the parameters {', '.join(other)}, and others have "
                    f"{', '.join(names)}; fit them apart"
                )

    def _problem(self, b: int) -> FitProblem | None:
        """Return the problem of a series, or None if its data are no good.

        The first is made after all checks of the model that `fit` makes."""
        model, y = self.specified[b]
        data = as_observations(y)
        try:
            if not isinstance(model, Structural):
                return model.problem(data, self.start, self.constraints, False, None)
            problem = model.problem(data, self.start, self.constraints, checked=self.checked)
            self.checked = True
            return problem
        except DataError as error:
            self.errors[b] = error
            return None

    def _scaled(self) -> list[AlikeSeries]:
        """Return the series whose starts differ by the variance of their changes alone, in groups."""
        alike: dict[Any, list[int]] = {}
        if self.start is None and self.constraints is None:
            last: tuple = (None, 0, [])  # most series have the model of the one before
            for b, (model, y) in self.specified.items():
                n = y.steps if isinstance(y, Observations) else y.size
                if model is last[0] and n == last[1]:
                    last[2].append(b)
                elif isinstance(model, Structural) and not any(
                    [isinstance(p, NOT_SCALED) for p in model.parts]
                ):
                    last = model, n, alike.setdefault((model.parts, n), [])
                    last[2].append(b)
        groups = []
        for members in alike.values():
            rows = numpy.stack([_values(self.specified[b][1]) for b in members])
            sizes = change_variances(self.specified[members[0]][0].parts, rows)
            made = ((k, self._problem(b)) for k, b in enumerate(members) if sizes[k] > 0)
            found = next(((k, problem) for k, problem in made if problem is not None), None)
            if found is None:
                continue
            first, problem = found
            p, counts = problem.parameters, (~numpy.isnan(rows)).sum(axis=1)
            states = len(problem.build(p.tree(p.start)).state_names or ())
            good = (sizes > 0) & (counts >= states + p.start.size)  # the others are looked at alone
            scaled = numpy.array([[name.startswith("sigma2.")] for name in p.names])
            starts = numpy.stack([p.start, *problem.others])[:, :, None]
            starts = starts + numpy.where(scaled, numpy.log(sizes[good] / sizes[first]), 0.0)
            groups.append(AlikeSeries(problem, numpy.array(members)[good], rows[good], starts))
        return groups

    def fitted(self) -> tuple[list[ndarray], str, list[str]]:
        found = nothing(self.total, self.parameters)
        groups, alone = self._grouped()
        ways = []
        for group in groups:
            left, way = self._together(found, group)
            alone += left
            ways.append(way)
        for b in alone:
            problem = self.problems[b] if b in self.problems else self._problem(b)
            if problem is not None:
                fit_one_series(found, b, partial(maximise, problem, progress=False))
        for b, error in self.errors.items():
            found[-1][b] = str(error)
        way = "\n".join(dict.fromkeys(ways)) or "series by series: they have regressors"
        if not self.concentrated:
            return found, way, self.parameters.names
        return [found[0][:, :-1], found[1][:, :-1], *found[2:]], way, self.parameters.names[:-1]

    def _grouped(self) -> tuple[list[AlikeSeries], list[int]]:
        """Return all groups, and the series that are fitted alone."""
        alike: dict[str, list[int]] = {}
        for b, problem in self.problems.items():
            alike.setdefault(_kind_of(problem), []).append(b)
        alone, groups = alike.pop("", []), list(self.groups)
        for members in alike.values():
            whole = [self.problems[b] for b in members]
            rows = numpy.stack([_values((p.quick or p).data) for p in whole])
            most = 1 + max([len(p.others) for p in whole])
            tried = [[p.parameters.start] * (most - len(p.others)) + list(p.others) for p in whole]
            starts = numpy.stack(tried, axis=-1)
            groups.append(AlikeSeries(whole[0], numpy.array(members), rows, starts))
        return groups, alone

    def _together(self, found: list[ndarray], group: AlikeSeries) -> tuple[list[int], str]:
        """Fill in the results of a group; return the series to fit alone, and how the rest was computed.

        These are without a maximum, or are a process near a unit root, which may have a higher one."""
        inner = group.problem.quick or group.problem
        several = getattr(group.problem.described, "several_maxima", False)
        columns, _, way = solved_together(
            inner.build, group.rows, group.problem.parameters, group.starts, several
        )
        columns[2] += inner.offset
        if several:
            process = columns[4][:, group.problem.parameters.process]
            columns[3] &= ~(abs(process) > NEARLY_ONE).any(axis=1)
        for to, part in zip(found, columns, strict=True):
            to[group.members] = part
        return group.members[~columns[3]].tolist(), way


def _values(y: ndarray | Observations) -> ndarray:
    return y.host[:, 0] if isinstance(y, Observations) else y


def _kind_of(problem: FitProblem) -> str:
    """Return a text that models alike have in common, '' for a model with regressors."""
    model = problem.described
    parts = getattr(model, "terms", None)
    if getattr(model, "columns", ()) or any([isinstance(p, RegressionComponent) for p in parts or ()]):
        return ""
    inner = problem.quick or problem
    return f"{model if parts is None else parts} {inner.data.steps} {problem.quick is None}"


def model_of_series(build, y: ndarray) -> tuple[Any, ndarray | Observations]:
    """Return the model of one series, and its data without the missing values at its end."""
    if numpy.isnan(y[-1]):
        y = y[: numpy.flatnonzero(~numpy.isnan(y))[-1] + 1]
    if isinstance(build, Structural):
        return build, y
    wanted = (
        "fit_many: start is missing; wanted starting values, for a function of parameters, or a function from "
        "a series to a model of one series, as lambda y: ss.sarimax(y, order=(0, 1, 1))"
    )
    try:
        bound = build(y)
    except (TypeError, LookupError) as error:
        raise ArgumentError(wanted) from error
    if not isinstance(bound, BoundModel) or bound.data.width > 1:
        raise ArgumentError(wanted)
    return bound.model, bound.data


def padded_series(Y) -> ndarray:
    """Return (k, T), with nan after the end of shorter series."""
    try:
        named = isinstance(Y, Mapping) or hasattr(Y, "columns")
        rows = [numpy.asarray(y, float) for y in ([Y[name] for name in Y] if named else Y)]
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"fit_many: Y is a {type(Y).__name__}; wanted (k, T) numbers, a row for each series, or a list "
            f"of series"
        ) from error
    if not rows or any(y.ndim != 1 or not y.size for y in rows):
        shape = getattr(Y, "shape", None) or [y.shape for y in rows][:3]
        raise ShapeError(
            f"fit_many: Y has shape {shape}; wanted (k, T), a row for each series, or a list of series (T,)"
        )
    made = numpy.full((len(rows), max(y.size for y in rows)), numpy.nan)
    for row, y in zip(made, rows, strict=True):
        row[: y.size] = y
    for b, t in numpy.argwhere(numpy.isinf(made))[:1]:
        raise DataError(
            f"Y[{b}, {t}] is {made[b, t]}: infinite values cannot be filtered; nan means a missing value"
        )
    for b in numpy.flatnonzero(numpy.isnan(made).all(axis=1))[:1]:
        raise DataError(
            f"fit_many: all observations of series {b} are missing (nan); there is nothing to fit"
        )
    return made


def names_of_series(Y) -> list:
    """Return the names of the series, or their numbers."""
    return list(Y) if isinstance(Y, Mapping) or hasattr(Y, "columns") else list(range(len(Y)))


def fit_one_series(found: list[ndarray], b: int, fit_it: Callable[..., FitResult]) -> None:
    """Fit one series by itself."""
    estimates, errors, loglik, converged, unconstrained, message = found
    try:
        r = fit_it()
    except (ConvergenceError, DataError, numpy.linalg.LinAlgError) as error:
        message[b] = str(error)
        return
    k = r.estimates.size  # one fewer than parameters where a scale is left out
    estimates[b, :k] = r.estimates
    errors[b, :k] = r.standard_errors
    unconstrained[b] = r.unconstrained
    loglik[b], converged[b], message[b] = r.loglik, True, r.message
