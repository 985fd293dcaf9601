"""Sparse matrices with tracked values.

One is a vector of values and a matrix of SciPy's whose elements are places in that vector, counted from 1
in the order of its `data`. So whatever only moves elements (slices, transposes, other formats, blocks) is
SciPy's own function on the places, and the derivative is that of taking elements. If SciPy's result shares
memory with the places, the values share memory too: a write to `A.T.data` is a write to `A.data`. Elements
at one place stay apart where SciPy keeps them apart. What is not tracked is SciPy's in all."""

import functools
import math
import operator
import warnings
from typing import Any

import numpy as plain_np
import scipy.sparse as sps
import scipy.sparse.linalg

from ... import numpy as np
from ..._core.arrays import is_array, xp_of
from ..._core.primitive import is_subarray, primal_of
from ..._core.registry import late
from ..._core.scope import OPEN
from ..._core.variable import Variable, View
from ...ops.creation import as_variable
from ...ops.declare import axes_of, dtype, ndim, shape
from ..device import device_concatenator, there
from ..linear_maps import Sums, mapped
from ..namespaces import (
    Carrier,
    CarrierType,
    SciPyNamespace,
    as_float_array,
    bare,
    holds_tracked,
    lost_imaginary_part,
    on_a_device,
    plain_argument,
    refusal_text,
    unchanged,
)
from .comparisons import ElementComparisons
from .places import (
    ARRAYS,
    CHANGES,
    ELEMENTWISE,
    KEEPS_DUPLICATES,
    MOVES,
    OF_VALUES,
    STRUCTURE,
    TIDYING,
    changed_copy,
    counted,
    device_matrix,
    element_or_zero,
    explicit_elements,
    first_tracked,
    host_matrix,
    in_order_of,
    is_counted,
    is_scalar_operand,
    merging,
    minus,
    moved_behind,
    with_counted,
    with_ones,
)
from .products import SparsityPattern, by_columns, sparse_product

SPARSE = SciPyNamespace(sps, "cupyx.scipy.sparse")
LINALG = SciPyNamespace(scipy.sparse.linalg, "cupyx.scipy.sparse.linalg")
FACES: dict = {}  # SciPy's class -> ours


def is_sparse(x) -> bool:
    return isinstance(x, TrackedMatrix) or sps.issparse(x)


class TrackedMatrix(Carrier):
    """A sparse matrix of some format."""

    format: str
    _theirs: Any
    __array_priority__ = 2000
    __array_ufunc__ = None

    @classmethod
    def _of_places(cls, values, places, zeros):
        raise NotImplementedError

    def _as_sparse(self) -> "SparseMatrix":
        """The same matrix in a format that computes."""
        raise NotImplementedError

    def _changed(self, call: str, change, value=None) -> None:
        """A change by SciPy's own function, `change(A, value)`."""
        raise NotImplementedError

    def __setitem__(self, at, value):
        self._changed("A[i, j] = value", lambda A, v: A.__setitem__(plain_argument(at), v), value)

    def setdiag(self, values, k=0):
        self._changed("A.setdiag(values)", lambda A, v: A.setdiag(v, k), values)


class SparseMatrix(ElementComparisons, TrackedMatrix):
    _zeros: Any = None  # the values when eliminate_zeros() was called
    _single: Any = None  # is there one element at a place? None: not known

    def __init__(self, arg, shape=None, dtype=None, copy=False, **more):
        name = type(self)._theirs.__name__
        if isinstance(arg, TrackedMatrix):
            made_of = sparse(arg).asformat(self.format, copy)
            made_of = made_of if dtype is None else made_of.astype(dtype)
        elif not holds_tracked(arg[0] if type(arg) is tuple else arg) and not on_a_device((arg,)):
            made_of = from_scipy(
                type(self)._theirs(plain_argument(bare(arg)), plain_argument(shape), dtype, copy, **more)
            )
        else:
            made_of = self._read(name, arg, plain_argument(shape), copy)
            made_of = made_of if dtype is None else made_of.astype(dtype)
        self._values, self._places, self._seen = made_of._values, type(self)._theirs(made_of._places), None
        self._zeros = made_of._zeros

    @classmethod
    def _read(cls, name: str, arg, to, copy: bool) -> "SparseMatrix":
        """What the constructor of this format makes of tracked values."""
        if isinstance(arg, (Variable, View)) or not isinstance(arg, tuple):
            dense = as_float_array(arg)
            if ndim(dense) == 1 and issubclass(cls._theirs, sps.spmatrix):
                dense = np.reshape(dense, (1, -1))
            values, at = explicit_elements(np.reshape(dense, -1))
            places = plain_np.zeros(dense.size)
            places[at] = plain_np.arange(1, len(at) + 1)
            return of_places(values, cls._theirs(places.reshape(shape(dense))))
        data, where = as_float_array(arg[0], first_tracked(arg)), host_matrix(bare(arg[1:]))
        count = plain_np.arange(1.0, 1 + int(plain_np.prod(shape(data)))).reshape(shape(data))
        values = np.reshape(np.copy(data) if copy else data, -1)
        if len(where) == 1 and cls.format != "dia":
            made_of = of_places(values, sps.coo_array((count, tuple(where[0])), shape=to))
            return made_of.asformat(cls.format)
        return of_places(values, cls._theirs((count, *where), shape=to))

    @classmethod
    def _of(cls, x, shadow):
        return from_scipy(x, shadow)

    # --- what it is ---

    def eliminate_zeros(self):
        """Zeros stay: they have derivatives. What tells of them and would differ from SciPy's raises."""
        self._zeros = np.copy(self._values)

    def _check_zeros(self) -> None:
        """Raise where SciPy has fewer elements than `eliminate_zeros` has left here."""
        if self._zeros is not None and bool(np.any(self._zeros == 0)):
            raise refusal_text(
                "scipy.sparse: the elements of a matrix (data, indices, nnz) after eliminate_zeros() or "
                "A[i, j] = value",
                "where some of them are zero, which keep their places for their derivatives,",
                "A @ x or A.toarray(), or leave out eliminate_zeros()",
            )

    @property
    def data(self):
        self._check_zeros()
        to = self._places.data.shape
        return np.reshape(self._values, to) if len(to) > 1 else self._values

    @data.setter
    def data(self, new):
        if shape(new) != self._places.data.shape:
            raise ValueError(
                f"the data of a sparse matrix have the shape {self._places.data.shape}, not {shape(new)}"
            )
        self._values, self._zeros = np.reshape(as_float_array(new), -1), None

    shape = property(lambda self: self._places.shape)
    ndim = property(lambda self: self._places.ndim)
    nnz = property(lambda self: self._told().nnz)
    size = property(lambda self: self._told().size)
    dtype = property(lambda self: dtype(self._values))
    T = property(lambda self: self.transpose())

    def __repr__(self) -> str:
        return f"<tapegrad's {type(self)._theirs.__name__} of shape {self.shape}, {self.nnz} elements>"

    def __len__(self):
        return len(self._places)

    def __bool__(self):
        return bool(self._plain())

    __hash__ = object.__hash__

    def __iter__(self):
        return iter([self[k] for k in range(self.shape[0])])

    def _told(self):
        self._check_zeros()
        return self._places

    def _tracked(self) -> bool:
        return holds_tracked(self._values)

    def _plain(self):
        real = self._places.copy()
        data = plain_argument(self._values) if not self._tracked() else bare(self._values)
        if is_array(data) and xp_of(data) is not plain_np:
            return device_matrix(real, data)
        real.data = plain_np.reshape(data, self._places.data.shape).copy()
        return real

    @property
    def _tidy(self) -> bool:
        return getattr(self._places, "has_canonical_format", True)

    def _asked(self, run) -> tuple:
        """(values, their places, what SciPy's function `run` gives of the places). SciPy may sort the
        elements of the matrix itself, and add those at one place; then the same is done here."""
        values, places = self._values, self._places
        if self._tidy:
            return values, places, run(places)
        found = run(places := places.copy())
        if places.data.size != self._places.data.size:
            self.sum_duplicates()
        elif not is_counted(places.data):
            self._replace(values, places)
        return values, places, found

    def _moved(self, run):
        """The matrix to which `run`, SciPy's function, moves the elements, or one of its elements."""
        values, places, found = self._asked(run)
        if found is places:
            return self
        if not sps.issparse(found):
            return element_or_zero(values, found)
        kind = FACES[type(found)]
        if issubclass(kind, SparseMatrix):
            at = found.data
            if plain_np.may_share_memory(at, places.data):
                first = int(at.flat[0]) - 1 if at.size else 0
                values = values if at.size == places.data.size else values[first : first + at.size]
                return kind._of_counted(values, with_counted(found), self._zeros)
            if not is_counted(at, places.data.size):
                return of_places(values, found, self._zeros)
        return of_places(np.copy(values), found, self._zeros)

    def _merged(self) -> "SparseMatrix":
        """This matrix with one element at a place."""
        if self._single is None:
            self._single = merging(self._places) or True
        if self._single is True:
            return self
        at, sums, places = self._single
        return of_places(mapped(element_or_zero(self._values, at), map=sums), places, self._zeros)

    def sum_duplicates(self):
        one = self._merged()
        places = one._places.copy()
        if hasattr(places, "sum_duplicates"):
            places.sum_duplicates()
        self._replace(one._values, places)

    def sort_indices(self):
        places = self._places.copy()
        places.sort_indices()
        self._replace(self._values, places)

    def _replace(self, values, places) -> None:
        new = type(self)._of_places(values, places, self._zeros)
        self._values, self._places, self._seen, self._single = new._values, new._places, None, None

    def _move(self, name: str, *args, **kwargs):
        args, kwargs = plain_argument(args), plain_argument(kwargs)
        run = lambda A: getattr(A, name)(*args, **kwargs)
        return self._moved(run) if name in KEEPS_DUPLICATES[self.format] else self._single_moved(run)

    def _single_moved(self, run):
        one = self._merged()
        if one is not self:
            self._asked(run)
        return one._moved(run)

    def asformat(self, format, copy=False):
        if format is None or format == self.format:
            return self.copy() if copy else self
        return getattr(self, f"to{format}")(copy=copy)

    def _elements(self) -> tuple:
        """(Pattern, values of its elements, one at a place)."""
        if (one := self._merged()) is not self:
            return one._elements()
        if self._seen is None:
            coo = self._places.tocoo()
            rows, cols = coo.coords if coo.ndim == 2 else (plain_np.zeros(coo.nnz, int), coo.coords[0])
            to = self.shape if self.ndim == 2 else (1, *self.shape)
            self._seen = (
                SparsityPattern(plain_np.asarray(rows, int), plain_np.asarray(cols, int), to),
                coo.data,
            )
        pattern, at = self._seen
        return pattern, element_or_zero(self._values, at)

    def __getattr__(self, name: str):
        """What only moves elements is done with the places; else it is SciPy's, of plain values."""
        if name.startswith("_"):
            raise AttributeError(name)
        if name in MOVES:
            return functools.partial(self._move, name)
        if name in ELEMENTWISE:
            return lambda: self._with_sums(getattr(np, name))
        if name in CHANGES:
            return lambda *args, **kwargs: self._changed(
                f"A.{name}(...)",
                lambda A, _: getattr(A, name)(*plain_argument(args), **plain_argument(kwargs)),
            )
        if name in TIDYING:
            return lambda *args, **kwargs: None
        if name in STRUCTURE or not callable(getattr(self._places, name)):
            found = getattr(self._told(), name)
            return there(found) if on_a_device((self._values,)) else found
        if name in OF_VALUES:
            return getattr(self._plain(), name)
        if self._tracked():
            raise refusal_text(
                f"scipy.sparse.{type(self)._theirs.__name__}.{name}",
                "of tracked values",
                "A @ x, A.data or A.toarray()",
            )

        def run(*args, **kwargs):
            if holds_tracked(args, kwargs):
                raise refusal_text(
                    f"scipy.sparse.{type(self)._theirs.__name__}.{name}",
                    "of a tracked argument",
                    "A @ x, A.data or A.toarray()",
                )
            return SPARSE.faced(
                as_variable(getattr(self._plain(), name)(*plain_argument(args), **plain_argument(kwargs)))
            )

        return run

    # --- elements ---

    def toarray(self, order=None, out=None):
        dense = self._single_moved(lambda A: A.toarray())
        if out is None:
            return dense
        out[...] = dense
        return out

    def todense(self, order=None, out=None):
        return beside(self, self.toarray(order, out))

    def diagonal(self, k=0):
        return self._single_moved(lambda A: A.diagonal(k))

    def trace(self, offset=0):
        return np.sum(self.diagonal(offset))

    def __getitem__(self, at):
        return self._single_moved(lambda A: A[plain_argument(at)])

    @classmethod
    def _of_places(cls, values, places, zeros):
        at = places.data.reshape(-1)
        if not is_counted(at, shape(values)[0]):
            values, places = element_or_zero(values, at), with_counted(places)
        return cls._of_counted(values, places, zeros)

    @classmethod
    def _of_counted(cls, values, places, zeros):
        new = object.__new__(cls)
        new._values, new._places, new._seen, new._zeros, new._single = values, places, None, zeros, None
        return new

    def _as_sparse(self) -> "SparseMatrix":
        return self

    def _changed(self, call: str, change, value=None) -> None:
        """A change by SciPy's own function, which is given the places of the new values.

        The matrix of places is changed, so derivatives follow.  If nothing is tracked, SciPy's matrix is
        changed, and the new places are those of its elements."""
        if self._captured:
            raise refusal_text(
                f"scipy.sparse: {call}",
                "the matrix was made outside of the transform",
                "a copy of it, or A.data[...] = values",
            )
        if not self._tracked() and not holds_tracked(value):
            new = from_scipy(changed_copy(self._plain(), change, plain_argument(value)))
            self._replace(new._values, new._places)
        else:
            self._check_zeros()
            one = self._merged()
            more, places = values_and_places(value, shape(one._values)[0], self.dtype, call)
            values = np.concatenate(device_concatenator(one._values, more))
            self._replace(values, changed_copy(one._places, change, places))
        self._zeros = None

    def sum(self, axis=None, dtype=None, out=None):
        if not self._tidy:
            self._asked(lambda A: A.sum(axis))
        pattern, values = self._elements()
        if dtype is not None:
            values = np.astype(values, dtype)
        axes = axes_of(axis, self.ndim)
        if len(axes) == self.ndim:
            y = np.sum(values)
        else:
            lines, to = (pattern.rows, (-1, 1)) if axes[0] else (pattern.cols, (1, -1))
            at = plain_np.arange(len(lines))
            y = mapped(values, map=Sums(lines, at, self.shape[1 - axes[0]], len(lines)))
            y = beside(self, np.reshape(y, to)) if is_sparse_matrix(self) else y
        if out is not None:
            out[...] = y
        return y if out is None else out

    def mean(self, axis=None, dtype=None, out=None):
        total = self.sum(axis)
        total = total / (math.prod(self.shape) // max(math.prod(shape(total)), 1))
        total = total if dtype is None else np.astype(total, dtype)
        if out is not None:
            out[...] = total
        return total if out is None else out

    def _with(self, f) -> "SparseMatrix":
        """f of each element; f(0) = 0."""
        return type(self)._of_counted(f(self._values), self._places, None)

    def _with_sums(self, f) -> "SparseMatrix":
        """The same where SciPy first adds the elements at one place."""
        if not self._tidy:
            self.sum_duplicates()
        return self._with(f)

    def __neg__(self):
        return self._with(operator.neg)

    def __abs__(self):
        return self._with_sums(np.abs)

    def power(self, n, dtype=None):
        if not is_scalar_operand(n) or not holds_tracked(n) and not n:
            self._places.copy().power(n)  # raises what SciPy says of it
        return self._with_sums(lambda v: (v if dtype is None else np.astype(v, dtype)) ** n)

    def conj(self, copy=True):
        return self._with(np.conj) if self.dtype.kind == "c" else self.copy() if copy else self

    conjugate = conj
    real = property(lambda self: self._with(np.real))
    imag = property(lambda self: self._with(np.imag))

    def astype(self, dtype, casting="unsafe", copy=True):
        if not copy and plain_np.dtype(dtype) == self.dtype:
            return self
        return self._with(lambda v: np.astype(v, dtype))

    # --- products ---

    def _times(self, x, back: bool):
        pattern, values = self._elements()
        values, x = device_concatenator(values, as_float_array(x, values if holds_tracked(values) else x))
        if ndim(x) not in (1, 2) or shape(x)[0] != pattern.shape[0 if back else 1]:
            raise ValueError(
                f"matmul: dimension mismatch: a sparse matrix of shape {self.shape} and an array of shape "
                f"{shape(x)}"
            )
        return by_columns(sparse_product, values, x, pattern=pattern, back=back)

    def __matmul__(self, other):
        if is_scalar_operand(other):
            raise ValueError("Scalar operands are not allowed, use '*' instead")
        if is_sparse(other):
            return product(self, sparse(other))
        if is_subarray(other):
            return beside(other, self @ other._array)
        if not holds_tracked(self, other):
            return as_variable(self._plain() @ plain_argument(other))
        found = self._times(other, False)
        return found if self.ndim == 2 else found[0]

    def __rmatmul__(self, other):
        if is_sparse(other):
            return product(sparse(other), self)
        if is_subarray(other):
            return beside(other, other._array @ self)
        if not holds_tracked(self, other):
            return as_variable(plain_argument(other) @ self._plain())
        other = as_float_array(other, self._values)
        if self.ndim == 1:
            return self @ np.transpose(other)
        return (
            self._times(other, True)
            if ndim(other) == 1
            else np.transpose(self._times(np.transpose(other), True))
        )

    def dot(self, other):
        return self * other if is_scalar_operand(other) else self @ other

    def multiply(self, other):
        if is_scalar_operand(other):
            return self._with(lambda v: math.prod(device_concatenator(v, other)))
        if is_sparse(other):
            return multiply_elements(self, sparse(other))
        coo = (self if self.format in ("csr", "csc") else self.tocsr()).tocoo()
        values, other = device_concatenator(coo._values, other)
        dense = np.reshape(np.broadcast_to(as_float_array(other, values), self.shape), -1)
        return coo._with(
            lambda _: values * np.take(dense, plain_np.ravel_multi_index(coo.coords, self.shape))
        )

    def __mul__(self, other):
        whole = is_sparse_matrix(self) and not is_scalar_operand(other)
        return self @ other if whole else self.multiply(other)

    def __rmul__(self, other):
        return (
            other @ self if is_sparse_matrix(self) and not is_scalar_operand(other) else self.multiply(other)
        )

    def __truediv__(self, other):
        if is_sparse(other):
            return self.toarray() / sparse(other).toarray()
        return (
            self._with(lambda v: v / other)
            if is_scalar_operand(other)
            else self.multiply(1 / as_float_array(other))
        )

    def __add__(self, other):
        if is_scalar_operand(other) or not (is_sparse(other)):
            if is_scalar_operand(other) and not holds_tracked(other) and bare(other) == 0:
                return self
            return self.toarray() + other
        return add_matrices(self, sparse(other))

    def __radd__(self, other):
        return sparse(other) + self if is_sparse(other) else self + other

    def __imul__(self, other):
        return self._scaled(other) if is_scalar_operand(other) else self * other

    def __itruediv__(self, other):
        return self._scaled(1 / other) if is_scalar_operand(other) else self / other

    def _scaled(self, factor) -> "SparseMatrix":
        """In place, as SciPy does it: in the memory of the user's matrix too."""
        data = self.data
        if isinstance(data, Variable):
            data[...] = data * factor
            return self
        if holds_tracked(factor) or self._captured:
            return self._with(lambda v: v * factor)
        self._values = self._values * factor
        return self

    def __sub__(self, other):
        return add_matrices(self, -sparse(other), minus) if is_sparse(other) else self + (-other)

    def __rsub__(self, other):
        return sparse(other) - self if is_sparse(other) else -self + other

    def __pow__(self, n):
        return sparse_matrix_power(self, n) if is_sparse_matrix(self) else self.power(n)


def sparse_matrix_power(A, n: int):
    found = None
    for _ in range(n):
        found = A if found is None else found @ A
    return found if found is not None else from_scipy(sps.eye_array(A.shape[0], format="csr"))


def values_and_places(value, count: int, kind, call: str) -> tuple:
    """(a vector of the numbers in `value`, which has the shape of it, their places behind `count` others).

    A plain 0 has the place 0: SciPy decides whether it stays an element."""
    if not isinstance(value, (Variable, View)) and is_sparse(value):
        value = sparse(value)
        return value._values, moved_behind(value._places, count)
    if kind.kind not in "fc":
        raise refusal_text(f"scipy.sparse: {call}", f"in a matrix of dtype {kind}", "a matrix of floats")
    tracked, value = holds_tracked(value), as_float_array(value)
    if value.dtype != kind:
        if kind.kind == "f" and value.dtype.kind == "c":
            raise lost_imaginary_part(f"scipy.sparse: {call}")
        value = np.astype(value, kind)
    places = count + 1.0 + plain_np.arange(value.size).reshape(value.shape)
    if not tracked:
        places = plain_np.where(bare(value) != 0, places, 0.0)
    return np.reshape(value, -1), places if places.ndim else float(places)


def of_places(values, places, zeros=None):
    """Of a vector of values and SciPy's matrix of places. `zeros`: the values at `eliminate_zeros`."""
    return FACES[type(places)]._of_places(values, places, zeros)


def of_device(real, shadow) -> SparseMatrix:
    """One of CuPy's: its values stay on the device, where they stand is known to SciPy."""
    if real.format not in ARRAYS or real.data.dtype.kind not in "fc":
        raise refusal_text(
            f"cupyx.scipy.sparse.{type(real).__name__}",
            f"of dtype {real.data.dtype}",
            "csr, csc, coo or dia, of floats",
        )
    where = [getattr(real, name).get() for name in ARRAYS[real.format]]
    count = counted(real.data)
    given = (count, tuple(where)) if real.format == "coo" else (count, *where)
    return of_places(
        np.reshape(shadow(real.data), -1), getattr(sps, type(real).__name__)(given, shape=real.shape)
    )


def from_scipy(real, shadow=unchanged) -> SparseMatrix:
    """One of SciPy's; `shadow` gives what its memory is followed by."""
    if not isinstance(real, (sps.sparray, sps.spmatrix)):
        return of_device(real, shadow)
    if real.format in ("lil", "dok", "bsr") or real.data.dtype.kind not in "fciu":
        real = real.tocsr() if real.format in ("lil", "dok", "bsr") else real.astype(float)
        real.data.flags.writeable = shadow is unchanged  # a write would not be seen in the user's matrix
        shadow = unchanged
    places = real.copy()
    places.data = counted(real.data)
    data = shadow(real.data)
    return of_places(data if real.data.ndim == 1 else np.reshape(data, -1), places)


def sparse(x) -> SparseMatrix:
    return x._as_sparse() if isinstance(x, TrackedMatrix) else from_scipy(x)


def beside(other, dense):
    """A dense result of `other`, a `numpy.matrix` if SciPy gives one, in code that is followed."""
    if not OPEN.shadows or xp_of(primal_of(dense)) is not plain_np:
        return dense
    tracked = isinstance(other, TrackedMatrix) and is_sparse_matrix(other)
    with warnings.catch_warnings(action="ignore", category=PendingDeprecationWarning):  # as SciPy does
        matrix = tracked or isinstance(other, plain_np.matrix)
        return late.followed(plain_np.asmatrix)(dense) if matrix else dense


def is_sparse_matrix(*xs) -> bool:
    return all([issubclass(type(x)._theirs, sps.spmatrix) for x in xs])


def matrix_of_elements(values, pattern, like: SparseMatrix, to: tuple, form: str):
    """The matrix of this shape with these elements, in the format csc if `form` is that, else csr; of SciPy's
    older class where `like` is. A shape of one axis is that of the only row, and an empty one that of a
    number."""
    count = plain_np.arange(1.0, len(pattern.rows) + 1)
    form = form if form == "csc" else "csr"
    kind = getattr(sps, f"{form}_{'matrix' if is_sparse_matrix(like) else 'array'}")
    made_of = of_places(values, sps.coo_array((count, (pattern.rows, pattern.cols)), pattern.shape))
    found = FACES[kind](made_of)
    return found if len(to) == 2 else found.reshape(to) if to else found.sum()


def product(A: SparseMatrix, B: SparseMatrix):
    """The product of two: each element of A meets those of B in the row of its column."""
    to = *A.shape[:-1], *B.shape[1:]
    if A.shape[-1] != B.shape[0]:
        raise ValueError(f"matmul: dimension mismatch: sparse matrices of the shapes {A.shape} and {B.shape}")
    (p, a), (q, b) = A._elements(), (B if B.ndim == 2 else B.reshape(-1, 1))._elements()
    order = plain_np.argsort(q.rows, kind="stable")
    first = plain_np.concatenate([[0], plain_np.cumsum(plain_np.bincount(q.rows, minlength=q.shape[0]))])
    counts = plain_np.diff(first)[p.cols]
    mine = plain_np.repeat(plain_np.arange(len(p.rows)), counts)
    within = plain_np.arange(len(mine)) - plain_np.repeat(plain_np.cumsum(counts) - counts, counts)
    theirs = order[first[p.cols][mine] + within]
    pairs = SparsityPattern(p.rows[mine], q.cols[theirs], (p.shape[0], q.shape[1]))
    a, b = device_concatenator(a, b)
    found = matrix_of_elements(
        np.take(a, mine) * np.take(b, theirs), pairs, A if is_sparse_matrix(A, B) else B, to, A.format
    )
    return ordered_as(operator.matmul, A, B, found) if len(to) == 2 else found


def ordered_as(f, A: SparseMatrix, B: SparseMatrix, found: SparseMatrix) -> SparseMatrix:
    """`found`, with its elements in the order in which SciPy's function f of A and B gives them."""
    if A._tidy and B._tidy and f is not operator.matmul:
        return found
    places = in_order_of(f(with_ones(A._places), with_ones(B._places)), found._places)
    return of_places(found._values, places)


def add_matrices(A: SparseMatrix, B: SparseMatrix, order=operator.add) -> SparseMatrix:
    """The sum. `order`: the function of SciPy's that gives the elements in their order."""
    if A.shape != B.shape:
        raise ValueError("inconsistent shapes")
    (p, a), (q, b) = A._elements(), B._elements()
    rows, cols = [plain_np.concatenate(x) for x in ((p.rows, q.rows), (p.cols, q.cols))]
    found = matrix_of_elements(
        np.concatenate(device_concatenator(a, b)),
        SparsityPattern(rows, cols, p.shape),
        A if is_sparse_matrix(A, B) else B,
        A.shape,
        A.format,
    )
    return ordered_as(order, A, B, found) if A.ndim == 2 else found


def multiply_elements(A: SparseMatrix, B: SparseMatrix) -> SparseMatrix:
    if A.shape != B.shape:
        to = plain_np.broadcast_shapes(A.shape, B.shape)
        A, B = (B, A) if B.shape == to else (A, B)
        A = A if A.shape == to else FACES[sps.csr_array](np.broadcast_to(A.toarray(), to))
        return A.multiply(B.toarray())
    (p, a), (q, b) = A._elements(), B._elements()
    a, b = device_concatenator(a, b)
    _, i, j = plain_np.intersect1d(
        p.rows * p.shape[1] + p.cols, q.rows * p.shape[1] + q.cols, True, return_indices=True
    )
    found = matrix_of_elements(
        np.take(a, i) * np.take(b, j), SparsityPattern(p.rows[i], p.cols[i], p.shape), A, A.shape, A.format
    )
    return ordered_as(lambda A, B: A.multiply(B), A, B, found) if A.ndim == 2 else found


def comparison_method(name: str):
    """The values are compared as they are."""

    def run(self, other):
        other = other._plain() if isinstance(other, SparseMatrix) else bare(other)
        return getattr(self._plain(), name)(other)

    return run


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(SparseMatrix, _name, comparison_method(_name))


def declare_formats(base: type, *formats: str) -> None:
    """The classes of ours for SciPy's of these formats."""
    for name in [f"{form}_{kind}" for form in formats for kind in ("array", "matrix")]:
        real = getattr(sps, name)
        doc = {"_theirs": real, "format": name.partition("_")[0], "__doc__": real.__doc__}
        FACES[real] = CarrierType(name, (base,), doc)
        SPARSE.rule(real)(FACES[real])


declare_formats(SparseMatrix, "csr", "csc", "coo", "dia", "bsr")
