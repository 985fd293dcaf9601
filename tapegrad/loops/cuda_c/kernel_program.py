"""Kernels in CUDA C as loop programs: what one thread does, or all threads in order."""

import linecache
import os
from collections.abc import Iterable

from ..numba_device import AXES, SIZES, write_launch
from ..program import LoopArray, LoopProgram, LoopRefused, Scalar, pruned, verified, written
from ..writer import ZERO
from .calls import CallFrameOfC
from .parser import CParser
from .values import CNumber, CPointer, KernelSource, stored_type


class KernelText:
    """A text in CUDA C; `types` adds names of types. The lines of a file that exists are those of its user."""

    def __init__(
        self,
        text: str,
        file: str,
        types: dict[str, str] | None = None,
        options: Iterable[str] = (),
        parser: type[CParser] = CParser,
    ):
        self.file = file
        self.parsed = parser(text, types, options)
        if not os.path.exists(file):
            linecache.cache[file] = len(text), None, [line + "\n" for line in text.split("\n")], file

    def program(self, entry: str, of_thread: bool, dynamic_bytes: int = 0) -> LoopProgram:
        """The program of a kernel: its parameters, then the numbers (z, y, x) of blocks and of threads."""
        f = self.parsed.functions.get(entry)
        if f is None:
            raise LoopRefused(f"{entry}: the source has no function of this name")
        source = KernelSource(self.parsed, of_thread, dynamic_bytes)
        w = source.w
        params: list[LoopArray | Scalar] = []
        args: list[CNumber | CPointer] = []
        for v in f.params:
            name = v.name.split(".")[0]
            if v.pointer:
                a = LoopArray(stored_type(v.type), [Scalar("i8") for _ in range(v.axes or 1)], name)
                source.ranges.least.update(dict.fromkeys(a.shape, 0))
                params.append(a)
                args.append(CPointer(a, v.type, (ZERO,) * (len(a.shape) - 1), ZERO))
            else:
                x = Scalar(stored_type(v.type), name)
                params.append(x)
                args.append(CNumber(x, v.type))
                if v.type[0] == "u":
                    source.ranges.least[x] = 0
        sizes = {f"{size}.{axis}": Scalar("i8", f"{size}_{axis}") for size in SIZES for axis in AXES}
        source.special.update(sizes)
        source.ranges.least.update(dict.fromkeys(sizes.values(), 1))
        write_launch(source, entry, lambda: CallFrameOfC(source, f, tuple(args)).run())
        first = len(params) if of_thread else None
        p = LoopProgram(entry, [*params, *sizes.values()], w.resolve(w.block), [], self.file, launch=first)
        made = written(p)
        p.outs = [a for a in p.arrays if a in made]
        return verified(pruned(p))
