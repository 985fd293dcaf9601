"""What twins that are written as loops over samples share.

A twin works on blocks of LANES samples side by side, each array of a block being (component, lane), so that the inner loops over
lanes are vectorised without a change to the order of any sample's operations: the results are those of the CUDA C source.
The sizes are numbers at run time, so that one compilation serves all."""

from ._library import twin

LANES = 64
LOG_2_PI = 1.8378770664093454836


@twin
def cube(data):
    """(d, N, samples), with one for samples that all have the same data."""
    d, N = data.shape[:2]
    return data.reshape((d, N, max(data.size // max(d * N, 1), 1)))


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
