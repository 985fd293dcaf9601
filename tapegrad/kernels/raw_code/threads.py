"""The code of a raw kernel, and the threads that run it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..._core.errors import KernelError
from .declare import Dimension, dimension
from .plan import REALS


@dataclass(frozen=True)
class SourceEntry:
    """The entry `entry` of a source, compiled by NVRTC with further `options`; `file` is its name in
    messages."""

    source: str
    entry: str
    options: tuple
    file: str

    def text(self, real: np.dtype) -> str:
        """Return the text that NVRTC compiles; line numbers are those of the source."""
        return f'typedef {REALS[real]} real;\n#line 1 "{self.file}"\n{self.source}'


@dataclass(frozen=True)
class Threads:
    """The threads of the kernel named `kernel`.

    It loops over the dimension `samples`, or starts at least `threads` threads, or exactly `grid` blocks.
    `block` is the number of threads of a block, `shared` the bytes of dynamic shared memory."""

    kernel: str
    samples: Dimension | Any
    threads: Dimension | Any
    grid: list | None
    block: int | tuple | None
    shared: Dimension | Any

    def check(self, given: Sequence) -> None:
        """Raise KernelError if no argument determines how many threads start."""
        if self.grid is not None:
            return
        over, word = (self.threads, "threads") if self.threads is not None else (self.samples, "samples")
        told = set().union(*[a.names for a in given], {a.name for a in given if a.dims is None})
        if not over.names <= told:
            raise KernelError(
                f"{self.kernel}: {word}={over.text!r} is to say how many threads start, and no `in` or "
                "`const` argument tells that dimension; pass samples=, threads= or grid="
            )

    def of(self, block) -> tuple:
        """Return the block in three dimensions."""
        block = tuple(block) if isinstance(block, (tuple, list)) else (block,)
        if not 1 <= math.prod(block) <= 1024 or len(block) > 3:
            raise KernelError(
                f"{self.kernel}: block={block} is not 1 to 1024 threads in at most three dimensions"
            )
        return block + (1,) * (3 - len(block))

    def blocks(self, known: dict, block: tuple, most: int | None) -> tuple:
        """Return the grid: as declared, or as many blocks as cover the samples, at most `most`."""
        size = math.prod(block)
        if self.grid is not None:
            grid = [max(d.value(known), 1) for d in self.grid]
        else:
            wanted = max(-(-(self.threads or self.samples).value(known) // size), 1)
            grid = [wanted if most is None else min(wanted, most)]
        made = (*grid, *[1] * (3 - len(grid)))
        if made[0] > 2**31 - 1 or max(made[1:]) > 65535:
            raise KernelError(
                f"{self.kernel}: a grid of {made} blocks is above the limit (2147483647, 65535, 65535)"
            )
        return made

    def shared_bytes(self, known: dict, block: tuple, real: np.dtype) -> int:
        return (
            0
            if self.shared is None
            else self.shared.value({**known, "threads": math.prod(block), "real": real.itemsize})
        )


def source_entry(source: str | Path, entry: str, options: Sequence[str]) -> SourceEntry:
    if isinstance(source, Path):
        return SourceEntry(source.read_text(), entry, tuple(options), source.name)
    return SourceEntry(source, entry, tuple(options), f"{entry}.cu")


def threads_of(entry: str, samples: str, threads: str | None, grid, block, shared) -> Threads:
    """Convert the arguments of `raw` to dimensions."""
    blocks = (
        None
        if grid is None
        else [check_integer(entry, "grid", g) for g in (grid if isinstance(grid, (tuple, list)) else (grid,))]
    )
    over = check_integer(entry, "samples", samples) if threads is None and grid is None else None
    return Threads(
        entry,
        over,
        check_integer(entry, "threads", threads),
        blocks,
        block,
        check_integer(entry, "shared", shared),
    )


def check_integer(entry: str, word: str, x) -> Dimension | None:
    if x is None:
        return None
    try:
        return dimension(str(x))
    except ValueError:
        raise KernelError(
            f"{entry}: {word}={x!r}; wanted is a dimension, or whole-number arithmetic with dimensions"
        ) from None
