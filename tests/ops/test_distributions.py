"""The further families of tapegrad.stats against scipy.stats: values, both modes, second order (long), tails
in multiple precision."""

import mpmath
import numpy as np
import pytest
import scipy.stats
from families import (
    CONTINUOUS,
    COUNTS,
    DISCRETE,
    DRAWN,
    FIXED,
    LAWS,
    LOC,
    SCALE,
    VALUES,
    U,
    functions_of,
    whole,
)

import tapegrad as tg
from tapegrad import stats
from tapegrad.ops.declare import SCIPY
from tapegrad.testing import check_grads

pytestmark = pytest.mark.usefixtures("quiet")

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
    matrices = {*LAWS, "matrix_t"}  # (from SciPy 1.17 on)
    assert set(stats.__all__) - classic - matrices == set(CONTINUOUS) | set(DISCRETE) | set(DRAWN)


def judged(name, order, rtol):
    """All functions of a family by x, scale and shapes, in both modes, against differences."""
    shapes, z = CONTINUOUS[name]
    ours, fixed = getattr(stats, name), FIXED.get(name, 0)
    calls, given = functions_of(ours), shapes[:fixed]
    f = lambda x, scale, *shapes: tuple(
        [getattr(ours, call)(x, *given, *shapes, LOC, scale) for call in calls]
    )
    if calls:
        check_grads(
            f, (z * SCALE + LOC, SCALE, *shapes[fixed:]), order=order, eps=2e-4, rtol=rtol, atol=0.1 * rtol
        )
    if "cdf" in calls or "ppf" in ours.functions:
        g = lambda q, scale, *shapes: (
            ours.ppf(q, *given, *shapes, LOC, scale),
            ours.isf(q, *given, *shapes, LOC, scale),
        )
        check_grads(g, (U, SCALE, *shapes[fixed:]), order=order, eps=1e-3, rtol=1e3 * rtol, atol=100 * rtol)


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:The shape parameter of the erlang")
@pytest.mark.parametrize("name", CONTINUOUS)
def test_values_and_first_order(name):
    shapes, z = CONTINUOUS[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    x, rtol = z * SCALE + LOC, ROUGH.get(name, 1e-10)
    for call in functions_of(ours):
        expected = getattr(theirs, call)(x, *shapes, LOC, SCALE)
        np.testing.assert_allclose(
            getattr(ours, call)(x, *shapes, LOC, SCALE), expected, rtol=rtol, atol=1e-13, err_msg=call
        )
        assert np.isfinite(expected).all(), (call, expected)
    if name != "studentized_range":  # SciPy takes seconds for them: in the long run
        quantiles(name)
    if list(CONTINUOUS).index(name) % 6 == 0:  # all of them to second order in the long run
        judged(name, 1, 1e-7)


@pytest.mark.parametrize("name", DRAWN)
def test_counts_by_one_parameter(name):
    before, after = DRAWN[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    calls = ["logpmf", "pmf", *[c for c in VALUES if c in ours.functions]]
    x = np.array([0.3, 1.0, 2.5])
    between = (
        (COUNTS + 0.5,) if name != "zipfian" or SCIPY >= (1, 17) else ()
    )  # (before, SciPy does not round them down)
    for k in (COUNTS, COUNTS - 30, COUNTS + 30, *between):
        for call in calls:
            expected = getattr(theirs, call)(k, *before, x, *after)
            np.testing.assert_allclose(
                getattr(ours, call)(k, *before, x, *after),
                expected,
                rtol=1e-10,
                atol=1e-13,
                err_msg=f"{call} {k}",
            )
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


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    shapes = DISCRETE[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    k = np.ones(3) if name == "bernoulli" else COUNTS * 1.0
    calls = ["logpmf", "pmf", *[c for c in VALUES if c in ours.functions]]
    for at in (
        k,
        k - 30,
        k + 30,
        *(() if name == "yulesimon" else (k + 0.5,)),
    ):  # SciPy's yulesimon takes halves as they are
        for call in calls:
            expected = getattr(theirs, call)(at, *shapes)
            np.testing.assert_allclose(
                getattr(ours, call)(at, *shapes), expected, rtol=1e-9, atol=1e-13, err_msg=f"{call} {at}"
            )
    before, after, free = whole(name, shapes)
    f = lambda *s: tuple(
        [getattr(ours, c)(k, *before, *s, *after) for c in calls if name != "bernoulli" or "sf" not in c]
    )
    check_grads(f, free, order=2, eps=1e-3, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_shares_counts_and_matrices(name):
    x, parameters, active = LAWS[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    call = "logpmf" if "multinomial" in name or name == "poisson_binom" else "logpdf"
    everything = (x, *parameters)
    np.testing.assert_allclose(
        getattr(ours, call)(*everything), getattr(theirs, call)(*everything), rtol=1e-11
    )
    np.testing.assert_allclose(
        getattr(ours, call[3:])(*everything), getattr(theirs, call[3:])(*everything), rtol=1e-11
    )

    def f(*xs):
        given = dict(zip(active, xs, strict=True))
        given = {
            k: (v + v.T) / 2
            if np.ndim(v) == 2 and not (name in ("matrix_normal", "matrix_t") and k < 2)
            else v
            for k, v in given.items()
        }
        return getattr(ours, call)(*[given.get(k, v) for k, v in enumerate(everything)])

    if active:
        check_grads(f, tuple([everything[k] for k in active]), order=2, eps=1e-3, rtol=1e-7, atol=1e-8)
    else:  # SciPy sets the last p to what the others leave
        p = parameters[1]
        assert np.allclose(tg.grad(lambda p: ours.logpmf(x, 6, p))(p), x / p - x[-1] / p[-1])


def test_frozen_and_imported_by_name():
    from scipy.stats import gumbel_r, nbinom

    f = lambda m: gumbel_r(m, 2.0).logpdf(1.3) + nbinom(2.0, m).logpmf(3) + gumbel_r.isf(0.2, loc=m)
    h = 1e-6
    assert tg.grad(f)(0.4) == pytest.approx((f(0.4 + h) - f(0.4 - h)) / (2 * h), rel=1e-8)
    assert (
        tg.grad(lambda m: m * gumbel_r.rvs(size=3, random_state=1).sum())(1.0)
        == gumbel_r.rvs(size=3, random_state=1).sum()
    )


FOLLOWED = [name for name in CONTINUOUS if getattr(stats, name).followed]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] if n not in FOLLOWED[:3] else []) for n in FOLLOWED]
)
def test_followed_formulas_under_vmap_and_recorded(name):
    shapes, z = CONTINUOUS[name]
    ours = getattr(stats, name)
    for call in ours.followed:
        x = U if call in ("ppf", "isf") else z
        f = lambda x, *shapes, call=call: np.sum(getattr(ours, call)(x, *shapes))
        numbers = tuple(range(1 + len(shapes)))
        each = tg.vmap(tg.grad(f, argnums=numbers))(x, *shapes)
        together = tg.grad(f, argnums=numbers)(x, *shapes)
        recorded = tg.prepare(f, x, *shapes, argnums=numbers).grad(x, *shapes)
        for a, b, c in zip(each, together, recorded, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=call)
            np.testing.assert_allclose(c, b, rtol=1e-12, err_msg=call)


@pytest.mark.parametrize("name", FOLLOWED[:3])
def test_followed_formulas_in_single_precision(xp, name):
    shapes, z = CONTINUOUS[name]
    ours = getattr(stats, name)
    for call in ours.followed:
        x = U if call in ("ppf", "isf") else z
        y = getattr(ours, call)(*[xp.asarray(v, "f4") for v in (x, *shapes)])
        # (scipy.stats computes in double precision)
        assert type(y) is xp.ndarray and y.dtype == (np.float64 if xp is np else np.float32), call


def test_expectations_reach_the_ends_of_the_support():
    f = lambda m: stats.fisk(m).expect(lambda x: x) + stats.chi(m).expect(lambda x: x)
    h = 1e-5
    assert tg.grad(f)(4.8) == pytest.approx((f(4.8 + h) - f(4.8 - h)) / (2 * h), rel=1e-8)


# --- tails ---

mpmath.mp.dps = 50
TAILS = {
    "gumbel_r": (
        lambda x: -mpmath.log(-mpmath.expm1(-mpmath.exp(-x))),
        lambda x: -stats.gumbel_r.logsf(x),
        (40.0, 3.0, -3.0),
    ),
    "truncnorm": (
        lambda x: mpmath.log((mpmath.ncdf(-x) - mpmath.ncdf(-40)) / (mpmath.ncdf(-30) - mpmath.ncdf(-40))),
        lambda x: stats.truncnorm.logsf(x, 30.0, 40.0),
        (30.5, 33.0),
    ),
    "genpareto": (
        lambda x: -mpmath.log1p(x * mpmath.mpf(1e-9)) / mpmath.mpf(1e-9),
        lambda x: stats.genpareto.logsf(x, 1e-9),
        (0.5, 20.0),
    ),
    "cauchy": (
        lambda x: mpmath.log(mpmath.atan(1 / x) / mpmath.pi),
        lambda x: stats.cauchy.logsf(x),
        (1e10, 1e3),
    ),
    "fisk": (lambda x: -mpmath.log1p(x ** mpmath.mpf(3)), lambda x: stats.fisk.logsf(x, 3.0), (1e30, 1e-3)),
}


@pytest.mark.parametrize("name", TAILS)
def test_tails_in_multiple_precision(name):
    exact, ours, points = TAILS[name]
    for x in points:
        assert float(ours(x)) == pytest.approx(float(exact(mpmath.mpf(x))), rel=1e-12)
        assert float(tg.grad(ours)(x)) == pytest.approx(float(mpmath.diff(exact, mpmath.mpf(x))), rel=1e-9)
