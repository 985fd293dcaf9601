"""numpy.polynomial and numpy.poly1d: NumPy's own code, followed.

A tracked series is not trimmed: the derivative by a leading coefficient that is 0 is not 0."""

import functools
import types

import numpy as plain_np
from numpy.polynomial import polyutils

from .. import numpy as np
from .._dispatch.faces import faces_of, is_function
from ..ops.indexing.gathering import without_zeros
from .followed import FollowedObject, Follower, FunctionOverlay
from .namespaces import SciPyNamespace, bare, holds_tracked, with_derivative_of


def untrimmed(seq):
    return seq if holds_tracked(seq) else polyutils.trimseq(bare(seq))


@functools.wraps(polyutils.as_series)
def as_series(alist, trim=True):
    if not holds_tracked(alist):
        return polyutils.as_series(bare(alist), trim)
    arrays = [np.array(a, ndmin=1) for a in alist]
    if any(a.size == 0 for a in arrays):
        raise ValueError("Coefficient array is empty")
    if any(a.ndim != 1 for a in arrays):
        raise ValueError("Coefficient array is not 1-d")
    kind = plain_np.result_type(float, *[a.dtype for a in arrays])
    return [np.array(a, dtype=kind) for a in arrays]


@functools.wraps(polyutils.mapdomain)
def mapdomain(x, old, new):
    """(x may be a polynomial, which NumPy puts into an array.)"""
    off, scale = FOLLOWED(polyutils.mapparms)(old, new)
    return off + scale * (x if isinstance(x, FollowedObject) else np.asanyarray(x))


def matrix_eigenvalues(m):
    """As NumPy gives them, real or in exact pairs, which are sorted afterwards."""
    y, found = np.linalg.eigvals(m), plain_np.linalg.eigvals(bare(m))
    y = with_derivative_of(found, y)
    return y if found.dtype.kind == "c" else y.real


def polynomial_product(f):
    """A plain 0 makes a plain 0, as short as NumPy's."""
    run = FOLLOWED.function(f)

    @functools.wraps(f)
    def times(c1, c2):
        zero = [c for c in (c1, c2) if not holds_tracked(c) and not plain_np.any(bare(c))]
        return plain_np.zeros(1) if zero else run(c1, c2)

    return times


def trimcoef(c, tol=0):
    (c,) = as_series([c], trim=False)
    return (
        FOLLOWED.function(polyutils.trimcoef)(c, tol)
        if tol or not holds_tracked(c)
        else without_zeros(c, "b")
    )


LINALG = FunctionOverlay(np.linalg, eigvals=matrix_eigenvalues)
OWN = {
    "trimseq": untrimmed,
    "as_series": as_series,
    "mapdomain": mapdomain,
    "trimcoef": trimcoef,
    "numpy.linalg": LINALG,
    "trim_zeros": lambda x, trim="fb": x if holds_tracked(x) else np.trim_zeros(x, trim),
}
FOLLOWED = Follower("numpy.polynomial", "numpy.lib", **OWN)
FOLLOWED.given["numpy"] = FunctionOverlay(np, linalg=LINALG)  # on the host


MODULES = [
    getattr(plain_np.polynomial, n)
    for n in ("polynomial", "chebyshev", "legendre", "hermite", "hermite_e", "laguerre", "polyutils")
]
for _module in MODULES:
    FOLLOWED.given.update(
        {
            n: changed(f)
            for end, changed in (
                ("mul", polynomial_product),
                ("mulx", FOLLOWED.function),
                ("int", FOLLOWED.function),
            )
            for n, f in vars(_module).items()
            if n.endswith(end) and not n.startswith("_")
        }
    )


def module_space(real: types.ModuleType) -> types.ModuleType:
    """The stand-in of one of the modules: every function and class is followed."""
    space = SciPyNamespace(real, listed=False)
    for name, x in vars(real).items():
        home = str(getattr(x, "__module__", None))
        if name.startswith("_"):
            continue
        if home == real.__name__ and isinstance(x, type) and not issubclass(x, BaseException):
            space.rule(x)(FOLLOWED.klass(x))
        elif home.startswith("numpy.polynomial") and is_function(x):
            space.rule(x)(FOLLOWED.given.get(x.__name__) or FOLLOWED.function(x))
    return space.stand_in(f"tapegrad.{real.__name__}")


stand_in = faces_of("tapegrad.numpy.polynomial", plain_np.polynomial)
for _module in MODULES:
    _space = module_space(_module)
    setattr(stand_in, _module.__name__.rpartition(".")[2], _space)
    for _kind in plain_np.polynomial.__all__:
        if _kind in vars(_space):
            setattr(stand_in, _kind, vars(_space)[_kind])
poly1d = FOLLOWED.klass(plain_np.poly1d)


def on_objects(name: str):
    """NumPy's function of coefficients, which may be given as objects, and gives one then."""
    ours, theirs = getattr(np, name), getattr(plain_np, name)

    @functools.wraps(theirs)
    def run(*args, **kwargs):
        if not any(isinstance(a, FollowedObject) for a in args):
            return ours(*args, **kwargs)
        if name == "polyval" and isinstance(args[1], FollowedObject):
            y = poly1d(0)
            for c in args[0]:
                y = y * args[1] + c
            return y
        coefficients = [getattr(a, "coeffs", a) for a in args]
        y = ours(*coefficients, **kwargs)
        return (
            y
            if name in ("polyval", "roots")
            else tuple([poly1d(v) for v in y])
            if isinstance(y, tuple)
            else poly1d(y)
        )

    return run


OF_COEFFICIENTS = {
    n: on_objects(n)
    for n in ("polyadd", "polysub", "polymul", "polydiv", "polyval", "polyder", "polyint", "roots")
}
FOLLOWED.given.update(OF_COEFFICIENTS, polymul=np.convolve)  # untrimmed, as poly1d is
