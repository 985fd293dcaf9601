"""Lines of scipy.special for tests/ops/test_scipy_names.py.  What is no ufunc is called by its face."""

import numpy as np
import scipy.special as sp
from cases import between, case, normal, positive

from tapegrad.ops.special import bessel_orders, integrals, orthogonal_polynomials
from tapegrad.scipy import special as face

X, P, Q, R, U = (
    normal(2, 3),
    positive(2, 3),
    positive(2, 3, seed=1),
    positive(2, 3, seed=2),
    between(0.1, 0.9, 2, 3),
)
T = between(0.1, 0.9, 2, 3, seed=1)
AWAY = np.sign(X) * (0.3 + abs(X))
ALONE = [np.array(2.7), np.array(1.4)]
NS = np.array([0, 3, 4])
WHOLE_QUANTILES = ("_binom_ppf", "_binom_isf", "_nbinom_ppf", "_nbinom_isf")
V = np.array([[0.3, 1.7, 2.5], [0.6, 3.3, 1.1]])


def plain(name, f, *inputs, covers=(), **options):
    return case(name, f, *inputs, numpy_only=True, covers=covers, **options)


def at(name, f, *constants, x=P, **options):
    """f(*constants, x)."""
    return case(name, lambda x: f(*constants, x), x, numpy_only=True, **options)


DEGREES = [
    at(f.__name__, f, 3, x=2 * U - 1)
    for f in (sp.eval_legendre, sp.eval_chebyu, sp.eval_chebyt, sp.eval_chebys, sp.eval_chebyc,
    sp.eval_sh_legendre, sp.eval_sh_chebyu,
              sp.eval_sh_chebyt, sp.eval_laguerre, sp.eval_hermite, sp.eval_hermitenorm)
]  # fmt: skip
COUNTS = [at(f.__name__, f, 2, 5, x=U) for f in (sp.bdtr, sp.bdtrc, sp.nbdtr, sp.nbdtrc)] + [
    at(sp.bdtri.__name__, sp.bdtri, 2, 5, x=U),
    at("nbdtri", sp.nbdtri, 2, 5, x=U),
    at("pdtr", sp.pdtr, 2),
    at("pdtrc", sp.pdtrc, 2),
    at("pdtri", sp.pdtri, 2, x=U),
]
KELVIN = [
    plain(f.__name__, f, P) for f in (sp.ber, sp.bei, sp.berp, sp.beip, sp.ker, sp.kei, sp.kerp, sp.keip)
]
TUPLES = [
    plain(f.__name__, f, P, covers=covers, rtol=1e-5 if f is sp.itairy else 1e-9)
    for f, covers in (
        (sp.kelvin, ()),
        *[
            (f, tuple(f"{f.__name__}_{k}" for k in range(n)) + ("sine_over",) * (f is sp.sici))
            for f, n in (
                (sp.sici, 2), (sp.shichi, 2), (sp.fresnel, 2), (sp.airy, 4), (sp.airye, 4), (sp.itj0y0, 2),
                (sp.iti0k0, 2), (sp.it2j0y0, 2), (sp.it2i0k0, 2), (sp.itairy, 4),
            )
        ],
    )
]  # fmt: skip

LINES = [
    # incomplete functions, by all arguments
    *[plain(f.__name__, f, P, Q) for f in (sp.gammainc, sp.gammaincc)],
    *[plain(f.__name__, f, P, U) for f in (sp.gammaincinv, sp.gammainccinv)],
    *[plain(f.__name__, f, P, Q, U) for f in (sp.betainc, sp.betaincc, sp.betaincinv, sp.betainccinv)],
    plain("stdtr", sp.stdtr, P, AWAY),
    # distribution functions
    plain("gdtr", sp.gdtr, P, Q, R),
    plain("gdtrc", sp.gdtrc, P, Q, R),
    plain("gdtria", sp.gdtria, U, Q, R, rtol=1e-6),
    plain("gdtrib", sp.gdtrib, P, U, R, rtol=1e-6),
    plain("gdtrix", sp.gdtrix, P, Q, U, rtol=1e-6),
    plain("chdtr", sp.chdtr, P, Q),
    plain("chdtrc", sp.chdtrc, P, Q),
    plain("chdtri", sp.chdtri, P, U),
    plain("chdtriv", sp.chdtriv, U, Q, rtol=1e-6),
    *COUNTS,
    plain("btdtria", sp.btdtria, U, Q, T, rtol=1e-6),
    plain("btdtrib", sp.btdtrib, P, U, T, rtol=1e-6),
    plain("fdtr", sp.fdtr, P, Q, R),
    plain("fdtrc", sp.fdtrc, P, Q, R),
    plain("fdtri", sp.fdtri, 1 + P, 1 + Q, U),
    plain("fdtridfd", sp.fdtridfd, 1 + P, sp.fdtr(1 + P, 1 + Q, 0.5 * R), 0.5 * R, rtol=1e-5, order=1),
    plain("stdtrit", sp.stdtrit, 1 + P, 0.5 + 0.4 * U, rtol=1e-6),
    plain("stdtridf", sp.stdtridf, 0.8 + 0.05 * U, 1.5 + 0.3 * U, rtol=1e-5),
    case("chndtr", lambda x, nc: sp.chndtr(x, 2.5, nc), P, Q, numpy_only=True),
    case("chndtrix", lambda p, nc: sp.chndtrix(p, 2.5, nc), U, Q, numpy_only=True, rtol=1e-5),
    case("chndtrinc", lambda x, p: sp.chndtrinc(x, 2.5, p), 3 + P, 0.3 + 0.1 * U, numpy_only=True, rtol=1e-5),
    plain("nrdtrimn", sp.nrdtrimn, U, P, X),
    plain("nrdtrisd", sp.nrdtrisd, X, 0.5 + 0.5 * U, P),
    # polynomials
    *DEGREES,
    plain("eval_jacobi", lambda a, b, x: sp.eval_jacobi(NS, a, b, x), P, Q, 2 * U - 1, order=2),
    plain("eval_gegenbauer", lambda a, x: sp.eval_gegenbauer(NS, a, x), P, 2 * U - 1, order=2),
    plain("eval_sh_jacobi", lambda p, q, x: sp.eval_sh_jacobi(NS, 2 + p, q, x), P, Q, U, order=2),
    plain("eval_genlaguerre", lambda a, x: sp.eval_genlaguerre(NS, a, x), P, Q, order=2),
    *[
        plain(
            f.__name__,
            lambda x, *p, f=f, m=m: f(3, *p, monic=m)(x),
            2 * U - 1,
            *ALONE[:k],
            order=2,
        )
        for f, k, m in (
            (face.jacobi, 2, False),
            (face.sh_jacobi, 2, True),
            (face.gegenbauer, 1, True),
            (face.genlaguerre, 1, False),
        )
    ],
    case("assoc_laguerre", lambda x: face.assoc_laguerre(x, 3, 1.0), P, numpy_only=True),
    at("lpmv", sp.lpmv, 1, 3, x=2 * U - 1),
    case("diric", lambda x: face.diric(x, 5), np.append(X, [[0.0, 2 * np.pi, 1.0]], 0), numpy_only=True),
    case(
        "sph_harm_y_of",
        lambda t, p: orthogonal_polynomials.sph_harm_y_of(3, 1, t, p),
        U,
        X,
        numpy_only=True,
        order=2,
    ),
    case("sph_harm_y", lambda t, p: face.sph_harm_y(2, -1, t, p), 2 * U, X, numpy_only=True, order=2),
    case("comb", lambda n: face.comb(n, 2), 4 + P, numpy_only=True),
    case("perm", lambda n: face.perm(n, 2), 4 + P, numpy_only=True),
    # elliptic
    plain("elliprf", sp.elliprf, P, Q, R, covers=("carlson",)),
    plain("elliprd", sp.elliprd, P, Q, R),
    plain("elliprj", sp.elliprj, P, Q, R, 1 + U),
    plain("elliprc", sp.elliprc, P, Q),
    plain("elliprg", sp.elliprg, P, Q, R),
    plain("ellipk", sp.ellipk, np.append(U, [[-3.0, 0.0, -0.2]], 0)),
    plain("ellipkm1", sp.ellipkm1, U),
    plain("ellipe", sp.ellipe, np.append(U, [[-3.0, 0.0, -0.2]], 0)),
    plain(
        "ellipkinc", sp.ellipkinc, np.append(X, [[4.0, -7.5, 0.3]], 0), np.append(U, [[0.4, 0.2, -2.0]], 0)
    ),
    plain(
        "ellipeinc", sp.ellipeinc, np.append(X, [[4.0, -7.5, 0.3]], 0), np.append(U, [[0.4, 0.2, -2.0]], 0)
    ),
    plain("ellipj", sp.ellipj, 2 * X, U, covers=("amplitude",)),
    plain("agm", sp.agm, P, Q),
    # Bessel functions
    *[plain(f.__name__, f, V, 0.4 + P) for f in (sp.jv, sp.yv, sp.iv, sp.kv, sp.ive, sp.kve, sp.jve, sp.yve)],
    plain("kve far out", sp.kve, V, 300 * P),
    at("kn", sp.kn, 2),
    at("yn", sp.yn, 2),
    *[
        case(f.__name__, lambda v, z, f=f: f(v, z, 2), V, 0.4 + P, numpy_only=True)
        for f in (face.jvp, face.yvp, face.ivp, face.kvp)
    ],
    *[plain(f.__name__, f, V, 0.4 + P, order=2) for f in (sp.hankel1, sp.hankel2, sp.hankel1e, sp.hankel2e)],
    case(
        "_binom_pmf and sums",
        lambda p: sum([getattr(sp._ufuncs, f"_binom_{f}")(3.0, 10.0, p) for f in ("pmf", "cdf", "sf")]),
        0.2 + 0.1 * P,
        numpy_only=True,
        covers=("_binom_pmf", "_binom_cdf", "_binom_sf"),
    ),
    plain("_ncx2_sf", sp._ufuncs._ncx2_sf, 2 + P, 1.5 + P, P, covers=("_ncx2_sf",)),
    case(
        "_binom_ppf and its kin",
        lambda q, p: p * sum([getattr(sp._ufuncs, name)(q, 3.0, p) for name in WHOLE_QUANTILES]),
        np.array([0.31, 0.52, 0.66]),  # with these, no jump is near
        np.array([0.79, 0.72, 0.79]),
        numpy_only=True,
        covers=WHOLE_QUANTILES,
    ),
    *[
        case(
            f"{f.__name__} {n}",
            lambda z, n=n, d=d, f=f: f(n, z, d),
            0.4 + P,
            numpy_only=True,
            covers=(f.__name__ + "_of",),
        )
        for f in (face.spherical_jn, face.spherical_yn, face.spherical_in, face.spherical_kn)
        for n, d in ((0, False), (2, False), (1, True))
    ],
    *[
        case(n, lambda v, z, f=f: f(v, z, n=1), V, 0.4 + P, numpy_only=True)
        for n, f in (
            ("bessel_j_order", bessel_orders.bessel_j_order),
            ("bessel_y_order", bessel_orders.bessel_y_order),
            ("bessel_i_order", bessel_orders.bessel_i_order),
        )
    ],
    case(
        "bessel_k_moment",
        lambda v, z: bessel_orders.bessel_k_moment(v, z, n=1, m=1),
        V,
        0.4 + P,
        numpy_only=True,
    ),
    *KELVIN,
    *TUPLES,
    *[
        case(
            f"{f.__name__} {n or ''}".strip(),
            f,
            v,
            x,
            numpy_only=True,
            covers=(f.__name__ + "_0", f.__name__ + "_1", *covers),
            rtol=1e-8,
        )
        for f, covers in (
            (sp.pbdv, ("cylinder_order", "cylinder_series")),
            (sp.pbvv, ()),
            (sp.pbwa, ("w_at_zero",)),
        )
        for n, (v, x) in enumerate(((0.3 + Q, P), (Q - 0.9, -P), (-1.2 - Q, X)))
    ],
    plain("struve", sp.struve, V, 0.4 + P, order=2),
    plain("modstruve", sp.modstruve, V, 0.4 + P, order=2),
    *[plain(f.__name__, f, P) for f in (sp.itstruve0, sp.it2struve0, sp.itmodstruve0)],
    # powers and integrals
    plain("spence", sp.spence, np.append(P, [[1.0, 1.1, 0.2]], 0), covers=("log1p_over",)),
    plain("zetac", sp.zetac, 1.5 + P),
    plain("owens_t", sp.owens_t, X, Q),
    plain("wofz", sp.wofz, X + 1j * P, order=2),
    plain("voigt_profile", sp.voigt_profile, X, P, Q),
    plain("boxcox", sp.boxcox, P, np.append(X[:1], [[0.0, 1e-9, 1.0]], 0)),
    plain("boxcox1p", sp.boxcox1p, P, X),
    plain("inv_boxcox", sp.inv_boxcox, P, np.append(P[:1], [[0.0, 1e-9, 1.0]], 0)),
    plain("inv_boxcox1p", sp.inv_boxcox1p, P, Q),
    plain("powm1", sp.powm1, P, X),
    *[plain(f.__name__, f, 40 * P, eps=1e-2) for f in (sp.sindg, sp.cosdg, sp.tandg, sp.cotdg)],
    plain("round", sp.round, X),
    plain("radian", sp.radian, P, Q, R),
    plain("hyp0f1", sp.hyp0f1, P, np.append(X[:1], [[9.0, -7.0, 0.0]], 0), order=2, rtol=1e-7),
    plain(
        "hyp1f1",
        sp.hyp1f1,
        P,
        Q,
        np.append(X[:1], [[5.0, -7.0, 0.0]], 0),
        order=2,
        rtol=1e-7,
        covers=("series_of",),
    ),
    plain("hyp2f1", sp.hyp2f1, P, Q, R, np.append(0.9 * U[:1], [[-3.0, 0.5, 0.0]], 0), order=2, rtol=1e-7),
    plain("hyperu", sp.hyperu, P, Q, R, order=2, rtol=1e-7),
    plain("wright_bessel", sp.wright_bessel, P, Q, R, order=2),
    plain("log_wright_bessel", sp.log_wright_bessel, P, Q, R, order=2),
    case("lambertw_of", lambda z: integrals.lambertw_of(z, 0), P, numpy_only=True, order=2),
    case("lambertw", lambda z: face.lambertw(z), P, numpy_only=True, order=2),
]
