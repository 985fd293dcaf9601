import bottleneck as bn
import librosa
import numpy as np
import pandas as pd
import scikit_posthocs
from colossus.cosmology import cosmology
from colossus.halo import mass_defs, profile_einasto
from colossus.lss import peaks
from sklearn.covariance import OAS, LedoitWolf
from sklearn.decomposition import KernelPCA
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.feature_selection import f_regression
from sklearn.impute import SimpleImputer
from sklearn.linear_model import PoissonRegressor
from sklearn.manifold import SpectralEmbedding
from sklearn.metrics import brier_score_loss, d2_pinball_score, dcg_score
from statsmodels.distributions.edgeworth import ExpandedNormal
from statsmodels.emplike.descriptive import DescStat
from statsmodels.gam.api import BSplines
from statsmodels.genmod.cov_struct import Exchangeable
from statsmodels.genmod.generalized_estimating_equations import GEE
from statsmodels.multivariate.manova import MANOVA
from statsmodels.nonparametric import kernels_asymmetric
from statsmodels.regression.dimred import SlicedInverseReg
from statsmodels.regression.feasible_gls import GLSHet
from statsmodels.regression.process_regression import GaussianCovariance
from statsmodels.regression.rolling import RollingOLS
from statsmodels.robust.scale import Huber, qn_scale
from statsmodels.stats import correlation_tools, inter_rater, multivariate, oneway, robust_compare
from statsmodels.stats.dist_dependence_measures import distance_statistics
from statsmodels.treatment.treatment_effects import ate_ipw
from statsmodels.tsa.filters.bk_filter import bkfilter
from statsmodels.tsa.filters.cf_filter import cffilter
from statsmodels.tsa.varma_process import VarmaPoly

cosmology.setCosmology("planck18")
T = np.linspace(0.0, 1.0, 12)
DESIGN = np.column_stack([np.ones(12), T, np.sin(5.0 * T)])
PAIRS = np.column_stack([np.cos(3.0 * T), np.sin(7.0 * T)])


def fast_means(x):
    return np.concatenate([bn.move_mean(x, 3, min_count=1), [bn.nanmean(x), bn.ss(x)]])


def posthoc(x):
    return scikit_posthocs.posthoc_ttest([x[:4], x[4:8], x[8:]]).to_numpy()[np.triu_indices(3, 1)]


def shrunk(x):
    rows = x.reshape(6, 2)
    return np.concatenate([LedoitWolf().fit(rows).covariance_, OAS().fit(rows).covariance_]).ravel()


def components(x):
    return np.abs(KernelPCA(2, kernel="rbf", gamma=0.7).fit_transform(x.reshape(6, 2))[:3]).ravel()


def quadratic(x):
    model = QuadraticDiscriminantAnalysis().fit(x.reshape(6, 2), np.array([0, 1, 0, 1, 0, 1]))
    return model.decision_function(np.array([[0.5, 1.0], [1.0, 0.2]]))


def relevance(x):
    return f_regression(PAIRS, x)[0]


def imputed(x):
    rows = np.where(np.arange(12).reshape(6, 2) == 3, np.nan, x.reshape(6, 2))
    return SimpleImputer().fit_transform(rows)[1]


def scores(x):
    return np.array(
        [
            brier_score_loss([0, 1, 1, 0], x[:4]),
            d2_pinball_score(x[:4], x[4:8], alpha=0.3),
            dcg_score([x[8:]], [[0.1, 0.5, 0.3, 0.2]]),
        ]
    )


def poisson(x):
    return PoissonRegressor(alpha=0.1, solver="newton-cholesky").fit(DESIGN[:, 1:], np.exp(x)).coef_


def embedding(x):
    affinity = np.exp(-((x[:, None] - x) ** 2))
    return np.abs(
        SpectralEmbedding(1, affinity="precomputed", eigen_solver="arpack", random_state=0).fit_transform(
            affinity
        )[:3, 0]
    )


def edgeworth(x):
    law = ExpandedNormal([x[0], x[1], 0.1 * x[2], 3.0 * x[1] ** 2 / 30.0])
    return np.array([law.pdf(0.7), law.cdf(1.1)])


def empirical(x):
    return DescStat(x).test_mean(1.2)[0]


def smooth_basis(x):
    basis = BSplines(x, df=[5], degree=[3])
    return np.concatenate([basis.basis[3:6].ravel(), basis.transform(x[2:4]).ravel()])


def panel(x):
    model = GEE(x, DESIGN, groups=np.repeat([0, 1, 2], 4), cov_struct=Exchangeable())
    return model.fit(maxiter=5, params_niter=1).params


def manova(x):
    result = MANOVA(np.column_stack([x, PAIRS[:, 0]]), DESIGN).mv_test()
    return result.results["x2"]["stat"]["Value"].to_numpy(float)


def asymmetric(x):
    points = np.array([0.3, 0.8])
    return kernels_asymmetric.pdf_kernel_asym(points, x, 0.2, "gamma") + kernels_asymmetric.cdf_kernel_asym(
        points, x, 0.2, "lognorm"
    )


def sliced(x):
    return SlicedInverseReg(T**2, np.column_stack([x, PAIRS])).fit(slice_n=3).eigs


def two_stages(x):
    return GLSHet(x, DESIGN, exog_var=DESIGN[:, :2]).iterative_fit(2).params


def process(x):
    return GaussianCovariance().get_cov(T[:4], np.exp(x[0] + 0.1 * T[:4]), np.exp(x[1] - 0.2 * T[:4])).ravel()


def rolling(x):
    return RollingOLS(x, DESIGN[:, :2], window=6).fit().params[6:9].ravel()


def scales(x):
    return np.array([qn_scale(x), *Huber()(x)])


def correlations(x):
    matrix = np.array([[1.0, x[0], x[1]], [x[0], 1.0, x[2]], [x[1], x[2], 1.0]])
    clipped = correlation_tools.corr_clipped(matrix)
    return np.concatenate([clipped[0], correlation_tools.cov_nearest(matrix * x[3], method="clipped")[1]])


def raters(x):
    table = x.reshape(3, 4)[:, :3]
    kappa = inter_rater.cohens_kappa(table, wt="linear")
    return np.array([kappa.kappa, kappa.var_kappa])


def groups(x):
    samples = [x[:4], x[4:8], x[8:]]
    return np.array(
        [
            oneway.anova_oneway(samples, use_var="unequal").statistic,
            oneway.anova_oneway(samples, use_var="bf").pvalue,
            oneway.effectsize_oneway(
                np.array([np.mean(s) for s in samples]), np.array([np.var(s) for s in samples]), 4
            ),
            robust_compare.TrimmedMean(x, 0.1).var_winsorized,
        ]
    )


def mean_vectors(x):
    rows = x.reshape(6, 2)
    return np.array(
        [
            multivariate.test_mvmean(rows, [0.5, 1.0]).statistic,
            multivariate.test_cov(np.cov(rows.T), 6, np.eye(2)).statistic,
        ]
    )


def distances(x):
    found = distance_statistics(x, T)
    return np.array([found.distance_correlation, found.test_statistic])


def weighting(x):
    treated = np.arange(12) % 3 == 0
    probability = 1.0 / (1.0 + np.exp(-x))
    return np.array(ate_ipw(np.cos(x), treated.astype(int), probability)[:3])


def band_pass(x):
    cycle, trend = cffilter(x, 2, 8, drift=True)
    return np.concatenate([bkfilter(x, 2, 6, K=3), cycle[3:6], trend[3:6]])


def vector_process(x):
    process = VarmaPoly(np.array([np.eye(2), [[x[0], x[1]], [x[2], x[3]]]]))
    process.getisstationary()
    return np.abs(process.areigenvalues)


def haloes(x):
    halo = profile_einasto.EinastoProfile(rhos=x[0] * 1e6, rs=x[1] * 100.0, alpha=x[2])
    return np.array([halo.density(80.0) / 1e6, halo.enclosedMass(150.0) / 1e13])


def concentrations(x):
    return np.array(
        [
            mass_defs.pseudoEvolve(x[0] * 1e12, x[1], "vir", 0.5, 0.3)[2],
            peaks.peakCurvature(x[0] * 1e12, 0.0)[0][()],
        ]
    )


def loudness(x):
    wave = np.sin(2.0 * np.pi * np.arange(512) * x[0] / 50.0) * x[1]
    spectrum = np.abs(librosa.stft(wave, n_fft=128, hop_length=64))
    return np.concatenate(
        [
            librosa.pcen(spectrum * 1e3)[3:6, 2],
            librosa.feature.spectral_flatness(S=spectrum)[0, 2:4],
            librosa.effects.preemphasis(wave)[5:8],
        ]
    )


def table(x):
    frame = pd.DataFrame({"a": x, "g": list("aabbccaabbcc")})
    wide = frame.assign(row=np.arange(12) // 2).pivot_table(
        index="row", columns="g", values="a", aggfunc="mean"
    )
    return np.concatenate(
        [
            frame.groupby("g")["a"].transform("mean").to_numpy()[:6],
            frame["a"].quantile([0.25, 0.6]).to_numpy(),
            wide.mean().to_numpy(),
        ]
    )


X = [0.3, 0.8, 1.2, 0.5, 1.9, 1.4, 0.7, 1.1, 2.1, 1.6, 0.2, 0.95]
CALLS = [
    (fast_means, X),
    (posthoc, X),
    (shrunk, X),
    (components, X),
    (quadratic, X),
    (relevance, X),
    (imputed, X),
    (scores, [0.3, 0.8, 0.6, 0.5, 0.9, 0.4, 0.7, 0.1, 2.1, 1.6, 0.2, 0.95]),
    (poisson, X),
    (embedding, X),
    (edgeworth, [0.2, 1.4, 0.5]),
    (empirical, X),
    (smooth_basis, X),
    (panel, X),
    (manova, X),
    (asymmetric, X),
    (sliced, X),
    (two_stages, X),
    (process, [0.2, -0.4]),
    (rolling, X),
    (scales, X),
    (correlations, [0.9, 0.8, -0.1, 1.3]),
    (raters, X),
    (groups, X),
    (mean_vectors, X),
    (distances, X),
    (weighting, X),
    (band_pass, X),
    (vector_process, [0.3, 0.1, -0.2, 0.4]),
    (haloes, [2.0, 1.5, 0.18]),
    (concentrations, [2.0, 8.0]),
    (loudness, [3.3, 0.8]),
    (table, X),
]
