"""Calls that outsiders found refused or wrong, each once: the value, reverse mode, forward mode and second order
against differences."""

import math
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest
import scipy.fft
import scipy.interpolate
import scipy.linalg
import scipy.signal
import scipy.sparse as sparse
import scipy.sparse.linalg
import scipy.special as sp
import scipy.stats

from tapegrad.ops.special.gamma import polygamma_n

sys.path.insert(0, str(Path(__file__).parents[1] / "wild"))
from judge import verdict

M = np.array([[3.0, 1.0, 0.2], [0.5, 2.0, 0.3], [0.1, 0.4, 1.5]])


def resized(x):
    y = x * x
    y.resize((2, 2))
    return y


def multiplied_at(x):
    y = x * 1.0
    np.multiply.at(y, [0, 0, 1], x)
    return y


def by_nditer(x):
    return sum([a**3 for a in np.nditer(x)])


def into_nditer(x):
    out = np.zeros(3)
    with np.nditer([x, out], op_flags=[["readonly"], ["readwrite"]]) as rows:
        for a, b in rows:
            b[...] = a * a
    return out


def of_qz(x):
    a, b, _, _ = scipy.linalg.qz(M * x, np.eye(3) + 0.1 * M)
    return np.abs(np.diag(a) / np.diag(b))


def factorized(x):
    return scipy.sparse.linalg.factorized(sparse.diags(x + 3.0).tocsc())(np.ones(3) * x[1])


def sosfiltfilt(x):
    coefficients = scipy.signal.butter(2, 0.2 * x[0], output="sos")
    return scipy.signal.sosfiltfilt(coefficients, np.arange(24.0) ** 1.5 * x[1])


def put_along_all(x):
    y = np.outer(x, x)
    np.put_along_axis(y, np.array([1, 5]), x[:2] ** 2, None)
    return y


NODES = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.2], [0.3, 2.0]])
GRID = [0.0, 0.4, 1.0], [0.0, 0.6, 0.8, 1.0]


def scattered(x, *places):
    return scipy.interpolate.LinearNDInterpolator(NODES, x[0] * np.cos(NODES[:, 1]))(*places)


def gridded(x, places):
    return scipy.interpolate.RegularGridInterpolator(GRID, x[0] * np.exp(np.add.outer(*GRID)))(places)


CALLS = {
    "put_along_axis of all": put_along_all,
    "broadcast of a list": lambda x: sum([a * b for a, b in np.broadcast(x[0], [2.0, 3.0])]),
    "logspace by bases": lambda x: np.logspace(x[0], 2.0, 3, base=[2.0, 3.0]),
    "fht by its parameters": lambda x: scipy.fft.fht(np.exp(-np.arange(8.0)), x[2], x[0], 0.2 * x[1], x[2]),
    "ifht by its parameters": lambda x: scipy.fft.ifht(np.exp(-np.arange(8.0)), x[2], x[0], 0.2 * x[1], x[2]),
    "scattered, a point": lambda x: (
        np.reshape(scattered(x, x[:2]), (1,)) if scattered(x, x[:2]).shape else None
    ),
    "scattered, broadcast": lambda x: scattered(x, (0.9 * x[:2], x[:, None])),
    "gridded, two numbers": lambda x: (
        None if np.shape(gridded(x, (x[0], x[1]))) else gridded(x, (x[0], x[1]))
    ),
    "choose": lambda x: np.choose(np.array([0, 1, 0]), [x, x**2]),
    "ndarray.resize": resized,
    "resize": lambda x: np.resize(x * x, (2, 4)),
    "view": lambda x: np.abs((x * x)[:2].view(complex)),
    "getfield": lambda x: (x * x).getfield(np.float64),
    "item": lambda x: (x * x).item(1) * x[0].item(),
    "tolist": lambda x: sum([v * v for v in x.tolist()]),
    "to_device": lambda x: (x * x).to_device("cpu"),
    "multiply.at": multiplied_at,
    "nditer": by_nditer,
    "nditer, writing": into_nditer,
    "ma.mean": lambda x: np.ma.masked_array(x * x, [0, 1, 0]).mean(),
    "ma.filled": lambda x: np.ma.filled(np.ma.masked_greater(x, 0.6) ** 2, 7.0),
    "as_strided": lambda x: np.lib.stride_tricks.as_strided(x * x, (2, 2), (8, 8)),
    "emath.sqrt": lambda x: np.abs(np.emath.sqrt(-x) + 1),
    "chndtridf": lambda x: sp.chndtridf(3 * x[0], 0.6, x[1]),
    "chndtrinc": lambda x: sp.chndtrinc(7 * x[0], 2.0, 0.6),
    "chndtrix": lambda x: sp.chndtrix(0.4, 2.0, x[1]),
    "eval_jacobi": lambda x: sp.eval_jacobi(3, x[0], x[1], x),
    "eval_genlaguerre": lambda x: sp.eval_genlaguerre(3, x[0], x[1]),
    "legendre": lambda x: sp.legendre(3)(x),
    "jacobi": lambda x: sp.jacobi(3, 0.5, 0.2)(x),
    "gegenbauer": lambda x: sp.gegenbauer(3, 0.5)(x),
    "genlaguerre": lambda x: sp.genlaguerre(3, 0.5)(x),
    "hermite": lambda x: sp.hermite(4)(x),
    "chebyt": lambda x: sp.chebyt(4)(x) + sp.chebyu(3)(x),
    "vonmises.cdf": lambda x: scipy.stats.vonmises.cdf(x, x[0]),
    "vonmises.sf, frozen": lambda x: scipy.stats.vonmises(2.0).sf(x),
    "betabinom.cdf": lambda x: scipy.stats.betabinom.cdf([1, 2, 3], 8, x[0], x[1]),
    "betabinom.logpmf": lambda x: scipy.stats.betabinom(8, x[0], x[1]).logpmf(3),
    "sosfiltfilt": sosfiltfilt,
    "factorized": factorized,
    "qz": of_qz,
    "loggamma of complex numbers": lambda x: np.real(sp.loggamma(x - 0.6 + 1j * x[::-1])),
    "gamma of complex numbers": lambda x: np.abs(sp.gamma(x + 1j)),
    "norm(x, -1)": lambda x: np.linalg.norm(x, -1),
}
POINT = np.array([0.5, 0.7, 0.3])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("call", CALLS)
def test_call(call):
    found = verdict(CALLS[call], POINT, timed=False)
    assert found.outcome == "right", found.cause


@pytest.mark.parametrize("call", ["legendre", "hermite", "vonmises.cdf", "emath.sqrt"])
def test_call_with_a_number(call):
    def f(x):
        return np.sum(CALLS[call](np.array([x, 0.7, 0.3])))

    found = verdict(lambda x: f(x[0].item()), POINT[:1], timed=False)
    assert found.outcome == "right" and math.isfinite(f(0.5)), found.cause


@pytest.mark.parametrize("order", [1, 2, 3])
def test_polygamma_of_complex_numbers(order):
    places = [0.5 + 1j, 3 - 2j, -1.3 + 0.4j, -5.5 + 10j, 20 + 30j, 0.01 + 0.01j, -0.5 + 3j, -2.5 - 200j]
    z = np.array(places)
    wanted = [complex(mpmath.polygamma(order, z)) for z in places]
    np.testing.assert_allclose(polygamma_n(z, n=order), wanted, rtol=1e-12)
