"""Options, dtypes and results of SciPy that random calls found: each against SciPy's own values."""

import warnings

import numpy as np
import pytest
import scipy.interpolate as itp
import scipy.signal as sig
import scipy.sparse as sps
import scipy.spatial as spatial
import scipy.spatial.distance as sd
import scipy.special as sp
import scipy.stats as stats
from scipy.sparse import csgraph

import tapegrad as tg

rng = np.random.default_rng(0)
X, Y, V = rng.normal(size=(3, 9))
POINTS = rng.normal(size=(4, 3)).astype(np.float32) + np.float32(1e3)


def test_lombscargle_takes_the_mean_off():
    f = lambda y: sig.lombscargle(np.arange(9.0), y, [0.7, 1.9], precenter=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        value, slope = tg.jvp(f, (Y + 3.0,), (V,))
        np.testing.assert_allclose(value, f(Y + 3.0), rtol=1e-12)
        np.testing.assert_allclose(slope, (f(Y + 3.0 + V) - f(Y + 3.0 - V)) / 2, rtol=1e-10)


@pytest.mark.parametrize(
    "f",
    [
        sd.pdist,
        lambda x: sd.cdist(x, x[:2] + 1, "sqeuclidean"),
        lambda x: spatial.KDTree(x).query(x[:2] + 1)[0],
        lambda x: spatial.KDTree(x).data,
    ],
    ids=["pdist", "cdist", "KDTree", "data"],
)
def test_distances_of_single_precision_are_double(f):
    value = tg.jvp(f, (POINTS,), (POINTS,))[0]
    assert value.dtype == f(POINTS).dtype == np.float64
    np.testing.assert_allclose(value, f(POINTS), rtol=1e-12)


@pytest.mark.parametrize(
    "f",
    [
        lambda y: stats.linregress(X, y),
        lambda y: stats.ttest_1samp(y, 0.3),
        lambda y: stats.ttest_ind(X, y, equal_var=False),
        lambda y: stats.pearsonr(X, y),
    ],
    ids=["linregress", "ttest_1samp", "ttest_ind", "pearsonr"],
)
def test_results_with_more_attributes_than_fields_are_returned(f):
    value, slope = tg.jvp(f, (Y,), (V,))
    assert value._fields == f(Y)._fields
    np.testing.assert_allclose(value, f(Y), rtol=1e-10)
    differences = (np.array(f(Y + 1e-6 * V)) - np.array(f(Y - 1e-6 * V))) / 2e-6
    np.testing.assert_allclose(np.array(slope), differences, rtol=1e-6, atol=1e-8)


def test_the_integral_of_a_fitted_spline_is_a_number():
    kinds = []

    def f(y):
        area = itp.UnivariateSpline(np.arange(9.0), y, s=0).integral(0.5, 3.0)
        kinds.append(isinstance(area, np.ndarray))
        return area

    f(Y), tg.grad(f)(Y)
    assert kinds == [False, False]


def test_scaled_airy_functions():
    z = np.array([-0.7, 0.3, 2.0])
    f = lambda z: sp.airye(z)[2]  # (of Bi; for z < 0 the scale is 1)
    ai, dai, bi, dbi = sp.airy(z)
    scale = np.exp(-2 / 3 * np.maximum(z, 0.0) ** 1.5)
    np.testing.assert_allclose(
        tg.jvp(f, (z,), (np.ones(3),))[1], (dbi - np.sqrt(np.maximum(z, 0.0)) * bi) * scale, rtol=1e-12
    )
    with pytest.raises(tg.errors.NoRuleError, match="complex"):
        tg.jvp(f, (z + 0.5j,), (np.ones(3) + 0j,))


ADJACENCY = np.exp(np.cos(np.arange(9.0))).reshape(3, 3)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.einsum("i,ij->j", x, ADJACENCY, order="C"),
        lambda x: np.linalg.lstsq(ADJACENCY[:, :2] * x[:, None], x**2, 1)[0],  # (LAPACK takes its own limit)
        lambda x: csgraph.laplacian(ADJACENCY * x, normed=True),
        lambda x: csgraph.laplacian(sps.csr_array(ADJACENCY * x)).toarray(),
        lambda x: x[0] * csgraph.connected_components(sps.csr_array(ADJACENCY * x))[0],
        lambda x: x * stats.binom.ppf(0.3, 9, 0.2 * x) + stats.nbinom.isf(0.3, 9, 0.2 * x),
    ],
    ids=["einsum", "lstsq", "laplacian", "sparse laplacian", "components", "binom"],
)
def test_calls_of_packages(f):
    x, v = np.array([0.7, 1.1, 1.4]), np.array([0.3, -0.2, 0.5])
    weights = np.cos(np.arange(float(np.size(f(x))))).reshape(np.shape(f(x)))
    total = lambda x: np.sum(weights * f(x))
    value, gradient = tg.value_and_grad(total)(x)
    assert value == pytest.approx(total(x), rel=1e-12)
    slope = (total(x + 1e-6 * v) - total(x - 1e-6 * v)) / 2e-6
    assert gradient @ v == pytest.approx(slope, rel=1e-7)
    assert tg.jvp(total, (x,), (v,))[1] == pytest.approx(slope, rel=1e-7)


def test_a_tracked_index_of_a_sparse_matrix_raises():
    with pytest.raises(tg.errors.DroppedDerivativeError):
        tg.grad(lambda x: np.sum(sps.csr_array(ADJACENCY * x)[np.array([1.0, 2.0]) * x].toarray()))(1.0)
