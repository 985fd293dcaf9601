"""Orthogonal polynomials and spherical harmonics, in their argument: the derivative of each is one of a neighbouring family.

The degree is a constant, and so are the parameters of the families."""

import numpy as np
import scipy.special as sp

from ..._primitive import primal_of
from ..elementwise import cos, exp, select
from ..gamma import binom, poch
from ._declare import function, implements

DEGREE = "the degree is a constant"
PARAMETER = "there is no short formula for the parameter"


def below(n, factor, f, *args):
    """factor f(n - 1, ...), and 0 for n = 0."""
    n = primal_of(n)
    return select(n == 0, 0.0, factor) * f(n - (n != 0), *args)


eval_jacobi = function(
    sp.eval_jacobi,
    DEGREE,
    PARAMETER,
    PARAMETER,
    lambda out, n, a, b, x: below(n, 0.5 * (n + a + b + 1.0), eval_jacobi, a + 1.0, b + 1.0, x),
)
eval_gegenbauer = function(sp.eval_gegenbauer, DEGREE, PARAMETER, lambda out, n, a, x: below(n, 2.0 * a, eval_gegenbauer, a + 1.0, x))
eval_legendre = function(sp.eval_legendre, DEGREE, lambda out, n, x: below(n, 1.0, eval_gegenbauer, 1.5, x))
eval_chebyu = function(sp.eval_chebyu, DEGREE, lambda out, n, x: below(n, 2.0, eval_gegenbauer, 2.0, x))
eval_chebyt = function(sp.eval_chebyt, DEGREE, lambda out, n, x: below(n, n, eval_chebyu, x))
eval_chebys = function(sp.eval_chebys, DEGREE, lambda out, n, x: below(n, 1.0, eval_gegenbauer, 2.0, 0.5 * x))
eval_chebyc = function(sp.eval_chebyc, DEGREE, lambda out, n, x: below(n, n, eval_chebys, x))
eval_sh_legendre = function(sp.eval_sh_legendre, DEGREE, lambda out, n, x: below(n, 2.0, eval_gegenbauer, 1.5, 2.0 * x - 1.0))
eval_sh_chebyu = function(sp.eval_sh_chebyu, DEGREE, lambda out, n, x: below(n, 4.0, eval_gegenbauer, 2.0, 2.0 * x - 1.0))
eval_sh_chebyt = function(sp.eval_sh_chebyt, DEGREE, lambda out, n, x: below(n, 2.0 * n, eval_chebyu, 2.0 * x - 1.0))
eval_sh_jacobi = function(
    sp.eval_sh_jacobi, DEGREE, PARAMETER, PARAMETER, lambda out, n, p, q, x: below(n, n, eval_sh_jacobi, p + 2.0, q + 1.0, x)
)
eval_genlaguerre = function(sp.eval_genlaguerre, DEGREE, PARAMETER, lambda out, n, a, x: below(n, -1.0, eval_genlaguerre, a + 1.0, x))
eval_laguerre = function(sp.eval_laguerre, DEGREE, lambda out, n, x: below(n, -1.0, eval_genlaguerre, 1.0, x))
eval_hermite = function(sp.eval_hermite, DEGREE, lambda out, n, x: below(n, 2.0 * n, eval_hermite, x))
eval_hermitenorm = function(sp.eval_hermitenorm, DEGREE, lambda out, n, x: below(n, n, eval_hermitenorm, x))


@implements(sp.assoc_laguerre)
def assoc_laguerre(x, n, k=0.0):
    return eval_genlaguerre(n, k, x)


# (x^2 - 1) P' = v x P_v - (v + m) P_(v-1)
lpmv = function(
    sp.lpmv, DEGREE, DEGREE, lambda out, m, v, x: (v * x * out - (v + m) * lpmv(m, select(v == 0, -v, v - 1), x)) / (x * x - 1.0)
)


@implements(sp.diric)
def diric(x, n):
    """sin(n x / 2) / (n sin(x / 2)), as a sum of cosines, which is smooth where the sine is zero."""
    n = int(primal_of(n))
    if n % 2:
        return (1.0 + 2.0 * sum(cos(k * x) for k in range(1, n // 2 + 1))) / n + 0.0 * x
    return 2.0 / n * sum(cos((k + 0.5) * x) for k in range(n // 2))


def along_theta(out, n, m, theta, phi):
    """Half the difference of what the two ladder operators give: nothing is divided by the sine of theta."""
    n, m = primal_of(n), primal_of(m)
    up, down = np.sqrt(np.maximum((n - m) * (n + m + 1.0), 0.0)), np.sqrt(np.maximum((n + m) * (n - m + 1.0), 0.0))
    turn = exp(1j * phi)
    raised, lowered = sph_harm_y_of(n, m + 1, theta, phi), sph_harm_y_of(n, m - 1, theta, phi)
    return 0.5 * (up * raised / turn - down * lowered * turn)


sph_harm_y_of = function(
    None, DEGREE, DEGREE, along_theta, lambda out, n, m, theta, phi: 1j * m * out, body=sp.sph_harm_y, name="sph_harm_y_of"
)


@implements(sp.comb)
def comb(N, k, *, exact=False, repetition=False):
    return binom(N + k - 1.0 if repetition else N, k)


@implements(sp.perm)
def perm(N, k, exact=False):
    return poch(N - k + 1.0, k)
