"""What twins share that are written as loops over samples, and Numba compiles.

Such a twin works on blocks of LANES samples side by side, each array of a block being (component, lane), so that the inner loops over
lanes are vectorised without a change to the order of any sample's operations: the results are those of the CUDA C source."""

import numpy as np

from .handwritten import twin

LANES = 64
LOG_2_PI = 1.8378770664093454836


@twin
def cube(data):
    """(d, N, samples), with one for samples that all have the same data."""
    d, N = data.shape[:2]
    return data.reshape((d, N, max(data.size // max(d * N, 1), 1)))


@twin
def at(i, j):
    """Where an element of a symmetric matrix stands in its lower triangle."""
    return i * (i + 1) // 2 + j if i >= j else j * (j + 1) // 2 + i


@twin
def outcome(value, total, seen, valid, s, n):
    """The log-likelihood from minus twice the sum of its terms; `valid` is false afterwards where the gradient is to be 0."""
    for l in range(n):
        v = value.dtype.type(-0.5 * (total[l] + seen[l] * LOG_2_PI))
        value[s + l] = v if valid[l] and v == v else -np.inf
        valid[l] = valid[l] and v - v == 0
