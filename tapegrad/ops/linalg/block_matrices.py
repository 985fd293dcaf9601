"""Matrices assembled from blocks and bands."""

import numpy as np
import scipy.linalg

from ..declare import SCIPY, implements, ndim, shape
from ..products import backwards
from ..shaping import arrays_of, broadcast_to, concatenate, conj, embed, layer, layered, reshape, slice_of
from ..sorting import taken_at


@implements(scipy.linalg.block_diag)
def block_diag(*arrays):
    """The matrices along the diagonal, zeros elsewhere. Stacks of matrices give a stack."""
    xs = [x if ndim(x) > 1 else reshape(x, to=(1, int(np.prod(shape(x))))) for x in arrays_of(arrays)]
    stack = np.broadcast_shapes(*[shape(x)[:-2] for x in xs])
    if stack:
        xs = [broadcast_to(x, to=(*stack, *shape(x)[-2:])) for x in xs]
    width, start, rows = int(np.sum([shape(x)[-1] for x in xs])), 0, []
    for x in xs:
        rows.append(embed(x, axis=len(stack) + 1, start=start, size=width))
        start += shape(x)[-1]
    return concatenate(*rows, axis=len(stack))


@implements(scipy.linalg.toeplitz)
def toeplitz(c, r=None):
    """The matrix that is constant along each diagonal, with first column c and first row r (by default
    conj(c)). Stacks give a stack from SciPy 1.17 on; before that, arrays are flattened."""
    c = arrays_of([c])[0]
    r = conj(c) if r is None else arrays_of([r])[0]
    c, r = [x if ndim(x) and SCIPY >= (1, 17) else reshape(x, to=(int(np.prod(shape(x))),)) for x in (c, r)]
    n, m = shape(c)[-1], shape(r)[-1]
    stack = np.broadcast_shapes(shape(c)[:-1], shape(r)[:-1])
    if stack:
        count = int(np.prod(stack))
        c, r = [reshape(broadcast_to(x, to=(*stack, k)), to=(count, k)) for x, k in ((c, n), (r, m))]
        each = [toeplitz(layer(c, axis=0, at=i), layer(r, axis=0, at=i)) for i in range(count)]
        return reshape(layered(*each, axis=0), to=(*stack, n, m))
    band = concatenate(backwards(c), slice_of(r, axis=0, start=1, stop=m))
    at = np.subtract.outer(np.arange(n), np.arange(m))
    return reshape(taken_at(band, at=(n - 1 - at).ravel(), axis=0), to=(n, m))
