"""Sparse symmetric positive definite factorisations: against dense linear algebra, in every mode and
order."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse

import tapegrad as tg
from tapegrad.errors import ArgumentError, NotPositiveDefiniteError, ShapeError
from tapegrad.sparse import _elimination

N = 9
RANDOM = np.random.default_rng(11)
LINKS = [(0, 3), (1, 4), (2, 8), (3, 7), (4, 5), (5, 8), (0, 8), (6, 7)]
ROWS = np.array([*range(N), *[i for i, _ in LINKS], *[j for _, j in LINKS]])
COLS = np.array([*range(N), *[j for _, j in LINKS], *[i for i, _ in LINKS]])
SHIFTS = RANDOM.normal(size=len(LINKS))
B = RANDOM.normal(size=N)
TH = np.array([0.3, 0.7, -0.2])


def entries(th):
    off = th[0] * np.sin(SHIFTS + th[1])
    return np.concatenate([3.0 + np.exp(th[2] * B) + th[1] ** 2, off, off])


def sparse_of(th):
    return scipy.sparse.coo_array((entries(th), (ROWS, COLS)), shape=(N, N)).tocsr()


def dense_of(th):
    A = np.zeros((N, N))
    A[ROWS, COLS] = entries(th)
    return A


def by_sparse(th):
    c = tg.sparse.cholesky(sparse_of(th))
    x = c.solve(B * th[0])
    Z = c.selected_inverse()
    return (
        c.logdet()
        + (x**3).sum()
        + np.sin(Z.diagonal() * 5).sum()
        + (Z @ B) @ B
        + (c.solve(np.stack([B, x], 1)) ** 2).sum()
    )


def by_dense(th):
    A = dense_of(th)
    x = np.linalg.solve(A, B * th[0])
    Z = np.linalg.inv(A)
    part = np.zeros((N, N))
    part[ROWS, COLS] = Z[ROWS, COLS]
    both = np.linalg.solve(A, np.stack([B, x], 1))
    return (
        np.linalg.slogdet(A)[1]
        + (x**3).sum()
        + np.sin(np.diagonal(Z) * 5).sum()
        + B @ part @ B
        + (both**2).sum()
    )


def test_value_and_derivatives_of_every_nesting():
    np.testing.assert_allclose(by_sparse(TH), by_dense(TH), rtol=1e-13)
    np.testing.assert_allclose(tg.grad(by_sparse)(TH), tg.grad(by_dense)(TH), rtol=1e-12)
    v, w = RANDOM.normal(size=(2, 3))
    np.testing.assert_allclose(tg.jvp(by_sparse, (TH,), (v,))[1], tg.grad(by_dense)(TH) @ v, rtol=1e-12)
    H = tg.hessian(by_dense)(TH)
    np.testing.assert_allclose(tg.hessian(by_sparse)(TH), H, rtol=1e-11, atol=1e-12)
    forward = lambda f: lambda th: tg.jvp(f, (th,), (v,))[1]
    np.testing.assert_allclose(tg.grad(forward(by_sparse))(TH), H @ v, rtol=1e-11)
    np.testing.assert_allclose(tg.jvp(tg.grad(by_sparse), (TH,), (v,))[1], H @ v, rtol=1e-11)
    np.testing.assert_allclose(tg.jvp(forward(by_sparse), (TH,), (w,))[1], w @ H @ v, rtol=1e-11)
    third = lambda f: tg.grad(lambda th: tg.grad(lambda th: tg.grad(f)(th) @ v)(th) @ w)(TH)
    np.testing.assert_allclose(third(by_sparse), third(by_dense), rtol=1e-10)
    fourth = lambda f: tg.jvp(
        lambda th: tg.grad(lambda th: tg.jvp(forward(f), (th,), (w,))[1])(th), (TH,), (v,)
    )[1]
    np.testing.assert_allclose(fourth(by_sparse), fourth(by_dense), rtol=1e-9)


def test_gradient_by_complex_step_and_differences():
    """Of the log-determinant alone: the dense determinant of complex numbers knows nothing of tapegrad."""
    h = 1e-30
    step = [np.log(np.linalg.det(dense_of_complex(TH + 1j * h * e))).imag / h for e in np.eye(3)]
    np.testing.assert_allclose(
        tg.grad(lambda th: tg.sparse.cholesky(sparse_of(th)).logdet())(TH), step, rtol=1e-12
    )
    differences = [(by_sparse(TH + 1e-6 * e) - by_sparse(TH - 1e-6 * e)) / 2e-6 for e in np.eye(3)]
    np.testing.assert_allclose(tg.grad(by_sparse)(TH), differences, rtol=1e-7, atol=1e-8)


def dense_of_complex(th):
    A = np.zeros((N, N), complex)
    A[ROWS, COLS] = entries(th)
    return A


def test_vmap_and_prepare():
    points = TH + 0.1 * RANDOM.normal(size=(4, 3))
    np.testing.assert_allclose(tg.vmap(by_sparse)(points), [by_dense(th) for th in points], rtol=1e-12)
    np.testing.assert_allclose(
        tg.vmap(tg.grad(by_sparse))(points), [tg.grad(by_dense)(th) for th in points], rtol=1e-11
    )
    p = tg.prepare(by_sparse, TH)
    for th in points:
        np.testing.assert_allclose(p.value(th), by_dense(th), rtol=1e-13)
        np.testing.assert_allclose(p.grad(th), tg.grad(by_dense)(th), rtol=1e-11)
        np.testing.assert_allclose(p.hessian(th), tg.hessian(by_dense)(th), rtol=1e-10, atol=1e-11)


def test_of_hessians_of_functions():
    """The determinant of a sparse Hessian, differentiated by what the function and the point depend on."""
    f = lambda x, a: (a[0] * np.cosh(np.diff(x)) + 0 * x[1:]).sum() + (np.exp(a[1] * x)).sum() + (x**2).sum()
    x, a = RANDOM.normal(size=7), np.array([0.8, 0.4])
    plan = tg.sparse.prepare_hessian(f, x, a)
    by_plan = lambda x, a: tg.sparse.cholesky(plan(x, a)).logdet()
    at_once = lambda x, a: tg.sparse.cholesky(tg.sparse.hessian(f, x, a)).logdet()
    dense = lambda x, a: np.linalg.slogdet(tg.hessian(f)(x, a))[1]
    for g, k in itertools.product((by_plan, at_once), (0, 1)):
        np.testing.assert_allclose(g(x, a), dense(x, a), rtol=1e-13)
        np.testing.assert_allclose(tg.grad(g, k)(x, a), tg.grad(dense, k)(x, a), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(tg.hessian(g, k)(x, a), tg.hessian(dense, k)(x, a), rtol=1e-10, atol=1e-11)


def random_matrix(n, share, seed):
    rng = np.random.default_rng(seed)
    M = scipy.sparse.random_array((n, n), density=share, rng=rng, format="csr")
    return (M @ M.T + scipy.sparse.eye_array(n) * (0.1 + rng.random())).tocsr()


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "dia"])
@pytest.mark.parametrize("seed", range(6))
def test_plain_matrices_of_random_patterns(format, seed):
    n = (1, 2, 7, 30, 60, 120)[seed]
    A = random_matrix(n, min(1.0, 2.0 / n), seed)
    D = A.toarray()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.sparse.SparseEfficiencyWarning)  # of many diagonals
        c = tg.sparse.cholesky(A.asformat(format))
    b = np.random.default_rng(seed).normal(size=(n, 3))
    np.testing.assert_allclose(c.solve(b), np.linalg.solve(D, b), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(c.solve(b[:, 0]), np.linalg.solve(D, b[:, 0]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(c.logdet(), np.linalg.slogdet(D)[1], rtol=1e-12, atol=1e-12)
    Z = c.selected_inverse()
    rows, cols = Z.nonzero()
    np.testing.assert_allclose(Z.toarray()[rows, cols], np.linalg.inv(D)[rows, cols], rtol=1e-10, atol=1e-12)
    assert c.shape == (n, n) and set(zip(rows, cols, strict=True)) <= set(zip(*c_pattern(c), strict=True))


def c_pattern(c):
    return c.analysis.rows, c.analysis.indices


def test_results_own_their_memory():
    A = random_matrix(30, 0.05, 3)
    data, c = A.data.copy(), tg.sparse.cholesky(A)
    first, Z = c.logdet(), c.selected_inverse()
    Z.data[:] = 0.0
    assert (c.selected_inverse().data != 0).any() and (A.data == data).all()
    A.data *= 2.0
    assert tg.sparse.cholesky(A).logdet() != first


def test_draws_have_the_covariance_of_the_inverse():
    A = random_matrix(6, 0.3, 1)
    c, rng = tg.sparse.cholesky(A), np.random.default_rng(0)
    draws = np.stack([c.sample(rng) for _ in range(20000)])
    np.testing.assert_allclose(
        np.cov(draws.T), np.linalg.inv(A.toarray()), atol=0.04 * np.linalg.inv(A.toarray()).max()
    )
    unit = [c.sample(Unit(k, 6)) for k in range(6)]  # exactly: the columns of a root of the inverse
    np.testing.assert_allclose(np.transpose(unit) @ unit, np.linalg.inv(A.toarray()), rtol=1e-12, atol=1e-13)


class Unit:
    def __init__(self, k, n):
        self.k, self.n = k, n

    def standard_normal(self, n):
        assert n == self.n
        return np.eye(n)[self.k]


def test_fill_and_the_analysis_that_is_kept():
    n = 400
    band = scipy.sparse.diags_array(
        [np.full(n - 1, -1.0), np.full(n, 2.5), np.full(n - 1, -1.0)], offsets=[-1, 0, 1]
    ).tocsr()
    arrow = scipy.sparse.lil_array((n, n))
    arrow[0, :], arrow[:, 0] = 0.01, 0.01
    arrow.setdiag(1.0)
    for A in (band, arrow.tocsr()):
        c = tg.sparse.cholesky(A)
        assert c.analysis.fill == n - 1  # no fill
        assert tg.sparse.cholesky(A * 2.0).analysis is c.analysis
        np.testing.assert_allclose(c.logdet(), np.linalg.slogdet(A.toarray())[1], rtol=1e-12)
    for k in range(2 * _elimination.KEPT_ANALYSES):
        tg.sparse.cholesky(scipy.sparse.eye_array(k + 1, format="csr"))
    assert len(_elimination.KEPT) <= _elimination.KEPT_ANALYSES


def test_single_precision():
    A = random_matrix(20, 0.1, 5).astype(np.float32)
    c = tg.sparse.cholesky(A)
    assert (
        c.logdet().dtype == c.selected_inverse().dtype == c.solve(np.ones(20, np.float32)).dtype == np.float32
    )
    g = tg.grad(lambda t: tg.sparse.cholesky(A * t).logdet())(np.float32(1.5))
    assert g.dtype == np.float32 and abs(g - 20 / 1.5) < 1e-4


def test_complex_right_sides():
    A, b = random_matrix(8, 0.3, 2), np.exp(1j * np.arange(16.0)).reshape(8, 2)
    f = lambda t: abs(tg.sparse.cholesky(A * t).solve(b[:, 0])).sum()
    for right in (b, b[:, 0]):
        np.testing.assert_allclose(tg.sparse.cholesky(A).solve(right), np.linalg.solve(A.toarray(), right))
    np.testing.assert_allclose(tg.grad(f)(2.0), -f(2.0) / 2.0)


def test_bad_matrices():
    A = random_matrix(8, 0.3, 2)
    with pytest.raises(ArgumentError, match=r"not sparse; use numpy.linalg.cholesky"):
        tg.sparse.cholesky(A.toarray())
    with pytest.raises(ShapeError, match="not square"):
        tg.sparse.cholesky(A[:5])
    with pytest.raises(ArgumentError, match="dtype complex128"):
        tg.sparse.cholesky(A * 1j)
    with pytest.raises(ArgumentError, match="dtype int"):
        tg.sparse.cholesky(scipy.sparse.eye_array(3, dtype=int))
    with pytest.raises(NotPositiveDefiniteError, match="pivot of row"):
        tg.sparse.cholesky(A - 100 * scipy.sparse.eye_array(8))
    with pytest.raises(NotPositiveDefiniteError, match="diagonal entry 1 is zero"):
        tg.sparse.cholesky(scipy.sparse.csr_array(np.diag([1.0, 0.0, 2.0])))
    with pytest.raises(NotPositiveDefiniteError):
        tg.sparse.cholesky(A * np.nan)
    with pytest.raises(ArgumentError, match="pattern is not symmetric"):
        tg.sparse.cholesky(scipy.sparse.csr_array(np.array([[2.0, 1.0], [0.0, 2.0]])))
    with pytest.raises(ArgumentError, match="matrix is not symmetric"):
        tg.sparse.cholesky(scipy.sparse.csr_array(np.array([[2.0, 1.0], [0.5, 2.0]])))
    with pytest.raises(ShapeError, match="b has shape"):
        tg.sparse.cholesky(A).solve(np.ones(3))
    with pytest.raises(NotPositiveDefiniteError):
        tg.grad(lambda t: tg.sparse.cholesky(A * t).logdet())(-1.0)
    with pytest.raises(ArgumentError, match="carries no derivative"):
        tg.grad(lambda t: tg.sparse.cholesky(A * t).sample(np.random.default_rng(0)).sum())(1.0)


def test_directions_share_a_factor():
    """Hessians sweep several directions at once: as by dense algebra, in three orders, alone and under vmap."""
    rng, n = np.random.default_rng(0), 40
    A = scipy.sparse.random_array((n, n), density=0.1, rng=rng)
    A = (A @ A.T + 5 * scipy.sparse.eye_array(n)).tocsr()
    parts = []
    for _ in range(2):
        B = A.copy()
        B.data = 0.05 * rng.normal(size=B.nnz)
        parts.append((B + B.T).tocsr())
    b, I, places = rng.normal(size=n), scipy.sparse.eye_array(n), A.toarray() != 0

    def sparse(t):
        c = tg.sparse.cholesky(A * t[0] + I * np.exp(t[1]) + parts[0] * np.sin(t[2]) + parts[1] * t[3])
        assert c.analysis.is_filled
        return c.logdet() + (c.solve(b) ** 2).sum() + (c.selected_inverse() @ b).sum() * t[4]

    def dense(t):
        whole = A.toarray() * t[0] + np.eye(n) * np.exp(t[1])
        whole = whole + parts[0].toarray() * np.sin(t[2]) + parts[1].toarray() * t[3]
        Z = np.linalg.inv(whole)
        selected = np.where(places, Z, 0.0)
        return np.linalg.slogdet(whole)[1] + ((Z @ b) ** 2).sum() + (selected @ b).sum() * t[4]

    t = np.array([1.0, 0.3, 0.2, 0.4, 0.7])
    np.testing.assert_allclose(tg.hessian(sparse)(t), tg.hessian(dense)(t), rtol=1e-11, atol=1e-11)
    third = [tg.jacobian(tg.hessian(f))(t) for f in (sparse, dense)]
    np.testing.assert_allclose(*third, rtol=1e-10, atol=1e-10)
    V = t + 0.1 * rng.normal(size=(3, 5))
    np.testing.assert_allclose(
        tg.vmap(tg.hessian(sparse))(V), tg.vmap(tg.hessian(dense))(V), rtol=1e-10, atol=1e-10
    )
