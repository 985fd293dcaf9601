"""Calls of scipy.optimize, as users write them: see public_calls.py."""

import numpy as np
import scipy.optimize as s
from public_calls import table
from scipy.optimize import brentq

OPTIONS = {"samples": False, "exact": 1e-7, "h": 1e-2, "rtol": 1e-6}


CALLS, t = table(**OPTIONS)
rng = np.random.default_rng(0)
z = np.array([0.7, 1.3])
F = lambda x, a, b: [x[0] + 0.3 * np.sin(x[1]) - a, x[1] + 0.2 * x[0] ** 2 - b]
t("root", lambda p: s.root(F, [0.1, 0.2], args=(p[0], p[1]), tol=1e-13).x, z)
t("root captured", lambda p: s.root(lambda x: F(x, p[0], p[1]), [0.1, 0.2], tol=1e-13).x, z)
t("fsolve", lambda p: s.fsolve(lambda x: F(x, p[0], p[1]), [0.1, 0.2], xtol=1e-13), z)
g = lambda x, a: x**3 + a * x - 2.0
for n in ("brentq", "brenth", "bisect", "ridder", "toms748"):
    t(n, lambda p, n=n: getattr(s, n)(g, 0.0, 3.0, args=(p[0],), xtol=1e-12), z)
t("brentq from", lambda p: brentq(lambda x: g(x, p[1]), 0.0, 3.0), z)
t("newton", lambda p: s.newton(g, 1.0, args=(p[0],), tol=1e-12), z)
t("newton v", lambda p: s.newton(lambda x: g(x, p), np.array([1.0, 1.0]), tol=1e-12), z)
t("root_scalar", lambda p: s.root_scalar(g, args=(p[0],), bracket=(0, 3), xtol=1e-12).root, z)
t("fixed", lambda p: s.fixed_point(lambda x: np.cos(x) * p * 0.5, np.array([0.5, 0.5]), xtol=1e-12), z)
t(
    "minimize",
    lambda p: (
        s.minimize(
            lambda x, a, b: (x[0] - a) ** 2 + (x[1] - b * x[0]) ** 4 + 0.5 * (x[1] - b) ** 2,
            [0.1, 0.1],
            args=(p[0], p[1]),
            tol=1e-10,
        ).x
    ),
    z,
    exact=1e-5,
    rtol=1e-4,
)
t(
    "minimize fun",
    lambda p: (
        s.minimize(
            lambda x: (x[0] - p[0]) ** 2 + np.exp(x[1] * p[1]) - x[1],
            [0.1, 0.1],
            tol=1e-10,
            method="L-BFGS-B",
            bounds=[(-5, 5)] * 2,
        ).fun
    ),
    z,
    exact=1e-5,
    rtol=1e-4,
)
t(
    "minimize jac",
    lambda p: (
        s.minimize(
            lambda x, a: np.sum(np.cosh(x - a)), [0.1, 0.1], args=(p,), jac=lambda x, a: np.sinh(x - a)
        ).x
    ),
    z,
    exact=1e-4,
    rtol=1e-4,
)
t(
    "ms",
    lambda p: s.minimize_scalar(lambda x: np.cosh(x - p[0]) + 0.1 * x * p[1], tol=1e-12).x,
    z,
    rtol=1e-4,
    exact=1e-6,
)
xs = np.linspace(0, 1, 8)
t(
    "ls",
    lambda y: (
        s.least_squares(
            lambda q: q[0] * np.exp(q[1] * xs) - y, [1.0, 0.1], xtol=1e-13, ftol=1e-13, gtol=1e-13
        ).x
    ),
    np.exp(0.5 * xs) + 0.01 * rng.normal(size=8),
    rtol=1e-4,
    exact=1e-6,
    h=1e-3,
)
for n in ("rosen", "rosen_der", "rosen_hess"):
    t(n, lambda x, n=n: getattr(s, n)(x), rng.normal(size=4), samples=True, rtol=1e-6)

BOWL = lambda x, a, b: np.cosh(x[0] - a) + (x[1] - b * a) ** 2 + 0.1 * x[0] * x[1]
LOOSE = {"exact": 1e-4, "rtol": 1e-4}
TIGHT = {"fmin": {"xtol": 1e-10, "ftol": 1e-12}, "fmin_powell": {"xtol": 1e-9}}
for name in ("fmin", "fmin_bfgs", "fmin_cg", "fmin_powell"):
    tight = TIGHT.get(name, {"gtol": 1e-8})
    t(
        name,
        lambda p, n=name, o=tight: getattr(s, n)(BOWL, [0.1, 0.1], args=(p[0], p[1]), disp=0, **o),
        z,
        **LOOSE,
    )
t(
    "fmin_l_bfgs_b",
    lambda p: s.fmin_l_bfgs_b(lambda x: BOWL(x, p[0], p[1]), [0.1, 0.1], approx_grad=True)[0],
    z,
    **LOOSE,
)
t("fmin_slsqp", lambda p: s.fmin_slsqp(lambda x: BOWL(x, p[0], p[1]), [0.1, 0.1], iprint=0), z, **LOOSE)
t(
    "differential_evolution",
    lambda p: s.differential_evolution(lambda x: BOWL(x, p[0], p[1]), [(-3, 3)] * 2, rng=1, maxiter=60).x,
    z,
    **LOOSE,
)
t(
    "basinhopping",
    lambda p: s.basinhopping(lambda x: BOWL(x, p[0], p[1]), [0.1, 0.1], niter=3, rng=1).x,
    z,
    **LOOSE,
)
VALLEY = lambda x, a: np.cosh(x - a) + 0.1 * x
t("brent", lambda p: s.brent(VALLEY, (p[0],), tol=1e-10), z, **LOOSE)
t("golden", lambda p: s.golden(VALLEY, (p[0],), tol=1e-8), z, **LOOSE)
t("fminbound", lambda p: s.fminbound(VALLEY, -3, 3, (p[0],)), z, **LOOSE)
for name in ("anderson", "broyden1", "newton_krylov"):
    t(
        name,
        lambda p, n=name: getattr(s, n)(lambda x: np.asarray(F(x, p[0], p[1])), [0.1, 0.2], f_tol=1e-10),
        z,
        exact=1e-6,
        rtol=1e-5,
    )
WAVE = np.exp(0.5 * xs) + 0.01 * np.sin(40 * xs)
t(
    "leastsq",
    lambda y: s.leastsq(lambda q: q[0] * np.exp(q[1] * xs) - y, [1.0, 0.1], xtol=1e-13)[0],
    WAVE,
    rtol=1e-4,
    h=1e-3,
)
MODEL = lambda x, a, b: a * np.exp(b * x)
t("curve_fit", lambda y: s.curve_fit(MODEL, xs, y, [1.0, 0.1], xtol=1e-13)[0], WAVE, rtol=1e-4, h=1e-3)
t(
    "curve_fit cov",
    lambda y, e: s.curve_fit(MODEL, xs, y, [1.0, 0.1], sigma=e, xtol=1e-13)[1],
    WAVE,
    1 + xs,
    exact=1e-6,
    rtol=1e-4,
    h=1e-3,
)
M = rng.normal(size=(6, 3))
t("nnls", lambda A, b: s.nnls(A, b)[0], M, rng.normal(size=6), rtol=1e-5, h=1e-4)
t("lsq_linear", lambda A, b: s.lsq_linear(A, b, (-0.1, 0.5)).x, M, rng.normal(size=6), rtol=1e-5, h=1e-4)
t(
    "isotonic",
    lambda y, w: s.isotonic_regression(y, weights=w).x,
    np.array([1.0, 0.2, 0.9, 2.0, 1.4, 3.0]),
    xs[:6] + 1,
    rtol=1e-5,
    h=1e-4,
)
