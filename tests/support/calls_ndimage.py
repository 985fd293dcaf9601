"""Calls of scipy.ndimage, as users write them: see public_calls.py."""

import numpy as np
import scipy.ndimage as n
from public_calls import table

CALLS, t = table()
rng = np.random.default_rng(0)
X = rng.normal(size=(7, 6))
V = rng.normal(size=9)
K = rng.normal(size=(3, 2))
C = rng.normal(size=(3, 4, 5))
M = ("reflect", "constant", "nearest", "mirror", "wrap")
for m in M:
    t("correlate " + m, lambda x, w, m=m: n.correlate(x, w, mode=m, cval=1.5), X, K)
    t("convolve " + m, lambda x, w, m=m: n.convolve(x, w, mode=m, cval=1.5), X, K)
    t("corr1d " + m, lambda x, w, m=m: n.correlate1d(x, w, 0, mode=m), X, V[:3])
    t("gauss " + m, lambda x, m=m: n.gaussian_filter(x, 1.2, mode=m), X)
for name in ("grid-constant", "grid-wrap", "grid-mirror"):
    t("correlate " + name, lambda x, w, m=name: n.correlate(x, w, mode=m, cval=1.5), X, K)
    t("uniform " + name, lambda x, m=name: n.uniform_filter(x, 3, mode=m, cval=1.5), X)
t("shift nearest", lambda x: n.shift(x, (0.6, -1.2), order=3, mode="nearest", prefilter=False), X)
t("zoom nearest", lambda x: n.zoom(x, 1.7, order=2, mode="nearest", prefilter=False, grid_mode=True), X)
t("whole turns", lambda x: n.map_coordinates(x, [[-16.0, -8.0, 0.0, 9.0, 24.0]], order=1, mode="wrap"), V)
t("origin", lambda x, w: n.correlate(x, w, origin=(1, 0)), X, K)
t("origin c", lambda x, w: n.convolve(x, w, origin=(-1, 0)), X, K)
t("conv1d", lambda x, w: n.convolve1d(x, w, axis=1), X, V[:4])
t("gauss sigma", lambda x, s: n.gaussian_filter(x, s[0]), X, np.array([1.1]), samples=False)
t("gauss order", lambda x: n.gaussian_filter(x, 1.0, order=(1, 2)), X)
t("g1d 3", lambda x, s: n.gaussian_filter1d(x, s[0], order=3), X, np.array([1.3]), samples=False)
t("gauss axes", lambda x: n.gaussian_filter(x, 1.0, axes=(1, 2), mode=("wrap", "nearest")), C)
t("uniform", lambda x: n.uniform_filter(x, (2, 3)), X)
t("uniform1d", lambda x: n.uniform_filter1d(x, 4, origin=-1), X)
for f in ("sobel", "prewitt"):
    t(f, lambda x, f=f: getattr(n, f)(x, 0), X)
t("sobel3", lambda x: n.sobel(x, mode="wrap"), C)
t("laplace", lambda x: n.laplace(x), X)
t("glap", lambda x: n.gaussian_laplace(x, 1.0), X)
t("ggm", lambda x: n.gaussian_gradient_magnitude(x, (1.0, 0.8)), X)
t(
    "genlap",
    lambda x: n.generic_laplace(
        x, lambda a, axis, output, mode, cval: n.correlate1d(a, [1, -2, 1], axis, output, mode, cval, 0)
    ),
    X,
)
for f in ("maximum_filter", "minimum_filter", "median_filter"):
    t(f, lambda x, f=f: getattr(n, f)(x, 3), X)
    t(
        f + " fp",
        lambda x, f=f: getattr(n, f)(x, footprint=np.array([[0, 1], [1, 1]]), mode="constant", cval=0.3),
        X,
    )
t("max1d", lambda x: n.maximum_filter1d(x, 3, 0), X)
t("rank", lambda x: n.rank_filter(x, -2, 3), X)
t("perc", lambda x: n.percentile_filter(x, 30, (2, 3)), X)
for f in (
    "grey_erosion",
    "grey_dilation",
    "grey_opening",
    "grey_closing",
    "white_tophat",
    "black_tophat",
    "morphological_gradient",
    "morphological_laplace",
):
    t(f, lambda x, f=f: getattr(n, f)(x, size=(2, 3)), X)
    t(
        f + " s",
        lambda x, s, f=f: getattr(n, f)(x, structure=s),
        X,
        rng.normal(size=(3, 3)),
        h=1e-5,
        rtol=1e-6,
    )
L = rng.integers(0, 4, size=X.shape)
for f in ("sum", "sum_labels", "mean", "variance", "standard_deviation", "maximum", "minimum", "median"):
    t(f, lambda x, f=f: getattr(n, f)(x, L, [1, 2, 3]), X)
    t(f + "0", lambda x, f=f: np.asarray(getattr(n, f)(x)) if 0 else getattr(n, f)(x, L, 2), X)
t("com", lambda x: np.array(n.center_of_mass(x**2)), X)
t("com L", lambda x: np.array(n.center_of_mass(x**2, L, [1, 2])), X)
t("extrema", lambda x: np.array(n.extrema(x)[:2]), X, samples=False)
for f, s in (("fourier_gaussian", 1.3), ("fourier_uniform", 2), ("fourier_shift", 0.7)):
    t(f, lambda x, f=f, s=s: np.fft.ifftn(getattr(n, f)(np.fft.fftn(x), s)), X)
P = rng.uniform(-2, 9, size=(2, 11))
for m in (*M, "grid-mirror", "grid-wrap", "grid-constant"):
    for o in range(6):
        t(
            f"map {m} {o}",
            lambda x, c, m=m, o=o: n.map_coordinates(x, c, order=o, mode=m, cval=0.4),
            X,
            P,
            order=2 if o > 2 else 1,
            rtol=1e-6,
            samples=o in (1, 3),
            h=1e-3 if o == 3 else 1e-4,
        )
    t("spline_filter " + m, lambda x, m=m: n.spline_filter(x, 3, mode=m), X)
    t("shift " + m, lambda x, s, m=m: n.shift(x, s, mode=m), X, np.array([0.7, -1.3]))
    t("zoom " + m, lambda x, m=m: n.zoom(x, 1.7, mode=m), X, exact=1e-9)
    t("zoom g " + m, lambda x, m=m: n.zoom(x, (1.7, 0.6), mode=m, grid_mode=True, order=1), X)
    t(
        "affine " + m,
        lambda x, A, b, m=m: n.affine_transform(x, A, b, mode=m),
        X,
        np.array([[0.7, 0.1], [-0.05, 0.7]]),
        np.array([0.33, 0.97]),
        h=1e-4,
        rtol=1e-6,
    )
    t(
        "affine d " + m,
        lambda x, A, b, m=m: n.affine_transform(x, A, b, mode=m),
        X,
        np.array([0.73, 0.81]),
        np.array([0.3, 0.4]),
    )
    t(
        "rotate " + m,
        lambda x, a, m=m: n.rotate(x, a[0], mode=m, reshape=False),
        X,
        np.array([23.0]),
        h=1e-3,
        rtol=1e-6,
    )
t("rotate r", lambda x: n.rotate(x, 23.0), X)
t("rotate 3", lambda x: n.rotate(x, 31.0, axes=(0, 2)), C)
t(
    "affine out",
    lambda x: n.affine_transform(x, np.array([[0.9, 0.2, 0.1], [-0.1, 1.1, 0.2]]), output_shape=(4, 9)),
    X,
)
t(
    "geom",
    lambda x, a: n.geometric_transform(x, lambda p: (p[0] * a[0], p[1] + a[1])),
    X,
    np.array([0.9, 0.2]),
)
t("spline1", lambda x: n.spline_filter1d(x, 5, 0), X)
t("real out", lambda x: n.gaussian_filter(x, 1.0, output=float), X)
