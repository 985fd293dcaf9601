"""Random programs over ranks, each beside the same program on whole arrays, under every transform.

A program has two kinds of values: common ones, the same on all ranks, and divided ones, of which each rank
has its rows. Both programs draw the same operations. Arguments: the first seed, and the number of seeds."""

import sys

import numpy as np
from mpi4py import MPI

import tapegrad as tg
from tapegrad import parallel

RANK = MPI.COMM_WORLD.rank
ROWS = 7  # of a divided array; less than the ranks have on some


class Whole:
    """The operations in one process."""

    own = slice(None)
    scatter = staticmethod(lambda x: x)
    gather = staticmethod(lambda x: x)
    total = staticmethod(lambda x: np.sum(x))
    rows = staticmethod(lambda x: np.sum(x, axis=0))
    mean = staticmethod(lambda x: x)
    from_last = staticmethod(lambda x: x)

    @staticmethod
    def neighbours(x):
        return np.roll(x, 1, axis=0) - 2.0 * x + np.roll(x, -1, axis=0)

    @staticmethod
    def inner(x):
        return np.concatenate([x[:1] * 0, x[1:] - x[:-1]])


class Divided(Whole):
    """The same operations over ranks."""

    own = parallel.split(ROWS)
    scatter = staticmethod(parallel.scatter)
    gather = staticmethod(parallel.allgather)
    total = staticmethod(lambda x: parallel.psum(np.sum(x)))
    rows = staticmethod(lambda x: parallel.psum(x, rows=True))
    mean = staticmethod(parallel.pmean)
    from_last = staticmethod(
        lambda x: parallel.bcast(x * (1 + RANK) / MPI.COMM_WORLD.size, root=MPI.COMM_WORLD.size - 1)
    )

    @staticmethod
    def neighbours(x):
        wide = parallel.halo(x, boundary="periodic")
        return wide[:-2] - 2.0 * x + wide[2:]

    @staticmethod
    def inner(x):
        wide = parallel.halo(x)
        wide = wide if RANK < MPI.COMM_WORLD.size - 1 else np.concatenate([wide, x[-1:]])
        wide = wide if RANK else np.concatenate([x[:1], wide])
        return wide[1:-1] - wide[:-2]


def program(seed, world):
    """A function of a common matrix (ROWS, 2) that returns a number."""

    def f(x):
        r = np.random.default_rng(seed)
        common, divided = [x, np.sin(x)], [world.scatter(x)]
        data = r.normal(size=(20, ROWS, 2))
        buffer = np.zeros_like(divided[0]) if seed % 2 else None
        for k in range(r.integers(3, 12)):
            a, b = common[r.integers(len(common))], common[r.integers(len(common))]
            u, v = divided[r.integers(len(divided))], divided[r.integers(len(divided))]
            kind = r.integers(16)
            if kind == 0:
                common.append(np.tanh(a) * b)
            elif kind == 1:
                divided.append(np.tanh(u) * v)
            elif kind == 2:
                divided.append(world.scatter(np.cos(a)) + 0.5 * u)
            elif kind == 3:
                common.append(np.tanh(world.gather(u)))
            elif kind == 4:
                common.append(a * np.tanh(world.total(u * v)))
            elif kind == 5:
                common.append(a * np.cos(world.rows(u)))
            elif kind == 6:
                divided.append(0.3 * world.neighbours(np.sin(u)))
            elif kind == 7:
                divided.append(world.inner(u) * np.cos(v))
            elif kind == 8:
                divided.append(u * data[k][world.own])
            elif kind == 9:
                common.append(world.mean(np.sin(a)) - world.from_last(b))
            elif kind == 10:
                step = tg.checkpoint(lambda u: np.tanh(u) * np.tanh(world.total(u)))
                divided.append(step(u))
            elif kind == 11 and buffer is not None:
                buffer[:] = np.sin(u)
                buffer[:, 0] *= v[:, 1]
                divided.append(buffer * 1.0)
            elif kind == 12:
                common.append(
                    np.tanh(
                        tg.grad(lambda z: world.total(np.sin(world.scatter(z)) * 0.5) + np.sum(z**3) / 9)(a)
                    )
                )
            elif kind == 13:
                divided.append(tg.jvp(lambda w: np.sin(w) * np.tanh(world.total(w)), (u,), (v,))[1])
            elif kind == 14:
                world.total(u)  # and nobody reads it
            else:
                y = 0.0
                for j in range(3):
                    y = y + np.tanh(world.total(np.sin(u + j))) * a
                common.append(y)
        return (
            np.sum(common[-1] ** 2)
            + np.tanh(world.total(divided[-1] * divided[0]))
            + np.sum(np.sin(common[r.integers(len(common))]))
        )

    return f


def results(f, x, v):
    z = tg.Tape()
    with z:
        w = z.watch(x)
        y = f(w)
    return {
        "value": f(x),
        "grad": tg.grad(f)(x),
        "jvp": tg.jvp(f, (x,), (v,))[1],
        "hvp": tg.hvp(f, x, v),
        "reverse twice": tg.grad(lambda x: np.sum(tg.grad(f)(x) * v))(x),
        "reverse over forward": tg.grad(lambda x: tg.jvp(f, (x,), (v,))[1])(x),
        "tape": z.grad(y, w),
        "vmap": tg.vmap(tg.grad(f))(np.stack([x, v])),
        "prepared": tg.prepare(f, v).grad(v),
    }


first, count = int(sys.argv[1]), int(sys.argv[2])
for seed in range(first, first + count):
    r = np.random.default_rng([seed, 1])
    x, v = r.normal(size=(2, ROWS, 2))
    found, wanted = results(program(seed, Divided), x, v), results(program(seed, Whole), x, v)
    for name, y in wanted.items():
        error = np.max(np.abs(found[name] - y)) / (1 + np.max(np.abs(y)))
        assert error < 1e-11, (seed, name, error)
print("done", flush=True)
