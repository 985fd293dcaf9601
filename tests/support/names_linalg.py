"""Lines of scipy.linalg and scipy.fft for tests/ops/test_scipy_names.py."""

import numpy as np
from cases import case, cnormal, normal, positive
from cases_linalg import gauge, hermitian, pd
from names_numpy import line

from tapegrad import scipy
from tapegrad.ops.linalg import equations

la, fft = scipy.linalg, scipy.fft
A, B, D, W = normal(3, 3), normal(3, 3, seed=1), normal(3, 3) + 3 * np.eye(3), normal(3, 6)
B33 = normal(3, 3, seed=2) + 2 * np.eye(3)
Z, R43, R34, X3, X4, P3 = cnormal(3, 3), normal(4, 3), normal(3, 4), normal(3), normal(4), positive(3)
BAND, HALF = (
    np.array([[0.0, 0.3, -0.4, 0.5], [3.0, 2.5, 2.2, 2.8], [0.6, -0.2, 0.4, 0.0]]),
    np.array([[3.0, 2.5, 2.2, 2.8], [0.6, -0.2, 0.4, 0]]),
)
UPPER = np.array([[0.0, 0.0, 0.7, 0.5], [0.0, 0.3, -0.4, 0.5], [3.0, 2.5, 2.2, 2.8]])
USED = np.array([[1.0] * 4, [1.0, 1.0, 1.0, 0.0]])  # SciPy hands the other element on as it is
SPECTRAL = {"rtol": 1e-7, "numpy_only": True, "single": 1e-2}


def eigen(w, v):
    return w, abs(v[..., 0, :]) ** 2


SYSTEMS = [
    line(
        "lu",
        lambda a: la.lu(a)[1:],
        A,
        covers=(
            "lu_of",
            "rows_in_order",
            "exchanges",
            "exchanged",
            "riccati",
            "general_spectrum",
            "apart",
            "scipy_qz",
        ),
    ),
    line("lu tall", lambda a: la.lu(a, permute_l=True), R43),
    line("lu wide", lambda a: la.lu(a, p_indices=True)[1:], R34),
    line("lu complex", lambda a: la.lu(a)[1:], Z),
    line("lu_factor", lambda a: la.lu_factor(a)[0], A),
    line("lu_solve", lambda a, b: la.lu_solve(la.lu_factor(a), b), D, X3),
    line("lu_solve T", lambda a, b: la.lu_solve(la.lu_factor(a), b, trans=1), A, B),
    line("solve_banded", lambda ab, b: la.solve_banded((1, 1), ab, b), BAND, X4, covers=("solve_band",)),
    line("solve_banded columns", lambda ab, b: la.solve_banded((0, 2), ab, b), UPPER, normal(4, 2)),
    line(
        "solveh_banded",
        lambda ab, b: la.solveh_banded(ab, b, lower=True),
        HALF,
        X4,
        covers=("is_indefinite",),
    ),
    line(
        "solveh_banded upper",
        lambda ab, b: la.solveh_banded(ab, b),
        np.array([[0, 0.6, -0.2, 0.4], [3.0, 2.5, 2.2, 2.8]]),
        X4,
    ),
    line("cholesky_banded", lambda ab: la.cholesky_banded(ab * USED, lower=True), HALF),
    line(
        "cho_solve_banded",
        lambda ab, b: la.cho_solve_banded((la.cholesky_banded(ab * USED, lower=True), True), b),
        HALF,
        X4,
    ),
    line(
        "solve_toeplitz", lambda c, r, b: la.solve_toeplitz((c, r), b), X3 + [3, 0, 0], X3, normal(3, seed=1)
    ),
    line("matmul_toeplitz", lambda c, b: la.matmul_toeplitz(c, b), X3, R34),
    line("circulant", lambda c: la.circulant(c) ** 2, X4),
    line("solve_circulant", lambda c, b: la.solve_circulant(c, b), X3 + [3, 0, 0], normal(3, seed=1)),
    line("scipy_lstsq", lambda a, b: la.lstsq(a, b)[0], R43, X4, rtol=1e-7),
    line(
        "solve_sylvester",
        lambda a, b, q: la.solve_sylvester(a, b, q),
        D,
        normal(2, 2) + 2 * np.eye(2),
        normal(3, 2),
    ),
    line("solve_continuous_lyapunov", lambda a, q: la.solve_continuous_lyapunov(a, q), D, B),
    line(
        "solve_continuous_lyapunov complex",
        lambda a, q: la.solve_continuous_lyapunov(a, q),
        Z + 3 * np.eye(3),
        cnormal(3, 3, seed=1),
    ),
    line("solve_discrete_lyapunov", lambda a, q: la.solve_discrete_lyapunov(0.3 * a, q), A, B),
    line(
        "solve_continuous_are",
        lambda a, b, q, r: la.solve_continuous_are(a, b, pd(q), pd(r)),
        A,
        R34[:, :2],
        W,
        normal(2, 4),
        rtol=1e-7,
    ),
    line(
        "solve_discrete_are",
        lambda a, b, q, r: la.solve_discrete_are(a, b, pd(q), pd(r)),
        A,
        R34[:, :2],
        W,
        normal(2, 4),
        rtol=1e-7,
    ),
    line("solve_band", lambda ab, b: equations.solve_band(ab, b, low=1, up=1), BAND, X4),
]
MATRICES = [
    case("eig", lambda a: eigen(*np.linalg.eig(a)), A, **SPECTRAL),
    case(
        "eig of real eigenvalues",
        lambda a: tuple(np.linalg.eig(a)),
        np.diag([3.0, 1.0, -2.0]) + 0.3 * A,
        **SPECTRAL,
    ),
    case("eig complex", lambda a: tuple(np.linalg.eig(a)), Z, **SPECTRAL),
    case("eig batch", lambda a: eigen(*np.linalg.eig(a)), np.stack([A, B]), **SPECTRAL),
    case("eigvals", lambda a: np.linalg.eigvals(a), A, covers=("general_eigenvalues",), **SPECTRAL),
    case("scipy_eig", lambda a, b: eigen(*la.eig(a, b)), A, D, **SPECTRAL),
    case("scipy_eigvals", lambda a: la.eigvals(a), A, **SPECTRAL),
    case("eigh_tridiagonal", lambda d, e: gauge(*la.eigh_tridiagonal(d, e)), X4, X3, **SPECTRAL),
    case("eigvalsh_tridiagonal", lambda d, e: la.eigvalsh_tridiagonal(d, e), X4, X3, **SPECTRAL),
    case(
        "eigh_tridiagonal of some",
        lambda d, e: la.eigh_tridiagonal(d, e, select="i", select_range=(1, 2))[1],
        X4,
        X3,
        **SPECTRAL,
    ),
    case(
        "eig_banded of some",
        lambda a: la.eig_banded(a, lower=True, select="i", select_range=(0, 1))[1],
        HALF,
        covers=("turns",),
        **SPECTRAL,
    ),
    case("eig_banded", lambda a: gauge(*la.eig_banded(a, lower=True)), HALF, **SPECTRAL),
    case("eigvals_banded", lambda a: la.eigvals_banded(a, lower=True), HALF, **SPECTRAL),
    *[
        line(name, lambda a, name=name: getattr(la, name)(a), 0.4 * A, rtol=1e-8)
        for name in ("cosm", "sinm", "tanm", "coshm", "sinhm", "tanhm")
    ],
    line("cosm complex", lambda a: la.cosm(a), 0.4 * Z, rtol=1e-8),
    line("signm", lambda a: la.signm(a), np.diag([3.0, 1.0, -2.0]) + 0.3 * A, rtol=1e-7),
    line("fractional_matrix_power", lambda a: la.fractional_matrix_power(pd(a), 0.3), W, rtol=1e-7),
    line("expm_frechet", lambda a, e: la.expm_frechet(a, e), 0.4 * A, B),
    line("pinvh", lambda a: la.pinvh(hermitian(a)), D, rtol=1e-7),
    line("polar", lambda a: la.polar(a), R43, rtol=1e-7, covers=("unitary_factor",)),
    line("polar left", lambda a: la.polar(a, "left"), R34, rtol=1e-7),
    line("polar complex", lambda a: la.polar(a), Z, rtol=1e-7),
    line(
        "orthogonal_procrustes",
        lambda a, b: la.orthogonal_procrustes(a, b),
        R43,
        normal(4, 3, seed=1),
        rtol=1e-7,
    ),
    line("orth", lambda a: la.orth(a) @ la.orth(a).T, R43, rtol=1e-7),
    line("null_space", lambda a: la.null_space(a) @ la.null_space(a).T, R34, rtol=1e-7),
    line(
        "subspace_angles", lambda a, b: la.subspace_angles(a, b), R43[:, :2], normal(4, 2, seed=1), rtol=1e-7
    ),
    line("rq", lambda a: la.rq(a), A, rtol=1e-7, covers=("signs_of_rq",)),
    line("rq economic", lambda a: la.rq(a, mode="economic"), R34, rtol=1e-7),
    line("hankel", lambda c, r: la.hankel(c, r) ** 2, X3, X4),
    line("hankel zeros", lambda c: la.hankel(c) ** 2, X3),
    line("companion", lambda a: la.companion(a) ** 2, 1 + P3),
    line("leslie", lambda f, s: la.leslie(f, s) ** 2, X3, X3[:2]),
    *[
        line(f"convolution_matrix {m}", lambda a, m=m: la.convolution_matrix(a, 4, m) ** 2, X3)
        for m in ("full", "same", "valid")
    ],
    line("fiedler", lambda a: la.fiedler(a) ** 2, X3),
    line("diagsvd", lambda s: la.diagsvd(s, 3, 4) ** 2, X3),
    line("khatri_rao", lambda a, b: la.khatri_rao(a, b), normal(2, 3), R43),
]


def trigonometric(name, kind, norm):
    f = getattr(fft, name)
    return line(
        f"{name} {kind} {norm}", lambda x: f(x, kind, norm=norm), normal(2, 5), covers=("trigonometric",)
    )


def of_axes(name):
    f = getattr(fft, name)
    return line(name, lambda x: f(x, 2, (3, 4), norm="ortho"), normal(2, 3, 3))


KINDS = ((1, None), (2, "ortho"), (3, "forward"), (4, "ortho"), (1, "ortho"), (2, None), (3, "ortho"))
TRIGONOMETRIC = [
    trigonometric(name, kind, norm) for name in ("dct", "idct", "dst", "idst") for kind, norm in KINDS
]
FOURIER = [
    *[of_axes(name) for name in ("dctn", "idctn", "dstn", "idstn")],
    line("hfftn", lambda x: fft.hfftn(x), cnormal(2, 3)),
    line("hfft2", lambda x: fft.hfft2(x, norm="ortho"), cnormal(2, 3)),
    line("ihfftn", lambda x: fft.ihfftn(x, norm="forward"), R43),
    line("ihfft2", lambda x: fft.ihfft2(x), R43),
]
# a pair of complex eigenvalues and two real ones
FOUR = np.array([[3.0, 0.4, 0.2, 0.5], [0.3, 0.2, 2.0, 0.4], [-0.2, -1.5, 0.6, 0.1], [0.1, 0.3, -0.4, -2.0]])
NEAR_ONE = np.eye(3) + 0.1 * B
REAL_SPECTRUM = np.diag([3.0, 1.0, -2.0]) + 0.3 * A
TURN = 0.4 * normal(4, 4, seed=7)
BORDERED = 1.0 - np.eye(4)  # a diagonal of zeros: blocks of two rows


def blocks(x):
    return [x[:2, :2], x[:2, 2:], x[2:, :2], x[2:, 2:]]


def squares(parts):
    """What phases leave alone."""
    return tuple([abs(x) ** 2 for x in parts])


FACTORED = [
    line("schur", lambda a: la.schur(a), REAL_SPECTRUM, rtol=1e-7),
    line("schur of pairs", lambda a: la.schur(a), FOUR, rtol=1e-7),
    line("schur complex", lambda a: squares(la.schur(a)), Z, rtol=1e-7),
    line("qz", lambda a, b: la.qz(a, b), REAL_SPECTRUM, NEAR_ONE, rtol=1e-7),
    line("qz complex", lambda a, b: squares(la.qz(a, b, output="complex")), FOUR, np.eye(4) + 0.1 * normal(4,
    4), rtol=1e-7),
    line("ordqz", lambda a, b: la.ordqz(a, b), REAL_SPECTRUM, NEAR_ONE, rtol=1e-7, order=2),
    line("rsf2csf", lambda a: la.rsf2csf(*la.schur(a)), FOUR, rtol=1e-7, order=2),
    line("cdf2rdf", lambda w, v: la.cdf2rdf(np.stack([w, w.conj(), 2 * w.real]), np.stack([v, v.conj(),
    v.real], 1)),
         cnormal(1)[0], cnormal(3), order=2),
    line("hessenberg", lambda a: la.hessenberg(a, calc_q=True), FOUR, rtol=1e-8, order=2),
    line("hessenberg complex", lambda a: la.hessenberg(a), cnormal(4, 4), rtol=1e-7, order=2),
    line("matrix_balance", lambda a: la.matrix_balance(a)[0], np.diag([1.0, 60.0, 0.02]) @ A, order=2,
    eps=1e-6),
    line("ldl", lambda a: la.ldl(a + a.T)[:2], FOUR),
    line("ldl of blocks", lambda a: la.ldl((a + a.T) * BORDERED)[:2], FOUR),
    line("ldl of blocks from below", lambda a: la.ldl((a + a.T) * BORDERED, lower=False)[:2], FOUR),
    line("ldl hermitian", lambda a: la.ldl(a + a.conj().T)[:2], cnormal(4, 4), order=2),
    line("cossin", lambda a: squares(la.cossin(la.expm(a - a.T), 2, 2)), TURN, rtol=1e-7, order=2),
    line("cossin of blocks", lambda a: la.cossin(blocks(la.expm(a - a.T)), separate=True)[1], TURN, rtol=1e-7,
    order=2),
    line("qr_delete", lambda a: la.qr_delete(*la.qr(a), 1), FOUR, rtol=1e-8, order=2),
    line("qr_delete column", lambda a: la.qr_delete(*la.qr(a), 1, which="col")[1], FOUR, rtol=1e-8, order=2),
    line("qr_delete economic", lambda a: la.qr_delete(*la.qr(a, mode="economic"), 1), normal(5, 3), rtol=1e-8,
    order=2),
    line("qr_insert", lambda a, u: la.qr_insert(*la.qr(a), u, 1), A, X3, rtol=1e-8, order=2),
    line("qr_insert column", lambda a, u: la.qr_insert(*la.qr(a, mode="economic"), u, 1, which="col"),
    normal(5, 3), normal(5),
         rtol=1e-8, order=2),
    line("qr_update", lambda a, u, v: la.qr_update(*la.qr(a), u, v), A, X3, normal(3, seed=1), rtol=1e-8,
    order=2),
    line("qr_multiply", lambda a, c: la.qr_multiply(a, c), normal(5, 3), normal(5)),
    line("qr_multiply left", lambda a, c: la.qr_multiply(a, c, mode="left"), normal(5, 3), A),
    line("funm", lambda a: la.funm(a, lambda w: np.exp(-w * w)), 0.4 * FOUR, rtol=1e-7, order=2),
    line("expm_cond", lambda a: la.expm_cond(a), 0.4 * A[:2, :2], rtol=1e-7, order=1),
    line("fiedler_companion", lambda a: la.fiedler_companion(a) ** 2, 1 + abs(normal(5))),
    *[line(f.__name__, lambda a, f=f: f(a, 0.1, 0.5, offset=0.2, bias=0.1), normal(2, 5)) for f in (fft.fht,
    fft.ifht)],
]  # fmt: skip
LINES = [*SYSTEMS, *MATRICES, *TRIGONOMETRIC, *FOURIER, *FACTORED]
