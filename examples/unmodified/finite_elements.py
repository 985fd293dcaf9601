"""Finite elements with scipy.sparse: the conductivity of a plate by elements, from temperatures measured at
some of its nodes.

The model is written with NumPy and SciPy and knows nothing of tapegrad; below it the gradient is compared
with differences."""

import numpy as np
import scipy.optimize
import scipy.sparse
from scipy.sparse.linalg import spsolve

N = 12  # squares of bilinear elements in each direction; the boundary is held at 0
corner = (np.arange(N)[:, None] * (N + 1) + np.arange(N)).ravel()
nodes = corner[:, None] + np.array([0, 1, N + 1, N + 2])
local = np.array([[4, -1, -1, -2], [-1, 4, -2, -1], [-1, -2, 4, -1], [-2, -1, -1, 4]]) / 6.0
rows, cols = np.repeat(nodes, 4, 1).ravel(), np.tile(nodes, (1, 4)).ravel()
at = np.arange((N + 1) ** 2).reshape(N + 1, N + 1)
free = at[1:-1, 1:-1].ravel()
load = np.full(free.size, 1.0 / N**2)
sensors = np.arange(0, free.size, 3)


def temperatures(log_conductivity):
    elements = np.exp(log_conductivity)[:, None, None] * local
    K = scipy.sparse.coo_array((elements.ravel(), (rows, cols)), shape=((N + 1) ** 2,) * 2).tocsc()
    return spsolve(K[free][:, free], load)


rng = np.random.default_rng(5)
middle = (corner // (N + 1) - N / 2) ** 2 + (corner % (N + 1) - N / 2) ** 2 < 9
TRUE = np.where(middle, 1.0, 0.0)
measured = temperatures(TRUE)[sensors] * (1 + 0.001 * rng.standard_normal(sensors.size))


def misfit(log_conductivity):
    r = (temperatures(log_conductivity)[sensors] - measured) / 1e-3
    u = log_conductivity.reshape(N, N)
    return 0.5 * np.sum(r * r) + 0.5 * (np.sum(np.diff(u, axis=0) ** 2) + np.sum(np.diff(u, axis=1) ** 2))


if __name__ == "__main__":
    import tapegrad as tg

    start = np.zeros(N * N)
    gradient = tg.grad(misfit)(start)
    v = rng.standard_normal(N * N)
    difference = (misfit(start + 1e-5 * v) - misfit(start - 1e-5 * v)) / 2e-5
    assert np.isclose(gradient @ v, difference, rtol=1e-6)
    fit = scipy.optimize.minimize(
        misfit, start, jac=tg.grad(misfit), method="L-BFGS-B", options={"maxiter": 200}
    )
    inner, outer = fit.x[middle].mean(), fit.x[~middle].mean()
    assert fit.fun < misfit(start) / 20 and inner - outer > 0.5
    print(
        f"misfit {misfit(start):.1f} to {fit.fun:.1f}; log conductivity {inner:.2f} in the disc (true 1), "
        f"{outer:.2f} around it (true 0)"
    )
