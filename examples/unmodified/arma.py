"""An ARMA(2, 1) process by scipy.signal.lfilter: the innovations are the series filtered, and their sum of
squares is least.

The model is written with NumPy and SciPy and knows nothing of tapegrad; below it the gradient is compared
with differences."""

import numpy as np
import scipy.optimize
from scipy.signal import lfilter

rng = np.random.default_rng(2)
TRUE = np.array([1.2, -0.4, 0.5])
series = lfilter([1.0, TRUE[2]], [1.0, -TRUE[0], -TRUE[1]], rng.standard_normal(2000))


def innovations(theta):
    return lfilter(np.array([1.0, -theta[0], -theta[1]]), np.array([1.0, theta[2]]), series)


def negative_log_likelihood(theta):
    return 0.5 * len(series) * np.log(np.mean(innovations(theta) ** 2))


if __name__ == "__main__":
    import tapegrad as tg

    start = np.array([0.5, 0.1, 0.1])
    gradient = tg.grad(negative_log_likelihood)(start)
    h = 1e-6 * np.eye(3)
    differences = np.array(
        [(negative_log_likelihood(start + e) - negative_log_likelihood(start - e)) / 2e-6 for e in h]
    )
    assert np.allclose(gradient, differences, rtol=1e-6, atol=1e-4)
    fit = scipy.optimize.minimize(
        negative_log_likelihood, start, jac=tg.grad(negative_log_likelihood), method="BFGS"
    )
    errors = np.sqrt(np.diag(np.linalg.inv(tg.hessian(negative_log_likelihood)(fit.x))))
    assert np.all(np.abs(fit.x - TRUE) < 4 * errors)
    for value, error, true in zip(fit.x, errors, TRUE, strict=True):
        print(f"{value:7.3f} +- {error:.3f} (true {true})")
