"""scipy.special in kernels: what is composed of other functions.  The values of these stand in emit/elementary.py, their derivatives
in ops/special.py."""

from typing import Any

import numpy as np
import scipy.special as sp

from ...errors import KernelError
from .linalg import FOREIGN, for_traced
from .symbolic import COMPOSED, Sym, called, graph_of, implements, lift, where


def polygamma(n: Any, x: Any) -> Sym:
    g = graph_of(n, x)
    order = lift(g, n).constant()
    if order is None or order.ndim or order != int(order) or order < 0:
        raise KernelError("scipy.special.polygamma(n, x) in a kernel: n must be one whole number known while tracing")
    return called(g, sp.polygamma, (int(order), x)) if order else sp.digamma(x)


FOREIGN[sp.polygamma] = for_traced(sp.polygamma, polygamma)


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
