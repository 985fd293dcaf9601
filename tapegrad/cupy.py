"""CuPy's names, for arrays and Variables alike: `from tapegrad import cupy as cp`.  See `tapegrad.numpy`."""

import sys as _sys

import numpy as _numpy

try:
    import cupy as _cupy
except ImportError as _error:
    raise ImportError("tapegrad.cupy needs CuPy: install tapegrad[cuda12x] or tapegrad[cuda13x]") from _error

from . import numpy as _twin_of_numpy
from ._array import xp_of as _xp_of
from ._faces import array_class as _array_class
from ._faces import fill as _fill
from ._faces import twin as _twin
from ._primitive import plain as _plain

linalg = _twin("tapegrad.cupy.linalg", _cupy.linalg, _numpy.linalg)
fft = _twin("tapegrad.cupy.fft", _cupy.fft, _numpy.fft)
ndarray = _array_class(_cupy.ndarray)


def get_array_module(*args):
    """tapegrad.cupy if one of the arguments is a CuPy array or a Variable over one, else tapegrad.numpy."""
    return _sys.modules[__name__] if any(_xp_of(_plain(x)) is not _numpy for x in args) else _twin_of_numpy


_fill(globals(), _cupy, _numpy)
