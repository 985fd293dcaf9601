"""The same calls on CuPy's arrays, where the rule is made of operations that both libraries have."""

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.ndimage
import scipy.signal
import scipy.spatial.distance

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
