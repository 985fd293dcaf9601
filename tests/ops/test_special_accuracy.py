"""Derivatives of special functions by all their arguments against multiple precision: small, large and
singular arguments."""

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

import tapegrad as tg

BETA = [(0.01, 3.0, 1e-3), (3.0, 50.0, 0.01), (0.5, 0.5, 1e-8)]


def owen(h, a):
    return mp.quad(lambda t: mp.exp(-h * h * (1 + t * t) / 2) / (1 + t * t), [0, a]) / (2 * mp.pi)


# function, the same in mpmath, points, relative error allowed
TABLE = [
    ("gammainc", sp.gammainc, lambda a, x: mp.gammainc(a, 0, x, regularized=True), [(0.01, 1e-3), (2.5, 1e-6),
    (100.0, 80.0)], 1e-11),
    ("gammaincc", sp.gammaincc, lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True), [(3.0, 50.0), (0.1,
    20.0), (1e4, 1.05e4)], 1e-10),
    ("betainc", sp.betainc, lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True), BETA, 1e-10),
    ("stdtr", sp.stdtr, lambda n, t: mp.betainc(n / 2, 0.5, 0, n / (n + t * t), regularized=True) / 2, [(3.0,
    -40.0), (0.7, -1e4)], 1e-10),
    ("kv", sp.kv, mp.besselk, [(0.3, 1e-4), (2.5, 1e-3), (10.0, 0.5), (1.5, 80.0)], 1e-12),
    ("kve", sp.kve, lambda v, z: mp.exp(z) * mp.besselk(v, z), [(0.3, 1e-4), (2.5, 3e3), (1.5, 1e5)], 1e-11),
    ("iv", sp.iv, mp.besseli, [(0.3, 1e-4), (2.5, 1e-3), (10.0, 0.5), (1.5, 80.0)], 1e-11),
    ("jv", sp.jv, mp.besselj, [(0.3, 1e-4), (2.5, 1e-3), (10.0, 0.5), (1.5, 40.3), (20.0, 18.0)], 1e-9),
    ("yv", sp.yv, mp.bessely, [(0.3, 1e-3), (2.5, 0.1), (1.5, 40.3)], 1e-9),
    ("ellipk", sp.ellipk, mp.ellipk, [(0.0,), (1 - 1e-9,), (-1e6,), (1e-12,)], 1e-12),
    ("ellipe", sp.ellipe, mp.ellipe, [(0.0,), (1 - 1e-9,), (-1e6,), (1e-12,)], 1e-12),
    ("ellipkinc", sp.ellipkinc, mp.ellipf, [(1e-6, 0.5), (1.5, 0.9), (0.3, 0.0)], 1e-11),
    ("ellipeinc", sp.ellipeinc, mp.ellipe, [(1e-6, 0.5), (1.5, 0.9), (0.3, 0.0)], 1e-11),
    ("elliprf", sp.elliprf, mp.elliprf, [(1.0, 1.0, 1.0), (1e-9, 1.0, 2.0), (1e8, 1.0, 1e-3)], 1e-11),
    ("elliprd", sp.elliprd, mp.elliprd, [(1.0, 1.0, 1.0), (1e-6, 1.0, 2.0)], 1e-11),
    ("elliprj", sp.elliprj, mp.elliprj, [(1.0, 1.0, 1.0, 1.0), (0.1, 1.0, 2.0, 0.01)], 1e-11),
    ("zeta", sp.zeta, lambda x, q: mp.zeta(x, q), [(1.5, 1.0), (30.0, 0.5), (1.01, 7.0)], 1e-11),
    ("spence", sp.spence, lambda z: mp.polylog(2, 1 - z), [(1.0,), (1 + 1e-9,), (1e-6,), (1e5,)], 1e-12),
    ("boxcox", sp.boxcox, lambda x, k: (x**k - 1) / k if k else mp.log(x), [(2.0, 1e-12), (1e-5, 0.3),
    (1 + 1e-9, 2.0)], 1e-11),
    ("inv_boxcox", sp.inv_boxcox, lambda y, k: (1 + k * y) ** (1 / k), [(0.7, 1e-9), (3.0, 0.5)], 1e-10),
    ("owens_t", sp.owens_t, owen, [(2.0, 0.3), (4.0, 1.5)], 1e-11),
    ("lambertw", lambda z: tg.scipy.special.lambertw(z).real, lambda z: mp.re(mp.lambertw(z)), [(1e-9,), (1e6,
    ), (-0.3678,)], 1e-8),
    ("hyp2f1", lambda z: sp.hyp2f1(0.5, 1.5, 2.2, z), lambda z: mp.hyp2f1(0.5, 1.5, 2.2, z), [(0.0,), (-5.0,),
    (0.9,)], 1e-11),
    ("log_ndtr", sp.log_ndtr, lambda x: mp.log(mp.ncdf(x)), [(-40.0,), (-1e3,), (5.0,)], 1e-12),
    ("eval_hermite", lambda x: sp.eval_hermite(20, x), lambda x: mp.hermite(20, x), [(0.0,), (4.0,)], 1e-11),
    ("struve", lambda x: sp.struve(1.5, x), lambda x: mp.struveh(1.5, x), [(1e-2,), (10.0,)], 1e-10),
    ("airy", lambda x: tg.numpy.stack(tg.scipy.special.airy(x))[0], mp.airyai, [(-10.0,), (5.0,)], 1e-10),
    ("sici", lambda x: tg.scipy.special.sici(x)[0], mp.si, [(0.0,), (1e-6,), (30.0,)], 1e-12),
]  # fmt: skip


FIRST = (
    "gammainc",
    "betainc",
    "kve",
    "ellipk",
    "spence",
    "boxcox",
    "log_ndtr",
)  # in the default run; all in the long one
ROWS = [pytest.param(*row, id=row[0], marks=[] if row[0] in FIRST else [pytest.mark.long]) for row in TABLE]


@pytest.mark.parametrize("name, ours, exact, points, rtol", ROWS)
def test_derivatives_in_multiple_precision(name, ours, exact, points, rtol):
    with mp.workdps(80), np.errstate(all="ignore"):
        for point in points:
            found = tg.grad(lambda *x: ours(*x) + 0.0, tuple(range(len(point))))(
                *[np.float64(x) for x in point]
            )
            for k, slope in enumerate(found):
                h = mp.mpf(10) ** -30 * max(abs(mp.mpf(point[k])), mp.mpf(1) if point[k] == 0 else 0)
                at = [[mp.mpf(x) + (s * h if i == k else 0) for i, x in enumerate(point)] for s in (1, -1)]
                right = (exact(*at[0]) - exact(*at[1])) / (2 * h)
                assert abs(slope - right) <= rtol * abs(right), (point, k, slope, float(right))


@pytest.mark.parametrize(
    "f, exact, a, b",
    [
        (sp.beta, mp.beta, -3.0, 2.0),
        (sp.beta, mp.beta, -5.0, 3.0),
        (sp.poch, mp.rf, -6.0, 4.0),
        (sp.poch, mp.rf, -2.0, 2.0),
    ],
)
def test_ratios_of_gamma_functions_at_two_poles(f, exact, a, b):
    one = lambda t: f(t, b)
    with mp.workdps(60):
        h, x = mp.mpf(10) ** -12, mp.mpf(a)
        y = [exact(x + k * h, b) for k in (-2, -1, 1, 2)]
        first, second = (y[2] - y[1]) / (2 * h), (y[3] - y[2] - y[1] + y[0]) / (3 * h * h)
    assert tg.grad(one)(a) == pytest.approx(float(first), rel=1e-13)
    assert tg.jvp(tg.grad(one), (a,), (1.0,))[1] == pytest.approx(float(second), rel=1e-13)


@pytest.mark.parametrize("order", [1, 2, 3, 6])
def test_polygamma_of_many_numbers(order):
    slope = tg.grad(lambda x: tg.scipy.special.polygamma(order - 1, x).sum())
    x = 10.0 ** np.linspace(-5, 5, 300)
    np.testing.assert_allclose(slope(x), [float(mp.polygamma(order, mp.mpf(v))) for v in x], rtol=2e-15)
    assert slope(x.astype("f4")).dtype == np.float32
    edges = np.concatenate([[np.inf, np.nan, 5e-324, 1e300], x])
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(slope(edges)[:4], sp.polygamma(order, edges[:4]))
