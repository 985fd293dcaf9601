"""The ranks of a communicator: how they agree before each exchange, and how all learn that one has failed.

Before data move, all ranks compare what each is about to do: the operation, its line, its place in the call,
shape and dtype. So different branches and unequal shapes raise on all ranks. A rank that fails takes part in
one more comparison, with its error. Each rank then raises that error, and nobody waits for a message that
never comes. A rank that ends, in order or by an error, does the same once for each communicator. Before a
call of a prepared function all ranks agree on what they do (`_core.exchanges`). A rank whose replay fails
takes part in one more comparison, and the others give up their replays.

**The convention.** A function over ranks is called with the same arguments on all ranks, and returns the same
value on all. What it computes in between may differ. Its R copies are one function of R copies of x. Each
pullback here is the exact adjoint of that function. So the R sweeps, each started with the cotangent 1, give
the gradient of R f by the R copies. The gradient of f by one common x is their mean. `SharedArguments` takes
this mean at the arguments of each transform that has met a collective (`Trace.over_ranks`). The rule is the
same at each level of nested transforms, because the mean is an operation like the others. A sum over ranks is
its own adjoint, and the mean of equal gradients changes nothing. `SharedArguments` also compares arguments
and values over the ranks, and raises where they differ."""

import atexit
import ctypes
import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from .._core.arrays import xp_of
from .._core.errors import ArgumentError, RankError
from .._core.exchanges import REPLAYED, ReplayGivenUp
from .._core.scope import OPEN

try:
    from mpi4py import MPI
except ImportError:
    MPI = None  # type: ignore[assignment]

GOES_ON, GIVES_UP, FAILED, ENDED = range(4)
SAME = 1e-9  # relative difference between ranks that counts as rounding


def require_mpi() -> None:
    """Raise if there is no MPI."""
    if MPI is None:
        raise ImportError(
            "tapegrad.parallel needs mpi4py and an MPI library: pip install 'tapegrad[mpi]', then start the "
            "program on several ranks with: mpiexec -n 4 python program.py"
        )


class Ranks:
    """The ranks of one communicator.

    It talks over a duplicate, which no other code uses."""

    def __init__(self, comm, seconds: float | None = None):
        self.comm, request = comm.Idup()
        finished([request], seconds)
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self.closed: str | None = None  # why there is no further exchange
        self.tracked = 0  # collectives whose argument a transform watched
        self.bytes = 0  # of data that this rank gave to collectives
        self.block = None
        self.place = 0
        self.replaying = False
        self.given, self.found = np.zeros(6, np.int64), np.zeros(6, np.int64)

    def __reduce__(self):
        raise TypeError("a communicator of MPI cannot be pickled: open it in the process that uses it")

    # --- agreement ---

    def comparison(self, status: int, tag: str, *further: int) -> Iterator:
        """Compare what the ranks do; raise unless all do the same.  Of a rank that fails or ends, the tag is
        the message.

        The caller waits for each request before it asks for the next. No step blocks, so a rank may go on
        with the comparisons of several communicators in any order."""
        digest = int.from_bytes(hashlib.blake2b(tag.encode(), digest_size=7).digest())
        self.given[:] = status, digest, -digest, *(further or (0, 0, 0))
        yield self.comm.Iallreduce(self.given, self.found, MPI.MAX)
        if self.found[0] == GOES_ON and self.found[1] == -self.found[2]:
            return
        mine = np.frombuffer(json.dumps((status, tag, self.replaying)).encode(), np.uint8)
        sizes = np.empty(self.size, np.int64)
        yield self.comm.Iallgather(np.array([mine.size]), sizes)
        texts = np.empty(sizes.sum(), np.uint8)
        yield self.comm.Iallgatherv(mine, (texts, sizes.tolist()))
        told = [json.loads(text.tobytes()) for text in np.split(texts, np.cumsum(sizes)[:-1])]
        replaying, self.replaying = all([replaying for *_, replaying in told]), False
        if self.found[0] == GIVES_UP and replaying:
            raise ReplayGivenUp
        ended = [f"rank {r} {m}" for r, (s, m, _) in enumerate(told) if s == ENDED]
        if ended:
            self.closed = "; ".join(ended)
        failed = [f"rank {r}: {m}" for r, (s, m, _) in enumerate(told) if s == FAILED]
        raise RankError("; ".join([*ended, *failed]) or difference([t for _, t, _ in told]))

    def agree(self, tag: str, *further: int, status: int = GOES_ON) -> None:
        """Raise unless all ranks come here with this tag."""
        if self.closed:
            raise RankError(f"{tag}: {self.closed}")
        if self.size > 1:
            for request in self.comparison(status, tag, *further):
                request.Wait()

    # --- prepared functions ---

    def begin_replay(self, way: int, joint: int, name: str) -> tuple[int, int, int]:
        """What all ranks do with this call of a prepared function, if this one asks for `way`; and the least
        and the largest number of the recordings that they ask for, if this one asks for `joint`."""
        if self.size > 1:
            self.agree(f"a call of {name}", way, -joint, joint)
            way, least, most = int(self.found[3]), -int(self.found[4]), int(self.found[5])
        else:
            least = most = joint
        self.replaying = way == REPLAYED and least == most
        return way, least, most

    def end_replay(self, done: bool, name: str) -> bool:
        """Did all ranks come to the end of the replay?  `done`: did this one?"""
        try:
            self.agree(f"the end of {name}", status=GOES_ON if done else GIVES_UP)
        except ReplayGivenUp:
            return False
        finally:
            self.replaying = False
        return done

    def fail(self, error: BaseException) -> None:
        """Tell the other ranks of an error of this one; they raise it at their next exchange."""
        if self.closed or self.size == 1 or isinstance(error, RankError):
            return
        try:
            for request in self.comparison(FAILED, f"{type(error).__name__}: {error}"):
                request.Wait()
        except RankError:
            pass

    @contextmanager
    def together(self, tag: str | None = None) -> Iterator[None]:
        """A block that raises on all ranks if it raises on one.  `tag`: what the ranks do at its end."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise
        if tag is not None:
            self.agree(tag)

    # --- the order of collectives ---

    def position(self) -> int:
        """The number of this collective in the outermost call of a transform."""
        state = OPEN.__dict__
        outermost = state["block"]
        while outermost is not None and outermost[1]["block"] is not None:
            outermost = outermost[1]["block"]
        self.place = self.place + 1 if outermost is not None and outermost is self.block else 0
        self.block = outermost
        return self.place

    def differ(self, sums, flag: bool, where: str) -> bool:
        """Raise if values with these checksums, shape (n, 2), differ between ranks; else, is the flag set on
        one of them?"""
        mine = np.concatenate([[float(flag)], sums[:, 0], -sums[:, 0], sums[:, 1]])
        self.agree(f"the end of a gradient, with {len(sums)} arguments and values, {where}")
        found = np.empty_like(mine)
        self.comm.Allreduce(mine, found, MPI.MAX)
        high, low, size = found[1:].reshape(3, -1)
        for k in np.flatnonzero(high + low > SAME * size):
            raise RankError(
                f"{where}: a function that combines values over {self.size} ranks has arguments or "
                f"a value (number {k}) that differ between ranks; pass the same arguments on all ranks, and "
                "return what tapegrad.parallel.psum gives"
            )
        return bool(found[0])


def checksums(x) -> tuple:
    """A sum that tells values apart, and the size of its terms, where x lies."""
    xp = xp_of(x)
    x = xp.ravel(x)
    x = x.view(x.real.dtype) if x.dtype.kind == "c" else x
    x = xp.nan_to_num(x.astype(float), nan=0.5, posinf=1e300, neginf=-1e300)
    weights = 1.5 + xp.cos(xp.arange(x.size))
    return x @ weights, abs(x) @ weights


def difference(tags: list) -> str:
    """What tells the ranks apart."""
    head = {t.partition(", of a value in ")[0] for t in tags}
    if len(head) == 1:
        return (
            f"{head.pop()}: the argument depends on what is differentiated on some ranks only; let a rank "
            "without data give an empty sum of the same arguments, such as 0.0 * x.sum(). " + listed(tags)
        )
    return "the ranks do not do the same: " + listed(tags)


def listed(tags: list) -> str:
    groups: dict = {}
    for r, tag in enumerate(tags):
        groups.setdefault(tag, []).append(str(r))
    return "; ".join(
        [f"rank{'s' if len(rs) > 1 else ''} {', '.join(rs)}: {tag}" for tag, rs in groups.items()]
    )


def finished(requests: list, seconds: float | None) -> int:
    """Wait for one of the requests; its number.  `seconds`: after that all ranks are aborted."""
    if seconds is None:
        return int(MPI.Request.Waitany(requests))
    until = time.monotonic() + seconds
    while True:
        n, found = MPI.Request.Testany(requests)
        if found:
            return int(n)
        if time.monotonic() > until:
            MPI.COMM_WORLD.Abort(1)
        time.sleep(0.001)


# --- memory of a device ---


@functools.cache
def takes_device_memory() -> bool:
    """Does the MPI library read and write the memory of a CUDA device?  It is asked; the environment
    variable TAPEGRAD_MPI_CUDA says 0 or 1 where it does not know.

    A library that does not would end the process at the first such address, so it cannot be tried."""
    wanted = os.environ.get("TAPEGRAD_MPI_CUDA", "")
    if wanted not in ("", "0", "1"):
        raise ArgumentError(
            f"the environment variable TAPEGRAD_MPI_CUDA is {wanted!r}; it is 1 (MPI takes arrays of the "
            "device), 0 (they go through the host), or not set (the MPI library is asked)"
        )
    if wanted:
        return wanted == "1"
    # of MPICH from 4.0, of Open MPI and of what is made of them; through the extension module, which is
    # linked to the library that is used
    query = getattr(ctypes.CDLL(MPI.__file__), "MPIX_Query_cuda_support", None)
    return query is not None and query() == 1


# --- the communicators of this process ---

PATIENCE = 10.0  # seconds for which a rank that has failed waits for the others to hear of it

KNOWN: list = []  # Ranks
KEYS: list = [] if MPI is None else [MPI.Comm.Create_keyval()]  # of the attribute of a communicator


def ranks_of(comm=None) -> Ranks:
    """The `Ranks` of a communicator of mpi4py; all its ranks call this together the first time."""
    require_mpi()
    comm = MPI.COMM_WORLD if comm is None else comm
    if not isinstance(comm, MPI.Intracomm):
        raise ArgumentError(
            f"tapegrad.parallel: comm is a {type(comm).__name__}; pass a communicator of mpi4py, such as "
            f"MPI.COMM_WORLD"
        )
    return known(comm)


def known(comm, seconds: float | None = None) -> Ranks:
    """The same, of a communicator that may be new."""
    found: Ranks | None = comm.Get_attr(KEYS[0])
    if found is None:
        found = Ranks(comm, seconds)
        comm.Set_attr(KEYS[0], found)
        KNOWN.append(found)
    return found


class TellingHook:
    """`sys.excepthook` that shows an error and tells the other ranks."""

    def __init__(self, outer):
        self.outer = outer

    def __call__(self, kind, error: BaseException, traceback) -> None:
        self.outer(kind, error, traceback)
        sys.stderr.flush()
        if MPI.COMM_WORLD.Get_size() > 1 and not MPI.Is_finalized():
            known(MPI.COMM_WORLD, PATIENCE)  # the others may be about to use it
        end_all(f"has ended with {kind.__name__}: {error}", PATIENCE)


def end_all(message: str, seconds: float | None) -> None:
    """This rank leaves all communicators.  Of several, it waits for all at once."""
    if MPI.Is_finalized():
        return
    comparisons = [r.comparison(ENDED, message) for r in KNOWN if not r.closed and r.size > 1]
    requests = [next(c) for c in comparisons]
    while comparisons:
        k = finished(requests, seconds)
        try:
            requests[k] = next(comparisons[k])
        except (RankError, StopIteration):
            del comparisons[k], requests[k]


if MPI is not None:
    atexit.register(end_all, "has ended, and takes part no more", None)
    sys.excepthook = TellingHook(sys.excepthook)
