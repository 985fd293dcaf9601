"""Statistics of samples, tests of hypotheses and estimated densities, under the names of scipy.stats.

They are SciPy's own Python code, followed.  What is compiled in it has a rule here."""

import functools
import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.stats
from scipy.special import _spfun_stats, _ufuncs
from scipy.stats import _axis_nan_policy, _morestats, _stats, _stats_pythran

from .. import numpy as faces
from .._core.errors import NoRuleError, SingularError
from .._core.primitive import primal_of, values_of
from .._dispatch.faces import is_function
from ..ops import reductions as red
from ..ops.declare import shape
from ..ops.elementwise import absolute, arcsin, cos, exp, log, log1p, select, sin, sqrt, square
from ..ops.linalg.factorizations import solve_triangular
from ..ops.names import WHY
from ..ops.nondifferentiable import holds_somewhere
from ..ops.piecewise import maximum
from ..ops.shaping import concatenate, stack
from ..ops.sorting import sort
from ..ops.special.bessel_relatives import ive
from ..ops.special.declare import valued
from ..ops.special.error_functions import entr, ndtr, ndtri
from ..ops.special.integrals import boxcox, boxcox1p
from ..ops.statistics import median
from ..stats._families import CALLS, log1mexp
from .array_api import array_api
from .followed import Follower, FunctionOverlay
from .namespaces import SciPyNamespace, as_float_array, clip_rounding, with_derivative_of

STATS = SciPyNamespace(scipy.stats, listed=False)


def blas_function(name: str, *_):
    """`get_blas_funcs` of the one function that scipy.stats calls."""
    if name != "trsm":
        raise NoRuleError(f"scipy.linalg.blas.{name} has no derivative rule in tapegrad")
    return lambda alpha, a, b, side=0, lower=0: alpha * solve_triangular(a, b, 0, bool(lower))


def entropy_term(p):
    """`entr` of a density: where that vanishes, so does its part of the derivative of the entropy."""
    positive = primal_of(p) > 0
    return select(positive, entr(select(positive, p, 1.0)), 0.0 * p)


class StatisticsFollower(Follower):
    def face(self, x):
        """The laws have SciPy's private methods, too."""
        ours = super().face(x)
        return followed_law(ours) if hasattr(type(ours), "theirs") else ours


# (shapes are no arrays, and lie on no device)
FOLLOWED = StatisticsFollower(
    "scipy.stats",
    get_blas_funcs=blas_function,
    entr=entropy_term,
    _broadcast_shapes=_axis_nan_policy._broadcast_shapes,
)
FOLLOWED.given.update(array_api(FunctionOverlay(faces, clip=clip_rounding)))  # on the host

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


def shapiro(x) -> tuple:
    """The statistic of Shapiro and Wilk, and its p-value."""
    n = shape(x)[0]
    if n < 3:
        raise ValueError("Data must be at least length 3.")
    ordered = sort(x)
    if holds_somewhere(ordered[-1:] - ordered[:1] < 1e-19):
        raise SingularError("scipy.stats.shapiro: the sample is constant; the statistic has no derivative")
    e = ordered - red.mean(x)
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


def repeated_medians(y, x, method: str) -> tuple:
    """`siegelslopes`: slope and intercept."""
    apart = np.subtract.outer(*[np.asarray(values_of(x))] * 2) != 0
    others = [np.nonzero(row)[0] for row in apart]
    slope = median(stack([median((y[k] - y[j]) / (x[k] - x[j])) for j, k in enumerate(others)]))
    if method == "hierarchical":
        return slope, median(y - slope * x)
    return slope, median(
        stack([median((y[k] * x[j] - y[j] * x[k]) / (x[j] - x[k])) for j, k in enumerate(others)])
    )


def log_kernels(points, values, places, factor, *_):
    """`gaussian_kernel_estimate_log` of points (n, d), values (n, p), places (m, d) and a Cholesky factor."""
    d = shape(factor)[0]
    u, v = [solve_triangular(factor, x.T, 0, True).T for x in (points, places)]
    front = red.sum(log(red.sum(factor * np.eye(d), 1))) + 0.5 * d * math.log(2.0 * math.pi)
    far = -0.5 * red.sum(square(v[:, None] - u), 2) - front
    return red.logsumexp(far[:, :, None] + log(values), 1)


def von_mises_cdf(kappa, x):
    """By the Fourier series of the density; from kappa = 50 on by a normal law, as SciPy has it."""
    wide, turns = primal_of(kappa) >= 50.0, np.rint(primal_of(x) / (2.0 * math.pi))
    x = x - 2.0 * math.pi * turns
    n, k, t = np.arange(1.0, 90.0), select(wide, 1.0, kappa)[..., None], x[..., None]
    series = 0.5 + (x + 2.0 * red.sum(ive(n, k) / ive(0.0, k) * sin(n * t) / n, -1)) / (2.0 * math.pi)
    return turns + select(wide, ndtr(math.sqrt(2.0 / math.pi) / ive(0.0, kappa) * sin(0.5 * x)), series)


def poisson_binomial(k: np.ndarray, p, kind: str):
    """The coefficients of the product of 1 - p[j] + p[j] t, or their sums."""
    y, zero = np.ones((1, *shape(p)[1:])), np.zeros((1, *shape(p)[1:]))
    for j in range(shape(p)[0]):
        y = concatenate(y * (1.0 - p[j]), zero) + concatenate(zero, y * p[j])
    return (red.cumsum(y, 0) if kind == "cdf" else y)[k, np.arange(len(k))]


OLD_INTEGRALS: Any = getattr(scipy.stats, "_mvn", None)  # of SciPy 1.15


def old_tail(h: float, k: float, r: float) -> Any:
    return OLD_INTEGRALS.mvnun([h, k], [math.inf] * 2, [0.0, 0.0], [[1.0, r], [r, 1.0]])[0]


BIVARIATE_TAIL: Any = next(
    (
        getattr(module, name)
        for module, name in ((_stats_pythran, "_bvnu"), (_ufuncs, "_bivariate_normal_cdf"))
        if hasattr(module, name)
    ),
    old_tail,
)
HALF_NODES, HALF_WEIGHTS = [v / 2 for v in np.polynomial.legendre.leggauss(64)]  # on (-1/2, 1/2)


def bivariate_tail(h, k, r):
    """P(X > h, Y > k) of standard normal X and Y with correlation r, by Plackett's formula: the integral of
    exp(-(h^2 - 2 h k sin(t) + k^2) / (2 cos(t)^2)) / (2 pi) over t from 0 to arcsin(r), and the product of
    the tails (Biometrika 41, 1954).  The value is SciPy's."""
    plain = [float(values_of(v)) for v in (h, k, r)]
    value = float(BIVARIATE_TAIL(*plain))
    if math.inf in plain[:2]:
        return 0.0
    if -math.inf in plain[:2]:
        return ndtr(-(k if plain[0] == -math.inf else h))
    angle = arcsin(r)
    t = angle * (HALF_NODES + 0.5)
    density = exp(-(h * h - 2.0 * h * k * sin(t) + k * k) / (2.0 * square(cos(t))))
    y = ndtr(-h) * ndtr(-k) + angle * red.sum(HALF_WEIGHTS * density) / (2.0 * math.pi)
    if not abs(float(values_of(y)) - value) <= 1e-11:
        raise NoRuleError(
            f"scipy.stats.multivariate_normal.cdf: the correlation {plain[2]!r} is too near to 1 or -1 for a "
            "derivative"
        )
    return with_derivative_of(value, y)


def rectangle(lower, upper, mean, cov, *_):
    """The probability of a rectangle under a normal law of two variables, and the state of success."""
    if shape(cov) != (2, 2):
        raise NoRuleError("scipy.stats.multivariate_normal.cdf has no derivative beyond two variables")
    scales = [sqrt(cov[n, n]) for n in (0, 1)]
    r = cov[0, 1] / (scales[0] * scales[1])
    (a, b), (c, d) = [[(x[n] - mean[n]) / scales[n] for x in (lower, upper)] for n in (0, 1)]
    corners = (1, a, c), (-1, b, c), (-1, a, d), (1, b, d)
    return sum([sign * bivariate_tail(h, k, r) for sign, h, k in corners]), 0


FOLLOWED.leaf(scipy.stats.shapiro.__wrapped__, lambda x: _morestats.ShapiroResult(*shapiro(x)))
FOLLOWED.leaf(_stats_pythran.siegelslopes, repeated_medians)
FOLLOWED.leaf(_stats.gaussian_kernel_estimate, lambda *args: exp(log_kernels(*args)))
FOLLOWED.leaf(_stats.gaussian_kernel_estimate_log, log_kernels)
FOLLOWED.leaf(_stats.von_mises_cdf, von_mises_cdf)
if hasattr(_ufuncs, "_log1mexp"):
    FOLLOWED.leaf(_ufuncs._log1mexp, log1mexp)
for _module, _name, _rule in (  # of SciPy 1.15; the next two: up to 1.17; the others: from 1.18 on
    (OLD_INTEGRALS, "mvnun", rectangle),
    (_stats_pythran, "_bvnu", bivariate_tail),
    (_stats_pythran, "_poisson_binom", poisson_binomial),
    (_ufuncs, "_bivariate_normal_cdf", bivariate_tail),
    (_spfun_stats, "_poisson_binom_pmf", lambda k, p: poisson_binomial(k, p.T, "pmf")),
    (_spfun_stats, "_poisson_binom_cdf", lambda k, p: poisson_binomial(k, p.T, "cdf")),
):
    if hasattr(_module, _name):
        FOLLOWED.leaf(getattr(_module, _name), _rule)


def line_of_best_fit(run):
    """SciPy sets the correlation of points on a line to 1 or -1, which has no second derivative."""

    def linregress(x, y, alternative="two-sided"):
        found = run(x, y, alternative)
        r = primal_of(found.rvalue)
        if not holds_somewhere(absolute(r) == 1.0):
            return found
        r = with_derivative_of(r, faces.corrcoef(x, y)[0, 1])
        return type(found)(*found[:2], r, *found[3:], intercept_stderr=found.intercept_stderr)

    return linregress


FOLLOWED.decorate(scipy.stats.linregress, line_of_best_fit)


def yeo_johnson(x, lmbda, xp=None):
    up = primal_of(x) >= 0
    return select(up, boxcox1p(select(up, x, 0.0), lmbda), -boxcox1p(select(up, 0.0, -x), 2.0 - lmbda))


def box_cox_likelihood(run):
    """With the transform that is smooth in its parameter at 0."""

    def boxcox_llf(data, axis=0, *, lmb):
        if primal_of(lmb) != 0:
            return run(data, axis, lmb=lmb)
        spread = log(red.var(boxcox(data, lmb), axis))
        return (lmb - 1) * red.sum(log(data), axis) - 0.5 * shape(data)[axis] * spread

    return boxcox_llf


FOLLOWED.leaf(_morestats._yeojohnson_transform, yeo_johnson)
if hasattr(_morestats, "_boxcox_llf"):
    FOLLOWED.decorate(inspect.unwrap(_morestats._boxcox_llf), box_cox_likelihood)
else:  # before SciPy 1.17

    def by_parameter(run):
        f = box_cox_likelihood(lambda data, axis, lmb: run(lmb, data))
        return lambda lmb, data: f(as_float_array(data), lmb=lmb)

    FOLLOWED.decorate(inspect.unwrap(_morestats.boxcox_llf), by_parameter)

# --- what is followed ---

OF_FUNCTIONS = {
    "binned_statistic", "binned_statistic_2d", "binned_statistic_dd", "cramervonmises", "ks_1samp", "kstest",
    "median_abs_deviation"
}  # fmt: skip
for _name in dir(scipy.stats):
    _f = getattr(scipy.stats, _name)
    if _name in WHY["scipy.stats"]:
        STATS.refuse(WHY["scipy.stats"][_name], "", _f)
    elif is_function(_f):
        STATS.rule(_f, of_functions=_name in OF_FUNCTIONS)(FOLLOWED.function(_f))
STATS.rule(scipy.stats.gaussian_kde)(FOLLOWED.klass(scipy.stats.gaussian_kde))
STATS.rules[scipy.stats.gaussian_kde]._plain_by_library = True


def derived(c: type) -> list:
    """The class and all that are derived of it, bases first."""
    return [c, *itertools.chain.from_iterable(map(derived, c.__subclasses__()))]


_LAWS = [c for c in scipy.stats.Normal.__mro__ if c.__module__ == scipy.stats.make_distribution.__module__][
    -1
]
for _f in (*derived(_LAWS), *derived(scipy.stats.Covariance), scipy.stats.CensoredData):
    if _f.__module__.startswith("scipy.stats."):
        STATS.rule(_f)(FOLLOWED.klass(_f))


# --- the methods of laws that have no rule ---


def raw_moment(law, library: Callable, order: int, *args, **given):
    """E[X**order].  SciPy's own method asks whether loc is 0, and then has no derivative with respect to it."""
    shapes, loc, scale = law._parse_args(*args, **given)
    moments = [1.0, *[library(law, k, *shapes) for k in range(1, order + 1)]]
    return sum([math.comb(order, k) * loc ** (order - k) * scale**k * m for k, m in enumerate(moments)])


def shares(law, library: Callable, n, p) -> tuple:
    """The parameters of `multinomial`, and where they are none.  SciPy sets the last share to what the others
    leave, once that differs by rounding errors."""
    n, p, bad = library(law, n, p)
    others, last = p[..., :-1], p[..., -1:]
    rest = valued(1.0 - red.sum(others, -1, keepdims=True), primal_of(last))
    return n, concatenate(others, rest, axis=-1), bad


def fitted(law, library: Callable, data, *args, **given):
    """The fit.  SciPy's laws send censored data to `super(type(self), self)`, which would be themselves."""
    censored = isinstance(data, STATS.rules[scipy.stats.CensoredData])
    fit = FOLLOWED.klass(scipy.stats.rv_continuous).fit if censored else library
    return fit(law, data, *args, **given)


@functools.cache
def formula(name: str, call: str):
    """The method of SciPy's law that computes a function of the standardised value, followed."""
    return getattr(FOLLOWED.instance(getattr(scipy.stats, name)), f"_{call}")


@functools.cache
def followed_law(family):
    """The law of SciPy's with its own Python code, followed.  The functions that have a rule are ours."""
    law, formulas = family.theirs(), getattr(family, "functions", {})
    kind = FOLLOWED.klass(type(law))
    members = {name: f for name, f in inspect.getmembers(family) if getattr(f, "ours", False)}
    members = {name: f for name, f in members.items() if family.knows(name)}
    members |= {f"_{n}": formulas[n] for n in CALLS if n in formulas}
    members = {name: staticmethod(f) for name, f in members.items()}
    if hasattr(kind, "moment"):
        members["moment"] = functools.partialmethod(raw_moment, kind.moment)
    if isinstance(law, scipy.stats.rv_continuous):
        members["fit"] = functools.partialmethod(fitted, kind.fit)
    if family.name == "multinomial":
        members["_process_parameters"] = functools.partialmethod(shares, kind._process_parameters)
    return FOLLOWED.instance(law, type(kind)(kind.__name__, (kind,), members))


def frozen_law(family, args: tuple, given: dict):
    """A frozen law whose parameters may be tracked."""
    law, dist = family.theirs(), followed_law(family)
    if not isinstance(law, (scipy.stats.rv_continuous, scipy.stats.rv_discrete)):
        return FOLLOWED.klass(type(law).__call__.__globals__[f"{family.name}_frozen"])(*args, **given)
    kind = type(law).freeze.__globals__[
        f"rv_{'discrete' if isinstance(law, scipy.stats.rv_discrete) else 'continuous'}_frozen"
    ]
    new = object.__new__(FOLLOWED.klass(kind))
    vars(new).update(args=tuple(args), kwds=given, dist=dist)
    new.a, new.b = dist._get_support(*dist._parse_args(*args, **given)[0])
    return new
