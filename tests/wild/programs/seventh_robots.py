import modern_robotics as mr
import numpy as np
from pyrr import Matrix44, Quaternion, Vector3, matrix44, plane, quaternion, ray, vector, vector3

HOME = np.array([[-1.0, 0, 0, 0], [0, 1, 0, 6], [0, 0, -1, 2], [0, 0, 0, 1]])
SCREWS = np.array([[0.0, 0, 1, 4, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, -1, -6, 0, -0.1]]).T
LINKS = np.array([np.eye(4)] * 4)
LINKS[0][2, 3], LINKS[1][:3, 3], LINKS[2][0, 3], LINKS[3][1, 3] = 0.09, [0.28, 0, 0.1], 0.4, 0.2
INERTIAS = np.array([np.diag([0.01, 0.02, 0.01, 3.7, 3.7, 3.7]), np.diag([0.2, 0.2, 0.02, 8.4, 8.4, 8.4]),
                     np.diag([0.05, 0.05, 0.02, 2.3, 2.3, 2.3])])  # fmt: skip
AXES = np.array([[1.0, 0, 1, 0, 1, 0], [0, 1, 0, -0.089, 0, 0], [0, 1, 0, -0.089, 0, 0.425]]).T
GRAVITY = np.array([0, 0, -9.8])
joints = np.array([0.5, 0.7, -0.4])


def forward_kinematics(x):
    return mr.FKinSpace(HOME, SCREWS, x)


def jacobian(x):
    return mr.JacobianSpace(SCREWS, x)


def mass_matrix(x):
    return mr.MassMatrix(x, LINKS, INERTIAS, AXES)


def inverse_dynamics(x):
    return mr.InverseDynamics(x, 0.1 * x, x**2, GRAVITY, np.ones(6), LINKS, INERTIAS, AXES)


def forward_dynamics(x):
    return mr.ForwardDynamics(x, 0.1 * x, np.ones(3), GRAVITY, np.zeros(6), LINKS, INERTIAS, AXES)


def screw_path(x):
    end = mr.FKinSpace(HOME, SCREWS, x)
    return np.array(mr.ScrewTrajectory(HOME, end, 5, 4, 3)[1])


def logarithm(x):
    return mr.MatrixLog6(
        mr.FKinSpace(np.eye(4), SCREWS[:, :2], x[:2]) @ mr.MatrixExp6(mr.VecTose3(np.resize(x, 6)))
    )


def nearest_rotation(x):
    return mr.ProjectToSO3(np.eye(3) + 0.3 * np.outer(x, x[::-1]))


def camera(x):
    view = Matrix44.look_at(x, np.zeros(3), (0.0, 1.0, 0.0))
    return np.array(Matrix44.perspective_projection(45.0, 1.5, 0.1, 100.0) * view)


def turned(x):
    q = Quaternion.from_axis_rotation(vector.normalize(x), 0.7)
    return np.array(q * Vector3([1.0, 2.0, 3.0]))


def slerp(x):
    a, b = quaternion.create_from_eulers(x), quaternion.create_from_eulers(2 * x)
    return quaternion.slerp(a, b, 0.3)


def model_view(x):
    m = matrix44.create_from_translation(x) @ matrix44.create_from_eulers(x) @ matrix44.create_from_scale(x)
    return matrix44.inverse(m)


def reflected(x):
    p = plane.create_from_points(x, [0.0, 2.0, 0.3], [0.1, 0.2, 3.0])
    return np.concatenate([p, vector3.cross(x, [1.0, 2.0, 0.5]), ray.create_from_line([x, 2 * x**2]).ravel()])


CALLS = [
    (forward_kinematics, joints),
    (jacobian, joints),
    (mass_matrix, joints),
    (inverse_dynamics, joints),
    (forward_dynamics, joints),
    (screw_path, joints),
    (logarithm, joints),
    (nearest_rotation, joints),
    (camera, [1.0, 2.0, 3.0]),
    (turned, [1.0, 2.0, 3.0]),
    (slerp, [0.3, 0.5, 0.2]),
    (model_view, [0.3, 0.5, 0.7]),
    (reflected, [0.3, 0.5, 0.7]),
]
