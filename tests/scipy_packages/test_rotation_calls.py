"""Calls of SciPy's rotations, in all spellings of their constructors and results, against differences."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import tapegrad as tg

rng = np.random.default_rng(0)
TURN, QUATERNIONS, VECTORS = np.array([0.3, -0.7, 1.1]), rng.normal(size=(5, 4)), rng.normal(size=(5, 3))
KEPT = Rotation.from_quat(QUATERNIONS)
vec = lambda x: Rotation.from_rotvec(x)

PROGRAMS = {
    "matrix": (lambda x: vec(x).as_matrix(), TURN),
    "matrices": (lambda x: vec(x).as_matrix(), VECTORS),
    "degrees": (lambda x: Rotation.from_rotvec(x, degrees=True).as_rotvec(degrees=True), 40 * VECTORS),
    "small": (lambda x: 1e5 * (vec(1e-5 * x) * vec(2e-5 * x)).as_rotvec(), TURN),
    "quaternions": (lambda x: Rotation.from_quat(x).as_quat(), QUATERNIONS),
    "canonical": (lambda x: Rotation.from_quat(x).as_quat(canonical=True), QUATERNIONS),
    "first": (lambda x: Rotation.from_quat(x, scalar_first=True).as_quat(scalar_first=True), QUATERNIONS),
    "vectors": (lambda x: Rotation.from_quat(x).as_rotvec(), QUATERNIONS),
    "from matrices": (
        lambda x: Rotation.from_matrix(vec(x).as_matrix()).as_quat(canonical=True),
        2 * VECTORS,
    ),
    "apply": (lambda x: KEPT.apply(x), VECTORS),
    "inverse": (lambda x: vec(x).apply(VECTORS, inverse=True), VECTORS),
    "one vector": (lambda x: vec(x).apply(TURN), VECTORS),
    "one rotation": (lambda x: vec(x[0]).apply(x), VECTORS),
    "composed": (lambda x: (vec(x) * KEPT).as_matrix(), VECTORS),
    "kept first": (lambda x: (KEPT[1:3] * vec(x[:2]).inv()).as_rotvec(), VECTORS),
    "magnitude": (lambda x: (KEPT * vec(x)).magnitude(), VECTORS),
    "power": (lambda x: (vec(x) ** 0.3).as_matrix(), VECTORS),
    "parts": (lambda x: np.array([r.magnitude() for r in vec(x)]) * len(vec(x)), VECTORS),
    "class": (lambda x: x * isinstance(vec(x), Rotation), VECTORS),
    "constants": (
        lambda x: Rotation.identity().apply(x) + Rotation.concatenate([KEPT]).mean().apply(x),
        TURN,
    ),
    "one axis": (lambda x: Rotation.from_euler("z", x[0]).as_matrix(), TURN),
    **{
        f"angles {seq}": (lambda x, seq=seq: Rotation.from_euler(seq, x).as_matrix(), TURN)
        for seq in ("xyz", "ZYX", "zxz", "YXY")
    },
    **{
        f"to angles {seq}": (lambda x, seq=seq: vec(x).as_euler(seq, degrees=True), VECTORS)
        for seq in ("xyz", "ZYX", "zxz", "YXY", "zyx", "XZX")
    },
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_rotations(program):
    f, x = program
    v, h = rng.normal(size=x.shape), 1e-6
    value, tangent = tg.jvp(f, (x,), (v,))
    np.testing.assert_allclose(value, f(x), rtol=1e-10, atol=1e-12)
    slope = (f(x + h * v) - f(x - h * v)) / (2 * h)
    np.testing.assert_allclose(tangent, slope, rtol=1e-6, atol=1e-6 * np.max(np.abs(slope)))
    w = rng.normal(size=np.shape(value))
    gradient = tg.grad(lambda x: np.sum(w * f(x)))(x)
    assert np.sum(gradient * v) == pytest.approx(np.sum(w * tangent), rel=1e-8)


def test_second_order_at_no_rotation():
    f = lambda x: np.sum(Rotation.from_rotvec(x).as_matrix() * np.arange(9.0).reshape(3, 3))
    points = np.array([[1.0, 1, 0], [1, 0, 1], [0, 1, 1], [1, -1, 0], [2, 0, 0]]) * 1e-2
    for d in points:
        second = (f(d) - 2 * f(0 * d) + f(-d)) / np.sum(d * d)
        assert d @ tg.hessian(f)(0 * d) @ d / np.sum(d * d) == pytest.approx(second, rel=1e-3, abs=1e-3)
