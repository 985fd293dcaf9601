"""What the Numba twins of the recursions share.

A twin works on blocks of LANES samples side by side, each array of a block being (component, lane), so that the inner loops over
lanes are vectorised without a change to the order of any sample's operations: the results are those of the CUDA C source.
The sizes are numbers at run time, so that one compilation serves all."""

import numpy as np

from ._library import twin

LANES = 64
LOG_2_PI = 1.8378770664093454836


@twin
def cube(data):
    """(d, N, samples), with one for samples that all have the same data."""
    d, N = data.shape[:2]
    return data.reshape((d, N, max(data.size // max(d * N, 1), 1)))


@twin
def places(modes, sizes, steps, line):
    """Where each argument begins: at a row of theta, or of the data (mode 2) from `line` on; see _filters.cu."""
    found = np.zeros(len(sizes), np.int64)
    row = 0
    for a in range(len(sizes)):
        if modes[a] == 2:
            found[a] = line
            line += sizes[a]
        else:
            found[a] = row
            row += sizes[a] * (steps if modes[a] == 1 else 1)
    return found


@twin
def load(x, place, mode, theta, data, t, s, n):
    """One argument at step t, for the samples s .. s + n."""
    for i in range(x.shape[0]):
        if mode == 2:
            for l in range(n):
                x[i, l] = data[place + i, t, s + l if data.shape[2] > 1 else 0]
        else:
            row = place + i + (t * x.shape[0] if mode == 1 else 0)
            for l in range(n):
                x[i, l] = theta[row, s + l]


@twin
def store(grad, x, place, mode, t, s, n, keep):
    """The gradient of an argument, and zeros in its place."""
    for i in range(x.shape[0]):
        row = place + i + (t * x.shape[0] if mode == 1 else 0)
        for l in range(n):
            if mode != 2:
                grad[row, s + l] = x[i, l] if keep[l] else 0
            x[i, l] = 0


@twin
def at(i, j):
    """Where an element of a symmetric matrix stands in its lower triangle."""
    return i * (i + 1) // 2 + j if i >= j else j * (j + 1) // 2 + i


@twin
def nonnegative_diagonal(P, valid, K, n):
    """`valid` where it was and no element on the diagonal is negative."""
    for i in range(K):
        for l in range(n):
            valid[l] = valid[l] and P[at(i, i), l] >= 0


@twin
def outcome(value, total, seen, valid, s, n):
    """The log-likelihood from minus twice the sum of its terms; `valid` is false afterwards where the gradient is to be 0."""
    for l in range(n):
        v = value.dtype.type(-0.5 * (total[l] + seen[l] * LOG_2_PI))
        value[s + l] = v if valid[l] and v == v else -np.inf
        valid[l] = valid[l] and v - v == 0


@twin
def product(out, o, a, i, b, j, n):
    """out[o] = a[i] b[j], lane by lane."""
    for l in range(n):
        out[o, l] = a[i, l] * b[j, l]


@twin
def add_product(out, o, a, i, b, j, n):
    """out[o] = out[o] + a[i] b[j]."""
    for l in range(n):
        out[o, l] = out[o, l] + a[i, l] * b[j, l]


@twin
def subtract_product(out, o, a, i, b, j, n):
    """out[o] = out[o] - a[i] b[j]."""
    for l in range(n):
        out[o, l] = out[o, l] - a[i, l] * b[j, l]


@twin
def copy(out, o, a, i, n):
    for l in range(n):
        out[o, l] = a[i, l]
