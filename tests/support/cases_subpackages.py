"""Linear operations on which SciPy's larger subpackages are made."""

import numpy as np
from cases import case, cnormal, normal, positive

from tapegrad._scipy import linear_maps
from tapegrad._scipy.sparse import products
from tapegrad.sparse import _cholesky
from tapegrad.sparse._elimination import analysis_of

ROWS, COLS = np.array([0, 2, 1, 3, 3, 1]), np.array([1, 0, 2, 3, 0, 1])
PATTERN = products.SparsityPattern(ROWS, COLS, (4, 4))
SYMMETRIC = analysis_of(
    4, np.array([0, 2, 5, 8, 10], np.int32), np.array([0, 1, 0, 1, 2, 1, 2, 3, 2, 3], np.int32)
)


def definite(d):
    """A positive definite matrix of any entries."""
    return d + d[SYMMETRIC.mirror] + 9.0 * (SYMMETRIC.rows == SYMMETRIC.indices)


SMOOTH = linear_maps.AxisMap(lambda x: 0.5 * x + 0.3 * x[..., ::-1] + x.sum(-1, keepdims=True), 5)

CASES = [
    case("convolved", lambda a, b: linear_maps.convolved(a, b, k=1), normal(6), normal(3, seed=1)),
    case(
        "convolved of planes",
        lambda a, b: linear_maps.convolved(a, b, k=2),
        normal(2, 3, 4),
        normal(1, 2, 2, seed=1),
        order=2,
    ),
    case(
        "convolved each by its own",
        lambda a, b: linear_maps.convolved(a, b, k=1),
        normal(2, 5),
        normal(2, 2, seed=1),
        order=2,
    ),
    case(
        "convolved complex",
        lambda a, b: linear_maps.convolved(a, b, k=1),
        cnormal(5),
        normal(2, seed=1),
        order=2,
    ),
    case("overlap", lambda g, b: linear_maps.overlap(g, b, k=1), normal(6), normal(3, seed=1)),
    case(
        "overlap of planes",
        lambda g, b: linear_maps.overlap(g, b, k=2),
        normal(2, 3, 4),
        normal(1, 2, 2, seed=1),
        order=2,
    ),
    case(
        "recursed", lambda v, a: linear_maps.recursed(v, a), normal(6), normal(2, seed=2) / 3, numpy_only=True
    ),
    case(
        "recursed by rows",
        lambda v, a: linear_maps.recursed(v, a),
        normal(2, 6),
        normal(2, 2, seed=2) / 3,
        order=2,
        numpy_only=True,
    ),
    case("mapped", lambda x: linear_maps.mapped(x, map=SMOOTH), normal(2, 5)),
    case("mapped back", lambda x: linear_maps.mapped(x, map=SMOOTH, back=True), normal(5), order=2),
    case(
        "sparse_product", lambda d, x: products.sparse_product(d, x, pattern=PATTERN), positive(6), normal(4)
    ),
    case(
        "sparse_product back",
        lambda d, x: products.sparse_product(d, x, pattern=PATTERN, back=True),
        *(positive(1, 6), normal(3, 4)),
        order=2,
        numpy_only=True,
    ),
    case(
        "sparse_outer",
        lambda g, x: products.sparse_outer(g, x, pattern=PATTERN),
        normal(4),
        normal(4, seed=1),
    ),
    case(
        "sparse_solution",
        lambda d, b: products.sparse_solution(d, b, pattern=PATTERN),
        positive(6),
        normal(4),
        numpy_only=True,
    ),
    case(
        "sparse_solution back",
        lambda d, b: products.sparse_solution(d, b, pattern=PATTERN, back=True),
        *(positive(1, 6), normal(3, 4)),
        order=2,
        numpy_only=True,
    ),
    case(
        "sparse_logdet",
        lambda d: _cholesky.sparse_logdet(definite(d), analysis=SYMMETRIC),
        positive(10),
        numpy_only=True,
    ),
    case(
        "logdet_derivative",
        lambda d, w: _cholesky.logdet_derivative(definite(d), w, analysis=SYMMETRIC),
        *(positive(10), normal(1, 10)),
        numpy_only=True,
    ),
    case(
        "cholesky_solution",
        lambda d, b: _cholesky.cholesky_solution(definite(d), b, analysis=SYMMETRIC),
        *(positive(10), normal(3, 4)),
        numpy_only=True,
    ),
    case(
        "symmetric_product",
        lambda d, x: _cholesky.symmetric_product(d, x, analysis=SYMMETRIC),
        *(normal(10), normal(4, seed=1)),
        numpy_only=True,
    ),
    case(
        "symmetric_outer",
        lambda g, x: _cholesky.symmetric_outer(g, x, analysis=SYMMETRIC),
        *(normal(3, 4), normal(3, 4, seed=1)),
        numpy_only=True,
    ),
]
