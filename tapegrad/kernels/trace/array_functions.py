"""NumPy's functions of whole arrays on traced arrays: products, sums, moves of elements, compositions."""

import functools
from collections.abc import Callable

import numpy as np

from ..._core.errors import KernelError
from ...ops.declare import PRIMITIVES, axes_of
from ...ops.shaping import kept_dims
from ..graph.blocks import ELEMENT
from ..graph.nodes import Graph
from .symbolic import (
    COMPOSED,
    FUNCTIONS,
    REDUCE,
    Sym,
    as_real_symbol,
    as_symbol_array,
    broadcast_instruction,
    graph_of,
    implements_symbolic,
    instruction,
    large,
    lift,
    lifted,
    operand_node,
    symbolic_where,
    truth,
)


def symbolic_matmul(a, b) -> Sym:
    """Multiply; of L @ P @ L.T with P symmetric node by node, only one triangle is computed."""
    a, b = lifted(a, b)
    g = a.g
    if a.is_bool and b.is_bool:
        return truth(symbolic_matmul(as_real_symbol(a), as_real_symbol(b)))
    a, b = as_real_symbol(a), as_real_symbol(b)
    if a.ndim not in (1, 2) or b.ndim not in (1, 2):
        raise KernelError(f"matmul of shapes {a.shape} and {b.shape} in a kernel: vectors and matrices only")
    x, y = np.atleast_2d(a.ids), b.ids[:, None] if b.ndim == 1 else b.ids
    if x.shape[1] != y.shape[0]:
        raise ValueError(f"matmul: shapes {a.shape} and {b.shape} do not fit")
    if _block_product(g, x, y):
        block = g.names(g.matmul(g.pack(x), g.pack(y)), (x.shape[0], y.shape[1]))
        return Sym(
            g, block.reshape((() if a.ndim == 1 else x.shape[:1]) + (() if b.ndim == 1 else y.shape[1:]))
        )
    x, y = g.nodes_of(x), g.nodes_of(y)
    symmetric, factors = _symmetric_product(a, b) if x.shape[0] == y.shape[1] else (False, None)
    out = np.empty((x.shape[0], y.shape[1]), np.int64)
    for i, j in np.ndindex(out.shape):
        if symmetric and j < i:
            out[i, j] = out[j, i]
            continue
        acc = g.zero
        for k in range(x.shape[1]):
            acc = g.add(acc, g.mul(int(x[i, k]), int(y[k, j])))
        out[i, j] = acc
    if factors is not None:
        g.congruent(out, *[g.nodes_of(f.ids) for f in factors])
    made = Sym(g, out[0] if a.ndim == 1 else out)
    if b.ndim == 1:
        made = Sym(g, made.ids[..., 0])
    if a.ndim == b.ndim == 2:
        made.product = (a, b)
    return made


def _block_product(g: Graph, x: np.ndarray, y: np.ndarray) -> bool:
    """Return whether this product stays one node; zeros known while tracing cost nothing if it is
    unrolled."""
    products = int(((x != g.zero).sum(axis=0) * (y != g.zero).sum(axis=1)).sum())
    if products > g.limits.products:
        return True
    sparse = 4 * products < x.shape[0] * x.shape[1] * y.shape[1]
    return not sparse and products >= 2 * g.limits.row and bool((x >= ELEMENT).any() or (y >= ELEMENT).any())


def same_nodes(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def symmetric_nodes(x: Sym) -> bool:
    return x.ndim == 2 and same_nodes(x.ids, x.ids.T)


def _symmetric_product(a: Sym, b: Sym) -> tuple[bool, tuple | None]:
    """Return whether the product is symmetric, and (L, P) if it is L @ P @ L.T."""
    if b.ndim != 2 or a.ndim != 2:
        return False, None
    if same_nodes(a.ids, b.ids.T):
        return True, None
    for triple in (a.product and (*a.product, b), b.product and (a, *b.product)):
        if triple is None:
            continue
        left, middle, right = triple
        if same_nodes(left.ids, right.ids.T) and symmetric_nodes(middle):
            return True, (left, middle)
    return False, None


COMPOSED[np.matmul] = symbolic_matmul


POWER, _ = instruction(PRIMITIVES["power_of"].prim, {})


@implements_symbolic(np.power, np.float_power)
def symbolic_power(a, b) -> Sym:
    """Return a power; constant integer and half-integer exponents use products and roots."""
    a, b = lifted(a, b)
    g, a, exponent = a.g, as_real_symbol(a), b.constant()
    if exponent is not None and exponent.ndim == 0:
        c = float(exponent)
        if abs(c) <= 64 and c == int(c):
            ids = a.ids
            out = np.empty_like(ids)
            if large(g, ids):
                out[...] = g.names(g.power(operand_node(g, ids), int(c)), ids.shape)
                return Sym(g, out)
            ids = g.nodes_of(ids)
            for k in np.ndindex(ids.shape):
                out[k] = g.power(int(ids[k]), int(c))
            return Sym(g, out)
        if abs(c) <= 32 and 2 * c == int(2 * c):
            root = np.sqrt(a)
            whole = symbolic_power(a, (c - 0.5) if c > 0 else (c + 0.5))
            return whole * root if c > 0 else whole / root
    return broadcast_instruction(g, POWER, a, b)


CHOICES = (np.maximum, np.minimum, np.logical_and, np.logical_or)  # results of booleans are boolean


def symbolic_reduce(x, axis=None, keepdims: bool = False, *, op: Callable, empty: float):
    (x,) = lifted(x)
    x = x if op in CHOICES else as_real_symbol(x)
    if keepdims:
        return symbolic_reduce(x, axis, op=op, empty=empty).reshape(kept_dims(x.shape, axis))
    if axis is None:
        x, axis = x.reshape(-1), 0
    if isinstance(axis, tuple):
        for k in sorted(axes_of(axis, x.ndim), reverse=True):
            x = symbolic_reduce(x, k, op=op, empty=empty)
        return x
    parts = [Sym(x.g, np.take(x.ids, k, axis)) for k in range(x.shape[axis])]
    if not parts:
        return lift(x.g, np.full(np.delete(x.shape, axis), empty))
    out = parts[0]
    for part in parts[1:]:
        out = op(out, part)
    return out


def symbolic_sum(x, axis=None, keepdims: bool = False):
    x = as_real_symbol(*lifted(x))
    if not (x.size and large(x.g, x.ids)):
        return symbolic_reduce(x, axis, keepdims, op=np.add, empty=0.0)
    axes = axes_of(axis, x.ndim)
    kept = kept_dims(x.shape, axes) if keepdims else tuple(np.delete(x.shape, axes).tolist())
    return Sym(x.g, x.g.names(x.g.sum(x.g.pack(x.ids), axes), kept))


REDUCE[np.add] = symbolic_sum
for _op, _empty in (
    (np.multiply, 1.0), (np.maximum, -np.inf), (np.minimum, np.inf), (np.logical_and, 1.0),
    (np.logical_or, 0.0),
):  # fmt: skip
    REDUCE[_op] = functools.partial(symbolic_reduce, op=_op, empty=_empty)
FUNCTIONS |= {np.all: REDUCE[np.logical_and], np.any: REDUCE[np.logical_or]}


FUNCTIONS |= {f: lambda x, *rest, f=f: f(x.ids, *rest) for f in (np.shape, np.ndim, np.size)}


def nothing(x: Sym) -> int:
    """Return the zero of arrays like x."""
    return x.g.bool(False) if x.is_bool else x.g.zero


def symbolic_full(g: Graph, shape, value, dtype=None):
    """np.full: an array of symbols for real numbers, otherwise NumPy's own array."""
    if graph_of(value) is None:
        made = np.full(shape, value, dtype)
        return as_symbol_array(lift(g, made)) if made.dtype.kind == "f" else made
    return as_symbol_array(symbolic_astype(Sym(g, np.full(shape, lift(g, value).ids)), dtype))


def symbolic_astype(x: Sym, dtype) -> Sym:
    """Convert an array of symbols to the requested dtype."""
    kind = "" if dtype is None else np.dtype(dtype).kind
    return truth(x) if kind == "b" else x if not kind else x.astype(dtype, copy=False)


@implements_symbolic(np.empty_like)
def symbolic_empty_like(x, dtype=None):
    return symbolic_full(x.g, x.shape, 0, x.dtype if dtype is None else dtype)


@implements_symbolic(np.nan_to_num)
def symbolic_nan_to_num(x, copy: bool = True, nan: float = 0.0, posinf=None, neginf=None) -> Sym:
    if not copy:
        raise KernelError("np.nan_to_num(x, copy=False) in a kernel: take its result")
    most = np.finfo(np.float64).max
    high, low = most if posinf is None else posinf, -most if neginf is None else neginf
    return symbolic_where(
        np.isnan(x), nan, symbolic_where(x == np.inf, high, symbolic_where(x == -np.inf, low, x))
    )
