"""Calls of numpy.polynomial and numpy.poly1d, as users write them: see public_calls.py."""

import numpy as np
from numpy.polynomial import Chebyshev, Hermite, HermiteE, Laguerre, Legendre, Polynomial
from numpy.polynomial import chebyshev as Ch
from numpy.polynomial import polynomial as P
from public_calls import cat, table

# What these compute depends on values: on how many roots are equal, on equal steps, on whether a series is
# real.
BY_VALUES = {"poly1d div"}
CALLS, t = table(by_values=BY_VALUES)


rng = np.random.default_rng(0)
c = np.array([0.5, -1.2, 0.7, 0.3])
d = np.array([0.2, 0.9])
x = np.array([0.3, -0.4, 0.8])
KINDS = (Polynomial, Chebyshev, Legendre, Hermite, HermiteE, Laguerre)
for K in KINDS:
    n = K.__name__
    t(n + " call", lambda c, x, K=K: K(c)(x), c, x)
    t(n + " domain", lambda c, x, K=K: K(c, domain=[x[1], 2.0])(x), c, x)
    t(
        n + " arithmetic",
        lambda c, d, x, K=K: (K(c) * K(d) + 2 * K(d) - K(c) ** 2 + (K(c) // K(d)) - (K(c) % K(d)))(x),
        c,
        d,
        x,
    )
    t(
        n + " calculus",
        lambda c, d, x, K=K: cat(K(c).deriv(2).coef, K(c).integ(1, [d[0]], lbnd=d[1])(x)),
        c,
        d,
        x,
    )
    t(n + " roots", lambda c, K=K: K(c).roots(), c, exact=1e-9, rtol=1e-5, h=1e-4, order=1)
    t(
        n + " fit",
        lambda x, y, K=K: K.fit(x, y, 2).convert().coef,
        np.r_[x, 1.4, 2.0],
        np.r_[x**2, 0.3, 0.1],
        rtol=1e-5,
        h=1e-4,
        exact=1e-9,
    )
    t(n + " fromroots", lambda r, x, K=K: K.fromroots(r)(x), d, x)
    p0 = K(c)
    t(n + " captured", lambda x, p0=p0: p0(x) * (p0.deriv())(x), x)
t("convert", lambda c, x: Polynomial(c).convert(kind=Chebyshev)(x), c, x)
t("compose", lambda c, d, x: Polynomial(c)(Polynomial(d))(x), c, d, x)
t("linspace", lambda c: cat(*Polynomial(c).linspace(4)), c)
t(
    "truncate",
    lambda c: cat(Polynomial(c).truncate(2).coef, Polynomial(c).cutdeg(1).coef, Polynomial(c).mapparms()),
    c,
)
t("zero lead", lambda c, x: (Polynomial(c) - Polynomial([0.5, -1.2, 0.7, 0.3]))(x), c, x)
t("polyval", lambda c, x: P.polyval(x, c), c, x)
t("polyval2d", lambda c, x: P.polyval2d(x, x**2, c), rng.normal(size=(3, 2)), x)
t("polygrid2d", lambda c, x: P.polygrid2d(x, x**2, c), rng.normal(size=(3, 2)), x)
t("polyvalfromroots", lambda r, x: P.polyvalfromroots(x, r), d, x)
t(
    "polyfit",
    lambda x, y: P.polyfit(x, y, 2, w=[1, 2, 3, 1, 1.0]),
    np.r_[x, 1.4, 2.0],
    np.r_[x**2, 0.3, 0.1],
    rtol=1e-5,
    h=1e-4,
    exact=1e-9,
)
t("polyvander", lambda x: P.polyvander(x, 3), x)
t("polyder", lambda c: P.polyder(c, 2, scl=c[0]), c)
t("polyint", lambda c: P.polyint(c, 2, k=[c[1]]), c)
t("polydiv", lambda c, d: cat(*P.polydiv(c, d)), c, d)
t("polyroots", lambda c: P.polyroots(c), c, exact=1e-9, rtol=1e-5, h=1e-4)
t("companion", lambda c: P.polycompanion(c), c)
t("chebval", lambda c, x: Ch.chebval(x, c), c, x)
t("chebmul", lambda c, d: Ch.chebmul(c, d), c, d)
t("cheb2poly", lambda c: Ch.cheb2poly(c), c)
t("chebinterpolate", lambda p: Ch.chebinterpolate(lambda x: np.exp(p[0] * x), 5), d)
t("mapdomain", lambda x: np.polynomial.polyutils.mapdomain(x, x[:2], [0, 1]), x)
t("poly1d", lambda c, d, x: (np.poly1d(c) * np.poly1d(d) + 3 - np.poly1d(d) ** 2)(x), c, d, x)
t(
    "poly1d calculus",
    lambda c, x: cat(
        np.poly1d(c).deriv()(x),
        np.poly1d(c).integ()(x),
        np.poly1d(c)(np.poly1d(x))(0.3),
        np.poly1d(x, True).c,
    ),
    c,
    x,
)
t("poly1d roots", lambda c: np.poly1d(c).r, c, exact=1e-9, rtol=1e-5, h=1e-4)
t(
    "poly1d div",
    lambda c, d: cat((np.poly1d(c) / np.poly1d(d))[0].c, (np.poly1d(c) / d[0]).c, np.poly1d(c)[2]),
    c,
    d,
)
q0 = np.poly1d(c)
t("poly1d captured", lambda x: q0(x), x)
t(
    "poly1d functions",
    lambda c, x: cat(np.roots(np.poly1d(c)).real, np.polyval(q0, x), np.polymul(q0, x)(0.3)),
    c,
    x,
    exact=1e-9,
    order=1,
)
