"""Ranks that share several communicators, and leave them in different orders."""

import sys

import numpy as np
from mpi4py import MPI

from tapegrad import parallel
from tapegrad.parallel import ranks

WORLD = MPI.COMM_WORLD
RANK = WORLD.Get_rank()
for comm in (WORLD, WORLD.Split(RANK % 2, RANK), WORLD.Split(RANK // 2, RANK)):
    assert parallel.psum(np.float64(1.0), comm) == comm.Get_size()
if RANK % 2:
    ranks.KNOWN.reverse()
finished = ranks.finished
if RANK == 2:  # the last of its requests that has ended comes first
    ranks.finished = lambda requests, seconds: len(requests) - 1 - finished(requests[::-1], seconds)
print("done", flush=True)
if sys.argv[1] == "error" and RANK == 0:
    raise ValueError("rank 0 stops here")
