import ahrs
import numpy as np
from ahrs import DCM, Quaternion
from ahrs.common.orientation import q2R, q_prod

v = np.array([0.9, 0.2, 0.3, 0.1])


def matrix(x):
    return q2R(x)


def multiplied(x):
    return q_prod(x, np.array([0.8, 0.1, 0.1, 0.5]))


def quaternion(x):
    return Quaternion(x).to_angles()


def from_angles(x):
    return DCM(rpy=x[:3]) @ np.ones(3)


def tilt(x):
    return ahrs.filters.Tilt().estimate(acc=x[:3])


CALLS = [(f, v) for f in (matrix, multiplied, quaternion, from_angles, tilt)]
