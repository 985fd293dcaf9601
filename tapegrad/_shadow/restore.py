"""Afterwards: what the function wrote, as plain data, where a plain call would have left it."""

import collections
import types
from contextvars import ContextVar
from typing import Any

import numpy as np

from .._array import is_array
from .._primitive import is_tracked, live
from .._variable import Variable, View, bottom
from ..errors import DroppedDerivativeError, RouteError
from ..ops.indexing import region
from . import changes, threads
from .classes import rest
from .containers import base_of
from .kinds import ATOMS, EMPTY, HELD, dict_of, drop_state, empty, is_user_class, put_state, state_of
from .routes import is_written, strays


def write_back(shadow: Any) -> Any:
    """Captured arrays as f left them; gives one that cannot hold what was written."""
    lost = None
    for array, v in shadow.arrays:
        if not v._version or not is_written(shadow, v):
            continue
        if v._trace is None and type(v._value) is np.ndarray:
            now = v._value
        else:
            v = live(v)
            now = bottom(v)
        if v._trace is not None:
            lost = array
        elif now is not array:
            array[...] = now
    return lost


def restore(shadow: Any, undo: bool = False) -> None:
    """`undo`: nothing is handed back.  Raises RouteError, and has handed nothing back, where that would break another thread's sweep."""
    lost = late = None
    if shadow.arrays and not undo:
        try:
            lost = threads.alone(shadow, write_back)
        except RouteError as error:
            late, undo = error, True
    astray, stored = strays(shadow) if shadow.near else ((), {})
    names = [] if undo else changes.names(shadow)
    held = shadow.lists or shadow.objects or shadow.cells or shadow.members or shadow.generics or shadow.ambients
    if held or names or astray or attributed(shadow):
        hand_back(shadow, names, astray, Back(shadow, stored, undo))
    for space in shadow.spaces:
        space.shadow = None
        space.first.clear()
        dict.clear(space)
    forget(shadow)
    if late is not None:
        raise late
    if lost is not None:
        raise DroppedDerivativeError(
            f"an inner transform wrote a value that an outer transform watches into a plain array of shape {lost.shape}, which "
            "cannot hold its derivative; make the array with numpy.zeros(n, like=x) or outside of the outer function"
        )


def attributed(shadow: Any) -> bool:
    """Has f given attributes to a function that had none?"""
    for _, g in shadow.bare:
        if g.__dict__:
            return True
    return False


def hand_back(shadow: Any, names: list, astray: Any, back: Any) -> None:
    for space, name, v in names:
        if v is EMPTY:
            space.real.pop(name, None)
        else:
            space.real[name] = back(v)
    for cell, new, value, first in shadow.cells:
        restore_cell(cell, new, value, first, back)
    for x, new, first in shadow.lists:
        restore_container(x, new, first, back)
    for c, new, _, before in () if back.undo else shadow.members:
        for name, v in changes.members(new, before).items():
            setattr(c, name, back(v))
    for x, new, before in shadow.objects:
        restore_object(x, new, before, back)
    for x in astray:
        clean(x, back)
    for ambient in shadow.ambients:
        ambient.restore(back)
    for f, g in shadow.bare:
        if g.__dict__ and not back.undo:
            f.__dict__.update({k: back(v) for k, v in g.__dict__.items()})
    for g in shadow.generics:  # `register` refers to itself
        for cell in g.register.__closure__:
            if cell.cell_contents is g.register:
                cell.cell_contents = None
    for c, new, bases, _ in shadow.members:
        rest(c, new, bases, new not in back.kept)


def forget(shadow: Any) -> None:
    """No cycle of references through the shadow is left."""
    shadow.seen = shadow.arrays = shadow.spaces = shadow.names = shadow.cells = shadow.lists = shadow.objects = shadow.classes = None
    shadow.members = shadow.bare = shadow.generics = shadow.memories = shadow.strangers = shadow.hold = shadow.left = shadow.near = None
    shadow.walked = shadow.theirs = shadow.ambients = None
    shadow.reached = shadow.sums = shadow.given = shadow.fresh = shadow.wrote = shadow.turned = shadow.stashes = ()


def clean(x, back):
    """An object that was left alone, with plain values for the Variables that f stored in it."""
    if isinstance(x, (type, types.FunctionType, types.ModuleType)):
        for name, v in [*vars(x).items()]:
            if isinstance(v, Variable):
                setattr(x, name, back(v))
    elif type(x) is types.CellType:
        x.cell_contents = back(x.cell_contents)
    elif type(x) is ContextVar:
        x.set(back(x.get()))
    else:
        back(x)
        space = dict_of(x)
        for name, v in [*space.items()]:
            if isinstance(v, Variable):
                space[name] = back(v)


def restore_cell(cell, new, value, first, back):
    """Hand a rebound nonlocal back, and leave the new cell with the plain value: a cycle through it ends here."""
    if changes.emptied(new, first) and not back.undo:
        del cell.cell_contents
        return
    now = changes.cell(new, first)
    if now is not EMPTY and not back.undo:
        value = back(now)
        cell.cell_contents = value
    if value is not EMPTY:
        new.cell_contents = value


def restore_container(x, new, first, back):
    """A shadow that leaked holds afterwards what the container holds."""
    kind = type(x)
    if first is None and (kind is list or kind is dict) and (ATOMS.issuperset(map(type, x.values() if kind is dict else x))):
        return  # it holds only numbers and strings still
    base = base_of(x)
    there = base if type(new) is kind else base_of(new)
    if first is None:
        now = there.read(new)
        if not ATOMS.issuperset(map(type, now)):
            base.put(x, [back(v) for v in now])
        return
    if not back.undo and changes.items(new, first):
        base.put(x, [back(v) for v in there.read(new)])
    if kind is dict is type(new):
        new.clear()
        new.update(x)
    elif kind is list is type(new):
        new[:] = x
    else:
        there.put(new, base.read(x))


def restore_object(x, new, before, back):
    """A shadow that leaked becomes afterwards one of the user's class, and holds what the object holds."""
    kind = type(new)
    now = state_of(new)
    if now or before:
        other = {} if back.undo else changes.attributes(now, before)
        bound = {name: back(v) for name, v in other.items() if v is not EMPTY}
        if bound:
            put_state(x, bound, kind)
        for name in other.keys() - bound.keys():
            drop_state(x, name)
        empty(new)
        put_state(new, state_of(x, kind), kind)
    if kind is not type(x):
        users_own(new, type(x))


def users_own(v: Any, kind: type) -> bool:
    """Make an instance of a shadow class one of the user's class; a few layouts (of Generic's children) do not allow it."""
    try:
        object.__setattr__(v, "__class__", kind)
    except TypeError:
        return False
    return True


HOLDING = (dict, list, set, collections.deque, np.ndarray)


class Back:
    """The way back: a shadow as what it stood for, a Variable as its plain value, a leaked object as one of the user's class."""

    __slots__ = ("kept", "memo", "original", "shadow", "stored", "undo")

    def __init__(self, shadow, stored, undo):
        self.shadow, self.stored, self.undo = shadow, stored, undo
        self.original: Any = None  # id of a shadow -> what it stands for
        self.memo: dict = {}
        self.kept: set = set()  # shadow classes that have instances outside

    def __call__(self, v: Any) -> Any:
        if type(v) in ATOMS:
            return v
        if self.original is None:
            seen = self.shadow.seen
            self.original = {id(new): old for old in self.shadow.hold if (new := seen.get(id(old))) is not None}
        old = self.original.get(id(v), EMPTY)
        if old is not EMPTY and not (old is v and isinstance(v, Variable) and id(v) in self.stored):
            return old
        if id(v) in self.shadow.outer and isinstance(v, Variable):
            return v
        if id(v) in self.memo:
            return self.memo[id(v)][1]
        new = self.plain(v)
        self.memo[id(v)] = v, new
        return new

    def plain(self, v: Any) -> Any:
        if type(v) is View:  # an alias, as in a plain call
            base = self(v._base)
            if base is v._base:
                return v
            if is_array(base) and not is_tracked(v):
                return region(base, v._path)
        if isinstance(v, Variable):
            v = live(v)
            if v._trace is not None:
                return v  # a value of an outer transform stays what it is
            b = bottom(v)
            return b.copy() if is_array(b) else b
        kind = type(v)
        if kind is tuple:
            new = tuple([self(e) for e in v])
            return v if all(a is b for a, b in zip(v, new, strict=True)) else new
        if kind in self.shadow.classes and not users_own(v, self.shadow.classes[kind]):
            self.kept.add(kind)
        self.memo[id(v)] = v, v  # before what it holds: that may lead back to it
        if isinstance(v, HOLDING) and (kind is not np.ndarray or v.dtype.kind == "O"):
            base = base_of(v)
            now = base.read(v)
            new = [self(e) for e in now]
            if any(a is not b for a, b in zip(now, new, strict=True)):
                base.put(v, new)
        if is_user_class(kind) or kind in HELD:
            now = state_of(v)
            bound = {name: new for name, e in now.items() if (new := self(e)) is not e}
            if bound:
                put_state(v, bound)
        return v
