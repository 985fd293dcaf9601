"""A Gaussian process of scipy.spatial.distance and scipy.linalg: its marginal likelihood, maximised by its
gradient.

The model is written with NumPy and SciPy and knows nothing of tapegrad; below it the gradient is compared
with differences."""

import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.spatial.distance import cdist

rng = np.random.default_rng(1)
X = rng.uniform(-2, 2, (60, 2))
y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(60)


def negative_log_likelihood(theta):
    """theta: the logarithms of the two length scales, of the amplitude and of the noise."""
    scales, amplitude, noise = np.exp(theta[:2]), np.exp(theta[2]), np.exp(theta[3])
    K = amplitude**2 * np.exp(-0.5 * cdist(X / scales, X / scales, "sqeuclidean")) + noise**2 * np.eye(len(X))
    L = scipy.linalg.cholesky(K, lower=True)
    z = scipy.linalg.solve_triangular(L, y, lower=True)
    return 0.5 * z @ z + np.log(np.diag(L)).sum() + 0.5 * len(y) * np.log(2 * np.pi)


if __name__ == "__main__":
    import tapegrad as tg

    start = np.array([0.1, -0.2, 0.3, -1.0])
    gradient = tg.grad(negative_log_likelihood)(start)
    h = 1e-5 * np.eye(4)
    differences = np.array(
        [(negative_log_likelihood(start + e) - negative_log_likelihood(start - e)) / 2e-5 for e in h]
    )
    assert np.allclose(gradient, differences, rtol=1e-6, atol=1e-6)
    fit = scipy.optimize.minimize(
        negative_log_likelihood, start, jac=tg.grad(negative_log_likelihood), method="BFGS"
    )
    errors = np.sqrt(np.diag(np.linalg.inv(tg.hessian(negative_log_likelihood)(fit.x))))
    assert np.abs(tg.grad(negative_log_likelihood)(fit.x)).max() < 1e-3
    for name, value, error in zip(("scale 1", "scale 2", "amplitude", "noise"), fit.x, errors, strict=True):
        print(f"log {name:10s} {value:7.3f} +- {error:.3f}")
