"""One kernel for many series: series that begin alike, their starts, and the search with a stop for each."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy
from numpy import ndarray

from .. import numpy as np
from .._core.errors import KernelError, TapegradError
from .._core.scope import quiet
from .._core.trees import Const
from .._transforms.hessian_products import hvp
from .._transforms.jacobian import jacobian
from .._transforms.products import jvp, vjp
from .._transforms.vmap import vmap
from ..kernels.generated.map import map_
from ..optimize._many import ManyResult, solve_many
from ._matrices import system
from ._observations import Observations
from ._parameters import Parameters, tree_of
from ._pattern import AffineNumbers, ModelPattern, NotAffine, model_pattern
from ._search import FLAT_CURVATURE, TOWARDS_BOUND
from .filters.arrays import NotCompiled, first_state
from .filters.augmented import LostDigits, start_of
from .filters.data_rows import upper
from .filters.diffuse_start import BeginPhase, begin_of, collapsed_path, last_step
from .filters.step_kernel import FIELDS, compile_layout, path_of, triangle_places

BOUND_GRADIENT = 1e-9  # gradient that is left of a parameter at a bound


def solved_together(
    build: Callable,
    series: ndarray,
    parameters: Parameters,
    starts: ndarray,
    several: bool = False,
) -> tuple[list[ndarray], Any, str]:
    """Return the columns of `ManyFits` for series (k, T) by one kernel, the series that it leaves out, and
    how the likelihood was computed. `starts` (s, p, k) holds s starts of each series.

    Each series is searched from its best start, or with `several` maxima from all of them."""
    least, affine = 0, True
    try:
        while True:
            group = KernelGroup(build, series, parameters, least, affine)
            try:
                return group.solved(starts, several), group.rest, group.way
            except LostDigits:
                least = min(2 * group.groups[0].steps, series.shape[1])
            except NotAffine:
                affine = False
    except (NotCompiled, KernelError) as error:
        return nothing(len(series), parameters), range(len(series)), f"series by series, for {error}"


def nothing(k: int, parameters: Parameters) -> list[ndarray]:
    """Return empty results of k series: estimates, standard_errors, loglik, converged, unconstrained,
    message."""
    unknown = numpy.full((k, parameters.start.size), numpy.nan)
    return [
        unknown,
        unknown.copy(),
        numpy.full(k, numpy.nan),
        numpy.zeros(k, bool),
        unknown.copy(),
        numpy.full(k, "", object),
    ]


class SeriesGroup:
    """Series that begin in one way; `members` are their numbers.

    As in `ModelPattern`, theta = constant + slope @ x(u). If a few first observations determine a diffuse
    start, they enter the constants, which then differ by series; the series of a group have them at the same
    steps. Otherwise all series are one group. `begins` then holds the beginning of each, and x is the theta
    of the filter over their first rows."""

    def __init__(
        self,
        members: ndarray,
        p: ModelPattern,
        series: ndarray,
        numbers: Callable,
        begins: Sequence[BeginPhase] = (),
    ):
        self.members = members
        self.pattern = p
        self.numbers = numbers
        m = p.layout.states
        self.steps = p.numbers.data.steps - p.rows.shape[1]
        self.constant = numpy.repeat(p.constant[:, None], len(members), axis=1)
        first = numpy.nan_to_num(series[members, : self.steps])
        if p.begins is not None:
            self.constant[:m] += ((first - p.numbers.data.values[: self.steps, 0]) @ p.begins.errors).T
        self.start: Any = begins[0].start if begins else None
        if self.start:
            self.known = numpy.stack([numpy.r_[b.start.centre, b.start.spread] for b in begins], axis=1)
            self.rows = rows_of_series(p, series[members], 0)[:, : self.steps + 1]

    def theta(self, which: ndarray) -> Callable:
        """Return the function from U (p, b) of these members to (q + 1, b).

        Its rows are the kernel's theta, followed by the log-likelihood of the first steps."""
        p, constant = self.pattern, self.constant[:, which]
        if p.numbers.head is None:
            begun = numpy.full((1, which.size), p.begun)
            return lambda U: np.concatenate([constant + p.slope @ self.numbers(U), begun])
        if not self.start:
            return lambda U: np.concatenate([self.numbers(U), numpy.zeros((1, which.size))])
        m = p.layout.states
        k = self.steps
        columns = 1 + self.start.rank
        whole = not p.rows.shape[1]
        path = path_of(p.layout, columns)
        rows = numpy.ascontiguousarray(self.rows[:, :, which])
        known = Const(self.known[:, which])

        def theta(U):
            x = self.numbers(U, known)
            begun = collapsed_path(np.transpose(path.path(x, rows), (2, 1, 0)), k, 1, self.start, whole).T
            return np.concatenate([begun[:-1], x[m * columns + triangle_places(m)[0].size :], begun[-1:]])

        return theta


def rows_of_series(p: ModelPattern, series: ndarray, begin: int) -> ndarray:
    """Return the data rows of a kernel for many series (k, T), (r, T - begin, k)."""
    rows = numpy.repeat(p.all_rows[:, begin:, None], len(series), axis=2)
    y = series[:, begin:]
    rows[0] = numpy.nan_to_num(y).T
    if p.layout.gaps:
        rows[1] = ~numpy.isnan(y).T
    return rows


class KernelGroup:
    """All series that one kernel takes.

    `here` holds these, `rest` the others. The augmented filter runs over at least `least` steps."""

    def __init__(self, build: Callable, series: ndarray, parameters: Parameters, least: int, affine: bool):
        self.affine: AffineNumbers | None = None
        self.maybe_affine = affine and all([not shape for _, _, shape, _ in parameters.blocks])
        self.build = build
        self.parameters = parameters
        self.total = len(series)
        self.least = least
        self.groups = self._grouped(series)
        self.here = numpy.concatenate([g.members for g in self.groups])
        self.rest = numpy.setdiff1d(numpy.arange(self.total), self.here)
        self.group = numpy.repeat(numpy.arange(len(self.groups)), [g.members.size for g in self.groups])
        self.place = numpy.concatenate([numpy.arange(g.members.size) for g in self.groups])
        self.layout, self.count = self.groups[0].pattern.layout, len(self.here)
        self.kernel, self.rows = compile_layout(self.layout), self._rows(series)
        self.evaluated, self.curved = (LastPoints(f, self.count) for f in (self._evaluated, self._curved))
        numbers = len(self.groups[0].constant)
        self.way = (
            f"one compiled filter for {self.count} series: {self.layout.states} states, {numbers} numbers"
        )
        if self.rest.size:
            self.way += f"; {self.rest.size} series that begin as few others do one by one"

    def _grouped(self, series: ndarray) -> list[SeriesGroup]:
        gaps = bool(numpy.isnan(series).any())
        p = self._pattern(series[0], gaps)
        if p.numbers.head is not None:
            return [self._one_group(series, gaps, p)]
        if p.begins is None:
            return [SeriesGroup(numpy.arange(self.total), p, series, self._numbers(p))]
        s = system(
            self.build(self.parameters.tree(self.parameters.start)), Observations(numpy.nan_to_num(series[0]))
        )
        members: dict[bytes, list[ndarray]] = {}
        seen = ~numpy.isnan(series if gaps else series[:1])
        kinds, kind_of = numpy.unique(seen, axis=0, return_inverse=True)
        kind_of = kind_of if gaps else numpy.zeros(self.total, int)
        for k, here in enumerate(kinds):
            alike = numpy.flatnonzero(kind_of == k)
            key = next(
                (here[:n].tobytes() for n in {len(key) for key in members} if here[:n].tobytes() in members),
                None,
            )
            if key is None:
                begin = begin_of(s, Observations(series[alike[0]]), False, False)
                if begin.constants is None or begin.constants.loglik != p.begun:
                    continue
                key = here[: begin.steps].tobytes()
            members.setdefault(key, []).append(alike)
        groups: list[SeriesGroup] = []
        joined = [numpy.sort(numpy.concatenate(found)) for found in members.values()]
        for found in sorted(joined, key=lambda found: -len(found)):
            p = self._pattern(series[found[0]], gaps)
            numbers = groups[0].numbers if groups else self._numbers(p)
            groups.append(SeriesGroup(found, p, series, numbers))
        return groups

    def _numbers(self, p: ModelPattern) -> Callable:
        """Return the function from U (k, b) to the numbers that depend on the parameters (q, b).

        If the map is affine, the model function is not traced."""
        if self.maybe_affine:
            with contextlib.suppress(NotAffine, TapegradError, ValueError):
                self.affine = found = AffineNumbers(p, self.build, self.parameters.start)
                return lambda U: found.known[:, None] + found.slope @ self._values(U)
        return map_(traced_numbers(self.build, p))

    def _values(self, U):
        """Return the constrained parameters of all series, (k, b)."""
        return np.stack(list(self.parameters.values(U).values()))

    def _require_affine(self, affine: AffineNumbers, U: ndarray) -> None:
        """Raise `NotAffine` if the numbers of a series are not those of the map."""
        p, parameters = self.groups[0].pattern, self.parameters
        numbers = lambda u: p.numbers.of(self.build(parameters.tree(u)), p.numbers.data)[p.used]
        try:
            x = vmap(numbers)(numpy.ascontiguousarray(U.T))
        except (TapegradError, TypeError, ValueError) as error:  # no function of many at once
            raise NotAffine from error
        affine.require(x, self._values(U).T)

    def _one_group(self, series: ndarray, gaps: bool, p: ModelPattern) -> SeriesGroup:
        """Return a group of the series whose data determine as much of the start.

        The augmented filter runs over the same steps of all."""
        s = system(self.build(self.parameters.tree(self.parameters.start)), p.numbers.data)
        head, members, begins = p.numbers.head, [], []
        known: dict[bytes, int] = {}
        for b, y in enumerate(series):
            data = Observations(y)
            start = start_of(s, data)
            if start is None:
                begin = head
            else:
                start, here = start.seen(), (~numpy.isnan(y)).tobytes()
                if not numpy.array_equal(start.columns, head.start.columns):
                    continue
                if here not in known:
                    known[here] = last_step(s, data, start, False)
                begin = BeginPhase(known[here], None, start)
            members.append(b)
            begins.append(begin)
        steps = max([begin.steps for begin in begins])
        p = self._pattern(series[members[0]], gaps, replace(head, steps=max(steps, self.least)))
        return SeriesGroup(numpy.array(members), p, series, map_(traced_numbers(self.build, p)), begins)

    def _pattern(self, y: ndarray, gaps: bool, begin: BeginPhase | None = None) -> ModelPattern:
        y = y.copy()
        y[-1] = numpy.nan if gaps else y[-1]
        return model_pattern(
            self.build,
            self.parameters,
            Observations(y),
            False,
            self.parameters.start,
            begin=begin,
            apart=False,
        )

    def _rows(self, series: ndarray) -> ndarray:
        """Return the data rows of all series after their first steps, padded with missing steps to one
        length."""
        steps = min(g.steps for g in self.groups)
        rows = []
        for g in self.groups:
            own = rows_of_series(g.pattern, series[g.members], g.steps)
            more = numpy.repeat(own[:, -1:], g.steps - steps, axis=1)
            more[: 1 + self.layout.gaps] = 0.0
            rows.append(numpy.concatenate([own, more], axis=1))
        return numpy.ascontiguousarray(numpy.concatenate(rows, axis=2))

    def solved(self, starts: ndarray, several: bool) -> list[ndarray]:
        """Return the columns of `ManyFits` from starts (s, p, k), as `solved_together` says."""
        p = self.parameters
        starts = starts[:, :, self.here]
        found = nothing(self.total, p)
        with quiet():
            self._require_same()
            U = starts[0]
            if len(starts) > 1:
                values = numpy.stack([self.value_and_grad(x, numpy.arange(self.count))[0] for x in starts])
                best = numpy.where(numpy.isnan(values), numpy.inf, values).argmin(axis=0)
                U = numpy.take_along_axis(starts, best[None, None], axis=0)[0]
            begun = U
            U = self._at_bounds(solve_many(self.value_and_grad, self.hessian, U, gtol=TOWARDS_BOUND))
            for k, other in enumerate(starts if several else ()):
                new = (other != begun).any(axis=0) & ((other != starts[k - 1]).any(axis=0) | (k == 0))
                self._from_another_start(U, other, numpy.flatnonzero(new))
            r = solve_many(self.value_and_grad, self.hessian, U)
            if self.affine is not None:
                self._require_affine(self.affine, numpy.concatenate([starts[0], r.x], axis=1))
            natural, errors = self._natural(r.x, r.hessian)
            flat, message = ~r.hessian.any(axis=(1, 2)), r.message.astype(object)
        idle = ~r.hessian.any(axis=2) & (r.gradient == 0).T & (r.x == starts).any(axis=0).T
        for b in numpy.flatnonzero(idle.any(axis=1)):
            names = ", ".join([p.names[k] for k in numpy.flatnonzero(idle[b])])
            message[b] = f"the log-likelihood does not depend on {names} there"
        message[flat] = (
            "its observed values do not determine the parameters: the log-likelihood does not depend on them"
        )
        converged = r.converged & ~flat & ~idle.any(axis=1)
        errors[~converged] = numpy.nan
        for whole, part in zip(found, (natural, errors, -r.fun, converged, r.x.T, message), strict=True):
            whole[self.here] = part
        return found

    def _from_another_start(self, U: ndarray, start: ndarray, which: ndarray) -> None:
        """Replace the points of some series by where a search from a start ends, if that is lower."""
        if not which.size:
            return
        value_and_grad, hessian = (
            lambda X, at, f=f: f(X, which[at]) for f in (self.value_and_grad, self.hessian)
        )
        found = solve_many(value_and_grad, hessian, start[:, which], gtol=TOWARDS_BOUND)
        lower = found.fun < self.value_and_grad(U[:, which], which)[0]
        U[:, which[lower]] = found.x[:, lower]

    def _at_bounds(self, near: ManyResult) -> ndarray:
        """Return the points with the parameters that run into a bound moved there, where that is no worse.

        There the function falls as exp(-r u), and each step of Newton's method moves by 1 / r only."""
        slope, curvature = abs(near.gradient), numpy.einsum("bii->ib", near.hessian)
        tail = (curvature > 0.5 * slope) & (curvature < 2 * slope) & (slope > BOUND_GRADIENT)
        tail &= self.parameters.bounded[:, None] & (slope <= TOWARDS_BOUND)
        size = numpy.where(tail, 1.0 + numpy.log(slope / BOUND_GRADIENT), 0.0)
        U = near.x - numpy.where(tail, near.gradient / curvature, 0.0) * size
        moved = numpy.flatnonzero(tail.any(axis=0))
        if moved.size:
            worse = ~(self.value_and_grad(U[:, moved], moved)[0] <= near.fun[moved])
            U[:, moved[worse]] = near.x[:, moved[worse]]
        return U

    def _require_same(self) -> None:
        """Raise if the traced numbers differ from those of the patterns."""
        u = self.parameters.start[:, None]
        for g in self.groups:
            p = g.pattern
            wanted = p.constant + p.slope @ p.known[p.used]
            if not numpy.allclose(g.theta(numpy.array([0]))(u)[:-1, 0], wanted, rtol=1e-9, atol=1e-12):
                raise NotCompiled("its numbers differ when it is traced")

    def _parts(self, which: ndarray) -> list[tuple[Any, Callable]]:
        """Return, for each group, its columns among these series, and its theta."""
        if len(self.groups) == 1:
            return [(slice(None), self.groups[0].theta(which))]
        at = [(numpy.flatnonzero(self.group[which] == k), g) for k, g in enumerate(self.groups)]
        return [(columns, g.theta(self.place[which[columns]])) for columns, g in at if columns.size]

    def value_and_grad(self, U: ndarray, which: ndarray) -> tuple:
        """Return values (b,) and gradients (p, b)."""
        value, gradient, _ = self.evaluated(U, which)
        return value, gradient.T

    def hessian(self, U: ndarray, which: ndarray) -> ndarray:
        """Return the Hessians (b, p, p)."""
        return self.curved(U, which)[0]

    def _evaluated(self, U: ndarray, which: ndarray) -> tuple:
        """Return values (b,), gradients (b, p), and the derivatives of the log-likelihood by theta, (b, q +
        1)."""
        gradient = numpy.empty_like(U)
        with quiet():
            pulled = [(at, *vjp(theta, U[:, at])) for at, theta in self._parts(which)]
            theta = self._joined(pulled, which.size)
            value, by_theta = self.kernel.value_and_grad(theta[:-1], self._rows_of(which))
            by_theta = numpy.concatenate([by_theta, numpy.ones((1, which.size))])
            for at, _, pull in pulled:
                gradient[:, at] = pull(-by_theta[:, at])
        return -(value + theta[-1]), gradient.T, by_theta.T

    def _rows_of(self, which: ndarray) -> ndarray:
        """Return the data rows of some series; those of all are not copied."""
        whole = which.size == self.count and (which == numpy.arange(self.count)).all()
        return self.rows if whole else self.rows[:, :, which]

    def _joined(self, parts: list, b: int) -> ndarray:
        """Join the columns of all groups."""
        if len(parts) == 1:
            return parts[0][1]
        made = numpy.empty((parts[0][1].shape[0], b))
        for at, x, *_ in parts:
            made[:, at] = x
        return made

    def _curved(self, U: ndarray, which: ndarray) -> tuple:
        """Return the Hessians (b, p, p)."""
        k, b = U.shape
        w, rows = numpy.tile(self.evaluated(U, which)[2].T, k), self._rows_of(which)
        units = numpy.repeat(numpy.eye(k), b, axis=1)
        U = numpy.tile(U, k)
        which = numpy.tile(which, k)
        parts = self._parts(which)
        with quiet():
            moved = [(at, *jvp(f, (U[:, at],), (units[:, at],))) for at, f in parts]
            theta, D = self._joined(moved, k * b), self._joined([(at, x) for at, _, x in moved], k * b)
            each = [slice(i * b, i * b + b) for i in range(k)]  # a launch reads the rows where they are
            curved = numpy.stack([self.kernel.hvp(theta[:-1, i], D[:-1, i], rows) for i in each], axis=1)
            bends = [(at, _bent(f, U[:, at], units[:, at], w[:, at])) for at, f in parts]
        D, bent = (x.reshape(-1, k, b) for x in (D[:-1], self._joined(bends, k * b)))
        H = -(numpy.einsum("qib,qjb->bij", D, curved) + bent.transpose(2, 0, 1))
        return ((H + H.mT) / 2,)

    def _natural(self, U: ndarray, H: ndarray) -> tuple[ndarray, ndarray]:
        """Return the constrained parameters (b, k), and their standard errors from the inverse of H; nan at a
        bound."""
        b, k, flat = U.shape[1], U.shape[0], self.parameters.flat
        natural, J = vmap(lambda u: (flat(u), jacobian(flat)(u)))(numpy.ascontiguousarray(U.T))
        curvature = numpy.einsum("bii->bi", H)
        bound = self.parameters.bounded & (curvature < FLAT_CURVATURE)
        free = (~bound[:, :, None] & ~bound[:, None, :]) * H + numpy.where(bound, 1.0, 0.0)[
            :, :, None
        ] * numpy.eye(k)
        good = numpy.isfinite(free).all(axis=(1, 2))
        good[good] = numpy.linalg.eigvalsh(free[good])[:, 0] > 0
        errors = numpy.full((b, k), numpy.nan)
        J = J[good] * ~bound[good][:, None, :]  # (series, parameter, free parameter)
        errors[good] = numpy.sqrt(numpy.einsum("bpi,bij,bpj->bp", J, numpy.linalg.inv(free[good]), J))
        return natural, numpy.where(bound, numpy.nan, errors)


class LastPoints:
    """A function of columns and their numbers, which is not computed again at the last point of a column.

    Its results have the column as the first axis."""

    def __init__(self, f: Callable, count: int):
        self.f, self.count = f, count
        self.at: Any = None
        self.found: list[ndarray] = []

    def __call__(self, U: ndarray, which: ndarray) -> list[ndarray]:
        if self.at is None:
            self.at = numpy.full((len(U), self.count), numpy.nan)
        new = numpy.flatnonzero((self.at[:, which] != U).any(axis=0))
        if new.size:
            made, at = self.f(numpy.ascontiguousarray(U[:, new]), which[new]), which[new]
            if not self.found:
                self.found = [numpy.empty((self.count, *x.shape[1:])) for x in made]
            for to, x in zip(self.found, made, strict=True):
                to[at] = x
            self.at[:, at] = U[:, new]
        return [x[which] for x in self.found]


def _bent(f: Callable, U: ndarray, e: ndarray, w: ndarray) -> ndarray:
    """Return the second derivatives of <w, f> along e."""
    return hvp(lambda U: (w * f(U)).sum(), U, e)


def traced_numbers(build: Callable, found: ModelPattern) -> Callable:
    """Return a traceable function from u (p,) to the numbers that the kernel's theta is made of.

    If the first steps depend on these numbers, it returns the theta of the filter over those steps. It then
    takes a further argument, what the series implies for a diffuse start."""
    numbers = replace(found.numbers, head=None)
    used = found.used
    head = found.numbers.head
    own = head and found.numbers.form.at
    blocks = numbers.parameters.blocks
    keyed = numbers.parameters.keyed
    one = Observations(numpy.zeros(1))
    if head and set(numbers.at) != set(FIELDS):
        raise NotCompiled("it varies over time, and its first steps are not the same for all parameters")

    def traced(u, *known):
        s = system(build(tree_of(u, blocks, keyed)), one)
        x = numbers.of_system(s, one)
        if head is None:
            return x[used]
        start = head.start
        if start is not None:
            start = replace(start, centre=known[0][: start.rank], spread=known[0][start.rank :])
        return np.concatenate([upper(*first_state(s, start)), x[own]])

    return traced
