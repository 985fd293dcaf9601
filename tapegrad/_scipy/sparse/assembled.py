"""scipy.sparse's functions that make matrices of others: blocks, diagonals, products of Kronecker's kind."""

import functools
import inspect

import numpy as plain_np
import scipy.sparse as sps

from ... import numpy as np
from ..._core.arrays import is_array
from ..._core.variable import Variable
from ...ops.declare import shape
from ...ops.indexing.gathering import left_of
from ..device import device_concatenator
from ..namespaces import bare, plain_argument, present
from .matrices import (
    FACES,
    SPARSE,
    is_sparse,
    of_places,
    sparse,
)
from .places import element_or_zero, moved_behind


def stack_values(parts: list) -> tuple:
    """(one vector of values, the matrices of places in it)."""
    values, places, start = [], [], 0
    for A in parts:
        places.append(moved_behind(A._places, start))
        start += shape(A._values)[0]
        values.append(A._values)
    return np.concatenate(device_concatenator(*values)), places


def moving_rule(f):
    """f only moves the elements of the matrices, lists of matrices and dense blocks that it gets."""

    signature = inspect.signature(f)

    @functools.wraps(f)
    def run(*args, **kwargs):
        parts = []

        def met(x):
            if is_sparse(x):
                parts.append(sparse(x))
                return PlacedElements(len(parts) - 1)
            if isinstance(x, (list, tuple)):
                return type(x)([met(v) for v in x])
            if isinstance(x, Variable) or is_array(x) and x.ndim == 2:
                if f in STACKS:
                    parts.append(FACES[sps.coo_array](x))
                    return PlacedElements(len(parts) - 1)
            return plain_argument(x)

        args = met(args)
        values, places = stack_values(parts)

        def put(x):
            return (
                places[x.n]
                if isinstance(x, PlacedElements)
                else type(x)([put(v) for v in x])
                if isinstance(x, (list, tuple))
                else x
            )

        given = signature.bind(*put(args), **plain_argument(kwargs))
        form = None
        if any(A._merged() is not A for A in parts):
            form = given.arguments.pop("format", None)  # it adds elements at one place, after f
        return of_places(values, f(*given.args, **given.kwargs)).asformat(form)

    return run


class PlacedElements:
    def __init__(self, n: int):
        self.n = n


STACKS = {getattr(sps, n) for n in ("hstack", "vstack", "bmat", "block_array", "block_diag")}
for _f in (
    *STACKS,
    sps.tril,
    sps.triu,
    *[
        getattr(sps, n)
        for n in ("permute_dims", "swapaxes", "expand_dims", "matrix_transpose")
        if hasattr(sps, n)
    ],
):
    SPARSE.rule(_f)(moving_rule(_f))


@SPARSE.rule(sps.find)
def find(A):
    A = sparse(A)._merged()
    rows, cols, places = sps.find(A._places)
    values = element_or_zero(A._values, places)
    rows, cols, _ = device_concatenator(rows, cols, values)
    on = bare(values != 0)  # SciPy leaves out zeros
    kept, zeros = plain_np.flatnonzero(on), plain_np.flatnonzero(~on)
    if len(zeros):
        values = left_of("scipy.sparse.find", values[kept], values[zeros])
    return rows[kept], cols[kept], values


SPARSE.constant(
    *present(sps, (
        "issparse", "isspmatrix", "isspmatrix_bsr", "isspmatrix_coo", "isspmatrix_csc", "isspmatrix_csr",
        "isspmatrix_dia",
        "isspmatrix_dok", "isspmatrix_lil", "get_index_dtype", "safely_cast_index_arrays", "eye", "eye_array",
        "identity", "rand",
        "random", "random_array", "load_npz",
    )),
)  # fmt: skip
SPARSE.constant(sps.save_npz)  # the values are written


@SPARSE.rule(sps.issparse)
def issparse(x):
    return is_sparse(x)
