"""The functions that users call, made of the collectives of `collectives.py`."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from .._core.errors import ArgumentError, ShapeError, callers_line
from .._core.primitive import any_tracked, layout_of
from .._core.trees import tree_map
from .._transforms.gradient import value_and_grad as local_value_and_grad
from .._transforms.hessian_products import hvp as local_hvp
from .._transforms.tape import ravel
from ..ops.declare import axis_of, ndim, shape, xp
from ..ops.elementwise import select
from ..ops.shaping import concatenate, reshape, stack
from .collectives import called, operand, rows_over_ranks, shifted, sum_over_ranks
from .ranks import ranks_of


def psum(x, comm=None, *, reproducible: bool = False, rows: bool = False):
    """Return the sum of x over the ranks, on all ranks.

    Parameters
    ----------
    x : array, number or tree of these
        Of equal shapes on all ranks.
    comm : mpi4py.MPI.Intracomm, optional
        Default: ``COMM_WORLD``.
    reproducible : bool, default False
        Whether the sum is rounded once, at the end. Its bits then do not depend on the number of ranks or on
        their order.
    rows : bool, default False
        Whether to add up the rows of x, along its first axis, too. Ranks may have different numbers of rows,
        or none. The sum is reproducible.

    Returns
    -------
    array, number or tree
        The same value on all ranks.

    Raises
    ------
    RankError
        On all ranks, if their shapes, dtypes or lines of code differ, or one has failed.

    See Also
    --------
    pmean : The mean.
    value_and_grad : A function's sum over ranks, with its gradient, in one message.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> data = np.array([1.0, 2.0])  # those of this rank
    >>> f = lambda x: tg.parallel.psum(np.sum((x - data) ** 2))
    >>> tg.grad(f)(0.5)
    np.float64(-4.0)
    """
    if rows:
        return tree_map(lambda v: called(rows_over_ranks, v, comm), x)
    return tree_map(lambda v: called(sum_over_ranks, v, comm, exact=bool(reproducible)), x)


def pmean(x, comm=None, *, reproducible: bool = False):
    """Return the mean of x over the ranks, on all ranks.

    Parameters
    ----------
    x : array, number or tree of these
        Of equal shapes on all ranks.
    comm : mpi4py.MPI.Intracomm, optional
        Default: ``COMM_WORLD``.
    reproducible : bool, default False
        As for `psum`.

    Returns
    -------
    array, number or tree
        The same value on all ranks.

    See Also
    --------
    psum : The sum, with its errors.

    Examples
    --------
    >>> import tapegrad as tg
    >>> tg.parallel.pmean(3.0)
    np.float64(3.0)
    """
    size = ranks_of(comm).size
    return tree_map(lambda v: v / size, psum(x, comm, reproducible=reproducible))


def bcast(x, comm=None, root: int = 0):
    """Return the x of one rank, on all ranks.

    Parameters
    ----------
    x : array, number or tree of these
        Of equal shapes on all ranks.
    comm : mpi4py.MPI.Intracomm, optional
        Default: ``COMM_WORLD``.
    root : int, default 0
        The rank whose x is taken.

    Returns
    -------
    array, number or tree
        The same value on all ranks.

    See Also
    --------
    scatter : The part of a common array that belongs to each rank.

    Examples
    --------
    >>> import tapegrad as tg
    >>> tg.parallel.bcast(3.0)
    np.float64(3.0)
    """
    ranks = ranks_of(comm)
    if not 0 <= root < ranks.size:
        raise ArgumentError(f"bcast: root={root!r}; the communicator has the ranks 0 to {ranks.size - 1}")
    # (The other ranks give zeros, which depend on x too, so that each rank runs each pullback.)
    mine = ranks.rank == root
    return tree_map(lambda v: called(sum_over_ranks, select(mine, v, 0), comm, exact=False), x)


def split(n: int, comm=None) -> slice:
    """Return which of n items belong to this rank.

    Parameters
    ----------
    n : int
        The number of items.
    comm : mpi4py.MPI.Intracomm, optional
        Default: ``COMM_WORLD``.

    Returns
    -------
    slice
        A range of items. The numbers of two ranks differ by at most one, as those of `numpy.array_split` do.

    See Also
    --------
    scatter : The part itself.

    Examples
    --------
    >>> import tapegrad as tg
    >>> tg.parallel.split(10)
    slice(0, 10, None)
    """
    ranks = ranks_of(comm)
    least, more = divmod(n, ranks.size)
    start = ranks.rank * least + min(ranks.rank, more)
    return slice(start, start + least + (ranks.rank < more))


def scatter(x, comm=None, axis: int = 0):
    """Return the part of x that belongs to this rank.

    No data move: x is the same on all ranks. Write ``scatter(bcast(x))`` for an x that one rank has.

    Parameters
    ----------
    x : array
        The same on all ranks.
    comm : mpi4py.MPI.Intracomm, optional
        Default: ``COMM_WORLD``.
    axis : int, default 0
        The axis along which x is divided, as `split` says.

    Returns
    -------
    array
        The part.

    See Also
    --------
    allgather : The way back.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.parallel.scatter(np.arange(3.0))
    array([0., 1., 2.])
    """
    x = operand(x)
    axis = axis_of(axis, ndim(x))
    return x[(slice(None),) * axis + (split(shape(x)[axis], comm),)]


def allgather(x, comm=None, axis: int = 0):
    """Return the arrays of all ranks, joined along an axis, on all ranks.

    Parameters
    ----------
    x : array or number
        Of equal shapes on all ranks but for the length of `axis`. A number counts as an array of one element.
    comm : mpi4py.MPI.Intracomm, optional
        Default: ``COMM_WORLD``.
    axis : int, default 0
        The axis along which the arrays are joined, in the order of the ranks.

    Returns
    -------
    array
        The same array on all ranks.

    See Also
    --------
    scatter : The way back.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.parallel.allgather(np.arange(3.0))
    array([0., 1., 2.])
    """
    x = operand(x)
    ranks, library = ranks_of(comm), xp(x)
    if ndim(x) == 0:
        x = reshape(x, to=(1,))
    axis = axis_of(axis, ndim(x))
    to = list(shape(x))
    ranks.agree(f"allgather along axis {axis} at {callers_line()}")
    sizes = ranks.comm.allgather(to[axis])
    padding = []
    for n in (sum(sizes[: ranks.rank]), sum(sizes[ranks.rank + 1 :])):
        to[axis] = n
        padding.append(library.zeros(tuple(to), layout_of(x).dtype))
    return called(sum_over_ranks, concatenate(padding[0], x, padding[1], axis=axis), comm, exact=False)


BOUNDARIES = ("none", "zeros", "periodic")


def halo(x, comm=None, width: int = 1, axis: int = 0, boundary: str = "none"):
    """Return x with the adjacent rows of the ranks before and after this one.

    Parameters
    ----------
    x : array
        The part of this rank, of equal shapes on all ranks but for the length of `axis`.
    comm : mpi4py.MPI.Intracomm, optional
        Default: ``COMM_WORLD``.
    width : int, default 1
        The number of rows from each neighbour. Each rank has at least as many.
    axis : int, default 0
        The axis along which the whole array is divided.
    boundary : {'none', 'zeros', 'periodic'}, default 'none'
        What the first and the last rank get on their outer side: nothing, zeros, or the rows of each other.

    Returns
    -------
    array
        x, with `width` rows before it and after it.

    Raises
    ------
    RankError
        On all ranks, if one has fewer rows than `width`.

    See Also
    --------
    scatter : The part of each rank.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.parallel.halo(np.arange(3.0), boundary="periodic")
    array([2., 0., 1., 2., 0.])
    """
    if boundary not in BOUNDARIES:
        raise ArgumentError(f"halo: boundary={boundary!r}; it is one of {', '.join(map(repr, BOUNDARIES))}")
    if not width > 0:
        raise ArgumentError(f"halo: width={width!r}; it is a whole number above 0")
    x = operand(x)
    ranks, axis = ranks_of(comm), axis_of(axis, ndim(x))
    before, n = (slice(None),) * axis, shape(x)[axis]
    with ranks.together():
        if n < width:
            raise ShapeError(f"halo: the part of rank {ranks.rank} has {n} rows, and width={width}")
    periodic = boundary == "periodic"
    lower = called(shifted, x[(*before, slice(n - width, n))], comm, by=1, periodic=periodic)
    upper = called(shifted, x[(*before, slice(width))], comm, by=-1, periodic=periodic)
    if boundary == "none":  # what the ends drop still depends on all, so that each rank runs each pullback
        lower = lower[(*before, slice(0 if ranks.rank == 0 else None))]
        upper = upper[(*before, slice(0 if ranks.rank == ranks.size - 1 else None))]
    return concatenate(lower, x, upper, axis=axis)


@contextmanager
def together(comm=None) -> Iterator[None]:
    """Return a context whose block raises on all ranks if it raises on one.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        Default: ``COMM_WORLD``.

    Returns
    -------
    context manager
        At its end all ranks wait for each other.

    Raises
    ------
    RankError
        On the other ranks, with the message of the rank that failed.

    See Also
    --------
    value_and_grad : Does this for its function.

    Examples
    --------
    >>> import tapegrad as tg
    >>> with tg.parallel.together():
    ...     data = [1.0, 2.0]  # or read those of this rank from a file
    """
    with ranks_of(comm).together(f"the end of a block of together() at {callers_line()}"):
        yield


# --- one message for a gradient ---


def value_and_grad(f: Callable, comm=None, *, blocks: Sequence | None = None) -> Callable:
    """Return the function that computes the sum of f over the ranks, and its gradient, with one message.

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` returns the share of this rank, a real scalar. It calls no collectives. A function
        that was made by `tapegrad.prepare` is replayed.
    comm : mpi4py.MPI.Intracomm, optional
        Default: ``COMM_WORLD``.
    blocks : sequence, optional
        The blocks of data of this rank. f is then called as ``f(x, block, *args)`` for each of them. The
        shares of all blocks are added exactly, so that the result has the same bits for any number of ranks,
        if the blocks are the same.

    Returns
    -------
    callable
        ``g(x, *args)`` returns (value, gradient), the same on all ranks. The message has 1 + p numbers, for p
        numbers in x.

    Raises
    ------
    RankError
        On the other ranks, if f raises on one.
    ArgumentError
        If f calls a collective. Use `tapegrad.value_and_grad`, which gives the whole gradient there.

    See Also
    --------
    hvp : The product with the Hessian.
    psum : The sum itself.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> data = np.array([1.0, 2.0])  # those of this rank
    >>> g = tg.parallel.value_and_grad(lambda x: np.sum((x - data) ** 2))
    >>> g(0.5)
    (np.float64(2.5), np.float64(-4.0))
    """
    share = fastest(f, "value_and_grad", local_value_and_grad(f))

    @functools.wraps(f)
    def of_all(x, *args):
        return combined(
            share, "value_and_grad", (x,), args, comm, blocks, lambda: (0.0, tree_map(lambda v: 0.0 * v, x))
        )

    return of_all


def hvp(f: Callable, x, v, comm=None, *, blocks: Sequence | None = None):
    """Return the product of v with the Hessian of the sum of f over the ranks, with one message.

    Parameters
    ----------
    f : callable
        ``f(x)`` returns the share of this rank, a real scalar. It calls no collectives.
    x, v : array or tree
        The point and the direction, the same on all ranks.
    comm : mpi4py.MPI.Intracomm, optional
        Default: ``COMM_WORLD``.
    blocks : sequence, optional
        As for `value_and_grad`: f is called as ``f(x, block)``.

    Returns
    -------
    array or tree
        The product, like x, the same on all ranks.

    Raises
    ------
    RankError
        On the other ranks, if f raises on one.

    See Also
    --------
    value_and_grad : Value and gradient.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.parallel.hvp(lambda x: np.sum(x**3), np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    array([6., 0.])
    """

    def product(x, v, *block):
        return local_hvp(f, x, v, block)

    share = fastest(f, "hvp", product)
    return combined(share, "hvp", (x, v), (), comm, blocks, lambda: tree_map(lambda d: 0.0 * d, v))


def fastest(f: Callable, method: str, other: Callable) -> Callable:
    """The method of this name of a prepared function or a kernel, where nothing is tracked; else `other`."""
    own = getattr(f, method, None)
    if not callable(own):
        return other
    return lambda *args: (other if any_tracked(args) else own)(*args)


def combined(
    share: Callable, call: str, points: tuple, args: tuple, comm, blocks: Sequence | None, like: Callable
):
    """The sum of what `share` gives on each rank, or for each block of each rank.

    `like` gives zeros like one of them."""
    ranks = ranks_of(comm)
    with ranks.together():
        met = ranks.tracked
        if blocks is None:
            flat, restore = ravel(share(*points, *args))
        else:
            shares = [ravel(share(*points, block, *args)) for block in blocks]
            empty, restore = ravel(like())
            flat = (
                stack([row for row, _ in shares])
                if shares
                else np.zeros((0, *shape(empty)), layout_of(empty).dtype)
            )
        if ranks.tracked > met:
            raise ArgumentError(
                f"parallel.{call}: the function calls a collective on what is differentiated. It gives the "
                f"share of one rank, which parallel.{call} adds up; or use tapegrad.{call}, which gives the "
                "whole derivative of a function with collectives"
            )
    return restore(
        called(sum_over_ranks, flat, comm, exact=False)
        if blocks is None
        else called(rows_over_ranks, flat, comm)
    )
