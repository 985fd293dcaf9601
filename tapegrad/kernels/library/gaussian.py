"""Independent Gaussians.

loglik(theta, x)                    theta (2 d, B): d means, then d scales; x (d, N), (N,) or (d, N, B)
loglik.value_and_grad(theta, x)     (B,), (2 d, B)"""

from typing import Any

import numpy as np

from ..generated.kernel import likelihood
from .handwritten import HandwrittenDefinition, HandwrittenLikelihood
from .models import LOG_2_PI


def power_of_two(s):
    """One with which s c lies between 2^-32 and 2^32."""
    c: Any = 1.0
    for step in (2.0**512, 2.0**256, 2.0**128, 2.0**64, 2.0**32):
        f = np.where(s > step, 1 / step, np.where(s < 1 / step, step, 1.0))
        s, c = s * f, c * f
    return c


def gaussian_formula(theta, x):
    """The log density of one datum.  Squares are summed before they are divided by that of a scale, and so
    are those of numbers near one: multiplying by a power of two costs no digits, and nothing where sums of
    products are one instruction."""
    d, total = len(x), 0.0
    for k in range(d):
        mean, scale = theta[k], theta[d + k]
        c = power_of_two(scale)
        total = total - 0.5 * ((x[k] * c - mean * c) / (scale * c)) ** 2 - np.log(scale) - 0.5 * LOG_2_PI
    return total


loglik = HandwrittenLikelihood(
    HandwrittenDefinition(
        name="gaussian",
        formula=likelihood(gaussian_formula),
        macros=lambda p, d: {"D": d},
        fits=lambda p, d: p == 2 * d,
        wants="theta (2 d, B), d means, then d scales, and data (d, N), (N,) or (d, N, B)",
    )
)
