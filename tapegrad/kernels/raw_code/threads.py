"""What a raw kernel is made of beside its parameters: the code, and the threads that run it."""

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
class Code:
    """The entry `entry` of a source, that NVRTC compiles with further `options`; `file`: its name in messages."""

    source: str
    entry: str
    options: tuple
    file: str

    def text(self, real: np.dtype) -> str:
        """What NVRTC compiles; line numbers are those of the source."""
        return f'typedef {REALS[real]} real;\n#line 1 "{self.file}"\n{self.source}'


@dataclass(frozen=True)
class Threads:
    """Over which dimension the kernel of name `kernel` loops (`samples`), or how many threads start at least, or in how many blocks
    (`grid`); threads of a `block`; bytes of dynamic `shared` memory."""

    kernel: str
    samples: Dimension | Any
    threads: Dimension | Any
    grid: list | None
    block: int | tuple | None
    shared: Dimension | Any

    def check(self, given: Sequence) -> None:
        """Raises KernelError where no argument tells how many threads start."""
        if self.grid is not None:
            return
        over, word = (self.threads, "threads") if self.threads is not None else (self.samples, "samples")
        told = set().union(*[a.names for a in given], {a.name for a in given if a.dims is None})
        if not over.names <= told:
            raise KernelError(
                f"{self.kernel}: {word}={over.text!r} is to say how many threads start, and no `in` or `const` argument tells that "
                "dimension; pass samples=, threads= or grid="
            )

    def of(self, block: Any) -> tuple:
        """The block in three dimensions."""
        block = tuple(block) if isinstance(block, (tuple, list)) else (block,)
        if not 1 <= math.prod(block) <= 1024 or len(block) > 3:
            raise KernelError(f"{self.kernel}: block={block} is not 1 to 1024 threads in at most three dimensions")
        return block + (1,) * (3 - len(block))

    def blocks(self, known: dict, block: tuple, most: int | None) -> tuple:
        """The grid: as declared, or as many blocks as cover the samples, of which `most` go at once."""
        size = math.prod(block)
        if self.grid is not None:
            grid = [max(d.value(known), 1) for d in self.grid]
        else:
            wanted = max(-(-(self.threads or self.samples).value(known) // size), 1)
            grid = [wanted if most is None else min(wanted, most)]
        grid = tuple(grid) + (1,) * (3 - len(grid))
        if grid[0] > 2**31 - 1 or max(grid[1:]) > 65535:
            raise KernelError(f"{self.kernel}: a grid of {grid} blocks is above the limit (2147483647, 65535, 65535)")
        return grid

    def shared_bytes(self, known: dict, block: tuple, real: np.dtype) -> int:
        return 0 if self.shared is None else self.shared.value({**known, "threads": math.prod(block), "real": real.itemsize})


def code_of(source: str | Path, entry: str, options: Sequence[str]) -> Code:
    if isinstance(source, Path):
        return Code(source.read_text(), entry, tuple(options), source.name)
    return Code(source, entry, tuple(options), f"{entry}.cu")


def threads_of(entry: str, samples: str, threads: str | None, grid: Any, block: Any, shared: Any) -> Threads:
    """What `raw` is given, as dimensions."""
    blocks = None if grid is None else [whole(entry, "grid", g) for g in (grid if isinstance(grid, (tuple, list)) else (grid,))]
    over = whole(entry, "samples", samples) if threads is None and grid is None else None
    return Threads(entry, over, whole(entry, "threads", threads), blocks, block, whole(entry, "shared", shared))


def whole(entry: str, word: str, x: Any) -> Dimension | None:
    if x is None:
        return None
    try:
        return dimension(str(x))
    except ValueError:
        raise KernelError(f"{entry}: {word}={x!r}; wanted is a dimension, or whole-number arithmetic with dimensions") from None
