"""Loops over the members of arrays, by `enumerate` and `zip`, and products and new arrays in loops, against
differences of the compiled function."""

import numba
import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import KernelError


@numba.njit
def members(x):
    s = 0.0
    for v in x:
        s += v * v * v
    return s


@numba.njit
def numbered(x):
    s = 0.0
    for i, v in enumerate(x):
        s += (i + 1) * np.sin(v)
    for i, v in enumerate(x[::1], 3):
        s += i * v * v
    return s


@numba.njit
def pairs_of_other_lengths(x):
    s = 0.0
    for a, b in zip(x, x[2:]):  # noqa: B905
        s += a * b * b
    for a, b in zip(x[4:], x):  # noqa: B905
        s += np.exp(a) * b
    return s


@numba.njit
def with_ranges(x):
    s = 0.0
    for k, a, i in zip(range(10, -20, -3), x, range(3)):  # noqa: B905
        s += k * a * x[i]
    for k, (a, b) in enumerate(zip(x, x[1:])):  # noqa: B905
        s += k * a / (1.0 + b * b)
    return s


@numba.njit
def rows(x):
    table = np.empty((3, 2))
    for i in range(3):
        for j in range(2):
            table[i, j] = x[2 * i + j] * (1.0 + i)
    s = 0.0
    for row in table:
        t = 0.0
        for v in row:
            t += v
        s += t * t
    for k, row in enumerate(table):
        row[0] = k * row[1]
    return s + table.sum() * table[2, 0]


@numba.njit
def written_while_read(x):
    y = x.copy()
    for i, v in enumerate(y):
        if i + 1 < len(y):
            y[i + 1] += 0.5 * v * v
        y[i] = v * x[0]
    return y.sum()


@numba.njit
def of_nothing(x):
    s = x[0] * x[1]
    for v in x[3:3]:
        s += v
    for i, v in enumerate(x[:0]):
        s *= i * v
    for a, b in zip(x, x[:0]):  # noqa: B905
        s += a * b
    return s


@numba.njit
def in_a_nest(x):
    s = 0.0
    for i in range(len(x)):
        for j, v in enumerate(x):
            if j > i:
                continue
            s += v * x[i] / (1.0 + j)
    return s


@numba.njit
def products(x):
    A, B = np.full((3, 2), 0.5), np.full_like(x, fill_value=2.0)
    for i in range(6):
        A[i // 2, i % 2] += x[i] * B[i]
    s = 0.0
    for i in range(3):
        s += np.dot(A[i], x[2 * i : 2 * i + 2]) + A[:, 0].copy() @ x[i : i + 3]
    y = A @ x[:2]
    for v in y.dot(A):
        s += v * v
    for row in A @ A[:2].copy():
        s += row[0] * row[1]
    return s


@numba.njit
def rounded(x):
    s = 0.0
    for v in x:
        s += v * round(2.0 * v) + x[int(round(abs(v))) % 6]
    return s


FUNCTIONS = (
    products,
    rounded,
    members,
    numbered,
    pairs_of_other_lengths,
    with_ranges,
    rows,
    written_while_read,
    of_nothing,
    in_a_nest,
)
X = np.random.default_rng(0).normal(size=6)


def differences(f, x, h=1e-6):
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(x.size)])


@pytest.mark.one_in(7)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_derivatives(f):
    assert "for" in tg.loops.source(f, X)  # a loop program
    value, slope = tg.value_and_grad(f)(X)
    np.testing.assert_allclose(value, f(X), rtol=1e-14)
    np.testing.assert_allclose(slope, differences(f, X), rtol=1e-6, atol=1e-8)
    v = X[::-1].copy()
    np.testing.assert_allclose(tg.jvp(f, (X,), (v,))[1], slope @ v, rtol=1e-12)
    curved = differences(lambda x: tg.grad(f)(x) @ v, X, 1e-5)
    np.testing.assert_allclose(tg.hvp(f, X, v), curved, rtol=1e-5, atol=1e-7)
    stack = np.stack([X, 2.0 * X, X - 1.0])
    np.testing.assert_allclose(tg.vmap(f)(stack), [f(x) for x in stack], rtol=1e-13)


def test_a_loop_over_an_array_that_is_left_early_is_followed():
    @numba.njit
    def f(x):
        s = 0.0
        for v in x:
            if v > 100.0:
                break
            s += v * v
        return s

    np.testing.assert_allclose(tg.grad(f)(X), 2 * X)
    with pytest.raises(KernelError, match="range\\(len"):
        tg.loops.source(f, X)


def test_other_objects_are_named():
    @numba.njit
    def f(x):
        s = 0.0
        for v in (1.0, x[0], x[1]):
            s += v * v
        return s

    np.testing.assert_allclose(tg.grad(f)(X)[:2], 2 * X[:2])
    with pytest.raises(KernelError, match="enumerate or zip"):
        tg.loops.source(f, X)


def test_vectors_of_other_lengths_have_no_product():
    @numba.njit
    def f(x, y):
        s = 0.0
        for v in x:
            s += v * np.dot(x, y)
        return s

    assert "for" in tg.loops.source(f, X, X)
    for y in (np.ones(5), np.ones(7)):
        with pytest.raises(KernelError, match="out of bounds|index"):
            tg.grad(f)(X, y)
