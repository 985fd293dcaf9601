"""Log densities and distribution functions with derivatives in the value and in all parameters, under SciPy's names.

    norm.logpdf(x, loc=0, scale=1), pdf, cdf, sf, logcdf, logsf, ppf
    gamma.logpdf(x, a, loc=0, scale=1) ...      shape parameters stand before loc and scale, as in scipy.stats
    multivariate_normal.logpdf(x, mean, cov)
    poisson.logpmf(k, mu), binom.logpmf(k, n, p), bernoulli.logpmf(k, p)

Arrays of NumPy or CuPy and Variables are taken alike and broadcast.  Outside the support a log density is -inf, with derivative
zero.  A scale of zero or less gives nan.  `norm(loc, scale)` is a frozen distribution, whose parameters may be tracked.

All other names are SciPy's own: functions and methods that run on plain values and raise NoRuleError for a tracked one.  Inside a
transform a call that gets no tracked value is SciPy's, too."""

import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ._array import NUMBERS, xp_of
from ._faces import FACES, face, is_function
from ._late import load
from ._loans import lend
from ._primitive import OPEN, is_tracked, layout_of, primal_of
from ._variable import Variable
from .errors import ArgumentError, NoRuleError, NotPositiveDefiniteError, ShapeError
from .ops import gamma as ga
from .ops import incomplete as inc
from .ops import linalg, shaping
from .ops import special as sp
from .ops._define import dtype, ndim, shape, xp
from .ops._protocols import any_tracked
from .ops.corners import expit, maximum, minimum
from .ops.elementwise import absolute, arctan, exp, expm1, log, log1p, power, select, square, tan

LOG_2PI, LOG_PI, LOG_2 = math.log(2 * math.pi), math.log(math.pi), math.log(2.0)

__all__ = [
    "bernoulli", "beta", "binom", "cauchy", "chi2", "expon", "gamma", "halfnorm", "invgamma", "laplace", "logistic", "lognorm",
    "multivariate_normal", "norm", "poisson", "t", "uniform", "weibull_min",
]  # fmt: skip


def array_of(x: Any) -> Any:
    return shaping.stacked(x) if isinstance(x, (list, tuple)) else x


def number_like(a: Any, x: Any) -> Any:
    """A Python number as one of the dtype of x, so that float32 stays float32."""
    a = array_of(a)
    if type(a) not in (int, float):
        return a
    return dtype(x).type(a) if dtype(x).kind == "f" else np.float64(a)


# --- SciPy's own, and when it is asked ---


def scipy_stats() -> ModuleType:
    """scipy.stats, which takes half a second to import, so only when something of it is asked for."""
    return load("scipy.stats")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    x = getattr(scipy_stats(), name)
    return (FACES.get(x) or FACES.setdefault(x, face(x))) if is_function(x) else x


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(scipy_stats())})


def settled(xs: Any) -> bool:
    """Are these plain values that SciPy takes, none of them tracked?"""
    for x in xs:
        if isinstance(x, (list, tuple)):
            if not settled(x):
                return False
        elif isinstance(x, Variable):
            if is_tracked(x) or xp_of(layout_of(x)) is not np:
                return False
        elif not isinstance(x, (np.ndarray, np.generic, str, type(None))) and type(x) not in NUMBERS:
            return False
    return True


def derived(method: Callable) -> Callable:
    """A method that is ours where it gets something tracked (outside of transforms always); else SciPy's."""

    @functools.wraps(method)
    def run(self, *args, **given):
        if OPEN.depth and settled(args) and settled(given.values()):
            return getattr(self.theirs(), method.__name__)(*lend(args), **lend(given))
        return method(self, *args, **given)

    run.ours = True
    return run


def library_method(name: str, f: Any) -> Any:
    """An attribute of SciPy's; a method refuses tracked values."""
    if not callable(f):
        return f

    @functools.wraps(f)
    def run(*args, **given):
        if any_tracked(args) or any_tracked(given.values()):
            raise NoRuleError(
                f"scipy.stats.{name} has no derivative rule in tapegrad; cut the derivative with tapegrad.value, or compose it of others"
            )
        return f(*lend(args), **lend(given))

    return run


class Distribution:
    """What all have: SciPy's distribution of the same name answers for the methods that have no derivative here."""

    name: str

    def __repr__(self) -> str:
        return f"<tapegrad.stats.{self.name}>"

    def theirs(self) -> Any:
        return getattr(scipy_stats(), self.name)

    def __getattr__(self, call: str) -> Any:
        if call.startswith("_") or "name" not in vars(self):
            raise AttributeError(call)
        return library_method(f"{self.name}.{call}", getattr(self.theirs(), call))

    def __call__(self, *args: Any, **given: Any) -> "Frozen":
        return Frozen(self, args, given)


class Frozen:
    """A distribution with its parameters: `norm(loc, scale).logpdf(x)`."""

    def __init__(self, family: Distribution, args: tuple, given: dict):
        self._family, self._args, self._given = family, args, given
        if not (any_tracked(args) or any_tracked(given.values())):
            family.theirs()(*lend(args), **lend(given))  # raises as SciPy does

    def __repr__(self) -> str:
        return f"<tapegrad.stats.{self._family.name}, frozen>"

    def __getattr__(self, call: str) -> Any:
        if call.startswith("_"):
            raise AttributeError(call)
        family, args, given = self._family, self._args, self._given
        if getattr(getattr(type(family), call, None), "ours", False):
            return lambda x: getattr(family, call)(x, *args, **given)
        if any_tracked(args) or any_tracked(given.values()):
            raise NoRuleError(
                f"scipy.stats.{family.name}(...).{call} of tracked parameters has no derivative rule in tapegrad; "
                "cut the derivative with tapegrad.value"
            )
        frozen = family.theirs()(*lend(args), **lend(given))
        return library_method(f"{family.name}(...).{call}", getattr(frozen, call))


class Continuous(Distribution):
    """A family of densities with location and scale.  Its functions of the standardised z and the shape parameters are given
    as texts of mathematics below: `logpdf` and, where known, the distribution function in the forms that are exact."""

    def __init__(self, name: str, shapes: str = "", low: float = -math.inf, high: float = math.inf, **functions: Callable):
        self.name, self.shapes, self.low, self.high = name, shapes.split(), low, high
        self.functions = functions

    def _parameters(self, call: str, x: Any, args: tuple, loc: Any, scale: Any, given: dict) -> tuple:
        """(x, the shape parameters, loc, scale)."""
        k = len(self.shapes)
        if given:
            args = args + tuple([given.pop(n) for n in self.shapes[len(args) :] if n in given])
        if given or not k <= len(args) <= k + 2:
            wanted = ", ".join(["x", *self.shapes, "loc=0", "scale=1"])
            more = f" and {', '.join(given)}" if given else ""
            raise ArgumentError(f"{self.name}.{call} takes ({wanted}); got {1 + len(args)} arguments{more}")
        loc = args[k] if len(args) > k else loc
        scale = args[k + 1] if len(args) > k + 1 else scale
        x = array_of(x)
        x = np.float64(x) if type(x) in (int, float) else x
        return x, tuple([number_like(a, x) for a in args[:k]]), number_like(loc, x), number_like(scale, x)

    def _function(self, call: str) -> Callable:
        if call not in self.functions:
            raise ArgumentError(f"{self.name}.{call} has no derivative in tapegrad; there are: {', '.join(sorted(self.functions))}")
        return self.functions[call]

    def _edges(self, z: Any, y: Any, below: float, above: float) -> Any:
        """y, and constants outside the support."""
        if self.low > -math.inf:
            y = select(z < self.low, dtype(y).type(below), y)
        if self.high < math.inf:
            y = select(z > self.high, dtype(y).type(above), y)
        return y

    @derived
    def logpdf(self, x: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        x, shapes, loc, scale = self._parameters("logpdf", x, args, loc, scale, given)
        z = (x - loc) / scale
        return self._edges(z, self._function("logpdf")(z, *shapes) - log(scale), -math.inf, -math.inf)

    @derived
    def pdf(self, x: Any, *args: Any, **params: Any) -> Any:
        return exp(self.logpdf(x, *args, **params))

    def _of_value(self, call, x, args, loc, scale, given, below, above):
        x, shapes, loc, scale = self._parameters(call, x, args, loc, scale, given)
        z = (x - loc) / scale
        if call.removeprefix("log") in self.functions and call not in self.functions:
            y = log(self.functions[call[3:]](z, *shapes))
        else:
            y = self._function(call)(z, *shapes)
        return self._edges(z, y, below, above)

    @derived
    def cdf(self, x: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        return self._of_value("cdf", x, args, loc, scale, given, 0.0, 1.0)

    @derived
    def sf(self, x: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        return self._of_value("sf", x, args, loc, scale, given, 1.0, 0.0)

    @derived
    def logcdf(self, x: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        return self._of_value("logcdf", x, args, loc, scale, given, -math.inf, 0.0)

    @derived
    def logsf(self, x: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        return self._of_value("logsf", x, args, loc, scale, given, 0.0, -math.inf)

    @derived
    def ppf(self, q: Any, *args: Any, loc: Any = 0.0, scale: Any = 1.0, **given: Any) -> Any:
        q, shapes, loc, scale = self._parameters("ppf", q, args, loc, scale, given)
        return self._function("ppf")(q, *shapes) * scale + loc


norm = Continuous(
    "norm",
    logpdf=lambda z: -0.5 * square(z) - 0.5 * LOG_2PI,
    cdf=lambda z: sp.ndtr(z),
    sf=lambda z: sp.ndtr(-z),
    logcdf=lambda z: sp.log_ndtr(z),
    logsf=lambda z: sp.log_ndtr(-z),
    ppf=lambda q: sp.ndtri(q),
)
halfnorm = Continuous(
    "halfnorm",
    low=0.0,
    logpdf=lambda z: -0.5 * square(z) + (0.5 * LOG_2 - 0.5 * LOG_PI),
    cdf=lambda z: sp.erf(z * math.sqrt(0.5)),
    sf=lambda z: sp.erfc(z * math.sqrt(0.5)),
    ppf=lambda q: math.sqrt(2.0) * sp.erfinv(q),
)
lognorm = Continuous(
    "lognorm",
    "s",
    low=0.0,
    logpdf=lambda z, s: -0.5 * square(log(z) / s) - log(s) - log(z) - 0.5 * LOG_2PI,
    cdf=lambda z, s: sp.ndtr(log(z) / s),
    sf=lambda z, s: sp.ndtr(-log(z) / s),
    logcdf=lambda z, s: sp.log_ndtr(log(z) / s),
    logsf=lambda z, s: sp.log_ndtr(-log(z) / s),
    ppf=lambda q, s: exp(s * sp.ndtri(q)),
)
expon = Continuous(
    "expon",
    low=0.0,
    logpdf=lambda z: -z,
    cdf=lambda z: -expm1(-z),
    sf=lambda z: exp(-z),
    logsf=lambda z: -z,
    ppf=lambda q: -log1p(-q),
)
weibull_min = Continuous(
    "weibull_min",
    "c",
    low=0.0,
    logpdf=lambda z, c: log(c) + sp.xlogy(c - 1.0, z) - power(z, c),
    cdf=lambda z, c: -expm1(-power(z, c)),
    sf=lambda z, c: exp(-power(z, c)),
    logsf=lambda z, c: -power(z, c),
    ppf=lambda q, c: power(-log1p(-q), 1.0 / c),
)
gamma = Continuous(
    "gamma",
    "a",
    low=0.0,
    logpdf=lambda z, a: sp.xlogy(a - 1.0, z) - z - ga.gammaln(a),
    cdf=lambda z, a: inc.gammainc(a, z),
    sf=lambda z, a: inc.gammaincc(a, z),
    ppf=lambda q, a: inc.gammaincinv(a, q),
)
chi2 = Continuous(
    "chi2",
    "df",
    low=0.0,
    logpdf=lambda z, df: sp.xlogy(0.5 * df - 1.0, z) - 0.5 * z - ga.gammaln(0.5 * df) - 0.5 * LOG_2 * df,
    cdf=lambda z, df: inc.gammainc(0.5 * df, 0.5 * z),
    sf=lambda z, df: inc.gammaincc(0.5 * df, 0.5 * z),
    ppf=lambda q, df: 2.0 * inc.gammaincinv(0.5 * df, q),
)
invgamma = Continuous(
    "invgamma",
    "a",
    low=0.0,
    logpdf=lambda z, a: -(a + 1.0) * log(z) - ga.gammaln(a) - 1.0 / z,
    cdf=lambda z, a: inc.gammaincc(a, 1.0 / z),
    sf=lambda z, a: inc.gammainc(a, 1.0 / z),
)
beta = Continuous(
    "beta",
    "a b",
    low=0.0,
    high=1.0,
    logpdf=lambda z, a, b: sp.xlogy(a - 1.0, z) + sp.xlog1py(b - 1.0, -z) - ga.betaln(a, b),
    cdf=lambda z, a, b: inc.betainc(a, b, z),
    sf=lambda z, a, b: inc.betainc(b, a, 1.0 - z),
    ppf=lambda q, a, b: inc.betaincinv(a, b, q),
)
uniform = Continuous("uniform", low=0.0, high=1.0, logpdf=lambda z: 0.0 * z, cdf=lambda z: z, sf=lambda z: 1.0 - z, ppf=lambda q: q)
t = Continuous(
    "t",
    "df",
    logpdf=lambda z, df: (
        ga.gammaln(0.5 * (df + 1.0)) - ga.gammaln(0.5 * df) - 0.5 * (log(df) + LOG_PI) - 0.5 * (df + 1.0) * log1p(square(z) / df)
    ),
    cdf=lambda z, df: inc.stdtr(df, z),
    sf=lambda z, df: inc.stdtr(df, -z),
)
cauchy = Continuous(
    "cauchy",
    logpdf=lambda z: -LOG_PI - log1p(square(z)),
    cdf=lambda z: 0.5 + arctan(z) / math.pi,
    sf=lambda z: 0.5 - arctan(z) / math.pi,
    ppf=lambda q: tan(math.pi * (q - 0.5)),
)
laplace = Continuous(
    "laplace",
    logpdf=lambda z: -absolute(z) - LOG_2,
    cdf=lambda z: select(z > 0, 1.0 - 0.5 * exp(-maximum(z, 0.0)), 0.5 * exp(minimum(z, 0.0))),
    sf=lambda z: select(z > 0, 0.5 * exp(-maximum(z, 0.0)), 1.0 - 0.5 * exp(minimum(z, 0.0))),
    ppf=lambda q: select(q > 0.5, -log(2.0 - 2.0 * q), log(2.0 * q)),
)
logistic = Continuous(
    "logistic",
    logpdf=lambda z: sp.log_expit(z) + sp.log_expit(-z),
    cdf=lambda z: expit(z),
    sf=lambda z: expit(-z),
    logcdf=lambda z: sp.log_expit(z),
    logsf=lambda z: sp.log_expit(-z),
    ppf=lambda q: sp.logit(q),
)


class Discrete(Distribution):
    """A family of probabilities of integers k, which are constants; derivatives are those in the parameters."""

    def __init__(self, name: str, shapes: str, logpmf: Callable, inside: Callable):
        self.name, self.shapes, self._logpmf, self._inside = name, shapes.split(), logpmf, inside

    @derived
    def logpmf(self, k: Any, *args: Any, loc: Any = 0, **given: Any) -> Any:
        args = args + tuple([given.pop(n) for n in self.shapes[len(args) :] if n in given])
        args, loc = (args[:-1], args[-1]) if len(args) == len(self.shapes) + 1 else (args, loc)
        if given or len(args) != len(self.shapes):
            more = f" and {', '.join(given)}" if given else ""
            raise ArgumentError(f"{self.name}.logpmf takes (k, {', '.join(self.shapes)}, loc=0); got {1 + len(args)} arguments{more}")
        k = primal_of(array_of(k)) - primal_of(array_of(loc))
        args = tuple([array_of(a) for a in args])
        inside = (k == np.floor(k)) & self._inside(k, *[primal_of(a) for a in args])
        y = self._logpmf(k * 1.0, *args)
        return select(inside, y, dtype(y).type(-math.inf))

    @derived
    def pmf(self, k: Any, *args: Any, **given: Any) -> Any:
        return exp(self.logpmf(k, *args, **given))


poisson = Discrete("poisson", "mu", lambda k, mu: sp.xlogy(k, mu) - ga.gammaln(k + 1.0) - mu, lambda k, mu: k >= 0)
binom = Discrete(
    "binom",
    "n p",
    lambda k, n, p: ga.gammaln(n + 1.0) - ga.gammaln(k + 1.0) - ga.gammaln(n - k + 1.0) + sp.xlogy(k, p) + sp.xlog1py(n - k, -p),
    lambda k, n, p: (k >= 0) & (k <= n),
)
bernoulli = Discrete("bernoulli", "p", lambda k, p: sp.xlogy(k, p) + sp.xlog1py(1.0 - k, -p), lambda k, p: (k >= 0) & (k <= 1))


class MultivariateNormal(Distribution):
    """`logpdf(x, mean, cov)` and `pdf`: x (..., d), mean a number or (..., d), cov a number, (d,) variances or (..., d, d).

    Leading axes broadcast.  The density is that of the symmetric part of cov, so the gradient in cov is symmetric.
    """

    def __init__(self):
        self.name = "multivariate_normal"

    @derived
    def logpdf(self, x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        """
        >>> import numpy as np, tapegrad as tg
        >>> from tapegrad.stats import multivariate_normal
        >>> S = np.array([[2.0, 0.5], [0.5, 1.0]])
        >>> float(multivariate_normal.logpdf(np.array([0.3, -0.7]), 0.0, S).round(6))
        -2.483399
        """
        if allow_singular:
            raise ArgumentError("multivariate_normal.logpdf: allow_singular=True is not supported on a tracked Variable")
        x = array_of(x)
        mean, cov = number_like(0.0 if mean is None else mean, x), number_like(cov, x)
        d = shape(cov)[-1] if ndim(cov) else shape(mean)[-1] if ndim(mean) else 1
        if ndim(cov) >= 2 and shape(cov)[-2] != d:
            raise ShapeError(f"multivariate_normal.logpdf: cov has shape {shape(cov)}; its last two axes must be equal")
        r = x - mean
        if d == 1 and (ndim(r) == 0 or shape(r)[-1] != 1):
            r = shaping.reshape(r, to=(*shape(r), 1))
        if ndim(r) == 0 or shape(r)[-1] != d:
            raise ShapeError(
                f"multivariate_normal.logpdf: x has shape {shape(x)}, mean {shape(mean)}, cov {shape(cov)}; "
                f"the last axis of x and of mean must have length {d}"
            )
        if ndim(cov) < 2:
            if ndim(cov) == 0 and d > 1:
                cov = shaping.broadcast_to(cov, to=(d,))
            variances = primal_of(cov)
            if issubclass(type(variances), (np.ndarray, float)) and not np.all(variances > 0):
                raise NotPositiveDefiniteError("multivariate_normal.logpdf: cov has a variance that is not positive")
            return -0.5 * shaping.sum(square(r) / cov + log(cov) + LOG_2PI, -1)
        batch = np.broadcast_shapes(shape(r)[:-1], shape(cov)[:-2])
        L = linalg.cholesky(cov)
        if shape(cov)[:-2] == () and len(batch) > 0:  # one factor for all: columns of one triangular system
            flat = shaping.reshape(r, to=(math.prod(batch), d))
            z = shaping.swapped(linalg.solve_triangular(L, shaping.swapped(flat), lower=True))
            quad = shaping.reshape(shaping.sum(square(z), -1), to=batch)
        else:
            z = linalg.solve_triangular(L, shaping.reshape(r, to=(*shape(r), 1)), lower=True)
            quad = shaping.sum(square(z), (-2, -1))
        return -0.5 * quad - log_diagonal(L, d) - 0.5 * d * LOG_2PI

    @derived
    def pdf(self, x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        return exp(self.logpdf(x, mean, cov, allow_singular))


def log_diagonal(L: Any, d: int) -> Any:
    """The sum of the logarithms of the diagonal."""
    eye = xp(L).eye(d, dtype=dtype(L))
    return shaping.sum(log(shaping.sum(L * eye, -1)), -1)


multivariate_normal = MultivariateNormal()
