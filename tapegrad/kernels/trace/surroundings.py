"""The user's function with other globals: `np`, `math` and SciPy are replaced by their symbolic counterparts.

The function's code runs unchanged; only its globals and closure differ. Functions of the user that it calls
are rebuilt when they are first looked up. Captured numbers and arrays are constants of the kernel."""

import functools
import math
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
import scipy.linalg
import scipy.special

from ... import stats
from ..._capture import ModuleGlobals, Shadow, is_foreign
from ..._capture.kinds import is_user_class
from ..._capture.objects import kind_of
from ..._core.arrays import IMMUTABLE, is_array
from ..._core.errors import KernelError, steps_of
from ..._core.trees import Const
from ..._core.variable import Variable
from ..._dispatch.numbers import MATH, MODULES
from ..graph.nodes import Graph
from .array_functions import symbolic_astype, symbolic_full
from .captured import CapturedState
from .complex_numbers import complex_array
from .composite_functions import FOREIGN
from .interpolants import STAND_INS
from .symbolic import Sym, UnsupportedFunction, as_real_symbol, as_symbol_array, graph_of, is_complex, lift

DRAWN = (np.random.Generator, np.random.RandomState, random.Random)
CUPY = {
    "cupy": np,
    "cupy.linalg": np.linalg,
    "cupyx.scipy.linalg": scipy.linalg,
    "cupyx.scipy.special": scipy.special,
}


# in a kernel that a function under a transform makes
TWINS = {
    "tapegrad.numpy": np, "tapegrad.scipy": scipy, "tapegrad.scipy.linalg": scipy.linalg,
    "tapegrad.scipy.special": scipy.special,
}  # fmt: skip


def counterpart(x):
    """Return NumPy's or SciPy's counterpart of a module of tapegrad or CuPy, or of a function of CuPy,
    otherwise x; symbols have no library. Stand-ins for `math` and its functions become these again."""
    if isinstance(x, types.ModuleType):
        if x is MODULES["math"]:
            return math
        return CUPY.get(x.__name__) or TWINS.get(x.__name__, x)
    if type(x) is types.FunctionType and x.__module__ == "math":
        return getattr(x, "__wrapped__", x)
    if not (callable(x) and (getattr(x, "__module__", None) or type(x).__module__).startswith("cupy")):
        return x
    pairs = [(vars(sys.modules[name]), ours) for name, ours in CUPY.items() if name in sys.modules]
    return next((getattr(ours, name, x) for theirs, ours in pairs for name, f in theirs.items() if f is x), x)


class Float64Type(type):
    """np.float64 in a kernel function: the real number of a symbol, otherwise NumPy's class itself."""

    def __call__(cls, x=0.0):
        return as_real_symbol(x) if isinstance(x, Sym) else np.float64(x)

    def __instancecheck__(cls, x) -> bool:
        return isinstance(x, np.float64)

    def __eq__(cls, other) -> bool:
        return other is cls or other is np.float64

    def __hash__(cls) -> int:
        return hash(np.float64)


class Float64(np.float64, metaclass=Float64Type):
    pass


class WholeNumberType(type):
    """int in a kernel function: the whole part of a symbol, otherwise Python's class itself."""

    def __call__(cls, *args, **kwargs):
        x: Any = args[0] if len(args) == 1 else None
        known = not isinstance(x, Sym) or x.size != 1 or x.constant() is not None
        return int(*args, **kwargs) if known else np.trunc(as_real_symbol(x).item())

    def __instancecheck__(cls, x) -> bool:
        return isinstance(x, int)

    def __eq__(cls, other) -> bool:
        return other is cls or other is int

    def __hash__(cls) -> int:
        return hash(int)


class WholeNumber(int, metaclass=WholeNumberType):
    pass


class Rebuilder(Shadow):
    """The shadow of what the functions of one trace into the graph `g` capture: its arrays are constants, and
    nothing is handed back."""

    def __init__(self, g: Graph):
        super().__init__(None, [])
        self.begin()
        self.g, self.captured_state = g, CapturedState()
        self.inside = False  # of an object?  There a `Const` stays one.
        self.symbol: Callable = lambda x: x  # what stands for a captured Variable
        self.numpy = ModuleOverlay(np, self._creation())
        self.math = ModuleOverlay(
            math, {n: self._of_math(n) for n in dir(math) if callable(getattr(math, n))}
        )
        self.numpy.own["random"] = RandomStandIn()
        self.modules = {
            np: self.numpy,
            math: self.math,
            scipy: ModuleOverlay(scipy, {"stats": Densities()}),
            np.random: RandomStandIn(),
        }
        self.modules[random] = RandomStandIn()
        for m in (scipy.linalg, scipy.special):
            self.modules[m] = ModuleOverlay(m, {})

    def _creation(self) -> dict:
        g = self.g

        def wrapped(name):
            make = getattr(np, name)

            def run(*args, **kwargs):
                made = make(*args, **{k: v for k, v in kwargs.items() if k != "like"})
                if made.dtype.kind == "c":
                    return complex_array(g, made)
                return as_symbol_array(lift(g, made)) if made.dtype.kind == "f" else made

            return run

        def array(x, dtype=None, copy=True, **kwargs):
            if is_complex(x) or (dtype is not None and np.dtype(dtype).kind == "c"):
                return complex_array(g, x, copy)
            if graph_of(x) is None:
                made = np.array(x, dtype=dtype, **kwargs)
                return as_symbol_array(lift(g, made)) if made.dtype.kind == "f" else made
            made = symbolic_astype(lift(g, x), dtype)
            if not copy and (made.ndim or made.zero_d):
                return made
            return as_symbol_array(Sym(g, np.array(made.ids, **kwargs)))

        def asarray(x, dtype=None):
            return array(x, dtype, copy=False)

        made = {n: wrapped(n) for n in ("zeros", "ones", "empty", "eye", "identity", "linspace")}
        made.update(
            array=array,
            asarray=asarray,
            full=functools.partial(symbolic_full, g),
            asanyarray=asarray,
            float64=Float64,
        )
        return made

    def _of_math(self, name: str) -> Callable:
        theirs = getattr(math, name)
        ours = MATH.get(name)
        ours = FOREIGN.get(ours, ours)

        def run(*args, **kwargs):
            g = graph_of(*args)
            if g is None or is_complex(args):  # (a complex number has no float)
                return theirs(*args, **kwargs)
            if ours is None:
                raise g.refused(UnsupportedFunction(f"math.{name}"))
            return ours(*args, **kwargs)

        return run

    def __call__(self, x):
        """Return the stand-in for x inside the kernel function."""
        x = counterpart(x)
        kind: Any = type(x)
        if isinstance(x, Variable):
            return self.symbol(x)
        if kind in IMMUTABLE or is_array(x) or isinstance(x, Sym):
            return x
        if isinstance(x, types.ModuleType):
            return (
                Densities()
                if x.__name__ == "scipy.stats"
                else self.modules.get(x) or (x if is_foreign(x.__name__) else self.module(x))
            )
        if kind.__module__.startswith("scipy.stats"):
            return density(x)
        if isinstance(x, DRAWN):
            return RandomStandIn()
        if kind in STAND_INS:
            return STAND_INS[kind](x, self)
        name: Any = getattr(x, "__name__", None)
        if kind is types.BuiltinFunctionType and getattr(math, name, None) is x:
            return getattr(self.math, name)
        if kind is Const:
            return x if self.inside else self(x.value)
        try:
            if x in FOREIGN:
                return FOREIGN[x]
        except (TypeError, ValueError):  # unhashable
            pass
        if getattr(x, "__module__", None) == "numpy" and name in self.numpy.own and getattr(np, name) is x:
            return self.numpy.own[name]
        if isinstance(getattr(x, "py_func", None), types.FunctionType):
            return self(x.py_func)
        users = is_user_class(x if isinstance(x, type) else kind)
        if not users and kind is not types.FunctionType and kind_of(x) is None:
            return x
        before, self.inside = self.inside, kind is not types.FunctionType
        new = super().__call__(x)
        self.inside = before
        return new

    def function(self, f: types.FunctionType) -> types.FunctionType:
        space = f.__globals__
        if (is_foreign(f.__module__) and "users" not in f.__dict__) or (
            type(space) is ModuleGlobals and space.shadow is self
        ):
            return f
        return self.rebuilt(f, self.globals_of(space))

    def method(self, m):
        return m if isinstance(m.__self__, DRAWN) else super().method(m)  # (the trace notices draws)

    def globals_of(self, space: dict) -> ModuleGlobals:
        made = self.own_globals(space)
        if "int" not in space and "int" not in made.first:
            made.first["int"] = WholeNumber
            dict.__setitem__(made, "int", WholeNumber)
        return made

    def noted(self, x) -> None:
        """(A kernel compares by itself what its functions capture.)"""


def rebuilt_with(f, users=None) -> types.FunctionType:
    """Mark a function of this package that calls the user's: both are rebuilt, and errors name the user's."""
    f.users = f if users is None else users
    return f


class Densities:
    """scipy.stats as the densities of tapegrad.stats, which consist of traceable operations."""

    def __getattr__(self, name: str):
        if name in stats.__all__:
            return getattr(stats, name)
        raise KernelError(
            f"scipy.stats.{name} has no translation into a kernel; there are {', '.join(stats.__all__)}"
        )


def density(x):
    """Return the stand-in for an object of scipy.stats that the user imported by name."""
    theirs = sys.modules["scipy.stats"]
    return next((getattr(stats, name) for name in stats.__all__ if getattr(theirs, name, None) is x), x)


class RandomStandIn:
    """Stands for a generator of random numbers."""

    def __getattr__(self, name: str):
        raise KernelError(
            f"{name}: a kernel function is traced once, and random numbers drawn in it would be the same in "
            "every launch. Draw them outside and pass them as data"
        )


class ModuleOverlay:
    """A module with some functions replaced: its own, and those of SciPy that have a composition."""

    def __init__(self, module: types.ModuleType, own: dict):
        self.module, self.own = module, own

    def __getattr__(self, name: str):
        if name in self.own:
            return self.own[name]
        value = getattr(self.module, name)
        if isinstance(value, types.ModuleType) and value.__name__ in ("scipy.linalg", "scipy.special"):
            return ModuleOverlay(value, {})
        return FOREIGN.get(value, value) if callable(value) else value


def origin(f) -> str:
    """Return 'name (file:line)' of a user's function."""
    f = getattr(f, "users", f)
    code = getattr(f, "__code__", None)
    name = getattr(f, "__name__", type(f).__name__)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def line_of(error: BaseException, f) -> str:
    """Return the line of the user's function where the error arose."""
    file = getattr(getattr(getattr(f, "users", f), "__code__", None), "co_filename", "tapegrad/kernels")
    found = [
        step
        for step in steps_of(error)
        if step.tb_frame.f_code.co_filename == file and "tapegrad/kernels" not in file
    ]
    return f"{file}:{found[-1].tb_lineno}" if found else origin(f)
