"""NumPy's names, for arrays and Variables alike: `from tapegrad import numpy as np`.

Every public name of numpy is here.  Functions with a derivative rule differentiate; others run on what no
transform watches and raise `NoRuleError` for what one does.  Constants, types and modules without stand-in
are NumPy's own."""

from typing import Any as _Any

import numpy as _numpy

from ._core.float_errors import errstate as errstate
from ._core.float_errors import geterr as geterr
from ._core.float_errors import geterrcall as geterrcall
from ._core.float_errors import seterr as seterr
from ._core.float_errors import seterrcall as seterrcall
from ._core.registry import late as _late
from ._core.registry import load as _load
from ._dispatch.callback_functions import apply_along_axis as apply_along_axis
from ._dispatch.callback_functions import apply_over_axes as apply_over_axes
from ._dispatch.callback_functions import fromiter as fromiter
from ._dispatch.callback_functions import ndenumerate as ndenumerate
from ._dispatch.callback_functions import vectorize as vectorize
from ._dispatch.faces import IndexConcatenator as _Joined
from ._dispatch.faces import array_class as _array_class
from ._dispatch.faces import faces_of as _faces_of
from ._dispatch.faces import fill_module as _fill
from ._dispatch.nditer import broadcast as broadcast
from ._dispatch.nditer import nditer as nditer
from ._dispatch.random import random as random
from ._dispatch.record_arrays import RECORD_ARRAYS as _record_arrays
from .ops.zero_derivative import declare_testing as _declare_testing

linalg = _faces_of("tapegrad.numpy.linalg", _numpy.linalg)
fft = _faces_of("tapegrad.numpy.fft", _numpy.fft)
emath = _faces_of("tapegrad.numpy.emath", _numpy.emath)
_strides = _faces_of("tapegrad.numpy.lib.stride_tricks", _numpy.lib.stride_tricks)
lib = _faces_of("tapegrad.numpy.lib", _numpy.lib)
rec = _faces_of("tapegrad.numpy.rec", _numpy.rec)
vars(rec).update(_record_arrays)
ndarray, recarray = _array_class(_numpy.ndarray), _array_class(_numpy.recarray)
r_, c_ = _Joined(_numpy.r_, 0, 1, -1), _Joined(_numpy.c_, -1, 2, 0)
_fill(globals(), _numpy)
_of_faces = globals()["__getattr__"]  # it was filled in


def __getattr__(name: str) -> _Any:
    if name in ("ma", "matrix", "asmatrix", "bmat"):  # their Python code is followed
        return _late.shadowed(getattr(_numpy, name))
    if name == "testing":  # loaded on first use
        _declare_testing()
        globals()[name] = _faces_of("tapegrad.numpy.testing", _numpy.testing)
        return globals()[name]
    if name not in ("polynomial", "poly1d"):
        return _of_faces(name)
    made = _load("tapegrad._scipy.polynomial")
    globals().update(polynomial=made.stand_in, poly1d=made.poly1d, **made.OF_COEFFICIENTS)
    return globals()[name]
