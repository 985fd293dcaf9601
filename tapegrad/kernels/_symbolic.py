"""Sym: a small array of graph nodes, which acts as a NumPy array while a kernel is traced.

It takes NumPy's operators, ufuncs and functions (through the protocols of NumPy), can be indexed and written in place, and
refuses what a kernel cannot do: a Python `if` on a value that is not known while tracing, conversion to a number.  Functions of
whole arrays are in the table `FUNCTIONS`, linear algebra in _small_linalg.py."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import KernelError
from ._graph import BOOLS, Graph

UNARY = {
    np.negative: "neg", np.sqrt: "sqrt", np.exp: "exp", np.log: "log", np.log1p: "log1p", np.expm1: "expm1", np.sin: "sin",
    np.cos: "cos", np.tanh: "tanh", np.absolute: "abs", np.fabs: "abs", np.reciprocal: "rcp", np.floor: "floor",
    np.isnan: "isnan", np.logical_not: "not",
}  # fmt: skip
BINARY = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.less: "lt", np.less_equal: "le", np.greater: "gt",
    np.greater_equal: "ge", np.equal: "eq", np.not_equal: "ne", np.logical_and: "and", np.logical_or: "or",
}  # fmt: skip
BITWISE = {np.bitwise_and: "and", np.bitwise_or: "or", np.invert: "not"}
FUNCTIONS: dict = {}  # NumPy or SciPy function -> ours
COMPOSED: dict = {}  # ufunc -> ours


class Sym(np.lib.mixins.NDArrayOperatorsMixin):
    """A symbolic array: node numbers in an array of its shape."""

    __array_priority__ = 2000
    product = None  # (A, B) where this is A @ B, for symmetry

    def __init__(self, g: Graph, ids: Any):
        self.g, self.ids = g, np.asarray(ids, dtype=np.int64)

    shape = property(lambda self: self.ids.shape)
    ndim = property(lambda self: self.ids.ndim)
    size = property(lambda self: self.ids.size)
    dtype = property(lambda self: np.dtype(bool) if self.is_bool else np.dtype(float))
    T = property(lambda self: Sym(self.g, self.ids.T))
    mT = property(lambda self: Sym(self.g, self.ids.swapaxes(-1, -2)))
    flat = property(lambda self: iter(self.reshape(-1)))

    @property
    def is_bool(self) -> bool:
        return self.size > 0 and self.g.op[self.ids.flat[0]] in BOOLS

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

    def copy(self, order: str = "C") -> "Sym":
        return Sym(self.g, self.ids.copy())

    def __copy__(self):
        return self.copy()

    def astype(self, dtype: Any, copy: bool = True) -> "Sym":
        if np.dtype(dtype).kind == "f":
            return real(self)
        raise KernelError(f"a kernel computes with real numbers: astype({np.dtype(dtype)}) cannot be traced")

    def reshape(self, *shape: Any) -> "Sym":
        return Sym(self.g, self.ids.reshape(*shape))

    def ravel(self) -> "Sym":
        return Sym(self.g, self.ids.ravel())

    flatten = ravel

    def transpose(self, *axes: Any) -> "Sym":
        return Sym(self.g, self.ids.transpose(*axes))

    def sum(self, axis=None, keepdims=False):
        return total(self, axis, keepdims=keepdims)

    def mean(self, axis=None):
        return mean(self, axis)

    def prod(self, axis=None):
        return reduced(self, axis, lambda a, b: a * b, 1.0)

    def dot(self, other):
        return matmul(self, other) if self.ndim else self * other

    # --- indexing ---

    def __getitem__(self, key: Any) -> "Sym":
        keys = key if isinstance(key, tuple) else (key,)
        keys = tuple([plain_index(k) for k in keys])
        if not any(isinstance(k, Sym) for k in keys):
            return Sym(self.g, self.ids[keys])
        return self._chosen(keys)

    def _chosen(self, keys: tuple) -> "Sym":
        """x[i] with i known at run time: a chain of selects over the axis."""
        at, axis = _symbolic_axis(self, keys)
        before = keys[:at]
        n = self.shape[axis]
        out = Sym(self.g, self.ids[before + (n - 1,) + keys[at + 1 :]])
        i = where(keys[at] < 0, keys[at] + n, keys[at])
        for k in range(n - 1):
            out = where(equal(i, k), Sym(self.g, self.ids[before + (k,) + keys[at + 1 :]]), out)
        return out

    def __setitem__(self, key: Any, value: Any) -> None:
        keys = key if isinstance(key, tuple) else (key,)
        keys = tuple([plain_index(k) for k in keys])
        if not any(isinstance(k, Sym) for k in keys):
            self.ids[keys] = lift(self.g, value).ids
            return
        at, axis = _symbolic_axis(self, keys)
        n = self.shape[axis]
        i = where(keys[at] < 0, keys[at] + n, keys[at])
        for k in range(n):
            place = keys[:at] + (k,) + keys[at + 1 :]
            self.ids[place] = where(equal(i, k), value, Sym(self.g, self.ids[place])).ids

    # --- what a traced value cannot be ---

    def constant(self) -> np.ndarray | None:
        """The array of numbers, if all are known while tracing."""
        g = self.g
        if any(g.op[i] not in ("const", "bool") for i in self.ids.flat):
            return None
        values = [g.args[i][0] for i in self.ids.flat]
        return np.array(values, dtype=None if values else float).reshape(self.shape)

    def _number(self, what: str) -> Any:
        c = self.constant()
        if c is None:
            raise KernelError(
                f"{what} on a value that is known only when the kernel runs. The function is traced once for all samples: write "
                "np.where(condition, a, b) for a choice, tapegrad.kernels.loop or while_loop for a loop, np.log for math.log"
            )
        return c.item()

    def __bool__(self):
        return bool(self._number("`if`, `while`, `and`, `or` or bool()"))

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

    def __array__(self, *args: Any, **kwargs: Any):
        c = self.constant()
        if c is None:
            raise KernelError("a traced value cannot become a NumPy array: make small arrays in the function by np.zeros or np.array")
        return c

    __hash__ = object.__hash__

    # --- NumPy's protocols ---

    def __array_ufunc__(self, ufunc: Any, method: str, *x: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", (None,))[0]
        if method == "reduce" and ufunc in REDUCE:
            return REDUCE[ufunc](x[0], kwargs.get("axis", 0))
        if method != "__call__" or kwargs:
            raise KernelError(f"np.{ufunc.__name__}.{method} with {sorted(kwargs)} cannot be traced into a kernel")
        if ufunc in UNARY:
            y = elementwise(self.g, UNARY[ufunc], *x)
        elif ufunc in BINARY:
            y = elementwise(self.g, BINARY[ufunc], *x)
        elif ufunc in BITWISE and all(lift(self.g, a).is_bool for a in x):
            y = elementwise(self.g, BITWISE[ufunc], *x)
        elif ufunc in COMPOSED:
            y = COMPOSED[ufunc](*x)
        else:
            raise KernelError(f"np.{ufunc.__name__} has no translation into a kernel")
        if out is None:
            return y
        if not isinstance(out, Sym):
            raise KernelError("a kernel function wrote a traced value into an array made outside of it: make it inside by np.zeros")
        out[...] = y
        return out

    def __array_function__(self, f: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
        ours = FUNCTIONS.get(f)
        if ours is None:
            name = f.__module__ + "." + f.__name__
            raise KernelError(f"{name} has no translation into a kernel; write it with elementary operations")
        return ours(*args, **kwargs)

    def _in_place(name):
        op = getattr(operator, name)

        def method(self, other):
            y = op(self, other)
            if self.ndim == 0:
                return y
            self[...] = y
            return self

        return method

    __iadd__, __isub__, __imul__, __itruediv__ = _in_place("add"), _in_place("sub"), _in_place("mul"), _in_place("truediv")
    del _in_place


def plain_index(k: Any) -> Any:
    if isinstance(k, Sym):
        c = k.constant()
        if c is not None:
            return int(c) if c.ndim == 0 and c.dtype != bool else c
        if k.ndim or k.is_bool:
            raise KernelError("an index known only at run time must be a single whole number; for a mask write np.where")
    return k


def _symbolic_axis(x: Sym, keys: tuple) -> tuple[int, int]:
    at = [n for n, k in enumerate(keys) if isinstance(k, Sym)]
    if len(at) > 1 or any(k is Ellipsis or k is None for k in keys):
        raise KernelError("one run-time index at a time: write x[i][j]")
    return at[0], at[0]


def constants(g: Graph, value: Any) -> np.ndarray:
    value = np.asarray(value)
    if value.dtype.kind not in "biuf":
        raise KernelError(f"a kernel computes with real numbers, and met an object of dtype {value.dtype}")
    make = g.bool if value.dtype.kind == "b" else g.const
    ids = np.empty(value.shape, np.int64)
    for k in np.ndindex(value.shape):
        ids[k] = make(value[k])
    return ids


def lift(g: Graph, value: Any) -> Sym:
    """Numbers, arrays and nested lists of them as one symbolic array."""
    if isinstance(value, Sym):
        return value
    if isinstance(value, (list, tuple)) and any(isinstance(e, (Sym, list, tuple)) for e in value):
        return Sym(g, np.array([lift(g, e).ids for e in value], dtype=np.int64))
    return Sym(g, constants(g, value))


def graph_of(*x: Any) -> Graph | None:
    for v in x:
        if isinstance(v, Sym):
            return v.g
        if isinstance(v, (list, tuple)):
            g = graph_of(*v)
            if g is not None:
                return g
    return None


def real(x: Sym) -> Sym:
    """Booleans as 0 and 1."""
    return where(x, 1.0, 0.0) if x.is_bool else x


LOGIC = frozenset(("and", "or", "not"))


def elementwise(g: Graph, op: str, *x: Any) -> Sym:
    x = [lift(g, v) for v in x]
    if op not in LOGIC:
        x = [real(v) for v in x]
    arrays = np.broadcast_arrays(*[v.ids for v in x]) if len(x) > 1 else [x[0].ids]
    out = np.empty(arrays[0].shape, np.int64)
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


def where(c: Any, a: Any, b: Any) -> Any:
    g = graph_of(c, a, b)
    c, a, b = lift(g, c), lift(g, a), lift(g, b)
    if not c.is_bool:
        c = elementwise(g, "ne", c, 0.0)
    if a.is_bool != b.is_bool:
        a, b = real(a), real(b)
    if a.is_bool:
        return elementwise(g, "or", elementwise(g, "and", c, a), elementwise(g, "and", elementwise(g, "not", c), b))
    cs, xs, ys = np.broadcast_arrays(c.ids, a.ids, b.ids)
    out = np.empty(cs.shape, np.int64)
    for k in np.ndindex(cs.shape):
        out[k] = g.select(int(cs[k]), int(xs[k]), int(ys[k]))
    return Sym(g, out)


def equal(a: Any, b: Any) -> Sym:
    return elementwise(graph_of(a, b), "eq", a, b)


def matmul(a: Any, b: Any) -> Sym:
    """One triangle of L @ P @ L.T where P is symmetric node by node."""
    g = graph_of(a, b)
    a, b = lift(g, a), lift(g, b)
    if a.ndim not in (1, 2) or b.ndim not in (1, 2):
        raise KernelError(f"matmul of shapes {a.shape} and {b.shape} in a kernel: vectors and matrices only")
    x, y = np.atleast_2d(a.ids), b.ids[:, None] if b.ndim == 1 else b.ids
    if x.shape[1] != y.shape[0]:
        raise ValueError(f"matmul: shapes {a.shape} and {b.shape} do not fit")
    symmetric = x.shape[0] == y.shape[1] and _symmetric_product(a, b)
    out = np.empty((x.shape[0], y.shape[1]), np.int64)
    for i, j in np.ndindex(out.shape):
        if symmetric and j < i:
            out[i, j] = out[j, i]
            continue
        acc = g.zero
        for k in range(x.shape[1]):
            acc = g.add(acc, g.mul(int(x[i, k]), int(y[k, j])))
        out[i, j] = acc
    made = Sym(g, out[0] if a.ndim == 1 else out)
    if b.ndim == 1:
        made = Sym(g, made.ids[..., 0])
    if a.ndim == b.ndim == 2:
        made.product = (a, b)
    return made


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def symmetric_nodes(x: Sym) -> bool:
    return x.ndim == 2 and same(x.ids, x.ids.T)


def _symmetric_product(a: Sym, b: Sym) -> bool:
    if b.ndim != 2 or a.ndim != 2:
        return False
    if same(a.ids, b.ids.T):
        return True
    for triple in (a.product and (*a.product, b), b.product and (a, *b.product)):
        if triple is None:
            continue
        left, middle, right = triple
        if same(left.ids, right.ids.T) and symmetric_nodes(middle):
            return True
    return False


# --- functions of whole arrays ---


def implements(*theirs: Any) -> Callable:
    def declare(f):
        for t in theirs:
            (COMPOSED if isinstance(t, np.ufunc) else FUNCTIONS)[t] = f
        return f

    return declare


FUNCTIONS[np.where] = where
FUNCTIONS[np.dot] = lambda a, b: matmul(a, b) if np.ndim(a) and np.ndim(b) else a * b
FUNCTIONS[np.sum] = lambda a, axis=None, keepdims=False: total(a, axis, keepdims=keepdims)
COMPOSED[np.matmul] = matmul
COMPOSED[np.square] = lambda x: x * x
COMPOSED[np.positive] = lambda x: x
COMPOSED[np.sign] = lambda x: where(x > 0, 1.0, where(x < 0, -1.0, x * 0.0))
COMPOSED[np.isfinite] = lambda x: (x - x) == 0.0
COMPOSED[np.isinf] = lambda x: abs(x) == np.inf
COMPOSED[np.log2] = lambda x: np.log(x) * (1 / np.log(2.0))
COMPOSED[np.log10] = lambda x: np.log(x) * (1 / np.log(10.0))
COMPOSED[np.exp2] = lambda x: np.exp(x * np.log(2.0))
COMPOSED[np.sinh] = lambda x: 0.5 * (np.expm1(x) - np.expm1(-x))
COMPOSED[np.cosh] = lambda x: 0.5 * (np.exp(x) + np.exp(-x))
COMPOSED[np.tan] = lambda x: np.sin(x) / np.cos(x)
COMPOSED[np.true_divide] = lambda a, b: divided(a, b)
COMPOSED[np.hypot] = lambda a, b: np.sqrt(a * a + b * b)


def divided(a: Any, b: Any) -> Sym:
    g = graph_of(a, b)
    b = real(lift(g, b))
    return elementwise(g, "mul", a, elementwise(g, "rcp", b))


@implements(np.maximum, np.fmax)
def maximum(a: Any, b: Any) -> Sym:
    """Ties share the derivative equally."""
    g = graph_of(a, b)
    a, b = lift(g, a), lift(g, b)
    return where(a > b, a, where(b > a, b, 0.5 * a + 0.5 * b))


@implements(np.minimum, np.fmin)
def minimum(a: Any, b: Any) -> Sym:
    g = graph_of(a, b)
    a, b = lift(g, a), lift(g, b)
    return where(a < b, a, where(b < a, b, 0.5 * a + 0.5 * b))


@implements(np.clip)
def clip(x: Any, a_min: Any = None, a_max: Any = None) -> Any:
    if a_min is not None:
        x = maximum(x, a_min)
    return x if a_max is None else minimum(x, a_max)


@implements(np.logaddexp)
def logaddexp(a: Any, b: Any) -> Sym:
    g = graph_of(a, b)
    a, b = lift(g, a), lift(g, b)
    high, low = where(a > b, a, b), where(a > b, b, a)
    return where(a == b, a + np.log(2.0) + 0.5 * (b - a), high + np.log1p(np.exp(low - high)))


@implements(np.power, np.float_power)
def power(a: Any, b: Any) -> Sym:
    """Whole and half constant exponents by products and roots, others as exp(b log a)."""
    g = graph_of(a, b)
    exponent = lift(g, b).constant()
    if exponent is not None and exponent.ndim == 0:
        c = float(exponent)
        if c == int(c) and abs(c) <= 64:
            ids = lift(g, a).ids
            out = np.empty(ids.shape, np.int64)
            for k in np.ndindex(ids.shape):
                out[k] = g.power(int(ids[k]), int(c))
            return Sym(g, out)
        if 2 * c == int(2 * c) and abs(c) <= 32:
            root = np.sqrt(a)
            whole = power(a, (c - 0.5) if c > 0 else (c + 0.5))
            return whole * root if c > 0 else whole / root
    return np.exp(b * np.log(lift(g, a)))


def reduced(x: Any, axis: Any, op: Callable, empty: float) -> Any:
    g = graph_of(x)
    x = lift(g, x)
    if axis is None:
        x, axis = x.reshape(-1), 0
    if isinstance(axis, tuple):
        for k in sorted((a % x.ndim for a in axis), reverse=True):
            x = reduced(x, k, op, empty)
        return x
    parts = [Sym(g, np.take(x.ids, k, axis)) for k in range(x.shape[axis])]
    if not parts:
        return lift(g, np.full(np.delete(x.shape, axis), empty))
    out = parts[0]
    for part in parts[1:]:
        out = op(out, part)
    return out


def total(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    out = reduced(real(lift(graph_of(x), x)), axis, lambda a, b: a + b, 0.0)
    if keepdims:
        shape = [1] * np.ndim(x) if axis is None else [1 if k == axis % x.ndim else n for k, n in enumerate(x.shape)]
        out = out.reshape(tuple(shape))
    return out


@implements(np.mean)
def mean(x: Any, axis: Any = None) -> Any:
    n = np.size(x) if axis is None else np.shape(x)[axis]
    return total(x, axis) / n


@implements(np.var)
def var(x: Any, axis: Any = None, ddof: int = 0) -> Any:
    if axis is not None:
        raise KernelError("np.var along an axis cannot be traced; write it with np.mean")
    d = x - mean(x)
    return total(d * d) / (np.size(x) - ddof)


REDUCE = {
    np.add: lambda x, axis: total(x, axis), np.multiply: lambda x, axis: reduced(x, axis, lambda a, b: a * b, 1.0),
    np.maximum: lambda x, axis: reduced(x, axis, maximum, -np.inf), np.minimum: lambda x, axis: reduced(x, axis, minimum, np.inf),
    np.logical_and: lambda x, axis: reduced(x, axis, np.logical_and, 1.0),
    np.logical_or: lambda x, axis: reduced(x, axis, np.logical_or, 0.0),
}  # fmt: skip
FUNCTIONS[np.prod] = lambda x, axis=None: reduced(x, axis, lambda a, b: a * b, 1.0)
FUNCTIONS[np.max] = FUNCTIONS[np.amax] = lambda x, axis=None: reduced(x, axis, maximum, -np.inf)
FUNCTIONS[np.min] = FUNCTIONS[np.amin] = lambda x, axis=None: reduced(x, axis, minimum, np.inf)
FUNCTIONS[np.any] = lambda x, axis=None: reduced(x, axis, np.logical_or, 0.0)
FUNCTIONS[np.all] = lambda x, axis=None: reduced(x, axis, np.logical_and, 1.0)


def _moved(f: Callable) -> Callable:
    """A function that only moves elements: NumPy's, applied to the node numbers."""

    def run(x, *args, **kwargs):
        g = graph_of(x)
        many = isinstance(x, (list, tuple))
        ids = [lift(g, e).ids for e in x] if many else lift(g, x).ids
        out = f(ids, *args, **kwargs)
        return [Sym(g, o) for o in out] if isinstance(out, (list, tuple)) else Sym(g, out)

    return run


for _f in (
    np.reshape, np.transpose, np.ravel, np.stack, np.concatenate, np.vstack, np.hstack, np.roll, np.flip, np.broadcast_to, np.expand_dims,
    np.squeeze, np.atleast_1d, np.atleast_2d, np.take, np.swapaxes, np.moveaxis, np.diagonal, np.repeat, np.tile, np.copy, np.split,
    np.rollaxis, np.column_stack, np.array_split, np.delete,
):  # fmt: skip
    FUNCTIONS[_f] = _moved(_f)
for _f in (np.shape, np.ndim, np.size):
    FUNCTIONS[_f] = lambda x, *rest, f=_f: f(x.ids, *rest)


@implements(np.diag)
def diag(x: Any, k: int = 0) -> Sym:
    g = graph_of(x)
    x = lift(g, x)
    if x.ndim == 2:
        return Sym(g, np.diag(x.ids, k))
    out = np.diag(x.ids + 1, k) - 1
    out[out < 0] = g.zero
    return Sym(g, out)


@implements(np.tril)
def tril(x: Any, k: int = 0) -> Sym:
    return Sym(x.g, np.where(np.tri(*x.shape, k=k, dtype=bool), x.ids, x.g.zero))


@implements(np.triu)
def triu(x: Any, k: int = 0) -> Sym:
    return Sym(x.g, np.where(np.tri(*x.shape, k=k - 1, dtype=bool), x.g.zero, x.ids))


@implements(np.zeros_like, np.empty_like)
def zeros_like(x: Any, dtype: Any = None) -> Sym:
    return Sym(x.g, np.full(x.shape, x.g.zero))


@implements(np.ones_like)
def ones_like(x: Any, dtype: Any = None) -> Sym:
    return Sym(x.g, np.full(x.shape, x.g.one))


@implements(np.full_like)
def full_like(x: Any, value: Any, dtype: Any = None) -> Sym:
    return Sym(x.g, np.broadcast_to(lift(x.g, value).ids, x.shape).copy())


@implements(np.trace)
def trace(x: Any) -> Sym:
    return total(Sym(x.g, np.diagonal(x.ids)))


@implements(np.outer)
def outer(a: Any, b: Any) -> Sym:
    g = graph_of(a, b)
    return elementwise(g, "mul", lift(g, a).reshape(-1, 1), lift(g, b).reshape(1, -1))


@implements(np.cumsum)
def cumsum(x: Any, axis: Any = None) -> Sym:
    if axis is None:
        x = x.reshape(-1)
    elif x.ndim != 1:
        raise KernelError("np.cumsum of a matrix cannot be traced; write it row by row")
    out = [x[0]]
    for k in range(1, len(x)):
        out.append(out[-1] + x[k])
    return lift(x.g, out)


@implements(np.diff)
def diff(x: Any, n: int = 1, axis: int = -1) -> Sym:
    for _ in range(n):
        x = x[..., 1:] - x[..., :-1]
    return x


@implements(np.nan_to_num)
def nan_to_num(x: Any, nan: float = 0.0) -> Sym:
    return where(np.isnan(x), nan, x)


@implements(np.einsum)
def einsum(spec: str, *x: Any) -> Sym:
    """By explicit sums over the indices."""
    g = graph_of(*x)
    x = [lift(g, v) for v in x]
    left, arrow, right = spec.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        letters = left.replace(",", "")
        right = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    size = {c: n for term, v in zip(terms, x, strict=True) for c, n in zip(term, v.shape, strict=True)}
    inner = [c for c in size if c not in right]
    out = np.empty([size[c] for c in right], np.int64)
    for k in np.ndindex(out.shape):
        at, acc = dict(zip(right, k, strict=True)), g.zero
        for m in np.ndindex(*[size[c] for c in inner]):
            at.update(zip(inner, m, strict=True))
            product = g.one
            for term, v in zip(terms, x, strict=True):
                product = g.mul(product, int(v.ids[tuple([at[c] for c in term])]))
            acc = g.add(acc, product)
        out[k] = acc
    return Sym(g, out)
