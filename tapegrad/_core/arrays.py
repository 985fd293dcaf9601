"""NumPy or CuPy: which library holds an array, and the few places where they differ.

These functions test `type(x)`. A test with `isinstance` would treat a Variable as its value
(_core/variable.py)."""

import functools
import sys
import zlib
from types import ModuleType
from typing import Any

import numpy as np

from .typing import AnyList, AnyTuple, Shape

NUMBERS = frozenset((float, int, bool, complex))
NARROW = frozenset("bBhHiILQ")  # codes of integers in which -b or b - 1 may overflow
TRUTHS = NARROW | {"?"}
# The classes of objects that never change and hold no other object.
IMMUTABLE = NUMBERS | {
    str, bytes, range, type(None), type(Ellipsis), type(NotImplemented), np.float64, np.int64,
}  # fmt: skip
F8 = np.dtype(np.float64)
C16 = np.dtype(np.complex128)


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
    """Is x a scalar of NumPy? (`isinstance` would accept a Variable over a scalar.)"""
    return issubclass(type(x), np.generic)


def is_differentiable(x: Any) -> bool:
    """Is x a float or complex array or number?"""
    if type(x) is float or type(x) is complex:
        return True
    dtype = getattr(x, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "fc" and (is_scalar(x) or is_array(x))


def owned(x: Any) -> Any:
    """A plain array or NumPy scalar as a result for the caller: writable, in memory that nothing else
    uses."""
    return (
        x
        if is_scalar(x) or type(x) in NUMBERS
        else x.copy(order="K")
        if x.flags.forc
        else copy_with_layout(x)
    )


def to_host(x: Any) -> np.ndarray:
    """An array or number as a plain NumPy array on the host."""
    return x.get() if hasattr(x, "get") else np.asarray(x)


def may_share_memory(a: Any, b: Any) -> bool:
    """May the plain arrays a and b overlap in memory?"""
    xp = xp_of(a)
    if xp is not xp_of(b) or not is_array(a) or not is_array(b):
        return False
    return bool(xp.may_share_memory(a, b))


# What `as_strided` and `sliding_window_view` put between a view and its array.
Holder: Any = type(np.lib.stride_tricks.as_strided(np.zeros(1), (1,)).base)


def memory_owner(x: Any) -> Any:
    """The object that owns the memory of an array: an array, or what gave it its buffer."""
    while True:
        base = x.obj if type(x) is memoryview else x.base if type(x) is Holder or is_array(x) else None
        if base is None:
            return x
        x = base


def mark_immutable(x: Any) -> bool:
    """Is x an array whose memory its owner has made read-only?"""
    while isinstance(x, np.ndarray) and isinstance(x.base, np.ndarray):
        x = x.base
    return isinstance(x, np.ndarray) and not x.flags.writeable and (x.base is None or type(x.base) is bytes)  # type: ignore[comparison-overlap]


def address(x: Any) -> int:
    """The address of the first element of an array."""
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


PLAIN_ARRAYS = (np.ndarray, np.memmap)


def without_class(x: Any) -> Any:
    """The elements of an array, without the methods of a subclass of np.ndarray."""
    return x if type(x) is np.ndarray or xp_of(x) is not np else np.ndarray.view(x, np.ndarray)


def checksum(a: Any) -> Any:
    """Of an array's elements.  None on a device, where looking would wait; of a small array its bytes, which
    are had sooner."""
    if xp_of(a) is not np:
        return None
    if a.nbytes <= 512:
        return a.tobytes()
    return zlib.crc32((a if a.flags.c_contiguous else np.ascontiguousarray(a)).data)


BITS = {
    1: np.uint8,
    2: np.uint16,
    4: np.uint32,
    8: np.uint64,
}  # item size -> the integer dtype for comparing bits
COMPARED_ELEMENTS = 1 << 16  # elements compared at once; they fit into the cache


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Are the bits of two arrays of one shape and dtype equal? (nan equals itself; 0 and -0 differ.)"""
    if a.dtype.kind == "c":
        return same_bits(a.real, b.real) and same_bits(a.imag, b.imag)
    kind = BITS.get(a.dtype.itemsize)
    if kind is not None and a.nbytes <= 512:
        return a.tobytes() == b.tobytes()
    if kind is None:
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    a, b = a.view(kind), b.view(kind)
    step = max(1, COMPARED_ELEMENTS * len(a) // max(a.size, 1))
    return all((a[k : k + step] == b[k : k + step]).all() for k in range(0, len(a), step))


def zeros_laid_out(xp: ModuleType, shape: Shape, strides: Shape, dtype: Any) -> Any:
    """Zeros whose axes lie in memory in the order given by `strides`. A reshape that is a view of an
    array with these strides is a view of the zeros too."""
    if len(shape) < 2 or (strides[-1] > 0 and sorted(strides, reverse=True) == [*strides]):
        return xp.zeros(shape, dtype)
    order = sorted(range(len(shape)), key=lambda i: -abs(strides[i]))
    back = [0] * len(order)
    for new, old in enumerate(order):
        back[old] = new
    return xp.zeros([shape[i] for i in order], dtype).transpose(back)


@functools.lru_cache(1024)
def packed_steps(shape: Shape, strides: Shape, size: int, repeats: bool) -> AnyTuple:
    """The packed layout of an array with these strides: (position of the first element, step of each
    axis, size of the memory). All are counted in elements of `size` bytes.

    The order and direction of the axes are kept. NumPy can join two axes (reshape is a view) exactly
    where it could before. So where the strides have a gap, the packed layout has one too. It is as
    wide as the elements between gaps; then a view of every third element, for example, still cannot be
    joined. With `has_repeating_axis`, an axis of stride 0 keeps that stride."""
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


WIDE_GAP = 4  # a gap wider than this many times the elements beside it is made smaller


@functools.lru_cache(1024)
def unaltered(shape: Shape, strides: Shape, size: int) -> AnyTuple | None:
    """The result of `packed_steps` with all gaps at their full width. Then the axes that NumPy can join are
    exactly the same, also for a diagonal or every third element. None if elements share memory, or if
    a gap is too wide (`WIDE_GAP`)."""
    room = 1
    for k in sorted([k for k, n in enumerate(shape) if n > 1], key=lambda k: abs(strides[k])):
        step, rest = divmod(abs(strides[k]), size)
        if rest or not room <= step <= WIDE_GAP * room:
            return None
        room = step * (shape[k] - 1) + room
    steps = [s // size for s in strides]
    return sum([-s * (n - 1) for s, n in zip(steps, shape, strict=True) if s < 0]), tuple(steps), room


def room_laid(
    xp: ModuleType, shape: Shape, strides: Shape, dtype: Any, repeats: bool = False, count: int | None = None
) -> Any:
    """Empty memory for an array whose layout behaves like one with these strides (`packed_steps`). `count`:
    the length of an additional first axis."""
    size = dtype.itemsize
    same = None if count is not None else unaltered(shape, strides, size)
    first, steps, room = same or packed_steps(shape, strides, size, repeats)
    if count is not None:
        shape, steps, room = (count, *shape), (room, *steps), room * count
    if not room or 0 in shape:
        return xp.empty(shape, dtype)
    steps = tuple([k * size for k in steps])
    memory = xp.empty(room, dtype)
    if xp is np:
        found = np.ndarray(shape, dtype, memory, first * size, steps)
        # an array without gaps owns its memory
        return np.empty_like(found) if found.size == room and not first else found
    return xp.ndarray(shape, dtype, memory.data + first * size, steps)


def room_like(x: Any) -> Any:
    """Empty memory with the layout of x, in which no elements share memory."""
    xp = xp_of(x)
    return xp.empty_like(x) if x.flags.forc else room_laid(xp, x.shape, x.strides, x.dtype)


def in_order_of_memory(shape: Shape, strides: Shape) -> AnyList:
    """The axes in the order in which NumPy reads an array with `order="K"`, the outermost first. They are
    sorted by stride; an axis that repeats or has one element keeps its place."""
    order: AnyList = []
    for k in range(len(shape))[::-1]:  # from the innermost axis outwards
        at = len(order)
        for i in range(len(order))[::-1]:
            a, b = [abs(strides[n]) if shape[n] > 1 else 0 for n in (k, order[i])]
            if a and b:
                if b <= a:
                    break
                at = i
        order.insert(at, k)
    return order[::-1]


def has_repeating_axis(shape: Shape, strides: Shape) -> bool:
    """Does an array with these strides have an axis with stride 0 and several elements?"""
    return 0 in strides and any([s == 0 and n > 1 for n, s in zip(shape, strides, strict=True)])


@functools.lru_cache(1024)
def overlaps(shape: Shape, strides: Shape, size: int) -> bool:
    """May elements of an array with these strides share memory with each other?"""
    for stride, n in sorted([(abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1]):
        if stride < size:
            return True
        # every second column of three: a row begins in the gap at the end of the one before
        size += stride * (n - 1)
    return False


def copy_with_layout(x: Any) -> Any:
    """A copy of the array x with an equivalent layout. If elements share memory, the copy is read-only,
    because a write would change several of them."""
    if x.flags.forc or x.shape == ():
        # the copy owns its memory if and only if x does
        return x.copy(order="K") if x.base is None else x.copy(order="K").view()
    xp = xp_of(x)
    if xp is np and has_repeating_axis(x.shape, x.strides):
        return repeat_elements(x, room_laid(np, x.shape, x.strides, x.dtype, True))
    y = room_like(x)
    y[...] = x
    if xp is np and overlaps(x.shape, x.strides, x.itemsize):
        y.flags.writeable = False
    return y


def repeat_elements(x: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Copy x, which has repeated elements, into `room`, which repeats them likewise. The result is
    read-only, as in NumPy."""
    once = tuple([slice(1) if stride == 0 else slice(None) for stride in room.strides])
    room[once] = x[once]
    room.flags.writeable = False
    return room


def constant_winner(xp: ModuleType, shape: Shape, at: Any) -> Any:
    """The mask of effective writes in `a[at] = values`: 1.0 for a value that stays in `a`, 0.0 for one
    that a duplicate index overwrote. It is found by writing and reading back, because CuPy does not
    specify which duplicate wins."""
    scratch = xp.zeros(shape, np.int64)
    n = xp.arange(scratch[at].size).reshape(scratch[at].shape)
    scratch[at] = n
    return (scratch[at] == n) * 1.0


def is_narrow(x: Any, codes: frozenset[str] = NARROW) -> bool:
    return getattr(getattr(x, "dtype", None), "char", "?" if type(x) is bool else "") in codes


def widened(b: Any, other: Any) -> Any:
    """Integers, or truth values, in a type in which rules can compute -b or b - 1. The dtype of an operation
    with an operand of the dtype `other` is the same."""
    if type(b) is bool:
        return int(b)
    code, size = b.dtype.char, b.dtype.itemsize
    if code in "LQ":
        return b.astype(np.float64)
    if other.char not in "efF" or size == 4:
        return b.astype(np.int64)
    if other.char == "e":
        return b.astype(np.int8) if code == "?" else b
    return b.astype(np.int16) if size == 1 else b
