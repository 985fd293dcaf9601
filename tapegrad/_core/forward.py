"""Forward mode. At this level a Variable's slot is its tangent: a plain array, or a value of a lower
level.

Several Variables may share one tangent. An operation whose tangent may be one of its inputs marks its
handle as saved. A write changes value and tangent together, so it first moves both to memory of their
own (`_core.primitive.own_memory`)."""

from typing import Any

from .primitive import READ, Trace, bind, frozen_view, handle, handles_of, lower
from .typing import AnyDict, AnyList, Params
from .variable import Variable, View, copied, frozen, like_layout, variable

# Code that computes tangents: code object -> the first line of that part. Floating-point errors there
# would not occur in a plain call (_core/float_errors.py).
FORWARD: AnyDict = {}


def push_tangents(prim: Any, tangents: AnyList, out: Any, inputs: AnyList, params: Params) -> Any:
    return prim.jvp(tangents, out, *inputs, **params)


FORWARD[push_tangents.__code__] = 0


class Dual(Trace):
    __slots__ = ()
    holds = True

    def copied_slot(self, tangent: Any, x: Variable) -> Any:
        return like_layout(copied(tangent), x)

    def memory(self, tangent: Any) -> Any:
        return tangent

    def laid_slot(self, tangent: Any, value: Any) -> Any:
        return like_layout(tangent, value)

    def watch(self, value: Any, tangent: Any) -> Variable:
        if isinstance(value, Variable):
            value = frozen(value)
        if isinstance(tangent, Variable):
            tangent = frozen(tangent)
        # view steps that are views of the value are then views of the tangent too
        x = variable(value, self, like_layout(tangent, value))
        x._saved = True
        return x

    def apply(self, prim: Any, args: Any, params: Params) -> Any:
        inputs, tangents = [], []
        # a read by copy, or of single elements, keeps no reference
        holds = not (prim is READ and (params["copy"] or params["at"] is not None))
        for a in args:
            v, t = lower(a, self)
            inputs.append(v)
            tangents.append(t)
            if holds and isinstance(a, Variable) and not (prim.writes and a is args[0]):
                a._saved = True
        if prim.jvp is None:
            out = bind(prim, inputs, params)
            return handles_of(out)
        if prim.writes:
            # before the write changes the inputs
            tangent = push_tangents(prim, tangents, None, inputs, params)
            return variable(bind(prim, inputs, params), self, tangent)
        out = bind(prim, inputs, params)
        tangent = push_tangents(prim, tangents, out, inputs, params)
        if type(out) is tuple:
            if tangent is None:
                return tuple([handle(o) for o in out])
            pairs = zip(out, tangent, strict=True)
            return tuple(
                [handle(o) if t is None else variable(o, self, unshared_tangent(t, inputs)) for o, t in pairs]
            )
        if tangent is None:
            return handle(out)
        return variable(out, self, unshared_tangent(tangent, inputs))


def unshared_tangent(tangent: Any, inputs: AnyList) -> Any:
    """Copy a tangent that is one of the rule's inputs: a handle or plain array that may be written later."""
    if type(tangent) is View:
        return frozen_view(tangent)
    for v in inputs:
        if tangent is v:
            return frozen(v) if isinstance(v, Variable) else copied(v)
    return tangent
