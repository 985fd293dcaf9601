"""Log densities and distribution functions with derivatives in the value and in all parameters, under SciPy's
names.

    norm.logpdf(x, loc=0, scale=1), pdf, cdf, sf, logcdf, logsf, ppf, isf
    gamma.logpdf(x, a, loc=0, scale=1) ...      shape parameters stand before loc and scale, as in scipy.stats
    multivariate_normal.logpdf(x, mean, cov)
    poisson.logpmf(k, mu), binom.logpmf(k, n, p), bernoulli.logpmf(k, p), and cdf, sf, logcdf, logsf
    skew, kurtosis, zscore, gmean ...

Arrays of NumPy or CuPy and Variables are taken alike and broadcast.  Outside the support a log density is
-inf, with derivative zero.  A scale of zero or less gives nan.  `norm(loc, scale)` is a frozen distribution,
whose parameters may be tracked.

All other names are SciPy's own Python code, followed (`_scipy.statistics`).  What is compiled there and has no
rule raises NoRuleError for a tracked value.  Inside a transform a call that gets no tracked value is SciPy's, too."""

import functools
import sys
from types import ModuleType

from .._core.registry import late, load
from .._core.scope import OPEN
from .._dispatch.faces import FACES, is_function
from .._dispatch.stand_ins import OF_SUBCLASSES
from . import _classic, _multivariate
from ._families import Distribution, scipy_stats
from ._families import Frozen as Frozen  # what stands for SciPy's (_dispatch.stand_ins)


def families(module) -> dict:
    return {name: x for name, x in vars(module).items() if isinstance(x, Distribution)}


_CLASSIC = {**families(_classic), **families(_multivariate)}
globals().update(_CLASSIC)


@functools.cache
def _further() -> dict:
    """The other families, which kernels and models of the library do without."""
    return {
        **families(load("tapegrad.stats._continuous")),
        **families(load("tapegrad.stats._elementary")),
        **families(load("tapegrad.stats._discrete")),
        **families(load("tapegrad.stats._integrated")),
    }


def __getattr__(name: str):
    if name == "__all__":
        return sorted({*_CLASSIC, *_further()})
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _further():
        return _further()[name]
    if name in ("contingency", "qmc"):
        return getattr(load("tapegrad._scipy.followed_modules"), name)
    theirs = scipy_stats()
    x = getattr(theirs if hasattr(theirs, name) else theirs.distributions, name)  # (`rv_frozen`)
    if isinstance(x, type):
        return load("tapegrad._scipy.statistics").STATS.rules.get(x, x)
    if is_function(x):
        return FACES.get(x) or FACES.setdefault(x, load("tapegrad._scipy.statistics").STATS.face(x))
    if isinstance(x, ModuleType) and not x.__name__.startswith(OF_SUBCLASSES):
        known = [hasattr(scipy_stats(), n) for n in getattr(x, "__all__", ())]
        return sys.modules[__name__] if known and all(known) else x  # (`stats.distributions`, old modules)
    is_theirs = (type(x).__module__ or "").startswith("scipy.")  # else a package has put it there
    return late.shadowed(x) if OPEN.depth and not is_theirs else x


def __dir__() -> list[str]:
    return sorted({*_CLASSIC, *_further(), *dir(scipy_stats())})
