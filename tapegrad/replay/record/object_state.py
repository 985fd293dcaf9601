"""What a recorded call leaves in objects, lists and dicts, as outputs of its program.

A node says how a value is made anew after a replay.  Arrays and containers that the call has made are made anew,
one for each that there was.  What the function has captured stays the object that it is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..._capture.kinds import EMPTY, put_state
from ..._core.arrays import IMMUTABLE, address, is_array, is_scalar
from ..._core.primitive import live
from ..._core.variable import Variable, View, bottom
from ...ops.indexing.regions import region


class Untold(Exception):
    """A value that no node stands for."""


class Node(NamedTuple):
    """`make` makes the value of those of `parts`; without it, it is output number `output`, or `constant`."""

    parts: tuple = ()
    make: Callable | None = None
    output: int = -1
    constant: Any = None


class ObjectState:
    """The places, as (object, name, node); see `put`."""

    def __init__(self, shadow: Any, slot_of: Callable, outside: frozenset):
        """`slot_of(v)` gives the number of the output that a recorded Variable becomes, None for another.
        `outside`: ids of objects that the function has not made."""
        self.places: list = []
        self.holds_objects = False  # of the user's?
        self.slot_of, self.outside = slot_of, outside
        self.nodes: dict = {}  # id of a value -> (value, its node)
        self.originals = {id(new): x for x in shadow.hold if (new := shadow.seen.get(id(x))) is not None}

    def add(self, x: Any, name: str, value: Any) -> None:
        if not any([x is y and name == other for y, other, _ in self.places]):
            self.places.append((x, name, self.new_node(value) if name is None else self.node(value)))

    def ended(self) -> None:
        """The call is over."""
        self.nodes, self.originals, self.slot_of, self.outside = {}, {}, live, frozenset()

    def node(self, v: Any) -> Node:
        if type(v) in IMMUTABLE:
            return Node(constant=v)
        known = self.originals.get(id(v), EMPTY)
        if known is not EMPTY:
            self.holds_objects = True
            return Node(constant=known)
        if id(v) not in self.nodes:
            self.nodes[id(v)] = v, None
            self.nodes[id(v)] = v, self.new_node(v)
        found = self.nodes[id(v)][1]
        if found is None:
            raise Untold("a cycle of references")
        return found

    def new_node(self, v: Any) -> Node:
        if type(v) is View:
            base, path = self.node(v._base), v._path
            return Node((base,), lambda a: region(a, path))
        if isinstance(v, Variable):
            return self.variable(v)
        if is_array(v):
            return self.array(v)
        kind = type(v)
        if is_scalar(v):
            return Node(constant=v)
        if kind in (list, tuple):
            return Node(tuple(map(self.node, v)), lambda *parts: kind(parts))
        if kind is dict and all([type(key) in IMMUTABLE for key in v]):
            keys = tuple(v)
            return Node(tuple(map(self.node, v.values())), lambda *parts: dict(zip(keys, parts, strict=True)))
        raise Untold(f"an object of the class {kind.__name__}")

    def array(self, v: Any) -> Node:
        """An array that is no Variable: of integers, for one."""
        root = v
        while is_array(root.base):
            root = root.base
        if id(root) in self.outside or id(v) in self.outside:
            self.holds_objects = True
            return Node(constant=v)
        if type(v) is not np.ndarray or root.base is not None or v.dtype.hasobject:
            raise Untold("an array of another kind")
        if v is root:
            return Node((), lambda: v.copy(order="K"))
        if not root.flags.c_contiguous:
            raise Untold("a view of an array with gaps")
        layout = v.shape, v.dtype
        place = address(v) - address(root), v.strides
        return Node((self.node(root),), lambda a: np.ndarray(*layout, a, *place))

    def variable(self, v: Variable) -> Node:
        v = live(v)
        k = self.slot_of(v)
        if k is not None:
            return Node(output=k)
        if v._trace is not None:
            raise Untold("a value of an outer transform")
        value = bottom(v)
        return Node((), lambda: value.copy()) if is_array(value) else Node(constant=value)

    def put(self, outputs: Any) -> None:
        """Leave the values of a replay in the objects."""
        made: dict = {}

        def value(node: Node) -> Any:
            if node.make is None and node.output < 0:
                return node.constant
            if id(node) not in made:
                made[id(node)] = (
                    in_order(outputs[node.output])
                    if node.make is None
                    else node.make(*map(value, node.parts))
                )
            return made[id(node)]

        for x, name, node in self.places:
            put(x, name, value(node))


def put(x: Any, name: Any, value: Any) -> None:
    """Leave a value in an attribute, or a member of a dict; without a name, all that a list or dict holds."""
    if type(x) is list:
        x[:] = value
    elif type(x) is dict:
        if name is None:
            x.clear()
        x.update(value if name is None else {name: value})
    else:
        put_state(x, {name: value})


def in_order(v: Any) -> Any:
    """Return v, an array in C order, as `_capture.restore` leaves it."""
    return v.copy() if is_array(v) and not v.flags.c_contiguous else v
