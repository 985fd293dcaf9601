"""Stand-ins for the user's CuPy kernels inside a transform.

CuPy runs them on plain arrays. On tracked arrays they have no derivative rule, and raise an error with
a remedy."""

from collections.abc import Callable
from typing import Any

from .._core.errors import NoRuleError
from .._core.lent_memory import lend
from .._core.primitive import any_tracked, holds_variable

ARRAYS = "write it with cupy's functions, or the function of one element with tapegrad.kernels.map"
RAW = "declare it with tapegrad.kernels.raw, which takes the kernel of its derivative too"


class Kernel:
    """One kernel. `instead`: the remedy for the error message."""

    instead = ARRAYS

    def __init__(self, kernel: Any):
        self._kernel = kernel

    @classmethod
    def _of(cls, kernel: Any, shadow: Any = None) -> Any:
        """The stand-in for a kernel. `shadow`: replaces the user's captured objects."""
        return cls(kernel)

    def __call__(self, *args, **kwargs):
        if any_tracked((args, kwargs)):
            kind = type(self._kernel).__name__.removeprefix("_")
            name = getattr(self._kernel, "name", None) or getattr(self._kernel, "__name__", "")
            raise NoRuleError(
                f"{kind} {name}: a kernel of CuPy's has no derivative of its own; {self.instead}, or give "
                f"it one with "
                "tapegrad.rule(kernel, vjp=...), or pass tapegrad.value(x)"
            )
        return self._kernel(*lend(args), **lend(kwargs))

    def __getattr__(self, name):
        return getattr(self._kernel, name)

    def __repr__(self):
        return repr(self._kernel)


class ReductionKernelFace(Kernel):
    instead = "write it as a map and a sum with cupy's functions (or sum, prod, min, max, logsumexp)"


class RawKernelFace(Kernel):
    instead = RAW


class JitKernel(RawKernelFace):
    def __getitem__(self, sizes):
        return lambda *args, **kwargs: self(*sizes, args, **kwargs)


class RawModule(RawKernelFace):
    def get_function(self, name):
        return RawKernelFace(self._kernel.get_function(name))


class FusedFunction(Kernel):
    """The result of `cupy.fuse`. It consists of CuPy functions, which are followed on tracked arrays; on
    plain arrays it stays one kernel."""

    def __init__(self, kernel: Any, function: Callable | None = None):
        Kernel.__init__(self, kernel)
        self._function = kernel.func if function is None else function

    @classmethod
    def _of(cls, kernel, shadow=None):
        return cls(kernel, kernel.func if shadow is None else shadow(kernel.func))

    def __call__(self, *args, **kwargs):
        return (self._function if holds_variable(args) else self._kernel)(*args, **kwargs)


KINDS = {
    "ElementwiseKernel": Kernel, "vectorize": Kernel, "GeneralizedUFunc": Kernel,
    "ReductionKernel": ReductionKernelFace,
    "RawKernel": RawKernelFace,
    "RawModule": RawModule, "_JitRawKernel": JitKernel, "Fusion": FusedFunction,
}  # fmt: skip


class KernelType(type):
    """`kernel_class(real)(...)` makes a CuPy kernel and returns its stand-in. Both are instances of the
    class."""

    def __call__(cls, *args, **kwargs):
        return KINDS[cls.__name__](cls.real(*args, **kwargs))

    def __instancecheck__(cls, x):
        return isinstance(x._kernel if isinstance(x, Kernel) else x, cls.real)


def kernel_class(real: type) -> type:
    return KernelType(
        real.__name__, (), {"real": real, "__doc__": real.__doc__, "__module__": real.__module__}
    )
