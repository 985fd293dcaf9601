"""SciPy's tables of values and slopes of all orders up to a given one."""

import scipy.special as sp

from ..._core.errors import ArgumentError
from ..._core.primitive import primal_of
from ..elementwise import exp
from ..shaping import stack
from .bessel_relatives import spherical_jn, spherical_yn
from .declare import implements_special
from .distribution_functions import hyp0f1
from .parabolic_cylinder import pbdv, pbvv


def value_and_slope(pairs):
    """A table of values and a table of derivatives."""
    values, slopes = zip(*pairs, strict=True)
    return stack(values), stack(slopes)


def riccati_bessel(scipys, f):
    """Riccati's functions x f_n(x)."""

    def of(n, x):
        return value_and_slope(
            [(x * f(k, x), f(k, x) + x * f(k, x, True)) for k in range(int(primal_of(n)) + 1)]
        )

    return implements_special(scipys)(of)


riccati_jn = riccati_bessel(sp.riccati_jn, spherical_jn)
riccati_yn = riccati_bessel(sp.riccati_yn, spherical_yn)


def cylinders(scipys, f):
    """Parabolic cylinder functions of the orders v - int(v), .., v."""

    def of(v, x):
        if primal_of(v) < 0:
            raise ArgumentError(
                f"scipy.special.{scipys.__name__}: of v < 0 is not supported on a tracked Variable; call "
                f"{f.__name__}"
            )
        most = int(primal_of(v))
        return value_and_slope([f(v - most + k, x) for k in range(max(most, 1) + 1)])

    return implements_special(scipys)(of)


pbdv_seq = cylinders(sp.pbdv_seq, pbdv)
pbvv_seq = cylinders(sp.pbvv_seq, pbvv)


@implements_special(sp.pbdn_seq)
def pbdn_seq(n, z):
    """D_k = exp(-z^2 / 4) He_k, with the derivative z / 2 D_k - D_(k+1)."""
    n = int(primal_of(n))
    if n < 0:
        raise ArgumentError("scipy.special.pbdn_seq: of n < 0 is not supported on a tracked Variable")
    bell, d = exp(-0.25 * z * z), [1.0 + 0j * z, z]
    for k in range(1, max(n, 1) + 1):
        d.append(z * d[k] - k * d[k - 1])
    d = [bell * p for p in d]
    return value_and_slope([(d[k], 0.5 * z * d[k] - d[k + 1]) for k in range(max(n, 1) + 1)])


@implements_special(sp.lmbda)
def lmbda(v, x):
    """Gamma(v + 1) (2 / x)^v J_v(x), a hypergeometric function of x^2."""
    v = float(primal_of(v))
    at = [v - int(v) + k for k in range(int(v) + 1)]
    y = -0.25 * x * x
    return value_and_slope([(hyp0f1(a + 1.0, y), -0.5 * x / (a + 1.0) * hyp0f1(a + 2.0, y)) for a in at])
