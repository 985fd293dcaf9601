"""Loop programs of threads as operations on CuPy arrays: CUDA C, which NVRTC compiles."""

import numpy as np

from ..._core.arrays import is_array, xp_of
from ...kernels.launch.cuda import loaded
from ..operation import LoopOperation
from ..program import DTYPES, LoopProgram, Scalar, stacks_of, written
from .thread_text import ThreadText


def text_of(p: LoopProgram) -> ThreadText:
    if "text" not in p.derived:
        p.derived["text"] = ThreadText(p)
    return p.derived["text"]


class ThreadLaunch:
    """One launch of a program of threads on plain arrays: they are written in place."""

    def __init__(self, p: LoopProgram, values: list, xp):
        self.p, self.values, self.xp = p, values, xp
        assert p.launch is not None
        gz, gy, gx, bz, by, bx = [int(n) for n in values[p.launch : p.launch + 6]]
        self.grid, self.block = (gx, gy, gz), (bx, by, bz)
        self.threads = gx * gy * gz * bx * by * bz

    def __call__(self) -> list:
        """The numbers that the program yields, summed over the threads; or the heights of its stacks."""
        xp, text, given = self.xp, text_of(self.p), []
        for q, x in zip(self.p.params, self.values, strict=True):
            given += [DTYPES[q.type](x)] if isinstance(q, Scalar) else [x, *map(np.int64, x.shape)]
        yields = [xp.zeros(1, DTYPES[y.type]) for y in self.p.body.yields]
        heights = self.heights()
        stacks = [xp.empty(max(heights[x] * self.threads, 1), DTYPES[x.type]) for x in text.stored]
        counted = [xp.zeros(len(text.counting), np.uint64)] if text.counting else []
        code = loaded(text.text, text.entry, (), f"{text.entry}.cu")
        code(self.grid, self.block, (*given, *yields, *stacks, *counted))
        if counted:
            return [int(n) for n in counted[0].get()]
        return [y.get()[0] for y in yields]

    def heights(self) -> dict:
        """How high each stack of the program becomes, at most."""
        p, derived = self.p, self.p.derived
        found = {}
        before = derived.get("of")
        if before is not None and stacks_of(before):
            found.update(ThreadLaunch(before, self.values[: len(before.params)], self.xp).heights())
        filled = derived.get("heights")
        if filled is not None and filled.outs:
            filled.derived.setdefault("of", before)
            values = [
                x.copy() if q in written(filled) else x
                for q, x in zip(filled.params, self.values, strict=True)
            ]
            found.update(zip(filled.outs, ThreadLaunch(filled, values, self.xp)(), strict=True))
        found.update({x: found[of] for x, of in derived.get("twins", {}).items()})
        return {x: found[x] for x in text_of(p).stored}


class ThreadOperation(LoopOperation):
    """The same on CuPy arrays."""

    def run(self, *args) -> tuple:
        xp = next(xp_of(x) for x in args if is_array(x) and xp_of(x) is not np)
        values = []
        for q, x in zip(self.p.params, args, strict=True):
            if isinstance(q, Scalar):
                values.append(x.item() if hasattr(x, "item") else x)
            elif q in self.written:
                values.append(xp.array(x, DTYPES[q.type], order="C"))
            else:
                values.append(xp.ascontiguousarray(xp.asarray(x, DTYPES[q.type])))
        yields = ThreadLaunch(self.p, values, xp)()
        outs = [x for q, x in zip(self.p.params, values, strict=True) if q in self.p.outs]
        return tuple(outs + yields)
