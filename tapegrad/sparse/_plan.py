"""The public functions of sparse Jacobians and Hessians, and their plans.

A `Plan` finds the pattern and the colours once. Each call then computes products and entries. A plan wraps a
prepared function: the pattern is that of the recorded value or gradient, and products are replayed."""

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy.sparse

from .._core.arrays import is_array, xp_of
from .._core.errors import ArgumentError, DenseWarning, GuardError
from .._core.pickling import PickledByCall
from .._core.primitive import is_tracked, live, seen
from .._core.registry import load
from .._core.scope import OPEN, changed
from .._core.trees import describe_tree, leaves
from .._core.variable import Variable
from .._transforms.call import user_name, where_of
from .._transforms.tape import value as value_of
from ..ops.nondifferentiable import warn_user
from ..replay.form import any_variable
from ..replay.prepared import Prepared
from ..replay.program import guard_holds
from ..replay.record.recorder import Guard
from . import _check
from ._coloring import KINDS, Coloring, best_coloring, checked_words, coloring_of
from ._decompress import Entries
from ._direct import DirectEntries
from ._pattern import SCOPES, DependencySets, asked_of, given_pattern
from ._pictures import plot_pattern
from ._rows import NotRowwise

Format = Literal["csr", "csc", "coo"]
FORMATS = ("csr", "csc", "coo")
OF_JACOBIANS, OF_HESSIANS = KINDS[:3], KINDS[3:]
HIDDEN = "{}: vmap and recording hide the values that decide the pattern; prepare the plan before, and call it there"
MOST_PLANS = 8  # plans for other memory layouts, at most
AT_LEAST, EACH, COMPILING = 1e5, 1.0, 2e8  # ns: products, at least; a colour and entry; a compilation
SPARSE_SHARE = 0.2  # of all entries, above which a dense matrix is cheaper
SMALL_SYSTEM_UNKNOWNS = 16  # unknowns below which no check asks whether a sparse matrix pays


class FoundPattern:
    """The pattern of a recorded function at one point, with the conditions under which it holds."""

    def __init__(self, call: str, prepared: Prepared, args: tuple, second: bool, scope: str, check: Callable):
        form = prepared.forms["grad" if second else "value"]
        self.call, self.scope, self.form = call, scope, form
        try:
            with changed(watcher=None):
                self.value = form(args)
        except GuardError as error:
            raise GuardError(f"{call}: no pattern can be found: {error}; give pattern=") from error
        check(self.value)
        self.kept = form.programs[0]
        if self.kept.program.generators:
            raise GuardError(
                f"{call}: the function draws random numbers, others for each product; draw them outside, as "
                f"an argument"
            )
        self.shape = (np.size(args[0]) if second else leaf_size(self.value), np.size(args[0]))
        carried = self.carried(args)
        self.pattern = self.read(carried)
        program = self.kept.program
        self.relied = [(array, array.copy(order="K")) for k, array in program.captured if k in carried.relied]
        self.asked = asked_of(program, sorted(carried.conditions))
        self.branches = asked_of(program, sorted(carried.conditions), program.guards)
        self.conditions = [carried.value(k).copy() for k in sorted(carried.conditions)]

    def carried(self, args: tuple) -> DependencySets:
        return DependencySets(self.kept.program, self.values(args), self.scope)

    def values(self, args: tuple) -> list:
        values = self.kept.signature.values(args)
        if values is None:
            raise GuardError(f"the call has {self.kept.signature.difference(args)}")
        return values

    def read(self, carried: DependencySets) -> scipy.sparse.csr_array:
        p = carried.matrix(self.value.shape if is_array(self.value) else ())
        if self.form.method == "grad":  # symmetric, because it is a Hessian
            p = given_pattern(self.call, (p + p.T).tocsr(), p.shape)
        return p

    def depends_on_values(self) -> bool:
        """Return whether the pattern may fail to hold at another point."""
        return self.branches is not None or bool(self.relied)

    def require(self, args: tuple, branches: bool = False) -> None:
        """Raise GuardError if the pattern does not hold at this point.

        A replay checks the branches of the function itself; `branches` checks them here."""
        asked = self.branches if branches else self.asked
        if asked is not None:
            values = self.values(args)
            try:
                found = asked.run(values)
            except Exception:
                return  # an operation raised; the products report it
            if type(found) is Guard or not all(
                [guard_holds(a, b) for a, b in zip(found[0], self.conditions, strict=True)]
            ):
                raise GuardError(
                    "a branch or an index differs from that at the point of the pattern, which has "
                    "scope='local' (scope='global' is for all branches of numpy.where)"
                    if self.scope == "local"
                    else f"{found}"
                    if type(found) is Guard
                    else "an index among the arguments differs from that at the point of the pattern"
                )
        if not all([guard_holds(a, b) for a, b in self.relied]):
            now = self.read(self.carried(args))
            if (now.astype(np.int8) - self.pattern.astype(np.int8) > 0).nnz:
                raise GuardError("a captured array has changed, and with it the pattern")
            self.relied = [(a, a.copy(order="K")) for a, _ in self.relied]


def leaf_size(y: Any) -> int:
    return int(np.prod(np.shape(y)))


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

    def __init__(self, call: str, f: Callable, args: tuple, second: bool, settings: dict):
        self.given = call, f, tuple([a.copy() if is_array(a) else a for a in args]), second, settings
        self.call, self.second, self.format = call, second, settings["format"]
        self.argnum = argnum_of(call, settings["argnum"], args)
        self.beside: tuple
        self.f, self.beside = (f, ()) if self.argnum == 0 else (with_argument_first(f, self.argnum), (f,))
        self.dtype: Any = None
        args = self.entered(args)
        checked_input(call, args[0])
        self.dtype, self.shape_in, self.library = args[0].dtype, args[0].shape, xp_of(args[0])
        self.layouts = layouts_of(args)
        self.others: dict = {}  # plans for arrays with another memory layout
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
            if settings["check"]:
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
        made: list[Any] = []
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
            return self.library.zeros(0, self.dtype)
        return parts[0] if len(parts) == 1 else self.library.concatenate(parts)

    def __call__(self, *args: Any) -> Any:
        """Return the matrix at this point."""
        args = self.counted(args)
        if any_variable(args) and any_variable(args := self.entered(args)):
            self.tracked = self.tracked or load("tapegrad.sparse._tracked").TrackedEntries(self)
            return self.tracked.matrix(args)
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
        if any_variable(args) and any_variable(args := self.entered(args)):
            if out is not None:
                raise ArgumentError(
                    f"{self.call}: out= takes no derivatives; leave it away within a transform"
                )
            self.tracked = self.tracked or load("tapegrad.sparse._tracked").TrackedEntries(self)
            return self.tracked.values(args)
        return self.evaluated(args, out)[1]

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
        data = self.direct(values, place)
        return None if data is None else self.entries.ordered(data)

    def repeated(self, args: tuple, out: Any) -> Any:
        """Return the entries where the arguments are as the compiled loop knows them, or None.

        Such a call needs none of the checks of `evaluated`, which cost as much as a small loop."""
        if (
            type(self.direct) is not DirectEntries
            or OPEN.depth
            or self.argnum
            or self.found is None
            or self.found.asked is not None
            or self.found.relied
        ):
            return None
        data = self.by_loop(args, out)
        if data is None or out is None or data is out:
            return data
        out[...] = data
        return out

    def directed(self, form: Any, args: tuple) -> "DirectEntries | str":
        """Return the loop, or the reason for having none."""
        x, _, *rest = args
        self.products((x, *rest))  # raise here if the recording takes another branch than the pattern
        form(args)
        if form.eager is not None or not form.programs:
            return "the product cannot be recorded"
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


def argnum_of(call: str, argnum: Any, args: tuple) -> int:
    if type(argnum) is not int or not -len(args) <= argnum < len(args):
        raise ArgumentError(f"{call}: argnum={argnum!r}, and {len(args)} arguments were given")
    return argnum % len(args)


def enter_arguments(args: tuple, argnum: int, dtype: Any) -> tuple:
    """Return the arguments, the differentiated one first; other numbers become NumPy scalars, which may
    vary."""
    args = tuple([value_of(a) if isinstance(a, Variable) and live(a)._trace is None else a for a in args])
    x = args[argnum]
    if any_variable(args):
        return (x, *[a for k, a in enumerate(args) if k != argnum])
    if not is_array(x):
        x = np.asarray(x, dtype)
    elif dtype is not None and x.dtype.kind in "iu":
        x = x.astype(dtype)
    rest = [
        x.dtype.type(a) if type(a) is float and x.dtype.kind in "fc" else a
        for k, a in enumerate(args)
        if k != argnum
    ]
    return (x, *rest)


def layouts_of(args: tuple) -> tuple:
    """Return (shapes, strides) of the arrays among the arguments."""
    arrays = [a for a in args if is_array(a)]
    return tuple([a.shape for a in arrays]), tuple([a.strides for a in arrays])


def with_argument_first(f: Callable, argnum: int) -> Callable:
    """Return f with that argument first, and f itself second.

    As an argument, f has its captured objects followed like those of any function."""

    def first(x, f, *rest):
        return f(*rest[:argnum], x, *rest[argnum:])

    first.__name__ = user_name(f)
    return first


def checked_input(call: str, x: Any) -> None:
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentError(f"{call}: x is a masked array, and masks have no derivative; pass x.filled(v)")
    if x.dtype.kind not in "fc":
        raise ArgumentError(
            f"{call}: x has dtype {x.dtype}, which has no derivative; pass an array of floats, "
            f"x.astype(float)"
        )


def checked_output(call: str, f: Callable, dtype: Any, holomorphic: bool, y: Any) -> None:
    if not (is_array(y) or isinstance(y, (np.generic, float, complex))):
        raise ArgumentError(
            f"{call}: {user_name(f)}{where_of(f)} returned {describe_tree(y)}, {len(leaves(y))} leaves; a "
            "sparse matrix is that of one array: join them by numpy.concatenate"
        )
    if dtype.kind == "c" and not (
        holomorphic and np.asarray(y).dtype.kind == "c"
        if not is_array(y)
        else holomorphic and y.dtype.kind == "c"
    ):
        raise ArgumentError(
            f"{call}: a function of complex arguments needs holomorphic=True, and a complex value; else "
            f"split it in two"
        )


def leaf_dtype(y: Any) -> str:
    return y.dtype.kind if hasattr(y, "dtype") else np.asarray(y).dtype.kind


def make_plan(call: str, f: Callable, args: tuple, second: bool, settings: dict) -> Plan:
    call = f"sparse.{call}({user_name(f)})"
    if not args:
        raise ArgumentError(f"{call}: give x, an array like those of the calls to come")
    kinds = OF_HESSIANS if second else OF_JACOBIANS
    checked_words(call, settings["kind"], kinds, settings["order"])
    for name, words in (("scope", SCOPES), ("format", FORMATS)):
        if settings[name] not in words:
            raise ArgumentError(
                f"{call}: {name}={settings[name]!r}; it is one of {', '.join(map(repr, words))}"
            )
    if settings["compile"] not in (True, False, "auto"):
        raise ArgumentError(f"{call}: compile={settings['compile']!r}; it is True, False or 'auto'")
    if settings["check"] and settings["pattern"] is None:
        raise ArgumentError(
            f"{call}: check=True is for a pattern that is given; the one that is found needs no check"
        )
    plan = Plan(call, f, plain_point_of(call, args), second, settings)
    plan.warn_if_dense()
    return plan


def prepare_jacobian(
    f: Callable,
    *args: Any,
    argnum: int = 0,
    pattern: Any = None,
    check: bool = False,
    scope: Literal["global", "local"] = "global",
    kind: Literal["columns", "rows", "both"] | None = None,
    order: str = "natural",
    format: Format = "csr",
    compile: bool | Literal["auto"] = "auto",
    holomorphic: bool = False,
) -> Plan:
    """Find the pattern and the colours of a Jacobian, for values at any point.

    Parameters
    ----------
    f : callable
        A function that returns one array.
    *args : object
        Arguments like those of the calls to come.
    argnum : int, default 0
        The argument to differentiate, an array of float dtype.
    pattern : sparse matrix or array of bool, optional
        The positions of the possible entries, of shape (y.size, x.size). By default f is followed to find
        them.
    check : bool, default False
        Whether a given pattern is compared with f.
    scope : {'global', 'local'}, default 'global'
        'global': the pattern holds for both branches of numpy.where, and for all places to which an index
        that depends on x may point. 'local': for this point, which may have fewer entries.
    kind, order : str, optional
        As for `coloring`; chosen by default.
    format : {'csr', 'csc', 'coo'}, default 'csr'
        The class of the matrices.
    compile : bool or 'auto', default 'auto'
        Whether products are compiled into loops, as for `tapegrad.prepare`.
    holomorphic : bool, default False
        Whether f is a complex differentiable function of complex x.

    Returns
    -------
    Plan
        ``plan(x)`` is the matrix, of shape (y.size, x.size), elements in C order. `plan.pattern`,
        `plan.coloring`, `plan.colors` (the number of products) and ``plan.plot()`` show what was found.

    Raises
    ------
    ArgumentError
        If `check` finds a missing entry, or x has no derivative.
    GuardError
        If no pattern can be found; and in a call, if an ``if`` in f takes another branch, shapes differ, or,
        with a local scope, the pattern does not hold.

    See Also
    --------
    jacobian : For one point.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> plan = tg.sparse.prepare_jacobian(lambda x: np.diff(x) ** 2, np.ones(4))
    >>> plan(np.array([1.0, 2.0, 4.0, 8.0])).toarray()
    array([[-2.,  2.,  0.,  0.],
           [ 0., -4.,  4.,  0.],
           [ 0.,  0., -8.,  8.]])
    >>> plan.colors
    2
    """
    plan = make_plan("prepare_jacobian", f, args, False, settings_of(locals()))
    plan.first = None
    return plan


def prepare_hessian(
    f: Callable,
    *args: Any,
    argnum: int = 0,
    pattern: Any = None,
    check: bool = False,
    scope: Literal["global", "local"] = "global",
    kind: Literal["star", "acyclic"] | None = None,
    order: str = "natural",
    format: Format = "csr",
    compile: bool | Literal["auto"] = "auto",
) -> Plan:
    """Find the pattern and the colours of a Hessian, for values at any point.

    Parameters
    ----------
    f : callable
        A function that returns a real scalar.
    *args : object
        Arguments like those of the calls to come.
    argnum : int, default 0
        The argument to differentiate, an array of a real float dtype.
    pattern, check, scope, order, format, compile : optional
        As for `prepare_jacobian`. A given pattern is symmetric.
    kind : {'star', 'acyclic'}, optional
        As for `coloring`; chosen by default.

    Returns
    -------
    Plan
        ``plan(x)`` is the matrix, of shape (x.size, x.size), elements in C order.

    Raises
    ------
    ArgumentError, GuardError
        As for `prepare_jacobian`.

    See Also
    --------
    hessian : For one point.
    tapegrad.operators.hessian : Products without the matrix.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> plan = tg.sparse.prepare_hessian(lambda x: (np.diff(x) ** 3).sum(), np.ones(3))
    >>> plan(np.array([1.0, 2.0, 4.0])).toarray()
    array([[  6.,  -6.,   0.],
           [ -6.,  18., -12.],
           [  0., -12.,  12.]])
    """
    plan = make_plan("prepare_hessian", f, args, True, settings_of(locals()))
    plan.first = None
    return plan


WHERE = {"argnum": 0, "pattern": None, "check": False, "scope": "global"}
OPTIONS = {
    **WHERE,
    "kind": None,
    "order": "natural",
    "format": "csr",
    "compile": "auto",
    "holomorphic": False,
}


def settings_of(given: dict) -> dict:
    return {**OPTIONS, **{name: v for name, v in given.items() if name in OPTIONS}}


def at_once(call: str, f: Callable, args: tuple, second: bool, options: dict) -> Any:
    for name in options:
        if name not in OPTIONS or (second and name == "holomorphic"):
            raise ArgumentError(
                f"sparse.{call}({user_name(f)}): there is no option {name!r}; see sparse.prepare_{call}"
            )
    plan = make_plan(call, f, args, second, settings_of(options))
    return plan(*args) if any_variable(args) else plan.matrix(plan.first)


def plain_point(x: Any) -> Any:
    """Return the plain value of an argument, in C order, or None if a trace hides it."""
    if not isinstance(x, Variable):
        return x
    plain = seen(x)
    return plain if plain is None or isinstance(plain, np.generic) else np.ascontiguousarray(plain)


def plain_point_of(call: str, args: tuple) -> tuple:
    """Return the plain values of the arguments; raise where a trace hides them."""
    point = tuple([plain_point(a) for a in args])
    if any([a is None for a in point]):
        raise ArgumentError(HIDDEN.format(call))
    return point


def jacobian(f: Callable, *args: Any, **options: Any) -> Any:
    """Compute the Jacobian of f at one point as a sparse matrix.

    Parameters
    ----------
    f : callable
        A function that returns one array.
    *args : object
        The point and further arguments of f.
    **options : object
        Options of `prepare_jacobian`.

    Returns
    -------
    scipy.sparse.csr_array
        The Jacobian, of shape (y.size, x.size), elements in C order. `format` chooses another class. For
        CuPy arrays it is a matrix of cupyx.

    Raises
    ------
    ArgumentError
        If an option is unknown, or x has no derivative.
    GuardError
        If no pattern can be found.

    See Also
    --------
    prepare_jacobian : For many points.
    tapegrad.jacobian : The dense matrix.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.jacobian(lambda x: np.diff(x) ** 2, np.array([1.0, 2.0, 4.0])).toarray()
    array([[-2.,  2.,  0.],
           [ 0., -4.,  4.]])
    """
    return at_once("jacobian", f, args, False, options)


def hessian(f: Callable, *args: Any, **options: Any) -> Any:
    """Compute the Hessian of a real scalar function at one point as a sparse matrix.

    Parameters
    ----------
    f : callable
        A function that returns a real scalar.
    *args : object
        The point and further arguments of f.
    **options : object
        Options of `prepare_hessian`.

    Returns
    -------
    scipy.sparse.csr_array
        The Hessian, of shape (x.size, x.size), elements in C order. `format` chooses another class.

    Raises
    ------
    ArgumentError
        If an option is unknown, or x has no derivative.
    GuardError
        If no pattern can be found.

    See Also
    --------
    prepare_hessian : For many points.
    tapegrad.hessian : The dense matrix.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.hessian(lambda x: (x ** 3).sum(), np.array([1.0, 2.0])).toarray()
    array([[ 6.,  0.],
           [ 0., 12.]])
    """
    return at_once("hessian", f, args, True, options)


def pattern(
    f: Callable,
    *args: Any,
    argnum: int = 0,
    scope: Literal["global", "local"] = "global",
    second: bool = False,
) -> scipy.sparse.csr_array:
    """Find the entries of a Jacobian or a Hessian that can differ from zero.

    Parameters
    ----------
    f : callable
        A function that returns one array, or with `second` a real scalar.
    *args : object
        The point and further arguments of f.
    argnum : int, default 0
        The argument to differentiate.
    scope : {'global', 'local'}, default 'global'
        'global': for both branches of numpy.where, and for all places to which an index that depends on x may
        point. 'local': at this point.
    second : bool, default False
        Whether the pattern is that of the Hessian.

    Returns
    -------
    scipy.sparse.csr_array
        A matrix of booleans, of shape (y.size, x.size), or (x.size, x.size) with `second`.

    Raises
    ------
    GuardError
        If the function cannot be followed.

    See Also
    --------
    coloring : Groups the columns or rows.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.pattern(lambda x: x[1:] * x[:-1], np.ones(3)).toarray().astype(int)
    array([[1, 1, 0],
           [0, 1, 1]])
    """
    call = f"sparse.pattern({user_name(f)})"
    if scope not in SCOPES:
        raise ArgumentError(f"{call}: scope={scope!r}; it is one of {', '.join(map(repr, SCOPES))}")
    if not args:
        raise ArgumentError(f"{call}: give x")
    k = argnum_of(call, argnum, args)
    x, *rest = enter_arguments(plain_point_of(call, args), k, None)
    checked_input(call, x)
    args = (x, *rest) if k == 0 else (x, f, *rest)
    with changed(depth=0):
        check = functools.partial(checked_output, call, f, np.dtype(float), True)
        return FoundPattern(
            call,
            Prepared(f if k == 0 else with_argument_first(f, k), args, 0, "raise"),
            args,
            second,
            scope,
            check,
        ).pattern
