"""Sparse matrices that are filled element by element: lil and dok."""

import bisect
from typing import cast

import numpy as plain_np
import scipy.sparse as sps

from ... import numpy as np
from ...ops.creation import as_variable
from ...ops.declare import dtype, shape
from ..device import device_concatenator
from ..namespaces import holds_tracked, plain_argument, refusal_text
from .matrices import (
    FACES,
    SPARSE,
    SparseMatrix,
    TrackedMatrix,
    declare_formats,
    from_scipy,
    of_places,
    values_and_places,
)


class EditableMatrix(TrackedMatrix):
    """A matrix in a form that is filled element by element.  Any other form of it is a SparseMatrix.

    `_real` is SciPy's matrix of plain numbers until something tracked is stored.  From then on it is that of
    places in the vectors `_pieces`, which begin at `_starts`."""

    _pieces: list | None = None
    _starts: list

    def __init__(self, arg, shape=None, dtype=None, copy=False, **more):
        if holds_tracked(arg):
            array = "matrix" if issubclass(type(self)._theirs, sps.spmatrix) else "array"
            made = FACES[getattr(sps, f"csr_{array}")](arg, shape, dtype, copy, **more)
            made = made.asformat(self.format)
            self._real, self._pieces, self._starts = made._real, made._pieces, made._starts
        else:
            self._real = type(self)._theirs(plain_argument(arg), plain_argument(shape), dtype, copy, **more)

    @classmethod
    def _of_places(cls, values, places, zeros):
        new = object.__new__(cls)
        new._real, new._pieces, new._starts = places, [values], [0]
        return new

    _of_counted = _of_places

    @classmethod
    def _of(cls, x, shadow):
        new = object.__new__(cls)
        new._real = x
        return new

    def _tracked(self) -> bool:
        return self._pieces is not None and holds_tracked(self._pieces)

    def _plain(self):
        return self._real if self._pieces is None else type(self)._theirs(self._as_sparse()._plain())

    def _as_sparse(self) -> SparseMatrix:
        if self._pieces is None:
            return from_scipy(self._real)
        values = self._joined()
        return of_places(values, self._real.tocsr(), values)  # SciPy would not keep an element that is 0

    def _joined(self):
        pieces = cast(list, self._pieces)
        if len(pieces) > 1:
            self._pieces, self._starts = pieces, _ = [np.concatenate(device_concatenator(*pieces))], [0]
        return pieces[0]

    def _changed(self, call: str, change, value=None) -> None:
        if self._pieces is None and not holds_tracked(value):
            change(self._real, plain_argument(value))
            return
        if self._captured:
            raise refusal_text(
                f"scipy.sparse: {call}", "the matrix was made outside of the transform", "a copy of it"
            )
        if self._pieces is None:
            made = of_places(*places_of_plain(self._real))
            self._real, self._pieces, self._starts = made._real, made._pieces, made._starts
        pieces = cast(list, self._pieces)
        count = self._starts[-1] + shape(pieces[-1])[0]
        more, places = values_and_places(value, count, dtype(pieces[0]), call)
        change(self._real, places)
        pieces.append(more)
        self._starts.append(count)

    def copy(self):
        if self._pieces is None:
            return SPARSE.faced(self._real.copy())
        return of_places(self._joined(), self._real.copy())

    def __getitem__(self, at):
        found = self._real[plain_argument(at)]
        if self._pieces is None:
            return SPARSE.faced(as_variable(found))
        if sps.issparse(found):
            return of_places(self._joined(), found)
        if not found:
            return 0 * self._pieces[0][:1].sum()
        k = bisect.bisect_right(self._starts, int(found) - 1) - 1
        return self._pieces[k][int(found) - 1 - self._starts[k]]

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        if self._pieces is not None:
            return getattr(self._as_sparse(), name)
        found = getattr(self._real, name)
        if not callable(found):
            return SPARSE.faced(found)

        def run(*args, **kwargs):
            if holds_tracked(args, kwargs):
                return getattr(from_scipy(self._real), name)(*args, **kwargs)
            return SPARSE.faced(as_variable(found(*plain_argument(args), **plain_argument(kwargs))))

        return run


def places_of_plain(real) -> tuple:
    """(the values of SciPy's matrix, one of the same form of their places)"""
    coo = real.tocoo()
    values = coo.data
    coo.data = plain_np.arange(1.0, 1 + values.size)
    return values, coo.asformat(real.format)


for _name in (
    "__matmul__", "__rmatmul__", "__mul__", "__rmul__", "__truediv__", "__add__", "__radd__", "__sub__",
    "__rsub__", "__neg__", "__abs__",
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__pow__", "__len__", "__iter__",
):  # fmt: skip
    setattr(EditableMatrix, _name, lambda self, *args, name=_name: getattr(self._as_sparse(), name)(*args))

declare_formats(EditableMatrix, "lil", "dok")
