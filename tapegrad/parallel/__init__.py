"""Programs on several ranks of MPI, and work on several processes.

A function over ranks is called with the same arguments on all ranks, and returns the same value on all. In
between, each rank computes with its own data. `psum` and the other collectives are operations with
derivatives. So `tapegrad.grad(f)` gives the gradient of the whole function on every rank, and so do the other
transforms, nested to any order.
"""

from .functions import allgather as allgather
from .functions import bcast as bcast
from .functions import halo as halo
from .functions import hvp as hvp
from .functions import pmean as pmean
from .functions import psum as psum
from .functions import scatter as scatter
from .functions import split as split
from .functions import together as together
from .functions import value_and_grad as value_and_grad
