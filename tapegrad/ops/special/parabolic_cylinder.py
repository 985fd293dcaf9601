"""Parabolic cylinder functions, in the argument and the order.

D and V solve y'' = (a + x^2 / 4) y with a = -v - 1/2; W solves y'' = (a - x^2 / 4) y. Each is its
value at 0 times the even solution plus its derivative there times the odd one. The series of both are
differentiated with respect to a term by term. Where D decays, the two would cancel. There it is an
integral of positive terms for v < -1, followed by the recurrence D_(v+1) = x D_v - v D_(v-1) upwards
(DLMF 12.2, 12.5, 12.8)."""

import math
from collections.abc import Callable

import numpy as np
import scipy.special as sp

from ..._core.primitive import primal_of
from ..declare import primitive
from ..elementwise import exp, log, select
from ..shaping import sum
from .declare import greatest, of_floats, several_results, slopes, special_function, with_last_axis
from .gamma import rgamma, rgamma_slope
from .incomplete import central_moment

MOST_RECURRENCE_TERMS = 2000  # terms
POINTS = np.linspace(0.0, 1.0, 800)
LOG2, ROOT_PI = math.log(2.0), math.sqrt(math.pi)

# --- the even and the odd solution ---


@primitive(batch="elementwise")
@of_floats(lambda a, x: np.isfinite(a) & np.isfinite(x), 0.0, 0.0)
def cylinder_series(a, x, *, odd, sign, n, slope=False):
    """The derivative of order n with respect to a of the solution of y'' = (a + sign x^2 / 4) y with y,
    y' = 1, 0 at 0 (`odd`: 0, 1), or of its slope. The coefficients satisfy (k + 2) (k + 1) c[k+2] = a
    c[k] + n times that of order n - 1 + sign c[k-2] / 4."""
    square = x * x
    now = [np.ones(x.shape), *[np.zeros(x.shape)] * n]  # of orders 0, .., n: c[k] x^(k - odd)
    before = [np.zeros(x.shape)] * (n + 1)
    total, quiet = now[n] * (1.0 if odd or not slope else 0.0), 0
    for k in range(odd, MOST_RECURRENCE_TERMS, 2):
        new = [
            (a * c + (m * now[m - 1] if m else 0.0) + 0.25 * sign * square * b)
            * square
            / ((k + 2.0) * (k + 1.0))
            for m, (c, b) in enumerate(zip(now, before, strict=True))
        ]
        now, before = new, now
        part = now[n] * (k + 2.0 if slope else 1.0)
        total = total + part
        quiet = quiet + 1 if np.all(abs(part) <= 1e-18 * abs(total)) else 0
        if quiet > 6 and k > 2 * n + 8:
            break
    if slope == bool(odd):
        return total
    return total * x if odd else total / np.where(x == 0, 1.0, x)


def _series_by_x(out, a, x, odd, sign, n, slope):
    f = lambda m, slope=False: cylinder_series(a, x, odd=odd, sign=sign, n=m, slope=slope)
    if not slope:
        return f(n, True)
    return (a + 0.25 * sign * x * x) * f(n) + (n * f(n - 1) if n else 0.0)


slopes(
    cylinder_series,
    lambda out, a, x, odd, sign, n, slope: cylinder_series(a, x, odd=odd, sign=sign, n=n + 1, slope=slope),
    _series_by_x,
)


def by_solutions(start, a, x, sign: float, slope: bool):
    """The derivative with respect to a. `start`: (value at 0, its derivative with respect to a, slope at
    0, its derivative)."""
    f = lambda odd, n: cylinder_series(a, x, odd=odd, sign=sign, n=n, slope=slope)
    y, dy, s, ds = start
    return dy * f(0, 0) + y * f(0, 1) + ds * f(1, 0) + s * f(1, 1)


# --- D for x > 0, and for v < -1 ---


def by_integral(v, x, n):
    """For v < -1, the derivatives of orders 0 to n of exp(-x^2 / 4) / Gamma(-v) times the integral of
    exp(h) ds. Here t = exp(s) and h = -v s - t^2 / 2 - x t. The second derivative in t is below -1, so
    the whole mass lies within 10 of the maximum."""
    top = -2.0 * v / (x + np.sqrt(x * x - 4.0 * v))
    low = np.log(top) + (45.0 + 0.5 * top * top + abs(x) * top) / v - 1.0
    low = np.where(top > 11.0, np.maximum(low, np.log(np.maximum(top - 10.0, 1.0))), low)
    wide = np.log(top + 10.0) - low
    s = low[..., None] + wide[..., None] * POINTS
    t = np.exp(s)
    front = -0.25 * x * x - sp.gammaln(-v)
    weight = (
        np.exp(-v[..., None] * s - 0.5 * t * t - x[..., None] * t + front[..., None])
        * (wide * POINTS[1])[..., None]
    )
    rise = sp.digamma(-v)[..., None] - s
    cumulant = lambda i, _: ((-1) ** (i - 1) * sp.polygamma(i - 1, -v))[..., None]
    moments = [
        sum_of([math.comb(m, j) * rise ** (m - j) * central_moment(cumulant, j) for j in range(m + 1)])
        for m in range(n + 1)
    ]
    return [(weight * moment).sum(-1) for moment in moments]


def sum_of(parts: list):
    return parts[0] if len(parts) == 1 else parts[0] + sum_of(parts[1:])


@primitive(batch="elementwise")
@of_floats(lambda v, x: np.isfinite(v) & np.isfinite(x) & ((x > 0) | (v < -1.0)), -1.5, 1.0)
def cylinder_order(v, x, *, n):
    """The derivative of order n of D_v(x) with respect to v, for x > 0 or v < -1."""
    steps = np.where(v < -1.0, 0.0, np.floor(v) + 2.0)
    at = v - steps
    lower, here = by_integral(at - 1.0, x, n), by_integral(at, x, n)
    for k in range(int(greatest(steps))):
        u, go = at + k, k < steps
        above = [x * here[m] - u * lower[m] - (m * lower[m - 1] if m else 0.0) for m in range(n + 1)]
        lower = [np.where(go, h, b) for h, b in zip(here, lower, strict=True)]
        here = [np.where(go, y, h) for y, h in zip(above, here, strict=True)]
    return here[n]


def cylinder_order_slope(out, v, x, n):
    """The derivative with respect to x: D_v' = v D_(v-1) - x D_v / 2."""
    return (
        v * cylinder_order(v - 1.0, x, n=n)
        + (n * cylinder_order(v - 1.0, x, n=n - 1) if n else 0.0)
        - 0.5 * x * out
    )


slopes(cylinder_order, lambda out, v, x, n: cylinder_order(v, x, n=n + 1), cylinder_order_slope)


def d_by_order(v, x, slope):
    falls = (primal_of(x) > 0) | (primal_of(v) < -1.0)
    u, y = select(falls, v, -1.5), select(falls, x, 1.0)
    away = cylinder_order(u, y, n=1)
    if slope:
        away = cylinder_order_slope(away, u, y, 1)
    a, z = select(falls, 0.0, -v - 0.5), select(falls, 0.0, x)
    p, q = 0.75 + 0.5 * a, 0.25 + 0.5 * a
    e, f = ROOT_PI * exp(-LOG2 * (0.5 * a + 0.25)), -ROOT_PI * exp(-LOG2 * (0.5 * a - 0.25))
    start = [
        c
        for r, z in ((e, p), (f, q))
        for c in (r * rgamma(z), 0.5 * r * (rgamma_slope(z) - LOG2 * rgamma(z)))
    ]
    return select(falls, away, -by_solutions(start, a, z, 1.0, slope))


def v_by_order(v, x, slope):
    a = -v - 0.5
    start = []
    for shift in (0.25, 0.75):
        p, q = 1.0 - shift - 0.5 * a, shift + 0.5 * a
        front = math.pi * exp(LOG2 * (0.5 * a + shift))
        y = rgamma(p) * rgamma(p) * rgamma(q)
        turn = rgamma(p) * (0.5 * rgamma(p) * rgamma_slope(q) - rgamma_slope(p) * rgamma(q))
        start += [front * y, front * (0.5 * LOG2 * y + turn)]
    return -by_solutions(start, a, x, 1.0, slope)


BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)  # B_2k / 2k
LOG_GAMMA_SHIFT = 14


def psi_of_complex(z):
    far = z + float(LOG_GAMMA_SHIFT)
    square = 1.0 / (far * far)
    tail = 0.0
    for c in reversed(BERNOULLI):
        tail = (tail + c) * square
    return log(far) - 0.5 / far - tail - sum(1.0 / (with_last_axis(z) + np.arange(LOG_GAMMA_SHIFT * 1.0)), -1)


def w_by_order(a, x, slope):
    """The value at 0 is 2^(-3/4) r, the slope -2^(-1/4) / r, with r^2 = |Gamma(1/4 + i a / 2) / Gamma(3/4 + i
    a / 2)|."""
    z = 0.5j * a
    rise = 0.25 * (psi_of_complex(z + 0.75).imag - psi_of_complex(z + 0.25).imag)  # for log r
    y = w_at_zero(a)
    s = -0.5 / y
    return by_solutions((y, rise * y, s, -rise * s), a, x, -1.0, slope)


w_at_zero = special_function(
    None,
    lambda out, a: 0.25 * out * (psi_of_complex(0.5j * a + 0.75).imag - psi_of_complex(0.5j * a + 0.25).imag),
    body=lambda a: (
        2**-0.75 * np.exp(0.5 * (sp.loggamma(0.25 + 0.5j * a) - sp.loggamma(0.75 + 0.5j * a)).real)
    ),
    name="w_at_zero",
)

# --- SciPy's functions ---


def cylinders(scipys: Callable, coefficient: Callable, by_order: Callable) -> Callable:
    """The function that returns y and y', with y'' = coefficient(parameter, x) y."""
    parts: list
    parts, of = several_results(
        scipys,
        (lambda out, v, x: by_order(v, x, False), lambda out, v, x: parts[1](v, x)),
        (lambda out, v, x: by_order(v, x, True), lambda out, v, x: coefficient(v, x) * parts[0](v, x)),
    )
    return of


pbdv = cylinders(sp.pbdv, lambda v, x: 0.25 * x * x - v - 0.5, d_by_order)
pbvv = cylinders(sp.pbvv, lambda v, x: 0.25 * x * x - v - 0.5, v_by_order)
pbwa = cylinders(sp.pbwa, lambda a, x: a - 0.25 * x * x, w_by_order)
