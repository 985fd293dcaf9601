"""Generated calls whose value under a transform is compared with the plain call: result, dtype, shape, or the
class of the exception."""

import itertools
import warnings

import numpy as np
import scipy.linalg
import scipy.stats
from families import CLASSIC as OF_KERNELS
from families import CONTINUOUS, DISCRETE, FIXED

import tapegrad as tg
from tapegrad import stats

REFUSED = (tg.errors.NoRuleError, tg.errors.DroppedDerivativeError)
rng = np.random.default_rng(0)
M, X, Y = rng.standard_normal((3, 3)), rng.standard_normal(3), rng.standard_normal(3)
S, WIDE = M @ M.T + np.eye(3), rng.standard_normal((3, 4))
ARGUMENTS = ((X,), (S,), (WIDE,), (X, Y), (S, X), (S, M))
NOT_FINITE = (np.nan, np.inf, -np.inf)


def variants(a):
    """The same array with edges and extremes in it, and in other dtypes and memory orders."""
    yield from (a, a.astype(np.float32), a + 0.3j, np.asfortranarray(a))
    for number in (*NOT_FINITE, 0.0, 1e200, 1e-300):
        b = a.copy()
        b.flat[0] = number
        yield b
    yield from (np.zeros_like(a), -np.zeros_like(a), np.ones_like(a), a * 1e200, a * 1e-200)


FORWARD = lambda f, x: tg.jvp(f, (x,), (np.ones_like(x),))[0]
REVERSE = lambda f, x: tg.vjp(f, x)[0]
NESTED = lambda f, x: tg.jvp(lambda x: tg.vjp(f, x)[0], (x,), (np.ones_like(x),))[0]
PREPARED = lambda f, x: tg.prepare(f, x).value(x)
MODES = {"forward": FORWARD, "reverse": REVERSE, "nested": NESTED, "prepared": PREPARED}


def outcome(run, *args):
    """What a call gives, or the exception."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return run(*args)
        except Exception as error:
            return error


def parts(y):
    return [p for v in y for p in parts(v)] if isinstance(y, (tuple, list)) else [tg.value(y)]


def difference(expected, found, rtol, each=False):
    """How two outcomes differ, or None.  `each`: every number by itself, else beside the largest."""
    if isinstance(expected, Exception) or isinstance(found, Exception):
        if isinstance(found, REFUSED) or (
            isinstance(expected, Exception) and isinstance(found, type(expected))
        ):
            return None
        return f"{expected!r:.70} and {found!r:.90}"
    for a, b in itertools.zip_longest(parts(expected), parts(found)):
        if (
            np.shape(a) != np.shape(b)
            or np.asarray(a).dtype != np.asarray(b).dtype
            or isinstance(a, np.ndarray) != isinstance(b, np.ndarray)
        ):
            return f"{type(a)} {np.shape(a)} {np.asarray(a).dtype} and {type(b)} {np.shape(b)} {np.asarray(b).dtype}"
        if np.asarray(a).dtype.kind not in "fc":
            if not np.array_equal(a, b):
                return f"{a} and {b}"
            continue
        with np.errstate(all="ignore"):
            size = abs(a) if each else np.max(abs(a), where=np.isfinite(a), initial=0.0)
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (abs(a - b) <= rtol * size + 1e-12 * each)
            same |= (np.asarray(a).dtype.kind == "c") & ~np.isfinite(a) & ~np.isfinite(b)
        if not np.all(same):
            return f"{np.ravel(a)[:5]} and {np.ravel(b)[:5]}"
    return None


def array_calls(f):
    """(text, function of one argument, that argument) of each call of f that the plain function takes."""
    for args in ARGUMENTS:
        if isinstance(outcome(f, *args), Exception):
            continue
        for k, a in enumerate(args):
            for n, x in enumerate(variants(a)):
                yield (
                    f"{[np.shape(a) for a in args]}, variant {n} of {k}",
                    lambda x, k=k, args=args: f(*args[:k], x, *args[k + 1 :]),
                    x,
                )


# --- laws of scipy.stats ---

CALLS = ("pdf", "logpdf", "cdf", "sf", "logcdf", "logsf", "ppf")
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan]
PROBABILITIES = np.array([0.0, 1.0, -0.0, 0.5, -0.1, 1.1, np.nan])
OTHER_SCALES = ((0.3, 2.0), (0.0, -1.0), (0.0, 0.0), (0.0, np.nan), (np.nan, 1.0))
WEIGHTS = (0.0, -1.0, np.nan, 1.0, 40.0)
# By series, searches and integrals that take too long at such places.
SLOW = set(
    "ncx2 rice recipinvgauss vonmises_line studentized_range gausshyper kstwo ksone kstwobign ncf nct "
    "genhyperbolic geninvgauss landau irwinhall genexpon norminvgauss dpareto_lognorm tukeylambda".split()
)
# Where SciPy loses digits, or is nan within the support: the formulas are right there.
NO_REFERENCE = set(
    "f pearson3 jf_skew_t rdist crystalball kappa4 mielke burr burr12 dgamma dweibull powerlognorm "
    "skewnorm laplace_asymmetric kappa3 arcsine bradford betaprime anglit truncnorm truncweibull_min "
    "skewcauchy triang dlaplace yulesimon planck boltzmann".split()
)
LAWS = [n for n in {**OF_KERNELS, **CONTINUOUS} if n not in SLOW]


def first(shapes):
    return [float(np.atleast_1d(s)[0]) for s in shapes]


def law_calls(name):
    """(text, function, argument) for all functions of a continuous law at the ends of its support, with
    parameters that it has and has not."""
    law, ours = getattr(scipy.stats, name), getattr(stats, name)
    shapes = first({**OF_KERNELS, **CONTINUOUS}[name][0])
    given = [(*shapes, *other) for other in OTHER_SCALES]
    for k in range(FIXED.get(name, 0), len(shapes)):
        given += [
            (*shapes[:k], w, *shapes[k + 1 :], 0.0, 1.0)
            for w in (*WEIGHTS, -shapes[k], *((1e11, 1e15) if name == "t" else ()))
        ]
    for params in ((*shapes, 0.0, 1.0), *given):
        ends = [float(e) for e in law.support(*params) if e == e]
        x = np.array([*EDGES, *ends])
        for call in CALLS:
            if (call if call != "pdf" else "logpdf") in ours.functions or (
                call == "ppf" and "cdf" in ours.functions
            ):
                at = PROBABILITIES if call == "ppf" else x
                yield (
                    f"{call} {params}",
                    lambda x, call=call, params=params: getattr(law, call)(x, *params),
                    at,
                )


def count_calls(name):
    """The same for a law of whole numbers, by its last shape parameter."""
    law, ours = getattr(scipy.stats, name), getattr(stats, name)
    shapes, k = first(DISCRETE[name]), np.array([0, 1, 2, 3, -1, 0.5, 30, 1e6, np.inf, -np.inf, np.nan])
    for last, loc in itertools.product((shapes[-1], 0.0, -1.0, 1.0, 2.5, np.nan), (0, 2)):
        for call in ("pmf", "logpmf", *[c for c in ("cdf", "sf", "logcdf", "logsf") if c in ours.functions]):
            yield (
                f"{call} {last} {loc}",
                lambda v, call=call, loc=loc: getattr(law, call)(k, *shapes[:-1], v, loc),
                np.float64(last),
            )
