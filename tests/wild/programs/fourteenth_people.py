import bilby
import mne
import ngboost
import numpy as np
import pandas as pd
import pyblp
import quaternionic
import sigpy
import surpyval
from coloraide import Color
from maad import features, spl
from mne.filter import detrend
from mne.time_frequency import psd_array_welch, tfr_array_morlet
from pyextremes import EVA
from pymatgen.core import Lattice
from scipy import stats
from skimage.feature import corner_harris, hessian_matrix, shape_index
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.neighbors import KernelDensity
from sklearn.preprocessing import SplineTransformer
from smt.problems import WeldedBeam
from smt.surrogate_models import QP
from statsmodels.tsa.exponential_smoothing.ets import ETSModel
from statsmodels.tsa.regime_switching.markov_regression import MarkovRegression
from statsmodels.tsa.statespace.tools import constrain_stationary_univariate
from sysidentpy.basis_function import Polynomial

T = np.linspace(0.0, 1.0, 24)
SIGNAL = np.sin(20.0 * T) + 0.3 * np.cos(45.0 * T)
SERIES = np.where(T > 0.5, 2.0, 0.5) + 0.2 * np.sin(30.0 * T)
REGIMES = MarkovRegression(SERIES, k_regimes=2, switching_variance=True)
ETS = ETSModel(SERIES + 2.0, error="add", trend="add")
PROCESS = GaussianProcessClassifier(optimizer=None).fit(T[:, None], (SIGNAL > 0).astype(int))
PRIOR = bilby.core.prior.PriorDict(
    {"a": bilby.core.prior.Gaussian(0.0, 2.0, "a"), "b": bilby.core.prior.Sine(name="b")}
)
DAYS = pd.date_range("2001-01-01", periods=3000, freq="D")
LEVELS = pd.Series(10.0 + 3.0 * np.sin(np.arange(3000.0) ** 1.5), index=DAYS)
EXTREMES = EVA(LEVELS)
EXTREMES.get_extremes("BM", block_size="365.2425D")


def scores(x):
    laws = ngboost.distns.Normal(np.array([[x[0], x[0] - 0.5], [x[1], x[1] + 0.1]]))
    return np.concatenate([-laws.logpdf(np.array([0.3, 0.9])), np.ravel(laws.cdf(np.array([0.1, 0.4])))])


def continuous_ranked(x):
    law = ngboost.manifold.manifold(ngboost.scores.CRPScore, ngboost.distns.Normal)(np.array([x[:2], x[2:]]))
    return np.concatenate([law.score(np.array([0.4, 1.3])), law.d_score(np.array([0.4, 1.3])).ravel()])


def markups(x):
    table = pd.DataFrame({"market_ids": [0, 0, 0], "firm_ids": [0, 1, 1]})
    ownership = pyblp.build_ownership(table)
    return np.linalg.solve(ownership * (np.diag(x) - np.outer(x, x)), x[:, None]).ravel()


def weibull(x):
    return np.concatenate(
        [
            surpyval.Weibull.sf(T[1:4], x[0], x[1]),
            surpyval.Gamma.hf(T[1:4], x[0], x[1]),
            [surpyval.LogNormal.mean(x[0], x[1])],
        ]
    )


def survival_likelihood(x):
    failures = np.array([0.4, 1.1, 1.7, 2.2])
    return -np.sum(surpyval.Weibull.log_df(failures, *x)) - 2.0 * surpyval.Weibull.log_sf(2.5, *x)


def bilby_likelihood(x):
    model = bilby.core.likelihood.GaussianLikelihood(T, SIGNAL, lambda t, a, w: a * np.sin(w * t), sigma=0.3)
    return model.log_likelihood({"a": x[0], "w": x[1]})


def bilby_priors(x):
    return PRIOR.ln_prob({"a": x[0], "b": x[1]}) + bilby.core.prior.PowerLaw(2.5, 1.0, 9.0).ln_prob(x[2])


def return_values(x):
    law = stats.genextreme(c=x[0], loc=x[1], scale=x[2])
    return np.sum(law.logpdf(EXTREMES.extremes.to_numpy()))


def lags(x):
    return Polynomial(degree=2).fit(x.reshape(4, 2), max_lag=1).ravel()


def beam(x):
    return WeldedBeam(ndim=3)(x[None])


def quadratic_surrogate(x):
    model = QP(print_global=False)
    model.set_training_values(T[:, None], SIGNAL * x[0] + x[1] * T**2)
    model.train()
    return model.predict_values(np.array([[0.3], [0.8]])).ravel()


def regimes(x):
    return REGIMES.loglike(x, transformed=True)


def smoothing(x):
    return ETS.loglike(x)


def stationary(x):
    return constrain_stationary_univariate(x)


def total_variation(x):
    image = x.reshape(3, 3)
    operator = sigpy.linop.FiniteDifference(image.shape)
    return np.concatenate([operator(image).ravel(), sigpy.thresh.soft_thresh(0.2, image).ravel()])


def least_squares(x):
    matrix = sigpy.linop.MatMul((3, 1), np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.0]]))
    return (
        sigpy.app.LinearLeastSquares(matrix, x[:, None], lamda=0.1, max_iter=20, show_pbar=False)
        .run()
        .ravel()
    )


def sounds(x):
    wave = x[0] * np.sin(400.0 * T) + x[1] * np.cos(90.0 * T)
    return np.array(
        [
            features.temporal_entropy(wave, Nt=4),
            *features.temporal_moments(wave),
            *spl.pressure2dBSPL(np.abs(wave[1:3])),
        ]
    )


def brain_power(x):
    data = np.stack([x[0] * SIGNAL, SIGNAL + x[1] * T])
    return psd_array_welch(data, 24.0, n_fft=16, verbose="error")[0].ravel()[::3]


def brain_waves(x):
    data = np.stack([x[0] * SIGNAL, SIGNAL + x[1] * T])[None]
    return tfr_array_morlet(data, 24.0, np.array([4.0, 6.0]), n_cycles=2.0, output="power", verbose="error")[
        0, :, :, ::7
    ].ravel()


def trends(x):
    return detrend(np.stack([x, x**2]), order=1).ravel()


def rotations(x):
    return (
        mne.transforms.rotation3d(x[0], x[1], x[2]).ravel()
        + mne.transforms.rot_to_quat(mne.transforms.rotation3d(x[2], x[0], x[1])).sum()
    )


def colours(x):
    return np.array(Color("srgb", list(x)).convert("oklch")[:3])


def colour_distance(x):
    return Color("srgb", list(x)).delta_e(Color("lab", [50.0, 20.0, -10.0]), method="2000")


def cell(x):
    lattice = Lattice.from_parameters(x[0], x[1], 5.0, 80.0, x[2], 100.0)
    return np.array(
        [lattice.volume, *lattice.reciprocal_lattice.abc, *lattice.get_cartesian_coords([0.1, 0.2, 0.3])]
    )


def rotors(x):
    one = quaternionic.array([np.cos(x[0]), np.sin(x[0]), 0.0, 0.0])
    two = quaternionic.array([np.cos(x[1]), 0.0, np.sin(x[1]), 0.0])
    return np.concatenate(
        [(one * two).ndarray, quaternionic.slerp(one, two, np.array([0.3])).ndarray.ravel()]
    )


def corners(x):
    rows, columns = np.mgrid[:9, :9]
    image = np.exp(-((rows - x[0]) ** 2 + (columns - x[1]) ** 2) / 6.0)
    return np.concatenate([corner_harris(image)[4, 2:6], shape_index(image, sigma=1.5)[3, 2:6]])


def curvature(x):
    rows, columns = np.mgrid[:9, :9]
    image = np.exp(-((rows - x[0]) ** 2 + (columns - x[1]) ** 2) / 6.0)
    return np.concatenate(
        [part[4, 2:5] for part in hessian_matrix(image, sigma=1.0, use_gaussian_derivatives=False)]
    )


def density(x):
    return KernelDensity(bandwidth=0.4).fit(T[:, None]).score_samples(x[:, None])


def splines(x):
    return SplineTransformer(n_knots=4).fit(T[:, None]).transform(x[:, None]).ravel()


def classes(x):
    return PROCESS.predict_proba(x[:, None])[:, 1]


CALLS = [
    (scores, [0.3, -0.2]),
    (continuous_ranked, [0.3, 0.8, -0.2, 0.1]),
    (markups, [0.2, 0.3, 0.25]),
    (weibull, [1.4, 2.1]),
    (survival_likelihood, [1.4, 2.1]),
    (bilby_likelihood, [0.9, 19.0]),
    (bilby_priors, [0.4, 1.2, 3.0]),
    (return_values, [0.1, 12.0, 1.5]),
    (lags, [0.4, 1.2, 3.0, -0.7, 1.1, 0.6, 0.2, 2.1]),
    (beam, [6.0, 8.0, 0.6]),
    (quadratic_surrogate, [1.2, 0.7]),
    (regimes, [0.9, 0.1, 0.5, 2.0, 0.04, 0.06]),
    (smoothing, [0.5, 0.1, 2.5, 0.02]),
    (stationary, [0.4, -0.7, 0.3]),
    (total_variation, [0.4, 1.2, 3.0, -0.7, 1.1, 0.6, 0.25, 2.1, -1.3]),
    (least_squares, [0.4, 1.2, 3.0]),
    (sounds, [1.2, 0.7]),
    (brain_power, [1.2, 0.7]),
    (brain_waves, [1.2, 0.7]),
    (trends, [0.4, 1.2, 3.0, -0.7, 1.1]),
    (rotations, [0.3, 0.5, -0.2]),
    (colours, [0.3, 0.5, 0.8]),
    (colour_distance, [0.3, 0.5, 0.8]),
    (cell, [4.0, 6.0, 95.0]),
    (rotors, [0.3, 0.8]),
    (corners, [3.7, 4.4]),
    (curvature, [3.7, 4.4]),
    (density, [0.2, 0.55, 1.3]),
    (splines, [0.2, 0.55, 0.83]),
    (classes, [0.2, 0.55, 0.83]),
]
