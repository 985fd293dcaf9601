"""Arrays that share memory: a test for it, and the result of a write whose source overlaps its target."""

from collections.abc import Callable

import numpy as np

from ..._core.arrays import room_like
from ..._core.errors import AliasError
from ..._core.primitive import layout_of, path_to_owner
from ..._core.scope import OPEN
from ..._core.variable import Variable
from .. import shaping as s
from ..declare import implements
from .hidden_regions import HiddenRegion
from .regions import PARTS, region
from .views import array_like, layout_source, ravel


def memory_of(x) -> tuple:
    """(an array with the memory of x, the handle that owns the memory). The user's memory has no handle:
    an argument or a captured array counts as the array that it stands for, a list as an array of its own."""
    if not isinstance(x, Variable):
        return (np.empty(0) if isinstance(x, (list, tuple)) else x), None
    base, path = path_to_owner(x)
    if isinstance(base._trace, HiddenRegion):
        return memory_of(base._trace.array)  # in some sample
    for shadow in OPEN.shadows:
        for array, v in (*shadow.given, *shadow.arrays):
            if v is base:
                return region(array, path), None
    return layout_source(x), base


def answered(asked: Callable, a, b, max_work) -> bool:
    (x, p), (y, q) = memory_of(a), memory_of(b)
    if p is not q and isinstance(a, Variable) and isinstance(b, Variable):
        return False  # handles over the same array share it only until a write
    return asked(x, y, max_work) or (
        p is not q and asked(layout_source(a) if isinstance(a, Variable) else a, y, max_work)
    )


@implements(np.shares_memory, layout="own")
def shares_memory(a, b, max_work=None):
    return answered(np.shares_memory, a, b, max_work)


@implements(np.may_share_memory, layout="own")
def may_share_memory(a, b, max_work=0):
    return answered(np.may_share_memory, a, b, max_work)


def lies_in(x, y) -> bool:
    """May y share memory with x, the target of a write?"""
    if (
        not (isinstance(x, Variable) and isinstance(y, Variable))
        or path_to_owner(x)[0] is not path_to_owner(y)[0]
    ):
        return False
    x, y = layout_source(x), layout_source(y)
    return isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and np.may_share_memory(x, y)


def left_in(x: Variable, sources: list, write: Callable):
    """The content of x after `write(x, sources)`, if sources share memory with x.

    NumPy buffers most such writes, and does others element by element in an order of its own. So NumPy
    performs this write on arrays with the same layout that hold element numbers."""
    base, path = path_to_owner(x)
    here = layout_of(base)
    steps, pool, size = list(path), [ravel(s.copy(base, "C"))], here.size
    numbers = room_like(here)
    numbers[...] = np.arange(size).reshape(here.shape)
    given = []
    for y in sources:
        owner, found = path_to_owner(y) if isinstance(y, Variable) else (None, ())
        if owner is base:
            steps += found
            given.append(region(numbers, found))
        else:
            y = array_like(y)
            n = layout_of(y).size
            given.append(np.arange(size, size + n).reshape(layout_of(y).shape).astype(here.dtype))
            pool.append(ravel(y))
            size += n
    if not PARTS.isdisjoint([kind for kind, _ in steps]) or size > 2 ** np.finfo(here.dtype).nmant:
        raise AliasError(
            "x is written with elements of x itself, in an order that depends on how NumPy does it: write a "
            "copy, source.copy()"
        )
    target = region(numbers, path)
    write(target, given)
    return (pool[0] if len(pool) == 1 else s.concatenate(*pool))[target.real.astype(np.intp)]
