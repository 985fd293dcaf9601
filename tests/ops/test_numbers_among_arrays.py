"""Numbers that meet arrays, become arrays and are read from arrays: short ways that sum at once, against the
complex step."""

import warnings

import numpy as np
import pytest

import tapegrad as tg


def complex_step(f, x):
    """The gradient of a function that takes complex numbers."""
    x = np.asarray(x, float)
    out = np.empty_like(x)
    for i in np.ndindex(x.shape):
        z = x.astype(complex)
        z[i] += 1e-30j
        out[i] = f(z).imag / 1e-30
    return out


def agree(f, x, tolerance=1e-13):
    np.testing.assert_allclose(tg.grad(f)(x), complex_step(f, x), rtol=tolerance, atol=tolerance)


X = np.array([0.7, -1.3, 2.1, 0.4])
W = np.random.default_rng(5).standard_normal((2, 3))


@pytest.mark.parametrize("size", [1, 2, 127, 128, 129])
@pytest.mark.parametrize(
    "f",
    [
        lambda a, v: a * v, lambda a, v: v * a, lambda a, v: v / a, lambda a, v: a / v,
        lambda a, v: a + v, lambda a, v: v + a, lambda a, v: a - v, lambda a, v: v - a, lambda a, v: v**a,
    ],
)  # fmt: skip
def test_number_and_array(f, size):
    v = np.random.default_rng(size).uniform(0.5, 2.0, size)
    for shape in ((size,), (1, size)):
        agree(lambda x, shape=shape: np.sum(np.sin(f(x[0], v.reshape(shape) * x[2]))), X)
        agree(lambda x, shape=shape: np.sum(f(x[0], v.reshape(shape)).T ** 2), X)


def test_number_and_array_in_second_order():
    def f(x):
        return np.sum(np.sin(x[0] * W) / x[1] + (x[2] - W) * (W + x[3])) * x[0]

    h = tg.hessian(f)(X)
    np.testing.assert_allclose(
        h, [complex_step(lambda z, i=i: sum_of(z)[i], X) for i in range(4)], rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(tg.jvp(tg.grad(f), (X,), (X,))[1], h @ X, rtol=1e-12)


def sum_of(x):
    """The gradient of f above, by hand."""
    s, a = np.sin(x[0] * W), x[0] * W
    whole = np.sum(s / x[1] + (x[2] - W) * (W + x[3]))
    return [
        np.sum(np.cos(a) * W / x[1]) * x[0] + whole,
        -np.sum(s) / x[1] ** 2 * x[0],
        np.sum(W + x[3]) * x[0],
        np.sum(x[2] - W) * x[0],
    ]


def test_a_zero_cotangent_stays_zero_beside_an_infinite_operand():
    """As an array's does: 0 times inf is what the sum at once would take."""
    v = np.array([1.0, np.inf])
    keep = np.array([1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert tg.grad(lambda a: np.sum(np.where(keep > 0, a * v, 0.0)))(np.float64(2.0)) == 1.0
        assert tg.grad(lambda a: np.sum(np.where(keep > 0, v / a, 0.0)))(np.float64(2.0)) == -0.25
        assert (
            tg.grad(lambda a: np.sum(np.where(keep > 0, 1.0 / (np.ones(2) * a), 0.0)))(np.float64(2.0))
            == -0.25
        )
        assert tg.grad(lambda a: np.sum(np.where(keep > 0, np.ones(2) / a, 0.0)))(np.float64(2.0)) == -0.25


@pytest.mark.parametrize(
    "f",
    [
        lambda x: [x[0], x[1] * x[2], x[0]],
        lambda x: [[x[0], 2.0], [x[3] * x[0], -x[1]]],
        lambda x: [(x[0], x[1]), (x[0], 1.5)],
        lambda x: ([x[0], np.float64(0.5), x[2] / x[1]],),
        lambda x: [[[x[0]], [x[1]]], [[x[2]], [x[3]]]],
        lambda x: [[x[0]], [3]],
        lambda x: [x[:2], x[2:]],
        lambda x: [[x[0], x[1]], x[2:]],
    ],
)
def test_lists_of_numbers(f):
    def g(x):
        return np.sum(np.sin(np.array(f(x))) * 1.5) + np.sum(np.array(f(x)) ** 2 * x[0])

    agree(g, X)
    h = tg.hessian(g)(X)
    np.testing.assert_allclose(h, h.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(h @ X, tg.hvp(g, X, X), rtol=1e-12)
    np.testing.assert_allclose(tg.jvp(g, (X,), (X,))[1], tg.grad(g)(X) @ X, rtol=1e-12)
    np.testing.assert_allclose(
        tg.jacobian(lambda x: np.array(f(x)).ravel())(X).sum(0),
        complex_step(lambda z: np.sum(np.array(f(z))), X),
    )
    assert np.array_equal(tg.value_and_grad(lambda x: np.sum(np.array(f(x))))(X)[0], np.sum(np.array(f(X))))


def test_lists_of_numbers_of_several_levels():
    def inner(a, x):
        return np.sum(np.array([[a, x[0]], [1.0, a * x[1]]]) ** 3)

    def f(x):
        return tg.grad(inner)(x[2], x)  # 3 a^2 + 3 a^2 x1^3

    agree_with = np.array([0.0, 9 * X[2] ** 2 * X[1] ** 2, 6 * X[2] * (1 + X[1] ** 3), 0.0])
    np.testing.assert_allclose(tg.grad(f)(X), agree_with, rtol=1e-13)


def test_rows_of_unequal_length_raise_as_numpy_does():
    with pytest.raises(ValueError):
        tg.grad(lambda x: np.sum(np.array([[x[0], x[1]], [x[2]]])))(X)


@pytest.mark.parametrize("order", ["C", "F"])
def test_elements_of_a_buffer(order):
    """Read again and again, before and after writes, in a cotangent that other operations have a part in."""

    def f(x):
        b = np.zeros((2, 2), dtype=x.dtype, order=order)
        b[0, 0], b[1, 0] = x[0], x[1]
        first = b[0, 0] * b[1, 0] + b[0, 0]
        b[0, 1] = first * b[0, 0]
        c = b.T * 2.0
        return first * b[0, 1] + np.sum(c * c) + c[1, 0] * c[0, 1] + b[-1, -2] * x[-1] + b.T[1, 0]

    agree(f, X)
    h = tg.hessian(f)(X)
    step = 1e-5
    by_differences = np.array(
        [(complex_step(f, X + step * e) - complex_step(f, X - step * e)) / (2 * step) for e in np.eye(4)]
    )
    np.testing.assert_allclose(h, by_differences, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(tg.hvp(f, X, X), h @ X, rtol=1e-12)
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(tg.grad(f)(x) * X))(X), h @ X, rtol=1e-12)
    np.testing.assert_allclose(
        tg.jvp(lambda x: tg.jvp(f, (x,), (X,))[1], (X,), (X,))[1], X @ h @ X, rtol=1e-12
    )
    np.testing.assert_allclose(tg.jvp(f, (X,), (X,))[1], tg.grad(f)(X) @ X, rtol=1e-13)


def test_elements_in_third_order():
    """A tape over a dual over a tape: elements of each, lists of them, and one that only one of the three
    watches."""

    def f(x):
        a = np.array([[x[0], x[1] * x[0]], [x[2], 1.0]])
        return a[0, 1] * a[1, 0] * a[0, 0] + np.sum(np.array([a[1, 0], a[0, 0]]) ** 3) + x[3] * a[1, 1]

    def along(x, v):
        return tg.grad(lambda z: tg.jvp(lambda y: np.sum(tg.grad(f)(y) * v), (z,), (v,))[1])(x)

    v = np.array([0.3, -0.2, 0.5, 1.0])
    step = 1e-4

    def twice(x):  # v'H(x)v by hand: f = x0^2 x1 x2 + x2^3 + x0^3 + x3
        h = np.zeros((4, 4), dtype=x.dtype)
        h[0, 0], h[0, 1], h[0, 2] = 2 * x[1] * x[2] + 6 * x[0], 2 * x[0] * x[2], 2 * x[0] * x[1]
        h[1, 2], h[2, 2] = x[0] ** 2, 6 * x[2]
        h = h + np.triu(h, 1).T
        return v @ h @ v

    np.testing.assert_allclose(along(X, v), complex_step(twice, X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        (twice(X + step * v) - twice(X - step * v)) / (2 * step), along(X, v) @ v, rtol=1e-6
    )


def test_a_row_sees_what_is_written_after_it_was_taken():
    data = np.arange(6.0).reshape(3, 2)

    def f(x):
        row = data[1]
        before = row[0] * x[0]
        data[1, 0] = x[1]
        data[1] *= 2.0
        return before + row[0] * x[2] + data[1, 1]

    value, gradient = tg.value_and_grad(f)(X)
    assert value == 2.0 * X[0] + 2 * X[1] * X[2] + 6.0
    np.testing.assert_allclose(gradient, [2.0, 2 * X[2], 2 * X[1], 0.0])
    np.testing.assert_array_equal(data, [[0.0, 1.0], [2 * X[1], 6.0], [4.0, 5.0]])


@pytest.mark.parametrize(
    "stack",
    [
        np.stack, lambda xs: np.stack(xs, -1), lambda xs: np.stack(tuple(xs)), np.array,
        lambda xs: np.array([xs, xs[::-1]])[0],
        lambda xs: np.array(xs, copy=True, order="K"),
    ],
)  # fmt: skip
def test_numbers_stacked(stack):
    """Elements, results, plain numbers and arrays without axes, to second order and in a batch."""

    def f(x):
        v = stack([x[0] * x[1], x[2], 2.5, np.sin(x[3]), x[2]])
        return (v**3).sum() * v[3]

    agree(f, X)
    H = np.array([(complex_step(f, X + e) - complex_step(f, X - e)) / 2e-5 for e in np.eye(4) * 1e-5])
    np.testing.assert_allclose(tg.hessian(f)(X), H, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(tg.hvp(f, X, X), H @ X, rtol=1e-6)
    np.testing.assert_allclose(
        tg.vmap(tg.grad(f))(np.stack([X, 2 * X])), [complex_step(f, X), complex_step(f, 2 * X)], rtol=1e-12
    )


def test_stacks_of_numbers_keep_their_errors():
    with pytest.raises(np.exceptions.AxisError):
        tg.grad(lambda x: np.stack([x[0], x[1]], 1).sum())(X)
    with pytest.raises(tg.errors.ShapeError):
        tg.grad(lambda x: np.stack([x[0], x]).sum())(X)
    assert tg.grad(lambda x: np.stack([x[0], 1.0]).sum())(np.float32([1, 2])).dtype == np.float32
