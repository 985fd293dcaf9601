"""scipy.special in kernels: which functions there are, and their derivatives of any order.

The values stand in emit/elementary.py; here are the derivatives as nodes of the graph, and what is composed of others."""

import math
from typing import Any

import numpy as np
import scipy.special as sp

from ...errors import KernelError
from ..graph.nodes import FOLD1, PARTIALS, Graph
from .linalg import FOREIGN, for_traced
from .symbolic import COMPOSED, UNARY, Sym, elementwise, graph_of, implements, lift, where

VALUES = {
    sp.erf: "erf", sp.erfc: "erfc", sp.erfcx: "erfcx", sp.ndtr: "ndtr", sp.log_ndtr: "log_ndtr", sp.expit: "expit",
    sp.log_expit: "log_expit", sp.gammaln: "lgamma", sp.loggamma: "lgamma", sp.digamma: "digamma",
}  # fmt: skip
UNARY.update(VALUES)
FOLD1.update({name: f for f, name in VALUES.items() if f is not sp.loggamma})
TWO_BY_ROOT_PI, ROOT_2PI = 2 / math.sqrt(math.pi), math.sqrt(2 * math.pi)


def partial(*names: str) -> Any:
    """The decorated function of (graph, node, argument) gives the derivative of these operations."""

    def declare(f):
        PARTIALS.update(dict.fromkeys(names, f))
        return f

    return declare


def bell(g: Graph, x: int, scale: float, height: float) -> int:
    """height exp(-scale x^2)"""
    return g.mul(g.const(height), g.node("exp", g.mul(g.const(-scale), g.mul(x, x))))


@partial("erf")
def d_erf(g: Graph, i: int, x: int) -> int:
    return bell(g, x, 1.0, TWO_BY_ROOT_PI)


@partial("erfc")
def d_erfc(g: Graph, i: int, x: int) -> int:
    return bell(g, x, 1.0, -TWO_BY_ROOT_PI)


@partial("erfcx")
def d_erfcx(g: Graph, i: int, x: int) -> int:
    return g.sub(g.mul(g.const(2.0), g.mul(x, i)), g.const(TWO_BY_ROOT_PI))


@partial("ndtr")
def d_ndtr(g: Graph, i: int, x: int) -> int:
    return bell(g, x, 0.5, 1 / ROOT_2PI)


@partial("log_ndtr")
def d_log_ndtr(g: Graph, i: int, x: int) -> int:
    """The density over the distribution function; in the lower tail both vanish, and erfcx is their quotient."""
    scaled = g.node("erfcx", g.mul(g.const(-math.sqrt(0.5)), x))
    below = g.mul(g.const(math.sqrt(2 / math.pi)), g.rcp(scaled))
    return g.select(g.compare("lt", x, g.zero), below, g.mul(bell(g, x, 0.5, 1 / ROOT_2PI), g.rcp(g.node("ndtr", x))))


@partial("expit")
def d_expit(g: Graph, i: int, x: int) -> int:
    return g.mul(i, g.node("expit", g.neg(x)))


@partial("log_expit")
def d_log_expit(g: Graph, i: int, x: int) -> int:
    return g.node("expit", g.neg(x))


@partial("lgamma")
def d_lgamma(g: Graph, i: int, x: int) -> int:
    return g.node("digamma", x)


# trigamma(z) = 1/z + 1/(2 z^2) + sum B_2k / z^(2k+1) at z = x + 8, and the recurrence back (Abramowitz & Stegun 6.4.12, 6.4.6).
# It is written in elementary operations, so that the derivatives beyond it follow.
BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330]


@partial("digamma")
def d_digamma(g: Graph, i: int, x: int) -> int:
    return int(trigamma(Sym(g, x)).ids)


def trigamma(x: Sym) -> Sym:
    mirrored = x < 0.0
    a = where(mirrored, 1.0 - x, x)
    z = a + 8.0
    r = 1.0 / z
    r2 = r * r
    tail = lift(x.g, 0.0)
    for c in reversed(BERNOULLI):
        tail = tail * r2 + c
    y = r + r2 * (0.5 + r * tail)
    for k in range(7, -1, -1):
        y = y + 1.0 / ((a + k) * (a + k))
    s = np.sin(np.pi * (x - np.floor(x + 0.5)))
    return where(mirrored, np.pi**2 / (s * s) - y, y)


def polygamma(n: Any, x: Any) -> Sym:
    """Of constant orders; those above 1 as derivatives of trigamma."""
    g = graph_of(n, x)
    order = lift(g, n).constant()
    if order is None or order.ndim or order != int(order) or order < 0:
        raise KernelError("scipy.special.polygamma(n, x) in a kernel: n must be one whole number known while tracing")
    x = lift(g, x)

    def element(node: int) -> int:
        y = int(elementwise(g, "digamma", Sym(g, node)).ids)
        for _ in range(int(order)):
            y = derivative(g, y, node)
        return y

    return Sym(g, np.array([element(int(node)) for node in x.nodes.ravel()], np.int64).reshape(x.shape))


FOREIGN[sp.polygamma] = for_traced(sp.polygamma, polygamma)


def derivative(g: Graph, y: int, x: int) -> int:
    """d y / d x of two numbers."""
    t = {x: g.one}
    for i in g.reach([y], stop=t):
        if i not in t:
            t[i] = g.zero if g.op[i] in ("in", "const", "bool") else g.pushed(i, t)
    return t[y]


# --- composed of others ---


@implements(sp.logit)
def logit(p: Any) -> Sym:
    """log(p / (1 - p)); near 1/2, where that is small, by 2 p - 1, which is exact there."""
    d = 2.0 * p - 1.0
    return where(abs(d) < 0.5, np.log1p(d) - np.log1p(-d), np.log(p / (1.0 - p)))


def of_zero(a: Any, b: Any, bad: Any, product: Any) -> Sym:
    """`product`, but 0 where a is 0 and the logarithm of b is not finite.  Where it is finite the derivative by a is kept."""
    return where(np.logical_and(lift(graph_of(a, b), a) == 0.0, bad), 0.0, product)


@implements(sp.xlogy)
def xlogy(a: Any, b: Any) -> Sym:
    b = lift(graph_of(a, b), b)
    return of_zero(a, b, b <= 0.0, a * np.log(b))


@implements(sp.xlog1py)
def xlog1py(a: Any, b: Any) -> Sym:
    b = lift(graph_of(a, b), b)
    return of_zero(a, b, b <= -1.0, a * np.log1p(b))


@implements(sp.betaln)
def betaln(a: Any, b: Any) -> Sym:
    return sp.gammaln(a) + sp.gammaln(b) - sp.gammaln(a + b)


COMPOSED[sp.entr] = lambda x: where(x > 0.0, -x * np.log(x), where(x == 0.0, 0.0, -np.inf))
