"""Calls of scipy.interpolate's smoothing splines, rational and further interpolants, as users write them: see
public_calls.py."""

import numpy as np
import scipy.interpolate as s
from public_calls import cat, table

CALLS, t = table(samples=False)
rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 3, 9))
y = np.sin(2 * x) + 0.1 * rng.normal(size=9)
q = np.array([0.4, 1.7, 2.2])
t("lagrange", lambda x, y: s.lagrange(x, y)(q), x[:4] * 2, y[:4], rtol=1e-5, exact=1e-9)
t(
    "pade",
    lambda c: cat(s.pade(c, 2)[0](0.4), s.pade(c, 2)[1].coef),
    np.array([1.0, 1.0, 0.5, 0.2, 0.1]),
    rtol=1e-6,
)
t(
    "taylor",
    lambda p: s.approximate_taylor_polynomial(lambda x: np.exp(p[0] * x) * p[1], 0.2, 4, 0.5)(0.3),
    np.array([0.7, 1.3]),
    exact=1e-9,
)
t(
    "insert",
    lambda c, x: cat(
        *[
            v[:7]
            for v in s.insert(x[0], (np.r_[0, 0, 0, 0, 1.0, 2.0, 3, 3, 3, 3], np.r_[c, 0, 0, 0, 0], 3))[:2]
        ]
    ),
    y[:6],
    np.array([1.3]),
)
t("Rbf", lambda x, y, p: s.Rbf(x, y, epsilon=0.7)(p), x, y, q, rtol=1e-5, h=1e-4, exact=1e-8)
t(
    "Rbf eps",
    lambda x, y, p: s.Rbf(x, y, function="gaussian", smooth=0.1)(p),
    x,
    y,
    q,
    rtol=1e-5,
    h=1e-4,
    exact=1e-8,
)
r0 = s.Rbf(x, y, epsilon=0.7)
t("Rbf captured", lambda p: r0(p), q)
t("FH", lambda x, y, p: s.FloaterHormannInterpolator(x, y, d=2)(p), x, y, q, rtol=1e-5, h=1e-5)
f0 = s.FloaterHormannInterpolator(x, y)
t("FH captured", lambda p: f0(p), q)
xa = np.linspace(-1, 1, 21)
t(
    "AAA",
    lambda y, p: s.AAA(xa, y, max_terms=4, clean_up=False)(p),
    np.exp(np.sin(3 * xa)),
    q * 0.3,
    exact=1e-9,
    rtol=1e-5,
    h=1e-4,
)
a0 = s.AAA(xa, 1 / (1.3 + xa))
t("AAA captured", lambda p: a0(p), q * 0.3)
t("AAA at its points", lambda p: cat(a0(p), a0(p[0])), np.append(a0.support_points[:2], 0.2))
t("FH at its points", lambda x, y: s.FloaterHormannInterpolator(x, y, d=2)(x[:3] + 0.0), x, y)
t(
    "AAA poles",
    lambda y: s.AAA(xa, y, max_terms=3, clean_up=False).poles(),
    np.exp(np.sin(3 * xa)),
    exact=1e-8,
    rtol=1e-4,
    h=1e-4,
    order=1,
)
c2 = rng.normal(size=(3, 2, 2, 3))
t(
    "NdPPoly",
    lambda c, p: s.NdPPoly(c, ([0.0, 1.0, 2.0], [0.0, 0.5, 1.0, 2.0]))(p),
    c2,
    np.array([[0.3, 0.7], [1.2, 1.6]]),
)
t(
    "NdPPoly nu",
    lambda c, p: s.NdPPoly(c, ([0.0, 1.0, 2.0], [0.0, 0.5, 1.0, 2.0]))(p, nu=(1, 0)),
    c2,
    np.array([[0.3, 0.7], [1.2, 1.6]]),
)
P2 = rng.uniform(size=(14, 2))
V2 = np.sin(3 * P2[:, 0]) + P2[:, 1] ** 2
t(
    "Krogh",
    lambda x, y, p: cat(s.KroghInterpolator(x, y).derivatives(p), s.KroghInterpolator(x, y).derivative(p, 2)),
    x[::2],
    y[::2],
    q,
    rtol=1e-5,
    h=1e-4,
    exact=1e-8,
)
t(
    "CT",
    lambda v: s.CloughTocher2DInterpolator(P2, v, tol=1e-12, maxiter=4000)(
        np.array([[0.4, 0.5], [0.5, 0.4]])
    ),
    V2,
    exact=1e-9,
)
t(
    "griddata cubic",
    lambda v: s.griddata(P2, v, np.array([[0.4, 0.5], [0.5, 0.4]]), method="cubic"),
    V2,
    exact=1e-5,
    rtol=1e-4,
)
t("make_splrep", lambda y: s.make_splrep(x, y, s=0.05)(q), y, rtol=1e-4, exact=1e-7, h=1e-4)
t("make_splrep c", lambda y: s.make_splrep(x, y, s=0.05).c, y, rtol=1e-4, exact=1e-7, h=1e-4)
t("splrep s", lambda y: s.splev(q, s.splrep(x, y, s=0.05)), y, rtol=1e-3, exact=1e-3, h=1e-3)
t("Univariate s", lambda y: s.UnivariateSpline(x, y, s=0.05)(q), y, rtol=1e-3, exact=1e-3, h=1e-3)
t("make_splprep", lambda x, y: s.make_splprep([x, y], s=0.02)[0](0.37), x, y, rtol=1e-4, exact=1e-7, h=1e-4)
t(
    "make_splprep 0",
    lambda x, y: cat(s.make_splprep([x, y], s=0)[0](0.37), s.make_splprep([x, y], s=0)[1]),
    x,
    y,
    rtol=1e-4,
    exact=1e-7,
    h=1e-4,
)
t(
    "smoothing by s",
    lambda y, f: s.splev(q, s.splrep(x, y, s=f[0])),
    y,
    np.array([0.05]),
    rtol=1e-3,
    exact=1e-3,
    h=1e-3,
    order=1,
)
t(
    "splprep 0",
    lambda x, y: cat(*s.splev(0.37, s.splprep([x, y], s=0)[0])),
    x,
    y,
    rtol=1e-4,
    exact=1e-7,
    h=1e-4,
)
t("knots", lambda x, y: cat(*list(s.generate_knots(x, y, s=0.01))), x, y)
