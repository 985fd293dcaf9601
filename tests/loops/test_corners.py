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
