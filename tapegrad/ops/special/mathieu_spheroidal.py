"""Mathieu functions and spheroidal wave functions, in the argument and the parameter.

Each is a series of known functions (cosines, sines, Legendre functions, products of Bessel functions).
The coefficients are an eigenvector of a symmetric band matrix that is linear in the parameter, so
`eigh` gives the derivatives. Orders are constants. References: McLachlan, "Theory and Application of
Mathieu Functions"; Flammer, "Spheroidal Wave Functions"; DLMF 28 and 30."""

import math
from collections.abc import Callable

import numpy as np
import scipy.special as sp

from ..._core.errors import ArgumentError
from ..._core.primitive import primal_of, seen, values_of
from ..._core.variable import Variable
from ..declare import shape
from ..elementwise import absolute, cos, exp, power, select, sin, sqrt
from ..linalg.decompositions import eigh
from ..shaping import reshape, slice_of, stack, sum
from ..zero_derivative import argmax
from .bessel_relatives import jv, jvp, spherical_jn, yv, yvp
from .declare import greatest, implements_special, several_results, with_last_axis
from .legendre import ASSOCIATED, degree_recurrence
from .orthogonal_polynomials import DEGREE

MOST_ORDER = 1e6
MOST_Q, MOST_C = 1000.0, 40.0  # the largest parameters, if their values are hidden


def of_orders(name: str, count: int) -> Callable:
    """SciPy's function f(orders.., *xs) for integer orders. Arrays of orders are evaluated one combination
    after another."""

    def declare(f: Callable) -> Callable:
        def of(*args):
            orders = np.broadcast_arrays(*[values_of(n) for n in args[:count]])
            rows = np.unique(np.stack([n.reshape(-1) for n in orders]), axis=1).T
            if not ((rows >= 0) & (rows < MOST_ORDER) & (rows == np.floor(rows))).all():
                raise ArgumentError(
                    f"scipy.special.{name}: an order is no whole number from 0 on, and SciPy gives "
                    f"nan; leave it out"
                )
            done = [(row, f(*[int(n) for n in row], *args[count:])) for row in rows]
            result = done[0][1]
            for row, y in done[1:]:
                here = np.all([n == k for n, k in zip(orders, row, strict=True)], axis=0)
                pairs = zip(result, y, strict=True) if isinstance(y, tuple) else [(result, y)]
                chosen = [select(here, b, a) for a, b in pairs]
                result = tuple(chosen) if isinstance(y, tuple) else chosen[0]
            return result

        return implements_special(getattr(sp, name))(of)

    return declare


def eigen(start: np.ndarray, change: np.ndarray, q) -> tuple:
    """Eigenvalues in ascending order and eigenvectors of diag(start) + q change."""
    q = q * np.float64(1.0)
    return eigh(np.diag(start) + reshape(q, to=(*shape(q), 1, 1)) * change)


def truncation_order(q, most: float) -> float:
    known = seen(primal_of(q) * 1.0)
    return most if known is None else greatest(np.abs(known))


def within(q, most: float, y):
    """y, with nan where a hidden q is too large for the matrix."""
    return select(absolute(primal_of(q)) <= truncation_order(q, most), y, math.nan)


# --- Mathieu ---


class MathieuSeries:
    """The series of ce_m (`odd`: of se_m) at the parameter q: `value`, the characteristic value;
    `frequencies`; `vector`."""

    def __init__(self, m: int, q, odd: bool):
        self.odd, self.m = odd, m
        first = m % 2 if not (odd and m % 2 == 0) else 2
        self.index = k = (m - first) // 2
        size = k + 20 + int(1.2 * math.sqrt(truncation_order(q, MOST_Q)))
        self.frequencies = first + 2.0 * np.arange(size)
        off = np.ones(size - 1)
        self.ends = np.ones(size)  # for the constant term
        if first == 0:
            off[0], self.ends[0] = math.sqrt(2.0), math.sqrt(0.5)
        change = np.diag(off, 1) + np.diag(off, -1)
        change[0, 0] = 0.0 if first != 1 else -1.0 if odd else 1.0
        w, v = eigen(self.frequencies**2, change, q)
        self.value, v = within(q, MOST_Q, w[..., k]), within(with_last_axis(q), MOST_Q, v[..., :, k])
        # at 0 the function or its derivative is positive; for q > 0 its largest value is at a quarter
        # turn, for q < 0 at 0
        turns = (-1.0) ** np.arange(size)
        quarter = turns * (-1.0) ** k * (self.frequencies if odd != (m % 2 == 1) else 1.0)
        start = self.frequencies if odd else 1.0
        positive = primal_of(q) >= 0
        plain = primal_of(v) * self.ends
        side = select(positive, sum(plain * quarter, -1), sum(plain * start, -1))
        self.vector = v * self.ends * with_last_axis(select(side < 0, -1.0, 1.0))


def characteristic(name: str, odd: bool) -> Callable:
    def of(m, q):
        return MathieuSeries(m, q, odd).value

    return of_orders(name, 1)(of)


mathieu_a = characteristic("mathieu_a", False)
mathieu_b = characteristic("mathieu_b", True)


def coefficients(name: str, odd: bool) -> Callable:
    scipys = getattr(sp, name)

    def of(m, q):
        size = len(scipys(m, float(values_of(q))))
        v = MathieuSeries(int(m), q, odd).vector
        kept = slice_of(v, axis=0, start=0, stop=min(size, shape(v)[0]))
        return (
            kept
            if shape(v)[0] >= size
            else stack([kept[k] if k < shape(v)[0] else 0.0 * kept[0] for k in range(size)])
        )

    return implements_special(scipys)(of)


mathieu_even_coef = coefficients("mathieu_even_coef", False)
mathieu_odd_coef = coefficients("mathieu_odd_coef", True)


def angular(name: str, odd: bool) -> Callable:
    """The value, and its derivative with respect to the angle, at an angle in degrees."""

    def of(m, q, x):
        if odd and m == 0:
            return 0.0 * q * x, 0.0 * q * x
        c = MathieuSeries(m, q if isinstance(q, Variable) else np.asarray(q), odd)
        at = c.frequencies * with_last_axis(x * (math.pi / 180.0))
        up, down = (cos(at), -sin(at)) if not odd else (sin(at), cos(at))
        return sum(c.vector * up, -1), sum(c.vector * c.frequencies * down, -1)

    return of_orders(name, 1)(of)


mathieu_cem = angular("mathieu_cem", False)
mathieu_sem = angular("mathieu_sem", True)


def radial(name: str, odd: bool, second: tuple) -> Callable:
    """By products of Bessel functions of h exp(-x) and h exp(x), h^2 = q, where s is the place of the
    largest coefficient (DLMF 28.24)."""
    f, df = second

    def of(m, q, x):
        c = MathieuSeries(m, q, odd)
        first, places = int(c.frequencies[0]), np.arange(len(c.frequencies))
        s = with_last_axis(argmax(absolute(primal_of(c.vector)), -1))
        here = places == s
        sizes = (
            (-1.0) ** (places + c.index)
            * c.vector
            / with_last_axis(sum(here * c.vector, -1) * select((s[..., 0] == 0) & (first == 0), 2.0, 1.0))
        )
        h = sqrt(select(primal_of(q) > 0, q, math.nan))
        low, high = with_last_axis(h * exp(-x)), with_last_axis(h * exp(x))
        near, far = (places - s) * 1.0, (places + s + first) * 1.0
        sign = -1.0 if odd else 1.0
        y = jv(near, low) * f(far, high) + sign * jv(far, low) * f(near, high)
        falls = jvp(near, low) * f(far, high) + sign * jvp(far, low) * f(near, high)
        rises = jv(near, low) * df(far, high) + sign * jv(far, low) * df(near, high)
        return sum(sizes * y, -1), sum(sizes * (high * rises - low * falls), -1)

    return of_orders(name, 1)(of)


mathieu_modcem1 = radial("mathieu_modcem1", False, (jv, jvp))
mathieu_modcem2 = radial("mathieu_modcem2", False, (yv, yvp))
mathieu_modsem1 = radial("mathieu_modsem1", True, (jv, jvp))
mathieu_modsem2 = radial("mathieu_modsem2", True, (yv, yvp))

# --- spheroidal: prolate with c^2, oblate with -c^2 ---


class Spheroid:
    """The series of order m and degree n in normalised Legendre functions: `value`, the characteristic
    values; `degrees`; `vector`."""

    def __init__(self, m: int, n: int, c, sign: float):
        first, k = m + (n - m) % 2, (n - m) // 2
        size = k + 20 + int(0.8 * truncation_order(c, MOST_C))
        self.m, self.n = m, n
        self.degrees = l = first + 2.0 * np.arange(size)
        beside = lambda l: np.sqrt((l * l - m * m) / (4.0 * l * l - 1.0))  # for x times a normalised function
        off = (beside(l + 1) * beside(l + 2))[:-1]
        change = np.diag(beside(l) ** 2 * (l > m) + beside(l + 1) ** 2) + np.diag(off, 1) + np.diag(off, -1)
        w, v = eigen(l * (l + 1), sign * change, c * c)
        self.value, self.vector = (
            within(c, MOST_C, w[..., k]),
            within(with_last_axis(c), MOST_C, v[..., :, k]),
        )
        # (l + m)! / (l - m)!, and the factor that makes the Legendre functions orthonormal
        self.ratios = np.array([math.prod(range(int(d) - m + 1, int(d) + m + 1)) * 1.0 for d in l])
        self.norms = np.sqrt((l + 0.5) / self.ratios)


def at_zero(m: int, l: np.ndarray) -> np.ndarray:
    """The Legendre functions at 0, or their derivatives if they are odd."""
    odd = int(l[0] - m) % 2
    p = ASSOCIATED[2](l.astype(int) - odd, m, 0.0)
    return (l + m) * p if odd else p


def characteristic_of(name: str, sign: float) -> Callable:
    def of(m, n, c):
        return Spheroid(m, n, c, sign).value

    return of_orders(name, 2)(of)


pro_cv = characteristic_of("pro_cv", 1.0)
obl_cv = characteristic_of("obl_cv", -1.0)


def all_characteristic(scipys, one: Callable) -> Callable:
    def of(m, n, c):
        return stack([one(m, k, c) for k in range(int(m), int(n) + 1)])

    return implements_special(scipys)(of)


pro_cv_seq = all_characteristic(sp.pro_cv_seq, pro_cv)
obl_cv_seq = all_characteristic(sp.obl_cv_seq, obl_cv)


def angular_of(name: str, sign: float) -> Callable:
    """Value and derivative, normalised by the Legendre function's value or derivative at 0."""

    def of(m, n, c, x):
        s = Spheroid(m, n, c, sign)
        l, z = s.degrees, with_last_axis(x)
        scale = (-1.0) ** m * at_zero(m, np.array([n * 1.0]))[0] / sum(s.vector * s.norms * at_zero(m, l), -1)
        p = ASSOCIATED[2](l.astype(int), m, z)
        dp = degree_recurrence(p, l.astype(int), m, z, ASSOCIATED[2])
        return scale * sum(s.vector * s.norms * p, -1), scale * sum(s.vector * s.norms * dp, -1)

    return of_orders(name, 2)(of)


pro_ang1 = angular_of("pro_ang1", 1.0)
obl_ang1 = angular_of("obl_ang1", -1.0)


def radial_of(name: str, sign: float) -> Callable:
    """By spherical Bessel functions of c x."""

    def of(m, n, c, x):
        s = Spheroid(m, n, c, sign)
        l = s.degrees
        weights = s.vector * np.sqrt((2.0 * l + 1.0) * s.ratios)
        turned = weights * (-1.0) ** ((l - n) / 2) / with_last_axis(sum(weights, -1))
        z, front = with_last_axis(c * x), power(1.0 - sign / (x * x), 0.5 * m)
        y, dy = sum(turned * spherical_jn(l, z), -1), sum(turned * spherical_jn(l, z, True), -1)
        slope = m * sign / (x * x * x - sign * x)  # of the logarithm of the prefactor
        return front * y, front * (slope * y + c * dy)

    return of_orders(name, 2)(of)


pro_rad1 = radial_of("pro_rad1", 1.0)
obl_rad1 = radial_of("obl_rad1", -1.0)

# --- functions of a given characteristic value, and radial ones of the second kind: in the argument ---

BY_C = "by the parameter there is a rule for pro_ang1, obl_ang1, pro_rad1 and obl_rad1 only"


def by_equation(name: str, sign: float, around: float, value: Callable) -> Callable:
    """Functions y(.., x) with (x^2 - around) y'' + 2 x y' = (cv - sign c^2 x^2 + m^2 / ..) y, up to
    signs. `value`: cv as a function of the arguments."""
    scipys = getattr(sp, name)
    given = name.endswith("cv")
    texts = (DEGREE, DEGREE, BY_C, *((BY_C,) if given else ()))

    def second(out, *args):
        m, c, x = primal_of(args[0]), args[2], args[-1]
        rest = x * x - around
        return (
            (value(*map(primal_of, args)) - sign * c * c * x * x + around * m * m / rest) * parts[0](*args)
            - 2.0 * x * out
        ) / rest

    parts: list
    parts, of = several_results(scipys, (*texts, lambda out, *args: parts[1](*args)), (*texts, second))
    return of


GIVEN = lambda m, n, c, cv, x: cv
pro_ang1_cv = by_equation("pro_ang1_cv", 1.0, 1.0, GIVEN)
pro_rad1_cv = by_equation("pro_rad1_cv", 1.0, 1.0, GIVEN)
pro_rad2_cv = by_equation("pro_rad2_cv", 1.0, 1.0, GIVEN)
pro_rad2 = by_equation("pro_rad2", 1.0, 1.0, lambda m, n, c, x: pro_cv(m, n, c))
obl_ang1_cv = by_equation("obl_ang1_cv", -1.0, 1.0, GIVEN)
obl_rad1_cv = by_equation("obl_rad1_cv", 1.0, -1.0, GIVEN)
obl_rad2_cv = by_equation("obl_rad2_cv", 1.0, -1.0, GIVEN)
obl_rad2 = by_equation("obl_rad2", 1.0, -1.0, lambda m, n, c, x: obl_cv(m, n, c))
