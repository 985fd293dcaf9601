"""Coefficients and inputs that are exactly 0: NumPy and SciPy leave them out, and the derivative with respect
to them is not 0. It is that of differences, or nan where what is returned has no derivative."""

import numpy as np
import pytest
import scipy.signal as sig
from numpy.polynomial import Chebyshev, Polynomial
from numpy.polynomial import chebyshev as C
from numpy.polynomial import polynomial as P

import tapegrad as tg

T = np.linspace(0, 3, 7)
D = np.array([1.3, 0.7, 0.5])
X = np.array([0.3, -0.4, 0.8])
POINTS = ([0.0, 0.4, 1.1], [0.0, 0.0, 1.1], [0.3, 0.0, 0.0], [-0.0, 0.4, -0.0], [0.0, 0.0, 0.0])
first = lambda b: b[::-1]
of_two = lambda parts, value: np.concatenate([np.reshape(value(q), -1) for q in parts])
RIGHT = {  # (functions of the coefficients, highest power first)
    "poly1d product": lambda b: (np.poly1d(b) * np.poly1d([1.0, 2.0]))(X),
    "poly1d of poly1d": lambda b: np.poly1d(b)(np.poly1d([1.0, 2.0]))(X),
    "Polynomial": lambda b: (Polynomial(first(b)) ** 2 - Polynomial([1.0, 2.0]))(X),
    "Polynomial division": lambda b: of_two(divmod(Polynomial(first(b)), Polynomial([1.0, 2.0])), lambda q: q(X)),
    "integral": lambda b: Polynomial(b[:1]).integ(2)(X) + C.chebval(X, C.chebint(b[:1])),
    "convert": lambda b: Chebyshev(first(b)).convert(kind=Polynomial)(X),
    "cheb2poly": lambda b: P.polyval(X, C.cheb2poly(first(b))),
    "poly2cheb": lambda b: C.chebval(X, C.poly2cheb(first(b))),
    "impulse": lambda b: sig.impulse((b, D), T=T)[1],
    "step": lambda b: sig.step((b, D), T=T)[1],
    "lsim": lambda b: sig.lsim((b, D), np.sin(T), T)[1],
    "dlsim": lambda b: sig.dlsim((b, D, 1.0), np.sin(T))[1],
    "tf2ss": lambda b: of_two(sig.tf2ss(b, D), lambda q: q),
    "cont2discrete": lambda b: np.polyval(sig.cont2discrete((b, D), 0.2)[0].ravel(), X),
    "input of lsim": lambda b: sig.lsim(([1.0], D), b, T[:3])[1],
}  # fmt: skip
NO_DERIVATIVE = {
    "freqresp": lambda b: sig.lti(b, D).freqresp([0.3, 0.9])[1].real,
    "normalize": lambda b: np.polyval(sig.normalize(b, D)[0], X),
    "lp2bp": lambda b: np.polyval(sig.lp2bp(b, D, 2.0)[0], X),
    "trim_zeros": lambda b: np.polyval(np.trim_zeros(b, "f"), X),
    "polymul": lambda b: np.polyval(np.polymul(b, [1.0, 2.0]), X),
    "polytrim": lambda b: P.polyval(X, P.polytrim(first(b))),
    "trim": lambda b: Polynomial(first(b)).trim()(X),
    "tf2zpk": lambda b: sig.tf2zpk(b, D)[2] * np.ones(3),
    "sos2tf": lambda b: np.polyval(sig.sos2tf(np.concatenate([b, [1.0, 0.2, 0.1]])[None])[0], X),
    "residue": lambda b: sig.residue(b, D)[0].real,
}


def weighed(f):
    def g(b):
        y = np.reshape(f(b), -1)
        return np.sum(y * np.cos(1.0 + np.arange(y.size)))

    return g


def slopes(g, b, h=1e-3):
    """Differences of the fourth order."""
    at = lambda e: (8 * (g(b + h * e) - g(b - h * e)) - (g(b + 2 * h * e) - g(b - 2 * h * e))) / (12 * h)
    return np.array([at(e) for e in np.eye(len(b))])


@pytest.mark.filterwarnings("ignore::scipy.signal.BadCoefficients")
@pytest.mark.parametrize("name", RIGHT)
def test_derivatives_by_coefficients_of_zero(name):
    g = weighed(RIGHT[name])
    for b in map(np.array, POINTS):
        wanted = slopes(g, b)
        assert tg.value_and_grad(g)(b)[0] == pytest.approx(g(b), rel=1e-9, abs=1e-12)
        for mode in ("reverse", "forward"):
            np.testing.assert_allclose(tg.jacobian(g, mode=mode)(b), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.filterwarnings("ignore::scipy.signal.BadCoefficients")
@pytest.mark.parametrize("name", NO_DERIVATIVE)
def test_coefficients_that_are_dropped(name):
    """Those that stay have their derivative, a constant 0 that is dropped does no harm."""
    g, b = weighed(NO_DERIVATIVE[name]), np.array([0.0, 0.4, 1.1])
    wanted = slopes(lambda rest: g(np.concatenate([[0.0], rest])), b[1:])
    for mode in ("reverse", "forward"):
        found = tg.jacobian(g, mode=mode)(b)
        assert np.isnan(found[0])
        np.testing.assert_allclose(found[1:], wanted, rtol=1e-6)
        padded = lambda rest: g(np.concatenate([np.zeros(1), rest]))
        np.testing.assert_allclose(tg.jacobian(padded, mode=mode)(b[1:]), wanted, rtol=1e-6)


def test_nothing_but_zeros_is_trimmed():
    f = lambda x: np.polyval(np.trim_zeros(x), 0.3) + x[1]
    for transform in (tg.grad, lambda f: tg.jacobian(f, mode="forward")):
        with pytest.raises(np.linalg.LinAlgError, match="all elements of an array with derivatives are 0"):
            transform(f)(np.zeros(3))
    assert (tg.vmap(f)(np.zeros((2, 3))) == 0).all() and tg.prepare(f, np.zeros(3)).value(np.zeros(3)) == 0
    assert (tg.grad(lambda x: np.sum(np.trim_zeros(np.zeros(2))) + x[1])(np.ones(3)) == [0, 1, 0]).all()


def test_rows_of_zeros_that_are_trimmed():
    x = np.array([[0.0, 0.0, 0.0], [0.0, 1.3, 0.7]])
    for mode in ("reverse", "forward"):
        found = tg.jacobian(lambda x: np.sum(np.trim_zeros(x)[0] ** 2), mode=mode)(x)
        np.testing.assert_allclose(found, np.where(x == 0, np.nan, 2 * x))
