"""Calls of the functions that the other tables leave out, as users write them: see public_calls.py."""

import io

import numpy as np
import scipy.fft as fft
import scipy.integrate as integrate
import scipy.interpolate as interpolate
import scipy.ndimage as ndimage
import scipy.optimize as optimize
import scipy.signal as signal
import scipy.sparse as sparse
import scipy.sparse.linalg as solvers
import scipy.special as special
from public_calls import cat, table
from scipy.sparse import csr_matrix as scipy_csr

CALLS, t = table()


rng = np.random.default_rng(0)
x, z = rng.normal(size=8), np.array([0.7, 1.3])
X, Y, SQUARE = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), rng.normal(size=(4, 4))
C, R = rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4)), rng.normal(size=(2, 3, 4))

# --- numpy ---
t("amax", lambda x: np.amax(x, 1), X)
t("amin", lambda x: np.amin(x, 0), X)
t("apply_along_axis", lambda x: np.apply_along_axis(lambda r: np.cumsum(r * r), 1, x), X)
t("apply_over_axes", lambda x: np.apply_over_axes(np.sum, x * x, (0, 2)), R)
for name in (
    "asanyarray",
    "asarray_chkfinite",
    "asarray",
    "ascontiguousarray",
    "asfortranarray",
    "degrees",
    "radians",
    "i0",
):
    t(name, lambda x, name=name: getattr(np, name)(x) ** 2, X)
t("require", lambda x: np.require(x, requirements="C") ** 2, X)
for name in ("empty", "zeros", "ones"):

    def filled(x, name=name):
        room = getattr(np, name)((2, 4))
        room[0], room[1] = x[0], x[1] * x[2]
        return room

    def filled_like(x, name=name + "_like"):
        room = getattr(np, name)(x)
        room[:] = x
        room[0] *= x[1]
        return room

    t(name, filled, X)
    t(name + "_like", filled_like, X)


def written(x, make):
    room = make()
    room[1] = x[:3]
    return room * x[3]


t("identity", lambda x: written(x, lambda: np.identity(3)), x)
t("eye", lambda x: written(x, lambda: np.eye(3, k=1)), x)
t("tri", lambda x: written(x, lambda: np.tri(3)), x)
t("full", lambda x: np.full((2, 3), 0.7) * x[:3], x)
t("full of a value", lambda x: np.full((2, 3), x[0]) * x[:3], x)
t("arange", lambda x: np.arange(8) * x + np.arange(0.5, 4.5, 0.5), x)
t("frombuffer", lambda x: np.frombuffer(np.arange(8.0).tobytes()) * x * x, x)
t("fromfunction", lambda x: np.fromfunction(lambda i, j: i * x[0] + j * x[1] ** 2, (2, 3)), x)
t("loadtxt", lambda x: written(x, lambda: np.loadtxt(io.StringIO("1 2 3\n4 5 6\n7 8 9"))), x)
t(
    "genfromtxt",
    lambda x: written(x, lambda: np.genfromtxt(io.StringIO("1,2,3\n4,5,6\n7,8,9"), delimiter=",")),
    x,
)


def stored():
    file = io.BytesIO()
    np.save(file, np.ones((3, 3)))
    file.seek(0)
    return np.load(file)


t("load", lambda x: written(x, stored), x)
t("row_stack", lambda x, y: np.row_stack([x, y[:2]]), X, Y)
t("select of scalars", lambda x: np.select([x > 0, x < -0.5], [x * x, 3 * x]), X)
t("piecewise of numbers", lambda x: np.piecewise(x, [x > 0], [0.3, 2.0]) * x, X)
t("cross", lambda x, y: np.linalg.cross(x[:, :3], y[:, :3]), X, Y)
t("matmul", lambda x, y: np.linalg.matmul(x, y.T), X, Y)
t("matrix_transpose", lambda x: np.linalg.matrix_transpose(x) ** 2, R)
t("tensordot", lambda x, y: np.linalg.tensordot(x, y, axes=([1, 2], [0, 1])), R, Y)
t("ellipk inside", lambda m: special.ellipk(m), np.array([0.1, 0.5, 0.9]))
t("ellipkm1 inside", lambda m: special.ellipkm1(m), np.array([0.1, 0.5, 0.9]))
for name in ("cbrt", "exp2", "log1p", "expm1", "exp10"):
    t(name, lambda x, name=name: getattr(special, name)(x), abs(x) + 0.2)

# --- scipy.fft ---
for name in ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn"):
    t(f"fft {name}", lambda x, name=name: getattr(fft, name)(x), C)
    t(f"fft {name} of reals", lambda x, name=name: getattr(fft, name)(x, norm="ortho"), X)
for name in ("rfft", "rfft2", "rfftn", "ihfft"):
    t(f"fft {name}", lambda x, name=name: getattr(fft, name)(x), X)
for name in ("irfft", "irfft2", "irfftn", "hfft"):
    t(f"fft {name}", lambda x, name=name: getattr(fft, name)(x), C)
t("fft frequencies", lambda x: fft.fftfreq(4, x[0, 0]) * fft.rfftfreq(7, x[0, 1] ** 2), X)
t("fft shifts", lambda x: fft.fftshift(fft.ifftshift(x * x, axes=0)), X)
for kind in (2, 3):
    for name in ("dct", "idct", "dst", "idst"):
        t(f"fft {name} {kind}", lambda x, name=name, kind=kind: getattr(fft, name)(x, kind, norm="ortho"), X)
    for name in ("dctn", "idctn", "dstn", "idstn"):
        t(f"fft {name} {kind}", lambda x, name=name, kind=kind: getattr(fft, name)(x, kind), X)

# --- scipy.signal ---
Z, P = np.array([0.3, -0.4]), np.array([-0.5, -1.2])
t("bilinear_zpk", lambda z, p: cat(*signal.bilinear_zpk(z, p, 1.3, 2.0)), Z, P)
t("freqresp", lambda b, a: signal.freqresp((b, a), np.array([0.3, 1.0]))[1], Z, P)
t(
    "freqz_sos",
    lambda q: signal.freqz_sos(np.concatenate([q[:3], np.ones(1), q[3:]])[None], 6)[1],
    np.array([1.0, 0.2, 0.1, 0.3, 0.2]),
)
t("kaiser_atten", lambda w: signal.kaiser_atten(21, w), np.array(0.3))
for name in ("lp2lp_zpk", "lp2hp_zpk"):
    t(name, lambda z, p, w, name=name: cat(*getattr(signal, name)(z, p, 1.3, w)), Z, P, np.array(1.7))
for name in ("lp2bp_zpk", "lp2bs_zpk"):
    t(name, lambda z, p, w, name=name: cat(*getattr(signal, name)(z, p, 1.3, w, 0.4)), Z, P, np.array(1.7))
t("zpk2sos", lambda z, p: signal.zpk2sos(z, p, 1.3), Z, P, samples=False)

# --- scipy.ndimage ---
t("fourier_ellipsoid", lambda x: ndimage.fourier_ellipsoid(np.fft.fftn(x), 2.0), X)
t("minimum_filter1d", lambda x: ndimage.minimum_filter1d(x, 3), X)
t(
    "generic_gradient_magnitude",
    lambda x: ndimage.generic_gradient_magnitude(x, ndimage.sobel),
    X,
    h=1e-4,
)

# --- scipy.interpolate ---
G, H = np.linspace(0, 1, 7), np.linspace(0, 1, 6)
V = np.sin(3 * G)[:, None] + H**2
PLACES = rng.uniform(size=(60, 2)).T
WAVE = np.sin(PLACES.sum(0))
t("LSQBivariateSpline", lambda p: interpolate.LSQBivariateSpline(*PLACES, WAVE, [0.4, 0.7], [0.5], kx=2,
ky=2).ev(p * 0.4, p * 0.6), z,
  samples=False)  # fmt: skip
t("SmoothBivariateSpline", lambda p: interpolate.SmoothBivariateSpline(*PLACES, WAVE, kx=2, ky=2,
s=1e3).ev(p * 0.4, p * 0.6), z,
  samples=False)  # fmt: skip
t("BivariateSpline", lambda v: bivariate(interpolate.RectBivariateSpline(G, H, v)), V, samples=False)
t(
    "spalde",
    lambda y: cat(interpolate.spalde(0.35, interpolate.splrep(G, y, s=0))),
    V[:, 0].copy(),
    samples=False,
)


def bivariate(s):
    return s(z * 0.4, z * 0.6) * (1.0 if isinstance(s, interpolate.BivariateSpline) else np.nan)


# --- scipy.optimize ---
SEARCHED = {"samples": False, "exact": 1e-5, "rtol": 1e-4, "h": 1e-2}
BOWL = lambda x, a, b: np.cosh(x[0] - a) + (x[1] - b * a) ** 2 + 0.1 * x[0] * x[1]
SYSTEM = lambda x, p: np.array([x[0] + 0.3 * np.sin(x[1]) - p[0], x[1] + 0.2 * x[0] ** 2 - p[1]])
t(
    "linearmixing",
    lambda p: optimize.linearmixing(lambda x: SYSTEM(x, p), [0.4, 1.1], f_tol=1e-10, alpha=-0.5),
    z,
    **SEARCHED,
)
t(
    "excitingmixing",
    lambda p: optimize.excitingmixing(lambda x: np.sinh(p - x), [0.4, 1.1], f_tol=1e-10),
    z,
    **SEARCHED,
)
for name in ("broyden2", "diagbroyden"):
    t(
        name,
        lambda p, name=name: getattr(optimize, name)(lambda x: SYSTEM(x, p), [0.4, 1.1], f_tol=1e-10),
        z,
        **SEARCHED,
    )
DISP = lambda name: {} if name == "fmin_slsqp" else {"disp": 0}
BOX = [(-3.0, 3.0)] * 2
t("brute", lambda p: optimize.brute(BOWL, BOX, (p[0], p[1]), 6, full_output=True)[1], z, **SEARCHED)
for name, more in (
    ("fmin", {"xtol": 1e-9}),
    ("fmin_bfgs", {}),
    ("fmin_cg", {}),
    ("fmin_powell", {}),
    ("fmin_slsqp", {"iprint": 0}),
):
    f = lambda p, n=name, o=more: getattr(optimize, n)(
        lambda x: BOWL(x, p[0], p[1]), [0.1, 0.1], full_output=True, **DISP(n), **o
    )[1]
    t(f"{name} value", f, z, **SEARCHED)
for name in ("brent", "golden"):
    t(
        f"{name} value",
        lambda p, n=name: getattr(optimize, n)(lambda x: np.cosh(x - p[0]) + p[1] * x, full_output=True)[1],
        z,
        **SEARCHED,
    )
BOUNDED = lambda p: optimize.fminbound(lambda x: np.cosh(x - p[0]) + p[1] * x, -3, 3, full_output=True)[1]
t("fminbound value", BOUNDED, z, **SEARCHED)
t(
    "fmin_l_bfgs_b value",
    lambda p: optimize.fmin_l_bfgs_b(lambda x: BOWL(x, p[0], p[1]), [0.1, 0.1], approx_grad=True)[1],
    z,
    **SEARCHED,
)
for name, more in (
    ("dual_annealing", {"maxiter": 8, "rng": 1}),
    ("shgo", {}),
    ("differential_evolution", {"rng": 1, "maxiter": 60}),
):
    t(
        f"{name} value",
        lambda p, n=name, o=more: getattr(optimize, n)(lambda x: BOWL(x, p[0], p[1]), BOX, **o).fun,
        z,
        **SEARCHED,
    )
t("direct", lambda p: optimize.direct(lambda x: BOWL(x, p[0], p[1]), BOX, eps=1e-8).fun, z, **SEARCHED)
t(
    "dual_annealing",
    lambda p: optimize.dual_annealing(lambda x: BOWL(x, p[0], p[1]), BOX, maxiter=8, rng=1).x,
    z,
    **SEARCHED,
)
t("shgo", lambda p: optimize.shgo(lambda x: BOWL(x, p[0], p[1]), BOX).x, z, **SEARCHED)
t(
    "fmin_cobyla",
    lambda p: optimize.fmin_cobyla(lambda x: BOWL(x, p[0], p[1]), [0.1, 0.1], [], rhoend=1e-8),
    z,
    **SEARCHED,
)
TIGHT = {"approx_grad": True, "disp": 0, "ftol": 1e-15, "xtol": 1e-12}
t(
    "fmin_tnc",
    lambda p: optimize.fmin_tnc(lambda x: BOWL(x, p[0], p[1]), [0.1, 0.1], **TIGHT)[0],
    z,
    **SEARCHED,
)
SLOPE = lambda x, a, b: np.array([np.sinh(x[0] - a) + 0.1 * x[1], 2 * (x[1] - b * a) + 0.1 * x[0]])
t(
    "fmin_ncg",
    lambda p: optimize.fmin_ncg(BOWL, [0.1, 0.1], SLOPE, args=(p[0], p[1]), disp=0, avextol=1e-12),
    z,
    **SEARCHED,
)
t("rosen_hess_prod", lambda x, p: optimize.rosen_hess_prod(x, p), x[:4].copy(), x[4:].copy())

# --- scipy.integrate ---
t("tplquad", lambda p: integrate.tplquad(lambda z, y, x: np.exp(p[0] * x * y * z), 0.0, 1.0, 0.0, 1.0, 0.0,
p[1])[0], z,
  samples=False, order=1, h=1e-2)  # fmt: skip
DECAY = lambda t, u: np.array([-0.7 * u[0], u[0]])


def dense(p):
    steps = integrate.RK45(lambda t, u: DECAY(t, u) * p[0], 0.0, np.array([1.0, 0.2]) * p, 1.0, max_step=0.2)
    steps.step()
    found = isinstance(steps, integrate.OdeSolver) and isinstance(steps.dense_output(), integrate.DenseOutput)
    return steps.dense_output()(0.5 * steps.t) * (1.0 if found else np.nan)


def continued(p):
    steps, times, pieces = (
        integrate.RK45(lambda t, u: DECAY(t, u) * p[0], 0.0, np.array([1.0, 0.2]) * p, 1.0, max_step=0.2),
        [0.0],
        [],
    )
    for _ in range(3):
        steps.step()
        times.append(steps.t)
        pieces.append(steps.dense_output())
    return integrate.OdeSolution(times, pieces)(0.4 * times[-1])


t("DenseOutput", dense, z, samples=False, rtol=1e-4)
t("OdeSolution", continued, z, samples=False, rtol=1e-4)

# --- scipy.sparse ---
ROW, COL, N = np.array([0, 0, 1, 2, 2, 3, 3]), np.array([0, 2, 1, 2, 0, 3, 1]), 4
d, b = np.array([3.0, 0.4, 2.5, 3.3, -0.5, 2.0, 0.7]), rng.normal(size=4)
csr = lambda d: sparse.csr_matrix((d, (ROW, COL)), shape=(N, N))
symmetric = lambda d: csr(d) + csr(d).T
FIXED = scipy_csr((d, (ROW, COL)), shape=(N, N))
for kind in ("bsr_array", "bsr_matrix", "dok_array", "dok_matrix", "lil_array", "lil_matrix"):
    t(f"{kind} of numbers", lambda x, kind=kind: getattr(sparse, kind)(FIXED) @ (x * x), b, samples=False)
t("bsr_matrix of csr", lambda d, x: sparse.bsr_matrix(csr(d)) @ x, d, b, samples=False)
t("bsr_array of csr", lambda d, x: sparse.bsr_array(csr(d)) @ x, d, b, samples=False)
t("dia_matrix", lambda D, x: sparse.dia_matrix((D, [-1, 0, 1]), shape=(N, N)) @ x, X, b)
COO = lambda d: sparse.coo_array((d, (ROW, COL)), shape=(N, N))
if hasattr(sparse, "permute_dims"):  # from SciPy 1.17 on
    t("permute_dims", lambda d: sparse.permute_dims(COO(d), (1, 0)).toarray(), d)
    t("swapaxes", lambda d: sparse.swapaxes(COO(d), 0, 1).toarray(), d)
    t("expand_dims", lambda d: sparse.expand_dims(sparse.coo_array(d), axis=0).toarray(), d)
if hasattr(sparse, "matrix_transpose"):  # of SciPy 1.18
    t("transpose of matrices", lambda d: sparse.matrix_transpose(COO(d)).toarray(), d)
for name in ("csr", "csc", "coo"):
    t(
        f"{name} of its numbers",
        lambda d, x, k=name: getattr(sparse, k + "_matrix")((d, (ROW, COL)), shape=(N, N)) @ x,
        d,
        b,
    )
t("tril of csr", lambda d: sparse.tril(csr(d)).toarray(), d)
t("triu of csr", lambda d: sparse.triu(csr(d)).toarray(), d)
for name, of in (("hstack", lambda d: [csr(d), csr(d * d)]), ("vstack", lambda d: [csr(d), csr(d * d)])):
    t(f"{name} of csr", lambda d, name=name, of=of: getattr(sparse, name)(of(d)).toarray(), d)
t("bmat of csr", lambda d: sparse.bmat([[csr(d), None], [None, csr(d * d)]]).toarray(), d)
t("block_diag of csr", lambda d: sparse.block_diag([csr(d), csr(d * d)]).toarray(), d)
t("kron of csr", lambda d: sparse.kron(csr(d), csr(d * d)).toarray(), d)
t("kronsum of csr", lambda d: sparse.kronsum(csr(d), csr(d * d)).toarray(), d)
t("find of csr", lambda d: sparse.find(csr(d))[2], d)

# --- scipy.sparse.linalg ---
SOLVED = {"samples": False, "exact": 1e-8}
for name in ("bicg", "cgs", "gcrotmk", "lgmres", "qmr", "tfqmr"):
    t(name, lambda d, b, name=name: getattr(solvers, name)(csr(d), b, rtol=1e-12)[0], d, b, **SOLVED)
for name in ("minres", "cg", "gmres"):
    t(
        f"{name} of a symmetric one",
        lambda d, b, name=name: getattr(solvers, name)(symmetric(d), b, rtol=1e-12)[0],
        d,
        b,
        **SOLVED,
    )
t("SuperLU", lambda d, b: superlu(solvers.splu(csr(d).tocsc()), b), d, b, samples=False)
t("norm of csr", lambda d: solvers.norm(csr(d)), d)
t("matrix_power of csr", lambda d: solvers.matrix_power(csr(d), 3).toarray(), d)
t("spsolve of csr", lambda d, b: solvers.spsolve(csr(d), b), d, b)
t(
    "spsolve_triangular of csr",
    lambda d, b: solvers.spsolve_triangular(sparse.tril(csr(d)).tocsr(), b),
    d,
    b,
    samples=False,
)
t("factorized of csc", lambda d, b: solvers.factorized(csr(d).tocsc())(b), d, b)
t("lsqr of csr", lambda d, b: solvers.lsqr(csr(d), b, atol=1e-13, btol=1e-13)[0], d, b, **SOLVED)
t("lsmr of csr", lambda d, b: solvers.lsmr(csr(d), b, 0.0, 1e-13, 1e-13)[0], d, b, **SOLVED)
t("eigsh of csr", lambda d: solvers.eigsh(symmetric(d), 2, v0=np.ones(N), which="LA")[0], d, **SOLVED)
t("svds of csr", lambda d: solvers.svds(csr(d), 2, v0=np.ones(N))[1], d, **SOLVED)


def superlu(lu, b):
    return lu.solve(b) * (1.0 if isinstance(lu, solvers.SuperLU) else np.nan)


# --- with arrays where NumPy and SciPy take lists too, and with single arguments, as CuPy wants it ---
t("fromfunction of indices", lambda x: np.fromfunction(lambda i, j: i * 2.0 + j, (2, 4)) * x[:4], x)
t("eigvals of a symmetric one", lambda a: np.sort(np.linalg.eigvals(a + a.T).real), SQUARE, rtol=1e-5)
t("poly of a symmetric one", lambda a: np.poly(a + a.T), SQUARE, rtol=1e-5)
t(
    "sph_harm_y inside",
    lambda u, v: special.sph_harm_y(2, 1, u, v),
    np.array([0.4, 1.2, 2.0]),
    np.array([0.3, 0.7, -1.1]),
)
t(
    "tf2zpk of arrays",
    lambda b, a: cat(*signal.tf2zpk(b, a)[:2]),
    np.array([1.0, 0.4]),
    np.array([1.3, 0.7, 0.5]),
    rtol=1e-5,
)
for name in ("lp2bp_zpk", "lp2bs_zpk"):
    t(
        f"{name} of numbers",
        lambda z, p, name=name: cat(*getattr(signal, name)(z, p, 1.3, 1.7, 0.4)[:2]),
        Z[:1].copy(),
        P,
    )
FILTER = np.array([1.0, 0.4, 0.3]), np.array([1.3, 0.7, 0.5]), x
t("lfilter_zi in use", lambda b, a, x: signal.lfilter(b, a, x, zi=signal.lfilter_zi(b, a) * x[0])[0], *FILTER)
t(
    "lfiltic in use",
    lambda b, a, x: signal.lfilter(b, a, x, zi=signal.lfiltic(b, a, x[:2], x[2:4]))[0],
    *FILTER,
)
SECTION = lambda q: np.concatenate([q[:3], np.ones(1), q[3:]])[None]
t("sosfilt_zi in use", lambda q, x: signal.sosfilt(SECTION(q), x, zi=signal.sosfilt_zi(SECTION(q)) * x[0])[0],
  np.array([1.0, 0.2, 0.1, 0.3, 0.2]), x)  # fmt: skip
BANDS, GAINS = np.array([0.0, 0.3, 0.5, 1.0]), np.array([1.0, 0.9, 0.1, 0.0])
t("firls of arrays", lambda g: signal.firls(7, BANDS, g), GAINS + 0.2)
t("firwin2 of arrays", lambda g: signal.firwin2(7, BANDS, g), GAINS)
t("gaussian_filter1d of a number", lambda x: ndimage.gaussian_filter1d(x, 1.0), X)
LABELS, SOME = np.array([[1, 1, 2, 0], [2, 1, 2, 2], [0, 1, 1, 2]]), np.array([1, 2])
for name in ("sum", "sum_labels", "mean", "variance", "standard_deviation", "maximum", "minimum", "median"):
    t(f"{name} of labels", lambda x, name=name: getattr(ndimage, name)(x, LABELS, SOME), X)
    t(f"{name} of all", lambda x, name=name: getattr(ndimage, name)(x * x), X)
t("center_of_mass", lambda x: np.stack([np.asarray(c) for c in ndimage.center_of_mass(x * x)]), X)
t("extrema", lambda x: np.stack([np.asarray(c) for c in ndimage.extrema(x)[:2]]), X)
GRID, KNOTS = np.linspace(0, 1, 9), np.array([0.4, 0.6])
WAVES = np.sin(3 * GRID)
t(
    "LSQUnivariateSpline of arrays",
    lambda y, p: interpolate.LSQUnivariateSpline(GRID, y, KNOTS)(p),
    WAVES,
    z * 0.4,
)
for name in ("splder", "splantider"):
    t(
        f"{name} of a spline",
        lambda y, p, name=name: getattr(interpolate, name)(interpolate.make_interp_spline(GRID, y))(p),
        WAVES,
        z * 0.4,
    )
t("Akima of arrays", lambda y, p: interpolate.Akima1DInterpolator(GRID, y)(p), WAVES + GRID**2, z * 0.43)
