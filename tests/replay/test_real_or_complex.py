"""Results that are real or complex, as the values of a real argument are: a program that was recorded for one
is not replayed for the other."""

import numpy as np
import pytest
import scipy.linalg as la
import scipy.signal

import tapegrad as tg

REAL = np.diag([3.0, 1.0, 2.0]) + 0.1 * np.arange(9.0).reshape(3, 3)
ROTATED = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.2], [0.1, 0.0, -2.0]])
ROOTS = np.array([1.0, -6.0, 11.0, -6.3]), np.array([1.0, -1.0, 2.0, 3.0])
CALLS = {
    "eig": (lambda a: np.linalg.eig(a)[1], REAL, ROTATED),
    "eigvals": (np.linalg.eigvals, REAL, ROTATED),
    "sqrtm": (la.sqrtm, REAL, ROTATED),
    "logm": (la.logm, REAL, ROTATED),
    "power": (lambda a: la.fractional_matrix_power(a, 0.3), REAL, ROTATED),
    "roots": (np.roots, *ROOTS),
    "poles": (lambda p: scipy.signal.tf2zpk([1.0, 2.0], p)[1], *ROOTS),
    "emath": (np.emath.log, np.array([0.5, 2.0]), np.array([0.5, -2.0])),
    "stack": (lambda a: np.linalg.eigvals(np.stack([a, REAL])), REAL, ROTATED),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CALLS)
def test_replayed_for_the_other_kind(name):
    f, *points = CALLS[name]

    def g(x):
        y = np.reshape(f(x), -1)
        return np.sum(y.real * np.cos(np.arange(y.size))) + np.sum(
            abs(y) ** 2 * np.sin(1.0 + np.arange(y.size))
        )

    for first, second in (points, points[::-1]):
        p = tg.prepare(g, first)
        for x in (first, second, first, second):
            np.testing.assert_allclose(p.value(x), g(x), rtol=1e-12)
            np.testing.assert_allclose(p.grad(x), tg.grad(g)(x), rtol=1e-9, atol=1e-12)
