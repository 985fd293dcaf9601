"""Calls of functions of Numba's with loops: orders of derivatives, batches, captured arrays, arguments that
share memory, kinds of numbers, bad input."""

from collections import namedtuple

import numpy as np
import pytest
from loop_functions import CASES, heat, nbody, prefix, wave
from numba import complex128, float64, guvectorize, njit, vectorize

import tapegrad as tg

R = np.random.default_rng(5)


def of_one(name):
    """The case as a function of its first argument."""
    f, args, more = CASES[name]
    return lambda x: f(x.copy(), *[a.copy() if hasattr(a, "copy") else a for a in args[1:]], *more), args[0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name",
    [
        "gauss_seidel",
        "thomas",
        "first_large",
        "leapfrog",
        *[pytest.param(n, marks=pytest.mark.long) for n in ("heat, odd", "expressions")],
    ],
)
def test_second_order(name):
    f, x = of_one(name)
    v = R.standard_normal(x.shape)
    h = 1e-4
    g = tg.grad(f)
    want = (
        sum(
            w * (g(x + k * h * v) - g(x - k * h * v))
            for k, w in enumerate((4 / 5, -1 / 5, 4 / 105, -1 / 280), 1)
        )
        / h
    )
    np.testing.assert_allclose(tg.hvp(f, x, v), want, rtol=1e-8, atol=1e-8)
    again = tg.grad(lambda x: (tg.grad(f)(x) * v).sum())(x)  # reverse over reverse
    np.testing.assert_allclose(again, want, rtol=1e-8, atol=1e-8)
    _, forward = tg.jvp(lambda x: tg.jvp(f, (x,), (v,))[1], (x,), (v,))
    np.testing.assert_allclose(forward, np.sum(v * want), rtol=1e-8, atol=1e-8)


def test_third_order():
    f, x = of_one("prefix")
    v = R.standard_normal(x.shape)
    H = lambda x: tg.hvp(f, x, v)
    h = 1e-4
    want = (8 * (H(x + h * v) - H(x - h * v)) - (H(x + 2 * h * v) - H(x - 2 * h * v))) / (12 * h)
    got = tg.jvp(H, (x,), (v,))[1]
    np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-7)


def test_batches():
    f, x = of_one("gauss_seidel")
    X = R.random((3, *x.shape)) + 0.5
    np.testing.assert_allclose(tg.vmap(f)(X), [f(x) for x in X], rtol=1e-13)
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(X), [tg.grad(f)(x) for x in X], rtol=1e-12)
    np.testing.assert_allclose(
        tg.grad(lambda X: tg.vmap(f)(X).sum())(X), [tg.grad(f)(x) for x in X], rtol=1e-12
    )


def test_jacobian():
    f, args, more = CASES["prefix"]

    def whole(x):
        y = x * 2.0
        prefix(x.copy(), y)
        return y

    x = args[0]
    forward, reverse = (tg.jacobian(whole, mode=m)(x) for m in ("forward", "reverse"))
    np.testing.assert_allclose(forward, reverse, rtol=1e-12)
    step = np.array([prefix_complex(x, k) for k in range(x.size)]).T
    np.testing.assert_allclose(forward, step, rtol=1e-12)


def prefix_complex(x, k):
    z = x.astype(complex)
    z[k] += 1e-30j
    y = z * 2.0
    prefix.py_func(z, y)
    return y.imag / 1e-30


def test_captured_buffers_are_written():
    buffer = np.ones((6, 5))

    def f(u):
        return heat(u.copy(), buffer, 0.05, 4)

    u = R.random((6, 5))
    want_buffer = np.ones((6, 5))
    want = heat(u.copy(), want_buffer, 0.05, 4)
    value, g = tg.value_and_grad(f)(u)
    np.testing.assert_array_equal(value, want)
    np.testing.assert_allclose(buffer, want_buffer, rtol=1e-15)
    assert type(buffer) is np.ndarray
    buffer[:] = 1.0
    again = tg.grad(f)(u)
    np.testing.assert_array_equal(g, again)
    z = u.astype(complex)
    z[2, 3] += 1e-30j
    want = heat.py_func(z.copy(), np.ones((6, 5), complex), 0.05, 4).imag / 1e-30
    np.testing.assert_allclose(g[2, 3], want, rtol=1e-12)


@njit
def two(x, y):
    """Its result depends on whether x and y are one array."""
    s = 0.0
    for k in range(1, x.shape[0]):
        x[k] = x[k - 1] * y[k] + y[k - 1]
        y[k - 1] = x[k] * 0.5
        s += x[k] * y[k - 1]
    return s


@pytest.mark.parametrize("how", ["one", "view", "shifted", "apart", "strided", "transposed"])
def test_arguments_that_share_memory(how):
    def arguments(z):
        if how == "one":
            return z, z
        if how == "view":
            return z, z[:]
        if how == "shifted":
            return z[:-1], z[1:]
        if how == "strided":
            return z[::2], z[1::2]
        if how == "transposed":
            y = z.reshape(2, 4).T.copy().T
            return y[:, 1], y[1]
        return z[:4], z[4:]

    def f(x):
        z = x * 1.0
        a, b = arguments(z)
        n = min(a.shape[0], b.shape[0])
        return two(a[:n], b[:n]) if how == "transposed" else two(a, b)

    x = R.random(8)
    g = tg.grad(f)(x)
    z = [x + 1e-30j * e for e in np.eye(8)]

    def python(z):
        a, b = arguments(z)
        n = min(a.shape[0], b.shape[0])
        return two.py_func(a[:n], b[:n]).imag / 1e-30

    np.testing.assert_allclose(g, [python(y) for y in z], rtol=1e-12)


def test_kinds_of_numbers():
    @njit
    def f(x, w, k, on):
        s = np.float32(0.0)
        for i in range(x.shape[0]):
            s += x[i] * x[i] * np.float32(w)
            if on:
                x[i] = w * k[i % k.shape[0]] + s
        return s + x[0]

    x = R.random(4).astype(np.float32)
    g = lambda x, w: f(x.copy(), w, np.array([1, 2], np.int32), True)
    gx, gw = tg.grad(g, argnums=(0, 1))(x, 0.7)
    assert gx.dtype == np.float32
    y = [f.py_func(x.astype(np.float64), 0.7 + h, np.array([1, 2]), True) for h in (1e-3, -1e-3)]
    assert abs(gw - (y[0] - y[1]) / 2e-3) < 1e-3
    np.testing.assert_allclose(gx[1:], 2 * 0.7 * x[1:], rtol=1e-5)
    with pytest.raises(TypeError):
        tg.grad(lambda k: f(x.copy(), 0.7, k, True))(np.array([1, 2]))


def test_non_contiguous_and_empty():
    f = lambda x: wave(x.copy(), np.zeros((5, 4)), np.ones((5, 4)), 0.1, 2)
    x = R.random((4, 5))
    np.testing.assert_allclose(tg.grad(f)(x.T), tg.grad(f)(np.ascontiguousarray(x.T)), rtol=1e-14)
    empty = lambda x: nbody(x.copy(), x.copy(), np.ones(0), 0.1, 3) + x.sum()
    assert tg.grad(empty)(np.zeros(0)).shape == (0,)


def test_read_only_arguments():
    @njit
    def f(x, y):
        for k in range(x.shape[0]):
            y[k] = x[k] ** 2
        return y[0]

    fixed = np.zeros(3)
    fixed.flags.writeable = False
    with pytest.raises((ValueError, TypeError)):
        tg.grad(lambda x: f(x, fixed))(np.ones(3))
    x = np.arange(1.0, 4.0)
    x.flags.writeable = False
    np.testing.assert_array_equal(tg.grad(lambda x: f(x, np.zeros(3)))(x), [2.0, 0.0, 0.0])


def test_out_of_bounds():
    @njit
    def f(x, n):
        s = 0.0
        for k in range(n):
            s += x[k] * x[k]
        return s

    assert tg.grad(lambda x: f(x, 3))(np.ones(3)).sum() == 6.0
    with pytest.raises(
        tg.errors.KernelError, match=r"f, line \d+ of .*test_loop_calls.py: an index is out of bounds"
    ):
        tg.grad(lambda x: f(x, 4))(np.ones(3))

    @njit
    def h(x, at):
        s = 0.0
        for k in range(at.shape[0]):
            if at[k] != 0:
                s += x[at[k]] ** 2
        return s

    assert tg.grad(lambda x: h(x, np.array([0, -1, 2])))(np.ones(3))[2] == 4.0
    with pytest.raises(tg.errors.KernelError, match="out of bounds"):
        tg.grad(lambda x: h(x, np.array([0, 2**40, 2])))(np.ones(3))


Pair = namedtuple("Pair", "a b")


@njit
def of_tuples(p, q):
    return p[0] * q[0][0] * p[1]


@njit
def loop_over_tuples(p, q):
    s = 0.0
    for k in range(3):
        s += k * p[0] * q[0][0] * p[1]
    return s


@njit
def of_names(p):
    s = 0.0
    for k in range(3):
        s += k * p.a[k] * p.b
    return s


def test_tracked_values_in_tuples_alone():
    x = np.array([3.0, 5.0, 2.0])
    want = np.array([x[1] * x[2], x[0] * x[2], x[0] * x[1]])
    for f, factor in ((of_tuples, 1.0), (loop_over_tuples, 3.0)):
        for call in (
            lambda x, f=f: f((x[0], x[1]), ((x[2],),)),
            lambda x, f=f: f(q=((x[2],), 1.0), p=(x[0], x[1])),
            lambda x, f=f: f(Pair(x[0], x[1]), ((x[2],),)),
        ):
            np.testing.assert_allclose(tg.grad(call)(x), factor * want, rtol=1e-14)
    named = tg.grad(lambda x: of_names(Pair(x * 1.0, x[1])))(x)
    np.testing.assert_allclose(named, [0.0, x[1] + 2 * x[2] + x[1], 2 * x[1]], rtol=1e-14)


def test_what_is_followed_instead():
    """Functions that have no loop program run as Python."""

    @njit
    def recursive(x, n):
        for _ in range(1):
            pass
        return x if n == 0 else recursive(x * x, n - 1)

    @njit
    def sorts(x):
        y = np.sort(x)
        s = 0.0
        for k in range(y.shape[0]):
            s += k * y[k]
        return s

    assert tg.grad(lambda x: recursive(x, 2))(1.5) == pytest.approx(4 * 1.5**3)
    np.testing.assert_array_equal(tg.grad(sorts)(np.array([3.0, 1.0, 2.0])), [2.0, 0.0, 1.0])


def test_prepared():
    f, x = of_one("thomas")
    p = tg.prepare(f, x)
    for y in (x, x + 0.1):
        np.testing.assert_allclose(p.grad(y), tg.grad(f)(y), rtol=1e-13)
        np.testing.assert_allclose(p.value(y), f(y), rtol=1e-13)


def test_a_zero_cotangent_stays_zero():
    @njit
    def f(x):
        s = 0.0
        for k in range(x.shape[0]):
            y = np.sqrt(x[k])
            s += y if x[k] > 0.0 else x[k]
        return s

    np.testing.assert_array_equal(tg.grad(f)(np.array([4.0, 0.0])), [0.25, 1.0])


@njit
def part_assigned(u, v):
    for _ in range(2):
        u[0:3] += v
    return u.sum()


@njit
def part_multiplied(u, v):
    s = 0.0
    for _ in range(2):
        s += (u * v).sum()
    return s


def test_lengths_that_differ():
    """NumPy refuses them; an axis of length 1 is repeated."""
    for f in (lambda x: part_assigned(np.zeros(5), x), lambda x: part_multiplied(x[:3], x)):
        with pytest.raises(tg.errors.KernelError, match="lengths of arrays differ"):
            tg.grad(f)(np.ones(5))
    np.testing.assert_array_equal(tg.grad(lambda x: part_assigned(np.zeros(5), x))(np.ones(1)), [6.0])
    np.testing.assert_array_equal(tg.grad(lambda x: part_multiplied(x[:1], x))(np.ones(3)), [8.0, 2.0, 2.0])


@njit
def squared(x):
    return x * x


@njit
def applied(f, x):
    s = 0.0
    for k in range(x.shape[0]):
        s += f(x[k])
    return s


def test_compiled_functions_as_arguments():
    x, fixed = np.arange(3.0), np.array([1.0, 2.0])
    np.testing.assert_array_equal(tg.grad(lambda x: applied(squared, x))(x), 2 * x)
    np.testing.assert_array_equal(tg.grad(lambda x: applied(squared, fixed) * x.sum())(x), [5.0] * 3)


@njit
def residuals(x, y):
    s = 0.0
    for k in range(x.shape[0]):
        d = (x[k] - y[k]) / y[k]
        e = np.sqrt(x[k] * y[k]) - y[k]
        s += d * d + e * e * np.log(x[k]) + (x[k] - y[k]) ** 2 * x[k] ** 3 / y[k]
    return s


@njit
def unused(x):
    s = 0.0
    for k in range(x.shape[0]):
        y = np.log(x[k]) / x[k] + np.sqrt(x[k]) + np.exp(1.0 / x[k])
        s += y if x[k] > 0.0 else x[k] ** 2
    return s


def test_second_derivatives_where_a_cotangent_is_zero():
    """A cotangent that is zero has derivatives that are not, unless its value was not used."""
    x, y = np.array([0.5, 1.3, 0.7]), np.array([0.5, 1.3, 0.8])
    d = (x - y) / y  # the derivatives by x twice, by hand
    root, log = np.sqrt(y / x), np.log(x)
    e = np.sqrt(x * y) - y
    want = 2 / y**2 + root**2 / 2 * log - e * root / (2 * x) * log + 2 * e * root / x - e**2 / x**2
    want += (2 * x**3 + 12 * (x - y) * x**2 + 6 * (x - y) ** 2 * x) / y
    f = lambda x: residuals(x, y)
    v = np.ones(3)
    over = lambda x: tg.jvp(lambda x: tg.jvp(f, (x,), (v,))[1], (x,), (v,))[1]
    np.testing.assert_allclose(tg.hvp(f, x, v), want, rtol=1e-13)
    np.testing.assert_allclose(tg.grad(lambda x: tg.grad(f)(x).sum())(x), want, rtol=1e-13)
    np.testing.assert_allclose(over(x), want.sum(), rtol=1e-13)
    assert d[0] == e[1] == 0.0
    z, e1 = np.array([2.0, 0.0]), np.array([0.0, 1.0])
    np.testing.assert_array_equal(tg.hvp(unused, z, e1), [0.0, 2.0])
    np.testing.assert_array_equal(tg.grad(lambda x: tg.grad(unused)(x)[1])(z), [0.0, 2.0])


def test_results_that_are_one_value():
    @njit
    def f(x, y):
        s = 0.0
        for k in range(x.shape[0]):
            s += x[k] ** 2
            y[k] = s
        return s, s, 3, y

    def g(x):
        a, b, n, y = f(x, np.zeros(3))
        return a + 10.0 * b + n * y[1]

    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(tg.grad(g)(x), 22.0 * x + 6.0 * x * [1, 1, 0])
    np.testing.assert_allclose(tg.jvp(g, (x,), (np.ones(3),))[1], (22.0 * x + 6.0 * x * [1, 1, 0]).sum())


def test_global_arrays_that_change():
    """Numba freezes them; one that was changed since is read as it is."""
    table = np.array([1.0, 2.0])

    @njit
    def f(x):
        s = 0.0
        for k in range(2):
            s += table[k] * x * x
        return s

    assert tg.grad(f)(1.0) == 6.0
    table[0] = 5.0
    assert tg.grad(f)(1.0) == 14.0


@vectorize
def bent(a, b):
    if a > 0:
        return a * b + np.tanh(a)
    return a * a * b


@vectorize
def checked(a, b):
    if a < -5:
        raise ValueError("too small")
    return bent(a, b) * a


def test_what_vectorize_made_and_has_no_loop_program_is_followed():
    x = np.array([[0.3, -0.7, 1.1]])

    def f(x):
        return checked(x, np.array([[1.0], [2.0]]) * x[0, 0]).sum()

    def written(x):
        b = np.array([[1.0], [2.0]]) * x[0, 0]
        return np.where(x > 0, x * b + np.tanh(x), x * x * b) @ x[0] @ np.ones(2)

    np.testing.assert_allclose(tg.value_and_grad(f)(x)[0], f(x), rtol=1e-14)
    np.testing.assert_allclose(tg.grad(f)(x), tg.grad(written)(x), rtol=1e-14)
    np.testing.assert_allclose(tg.hvp(f, x, x + 1), tg.hvp(written, x, x + 1), rtol=1e-13)
    assert tg.grad(lambda a: checked(a, 2.0))(1.5) == tg.grad(lambda a: a * a * 2 + a * np.tanh(a))(1.5)
    with pytest.raises(ValueError, match="too small"):
        tg.grad(f)(x - 9)


@guvectorize([(float64[:], float64[:], float64[:])], "(n),()->(n)")
def summed_squares(x, a, y):  # the number is an array of one element
    for i in range(x.shape[0]):
        y[i] = a[0] * x[i] ** 2 + (y[i - 1] if i > 0 else 0.0)


@guvectorize("(n),(n)->()")
def distance(x, y, d):  # compiled when it is called, with the array for its result
    d[0] = np.sqrt((x[0] - y[0]) ** 2 + (x[1] - y[1]) ** 2)


@guvectorize([(complex128[:, :], complex128[:], complex128[:], complex128[:])], "(n,m),(m)->(n),(m)")
def two_results(a, x, y, z):  # complex numbers have no loop program: it is followed
    for i in range(a.shape[0]):
        y[i] = 0
        for j in range(a.shape[1]):
            y[i] += a[i, j] * x[j]
    for j in range(a.shape[1]):
        z[j] = x[j] * x[j]


def of_squares(x):
    return np.sum(np.sin(summed_squares(x, x[:, 0]))) + summed_squares(x[0], 2)[1] ** 2


def of_squares_as_written(x):
    return np.sum(np.sin(np.cumsum(x**2, axis=1) * x[:, :1])) + 4 * np.sum(x[0] ** 2) ** 2


def of_distances(x):
    d = np.empty(3)
    distance(x, x[::-1] ** 2, d)
    return np.sum(d**3)


def of_distances_as_written(x):
    return np.sum(np.sum((x - x[::-1] ** 2) ** 2, axis=1) ** 1.5)


STACK = np.random.default_rng(1).normal(size=(4, 1, 5, 2))


def of_two_results(x):
    y, z = two_results(STACK, x + 1j)
    return np.sum(np.abs(y) ** 2) + np.sum(z.real * z.imag)


def of_two_results_as_written(x):
    y, z = np.einsum("aknm,bm->abn", STACK, x + 1j), (x + 1j) ** 2
    return np.sum(np.abs(y) ** 2) + len(STACK) * np.sum(z.real * z.imag)


@pytest.mark.parametrize(
    ("f", "written"),
    [
        (of_squares, of_squares_as_written),
        (of_distances, of_distances_as_written),
        (of_two_results, of_two_results_as_written),
    ],
)
def test_what_guvectorize_made_is_a_loop_over_its_cores(f, written):
    x = np.random.default_rng(0).normal(size=(3, 2))
    np.testing.assert_allclose(tg.value_and_grad(f)(x)[0], f(x), rtol=1e-13)
    np.testing.assert_allclose(tg.grad(f)(x), tg.grad(written)(x), rtol=1e-12)
    np.testing.assert_allclose(tg.jvp(f, (x,), (x + 1,))[1], np.sum(tg.grad(f)(x) * (x + 1)), rtol=1e-12)
    np.testing.assert_allclose(tg.hvp(f, x, x + 1), tg.hvp(written, x, x + 1), rtol=1e-11)
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(np.stack([x, 2 * x]))[1], tg.grad(f)(2 * x), rtol=1e-12)
    np.testing.assert_allclose(tg.prepare(f, x).grad(x + 0.1), tg.grad(f)(x + 0.1), rtol=1e-12)


def test_cores_that_do_not_fit_raise():
    x = np.ones((3, 2))
    with pytest.raises(ValueError, match="does not fit the signature"):
        tg.grad(lambda x: two_results(STACK, x[:, :1]))(x)
    with pytest.raises(ValueError, match="mismatch"):
        tg.grad(lambda x: np.sum(summed_squares(x, x[0])))(x)


def test_what_vectorize_made_is_a_loop_over_elements():
    x, v = np.array([0.3, -0.7, 1.1]), np.array([0.2, 0.5, -1.0])

    def f(x):
        return bent(x, np.array([[1.0], [2.0]]) * x[0]).sum()

    step = 1e-6
    np.testing.assert_allclose(
        tg.grad(f)(x), [(f(x + step * e) - f(x - step * e)) / (2 * step) for e in np.eye(3)], atol=1e-9
    )
    np.testing.assert_allclose(
        tg.hvp(f, x, v), (tg.grad(f)(x + step * v) - tg.grad(f)(x - step * v)) / (2 * step), atol=1e-8
    )
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(np.stack([x, 2 * x]))[1], tg.grad(f)(2 * x), rtol=1e-14)
    assert tg.grad(lambda x: bent(x, x).sum())(x.astype(np.float32)).dtype == np.float32
    np.testing.assert_array_equal(
        tg.grad(lambda x: bent(x, x, out=np.zeros(3)).sum())(x), tg.grad(lambda x: bent(x, x).sum())(x)
    )
    with pytest.raises(tg.errors.ArgumentError, match="takes its 2 arguments and out= alone"):
        tg.grad(lambda x: bent(x, x, where=x > 0).sum())(x)
