"""Student's t distribution.

loglik(theta, x)                    theta (3, B): location, scale, degrees of freedom; x (N,), (1, N) or (1,
N, B) loglik.value_and_grad(theta, x)     (B,), (3, B)"""

from typing import Any

import numpy as np

from ..generated.kernel import likelihood
from .handwritten import HandwrittenDefinition, HandwrittenLikelihood
from .models import LOG_2_PI


def gamma_ratio(a):
    """Return log Gamma(a + 1/2) - log Gamma(a) - log(a) / 2 to full precision, even for large a."""
    product: Any = 1.0
    for _ in range(10):
        small = a < 10
        product = np.where(small, product * (a * (a + 1) / (a + 0.5) ** 2), product)
        a = np.where(small, a + 1, a)
    r = 1 / a
    w = r * r
    series = w * (-1 / 640 + w * (17 / 14336 + w * (-31 / 18432 + w * (691 / 180224 + w * (-5461 / 425984)))))
    return 0.5 * np.log(product) + r * (-1 / 8 + w * (1 / 192 + series))


def student_t_formula(theta, x):
    """Return the log density of one datum."""
    mean, scale, df = theta
    constant = gamma_ratio(0.5 * np.where(df > 0, df, np.nan)) - 0.5 * LOG_2_PI - np.log(scale)
    return constant - 0.5 * (df + 1) * np.log1p(((x[0] - mean) / scale) ** 2 / df)


loglik = HandwrittenLikelihood(
    HandwrittenDefinition(
        name="student_t",
        formula=likelihood(student_t_formula),
        fits=lambda p, d: p == 3 and d == 1,
        wants="theta (3, B), location, scale and degrees of freedom, and data (N,), (1, N) or (1, N, B)",
    )
)
