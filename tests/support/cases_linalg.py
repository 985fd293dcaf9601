"""Products, linear algebra, Fourier transforms and sorting."""

import numpy as np
from cases import between, case, cnormal, distinct, normal

from tapegrad import scipy
from tapegrad.ops.linalg import determinants, factorizations

a22, a23, a33, a34, a43 = normal(2, 2), normal(2, 3), normal(3, 3), normal(3, 4), normal(4, 3)
b23, b233, b234, b243 = normal(2, 3, seed=1), normal(2, 3, 3), normal(2, 3, 4), normal(2, 4, 3)
x3, x4, y3, y4 = normal(3), normal(4), normal(3, seed=1), normal(4, seed=1)
z22, z23, z33, z43, zx3 = cnormal(2, 2), cnormal(2, 3), cnormal(3, 3), cnormal(4, 3), cnormal(3)
w36, w236, zw36 = normal(3, 6), normal(2, 3, 6), cnormal(3, 6)
B = ("strided", "float32")
GAPS = ("eigh_of", "spectrum", "quotient", "over_gaps", "without_eta", "steady", "with_steady_cotangent")
SPECTRAL = {"single": 2e-3, "rtol": 1e-7}


def T(a):
    return np.conj(np.swapaxes(a, -1, -2))


def pd(a):
    """A Hermitian positive definite matrix, from a wide one."""
    return a @ T(a)


def right_solve(p, s):
    """p s^-1 for Hermitian positive definite s."""
    c = scipy.linalg.cho_factor(s, lower=True)
    return scipy.linalg.cho_solve(c, p.conj().T).conj().T


def hermitian(a):
    return a + T(a)


def gauge(w, v):
    """A function of the eigenvalues and of the moduli in the first row of the eigenvectors."""
    return w**2 * np.abs(v[..., 0, :]) ** 2


def svd_parts(a):
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return np.abs(u[..., 0, :]) ** 2 * s, np.abs(vh[..., 1]) ** 2, (u * s[..., None, :] ** 2) @ vh


def projectors(a):
    u, s, vh = np.linalg.svd(a)
    return u[:, 3:] @ T(u[:, 3:]), s, T(vh[3:]) @ vh[3:]


CASES = [
    # products
    case("matmul", lambda a, b: a @ b, a23, a34, covers=("column", "product")),
    case("matmul vectors", lambda a, b: a @ b, x3, y3),
    case("matmul matrix vector", lambda a, b: np.matmul(a, b), a23, x3),
    case("matmul vector matrix", lambda a, b: np.matmul(a, b), x3, a34),
    case("matmul batches", lambda a, b: np.matmul(a, b), b234, b243),
    case("matmul batch, matrix", lambda a, b: np.matmul(a, b), b234, a43),
    case("matmul matrix, batch", lambda a, b: np.matmul(a, b), a43, b234),
    case("matmul batch, vector", lambda a, b: np.matmul(a, b), b234, x4),
    case("matmul vector, batch", lambda a, b: np.matmul(a, b), x3, b234),
    case("matmul broadcast", lambda a, b: np.matmul(a, b), b234[:1], b243),
    case("matmul complex", lambda a, b: a @ b, z23, z33),
    case("matmul complex, real", lambda a, b: a @ b, z23, a33),
    case("dot", lambda a, b: np.dot(a, b), a23, x3),
    case("dot tensors", lambda a, b: np.dot(a, b), b234, b243),
    case("vdot", lambda a, b: np.vdot(a, b), z23, cnormal(2, 3, seed=1)),
    case("inner", lambda a, b: np.inner(a, b), a23, b23),
    case("outer", lambda a, b: np.outer(a, b), x3, a23),
    case("linalg_outer", lambda a, b: np.linalg.outer(a, b), x3, y4),
    case("tensordot", lambda a, b: np.tensordot(a, b, ((0, 2), (0, 1))), b234, b243),
    case("tensordot number", lambda a, b: np.tensordot(a, b, 1), b234, a43),
    case("kron", lambda a, b: np.kron(a, b), a22, a23),
    case("cross", lambda a, b: np.cross(a, b), a23, b23, covers=("take_last", "put_last")),
    case("cross axes", lambda a, b: np.cross(a, b, axisa=0, axisb=1, axisc=0), a34, a43),
    case("vecdot", lambda a, b: np.linalg.vecdot(a, b), z23, zx3),
    case("trace", lambda a: np.trace(a, 1, 0, 2) ** 2, b234, covers=("diagonals", "with_diagonals")),
    case("linalg_trace", lambda a: np.linalg.trace(a) ** 2, b233),
    case("einsum", lambda a, b: np.einsum("ij,jk->ki", a, b), a23, a34, covers=("contract",)),
    case("einsum batch", lambda a, b: np.einsum("...ij,...jk", a, b), b234, a43),
    case("einsum diagonal", lambda a, b: np.einsum("iij,jk->ik", a, b), normal(2, 2, 3), a34),
    case("einsum trace", lambda a: np.einsum("ii", a) ** 2, a33),
    case("einsum three", lambda a, b, c: np.einsum("ij,jk,kl->il", a, b, c, optimize=True), a23, a34, a43),
    case("einsum broadcast", lambda a, b: np.einsum("ij,ij->i", a, b), a23, normal(1, 3)),
    case("einsum complex", lambda a, b: np.einsum("ij,kj->ik", a, b), z23, z33),
    case("multi_dot", lambda a, b, c: np.linalg.multi_dot([a, b, c]), a23, a34, x4),
    case("convolve", lambda a, b: np.convolve(a, b), x4, x3, covers=("convolve_full", "backwards")),
    case("convolve same", lambda a, b: np.convolve(a, b, "same"), x3, x4),
    case("convolve valid", lambda a, b: np.convolve(a, b, "valid"), x4, a22[0]),
    case("correlate", lambda a, b: np.correlate(a, b, "full"), x4, x3),
    case("correlate complex", lambda a, b: np.correlate(a, b, "same"), zx3, cnormal(4)),
    case("polyval", lambda p, x: np.polyval(p, x), x4, a23),
    # systems and factors
    case(
        "cholesky", lambda a: np.linalg.cholesky(pd(a)), w236, covers=("cholesky_lower", "halved", "triangle")
    ),
    case(
        "cholesky of one triangle",
        lambda a: np.linalg.cholesky(np.tril(pd(a))),
        w36,
        covers=("mirrored", "folded"),
    ),
    case("cholesky upper", lambda a: np.linalg.cholesky(pd(a), upper=True), zw36),
    case("scipy_cholesky", lambda a: scipy.linalg.cholesky(pd(a), lower=True), w36),
    case("cho_factor", lambda a, b: scipy.linalg.cho_solve(scipy.linalg.cho_factor(pd(a)), b), w36, x3),
    case("cho_solve", lambda a, b: scipy.linalg.cho_solve((np.linalg.cholesky(pd(a)), True), b), zw36, z33),
    case("right_solve", lambda p, a: right_solve(p, pd(a)), a23, w36),
    case("solve_triangular", lambda a, b: scipy.linalg.solve_triangular(a, b, lower=True), a33, x3),
    case(
        "solve_triangular T",
        lambda a, b: scipy.linalg.solve_triangular(a, b, trans=1, unit_diagonal=True),
        a33,
        a34,
    ),
    case(
        "solve_triangular C",
        lambda a, b: scipy.linalg.solve_triangular(a, b, trans="C", lower=True),
        z33,
        zx3,
    ),
    case("solve_triangular complex T", lambda a, b: scipy.linalg.solve_triangular(a, b, trans=1), z33, z33),
    case("solve", lambda a, b: np.linalg.solve(a, b), a33, a34, covers=("solve_matrix",)),
    case("solve vector", lambda a, b: np.linalg.solve(a, b), b233, x3),
    case("solve batch", lambda a, b: np.linalg.solve(a, b), b233 + 3 * np.eye(3), b234),
    case("solve complex", lambda a, b: np.linalg.solve(a, b), z33, z33[:, :2]),
    case("scipy_solve", lambda a, b: scipy.linalg.solve(pd(a), b, assume_a="pos"), w36, x3),
    case("inv", lambda a: np.linalg.inv(a), b233 + 3 * np.eye(3)),
    case("inv complex", lambda a: np.linalg.inv(a), z33),
    case("scipy_inv", lambda a: scipy.linalg.inv(a), a33),
    case("det", lambda a: np.linalg.det(a), b233, covers=("cofactor", "cofactor_slope")),
    case(
        "det singular",
        lambda a: np.linalg.det(np.concatenate([a, a[:1] + 2 * a[1:2]])),
        a23,
        order=2,
        kinds=("strided",),
    ),
    case("scipy_det", lambda a: scipy.linalg.det(a), z33, kinds=("strided",)),
    case("slogdet", lambda a: np.linalg.slogdet(a)[1], b233, covers=("sign_and_log",)),
    case("slogdet complex", lambda a: tuple(np.linalg.slogdet(a)), z33),
    case("logdet", lambda a: determinants.logdet(pd(a)), w236),
    case("matrix_power", lambda a: np.linalg.matrix_power(a, 3), b233),
    case("matrix_power negative", lambda a: np.linalg.matrix_power(a, -2), a33),
    case("tensorinv", lambda a: np.linalg.tensorinv(np.reshape(a, (4, 2, 2)), ind=1), normal(4, 4), kinds=B),
    case(
        "tensorsolve",
        lambda a, b: np.linalg.tensorsolve(np.reshape(a, (2, 2, 4)), b),
        normal(4, 4),
        a22,
        kinds=B,
    ),
    case("block_diag", lambda a, b: scipy.linalg.block_diag(a, b) ** 2, a23, x3),
    case(
        "toeplitz",
        lambda a, b: scipy.linalg.toeplitz(a, b) ** 2,
        x3,
        x4,
    ),
    # decompositions
    case("eigh", lambda a: gauge(*np.linalg.eigh(hermitian(a))), b233, covers=GAPS, **SPECTRAL),
    case("eigh complex", lambda a: gauge(*np.linalg.eigh(hermitian(a), "U")), z33, **SPECTRAL),
    case(
        "eigvalsh",
        lambda a: np.linalg.eigvalsh(hermitian(a)),
        b233,
        covers=("unknown", "has_close_values"),
        **SPECTRAL,
    ),
    case("scipy_eigh", lambda a, b: gauge(*scipy.linalg.eigh(hermitian(a), pd(b))), a33, w36, **SPECTRAL),
    case("scipy_eigvalsh", lambda a: scipy.linalg.eigvalsh(hermitian(a)), a33, **SPECTRAL),
    case("svd", svd_parts, b234, covers=("svd_of", "singular", "limit_over", "has_zero_values"), **SPECTRAL),
    case("svd tall", svd_parts, a43, **SPECTRAL),
    case("svd whole", projectors, a43, covers=("additional",), **SPECTRAL),
    case("svd whole and wide", projectors, a34, **SPECTRAL),
    case("svd complex", svd_parts, z43, **SPECTRAL),
    case("svdvals", lambda a: np.linalg.svdvals(a), b234, **SPECTRAL),
    case("scipy_svdvals", lambda a: scipy.linalg.svdvals(a), a34, **SPECTRAL),
    case("finite", factorizations.finite, a33),
    case("scipy_svd", lambda a: scipy.linalg.svd(a, full_matrices=False)[1], a34, **SPECTRAL),
    case("qr", lambda a: tuple(np.linalg.qr(a)), b243, covers=("qr_of",), **SPECTRAL),
    case("qr wide", lambda a: tuple(np.linalg.qr(a)), a34, **SPECTRAL),
    case("qr complex", lambda a: tuple(np.linalg.qr(a)), z43, **SPECTRAL),
    case("scipy_qr", lambda a: scipy.linalg.qr(a, mode="economic")[1], a43, **SPECTRAL),
    case("pinv", lambda a: np.linalg.pinv(a), b243, covers=("pseudo_inverse",), **SPECTRAL),
    case("scipy_pinv", lambda a: scipy.linalg.pinv(a), a34, **SPECTRAL),
    case("lstsq", lambda a, b: np.linalg.lstsq(a, b, rcond=None)[:2], a43, normal(4, 2), **SPECTRAL),
    case("lstsq wide", lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], a34, x3, **SPECTRAL),
    case("matrix_rank", lambda a: np.linalg.matrix_rank(a) * 1.0, a34, order=0, kinds=("strided",)),
    # norms
    case("norm", lambda x: np.linalg.norm(x), x4, covers=("noted", "scale_of")),
    case("norm 1", lambda x: np.linalg.norm(x, 1, axis=1), a34),
    case("norm 3", lambda x: np.linalg.norm(x, 3, axis=0), a34, covers=("p_length",)),
    case("norm inf", lambda x: np.linalg.norm(x, np.inf), x4),
    case("norm -inf", lambda x: np.linalg.norm(x, -np.inf), x4),
    case("norm fro", lambda x: np.linalg.norm(x, "fro", axis=(0, 2), keepdims=True), b234),
    case("norm nuc", lambda x: np.linalg.norm(x, "nuc"), a34, **SPECTRAL),
    case("norm matrix 2", lambda x: np.linalg.norm(x, 2), a34, **SPECTRAL),
    case("norm matrix -2", lambda x: np.linalg.norm(x, -2), a34, **SPECTRAL),
    case("norm matrix 1", lambda x: np.linalg.norm(x, 1), a34),
    case("norm matrix -inf", lambda x: np.linalg.norm(x, -np.inf), a34),
    case("norm complex", lambda x: np.linalg.norm(x, axis=1), z43),
    case("scipy_norm", lambda x: scipy.linalg.norm(x), a34),
    case("vector_norm", lambda x: np.linalg.vector_norm(x, ord=3), a34),
    case("matrix_norm", lambda x: np.linalg.matrix_norm(x), b234),
    case("cond", lambda a: np.linalg.cond(a), a33, **SPECTRAL),
    case("cond 1", lambda a: np.linalg.cond(a, 1), b233, **SPECTRAL),
    # functions of matrices
    case("expm", lambda a: scipy.linalg.expm(a), a33 * 0.5),
    case("expm batch", lambda a: scipy.linalg.expm(a), b233 * 0.5, numpy_only=True),
    case("expm complex", lambda a: scipy.linalg.expm(a), z33 * 0.5),
    case(
        "sqrtm",
        lambda a: scipy.linalg.sqrtm(pd(a)),
        w36,
        covers=("root_of", "sylvester"),
        numpy_only=True,
        **SPECTRAL,
    ),
    case(
        "logm",
        lambda a: scipy.linalg.logm(pd(a)),
        w36,
        covers=("log_of", "halvings"),
        numpy_only=True,
        kinds=("strided",),
    ),
    # Fourier transforms
    case("fft", lambda x: np.fft.fft(x, 5, axis=0), a43, covers=("dft",)),
    case("fft complex", lambda x: np.fft.fft(x, norm="ortho"), z43),
    case("ifft", lambda x: np.fft.ifft(x, 3, norm="forward"), z43),
    case("fft2", lambda x: np.fft.fft2(x), b234),
    case("ifft2", lambda x: np.fft.ifft2(x), z43),
    case("fftn", lambda x: np.fft.fftn(x, (3, 5), axes=(1, 2)), b234),
    case("ifftn", lambda x: np.fft.ifftn(x), b234),
    case("rfft", lambda x: np.fft.rfft(x, 5), a34, covers=("rdft", "irdft", "weighted")),
    case("rfft even", lambda x: np.fft.rfft(x, axis=0), a43),
    case("irfft", lambda x: np.fft.irfft(x), z43),
    case("irfft odd", lambda x: np.fft.irfft(x, 5, axis=0), z43),
    case("rfft2", lambda x: np.fft.rfft2(x), b234),
    case("irfft2", lambda x: np.fft.irfft2(x), z43),
    case("rfftn", lambda x: np.fft.rfftn(x), b234),
    case("irfftn", lambda x: np.fft.irfftn(x, (3, 5), axes=(0, 1), norm="ortho"), z43),
    case("hfft", lambda x: np.fft.hfft(x), z43),
    case("ihfft", lambda x: np.fft.ihfft(x), a34),
    case("fftshift", lambda x: np.fft.fftshift(x) ** 2, a34, covers=("rolled",)),
    case(
        "fftfreq",
        lambda d: np.fft.fftfreq(5, d[0] * d[1]) + np.fft.rfftfreq(8, d[2])[1:].sum(),
        np.array([0.5, 1.5, 2.0]),
        covers=("rfftfreq",),
    ),
    case("ifftshift", lambda x: np.fft.ifftshift(x, axes=1) ** 2, a43),
    case("scipy_one", lambda x: scipy.fft.fft(x), z43),
    case("scipy_more", lambda x: scipy.fft.rfftn(x), a34),
    # sorting
    case("sort", lambda x: np.sort(x) ** 2, distinct(3, 4), covers=("taken_at", "added_at")),
    case("sort flat", lambda x: np.sort(x, axis=None) ** 2, distinct(3, 4)),
    case("sort_complex", lambda x: np.sort_complex(x) ** 2, z43[0]),
    case("partition", lambda x: np.partition(x, 2, axis=0) ** 2, distinct(5, 2)),
    case(
        "take_along_axis",
        lambda x: np.take_along_axis(x, np.argsort(x, axis=1)[:, :2], axis=1) ** 2,
        distinct(3, 4),
    ),
    case("unique", lambda x: np.unique(x) ** 2, distinct(5), covers=("places_of_unique",)),
    case(
        "interp",
        lambda x, u, f: np.interp(x, np.sort(u), f),
        between(-1, 1, 5) + 0.013,
        distinct(4),
        normal(4),
        kinds=B,
    ),
    case(
        "interp edges",
        lambda x, f: np.interp(x, [-0.5, 0.1, 0.6], f, left=0.5, right=f[0]),
        between(-1, 1, 6),
        x3,
        numpy_only=True,
    ),
    case(
        "interp period",
        lambda x, f: np.interp(x, [0.1, 0.4, 0.7], f, period=1.0),
        between(-1, 2, 6),
        x3,
        numpy_only=True,
    ),
]

if hasattr(np, "matvec"):
    CASES += [
        case("matvec", lambda a, x: np.matvec(a, x), b234, x4),
        case("vecmat", lambda x, a: np.vecmat(x, a), zx3, z33),
        case("vecdot ufunc", lambda a, b: np.vecdot(a, b), a23, b23),
    ]
else:
    CASES[0].covers += ("matvec", "vecmat")
