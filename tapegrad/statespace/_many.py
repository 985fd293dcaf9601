"""Maximum likelihood of one model for many series at once: one kernel for all, and an optimiser that takes each to its own end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy

from .. import numpy as np
from .._transforms import hvp, jvp, vjp
from .._tree import Const
from ..errors import ArgumentError, ConvergenceError, DataError, KernelError, ShapeError
from ..kernels.generated.map import Map, map_
from ..optimize._many import solve_many
from ._begin import head_of
from ._diffuse import plan_of
from ._filter import NotCompiled
from ._fit import fit, require_function, require_model
from ._kernel import FIELDS, compiled, triangle
from ._model import SMALL, LinearGaussian, Observations, system
from ._parameters import Parameters
from ._pattern import Pattern, pattern
from ._search import FLAT
from ._structural import Structural

FEW = 16  # series for which a kernel of their own first steps pays


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


class _Group:
    """Series whose first observations, which settle a diffuse start, are there at the same steps: `members` of the series.

    As in `Pattern`, theta = constant + slope @ x(u).  Where gains are constants, constants differ by series, for the first observations
    enter them; else these observations are arguments of x."""

    def __init__(self, members: numpy.ndarray, p: Pattern, series: numpy.ndarray, numbers: Map):
        self.members, self.pattern, self.numbers = members, p, numbers
        self.steps = p.numbers.data.steps - p.rows.shape[1]
        first = series[members, : self.steps]
        self.constant = numpy.repeat(p.constant[:, None], len(members), axis=1)
        self.first = None if p.numbers.head is None else numpy.where(numpy.isnan(first), 0.0, first).T
        if p.begins is not None:
            there = numpy.where(numpy.isnan(first), 0.0, first)
            self.constant[: p.layout.states] += ((there - p.numbers.data.values[: self.steps, 0]) @ p.begins.errors).T

    def theta(self, which: numpy.ndarray) -> Callable:
        """The function from U (p, b) of these members to (q + 1, b): the kernel's theta, and below it the log-likelihood of the first
        steps."""
        p, constant = self.pattern, self.constant[:, which]
        if self.first is None:
            begun = numpy.full((1, which.size), p.begun)
            return lambda U: np.concatenate([constant + p.slope @ self.numbers(U), begun])
        first = Const(self.first[:, which])

        def theta(U: Any) -> Any:
            x = self.numbers(U, first)
            return np.concatenate([constant + p.slope @ x[:-1], x[-1:]])

        return theta


class _Together:
    """All series that one kernel takes: `here`; `rest` are the others."""

    def __init__(self, build: Callable, series: numpy.ndarray, parameters: Parameters):
        self.build, self.parameters, self.total = build, parameters, len(series)
        self.groups = self._grouped(series)
        self.here = numpy.concatenate([g.members for g in self.groups])
        self.rest = numpy.setdiff1d(numpy.arange(self.total), self.here)
        self.group = numpy.repeat(numpy.arange(len(self.groups)), [g.members.size for g in self.groups])
        self.place = numpy.concatenate([numpy.arange(g.members.size) for g in self.groups])
        self.natural = map_(parameters.flat)
        self.layout, self.count = self.groups[0].pattern.layout, len(self.here)
        self.kernel, self.rows = compiled(self.layout), self._rows(series)
        self.way = f"one compiled filter for {self.count} series: {self.layout.states} states, {len(self.groups[0].constant)} numbers"
        if self.rest.size:
            self.way += f"; {self.rest.size} series that begin as few others do one by one"

    def _grouped(self, series: numpy.ndarray) -> list[_Group]:
        """Groups by which of the first observations are there.  Where a group needs a kernel of its own, small ones are left away."""
        there = ~numpy.isnan(series)
        s = system(self.build(self.parameters.tree(self.parameters.start)), Observations(numpy.where(there[0], series[0], 0.0)))
        plans: dict[bytes, list] = {}
        members: dict[bytes, list[int]] = {}
        for b, here in enumerate(there):
            key = next((here[:n].tobytes() for n in {len(key) for key in plans} if here[:n].tobytes() in plans), None)
            if key is None:
                plan, settled = plan_of(s, Observations(series[b]))
                if not settled or len(plan) == here.size:
                    continue
                key = here[: len(plan)].tobytes()
                plans[key] = plan
            members.setdefault(key, []).append(b)
        gaps = len(plans) > 1 or not there.all()
        groups: list[_Group] = []
        for key, found in sorted(members.items(), key=lambda item: -len(item[1])):
            y = series[found[0]].copy()
            y[-1] = numpy.nan if gaps else y[-1]
            p = pattern(self.build, self.parameters, Observations(y), False, self.parameters.start)
            own = p.numbers.head is not None
            if groups and (p.layout != groups[0].pattern.layout or (own and len(found) < FEW)):
                continue
            shared = None if own else next((g.numbers for g in groups if g.first is None), None)
            numbers = shared or map_(_traced(self.build, self.parameters, p, plans[key]))
            groups.append(_Group(numpy.array(found), p, series, numbers))
        if not groups:
            raise NotCompiled("the data of each series leave an element of a diffuse start undetermined")
        return groups

    def _rows(self, series: numpy.ndarray) -> numpy.ndarray:
        """The data rows of all series, which begin behind their first steps; where these are more than those of others, steps without
        observations follow."""
        steps = min(g.steps for g in self.groups)
        rows = []
        for g in self.groups:
            own = numpy.repeat(g.pattern.rows[:, :, None], g.members.size, axis=2)
            y = series[g.members, g.steps :]
            own[0] = numpy.where(numpy.isnan(y), 0.0, y).T
            if self.layout.gaps:
                own[1] = ~numpy.isnan(y).T
            more = numpy.repeat(own[:, -1:], g.steps - steps, axis=1)
            more[: 1 + self.layout.gaps] = 0.0
            rows.append(numpy.concatenate([own, more], axis=1))
        return numpy.ascontiguousarray(numpy.concatenate(rows, axis=2))

    def solved(self) -> list[numpy.ndarray]:
        p = self.parameters
        U = numpy.repeat(p.start[:, None], self.count, axis=1)
        found = _nothing(self.total, p)
        with numpy.errstate(all="ignore"):
            self._require_same()
            r = solve_many(self.value_and_grad, self.hessian, U)
            errors = self._errors(r.x, r.hessian)
            natural = numpy.asarray(self.natural(r.x)).T
            flat, message = ~r.hessian.any(axis=(1, 2)), r.message.astype(object)
        message[flat] = "its observed values do not determine the parameters: the log-likelihood does not depend on them"
        converged = r.converged & ~flat
        errors[~converged] = numpy.nan
        for whole, part in zip(found, (natural, errors, -r.fun, converged, r.x.T, message), strict=True):
            whole[self.here] = part
        return found

    def _require_same(self) -> None:
        """The traced numbers are those of the patterns."""
        u = self.parameters.start[:, None]
        for g in self.groups:
            p = g.pattern
            wanted = p.constant + p.slope @ p.known[p.used]
            if not numpy.allclose(g.theta(numpy.array([0]))(u)[:-1, 0], wanted, rtol=1e-9, atol=1e-12):
                raise NotCompiled("its numbers differ when it is traced")

    def _parts(self, which: numpy.ndarray) -> list[tuple[Any, Callable]]:
        """For each group its columns among these series, and its theta."""
        if len(self.groups) == 1:
            return [(slice(None), self.groups[0].theta(which))]
        at = [(numpy.flatnonzero(self.group[which] == k), g) for k, g in enumerate(self.groups)]
        return [(columns, g.theta(self.place[which[columns]])) for columns, g in at if columns.size]

    def value_and_grad(self, U: numpy.ndarray, which: numpy.ndarray) -> tuple:
        """(b,) and (p, b)."""
        gradient = numpy.empty_like(U)
        with numpy.errstate(all="ignore"):
            pulled = [(at, *vjp(theta, U[:, at])) for at, theta in self._parts(which)]
            theta = self._joined(pulled, which.size)
            value, by_theta = self.kernel.value_and_grad(theta[:-1], self.rows[:, :, which])
            by_theta = numpy.concatenate([by_theta, numpy.ones((1, which.size))])
            for at, _, pull in pulled:
                gradient[:, at] = pull(-by_theta[:, at])
        return -(value + theta[-1]), gradient

    def _joined(self, parts: list, b: int) -> numpy.ndarray:
        """The columns of all groups."""
        if len(parts) == 1:
            return parts[0][1]
        made = numpy.empty((parts[0][1].shape[0], b))
        for at, x, *_ in parts:
            made[:, at] = x
        return made

    def hessian(self, U: numpy.ndarray, which: numpy.ndarray) -> numpy.ndarray:
        """(b, p, p): all directions of all series in one launch."""
        k, b = U.shape
        parts = self._parts(which)
        units = [numpy.repeat(e[:, None], b, axis=1) for e in numpy.eye(k)]
        with numpy.errstate(all="ignore"):
            theta = self._joined([(at, f(U[:, at])) for at, f in parts], b)
            D = numpy.stack([self._joined([(at, jvp(f, (U[:, at],), (e[:, at],))[1]) for at, f in parts], b) for e in units])
            many = numpy.tile(which, k)
            repeated, rows = numpy.tile(theta[:-1], k), self.rows[:, :, many]
            curved = self.kernel.hvp(repeated, numpy.concatenate(list(D[:, :-1]), axis=1), rows).reshape(-1, k, b)
            w = numpy.concatenate([self.kernel.grad(theta[:-1], rows[:, :, :b]), numpy.ones((1, b))])
            bent = numpy.stack([self._joined([(at, _bent(f, U[:, at], e[:, at], w[:, at])) for at, f in parts], b) for e in units])
        H = -(numpy.einsum("iqb,qjb->bij", D[:, :-1], curved) + bent.transpose(2, 0, 1))
        return (H + H.transpose(0, 2, 1)) / 2

    def _errors(self, U: numpy.ndarray, H: numpy.ndarray) -> numpy.ndarray:
        """Standard errors of the parameters themselves, from the inverse of H; nan at a bound."""
        k, b = U.shape
        J = numpy.stack([jvp(self.natural, (U,), (numpy.repeat(e[:, None], b, axis=1),))[1] for e in numpy.eye(k)])  # (i, parameter, b)
        curvature = numpy.einsum("bii->bi", H)
        bound = self.parameters.bounded & (curvature < FLAT)
        free = (~bound[:, :, None] & ~bound[:, None, :]) * H + numpy.where(bound, 1.0, 0.0)[:, :, None] * numpy.eye(k)
        good = numpy.isfinite(free).all(axis=(1, 2))
        good[good] = numpy.linalg.eigvalsh(free[good])[:, 0] > 0
        errors = numpy.full((b, k), numpy.nan)
        J = J.transpose(2, 1, 0)[good] * ~bound[good][:, None, :]  # (series, parameter, free parameter)
        errors[good] = numpy.sqrt(numpy.einsum("bpi,bij,bpj->bp", J, numpy.linalg.inv(free[good]), J))
        return numpy.where(bound, numpy.nan, errors)


def _bent(f: Callable, U: numpy.ndarray, e: numpy.ndarray, w: numpy.ndarray) -> numpy.ndarray:
    """Second derivatives of <w, f> along e."""
    return hvp(lambda U: (w * f(U)).sum(), U, e)


def _traced(build: Callable, parameters: Parameters, found: Pattern, plan: list[list[bool]]) -> Callable:
    """u (p,) to the numbers of the model that the kernel's theta is made of, for the tracer of kernels: `system` without its checks,
    which have been made.  If the first steps are among these numbers, so are their observations among the arguments, and their
    log-likelihood is the last number."""
    m, used, at, head = found.layout.states, found.used, found.numbers.at, found.numbers.head is not None
    model = build(parameters.tree(parameters.start))
    mark = numpy.broadcast_to(model.start.diffuse, (m,))
    keep = numpy.where(mark, 0.0, 1.0)
    passes = _passes(found, model, m) if model.start.stationary else 0
    if head and set(at) != set(FIELDS):
        raise NotCompiled("it varies over time, and its first steps are not the same for all parameters")

    def numbers(u: Any, *first: Any) -> Any:
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
        flat = [numpy.reshape(fields[name], (place.stop - place.start,)) for name, place in at.items()]
        if not head:
            return numpy.concatenate(flat)[used]
        fields |= {"Z": flat[FIELDS.index("Z")], "H": flat[FIELDS.index("H")][0], "d": flat[FIELDS.index("d")][0]}
        a, P, total = head_of(fields | {"unknown": numpy.diag(mark * 1.0)[:, mark]}, first[0], plan, model.start.predict_first)
        begun = [a, numpy.reshape(P, (m * m,))[triangle(m)[0]]]
        return numpy.concatenate([numpy.concatenate([*flat, *begun])[used], numpy.reshape(total, (1,))])

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
