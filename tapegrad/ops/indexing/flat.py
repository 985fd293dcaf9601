"""x.flat: the elements of x in C order, as an iterator, by position, or as an array."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.foreign import argument
from ..._core.trees import nested
from ..._core.variable import Elements
from ..declare import shape
from . import overlaps, views
from .regions import ALL
from .views import index
from .writes import write_value


class FlatIterator(Elements):
    """An iterator over x. Its elements can also be read and written by their positions in C order."""

    __slots__ = ("base", "place", "_x")

    def __init__(self, x, place: list | None = None):
        """`place`: [the number of elements yielded], which several iterators may share."""
        self.base, self.place = x, [0] if place is None else place
        self._x = x if shape(x) else views.reshape(x, (1,))  # (a 0-d array as a view with one axis)

    @property
    def index(self) -> int:
        return self.place[0]

    def plain_elements(self):
        return self.copy()

    def copy(self):
        return self.base.flatten()

    @property
    def coords(self) -> tuple:
        n, found = self.index, []
        for size in shape(self.base)[:0:-1]:
            n, rest = divmod(n, size or 1)  # (NumPy divides also for an empty array)
            found.append(rest)
        return (n, *found[::-1]) if shape(self.base) else ()

    def _places(self, at) -> tuple:
        return np.unravel_index(np.arange(len(self))[index(at)], self._x.shape)

    def __getitem__(self, at):
        return self._x[self._places(at)]

    def __setitem__(self, at, y) -> None:
        y = views.ravel(y.base) if type(y) is FlatIterator else y
        if overlaps.lies_in(self._x, y):
            at = index(at)
            return write_value(
                self._x, overlaps.left_in(self._x, [y], lambda x, ys: x.flat.__setitem__(at, *ys)), ALL
            )
        places = self._places(at)
        count = np.size(places[0]) if places else 1
        y = views.ravel(argument(y))
        write_value(self._x, y[np.arange(count) % y.size].reshape(np.shape(places[0])), places)

    __hash__: Any = None
    __eq__, __ne__ = [
        lambda self, y, f=f: f(self.copy(), flat_elements(y)) for f in (operator.eq, operator.ne)
    ]
    __lt__, __le__ = [
        lambda self, y, f=f: f(self.copy(), flat_elements(y)) for f in (operator.lt, operator.le)
    ]
    __gt__, __ge__ = [
        lambda self, y, f=f: f(self.copy(), flat_elements(y)) for f in (operator.gt, operator.ge)
    ]

    def __len__(self) -> int:
        return self._x.size

    def __iter__(self) -> "FlatIterator":
        return self

    def __next__(self):
        if self.index >= len(self):
            raise StopIteration
        self.place[0] += 1
        return self[self.index - 1]

    def __array__(self, *args, **kwargs):
        return np.asarray(self.copy(), *args, **kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args, **kwargs):
        return getattr(ufunc, method)(*[argument(a) for a in args], **kwargs)

    def __array_function__(self, f: Callable, types, args: tuple, kwargs: dict):
        return f(*flat_elements(args), **flat_elements(kwargs))


flat_elements: Callable = nested(argument)


def assign_flat(x, y) -> None:
    """Assign x.flat = y."""
    if overlaps.lies_in(x, y):
        write_value(x, overlaps.left_in(x, [y], lambda x, ys: setattr(x, "flat", *ys)), Ellipsis)
    else:
        FlatIterator(x)[ALL] = y
