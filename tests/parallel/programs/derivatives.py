"""Every transform of functions over ranks, against the same function in one process."""

import numpy as np
from mpi4py import MPI

import tapegrad as tg
from tapegrad import parallel

SIZE, RANK = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
r = np.random.default_rng(0)
A, y = r.normal(size=(17, 4)), r.normal(size=17)
x, v, X = r.normal(size=4), r.normal(size=4), r.normal(size=(5, 4))
mine = parallel.split(17)


def same(found, wanted, tolerance=1e-12):
    for a, b in zip(tg.tree.flatten(found)[0], tg.tree.flatten(wanted)[0], strict=True):
        assert np.shape(a) == np.shape(b)
        assert np.max(np.abs(np.asarray(a) - np.asarray(b)), initial=0.0) <= tolerance * (
            1 + np.max(np.abs(b))
        ), (a, b)


def whole(x):
    return np.sum(np.exp(0.3 * A @ x) - y * (A @ x)) + np.sum(x**4) * np.sum(np.sin(A @ x))


def f(x):
    e = A[mine] @ x
    return parallel.psum(np.sum(np.exp(0.3 * e) - y[mine] * e)) + np.sum(x**4) * parallel.psum(
        np.sum(np.sin(e))
    )


def nested(f, order):
    """The derivative along v of this order, in reverse mode throughout."""
    for _ in range(order):
        f = lambda x, f=f: tg.grad(f)(x) @ v
    return f


same(f(x), whole(x))
same(tg.grad(f)(x), tg.grad(whole)(x))
same(tg.jvp(f, (x,), (v,)), tg.jvp(whole, (x,), (v,)))
same(tg.hvp(f, x, v), tg.hvp(whole, x, v))
same(tg.hmp(f, x, X[:3]), tg.hmp(whole, x, X[:3]))
same(tg.hessian(f)(x), tg.hessian(whole)(x))
same(tg.value_grad_hvp(f, x, v), tg.value_grad_hvp(whole, x, v))
same(tg.grad(nested(f, 2))(x), tg.grad(nested(whole, 2))(x))
same(tg.grad(lambda x: tg.jvp(f, (x,), (v,))[1])(x), tg.hvp(whole, x, v))
same(tg.jvp(tg.grad(f), (x,), (v,))[1], tg.hvp(whole, x, v))
same(tg.vmap(f)(X), tg.vmap(whole)(X))
same(tg.vmap(tg.grad(f))(X), tg.vmap(tg.grad(whole))(X))
same(tg.grad(lambda X: np.sum(tg.vmap(f)(X) ** 2))(X), tg.grad(lambda X: np.sum(tg.vmap(whole)(X) ** 2))(X))

# a vector-valued function
g, several = lambda x: A.T @ np.sin(A @ x), lambda x: parallel.psum(A[mine].T @ np.sin(A[mine] @ x))
J = tg.jacobian(g)(x)
for mode in ("forward", "reverse"):
    same(tg.jacobian(several, mode=mode)(x), J)
same(tg.linearize(several, x)[1](v), J @ v)
same(tg.linearize(several, x)[1].T(v), J.T @ v)
same(tg.vjp(several, x)[1](v), J.T @ v)

# recorded, checkpointed and by hand
prepared = tg.prepare(f, x)
for k in range(6):
    same(prepared.grad(x + k / 8), tg.grad(whole)(x + k / 8))
    same(prepared.hvp(x + k / 8, v), tg.hvp(whole, x + k / 8, v))
again = tg.checkpoint(f)
same(tg.grad(lambda x: again(x) * x[0])(x), tg.grad(lambda x: whole(x) * x[0])(x))
part = tg.checkpoint(lambda e: np.sin(e) * parallel.psum(np.sum(e**2)))
same(
    tg.grad(lambda x: parallel.psum(np.sum(part(A[mine] @ x))))(x),
    tg.grad(lambda x: np.sum(np.sin(A @ x) * np.sum((A @ x) ** 2)))(x),
)
with tg.Tape() as tape:
    z = tape.watch(x)
    w = f(z)
same(tape.grad(w, z), tg.grad(whole)(x))
same(tape.hvp(w, z, v), tg.hvp(whole, x, v))

# one message for a gradient
share, all_of_it = lambda x: np.sum(np.exp(A[mine] @ x)), lambda x: np.sum(np.exp(A @ x))
h = parallel.value_and_grad(share)
same(h(x), tg.value_and_grad(all_of_it)(x))
same(parallel.hvp(share, x, v), tg.hvp(all_of_it, x, v))
same(tg.grad(lambda x: h(x)[1] @ v)(x), tg.hvp(all_of_it, x, v))
replayed = parallel.value_and_grad(tg.prepare(share, x))
for k in range(4):
    same(replayed(x + k / 8), tg.value_and_grad(all_of_it)(x + k / 8))
    same(parallel.hvp(tg.prepare(share, x), x, v), tg.hvp(all_of_it, x, v))
same(tg.grad(lambda x: replayed(x)[1] @ v)(x), tg.hvp(all_of_it, x, v))
tree = {"a": x[:2], "b": (x[2], x[3:])}
of_tree = lambda t, A: np.sum(np.exp(A[:, :2] @ t["a"] + A[:, 2] * t["b"][0] + A[:, 3:] @ t["b"][1]))
same(parallel.value_and_grad(of_tree)(tree, tg.Const(A[mine])), tg.value_and_grad(of_tree)(tree, tg.Const(A)))

# the other collectives; a captured buffer; complex numbers; a nan on one rank only
u = r.normal(size=23)
same(
    tg.grad(lambda u: np.sum(parallel.allgather(np.sin(parallel.scatter(u))) ** 2))(u),
    tg.grad(lambda u: np.sum(np.sin(u) ** 2))(u),
)
same(tg.grad(lambda u: np.sum(parallel.bcast(u * (RANK + 1), root=SIZE - 1) ** 2))(u), 2 * SIZE**2 * u)
same(tg.grad(lambda u: np.sum(parallel.pmean(u * (RANK + 1)) ** 2))(u), (SIZE + 1) ** 2 / 2 * u)
squares = lambda u: parallel.psum(np.sin(parallel.scatter(u)) ** 2, rows=True)
same(tg.grad(squares)(u), 2 * np.sin(u) * np.cos(u))
same(tg.hessian(squares)(u), np.diag(2 * np.cos(2 * u)))
same(tg.vmap(squares)(np.stack([u, 2 * u])), np.array([np.sum(np.sin(u) ** 2), np.sum(np.sin(2 * u) ** 2)]))
same(parallel.psum({"a": 1.0, "b": np.ones(2)}), {"a": 1.0 * SIZE, "b": np.full(2, 1.0 * SIZE)})
same(parallel.allgather(float(RANK)), np.arange(SIZE) + 0.0)
total = np.zeros(2)


def into_a_buffer(x):
    total[0] = parallel.psum(np.sum((A[mine] @ x) ** 2))
    total[1] = total[0] * x[0]
    return total[1]


same(tg.grad(into_a_buffer)(x), tg.grad(lambda x: np.sum((A @ x) ** 2) * x[0])(x))
c = np.exp(1j * x[:2])
same(
    tg.grad(lambda z: np.real(parallel.psum(np.sum(z**3) * A[mine, 0].sum()) * np.conj(z[0])))(c),
    tg.grad(lambda z: np.real(np.sum(z**3) * A[:, 0].sum() * np.conj(z[0])))(c),
)
b = np.where(np.arange(17) == 16, 0.0, A[:, 0] ** 2)
root = lambda x, b: np.sum(np.where(b * x[0] ** 2 > 0, np.sqrt(b * x[0] ** 2), 0))
same(tg.grad(lambda x: parallel.psum(root(x, b[mine])))(x), tg.grad(lambda x: root(x, b))(x))
same(
    tg.grad(lambda x: parallel.psum(x.astype(np.float32)).sum())(x.astype(np.float32)),
    np.full(4, SIZE, np.float32),
    1e-6,
)

# a rank without data
few = np.array([1.0, 2.0])[parallel.split(2)]
same(tg.grad(lambda x: parallel.psum(np.sum(np.outer(few, x) ** 2)))(x), 10 * x)
same(parallel.value_and_grad(lambda x: np.sum(np.outer(few, x) ** 2))(x)[1], 10 * x)

# an equation of diffusion, with halos
kappa = r.uniform(0.5, 1, size=23)


def heat(u, kappa, around):
    for _ in range(6):
        before, after = (
            (np.roll(u, 1), np.roll(u, -1))
            if around
            else (np.append(u[:1], u[:-1]), np.append(u[1:], u[-1:]))
        )
        u = u + 0.1 * kappa * (before - 2 * u + after)
    return u


def heat_over_ranks(u, kappa, around):
    u, kappa = parallel.scatter(u), parallel.scatter(kappa)
    for _ in range(6):
        wide = parallel.halo(u, boundary="periodic" if around else "none")
        wide = wide if around or RANK else np.append(u[:1], wide)
        wide = wide if around or RANK < SIZE - 1 else np.append(wide, u[-1:])
        u = u + 0.1 * kappa * (wide[:-2] - 2 * u + wide[2:])
    return u


w = r.normal(size=23)
for around in (False, True):
    one = lambda u, k, around=around: np.sum(heat(u, k, around) ** 3)
    many = lambda u, k, around=around: parallel.psum(np.sum(heat_over_ranks(u, k, around) ** 3))
    same(tg.grad(many, argnums=(0, 1))(u, kappa), tg.grad(one, argnums=(0, 1))(u, kappa))
    same(tg.hvp(lambda u, many=many: many(u, kappa), u, w), tg.hvp(lambda u, one=one: one(u, kappa), u, w))
rows = parallel.halo(np.arange(4.0).reshape(2, 2) + 4 * RANK, width=2, axis=1, boundary="zeros")
assert rows.shape == (2, 6) and rows[0, 0] == (4 * RANK - 4 if RANK else 0), rows

print("done", flush=True)
