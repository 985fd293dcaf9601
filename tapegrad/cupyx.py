"""The stand-in of cupyx: what adds into an array in place, `rsqrt`, cupyx.linalg, and cupyx.scipy, which is
`tapegrad.scipy`."""

from typing import Any as _Any

import cupyx as _cupyx
import numpy as _np
import scipy.linalg as _scipy_linalg

from . import scipy as scipy
from ._core.primitive import holds_variable as _holds_variable
from ._dispatch.cupy_kernels import kernel_class as _kernel_class
from ._dispatch.faces import faces_of as _faces_of
from ._dispatch.faces import fill_module as _fill
from .ops.declare import NUMPY as _NUMPY
from .ops.protocols import store as _store
from .ops.protocols import ufunc_at as _ufunc_at

linalg = _faces_of("tapegrad.cupyx.linalg", _cupyx.linalg, _scipy_linalg, old={"invh": "inv"})
GeneralizedUFunc = _kernel_class(_cupyx.GeneralizedUFunc)


def _at(theirs: _Any, ufunc: _Any) -> _Any:
    def scatter(a: _Any, slices: _Any, value: _Any) -> _Any:
        if _holds_variable((a, slices, value)):
            return _ufunc_at(ufunc, a, slices, value)
        return theirs(a, slices, value)

    scatter.__name__, scatter.__doc__ = theirs.__name__, theirs.__doc__
    return scatter


scatter_add = _at(_cupyx.scatter_add, _np.add)
scatter_max = _at(_cupyx.scatter_max, _np.maximum)
scatter_min = _at(_cupyx.scatter_min, _np.minimum)


def rsqrt(x: _Any, out: _Any = None, **kwargs: _Any) -> _Any:
    """1 / sqrt(x)."""
    if not _holds_variable((x, out)):
        return _cupyx.rsqrt(x, out, **kwargs)
    y = _NUMPY[_np.reciprocal](_NUMPY[_np.sqrt](x))
    return y if out is None else _store(out, y)


_fill(globals(), _cupyx)
