"""Products with Hessians: one at a new point, many in sequence at one point, sixteen at once.

    python benchmarks/operators.py [--save] [--quick] [--only products]

Two functions: the one of the discussion that asked for this, norm(x)**3 x[-1] + x[0]**2, and logistic
regression with 20,000 x 500 data. tapegrad compiles nothing.  JAX's times are those of compiled functions, at
a fixed point of the compiled linear part, the point and what belongs to it being constants; PyTorch's at a
fixed point of the kept graph of the gradient."""

import _harness as bench
import numpy as np

import tapegrad as tg

AT_ONCE = 16


def of_norm(library, n):
    rng = np.random.default_rng(0)
    return (
        (lambda x: library.linalg.norm(x) ** 3 * x[-1] + x[0] ** 2),
        rng.standard_normal(n),
        rng.standard_normal((AT_ONCE, n)),
    )


def logistic(library, m, n):
    rng = np.random.default_rng(0)
    signs = np.sign(rng.standard_normal(m))
    A = signs[:, None] * rng.standard_normal((m, n))
    x, V = 0.05 * rng.standard_normal(n), rng.standard_normal((AT_ONCE, n))
    A.flags.writeable = False
    data = library.asarray(A) if library is np else library.asarray(A.copy())

    def f(x):
        return library.log1p(library.exp(-(data @ x))).sum() + 0.5 * (x * x).sum()

    return f, x, V


def ours(make, *size):
    f, x, V = make(np, *size)
    H = tg.operators.hessian(f, x)
    if make is logistic:  # what has to be done, by hand
        A = f.__closure__[0].cell_contents
        plain = {"one at a fixed point": lambda: A.T @ (A @ V[0]), "at once": lambda: A.T @ (A @ V.T)}
    else:
        plain = {}
    return plain, {
        "value": lambda: f(x),
        "one at a new point": lambda: tg.hvp(f, x, V[0]),
        "update, with value and gradient": lambda: H.update(x).gradient,
        "one at a fixed point": lambda: H @ V[0],
        "at once": lambda: H @ V.T,
    }


def of_jax(jax, make, *size):
    f, x, V = make(jax.numpy, *size)
    gradient = jax.grad(f)
    value, moving, both = (
        jax.jit(f),
        jax.jit(lambda x, v: jax.jvp(gradient, (x,), (v,))[1]),
        jax.jit(jax.value_and_grad(f)),
    )
    fixed = jax.linearize(gradient, x)[1]
    one, many = jax.jit(fixed), jax.jit(lambda V: jax.vmap(fixed)(V).T)
    return {
        "value": lambda: value(x).block_until_ready(),
        "one at a new point": lambda: moving(x, V[0]).block_until_ready(),
        "update, with value and gradient": lambda: both(x)[1].block_until_ready(),
        "one at a fixed point": lambda: one(V[0]).block_until_ready(),
        "at once": lambda: many(V).block_until_ready(),
    }


def of_torch(torch, make, *size):
    f, x, V = make(torch, *size)
    x, V = torch.tensor(x, requires_grad=True), torch.tensor(V)

    def recorded():
        return torch.autograd.grad(f(x), x, create_graph=True)[0]

    kept = recorded()
    return {
        "value": lambda: f(x),
        "one at a new point": lambda: torch.autograd.grad(recorded(), x, V[0])[0],
        "update, with value and gradient": recorded,
        "one at a fixed point": lambda: torch.autograd.grad(kept, x, V[0], retain_graph=True)[0],
        "at once": lambda: torch.autograd.grad(kept, x, V, retain_graph=True, is_grads_batched=True)[0].T,
    }


def products(report):
    torch, jax = bench.torch(), bench.jax()
    sizes = [(of_norm, 5), (of_norm, 1000), (of_norm, 1_000_000), (logistic, 20_000, 500)]
    shares = {}
    for make, *size in [(of_norm, 5), (logistic, 200, 20)] if report.quick else sizes:
        name = (
            "logistic regression, {} x {}".format(*size)
            if make is logistic
            else f"the function of the norm, n = {size[0]}"
        )
        report.table(
            f"{name}: microseconds, at once for each of {AT_ONCE} vectors",
            [
                "",
                "tapegrad",
                "PyTorch",
                "JAX, compiled",
                "tapegrad / PyTorch",
                "/ JAX",
                "/ two products with A",
            ],
        )
        plain, mine = ours(make, *size)
        of = {
            "PyTorch": of_torch(torch, make, *size) if torch is not None else {},
            "JAX": of_jax(jax, make, *size) if jax is not None else {},
        }
        for use, job in mine.items():
            jobs = {"tapegrad": job} | {
                peer: known.get(use, bench.NOT_INSTALLED) for peer, known in of.items()
            }
            t = bench.measure(jobs)
            hand = bench.Absent("")
            if use in plain:
                both = bench.measure({"tapegrad": job, "by hand": plain[use]}, compare=False)
                hand = shares[use] = bench.ratio(both["tapegrad"], both["by hand"])
            scale = 1e6 / AT_ONCE if use == "at once" else 1e6
            report.row(
                use,
                *[bench.times(s, scale) for s in t.values()],
                *[bench.ratio(t["tapegrad"], t[p]) for p in of],
                hand,
            )
    report.say()
    if not report.quick:
        report.goal(
            "G3, a product at a fixed point over its two products with A", shares["one at a fixed point"], 1.1
        )
        report.goal("sixteen at once over their two products with A", shares["at once"], 1.2)


def main():
    bench.start(__doc__).run(products)


if __name__ == "__main__":
    main()
