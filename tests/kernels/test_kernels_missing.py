"""Missing data in random likelihoods and recursions: the derivatives are those without the missing data, and
none is nan."""

import numpy as np
import pytest

import tapegrad as tg

pytestmark = pytest.mark.one_in(4)  # its cases compile

UNARY = [
    lambda x: x * x,
    lambda x: np.exp(-x * x),
    lambda x: np.log(1 + x * x),
    np.tanh,
    lambda x: 1 / (1 + x * x),
    np.sin,
    lambda x: np.where(x > 0.1, x, 0.5 * x * x),
]
HOLES = [2, 6]


def random_function(rng):
    """From a list of numbers to a longer one."""
    steps = [(rng.integers(5), rng.integers(0, 20, 2), rng.integers(len(UNARY))) for _ in range(7)]

    def f(values):
        values = list(values)
        for kind, (i, j), u in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            made = {
                0: lambda a=a, b=b: a + b,
                1: lambda a=a, b=b: a * b,
                2: lambda a=a, b=b: a - b,
                3: lambda a=a, u=u: UNARY[u](a),
                4: lambda a=a, b=b: np.where(a > b, a * b, np.cos(b)),
            }[int(kind)]
            values.append(made())
        return values

    return f


def random_data(rng):
    """(with holes, without them); a datum is missing as soon as one component is."""
    data = rng.normal(size=9) if rng.integers(2) else rng.normal(size=(2, 9))
    holes = data.copy()
    holes[..., HOLES] = np.nan
    if data.ndim == 2:
        holes[0, 6] = 1.0
    return holes, np.ascontiguousarray(np.delete(data, HOLES, axis=-1))


def components(y):
    return list(y) if np.ndim(y) or getattr(y, "shape", ()) else [y]


def close(found, expected, tolerance):
    scale = np.abs(expected).max(initial=1e-3)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("seed", range(15))
def test_likelihoods(seed):
    rng = np.random.default_rng(seed)
    f = random_function(rng)
    holes, kept = random_data(rng)
    theta, v = 0.5 * rng.normal(size=(2, 3)), rng.normal(size=(2, 3))

    def loglik(theta, y):
        values = f([theta[0], theta[1], *components(y)])
        return values[-1] + values[-2] * values[-3]

    k = tg.kernels.likelihood(loglik)
    for found, expected in zip(k.value_and_grad(theta, holes), k.value_and_grad(theta, kept), strict=True):
        close(found, expected, 1e-11)
    close(k.hvp(theta, v, holes), k.hvp(theta, v, kept), 1e-10)
    found = tg.grad(lambda x: k(theta, x).sum())(holes)
    close(np.delete(found, HOLES, axis=-1), tg.grad(lambda x: k(theta, x).sum())(kept), 1e-11)
    assert not found[..., HOLES].any()
    assert not k.contributions(theta, holes)[HOLES].any()


@pytest.mark.one_in(7)
@pytest.mark.parametrize("seed", range(15))
def test_recursions(seed):
    rng = np.random.default_rng(seed)
    f = random_function(rng)
    holes, _ = random_data(rng)
    theta, v = 0.5 * rng.normal(size=(2, 3)), rng.normal(size=(2, 3))

    def init(theta):
        return theta[0] * 0.1, 0.3

    def step(carry, theta, y):
        values = f([theta[0], theta[1], *carry, *components(y)])
        return (np.tanh(values[-1] + values[-2]), 0.5 * carry[1] + np.sin(values[-3])), values[-1] * values[
            -4
        ] + values[-2]

    def skip(carry, theta):
        return carry[0] * theta[0] * 0.9, carry[1] + theta[1] * 0.1

    def by_tape(theta):
        carry, total = (theta[0] * 0.1, 0.3 + 0 * theta[0]), 0.0
        for t in range(9):
            if t in HOLES:
                carry = skip(carry, theta)
            else:
                carry, term = step(carry, theta, holes[..., t])
                total = total + term
        return total

    k = tg.kernels.recursion(init, step, missing=skip)
    value, gradient = k.value_and_grad(theta, holes)
    close(value, by_tape(theta), 1e-11)
    close(gradient, tg.grad(lambda t: by_tape(t).sum())(theta), 1e-9)
    close(k.hvp(theta, v, holes), tg.hvp(lambda t: by_tape(t).sum(), theta, v), 1e-8)
    found = tg.grad(lambda x: k(theta, x).sum())(holes)
    assert np.isfinite(found).all() and not found[..., HOLES].any()


SEEING = [
    lambda theta, y: theta[0] * np.fmax(y, 0.1), lambda theta, y: theta[0] * np.interp(y, [0.0, 1.0], [0.0,
    2.0]),
    lambda theta, y: theta[0] * np.where(np.isnan(y), -7.0, y), lambda theta,
    y: theta[0] * np.nan_to_num(np.sqrt(y - 0.3), nan=-50.0),
    lambda theta, y: theta[0] * np.median(np.array([y, 0.2, 0.4])), lambda theta,
    y: theta[0] * np.where(np.isfinite(y), y, 3.0),
]  # fmt: skip


@pytest.mark.parametrize("f", SEEING)
def test_what_is_left_out_whatever_the_function_looks_for(f):
    """A function with a branch for nan, of its own or in a function of NumPy's, gets no missing datum either;
    with 'step' it does."""
    theta, y = np.array([[2.0, 3.0]]), np.array([0.5, np.nan, 0.25])
    for what in ("__call__", "grad", "hessian"):
        found = getattr(tg.kernels.likelihood(f), what)(theta, y)
        np.testing.assert_array_equal(found, getattr(tg.kernels.likelihood(f), what)(theta, y[::2]))
    with np.errstate(invalid="ignore"):
        expected = [sum(f([t], v) for v in y) for t in theta[0]]
    np.testing.assert_allclose(
        tg.kernels.likelihood(f, missing="step", invalid="nan")(theta, y), expected, rtol=1e-14
    )
