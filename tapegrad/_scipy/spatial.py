"""scipy.spatial: distances of vectors, and between all rows of arrays; trees of points; rotations."""

from typing import Any

import numpy as plain_np
import scipy.spatial
import scipy.spatial.distance as sd

from .. import numpy as np
from .._core.arrays import xp_of
from .._core.primitive import primal_of
from ..ops.declare import dtype, ndim, shape
from ..ops.linalg.norms import scipy_norm
from ..ops.nondifferentiable import holds_somewhere
from ..ops.protocols import store
from . import rotations
from .followed import Follower, FunctionOverlay
from .namespaces import (
    Carrier,
    CarrierType,
    SciPyNamespace,
    as_float_array,
    bare,
    clip_rounding,
    constant_like,
    holds_tracked,
    present,
    refusal_text,
    tracked_among,
    with_derivative_of,
)

DISTANCE = SciPyNamespace(sd)


def as_doubles(x, like=None):
    """x in double precision, in which SciPy compares all rows."""
    x = as_float_array(x, like)
    return np.astype(x, float) if dtype(x).char == "f" else x


def distance_root(s):
    """The square root, with derivative 0 where it is 0 (the norm of no difference)."""
    zero = s == 0
    return np.where(zero, 0.0, np.sqrt(np.where(zero, 1.0, s)))[()]


def length(d, p=2):
    """The p-norm along the last axis. SciPy computes that of one vector by BLAS, without overflow."""
    return scipy_norm(d, p) if ndim(d) == 1 else np.linalg.norm(d, p, -1)


def weighted_sum(v, w):
    return np.sum(v if w is None else v * w, -1)


def weighted_mean(v, w):
    return np.mean(v, -1, keepdims=True) if w is None else np.sum(v * w, -1, keepdims=True) / np.sum(w)


def normalised(w):
    return None if w is None else w / np.sum(w)


def correlation_distance(u, v, w=None, centered: bool = True):
    if centered:
        u, v = u - weighted_mean(u, w), v - weighted_mean(v, w)
    w = normalised(w)
    return 1.0 - weighted_sum(u * v, w) / (np.sqrt(weighted_sum(u * u, w)) * np.sqrt(weighted_sum(v * v, w)))


def minkowski(u, v, w=None, p=2):
    d = np.abs(u - v)
    if not holds_tracked(p) and plain_np.isinf(bare(p)):
        return np.max(d if w is None else np.where(w != 0, d, 0.0), -1)
    if w is None:
        return length(d, p)
    if not holds_tracked(p) and bare(p) == 2:
        return distance_root(weighted_sum(d * d, w))
    s = weighted_sum(d**p, w)
    zero = s == 0
    return np.where(zero, 0.0, np.where(zero, 1.0, s) ** (1.0 / p))[()]


def canberra(u, v, w=None):
    size = np.abs(u) + np.abs(v)
    return weighted_sum(np.where(size == 0, 0.0, np.abs(u - v) / np.where(size == 0, 1.0, size)), w)


def mahalanobis(u, v, VI):
    d = u - v
    return distance_root(np.sum((d @ VI) * d, -1))


def relative_entropy(a, m):
    """SciPy's `rel_entr`, with derivative 0 where a is 0."""
    return np.where(a == 0, 0.0, a * np.log(np.where(a == 0, 1.0, a) / np.where(m == 0, 1.0, m)))


def jensenshannon(u, v, w=None, base=None):
    p, q = u / np.sum(u, -1, keepdims=True), v / np.sum(v, -1, keepdims=True)
    m = (p + q) / 2.0
    s = np.sum(relative_entropy(p, m) + relative_entropy(q, m), -1) / 2.0
    return distance_root(s if base is None else s / np.log(base))


# name -> (u, v, ...) -> distance along the last axis
METRICS: dict[str, Any] = {
    "euclidean": lambda u, v, w=None: minkowski(u, v, w, 2),
    "sqeuclidean": lambda u, v, w=None: weighted_sum((u - v) ** 2, w),
    "cityblock": lambda u, v, w=None: weighted_sum(np.abs(u - v), w),
    "chebyshev": lambda u, v, w=None: minkowski(u, v, w, plain_np.inf),
    "minkowski": minkowski,
    "canberra": canberra,
    "braycurtis": lambda u, v, w=None: weighted_sum(np.abs(u - v), w) / weighted_sum(np.abs(u + v), w),
    "cosine": lambda u, v, w=None: correlation_distance(u, v, w, False),
    "correlation": correlation_distance,
    "seuclidean": lambda u, v, V: distance_root(np.sum((u - v) ** 2 / V, -1)),
    "mahalanobis": mahalanobis,
    "jensenshannon": jensenshannon,
}
CONSTANT = tuple(
    "dice hamming jaccard kulczynski1 rogerstanimoto russellrao sokalmichener sokalsneath yule".split()
)  # of truths, or counts
ALIASES = (
    {name: info.canonical_name for info in sd._METRIC_INFOS for name in info.aka}
    if hasattr(sd, "_METRIC_INFOS")
    else {}
)


def metric_of(metric, XA, XB, given: dict, name: str):
    if callable(metric):
        known = getattr(metric, "__name__", None)
        if known in METRICS and getattr(metric, "__module__", "").startswith("scipy.spatial"):
            metric = known
        else:
            return lambda u, v: each_pair(metric, u, v, given)
    metric = ALIASES.get(metric.lower(), metric.lower())
    if metric not in METRICS:
        raise refusal_text(
            f"{name}(metric={metric!r})",
            "it compares truths" if metric in CONSTANT else "",
            f"one of {sorted(METRICS)}",
        )
    given = dict(given)
    for key in ("w", "V", "VI"):
        if given.get(key) is not None:
            given[key] = as_float_array(given[key], XA)
    if metric == "seuclidean" and given.get("V") is None:
        both = XA if XB is None else np.concatenate([XA, XB])
        given["V"] = np.var(both, 0, ddof=1)
    if metric == "mahalanobis" and given.get("VI") is None:
        both = XA if XB is None else np.concatenate([XA, XB])
        given["VI"] = np.linalg.inv(np.cov(both.T)).T
    return lambda u, v: METRICS[metric](u, v, **given)


def each_pair(f, u, v, given: dict):
    """A function of the user's, of one pair after another; u (n, 1, d) or (pairs, d), v (1, m, d) or the
    same."""
    if ndim(u) == 2:
        return np.stack([f(u[k], v[k], **given) for k in range(shape(u)[0])])
    return np.stack(
        [np.stack([f(u[i, 0], v[0, j], **given) for j in range(shape(v)[1])]) for i in range(shape(u)[0])]
    )


@DISTANCE.rule(sd.cdist)
def cdist(XA, XB, metric="euclidean", *, out=None, **kwargs):
    like = tracked_among(XA, XB, *kwargs.values())
    a, b = as_doubles(XA, like), as_doubles(XB, like)
    if ndim(a) != 2 or ndim(b) != 2 or shape(a)[1] != shape(b)[1]:
        raise ValueError(
            "scipy.spatial.distance.cdist: XA and XB must be two-dimensional, with the same number of columns"
        )
    y = metric_of(metric, a, b, kwargs, "scipy.spatial.distance.cdist")(a[:, None, :], b[None, :, :])
    return y if out is None else store(out, y)


@DISTANCE.rule(sd.pdist)
def pdist(X, metric="euclidean", *, out=None, **kwargs):
    like = tracked_among(X, *kwargs.values())
    x = as_doubles(X, like)
    if ndim(x) != 2:
        raise ValueError("scipy.spatial.distance.pdist: A 2-dimensional array must be passed.")
    i, j = plain_np.triu_indices(shape(x)[0], 1)
    y = metric_of(metric, x, None, kwargs, "scipy.spatial.distance.pdist")(x[i], x[j])
    return y if out is None else store(out, y)


@DISTANCE.rule(sd.squareform)
def squareform(X, force="no", checks=True):
    x = as_float_array(X)
    if ndim(x) == 2:
        if shape(x)[0] != shape(x)[1] or force == "tomatrix":
            raise ValueError("scipy.spatial.distance.squareform: the matrix must be square")
        if checks and (holds_somewhere(x != x.T) or holds_somewhere(np.diagonal(x) != 0)):
            raise ValueError("scipy.spatial.distance.squareform: not symmetric with a diagonal of zeros")
        return x[plain_np.triu_indices(shape(x)[0], 1)]
    n = int(plain_np.ceil(plain_np.sqrt(shape(x)[0] * 2)))
    if n * (n - 1) != shape(x)[0] * 2 or force == "tovector":
        raise ValueError("scipy.spatial.distance.squareform: incompatible vector size")
    i, j = plain_np.triu_indices(n, 1)
    at = plain_np.zeros((n, n), int)
    at[i, j] = at[j, i] = plain_np.arange(1, shape(x)[0] + 1)
    return np.take(np.concatenate([constant_like([0.0], x), x]), at)


FOLLOWED = Follower(
    "scipy.spatial.distance",
    numpy=FunctionOverlay(np, sqrt=distance_root, clip=clip_rounding),
    rel_entr=relative_entropy,
)


def with_derivative_by_weights(run):
    """SciPy takes the root of each weight, which has no slope at 0."""

    def weighted(u, v, p=2, w=None):
        value = run(u, v, p, w)
        return with_derivative_of(primal_of(value), minkowski(u, v, w, p)) if holds_tracked(w) else value

    return weighted


FOLLOWED.decorate(sd.minkowski, with_derivative_by_weights)
for _name in METRICS:
    DISTANCE.rule(getattr(sd, _name))(FOLLOWED.function(getattr(sd, _name)))


def by_formula(metric):
    def run(u, v, w=None):
        like = tracked_among(u, v, w)
        given = [x if x is None else as_float_array(x, like) for x in (u, v, w)]
        return metric(*given)

    return run


for _name in (
    "chebyshev",
    "cosine",
):  # SciPy compares one element after the other; it goes through `correlation`
    DISTANCE.rule(getattr(sd, _name))(by_formula(METRICS[_name]))


OTHERS = (
    "is_valid_dm",
    "is_valid_y",
    "num_obs_dm",
    "num_obs_y",
    "CDistMetricWrapper",
    "PDistMetricWrapper",
    "MetricInfo",
)
DISTANCE.constant(
    *present(sd, OTHERS),
)  # fmt: skip
DISTANCE.constant(*present(sd, CONSTANT), but=("w",))


@DISTANCE.rule(sd.directed_hausdorff)
def directed_hausdorff(u, v, rng=0, **settings):
    """The distance of one pair of points."""
    like = u if holds_tracked(u) else v
    _, i, j = sd.directed_hausdorff(bare(u), bare(v), rng, **settings)
    return length(as_float_array(u, like)[i] - as_float_array(v, like)[j]), i, j


class NeighbourTree(Carrier):
    """SciPy's tree of points that may be tracked; on CuPy without a tree.  It finds neighbours by values;
    their distances have derivatives."""

    _theirs: Any
    tree: Any

    def __init__(self, data, *args, **kwargs):
        own = kwargs.get("copy_data", args[2] if len(args) > 2 else False)
        self.points, values = np.copy(data) if own else data, bare(data)
        self.tree = self._theirs(values, *args, **kwargs) if xp_of(values) is plain_np else None

    @classmethod
    def _of(cls, x, shadow):
        new = object.__new__(cls)
        new.points, new.tree = x.data, x
        return new

    def _tracked(self) -> bool:
        return holds_tracked(self.points)

    def _plain(self):
        return self.tree

    def __getattr__(self, name: str):
        """The other methods count or number points, of other trees and within distances."""
        found = getattr(object.__getattribute__(self, "tree"), name)
        return (lambda *args, **kw: found(*bare(args[:2]), *args[2:], **kw)) if callable(found) else found

    @property
    def data(self):
        return as_doubles(self.points)

    maxes = property(lambda self: np.max(self.data, 0))
    mins = property(lambda self: np.min(self.data, 0))

    def sparse_distance_matrix(self, other, *args, **kwargs):
        if holds_tracked(self, other):
            raise refusal_text("scipy.spatial.KDTree.sparse_distance_matrix", "", "tree.query(x, k)")
        return self.tree.sparse_distance_matrix(*bare((other, *args)), **kwargs)

    def query(self, x, k=1, eps=0, p=2, **settings) -> tuple:
        if self.tree is None:
            raise refusal_text(
                "scipy.spatial.KDTree", "CuPy's finds no neighbours here", "arrays of the host"
            )
        d, i = self.tree.query(bare(x), k, eps, p, **settings)
        if not holds_tracked(x, self):
            return d, i
        x, found = as_doubles(x, self.points), plain_np.isfinite(d)
        apart = np.take(as_doubles(self.points, x), plain_np.where(found, i, 0), axis=0)
        apart = apart - (x if ndim(apart) == ndim(x) else np.expand_dims(x, -2))
        box = self.tree.boxsize
        if box is not None:
            apart = apart - box * plain_np.rint(bare(apart) / plain_np.where(box > 0, box, plain_np.inf))
        return np.where(found, minkowski(apart, 0.0, p=p), plain_np.inf), i

    def query_ball_point(self, x, r, *args, **kwargs):
        x, r = bare(x), bare(r)
        if self.tree is not None:
            return self.tree.query_ball_point(x, r, *args, **kwargs)
        return (((self.points - x) ** 2).sum(-1) <= r * r).nonzero()[0].tolist()


FOLLOWED = Follower("scipy.spatial._geometric_slerp", "scipy.spatial._kdtree", "scipy.spatial._procrustes")
SPATIAL = SciPyNamespace(scipy.spatial, listed=False)
for _name in (
    "distance_matrix",
    "geometric_slerp",
    "minkowski_distance",
    "minkowski_distance_p",
    "procrustes",
):
    SPATIAL.rule(getattr(scipy.spatial, _name))(FOLLOWED.function(getattr(scipy.spatial, _name)))
KDTree, cKDTree = [
    SPATIAL.rule(kind)(
        CarrierType(kind.__name__, (NeighbourTree,), {"_theirs": kind, "__doc__": kind.__doc__})
    )
    for kind in (scipy.spatial.KDTree, scipy.spatial.cKDTree)
]
distance = DISTANCE.stand_in("tapegrad.scipy.spatial.distance")
stand_in: Any = SPATIAL.stand_in("tapegrad.scipy.spatial")
stand_in.distance, stand_in.transform = distance, rotations.stand_in
