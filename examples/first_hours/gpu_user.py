"""First hour of a GPU user: one program for CuPy, on a device or, to try it, over host memory.

    python gpu_user.py                  # no GPU needed: the real CuPy computes on the CPU
    python gpu_user.py --device cuda

A batched likelihood with a matching adjoint, a user's kernel with its derivative, and a wave equation in
place."""

import argparse
import contextlib
import sys

import numpy as np

import tapegrad as tg

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--device", choices=["host", "cuda"], default="host")
args = parser.parse_args()
if args.device == "cuda":
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        sys.exit(f"--device cuda: no CUDA device answers ({error}); run without it")
place = tg.testing.host_cupy() if args.device == "host" else contextlib.nullcontext(sys.modules.get("cupy"))

with place as cp:
    # A thousand parameter vectors, one datum a row: value and gradient in one launch.
    kernel = tg.kernels.likelihood(
        lambda theta, y: -0.5 * ((y - theta[0]) / np.exp(theta[1])) ** 2 - theta[1]
    )
    y, theta = np.linspace(-1.0, 2.0, 50), np.zeros((2, 1000)) + np.linspace(0.0, 1.0, 1000)
    value, gradient = kernel.value_and_grad(cp.asarray(theta), cp.asarray(y))
    by_hand = ((y[:, None] - theta[0]) / np.exp(theta[1]) ** 2).sum(0)
    print("batched likelihood:", type(gradient).__module__.partition(".")[0], gradient.shape)
    assert np.abs(gradient[0].get() - by_hand).max() < 1e-10

    # A wave equation, stepped in place in device memory, differentiated by its initial state.
    def energy_at_centre(start):
        before, now = start.copy(), start.copy()
        for _ in range(20):
            after = now.copy()
            after[1:-1] = 2 * now[1:-1] - before[1:-1] + 0.25 * (now[2:] - 2 * now[1:-1] + now[:-2])
            before, now = now, after
        return (now[40:60] ** 2).sum()

    start = cp.exp(-((cp.linspace(-4.0, 4.0, 100)) ** 2))
    slope = tg.grad(energy_at_centre)(start)
    bump = 1e-6 * cp.cos(cp.arange(100.0))
    change = (energy_at_centre(start + bump) - energy_at_centre(start - bump)) / 2
    print("wave equation:", float((slope * bump).sum()), "by differences", float(change))
    assert abs(float((slope * bump).sum() - change)) < 1e-12
