"""First hour of a physicist: a simulation that writes into buffers, fitted to measurements as it stands.

The heat equation on a rod is stepped in place. Its diffusivity and the power of a heater are estimated by
Gauss-Newton with the exact Jacobian, and the uncertainty is that of linear error propagation.
"""

import numpy as np

import tapegrad as tg

N, STEPS, DT = 64, 200, 2e-4
x = np.linspace(0.0, 1.0, N)
u, flux = np.zeros(N), np.zeros(N - 1)  # buffers, made once and overwritten by each run


def simulate(p):
    """Temperatures at five probes, for p = (diffusivity, power of the heater)."""
    u[:] = np.sin(np.pi * x)
    heater = np.exp(-(((x - 0.3) / 0.05) ** 2))
    for _ in range(STEPS):
        np.subtract(u[1:], u[:-1], out=flux)
        u[1:-1] += DT * (p[0] * (flux[1:] - flux[:-1]) * (N - 1) ** 2 + p[1] * heater[1:-1])
    return u[8::12].copy()


rng = np.random.default_rng(0)
truth, sigma = np.array([0.5, 20.0]), 1e-3
measured = simulate(truth) + sigma * rng.standard_normal(5)

# Is the derivative right? Both modes against each other and against differences.
tg.testing.check_grads(simulate, (truth,), order=1)

p = np.array([0.3, 10.0])
for _ in range(8):
    r, J = simulate(p) - measured, tg.jacobian(simulate)(p)
    p = p - np.linalg.solve(J.T @ J, J.T @ r)
cov = sigma**2 * np.linalg.inv(J.T @ J)
for name, value, error, right in zip(["diffusivity", "power"], p, np.sqrt(np.diag(cov)), truth, strict=True):
    print(f"{name:12} {value:9.5f} +- {error:.5f}  (truth {right})")
    assert abs(value - right) < 4 * error
