"""Differential equations: one trajectory and thousands, with gradients, beside diffrax and SciPy.

    python benchmarks/ode.py [--save] [--quick]
        [--only one | many | stiff | first | followed | buffers | large | fit]

G10: the goal's name in the design. All systems have the same tolerances. The column `error` is the largest
relative error of the gradient, against differences of SciPy's solutions at tight tolerances (those of the
plate by Radau) or against tapegrad's gradient at them. The column of Numba is a loop written by hand for this
equation: the steps of Dormand and Prince with forward sensitivities. diffrax's functions are jitted and
compiled before they are timed; its adjoint is that of the steps (RecursiveCheckpointAdjoint)."""

import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import _harness as bench
import mutation
import numba
import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.sparse

import tapegrad as tg

RNG = np.random.default_rng(0)
ROUNDS = (2, 41)  # of slow jobs and of quick ones
SPAN = np.linspace(0.0, 10.0, 11)


def diffrax():
    try:
        import diffrax
    except ImportError:
        return None
    return diffrax


def predator_prey(np):
    return lambda t, y, k: np.stack([k[0] * y[0] - k[1] * y[0] * y[1], k[2] * y[0] * y[1] - k[3] * y[1]])


def robertson(np):
    def f(t, y, k):
        a, b, c = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] ** 2
        return np.stack([-a + b, a - b - c, c])

    return f


def network(np):
    """Twenty species in a ring: flows from each to the next, and reactions of neighbours."""

    def f(t, y, k):
        flow = k * y
        return np.roll(flow, 1) - flow + 0.1 * (np.roll(y, 2) * np.roll(y, -1) - y * np.roll(y, 1))

    return f


@numba.njit(cache=True)
def slope_by_hand(y, k, out):  # pragma: no cover (compiled)
    """The slopes of hares and lynxes, y[:, 0], and of their derivatives by the parameters, y[:, 1:]."""
    a, b = y[0, 0], y[1, 0]
    out[0, 0], out[1, 0] = k[0] * a - k[1] * a * b, k[2] * a * b - k[3] * b
    for j in range(1, 5):
        out[0, j] = (k[0] - k[1] * b) * y[0, j] - k[1] * a * y[1, j]
        out[1, j] = k[2] * b * y[0, j] + (k[2] * a - k[3]) * y[1, j]
    out[0, 1] += a
    out[0, 2] -= a * b
    out[1, 3] += a * b
    out[1, 4] -= b


@numba.njit(cache=True)
def solved_by_hand(y0, ks, times, rtol, atol, A, B, E):  # pragma: no cover (compiled)
    """The sum of squares of the last states of all samples, and its gradient."""
    total, gradient = 0.0, np.empty(ks.shape)
    slopes, y, new = np.empty((7, 2, 5)), np.empty((2, 5)), np.empty((2, 5))
    for sample in range(ks.shape[1]):
        k, t, h = ks[:, sample].copy(), times[0], 0.01
        y[:] = 0.0
        y[:, 0] = y0
        slope_by_hand(y, k, slopes[0])
        for end in times[1:]:
            while t < end:
                step = min(h, end - t)
                for s in range(1, 7):
                    new[:] = y
                    for j in range(s):
                        weight = step * (A[s, j] if s < 6 else B[j])
                        for i in range(10):
                            new[i // 5, i % 5] += weight * slopes[j, i // 5, i % 5]
                    slope_by_hand(new, k, slopes[s])
                square = 0.0
                for i in range(2):
                    error = 0.0
                    for j in range(7):
                        error += step * E[j] * slopes[j, i, 0]
                    square += (error / (atol + rtol * max(abs(y[i, 0]), abs(new[i, 0])))) ** 2
                factor = min(10.0, max(0.2, 0.9 * (square / 2 + 1e-30) ** -0.1))
                if square <= 2.0:
                    t, h = t + step, max(h, factor * step) if step < h else factor * step
                    y[:] = new
                    slopes[0] = slopes[6]
                else:
                    h = factor * step
        for j in range(4):
            gradient[j, sample] = 2 * (y[0, 0] * y[0, j + 1] + y[1, 0] * y[1, j + 1])
        total += y[0, 0] ** 2 + y[1, 0] ** 2
    return total, gradient


class Problem:
    """An equation, its start, its parameters, and the sum of squares of the last states of all samples."""

    def __init__(self, make, y0, k, times, method, rtol, atol, count=None, steps=4096):
        self.make, self.times, self.method, self.rtol, self.atol, self.steps = (
            make,
            times,
            method,
            rtol,
            atol,
            steps,
        )
        self.y0, self.k = np.array(y0), np.array(k)
        if count is not None:
            self.k = self.k[:, None] * np.exp(0.1 * RNG.standard_normal((len(k), count)))
            self.y0 = self.y0[:, None] * np.ones(count)

    def tapegrad(self, rtol=None, atol=None):
        f, settings = (
            self.make(np),
            {"rtol": rtol or self.rtol, "atol": atol or self.atol, "max_steps": self.steps},
        )
        solve = tg.ode.solver(f, self.method, save_at=self.times, **settings)
        loss = lambda k: (solve(self.y0, k).y[:, -1] ** 2).sum()
        return loss, tg.value_and_grad(loss)

    def scipy(self, method, rtol=None, atol=None):
        f, span = self.make(np), (self.times[0], self.times[-1])
        given = {"rtol": rtol or self.rtol, "atol": atol or self.atol, "t_eval": self.times}
        return lambda k: (
            scipy.integrate.solve_ivp(f, span, self.y0, method, args=(k,), **given).y[:, -1] ** 2
        ).sum()

    def numba(self):
        """The loop written by hand, of hares and lynxes."""
        method, single = scipy.integrate.RK45, self.k.ndim == 1
        A = np.zeros((6, 6))
        A[:, : method.A.shape[1]] = method.A
        settings = self.times, self.rtol, self.atol, A, method.B, method.E
        y0, k = (self.y0, self.k[:, None]) if single else (self.y0[:, 0], self.k)
        return lambda: solved_by_hand(y0, k, *settings)

    def diffrax(self, solver):
        """The jitted value and gradient, of a batch by vmap."""
        dr, jax = diffrax(), bench.jax()
        f = self.make(jax.numpy)
        term, save = dr.ODETerm(f), dr.SaveAt(ts=jax.numpy.asarray(self.times))
        control = dr.PIDController(rtol=self.rtol, atol=self.atol)

        def one(y0, k):
            ends = self.times[0], self.times[-1], None
            return dr.diffeqsolve(
                term, solver, *ends, y0, k, saveat=save, stepsize_controller=control, max_steps=4096
            ).ys[-1]

        def loss(k):
            y = one(self.y0, k) if k.ndim == 1 else jax.vmap(one, 1, 1)(jax.numpy.asarray(self.y0), k)
            return (y**2).sum()

        both, k = jax.jit(jax.value_and_grad(loss)), jax.numpy.asarray(self.k)
        return lambda: jax.block_until_ready(both(k))


def by_differences(f, k):
    h = 1e-6 * k
    return f(k), np.stack([(f(k + e) - f(k - e)) / (2 * e.sum()) for e in np.diag(h)])


def error(answer, exact):
    gradient, scale = bench.flat(answer)[1:], np.abs(exact).max()
    return float(np.abs(gradient - np.ravel(exact)).max() / scale)


def settle(job, seconds):
    """Run a job until the machine code of its kernels is optimised, which it is once it has run for as long
    as that takes. Later processes find this code on disk."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        job()


def timed(report, title, jobs, exact, goals=()):
    settle(jobs["tapegrad"], 0.0 if report.quick else 4.0)
    answers, seconds = {}, 0.5 if report.quick else 3.0
    t = bench.measure(jobs, seconds, ROUNDS, rtol=1e-6, compare=False, most=100, answers=answers)
    for name in jobs:
        off = error(answers[name], exact) if name in answers else "-"
        report.row(title, name, bench.times(t[name], 1e3), off, bench.ratio(t[name], t["tapegrad"]))
    for text, figure, bound in goals:
        report.goal(text, figure(t), bound)


def of_diffrax(problem, solver):
    dr = diffrax()
    return bench.NOT_INSTALLED if dr is None else problem.diffrax(getattr(dr, solver)())


def table(report, title):
    report.table(title, ["problem", "system", "ms", "error", "time / tapegrad"])


def one(report):
    table(report, "One gradient: Lotka-Volterra, four parameters, rtol 1e-6")
    p = Problem(predator_prey, [5.0, 1.5], [1.0, 0.4, 0.2, 0.8], SPAN, "tsit5", 1e-6, 1e-8)
    loss, both = p.tapegrad()
    exact = p.tapegrad(1e-11, 1e-13)[1](p.k)[1]
    prepared, scipys = tg.prepare(loss, p.k), p.scipy("RK45")
    of_scipy, of_prepared = tg.value_and_grad(scipys), tg.prepare(scipys, p.k)
    for _ in range(40):  # from the 33rd call on at the latest, kernels take the derivatives
        of_scipy(p.k)
    jobs = {
        "tapegrad": lambda: both(p.k),
        "tapegrad, prepared": lambda: prepared.value_and_grad(p.k),
        "tapegrad, solve_ivp": lambda: of_scipy(p.k),
        "tapegrad, solve_ivp prepared": lambda: of_prepared.value_and_grad(p.k),
        "SciPy, differences": lambda: by_differences(p.scipy("RK45"), p.k),
        "diffrax Tsit5": of_diffrax(p, "Tsit5"),
        "Numba by hand": p.numba(),
    }
    goals = [
        ("G10: a gradient by tg.ode.solver, ms", lambda t: 1e3 * t["tapegrad"], 0.2),
        ("G10: a gradient by solve_ivp, ms", lambda t: 1e3 * t["tapegrad, solve_ivp"], 4.5),
        (
            "G10: a gradient by solve_ivp, prepared, ms",
            lambda t: 1e3 * t["tapegrad, solve_ivp prepared"],
            0.5,
        ),
    ]
    timed(report, "Lotka-Volterra", jobs, exact, goals)


def many(report):
    table(report, "Many gradients: Lotka-Volterra, rtol 1e-6, each with parameters of its own")
    for count in (100,) if report.quick else (100, 1000, 10_000):
        p = Problem(predator_prey, [5.0, 1.5], [1.0, 0.4, 0.2, 0.8], SPAN, "tsit5", 1e-6, 1e-8, count)
        both, exact = p.tapegrad()[1], p.tapegrad(1e-11, 1e-13)[1](p.k)[1]
        jobs = {
            "tapegrad": lambda both=both, p=p: both(p.k),
            "diffrax Tsit5, vmap": of_diffrax(p, "Tsit5"),
            "Numba by hand": p.numba(),
        }
        share = lambda t: bench.ratio(t["tapegrad"], t["diffrax Tsit5, vmap"])
        timed(report, f"{count} samples", jobs, exact, [("G10: share of diffrax's time", share, 0.1)])


def stiff(report):
    table(report, "Stiff equations, rtol 1e-6")
    rates = 10.0 ** RNG.uniform(-2, 3, 20)
    times = np.array([0.0, 0.4, 40.0, 4e4])
    for title, make, y0, k, ends, atol, counts in (
        (
            "Robertson",
            robertson,
            [1.0, 0.0, 0.0],
            [0.04, 1e4, 3e7],
            times,
            1e-10,
            (None, 100) if report.quick else (None, 100, 1000),
        ),
        (
            "20 species",
            network,
            np.ones(20),
            rates,
            np.array([0.0, 5.0, 10.0]),
            1e-9,
            (None,) if report.quick else (None, 100),
        ),
    ):
        for count in counts:
            p = Problem(make, y0, k, ends, "rodas5p", 1e-6, atol, count)
            both, exact = p.tapegrad()[1], p.tapegrad(1e-10, 1e-14)[1](p.k)[1]
            jobs = {
                "tapegrad": lambda both=both, p=p: both(p.k),
                "diffrax Kvaerno5": of_diffrax(p, "Kvaerno5"),
            }
            if count is None:
                jobs["SciPy Radau, differences"] = lambda p=p: by_differences(p.scipy("Radau"), p.k)
            share = lambda t: bench.ratio(t["tapegrad"], t["diffrax Kvaerno5"])
            timed(report, f"{title}, {count or 1}", jobs, exact, [("share of diffrax's time", share, 0.05)])


FIRST = """
import time, numpy as np, tapegrad as tg
{source}
solve = tg.ode.solver({name}(np), "{method}", save_at=[0.0, 5.0, 10.0], rtol=1e-6, atol=1e-9)
y0, k, begun = np.linspace(1.0, 2.0, {n}), np.linspace(0.5, 1.0, {parameters}), time.process_time()
tg.value_and_grad(lambda k: (solve(y0, k).y[:, -1] ** 2).sum())(k)
print(time.process_time() - begun)
"""


def first(report):
    """The first gradient in a process, with an empty folder of machine code and with a filled one."""
    report.table(
        "The first gradient of tg.ode.solver in a process, s of processor time in all threads",
        ["problem", "method", "nothing on disk", "from disk"],
    )
    cases = [(predator_prey, "tsit5", 2, 4), (robertson, "rodas5p", 3, 3), (network, "rodas5p", 20, 20)]
    for make, method, n, parameters in cases[-1:] if report.quick else cases:
        settings = {"name": make.__name__, "method": method, "n": n, "parameters": parameters}
        words = [sys.executable, "-c", FIRST.format(source=inspect.getsource(make), **settings)]
        with tempfile.TemporaryDirectory() as folder:
            given = {"env": os.environ | {"TAPEGRAD_CACHE": folder}, "check": True, "stdout": subprocess.PIPE}
            cold, warm = [float(subprocess.run(words, **given).stdout) for _ in range(2)]
        report.row(f"{n} states, {make.__name__}", method, cold, warm)
        for where, seconds in (("nothing on disk", cold), ("from disk", warm)):
            report.goal(f"{make.__name__}: a first gradient, {where}, s", seconds, 1.0)


def lotka_volterra(method):
    f = predator_prey(np)
    return lambda k: (
        scipy.integrate.solve_ivp(f, (0, 10), [5.0, 1.5], method, SPAN, args=(k,), rtol=1e-6, atol=1e-8).y
    )


def stiff_reaction(method):
    f = robertson(np)
    return lambda k: (
        scipy.integrate.solve_ivp(
            f, (0, 40), [1.0, 0, 0], method, [1.0, 40.0], args=(k,), rtol=1e-6, atol=1e-10
        ).y
    )


def followed(report):
    """The derivatives of solve_ivp for each method, over a plain solve."""
    columns = [
        "problem",
        "method",
        "plain solve, ms",
        "gradient",
        "Jacobian",
        "prepared gradient",
        "prepared Jacobian",
    ]
    report.table("scipy.integrate.solve_ivp: time over a plain solve, rtol 1e-6", columns)
    every, implicit = ("RK23", "RK45", "DOP853", "Radau", "BDF", "LSODA"), ("Radau", "BDF", "LSODA")
    for title, make, k, methods in (
        ("Lotka-Volterra", lotka_volterra, np.array([1.0, 0.4, 0.2, 0.8]), every),
        ("Robertson", stiff_reaction, np.array([0.04, 1e4, 3e7]), implicit),
    ):
        for method in methods[-1:] if report.quick else methods:
            states = make(method)
            loss = lambda k, states=states: (states(k)[0] ** 2).sum()
            gradient, jacobian = tg.value_and_grad(loss), tg.jacobian(states, mode="forward")
            p, q = tg.prepare(loss, k), tg.prepare(states, k)
            jobs = {
                "plain": lambda states=states: states(k),
                "gradient": lambda gradient=gradient: gradient(k),
                "Jacobian": lambda jacobian=jacobian: jacobian(k),
                "prepared gradient": lambda p=p: p.value_and_grad(k),
                "prepared Jacobian": lambda q=q: q.jacobian(k),
            }
            for name in [*jobs][1:]:  # kernels are compiled once calls without them have taken as long
                settle(jobs[name], 0.0 if report.quick else 1.0)
            t = bench.measure(jobs, 0.5 if report.quick else 1.5, ROUNDS, compare=False, rtol=1e-9)
            over = {name: bench.ratio(t[name], t["plain"]) for name in jobs}
            report.row(title, method, bench.times(t["plain"], 1e3), *[over[name] for name in jobs][1:])
            report.goal(f"G10: {title}, {method}: gradient over a plain solve", over["gradient"], 5)
            if title == "Robertson" and method != "LSODA":
                report.goal(f"{title}, {method}: a prepared gradient, ms", 1e3 * t["prepared gradient"], 0.5)
            report.goal(
                f"G10: {title}, {method}: Jacobian over a plain solve", over["Jacobian"], 2 + len(k) / 2
            )


def gm3_end(N, method):
    """The sum of squares of the last state of gm3!, whose right-hand side writes seven captured buffers."""
    equation, start, dr = mutation.gm3_equation(N), mutation.constants(N)[2], np.zeros((N, N, 2))

    def gm3(t, y, p):
        equation(dr, y.reshape(N, N, 2), p)
        return dr.reshape(-1).copy()

    settings = {"rtol": 1e-6, "atol": 1e-8, "t_eval": [0.1]}
    return lambda p: (
        scipy.integrate.solve_ivp(gm3, (0, 0.1), start.reshape(-1), method, args=(p,), **settings).y ** 2
    ).sum()


def buffers(report):
    """gm3!, the reaction-diffusion model of benchmarks/mutation.py, by solve_ivp."""
    report.table(
        "gm3! by solve_ivp, seven captured buffers, six parameters, rtol 1e-6",
        ["states", "method", "plain solve, ms", "gradient over it", "largest difference from differences"],
    )
    cases = [(32, "RK45"), (32, "DOP853"), (32, "BDF"), (32, "LSODA"), (128, "RK45")]
    for N, method in cases[:1] if report.quick else cases:
        loss = gm3_end(N, method)
        gradient = tg.value_and_grad(loss)
        jobs = {"plain": lambda loss=loss: loss(mutation.P), "gradient": lambda g=gradient: g(mutation.P)}
        exact = by_differences(gm3_end(N, "DOP853"), mutation.P)[1]
        answers, seconds = {}, 0.5 if report.quick else 5.0
        t = bench.measure(jobs, seconds, ROUNDS, compare=False, rtol=1e-9, answers=answers)
        over, off = bench.ratio(t["gradient"], t["plain"]), error(answers["gradient"], exact)
        report.row(2 * N * N, method, bench.times(t["plain"], 1e3), over, off)
        report.goal(f"G10: gm3!, {2 * N * N} states, {method}: gradient over a plain solve", over, 5)


PLATE = 100  # points on each side


def plate(t, u, k):
    """The slopes of the temperatures of a plate with cold edges and a sink."""
    padded = np.zeros((PLATE + 2, PLATE + 2))
    padded[1:-1, 1:-1] = u.reshape(PLATE, PLATE)
    inner = padded[1:-1, 1:-1]
    across = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2] - 4 * inner
    return (k[0] * across * PLATE**2 / 10 - k[1] * inner**3).reshape(-1)


def large(report):
    """A heat equation with 10,000 unknowns. SciPy alone is told the pattern; tapegrad finds it."""
    plate_solvers: dict = {}
    report.table(
        "A plate of 10,000 unknowns, two parameters, rtol 1e-6: solve_ivp, and tg.ode.solver by Rodas5P",
        ["method", "plain solve, ms", "gradient", "Jacobian", "error"],
    )
    x = np.linspace(0.0, 1.0, PLATE + 2)[1:-1]
    u0, k = np.outer(np.sin(np.pi * x), np.sin(2 * np.pi * x)).reshape(-1), np.array([1.0, 0.5])
    line = scipy.sparse.diags_array(np.ones((3, PLATE)), offsets=(-1, 0, 1), shape=(PLATE, PLATE))
    one = scipy.sparse.eye_array(PLATE)
    pattern, exact = scipy.sparse.kron(line, one) + scipy.sparse.kron(one, line), None
    for method in ("Radau", "rodas5p") if report.quick else ("Radau", "BDF", "rodas5p"):

        def loss(k, rtol=1e-6, method=method, **options):
            settings = {"rtol": rtol, "atol": 1e-3 * rtol}
            if method == "rodas5p":
                solve = plate_solvers.setdefault(
                    rtol, tg.ode.solver(plate, method, save_at=[0, 0.1], **settings)
                )
                return (solve(u0, k).y[:, -1] ** 2).sum()
            end = scipy.integrate.solve_ivp(plate, (0, 0.1), u0, method, args=(k,), **settings, **options)
            return (end.y[:, -1] ** 2).sum()

        known = {} if method == "rodas5p" else {"jac_sparsity": pattern}
        plain = lambda k, rtol=1e-6, loss=loss, known=known: loss(k, rtol, **known)
        if exact is None:  # by Radau
            exact = by_differences(lambda k, plain=plain: plain(k, 1e-9), k)[1]
        gradient, jacobian = tg.value_and_grad(loss), tg.jacobian(loss, mode="forward")
        jobs = {
            "plain": lambda plain=plain: plain(k),
            "gradient": lambda gradient=gradient: gradient(k),
            "Jacobian": lambda jacobian=jacobian: jacobian(k),
        }
        answers, seconds = {}, 1.0 if report.quick else 8.0
        t = bench.measure(jobs, seconds, ROUNDS, compare=False, rtol=1e-9, answers=answers)
        over = {name: bench.ratio(t[name], t["plain"]) for name in jobs}
        off = error(answers["gradient"], exact)
        report.row(method, bench.times(t["plain"], 1e3), over["gradient"], over["Jacobian"], off)
        report.goal(f"G10: plate, {method}: gradient over a plain solve", over["gradient"], 5)


def fit(report):
    """examples/unmodified/ode_fit.py"""
    sys.path.append(str(pathlib.Path(__file__).parent.parent / "examples/unmodified"))
    import ode_fit

    start = ode_fit.TRUE + 0.1 * np.random.default_rng(1).standard_normal(6)
    prepared = tg.prepare(ode_fit.residuals, start)
    solve = lambda f, jac: scipy.optimize.least_squares(f, start, jac=jac, xtol=1e-9).x
    forward = tg.jacobian(ode_fit.residuals, mode="forward")
    jobs = {
        "tapegrad": lambda: solve(prepared.value, prepared.jacobian),
        "tapegrad, not prepared": lambda: solve(ode_fit.residuals, forward),
    }
    for name in ("2-point", "3-point"):
        jobs[f"SciPy, {name} differences"] = lambda name=name: solve(ode_fit.residuals, name)
    report.table(
        "A fit of six parameters: examples/unmodified/ode_fit.py", ["Jacobian", "ms", "time / tapegrad"]
    )
    t = bench.measure(jobs, seconds=1.0 if report.quick else 6.0, compare=False, rtol=1e-5)
    for name in jobs:
        report.row(name, bench.times(t[name], 1e3), bench.ratio(t[name], t["tapegrad"]))
    share = bench.ratio(t["tapegrad"], t["SciPy, 2-point differences"])
    report.goal("a fit, over that with differences", share, 0.2)


if __name__ == "__main__":
    bench.start(__doc__).run(one, many, stiff, first, followed, buffers, large, fit)
