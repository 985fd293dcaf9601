"""Poses, splines, polynomials, numerical derivatives and shapes of spectra."""

import numpoly
import numpy as np
from derivative import dxdt
from spatialmath import SE3, SO3, Line3, Twist3, UnitQuaternion
from spatialmath import base as sm
from specparam.modes.funcs import double_expo_function, skewed_gaussian_function

T = np.linspace(0.0, 2.0, 11)


def pose(x):
    move = SE3.Rx(x[0]) * SE3.Trans(x[1], 0.3, x[2]) * SE3.Rz(0.4)
    return (move * np.array([1.0, 2.0, 3.0])).ravel()


def angles(x):
    return SO3.RPY(x, order="zyx").eul()


def interpolated_pose(x):
    return SE3.Rx(x[0]).interp(SE3.Ry(x[1]), 0.3).A[:3].ravel()


def unit_quaternion(x):
    return (UnitQuaternion.Rx(x[0]) * UnitQuaternion.Ry(x[1])).R.ravel()


def twist(x):
    return Twist3(x).exp(0.7).A[:3].ravel()


def logarithm(x):
    return sm.trlog(sm.trotx(x[0]) @ sm.troty(x[1]) @ sm.transl(x[2], 0.2, 0.3), twist=True)


def line_distance(x):
    one, two = Line3.Join(x[:3], [1.0, 2.0, 0.5]), Line3.Join([0.0, 1.0, 3.0], [1.0, 0.0, x[3]])
    return one.distance(two)


def finite_difference(x):
    return dxdt(np.sin(x[0] * T) * x[1], T, kind="finite_difference", k=1)


def spectral(x):
    return dxdt(np.exp(-x[0] * (T - 1) ** 2) * x[1], T, kind="savitzky_golay", left=0.5, right=0.5, order=3)


def polynomial(x):
    q0, q1 = numpoly.variable(2)
    return numpoly.call(q0**2 * q1 + 3 * q0, args=(x[0], x[1]))


def polynomial_gradient(x):
    q0, q1 = numpoly.variable(2)
    return numpoly.gradient(q0**2 * q1 + 3 * q0)(x[0], x[1])


def spectrum(x):
    f = np.linspace(1.0, 30.0, 8)
    return skewed_gaussian_function(f, 10 * x[0], 1.0, 2.0 * x[1], x[2]) + double_expo_function(
        f, x[0], x[1], 10.0, x[2]
    )


CALLS = [
    (pose, [0.4, 0.8, 1.2]),
    (angles, [0.4, 0.8, 1.2]),
    (interpolated_pose, [0.4, 0.8]),
    (unit_quaternion, [0.4, 0.8]),
    (twist, [0.3, 0.5, 0.2, 0.4, 0.8, 0.6]),
    (logarithm, [0.4, 0.8, 1.2]),
    (line_distance, [0.4, 0.8, 1.2, 0.7]),
    (finite_difference, [1.3, 0.8]),
    (spectral, [1.3, 0.8]),
    (polynomial, [1.3, 0.8]),
    (polynomial_gradient, [1.3, 0.8]),
    (spectrum, [0.9, 1.2, 0.7]),
]
