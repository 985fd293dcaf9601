"""Subarrays: what stands for an array of a subclass of `np.ndarray` in code that is followed.

A subarray holds the array, which may be tracked, and the attributes of the instance. It is no array: C code
that would read its memory raises. Its class has the members of the subclass, and `TrackedSubarray` at the
place of `np.ndarray` (_capture/array_subclasses.py makes it). So Python code of the subclass runs over a
tracked array.

Which results are of the subclass is not listed here. NumPy is asked, with an array of `Probe`."""

import operator
import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from .._core.arrays import is_array
from .._core.errors import ArgumentError, DroppedDerivativeError
from .._core.lent_memory import place_of_data
from .._core.primitive import holds_variable, is_subarray, is_tracked, layout_of, values_of
from .._core.registry import late
from .._core.trees import nested
from .._core.variable import HANDLES, PlainSubarray, Subarray, Variable, variable
from ..ops.protocols import call
from ..ops.variable_methods import COMPARISONS, OF_BITS, OPERATORS, calls_method
from . import structured


class Probe(np.ndarray):
    """An array of a subclass that changes nothing."""

    __array_priority__ = 0.0  # or that of the class for which it stands

    def __array_finalize__(self, template):
        self.__array_priority__ = getattr(template, "__array_priority__", 0.0)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        ASKED.names.add("__array_ufunc__")
        new = array.view(WrappedProbe)
        new.context = context
        return new


ASKED = threading.local()  # `names`: the methods that NumPy has called of probes


def recorded(name: str) -> Callable:
    f = getattr(np.ndarray, name)

    def method(x, *args, **kwargs):
        ASKED.names.add(name)
        return f(x, *args, **kwargs)

    return method


# NumPy asks an array of these as C code does
OF_EVERY_ARRAY = frozenset(
    "__new__ __getattribute__ __class_getitem__ __reduce__ __reduce_ex__ __setstate__ __dlpack__ "
    "__dlpack_device__ __array_namespace__ __buffer__ __repr__ __str__ __hash__".split()
)
for _name, _member in vars(np.ndarray).items():
    if callable(_member) and not _name.startswith("__array_") and _name not in OF_EVERY_ARRAY:
        setattr(Probe, _name, recorded(_name))


class WrappedProbe(Probe):
    """The result of a function that asks its argument to wrap what it gives. `context`: the ufunc and its
    operands, if it was a call of one."""

    context: Any = None


@nested
def array_of(x):
    """The arrays of the subarrays in x."""
    return x._array if is_subarray(x) else x


@nested
def probe_of(x):
    """x with plain arrays, for a call of NumPy's."""
    if not is_subarray(x):
        layout = layout_of(x)
        hidden = layout is not x and is_array(layout) and layout.dtype.kind in "iu"
        return np.zeros(layout.shape, layout.dtype) if hidden else layout  # (indices: 0 is in range)
    probe = np.asarray(layout_of(x._array)).view(Probe)
    probe.__array_priority__ = x.__array_priority__
    return probe


def subarray_over(kind: type, x, template):
    """A new subarray of a class for an array, which is a view or copy of `template`."""
    new = object.__new__(late.subarray_class(kind))
    object.__setattr__(new, "_array", x if is_array(layout_of(x)) else call(np.reshape, (x, ()), {}))
    new.__array_finalize__(template)
    return new


late.subarray_over = subarray_over


def own_method(x, name: str) -> bool:
    """Does the class of the subarray define this method itself?"""
    return next(c for c in type.__dict__["__mro__"].__get__(type(x)) if name in vars_of(c)) not in BASES


vars_of = type.__dict__["__dict__"].__get__


def as_numpy_gives(x, f, y, args: tuple, kwargs: dict):
    """The result y of f(*args, **kwargs), of the class of the subarray x where NumPy's is of the subclass."""
    if type(y) not in HANDLES and not is_array(y) and not isinstance(y, (tuple, list)):
        return y
    ASKED.names = set()
    with np.errstate(all="ignore"):
        probes = probe_of(args)
        like = f(*probes, **probe_of(kwargs))
    if isinstance(like, WrappedProbe) and like.context is not None:
        known = {id(p): v for p, v in zip(probes, args, strict=True)}
        ufunc, operands, _ = like.context
        if all([id(v) in known or not isinstance(v, Probe) for v in operands]):
            return ufunc(*[known.get(id(v), v) for v in operands])
    if written_in_python(f) and any([own_method(x, name) for name in ASKED.names]):
        return late.followed(f._implementation)(*args, **kwargs)
    return of_class(x, y, like)


def of_class(x, y, like):
    if isinstance(like, (tuple, list)):
        parts = [of_class(x, v, w) for v, w in zip(y, like, strict=True)]
        return type(y)(*parts) if hasattr(y, "_fields") else type(y)(parts)
    if isinstance(like, WrappedProbe):
        return wrapped(x, y, None)
    return subarray_over(type(x), y, x) if isinstance(like, Probe) else y


def wrapped(x, y, context):
    """A result of a ufunc, as the class of x gives it."""
    number = not np.ndim(layout_of(y))
    y = call(np.reshape, (y, ()), {}) if number else y
    try:
        return x.__array_wrap__(y, context, number)
    except TypeError:  # of an older form, which NumPy calls without the last argument too
        return x.__array_wrap__(y, context)


def method_of(name: str) -> Callable:
    f = getattr(np.ndarray, name)

    def method(x, *args, **kwargs):
        if name in ("var", "std") and own_method(x, "__array_ufunc__"):
            raise ArgumentError(
                f"x.{name}() of {x._tg_of.__name__}, whose ufuncs are its own, is not supported; write it "
                "with x.mean()"
            )
        y = getattr(x._array, name)(*array_of(args), **array_of(kwargs))
        out = kwargs.get("out")
        return as_numpy_gives(x, f, y, (x, *args), kwargs) if out is None else out

    method.__name__ = name
    return method


def attribute_of(name: str) -> property:
    f = operator.attrgetter(name)

    def put(x, y):
        setattr(x._array, name, array_of(y))

    return property(lambda x: as_numpy_gives(x, f, f(x._array), (x,), {}), put)


def reduction_of(ufunc: np.ufunc, method: str) -> Callable:
    f = getattr(ufunc, method)
    return lambda x, axis=None, dtype=None, out=None, **rest: f(x, axis, dtype, out, **rest)


def by_methods(f) -> bool:
    """Does NumPy's Python function call the method of its argument?"""
    return f in MEANS or (
        written_in_python(f) and not DELEGATES.isdisjoint(f._implementation.__code__.co_names)
    )


def written_in_python(f) -> bool:
    return hasattr(getattr(f, "_implementation", None), "__code__")


MEANS = (np.mean, np.var, np.std)
DELEGATES = frozenset(("_wrapfunc", "_wrapreduction", "_wrapreduction_any_all"))


def call_with_subarrays(f, on_variables: Callable, args: tuple, kwargs: dict):
    """f(*args, **kwargs), which NumPy dispatches by the protocols of arrays if it can."""
    if holds_variable((args, kwargs), lambda x: False, structured.kind_of):
        return structured.by_fields(f, args, kwargs, on_variables)
    if hasattr(f, "_implementation") or isinstance(f, np.ufunc):
        return f(*args, **kwargs)
    y = on_variables(*array_of(args), **array_of(kwargs))
    x: Any = args[0] if args else None
    if is_subarray(x) and (f is np.asanyarray or kwargs.get("subok")):
        return x if y is x._array else subarray_over(type(x), y, x)
    return y


def with_subarrays(f, args: tuple, kwargs: dict):
    """What NumPy makes of f of subarrays and arrays, for which Variables stand: it asks the classes, then
    runs f."""
    found = {}  # class -> the first of it

    def note(x):
        if is_subarray(x):
            found.setdefault(type(x), x)
        return False

    holds_variable((args, kwargs), note, note)
    kinds = np.ndarray, *found
    for x in found.values():
        y = x.__array_function__(f, kinds, args, kwargs)
        if y is not NotImplemented:
            return y
    return TrackedSubarray.__array_function__(x, f, kinds, args, kwargs)


late.with_subarrays = with_subarrays


def gives_view(at) -> bool:
    """Is x[at] of an array a view?"""
    return all(
        [type(k) in VIEWING or isinstance(k, np.integer) for k in (at if type(at) is tuple else (at,))]
    )


VIEWING = frozenset((int, slice, type(None), type(Ellipsis)))


class TrackedSubarray(Subarray):
    """The methods of `np.ndarray`, as far as a subclass may call them."""

    __slots__ = ()
    __array_priority__ = 0.0
    _tg_of: Any = np.ndarray  # the class that it stands for
    copy: Any
    ravel: Any
    size: Any

    __class__: Any = property(lambda x: type(x)._tg_of)
    __hash__ = None  # type: ignore[assignment]

    def __new__(cls, shape, dtype=float, buffer=None, offset=0, strides=None, order=None):
        given = array_of(buffer)
        if isinstance(given, Variable):
            if offset or strides is not None or given.dtype != np.dtype(dtype):
                raise ArgumentError(
                    "ndarray.__new__(cls, shape, dtype, buffer) of a tracked buffer: offset, strides and "
                    "another dtype are not supported; write buffer.reshape(shape).view(cls)"
                )
            made: Any = given.reshape(shape, order=order or "C")
        else:
            made = np.ndarray(shape, dtype, given, offset, strides, order)
            made = variable(made) if made.dtype.kind in "fc" else made
        return subarray_over(late.subarray_class(cls), made, None)

    def __array_finalize__(self, template):
        """Nothing is to be done for an array without attributes."""

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return subarray_over(type(self), array_of(array), self)

    def __array_ufunc__(self, ufunc, method, *inputs, **params):
        out = params.get("out") or ()
        others = [x for x in (*inputs, *out) if is_subarray(x)]
        if any([own_method(x, "__array_ufunc__") for x in others]):
            return NotImplemented
        if method == "outer":
            a, b = inputs
            return ufunc(a[(Ellipsis, *(None,) * np.ndim(array_of(b)))], b, **params)
        y = getattr(ufunc, method)(*array_of(inputs), **array_of(params))
        if out:
            return out[0] if len(out) == 1 else out
        if y is None or y is NotImplemented or not others:
            return y
        first = max(others, key=lambda x: x.__array_priority__)
        if type(y) is tuple:
            return tuple([wrapped(first, v, (ufunc, inputs, k)) for k, v in enumerate(y)])
        return wrapped(first, y, (ufunc, inputs, 0) if method == "__call__" else None)

    def __array_function__(self, f, types, args, kwargs):
        while isinstance(f, FunctionType) and hasattr(f, "__wrapped__"):
            f = f.__wrapped__  # NumPy's own
        if by_methods(f):
            return late.followed(f._implementation)(*args, **kwargs)
        y = f(*array_of(args), **array_of(kwargs))
        out = kwargs.get("out")
        return as_numpy_gives(self, f, y, args, kwargs) if out is None else out

    def __array__(self, dtype=None, copy=None):
        if is_tracked(self._array):
            if calls_method((frame := sys._getframe(1)).f_code, frame.f_lasti, "__array__"):
                return call(np.array, (self._array,), {"dtype": dtype, "copy": copy})
            raise DroppedDerivativeError(
                f"an array of {type(self)._tg_of.__name__}, whose values are tracked, met compiled code, "
                "which would drop its derivative in silence; give it "
                "numpy.asarray(x), or write tapegrad.value(x)"
            )
        return np.array(values_of(self._array), dtype=dtype, copy=copy)

    __array_interface__ = property(lambda x: place_of_data(x._array, sys._getframe(1)))

    def __getitem__(self, at):
        y = self._array[array_of(at)]
        return subarray_over(type(self), y, self) if is_array(layout_of(y)) else y

    def __setitem__(self, at, y):
        x, at = self._array, array_of(at)
        if own_method(self, "__getitem__") and gives_view(at):
            part = self[at]  # NumPy writes into what the class gives
            if is_subarray(part):
                x, at = part._array, Ellipsis
        x[at] = array_of(y)

    def __iter__(self):
        return map(self.__getitem__, range(len(self)))

    def __len__(self):
        return len(self._array)

    def __contains__(self, y):
        return array_of(y) in self._array

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), self.copy())

    def __reduce_ex__(self, protocol):
        return np.asarray(self).view(self._tg_of).__reduce_ex__(protocol)

    def mean(self, axis=None, dtype=None, out=None, keepdims=False, **rest):
        if not own_method(self, "__array_ufunc__"):
            return plain_mean(self, axis, dtype, out, keepdims, **rest)
        if rest or out is not None:
            raise ArgumentError(f"{self._tg_of.__name__}.mean: {', '.join(rest) or 'out'}= is not supported")
        total = np.add.reduce(self, axis, dtype, keepdims=keepdims)
        return np.true_divide(total, self.size / max(np.size(array_of(total)), 1))

    def cumsum(self, axis=None, dtype=None, out=None):
        return np.add.accumulate(self.ravel() if axis is None else self, axis or 0, dtype, out)

    def cumprod(self, axis=None, dtype=None, out=None):
        return np.multiply.accumulate(self.ravel() if axis is None else self, axis or 0, dtype, out)

    def view(self, dtype=None, type=None):
        kind = dtype if isinstance(dtype, META) else type
        dtype = None if kind is dtype else dtype
        y = self._array.view() if dtype is None else self._array.view(dtype)
        if kind is None:
            return subarray_over(META(self), y, self)
        found = late.subarray_class(kind)
        return y if found is None else subarray_over(found, y, self)


plain_mean = method_of("mean")
META = type
BASES = (TrackedSubarray, PlainSubarray)


def as_subarray(x):
    """A subarray over the memory and the attributes of x."""
    new = object.__new__(late.subarray_class(type(x)))
    new._array, new.__dict__ = x._array, x.__dict__
    return new


def of_plain(name: str, member):
    if isinstance(member, property):
        return property(lambda x: getattr(as_subarray(x), name))
    return lambda x, *args, **kwargs: member(as_subarray(x), *args, **kwargs)


# C code reads these of an array itself
KEPT = frozenset(
    "__new__ __class__ __array_finalize__ __array__ __array_interface__ __len__ shape strides dtype flags "
    "data ctypes "
    "base".split()
)


def defers(a, b) -> bool:
    """Does NumPy leave an operator of the array a to its other operand b?"""
    kind = type(b)
    if hasattr(kind, "__array_ufunc__"):
        return kind.__array_ufunc__ is None
    return not issubclass(kind, type(a)) and a.__array_priority__ < getattr(b, "__array_priority__", -1e6)


def operators(ufunc: np.ufunc) -> tuple:
    """The three methods of an operator."""

    def here(a, b, modulus=None):
        return NotImplemented if defers(a, b) or modulus is not None else ufunc(a, b)

    def reflected(a, b, modulus=None):
        return NotImplemented if modulus is not None else ufunc(b, a)

    def in_place(a, b):
        return ufunc(a, b, out=(a,))

    return here, reflected, in_place


for _name, _ufunc in (OPERATORS | OF_BITS).items():
    for _prefix, _method in zip(("", "r", "i"), operators(_ufunc), strict=True):
        setattr(TrackedSubarray, f"__{_prefix}{_name.strip('_')}__", _method)
for _name, _ufunc in COMPARISONS.items():
    setattr(TrackedSubarray, f"__{_name}__", operators(_ufunc)[0])
for _name, _ufunc in {
    "neg": np.negative,
    "pos": np.positive,
    "abs": np.absolute,
    "invert": np.invert,
}.items():
    setattr(TrackedSubarray, f"__{_name}__", lambda x, f=_ufunc: f(x))
for _name, _ufunc in {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "all": np.logical_and,
    "any": np.logical_or,
}.items():  # fmt: skip
    setattr(TrackedSubarray, _name, reduction_of(_ufunc, "reduce"))
for _name, _f in {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "str": str,
    "repr": repr,
}.items():
    setattr(TrackedSubarray, f"__{_name}__", lambda x, f=_f: f(x._array))
for _name in {*dir(np.ndarray)} - {*dir(TrackedSubarray)}:
    if not _name.startswith("__") and hasattr(np.ndarray((0, 0)), _name):
        _plain = callable(getattr(np.ndarray, _name))
        setattr(TrackedSubarray, _name, (method_of if _plain else attribute_of)(_name))
for _name, _member in vars(TrackedSubarray).items():
    if (callable(_member) or isinstance(_member, property)) and _name not in KEPT:
        setattr(PlainSubarray, _name, of_plain(_name, _member))
