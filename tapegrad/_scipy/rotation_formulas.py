"""Rotations by formulas on quaternions.

`quaternion_of_vector` and `vector_of_quaternion` serve every release of SciPy. The class is for releases
before 1.17, in which rotations are compiled; it goes with them."""

from typing import Any

import numpy as plain_np
import scipy.spatial.transform as st

from .. import numpy as np
from .._core.primitive import primal_of
from ..ops.declare import ndim, shape
from .namespaces import Carrier, CarrierType, as_float_array, bare, holds_tracked, refusal_text

SMALL_ANGLE = 1e-3  # below it, series: as SciPy has it


def product(p, q):
    """Of quaternions, with the real part last."""
    u, a, v, b = p[..., :3], p[..., 3:], q[..., :3], q[..., 3:]
    vector = a * v + b * u + np.cross(u, v)
    return np.concatenate([vector, a * b - np.sum(u * v, -1, keepdims=True)], -1)


def quaternion_of_vector(v, degrees: bool = False):
    """SciPy's `from_rotvec`, by the square of the angle: a norm has no second derivative at 0."""
    if v.shape[-1] != 3:
        raise ValueError(f"Expected `rot_vec` to have shape (..., 3), got {v.shape}.")
    v = np.deg2rad(v) if degrees else v
    square = np.sum(v * v, -1, keepdims=True)
    is_small = primal_of(square) <= SMALL_ANGLE**2
    angle, s = np.sqrt(np.where(is_small, 1.0, square)), np.where(is_small, square, 0.0)
    scale = np.where(is_small, 0.5 - s / 48 + s * s / 3840, np.sin(angle / 2) / angle)
    return np.concatenate([scale * v, np.where(is_small, 1 - s / 8 + s * s / 384, np.cos(angle / 2))], -1)


def vector_of_quaternion(q, degrees: bool = False):
    """SciPy's `as_rotvec`; at small angles the series of 2 arctan(t) / t in the square of t."""
    q = q * np.where(primal_of(q[..., 3:]) < 0, -1.0, 1.0)
    v, a = q[..., :3], q[..., 3:]
    square = np.sum(v * v, -1, keepdims=True)
    is_small = primal_of(square) <= (SMALL_ANGLE / 2) ** 2
    r, s = np.sqrt(np.where(is_small, 1.0, square)), np.where(is_small, square / (a * a), 0.0)
    v = v * np.where(is_small, 2 / a * (1 - s / 3 + s * s / 5), 2 * np.arctan2(r, a) / r)
    return np.rad2deg(v) if degrees else v


def matrix_of(q):
    x, y, z, w = [q[..., n] for n in range(4)]
    rows = (
        (x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w),
    )
    return np.stack([np.stack(row, -1) for row in rows], -2)


def of_matrix(m):
    """The quaternion of the nearest orthogonal matrix, to third order."""
    values = bare(m)
    if plain_np.max(plain_np.abs(values @ plain_np.swapaxes(values, -1, -2) - plain_np.eye(3))) > 1e-8:
        raise refusal_text("Rotation.from_matrix", "the matrix is not orthogonal", "an orthogonal matrix")
    for _ in range(2):
        m = 1.5 * m - 0.5 * m @ np.swapaxes(m, -1, -2) @ m
    trace, t = np.trace(m, axis1=-2, axis2=-1), np.swapaxes(m, -1, -2)
    real = [m[..., i - 1, i - 2] - m[..., i - 2, i - 1] for i in range(3)]
    imaginary = m + t + (1 - trace)[..., None, None] * plain_np.eye(3)
    rows = [np.concatenate([imaginary[..., i, :], real[i][..., None]], -1) for i in range(3)]
    products = np.stack(
        [*rows, np.stack([*real, 1 + trace], -1)], -2
    )  # of the parts of the quaternion, times 4
    best = plain_np.argmax(plain_np.diagonal(bare(products), 0, -2, -1), -1)
    return unit(np.take_along_axis(products, best[..., None, None], -2)[..., 0, :])


def euler_of(q, seq: str, is_intrinsic: bool):
    """The angles of turns about three axes of the space, or (intrinsic) about the same in reverse order."""
    i, j, k = ["xyz".index(axis) for axis in seq]
    is_symmetric = i == k
    k = 3 - i - j if is_symmetric else k
    sign = (i - j) * (j - k) * (k - i) // 2
    x, y, z, w = q[..., i], q[..., j], sign * q[..., k], q[..., 3]
    a, b, c, d = (w, x, y, z) if is_symmetric else (w - y, x + z, y + w, z - x)
    second = 2 * np.arctan2(np.sqrt(c * c + d * d), np.sqrt(a * a + b * b))
    if plain_np.any(plain_np.abs(plain_np.sin(bare(second))) < 1e-7):
        raise refusal_text("Rotation.as_euler", "at a gimbal lock", "as_matrix or as_rotvec")
    half, other = np.arctan2(b, a), np.arctan2(d, c)
    first, third = half - other, half + other
    if not is_symmetric:
        second, third = second - plain_np.pi / 2, sign * third
    turns = [third, second, first] if is_intrinsic else [first, second, third]
    y = np.stack(turns, -1)
    return y - 2 * plain_np.pi * plain_np.rint(bare(y) / (2 * plain_np.pi))


def unit(q):
    return q / np.sqrt(np.sum(q * q, -1, keepdims=True))


class RotationType(CarrierType):
    """The other functions of the class take plain numbers."""

    def __getattr__(cls, name: str):
        return of_plain_numbers(getattr(st.Rotation, name), f"Rotation.{name}")


def of_plain_numbers(x, name: str):
    """What SciPy's rotations give: rotations and functions as ours, which take plain numbers."""
    if isinstance(x, st.Rotation):
        return FormulaRotation._of(x)
    if type(x) in (tuple, list):
        return type(x)([of_plain_numbers(v, name) for v in x])
    if not callable(x):
        return x

    def run(*args, **kwargs):
        if holds_tracked(args, kwargs):
            raise refusal_text(name, "", INSTEAD)
        return of_plain_numbers(x(*bare(args), **bare(kwargs)), name)

    return run


INSTEAD = (
    "from_rotvec, from_quat, from_matrix or from_euler, as_rotvec, as_quat, as_matrix, as_euler or apply"
)


class FormulaRotation(Carrier, metaclass=RotationType):
    """SciPy's class. What has no method here takes plain rotations."""

    _theirs: Any = st.Rotation

    def __init__(self, quat, normalize: bool = True, copy: bool = True, scalar_first: bool = False):
        q = as_float_array(quat)
        q = np.roll(q, -1, -1) if scalar_first else q
        self._quat = unit(q) if normalize else np.copy(q) if copy else q

    @classmethod
    def _of(cls, x, shadow=None):
        return cls(x.as_quat(), False)

    def _tracked(self) -> bool:
        return holds_tracked(self._quat)

    def _plain(self):
        return st.Rotation.from_quat(bare(self._quat))

    __class__: Any = property(lambda self: st.Rotation)

    def __getattr__(self, name: str):
        found = getattr(self._plain(), name)
        if self._tracked():
            raise refusal_text(f"Rotation.{name}", "", INSTEAD)
        return of_plain_numbers(found, f"Rotation.{name}")

    @classmethod
    def from_quat(cls, quat, *, scalar_first: bool = False):
        return cls(quat, scalar_first=scalar_first)

    @classmethod
    def from_rotvec(cls, rotvec, degrees: bool = False):
        v = as_float_array(rotvec)
        return cls(quaternion_of_vector(v, degrees), False)

    @classmethod
    def from_matrix(cls, matrix, **settings):
        if not holds_tracked(matrix):
            return cls._of(st.Rotation.from_matrix(bare(matrix), **settings))
        return cls(of_matrix(as_float_array(matrix)), False)

    @classmethod
    def from_euler(cls, seq: str, angles, degrees: bool = False):
        angles = np.deg2rad(as_float_array(angles)) if degrees else as_float_array(angles)
        if len(seq) == 1 and ndim(angles) < 2:
            angles = angles[..., None]
        q = None
        for n, axis in enumerate(seq.lower()):
            turn = quaternion_of_vector(angles[..., n, None] * plain_np.eye(3)["xyz".index(axis)])
            q = turn if q is None else product(q, turn) if seq.isupper() else product(turn, q)
        return cls(q, False)

    def as_euler(self, seq: str, degrees: bool = False, **settings):
        if not self._tracked():
            return self._plain().as_euler(seq, degrees, **settings)
        y = euler_of(self._quat, seq.lower()[::-1] if seq.isupper() else seq, seq.isupper())
        return np.rad2deg(y) if degrees else y

    def as_quat(self, canonical: bool = False, *, scalar_first: bool = False):
        q = self._quat
        if canonical:
            same = plain_np.sum(self._plain().as_quat(canonical=True) * bare(q), -1, keepdims=True) > 0
            q = q * plain_np.where(same, 1.0, -1.0)
        return np.roll(q, 1, -1) if scalar_first else np.copy(q)

    def as_matrix(self):
        return matrix_of(self._quat)

    def as_rotvec(self, degrees: bool = False):
        return vector_of_quaternion(self._quat, degrees)

    def apply(self, vectors, inverse: bool = False):
        m, v = self.as_matrix(), as_float_array(vectors)
        return np.einsum("...ji,...j->...i" if inverse else "...ij,...j->...i", m, v)

    def inv(self):
        return FormulaRotation(self._quat * plain_np.array([-1.0, -1.0, -1.0, 1.0]), False)

    def magnitude(self):
        return 2 * np.arctan2(np.linalg.norm(self._quat[..., :3], axis=-1), np.abs(self._quat[..., 3]))

    def __mul__(self, other):
        return FormulaRotation(product(self._quat, other._quat), False)

    def __pow__(self, n: float):
        return FormulaRotation.from_rotvec(float(plain_np.float32(n)) * self.as_rotvec())  # as these releases

    def __getitem__(self, at):
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return FormulaRotation(self._quat[at], False)

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return shape(self._quat)[0]

    single = property(lambda self: ndim(self._quat) == 1)
