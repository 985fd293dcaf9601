"""What the families of distributions have in common: parameters, support, which function answers, SciPy's own."""

import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from .._array import NUMBERS, xp_of
from .._late import load
from .._loans import lend
from .._primitive import is_tracked, layout_of, primal_of
from .._scope import OPEN
from .._variable import Variable
from ..errors import ArgumentError, NoRuleError
from ..ops import shaping
from ..ops._define import dtype, primitive, xp
from ..ops._protocols import any_tracked
from ..ops.elementwise import exp, expm1, log, log1p, select

LOG_2 = math.log(2.0)


def array_of(x: Any) -> Any:
    return shaping.stacked(x) if isinstance(x, (list, tuple)) else x


def number_like(a: Any, x: Any) -> Any:
    """A Python number as one of the dtype of x, so that float32 stays float32."""
    a = array_of(a)
    if type(a) not in (int, float):
        return a
    return dtype(x).type(a) if dtype(x).kind == "f" else np.float64(a)


# --- SciPy's own, and when it is asked ---


def scipy_stats() -> ModuleType:
    """scipy.stats, which takes half a second to import, so only when something of it is asked for."""
    return load("scipy.stats")


def settled(xs: Any) -> bool:
    """Are these plain values that SciPy takes, none of them tracked?"""
    for x in xs:
        if isinstance(x, (list, tuple)):
            if not settled(x):
                return False
        elif isinstance(x, Variable):
            if is_tracked(x) or xp_of(layout_of(x)) is not np:
                return False
        elif not issubclass(type(x), (np.ndarray, np.generic, str, type(None))) and type(x) not in NUMBERS:
            return False
    return True


def derived(method: Callable) -> Callable:
    """A method that is ours where it gets something tracked (outside of transforms always); else SciPy's."""

    @functools.wraps(method)
    def run(self, *args, **given):
        if OPEN.depth and settled(args) and settled(given.values()):
            return getattr(self.theirs(), method.__name__)(*lend(args), **lend(given))
        return method(self, *args, **given)

    run.ours = True
    return run


def library_method(name: str, f: Any) -> Any:
    """An attribute of SciPy's; a method refuses tracked values."""
    if not callable(f):
        return f

    @functools.wraps(f)
    def run(*args, **given):
        if any_tracked(args) or any_tracked(given.values()):
            raise NoRuleError(
                f"scipy.stats.{name} has no derivative rule in tapegrad; cut the derivative with tapegrad.value, or compose it of others"
            )
        return f(*lend(args), **lend(given))

    return run


@primitive(batch="elementwise")
def quantiles(*xs, name, call):
    """SciPy's quantiles of primal values: probabilities and shape parameters."""
    return getattr(getattr(scipy_stats(), name), call)(*xs).astype(np.result_type(*xs))[()]


class Distribution:
    """What all have: SciPy's distribution of the same name answers for the methods that have no derivative here."""

    name: str

    def __repr__(self) -> str:
        return f"<tapegrad.stats.{self.name}>"

    def theirs(self) -> Any:
        return getattr(scipy_stats(), self.name)

    def __getattr__(self, call: str) -> Any:
        if call.startswith("_") or "name" not in vars(self):
            raise AttributeError(call)
        return library_method(f"{self.name}.{call}", getattr(self.theirs(), call))

    def __call__(self, *args: Any, **given: Any) -> "Frozen":
        return Frozen(self, args, given)


class Frozen:
    """A distribution with its parameters: `norm(loc, scale).logpdf(x)`."""

    def __init__(self, family: Distribution, args: tuple, given: dict):
        self._family, self._args, self._given = family, args, given
        if not (any_tracked(args) or any_tracked(given.values())):
            family.theirs()(*lend(args), **lend(given))  # raises as SciPy does

    def __repr__(self) -> str:
        return f"<tapegrad.stats.{self._family.name}, frozen>"

    def __getattr__(self, call: str) -> Any:
        if call.startswith("_"):
            raise AttributeError(call)
        family, args, given = self._family, self._args, self._given
        if getattr(getattr(type(family), call, None), "ours", False):
            return lambda x: getattr(family, call)(x, *args, **given)
        if any_tracked(args) or any_tracked(given.values()):
            raise NoRuleError(
                f"scipy.stats.{family.name}(...).{call} of tracked parameters has no derivative rule in tapegrad; "
                "cut the derivative with tapegrad.value"
            )
        frozen = family.theirs()(*lend(args), **lend(given))
        return library_method(f"{family.name}(...).{call}", getattr(frozen, call))


CALLS = ("logpdf", "cdf", "sf", "logcdf", "logsf", "ppf", "isf")


class Continuous(Distribution):
    """A family of densities with location and scale.  Its functions of the standardised z and the shape parameters are given
    as texts of mathematics below: `logpdf` and, where known, the distribution function in the forms that are exact."""

    def __init__(self, name: str, shapes: str = "", low: Any = -math.inf, high: Any = math.inf, **functions: Callable):
        self.name, self.shapes, self.low, self.high = name, shapes.split(), low, high
        self.functions = completed(functions)

    def _parameters(self, call: str, x: Any, args: tuple, loc: Any, scale: Any, given: dict) -> tuple:
        """(x, the shape parameters, loc, scale)."""
        k = len(self.shapes)
        if given:
            args = args + tuple([given.pop(n) for n in self.shapes[len(args) :] if n in given])
        if given or not k <= len(args) <= k + 2:
            wanted = ", ".join(["x", *self.shapes, "loc=0", "scale=1"])
            more = f" and {', '.join(given)}" if given else ""
            raise ArgumentError(f"{self.name}.{call} takes ({wanted}); got {1 + len(args)} arguments{more}")
        loc = args[k] if len(args) > k else loc
        scale = args[k + 1] if len(args) > k + 1 else scale
        x = array_of(x)
        x = np.float64(x) if type(x) in (int, float) else x
        return x, tuple([number_like(a, x) for a in args[:k]]), number_like(loc, x), number_like(scale, x)

    def _function(self, call: str) -> Callable:
        if call not in self.functions:
            raise ArgumentError(
                f"{self.name}.{call} has no derivative in tapegrad; there are: {', '.join(n for n in CALLS if n in self.functions)}"
            )
        return self.functions[call]

    def _edges(self, z: Any, y: Any, shapes: tuple, below: float, above: float) -> Any:
        """y, and constants outside the support."""
        low, high = [limit(*map(primal_of, shapes)) if callable(limit) else limit for limit in (self.low, self.high)]
        if callable(self.low) or low > -math.inf:
            y = select(z < low, dtype(y).type(below), y)
        if callable(self.high) or high < math.inf:
            y = select(z > high, dtype(y).type(above), y)
        return y

    @derived
    def logpdf(self, x: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        x, shapes, loc, scale = self._parameters("logpdf", x, args, loc, scale, given)
        z = (x - loc) / scale
        return self._edges(z, self._function("logpdf")(z, *shapes) - log(scale), shapes, -math.inf, -math.inf)

    @derived
    def pdf(self, x: Any, *args: Any, **params: Any) -> Any:
        return exp(self.logpdf(x, *args, **params))

    def _of_value(self, call, x, args, loc, scale, given, below, above):
        x, shapes, loc, scale = self._parameters(call, x, args, loc, scale, given)
        z = (x - loc) / scale
        return self._edges(z, self._function(call)(z, *shapes), shapes, below, above)

    @derived
    def cdf(self, x: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        return self._of_value("cdf", x, args, loc, scale, given, 0.0, 1.0)

    @derived
    def sf(self, x: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        return self._of_value("sf", x, args, loc, scale, given, 1.0, 0.0)

    @derived
    def logcdf(self, x: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        return self._of_value("logcdf", x, args, loc, scale, given, -math.inf, 0.0)

    @derived
    def logsf(self, x: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        return self._of_value("logsf", x, args, loc, scale, given, 0.0, -math.inf)

    def _quantile(self, call: str, q: Any, args: tuple, loc: Any, scale: Any, given: dict) -> Any:
        q, shapes, loc, scale = self._parameters(call, q, args, loc, scale, given)
        if call in self.functions:
            return self.functions[call](q, *shapes) * scale + loc
        return self._solved(call, q, shapes) * scale + loc

    def _solved(self, call: str, q: Any, shapes: tuple) -> Any:
        """What SciPy finds, taken for a constant, and two of Newton's steps from it, which move it no more, but have the derivatives of the
        solution: the first is right to first order, the second to third order."""
        direct = self._function("cdf" if call == "ppf" else "sf")
        if xp(q) is not np:
            raise ArgumentError(f"scipy.stats.{self.name}.{call}: CuPy has no such function; move the arguments with a.get()")
        z = quantiles(*[primal_of(v) for v in (q, *shapes)], name=self.name, call=call)
        if any_tracked((q, *shapes)):
            for _ in range(2):
                step = (direct(z, *shapes) - q) / exp(self._function("logpdf")(z, *shapes))
                z = z - step if call == "ppf" else z + step
        return z

    @derived
    def ppf(self, q: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        return self._quantile("ppf", q, args, loc, scale, given)

    @derived
    def isf(self, q: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        return self._quantile("isf", q, args, loc, scale, given)


def log1mexp(x: Any) -> Any:
    """log(1 - exp(x)) of x <= 0."""
    small = primal_of(x) > -LOG_2
    one = dtype(x).type(1)
    return select(small, log(-expm1(select(small, x, -one))), log1p(-exp(select(small, -one, x))))


def composed(f: Callable, g: Callable) -> Callable:
    return lambda x, *shapes: f(g(x, *shapes))


def completed(given: dict) -> dict:
    """The functions that follow from those given: from the logarithm of one tail the other tail; from the inverse of a logarithm,
    `from_logcdf` or `from_logsf`, the quantiles from both sides; from the distribution function its logarithm."""
    f = dict(given)
    for one, other, mine, its in (("cdf", "sf", "ppf", "isf"), ("sf", "cdf", "isf", "ppf")):
        log_one, log_other = "log" + one, "log" + other
        if log_one in given:
            f.setdefault(one, composed(exp, given[log_one]))
            f.setdefault(other, composed(lambda y: -expm1(y), given[log_one]))
            f.setdefault(log_other, composed(log1mexp, given[log_one]))
        if "from_" + log_one in given:
            back = given["from_" + log_one]
            f.setdefault(mine, lambda q, *shapes, back=back: back(log(q), *shapes))
            f.setdefault(its, lambda q, *shapes, back=back: back(log1p(-q), *shapes))
    for one, other in (("cdf", "sf"), ("sf", "cdf")):
        if one in f and other not in f:
            f[other] = composed(lambda y: 1.0 - y, f[one])
    for one in ("cdf", "sf"):
        if one in f:
            f.setdefault("log" + one, composed(log, f[one]))
    if "ppf" in f:
        f.setdefault("isf", lambda q, *shapes: f["ppf"](1.0 - q, *shapes))
    return f


class Discrete(Distribution):
    """A family of probabilities of integers k, which are constants; derivatives are those in the parameters.  `cdf` and `sf`, where
    given, are functions of the whole part of k inside the support, which begins at `first`."""

    def __init__(self, name: str, shapes: str, logpmf: Callable, inside: Callable, first: float = 0, **functions: Callable):
        self.name, self.shapes, self._logpmf, self._inside, self._first = name, shapes.split(), logpmf, inside, first
        self.functions = completed(functions)

    def _parameters(self, call: str, k: Any, args: tuple, loc: Any, given: dict) -> tuple:
        args = args + tuple([given.pop(n) for n in self.shapes[len(args) :] if n in given])
        args, loc = (args[:-1], args[-1]) if len(args) == len(self.shapes) + 1 else (args, loc)
        if given or len(args) != len(self.shapes):
            more = f" and {', '.join(given)}" if given else ""
            raise ArgumentError(f"{self.name}.{call} takes (k, {', '.join(self.shapes)}, loc=0); got {1 + len(args)} arguments{more}")
        return primal_of(array_of(k)) - primal_of(array_of(loc)), tuple([array_of(a) for a in args])

    @derived
    def logpmf(self, k: Any, *args: Any, loc: Any = 0, **given: Any) -> Any:
        k, args = self._parameters("logpmf", k, args, loc, given)
        inside = (k == np.floor(k)) & self._inside(k, *[primal_of(a) for a in args])
        y = self._logpmf(k * 1.0, *args)
        return select(inside, y, dtype(y).type(-math.inf))

    @derived
    def pmf(self, k: Any, *args: Any, **given: Any) -> Any:
        return exp(self.logpmf(k, *args, **given))

    def _of_value(self, call: str, k: Any, args: tuple, loc: Any, given: dict, below: float, above: float) -> Any:
        k, args = self._parameters(call, k, args, loc, given)
        if call not in self.functions:
            raise NoRuleError(
                f"{self.name}.{call} has no derivative in tapegrad; sum {self.name}.pmf, or cut the derivative with tapegrad.value"
            )
        k = np.floor(k) * 1.0
        inside = self._inside(k, *[primal_of(a) for a in args])
        y = self.functions[call](select(inside, k, self._first + 0.0), *args)
        return select(k < self._first, dtype(y).type(below), select(inside, y, dtype(y).type(above)))

    @derived
    def cdf(self, k: Any, *args: Any, loc: Any = 0, **given: Any) -> Any:
        return self._of_value("cdf", k, args, loc, given, 0.0, 1.0)

    @derived
    def sf(self, k: Any, *args: Any, loc: Any = 0, **given: Any) -> Any:
        return self._of_value("sf", k, args, loc, given, 1.0, 0.0)

    @derived
    def logcdf(self, k: Any, *args: Any, loc: Any = 0, **given: Any) -> Any:
        return self._of_value("logcdf", k, args, loc, given, -math.inf, 0.0)

    @derived
    def logsf(self, k: Any, *args: Any, loc: Any = 0, **given: Any) -> Any:
        return self._of_value("logsf", k, args, loc, given, 0.0, -math.inf)
