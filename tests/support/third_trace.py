"""Traces that are neither Tape nor Dual, as a later transform will be."""

import collections

import numpy as np

from tapegrad._core.arrays import is_array
from tapegrad._core.primitive import HIDDEN, Trace, bind
from tapegrad._core.variable import Variable, frozen, variable


class Third(Trace):
    """`step` is all that it needs: here it runs the operation one level down and hands the result to
    `seen`."""

    def watch(self, value):
        x = variable(frozen(value) if isinstance(value, Variable) else value, self, self.slot_of(value))
        x._saved = True
        return x

    def slot_of(self, value):
        return "watched"

    def step(self, prim, args, inputs, slots, params):
        deep = any(isinstance(v, Variable) for v in inputs)
        out = bind(prim, inputs, params) if deep else prim.run(*inputs, **params)
        for a in args:
            if isinstance(a, Variable) and not (prim.writes and a is args[0]):
                a._saved = True  # what it hands to `seen` may be kept there
        slot = self.seen(prim, inputs, params, out)
        return tuple([self.wrapped(o, slot) for o in out]) if type(out) is tuple else self.wrapped(out, slot)

    def wrapped(self, out, slot):
        return (
            variable(out, self, slot)
            if isinstance(out, Variable) or is_array(out) or isinstance(out, np.generic)
            else out
        )

    def seen(self, prim, inputs, params, out):
        raise NotImplementedError


class Counting(Third):
    """Counts operations.  Fields of its own; its slots are strings."""

    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def seen(self, prim, inputs, params, out):
        self.counts[prim.name] += 1
        return prim.name


class Calls(Third):
    """Keeps what each primitive was given, and what it gave."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def seen(self, prim, inputs, params, out):
        self.calls.append((prim, inputs, params))


class Hiding(Third):
    """Shows ones where the values are; the slots hold these.  (`value` tells one.)"""

    visibility = HIDDEN

    def watch(self, value):
        return variable(np.ones_like(value), self, value)

    def step(self, prim, args, inputs, slots, params):
        with np.errstate(all="ignore"):
            out = prim.run(*[v if s is None else s for v, s in zip(inputs, slots, strict=True)], **params)
        return variable(np.ones_like(out), self, out)

    def held(self, x):
        return x._slot


def value(x):
    return x._slot
