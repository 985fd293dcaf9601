"""Reverse mode.  A tape is a list of records; `pull` reads it backwards.

A record is a plain tuple of seven, in one of these forms (slot = index of the record that made a value):
  a leaf                  (None, None, None, None, None, None, None) one argument            (rule, slot,
  None,     None,     out, x,      None) one and settings        (rule, slot, SETTINGS, settings, out, x,
  None) two arguments           (rule, slot, rule or None, slot, out, x,      y)          either rule may be
  None two, and a joint rule   (rule, slot, JOINT,    slot,     out, x,      y)          either slot may be
  None; real arrays any number              (prim, slots, MANY,    None,     out, inputs, params) a region
  read, written  (pull, slot, REGION,   slot,     what the pull function needs ...) an element read
  (pull, slot, ELEMENT,  None,     layout of the buffer, (), index) one of several outputs  (None, slot of the
  main record, PART, index, number, None, None)
A value that no rule of the record reads is None, or a `ShapeStandIn` with its shape. A rule knows its
primitive, so each record names its own (`primitive_of`). Records are data; debugging tools and recordings
read them."""

import copy
import gc
import math
import os
import sys
from typing import Any

import numpy as np
from numpy import float64, ndarray

from .arrays import (
    F8,
    IMMUTABLE,
    NUMBERS,
    copy_with_layout,
    is_array,
    is_scalar,
    mark_immutable,
    same_bits,
    xp_of,
    zeros_laid_out,
)
from .primitive import ADD_AT, READ, Primitive, Trace, bind, handles_of, layout_of, lower
from .registry import late
from .scope import OPEN, lock, now, put, scope_block, setting
from .typing import AnyList, AnyTuple, Params
from .variable import DIRECT, HANDLES, Variable, View, bottom, copied, frozen, variable


class RecordMark:
    """Marks the form of a record."""

    __slots__ = ()


MANY, SETTINGS, REGION, ELEMENT, PART, JOINT = (
    RecordMark(),
    RecordMark(),
    RecordMark(),
    RecordMark(),
    RecordMark(),
    RecordMark(),
)
LEAF = (None, None, None, None, None, None, None)


def NONE(g: Any, out: Any, x: Any, y: Any) -> None:
    """The second rule of a record of two arguments, if there is none."""
    raise AssertionError


def primitive_of(record: AnyTuple) -> Primitive | None:
    """The primitive that a record names. None for a leaf, and for one of several outputs, where the main
    record names it."""
    rule = record[2] if record[0] is None else record[0]
    return rule if isinstance(rule, Primitive) else getattr(rule, "prim", None)


COPIED_BYTES = 4096  # bytes; a copy of a smaller array costs less than any bookkeeping


class ShapeStandIn:
    """Stands for an input of which the rules read only shape, dtype and library."""

    __slots__ = ("shape", "dtype", "library")

    def __init__(self, x: Any) -> None:
        self.library = np
        if type(x) is ndarray:
            self.shape, self.dtype = x.shape, x.dtype
            return
        x = bottom(x)
        self.library = xp_of(x)
        if type(x) in NUMBERS:
            self.shape, self.dtype = (), None
        else:
            self.shape, self.dtype = x.shape, x.dtype

    @property
    def ndim(self) -> Any:
        return len(self.shape)


class AdaptedRule:
    """A rule adapted to its argument. Around a holomorphic rule, written as the transpose, it conjugates
    to obtain the adjoint: pullback(w) = J^H w = conj(J^T conj(w)). Then it undoes broadcasting and
    promotion, so the result has the shape and dtype of the argument."""

    __slots__ = ("rule", "shape", "dtype", "conjugate")

    def __init__(self, rule: Any, v: Any, holomorphic: Any) -> None:
        v = bottom(v)
        self.rule, self.shape, self.dtype, self.conjugate = rule, v.shape, v.dtype, holomorphic

    def __call__(self, g: Any, out: Any, *rest: Any) -> Any:
        if self.conjugate and not (type(g) is ndarray and g.dtype is F8) and layout_of(g).dtype.kind == "c":
            c = late.conj(self.rule(late.conj(g), out, *rest))
        else:
            c = self.rule(g, out, *rest)
        return self.fold(c)

    @property
    def prim(self) -> Any:
        return self.rule.prim

    def fold(self, c: Any) -> Any:
        return late.fit(c, self.shape, self.dtype)


def keep(trace: "Tape", a: Any) -> Any:
    """A plain operand in the form that a record may hold. The user may change its memory before the
    backward sweep.

    Small arrays are copied. A large array is compared with its last copy, and copied again only if it
    has changed. The comparison reads both arrays, which an operation on them costs anyway. An array
    that its owner made read-only is held as it is. CuPy arrays are copied, because a comparison would
    synchronise."""
    if not is_array(a) or id(a) in trace.trusted:
        return a
    if xp_of(a) is not np:
        return a.copy()
    if a.nbytes <= COPIED_BYTES:
        return a.copy()
    if mark_immutable(a):
        return a
    key = a.__array_interface__["data"][0], a.shape, a.strides, a.dtype
    old = trace.copies.get(key)
    if old is None or not same_bits(old, a):
        old = trace.copies[key] = a.copy()
        trace.saved_bytes += a.nbytes
    return old


def setting_copy(s: Any) -> Any:
    """A setting in the form that a record may hold. Arrays, lists and other containers are copied,
    because the user may change them. Copies of arrays keep the memory order, because results depend on
    it (for example on the order of a mask for `where=`)."""
    kind = type(s)
    if kind in IMMUTABLE:
        return s
    if kind is tuple:
        for v in s:
            if type(v) not in IMMUTABLE:
                return tuple([setting_copy(v) for v in s])
        return s
    if is_array(s):
        return copy_with_layout(s)
    if kind is list:
        return [setting_copy(v) for v in s]
    return {k: setting_copy(v) for k, v in s.items()} if kind is dict else set(s) if kind is set else s


class Collector:
    """Python's cyclic garbage collector, paused while a long tape grows or is swept. Records form no
    cycles, yet the collector visits them repeatedly. From about ten thousand records on, that costs as
    much as recording."""

    pausing: dict[int, Any]

    def __init__(self) -> None:
        self.lock, self.pausing = lock(), {}  # id -> the object that wants it paused

    def pause(self, who: Any) -> None:
        """Pause the collector until `resume(who)`."""
        with self.lock:
            if self.pausing or gc.isenabled():
                self.pausing[id(who)] = who
                gc.disable()

    def resume(self, who: Any) -> None:
        if id(who) in self.pausing:
            with self.lock:
                if self.pausing.pop(id(who), None) is not None and not self.pausing:
                    gc.enable()

    def forked(self) -> None:
        """Resume in a forked child. It has none of the parent's other threads, so their pauses end."""
        if self.pausing:
            self.pausing.clear()
            gc.enable()


COLLECTOR = Collector()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=COLLECTOR.forked)


class CollectorPause:
    """A pause of the collector, until `end` or the exit of the block of `scope_block` in which it was
    made."""

    def __init__(self) -> None:
        OPEN.unfinished = (*OPEN.unfinished, self)
        COLLECTOR.pause(self)

    def end(self, error: Any = None) -> None:
        COLLECTOR.resume(self)
        OPEN.unfinished = tuple([x for x in OPEN.unfinished if x is not self])


NOBODY: frozenset[Any] = frozenset()
LONG_TAPE_RECORDS = 8192


class Tape(Trace):
    __slots__ = ()
    leaves: Params  # of a call: slot of an argument -> its value
    outputs: AnyList  # and (value, slot or None) of what it returned
    Records = list  # tests replace this class to check what is kept
    at_point: bool  # of `at_a_point`: a constant may depend on the arguments

    def __init__(self, swept: bool = False):
        """`swept`: the tape is swept right after it is closed, and then `release`d. The collector may
        stay paused until then."""
        self.level, self.risen, self.searches = next(Trace.levels), [], {}
        self.records, self.copies, self.trusted, self.saved_bytes = self.Records(), {}, NOBODY, 0
        # `look`: the slot above which `grown` is called
        self.layouts, self.swept, self.look = {}, swept, LONG_TAPE_RECORDS

    @classmethod
    def at_a_point(cls) -> "Tape":
        """A tape of what is linear in its leaves, as w -> J(x)^H w."""
        tape = cls()
        tape.at_point = True
        return tape

    def watch(self, value: Any) -> Variable:
        """Make `value` a new leaf. It belongs to the caller, so the first write copies it."""
        x = variable(frozen(value) if isinstance(value, Variable) else value, self, len(self.records))
        self.records.append(LEAF)
        x._saved = True
        return x

    def grown(self) -> None:
        """The tape has become long: pause the collector."""
        self.look = sys.maxsize
        COLLECTOR.pause(self)

    def close(self) -> None:
        if not self.swept:
            COLLECTOR.resume(self)
        Trace.close(self)

    def layout(self, value: Any) -> AnyTuple:
        """The arguments of `zeros_laid_out` for a buffer. They are cached for loops over the elements of
        a buffer."""
        found = self.layouts.get(id(value))
        if found is not None and found[0] is value:
            return found[1]
        if len(self.layouts) > 3:
            self.layouts.clear()
        made = xp_of(value), value.shape, value.strides, value.dtype
        self.layouts[id(value)] = value, made
        return made

    def apply(self, prim: Any, args: Any, params: Params) -> Any:
        inputs, slots = [], []
        for a in args:
            v, s = lower(a, self)
            inputs.append(v)
            slots.append(s)
        if prim.pull is not None:
            return prim.pull(self, prim, inputs, slots, params)
        deep = any([isinstance(v, Variable) for v in inputs])
        out = bind(prim, inputs, params) if deep else prim.run(*inputs, **params)
        if prim.vjp is None:
            return handles_of(out)
        reads, reads_out = prim.keeps(tuple(slots))
        operands = list(inputs)
        for i, a in enumerate(args):
            if i not in reads:
                operands[i] = ShapeStandIn(operands[i])
            elif isinstance(a, Variable):
                a._saved = True
                if operands[i] is a:
                    # a handle of an outer level may be written later: keep its present value
                    operands[i] = frozen(a)
            else:
                operands[i] = keep(self, operands[i])
        records = self.records
        k = len(records)
        if k > self.look:
            self.grown()
        if params:
            params = {name: setting_copy(s) for name, s in params.items()}
        records.append((prim, slots, MANY, None, out if reads_out else None, operands, params))
        if type(out) is not tuple:
            y = variable(out, self, k)
            if reads_out:
                y._saved = True
            return y
        ys = []
        for n, o in enumerate(out):
            y = variable(o, self, k + 1 + n)
            y._saved = reads_out
            if getattr(bottom(o), "dtype", F8).kind not in "fc":
                y = o
            ys.append(y)
            records.append((None, k, PART, n, len(out), None, None))
        return tuple(ys)


def release(trace: Trace) -> None:
    """Free a closed tape."""
    trace.release()
    if COLLECTOR.pausing:
        COLLECTOR.resume(trace)


def add_cotangents(h: Any, c: Any, slot: int, owned: set[Any]) -> Any:
    """h + c. `owned` holds the slots whose cotangent is a sum made here, with no other holder; further
    terms are added to it in place. A sum of Variables is new, but its tangents may be those of a term,
    so it is not owned."""
    if type(h) is type(c) and type(h) in HANDLES and slot not in owned:
        return h + c
    if type(h) is type(c) is ndarray and h.size < 64:
        return h + c  # so small that a new array costs no more; it is owned if h was
    if (
        slot in owned
        and type(c) is type(h)
        and type(c) not in HANDLES
        and c.dtype is h.dtype
        and c.shape == h.shape
    ):
        h += c
        return h
    h = h + c
    if isinstance(h, Variable):
        owned.discard(slot)
    else:
        owned.add(slot)
    return h


SWEEPING = setting(divide="ignore", over="ignore", under="ignore", invalid="ignore")


class Undefined(Exception):
    """Raised when the gradient of a leaf has a nan."""


def pull(trace: Any, seeds: AnyList) -> AnyList:
    """Cotangents by slot, given those of some slots as pairs (slot, cotangent). Afterwards only the
    cotangents of leaves are left.

    If the gradient of a leaf has a nan, the sweep is repeated with careful rules
    (`ops.elementwise.careful`).  Where a nan is left, a third sweep takes x * x for what it is, an even
    function: its slope at zero is 0, also under a root whose slope there is infinite.  Of a tape over
    several ranks they decide that together, and add up the gradients."""
    state = OPEN.__dict__
    if state["block"] is None:
        with scope_block():
            return pull(trace, seeds)
    outer, before = state["sweeping"], now()
    pause = CollectorPause() if len(trace.records) > LONG_TAPE_RECORDS else None
    for t in state["hiding"]:
        t.pulled = max(getattr(t, "pulled", 0), state["depth"])
    try:
        state["sweeping"] = trace
        if outer is not None:
            trace.swept_in = outer
        put(SWEEPING)
        ranks = trace.over_ranks
        try:
            G = _sweep(trace, seeds, None if ranks is None else False)
            if trace.over_ranks is None:
                return G
            reduced: AnyList | None = trace.over_ranks.reduced(trace, seeds, G, True)
            if reduced is not None:
                return reduced
        except Undefined:
            pass
        again = not any([is_tracked_zero(g) for _, g in seeds])
        G = _sweep(trace, seeds, again)
        if again and any(map(has_nan, G)):
            G = list(map(late.unless_nan, G, _sweep(trace, seeds, again, True)))
        if trace.over_ranks is not None:
            G = trace.over_ranks.reduced(trace, seeds, G, False)
        return G
    finally:
        state["sweeping"] = outer
        if outer is not None:
            trace.swept_in = None
        put(before)
        if pause is not None:
            pause.end()


def _sweep(trace: Tape, seeds: AnyList, again: bool | None, even: bool = False) -> AnyList:
    """`again`: None in the first sweep; later, whether careful rules may be used. `even`: in the third."""
    at_point = trace.__dict__.get("at_point", False)  # a trace that has ended is no Tape
    records = [careful_record(r, even, at_point) for r in trace.records] if again else trace.records
    top = seeds[0][0] if len(seeds) == 1 else max([s for s, _ in seeds])
    made: Any = getattr(records, "cotangents", None)
    G: AnyList = [None] * (top + 1) if made is None else made(top + 1)
    for s, g in seeds:
        G[s] = g if G[s] is None else G[s] + g
    _swept(records, G, again)
    return G


def _swept(records: AnyList, G: AnyList, again: bool | None) -> None:
    owned: set[int] = set()
    for k in range(len(G) - 1, -1, -1):
        g = G[k]
        if g is None:
            continue
        rule, i, second, j, out, x, y = records[k]
        if second is None:  # one argument
            if rule is None:  # a leaf
                if again is None and has_nan(g):
                    raise Undefined
                continue
            G[k] = None
            c = rule(g, out, x)
            h = G[i]
            if h is None:
                G[i] = c
            elif type(h) is type(c) and (type(h) is float64 or type(h) is ndarray and h.size < 64):
                G[i] = h + c  # so small that a new array costs no more
            else:
                G[i] = add_cotangents(h, c, i, owned)
        elif type(second) is not RecordMark:  # two arguments
            G[k] = None
            if rule is not None:
                c = rule(g, out, x, y)
                h = G[i]
                if h is None:
                    G[i] = c
                elif type(h) is type(c) and (type(h) is float64 or type(h) is ndarray and h.size < 64):
                    G[i] = h + c  # so small that a new array costs no more
                else:
                    G[i] = add_cotangents(h, c, i, owned)
            if j is not None:
                c = second(g, out, x, y)
                h = G[j]
                if h is None:
                    G[j] = c
                elif type(h) is type(c) and (type(h) is float64 or type(h) is ndarray and h.size < 64):
                    G[j] = h + c  # so small that a new array costs no more
                else:
                    G[j] = add_cotangents(h, c, j, owned)
        elif second is ELEMENT:
            G[k] = None
            h = G[i]
            if type(h) is ndarray and type(g) is float64 and i in owned:
                h[y] += g
            else:
                rule(G, owned, k, g, i, j, out, x, y)
        elif second is SETTINGS:
            G[k] = None
            c = rule(g, out, x, *j)
            h = G[i]
            G[i] = c if h is None else add_cotangents(h, c, i, owned)
        elif second is REGION:
            G[k] = None
            rule(G, owned, k, g, i, j, out, x, y)
        elif second is JOINT:
            G[k] = None
            joint(G, owned, rule(g, out, (i is not None, j is not None), x, y), i, j, x, y)
        elif second is MANY:
            G[k] = None
            many(G, owned, g, rule, i, out, x, y)
        else:  # one of several outputs
            G[k] = None
            if G[i] is None:
                G[i] = [None] * out
            G[i][j] = g


def careful_record(record: AnyTuple, even: bool, at_point: bool) -> AnyTuple:
    rule, i, second, j, *rest = record
    squares = (len(i) == 2 and i[0] == i[1] if second is MANY else i == j) if even else None
    if rule is None and second is None or second in (REGION, ELEMENT, PART):
        return record
    slots = i if second is MANY else (i, j)
    alone = None if at_point else sum([s is not None for s in slots]) == 1
    if second is MANY:
        rule, prim = copy.copy(rule), rule
        rule.vjp = tuple([late.careful(one, squares, alone) for one in prim.vjp])
    elif rule is not None:
        rule = late.careful(rule, squares, alone)
    if second is not None and type(second) is not RecordMark:
        second = late.careful(second, squares, alone)
    return rule, i, second, j, *rest


def known(g: Any) -> AnyTuple:
    """(values of a cotangent, of all samples, or None; whether it is tracked). The values choose between
    two sweeps. The first is right for other values, so hidden values may be read."""
    tracked = False
    while type(g) is not ndarray and isinstance(g, Variable):
        trace = g._trace
        hides = trace is not None and trace.visibility
        tracked |= trace is not None and not hides
        g = trace.held(g) if hides else g._value
    return g, tracked


def is_tracked_zero(g: Any) -> Any:
    """Is a tracked cotangent zero somewhere? It may not stay zero, because its own derivative is
    computed."""
    g, tracked = known(g)
    return tracked and (g is None or np.any(g == 0))


def is_differentiated(x: Any) -> bool:
    """Is a derivative of x asked for, apart from the traces that hide its values?"""
    return isinstance(x, Variable) and known(x)[1]


def has_nan(g: Any, or_infinity: bool = False) -> bool:
    """Does a cotangent hold a nan? (False on a device, which would have to synchronise.)"""
    if type(g) is not ndarray:
        g, _ = known(g)
    if type(g) is ndarray:
        if g.ndim == 1 and g.size < 8:  # so few that a reduction costs more
            for x in g.tolist():
                if x != x or or_infinity and abs(x) == math.inf:
                    return True
            return False
        if g.dtype.kind == "f":  # (squares are not negative, and this product warns of nothing)
            v = g.ravel("K")
            s: Any = np.vdot(v, v)
        else:
            s = np.minimum.reduce(g, axis=None) if g.size else 0.0
        finite = not or_infinity or g.dtype.kind == "f" and s < math.inf or np.isfinite(g).all()
        found: bool = s != s or not finite
        return found
    number: Any = isinstance(g, (float, complex, np.generic)) and g
    return number != number or or_infinity and abs(number) == math.inf


def many(
    G: AnyList, owned: set[Any], g: Any, prim: Any, slots: AnyList, out: Any, inputs: AnyList, params: Params
) -> None:
    """The general record: one reverse rule for each active input, or one joint rule. It does what
    `AdaptedRule` does for the short records: adjoints of holomorphic rules, and cotangents in the dtype of
    their input."""
    adjoint = prim.holomorphic and type(g) is not list and bottom(g).dtype.kind == "c"
    if adjoint:
        g = late.conj(g)
    if prim.joint:
        terms = prim.vjp[0](g, out, tuple([s is not None for s in slots]), *inputs, **params)
    else:
        terms = [
            None if s is None else rule(g, out, *inputs, **params)
            for rule, s in zip(prim.vjp, slots, strict=True)
        ]
    for n, (s, c) in enumerate(zip(slots, terms, strict=True)):
        if s is not None and c is not None:
            v = bottom(inputs[n])
            if adjoint:
                c = late.conj(c)
            b = layout_of(c)  # (this reads a view)
            if b.dtype is not v.dtype or b.shape != v.shape:
                c = late.fit(c, v.shape, v.dtype)
            h = G[s]
            G[s] = c if h is None else add_cotangents(h, c, s, owned)


def joint(G: AnyList, owned: set[Any], terms: AnyTuple, i: Any, j: Any, x: Any, y: Any) -> None:
    """Distribute the cotangents of two real inputs, summed over broadcast axes."""
    c, e = terms
    if i is not None:
        if bottom(c).shape != x.shape:
            c = late.fit(c, x.shape, None)
        h = G[i]
        G[i] = c if h is None else add_cotangents(h, c, i, owned)
    if j is not None:
        if bottom(e).shape != y.shape:
            e = late.fit(e, y.shape, None)
        h = G[j]
        G[j] = e if h is None else add_cotangents(h, e, j, owned)


# --- cotangents of buffers: the sweep owns them, adds into them, masks them and passes them on ---


def buffer_of(G: AnyList, owned: set[Any], slot: int, layout: AnyTuple) -> Any:
    """The cotangent of a buffer in memory that the sweep may change, with the layout of the buffer. Zeros
    if there is none yet."""
    h = G[slot]
    if h is None:
        h = zeros_laid_out(*layout)
    elif slot in owned and bottom(h).strides == layout[2] and (layout[1] or not is_scalar(bottom(h))):
        return h
    else:
        zeros, under = zeros_laid_out(*layout), bottom(h)
        if type(h) in DIRECT and layout[1] and (under.strides, under.dtype) == (zeros.strides, zeros.dtype):
            h = copied(h)
        elif isinstance(h, Variable) or isinstance(zeros, np.generic):
            h = add_region(zeros, h, (), Ellipsis)
        else:
            zeros[...] = h
            h = zeros
    G[slot] = h
    owned.add(slot)
    return h


def add_region(buffer: Any, c: Any, path: AnyTuple, at: Any) -> Any:
    """Add c to the region of an owned buffer. A plain buffer becomes a Variable if c is one."""
    return _bound(ADD_AT, buffer, c, path, at)


def _bound(prim: Any, buffer: Any, c: Any, path: AnyTuple, at: Any) -> Any:
    if isinstance(buffer, Variable) or isinstance(c, Variable):
        if isinstance(c, Variable) and c is buffer:
            c = copied(c)
        one, other = (buffer, c) if type(buffer) in DIRECT else (c, buffer)
        trace = one._trace
        if (
            type(one) in DIRECT
            and trace is not None
            and (other._trace is trace if type(other) in DIRECT else type(other) is not View)
        ):
            return trace.apply(prim, (buffer, c), {"path": path, "at": at})  # as `bind` would choose
        return bind(prim, (buffer, c), {"path": path, "at": at})
    return prim.run(buffer, c, path=path, at=at)


def set_region(buffer: Any, c: Any, path: AnyTuple, at: Any, prim: Any) -> Any:
    return _bound(prim, buffer, c, path, at)


def read_region(buffer: Any, path: AnyTuple, at: Any) -> Any:
    """A copy of the region; a copy because the buffer will change."""
    params = {"path": path, "at": at, "copy": True}
    if type(buffer) in DIRECT and buffer._trace is not None:
        return buffer._trace.apply(READ, (buffer,), params)
    return bind(READ, (buffer,), params) if isinstance(buffer, Variable) else READ.run(buffer, **params)


def saved_bytes(trace: Trace) -> int:
    """The number of bytes in the distinct arrays that the records keep."""
    seen = {}
    for record in trace.records:
        if record is None:
            continue
        for held in record[4:]:
            for v in held if isinstance(held, (list, tuple)) else (held,):
                b = bottom(v)
                if is_array(b):
                    seen[id(b)] = b.nbytes
    return sum(seen.values())
