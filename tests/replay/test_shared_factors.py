"""Systems of equations with one matrix: a replay factors it once, for its transpose too."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.ops.linalg.factorizations import FACTORS, SOLUTION, SYSTEM

N = 7
SEED = np.random.default_rng(0)
NOISE, B, COLUMNS = SEED.normal(size=(N, N)), SEED.normal(size=N), SEED.normal(size=(N, 3))
X = SEED.random(N) + 0.5


def matrix(x):
    return NOISE[::-1] + x[:, None] * np.sin(x)  # pivots are needed


def steps(x, trips=12):
    a, v = matrix(x), B
    for _ in range(trips):
        v = np.tanh(np.linalg.solve(a, x * v))
    return v @ x


def of_columns(x):
    a = matrix(x)
    return (np.linalg.solve(a.T, np.linalg.solve(a, COLUMNS) * x[:, None]) ** 2).sum()


def written(x):
    a = matrix(x)
    v = np.linalg.solve(a, B)
    a[1, 2] = v[0]
    return np.linalg.solve(a, v) @ np.linalg.solve(a.T, x)


def apart(x, trips=4):
    """An operation of Python stands between the factors and those who read them."""
    a, v = matrix(x), B
    for _ in range(trips):
        v = np.linalg.solve(a, x * v)
        v = np.tanh(v + np.partition(v, 2)[2]) * x + 0.1 * x / (1.0 + v * v) - 0.2 * v
    return v @ x


def operations(p, method="value_and_grad"):
    return [i.prim for _, i in p.forms[method].programs[0].program.code]


@pytest.mark.parametrize("compile", [True, False, "auto"])
@pytest.mark.parametrize("f", [steps, of_columns, written, apart])
def test_values_and_derivatives(f, compile):
    p = tg.prepare(f, X, compile=compile)
    for k in range(4):
        x = X + 0.01 * k
        value, gradient = p.value_and_grad(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-11)
        np.testing.assert_allclose((gradient * B).sum(), f(x + 1e-30j * B).imag / 1e-30, rtol=1e-9)
    assert SYSTEM not in operations(p)
    assert operations(p).count(FACTORS) == 1 + (f is written)
    assert ("of Python, about" in p.report()) == (f is apart)


def test_second_derivatives():
    p = tg.prepare(steps, X)
    for _ in range(3):
        product = p.hvp(X, B)
    gradient = lambda x: tg.grad(steps)(x)
    by_steps = (gradient(X + 1e-5 * B) - gradient(X - 1e-5 * B)) / 2e-5
    np.testing.assert_allclose(product, by_steps, rtol=1e-6, atol=1e-6 * abs(by_steps).max())


def test_one_system_is_solved_as_it_is():
    p = tg.prepare(lambda x: np.linalg.solve(matrix(x), B), X)
    # SciPy's LAPACK solves in place of NumPy's: on some processors they round differently
    np.testing.assert_allclose(p.value(X), np.linalg.solve(matrix(X), B), rtol=1e-12)
    assert SOLUTION not in operations(p, "value")


@pytest.mark.parametrize("calls", [1, 4])
def test_a_singular_matrix_raises_as_plainly(calls):
    def f(x):
        a = np.eye(N) * x
        return np.linalg.solve(a, np.linalg.solve(a, B)).sum()

    p = tg.prepare(f, X)
    for _ in range(calls):
        p.value_and_grad(X)
    with pytest.raises(np.linalg.LinAlgError, match="ingular"):
        p.value_and_grad(np.where(X > 1, 0.0, X))
    np.testing.assert_allclose(p.value_and_grad(X)[1], -2 * B / X**3, rtol=1e-13)


def test_a_captured_matrix_is_read_anew():
    a = matrix(X)
    p = tg.prepare(lambda x: np.linalg.solve(a, np.linalg.solve(a, x)).sum(), X)
    for k in range(4):
        a += 0.1 * k * np.eye(N)
        want = np.ones(N) @ np.linalg.inv(a) @ np.linalg.inv(a)
        np.testing.assert_allclose(p.grad(X), want, rtol=1e-11)
