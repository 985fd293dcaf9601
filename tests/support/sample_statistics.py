"""Calls of scipy.stats' statistics of samples, of a module s that has their names: for
tests/ops/test_statistics.py."""

import inspect

import numpy as np
import scipy.stats
from cases import normal, positive

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
    "ttest_ind unequal": lambda s, x: tuple(s.ttest_ind(x, Y[:4], equal_var=False, alternative="greater"))[
        :2
    ],
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
    "gaussian_kde silverman": lambda s, x: s.gaussian_kde(x.reshape(2, 3) ** 2, "silverman", W[:3]).logpdf(
        np.array([[0.3], [0.5]])
    ),
    "gaussian_kde at": lambda s, x: s.gaussian_kde(Y, 0.4).logpdf(x),
}


T, B = normal(12), positive(12, seed=1)
PLACES = np.linspace(0, 1, 12) ** 2
# of twelve numbers
INTERPOLATED = (
    {"method": "interpolate"} if "method" in inspect.signature(scipy.stats.anderson).parameters else {}
)  # from SciPy 1.17 on
FURTHER = {
    "shapiro": lambda s, x: tuple(s.shapiro(x)),
    "shapiro of five": lambda s, x: tuple(s.shapiro(x[:5])),
    "shapiro of three": lambda s, x: tuple(s.shapiro(x[:3])),
    "anderson": lambda s, x: s.anderson(x, **INTERPOLATED).statistic,
    "anderson expon": lambda s, x: tuple(s.anderson(x * x, "expon", **INTERPOLATED)),
    # SciPy before 1.17 multiplies a list by an array
    **(
        {
            "tukey_hsd": lambda s, x: (lambda r: (r.statistic, r.pvalue))(
                s.tukey_hsd(x[:4], x[4:8] ** 2, x[8:] + 2)
            )
        }
        if INTERPOLATED
        else {}
    ),
    "skewtest": lambda s, x: tuple(s.skewtest(x)),
    "kurtosistest": lambda s, x: tuple(s.kurtosistest(x, alternative="less")),
    "normaltest": lambda s, x: tuple(s.normaltest(x.reshape(12, 1))),
    "chisquare": lambda s, x: tuple(s.chisquare(x * x + 1)),
    "power_divergence": lambda s, x: tuple(s.power_divergence(x * x + 1, lambda_="cressie-read")),
    "power_divergence g": lambda s, x: tuple(s.power_divergence(x * x + 1, lambda_=0)),
    "chi2_contingency": lambda s, x: tuple(s.chi2_contingency((x * x + 1).reshape(3, 4)))[:2],
    "chi2_contingency 2": lambda s, x: tuple(s.chi2_contingency((x[:4] ** 2 + 1).reshape(2, 2) * 4))[:2],
    "bartlett": lambda s, x: tuple(s.bartlett(x, Y, x[:5] * 2)),
    "levene": lambda s, x: tuple(s.levene(x, Y, x[:5] * 2)),
    "levene t": lambda s, x: tuple(s.levene(x, Y, x[:5] * 2, center="trimmed", proportiontocut=0.2)),
    "epps_singleton_2samp": lambda s, x: tuple(s.epps_singleton_2samp(x, Y)),
    "ttest_ind_from_stats": lambda s, x: tuple(
        s.ttest_ind_from_stats(x[0], x[1] ** 2 + 0.3, 8, x[2], x[3] ** 2 + 0.5, 9, equal_var=False)
    ),
    "pointbiserialr": lambda s, x: tuple(s.pointbiserialr(np.arange(12) % 3 == 0, x)),
    **{
        f"combine_pvalues {m}": lambda s, x, m=m: tuple(s.combine_pvalues(1 / (1 + x * x), m))
        for m in ("fisher", "pearson", "mudholkar_george", "tippett", "stouffer")
    },
    "cramervonmises": lambda s, x: (lambda r: (r.statistic, r.pvalue))(
        s.cramervonmises(x, "norm", args=(0.1, 1.2))
    ),
    "describe": lambda s, x: (lambda r: (*r.minmax, *r[2:]))(s.describe(x)),
    "directional_stats": lambda s, x: (lambda r: (r.mean_direction, r.mean_resultant_length))(
        s.directional_stats(x.reshape(4, 3))
    ),
    "obrientransform": lambda s, x: s.obrientransform(x, x * x),
    **{f"kstat {n}": lambda s, x, n=n: s.kstat(x, n) for n in (1, 2, 3, 4)},
    **{f"kstatvar {n}": lambda s, x, n=n: s.kstatvar(x, n) for n in (1, 2)},
    "lmoment": lambda s, x: s.lmoment(x),
    "lmoment axis": lambda s, x: s.lmoment(x.reshape(2, 6), order=3, axis=1),
    **{
        f"differential_entropy {m}": lambda s, x, m=m: s.differential_entropy(x, method=m)
        for m in ("auto", "vasicek", "van es", "ebrahimi", "correa")
    },
    "expectile": lambda s, x: s.expectile(x, 0.7),
    "expectile by all": lambda s, x: s.expectile(x, 1 / (1 + x[0] ** 2), weights=1 + x * x),
    "wasserstein_distance by weights": lambda s, x: s.wasserstein_distance(
        PLACES, Y, 1 + x * x, 1 + x[:6] ** 4
    ),
    "relfreq by name": lambda s, x: s.relfreq(x, 4, weights=B).frequency,
    "cumfreq by name": lambda s, x: s.cumfreq(x, 4, weights=B).cumcount,
    "trim1": lambda s, x: np.sort(s.trim1(x, 0.2)),
    "trimboth": lambda s, x: np.sort(s.trimboth(x.reshape(6, 2), 0.2), 0),
    "sigmaclip": lambda s, x: tuple(s.sigmaclip(x, 1.5, 1.5)),
    "scoreatpercentile": lambda s, x: s.scoreatpercentile(x, [20.0, 70.0]),
    **(
        {"quantile": lambda s, x: s.quantile(x, [0.2, 0.7])} if hasattr(scipy.stats, "quantile") else {}
    ),  # from SciPy 1.16 on
    "theilslopes": lambda s, x: tuple(s.theilslopes(x, PLACES)),
    "siegelslopes": lambda s, x: tuple(s.siegelslopes(x, PLACES)),
    "siegelslopes sep": lambda s, x: tuple(s.siegelslopes(x, PLACES, method="separate")),
    "wasserstein_distance": lambda s, x: s.wasserstein_distance(x, Y, B),
    "energy_distance": lambda s, x: s.energy_distance(x, Y),
    **{
        f"binned_statistic {m}": lambda s, x, m=m: s.binned_statistic(PLACES, x, m, 3)[0]
        for m in ("mean", "sum", "std", "median", "min", "max")
    },
    "binned_statistic_2d": lambda s, x: s.binned_statistic_2d(PLACES, B, x, "sum", [2, 3])[0],
    "binned_statistic_dd": lambda s, x: s.binned_statistic_dd(np.stack([PLACES, B], 1), x, "mean", [2, 2])[0],
    "mvsdist": lambda s, x: [d.logpdf(0.9) for d in s.mvsdist(x)],
    "bayes_mvs": lambda s, x: [v for r in s.bayes_mvs(x) for v in (r[0], *r[1])],
    "probplot": lambda s, x: (lambda r: (r[0][1], *r[1]))(s.probplot(x)),
    "boxcox_normplot": lambda s, x: s.boxcox_normplot(x * x + 0.3, -1, 1, N=3)[1],
    "yeojohnson_normplot": lambda s, x: s.yeojohnson_normplot(x, -1, 1, N=3)[1],
    "ppcc_plot": lambda s, x: s.ppcc_plot(x, -0.5, 0.5, N=3)[1],
    "ppcc_max": lambda s, x: s.ppcc_max(x),
    "boxcox_normmax": lambda s, x: s.boxcox_normmax(x * x + 0.3),
    "boxcox_normmax all": lambda s, x: s.boxcox_normmax(x * x + 0.3, method="all"),
    "yeojohnson_normmax": lambda s, x: s.yeojohnson_normmax(x),
    "alexandergovern": lambda s, x: (lambda r: (r.statistic, r.pvalue))(s.alexandergovern(x, Y, x[:5] * 2)),
    "mode": lambda s, x: tuple(s.mode(x)),
    "ks_1samp": lambda s, x: tuple(s.ks_1samp(x, scipy.stats.norm.cdf, args=(0.1, 1.2))),
    "kstest": lambda s, x: s.kstest(x, "laplace", args=(x[0] ** 2, 1.2)).statistic,
    "false_discovery_control": lambda s, x: s.false_discovery_control(1 / (1 + x * x)),
    "binomtest": lambda s, x: s.binomtest(3, 10, 1 / (1 + x[0] ** 2)).pvalue,
    "quantile_test": lambda s, x: s.quantile_test(Y, q=0.1, p=1 / (1 + x[0] ** 2)).pvalue,
    "median_test": lambda s, x: s.median_test(x, Y).median,
    "cumfreq": lambda s, x: tuple(s.cumfreq(x, 4, weights=B))[:3],
    "relfreq": lambda s, x: tuple(s.relfreq(x, 4, weights=B))[:3],
}
# SciPy's search ends at 1e-8
SEARCHED = {"ppcc_max", "boxcox_normmax", "yeojohnson_normmax"}
NEAR = {**dict.fromkeys(SEARCHED, 1e-6), "shapiro": 1e-9}  # its normal quantiles are a rational approximation
ALL = {**dict.fromkeys(CALLS, X), **dict.fromkeys(FURTHER, T)}
CALLS.update(FURTHER)
