"""Dependency rules: which inputs the elements of a result depend on, operation by operation.

A rule takes the pattern under construction (`c`, `_pattern.Carried`), the instruction, the set names of its
operands, their values and the result. It returns the set names of the result. An operand that depends on
nothing has None as names. A rule may overestimate a dependency but must not omit one. For an unknown
operation every element depends on all elements of all operands.

Most operations need no rule of their own, because their batching rule (`Primitive.batch`) says which elements
meet."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .._core.arrays import is_array, xp_of
from .._core.primitive import Primitive
from .._transforms.batching.rules import CustomRule
from ..ops.declare import PRIMITIVES
from ..ops.indexing.regions import basic, region
from ..replay.record.instructions import moved_places

Names = Any  # an array of set names, or None

MOST_ZERO_PRODUCTS = 1 << 20  # products of elements up to which single zeros are exploited

RULES: dict[str, Callable] = {}  # by the name of the operation, which may be declared later


def dependence_rule(*names: str) -> Callable:
    def declare(f: Callable) -> Callable:
        RULES.update(dict.fromkeys(names, f))
        return f

    return declare


def names_of(c, i, sets: list, values: list, out):
    """Return the set names of the result, a tuple for a tuple."""
    prim = i.prim
    if is_flat(prim):
        return None
    outs = out if type(out) is tuple or type(out) is list else [out]
    if not any([value_dtype(o) in "fc" for o in outs]):
        return None
    found = rule_of(prim)(c, i, sets, values, out)
    if type(out) is tuple or type(out) is list:
        return found if type(found) is tuple else (found,) * len(outs)
    return found


def is_flat(prim: Primitive) -> bool:
    """Return whether an operation without rules has a slope of zero: it is a function of NumPy, as floor.

    Any other gives values whose slopes are those of a formula beside it. Where no derivative is open, as in a
    recording of values, the formula may be left out."""
    if prim.vjp is not None or prim.jvp is not None or prim.external:
        return False
    return not prim.declared or prim.ufunc is not None or callable(prim.batch)


def value_dtype(x) -> str:
    """Return the dtype kind; an unknown value, such as a Python number, counts as float."""
    dtype = getattr(x, "dtype", None)
    return "f" if dtype is None else dtype.kind


@functools.cache
def rule_of(prim: Primitive) -> Callable:
    if prim.declared:
        named = RULES.get(prim.name)
        if named is not None:
            return named
        if prim.batch == "elementwise":
            return elementwise_dependence
        if prim.batch == "moves":
            return permuted_names
        if prim.linear:
            return linear_dependence
        return WORDS.get(prim.batch, everything) if type(prim.batch) is str else everything
    return of_samples if type(prim.batch) is CustomRule and prim.batch.kernel is not None else everything


def fresh_names(out, names) -> np.ndarray:
    return np.array(np.broadcast_to(names, np.shape(out)), order="C")


# --- default rules ---


def everything(c, i, sets: list, values: list, out):
    """Each element depends on all elements of all operands."""
    name = functools.reduce(
        c.sets.union, [c.sets.groups(np.array([0, s.size]), s.reshape(-1)) for s in sets if s is not None]
    )
    if type(out) is tuple or type(out) is list:
        return tuple([fresh_names(o, name[0]) for o in out])
    return fresh_names(out, name[0])


def elementwise_dependence(c, i, sets: list, values: list, out):
    united = functools.reduce(c.sets.union, [s for s in sets if s is not None])
    return united if united.shape == np.shape(out) else fresh_names(out, united)


def row_offsets(names: np.ndarray) -> np.ndarray:
    return np.array(names)  # writable, in the memory order that bodies expect


def host_setting(x):
    """Return the settings with their arrays on the host."""
    if type(x) is tuple or type(x) is list:
        return type(x)([host_setting(v) for v in x])
    return x.get() if is_array(x) and xp_of(x) is not np else x


def run_on(c, i, arrays: list):
    """Run the body of the operation on other arrays."""
    params = {name: host_setting(p) for name, p in i.params.items()} if c.on_device else i.params
    return np.asarray(i.prim.run(*arrays, **params))


def names_of_operand(s: Names, value) -> np.ndarray:
    """Return the names of an operand; those of the empty set if it depends on nothing."""
    return np.zeros(np.shape(value), np.int64) if s is None else row_offsets(s)


@dependence_rule("concatenate")
def permuted_names(c, i, sets: list, values: list, out):
    """Apply an operation that moves elements to the names; the zeros that it inserts are the empty set."""
    return run_on(c, i, [names_of_operand(s, v) for s, v in zip(sets, values, strict=True)])


def linear_dependence(c, i, sets: list, values: list, out):
    """If a linear map only moves elements, move the names likewise."""
    (s,) = sets
    at = moved_places(lambda x: run_on(c, i, [x]), s.shape)
    if at is not None:
        return np.append(s.reshape(-1), 0)[at]
    return (
        WORDS.get(i.prim.batch, everything)(c, i, sets, values, out)
        if type(i.prim.batch) is str
        else everything(c, i, sets, values, out)
    )


def reduced_axes(i, rank: int) -> tuple:
    axes = i.params.get("axis", i.params.get("axes"))
    if axes is None:
        return tuple(range(rank))
    return tuple([int(a) % rank for a in (axes if isinstance(axes, (tuple, list)) else (axes,))])


def along_axes(c, i, sets: list, values: list, out):
    """Each element depends on all elements along the axes named in the settings."""
    tracked = [s for s in sets if s is not None]
    if len(sets) > 1 or type(out) is tuple or not tracked[0].ndim:
        return everything(c, i, sets, values, out)
    s = tracked[0]
    axes = reduced_axes(i, s.ndim)
    united, to = c.sets.over(s, axes), np.shape(out)
    if united.size == int(np.prod(to)) and (len(to) == s.ndim or len(to) == s.ndim - len(axes)):
        return united.reshape(to)
    if len(to) == s.ndim and all([k in axes or to[k] == s.shape[k] for k in range(s.ndim)]):
        return fresh_names(out, united)
    return everything(c, i, sets, values, out)


def whole_matrices(c, i, sets: list, values: list, out):
    """Each matrix (or vector) of a stacked result depends on all of the operands' matrices at its place."""
    stacks = [np.shape(v)[:-2] for v in values]
    outs = out if type(out) is tuple or type(out) is list else [out]
    stack = np.broadcast_shapes(*stacks)
    if any([np.shape(o)[: len(stack)] != stack for o in outs]):
        return everything(c, i, sets, values, out)
    parts = []
    for s in sets:
        if s is not None:
            axes = tuple(range(max(s.ndim - 2, 0), s.ndim))
            united = c.sets.over(s, axes) if axes else s
            parts.append(united.reshape(s.shape[: s.ndim - len(axes)]))
    parts = [np.broadcast_to(p, stack) for p in parts]
    name = functools.reduce(c.sets.union, parts)
    made = tuple([fresh_names(o, name.reshape(stack + (1,) * (np.ndim(o) - len(stack)))) for o in outs])
    return made if type(out) is tuple or type(out) is list else made[0]


WORDS = {"axis": along_axes, "matrix": whole_matrices}


def of_samples(c, i, sets: list, values: list, out):
    """Rule of a kernel: each sample, along the last axis, depends on its own parameters and data.

    Data that samples share count for all samples."""
    kind, n, of_their_own = i.prim.batch.kernel
    batch = np.shape(values[0])[1]
    shared = [] if of_their_own or np.ndim(values[1]) == 3 else [1, *range(2 + n[0], 2 + n[0] + n[1])]
    outs = out if type(out) is tuple else (out,)
    if any([np.shape(o)[-1:] != (batch,) for o in outs]) or (kind == "D" and shared):
        return everything(c, i, sets, values, out)
    name = None
    for k, s in enumerate(sets):
        if s is None:
            continue
        if k in shared:
            part = np.broadcast_to(c.sets.over(s, tuple(range(s.ndim))).reshape(1), (batch,))
        elif s.shape[-1:] == (batch,):
            part = c.sets.over(s, tuple(range(s.ndim - 1))).reshape(batch)
        else:
            return everything(c, i, sets, values, out)
        name = part if name is None else c.sets.union(name, part)
    made = tuple([fresh_names(o, name) for o in outs])
    return made if type(out) is tuple else made[0]


# --- rules by name ---


@dependence_rule("copy")
def _copy(c, i, sets, values, out):
    return sets[0]


@dependence_rule("noted")
def _noted(c, i, sets, values, out):
    return sets[0]  # the first operand; it only may warn


@dependence_rule("select")
def _select(c, i, sets, values, out):
    """Select: one branch if the condition is constant, or if the pattern is local; otherwise both."""
    if sets[1] is None and sets[2] is None:
        return None
    x, y = [names_of_operand(s, v) for s, v in zip(sets[1:], values[1:], strict=True)]
    if c.known(i.args[0], local=True):
        return fresh_names(out, np.where(host_setting(c.value(i.args[0])), x, y))
    return fresh_names(out, c.sets.union(x, y))


@dependence_rule("taken_by")
def _taken_by(c, i, sets, values, out):
    s = sets[0]
    if s is None:
        return None
    axis = i.params["axis"] % s.ndim
    if c.known(i.args[1], local=True):
        return np.take_along_axis(s, np.asarray(host_setting(c.value(i.args[1]))), axis)
    return fresh_names(out, c.sets.over(s, (axis,)))


@dependence_rule("added_by")
def _added_by(c, i, sets, values, out):
    s = sets[0]
    if s is None:
        return None
    axis, like = i.params["axis"] % len(i.params["like"]), i.params["like"]
    if c.known(i.args[1], local=True):
        return add_along_axis(c, s, np.asarray(host_setting(c.value(i.args[1]))), axis, like)
    joined = tuple([j for j, n in enumerate(s.shape) if j == axis or n != like[j]])
    return fresh_names(out, c.sets.over(s, joined))


@dependence_rule("added_at")
def _added_at(c, i, sets, values, out):
    return add_along_axis(
        c, sets[0], np.asarray(host_setting(i.params["at"])), i.params["axis"], i.params["like"]
    )


def add_along_axis(c, s: np.ndarray, at: np.ndarray, axis: int, like: tuple) -> np.ndarray:
    """Scatter-add sets along one axis to the places `at`."""
    numbers = np.arange(int(np.prod(like))).reshape(like)
    places = np.take_along_axis(numbers, at, axis)
    return c.sets.at_places(*np.broadcast_arrays(places, s), numbers.size).reshape(like)


PARTS = frozenset(("real", "imag"))
VIEWS = frozenset(("at", "reshape", "transpose", "window"))  # steps that show no element twice


def whole_element_settings(c, i) -> tuple[dict, bool]:
    """Return (settings of a region operation without real and imaginary parts, whether it had such parts)."""
    params = {name: host_setting(p) for name, p in i.params.items()} if c.on_device else i.params
    if PARTS.isdisjoint([kind for kind, _ in params["path"]]):
        return params, False
    return {**params, "path": tuple([step for step in params["path"] if step[0] not in PARTS])}, True


@dependence_rule("read")
def read_rule(c, i, sets, values, out):
    return np.asarray(i.prim.run(sets[0], **whole_element_settings(c, i)[0]))


@dependence_rule("assign")
def _assign(c, i, sets, values, out):
    """Assign to a region: its names are replaced, but kept too if only a real or imaginary part is
    written."""
    params, parts = whole_element_settings(c, i)
    if parts:
        return _add_at(c, i, sets, values, out)
    return i.prim.run(*[names_of_operand(s, v) for s, v in zip(sets, values, strict=True)], **params)


def spread_names(y: np.ndarray, to: tuple) -> np.ndarray:
    """Broadcast a written value to its region; surplus leading axes of length 1 are dropped."""
    return np.broadcast_to(y.reshape(y.shape[max(y.ndim - len(to), 0) :]), to)


@dependence_rule("add_at")
def _add_at(c, i, sets, values, out):
    """Scatter-add; indices may repeat."""
    x, y = [names_of_operand(s, v) for s, v in zip(sets, values, strict=True)]
    if sets[1] is None:
        return x
    params = whole_element_settings(c, i)[0]
    if basic(params["at"]) and VIEWS.issuperset([kind for kind, _ in params["path"]]):
        part = region(x, params["path"])[params["at"]]
        if isinstance(part, np.ndarray) and np.may_share_memory(part, x):  # each element once
            part[...] = c.sets.union(part, spread_names(y, part.shape))
            return x
    numbers = np.arange(x.size).reshape(x.shape)
    places = np.asarray(
        PRIMITIVES["read"].prim.run(numbers, path=params["path"], at=params["at"], copy=False)
    )
    y = spread_names(y, places.shape).reshape(-1)
    flat, places = x.reshape(-1), places.reshape(-1)
    count = np.bincount(places, minlength=x.size)
    if count.max(initial=0) <= 1:
        flat[places] = c.sets.union(flat[places], y)
        return flat.reshape(x.shape)
    met = np.flatnonzero(count)
    flat[met] = c.sets.union(flat[met], c.sets.at_places(places, y, x.size)[met])
    return flat.reshape(x.shape)


@dependence_rule("running_sum")
def _running_sum(c, i, sets, values, out):
    s = np.moveaxis(sets[0], i.params["axis"], 0)
    s = s[::-1] if i.params.get("back") else s
    rows = [s[0]] if len(s) else []
    for row in s[1:]:
        rows.append(c.sets.union(rows[-1], row))
    y = np.stack(rows) if rows else s
    return np.ascontiguousarray(np.moveaxis(y[::-1] if i.params.get("back") else y, 0, i.params["axis"]))


@dependence_rule("convolve_full")
def _convolve_full(c, i, sets, values, out):
    """Convolution: out[k] is a sum of x[j] y[k - j]."""
    parts = []
    for s, other in zip(sets, reversed(values), strict=True):
        if s is not None:
            k, n = np.arange(np.shape(out)[0]), s.size
            low, high = np.maximum(k - np.shape(other)[0] + 1, 0), np.minimum(k + 1, n)
            members = np.concatenate([s[a:b] for a, b in zip(low, high, strict=True)]) if k.size else s
            parts.append(c.sets.groups(np.concatenate([[0], np.cumsum(high - low)]), members))
    return functools.reduce(c.sets.union, parts)


@dependence_rule("matmul")
def _matmul(c, i, sets, values, out):
    """Matrix product: rows meet columns; exact zeros of a constant factor are exploited."""
    x, y = sets
    a, b = [np.ndim(v) for v in values]
    to = np.shape(out)
    wide = to[: len(to) - (a > 1) - (b > 1)] + (to[-1 - (b > 1)] if a > 1 else 1,) + (to[-1] if b > 1 else 1,)
    parts = []
    if x is not None:
        other = matrix_factor(c, i.args[1], x.size) if y is None and b < 3 else None
        if other is not None:
            z = x[None, :] if a == 1 else x
            other = other.reshape(-1, 1) if b == 1 else other
            return product_names(c, np.swapaxes(z, -1, -2), other.T, True).reshape(to)
        rows = c.sets.over(x, (x.ndim - 1,))
        parts.append(rows[None] if a == 1 else rows)
    if y is not None:
        other = matrix_factor(c, i.args[0], y.size) if x is None and a < 3 else None
        if other is not None:
            z = y[:, None] if b == 1 else y
            return product_names(c, z, other[None] if a == 1 else other, False).reshape(to)
        z = y[:, None] if b == 1 else y
        parts.append(c.sets.over(z, (z.ndim - 2,)))
    return fresh_names(np.empty(wide, bool), functools.reduce(c.sets.union, parts)).reshape(to)


def matrix_factor(c, k: int, others: int) -> np.ndarray | None:
    """Return a constant matrix factor if it has enough zeros to exploit, given the size of the other one."""
    if c.sources[k] is None:
        return None
    matrix = np.asarray(host_setting(c.value(k)))
    entries = np.count_nonzero(matrix)
    if 2 * entries <= matrix.size or (entries < matrix.size and entries * others <= MOST_ZERO_PRODUCTS):
        c.known(k)
        return matrix
    return None


def product_names(c, z: np.ndarray, matrix: np.ndarray, turned: bool) -> np.ndarray:
    """Return the names of matrix @ z for a stack of z; with `turned`, those of the transpose."""
    stack = z.shape[:-2]
    row, column = np.nonzero(matrix)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=matrix.shape[0]))])
    # each column of each z
    columns = np.moveaxis(z.reshape(-1, *z.shape[-2:]), 1, 2).reshape(-1, z.shape[-2])
    found = (
        np.stack([c.sets.groups(bounds, one[column]) for one in columns])
        if len(columns)
        else np.zeros((0, len(matrix)), np.int64)
    )
    found = found.reshape(*stack, z.shape[-1], len(matrix))
    return found if turned else np.swapaxes(found, -1, -2)


@dependence_rule("sparse_product")
def _sparse_product(c, i, sets, values, out):
    """Each element depends on the elements of its row of the matrix, and on what these meet."""
    pattern, to = i.params["pattern"], np.shape(out)
    rows, cols = (pattern.cols, pattern.rows) if i.params["back"] else (pattern.rows, pattern.cols)
    met = [s for s in (sets[0], None if sets[1] is None else sets[1][..., cols]) if s is not None]
    names = np.stack([np.broadcast_to(s, (*to[:-1], rows.size)) for s in met])
    places = np.arange(math.prod(to)).reshape(to)[..., rows]
    return c.sets.at_places(np.broadcast_to(places, names.shape), names, math.prod(to)).reshape(to)


@dependence_rule("sparse_outer")
def _sparse_outer(c, i, sets, values, out):
    pattern = i.params["pattern"]
    parts = [
        None if s is None else s[..., at] for s, at in zip(sets, (pattern.rows, pattern.cols), strict=True)
    ]
    return elementwise_dependence(c, i, parts, values, out)


@dependence_rule("contract")
def _contract(c, i, sets, values, out):
    labels, result = i.params["subscripts"].split("->")
    parts = []
    for s, mine in zip(sets, labels.split(","), strict=True):
        if s is not None:
            gone = tuple([k for k, label in enumerate(mine) if label not in result])
            s = c.sets.over(s, gone) if gone else s
            left = [label for label in mine if label in result]
            s = s.reshape([n for k, n in enumerate(s.shape) if k not in gone])
            s = s.transpose([left.index(label) for label in result if label in left])
            parts.append(
                s.reshape(
                    [
                        s.shape[[r for r in result if r in left].index(label)] if label in left else 1
                        for label in result
                    ]
                )
            )
    return fresh_names(out, functools.reduce(c.sets.union, parts))


@dependence_rule("solve_matrix", "solve_triangular")
def _solve(c, i, sets, values, out):
    """Solve: a column of the solution depends on its right-hand side and on the whole matrix."""
    a, b = sets
    to, parts = np.shape(out), []
    vector = np.ndim(values[1]) == 1
    if b is not None:
        parts.append(c.sets.over(b, (0,) if vector else (b.ndim - 2,)))
    if a is not None:
        whole = c.sets.over(a, (a.ndim - 2, a.ndim - 1))
        parts.append(whole[..., 0] if len(to) < a.ndim else whole)
    name = functools.reduce(c.sets.union, parts)
    return (
        fresh_names(out, name)
        if np.broadcast_shapes(name.shape, to) == to
        else everything(c, i, sets, values, out)
    )
