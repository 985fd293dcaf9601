"""Statistics of samples, tests of hypotheses and estimated densities, under the names of scipy.stats.

They are SciPy's own Python code, followed.  What is compiled in it has a rule here."""

import math
from typing import Any

import numpy as np
import scipy.stats
from scipy.stats import _morestats, _stats, _stats_pythran

from .._core.primitive import values_of
from .._dispatch.faces import is_function
from ..ops import reductions as red
from ..ops.declare import shape
from ..ops.elementwise import absolute, arcsin, exp, log, log1p, sqrt, square
from ..ops.linalg.factorizations import solve_triangular
from ..ops.names import WHY
from ..ops.piecewise import maximum
from ..ops.products import matmul
from ..ops.shaping import stack
from ..ops.sorting import sort
from ..ops.special.error_functions import ndtr, ndtri
from ..ops.statistics import median
from .followed import Follower
from .namespaces import SciPyNamespace

STATS = SciPyNamespace(scipy.stats, listed=False)
FOLLOWED = Follower("scipy.stats")

# --- what is compiled in SciPy's code ---

ROYSTON = (  # polynomials, by the lowest power first: Royston, Applied Statistics 44, 1995
    (0.0, 0.221157, -0.147981, -2.07119, 4.434685, -2.706056),
    (0.0, 0.042981, -0.293762, -1.752461, 5.682633, -3.582633),
    (0.544, -0.39978, 0.025054, -6.714e-4),
    (1.3822, -0.77857, 0.062767, -0.0020322),
    (-1.5861, -0.31082, -0.083751, 0.0038915),
    (-0.4803, -0.082676, 0.0030302),
)


def royston_weights(n: int) -> np.ndarray:
    """Of the order statistics: those of the scores of a normal sample, with the outermost by two
    polynomials."""
    if n == 3:
        return math.sqrt(0.5) * np.array([-1.0, 0.0, 1.0])
    m = np.asarray(ndtri((np.arange(1, n + 1) - 0.375) / (n + 0.25)))
    size, u = m @ m, 1.0 / math.sqrt(n)
    a = m.copy()
    a[-1] = m[-1] / math.sqrt(size) + np.polyval(ROYSTON[0][::-1], u)
    if n > 5:
        a[-2] = m[-2] / math.sqrt(size) + np.polyval(ROYSTON[1][::-1], u)
    outer = 2 if n > 5 else 1
    kept = (size - 2.0 * m[-outer:] @ m[-outer:]) / (1.0 - 2.0 * a[-outer:] @ a[-outer:])
    a[outer:-outer] = m[outer:-outer] / math.sqrt(kept)
    a[:outer] = -a[-outer:][::-1]
    return a


def shapiro(x: Any) -> tuple:
    """The statistic of Shapiro and Wilk, and its p-value."""
    n = shape(x)[0]
    if n < 3:
        raise ValueError("Data must be at least length 3.")
    e = sort(x) - red.mean(x)
    w = square(red.sum(royston_weights(n) * e)) / red.sum(square(e))
    if n == 3:
        return w, maximum(6.0 / math.pi * (arcsin(sqrt(w)) - math.asin(math.sqrt(0.75))), 0.0)
    z = log1p(-w)
    if n <= 11:
        z, at = -log(0.459 * n - 2.273 - z), n
    else:
        at = math.log(n)
    mean, deviation = [np.polyval(c[::-1], at) for c in (ROYSTON[2:4] if n <= 11 else ROYSTON[4:])]
    return w, ndtr(-(z - mean) / math.exp(deviation))


def repeated_medians(y: Any, x: Any, method: str) -> tuple:
    """`siegelslopes`: slope and intercept."""
    apart = np.subtract.outer(*[np.asarray(values_of(x))] * 2) != 0
    others = [np.nonzero(row)[0] for row in apart]
    slope = median(stack([median((y[k] - y[j]) / (x[k] - x[j])) for j, k in enumerate(others)]))
    if method == "hierarchical":
        return slope, median(y - slope * x)
    return slope, median(stack([median((y[k] * x[j] - y[j] * x[k]) / (x[j] - x[k])) for j, k in enumerate(others)]))


class KernelEstimate:
    """`gaussian_kernel_estimate[spec]` of points (n, d), values (n, p), places (m, d) and a Cholesky factor."""

    def __init__(self, logarithm: bool):
        self.logarithm = logarithm

    def __getitem__(self, spec: str) -> "KernelEstimate":
        return self

    def __call__(self, points: Any, values: Any, places: Any, factor: Any, *_: Any) -> Any:
        u, v = [solve_triangular(factor, x.T, 0, True).T for x in (points, places)]
        front = red.sum(log(red.sum(factor * np.eye(shape(factor)[0]), 1))) + 0.5 * shape(factor)[0] * math.log(2.0 * math.pi)
        far = -0.5 * red.sum(square(v[:, None] - u), 2) - front
        if not self.logarithm:
            return matmul(exp(far), values)
        return red.logsumexp(far[:, :, None] + log(values), 1)


FOLLOWED.leaf(_stats.gaussian_kernel_estimate, KernelEstimate(False))
FOLLOWED.leaf(_stats.gaussian_kernel_estimate_log, KernelEstimate(True))
FOLLOWED.leaf(scipy.stats.shapiro.__wrapped__, lambda x: _morestats.ShapiroResult(*shapiro(x)))
FOLLOWED.leaf(_stats_pythran.siegelslopes, repeated_medians)


# --- what is followed ---

OF_FUNCTIONS = {
    "binned_statistic", "binned_statistic_2d", "binned_statistic_dd", "cramervonmises", "ks_1samp", "kstest", "median_abs_deviation"
}  # fmt: skip
for _name in dir(scipy.stats):
    _f = getattr(scipy.stats, _name)
    if _name in WHY["scipy.stats"]:
        STATS.refuse(WHY["scipy.stats"][_name], "", _f)
    elif is_function(_f):
        STATS.rule(_f, of_functions=_name in OF_FUNCTIONS)(FOLLOWED.function(_f))
STATS.rule(scipy.stats.gaussian_kde)(FOLLOWED.klass(scipy.stats.gaussian_kde))
