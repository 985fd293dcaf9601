"""`function`: the word with which an elementwise function of scipy.special is declared, by its partial derivatives.

    ndtr = function(sp.ndtr, lambda out, x: exp(-0.5 * (x * x)) / ROOT_2PI)

A partial derivative is a function (out, *arguments), written with tapegrad's operations; a text stands for one that there is not, and
says what to do.  `inverse(f, k)` is a function by which one argument of another is found."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from ..._core.arrays import is_array, xp_of
from ..._core.errors import ArgumentError, NoRuleError
from ..._core.foreign import name_in
from ..._core.lent_memory import lend
from ..._core.primitive import SAMPLED, any_tracked, primal_of
from ..._core.registry import load
from ..._core.scope import OPEN
from ..declare import dtype, ndim, primitive, rules, same, shape, xp
from ..declare import implements as answers
from ..elementwise import over0, times0
from ..piecewise import special_of
from ..shaping import reshape
from .incomplete import first_array


def implements(*functions: Callable) -> Any:
    """As `_define.implements`; where nothing is tracked the library's own function answers, with its own values and errors."""

    def declare(f):
        return answers(*functions)(where_tracked(f, lambda: functions[0]))

    return declare


def where_tracked(f: Callable, theirs: Callable) -> Callable:
    """f for calls with something tracked, what `theirs()` is for others.  Samples whose values decide what it does are run one after the
    other."""

    @functools.wraps(f)
    def run(*args, **kwargs):
        if any_tracked((args, kwargs)):
            if any([t.visibility == SAMPLED for t in OPEN.hiding]):
                home = [part for part in getattr(theirs(), "__module__", "scipy").split(".") if not part.startswith("_")]
                name = ".".join([*home, f.__name__])
                return load("tapegrad.implicit.sequential").one_by_one(name, f, args, kwargs, False, run)
            return f(*args, **kwargs)
        return theirs()(*lend(args), **lend(kwargs))

    return run


def library(f: Any) -> Callable:
    """f, or CuPy's function of the same name for CuPy arrays."""
    name = name_in(scipy.special, f)

    def of(*xs):
        own = getattr(special_of(first_array(*xs)), name, None)
        if own is None:
            raise ArgumentError(f"scipy.special.{name}: CuPy has no such function; move the arguments with a.get()")
        return own(*xs)

    return of


def part(f: Any, k: int) -> Callable:
    """What stands at place k of the several results of f, or of CuPy's function of the same name."""
    run = library(f)
    return lambda *xs: run(*xs)[k]


def host_only(name: str, *xs: Any) -> None:
    if any(is_array(x) and xp_of(x) is not np for x in xs):
        raise ArgumentError(f"{name}: CuPy has no such function; move the arguments with a.get()")


def of_arrays(name: str, body: Callable) -> Callable:
    """`body`; where it takes no CuPy arrays it says so."""

    def of(*xs):
        try:
            return body(*xs)
        except (TypeError, OverflowError):
            host_only(f"scipy.special.{name}", *xs)
            raise

    return of


def one(f):
    return lambda x: f(x)


def two(f):
    return lambda x, y: f(x, y)


def three(f):
    return lambda x, y, z: f(x, y, z)


def four(f):
    return lambda x, y, z, w: f(x, y, z, w)


def five(f):
    return lambda x, y, z, w, v: f(x, y, z, w, v)


def rule_one(s):
    return lambda g, out, x: times0(g, s(out, x))


def rule_two(s):
    return lambda g, out, x, y: times0(g, s(out, x, y))


def rule_three(s):
    return lambda g, out, x, y, z: times0(g, s(out, x, y, z))


def rule_four(s):
    return lambda g, out, x, y, z, w: times0(g, s(out, x, y, z, w))


def rule_five(s):
    return lambda g, out, x, y, z, w, v: times0(g, s(out, x, y, z, w, v))


BODIES = {1: one, 2: two, 3: three, 4: four, 5: five}
RULES = {1: rule_one, 2: rule_two, 3: rule_three, 4: rule_four, 5: rule_five}
PARTIALS: dict = {}  # operation -> its partial derivatives
LACKING: dict = {}  # name -> the real arguments by which there is no derivative


class Whole(str):
    """Why there is no derivative by an argument that is a whole number."""


def refusing(name: str, k: int, why: str) -> Callable:
    def partial(out, *xs):
        raise NoRuleError(f"scipy.special.{name} has no derivative in argument {k + 1} ({why}); pass tapegrad.value of it")

    return partial


def at_real(partial: Any) -> Callable:
    """A partial derivative that holds for real arguments; `function` refuses others."""
    partial.at_real = True
    return partial


def refusing_complex(name: str, k: int, partial: Callable) -> Callable:
    def checked(out, *xs):
        if any(dtype(x).kind == "c" for x in xs):
            raise NoRuleError(
                f"scipy.special.{name} has no derivative in argument {k + 1} at complex arguments; pass tapegrad.value of argument {k + 1}"
            )
        return partial(out, *xs)

    return checked


def function(f: Any, *partials: Callable | str, body: Callable | None = None, name: str | None = None) -> Callable:
    """Declare scipy.special's f.  `body`: what computes it, if that is not f itself; `name`: if f is not a function of SciPy's."""
    n = len(partials)
    name = name or name_in(scipy.special, f)
    run = BODIES[n](library(f) if body is None else of_arrays(name, body))
    run.__name__ = run.__qualname__ = name
    entry = primitive(*(() if f is None else (f,)))(run)
    public = name.removesuffix("_value").removesuffix("_slope")
    given = [
        refusing(public, k, p) if isinstance(p, str) else refusing_complex(public, k, p) if hasattr(p, "at_real") else p
        for k, p in enumerate(partials)
    ]
    rules(entry, *[RULES[n](p) for p in given], jvp=same)
    PARTIALS[entry] = given
    lacking = [k + 1 for k, p in enumerate(partials) if isinstance(p, str) and not isinstance(p, Whole)]
    if lacking:
        LACKING[public] = lacking
    return entry


def with_partials(entry: Callable, *partials: Callable) -> None:
    """Tell the partial derivatives of an operation that is declared elsewhere, for its inverses."""
    PARTIALS[entry] = partials


def inverse(f: Any, of: Callable, k: int, place: int, *, tail: bool = False) -> Callable:
    """Declare scipy.special's f, which finds argument k of the operation `of`.  Its own arguments are those of `of` in order, but the
    value of `of` (`tail`: 1 less it) stands at `place`, and the one found is missing."""
    slopes = PARTIALS[of]

    def call(out, xs):
        rest = [x for i, x in enumerate(xs) if i != place]
        return [*rest[:k], out, *rest[k:]]

    def partial(i):
        def of_value(out, *xs):
            args = call(out, xs)
            return over0(-1.0 if tail else 1.0, slopes[k](None, *args))

        def of_argument(out, *xs):
            args = call(out, xs)
            j = i - (i > place)
            return -over0(slopes[j + (j >= k)](None, *args), slopes[k](None, *args))

        return of_value if i == place else of_argument

    return function(f, *[partial(i) for i in range(len(slopes))])


@primitive(batch="elementwise")
def scipys(*xs, name):
    """What scipy.special's function of this name gives for primal values."""
    host_only(f"scipy.special.{name}", *xs)
    return getattr(scipy.special, name)(*xs)[()]


def plain_value(name: str, *xs: Any) -> Any:
    """The same of values that may be tracked, as a constant."""
    return scipys(*[primal_of(x) for x in xs], name=name)


@primitive()
def valued(y, own):
    return own


rules(valued, lambda g, out, y, own: g, lambda g, out, y, own: 0.0 * g, jvp=same)


def with_own_value(name: str, y: Any, *xs: Any) -> Any:
    """y, composed of other operations, for the derivatives, and for the value what scipy.special's function itself gives for xs: the two
    differ beyond the domain of the function.  (On CuPy, which lacks most of these functions, it is y's.)"""
    return valued(y, plain_value(name, *xs)) if xp(y) is np else y


def greatest(x: Any) -> float:
    """The greatest finite number among x, and at least 0: by it the terms of a series are counted."""
    return float(np.max(x, where=np.isfinite(x), initial=0.0))


def last(x: Any) -> Any:
    """x with one more axis, along which an integral or a series is summed."""
    return reshape(x, to=(*shape(x), 1)) if ndim(x) else x


@functools.cache
def unit_nodes(count: int = 400) -> tuple:
    """Nodes of (0, 1), 1 less them, and weights of the double exponential rule, for integrands that may be singular at either end."""
    t = np.linspace(-5.0, 5.0, count)
    rise = math.pi * np.sinh(t)
    x, rest = 1.0 / (1.0 + np.exp(-rise)), 1.0 / (1.0 + np.exp(rise))
    return x, rest, math.pi * np.cosh(t) * x * rest * (t[1] - t[0])
