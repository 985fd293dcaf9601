"""Trees of points: neighbours are found by values, their distances and the points have derivatives."""

import numpy as np
import pytest
from scipy.spatial import KDTree, cKDTree

import tapegrad as tg

rng = np.random.default_rng(0)
POINTS, PLACES = rng.normal(size=(12, 3)), rng.normal(size=(4, 3))
KEPT = KDTree(POINTS)


def finite(d):
    return np.sum(np.where(np.isfinite(d), d, 0.0) ** 1.5)


PROGRAMS = {
    "tracked points": lambda kind, x: finite(kind(x).query(PLACES, 3)[0]),
    "one neighbour": lambda kind, x: finite(kind(x).query(PLACES)[0]),
    "some too far": lambda kind, x: finite(kind(POINTS).query(x, k=4, distance_upper_bound=1.1)[0]),
    "sums of amounts": lambda kind, x: finite(kind(POINTS).query(x, k=2, p=1)[0]),
    "largest amounts": lambda kind, x: finite(kind(POINTS).query(x, k=2, p=np.inf)[0]),
    "periodic": lambda kind, x: finite(kind(np.mod(x, 1.5), boxsize=1.5).query(np.mod(PLACES, 1.5), k=2)[0]),
    "one place": lambda kind, x: finite(kind(POINTS).query(x[0], k=2)[0]),
    "a kept tree": lambda kind, x: finite(KEPT.query(x, k=2)[0]) + np.sum(KEPT.data[: len(x)] * x),
    "its points": lambda kind, x: np.sum(kind(x).data ** 2) + np.sum(kind(x).maxes),
    "in a ball": lambda kind, x: sum([np.sum(x[i] ** 2) for i in kind(x).query_ball_point(PLACES[0], 1.5)]),
    "pairs": lambda kind, x: sum([np.sum((x[i] - x[j]) ** 2) for i, j in kind(x).query_pairs(1.0)]),
    "counts": lambda kind, x: np.sum(x) * kind(x).count_neighbors(kind(POINTS), 1.0) / kind(x).n,
    "its class": lambda kind, x: np.sum(x) * isinstance(kind(x), kind),
}


@pytest.mark.parametrize("kind", [KDTree, cKDTree])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_derivatives_of_trees(program, kind):
    f, v = lambda x: program(kind, x), rng.normal(size=POINTS.shape)
    value, gradient = tg.value_and_grad(f)(POINTS)
    assert float(value) == pytest.approx(f(POINTS), rel=1e-12)
    slope = (f(POINTS + 1e-6 * v) - f(POINTS - 1e-6 * v)) / 2e-6
    assert np.sum(gradient * v) == pytest.approx(slope, rel=1e-6)
    assert float(tg.jvp(f, (POINTS,), (v,))[1]) == pytest.approx(slope, rel=1e-6)


def test_tracked_weights_are_refused():
    f = lambda x: KEPT.count_neighbors(KEPT, 1.0, 2.0, (x, x))
    with pytest.raises(tg.errors.TapegradError):
        tg.grad(f)(np.ones(12))
    with pytest.raises(tg.errors.NoRuleError, match="query"):
        tg.grad(lambda x: KDTree(x).sparse_distance_matrix(KEPT, 1.0).sum())(POINTS)
