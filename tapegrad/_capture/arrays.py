"""Captured arrays as Variables over the same memory.

Two arrays are aliases by address, whatever objects lie between: both become views of one Variable over all of
the memory.  That memory is the array at the end of the chain of bases, or what owns it (a bytearray, a memory
map, an array of bytes).  Where the two cannot be views of one Variable (other widths, an unknown owner) both
may be read, and writing either raises AliasError."""

import sys
from typing import Any

import numpy as np

from .._core.arrays import F8, Holder, address, extent, is_array, memory_owner, overlaps, xp_of
from .._core.errors import AliasError
from .._core.primitive import SAMPLED, EndedTrace, view
from .._core.scope import OPEN, WATCHERS
from .._core.typing import Shape
from .._core.variable import ArrayVariable, Subarray, Variable, View, bottom, new
from .._dispatch import structured
from . import array_subclasses, routes, threads
from .kinds import Capture
from .threads import THREADS, WRITERS


class ArrayCapture(Capture):
    """The part of a `Shadow` that replaces arrays."""

    def handle(self, x: Variable) -> Any:
        """A Variable of an outer transform stays what it is, and is remembered: `Back` must not take it for
        one made inside.  (One that a transform has left behind that ended is plain afterwards.)"""
        given = any([x is v for _, v in self.given])
        if not given and not isinstance(x._trace, EndedTrace):
            self.remember(x, x)
            if type(x) is View:
                self(x._base)
        if OPEN.hiding and not given:
            self.adopted(x)
        return x

    def noted(self, x: Any) -> None:
        """What is not followed is compared after a run for many samples (_capture/snapshots.py)."""
        for trace in OPEN.hiding:
            if trace.visibility == SAMPLED:
                trace.note(x)

    def advanced(self) -> None:
        """An iterator from outside goes on: a loop over samples would give each another item."""
        for trace in OPEN.hiding[self.within_hiding :] if self.on else ():
            if trace.visibility == SAMPLED:
                trace.advance()

    def adopted(self, x: Variable) -> None:
        """Under vmap a captured array gets marks (_transforms/batching/captured_marks.py). It is an
        input of a recording."""
        for trace in OPEN.hiding[self.within_hiding :]:
            trace.adopt(x)

    def array(self, x: Any) -> Any:
        """A float array as a Variable over the same memory; arrays that overlap as views of one base."""
        owner: Any = x.base
        kind = x.dtype.kind
        if kind not in "fc":
            if kind == "V" and structured.has_float_fields(x.dtype):
                return structured.structured(x, {name: self.field(x[name]) for name in x.dtype.names})
            return self.objects_of(x) if kind == "O" else x if owner is None else self.leave(x)
        if owner is None and type(x) is np.ndarray and not self.strangers:
            return self.captured(x)
        root: Any = x
        while owner is not None:
            if is_array(owner):
                root = owner
            elif type(owner) is Holder and is_array(owner.base):
                root = owner.base
            elif type(owner) is memoryview and is_array(owner.obj):
                root = owner.obj
            else:
                break
            owner = root.base
        if root is not x and x.base is not root:
            known = self.within(x)
            if known is not None:
                return known
            known = self.window(x, root)
            whole = getattr(known, "_base", known)
            if root.dtype.names is None:
                self.meet(root, whole, self.arrays)
            return known
        # A view whose root nobody else refers to (three references: x.base, here, and the count itself)
        # overlaps nothing, and where it has no gaps the copy that is made of it answers each question of
        # layout as it does.
        if root is not x and (sys.getrefcount(root) > 3 or not x.flags.forc):
            return self.window(x, root)
        if owner is not None:
            return self.part_of(x, owner.obj if type(owner) is memoryview else owner)
        if not isinstance(x, np.ndarray):
            return self.on_device(x)
        v = self.captured(x)
        if self.strangers:
            self.meet(x, v, self.strangers)
        return v

    def field(self, x: Any) -> Any:
        """The array of a field."""
        if x.dtype.kind == "V" or (x.dtype.kind in "fc" and x.dtype.isnative):
            return self(np.ndarray.view(x, np.ndarray))
        return x

    def record(self, x: Any) -> Any:
        """An element of a structured array, which shares its memory."""
        if not structured.has_float_fields(x.dtype):
            return x
        owner, whole = x.base, np.asarray(x)
        if type(owner) is np.ndarray and owner.dtype == x.dtype and owner.flags.c_contiguous:
            k = (address(whole) - address(owner)) // x.itemsize
            whole = owner.reshape(-1)[k : k + 1].reshape(())
        return structured.structured(x, {name: self.field(whole[name]) for name in x.dtype.names})

    def subarray(self, x: Any) -> Any:
        """An array of a subclass: a subarray over a Variable, with shadows of the attributes."""
        if structured.kind_of(x):
            return structured.structured(x._layout, {name: self(v) for name, v in x._array.items()})
        if type(x) is np.memmap or (type(x) is np.recarray and structured.has_float_fields(x.dtype)):
            return self.array(x)
        again = issubclass(type(x), Subarray)  # one of an outer transform
        if not again and (x.dtype.kind not in "fc" or not array_subclasses.is_followed(type(x))):
            return self.leave(x)
        made: Any = object.__new__(array_subclasses.subarray_class(self(x._tg_of if again else type(x))))
        self.remember(x, made)
        # past the `__setattr__` of the class
        object.__setattr__(made, "_array", self(x._array) if again else self.array(x))
        self.attributes_of(x, made)
        return made

    def all_captured(self, arrays: Any) -> list:
        """Several arrays of NumPy's: `self(x)` for each, where that is no view, in one piece."""
        if self.wrote or self.borrowed or self.outer or OPEN.hiding or WATCHERS:
            return [self(x) for x in arrays]
        seen, hold, pairs, found = self.seen, self.hold, self.arrays, []
        for x in arrays:
            v = seen.get(id(x))
            if v is None:
                if x.dtype is not F8 or x.base is not None or self.strangers or self.reached or not pairs:
                    v = self(x)
                else:
                    v = seen[id(x)] = new(ArrayVariable)
                    v._value, v._trace, v._slot, v._saved, v._version = x, None, None, True, 0
                    hold.append(x)
                    pairs.append((x, v))
                    if len(THREADS) > 1 or WRITERS:
                        threads.snapshot_captured(self, x, v)
            found.append(v)
        return found

    def on_device(self, x: Any) -> Any:
        """A CuPy array that is no view by its base; one made with strides of its own has none, and is found
        by its block of memory."""
        block = id(x.data.mem)
        first = self.memories.get(block)
        known = None if first is None else self.within(x)
        if known is None:
            known = self.captured(x)
            self.memories[block] = known
            if first is not None:
                self.clash(first, known)
        return known

    def captured(self, x: Any) -> Variable:
        v = new(ArrayVariable)
        v._value = x if type(x) is np.ndarray or xp_of(x) is not np else x.view(np.ndarray)
        v._trace = v._slot = None
        v._saved = True
        v._version = 0
        if self.borrowed:
            self.given.append((x, v))
            return v
        arrays = self.arrays
        if not arrays:
            threads.enter(self)
        arrays.append((x, v))
        if WATCHERS and OPEN.watcher is not None:
            OPEN.watcher.captured(x, v)
        if len(THREADS) > 1 or WRITERS:
            threads.snapshot_captured(self, x, v)
        if self.reached or self.wrote:
            routes.capture_array(self, x)
        if OPEN.hiding:
            self.adopted(v)
        return v

    def window(self, x: Any, root: Any) -> Any:
        """One of several views of one memory, as a view of the Variable that stands for all of it."""
        if root.dtype.kind not in "fc":
            return self.part_of(x, root)
        offset, whole = address(x) - address(root), self(root)
        whole = getattr(whole, "_array", whole)
        if not isinstance(whole, Variable):  # a subclass that is left alone
            return self.leave(x)
        part, of_parts = offset % root.itemsize, root.dtype.kind == "c" and root.itemsize == 2 * x.itemsize
        if root.flags.forc and (root.dtype == x.dtype or (of_parts and part in (0, x.itemsize))):
            known = elements_of_root(whole, root, x, offset - part if of_parts else offset)
            if known is not None:
                return view(known, ("imag" if part else "real", None)) if of_parts else known
        return self.beside(x, whole)

    def beside(self, x: Any, whole: Variable) -> Variable:
        """An array over the memory of another one that is no view of it."""
        v = self.captured(x)
        self.clash(v, whole)
        return v

    def part_of(self, x: Any, owner: Any) -> Any:
        """An array over memory that is no float array: a buffer of another library, or an array of bytes or
        records."""
        if is_array(owner) and owner.dtype.names is not None and owner.flags.c_contiguous:
            return self.part_of_field(x, owner)
        raw: Any = bytes_of(owner) if xp_of(x) is np else None
        size = x.itemsize
        start = (extent(x)[0] - extent(raw)[0]) % size if raw is not None and raw.size else 0
        whole = self.memories.get((id(owner), x.dtype.str, start))
        if whole is None:
            known = self.within(x)
            if known is not None:
                return known
            steps = raw is not None and not any(s % size for s in x.strides)
            root = raw[start : start + (raw.size - start) // size * size].view(x.dtype) if steps else x
            whole = self.captured(root)
            self.meet(root, whole, self.arrays)
            self.strangers.append((root, whole))
            if not steps:
                return whole
            self.memories[id(owner), x.dtype.str, start] = whole
            self.hold.append(owner)
        first = address(x) - address(raw) - start
        if first == 0 and x.shape == whole._value.shape and x.strides == whole._value.strides:
            return whole
        known = elements_of_root(whole, bottom(whole), x, first)
        return self.beside(x, whole) if known is None else known

    def part_of_field(self, x: Any, owner: Any) -> Any:
        """An array over a field of a structured array, as a view of the Variable for all of that field."""
        root, step = field_at(owner, (address(x) - address(owner)) % owner.itemsize), None
        if root is not None and root.dtype == x.dtype:
            step = elements_of_field(owner, root, x)
        if step is None:
            v = self.captured(x)
            self.meet(x, v, self.arrays)
            return v
        key = id(owner), root.dtype.str, address(root)
        whole = self.memories.get(key)
        if whole is None:
            whole = self.memories[key] = self.captured(root)
            self.meet(root, whole, self.arrays)
            self.strangers.append((root, whole))
            self.hold.append(owner)
        return whole if (x.shape, x.strides) == (root.shape, root.strides) else chosen_elements(whole, *step)

    def within(self, x: Any) -> Any:
        """x as a view of an array that was captured before and holds all of it, found by address."""
        if not x.size:
            return None
        low, high = extent(x)
        for other, w in self.arrays:
            if xp_of(other) is xp_of(x) and other.dtype == x.dtype and other.size and other.flags.forc:
                a, b = extent(other)
                if a <= low and high <= b and not any((s % x.itemsize) for s in (low - a, *x.strides)):
                    return elements_of_root(w, other, x, address(x) - a)
        return None

    def meet(self, x: Any, v: Variable, others: list) -> None:
        """Mark v and those of the others that share memory with it."""
        if xp_of(x) is not np or not x.size:
            return
        low, high = extent(x)
        for other, w in others:
            if w is not v and type(other) is np.ndarray and other.size:
                a, b = extent(other)
                if a < high and low < b and routes.shares_memory_with(x, other):
                    self.clash(v, w)

    def clash(self, *both: Variable) -> None:
        """Two captured arrays over one memory that cannot be views of one Variable."""
        self.once = True
        both = tuple([getattr(v, "_base", v) for v in both])
        if any(getattr(v, "_version", 0) for v in both):
            raise AliasError(
                "a captured array was written whose memory another captured array shares, with another "
                "dtype or by a way that cannot "
                "be followed: make the one from the other inside the function, a.view(dtype) for example"
            )
        OPEN.aliased = {**OPEN.aliased, **{id(v): v for v in both}}


def elements_of_root(whole: Variable, root: Any, x: Any, offset: int) -> View | None:
    """x, which begins `offset` bytes behind the contiguous array that `whole` stands for, as elements of
    that, counted in C order. None: it lies between them."""
    size = root.itemsize
    if offset % size or any([stride % size for stride in x.strides]):
        return None
    if not root.flags.c_contiguous:
        whole = view(whole, ("transpose", tuple(range(root.ndim))[::-1]))
    return chosen_elements(whole, x.shape, offset // size, tuple([stride // size for stride in x.strides]))


def chosen_elements(whole: Variable, shape: Shape, first: int, steps: Shape) -> View:
    """Elements of `whole`, counted in C order."""
    kind = "sliding" if overlaps(shape, steps, 1) else "window"
    return view(whole, (kind, (shape, first, steps)))


def field_at(owner: Any, place: int) -> Any:
    """The array of the innermost field that has this byte of each element."""
    while owner is not None and owner.dtype.names is not None:
        for name, (kind, first, *_) in owner.dtype.fields.items():
            if first <= place < first + kind.itemsize:
                if kind.shape and kind.base.names is not None:
                    return None
                owner, place = np.ndarray.view(owner, np.ndarray)[name], place - first
                break
        else:
            return None
    return owner


def elements_of_field(owner: Any, root: Any, x: Any) -> Any:
    """x as elements of the field `root`, counted in C order: (shape, first, steps).  None: it has others."""
    size, whole, each = x.itemsize, owner.itemsize, root.size // max(owner.size, 1)
    q, r = divmod(address(x) - address(root), whole)
    steps, last = [], r // size
    for n, stride in zip(x.shape, x.strides, strict=True):
        if stride % whole == 0:
            steps.append(stride // whole * each)
        elif stride % size or stride < 0:
            return None
        else:
            steps.append(stride // size)
            last += max(n - 1, 0) * steps[-1]
    return (x.shape, q * each + r // size, tuple(steps)) if r % size == 0 and last < each else None


def bytes_of(owner: Any) -> Any:
    """All memory of its owner as an array of bytes; None if it does not give it."""
    if isinstance(owner, np.ndarray):
        return (
            owner.view(np.ndarray).reshape(-1).view(np.uint8)
            if owner.flags.c_contiguous and owner.dtype.kind != "O"
            else None
        )
    try:
        return np.frombuffer(owner, np.uint8)
    except (TypeError, ValueError, BufferError):
        return None


def memory_block(x: Any) -> int:
    """The block of memory in which a plain array lies."""
    if xp_of(x) is not np:
        return x.data.mem.ptr
    return id(memory_owner(x))
