"""Stand-ins for the user's CuPy kernels inside a transform.

CuPy runs them on plain arrays. On tracked arrays their CUDA C is read as a loop program, which has
derivatives. What cannot be read raises an error with a remedy."""

from collections.abc import Callable
from typing import Any

from .._core.errors import NoRuleError
from .._core.lent_memory import lend
from .._core.primitive import any_tracked, holds_variable
from .._core.registry import load

ARRAYS = "write it with cupy's functions, or the function of one element with tapegrad.kernels.map"
RAW = "declare it with tapegrad.kernels.raw, which takes the kernel of its derivative too"


class NoSource(Exception):
    """A kernel that cannot be read; the message may say why."""


def read_kernel(module: str, name: str, *args):
    """Call a function of a module of `loops.cuda_c`."""
    kernels = load(f"tapegrad.loops.cuda_c.{module}")
    try:
        return getattr(kernels, name)(*args)
    except kernels.LoopRefused as error:
        raise NoSource(str(error)) from error


class Kernel:
    """One kernel. `instead`: the remedy for the error message."""

    instead = ARRAYS

    def __init__(self, kernel):
        self._kernel = kernel

    @classmethod
    def _of(cls, kernel, shadow=None):
        """The stand-in for a kernel. `shadow`: replaces the user's captured objects."""
        return cls(kernel)

    def __call__(self, *args, **kwargs):
        if not any_tracked((args, kwargs)):
            return self._kernel(*lend(args), **lend(kwargs))
        try:
            return self._differentiated(*args, **kwargs)
        except NoSource as error:
            kind = type(self._kernel).__name__.removeprefix("_")
            name = getattr(self._kernel, "name", None) or getattr(self._kernel, "__name__", "")
            raise NoRuleError(
                f"{kind} {name}: {error or 'a kernel of this kind has no derivative of its own'}; "
                f"{self.instead}, or give it one with tapegrad.rule(kernel, vjp=...), "
                "or pass tapegrad.value(x)"
            ) from error

    def _differentiated(self, *args, **kwargs):
        """The call with tracked arrays."""
        raise NoSource

    def __getattr__(self, name):
        return getattr(self._kernel, name)

    def __repr__(self):
        return repr(self._kernel)


class ElementwiseKernelFace(Kernel):
    def _differentiated(self, *args, size=None, stream=None, block_size: int = 0):
        return read_kernel("element_kernels", "call_elementwise_kernel", self._kernel, args, size)


class ReductionKernelFace(Kernel):
    instead = "write it as a map and a sum with cupy's functions (or sum, prod, min, max, logsumexp)"

    def _differentiated(self, *args, out=None, axis=None, keepdims: bool = False, stream=None):
        return read_kernel(
            "element_kernels", "call_reduction_kernel", self._kernel, args, out, axis, keepdims
        )


class RawKernelFace(Kernel):
    """`source`: (text, name of the kernel, options)."""

    instead = RAW

    def __init__(self, kernel, source: tuple | None = None):
        Kernel.__init__(self, kernel)
        self._source = source

    def _differentiated(self, grid, block, args, shared_mem: int = 0, **further) -> None:
        k = self._kernel
        text, name, options = self._source or (k.code, k.name, tuple(k.options))
        if text is None:
            raise NoSource("its source is in a file")
        read_kernel("kernels", "launch_raw_kernel", text, name, options, grid, block, args, shared_mem)


class JitKernel(Kernel):
    """A kernel that `cupyx.jit.rawkernel` made."""

    instead = RAW

    def _differentiated(self, grid, block, args, shared_mem: int = 0, stream=None) -> None:
        read_kernel("python_kernels", "launch_python_kernel", self._kernel, grid, block, args, shared_mem)

    def __getitem__(self, sizes):
        grid, block = [n if isinstance(n, tuple) else (n, 1, 1) for n in sizes]
        return lambda *args, **kwargs: self(grid, block, args, **kwargs)


class VectorizedFunction(Kernel):
    def _differentiated(self, *args):
        return read_kernel("python_kernels", "call_vectorized", self._kernel, args)


class RawModule(RawKernelFace):
    def get_function(self, name):
        k = self._kernel
        return RawKernelFace(k.get_function(name), (k.code, name, tuple(k.options)))


class FusedFunction(Kernel):
    """The result of `cupy.fuse`. It consists of CuPy functions, which are followed on tracked arrays; on
    plain arrays it stays one kernel."""

    def __init__(self, kernel, function: Callable | None = None):
        Kernel.__init__(self, kernel)
        self._function = kernel.func if function is None else function

    @classmethod
    def _of(cls, kernel, shadow=None):
        return cls(kernel, kernel.func if shadow is None else shadow(kernel.func))

    def __call__(self, *args, **kwargs):
        return (self._function if holds_variable(args) else self._kernel)(*args, **kwargs)


KINDS = {
    "ElementwiseKernel": ElementwiseKernelFace, "vectorize": VectorizedFunction, "GeneralizedUFunc": Kernel,
    "ReductionKernel": ReductionKernelFace,
    "RawKernel": RawKernelFace,
    "RawModule": RawModule, "_JitRawKernel": JitKernel, "Fusion": FusedFunction,
}  # fmt: skip


class KernelType(type):
    """`kernel_class(real)(...)` makes a CuPy kernel and returns its stand-in. Both are instances of the
    class."""

    real: Any

    def __call__(cls, *args, **kwargs):
        return KINDS[cls.__name__](cls.real(*args, **kwargs))

    def __instancecheck__(cls, x):
        return isinstance(x._kernel if isinstance(x, Kernel) else x, cls.real)


def kernel_class(real: type) -> type:
    return KernelType(
        real.__name__, (), {"real": real, "__doc__": real.__doc__, "__module__": real.__module__}
    )
