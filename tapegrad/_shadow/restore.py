"""Afterwards: what the function wrote, as plain data, where a plain call would have left it."""

from typing import Any

from .._array import is_array
from .._primitive import live
from .._variable import Variable, bottom
from ..errors import DroppedDerivativeError, RouteError
from . import threads
from .classes import POOL, SPECIAL
from .functions import Globals
from .kinds import ATOMS, EMPTY, attribute_names
from .routes import is_written


def write_back(shadow: Any) -> Any:
    """Captured arrays as f left them; gives one that cannot hold what was written."""
    lost = None
    for array, v in shadow.arrays:
        if not is_written(shadow, v):
            continue
        v = live(v)
        now = bottom(v)
        if v._trace is not None:
            lost = array
        elif now is not array:
            array[...] = now
    return lost


def restore(shadow: Any) -> None:
    """Raises RouteError, and has written no array, where that would break another thread's sweep."""
    lost = late = None
    if len(threads.THREADS) < 2:
        lost = write_back(shadow)
    else:
        try:
            lost = threads.alone(shadow, write_back)
        except RouteError as error:
            late = error
    back = Back(shadow)
    for space, name, value, _ in shadow.names:
        if name in space and space[name] is not shadow.seen.get(id(value), value):
            space.real[name] = back(space[name])
    known = {(id(s), n) for s, n, _, _ in shadow.names}
    for space in [s for s in shadow.seen.values() if type(s) is Globals]:
        for name, value in list(dict.items(space)):
            if (id(space), name) not in known and name != "__builtins__":
                space.real[name] = back(value)  # a global made by the function
    for cell, new, value, first in shadow.cells:
        restore_cell(cell, new, value, first, back)
    for owner, space, name, _value, first in shadow.attributes:
        now = space.get(name, first) if space is not None else first
        if now is not first:
            setattr(owner, name, back(now))
    for x, new, first in shadow.lists:
        restore_container(x, new, first, back)
    for x, new, before in shadow.objects:
        restore_object(x, new, before, back)
    for new, c in shadow.classes.items():
        for name in [n for n in new.__dict__ if n in c.__dict__ and n not in SPECIAL]:
            delattr(new, name)
        POOL[c].append(new)
    for space in [s for s in shadow.seen.values() if type(s) is Globals]:
        space.shadow = None
        space.clear()
    shadow.seen = shadow.arrays = shadow.names = shadow.cells = shadow.attributes = None
    shadow.lists = shadow.objects = shadow.classes = shadow.hold = shadow.left = None
    shadow.reached = shadow.sums = shadow.given = shadow.wrote = shadow.turned = shadow.stashes = ()
    if late is not None:
        raise late
    if lost is not None:
        raise DroppedDerivativeError(
            f"an inner transform wrote a value that an outer transform watches into a plain array of shape {lost.shape}, which "
            "cannot hold its derivative; make the array with numpy.zeros(n, like=x) or outside of the outer function"
        )


def restore_cell(cell, new, value, first, back):
    """Hand a rebound nonlocal back, and leave the new cell with the plain value: a cycle through it ends here."""
    try:
        now = new.cell_contents
    except ValueError:
        return
    if now is not first:
        value = back(now)
        cell.cell_contents = value
    if value is not EMPTY:
        new.cell_contents = value


def restore_container(x, new, first, back):
    if first is None:  # it held only numbers and strings, and was not replaced
        if isinstance(x, list):
            if not ATOMS.issuperset(map(type, x)):
                x[:] = [back(v) for v in x]
        elif not ATOMS.issuperset(map(type, x.values())):
            x.update({k: back(v) for k, v in x.items()})
        return
    if isinstance(x, list):
        if len(first) != len(new) or any(a is not b for a, b in zip(first, new, strict=True)):
            x[:] = [back(v) for v in new]
        new.clear()
    else:
        if first.keys() != new.keys() or any(first[k] is not new[k] for k in new):
            changed = {k: back(v) for k, v in new.items()}
            x.clear()
            x.update(changed)
        new.clear()


def restore_object(x, new, before, back):
    for name in attribute_names(new):
        try:
            now = object.__getattribute__(new, name)
        except AttributeError:
            continue
        if name not in before or now is not before[name]:
            object.__setattr__(x, name, back(now))
    for name in before:
        if not hasattr(new, name) and hasattr(x, name):
            object.__delattr__(x, name)
    if hasattr(new, "__dict__"):
        new.__dict__.clear()


class Back:
    """The way back: a shadow as what it stood for, a Variable as its plain value, a leaked object as one of the user's class."""

    def __init__(self, shadow):
        self.shadow = shadow
        self.original = {id(new): old for old in shadow.hold if (new := shadow.seen.get(id(old))) is not None}
        self.memo: dict = {}

    def __call__(self, v: Any) -> Any:
        if type(v) in ATOMS:
            return v
        if id(v) in self.original:
            return self.original[id(v)]
        if id(v) in self.memo:
            return self.memo[id(v)][1]
        new = self.plain(v)
        self.memo[id(v)] = v, new
        return new

    def plain(self, v: Any) -> Any:
        if isinstance(v, Variable):
            v = live(v)
            if v._trace is not None:
                return v  # a value of an outer transform stays what it is
            b = bottom(v)
            return b.copy() if is_array(b) else b
        if type(v) is list:
            v[:] = [self(e) for e in v]
        elif type(v) is tuple:
            new = tuple([self(e) for e in v])
            return v if all(a is b for a, b in zip(v, new, strict=True)) else new
        elif type(v) is dict:
            v.update({k: self(e) for k, e in v.items()})
        elif type(v) in self.shadow.classes:
            v.__class__ = self.shadow.classes[type(v)]
            self.memo[id(v)] = v, v
            for name in attribute_names(v):
                if hasattr(v, name):
                    object.__setattr__(v, name, self(object.__getattribute__(v, name)))
        return v
