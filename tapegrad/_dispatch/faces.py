"""Faces: wrappers of NumPy's, SciPy's and CuPy's functions that also accept Variables.

The face of f calls f itself if no argument is a Variable. Otherwise it calls the operation registered
for f in `ops.declare.NUMPY`. A function without a rule runs on plain values, and raises NoRuleError
for a tracked one. While a transform is open, functions that make arrays return Variables of level 0;
so `buf = np.zeros(3); buf[0] = x[0]` works.

`faces_of(module)` is a namespace with a face for every public name of `module`. Each face is made on
first use."""

import functools
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from .._core.arrays import NUMBERS, is_array, xp_of
from .._core.errors import ArgumentError, package_of
from .._core.foreign import ORDINARY, argument, is_table
from .._core.primitive import holds_subarray, holds_variable, is_subarray, layout_of
from .._core.registry import late, load
from .._core.scope import OPEN
from .._core.variable import FLOAT, HANDLES, SUBARRAYS, ArrayVariable, Elements, Variable
from ..ops.creation import CREATORS, arange, array, as_variable, linspace, on_device_result, room
from ..ops.cupy_calls import translation_of
from ..ops.declare import dtype as dtype_of
from ..ops.declare import ndim
from ..ops.indexing.gathering import concatenate
from ..ops.linalg.factorizations import finite_checked
from ..ops.protocols import ADAPTERS, MISTAKES, as_the_library, call, function_for, ufunc_at, ufunc_call
from . import subarrays
from .numbers import NUMBER_TYPES
from .serialization import noting
from .subarrays import TrackedSubarray

DISPATCHED = type(np.sum)  # a function that asks its arguments for `__array_function__`
PLAIN_KINDS = ORDINARY | {type(c) for c in NUMBER_TYPES.values()}  # (dtype=float in code that is followed)
SINGLE = ORDINARY - {list, tuple}  # no value of these types holds a subarray


def variable_of(x):
    """The Variable that `x.__array__()` returns, or of the numbers in an object array; else x itself."""
    if type(x) is list or type(x) is tuple:
        return type(x)([variable_of(v) for v in x])
    if has_objects(x):
        return argument(x)
    if isinstance(x, Variable) or is_array(x) or not hasattr(type(x), "__array__"):
        return x
    if is_table(x):
        return numbers_of_table(x)
    y = x.__array__()
    return y if isinstance(y, Variable) else x


def proxied(x):
    """The Variable of which x is a proxy, as `wrapt` makes; else x itself."""
    inner = None if type(x) in ORDINARY else getattr(x, "__wrapped__", None)
    return inner if type(inner) in HANDLES else x


def has_objects(y) -> bool:
    """Is y an object array with Variables in it?"""
    return type(y) is np.ndarray and y.dtype.kind == "O" and any([isinstance(e, Variable) for e in y.flat])


def numbers_of_table(x: Any) -> Any:
    """The numbers in a table or column of pandas, if some are tracked, or were until a transform ended; else
    x."""
    values = x.to_numpy()
    if isinstance(values, Variable) or has_objects(values):
        return argument(values)
    kinds = x.dtypes if hasattr(x, "columns") else [getattr(x, "dtype", None)]
    return values.astype(float) if any([getattr(d, "name", d) == TRACKED for d in kinds]) else x


TRACKED = "tracked"  # the dtype of columns with derivatives


def with_arrays_of(objects: tuple) -> list | None:
    """The arguments with objects replaced by the Variables of their `__array__`, after NumPy refused
    them. None if there is no Variable."""
    found = [variable_of(x) for x in objects]
    return found if holds_variable(found) else None


OF_OBJECTS = {"absolute": "__abs__", "negative": "__neg__"}


def asks_object(x, name: str) -> bool:
    """Does NumPy call the method for a ufunc, as it does of each object of an object array?"""
    return getattr(type(x), "__array_ufunc__", x) is None and hasattr(x, name)


class UfuncFace:
    """The face of a ufunc, with its methods. `key`: NumPy's ufunc of the same meaning, if f is CuPy's.
    `device`: the CuPy module that has this function for CuPy arrays."""

    def __init__(self, f, key, device: str | None = None):
        self.f, self.key, self.entry, self.nin, self.device = f, key, function_for(key), key.nin, device
        self.__name__ = self.__qualname__ = f.__name__
        self.__doc__, self.__wrapped__ = f.__doc__, f

    def __call__(self, *args, **kwargs):
        if holds_variable(args) or kwargs and holds_variable(kwargs.values()):
            return call(self.f, args, kwargs, self.key)
        if not ORDINARY.issuperset(map(type, args)):
            given: Any = [proxied(x) for x in args]
            if holds_variable(given):
                return self(*given, **kwargs)
        try:
            return library_function(self.f, self.device, args)(*args, **kwargs)
        except (ValueError, TypeError):
            given = with_arrays_of(args)
            if given is None and asks_object(args[0], OF_OBJECTS.get(self.__name__, self.__name__)):
                return getattr(args[0], OF_OBJECTS.get(self.__name__, self.__name__))()
            if given is None:
                raise
            return self(*given, **kwargs)

    def _method(self, name, args, kwargs):
        if (
            SUBARRAYS
            and (kwargs or not SINGLE.issuperset(map(type, args)))
            and holds_subarray((args, kwargs))
        ):
            return getattr(self.f, name)(*args, **kwargs)
        if holds_variable(args) or kwargs and holds_variable(kwargs.values()):
            return ufunc_call(self.key, name, args, kwargs)
        return getattr(self.f, name)(*args, **kwargs)

    def at(self, *args, **kwargs):
        if args and type(args[0]) is ArrayVariable and not kwargs:
            return ufunc_at(self.key, *args)
        return self._method("at", args, kwargs)

    def reduce(self, *args, **kwargs):
        return self._method("reduce", args, kwargs)

    def accumulate(self, *args, **kwargs):
        return self._method("accumulate", args, kwargs)

    def reduceat(self, *args, **kwargs):
        return self._method("reduceat", args, kwargs)

    def outer(self, *args, **kwargs):
        return self._method("outer", args, kwargs)

    def __getattr__(self, name):
        return getattr(self.f, name)

    def __repr__(self):
        return f"<tapegrad face of {self.f!r}>"


class UnaryUfunc(UfuncFace):
    def __call__(self, x, /, *args, **kwargs):
        c = type(x)
        if (c is ArrayVariable or c is FLOAT or c in HANDLES) and not args and not kwargs:
            return self.entry(x)
        return UfuncFace.__call__(self, x, *args, **kwargs)


class BinaryUfunc(UfuncFace):
    def __call__(self, a, b, /, *args, **kwargs):
        if not args and not kwargs and not (SUBARRAYS and (is_subarray(a) or is_subarray(b))):
            c = type(a)
            d = type(b)
            if c is ArrayVariable or c is FLOAT or c in HANDLES or d in HANDLES:
                y = self.entry(a, b)
                # for NumPy's own dispatch to another array type, or its TypeError
                return y if y is not NotImplemented else self.f(a, b)
        return UfuncFace.__call__(self, a, b, *args, **kwargs)


def library_function(f, device: str | None, args: tuple):
    """f, or CuPy's function of the same name if `device` names its module and an argument is a CuPy
    array. If CuPy has no such function, the operation composed of others."""
    if device is not None and any(is_array(x) and xp_of(x) is not np for x in args):
        return getattr(load(device), f.__name__, None) or function_for(f) or f
    return f


def face(f: Callable, key=None, device: str | None = None) -> Callable:
    """The face of one function. `key`: NumPy's or SciPy's function of the same meaning, if f is CuPy's."""
    key = f if key is None else key
    if isinstance(key, np.ufunc):
        return (
            UfuncFace
            if function_for(key) is None
            else {1: UnaryUfunc, 2: BinaryUfunc}.get(key.nin, UfuncFace)
        )(f, key, device)
    makes, theirs = key in CREATORS, key is not f

    @functools.wraps(f)
    def on_variables(*args, **kwargs):
        if (
            SUBARRAYS
            and (kwargs or not SINGLE.issuperset(map(type, args)))
            and holds_subarray((args, kwargs))
        ):
            return subarrays.call_with_subarrays(f, on_variables, args, kwargs)
        c: Any = type(args[0]) if args else None
        if (
            c is ArrayVariable
            or c in HANDLES
            or holds_variable(args)
            or (kwargs and holds_variable(kwargs.values()))
        ):
            adapter = ADAPTERS.get(key)
            if (
                adapter is not None
                and not (theirs and makes)
                and len(args) <= adapter.plain
                and (c in HANDLES and adapter.arrays < 2 or adapter.takes(args))
                and PLAIN_KINDS.issuperset(map(type, args))
            ):
                try:
                    if not kwargs or (
                        kwargs.keys() <= adapter.direct and PLAIN_KINDS.issuperset(map(type, kwargs.values()))
                    ):
                        y = adapter.ours(*args, **kwargs)
                        return room(key, y) if makes else y
                except MISTAKES as error:
                    if (other := as_the_library(f, args, kwargs, error)) is error:
                        raise
                    raise other from error
            y = call(f, args, kwargs, key)
            return on_device_result(y) if theirs and makes else room(key, y) if makes else y
        if args and c not in ORDINARY:
            if issubclass(c, Elements) and (makes or type(f) is not DISPATCHED):
                return call(f, args, kwargs, key)
            if (x := proxied(args[0])) is not args[0]:
                return on_variables(x, *args[1:], **kwargs)
            if hasattr(c, "to_numpy") and (x := numbers_of_table(args[0])) is not args[0]:
                return on_variables(x, *args[1:], **kwargs)
        try:
            if makes:
                return room(key, as_variable(f(*args, **kwargs), (*args, *kwargs.values())))
            return (
                f(*args, **kwargs) if device is None else library_function(f, device, args)(*args, **kwargs)
            )
        except (ValueError, TypeError):
            given = with_arrays_of(args)
            if given is None:
                raise
        return on_variables(*given, **kwargs)

    on_variables = noting(key, on_variables)
    if hasattr(f, "_implementation"):  # the same without NumPy's search for other arrays
        vars(on_variables)["_implementation"] = on_variables
    if getattr(key, "__module__", "").startswith("scipy.linalg"):
        on_variables = finite_checked(key, on_variables)
    move = translation_of(f, key) if theirs else None
    return on_variables if move is None else translated_face(f, on_variables, move)


def translated_face(f: Callable, on_variables: Callable, move) -> Callable:
    """The face of a CuPy function whose parameters differ from NumPy's."""

    @functools.wraps(f)
    def by_own_parameters(*args, **kwargs):
        if (kwargs or len(args) > move.plain) and holds_variable((args, kwargs)):
            args, kwargs = move(args, kwargs)
        return on_variables(*args, **kwargs)

    return by_own_parameters


def is_function(f) -> bool:
    return callable(f) and not isinstance(f, type) and type(f).__name__ in FUNCTION_KINDS


FUNCTION_KINDS = (
    "function builtin_function_or_method cython_function_or_method fused_cython_function "
    "_ArrayFunctionDispatcher ufunc _GUFunc ElementwiseKernel ReductionKernel MultiUFunc _UFuncWrapper "
    "_Function".split()
)


class ArrayClass(type):
    """`isinstance(x, ndarray)` is true for arrays and for Variables over them. `ndarray(...)` is the
    library's. So is `ndarray.sum`, but called on a Variable it is the Variable's method."""

    def __instancecheck__(cls, x):
        return isinstance(layout_of(x) if type(x) in HANDLES else x, cls.real)

    def __subclasscheck__(cls, c):
        return c is cls or issubclass(c, (cls.real, Variable))

    def __call__(cls, *args, **kwargs):
        return as_variable(cls.real(*args, **kwargs), (*args, *kwargs.values()))

    def __getattr__(cls, name):
        found = getattr(cls.real, name)
        if not callable(found):
            return found

        @functools.wraps(found)
        def method(*args, **kwargs):
            x = args[0] if args else None
            if is_subarray(x):
                return getattr(TrackedSubarray, name)(*args, **kwargs)
            return (
                getattr(x, name)(*args[1:], **kwargs) if isinstance(x, Variable) else found(*args, **kwargs)
            )

        return method

    def __eq__(cls, other):
        return other is cls or other is cls.real

    def __hash__(cls):
        return hash(cls.real)


def new_array(cls, *args, **kwargs):
    """`ndarray.__new__`, which subclasses call."""
    return cls(*args, **kwargs) if type(cls) is ArrayClass else TrackedSubarray.__new__(cls, *args, **kwargs)


def array_class(real: type) -> type:
    space = {"real": real, "__doc__": real.__doc__, "__module__": real.__module__, "__new__": new_array}
    return ArrayClass(real.__name__, (), space)


class IndexConcatenator:
    """`np.r_` and `np.c_` with Variables among arrays, numbers and slices. Other uses go to the library.

    The rules are NumPy's. Each part is extended to `ndmin` axes. The axes of a part with fewer begin
    at axis `trans1d` (-1: at the end). Then all parts are joined along `axis`. A leading string such
    as '0,2,1' sets these three numbers."""

    def __init__(self, real, axis: int, ndmin: int, trans1d: int, move: Callable | None = None):
        """`move`: moves the result to its device."""
        self.real, self.directions, self.move = real, (axis, ndmin, trans1d), move

    def __getitem__(self, at):
        parts = at if isinstance(at, tuple) else (at,)
        parts = tuple([numbers_of_table(p) if hasattr(p, "to_numpy") else argument(p) for p in parts])
        if not holds_variable([(p.start, p.stop, p.step) if isinstance(p, slice) else p for p in parts]):
            return as_variable(self.real[at])
        axis, ndmin, trans1d = self.directions
        kind = parts[0] if isinstance(parts[0], str) else ""
        parts = parts[1:] if kind else parts
        if kind in ("r", "c"):
            return self.as_matrix(self.joined(parts, axis, ndmin, trans1d), kind)
        given = [int(n) for n in kind.split(",")] if kind else []
        return self.joined(parts, *given, *(axis, ndmin, trans1d)[len(given) :])

    def joined(self, parts: tuple, axis: int, ndmin: int, trans1d: int):
        xs = [self.arranged(self.range_of(p) if isinstance(p, slice) else p, ndmin, trans1d) for p in parts]
        kinds = [p if type(p) in NUMBERS else dtype_of(x) for x, p in zip(xs, parts, strict=True)]
        return concatenate(xs, axis, np.result_type(*kinds))

    def as_matrix(self, y, kind: str):
        """What `np.r_["r", ...]` and `np.r_["c", ...]` make of the joined parts."""
        if not OPEN.shadows:
            raise ArgumentError(
                f"numpy.r_[{kind!r}, ...] makes a matrix, which is not supported; use concatenate"
            )
        matrix = late.followed(np.asmatrix)(y)
        return matrix.T if ndim(y) == 1 and kind == "c" else matrix

    @staticmethod
    def range_of(p: slice):
        start, step = 0 if p.start is None else p.start, 1 if p.step is None else p.step
        if isinstance(step, complex):
            return linspace(start, p.stop, int(abs(step)))
        return arange(start, p.stop, step)

    def arranged(self, x, ndmin: int, trans1d: int):
        x = array(x if self.move is None else self.move(x), copy=None)
        own, x = ndim(x), array(x, copy=None, ndmin=ndmin)
        if trans1d == -1 or own >= ndmin:
            return x
        more = ndmin - own
        first = trans1d + more + 1 if trans1d < 0 else trans1d
        axes = tuple(range(ndmin))
        return x.transpose(axes[:first] + axes[more:] + axes[first:more])

    def __getattr__(self, name):
        return getattr(self.real, name)


NOTHING: dict = {}
STAND_INS: dict = {}  # a module of NumPy, SciPy or CuPy -> its stand-in
FACES: dict = {}  # a function of these libraries -> its face


LIBRARIES = {"numpy", "scipy", "cupy", "cupyx", "cupy_backends"}


def names(real: ModuleType) -> list[str]:
    return sorted(
        {*[n for n in dir(real) if not n.startswith("_")], "__version__", "__all__"} & set(dir(real))
    )


def fill_module(
    space: dict,
    real: ModuleType,
    keys: ModuleType | None = None,
    device: str | None = None,
    old=NOTHING,
) -> None:
    """Make the module with globals `space` the stand-in for `real`.

    `keys`: if `real` is CuPy's, the module of NumPy or SciPy with the registry's keys of the same
    names. `device`: if `real` is not CuPy's, the CuPy module for CuPy arrays. `old`: names that only
    CuPy has kept, with the functions of `keys` or `real` of the same meaning."""

    def __getattr__(name: str):
        library = None if device is None else sys.modules.get(device)
        x: Any = getattr(real, name) if library is None else getattr(real, name, None)
        if x is None and not hasattr(real, name):  # CuPy still has names that SciPy has removed
            x = getattr(library, name)
            x = space[name] = face(x, getattr(real, old[name]) if name in old else x) if is_function(x) else x
            return x
        if name.startswith("__"):
            return x
        if isinstance(x, ModuleType):
            x = STAND_INS.get(x, x)
        elif isinstance(x, type):
            x = NUMBER_TYPES.get(x, x)
        elif type(x).__name__ == "fortran":
            x = load("tapegrad._scipy.linear_routines").LinearRoutine(x)
        elif type(x) is FunctionType and package_of(x.__module__) not in LIBRARIES:
            return late.shadowed(x)  # other code has put it there, as a substitute for the library's
        elif is_function(x):
            root = sys.modules[real.__name__.partition(".")[0]]
            if root is not real and getattr(root, name, None) is x:  # `cupy.linalg.matmul` is `cupy.matmul`
                x = getattr(STAND_INS[root], name)
            else:
                key = x if keys is None else getattr(keys, old.get(name, name), x)
                x = FACES.get(x) or FACES.setdefault(x, face(x, key, device))
        space[name] = x
        return x

    def __dir__() -> list[str]:
        return sorted({*names(real), *[n for n in space if not n.startswith("_")]})

    space["__getattr__"], space["__dir__"] = __getattr__, __dir__
    STAND_INS[real] = sys.modules[space["__name__"]]


def faces_of(
    name: str, real: ModuleType, keys: ModuleType | None = None, device: str | None = None, old=NOTHING
) -> ModuleType:
    """A new stand-in for a submodule, importable as `name`."""
    module = ModuleType(name, real.__doc__)
    sys.modules[name] = module
    fill_module(module.__dict__, real, keys, device, old)
    return module
