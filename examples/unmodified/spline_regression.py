"""A regression on a cubic spline of scipy.interpolate: values at nodes, with a penalty on its curvature, and
the nodes themselves.

The model is written with NumPy and SciPy and knows nothing of tapegrad; below it the gradient is compared
with differences."""

import numpy as np
import scipy.optimize
from scipy.interpolate import CubicSpline

rng = np.random.default_rng(3)
x = np.sort(rng.uniform(0, 1, 200))
y = np.exp(-80 * (x - 0.7) ** 2) + 0.3 * x + 0.05 * rng.standard_normal(200)
NODES = 9
grid = np.linspace(0.003, 0.998, 97)  # (at a node the curvature has a kink in the place of the node)


def spline(theta):
    """theta: the values at the nodes, then the logarithms of the distances between them."""
    steps = np.exp(theta[NODES:])
    nodes = np.concatenate([[0.0], np.cumsum(steps) / np.sum(steps)])
    return CubicSpline(nodes, theta[:NODES], bc_type="natural")


def loss(theta):
    curve = spline(theta)
    rough = np.mean(curve(grid, 2) ** 2)
    return np.mean((y - curve(x)) ** 2) + 1e-8 * rough


if __name__ == "__main__":
    import tapegrad as tg

    start = np.concatenate([np.interp(np.linspace(0, 1, NODES), x, y), np.zeros(NODES - 1)])
    gradient = tg.grad(loss)(start)
    h = 1e-5 * np.eye(len(start))
    differences = np.array([(loss(start + e) - loss(start - e)) / 2e-5 for e in h])
    assert np.allclose(gradient, differences, rtol=1e-5, atol=1e-7)
    fit = scipy.optimize.minimize(loss, start, jac=tg.grad(loss), method="BFGS", options={"gtol": 1e-7})
    assert fit.fun < 0.9 * loss(start)
    print(
        f"mean square error {loss(start):.5f} with equidistant nodes at the start, {fit.fun:.5f} with nodes "
        f"of its own"
    )
    print("nodes:", spline(fit.x).x.round(3))
