"""The same calls on CuPy's arrays, where the rule is made of operations that both libraries have."""

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.ndimage
import scipy.signal
import scipy.spatial.distance
import scipy.stats

import tapegrad as tg

X = np.sin(np.arange(12.0) ** 2) + 2
CALLS = {
    "convolve": lambda x: scipy.signal.convolve(x, x[:3], "same"),
    "fftconvolve": lambda x: scipy.signal.fftconvolve(x, x[:3]),
    "correlate": lambda x: scipy.signal.correlate(x, x[:3]),
    "hilbert": lambda x: abs(scipy.signal.hilbert(x)),
    "welch": lambda x: scipy.signal.welch(x, nperseg=6)[1],
    "freqz": lambda x: abs(scipy.signal.freqz(x[:3], worN=4)[1]),
    "gaussian": lambda x: scipy.ndimage.gaussian_filter(x, 1.0),
    "sobel": lambda x: scipy.ndimage.sobel(x.reshape(3, 4)),
    "maxf": lambda x: scipy.ndimage.maximum_filter(x, 3),
    "map1": lambda x: scipy.ndimage.map_coordinates(x.reshape(3, 4), x[:4].reshape(2, 2) * 0.4, order=1),
    "trapz": lambda x: scipy.integrate.trapezoid(x * x),
    "simpson": lambda x: scipy.integrate.simpson(x * x),
    "cdist": lambda x: scipy.spatial.distance.pdist(x.reshape(4, 3)),
    "pchip": lambda x: scipy.interpolate.PchipInterpolator(np.arange(12.0), x)(x),
    "interp1d": lambda x: scipy.interpolate.interp1d(np.arange(12.0), x)(x),
    "detrend": lambda x: scipy.signal.detrend(x),
    "spline": lambda x: scipy.interpolate.CubicSpline(np.arange(12.0), x)(x),
    "wiener": lambda x: scipy.signal.wiener(x, 3),
    "medfilt": lambda x: scipy.signal.medfilt(x, 3),
    "chirp": lambda x: scipy.signal.chirp(x, 1.0, 2.0, 3.0),
    "stft": lambda x: abs(scipy.signal.stft(x, nperseg=4)[2]),
    "lomb": lambda x: scipy.signal.lombscargle(np.arange(12.0), x, x[:3]),
    "rgi": lambda x: scipy.interpolate.RegularGridInterpolator((np.arange(12.0),), x)(x[:3, None]),
    "rbf": lambda x: scipy.interpolate.RBFInterpolator(x.reshape(6, 2), x[:6])(x[:4].reshape(2, 2)),
}


@pytest.mark.parametrize("name", CALLS)
def test_both_libraries(xp, name):
    f = CALLS[name]
    g = tg.grad(lambda x: (f(x) ** 2).sum())
    want = g(X)
    got = g(xp.asarray(X))
    assert isinstance(got, xp.ndarray)
    np.testing.assert_allclose(want, got if xp is np else got.get(), rtol=1e-9, atol=1e-9)


@pytest.mark.cupy_only
def test_a_product_of_arrays_in_followed_code(xp):
    """math.prod of a list of arrays, in a rule that runs in CuPy's names, is no product of their elements."""
    sections = np.array([[1.0, 0.2, 0.1, 1.0, 0.3, 0.2], [1.0, -0.4, 0.3, 1.0, 0.1, 0.5]])
    f = lambda q: abs(scipy.signal.sosfreqz(q, 5)[1])
    value, slopes = tg.jvp(f, (xp.asarray(sections),), (xp.asarray(sections**2),))
    np.testing.assert_allclose(value.get(), f(sections), rtol=1e-12)
    np.testing.assert_allclose(slopes.get(), tg.jvp(f, (sections,), (sections**2,))[1], rtol=1e-12)


def test_samples_do_not_share_a_generator():
    """What is repeated for each sample would draw on, and give each other points."""
    f = lambda p: scipy.integrate.qmc_quad(lambda x: p * x[0], [0.0], p, qrng=scipy.stats.qmc.Halton(1, rng=5)).integral
    with pytest.raises(tg.errors.BatchError):
        tg.vmap(f)(X[:2])
