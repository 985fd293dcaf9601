"""Every public function, law and class of scipy.stats in four spellings: the attribute of the module, the
name imported from it, an
alias of a bound method, and an object that the function captured.  Each gives SciPy's value, and the derivative of differences, or raises
an error of tapegrad's."""

import types

import numpy as np
import pytest
import scipy.stats
from scipy.stats import _distr_params

import tapegrad as tg
from tapegrad.errors import TapegradError

pytestmark = pytest.mark.filterwarnings("ignore")

X = np.array([0.31, 0.72, 0.55])
# (all may be p-values)
SAMPLE = np.array([0.16, 0.69, 0.37, 0.52, 0.27, 0.82, 0.45, 0.1])
OTHER = np.array([0.33, 0.14, 0.61, 0.77, 0.29, 0.48, 0.95, 0.42])
# what takes minutes, draws at random, or takes no number that may be tracked
SLOW = {
    "levy_stable", "genhyperbolic", "geninvgauss", "norminvgauss", "studentized_range", "poisson_binom",
    "gausshyper", "kappa4",
    "ksone", "kstwo", "vonmises", "vonmises_line", "multiscale_graphcorr", "crystalball",
}  # fmt: skip
OF_VALUE = ("logpdf", "pdf", "logpmf", "pmf", "cdf", "sf", "logcdf", "logsf")
QUANTILES = ("ppf", "isf", "interval")


def laws():
    return {
        n: d
        for n, d in vars(scipy.stats).items()
        if isinstance(d, (scipy.stats.rv_continuous, scipy.stats.rv_discrete))
    }


def parameters(name):
    return PARAMETERS[name]


PARAMETERS = dict(_distr_params.distcont + _distr_params.distdiscrete)
NAMES = [n for n in laws() if n in PARAMETERS and n not in SLOW]


def number(y):
    """One number of a result, different for each of its parts."""
    if isinstance(y, (tuple, list)):
        return sum([(k + 1.0) * number(p) for k, p in enumerate(y)], 0.0)
    if hasattr(y, "statistic") or hasattr(y, "pvalue"):
        return number((getattr(y, "statistic", 0.0), y.pvalue))
    return 0.0 if y is None or isinstance(y, (str, bool)) else np.sum(y)


def check(f, x, place):
    """Is f right, refused, or of no use (the plain call fails, or has a jump)?"""
    try:
        value = float(f(x))
        two = [(f(x + h) - f(x - h)) / (2 * h) for h in (1e-5, 2e-5)]
    except Exception:
        return "none"
    if not np.isfinite([value, *two]).all() or abs(two[0] - two[1]) > 1e-4 * (1 + abs(two[0])):
        return "none"
    try:
        found, slope = tg.value_and_grad(f)(x)
    except TapegradError:
        return "refused"
    np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-12, err_msg=place)
    np.testing.assert_allclose(slope, two[0], rtol=2e-4, atol=1e-6, err_msg=place)
    return "right"


def law_cases(name, calls):
    """(Place, function of a number, point) for each call in each spelling."""
    law, args = laws()[name], parameters(name)
    discrete = isinstance(law, scipy.stats.rv_discrete)
    frozen, at = law(*args), float(law.ppf(0.37, *args)) + (0.0 if discrete else 1e-3)
    for call in [c for c in calls if hasattr(law, c)]:
        bound, held = getattr(law, call), getattr(frozen, call)
        first = (
            (0.37,) if call in QUANTILES else (at,) if call in OF_VALUE else (3,) if call == "moment" else ()
        )
        if first and call != "moment" and (call in QUANTILES or not discrete):
            yield f"{call} by the value", lambda t, c=call: number(getattr(law, c)(t, *args)), first[0]
            yield f"{call} by the value, alias", lambda t, b=bound: number(b(t, *args)), first[0]
            yield f"{call} by the value, captured", lambda t, c=call: number(getattr(frozen, c)(t)), first[0]
            yield f"{call} by the value, alias of the captured", lambda t, h=held: number(h(t)), first[0]
        for k in [k for k, a in enumerate(args) if not isinstance(a, (int, np.integer))][:2]:
            put = lambda t, k=k: (*args[:k], t, *args[k + 1 :])
            yield (
                f"{call} by parameter {k}",
                lambda t, c=call, p=put, f=first: number(getattr(law, c)(*f, *p(t))),
                float(args[k]),
            )
            yield (
                f"{call} by parameter {k}, alias",
                lambda t, b=bound, p=put, f=first: number(b(*f, *p(t))),
                float(args[k]),
            )
            yield (
                f"{call} by parameter {k}, made",
                lambda t, c=call, p=put, f=first: number(getattr(law(*p(t)), c)(*f)),
                float(args[k]),
            )


def spelled(name, calls):
    outcomes = [check(f, x, f"{name}: {place}") for place, f, x in law_cases(name, calls)]
    assert "right" in outcomes or not outcomes


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NAMES)
def test_laws(name):
    spelled(name, ("logpdf", "logpmf"))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_laws_by_all_methods(name):
    spelled(name, (*OF_VALUE, *QUANTILES, "mean", "var", "std", "median", "entropy", "moment", "stats"))


FUNCTIONS = [
    n
    for n, f in vars(scipy.stats).items()
    if isinstance(f, types.FunctionType) and not n.startswith("_") and n not in SLOW
]


def function_cases(name):
    """The calls that SciPy answers, by the attribute of the module and by an imported name."""
    f = getattr(scipy.stats, name)
    for call in CALLS:
        yield check(lambda t, c=call: number(c(getattr(scipy.stats, name), SAMPLE + t * OTHER)), 0.1, name)
        yield check(lambda t, c=call: number(c(f, SAMPLE + t * OTHER)), 0.1, name)


@pytest.mark.long
def test_functions():
    found = {name: list(function_cases(name)) for name in FUNCTIONS}
    assert len([n for n, outcomes in found.items() if "right" in outcomes]) > 75, found


# one, two and three samples, and with numbers after them
CALLS = (
    lambda f, x: f(x),
    lambda f, x: f(x, OTHER),
    lambda f, x: f(x, OTHER, SAMPLE[:6]),
    lambda f, x: f(x, 0.3),
    lambda f, x: f(0.3, x),
    lambda f, x: f(x.reshape(2, 4)),
    lambda f, x: f(1.0 / (1.0 + x * x)),
)


@pytest.mark.parametrize("r", [0.0, -0.6, 0.9, 0.99])
@pytest.mark.parametrize("x", [(0.5, -0.3), (0.0, 0.0), (-1.0, 2.0)])
def test_bivariate_normal_distribution_function(x, r):
    """dP/dx = phi(x) Phi((y - r x) / s), and dP/dr is the density."""
    law, s = scipy.stats.norm, np.sqrt(1 - r * r)
    f = lambda p: scipy.stats.multivariate_normal.cdf(p[:2], np.zeros(2), np.array([[1, p[2]], [p[2], 1.0]]))
    at = np.array([*x, r])
    density = scipy.stats.multivariate_normal.pdf(x, np.zeros(2), [[1, r], [r, 1.0]])
    want = [law.pdf(u) * law.cdf((v - r * u) / s) for u, v in (x, x[::-1])]
    np.testing.assert_allclose(tg.grad(f)(at), [*want, density], rtol=1e-8, atol=1e-12)
    slope = tg.jacobian(
        lambda p: scipy.stats.multivariate_normal.pdf(p[:2], np.zeros(2), np.array([[1, r], [r, 1.0]]))
    )(at)
    np.testing.assert_allclose(tg.hessian(f)(at)[2, :2], slope[:2], rtol=1e-6, atol=1e-9)


def test_bivariate_normal_of_infinite_and_touching_limits():
    f = lambda p: scipy.stats.multivariate_normal.cdf(
        [p[0], np.inf], np.zeros(2), np.array([[1, p[1]], [p[1], 1.0]])
    )
    np.testing.assert_allclose(tg.grad(f)(np.array([0.3, 0.5])), [scipy.stats.norm.pdf(0.3), 0.0], atol=1e-15)
    g = lambda p: scipy.stats.multivariate_normal.cdf(p[:2], np.zeros(2), np.array([[1, p[2]], [p[2], 1.0]]))
    with pytest.raises(tg.errors.NoRuleError, match="too near to 1 or -1"):
        tg.grad(g)(np.array([0.1, 0.1001, 1 - 1e-7]))
