import numpy as np
from dynesty.bounding import Ellipsoid
from dynesty.utils import mean_and_cov, quantile


def moments(x):
    return mean_and_cov(x, np.array([0.2, 0.3, 0.5]))[1]


def quantiles(x):
    return quantile(x[:, 0], [0.3, 0.6], weights=np.array([0.2, 0.3, 0.5]))


def ellipsoid(x):
    return Ellipsoid(2, np.zeros(2), x.T @ x + np.eye(2)).distance(np.ones(2))


def volume(x):
    return Ellipsoid(2, np.zeros(2), x.T @ x + np.eye(2)).logvol


p = np.array([[0.3, 0.4], [0.2, 0.7], [0.9, 0.1]])
CALLS = [(f, p) for f in (moments, quantiles, ellipsoid, volume)]
