"""Reverse mode.  A tape is a list of records; `pull` reads it backwards.

A record is a plain tuple of seven, in one of these forms (slot = index of the record that made a value):
  a leaf                  (None, None, None, None, None, None, None)
  one argument            (rule, slot, None,     None,     out, x,      None)
  one and settings        (rule, slot, SETTINGS, settings, out, x,      None)
  two arguments           (rule, slot, rule or None, slot, out, x,      y)          either rule may be None
  two, and a joint rule   (rule, slot, JOINT,    slot,     out, x,      y)          either slot may be None; real arrays
  any number              (prim, slots, MANY,    None,     out, inputs, params)
  a region read, written  (pull, slot, REGION,   slot,     what the pull function needs ...)
  an element read         (pull, slot, ELEMENT,  None,     layout of the buffer, (), index)
  one of several outputs  (None, slot of the main record, PART, index, number, None, None)
What no rule of the record reads is None, or a `Like` that tells its shape.  A rule knows the primitive to which it belongs, so
each record names its own (`primitive_of`).  Records are data: they can be read by others."""

import gc
import os
import sys
from typing import Any

import numpy as np
from numpy import float64, ndarray

from .arrays import F8, NUMBERS, is_array, is_scalar, kept, same_bits, settled, xp_of, zeros_laid_out
from .primitive import ADD_AT, READ, SAMPLED, Primitive, Trace, bind, handle, layout_of, lower
from .registry import late
from .scope import OPEN, lock, now, opened, put, setting
from .variable import DIRECT, HANDLES, Variable, View, bottom, copied, frozen, variable


class Form:
    """Marks what a record is."""

    __slots__ = ()


MANY, SETTINGS, REGION, ELEMENT, PART, JOINT = Form(), Form(), Form(), Form(), Form(), Form()
LEAF = (None, None, None, None, None, None, None)


def NONE(g, out, x, y):
    """Stands where a record of two arguments has no second rule."""
    raise AssertionError


def primitive_of(record: tuple) -> Primitive | None:
    """The primitive that a record names.  None: a leaf, or one of several outputs, which its main record names."""
    rule = record[2] if record[0] is None else record[0]
    return rule if isinstance(rule, Primitive) else getattr(rule, "prim", None)


SMALL = 4096  # bytes; below, a copy costs less than any bookkeeping


class Like:
    """Stands for an input of which the rules read only shape and dtype."""

    __slots__ = ("shape", "dtype")

    def __init__(self, x):
        if type(x) is ndarray:
            self.shape, self.dtype = x.shape, x.dtype
            return
        x = bottom(x)
        if type(x) in NUMBERS:
            self.shape, self.dtype = (), None
        else:
            self.shape, self.dtype = x.shape, x.dtype

    @property
    def ndim(self):
        return len(self.shape)


class Fold:
    """A rule made to fit: around a holomorphic rule, written as the transpose, the conjugations that make it the adjoint,
    pullback(w) = J^H w = conj(J^T conj(w)); then the result brought to the shape and dtype that its argument had before
    broadcasting and promotion."""

    __slots__ = ("rule", "shape", "dtype", "conjugate", "other")

    def __init__(self, rule, v, holomorphic):
        v = bottom(v)
        self.rule, self.shape, self.dtype, self.conjugate = rule, v.shape, v.dtype, holomorphic

    def __call__(self, g, out, *rest):
        if self.conjugate and not (type(g) is ndarray and g.dtype is F8) and layout_of(g).dtype.kind == "c":
            c = late.conj(self.rule(late.conj(g), out, *rest))
        else:
            c = self.rule(g, out, *rest)
        return self.fold(c)

    @property
    def prim(self):
        return self.rule.prim

    def fold(self, c):
        return late.fit(c, self.shape, self.dtype)

    def made_with(self, rule):
        """The same fit around another rule; made once, for one rule is asked for (`SAFE`)."""
        other = getattr(self, "other", None)
        if other is None or other.rule is not rule:
            self.other = other = Fold.__new__(Fold)
            other.rule, other.shape, other.dtype, other.conjugate = rule, self.shape, self.dtype, self.conjugate
        return other


def keep(trace: "Tape", a: Any) -> Any:
    """A plain operand as a record may hold it: the user may change its memory before the backward sweep.

    Small arrays are copied.  A large one is compared with its last copy (a read of both, which an operation on it costs
    anyway) and copied anew only if it has changed; not if its owner is read-only.  On CuPy it is copied, for a comparison would
    synchronise."""
    if not is_array(a) or id(a) in trace.trusted:
        return a
    if xp_of(a) is not np:
        return a.copy()
    if a.nbytes <= SMALL:
        return a.copy()
    if settled(a):
        return a
    key = a.__array_interface__["data"][0], a.shape, a.strides, a.dtype
    old = trace.copies.get(key)
    if old is None or not same_bits(old, a):
        old = trace.copies[key] = a.copy()
        trace.saved_bytes += a.nbytes
    return old


IMMUTABLE = frozenset((int, float, bool, complex, str, type(None), type(Ellipsis)))


def fixed(s: Any) -> Any:
    """A setting as a record may hold it: arrays, lists and whatever holds them are copied, for the user may change them.  Arrays
    lie as before: what is made of them does (a mask for `where=` has a say in how NumPy lays a result)."""
    kind = type(s)
    if kind in IMMUTABLE:
        return s
    if kind is tuple:
        for v in s:
            if type(v) not in IMMUTABLE:
                return tuple([fixed(v) for v in s])
        return s
    if is_array(s):
        return kept(s)
    if kind is list:
        return [fixed(v) for v in s]
    return {k: fixed(v) for k, v in s.items()} if kind is dict else set(s) if kind is set else s


class Collector:
    """Python's cyclic collector, paused while a long tape grows or is swept.  Records are no cycles, yet it visits them again and
    again: from some ten thousand on that costs as much as recording them."""

    def __init__(self):
        self.lock, self.pausing = lock(), {}  # id -> who wants it paused

    def pause(self, who: Any) -> None:
        """Until `resume(who)`."""
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
        """A child has none of the parent's other threads; it pauses no more for any."""
        if self.pausing:
            self.pausing.clear()
            gc.enable()


COLLECTOR = Collector()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=COLLECTOR.forked)


class Pause:
    """The collector is paused until this ends, or the block of `opened` is left in which it was made."""

    def __init__(self):
        OPEN.unfinished = (*OPEN.unfinished, self)
        COLLECTOR.pause(self)

    def end(self, error: Any = None) -> None:
        COLLECTOR.resume(self)
        OPEN.unfinished = tuple([x for x in OPEN.unfinished if x is not self])


NOBODY: frozenset = frozenset()
LONG = 8192


class Tape(Trace):
    __slots__ = ()
    Records = list  # the tests put another class here, which checks what is kept

    def __init__(self, swept: bool = False):
        """`swept`: the tape is swept as soon as it is closed, and `release`d then; until there the collector may rest."""
        self.level, self.risen = next(Trace.levels), []
        self.records, self.copies, self.trusted, self.saved_bytes = self.Records(), {}, NOBODY, 0
        self.layouts, self.swept, self.look = {}, swept, LONG  # `look`: when a slot is above it, `grown` is due

    def watch(self, value: Any) -> Variable:
        """A new leaf.  `value` is the caller's: it is copied at the first write."""
        x = variable(frozen(value) if isinstance(value, Variable) else value, self, len(self.records))
        self.records.append(LEAF)
        x._saved = True
        return x

    def grown(self) -> None:
        """The tape is long."""
        self.look = sys.maxsize
        COLLECTOR.pause(self)

    def close(self) -> None:
        if not self.swept:
            COLLECTOR.resume(self)
        Trace.close(self)

    def layout(self, value: Any) -> tuple:
        """What `zeros_laid_out` needs of a buffer; a loop over its elements makes it once."""
        found = self.layouts.get(id(value))
        if found is not None and found[0] is value:
            return found[1]
        if len(self.layouts) > 3:
            self.layouts.clear()
        made = xp_of(value), value.shape, value.strides, value.dtype
        self.layouts[id(value)] = value, made
        return made

    def apply(self, prim, args, params):
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
            return tuple([handle(o) for o in out]) if type(out) is tuple else handle(out)
        reads, reads_out = prim.keeps(tuple(slots))
        operands = list(inputs)
        for i, a in enumerate(args):
            if i not in reads:
                operands[i] = Like(operands[i])
            elif isinstance(a, Variable):
                a._saved = True
                if operands[i] is a:
                    operands[i] = frozen(a)  # a handle of an outer level may be written: keep what it is now
            else:
                operands[i] = keep(self, operands[i])
        records = self.records
        k = len(records)
        if k > self.look:
            self.grown()
        if params:
            params = {name: fixed(s) for name, s in params.items()}
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


def tape(swept: bool = False) -> Tape:
    """A tape, of the kind that what is open wants over it."""
    hiding = OPEN.hiding
    return (hiding[-1].tape_over(swept) if hiding else None) or Tape(swept)


def release(trace: Trace) -> None:
    """Let go of a tape that is closed."""
    trace.release()
    if COLLECTOR.pausing:
        COLLECTOR.resume(trace)


def summed(h: Any, c: Any, slot: int, owned: set) -> Any:
    """h + c.  `owned`: slots whose cotangent is a sum made here, which nobody else holds: it takes further terms in place.
    A sum of Variables is fresh, but its tangents may be those of a term: it is not owned."""
    if type(h) is type(c) and type(h) in HANDLES and slot not in owned:
        return h + c
    if type(h) is type(c) is ndarray and h.size < 64:
        return h + c  # so small that a new one costs no more; it is owned if h was
    if slot in owned and type(c) is type(h) and type(c) not in HANDLES and c.dtype is h.dtype and c.shape == h.shape:
        h += c
        return h
    h = h + c
    if isinstance(h, Variable):
        owned.discard(slot)
    else:
        owned.add(slot)
    return h


SAFE: dict = {}  # reverse rule -> the rule to take instead where it multiplied a zero cotangent by inf (ops/elementwise.py)


SWEEPING = setting(divide="ignore", over="ignore", under="ignore", invalid="call", call=lambda *_: OPEN.invalid.append(True))


class Unknown:
    """Stands for the notes of invalid operations where nobody can tell."""

    def append(self, x):
        pass

    def clear(self):
        pass


def pull(trace: Trace, seeds: list, last: bool = False) -> list:
    """Cotangents by slot, given those of some slots as pairs (slot, cotangent); afterwards only those of leaves are left.
    `last`: no other sweep follows, so each record is dropped as it is read.

    NumPy notes an invalid operation, 0 times inf for instance, at no cost; then a safe rule is taken instead: a zero cotangent
    stays zero.  Where a trace hides the values, there is nothing to note, and the safe rule is taken always; but where it runs many
    samples, they are noted for all, and CuPy notes nothing anyway."""
    state = OPEN.__dict__
    if state["block"] is None:
        with opened():
            return pull(trace, seeds, last)
    outer, hiding, before = state["invalid"], state["hiding"], now()
    pause = Pause() if len(trace.records) > LONG else None
    unknown = hiding and not all([t.visibility == SAMPLED for t in hiding]) and any([xp_of(layout_of(g)) is np for _, g in seeds])
    invalid: Any = Unknown() if unknown else []
    try:
        state["invalid"] = invalid
        put(SWEEPING)
        if type(invalid) is Unknown:
            return _sweep(trace, list(trace.records), seeds, last, [], invalid)
        return _sweep(trace, trace.records, seeds, last, invalid, invalid)
    finally:
        state["invalid"] = outer
        put(before)
        if pause is not None:
            pause.end()


def safe_record(record: tuple) -> tuple:
    """The record with safe rules."""
    rule, i, second, j, *rest = record
    if rule is None and second is None:
        return record
    return (rule and safest(rule), i, second if second is None or type(second) is Form else safest(second), j, *rest)


def _sweep(trace: Tape, records: list, seeds: list, last: bool, invalid: Any, of_many: Any) -> list:
    """`of_many`: what is known of invalid operations in general records.  Where nobody can tell of any, the rules are to be safe, and
    the list of records is the sweep's own."""
    safe = type(of_many) is Unknown

    top = seeds[0][0] if len(seeds) == 1 else max([s for s, _ in seeds])
    made, owned = getattr(records, "cotangents", None), set()
    G: list = [None] * (top + 1) if made is None else made(top + 1)
    for s, g in seeds:
        G[s] = g if G[s] is None else G[s] + g
    invalid.clear()

    def run(k: int, stop: int) -> None:
        if safe:
            records[stop + 1 : k + 1] = [safe_record(r) for r in records[stop + 1 : k + 1]]
        _swept(records, G, owned, k, stop, last, invalid, of_many)

    trace.sweep(records, G, owned, top, run)
    return G


def _swept(records: list, G: list, owned: set, top: int, stop: int, last: bool, invalid: Any, of_many: Any) -> None:
    for k in range(top, stop, -1):
        g = G[k]
        if g is None:
            continue
        rule, i, second, j, out, x, y = records[k]
        if last:
            records[k] = None
        if second is None:  # one argument
            if rule is None:
                continue  # a leaf
            G[k] = None
            c = rule(g, out, x)
            if invalid:
                c = made_safe(invalid, c, rule, g, out, x)
            h = G[i]
            if h is None:
                G[i] = c
            elif type(h) is type(c) and (type(h) is float64 or type(h) is ndarray and h.size < 64):
                G[i] = h + c  # so small that a new one costs no more
            else:
                G[i] = summed(h, c, i, owned)
        elif type(second) is not Form:  # two
            G[k] = None
            if rule is not None:
                c = rule(g, out, x, y)
                if invalid:
                    c = made_safe(invalid, c, rule, g, out, x, y)
                h = G[i]
                if h is None:
                    G[i] = c
                elif type(h) is type(c) and (type(h) is float64 or type(h) is ndarray and h.size < 64):
                    G[i] = h + c  # so small that a new one costs no more
                else:
                    G[i] = summed(h, c, i, owned)
            if j is not None:
                c = second(g, out, x, y)
                if invalid:
                    c = made_safe(invalid, c, second, g, out, x, y)
                h = G[j]
                if h is None:
                    G[j] = c
                elif type(h) is type(c) and (type(h) is float64 or type(h) is ndarray and h.size < 64):
                    G[j] = h + c  # so small that a new one costs no more
                else:
                    G[j] = summed(h, c, j, owned)
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
            G[i] = c if h is None else summed(h, c, i, owned)
        elif second is REGION:
            G[k] = None
            rule(G, owned, k, g, i, j, out, x, y)
        elif second is JOINT:
            G[k] = None
            joint(G, owned, rule(g, out, (i is not None, j is not None), x, y), i, j, x, y)
        elif second is MANY:
            G[k] = None
            many(G, owned, of_many, g, rule, i, out, x, y)
        else:  # one of several outputs
            G[k] = None
            if G[i] is None:
                G[i] = [None] * out
            G[i][j] = g


def pulled(invalid: Any, rule: Any, g: Any, *args: Any, **params: Any) -> Any:
    if type(invalid) is Unknown:
        return safest(rule)(g, *args, **params)
    c = rule(g, *args, **params)
    return made_safe(invalid, c, rule, g, *args) if invalid else c


def safest(rule: Any) -> Any:
    """The safe rule instead of this one, if there is one."""
    folded = type(rule) is Fold
    safe = SAFE.get(rule.rule if folded else rule)
    return rule if safe is None else rule.made_with(safe) if folded else safe


def made_safe(invalid: Any, c: Any, rule: Any, g: Any, *args: Any) -> Any:
    """The rule's result c, which has an invalid operation behind it, or that of a safe rule."""
    invalid.clear()
    safe = safest(rule)
    if safe is not rule:
        c = safe(g, *args)
        invalid.clear()
    return c


def many(G: list, owned: set, invalid: Any, g: Any, prim: Any, slots: list, out: Any, inputs: list, params: dict) -> None:
    """The general record: one reverse rule for each active input, or one joint rule for all.  What `Fold` does for the short
    records is done here: adjoints of holomorphic rules, and cotangents of the dtype of their input."""
    adjoint = prim.holomorphic and type(g) is not list and bottom(g).dtype.kind == "c"
    if adjoint:
        g = late.conj(g)
    if prim.joint:
        terms = prim.vjp[0](g, out, tuple([s is not None for s in slots]), *inputs, **params)
    else:
        terms = [None if s is None else pulled(invalid, rule, g, out, *inputs, **params) for rule, s in zip(prim.vjp, slots, strict=True)]
    for n, (s, c) in enumerate(zip(slots, terms, strict=True)):
        if s is not None and c is not None:
            v = bottom(inputs[n])
            if adjoint:
                c = late.conj(c)
            b = layout_of(c)  # (a view is read now)
            if b.dtype is not v.dtype or b.shape != v.shape:
                c = late.fit(c, v.shape, v.dtype)
            h = G[s]
            G[s] = c if h is None else summed(h, c, s, owned)


def joint(G: list, owned: set, terms: tuple, i: Any, j: Any, x: Any, y: Any) -> None:
    """Hand on the cotangents of two real inputs, summed over what was broadcast."""
    c, e = terms
    if i is not None:
        if bottom(c).shape != x.shape:
            c = late.fit(c, x.shape, None)
        h = G[i]
        G[i] = c if h is None else summed(h, c, i, owned)
    if j is not None:
        if bottom(e).shape != y.shape:
            e = late.fit(e, y.shape, None)
        h = G[j]
        G[j] = e if h is None else summed(h, e, j, owned)


# --- cotangents of buffers, which the sweep owns, adds into, masks and hands on ---


def buffer_of(G: list, owned: set, slot: int, layout: tuple) -> Any:
    """The cotangent of a buffer in memory that the sweep may alter, laid out like the buffer; zeros if there is none yet."""
    h = G[slot]
    if h is None:
        h = zeros_laid_out(*layout)
    elif slot in owned and bottom(h).strides == layout[2] and (layout[1] or not is_scalar(bottom(h))):
        return h
    else:
        zeros = zeros_laid_out(*layout)
        if isinstance(h, Variable) or isinstance(zeros, np.generic):
            h = add_region(zeros, h, (), Ellipsis)
        else:
            zeros[...] = h
            h = zeros
    G[slot] = h
    owned.add(slot)
    return h


def add_region(buffer: Any, c: Any, path: tuple, at: Any) -> Any:
    """Add c into the region of an owned buffer; a plain buffer that takes a Variable becomes one."""
    return _bound(ADD_AT, buffer, c, path, at)


def _bound(prim: Any, buffer: Any, c: Any, path: tuple, at: Any) -> Any:
    if isinstance(buffer, Variable) or isinstance(c, Variable):
        if isinstance(c, Variable) and c is buffer:
            c = copied(c)
        one, other = (buffer, c) if type(buffer) in DIRECT else (c, buffer)
        trace = one._trace
        if type(one) in DIRECT and trace is not None and (other._trace is trace if type(other) in DIRECT else type(other) is not View):
            return trace.apply(prim, (buffer, c), {"path": path, "at": at})  # as `bind` would find
        return bind(prim, (buffer, c), {"path": path, "at": at})
    return prim.run(buffer, c, path=path, at=at)


def set_region(buffer: Any, c: Any, path: tuple, at: Any, prim: Any) -> Any:
    return _bound(prim, buffer, c, path, at)


def read_region(buffer: Any, path: tuple, at: Any) -> Any:
    """A copy of the region, for the buffer will change."""
    params = {"path": path, "at": at, "copy": True}
    if type(buffer) in DIRECT and buffer._trace is not None:
        return buffer._trace.apply(READ, (buffer,), params)
    return bind(READ, (buffer,), params) if isinstance(buffer, Variable) else READ.run(buffer, **params)


def saved_bytes(trace: Trace) -> int:
    """Bytes of the distinct arrays that the records keep."""
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
