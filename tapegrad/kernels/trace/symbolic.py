"""Sym: a small array of graph nodes, which acts as a NumPy array while a kernel is traced.

It supports NumPy's operators, ufuncs and functions through NumPy's protocols, indexing, and in-place writes.
It refuses a Python `if` on a value that is unknown while tracing, and conversion to a number.

A function of numbers and its derivatives are those that ops/ declares (`Operation`). Functions of whole
arrays register in the tables `FUNCTIONS`, `COMPOSED` and `REDUCE`, from `array_functions` and `linalg`."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.abstract_arrays import hollow, hollow_number
from ..._core.errors import KernelError
from ..._core.primitive import HIDDEN, READ, Primitive, Trace, layout_of, lower
from ..._core.trees import children, is_node, rebuilt
from ..._core.variable import Variable, variable
from ...ops.declare import NUMPY, PRIMITIVES, ComposedScalar, GatedProduct, signature_of
from ...ops.protocols import adapter_of, function_for
from ..graph.blocks import ELEMENT
from ..graph.booleans import BITWISE, LOGICAL
from ..graph.lengths import WRITTEN
from ..graph.nodes import OPERATIONS, Graph
from ..graph.recipes import Recipe

FUNCTIONS: dict = {}  # NumPy or SciPy function -> ours
COMPOSED: dict = {}  # ufunc -> ours
REDUCE: dict = {}  # ufunc -> its reduction
ARRAYS: dict = {}  # operation of ops/ on whole arrays -> ours, as used by rules
MOST_SELECTS = 8  # elements of an axis, of which a chain of selects finds one
COMPLEX: dict = {}  # "ufunc", "function" -> what `complex_numbers` does where an operand is complex


class UnknownNumber(KernelError):
    """A number was needed that is known only when the kernel runs."""


class UnsupportedFunction(KernelError):
    """A function that kernels do not support."""

    def __init__(self, name: str):
        super().__init__(f"{name} has no translation into a kernel; write it with elementary operations")


class Symbolic(np.lib.mixins.NDArrayOperatorsMixin):
    """What is traced into the graph `g`."""

    g: Graph


class Sym(Symbolic):
    """A symbolic array: node numbers, and names of elements of blocks, in an array of its shape."""

    __array_priority__ = 2000
    product: Any = None  # (A, B) where this is A @ B, for symmetry
    zero_d = False  # of one number: is it an array of no axes, which NumPy writes in place, and not a scalar?

    def __init__(self, g: Graph, ids):
        self.g, self.ids = g, np.asarray(ids, dtype=np.int64)

    # `isinstance` asks for it; a symbol answers as what it stands for, as a Variable does
    __class__ = property(
        lambda self: np.ndarray if self.ndim or self.zero_d else np.bool_ if self.is_bool else np.float64
    )
    nodes = property(lambda self: self.g.nodes_of(self.ids))  # a node for each element, also of blocks
    node_list = property(lambda self: self.nodes.ravel().tolist())
    shape = property(lambda self: self.ids.shape)
    ndim = property(lambda self: self.ids.ndim)
    size = property(lambda self: self.ids.size)
    dtype = property(lambda self: np.dtype(bool) if self.is_bool else np.dtype(float))
    real = property(lambda self: as_real_symbol(self))
    imag = property(lambda self: lift(self.g, np.zeros(self.shape)))
    T = property(lambda self: Sym(self.g, self.ids.T))
    mT = property(lambda self: Sym(self.g, self.ids.swapaxes(-1, -2)))
    flat = property(lambda self: iter(self.reshape(-1)))

    @property
    def is_bool(self) -> bool:
        return self.size > 0 and self.g.boolean_name(int(self.ids.flat[0]))

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a scalar")
        return len(self.ids)

    def __iter__(self):
        if not self.ndim:
            raise TypeError("iteration over a scalar")
        return (Sym(self.g, i) for i in self.ids)

    def __repr__(self) -> str:
        return f"Sym{self.shape}"

    def copy(self, order="C") -> "Sym":
        return Sym(self.g, self.ids.copy(order))

    __copy__ = copy

    def astype(self, dtype, copy: bool = True) -> "Sym":
        if np.dtype(dtype).kind == "f":
            x = as_real_symbol(self)
            return x.copy("K") if copy and x is self else x
        raise KernelError(f"a kernel computes with real numbers: astype({np.dtype(dtype)}) cannot be traced")

    def _as_move(name: Any):
        return lambda self, *args: Sym(self.g, getattr(self.ids, name)(*args))

    reshape, ravel, flatten, transpose = map(_as_move, ("reshape", "ravel", "flatten", "transpose"))
    del _as_move

    def _as_function(name: Any):
        f = getattr(np, name)

        def method(self, *args, **kwargs):
            return f(self, *args, **kwargs)

        return method

    for _name in ("sum", "mean", "prod", "max", "min", "std", "var", "argmax", "argmin", "any", "all",
    "cumsum", "cumprod", "clip", "round",
                  "diagonal", "trace", "squeeze", "swapaxes", "repeat", "take"):  # fmt: skip
        locals()[_name] = _as_function(_name)
    del _name, _as_function

    def __round__(self, ndigits=0):
        return np.round(self, ndigits or 0)

    def dot(self, other):
        return self @ other if self.ndim else self * other

    # --- indexing ---

    def __getitem__(self, key) -> "Sym":
        keys = key if isinstance(key, tuple) else (key,)
        keys = tuple([constant_index(k) for k in keys])
        if not any(isinstance(k, Sym) for k in keys):
            ids = self.ids[keys]
            return as_symbol_array(Sym(self.g, ids)) if type(ids) is np.ndarray else Sym(self.g, ids)
        x = self._chosen(keys)
        return RuntimeView(self, keys) if x.ndim else x

    def _chosen(self, keys: tuple) -> "Sym":
        """Return x[i] with i known at run time, nan out of range.

        Along a short axis it is a chain of selects."""
        at = _symbolic_axis(keys)
        x, n, out = as_real_symbol(self), self.shape[at], np.nan
        i = symbolic_where(keys[at] < 0, keys[at] + n, keys[at])
        if n > MOST_SELECTS and not self.is_bool and all([isinstance(k, (int, slice, Sym)) for k in keys]):
            rows = x.ids[keys[:at] + (slice(None),) + keys[at + 1 :]]
            axis = sum([isinstance(k, slice) for k in keys[:at]])
            return Sym(x.g, x.g.entries(rows, axis, as_real_symbol(i).node_list[0]))
        for k in range(n):
            out = symbolic_where(equal(i, k), Sym(self.g, x.ids[keys[:at] + (k,) + keys[at + 1 :]]), out)
        return symbolic_where(out, True, False) if self.is_bool else lift(self.g, out)

    def __setitem__(self, key, value) -> None:
        keys = key if isinstance(key, tuple) else (key,)
        keys = tuple([constant_index(k) for k in keys])
        if not self.ids.flags.writeable:
            raise KernelError(
                "a view of x[i] is written, with i known only at run time: write x[i][j] = y, or take a copy"
            )
        if not any(isinstance(k, Sym) for k in keys):
            self.ids[keys] = self._as_member(value).ids
            return
        at = _symbolic_axis(keys)
        n = self.shape[at]
        i = symbolic_where(keys[at] < 0, keys[at] + n, keys[at])
        value, lost = self._as_member(value), False
        if not self.is_bool:  # out of range the array becomes nan, as the written value is lost
            lost = np.logical_not((i >= 0) & (i < n) & equal(np.floor(i), i))
        for k in range(n):
            place = keys[:at] + (k,) + keys[at + 1 :]
            kept = Sym(self.g, self.ids[place])
            self.ids[place] = symbolic_where(
                equal(i, k), value, kept if lost is False else symbolic_where(lost, np.nan, kept)
            ).ids

    def _as_member(self, value) -> "Sym":
        """Convert `value` to an element of this array."""
        value = lift(self.g, value)
        if self.is_bool:
            return truth(value)
        return as_real_symbol(value)

    # --- refused operations ---

    def constant(self) -> np.ndarray | None:
        """Return the array of numbers if all are known while tracing, otherwise None."""
        g = self.g
        if any(i >= ELEMENT or g.op[i] not in ("const", "bool") for i in self.ids.flat):
            return None
        values = [g.args[i][0] for i in self.ids.flat]
        return np.array(values, dtype=None if values else float).reshape(self.shape)

    def _unknown(self, what: str) -> UnknownNumber:
        only = "on a value that is known only when the kernel runs. The function is traced for all samples"
        how = "np.where(condition, a, b) for a choice, tapegrad.kernels.loop or while_loop for a loop"
        return UnknownNumber(f"{what} {only}: write {how}, np.log for math.log")

    def _number(self, what: str) -> Any:
        c = self.constant()
        if c is None:
            raise self.g.refused(self._unknown(what))
        return c.item()

    def __bool__(self):
        what, branches = "`if`, `while`, `and`, `or` or bool()", self.g.branches
        if branches is None or self.size != 1 or self.constant() is not None:
            return bool(self._number(what))
        return branches.decide(truth(self).node_list[0], self._unknown(what))

    def __float__(self):
        return float(self._number("float(), or writing into an array made outside of the kernel function,"))

    def __int__(self):
        return int(self._number("int()"))

    def __index__(self):
        c = self._number("an index or range()")
        if c != int(c):
            raise TypeError("an index must be a whole number")
        return int(c)

    def item(self):
        return self.reshape(()) if self.size == 1 else self.__float__()

    real_number = property(lambda self: as_real_symbol(self.item()))  # `float(self)` in code that is followed

    def __array__(self, *args, **kwargs):
        c = self.constant()
        if c is None:
            raise self.g.refused(
                UnknownNumber(
                    "a traced value cannot become a NumPy array. Make small arrays in the function by "
                    "np.zeros or np.array; where the line "
                    "calls a function of another library, write its formula in NumPy's functions"
                )
            )
        return c

    __hash__ = object.__hash__

    # --- NumPy's protocols ---

    def __array_ufunc__(self, ufunc, method: str, *x, **kwargs):
        if is_complex(x) and method == "__call__" and not kwargs:
            return COMPLEX["ufunc"](self.g, ufunc, x)
        out = kwargs.pop("out", None)
        reduces = method == "reduce" and ufunc in REDUCE and not kwargs.keys() - {"axis"}
        if not reduces and (method != "__call__" or kwargs):
            raise self.g.refused(
                KernelError(
                    f"{public_name(ufunc)}.{method} with {sorted(kwargs)} cannot be traced into a kernel"
                )
            )
        if reduces:
            y = REDUCE[ufunc](x[0], kwargs.get("axis", 0))
        elif ufunc in COMPOSED:
            y = COMPOSED[ufunc](*x)
        elif ufunc in LOGICAL and all([lift(self.g, a).is_bool for a in x]):
            operation = LOGICAL[ufunc]
            if operation is None:
                raise TypeError(
                    f"{public_name(ufunc)}: NumPy has no difference of values that are true or false; write "
                    "np.logical_xor or np.logical_not"
                )
            y = broadcast_instruction(self.g, operation, *x)
        elif ufunc in BITWISE:
            raise self.g.refused(
                KernelError(
                    f"{public_name(ufunc)} of numbers cannot be traced into a kernel; of conditions it can"
                )
            )
        else:
            y = apply_operation(self.g, ufunc, x)
        return apart(y, x) if out is None else stored(out, y)

    def __array_function__(self, f: Callable, types, args: tuple, kwargs: dict):
        if is_complex(args):
            return COMPLEX["function"](self.g, f, args, kwargs)
        ours, theirs, out = FUNCTIONS.get(f), function_for(f), None
        if ours is None and theirs is None:
            raise self.g.refused(UnsupportedFunction(public_name(f)))
        if theirs is not None:
            out, args, kwargs = adapter_of(f, theirs).without_out(args, kwargs)
        y = apply_operation(self.g, f, args, kwargs) if ours is None else ours(*args, **kwargs)
        if type(y) is np.ndarray and y.dtype.kind == "f":  # of a creation function
            y = as_symbol_array(lift(self.g, y))
        return stored(out, y)

    def _in_place(name: Any):
        op = getattr(operator, name)

        def method(self, other):
            y = op(self, other)
            if self.ndim == 0 and not self.zero_d:
                return y
            self[...] = y
            return self

        return method

    for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"):
        locals()[f"__i{_name.rstrip('_')}__"] = _in_place(_name)
    del _name, _in_place


class RuntimeView(Sym):
    """x[i], an array with i known at run time, a view as in NumPy. A write goes through to x. x, `parent`, is
    read again once it was written. `keys`: the index; `before`: the nodes of x when it was read."""

    held: np.ndarray

    def __init__(self, parent: Sym, keys: tuple):
        self.g, self.parent, self.keys = parent.g, parent, keys
        self.before: Any = None

    def _read(self) -> np.ndarray:
        now = self.parent.ids
        if self.before is None or not np.array_equal(now, self.before):
            self.before = now.copy()
            runtime = any([isinstance(k, Sym) for k in self.keys])
            self.held = (self.parent._chosen(self.keys).ids if runtime else now[self.keys]).view()
            self.held.flags.writeable = False
        return self.held

    ids: Any = property(_read)

    def __getitem__(self, key) -> Sym:
        x = super().__getitem__(key)
        keys = tuple([constant_index(k) for k in (key if isinstance(key, tuple) else (key,))])
        views = all([isinstance(k, (int, slice, Sym)) or k is None or k is Ellipsis for k in keys])
        return RuntimeView(self, keys) if x.ndim and views and type(x) is Sym else x

    def __setitem__(self, key, value) -> None:
        x = self.copy()
        x[key] = value
        self.parent[self.keys] = x


def public_name(f) -> str:
    """Return the name that users know; SciPy's ufuncs do not tell their module."""
    if not isinstance(f, np.ufunc):
        return f.__module__ + "." + f.__name__
    return f"{'np' if getattr(np, f.__name__, None) is f else 'scipy.special'}.{f.__name__}"


class Symbols(Trace):
    """Runs rules and compositions of ops/ on symbols; it meets operations by name, not NumPy's functions.

    The slot of a Variable is its symbol, the value an abstract value."""

    __slots__ = ()
    visibility = HIDDEN  # rules choose by `select`

    def __init__(self, inside: tuple = ()) -> None:
        super().__init__()
        self.inside = inside  # the operations whose bodies run
        self.gated = False  # was a product gated?

    def values(self, x):
        raise UnknownNumber("its rule asks for values, which are known only when the kernel runs")

    def run(self, f: Callable, x, params: dict):
        """Call f with symbols, also in lists and tuples; return symbols. What f writes is written."""
        given, named = self.wrapped(tuple(x)), {k: self.wrapped(v) for k, v in params.items()}
        try:
            out = self.unwrapped(f(*given, **named))
            for old, handle in zip((*x, *params.values()), (*given, *named.values()), strict=True):
                if isinstance(old, Sym) and (now := self.unwrapped(handle)) is not old:
                    old[...] = now  # f wrote it
            return out
        finally:
            self.close()

    def wrapped(self, x):
        if type(x) in (list, tuple):
            return type(x)([self.wrapped(v) for v in x])
        return self.made(x) if isinstance(x, Sym) else x

    def unwrapped(self, x):
        if is_node(x):
            return rebuilt(x, [self.unwrapped(v) for v in children(x)])
        layout_of(x)  # a view reads its base
        below, symbol = lower(x, self)
        return below if symbol is None else symbol

    def made(self, x: Sym) -> Variable:
        """Return a Variable of this symbol."""
        d = x.dtype
        if not x.ndim and not x.zero_d:
            return variable(hollow_number(d), self, x)
        strides = tuple([s * d.itemsize // x.ids.itemsize for s in x.ids.strides])
        return variable(hollow(np, x.shape, d, strides), self, x)

    def step(self, prim: Primitive, args, inputs, slots, params: dict):
        x = [v if s is None else s for v, s in zip(inputs, slots, strict=True)]
        y = self.applied(prim, x, params)
        return self.wrapped(y if prim.aliases or prim is READ else apart(y, x))

    def applied(self, prim: Primitive, x: list, params: dict):
        """Return the symbols of the results."""
        f, g, whole = prim.scalar, graph_of(*x), ARRAYS.get(prim)
        if whole is not None:
            return whole(*x, **params)
        if prim.opened is not None:
            return type(self)(self.inside).run(prim.opened, x, params)
        self.gated = self.gated or isinstance(f, GatedProduct)
        if isinstance(f, ComposedScalar):
            return f.form(*[lift(g, v) for v in x], **params)
        own: Any = f or next(
            (ours for theirs, ours in COMPOSED.items() if getattr(NUMPY.get(theirs), "prim", None) is prim),
            None,
        )
        if own is not f:
            return own(*x, **params)
        if f is None and (prim in self.inside or prim.batch != "elementwise"):
            raise UnsupportedFunction(prim.name)
        name, n = instruction(prim, params, self.inside)
        return broadcast_instruction(g, name, *x[:n])


class Compositions(Symbols):
    """Runs the functions of ops/ that are composed of operations."""

    __slots__ = ()

    def without_derivatives(self, x: Variable) -> Variable:
        return x if x._slot.is_bool else self.made(broadcast_instruction(x._slot.g, "primal", x._slot))


def apply_operation(g: Graph, f, x: tuple, settings: dict | None = None):
    """Apply NumPy's or SciPy's function f, by its operation or its composition in ops/."""
    ours = function_for(f)
    prim = getattr(ours, "prim", None)
    form = getattr(prim, "scalar", None)
    if isinstance(f, np.ufunc) and isinstance(form, str):
        return broadcast_instruction(g, form, *x)
    if isinstance(f, np.ufunc) and isinstance(form, ComposedScalar):
        return form.form(*[lift(g, v) for v in x])
    if ours is None:
        raise UnsupportedFunction(public_name(f))
    try:
        return Compositions().run(ours, x, settings or {})
    except UnsupportedFunction:
        raise UnsupportedFunction(public_name(f)) from None


class Operation:
    """An operation of ops/ as an instruction of the graph. Its declaration runs once, and is kept."""

    def __init__(self, prim: Primitive, params: dict, inside: tuple = ()):
        self.prim, self.params, self.inputs = prim, params, len(signature_of(prim.run).arrays)
        self.inside = (*inside, prim)
        self.n = prim.scalar[1] if isinstance(prim.scalar, tuple) else self.inputs
        self.logical = (0,) if prim.scalar == "select" else ()  # the boolean inputs
        self.partial, self.pull = functools.cache(self._partial), functools.cache(self._pull)
        self._gated = {}  # input -> does its rule use a gated product?

    def value(self, *c: float):
        """Return its value at constants, or None if the kernel must compute it."""
        if self.n < self.inputs:  # the body wants its result, too
            return None
        with np.errstate(all="ignore"):
            y = self.prim.run(*[np.float64(a) for a in c], **self.params)
        return y if np.isfinite(y) or not np.isfinite(c).all() else None

    @functools.cached_property
    def form(self) -> Recipe | None:
        """Return its expansion, if the emitters do not have it: the declared one, or that of its body."""
        f = self.prim.scalar
        if isinstance(f, (str, tuple)):
            form: Any = WRITTEN.get(f if isinstance(f, str) else f[0])
            return form and Recipe(form, self.n)

        def make(g: Graph, *x: int) -> int:
            given = [Sym(g, i) for i in x]
            return node_of(
                g,
                f(*given, **self.params)
                if f is not None
                else Symbols(self.inside).run(self.prim.run, given, self.params),
            )

        return Recipe(make, self.n)

    @functools.cached_property
    def length(self) -> int:
        """Return the number of instructions that the expansion adds."""
        return 0 if self.form is None else len(self.form.steps) - 1

    def _partial(self, k: int) -> Recipe:
        """Return the derivative with respect to input k as a function of (node, *inputs)."""
        return Recipe(lambda g, *x: self._pulled(g, k, g.one, *x), 1 + self.n, self._after(1))

    def _pull(self, k: int) -> Recipe:
        """Return the pullback to input k as a function of (cotangent, node, *inputs)."""
        return Recipe(lambda g, *x: self._pulled(g, k, *x), 2 + self.n, self._after(2))

    def _after(self, n: int) -> tuple:
        return tuple([n + k for k in self.logical])

    @functools.cached_property
    def singular(self) -> bool:
        """Return whether the rules gate zero cotangents from derivatives that may be infinite."""
        for k in range(self.n):
            self.pull(k)
        return any(self._gated.values())

    def _pulled(self, g: Graph, k: int, *x: int) -> int:
        """Apply the rule of input k to the nodes (cotangent, node, *inputs)."""
        trace, rest = Symbols(), [None] * (self.inputs - self.n)
        rule = self.prim.vjp[k] if self.prim.vjp is not None else NO_RULE
        try:
            out = trace.run(rule, [*[Sym(g, i) for i in x], *rest], self.params)
        except KernelError as error:
            raise KernelError(
                f"{self.prim} has a derivative that has no translation into a kernel: {error}"
            ) from error
        self._gated[k] = trace.gated
        return node_of(g, out)


def NO_RULE(*x, **params) -> None:
    """The rule of a piecewise constant operation."""


def node_of(g: Graph, x) -> int:
    """Return the node of a number; a missing derivative is zero."""
    return g.zero if x is None else int(lift(g, x).ids)


def instruction(prim: Primitive, params: dict, inside: tuple = ()) -> tuple[str, int | None]:
    """Return the name in the graph of an operation with these settings, and its number of inputs there."""
    f = prim.scalar
    if isinstance(f, (str, tuple)):
        return f if isinstance(f, tuple) else (f, None)
    name = prim.name + "".join([f" {k}={v!r}" for k, v in params.items()])
    if name not in OPERATIONS:
        made = Operation(prim, params, inside)
        made.form  # noqa: B018 (what cannot be written out is refused here, where the user's line is known)
        OPERATIONS[name] = made
    return name, None


for _entry in PRIMITIVES.values():
    if isinstance(_entry.prim.scalar, (str, tuple)):
        OPERATIONS.setdefault(instruction(_entry.prim, {})[0], Operation(_entry.prim, {}))
del _entry


def constant_index(k):
    if isinstance(k, Sym):
        c = k.constant()
        if c is not None:
            return int(c) if c.ndim == 0 and c.dtype != bool else c
        if k.ndim or k.is_bool:
            raise KernelError(
                "an index known only at run time must be a single whole number; for a mask write np.where"
            )
    return k


def _symbolic_axis(keys: tuple) -> int:
    at = [n for n, k in enumerate(keys) if isinstance(k, Sym)]
    if len(at) > 1 or any(k is Ellipsis or k is None for k in keys):
        raise KernelError("one run-time index at a time: write x[i][j]")
    return at[0]


def constants(g: Graph, value) -> np.ndarray:
    value = np.asarray(value)
    if value.dtype.kind not in "biuf":
        raise KernelError(f"a kernel computes with real numbers, and met an object of dtype {value.dtype}")
    make = g.bool if value.dtype.kind == "b" else g.const
    ids = np.empty(value.shape, np.int64)
    for k in np.ndindex(value.shape):
        ids[k] = make(value[k])
    return ids


def lift(g: Graph, value) -> Sym:
    """Convert numbers, arrays and nested lists of them to one symbolic array."""
    if isinstance(value, Sym):
        if value.g is not g:
            raise KernelError(
                "a value of another trace: a kernel function, or one that it calls, kept what it computed "
                "(in a global, an attribute, a "
                "cache) and used it again when it was traced anew; let it compute that each time"
            )
        return value
    if isinstance(value, (list, tuple)) and any(isinstance(e, (Sym, list, tuple)) for e in value):
        return Sym(g, np.array([x.ids for x in with_one_dtype([lift(g, e) for e in value])], dtype=np.int64))
    return Sym(g, constants(g, value))


def lifted(*x) -> list[Sym]:
    """Convert values to symbols of the graph that one of them has."""
    g = graph_of(*x)
    return [lift(g, v) for v in x]


def leaf_nodes(x: Sym, block: bool) -> list[int]:
    """Return the nodes of an array: one block, or a node for each element."""
    return [x.g.pack(x.ids)] if block else x.node_list


def leaf_of_nodes(g: Graph, nodes: list[int], shape: tuple, block: bool = False) -> Sym:
    """Return the array of this shape with such nodes."""
    return Sym(g, g.names(nodes[0], shape) if block else np.array(nodes, np.int64).reshape(shape))


def with_one_dtype(x: list) -> list:
    """Convert arrays that are to be joined: all real, unless all are boolean."""
    kinds = {v.is_bool for v in x if v.size}
    return [as_real_symbol(v) for v in x] if len(kinds) > 1 else x


def is_complex(x) -> bool:
    """Return whether x, or an item of a nested list, is complex."""
    if isinstance(x, (list, tuple)):
        return any(map(is_complex, x))
    return type(x) is complex or getattr(getattr(x, "dtype", None), "kind", "") == "c"


def graph_of(*x):
    for v in x:
        if isinstance(v, Symbolic):
            return v.g
        if isinstance(v, (list, tuple)):
            g = graph_of(*v)
            if g is not None:
                return g
    return None


def apart(y, x):
    """Return y, copied if it shares memory with a symbol of x."""
    shared = isinstance(y, Sym) and any(isinstance(v, Sym) and np.may_share_memory(v.ids, y.ids) for v in x)
    return y.copy("K") if shared else y


def stored(out, y):
    """Write results into the arrays `out`, if there are any; return these."""
    if out is None:
        return y
    if isinstance(out, tuple):
        many = [stored(o, v) for o, v in zip(out, y if len(out) > 1 else (y,), strict=True)]
        return tuple(many) if len(out) > 1 else many[0]
    if not isinstance(out, Sym):
        raise KernelError(
            "a kernel function wrote a traced value into an array made outside of it: make it inside by "
            "np.zeros"
        )
    out[...] = y
    return out


def as_real_symbol(x: Sym) -> Sym:
    """Convert booleans to 0 and 1."""
    return symbolic_where(x, 1.0, 0.0) if x.is_bool else x


def truth(x: Sym) -> Sym:
    """Convert numbers to booleans: nonzero is true."""
    return x if x.is_bool else broadcast_instruction(x.g, "ne", x, 0.0)


LOGIC = frozenset(("and", "or", "not"))


def large(g: Graph, *ids: np.ndarray) -> bool:
    """Return whether operands of this common shape are kept as blocks."""
    n = ids[0].size
    return g.limits.large(n) or (g.limits.large(n, True) and any((a >= ELEMENT).any() for a in ids))


def operand_node(g: Graph, ids: np.ndarray) -> int:
    """Return one number if all elements are equal, otherwise a block."""
    first = int(ids.flat[0])
    return first if first < ELEMENT and (ids == first).all() else g.pack(ids)


def broadcast_instruction(g: Graph, op: str, *operands) -> Sym:
    x = [lift(g, v) for v in operands]
    x = [
        truth(v) if op in LOGIC or (op == "select" and k == 0) else as_real_symbol(v) for k, v in enumerate(x)
    ]
    arrays = np.broadcast_arrays(*[v.ids for v in x]) if len(x) > 1 else [x[0].ids]
    shape = arrays[0].shape
    # the memory order is that of NumPy's result
    out: Any = np.empty(shape, np.int64) if len(shape) < 2 else sum([v.ids for v in x])
    if large(g, *arrays):
        out[...] = g.names(g.node(op, *[operand_node(g, a) for a in arrays]), shape)
        return Sym(g, out)
    arrays = [g.nodes_of(a) for a in arrays]
    square = op == "mul" and out.ndim == 2 and out.shape[0] == out.shape[1]
    for k in np.ndindex(out.shape):
        nodes = [int(a[k]) for a in arrays]
        if square and k[0] > k[1]:  # outer products: a_i b_j and a_j b_i of equal factors are one node
            other = k[::-1]
            if g.factors(*nodes) == g.factors(*[int(a[other]) for a in arrays]):
                out[k] = out[other]
                continue
        out[k] = g.node(op, *nodes)
    return Sym(g, out)


def symbolic_where(c, a, b):
    c, a, b = lifted(c, a, b)
    if not with_one_dtype([a, b])[0].is_bool:
        return broadcast_instruction(c.g, "select", c, a, b)
    both = [
        broadcast_instruction(c.g, "and", *pair)
        for pair in ((c, a), (broadcast_instruction(c.g, "not", c), b))
    ]
    return broadcast_instruction(c.g, "or", *both)


def equal(a, b) -> Sym:
    return broadcast_instruction(graph_of(a, b), "eq", a, b)


def implements_symbolic(*theirs) -> Callable:
    """Register the decorated function for these NumPy functions and ufuncs on traced arrays."""

    def declare(f):
        for t in theirs:
            (COMPOSED if isinstance(t, np.ufunc) else FUNCTIONS)[t] = f
        return f

    return declare


def as_symbol_array(x: Sym) -> Sym:
    """Mark a new x as an array, even without axes."""
    x.zero_d = True
    return x


FUNCTIONS[np.where] = lambda c, a, b: as_symbol_array(symbolic_where(c, a, b))
ARRAYS[PRIMITIVES["select"].prim] = symbolic_where
