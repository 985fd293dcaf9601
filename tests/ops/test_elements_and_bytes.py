"""Functions of elements (`numpy.frompyfunc`) with their methods, and arrays seen by their bytes."""

import numpy as np
import pytest

import tapegrad as tg

X = np.array([0.3, -0.7, 1.1, 2.0])
Y = np.arange(8.0).reshape(4, 2) ** 2 / 50
mixed = np.frompyfunc(lambda a, b: a + a * b * b, 2, 1)
product = np.frompyfunc(lambda a, b: a * b, 2, 1)


def table(x):
    return np.stack([x, x**2, np.sin(x)])


CALLS = {
    "reduce": lambda x: mixed.reduce(x),
    "reduce along an axis": lambda x: np.sum(product.reduce(table(x), axis=1)),
    "keepdims": lambda x: np.sum(product.reduce(table(x), axis=0, keepdims=True)),
    "initial": lambda x: product.reduce(x, initial=3.0),
    "accumulate": lambda x: np.sum(mixed.accumulate(x)),
    "reduceat": lambda x: np.sum(mixed.reduceat(x, [0, 2])),
    "made inside": lambda x: np.frompyfunc(lambda a, b: np.sin(a) * b, 2, 1).reduce(x),
    "an array of floats from it": lambda x: np.frompyfunc(lambda a: a * a * a, 1, 1)(x).astype(float).std(),
    "integers.dot": lambda x: np.sum(np.arange(8).reshape(2, 4).dot(x) ** 2),
    "integers.dot of a matrix": lambda x: np.sum(np.arange(4).dot(np.outer(x, x)) ** 2),
    "integers.dot of a list": lambda x: np.arange(4).dot(list(x)) ** 2,
    "functions of integers.dot": lambda x: np.exp(
        np.linalg.det(np.arange(8).reshape(2, 4).dot(np.outer(x, x)[:, :2] + Y))
    ),
    "an integer.dot": lambda x: np.sum(np.array(3).dot(x) ** 2),
    "floats.dot": lambda x: np.arange(4).astype(float).dot(x) ** 2,
    "integers.dot of arrays in a list": lambda x: np.sum(np.arange(4).reshape(2, 2).dot([x, x**2]).T[1] ** 2),
    "integers @ a list": lambda x: (np.arange(4) @ list(x)) ** 2,
    "integers @ a list of arrays": lambda x: np.sum((np.arange(2) @ [x, x**2]) ** 2),
    "a list of numbers * integers": lambda x: np.sum((list(x) * np.arange(4)) ** 2),
    "integers.choose": lambda x: np.sum(np.array([0, 1, 0, 1]).choose([x, x**2]) ** 2),
    "integers.searchsorted": lambda x: np.sum((9 * np.arange(-1, 3)).searchsorted(x) * x**2),
    "getfield": lambda x: np.sum(x.getfield(np.float64) ** 3),
    "getfield of complex numbers": lambda x: np.sum(
        (x + 1j * x**2).getfield(np.float64, 8) * (x**3 + 2j).getfield(float)
    ),
}


@pytest.mark.parametrize("f", CALLS.values(), ids=CALLS)
def test_derivatives(f):
    h = 1e-5
    E = np.eye(4)
    central = np.array([(f(X + h * e) - f(X - h * e)) / (2 * h) for e in E], dtype=float)
    g = tg.grad(f)
    np.testing.assert_allclose(g(X), central, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(tg.jvp(f, (X,), (E[1],))[1], central[1], rtol=1e-8, atol=1e-9)
    second = np.array([(g(X + h * e) - g(X - h * e)) / (2 * h) for e in E])
    np.testing.assert_allclose(tg.hessian(f)(X), second, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(tg.prepare(f, X).grad(2 * X), g(2 * X), rtol=1e-12)
    both = tg.vmap(f)(np.stack([X, 2 * X]))
    np.testing.assert_allclose(np.asarray(both, float), [f(X), f(2 * X)], rtol=1e-12)


@pytest.mark.parametrize(
    "f, words",
    [
        (lambda x: x.getfield(np.float32).sum(), "x.real, x.imag, or x.astype"),
        (lambda x: x.byteswap().byteswap().sum(), "leave it out"),
    ],
)
def test_what_is_refused(f, words):
    for run in (tg.grad(f), lambda x: tg.jvp(f, (x,), (x,)), lambda x: tg.prepare(f, x).grad(x)):
        with pytest.raises(tg.errors.TapegradError, match=words):
            run(X)


def test_constants_are_plain():
    f = lambda x: np.sum(x) + np.arange(3.0).getfield(np.float32)[0] + np.arange(2.0).byteswap()[0]
    np.testing.assert_array_equal(tg.grad(f)(X), np.ones(4))
