"""CuPy's elementwise and reduction kernels with tracked arrays: their parts make a kernel in CUDA C."""

import functools
import math
from collections.abc import Sequence

import numpy as np

from ..._core.arrays import is_array, xp_of
from ..._core.errors import ArgumentError, ShapeError
from ..._core.primitive import layout_of
from ...ops.creation import asarray
from ...ops.declare import dtype, shape
from ...ops.shaping import astype, broadcast_to, copy, reshape, transpose
from ..program import LoopRefused
from .array_parser import ArrayParser
from .kernel_program import KernelText
from .kernels import TYPE_NAMES, CKernel, type_of_dtype

BLOCK = 128
LOOP = """for (long long {i} = blockIdx.x * (long long)blockDim.x + threadIdx.x; {i} < {n};
     {i} += (long long)blockDim.x * gridDim.x) {{"""


class KernelArguments:
    """The arguments of an elementwise or reduction kernel: its types, and one shape of all elements."""

    def __init__(self, name: str, params: Sequence, args: Sequence):
        self.name, self.params = name, params
        self.looks = [layout_of(x) for x in args]
        self.types: dict[str, str] = {}  # name of a type -> C type
        for p, x in zip(params, self.looks, strict=False):
            if p.dtype is None and is_array(x):
                self.types.setdefault(p.ctype, type_of_dtype(x.dtype))
        for p, x in zip(params, self.looks, strict=False):
            if p.dtype is None and not is_array(x):
                self.types.setdefault(p.ctype, type_of_dtype(np.asarray(x).dtype))
        self.each = [
            k for k, (p, x) in enumerate(zip(params, self.looks, strict=False)) if not p.raw and is_array(x)
        ]
        try:
            self.shape = np.broadcast_shapes(*[self.looks[k].shape for k in self.each])
        except ValueError as error:
            raise ShapeError(f"{name}: {error}") from None

    def type(self, p) -> str:
        found = self.types.get(p.ctype) if p.dtype is None else type_of_dtype(p.dtype)
        if found is None:
            raise LoopRefused(f"{self.name}: the type {p.ctype} is not known from the arguments")
        return found

    def declared(self, k: int, out: bool = False) -> str:
        p = self.params[k]
        kind = TYPE_NAMES[self.type(p)]
        if out or k in self.each:
            return f"{'' if out else 'const '}{kind}* {p.name if p.raw else '_' + p.name}"
        return f"const {kind}* {p.name}" if is_array(self.looks[k]) else f"{kind} {p.name}"

    def reads(self, places: Sequence[int]) -> list[str]:
        """The element of each of these parameters, as a variable."""
        found = [self.params[k] for k in places if not self.params[k].raw]
        return [f"{TYPE_NAMES[self.type(p)]} {p.name} = _{p.name}[i];" for p in found]

    @property
    def library(self):
        return next(xp_of(x) for x in self.looks if is_array(x))

    def results(self, source: str, entry: str, values: list, work: int) -> dict:
        """Launch a kernel with as many elements."""
        k = generated_kernel(source, entry, tuple(sorted(self.types.items())))
        if self.library is np:
            return k.results(1, 1, values)
        return k.results(min(max(-(-work // BLOCK), 1), 65535), BLOCK, values)

    def flat(self, x, k: int, axes: tuple | None = None):
        """An argument in the order of its elements."""
        look = self.looks[k]
        if not is_array(look):
            return x
        want = np.dtype(self.type(self.params[k]))
        if look.dtype != want:
            x = astype(asarray(x), to=want)
        if k in self.each:
            x = broadcast_to(asarray(x), to=self.shape)
            x = x if axes is None else transpose(x, axes=axes)
        x = reshape(asarray(x), to=(-1,))
        return x if layout_of(x).flags.c_contiguous else copy(x, "C")


@functools.lru_cache(512)
def generated_kernel(source: str, entry: str, types: tuple) -> CKernel:
    return CKernel(KernelText(source, f"<{entry}>", dict(types), parser=ArrayParser), entry)


def elementwise_text(kernel, a: KernelArguments) -> str:
    """A kernel that does what an `ElementwiseKernel` does, on flat arrays."""
    nin, names = kernel.nin, [p.name for p in a.params]
    outs = [p for p in a.params[nin:] if not p.raw]
    heads = [a.declared(k, k >= nin) for k in range(len(names))]
    each = [k for k in range(len(names)) if k >= nin or k in a.each]
    lines = [
        kernel.preamble,
        f'extern "C" __global__ void {kernel.name}({", ".join([*heads, "long long _n"])}) {{',
        "" if "n" in names else "const long long n = _n;",
        kernel.kwargs.get("loop_prep", ""),
        LOOP.format(i="i", n="_n"),
        *a.reads(each),
        kernel.operation.replace("_ind.size()", "_n") + ";",
        *[f"_{p.name}[i] = {p.name};" for p in outs],
        "}",
        kernel.kwargs.get("after_loop", ""),
        "}",
    ]
    return "\n".join(lines)


def call_elementwise_kernel(kernel, args: Sequence, size: int | None = None):
    """Call a `cupy.ElementwiseKernel` with tracked values."""
    params = [p for p in kernel.params if p.name != "_ind"]
    nin, nout = kernel.nin, kernel.nout
    if len(args) not in (nin, nin + nout):
        raise ArgumentError(f"{kernel.name} takes {nin} or {nin + nout} arguments, {len(args)} were given")
    a = KernelArguments(kernel.name, params, args)
    if size is None and not a.each:
        raise ArgumentError(f"{kernel.name}: no argument tells the number of elements; pass size=")
    to = a.shape if size is None else (size,)
    given = args[nin:]
    outs = given or [a.library.zeros(to, np.dtype(a.type(p))) for p in params[nin:]]
    starts = [a.flat(x, nin + k) for k, x in enumerate(given)] or [x.reshape(-1) for x in outs]
    values = [*[a.flat(x, k) for k, x in enumerate(args[:nin])], *starts, math.prod(to)]
    found = a.results(elementwise_text(kernel, a), kernel.name, values, math.prod(to))
    results = []
    for k, x in enumerate(outs):
        y = astype(reshape(found.get(nin + k, starts[k]), to=shape(x)), to=dtype(x))
        if given:
            given[k][...] = y
        results.append(given[k] if given else y)
    return tuple(results) if nout > 1 or kernel.return_tuple else results[0]


def reduction_text(kernel, a: KernelArguments) -> str:
    """A kernel that does what a `ReductionKernel` does; the elements of each result lie together."""
    result, total = a.params[-1], kernel.reduce_type or a.params[-1].ctype
    empty = kernel.identity in (None, "")
    post = kernel.post_map_expr.replace("_in_ind.size()", "(_outer * _inner)")
    one = f"{TYPE_NAMES[a.type(result)]} {result.name} = _{result.name}[_o];"
    heads = [a.declared(k, k == kernel.nin) for k in range(kernel.nin + 1)]
    heads += ["long long _outer", "long long _inner"]
    lines = [
        kernel.preamble,
        f'extern "C" __global__ void {kernel.name}({", ".join(heads)}) {{',
        LOOP.format(i="_o", n="_outer"),
        f"{total} a = ({total})({'0' if empty else kernel.identity});",
        "for (long long _j = 0; _j < _inner; ++_j) {",
        "const long long i = _o * _inner + _j;",
        *a.reads([k for k in a.each if k < kernel.nin]),
        f"const {total} b = ({total})({kernel.map_expr});",
        f"a = _j == 0 ? b : ({total})({kernel.reduce_expr});" if empty else f"a = {kernel.reduce_expr};",
        "}",
        one,
        post.replace("_out_ind.size()", "_outer") + ";",
        f"_{result.name}[_o] = {result.name};",
        "}",
        "}",
    ]
    return "\n".join(lines)


def call_reduction_kernel(kernel, args: Sequence, out=None, axis=None, keepdims: bool = False):
    """Call a `cupy.ReductionKernel` with tracked values: one thread computes each result, in order."""
    nin = kernel.nin
    if len(args) != nin or kernel.nout != 1:
        raise ArgumentError(f"{kernel.name} takes {nin} arguments and gives one result")
    a = KernelArguments(kernel.name, [*kernel.in_params, *kernel.out_params], args)
    rank = len(a.shape)
    given = range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if any(not -rank <= k < rank for k in given):
        raise ArgumentError(f"{kernel.name}: axis={axis} for arrays of {rank} axes")
    reduced = sorted({k % rank for k in given})
    kept = [k for k in range(rank) if k not in reduced]
    inner, outer = (math.prod([a.shape[k] for k in axes]) for axes in (reduced, kept))
    if kernel.identity in (None, "") and not inner:
        raise ShapeError(f"{kernel.name}: a reduction of no elements without an identity")
    kind = np.dtype(a.type(a.params[-1]))
    values = [a.flat(x, k, (*kept, *reduced)) for k, x in enumerate(args)]
    values += [a.library.zeros(outer, kind), outer, inner]
    y = a.results(reduction_text(kernel, a), kernel.name, values, outer)[nin]
    to = [1 if k in reduced else n for k, n in enumerate(a.shape) if keepdims or k not in reduced]
    y = astype(reshape(y, to=tuple(to)), to=kind)
    if out is None:
        return y
    out[...] = y
    return out
