"""Factorisations that kernels and the interpreter share, on plain stacks of matrices, beside NumPy's."""

import numpy as np
import pytest

from tapegrad.kernels.trace import small_matrices as small


def stack(n, *last):
    return np.random.default_rng(n).normal(size=(n, n, *last))


def first(x):
    """The axes of the matrices come first."""
    return np.moveaxis(x, (-2, -1), (0, 1))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_elimination(n):
    a, b = stack(n, 3), np.random.default_rng(1).normal(size=(n, 2, 3))
    a[0, 0] = 0.0 if n > 1 else 2.0  # needs another pivot
    last = np.moveaxis(a, -1, 0)
    found = small.eliminated(a)
    np.testing.assert_allclose(found.determinant(), np.linalg.det(last), rtol=1e-12)
    wanted = np.linalg.solve(last, np.moveaxis(b, -1, 0))
    np.testing.assert_allclose(found.solution(b), first(wanted), rtol=1e-11)
    np.testing.assert_allclose(found.sign() * found.sign(), 1.0)
    np.testing.assert_allclose(
        small.eliminated(a[..., 0]).solution(b[:, 0, 0]), np.linalg.solve(last[0], b[:, 0, 0]), rtol=1e-11
    )


@pytest.mark.parametrize("n", [1, 2, 4])
def test_triangles(n):
    last = np.moveaxis(stack(n, 2), -1, 0)
    a = last @ last.mT + np.eye(n)
    L = small.lower_factor(first(a))
    np.testing.assert_allclose(L, first(np.linalg.cholesky(a)), rtol=1e-12, atol=1e-14)
    b, one = np.random.default_rng(2).normal(size=(n, 3, 2)), np.tril(last[0], -1) + np.eye(n)
    wanted = np.linalg.solve(np.moveaxis(L, -1, 0), np.moveaxis(b, -1, 0))
    np.testing.assert_allclose(small.substituted(L, b, True), first(wanted), rtol=1e-11)
    full = last[0] + np.diag(np.full(n, 7.0))  # the other triangle is not read
    np.testing.assert_allclose(
        small.substituted(full, b[:, 0, 0], False), np.linalg.solve(np.triu(full), b[:, 0, 0]), rtol=1e-11
    )
    np.testing.assert_allclose(
        small.substituted(last[0], b[..., 0], True, unit=True), np.linalg.solve(one, b[..., 0]), rtol=1e-11
    )
