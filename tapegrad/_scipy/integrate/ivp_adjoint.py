"""solve_ivp by the continuous adjoint: the cotangent obeys a differential equation of its own, which is
solved backwards.

dy/dt = f(t, y, p) gives, from one time of the result to the one before, d(lambda)/dt = -lambda df/dy and
d(gradient)/dt = -lambda df/dp; at each time the cotangent of the result is added to lambda, and y is taken
anew from the result.  Nothing of the steps is kept.  The backward equation is solved by the same operation,
so every order follows; forward, the equation is that of the tangents."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as plain_np
import scipy.integrate as itg

from ... import numpy as np
from ..._core.errors import ArgumentError, ConvergenceError
from ..._core.primitive import bind, joint_primitive
from ..._core.registry import SHADOW_MAKERS
from ..._core.scope import at_the_end_of, changed
from ..._core.trees import Const
from ..._transforms.products import jvp, vjp
from ..._transforms.rebind import Rebind, with_all
from ...implicit import or_zeros
from ...ops.declare import shape
from ..namespaces import as_float_array, bare, holds_tracked
from .linear_steps import METHODS


def continuous_adjoint(method="RK45") -> type:
    """A method for `scipy.integrate.solve_ivp`: the same one, whose derivative is by the continuous adjoint.

    >>> import numpy as np, scipy.integrate, tapegrad as tg
    >>> method = tg.scipy.integrate.continuous_adjoint("DOP853")
    >>> def f(k):
    ...     return scipy.integrate.solve_ivp(lambda t, y: -k * y, (0, 1), [1.0], method, [1.0], rtol=1e-10, atol=1e-12).y[0, 0]
    >>> round(tg.grad(f)(2.0), 8)
    np.float64(-0.13533528)
    """
    base = METHODS.get(method, method)
    if not (isinstance(base, type) and issubclass(base, itg.OdeSolver)):
        raise ArgumentError(
            f"continuous_adjoint: method={method!r}; it is one of {[*METHODS]}, or SciPy's class"
        )
    return type(
        base.__name__,
        (base,),
        {"continuous_adjoint": base, "__module__": base.__module__, "__doc__": base.__doc__},
    )


class Flow:
    """The states at some times, as a function of the start and of what the right side holds."""

    def __init__(self, fun: Callable, times, y0, args: tuple, method: type, options: dict):
        self.times = times
        self.method = method
        self.options = options
        self.n = shape(y0)[0]
        self.first = first = Rebind((fun,), [[y0, *args]])
        with first as (functions, args):
            first.arrays = []
        self.functions, self.args = functions, args

    def __del__(self):
        at_the_end_of(self, "first")  # it knows the functions that know it: ends the cycle

    def within(self, values, run: Callable):
        shadow = Rebind(self.functions, [*self.args], self.first, values)
        with shadow as ((fun,), ((y0, *args),)):
            out = run(fun, y0, args)
            shadow.check_all("scipy.integrate.solve_ivp(continuous_adjoint)")
            shadow.check("scipy.integrate.solve_ivp(continuous_adjoint)")
        shadow.arrays = []
        shadow.finish()
        return out

    def slope(self, t, y, values):
        return self.within(values, lambda fun, y0, args: as_float_array(fun(t, y, *args)) * 1.0)

    def start(self, values):
        return self.within(values, lambda fun, y0, args: as_float_array(y0) * 1.0)

    def states(self):
        """(n, times)"""
        name = "scipy.integrate.solve_ivp(continuous_adjoint)"
        return with_all(
            self.first,
            lambda values: bind(joint_primitive(name, self.run, self.pulled, self.pushed), values, {}),
        )[1][0]

    def run(self, *values) -> tuple:
        start = plain_np.asarray(bare(self.start(values)))
        with changed(depth=0):
            return (self.solved(lambda t, y: plain_np.asarray(bare(self.slope(t, y, values))), start),)

    def solved(self, fun: Callable, start):
        found = itg.solve_ivp(
            fun, (self.times[0], self.times[-1]), start, self.method, self.times[1:], **self.options
        )
        if found.status != 0:
            raise ConvergenceError(
                f"scipy.integrate.solve_ivp: {found.message} (of an equation of the derivative)"
            )
        return plain_np.concatenate([start[:, None], found.y], 1)

    def pulled(self, g, out, need, *values):
        (g,), (Y,), n = or_zeros(g, tuple(out)), tuple(out), self.n
        wanted = [k for k, needs in enumerate(need) if needs]
        sizes = [int(plain_np.prod(shape(values[k]))) for k in wanted]
        adjoint, total = g[:, -1], plain_np.zeros(sum(sizes))
        for j in range(len(self.times) - 1, 0, -1):
            s = np.concatenate([Y[:, j], adjoint, total])
            back = flow(
                AdjointSlope(self, list(values), wanted), self.times[[j, j - 1]], s, self.method, self.options
            )
            adjoint, total = back[n : 2 * n, -1] + g[:, j - 1], back[2 * n :, -1]
        of_start = pullback(self.start, list(values), wanted, adjoint)
        terms = [None] * len(values)
        ends = plain_np.cumsum([0, *sizes])
        for i, k in enumerate(wanted):
            terms[k] = np.reshape(total[ends[i] : ends[i + 1]], shape(values[k])) + of_start[i]
        return terms

    def pushed(self, t, out, *values):
        wanted = [k for k, d in enumerate(t) if d is not None]
        some, tangents = tuple([values[k] for k in wanted]), tuple([t[k] for k in wanted])
        start, moved = jvp(
            Const(lambda *some: self.start(scatter_slopes(list(values), wanted, some))), some, tangents
        )
        both = flow(
            TangentSlope(self, list(values), wanted, list(tangents)),
            self.times,
            np.concatenate([start, moved]),
            self.method,
            self.options,
        )
        return (both[self.n :],)


def scatter_slopes(values: list, at: list, some) -> list:
    for k, v in zip(at, some, strict=True):
        values[k] = v
    return values


def pullback(f: Callable, values: list, wanted: list, g, *before) -> tuple:
    """What g on f(*before, values) pulls back to `before` and to those values that are wanted."""
    m = len(before)
    of = Const(lambda *some: f(*some[:m], scatter_slopes(list(values), wanted, some[m:])))
    some = (*before, *[values[k] for k in wanted])
    found = vjp(of, *some)[1](g) if some else ()
    return found if len(some) != 1 else (found,)


@dataclass(eq=False)
class AdjointSlope:
    """The slopes of (y, lambda, gradient)."""

    of: Flow
    values: list
    wanted: list

    def __call__(self, t, s):
        n, values = self.of.n, list(self.values)
        y, adjoint = s[:n], s[n : 2 * n]
        found = pullback(lambda y, values: self.of.slope(t, y, values), values, self.wanted, adjoint, y)
        return np.concatenate(
            [self.of.slope(t, y, values), *[-np.reshape(as_float_array(c), -1) for c in found]]
        )


@dataclass(eq=False)
class TangentSlope:
    """The slopes of (y, tangent)."""

    of: Flow
    values: list
    wanted: list
    tangents: list

    def __call__(self, t, s):
        n, values = self.of.n, list(self.values)
        of = Const(lambda y, *some: self.of.slope(t, y, scatter_slopes(list(values), self.wanted, some)))
        return np.concatenate(jvp(of, (s[:n], *[values[k] for k in self.wanted]), (s[n:], *self.tangents)))


SHADOW_MAKERS[AdjointSlope] = lambda shadow, x: AdjointSlope(x.of, shadow(x.values), x.wanted)
SHADOW_MAKERS[TangentSlope] = lambda shadow, x: TangentSlope(
    x.of, shadow(x.values), x.wanted, shadow(x.tangents)
)


def flow(fun, times, y0, method: type, options: dict, args: tuple = ()):
    """The states at the times: tracked where what is given, or what fun holds, is."""
    found = Flow(fun, times, y0, args, method, options)
    handles = [x for x, _ in found.first.handles]
    if any(holds_tracked(v) for v in handles):
        return found.states()
    return plain_np.asarray(found.run(*[bare(v) for v in handles])[0])


def solve_with_adjoint(fun, t_span, y0, base, t_eval, more: bool, args: tuple, options: dict):
    if more or holds_tracked(t_span, t_eval, options):
        raise ArgumentError(
            "scipy.integrate.solve_ivp: continuous_adjoint has no derivative by the times, and no "
            "dense_output=, events=, vectorized=; give the method by its own name"
        )
    options = bare(options)
    on = lambda t, y: plain_np.asarray(bare(as_float_array(fun(t, y, *args))))
    found = itg.solve_ivp(on, bare(t_span), bare(y0), base, bare(t_eval), **options)
    if found.status != 0:
        return found
    first = float(bare(t_span)[0])
    ahead = [] if found.t[0] == first else [first]
    times = plain_np.concatenate([ahead, found.t])
    Y = flow(fun, times, as_float_array(y0), base, options, args)
    found.y = Y[:, 1:] if ahead else Y
    return found
