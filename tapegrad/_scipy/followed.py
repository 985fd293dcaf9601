"""Functions and classes that are the library's own Python code, run on Variables.

What a library has written in Python with its arrays' functions is a program like a user's: it is given other
surroundings, in which the names of NumPy and SciPy are the stand-ins, and so has the values, the errors and
the branches of the library, with derivatives.

    FOLLOWED = Follower("scipy.signal")
    SIGNAL.rule(scipy.signal.lsim)(FOLLOWED.function(scipy.signal.lsim))

The surroundings are made once for a module, name by name, as a call first asks for them.  A call with CuPy
arrays runs in others, where the names of NumPy are CuPy's (`Follower.device`)."""

import abc
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import numpy as faces
from .._capture.builtin import LIBRARY, ModuleGlobals, ModuleShadow
from .._capture.kinds import NUMERIC, put_state, state_of
from .._core.arrays import IMMUTABLE, is_array, xp_of
from .._core.primitive import holds_variable, seen
from .._core.scope import OPEN
from .._core.variable import variable
from .._dispatch import stand_ins
from ..ops.creation import as_variable
from ..ops.nondifferentiable import at_users_line
from ..ops.protocols import function_for
from .array_api import array_api
from .device import lenient, numpy_on_device, plain_on_device, there
from .namespaces import (
    Carrier,
    CarrierType,
    RefusingType,
    bare,
    holds_tracked,
    keep_imaginary_parts,
    on_a_device,
    plain_argument,
    refusal_text,
    unchanged,
)
from .shorter_ways import in_general
from .standard_library import MODULES, NUMBERS


def is_private(f: types.FunctionType) -> bool:
    """Has f a private name, or the private keyword of SciPy's decorators of statistics?"""
    return f.__name__.startswith("_") or "_no_deco" in f.__code__.co_varnames


DECORATED = {
    "hypotest_fun_in",
    "n_samples",
    "n_outputs",
    "is_too_small",
    "kwd_samples",
    "result_to_tuple",
    "tuple_to_result",
}


def statistic_of_samples(g: types.FunctionType) -> Callable:
    """A statistic that SciPy decorated by `_axis_nan_policy`.  The decorator has nothing to do for samples of
    one axis, without nan, that are large enough; any other call takes it."""
    free = dict(zip(g.__code__.co_freevars, [c.cell_contents for c in g.__closure__ or ()], strict=True))
    inner, outputs, to_tuple = free["hypotest_fun_in"], free["n_outputs"], free["result_to_tuple"]
    known = {"axis", "nan_policy", "keepdims", "_no_deco", *free["kwd_samples"]}

    @functools.wraps(g)
    def run(*args, **kwargs):
        n = free["n_samples"] or len(args)
        if (
            n != len(args)
            or len({getattr(x, "dtype", None) for x in args}) > 1
            or not known.isdisjoint(kwargs)
            or not all(map(is_clean_sample, args))
            or free["is_too_small"](args, kwargs)
        ):
            return g(*args, **kwargs)
        result = inner(*args, **kwargs)
        return free["tuple_to_result"](*to_tuple(result, outputs(kwargs) if callable(outputs) else outputs))

    return run


def is_clean_sample(x) -> bool:
    """Is x an array of one axis of floating point numbers, known to have no nan?"""
    if getattr(x, "ndim", 0) != 1 or x.dtype.kind != "f" or (values := seen(x)) is None:
        return False
    return len(values) > 0 and not np.isnan(values.max())


SKIPPED = frozenset(
    (
        "__dict__",
        "__weakref__",
        "__slots__",
        "__module__",
        "__qualname__",
        "__abstractmethods__",
        "_abc_impl",
        "__class__",
    )
)


MEMOISED = type(functools.cache(abs))  # what was computed once is not followed: it is computed again
COMPILED = ("builtin_function_or_method", "cython_function_or_method", "fused_cython_function", "fortran")


class CompiledFunction:
    """A function that SciPy has compiled.  `rule`: ours, for tracked values."""

    def __init__(self, f, rule: Callable | None = None):
        self.f, self.rule = f, rule

    def __getitem__(self, kind) -> "CompiledFunction":
        return CompiledFunction(self.f[kind], self.rule)

    def __call__(self, *args, **kwargs):
        if not holds_tracked(args, kwargs) and (self.rule is None or not on_a_device(args)):
            y = self.f(*plain_argument(args), **plain_argument(kwargs))
            return y if y is None else as_variable(y)
        if self.rule is None:
            raise refusal_text(f"{self.f.__module__}.{self.f.__name__}", "it is compiled")
        keep_imaginary_parts(self.f, getattr(self.f, "__name__", "it"), self.f, args, kwargs)
        return (device_rule(self.rule) if on_a_device(args) else self.rule)(*args, **kwargs)


class FollowedObject(Carrier):
    """An object of a followed class."""

    _theirs: Any
    _follower: "Follower"

    def _tracked(self) -> bool:
        return holds_tracked(vars(self))

    def _plain(self):
        new = object.__new__(type(self)._theirs)
        put_state(
            new,
            {
                name: rebound_method(v, self, new) or theirs_of(v, type(self)) or plain_argument(v)
                for name, v in vars(self).items()
                if name != "_captured"
            },
        )
        return new

    def _bare(self):
        new = object.__new__(type(self))
        vars(new).update({name: rebound_method(v, self, new) or bare(v) for name, v in vars(self).items()})
        return new

    @classmethod
    def _of(cls, x, shadow):
        new = object.__new__(cls)
        if hasattr(shadow, "seen"):  # before what leads back to it
            shadow.seen[id(x)] = new
            shadow.hold.append(x)
        for name, v in state_of(x, type(x)).items():
            if type(v) is types.FunctionType and cls._follower.is_home(v.__module__):
                part = cls._follower(v)
            else:
                part = rebound_method(v, x, new) or library_stand_in(v) or shadow(v)
            if hasattr(type(part), "theirs"):  # a law of tapegrad.stats
                part = cls._follower(v)
            elif part is v and cls._follower.is_instance(v):
                part = cls._follower.of_class(type(v))._of(v, shadow)
            vars(new)[name] = part
        return new


def rebound_method(v, x, new):
    """A method of x that x holds, as that of another object."""
    if type(v) is not types.MethodType or v.__self__ is not x:
        return None
    name = getattr(v.__func__, "__name__", "")
    return getattr(new, name) if hasattr(type(new), name) else types.MethodType(v.__func__, new)


ARRAY_API = "array_api_compat.numpy"  # the end of the name of the module that is NumPy to SciPy's code


def library_stand_in(v):
    """Our library for SciPy's."""
    return faces if type(v) is types.ModuleType and v.__name__.endswith(ARRAY_API) else None


def theirs_of(v, owner):
    """SciPy's library for ours, and the function of a class for the followed one."""
    if type(v) is types.FunctionType and v.__module__ == __name__:
        return getattr(owner._theirs, v.__name__)
    if v is not faces:
        return None
    return next(
        (
            m
            for name, m in list(sys.modules.items())
            if name.startswith("scipy.") and name.endswith(ARRAY_API)
        ),
        np,
    )


class FunctionOverlay:
    """A module with other functions."""

    def __init__(self, module, **others):
        self.__dict__.update(others, _module=module)

    def __getattr__(self, name: str):
        return getattr(self._module, name)


def is_python_class(c: type) -> bool:
    """Was c made by a class statement, without a metaclass of its own?"""
    return type(c) in (type, abc.ABCMeta) and bool(c.__flags__ & HEAP_TYPE)


HEAP_TYPE = 1 << 9  # CPython's Py_TPFLAGS_HEAPTYPE


class FollowedType(CarrierType):
    """A followed class.  `_on_device` gives the class for CuPy arrays.  With `_plain_by_library` the library
    makes objects of plain values, which so have its rounding."""

    _of: Any

    def __call__(cls, *args, **kwargs):
        own = cls.__dict__
        if on_a_device(args) or on_a_device(kwargs.values()):
            cls = own["_on_device"]() if "_on_device" in own else cls
            # CuPy's arrays lack methods of NumPy's
            args = tuple([variable(a) if is_array(a) and xp_of(a) is not np else a for a in args])
        elif own.get("_plain_by_library") and not holds_tracked(args, kwargs):
            return cls._of(cls._theirs(*plain_argument(args), **plain_argument(kwargs)), unchanged)
        return CarrierType.__call__(cls, *args, **kwargs)


class Follower:
    """`homes`: modules whose code is followed; `given`: by name, what stands for something there."""

    on_device = False

    def __init__(self, *homes: str, **given):
        self.homes, self.named = (*homes, "scipy._lib.", "scipy._external."), given
        self.given = {**array_api(faces), **given}
        # id -> (what was met, ours)
        self.seen: dict = {id(x): (x, ours) for x, ours in ((np.r_, faces.r_), (np.c_, faces.c_))}
        self.leaves: dict = {}
        self.bases: dict[type, type] = {}  # a class of the library's without bases -> the base of ours
        self.decorators: dict[Callable, Callable] = {}  # a function of the library's -> what ours gets

    def leaf(self, theirs, ours) -> None:
        """Declare the rule of a function that is compiled, for tracked values."""
        self.leaves[id(theirs)] = self.seen[id(theirs)] = theirs, CompiledFunction(theirs, ours)

    def decorate(self, theirs: Callable, by: Callable) -> None:
        """Declare what the followed function `theirs` is changed into."""
        self.decorators[theirs] = by

    @functools.cached_property
    def device(self) -> "DeviceFollower":
        return DeviceFollower(self)

    def is_home(self, module) -> bool:
        return isinstance(module, str) and module.startswith(self.homes)

    def __call__(self, x):
        """What a name of the library's means to its followed code."""
        kind = type(x)
        if kind in IMMUTABLE:
            return x
        known = self.seen.get(id(x))
        if known is not None:
            return known[1]
        new = self.stand_in(x, kind)
        self.seen[id(x)] = x, new
        return new

    def stand_in(self, x, kind: type):
        if getattr(x, "__name__", None) in self.given:
            return self.given[x.__name__]
        if kind is types.ModuleType:
            if x.__name__.endswith(ARRAY_API):
                return self.library(faces)
            if self.is_home(x.__name__):
                return ModuleShadow(self.space(vars(x)))
            return MODULES.get(x.__name__) or self.library(stand_ins.module(x)) or LIBRARY.get(x, x)
        if isinstance(x, type):
            return self.of_class(x)
        if kind is np.vectorize:
            return faces.vectorize(self(x.pyfunc), x.otypes, excluded=x.excluded)
        if kind is MEMOISED and self.is_home(x.__module__):
            return self(x.__wrapped__)
        if kind in (dict, list, tuple):
            parts = x.values() if kind is dict else x
            if any([type(v) in (types.FunctionType, list, tuple) or self.is_instance(v) for v in parts]):
                return {k: self(v) for k, v in x.items()} if kind is dict else kind([self(v) for v in parts])
            return x
        if kind is np.ndarray and x.dtype.kind in "fc":
            return self.constant(x)
        if not callable(x):
            return self.instance(x) if self.is_instance(x) else x
        if getattr(x, "__module__", None) in NUMBERS:
            return stand_ins.function_stand_in(x)
        private = kind is types.FunctionType and self.is_home(x.__module__) and is_private(x)
        ours = None if private else self.face(x)
        if (
            (ours is None or ours is x)
            and kind is types.FunctionType
            and (x.__module__ or "").partition(".")[0] in NUMERIC
        ):
            ours = self.rebuilt(x)
        elif (
            ours is None
            and kind.__name__ in COMPILED
            and (getattr(x, "__module__", None) or "").startswith("scipy.")
        ):
            ours = CompiledFunction(x)
        elif ours is None and self.is_instance(x):
            ours = self.instance(x)
        return x if ours is None else ours

    def library(self, module):
        """A module of ours for theirs."""
        return module

    def face(self, x):
        ours = stand_ins.function_stand_in(x)
        rule = None if ours is None or isinstance(x, type) else function_for(x)
        followed = getattr(rule, "followed", None)
        return ours if followed is None else called_within(followed(), ours)

    def constant(self, x: np.ndarray):
        """An array of the library's, so that what is computed of it takes what is tracked."""
        return variable(x.copy())

    def space(self, real: dict) -> ModuleGlobals:
        key = id(real)
        if key not in self.seen:
            self.seen[key] = real, ModuleGlobals(real, self)
        return self.seen[key][1]

    def function(self, f) -> Callable:
        """f with other surroundings, chosen by where its arrays lie."""
        g = self.rebuilt(f)
        at_line = functools.partial(at_users_line, g)

        @functools.wraps(g)
        def on_arrays(*args, **kwargs):
            if on_a_device(args) or on_a_device(kwargs.values()):
                return in_general(self.device.rebuilt_once(f), args, kwargs)
            return in_general(at_line, args, kwargs)

        vars(on_arrays).update(followed=lambda: on_arrays, code=g)
        on_arrays.__module__ = __name__  # it is no rule, where g is decorated either
        return on_arrays

    def rebuilt(self, f) -> Callable:
        f = getattr(f, "_implementation", f)  # (of what NumPy dispatches)
        cells = None
        if f.__closure__:
            cells = tuple([self.cell(c) for c in f.__closure__])
        default = lambda v: self(v) if self.is_instance(v) else v  # (singletons are compared by `is`)
        g = types.FunctionType(
            f.__code__,
            self.space(f.__globals__),
            f.__name__,
            f.__defaults__ and tuple(map(default, f.__defaults__)),
            cells,
        )
        g.__kwdefaults__ = {name: default(v) for name, v in (f.__kwdefaults__ or {}).items()}
        g.__qualname__, g.__module__, g.__doc__ = f.__qualname__, __name__, f.__doc__
        vars(g).update(vars(f))  # the signature
        if f in self.decorators:
            return self.decorators[f](g)
        return statistic_of_samples(g) if DECORATED <= set(f.__code__.co_freevars) else g

    def cell(self, c):
        try:
            return types.CellType(self(c.cell_contents))
        except ValueError:
            return c

    def of_class(self, c: type):
        if (
            issubclass(c, (BaseException, dict, list))
            or not is_python_class(c)
            or not (c.__module__ or "").startswith(tuple(NUMERIC))
        ):
            return c
        known = self.seen.get(id(c))
        if known is not None:
            return known[1]
        if issubclass(c, tuple):
            return self.result_class(c)
        ours = self.face(c)
        if isinstance(ours, CarrierType) and not isinstance(ours, RefusingType):
            return ours
        return self.klass(c) if self.is_home(c.__module__) else ours or c

    def result_class(self, c: type) -> type:
        """A subclass of a tuple with names, with its methods followed."""
        methods = {
            n: self.rebuilt(f)
            for n, f in vars(c).items()
            if type(f) is types.FunctionType and not n.startswith("_")
        }
        return (
            type(c.__name__, (c,), {"__module__": c.__module__, **methods})
            if methods and self.is_home(c.__module__)
            else c
        )

    def klass(self, c: type):
        """A class with the members of c, followed; SciPy's own instances are instances of it too."""
        known = self.seen.get(id(c))
        if known is not None:
            return known[1]
        bases = tuple(
            [self.of_class(b) for b in c.__bases__ if b is not object and b.__module__ != "abc"]
        ) or (self.bases.get(c, FollowedObject),)
        if not all([issubclass(FollowedType, type(b)) or type(b) is FollowedType for b in bases]):
            return c  # its base is of another kind
        new: Any = FollowedType(
            c.__name__,
            bases,
            {"_theirs": c, "_follower": self, "__module__": c.__module__, "__doc__": c.__doc__},
        )
        if not self.on_device:
            new._on_device = staticmethod(lambda: self.device.of_class(c))
        self.seen[id(c)] = c, new
        # an abstract class keeps who is none of its children, and ours is equal to its own: it is to keep
        # that first
        for b in c.__mro__:
            issubclass(c, b)
        for name, v in list(vars(c).items()):
            if name not in SKIPPED and type(v) is not types.MemberDescriptorType:
                setattr(new, name, self.member(v))
        return new

    def instance(self, x, kind=None):
        """The library's object x with followed methods; `kind` is a subclass of its followed class."""
        key = "instance", id(x), kind
        if key not in self.seen:
            new = object.__new__(kind or self.klass(type(x)))
            self.seen[key] = x, new
            vars(new).update({name: self.attribute(v, x, new) for name, v in vars(x).items()})
        return self.seen[key][1]

    def is_instance(self, x) -> bool:
        """Is x an object of a class that is followed?"""
        return self.is_home(type(x).__module__) and isinstance(self.of_class(type(x)), FollowedType)

    def attribute(self, v, x, new):
        """What x holds, for the object that stands for x."""
        if type(v) is np.vectorize:
            return faces.vectorize(self.attribute(v.pyfunc, x, new), v.otypes, excluded=v.excluded)
        if type(v) is not types.MethodType or v.__self__ is not x:
            return self(v)
        name = getattr(v.__func__, "__name__", "")
        return getattr(new, name) if hasattr(type(new), name) else types.MethodType(self(v.__func__), new)

    def member(self, m):
        kind = type(m)
        if kind is types.FunctionType:
            return (
                self.rebuilt(m)
                if self.on_device or (m.__name__.startswith("_") and m.__name__ != "__call__")
                else self.method(m)
            )
        if kind is staticmethod or kind is classmethod:
            f = m.__func__
            return kind(self.rebuilt(f) if type(f) is types.FunctionType and kind is classmethod else self(f))
        if kind is property:
            fget, fset, fdel = [f and self.rebuilt(f) for f in (m.fget, m.fset, m.fdel)]
            return property(fget, fset, fdel, m.__doc__)
        if kind is functools.cached_property:
            new = kind(self.rebuilt(m.func))
            new.__set_name__(None, m.attrname)
            return new
        return self(m)

    def method(self, m) -> Callable:
        """A method of an object that holds arrays of the host; where it meets one of the device, it is that
        of a copy there."""
        g = self.rebuilt(m)

        @functools.wraps(g)
        def on_arrays(x, /, *args, **kwargs):
            if on_a_device(args) or on_a_device(kwargs.values()):
                return getattr(self.device.object(x), m.__name__)(*args, **kwargs)
            return g(x, *args, **kwargs)

        return on_arrays


def called_within(followed, ours: Callable) -> Callable:
    """A public function that is followed, for followed code that calls it: the code alone, for Variables that
    show their values.  `ours`: the public function's face, for anything else."""
    code = followed.code

    @functools.wraps(code)
    def run(*args, **kwargs):
        tracked = holds_variable(args) or kwargs and holds_variable(kwargs.values())
        if tracked and not (OPEN.hiding or on_a_device(args) or on_a_device(kwargs.values())):
            return code(*args, **kwargs)
        return ours(*args, **kwargs)

    return run


def whole_range(*ends) -> range:
    """Python's, of whole numbers that lie on the device."""
    return range(*[int(bare(n)) for n in ends])


def whole_zip(*xs, strict: bool = False) -> zip:
    """Python's; whole numbers that lie on the device are Python's, too."""
    whole = lambda x: on_a_device((x,)) and getattr(x, "dtype", np.dtype(float)).kind in "iu"
    return zip(*[bare(x).tolist() if whole(x) else x for x in xs], strict=strict)


def whole_extreme(which: Callable) -> Callable:
    """Python's `min` or `max`, of which a whole number that lies on the device becomes Python's."""

    @functools.wraps(which)
    def of(*args, **kwargs):
        found = which(*args, **kwargs)
        whole = on_a_device((found,)) and getattr(found, "dtype", np.dtype(float)).kind in "iu"
        return int(bare(found)) if whole and not getattr(found, "shape", ()) else found

    return of


ON_DEVICE = {"range": whole_range, "zip": whole_zip, "min": whole_extreme(min), "max": whole_extreme(max)}


class DeviceFollower(Follower):
    """The follower of the same code on CuPy arrays."""

    on_device = True

    def __init__(self, host: Follower):
        library = numpy_on_device()
        self.homes, self.named, self.host, self.bases = host.homes, host.named, host, host.bases
        self.decorators = host.decorators
        self.given = {**array_api(library), **host.named}
        stand_ins_there = (np.r_, library.r_), (np.c_, library.c_), (np.ndarray, library._theirs.ndarray)
        self.seen = {id(x): (x, ours) for x, ours in stand_ins_there} | host.leaves

    def library(self, module):
        return (
            lenient(module, module)
            if module is not None and module is not faces
            else module and numpy_on_device()
        )

    def face(self, x):
        ours = stand_ins.function_stand_in(x)
        if ours is x:
            return None
        if ours is None or isinstance(ours, type):
            return None if isinstance(ours, FollowedType) and self.is_home(ours._theirs.__module__) else ours
        return face_there(ours) or lenient(ours, ours)

    def constant(self, x: np.ndarray):
        return there(variable(x.copy()))

    def space(self, real: dict) -> ModuleGlobals:
        new = super().space(real)
        for name, ours in ON_DEVICE.items():
            if name not in real:
                dict.__setitem__(new, name, ours)
        return new

    def rebuilt_once(self, f) -> Callable:
        known = self.seen.get(("function", id(f)))
        if known is None:
            known = self.seen["function", id(f)] = f, self.rebuilt(f)
        return known[1]

    def object(self, x):
        """An object of a followed class, with its arrays on the device."""
        new = object.__new__(self.of_class(type(x)._theirs))
        for name, v in vars(x).items():
            vars(new)[name] = rebound_method(v, x, new) or (
                self.object(v) if isinstance(v, FollowedObject) else there(v)
            )
        return new


class DeviceRules(DeviceFollower):
    """The rules of SciPy's functions, which are written like SciPy's code, on CuPy arrays."""

    def __init__(self):
        library = numpy_on_device()
        self.homes, self.given, self.decorators = (), {}, {}
        self.seen = {id(x): (x, ours) for x, ours in ((np.r_, library.r_), (faces, library))}

    def stand_in(self, x, kind: type):
        if x is np:
            return plain_on_device()
        if kind is type and is_rule(x) and not issubclass(x, Carrier):
            return self.klass(x)
        if isinstance(x, type) or kind in (dict, list, tuple, np.ndarray):
            return x
        if kind is types.FunctionType and is_rule(x):
            return self.rebuilt(x)
        if kind is types.ModuleType:
            return x if x.__name__ in MODULES else super().stand_in(x, kind)
        return (
            face_there(x)
            or (self.face(x) if (getattr(x, "__module__", None) or "").partition(".")[0] == "scipy" else None)
            or x
        )

    def klass(self, c: type) -> type:
        """A helper of the rules."""
        new = type(c.__name__, tuple([self(b) for b in c.__bases__]), {"__module__": c.__module__})
        self.seen[id(c)] = c, new
        for name, v in list(vars(c).items()):
            if name not in SKIPPED:
                setattr(new, name, self.member(v))
        return new


def face_there(x):
    """NumPy's face as CuPy's; None for anything else."""
    library = numpy_on_device()
    for place in (library, library.linalg, library.fft):
        name = getattr(x, "__name__", "")
        if getattr(place._host, name, None) is x:
            return getattr(place, name)
    return None


# modules of what rules are written with, and of sparse matrices, of which only the values lie on the device
PLAIN = (
    "tapegrad._scipy.sparse",
    "tapegrad._scipy.namespaces",
    "tapegrad._scipy.device",
    "tapegrad._scipy.followed",
    "tapegrad._scipy.linear_maps",
)


def is_rule(f) -> bool:
    """Is this function or class code of a rule, and no operation or word with which rules are written?"""
    home = f.__module__ or ""
    is_compiled = not isinstance(f, type) and f.__code__.co_filename.startswith("<")
    return home.startswith("tapegrad._scipy.") and not home.startswith(PLAIN) and not is_compiled


@functools.cache
def device_rule(rule: Callable) -> Callable:
    """The same rule for CuPy arrays."""
    return RULES().rebuilt_once(rule) if type(rule) is types.FunctionType and is_rule(rule) else rule


RULES = functools.cache(DeviceRules)
