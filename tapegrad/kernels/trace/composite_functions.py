"""Functions of NumPy and SciPy on traced values that are composed of others.

They cover angles, rounding, choices, sorting, tables, products and sums of exponentials. None uses an
absolute value or a maximum where that would lose a derivative at zero or share it at a tie."""

import functools
from collections.abc import Callable

import numpy as np
import scipy.special as sp

from ..._core.errors import KernelError
from ...ops.declare import NUMPY, PRIMITIVES
from .array_functions import symbolic_reduce
from .symbolic import (
    ARRAYS,
    FUNCTIONS,
    MOST_SELECTS,
    Sym,
    apply_operation,
    as_real_symbol,
    broadcast_instruction,
    graph_of,
    implements_symbolic,
    lift,
    lifted,
    symbolic_where,
)

# --- rounding ---


@implements_symbolic(np.round, np.around)
def round_(x, decimals: int = 0) -> Sym:
    return np.rint(x) if decimals == 0 else np.rint(x * 10.0**decimals) / 10.0**decimals


# --- choices, tables, sorting ---


@implements_symbolic(np.interp)
def symbolic_interp(x, xp, fp, left=None, right=None) -> Sym:
    """Interpolate linearly. At the last node the slope is that of the last piece."""
    x, xp, fp = lifted(x, xp, fp)
    n = len(xp)
    if n == 1:
        out = fp[0] + 0.0 * x
    else:
        slopes = (fp[1:] - fp[:-1]) / (xp[1:] - xp[:-1])
        at = searchsorted(xp[1 : n - 1], x, "right")
        out = fp[at] + (x - xp[at]) * slopes[at]
        out = symbolic_where(np.isnan(x), x, out)
    out = symbolic_where(x < xp[0], fp[0] if left is None else left, out)
    return symbolic_where(x > xp[n - 1], fp[n - 1] if right is None else right, out)


@implements_symbolic(np.searchsorted)
def searchsorted(a, v, side: str = "left") -> Sym:
    """Count the sorted numbers a below v (side='right': not above v); nan sorts last, as in NumPy."""
    a, v, count = lifted(a, v, 0.0)
    n = len(a)
    behind = lambda x: np.logical_not((x >= v) if side == "left" else (x > v))
    if n <= MOST_SELECTS:
        return functools.reduce(lambda count, x: count + symbolic_where(behind(x), 1.0, 0.0), a, count)
    for step in [1 << k for k in reversed(range(n.bit_length()))]:  # bisection
        past = behind(a[count + (step - 1)]) & (count + step <= n)
        count = symbolic_where(past, count + step, count)
    return count


@implements_symbolic(np.digitize)
def digitize(x, bins, right: bool = False) -> Sym:
    """Return the bins of x; the bins may ascend or descend."""
    bins, _ = lifted(bins, x)
    side = "left" if right else "right"
    up = searchsorted(bins, x, side)
    return (
        up
        if len(bins) < 2
        else symbolic_where(bins[0] > bins[-1], len(bins) - searchsorted(bins[::-1], x, side), up)
    )


@implements_symbolic(np.sort)
def symbolic_sort(x, axis: int = -1) -> Sym:
    """Sort by n (n - 1) / 2 exchanges of neighbours; equal numbers keep their order and derivatives."""
    (x,) = lifted(x)
    if x.ndim != 1:
        raise KernelError("np.sort in a kernel: vectors only; sort row by row")
    rows = list(x)
    for last in range(len(rows) - 1, 0, -1):
        for k in range(last):
            swap = np.logical_not((rows[k] <= rows[k + 1]) | np.isnan(rows[k + 1]))  # nan comes last
            rows[k], rows[k + 1] = (
                symbolic_where(swap, rows[k + 1], rows[k]),
                symbolic_where(swap, rows[k], rows[k + 1]),
            )
    return lift(x.g, rows)


@implements_symbolic(np.median)
def symbolic_median(x) -> Sym:
    rows = symbolic_sort(np.reshape(x, (-1,)))
    n = len(rows)
    return symbolic_where(np.isnan(rows[-1]), np.nan, 0.5 * (rows[(n - 1) // 2] + rows[n // 2]))


def place_of(first: Callable) -> Callable:
    """Return a function for the place of the number that is before all others by `first`, or of the first
    nan."""

    def run(x) -> Sym:
        x = np.reshape(as_real_symbol(*lifted(x)), (-1,))
        best, place = x[0], lift(x.g, 0.0)
        for k in range(1, len(x)):
            better = (first(x[k], best) | np.isnan(x[k])) & np.logical_not(np.isnan(best))
            best, place = symbolic_where(better, x[k], best), symbolic_where(better, float(k), place)
        return place

    return run


FUNCTIONS[np.argmax], FUNCTIONS[np.argmin] = place_of(lambda a, b: a > b), place_of(lambda a, b: a < b)


# --- SciPy's functions ---


def top_of(x: Sym, axis) -> Sym:
    """Return the largest numbers along the axis, which is kept; 0 where they are infinite."""
    x = broadcast_instruction(x.g, "primal", x)
    m = symbolic_reduce(x, axis, True, op=lambda a, b: symbolic_where(a < b, b, a), empty=-np.inf)
    return symbolic_where(np.isfinite(m), m, 0.0)


ARRAYS[PRIMITIVES["top_of"].prim] = top_of


def symbolic_polygamma(n, x) -> Sym:
    n, x = lifted(n, x)
    order = n.constant()
    if order is None or order.ndim or order != int(order) or order < 0:
        raise KernelError(
            "scipy.special.polygamma(n, x) in a kernel: n must be one whole number known while tracing"
        )
    return apply_operation(x.g, sp.polygamma, (int(order), x)) if order else sp.digamma(x)


FUNCTIONS[sp.polygamma] = symbolic_polygamma


def composed_function(theirs: Callable) -> Callable:
    """SciPy's function, by its composition in ops/ if it gets symbols."""

    def run(*args, **kwargs):
        g = graph_of(*args)
        if g is None:
            return theirs(*args, **kwargs)
        ours = FUNCTIONS.get(theirs)
        return apply_operation(g, theirs, args, kwargs) if ours is None else ours(*args, **kwargs)

    return run


FOREIGN = {
    f: composed_function(f)
    for f in NUMPY
    if getattr(f, "__module__", "").startswith(("scipy.linalg", "scipy.special"))
}
