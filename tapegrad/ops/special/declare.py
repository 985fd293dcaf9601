"""`special_function` declares an elementwise function of scipy.special by its partial derivatives.

    ndtr = function(sp.ndtr, lambda out, x: exp(-0.5 * (x * x)) / ROOT_2PI)

A partial derivative is a function (out, *arguments), written with tapegrad's operations. A text in its
place means that there is none, and gives the remedy. `inverse(f, k)` declares a function that solves
another one for an argument."""

import functools
import math
from collections.abc import Callable

import numpy as np
import scipy.special

from ..._core.arrays import TRUTHS, is_array, xp_of
from ..._core.errors import ArgumentError, NoRuleError
from ..._core.foreign import name_in
from ..._core.lent_memory import lend
from ..._core.primitive import SAMPLED, any_tracked, primal_of
from ..._core.registry import load
from ..._core.scope import OPEN
from ..declare import dtype, ndim, primitive, reads, rules, same, shape, signature_of, xp
from ..declare import implements as answers
from ..elementwise import absolute, over0, select, times0
from ..piecewise import special_of
from ..shaping import reshape


def implements_special(*functions: Callable):
    """As `ops.declare.implements`. If nothing is tracked, the library's function runs, with its own
    values and errors."""

    return lambda f: answers(*functions)(where_tracked(f, lambda: functions[0]))


def where_tracked(f: Callable, theirs: Callable) -> Callable:
    """A function that calls f if an argument is tracked, else the function that `theirs()` returns. If hidden
    values decide the control flow, f runs for one sample after another."""

    @functools.wraps(f)
    def run(*args, **kwargs):
        if any_tracked((args, kwargs)):
            if any([t.visibility == SAMPLED for t in OPEN.hiding]):
                home = [
                    part
                    for part in getattr(theirs(), "__module__", "scipy").split(".")
                    if not part.startswith("_")
                ]
                name = ".".join([*home, run.__name__])
                return load("tapegrad.implicit.sequential").run_sequentially(
                    name, f, args, kwargs, False, run
                )
            return f(*args, **kwargs)
        given = lend(args)
        if any([is_array(x) and xp_of(x) is not np for x in given]):  # SciPy's takes no array of CuPy
            return f(*args, **kwargs)
        return theirs()(*given, **lend(kwargs))

    return run


def first_array(*xs):
    return next((x for x in xs if is_array(x)), xs[-1])


def library_function(f) -> Callable:
    """f, or CuPy's function of the same name for CuPy arrays."""
    name = str(name_in(scipy.special, f))

    def of(*xs):
        own = getattr(special_of(first_array(*xs)), name, None)
        if own is None:
            raise ArgumentError(
                f"scipy.special.{name}: CuPy has no such function; move the arguments with a.get()"
            )
        return own(*xs)

    return of


def result_part(f, k: int) -> Callable:
    """Result number k of f, or of CuPy's function of the same name."""
    run = library_function(f)
    return lambda *xs: run(*xs)[k]


def host_only(name: str, *xs) -> None:
    if any(is_array(x) and xp_of(x) is not np for x in xs):
        raise ArgumentError(f"{name}: CuPy has no such function; move the arguments with a.get()")


def of_arrays(name: str, body: Callable) -> Callable:
    """`body`, with an error for CuPy arrays if it does not accept them."""

    def of(*xs):
        try:
            return body(*xs)
        except (TypeError, OverflowError):
            host_only(f"scipy.special.{name}", *xs)
            raise

    return of


@functools.cache
def of_arity(text: str, n: int) -> Callable:
    """Return what `text` makes of n named arguments in the place of {}."""
    text = text.replace("{}", ", ".join("xyzwv"[:n]))
    return eval(compile(text, __file__, "eval"))


BODY = "lambda f: lambda {}: f({})"


@functools.cache
def pullback_of(names: tuple, read: tuple) -> Callable:
    """A function from a partial derivative of these parameters, of which it reads some, to the pullback."""
    given = ", ".join([name if r else "None" for name, r in zip(("out", *names), read, strict=True)])
    text = f"lambda partial: lambda g, out, {', '.join(names)}: times0(g, partial({given}))"
    return eval(compile(text, __file__, "eval"), {"times0": times0, "__name__": __name__})


def slopes(operation, *partials: Callable) -> None:
    """Declare the derivatives of an elementwise operation by its partial derivatives, which are functions
    (out, *arrays, *settings). A zero cotangent stays zero."""
    signature = signature_of(operation.prim.run)
    names = (*signature.arrays, *signature.settings)
    pullbacks = []
    for p in partials:
        read = reads(p)
        pullbacks.append(
            pullback_of(names, (*read,) if len(read) == 1 + len(names) else (True,) * (1 + len(names)))(p)
        )
    rules(operation, *pullbacks, jvp=same)


PARTIALS: dict = {}  # operation -> its partial derivatives
LACKING: dict = {}  # name -> the real arguments without a derivative


class IntegerArgument(str):
    """The reason for a missing derivative with respect to an integer argument."""


def refusing_rule(name: str, k: int, why: str) -> Callable:
    def partial(out, *xs):
        raise NoRuleError(
            f"scipy.special.{name} has no derivative in argument {k + 1} ({why}); pass tapegrad.value of it"
        )

    return partial


def at_real(partial) -> Callable:
    """A partial derivative for real arguments only; `special_function` refuses others."""
    partial.at_real = True
    return partial


def refusing_complex(name: str, k: int, partial: Callable) -> Callable:
    def checked(out, *xs):
        if any(dtype(x).kind == "c" for x in xs):
            raise NoRuleError(
                f"scipy.special.{name} has no derivative in argument {k + 1} at complex arguments; pass "
                f"tapegrad.value of argument {k + 1}"
            )
        return partial(out, *xs)

    return checked


def special_function(
    f,
    *partials: Callable | str,
    body: Callable | None = None,
    name: str | None = None,
    public: str | None = None,
    **words,
) -> Callable:
    """Declare scipy.special's f. `body`: the function that computes it, if not f itself. `name`: for an f
    that is not in SciPy. `public`: the name that users know. `words` are those of `primitive`."""
    n = len(partials)
    name = str(name or name_in(scipy.special, f))
    run = of_arity(BODY, n)(library_function(f) if body is None else of_arrays(name, body))
    run.__name__ = run.__qualname__ = name
    entry = primitive(*(() if f is None else (f,)), **words)(run)
    entry.prim.narrow = TRUTHS
    public = public or name
    given = [
        refusing_rule(public, k, p)
        if isinstance(p, str)
        else refusing_complex(public, k, p)
        if hasattr(p, "at_real")
        else p
        for k, p in enumerate(partials)
    ]
    slopes(entry, *given)
    PARTIALS[entry] = given
    lacking = [
        k + 1 for k, p in enumerate(partials) if isinstance(p, str) and not isinstance(p, IntegerArgument)
    ]
    if lacking:
        LACKING[public] = lacking
    return entry


def several_results(f, *partials) -> tuple[list, Callable]:
    """Declare scipy.special's f, which returns several results. Give the partial derivatives of each: a
    function, or a tuple of them for several arguments. Return the operations of the results, and f."""
    name = f.__name__
    parts = [
        special_function(None, *given, body=result_part(f, k), name=f"{name}_{k}", public=name)
        for k, given in enumerate([p if isinstance(p, tuple) else (p,) for p in partials])
    ]

    def of(*args):
        return tuple([part(*args) for part in parts])

    return parts, implements_special(f)(of)


def complement(f, of: Callable, **words) -> Callable:
    """Declare scipy.special's f, which is 1 minus the operation `of`."""
    return special_function(f, *[lambda out, *xs, p=p: -p(out, *xs) for p in PARTIALS[of]], **words)


def with_partials(entry: Callable, *partials: Callable) -> None:
    """Declare the partial derivatives of an operation that is defined elsewhere, for its inverses."""
    PARTIALS[entry] = partials


INVERSE_RTOL, INVERSE_ATOL = 1e-2, 1e-5  # of the value at a solution: SciPy's searches end at 1e-8 of x


def inverse(f, of: Callable, k: int, place: int, *, tail: bool = False) -> Callable:
    """Declare scipy.special's f, which solves the operation `of` for its argument k. The arguments are
    those of `of` in order, without the one that is found. The value of `of` (`tail`: 1 minus it)
    stands at `place`. Where SciPy's result is no solution, it has no derivative."""
    slopes = PARTIALS[of]

    def solution(out, xs) -> tuple:
        """(The arguments of `of`; 0 where they solve it or an end of the range is nearest, else nan)"""
        rest = [x for i, x in enumerate(xs) if i != place]
        args = [*rest[:k], out, *rest[k:]]
        plain = list(map(primal_of, args))
        found, given, y = of(*plain), primal_of(xs[place]), plain[k]
        off = absolute((1.0 - found if tail else found) - given)
        solved = (off <= INVERSE_RTOL * given + INVERSE_ATOL) | (y == 0) | (y == 1) | (absolute(y) == np.inf)
        return args, select(solved, 0.0, np.nan)

    def partial(i):
        def of_value(out, *xs):
            args, nothing = solution(out, xs)
            return over0(-1.0 if tail else 1.0, slopes[k](None, *args)) + nothing

        def of_argument(out, *xs):
            args, nothing = solution(out, xs)
            j = i - (i > place)
            return -over0(slopes[j + (j >= k)](None, *args), slopes[k](None, *args)) + nothing

        return of_value if i == place else of_argument

    return special_function(f, *[partial(i) for i in range(len(slopes))])


@primitive(batch="elementwise")
def scipys(*xs, name):
    """The result of scipy.special's function of this name for primal values."""
    host_only(f"scipy.special.{name}", *xs)
    return getattr(scipy.special, name)(*xs)[()]


def plain_value(name: str, *xs):
    """The same for values that may be tracked, as a constant."""
    return scipys(*[primal_of(x) for x in xs], name=name)


@primitive(aliases=True)
def valued(y, own):
    return own


rules(valued, lambda g, out, y, own: g, lambda g, out, y, own: 0.0 * g, jvp=same)


def with_own_value(name: str, y, *xs):
    """The derivatives of y, a composition of operations, with the value of scipy.special's function for
    xs. The two differ outside the domain of the function. (On CuPy, which lacks most of these
    functions, the value is y's.)"""
    return valued(y, plain_value(name, *xs)) if xp(y) is np else y


def greatest(x) -> float:
    """The largest finite number in xs, at least 0. It decides the number of terms of a series."""
    return float(np.max(x, where=np.isfinite(x), initial=0.0))


def of_floats(valid: Callable, *elsewhere: float) -> Callable:
    """The body of an operation that gets its arguments as arrays of floats of one shape. Its result has
    their dtype, and is nan where `valid(*arrays)` does not hold. There it gets the numbers `elsewhere`."""

    def declare(body: Callable) -> Callable:
        @functools.wraps(body)
        def run(*given, **settings):
            xp = xp_of(first_array(*given))
            arrays = xp.broadcast_arrays(*[xp.asarray(x, dtype=float) for x in given])
            ok = valid(*arrays)
            y = body(*[xp.where(ok, x, e) for x, e in zip(arrays, elsewhere, strict=True)], **settings)
            return xp.where(ok, y, np.nan).astype(np.result_type(*given, 0.0))[()]

        return run

    return declare


def raised(orders: tuple, k: int) -> tuple:
    """The orders of an operation, number k one higher."""
    return tuple([n + (i == k) for i, n in enumerate(orders)])


def with_last_axis(x):
    """x with one more axis, along which integrals and series are summed."""
    return reshape(x, to=(*shape(x), 1)) if ndim(x) else x


@functools.cache
def unit_nodes(count: int = 400) -> tuple:
    """Nodes in (0, 1), 1 minus them, and weights of the double exponential rule, for integrands that may
    be singular at both ends."""
    t = np.linspace(-5.0, 5.0, count)
    rise = math.pi * np.sinh(t)
    x, rest = 1.0 / (1.0 + np.exp(-rise)), 1.0 / (1.0 + np.exp(rise))
    return x, rest, math.pi * np.cosh(t) * x * rest * (t[1] - t[0])
