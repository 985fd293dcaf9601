import numpy as np
import pytransform3d.rotations as pr
import pytransform3d.transformations as pt
import transforms3d
from pyquaternion import Quaternion

v = np.array([0.3, 0.2, 0.5])


def euler_matrix(x):
    return transforms3d.euler.euler2mat(x[0], x[1], x[2])


def axis_angle(x):
    return transforms3d.axangles.axangle2mat(x, 0.7)


def matrix_to_quaternion(x):
    return transforms3d.quaternions.mat2quat(transforms3d.euler.euler2mat(*x))


def composed(x):
    return transforms3d.affines.compose(x, np.eye(3), np.exp(x))


def rotation_matrix(x):
    return pr.matrix_from_axis_angle(np.hstack((x / np.linalg.norm(x), x[0])))


def quaternion_product(x):
    return pr.concatenate_quaternions(
        pr.quaternion_from_compact_axis_angle(x), np.array([0.5, 0.5, 0.5, 0.5])
    )


def screw(x):
    return pt.transform_from_exponential_coordinates(np.hstack((x, 2 * x)))


def rotated(x):
    return Quaternion(axis=[1.0, 0.0, 0.0], angle=x[0]).rotate(x)


def interpolated(x):
    a, b = Quaternion(1.0, *x).normalised, Quaternion(axis=[0.0, 0.0, 1.0], angle=0.4)
    return Quaternion.slerp(a, b, 0.3).elements


CALLS = [
    (f, v)
    for f in (
        euler_matrix, axis_angle, matrix_to_quaternion, composed, rotation_matrix, quaternion_product, screw,
        rotated, interpolated,
    )
]  # fmt: skip
