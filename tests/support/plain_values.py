"""Generated calls whose value under a transform is compared with the plain call: result, dtype, shape, or the class of the exception."""

import itertools
import warnings

import numpy as np
import scipy.linalg
import scipy.stats
from families import CONTINUOUS, DISCRETE, FIXED
from families import CLASSIC as OF_KERNELS

import tapegrad as tg
from tapegrad import stats
from tapegrad.testing import nested

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


def difference(expected, found, rtol):
    """How two outcomes differ, or None."""
    if isinstance(expected, Exception) or isinstance(found, Exception):
        if isinstance(found, REFUSED) or (isinstance(expected, Exception) and isinstance(found, type(expected))):
            return None
        return f"{expected!r:.70} and {found!r:.90}"
    for a, b in itertools.zip_longest(parts(expected), parts(found)):
        if np.shape(a) != np.shape(b) or np.asarray(a).dtype != np.asarray(b).dtype or isinstance(a, np.ndarray) != isinstance(b, np.ndarray):
            return f"{type(a)} {np.shape(a)} {np.asarray(a).dtype} and {type(b)} {np.shape(b)} {np.asarray(b).dtype}"
        if np.asarray(a).dtype.kind not in "fc":
            if not np.array_equal(a, b):
                return f"{a} and {b}"
            continue
        with np.errstate(all="ignore"):
            size = np.max(abs(a), where=np.isfinite(a), initial=0.0)
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (abs(a - b) <= rtol * size)
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
                yield f"{[np.shape(a) for a in args]}, variant {n} of {k}", lambda x, k=k, args=args: f(*args[:k], x, *args[k + 1 :]), x
