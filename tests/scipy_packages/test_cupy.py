"""The same calls on CuPy's arrays, where the rule is made of operations that both libraries have."""

import importlib

import executed
import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.ndimage
import scipy.signal
import scipy.spatial.distance
import scipy.stats

import tapegrad as tg
from tapegrad.ops.declare import SCIPY

pytestmark = pytest.mark.smoke

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
    "roots": lambda x: np.polynomial.polynomial.polyvalfromroots(x[:3], x[3:5]),
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
def test_the_places_of_elements_lie_beside_them(xp):
    sparse = importlib.import_module("cupyx.scipy.sparse")
    at = xp.asarray([0, 1, 1]), xp.asarray([0, 2, 3])

    def f(x):
        A = sparse.csr_matrix((x, *at), shape=(2, 2))
        rows, cols, values = sparse.find(A)
        assert {type(v) for v in (A.indices, A.indptr, rows, cols)} == {xp.ndarray}
        return (values * (rows + 2 * cols)).sum()

    assert tg.grad(f)(xp.asarray([1.0, 2.0, 4.0])).tolist() == [0.0, 2.0, 3.0]


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
    f = lambda p: (
        scipy.integrate.qmc_quad(lambda x: p * x[0], [0.0], p, qrng=scipy.stats.qmc.Halton(1, rng=5)).integral
    )
    with pytest.raises(tg.errors.BatchError):
        tg.vmap(f)(X[:2])


B, A = np.array([1.0, 0.3, 0.2]), np.array([1.2, -0.5, 0.1, 0.05])
SOS = scipy.signal.butter(4, 0.3, output="sos")


def signal_of(xp):
    return scipy.signal if xp is np else importlib.import_module("cupyx.scipy.signal")


def from_rest(s, b, a, x):
    return s.lfilter(b, a, x, zi=s.lfilter_zi(b, a) * x[0])[0]


def in_two_parts(s, b, a, x):
    y, zf = s.lfilter(b, a, x[:5], zi=s.lfilter_zi(b, a) * x[0])
    return s.lfilter(b, a, x[5:], zi=zf)[0] + y[-1]


def after_others(s, b, a, x):
    return s.lfilter(b, a, x, zi=s.lfiltic(b, a, x[:3], x[3:5]))[0]


def sections(s, b, a, x):
    xp = np if type(tg.value(x)) is np.ndarray else importlib.import_module("cupy")
    sos = xp.asarray(SOS)
    y, zf = s.sosfilt(sos, x, zi=s.sosfilt_zi(sos) * x[0])
    return s.sosfilt(sos, y, zi=zf)[0] + b[0] + a[1]


@pytest.mark.parametrize(
    "f", [from_rest, in_two_parts, sections, *([after_others] if SCIPY >= (1, 16) else [])]
)  # before, a[0] was 1
def test_a_state_of_a_filter_is_that_of_its_library(xp, f):
    """CuPy's is made of the last inputs and outputs, SciPy's is not; within one library the results are the
    same."""
    s = signal_of(xp)
    scalar = lambda s: lambda b, a, x: (f(s, b, a, x) ** 2).sum()
    wanted = tg.grad(scalar(scipy.signal), (0, 1, 2))(B, A, X)
    x = [xp.asarray(v) for v in (B, A, X)]
    plain, found = f(s, *x), tg.grad(scalar(s), (0, 1, 2))(*x)
    host = lambda v: v if xp is np else v.get()
    np.testing.assert_allclose(host(plain), f(scipy.signal, B, A, X), rtol=1e-10)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(host(a), b, rtol=1e-8, atol=1e-10)


@pytest.mark.cupy_only
def test_a_state_of_another_library_is_refused(xp):
    s = signal_of(xp)
    zi = xp.asarray(scipy.signal.lfilter_zi(B, A))
    with pytest.raises(ValueError, match="zi has shape .3,.; its length along the axis must be 5"):
        tg.grad(lambda x: s.lfilter(xp.asarray(B), xp.asarray(A), x, zi=zi)[0].sum())(xp.asarray(X))


# Lines of the tables of calls, one or two for each way in which SciPy's functions come to CuPy's arrays: code
# that is followed there, rules in CuPy's names, maps whose matrix is made, equations in the place of compiled
# fits, CuPy's own classes, sparse matrices. (By default the shorter ones; test_coverage.py goes over all
# lines in turn.)
SHORT = {
    ("systems", "residue"), ("systems", "CZT"), ("signal", "freqz_sos"), ("signal", "cspline1d"), ("ndimage",
    "com L"),
    ("ndimage", "maximum"), ("interpolate", "LSQUS"), ("interpolate", "nnd"), ("sparse", "splu in"),
    ("sparse", "kron"),
}  # fmt: skip
WAYS = {
    "systems": ("lsim", "residue", "firwin_2d", "CZT", "SFT cap stft", "cspline2d", "unique"),
    "signal": ("filtfilt", "butter sos", "find_peaks h", "freqz_sos", "upfirdn c", "cspline1d"),
    "ndimage": ("sum", "maximum", "com L", "rotate r", "zoom mirror"),
    "interpolate": ("mis clamped", "cs periodic", "akima", "lnd nodes", "nnd", "LSQUS"),
    "sparse": ("solve", "A+B", "kron", "lsmr", "eigsh v", "splu in"),
    "operators": ("gmres operator", "svds"),
}


def line_of(table, name):
    return next(
        executed.Line(name, f, x, options)
        for n, f, x, options in importlib.import_module(f"calls_{table}").CALLS
        if n == name
    )


@pytest.mark.one_in(2)
@pytest.mark.cupy_only
@pytest.mark.filterwarnings("ignore")  # SciPy's own, of formats that cost time
@pytest.mark.parametrize(
    ("table", "name"),
    [
        pytest.param(table, name, marks=() if (table, name) in SHORT else pytest.mark.long)
        for table, names in WAYS.items()
        for name in names
    ],
)
def test_lines_of_the_tables(xp, table, name):
    said = executed.on_cupy(line_of(table, name), xp)
    assert set(said.values()) == {executed.RIGHT}, said
