"""Likelihoods and fits over ranks against one process; then numbers whose bits the test compares."""

import math

import numpy as np
from mpi4py import MPI

import tapegrad as tg
from tapegrad import parallel
from tapegrad import statespace as ss

r = np.random.default_rng(1)


def same(found, wanted, tolerance=1e-12):
    assert np.max(np.abs(found - wanted)) <= tolerance * (1 + np.max(np.abs(wanted))), (found, wanted)


# a kernel's likelihood
def loglik(theta, d):
    z = (d - theta[0]) * np.exp(-theta[1])
    return -0.5 * z * z - theta[1]


kernel = tg.kernels.likelihood(loglik)
data, theta, v = r.normal(size=1001), np.array([0.3, -0.2]), np.array([1.0, 2.0])
mine = data[parallel.split(1001)]
total = lambda theta: parallel.psum(kernel(theta, mine))
same(tg.grad(total)(theta), kernel.grad(theta, data))
same(tg.hvp(total, theta, v), kernel.hvp(theta, v, data))
for one_rank, args in ((lambda theta: kernel(theta, mine), ()), (kernel, (mine,))):
    value, gradient = parallel.value_and_grad(one_rank)(theta, *args)
    same(value, kernel(theta, data))
    same(gradient, kernel.grad(theta, data))

# a panel of state-space models
panel = r.normal(size=(5, 40)).cumsum(axis=1) + r.normal(size=(5, 40))
level = lambda p: ss.local_level(np.exp(p[0]), np.exp(p[1]))
of_series = lambda p, ys: sum([ss.loglik(level(p), y) for y in ys], 0.0 * p[0])
over_ranks = lambda p: -parallel.psum(of_series(p, panel[parallel.split(5)]))
at_once = lambda p: -of_series(p, panel)
p0 = np.array([0.1, -0.1])
same(tg.grad(over_ranks)(p0), tg.grad(at_once)(p0))
same(tg.hessian(over_ranks)(p0), tg.hessian(at_once)(p0))
found, wanted = tg.optimize.minimize(over_ranks, p0), tg.optimize.minimize(at_once, p0)
assert found.success
same(found.x, wanted.x, 1e-8)
same(found.x, parallel.bcast(found.x), 0.0)

# the same bits for any number of ranks
blocks = np.array_split(data, 12)[parallel.split(12)]
by_block = lambda theta, d: np.sum(np.sin(theta[0] * d) ** 2 + theta[1] * np.cos(d))
exact = parallel.value_and_grad(by_block, blocks=blocks)
for number in (*exact(theta)[1], exact(theta)[0], *parallel.hvp(by_block, theta, v, blocks=blocks)):
    if MPI.COMM_WORLD.rank == 0:
        print("bits", float(number).hex())
hard = np.concatenate([data * 10.0 ** r.integers(-150, 150, size=1001), [1e300, 1.0, -1e300, 5e-324]])
number = parallel.psum(hard[parallel.split(hard.size)], rows=True)
if MPI.COMM_WORLD.rank == 0:
    assert number == math.fsum(hard), (number, math.fsum(hard))
    print("bits", float(number).hex())
everywhere = parallel.allgather(np.array([exact(theta)[0]]))
assert len(set(everywhere)) == 1
infinite = [
    ((np.nan, 1.0), np.nan),
    ((np.inf, 1.0), np.inf),
    ((np.inf, -np.inf), np.nan),
    ((1e308, 1e308), np.inf),
]
for special, result in [*infinite, ((-0.0, 0.0), 0.0)]:
    part = np.array(special)[parallel.split(2)]
    assert np.array_equal(parallel.psum(part, rows=True), result, equal_nan=True), special
z = (hard[:6] + 1j * hard[6:12])[parallel.split(6)]
assert parallel.psum(z, rows=True) == complex(math.fsum(hard[:6]), math.fsum(hard[6:12]))
assert parallel.psum(np.float32(0.1), reproducible=True) == np.float32(
    MPI.COMM_WORLD.size * float(np.float32(0.1))
)
print("done", flush=True)
