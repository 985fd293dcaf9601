"""Optimal control with sparse derivatives, and fits by the thousand.

    python benchmarks/optimise.py [--steps 100 20000] [--peaks 100000]

Optimal control: a pendulum that swings up, by trapezoidal collocation. Fits: Gaussian peaks of five
parameters and 64 points, beside a loop of SciPy's least_squares over the first of them, by turns, the least
times.

Rows: `tapegrad.optimize.minimize` with Ipopt and with SciPy's trust-constr, and CasADi with Ipopt where it is
installed. The time of tapegrad holds everything from the text of the functions on. `first` is the first call
in the process, `again` the least of three more. CasADi's building is a row of its own."""

import argparse
import importlib.util
import time

import numpy as np
from scipy.optimize import NonlinearConstraint, least_squares

import tapegrad as tg

TRUST_CONSTR_STEPS = 300  # steps up to which trust-constr is timed


def problem(steps):
    h = 2.0 / steps

    def defects(z):
        angle, speed, torque = z.reshape(3, steps + 1)
        force = torque - 9.81 * np.sin(angle) - 0.1 * speed
        parts = [x[1:] - x[:-1] - h / 2 * (s[1:] + s[:-1]) for x, s in ((angle, speed), (speed, force))]
        return np.concatenate([*parts, np.stack([angle[0], speed[0], angle[-1] - np.pi, speed[-1]])])

    return (lambda z: h * (z[2 * steps + 2 :] ** 2).sum()), defects, np.full(3 * steps + 3, 0.01)


def timed(call):
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def ours(steps, method):
    effort, defects, start = problem(steps)
    solve = lambda: tg.optimize.minimize(
        effort, start, method=method, constraints=NonlinearConstraint(defects, 0, 0)
    )
    first, r = timed(solve)
    again = min([timed(solve)[0] for _ in range(3)])
    print(
        f"{start.size:7d} unknowns, {method:12s}: first {first:7.3f} s, again {again:7.3f} s, {r.nit} "
        f"iterations, effort {r.fun:.6f}"
    )


def by_casadi(steps):
    import casadi

    h, n = 2.0 / steps, 3 * steps + 3

    def build():
        z = casadi.SX.sym("z", n)
        angle, speed, torque = z[: steps + 1], z[steps + 1 : 2 * steps + 2], z[2 * steps + 2 :]
        force = torque - 9.81 * casadi.sin(angle) - 0.1 * speed
        parts = [x[1:] - x[:-1] - h / 2 * (s[1:] + s[:-1]) for x, s in ((angle, speed), (speed, force))]
        g = casadi.vertcat(*parts, angle[0], speed[0], angle[-1] - np.pi, speed[-1])
        quiet = {"ipopt.print_level": 0, "print_time": 0, "ipopt.sb": "yes"}
        return casadi.nlpsol("S", "ipopt", {"x": z, "f": h * casadi.sumsqr(torque), "g": g}, quiet)

    took, solver = timed(build)
    runs = [timed(lambda: solver(x0=np.full(n, 0.01), lbg=0, ubg=0)) for _ in range(4)]
    again, effort = min([t for t, _ in runs[1:]]), float(runs[0][1]["f"])
    print(
        f"{n:7d} unknowns, CasADi, Ipopt: build {took:.3f} s, first {runs[0][0]:7.3f} s, again {again:7.3f} "
        f"s, effort {effort:.6f}"
    )


def peak(x, a, c, w, b, s):
    return a * np.exp(-0.5 * ((x - c) / w) ** 2) + b + s * x


def peaks(count, by_scipy=50, turns=5):
    rng, x = np.random.default_rng(0), np.linspace(-3.0, 3.0, 64)
    truth = np.array([2.0, 0.3, 0.8, 0.5, 0.1])[:, None] * (1 + 0.2 * rng.normal(size=(5, count)))
    Y = peak(x[:, None], *truth) + 0.05 * rng.normal(size=(64, count))
    P0 = np.repeat([[1.5], [0.0], [1.0], [0.3], [0.0]], count, axis=1)
    residuals = lambda p, y: peak(x, *p) - y
    tight = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}
    jac = lambda p, y: by_hand(x, *p)
    first, r = timed(lambda: tg.optimize.curve_fit_many(peak, x, Y, P0))
    ours, scipys, tights = [], [], []
    for _ in range(turns):
        ours.append(timed(lambda: tg.optimize.curve_fit_many(peak, x, Y, P0))[0])
        scipys.append(
            timed(lambda: [least_squares(residuals, P0[:, b], args=(Y[:, b],)) for b in range(by_scipy)])[0]
        )
        took, known = timed(
            lambda: [
                least_squares(residuals, P0[:, b], jac, args=(Y[:, b],), **tight) for b in range(by_scipy)
            ]
        )
        tights.append(took)
    error = max([abs(k.x / r.x[:, b] - 1).max() for b, k in enumerate(known)])
    a, b, c = min(ours) / count, min(scipys) / by_scipy, min(tights) / by_scipy
    print(
        f"{count} peaks: first {first:.2f} s, again {a * 1e6:.2f} us a peak, {int(r.converged.sum())} "
        f"converged, {error:.1e} from SciPy"
    )
    print(
        f"  scipy.optimize.least_squares {b * 1e6:.0f} us ({b / a:.0f} times); by hand, to 1e-14: {c * 1e6:.0f} us ({c / a:.0f} times)"
    )


def by_hand(x, a, c, w, b, s):
    z = (x - c) / w
    e = np.exp(-0.5 * z**2)
    return np.stack([e, a * e * z / w, a * e * z**2 / w, np.ones_like(x), x], axis=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peaks", type=int, default=100_000)
    parser.add_argument("--steps", type=int, nargs="*", default=[100, 20000])
    given = parser.parse_args()
    if given.peaks:
        peaks(given.peaks)
    for steps in given.steps:
        if importlib.util.find_spec("ipyopt"):
            ours(steps, "ipopt")
        if steps <= TRUST_CONSTR_STEPS:
            ours(steps, "trust-constr")
        if importlib.util.find_spec("casadi"):
            by_casadi(steps)


if __name__ == "__main__":
    main()
