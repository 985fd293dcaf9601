"""Calls that the examples of NumPy's and SciPy's docstrings make, compared with the plain call and with
differences."""

import math

import mpmath
import numpy as np
import pytest
import scipy.linalg as sl
import scipy.special as sc
import scipy.stats
from numpy.random import RandomState, default_rng
from scipy.sparse import csr_array
from scipy.sparse.linalg import lsmr, lsqr
from scipy.special import cbrt, erf, gammaln
from scipy.stats import Covariance, mstats, multivariate_normal

import tapegrad as tg

A = np.array([[3, 2], [1, 4]])
M = np.array([1.0, 2.0, 4.0, 3.0])
S = csr_array([[1.0, 0.0], [2.0, 1.0], [0.0, -1.0], [0.5, 0.5]])
COV = np.array([[2.0, 0.3], [0.3, 1.0]])
KNOWN = Covariance.from_cholesky(np.linalg.cholesky(COV))
TIGHT = {"atol": 1e-14, "btol": 1e-14}


def under_masks(t):
    m = np.ma.array(np.arange(1.0, 5.0) * t)
    m[1] = np.ma.masked
    m[2] = np.ma.masked
    return np.sum(m.data * np.arange(4.0)) + m.sum()


def unmasked_again(t):
    m = np.ma.array(np.arange(1.0, 5.0) * t)
    m[1] = np.ma.masked
    m.mask[1] = False
    return m.sum()


def frame(vector, width, axis, settings):
    vector[: width[0]] = settings["value"] + vector[width[0]]
    vector[-width[1] :] = settings["value"] * axis


def resized(t):
    y = np.array([[0.0, 1.0, 5.0], [2.0, 3.0, 6.0]], order="F") * t
    y.resize((3, 3), refcheck=False)
    return y


def below(t):
    y = np.full(3, 2.0) * t
    return np.isneginf(np.array([-np.inf, 0.0, 1.0]), y) * t + y


def truths(t):
    where = np.zeros(3, bool)
    np.copyto(where, np.array([0.0, t, 1.0]), casting="unsafe")
    return where * t


CALLS = {
    "np.angle of a list": lambda t: np.angle([1.0 * t, 1j, t + 1j]),
    "np.broadcast": lambda t: sum([a * b for a, b in np.broadcast(np.arange(3.0) * t, np.array([[1.0], [t]]))]),
    "np.broadcast.shape": lambda t: np.broadcast(np.ones(3) * t, np.ones((2, 1))).shape[0] * t,
    "np.emath on a cut": lambda t: np.emath.sqrt(complex(-4.0 * t, -0.0)).imag + np.sqrt(complex(-4.0 * t, 0.0)).imag,
    "np.fft.fftfreq": lambda t: np.fft.fftfreq(5, d=0.5 * t) ** 2,
    "np.longdouble": lambda t: float(np.longdouble(2.0 * t)),
    "np.ma.average": lambda t: np.average(np.arange(3.0) * t, weights=np.ma.array([1, 2, 3], mask=[0, 1, 0])),
    "np.ma.diff": lambda t: np.ma.diff(np.arange(4.0) ** 2 * t).filled(0.0),
    "np.ma: under masks": under_masks,
    "np.ma: unmasked": unmasked_again,
    "np.trim_zeros": lambda t: np.trim_zeros(np.array([[0, 0, 2, 3.0, 0], [0, 1, 0, 3, 0], [0, 0, 0, 0, 0]]) * t),
    "np.trim_zeros, axis": lambda t: np.trim_zeros(np.array([[0, 0, 2, 3.0, 0], [0] * 5]) * t, "f", axis=-1),
    "mstats": lambda t: mstats.skew(M * t**2) + mstats.gmean(M + t) + mstats.ttest_1samp(M, t).statistic,
    "stats.mstats": lambda t: scipy.stats.mstats.sem(M * t) * scipy.stats.mstats.trimmed_mean(M + t),
    "lsqr": lambda t: lsqr(S * t, M * t**2, 0.7 * t, x0=t * np.ones(2), **TIGHT)[0],
    "lsqr, norms": lambda t: np.stack([lsqr(S * t, M * t, 0.7, x0=np.ones(2), **TIGHT)[k] for k in (3, 4, 8)]),
    "lsmr, norms": lambda t: np.stack([lsmr(S * t, M * t, 0.7, x0=np.ones(2), **TIGHT)[k] for k in (3, 7)]),
    "special ufuncs by name": lambda t: erf([0.5, t]).sum() + gammaln((t, 2.5)).sum() + cbrt([[-8, t]]).sum(),
    "exprel at complex": lambda t: np.sum(np.imag(sc.shichi(1.0 * t + 2j))),
    "mathieu_cem": lambda t: sc.mathieu_cem(1, 2.0, 30.0 * t)[0],
    "zeta": lambda t: sum([sc.zeta(k * t) for k in (-3.3, -1.0, -0.4, 0.3, 0.7, 1.8)]),
    "leslie": lambda t: sl.leslie([0.1 * t, 2.0, 1.0], [0.2 * t, 0.8]),
    "solve with integers": lambda t: sl.solve(A, np.array([1.0, 2.0]) * t) * t,
    "solve_sylvester with integers": lambda t: sl.solve_sylvester(A, A, np.eye(2) * t) * t,
    "np.pad, a function": lambda t: np.pad(np.arange(6.0).reshape(2, 3) * t, 2, frame, value=t**2),
    "ndarray.resize, Fortran order": resized,
    "np.isneginf, out": below,
    "np.copyto of truths": truths,
    "np.ma.allclose": lambda t: np.ma.allclose(np.ma.array([1.0, t], mask=[0, 1]), np.ma.array([1.0, 9.0])) * t,
    "chebtrim": lambda t: np.polynomial.chebyshev.chebtrim([1.0 * t, 2.0 * t, 1e-9], 1e-5),
    "RandomState": lambda t: RandomState(0).normal(t, t**2, 3),
    "multivariate_normal": lambda t: default_rng(0).multivariate_normal([t, 2 * t], COV * t, (2, 2)) * t,
    "multivariate_normal, eigh": lambda t: default_rng(0).multivariate_normal([0, t], COV * t, method="eigh"),
    "multivariate_normal, cholesky": lambda t: default_rng(0).multivariate_normal([0, t], COV * t, method="cholesky"),
    "multivariate_normal, RandomState": lambda t: RandomState(0).multivariate_normal([0, t], COV * t, 3),
    # the two kinds take other singular vectors, which shows where a change of the covariance is not symmetric
    "multivariate_normal, one side": lambda t: (
        default_rng(0).multivariate_normal([0, 1], COV * np.array([[1, t], [1, 1]]), 3)
    ),
    "multivariate_normal, RandomState, one side": lambda t: (
        RandomState(0).multivariate_normal([0, 1], COV * np.array([[1, t], [1, 1]]), 3)
    ),
    "csr_array of float indices": lambda t: csr_array((np.ones(2) * t, ([0.3 * t, 1.0], [0, 1])), (2, 2)).toarray(),
    "Covariance": lambda t: multivariate_normal.logpdf([1.0, 2.0], [t, 0.0], Covariance.from_diagonal([t, 2 * t])),
    "Covariance, precision": lambda t: multivariate_normal([t, 0], Covariance.from_precision(COV * t)).logpdf([1, 2]),
    "Covariance, captured": lambda t: multivariate_normal.logpdf([t, 2.0], cov=KNOWN) + KNOWN.whiten([t, 1.0]).sum(),
    "Covariance, cholesky": lambda t: Covariance.from_cholesky(np.linalg.cholesky(COV * t)).covariance,
    "issymmetric": lambda t: (sl.issymmetric(np.eye(2) * t) + sl.bandwidth(np.eye(2) * t)[0]) * t,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:covariance is not")
def test_usual_calls(name):
    at = 1.01
    f = lambda t: np.sum(np.cos(1.0 + np.arange(np.size(CALLS[name](1.0)))) * np.ravel(CALLS[name](t)))
    value, slope = tg.value_and_grad(f)(at)
    plain, h = f(at), 1e-5
    np.testing.assert_allclose(value, plain, rtol=1e-12)
    np.testing.assert_allclose(slope, (f(at + h) - f(at - h)) / (2 * h), rtol=2e-7, atol=1e-8)
    np.testing.assert_allclose(tg.jvp(f, (at,), (1.0,))[1], slope, rtol=1e-11, atol=1e-14)


def test_zeta_beside_multiple_precision():
    points = np.array([-7.5, -2.0, -1.0, -0.51, -0.49, 0.0, 0.4, 0.99, 1.5, 3.0])
    first, second = tg.vmap(tg.grad(sc.zeta))(points), tg.vmap(tg.grad(tg.grad(sc.zeta)))(points)
    np.testing.assert_allclose(first, [float(mpmath.zeta(s, derivative=1)) for s in points], rtol=1e-11)
    np.testing.assert_allclose(second, [float(mpmath.diff(mpmath.zeta, s, 2)) for s in points], rtol=1e-9)


def test_values_for_integers_are_refused():
    with pytest.raises(tg.errors.DroppedDerivativeError, match="insert.*float array"):
        tg.grad(lambda t: np.insert(np.arange(4), [1], [7.1 * t])[1] * t)(1.0)


def test_integers_among_floats_count_as_floats():
    def f(t):
        common = np.intersect1d(np.array([1, 2, 7]), np.array([2.0, 5.0]) * t)
        assert common.dtype == float
        return common.sum() * t

    assert tg.grad(f)(1.0) == 2.0


def test_functions_decorated_by_errstate_are_followed():
    kept = np.zeros(2)

    @np.errstate(divide="ignore")
    def keeps(x):
        kept[0] = math.sin(x)
        return kept[0] * x

    assert np.isclose(tg.grad(keeps)(1.2), np.sin(1.2) + 1.2 * np.cos(1.2)) and kept[0] == np.sin(1.2)
