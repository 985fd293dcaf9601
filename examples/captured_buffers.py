"""Recover the parameters of a reaction-diffusion model whose code writes into buffers that it captured.

The right-hand side is written as one writes it for speed: six caches allocated once, `out=` everywhere, the
result written into an array that is handed in.  Nothing in `gm3` or `simulate` knows of tapegrad.

    python examples/captured_buffers.py [--size 16] [--steps 100] [--device cuda] [--output captured_buffers.png]
"""

import argparse
import sys

import numpy as np
import scipy.optimize
from device import add_option, array_module, to_host

import tapegrad as tg

try:
    import matplotlib.pyplot as plt
except ImportError:
    plt = None

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--size", type=int, default=16, help="the field has size x size points")
parser.add_argument("--steps", type=int, default=100, help="Euler steps of 0.001")
add_option(parser)
parser.add_argument("--output", default="captured_buffers.png", help="where the picture goes")
options = parser.parse_args()
xp = array_module(options.device)  # the field lives there; the parameters are host numbers

# --- the model, as a user writes it (Gierer and Meinhardt: activator u, inhibitor v) ---

N, DT = options.size, 1e-3
Ax = -2 * xp.eye(N) + xp.eye(N, k=1) + xp.eye(N, k=-1)
Ax[1, 0] = Ax[-2, -1] = 2.0
Ay = Ax.T.copy()
Ayu, uAx, Du = xp.zeros((N, N)), xp.zeros((N, N)), xp.zeros((N, N))
Ayv, vAx, Dv = xp.zeros((N, N)), xp.zeros((N, N)), xp.zeros((N, N))


def gm3(dr, r, p):
    a, alpha, ubar, beta, D1, D2 = p
    u, v = r[:, :, 0], r[:, :, 1]
    du, dv = dr[:, :, 0], dr[:, :, 1]
    np.matmul(Ay, u, out=Ayu)
    np.matmul(u, Ax, out=uAx)
    np.matmul(Ay, v, out=Ayv)
    np.matmul(v, Ax, out=vAx)
    np.add(Ayu, uAx, out=Du)
    np.add(Ayv, vAx, out=Dv)
    Du[...] *= D1
    Dv[...] *= D2
    du[...] = Du + a * u * u / v + ubar - alpha * u
    dv[...] = Dv + a * u * u - beta * v


k = xp.arange(N * N).reshape(N, N)
start = xp.stack([11 + xp.sin(k), 12.1 + xp.cos(k)], axis=2)
EVERY = max(1, options.steps // 10)
seen = xp.zeros((options.steps // EVERY, N, N, 2))  # the field at ten times
dr = xp.zeros((N, N, 2))


def simulate(p):
    r = start.copy()
    for step in range(options.steps):
        gm3(dr, r, p)
        r += DT * dr
        if (step + 1) % EVERY == 0:
            seen[step // EVERY] = r
    return seen


# --- data from known parameters, and their recovery ---

names = ("a", "alpha", "ubar", "beta", "D1", "D2")
truth = np.array([1.0, 1.0, 1.0, 10.0, 0.001, 100.0])
noise = 0.01
data = simulate(truth).copy() + noise * xp.asarray(np.random.default_rng(0).standard_normal(seen.shape))

FREE = [0, 1, 3, 5]  # ubar is confounded with alpha in so short a time, and D1 moves nothing visible


def misfit(logs):
    p = truth.copy()
    p[FREE] = np.exp(logs)
    return 0.5 * xp.sum(((simulate(p) - data) / noise) ** 2) / data.size


def value_and_grad(logs):
    value, gradient = tg.value_and_grad(misfit)(logs)
    return float(value), gradient


guess = truth[FREE] * [1.3, 0.7, 0.8, 0.6]
box = [(x - 0.6, x + 0.6) for x in np.log(guess)]  # beyond, Euler's method is unstable
fit = scipy.optimize.minimize(
    value_and_grad,
    np.log(guess),
    jac=True,
    method="L-BFGS-B",
    bounds=box,
    options={"ftol": 1e-15, "gtol": 1e-9},
)
H = tg.hessian(misfit)(fit.x) * data.size
errors = np.sqrt(np.diag(np.linalg.inv(H))) * np.exp(fit.x)
found = np.exp(fit.x)

print(
    f"Gierer-Meinhardt model, {N} x {N} points, {options.steps} steps; {fit.nit} iterations, {fit.nfev} "
    f"gradients"
)
print(f"{'':8}{'true':>12}{'start':>12}{'estimate':>14}{'std. error':>12}")
for i, j in enumerate(FREE):
    print(f"{names[j]:8}{truth[j]:12.5g}{guess[i]:12.5g}{found[i]:14.7g}{errors[i]:12.2g}")
print(f"misfit {fit.fun:.6f} (0.5 is expected of the noise)")

if plt is None:
    print("for the picture: pip install 'tapegrad[plot]'")
else:
    figure, axes = plt.subplots(2, 2, figsize=(9, 8), layout="constrained")
    final = simulate(np.where(np.isin(np.arange(6), FREE), 0, truth) + np.bincount(FREE, found, 6))[-1]
    first, observed, model = [to_host(r[:, :, 1]) for r in (start, data[-1], final)]
    shared = {"vmin": min(observed.min(), model.min()), "vmax": max(observed.max(), model.max())}
    fields = (
        (first, "inhibitor v at the start (a scale of its own)", {}),
        (observed, "v at the end: data", shared),
        (model, "v at the end: fitted model", shared),
        (
            (observed - model) / noise,
            "data less model, in standard deviations of the noise",
            {"cmap": "RdBu", "vmin": -4, "vmax": 4},
        ),
    )
    for axis, (field, title, colours) in zip(axes.flat, fields, strict=True):
        figure.colorbar(axis.imshow(field, **colours), ax=axis, shrink=0.85)
        axis.set(title=title, xlabel="column", ylabel="row")
    figure.savefig(options.output, dpi=90)
    print(f"picture: {options.output}")

if not np.all(np.abs(found - truth[FREE]) < 5 * errors):
    sys.exit("the estimates are more than five standard errors off")
