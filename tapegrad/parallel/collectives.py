"""The collectives: each is an operation with both rules, which runs once in each call on each rank.

Three operations move data. Each is linear. The sum over ranks is its own adjoint, a shift has the shift the
other way, and a sum of the rows of all ranks has the sum of cotangents. The other functions are made of them.
"""

import itertools
from collections.abc import Callable

import numpy as np

from .._core.arrays import is_array, to_host, xp_of
from .._core.errors import ArgumentError, callers_line
from .._core.forward import Dual
from .._core.primitive import RECORDED, layout_of, primal_of
from .._core.reverse import Tape, has_nan, known
from .._core.scope import OPEN
from .._core.variable import Variable
from .._transforms.call import constant_like
from ..ops.declare import ndim, primitive, rules, shape, xp
from ..ops.shaping import broadcast_to, concatenate, imag, real, reshape, transpose
from .ranks import MPI, Ranks, checksums, ranks_of, takes_device_memory
from .sums import exact_bins, rounded


def exchanged(
    x, ranks: Ranks, what: str, where: str, prepared: Callable, rows: bool = False, host: bool = False
):
    """What all ranks together make of x, as a contiguous array that MPI takes.

    `prepared(array)` does what may fail, and returns the exchange, for after all ranks have agreed. `rows`:
    the length of the first axis may differ. `host`: an array of the device is copied to the host first, as
    it is where MPI does not read the memory of the device."""
    x_on_device = xp_of(x) is not np
    array = x if x_on_device and not host and takes_device_memory() else to_host(x)
    library = xp_of(array)
    array = library.ascontiguousarray(array).reshape(np.shape(x))
    exchange = prepared(array)
    if (
        library is not np
    ):  # MPI knows nothing of streams: what computes the array, or frees memory, ends first
        library.cuda.get_current_stream().synchronize()
    ranks.agree(f"{what} of {array.dtype} {array.shape[rows:]} at {where}")
    ranks.bytes += array.nbytes
    y = exchange()
    if not is_array(x):
        return y[()]
    return xp_of(x).asarray(y) if x_on_device else y


def exact_sum(ranks: Ranks, host) -> Callable:
    """The exchange that adds the rows of `host` on all ranks, rounded once."""
    mine = exact_bins(host)
    total = np.empty_like(mine)

    def exchange():
        ranks.comm.Allreduce(mine, total, MPI.SUM)
        return rounded(total, host.shape[1:], host.dtype)

    return exchange


@primitive(batch="elementwise", external=True, aliases=True, known_as="parallel.psum")
def sum_over_ranks(x, *, ranks, where: str, exact: bool):
    exact = exact and layout_of(x).dtype.kind in "fc"

    def prepared(array):
        if exact:
            return exact_sum(ranks, array[None])
        found = xp_of(array).empty_like(array)

        def exchange():
            ranks.comm.Allreduce(array, found, MPI.SUM)
            return found

        return exchange

    if ranks.size == 1:
        return x
    return exchanged(x, ranks, "an exact psum" if exact else "psum", where, prepared, host=exact)


rules(
    sum_over_ranks,
    lambda g, out, x, ranks, where, exact: bound(sum_over_ranks, g, ranks, pulled(where), exact=exact),
    jvp=lambda t, out, x, ranks, where, exact: bound(sum_over_ranks, t[0], ranks, pushed(where), exact=exact),
)


def stacked_rows(run: Callable, stacks, params):
    """Samples lie along the first axis of a stack, and rows along the second."""
    return run(transpose(stacks[0], axes=(1, 0, *range(2, ndim(stacks[0])))), **params)


@primitive(batch=stacked_rows, external=True, known_as="parallel.psum")
def rows_over_ranks(x, *, ranks, where: str):
    """The sum of the rows of all ranks, rounded once."""

    prepared = lambda array: exact_sum(ranks, array)
    return exchanged(x, ranks, "an exact psum of rows", where, prepared, rows=True, host=True)


rules(
    rows_over_ranks,
    lambda g, out, x, ranks, where: broadcast_to(
        bound(sum_over_ranks, g, ranks, pulled(where), exact=False), to=shape(x)
    ),
    jvp=lambda t, out, x, ranks, where: bound(rows_over_ranks, t[0], ranks, pushed(where)),
)


@primitive(batch="elementwise", external=True, aliases=True, known_as="parallel.shift")
def shifted(x, *, ranks, where: str, by: int, periodic: bool):
    """The array of the rank `by` before this one; zeros where there is none."""

    ends = [ranks.rank - by, ranks.rank + by]
    source, target = [
        r % ranks.size if periodic else r if 0 <= r < ranks.size else MPI.PROC_NULL for r in ends
    ]

    def prepared(array):
        found = xp_of(array).zeros_like(array)

        def exchange():
            ranks.comm.Sendrecv(array, target, 0, found, source, 0)
            return found

        return exchange

    return exchanged(x, ranks, f"a shift by {by}", where, prepared)


rules(
    shifted,
    lambda g, out, x, ranks, where, by, periodic: bound(
        shifted, g, ranks, pulled(where), by=-by, periodic=periodic
    ),
    jvp=lambda t, out, x, ranks, where, by, periodic: bound(
        shifted, t[0], ranks, pushed(where), by=by, periodic=periodic
    ),
)


def pulled(where: str) -> str:
    return f"{where}, in reverse"


def pushed(where: str) -> str:
    return f"{where}, forward"


def bound(operation: Callable, x, ranks: Ranks, where: str, **settings):
    """The operation, after the transforms around it were told.

    Each collective comes here, those of derivatives too."""
    tell_traces(ranks)
    kinds = watching_traces(x, ranks)
    ranks.tracked += bool(kinds)
    place = f"{where}; number {ranks.position()}" + (f", of a value in {kinds} mode" if kinds else "")
    return operation(x, ranks=ranks, where=place, **settings)


def tell_traces(ranks: Ranks) -> None:
    for trace in OPEN.hiding:
        trace.external("a collective of tapegrad.parallel", ranks)


def watching_traces(x, ranks: Ranks) -> str:
    """The modes of the traces that watch x.

    The tapes among them, and those that are being swept, are marked."""
    kinds, left = [], [x]
    while left:
        x = left.pop()
        if not isinstance(x, Variable):
            continue
        trace = x._trace
        if isinstance(trace, Tape):
            kinds.append("reverse")
            mark(trace, ranks)
        elif isinstance(trace, Dual):
            kinds.append("forward")
            left.append(x._slot)
        left.append(x._value)
    swept = OPEN.sweeping
    while swept is not None:
        mark(swept, ranks)
        swept = swept.swept_in
    return ", ".join(sorted(kinds))


def called(operation: Callable, x, comm, **settings):
    """The same for the user's call."""
    return bound(operation, operand(x), ranks_of(comm), str(callers_line()), **settings)


def operand(x):
    """An array, a number or a tracked value; nothing else goes over ranks."""
    b = layout_of(x)
    if not is_array(b):
        if isinstance(x, Variable):
            return x
        x = b = np.asarray(x)[()]
    if b.dtype.kind not in "biufc" or b.dtype.itemsize > 16 or b.dtype.char in "egG":
        raise ArgumentError(
            f"tapegrad.parallel: an array of dtype {b.dtype} does not go over ranks; pass numbers of single "
            f"or double precision"
        )
    return x


# --- gradients ---


def mark(trace, ranks: Ranks) -> None:
    """The ranks share the arguments of this tape, if it has some."""
    if ranks.size == 1 or not hasattr(trace, "leaves"):
        return
    other = None if trace.over_ranks is None else trace.over_ranks.ranks
    if other is None or contains(ranks, other):
        trace.over_ranks = SharedArguments(ranks)
    elif not contains(other, ranks):
        raise ArgumentError(
            "a function that is differentiated combines values over two communicators of which neither "
            "holds the other; combine its result over one that holds both"
        )


def contains(one: Ranks, other: Ranks) -> bool:
    """Are the ranks of `other` among those of `one`?"""
    if one is other:
        return True
    mine, theirs = one.comm.Get_group(), other.comm.Get_group()
    return bool(MPI.Group.Intersection(mine, theirs).Get_size() == theirs.Get_size())


class SharedArguments:
    """What `Trace.over_ranks` holds: the ranks over which the arguments of a tape are the same."""

    __slots__ = ("ranks",)

    def __init__(self, ranks: Ranks):
        self.ranks = ranks

    def reduced(self, trace, seeds: list, G: list, first: bool) -> list | None:
        """The cotangents, with those of the arguments replaced by their mean; see the convention in ranks.py.

        None if a rank has a nan among them, and `first`."""
        leaves: dict = {slot: value for slot, value in trace.leaves.items() if slot < len(G)}
        values = [*leaves.values(), *[v for v, slot in getattr(trace, "outputs", ()) if slot is not None]]
        if trace.swept_in is None:
            values += [g for _, g in seeds]
        if compared(values, self.ranks, any([has_nan(G[slot]) for slot in leaves])) and first:
            return None
        for slot, value in leaves.items():
            g = constant_like(value, 0) if G[slot] is None else G[slot]
            G[slot] = bound(sum_over_ranks, g, self.ranks, "the gradient", exact=False) / self.ranks.size
        return G


@primitive(external=True, known_as="parallel.grad")
def compared_over_ranks(x, *, ranks, where: str, ends, flag: bool):
    """Raise if the vector x differs between ranks; else, is the flag set on one of them?  `ends`: of the
    values that it is made of."""
    library = xp_of(x)
    parts = library.split(x, ends[:-1]) if ends else []
    rows = [library.stack(checksums(part)) for part in parts]
    sums = to_host(library.stack(rows)) if rows else np.zeros((0, 2))
    return ranks.differ(sums, flag, where)


def compared(values: list, ranks: Ranks, flag: bool) -> bool:
    """The same of values without their derivatives. Those that `vmap` hides are left out."""
    tell_traces(ranks)
    flat: list = []
    for x in map(primal_of, values):
        if x is None or (isinstance(x, Variable) and x._trace.visibility != RECORDED):
            continue
        x = reshape(x if isinstance(x, Variable) or is_array(x) else np.asarray(x), to=(-1,))
        flat.append(concatenate(real(x), imag(x), axis=0) if layout_of(x).dtype.kind == "c" else x)
    on_device = [x for x in flat if xp(x) is not np]
    found = [
        compared_over_ranks(
            concatenate(*part, axis=0) if part else np.zeros(0),
            ranks=ranks,
            where=str(callers_line()),
            ends=tuple(itertools.accumulate([shape(x)[0] for x in part])),
            flag=flag,
        )
        for part in ([x for x in flat if xp(x) is np], on_device)
        if part or not on_device
    ]
    return any([bool(known(v)[0]) for v in found])
