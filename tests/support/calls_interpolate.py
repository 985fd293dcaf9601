"""Calls of scipy.interpolate, as users write them: see public_calls.py."""

import numpy as np
import scipy.interpolate as s
from public_calls import table
from scipy.sparse.linalg import spsolve

CALLS, t = table()
rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 5, 9))
y = rng.normal(size=9)
Y = rng.normal(size=(9, 2))
p = rng.uniform(x[0] + 0.1, x[-1] - 0.1, 6)
for bc in ("not-a-knot", "natural", "clamped"):
    t("cs " + bc, lambda y, p, bc=bc: s.CubicSpline(x, y, bc_type=bc)(p), y, p)
    t("cs nodes " + bc, lambda x, y, p, bc=bc: s.CubicSpline(x, y, bc_type=bc)(p), x, y, p)
t(
    "cs periodic",
    lambda y, p: s.CubicSpline(x, np.concatenate([y, y[:1]]), bc_type="periodic")(p + 7.0),
    y[:-1],
    p,
)
t(
    "cs bc values",
    lambda y, a, p: s.CubicSpline(x, y, bc_type=((1, a[0]), (2, a[1])))(p),
    y,
    np.array([0.3, 0.4]),
    p,
)
t("cs 2d", lambda y, p: s.CubicSpline(x, y, axis=1)(p.reshape(2, 3)), Y.T.copy(), p)
t("cs derivative", lambda y, p: s.CubicSpline(x, y)(p, 1), y, p)
t("cs derivative()", lambda y, p: s.CubicSpline(x, y).derivative()(p), y, p)
t("cs integrate", lambda y, a: s.CubicSpline(x, y).integrate(a[0], a[1]), y, np.array([0.7, 3.2]))
t("cs anti", lambda y, p: s.CubicSpline(x, y).antiderivative()(p), y, p)
fixed = s.CubicSpline(x, y)
fixed2 = s.CubicSpline(x, Y)
t("captured cs", lambda p: fixed(p), p)
t("captured cs 2", lambda p: fixed2(p, 1), p)
t("captured int", lambda a: fixed.integrate(a[0], a[1]), np.array([0.7, 3.2]))
t("cs roots", lambda y: s.CubicSpline(x, y).roots(extrapolate=False), y, samples=False)
t("hermite", lambda x, y, d, p: s.CubicHermiteSpline(x, y, d)(p), x, y, y[::-1].copy(), p)
t("pchip", lambda x, y, p: s.PchipInterpolator(x, y)(p), x, y, p)
t("pchip_interpolate", lambda y, p: s.pchip_interpolate(x, y, p), y, p)
t("pchip 2", lambda y, p: s.PchipInterpolator(x, y)(p), Y, p)
t("akima", lambda x, y, p: s.Akima1DInterpolator(x, y)(p), x, y, p)
t("makima", lambda x, y, p: s.Akima1DInterpolator(x, y, method="makima")(p), x, y, p, h=1e-5, rtol=1e-6)
for k in (1, 2, 3, 4, 5):
    t(f"mis {k}", lambda y, p, k=k: s.make_interp_spline(x, y, k)(p), y, p, order=2 if k > 2 else 1)
    t(
        f"mis nodes {k}",
        lambda x, y, p, k=k: s.make_interp_spline(x, y, k)(p),
        x,
        y,
        p,
        order=2 if k > 2 else 1,
        rtol=1e-6,
        h=1e-4,
    )
t("mis clamped", lambda y, p: s.make_interp_spline(x, y, 3, bc_type="clamped")(p), Y, p)
t("mis derivative", lambda y, p: s.make_interp_spline(x, y, 5).derivative(2)(p), y, p)
t("mis int", lambda y, a: s.make_interp_spline(x, y, 3).integrate(a[0], a[1]), y, np.array([1.0, 3.0]))
tk = s.make_interp_spline(x, y, 3).t
t(
    "bspline",
    lambda t, c, p: s.BSpline(t, c, 3)(p),
    np.linspace(-2, 8, 13) + 0.1 * rng.uniform(size=13),
    y,
    p,
    rtol=1e-6,
    h=1e-4,
    samples=True,
)
bs = s.BSpline(tk, Y, 3)
t("captured bspline", lambda p: bs(p), p)
t("bspline anti", lambda c, p: s.BSpline(tk, c, 3).antiderivative()(p), y, p)
t("ppoly", lambda c, x, p: s.PPoly(c, x)(p), rng.normal(size=(3, 8)), x, p, rtol=1e-6, h=1e-4)
t("ppoly from", lambda c, p: s.PPoly.from_spline(s.BSpline(tk, c, 3))(p), y, p)
down = np.sort(rng.uniform(0, 5, 5))[::-1].copy()
t("ppoly down", lambda c, x, p: s.PPoly(c, x)(p), rng.normal(size=(3, 4)), down, p, rtol=1e-6, h=1e-4)
t(
    "ppoly anti 2",
    lambda c, x, p: s.PPoly(c, x).antiderivative(2)(p),
    rng.normal(size=(3, 8)),
    x,
    p,
    rtol=1e-6,
    h=1e-4,
)
t(
    "ppoly periodic",
    lambda c, a: s.PPoly(c, x, "periodic").integrate(a[0], a[1]),
    rng.normal(size=(3, 8)),
    np.array([1.0, 13.0]),
)
t(
    "ppoly roots 2",
    lambda c: list(s.PPoly(c, np.arange(3.0)).roots()),
    np.array([[[1.0, 2.0], [1.0, 1.0]], [[-0.3, -0.5], [-0.6, -0.2]]]),
    samples=False,
)
t("ppoly complex", lambda c, p: s.PPoly(c * (1 + 2j), x).derivative()(p), rng.normal(size=(3, 8)), p)
t("bpoly der", lambda c, x, p: s.BPoly(c, x)(p, 2), rng.normal(size=(4, 8)), x, p, rtol=1e-6, h=1e-4)
t(
    "bpoly int",
    lambda c, a: s.BPoly(c, x).integrate(a[0], a[1]),
    rng.normal(size=(4, 8)),
    np.array([1.0, 3.0]),
)
t("bpoly from power", lambda c, p: s.BPoly.from_power_basis(s.PPoly(c, x))(p), rng.normal(size=(4, 8)), p)
t("bpoly from derivatives", lambda y, p: s.BPoly.from_derivatives(x, y)(p), Y, p)
t("bspline complex", lambda c, p: s.BSpline(tk, c * (1 + 2j), 3)(p, 1), y, p)
t("bspline insert", lambda c, p: s.BSpline(tk, c, 3).insert_knot(2.1)(p), y, p)
t(
    "bspline periodic",
    lambda c, a: s.BSpline(tk, c, 3, "periodic").integrate(a[0], a[1]),
    y,
    np.array([1.0, 9.0]),
)
t("cs two nodes", lambda y, p: s.CubicSpline(x[:2], y)(p), y[:2], p)
t("cs three nodes", lambda x, y, p: s.CubicSpline(x, y)(p), x[:3], y[:3], p, rtol=1e-6)
t("cs complex", lambda y, p: s.CubicSpline(x, y * (1 + 2j))(p), y, p)
t("bpoly", lambda c, x, p: s.BPoly(c, x)(p), rng.normal(size=(3, 8)), x, p, rtol=1e-6, h=1e-4)
t("lsq", lambda y, p: s.make_lsq_spline(x, y, np.r_[(x[0],) * 4, 2.2, (x[-1],) * 4], 3)(p), y, p)
t(
    "lsq w",
    lambda y, w, p: s.make_lsq_spline(x, y, np.r_[(x[0],) * 4, 2.2, (x[-1],) * 4], 3, w)(p),
    y,
    np.linspace(1, 2, 9),
    p,
)
t("smoothing", lambda y, p: s.make_smoothing_spline(x, y, lam=0.1)(p), y, p)
t(
    "smoothing by its weights",
    lambda w, u: s.make_smoothing_spline(x, y, w, np.exp(u))(p),
    1 + y * y,
    np.float64(-2.0),
)
t("splrep", lambda y, p: s.splev(p, s.splrep(x, y)), y, p)
t("splrep der", lambda y, p: s.splev(p, s.splrep(x, y), der=1, ext=1), y, np.r_[p, 9.0])
t("splrep der 3", lambda y, p: s.splev(p, s.splrep(x, y), der=1, ext=3), y, np.r_[p, -1.0, 9.0])
t("UnivariateSpline der 3", lambda y: s.UnivariateSpline(x, y, s=0, ext=3)([-1.0, 2.0, 9.0], 2), y)
for k in (1, 2, 3, 5):
    t(
        f"make_interp_spline periodic {k}",
        lambda y, k=k: s.make_interp_spline(x, np.concatenate([y, y[:1]]), k, bc_type="periodic")(
            [2.2, 30.0]
        ),
        y[:-1],
    )
t("splint", lambda y, a: s.splint(a[0], a[1], s.splrep(x, y)), y, np.array([1.0, 3.0]))
t("splder", lambda y, p: s.splev(p, s.splder(s.splrep(x, y))), y, p)
t("splantider", lambda y, p: s.splev(p, s.splantider(s.splrep(x, y))), y, p)
t("IUS", lambda y, p: s.InterpolatedUnivariateSpline(x, y)(p), y, p)
t("US0", lambda y, p: s.UnivariateSpline(x, y, s=0)(p, 1), y, p)
for sm in (0, 4.0):
    t(
        f"US bbox {sm}",
        lambda y, p, sm=sm: s.UnivariateSpline(x, y, bbox=[x[0] - 0.5, x[-1] + 0.7], s=sm)(p * 1.1, 1),
        y,
        p,
        samples=False,
        rtol=1e-6,
    )
t("US residual", lambda y: s.LSQUnivariateSpline(x, y, [2.2], w=1 + x).get_residual(), y, samples=False)
t(
    "US roots",
    lambda y: s.UnivariateSpline(x, y, s=0).antiderivative()(s.UnivariateSpline(x, y, s=0).roots()),
    y,
    samples=False,
)
t("US int", lambda y: s.UnivariateSpline(x, y, s=0).integral(1.0, 3.0), y)
us = s.UnivariateSpline(x, y, s=1.0)
t("captured us", lambda p: us(p), p)
t("captured us der", lambda p: us.derivative()(p), p)
t("LSQUS", lambda y, p: s.LSQUnivariateSpline(x, y, [2.2])(p), y, p)
for kd in ("linear", "cubic", "quadratic", "nearest", "previous", "next", "zero"):
    t("interp1d " + kd, lambda y, p, kd=kd: s.interp1d(x, y, kind=kd)(p), y, p)
t("interp1d nodes", lambda x, y, p: s.interp1d(x, y)(p), x, y, p)
t("interp1d ex", lambda y, p: s.interp1d(x, y, fill_value="extrapolate", axis=0)(p + 2.0), Y, p)
t("interp1d fill", lambda y, p: s.interp1d(x, y, bounds_error=False, fill_value=(1.0, 2.0))(p + 2.0), y, p)
i1 = s.interp1d(x, Y.T)
t("captured i1", lambda p: i1(p), p)
i3 = s.interp1d(x, y, "cubic")
t("captured i3", lambda p: i3(p), p)
t(
    "bary",
    lambda xi, yi, p: s.barycentric_interpolate(xi, yi, p),
    np.linspace(0, 5, 5),
    y[:5],
    p,
    exact=1e-10,
    rtol=1e-6,
)
t("krogh", lambda xi, yi, p: s.krogh_interpolate(xi, yi, p), np.linspace(0, 5, 5), y[:5], p, rtol=1e-6)
g1, g2 = np.sort(rng.uniform(0, 1, 7)), np.sort(rng.uniform(0, 2, 6))
Z = rng.normal(size=(7, 6))
q = np.stack([rng.uniform(g1[0] + 0.01, g1[-1] - 0.01, 5), rng.uniform(g2[0] + 0.01, g2[-1] - 0.01, 5)], -1)
for m in ("linear", "nearest", "slinear", "cubic", "quintic"):
    t(
        "rgi " + m,
        lambda z, q, m=m: s.RegularGridInterpolator(
            (g1, g2), z, m, **({"solver": spsolve} if m in ("cubic", "quintic") else {})
        )(q),
        Z,
        q,
        exact=1e-8 if m in ("cubic", "quintic") else 1e-11,
        h=1e-5,
        rtol=1e-5,
        order=2 if m == "cubic" else 1,
    )
t("rgi nodes", lambda a, b, z, q: s.RegularGridInterpolator((a, b), z)(q), g1, g2, Z, q, h=1e-5, rtol=1e-6)
t(
    "rgi 3",
    lambda z, q: s.RegularGridInterpolator((g1, g2), z, bounds_error=False, fill_value=None)(q),
    rng.normal(size=(7, 6, 2)),
    q + 0.3,
    h=1e-5,
    rtol=1e-6,
)
rg = s.RegularGridInterpolator((g1, g2), Z, "cubic", solver=spsolve)
t("captured rg", lambda q: rg(q), q, exact=1e-8, h=1e-5, rtol=1e-5)
t("interpn", lambda z, q: s.interpn((g1, g2), z, q), Z, q, h=1e-5, rtol=1e-6)
t(
    "rbs",
    lambda z, a, b: s.RectBivariateSpline(g1, g2, z)(a, b),
    Z,
    np.sort(q[:, 0]),
    np.sort(q[:, 1]),
    exact=1e-9,
    h=1e-5,
    rtol=1e-5,
)
t(
    "rbs ev",
    lambda z, q: s.RectBivariateSpline(g1, g2, z).ev(q[:, 0], q[:, 1], dx=1),
    Z,
    q,
    exact=1e-9,
    h=1e-5,
    rtol=1e-5,
)
rb = s.RectBivariateSpline(g1, g2, Z)
t("captured rb", lambda q: rb.ev(q[:, 0], q[:, 1]), q, h=1e-5, rtol=1e-5)
N = rng.uniform(size=(10, 2))
D = rng.normal(size=10)
Q = rng.uniform(0.2, 0.8, size=(4, 2))
for k in (
    "linear",
    "thin_plate_spline",
    "cubic",
    "quintic",
    "gaussian",
    "multiquadric",
    "inverse_multiquadric",
    "inverse_quadratic",
):
    t(
        "rbf " + k,
        lambda d, Q, k=k: s.RBFInterpolator(N, d, kernel=k, epsilon=2.0, smoothing=0.1)(Q),
        D,
        Q,
        exact=1e-9,
        h=1e-4,
        rtol=1e-6,
    )
t(
    "rbf nodes",
    lambda N, d, e, Q: s.RBFInterpolator(N, d, kernel="gaussian", epsilon=e[0])(Q),
    N,
    D,
    np.array([3.0]),
    Q,
    exact=1e-9,
    h=1e-4,
    rtol=1e-5,
)
t("rbf nodes tps", lambda N, d, Q: s.RBFInterpolator(N, d)(Q), N, D, Q, exact=1e-9, h=1e-4, rtol=1e-5)
t(  # (how many neighbourhoods there are differs between samples)
    "rbf neighbours",
    lambda N, d, Q: s.RBFInterpolator(N, d, neighbors=6)(Q),
    N,
    D,
    Q,
    h=1e-5,
    rtol=1e-5,
    samples=False,
)
t(
    "rbf complex",
    lambda d, Q: abs(s.RBFInterpolator(N, d + 1j * d * d)(Q)),
    D,
    Q,
    exact=1e-9,
    h=1e-4,
    rtol=1e-5,
)
rf = s.RBFInterpolator(N, D)
t("captured rbf", lambda Q: rf(Q), Q, exact=1e-9, h=1e-4, rtol=1e-6)
t("lnd", lambda v, Q: s.LinearNDInterpolator(N, v, fill_value=0.5)(Q), D, Q, h=1e-6, rtol=1e-5, samples=False)
t(
    "lnd nodes",
    lambda N, v: s.LinearNDInterpolator(N, v, fill_value=0.5)(Q),
    N,
    D,
    h=1e-5,
    rtol=1e-5,
    samples=False,
)
t("nnd", lambda v: s.NearestNDInterpolator(N, v)(Q), D)
t("griddata", lambda v: s.griddata(N, v, Q, fill_value=0.0), D)
t("griddata 1", lambda v: s.griddata(x, v, p), y)
t("griddata n", lambda v: s.griddata(N, v, Q, "nearest"), D)
ln = s.LinearNDInterpolator(N, D, fill_value=0.0)
t("captured ln", lambda Q: ln(Q), Q, h=1e-6, rtol=1e-5, samples=False)

W = np.linspace(0, 5, 5)
t(
    "BarycentricInterpolator",
    lambda x, y, p: s.BarycentricInterpolator(x, y)(p),
    W,
    Y[:5],
    p,
    exact=1e-10,
    rtol=1e-6,
)
t("KroghInterpolator", lambda x, y, p: s.KroghInterpolator(x, y)(p), W, y[:5], p, rtol=1e-6, exact=1e-10)
t(
    "bary derivative",
    lambda x, y, p: s.BarycentricInterpolator(x, y).derivative(p, 2),
    W,
    Y[:5],
    p,
    exact=1e-9,
    rtol=1e-5,
    h=1e-4,
)
t("bary at nodes", lambda y, p: s.BarycentricInterpolator(W, y)(p), Y[:5], W[1:4], exact=1e-10)


def added(x, y, p):
    f = s.BarycentricInterpolator(x[:3], y[:3])
    f.add_xi(x[3:], y[3:])
    return f.derivative(p)


t("bary added", added, W, y[:5], p, exact=1e-9, rtol=1e-5, h=1e-4)
t("krogh twice", lambda y, p: s.KroghInterpolator([0.0, 1.0, 1.0, 3.0, 5.0], y)(p), Y[:5], p, exact=1e-10)
t(
    "krogh derivatives",
    lambda x, y, p: s.KroghInterpolator(x, y).derivatives(p),
    W,
    Y[:5],
    p,
    exact=1e-9,
    rtol=1e-5,
    h=1e-4,
)
for kd in ("nearest-up", "previous", "next", "zero", "quadratic"):
    t(
        "interp1d nodes " + kd,
        lambda x, y, p, kd=kd: s.interp1d(x, y, kd, axis=0)(p),
        x,
        Y,
        p,
        h=1e-4,
        rtol=1e-6,
    )
t(
    "interp1d fills",
    lambda y, a: s.interp1d(x, y, bounds_error=False, fill_value=(a[0], a[1]))(p + 2.0),
    y,
    np.array([0.3, 0.4]),
)
t("interp1d unsorted", lambda x, y, p: s.interp1d(x, y)(p), x[::-1].copy(), y, p)
through = s.BarycentricInterpolator(W, y[:5])
krogh = s.KroghInterpolator(W, y[:5])
t("captured through", lambda p: through(p), p, exact=1e-10, rtol=1e-6)
t("sproot", lambda y: s.sproot(s.splrep(x, y)), y, samples=False)
smooth = s.SmoothBivariateSpline(*rng.uniform(size=(2, 60)), rng.normal(size=60), s=40.0)
t("captured smooth", lambda Q: smooth.ev(Q[:, 0], Q[:, 1]), Q, h=1e-5, rtol=1e-5)
tck = s.bisplrep(np.repeat(g1, 6), np.tile(g2, 7), Z.ravel(), s=25.0)
t(
    "bisplev",
    lambda a, b, c: s.bisplev(a, b, (tck[0], tck[1], c, 3, 3)),
    g1[1:4] + 0.001,
    g2[2:4] + 0.001,
    tck[2],
    h=1e-5,
    rtol=1e-5,
)
TN = (np.r_[np.zeros(4), 0.4, np.ones(4)], np.r_[np.zeros(3), 0.6, np.ones(3)])
t("NdBSpline", lambda c, q: s.NdBSpline(TN, c, (3, 2))(q), rng.normal(size=(5, 4)), Q, h=1e-4, rtol=1e-5)

north, east = np.linspace(0.3, 2.8, 7), np.linspace(0, 2 * np.pi, 9)[:-1]
theta, phi = rng.uniform(0.2, 2.9, 60), rng.uniform(0.1, 6.1, 60)
at_theta, at_phi = np.array([0.5, 1.1, 2.0]), np.array([0.4, 2.2, 5.0])
inner = np.array([0.8, 1.5, 2.2]), np.array([1.0, 2.5, 4.0, 5.0])
round_data = 2 + np.cos(theta) * np.sin(phi)
t(
    "sphere",
    lambda r, p, q: s.RectSphereBivariateSpline(north, east, r).ev(p, q),
    rng.normal(size=(7, 8)),
    at_theta,
    at_phi,
)
t(
    "sphere grid",
    lambda r, p: s.RectSphereBivariateSpline(north, east, r)(p, at_phi, dtheta=1),
    rng.normal(size=(7, 8)),
    at_theta,
)
t(
    "sphere lsq",
    lambda r, p: s.LSQSphereBivariateSpline(theta, phi, r, *inner)(p, at_phi),
    rng.normal(size=60),
    at_theta,
)
t(
    "sphere smooth",
    lambda p, q: s.SmoothSphereBivariateSpline(theta, phi, round_data, s=3.0).ev(p, q),
    at_theta,
    at_phi,
)
