"""Sparse matrices that are filled element by element with tracked values, as finite elements are assembled."""

import numpy as np
import pytest
import scipy.sparse as sps
import scipy.sparse.linalg
from _modes import check_program, differences
from calls_sparse import SHAPES
from public_calls import judged

import tapegrad as tg
from tapegrad.errors import ArgumentError, NoRuleError

P = np.array([0.3, 1.1, 2.0])
FORMS = ("lil_matrix", "lil_array", "dok_matrix", "dok_array")


def solved(A):
    return scipy.sparse.linalg.spsolve(A.tocsc(), np.arange(1.0, 1 + A.shape[0])).sum()


def stiffness(p, form):
    """Element by element, and a boundary condition."""
    K = getattr(sps, form)((6, 6))
    for e in range(5):
        for a in range(2):
            for b in range(2):
                K[e + a, e + b] += [[1, -1], [-1, 1.0]][a][b] * (p[0] + p[1] * e)
    K[0, :] = 0
    K[0, 0] = 1.0
    return solved(K) * p[2]


def blocks(p):
    K = sps.lil_matrix((6, 6))
    for e in range(5):
        at = np.array([e, e + 1])
        K[np.ix_(at, at)] += np.array([[2, -1], [-1, 2.0]]) * p[0] * (1 + p[1] * e)
    K[2:4, 2:4] = p[2] * np.array([[3, 0.5], [0.5, 4.0]])
    return solved(K)


def lines(p):
    K = sps.lil_matrix((4, 4))
    K.setdiag([3.0, 4.0, 5.0, 6.0])
    K.setdiag(p, 1)
    K[3] = np.array([p[0], 0, 0, 9.0])
    K[:, 0] = np.array([[5.0], [p[1]], [0], [1]])
    return solved(K) + K[0, 1] ** 2 + K[2, 0] + K.sum() + (K.T @ np.ones(4))[0] + (K * 2)[1, 2]


def boundary(p):
    """Of a matrix of diagonals."""
    A = sps.diags([np.full(5, 2.0 + p[0]), np.full(4, -p[1]), np.full(4, -p[1])], [0, 1, -1]).tolil()
    A[0, :] = 0
    A[0, 0] = 1
    A[-1, :] = 0
    A[-1, -1] = p[2]
    return solved(A)


def rows(p):
    A = sps.csr_array(np.diag(p) + 3 * np.eye(3))
    A[0, 1] = p[2] * 0.5
    A[1, 1] = 7.0
    B = A.tolil()
    B[2, 0] = A[0, 1] * 2
    B[0] = B[0] * 2.0
    return solved(B) + A.sum()


def sparse_block(p):
    A = sps.lil_array((4, 4))
    A[:2, :2] = sps.csr_array(np.outer(p[:2], p[1:]))
    A[2:, 2:] = sps.eye_array(2)
    A[3, 0] = 1
    A[1, 1] = 9.0
    return solved(A)


def of_complex(p):
    A = sps.lil_matrix((3, 3), dtype=complex)
    for i in range(3):
        A[i, i] = 2 + 1j * p[i]
        A[i, (i + 1) % 3] = p[0]
    return np.abs(scipy.sparse.linalg.spsolve(A.tocsc(), np.ones(3))).sum()


PROGRAMS = {
    **{form: lambda p, form=form: stiffness(p, form) for form in FORMS},
    **{f.__name__: f for f in (blocks, lines, boundary, rows, sparse_block, of_complex)},
}


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:Changing the sparsity structure")
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    check_program(PROGRAMS[name], P)


def edits(rng, n=5, count=8):
    """Random assignments: (place, shape of what is stored there, plain?)."""
    found = []
    for _ in range(count):
        i, j = [int(k) for k in rng.integers(0, n - 1, 2)]
        at, size = [
            ((i, j), ()),
            ((i, slice(None)), (n,)),
            ((slice(i, i + 2), slice(j, j + 2)), (2, 2)),
            ((np.array([i, i + 1]), np.array([j, j + 1])), (2,)),
            (np.ix_([i, i + 1], [j, n - 1]), (2, 2)),
            ((slice(None), [j]), (n, 1)),
            ((slice(i, i + 2), j), ()),
        ][int(rng.integers(7))]
        found.append((at, size, rng.random() < 0.3, rng.random() < 0.4))
    return found


@pytest.mark.filterwarnings("ignore:Changing the sparsity structure")
@pytest.mark.parametrize("seed", range(30))
def test_random_assignments_equal_those_of_a_dense_array(seed):
    rng = np.random.default_rng(seed)
    form = ("lil_array", "dok_array", "lil_matrix", "csr_array")[seed % 4]
    todo, weights = edits(rng), rng.normal(size=(5, 5))
    numbers = rng.normal(size=(len(todo), 25))

    def fill(A, x):
        for (at, size, plain, zero), more in zip(todo, numbers, strict=True):
            n = int(np.prod(size))
            new = more[:n].reshape(size)
            if not plain:
                new = new * x[:n].reshape(size)
            elif zero:
                new = new * 0
            A[at] = new if size else new[()]
        return A

    def of_sparse(x):
        return np.sum(np.sin(np.asarray(fill(getattr(sps, form)((5, 5)), x).toarray())) * weights)

    def of_dense(x):
        return np.sum(np.sin(fill(np.zeros((5, 5)), x)) * weights)

    x = rng.normal(size=25)
    np.testing.assert_allclose(of_sparse(x), of_dense(x), rtol=1e-12)
    np.testing.assert_allclose(tg.grad(of_sparse)(x), tg.grad(of_dense)(x), rtol=1e-12, atol=1e-14)


def test_a_copy_of_a_captured_matrix_is_filled():
    K = sps.lil_matrix(np.eye(3) * 4)

    def f(p):
        A = K.copy()
        A[0, 1] += p[0]
        A[1, 1] = A[1, 1] * p[1]
        return solved(A)

    np.testing.assert_allclose(tg.grad(f)(P), differences(f, P), rtol=1e-7, atol=1e-9)
    assert (K.toarray() == np.eye(3) * 4).all()


def test_a_copy_is_filled_apart():
    """It keeps its form: SciPy does not warn of a costly change."""

    def f(p):
        A = sps.lil_array((3, 3))
        A.setdiag(p)
        B = A.copy()
        B[0, 1] = p[2]
        B[0, 0] *= 2
        return solved(B) + A.sum() - A[0, 1]

    np.testing.assert_allclose(tg.grad(f)(P), differences(f, P), rtol=1e-7, atol=1e-9)


def test_bad_input():
    K = sps.lil_matrix((3, 3))
    with pytest.raises(NoRuleError, match="outside of the transform"):
        tg.grad(lambda p: (K.__setitem__((0, 0), p[0]), K.sum())[1])(P)
    assert K.nnz == 0

    def stored(A, at, value):
        A[at] = value
        return A.sum()

    with pytest.raises(NoRuleError, match="in a matrix of dtype int"):
        tg.grad(lambda p: stored(sps.lil_matrix((3, 3), dtype=int), (0, 0), p[0]))(P)
    with pytest.raises(ArgumentError, match="complex argument"):
        tg.grad(lambda p: stored(sps.lil_matrix((3, 3)), (0, 0), p[0] * 1j))(P)
    with pytest.raises(IndexError):
        tg.grad(lambda p: stored(sps.lil_matrix((3, 3)), (0, 7), p[0]))(P)
    with pytest.raises(ValueError, match="broadcast|shape"):
        tg.grad(lambda p: stored(sps.lil_matrix((3, 3)), (slice(0, 2), 0), p))(P)
    with pytest.raises(NoRuleError, match="where some of them are zero"):
        tg.grad(lambda p: stored(sps.lil_matrix((3, 3)), (0, 0), p[0] * 0) + tracked_zero(p).nnz)(P)


def tracked_zero(p):
    A = sps.lil_matrix((3, 3))
    A[0, 0] = p[0] * 0
    return A


@pytest.mark.parametrize("call", SHAPES, ids=lambda call: call[0])
def test_shapes_and_powers_are_scipys(call):
    _, f, x, options = call
    judged(f, *x, **{**options, "order": 1, "samples": False})


@pytest.mark.parametrize("of", [lambda A: A**0, lambda A: A.sum(axis=2), lambda A: A.multiply(A[:, :2])])
def test_what_scipy_refuses_is_refused(of):
    A = sps.eye_array(4, format="csr") * 2.0
    errors = NotImplementedError, ValueError
    with pytest.raises(errors):
        of(A)
    with pytest.raises(errors):
        tg.grad(lambda d: of(sps.csr_array((d, A.indices, A.indptr), shape=A.shape)).sum())(A.data)


@pytest.mark.parametrize("form", ["csr_array", "csr_matrix", "lil_array", "dok_matrix"])
def test_kinds_are_scipys(form):
    def kinds(d):
        A = getattr(sps, form)(sps.csr_array((d, ([0, 1], [1, 0])), shape=(2, 2)))
        seen.append((isinstance(A, sps.sparray), isinstance(A, sps.spmatrix), isinstance(d, sps.sparray)))
        return A.sum()

    seen = []
    kinds(np.ones(2))
    tg.grad(kinds)(np.ones(2))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("columns", [[1, 0, 1], [1, 1, 0], [1, 1, 1]])
@pytest.mark.parametrize("form", ["bsr_array", "bsr_matrix"])
def test_blocks_that_are_tracked(form, columns):
    weights = np.cos(np.arange(16.0)).reshape(4, 4)
    matrix = lambda d: getattr(sps, form)((d, columns, [0, 1, 3]), shape=(4, 4))
    judged(lambda d: (matrix(d) @ matrix(d)).toarray() * weights, np.arange(1.0, 13).reshape(3, 2, 2))
