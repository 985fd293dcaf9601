"""An image registered by scipy.ndimage.map_coordinates: the shift and the rotation between two pictures, by
least squares.

The model is written with NumPy and SciPy and knows nothing of tapegrad; below it the Jacobian is compared
with differences."""

import numpy as np
import scipy.ndimage
import scipy.optimize

rng = np.random.default_rng(4)
fixed = scipy.ndimage.gaussian_filter(rng.standard_normal((48, 48)), 3.0)
rows, columns = np.meshgrid(np.arange(48.0), np.arange(48.0), indexing="ij")
inside = (slice(8, 40), slice(8, 40))


def moved(theta):
    """The picture turned by theta[2] about its middle and moved by theta[:2]."""
    c, s = np.cos(theta[2]), np.sin(theta[2])
    u, v = rows - 23.5, columns - 23.5
    there = np.stack([c * u - s * v + 23.5 + theta[0], s * u + c * v + 23.5 + theta[1]])
    return scipy.ndimage.map_coordinates(fixed, there, order=3, mode="nearest")


TRUE = np.array([1.3, -2.1, 0.05])
picture = moved(TRUE) + 0.002 * rng.standard_normal((48, 48))


def residuals(theta):
    return (moved(theta) - picture)[inside].ravel()


if __name__ == "__main__":
    import tapegrad as tg

    start = np.array([0.2, -0.3, 0.01])
    J = tg.jacobian(residuals)(start)
    h = 1e-5 * np.eye(3)
    differences = np.stack([(residuals(start + e) - residuals(start - e)) / 2e-5 for e in h], 1)
    assert np.allclose(J, differences, rtol=1e-6, atol=1e-7)
    fit = scipy.optimize.least_squares(residuals, start, jac=tg.jacobian(residuals))
    assert np.allclose(fit.x, TRUE, atol=0.02)
    print("found", fit.x.round(4), "true", TRUE, f"in {fit.nfev} evaluations")
