"""Lines of scipy.special for tests/ops/test_scipy_names.py: Legendre functions, tables of orders, Mathieu and
spheroidal functions,
noncentral laws, Kolmogorov's and Smirnov's.  What is no ufunc is called by its face."""

import warnings

import numpy as np
import scipy.special as sp
from names_numpy import line

from tapegrad.ops.special import declare, legendre
from tapegrad.scipy import special as face

INNER, OUTER, ANGLE = np.array([0.3, -0.6]), np.array([1.4, 2.2]), np.array([0.4, 2.0])
P, Q, U = np.array([0.7, 2.3]), np.array([1.4, 3.1]), np.array([0.3, 0.6])
ONE = np.float64(1.3)


def number(name, f, *constants, x=ONE, **options):
    """f(*constants, x) of a single number, as SciPy's tables want it."""
    return line(name, lambda x: f(*constants, x[()] if isinstance(x, np.ndarray) else x), x, **options)


LEGENDRE = [
    line("legendre_p", lambda x: face.legendre_p(3, x, diff_n=2), INNER),
    line("legendre_p_all", lambda x: face.legendre_p_all(3, x, diff_n=1), np.append(INNER, 1.0)),
    line(
        "assoc_legendre_p",
        lambda x: face.assoc_legendre_p(3, 1, x, diff_n=2, norm=True),
        INNER,
        covers=("associated_legendre_2",),
    ),
    line(
        "assoc_legendre_p outside",
        lambda x: face.assoc_legendre_p(3, 1, x, branch_cut=3),
        OUTER,
        covers=("associated_legendre_3",),
    ),
    line("assoc_legendre_p_all", lambda x: face.assoc_legendre_p_all(3, 2, x, diff_n=1), INNER),
    line("sph_legendre_p", lambda x: face.sph_legendre_p(3, 1, x, diff_n=2), ANGLE),
    line("sph_legendre_p_all", lambda x: face.sph_legendre_p_all(3, 2, x, diff_n=1), ANGLE),
    line("sph_legendre_of", lambda x: legendre.sph_legendre_of(2, 1, x), ANGLE),
    line("sph_harm_y with slopes", lambda x, y: face.sph_harm_y(3, 2, x, y, diff_n=2), ANGLE, INNER, order=2),
    line("sph_harm_y_all", lambda x, y: face.sph_harm_y_all(3, 2, x, y, diff_n=1), ANGLE, INNER, order=2),
    line("lqn", lambda x: face.lqn(3, x), np.append(INNER, OUTER), covers=("lqn_of", "lqn_of_slope")),
    line("lqmn", lambda x: face.lqmn(2, 3, x), np.append(INNER, OUTER), covers=("lqmn_of", "lqmn_of_slope")),
]
TABLES = [
    number("riccati_jn", face.riccati_jn, 3),
    number("riccati_yn", face.riccati_yn, 3),
    number("pbdv_seq", face.pbdv_seq, 2.4),
    number("pbvv_seq", face.pbvv_seq, 2.4, rtol=1e-7),
    number("pbdn_seq", face.pbdn_seq, 3, order=2),
    number("lmbda", face.lmbda, 3),
    number("lmbda of a fraction", face.lmbda, 2.5),
    line("h1vp", lambda z: face.h1vp(1.5, z, 2), P, order=2),
    line("h2vp", lambda z: face.h2vp(1.5, z), P, order=2),
    line("modfresnelp", lambda x: sp.modfresnelp(x), P, order=2, covers=("modfresnelp_0", "modfresnelp_1")),
    line("modfresnelm", lambda x: sp.modfresnelm(x), P, order=2, covers=("modfresnelm_0", "modfresnelm_1")),
    line("besselpoly", lambda a, k, v: sp.besselpoly(a, k, v), P, Q, U, rtol=1e-7),
]
EIGEN = {"rtol": 1e-7, "order": 2}
SIGNS = np.array([-3.0, 7.0])
MATHIEU = [
    line("mathieu_a", lambda q: sp.mathieu_a(np.array([2, 3]), q), SIGNS, **EIGEN),
    line("mathieu_b", lambda q: sp.mathieu_b(np.array([2, 3]), q), SIGNS, **EIGEN),
    number("mathieu_even_coef", face.mathieu_even_coef, 2, x=np.float64(3.0), **EIGEN),
    number("mathieu_odd_coef", face.mathieu_odd_coef, 3, x=np.float64(3.0), **EIGEN),
    *[
        line(
            f"mathieu_cem {m}",
            lambda q, x, m=m: sp.mathieu_cem(m, q, x),
            SIGNS,
            np.array([30.0, 110.0]),
            **EIGEN,
        )
        for m in range(4)
    ],
    *[
        line(
            f"mathieu_sem {m}",
            lambda q, x, m=m: sp.mathieu_sem(m, q, x),
            SIGNS,
            np.array([30.0, 110.0]),
            **EIGEN,
        )
        for m in (1, 2, 3)
    ],
    *[
        line(
            f"{f.__name__} {m}",
            lambda q, x, m=m, f=f: f(m, q, x),
            np.array([3.0, 0.4]),
            np.array([0.4, 1.1]),
            **EIGEN,
        )
        for m in (2, 3)
        for f in (sp.mathieu_modcem1, sp.mathieu_modcem2, sp.mathieu_modsem1, sp.mathieu_modsem2)
    ],
]
C, FAR, NEAR = np.array([2.0, 0.7]), np.array([1.4, 3.0]), np.array([0.4, 2.0])
CV = {"pro": sp.pro_cv(1, 3, C), "obl": sp.obl_cv(1, 3, C)}


def parts(name):
    return (name + "_0", name + "_1")


def given(name, x):
    """Of the characteristic value."""
    f = getattr(sp, name)
    return line(name, lambda x: f(1, 3, C, CV[name[:3]], x), x, rtol=1e-6, order=2, covers=parts(name))


SPHEROIDAL = [
    *[line(name, lambda c, name=name: getattr(sp, name)(1, np.array([3, 2]), c), C,
    **EIGEN) for name in ("pro_cv", "obl_cv")],
    *[number(f.__name__, f, 1, 4, **EIGEN) for f in (face.pro_cv_seq, face.obl_cv_seq)],
    *[
        line(f"{f.__name__} {m} {n}", lambda c, x, f=f, m=m, n=n: f(m, n, c, x), C, x, **EIGEN)
        for f, x in ((sp.pro_ang1, INNER), (sp.obl_ang1, INNER), (sp.pro_rad1, FAR), (sp.obl_rad1, NEAR))
        for m, n in ((0, 1), (1, 3))
    ],
    given("pro_ang1_cv", INNER), given("obl_ang1_cv", INNER), given("pro_rad1_cv", FAR), given("obl_rad1_cv",
    NEAR),
    given("pro_rad2_cv", np.array([3.0, 4.0])), given("obl_rad2_cv", NEAR),
    line("pro_rad2", lambda x: sp.pro_rad2(1, 3, C, x), np.array([3.0, 4.0]), rtol=1e-6, order=2,
    covers=parts("pro_rad2")),
    line("obl_rad2", lambda x: sp.obl_rad2(1, 3, C, x), NEAR, rtol=1e-6, order=2, covers=parts("obl_rad2")),
]  # fmt: skip
FOUND = {"rtol": 1e-5, "order": 2}
DFD = np.array([3.0]), np.array([5.0]), np.array([0.5]), np.array([1.5])
LAWS = [
    line("ncfdtr", lambda *x: sp.ncfdtr(*x), P, Q, 5 * U, P, rtol=1e-7, order=2),
    line("ncfdtri", lambda *x: sp.ncfdtri(*x), P, Q, 5 * U, U, **FOUND),
    line(
        "ncfdtridfn",
        lambda p, n, c, x: sp.ncfdtridfn(p, n, c, x),
        sp.ncfdtr(P, Q, 5 * U, P),
        Q,
        5 * U,
        P,
        rtol=1e-4,
        order=1,
    ),
    # SciPy finds it to five digits; of its own value it is the parameter again
    line(
        "ncfdtridfd",
        lambda n, d, c, x: sp.ncfdtridfd(n, sp.ncfdtr(n, d, c, x), c, x),
        *DFD,
        rtol=1e-4,
        order=1,
        eps=0.05,
    ),
    line(
        "ncfdtrinc",
        lambda n, m, p, x: sp.ncfdtrinc(n, m, p, x),
        P,
        Q,
        sp.ncfdtr(P, Q, 5 * U, P),
        P,
        rtol=1e-4,
        order=1,
    ),
    line(
        "nctdtr",
        lambda *x: sp.nctdtr(*x),
        P,
        np.array([-0.7, 1.2]),
        np.array([0.8, -0.4]),
        rtol=1e-7,
        order=2,
    ),
    line("nctdtridf", lambda p, c, t: sp.nctdtridf(p, c, t), sp.nctdtr(Q, U, P), U, P, rtol=1e-4, order=1),
    line("nctdtrinc", lambda n, p, t: sp.nctdtrinc(n, p, t), Q, sp.nctdtr(Q, U, P), P, **FOUND),
    line("nctdtrit", lambda n, c, p: sp.nctdtrit(n, c, p), Q, U, U, **FOUND),
    line("chndtridf", lambda x, p, c: sp.chndtridf(x, p, c), 3 + P, sp.chndtr(3 + P, Q, U), U, **FOUND),
    line("chndtr by df", lambda x, n, c: sp.chndtr(x, n, c), P, Q, U, rtol=1e-7, order=2),
    line("pdtrik", lambda p, m: sp.pdtrik(p, m), U, Q, **FOUND),
    line("bdtrik", lambda y, n, p: sp.bdtrik(y, n, p), U, 5 + Q, U, **FOUND),
    line("bdtrin", lambda k, y, p: sp.bdtrin(k, y, p), P, U, U, **FOUND),
    line("nbdtrik", lambda y, n, p: sp.nbdtrik(y, n, p), U, 5 + Q, U, **FOUND),
    line("nbdtrin", lambda k, y, p: sp.nbdtrin(k, y, p), P, U, U, **FOUND),
    line("kolmogorov", lambda x: sp.kolmogorov(x), np.array([0.3, 0.5, 0.85, 0.95, 1.7]), covers=("valued",)),
    line("kolmogi", lambda p: sp.kolmogi(p), np.array([0.1, 0.3, 0.9, 0.99]), rtol=1e-6, covers=("scipys",)),
    line("smirnov", lambda d: sp.smirnov(7, d), np.array([0.1, 0.3, 0.62]), order=2),
    line("smirnovi", lambda p: sp.smirnovi(7, p), np.array([0.1, 0.3, 0.62]), rtol=1e-6, order=2),
    line(
        "tklmbda",
        lambda x, k: sp.tklmbda(x, k),
        np.array([0.1, -0.3, 1.2]),
        np.array([0.3, -0.7, 0.0]),
        rtol=1e-7,
    ),
    line("scipys", lambda x: x * declare.plain_value("erf", np.ones(2)), P),
]


def quietly(f):
    """SciPy's quadrature warns of rounding at each of its own values."""

    def run(*x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f(*x)

    return run


H2, K2 = np.float64(5.0), np.float64(8.0)
ELLIPSOIDAL = [
    *[line(f"ellip_harm {n} {p}", lambda h, k, s, n=n, p=p: sp.ellip_harm(h, k, n, p, s), H2, K2,
    np.array([3.1, 4.0]), rtol=1e-7, order=2)
      for n, p in ((2, 1), (3, 4), (4, 9))],
    line("ellip_harm signs", lambda h, k, s: sp.ellip_harm(h, k, 4, 9, s, -1, 1), H2, K2, np.array([2.5]),
    rtol=1e-7, order=2),
    line("ellip_harm_2", quietly(lambda h, k, s: sp.ellip_harm_2(h, k, 3, 2, s)), H2, K2, np.array([3.1,
    4.0]), rtol=1e-6, order=2),
    line("ellip_normal", quietly(lambda h, k: sp.ellip_normal(h, k, 3, 2)), H2, K2, rtol=1e-6, order=2),
]  # fmt: skip
LINES = [*ELLIPSOIDAL, *LEGENDRE, *TABLES, *MATHIEU, *SPHEROIDAL, *LAWS]
