"""A pendulum swings up with a weak motor: optimal control by trapezoidal collocation.

    python examples/optimal_control.py                 # prints the solution and two checks
    python examples/optimal_control.py --steps 1000 --method ipopt --device cuda

The unknowns are angle, speed and torque at the ends of N steps.  The motion

    angle' = speed,    speed' = torque - 9.81 sin(angle) - 0.1 speed

becomes 2 N equations, one pair for each step.  The integral of the squared torque is minimised.

The program states the problem in NumPy or CuPy; the optimiser works on the host.  `tg.optimize.minimize`
finds that Jacobian and Hessian are sparse, and hands them over exact and sparse.  Checks that do not come
from the method: SciPy integrates the motion with the torque that was found; and the limit of the torque is
used where the conditions of first order say so.
"""

import argparse
import importlib.util
import time
from pathlib import Path

import numpy as np
from device import add_option, array_module, to_host
from scipy.integrate import solve_ivp
from scipy.optimize import Bounds, NonlinearConstraint

import tapegrad as tg

try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
except ImportError:
    pyplot = None

SECONDS, LIMIT = 2.0, 8.0


def acceleration(angle, speed, torque, xp=np):
    return torque - 9.81 * xp.sin(angle) - 0.1 * speed


def problem(steps, xp=np):
    """The objective, the equations, and where the search starts."""
    h = SECONDS / steps

    def effort(z):
        torque = xp.asarray(z).reshape(3, steps + 1)[2]
        return to_host(h / 2 * (torque[1:] ** 2 + torque[:-1] ** 2).sum())

    def defects(z):
        angle, speed, torque = xp.asarray(z).reshape(3, steps + 1)
        force = acceleration(angle, speed, torque, xp)
        equations = [
            angle[1:] - angle[:-1] - h / 2 * (speed[1:] + speed[:-1]),
            speed[1:] - speed[:-1] - h / 2 * (force[1:] + force[:-1]),
            xp.stack([angle[0], speed[0], angle[-1] - np.pi, speed[-1]]),
        ]
        return to_host(xp.concatenate(equations))

    return (
        effort,
        defects,
        np.concatenate(
            [np.linspace(0, np.pi, steps + 1), np.full(steps + 1, np.pi / SECONDS), np.zeros(steps + 1)]
        ),
    )


def draw(times, found, path):
    figure, panels = pyplot.subplots(1, 3, figsize=(9, 3), layout="constrained")
    for ax, values, name, colour in zip(
        panels, found, ("angle", "speed", "torque"), "C0 C1 C2".split(), strict=True
    ):
        ax.plot(times, values, colour)
        ax.set(xlabel="seconds", title=name)
    panels[0].axhline(np.pi, color="k", ls=":", lw=1)
    for bound in (-LIMIT, LIMIT):
        panels[2].axhline(bound, color="k", ls=":", lw=1)
    figure.savefig(path, dpi=90)
    print(f"picture: {path}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--method", default="ipopt" if importlib.util.find_spec("ipyopt") else "trust-constr")
    parser.add_argument("--output", type=Path, help="where a picture goes")
    add_option(parser)
    options = parser.parse_args()
    effort, defects, start = problem(options.steps, array_module(options.device))
    limits = np.repeat([np.inf, np.inf, LIMIT], options.steps + 1)
    begin = time.perf_counter()
    r = tg.optimize.minimize(
        effort,
        start,
        method=options.method,
        bounds=Bounds(-limits, limits),
        constraints=NonlinearConstraint(defects, 0, 0),
    )
    took = time.perf_counter() - begin
    angle, speed, torque = r.flat.reshape(3, options.steps + 1)
    times = np.linspace(0, SECONDS, options.steps + 1)
    at_limit = int((abs(torque) > LIMIT - 1e-3).sum())
    print(
        f"{options.method}: {start.size} unknowns, {defects(start).size} equations, {r.nit} iterations, "
        f"{took:.2f} s: {r.message}"
    )
    print(
        f"effort {r.fun:.6f}, equations met to {abs(defects(r.flat)).max():.1e}, torque at its limit at "
        f"{at_limit} of {times.size} times"
    )

    if options.output and pyplot is not None:
        draw(times, (angle, speed, torque), options.output)
    motion = lambda t, y: [y[1], acceleration(y[0], y[1], np.interp(t, times, torque))]
    integrated = solve_ivp(
        motion, (0, SECONDS), [0.0, 0.0], rtol=1e-9, atol=1e-9, max_step=SECONDS / options.steps
    ).y[:, -1]
    print(
        f"integrated with that torque it ends at angle {integrated[0]:.4f}, speed {integrated[1]:.4f}; "
        f"wanted {np.pi:.4f}, 0"
    )
    close = abs(integrated - [np.pi, 0.0]).max() < 100.0 / options.steps**2 + 0.02
    if not (r.success and close and at_limit):
        raise SystemExit("the solution does not hold")


if __name__ == "__main__":
    main()
