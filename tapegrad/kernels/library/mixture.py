"""Mixtures of Gaussians of one variable.

loglik(theta, x)                    theta (3 k, B): k logits of the weights, k means, k log scales; x (N,),
(1, N) or (1, N, B) loglik.value_and_grad(theta, x)     (B,), (3 k, B)"""

import numpy as np

from ..generated.kernel import likelihood
from .models import LOG_2_PI, Definition, ModelLikelihood


def log_sum_exp_terms(q):
    top = q[0]
    for x in q[1:]:
        top = np.maximum(top, x)
    return top + np.log(sum([np.exp(x - top) for x in q]))


def mixture_formula(theta, x):
    """Return the log density of one datum."""
    k = len(theta) // 3
    logits, means, log_scales = theta[:k], theta[k : 2 * k], theta[2 * k :]
    inverse = np.exp(-log_scales)
    z = (x[0] - means) * np.where(inverse < np.inf, inverse, np.nan)
    return log_sum_exp_terms(logits - log_scales - 0.5 * z**2) - log_sum_exp_terms(logits) - 0.5 * LOG_2_PI


loglik = ModelLikelihood(
    Definition(
        name="mixture",
        formula=likelihood(mixture_formula),
        fits=lambda p, d: p > 0 and p % 3 == 0 and d == 1,
        wants="theta (3 k, B), k logits, k means and k log scales, and data (N,), (1, N) or (1, N, B)",
    )
)
