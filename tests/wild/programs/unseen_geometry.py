import numpy as np
from pymanopt.manifolds import Sphere, Stiefel, SymmetricPositiveDefinite
from spatialmath import SE3, UnitQuaternion
from spatialmath.base import rotx, rpy2tr, tr2rpy, trexp

v = np.array([0.3, 0.2, 0.5])


def rotation(x):
    return rotx(x[0])


def roll_pitch_yaw(x):
    return rpy2tr(x[0], x[1], x[2])


def angles(x):
    return tr2rpy(rpy2tr(x[0], x[1], x[2]))


def exponential(x):
    return trexp(np.r_[x, 0.1, 0.2, 0.3])


def pose(x):
    return (SE3.Rx(x[0]) * SE3(x[1], x[2], 0.5)).A


def quaternion(x):
    return (UnitQuaternion.Rx(x[0]) * UnitQuaternion.Ry(x[1])).vec


def sphere(x):
    return Sphere(3).exp(np.array([0.0, 0.0, 1.0]), x * np.array([1.0, 1.0, 0.0]))


def sphere_distance(x):
    return Sphere(3).dist(x / np.linalg.norm(x), np.array([0.0, 0.0, 1.0]))


def stiefel(x):
    return Stiefel(3, 1).retraction(np.array([[1.0], [0.0], [0.0]]), x[:, None])


def positive_definite(x):
    return SymmetricPositiveDefinite(3).dist(np.diag(x), np.eye(3))


CALLS = [
    (f, v)
    for f in (
        rotation, roll_pitch_yaw, angles, exponential, pose, quaternion, sphere, sphere_distance, stiefel,
        positive_definite,
    )
]  # fmt: skip
