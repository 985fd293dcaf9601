"""The derivatives of a raw kernel (`tapegrad.kernels.raw(..., vjp="derive")`), read from its CUDA C."""

import math

import numpy as np

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError
from ..._core.primitive import layout_of, values_of
from ...ops.declare import shape
from ...ops.shaping import reshape
from ..inspection import derivative_of
from ..operation import LoopOperation
from ..races import search_races
from .kernel_program import KernelText
from .kernels import CKernel
from .thread_text import ThreadText

REAL_TYPES = {np.dtype(np.float64): "f8", np.dtype(np.float32): "f4"}


class DerivedRules:
    """`pull` and `push` are the rules of the raw kernel k."""

    def __init__(self, k):
        self.k = k
        self.kernels = {}
        self.kernel(np.dtype(np.float64)).operation(False, 1 << 10)  # refuses what cannot be read

    def kernel(self, real: np.dtype) -> CKernel:
        if real not in self.kernels:
            code = self.k.code
            text = KernelText(code.source, code.file, {"real": REAL_TYPES[real]}, code.options)
            self.kernels[real] = CKernel(text, code.entry)
        return self.kernels[real]

    def call(self, args: tuple) -> tuple[LoopOperation, list, dict]:
        """(operation, its arguments, the number of each declared parameter among them)."""
        k = self.k
        looks = [layout_of(x) for x in args]
        xp = next((xp_of(x) for x in looks if xp_of(x) is not np), np)
        real = k.real_of(args)
        known = k.dimensions(args, {})
        block = k.threads.of(k.threads.block or 128)
        if k.threads.block is None and not k.cooperates and xp is np:
            block = (1, 1, 1)
        most = 1 if xp is np else 65535
        grid = k.threads.blocks(known, block, most if k.threads.samples is not None else None)
        shared = k.threads.shared_bytes(known, block, real)
        operation = self.kernel(real).operation(xp is not np, shared)
        values = self.values(args, known, real, grid, block, xp)
        return operation, values, {a.name: n for n, a in enumerate(k.args)}

    def values(self, args: tuple, known: dict, real: np.dtype, grid: tuple, block: tuple, xp) -> list:
        """The arguments of the operation: arrays are flat; then the sizes of the launch."""
        slots = math.prod(grid) * math.prod(block)
        given, values = iter(args), []
        for a in self.k.args:
            if a.given:
                x = next(given)
                values.append(reshape(x, to=(-1,)) if a.dims is not None else x if a.active else values_of(x))
            elif a.role == "size":
                values.append(known[a.name])
            else:
                values.append(xp.zeros(math.prod(a.shape({**known, "slots": slots})), a.dtype(real)))
        return values + [n for sizes in (grid, block) for n in sizes[::-1]]

    def search_races(self, args: tuple, known: dict, grid: tuple, block: tuple) -> None:
        """Run each thread by the slow interpreter; raise KernelError at a race."""
        real = np.dtype(np.float64)
        shared = self.k.threads.shared_bytes(known, block, real)
        p = self.kernel(real).text.program(self.k.code.entry, True, shared)
        search_races(p, self.values(args, known, real, grid, block, np))

    def pull(self, g, out, *args) -> tuple:
        k = self.k
        operation, values, places = self.call(args)
        bars = dict(zip([a.name for a in k.outs], g if isinstance(g, (tuple, list)) else (g,), strict=True))
        params = operation.p.params
        seeds = [bars.get(k.args[params.index(q)].name) for q in operation.p.outs]
        seeds = [None if c is None else reshape(c, to=(-1,)) for c in seeds]
        need = [False] * len(values)
        for a in k.given:
            need[places[a.name]] = a.active
        found = operation.pull(seeds, None, tuple(need), *values)
        terms = []
        for a, x in zip(k.given, args, strict=True):
            c = found[places[a.name]]
            terms.append(None if c is None else reshape(c, to=shape(x)) if a.dims is not None else c)
        return tuple(terms)

    def push(self, t: tuple, out, *args):
        k = self.k
        operation, values, places = self.call(args)
        dots = [None] * len(values)
        for a, d in zip(k.given, t, strict=True):
            if d is not None:
                dots[places[a.name]] = reshape(d, to=(-1,)) if a.dims is not None else d
        params, outs = operation.p.params, operation.p.outs
        # where nothing moves, the shape of a tangent is that of the argument
        found = operation.push(tuple(dots), [values[params.index(q)] for q in outs], *values)
        made = {k.args[params.index(q)].name: d for q, d in zip(outs, found, strict=True)}
        ys = out if isinstance(out, tuple) else (out,)
        tangents = tuple([reshape(made[a.name], to=shape(y)) for a, y in zip(k.outs, ys, strict=True)])
        return tangents if isinstance(out, tuple) else tangents[0]


def source_in_c(k, derivative: str | None, real) -> str:
    """The CUDA C of a raw kernel's program, or of its derivative."""
    if not getattr(k, "derived", False):
        raise ArgumentError(f"{k.__name__}: its rules are not derived; pass vjp='derive' to kernels.raw")
    p = DerivedRules(k).kernel(np.dtype(real)).text.program(k.code.entry, True, 1 << 10)
    active = tuple([n for n, a in enumerate(k.args) if a.active and a.given])
    return ThreadText(derivative_of(p, derivative, active)).text
