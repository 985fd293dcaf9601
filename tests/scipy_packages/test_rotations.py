"""scipy.spatial.transform: rotations of tracked vectors, against differences of SciPy's own values."""

import numpy as np
import pytest
import scipy.spatial.transform as transform
from _modes import check_program
from scipy.spatial.transform import Rotation

import tapegrad as tg
from tapegrad._scipy.followed import is_python_class

pytestmark = pytest.mark.skipif(
    not is_python_class(Rotation), reason="SciPy 1.17 has rotations in Python; before, they are compiled"
)

P = np.array([0.3, 1.1, 0.7])
POINTS = np.random.default_rng(0).normal(size=(5, 3))
START = Rotation.from_euler("zyx", [10, 20, 30], degrees=True)
ONE = [1.0, 2.0, 3.0]


class Camera:
    """A class of a user's, which holds a rotation and its inverse."""

    def __init__(self, rotation):
        self.rotation, self.back = rotation, rotation.inv()

    def see(self, points):
        return self.back.apply(points)


CAMERA = Camera(START)
PROGRAMS = {
    "vectors": lambda p: Rotation.from_rotvec(p).apply(POINTS).sum(0) @ ONE,
    "product": lambda p: (Rotation.from_rotvec(p) * START.inv()).as_quat() @ [1.0, 2.0, 3.0, 4.0],
    "angles": lambda p: Rotation.from_euler("ZYX", p * 50, degrees=True).as_euler("xyz", degrees=True) @ ONE,
    "quaternion": lambda p: Rotation.from_quat(np.r_[p, 1.0]).as_matrix()[0] @ ONE,
    "several": lambda p: Rotation.from_rotvec(np.outer(np.arange(5.0), p)).apply(POINTS).sum(),
    "element": lambda p: Rotation.from_rotvec(np.outer(np.arange(4.0), p))[2].as_mrp() @ ONE,
    "power": lambda p: (Rotation.from_rotvec(p) ** 2.5).as_rotvec()[1] + Rotation.from_rotvec(p).magnitude(),
    "matrix": lambda p: Rotation.from_matrix(np.eye(3) + np.outer(p, ONE) * 0.1).as_rotvec() @ ONE,
    "slerp": lambda p: (
        transform.Slerp([0, 1], Rotation.concatenate([START, Rotation.from_rotvec(p)]))(0.3).as_rotvec() @ ONE
    ),
    "spline": lambda p: (
        transform.RotationSpline([0, 1, 2.0], Rotation.from_rotvec(np.outer(np.arange(3.0), p) * 0.2 + 0.1))(
            0.5
        ).as_rotvec()
        @ ONE
    ),
    "alignment": lambda p: Rotation.align_vectors(POINTS, POINTS * p)[0].as_rotvec() @ ONE,
    "captured": lambda p: (
        CAMERA.see(POINTS * p)[2] @ ONE + START.apply(p)[0] + (START**2).as_rotvec()[0] * p[1]
    ),
    "rigid": lambda p: (
        transform.RigidTransform.from_components(p, Rotation.from_rotvec(p)).inv().apply(POINTS)[1] @ ONE
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    check_program(PROGRAMS[name], P)


def test_no_rotation():
    """The vector 0, at which the formula by its length has no value."""
    f = lambda p: Rotation.from_rotvec(p).as_matrix()
    j = tg.jacobian(f)(np.zeros(3))
    np.testing.assert_allclose(j[..., 0], [[0, 0, 0], [0, 0, -1], [0, 1, 0]], atol=1e-15)
    first = lambda p: Rotation.from_rotvec(p).as_matrix()[0, 0]
    np.testing.assert_allclose(tg.hessian(first)(np.zeros(3)), np.diag([0.0, -1.0, -1.0]), atol=1e-14)
    turned = lambda p: (START * Rotation.from_rotvec(p) * START.inv()).as_rotvec()[0]
    np.testing.assert_allclose(tg.grad(turned)(np.zeros(3)), START.as_matrix()[0], atol=1e-14)
    np.testing.assert_allclose(tg.hessian(turned)(np.zeros(3)), np.zeros((3, 3)), atol=1e-13)


def test_results_and_plain_objects():
    def f(p):
        r = Rotation.from_rotvec(p)
        assert isinstance(r, Rotation) and r.single and len(Rotation.concatenate([r, r])) == 2
        assert type(tg.value(r)) is Rotation and "Rotation" in repr(r)
        return r.as_matrix()[0, 1]

    tg.grad(f)(P)
    assert type(START) is Rotation and START._backend.__name__.endswith("_cy")  # SciPy's object is as it was


def test_bad_input():
    with pytest.raises(ValueError, match="Expected `rot_vec` to have shape|shape"):
        tg.grad(lambda p: Rotation.from_rotvec(p[:2]).magnitude())(P)
    with pytest.raises(ValueError, match="[Aa]xes|axis|seq"):
        tg.grad(lambda p: Rotation.from_euler("xqz", p).magnitude())(P)


def test_what_a_rotation_gives_is_new_memory():
    """A write there leaves the rotation as it was."""

    def f(x):
        r = Rotation.from_rotvec(x)
        for made in (r.as_quat(), r.as_matrix(), r.as_rotvec(), (r**1.0).as_quat()):
            made[0] = 0.3
        return r.as_quat().sum() + r.as_rotvec()[1]

    value, slope = tg.jvp(f, (np.array([0.7, -0.4, 1.3]),), (np.array([0.3, 0.8, -0.5]),))
    plain = lambda t: f(np.array([0.7, -0.4, 1.3]) + t * np.array([0.3, 0.8, -0.5]))
    np.testing.assert_allclose(value, plain(0.0), rtol=1e-13)
    np.testing.assert_allclose(slope, (plain(1e-5) - plain(-1e-5)) / 2e-5, rtol=1e-8)
