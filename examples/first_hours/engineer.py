"""First hour of an engineer: a spring and damper identified from a response, then designed, with error bars.

The right-hand side is written once. The solver is compiled, and its results carry exact derivatives.
"""

import numpy as np

import tapegrad as tg


def oscillator(t, y, p):
    """m y'' + c y' + k y = 0 with m = 1; p = (c, k)."""
    return np.array([y[1], -p[0] * y[1] - p[1] * y[0]])


times = np.linspace(0.1, 6.0, 40)
solver = tg.ode.solver(oscillator, save_at=times, rtol=1e-9, atol=1e-9)
start = np.array([1.0, 0.0])

# Identify: damping and stiffness from a noisy record, with the covariance of the estimate.
rng = np.random.default_rng(0)
truth, sigma = np.array([0.4, 9.0]), 0.01
record = solver(start, truth, t0=0.0).y[0] + sigma * rng.standard_normal(40)
fit = tg.optimize.least_squares(
    lambda p: (solver(start, p, t0=0.0).y[0] - record) / sigma, np.array([1.0, 5.0])
)
error = np.sqrt(np.diag(np.linalg.inv(fit.jac.T @ fit.jac)))
for name, value, e, right in zip(["damping", "stiffness"], fit.x, error, truth, strict=True):
    print(f"{name:10} {value:.4f} +- {e:.4f}  (truth {right})")
    assert abs(value - right) < 4 * e


# The gradient against the closed form: y(T) = exp(-c T / 2) (cos w T + c / (2 w) sin w T), w^2 = k - c^2 / 4.
def closed_form(p, T):
    w = np.sqrt(p[1] - p[0] ** 2 / 4)
    return np.exp(-p[0] * T / 2) * (np.cos(w * T) + p[0] / (2 * w) * np.sin(w * T))


by_solver = tg.grad(lambda p: solver(start, p, t0=0.0).y[0, -1])(truth)
by_formula = tg.grad(closed_form)(truth, times[-1])
print("sensitivity of the last point:", by_solver.round(6), "closed form:", by_formula.round(6))
assert np.abs(by_solver - by_formula).max() < 1e-7

# Design: the damping that settles fastest, as the least mean square of the response.
best = tg.optimize.minimize(
    lambda c: np.mean(solver(start, np.stack([c[0], 9.0]), t0=0.0).y[0] ** 2), np.array([0.4]), method="BFGS"
)
print(
    f"best damping {best.x[0]:.3f}: mean square {best.fun:.5f} instead of {np.mean(solver(start, truth, t0=0.0).y[0] ** 2):.5f}"
)
assert best.fun < 0.5 * np.mean(solver(start, truth, t0=0.0).y[0] ** 2)
