"""scipy.integrate: sums over samples, integrals of functions, ordinary differential equations."""

import functools
import inspect
import math
from collections.abc import Callable

import numpy as plain_np
import scipy.integrate as itg

from ... import numpy as np
from ..._core.errors import ArgumentError, Attempt, ConvergenceError, SingularError, callers_line
from ..._core.primitive import primal_of
from ..._core.registry import load
from ..._core.trees import Const, tuple_of
from ..._transforms.vmap import vmap
from ...ops.declare import shape
from ...ops.nondifferentiable import at_users_line, warn_user
from ..followed import Follower
from ..namespaces import (
    RecordedWhole,
    SciPyNamespace,
    as_float_array,
    bare,
    holds_tracked,
    is_recorded,
    refusal_text,
    with_derivative_of,
)
from ..optimize.callback_search import ComposedFunction, Search, called_again, searched
from .boundary import solve_bvp
from .ivp_adjoint import continuous_adjoint
from .ivp_by_steps import solve_ivp
from .ode import complex_ode, ode

INTEGRATE = SciPyNamespace(itg)
INTEGRATE.searches = (itg.quad, itg.quad_vec, itg.dblquad)
QUAD, QUAD_VEC, ODEINT = [[*inspect.signature(f).parameters] for f in (itg.quad, itg.quad_vec, itg.odeint)]
FOLLOWED = Follower("scipy.integrate")

# --- of functions ---


# Two rules on the intervals that QUADPACK ended with, as nodes and weights of the interval (0, 1).  Gauss's
# serves a smooth integrand.  The double exponential one serves one that is singular at an end (Takahasi and
# Mori, 1974).
GAUSS_POINTS = 20
GAUSS = [
    (v + shift) / 2
    for v, shift in zip(plain_np.polynomial.legendre.leggauss(GAUSS_POINTS), (1.0, 0.0), strict=True)
]


def sinh_nodes(count: int) -> tuple:
    """Return v = pi / 2 sinh u at equidistant u, and the weights of an integral over v."""
    u = plain_np.linspace(-3.1, 3.1, count)
    return math.pi / 2 * plain_np.sinh(u), math.pi / 2 * plain_np.cosh(u) * (u[1] - u[0])


def unit_rule(v, w) -> tuple:
    """Return the nodes 1 / (1 + exp(-2 v)) and weights of the interval (0, 1)."""
    s = 1 / (1 + plain_np.exp(-2 * v))
    return s, 2 * w * s * s[::-1]


DOUBLE_EXPONENTIAL = unit_rule(*sinh_nodes(63))
# its step is so small that it is exact for smooth integrands
V, V_WEIGHTS = sinh_nodes(249)


def finer(pieces: list):
    """Yield quarters of the pieces, and the pieces at the ends with the rule that a singularity there needs.

    Inside, a singularity may move with a parameter, and then the derivative at fixed nodes is wrong."""
    for first, last, rule in pieces:
        if first == 0 or last == 1:
            yield first, last, DOUBLE_EXPONENTIAL
        else:
            cuts = plain_np.linspace(first, last, 5)
            yield from [(*cut, rule) for cut in zip(cuts[:-1], cuts[1:], strict=True)]


def open_ends(v):
    """Return the signs of infinite limits, and 0 for others."""
    v = primal_of(as_float_array(v))
    return np.where(np.isinf(v), np.sign(v), 0)


def at_nodes(f, x, pure: bool):
    """Return f at each node. One that leaves nothing behind is called once for many nodes, if that may be."""
    if pure and shape(x)[0] > GAUSS_POINTS and not is_recorded():
        with Attempt():  # node by node, an error is raised again
            return vmap(Const(f))(x)
    return np.stack([f(v) for v in x])


def joined_rule(pieces):
    x = np.concatenate([first + (last - first) * rule[0] for first, last, rule in pieces])
    return x, np.concatenate([(last - first) * rule[1] for first, last, rule in pieces])


def over_pieces(f, a, b, pieces, pure: bool, whole: bool = False):
    """Return the integral of f from a to b, by a rule on each piece.

    A piece is a pair of shares of the way, and its rule.  With an infinite end the shares are those of t with
    x = end + (1 - t) / t, as in QUADPACK.  Limits that move take the first and the last piece with them,
    for f may jump between; or, as `whole` and infinite ends ask, all pieces."""
    s, w = joined_rule(pieces)
    low, high = open_ends(a), open_ends(b)
    if low or high:
        x, w = (1 - s) / s, w / s**2
        if low and high:
            x, w = np.concatenate([x, -x]), np.concatenate([w, w])
        else:
            x = a + high * x if high else b + low * x
        w = -w if high < 0 or low > 0 else w
    else:
        if whole:
            x, w = a + (b - a) * s, w * (b - a)
        else:
            at, wide = primal_of(a), primal_of(b) - primal_of(a)
            cuts = [(a if p == 0 else at + p * wide, b if q == 1 else at + q * wide, r) for p, q, r in pieces]
            x, w = joined_rule(cuts)
        at_end = (primal_of(x) == primal_of(a)) | (primal_of(x) == primal_of(b))
        if np.any(at_end) and a != b:  # as in QUADPACK: f may have no value there
            x, w = x[~at_end], w[~at_end]
    return np.tensordot(w, at_nodes(f, x, pure), 1)


def halved(starts, ends) -> list:
    """Return intervals, the widest halved until their number is a power of two, for few recordings."""
    found = list(zip(starts, ends, strict=True))
    while len(found) & (len(found) - 1):
        found.sort(key=lambda each: each[1] - each[0])
        p, q = found.pop()
        found += [(p, (p + q) / 2), ((p + q) / 2, q)]
    return [*plain_np.transpose(found)]


@functools.wraps(itg.quad)
def quadpack(*args, full_output, **settings):
    """The result, and where the intervals that QUADPACK ended with begin and end."""
    found = itg.quad(*args, full_output=1, **settings)
    if not full_output and len(found) > 3:
        warn_user(found[3], itg.IntegrationWarning)
    ends = halved(*[found[2][k][: found[2]["last"]] for k in ("alist", "blist")])
    return found if full_output else found[:2], ends


@functools.wraps(itg.quad_vec)
def bisected(*args, **settings):
    found = itg.quad_vec(*args, **settings | {"full_output": True})
    return found if settings["full_output"] else found[:2], halved(*found[2].intervals.T)


def integrated(theirs: Callable, given: tuple, settings: dict) -> tuple:
    """(SciPy's result, the intervals as shares of the way, does it move with a parameter?, does the integrand
    leave nothing behind?).  The nodes are constant, unless the limits move."""
    _, a, b, *_ = given
    if is_recorded() and settings["full_output"]:
        raise RecordedWhole
    moves = holds_tracked(a, b)
    (found, ends), found_to_move, pure = searched(
        theirs, given, settings, (given[1:], settings), moves=moves, fixed=not moves
    )
    if not (open_ends(a) or open_ends(b)):
        low, wide = primal_of(a), primal_of(b) - primal_of(a)
        ends = [(p - low) / wide for p in ends] if wide else [[0.0], [1.0]]
    return found, [(p, q, GAUSS) for p, q in zip(*ends, strict=True)], found_to_move, pure


@INTEGRATE.rule(itg.quad, by_steps=True)
def quad(func, a, b, args=(), full_output=0, epsabs=1.49e-08, *more, **settings):
    name = "scipy.integrate.quad"
    if not callable(func) or type(func).__name__ == "LowLevelCallable":
        raise ArgumentError(f"{name}: give a Python function; compiled callbacks have no derivative")
    args = tuple_of(args)
    settings = bare(dict(zip(QUAD[6:], more, strict=False)) | settings)
    if settings.get("weight") is not None or settings.get("complex_func"):
        raise refusal_text(
            f"{name}(weight=, complex_func=)",
            "",
            "a function with the weight in it, and its real and imaginary part apart",
        )
    settings |= {"full_output": full_output, "epsabs": epsabs}
    found, ends, moves, pure = integrated(quadpack, (func, a, b, args), settings)
    value, error = found[:2]
    if not moves:
        return found
    allowed = lambda relative: np.maximum(10 * error, relative * abs(value))
    best, least = None, math.inf
    with called_again(func, pure, holds_tracked(a, b)) as (func,):
        for way in (iter, finer):
            y = over_pieces(lambda x: func(x, *args), a, b, [*way(ends)], pure, way is finer)
            miss = abs(primal_of(y) - value)
            if miss < least:
                best, least = y, miss
            if least <= allowed(1e-10):
                break
    if least <= np.maximum(allowed(1e-7), epsabs):
        return with_derivative_of(value, best), *found[1:]
    raise refusal_text(
        name,
        "no rule for the derivative gives QUADPACK's integral",
        "a variable in which the integrand is smooth",
    )


@INTEGRATE.rule(itg.quad_vec, by_steps=True)
def quad_vec(f, a, b, *more, args=(), **settings):
    settings = {"full_output": False} | dict(zip(QUAD_VEC[3:], more, strict=False)) | settings
    on = ComposedFunction(lambda f: lambda x, *args: as_float_array(f(x, *args)), f)
    found, ends, moves, pure = integrated(bisected, (on, a, b), settings | {"args": args, "workers": 1})
    if not moves:
        return found
    if open_ends(a) or open_ends(b):
        raise refusal_text(
            "scipy.integrate.quad_vec", "over an infinite interval", "the substitution x = a + (1 - t) / t"
        )
    with called_again(on, pure, holds_tracked(a, b)) as (on,):
        y = over_pieces(lambda x: on(x, *args), a, b, ends, pure)
    return with_derivative_of(found[0], y), *found[1:]


def columns(v):
    """Return v with an axis for nodes behind."""
    return np.reshape(v, (*shape(v), 1))


def double_exponential(f, a, b):
    """Return the integral of f, which takes arrays, from a to b, by `unit_rule`.

    Over an infinite interval it is an integral over v, where x is sinh(v) or exp(v)."""
    low, high = open_ends(a), open_ends(b)
    if (low != 0).any() or (high != 0).any():
        if not ((low == low.flat[0]).all() and (high == high.flat[0]).all()):
            raise refusal_text(
                "scipy.integrate.tanhsinh", "with finite and infinite limits at once", "one call for each"
            )
        low, high = int(low.flat[0]), int(high.flat[0])
        if low and high:
            return np.sum(f(plain_np.sinh(V)) * (plain_np.cosh(V) * V_WEIGHTS), -1) * high
        out = plain_np.exp(V)
        end, sign = (a, high) if high else (b, low)
        total = np.sum(f(columns(end) + sign * out) * (out * V_WEIGHTS), -1)
        return total if high > 0 or low < 0 else -total
    (s, w), a, b = unit_rule(V, V_WEIGHTS), columns(a), columns(b)
    x = np.where(s < 0.5, a + (b - a) * s, b - (b - a) * s[::-1])  # from the end that is nearer
    return np.sum((b - a) * f(x) * w, -1)


@INTEGRATE.rule(itg.tanhsinh, by_steps=True)
def tanhsinh(f, a, b, *, args=(), log=False, **settings):
    name = "scipy.integrate.tanhsinh"
    args, named = tuple_of(args), dict(settings.get("kwargs") or {})  # SciPy 1.18
    given = {"args": args, "log": log, **settings}
    found, moves, pure = searched(itg.tanhsinh, (f, a, b), given, (a, b, args, named), fixed=True)
    if not moves:
        return found
    if log:
        raise refusal_text(f"{name}(log=True)", "", "it without log=")
    more, named = [columns(v) for v in args], {k: columns(v) for k, v in named.items()}
    with called_again(f, pure) as (f,):
        y = double_exponential(lambda x: f(x, *more, **named), a, b)
    if not bool(
        plain_np.all(abs(bare(y) - found.integral) <= 1e-6 * plain_np.maximum(1.0, abs(found.integral)))
    ):
        raise refusal_text(
            name,
            "the derivative would need a finer rule than the integral",
            "a variable in which the integrand is smooth",
        )
    found.integral = with_derivative_of(found.integral, y)
    return found


DIRECT = 1 << 10  # terms that are added; what is left is an integral and half a term


@INTEGRATE.rule(itg.nsum, by_steps=True)
def nsum(f, a, b, *, step=1, args=(), log=False, **settings):
    name = "scipy.integrate.nsum"
    args = tuple_of(args)
    given = {"args": args, "step": step, "log": log, **settings}
    found, moves, pure = searched(itg.nsum, (f, a, b), given, (a, b, args, step), fixed=True)
    if not moves:
        return found
    first, last, by = (
        [float(bare(v)) for v in (a, b, step)]
        if not any(shape(v) for v in (a, b, step, *args))
        else (0.0, -math.inf, 1.0)
    )
    if log or math.isinf(first) or last < first or holds_tracked(a, b, step):
        raise refusal_text(
            f"{name}",
            "log=, arrays, from -inf, or by its limits",
            "a sum of one series from a finite first term",
        )
    terms = last if math.isinf(last) else (last - first) // by + 1
    count = int(min(terms, DIRECT))
    with called_again(f, pure) as (f,):
        y = np.sum(f(first + by * plain_np.arange(count), *args))
        if terms > count:  # Euler and Maclaurin
            end = first + by * count
            final = last if math.isinf(last) else first + by * (terms - 1)
            y = (
                y
                + double_exponential(lambda x: f(x, *args), end, final) / by
                + 0.5 * f(plain_np.float64(end), *args)
            )
            y = y if math.isinf(last) else y + 0.5 * f(plain_np.float64(final), *args)
    found.sum = with_derivative_of(found.sum, y)
    return found


for _f in (itg.nquad, itg.dblquad, itg.tplquad):
    INTEGRATE.rule(_f, by_steps=True)(FOLLOWED.function(_f))

# --- differential equations ---


def compiled_ivp(args: tuple, kwargs: dict):
    return load("tapegrad._scipy.integrate.ivp_kernel").solve_in_kernel(args, kwargs)


INTEGRATE.rule(itg.solve_ivp, by_steps=True, compiled=compiled_ivp)(solve_ivp)
FINE = 1e-3  # of odeint's tolerances are those of the method that has the derivative


@INTEGRATE.rule(itg.odeint, by_steps=True)
def odeint(func, y0, t, args=(), *more, **settings):
    """The value is LSODA's; the derivative is that of a Runge-Kutta method of the order 8 with smaller
    errors."""
    settings = {**dict(zip(ODEINT[4:], more, strict=False)), **settings, "Dfun": None}
    first, full_output = [settings.pop(name, 0) for name in ("tfirst", "full_output")]
    on = ComposedFunction(
        lambda func: (lambda t, y: func(t, y, *args)) if first else (lambda t, y: func(y, t, *args)), func
    )
    with Search("scipy.integrate.odeint", args, moves=holds_tracked(y0, t)) as search:
        slopes = search.of(on, 0 if holds_tracked(t) else 1, 2)
        settings |= {"full_output": full_output, "tfirst": True}
        found = at_users_line(itg.odeint, slopes, bare(y0), bare(t), **settings)
    y, rest = (found[0], found[1:]) if full_output else (found, ())
    wanted = [settings.get(name) for name in ("rtol", "atol")]
    rtol, atol = [FINE * plain_np.asarray(1.5e-8 if x is None else bare(x)) for x in wanted]
    start = np.reshape(as_float_array(y0), -1)
    with called_again(on, False) as (on,):
        if bare(t[0]) == bare(t[-1]):
            exact = start + (np.asarray(t) - t[0])[:, None] * np.asarray(on(t[0], start))
            y = with_derivative_of(y, exact)
            return (y, *rest) if full_output else y
        least = max(plain_np.min(rtol), 1e-12)
        run = solve_ivp(on, (t[0], t[-1]), start, "DOP853", t, rtol=least, atol=atol)
    if run.status != 0:
        raise ConvergenceError(
            f"{callers_line()}: scipy.integrate.odeint: the derivative is that of DOP853 with smaller "
            f"tolerances, which ended at t = {bare(run.t)[-1] if len(bare(run.t)) else bare(t)[0]}: "
            f"{run.message} Shorten the interval, or use solve_ivp with method='Radau' or 'LSODA'"
        )
    exact = np.transpose(run.y)
    y = with_derivative_of(y, exact)
    return (y, *rest) if full_output else y


INTEGRATE.constant(itg.lebedev_rule)
INTEGRATE.rule(itg.solve_bvp, by_steps=True)(solve_bvp)
INTEGRATE.rule(itg.ode)(ode)
INTEGRATE.rule(itg.complex_ode)(complex_ode)
INTEGRATE.refuse("it is compiled", "solve_ivp", itg.LSODA)


def with_limits_apart(run):
    """SciPy orders the limits. Where they are equal, their shares of the ties would cancel."""

    @functools.wraps(run)
    def cubature(f, a, b, **settings):
        if (holds_tracked(a) or holds_tracked(b)) and bool(plain_np.any(bare(a) == bare(b))):
            raise SingularError(
                "scipy.integrate.cubature: tracked limits that are equal have no derivative; use nquad"
            )
        return run(f, a, b, **settings)

    return cubature


FOLLOWED.decorate(itg.cubature, with_limits_apart)
for _f in (itg.cubature, itg.fixed_quad, itg.qmc_quad, itg.newton_cotes):
    INTEGRATE.rule(_f, of_functions=True)(FOLLOWED.function(_f))
INTEGRATE.follow(FOLLOWED)
for _kind in (itg.DenseOutput, *itg.DenseOutput.__subclasses__()):
    INTEGRATE.rule(_kind)(FOLLOWED.klass(_kind))  # an `OdeSolution` has them

stand_in = INTEGRATE.stand_in("tapegrad.scipy.integrate")
stand_in.continuous_adjoint = continuous_adjoint
