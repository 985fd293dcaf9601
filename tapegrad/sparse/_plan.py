"""Plans of sparse Jacobians and Hessians.

A `Plan` finds the pattern and the colours once. Each call then computes products and entries. A plan wraps a
prepared function: the pattern is that of the recorded value or gradient, and products are replayed."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from .._core.arrays import is_array, xp_of
from .._core.errors import ArgumentError, DenseWarning, GuardError
from .._core.pickling import PickledByCall
from .._core.primitive import is_tracked
from .._core.registry import SHADOW_MAKERS, load
from .._core.scope import OPEN, changed
from ..ops.nondifferentiable import warn_user
from ..replay.form import any_variable
from ..replay.prepared import Prepared
from . import _check
from ._arguments import (
    argnum_of,
    checked_input,
    checked_output,
    enter_arguments,
    layouts_of,
    leaf_dtype,
    with_argument_first,
)
from ._coloring import Coloring, best_coloring, coloring_of
from ._decompress import Entries
from ._direct import DirectEntries
from ._found import FoundPattern, leaf_size
from ._pattern import given_pattern
from ._pictures import plot_pattern
from ._rows import NotRowwise

MOST_PLANS = 8  # plans for other memory layouts, at most
AT_LEAST, EACH, COMPILING = 1e5, 1.0, 2e8  # ns: products, at least; a colour and entry; a compilation
SPARSE_SHARE = 0.2  # of all entries, above which a dense matrix is cheaper
SMALL_SYSTEM_UNKNOWNS = 16  # unknowns below which no check asks whether a sparse matrix pays


class Plan(PickledByCall):
    """A sparse Jacobian or Hessian: pattern and colours are found once, values at each call.

    `prepare_jacobian` and `prepare_hessian` make plans. Call a plan as ``plan(x)``.

    Attributes
    ----------
    pattern : scipy.sparse.csr_array
        The positions of the entries, booleans.
    coloring : Coloring
        The colours of columns and rows.
    direct : object
        The compiled loop that computes entries without products, or the name of the operation that prevents
        it, or None while it does not pay.
    """

    followed = False  # is its function that of an open transform?

    def __init__(self, call: str, f: Callable, args: tuple, second: bool, settings: dict):
        self.given = call, f, tuple([a.copy() if is_array(a) else a for a in args]), second, settings
        self.call, self.second, self.format = call, second, settings["format"]
        self.argnum = argnum_of(call, settings["argnum"], args)
        self.beside: tuple
        self.f, self.beside = (f, ()) if self.argnum == 0 else (with_argument_first(f, self.argnum), (f,))
        self.recorded = self.beside  # f as the recording knows it, also within a transform
        self.dtype: Any = None
        args = self.entered(args)
        checked_input(call, args[0])
        self.dtype, self.shape_in, self.library = args[0].dtype, args[0].shape, xp_of(args[0])
        self.layouts = layouts_of(args)
        self.others = {}  # plans for arrays with another memory layout
        pattern = settings["pattern"]
        with changed(depth=0):
            self.prepared: Prepared = Prepared(
                self.f, args, 0, "record" if pattern is not None else "raise", settings["compile"]
            )
            check = functools.partial(checked_output, call, f, self.dtype, settings["holomorphic"])
            self.found = (
                None
                if pattern is not None
                else FoundPattern(call, self.prepared, args, second, settings["scope"], check)
            )
            value = (
                self.found.value
                if self.found is not None
                else self.asked("grad" if second else "value", *args)
            )
            check(value)
            self.like = value
            shape = (np.size(args[0]) if second else leaf_size(value), np.size(args[0]))
            self.pattern = given_pattern(call, pattern, shape) if self.found is None else self.found.pattern
            if second and self.found is None and (self.pattern != self.pattern.T).nnz:
                raise ArgumentError(f"{call}: the pattern of a Hessian is symmetric; the one given is not")
            self.coloring = self.colored(settings["kind"], settings["order"])
            self.entries = Entries(self.pattern, self.coloring, self.format)
            self.seeds = self.unit_sums()
            self.first = self.products(args)
            self.direct: Any = None if self.asks_directly() else "not asked for"  # or why there is none
            self.spent = 0.0
            self.tracked: Any = None
            if self.found is None and settings["check"]:
                _check.require_entries(self, args)

    def _made(self) -> tuple:
        return Plan, self.given

    @property
    def colors(self) -> int:
        """The number of products in a call."""
        return len(self.coloring)

    @property
    def shape(self) -> tuple:
        """The shape of the matrix."""
        return self.pattern.shape

    def __repr__(self) -> str:
        what = "Hessian" if self.second else "Jacobian"
        return f"<sparse {what} {self.shape}: {self.pattern.nnz} entries, {self.coloring!r}>"

    @property
    def empty_dtype(self) -> Any:
        """The dtype of a result without entries: that of the products that give the columns."""
        return self.dtype if self.second else getattr(self.like, "dtype", self.dtype)

    def entered(self, args: tuple) -> tuple:
        """Return the arguments as the function takes them, the differentiated one first."""
        x, *rest = enter_arguments(args, self.argnum, self.dtype)
        return (x, *self.beside, *rest)

    def colored(self, kind: str | None, order: str) -> Coloring:
        if self.second:
            return coloring_of(self.pattern, kind or "star", order)
        if leaf_dtype(self.like) == "c" and self.dtype.kind != "c":  # J^H w has no imaginary part
            if kind not in (None, "columns"):
                raise ArgumentError(
                    f"{self.call}: a complex function of real numbers is differentiated by columns; not "
                    f"kind={kind!r}"
                )
            kind = "columns"
        return best_coloring(self.pattern, order) if kind is None else coloring_of(self.pattern, kind, order)

    def unit_sums(self) -> list:
        """Return the sums of unit vectors, one array for each side that has colours."""
        made = []
        for colours, shape, dtype in (
            (self.coloring.columns, self.shape_in, self.dtype),
            (self.coloring.rows, np.shape(self.like), getattr(self.like, "dtype", np.dtype(float))),
        ):
            if colours is None or colours.max(initial=-1) < 0:
                made.append(None)
                continue
            seeds = np.zeros((int(colours.max()) + 1, colours.size), dtype)
            used = np.flatnonzero(colours >= 0)
            seeds[colours[used], used] = 1
            made.append(self.library.asarray(seeds.reshape(-1, *shape)))
        return made

    def asked(self, method: str, *args: Any) -> Any:
        """Return a result of the prepared function; raise if it depends on an open transform."""
        y = self.prepared.forms[method](args)
        if is_tracked(y):
            raise ArgumentError(
                f"{self.call}: f captures a value that an open transform follows; make it an argument of f"
            )
        return y

    def products(self, args: tuple) -> Any:
        """Return all products as one flat array."""
        columns, rows = self.seeds
        x, *rest = args
        parts = []
        if columns is not None:
            parts.append(self.asked("smp" if self.second else "jmp", x, columns, *rest).reshape(-1))
        if rows is not None:
            parts.append(self.asked("vmp", x, rows, *rest).conj().reshape(-1))
        if not parts:
            self.asked("grad" if self.second else "value", *args)  # the function may take another branch here
            return self.library.zeros(0, self.empty_dtype)
        return parts[0] if len(parts) == 1 else self.library.concatenate(parts)

    def __call__(self, *args: Any) -> Any:
        """Return the matrix at this point."""
        entered = self.followed_arguments(self.counted(args))
        if entered is not None:
            return self.tracked.matrix(entered)
        entries, data = self.evaluated(args, None)
        return entries.matrix(data, scipy.sparse if self.library is np else load("cupyx.scipy.sparse"))

    def values(self, *args: Any, out: Any = None) -> Any:
        """Return the entries at this point, without a matrix.

        Parameters
        ----------
        *args : object
            The point, as for a call of the plan.
        out : array of shape (nnz,), optional
            Where the entries are written.

        Returns
        -------
        array of shape (nnz,)
            What ``plan(x).data`` holds: row by row, or column by column with format 'csc'.

        Examples
        --------
        >>> import numpy as np, tapegrad as tg
        >>> plan = tg.sparse.prepare_jacobian(lambda x: np.diff(x) ** 2, np.ones(3))
        >>> out = np.empty(plan.pattern.nnz)
        >>> plan.values(np.array([1.0, 2.0, 4.0]), out=out) is out
        True
        >>> out
        array([-2.,  2., -4.,  4.])
        """
        args = self.counted(args)
        if out is not None and (
            xp_of(out) is not self.library or out.shape != (self.pattern.nnz,) or out.dtype.kind not in "fc"
        ):
            raise ArgumentError(f"{self.call}: out= must be an array of {self.pattern.nnz} floats")
        data = self.repeated(args, out)
        if data is not None:
            return data
        entered = self.followed_arguments(args)
        if entered is not None:
            if out is not None:
                raise ArgumentError(
                    f"{self.call}: out= takes no derivatives; leave it away within a transform"
                )
            return self.tracked.values(entered)
        return self.evaluated(args, out)[1]

    def followed_arguments(self, args: tuple) -> tuple | None:
        """Return the arguments as the function takes them if an open transform follows them or it."""
        if not (self.followed or any_variable(args)):
            return None
        entered = self.entered(args)
        if not (self.followed or any_variable(entered)):
            return None
        self.tracked = self.tracked or load("tapegrad.sparse._tracked").TrackedEntries(self)
        return entered

    def counted(self, args: tuple) -> tuple:
        if len(args) <= self.argnum:
            raise ArgumentError(f"{self.call}: the plan was prepared for more than {len(args)} arguments")
        return args

    def evaluated(self, args: tuple, out: Any) -> tuple:
        """Return (the places of the entries, the entries), the latter in `out` if it is given."""
        with changed(depth=0):
            given, args = args, self.entered(args)
            layouts = layouts_of(args)
            if layouts != self.layouts and layouts[0] == self.layouts[0]:
                return self.alike(layouts, given).evaluated(given, out)
            try:
                if self.found is not None:
                    self.found.require(args)
                data = self.directly(args, out)
                if data is None:
                    data = self.entries.values(self.products(args))
            except GuardError as error:
                what = str(error).removeprefix(self.prepared.name).partition("; with on_change")[0]
                what = what.partition(": ")[2] if what.startswith(".") else what
                raise GuardError(
                    f"{self.call}: {what}; the plan is for points where that is otherwise: prepare one for "
                    f"this"
                ) from error
            if out is not None and data is not out:
                out[...] = data
                data = out
            return self.entries, data

    # --- entries from a compiled loop ---

    def asks_directly(self) -> bool:
        """Return whether a compiled loop is possible and allowed."""
        compile = self.given[-1]["compile"]
        return self.found is not None and self.library is np and compile is not False and self.pattern.nnz > 0

    def directly(self, args: tuple, out: Any) -> Any:
        """Return the entries without products, or None if that is impossible or does not pay yet."""
        if type(self.direct) is str:
            return None
        if self.direct is None:
            x, *rest = args
            self.spent += AT_LEAST + EACH * self.colors * (self.pattern.nnz + x.size)
            if self.given[-1]["compile"] != True and self.spent < COMPILING:  # noqa: E712 ('auto')
                return None
            form = self.prepared.forms["hvp" if self.second else "jvp"]
            self.direct = self.directed(form, (x, self.library.zeros_like(x), *rest))
            if type(self.direct) is str:
                return None
        return self.by_loop(args, out)

    def by_loop(self, args: tuple, out: Any) -> Any:
        """Return the entries of the compiled loop, or None if it is for other arguments."""
        kept = self.direct.kept
        values = kept.values((args[0], self.direct.zeros, *args[1:]))
        if values is None or kept.surroundings.changed():
            return None
        in_place = out is not None and self.entries.order is None
        place = out if in_place and out.flags.c_contiguous and out.flags.writeable else None
        data = kept.reading(self.direct, values, place)
        return None if data is None else self.entries.ordered(data)

    def is_loop(self) -> bool:
        """Return whether the compiled loop is all that a call needs."""
        return (
            type(self.direct) is DirectEntries
            and not OPEN.depth
            and not self.argnum
            and self.found is not None
            and self.found.asked is None
            and not self.found.relied
        )

    def repeated(self, args: tuple, out: Any) -> Any:
        """Return the entries where the arguments are as the compiled loop knows them, or None.

        Such a call needs none of the checks of `evaluated`, which cost as much as a small loop."""
        if not self.is_loop():
            return None
        data = self.by_loop(args, out)
        if data is None or out is None or data is out:
            return data
        out[...] = data
        return out

    def unchecked_fill(self, args: tuple, varying: int) -> Callable | None:
        """Return ``fill(out, *args)`` for arguments of which the first ones vary, or None.

        fill compares nothing, so it holds in a block of `OPEN.compared`. It returns False where only `values`
        computes the entries."""
        if not self.is_loop() or self.entries.order is not None:
            return None
        direct = self.direct
        rest = direct.kept.fixed_inputs((args[0], direct.zeros, *args[1:]), varying + 1)
        if rest is None:
            return None
        return lambda out, x, *more: direct([x, direct.zeros, *more, *rest], out) is out

    def directed(self, form: Any, args: tuple) -> "DirectEntries | str":
        """Return the loop, or the reason for having none."""
        x, _, *rest = args
        self.products((x, *rest))  # raise here if the recording takes another branch than the pattern
        form(args)
        if form.eager is not None or not form.programs:
            return "the product cannot be recorded"
        if form.programs[0].recorded.state is not None:
            return "the function keeps something of a call in an object"
        try:
            direct = DirectEntries(form.programs[0], self.pattern, 0 if self.second else 1, 1)
        except NotRowwise as error:
            return str(error)
        direct.zeros = args[1]
        return direct

    def alike(self, layouts: tuple, args: tuple) -> "Plan":
        """Return the plan for this memory layout: f may copy where it has a view here, as in `x.ravel()`."""
        if layouts not in self.others:
            if len(self.others) >= MOST_PLANS:
                self.others.clear()
            call, f, _, second, settings = self.given
            self.others[layouts] = Plan(call, f, args, second, settings)
        return self.others[layouts]

    def matrix(self, products: Any) -> Any:
        module = scipy.sparse if self.library is np else load("cupyx.scipy.sparse")
        return self.entries.matrix(self.entries.values(products), module)

    def pays(self) -> bool:
        """Return whether the sparse matrix costs less than the dense one, in products and in memory."""
        m, n = self.shape
        return 2 * self.colors <= min(m, n) and self.pattern.nnz <= SPARSE_SHARE * m * n

    def warn_if_dense(self) -> None:
        m, n = self.shape
        full = int((2 * np.diff(self.pattern.indptr) >= n).sum())
        if n > SMALL_SYSTEM_UNKNOWNS and full and 2 * self.colors >= min(m, n):
            what = "hessian" if self.second else "jacobian"
            warn_user(
                f"{self.call}: {full} of the {m} rows depend on at least half of the {n} unknowns, so a "
                f"sparse matrix takes {self.colors} products; tapegrad.{what} does it as well",
                DenseWarning,
            )

    def plot(self, ax: Any = None) -> Any:
        """Draw the pattern, each entry in the colour of its product.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
        """
        return plot_pattern(
            self.pattern, self.coloring, f"{self.pattern.nnz} entries, {self.colors} colours", ax
        )


def _shadowed(shadow, x: Plan) -> Plan:
    """Within a transform its function is that whose captured arrays the transform follows."""
    call, f, *rest = x.given
    g = shadow(f)
    if g is f:
        return x
    new = object.__new__(Plan)
    new.__dict__.update(x.__dict__, given=(call, g, *rest), tracked=None, followed=True)
    new.__dict__.update({"beside": (g,)} if x.argnum else {"f": g})
    return new


SHADOW_MAKERS[Plan] = _shadowed
