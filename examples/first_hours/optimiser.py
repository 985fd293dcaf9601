"""First hour of an optimiser: exact derivatives in SciPy's methods, constraints, and thousands of small
problems.

References: Rosenbrock's function has its minimum at ones; problem 71 of Hock and Schittkowski has the value
17.0140173."""

import numpy as np
from scipy.optimize import NonlinearConstraint

import tapegrad as tg


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


# A thousand variables. Gradient and Hessian-vector products are exact; nothing is written by hand.
found = tg.optimize.minimize(rosenbrock, np.full(1000, 0.5), method="trust-ncg")
print(f"Rosenbrock: {found.message} after {found.nit} iterations, off by {np.abs(found.x - 1).max():.1e}")
assert np.abs(found.x - 1).max() < 1e-6

# Constraints: their Jacobians and Hessians are exact, and sparse where that pays.
problem = NonlinearConstraint(lambda x: np.stack([np.prod(x), np.sum(x * x)]), [25.0, 40.0], [np.inf, 40.0])
solved = tg.optimize.minimize(
    lambda x: x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2],
    np.array([1.0, 5.0, 5.0, 1.0]),
    method="trust-constr",
    bounds=[(1.0, 5.0)] * 4,
    constraints=[problem],
)
print(f"Hock and Schittkowski 71: {solved.fun:.7f} at {solved.x.round(6)}")
assert abs(solved.fun - 17.0140173) < 1e-5

# Two thousand starts of one problem, each to its own end, in one compiled search.
starts = np.random.default_rng(0).uniform(-2.0, 2.0, (2, 2000))
many = tg.optimize.minimize_many(lambda x: (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2, starts)
minima = np.unique(many.x[:, many.converged].round(3).T, axis=0)
print(f"Himmelblau's function: {many.converged.mean():.1%} converged, to these minima:\n{minima}")
assert len(minima) >= 4

# A sparse Hessian: pattern and colouring once, then its values by a few products.
plan = tg.sparse.prepare_hessian(rosenbrock, np.ones(1000))
H = plan(found.x)
assert abs(H @ np.ones(1000) - tg.hvp(rosenbrock, found.x, np.ones(1000))).max() < 1e-9
print(f"sparse Hessian: {H.nnz} entries")
