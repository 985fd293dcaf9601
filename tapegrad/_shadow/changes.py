"""What f has put into the holders that were replaced for it: items, attributes, members, names, cells.

Afterwards it is handed back (restore.py); and where a way that was left alone leads to such a holder, f may have read by it what the
holder held before (routes.py).  The same is so of a holder into which something else was put meanwhile, past its shadow."""

import itertools
import operator
import types
from collections.abc import Iterable, Iterator
from typing import Any

from .._array import is_array
from .._variable import Variable
from .classes import SPECIAL
from .containers import base_of
from .kinds import ATOMS, EMPTY, state_of

IS = operator.is_


def items(new: Any, first: list) -> bool:
    """Does a container hold other things than at first?"""
    now = base_of(new).read(new)
    return len(now) != len(first) or not all(map(IS, now, first))


def attributes(now: dict, before: dict) -> dict:
    """Those that were bound, and as `EMPTY` those that were deleted."""
    found = {name: v for name, v in now.items() if v is not before.get(name, EMPTY)}
    return found if len(now) - len(found) == len(before) else found | {name: EMPTY for name in before if name not in now}


def members(new: type, before: dict) -> dict:
    """Those of a class that were bound."""
    return {name: v for name, v in new.__dict__.items() if name not in SPECIAL and v is not before.get(name)}


def names(shadow: Any) -> list:
    """(Globals, name, value) of those that were bound; `EMPTY` for a value that was deleted."""
    found = []
    for space in shadow.spaces:
        first, values = space.first, dict.values(space)
        if len(values) == len(first) == 1:
            continue
        if len(values) == len(first) and all(map(IS, values, first.values())) and all(map(IS, dict.keys(space), first)):
            continue
        found += [(space, name, EMPTY) for name in space.dropped if not dict.__contains__(space, name)]
        found += [(space, n, v) for n, v in dict.items(space) if v is not first.get(n, EMPTY)]
    return found


def cell(new: types.CellType, first: Any) -> Any:
    """What a cell holds if it was bound, else `EMPTY`."""
    try:
        return EMPTY if new.cell_contents is first else new.cell_contents
    except ValueError:
        return EMPTY


def stored(shadow: Any) -> Iterator:
    """(where, value) of what f has put into the holders that were replaced for it."""
    for _, name, v in names(shadow):
        yield f"`{name}`", v
    for _, new, _, first in shadow.cells:
        yield "a name of an outer function", cell(new, first)
    for x, new, first in shadow.lists:
        if first is None or items(new, first):  # (None: it held numbers and strings)
            known = set(map(id, first or ()))
            yield from [(f"a {type(x).__name__}", v) for v in base_of(new).read(new) if id(v) not in known]
    for x, new, before in shadow.objects:
        yield from [(f"`{n}` of a {type(x).__name__}", v) for n, v in attributes(state_of(new), before).items()]
    for _, new, _, before in shadow.members:
        yield from [(f"`{n}` of a class", v) for n, v in members(new, before).items()]
    for _, g in shadow.bare:
        yield from [(f"`{n}` of a function", v) for n, v in g.__dict__.items()]


def altered(shadow: Any) -> dict:
    """(id -> None) holders whose contents are not what they were: f has put others into the shadow, or something else has into the
    holder itself.  (Other threads may do that too.)  Of the namespace of a module, id -> the names."""
    found: list = []
    spaces: dict = {}
    for space, name, _ in names(shadow):
        spaces.setdefault(id(space.real), set()).add(name)
    stands = shadow.seen.get

    def same(values: Iterable, first: Iterable) -> bool:
        pairs = itertools.zip_longest(values, first, fillvalue=EMPTY)
        return all([v is w or stands(id(v)) is w or not is_data(v) for v, w in pairs])

    for x, new, first in shadow.lists:
        if first is not None and (items(new, first) or not same(base_of(x).read(x), first)):
            found.append(x)
    for x, new, before in shadow.objects:
        own = state_of(x, type(new))
        if attributes(state_of(new), before) or not same(own.values(), [before.get(n, EMPTY) for n in own]):
            found.append(x)
    for f, g in shadow.bare:
        if f.__dict__ or g.__dict__:
            found.append(f)
    for c, new, _, before in shadow.members:
        own = [(c.__dict__.get(n, EMPTY), v) for n, v in before.items()]
        if members(new, before) or any([v is not w and id(v) not in shadow.seen and not hasattr(type(v), "__get__") for v, w in own]):
            found.append(c)
    for space, name, value, _ in shadow.names:
        if space.real.get(name, EMPTY) is not value:
            spaces.setdefault(id(space.real), set()).add(name)
    for c, new, value, first in shadow.cells:
        if cell(new, first) is not EMPTY or value is not EMPTY and cell(c, value) is not EMPTY:
            found.append(c)
    return spaces | {id(x): None for x in found}


def is_data(v: Any) -> bool:
    """(Of other objects that were put past a shadow, what they hold is looked at by itself.)"""
    return type(v) in ATOMS or isinstance(v, Variable) or is_array(v)
