"""CuPy's names, for arrays and Variables alike: `from tapegrad import cupy as cp`.  See `tapegrad.numpy`."""

import functools as _functools
import sys as _sys
from typing import Any as _Any

import numpy as _numpy

try:
    import cupy as _cupy
except ImportError as _error:
    raise ImportError("tapegrad.cupy needs CuPy: install tapegrad[cuda12x] or tapegrad[cuda13x]") from _error

from . import numpy as _faces_of_numpy
from ._core.arrays import xp_of as _xp_of
from ._core.primitive import layout_of as _layout_of
from ._core.variable import Variable as _Variable
from ._dispatch.callback_functions import apply_along_axis as apply_along_axis
from ._dispatch.callback_functions import apply_over_axes as apply_over_axes
from ._dispatch.cupy_kernels import FusedFunction as _Fused
from ._dispatch.cupy_kernels import kernel_class as _kernel_class
from ._dispatch.faces import IndexConcatenator as _Joined
from ._dispatch.faces import array_class as _array_class
from ._dispatch.faces import face as _face
from ._dispatch.faces import faces_of as _faces_of
from ._dispatch.faces import fill_module as _fill
from .ops import creation as _creation

linalg = _faces_of("tapegrad.cupy.linalg", _cupy.linalg, _numpy.linalg)
fft = _faces_of("tapegrad.cupy.fft", _cupy.fft, _numpy.fft)
ndarray = _array_class(_cupy.ndarray)
_any = any  # the name is CuPy's below


def get_array_module(*args: _Any) -> _Any:
    """tapegrad.cupy if one of the arguments is a CuPy array or a Variable over one, else tapegrad.numpy."""
    return (
        _sys.modules[__name__] if _any(_xp_of(_layout_of(x)) is not _numpy for x in args) else _faces_of_numpy
    )


def transfer_face(f: _Any, key: _Any, move: _Any) -> _Any:
    """The face of a function that takes arrays of the other library."""
    run = _face(f, key)

    @_functools.wraps(f)
    def moved(a: _Any, *args: _Any, **kwargs: _Any) -> _Any:
        return run(move(a), *args, **kwargs)

    return moved


array = transfer_face(_cupy.array, _numpy.array, _creation.on_device)
asarray = transfer_face(_cupy.asarray, _numpy.asarray, _creation.on_device)
asanyarray = transfer_face(_cupy.asanyarray, _numpy.asanyarray, _creation.on_device)
ascontiguousarray = transfer_face(_cupy.ascontiguousarray, _numpy.ascontiguousarray, _creation.on_device)


def asnumpy(a: _Any, *args: _Any, **kwargs: _Any) -> _Any:
    """The array on the host; of a tracked Variable a Variable over it."""
    a = _creation.host_value(a)
    return a if isinstance(a, _Variable) else _cupy.asnumpy(a, *args, **kwargs)


ElementwiseKernel, ReductionKernel = (
    _kernel_class(_cupy.ElementwiseKernel),
    _kernel_class(_cupy.ReductionKernel),
)
RawKernel, RawModule, vectorize = (
    _kernel_class(_cupy.RawKernel),
    _kernel_class(_cupy.RawModule),
    _kernel_class(_cupy.vectorize),
)
r_, c_ = _Joined(_cupy.r_, 0, 1, -1, asarray), _Joined(_cupy.c_, -1, 2, 0, asarray)


def fuse(*args: _Any, **kwargs: _Any) -> _Any:
    made = _cupy.fuse(*args, **kwargs)
    return _Fused(made) if args and callable(args[0]) else lambda f: _Fused(made(f))


_OLD = {
    "trapz": "trapezoid", "product": "prod", "cumproduct": "cumprod", "round_": "round", "sometrue": "any",
    "alltrue": "all",
    "in1d": "isin",
}  # fmt: skip
_fill(globals(), _cupy, _numpy, old=_OLD)
