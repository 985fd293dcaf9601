import nashpy
import numpy as np
import pingouin
import pysindy
from copulas.bivariate import Clayton, Frank
from copulas.univariate import GaussianUnivariate
from skopt.benchmarks import branin
from spreg import OLS, TSLS

rng = np.random.default_rng(2)
y = rng.normal(size=20)
X = rng.normal(size=(20, 2))
Z = X[:, 1:] + 0.3 * rng.normal(size=(20, 1))
sizes = np.array([0.4, 0.7, 1.3])


def spatial_ols(x):
    return OLS(x[:, None], X).betas


def spatial_two_stage(x):
    return TSLS(x[:, None], X[:, :1], yend=X[:, 1:], q=Z).betas


def effect_size(x):
    return pingouin.compute_effsize(x[:10], x[10:], eftype="hedges")


def t_statistic(x):
    return float(pingouin.ttest(x[:10], x[10:])["T"].iloc[0])


def multivariate(x):
    return float(pingouin.multivariate_ttest(x.reshape(10, 2))["T2"].iloc[0])


def clayton(x):
    copula = Clayton()
    copula.theta = x[2]
    return copula.cumulative_distribution(x[None, :2])


def frank(x):
    copula = Frank()
    copula.theta = x[2]
    return copula.probability_density(x[None, :2])


def fitted_normal(x):
    law = GaussianUnivariate()
    law.fit(x)
    return law.log_probability_density(np.array([0.1, 0.3]))


def game(x):
    return nashpy.Game(np.outer(x, x), np.eye(3))[np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.1, 0.4])]


def replicator(x):
    return nashpy.Game(np.diag(x)).replicator_dynamics(
        y0=np.array([0.3, 0.3, 0.4]), timepoints=np.linspace(0, 1, 3)
    )


def sparse_dynamics(x):
    data = x.reshape(10, 2)
    return pysindy.FiniteDifference()(data, 0.1)


def thresholded(x):
    model = pysindy.STLSQ(threshold=0.01, alpha=0.1)
    model.fit(X, x[:, None])
    return model.coef_


def library(x):
    return np.asarray(pysindy.PolynomialLibrary(degree=2).fit_transform(x.reshape(10, 2)))


def test_function(x):
    return branin(x[:2])


CALLS = [
    (f, y)
    for f in (
        *(spatial_ols, spatial_two_stage, effect_size, t_statistic, multivariate, fitted_normal),
        *(sparse_dynamics, thresholded, library),
    )
]
CALLS += [(f, sizes) for f in (clayton, frank, game, replicator, test_function)]
