"""Runs of a program on large arrays as compiled loops: what is elementwise, what only moves elements, and sums, in as few passes as go.

A value of such a run has no memory of its own: where another one is made of it, its text stands there, at the places asked for
(_regions.py).  What others read, results and what the caller gets, is written; the rest never leaves the registers.  Stencils come out
as one loop for the interior and one for each border, whose texts differ."""

import ctypes
import math
import threading
from typing import Any

import numpy as np

from ..kernels.launch import waiting
from ..kernels.launch.cpu import address, compiled
from ..ops import shaping
from ._elements import ENDING, Element, Exact, as_number, cost_of, of_truth, ufunc_of
from ._loops import Access, Loops, Nest
from ._program import PART, Instruction, Program
from ._regions import SHORT, Added, Moved, broadcast, cells, cuts_of, moved, spread_of, through, viewed, whole

GROUP = "group"
SMALL = 256  # elements below which an instruction is left to others
CELLS = 9  # texts of one loop
SPREAD = 12  # places at which an operand is read
HEAVY = 600  # operations of a group
LONG = 150  # instructions of one
CALL, PASS, COST, ENTRY = 600, 0.3, 0.05, 3000  # ns: of an instruction; of an element of it, and of each of its operations; of a group
FLOATS = {np.dtype("f8"): 64, np.dtype("f4"): 32}
BOOL = np.dtype(bool)


class Summed:
    """A sum: its operand is read at all places."""

    def __init__(self, k: int, axes: tuple, shape: tuple):
        self.k, self.axes, self.shape = k, axes, shape


class Kinds:
    """What each instruction is in a group: its definition, or None."""

    def __init__(self, program: Program, small: int):
        self.program, self.shown, self.small = program, program.shown, small
        self.users: dict = {}
        for k, i in program.code:
            for a in dict.fromkeys(i.args):
                self.users.setdefault(a, []).append(k)
        self.done: set = set()  # what has been read
        self.ends = {k for k, _ in program.outputs} | {k for _, k in program.written} | set(program.guards)
        self.numbers: dict = {}
        self.known = {k: self.definition(k, i) for k, i in program.code}
        for k, i in reversed(program.code):  # a view that others take is theirs
            d = self.known[k]
            if type(d) is Moved and viewed(i) is not None and not i.params.get("copy") and self.is_asked(k):
                self.known[k] = None

    def is_asked(self, k: int) -> bool:
        return k in self.ends or any([self.known[u] is None for u in self.users.get(k, ())])

    def float_of(self, k: int, i: Instruction) -> Any:
        """The dtype of the numbers of an instruction."""
        return next((self.shown[a][3] for a in (k, *i.args) if self.shown[a][3] in FLOATS), None)

    def is_constant(self, a: int) -> bool:
        return self.constant(a) is not None

    def constant(self, a: int) -> float | None:
        """The number that all elements of a constant are."""
        if a not in self.numbers:
            self.numbers[a] = uniform(self.program.constants.get(a))
        return self.numbers[a]

    def bits(self, k: int) -> np.dtype | None:
        """The dtype of a value that a loop may read or write."""
        numpys, shape, strides, dtype, _ = self.shown[k]
        if numpys is False or dtype is None or (dtype not in FLOATS and dtype != BOOL):
            return None
        return None if any([s % dtype.itemsize for s in strides]) else dtype

    def definition(self, k: int, i: Instruction) -> Any:
        if "under" in i.watched or i.prim is PART:
            return None
        numpys, shape, _, dtype, _ = self.shown[k]
        if i.prim is shaping.sum.prim:
            return self.sum(k, i)
        if not numpys or math.prod(shape) < self.small or self.bits(k) is None:
            return None
        shapes = [self.shown[a][1] for a in i.args]
        dtypes = [self.operand(a) for a in i.args]
        if any([d is None for d in dtypes]):
            return None
        kinds = {d for d in dtypes if d in FLOATS}
        if len(kinds) > 1 or (dtype in FLOATS and kinds and dtype not in kinds):
            return None
        d = moved(i, shapes, shape)
        if d is not None:
            return d if all([x == dtype or (x is float and dtype != BOOL) for x in dtypes]) else None
        cost = cost_of(i, tuple([x == BOOL for x in dtypes]))
        return None if cost is None or np.broadcast_shapes(*shapes) != shape else Element(i, [(a, broadcast(s, shape)) for a, s in zip(i.args, shapes, strict=True)], cost)

    def operand(self, a: int) -> Any:
        """The dtype of an operand; `float` of a number of Python."""
        if self.shown[a][3] is None or (self.shown[a][0] is None and a in self.program.constants):
            v = self.program.constants.get(a)
            return None if as_number(v) is None else float if self.shown[a][3] is None else self.shown[a][3]
        return self.bits(a)

    def sum(self, k: int, i: Instruction) -> Any:
        x = i.args[0]
        numpys, shape, _, dtype, _ = self.shown[x]
        if not numpys or math.prod(shape) < self.small or self.bits(x) not in FLOATS or self.shown[k][3] != dtype:
            return None
        axis, keepdims = i.params["axis"], i.params["keepdims"]
        axes = tuple(range(len(shape))) if axis is None else tuple([a % len(shape) for a in (axis if type(axis) is tuple else (axis,))])
        if len(axes) < len(shape) and math.prod([shape[a] for a in axes]) <= SHORT and math.prod(self.shown[k][1]) >= self.small:
            return Added(x, shape, axes, keepdims)
        if len(axes) == len(shape) and keepdims:
            return None
        return Summed(x, axes, shape)


class Open:
    """A group that is being gathered."""

    def __init__(self, carried: dict, before: "Open | None" = None) -> None:
        self.values: dict = dict(carried)
        self.sums: dict = {}
        self.code: list = []
        self.cuts: dict = {k: before.cuts[k] for k in carried} if before else {}
        self.spread: dict = {k: before.spread[k] for k in carried} if before else {}
        self.cost = 0
        self.dtype: Any = None

    def holds(self, i: Instruction) -> bool:
        return any([a in self.values or a in self.sums for a in i.args])

    def add(self, k: int, i: Instruction, d: Any, kinds: Kinds) -> bool:
        """Can it be one more?"""
        if type(d) is Summed:
            self.sums[k] = d
        else:
            shape = kinds.shown[k][1]
            cuts, spread = cuts_of(d, shape, self.cuts), spread_of(d, shape, self.spread)
            if math.prod([len(c) + 1 for c in cuts]) > CELLS or len(spread) > SPREAD:
                return False
            self.values[k], self.cuts[k], self.spread[k] = d, cuts, spread
            self.cost += d.cost * len(spread)
        self.code.append((k, i))
        self.dtype = self.dtype or kinds.float_of(k, i)
        return True

    def full(self, dtype: Any, i: Instruction) -> bool:
        """Must another group begin before this instruction?"""
        clash = dtype is not None and self.dtype not in (None, dtype)
        return clash or any([a in self.sums for a in i.args]) or self.cost > HEAVY or len(self.code) >= LONG


class Reader:
    """The instructions of a program in the order of a replay, some of them as groups."""

    def __init__(self, program: Program, small: int):
        self.program, self.kinds = program, Kinds(program, small)
        self.by_number = dict(program.code)
        self.ready = {*program.arguments, *program.constants, *[k for k, _ in program.captured]}
        self.order: list = []
        self.groups: list = []
        self.alone: dict = {}  # name -> how many large ones are in no group
        self.now = Open({})
        for k, i in program.code:
            self.read(k, i)
            self.kinds.done.add(k)
        self.close()

    def read(self, k: int, i: Instruction) -> None:
        d = self.kinds.known[k]
        if d is None:
            if self.now.holds(i):
                self.close()
            self.plain(k, i)
            return
        if self.now.full(self.kinds.float_of(k, i), i):
            self.close()
        if not self.now.add(k, i, d, self.kinds):
            self.close()
            if not self.now.add(k, i, d, self.kinds):
                self.plain(k, i)

    def plain(self, k: int, i: Instruction) -> None:
        """By itself, after what it reads."""
        for a in i.args:
            if a not in self.ready:
                self.plain(a, self.by_number[a])
        self.order.append((k, i))
        self.ready.add(k)
        if self.kinds.shown[k][0] and math.prod(self.kinds.shown[k][1]) >= self.kinds.small:
            name = i.prim if type(i.prim) is str else i.prim.name
            self.alone[name] = self.alone.get(name, 0) + 1

    def close(self) -> None:
        now = self.now
        if now.code:
            made = Group(self.kinds, now)
            if made.left and made.pays:
                for a in made.given:
                    if a not in self.ready:
                        self.plain(a, self.by_number[a])
                self.groups.append(made)
                self.order.append((-len(self.groups), Instruction(GROUP, tuple(made.given), made)))
                self.ready.update(made.left)
            elif made.left:
                for k, i in now.code:
                    if k not in made.carried:
                        self.plain(k, i)
            self.now = Open(made.carried, now)
        else:
            self.now = Open({k: d for k, d in now.values.items()}, now)


class Group:
    """Instructions that run as one call of compiled loops.  `given`: the values that it reads; `left`: those that it makes."""

    def __init__(self, kinds: Kinds, now: Open):
        self.kinds, self.shown = kinds, kinds.shown
        self.values, self.sums, self.cuts = now.values, now.sums, now.cuts
        self.watched = {k for k, i in now.code if i.watched}
        self.dtype = now.dtype or np.dtype("f8")
        inside = {*self.values, *self.sums}
        beyond = {k: [u for u in kinds.users.get(k, ()) if u not in inside and u not in kinds.done] for k in self.values}
        self.carried: dict = {}
        for k, d in self.values.items():  # views of what lies in memory are no work
            moved_only = type(d) is Moved and len(d.pieces) == 1 and len(d.pieces[0].sources) == 1
            near = moved_only and (d.sources()[0][0] not in self.values or d.sources()[0][0] in self.carried)
            if near and k not in kinds.ends and beyond[k] and all([kinds.known[u] is not None for u in beyond[k]]):
                self.carried[k] = d
        self.stored = [k for k in self.values if k not in self.carried and (k in kinds.ends or beyond[k])]
        self.left = [*self.stored, *self.sums]
        needed, reads = {*self.stored, *[d.k for d in self.sums.values()]}, {}
        for k in reversed(self.values):
            if k in needed:
                reads[k] = [s for s, _ in self.values[k].sources()]
                needed.update(reads[k])
        self.given = sorted([a for a in needed if a not in self.values and not kinds.is_constant(a)])
        self.pool: list = []
        saved = 0.0
        for k, _ in now.code:
            d, size = (self.values.get(k) or self.sums[k]), math.prod(self.shown[k][1])
            if k not in self.carried and not (type(d) is Moved and viewed_alone(d)):
                saved += CALL + (PASS + COST * getattr(d, "cost", 0)) * size
        self.saved = saved - ENTRY - PASS * sum([math.prod(self.shown[k][1]) for k in (*self.given, *self.left)])
        self.pays = self.saved > 0
        self.run: Any = None
        self.lock = threading.Lock()

    def written(self) -> list:
        """What lies in memory, of what is left."""
        return [k for k in self.left if k not in self.sums or self.shown[k][1]]

    # --- the loops ---

    def build(self) -> None:
        """The text, and its machine code."""
        self.g = Exact()
        self.nests: dict = {}
        self.arrays = [a for a in self.given if self.shown[a][1] or self.shown[a][0]]
        self.single = [a for a in self.given if a not in self.arrays]
        self.table = {a: n for n, a in enumerate(self.arrays)}
        for k in self.written():
            self.table[k] = len(self.table)
        self.totals: dict = {k: [] for k, d in self.sums.items() if not self.shown[k][1]}
        for k in self.stored:
            self.store(k)
        for k, d in self.sums.items():
            self.add_up(k, d)
        nests = list(self.nests.values())
        loops = Loops(self.g, nests, len(self.table))
        self.parts = {k: [loops.sums[p] for p in where] for k, where in self.totals.items()}
        self.room, self.items, self.work, self.serial = loops.room, loops.items, loops.work, loops.serial
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.run = kind(compiled(loops.text, "loop"))
        self.length = loops.text.count("\n")
        self.outs = [(self.table[k], self.shown[k], k in self.sums) for k in self.written()]
        self.ins = [(self.table[a], self.shown[a][2], self.shown[a][3].itemsize - 1) for a in self.arrays]
        del self.nests, self.g

    def nest(self, extents: tuple) -> tuple:
        """The nest of these loops, and what is known in it: (value, place) -> node."""
        found = self.nests.get(extents)
        if found is None:
            found = self.nests[extents] = Nest(extents, FLOATS[self.dtype])
        return found

    def boxes(self, k: int, shape: tuple) -> list:
        """(the nest, the place of the value in it, starts): for each cell between the cuts."""
        found = []
        for starts, sizes in cells(shape, self.cuts.get(k) or ((),) * len(shape)):
            extents = tuple([n for n in sizes if n != 1])
            axes = [a for a, n in enumerate(sizes) if n != 1]
            at = [(s, tuple([int(a == axes[d]) for d in range(len(axes))])) for a, s in enumerate(starts)]
            found.append((self.nest(extents), tuple(at), axes))
        return found

    def store(self, k: int) -> None:
        strides = laid_out(self.shown[k])
        for nest, place, axes in self.boxes(k, self.shown[k][1]):
            node = self.node(nest, k, place)
            first = sum([start * s for (start, _), s in zip(place, strides, strict=True)])
            nest.stores.append((node, Access(self.table[k], first, tuple([strides[a] for a in axes]), self.shown[k][3] == BOOL)))

    def add_up(self, k: int, d: Summed) -> None:
        kept = [a for a in range(len(d.shape)) if a not in d.axes]
        own = dict(zip(kept, [s for n, s in zip(self.shown[k][1], laid_out(self.shown[k]), strict=True)], strict=False))
        if kept and len(self.shown[k][1]) != len(kept):  # with keepdims
            own = {a: laid_out(self.shown[k])[a] for a in kept}
        for nest, place, axes in self.boxes(d.k, d.shape):
            node = self.node(nest, d.k, place)
            if not kept:
                self.totals[k].append((list(self.nests.values()).index(nest), len(nest.sums)))
                nest.sums.append(node)
            else:
                first = sum([place[a][0] * own[a] for a in kept])
                nest.partial.append((node, Access(self.table[k], first, tuple([own.get(a, 0) for a in axes]))))

    def node(self, nest: Nest, k: int, place: tuple) -> int:
        """The node of value k at this place: what is asked for is found from the last instruction to the first, and made in turn."""
        asked: dict = {k: {place: None}}
        extents = nest.extents
        order = list(self.values)
        needs: dict = {}
        for v in reversed(order):
            for at in asked.get(v, ()):
                if (v, at) in nest.known:
                    continue
                needs[v, at] = self.values[v].needs(at, extents) if type(self.values[v]) is not Element else [
                    (a, through(m, at, len(extents))) for a, m in self.values[v].sources()
                ]
                for a, there in needs[v, at]:
                    asked.setdefault(a, {})[there] = None
        for v in order:
            for at in asked.get(v, ()):
                if (v, at) in nest.known:
                    continue
                x = [nest.known[a, there] if a in self.values else self.leaf(nest, a, there) for a, there in needs[v, at]]
                n = self.values[v].node(self.g, x)
                if self.shown[v][3] != BOOL and self.g.boolean(n):
                    n = of_truth(self.g, n)
                nest.known[v, at] = n
                self.check(nest, v, n, x)
        return nest.known[k, place] if k in self.values else self.leaf(nest, k, place)

    def check(self, nest: Nest, v: int, n: int, x: list) -> None:
        """A plain call might warn of this value, or a function ends before NumPy's: it is to be finite."""
        d = self.values[v]
        if type(d) is Moved or self.shown[v][3] == BOOL:
            return
        ending = type(d) is Element and ufunc_of(d.i) is None and d.i.prim.name in ENDING
        if (v not in self.watched and not ending) or self.g.op[n] in ("const", "in") or n in nest.loads:
            return
        if self.g.op[n] in ("add", "sub", "mul", "neg"):  # no number makes no number
            nest.checks = [c for c in nest.checks if c not in self.g.args[n]]
        if n not in nest.checks:
            nest.checks.append(n)

    def leaf(self, nest: Nest, a: int, place: tuple) -> int:
        """A value from memory, or a number."""
        if a not in self.table or a in self.left:
            constant = self.kinds.constant(a)
            if constant is not None:
                return self.g.const(constant) if not np.signbit(constant) or constant else self.g.neg(self.g.zero)
            node = self.g.input("th", 0, self.single.index(a))
            nest.numbers[node] = self.single.index(a)
            return node
        _, shape, strides, dtype, _ = self.shown[a]
        first = sum([start * s for (start, _), s in zip(place, strides, strict=True)])
        steps = tuple([sum([own[d] * s for (_, own), s in zip(place, strides, strict=True)]) for d in range(len(nest.extents))])
        access = Access(self.table[a], first, steps, dtype == BOOL)
        node = self.g.input("y", 0, nest_key(access))
        node = self.g.raw("ne", node, self.g.zero) if access.truth else node
        nest.loads.setdefault(node, access)
        return node

    # --- the call ---

    def __call__(self, *given: Any) -> Any:
        """What it makes, a tuple; None where a value is not finite that NumPy might warn of, or memory is not as it was recorded.
        After the given values may come memory for what is left, or None."""
        if self.run is None:
            with self.lock:
                if self.run is None:
                    self.build()
        try:
            state = self.pool.pop()
        except IndexError:
            state = State(self)
        table, count = state.table, len(self.given)
        values = dict(zip(self.given, given, strict=False))
        for (n, strides, odd), a in zip(self.ins, self.arrays, strict=True):
            v = values[a]
            place = address(v)
            if v.strides != strides or place & odd:
                return None
            table[n] = place
        for n, a in enumerate(self.single):
            state.numbers[n] = values[a]
        made = []
        for (n, shown, summed), old in zip(self.outs, given[count:] or (None,) * len(self.outs), strict=True):
            v = old if old is not None else fresh(shown)
            if summed:
                v[...] = 0.0
            table[n] = address(v)
            made.append(v)
        if self.serial or self.work <= waiting.WORTH:
            self.run(state.address, 0, self.items)
        else:
            waiting.spread(self.items, self.work, lambda first, last: self.run(state.address, first, last))
        if state.flag[0]:
            state.flag[0] = 0
            self.pool.append(state)
            return None
        found = iter(made)
        out = tuple([self.total(state, k) if k in self.totals else next(found) for k in self.left])
        self.pool.append(state)
        for k, v in zip(self.left, out, strict=True):
            if k in self.sums and k in self.watched and not np.isfinite(v).all():
                return None
        return out

    def total(self, state: "State", k: int) -> Any:
        parts = state.views[k]
        return parts[0].sum() if len(parts) == 1 else self.dtype.type(sum([p.sum() for p in parts]))


def uniform(v: Any) -> float | None:
    if type(v) is not np.ndarray:
        return as_number(v)
    if not v.size or v.dtype not in FLOATS:
        return None
    first = v[(0,) * v.ndim]
    return float(first) if (v == first).all() and (np.signbit(v) == np.signbit(first)).all() else None


def viewed_alone(d: Moved) -> bool:
    """Is it a view, which takes no time?"""
    return len(d.pieces) == 1 and len(d.pieces[0].sources) == 1


def nest_key(a: Access) -> tuple:
    return a.pointer, a.first, a.strides, a.truth


def laid_out(shown: tuple) -> tuple:
    """The strides of fresh memory for a value: as recorded, where that has no gaps."""
    _, shape, strides, dtype, _ = shown
    size = dtype.itemsize
    order = sorted(range(len(shape)), key=lambda a: (-abs(strides[a]), a))
    found, step = [0] * len(shape), size
    for a in reversed(order):
        found[a] = step
        step *= shape[a]
    return tuple(found)


def fresh(shown: tuple) -> np.ndarray:
    _, shape, _, dtype, _ = shown
    strides = laid_out(shown)
    if len(shape) < 2 or all([strides[a] >= strides[a + 1] for a in range(len(shape) - 1)]):
        return np.empty(shape, dtype)
    order = sorted(range(len(shape)), key=lambda a: -strides[a])
    return np.empty([shape[a] for a in order], dtype).transpose([order.index(a) for a in range(len(shape))])


class State:
    """Memory for one call at a time."""

    def __init__(self, group: Group):
        self.numbers = np.empty(max(len(group.single), 1), group.dtype)
        self.sums = np.empty(max(group.room, 1), group.dtype)
        self.flag = np.zeros(1, np.int64)
        self.table = (ctypes.c_int64 * (len(group.table) + 3))()
        self.table[len(group.table) :] = [address(self.numbers), address(self.sums), address(self.flag)]
        self.address = ctypes.addressof(self.table)
        self.views = {
            k: [np.lib.stride_tricks.as_strided(self.sums[first:], (items, w), (step * group.dtype.itemsize, group.dtype.itemsize))
                for first, items, step, w in parts]
            for k, parts in group.parts.items()
        }  # fmt: skip
