"""Corners of functions of Numba's: narrow integers, overflow, odd ranges and slices, names that rotate."""

import math

import numpy as np
import pytest
from numba import njit, uint8

import tapegrad as tg


@njit
def cast_to_narrow(x, n):
    s = 0.0
    for k in range(x.shape[0]):
        s += x[k] * np.int32(n * (k + 1)) + x[k] * x[k] * uint8(n // 7 * (k + 1))
    return s


@njit
def generator(x, state):
    s = 0.0
    for k in range(x.shape[0]):
        state[0] = state[0] * 1664525 + 1013904223
        s += x[k] * state[0]
    return s


@njit
def own_generator(x):
    state = np.zeros(2, np.int32)
    s = 0.0
    for k in range(x.shape[0]):
        state[1] = state[1] * 1664525 + 1013904223
        s += x[k] * x[k] * state[1]
    return s


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "f",
    [
        lambda x: cast_to_narrow(x, 2**31 + 5000),
        lambda x: generator(x, np.array([7], np.int32)),
        own_generator,
    ],
    ids=["casts", "an argument", "an array of its own"],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")  # of NumPy, where the code is followed as Python
def test_narrow_integers_wrap_as_in_numba(f):
    x = np.array([0.3, -0.7, 1.1])
    value, g = tg.value_and_grad(f)(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-15)
    slope = [(f(x + e) - f(x - e)) / 2 for e in np.eye(3)]  # exact: at most quadratic
    np.testing.assert_allclose(g, slope, rtol=0, atol=1e-15 * np.max(np.abs(slope)))


@njit
def finite_part(x, bounds):
    b = np.asarray(bounds)
    s = 0.0
    for k in range(x.shape[0]):
        y = x[k] ** 3
        if np.isnan(x[k]):
            continue
        if math.isinf(y):
            s += 1.0
        elif np.isfinite(y) and y < b[k % 2]:
            s += y * b[0]
        if np.isinf(k) or not np.isfinite(k):
            s += 1e9
    return s


def test_predicates_of_numbers():
    x = np.array([0.5, np.nan, np.inf, -2.0, 1.5, -np.inf])
    bounds = np.array([3.0, 2.0])
    tg.loops.check(finite_part, x[[0, 3, 4]], bounds)  # there is a loop program
    value, g = tg.value_and_grad(lambda x: finite_part(x, bounds))(x)
    assert value == finite_part(x, bounds)
    np.testing.assert_allclose(g, [9.0 * 0.25, 0.0, 0.0, 9.0 * 4.0, 0.0, 0.0])


@njit
def one_or_two(x, y, other, trips):
    """`b` is `a`, or another array: the layers are one, or differ."""
    a, b = x, x
    if other:
        b = y
    for _ in range(trips):
        for i in range(1, x.shape[0] - 1):
            b[i] = 0.7 * b[i] + 0.3 * a[i - 1] * a[i + 1] - 0.1 * a[i]
        a, b = b, a
    s = 0.0
    for i in range(x.shape[0]):
        s += a[i] * b[i] * (i + 1)
    return s


@njit
def three(x, y, z, trips):
    """The names of three arrays rotate."""
    for _ in range(trips):
        for i in range(1, x.shape[0] - 1):
            for j in range(x.shape[1]):
                z[i, j] = (
                    2.0 * y[i, j] - x[i, j] + 0.1 * y[i, j] * (y[i - 1, j] + y[i + 1, j] - 2.0 * y[i, j])
                )
        x, y, z = y, z, x
    return np.sum(x * y) + np.sum(z * z * z)


@pytest.mark.long
@pytest.mark.parametrize("trips", [0, 1, 4, 5, 9])
@pytest.mark.parametrize("case", ["one array", "two arrays", "three arrays"])
def test_names_that_rotate_or_stand_for_one_array(case, trips):
    r = np.random.default_rng(4)
    if case == "three arrays":
        f, args = (lambda *x: three(*x, trips)), tuple(r.standard_normal((3, 5, 4)))
        python = lambda *x: three.py_func(*x, trips)
    else:
        f, args = (lambda *x: one_or_two(*x, case[:3] == "two", trips)), tuple(r.standard_normal((2, 7)))
        python = lambda *x: one_or_two.py_func(*x, case[:3] == "two", trips)
    d = r.standard_normal(np.shape(args))
    inner = lambda *x: f(*[v.copy() for v in x])
    want = python(*[x + 1e-30j * t for x, t in zip(args, d, strict=True)])
    value, g = tg.value_and_grad(inner, argnums=tuple(range(len(args))))(*args)
    np.testing.assert_allclose(value, want.real, rtol=1e-13)
    np.testing.assert_allclose(np.sum(np.array(g) * d), want.imag / 1e-30, rtol=1e-12)
    np.testing.assert_allclose(tg.jvp(inner, args, tuple(d))[1], want.imag / 1e-30, rtol=1e-12)
    compiled = three if case == "three arrays" else one_or_two
    more = (trips,) if case == "three arrays" else (case[:3] == "two", trips)
    assert "layers" in tg.loops.source(compiled, *args, *more)  # it is a loop program
    first, hv = tg.grad(lambda x: inner(x, *args[1:])), tg.hvp(lambda x: inner(x, *args[1:]), args[0], d[0])
    h = 1e-4
    slopes = [
        w * (first(args[0] + k * h * d[0]) - first(args[0] - k * h * d[0])) for k, w in ((1, 8), (2, -1))
    ]
    np.testing.assert_allclose(hv, sum(slopes) / (12 * h), rtol=1e-7, atol=1e-7)


@njit
def backwards(x, first, step):
    s = 0.0
    for i in range(first, -1, step):
        s += i * x[i] ** 2
    return s


@njit
def far_places(x, trips, factor):
    s = 0.0
    for i in range(trips):
        s += x[i * 4611686018427387904]
        s += x[i * factor]
    return s


@njit
def mixed(x, y, n):
    s = np.float32(0.0)
    for i in range(x.shape[0]):
        s += x[i] * np.float32(n)
        s = np.float32(s * y[i])
    return s


@pytest.mark.parametrize("step", [-1, -2, -7])
def test_ranges_that_go_down(step):
    x = np.linspace(1.0, 2.0, 6)
    want = np.zeros(6)
    want[range(5, -1, step)] = [2.0 * i * x[i] for i in range(5, -1, step)]
    np.testing.assert_allclose(tg.grad(lambda x: backwards(x, 5, step))(x), want, rtol=1e-15)
    assert not tg.grad(lambda x: backwards(x, -1, step))(x).any()


@pytest.mark.parametrize("factor", [1, 2**62])
def test_an_index_that_overflows_between_the_ends_of_a_loop_is_found(factor):
    """The first and the last index are 0, modulo 2^64."""
    with pytest.raises(tg.errors.KernelError, match="out of bounds"):
        tg.grad(lambda x: far_places(x, 5, factor))(np.ones(5))


def test_single_and_double_precision_and_integers():
    x, y = np.array([0.5, 1.5, -0.7], np.float32), np.array([1.1, 0.3, 2.0])
    gx, gy = tg.grad(lambda x, y: mixed(x, y, 3), argnums=(0, 1))(x, y)
    assert (gx.dtype, gy.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(gx, 3 * np.cumprod(y[::-1])[::-1], rtol=1e-6)
    np.testing.assert_allclose(gy[2], 3 * (x[0] * y[0] * y[1] + x[1] * y[1] + x[2]), rtol=1e-6)
    with pytest.raises(tg.errors.TapegradError, match="type int, which has no derivative"):
        tg.grad(lambda n: mixed(x, y, n))(3)


@njit
def rational(x):
    """Products, quotients, roots and powers, carried from one trip to the next."""
    s, p = 0.0, x[0]
    for k in range(x.shape[0]):
        s = s * x[k] + 1.0 / (2.0 + x[k] * p)
        p = np.sqrt(1.5 + p * s) - x[k] ** 2.5
        if s > 0.2:
            p = p * x[0]
    return s * p


def test_derivatives_by_a_cotangent_that_is_zero():
    """The adjoint is linear in its cotangent, so its derivative there does not vanish with it."""
    x, v = np.array([0.7, 1.3, 0.9, 0.4]), np.array([0.3, -1.0, 0.5, 2.0])
    slope = np.array([np.imag(rational.py_func(x + 1e-30j * e)) * 1e30 for e in np.eye(4)])
    at = rational(x)

    def misfit(x):
        return (rational(x) - at) ** 2  # its cotangents are zero at x

    np.testing.assert_allclose(tg.grad(rational)(x), slope, rtol=1e-13)
    np.testing.assert_allclose(tg.jacobian(rational, mode="forward")(x), slope, rtol=1e-13)
    np.testing.assert_allclose(tg.linearize(rational, x)[1](v), slope @ v, rtol=1e-13)
    np.testing.assert_allclose(tg.hvp(misfit, x, v), 2 * slope * (slope @ v), rtol=1e-12)
    np.testing.assert_allclose(tg.hessian(misfit)(x), 2 * np.outer(slope, slope), rtol=1e-12)
    reverse = tg.grad(lambda x: np.sum(tg.grad(misfit)(x) * v))(x)
    np.testing.assert_allclose(reverse, 2 * slope * (slope @ v), rtol=1e-12)


@njit
def root_of_zero(x):
    s = 0.0
    for k in range(x.shape[0]):
        r = np.sqrt(x[k])
        s += r if x[k] > 0.0 else 0.0 * x[k]
    return s


def test_a_zero_cotangent_stays_zero_through_an_infinite_slope():
    x = np.array([0.0, 4.0, 0.0])
    np.testing.assert_array_equal(tg.grad(root_of_zero)(x), [0.0, 0.25, 0.0])
    np.testing.assert_array_equal(tg.hvp(root_of_zero, x, np.ones(3)), [0.0, -1 / 32, 0.0])
