"""Calls of scipy.optimize, as users write them: see public_calls.py."""

import numpy as np
import scipy.optimize as s
from scipy.optimize import brentq

CALLS = []


OPTIONS = {"samples": False, "exact": 1e-7, "h": 1e-2, "rtol": 1e-6}


def t(name, f, *x, **options):
    CALLS.append((name, f, x, {**OPTIONS, **options}))


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
            lambda x, a, b: (x[0] - a) ** 2 + (x[1] - b * x[0]) ** 4 + 0.5 * (x[1] - b) ** 2, [0.1, 0.1], args=(p[0], p[1]), tol=1e-10
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
            lambda x: (x[0] - p[0]) ** 2 + np.exp(x[1] * p[1]) - x[1], [0.1, 0.1], tol=1e-10, method="L-BFGS-B", bounds=[(-5, 5)] * 2
        ).fun
    ),
    z,
    exact=1e-5,
    rtol=1e-4,
)
t(
    "minimize jac",
    lambda p: s.minimize(lambda x, a: np.sum(np.cosh(x - a)), [0.1, 0.1], args=(p,), jac=lambda x, a: np.sinh(x - a)).x,
    z,
    exact=1e-4,
    rtol=1e-4,
)
t("ms", lambda p: s.minimize_scalar(lambda x: np.cosh(x - p[0]) + 0.1 * x * p[1], tol=1e-12).x, z, rtol=1e-4, exact=1e-6)
xs = np.linspace(0, 1, 8)
t(
    "ls",
    lambda y: s.least_squares(lambda q: q[0] * np.exp(q[1] * xs) - y, [1.0, 0.1], xtol=1e-13, ftol=1e-13, gtol=1e-13).x,
    np.exp(0.5 * xs) + 0.01 * rng.normal(size=8),
    rtol=1e-4,
    exact=1e-6,
    h=1e-3,
)
for n in ("rosen", "rosen_der", "rosen_hess"):
    t(n, lambda x, n=n: getattr(s, n)(x), rng.normal(size=4), samples=True, rtol=1e-6)
