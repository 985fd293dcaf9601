"""A tape that lies directly over a recording.

Its operations go to the recording by their numbers there, and what a record of the tape needs to know of
shapes and dtypes is looked up by what the operands look like: a loop does the same to arrays of the same kind
again and again.  What is not of the usual kind goes the general way, and the records are those of any
tape."""

import functools
from typing import Any

from numpy import float64

from ..._core.arrays import F8, IMMUTABLE
from ..._core.primitive import ASSIGN, READ, Primitive, own_memory
from ..._core.reverse import (
    ELEMENT,
    NONE,
    REGION,
    SETTINGS,
    AdaptedRule,
    ShapeStandIn,
    Tape,
    keep,
    setting_copy,
)
from ..._core.variable import CLASSES, DIRECT, Variable, bottom, new
from ...ops.declare import is_operator, reads, signature_of
from ...ops.indexing.regions import pull_element, pull_read
from .loop_sweep import sweep

SHAPES: dict = {}  # (operation, numbers of looks) -> the rules that fit, and for two arrays what is kept
KINDS: dict = {}  # operation -> what its records hold
NOTHING: dict = {}
(pull_assign,) = ASSIGN.vjp


def residual_kind(prim: Primitive) -> tuple | None:
    """(number of arrays, `residuals_of` of the rule of each of them, and of both)"""
    found: tuple | None = None
    if prim.declared and prim.vjp is not None and not (prim.multi or prim.writes or prim.pull or prim.joint):
        signature = signature_of(prim.run)
        if is_operator(prim, signature):
            one, two = [residuals_of(prim, reads(rule), 2) for rule in prim.vjp]
            found = 2, one, two, tuple([max(u, v) for u, v in zip(one, two, strict=True)])
        elif len(signature.arrays) == 1 and not signature.varying:
            found = 1, residuals_of(prim, reads(prim.vjp[0]), 1)
    KINDS[prim] = found
    return found


def is_double(look: tuple, *of: Any) -> bool:
    """Of double precision, an array of NumPy (True), or a number (None)?"""
    return look[5] is F8 and look[1][0] in of


SHAPE, WHOLE = 1, 2


def residuals_of(prim: Primitive, used: list, count: int) -> tuple:
    """(is the result kept, what is kept of each of so many arrays)"""
    by_shape = range(count) if prim.shapes == "*" else prim.shapes
    return used[1], *[
        (SHAPE if n in by_shape else WHOLE) if u else 0 for n, u in enumerate(used[2 : 2 + count])
    ]


def recorded_rule(prim: Primitive, n: int, v: Any, out: Any, of_two: bool) -> Any:
    """The rule of argument n as a record holds it."""
    rule, b, o = prim.vjp[n], bottom(v), bottom(out)
    alike = b.dtype == o.dtype and (not of_two or not prim.same or b.shape == o.shape)
    if alike and not (prim.holomorphic and o.dtype.kind == "c") or not of_two and not prim.holomorphic:
        return rule
    return AdaptedRule(rule, v, prim.holomorphic if of_two else True)


class NestedTape(Tape):
    __slots__ = ()

    def __init__(self, swept: bool, below: Any):
        super().__init__(swept)
        self.below = below
        # of the object: it is swept when it is closed
        self.sweep = functools.partial(sweep, below)  # type: ignore[method-assign]

    def step(self, prim, args, inputs, slots, params):
        """One array and settings; all else takes the general way."""
        kind = KINDS[prim] if prim in KINDS else residual_kind(prim)
        v = inputs[0]
        if kind is None or len(inputs) != 1 or type(v) not in DIRECT or v._trace is not self.below:
            return self.apply(prim, args, params)
        out = self.below.step(prim, inputs, inputs, (v._slot,), params)
        settings = tuple([s if s.__class__ in IMMUTABLE else setting_copy(s) for s in params.values()])
        if prim.aliases:
            v._saved = out._saved = True
        return self.noted(
            prim,
            args[0],
            v,
            slots[0],
            out,
            kind[1],
            SETTINGS if params else None,
            settings if params else None,
        )

    def element(self, x, at):
        v, records = x._value, self.records
        if type(v) not in DIRECT or v._trace is not self.below:
            return None
        element = self.below.element(v, at)
        y = new(CLASSES[type(element)])
        y._value = element
        y._trace = self
        y._slot = len(records)
        records.append((pull_element, x._slot, ELEMENT, None, self.layout(v._value), (), at))
        return y

    def reread(self, y):
        base, below = y._base, self.below
        v = base._value
        if type(v) not in DIRECT or v._trace is not below:
            return False
        hot = base._version > 0
        if not hot:
            base._saved = True
        y._value = below.done(READ, (v._slot,), {"path": y._path, "at": None, "copy": hot})
        y._trace, y._slot, y._seen = self, len(self.records), base._version
        self.records.append((pull_read, base._slot, REGION, None, self.layout(v._value), y._path, None))
        return True

    def put(self, x, y, at):
        """(Numbers of double precision.)"""
        v, w, below, slot, like = x._value, y, self.below, None, None
        if (
            type(v) not in DIRECT
            or v._trace is not below
            or not is_double(below.looks[v._slot], True)
            or not v._value.flags.writeable
        ):
            return False
        if type(y) in DIRECT and y._trace is self:
            w, slot = y._value, y._slot
            if (
                type(w) not in DIRECT
                or w._trace is not below
                or not is_double(below.looks[w._slot], True, None)
            ):
                return False
            like = below.looks[w._slot][1][1], F8
        elif type(y) is not float and type(y) is not int and type(y) is not float64:
            return False
        part = v._value[at]
        if like is not None and like[0] != () and like[0] != part.shape:
            return False
        own_memory(x)
        v = x._value
        out = below.step(
            ASSIGN, (v, w), (v, w), (v._slot, None if slot is None else w._slot), {"path": (), "at": at}
        )
        self.records.append((pull_assign, x._slot, REGION, slot, self.layout(v._value), like, ((), at)))
        x._value, x._slot, x._saved = out, len(self.records) - 1, False
        x._version += 1
        return True

    def single(self, prim, x, v, i):
        kind = KINDS[prim] if prim in KINDS else residual_kind(prim)
        below = self.below
        if kind is None or type(v) not in DIRECT or v._trace is not below:
            return self.apply(prim, (x,), NOTHING)
        return self.noted(prim, x, v, i, below.single(prim, v, v, v._slot), kind[1], None, None)

    def noted(self, prim, x, v, i, out, kept, form, settings):
        """The result of an operation of one array, and its record."""
        looks = self.below.looks
        key = prim, looks[v._slot][3], looks[out._slot][3]
        rule = SHAPES.get(key) or remembered_rule(key, recorded_rule(prim, 0, v, out, False))
        y = new(CLASSES[type(out)])
        y._value = out
        y._trace = self
        reads_out, what = kept
        if prim.aliases:
            x._saved = y._saved = True
        if what == WHOLE:
            x._saved = True
        else:
            v = ShapeStandIn(v) if what else None
        if reads_out:
            y._saved = True
        records = self.records
        y._slot = len(records)
        records.append((rule, i, form, settings, out if reads_out else None, v, None))
        return y

    def pair(self, prim, a, b, v, w, i, j):
        kind = KINDS[prim] if prim in KINDS else residual_kind(prim)
        below = self.below
        p = v._slot if type(v) in DIRECT and v._trace is below else None
        q = w._slot if type(w) in DIRECT and w._trace is below else None
        if (
            kind is None
            or (p is None and (i is not None or isinstance(v, Variable)))
            or (q is None and (j is not None or isinstance(w, Variable)))
        ):
            return self.apply(
                prim, (a if isinstance(a, Variable) else v, b if isinstance(b, Variable) else w), NOTHING
            )
        out = below.pair(prim, v, w, v, w, p, q)
        looks = below.looks
        key = (
            prim,
            None if i is None else looks[p][3],
            None if j is None else looks[q][3],
            looks[out._slot][3],
        )
        found = SHAPES.get(key)
        if found is None:
            first = None if i is None else recorded_rule(prim, 0, v, out, True)
            found = remembered_rule(
                key,
                (
                    first,
                    NONE if j is None else recorded_rule(prim, 1, w, out, True),
                    *kind[1 + (i is None) + 2 * (None not in (i, j))],
                ),
            )
        first, second, reads_out, x, y = found
        if x == WHOLE:
            if isinstance(a, Variable):
                a._saved = True
            else:
                v = keep(self, v)
        else:
            v = ShapeStandIn(v) if x else None
        if y == WHOLE:
            if isinstance(b, Variable):
                b._saved = True
            else:
                w = keep(self, w)
        else:
            w = ShapeStandIn(w) if y else None
        z = new(CLASSES[type(out)])
        z._value = out
        z._trace = self
        if reads_out:
            z._saved = True
        records = self.records
        z._slot = len(records)
        records.append((first, i, second, j, out if reads_out else None, v, w))
        return z


def remembered_rule(key: tuple, rule: Any) -> Any:
    if len(SHAPES) > 9999:
        SHAPES.clear()
    SHAPES[key] = rule
    return rule
