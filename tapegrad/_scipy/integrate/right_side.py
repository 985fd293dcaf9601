"""The right-hand side of a differential equation at all stages of a solution at once."""

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as plain_np
from scipy import sparse

from ... import numpy as np
from ..._capture.dependencies.walk import DependencyWalk, walk_with_names
from ..._core.errors import Attempt, GuardError, callers_line
from ..._core.registry import load
from ..._core.trees import Const
from ..._core.variable import HANDLES, Variable, View
from ..._transforms.products import jvp, vjp
from ..._transforms.vmap import vmap
from ...ops.declare import dtype, shape
from ..linear_maps import rows_of
from ..namespaces import as_float_array, bare
from .linear_steps import SparseJacobians

NAME = "scipy.integrate.solve_ivp"
MISSES = 32  # batches that may fail, before the points are evaluated one by one
# states of an explicit method, and numbers, of Jacobians that are kept
DENSE_STATES, DENSE_NUMBERS = 48, 1 << 25

SPARSE_STATES = 100  # of an implicit method, from which on the pattern of the Jacobian is looked for
SPARSE_SHARE = 0.25  # of the colours of a sparse Jacobian, to the states
POINT_NUMBERS = 1 << 22  # of the states at which one product computes a colour
ENTRY_ERROR = 1e-7  # of a row of a product that the entries repeat
# the user would miss what functions of these names show
SHOWING = frozenset(
    ("print", "write", "info", "debug", "warning", "warn", "error", "critical", "exception", "pprint")
)
ROUNDING = 1e5 * float(plain_np.finfo(float).eps)  # of a slope that is computed again, in its terms
# code of right-hand sides -> the work for derivatives without a kernel, in evaluations for a small system
WORK: WeakKeyDictionary = WeakKeyDictionary()
PER_CALL = 400  # evaluations for two states, which take as long as what a call takes beside them
LARGER = 8  # states that double what an evaluation and its derivative take


def code_key(fun):
    return getattr(fun, "__code__", type(fun))


def work_of(code) -> float:
    return WORK.get(code, 0.0)


def count_work(fun, evaluations: int, states: int) -> None:
    """Add one call."""
    code = code_key(fun)
    WORK[code] = work_of(code) + PER_CALL + evaluations * (1 + states / LARGER)


def real_parts(y):
    """Complex states as twice as many real ones."""
    return np.concatenate([np.real(y), np.imag(y)], -1)


def all_real(*ys) -> list:
    return [real_parts(y) if y.dtype.kind == "c" else y for y in ys]


def complex_states(y):
    n = shape(y)[-1] // 2
    return y[..., :n] + 1j * y[..., n:]


@dataclass
class RightSide:
    """f at many points (t, y): at all at once, as far as its branches agree there. `in_order`: one by one,
    for f goes by what it has altered. `vectorized`: f takes columns."""

    f: Callable
    mixed: bool
    vectorized: bool
    in_order: bool
    misses: int = 0

    def of(self, f: Callable) -> "RightSide":
        """Return this with another function."""
        return RightSide(f, self.mixed, self.vectorized, self.in_order)

    def point(self, t, y):
        y = complex_states(y) if self.mixed else y
        slope = np.reshape(as_float_array(self.f(t, np.reshape(y, (-1, 1)) if self.vectorized else y)), -1)
        if shape(slope) != shape(y):  # SciPy's explicit methods take one number for all states
            slope = np.broadcast_to(slope, shape(y))
        return real_parts(slope) if self.mixed else slope

    def at(self, t, y):
        """Return the slope of one state."""
        return self(np.reshape(t, 1), np.reshape(y, (1, -1)))[0]

    def __call__(self, T, Y):
        """(points,), (points, n) -> (points, n)"""
        parts = []
        self.extend(parts, T, Y)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def extend(self, parts: list, T, Y) -> None:
        count = shape(Y)[0]
        if self.in_order or self.misses == MISSES or count == 1:
            parts.append(np.stack([self.point(T[k], Y[k]) for k in range(count)]))
            return
        with Attempt() as tried:
            parts.append(vmap(Const(self.point))(T, Y))
        if tried.failed:  # at a point alone an error is raised again, if it is the user's
            self.misses += 1
            for part in (slice(0, count // 2), slice(count // 2, count)):
                self.extend(parts, T[part], Y[part])

    def pattern(self, t, y):
        """Return the places of the entries of df / dy, if they are few; else None."""
        sparsity = load("tapegrad.sparse")
        with Attempt() as tried:
            found = sparsity.pattern(Const(lambda y: self.point(t, y)), y)
        if tried.failed:  # by the user's error, which is raised again, or it cannot be recorded
            return None
        few = len(sparsity.coloring(found)) <= SPARSE_SHARE * len(y)
        return found if few else None

    def sparse_jacobians(self, T, Y, pattern) -> tuple | None:
        """Return f and the entries of df / dy at the points (t, y), one product for each colour.

        None: at some point there are entries elsewhere, as one more product shows."""
        colours, n = load("tapegrad.sparse").coloring(pattern).columns, Y.shape[1]
        columns, rows = pattern.indices, plain_np.repeat(plain_np.arange(n), plain_np.diff(pattern.indptr))
        row_sums = sparse.csr_array((plain_np.ones(len(rows)), plain_np.arange(len(rows)), pattern.indptr))
        probe = plain_np.random.default_rng(0).uniform(0.5, 1.0, n)
        values, entries = plain_np.empty(Y.shape), plain_np.empty((len(Y), len(rows)))
        part = max(POINT_NUMBERS // n, 1)
        for at in [slice(k, k + part) for k in range(0, len(Y), part)]:
            here = Const(lambda y, at=at: self(T[at], y))

            def along(v, here=here, at: slice = at) -> tuple:
                return tuple(map(bare, jvp(here, (Y[at],), (plain_np.broadcast_to(v, Y[at].shape),))))

            for colour in range(colours.max(initial=-1) + 1):
                members = colours[columns] == colour
                entries[at, members] = along(1.0 * (colours == colour))[1][:, rows[members]]
            values[at], moved = along(probe)
            terms = (entries[at] * probe[columns]).T
            allowed = ENTRY_ERROR * (row_sums @ abs(terms)) + 1e-13 * abs(moved).max(initial=0.0)
            if not (abs(row_sums @ terms - moved.T) <= allowed).all():
                return None
        return values, entries

    def jacobians(self, T, Y, implicit: bool, pattern) -> tuple:
        """(f, df / dy) at plain points; T has (steps, stages). `pattern`: where df / dy has entries, or
        None."""
        n, points = Y.shape[-1], rows_of(Y)
        if implicit and pattern is not None and pattern.shape == (n, n):
            found = self.sparse_jacobians(T.reshape(-1), points, pattern)
            if found is not None:
                value, entries = found
                return value.reshape(Y.shape), SparseJacobians(entries.reshape(*T.shape, -1), pattern)
        value, pullback = vjp(Const(lambda Y: self(T.reshape(-1), Y)), points)
        rows = plain_np.empty((len(points), n, n))
        for i in range(n):
            unit = plain_np.zeros(points.shape)
            unit[:, i] = 1.0
            rows[:, i] = bare(pullback(unit))
        return bare(value).reshape(Y.shape), rows.reshape(*Y.shape, n)


def check_slopes(found, K, Y, J=None) -> None:
    """Are these slopes at the stages Y those that were computed before? A function that goes by something
    that it alters itself (a count, a flag, a random generator) has given others."""
    with plain_np.errstate(invalid="ignore"):  # of an infinite Jacobian
        grown = (
            abs(J) @ abs(Y)[..., None]
            if type(J) is plain_np.ndarray
            else abs(found).max(initial=0.0) * plain_np.ones(1)
        )
        allowed = ROUNDING * (abs(K).max(initial=0.0) + grown[..., 0])
        differ = abs(found - K) > allowed
    if differ.any():
        raise other_values()


def other_values() -> GuardError:
    return GuardError(
        f"{callers_line()}: {NAME}: called again for the derivative, the function gave other values: it goes "
        "by something that changes from call to call (a count, a flag, its last result, a random "
        "generator), or returns an array that it writes again; make it a function of t and y that returns a "
        "new array, and end the interval by a terminal event where a switch is thrown"
    )


class ReadingWalk(DependencyWalk):
    """A walk that compares a number as it does an array, if it is a Variable."""

    def visit(self, x) -> None:
        if type(x) not in HANDLES:
            super().visit(x)
        elif id(x) in self.place:
            self.form.append(self.place[id(x)])
        else:
            self.place[id(x)] = len(self.place)
            self.hold.append(x)
            self.form.append(type(x))
            self.variable(x)


def form_of_reading(roots: list, handles: list, read_anew: Callable = lambda x: False) -> tuple:
    """Return what two calls share if they read the same but for the values of Variables, and the arrays that
    it tells. The form is None where it cannot be told.

    `handles`: the Variables that the roots hold, with their stand-ins. `read_anew`: see `DependencyWalk`."""
    walk = walk_with_names(roots, read_anew, ReadingWalk)
    if walk.unknown is not None or walk.sources or not SHOWING.isdisjoint(walk.names):
        return None, []
    form = [*walk.form, [(tuple(shape(y)), dtype(y).str) for _, y in handles]]
    places = {id(x): k for k, pair in enumerate(handles) for x in pair}
    for x in walk.hold:
        if isinstance(x, Variable):
            base, path = (x._base, x._path) if type(x) is View else (x, ())
            form.append((places.get(id(base)), path))
            if form[-1][0] is None:
                return None, []
        elif type(x) is Const:
            return None, []
    return form, walk.arrays
