"""Binomial checkpoint schedules (Griewank and Walther 2000, algorithm 799, "revolve").

A sweep over a chain of steps needs their states in reverse order. A few states are kept as snapshots, and
the others are computed again from these. With s snapshots, the first state included, a chain of C(s + r, s)
steps can be swept so that no step is computed again more than r times. No schedule needs fewer steps."""

from math import comb


def _repeats(length: int, snapshots: int) -> int:
    """The smallest r with C(snapshots + r, r) >= length."""
    r, reach = 0, 1
    while reach < length:
        r += 1
        reach = reach * (snapshots + r) // r
    return r


def advance_length(length: int, snapshots: int) -> int:
    """How far to advance from the first state of a chain before the next snapshot is taken.

    `snapshots`: how many may be kept, with that of the first state. With one, the chain is advanced to its
    last step."""
    if snapshots == 1:
        return length - 1
    r = _repeats(length, snapshots)
    shortest = comb(snapshots + r - 2, snapshots) if r > 1 else 1
    return max(shortest, length - comb(snapshots - 1 + r, snapshots - 1))


def first_snapshots(length: int, snapshots: int) -> list[int]:
    """The steps before which the first pass over a chain takes a snapshot."""
    found, start = [0], 0
    while len(found) < snapshots and length - start > 1:
        start += advance_length(length - start, snapshots - len(found) + 1)
        found.append(start)
    return found
