import nestle
import numpy as np
import picard
import powerlaw
import radioactivedecay
from bayespy.inference import VB
from bayespy.nodes import Dirichlet, Gamma, Gaussian, GaussianARD, SumMultiply, Wishart
from factor_analyzer import FactorAnalyzer, Rotator, calculate_bartlett_sphericity, calculate_kmo
from factor_analyzer.utils import partial_correlations, smc
from metric_learn import NCA
from mlxtend.feature_extraction import LinearDiscriminantAnalysis, PrincipalComponentAnalysis
from mlxtend.preprocessing import minmax_scaling, standardize
from mlxtend.regressor import LinearRegression
from picard import densities
from pymbar import mbar_solvers, other_estimators, timeseries
from resample import bootstrap, empirical, jackknife

rng = np.random.default_rng(5)
work = rng.normal(size=12)
base = rng.normal(size=(12, 3)) @ np.array([[1.0, 0.4, 0.1], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]])
classes = np.arange(12) % 3


def acceptance_ratio(x):
    return other_estimators.bar(work + x[0], x[1] * work[::-1] - 0.3, relative_tolerance=1e-13)["Delta_f"]


def exponential_average(x):
    found = other_estimators.exp(x * 1.2)
    return np.array([found["Delta_f"], found["dDelta_f"], other_estimators.exp_gauss(x)["Delta_f"]])


def mbar_objective(x):
    u = np.reshape(x, (2, 6)) ** 2
    n, f = np.array([3, 3]), np.array([0.1, -0.2])
    return np.concatenate([[mbar_solvers.mbar_objective(u, n, f)], mbar_solvers.mbar_gradient(u, n, f),
                           mbar_solvers.self_consistent_update(u, n, f)])  # fmt: skip


def inefficiency(x):
    return timeseries.statistical_inefficiency(x, mintime=2)


def weighted_moments(x):
    mean, cov = nestle.mean_and_cov(base, np.exp(x) / np.sum(np.exp(x)))
    return np.concatenate([mean, np.ravel(cov)])


def ellipsoid(x):
    found = nestle.bounding_ellipsoid(base + x[0] * np.sin(base), pointvol=0.1)
    return np.concatenate([[found.vol], found.ctr, np.ravel(found.a)])


def ica_likelihood(x):
    tanh, exp = densities.Tanh(), densities.Exp()
    return np.concatenate([tanh.log_lik(x), exp.log_lik(x), tanh.score_and_der(x[None])[0].ravel()])


def separated(x):
    source = np.stack(
        [
            np.sign(np.sin(np.arange(60.0))) + 0.1 * np.sin(7 * np.arange(60.0)),
            np.cos(0.7 * np.arange(60.0)) ** 3,
        ]
    )
    mixed = np.array([[1.0, x[0]], [x[1], 1.0]]) @ source
    found = picard.picard(mixed, w_init=np.eye(2), whiten=True, tol=1e-12, max_iter=200, ortho=True)[2]
    return np.sum(found**4, axis=1)


def principal(x):
    found = PrincipalComponentAnalysis(n_components=2).fit(base + x[0] * np.sin(base))
    return np.concatenate([found.e_vals_, np.abs(found.w_[:, 0])])


def discriminant(x):
    found = LinearDiscriminantAnalysis(n_discriminants=1).fit(base + classes[:, None] * x, classes)
    return np.abs(found.w_[:, 0])


def scaled(x):
    data = np.reshape(x, (4, 3))
    return np.concatenate(
        [np.ravel(minmax_scaling(data, columns=[0, 1])), np.ravel(standardize(data, columns=[0, 2]))]
    )


def regressed(x):
    found = LinearRegression(method="direct").fit(base, x)
    return np.append(found.w_, found.b_)


def neighbourhood_components(x):
    model = NCA()
    model.n_iter_ = 1
    mask = classes[:, None] == classes[None]
    return model._loss_grad_lbfgs(x, base, mask, -1.0)[0]


def kaiser_meyer_olkin(x):
    data = base + x[0] * np.sin(3 * base)
    return np.concatenate([calculate_kmo(data)[0], calculate_bartlett_sphericity(data)])


def maximum_likelihood_factors(x):
    psi = x**2
    corr = np.corrcoef(np.concatenate([base, base[::-1] ** 2], axis=1), rowvar=False)
    return FactorAnalyzer._fit_ml_objective(psi, corr, 2)


def rotated(x):
    return np.ravel(
        np.abs(Rotator(method="varimax", tol=1e-14, max_iter=1000).fit_transform(np.reshape(x, (6, 2))))
    )


def partial(x):
    import pandas as pd

    data = pd.DataFrame(np.reshape(x, (4, 3)))
    return np.concatenate(
        [np.ravel(partial_correlations(data)), np.ravel(smc(np.eye(3) + 0.1 * np.ones((3, 3)) * x[0]))]
    )


def heavy_tails(x):
    data = np.array([1.5, 2.0, 3.7, 8.0])
    return np.concatenate([powerlaw.Power_Law(xmin=1.0, parameters=[x[0]]).pdf(data),
                           powerlaw.Exponential(xmin=1.0, parameters=[x[1]]).cdf(data),
                           powerlaw.Lognormal(xmin=1.0, parameters=[x[2], x[3]]).loglikelihoods(data)])  # fmt: skip


def stretched(x):
    data = np.array([1.5, 2.0, 3.7, 8.0])
    return np.concatenate([powerlaw.Stretched_Exponential(xmin=1.0, parameters=[x[0], x[1]]).pdf(data),
                           powerlaw.Truncated_Power_Law(xmin=1.0, parameters=[x[2], x[3]]).pdf(data)])  # fmt: skip


def jackknifed(x):
    return np.array(
        [
            jackknife.variance(np.std, x),
            jackknife.bias(np.var, x),
            *jackknife.bias_corrected(np.cov, x).ravel(),
        ]
    )


def bootstrapped(x):
    return np.array([bootstrap.variance(np.mean, x, size=20, random_state=1),
                     *bootstrap.confidence_interval(np.mean, x, size=20, random_state=1, ci_method="bca")])  # fmt: skip


def quantile_function(x):
    return np.append(
        empirical.quantile_function_gen(x)(np.array([0.2, 0.5, 0.9])), empirical.influence(np.var, x)
    )


def variational_mean(x):
    mu, tau = GaussianARD(0, 1e-3), Gamma(1e-3, 1e-3)
    y = GaussianARD(mu, tau, plates=(12,))
    y.observe(x)
    q = VB(mu, tau, y)
    q.update(repeat=20, verbose=False, tol=0.0)
    return np.concatenate(
        [np.ravel(mu.get_moments()[0]), np.ravel(tau.get_moments()[0]), [q.loglikelihood_lowerbound()]]
    )


def variational_factors(x):
    w = GaussianARD(0, 1, shape=(2,), plates=(3, 1))
    z = GaussianARD(0, 1, shape=(2,), plates=(1, 4))
    y = GaussianARD(SumMultiply("i,i", w, z), 2.0)
    w.initialize_from_value(np.cos(np.arange(6.0)).reshape(3, 1, 2))
    y.observe(np.reshape(x, (3, 4)))
    q = VB(w, z, y)
    q.update(repeat=5, verbose=False, tol=0.0)
    return q.loglikelihood_lowerbound()


def variational_precision(x):
    precision = Wishart(3, np.eye(2))
    y = Gaussian(np.zeros(2), precision, plates=(6,))
    y.observe(np.reshape(x, (6, 2)))
    precision.update()
    return np.concatenate(
        [np.ravel(precision.get_moments()[0]), np.ravel(Dirichlet(x[:3] ** 2 + 0.1).get_moments()[0])]
    )


def decay(x):
    inventory = radioactivedecay.Inventory({"Mo-99": x[0], "I-131": x[1]}, "Bq")
    return np.array(list(inventory.decay(x[2], "h").activities().values()))


CALLS = [
    (acceptance_ratio, np.array([0.7, 0.9])),
    (exponential_average, work),
    (mbar_objective, work),
    (inefficiency, np.cumsum(work) * 0.3),
    (weighted_moments, work),
    (ellipsoid, np.array([0.3])),
    (ica_likelihood, work),
    (separated, np.array([0.4, -0.3])),
    (principal, np.array([0.3])),
    (discriminant, np.array([0.3, 0.7, -0.4])),
    (scaled, work),
    (regressed, work),
    (neighbourhood_components, rng.normal(size=9)),
    (kaiser_meyer_olkin, np.array([0.3])),
    (maximum_likelihood_factors, np.array([0.6, 0.7, 0.5, 0.8, 0.55, 0.65])),
    (rotated, work),
    (partial, work),
    (heavy_tails, np.array([2.5, 0.4, 0.7, 1.1])),
    (stretched, np.array([0.5, 0.8, 1.6, 0.1])),
    (jackknifed, work),
    (bootstrapped, work),
    (quantile_function, work),
    (variational_mean, work),
    (variational_factors, work),
    (variational_precision, work),
    (decay, np.array([2.0, 3.0, 20.0])),
]
