"""Calls of kernels in CUDA C with tracked arrays."""

import functools
import itertools
from collections.abc import Sequence

import numpy as np

from ..._core.arrays import is_array, xp_of
from ..._core.errors import ArgumentError
from ..._core.primitive import is_tracked, layout_of, values_of
from ...ops.declare import dtype, shape
from ...ops.shaping import astype, reshape
from ..operation import LoopOperation, operation_on, overlap
from ..program import LoopArray, LoopRefused
from .kernel_program import KernelText
from .parser import CFunction

TYPE_NAMES = {"f8": "double", "f4": "float", "i4": "int", "i8": "long long", "u4": "unsigned int",
              "u8": "unsigned long long", "b1": "bool"}  # fmt: skip


def type_of_dtype(d) -> str:
    """The C type of a dtype."""
    d = np.dtype(d)
    found = f"{d.kind}{d.itemsize}"
    if found not in TYPE_NAMES:
        raise LoopRefused(f"a kernel on numbers of dtype {d} is not differentiated")
    return found


class CKernel:
    """A kernel of a text in CUDA C, called with tracked arrays; an array that it writes gets the result."""

    def __init__(self, text: KernelText, entry: str):
        self.text, self.entry = text, entry
        self.operations = {}

    @property
    def function(self) -> CFunction:
        found = self.text.parsed.functions.get(self.entry)
        if found is None:
            raise LoopRefused(f"{self.entry}: the source has no function of this name")
        return found

    def operation(self, of_thread: bool, dynamic_bytes: int = 0) -> LoopOperation:
        """The operation on flat arrays, then the numbers of blocks and threads."""
        key = of_thread, dynamic_bytes
        if key not in self.operations:
            p = self.text.program(self.entry, of_thread, dynamic_bytes)
            self.operations[key] = operation_on(of_thread)(p)
        return self.operations[key]

    def values(self, grid, block, args: Sequence) -> list:
        """The arguments of the operation."""
        params = self.function.params
        if len(args) != len(params):
            raise ArgumentError(f"{self.entry} takes {len(params)} arguments, {len(args)} were given")
        values = [
            self.array(v, x, look) if v.pointer else self.number(v, x, look)
            for v, x, look in zip(params, args, map(layout_of, args), strict=True)
        ]
        sizes = [[int(n) for n in (k if isinstance(k, (tuple, list)) else (k,))] for k in (grid, block)]
        if any(min(k) < 1 or len(k) > 3 for k in sizes):
            raise ArgumentError(f"{self.entry}: a launch with {grid} blocks of {block} threads")
        return values + [n for k in sizes for n in [*k, 1, 1][:3][::-1]]

    def results(self, grid, block, args: Sequence, dynamic_bytes: int = 0) -> dict:
        """The new contents of the arrays that the kernel writes, by the number of the argument."""
        values = self.values(grid, block, args)
        looks = [layout_of(x) for v, x in zip(self.function.params, args, strict=True) if v.pointer]
        operation = self.operation(any(xp_of(x) is not np for x in looks), dynamic_bytes)
        p = operation.p
        arrays = [(q, x) for q, x in zip(p.params, args, strict=False) if isinstance(q, LoopArray)]
        for (q, x), (r, y) in itertools.combinations(arrays, 2):
            if (q in p.outs or r in p.outs) and overlap(x, y):
                raise LoopRefused(f"{self.entry}: an array that is written overlaps with another argument")
        made = dict(zip(p.outs, operation(*values), strict=True)) if p.outs else {}
        return {k: made[q] for k, q in enumerate(p.params) if q in made}

    def __call__(self, grid, block, args: Sequence, dynamic_bytes: int = 0) -> None:
        for k, y in self.results(grid, block, args, dynamic_bytes).items():
            args[k][...] = astype(reshape(y, to=shape(args[k])), to=dtype(args[k]))

    def array(self, v, x, look):
        name = v.name.split(".")[0]
        if not is_array(look):
            raise ArgumentError(f"{self.entry}: {name} is a pointer, and a {type(look).__name__} was given")
        if type_of_dtype(look.dtype) != v.type:
            raise ArgumentError(
                f"{self.entry}: {name} points to {TYPE_NAMES.get(v.type, v.type)}, "
                f"and an array of {look.dtype} was given"
            )
        if v.axes:
            return x
        if not look.flags.c_contiguous:
            raise ArgumentError(f"{self.entry}: {name} is not contiguous; pass {name}.copy()")
        return reshape(x, to=(-1,))

    def number(self, v, x, look):
        name = v.name.split(".")[0]
        if np.ndim(look) or (look if is_array(look) else np.asarray(look)).dtype.kind not in "biuf":
            raise ArgumentError(f"{self.entry}: {name} is a number, and a {type(look).__name__} was given")
        if v.type[0] == "f":
            return x
        if is_tracked(x):
            x = values_of(x)
        if np.asarray(x).dtype.kind == "f" or (v.type[0] == "u" and x < 0):
            raise ArgumentError(f"{self.entry}: {name} is of type {TYPE_NAMES[v.type]}, and {x} was given")
        return bool(x) if v.type == "b1" else int(x)


@functools.lru_cache(256)
def raw_kernel(source: str, entry: str, options: tuple) -> CKernel:
    return CKernel(KernelText(source, f"<RawKernel {entry}>", None, options), entry)


def launch_raw_kernel(
    source: str, entry: str, options: tuple, grid, block, args: Sequence, shared_bytes: int
) -> None:
    """Launch a `cupy.RawKernel` on tracked arrays."""
    raw_kernel(source, entry, options)(grid, block, args, shared_bytes)
