"""Reductions, scans, order statistics, covariance, differences and integrals along an axis."""

import numpy as np
import scipy.special
from cases import case, cnormal, distinct, normal, positive, registered, unary

import tapegrad.numpy as tnp
import tapegrad.ops.reductions as r

X, Z, P, D = normal(3, 4), cnormal(2, 3), positive(3, 4), distinct(3, 4)
ZERO = X.copy()
ZERO[0, 1] = ZERO[2, 1] = ZERO[1, 3] = 0.0
HOLES = np.where(np.arange(12).reshape(3, 4) % 5 == 2, np.nan, D)
MASK = np.arange(12).reshape(3, 4) % 5 != 2
KEEP = ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 1)}, {"axis": (1, 0), "keepdims": True})


def over(name, f, x, ways=KEEP, **options):
    """A line for each way to reduce; only the first runs the variants."""
    return [
        case(f"{name} {' '.join(f'{k}={v}' for k, v in way.items())}".strip(), lambda a, way=way: f(a, **way),
        x,
             **({"kinds": ()} if n > 1 else {}) | options)
        for n, way in enumerate(ways)
    ]  # fmt: skip


LOGSUMEXP = registered(scipy.special.logsumexp)
SOFTMAX = registered(scipy.special.softmax)
LOG_SOFTMAX = registered(scipy.special.log_softmax)


CASES = [
    *over("sum", np.sum, X),
    case("sum initial", lambda x: np.sum(x, axis=0, initial=2.5), X),
    case("sum dtype", lambda x: np.sum(x, dtype=np.float64), X, kinds=("strided",)),
    case("sum where", lambda x: np.sum(x, axis=1, where=x > 0), D, numpy_only=True),
    case("sum complex", lambda z: np.sum(z, axis=1), Z),
    *over("mean", np.mean, X),
    case("mean where", lambda x: np.mean(x, axis=1, where=x > -0.9), D, numpy_only=True),
    *over("var", np.var, X),
    case("var ddof", lambda x: np.var(x, axis=1, ddof=1), X),
    case("var complex", np.var, Z),
    case("var where", lambda x: np.var(x, axis=1, where=x > -0.9), D, numpy_only=True),
    *over("std", np.std, X),
    case("std ddof", lambda x: np.std(x, axis=0, ddof=1), X),
    case("std complex", np.std, Z),
    case("std where", lambda x: np.std(x, axis=1, where=x > -0.9), D, numpy_only=True),
    case("root_sum_squares", lambda x: r.root_sum_squares(x, 1), X),
    case("root_sum_squares complex", lambda x: r.root_sum_squares(x, (0, 1), True), Z),
    case("average", lambda x: np.average(x, axis=1), X),
    case("average weights", lambda x, w: np.average(x, axis=1, weights=w), X, positive(4)),
    case("average returned", lambda x, w: np.average(x, weights=w, returned=True), X, P),
    *over("prod", np.prod, ZERO),
    case("prod of five", np.prod, normal(5)),
    case("prod initial", lambda x: np.prod(x, axis=1, initial=2.0), X),
    case("prod complex", lambda z: np.prod(z, axis=0), Z),
    case("running_sum", lambda x: r.running_sum(x, axis=1, back=True), X),
    *over("cumsum", np.cumsum, X, ({}, {"axis": 0}, {"axis": -1})),
    *over("cumprod", np.cumprod, ZERO, ({}, {"axis": 0}, {"axis": -1})),
    case("cumulative_sum", lambda x: np.cumulative_sum(x, axis=1, include_initial=True), X, numpy_only=True),
    case("cumulative_prod", lambda x: np.cumulative_prod(x, axis=1), X, numpy_only=True),
    *over("amax", np.max, D),
    *over("amin", np.min, D),
    case("amax initial", lambda x: np.max(x * x, axis=1, initial=0.3), D, numpy_only=True),
    case("highest", lambda x: r.highest(x * x, axis=0), D),
    case("lowest", lambda x: r.lowest(x * x, axis=0), D),
    *over("ptp", np.ptp, D, ({}, {"axis": 0})),
    *over("nansum", np.nansum, HOLES, ({}, {"axis": 1}), kinds=()),
    *over("nanprod", np.nanprod, HOLES, ({}, {"axis": 1}), kinds=()),
    *over("nanmean", np.nanmean, HOLES, ({}, {"axis": 1}), kinds=()),
    *over("nanvar", np.nanvar, HOLES, ({}, {"axis": 1}), kinds=()),
    *over("nanstd", np.nanstd, HOLES, ({}, {"axis": 1}), kinds=()),
    *over("nanmax", np.nanmax, HOLES, ({}, {"axis": 1}), kinds=()),
    *over("nanmin", np.nanmin, HOLES, ({}, {"axis": 1}), kinds=()),
    *over("nancumsum", np.nancumsum, HOLES, ({}, {"axis": 1}), kinds=()),
    *over("nancumprod", np.nancumprod, HOLES, ({}, {"axis": 1}), kinds=()),
    *over("logsumexp", LOGSUMEXP, X, covers=("log_sum_exp", "top_of")),
    case("logsumexp weights", lambda x, b: LOGSUMEXP(x, b=b, axis=1), X, positive(3, 4, seed=1)),
    case(
        "logsumexp sign",
        lambda x: LOGSUMEXP(x, b=np.array([[1.0], [-1.0], [2.0]]), axis=0, return_sign=True),
        X,
        numpy_only=True,
    ),
    case("softmax", lambda x: SOFTMAX(x, axis=1), X, covers=("weights_of",)),
    case("log_softmax", lambda x: LOG_SOFTMAX(x, axis=1), X, covers=("log_weights_of",)),
    # order statistics
    *over("median", np.median, D),
    case("median of five", np.median, distinct(5)),
    *over("quantile", lambda x, **way: np.quantile(x, 0.3, **way), D),
    case("quantile vector", lambda x: np.quantile(x, [0.1, 0.5, 0.85], axis=1), D, numpy_only=True),
    *[
        case(f"quantile {m}", lambda x, m=m: np.quantile(x, 0.4, method=m), D)
        for m in ("lower", "higher", "midpoint", "nearest")
    ],
    case("percentile", lambda x: np.percentile(x, 80, axis=0), D),
    *over("nanmedian", np.nanmedian, HOLES, ({}, {"axis": 1}, {"axis": 0, "keepdims": True}), kinds=()),
    case("nanquantile", lambda x: np.nanquantile(x, 0.3, axis=1), HOLES, kinds=()),
    case("nanpercentile", lambda x: np.nanpercentile(x, 80, axis=0), HOLES, kinds=()),
    # several variables
    case("cov", np.cov, X),
    case(
        "histogram",
        lambda w: tnp.histogram([0.0, 2.1, 2.3, 1.2], 3, weights=w[0])[0] ** 2,
        X,
        numpy_only=True,
        kinds=("strided",),
    ),
    case(
        "bincount",
        lambda x: tnp.bincount(np.array([0, 2, 2, 1]), x[0], minlength=5) ** 2,
        X,
        numpy_only=True,
        kinds=("strided",),
    ),
    case("cov of two", lambda x, y: np.cov(x, y, ddof=0), normal(5), normal(5, seed=1)),
    case("cov columns", lambda x: np.cov(x, rowvar=False, bias=True), X),
    case(
        "cov weights",
        lambda x: np.cov(x, fweights=np.array([1, 2, 1, 3]), aweights=np.array([0.5, 1.0, 2.0, 1.0])),
        X,
        numpy_only=True,
    ),
    case("corrcoef", np.corrcoef, X),
    # along an axis
    case("ediff1d", lambda x: np.ediff1d(x, to_begin=0.0), X, numpy_only=True),
    case("trapezoid", lambda y: np.trapezoid(y, dx=0.5, axis=0), X),
    case("trapezoid over x", np.trapezoid, X, np.cumsum(positive(4))),
    case("gradient", lambda x: np.gradient(x), X, covers=("gradient",)),
    case("gradient spacing", lambda x: np.gradient(x, 0.5, axis=1, edge_order=2), X),
    case(
        "gradient coordinates",
        lambda x, h: np.gradient(x, h, axis=1, edge_order=2),
        X,
        np.cumsum(positive(4)),
        numpy_only=True,
    ),
    # no derivative
    case("argmax", lambda x: (np.argmax(x, axis=1), np.argmin(x), 0.0 * x.sum()), D, order=0, kinds=()),
    case(
        "any",
        lambda x: (np.any(x > 0, axis=1), np.all(x), np.count_nonzero(x), 0.0 * x.sum()),
        D,
        order=0,
        kinds=(),
    ),
    unary("isclose", lambda x: np.isclose(x, 0.11), D, order=0, kinds=()),
]
