"""Orthogonal polynomials and spherical harmonics, in their argument and their parameters.

The derivative with respect to the argument belongs to a neighbouring family. The degree is a constant."""

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sp

from ..._core.errors import NoRuleError
from ..._core.primitive import primal_of, values_of
from ..._core.variable import Variable
from ..elementwise import cos, exp, select, sin
from ..piecewise import floor
from ..shaping import sum
from .declare import (
    PARTIALS,
    IntegerArgument,
    greatest,
    implements_special,
    library_function,
    special_function,
    with_last_axis,
)
from .gamma import binom, digamma, poch

DEGREE = IntegerArgument("the degree is a constant")


def below(n, factor, f, *args):
    """factor f(n - 1, ...), or 0 for n = 0."""
    n = primal_of(n)
    return select(n == 0, 0.0, factor) * f(n - (n != 0), *args)


def mirrored(n, f, *args):
    """The derivative of Legendre's polynomials, f(n, ...): those of the degrees n and -n - 1 are equal."""
    n = primal_of(n)
    return f(select(n < 0, -n - 1, n), *args)


def mirrored_second(n, f, *args):
    """Of Chebyshev's of the second kind: those of the degrees n and -n - 2 have opposite signs."""
    n = primal_of(n)
    mirror = -n - 2
    return select(n < 0, -1.0, 1.0) * f(select(n < 0, mirror + (mirror == -1), n), *args)


# --- with respect to parameters: sums over lower degrees (Froehlich, Integral Transforms Spec. Funct. 2,
# 1994) ---


def over_lower(n, f):
    """The sum of f(n, k) over k = 0, .., n - 1 for an integer n; else nan."""
    n = primal_of(n) * 1.0
    most = values_of(n)
    k = np.arange(max(int(greatest(most)), 1) * 1.0)
    m = with_last_axis(n) if np.ndim(n) else n
    y = select(k < m, f(select(k < m, m, k + 1.0), k), 0.0)
    return select(n == floor(n), sum(y, -1), math.nan)


def jacobi_by(first):
    """The derivative with respect to a (`first`) or b."""

    def partial(out, n, a, b, x):
        own, other, s = (
            (with_last_axis(a), with_last_axis(b), 1.0)
            if first
            else (with_last_axis(b), with_last_axis(a), -1.0)
        )

        def term(m, k):
            rise = own + other + k + 1.0
            ratio = poch(other + k + 1.0, m - k) / poch(rise, m - k)
            lower = (
                (rise + k)
                / (m - k)
                * ratio
                * power_of_sign(s, m - k)
                * eval_jacobi(k, with_last_axis(a), with_last_axis(b), with_last_axis(x))
            )
            return (with_last_axis(out) + lower) / (m + rise)

        return over_lower(n, term)

    return partial


def power_of_sign(s, k):
    return 1.0 if s > 0 else 1.0 - 2.0 * (k % 2.0)


eval_jacobi: Any = special_function(
    sp.eval_jacobi,
    DEGREE,
    jacobi_by(True),
    jacobi_by(False),
    lambda out, n, a, b, x: below(n, 0.5 * (n + a + b + 1.0), eval_jacobi, a + 1.0, b + 1.0, x),
)


def gegenbauer_by_parameter(out, n, a, x):
    def term(m, k):
        c = with_last_axis(a)
        even = 1.0 - (m - k) % 2.0
        lower = (
            4.0 * even * (k + c) / ((k + m + 2.0 * c) * (m - k)) * eval_gegenbauer(k, c, with_last_axis(x))
        )
        return lower + (
            2.0 * (k + 1.0) / ((k + 2.0 * c) * (2.0 * (k + c) + 1.0)) + 2.0 / (k + m + 2.0 * c)
        ) * with_last_axis(out)

    return over_lower(n, term)


eval_gegenbauer: Any = special_function(
    sp.eval_gegenbauer,
    DEGREE,
    gegenbauer_by_parameter,
    lambda out, n, a, x: below(n, 2.0 * a, eval_gegenbauer, a + 1.0, x),
)
eval_legendre = special_function(
    sp.eval_legendre, DEGREE, lambda out, n, x: mirrored(n, below, 1.0, eval_gegenbauer, 1.5, x)
)
eval_chebyu = special_function(
    sp.eval_chebyu, DEGREE, lambda out, n, x: mirrored_second(n, below, 2.0, eval_gegenbauer, 2.0, x)
)
eval_chebyt = special_function(sp.eval_chebyt, DEGREE, lambda out, n, x: below(n, n, eval_chebyu, x))
eval_chebys = special_function(
    sp.eval_chebys, DEGREE, lambda out, n, x: mirrored_second(n, below, 1.0, eval_gegenbauer, 2.0, 0.5 * x)
)
eval_chebyc = special_function(sp.eval_chebyc, DEGREE, lambda out, n, x: below(n, n, eval_chebys, x))
eval_sh_legendre = special_function(
    sp.eval_sh_legendre,
    DEGREE,
    lambda out, n, x: mirrored(n, below, 2.0, eval_gegenbauer, 1.5, 2.0 * x - 1.0),
)
eval_sh_chebyu = special_function(
    sp.eval_sh_chebyu,
    DEGREE,
    lambda out, n, x: mirrored_second(n, below, 4.0, eval_gegenbauer, 2.0, 2.0 * x - 1.0),
)
eval_sh_chebyt = special_function(
    sp.eval_sh_chebyt, DEGREE, lambda out, n, x: below(n, 2.0 * n, eval_chebyu, 2.0 * x - 1.0)
)


def shifted_jacobi(n, p, q, x, k):
    """The first partial derivative of the Jacobi polynomial on (0, 1) with respect to its argument k,
    over its leading coefficient."""
    a, b, y = p - q, q - 1.0, 2.0 * x - 1.0
    return PARTIALS[eval_jacobi][k](eval_jacobi(n, a, b, y), n, a, b, y) / binom(
        2.0 * primal_of(n) + p - 1.0, primal_of(n)
    )


def sh_jacobi_by_p(out, n, p, q, x):
    m = primal_of(n)
    return shifted_jacobi(n, p, q, x, 1) - out * (digamma(2.0 * m + p) - digamma(m + p))


eval_sh_jacobi: Any = special_function(
    sp.eval_sh_jacobi,
    DEGREE,
    sh_jacobi_by_p,
    lambda out, n, p, q, x: shifted_jacobi(n, p, q, x, 2) - shifted_jacobi(n, p, q, x, 1),
    lambda out, n, p, q, x: below(n, n, eval_sh_jacobi, p + 2.0, q + 1.0, x),
)
eval_genlaguerre: Any = special_function(
    sp.eval_genlaguerre,
    DEGREE,
    lambda out, n, a, x: over_lower(
        n, lambda m, k: eval_genlaguerre(k, with_last_axis(a), with_last_axis(x)) / (m - k)
    ),
    lambda out, n, a, x: below(n, -1.0, eval_genlaguerre, a + 1.0, x),
)
eval_laguerre = special_function(
    sp.eval_laguerre, DEGREE, lambda out, n, x: below(n, -1.0, eval_genlaguerre, 1.0, x)
)
eval_hermite: Any = special_function(
    sp.eval_hermite, DEGREE, lambda out, n, x: below(n, 2.0 * n, eval_hermite, x)
)
eval_hermitenorm: Any = special_function(
    sp.eval_hermitenorm, DEGREE, lambda out, n, x: below(n, n, eval_hermitenorm, x)
)


@implements_special(sp.assoc_laguerre)
def assoc_laguerre(x, n, k=0.0):
    return eval_genlaguerre(n, k, x)


# (x^2 - 1) P' = v x P_v - (v + m) P_(v-1)
lpmv: Any = special_function(
    sp.lpmv,
    DEGREE,
    DEGREE,
    lambda out, m, v, x: (v * x * out - (v + m) * lpmv(m, select(v == 0, -v, v - 1), x)) / (x * x - 1.0),
)


@implements_special(sp.diric)
def diric(x, n):
    """sin(n x / 2) / (n sin(x / 2)), as a sum of cosines, which is smooth where the sine is zero."""
    n = int(primal_of(n))
    if n % 2:
        return (1.0 + 2.0 * builtins.sum(cos(k * x) for k in range(1, n // 2 + 1))) / n + 0.0 * x
    return 2.0 / n * builtins.sum(cos((k + 0.5) * x) for k in range(n // 2))


def spherical_harmonic(n, m, theta, phi):
    """The harmonic, with 0 for an order beyond the degree, where CuPy's function gives nan."""
    beyond = abs(m) > n
    return select(beyond, 0.0, 1.0) * sph_harm_y_of(n, select(beyond, 0 * m, m), theta, phi)


def half_by_side(theta):
    """0.5; -0.5 beyond the poles, where SciPy takes the modulus of the sine of theta."""
    return select(sin(primal_of(theta)) < 0, -0.5, 0.5)


def along_theta(out, n, m, theta, phi):
    """Half the difference of both ladder operators; no division by the sine of theta."""
    n, m = primal_of(n), primal_of(m)
    up, down = (
        np.sqrt(np.maximum((n - m) * (n + m + 1.0), 0.0)),
        np.sqrt(np.maximum((n + m) * (n - m + 1.0), 0.0)),
    )
    turn = exp(1j * phi)
    raised, lowered = spherical_harmonic(n, m + 1, theta, phi), spherical_harmonic(n, m - 1, theta, phi)
    return half_by_side(theta) * (up * raised / turn - down * lowered * turn)


sph_harm_y_of = special_function(
    None,
    DEGREE,
    DEGREE,
    along_theta,
    lambda out, n, m, theta, phi: 1j * m * out,
    body=library_function(sp.sph_harm_y),
    name="sph_harm_y_of",
)


@implements_special(sp.comb)
def comb(N, k, *, exact=False, repetition=False):
    return binom(N + k - 1.0, k) if repetition else where_counted(N, k, binom(N, k))


@implements_special(sp.perm)
def perm(N, k, exact=False):
    return where_counted(N, k, poch(N - k + 1.0, k))


def where_counted(N, k, y):
    """y, and 0 where SciPy counts no choice of k among N."""
    N, k = primal_of(N), primal_of(k)
    return select((k <= N) & (N >= 0) & (k >= 0), y, 0.0)


# --- polynomials as objects, with tracked parameters ---


class Polynomial:
    """The result of scipy.special.jacobi(n, alpha, beta) and similar functions; it is called with points."""

    def __init__(self, name: str, order: int, evaluate: Callable):
        self.order, self._name, self._evaluate = order, name, evaluate

    def __call__(self, x):
        return self._evaluate(x)

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        raise NoRuleError(
            f"scipy.special.{self._name}(...).{name} of tracked parameters has no derivative rule in "
            f"tapegrad; call it at points"
        )


def orthogonal_polynomial(name, n, monic, evaluate, leading, *parameters):
    """`leading`: the coefficient of x^n, by which a monic polynomial is divided."""
    n, plain = int(values_of(n)), list(map(primal_of, parameters))
    if not any([isinstance(p, Variable) for p in plain]):
        getattr(sp, name)(n, *plain, monic)  # SciPy checks them
    scale = leading(n, *parameters) if monic else 1.0
    return Polynomial(name, n, lambda x: evaluate(n * 1.0, *parameters, x) / scale)


@implements_special(sp.jacobi)
def jacobi(n, alpha, beta, monic=False):
    leading = lambda n, a, b: poch(n + a + b + 1.0, n * 1.0) / (2.0**n * math.factorial(n))
    return orthogonal_polynomial("jacobi", n, monic, eval_jacobi, leading, alpha, beta)


@implements_special(sp.sh_jacobi)
def sh_jacobi(n, p, q, monic=False):
    return orthogonal_polynomial("sh_jacobi", n, monic, eval_sh_jacobi, lambda n, p, q: 1.0, p, q)


@implements_special(sp.gegenbauer)
def gegenbauer(n, alpha, monic=False):
    leading = lambda n, a: 2.0**n * poch(a, n * 1.0) / math.factorial(n)
    return orthogonal_polynomial("gegenbauer", n, monic, eval_gegenbauer, leading, alpha)


@implements_special(sp.genlaguerre)
def genlaguerre(n, alpha, monic=False):
    return orthogonal_polynomial(
        "genlaguerre", n, monic, eval_genlaguerre, lambda n, a: (-1.0) ** n / math.factorial(n), alpha
    )
