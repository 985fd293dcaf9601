"""What a recorded call leaves in objects, lists and dicts, as outputs of its program.

Arrays and containers that the call has made are made anew after a replay, one for each that there was.  What
the function has captured stays the object that it is."""

from collections.abc import Callable

import numpy as np

from ..._capture.kinds import put_state
from ..._core.arrays import IMMUTABLE, address, is_array, is_scalar
from ..._core.primitive import live
from ..._core.variable import Variable, View, bottom
from ...ops.indexing.regions import region


class UntoldValue(Exception):
    """A value that nobody knows how to make anew."""


class ObjectState:
    """`places`: (object, name, maker), see `put`.  A maker is called with the outputs of a replay, and a dict
    of what others have made."""

    def __init__(self, shadow, slot_of: Callable, outside: frozenset):
        """`slot_of(v)` gives the number of the output that a recorded Variable becomes, None for another.
        `outside`: ids of objects that the function has not made."""
        self.places = []
        self.holds_objects = False  # of the user's?
        self.slot_of, self.outside = slot_of, outside
        self.makers = {}  # id of a value -> (value, its maker)
        self.originals = {id(new): x for x in shadow.hold if (new := shadow.seen.get(id(x))) is not None}

    def add(self, x, name: str, value) -> None:
        self.places.append((x, name, self.new_maker(value) if name is None else self.maker(value)))

    def end(self) -> None:
        """The call is over."""
        self.makers, self.originals, self.slot_of = {}, {}, live

    def maker(self, v) -> Callable:
        if type(v) in IMMUTABLE or is_scalar(v):
            return lambda outputs, made: v
        known = self.originals.get(id(v), v)
        if known is not v or id(v) in self.originals or id(root_of(v)) in self.outside:
            self.holds_objects = True
            return lambda outputs, made: known
        if id(v) not in self.makers:
            self.makers[id(v)] = v, None
            self.makers[id(v)] = v, shared(self.new_maker(v))
        found = self.makers[id(v)][1]
        if found is None:
            raise UntoldValue("a cycle of references")
        return found

    def new_maker(self, v) -> Callable:
        kind = type(v)
        if kind is View:
            path = v._path
            return self.of_parts([v._base], lambda parts: region(parts[0], path))
        if isinstance(v, Variable):
            return self.variable(v)
        if kind is np.ndarray and not v.dtype.hasobject:
            root = root_of(v)
            if root is v:
                return lambda outputs, made: v.copy(order="K")
            if root.flags.c_contiguous:
                form = v.shape, v.dtype, address(v) - address(root), v.strides
                return self.of_parts([root], lambda parts: np.ndarray(*form[:2], parts[0], *form[2:]))
        if kind in (list, tuple):
            return self.of_parts(v, kind)
        if kind is dict and IMMUTABLE.issuperset(map(type, v)):
            keys = tuple(v)
            return self.of_parts(v.values(), lambda parts: dict(zip(keys, parts, strict=True)))
        raise UntoldValue(f"an object of the class {kind.__name__}")

    def of_parts(self, values, make: Callable) -> Callable:
        makers = [*map(self.maker, values)]
        return lambda outputs, made: make([each(outputs, made) for each in makers])

    def variable(self, v: Variable) -> Callable:
        v = live(v)
        k, value = self.slot_of(v), bottom(v)
        if k is None and v._trace is not None:
            raise UntoldValue("a value of an outer transform")
        return lambda outputs, made: copied(value if k is None else outputs[k])

    def put(self, outputs) -> None:
        """Leave the values of a replay in the objects."""
        made = {}
        for x, name, maker in self.places:
            put(x, name, maker(outputs, made))


def copied(v):
    return v.copy() if is_array(v) else v


def root_of(v):
    """The array that an array is a view of."""
    while is_array(v) and is_array(v.base):
        v = v.base
    return v


def shared(make: Callable) -> Callable:
    """A maker of one value for all who ask in one replay."""

    def maker(outputs, made: dict):
        if maker not in made:
            made[maker] = make(outputs, made)
        return made[maker]

    return maker


def put(x, name, value) -> None:
    """Leave a value in an attribute, or a member of a dict; without a name, all that a list or dict holds."""
    if type(x) is list:
        x[:] = value
    elif type(x) is dict:
        if name is None:
            x.clear()
        x.update(value if name is None else {name: value})
    else:
        put_state(x, {name: value})
