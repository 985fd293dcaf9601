"""What writing into arrays costs: scalar writes, trajectories, captured buffers; the slopes, and the bytes
kept.

    python benchmarks/mutation.py [--save] [--quick] [--only writes | trajectories | bytes_kept | gm3]

tapegrad differentiates the functions as they stand: the arrays written into are ordinary NumPy arrays that
they capture.  PyTorch refuses to write into a tensor that a rule has saved, so its versions clone what they
read."""

import _harness as bench
import numpy as np

import tapegrad as tg

A = 1.01


def scalar_writes(n):
    """x[i+1] = sin(x[i]) * a, one number at a time."""
    x = np.zeros(n + 1)

    def f(a):
        x[0] = a
        for i in range(n):
            x[i + 1] = np.sin(x[i]) * A
        return x[n]

    return f


def scalar_writes_torch(torch, n):
    def f(a):
        x = torch.zeros(n + 1)
        x[0] = a
        for i in range(n):
            x[i + 1] = torch.sin(x[i].clone()) * A
        return x[n]

    return f


def trajectory(T, X=None):
    """X[t+1] = f(X[t]), rows of three numbers."""
    X = np.zeros((T + 1, 3)) if X is None else X

    def f(x):
        X[0] = x
        for t in range(T):
            X[t + 1] = np.sin(X[t]) * A
        return (X[T] * X[T]).sum()

    return f


def trajectory_torch(torch, T):
    def f(x):
        X = torch.zeros((T + 1, 3))
        X[0] = x
        for t in range(T):
            X[t + 1] = torch.sin(X[t].clone()) * A
        return (X[T] * X[T]).sum()

    return f


# --- gm3!, the reaction-diffusion model of SciML's tutorial, with its six captured buffers ---

STEPS, DT = 100, 1e-4
P = np.array([1.0, 1.0, 1.0, 10.0, 0.001, 100.0])


def constants(N):
    Ax = np.diag(np.full(N, -2.0)) + np.diag(np.ones(N - 1), 1) + np.diag(np.ones(N - 1), -1)
    Ay = Ax.copy()
    Ax[1, 0] = Ax[-2, -1] = Ay[0, 1] = Ay[-1, -2] = 2.0
    k = np.arange(N * N).reshape(N, N)
    return Ax, Ay, np.stack([11 + 0.1 * np.sin(k), 12.1 + 0.1 * np.cos(k)], 2)


def gm3_equation(N):
    Ax, Ay, _ = constants(N)
    Ayu, uAx, Du = np.zeros((N, N)), np.zeros((N, N)), np.zeros((N, N))
    Ayv, vAx, Dv = np.zeros((N, N)), np.zeros((N, N)), np.zeros((N, N))

    def gm3(dr, r, p):
        a, alpha, ubar, beta, D1, D2 = p
        u, v = r[:, :, 0], r[:, :, 1]
        du, dv = dr[:, :, 0], dr[:, :, 1]
        np.matmul(Ay, u, out=Ayu)
        np.matmul(u, Ax, out=uAx)
        np.matmul(Ay, v, out=Ayv)
        np.matmul(v, Ax, out=vAx)
        Du[:] = D1 * (Ayu + uAx)
        Dv[:] = D2 * (Ayv + vAx)
        du[:] = Du + a * u * u / v + ubar - alpha * u
        dv[:] = Dv + a * u * u - beta * v

    return gm3


def gm3_loss(N):
    gm3, r0 = gm3_equation(N), constants(N)[2]

    def loss(p):
        r = r0.copy()
        dr = np.zeros_like(r)
        for _ in range(STEPS):
            gm3(dr, r, p)
            r += DT * dr
        return (r * r).sum()

    return loss


def gm3_functional(np, Ax, Ay, r0):
    """The same for systems that do not differentiate writes: what the user would have to rewrite it into."""

    def loss(p):
        a, alpha, ubar, beta, D1, D2 = p
        u, v = r0[:, :, 0], r0[:, :, 1]
        for _ in range(STEPS):
            du = D1 * (Ay @ u + u @ Ax) + a * u * u / v + ubar - alpha * u
            dv = D2 * (Ay @ v + v @ Ax) + a * u * u - beta * v
            u, v = u + DT * du, v + DT * dv
        return (u * u).sum() + (v * v).sum()

    return loss


def gm3_jax(jax, Ax, Ay, r0):
    np = jax.numpy
    Ax, Ay, r0 = np.asarray(Ax), np.asarray(Ay), np.asarray(r0)

    def loss(p):
        a, alpha, ubar, beta, D1, D2 = p

        def step(_, uv):
            u, v = uv
            du = D1 * (Ay @ u + u @ Ax) + a * u * u / v + ubar - alpha * u
            dv = D2 * (Ay @ v + v @ Ax) + a * u * u - beta * v
            return u + DT * du, v + DT * dv

        u, v = jax.lax.fori_loop(0, STEPS, step, (r0[:, :, 0], r0[:, :, 1]))
        return (u * u).sum() + (v * v).sum()

    return jax.jit(jax.grad(loss))


# --- the tables ---


def torch_grad(torch, f, x):
    leaf = torch.tensor(x, requires_grad=True)

    def job():
        return torch.autograd.grad(f(leaf), leaf)[0]

    return job


def slope(sizes, figures):
    """Exponent of a power law through the first and the last figure per step: 0 is linear work."""
    return float(np.log(figures[-1] / figures[0]) / np.log(sizes[-1] / sizes[0]))


def writes(report):
    sizes = [100, 1000] if report.quick else [100, 300, 1000, 3000, 10000]
    torch = bench.torch()
    report.table(
        "x[i+1] = sin(x[i]) * a, gradient: microseconds a write",
        ["n", "NumPy value alone", "tapegrad", "PyTorch", "tapegrad / PyTorch"],
    )
    ours, shares = [], []
    for n in sizes:
        f = scalar_writes(n)
        jobs = {"NumPy": lambda f=f: f(0.3), "tapegrad": lambda f=f: tg.grad(f)(0.3)}
        jobs["PyTorch"] = (
            bench.NOT_INSTALLED if torch is None else torch_grad(torch, scalar_writes_torch(torch, n), 0.3)
        )
        plain = bench.measure({"NumPy": jobs.pop("NumPy")})
        t = plain | bench.measure(jobs, rounds=(3, 41))
        share = bench.ratio(t["tapegrad"], t["PyTorch"])
        t = {name: bench.times(s, 1e6 / n) for name, s in t.items()}
        report.row(n, t["NumPy"], t["tapegrad"], t["PyTorch"], share)
        ours.append(t["tapegrad"])
        shares.append(share)
    report.say(f"\nslope of tapegrad's time a write (0 is linear work): {slope(sizes, ours):.3f}\n")
    report.goal(
        f"G4b: dearest over cheapest write, n = {sizes[0]} to {sizes[-1]}", max(ours) / min(ours), 1.3
    )
    report.goal(
        "G4b: worst share of PyTorch's time",
        shares[0] if isinstance(shares[0], bench.Absent) else max(shares),
        1 / 5,
    )


def trajectories(report):
    sizes = [100, 1000] if report.quick else [100, 1000, 10_000, 100_000]
    torch = bench.torch()
    x, v = np.array([0.3, 0.7, 1.1]), np.array([1.0, 2.0, -1.0])
    names = [
        "NumPy value alone",
        "record",
        "grad",
        "jvp",
        "hvp, forward over reverse",
        "hvp, reverse over reverse",
        "PyTorch grad",
    ]
    report.table(
        "X[t+1] = sin(X[t]) * a, rows of three: microseconds a row",
        ["T", *names],
        "`record` is `vjp` without a call of the pullback. PyTorch's backward pass is quadratic in T (each "
        "write masks the whole cotangent), so it stops at 10,000 rows.",
    )
    figures = {name: [] for name in names[:-1]}
    for T in sizes:
        f = trajectory(T)
        own = {
            "NumPy value alone": lambda f=f: f(x),
            "record": lambda f=f: tg.vjp(f, x)[0],
            "grad": lambda f=f: tg.grad(f)(x),
            "jvp": lambda f=f: tg.jvp(f, (x,), (v,))[1],
            "hvp, forward over reverse": lambda f=f: tg.hvp(f, x, v),
            "hvp, reverse over reverse": lambda f=f: tg.grad(lambda x: (tg.grad(f)(x) * v).sum())(x),
        }
        rounds = (3, 21) if T < 100_000 else (2, 2)
        t = bench.measure(own, rounds=rounds)
        theirs = bench.Absent("not run")
        if torch is None:
            theirs = bench.NOT_INSTALLED
        elif T <= 10_000:
            pair = {"tapegrad": own["grad"], "PyTorch": torch_grad(torch, trajectory_torch(torch, T), x)}
            theirs = bench.measure(pair, rounds=rounds)["PyTorch"]
        for name in figures:
            figures[name].append(t[name] / T * 1e6)
        report.row(T, *[s[-1] for s in figures.values()], bench.times(theirs, 1e6 / T))
    report.row("slope", *[slope(sizes, s) for s in figures.values()], "")
    report.say()
    for name in list(figures)[1:]:
        report.goal(
            f"{name}: dearest over cheapest row, T = {sizes[0]} to {sizes[-1]}",
            max(figures[name]) / min(figures[name]),
            1.3,
        )


def bytes_kept(report):
    report.table("bytes that the records of a trajectory keep", ["T", "kept", "8 T d", "kept / (8 T d)"])
    worst = 0.0
    for T in [100, 1000] if report.quick else [100, 1000, 10_000, 100_000]:
        with tg.Tape() as tape:
            f = trajectory(T, tg.Variable(np.zeros((T + 1, 3))))
            f(tape.watch(np.array([0.3, 0.7, 1.1])))
            kept = tape.saved_bytes
        report.row(T, kept, 24 * T, kept / (24 * T))
        worst = max(worst, kept / (24 * T))
    report.say()
    report.goal("bytes kept over 8 T d", worst, 3)


def gm3(report):
    torch, jax, autograd = bench.torch(), bench.jax(), bench.autograd()
    report.table(
        f"gm3!, six captured buffers, {STEPS} Euler steps, gradient for the six parameters: milliseconds",
        [
            *(
                "N",
                "NumPy value alone",
                "tapegrad, recorded",
                "tapegrad, the rewrite",
                "PyTorch",
                "HIPS autograd",
                "JAX jit (compiled)",
            ),
            *("tapegrad / PyTorch", "/ JAX"),
        ],
        "tapegrad differentiates the user's code with its buffers; the others a functional rewrite, which "
        "`tapegrad, the rewrite` is too.",
    )
    shares, alike = {}, {}
    for N in [8] if report.quick else [8, 32, 128]:
        f, parts = gm3_loss(N), constants(N)
        plain = bench.measure({"NumPy": lambda f=f: f(P)}, seconds=0.5)["NumPy"]
        functional = gm3_functional(np, *parts)
        jobs = {"tapegrad": lambda f=f: tg.grad(f)(P), "functional": lambda f=functional: tg.grad(f)(P)}
        jobs |= dict.fromkeys(("PyTorch", "autograd", "JAX"), bench.NOT_INSTALLED)
        if torch is not None:
            jobs["PyTorch"] = torch_grad(torch, gm3_functional(torch, *[torch.tensor(c) for c in parts]), P)
        if autograd is not None:
            jobs["autograd"] = lambda parts=parts: autograd.grad(gm3_functional(autograd.numpy, *parts))(P)
        if jax is not None:
            compiled = gm3_jax(jax, *parts)
            jobs["JAX"] = lambda compiled=compiled: compiled(P).block_until_ready()
        t = bench.measure(jobs)
        shares[N] = bench.ratio(t["tapegrad"], t["PyTorch"])
        alike[N] = bench.ratio(t["functional"], t["PyTorch"])
        report.row(
            N,
            plain * 1e3,
            *[bench.times(s, 1e3) for s in t.values()],
            shares[N],
            bench.ratio(t["tapegrad"], t["JAX"]),
        )
    report.say()
    for N, share in shares.items():
        if N > 8:
            report.goal(f"G4a, gm3! with N = {N}: share of the time of PyTorch's functional form", share, 1)
            report.say(
                f"- gm3! with N = {N}, the functional form in both: tapegrad / PyTorch "
                f"{bench.cell(alike[N])} (no goal set)"
            )


def main():
    bench.start(__doc__).run(writes, trajectories, bytes_kept, gm3)


if __name__ == "__main__":
    main()
