"""Many directions and many samples at once: Jacobians, Hessians, gradients of each sample.

    python benchmarks/batched.py [--save] [--quick] [--only directions | samples]

G8: the goal's name in the design.  tapegrad compiles nothing here; JAX's functions are jitted, and compiled
before they are timed."""

import _harness as bench
import numpy as np

import tapegrad as tg

RNG = np.random.default_rng(0)
W = RNG.normal(size=(50, 50)) / 7


def steps(np, W):
    """From 50 numbers to 50, in twelve operations."""

    def f(x):
        for _ in range(4):
            x = np.tanh(W @ x) + 0.1 * x
        return x

    return f


def squares(np, W):
    f = steps(np, W)
    return lambda x: (f(x) ** 2).sum()


# --- many directions ---


def looped(kind, x):
    """What a user writes without batches: a sweep for each row, a product for each column."""
    f, s, units = steps(np, W), squares(np, W), np.eye(len(x))
    if kind == "Jacobian":

        def jacobian():
            _, pullback = tg.vjp(f, x)
            return np.stack([pullback(e) for e in units])

        return jacobian
    if kind == "Jacobian, forward":
        return lambda: np.stack([tg.jvp(f, (x,), (e,))[1] for e in units], axis=1)

    def hessian():
        _, pullback = tg.vjp(tg.grad(s), x)
        return np.stack([pullback(e) for e in units])

    return hessian


def ours(kind, x):
    f, s = steps(np, W), squares(np, W)
    return {
        "Jacobian": lambda: tg.jacobian(f)(x),
        "Jacobian, forward": lambda: tg.jacobian(f, mode="forward")(x),
        "Hessian": lambda: tg.hessian(s)(x),
        "Hessian times 50 directions": lambda: tg.hmp(s, x, np.eye(50)),
    }[kind]


def jax_job(kind, x):
    jax = bench.jax()
    if jax is None:
        return bench.NOT_INSTALLED
    f, s = steps(jax.numpy, jax.numpy.asarray(W)), squares(jax.numpy, jax.numpy.asarray(W))
    x, units = jax.numpy.asarray(x), jax.numpy.eye(50)
    of = {
        "Jacobian": jax.jacrev(f),
        "Jacobian, forward": jax.jacfwd(f),
        "Hessian": jax.hessian(s),
        "Hessian times 50 directions": lambda x: jax.vmap(lambda v: jax.jvp(jax.grad(s), (x,), (v,))[1])(
            units
        ),
    }[kind]
    g = jax.jit(of)
    return lambda: jax.block_until_ready(g(x))


def torch_job(kind, x):
    torch = bench.torch()
    if torch is None:
        return bench.NOT_INSTALLED
    f, s = steps(torch, torch.tensor(W)), squares(torch, torch.tensor(W))
    x, units = torch.tensor(x), torch.eye(50)
    g = {
        "Jacobian": torch.func.jacrev(f),
        "Jacobian, forward": torch.func.jacfwd(f),
        "Hessian": torch.func.hessian(s),
        "Hessian times 50 directions": lambda x: torch.func.vmap(
            lambda v: torch.func.jvp(torch.func.grad(s), (x,), (v,))[1]
        )(units),
    }[kind]
    return lambda: g(x)


def directions(report):
    report.table(
        "50 numbers to 50, twelve operations: milliseconds",
        [
            "what",
            "tapegrad, a sweep after another",
            "tapegrad",
            "PyTorch",
            "JAX jit",
            "loop / tapegrad",
            "tapegrad / JAX",
        ],
    )
    x = RNG.normal(size=50)
    shares = {}
    for kind in ("Jacobian", "Jacobian, forward", "Hessian", "Hessian times 50 directions"):
        jobs = {
            "tapegrad": ours(kind, x),
            "loop": looped(kind, x),
            "PyTorch": torch_job(kind, x),
            "JAX": jax_job(kind, x),
        }
        t = bench.measure(jobs, seconds=0.3 if report.quick else 1.5)
        shares[kind] = bench.ratio(t["tapegrad"], t["loop"])
        cells = [bench.times(t[name], 1e3) for name in ("loop", "tapegrad", "PyTorch", "JAX")]
        report.row(kind, *cells, bench.ratio(t["loop"], t["tapegrad"]), bench.ratio(t["tapegrad"], t["JAX"]))
    report.say()
    for kind in ("Jacobian", "Hessian"):
        report.goal(f"G8, {kind} of 50 numbers: share of a loop of sweeps", shares[kind], 1 / 4)


# --- many samples ---


def recurrence(np, x):
    """A loop that writes."""
    y = np.zeros(20)
    y[0] = x[0]
    for k in range(1, 20):
        y[k] = 0.9 * y[k - 1] + np.sin(x[k])
    return (y * y).sum()


def recurrence_of_torch(torch, x):
    y = [x[0]]
    for k in range(1, 20):
        y.append(0.9 * y[-1] + torch.sin(x[k]))
    return (torch.stack(y) ** 2).sum()


def recurrence_of_jax(jnp, x):
    y = jnp.zeros(20).at[0].set(x[0])
    for k in range(1, 20):
        y = y.at[k].set(0.9 * y[k - 1] + jnp.sin(x[k]))
    return (y * y).sum()


def samples(report):
    report.table(
        "the gradient for each sample: milliseconds",
        [
            "function",
            "samples",
            "tapegrad, a loop",
            "tapegrad vmap",
            "PyTorch vmap",
            "JAX jit vmap",
            "loop / vmap",
            "vmap / PyTorch",
            "vmap / JAX",
        ],
        "The recurrence writes into an array; PyTorch's text makes a list, JAX's `.at[k].set`.",
    )
    torch, jax = bench.torch(), bench.jax()
    layers = lambda library, W: lambda x: squares(library, W)(x)
    for title, size, f, of_torch, of_jax in (
        ("four layers of 50", 50, layers(np, W), torch and layers(torch, torch.tensor(W)),
        jax and layers(jax.numpy, jax.numpy.asarray(W))),
        (
            "recurrence of 20 steps", 20,
            lambda x: recurrence(np, x),
            torch and (lambda x: recurrence_of_torch(torch, x)),
            jax and (lambda x: recurrence_of_jax(jax.numpy, x)),
        ),
    ):  # fmt: skip
        for count in (100,) if report.quick else (100, 2000):
            X = RNG.normal(size=(count, size))
            jobs = {
                "tapegrad": lambda f=f, X=X: tg.vmap(tg.grad(f))(X),
                "loop": lambda f=f, X=X: np.stack([tg.grad(f)(x) for x in X]),
            }
            jobs |= {"PyTorch": bench.NOT_INSTALLED, "JAX": bench.NOT_INSTALLED}
            if torch is not None:
                theirs, T = torch.func.vmap(torch.func.grad(of_torch)), torch.tensor(X)
                jobs["PyTorch"] = lambda theirs=theirs, T=T: theirs(T)
            if jax is not None:
                jitted, J = jax.jit(jax.vmap(jax.grad(of_jax))), jax.numpy.asarray(X)
                jobs["JAX"] = lambda jax=jax, jitted=jitted, J=J: jax.block_until_ready(jitted(J))
            t = bench.measure(jobs, seconds=0.3 if report.quick else 1.5)
            cells = [bench.times(t[name], 1e3) for name in ("loop", "tapegrad", "PyTorch", "JAX")]
            ratios = [
                bench.ratio(t[a], t[b])
                for a, b in (("loop", "tapegrad"), ("tapegrad", "PyTorch"), ("tapegrad", "JAX"))
            ]
            report.row(title, count, *cells, *ratios)


if __name__ == "__main__":
    bench.start(__doc__).run(directions, samples)
