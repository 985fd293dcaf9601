"""The one place where a batch of problems is split into parts; `minimize_many` and the fits may use it.

To run the parts elsewhere, such as on other processes, give `in_parts` another `each`."""

from collections.abc import Callable, Iterable
from typing import Any

from .._core.arrays import xp_of


def in_parts(
    run: Callable[[slice], dict], count: int, size: int, each: Callable[[Callable, Iterable], Iterable] = map
) -> dict[str, Any]:
    """Solve the problems 0 to count - 1 in parts of at most `size`, and join the results.

    `run(part)` solves the problems of a slice. It returns a dict of arrays whose last axis is the problem.
    `each(run, parts)` yields the results in the order of the parts."""
    starts = range(0, max(count, 1), size)
    found = list(each(run, [slice(a, min(a + size, count)) for a in starts]))
    if len(found) == 1:
        return found[0]
    return {name: xp_of(found[0][name]).concatenate([f[name] for f in found], axis=-1) for name in found[0]}
