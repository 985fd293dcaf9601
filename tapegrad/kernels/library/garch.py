"""GARCH(1, 1): y[t] = mu + e[t], e[t] ~ N(0, h[t]), h[t + 1] = omega + alpha e[t]^2 + beta h[t].

loglik(theta, y)                    theta (4, B): mu, omega, alpha, beta; y (N,) or (1, N, B): (B,)
loglik.value_and_grad(theta, y)     (B,), (4, B)

The first variance is the stationary one, omega / (1 - alpha - beta).  nan is missing: e^2 has then its mean
h.  omega <= 0, alpha < 0, beta < 0 and alpha + beta >= 1 are not valid.

Source: Bollerslev, Generalized autoregressive conditional heteroskedasticity, J. Econometrics 31 (1986).

>>> import numpy as np, tapegrad as tg
>>> value, gradient = tg.kernels.garch.loglik.value_and_grad(np.array([0.0, 0.1, 0.1, 0.8]), np.array([0.5, np.nan, -1.0]))
>>> gradient.round(4)
array([-0.5759, -3.3968, -3.4259, -3.3997])
"""

import numpy as np

from ..generated.kernel import recursion
from .models import LOG_2_PI, Definition, ModelRecursion


def garch_start(theta):
    _, omega, alpha, beta = theta
    valid = np.minimum(np.minimum(alpha, beta), 0.0) >= 0
    valid = np.where(valid, np.minimum(omega, 1 - alpha - beta), 0.0) > 0
    return np.where(valid, omega / (1 - alpha - beta), np.nan)


def garch_step(h, theta, y):
    """Return the next variance, and the log density of y."""
    mu, omega, alpha, beta = theta
    here = ~np.isnan(y[0])
    e = np.where(here, y[0], mu) - mu
    square = np.where(here, e * e, h)
    return omega + alpha * square + beta * h, np.where(here, -0.5 * (LOG_2_PI + np.log(h) + e * e / h), 0.0)


loglik = ModelRecursion(
    Definition(
        name="garch",
        formula=recursion(garch_start, garch_step, missing="step"),
        fits=lambda p, d: (p, d) == (4, 1),
        wants="theta (4, B) and y (N,) or (1, N, B)",
    )
)
