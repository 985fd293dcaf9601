"""Densities, regressions with a jump, hidden states, decisions, queues, options, losses, rhythms, brains, weather, wind."""

import ahpy
import brightwind
import chainladder
import chaosmagpy.model_utils
import csep.core.poisson_evaluations
import doubleml
import elephant.signal_processing
import fooof.analysis.error
import fooof.sim.gen
import getdist.gaussian_mixtures
import gwinc
import hoggorm
import inequalipy
import lpdensity
import mcdm
import neo
import nilearn.signal
import nprobust
import numpy as np
import openfermion
import optionlab.black_scholes
import pandas as pd
import particles.distributions
import particles.hmm
import particles.kalman
import particles.state_space_models
import powerbox
import pyatmos
import pyddm
import pylcp
import pyqueueing
import pyts.approximation
import pyts.decomposition
import pyts.metrics
import quantities
import rdrobust
import rsatoolbox
import scipy.optimize
import sklearn.linear_model
import sklearn.pipeline
import specutils
import specutils.analysis
import tensorpac.methods
import tsfresh.feature_extraction.feature_calculators as features
import weibull
import wfdb.processing
import wotan
import xarray
import xgcm
from astropy import units as u
from tenpy.linalg import np_conserved
from tenpy.models.tf_ising import TFIChain
from tenpy.networks.mps import MPS

POINT = np.array([1.1, 0.9, 1.2])
RNG = np.random.default_rng(20)
NOISE = RNG.standard_normal(200)
AMOUNTS = RNG.uniform(0.5, 3.0, 40)


def density_at_points(x):
    found = lpdensity.lpdensity(NOISE * x[0] + x[1], grid=np.array([0.5, 1.2]), bw=0.8 * x[2])
    return found.Estimate[["f_p", "se_p"]].to_numpy(float).ravel()


def local_regression(x):
    t = np.sort(AMOUNTS)
    found = nprobust.lprobust(
        np.sin(t * x[0]) * x[1] + 0.1 * NOISE[:40], t, eval=np.array([1.2, 2.0]), h=0.9, bwcheck=None
    )
    return np.asarray(found.Estimate)[:, 4:6].astype(float).ravel() * x[2]


def jump_at_threshold(x):
    y = np.where(NOISE > 0, 1.0 * x[0], 0.0) + 0.5 * x[1] * NOISE + 0.1 * x[2] * np.roll(NOISE, 3)
    found = rdrobust.rdrobust(y, NOISE, c=0.0, h=1.0)
    return np.concatenate([found.coef.to_numpy().ravel(), found.se.to_numpy().ravel()])


def kalman_likelihood(x):
    model = particles.kalman.LinearGauss(rho=0.8 * x[1], sigmaX=0.5 * x[0], sigmaY=0.3 * x[2], sigma0=1.0)
    filtered = particles.kalman.Kalman(ssm=model, data=NOISE[:15])
    filtered.filter()
    return np.hstack(filtered.logpyt)


def hidden_chain(x):
    transitions = np.array([[0.9, 0.1], [0.2, 0.8]])
    model = particles.hmm.GaussianHMM(
        mus=np.array([-1.0 * x[0], 1.2 * x[1]]), sigmas=np.array([0.8, 1.0 * x[2]]), trans_mat=transitions
    )
    run = particles.hmm.BaumWelch(hmm=model, data=NOISE[:20])
    run.run()
    return np.concatenate([np.hstack(run.logpyt), np.ravel(run.smth)[::9]])


def laws_of_particles(x):
    laws = [
        particles.distributions.Student(df=4.0 * x[0], loc=0.1, scale=x[1]),
        particles.distributions.LogNormal(mu=0.2, sigma=0.7 * x[2]), particles.distributions.InvGamma(a=2.0 * x[0], b=x[1]),
        particles.distributions.TruncNormal(mu=1.0, sigma=x[2], a=0.0, b=3.0),
        particles.distributions.MvNormal(loc=np.zeros(1), scale=x[0], cov=np.eye(1)),
    ]  # fmt: skip
    points = np.array([0.4, 1.1, 2.0])
    return np.concatenate(
        [np.ravel(law.logpdf(points if k < 4 else points[:, None])) for k, law in enumerate(laws)]
    )


def best_choice(x):
    table = np.array(
        [[0.5 * x[0], 0.8, 0.3], [0.6, 0.4 * x[1], 0.9], [0.2, 0.7, 0.6 * x[2]], [0.9, 0.5, 0.4]]
    )
    found = []
    for scoring in ("SAW", "TOPSIS", "MEW"):
        ranks = mcdm.rank(
            table, alt_names=["a", "b", "c", "d"], n_method="Linear2", w_method="CRITIC", s_method=scoring
        )
        found += [score for _, score in sorted(ranks)]
    return np.array(found)


def pairwise_weights(x):
    compared = {("a", "b"): 3.0 * x[0], ("a", "c"): 5.0 * x[1], ("b", "c"): 2.0 * x[2]}
    found = ahpy.Compare("criteria", compared, precision=12)
    return np.array([found.target_weights[k] for k in "abc"])


def inequality(x):
    incomes = AMOUNTS ** x[0]
    return np.array(
        [inequalipy.gini(incomes), inequalipy.atkinson.index(incomes, 0.5 * x[1]), inequalipy.kolmpollak.ede(incomes, kappa=-0.5 * x[2])]
    )  # fmt: skip


def queues(x):
    few = pyqueueing.ErlangC(3.0 * x[0], 1.0 * x[1], 6)
    one = pyqueueing.MM1(0.5 * x[0], 1.0 * x[2])
    return np.array([few.prob_wait(), one.mean_queue_length()])


def option_book(x):
    strikes = np.array([90.0, 100.0, 115.0])
    found = optionlab.black_scholes.get_bs_info(100.0 * x[0], strikes, 0.03 * x[1], 0.25 * x[2], 0.7)
    return np.concatenate(
        [found.call_price, found.put_delta, found.gamma, found.call_theta, np.ravel(found.vega)]
    )


def reserves(x):
    claims = np.array(
        [[100.0, 150.0, 170.0 * x[0]], [110.0, 168.0 * x[1], np.nan], [120.0 * x[2], np.nan, np.nan]]
    )
    rows = [
        {"origin": 2001 + i, "development": 2001 + i + j, "loss": claims[i, j]}
        for i in range(3)
        for j in range(3 - i)
    ]
    triangle = chainladder.Triangle(
        pd.DataFrame(rows), origin="origin", development="development", columns="loss", cumulative=True
    )
    return np.ravel(chainladder.Chainladder().fit(triangle).ultimate_.values)


def earthquakes_forecast(x):
    rates = np.exp(NOISE[:20]) * x[0] + 0.1 * x[1]
    counts = np.round(AMOUNTS[:20])
    return np.array(
        [
            csep.core.poisson_evaluations.poisson_joint_log_likelihood_ndarray(
                np.log(rates) @ counts, counts, np.sum(rates) * x[2]
            )
        ]
    )


def treatment(x):
    d = NOISE[:80] * x[0] + np.roll(NOISE, 5)[:80]
    y = 0.5 * d * x[1] + np.roll(NOISE, 5)[:80] * x[2] + 0.2 * NOISE[100:180]
    data = doubleml.DoubleMLData.from_arrays(np.roll(NOISE, 5)[:80, None], y, d)
    linear = sklearn.linear_model.LinearRegression()
    model = doubleml.DoubleMLPLR(data, linear, linear, n_folds=2, draw_sample_splitting=False)
    model.set_sample_splitting([(np.arange(40), np.arange(40, 80)), (np.arange(40, 80), np.arange(40))])
    model.fit()
    return np.concatenate([model.coef, model.se])


def field_of_channel(x):
    signal = neo.AnalogSignal(
        NOISE[:64].reshape(32, 2) * x[0] + x[1], units="mV", sampling_rate=100 * quantities.Hz
    )
    scored = elephant.signal_processing.zscore(signal, inplace=False)
    return np.concatenate(
        [
            np.asarray(scored.magnitude).ravel()[::9],
            np.asarray(signal.rectify().magnitude).ravel()[::9] * x[2],
        ]
    )


def aperiodic(x):
    frequencies, power = fooof.sim.gen.gen_power_spectrum(
        [2, 30], [1.0 * x[0], 1.2 * x[1]], [10.0 * x[2], 0.4, 1.0], nlv=0.0
    )
    model = fooof.sim.gen.gen_model(frequencies, np.array([1.0, 1.1]), np.array([[10.0, 0.5, 1.2]]))
    return np.concatenate(
        [np.log10(power)[::8], [fooof.analysis.error.compute_pointwise_error(model, np.log10(power)).sum()]]
    )


def coupling_of_phases(x):
    phase = np.cumsum(0.3 * x[0] + 0.1 * np.abs(NOISE[:60]))[None, None] % (2 * np.pi)
    amplitude = 1.5 + x[1] * np.cos(phase) + 0.1 * x[2] * NOISE[60:120]
    return np.array(
        [
            np.ravel(f(phase, amplitude))[0]
            for f in (tensorpac.methods.mean_vector_length, tensorpac.methods.phase_locking_value)
        ]
    )


def dissimilarities(x):
    patterns = NOISE[:24].reshape(4, 6) * x[0] + np.outer(np.arange(4.0), np.cos(np.arange(6.0) * x[1]))
    rdm = rsatoolbox.rdm.calc_rdm(rsatoolbox.data.Dataset(patterns), method="euclidean")
    other = rsatoolbox.rdm.calc_rdm(rsatoolbox.data.Dataset(patterns**2 * x[2]), method="correlation")
    return np.concatenate(
        [rdm.dissimilarities.ravel(), np.ravel(rsatoolbox.rdm.compare(rdm, other, method="cosine"))]
    )


def drift_diffusion(x):
    found = pyddm.analytic.analytic_ddm(0.8 * x[0], 1.0 * x[1], 1.1 * x[2], np.arange(0.1, 1.5, 0.2))
    return np.concatenate(found)


def cleaned_signals(x):
    series = NOISE[:120].reshape(40, 3) * x + np.arange(40.0)[:, None] / 9
    return nilearn.signal.clean(
        series,
        detrend=True,
        standardize=None,
        confounds=NOISE[120:160, None] * x[0] + np.cos(np.arange(40.0))[:, None],
    ).ravel()[::9]


def agreement(x):
    a, b = (
        NOISE[:40].reshape(10, 4) * x[0] + x[1],
        NOISE[40:80].reshape(10, 4) + 0.3 * NOISE[:40].reshape(10, 4) * x[2],
    )
    model = hoggorm.nipalsPCA(arrX=a, Xstand=False, numComp=2)
    return np.concatenate(
        [
            hoggorm.RVcoeff([a, b])[0],
            hoggorm.RV2coeff([a, b])[0],
            np.abs(model.X_scores()).ravel()[::4],
            [model.X_calExplVar()[0]],
        ]
    )


def slow_components(x):
    series = NOISE[:60].reshape(2, 30) * x[0] + x[1] * np.sin(np.arange(30.0) / 3 * x[2])
    return np.concatenate(
        [
            pyts.decomposition.SingularSpectrumAnalysis(window_size=4).fit_transform(series).ravel()[::13],
            pyts.approximation.PiecewiseAggregateApproximation(window_size=5).transform(series).ravel(),
        ]
    )


def warped_distance(x):
    return np.array([pyts.metrics.dtw(NOISE[:12] * x[0], NOISE[20:32] * x[1] + x[2] * 0.1)])


def features_of_series(x):
    s = NOISE[:60] * x[0] + x[1] * np.cos(np.arange(60.0) / 4 * x[2])
    return np.array(
        [
            features.abs_energy(s), features.autocorrelation(s, 3), features.c3(s, 2), features.cid_ce(s, True),
            features.kurtosis(s), features.mean_abs_change(s), features.skewness(s), features.time_reversal_asymmetry_statistic(s, 2),
            features.variation_coefficient(s), features.root_mean_square(s), features.quantile(s, 0.3),
        ]
    )  # fmt: skip


def heart_rate(x):
    beats = np.array([0.0, 80.0, 171.0, 260.0, 349.0, 433.0]) * x[0] + 3 * x[1]
    rr = wfdb.processing.calc_rr(beats, fs=100 * x[2], rr_units="seconds")
    return np.array(
        [
            wfdb.processing.calc_mean_hr(rr, rr_units="seconds"),
            *wfdb.processing.normalize_bound(NOISE[:5] * x[1]),
        ]
    )


def failures_fitted(x):
    found = weibull.Analysis(
        np.array([30.0, 45.0, 61.0, 80.0, 110.0]) * np.array([x[0], 1, x[1], 1, x[2]]), unit="h"
    )
    found.fit(method="lr")
    return np.array([found.beta, found.eta, found.mttf])


def quantum_noise(x):
    f = np.array([20.0, 100.0, 800.0])
    budget = gwinc.load_budget("aLIGO", freq=f)
    budget.ifo.Laser.Power = 100.0 * x[0]
    budget.ifo.Optics.SRM.Transmittance = 0.3 * x[1]
    return np.sqrt(budget.run().psd) * 1e23 * x[2]


def mean_of_galaxies(x):
    field = NOISE[:64].reshape(8, 8) * x[0] + x[1] * np.cos(np.arange(8.0) * x[2])
    return powerbox.get_power(field, boxlength=8.0, bins=4).power


def upper_air(x):
    return np.hstack(
        [np.hstack([a.rho, a.T, a.P]) for a in [pyatmos.coesa76(np.array([5.0, 20.0, 60.0]) * x)]]
    )


def field_of_earth(x):
    coefficients = np.array(
        [-29442.0 * x[0], -1501.0, 4797.0 * x[1], -2445.0, 3013.0, -2846.0, 1676.0 * x[2], -642.0]
    )
    found = chaosmagpy.model_utils.synth_values(coefficients, 6500.0, 40.0 * x[0], 20.0 * x[1])
    spectrum = chaosmagpy.model_utils.power_spectrum(coefficients, 6500.0 * x[2])
    return np.concatenate([np.ravel(found), np.ravel(spectrum) / 1e6])


def cooling_force(x):
    hg, bgq = pylcp.hamiltonians.singleF(F=0, gF=0, muB=1)
    he, beq = pylcp.hamiltonians.singleF(F=1, gF=1, muB=1)
    atom = pylcp.hamiltonian(hg, he, bgq, beq, pylcp.hamiltonians.dqij_two_bare_hyperfine(0, 1))
    beams = pylcp.laserBeams(
        [{"kvec": np.array([0, 0, s]), "pol": s, "delta": -2.0 * x[0], "s": 1.0 * x[1]} for s in (1.0, -1.0)],
        beam_type=pylcp.infinitePlaneWaveBeam,
    )
    rate = pylcp.rateeq(beams, pylcp.quadrupoleMagneticField(0.1), atom)
    rate.set_initial_position_and_velocity(np.array([0.0, 0.0, 0.3]), np.array([0.0, 0.0, 0.2 * x[2]]))
    return rate.force(
        np.array([0.0, 0.0, 0.3 * x[2]]),
        0.0,
        rate.equilibrium_populations(np.array([0.0, 0.0, 0.3 * x[2]]), np.array([0.0, 0.0, 0.2]), 0.0),
    )[0]


def hopping_energies(x):
    model = openfermion.QuadraticHamiltonian(
        np.array([[1.0 * x[0], 0.3, 0.1], [0.3, 0.5 * x[1], 0.2], [0.1, 0.2, -0.4 * x[2]]])
    )
    energies, constant = model.orbital_energies()
    return np.array([*energies, model.ground_energy(), constant])


def spin_chain(x):
    model = TFIChain({"L": 4, "J": 1.0 * x[0], "g": 0.7 * x[1], "bc_MPS": "finite", "conserve": None})
    state = MPS.from_product_state(model.lat.mps_sites(), [[0.8, 0.6], "up", [0.6, 0.8], "up"])
    return np.append(model.bond_energies(state), np_conserved.norm(model.H_bond[1]) * x[2])


def line_of_star(x):
    grid = np.linspace(6000.0, 6100.0, 40)
    flux = 1.0 - 0.5 * x[0] * np.exp(-(((grid - 6050.0) / (4.0 * x[1])) ** 2))
    spectrum = specutils.Spectrum(flux=flux * x[2] * u.Jy, spectral_axis=grid * u.AA)
    return np.array(
        [
            specutils.analysis.equivalent_width(spectrum, continuum=x[2] * u.Jy).value,
            specutils.analysis.line_flux(spectrum).value,
        ]
    )


def detrended_star(x):
    t = np.linspace(0.0, 5.0, 60)
    flux = 1.0 + 0.02 * x[0] * np.sin(t * x[1]) + 0.001 * x[2] * NOISE[:60]
    return np.concatenate(
        [
            wotan.flatten(t, flux, method=m, window_length=1.0)[5::9]
            for m in ("biweight", "mean", "savgol")[:2]
        ]
    )


def wind_of_site(x):
    speeds = pd.DataFrame({"low": 6.0 + AMOUNTS * x[0], "high": (6.0 + AMOUNTS * x[0]) * 1.2 * x[1]})
    found = brightwind.Shear.Average(speeds, heights=[40, 80])
    return np.array([found.alpha * x[2]])


def ocean_on_grid(x):
    data = xarray.Dataset(
        coords={"c": ("c", np.arange(8.0)), "g": ("g", np.arange(8.0) - 0.5)}, data_vars={"t": ("c", NOISE[:8] * x[0] + x[1] * np.arange(8.0))}
    )  # fmt: skip
    grid = xgcm.Grid(
        data, coords={"X": {"center": "c", "left": "g"}}, padding="periodic", autoparse_metadata=False
    )
    return np.concatenate([grid.interp(data.t, "X").values, grid.diff(data.t**2, "X").values * x[2]])


def mixture_of_chains(x):
    law = getdist.gaussian_mixtures.MixtureND(
        [[0.0, 0.5 * x[0]], [1.0, 0.2]],
        [np.diag([0.5, 0.4 * x[1]]), np.array([[0.3, 0.1], [0.1, 0.6]])],
        weights=[0.4, 0.6],
    )
    return np.array([law.pdf(np.array([0.3 * x[2], 0.4])), law.pdf(np.array([0.8, 0.1 * x[2]]))])


def decay_of_claims_and_options(x):
    prices = np.cumsum(NOISE[:60] * 0.1 * x[0]) + 5.0
    model = sklearn.pipeline.make_pipeline(sklearn.linear_model.Ridge(alpha=x[1]))
    model.fit(prices[:-2, None], prices[2:])
    spread = np.std(prices[2:] - model.predict(prices[:-2, None]))
    found = optionlab.black_scholes.get_bs_info(100.0, 105.0, 0.02, spread * x[2], 0.5)
    return np.array([found.call_price, features.cid_ce(prices, False)])


def likelihood_fitted(x):
    y = NOISE[:30] * x[0] + 0.3 * x[1]

    def cost(p):
        model = particles.kalman.LinearGauss(rho=p[0], sigmaX=np.exp(p[1]), sigmaY=0.5 * x[2], sigma0=1.0)
        run = particles.kalman.Kalman(ssm=model, data=y)
        run.filter()
        return -np.sum(np.hstack(run.logpyt))

    return scipy.optimize.minimize(cost, [0.1, 0.1], method="BFGS", options={"gtol": 1e-8}).x


CALLS = [
    (f, POINT)
    for f in (
        density_at_points, local_regression, jump_at_threshold, kalman_likelihood, hidden_chain, laws_of_particles,
        best_choice, pairwise_weights, inequality, queues, option_book, reserves, earthquakes_forecast, treatment,
        field_of_channel, aperiodic, coupling_of_phases, dissimilarities, drift_diffusion, cleaned_signals,
        agreement, slow_components, warped_distance, features_of_series, heart_rate,
        failures_fitted, quantum_noise, mean_of_galaxies, upper_air, field_of_earth,
        cooling_force, hopping_energies, spin_chain, line_of_star, detrended_star, wind_of_site,
        ocean_on_grid, mixture_of_chains, decay_of_claims_and_options, likelihood_fitted,
    )
]  # fmt: skip
