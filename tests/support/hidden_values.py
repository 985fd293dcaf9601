"""A trace that keeps the values to itself, as batching and recording do: what a value-blind third trace needs
of the engine.

Under a Variable of `Hidden` lies an array that has shape, dtype and memory order, but no values: any use of
its contents raises
`Escaped`, and what slips through computes with nan.  The trace carries two lanes, the values at two points, and runs each
primitive on both: a value that was taken at one of them and frozen makes the other wrong."""

from typing import Any

import numpy as np

from tapegrad._core.abstract_arrays import LIKE, OF_LAYOUT, OF_VALUES
from tapegrad._core.arrays import is_array
from tapegrad._core.primitive import HIDDEN, Trace, bind, live, lower
from tapegrad._core.scope import scope_block
from tapegrad._core.trees import leaves
from tapegrad._core.variable import Variable, bottom, copied, variable
from tapegrad._transforms.arguments import Inputs, enter_leaf
from tapegrad._transforms.call import run_once, value_out

__name__ = "tapegrad.hidden_values"  # part of the engine: transforms around `at_both` do not follow its code


class Escaped(TypeError):
    """Values were asked for by another way than the trace, or the trace does not give them."""


def refused(what: str) -> Any:
    def method(*args: Any, **kwargs: Any) -> Any:
        raise Escaped(f"{what} of values that the trace keeps to itself")

    return method


BLIND = {name: refused(name) for name in OF_VALUES}
BLIND["__array_ufunc__"] = lambda x, ufunc, *args, **kwargs: refused(ufunc.__name__)()
BLIND["__hash__"] = object.__hash__


def _function(x, f, types, args, kwargs):
    if f in LIKE and args and type(args[0]) is NoArray:
        return f(args[0].view(np.ndarray), *args[1:], **kwargs)
    if f not in OF_LAYOUT:
        raise Escaped(f"{f.__name__} of values that the trace keeps to itself")
    return np.ndarray.__array_function__(x, f, types, args, kwargs)


NoArray = type("NoArray", (np.ndarray,), {**BLIND, "__array_function__": _function})
NO_NUMBERS = {
    t: type(f"No_{t.__name__}", (t,), BLIND)
    for t in (np.float64, np.float32, np.complex128, np.complex64, np.int64)
}


def poison(d: np.dtype) -> Any:
    return np.nan if d.kind in "fc" else True if d.kind == "b" else np.iinfo(d).min + 1


def hollow(v: Any) -> Any:
    """What shows shape, dtype and memory order of the array or number v, and nothing else."""
    v = bottom(v)
    if not is_array(v):
        v = np.asarray(v)[()]
        if type(v) in NO_NUMBERS:
            return NO_NUMBERS[type(v)](poison(v.dtype))
        v = np.asarray(v)
    spans = [(n - 1) * s for n, s in zip(v.shape, v.strides, strict=True)]
    below = -sum([s for s in spans if s < 0])
    room = np.full(
        (below + sum([s for s in spans if s > 0])) // v.itemsize + 1 if v.size else 0,
        poison(v.dtype),
        v.dtype,
    )
    a = np.ndarray(v.shape, v.dtype, room, below if v.size else 0, v.strides).view(NoArray)
    a.flags.writeable = v.flags.writeable
    return a


class Hidden(Trace):
    """A slot is the pair of lanes, one level down."""

    visibility = HIDDEN

    def made(self, lanes: tuple) -> Variable:
        y = variable(hollow(lanes[0]), self, lanes)
        y._saved = True
        return y

    def lanes(self, x: Any) -> tuple:
        value, slot = lower(x, self)
        return (value, value) if slot is None else slot

    def step(self, prim, args, inputs, slots, params):
        for a in args:
            if isinstance(a, Variable) and not (prim.writes and a is args[0]):
                a._saved = True
        given = [(v, v) if s is None else s for v, s in zip(inputs, slots, strict=True)]
        outs = []
        with np.errstate(all="ignore"):  # whoever records sees no flags of later runs
            for k in range(2):
                values = [lanes[k] for lanes in given]
                if prim.writes:
                    values[0] = copied(values[0])
                outs.append(bind(prim, values, params))
        if type(outs[0]) is tuple:
            return tuple([self.made(lanes) for lanes in zip(*outs, strict=True)])
        return self.made(tuple(outs))

    def values(self, x):
        """Of truths and numbers that count, if both lanes agree: a guard."""
        a, b = self.lanes(x)
        if bottom(a).dtype.kind not in "biu" or not np.array_equal(bottom(a), bottom(b)):
            raise Escaped(f"values of dtype {bottom(a).dtype} that the trace keeps to itself")
        return a

    def held(self, x):
        """A nan where either lane has one."""
        return x._slot[0] + x._slot[1]

    def truth(self, x):
        a, b = [bool(v) for v in self.lanes(x)]
        if a != b:
            raise Escaped("a truth that differs between the lanes")
        return a

    def close(self):
        for x in self.risen:
            if x._trace is self:
                x._value = x._slot[-1]
        super().close()


def at_both(f, first, second, trace_of=Hidden):
    """f at two points, tuples of arguments, run once; the leaves of what it gives at each."""
    trace, out, points = trace_of(), [], iter(zip(leaves(first), leaves(second), strict=True))
    inputs = Inputs("at_both", tuple(range(len(first))), first)
    args = inputs.enter(lambda key, value: trace.made(tuple([enter_leaf(p) for p in next(points)])))

    def read(tree):
        for y in leaves(tree):
            y = live(y) if isinstance(y, Variable) else y
            out.append([value_out(v) for v in trace.lanes(y)])

    with scope_block():
        run_once(f, trace, inputs, args, {}, read).finish()
    return [[lanes[k] for lanes in out] for k in range(2)]
