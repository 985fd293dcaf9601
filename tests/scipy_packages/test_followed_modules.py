"""Functions of SciPy's smaller modules, and trees of points, against differences of the plain calls."""

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.constants
import scipy.differentiate
import scipy.spatial
import scipy.stats
from _modes import differences

import tapegrad as tg
from tapegrad.errors import BatchError, NoRuleError

A, B = [np.random.default_rng(k).normal(size=(6, 3)) for k in (0, 1)]
TREE = scipy.spatial.KDTree(B)


def unit(v):
    return v / np.linalg.norm(v)


def registration(a):
    """A step of matching points to the nearest ones."""
    moved = B @ (np.eye(3) + 0.01 * a[:3]) + 0.01 * a[3]
    distances, at = TREE.query(moved)
    return np.sum(distances**2) + np.sum((moved - B[at]) ** 2)


CALLS = {
    "procrustes": lambda a: scipy.spatial.procrustes(a, B)[2],
    "geometric_slerp": lambda a: scipy.spatial.geometric_slerp(
        unit(a[0]), unit(B[0]), np.array([0.3, 0.5])
    ).sum(),
    "minkowski_distance": lambda a: scipy.spatial.minkowski_distance(a, B).sum(),
    "minkowski_distance_p": lambda a: scipy.spatial.minkowski_distance_p(a, B, 3).sum(),
    "distance_matrix": lambda a: scipy.spatial.distance_matrix(a, B).sum(),
    "whiten": lambda a: scipy.cluster.vq.whiten(a)[0].sum(),
    "vq": lambda a: scipy.cluster.vq.vq(a, B)[1].sum() + scipy.cluster.vq.vq(a[:, 0], B[:, 0])[1].sum(),
    "kmeans": lambda a: scipy.cluster.vq.kmeans(a, B[:2])[1],
    "kmeans2": lambda a: scipy.cluster.vq.kmeans2(a, B[:2], minit="matrix")[0].sum(),
    "convert_temperature": lambda a: scipy.constants.convert_temperature(a, "C", "K").sum(),
    "lambda2nu": lambda a: scipy.constants.lambda2nu(a + 9).sum() * 1e-9,
    "expected_freq": lambda a: (scipy.stats.contingency.expected_freq(np.abs(a)) ** 2).sum(),
    "margins": lambda a: (scipy.stats.contingency.margins(a)[0] ** 2).sum(),
    "geometric_discrepancy": lambda a: scipy.stats.qmc.geometric_discrepancy(1 / (1 + np.exp(-a))),
    "scale": lambda a: scipy.stats.qmc.scale(np.full((2, 3), 0.3), a[0] - 5, a[1] + 5).sum(),
    "query": lambda a: scipy.spatial.KDTree(B).query(a)[0].sum(),
    "query of tracked points": lambda a: scipy.spatial.cKDTree(a).query(B, k=2, p=3)[0].sum(),
    "query of one place": lambda a: TREE.query(a[0], k=[1, 3])[0] @ [1.0, 2.0],
    "captured tree": registration,
}


@pytest.mark.filterwarnings("ignore:.* is deprecated in favor of:DeprecationWarning")  # by SciPy 1.18
@pytest.mark.parametrize("name", CALLS)
def test_call(name):
    f = CALLS[name]
    want = differences(f, A, 1e-4)
    value, gradient = tg.value_and_grad(f)(A)
    np.testing.assert_allclose(value, f(A), rtol=1e-12)
    np.testing.assert_allclose(gradient, want, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(tg.jvp(f, (A,), (B,))[1], np.sum(want * B), rtol=1e-6, atol=1e-8)
    slope = (tg.grad(f)(A + 1e-5 * B) - tg.grad(f)(A - 1e-5 * B)) / 2e-5
    np.testing.assert_allclose(tg.hvp(f, A, B), slope, rtol=1e-5, atol=1e-6)
    sizes, samples = np.array([1.0, 1.0 + 1e-6]), tg.vmap(lambda s: f(A * s))
    if "query" in name or "tree" in name:  # a tree is asked for its neighbours once
        with pytest.raises(BatchError):
            samples(sizes)
    else:
        np.testing.assert_allclose(samples(sizes), [f(A * s) for s in sizes], rtol=1e-11)


@pytest.mark.skipif(not hasattr(scipy, "differentiate"), reason="of SciPy 1.15")
def test_differences_of_a_function_that_captures():
    """The derivative at 0.5 of sin(a x), by SciPy's differences, has a derivative with respect to a."""
    f = lambda a: scipy.differentiate.derivative(lambda x: np.sin(a * x), 0.5).df
    np.testing.assert_allclose(tg.grad(f)(1.3), np.cos(0.65) - 0.65 * np.sin(0.65), rtol=1e-6)
    g = lambda a: scipy.differentiate.jacobian(lambda x: np.sin(a * x), np.array([0.5])).df.sum()
    np.testing.assert_allclose(tg.grad(g)(1.3), np.cos(0.65) - 0.65 * np.sin(0.65), rtol=1e-6)


def test_plain_trees_stay_whole():
    def f(x):
        tree = scipy.spatial.KDTree(B)
        assert isinstance(tree, scipy.spatial.KDTree) and tree.n == 6 and (tree.data == B).all()
        near = tree.query_ball_point(x[0], 2.0)
        assert near == TREE.query_ball_point(A[0], 2.0)
        assert tree.query_pairs(1.5) == TREE.query_pairs(1.5)
        assert tree.count_neighbors(scipy.spatial.KDTree(A), 1.0) == TREE.count_neighbors(
            scipy.spatial.KDTree(A), 1.0
        )
        distances, _ = tree.query(A, k=7)
        return x[near].sum() if len(near) else distances[0, 0] * x.sum()

    assert np.isfinite(tg.grad(f)(A)).all()


def test_no_neighbour_is_infinitely_far():
    def f(x):
        distances, at = TREE.query(x, distance_upper_bound=0.8)
        assert (at == 6).any() and np.isinf(distances[at == 6]).all()
        return np.sum(np.where(np.isinf(distances), 0.0, distances))

    np.testing.assert_allclose(tg.grad(f)(A), differences(f, A, 1e-4), rtol=1e-6, atol=1e-8)


def test_what_is_refused():
    with pytest.raises(NoRuleError, match="sparse_distance_matrix"):
        tg.grad(lambda x: scipy.spatial.KDTree(x).sparse_distance_matrix(TREE, 2.0).sum())(A)
    with pytest.raises(NoRuleError, match="discrepancy"):
        tg.grad(lambda x: scipy.stats.qmc.discrepancy(1 / (1 + np.exp(-x))))(A)
    with pytest.raises(ValueError, match="must have same number of columns|columns|same"):
        tg.grad(lambda x: scipy.spatial.procrustes(x, B[:, :2])[2])(A)


def test_names_of_other_modules_keep_their_rules():
    """`scipy.stats.contingency` has `power_divergence` among its names, which is that of scipy.stats."""
    tg.stats.contingency  # noqa: B018 (it is made)
    f = lambda a: scipy.stats.power_divergence(a, np.full(6, a.mean()), lambda_="cressie-read")[0]
    a = np.abs(A[:, 0]) + 1.0
    np.testing.assert_allclose(tg.grad(f)(a), differences(f, a, 1e-4), rtol=1e-7)
    g = lambda a: scipy.stats.chi2_contingency(np.abs(a) + 1.0)[0]
    np.testing.assert_allclose(tg.grad(g)(A), differences(g, A, 1e-4), rtol=1e-6, atol=1e-8)
