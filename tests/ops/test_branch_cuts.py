"""Derivatives on a branch cut are those of the side that the sign of zero names."""

import math
from fractions import Fraction

import numpy as np
import pytest

import tapegrad as tg

ON_CUTS = {
    np.arcsin: ("x", 2.0), np.arccos: ("x", 2.0), np.arctanh: ("x", 2.0), np.arccosh: ("x", 0.5),
    np.sqrt: ("x", -2.0), np.log: ("x", -2.0),
    np.arcsinh: ("y", 3.0), np.arctan: ("y", 3.0),
}  # fmt: skip


@pytest.mark.parametrize("f", ON_CUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_side_of_a_cut(f, zero, sign):
    axis, size = ON_CUTS[f]
    z = np.array([complex(sign * size, zero) if axis == "x" else complex(zero, sign * size)])
    away = np.copysign(1e-9, zero) * (
        1j if axis == "x" else 1.0
    )  # into the side, where differences do not cross
    h = 1e-6 if axis == "x" else 1e-6j
    expected = (f(z + away + h) - f(z + away - h)) / (2 * h)
    np.testing.assert_allclose(tg.jvp(f, (z,), (np.ones(1, complex),))[1], expected, rtol=1e-6)
    np.testing.assert_allclose(np.conj(tg.vjp(f, z)[1](np.ones(1, complex))), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["sqrt", "log", "log2", "log10", "arcsin", "arccos", "arctanh"])
@pytest.mark.parametrize("at", [-2.0, -0.5, 0.3, 2.0])
def test_emath(name, at):
    f = lambda x: (getattr(np.emath, name)(x) * (1 + 2j)).real.sum()
    x, h = np.array([at]), 1e-6
    np.testing.assert_allclose(tg.grad(f)(x), (f(x + h) - f(x - h)) / (2 * h), rtol=1e-6)


def test_emath_of_two_arguments():
    f = lambda x: abs(np.emath.power(x, 1.5) + np.emath.logn(2, x)).sum() + np.emath.sqrt([x[1], x[2]]).sum()
    x, h = np.array([-0.5, 2.0, 0.3]), 1e-6
    expected = [(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(tg.grad(f)(x), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "f", [np.fmod, np.remainder, math.remainder], ids=["fmod", "remainder", "math.remainder"]
)
def test_the_slope_of_a_remainder_counts_what_its_value_leaves(f):
    """Where x / y rounds to a whole number, and the remainder says that it is not one: 7.5 and 0.1."""
    r = np.random.default_rng(0)
    whole = [(7.5, 0.1), (0.3, 0.1), (9.0, 0.1), (-7.5, 0.1), (7.5, -0.1)]
    for x, y in [*whole, *r.normal(size=(40, 2)) * (50, 1)]:
        x, y = float(x), float(y)
        value, (dx, dy) = tg.value_and_grad(lambda x, y: f(x, y), (0, 1))(x, y)
        assert value == f(x, y) and dx == 1.0
        assert dy == -round((Fraction(x) - Fraction(float(f(x, y)))) / Fraction(y))
