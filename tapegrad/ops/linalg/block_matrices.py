"""Matrices assembled from blocks and bands, and functions of one matrix for stacks."""

import functools
from collections.abc import Callable

import numpy as np
import scipy.linalg

from ..declare import SCIPY, implements, ndim, shape
from ..products import backwards
from ..shaping import arrays_of, broadcast_to, concatenate, conj, embed, reshape, slice_of, stack
from ..sorting import taken_at


def of_stacks(*dims: int) -> Callable:
    """A function whose first arguments have `dims` dimensions, for stacks of them too: one after another."""

    def declare(f: Callable) -> Callable:
        @functools.wraps(f)
        def run(*args, **kwargs):
            if all([a is None or ndim(a) <= d for a, d in zip(args, dims, strict=False)]):
                return f(*args, **kwargs)
            given = arrays_of(args[: len(dims)])
            cores = [shape(a)[max(ndim(a) - d, 0) :] for a, d in zip(given, dims, strict=False)]
            to = np.broadcast_shapes(
                *[shape(a)[: ndim(a) - len(core)] for a, core in zip(given, cores, strict=True)]
            )
            given = [broadcast_to(a, to=to + core) for a, core in zip(given, cores, strict=True)]
            found = [f(*[a[i] for a in given], *args[len(dims) :], **kwargs) for i in np.ndindex(to)]
            whole = lambda parts: reshape(stack(parts), to=to + shape(parts[0]))
            several = isinstance(found[0], tuple)
            return tuple(map(whole, zip(*found, strict=True))) if several else whole(found)

        return run

    return declare


@implements(scipy.linalg.block_diag)
def block_diag(*arrays):
    """The matrices along the diagonal, zeros elsewhere. Stacks of matrices give a stack."""
    xs = [x if ndim(x) > 1 else reshape(x, to=(1, int(np.prod(shape(x))))) for x in arrays_of(arrays)]
    lead = np.broadcast_shapes(*[shape(x)[:-2] for x in xs])
    if lead:
        xs = [broadcast_to(x, to=(*lead, *shape(x)[-2:])) for x in xs]
    width, start, rows = int(np.sum([shape(x)[-1] for x in xs])), 0, []
    for x in xs:
        rows.append(embed(x, axis=len(lead) + 1, start=start, size=width))
        start += shape(x)[-1]
    return concatenate(*rows, axis=len(lead))


@implements(scipy.linalg.toeplitz)
def toeplitz(c, r=None):
    """The matrix that is constant along each diagonal, with first column c and first row r (by default
    conj(c)). Stacks give a stack from SciPy 1.17 on; before that, arrays are flattened."""
    c = arrays_of([c])[0]
    r = conj(c) if r is None else arrays_of([r])[0]
    c, r = [x if ndim(x) and SCIPY >= (1, 17) else reshape(x, to=(int(np.prod(shape(x))),)) for x in (c, r)]
    n, m = shape(c)[-1], shape(r)[-1]
    if ndim(c) > 1 or ndim(r) > 1:
        return of_stacks(1, 1)(toeplitz)(c, r)
    band = concatenate(backwards(c), slice_of(r, axis=0, start=1, stop=m))
    at = np.subtract.outer(np.arange(n), np.arange(m))
    return reshape(taken_at(band, at=(n - 1 - at).ravel(), axis=0), to=(n, m))
