import anaflow
import numpy as np
import simdkalman
from anaflow.tools import K_CG, T_CG, TPL_CG, annular_hmean, get_lap_inv
from utide import reconstruct, solve
from utide.ellipse_params import ut_cs2cep
from utide.periodogram import _psd_lomb
from utide.robustfit import leverage, robustfit

radii = np.array([1.0, 3.0, 9.0])


def thiem(x):
    return anaflow.thiem(radii, 50.0, x[0], x[1])


def theis(x):
    return anaflow.theis(np.array([100.0, 1000.0]), radii, x[0], x[1], -1e-3)


def bounded_aquifer(x):
    return anaflow.theis(np.array([1000.0]), radii, x[0], x[1], -1e-3, r_bound=200.0)


def radial_flow(x):
    return anaflow.grf(np.array([100.0]), radii, x[0], x[1], dim=2.5, rate=-1e-3)


def heterogeneous_steady(x):
    return 1e3 * anaflow.ext_thiem_2d(radii, 50.0, 1e-4 * x[0], x[1], x[2], rate=-1e-4)


def heterogeneous(x):
    return 1e3 * anaflow.ext_theis_2d(
        np.array([100.0]), radii, 1e-3, 1e-4 * x[0], x[1], x[2], rate=-1e-4, parts=10
    )


def neuman(x):
    return 1e3 * anaflow.neuman2004_steady(radii, 50.0, 1e-4 * x[0], x[1], x[2])


def coarse_graining(x):
    return np.concatenate([1e4 * T_CG(radii, 1e-4 * x[0], x[1], x[2]), 1e4 * K_CG(radii, 1e-4 * x[0], x[1], x[2], 0.7),
                           1e4 * TPL_CG(radii, 1e-4 * x[0], x[2], 0.5, x[1])])  # fmt: skip


def laplace_inverse(x):
    f = get_lap_inv(lambda s: x[0] / (s * (s + x[1])))
    return f(np.array([0.5, 1.0, 2.0]))


def harmonic_mean(x):
    return annular_hmean(lambda r: x[0] + x[1] * r**2, np.array([1.0, 2.0, 4.0]))


times = np.arange(0.0, 20.0, 1 / 24)
level = 1.2 * np.cos(2 * np.pi * 1.9322736 * times - 0.4) + 0.5 * np.cos(2 * np.pi * 2.0 * times + 0.7)


def fitted_tide(x):
    data = level * x[0] + x[1] * np.sin(2 * np.pi * 0.93 * times) + 0.1 * x[1] ** 2 * np.cos(times)
    found = solve(times, data, lat=45.0, method="ols", conf_int="none", constit=["M2", "S2", "O1"], trend=True,
                  verbose=False, epoch="2000-01-01")  # fmt: skip
    return np.concatenate([found.A, [found.mean, found.slope]])


def robust_tide(x):
    data = level * x[0] + x[1] * np.sin(2 * np.pi * 0.93 * times) + 0.1 * x[1] ** 2 * np.cos(times)
    found = solve(times, data, lat=45.0, method="robust", conf_int="linear", constit=["M2", "S2", "O1"], trend=False,
                  verbose=False, epoch="2000-01-01")  # fmt: skip
    return np.concatenate([found.A, found.A_ci])


def hindcast(x):
    data = level * x[0] + x[1] * np.sin(2 * np.pi * 0.93 * times)
    found = solve(
        times,
        data,
        lat=45.0,
        method="ols",
        conf_int="none",
        constit=["M2", "S2"],
        verbose=False,
        epoch="2000-01-01",
    )
    return reconstruct(times[:6], found, epoch="2000-01-01", verbose=False).h


def ellipses(x):
    return np.array(ut_cs2cep(x[:2], x[2:4], x[4:6], x[6:8]))


def robust(x):
    design = np.stack([np.ones(8), np.arange(8.0), np.cos(np.arange(8.0))], axis=1)
    return robustfit(design, x, weight_function="cauchy", maxit=200, tol=1e-13).b


def leverages(x):
    return leverage(np.reshape(x, (6, 3)))


def lomb(x):
    return _psd_lomb(times[:30], np.resize(x, 30) ** 2).Pxx


KALMAN = dict(state_transition=[[1, 1], [0, 1]], process_noise=np.diag([0.1, 0.01]), observation_model=[[1, 0]],
              observation_noise=1.0)  # fmt: skip


def smoothed_levels(x):
    kf = simdkalman.KalmanFilter(**KALMAN)
    return kf.smooth(np.reshape(x, (2, 6)), initial_value=[1, 0]).observations.mean


def likelihood(x):
    kf = simdkalman.KalmanFilter(
        **{**KALMAN, "process_noise": np.diag([x[0], x[1]]), "observation_noise": x[2]}
    )
    return kf.compute(
        np.cos(np.arange(12.0)), 0, initial_value=[0.5, 0.1], log_likelihood=True
    ).log_likelihood


def forecast(x):
    kf = simdkalman.KalmanFilter(**{**KALMAN, "observation_noise": x[0] ** 2})
    out = kf.predict(x[1:], 3, initial_value=[0, 0.2])
    return np.concatenate([out.observations.mean, out.observations.cov])


def expectation_step(x):
    return simdkalman.KalmanFilter(**KALMAN).em(np.reshape(x, (2, 6)), n_iter=2).observation_noise


series = np.cos(np.arange(12.0)) + 0.1 * np.arange(12.0)
CALLS = [
    (thiem, np.array([1e-4, -1e-4])),
    (theis, np.array([1e-3, 1e-4])),
    (bounded_aquifer, np.array([1e-3, 1e-4])),
    (radial_flow, np.array([1e-3, 1e-4])),
    (heterogeneous_steady, np.array([1.0, 0.5, 10.0])),
    (heterogeneous, np.array([1.0, 0.5, 10.0])),
    (neuman, np.array([1.0, 0.5, 10.0])),
    (coarse_graining, np.array([1.0, 0.5, 10.0])),
    (laplace_inverse, np.array([2.0, 1.5])),
    (harmonic_mean, np.array([2.0, 1.5])),
    (fitted_tide, np.array([1.0, 0.3])),
    (robust_tide, np.array([1.0, 0.3])),
    (hindcast, np.array([1.0, 0.3])),
    (ellipses, np.array([1.0, 0.3, 0.4, 0.2, -0.3, 0.5, 0.6, 0.1])),
    (robust, np.array([1.0, 1.4, 1.1, 2.2, 3.0, 6.1, 4.0, 4.2])),
    (leverages, np.cos(1.7 * np.arange(18.0) ** 1.3)),
    (lomb, np.array([1.0, 0.2, 0.7, -0.4, 0.3])),
    (smoothed_levels, series),
    (likelihood, np.array([0.2, 0.05, 0.9])),
    (forecast, series[:8] + 1),
    (expectation_step, series),
]
