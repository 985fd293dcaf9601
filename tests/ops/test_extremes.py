"""Derivatives at extreme arguments: near 0, near poles, where squares overflow or underflow, at large
offsets, across branch cuts.

References are mpmath at high precision and closed forms.  A result that is finite must be right, up to what one rounding of the
argument changes; nan and inf are loud."""

import itertools
import warnings
from contextlib import nullcontext

import mpmath as mp
import numpy as np
import pytest
import scipy.linalg
import scipy.special as sp
from comparison import close, host

import tapegrad as tg
from tapegrad.errors import NonDifferentiableWarning
from tapegrad.ops.declare import SCIPY
from tapegrad.testing.derivative_checks import nested_derivative

pytestmark = pytest.mark.usefixtures("quiet")

WORDS2 = ["".join(w) for w in itertools.product("FR", repeat=2)]
BOTH = lambda *x: [*x, *[-v for v in x]]
TINY, LARGE = (5e-324, 1e-300, 1e-160, 1e-100, 1e-20, 1e-10, 1e-5), (1e5, 1e10, 1e100, 1e155, 1e200, 1e300)
MIDDLE = (0.3, 1.0, 7.5, 40.0)
POSITIVE, ANY = [*TINY, *MIDDLE, *LARGE], BOTH(*TINY, *MIDDLE, *LARGE)
TAILS = (2.0, 3.7, 12.0, 19.5, 22.5, 90.0, 300.0, 352.0)
UNIT, MODERATE = BOTH(*TINY, 0.3, 1 - 1e-10), BOTH(*TINY, *MIDDLE)
FUNCTIONS = {
    "sqrt": (np.sqrt, mp.sqrt, POSITIVE),
    "cbrt": (np.cbrt, mp.cbrt, POSITIVE),
    "reciprocal": (np.reciprocal, lambda x: 1 / x, ANY),
    "x**2.5": (lambda x: x**2.5, lambda x: x ** mp.mpf(2.5), POSITIVE),
    "expm1": (np.expm1, mp.expm1, MODERATE),
    "log1p": (np.log1p, mp.log1p, POSITIVE),
    "sin": (np.sin, mp.sin, ANY),
    "tan": (np.tan, mp.tan, MODERATE),
    "arcsin": (np.arcsin, mp.asin, UNIT),
    "arccos": (np.arccos, mp.acos, UNIT),
    "arctanh": (np.arctanh, mp.atanh, UNIT),
    "arctan": (np.arctan, mp.atan, ANY),
    "arcsinh": (np.arcsinh, mp.asinh, ANY),
    "arccosh": (np.arccosh, mp.acosh, [1 + 1e-10, 2.0, *LARGE]),
    "tanh": (np.tanh, mp.tanh, BOTH(*TINY, *MIDDLE, *TAILS)),
    "expit": (sp.expit, lambda x: 1 / (1 + mp.exp(-x)), MODERATE),
    "logit": (sp.logit, lambda x: mp.log(x / (1 - x)), [1e-300, 1e-20, 0.3, 1 - 1e-10]),
    "erf": (sp.erf, mp.erf, BOTH(1e-100, 1e-10, 0.3, 7.5)),
    "exprel": (sp.exprel, lambda x: mp.expm1(x) / x, MODERATE),
    "hypot": (lambda x: np.hypot(x, 1.0), lambda x: mp.sqrt(1 + x * x), ANY),
    "abs of complex numbers": (lambda x: abs(x + 2j), lambda x: mp.sqrt(4 + x * x), ANY),
    "pseudo_huber": (lambda x: sp.pseudo_huber(1.5, x), lambda x: 1.5 * mp.sqrt(2.25 + x * x), ANY),
    "arctan2 of y": (lambda x: np.arctan2(x, 1e200), lambda x: mp.atan2(x, mp.mpf(1e200)), POSITIVE),
    "arctan2 of x": (
        lambda x: np.arctan2(1e-200, x),
        lambda x: mp.atan2(mp.mpf(1e-200), x),
        [x for x in POSITIVE if x > 1e-100],
    ),
    "gammaln": (sp.gammaln, mp.loggamma, [1e-100, 1e-10, 0.3, 7.5, 1e5, 1e10]),
    "rgamma": (sp.rgamma, mp.rgamma, BOTH(1e-20, 1e-10, 1e-5, 0.3) + [-1 + 1e-8, -3.5, 7.5]),
    "beta": (lambda x: sp.beta(x, 2.5), lambda x: mp.beta(x, mp.mpf(2.5)), [1e-10, 0.3, 7.5, 1e5, 1e8]),
    "betaln": (
        lambda x: sp.betaln(2.5, x),
        lambda x: mp.log(mp.beta(x, mp.mpf(2.5))),
        [1e-10, 0.3, 7.5, 1e5, 1e8],
    ),
    "betaln of the other": (
        lambda x: sp.betaln(x, 1e-10),
        lambda x: mp.log(mp.beta(x, mp.mpf(1e-10))),
        [0.3, 7.5, 1e5],
    ),
    "binom": (lambda x: sp.binom(x, 2.0), lambda x: x * (x - 1) / 2, [3.5, 1e5, 1e10, 1e16]),
    "poch": (lambda x: sp.poch(x, 2.0), lambda x: x * (x + 1), [0.3, 1e5, 1e10, 1e16]),
}


def each(word, f, x):
    """A derivative of the scalar function f of a number by one nesting."""
    return float(nested_derivative(lambda v: f(v), word, [(1.0,)] * len(word))(x))


EVERY = [pytest.param(4, id="some points"), pytest.param(1, id="all points", marks=pytest.mark.long)]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_and_second_derivatives_in_all_nestings(name, every):
    f, exact, points = FUNCTIONS[name]
    points = [*points[::every], points[-1]]
    checked = 0
    with mp.workdps(1100 if points[0] == 5e-324 else 120 if "gamma" in name or "beta" in name else 400):
        for x, words in itertools.product(points, (["F", "R"], WORDS2)):
            k = len(words[0])
            at = lambda v, k=k: mp.diff(lambda u: exact(v * (1 + u)), 0, k) / v**k
            wanted, moved = at(mp.mpf(x)), at(mp.mpf(x) * (1 + mp.mpf(2) ** -52))
            bound = abs(wanted) * 1e-10 + 8 * abs(moved - wanted) + mp.mpf(1e-306)
            for word in words:
                found = each(word, f, x)
                checked += np.isfinite(found)
                assert not np.isfinite(found) or abs(found - wanted) <= bound, (
                    x,
                    word,
                    found,
                    mp.nstr(wanted, 12),
                )
    assert checked > 3 * len(points)


# Derivatives of order k in closed form, for arguments at which multiple precision is slow to differentiate.
def tanh(x, k):
    y = mp.sech(x) ** 2
    return y if k == 1 else -2 * y * mp.tanh(x)


def expit(x, k):
    e = mp.exp(-abs(x))
    y = e / (1 + e) ** 2
    return y if k == 1 else y * mp.expm1(-x) / (1 + mp.exp(-x))


def log_expit(x, k):
    return 1 / (1 + mp.exp(x)) if k == 1 else -expit(x, 1)


def scaled_i(x, k, n):
    a, b = (mp.exp(-abs(x)) * mp.besseli(j, x) for j in (0, 1))
    s = mp.sign(x)
    da, db = b - s * a, a - b / x - s * b
    return (da, db)[n] if k == 1 else (db - s * da, da - db / x + b / x**2 - s * db)[n]


def scaled_k(x, k, n):
    a, b = (mp.exp(x) * mp.besselk(j, x) for j in (0, 1))
    da, db = a - b, b - a - b / x
    return (da, db)[n] if k == 1 else (da - db, db - da - db / x + b / x**2)[n]


def erfcx(x, k):
    y = mp.exp(x * x) * mp.erfc(x)
    d = 2 * x * y - 2 / mp.sqrt(mp.pi)
    return d if k == 1 else 2 * (y + x * d)


def dawsn(x, k):
    y = mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)
    d = 1 - 2 * x * y
    return d if k == 1 else -2 * (y + x * d)


def faddeeva(x, k):
    """The imaginary part on the real axis."""
    return 2 / mp.sqrt(mp.pi) * dawsn(x, k)


def log_ndtr(x, k):
    r = mp.npdf(x) / mp.ncdf(x)
    return r if k == 1 else -r * (r + x)


def pseudo_huber(d, k):
    h = mp.sqrt(d * d + mp.mpf(2.25))
    return (h - d) ** 2 / h * (1 if k == 1 else -(2 / h + d / h**2))


FAR_OUT = (0.3, 7.5, 11.9, 12.1, 49.0, 51.0, 1e3, 1e4)
CLOSED = {
    "tanh": (np.tanh, tanh, [*ANY, *BOTH(*TAILS)]),
    "expit": (sp.expit, expit, BOTH(*TINY, *MIDDLE, *TAILS)),
    "log_expit": (sp.log_expit, log_expit, BOTH(*TINY, *MIDDLE, *TAILS)),
    "i0e": (sp.i0e, lambda x, k: scaled_i(x, k, 0), BOTH(*FAR_OUT, 1e6, 1e10)),
    "i1e": (sp.i1e, lambda x, k: scaled_i(x, k, 1), BOTH(*FAR_OUT, 1e6, 1e10)),
    "k0e": (sp.k0e, lambda x, k: scaled_k(x, k, 0), [1e-10, *FAR_OUT, 1e6]),
    "k1e": (sp.k1e, lambda x, k: scaled_k(x, k, 1), [1e-10, *FAR_OUT, 1e6]),
    "erfcx": (sp.erfcx, erfcx, [*TINY, *FAR_OUT, 1e8, 1e100, -3.0]),
    "dawsn": (sp.dawsn, dawsn, BOTH(*TINY, *FAR_OUT)),
    "wofz": (lambda x: sp.wofz(x + 0j).imag, faddeeva, BOTH(*FAR_OUT, 1e6, 1e8)),
    "log_ndtr": (sp.log_ndtr, log_ndtr, [*TINY, 3.0, *[-x for x in FAR_OUT]]),
    "pseudo_huber of delta": (
        lambda x: sp.pseudo_huber(x, 1.5),
        pseudo_huber,
        [1e-300, 1e-5, 0.3, 3.0, 1e5, 1e8, 1e155, 1e300],
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in ("i1e", "k1e") else ()) for n in CLOSED]
)  # as i0e, k0e
def test_tails_against_closed_forms(name):
    f, exact, points = CLOSED[name]
    for x in points:
        with mp.workdps(60 + 5 * int(abs(np.log10(abs(x))))):
            for words in (["F", "R"], WORDS2):
                k = len(words[0])
                wanted, moved = exact(mp.mpf(x), k), exact(mp.mpf(x) * (1 + mp.mpf(2) ** -52), k)
                bound = abs(wanted) * 1e-11 + 8 * abs(moved - wanted) + mp.mpf(1e-306)
                for word in words:
                    found = each(word, f, x)
                    assert abs(found - wanted) <= bound, (x, word, found, mp.nstr(wanted, 12))


@pytest.mark.parametrize("name", ["erfcx", "dawsn", "log_ndtr"])
def test_tails_in_float32(name):
    """The series begin where the cancelling forms have lost no more than a thousandth of a second
    derivative."""
    f, exact, _ = CLOSED[name]
    for x in (0.5, 2.0, 4.4, 4.6, 6.4, 6.6, 9.0, 11.9, 12.1, 300.0):
        x = np.float32(-x if name == "log_ndtr" else x)
        for words in (["F", "R"], WORDS2):
            with mp.workdps(60):
                wanted = exact(mp.mpf(float(x)), len(words[0]))
            for word in words:
                found = nested_derivative(lambda v: f(v), word, [(np.float32(1),)] * len(word))(x)
                assert found.dtype == np.float32
                assert abs(float(found) / float(wanted) - 1) < (2e-5 if len(word) == 1 else 1e-3), (
                    x,
                    word,
                    found,
                    float(wanted),
                )


@pytest.mark.parametrize("z", [12.2 - 1j, -13 - 2j, 1 - 12.5j, 12.1 + 0.1j, 3 - 2j, 20j, -4e3 + 1j])
def test_faddeeva_in_the_plane(z):
    """w'(z) and w''(z), in the lower half plane too."""
    f = lambda p: (lambda w: np.array([w.real, w.imag]))(sp.wofz(p[0] + 1j * p[1]))
    point, along = np.array([z.real, z.imag]), np.array([1.0, 0.0])
    slope = lambda p: tg.jvp(f, (p,), (along,))[1]
    with mp.workdps(60 + int(2 * abs(z) ** 2 / 2) if abs(z) < 30 else 60):
        if abs(z) < 30:
            w = mp.exp(-(mp.mpc(z) ** 2)) * mp.erfc(-1j * mp.mpc(z))
        else:
            w = (
                1j
                / mp.sqrt(mp.pi)
                * sum([mp.fac2(2 * k - 1) / (2 * mp.mpc(z) ** 2) ** k / z for k in range(12)])
            )
        first = 2j / mp.sqrt(mp.pi) - 2 * mp.mpc(z) * w
        second = -2 * w - 2 * mp.mpc(z) * first
    assert abs(complex(*slope(point)) / complex(first) - 1) < 1e-12
    assert abs(complex(*tg.jvp(slope, (point,), (along,))[1]) / complex(second) - 1) < 1e-11


@pytest.mark.parametrize("x", [0.7, 40.0, 1e4])
def test_voigt_profile_by_its_spread(x):
    def profile(s):
        z = (mp.mpf(x) + 0.3j) / (s * mp.sqrt(2))
        w = mp.quad(lambda t: 1j / mp.pi * mp.exp(-t * t) / (z - t), [-8, -2, 0, 2, 8])
        return mp.re(w) / (s * mp.sqrt(2 * mp.pi))

    with mp.workdps(40):
        wanted = float(mp.diff(profile, mp.mpf("0.5"), h=mp.mpf("1e-12")))
    assert abs(tg.grad(lambda s: sp.voigt_profile(x, s, 0.3))(0.5) / wanted - 1) < 1e-8


# --- lengths ---

DIRECTION = np.array([3.0, -4.0, 12.0])
SIZES = (1e-320, 1e-300, 1e-200, 1e-160, 1e-150, 1e-3, 1e140, 1e154, 1e160, 1e200, 1e305)
LENGTHS = {
    "norm": lambda x: np.linalg.norm(x),
    "norm of an axis": lambda x: np.linalg.norm(x, axis=1)[0],
    "norm, kept": lambda x: np.linalg.norm(x, axis=(0, 1), keepdims=True)[0, 0],
    "frobenius": lambda x: np.linalg.norm(x, "fro"),
    "vector_norm": lambda x: np.linalg.vector_norm(x),
    "matrix_norm": lambda x: np.linalg.matrix_norm(x),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", LENGTHS)
def test_norms_whose_squares_are_no_numbers(xp, name, size):
    """The gradient is x / |x| whatever the size; along a v at right angles the second derivative is (v.v) /
    |x|."""
    x = np.reshape(DIRECTION * size, (1, 3))
    exact = x / max(abs(x).ravel())
    exact = exact / np.sqrt((exact * exact).sum())
    f = lambda x: LENGTHS[name](x)
    close(tg.grad(f)(xp.asarray(x)), exact, 1e-14)
    v = np.array([[4.0, 3.0, 0.0]])
    close(host(tg.jvp(f, (xp.asarray(x),), (xp.asarray(v + exact),))[1]), 1.0, 1e-12)
    if size > 1e-306:
        for word in WORDS2:
            second = float(host(nested_derivative(f, word, [(xp.asarray(v),)] * 2)(xp.asarray(x))))
            assert second == pytest.approx(25 / (13 * size), rel=1e-9)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("p", [1, 1.5, 3, 7, np.inf])
@pytest.mark.parametrize("size", SIZES)
def test_p_norms_whose_powers_are_no_numbers(xp, p, size):
    w = abs(DIRECTION) / 12
    exact = np.where(w == 1, 1.0, 0.0) if p == np.inf else (w / (w**p).sum() ** (1 / p)) ** (p - 1)
    f = lambda x: np.linalg.norm(x, p)
    close(tg.grad(f)(xp.asarray(DIRECTION * size)), exact * np.sign(DIRECTION), 1e-13)
    close(
        tg.jvp(f, (xp.asarray(DIRECTION * size),), (xp.asarray(DIRECTION),))[1],
        (exact * abs(DIRECTION)).sum(),
        1e-13,
    )


@pytest.mark.parametrize("size", [1e-320, 1e-310, 1e-200, 1e-3, 1e200, 2.9e307, 4e307])
def test_hypot_complex_modulus_and_deviation(xp, size):
    x, y = xp.asarray([3.0 * size]), xp.asarray([4.0 * size])
    z = x + 1j * y
    tol = 1e-3 if size < 1e-310 else 1e-14  # what is left of 3 and 4
    gx, gy = tg.grad(lambda x, y: np.hypot(x, y).sum(), (0, 1))(x, y)
    close(gx, [0.6], tol)
    close(gy, [0.8], tol)
    close(tg.grad(lambda z: abs(z).sum())(z), [0.6 + 0.8j], tol)
    close(host(tg.jvp(lambda z: abs(z).sum(), (z,), (xp.asarray([0.6 + 0.8j]),))[1]), 1.0, tol)
    if size < 1e300:
        close(tg.grad(lambda x: np.std(x))(xp.concatenate([-x, x])), [-0.5, 0.5], tol)
    if 1e-306 < size < 3e307:
        for word in WORDS2:
            v, w = xp.asarray([-0.8]), xp.asarray([0.6])
            close(
                host(nested_derivative(lambda x, y: np.hypot(x, y).sum(), word, [(v, w)] * 2)(x, y)) * size,
                0.2,
                1e-7 if size > 1e300 else 1e-12,
            )
            close(
                host(nested_derivative(lambda z: abs(z).sum(), word, [(v + 1j * w,)] * 2)(z)) * size,
                0.2,
                1e-7 if size > 1e300 else 1e-12,
            )


def test_single_precision_norms():
    for size in (1e-30, 1e-3, 1e25):
        g = tg.grad(lambda x: np.linalg.norm(x))((DIRECTION * size).astype("f"))
        assert g.dtype == np.float32
        close(g, DIRECTION / 13, 1e-6)


# --- second derivatives at zero ---

AT_ZERO = {
    "norm": ("norm", lambda x: np.linalg.norm(x) ** 2),
    "norm of order 3": ("norm", lambda x: np.linalg.norm(x, 3) ** 2),
    "norms of rows": ("norm", lambda x: (np.linalg.norm(x[None], axis=1) ** 2).sum()),
    "sqrt of x @ x": ("sqrt", lambda x: np.sqrt(x @ x) ** 2),
    "sqrt of a sum": ("sqrt", lambda x: np.sqrt((x * x).sum()) ** 2),
    "sqrt of sums of rows": ("sqrt", lambda x: (np.sqrt((x * x)[None].sum(axis=1)) ** 2).sum()),
    "hypot": ("hypot", lambda x: np.hypot(x[0], x[1]) ** 2),
    "hypot of vectors": ("hypot", lambda x: (np.hypot(x, 2 * x) ** 2).sum()),
    "abs": ("abs of complex numbers", lambda x: (abs(x + 1j * x) ** 2).sum()),
    "std": ("std", lambda x: np.std(x) ** 2),
    "arctan2": ("arctan2", lambda x: np.arctan2(x[0], x[1]) * x[2]),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("word", WORDS2)
@pytest.mark.parametrize("name", AT_ZERO)
def test_a_second_derivative_at_zero_is_zero_and_warns(xp, name, word):
    operation, f = AT_ZERO[name]
    v, w = xp.asarray([1.0, 2.0, 4.0]), xp.asarray([1.0, -1.0, 3.0])
    loud = xp is np
    with (
        pytest.warns(NonDifferentiableWarning, match=f"^{operation} at zero .*test_extremes")
        if loud
        else nullcontext() as caught
    ):
        assert float(host(nested_derivative(lambda x: f(x), word, [(v,), (w,)])(xp.zeros(3)))) == 0
    assert not loud or all(c.filename == __file__ for c in caught)


def test_the_line_is_that_of_the_norm():
    def f(x):
        return np.linalg.norm(x) ** 2

    line = f.__code__.co_firstlineno + 1
    with pytest.warns(NonDifferentiableWarning, match=f"test_extremes.py:{line}"):
        assert not tg.hessian(f)(np.zeros(3)).any()


@pytest.mark.parametrize("word", WORDS2)
def test_what_does_not_move_at_zero_is_silent(word):
    """Directions that leave the zero, first derivatives, guarded roots: nothing to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, v = np.array([0.0, 0.0, 3.0, 4.0]), np.array([0.0, 0.0, 1.0, -1.0])
        assert nested_derivative(
            lambda x: (np.linalg.norm(x.reshape(2, 2), axis=1) ** 3).sum(), word, [(v,)] * 2
        )(x) == pytest.approx(30.6)
        assert not tg.grad(lambda x: np.linalg.norm(x))(np.zeros(3)).any()
        guarded = lambda x: (
            (np.where(x > 0, np.sqrt(x), 0.0) ** 2).sum() + np.where(x > 0, np.sqrt(x), 0.0).sum()
        )
        assert nested_derivative(guarded, word, [(np.ones(2),)] * 2)(np.array([0.0, 4.0])) == pytest.approx(
            -1 / 32
        )


# --- sums of exponentials ---


@pytest.mark.parametrize("offset", [0.0, 1e10, -1e12, 1e15, 1e300])
def test_logsumexp_and_softmax_at_an_offset(xp, offset):
    x = np.array([0.0, 1.0, -2.0, 0.5]) + offset
    d = x - x.max()
    p = np.exp(d) / np.exp(d).sum()
    w = np.array([0.3, 1.7, -0.9, 2.0])
    jacobian = np.diag(p) - np.outer(p, p)
    a, v = xp.asarray(x), xp.asarray(w)
    logsumexp, softmax, log_softmax = (
        tg.scipy.special.logsumexp,
        tg.scipy.special.softmax,
        tg.scipy.special.log_softmax,
    )
    close(tg.grad(lambda x: logsumexp(x))(a), p, 1e-15)
    close(tg.grad(lambda x: (softmax(x) * v).sum())(a), jacobian @ w, 1e-14)
    close(tg.grad(lambda x: (log_softmax(x) * v).sum())(a), w - p * w.sum(), 1e-14)
    close(log_softmax(a), sp.log_softmax(x), 1e-15)
    for word in WORDS2:
        second = nested_derivative(lambda x: logsumexp(x), word, [(v,)] * 2)(a)
        assert float(host(second)) == pytest.approx(w @ jacobian @ w, rel=1e-13)


# --- functions of matrices, special functions ---


@pytest.mark.parametrize("values", [(-1.0, 2.0, 4.0), (-1.0, -3.0, 2.0), (1.0, 2.0, 3.0)])
@pytest.mark.parametrize("name", ["sqrtm", "logm"])
def test_functions_of_matrices_across_a_branch_cut(name, values):
    rng = np.random.default_rng(0)
    s, w, v, e, t = rng.standard_normal((5, 3, 3))
    a = s @ np.diag(values) @ np.linalg.inv(s)

    def f(a):
        y = scipy.linalg.sqrtm(a) if name == "sqrtm" else scipy.linalg.logm(a)
        return (y.real * w + y.imag * v).sum()

    differences = lambda h, x, d: (8 * (h(x + d) - h(x - d)) - (h(x + 2 * d) - h(x - 2 * d))) / 12
    wanted = differences(f, a, 1e-4 * e) / 1e-4
    close(np.sum(tg.grad(f)(a) * e), wanted, 1e-8)
    close(tg.jvp(f, (a,), (e,))[1], wanted, 1e-8)
    second = differences(lambda x: tg.jvp(f, (x,), (e,))[1], a, 1e-4 * t) / 1e-4
    for word in WORDS2:
        close(nested_derivative(f, word, [(e,), (t,)])(a), second, 1e-7)


def test_the_root_of_a_singular_matrix_is_loud():
    said = pytest.warns(scipy.linalg.LinAlgWarning, match="singular") if SCIPY >= (1, 17) else nullcontext()
    with said:  # by SciPy
        assert np.isnan(tg.grad(lambda a: scipy.linalg.sqrtm(a).sum())(np.zeros((2, 2)))).all()


@pytest.mark.parametrize("x", BOTH(1e-300, 1e-12, 1e-3, 1.9, 2.1, 4.9, 5.1, 40.0))
def test_exprel_at_all_orders(x):
    for k in (1, 2, 3, 4):
        with mp.workdps(40):
            exact = float(mp.quad(lambda s, k=k: s**k * mp.exp(s * mp.mpf(x)), [0, 1]))
        assert each("FRFR"[:k], sp.exprel, x) == pytest.approx(exact, rel=1e-14)


def test_expn_cuts_a_fraction_off_the_order():
    with pytest.warns(RuntimeWarning, match="truncated"):
        assert tg.grad(lambda x: sp.expn(1.7, x))(2.0) == pytest.approx(
            tg.grad(lambda x: sp.expn(1, x))(2.0), rel=1e-15
        )
    with pytest.warns(RuntimeWarning, match="truncated"):
        close(
            tg.grad(lambda x: sp.expn(np.array([0.5, 2.5]), x).sum())(2.0),
            tg.grad(lambda x: sp.expn(np.array([0, 2]), x).sum())(2.0),
        )
