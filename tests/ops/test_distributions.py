"""The further families of tapegrad.stats against scipy.stats: values, both modes, second order (long), tails in multiple precision."""

import mpmath
import numpy as np
import pytest
import scipy.stats
from cases import between, normal, positive

import tapegrad as tg
from tapegrad import stats
from tapegrad.testing import check_grads

X, P, U, W = normal(3), positive(3), between(0.1, 0.9, 3), between(0.2, 0.8, 3, seed=1)
A, B = 1.2 + U, 0.8 + W
NO_SHAPE = ((), X)
OF_POSITIVE = ((), P)
# name -> (shape parameters, z inside the support)
CONTINUOUS = {
    **dict.fromkeys("gumbel_r gumbel_l hypsecant moyal".split(), NO_SHAPE),
    **dict.fromkeys("rayleigh halflogistic maxwell levy halfcauchy gibrat wald".split(), OF_POSITIVE),
    **dict.fromkeys("lomax gompertz invweibull exponpow fisk erlang chi nakagami halfgennorm fatiguelife alpha".split(), ((A,), P)),
    **dict.fromkeys("kappa3 invgauss recipinvgauss rice foldnorm foldcauchy".split(), ((A,), P)),
    **dict.fromkeys("exponweib burr burr12 mielke powerlognorm gengamma betaprime f ncx2".split(), ((A, B), P)),
    **dict.fromkeys("genlogistic powernorm loggamma exponnorm vonmises skewnorm laplace_asymmetric".split(), ((A,), X)),
    **dict.fromkeys("gennorm dgamma dweibull".split(), ((1.0 + A,), np.sign(X) * (0.3 + abs(X)))),
    **dict.fromkeys("arcsine".split(), ((), U)),
    **dict.fromkeys("powerlaw bradford".split(), ((A,), U)),
    "genextreme": ((np.array([0.3, -0.4, 0.0]),), X),
    "genpareto": ((np.array([0.3, -0.2, 0.0]),), P),
    "pareto": ((A,), 1.0 + P),
    "weibull_max": ((A,), -P),
    "levy_l": ((), -P),
    "genhalflogistic": ((0.3 * U,), P),
    "johnsonsu": ((U, B), X),
    "johnsonsb": ((U, B), W),
    "truncnorm": ((-1.0 - U, 1.0 + W), 0.9 * (2 * U - 1)),
    "rdist": ((2.0 + A,), 2 * U - 1),
    "norminvgauss": ((A, 0.5 * U), X),
    "loguniform": ((U, 2.0 + W), 0.95 + P / 3),
    "reciprocal": ((U, 2.0 + W), 0.95 + P / 3),
    "anglit": ((), 0.7 * (2 * U - 1)),
    "semicircular": ((), 2 * U - 1),
    "cosine": ((), 2 * X / (1 + abs(X))),
    "truncexpon": ((2.0 + U,), 2 * W),
    "truncpareto": ((A, 3.0 + U), 1.0 + W),
    "loglaplace": ((A,), np.array([0.3, 0.7, 1.6])),
    "triang": ((np.array([0.3, 0.5, 0.6]),), np.array([0.2, 0.7, 0.9])),
    "skewcauchy": ((0.5 * U,), np.sign(X) * (0.3 + abs(X))),
    "wrapcauchy": ((U,), 1.0 + P),
    "genexpon": ((A, B, 0.5 + U), P),
    "argus": ((A,), U),
    "trapezoid": ((0.2 + 0.1 * U, 0.6 + 0.2 * W), np.array([0.15, 0.5, 0.9])),
    "truncweibull_min": ((A, 0.1 * U, 3.0 + W), 0.3 + P),
    "pearson3": ((np.array([0.6, -0.7, 1.2]),), 0.5 * X),
    "jf_skew_t": ((1 + A, 1 + B), X),
    "rel_breitwigner": ((3 * A,), 2 * P),
    "geninvgauss": ((X, A), P),
    "genhyperbolic": ((X, 1 + A, 0.5 * U), X),
    "tukeylambda": ((np.array([0.3, -0.4, 1.5]),), X),
    "vonmises_line": ((A,), X),
    "crystalball": ((A, 1.5 + B), np.array([-3.0, -0.2, 0.8])),
    "kappa4": ((np.array([0.3, -0.4, 0.2]), np.array([0.2, -0.1, -0.3])), np.array([0.3, 0.7, 0.6])),
    "dpareto_lognorm": ((X, A, B, 1 + A), P),
    "ksone": ((np.array([5.0, 7.0, 20.0]),), np.array([0.27, 0.4, 0.13])),
    "kstwo": ((np.array([5.0, 7.0, 20.0]),), np.array([0.25, 0.6, 0.2])),
    "kstwobign": ((), np.array([0.5, 0.85, 1.3])),
    "ncf": ((A, 2 + B, U), P),
    "nct": ((1 + A, X), X),
    "irwinhall": ((np.array([2.0, 3.0, 5.0]),), np.array([0.7, 1.2, 3.3])),
    "gausshyper": ((A, B, X, U), U),
    "landau": ((), np.array([-1.4, 0.7, 6.0])),
    "studentized_range": ((np.array([3.0, 4.0, 2.5]), 2 + 2 * A), 1 + A),
}
DISCRETE = {
    "nbinom": (np.array([2.5, 3.5, 1.5]), U),
    "geom": (U,),
    "planck": (P,),
    "dlaplace": (P,),
    "boltzmann": (P, np.array([6.0, 7.0, 9.0])),
    "logser": (U,),
    "yulesimon": (A,),
    "betabinom": (np.array([6.0, 7.0, 9.0]), A, B),
    "betanbinom": (np.array([2.0, 3.0, 4.0]), A, B),
    "skellam": (A, P),
    "zipf": (1 + A,),
    "poisson": (P,),
    "binom": (np.array([6.0, 7.0, 9.0]), U),
    "bernoulli": (U,),
}
LOC, SCALE = 0.05, 0.9 + 0.2 * U
COUNTS = np.array([2, 1, 3])
VALUES = ("pdf", "logpdf", "cdf", "sf", "logcdf", "logsf")
# SciPy has a plain difference there, or integrates numerically
ROUGH = {
    "wald": 1e-9,
    "exponnorm": 1e-8,
    "recipinvgauss": 1e-8,
    "genexpon": 1e-9,
    "ncx2": 1e-8,
    "skewnorm": 1e-7,
    "rice": 1e-7,
    "dgamma": 1e-9,
    "kstwobign": 1e-7,
}

FIXED = {"ksone": 1, "kstwo": 1, "irwinhall": 1}  # so many of the first shape parameters are whole numbers


def functions_of(family):
    return [c for c in VALUES if (c if c != "pdf" else "logpdf") in family.functions]


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def test_every_family_is_here():
    classic = {
        "norm",
        "halfnorm",
        "lognorm",
        "expon",
        "weibull_min",
        "gamma",
        "chi2",
        "invgamma",
        "beta",
        "uniform",
        "t",
        "cauchy",
        "laplace",
    }
    classic |= {"logistic", "multivariate_normal"}  # test_stats.py
    matrices = set(LAWS)
    assert set(stats.__all__) - classic - matrices == set(CONTINUOUS) | set(DISCRETE) | set(DRAWN)


def judged(name, order, rtol):
    """All functions of a family by x, scale and shapes, in both modes, against differences."""
    shapes, z = CONTINUOUS[name]
    ours, fixed = getattr(stats, name), FIXED.get(name, 0)
    calls, given = functions_of(ours), shapes[:fixed]
    f = lambda x, scale, *shapes: tuple([getattr(ours, call)(x, *given, *shapes, LOC, scale) for call in calls])
    if calls:
        check_grads(f, (z * SCALE + LOC, SCALE, *shapes[fixed:]), order=order, eps=2e-4, rtol=rtol, atol=0.1 * rtol)
    if "cdf" in calls or "ppf" in ours.functions:
        g = lambda q, scale, *shapes: (ours.ppf(q, *given, *shapes, LOC, scale), ours.isf(q, *given, *shapes, LOC, scale))
        check_grads(g, (U, SCALE, *shapes[fixed:]), order=order, eps=1e-3, rtol=1e3 * rtol, atol=100 * rtol)


@pytest.mark.filterwarnings("ignore:The shape parameter of the erlang")
@pytest.mark.parametrize("name", CONTINUOUS)
def test_values_and_first_order(name):
    shapes, z = CONTINUOUS[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    x, rtol = z * SCALE + LOC, ROUGH.get(name, 1e-10)
    for call in functions_of(ours):
        expected = getattr(theirs, call)(x, *shapes, LOC, SCALE)
        np.testing.assert_allclose(getattr(ours, call)(x, *shapes, LOC, SCALE), expected, rtol=rtol, atol=1e-13, err_msg=call)
        assert np.isfinite(expected).all(), (call, expected)
    if name != "studentized_range":  # SciPy takes seconds for them: in the long run
        quantiles(name)
    if list(CONTINUOUS).index(name) % 6 == 0:  # all of them to second order in the long run
        judged(name, 1, 1e-7)


# name -> (parameters that are whole numbers before and after the one that is not)
DRAWN = {"zipfian": ((), (np.array([5, 7, 9]),)), "nchypergeom_fisher": ((14, 6, 5), ()), "nchypergeom_wallenius": ((14, 6, 5), ())}


@pytest.mark.parametrize("name", DRAWN)
def test_counts_by_one_parameter(name):
    before, after = DRAWN[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    calls = ["logpmf", "pmf", *[c for c in VALUES if c in ours.functions]]
    x = np.array([0.3, 1.0, 2.5])
    for k in (COUNTS, COUNTS - 30, COUNTS + 30, COUNTS + 0.5):
        for call in calls:
            expected = getattr(theirs, call)(k, *before, x, *after)
            np.testing.assert_allclose(getattr(ours, call)(k, *before, x, *after), expected, rtol=1e-10, atol=1e-13, err_msg=f"{call} {k}")
    f = lambda x: tuple([getattr(ours, call)(COUNTS, *before, x, *after) for call in calls])
    check_grads(f, (x,), order=2, eps=1e-3, rtol=1e-7, atol=1e-7)


def quantiles(name):
    shapes, _ = CONTINUOUS[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    if "cdf" in ours.functions or "ppf" in ours.functions:
        for call in ("ppf", "isf"):
            found, expected = [getattr(family, call)(U, *shapes, LOC, SCALE) for family in (ours, theirs)]
            np.testing.assert_allclose(found, expected, rtol=max(ROUGH.get(name, 1e-10), 1e-9), err_msg=call)


@pytest.mark.long
def test_quantiles_of_ranges():
    quantiles("studentized_range")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The shape parameter of the erlang")
@pytest.mark.parametrize("name", CONTINUOUS)
def test_second_order(name):
    judged(name, 2, 1e-6)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    shapes = DISCRETE[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    k = np.ones(3) if name == "bernoulli" else COUNTS * 1.0
    calls = ["logpmf", "pmf", *[c for c in VALUES if c in ours.functions]]
    for at in (k, k - 30, k + 30, *(() if name == "yulesimon" else (k + 0.5,))):  # SciPy's yulesimon takes halves as they are
        for call in calls:
            expected = getattr(theirs, call)(at, *shapes)
            np.testing.assert_allclose(getattr(ours, call)(at, *shapes), expected, rtol=1e-9, atol=1e-13, err_msg=f"{call} {at}")
    active = shapes if name in ("skellam",) or len(shapes) == 1 else shapes[-1:] if len(shapes) == 2 else shapes[1:]
    given = shapes[: len(shapes) - len(active)]
    if name == "nbinom":
        given, active = (), shapes
    if name == "boltzmann":
        f = lambda a: tuple([getattr(ours, call)(k, a, shapes[1]) for call in calls])
        active = shapes[:1]
    else:
        f = lambda *s: tuple([getattr(ours, call)(k, *given, *s) for call in calls if name != "bernoulli" or "sf" not in call])
    check_grads(f, active, order=2, eps=1e-3, rtol=1e-6, atol=1e-7)


S, T, M = [(lambda a: a @ a.T + np.eye(3))(normal(3, 3, seed=k)) for k in range(3)]
LAWS = {
    "dirichlet": (np.array([0.2, 0.5, 0.3]), (1.0 + P,), (1,)),
    "multinomial": (np.array([2.0, 1.0, 3.0]), (6, np.array([0.2, 0.5, 0.3])), ()),
    "dirichlet_multinomial": (np.array([2, 1, 3]), (1.0 + P, 6), (1,)),
    "multivariate_t": (X, (P, S, 2.5), (0, 1, 2, 3)),
    "wishart": (S, (4.5, T), (1, 2)),
    "invwishart": (S, (4.5, T), (1, 2)),
    "matrix_normal": (normal(3, 3), (M, S, T), (0, 1, 2, 3)),
    "matrix_t": (normal(3, 3), (M, S, T, 2.5), (0, 1, 2, 3, 4)),
    "normal_inverse_gamma": (P, (U, X, A, 1 + B, B), (0, 1, 2, 3, 4, 5)),
    "vonmises_fisher": (np.array([[0.0, 0.6, 0.8], [0.8, 0.6, 0.0]]), (np.array([0.6, 0.8, 0.0]), 2.3), (2,)),
    "poisson_binom": (COUNTS, (np.array([0.3, 0.8, 0.5, 0.4]),), (1,)),
}


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_shares_counts_and_matrices(name):
    x, parameters, active = LAWS[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    call = "logpmf" if "multinomial" in name or name == "poisson_binom" else "logpdf"
    everything = (x, *parameters)
    np.testing.assert_allclose(getattr(ours, call)(*everything), getattr(theirs, call)(*everything), rtol=1e-11)
    np.testing.assert_allclose(getattr(ours, call[3:])(*everything), getattr(theirs, call[3:])(*everything), rtol=1e-11)

    def f(*xs):
        given = dict(zip(active, xs, strict=True))
        given = {
            k: (v + v.T) / 2 if np.ndim(v) == 2 and not (name in ("matrix_normal", "matrix_t") and k < 2) else v for k, v in given.items()
        }
        return getattr(ours, call)(*[given.get(k, v) for k, v in enumerate(everything)])

    if active:
        check_grads(f, tuple([everything[k] for k in active]), order=2, eps=1e-3, rtol=1e-7, atol=1e-8)
    else:  # p sums to 1
        p = parameters[1]
        assert np.allclose(tg.grad(lambda p: ours.logpmf(x, 6, p))(p), x / p)


def test_frozen_and_imported_by_name():
    from scipy.stats import gumbel_r, nbinom

    f = lambda m: gumbel_r(m, 2.0).logpdf(1.3) + nbinom(2.0, m).logpmf(3) + gumbel_r.isf(0.2, loc=m)
    h = 1e-6
    assert tg.grad(f)(0.4) == pytest.approx((f(0.4 + h) - f(0.4 - h)) / (2 * h), rel=1e-8)
    assert tg.grad(lambda m: m * gumbel_r.rvs(size=3, random_state=1).sum())(1.0) == gumbel_r.rvs(size=3, random_state=1).sum()


# --- tails ---

mpmath.mp.dps = 50
TAILS = {
    "gumbel_r": (lambda x: -mpmath.log(-mpmath.expm1(-mpmath.exp(-x))), lambda x: -stats.gumbel_r.logsf(x), (40.0, 3.0, -3.0)),
    "truncnorm": (
        lambda x: mpmath.log((mpmath.ncdf(-x) - mpmath.ncdf(-40)) / (mpmath.ncdf(-30) - mpmath.ncdf(-40))),
        lambda x: stats.truncnorm.logsf(x, 30.0, 40.0),
        (30.5, 33.0),
    ),
    "genpareto": (lambda x: -mpmath.log1p(x * mpmath.mpf(1e-9)) / mpmath.mpf(1e-9), lambda x: stats.genpareto.logsf(x, 1e-9), (0.5, 20.0)),
    "cauchy": (lambda x: mpmath.log(mpmath.atan(1 / x) / mpmath.pi), lambda x: stats.cauchy.logsf(x), (1e10, 1e3)),
    "fisk": (lambda x: -mpmath.log1p(x ** mpmath.mpf(3)), lambda x: stats.fisk.logsf(x, 3.0), (1e30, 1e-3)),
}


@pytest.mark.parametrize("name", TAILS)
def test_tails_in_multiple_precision(name):
    exact, ours, points = TAILS[name]
    for x in points:
        assert float(ours(x)) == pytest.approx(float(exact(mpmath.mpf(x))), rel=1e-12)
        assert float(tg.grad(ours)(x)) == pytest.approx(float(mpmath.diff(exact, mpmath.mpf(x))), rel=1e-9)
