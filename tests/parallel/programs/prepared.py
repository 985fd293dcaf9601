"""Prepared functions with collectives: replays together, branches and sizes of one rank, errors, effects."""

import numpy as np
from mpi4py import MPI

import tapegrad as tg
from tapegrad import parallel

SIZE, RANK = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
r = np.random.default_rng(0)
A, x, v = r.normal(size=(17, 4)), r.normal(size=4), r.normal(size=4)
parts = [A[part] for part in np.array_split(np.arange(17), SIZE)]
mine = parts[RANK]


def same(found, wanted):
    for a, b in zip(tg.tree.flatten(found)[0], tg.tree.flatten(wanted)[0], strict=True):
        assert np.allclose(a, b, rtol=1e-12, atol=1e-12), (found, wanted)


def replays(p, method):
    return p.forms[method].replays


# every method, by each way of running a program
def f(x):
    e = mine @ x
    return parallel.psum(np.sum(np.exp(0.3 * e))) + np.sum(x**4) * parallel.psum(np.sum(np.sin(e)))


def whole(x):
    return np.sum(np.exp(0.3 * A @ x)) + np.sum(x**4) * np.sum(np.sin(A @ x))


for compile in (False, True):
    p = tg.prepare(f, x, compile=compile)
    for k in range(6):
        z = x + k / 8
        same(p.value(z), whole(z))
        same(p.value_and_grad(z), tg.value_and_grad(whole)(z))
        same(p.hvp(z, v), tg.hvp(whole, z, v))
        same(p.jvp(z, v), tg.jvp(whole, (z,), (v,)))
    same(p.at(x).hvp(v), tg.hvp(whole, x, v))
    same(p.at(x).hvp(x), tg.hvp(whole, x, x))
    assert [replays(p, m) for m in ("value", "value_and_grad", "jvp")] == [5, 5, 5], p.report()

# a loop of collectives; a field with halos
repeated = lambda A, add: lambda x: sum([add(np.sum(np.sin(A @ x * (t + 1)))) * x[0] for t in range(6)])
p = tg.prepare(repeated(mine, parallel.psum), x, compile=True)
for k in range(6):
    same(p.grad(x + k / 9), tg.grad(repeated(A, lambda v: v))(x + k / 9))


def heat(u):
    u = parallel.scatter(u)
    for _ in range(6):
        wide = parallel.halo(u, boundary="periodic")
        u = u + 0.1 * (wide[:-2] - 2 * u + wide[2:])
    return parallel.psum(np.sum(u**3))


def heat_of_one(u):
    for _ in range(6):
        u = u + 0.1 * (np.roll(u, 1) - 2 * u + np.roll(u, -1))
    return np.sum(u**3)


u = r.normal(size=23)
p = tg.prepare(heat, u)
for k in range(6):
    same(p.grad(u * (k + 1)), tg.grad(heat_of_one)(u * (k + 1)))
assert replays(p, "grad") == 5

# arguments that differ are found in a replay as well
p = tg.prepare(lambda x: parallel.psum(np.sum(mine @ x)), x)
for k in range(6):
    try:
        p.grad(x + RANK * (k % 2))
    except tg.errors.RankError as error:
        assert SIZE > 1 and k % 2 and "differ between ranks" in str(error)
    else:
        assert SIZE == 1 or k % 2 == 0

# one rank takes another branch: all repeat the call, and f has run once
calls = np.zeros(1)


def counted(x):
    calls[0] += 1
    e = mine @ x
    return parallel.psum(np.sum(e if x[0] > 0 or RANK else e**2) * calls[0])


p = tg.prepare(counted, x)
for k in range(12):
    z = x * (-1) ** (k // 2)
    found = p.grad(z)
    assert calls[0] == k + 1
    one_by_one = [a.sum(0) if z[0] > 0 or n else 2 * a.T @ (a @ z) for n, a in enumerate(parts)]
    same(found, sum(one_by_one) * (k + 1))
assert replays(p, "grad") >= 5, p.report()

# sizes of other ranks, which a recording holds: rank 1 has the same data in both cases
cases = [[np.arange(1.0, 1 + n) + rank for rank, n in enumerate(sizes)] for sizes in ((3, 4, 5), (5, 4, 3))]
cases[1][1] = cases[0][1]
box = [None]


def joined(x):
    e = parallel.allgather(box[0] * x[0])
    return np.sum(e * np.arange(1.0, 1 + e.size)) / parallel.psum(float(box[0].size)) + x[1] ** 2


p = tg.prepare(joined, x)
for k in range(12):
    case = cases[k // 2 % 2][:SIZE]
    box[0] = case[RANK]
    e = np.concatenate(case)
    same(p.grad(x)[:2], np.array([np.sum(e * np.arange(1.0, 1 + e.size)) / e.size, 2 * x[1]]))
assert replays(p, "grad") >= 6, p.report()

# a nan on one rank; an operation that fails on one rank; draws that a given-up replay made
b = np.where(np.arange(17) == 16, 0.0, A[:, 0] ** 2)
root = lambda b: lambda x: np.sum(np.where(b * x[0] ** 2 > 0, np.sqrt(b * x[0] ** 2), 0))
p = tg.prepare(lambda x: parallel.psum(root(b[parallel.split(17)])(x)), x)
for k in range(4):
    same(p.grad(x + k), tg.grad(root(b))(x + k))
rng = np.random.default_rng(RANK)


def failing(x):
    noise = rng.normal()
    total = parallel.psum(np.sum(x**2))
    try:
        a = np.linalg.cholesky(np.eye(2) * (x[0] if RANK == 0 else 1.0))[0, 0]
    except np.linalg.LinAlgError:
        a = 0.0 * x[0]
    return total + parallel.psum(a + noise)


p, other = tg.prepare(failing, x), [np.random.default_rng(n) for n in range(SIZE)]
for k in range(12):
    z = np.abs(x) * (-1.0 if k % 3 == 2 else 1.0)
    noise = sum([g.normal() for g in other])
    root_of = max(z[0], 0) ** 0.5
    same(p.value(z), SIZE * np.sum(z**2) + noise + root_of + (SIZE - 1))

# two communicators are not replayed
halves = MPI.COMM_WORLD.Split(RANK % 2, RANK)
p = tg.prepare(lambda x: parallel.psum(parallel.psum(np.sum(mine @ x), halves) / halves.size), x)
for _ in range(4):
    same(p.value(x), np.sum(A @ x))
assert replays(p, "value") == 0

print("done", flush=True)
