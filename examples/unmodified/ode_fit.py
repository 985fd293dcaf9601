"""Parameters of differential equations through scipy.integrate.solve_ivp: hares and lynxes, from noisy
counts.

The model is written with NumPy and SciPy and knows nothing of tapegrad; below it the Jacobian is compared
with differences."""

import numpy as np
import scipy.optimize
from scipy.integrate import solve_ivp

TIMES = np.linspace(0, 15, 31)


def population(t, u, a, b, c, d):
    return np.array([a * u[0] - b * u[0] * u[1], c * u[0] * u[1] - d * u[1]])


def counts(theta):
    """theta: the logarithms of the four rates and of the two populations at the start."""
    p = np.exp(theta)
    return solve_ivp(
        population, (0, 15), p[4:], t_eval=TIMES, args=(p[0], p[1], p[2], p[3]), rtol=1e-8, atol=1e-8
    ).y


rng = np.random.default_rng(6)
TRUE = np.log([1.0, 0.4, 0.2, 0.8, 5.0, 1.5])
observed = counts(TRUE) * np.exp(0.05 * rng.standard_normal((2, TIMES.size)))


def residuals(theta):
    return ((np.log(counts(theta)) - np.log(observed)) / 0.05).ravel()


if __name__ == "__main__":
    import tapegrad as tg

    start = TRUE + 0.1 * rng.standard_normal(6)
    J = tg.jacobian(residuals, mode="forward")(start)
    h = 1e-4 * np.eye(6)
    differences = np.stack([(residuals(start + e) - residuals(start - e)) / 2e-4 for e in h], 1)
    assert np.allclose(J, differences, rtol=1e-4, atol=1e-3 * np.abs(J).max())
    fit = scipy.optimize.least_squares(residuals, start, jac=tg.jacobian(residuals, mode="forward"))
    errors = np.sqrt(np.diag(np.linalg.inv(fit.jac.T @ fit.jac)))
    assert np.all(np.abs(fit.x - TRUE) < 4 * errors)
    for name, value, error, true in zip(
        ("a", "b", "c", "d", "hares", "lynxes"), np.exp(fit.x), errors, np.exp(TRUE), strict=True
    ):
        print(f"{name:7s} {value:6.3f} +- {100 * error:.1f} % (true {true:.1f})")
