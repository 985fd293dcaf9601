"""Optimal control, Laplace's method and fits by the thousand, beside CasADi with Ipopt and SciPy.

    python benchmarks/optimise.py [--save] [--quick] [--only control | marginals | peaks]

Optimal control: a pendulum that swings up, by trapezoidal collocation. CasADi solves the same problem with its
own Ipopt. Both start at the same point without multipliers. Marginals: Laplace's method with the gradient by
three parameters, each time at other parameters, from the last mode. Peaks: fits of five parameters to 64
points, beside a loop of `scipy.optimize.least_squares` over some of them."""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import _harness as bench
import numpy as np
import scipy.optimize
from scipy.optimize import NonlinearConstraint

import tapegrad as tg

METHOD = (
    "one pinned core, one thread, float64; processor time, medians of interleaved rounds, ratios from pairs "
    "of one round; minima agree to 1e-6, fits to 1e-4, before any timing"
)
# the lines of Ipopt's report, and what they are called here
CLOCK = {
    "OverallAlgorithm": "whole",
    "Function Evaluations": "callbacks",
    " StdAugSystemSolverMultiSolve": "linear algebra",
}


def swing_up(steps, np, stack, concatenate):
    """Effort and defects of angle, speed and torque, each at steps + 1 times."""
    h = 2.0 / steps

    def defects(z):
        angle, speed, torque = z[: steps + 1], z[steps + 1 : 2 * steps + 2], z[2 * steps + 2 :]
        force = torque - 9.81 * np.sin(angle) - 0.1 * speed
        parts = [x[1:] - x[:-1] - h / 2 * (s[1:] + s[:-1]) for x, s in ((angle, speed), (speed, force))]
        return concatenate([*parts, stack([angle[0], speed[0], angle[-1] - 3.141592653589793, speed[-1]])])

    return (lambda z: h * (z[2 * steps + 2 :] ** 2).sum()), defects


def by_casadi(steps, options):
    """CasADi's solver of the problem, or None where it is not installed."""
    try:
        import casadi
    except ImportError:
        return None
    z = casadi.SX.sym("z", 3 * steps + 3)
    _, defects = swing_up(steps, casadi, lambda x: casadi.vertcat(*x), lambda x: casadi.vertcat(*x))
    effort = 2.0 / steps * casadi.sumsqr(z[2 * steps + 2 :])
    quiet = {"print_time": 0, "ipopt.print_level": 0, "ipopt.sb": "yes"}
    more = {f"ipopt.{name}": v for name, v in options.items()}
    return casadi.nlpsol("solver", "ipopt", {"x": z, "f": effort, "g": defects(z)}, {**quiet, **more})


def seconds(call):
    """Return (processor time of the call, its result)."""
    begin = time.process_time()
    found = call()
    return time.process_time() - begin, found


def first_solution():
    """Print the processor time of this process's first solution of the problem with 303 unknowns."""
    effort, defects = swing_up(100, np, np.stack, np.concatenate)
    equal = NonlinearConstraint(defects, 0, 0)
    found, _ = seconds(
        lambda: tg.optimize.minimize(effort, np.full(303, 0.01), method="ipopt", constraints=equal)
    )
    print(found)


def from_text():
    """The same of a new process, whose byte code and kernels are on disk: those of a first process."""
    here = pathlib.Path(__file__).parent
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", "import optimise; optimise.first_solution()"]
    for _ in range(2):
        done = subprocess.run(
            command,
            cwd=here,
            env={**kept, "PYTHONPATH": str(here.parent)},
            stdout=subprocess.PIPE,
            check=True,
        )
    return float(done.stdout)


def clock_of(solve, path):
    """Solve once, and read the processor time of each part from what Ipopt prints."""
    kept, flush = os.dup(1), ctypes.CDLL(None).fflush
    sys.stdout.flush()
    with open(path, "wb") as file:
        os.dup2(file.fileno(), 1)
        try:
            solve()
            sys.stdout.flush()
            flush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
    found = {}
    for line in pathlib.Path(path).read_text().splitlines():
        name, _, rest = line.partition("..")
        if name in CLOCK:
            found[CLOCK[name]] = float(rest.strip(".: ").split()[0])
    return found


def split(solve, path, count):
    """Mean seconds of each part of a solution."""
    runs = [clock_of(solve, path) for _ in range(count)]
    mean = {name: sum([r[name] for r in runs]) / count for name in CLOCK.values()}
    mean["iterations"] = mean["whole"] - mean["callbacks"] - mean["linear algebra"]
    return mean


def control(report):
    """G11"""
    for steps in (100,) if report.quick else (100, 20000):
        effort, defects = swing_up(steps, np, np.stack, np.concatenate)
        n = 3 * steps + 3
        start, equal = np.full(n, 0.01), NonlinearConstraint(defects, 0, 0)
        solve = lambda method: tg.optimize.minimize(effort, start, method=method, constraints=equal)
        prepare = lambda **options: tg.optimize.prepare_minimize(
            effort, start, constraints=equal, options=options
        )
        text, _ = seconds(lambda: solve("ipopt"))
        again, _ = seconds(lambda: solve("ipopt"))
        build, problem = seconds(prepare)
        warmed, first = seconds(problem)
        build_theirs, solver = seconds(lambda: by_casadi(steps, {}))
        jobs = {
            "tapegrad": lambda: problem().fun,
            "CasADi": lambda: float(solver(x0=start, lbg=0, ubg=0)["f"]) if solver else bench.NOT_INSTALLED,
        }
        if solver is None:
            jobs["CasADi"] = bench.NOT_INSTALLED
        if steps < 1000:
            jobs["tapegrad, trust-constr, from the text"] = lambda: solve("trust-constr").fun
        report.table(
            f"Swing-up with {n} unknowns",
            ["system", "build, ms", "solution, ms", "time / tapegrad"],
            f"From the text, by `minimize`: first {text * 1e3:.0f} ms, again {again * 1e3:.0f} ms. First "
            f"solution after `prepare_minimize` {warmed * 1e3:.0f} ms; {first.nit} iterations.",
        )
        t = bench.measure(jobs, seconds=2 if report.quick else 20, rounds=(5, 61), rtol=1e-6, most=1)
        built = {"tapegrad": build, "CasADi": build_theirs}
        for name in jobs:
            report.row(
                name,
                built.get(name, 0.0) * 1e3,
                bench.times(t[name], 1e3),
                bench.ratio(t[name], t["tapegrad"]),
            )
        ratio = bench.ratio(t["tapegrad"], t["CasADi"])
        report.goal(f"G11: {n} unknowns, time over CasADi's", ratio, 1.5 if steps < 1000 else 1.0)
        report.goal(f"G11: {n} unknowns, preparation, s", build, 0.5 if steps < 1000 else 1.0)
        if steps < 1000:
            report.goal(f"G11: {n} unknowns, from the text in a new process, s", from_text(), 0.5)
        parts(report, steps, prepare, start)


def parts(report, steps, prepare, start):
    """The clock of Ipopt itself, with callbacks as it sees them."""
    report.table(
        "Where the time of a solution goes, by Ipopt's clock, ms",
        ["system", "callbacks", "linear algebra", "iterations", "whole"],
    )
    found, options = {}, {"print_timing_statistics": "yes", "print_level": 3}
    for name in ("tapegrad", "CasADi"):
        if name == "tapegrad":
            run = prepare(**options)
        elif (solver := by_casadi(steps, options)) is None:
            continue
        else:
            run = lambda solver=solver: solver(x0=start, lbg=0, ubg=0)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/ipopt.txt"
            clock_of(run, path)
            found[name] = split(run, path, 50 if steps < 1000 else 5)
        report.row(
            name,
            *[found[name][k] * 1e3 for k in ("callbacks", "linear algebra", "iterations", "whole")],
        )
    if "CasADi" in found and steps > 1000:
        share = found["tapegrad"]["callbacks"] / found["CasADi"]["callbacks"]
        report.goal("G11: callbacks over CasADi's", share, 0.5)


def autoregression(n):
    y = np.random.default_rng(0).poisson(2.0, n).astype(float)

    def joint(th, z):
        phi, s = np.tanh(th[0]), np.exp(th[1])
        e = z[1:] - phi * z[:-1]
        prior = -0.5 * (e @ e) / s**2 - n * th[1] + 0.5 * np.log(1 - phi**2)
        return prior - 0.5 * z[0] ** 2 * (1 - phi**2) / s**2 + (y * (z + th[2]) - np.exp(z + th[2])).sum()

    return joint, n, np.array([0.5, -0.5, 0.3])


def field(m, points):
    """A field on a mesh of m x m nodes, whose Hessian has 5, 9 or 13 points."""
    y = np.random.default_rng(0).poisson(2.0, (m, m)).astype(float)

    def joint(th, z):
        k, t, u = np.exp(th[0]), np.exp(th[1]), z.reshape(m, m)
        if points == 13:
            w = (4 + k) * u
            w[1:] -= u[:-1]
            w[:-1] -= u[1:]
            w[:, 1:] -= u[:, :-1]
            w[:, :-1] -= u[:, 1:]
            q = (w * w).sum()
        else:
            q = k * (u * u).sum() + (np.diff(u, axis=0) ** 2).sum() + (np.diff(u, axis=1) ** 2).sum()
        if points == 9:
            q = (
                q
                + 0.5 * ((u[1:, 1:] - u[:-1, :-1]) ** 2).sum()
                + 0.5 * ((u[1:, :-1] - u[:-1, 1:]) ** 2).sum()
            )
        return (y * (u + th[2]) - np.exp(u + th[2])).sum() - 0.5 * t * q

    return joint, m * m, np.array([-1.0, 0.5, 0.3])


def crossed(a, b, observations):
    """Two factors of a and b levels."""
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, a, observations), rng.integers(0, b, observations)
    y = rng.poisson(2.0, observations).astype(float)

    def joint(th, z):
        u, v = z[:a], z[a:]
        eta = th[2] + u[i] + v[j]
        prior = (
            -0.5 * (u @ u) * np.exp(-2 * th[0]) - 0.5 * (v @ v) * np.exp(-2 * th[1]) - a * th[0] - b * th[1]
        )
        return prior + (y * eta - np.exp(eta)).sum()

    return joint, a + b, np.array([-0.7, -0.9, 0.5])


def marginals(report):
    """Goals: 0.1 s, 0.7 s, 0.7 s, 2 s, 0.05 s."""
    report.table(
        "Laplace's method: value and gradient at other parameters",
        [
            "model",
            "latents",
            "preparation, s",
            "value, s",
            "value and gradient, s",
            "Hessian, s",
            "Hessian / gradient",
        ],
    )
    models = [("AR(1)", autoregression(100_000), 0.1), ("5 points", field(173, 5), 0.7)]
    models += [("9 points", field(173, 9), 0.7), ("13 points", field(173, 13), 2.0)]
    models += [("crossed", crossed(1000, 300, 20_000), 0.05)]
    if report.quick:
        models = [("AR(1)", autoregression(1000), 0.1), ("crossed", crossed(100, 30, 2000), 0.05)]
    for name, (joint, n, theta), goal in models:
        prepared, marginal = seconds(lambda: tg.sparse.prepare_laplace(joint, theta, np.zeros(n)))
        both, whole, turn = tg.value_and_grad(marginal), tg.hessian(marginal), [0]

        def moved(call):
            turn[0] += 1
            return call(theta + 0.01 * (turn[0] % 7))

        for call in (both, both, whole):
            moved(call)
        rounds = 1 if report.quick else 7
        t = {
            k: bench.Seconds.of([seconds(lambda: moved(call))[0] for _ in range(rounds)])
            for k, call in (("value", marginal), ("gradient", both), ("Hessian", whole))
        }
        over = bench.ratio(t["Hessian"], t["gradient"])
        report.row(name, n, prepared, *t.values(), over)
        report.goal(f"G11: {name}, value and gradient, s", t["gradient"], goal)
        report.goal(f"G11: {name}, Hessian over gradient", over, 5)


def peak(x, a, c, w, b, s):
    return a * np.exp(-0.5 * ((x - c) / w) ** 2) + b + s * x


def by_hand(x, a, c, w, b, s):
    z = (x - c) / w
    e = np.exp(-0.5 * z**2)
    return np.stack([e, a * e * z / w, a * e * z**2 / w, np.ones_like(x), x], axis=1)


def peaks(report):
    count, by_scipy = (1000, 5) if report.quick else (100_000, 50)
    rng, x = np.random.default_rng(0), np.linspace(-3.0, 3.0, 64)
    truth = np.array([2.0, 0.3, 0.8, 0.5, 0.1])[:, None] * (1 + 0.2 * rng.normal(size=(5, count)))
    Y = peak(x[:, None], *truth) + 0.05 * rng.normal(size=(64, count))
    P0 = np.repeat([[1.5], [0.0], [1.0], [0.3], [0.0]], count, axis=1)
    residuals, jac = (lambda p, y: peak(x, *p) - y), (lambda p, y: by_hand(x, *p))
    tight = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}
    loop = lambda *jac, **options: [
        scipy.optimize.least_squares(residuals, P0[:, b], *jac, args=(Y[:, b],), **options).x
        for b in range(by_scipy)
    ]
    fits = lambda: tg.optimize.curve_fit_many(peak, x, Y, P0)
    first, r = seconds(fits)
    error = max([abs(k / r.x[:, b] - 1).max() for b, k in enumerate(loop(jac, **tight))])
    jobs = {
        "tapegrad": lambda: fits().x[0, :by_scipy],
        "SciPy": lambda: np.array(loop())[:, 0],
        "SciPy, Jacobian by hand, to 1e-14": lambda: np.array(loop(jac, **tight))[:, 0],
    }
    report.table(
        f"{count} peaks",
        ["system", "us a peak", "time / tapegrad"],
        f"First call {first:.2f} s; {int(r.converged.sum())} converged; {error:.1e} from SciPy to 1e-14.",
    )
    t = bench.measure(jobs, seconds=2 if report.quick else 20, rtol=1e-4, most=1)
    each = {
        name: bench.Seconds.of([s / (count if name == "tapegrad" else by_scipy) for s in t[name].rounds])
        for name in jobs
    }
    for name in jobs:
        report.row(name, each[name] * 1e6, bench.ratio(each[name], each["tapegrad"]))
    report.goal("200 over the times that SciPy takes", 200 / bench.ratio(each["SciPy"], each["tapegrad"]), 1)


if __name__ == "__main__":
    bench.start(__doc__, METHOD).run(control, marginals, peaks)
