"""Checks of derivatives, and CuPy on machines without a GPU."""

from .derivative_checks import check_grads as check_grads
from .hosted import host_cupy as host_cupy

__all__ = ["check_grads", "host_cupy"]


def __dir__() -> list[str]:
    return __all__
