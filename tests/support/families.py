"""Points inside the supports of scipy.stats' families, for tests/ops/test_stats.py and
test_distributions.py."""

import numpy as np
import scipy.stats
from cases import between, normal, positive

from tapegrad import stats

X, P, U, W = normal(3), positive(3), between(0.1, 0.9, 3), between(0.2, 0.8, 3, seed=1)
A, B = 1.2 + U, 0.8 + W
NO_SHAPE = ((), X)
OF_POSITIVE = ((), P)
# name -> (shape parameters, z inside the support)
CLASSIC = {
    "norm": ((), X),
    "halfnorm": ((), P),
    "lognorm": ((0.7 + U,), P),
    "expon": ((), P),
    "weibull_min": ((1.5 + U,), P),
    "gamma": ((1.5 + U,), P),
    "chi2": ((2.5 + U,), P),
    "invgamma": ((1.5 + U,), P),
    "beta": ((1.5 + U, 0.7 + P), U),
    "uniform": ((), U),
    "t": ((2.0 + P,), X),
    "cauchy": ((), X),
    "laplace": ((), X),
    "logistic": ((), X),
}
CONTINUOUS = {
    **dict.fromkeys("gumbel_r gumbel_l hypsecant moyal".split(), NO_SHAPE),
    **dict.fromkeys("rayleigh halflogistic maxwell levy halfcauchy gibrat wald".split(), OF_POSITIVE),
    **dict.fromkeys(
        "lomax gompertz invweibull exponpow fisk erlang chi nakagami halfgennorm fatiguelife alpha".split(),
        ((A,), P),
    ),
    **dict.fromkeys("kappa3 invgauss recipinvgauss rice foldnorm foldcauchy".split(), ((A,), P)),
    **dict.fromkeys(
        "exponweib burr burr12 mielke powerlognorm gengamma betaprime f ncx2".split(), ((A, B), P)
    ),
    **dict.fromkeys(
        "genlogistic powernorm loggamma exponnorm vonmises skewnorm laplace_asymmetric".split(), ((A,), X)
    ),
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
# name -> (parameters that are whole numbers before and after the one that is not)
DRAWN = {
    "zipfian": ((), (np.array([5, 7, 9]),)),
    "nchypergeom_fisher": ((14, 6, 5), ()),
    "nchypergeom_wallenius": ((14, 6, 5), ()),
}
S, T, M = [(lambda a: a @ a.T + np.eye(3))(normal(3, 3, seed=k)) for k in range(3)]
LAWS = {
    "dirichlet": (np.array([0.2, 0.5, 0.3]), (1.0 + P,), (1,)),
    "multinomial": (np.array([2.0, 1.0, 3.0]), (6, np.array([0.2, 0.5, 0.3])), ()),
    "dirichlet_multinomial": (np.array([2, 1, 3]), (1.0 + P, 6), (1,)),
    "multivariate_t": (X, (P, S, 2.5), (0, 1, 2, 3)),
    "wishart": (S, (4.5, T), (1, 2)),
    "invwishart": (S, (4.5, T), (1, 2)),
    "matrix_normal": (normal(3, 3), (M, S, T), (0, 1, 2, 3)),
    **(
        {"matrix_t": (normal(3, 3), (M, S, T, 2.5), (0, 1, 2, 3, 4))}
        if hasattr(scipy.stats, "matrix_t")
        else {}
    ),  # from SciPy 1.16 on
    "normal_inverse_gamma": (P, (U, X, A, 1 + B, B), (0, 1, 2, 3, 4, 5)),
    "vonmises_fisher": (np.array([[0.0, 0.6, 0.8], [0.8, 0.6, 0.0]]), (np.array([0.6, 0.8, 0.0]), 2.3), (2,)),
    "poisson_binom": (COUNTS, (np.array([0.3, 0.8, 0.5, 0.4]),), (1,)),
}
FIXED = {"ksone": 1, "kstwo": 1, "irwinhall": 1}  # so many of the first shape parameters are whole numbers


def functions_of(family):
    return [c for c in VALUES if (c if c != "pdf" else "logpdf") in family.functions]


def whole(name, shapes):
    """(shape parameters of a discrete family that are whole numbers or fixed before and after the others, the
    others)"""
    if name == "boltzmann":
        return (), shapes[1:], shapes[:1]
    before = 0 if name in ("skellam", "nbinom") or len(shapes) == 1 else 1
    return shapes[:before], (), shapes[before:]


def half_symmetric(a):
    return (a + np.swapaxes(a, -1, -2)) / 2


def lines():
    """(name, f, inputs): every family by its public name, as scipy.stats has it."""
    named = lambda name, calls, *args: tuple(
        [getattr(getattr(scipy.stats, name), call)(*args) for call in calls]
    )
    for name, (shapes, z) in {**CLASSIC, **CONTINUOUS}.items():
        calls, given = functions_of(getattr(stats, name)), shapes[: FIXED.get(name, 0)]
        x = (
            z + 0.013 * (name == "kstwo")
        ) * SCALE + LOC  # at a multiple of 1 / n its second derivative jumps
        if calls:
            f = lambda x, scale, *free, name=name, calls=calls, given=given: named(
                name, calls, x, *given, *free, LOC, scale
            )
            yield name, f, (x, SCALE, *shapes[len(given) :])
        if ("cdf" in calls or "ppf" in getattr(stats, name).functions) and name != "studentized_range":
            f = lambda q, scale, *free, name=name, given=given: named(
                name, ("ppf", "isf"), q, *given, *free, LOC, scale
            )
            yield f"{name} quantiles", f, (U, SCALE, *shapes[len(given) :])
    for name, shapes in DISCRETE.items():
        calls = (
            "pmf",
            "logpmf",
            *[
                c
                for c in VALUES
                if c in getattr(stats, name).functions and (name != "bernoulli" or "sf" not in c)
            ],
        )
        before, after, free = whole(name, shapes)
        k = np.ones(3) if name == "bernoulli" else COUNTS
        yield name, lambda *free, n=name, c=calls, k=k, b=before, a=after: named(n, c, k, *b, *free, *a), free
    for name, (before, after) in DRAWN.items():
        yield (
            name,
            lambda p, n=name, b=before, a=after: named(n, ("logpmf", "pmf"), COUNTS, *b, p, *a),
            (np.array([0.3, 1.0, 2.5]),),
        )
    for name, (x, parameters, active) in {"multivariate_normal": (X, (P, S), (0, 1, 2)), **LAWS}.items():
        everything = (x, *parameters)
        call = "logpmf" if "multinomial" in name or name == "poisson_binom" else "logpdf"
        if not active:  # the shares sum to 1
            f = lambda p, name=name, x=x, n=parameters[0]: named(
                name, ("logpmf", "pmf"), x, n, np.append(p, 1.0 - p.sum())
            )
            yield name, f, (np.array([0.2, 0.5]),)
            continue

        def law(*free_values, name=name, call=call, everything=everything, free=active):
            given = dict(zip(free, free_values, strict=True))
            plain = name in ("matrix_normal", "matrix_t")
            given = {
                k: half_symmetric(v) if np.ndim(v) == 2 and not (plain and k < 2) else v
                for k, v in given.items()
            }
            return getattr(getattr(scipy.stats, name), call)(
                *[given.get(k, v) for k, v in enumerate(everything)]
            )

        yield name, law, tuple([everything[k] for k in active])
