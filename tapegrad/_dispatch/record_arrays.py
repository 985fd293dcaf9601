"""Functions of `numpy.rec`, of columns that may be tracked."""

import numpy as np

from .._core.primitive import any_tracked, is_tracked
from ..ops.creation import array, as_variable
from .structured import kind_of


def record_array(columns: list, args: tuple, kwargs: dict):
    """A record array of columns, of which some may be tracked."""
    columns = [array(list(v) if isinstance(v, tuple) else v) for v in columns]
    made = as_variable(np.rec.fromarrays([np.zeros(np.shape(v), v.dtype) for v in columns], *args, **kwargs))
    for name, v in zip(made.dtype.names, columns, strict=True):
        made[name][...] = v
    return made


def fromarrays(arrayList, *args, **kwargs):
    return record_array(arrayList, args, kwargs)


def fromrecords(recList, *args, **kwargs):
    return record_array([*zip(*recList, strict=True)], args, kwargs)


def rec_array(obj, dtype=None, shape=None, *args, **kwargs):
    if kind_of(obj) and dtype is None and not args and not kwargs:
        return obj.copy().view(np.recarray)
    if is_tracked(obj) and dtype is None and not args and not kwargs:  # it has no fields
        return array(obj)
    if isinstance(obj, (list, tuple)) and len(obj) and any_tracked((obj,)):
        make = fromrecords if isinstance(obj[0], (list, tuple)) else fromarrays
        return make(obj, dtype, shape, *args, **kwargs)
    return as_variable(np.rec.array(obj, dtype, shape, *args, **kwargs))


RECORD_ARRAYS = {"fromarrays": fromarrays, "fromrecords": fromrecords, "array": rec_array}
