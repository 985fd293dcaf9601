"""scipy.spatial.transform: rotations and rigid transforms.

Since 1.17 SciPy has them in Python too, for other libraries of arrays than NumPy.  That code is followed.
Before, they are compiled, and take no tracked values."""

from typing import Any

import scipy.spatial.transform as transform

from .. import numpy as np
from .._core.primitive import primal_of
from .followed import FollowedObject, Follower, is_python_class
from .namespaces import SciPyNamespace

TRANSFORM = SciPyNamespace(transform, listed=False)
FOLLOWED = Follower("scipy.spatial.transform")
KINDS: tuple = ("Rotation", "Slerp", "RotationSpline", "RigidTransform")


SMALL_ANGLE = 1e-3  # below it, series, as in SciPy


def quaternion_of_vector(v: Any, degrees: bool = False) -> Any:
    """SciPy's `from_rotvec`, by the square of the angle: a norm has no second derivative at 0."""
    if v.shape[-1] != 3:
        raise ValueError(f"Expected `rot_vec` to have shape (..., 3), got {v.shape}.")
    v = np.deg2rad(v) if degrees else v
    square = np.sum(v * v, -1, keepdims=True)
    is_small = primal_of(square) <= SMALL_ANGLE**2
    angle, s = np.sqrt(np.where(is_small, 1.0, square)), np.where(is_small, square, 0.0)
    scale = np.where(is_small, 0.5 - s / 48 + s * s / 3840, np.sin(angle / 2) / angle)
    return np.concatenate([scale * v, np.where(is_small, 1 - s / 8 + s * s / 384, np.cos(angle / 2))], -1)


def vector_of_quaternion(q: Any, degrees: bool = False) -> Any:
    """SciPy's `as_rotvec`; at small angles the series of 2 arctan(t) / t in the square of t."""
    q = q * np.where(primal_of(q[..., 3:]) < 0, -1.0, 1.0)
    v, a = q[..., :3], q[..., 3:]
    square = np.sum(v * v, -1, keepdims=True)
    is_small = primal_of(square) <= (SMALL_ANGLE / 2) ** 2
    r, s = np.sqrt(np.where(is_small, 1.0, square)), np.where(is_small, square / (a * a), 0.0)
    v = v * np.where(is_small, 2 / a * (1 - s / 3 + s * s / 5), 2 * np.arctan2(r, a) / r)
    return np.rad2deg(v) if degrees else v


class FollowedRotation(FollowedObject):
    """Rotations, of which SciPy's own keep the module that computes: compiled for NumPy, else in Python."""

    def _plain(self) -> Any:
        return transform.Rotation(super()._plain().as_quat())

    @classmethod
    def _of(cls, x: Any, shadow: Any) -> Any:
        new = super()._of(x, shadow)
        new._backend = cls.__init__.__globals__["xp_backend"]
        return new


if is_python_class(transform.Rotation):
    backend = transform.Rotation.__init__.__globals__["xp_backend"]
    FOLLOWED.bases[transform.Rotation] = FollowedRotation
    FOLLOWED.decorate(backend.from_rotvec, lambda _: quaternion_of_vector)
    FOLLOWED.decorate(backend.as_rotvec, lambda _: vector_of_quaternion)
    for _name in KINDS:
        TRANSFORM.rule(getattr(transform, _name))(FOLLOWED.klass(getattr(transform, _name)))
stand_in = TRANSFORM.stand_in("tapegrad.scipy.spatial.transform")
