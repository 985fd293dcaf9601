import warnings

import numpy as np
from sklearn.covariance import empirical_covariance, log_likelihood
from sklearn.datasets import make_regression
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, RationalQuadratic, WhiteKernel
from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import log_loss, mean_squared_error, r2_score
from sklearn.metrics.pairwise import cosine_similarity, euclidean_distances, polynomial_kernel, rbf_kernel
from sklearn.mixture import GaussianMixture
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import (
    MinMaxScaler,
    PolynomialFeatures,
    PowerTransformer,
    StandardScaler,
    normalize,
    scale,
)

X, y = make_regression(12, 3, noise=1.0, random_state=0)
y = y / 50
A = X[:4]
b = (y > 0).astype(int)
gp = GaussianProcessRegressor(1.0 * RBF(1.0) + WhiteKernel(0.1), optimizer=None).fit(X, y)
mixture = GaussianMixture(2, random_state=0).fit(X)
logistic = LogisticRegression().fit(X, b)
net = MLPRegressor(hidden_layer_sizes=(5,), activation="tanh", max_iter=20, random_state=0)
with warnings.catch_warnings(action="ignore"):
    net.fit(X, y)
scaler = StandardScaler().fit(X)
power = PowerTransformer().fit(X)


def squared_error(x):
    return mean_squared_error(y, x)


def r_squared(x):
    return r2_score(y, x)


def cross_entropy(x):
    return log_loss(b, x)


def distances(x):
    return euclidean_distances(x, X)


def gaussian_kernel(x):
    return rbf_kernel(x, X, gamma=0.3)


def cosine(x):
    return cosine_similarity(x, X)


def poly_kernel(x):
    return polynomial_kernel(x, X, degree=2)


def scaled(x):
    return scale(x)


def unit_rows(x):
    return normalize(x)


def standardised(x):
    return scaler.transform(x)


def min_max(x):
    return MinMaxScaler().fit_transform(x)


def features(x):
    return PolynomialFeatures(2).fit_transform(x)


def power_transform(x):
    return power.transform(x)


def ridge_fit(x):
    return Ridge(alpha=0.5).fit(X, x).coef_


def linear_fit(x):
    return LinearRegression().fit(X, x).predict(A)


def bayesian_ridge(x):
    return BayesianRidge(max_iter=2).fit(X, x).coef_


def gp_kernel(x):
    return (ConstantKernel(2.0) * RBF(1.5) + WhiteKernel(0.1))(x)


def gp_matern(x):
    return Matern(1.2, nu=1.5)(x, X)


def gp_rational(x):
    return RationalQuadratic(1.2, 0.7)(x, X)


def gp_predict(x):
    return gp.predict(x)


def gp_std(x):
    return gp.predict(x, return_std=True)[1]


def gp_likelihood(x):
    return gp.log_marginal_likelihood(x)


def mixture_score(x):
    return mixture.score_samples(x)


def probabilities(x):
    return logistic.predict_proba(x)


def network(x):
    return net.predict(x)


def covariance(x):
    return empirical_covariance(x)


def gaussian_likelihood(x):
    return log_likelihood(empirical_covariance(X), x @ x.T + np.eye(3))


CALLS = [
    (squared_error, y + 0.1), (r_squared, y + 0.1 * X[:, 0]), (cross_entropy, np.linspace(0.2, 0.8, 12)),
    (distances, A + 0.1),
    (gaussian_kernel, A + 0.1), (cosine, A), (poly_kernel, A), (scaled, A), (unit_rows, A), (standardised, A),
    (min_max, A), (features, A),
    (power_transform, A), (ridge_fit, y), (linear_fit, y), (bayesian_ridge, y), (gp_kernel, A), (gp_matern,
    A + 0.1), (gp_rational, A),
    (gp_predict, A + 0.1), (gp_std, A + 0.1), (gp_likelihood, np.array([0.1, 0.2, -1.0])), (mixture_score, A),
    (probabilities, A),
    (network, A), (covariance, A), (gaussian_likelihood, X[:3]),
]  # fmt: skip
