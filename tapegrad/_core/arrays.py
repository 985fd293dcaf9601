"""NumPy or CuPy: which library holds an array, and the few places where they differ.

What an array or a scalar is, is asked of `type(x)`: `isinstance` answers for a Variable as for its value (_core/variable.py)."""

import functools
import sys
import zlib
from types import ModuleType
from typing import Any

import numpy as np

from .typing import AnyList, AnyTuple, Shape

NUMBERS = frozenset((float, int, bool, complex))
# The classes of objects that never change and hold no other object.
IMMUTABLE = NUMBERS | {
    str, bytes, range, type(None), type(Ellipsis), type(NotImplemented), np.float64, np.int64,
}  # fmt: skip
F8 = np.dtype(np.float64)


def xp_of(x: Any) -> ModuleType:
    """The library that holds x: numpy for everything that is not a CuPy array."""
    if type(x) is np.ndarray:
        return np
    cp = sys.modules.get("cupy")
    return cp if cp is not None and issubclass(type(x), cp.ndarray) else np


def is_array(x: Any) -> bool:
    """Is x an ndarray of NumPy or CuPy (not a NumPy scalar)?"""
    kind = type(x)
    return kind is np.ndarray or (kind is not float and (issubclass(kind, np.ndarray) or xp_of(x) is not np))


def is_scalar(x: Any) -> bool:
    """Is x a scalar of NumPy?  (`isinstance` would say yes of a Variable over one, which answers as its value.)"""
    return issubclass(type(x), np.generic)


def is_differentiable(x: Any) -> bool:
    """Is x a float or complex array or number?"""
    if type(x) is float or type(x) is complex:
        return True
    dtype = getattr(x, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "fc" and (is_scalar(x) or is_array(x))


def owned(x: Any) -> Any:
    """A plain array or NumPy scalar as a result for the caller: writable, and nobody else's memory."""
    return x if is_scalar(x) or type(x) in NUMBERS else x.copy(order="K") if x.flags.forc else kept(x)


def to_host(x: Any) -> np.ndarray:
    """An array or number as a plain array of NumPy's, from a device if it lies there."""
    return x.get() if hasattr(x, "get") else np.asarray(x)


def shares_memory(a: Any, b: Any) -> bool:
    """May the plain arrays a and b overlap in memory?"""
    xp = xp_of(a)
    if xp is not xp_of(b) or not is_array(a) or not is_array(b):
        return False
    return bool(xp.may_share_memory(a, b))


def settled(x: Any) -> bool:
    """Memory of which its owner says that nobody writes it."""
    while isinstance(x, np.ndarray) and isinstance(x.base, np.ndarray):
        x = x.base
    return isinstance(x, np.ndarray) and not x.flags.writeable and (x.base is None or type(x.base) is bytes)  # type: ignore[comparison-overlap]


def address(x: Any) -> int:
    """Where the first element of an array lies."""
    return x.__array_interface__["data"][0] if isinstance(x, np.ndarray) else x.data.ptr  # type: ignore[no-any-return]


def extent(x: Any) -> tuple[int, int]:
    """The first address of an array's memory, and the one behind its last."""
    low = high = address(x)
    for n, stride in zip(x.shape, x.strides, strict=True):
        if stride < 0:
            low += (n - 1) * stride
        else:
            high += (n - 1) * stride
    return low, high + x.itemsize


def checksum(a: Any) -> Any:
    """Of an array's elements.  None on a device, where looking would wait; of a small array its bytes, which are had sooner."""
    if xp_of(a) is not np:
        return None
    if a.nbytes <= 512:
        return a.tobytes()
    return zlib.crc32((a if a.flags.c_contiguous else np.ascontiguousarray(a)).data)


BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}  # item size -> as which integers the bits are compared
BLOCK = 1 << 16  # elements that are compared at once, in the cache


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Do two arrays of one shape and dtype hold the same bits?  (nan is equal to itself, and 0 is not -0.)"""
    if a.dtype.kind == "c":
        return same_bits(a.real, b.real) and same_bits(a.imag, b.imag)
    kind = BITS.get(a.dtype.itemsize)
    if kind is None or not a.shape:
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    a, b = a.view(kind), b.view(kind)
    step = max(1, BLOCK * len(a) // max(a.size, 1))
    return all((a[k : k + step] == b[k : k + step]).all() for k in range(0, len(a), step))


def zeros_laid_out(xp: ModuleType, shape: Shape, strides: Shape, dtype: Any) -> Any:
    """Zeros whose axes lie in memory in the order that `strides` tells, so that a reshaped view of an array with these
    strides is a view of the zeros too."""
    if len(shape) < 2 or (len(shape) == 2 and strides[0] >= strides[1] > 0):
        return xp.zeros(shape, dtype)
    order = sorted(range(len(shape)), key=lambda i: -abs(strides[i]))
    back = [0] * len(order)
    for new, old in enumerate(order):
        back[old] = new
    return xp.zeros([shape[i] for i in order], dtype).transpose(back)


@functools.lru_cache(1024)
def steps_of(shape: Shape, strides: Shape, size: int, repeats: bool) -> AnyTuple:
    """Where an array with these strides has its elements, packed: (place of the first one, steps along the axes, room), in elements of
    `size` bytes.  The axes lie in the same order and run in the same direction; axes that NumPy can join (reshape is a view) are those
    that it could join before, for where there was a gap there is one as wide as what lies between gaps: too wide for a view of each
    third element, say, to be joined across it.  `repeats`: what repeats (stride 0) does so."""
    steps, first, room, before = [1] * len(shape), 0, 1, size
    for k in sorted(range(len(shape)), key=lambda k: -abs(strides[k]))[::-1]:
        n, stride = shape[k], abs(strides[k])
        if n < 2:
            continue
        if not stride and repeats:
            steps[k] = 0
            continue
        steps[k] = step = room if stride in (before, 0) else 2 * room
        before = (stride or before) * n
        room = step * n
        if strides[k] < 0:
            first += step * (n - 1)
            steps[k] = -step
    return first, tuple(steps), room


WIDE = 4  # a gap of so many times the elements around it is made smaller


@functools.lru_cache(1024)
def unaltered(shape: Shape, strides: Shape, size: int) -> AnyTuple | None:
    """What `steps_of` says, of gaps that stay as wide as they are, so that a diagonal, or each third element, is joined with the next
    where it was before, and nowhere else.  None where elements share memory, or the gaps are much wider than what lies between them."""
    room = 1
    for k in sorted([k for k, n in enumerate(shape) if n > 1], key=lambda k: abs(strides[k])):
        step, rest = divmod(abs(strides[k]), size)
        if rest or not room <= step <= WIDE * room:
            return None
        room = step * (shape[k] - 1) + room
    steps = [s // size for s in strides]
    return sum([-s * (n - 1) for s, n in zip(steps, shape, strict=True) if s < 0]), tuple(steps), room


def room_laid(xp: ModuleType, shape: Shape, strides: Shape, dtype: Any, repeats: bool = False, count: int | None = None) -> Any:
    """Memory for an array that answers each question of layout as one with these strides (`steps_of`).  `count`: a stack of so many."""
    size = dtype.itemsize
    same = None if count is not None else unaltered(shape, strides, size)
    first, steps, room = same or steps_of(shape, strides, size, repeats)
    if count is not None:
        shape, steps, room = (count, *shape), (room, *steps), room * count
    if not room or 0 in shape:
        return xp.empty(shape, dtype)
    steps = tuple([k * size for k in steps])
    memory = xp.empty(room, dtype)
    if xp is np:
        found = np.ndarray(shape, dtype, memory, first * size, steps)
        return np.empty_like(found) if found.size == room and not first else found  # one without gaps owns its memory
    return xp.ndarray(shape, dtype, memory.data + first * size, steps)


def room_like(x: Any) -> Any:
    """Memory for an array that lies as x does, each element by itself."""
    xp = xp_of(x)
    return xp.empty_like(x) if x.flags.forc else room_laid(xp, x.shape, x.strides, x.dtype)


def in_order_of_memory(shape: Shape, strides: Shape) -> AnyList:
    """The axes as NumPy reads an array by `order="K"`, the outermost first: by their strides, but an axis that repeats, or has one
    element, stays where it is."""
    order: AnyList = []
    for k in range(len(shape))[::-1]:  # from the innermost axis on
        at = len(order)
        for i in range(len(order))[::-1]:
            a, b = [abs(strides[n]) if shape[n] > 1 else 0 for n in (k, order[i])]
            if a and b:
                if b <= a:
                    break
                at = i
        order.insert(at, k)
    return order[::-1]


def repeats(shape: Shape, strides: Shape) -> bool:
    """Is there an axis along which an array with these strides repeats?"""
    return 0 in strides and any([s == 0 and n > 1 for n, s in zip(shape, strides, strict=True)])


@functools.lru_cache(1024)
def overlaps(shape: Shape, strides: Shape, size: int) -> bool:
    """May elements of an array with these strides share memory with each other?"""
    for stride, n in sorted([(abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1]):
        if stride < size:
            return True
        size += stride * (n - 1)  # (of each second column of three, a row begins in the gap that the last one ends with)
    return False


def kept(x: Any) -> Any:
    """A copy of the array x that answers each question of layout as x does.  One of elements that share memory with each other is
    read-only, for a write to it would have to reach several."""
    if x.flags.forc or x.shape == ():
        return x.copy(order="K") if x.base is None else x.copy(order="K").view()  # what owns its memory does so, and nothing else
    xp = xp_of(x)
    if xp is np and repeats(x.shape, x.strides):
        return repeated(x, room_laid(np, x.shape, x.strides, x.dtype, True))
    y = room_like(x)
    y[...] = x
    if xp is np and overlaps(x.shape, x.strides, x.itemsize):
        y.flags.writeable = False
    return y


def repeated(x: np.ndarray, room: np.ndarray) -> np.ndarray:
    """The elements of x, some of which repeat, in `room`, where they do; read-only, as NumPy's are."""
    once = tuple([slice(1) if stride == 0 else slice(None) for stride in room.strides])
    room[once] = x[once]
    room.flags.writeable = False
    return room


def constant_winner(xp: ModuleType, shape: Shape, at: Any) -> Any:
    """For `a[at] = values`: 1.0 for each writer whose value stays in `a`, 0.0 for those that a duplicate of the same index
    overwrote.  The winner is read back from the array itself, since CuPy does not say which one it is."""
    scratch = xp.zeros(shape, np.int64)
    n = xp.arange(scratch[at].size).reshape(scratch[at].shape)
    scratch[at] = n
    return (scratch[at] == n) * 1.0
