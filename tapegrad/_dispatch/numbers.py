"""`float`, `complex`, `math`, `cmath`, `statistics` and `json` for tracked numbers.

Python's own are compiled and take a plain number from a tracked one, which drops its derivative.  In code
that is followed these stand for them.  They call Python's own function unless a number is tracked, and where
the values may be seen also then, so that its errors are raised."""

import cmath
import copyreg
import functools
import json
import math
import operator
import statistics
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from .._core.primitive import any_tracked, is_subarray, is_tracked, layout_of, seen, values_of
from .._core.serialized import refuse_written
from .._core.trees import REAL, nested
from .._core.variable import FLOAT, HANDLES, variable
from ..ops.creation import cast
from ..ops.declare import NUMPY, dtype, xp
from ..ops.shaping import nested_to_array
from .digests import DIGESTS
from .serialization import noting
from .subarrays import own_method


def remainder(x, y):
    """What is left of x beside the nearest multiple of y, the even one of two. Each step is exact, as in
    Python's own."""
    sign, b = np.where(x < 0, -1.0, 1.0), np.abs(y)
    m = np.fmod(sign * x, b)
    c = b - m
    return sign * np.where(m < c, m, np.where(m > c, -c, m - 2 * np.fmod(0.5 * (sign * x - m), b)))


# functions of math that NumPy has under the same name, with the same arguments
SAME = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh degrees exp exp2 expm1 floor fmod "
    "isfinite isinf isnan log10 log1p log2 modf pow radians sin sinh sqrt tan tanh trunc".split()
)
# Each function of `math` as one of arrays and of the symbols of kernels.
MATH = {
    **{name: getattr(np, name) for name in SAME}, "fabs": np.abs, "lgamma": scipy.special.gammaln,
    "gamma": scipy.special.gamma,
    "erf": scipy.special.erf, "erfc": scipy.special.erfc,
    "log": lambda x, base=None: np.log(x) if base is None else np.log(x) / np.log(base),
    "hypot": lambda *x: functools.reduce(np.hypot, x), "fsum": sum, "prod": lambda x, *,
    start=1: functools.reduce(operator.mul, x, start),
    "dist": lambda p, q: functools.reduce(np.hypot, [a - b for a, b in zip(p, q, strict=True)]),
    "sumprod": lambda p, q: sum([a * b for a, b in zip(p, q, strict=True)]),
    "ldexp": lambda x, i: x * 2.0**i, "remainder": remainder, "fma": lambda x, y, z: x * y + z,
}  # fmt: skip
CMATH = {
    **{name: MATH[name] for name in dir(cmath) if name in SAME and not name.startswith("is")},
    "log": MATH["log"],
    "phase": np.angle, "polar": lambda z: (np.abs(z), np.angle(z)), "rect": lambda r,
    phi: r * np.exp(1j * phi),
}  # fmt: skip


def of_list(f: Callable) -> Callable:
    return lambda *xs, **settings: f(*map(nested_to_array, xs), **settings)


def regression_line(x: Any, y: Any) -> statistics.LinearRegression:
    c = np.cov(x, y)
    slope = c[0, 1] / c[0, 0]
    return statistics.LinearRegression(slope, np.mean(y) - slope * np.mean(x))


STATISTICS = {
    "mean": of_list(np.mean), "fmean": of_list(lambda xs, weights=None: np.average(xs, weights=weights)),
    "median": of_list(np.median),
    "pvariance": of_list(np.var), "variance": of_list(lambda xs: np.var(xs, ddof=1)),
    "pstdev": of_list(np.std),
    "stdev": of_list(lambda xs: np.std(xs, ddof=1)),
    "geometric_mean": of_list(lambda xs: np.exp(np.mean(np.log(xs)))),
    "harmonic_mean": of_list(lambda xs: 1 / np.mean(1 / xs)),
    "covariance": of_list(lambda x, y: np.cov(x, y)[0, 1]),
    "correlation": of_list(lambda x, y: np.corrcoef(x, y)[0, 1]),
    "linear_regression": of_list(regression_line),
}  # fmt: skip
OF_VALUES = frozenset(
    ("ceil", "floor", "trunc", "isfinite", "isinf", "isnan", "isclose", "dump", "dumps")
)  # these have derivative zero


OF_COMPLEX = frozenset(("prod", "sumprod"))  # functions of `math` that take complex numbers too
OF_SEQUENCES = frozenset(("dist", "fsum", "prod", "sumprod", *STATISTICS))
ROUNDED_ONCE = frozenset(("fsum", "fma", "sumprod"))  # a value that is added to their result


def number(x, to: type = float):
    """A tracked array or number as a tracked number of Python's type `to`."""
    if type(x) is FLOAT and to is float:
        return x
    if type(x) not in HANDLES:
        return to(x)  # Python's error
    layout = layout_of(x)
    to(np.ones(layout.shape, layout.dtype))  # NumPy's error, or warning, for an array
    return cast(x.reshape(()) if layout.ndim else x, np.dtype(to))[()]


@nested
def tracked_number(x):
    if is_subarray(x):
        return NUMBER_TYPES[float](x)
    return (
        number(x, complex if layout_of(x).dtype.kind == "c" else float)
        if type(x) in HANDLES and is_tracked(x)
        else x
    )


@nested
def tracked_real(x):
    """The same for a function of real numbers, which refuses a complex one."""
    return number(x) if type(x) in HANDLES and is_tracked(x) else tracked_number(x)


@nested
def seen_values(x):
    """The values of x; raises LookupError where they may not be seen."""
    if type(x) not in HANDLES:
        return x
    if (value := seen(x)) is None:
        raise LookupError
    return value.item()  # `math.sumprod` rounds less for floats of Python


def on_numbers(f: Callable, ours: Callable | None) -> Callable:
    """A function of the library, which calls `ours` if a number is tracked."""

    converted = tracked_real if f.__module__ == "math" and f.__name__ not in OF_COMPLEX else tracked_number
    sequences, ours = f.__name__ in OF_SEQUENCES, NUMPY.get(ours, ours)

    @functools.wraps(f)
    def run(*args, **kwargs):
        if len(args) == 1 and type(x := args[0]) is FLOAT and ours is not None and is_tracked(x):
            if not kwargs and (value := seen(x)) is not None:  # the usual case
                f(value)  # raises the library's errors
                return ours(x)
        if sequences:
            args = tuple([list(a) for a in args])
        if not any_tracked(args):
            return f(*args, **kwargs)
        if ours is None:
            return f(*plain_values(args) if f.__name__ in OF_VALUES else args, **kwargs)
        args = converted(args)
        try:
            exact = f(*seen_values(args), **kwargs)
        except LookupError:
            return ours(*args, **kwargs)
        y = ours(*args, **kwargs)
        return y + (exact - seen(y)) if f.__name__ in ROUNDED_ONCE else y

    return run


plain_values = nested(values_of)


def complex_first(f: Callable) -> Callable:
    """A function of cmath: of a real number it may be complex."""
    return lambda z, *more: f(z + 0j, *more)


def stand_in(module: types.ModuleType, table: dict) -> types.ModuleType:
    """The module with functions of `table` for its own; other names mean what they mean in the module now."""
    new = types.ModuleType(module.__name__, module.__doc__)
    known = [name for name in (*table, *OF_VALUES) if type(getattr(module, name, None)) in FUNCTIONS]
    vars(new).update(
        {
            name: on_numbers(getattr(module, name), None if name in OF_VALUES else table[name])
            for name in known
        }
    )
    vars(new)["__getattr__"] = functools.partial(getattr, module)
    return new


FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
MODULES = {
    "math": stand_in(math, MATH),
    "cmath": stand_in(cmath, {name: f if name == "rect" else complex_first(f) for name, f in CMATH.items()}),
    "statistics": stand_in(statistics, STATISTICS),
    "json": stand_in(json, {}),
    **DIGESTS,
}
for _f in (json.dump, json.dumps, json.load, json.loads):
    setattr(MODULES["json"], _f.__name__, noting(_f, getattr(MODULES["json"], _f.__name__)))


def complex_of(x, y):
    """x + iy; zeros keep their signs."""
    if any([dtype(v).kind == "c" or xp(v) is not np for v in (x, y)]):
        return x + 1j * y
    z: Any = variable(np.zeros((), complex))
    z.real, z.imag = x, y
    return z[()]


class NumberType(type):
    """A stand-in for a type of numbers: called, it keeps what is tracked; otherwise it is that type."""

    theirs: Any

    def __call__(cls, *args, **kwargs):
        name = f"__{cls.theirs.__name__}__"
        kind = type(args[0]) if len(args) == 1 else str
        if cls.theirs is float and hasattr(kind, "real_number"):  # of a symbol of a kernel
            return args[0].real_number
        if type(method := getattr(kind, name, None)) is types.FunctionType and kind not in HANDLES:
            if not is_subarray(x := args[0]) or own_method(x, name):
                y = method(x)  # called from C it could return no tracked number
                if is_tracked(y):
                    return number(y, cls.theirs)
                return cls.theirs(type(kind.__name__, (), {name: lambda _: y})())  # Python's error
        if not any_tracked(args):
            if args and type(args[0]) in (str, bytes):
                refuse_written(args[0], f"{cls.theirs.__name__}(text)")
            return cls.theirs(*args, **kwargs)
        x, *more = args
        if is_subarray(x):
            x = x._array
        if cls.theirs is complex and more:
            return complex_of(tracked_number(x), tracked_number(more[0]))
        if cls.theirs in (float, complex):
            return number(x, cls.theirs)
        return cast(nested_to_array(x) if type(x) in (list, tuple) else x, np.dtype(cls.theirs))

    def __instancecheck__(cls, x):
        return isinstance(x, cls.theirs)

    def __subclasscheck__(cls, c):
        return issubclass(c, cls.theirs)

    def __eq__(cls, other):
        return True if other is cls or other is cls.theirs else NotImplemented

    def __hash__(cls):
        return hash(cls.theirs)

    def __repr__(cls):
        return repr(cls.theirs)

    def _handed_back(cls):
        return cls.theirs


def of_type(f) -> Callable:
    """A method of the type `float` or `complex`, such as `float.__mul__`, which takes a number that stands
    for one."""
    return lambda x, *more: getattr(x, f.__name__)(*more) if any_tracked((x, *more)) else f(x, *more)


SLOTS = [
    f for kind in (float, complex) for f in vars(kind).values() if type(f) is types.WrapperDescriptorType
]
OPERATORS = {
    f: of_type(f) for f in SLOTS if f.__name__.strip("_") in dir(operator) or f.__name__.startswith("__r")
}


def number_type(real):
    space = {
        "__slots__": (),
        "__module__": real.__module__,
        "__doc__": real.__doc__,
        "theirs": real,
        REAL: real,
    }
    if real.__module__ == "builtins":
        space |= {f.__name__: ours for f, ours in OPERATORS.items() if f.__objclass__ is real}
        space["dtype"] = np.dtype(real)  # by which NumPy takes the class for this dtype
    return NumberType(real.__name__, (real,), space)


SCALAR_TYPES: set = {np.dtype(code).type for code in "bhilqBHILQefdgFDG"}
NUMBER_TYPES: dict[type, Any] = {real: number_type(real) for real in (float, complex, *SCALAR_TYPES)}
pickled: Any = lambda c: (type, (c.theirs(),))
copyreg.pickle(NumberType, pickled)
