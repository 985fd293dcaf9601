"""Regions of a buffer: views, elements, and the writes `assign` and `add_at`.

A region is a path of view steps. For writes and elements an index `at` of any kind follows. The cost
of each operation and of its adjoint is proportional to the region. The adjoint of a read adds into the
region of the buffer's cotangent in place. The adjoint of an assignment takes the region out and leaves
zeros; the cotangent then belongs to the version before the write.

Reading order: `region`, the three bodies, how each is recorded, how each is pulled, its forward rule."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.arrays import F8, constant_winner, is_array, may_share_memory, xp_of, zeros_laid_out
from ..._core.primitive import ADD_AT, ASSIGN, READ, bind, hook, layout_of
from ..._core.reverse import (
    REGION,
    add_cotangents,
    add_region,
    buffer_of,
    read_region,
    set_region,
    setting_copy,
)
from ..._core.variable import Variable, bottom, variable
from ..declare import primitive
from ..shaping import argsort, fit_to_shape, reshape, transpose, zeros_like

STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "at": lambda b, i: b[i],
    "reshape": lambda b, to: b.reshape(to),
    "transpose": lambda b, axes: b.transpose(axes),
    "broadcast": lambda b, to: xp_of(b).broadcast_to(b, to),
    "diagonal": lambda b, s: xp_of(b).diagonal(b, *s),
    "einsum": lambda b, text: xp_of(b).einsum(text, b),
    "real": lambda b, _: b.real,
    "imag": lambda b, _: b.imag,
    "window": lambda b, w: window(b, *w),
    "sliding": lambda b, w: window(b, *w),  # its elements share memory
    "windows": lambda b, w: windows(b, *w),  # the same, read-only
}


def window(b, shape: tuple, first: int, steps: tuple):
    """Elements of b, counted in C order from `first`, with a step for each axis. It is a view if b is
    contiguous in that order."""
    flat, size = b.ravel(), b.itemsize
    strides = tuple([k * size for k in steps])
    if xp_of(b) is np:
        return np.ndarray(shape, b.dtype, flat, first * size, strides)
    return type(b)(shape, b.dtype, flat.data + first * size, strides).view()  # so that its base is not None


def windows(b, size, axis):
    kept = {"subok": True} if xp_of(b) is np else {}  # (hidden values stay hidden)
    return xp_of(b).lib.stride_tricks.sliding_window_view(b, size, axis, **kept)


def region(b, path: tuple):
    for kind, step in path:
        b = STEPS[kind](b, step)
    return b


SHARING = frozenset(("sliding", "windows"))  # steps that may contain an element several times
PARTS = frozenset(("real", "imag"))  # no elements of the array, so they cannot be given by positions
FLAT = frozenset(("reshape", "window"))  # steps by C order: views if the elements lie in that order
PLAIN_INDEX = frozenset((int, slice, type(None), type(Ellipsis), np.int64))


def basic(at) -> bool:
    """Does NumPy answer this index with a view (or, for a full index, an element)?"""
    if type(at) is int or type(at) is slice or type(at) is tuple and PLAIN_INDEX.issuperset(map(type, at)):
        return True
    for i in at if type(at) is tuple else (at,):
        if i is None or i is Ellipsis or type(i) is slice or type(i) is int:
            continue
        if isinstance(i, np.integer):
            continue
        return False
    return True


def layout_of_buffer(b) -> tuple:
    """The arguments of `zeros_laid_out` for a cotangent of the buffer b."""
    return xp_of(b), b.shape, b.strides, b.dtype


# --- bodies ---


@primitive(prim=READ, batch="moves")
def read(x, *, path, at, copy):
    r = region(x, path)
    if at is not None:
        if type(at) is type(r) is np.ndarray and at.dtype.kind == "i" and r.ndim > 1 and r.flags.c_contiguous:
            return r.take(at, 0)  # selecting rows with `take` needs a sixth of the time
        r = r[at]
        return laid_out_copy(r) if copy and is_array(r) and r.base is not None else r
    return laid_out_copy(r) if copy and is_array(r) else r


def laid_out_copy(r):
    """A copy in the memory order of r. Broadcast axes stay broadcast, because NumPy's results depend on
    them."""
    if 0 not in r.strides:
        return r.copy(order="K")
    once = r[tuple([slice(1) if stride == 0 else slice(None) for stride in r.strides])]
    return xp_of(r).broadcast_to(once.copy(order="K"), r.shape)


def _target(x, path, at):
    """(array, index) for a write to the region of x. Cotangents and tangents have the layout of their
    buffer, unless that has stride 0. Then some steps copy, and the region is given by the coordinates
    of its elements."""
    if at is Ellipsis and path and path[-1][0] == "at":
        path, at = path[:-1], path[-1][1]
    r = region(x, path)
    if is_apart(r, x, path):
        return as_flat_source(x), coordinates_of(x, path, at)
    return r, at


def is_apart(r, x, path: tuple) -> bool:
    """Is the region r of x a copy, so that its elements must be given by their positions in x?"""
    return r.size and any(kind in FLAT for kind, _ in path) and not may_share_memory(r, x)


def cut_of(x, path: tuple) -> int | None:
    """The position at which to split a path, if one part leads to elements given by position and the
    other to real or imaginary parts. None if no split is needed."""
    kinds = {kind for kind, _ in path}
    if PARTS.isdisjoint(kinds) or (SHARING.isdisjoint(kinds) and not is_apart(region(x, path), x, path)):
        return None
    return beside_parts(path)


def beside_parts(path: tuple) -> int | None:
    """The place of the first real or imaginary part in the path, or the end of the parts if the path
    begins with one."""
    first = next(k for k, (kind, _) in enumerate(path) if kind in PARTS)
    return first or next((k for k, (kind, _) in enumerate(path) if kind not in PARTS), None)


def as_flat_source(x: Any) -> Any:
    """x, or for an x without axes its element as a vector, because coordinates need an axis."""
    return x if x.shape else x.reshape(1)


def coordinates_of(x, path: tuple, at) -> tuple:
    """The coordinates of the elements of a region in `as_flat_source(x)`."""
    numbers = xp_of(x).arange(x.size).reshape(x.shape)
    return xp_of(x).unravel_index(region(numbers, path)[at], x.shape or (1,))


@primitive(writes=True, prim=ASSIGN, total=True)
def assign(x, y, *, path, at):
    if not path:
        x[at] = y
        return x
    cut = cut_of(x, path)
    if cut is not None:
        z = region(x, path[:cut]).copy()
        return assign.prim.run(x, assign.prim.run(z, y, path=path[cut:], at=at), path=path[:cut], at=Ellipsis)
    r, at = _target(x, path, at)
    r[at] = y
    return x


def sum_to_shape(z, to: tuple):
    """The sum of z over the axes that were broadcast from the shape `to`."""
    lead = z.ndim - len(to)
    return z.sum(
        tuple(range(lead)) + tuple([lead + i for i, k in enumerate(to) if k == 1 != z.shape[lead + i]])
    ).reshape(to)


@primitive(writes=True, prim=ADD_AT, total=True)
def add_at(x, y, *, path, at):
    r = x
    if path:
        cut = cut_of(x, path)
        if cut is not None:
            part = region(x, path[:cut])
            z = add_at.prim.run(xp_of(x).zeros(part.shape, part.dtype), y, path=path[cut:], at=at)
            return add_at.prim.run(x, z, path=path[:cut], at=Ellipsis)
        for k, (kind, to) in enumerate(path):
            if kind == "broadcast":  # these elements share memory, so their contributions are summed
                part = region(x, path[:k])
                z = add_at.prim.run(xp_of(x).zeros(to, part.dtype), y, path=path[k + 1 :], at=at)
                return add_at.prim.run(x, sum_to_shape(z, part.shape), path=path[:k], at=Ellipsis)
            if kind in SHARING:
                add_at.prim.run(as_flat_source(x), y, path=(), at=coordinates_of(x, path, at))
                return x
        r, at = _target(x, path, at)
    if type(r) is np.ndarray and not r.flags.writeable:  # a diagonal, which NumPy makes read-only
        r.flags.writeable = True
    if basic(at):
        r[at] += y
    elif xp_of(r) is not np:
        scatter("add", r, at, y)
    elif type(at) is np.ndarray and at.dtype.kind == "i" and r.ndim > 1 and r.flags.c_contiguous:
        add_rows(r, at, np.broadcast_to(y, (*at.shape, *r.shape[1:])))
    else:
        np.add.at(r, at, y)
    return x


def add_rows(r: np.ndarray, at: np.ndarray, y: np.ndarray) -> None:
    """Add whole rows. NumPy adds single numbers in a third of that time, and the numbers of a column,
    with the index unchanged, in a quarter."""
    size = math.prod(r.shape[1:])
    if r.ndim == 2 and size <= 8:
        for k in range(size):
            np.add.at(r[:, k], at, y[..., k])
    else:
        places = (at.reshape(-1, 1) * np.intp(size) + np.arange(size)).reshape(-1)
        np.add.at(r.reshape(-1), places, y.reshape(-1))


# of two numbers s and v; nan wins, as in `maximum`
SEGMENT_OPERATIONS = {
    "add": "s + v",
    "maximum": "s != s || s > v ? s : v",
    "minimum": "s != s || s < v ? s : v",
}
SEGMENT_KERNELS: dict = {}


def segment_kernel(xp, name: str):
    """Combine the runs of equal targets in `at`, and each with the element of r that it targets."""
    if (xp, name) not in SEGMENT_KERNELS:
        SEGMENT_KERNELS[xp, name] = xp.ElementwiseKernel(
            "raw int64 at, raw T y, int64 n",
            "raw T r",
            "if (i == 0 || at[i - 1] != at[i]) { T s = y[i]; for (long long j = i + 1; j < n && at[j] == "
            f"at[i]; ++j) {{ const T v = y[j]; s = {SEGMENT_OPERATIONS[name]}; }} "
            f"const T v = r[at[i]]; r[at[i]] = {SEGMENT_OPERATIONS[name]}; }}",
            f"tapegrad_segment_{name}",
        )
    return SEGMENT_KERNELS[xp, name]


def scatter(name: str, r, at, y) -> None:
    """numpy.add.at(r, at, y) on CuPy, or that of maximum and minimum, in a fixed order.

    The targets are sorted (stably), and one thread combines each run of equal targets. (The maximum of
    CuPy's own atomic operation is rounded to single precision.)"""
    xp = xp_of(r)
    where = xp.arange(r.size).reshape(r.shape)[at]
    y = xp.broadcast_to(xp.asarray(y, dtype=r.dtype), where.shape).ravel()
    where = where.ravel()
    order = xp.argsort(where)
    flat = r.ravel()  # a view, if r is contiguous
    if where.size:
        segment_kernel(xp, name)(where[order], y[order], where.size, flat, size=where.size)
    if not r.flags.c_contiguous:
        r[...] = flat.reshape(r.shape)


# --- how they are recorded ---


def _of(base):
    """The buffer itself, which determines the layout of the cotangent."""
    return layout_of_buffer(bottom(base))


def _record_read(tape, prim, inputs, slots, params):
    out = bind(prim, inputs, params)
    y = variable(out, tape, len(tape.records))
    tape.records.append(
        (pull_read, slots[0], REGION, None, _of(inputs[0]), params["path"], setting_copy(params["at"]))
    )
    if y._slot > tape.look:
        tape.grown()
    return y


def pull_read(G, owned, k, g, i, _, layout, path, at):
    if at is None:
        at = Ellipsis
        if len(path) == 1:
            kind, step = path[0]
            if kind == "at":
                path, at = (), step
            elif kind == "transpose" or kind == "reshape":  # all elements of the buffer, rearranged
                if type(g) is np.ndarray:
                    c = g.transpose(argsort(step)) if kind == "transpose" else g.reshape(layout[1])
                else:
                    c = transpose(g, axes=argsort(step)) if kind == "transpose" else reshape(g, to=layout[1])
                h = G[i]
                G[i] = c if h is None else add_cotangents(h, c, i, owned)
                return
    if not path and basic(at):
        buffer = buffer_of(G, owned, i, layout)
        if type(buffer) is np.ndarray and not isinstance(g, Variable):
            buffer[at] += g
            return
    G[i] = add_region(buffer_of(G, owned, i, layout), g, path, at)


@hook
def pull_element(G, owned, k, g, i, _, layout, path, at):
    """The pullback of one element of a plain buffer. (The sweep itself adds a number into a cotangent
    that it owns.)"""
    if G[i] is None and type(g) is np.float64:
        G[i] = buffer = zeros_laid_out(*layout)
        owned.add(i)
        buffer[at] = g
    else:
        pull_read(G, owned, k, g, i, None, layout, path, at)


def pull_turned(g, out, x):
    """The pullback of a matrix read as its transpose."""
    return g.T if type(g) is np.ndarray else transpose(g, axes=(1, 0))


def pull_diagonal(G, owned, k, g, i, _, layout, path, at):
    """The pullback of a matrix read as its diagonal."""
    # the first cotangent of a matrix in C order
    if G[i] is None and type(g) is np.ndarray and layout[2][0] >= layout[2][1] > 0:
        n, m = layout[1]
        G[i] = buffer = np.zeros((n, m), layout[3])
        owned.add(i)
        buffer.reshape(-1)[: (m + 1) * len(g) : m + 1] = g
        return
    buffer = buffer_of(G, owned, i, layout)
    if type(buffer) is type(g) is np.ndarray:
        d = buffer.diagonal()
        d.flags.writeable = True
        d += g
    else:
        G[i] = add_region(buffer, g, (("diagonal", (0, 0, 1)),), Ellipsis)


ALL = slice(None)


def _record_write(pull):
    def record(tape, prim, inputs, slots, params):
        x, y = inputs
        b, c = bottom(x), bottom(y)
        like = None if slots[1] is None else (c.shape, c.dtype)
        out = bind(prim, inputs, params)
        z = variable(out, tape, len(tape.records))
        path, at = params["path"], setting_copy(params["at"])
        if len(path) == 1 and path[0][0] == "at" and (at is Ellipsis or type(at) is slice and at == ALL):
            path, at = (), params["path"][0][1]  # all of a part: the part itself
        tape.records.append((pull, slots[0], REGION, slots[1], layout_of_buffer(b), like, (path, at)))
        if z._slot > tape.look:
            tape.grown()
        return z

    return record


def _give(G, owned, j, c, like):
    """Add a cotangent taken out of a buffer to the slot of the value that was written there."""
    to, d = like
    if to or d is not F8 or type(c) is not np.float64:
        if type(c) is not np.ndarray or c.shape != to or c.dtype is not d:
            c = fit_to_shape(c, to, d)
    h = G[j]
    G[j] = c if h is None else add_cotangents(h, c, j, owned)


def _hand_on(G, owned, k, g, i):
    """Pass the buffer's cotangent to the version before the write, in the same memory."""
    if i is None:
        return
    if G[i] is not None:
        g = add_cotangents(G[i], g, i, owned)
    elif k in owned:
        owned.add(i)
    G[i] = g


def _pull_assign(G, owned, k, g, i, j, layout, like, where):
    path, at = where
    if (
        type(g) is np.ndarray
        and k in owned
        and (type(at) is int or type(at) is tuple)
        and not path
        and g.strides == layout[2]
    ):
        part = g[at]
        if type(part) is np.float64:  # one number
            if j is not None:
                _give(G, owned, j, part, like)
            g[at] = 0.0
            return _hand_on(G, owned, k, g, i)
    if at is Ellipsis and not path:  # all of the buffer: nothing remains for the version before
        if j is not None:
            _give(G, owned, j, g, like)
        return
    G[k] = g
    g = buffer_of(G, owned, k, layout)
    G[k] = None
    if type(g) is np.ndarray and not path and basic(at):
        if j is not None:
            part = g[at]
            _give(G, owned, j, part.copy() if type(part) is np.ndarray else part, like)
        g[at] = 0.0
        _hand_on(G, owned, k, g, i)
        return
    if j is not None:
        part = read_region(g, path, at)
        if not basic(at):
            part = part * constant_winner(layout[0], region(bottom(g), path).shape, at)
        _give(G, owned, j, part, like)
    if i is not None:
        _hand_on(G, owned, k, set_region(g, 0.0, path, at, ASSIGN), i)


def _pull_add_at(G, owned, k, g, i, j, layout, like, where):
    if (
        type(g) is np.ndarray
        and j is not None
        and g.strides == layout[2]
        and not where[0]
        and type(where[1]) is np.ndarray
    ):
        _give(G, owned, j, g[where[1]], like)
        return _hand_on(G, owned, k, g, i)
    if j is not None:
        _give(G, owned, j, read_region(g, *where), like)
    _hand_on(G, owned, k, g, i)


# --- forward rules ---


def _tangent(t, x):
    """The tangent of a buffer about to be written. The handle owns it (`_core.primitive.own_memory`)."""
    if t is None:
        return zeros_of_buffer(x)
    if type(t) is np.ndarray or is_array(layout_of(t)) or not is_array(layout_of(x)):
        return t
    # a number as the tangent of a 0-d array
    return bind(ASSIGN, (zeros_of_buffer(x), t), {"path": (), "at": Ellipsis})


def zeros_of_buffer(x):
    b = bottom(x)
    if is_array(b):
        z = xp_of(b).empty_like(b)
        z[...] = 0
        return z
    return zeros_like(b)


def _assign_jvp(t, out, x, y, path, at):
    t0 = _tangent(t[0], x)
    return bind(ASSIGN, (t0, 0.0 if t[1] is None else t[1]), {"path": path, "at": at})


def _add_at_jvp(t, out, x, y, path, at):
    if t[1] is None:
        return t[0]
    return bind(ADD_AT, (_tangent(t[0], x), t[1]), {"path": path, "at": at})


READ.vjp, READ.pull = (pull_read, pull_element, pull_turned, pull_diagonal), _record_read
READ.jvp = lambda t, out, x, path, at, copy: bind(READ, (t[0],), {"path": path, "at": at, "copy": copy})
ASSIGN.vjp, ASSIGN.pull, ASSIGN.jvp = (_pull_assign,), _record_write(_pull_assign), _assign_jvp
ADD_AT.vjp, ADD_AT.pull, ADD_AT.jvp = (_pull_add_at,), _record_write(_pull_add_at), _add_at_jvp
for _prim in (READ, ASSIGN, ADD_AT):
    for _rule in _prim.vjp:
        _rule.prim = _prim
