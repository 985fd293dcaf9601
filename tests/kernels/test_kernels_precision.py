"""Functions of numbers in float64 and float32 kernels against multiple precision, over their domains: values
and two derivatives."""

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

import tapegrad as tg

pytestmark = pytest.mark.smoke

TABLE = {
    np.exp: (mp.exp, [(-80, 80)]),
    np.expm1: (mp.expm1, [(-1e-3, 1e-3), (-30, 30)]),
    np.exp2: (lambda x: mp.mpf(2) ** x, [(-100, 100), (-1, 1)]),
    np.log: (mp.log, [(1e-12, 1e-5), (0.5, 2), (2, 1e12)]),
    np.log1p: (mp.log1p, [(-0.99, 1), (-1e-4, 1e-4), (1, 1e6)]),
    np.log2: (lambda x: mp.log(x, 2), [(0.5, 2), (1e-9, 1)]),
    np.log10: (mp.log10, [(0.5, 2), (1, 1e9)]),
    np.sin: (mp.sin, [(-7, 7), (-1000, 1000)]),
    np.cos: (mp.cos, [(-7, 7), (-1000, 1000)]),
    np.tan: (mp.tan, [(-1.5, 1.5), (-7, 7)]),
    np.arcsin: (mp.asin, [(-0.99, 0.99), (-1e-3, 1e-3), (0.99, 0.9999)]),
    np.arccos: (mp.acos, [(-0.99, 0.99), (0.99, 0.9999)]),
    np.arctan: (mp.atan, [(-1, 1), (-1e3, 1e3), (-1e-3, 1e-3)]),
    np.sinh: (mp.sinh, [(-1, 1), (-1e-3, 1e-3), (-80, 80)]),
    np.cosh: (mp.cosh, [(-1, 1), (-1e-3, 1e-3), (-80, 80)]),
    np.tanh: (mp.tanh, [(-1, 1), (-1e-3, 1e-3), (-8, 8)]),
    np.arcsinh: (mp.asinh, [(-1, 1), (-1e-3, 1e-3), (-1e6, 1e6)]),
    np.arccosh: (mp.acosh, [(1.001, 1.1), (1.1, 1e5)]),
    np.arctanh: (mp.atanh, [(-0.99, 0.99), (-1e-3, 1e-3)]),
    np.sqrt: (mp.sqrt, [(1e-9, 1), (1, 1e9)]),
    np.cbrt: (lambda x: mp.sign(x) * mp.cbrt(abs(x)), [(1e-9, 1), (1, 1e9), (-100, -1)]),
    np.sinc: (mp.sincpi, [(-1e-3, 1e-3), (-0.9, 0.9)]),
    sp.erf: (mp.erf, [(-1e-3, 1e-3), (-1, 1), (-5, 5)]),
    sp.erfc: (mp.erfc, [(-5, 1), (1, 8)]),
    sp.erfcx: (lambda x: mp.exp(x * x) * mp.erfc(x), [(-4, 1), (1, 6), (6, 12), (12, 50), (50, 1e4)]),
    sp.ndtr: (mp.ncdf, [(-1, 1), (-12, -1), (1, 6)]),
    sp.log_ndtr: (lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2), [(-1, 1), (-12, -1), (-1000, -12), (1, 8)]),
    sp.expit: (lambda x: 1 / (1 + mp.exp(-x)), [(-1, 1), (-80, 30)]),
    sp.log_expit: (lambda x: -mp.log1p(mp.exp(-x)), [(-1, 1), (-80, 30)]),
    sp.logit: (lambda p: mp.log(p / (1 - p)), [(0.3, 0.7), (1e-9, 1e-3), (0.01, 0.99)]),
    sp.gammaln: (mp.loggamma, [(1e-6, 0.5), (0.5, 3), (3, 9), (8, 200), (1e5, 1e6)]),
    sp.gamma: (mp.gamma, [(0.1, 3), (3, 30), (-2.9, -2.1)]),
    sp.digamma: (mp.digamma, [(1e-6, 1), (1, 2), (2, 9), (8, 1000), (-2.9, -2.1)]),
    sp.exprel: (lambda x: mp.expm1(x) / x, [(-1e-3, 1e-3), (-1, 1), (-50, 50)]),
    sp.wrightomega: (lambda x: mp.lambertw(mp.exp(x)).real, [(-20, -2), (-2, 2), (2, 50)]),
    sp.entr: (lambda x: -x * mp.log(x), [(1e-6, 1), (1, 10)]),
}  # fmt: skip
WIDE, NEAR = (5e-3, 1e5), (-4, 4)
OF_TWO = {  # the function, its derivatives by both, and the ranges of both
    sp.betaln: (
        lambda a, b: mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b),
        lambda a, b: mp.digamma(a) - mp.digamma(a + b),
        lambda a, b: mp.digamma(b) - mp.digamma(a + b),
        (WIDE, WIDE),
    ),
    np.hypot: (mp.hypot, lambda x, y: x / mp.hypot(x, y), lambda x, y: y / mp.hypot(x, y), (WIDE, WIDE)),
    np.arctan2: (mp.atan2, lambda y, x: x / (x * x + y * y), lambda y, x: -y / (x * x + y * y), (NEAR, NEAR)),
    np.power: (mp.power, lambda x, n: n * x ** (n - 1), lambda x, n: x**n * mp.log(x), ((1e-2, 1e2), NEAR)),
    np.logaddexp: (
        lambda x, y: mp.log(mp.exp(x) + mp.exp(y)),
        lambda x, y: 1 / (1 + mp.exp(y - x)),
        lambda x, y: 1 / (1 + mp.exp(x - y)),
        ((-30, 30), (-30, 30)),
    ),
    sp.xlogy: (lambda x, y: x * mp.log(y), lambda x, y: mp.log(y), lambda x, y: x / y, (NEAR, WIDE)),
    sp.xlog1py: (
        lambda x, y: x * mp.log1p(y),
        lambda x, y: mp.log1p(y),
        lambda x, y: x / (1 + y),
        (NEAR, WIDE),
    ),
}
SHORT = (np.sinh, np.cosh, sp.erfcx, sp.log_ndtr)  # those that once cancelled
BOUND = 200  # units in the last place; beside 1e-2 of the largest in the range, near a function's zeros


def sampled(low, high, n, rng):
    """Evenly, or where they differ by orders of magnitude evenly in their logarithm."""
    return (
        np.exp(rng.uniform(np.log(low), np.log(high), n))
        if low > 0 and high / low > 100
        else rng.uniform(low, high, n)
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "f",
    [f if f in SHORT else pytest.param(f, marks=pytest.mark.long) for f in TABLE],
    ids=lambda f: f.__name__,
)
def test_values_and_two_derivatives(f, dtype):
    exact, ranges = TABLE[f]
    value = tg.kernels.map(f)
    slope = tg.grad(lambda x: value(x).sum())
    bend = tg.grad(lambda x: slope(x).sum())
    rng = np.random.default_rng(7)
    xs = [sampled(low, high, 6 if f in SHORT else 100, rng).astype(dtype) for low, high in ranges]
    with np.errstate(all="ignore"):
        found = [[g(x).reshape(-1) for x in xs] for g in (value, slope, bend)]
    with mp.workdps(60):
        for order, ys in enumerate(found):
            for x, y in zip(xs, ys, strict=True):
                y_exact = [mp.re(mp.diff(exact, mp.mpf(float(v)), order)) for v in x]
                small = float(np.finfo(dtype).tiny)
                size = 1e-2 * np.median([abs(float(e)) for e in y_exact])
                for v, a, e in zip(x, y, y_exact, strict=True):
                    if small < abs(e) < float(np.finfo(dtype).max):
                        error = float(abs(mp.mpf(float(a)) - e)) / (
                            np.finfo(dtype).eps * max(float(abs(e)), size)
                        )
                        assert error < BOUND, (order, v, a, float(e), error)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "f",
    [f if f is sp.betaln else pytest.param(f, marks=pytest.mark.long) for f in OF_TWO],
    ids=lambda f: f.__name__,
)
def test_functions_of_two_numbers(f, dtype):
    *exact, ranges = OF_TWO[f]
    k, rng = tg.kernels.map(f), np.random.default_rng(2)
    x, y = (sampled(*r, 20 if f is sp.betaln else 400, rng).astype(dtype) for r in ranges)
    found = [k(x, y), *tg.grad(lambda x, y: k(x, y).sum(), (0, 1))(x, y)]
    with mp.workdps(60):
        for ours, theirs in zip(found, exact, strict=True):
            for a, b, z in zip(x, y, ours, strict=True):
                e = theirs(mp.mpf(float(a)), mp.mpf(float(b)))
                error = float(abs(mp.mpf(float(z)) - e)) / (
                    np.finfo(dtype).eps * max(float(abs(e)), 1e-2 if ranges[0][0] < 0 else 1e-30)
                )
                assert error < BOUND, (a, b, z, float(e), error)
