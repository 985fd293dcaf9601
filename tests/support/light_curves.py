"""The data of the tests of light curves, and a process as a dense Gaussian."""

import numpy as np
import pytest
import scipy.linalg
from comparison import close, host
from raw_device import noted_launches  # noqa: F401 (the fixture `device`)

import tapegrad as tg
from tapegrad.errors import ArgumentError
from tapegrad.kernels import celerite

RNG = np.random.default_rng(0)


T = np.sort(RNG.uniform(0, 20, 40))


Y = np.sin(T) + 0.1 * RNG.normal(size=40)


VARIANCE = RNG.uniform(0.01, 0.05, 40)


DATA = celerite.light_curve(T, Y, VARIANCE)


def log_density(K, y):
    L = scipy.linalg.cho_factor(K, lower=True)
    return (
        -0.5 * (y @ scipy.linalg.cho_solve(L, y) + len(y) * np.log(2 * np.pi)) - np.log(np.diag(L[0])).sum()
    )


def agrees(k, theta, device):
    """Both libraries give the same; on hosted CuPy by the CUDA C, by hand and generated."""
    xp, _ = device
    data = DATA.copy()
    data[1, 5] = np.nan
    expected, slope = k.value_and_grad(theta, data)
    theta, data = xp.asarray(theta), xp.asarray(data)
    value, gradient = k.value_and_grad(theta, data)
    assert isinstance(gradient, xp.ndarray)
    close(host(value), expected, 1e-10)
    close(host(gradient), slope, 1e-8)
    close(host(tg.grad(lambda x: k(x, data).sum())(theta)), slope, 1e-8)
    few, ways = theta[:, :3].copy(), xp.asarray(np.ones((len(theta), 3)))
    close(host(k.hvp(few, ways, data)), k.hvp(host(few), host(ways), host(data)), 1e-8)
    curve = celerite.light_curve(xp.asarray(T), xp.asarray(Y), VARIANCE)
    assert isinstance(curve, xp.ndarray) and np.array_equal(host(curve), DATA)
    wrong = data.copy()
    wrong[0, 5] = -1.0
    with pytest.raises(ArgumentError, match="negative or nan"):
        k(theta, wrong)
