"""The own exp, log, ... of generated kernels against multiple precision."""

import itertools

import mpmath
import numpy as np
import pytest

import tapegrad as tg
from tapegrad.testing import nested

kernels = tg.kernels

RANGES = {
    "exp": [(-745, 709), (-1, 1)], "log": [(1e-300, 1e300), (0.5, 2.0)], "log1p": [(-0.999, 10), (-1e-8, 1e-8)],
    "expm1": [(-40, 700), (-1e-3, 1e-3)], "tanh": [(-25, 25), (-1e-2, 1e-2)], "sin": [(-1e5, 1e5), (-3, 3)], "cos": [(-1e5, 1e5), (-3, 3)],
    "arctan": [(-3, 3), (-1e-3, 1e-3), (-0.42, 0.42), (2.3, 2.5), (-1e6, 1e6)],
}  # fmt: skip
EXACT = {"arctan": "atan"}


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_elementary_functions(name, dtype):
    k = kernels.map(getattr(np, name))
    rng = np.random.default_rng(0)
    for low, high in RANGES[name]:
        if dtype is np.float32:
            low, high = max(low, -85 if name != "tanh" else low), min(high, 85 if name not in ("log",) else 1e30)
            low = 1e-30 if name == "log" and low < 1e-30 else low
        x = rng.uniform(low, high, 400) if name != "log" else np.exp(rng.uniform(np.log(low), np.log(high), 400))
        x = x.astype(dtype)
        exact = np.array([float(getattr(mpmath, EXACT.get(name, name))(mpmath.mpf(float(v)))) for v in x])
        error = np.abs(k(x).astype(float) - exact) / np.spacing(np.abs(exact).astype(dtype)).astype(float)
        far = name in ("sin", "cos") and high > 10  # near a zero far from the origin only the absolute error is small
        bound = np.abs(k(x).astype(float) - exact).max() / np.finfo(dtype).eps if far else error.max()
        assert bound < (2.5 if dtype is np.float64 else 4.0), (name, low, high, bound)


@pytest.mark.parametrize("name", RANGES)
def test_elementary_functions_at_the_edges(name):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 5e-324, -5e-324, 2.2e-308, -1.0, 710.0, -746.0, -740.0])
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    if name in ("sin", "cos"):
        expected[np.abs(x) >= 2.0**47] = np.nan
    np.testing.assert_allclose(kernels.map(getattr(np, name))(x), expected, rtol=1e-15, atol=5e-324)


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_angles_far_out(name, dtype):
    """One unit in the last place of 1, up to where the result is nan."""
    k, rng, last = kernels.map(getattr(np, name)), np.random.default_rng(1), 47 if dtype is np.float64 else 22
    x = (2.0 ** rng.uniform(10, last - 1e-3, 2000)).astype(dtype)
    with mpmath.workprec(200):
        exact = np.array([float(getattr(mpmath, name)(mpmath.mpf(float(v)))) for v in x])
    assert np.abs(k(x) - exact).max() < np.finfo(dtype).eps
    assert np.isnan(k(np.array([2.0 ** (last + 1)], dtype))).all()


WORDS = ["".join(w) for k in (1, 2) for w in itertools.product("FR", repeat=k)]
SMALL = {np.float64: 1e-306, np.float32: 1e-37}


@pytest.mark.parametrize("dtype", SMALL)
def test_derivatives_of_tanh_in_the_tails(dtype):
    """Right until they are nearly no normal numbers, where 1 - tanh^2 is zero from 19 (float32: 9) on."""
    k = kernels.map(np.tanh)
    for x in np.array([1e-30, 0.1, 0.3, 0.35, 1.0, 9.5, 20.0, 22.5, 40.0, 100.0, 353.0, 400.0, 1e30, -5.0, -30.0], dtype):
        slope = mpmath.sech(mpmath.mpf(float(x))) ** 2
        for word in WORDS:
            wanted = slope if len(word) == 1 else -2 * slope * mpmath.tanh(mpmath.mpf(float(x)))
            found = nested(lambda x: k(x).sum(), word, [(np.ones(1, dtype),)] * len(word))(np.array([x]))
            assert found.dtype == dtype
            assert abs(float(found) - wanted) <= 8 * np.finfo(dtype).eps * abs(wanted) + SMALL[dtype], (x, word)
    assert np.isnan(tg.grad(lambda x: k(x).sum())(np.array([np.nan], dtype))).all()


LENGTHS = {np.float64: (5e-324, 1e-310, 1e-200, 1e-3, 1e160, 1e200, 3e307), np.float32: (1e-42, 1e-30, 1e-3, 1e20, 6e37)}


@pytest.mark.parametrize("dtype", LENGTHS)
def test_lengths_whose_squares_are_no_numbers(dtype):
    """hypot and norm; at right angles the second derivative is 1 / length, at zero all are zero."""
    hypot, eps = kernels.map(np.hypot), np.finfo(dtype).eps
    norm = kernels.likelihood(lambda theta, x: np.linalg.norm(theta) + 0.0 * x)
    data, v, w = np.zeros(1, dtype), np.array([-0.8], dtype), np.array([0.6], dtype)
    of_norm, least = lambda theta: norm(theta, data).sum(), np.finfo(dtype).smallest_subnormal
    for size in LENGTHS[dtype]:
        x, y = np.array([3 * size], dtype), np.array([4 * size], dtype)
        r = mpmath.hypot(float(x[0]), float(y[0]))
        u = np.array([[float(float(x[0]) / r)], [float(float(y[0]) / r)]])
        np.testing.assert_allclose(hypot(x, y), float(r), rtol=2 * eps, atol=least)
        theta = np.stack([x, y])
        np.testing.assert_allclose(norm(theta, data), float(r), rtol=2 * eps, atol=least)
        np.testing.assert_allclose(np.stack(tg.grad(lambda x, y: hypot(x, y).sum(), (0, 1))(x, y)), u, rtol=4 * eps)
        np.testing.assert_allclose(tg.grad(of_norm)(theta), u, rtol=4 * eps)
        np.testing.assert_allclose(tg.jvp(of_norm, (theta,), (u.astype(dtype),))[1], 1.0, rtol=4 * eps)
        if not float(r) > 100 * np.finfo(dtype).tiny:
            continue
        for word in WORDS[2:]:
            if word == "FF" and not 1e-15 < size < 1e15:
                continue  # tangents of size 1 beside such arguments: their squares are no numbers, scaled as the arguments
            second = nested(lambda x, y: hypot(x, y).sum(), word, [(v, w)] * 2)(x, y)
            assert float(second) == pytest.approx(float(1 / r), rel=float(20 * eps), abs=float(np.finfo(dtype).tiny))
    zero = np.zeros(1, dtype)
    for word in WORDS:
        assert float(nested(lambda x, y: hypot(x, y).sum(), word, [(v, w)] * len(word))(zero, zero)) == 0
    assert not tg.grad(of_norm)(np.zeros((2, 1), dtype)).any()
