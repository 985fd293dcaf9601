"""The own exp, log, ... of generated kernels against multiple precision."""

import mpmath
import numpy as np
import pytest

import tapegrad as tg

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
