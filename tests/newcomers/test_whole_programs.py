"""Whole programs, each with its gradient in reverse and forward mode, its Hessian and `prepare`, at two points
in turn."""

import warnings

import numpy as np
import pytest
from whole_programs import PROGRAMS

import tapegrad as tg


def extrapolated(f, x, v, h):
    """Central differences of two steps, extrapolated."""
    wide, near = [(f(x + s * v) - f(x - s * v)) / (2 * s) for s in (h, h / 2)]
    return (4 * near - wide) / 3


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_program(name):
    f, points = PROGRAMS[name]
    prepared = tg.prepare(f, *points[0])
    with warnings.catch_warnings(action="error"):
        for x, *data in (*points, points[0]):
            value, gradient = prepared.value_and_grad(x, *data)
            assert np.isclose(value, f(x, *data), rtol=1e-12)
            found = tg.grad(f)(x, *data)
            np.testing.assert_allclose(gradient, found, rtol=1e-9, atol=1e-11 * abs(found).max())
    assert "run as it is" not in prepared.report()
    x, *data = points[1]
    v, of_x = np.cos(np.arange(x.size)).reshape(x.shape), lambda y: f(y, *data)
    found = tg.grad(of_x)(x)
    slope, size = np.sum(found * v), 1e-3 * np.linalg.norm(found)
    assert np.isclose(tg.jvp(of_x, (x,), (v,))[1], slope, rtol=1e-10)
    first, other = [extrapolated(of_x, x, v, h) for h in (1e-5, 3e-5)]
    assert abs(first - slope) < 1e-7 * max(abs(slope), size) + 20 * abs(first - other)
    curvature = extrapolated(tg.grad(of_x), x, v, 1e-5)
    size = np.abs(curvature).max() + 1e-9
    np.testing.assert_allclose(tg.hvp(of_x, x, v), curvature, rtol=1e-6, atol=1e-6 * size)
