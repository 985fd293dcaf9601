import numpy as np
from pykalman import KalmanFilter, UnscentedKalmanFilter

z = np.array([1.0, 1.3, 1.9, 2.4])


def likelihood(x):
    return KalmanFilter(transition_matrices=x[0] * np.eye(1), observation_matrices=np.eye(1)).loglikelihood(z)


def filtered(x):
    return KalmanFilter(transition_matrices=np.eye(1), observation_matrices=np.eye(1)).filter(x)[0]


def smoothed(x):
    return KalmanFilter(np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])).smooth(x)[0]


def masked(x):
    data = np.ma.array(z, mask=[False, True, False, False])
    return KalmanFilter(np.eye(1) * x[0], np.eye(1), observation_covariance=np.eye(1) * x[1]).filter(data)[0]


def unscented(x):
    return UnscentedKalmanFilter(
        lambda s, w: np.sin(s) + w, lambda s, v: s + v, observation_covariance=0.1
    ).filter(x)[0]


p2 = np.array([0.9, 0.5])
CALLS = [(likelihood, p2), (filtered, z), (smoothed, z), (masked, p2), (unscented, z)]
