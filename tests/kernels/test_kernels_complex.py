"""Complex numbers inside of kernels: impedances, characteristic functions, transfer matrices."""

import math

import numpy as np
import pytest
from kernel_programs import kernels

import tapegrad as tg
from tapegrad.errors import KernelError

pytestmark = pytest.mark.one_in(3)  # its cases compile

RNG = np.random.default_rng(0)
THETA = RNG.normal(size=(4, 7))
FREQUENCIES = np.array([0.3, 1.1, 2.0, 5.0])
CONSTANTS = np.array([1 + 2j, 0.3 - 1j, 2j, 1.0])


def impedance(t):
    """A resistor in series with a capacitor beside a resistor and a constant phase element."""
    total, share = 0.0, 1 / (1 + np.exp(-t[3]))
    for w in FREQUENCIES:
        z = np.exp(t[0]) + 1 / (1j * w * np.exp(t[1]) + 1 / (np.exp(t[2]) + 1 / (2 * (1j * w) ** share)))
        total = total + abs(z) ** 2 + z.real * z.imag + np.angle(z, deg=True)
    return total


def characteristic_function(t):
    """Heston's model at three frequencies."""
    k, mean, noise, rho = np.exp(t[0]), 0.1 * np.exp(t[1]), 0.5 * np.exp(t[2]), np.tanh(t[3])
    total = 0.0
    for u in (0.5, 1.5, 3.0):
        b = k - rho * noise * u * 1j
        d = np.sqrt(b**2 + noise**2 * (1j * u + u * u))
        g, e = (b - d) / (b + d), np.exp(-2.0 * d)
        level = k * mean / noise**2 * (2.0 * (b - d) - 2 * np.log((1 - g * e) / (1 - g)))
        slope = (b - d) / noise**2 * ((1 - e) / (1 - g * e))
        total = total + (np.exp(level + 0.04 * slope) / (1j * u)).real
    return total


def elementwise(t):
    z, total = t[0] + 1j * t[1], 0.0
    for f in (
        np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh, np.exp, np.sqrt, np.square, np.reciprocal,
        np.log, np.log2, np.log10, np.conj, np.negative, np.positive,
    ):  # fmt: skip
        y = f(z)
        total = total + y.real * t[2] + y.imag * t[3]
    powers = (z**3).real + (z**-2).imag + (z ** t[2]).real + (z ** (0.3 + 0.2j)).imag + (2.0**z).real
    return total + powers + np.where(z == z, 1.0, 0.0) - np.isnan(z)


def arrays(t):
    z = t[0] + 1j * FREQUENCIES * t[1]
    y = np.exp(-z) * np.conj(z) / (z + t[2])
    y[1] *= 1j
    y += 0.5 - 0.25j
    w, view = np.conj(y), y[2:]  # memory of its own, and that of y
    w[0], view[1], y.real[3] = 9.0, 2j, t[3]
    y.imag = y.real[::-1] * 0.5
    y = y + 0.1 * w
    both = np.concatenate([y, z[:2], CONSTANTS])
    return (np.abs(both) ** 2).sum() + y.prod().real + (z @ y).real + np.vdot(z, CONSTANTS).imag


def matrices(t):
    M = np.array([[np.exp(1j * t[0]), t[1]], [1j * t[2], 1 + 0.5j]])
    N = np.zeros((2, 2), complex)
    N[0, 1], N[1] = t[3], M[0] * 1j
    A = M @ N + (2 + 1j) * np.eye(2)
    x = np.linalg.solve(A, np.array([t[0], 1j * t[1]]))
    v = np.where(t[0] > 0, M[0], N[1])
    products = np.kron(x, v).real.sum() + np.outer(x, v)[0, 1].imag + np.linalg.inv(A)[1, 0].imag
    return products + np.abs(A).sum() + np.trace(A).real + (M.T.conj() @ x).imag.sum()


@pytest.mark.parametrize("f", [impedance, characteristic_function, elementwise, arrays, matrices])
def test_as_outside_of_kernels(f):
    """Value, gradient and second derivatives are those of NumPy's complex arrays."""
    k, v = kernels.map(f), np.cos(np.arange(28.0).reshape(4, 7))
    each = lambda run: np.stack([run(j) for j in range(7)], -1)
    np.testing.assert_allclose(k(THETA), each(lambda j: f(THETA[:, j])), rtol=1e-13)
    slope = tg.grad(lambda t: k(t).sum())
    np.testing.assert_allclose(slope(THETA), each(lambda j: tg.grad(f)(THETA[:, j])), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(
        tg.jvp(slope, (THETA,), (v,))[1],
        each(lambda j: tg.hvp(f, THETA[:, j], v[:, j])),
        rtol=1e-10,
        atol=1e-11,
    )


def test_edges():
    """Zeros, the negative axis, large numbers, and quotients whose parts overflow when squared."""
    a = np.array([0.0, -4.0, -4.0, 0.0, 3.0, 400.0, -400.0, 1e200, 1.0])
    b = np.array([0.0, 0.0, 1e-9, 2.0, -0.0, 1.0, 2.0, 1e200, 1e-12])
    for f in (np.sqrt, np.tanh, lambda z: z / (z + 1e200), lambda z: np.log(z + 1e-300), np.tan):
        k = kernels.map(lambda a, b, f=f: (f(a + 1j * b).real, f(a + 1j * b).imag))
        with np.errstate(all="ignore"):
            expected = f(a + 1j * b)
        np.testing.assert_allclose(np.array(k(a, b)), [expected.real, expected.imag], rtol=1e-13, atol=1e-15)


SLOPES = {
    np.sqrt: lambda z: 0.5 / np.sqrt(z), np.log: lambda z: 1 / z, np.exp: np.exp, np.sin: np.cos,
    np.cos: lambda z: -np.sin(z), np.sinh: np.cosh, np.cosh: np.sinh, np.tan: lambda z: 1 + np.tan(z) ** 2,
    np.tanh: lambda z: 1 - np.tanh(z) ** 2, np.reciprocal: lambda z: -1 / z**2, np.square: lambda z: 2 * z,
    np.log10: lambda z: 1 / z / np.log(10), np.log2: lambda z: 1 / z / np.log(2),
    (lambda z: z**-3): lambda z: -3 * z**-4, (lambda z: z**0.4): lambda z: 0.4 * z**-0.6,
    (lambda z: (1 + 2j) / (z - 0.5)): lambda z: -(1 + 2j) / (z - 0.5) ** 2,
}  # fmt: skip


@pytest.mark.parametrize("f", SLOPES)
def test_derivatives_on_the_axes(f):
    """A part that is zero, also on the branch cut, where the sign of zero chooses the side: the real part of
    a function with the derivative s has the slopes Re s and -Im s."""
    a = np.array([0.0, 0.0, -0.0, 3.0, 0.7, -1.5, -1.5, 1.0])
    b = np.array([2.0, -0.4, 1.3, 0.0, -0.0, 0.0, -0.0, 0.0])
    real, imag = [kernels.map(lambda a, b, p=p: getattr(f(a + 1j * b), p)) for p in ("real", "imag")]
    z = np.empty(8, complex)
    z.real, z.imag = a, b
    s = SLOPES[f](z)
    for k, slopes in ((real, (s.real, -s.imag)), (imag, (s.imag, s.real))):
        found = tg.grad(lambda a, b, k=k: k(a, b).sum(), (0, 1))(a, b)
        np.testing.assert_allclose(found, slopes, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("power", [0, 1, 5, -1, -3, 0.5, -0.5, 0.3 + 0.2j, 1j])
def test_powers(power):
    """At zero too: nan where NumPy has no number."""
    z = np.array([0.0, 1.5 - 0.3j, -2.0 + 0.1j, 1j])
    k = kernels.map(lambda a, b: ((a + 1j * b) ** power).real)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(k(z.real, z.imag), (z**power).real, rtol=1e-13, atol=1e-14)
    given = kernels.map(lambda a, b, y: ((a + 1j * b) ** y).real)  # the power is known when it runs
    if isinstance(power, (int, float)):
        np.testing.assert_allclose(
            given(z.real, z.imag, np.full(4, 1.0 * power)), k(z.real, z.imag), atol=1e-13
        )


def test_refused():
    """What a kernel returns and carries is real."""
    for f in (
        lambda t: t[0] + 1j * t[1],
        lambda t: kernels.while_loop(lambda z: z.real < 3, lambda z: 2 * z + 1, t[0] + 1j, max_steps=9).real,
        lambda t: t[0] if t[0] + 1j * t[1] else t[1],
        lambda t: math.sqrt(t[0] + 1j * t[1]),
    ):
        with pytest.raises(KernelError, match="write z.real, z.imag or np.abs"):
            kernels.map(f)(THETA)
    with pytest.raises(KernelError, match="arcsin of complex numbers"):
        kernels.map(lambda t: np.arcsin(t[0] + 1j).real)(THETA)
