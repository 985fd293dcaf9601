"""NumPy's functions that take a callback function or an iterator.

Their results may be tracked although no argument is. So they are reimplemented with loops over
elements and rows. NumPy makes the result if nothing is tracked."""

import functools
import itertools

import numpy as np

from .._core.arrays import NUMBERS
from .._core.primitive import any_tracked, holds_variable
from .._core.scope import OPEN
from .._core.variable import Variable
from ..ops import creation, shaping
from ..ops.creation import as_variable, asarray
from ..ops.declare import followed, shape
from ..ops.indexing import views
from ..ops.layouts import in_library_layout

# NumPy 2.4 leaves a list that the function gives for numbers as it is; before it is made an array
COPIES_LISTS = np.vectorize(lambda _: [0], otypes=[object])(0).shape != ()


class vectorize(np.vectorize):
    """`numpy.vectorize`, whose function may get tracked numbers."""

    def _vectorize_call(self, func, args):
        if self.signature is not None and holds_variable(args):
            return self.on_parts(func, args)
        if not args or self.signature is not None or isinstance(func, np.ufunc) or not callable(func):
            return super()._vectorize_call(func, args)
        arrays = [a if isinstance(a, Variable) else np.asanyarray(a) for a in args]
        whole = np.broadcast_shapes(*[shape(a) for a in arrays])
        each = [views.broadcast_to(a, whole) if shape(a) != whole else a for a in arrays]
        found = [func(*[a[at] for a in each]) for at in np.ndindex(whole)]
        if not holds_variable(found):
            if not found:
                return super()._vectorize_call(func, args)
            return as_variable(
                np.vectorize(lambda n: found[n], otypes=self.otypes)(np.arange(len(found)).reshape(whole))
            )
        objects = list(self.otypes or "") == ["O"]
        if type(found[0]) is tuple and not objects:
            return tuple([laid_alike(column, whole, each) for column in zip(*found, strict=True)])
        is_number = [isinstance(v, (Variable, np.number, *NUMBERS)) and not shape(v) for v in found]
        if not objects or all(is_number):
            return laid_alike(found, whole, each)
        if COPIES_LISTS and not whole and isinstance(found[0], (list, tuple)):
            return asarray(found[0])
        cells = np.empty(len(found), object)
        for n, v in enumerate(found):
            cells[n] = v
        return cells.reshape(whole)

    def on_parts(self, func, args):
        """The call by a signature: of the last axes of each argument."""
        cores = self._in_and_out_core_dims[0]
        arrays = [asarray(a) for a in args]
        parts = [shape(a)[len(shape(a)) - len(core) :] for a, core in zip(arrays, cores, strict=True)]
        lead = np.broadcast_shapes(
            *[shape(a)[: len(shape(a)) - len(core)] for a, core in zip(arrays, cores, strict=True)]
        )
        each = [views.broadcast_to(a, lead + part) for a, part in zip(arrays, parts, strict=True)]
        found = [func(*[a[at] for a in each]) for at in np.ndindex(lead)]
        joined = lambda ys: shaping.reshape(shaping.nested_to_array(list(ys)), to=lead + shape(ys[0]))
        return (
            tuple([joined(ys) for ys in zip(*found, strict=True)])
            if isinstance(found[0], tuple)
            else joined(found)
        )


class ndenumerate(np.ndenumerate):
    """`numpy.ndenumerate`, whose array may be tracked."""

    def __init__(self, arr):
        self.iter = asarray(arr).flat


def laid_alike(found, whole, each):
    """The numbers as an array with the memory order of a ufunc's result."""
    return in_library_layout(
        shaping.reshape(shaping.nested_to_array(list(found)), to=whole), of_objects, each, {}
    )


def of_objects(*given):
    """The result of `numpy.vectorize` for such arrays, with other elements; only its memory order is
    used."""
    return np.frompyfunc(lambda *elements: 0.0, len(given), 1)(
        *[np.asanyarray(a, dtype=object) for a in given]
    )


def plain_if_untracked(f):
    """NumPy's function, followed; outside of transforms its result is plain."""
    run = followed(f, __name__)

    @functools.wraps(run)
    def of(*args, **kwargs):
        y = run(*args, **kwargs)
        return y if OPEN.depth or any_tracked((y,)) else creation.plain_of(y)

    return of


apply_along_axis, apply_over_axes = map(plain_if_untracked, (np.apply_along_axis, np.apply_over_axes))


def fromiter(iter, dtype, count=-1, *, like=None):
    found = list(iter if count < 0 else itertools.islice(iter, count))
    if not holds_variable(found):
        return as_variable(np.fromiter(found, dtype, count))
    return creation.fromiter(found, dtype, count)
