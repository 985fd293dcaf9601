"""Statistics of samples under the names of scipy.stats: values, both modes, second order, and tracked data in gaussian_kde."""

import numpy as np
import pytest
import scipy.stats
from cases import normal, positive

import tapegrad as tg
from tapegrad import stats
from tapegrad.testing import check_grads

X, Y, W = normal(6), normal(6, seed=1), positive(6, seed=1)

CALLS = {
    "moment": lambda s, x: s.moment(x, 3),
    "moment axis": lambda s, x: s.moment(x.reshape(2, 3), [1, 2], axis=1),
    "skew": lambda s, x: s.skew(x, bias=False),
    "skew axis": lambda s, x: s.skew(x.reshape(3, 2), axis=None),
    "kurtosis": lambda s, x: s.kurtosis(x.reshape(3, 2), keepdims=True),
    "kurtosis unbiased": lambda s, x: s.kurtosis(x, bias=False, fisher=False),
    "zscore": lambda s, x: s.zscore(x, ddof=1),
    "zmap": lambda s, x: s.zmap(x, x[:4] ** 2),
    "sem": lambda s, x: s.sem(x),
    "gstd": lambda s, x: s.gstd(x * x),
    "gzscore": lambda s, x: s.gzscore(x * x),
    "gmean": lambda s, x: s.gmean(x * x),
    "gmean weights": lambda s, x: s.gmean(x * x, weights=W),
    "hmean": lambda s, x: s.hmean(x * x + 0.1),
    "pmean": lambda s, x: s.pmean(x * x + 0.1, 2.5),
    "variation": lambda s, x: s.variation(x + 3.0, ddof=1),
    "entropy": lambda s, x: s.entropy(x * x, base=2),
    "entropy relative": lambda s, x: s.entropy(x * x, W),
    "pearsonr": lambda s, x: tuple(s.pearsonr(x, Y)),
    "tmean": lambda s, x: s.tmean(x),
    "tvar": lambda s, x: s.tvar(x),
    "tstd": lambda s, x: s.tstd(x.reshape(3, 2), axis=1),
    "tsem": lambda s, x: s.tsem(x),
    "tmin": lambda s, x: s.tmin(x),
    "tmax": lambda s, x: s.tmax(x),
    "ttest_1samp": lambda s, x: tuple(s.ttest_1samp(x, 0.3))[:2],
    "ttest_rel": lambda s, x: tuple(s.ttest_rel(x, Y, alternative="less"))[:2],
    "ttest_ind": lambda s, x: tuple(s.ttest_ind(x, Y[:4]))[:2],
    "ttest_ind unequal": lambda s, x: tuple(s.ttest_ind(x, Y[:4], equal_var=False, alternative="greater"))[:2],
    "linregress": lambda s, x: tuple(s.linregress(Y, x)) + (s.linregress(x, Y).intercept_stderr,),
    "f_oneway": lambda s, x: tuple(s.f_oneway(x[:3], x[3:] ** 2, Y)),
    "jarque_bera": lambda s, x: tuple(s.jarque_bera(x)),
    "trim_mean": lambda s, x: s.trim_mean(x, 0.2),
    "iqr": lambda s, x: s.iqr(x),
    "median_abs_deviation": lambda s, x: s.median_abs_deviation(x),
    "circmean": lambda s, x: s.circmean(x),
    "circvar": lambda s, x: s.circvar(x),
    "circstd": lambda s, x: s.circstd(x),
    "boxcox": lambda s, x: s.boxcox(x * x + 0.2, 0.3),
    "boxcox_llf": lambda s, x: s.boxcox_llf(0.4, x * x + 0.2),
    "yeojohnson": lambda s, x: s.yeojohnson(x, 0.6),
    "yeojohnson_llf": lambda s, x: s.yeojohnson_llf(0.4, x),
    "gaussian_kde": lambda s, x: s.gaussian_kde(x)(np.array([0.1, 0.7])),
    "gaussian_kde silverman": lambda s, x: s.gaussian_kde(x.reshape(2, 3) ** 2, "silverman", W[:3]).logpdf(np.array([[0.3], [0.5]])),
    "gaussian_kde at": lambda s, x: s.gaussian_kde(Y, 0.4).logpdf(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_statistics(name):
    call = CALLS[name]
    for a, b in zip(*[np.atleast_1d(call(s, X)) for s in (stats, scipy.stats)], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)
    if list(CALLS).index(name) % 4 == 0:  # all of them in the long run
        check_grads(lambda x: call(stats, x), (X,), order=2, eps=1e-3, rtol=1e-7, atol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
def test_derivatives_of_statistics(name):
    check_grads(lambda x: CALLS[name](stats, x), (X,), order=2, eps=1e-3, rtol=1e-7, atol=1e-8)


def test_every_statistic_is_called():
    from tapegrad.stats import _statistics

    assert {name.split()[0] for name in CALLS} == {*_statistics.OURS, *_statistics.CLASSES}


def test_unmodified_names():
    from scipy.stats import gaussian_kde, skew

    f = lambda x: skew(x) + scipy.stats.kurtosis(x) + gaussian_kde(x).logpdf(0.3)[0] + scipy.stats.gaussian_kde(x).pdf(0.2).sum()
    h, d = 1e-6, np.cos(np.arange(6.0))
    numeric = (f(X + h * d) - f(X - h * d)) / (2 * h)
    assert tg.grad(f)(X) @ d == pytest.approx(numeric, rel=1e-8)
    assert tg.jvp(f, (X,), (d,))[1] == pytest.approx(numeric, rel=1e-8)


def test_what_is_not_followed_is_refused():
    for f in (lambda x: scipy.stats.shapiro(x).pvalue, lambda x: scipy.stats.skew(x, nan_policy="omit")):
        with pytest.raises(tg.errors.TapegradError, match="scipy.stats"):
            tg.grad(f)(X)
