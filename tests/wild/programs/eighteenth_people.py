"""Choices, causes, scores, portfolios, inequality, trips, failures, heartbeats, speech, errors."""

import arviz_stats.base
import choix
import crepes
import ffn
import group_lasso
import inequality.gini
import inequality.theil
import komm
import lingam
import modopt.opt.linear
import modopt.opt.proximity
import neurokit2 as nk
import numpy as np
import pandas as pd
import persim
import pyerrors
import pymare
import pymare.estimators
import pyproximal
import pyproximal.optimization.primal
import scores.continuous
import scores.probability
import skfolio.measures
import speechpy
import spint.gravity
import uncertainty_toolbox.metrics
import verde
import xarray
import xlogit
import zepid.calc
from bayes_opt.acquisition import ExpectedImprovement, UpperConfidenceBound
from kymatio.scattering1d.frontend.numpy_frontend import ScatteringNumPy1D
from pylops import MatrixMult
from reliability.Distributions import Gamma_Distribution, Weibull_Distribution

POINT = np.array([1.1, 0.9, 1.2])
RNG = np.random.default_rng(18)
SAMPLE = RNG.standard_normal(80)
TABLE = RNG.standard_normal((40, 3))
SCATTERING = ScatteringNumPy1D(J=3, shape=64, Q=2)


def likelihood_of_ranks(x):
    return np.array(
        [
            choix.log_likelihood_pairwise([(0, 1), (1, 2), (0, 2), (2, 1)], x),
            choix.log_likelihood_rankings([(0, 1, 2), (2, 0, 1)], x),
            *choix.probabilities([0, 1, 2], x),
        ]
    )


def super_gaussian(x):
    return np.array(
        [
            np.sum(lingam.utils.log_p_super_gaussian(SAMPLE * x[0] + x[1])),
            lingam.utils.variance_i((TABLE * x).T, 1, np.array([0.1, 0.0, 0.3])),
        ]
    )


def calibrated_forecasts(x):
    metrics = uncertainty_toolbox.metrics
    mean, spread, truth = SAMPLE[:20] * x[0], (0.5 + SAMPLE[20:40] ** 2) * x[1], SAMPLE[40:60] * x[2]
    return np.array(
        [
            metrics.nll_gaussian(mean, spread, truth),
            metrics.crps_gaussian(mean, spread, truth),
            metrics.interval_score(mean, spread, truth),
        ]
    )


def conformal_intervals(x):
    regressor = crepes.ConformalRegressor()
    regressor.fit(residuals=SAMPLE[:40] * x[0], sigmas=(0.5 + SAMPLE[40:] ** 2) * x[1])
    return regressor.predict_int(
        np.array([1.0, 2.0]) * x[2], sigmas=np.array([0.6, 0.9]), confidence=0.9
    ).ravel()


def choice_model(x):
    model = xlogit.MultinomialLogit()
    varied = RNG_CHOICES.reshape(12, 3, 2)
    differences = varied[:, 1:, :] - varied[:, :1, :]
    return model._loglik_gradient(x[:2], differences * x[2], None, None, None, None, return_gradient=False)


def meta_analysis(x):
    data = pymare.Dataset(np.array([0.2, 0.5, 0.1, 0.7]) * x[0], np.array([0.04, 0.09, 0.02, 0.05]) * x[1])
    found = pymare.estimators.DerSimonianLaird().fit_dataset(data).params_
    return np.concatenate([np.ravel(found["fe_params"]), np.ravel(found["tau2"])]) * x[2]


def risks(x):
    found = zepid.calc.risk_ratio(25 * x[0], 75 * x[1], 15 * x[2], 85.0)
    return np.array(
        [
            found.point_estimate,
            found.lower_bound,
            found.upper_bound,
            found.standard_error,
            zepid.calc.logit(0.3 * x[0]),
        ]
    )


def inequalities(x):
    incomes = np.array([10.0, 25.0, 31.0, 52.0, 90.0]) * np.array([x[0], 1, x[1], 1, x[2]])
    return np.array([inequality.gini.Gini(incomes).g, inequality.theil.Theil(incomes).T])


def trips(x):
    origins, ends = np.repeat([20.0, 35.0, 50.0], 3) * x[0], np.tile([15.0, 40.0 * x[2], 30.0], 3)
    flows = np.array([5, 12, 8, 9, 22, 17, 11, 34, 26])
    cost = np.array([1.0, 3, 2, 3, 1.5, 2.5, 2, 2.5, 1]) + 0.3 * x[1] ** 2 * np.cos(np.arange(9))
    return spint.gravity.Gravity(flows, origins, ends, cost, "exp").params


def forecast_scores(x):
    forecast = xarray.DataArray(SAMPLE[:30].reshape(5, 6) * x[0] + x[1], dims=["time", "member"])
    truth = xarray.DataArray(SAMPLE[30:35] * x[2], dims=["time"])
    return np.array(
        [
            scores.continuous.rmse(forecast.mean("member"), truth).item(),
            scores.continuous.kge(forecast.mean("member"), truth).item(),
            scores.probability.crps_for_ensemble(forecast, truth, "member").item(),
        ]
    )


def risk_of_portfolio(x):
    returns = TABLE @ (np.array([0.4, 0.3, 0.3]) * x) * 0.01
    m = skfolio.measures
    return np.array(
        [
            m.cvar(returns, 0.9),
            m.semi_deviation(returns),
            m.gini_mean_difference(returns),
            m.ulcer_index(m.get_drawdowns(returns)),
            m.entropic_risk_measure(returns),
        ]
    )


def performance(x):
    returns = pd.Series(0.01 * SAMPLE[:50] * x[0] + 0.001 * x[1])
    prices = 100 * x[2] * (1 + returns).cumprod()
    return np.array(
        [
            ffn.calc_sharpe(returns, annualize=False),
            ffn.calc_max_drawdown(prices),
            ffn.calc_total_return(prices),
        ]
    )


def images_of_diagrams(x):
    diagram = np.array([[0.1, 0.9], [0.3, 0.7], [0.2, 1.1]]) * x[0] + np.array([0.0, 0.1]) * x[1]
    other = np.array([[0.2, 0.8], [0.4, 1.0]]) * x[2]
    return np.array([persim.heat(diagram, other, sigma=0.4), persim.sliced_wasserstein(diagram, other, M=10)])


def measured_errors(x):
    one = pyerrors.Obs([SAMPLE * x[0] + 2.0], ["run"])
    two = pyerrors.Obs([np.roll(SAMPLE, 7) * x[1] + 3.0 * x[2]], ["run"])
    both = np.sin(one) * two
    both.gamma_method(S=0)
    return np.array([both.value, both.dvalue])


def denoised_signal(x):
    data = np.sign(np.sin(np.arange(20.0))) * x[0] + 0.1 * SAMPLE[:20] * x[1]
    return pyproximal.TV((20,), sigma=0.2 * x[2], niter=5, rtol=0.0).prox(data, 1.0)


def sparse_solution(x):
    operator = MatrixMult(TABLE[:8] * x[0])
    fit = pyproximal.L2(Op=operator, b=SAMPLE[:8] * x[1], niter=5)
    return pyproximal.optimization.primal.ProximalGradient(
        fit, pyproximal.L1(sigma=0.1 * x[2]), x0=np.zeros(3), tau=0.05, niter=20, show=False
    )


def thresholded(x):
    proximity = modopt.opt.proximity
    matrix = TABLE[:6] * x
    return np.concatenate(
        [
            proximity.Ridge(modopt.opt.linear.Identity(), 0.3 * x[0]).op(matrix).ravel(),
            proximity.ElasticNet(modopt.opt.linear.Identity(), 0.2 * x[1], 0.1).op(matrix).ravel(),
        ]
    )


def life_times(x):
    law = Weibull_Distribution(alpha=50 * x[0], beta=2 * x[1], gamma=3 * x[2])
    other = Gamma_Distribution(alpha=20 * x[0], beta=3 * x[1])
    return np.concatenate(
        [
            [law.mean, law.standard_deviation, other.variance],
            law.SF(xvals=np.array([20.0, 60.0]), show_plot=False),
            other.PDF(xvals=np.array([20.0, 60.0]), show_plot=False),
        ]
    )


def heart_signal(x):
    beats = np.sin(np.arange(200) * 0.2 * x[0]) + 0.3 * x[1] * np.cos(np.arange(200) * 0.9) + 0.1 * x[2]
    filtered = nk.signal_filter(beats, sampling_rate=100, lowcut=1, highcut=20)
    return np.concatenate([filtered, nk.signal_detrend(beats, order=2)])


def complexity(x):
    beats = np.sin(np.arange(100) * 0.2 * x[0]) + 0.3 * x[1] * SAMPLE[np.arange(100) % 80]
    return np.array(
        [nk.complexity_hjorth(beats)[0], nk.fractal_petrosian(beats)[0] * x[2], nk.entropy_spectral(beats)[0]]
    )


def cepstrum(x):
    speech = np.sin(np.arange(1600) * 0.2 * x[0]) * x[1] + 0.1 * np.cos(np.arange(1600) * 1.3 * x[2])
    return speechpy.feature.mfcc(speech, 8000, num_filters=12, num_cepstral=6, fft_length=256).ravel()


def scattered_signal(x):
    return SCATTERING(np.sin(np.arange(64) * 0.3 * x[0]) * x[1] + x[2] * np.cos(np.arange(64))).ravel()


def channel(x):
    rates = np.array([0.9 * x[1], 0.1, 0.05]) * x[0]
    pulse = komm.GaussianPulse(half_power_bandwidth=0.5 * x[2])
    law = np.stack([rates / np.sum(rates), np.array([0.1, 0.2, 0.7])])
    gate = komm.DiscreteMemorylessChannel(law)
    return np.concatenate(
        [[gate.mutual_information(np.array([0.4, 0.6]))], pulse.waveform(np.array([0.2, 0.7]))]
    )


def promising_point(x):
    mean, spread = np.array([0.2, 0.5, 0.9]) * x, np.array([0.3, 0.2, 0.1]) * x[0]
    better = ExpectedImprovement(xi=0.01)
    better.y_max = 0.6
    return np.concatenate(
        [better.base_acq(mean, spread), UpperConfidenceBound(kappa=2.0).base_acq(mean, spread)]
    )


def gridded_data(x):
    east, north = TABLE[:20, 0], TABLE[:20, 1]
    trend = verde.Trend(degree=1).fit((east, north), x[0] + x[1] * east - x[2] * north + 0.1 * TABLE[:20, 2])
    spline = verde.Spline(damping=1e-4).fit((east[:8], north[:8]), x[0] * east[:8] ** 2 + x[1] * TABLE[:8, 2])
    return np.concatenate([trend.coef_, spline.predict((np.array([0.1, 0.4]), np.array([0.2, -0.3]) * x[2]))])


def loss_of_groups(x):
    model = group_lasso.GroupLasso(
        groups=[1, 1, 2], group_reg=0.05, l1_reg=0.0, n_iter=30, supress_warning=True, random_state=0
    )
    model.fit(TABLE * x[0], (TABLE @ np.array([[1.0], [0.5], [0.0]])) * x[1] + 0.1 * x[2])
    return np.concatenate([model.coef_.ravel(), np.ravel(model.intercept_)])


def effective_samples(x):
    chains = RNG_CHAINS * x[0] + np.sin(np.arange(50) * x[1]) * x[2]
    stats = arviz_stats.base.array_stats
    return np.concatenate(
        [
            np.ravel(stats.ess(chains, method="mean")),
            np.ravel(stats.rhat(chains, method="split")),
            np.ravel(stats.mcse(chains, method="mean")),
        ]
    )


RNG_CHOICES = RNG.standard_normal((36, 2))
RNG_CHAINS = RNG.standard_normal((4, 50))
CALLS = [
    (f, POINT)
    for f in (
        likelihood_of_ranks,
        super_gaussian,
        calibrated_forecasts,
        conformal_intervals,
        choice_model,
        meta_analysis,
        risks,
        inequalities,
        trips,
        forecast_scores,
        risk_of_portfolio,
        performance,
        images_of_diagrams,
        measured_errors,
        denoised_signal,
        sparse_solution,
        thresholded,
        life_times,
        heart_signal,
        complexity,
        cepstrum,
        scattered_signal,
        channel,
        promising_point,
        gridded_data,
        loss_of_groups,
        effective_samples,
    )
]
