"""What values look like: their shape, dtype and memory order, told once for all that are alike."""

import itertools

import numpy as np
from numpy import ndarray

from ..._core.abstract_arrays import hollow, hollow_number
from ..._core.arrays import is_array, is_scalar, xp_of
from ..._core.primitive import Primitive
from ..._core.variable import CLASSES

LOOKS: dict = {}  # what values look like
GIVEN: dict = {}  # elementwise operation -> what its results look like (`elementwise_rule`)
COUNT = itertools.count()


def look_of(xp, shape: tuple, strides: tuple, dtype) -> tuple:
    """(hollow array, layout if it owns its memory, layout if it does not, a number, type and dtype of
    NumPy's, class of its Variables) of an array.

    A layout: (is it an array of NumPy?  None: a number, shape, strides, dtype, does it own its memory?)"""
    if len(LOOKS) > 999:
        LOOKS.clear()
        LOOKS[np.float64] = OF_FLOAT
    rest = (xp is np, shape, strides, dtype)
    value = hollow(xp, shape, dtype, strides)
    found = (
        value,
        (*rest, True),
        (*rest, False),
        next(COUNT),
        ndarray if xp is np else None,
        dtype,
        CLASSES[type(value)],
    )
    LOOKS[(shape, strides, dtype) if xp is np else (xp, shape, strides, dtype)] = found
    return found


def look_at(v) -> tuple:
    if type(v) is ndarray:
        key = v.shape, v.strides, v.dtype
        return LOOKS.get(key) or look_of(np, *key)
    return (
        look_of(xp_of(v), v.shape, v.strides, v.dtype)
        if is_array(v)
        else LOOKS.get(type(v)) or look_of_number(v)
    )


def look_of_number(v) -> tuple:
    found = LOOKS.get(type(v))
    if found is None and type(v) in (tuple, list):  # of several results
        found = LOOKS[type(v)] = None, *[(None, (), (), None, True)] * 2, next(COUNT), None, None, None
    elif found is None:
        d = v.dtype if is_scalar(v) else np.asarray(v).dtype
        kind = type(v) if is_scalar(v) else None
        value = hollow_number(d)
        layout = None, (), (), getattr(v, "dtype", None), True
        found = value, layout, layout, next(COUNT), kind, d, CLASSES[type(value)]
        if d.kind in "biufc":
            LOOKS[type(v)] = found
    return found


OF_FLOAT = look_of_number(np.float64())  # the usual one


def elementwise_rule(prim: Primitive) -> dict:
    """Numbers of the looks of an elementwise operation's operands -> look of its result."""
    found = GIVEN.setdefault(prim, {})
    if len(found) > 999:
        found.clear()
    return found
