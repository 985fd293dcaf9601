"""scipy.spatial.transform: rotations and rigid transforms.

Since 1.17 SciPy has them in Python too, for other libraries of arrays than NumPy.  That code is followed.
Before, they are compiled, and rotations are those of `rotation_formulas`."""

import scipy.spatial.transform as transform

from .. import numpy as np
from .followed import FollowedObject, Follower, is_python_class
from .namespaces import SciPyNamespace
from .rotation_formulas import FormulaRotation, quaternion_of_vector, vector_of_quaternion
from .shorter_ways import generalised

TRANSFORM = SciPyNamespace(transform, listed=False)
FOLLOWED = Follower("scipy.spatial.transform")
KINDS: tuple = ("Rotation", "Slerp", "RotationSpline", "RigidTransform")


class FollowedRotation(FollowedObject):
    """Rotations, of which SciPy's own keep the module that computes: compiled for NumPy, else in Python."""

    def _plain(self):
        return transform.Rotation(super()._plain().as_quat())

    @classmethod
    def _of(cls, x, shadow):
        new = super()._of(x, shadow)
        new._backend = cls.__init__.__globals__["xp_backend"]
        return new


def new_quaternions(f):
    """f of SciPy's Python code, which may give its argument; the compiled code makes new arrays."""
    return lambda quat, *args, **kwargs: np.copy(f(quat, *args, **kwargs))


if is_python_class(transform.Rotation):
    backend = transform.Rotation.__init__.__globals__["xp_backend"]
    FOLLOWED.bases[transform.Rotation] = FollowedRotation
    FOLLOWED.decorate(backend.from_rotvec, lambda _: quaternion_of_vector)
    FOLLOWED.decorate(backend.as_rotvec, lambda _: vector_of_quaternion)
    FOLLOWED.decorate(backend.as_quat, new_quaternions)
    FOLLOWED.decorate(backend.pow, lambda f: generalised(new_quaternions(f)))
    for _name in KINDS:
        TRANSFORM.rule(getattr(transform, _name))(FOLLOWED.klass(getattr(transform, _name)))
else:
    TRANSFORM.rule(transform.Rotation)(FormulaRotation)
stand_in = TRANSFORM.stand_in("tapegrad.scipy.spatial.transform")
