import HydroErr as he
import numpy as np
import pwlf

rng = np.random.default_rng(13)
observed = 2 + np.abs(rng.normal(size=20))
wave = observed + 0.3 * rng.normal(size=20)
points = np.sort(rng.uniform(0, 10, 30))
heights = np.abs(points - 4) + 0.1 * rng.normal(size=30)


def simulated(x):
    return wave * x[0] + x[1]


def kling_gupta(x):
    return he.kge_2012(simulated(x), observed) + he.kge_2009(simulated(x), observed)


def efficiencies(x):
    return np.array([f(simulated(x), observed) for f in (he.nse, he.nse_mod, he.nse_rel, he.lm_index, he.ve)])


def squares(x):
    return np.array([f(simulated(x), observed) for f in (he.rmse, he.rmsle, he.nrmse_iqr, he.mdse, he.irmse)])


def absolutes(x):
    return np.array(
        [f(simulated(x), observed) for f in (he.mae, he.mape, he.smape1, he.maape, he.mase, he.male)]
    )


def agreements(x):
    return np.array([f(simulated(x), observed) for f in (he.d, he.d1, he.dr, he.dmod, he.watt_m, he.mb_r)])


def spectra(x):
    return np.array([f(simulated(x), observed) for f in (he.sa, he.sc, he.sid, he.sga)])


def correlations(x):
    return np.array([f(simulated(x), observed) for f in (he.pearson_r, he.r_squared, he.acc)])


def harmonics(x):
    return np.array([f(simulated(x), observed) for f in (he.h1_mhe, he.h5_mahe, he.h10_rmshe, he.ed, he.ned)])


def lines(x):
    model = pwlf.PiecewiseLinFit(points, heights * x[0])
    model.fit_with_breaks(np.array([0.0, 4 + x[1] / 10, 10.0]))
    return model.predict(np.linspace(1, 9, 7))


def residuals(x):
    model = pwlf.PiecewiseLinFit(points, heights)
    return model.fit_with_breaks(np.array([0.0, 3 + x[0], 7 + x[1], 10.0]))


def through_a_point(x):
    model = pwlf.PiecewiseLinFit(points, heights * x[0])
    model.fit_with_breaks_force_points([0.0, 4.0, 10.0], [0.0], [4 + x[1]])
    return model.predict(np.linspace(1, 9, 7))


def quadratic(x):
    model = pwlf.PiecewiseLinFit(
        points, heights + x[0] * points**2, degree=2, weights=np.linspace(1, 2, 30) * x[1]
    )
    model.fit_with_breaks([0.0, 4.0, 10.0])
    return np.concatenate([model.beta, model.predict([2.0, 5.0])])


def errors(x):
    model = pwlf.PiecewiseLinFit(points, heights * x[0] + x[1] * points)
    model.fit_with_breaks([0.0, 4.0, 10.0])
    return np.concatenate(
        [model.standard_errors(), model.prediction_variance(np.array([2.0, 5.0])), [model.r_squared()]]
    )


CALLS = [
    (f, [0.9, 0.4])
    for f in (kling_gupta, efficiencies, squares, absolutes, agreements, spectra, correlations, harmonics, lines, residuals,
              through_a_point, quadratic, errors)
]  # fmt: skip
