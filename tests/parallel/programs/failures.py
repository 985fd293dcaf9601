"""Ranks that fail or do not do the same, by the name of the case; each case prints what each rank raised."""

import os
import signal
import sys
import traceback

import numpy as np
from mpi4py import MPI

import tapegrad as tg
from tapegrad import parallel

COMM = MPI.COMM_WORLD
SIZE, RANK = COMM.size, COMM.rank
LAST = RANK == SIZE - 1
x = np.array([1.0, 2.0, 3.0])


def at_once(*error):
    """Show an error by one write, which the others' lines do not come between."""
    sys.stderr.write("".join(traceback.format_exception(*error)))


sys.excepthook = at_once


def say(*words):
    sys.stdout.write(" ".join(map(str, (RANK, *words))) + "\n")
    sys.stdout.flush()


def attempt(f, *args):
    """Say what it raises, and that the communicator still works."""
    try:
        f(*args)
    except Exception as error:
        say(type(error).__name__, error)
    else:
        say("nothing was raised")
    assert np.allclose(tg.grad(lambda x: parallel.psum(np.sum(x**2)))(x), 2 * SIZE * x)
    say("goes on")


def share(x):
    if LAST:
        raise ValueError("boom")
    return np.sum(x**2)


def block():
    with parallel.together():
        share(x)


def branches(x):
    if LAST:
        return parallel.psum(np.sum(x**2))
    return parallel.psum(np.sum(x**2))


def loops(x):
    total = 0.0
    for _ in range(3 + LAST):
        total = total + parallel.psum(np.sum(x**2))
    return total


def unused(x):
    total = parallel.psum(np.sum(x**2))
    return parallel.psum(np.sum(x) + (0.0 if LAST else total))


def over_a_part(x):
    return parallel.psum(np.sum(x**2), COMM.Split(RANK % 2, RANK))


def uncaught():
    tg.grad(lambda x: parallel.psum(share(x)))(x)


def killed():
    parallel.psum(1.0)
    if LAST:
        os.kill(os.getpid(), signal.SIGKILL)
    parallel.psum(1.0)


def ended():
    parallel.psum(1.0)
    if not LAST:
        parallel.psum(1.0)


def guarded():
    """A prepared function whose branch is another one on each rank."""
    p = tg.prepare(lambda x: parallel.psum(np.sum(x**2) if x[0] + RANK < 4 else np.sum(x**3)), x)
    for k in range(8):
        z = x + k
        wanted = sum([z * 2 if z[0] + rank < 4 else 3 * z**2 for rank in range(SIZE)])
        assert np.allclose(p.grad(z), wanted)
    tg.prepare(lambda x: parallel.psum(np.sum(x**2)), x, on_change="raise").grad(x)


CASES = {
    "share": lambda: parallel.value_and_grad(share)(x),
    "product": lambda: parallel.hvp(share, x, x),
    "block": block,
    "branches": lambda: tg.grad(branches)(x),
    "branches of a value": lambda: branches(x),
    "loops": lambda: tg.grad(loops)(x),
    "shapes": lambda: tg.grad(lambda x: np.sum(parallel.psum(x[: 2 + LAST])))(x),
    "dtypes": lambda: parallel.psum(np.float32(1) if LAST else 1.0),
    "rows": lambda: parallel.halo(x[: 3 - 2 * LAST], width=2),
    "constant": lambda: tg.grad(lambda x: parallel.psum(0.0 if LAST else np.sum(x**2)))(x),
    "arguments": lambda: tg.grad(lambda x: parallel.psum(np.sum(x**2)))(x + RANK),
    "values": lambda: tg.grad(lambda x: parallel.psum(np.sum(x**2)) + RANK * x[0])(x),
    "cotangents": lambda: tg.vjp(lambda x: parallel.psum(x), x)[1](x + RANK),
    "unused": lambda: tg.grad(unused)(x),
    "collective in a share": lambda: parallel.value_and_grad(lambda x: parallel.psum(np.sum(x)))(x),
    "part": lambda: tg.grad(over_a_part)(x) if SIZE > 2 else tg.grad(unused)(x),
    "letters": lambda: parallel.psum(np.array(["a"])),
    "no communicator": lambda: parallel.psum(1.0, 3),
    "no rank": lambda: parallel.bcast(1.0, root=SIZE),
    "guarded": guarded,
}

if sys.argv[1] in ("uncaught", "killed", "ended"):
    globals()[sys.argv[1]]()
else:
    for name in sys.argv[1:]:
        say("case", name)
        attempt(CASES[name])
    print("done", flush=True)
