"""Maximum likelihood of one model for many series at once: one kernel for all, and an optimiser that takes each to its own end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy

from .._transforms import hvp, jvp, vjp
from ..errors import ArgumentError, ConvergenceError, DataError, KernelError, ShapeError
from ..kernels.generated.map import map_
from ..optimize._many import solve_many
from ._filter import NotCompiled
from ._fit import fit, require_function, require_model
from ._kernel import compiled
from ._model import SMALL, LinearGaussian, Observations
from ._parameters import Parameters
from ._pattern import Pattern, pattern
from ._search import FLAT
from ._structural import Structural


@dataclass(frozen=True)
class ManyFits:
    """What `fit_many` found for k series and p parameters: `names` (p,), `estimates` and `standard_errors` (k, p), `unconstrained` (k, p),
    `loglik` (k,), `converged` (k,); `message` (k,) says how the search of each ended.  A parameter that ran into the bound of its
    constraint has standard error nan, and so have all of a series that has not converged."""

    names: list[str]
    estimates: numpy.ndarray
    standard_errors: numpy.ndarray
    loglik: numpy.ndarray
    converged: numpy.ndarray
    unconstrained: numpy.ndarray
    message: numpy.ndarray
    way: str

    def report(self) -> str:
        """How the likelihood was computed, and how many series have converged."""
        return f"{self.way}\n{int(self.converged.sum())} of {len(self.converged)} series converged"

    def __repr__(self) -> str:
        return f"<{len(self.converged)} series, {int(self.converged.sum())} converged, of {', '.join(self.names)}>"


def fit_many(build: Callable[[Any], LinearGaussian], Y: Any, start: Any, constraints: Any = None) -> ManyFits:
    """Maximise the log-likelihood of `build(params)` for each series of Y, (k, T) or a list of series (T,) of any lengths, nan where
    missing; start and constraints as in `fit`, for all series.

    The model function becomes a kernel for all series at once, so it must be one that `tapegrad.kernels.map` takes: no `if` on a
    parameter.  What has no kernel is fitted series by series; `report()` says so.  A series that fails does not stop the others.

    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> Y = np.random.default_rng(0).normal(size=(3, 50)).cumsum(axis=1) + np.random.default_rng(1).normal(size=(3, 50))
    >>> r = ss.fit_many(lambda p: ss.local_level(p["a"], p["b"]), Y, {"a": 1.0, "b": 1.0}, ss.positive())
    >>> r.estimates.shape, r.converged
    ((3, 2), array([ True,  True,  True]))
    """
    require_function("fit_many", build, Y)
    if isinstance(build, Structural):
        raise ArgumentError("fit_many: build is a sum of parts; wanted a function from the parameters to a LinearGaussian")
    series = _series(Y)
    parameters = Parameters(start, constraints)
    require_model("fit_many", build, parameters)
    try:
        together = _Together(build, series, parameters)
        found = together.solved()
        rest, way = together.rest, together.way
    except (NotCompiled, KernelError) as error:
        found, rest, way = _nothing(len(series), parameters), range(len(series)), f"series by series, for {error}"
    for b in rest:
        _one(found, b, build, series[b], start, constraints)
    return ManyFits(parameters.names, *found, way)


def _series(Y: Any) -> numpy.ndarray:
    """(k, T) with nan behind shorter series."""
    try:
        rows = [numpy.asarray(y, float) for y in (Y.values() if isinstance(Y, Mapping) else Y)]
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"fit_many: Y is a {type(Y).__name__}; wanted (k, T) numbers, a row for each series, or a list of series"
        ) from error
    if not rows or any(y.ndim != 1 or not y.size for y in rows):
        shape = getattr(Y, "shape", None) or [y.shape for y in rows][:3]
        raise ShapeError(f"fit_many: Y has shape {shape}; wanted (k, T), a row for each series, or a list of series (T,)")
    made = numpy.full((len(rows), max(y.size for y in rows)), numpy.nan)
    for row, y in zip(made, rows, strict=True):
        row[: y.size] = y
    for b, t in numpy.argwhere(numpy.isinf(made))[:1]:
        raise DataError(f"Y[{b}, {t}] is {made[b, t]}: infinite values cannot be filtered; nan means a missing value")
    for b in numpy.flatnonzero(numpy.isnan(made).all(axis=1))[:1]:
        raise DataError(f"fit_many: all observations of series {b} are missing (nan); there is nothing to fit")
    return made


def _nothing(k: int, parameters: Parameters) -> list[numpy.ndarray]:
    """estimates, standard_errors, loglik, converged, unconstrained, message of k series of which nothing is known."""
    unknown = numpy.full((k, parameters.start.size), numpy.nan)
    return [unknown, unknown.copy(), numpy.full(k, numpy.nan), numpy.zeros(k, bool), unknown.copy(), numpy.full(k, "", object)]


def _one(found: list[numpy.ndarray], b: int, build: Callable, y: numpy.ndarray, start: Any, constraints: Any) -> None:
    """Fit one series by itself."""
    estimates, errors, loglik, converged, unconstrained, message = found
    try:
        r = fit(build, y, start, constraints, progress=False)
    except (ConvergenceError, DataError, numpy.linalg.LinAlgError) as error:
        message[b] = str(error)
        return
    estimates[b], errors[b], unconstrained[b] = r.estimates, r.standard_errors, r.unconstrained
    loglik[b], converged[b], message[b] = r.loglik, True, r.message


class _Together:
    """The series whose first observations, which settle a diffuse start, are all there: `here`; `rest` are the others.

    As in `Pattern`, theta = constant + slope @ x(u), and constants differ by series, for the first observations enter them."""

    def __init__(self, build: Callable, series: numpy.ndarray, parameters: Parameters):
        there = ~numpy.isnan(series)
        first = self._pattern(build, numpy.where(there[0], series[0], 0.0), parameters)
        steps = first.numbers.data.steps - first.rows.shape[1]
        whole = there[:, :steps].all(axis=1)
        self.here, self.rest = numpy.flatnonzero(whole), numpy.flatnonzero(~whole)
        total = len(series)
        if not self.here.size:
            raise NotCompiled("each series has gaps where it begins")
        series, there = series[self.here], there[self.here]
        self.parameters, self.total = parameters, total
        self.pattern = p = self._pattern(build, numpy.where(there.all(axis=0), series[0], numpy.nan), parameters)
        self.numbers = map_(_traced(build, parameters, p))
        self.natural = map_(parameters.flat)
        self.kernel = compiled(p.layout)
        self.constant = numpy.repeat(p.constant[:, None], len(series), axis=1)
        if p.begins is not None:
            m = p.layout.states
            self.constant[:m] += ((series[:, :steps] - p.numbers.data.values[:steps, 0]) @ p.begins.errors).T
        rows = numpy.repeat(p.rows[:, :, None], len(series), axis=2)
        rows[0] = numpy.where(there, series, 0.0)[:, steps:].T
        if p.layout.gaps:
            rows[1] = there[:, steps:].T
        self.rows = numpy.ascontiguousarray(rows)
        self.count = len(series)
        self.way = f"one compiled filter for {self.count} series: {p.layout.states} states, {p.constant.size} numbers"
        if self.rest.size:
            self.way += f"; {self.rest.size} series with gaps where they begin one by one"

    def _pattern(self, build: Callable, y: numpy.ndarray, parameters: Parameters) -> Pattern:
        found = pattern(build, parameters, Observations(y), False, parameters.start)
        if found.numbers.head is not None:
            raise NotCompiled("its first steps are not the same for all parameters")
        return found

    def solved(self) -> list[numpy.ndarray]:
        p = self.parameters
        U = numpy.repeat(p.start[:, None], self.count, axis=1)
        found = _nothing(self.total, p)
        with numpy.errstate(all="ignore"):
            self._require_same(U[:, :1])
            r = solve_many(self.value_and_grad, self.hessian, U)
            errors = self._errors(r.x, r.hessian)
            natural = numpy.asarray(self.natural(r.x)).T
        errors[~r.converged] = numpy.nan
        for whole, part in zip(found, (natural, errors, -r.fun, r.converged, r.x.T, r.message), strict=True):
            whole[self.here] = part
        return found

    def _require_same(self, u: numpy.ndarray) -> None:
        """The traced numbers are those of the pattern."""
        p = self.pattern
        if not numpy.allclose(self.numbers(u)[:, 0], p.known[p.used], rtol=1e-9, atol=1e-12):
            raise NotCompiled("its numbers differ when it is traced")

    def _theta(self, x: numpy.ndarray, which: numpy.ndarray) -> numpy.ndarray:
        return self.constant[:, which] + self.pattern.slope @ x

    def value_and_grad(self, U: numpy.ndarray, which: numpy.ndarray) -> tuple:
        """(b,) and (p, b)."""
        with numpy.errstate(all="ignore"):
            x, pull = vjp(self.numbers, U)
            value, gradient = self.kernel.value_and_grad(self._theta(x, which), self.rows[:, :, which])
            return -(value + self.pattern.begun), pull(-(self.pattern.slope.T @ gradient))

    def hessian(self, U: numpy.ndarray, which: numpy.ndarray) -> numpy.ndarray:
        """(b, p, p): all directions of all series in one launch."""
        k, b = U.shape
        slope = self.pattern.slope
        with numpy.errstate(all="ignore"):
            x = self.numbers(U)
            units = [numpy.repeat(e[:, None], b, axis=1) for e in numpy.eye(k)]
            D = numpy.stack([slope @ jvp(self.numbers, (U,), (e,))[1] for e in units])  # (k, q, b)
            many = numpy.tile(which, k)
            theta, rows = self._theta(numpy.tile(x, k), many), self.rows[:, :, many]
            curved = self.kernel.hvp(theta, numpy.concatenate(list(D), axis=1), rows).reshape(-1, k, b)
            w = slope.T @ self.kernel.grad(theta[:, :b], rows[:, :, :b])
            bent = numpy.stack([hvp(lambda U: (w * self.numbers(U)).sum(), U, e) for e in units])  # (k, k, b)
        H = -(numpy.einsum("iqb,qjb->bij", D, curved) + bent.transpose(2, 0, 1))
        return (H + H.transpose(0, 2, 1)) / 2

    def _errors(self, U: numpy.ndarray, H: numpy.ndarray) -> numpy.ndarray:
        """Standard errors of the parameters themselves, from the inverse of H; nan at a bound."""
        k, b = U.shape
        J = numpy.stack([jvp(self.natural, (U,), (numpy.repeat(e[:, None], b, axis=1),))[1] for e in numpy.eye(k)])  # (i, parameter, b)
        curvature = numpy.einsum("bii->bi", H)
        bound = numpy.array([c.name != "unconstrained()" for c in self.parameters.constraint_of]) & (curvature < FLAT)
        free = (~bound[:, :, None] & ~bound[:, None, :]) * H + numpy.where(bound, 1.0, 0.0)[:, :, None] * numpy.eye(k)
        good = numpy.isfinite(free).all(axis=(1, 2))
        good[good] = numpy.linalg.eigvalsh(free[good])[:, 0] > 0
        errors = numpy.full((b, k), numpy.nan)
        J = J.transpose(2, 1, 0)[good] * ~bound[good][:, None, :]  # (series, parameter, free parameter)
        errors[good] = numpy.sqrt(numpy.einsum("bpi,bij,bpj->bp", J, numpy.linalg.inv(free[good]), J))
        return numpy.where(bound, numpy.nan, errors)


def _traced(build: Callable, parameters: Parameters, found: Pattern) -> Callable:
    """u (p,) to the numbers of the model that the kernel's theta is made of, for the tracer of kernels: `system` without its checks,
    which have been made."""
    m, used, at = found.layout.states, found.used, found.numbers.at
    model = build(parameters.tree(parameters.start))
    keep = numpy.where(numpy.broadcast_to(model.start.diffuse, (m,)), 0.0, 1.0)
    passes = _passes(found, model, m) if model.start.stationary else 0

    def numbers(u: Any) -> Any:
        model = build(parameters.tree(u))
        T, R = numpy.reshape(model.transition, (m, m)), model.selection
        Q = _square(model.transition_cov, m if R is None else numpy.shape(R)[-1])
        Q = Q if R is None else R @ Q @ numpy.swapaxes(R, 0, 1)
        c = model.transition_offset * numpy.ones(m)
        mean, cov = model.start.mean * keep, _square(model.start.cov, m) * numpy.outer(keep, keep)
        if model.start.stationary:
            mean, cov = numpy.linalg.solve(numpy.eye(m) - T, c), _stationary(T, Q, m, passes)
        Z = model.observation * numpy.ones(m)
        fields = {"mean": mean, "cov": cov, "T": T, "Z": Z, "Q": Q, "H": model.observation_cov, "c": c, "d": model.observation_offset}
        flat = numpy.concatenate([numpy.reshape(fields[name], (place.stop - place.start,)) for name, place in at.items()])
        return flat[used]

    return numbers


def _square(x: Any, n: int) -> Any:
    """A covariance from a variance, variances or itself."""
    return x if numpy.ndim(x) == 2 else x * numpy.eye(n)


def _stationary(T: Any, Q: Any, m: int, passes: int) -> Any:
    """P = T P T' + Q, as `_model._stationary_cov` finds it."""
    if m <= SMALL:
        P = numpy.linalg.solve(numpy.eye(m * m) - numpy.kron(T, T), numpy.reshape(Q, (m * m,)))
        return numpy.reshape(P, (m, m))
    A, P = T, Q
    for _ in range(passes):
        P = P + A @ P @ numpy.swapaxes(A, 0, 1)
        A = A @ A
    return P


def _passes(found: Pattern, model: LinearGaussian, m: int) -> int:
    """How many doublings the covariance of a stationary start takes."""
    if m <= SMALL:
        return 0
    if found.free[found.numbers.at["T"]].any():
        raise NotCompiled(f"it starts in a stationary state of more than {SMALL} elements with a transition that depends on the parameters")
    A, passes = numpy.reshape(model.transition, (m, m)), 0
    while numpy.linalg.norm(A) >= 1e-9:
        A, passes = A @ A, passes + 1
    return passes
