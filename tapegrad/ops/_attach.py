"""Give Variable its operators, methods, protocols, views and in-place writes.  The only file that changes the class.

Reading order: operators; views; writes; attributes and methods; conversions, which raise on a tracked Variable; the protocols
by which NumPy and CuPy functions reach us."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .._array import is_array, shares_memory, xp_of
from .._primitive import ASSIGN, READ, bind, is_tracked, plain, view, write
from .._variable import Variable, View
from ..errors import ArgumentError, DroppedDerivativeError, ShapeError
from . import _protocols
from . import elementwise as e
from . import indexing as ix
from . import creation as creation
from . import shaping as s
from ._define import dtype as dtype_of
from ._define import shape
from ._protocols import call, store

V = Variable


# --- operators ---


def _inplace(op: Callable) -> Callable:
    def method(a, b):
        if not is_array(plain(a)):  # a number: += binds the name anew
            return op(a, b)
        write_value(a, op(a, b), Ellipsis)
        return a

    return method


def _reflected(op: Callable) -> Callable:
    def method(a, b):
        return op(b, a)

    return method


OPERATORS = {"add": e.add, "sub": e.subtract, "mul": e.multiply, "truediv": e.divide}
for _name, _op in OPERATORS.items():
    setattr(V, f"__{_name}__", _op)
    setattr(V, f"__r{_name}__", _reflected(_op))
    setattr(V, f"__i{_name}__", _inplace(_op))
V.__neg__ = e.negative
V.__pos__ = s.copy


def _comparison(op: Callable) -> Callable:
    def method(a, b):
        if isinstance(b, (list, tuple)):
            b = s.stacked(b)
        return op(plain(a), plain(b))

    return method


for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(V, f"__{_name}__", _comparison(getattr(operator, _name)))
V.__hash__ = object.__hash__


# --- views ---


def _getitem(x, at):
    at = index(at)
    if not ix.basic(at):
        base, path = (x._base, x._path) if type(x) is View else (x, ())
        _start(base)
        return bind(READ, (base,), {"path": path, "at": at, "copy": False})
    r = shown(x)[at]  # raises as NumPy does; tells whether this is an element or a view
    if is_array(r):
        return view(x, ("at", at))
    base, path = (x._base, x._path) if type(x) is View else (x, ())
    return bind(READ, (base,), {"path": path, "at": at, "copy": False})


def _start(x):
    if not hasattr(x, "_version"):
        x._version = 0


def shown(x: Variable) -> Any:
    """The plain array under x, for its shape and layout: a view is not read."""
    if type(x) is View:
        return ix.region(plain(x._base), x._path)
    return plain(x)


def index(at: Any) -> Any:
    """An index with Variables in it replaced by their values (an index has derivative zero), and arrays by copies."""
    if isinstance(at, tuple):
        return tuple([index(i) for i in at])
    if isinstance(at, Variable):
        at = plain(at)
    if isinstance(at, np.ndarray):
        return at.copy()
    return list(at) if isinstance(at, list) else at


def _iter(x):
    if not shape(x):
        raise TypeError("iteration over a 0-d array")
    return iter([x[i] for i in range(shape(x)[0])])


def reshape(x, *to, order="C"):
    """A view where NumPy gives one, else a reshaped copy."""
    to = to[0] if len(to) == 1 else to
    to = (int(to),) if isinstance(to, (int, np.integer)) else tuple([int(n) for n in to])
    if order != "C":
        if order == "F":
            return transpose(reshape(transpose(x), *to[::-1]))
        raise ArgumentError(f"reshape: order={order!r} is not supported; use 'C' or 'F'")
    here = shown(x)
    there = here.reshape(to)
    if not is_array(here):
        return s.reshape(x, to=there.shape)
    if shares_memory(here, there) or here.size == 0:
        return view(x, ("reshape", there.shape))
    return s.reshape(s.copy(x), to=there.shape)


def transpose(x, *axes):
    axes = axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes or None
    n = len(shape(x))
    if n < 2:
        shown(x).transpose(axes) if axes else None
        return view(x, ("at", Ellipsis)) if n else x
    full = tuple(range(n))[::-1] if axes is None else tuple([int(a) % n for a in axes])
    shown(x).transpose(full)
    return view(x, ("transpose", full))


V.__getitem__, V.__iter__ = _getitem, _iter
V.reshape = reshape
V.transpose = transpose
V.T = property(lambda x: transpose(x))


# --- writes ---


def _setitem(x, at, y):
    write_value(x, y, index(at))


def write_value(x: Variable, y: Any, at: Any) -> None:
    """x[at] = y with NumPy's meaning, for values of any level."""
    here = shown(x)
    if not is_array(here):
        raise TypeError("a number cannot be written in place")
    if not here.flags.writeable if xp_of(here) is np else False:
        raise ValueError("assignment destination is read-only")
    if isinstance(y, (list, tuple)):
        y = s.stacked(y)
    region = here[at]
    y_plain = shown(y) if isinstance(y, Variable) else y
    try:
        fits = np.broadcast_shapes(np.shape(y_plain), np.shape(region)) == np.shape(region)
    except ValueError:
        fits = False
    if not fits:
        extra = np.ndim(y_plain) - np.ndim(region)
        if extra > 0 and np.shape(y_plain)[:extra] == (1,) * extra:
            y = s.reshape(y, to=np.shape(y_plain)[extra:]) if isinstance(y, Variable) else np.reshape(y, np.shape(y_plain)[extra:])
            return write_value(x, y, at)
        raise ShapeError(f"x[...] = y: y has shape {np.shape(y_plain)}, the region written has shape {np.shape(region)}")
    if isinstance(y, Variable) and dtype_of(y).kind == "c" and here.dtype.kind != "c" and is_tracked(y):
        raise DroppedDerivativeError("x[...] = y: y is complex and x is real; write y.real, or make x complex")
    if here.dtype.kind not in "fc" and is_tracked(y):
        raise DroppedDerivativeError(
            f"x[...] = y: x has dtype {here.dtype}, so the derivative of y would be lost; make x a float array, "
            "or write tapegrad.value(y)"
        )
    write(ASSIGN, x, y, at)
    return None


V.__setitem__ = _setitem
V.fill = lambda x, y: write_value(x, y, Ellipsis)


# --- attributes and methods ---

V.shape = property(lambda x: shown(x).shape if type(x) is View else shape(x))
V.dtype = property(dtype_of)
V.ndim = property(lambda x: len(x.shape))
V.size = property(lambda x: int(np.prod(x.shape)))
V.itemsize = property(lambda x: dtype_of(x).itemsize)
V.nbytes = property(lambda x: x.size * x.itemsize)
V.strides = property(lambda x: shown(x).strides)
V.flags = property(lambda x: shown(x).flags)
V.__len__ = lambda x: len(shown(x))
V.copy = lambda x, order="C": s.copy(x)
V.__copy__ = lambda x: s.copy(x)
V.__deepcopy__ = lambda x, memo: s.copy(x)


# --- conversions ---


def _dropping(name: str, run: Callable) -> Callable:
    def method(x, *args, **kwargs):
        if is_tracked(x):
            raise DroppedDerivativeError(
                f"{name} of a tracked Variable would drop its derivative in silence; keep the array operation "
                f"(numpy functions work on it), or write tapegrad.value(x) where the plain number is wanted"
            )
        return run(plain(x), *args, **kwargs)

    return method


V.__float__ = _dropping("float(x) or math.f(x), or storing it in a plain array (numpy.zeros(n, like=x) makes one that takes it),", float)
V.__complex__ = _dropping("complex(x)", complex)
V.item = _dropping("x.item()", lambda a, *i: a.item(*i))
V.tolist = _dropping("x.tolist()", lambda a: a.tolist())
V.tobytes = _dropping("x.tobytes()", lambda a, *i: a.tobytes(*i))
V.__reduce_ex__ = _dropping("pickling", lambda a, protocol: a.__reduce_ex__(protocol))


def _array(x, dtype=None, copy=None):
    if is_tracked(x):
        raise DroppedDerivativeError(
            "numpy.asarray(x), or storing x in a plain array, would drop the derivative of a tracked Variable in silence; "
            "use tapegrad.numpy.asarray, make the array with numpy.zeros(n, like=x), or write tapegrad.value(x)"
        )
    a = plain(x)
    if xp_of(a) is not np:
        raise TypeError("implicit conversion of a CuPy array to NumPy; use tapegrad.value(x).get()")
    return np.array(a, dtype=dtype, copy=copy) if copy is not None else np.asarray(a, dtype=dtype)


V.__array__ = _array
V.__bool__ = lambda x: bool(plain(x))
V.__int__ = lambda x: int(plain(x))
V.__index__ = lambda x: operator.index(plain(x))
V.__repr__ = lambda x: f"Variable({plain(x)!r})"
V.__str__ = lambda x: str(plain(x))
V.__format__ = lambda x, spec: format(plain(x)[()] if isinstance(plain(x), np.ndarray) and not shape(x) else plain(x), spec)


# --- protocols ---

_protocols.views.write_value, _protocols.views.index = write_value, index
V.__array_ufunc__ = _protocols.array_ufunc
V.__array_function__ = _protocols.array_function
