"""The program of a recording: what is needed of its instructions, each done once, and how it is run at other
values.

`run` does the instructions in order, each by the body of its operation: what all other ways of running it are
judged by."""

import copy
import functools
import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .._core.arrays import IMMUTABLE, copy_with_layout, is_array, is_scalar, owned, same_bits, xp_of
from .._core.errors import spelt
from .._core.float_errors import LOUD
from .._core.primitive import READ
from .._core.reverse import CollectorPause, has_nan
from .._core.scope import now, put, scope_block, setting
from .._dispatch.random import DRAW
from ..ops.linalg.factorizations import SYSTEM
from .record.abstract_values import OF_FLOAT
from .record.instructions import (
    ARGUMENT,
    CAPTURED,
    CONSTANT,
    INPUTS,
    STRUCTURAL,
    Guard,
    Instruction,
    InstructionList,
    instruction_form,
    is_of_another,
    is_total,
)
from .record.recording import Recording


class ErrorNotes(threading.local):
    """What NumPy has noted in this thread since a replay began."""

    shown: Any = None  # a flag that a plain call would show; LOUD: the function may hear of it
    unsafe: Any = None  # an invalid operation in a product that was not guarded against 0 times inf


HEARD = ErrorNotes()


def describe_kind(kind: str, flag: int) -> None:
    HEARD.shown = HEARD.shown or kind


def loud(kind: str, flag: int) -> None:
    HEARD.shown = LOUD


def unsafe(kind: str, flag: int) -> None:
    HEARD.unsafe = kind


QUIET = setting(divide="ignore", over="ignore", under="ignore", invalid="call", call=unsafe)


IGNORED = setting(divide="ignore", over="ignore", under="ignore", invalid="ignore")


@functools.cache
def setting_of(watched: tuple, gated: bool = False):
    """While instructions run of which a plain call would show these flags; `gated`: products are."""
    if not watched:
        return IGNORED if gated else QUIET
    modes = {kind: "call" if kind in watched else "ignore" for kind in ("divide", "over", "under", "invalid")}
    return setting(**modes, call=loud if LOUD in watched else describe_kind)


def step_form(what: tuple, arity: int, is_float: bool) -> tuple:
    """(call, what is special) of the instructions that do this, as in `Program.steps`."""
    prim, params, _ = what
    call = functools.partial(prim.run, **params) if params else instruction_form(prim)[0]
    aliases = prim is READ or prim.aliases or not prim.declared
    plain = not prim.writes and (is_float or not aliases) and 0 < arity < 3
    return call, arity == 2 if plain else (prim.writes, aliases, None)


def guard_holds(a, b) -> bool:
    """Does a guard hold?"""
    if xp_of(a) is not np or xp_of(b) is not np:
        return np.shape(a) == np.shape(b) and bool((a == b).all())
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and same_bits(a, b)


class Program:
    """`arguments`: numbers of the inputs; `captured`: (number, array) read anew; `constants`: number ->
    value; `code`: the instructions that are left; `guards`: number ->
    conditions on that value; `outputs`: (number or None, what the leaf is always); `written`: (array,
    number); `may_raise`: numbers of what may raise, `asked`: those that nobody reads;
    `read`: the captured arrays; `state`: what it leaves in objects, as further outputs;
    `generators`: those of which it draws random numbers, always all that a plain call would;
    `writes_arguments`: several, so that they must not overlap?"""

    def __init__(self, recorded: Recording):
        trace = recorded.trace
        what, operands, known, same = trace.what, trace.operands, trace.known, trace.same
        self.tree, self.recorded, self.by_samples = recorded.tree, len(what), [*trace.by_samples]
        self.outputs = [
            (same.get(k, k), leaf) for k, leaf in zip(recorded.outputs, recorded.leaves, strict=True)
        ]
        self.written = [(array, same.get(k, k)) for array, k in trace.written]
        self.state = recorded.state
        self.pulled = trace.pulled
        self.finite = trace.finite  # only for inputs without nan and infinity
        self.guards: dict[int, list[Guard]] = {}
        self.conditions = [*trace.guards.values()]
        for g in trace.guards.values():
            self.guards.setdefault(same.get(g.k, g.k), []).append(g)
        self.size = len(what)
        found = RecordedFacts(trace)
        drawn = found.numbers(lambda prim, _: prim is DRAW) if trace.generators else []
        self.groups = trace.groups  # of processes with which it exchanges data
        self.arguments = [k for k, w in enumerate(what[: recorded.inputs]) if w[0] is ARGUMENT]
        external = found.numbers(lambda prim, _: prim.external) if self.groups else []
        self.may_raise = found.checked(same)
        self.numbers = self.reached(operands, [*drawn, *external])
        given = [k for k in trace.inputs if self.needed[k]]
        self.constants = {k: known[k] for k in given if what[k][0] is CONSTANT}
        self.captured = [(k, known[k]) for k in given if what[k][0] is CAPTURED]
        self.read = [array for _, array in self.captured]
        self.what, self.operands = [what[k] for k in self.numbers], [operands[k] for k in self.numbers]
        self.looks, self.views = trace.looks, trace.views
        self.added = {}  # number -> layout of what is added to the recording
        self.solves = bool(found.numbers(lambda prim, _: prim is SYSTEM))
        at = {k for k in self.arguments if len(self.arguments) > 1}
        writes = found.numbers(lambda prim, _: prim.writes) if at else []
        self.writes_arguments = any([operands[k][0] in at for k in writes])
        self.generators = list({id(real): real for real in [what[k][1]["real"] for k in drawn]}.values())

    def reached(self, operands: list, drawn: list) -> list:
        """The numbers of the instructions that are needed."""
        self.needed = needed = bytearray(self.size)  # 2: an instruction reads it
        outputs = [k for k, _ in self.outputs if k is not None]
        ends = [*outputs, *[k for _, k in self.written], *self.guards, *drawn]
        for k in (*ends, *self.may_raise):
            needed[k] = 1
        for k, ks in zip(range(self.size - 1, -1, -1), reversed(operands), strict=True):
            if ks and needed[k]:
                for j in ks:
                    needed[j] = 2
        self.asked = sorted([k for k in self.may_raise.difference(ends) if needed[k] == 1])
        return [k for k, ks in enumerate(operands) if needed[k] and ks is not None]

    @property
    def inputs(self) -> list:
        """Numbers of what is there before the first instruction."""
        return [*self.arguments, *self.constants, *[k for k, _ in self.captured]]

    @property
    def ends(self) -> list:
        """Numbers of what is to be made, and of no use for other instructions."""
        return [*[k for k, _ in self.outputs if k is not None], *[k for _, k in self.written], *self.asked]

    @functools.cached_property
    def code(self) -> InstructionList:
        """The instructions in order."""
        return InstructionList(self.numbers, self.what, self.operands)

    def with_constants(self) -> "Program":
        """A program like this one, which may get more constants."""
        made = copy.copy(self)
        made.constants = dict(self.constants)
        return made

    def with_copied_instructions(self) -> "Program":
        """A program like this one, of which instructions may be replaced."""
        made = copy.copy(self)
        for derived in ("code", "steps", "shown", "warns"):
            made.__dict__.pop(derived, None)
        made.numbers, made.what, made.operands = [*self.numbers], [*self.what], [*self.operands]
        made.added = dict(self.added)
        return made

    def with_code(self, pairs: Iterable) -> "Program":
        """A program like this one with other instructions."""
        made = copy.copy(self)
        made.code = InstructionList.of_pairs(pairs)
        made.__dict__.pop("steps", None)  # those of the other code
        return made

    @functools.cached_property
    def warns(self) -> bool:
        """May an operation give a warning of its own, of which the function may hear?"""
        return any([LOUD in watched and not is_total(prim) for prim, _, watched in self.what])

    @functools.cached_property
    def shown(self) -> dict:
        """What the values look like."""
        looks, views = self.looks, self.views
        return {k: looks[k][2 if k in views else 1] for k, n in enumerate(self.needed) if n} | self.added

    @functools.cached_property
    def on_device(self) -> bool:
        """Are there arrays of CuPy?"""
        return any([shown[0] is False for shown in self.shown.values()])

    @functools.cached_property
    def steps(self) -> list:
        """How `run` does each instruction: (number, call, operands, the arrays that it reads as the last,
        whether there are two operands). In place of the last, where there is more to do: (does it write?, may
        the result lie in the memory of an operand?, the setting from here on).

        Many instructions do the same, and few are special, so columns are made for all at once."""
        with scope_block():
            CollectorPause()
            code, float_look = self.code, OF_FLOAT[1]
            arity, ids = [*map(len, code.operands)], [*map(id, code.what)]
            floats = {k for k, look in self.shown.items() if look is float_look}
            last = np.full(self.size, -1)
            flat = np.fromiter(itertools.chain.from_iterable(code.operands), np.int64, sum(arity))
            last[flat] = np.arange(len(ids)).repeat(np.array(arity, np.int64))
            last[[*self.ends, *floats]] = -1
            dying: list = [()] * len(ids)
            for k in np.flatnonzero(last >= 0).tolist():
                dying[last[k]] += (k,)
            what = dict(zip(ids, code.what, strict=True))
            keys = [*zip(ids, arity, map(floats.__contains__, code.numbers), strict=True)]
            forms = {key: step_form(what[key[0]], *key[1:]) for key in set(keys)}
            each = [*map(forms.__getitem__, keys)]
            calls, special = [call for call, _ in each], [more for _, more in each]
            flags = itertools.pairwise([(), *[watched for _, _, watched in code.what]])
            watched = {n: setting_of(b) for n, (a, b) in enumerate(flags) if a is not b and a != b}
            guarded = [n for n, k in enumerate(code.numbers) if k in self.guards] if self.guards else []
            for n in (*guarded, *watched):
                special[n] = *step_form(code.what[n], 0, False)[1][:2], watched.get(n)
            return [*zip(code.numbers, calls, code.operands, dying, special, strict=True)]

    def is_undefined(self, results: list) -> bool:
        """May another sweep give numbers for these results?  A product of second order may be infinite where
        the gradient, which is not among them, is nan."""
        return self.pulled > 0 and any([has_nan(v, self.pulled > 1) for v in results])

    def run(self, values: list):
        """The values of the instructions, or the guard that failed."""
        env = [None] * self.size
        for k, v in (*zip(self.arguments, values, strict=True), *self.captured, *self.constants.items()):
            env[k] = v
        for k in (*self.arguments, *[k for k, _ in self.captured]):
            failed = self.failing(k, env[k])
            if failed is not None:
                return failed
        HEARD.shown = None
        # made by a write, and in nobody else's hands: the next write may be done there, if it is the last
        # that asks
        own = set()
        guards, before, value = self.guards, now(), env.__getitem__
        try:
            put(QUIET)
            for k, call, ks, dying, special in self.steps:
                if special is True:
                    i, j = ks
                    env[k] = call(env[i], env[j])
                elif special is False:
                    env[k] = call(env[ks[0]])
                else:
                    writes, aliases, watched = special
                    if watched is not None:
                        put(watched)
                    args = [*map(value, ks)]
                    if writes and (ks[0] not in own or ks[0] not in dying or ks.count(ks[0]) > 1):
                        args[0] = copy_with_layout(args[0])
                    env[k] = made = call(*args)
                    if writes:
                        own.add(k)
                    elif own and aliases and is_of_another(made, args):
                        own.difference_update(ks)
                    if k in guards:
                        failed = self.failing(k, made)
                        if failed is not None:
                            return failed
                    del args, made
                for d in dying:
                    env[d] = None
        finally:
            put(before)
        out = [leaf if k is None else env[k] for k, leaf in self.outputs]
        return [owned(v) if is_array(v) else v for v in out], [(array, env[k]) for array, k in self.written]

    def fixed(self, values: dict) -> "Program | None":
        """The program with these of its inputs known, number -> value: what does not depend on the others is
        done once, here.  Captured arrays count as known.  None where a guard fails, or a plain call would
        warn."""
        env = {**values, **self.constants, **dict(self.captured)}
        left = []
        HEARD.shown = None
        for k, i in self.code:
            if all([j in env for j in i.args]):
                before = now()
                try:
                    put(setting_of(i.watched))
                    env[k] = run_instruction(i, [env[j] for j in i.args])
                finally:
                    put(before)
            else:
                left.append((k, i))
        if HEARD.shown is not None or any(
            [self.failing(k, env[k]) is not None for k in self.guards if k in env]
        ):
            return None
        rest = self.with_code(left)
        rest.arguments, rest.captured = [k for k in self.arguments if k not in values], []
        rest.asked = [k for k in self.asked if k not in env]
        rest.guards = {k: g for k, g in self.guards.items() if k not in env}
        read = {j for _, i in left for j in i.args} | {k for k, _ in self.outputs}
        rest.constants = {k: v for k, v in env.items() if k in read}
        return rest

    def other_way(self, conditions: Iterable) -> str | None:
        """What tells the way of another recording, with these conditions, from that of this one; None: it is
        the same."""
        for g, h in itertools.zip_longest(self.conditions, conditions):
            if g is None or (h is not None and h.raised and g.place != h.place):
                what = h.raised or "a further condition"
                return f"{spelt(h.place)}: {what}, which was not met when it was recorded"
            if h is None or g.place != h.place or not guard_holds(g.value, h.value):
                return str(g)
        return None

    def is_like(self, other: "Program | None") -> bool:
        """Return whether a recording of the same way through the function reads the same numbers."""
        if other is None or len(self.numbers) != len(other.numbers) or self.other_way(other.conditions):
            return False
        facts = lambda p: ([prim for prim, _, _ in p.what], p.operands, [k for k, _ in p.outputs])
        values = lambda p: (
            [params for _, params, _ in p.what],
            p.constants,
            [leaf for k, leaf in p.outputs if k is None],
        )
        return facts(self) == facts(other) and same_settings(values(self), values(other))

    def failing(self, k: int, value) -> Guard | None:
        for g in self.guards.get(k, ()):
            if not (bool(value) is g.value if g.truth else guard_holds(value, g.value)):
                return g
        return None


def same_settings(a, b) -> bool:
    """Return whether two trees hold the same numbers and arrays. Of other objects the classes count."""
    if a is b or type(a) is not type(b):
        return a is b
    if is_array(a):
        return guard_holds(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all([same_settings(a[k], b[k]) for k in a])
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all([same_settings(x, y) for x, y in zip(a, b, strict=True)])
    return type(a) not in IMMUTABLE and not is_scalar(a) or repr(a) == repr(b)


class RecordedFacts:
    """What is true of the instructions of a recording, asked once for all that do the same."""

    def __init__(self, trace):
        self.trace = trace
        self.ids = [*map(id, trace.what)]
        self.of_id = dict(zip(self.ids, trace.what, strict=True))

    def numbers(self, f: Callable) -> list:
        """The instructions of which f(operation, flags) is true."""
        found = {n for n, (prim, _, watched) in self.of_id.items() if f(prim, watched)}
        return [k for k, n in enumerate(self.ids) if n in found] if found else []

    def checked(self, same: dict) -> set:
        """Numbers of instructions that may raise an exception, or a flag that is as good as one. There the
        function may take another way, whether it reads what they give or not."""
        trace = self.trace
        found = self.numbers(
            lambda prim, watched: prim not in INPUTS and (LOUD in watched or not is_total(prim))
        )
        looks = dict(zip(map(id, trace.looks), trace.looks, strict=True))
        if any([look[5] is not None and look[5].kind in "iu" for look in looks.values()]):
            by_places = self.numbers(
                lambda prim, _: prim not in STRUCTURAL and prim.batch != "elementwise" and is_total(prim)
            )
            found += [k for k in by_places if any([self.is_place(j) for j in trace.operands[k]])]
        return {same.get(k, k) for k in found}

    def is_place(self, k: int) -> bool:
        """Return whether instruction k gives integers that are not the same in each replay."""
        dtype = self.trace.looks[k][5]
        return dtype is not None and dtype.kind in "iu" and self.trace.what[k][0] is not CONSTANT


def run_instruction(i: Instruction, args: list) -> Any:
    if i.prim.writes:
        args[0] = copy_with_layout(args[0])
    return i.prim.run(*args, **i.params)
