"""Loops of complex numbers in prepared programs: the rows of the interpreter against plain calls."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.replay.interpreter.placed_bodies import BODIES_KNOWN

N, TRIPS = 4, 24
MIXING = np.array(
    [[0.3, 0.1j, 0, 0.2], [0.1, 0.2 - 0.1j, 0.1, 0], [0, 0.3j, 0.2, 0.1], [0.1, 0, 0.1 + 0.2j, 0.3]]
)
FACTORS = np.exp(1j * np.arange(N))


def written_part(z, x):
    y = np.zeros(N, complex)
    y.real[1:] = x[1:]
    y.imag = z.real
    y[0] += z[2] * 1j
    y[::2] *= 0.5
    return y


def written_whole(z, x):
    y = np.empty((2, N), complex)
    y[...] = 1.0
    y[0] = z
    y[1, ::-1] += z * x
    return y.sum(0) * 0.4


# name -> the operation of complex z and real x
OPERATIONS = {
    "add": lambda z, x: z + x,
    "subtract": lambda z, x: x - z * 0.5,
    "multiply": lambda z, x: z * z * 0.3,
    "by a complex constant": lambda z, x: z * (0.3 + 0.2j),
    "by complex constants": lambda z, x: FACTORS * z,
    "by a real array": lambda z, x: x * z,
    "divide": lambda z, x: z / (2.0 + 0.3 * z),
    "divide by real": lambda z, x: z / (1.0 + x * x),
    "divide by mostly imaginary": lambda z, x: x / (0.1 * z + 3j),
    "reciprocal": lambda z, x: 1 / (z + 3.0),
    "square": lambda z, x: 0.3 * z**2,
    "cube": lambda z, x: 0.1 * z**3,
    "power": lambda z, x: (z + 3.0) ** 0.5,
    "negative": lambda z, x: -z,
    "conj": lambda z, x: z.conj(),
    "real": lambda z, x: z.real + 1j * x,
    "imag": lambda z, x: z.imag - 0.5j * x,
    "abs": lambda z, x: np.abs(z) + 1j * x,
    "phase": lambda z, x: z / abs(z),
    "angle": lambda z, x: np.angle(z) * 0.1 + z * 0.1,
    "exp": lambda z, x: np.exp(0.3 * z) - 1.0,
    "log": lambda z, x: np.log(z + 4.0),
    "sqrt": lambda z, x: np.sqrt(z + 2.0),
    "sin": lambda z, x: np.sin(0.3 * z),
    "tanh": lambda z, x: np.tanh(0.3 * z),
    "where": lambda z, x: np.where(x > 0, z, 0.1 * z),
    "where with real": lambda z, x: np.where(x > 0, z, 1.0),
    "sum": lambda z, x: z - 0.2 * z.sum(),
    "mean": lambda z, x: z - z.mean(),
    "matmul": lambda z, x: MIXING @ z,
    "vector times matrix": lambda z, x: z @ MIXING,
    "real matrix": lambda z, x: MIXING.real @ z,
    "outer": lambda z, x: np.outer(z, x) @ x * 0.2,
    "vdot": lambda z, x: z * np.vdot(z, x) * 0.1,
    "einsum": lambda z, x: np.einsum("ij,j->i", MIXING, z) * x,
    "solve": lambda z, x: np.linalg.solve(MIXING + 2.0 * np.eye(N), z),
    "solve with z": lambda z, x: np.linalg.solve(0.1 * np.outer(z, z) + 2.0 * np.eye(N), x),
    "inv": lambda z, x: np.linalg.inv(0.1 * np.outer(z, x) + 2j * np.eye(N))[0],
    "det": lambda z, x: z + 0.01 * np.linalg.det(MIXING * z + np.eye(N)),
    "fft": lambda z, x: np.fft.fft(z) * 0.4,
    "ifft": lambda z, x: np.fft.ifft(z, norm="ortho"),
    "fft of real": lambda z, x: np.fft.fft(z.real) * 0.3,
    "rfft": lambda z, x: np.fft.irfft(np.fft.rfft(z.imag) * 0.5j, N) + 1j * x,
    "rfft, odd": lambda z, x: np.append(np.fft.irfft(np.fft.rfft(z.real[:3]), 3), 1.0 + 1j),
    "fft of columns": lambda z, x: np.fft.fft(np.outer(z, x), axis=0)[1] * 0.3,
    "fft2": lambda z, x: np.fft.fft2(np.outer(z, x) * 0.1)[:, 1],
    "concatenate": lambda z, x: np.concatenate([x[:2], z[:2]]),
    "stack": lambda z, x: np.stack([z, x + 0j]).prod(0) * 0.3,
    "packed": lambda z, x: np.array([z[0], x[1], 0.3 - 0.1j, 1]),
    "roll": lambda z, x: np.roll(z, 1),
    "reverse": lambda z, x: z[::-1],
    "take": lambda z, x: z[[1, 1, 3, 0]],
    "reshape": lambda z, x: z.reshape(2, 2).T.reshape(-1),
    "as complex": lambda z, x: x.astype(complex) * 1j,
    "parts are written": written_part,
    "all is written": written_whole,
    "scalars": lambda z, x: z * (z[0] * x[1] - z[3] / (x[0] + 3.0)) * 0.1,
    "equality": lambda z, x: np.where(z == z.conj(), z, 0.5 * z),
    "cumsum": lambda z, x: 0.2 * np.cumsum(z),
    "diff": lambda z, x: np.append(np.diff(z), x[0]),
    "pad": lambda z, x: np.pad(z[1:3], 1),
    "triu": lambda z, x: np.triu(np.outer(z, x)).sum(0) * 0.2,
    "kron": lambda z, x: np.kron(z[:2], x[:2]),
    "polyval": lambda z, x: np.polyval([0.1, 0.2j, 0.3], z),
}  # fmt: skip


def loop(*steps):
    def f(x):
        z = x + 0.2j * np.cos(x)
        for t in range(TRIPS):
            for step in steps:
                z = step(z, x)
            z = 0.6 * z / (1.0 + 0.3 * (z.real**2 + z.imag**2)) + 0.1 * x + 0.01 * t
        return (z * (0.7 - 0.2j)).real.sum() + z.imag[0]

    return f


def agrees(f, calls=4):
    """Does a prepared function agree with plain calls, at several points?"""
    p = tg.prepare(f, POINTS[0])
    for k in range(calls):
        x = POINTS[k % len(POINTS)]
        (v, g), (want, slope) = p.value_and_grad(x), tg.value_and_grad(f)(x)
        np.testing.assert_allclose(v, want, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(g, slope, rtol=1e-8, atol=1e-10)


RANDOM = np.random.default_rng(3)
POINTS = [RANDOM.normal(size=N) for _ in range(3)]
REFUSED = {"cumsum"}  # (a scan of complex numbers stays with Python)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    BODIES_KNOWN.clear()
    agrees(loop(OPERATIONS[name]))
    refused = [body.refused for body in BODIES_KNOWN.values() if body.refused]
    assert bool(refused) == (name in REFUSED)


def random_loop(seed):
    random = np.random.default_rng(seed)
    return loop(*[OPERATIONS[name] for name in random.choice([*OPERATIONS], 1 + seed % 4)])


@pytest.mark.parametrize("seed", range(6))
def test_random_loops(seed):
    agrees(random_loop(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6, 400))
def test_many_random_loops(seed):
    agrees(random_loop(seed), 30)


def same(p, f, *args):
    got, want = p(*args), f(*args)
    assert type(got) is type(want) and got.dtype == want.dtype
    assert np.array_equal(np.signbit([got.real, got.imag]), np.signbit([want.real, want.imag]))
    np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.parametrize(
    "f",
    [
        lambda z: sum([np.sqrt(z / k) for k in (2.0, -1.0, 3.0, 0.5)]),
        lambda z: np.log((-z) * 2.0 / (1 + 0j) + (z == 0.0)) - 1j * np.angle(-z.conj()) * (z + 1.0),
        lambda z: abs(z * 1e-200) + (z * 1e-160) / (abs(z * 1e-170) + 1e-170) + z * 0.0,
        lambda z: (z * 0.0 + 0.0) * (-1.0 + 0j) + z.conj() * 0.0 - z * 0j + (-z) * 0.0,
        lambda z: z.imag + 1j * z.real - np.array([z.real, z.imag]).sum(0) * 2j + z[::-1] * z[0],
        lambda z: (z[1] * 2.0 + z[0] - z[2] / 3j) ** 2,
        lambda z: (z.reshape(-1, 1) * z)[1:, ::-1].T * 2.0 - 1j * np.eye(z.size)[: z.size, 1:] + 0.0,
    ],
)
def test_signed_zeros_and_small_numbers(f):
    """The results are complex, and leave a block."""
    z = np.array([1.0 + 0j, -1.0 - 0.0j, complex(0.0, -0.0), complex(-0.0, 2.0), 3 - 4j])
    p = tg.prepare(f, z)
    for _ in range(4):
        same(p, f, z)
    same(p, f, z[::-1].copy())


@pytest.mark.filterwarnings("error")
def test_empty_arrays():
    def f(z):
        parts = [z[:0].conj() * z[3:3], np.abs(z[:0]) + z.imag[:0], np.fft.fft(z) * 2.0, (z * z).real[1:1]]
        return sum([part.sum() for part in parts]) * z + z[:0].sum()

    z = np.array([1.0 + 2j, 0.5j, 3.0])
    p = tg.prepare(f, z)
    for _ in range(4):
        np.testing.assert_allclose(p(z), f(z), rtol=1e-13)


def test_what_is_not_finite_runs_plainly():
    def f(z):
        for _ in range(10):
            z = z * z * (0.3 + 0.1j) / (z + 1.0)
        return z

    z = np.array([0.2 + 0.1j, 0.3])
    p = tg.prepare(f, z)
    for at in (
        z,
        z,
        z,
        np.array([np.inf + 0j, 1.0]),
        np.array([np.nan, 1.0 + 1j]),
        z,
        np.array([1e200 + 1e200j, 1.0]),
    ):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(np.isfinite(p(at)), np.isfinite(f(at)))
            np.testing.assert_allclose(p(at)[1], f(at)[1], rtol=1e-12)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        p(np.array([1e300 + 1e300j, 1.0]))


def test_derivatives_with_respect_to_complex_arguments():
    """(By Cauchy and Riemann, the gradient of Re f is the conjugate of f'.)"""

    def f(z):
        for k in range(12):
            z = np.exp(z * 0.3j) * np.sqrt(z + 2.0) - np.fft.ifft(z) * k * 0.01
        return z.sum()

    z = np.array([0.2 + 0.1j, 0.3 - 0.2j, 1j])
    p = tg.prepare(lambda z: f(z).real, z)
    h = 1e-6
    slopes = [(f(z + h * e) - f(z - h * e)) / (2 * h) for e in np.eye(3)]
    for _ in range(4):
        np.testing.assert_allclose(p.grad(z), tg.grad(lambda z: f(z).real)(z), rtol=1e-11)
        np.testing.assert_allclose(p.grad(z), np.conj(slopes), atol=1e-8)
