"""CuPy arrays over ranks, through the host and from the memory of the device, against one process.

Over host memory the address of a CuPy array is one of the host, so any MPI library reads it."""

import os

import numpy as np
from mpi4py import MPI

import tapegrad as tg
from tapegrad import parallel
from tapegrad.parallel import collectives, ranks

SIZE, RANK = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
r = np.random.default_rng(0)
A, x, v = r.normal(size=(9, 4)), r.normal(size=4), r.normal(size=4)
mine = A[parallel.split(9)]
whole = lambda x: np.sum(np.sin(A @ x) ** 2) + np.sum(x**3)
to_host, moved = collectives.to_host, []


def noted(x):
    """`to_host`, with a note of the sizes of the device's arrays that came to the host."""
    if isinstance(x, cupy.ndarray):
        moved.append(x.size)
    return to_host(x)


def same(found, wanted, tolerance=1e-12):
    assert isinstance(found, cupy.ndarray) and found.shape == np.shape(wanted)
    assert np.max(np.abs(found.get() - wanted), initial=0.0) <= tolerance * (
        1 + np.max(np.abs(wanted), initial=0.0)
    ), (found, wanted)


def transforms():
    """Gradients, products with the Hessian, replays, one message, batches."""
    on_device, part, direction = cupy.asarray(x), cupy.asarray(mine), cupy.asarray(v)
    f = lambda x: parallel.psum(cupy.sum(cupy.sin(part @ x) ** 2)) + cupy.sum(x**3)
    same(tg.grad(f)(on_device), tg.grad(whole)(x))
    same(tg.hvp(f, on_device, direction), tg.hvp(whole, x, v))
    same(
        tg.vmap(tg.grad(f))(cupy.stack([on_device, direction])),
        np.stack([tg.grad(whole)(x), tg.grad(whole)(v)]),
    )
    prepared = tg.prepare(f, on_device)
    for k in range(4):
        same(prepared.grad(on_device + k / 8), tg.grad(whole)(x + k / 8))
    share = lambda x: cupy.sum(cupy.sin(part @ x))
    same(parallel.value_and_grad(share)(on_device)[1], A.T @ np.cos(A @ x))
    u = cupy.asarray(r.normal(size=23))
    heat = lambda u: parallel.psum(cupy.sum(parallel.halo(parallel.scatter(u), boundary="periodic") ** 2))
    ends = np.zeros(23)
    for rank in range(SIZE):  # the first and the last row of each part belong to a neighbour too
        rows = np.array_split(np.arange(23), SIZE)[rank]
        ends[rows[[0, -1]]] += 1
    same(tg.grad(heat)(u), 2 * u.get() * (1 + ends))
    try:
        tg.grad(f)(on_device + RANK)
    except tg.errors.RankError as error:
        assert "differ between ranks" in str(error)
    else:
        raise AssertionError("unequal arguments were not found")


def collectives_of_arrays():
    part = cupy.asarray(mine)
    for dtype in (np.float32, np.float64, np.complex64, np.complex128, np.int32, np.int64):
        host = (5 * A).astype(dtype)
        same(parallel.psum(cupy.asarray(host)), SIZE * host, 1e-6)
    same(parallel.psum(cupy.asarray(A).T[::2]), SIZE * A.T[::2])  # strided
    same(parallel.psum(cupy.asarray(2.0)), 2.0 * SIZE)
    same(parallel.psum(cupy.zeros((0, 3))), np.zeros((0, 3)))
    same(parallel.pmean(part.sum() * 0 + RANK), (SIZE - 1) / 2)
    same(parallel.allgather(part), A)
    same(parallel.bcast(cupy.asarray(x) * (1 + RANK), root=SIZE - 1), x * SIZE)
    same(parallel.halo(part, boundary="periodic")[1:-1], mine)


with tg.testing.host_cupy() as cupy:
    collectives.to_host = noted
    for setting in "01":
        os.environ["TAPEGRAD_MPI_CUDA"] = setting
        ranks.takes_device_memory.cache_clear()
        transforms()
        moved.clear()
        collectives_of_arrays()
        assert bool(moved) == (setting == "0"), moved
        same(parallel.psum(cupy.asarray(mine), rows=True), A.sum(0))  # exact sums are made by the host
        same(parallel.psum(cupy.asarray(x), reproducible=True), SIZE * x)

    # work of the current stream ends before MPI reads
    stream, waited = cupy.cuda.Stream(non_blocking=True), []
    with stream:
        current = cupy.cuda.get_current_stream
        cupy.cuda.get_current_stream = lambda: waited.append(current().ptr) or current()
        parallel.psum(cupy.asarray(x))
        cupy.cuda.get_current_stream = current
    assert stream.ptr in waited

os.environ["TAPEGRAD_MPI_CUDA"] = "yes"
ranks.takes_device_memory.cache_clear()
try:
    ranks.takes_device_memory()
except tg.errors.ArgumentError as error:
    assert "TAPEGRAD_MPI_CUDA is 'yes'" in str(error)
else:
    raise AssertionError("a wrong setting was taken")

print("done", flush=True)
