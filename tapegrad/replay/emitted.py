"""A program as a text of Python, one line for each instruction: what `Program.run` does, without its loop,
and with less memory.

A write is done where the buffer lies if nobody reads that memory afterwards.  Results of elementwise
operations on large arrays go to memory of values that are dead.  A product whose body guards it against 0
times inf is written as a plain one: NumPy notes the invalid operation, and then `Program.run` is asked.

Memory is followed by `Storage`: the values that may share it.  What the caller or the program itself keeps is
never written."""

import bisect
import collections
import functools
import math
from collections.abc import Callable

import numpy as np

from .._core.arrays import F8, copy_with_layout, is_array, owned, room_like
from .._core.primitive import ADD_AT, ASSIGN, READ, Primitive
from .._core.registry import load
from .._core.scope import now, put
from ..ops import shaping
from ..ops.declare import NUMPY, GatedProduct
from ..ops.indexing.regions import basic
from ..ops.indexing.traced_indices import ELEMENT_NUMBERS
from ..ops.sorting import ADDED_BY, TAKEN_BY
from ..ops.zero_derivative import ArgumentPlaceholder
from .buffer_pool import ArrayPool, is_packed
from .costs import (
    BLOCK_ELEMENT_NS,
    CALL_NS,
    CALLS_NAMED,
    COLUMNS,
    COMPILED_FUNCTION_NS,
    COMPUTED_INDEX_NS,
    COSTLY_OPERATIONS,
    GROUP_SHARE_NS,
    GROUPED_ELEMENTS,
    LOOP_BUILD_NS,
    LOOPED_ROW_NS,
    MATRIX_BYTES,
    REREAD_BYTE_NS,
    REUSED_BYTES,
    TEXT_ELEMENT_NS,
    WRITTEN_AGAIN_NS,
    slow_element_ns,
)
from .instruction_table import END, InstructionTable
from .interpreter.arena import Arena
from .interpreter.blocks import InstructionBlock
from .interpreter.instruction_kinds import InstructionKinds, block_ranges, has_own_function, is_exact
from .interpreter.loop_rerolling import is_small, reroll_blocks
from .interpreter.program_loops import is_all, program_loops
from .program import HEARD, Program, guard_holds, setting_of
from .record.instructions import GROUP, PART, Instruction, is_pure, ufunc_of

COMPUTED_INDICES = frozenset((ELEMENT_NUMBERS, TAKEN_BY, ADDED_BY))


class Storage:
    """Memory, and the values that may lie in it.  `until`: the last instruction that reads one; `outside`: it
    is an argument, a captured array or a constant."""

    __slots__ = ("members", "outside", "until")

    def __init__(self, k: int, until: float, outside: bool = False):
        self.members, self.outside, self.until = [k], outside, until


class EmittedProgram:
    """The text of a program, and the function that it makes; `compiled`: with groups in it; `blocks`: may it
    have those?  `tolerant`: may loops leave infinite values that came of such?"""

    def __init__(
        self,
        program: Program,
        compiled: bool = False,
        blocks: bool = True,
        rolled: bool = True,
        kinds=None,
        tolerant: bool = False,
    ):
        self.tolerant = tolerant
        self.groups = []
        self.alone = {}
        self.in_blocks = blocks
        # loops of Python that run as loops; why others do not
        self.compiled = compiled
        self.loops = []
        self.refused = {}
        if compiled:
            plain, kinds = program, InstructionKinds(program) if kinds is None else kinds
            program, self.groups, self.alone = with_groups(program, kinds)
            kinds = kinds if program is plain else None
        self.program, self.shown = program, program.shown
        self.space: dict = {"H": HEARD, "same": guard_holds, "now": now, "put": put}
        self.name = {}
        self.storage = {}
        self.pools = {}  # layout -> the name of what gives memory for it
        self.lines = []
        for k in program.inputs:
            self.storage[k] = Storage(k, END, True)
            self.name[k] = f"v{k}"
        self.space.update({f"v{k}": v for k, v in program.constants.items()})
        self.space.update({f"v{k}": v for k, v in program.captured})
        self.kinds = InstructionKinds(program) if kinds is None else kinds
        self.table = table = self.kinds.table
        self.last = table.last_reader
        # names of dead values: to use one again lets go of the memory, which is in the cache still
        self.idle = []
        self.used = self.inside = 0
        self.made = []  # blocks
        self.fresh = set()  # what blocks left: copies that nobody else has
        self.moved = set()  # values whose name another one has now
        self.dying = {}
        self.called: collections.Counter = collections.Counter()  # names of what Python calls
        self.emit(rolled and compiled)

    @property
    def blocks(self) -> int:
        return len(self.made)

    def worthwhile(self, compiling: float, spent: float = math.inf, call: float = 1.0) -> float:
        """After about how many replays does it pay to compile groups and loops?  They have then saved what
        they cost; or, where there are loops only, calls of the function as it is would have cost as much as
        what was spent and the loops.  `compiling`: ns that the machine code of groups takes; `spent`: on
        calls so far; `call`: of a call as it is."""
        if self.program.on_device:
            return math.inf  # kernels for a device are made when they are asked for
        loops = [loop for found in self.rolled.values() for loop in found if is_small(loop)]
        looped = sum([loop.stop - loop.start for loop in loops])
        cost = WRITTEN_AGAIN_NS * len(self.program.code) + LOOP_BUILD_NS * sum(
            [loop.period for loop in loops]
        )
        grouped, saved = self.saved_by_groups(), LOOPED_ROW_NS * looped
        if not grouped + saved:
            return math.inf
        if grouped:
            return (cost + compiling) / (grouped + saved)
        return min(cost / saved, (spent + cost) / call)

    def saved_by_groups(self) -> float:
        """About how many ns of a replay."""
        table, saved = self.table, 0.0
        counts = np.bincount(table.classes[self.within], minlength=len(table.example))
        for n, inside, count in zip(
            table.example.tolist(), counts.tolist(), table.counts.tolist(), strict=True
        ):
            k, i = self.program.code[n]
            size = math.prod(self.shown[k][1])
            if size >= GROUPED_ELEMENTS:
                within, alone = BLOCK_ELEMENT_NS, TEXT_ELEMENT_NS
                if i.prim in COMPUTED_INDICES:
                    within = alone = COMPUTED_INDEX_NS
                elif (operations := operation_count(i)) >= COSTLY_OPERATIONS:
                    alone = slow_element_ns(i.name, operations)
                    within = COMPILED_FUNCTION_NS if has_own_function(i) else alone
                saved += inside * (within * size - GROUP_SHARE_NS) + (count - inside) * alone * size
        return max(saved, 0.0) + REREAD_BYTE_NS * self.read_again()

    def read_again(self) -> int:
        """Bytes of large matrices that products with vectors read a second time and more: a loop over the
        rows reads them once."""
        constants = self.program.constants
        read: collections.Counter = collections.Counter()
        products = self.table.each(lambda k, i: i.reduces == "products" and len(self.shown[k][1]) == 1)
        for a in [a for n in np.flatnonzero(products).tolist() for a in self.program.code[n][1].args]:
            _, shape, _, dtype, _ = self.shown[a]
            if len(shape) == 2 and math.prod(shape) * dtype.itemsize >= MATRIX_BYTES:
                read[id(constants[a]) if a in constants else a, math.prod(shape) * dtype.itemsize] += 1
        return sum([(count - 1) * size for (_, size), count in read.items()])

    # --- memory ---

    def is_dead(self, storage: Storage, n: int) -> bool:
        return not storage.outside and storage.until <= n

    def join(self, k: int, other: int) -> None:
        self.storage[k] = storage = self.storage[other]
        storage.members.append(k)
        storage.until = max(storage.until, self.last[k])

    def large(self, k: int):
        """The layout of a large array of NumPy that is all of its memory; else None."""
        numpys, shape, strides, dtype, owns = self.shown[k]
        return (
            (shape, strides, dtype)
            if numpys and owns and math.prod(shape) * dtype.itemsize >= REUSED_BYTES
            else None
        )

    def release(self, n: int) -> None:
        """The names of what is read by instruction n for the last time.  A large array is let go of at once."""
        for k in self.dying.pop(n, ()):
            name = self.name[k] if k in self.storage and k not in self.moved else ""  # (within a block none)
            if name[:1] == "r":
                self.idle.append(name)
                if self.large(self.storage[k].members[0]):
                    self.lines.append(f"{name} = None")

    def target(self, k: int) -> str:
        """A name for the value."""
        if self.idle:
            name = self.idle.pop()
        else:
            name, self.used = f"r{self.used}", self.used + 1
        self.name[k] = name
        return name

    def memory(self, k: int) -> str:
        """The text of what gives memory for the value, if that is large."""
        layout = self.large(k)
        if layout is None:
            return "None"
        if layout not in self.pools:
            self.pools[layout] = self.given(ArrayPool(*layout), "m")
        return f"{self.pools[layout]}()"

    # --- lines ---

    def given(self, what, kind: str) -> str:
        name = f"{kind}{len(self.space)}"
        self.space[name] = what
        return name

    def emit(self, rolled: bool) -> None:
        program = self.program
        watched = None
        for k in (*program.arguments, *[k for k, _ in program.captured]):
            self.guard(k)
        table, n = self.table, -1
        self.found = found = block_ranges(self.kinds) if self.in_blocks else []
        self.within = within = np.zeros(len(program.code), bool)
        for start, stop in found:
            within[start:stop] = True
        self.outside = table.read_outside(~within)
        named = (table.last >= 0) & (table.last != END)
        named[table.made[within]] &= self.outside[table.made[within]]
        for k in np.flatnonzero(named).tolist():
            self.dying.setdefault(self.last[k], []).append(k)
        self.deaths = sorted(self.dying)
        self.arena, blocks = Arena(program, table), dict(found)
        self.rolled = {start: program_loops(table, start, stop) for start, stop in found}
        self.rolling = rolled and any([is_small(loop) for loops in self.rolled.values() for loop in loops])
        while n + 1 < len(program.code):
            n += 1
            k, i = program.code[n]
            if n in blocks:
                self.block(n, blocks[n])
                n = blocks[n] - 1
                continue
            if i.prim is GROUP:
                self.group(n, i)
                continue
            if i.watched != watched:
                setting = self.given(setting_of(i.watched, self.kinds.exact), "S")
                self.lines += ([] if watched is not None else ["before = now()", "try:"]) + [
                    f"put({setting})"
                ]
                watched = i.watched
            self.called[str(i.prim)] += 1
            self.instruction(n, k, i)
            self.guard(k)
        self.complete(watched is not None)

    def complete(self, watched: bool) -> None:
        """The function around the lines.  `watched`: do they set what NumPy does on errors?"""
        program, names = self.program, [f"v{k}" for k in self.program.arguments]
        results = ", ".join([self.result(k, leaf) for k, leaf in program.outputs])
        written = ", ".join([f"({self.given(array, 'w')}, {self.name[k]})" for array, k in program.written])
        body = [*self.lines, f"return [{results}], [{written}]"]
        head, end = ["H.shown = H.unsafe = None"], []
        if self.rolling:
            self.loops, self.refused = reroll_blocks(self.arena, self.made, self.tolerant)
        self.refused.update(dict.fromkeys(self.table.refused, 1))
        if self.made:
            self.arena.settle()
            head.append(f"M = {self.given(self.arena.take, 'M')}()")
            end.append(f"{self.given(self.arena.give_back, 'M')}(M)")
        for n, block in enumerate(self.made):
            block.settle()
            self.space["run"], self.space[f"B{n}"] = block.run, block.address
        if watched:
            first = body.index("try:") + 1
            inner = ["    " + line for line in body[first:]]
            body = [*body[:first], *inner, "finally:", "    put(before)"]
        if end:  # at a guard that fails too
            body = ["try:", *["    " + line for line in body], "finally:", *["    " + line for line in end]]
        body = head + body
        self.text = f"def replay({', '.join(names)}):\n" + "".join([f"    {line}\n" for line in body])
        exec(compile(self.text, "<tapegrad replay>", "exec"), self.space)
        self.run: Callable = self.space.pop("replay")

    def result(self, k: int | None, leaf) -> str:
        if k is None:
            name = self.given(leaf, "c")
            return f"{self.given(owned, 'f')}({name})" if is_array(leaf) else name
        name = self.name[k]
        numpys, shape, strides, dtype, _ = self.shown[k]
        if numpys is None:
            return name
        ends = [m for m in self.storage[k].members if self.last[m] == END]
        often = [j for j, _ in self.program.outputs].count(k) > 1
        alone = (
            not self.storage[k].outside
            and ends == [k]
            and (self.shown[k][4] or k in self.fresh)
            and not often
        )
        if alone and k not in [j for _, j in self.program.written]:
            return name
        return f"{name}.copy()" if is_packed(self.shown[k]) else f"{self.given(owned, 'f')}({name})"

    def block(self, start: int, stop: int) -> None:
        block = InstructionBlock(
            self.arena, start, stop, self.outside, self.kinds, self.rolled[start], self.rolling
        )
        number, names = len(self.made), [self.name[k] for k in block.given]
        self.made.append(block)
        self.inside += stop - start
        views = [f"p{n}" for n in range(len(names) + len(block.left))]
        if views:
            self.lines.append(f"{', '.join(views)}, = M.views[{number}]")
        self.lines += [f"{p}[...] = {name}" for p, name in zip(views, names, strict=False)]
        self.lines += [f"if not {self.given(is_exact, 'f')}({names[n]}): return None" for n in block.counts]
        failed = self.given(block.failed, "f")
        self.lines += [f"t0 = run(B{number}, M.address)", f"if t0: return {failed}(t0)"]
        for n in self.deaths[bisect.bisect_left(self.deaths, start) : bisect.bisect_left(self.deaths, stop)]:
            self.release(n)
        for k, (_, steps, _), (text, given) in zip(block.left, block.leaving, block.leave, strict=True):
            self.store(k)
            if steps is not None and steps[1] == self.shown[k][2]:
                self.fresh.add(k)
            text = text if given is None else text.format(self.given(given, "f"))
            self.lines.append(f"{self.target(k)} = {text}")

    def group(self, n: int, i: Instruction) -> None:
        """One call, which is given memory for what it makes."""
        made = i.params
        for k in made.left:
            self.store(k)
        args = [self.name[a] for a in i.args] + [self.memory(k) for k in made.written]
        self.lines += [f"t0 = {self.given(made, 'b')}({', '.join(args)})", "if t0 is None: return t0"]
        self.release(n)
        self.lines.append(f"{''.join([self.target(k) + ', ' for k in made.left])} = t0")
        for k in made.left:
            self.guard(k)

    def guard(self, k: int) -> None:
        for g in self.program.guards.get(k, ()):
            failed = self.given(g, "g")
            if g.truth:
                self.lines.append(f"if {'not ' if g.value else ''}{self.name[k]}: return {failed}")
            else:
                self.lines.append(f"if not same({self.name[k]}, {self.given(g.value, 'c')}): return {failed}")

    def instruction(self, n: int, k: int, i: Instruction) -> None:
        prim, args = i.prim, [self.name[a] for a in i.args]
        if is_elementwise(prim) and not (self.kinds.exact and type(prim.scalar) is GatedProduct):
            if all([self.shown[a][0] is not False for a in i.args]):
                self.elementwise(n, k, i, args)
                self.release(n)
                return
        flat = ufunc_of(i)
        if flat is not None:
            names = [
                args[a.k] if type(a) is ArgumentPlaceholder else self.given(a, "c") for a in i.params["args"]
            ]
            self.store(k)
            self.lines.append(f"{self.target(k)} = {self.given(flat, 'u')}({', '.join(names)})")
        elif prim is PART:
            self.join(k, i.args[0])
            self.lines.append(f"{self.target(k)} = {args[0]}[{i.params['at']}]")
        elif prim is READ:
            self.read(k, i, args[0])
        elif prim.writes:
            self.write(n, k, i, args)
        else:
            self.store(k)
            if prim.aliases or not is_pure(prim):
                for a in i.args:
                    self.shared(k, a)
            text = self.directly(n, k, i, args) or f"{self.body(prim, i.params)}({', '.join(args)})"
            self.lines.append(f"{self.target(k)} = {text}")
        self.release(n)

    def directly(self, n: int, k: int, i: Instruction, args: list) -> str | None:
        """What the body of the operation comes to for arrays of NumPy of these layouts, where that is one
        call."""
        prim, shown = i.prim, [self.shown[a] for a in i.args]
        if not all([numpys for numpys, *_ in shown]):
            return None
        if prim.reduces == "products" and all(
            [len(s) in (1, 2) and d.kind in "fc" for _, s, _, d, _ in shown]
        ):
            memory = self.memory(k) if is_packed(self.shown[k]) else "None"
            return f"{args[0]}.dot({args[1]}, {memory})" if memory != "None" else f"{args[0]}.dot({args[1]})"
        if prim in VIEWS:
            return args[0] + self.steps(((VIEWS[prim], *i.params.values()),), ("transpose", "reshape"))
        if prim.scalar == "select" and self.shown[k][0]:
            return f"{self.given(np.where, 'u')}({', '.join(args)})"
        if prim.reduces == "add" and self.is_of_rows(k, shown[0], **i.params):
            return f"{self.given(np.ones(shown[0][1][-2]), 'c')} @ {args[0]}"
        if prim.reduces == "add" and math.prod(shown[0][1]) <= shaping.LONG:
            axis, keepdims = self.given(i.params["axis"], "c"), i.params["keepdims"]
            return f"{self.given(shaping.add_up, 'u')}({args[0]}, {axis}, None, None, {keepdims})"
        return None

    def is_of_rows(self, k: int, layout: tuple, axis, keepdims: bool) -> bool:
        """Does a sum add up short rows?  NumPy loops anew for each; a product with ones takes a tenth of the
        time."""
        _, shape, _, dtype, _ = layout
        second_last = len(shape) > 1 and axis in (-2, len(shape) - 2, (-2,), (len(shape) - 2,))
        long = second_last and math.prod(shape) > shaping.LONG and 1 < shape[-1] < shaping.SHORT_ROW_ELEMENTS
        return long and dtype == F8 and not keepdims and is_packed(self.shown[k])

    def is_of_columns(self, k: int, i: Instruction) -> bool:
        """Is a result of short rows made of arrays of other shapes, so that NumPy loops anew for each row?"""
        numpys, shape, _, dtype, _ = self.shown[k]
        short = (
            bool(numpys) and len(shape) > 1 and 1 < shape[-1] < COLUMNS and math.prod(shape) > shaping.LONG
        )
        given = [self.shown[a] for a in i.args]
        fit = (
            short
            and dtype == F8
            and is_packed(self.shown[k])
            and all([n and s and d == F8 for n, s, _, d, _ in given])
        )
        return fit and any([s != shape for _, s, *_ in given])

    def steps(self, path: tuple, kinds: tuple) -> str | None:
        """The view by these steps, if they are of these kinds."""
        text = ""
        for kind, what in path:
            if kind not in kinds:
                return None
            name = self.given(what, "c")
            text += f"[{name}]" if kind == "at" else f".{kind}({name})"
        return text

    def shared(self, k: int, a: int) -> None:
        """k may lie in the memory of a."""
        mine, theirs = self.storage[k], self.storage[a]
        if mine is theirs or self.shown[a][0] is None:
            return
        theirs.members += mine.members
        theirs.until = max(theirs.until, mine.until)
        theirs.outside |= mine.outside
        for m in mine.members:
            self.storage[m] = theirs

    def store(self, k: int) -> None:
        """Give value k memory of its own."""
        self.storage[k] = Storage(k, self.last[k])

    def body(self, prim: Primitive, params: dict) -> str:
        return self.given(functools.partial(prim.run, **params) if params else prim.run, "f")

    def elementwise(self, n: int, k: int, i: Instruction, args: list) -> None:
        plain = without_gate(i.prim)
        sign, ufunc = plain.infix, plain.ufunc
        large = ufunc is not None and self.large(k) is not None
        old = next((a for a in i.args if large and self.is_given_up(a, k, n)), None)
        if old is not None:  # in the memory of an operand
            self.join(k, old)
            self.name[k] = self.name[old]
            self.moved.add(old)
            self.lines.append(f"{self.given(ufunc, 'u')}({', '.join(args)}, out={self.name[k]})")
            return
        self.store(k)
        name = self.target(k)
        if sign and ufunc and len(args) == 2 and self.is_of_columns(k, i):
            f = self.given(functools.partial(by_columns, ufunc, self.shown[k][1]), "f")
            self.lines.append(f"{name} = {f}({', '.join(args)}, {self.memory(k)})")
        elif large:
            self.lines.append(f"{name} = {self.given(ufunc, 'u')}({', '.join(args)}, out={self.memory(k)})")
        elif sign:
            first, *second = args + [self.given(v, "c") for v in i.params.values()]
            self.lines.append(f"{name} = {first} {sign} {second[0]}" if second else f"{name} = {sign}{first}")
        else:
            self.lines.append(f"{name} = {self.given(ufunc, 'u')}({', '.join(args)})")

    def read(self, k: int, i: Instruction, x: str) -> None:
        path, at, copy = i.params["path"], i.params["at"], i.params["copy"]
        is_number = self.shown[k][0] is None
        if is_number or copy or (at is not None and not basic(at)):
            self.store(k)
        else:
            self.join(k, i.args[0])
        step = self.steps(path, ("at", "transpose", "reshape"))
        if step is not None and at is not None:
            step = f"{step}[{self.given(at, 'c')}]" if basic(at) else None
        if not step or (copy and not is_number and 0 in self.shown[k][2]):
            self.lines.append(f"{self.target(k)} = {self.body(READ, i.params)}({x})")
        else:
            self.lines.append(
                f"{self.target(k)} = {x}{step}" + ("" if is_number or not copy else ".copy('K')")
            )

    def write(self, n: int, k: int, i: Instruction, args: list) -> None:
        path, at = i.params["path"], i.params["at"]
        base = i.args[0]
        storage = self.storage[base]
        if i.prim is ADD_AT and not path and at is Ellipsis and self.shown[base] == self.shown[i.args[1]]:
            self.store(k)  # to all of it, in one step
            self.lines.append(f"{self.target(k)} = {args[0]} + {args[1]}")
        elif i.prim is ASSIGN and is_all(path, at) and self.is_given_up(i.args[1], base, n):
            self.join(k, i.args[1])  # what is written becomes the buffer
            self.name[k] = args[1]
            self.moved.add(i.args[1])
        elif self.is_dead(storage, n) and self.storage.get(i.args[1]) is not storage:
            self.join(k, base)
            self.name[k] = args[0]
            self.moved.add(base)
            self.put(i, args[0], args, path, at)
        else:
            self.store(k)
            x = self.target(k)
            unread = i.prim is ASSIGN and is_all(path, at) and self.shown[base][0]
            self.lines.append(
                f"{x} = {self.given(room_like, 'u')}({args[0]})"
                if unread
                else f"{x} = {self.given(copy_with_layout, 'u')}({args[0]})"
            )
            self.put(i, x, args, path, at)

    def is_given_up(self, y: int, base: int, n: int) -> bool:
        """Does nobody read y after instruction n, and is it laid out as the buffer is?"""
        storage = self.storage[y]
        return (
            self.shown[y] == self.shown[base]
            and self.shown[y][4]
            and bool(self.shown[y][0])
            and self.is_dead(storage, n)
        )

    def put(self, i: Instruction, x: str, args: list, path: tuple, at) -> None:
        """The write itself, where x may be altered."""
        if path and path[-1][0] == "at" and at is Ellipsis:
            path, at = path[:-1], path[-1][1]
        step = self.steps(path, ("at", "transpose"))
        if step is not None and (i.prim is ASSIGN or basic(at)):
            at = self.given(at, "c")
            self.lines.append(f"{x}{step}[{at}] {'=' if i.prim is ASSIGN else '+='} {args[1]}")
        else:
            self.lines.append(f"{x} = {self.body(i.prim, i.params)}({', '.join([x, *args[1:]])})")


def operation_count(i: Instruction) -> int:
    """Return about how many operations an element of an elementwise instruction takes; 0 of another one."""
    graphs = load("tapegrad.replay.scalar_graph")
    found = graphs.of_graph(graphs.cost, i, (False,) * len(i.args))
    return 0 if found is None else found[0]


def unlike_instructions(kinds: InstructionKinds) -> int:
    """How many instructions are written one by one: those outside of loops, and three trips of each loop."""
    loops = [loop for start, stop in block_ranges(kinds) for loop in program_loops(kinds.table, start, stop)]
    return len(kinds.table.code) - sum([loop.stop - loop.start - 3 * loop.period for loop in loops])


def is_rolled(table: InstructionTable, start: int, stop: int) -> bool:
    """Is most of the work of these small instructions in loops?"""
    return (
        2 * sum([loop.stop - loop.start for loop in program_loops(table, start, stop) if is_small(loop)])
        > stop - start
    )


def with_groups(program: Program, kinds: InstructionKinds) -> tuple:
    """The program with groups in it; the groups; what is in none."""
    found = block_ranges(kinds)
    numbers = kinds.table.made
    inside, looped = np.zeros(len(numbers), bool), np.zeros(len(numbers), bool)
    for start, stop in found:
        inside[start:stop], looped[start:stop] = True, is_rolled(kinds.table, start, stop)
    if looped.all():
        return program, [], {}
    reader = load("tapegrad.replay.fusion.groups").read_groups(
        program, {*numbers[looped].tolist()}, {*numbers[inside].tolist()}
    )
    if not reader.groups:
        return program, [], reader.alone
    program = reader.kinds.program.with_code(reader.order)
    program.shown = reader.kinds.shown
    return program, reader.groups, reader.alone


def compiled_program(program: Program, tolerant: bool = False, kinds=None) -> EmittedProgram:
    """The text with groups and rolled loops in it.  Places are laid out for loops only where there are some."""
    made = EmittedProgram(program, True, tolerant=tolerant, kinds=kinds)
    if made.rolling and not made.loops:
        refused = made.refused
        made = EmittedProgram(program, True, rolled=False, kinds=kinds)
        made.refused = refused
    return made


VIEWS = {shaping.TRANSPOSE: "transpose", shaping.reshape.prim: "reshape"}


def describe_calls(emitted: EmittedProgram) -> str:
    """What stays with Python in a program with blocks, and about what it costs."""
    names = [f"{n} {name}" for name, n in emitted.called.most_common(CALLS_NAMED)]
    if not emitted.made or not names:
        return ""
    more = ", ..." if len(emitted.called) > CALLS_NAMED else ""
    microseconds = emitted.called.total() * CALL_NS / 1000
    return f"; {count_phrase('call', emitted.called.total())} of Python, about {microseconds:.0f} us: {', '.join(names)}{more}"


def describe_program(emitted: EmittedProgram) -> str:
    """What runs in compiled loops, and what large instructions do not."""
    trips = ", ".join([f"{loop.trips} trips of {loop.period} rows" for loop in emitted.loops])
    of_python = f"; {count_phrase('rolled loop', len(emitted.loops))}: {trips}" if trips else ""
    of_python += "".join([f"; a loop stays with the interpreter: {reason}" for reason in emitted.refused])
    names = {}
    for group in emitted.groups:
        for _, name in group.names:
            names[name] = names.get(name, 0) + 1
    inside, outside = [
        ", ".join([f"{n} {name}" if n > 1 else name for name, n in x.items()]) for x in (names, emitted.alone)
    ]
    if names:
        return (
            f"; {count_phrase('compiled loop', len(emitted.groups))} with {inside}"
            + (f"; by themselves {outside}" if outside else "")
            + of_python
        )
    return (
        f"; no compiled loops, for these are no elementwise ones or too few: {outside}"
        if outside
        else "; no compiled loops" * (not trips)
    ) + of_python


def by_columns(f: Callable, shape: tuple, x: np.ndarray, y: np.ndarray, out) -> np.ndarray:
    """f(x, y) of this shape, column by column."""
    out = np.empty(shape) if out is None else out
    for k in range(shape[-1]):
        f(x[..., k if x.shape[-1] > 1 else 0], y[..., k if y.shape[-1] > 1 else 0], out[..., k])
    return out


def count_phrase(what: str, n: int) -> str:
    return f"{n} {what}{'s' if n > 1 else ''}"


def is_elementwise(prim) -> bool:
    """Is it an operator or a ufunc of NumPy's, for arrays of NumPy?"""
    if prim.vjp is None or prim.batch != "elementwise" or prim.multi or prim.aliases:
        return False
    plain = without_gate(prim)
    return (plain.infix or plain.ufunc) is not None


def without_gate(prim: Primitive) -> Primitive:
    """(NumPy notes the invalid operation, and then `Program.run` is asked.)"""
    return getattr(NUMPY.get(prim.scalar.form), "prim", prim) if type(prim.scalar) is GatedProduct else prim
