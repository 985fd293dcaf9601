"""Machine code of a loop program, and its run on NumPy arrays."""

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from .._core.errors import KernelError
from ..kernels.launch.cpu import engine_of, machine, parsed
from .fission import separated_layers, split_accumulations
from .program import LoopArray, LoopProgram, Scalar
from .program_text import NO_MEMORY, ProgramText, finished


def optimised(text: str) -> bytes:
    """Object code, with LLVM's own passes (loops are vectorised)."""
    target = machine()[0](3)
    module = parsed(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(
        speed_level=2
    )  # level 3 takes 3 to 8 times as long, for nothing
    options.loop_vectorization, options.slp_vectorization = True, False
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    return target.emit_object(module)


class LoopCode:
    """The machine code of a program."""

    def __init__(self, p: LoopProgram):
        self.p = p
        self.engine = engine_of(
            "; a loop program\n" + finished(ProgramText(split_accumulations(separated_layers(p)))),
            compiled=optimised,
        )
        self.call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + len(p.arrays)))(
            self.engine.get_function_address("program")
        )

    def __call__(self, args: Any) -> list:
        """The results for these arguments; its arrays, in C order, are written in place."""
        p = self.p
        given: list = []
        for q, x in zip(p.params, args, strict=True):
            given += [(q.type, x)] if isinstance(q, Scalar) else [("i8", n) for n in x.shape]
        numbers = np.zeros(len(given) + 1 + len(p.body.yields), np.int64)
        for k, (kind, x) in enumerate(given):
            numbers[k : k + 1].view(kind)[0] = x
        arrays = [x for q, x in zip(p.params, args, strict=True) if isinstance(q, LoopArray)]
        self.call(numbers.ctypes.data, *[x.ctypes.data for x in arrays])
        status = int(numbers[len(given)])
        if status == NO_MEMORY:
            raise MemoryError(f"{p.name}: not enough memory for the values that its derivative needs")
        if status:
            raise KernelError(
                f"{p.name}, line {status}{' of ' + p.file if p.file else ''}: an index is out of bounds, a "
                f"divisor is 0, or a step is 0"
            )
        results = [x for q, x in zip(p.params, args, strict=True) if q in p.outs]
        return results + [
            numbers[len(given) + 1 + k :][:1].view(y.type)[0] for k, y in enumerate(p.body.yields)
        ]


def code_of(p: LoopProgram) -> LoopCode:
    if "code" not in p.derived:
        p.derived["code"] = LoopCode(p)
    return p.derived["code"]
