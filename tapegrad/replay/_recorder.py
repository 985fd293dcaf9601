"""Recording: one more trace, below all others.  What reaches it is the program of the function, derivative sweeps included, for rules
are written in the same operations.

At this level a Variable's slot says which instruction made its value; what lies under it has shape, dtype and memory order, and no
values (_hollow.py), which the trace keeps: it runs each instruction as it notes it.  A write gives a new value, so the program has no
variables that change: who sees what after a write was decided when the handle moved (_variable.py).  Where a value is asked for, by
`if` or as an index, the answer is a condition on which the program holds.

Each value keeps its memory order in a replay, so that regions given in bytes mean the same elements."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .._array import is_array, kept, room_like, xp_of
from .._calls import Inputs, entered, overlapping, returned, run_once, value_out
from .._flags import now
from .._float_errors import Handler
from .._hollow import hollow, hollow_number, read_only_as
from .._primitive import OPEN, READ, Ended, Primitive, Trace, live, values_of
from .._tape import SWEEPING, fixed
from .._tree import Const, leaves, tree_map
from .._variable import Variable, View, bottom, variable
from ..errors import callers_line

ARGUMENT, CAPTURED, CONSTANT, PART, LAID = "argument", "captured", "constant", "part", "laid"
KINDS = ("divide", "over", "under", "invalid")


class Slot:
    """Which instruction made the value.  `alone`: what it made by a write is held by one handle, which may be written where it lies."""

    __slots__ = ("k", "alone")

    def __init__(self, k: int, alone: bool = False):
        self.k, self.alone = k, alone


class Instruction:
    """`prim` is the operation, or one of the words above; `args` the numbers of its operands.  `watched`: which flags of floating-point
    arithmetic a plain call would look at; `place`: the user's line, where it may be asked for."""

    __slots__ = ("prim", "args", "params", "watched")

    def __init__(self, prim: Any, args: tuple = (), params: Any = None, watched: tuple = ()):
        self.prim, self.args, self.params, self.watched = prim, args, params, watched

    def __repr__(self) -> str:
        name = self.prim.name if isinstance(self.prim, Primitive) else self.prim
        return f"{name}{self.args}{self.params or ''}"


class Guard:
    """A condition on which a program holds: the value number `k` is `value` (its truth, if `truth`)."""

    __slots__ = ("k", "value", "truth", "place")

    def __init__(self, k: int, value: Any, truth: bool, place: str | None):
        self.k, self.value, self.truth, self.place = k, value, truth, place


class Record(Trace):
    """`instructions` and what each gave, `known`; `guards`; `written`: (captured array, number of what is left in it)."""

    __slots__ = ()
    hides = holds = adopts = True

    def __init__(self, constants: list):
        super().__init__()
        self.instructions: list = []
        self.known: list = []
        self.guards: dict = {}
        self.adopted: list = []  # (handle, its array, number of the input)
        self.written: list = []
        self.constants = frozenset(map(id, constants))
        self.drawn: str | None = None
        self.setting, self.watched = self, ()  # the flags looked at now
        self.around = sys.exception()

    # --- what it is for others ---

    def new(self, instruction: Instruction, value: Any) -> int:
        self.instructions.append(instruction)
        self.known.append(value)
        return len(self.known) - 1

    def made(self, value: Any, k: int, alone: bool = False) -> Variable:
        if is_array(value):
            return variable(hollow(xp_of(value), value.shape, value.dtype, value.strides), self, Slot(k, alone))
        return variable(hollow_number(np.asarray(value).dtype), self, Slot(k))

    def watch(self, value: Any) -> Variable:
        """An argument."""
        x = self.made(value, self.new(Instruction(ARGUMENT), value))
        x._value = read_only_as(value, x._value)
        x._saved = True
        return x

    def adopt(self, x: Variable) -> None:
        """An array that the function captured: read anew in each replay."""
        if type(x) is View:
            x._seen, x._value, x = -1, None, x._base
        array = x._value
        if x._trace is not None or not is_array(array) or (xp_of(array) is np and not array.flags.writeable):
            return
        k = self.new(Instruction(CAPTURED), array)
        self.adopted.append((x, array, k))
        x._value, x._trace, x._slot = hollow(xp_of(array), array.shape, array.dtype, array.strides), self, Slot(k)
        x._version, x._saved = getattr(x, "_version", 0), True

    def values(self, x):
        """(A copy: whoever asks may write it.)"""
        v = self.known[x._slot.k]
        self.guards.setdefault((x._slot.k, False), Guard(x._slot.k, v.copy() if is_array(v) else v, False, callers_line()))
        return kept(v) if is_array(v) else v

    def truth(self, x):
        v = bool(self.known[x._slot.k])
        self.guards.setdefault((x._slot.k, True), Guard(x._slot.k, v, True, callers_line()))
        return v

    def draws(self, name):
        self.drawn = f"{callers_line()}: numpy.random: {name}()"

    def memory(self, slot):
        return None

    def copied_slot(self, slot, x):
        """`copied(x)` is packed in the order of its axes."""
        v = self.known[slot.k]
        if not is_array(v):
            return Slot(slot.k)
        c = kept(v)
        if c.strides == v.strides:
            return Slot(slot.k)
        return Slot(self.new(Instruction(LAID, (slot.k,), (c.shape, c.strides)), c))

    def laid_slot(self, slot, value):
        v = self.known[slot.k]
        fresh = room_like(value)
        fresh[...] = v
        return Slot(self.new(Instruction(LAID, (slot.k,), (fresh.shape, fresh.strides)), fresh))

    def close(self):
        """Captured arrays as the function left them; if it failed, as they were before."""
        failed = sys.exception() is not self.around
        for x, array, k in self.adopted:
            if x._trace is not self:
                continue
            if failed or x._slot.k == k:
                x._value, x._trace, x._slot, x._version, x._saved = array, None, None, 0, True
            else:
                self.written.append((array, x._slot.k))
                x._value, x._trace, x._slot = self.known[x._slot.k], None, None
        for x in self.risen:
            if x._trace is self:
                x._value = self.beneath(x)
        super().close()
        self.__class__ = Closed

    def beneath(self, x):
        v = self.known[x._slot.k]
        return kept(v) if is_array(v) else v

    # --- what an operation is ---

    def operand(self, a: Any, v: Any) -> int:
        """A constant.  What lies under a handle stays as it is, for the handle moves before it is written; a plain array may change."""
        if isinstance(v, Variable):
            v = values_of(v)
        if isinstance(a, Variable):
            a._saved = True
        elif is_array(v) and id(v) not in self.constants:
            v = kept(v)
        return self.new(Instruction(CONSTANT), v)

    def step(self, prim, args, inputs, slots, params):
        known = self.known
        ks = tuple([self.operand(a, v) if t is None else t.k for a, v, t in zip(args, inputs, slots, strict=True)])
        values = [known[k] for k in ks]
        if prim.writes and not (slots[0] is not None and slots[0].alone):
            values[0] = kept(values[0])
        elif prim is READ or prim.aliases:
            for t in slots:
                if t is not None:
                    t.alone = False
        setting = now()
        if setting is not self.setting or setting is None:
            self.setting, self.watched = setting, looked_at(setting)
        if params:
            params = {name: fixed(p) for name, p in params.items()}
        out = prim.run(*values, **params)
        k = self.new(Instruction(prim, ks, params, self.watched), out)
        if type(out) is tuple or type(out) is list:
            return tuple([self.made(o, self.new(Instruction(PART, (k,), n), o)) for n, o in enumerate(out)])
        return self.made(out, k, prim.writes)


class Closed(Ended):
    """A recording after its function: its Variables are the values that it had."""

    __slots__ = ()
    hides = True
    beneath, memory = Record.beneath, Record.memory

    def values(self, x):
        return self.beneath(x)


def looked_at(setting: Any) -> tuple:
    """The kinds of floating-point errors that a plain call would show, under the setting in force: none within a reverse sweep."""
    if setting is not None and setting is SWEEPING.value:
        return ()
    handler, modes = np.geterrcall(), np.geterr()
    if type(handler) is Handler:
        modes = handler.modes
    elif setting is None and modes["invalid"] == "call":
        return ()
    return tuple([kind for kind in KINDS if modes[kind] != "ignore"])


# --- one run ---


class Leaves(Inputs):
    """The arguments of a call, of which `watched` says which leaves are inputs of the program."""

    def __init__(self, call: str, args: tuple, chosen: list):
        super().__init__(call, (), args)
        self.chosen = chosen

    def enter(self, watch: Callable) -> list:
        shared = overlapping([x for xs in self.flat for x in xs])
        aliased, out, chosen = {}, [], iter(self.chosen)
        for a, flat in zip(self.args, self.flat, strict=True):
            if isinstance(a, Const):
                next(chosen)
                out.append(a.value)
                continue
            members = []
            for x in flat:
                v = watch(entered(x)) if next(chosen) else x.value if isinstance(x, Const) else x
                if v is not x and is_array(x):
                    self.given.append((x, v))
                    if id(x) in shared:
                        aliased[id(v)] = v
                members.append(v)
            out.append(self.rebuilt(a, members))
        if aliased:
            OPEN.aliased = {**self.outer, **aliased}
        return out


class Recorded:
    """f recorded at these arguments.  `outputs`: for each leaf of `tree` the number of its value, or None for one that is `leaf` always;
    `arrays`: ids of arrays that a replay reads anew."""

    def __init__(self, call: str, f: Callable, lift: Callable | None, args: tuple, chosen: list):
        inputs = Leaves(call, args, chosen)
        self.trace = trace = Record(inputs.constants)
        self.outputs: list = []
        self.leaves: list = []
        try:
            entered_args = inputs.enter(trace.watch)
            self.inputs = len(trace.known)
            shadow = run_once(f, trace, inputs, entered_args, {}, self.read, lift)
        except BaseException:
            if type(trace) is Record:
                trace.close()
            raise
        self.arrays = {id(x): x for x in (shadow.hold if shadow.on else ()) if is_array(x) and isinstance(shadow.seen.get(id(x)), Variable)}
        shadow.finish()

    def read(self, y: Any) -> None:
        self.tree = y = returned(y)
        for v in leaves(y):
            if isinstance(v, Variable):
                v = live(v)
                if v._trace is self.trace:
                    self.outputs.append(v._slot.k)
                    self.leaves.append(None)
                    continue
                v = bottom(v)
            self.outputs.append(None)
            self.leaves.append(np.float64(v) if type(v) is float else v.copy() if is_array(v) else v)

    def result(self) -> Any:
        """What the recorded call gives."""
        known = self.trace.known
        found = iter([value_out(leaf if k is None else known[k]) for k, leaf in zip(self.outputs, self.leaves, strict=True)])
        return tree_map(lambda _: next(found), self.tree)
