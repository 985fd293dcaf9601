"""Builtins and parts of the standard library that rebuilt functions see: those that must know of shadows.

A function takes its builtins from its globals when it is made; `ModuleGlobals` gives `BUILTINS`, which is
Python's own but for these. Others may add theirs."""

import builtins
import dis
import functools
import importlib
import inspect
import operator
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from .._core.bytecode import instructions_of
from .._core.registry import late
from .._core.scope import OPEN
from .._core.variable import Subarray
from .._dispatch.numbers import NUMBER_TYPES
from ..numpy import ndarray
from . import array_subclasses
from .classes import metaclass
from .deferred import DEFERRED
from .kinds import EMPTY, Holder, mro_of, original, space_of, stands_for
from .type_queries import hasattr_, meant, memoryview_, type_


class BuiltinStandIns(dict):
    """The stand-ins; what has none is looked up in Python's builtins as they are now."""

    __slots__ = ()

    def __missing__(self, name):
        return vars(builtins)[name]


def of_all_names(name: str) -> Any:
    """The method of this name, which looks at all names of the module."""
    method = getattr(dict, name)
    return lambda self: method(self.fill())


class ModuleGlobals(dict):
    """The globals of rebuilt functions of one module: each name is looked up in the module and shadowed at
    its first use.

    Python's opcodes read and write the dict itself; the methods are for `globals()`, which shows the names of
    the module."""

    __slots__ = ("real", "shadow", "met", "first", "__weakref__")

    def __init__(self, real: Any, shadow: Any):
        """`met`, `first`: of each name that was asked for, what it meant and the shadow of that; of these,
        what is in the dict no more was deleted."""
        self.real, self.shadow = real, shadow
        self.met: dict = {}
        # C code that makes a class looks for its module here
        self.first = {"__builtins__": BUILTINS, "__name__": real.get("__name__")}
        if "__warningregistry__" in real:  # which Python alters, of the warnings that it has shown
            self.first["__warningregistry__"] = real["__warningregistry__"]
        dict.update(self, self.first)

    def __missing__(self, name):
        value = self.real[name]
        if self.shadow is None:  # the call has ended; this function leaked out of it
            return value
        if name in self.first:
            raise KeyError(name)
        self.met[name] = value
        new = self.shadow(value)
        dict.__setitem__(self, name, new)
        self.first[name] = new  # last: what is here, and not in the dict, counts as deleted
        return new

    def keep(self, names: tuple) -> None:
        """Names that the code deletes."""
        for name in names:
            if name in self:
                self[name]

    def fill(self) -> "ModuleGlobals":
        """All names of the module."""
        for name in list(self.real):
            if name in self:
                self[name]
        return self

    def touch(self, code: types.CodeType) -> None:
        """The names that code may use: class bodies and exec look into the dict itself."""
        for name in names_in(code):
            if name in self.real:
                try:
                    self[name]
                except KeyError:
                    pass

    def get(self, name, default=None):
        return self[name] if name in self else default

    def __contains__(self, name):
        return dict.__contains__(self, name) or (name in self.real and name not in self.first)

    __iter__, __len__, keys, values, items = map(
        of_all_names, ("__iter__", "__len__", "keys", "values", "items")
    )

    def copy(self):
        return dict(dict.items(self.fill()))

    def setdefault(self, name, default=None):
        if name not in self:
            self[name] = default
        return self[name]

    def __delitem__(self, name):
        self[name]
        dict.__delitem__(self, name)

    def pop(self, name, *default):
        if name not in self and default:
            return default[0]
        value = self[name]
        del self[name]
        return value


class GlobalNames(Holder):
    """(Names, globals of a module, those that stand for them)"""

    words = "a global name"

    @staticmethod
    def bound(space: ModuleGlobals) -> list:
        """(name, value) of those that were bound; `EMPTY` for a value that was deleted."""
        first, values = space.first, dict.values(space)
        if (
            len(values) == len(first)
            and all(map(operator.is_, values, first.values()))
            and all(map(operator.is_, dict.keys(space), first))
        ):
            return []
        found = [(name, EMPTY) for name in first if not dict.__contains__(space, name)]
        return found + [(n, v) for n, v in dict.items(space) if v is not first.get(n, EMPTY)]

    @staticmethod
    def named(change: tuple) -> list:
        return GlobalNames.bound(change[2])

    @staticmethod
    def altered(shadow: Any, change: tuple) -> bool:
        return bool(GlobalNames.other(change[2]))

    @staticmethod
    def other(space: ModuleGlobals) -> set:
        """The names that f, or something else, has bound."""
        real = space.real
        return {name for name, _ in GlobalNames.bound(space)} | {
            n for n, v in space.met.items() if real.get(n, EMPTY) is not v
        }

    @staticmethod
    def undo(back: Any, change: tuple) -> None:
        """Afterwards no name means a shadow any longer."""
        _, real, space = change
        if dict.__len__(space) > 2 or len(space.first) > 2:
            for name, v in () if back.undo or space.shadow is None else GlobalNames.bound(space):
                if v is EMPTY:
                    real.pop(name, None)
                else:
                    real[name] = back(v)
            space.shadow = None  # from now on nothing is handed back: not what is cleared below, either
            space.first.clear()
            space.met.clear()
        space.shadow = None
        dict.clear(space)

    @staticmethod
    def with_number(change: tuple, name: str, number: Any) -> tuple:
        _, real, space = change
        real[name] = space.met[name] = space.first[name] = number
        return change

    @staticmethod
    def places(change: tuple, side: int) -> list:
        _, real, space = change
        return [("names", (real, tuple(space.met)))] if side == 1 else [("dicts", space)]

    @staticmethod
    def is_unmodified(shadow: Any, change: tuple) -> bool:
        _, real, space = change
        made = [space.first.get(name, EMPTY) for name in space.met]
        held = [real.get(name, EMPTY) for name in space.met]
        return not GlobalNames.bound(space) and stands_for(shadow, held, made)


class ModuleShadow:
    """A user's module seen from a rebuilt function.  Its namespace is the `ModuleGlobals` of the functions of
    that module."""

    def __init__(self, space: ModuleGlobals):
        object.__setattr__(self, "__dict__", space)

    __class__: Any = property(lambda self: types.ModuleType)

    def __getattr__(self, name):
        space = object.__getattribute__(self, "__dict__")
        if name in space:
            return space[name]
        if "__getattr__" in space:
            return space["__getattr__"](name)
        raise AttributeError(f"module {space.get('__name__')!r} has no attribute {name!r}")

    def __delattr__(self, name):
        del object.__getattribute__(self, "__dict__")[name]

    def __repr__(self):
        return f"<module {self.__name__!r}>"


class PatchedModule:
    """A module of the standard library with some of its names replaced."""

    def __init__(self, real, **names):
        self.__dict__.update(names, _tg_real=real)

    __class__: Any = property(lambda self: types.ModuleType)

    def __getattr__(self, name):
        return getattr(self._tg_real, name)

    def __setattr__(self, name, value):
        setattr(self._tg_real, name, value)


class ModuleTable(Mapping):
    """`sys.modules`, whose modules are seen as by an import."""

    def __getitem__(self, name: str) -> Any:
        return shadowed(sys.modules[name])

    def __iter__(self) -> Iterator:
        return iter(list(sys.modules))

    def __len__(self) -> int:
        return len(sys.modules)


def shadowed(x: Any, space: Any = None) -> Any:
    """x as the function with these globals, by default the nearest rebuilt one that is running, is to see
    it. Where none runs, as in a sweep, all open transforms replace it, the outermost first."""
    frame: Any = sys._getframe(1)
    for _ in range(NEAR_FRAMES):
        if type(space) is ModuleGlobals or frame is None:
            break
        space, frame = frame.f_globals, frame.f_back
    if type(space) is ModuleGlobals:
        if type(space.real) is ModuleGlobals:  # a checkpoint's, of a function that was rebuilt already
            x = shadowed(x, space.real)
        return x if space.shadow is None else space.shadow(x)
    for shadow in OPEN.shadows:
        x = shadow(x)
    return x


late.shadowed = shadowed
NEAR_FRAMES = 5  # frames of the standard library between


def of_code(function: Callable) -> Callable:
    """A function of a code object, which never changes: what it gives is kept as long as the code lives."""
    known: dict = {}  # id of a code -> (a weak reference to it, the result)

    @functools.wraps(function)
    def result(code: types.CodeType) -> Any:
        found = known.get(id(code))
        if found is None:
            key = id(code)
            found = known[key] = weakref.ref(code, lambda _: known.pop(key, None)), function(code)
        return found[1]

    return result


@of_code
def names_in(code: types.CodeType) -> frozenset:
    return frozenset([name for c in codes_in(code) for name in c.co_names])


@of_code
def texts_in(code: types.CodeType) -> frozenset:
    return frozenset([k for c in codes_in(code) for k in c.co_consts if type(k) is str])


def codes_in(code: types.CodeType) -> list:
    """The code, and that of the functions in it."""
    found = [code]
    for c in found:
        found += [k for k in c.co_consts if isinstance(k, types.CodeType)]
    return found


DELETE = dis.opmap["DELETE_GLOBAL"]


@of_code
def deletes(code: types.CodeType) -> tuple:
    """The globals that code, or a function in it, deletes.  The opcode would not find them: it looks into the
    dict itself."""
    here = [c for c in codes_in(code) if DELETE in c.co_code[::2]]  # opcodes stand at even places
    return tuple({c.co_names[n] for c in here for operation, n in instructions_of(c) if operation == DELETE})


BOUND_CALL = re.compile(r"LOAD_FAST\S* (LOAD_METHOD|LOAD_ATTR)=__getattribute__ LOAD_(FAST|CONST)\S* CALL\b")


@of_code
def reads_past_classes(code: types.CodeType) -> bool:
    """Does the code use `__getattribute__` of a class?  `x.__getattribute__(name)` of a local x is that of
    the class of x, which knows what it does."""
    if "__getattribute__" not in names_in(code):
        return False
    steps = [i for c in codes_in(code) for i in dis.get_instructions(c) if i.opname != "PRECALL"]
    told = " ".join([i.opname + f"={i.argval}" * (i.argval == "__getattribute__") for i in steps])
    return "super" in names_in(code) or told.count("=__getattribute__") != len(BOUND_CALL.findall(told))


CLASS_ATTRIBUTES = frozenset(["__class__", "type"])


@of_code
def is_usual(code: types.CodeType) -> bool:
    """Does the code neither delete globals, nor read classes or attributes past the class of an object?"""
    return not deletes(code) and names_in(code).isdisjoint({"__getattribute__", *CLASS_ATTRIBUTES})


# --- the stand-ins ---


def import_(name, globals=None, locals=None, fromlist=(), level=0):
    real = globals
    while type(real) is ModuleGlobals:
        real = real.real
    return shadowed(builtins.__import__(name, real, locals, fromlist, level), globals)


def import_module(name, package=None):
    return shadowed(importlib.import_module(name, package), sys._getframe(1).f_globals)


def getattr_static(x, name, *default):
    found = inspect.getattr_static(x, name, *default)
    return found.member() if type(found) in DEFERRED else found


def build_class(body, name, /, *bases, **options):
    if type(body.__globals__) is ModuleGlobals:
        body.__globals__.touch(body.__code__)
    bases = tuple([original(b) if b in NUMBER_TYPES else np.ndarray if b is ndarray else b for b in bases])
    if bases and (meta := metaclass(bases, options.get("metaclass"))) is not None:
        options["metaclass"] = meta
    return builtins.__build_class__(body, name, *bases, **options)


def scope(frame: Any, source: Any, mode: str, globals: Any, locals: Any) -> tuple:
    """(code, globals, locals) of what exec or eval, called in this frame, is to run."""
    if globals is None:
        globals = frame.f_globals
        if locals is None:
            # CO_OPTIMIZED: of a function
            locals = dict(frame.f_locals) if frame.f_code.co_flags & 1 else frame.f_locals
    if not isinstance(source, types.CodeType):
        source = compile(
            source.lstrip(" \t") if mode == "eval" and isinstance(source, str) else source,
            "<string>",
            mode,
            dont_inherit=True,
        )
    if type(globals) is ModuleGlobals:
        globals.touch(source)
    elif "__builtins__" not in globals:
        globals["__builtins__"] = BUILTINS
    return source, globals, locals


def exec_(source, globals=None, locals=None, /, **options):
    builtins.exec(*scope(sys._getframe(1), source, "exec", globals, locals), **options)


def eval_(source, globals=None, locals=None, /):
    return builtins.eval(*scope(sys._getframe(1), source, "eval", globals, locals))


class SuperType(type):
    """`super` from the class that the user wrote: behind it, not behind its shadow, comes what it would find
    in a plain call."""

    def __call__(cls, *args):
        if args:
            return builtins.super(*behind(original(args[0]), *args[1:]))
        frame = sys._getframe(1)
        code, names = frame.f_code, frame.f_locals
        if not code.co_argcount:
            raise RuntimeError("super(): no arguments")
        if "__class__" not in names:
            raise RuntimeError("super(): __class__ cell not found")
        return builtins.super(*behind(original(names["__class__"]), names[code.co_varnames[0]]))

    def __instancecheck__(cls, x):
        return isinstance(x, super)


def behind(c: type, *of: Any) -> tuple:
    """The arguments of `super`. Behind a subclass of ndarray come the members of its subarrays."""
    if not of or not issubclass(c, np.ndarray):
        return c, *of
    (x,) = of
    if isinstance(x, type):
        x = array_subclasses.subarray_class(x)
    kind = x if isinstance(x, type) else type(x)
    if not issubclass(kind, Subarray):
        return c, x
    return next(k for k in mro_of(kind) if original(space_of(k).get("_tg_of", k)) is c), x


class super_(metaclass=SuperType):
    """(Its attributes are those of `super`: `super.__setattr__(self, name, value)`.)"""


def real_kinds(kinds: Any) -> Any:
    """Classes as the user wrote them, in what isinstance takes: virtual subclasses are registered there."""
    if type(kinds) is tuple:
        return tuple([real_kinds(k) for k in kinds])
    return original(space_of(kinds).get("_tg_of", kinds)) if isinstance(kinds, type) else kinds


def isinstance_(x, kinds, /):
    return isinstance(meant(x), real_kinds(kinds))


def issubclass_(c, kinds, /):
    return issubclass(real_kinds(c), real_kinds(kinds))


def outermost(x: Any) -> Any:
    """The object of the user's that x stands for; x itself if it stands for none."""
    for shadow in reversed(OPEN.shadows):
        old = shadow.original(x)
        x = x if old is None else old
    return x


def id_(x, /):
    """(Dicts may be keyed by it, or by the hash that is made of it.)"""
    return id(outermost(x))


def hash_(x, /):
    return hash(outermost(x) if type(x).__hash__ is object.__hash__ else x)


# Python's own C code takes these from the dict itself, past `__missing__`.
TAKEN = (
    "iter",
    "reversed",
    "getattr",
    "next",
    "range",
    "zip",
    "map",
    "filter",
    "enumerate",
    "__build_class__",
)
BUILTINS = BuiltinStandIns(
    {name: vars(builtins)[name] for name in TAKEN},
    __import__=import_,
    __build_class__=build_class,
    exec=exec_,
    eval=eval_,
    super=super_,
    isinstance=isinstance_,
    issubclass=issubclass_,
    type=type_,
    hasattr=hasattr_,
    id=id_,
    hash=hash_,
    memoryview=memoryview_,
    float=NUMBER_TYPES[float],
    complex=NUMBER_TYPES[complex],
)
LIBRARY = {
    importlib: PatchedModule(importlib, import_module=import_module),
    inspect: PatchedModule(inspect, getattr_static=getattr_static),
    sys: PatchedModule(sys, modules=ModuleTable()),
}
FUNCTIONS = {
    importlib.import_module: import_module,
    inspect.getattr_static: getattr_static,
}  # bound by `from ... import`
