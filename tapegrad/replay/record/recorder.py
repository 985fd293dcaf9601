"""Recording: one more trace, below all others.  What reaches it is the program of the function, derivative
sweeps included, for rules are written in the same operations.

At this level a Variable's slot says which instruction made its value; what lies under it has shape, dtype and
memory order, and no values (_core/abstract_arrays.py), which the trace keeps: it runs each instruction as it
notes it.  A write gives a new value, so the program has no variables that change: who sees what after a write
was decided when the handle moved (_core/variable.py).  Where a value is asked for, by `if` or as an index,
the answer is a condition on which the program holds.

Each value keeps its memory order in a replay, so that regions given in bytes mean the same elements."""

import functools
import itertools
import sys
import warnings
from typing import Any

import numpy as np
from numpy import float64, ndarray

from ..._capture.dependencies import state
from ..._core.abstract_arrays import hollow, read_only_as
from ..._core.arrays import (
    F8,
    copy_with_layout,
    is_array,
    is_scalar,
    mark_immutable,
    memory_owner,
    room_like,
    xp_of,
)
from ..._core.errors import ArgumentError, BatchError, OfTracked, callers_line, users_place
from ..._core.float_errors import LOUD, ErrorListener, looked_at
from ..._core.primitive import HIDDEN, READ, RECORDED, EndedTrace, Trace, is_tracked, live, lower, values_of
from ..._core.reverse import setting_copy
from ..._core.scope import now
from ..._core.trees import nested
from ..._core.variable import HANDLES, Variable, View, new, variable
from ..._dispatch.random import DRAW
from ..costs import OPENED_ELEMENTS
from .abstract_values import OF_FLOAT, elementwise_rule, look_at
from .instructions import (
    ARGUMENT,
    CAPTURED,
    CONSTANT,
    INPUTS,
    IS_COMPLEX,
    LAID,
    PART,
    Guard,
    instruction_form,
    is_of_another,
    laid_settings,
    part_settings,
)
from .raised_errors import RAISED, conditions
from .settings_keys import NO_STEPS, content_key, settings_key, settled_of

WEAK = 2  # an argument that is a number of Python
KINDS = ("divide", "over", "under", "invalid")  # of Python's arithmetic
SINGLE = ("f2", "f4", "c8")
NUMBERS = frozenset((float, int, bool, complex, np.float64))
NOTHING: dict = {}
INPUT = {prim: (prim, None, ()) for prim in INPUTS}


def is_single(x) -> bool:
    """Has it a dtype that Python's numbers leave as it is, and NumPy's do not?"""
    return (is_array(x) or is_scalar(x)) and x.dtype.str[1:] in SINGLE


@functools.lru_cache(1024)
def element_at(at) -> dict:
    """The settings with which an element is read."""
    return {"path": NO_STEPS, "at": at, "copy": False}


def refuse_tracked(v: Variable) -> None:
    """Raise where a transform around the recording watches v: a replay has no derivative by it."""
    if is_tracked(v):
        raise ArgumentError(
            f"{callers_line()}: the function reads a value that an open transform watches, and what is "
            "recorded or sparse holds no derivative with respect to it: pass it as an argument of the "
            "function, use tapegrad.jacobian or hessian there, or cut the derivative with tapegrad.value(x)"
        )


class Record(Trace):
    """What the instructions are, by their numbers: `what` is done, as (operation, settings, flags), one tuple
    for many of them; `operands`, None for an input; what each gave, `known`, and what that looks like,
    `looks`.  `guards`; `written`: (captured array, number of what is left in it).

    A slot is the number of an instruction.  What does the same as an earlier one is that one (`met`); of a
    write, which is done anew for its result may be written in turn, `same` tells the earlier one."""

    __slots__ = ()
    visibility = RECORDED
    holds = True

    def __init__(
        self,
        constants: list,
        catches: bool = True,
        groups: list | None = None,
        before: list | None = None,
    ):
        """`catches`: may the function catch a warning that is an error?  `groups`: gets the groups of
        processes with which it exchanges data.  `before`: if the function fails, gets the captured arrays
        that it has written, with copies of what they were."""
        super().__init__()
        self.groups = [] if groups is None else groups
        self.what = []
        self.operands = []
        self.inputs = []  # numbers of the instructions without operands
        self.known = []
        self.looks = []
        self.views = set()  # numbers of arrays that do not own their memory
        self.guards = {}
        self.asked = 0  # how often values were asked for
        self.pulled = 0  # the most transforms that were open when a tape over it was swept
        self.adopted = []  # (handle, its array, number of the input)
        self.written = []
        self.constants = frozenset(map(id, constants))
        self.fixed = {}  # constants that stay as they are: id -> number
        self.constant = {}  # others that are numbers or small: what they are -> number
        self.frozen = set()  # ids of owners of memory whose content was taken as it was
        self.drawn: str | None = (
            None  # why random numbers cannot be drawn anew, or calls outside not be repeated
        )
        self.generators = {}  # id -> (generator, its state before the first draw, after the last)
        self.setting = self
        self.watched: tuple = ()  # the flags looked at now
        self.filters = self.outside = warnings.filters
        self.catches = catches
        self.raised = False  # has an operation raised an error?
        self.finite = False  # was it asked whether values are finite?
        self.unkept: str | None = None  # why a replay cannot stand for this call
        # (operation, key of its settings) -> {operands: number of the instruction, or those of its parts}
        self.met: dict = {}
        # flags that are looked at -> {elementwise operation without settings: how it is done} (`shortened`)
        self.shorts = {}
        self.short: dict = {}
        self.elements = {}  # (number of an array, index of one element) -> number of that
        self.same: dict = {}
        self.whats = {}  # (operation, key of its settings, flags) -> what is done
        self.by_samples = {}  # names of operations that a vmap ran on one sample after the other
        self.placed = set()  # writes that were done where the buffer lay
        self.alone: set = set()  # made by a write, and held by one handle, which may be written where it lies
        # numbers that came from Python's by arithmetic, which beside an array may have counted as less than
        # it
        self.weak = set()
        self.around, self.before = sys.exception(), [] if before is None else before

    # --- what it is for others ---

    def new(self, value, what: tuple, operands: tuple | None = None) -> int:
        look = look_at(value)  # which may raise, before anything is noted
        k = len(self.known)
        if operands is None:
            self.inputs.append(k)
        if type(value) is not float64 and getattr(value, "base", None) is not None:
            self.views.add(k)
        self.what.append(what)
        self.operands.append(operands)
        self.known.append(value)
        self.looks.append(look)
        return k

    def watch(self, value, kind=True) -> Variable:
        """An argument."""
        x = self.handles(self.new(value, INPUT[ARGUMENT]))
        x._value = read_only_as(value, x._value)
        x._saved = True
        if kind == WEAK:
            self.weak.add(x._slot)
        return x

    def adopt(self, x: Variable) -> None:
        """An array that the function captured: read anew in each replay."""
        if type(x) is View:
            x._seen, x._value, x = -1, None, x._base
        array = x._value
        if x._trace is not None or not is_array(array) or (xp_of(array) is np and not array.flags.writeable):
            return
        k = self.new(array, INPUT[CAPTURED])
        self.adopted.append((x, array, k))
        x._value, x._trace, x._slot = hollow(xp_of(array), array.shape, array.dtype, array.strides), self, k
        x._version, x._saved = getattr(x, "_version", 0), True

    def conditions(self) -> int:
        return len(self.guards)

    def drop_conditions(self, count: int) -> None:
        self.guards = dict(itertools.islice(self.guards.items(), count))

    def values(self, x):
        """(A copy: whoever asks may write it.)"""
        v = self.guarded(x, self.known[x._slot], False)
        return copy_with_layout(v) if is_array(v) else v

    def held(self, x):
        return self.known[x._slot]

    def truth(self, x):
        return self.guarded(x, bool(self.known[x._slot]), True)

    def guarded(self, x, v, truth: bool):
        """v, what x was when it was asked for: a condition."""
        key = x._slot, truth
        self.asked += 1
        if key not in self.guards:
            self.guards[key] = Guard(x._slot, v.copy() if is_array(v) else v, truth, users_place())
        return v

    def seems_finite(self, x):
        """(The program is for finite inputs then.  What becomes infinite in between is heard.)"""
        self.finite = True
        return bool(np.isfinite(self.known[x._slot]).all())

    def draw(self, hidden, params):
        """Random numbers, drawn anew in each replay.  (The generator must not have moved but for draws like
        this.)"""
        real = params["real"]
        first = self.settled(real)
        params = {name: p if name == "real" else setting_copy(p) for name, p in params.items()}
        hidden = [live(a) for a in hidden]
        operands = [lower(a, self) for a in hidden]
        ks = tuple(
            [self.operand(a, v) if t is None else t for a, (v, t) in zip(hidden, operands, strict=True)]
        )
        try:
            out = DRAW.run(*[self.known[k] for k in ks], **params)
        except Exception as error:
            self.unkept = f"{callers_line()}: {type(error).__name__} of numpy.random.{params['name']}"
            raise
        self.generators[id(real)] = real, first, state(real)
        if out is not None and np.asarray(out).dtype.kind not in "biufc":
            self.refuse(params["name"])
            return out
        k = self.new(out, (DRAW, params, ()), ks)
        return None if out is None else self.handles(k)

    def external(self, what, group):
        """The processes of one group give up a replay together; those of several cannot."""
        if not any([group is other for other in self.groups]):
            self.groups.append(group)
        if len(self.groups) > 1:
            self.drawn = f"{callers_line()}: {what} is the second communicator of the function"

    def plainly(self, real, name, args, kwargs):
        """A draw into memory that is nobody's."""
        self.refuse(name)
        return getattr(real, name)(*values_in(args), **values_in(kwargs))

    def refuse(self, name):
        self.drawn = f"{callers_line()}: numpy.random: {name}() draws random numbers that are no operation"

    def settled(self, real):
        """Its state before the first draw."""
        before = state(real)
        _, first, last = self.generators.get(id(real), (real, before, before))
        if before != last:
            self.drawn = f"{callers_line()}: numpy.random: numbers of one generator are drawn in two ways"
        return first

    def picks(self, x):
        """Integers are inputs like others; a number tells a view, or a length."""
        v = self.known[x._slot]
        return is_array(v) and v.ndim > 0 and v.dtype.kind in "iu"

    def freeze(self, x):
        self.frozen.add(id(memory_owner(x)))

    def looped(self, name):
        self.by_samples[name] = None

    def is_number(self, x):
        return x._slot in self.weak

    def memory(self, slot):
        return None

    def alike(self, i, j):
        """May the value j be in the place of i, in the hands of several?"""
        same = self.looks[i][3] == self.looks[j][3] and is_array(self.known[j])
        if same:
            self.alone.discard(j)
        return same and self.known[j].base is None

    def copied_slot(self, slot, x):
        """`copied(x)` is packed in the order of its axes."""
        self.alone.discard(slot)
        v = self.known[slot]
        if not is_array(v) or (v.ndim < 2 and v.base is None):
            return slot
        c = copy_with_layout(v)
        if c.strides == v.strides:
            return slot
        return self.laid(slot, c)

    def laid_slot(self, slot, value):
        fresh = room_like(value)
        fresh[...] = self.known[slot]
        return self.laid(slot, fresh)

    def laid(self, slot: int, v: Any) -> int:
        """A copy of what is in the slot, laid out as v, which it is."""
        return self.new(v, (LAID, laid_settings(v.shape, v.strides), ()), (self.same.get(slot, slot),))

    def close(self):
        """Captured arrays as the function left them."""
        failed = sys.exception() is not self.around
        for x, array, k in self.adopted:
            if x._trace is not self:
                continue
            if x._slot == k:
                x._value, x._trace, x._slot, x._version, x._saved = array, None, None, 0, True
            else:
                if failed:
                    self.before.append((array, array.copy()))
                self.written.append((array, x._slot))
                x._value, x._trace, x._slot = self.known[x._slot], None, None
        for x in self.risen:
            if x._trace is self:
                x._value = self.beneath(x)
        for real, *_ in self.generators.values():
            self.settled(real)
        super().close()
        ended: Any = EndedRecord
        self.__class__ = ended

    def beneath(self, x):
        v = self.known[x._slot]
        return copy_with_layout(v) if is_array(v) else v

    # --- what an operation is ---

    def operand(self, a, v) -> int:
        """A constant.  What lies under a handle stays as it is, for the handle moves before it is written; a
        plain array may change."""
        if type(v) in NUMBERS and type(a) not in HANDLES:
            key = (type(v), v) if v and v == v else settings_key(v)  # (there is a zero of either sign)
            return self.constant_number(key, v)
        found = self.fixed.get(id(v))
        if found is not None:
            return found
        stays = id(v) in self.constants
        if isinstance(v, Variable):
            refuse_tracked(v)
            v = values_of(v)
        if isinstance(a, Variable):
            a._saved = stays = True
        elif not stays and is_array(v):
            stays = mark_immutable(v)
            if not stays:
                self.freeze(v)
                key = content_key(v)
                if key is not None:
                    return self.constant_number(key, v)
                v = copy_with_layout(v)
        k = self.new(v, INPUT[CONSTANT])
        if stays:
            self.fixed[id(v)] = k
        return k

    def constant_number(self, key: Any, v: Any) -> int:
        """The number of the constant v, of which those with one key are one."""
        k = self.constant.get(key)
        if k is None:
            k = self.constant[key] = self.new(copy_with_layout(v) if is_array(v) else v, INPUT[CONSTANT])
        return k

    def step(self, prim, args, inputs, slots, params):
        """(Each of the arguments has a slot.)"""
        return self.done(prim, slots, params)

    def element(self, x, at):
        i = j = x._slot
        if self.same:
            j = self.same.get(i, i)
        k = self.elements.get((j, at))
        if k is None:
            out = self.known[i][at]
            if type(out) is not float64:
                return self.done(READ, (i,), dict(element_at(at)))
            self.elements[j, at] = k = self.new(out, (READ, element_at(at), self.watched), (j,))
        return self.handles(k)

    def single(self, prim, x, v, i):
        return self.shortly(prim, (i,))

    def pair(self, prim, a, b, v, w, i, j):
        if i is None:
            i = self.operand(a, v)
        if j is None:
            j = self.operand(b, w)
        return self.shortly(prim, (i, j))

    def shortly(self, prim, given, params=NOTHING):
        """An operation without settings, of one operand or two; an elementwise one by what is known of it."""
        if (
            now() is not self.setting
            or warnings.filters is not self.filters
            or (self.weak and not self.weak.isdisjoint(given))
        ):
            return self.done(prim, given, NOTHING)
        short = self.short.get(prim)
        if not short:
            short = self.shortened(prim) if short is None else short
            if not short:
                return self.done(prim, given, NOTHING)
        run, met, to_look, what = short
        slots = given if not self.same else tuple([self.same.get(j, j) for j in given])
        looks = self.looks
        k = met.get(slots)
        if k is None or (self.what[k] is not what and not self.serves(k)):
            known = self.known
            k = len(known)
            if len(given) == 1:
                out = run(known[given[0]])
            else:
                i, j = given
                out = run(known[i], known[j])
            if type(out) is float64:
                look = OF_FLOAT
            else:
                of_looks = looks[given[0]][3] if len(given) == 1 else (looks[i][3], looks[j][3])
                look = to_look.get(of_looks)
                if look is None or type(out) is not look[4] or out.dtype is not look[5]:
                    look = to_look[of_looks] = look_at(out)
            self.what.append(what)
            self.operands.append(slots)
            known.append(out)
            looks.append(look)
            met[slots] = k
        else:
            look = looks[k]
        y = new(look[6])
        y._value = look[0]
        y._trace = self
        y._slot = k
        return y

    def apply(self, prim, args, params):
        slots = []
        for a in args:
            kind = type(a)
            if kind in HANDLES and a._trace is self:
                slots.append(a._slot)
            else:
                v, slot = lower(a, self)
                slots.append(self.operand(a, v) if slot is None else slot)
        do = self.done if params or len(slots) > 2 else self.shortly
        return do(prim, tuple(slots), params or NOTHING)

    def heed(self, setting):
        self.setting, self.filters = self if setting is None else setting, warnings.filters
        self.flagged(looked_at(setting, self.outside, self.catches))

    def flagged(self, watched):
        self.watched = watched
        self.short = self.shorts.setdefault(watched, {})

    def serves(self, k) -> bool:
        """Return whether instruction k, or that of these parts, looked at the flags of now. If there are
        none now, it may have looked at flags of which the function does not hear."""
        flags = self.what[self.operands[k[0]][0] if type(k) is tuple else k][2]
        return flags == self.watched or not self.watched and LOUD not in flags

    def shortened(self, prim):
        """(body, what of it was met: operands -> number, what results look like, what is done) of an
        operation of tapegrad's own whose operands' layouts tell that of its result, or ()."""
        run, pure, fresh = instruction_form(prim)
        short: tuple = ()
        laid = prim.batch == "elementwise" or prim.reduces == "products"
        if pure and fresh and laid and not prim.multi and LOUD not in self.watched:
            met, what = self.class_of(prim, NOTHING, ())
            short = run, met, elementwise_rule(prim), what
        self.short[prim] = short
        return short

    def class_of(self, prim, params, key):
        """(what of it was met: operands -> number, what is done) of instructions that do the same. `key`: of
        the settings; None: they have none."""
        if key is None:
            return {}, (prim, params, self.watched)
        what = self.whats.setdefault((prim, key, self.watched), (prim, params, self.watched))
        return self.met.setdefault((prim, key), {}), what

    def done(self, prim, slots, params, numbers=False):
        """The operation, whatever it is.  `numbers`: it is one of Python's, on its numbers."""
        if not numbers:
            setting = now()
            if setting is not self.setting or warnings.filters is not self.filters:
                self.heed(setting)
            if self.weak and not self.weak.isdisjoint(slots):
                return self.weakly(prim, slots, params)
        ks: Any = slots if not self.same else tuple([self.same.get(k, k) for k in slots])
        run, pure, fresh = instruction_form(prim)
        params, key = settled_of(prim, params) if params else (NOTHING, ())
        met, what = self.class_of(prim, params, key)
        found = met.get(ks) if pure and key is not None else None
        found = None if found is None or not self.serves(found) else found
        if found is not None and not prim.writes:
            return self.handles(found)
        values = [self.known[k] for k in slots]
        if prim.opened is not None and type(values[0]) is ndarray and values[0].dtype is F8:
            if values[0].size >= OPENED_ELEMENTS:
                return prim.opened(*[self.handles(k) for k in slots], **params)
        if prim.writes:
            self.move(slots[0], values)
        watched = self.watched
        try:
            if LOUD in watched:
                out, watched = self.listened(prim, values, params)
            else:
                out = run(*values, **params)
        except Exception as error:
            self.ended(prim, ks, params, error)
            raise
        if not fresh and not prim.writes and is_of_another(out, values):
            self.alone.difference_update(slots)
        k: Any = self.new(out, what if watched is self.watched else (prim, params, watched), ks)
        if type(out) is tuple or type(out) is list:
            k = tuple([self.new(o, (PART, part_settings(n), ()), (k,)) for n, o in enumerate(out)])
        elif prim.writes:
            self.alone.add(k)
        if prim.by_values:
            first = k[0] if type(k) is tuple else k
            found_complex = IS_COMPLEX.run(self.known[first])
            self.truth(self.handles(self.new(found_complex, (IS_COMPLEX, NOTHING, ()), (first,))))
        if prim.writes and found is not None:
            self.same[k] = found
        elif k != ():
            met[ks] = k
        return self.handles(k)

    def listened(self, prim, values, params):
        """What the operation gives, and the kinds of errors at which a replay looks: not those of which
        nobody hears."""
        with ErrorListener() as told:
            try:
                out = instruction_form(prim)[0](*values, **params)
            finally:
                if told.heard:
                    self.unkept = f"{callers_line()}: the function may hear of {prim}: {told.heard[0]}"
        return out, tuple([kind for kind in self.watched if kind not in told.flagged])

    def ended(self, prim, ks, params, error):
        """The operation has raised an error: that it does so is a condition, for the function may catch
        it."""
        if isinstance(error, OfTracked):
            return
        self.raised, self.asked = True, self.asked + 1
        what = f"{type(error).__name__} of {prim}"
        if prim.writes or prim.external:
            how = "writes an array" if prim.writes else "exchanges data"
            self.unkept = f"{callers_line()}: {what}, which {how}"
            return
        k = self.new(True, (RAISED, conditions(prim, params, error, LOUD in self.watched), ()), ks)
        self.guards[k, True] = Guard(k, True, True, users_place(), what)

    def move(self, slot, values):
        """A write is done where the buffer lies if nobody else holds that, else in a copy."""
        if slot in self.alone:
            self.alone.discard(slot)
            self.placed.add(len(self.known))
        else:
            values[0] = copy_with_layout(values[0])

    def weakly(self, prim, slots, params):
        """Python's arithmetic, where it is among its numbers: what raises there is a flag of NumPy's."""
        known = [self.known[k] for k in slots]
        if not prim.writes and any([is_single(v) for v in known]):
            raise BatchError("a Python number beside an array of single precision")
        if any(
            [is_array(v) or (is_scalar(v) and k not in self.weak) for k, v in zip(slots, known, strict=True)]
        ):
            return self.done(prim, slots, params, True)
        before = self.watched
        self.flagged(KINDS)
        y = self.done(prim, slots, params, True)
        self.flagged(before)
        if type(y) in HANDLES:
            if not np.isfinite(self.known[y._slot]):
                raise BatchError("Python's arithmetic would raise")
            self.weak.add(y._slot)
        return y

    def handles(self, k):
        if type(k) is tuple:
            return tuple([self.handles(n) for n in k])
        return variable(self.looks[k][0], self, k)


class EndedRecord(EndedTrace):
    """A recording after its function: its Variables are the values that it had."""

    __slots__ = ()
    visibility = HIDDEN
    beneath, memory = Record.beneath, Record.memory


values_in = nested(values_of)  # of arguments of a draw
