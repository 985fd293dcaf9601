"""A stiff system, solved by SciPy's implicit integrator with its exact sparse Jacobian.

    python examples/brusselator.py                # prints what it took, writes brusselator.png
    python examples/brusselator.py --size 16
    python examples/brusselator.py --device cuda  # the integrator stays on the host

The Brusselator with diffusion on a periodic square, a benchmark of the SciML suite (Hairer and Wanner,
Solving Ordinary Differential Equations II):

    du/dt = B + u^2 v - (A + 1) u + alpha laplacian(u) + source
    dv/dt =     A u - u^2 v       + alpha laplacian(v),

where the source feeds a small disk from t = 1.1 on.  `rate` is written as one writes it in NumPy: into an
array that was made once, through views, neighbours by slices.

tg.sparse follows the function, finds the entries that its Jacobian can have (6 in a row), and colours the
columns; each Jacobian is then a few products at once, whatever the number of unknowns.  Three ways of
integrating with the same tolerances:

1. the exact sparse Jacobian;
2. SciPy's differences in groups of columns, for which it has to be told the pattern (here by the same plan);
3. SciPy's differences column by column, without a pattern (only where there are few unknowns).

Checks that do not come from the method: the Jacobian against differences of `rate`, the sums of its columns,
and the three solutions against each other.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from device import add_option, array_module, to_host
from scipy.integrate import BDF

import tapegrad as tg

A, B, DIFFUSION = 3.4, 1.0, 0.1
TOLERANCE = 1e-5
FEW = 600  # unknowns, up to which differences are taken column by column


def system(n, xp=np):
    """The right-hand side rate(t, y) for n x n points, in arrays of xp, and where it starts."""
    x = np.linspace(0.0, 1.0, n)
    row, column = np.meshgrid(x, x, indexing="ij")
    disk = xp.asarray(((row - 0.3) ** 2 + (column - 0.6) ** 2 <= 0.1**2) * 5.0)
    alpha = DIFFUSION * (n - 1) ** 2
    change = xp.zeros((n, n, 2))

    def diffuse(out, w):
        out -= 4 * alpha * w
        for into, of in ((out, w), (out.T, w.T)):
            into[1:] += alpha * of[:-1]
            into[:-1] += alpha * of[1:]
            into[0] += alpha * of[-1]
            into[-1] += alpha * of[0]

    def rate(t, y):
        state = xp.asarray(y).reshape(n, n, 2)
        u, v, du, dv = state[..., 0], state[..., 1], change[..., 0], change[..., 1]
        du[...] = B + u**2 * v - (A + 1) * u + disk * (t >= 1.1)
        dv[...] = A * u - u**2 * v
        diffuse(du, u)
        diffuse(dv, v)
        return to_host(change.reshape(-1) * 1.0)

    start = np.stack([22 * (column * (1 - column)) ** 1.5, 27 * (row * (1 - row)) ** 1.5], axis=-1)
    return rate, start.reshape(-1)


def integrate(rate, start, end, points, **how):
    """(solution at the points, solver, steps, evaluations of the rate, seconds)"""
    evaluations = 0

    def counted(t, y):
        nonlocal evaluations
        evaluations += 1
        return rate(t, y)

    began, steps, found = time.perf_counter(), 0, [start]
    solver = BDF(counted, 0.0, start, end, rtol=TOLERANCE, atol=TOLERANCE, **how)
    while solver.status == "running":
        solver.step()
        steps += 1
        between = solver.dense_output()
        found += [between(t) for t in points[len(found) :] if t <= solver.t]
    assert solver.status == "finished", solver.status
    return np.stack(found, axis=-1), solver, steps, evaluations, time.perf_counter() - began


def check(plan, rate, start):
    """The exact Jacobian times a vector against differences; the reaction terms of each column of u and v
    cancel up to -u."""
    J, v = plan(0.0, start), np.random.default_rng(0).normal(size=start.size)
    e = 1e-6
    slope = (rate(0.0, start + e * v) - rate(0.0, start - e * v)) / (2 * e)
    assert np.abs(J @ v - slope).max() < 1e-6 * np.abs(slope).max(), "the Jacobian differs from differences"
    sums = np.asarray(J.sum(axis=0)).reshape(-1, 2)
    assert np.allclose(sums[:, 0], -1.0) and np.allclose(sums[:, 1], 0.0), "columns do not add up"


def picture(plan, small, points, solutions, n, path):
    """The pattern with its colours, for few points; u in time, and how far the solutions are apart; u at four
    times."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(15.0, 8.0), layout="constrained")
    grid = figure.add_gridspec(2, 4)
    ax = figure.add_subplot(grid[0, :2])
    small.plot(ax)
    ax.set_title(
        f"Jacobian of 6 x 6 points: {ax.get_title()}\n({n} x {n} points: {plan.pattern.nnz} entries, "
        f"{plan.colors} colours)"
    )
    exact = solutions["exact, sparse"]
    u = exact[::2].reshape(n, n, -1)
    ax = figure.add_subplot(grid[0, 2])
    for name, line in (("max", u.max((0, 1))), ("mean", u.mean((0, 1))), ("min", u.min((0, 1)))):
        ax.plot(points, line, label=name)
    ax.set(title="u over the square", xlabel="t")
    ax.legend(loc="upper center")
    ax = figure.add_subplot(grid[0, 3])
    for name, other in solutions.items():
        if other is not exact:
            ax.semilogy(points[1:], np.abs(other - exact).max(axis=0)[1:], ".-", label=name)
    ax.axhline(TOLERANCE, color="k", ls=":", label="tolerance of a step")
    ax.set_ylim(1e-10, 1e-4)
    ax.set(title="solution less that of the exact Jacobian", xlabel="t", ylabel="largest difference")
    ax.legend(loc="lower right")
    for k, at in enumerate(np.linspace(0, len(points) - 1, 4).round().astype(int)):
        ax = figure.add_subplot(grid[1, k])
        image = ax.imshow(u[..., at].T, origin="lower", extent=(0, 1, 0, 1), cmap="magma")
        ax.set(title=f"u at t = {points[at]:.2f}", xlabel="x", ylabel="y")
        figure.colorbar(image, ax=ax, shrink=0.7)
    figure.savefig(path, dpi=80)
    print(f"picture: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=32, help="points along a side")
    parser.add_argument("--end", type=float, default=11.5, help="the time up to which it is solved")
    parser.add_argument("--output", type=Path, default=Path("brusselator.png"), help="the picture")
    add_option(parser)
    args = parser.parse_args()
    rate, start = system(args.size, array_module(args.device))
    points = np.linspace(0.0, args.end, 24)

    began = time.perf_counter()
    plan = tg.sparse.prepare_jacobian(rate, 0.0, start, argnum=1, format="csc")
    print(f"{plan!r}, prepared in {1e3 * (time.perf_counter() - began):.0f} ms")
    check(plan, rate, start)

    ways = {"exact, sparse": {"jac": plan}, "differences in groups": {"jac_sparsity": plan.pattern}}
    if start.size <= FEW:
        ways["differences by column"] = {}
    solutions = {}
    print(f"{'Jacobian':<24}{'steps':>7}{'evaluations':>13}{'Jacobians':>11}{'factorised':>12}{'seconds':>9}")
    for name, how in ways.items():
        solutions[name], solver, steps, evaluations, seconds = integrate(rate, start, args.end, points, **how)
        print(f"{name:<24}{steps:>7}{evaluations:>13}{solver.njev:>11}{solver.nlu:>12}{seconds:>9.2f}")
    exact = solutions["exact, sparse"]
    apart = max([np.abs(y - exact).max() for y in solutions.values()])
    print(f"largest difference of the solutions: {apart:.1e}")
    assert apart < 1e3 * TOLERANCE * np.abs(exact).max()

    few, begin = system(6)
    picture(
        plan, tg.sparse.prepare_jacobian(few, 0.0, begin, argnum=1), points, solutions, args.size, args.output
    )


if __name__ == "__main__":
    main()
