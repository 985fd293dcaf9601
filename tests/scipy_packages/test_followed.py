"""Code of SciPy's and NumPy's own that is followed: its objects are theirs afterwards, its errors are theirs,
and it is run in all transforms."""

import threading

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.signal
import scipy.sparse.linalg
from _modes import differences
from numpy.polynomial import Chebyshev, Polynomial

import tapegrad as tg
from tapegrad.errors import ArgumentError, TapegradError

pytestmark = pytest.mark.smoke

X = np.array([1.0, 0.4, 0.3])
D = np.array([1.3, 0.7, 0.5])
T = np.linspace(0.0, 1.0, 6)
SYSTEM, SERIES, SUM = scipy.signal.lti(X[:2], D), Chebyshev(X), np.poly1d(D)


def program(x):
    """A response, a product of captured and tracked polynomials, a rational interpolant."""
    y = scipy.signal.lsim((x[:2], D), x[0] * T, T)[1]
    p = Polynomial(x) * Polynomial(D) + SERIES.convert(kind=Polynomial)
    r = scipy.interpolate.FloaterHormannInterpolator(np.arange(3.0), x, d=1)
    return y.sum() + p.deriv()(x[1]) * SUM(x[2]) + SYSTEM.output(x[1] * T, T)[1][-1] + r(0.3)


def test_in_all_transforms():
    gradient = tg.grad(program)(X)
    np.testing.assert_allclose(gradient, differences(program, X), rtol=1e-7)
    np.testing.assert_allclose([tg.jvp(program, (X,), (e,))[1] for e in np.eye(3)], gradient, rtol=1e-12)
    hessian = tg.hessian(program)(X)
    np.testing.assert_allclose(
        hessian,
        [differences(lambda x, k=k: tg.grad(program)(x)[k], X) for k in range(3)],
        rtol=1e-6,
        atol=1e-7,
    )
    np.testing.assert_allclose(tg.jacobian(tg.grad(program))(X), hessian, rtol=1e-10)
    prepared = tg.prepare(lambda x: Polynomial(x)(x[0]) + SERIES(x).sum(), X)
    np.testing.assert_allclose(
        prepared.grad(2 * X), tg.grad(lambda x: Polynomial(x)(x[0]) + SERIES(x).sum())(2 * X), rtol=1e-12
    )


def test_values_are_the_librarys():
    assert tg.value_and_grad(program)(X)[0] == pytest.approx(program(X), rel=1e-13)


def test_objects_that_the_function_keeps_are_the_librarys_afterwards():
    kept = {}

    def f(x):
        kept.update(
            system=scipy.signal.lti(x[:2], D),
            series=Chebyshev(x),
            poly=np.poly1d(x),
            plain=Polynomial([1.0, 2.0]),
        )
        kept["bode"] = scipy.signal.StateSpace([[-1.0]], [[1.0]], [[1.0]], [[0.0]])
        return kept["series"](0.3) + kept["poly"](0.5) + kept["system"].num[0]

    tg.grad(f)(X)
    kinds = {
        "system": type(SYSTEM),
        "series": Chebyshev,
        "poly": np.poly1d,
        "plain": Polynomial,
        "bode": scipy.signal.StateSpace,
    }
    assert (Polynomial(X) * Polynomial(D))(0.5) == pytest.approx(Polynomial(X)(0.5) * Polynomial(D)(0.5))
    assert issubclass(Polynomial, Polynomial.__mro__[1]) and isinstance(kept["plain"], Polynomial.__mro__[1])
    for name, kind in kinds.items():
        assert isinstance(kept[name], kind) and type(kept[name]).__module__.startswith(("scipy", "numpy")), (
            name
        )
    assert (
        type(kept["series"].coef) is np.ndarray
        and kept["series"](0.3) == Chebyshev(X)(0.3)
        and kept["poly"] == np.poly1d(X)
    )
    assert type(SYSTEM.num) is np.ndarray and type(SERIES) is Chebyshev and type(SUM) is np.poly1d


def test_a_captured_object_keeps_its_attributes():
    with pytest.raises(ArgumentError, match=r"Chebyshev\.coef = "):
        tg.grad(lambda x: (setattr(SERIES, "coef", x), x.sum())[1])(X)
    assert np.array_equal(SERIES.coef, X)


def test_classes_inside_are_the_librarys():
    def f(x):
        p, s = Polynomial(x), scipy.signal.TransferFunction(x[:2], D)
        assert isinstance(p, Polynomial) and isinstance(SERIES, Chebyshev) and not isinstance(p, Chebyshev)
        assert (
            isinstance(s, scipy.signal.lti)
            and isinstance(s, scipy.signal.TransferFunction)
            and len(p) == 3
            and list(p)[1] is not None
        )
        return p(0.5)

    np.testing.assert_allclose(tg.grad(f)(X), 0.5 ** np.arange(3))


def test_a_tracked_leading_zero_has_a_derivative():
    """Where NumPy would trim it: of a difference of equal polynomials, and of a leading coefficient that is
    0."""
    f = lambda c: (Polynomial(c) - Polynomial([1.0, 0.4, 0.3]))(0.5) * 3.0
    np.testing.assert_allclose(tg.grad(f)(X), 3 * 0.5 ** np.arange(3))
    np.testing.assert_allclose(tg.grad(lambda c: np.poly1d(c)(0.5))(np.array([0.0, 1.0])), [0.5, 1.0])
    assert tg.value_and_grad(f)(X)[0] == 0.0


@pytest.mark.parametrize(
    "f",
    [
        lambda x: scipy.signal.lsim((x[:2], D), T, np.array([0.0, 0.1, 0.5, 0.6, 0.7, 0.9]))[1].sum(),
        lambda x: scipy.signal.ss2tf(np.diag(x), x[:2], 1.0, 0.0)[0].sum(),
        lambda x: scipy.signal.get_window(("gaussian", x[0], 2.0, 3.0), 5).sum(),
        lambda x: scipy.signal.firwin(4, x[:1], pass_zero=False).sum(),
        lambda x: Polynomial(x) ** -1,
        lambda x: (Polynomial(x) + Polynomial(x, domain=[0, 1]))(0.5),
        lambda x: (Polynomial(x) * Chebyshev(x))(0.5),
        lambda x: np.polynomial.polynomial.polyval(0.5, np.polynomial.polynomial.polyder(x, -1)),
        lambda x: scipy.integrate.RK45(lambda t, y: y * x[0], 0.0, [[1.0]], 1.0).y[0],
        lambda x: scipy.interpolate.NdPPoly(np.ones((2, 2, 2)), ([0.0, 1.0],))(x[0]),
    ],
)
def test_bad_input_is_answered_as_the_library_does(f):
    with pytest.raises(Exception) as plain:
        f(X)
    with pytest.raises(Exception) as ours:
        tg.grad(f)(X)
    assert ours.type is plain.type or issubclass(ours.type, TapegradError), (ours.type, plain.type)


def test_in_threads():
    found = [None] * 4

    def run(k):
        found[k] = tg.grad(program)(X * (1 + 0.1 * k))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(4):
        np.testing.assert_allclose(found[k], tg.grad(program)(X * (1 + 0.1 * k)), rtol=1e-13)


def test_an_operator_of_the_users_functions():
    A = np.diag([3.0, 4.0, 5.0])

    def f(x):
        operator = scipy.sparse.linalg.LinearOperator(
            (3, 3), matvec=lambda v: A @ v * x[0] + v * x, dtype=float
        )
        return scipy.sparse.linalg.cg(operator, x, rtol=1e-12)[0].sum()

    np.testing.assert_allclose(tg.grad(f)(X), differences(f, X), rtol=1e-6)


def test_a_users_trend_is_that_of_each_segment():
    x = np.random.default_rng(0).normal(size=256)
    without_mean = lambda d: d - d.mean()
    for spectrum in (
        lambda x: scipy.signal.welch(x, nperseg=64, detrend=without_mean)[1],
        lambda x: scipy.signal.csd(x, x**2, nperseg=64, detrend=without_mean)[1].real,
        lambda x: scipy.signal.ShortTimeFFT(np.ones(16), 8, 1.0).stft_detrend(x, without_mean).real,
        lambda x: scipy.signal.ShortTimeFFT(np.ones(16), 8, 1.0).stft(x, padding="odd").imag,
        lambda x: scipy.signal.ShortTimeFFT(np.ones(8), 3, 1.0, mfft=16).stft(x.reshape(64, 4), axis=0).real,
    ):
        value, tangent = tg.jvp(spectrum, (x,), (np.sin(x),))
        plain = [spectrum(x + h * np.sin(x)) for h in (-1e-4, 0.0, 1e-4)]
        np.testing.assert_allclose(value, plain[1], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(tangent, (plain[2] - plain[0]) / 2e-4, rtol=1e-6, atol=1e-8)


def test_the_periodogram_of_a_frequency_near_zero():
    t, y = np.arange(10.0), np.random.default_rng(0).normal(size=10)
    power = lambda y: scipy.signal.lombscargle(t, y, np.array([1e-9, 1e-5, 1.0]))
    value, tangent = tg.jvp(power, (y,), (y,))
    np.testing.assert_allclose(value, power(y), rtol=1e-12)
    np.testing.assert_allclose(tangent, 2.0 * power(y), rtol=1e-9)  # a quadratic form of y


@pytest.mark.parametrize("method", ["nearest", "linear", "pchip", "slinear"])
def test_grids_of_few_nodes(method):
    grid = [np.array([0.0, 1.0, 2.5, 3.0]), np.array([5.0, 4.0, 2.0, 1.0])]
    values = np.random.default_rng(0).normal(size=(4, 4))
    at = np.array([[0.2, 4.6], [2.9, 1.1], [-0.5, 1.0]])
    if method in ("nearest", "linear"):  # an axis of one node
        grid, values, at = [*grid, np.array([7.0])], values[:, :, None], np.insert(at, 2, 8.0, axis=1)

    def f(values, at):
        return scipy.interpolate.RegularGridInterpolator(
            grid, values, method, bounds_error=False, fill_value=None
        )(at)

    value, tangent = tg.jvp(f, (values, at), (values, np.cos(at)))
    np.testing.assert_allclose(value, f(values, at), rtol=1e-12)
    moved = [f(values * (1 + h), at + h * np.cos(at)) for h in (-1e-5, 1e-5)]
    np.testing.assert_allclose(tangent, (moved[1] - moved[0]) / 2e-5, rtol=1e-7, atol=1e-8)


def test_knots_at_the_ends_of_a_spline():
    x, y = np.linspace(0.0, 2.0, 8), np.cos(np.arange(8.0))
    for at, times in ((0.0, 2), (2.0, 3), (x[3], 2)):

        def f(y, at=at, times=times):
            return scipy.interpolate.splev(
                [0.1, 0.9, 1.9], scipy.interpolate.insert(at, scipy.interpolate.splrep(x, y), times)
            )

        value, tangent = tg.jvp(f, (y,), (y,))  # the spline stays the same
        expected = scipy.interpolate.splev([0.1, 0.9, 1.9], scipy.interpolate.splrep(x, y))
        np.testing.assert_allclose([value, tangent], [expected] * 2, rtol=1e-12)
    with pytest.raises(ValueError, match="outside"):
        tg.grad(lambda y: scipy.interpolate.insert(2.5, scipy.interpolate.splrep(x, y))[1].sum())(y)
