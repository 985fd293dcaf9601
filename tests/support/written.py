"""The lines of the tables of calls, written for one library: with its public names in the places of modules
and functions, and with its arrays.

    line = lines()[0]
    written(line.f, Numpy())(x)      # as a user of NumPy and SciPy would have written it
    written(line.f, Cupy(cupy))(x)   # with cupy for numpy, cupyx.scipy.signal for scipy.signal
    names_of(line)                   # {("scipy.signal", "convolve")}

A function of a table knows its library by its globals, its defaults and what it has captured; these are
exchanged, and the functions that it calls likewise."""

import functools
import importlib
import types

import numpy as np
import scipy.sparse

SPACES = (
    "numpy", "numpy.linalg", "numpy.fft", "scipy", "scipy.special", "scipy.linalg", "scipy.fft",
    "scipy.stats", "scipy.signal",
    "scipy.ndimage", "scipy.interpolate", "scipy.optimize", "scipy.integrate", "scipy.spatial",
    "scipy.spatial.distance", "scipy.sparse",
    "scipy.sparse.linalg",
)  # fmt: skip
DEVICE = {"numpy": "cupy", "scipy": "cupyx.scipy"}


class Absent(AttributeError):
    """CuPy has no function of this name."""


def device_name(space):
    home, dot, rest = space.partition(".")
    return DEVICE[home] + dot + rest


@functools.cache
def homes():
    """id of a public function -> its names, as (namespace, name)."""
    found = {}
    for space in SPACES:
        module = importlib.import_module(space)
        for name, x in list(vars(module).items()):
            if not name.startswith("_") and callable(x):
                found.setdefault(id(x), []).append((space, name))
    return found


def space_of(module):
    """The namespace for which a module stands: tapegrad.scipy.fft for scipy.fft."""
    name = module.__name__.removeprefix("tapegrad.")
    return name if name in SPACES else None


class Numpy:
    """The libraries themselves."""

    def module(self, space):
        return importlib.import_module(space)

    def function(self, space, name):
        return getattr(importlib.import_module(space), name)

    def array(self, x):
        return x

    sparse = array


class Cupy:
    def __init__(self, cupy):
        self.cupy = cupy

    def module(self, space):
        try:
            return importlib.import_module(device_name(space))
        except ImportError:
            raise Absent(device_name(space)) from None

    def function(self, space, name):
        try:
            return getattr(self.module(space), name)
        except AttributeError:
            raise Absent(f"{device_name(space)}.{name}") from None

    def array(self, x):
        return self.cupy.asarray(x) if x.dtype.kind in "fcbiu" else x

    def sparse(self, x):
        return self.function("scipy.sparse", type(x).__name__)(x)


class Names(Numpy):
    """Notes the names that are asked for."""

    def __init__(self):
        self.seen = set()

    def module(self, space):
        return ModuleOf(self, space)

    def function(self, space, name):
        found = super().function(space, name)
        self.seen.update(homes().get(id(found), ()))
        return found


class ModuleOf:
    """A module whose names are asked of a library."""

    def __init__(self, library, space):
        self.__dict__.update(library=library, space=space)

    def __getattr__(self, name):
        library, below = self.library, f"{self.space}.{name}"
        return library.module(below) if below in SPACES else library.function(self.space, name)


def written(x, library, memo=None):
    """x, a function, a module, an array or a nest of these, for this library."""
    memo = {} if memo is None else memo
    if id(x) in memo:
        return memo[id(x)][0]
    if isinstance(x, types.ModuleType):
        space = space_of(x)
        return x if space is None else library.module(space)
    if isinstance(x, np.ndarray):
        return library.array(x)
    if scipy.sparse.issparse(x):
        return library.sparse(x)
    if type(x) in (list, tuple):
        return type(x)([written(v, library, memo) for v in x])
    if type(x) is dict:
        return {k: written(v, library, memo) for k, v in x.items()}
    x = getattr(x, "public", x)  # cases.registered
    face = (
        getattr(x, "__wrapped__", x)
        if (getattr(x, "__module__", "") or "").startswith(("tapegrad.", "numpy", "scipy"))
        else x
    )
    if callable(x):
        for f in (x, face):
            if id(f) in homes():
                return library.function(*homes()[id(f)][0])
    if isinstance(x, types.FunctionType) and not x.__module__.startswith(("tapegrad", "numpy", "scipy")):
        return function(x, library, memo)
    return x


def function(f, library, memo):
    names = memo.get(id(f.__globals__))
    if names is None:
        names = Globals(f.__globals__, library, memo)
        memo[id(f.__globals__)] = (names, f.__globals__)
    else:
        names = names[0]
    names.take(f.__code__)
    cells = tuple([types.CellType(written(c.cell_contents, library, memo)) for c in f.__closure__ or ()])
    made = types.FunctionType(f.__code__, names, f.__name__, written(f.__defaults__, library, memo), cells)
    made.__kwdefaults__ = written(f.__kwdefaults__, library, memo)
    made.__module__ = f.__module__
    memo[id(f)] = (made, f)
    return made


class Globals(dict):
    """The globals of a table for one library, taken as its functions need them."""

    def __init__(self, real, library, memo):
        super().__init__({k: v for k, v in real.items() if k.startswith("__")})
        self.real, self.library, self.memo = real, library, memo

    def take(self, code):
        for name in code.co_names:
            if name in self.real and name not in self:
                self[name] = None  # a function that calls itself
                self[name] = written(self.real[name], self.library, self.memo)
        for c in code.co_consts:
            if isinstance(c, types.CodeType):
                self.take(c)
