"""The collectives: each is an operation with both rules, which runs once in each call on each rank.

Three operations move data. Each is linear. The sum over ranks is its own adjoint, a shift has the shift the
other way, and a sum of the rows of all ranks has the sum of cotangents. The other functions are made of them.
"""

from typing import Any

import numpy as np

from .._core.arrays import is_array, to_host, xp_of
from .._core.errors import ArgumentError, callers_line
from .._core.primitive import layout_of
from .._core.typing import AnyFunction
from .._core.variable import Variable
from ..ops.declare import ndim, primitive, rules, shape
from ..ops.shaping import broadcast_to, transpose
from .ranks import MPI, Ranks, ranks_of
from .sums import exact_bins, rounded


def exchanged(x: Any, ranks: Ranks, what: str, where: str, prepared: AnyFunction, rows: bool = False) -> Any:
    """What all ranks together make of the contiguous host array of x. `prepared(host)` does what may fail, and
    returns the exchange, for after all ranks have agreed. `rows`: the length of the first axis may differ."""
    host = np.ascontiguousarray(to_host(x)).reshape(np.shape(x))
    exchange = prepared(host)
    ranks.agree(f"{what} of {host.dtype} {host.shape[rows:]} at {where}")
    ranks.bytes += host.nbytes
    y = exchange()
    return y[()] if not is_array(x) else y if xp_of(x) is np else xp_of(x).asarray(y)


def exact_sum(ranks: Ranks, host: Any) -> AnyFunction:
    """The exchange that adds the rows of `host` on all ranks, rounded once."""
    mine = exact_bins(host)
    total = np.empty_like(mine)

    def exchange() -> Any:
        ranks.comm.Allreduce(mine, total, MPI.SUM)
        return rounded(total, host.shape[1:], host.dtype)

    return exchange


@primitive(batch="elementwise", external=True, aliases=True, known_as="parallel.psum")
def sum_over_ranks(x: Any, *, ranks: Any, where: str, exact: bool) -> Any:
    def prepared(host: Any) -> Any:
        if exact and host.dtype.kind in "fc":
            return exact_sum(ranks, host[None])
        found = np.empty_like(host)

        def exchange() -> Any:
            ranks.comm.Allreduce(host, found, MPI.SUM)
            return found

        return exchange

    return x if ranks.size == 1 else exchanged(x, ranks, "an exact psum" if exact else "psum", where, prepared)


rules(
    sum_over_ranks,
    lambda g, out, x, ranks, where, exact: bound(sum_over_ranks, g, ranks, pulled(where), exact=exact),
    jvp=lambda t, out, x, ranks, where, exact: bound(sum_over_ranks, t[0], ranks, pushed(where), exact=exact),
)


def stacked_rows(run: AnyFunction, stacks: Any, params: Any) -> Any:
    """Samples lie along the first axis of a stack, and rows along the second."""
    return run(transpose(stacks[0], axes=(1, 0, *range(2, ndim(stacks[0])))), **params)


@primitive(batch=stacked_rows, external=True, known_as="parallel.psum")
def rows_over_ranks(x: Any, *, ranks: Any, where: str) -> Any:
    """The sum of the rows of all ranks, rounded once."""

    return exchanged(x, ranks, "an exact psum of rows", where, lambda host: exact_sum(ranks, host), rows=True)


rules(
    rows_over_ranks,
    lambda g, out, x, ranks, where: broadcast_to(bound(sum_over_ranks, g, ranks, pulled(where), exact=False), to=shape(x)),
    jvp=lambda t, out, x, ranks, where: bound(rows_over_ranks, t[0], ranks, pushed(where)),
)


@primitive(batch="elementwise", external=True, aliases=True, known_as="parallel.shift")
def shifted(x: Any, *, ranks: Any, where: str, by: int, periodic: bool) -> Any:
    """The array of the rank `by` before this one; zeros where there is none."""

    ends = [ranks.rank - by, ranks.rank + by]
    source, target = [r % ranks.size if periodic else r if 0 <= r < ranks.size else MPI.PROC_NULL for r in ends]

    def prepared(host: Any) -> Any:
        found = np.zeros_like(host)

        def exchange() -> Any:
            ranks.comm.Sendrecv(host, target, 0, found, source, 0)
            return found

        return exchange

    return exchanged(x, ranks, f"a shift by {by}", where, prepared)


rules(
    shifted,
    lambda g, out, x, ranks, where, by, periodic: bound(shifted, g, ranks, pulled(where), by=-by, periodic=periodic),
    jvp=lambda t, out, x, ranks, where, by, periodic: bound(shifted, t[0], ranks, pushed(where), by=by, periodic=periodic),
)


def pulled(where: str) -> str:
    return f"{where}, in reverse"


def pushed(where: str) -> str:
    return f"{where}, forward"


def bound(operation: AnyFunction, x: Any, ranks: Ranks, where: str, **settings: Any) -> Any:
    """The operation, after the transforms around it were told.  Each collective comes here, those of derivatives too."""
    kinds = ranks.notice(x, operation.prim.known_as)  # type: ignore[attr-defined]
    place = f"{where}; number {ranks.position()}" + (f", of a value in {kinds} mode" if kinds else "")
    return operation(x, ranks=ranks, where=place, **settings)


def called(operation: AnyFunction, x: Any, comm: Any, **settings: Any) -> Any:
    """The same for the user's call."""
    return bound(operation, operand(x), ranks_of(comm), str(callers_line()), **settings)


def operand(x: Any) -> Any:
    """An array, a number or a tracked value; nothing else goes over ranks."""
    b = layout_of(x)
    if not is_array(b):
        if isinstance(x, Variable):
            return x
        x = b = np.asarray(x)[()]
    if b.dtype.kind not in "biufc" or b.dtype.itemsize > 16 or b.dtype.char in "egG":
        raise ArgumentError(f"tapegrad.parallel: an array of dtype {b.dtype} does not go over ranks; pass numbers of single or double precision")
    return x


def mean_over_ranks(ranks: Ranks, g: Any) -> Any:
    return bound(sum_over_ranks, g, ranks, "the gradient", exact=False) / ranks.size


Ranks.mean = mean_over_ranks  # type: ignore[method-assign]
