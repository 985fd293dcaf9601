import numpy as np
from filterpy.common import Q_discrete_white_noise
from filterpy.gh import GHFilter
from filterpy.kalman import (
    ExtendedKalmanFilter,
    KalmanFilter,
    MerweScaledSigmaPoints,
    UnscentedKalmanFilter,
    update,
)
from filterpy.stats import gaussian, mahalanobis, multivariate_gaussian

z = np.array([1.0, 1.3, 1.9, 2.4])


def make():
    kf = KalmanFilter(dim_x=2, dim_z=1)
    kf.F, kf.H = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    kf.P *= 10.0
    return kf


def kalman_noise(x):
    kf = make()
    kf.R *= x[0]
    kf.Q = np.eye(2) * x[1]
    total = 0.0
    for v in z:
        kf.predict()
        kf.update(v)
        total = total + kf.log_likelihood
    return total


def kalman_data(x):
    kf = make()
    for v in x:
        kf.predict()
        kf.update(v)
    return kf.x[:, 0]


def batch(x):
    return make().batch_filter(x)[0][:, :, 0]


def white_noise(x):
    return Q_discrete_white_noise(dim=2, dt=0.1, var=x[0])


def step(x):
    return update(x[0], x[1], 1.2, 0.5)[0]


def density(x):
    return gaussian(x[0], 0.5, x[1])


def joint_density(x):
    return multivariate_gaussian(x, np.zeros(2), np.eye(2))


def distance(x):
    return mahalanobis(x, np.zeros(2), np.array([[2.0, 0.3], [0.3, 1.0]]))


def gh(x):
    f = GHFilter(x=0.0, dx=0.0, dt=1.0, g=0.8, h=0.2)
    return f.batch_filter(x)[:, 0]


def unscented(x):
    points = MerweScaledSigmaPoints(2, 0.1, 2.0, 1.0)
    kf = UnscentedKalmanFilter(
        2, 1, 1.0, lambda s: s[:1], lambda s, dt: np.array([s[0] + dt * s[1], s[1]]), points
    )
    kf.R *= x[0]
    kf.predict()
    kf.update(np.array([1.2]))
    return kf.x


def extended(x):
    kf = ExtendedKalmanFilter(2, 1)
    kf.R *= x[0]
    kf.predict_update(np.array([[x[1]]]), lambda s: np.array([[1.0, 0.5]]), lambda s: s[:1] + 0.5 * s[1:])
    return kf.x


p2 = np.array([0.7, 0.3])
CALLS = [
    (kalman_noise, p2), (kalman_data, z), (batch, z), (white_noise, p2), (step, p2), (density, p2),
    (joint_density, p2), (distance, p2),
    (gh, z), (unscented, p2), (extended, p2),
]  # fmt: skip
