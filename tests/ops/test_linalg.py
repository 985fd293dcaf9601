"""Linear algebra: repeated eigenvalues, singular and indefinite matrices, factors of Cholesky, gains of a
filter."""

import warnings
from contextlib import nullcontext

import mpmath
import numpy as np
import pytest
import scipy.linalg
from _modes import check_first, check_second
from cases_linalg import right_solve
from comparison import close, host

import tapegrad as tg
from tapegrad.errors import NotPositiveDefiniteError, ShapeError

pytestmark = pytest.mark.smoke

D = np.diag([1.0, 1.0, 2.0, 3.0])
Q = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
ONES = np.ones((4, 4))


def frechet(A, E):
    """The derivative of the matrix exponential at A, by SciPy."""
    return scipy.linalg.expm_frechet(A, E)[1]


def sum_exp(xp):
    def f(A):
        w, V = xp.linalg.eigh(A)
        return ((V * xp.exp(w)) @ V.T).sum()

    return f


def symmetric(seed):
    T = np.random.default_rng(seed).standard_normal((4, 4))
    return T + T.T


# --- repeated eigenvalues and singular values ---


def test_exponential_by_eigenvectors_at_repeated_eigenvalues(xp):
    """D is diagonal: the derivative is by the triangle that is read, with both of a pair of entries in the
    one that is."""
    g = host(tg.grad(sum_exp(xp))(xp.asarray(D)))
    both = g + g.T - np.diag(np.diag(g))
    close(np.triu(g, 1), np.zeros((4, 4)))
    close(
        both[0],
        [2.718281828459046, *2 * np.array([2.718281828459046, 4.670774270471606, 8.683627547364328])],
        1e-14,
    )
    close(both[2, 3], 2 * 12.696480824257044, 1e-14)
    expected = frechet(D, ONES)
    close(g, np.tril(expected) + np.tril(expected, -1), 1e-13)


@pytest.mark.parametrize(
    "w", [(1, 1, 2, 3), (1, 1, 1, 3), (2, 2, 2, 2), (1, 1, 3, 3), (1, 1 + 1e-10, 2, 3), (1, 1 + 1e-5, 2, 3)]
)
def test_repeated_eigenvalues_in_a_general_position(xp, w):
    A, T = Q @ np.diag(np.array(w, float)) @ Q.T, symmetric(1)
    f, a = sum_exp(xp), xp.asarray(A)
    close(tg.grad(f)(a), frechet(A, ONES), 1e-9)
    close(tg.jvp(f, (a,), (xp.asarray(T),))[1], np.sum(frechet(A, ONES) * T), 1e-9)


def test_a_chain_of_functions_of_degenerate_matrices():
    A, T = Q @ D @ Q.T, symmetric(1)

    def log_of_exp(a):
        w, V = np.linalg.eigh(a)
        w, V = np.linalg.eigh((V * np.exp(w)) @ V.T)
        return np.sum((V * np.log(w)) @ V.T * T)

    close(tg.grad(log_of_exp)(A), T, 1e-13)
    close(tg.jvp(log_of_exp, (A,), (ONES,))[1], T.sum(), 1e-13)


def test_second_order_of_eigenvalues_where_they_repeat():
    A, T = Q @ D @ Q.T, symmetric(2)

    def f(a):
        return np.exp(np.linalg.eigvalsh(a)).sum()

    expected = frechet(A, T)
    close(tg.jvp(tg.grad(f), (A,), (T,))[1], expected, 1e-12)
    close(tg.grad(lambda a: np.sum(tg.grad(f)(a) * T))(A), expected, 1e-12)
    close(tg.grad(lambda a: tg.jvp(f, (a,), (T,))[1])(A), expected, 1e-12)


@pytest.mark.parametrize("of", ["vector", "second order"])
def test_what_has_no_derivative_is_nan_and_warns(of):
    A, T = D, symmetric(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if of == "vector":
            g = tg.grad(lambda a: np.linalg.eigh(a)[1][1, 0])(A)
        else:
            g = tg.jvp(tg.grad(sum_exp(np)), (Q @ A @ Q.T,), (T,))[1]
    assert np.isnan(g).any()
    assert any(issubclass(c.category, RuntimeWarning) and "equal" in str(c.message) for c in caught)


GAUGE = {
    "an element of a vector": lambda w, V: V[0, 0],
    "the square of one": lambda w, V: V[0, 1] ** 2,
    "a sum of fourth powers": lambda w, V: (V**4).sum(),
    "the projector on one of them": lambda w, V: (V[:, 0] @ np.arange(4.0)) ** 2,
    "weights that differ": lambda w, V: (
        (V * np.array([1.0, 2.0, 5.0, 7.0])) @ V.T * np.arange(16.0).reshape(4, 4)
    ).sum(),
    "an element that is zero in every choice": lambda w, V: V[2, 0],
}
SMOOTH = {
    "a function of the matrix": (
        lambda w, V: ((V * np.sin(w)) @ V.T * np.arange(16.0).reshape(4, 4)).sum(),
        None,
    ),
    "the projector on the eigenspace": (
        lambda w, V: (V[:, :2] @ V[:, :2].T * np.arange(16.0).reshape(4, 4)).sum(),
        None,
    ),
    "the norm of one vector": (lambda w, V: (V[:, 0] ** 2).sum(), 0.0),
    "the trace": (lambda w, V: w.sum(), None),
    "the logarithm of the determinant": (lambda w, V: np.log(w).sum(), None),
    "a simple eigenvector": (lambda w, V: V[0, 3] * V[3, 3] + V[1, 3] ** 2, None),
}


def loud(call):
    """What a call gives, and whether it warned of equal eigenvalues."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = call()
    return y, any(issubclass(c.category, RuntimeWarning) and "equal" in str(c.message) for c in caught)


@pytest.mark.parametrize("basis", ["unit vectors", "in general position"])
@pytest.mark.parametrize("name", GAUGE)
def test_the_choice_of_vectors_of_equal_eigenvalues_is_loud(name, basis):
    """In reverse mode for each; in forward mode unless the tangent itself makes the choice, and the
    derivative is that of its path."""
    A = D if basis == "unit vectors" else Q @ D @ Q.T
    f = lambda a: GAUGE[name](*np.linalg.eigh(a))
    g, warned = loud(lambda: tg.grad(f)(A))
    assert warned
    assert np.isnan(g).any()
    if name != "an element that is zero in every choice":
        d, warned = loud(lambda: tg.jvp(f, (A,), (symmetric(5),))[1])
        assert warned
        assert np.isnan(d)
        alike = (
            np.diag([1.0, 1.0, 0.0, 0.0])
            if basis == "unit vectors"
            else Q @ np.diag([1.0, 1.0, 0.0, 0.0]) @ Q.T
        )
        d, warned = loud(lambda: tg.jvp(f, (A,), (alike,))[1])  # a tangent that leaves them equal
        assert warned
        assert np.isnan(d)


@pytest.mark.parametrize("basis", ["unit vectors", "in general position"])
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_of_degenerate_matrices_stay_right(name, basis):
    """Against central differences along random directions."""
    A, T = (D if basis == "unit vectors" else Q @ D @ Q.T), symmetric(6)
    f = lambda a: SMOOTH[name][0](*np.linalg.eigh(a))
    h = 1e-5
    expected = (f(A + h * T) - f(A - h * T)) / (2 * h)
    g, warned = loud(lambda: tg.grad(f)(A))
    d, also = loud(lambda: tg.jvp(f, (A,), (T,))[1])
    assert not warned
    assert not also
    close(np.sum(g * T), expected, 1e-7, 1e-9)
    close(d, expected, 1e-7, 1e-9)


def test_a_path_that_parts_equal_eigenvalues_has_the_derivative_of_the_path():
    """V[2, 0] is zero at D in every choice; along D + t T it is the vector that T selects."""
    T, h = symmetric(5), 1e-6
    path = np.linalg.eigh(D + h * T)[1][2, 0] / h
    d, warned = loud(lambda: tg.jvp(lambda a: np.linalg.eigh(a)[1][2, 0], (D,), (T,))[1])
    assert not warned
    close(abs(d), abs(path), 1e-4)


@pytest.mark.parametrize("shape", [(4, 4), (6, 4), (4, 6)])
def test_the_choice_of_singular_vectors_is_loud_and_smooth_functions_are_right(shape):
    rng = np.random.default_rng(8)
    n, m = shape
    P, R = np.linalg.qr(rng.standard_normal((n, n)))[0], np.linalg.qr(rng.standard_normal((m, m)))[0]
    A, T, W = P[:, :4] @ D @ R[:4], rng.standard_normal(shape), rng.standard_normal(shape)

    def of(h):
        return lambda a: h(*np.linalg.svd(a, full_matrices=False))

    polar, h = of(lambda u, s, vh: (u @ vh * W).sum()), 1e-5
    expected = (polar(A + h * T) - polar(A - h * T)) / (2 * h)
    g, warned = loud(lambda: tg.grad(polar)(A))
    d, also = loud(lambda: tg.jvp(polar, (A,), (T,))[1])
    assert not warned
    assert not also
    close(np.sum(g * T), expected, 1e-7)
    close(d, expected, 1e-7)
    for f in (
        lambda u, s, vh: u[0, 3],
        lambda u, s, vh: vh[2, 1] ** 2,
        lambda u, s, vh: u[:, 2] ** 2 @ np.arange(n),
    ):
        for call in (lambda f=f: tg.grad(of(f))(A), lambda f=f: tg.jvp(of(f), (A,), (T,))[1]):
            y, warned = loud(call)
            assert warned
            assert np.isnan(y).any()


def test_norm_of_a_product_of_singular_factors(xp):
    def f(A):
        U, S, Vh = xp.linalg.svd(A)
        return xp.linalg.norm((U * S) @ Vh)

    close(tg.grad(f)(xp.asarray(D)), D / np.sqrt(15), 1e-14)


def test_repeated_singular_values(xp):
    P = np.linalg.qr(np.random.default_rng(5).standard_normal((4, 4)))[0]
    A = np.vstack([Q @ D @ P, np.zeros((2, 4))])
    W = xp.asarray(np.random.default_rng(6).standard_normal((6, 4)))

    def f(a):
        U, S, Vh = xp.linalg.svd(a, full_matrices=False)
        return (((U * S**3) @ Vh) * W).sum()

    expected = tg.grad(lambda a: (a @ a.T @ a * W).sum())(xp.asarray(A))
    close(tg.grad(f)(xp.asarray(A)), expected, 1e-12)
    E = np.ones((6, 4))
    close(tg.jvp(f, (xp.asarray(A),), (xp.asarray(E),))[1], (host(expected) * E).sum(), 1e-12)


# --- factors and solutions ---


def test_sum_of_a_solution_from_its_factor(xp):
    A, b = np.array([[1.3, 0.5], [0.5, 1.5]]), xp.asarray([1.0, 2.0])
    f = lambda A: right_solve(b, A).sum()
    value, g = tg.value_and_grad(f)(xp.asarray(A))
    close(value, 1.5294117647058822)
    close(g, [[-0.173010380622837, -0.432525951557094], [-0.432525951557094, -0.581314878892734]])


@pytest.mark.parametrize("kind", ["inverse", "solution"])
def test_inverse_and_solution_from_a_factor(kind):
    """f(A) = W : A^-1 or c^T A^-1 b, whose first and second derivatives are closed forms."""
    rng = np.random.default_rng(7)
    A = rng.standard_normal((4, 4))
    A = A @ A.T + 4 * np.eye(4)
    T, X = symmetric(8), np.linalg.inv(A)
    B, C = (
        (np.eye(4), rng.standard_normal((4, 4)))
        if kind == "inverse"
        else (rng.standard_normal((4, 1)), rng.standard_normal((4, 1)))
    )

    def f(a):
        return np.sum(C * tg.scipy.linalg.cho_solve((np.linalg.cholesky(a), True), B))

    def sym(m):
        return (m + m.T) / 2

    check = tg.grad(f)(A)
    close(check, -sym(X @ C @ B.T @ X), 1e-12)
    M = C @ B.T
    second = sym(X @ T @ X @ M @ X + X @ M @ X @ T @ X)
    close(tg.jvp(f, (A,), (T,))[1], np.sum(check * T), 1e-12)
    close(tg.jvp(tg.grad(f), (A,), (T,))[1], second, 1e-12)
    close(tg.grad(lambda a: np.sum(tg.grad(f)(a) * T))(A), second, 1e-12)
    close(tg.grad(lambda a: tg.jvp(f, (a,), (T,))[1])(A), second, 1e-12)
    close(tg.jvp(lambda a: tg.jvp(f, (a,), (T,))[1], (A,), (T,))[1], np.sum(second * T), 1e-12)


def test_three_gains_agree():
    rng = np.random.default_rng(9)
    P = rng.standard_normal((3, 3))
    P, R, Z, W = (
        P @ P.T + np.eye(3),
        np.diag([0.3, 0.2]),
        rng.standard_normal((2, 3)),
        rng.standard_normal((3, 2)),
    )
    gains = [
        lambda p, s: np.linalg.solve(s, p.T).T,
        lambda p, s: right_solve(p, s),
        lambda p, s: p @ np.linalg.inv(s),
    ]
    grads = [tg.grad(lambda P, g=g: np.sum(W * g(P @ Z.T, Z @ P @ Z.T + R)))(P) for g in gains]
    close(grads[1] + grads[1].T, grads[0] + grads[0].T, 1e-11)
    close(grads[2] + grads[2].T, grads[0] + grads[0].T, 1e-11)


# --- singular and indefinite matrices ---


def test_indefinite_matrix(xp):
    a = np.stack([np.eye(2), np.diag([1.0, -2.0])])
    if xp is np:
        with pytest.raises(NotPositiveDefiniteError, match="batch member 1 .* smallest eigenvalue is -2"):
            tg.grad(lambda a: np.linalg.cholesky(a).sum())(a)
    else:
        L = host(tg.vjp(lambda a: xp.linalg.cholesky(a), xp.asarray(a))[0])
        close(L[0], np.eye(2))
        assert np.isnan(L[1]).all()


def test_singular_systems_are_named():
    a = np.stack([np.eye(2), np.ones((2, 2))])
    with pytest.raises(np.linalg.LinAlgError, match="solve, batch member 1: the matrix is singular"):
        tg.grad(lambda a: np.linalg.solve(a, np.ones(2)).sum())(a)
    with pytest.raises(np.linalg.LinAlgError, match="inv, batch member 1"):
        tg.grad(lambda a: np.linalg.inv(a).sum())(a)
    with pytest.raises(np.linalg.LinAlgError, match="element 1 of its diagonal"):
        tg.grad(lambda a: tg.scipy.linalg.solve_triangular(a, np.ones(2)).sum())(np.diag([1.0, 0.0]))
    with pytest.raises(ShapeError, match="solve"):
        tg.grad(lambda a: np.linalg.solve(a, np.ones(3)).sum())(np.eye(2))


def test_determinant_of_rank_n_minus_1(xp):
    a = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [5.0, 7.0, 9.0]])
    cofactors = np.array([[3.0, -6.0, 3.0], [3.0, -6.0, 3.0], [-3.0, 6.0, -3.0]])
    f = lambda a: xp.linalg.det(a)
    check_first(f, xp.asarray(a), cofactors, rtol=1e-13)
    v = np.arange(9.0).reshape(3, 3) ** 2
    product = np.zeros((3, 3))
    for i in np.ndindex(3, 3):
        e = np.zeros((3, 3))
        e[i] = 1.0
        # det is a cubic polynomial: its mixed second derivative by a difference of step 1/2 each way is exact
        quad = [
            s * np.linalg.det(a + x * e + y * v)
            for x, y, s in ((0.5, 0.5, 1), (0.5, -0.5, -1), (-0.5, 0.5, -1), (-0.5, -0.5, 1))
        ]
        product[i] = sum(quad)
    check_second(f, xp.asarray(a), xp.asarray(v), product, rtol=1e-11)


# --- norms ---


@pytest.mark.filterwarnings("ignore:divide by zero")  # 1 / |x| of a negative order
@pytest.mark.parametrize("order", [None, -1, -2, 1, 2, 3])
def test_norm_at_zero_at_every_order(xp, order):
    zero, v = xp.zeros(5), xp.arange(6.0, 11.0)
    f = lambda x: xp.linalg.norm(x, order) ** 3 * x[-1] + x[0] ** 2
    check_first(f, zero, np.zeros(5))
    warned = xp is np and order != 1  # sums of |x| have a corner, no root
    with pytest.warns(tg.errors.NonDifferentiableWarning, match="^norm at zero") if warned else nullcontext():
        check_second(f, zero, v, np.array([12.0, 0, 0, 0, 0]))


BASES = {
    "null_space": (lambda a: scipy.linalg.null_space(a), lambda n, k: (n, n + k)),
    "svd, rows": (lambda a: np.linalg.svd(a)[2][a.shape[0] :].T, lambda n, k: (n, n + k)),
    "svd, columns": (lambda a: np.linalg.svd(a)[0][:, a.shape[1] :], lambda n, k: (n + k, n)),
}


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("name", BASES)
def test_bases_that_are_not_determined_are_nan_and_warn(name, k):
    """Of one column the sign is free alone, of several the basis: what depends on it has no derivative, what
    depends on the space has."""
    basis, shape = BASES[name]
    rng = np.random.default_rng(k)
    a, e = rng.standard_normal((2, *shape(2, k)))
    w, m = rng.standard_normal((sum(shape(2, k)) - 2, k)), rng.standard_normal((k + 2, k + 2))
    of_space = lambda a: ((basis(a) @ basis(a).T) * m).sum()
    slope = (of_space(a + 1e-6 * e) - of_space(a - 1e-6 * e)) / 2e-6
    assert tg.jvp(of_space, (a,), (e,))[1] == pytest.approx(slope, rel=1e-6, abs=1e-7)
    assert (tg.grad(of_space)(a) * e).sum() == pytest.approx(slope, rel=1e-6, abs=1e-7)
    of_basis = lambda a: (basis(a) * w).sum()
    if k == 1:
        assert np.isfinite(tg.grad(of_basis)(a)).all()
        return
    for run in (lambda: tg.grad(of_basis)(a).sum(), lambda: tg.jvp(of_basis, (a,), (e,))[1]):
        with pytest.warns(RuntimeWarning, match="eigenvectors or singular vectors"):
            assert np.isnan(run())


@pytest.mark.parametrize("f", [np.linalg.cond, np.linalg.det, np.linalg.svdvals], ids=lambda f: f.__name__)
def test_infinite_elements_do_not_hang(f):
    """LAPACK's search for singular vectors of a matrix with infinity may not end; that for the values
    does."""
    a = np.eye(3) + 0.1
    a[0, 0] = np.inf
    with np.errstate(all="ignore"):
        try:
            expected = f(a)
        except np.linalg.LinAlgError:
            with pytest.raises(np.linalg.LinAlgError):
                tg.vjp(f, a)
            return
        np.testing.assert_array_equal(tg.vjp(f, a)[0], expected)
        tg.jvp(f, (a,), (np.ones_like(a),))


@pytest.mark.parametrize("columns", [6, 4])
def test_pinv_of_an_ill_conditioned_matrix_keeps_its_digits(columns):
    a = scipy.linalg.hilbert(6)[:, :columns]
    weights = np.cos(np.arange(6.0 * columns)).reshape(columns, 6)
    direction = np.sin(1.0 + np.arange(6.0 * columns)).reshape(6, columns)

    def plain(x):  # (A^T A)^-1 A^T in many digits
        rows = mpmath.matrix(x.tolist())
        return mpmath.inverse(rows.T * rows) * rows.T

    with mpmath.workdps(60):
        step = mpmath.mpf(10) ** -20
        sides = [plain(np.vectorize(mpmath.mpf)(a) + s * step * direction) for s in (1, -1)]
        slope = float(
            sum([w * d for w, d in zip(weights.ravel(), (sides[0] - sides[1]) / (2 * step), strict=True)])
        )

    def f(x):
        return np.sum(weights * np.linalg.pinv(x))

    for found in (np.sum(tg.grad(f)(a) * direction), tg.jvp(f, (a,), (direction,))[1]):
        assert abs(found - slope) <= 1e-7 * abs(slope)


def test_eigenvalues_have_the_bits_of_lapack():
    a = np.random.default_rng(3).normal(size=(20, 4, 4))
    for m in a:
        values, vectors = np.linalg.eig(m)
        found = [tg.jvp(f, (m,), (m,))[0] for f in (np.linalg.eigvals, lambda m: np.linalg.eig(m)[0])]
        assert np.array_equal(found, [np.linalg.eigvals(m), values])
        assert np.array_equal(tg.jvp(lambda m: np.linalg.eig(m)[1], (m,), (m,))[0], vectors)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)], ids=str)
def test_dependent_columns_have_no_qr_derivative(shape):
    """R has a diagonal of rounding errors. A wide matrix has derivatives by the columns beyond."""
    x, first = np.ones(shape), min(shape)
    for q in (
        lambda x: np.linalg.qr(x)[0],
        lambda x: np.linalg.qr(x)[1],
        lambda x: scipy.linalg.qr(x, mode="economic")[1],
    ):
        for mode in ("reverse", "forward"):
            found = tg.jacobian(lambda x: np.sum(q(x) * np.cos(q(x))), mode=mode)(x)
            assert np.isnan(found[:, 1:first]).all()
    # (the pivot is a factor of the cotangent, and may be exactly 0)
    assert np.isnan(tg.grad(lambda x: np.linalg.qr(x)[1][0, 1])(x)[:, 1:first]).any()


def test_factors_that_jump_have_no_derivative():
    """An element below the subdiagonal that is 0 changes signs of Hessenberg's form; the sign of a singular
    matrix jumps."""
    a = symmetric(3)
    a[2:, 0] = 0.0
    g = lambda a: np.sum(scipy.linalg.hessenberg(a) ** 3)
    for mode in ("reverse", "forward"):
        found = tg.jacobian(g, mode=mode)(a)
        assert np.isnan(found[2:, 0]).all() and np.isfinite(found[:2]).all()
    kept = lambda b: g(np.block([[b, a[:1, 1:]], [a[1:, :1], a[1:, 1:]]]))  # those zeros are constants
    assert tg.grad(kept)(a[:1, :1])[0, 0] == pytest.approx(3 * a[0, 0] ** 2, rel=1e-12)
    for f, x in (scipy.linalg.hessenberg, ONES), (scipy.linalg.signm, np.outer(np.arange(4.0), np.ones(4))):
        with pytest.raises(np.linalg.LinAlgError, match="zero up to rounding|0 up to rounding"):
            tg.grad(lambda x, f=f: np.sum(f(x)))(x)


@pytest.mark.filterwarnings("ignore:a derivative of eigenvectors")
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)], ids=str)
@pytest.mark.parametrize("columns", [0, 1])
def test_svd_at_singular_values_of_exactly_zero(shape, columns):
    """An odd function of them is smooth; its slope there is that of the sine at 0, or of its expansion."""
    rng = np.random.default_rng(7)
    a, weights = np.zeros(shape), rng.standard_normal(shape)
    a[:, :columns] = rng.standard_normal((shape[0], columns))

    def f(a):
        u, s, v = np.linalg.svd(a, full_matrices=False)
        return ((u * np.sin(s)) @ v * weights).sum()

    units = np.eye(a.size).reshape(-1, *shape)
    wanted = np.reshape([(f(a + 1e-5 * e) - f(a - 1e-5 * e)) / 2e-5 for e in units], shape)
    prepared = tg.prepare(f, rng.standard_normal(shape))
    for _ in range(3):
        prepared.grad(rng.standard_normal(shape))
    for found in (tg.grad(f)(a), prepared.grad(a)):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)
    batch = tg.vmap(tg.grad(f))(np.stack([a, a]))[1]
    assert np.isnan(batch).all() or np.allclose(batch, wanted)


def test_products_with_the_derivative_of_qr_at_dependent_columns():
    """They exist in one mode as in the others."""
    a = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    f = lambda a: np.concatenate([y.ravel() for y in np.linalg.qr(a)])
    units = np.eye(6).reshape(6, 3, 2)
    wanted = np.stack([tg.jvp(f, (a,), (e,))[1] for e in units], -1)
    push = tg.linearize(f, a)[1]
    for found in (tg.jacobian(f, mode="forward")(a).reshape(-1, 6), np.stack([push(e) for e in units], -1)):
        finite = np.isfinite(found)
        assert not (finite & np.isnan(wanted)).any()
        np.testing.assert_array_equal(found[finite], wanted[finite])
    assert np.isnan(wanted).any() and not np.isnan(wanted).all()


def test_schur_of_a_plane_that_is_only_turned():
    a = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.3], [0.0, -0.3, 0.0]])
    with pytest.raises(np.linalg.LinAlgError, match="write output='complex'"):
        tg.grad(lambda a: np.sin(scipy.linalg.schur(a)[0]).sum())(a)
