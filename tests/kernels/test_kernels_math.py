"""The own exp, log, ... of generated kernels against multiple precision."""

import itertools

import mpmath
import numpy as np
import pytest
import scipy.special
from _cuda_host import needs_compiler, run_on_host

import tapegrad as tg
from tapegrad.kernels.emit.lower import lower_program
from tapegrad.kernels.launch.cpu import Launcher
from tapegrad.testing.derivative_checks import nested_derivative

pytestmark = pytest.mark.one_in(4)  # its cases compile

kernels = tg.kernels

RANGES = {
    "exp": [(-745, 709), (-1, 1)], "log": [(1e-300, 1e300), (0.5, 2.0)], "log1p": [(-0.999, 10), (-1e-8,
    1e-8)],
    "expm1": [(-40, 700), (-1e-3, 1e-3)], "tanh": [(-25, 25), (-1e-2, 1e-2)], "sin": [(-1e5, 1e5), (-3, 3)],
    "cos": [(-1e5, 1e5), (-3, 3)],
    "arctan": [(-3, 3), (-1e-3, 1e-3), (-0.42, 0.42), (2.3, 2.5), (-1e6, 1e6)], "exp2": [(-1022, 1024), (-1,
    1), (1023.9, 1024)],
    "exp10": [(-307, 308.25), (-1, 1), (308.1, 308.25)], "cosh": [(-710.47, 710.47), (-1, 1), (709.7,
    710.47)],
    "sinh": [(-710.47, 710.47), (-1, 1), (-1e-3, 1e-3), (709.7, 710.47)],
}  # fmt: skip
EXACT = {"arctan": mpmath.atan, "exp2": lambda x: mpmath.mpf(2) ** x, "exp10": lambda x: mpmath.mpf(10) ** x}
MOST = {
    "tanh": 25,
    "log": 1e30,
    "exp2": 127.9,
    "exp10": 38.5,
    "cosh": 89.4,
    "sinh": 89.4,
}  # in float32; of others 85


def named(name):
    return getattr(np, name, None) or getattr(scipy.special, name)


ZEROS = (
    np.sin, np.tan, np.arcsin, np.arctan, np.sinh, np.tanh, np.arcsinh, np.arctanh, np.expm1, np.log1p,
    np.cbrt, np.rint,
    np.floor, np.ceil, np.trunc, np.deg2rad, np.rad2deg, np.positive, np.sign, scipy.special.erf,
)  # fmt: skip


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_elementary_functions(name, dtype):
    k = kernels.map(named(name))
    rng = np.random.default_rng(0)
    for low, high in RANGES[name]:
        if dtype is np.float32:
            most = MOST.get(name, 85)
            low, high = (
                max(low, -min(most, 125 if name == "exp2" else 37 if name == "exp10" else most)),
                min(high, most),
            )
            low = min(low, high - 0.1 * abs(high))
            low = 1e-30 if name == "log" and low < 1e-30 else low
        x = (
            rng.uniform(low, high, 400)
            if name != "log"
            else np.exp(rng.uniform(np.log(low), np.log(high), 400))
        )
        x = x.astype(dtype)
        exact_of = EXACT.get(name) or getattr(mpmath, name)
        exact = np.array([float(exact_of(mpmath.mpf(float(v)))) for v in x])
        error = np.abs(k(x).astype(float) - exact) / np.spacing(np.abs(exact).astype(dtype)).astype(float)
        far = (
            name in ("sin", "cos") and high > 10
        )  # near a zero far from the origin only the absolute error is small
        bound = np.abs(k(x).astype(float) - exact).max() / np.finfo(dtype).eps if far else error.max()
        assert bound < (2.5 if dtype is np.float64 else 4.0), (name, low, high, bound)


@pytest.mark.parametrize("name", RANGES)
def test_elementary_functions_at_the_edges(name):
    x = np.array(
        [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            1e308,
            -1e308,
            5e-324,
            -5e-324,
            2.2e-308,
            -1.0,
            710.0,
            -746.0,
            -740.0,
            1024.0,
            -1075.0,
        ]
    )
    with np.errstate(all="ignore"):
        expected = named(name)(x)
    np.testing.assert_allclose(kernels.map(named(name))(x), expected, rtol=1e-15, atol=5e-324)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_zeros_have_the_sign_that_numpy_gives_them(dtype):
    """In kernels, in loops that are compiled for a replay, and in the rows of the interpreter."""
    wrong = []
    for x in np.array([0.0, -0.0, -0.25, -0.5, 0.5, -1e-30], dtype):
        for f in (*ZEROS, np.negative, np.abs, np.square, np.cosh, np.cos):
            of = lambda x, f=f: f(x) * x.dtype.type(1.0)
            many, few = tg.prepare(of, at := np.full(5000, x), compile=True), tg.prepare(of, at[:6])
            for _ in range(3):
                found = [many(at)[0], few(at[:6])[0], few(at[:6])[5]]
            found.append(kernels.map(f)(at[:3])[0])
            if not (np.signbit(found) == np.signbit(f(x))).all():
                wrong.append((f.__name__, x, found))
    assert not wrong


NEAR_ZERO = {
    np.float64: (6381956970095103.0, 797),
    np.float32: (16367173.0, 72),
}  # m 2^e nearest to a multiple of pi/2 (Muller 2016)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_angles_far_out(name, dtype):
    """One unit in the last place of 1 for all finite angles."""
    k, rng, last = (
        kernels.map(getattr(np, name)),
        np.random.default_rng(1),
        1023 if dtype is np.float64 else 127,
    )
    mantissa, exponent = NEAR_ZERO[dtype]
    powers = np.concatenate([rng.uniform(10, last, 2000), np.arange(10, last), [46.99, 47.01, 21.99, 22.01]])
    x = (2.0**powers * rng.choice([-1, 1], len(powers))).astype(dtype)
    x = np.concatenate([x, np.array([mantissa * 2.0**exponent, np.finfo(dtype).max, 1e22], dtype)])
    with mpmath.workprec(1300):
        exact = np.array([float(getattr(mpmath, name)(mpmath.mpf(float(v)))) for v in x])
    assert (np.abs(k(x) - exact) / (1 + exact**2 if name == "tan" else 1)).max() < 1.1 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_large_angle_among_lanes(dtype):
    """A large angle leaves the bits of its neighbours as they are."""
    x = np.random.default_rng(2).uniform(-9, 9, 67).astype(dtype)
    for f in (np.sin, np.cos):
        k = kernels.map(f)
        right = k(x)
        for at in range(0, 67, 5):
            for large in (1e30, np.inf, np.nan):
                z = x.copy()
                z[at] = large
                same = k(z) == right
                assert same.sum() == 66 and not same[at]


WORDS = ["".join(w) for k in (1, 2) for w in itertools.product("FR", repeat=k)]
SMALL = {np.float64: 1e-306, np.float32: 1e-37}


@pytest.mark.parametrize("dtype", SMALL)
def test_derivatives_of_tanh_in_the_tails(dtype):
    """Right until they are nearly no normal numbers, where 1 - tanh^2 is zero from 19 (float32: 9) on."""
    k = kernels.map(np.tanh)
    for x in np.array(
        [1e-30, 0.1, 0.3, 0.35, 1.0, 9.5, 20.0, 22.5, 40.0, 100.0, 353.0, 400.0, 1e30, -5.0, -30.0], dtype
    ):
        slope = mpmath.sech(mpmath.mpf(float(x))) ** 2
        for word in WORDS:
            wanted = slope if len(word) == 1 else -2 * slope * mpmath.tanh(mpmath.mpf(float(x)))
            found = nested_derivative(lambda x: k(x).sum(), word, [(np.ones(1, dtype),)] * len(word))(
                np.array([x])
            )
            assert found.dtype == dtype
            assert abs(float(found) - wanted) <= 8 * np.finfo(dtype).eps * abs(wanted) + SMALL[dtype], (
                x,
                word,
            )
    assert np.isnan(tg.grad(lambda x: k(x).sum())(np.array([np.nan], dtype))).all()


LENGTHS = {
    np.float64: (5e-324, 1e-310, 1e-300, 1e-200, 1e-150, 1e-136, 1e-3, 1e150, 1e200, 1e300, 2e307),
    np.float32: (1e-42, 1e-36, 1e-20, 1e-15, 1e-3, 1e15, 1e20, 6e37),
}


def lengths(n):
    """The length of n numbers in a kernel: of two also by hypot."""
    norm = kernels.likelihood(lambda theta, y: np.linalg.norm(theta) + 0.0 * y)
    hypot = kernels.map(np.hypot)
    both = [lambda theta: norm(theta, theta[0, :1] * 0.0).sum()]
    return both + [lambda theta: hypot(theta[0], theta[1]).sum()] if n == 2 else both


@pytest.mark.one_in(7)
@pytest.mark.parametrize("n", [1, 2, 3, 70])
@pytest.mark.parametrize("dtype", LENGTHS)
def test_lengths_whose_squares_are_no_numbers(n, dtype):
    """Value, gradient and second derivatives against multiple precision: along and across, with a zero among
    the numbers; at the length zero all derivatives are zero."""
    rng, info = np.random.default_rng(n), np.finfo(dtype)
    directions = [np.eye(n, 1), rng.normal(size=(n, 1)), rng.normal(size=(n, 1))]
    eps, least, fs = float(info.eps), float(info.smallest_subnormal), lengths(n)
    for size in LENGTHS[dtype]:
        x = rng.uniform(1.0, 4.0, (n, 1)) * rng.choice([-1, 1], (n, 1)) / np.sqrt(n)
        x[n // 2] *= n < 3 or n == 70
        x = (x * size).astype(dtype)
        x[0] = x[0] if x.any() else info.smallest_subnormal
        exact = [mpmath.mpf(float(a)) for a in x[:, 0]]
        r = mpmath.sqrt(sum([a * a for a in exact]))
        u = np.array([[float(a / r)] for a in exact])
        v, w, e = [a.astype(dtype) for a in directions]
        for f in fs:
            assert float(f(x)) == pytest.approx(float(r), rel=3 * eps, abs=least)
            np.testing.assert_allclose(tg.grad(f)(x), u, rtol=8 * eps)
            assert float(tg.jvp(f, (x,), (u.astype(dtype),))[1]) == pytest.approx(1.0, rel=8 * eps)
            for a, b in ((v, v), (w, e), (v, w), (x / dtype(size), w)) if r > 100 * info.tiny else ():
                p, q = ([mpmath.mpf(float(c)) for c in d[:, 0]] for d in (a, b))
                pq, px, qx = (
                    sum([c * d for c, d in zip(*z, strict=True)]) for z in ((p, q), (p, exact), (q, exact))
                )
                bound = mpmath.sqrt(sum([c * c for c in p]) * sum([c * c for c in q])) / r
                for word in WORDS[2:]:
                    second = float(nested_derivative(f, word, [(a,), (b,)])(x))
                    assert abs(second - (pq - px * qx / r**2) / r) <= 40 * eps * bound + info.tiny, (
                        size,
                        word,
                    )
    for f in fs:
        for word in WORDS:
            assert float(nested_derivative(f, word, [(v,)] * len(word))(np.zeros((n, 1), dtype))) == 0
        assert not tg.grad(f)(np.zeros((n, 1), dtype)).any()


@needs_compiler
@pytest.mark.parametrize("dtype", LENGTHS)
@pytest.mark.parametrize("kind, order", [("F", 2), ("VG", 0), ("R", 1)])
def test_lengths_have_the_same_bits_in_cuda_source(kind, order, dtype):
    k = kernels.likelihood(
        lambda theta, y: np.linalg.norm(theta) - 2.0 * np.hypot(theta[0], theta[2]) + 0.0 * y
    )
    rng, sizes = np.random.default_rng(3), np.array(LENGTHS[dtype][2:])
    inputs = [rng.normal(size=(3, len(sizes))) * sizes] + [
        rng.normal(size=(3, len(sizes))) for _ in range(order)
    ]
    inputs, data = [x.astype(dtype) for x in inputs], np.zeros(1, dtype)
    low = lower_program(k._families["value"].derived(kind, order, (3, 0, False)))
    launcher = Launcher(low, np.dtype(dtype), False)
    ours = [np.empty((r, len(sizes)), dtype) for r in launcher.outputs]
    launcher(inputs, data, 1, ours, len(sizes), None, None)
    for a, b in zip(ours, run_on_host(low, dtype, inputs, data, 1, len(sizes)), strict=True):
        assert np.isfinite(a).all() and np.array_equal(a, b.reshape(a.shape))


@pytest.mark.parametrize("axis", [0, 1])
def test_hypot_does_not_cancel(axis):
    """The second derivative by the longer side is y^2 / r^3, where 1 - (x / r)^2 would be rounding."""
    k, x, y = kernels.map(np.hypot), np.array([1e9, 1e200, 1.0]), np.array([1.0, 1e170, 1e-12])
    given, one = ((x, y), (y, x))[axis], (np.ones(3), np.zeros(3))
    along = one if axis == 0 else one[::-1]
    for word in WORDS[2:]:
        second = nested_derivative(lambda *z: k(*z).sum(), word, [along] * 2)(*given)
        np.testing.assert_allclose(float(second), float(np.sum(y / x * (y / x) / x)), rtol=1e-13)


def test_the_remainder_of_a_tiny_negative_number():
    tiny = np.array([-1e-17, -1e-300, -5e-324, -0.25, 0.75, -1.0])
    kernel = tg.kernels.map(
        lambda theta: np.array([theta[0] % theta[1], theta[0] // theta[1], np.fmod(theta[0], 2.0)])
    )
    for y in (1.0, 0.5, -1.0):
        given = np.stack([tiny, np.full(6, y)])
        assert np.array_equal(kernel(given), [tiny % y, tiny // y, np.fmod(tiny, 2.0)])
