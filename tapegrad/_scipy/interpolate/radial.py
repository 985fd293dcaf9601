"""Rules of the compiled functions behind `scipy.interpolate.RBFInterpolator`, whose Python code is followed.

A kernel is a function of the squared distance, which has derivatives where the distance is 0."""

import math

import numpy as plain_np
import scipy.interpolate as itp
import scipy.linalg.lapack
from scipy.interpolate import _rbfinterp_pythran as compiled

from ... import numpy as np
from ..._core.primitive import primal_of
from ...ops.declare import shape
from ..linear_routines import gesv
from ..namespaces import constant_like
from .piecewise import FOLLOWED, follow_class


def root(r2):
    """The distance, with the derivative 0 where it is 0."""
    zero = primal_of(r2) == 0
    return np.where(zero, 0.0, np.sqrt(np.where(zero, 1.0, r2)))


KERNELS = {
    "linear": lambda r2: -root(r2),
    "thin_plate_spline": lambda r2: 0.5 * r2 * np.log(np.where(primal_of(r2) == 0, 1.0, r2)),
    "cubic": lambda r2: r2 * root(r2),
    "quintic": lambda r2: -r2 * r2 * root(r2),
    "multiquadric": lambda r2: -np.sqrt(r2 + 1),
    "inverse_multiquadric": lambda r2: 1 / np.sqrt(r2 + 1),
    "inverse_quadratic": lambda r2: 1 / (r2 + 1),
    "gaussian": lambda r2: np.exp(-r2),
}


def kernel_matrix(x, y, kernel: str, epsilon):
    r = (x[:, None, :] - y[None, :, :]) * epsilon
    return KERNELS[kernel](np.sum(r * r, -1))


def polynomial_matrix(x, powers):
    one = 1.0 + 0.0 * x[:, 0]
    columns = [math.prod([x[:, i] ** k for i, k in enumerate(p) if k], start=one) for p in powers.tolist()]
    return np.stack(columns, -1) if columns else x[:, :0]


def build_system(y, d, smoothing, kernel: str, epsilon, powers) -> tuple:
    """(matrix, right side, shift, scale).  The space of the polynomials is the same for all shifts and scales,
    so these are constants."""
    low, high = np.min(primal_of(y), 0), np.max(primal_of(y), 0)
    shift, scale = (low + high) / 2, np.where(high == low, 1.0, (high - low) / 2)
    n, m = shape(y)[0], shape(powers)[0]
    K = kernel_matrix(y, y, kernel, epsilon) + constant_like(plain_np.eye(n), y) * smoothing
    P = polynomial_matrix((y - shift) / scale, powers)
    zero = constant_like(plain_np.zeros((m, m + shape(d)[1])), y)
    lhs = np.concatenate([np.concatenate([K, P], 1), np.concatenate([P.T, zero[:, :m]], 1)])
    return lhs, np.concatenate([d, zero[:, m:]]), shift, scale


def build_evaluation_coefficients(x, y, kernel: str, epsilon, powers, shift, scale):
    polynomials = polynomial_matrix((x - shift) / scale, powers)
    return np.concatenate([kernel_matrix(x, y, kernel, epsilon), polynomials], 1)


def lapack_solve(a, b, **_) -> tuple:
    return gesv(a, b)


for _f in (polynomial_matrix, build_system, build_evaluation_coefficients):
    FOLLOWED.leaf(getattr(compiled, f"_{_f.__name__}"), _f)
FOLLOWED.leaf(scipy.linalg.lapack.dgesv, lapack_solve)
if (_solver := getattr(getattr(itp, "_rbfinterp_np", None), "dsysv", None)) is not None:  # of SciPy 1.18 on
    FOLLOWED.leaf(_solver, lapack_solve)
follow_class(itp.RBFInterpolator)
