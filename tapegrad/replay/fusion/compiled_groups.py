"""A group of instructions as one call of compiled loops.

A value of a group has no memory of its own: where another one is made of it, its text stands there, at the
places asked for (fusion.regions.py).  What others read, results and what the caller gets, is written; the
rest never leaves the registers.  Stencils come out as one loop for the interior and one for each border,
whose texts differ."""

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kernels.launch import waiting
from ...kernels.launch.cpu import HEADER, data_pointer, function_address
from ..buffer_pool import packed
from ..costs import (
    BLOCK_ELEMENT_NS,
    BLOCK_INDEX_NS,
    BLOCK_ROW_NS,
    CALL_NS,
    CODES_KEPT,
    COMPUTED_INDEX_NS,
    COSTLY_OPERATIONS,
    GROUP_ENTRY_NS,
    OPERATION_NS,
    PASS_ELEMENT_NS,
    SUMMED_ROW_NS,
    WRITE_NS,
    slow_element_ns,
)
from ..record.instructions import ufunc_of
from ..record.settings_keys import settings_key
from ..scalar_graph import Exact, of_truth
from .computed_places import Indexed, ScatteredSum, in_range
from .loops import Loops
from .nests import STARTS, ArrayAccess, Nest
from .regions import Element, RegionView, cells, identity_map, operand_place

FLOATS = {np.dtype("f8"): 64, np.dtype("f4"): 32}
BOOL, INTEGERS = np.dtype(bool), frozenset((np.dtype("i8"), np.dtype("i4")))
CODES: dict = {}


@dataclass(eq=False)
class SummedValue:
    """A sum, or an extreme: its operand is read at all places."""

    k: int
    axes: tuple
    shape: tuple
    how: str = "add"
    cost = 1
    gathered = None

    def sources(self) -> list:
        return [(self.k, identity_map(self.shape))]

    def key(self) -> tuple:
        return (self.axes, self.shape, self.how)


class Group:
    """Instructions that run as one call.  `given`: the values that it reads; `left`: those that it makes,
    sums last; `carried`: views that later groups read."""

    def __init__(self, kinds, now):
        self.kinds, self.shown, self.cuts, self.sums = kinds, kinds.shown, now.cuts, now.sums
        self.watched, self.forms = {k for k, i in now.code if i.watched}, now.forms
        self.dtype = np.dtype("f8") if now.dtype is None else now.dtype
        self.carried, self.stored = buffer_shares(kinds, now)
        self.left = [*self.stored, *self.sums]
        needed = {*self.stored, *[s for d in self.sums.values() for s, _ in d.sources()]}
        for k in reversed(now.values):
            if k in needed:
                needed.update([s for s, _ in now.values[k].sources()])
        self.values = {k: d for k, d in now.values.items() if k in needed}
        self.given = sorted([a for a in needed if a not in self.values and not kinds.is_constant(a)])
        self.arrays = [a for a in self.given if self.shown[a][1] or self.shown[a][0] is not None]
        self.bases = {d.gathered for d in (*self.values.values(), *self.sums.values())}
        self.single = [a for a in self.given if a not in self.arrays]
        self.written = [k for k in self.left if k not in self.sums or self.shown[k][1]]  # in memory
        self.totals = [k for k in self.sums if not self.shown[k][1]]
        self.names = [(k, i.name) for k, i in now.code if k not in self.carried]
        self.saved = kinds.gain(self, now) if self.left else 0.0
        self.code: Any = None
        self.pool = []

    def gain(self, now) -> float:
        """About how many nanoseconds it saves."""
        saved = 0.0
        for k, i in now.code:
            d = now.values.get(k) or now.sums[k]
            if k not in self.carried and not (type(d) is RegionView and d.is_view):
                size = (
                    d.region
                    if type(d) is RegionView and d.region is not None
                    else math.prod(d.shape if k in self.sums else self.shown[k][1])
                )
                if k in self.kinds.within:
                    costly = d.cost >= COSTLY_OPERATIONS
                    each = slow_element_ns(i.name, d.cost) if costly else BLOCK_ELEMENT_NS
                    if isinstance(d, Indexed):
                        each = BLOCK_INDEX_NS if d.counts == [None] else COMPUTED_INDEX_NS
                    saved += BLOCK_ROW_NS + each * size
                else:
                    saved += (WRITE_NS if type(d) is RegionView else CALL_NS) + (
                        PASS_ELEMENT_NS + OPERATION_NS * d.cost
                    ) * size
                    if type(d) is SummedValue and len(d.shape) - 1 in d.axes:
                        saved += SUMMED_ROW_NS * math.prod(self.shown[k][1])
        return (
            saved
            - GROUP_ENTRY_NS
            - PASS_ELEMENT_NS
            * sum([math.prod(self.shown[k][1]) for k in (*self.arrays, *self.written) if k not in self.bases])
        )

    def key(self):
        """What its code depends on; raises TypeError where that cannot be told."""
        number = {k: n for n, k in enumerate((*self.given, *self.values, *self.sums))}
        of = lambda k: number[k] if k in number else repr(self.kinds.constant(k))
        found = [self.dtype, *[self.shown[k][:4] for k in self.given], *[number[k] for k in self.left]]
        for k, d in self.values.items():
            if isinstance(d, Element):
                said = ufunc_of(d.i)
                params = (
                    repr([getattr(a, "k", a) for a in d.i.params["args"]]) + said.__name__
                    if said
                    else settings_key(d.i.params)
                )
                found += [id(d.i.prim), params, *[of(s) for s, _ in d.sources()], k in self.watched]
            elif type(d) is not RegionView:
                found += [d.key(), *[(of(s), m) for s, m in d.sources()], k in self.watched]
            else:
                for p in d.pieces:
                    found += [p.box, *[(of(s), m) for s, m in p.sources]]
                found += [d.form, d.turned, number.get(d.base)]
            found += [*self.shown[k][1:4], self.cuts[k]]
        for k, d in self.sums.items():
            found += [d.key(), *[of(s) for s, _ in d.sources()], *self.shown[k][1:3], k in self.watched]
        return tuple(found)

    def ready(self) -> "GroupCode":
        """Its code: that of a group of the same text, if there is one."""
        try:
            key = self.key()
        except TypeError:
            key = None
        code = CODES.get(key)
        if code is None:
            code = self.kinds.code(self)
            if key is not None and len(CODES) < CODES_KEPT:
                CODES[key] = code
        self.code = code
        return code

    def __call__(self, *given):
        """What it makes, a tuple; None where a value is not finite that NumPy might warn of, or memory is not
        as it was recorded. After the given values comes memory for what is written, or None."""
        code = self.code or self.ready()
        try:
            state = self.pool.pop()
        except IndexError:
            state = CallMemory(self)
        out = code.call(state, *given)
        self.pool.append(state)
        return out


def buffer_shares(kinds, now) -> tuple:
    """(views that are carried on, values that are written), of those gathered."""
    carried = {}
    stored = []
    for k, d in now.values.items():
        later = [
            u
            for u in kinds.users.get(k, ())
            if u not in now.values and u not in now.sums and u not in kinds.done
        ]
        if k not in kinds.ends and not later:
            continue
        view = type(d) is RegionView and d.is_view
        near = view and (d.sources()[0][0] not in now.values or d.sources()[0][0] in carried)
        if near and k not in kinds.ends and all([kinds.known[u] is not None for u in later]):
            carried[k] = d
        else:
            stored.append(k)
    return carried, stored


class GroupCode:
    """The machine code of a group, and of all that are like it."""

    def __init__(self, group: Group):
        self.group, self.shown, self.values, self.sums = group, group.shown, group.values, group.sums
        self.g = Exact()
        self.nests = {}
        self.table = {a: n for n, a in enumerate((*group.arrays, *group.written))}
        self.parts = {k: [] for k in group.totals}
        for k in group.stored:
            self.store(k)
        for k, d in self.sums.items():
            self.add_up(k, d)
        self.compile([(self.parts[k], k in group.watched, self.sums[k].how) for k in group.totals])

    def compile(self, totals: list) -> None:
        sizes = [self.shown[a][3].itemsize for a in self.table]
        loops = Loops(self.g, list(self.nests.values()), sizes, totals, FLOATS[self.group.dtype])
        self.room, self.items, self.work, self.serial, self.lines = (
            loops.room,
            loops.items,
            loops.work,
            loops.serial,
            loops.lines,
        )
        self.all = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function_address(loops.text, "all"))
        self.part = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
            function_address(loops.text, "loop")
        )
        self.last = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function_address(loops.text, "last"))
        self.call = self.caller()
        del self.group, self.g, self.nests, self.values, self.sums, self.shown

    # --- what is to be emitted ---

    def nest(self, extents: tuple) -> Nest:
        found = self.nests.get(extents)
        if found is None:
            found = self.nests[extents] = Nest(extents, FLOATS[self.group.dtype])
        return found

    def boxes(self, k: int, shape: tuple) -> list:
        """(the nest, the place of the value in it, the axes that are its counters), for each cell between the
        cuts."""
        found = []
        for starts, sizes in cells(shape, self.group.cuts.get(k) or ((),) * len(shape)):
            axes = [a for a, n in enumerate(sizes) if n != 1]
            at = [(s, tuple([int(a == axes[d]) for d in range(len(axes))])) for a, s in enumerate(starts)]
            found.append((self.nest(tuple([sizes[a] for a in axes])), tuple(at), axes))
        return found

    def store(self, k: int) -> None:
        form = self.group.forms.get(k)
        strides = packed(form, self.shown[k][3].itemsize) if form else packed_strides(self.shown[k])
        for nest, place, axes in self.boxes(k, form or self.shown[k][1]):
            first = sum([start * s for (start, _), s in zip(place, strides, strict=True)])
            dtype = self.shown[k][3]
            steps = tuple([strides[a] for a in axes])
            access = ArrayAccess(self.table[k], first, steps, dtype == BOOL, whole_bits(dtype))
            nest.stores.append((self.node(nest, k, place), access))

    def add_up(self, k: int, d: SummedValue) -> None:
        strides, step = packed_strides(self.shown[k]), 0
        if type(d) is ScatteredSum:
            own, step = {a: strides[j] for j, a in d.own.items()}, strides[d.axis]
        else:
            kept = [a for a in range(len(d.shape)) if a not in d.axes]
            own = dict(
                zip(kept, strides if len(strides) == len(kept) else [strides[a] for a in kept], strict=True)
            )
        for nest, place, axes in self.boxes(k, d.shape):
            node = self.node(nest, d.k, place)
            node = of_truth(self.g, node) if self.g.boolean(node) else node
            if k in self.parts:
                self.parts[k].append((list(self.nests.values()).index(nest), len(nest.sums)))
                nest.sums.append((node, d.how))
            else:
                first, dtype = sum([place[a][0] * s for a, s in own.items()]), self.shown[k][3]
                steps = tuple([own.get(a, 0) for a in axes])
                index = self.index(nest, d, place) if type(d) is ScatteredSum else -1
                access = ArrayAccess(self.table[k], first, steps, False, whole_bits(dtype), index, step)
                nest.partial.append((node, access, d.how))

    def index(self, nest: Nest, d: ScatteredSum, place: tuple) -> int:
        """The node of the index at which an element is added."""
        (at, m), (n,) = d.list[0], d.counts
        own, there = in_range(self.g, self.node(nest, at, operand_place(m, place, len(nest.extents))), n)
        self.require(nest, there)
        return own

    def node(self, nest: Nest, k: int, place: tuple) -> int:
        """The node of value k at this place: what is asked for is found from the last instruction to the
        first, and made in turn."""
        if k not in self.values:
            return self.leaf(nest, k, place)
        asked = {k: {place: None}}
        needs = {}
        for v in reversed(self.values):
            for at in asked.get(v, ()):
                if (v, at) not in nest.known:
                    needs[v, at] = self.values[v].needs(at, nest.extents)
                    for a, there in needs[v, at]:
                        asked.setdefault(a, {})[there] = None
        for v, d in self.values.items():
            for at in asked.get(v, ()):
                if (v, at) not in nest.known:
                    x = [
                        nest.known[a, there]
                        if a in self.values
                        else self.leaf(nest, a, there, argument_form(d, a))
                        for a, there in needs[v, at]
                    ]
                    if d.gathered is None:
                        n = d.node(self.g, x)
                    else:
                        n = self.gather(nest, d, at, in_range(self.g, x[0], d.counts[0])[0])
                    if self.shown[v][3] != BOOL and self.g.boolean(n):
                        n = of_truth(self.g, n)
                    nest.known[v, at] = n
                    self.check(nest, v, n)
                    for condition in d.conditions(self.g, x, n):
                        self.require(nest, condition)
        return nest.known[k, place]

    def check(self, nest: Nest, v: int, n: int) -> None:
        """A plain call might warn of this value, or a function ends before NumPy's: it is to be finite."""
        d, op = self.values[v], self.g.op[n]
        if type(d) is RegionView or self.shown[v][3] == BOOL or op in ("const", "in") or n in nest.loads:
            return
        if v not in self.group.watched and not (type(d) is Element and d.bounded):
            return
        if op in ("add", "sub", "mul", "neg"):  # of what is no number comes no number
            nest.checks = [c for c in nest.checks if c not in self.g.args[n]]
        if n not in nest.checks:
            nest.checks.append(n)

    def require(self, nest: Nest, condition: int) -> None:
        """It is to hold at each element."""
        n = self.g.select(condition, self.g.zero, self.g.const(math.nan))
        if self.g.op[n] != "const" and n not in nest.checks:
            nest.checks.append(n)

    def leaf(self, nest: Nest, a: int, place: tuple, form: tuple | None = None) -> int:
        """A value from memory, which may be counted in another shape, or a number."""
        constant = self.group.kinds.constant(a)
        if constant is not None:
            return (
                self.g.neg(self.g.zero)
                if constant == 0 and math.copysign(1, constant) < 0
                else self.g.const(constant)
            )
        if a not in self.table:
            k = self.group.single.index(a)
            node = self.g.input("th", 0, k)
            nest.numbers[node] = k
            return node
        access = self.access(nest, a, place, form)
        node = self.g.input("y", 0, (access.pointer, access.first, access.strides))
        node = self.g.raw("ne", node, self.g.zero) if access.truth else node
        nest.loads.setdefault(node, access)
        return node

    def access(self, nest: Nest, a: int, place: tuple, form: tuple | None = None) -> ArrayAccess:
        """Where an array is read at this place."""
        _, _, strides, dtype, _ = self.shown[a]
        strides = packed(form, dtype.itemsize) if form else strides
        first, steps = nest.in_memory(place, strides)
        return ArrayAccess(self.table[a], first, steps, dtype == BOOL, whole_bits(dtype))

    def gather(self, nest: Nest, d, place: tuple, index: int) -> int:
        """The node of an element at an index along an axis."""
        a = self.access(nest, d.gathered, operand_place(d.map, place, len(nest.extents)))
        a.index, a.step = index, self.shown[d.gathered][2][d.axis]
        node = self.g.raw("gather", index, meta=(a.pointer, a.first, a.strides, a.step))
        nest.loads.setdefault(node, a)
        return node

    # --- the call ---

    def caller(self):
        """Its call as a text: (state, *given, *memory for what is written or None)."""
        group, space = (
            self.group,
            {
                "inf": math.inf,
                "HEADER": HEADER,
                "address": data_pointer,
                "spread": waiting.run_blocks,
                "code": self,
            },
        )
        names = {a: f"v{n}" for n, a in enumerate(group.given)}
        places = [f"o{n}" for n in range(len(group.written))]
        lines = []
        for n, a in enumerate(group.arrays):
            space[f"s{n}"] = self.shown[a][2]
            lines.append(f"if {names[a]}.strides != s{n}: {names[a]} = with_strides({names[a]}, s{n})")
        for n, (k, o) in enumerate(zip(group.written, places, strict=True)):
            space[f"m{n}"] = maker(self.shown[k])
            lines.append(f"if {o} is None: {o} = m{n}()")
            if k in self.sums:
                base = self.sums[k].gathered
                constant = None if base is None else group.kinds.constant(base)
                start = STARTS[self.sums[k].how] if base is None else constant
                lines.append(f"{o}[...] = {names[base] if start is None else repr(start)}")
        where = "id({})" if HEADER else "address({})"
        inside = [where.format(x) for x in (*[names[a] for a in group.arrays], *places)]
        lines += ["t = state.table"] + [f"t[{n}] = {x}" for n, x in enumerate(inside)]
        lines += [f"state.numbers[{n}] = {names[a]}" for n, a in enumerate(group.single)]
        if self.serial or self.work <= waiting.THREADED_OPERATIONS:
            lines.append("code.all(state.address)")
        else:
            lines.append(
                "spread(code.items, code.work, lambda a, b: code.part(state.address, a, b)); "
                "code.last(state.address)"
            )
        lines.append("if state.flag[0]: state.flag[0] = 0; return None")
        totals = {k: f"state.totals[{n}]" for n, k in enumerate(group.totals)}
        made = {**dict(zip(group.written, places, strict=True)), **totals}
        for k in self.sums:
            if k in group.watched and k not in totals:
                lines.append(f"if not finite({made[k]}).all(): return None")
        space["finite"], space["with_strides"] = np.isfinite, with_strides
        lines.append(f"return ({''.join([made[k] + ', ' for k in group.left])})")
        head = f"def call({', '.join(['state', *names.values(), *places])}):\n"
        exec(compile(head + "".join([f"    {line}\n" for line in lines]), "<tapegrad group>", "exec"), space)
        return space["call"]


def whole_bits(dtype: np.dtype) -> int:
    """The bits of an integer; of other numbers 0."""
    return 8 * dtype.itemsize if dtype in INTEGERS else 0


def argument_form(d, a: int) -> tuple | None:
    return d.form if type(d) is RegionView and d.base == a else None


def with_strides(v: np.ndarray, strides: tuple) -> np.ndarray:
    """v, or a copy of it with these strides. (The step along an axis of one element does not matter.)

    A block gives a part of an array without the gaps that it has in a recording. (`room_laid` makes wide gaps
    smaller; a group is compiled for these.)"""
    if all([n < 2 or a == b for n, a, b in zip(v.shape, v.strides, strides, strict=True)]):
        return v
    spans = [(n - 1) * s for n, s in zip(v.shape, strides, strict=True)]
    first = -sum([s for s in spans if s < 0])
    memory = np.empty(first + sum([s for s in spans if s > 0]) + v.itemsize, np.uint8)
    made = np.ndarray(v.shape, v.dtype, memory, first, strides)
    made[...] = v
    return made


def packed_strides(shown: tuple) -> tuple:
    """The strides of fresh memory for a value: in the order that was recorded, without gaps."""
    _, shape, strides, dtype, _ = shown
    found, step = [0] * len(shape), dtype.itemsize
    for a in sorted(range(len(shape)), key=lambda a: (abs(strides[a]), -a)):
        found[a] = step
        step *= shape[a]
    return tuple(found)


def layout(shown: tuple) -> tuple:
    """(shape in memory order, dtype, axes) of fresh memory for a value."""
    _, shape, _, dtype, _ = shown
    strides = packed_strides(shown)
    order = sorted(range(len(shape)), key=lambda a: (-strides[a], a))
    return tuple([shape[a] for a in order]), dtype, tuple([order.index(a) for a in range(len(shape))])


def maker(shown: tuple) -> Callable:
    """What makes fresh memory for a value."""
    shape, dtype, axes = layout(shown)
    if axes == tuple(range(len(shape))):
        return lambda: np.empty(shape, dtype)
    return lambda: np.empty(shape, dtype).transpose(axes)


class CallMemory:
    """Memory for one call at a time."""

    __slots__ = ("numbers", "sums", "flag", "totals", "table", "address")

    def __init__(self, group: Group):
        count = len(group.arrays) + len(group.written)
        self.numbers = np.empty(max(len(group.single), 1), group.dtype)
        self.sums = np.empty(max(group.code.room, 1), group.dtype)
        self.totals = np.empty(max(len(group.totals), 1), group.dtype)
        self.flag = np.zeros(1, np.int64)
        self.table = (ctypes.c_int64 * (count + 4))()
        self.table[count:] = [data_pointer(x) for x in (self.numbers, self.sums, self.flag, self.totals)]
        self.address = ctypes.addressof(self.table)
