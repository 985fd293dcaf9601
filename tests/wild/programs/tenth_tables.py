import astroML.filters
import copulae
import numpy as np
from astroML import density_estimation, fourier, linear_model, stats, time_series
from kde_diffusion import kde1d
from skbio.diversity import alpha
from skbio.stats import composition, ordination
from statsmodels.distributions.copula.api import ClaytonCopula, GumbelCopula
from statsmodels.miscmodels.ordinal_model import OrderedModel
from statsmodels.multivariate.cancorr import CanCorr
from statsmodels.multivariate.factor_rotation import rotate_factors
from statsmodels.multivariate.pca import PCA
from statsmodels.othermod.betareg import BetaModel
from statsmodels.regression.quantile_regression import QuantReg
from statsmodels.stats import (
    contingency_tables,
    meta_analysis,
    multitest,
    outliers_influence,
    power,
    proportion,
    sandwich_covariance,
)
from statsmodels.tsa.ar_model import AutoReg
from statsmodels.tsa.holtwinters import SimpleExpSmoothing
from statsmodels.tsa.vector_ar.var_model import VAR

N = np.arange(40.0)
NOISE = np.cos(1.9 * N**1.2)
DESIGN = np.stack([np.ones(40), np.sin(N), np.cos(2 * N)], axis=1)


def compositions(x):
    return np.concatenate(
        [composition.clr(x), composition.ilr(x), composition.alr(x), composition.closure(x)]
    )


def perturbed(x):
    return composition.perturb(composition.power(x, 0.7), [0.1, 0.2, 0.3, 0.4])


def diversities(x):
    return np.array(
        [
            alpha.shannon(x),
            alpha.simpson(x),
            alpha.hill(x, 1.5),
            alpha.renyi(x),
            alpha.tsallis(x),
            alpha.inv_simpson(x),
            alpha.pielou_e(x),
        ]
    )


def redundancy(x):
    return ordination.rda(np.reshape(x, (6, 2)), DESIGN[:6, 1:]).eigvals.to_numpy()[:2]


def gaussian_copula(x):
    copula = copulae.GaussianCopula(2)
    copula.params = x[:1]
    return copula.pdf(np.array([[0.2, 0.4], [0.7, 0.5]]), log=True)


def student_copula(x):
    copula = copulae.StudentCopula(2)
    copula[0, 1] = x[0]
    return copula.pdf(np.array([[0.2, 0.4], [0.7, 0.5]]))


def archimedean_copulas(x):
    at = np.array([[0.2, 0.4], [0.7, 0.5]])
    clayton, frank = copulae.ClaytonCopula(x[0], 2), copulae.FrankCopula(x[1], 2)
    return np.concatenate([clayton.pdf(at), frank.cdf(at), [clayton.tau, frank.tau]])


def copulas_of_statsmodels(x):
    at = np.array([[0.2, 0.4], [0.7, 0.5]])
    return np.concatenate(
        [ClaytonCopula(x[0]).logpdf(at), GumbelCopula(x[1]).cdf(at), [GumbelCopula(x[1]).tau()]]
    )


def periodogram(x):
    return time_series.lomb_scargle(N, x, 0.1 + 0.01 * N, np.array([0.3, 0.7, 1.9]))


def terms(x):
    return time_series.multiterm_periodogram(N, x, 0.1 + 0.01 * N, np.array([0.3, 1.9]), 2)


def robust_moments(x):
    return np.array(
        [*stats.mean_sigma(x), *stats.median_sigmaG(x), *stats.fit_bivariate_normal(x[:20], x[20:])[1:]]
    )


def straight_lines(x):
    return linear_model.TLS_logL(x[:2], np.stack([np.sin(N[:5]), N[:5]], 1), 0.1 * np.stack([np.eye(2)] * 5))


def regression_by_kernels(x):
    model = linear_model.NadarayaWatson("gaussian", h=x[0])
    return model.fit(N[:, None] / 9, NOISE, 0.1).predict(np.array([[1.0], [2.5]]))


def wavelets(x):
    return np.array(
        [
            *astroML.filters.savitzky_golay(x, 7, 2)[:9],
            *fourier.wavelet_PSD(N[:32], x[:32], np.array([0.1, 0.2]))[:, 5],
        ]
    )


def densities(x):
    return density_estimation.KNeighborsDensity("bayesian", 4).fit(N[:, None]).eval(x[:, None])


def diffusion_density(x):
    density, grid, bandwidth = kde1d(x, n=64, limits=(-3, 3))
    return np.array([bandwidth, *density[20:30]])


def ordered_probit(x):
    model = OrderedModel((NOISE > 0).astype(int) + (NOISE > 0.6), DESIGN[:, 1:], distr="probit")
    return model.loglike(x)


def beta_regression(x):
    return BetaModel(0.5 + 0.4 * NOISE, DESIGN).loglike(x)


def canonical_correlations(x):
    return CanCorr(np.reshape(x, (20, 2)), DESIGN[:20, 1:]).cancorr


def components(x):
    found = PCA(np.reshape(x, (10, 4)), ncomp=2)
    return np.array([*found.eigenvals[:2], *np.ravel(np.asarray(found.projection))])


def quartimax(x):
    return np.sum(rotate_factors(np.reshape(x, (4, 2)), "quartimax")[0] ** 4)


def median_regression(x):
    return QuantReg(x, DESIGN).fit(q=0.5, max_iter=6).params


def tables(x):
    table = contingency_tables.Table2x2(np.reshape(x, (2, 2)))
    return np.array(
        [table.oddsratio, table.log_riskratio, table.log_oddsratio_se, *table.log_oddsratio_confint()]
    )


def combined_effects(x):
    found = meta_analysis.combine_effects(x[:4], x[4:], method_re="dl")
    return np.array([found.mean_effect_fe, found.mean_effect_re, found.tau2])


def corrected_p_values(x):
    return np.concatenate([multitest.multipletests(x, method=m)[1] for m in ("bonferroni", "holm", "fdr_bh")])


def power_of_a_test(x):
    return np.array(
        [
            power.TTestIndPower().power(x[0], 20, x[1]),
            power.NormalIndPower().power(x[0], 25, x[1]),
            *proportion.proportion_confint(12 + x[0], 40),
        ]
    )


def influence(x):
    import statsmodels.api as sm

    found = outliers_influence.OLSInfluence(sm.OLS(x, DESIGN).fit())
    return np.concatenate([found.cooks_distance[0][:5], found.resid_studentized_internal[:5]])


def sandwich(x):
    import statsmodels.api as sm

    fit = sm.OLS(x, DESIGN).fit()
    return np.concatenate(
        [np.diag(sandwich_covariance.cov_hac(fit, nlags=2)), np.diag(sandwich_covariance.cov_hc3(fit))]
    )


def autoregression(x):
    return AutoReg(x, 2).fit().params


def vector_autoregression(x):
    found = VAR(np.reshape(x, (20, 2))).fit(1)
    return np.array([*np.ravel(found.params), *np.ravel(found.forecast(np.reshape(x, (20, 2))[-1:], 2))])


def exponential_smoothing(x):
    return (
        SimpleExpSmoothing(x, initialization_method="known", initial_level=0.2)
        .fit(smoothing_level=0.4, optimized=False)
        .forecast(2)
    )


SHARES = np.array([0.1, 0.2, 0.3, 0.4]) * np.array([1.0, 1.3, 0.8, 1.1])
COUNTS = 5 + 3 * np.cos(np.arange(12.0))
CALLS = [
    (compositions, SHARES),
    (perturbed, SHARES),
    (diversities, COUNTS),
    (redundancy, COUNTS),
    (gaussian_copula, [0.4]),
    (student_copula, [0.4]),
    (archimedean_copulas, [1.4, 2.3]),
    (copulas_of_statsmodels, [1.4, 2.3]),
    (periodogram, NOISE),
    (terms, NOISE),
    (robust_moments, NOISE),
    (straight_lines, [0.4, 0.3]),
    (regression_by_kernels, [0.4]),
    (wavelets, NOISE),
    (densities, [3.3, 7.6]),
    (diffusion_density, NOISE),
    (ordered_probit, [0.3, 0.2, 0.1, -0.4]),
    (beta_regression, [0.3, 0.2, 0.1, 2.0]),
    (canonical_correlations, NOISE),
    (components, NOISE),
    (quartimax, [0.9, 0.1, 0.8, 0.3, 0.2, 0.7, 0.1, 0.6]),
    (median_regression, NOISE),
    (tables, [12.0, 7.0, 5.0, 9.0]),
    (combined_effects, [0.3, 0.9, 0.1, 0.6, 0.05, 0.04, 0.06, 0.03]),
    (corrected_p_values, [0.01, 0.04, 0.03, 0.002]),
    (power_of_a_test, [0.6, 0.04]),
    (influence, NOISE),
    (sandwich, NOISE),
    (autoregression, NOISE),
    (vector_autoregression, NOISE),
    (exponential_smoothing, NOISE),
]
