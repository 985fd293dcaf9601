"""Machine code of a loop program, and its run on NumPy arrays."""

import ctypes
import struct

import llvmlite.binding as llvm
import numpy as np

from .._core.errors import KernelError
from ..kernels.launch.cpu import address_in, data_pointer, engine_of, parsed, processor
from .fission import separated_layers, split_accumulations
from .program import DTYPES, LoopProgram, Scalar
from .program_text import NO_MEMORY, ProgramText, finished

# a number of each type, in 8 bytes
FIELDS = {"f8": "d", "f4": "f4x", "i8": "q", "b1": "?7x"}


def optimised(text: str) -> bytes:
    """Object code, with LLVM's own passes (loops are vectorised)."""
    target = processor().target(3)
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
            address_in(self.engine, "program")
        )
        # numbers: 8 bytes for each that is given, for the status, and for each result
        given = [k for q in p.params for k in ([q.type] if isinstance(q, Scalar) else ["i8"] * len(q.shape))]
        self.given = struct.Struct("=" + "".join([FIELDS[k] for k in given]))
        self.found = struct.Struct("=q" + "".join([FIELDS[y.type] for y in p.body.yields]))
        self.numbers = ctypes.c_char * (self.given.size + self.found.size)
        self.kinds = [DTYPES[y.type] for y in p.body.yields]
        self.outs = [k for k, a in enumerate(p.arrays) if a in p.outs]

    def __call__(self, args) -> list:
        """The results for these arguments; its arrays, in C order, are written in place."""
        p, given, arrays, numbers = self.p, [], [], self.numbers()
        for q, x in zip(p.params, args, strict=True):
            if isinstance(q, Scalar):
                given.append(np.float32(x) if q.type == "f4" else x)
            else:
                given += x.shape
                arrays.append(x)
        try:
            self.given.pack_into(numbers, 0, *given)
        except struct.error as error:
            raise OverflowError(f"{p.name}: an argument is no number of 64 bits ({error})") from None
        self.call(numbers, *map(data_pointer, arrays))
        status, *results = self.found.unpack_from(numbers, self.given.size)
        if status == NO_MEMORY:
            raise MemoryError(f"{p.name}: not enough memory for the values that its derivative needs")
        if status:
            raise KernelError(
                f"{p.name}, line {status}{' of ' + p.file if p.file else ''}: an index is out of bounds, "
                f"lengths of arrays differ, a divisor is 0, or a step is 0"
            )
        return [arrays[k] for k in self.outs] + [kind(x) for kind, x in zip(self.kinds, results, strict=True)]


def code_of(p: LoopProgram) -> LoopCode:
    if "code" not in p.derived:
        p.derived["code"] = LoopCode(p)
    return p.derived["code"]
