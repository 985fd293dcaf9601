"""Settings of operations as keys: under one key the same is done."""

import numpy as np
from numpy import ndarray

from ..._core.primitive import ADD_AT, ASSIGN, READ, Primitive
from ..._core.reverse import setting_copy
from ...ops.zero_derivative import ArgumentPlaceholder
from ..costs import COMPARED_ELEMENTS

PLAIN = frozenset((int, str, bool, type(None), type(Ellipsis)))
REGIONS = frozenset((READ, ASSIGN, ADD_AT))
NO_STEPS = ()  # Python has one empty tuple


def settings_key(p):
    """A setting as a key under which equal ones of equal types meet; raises TypeError where there is none."""
    kind = type(p)
    if kind in PLAIN:
        return kind, p
    if kind is dict:
        return (*p, *[settings_key(v) for v in p.values()])
    if kind is tuple or kind is list:
        return (kind, *[settings_key(v) for v in p]) if p else kind
    if kind is slice:
        return slice, p.start, p.stop, p.step
    if kind is ndarray and p.nbytes <= 8 * COMPARED_ELEMENTS and p.dtype.kind != "O":
        return p.shape, p.strides, p.dtype.str, p.tobytes()
    if kind is float or kind is complex or isinstance(p, np.generic):
        return kind, repr(p)
    if kind is ArgumentPlaceholder:
        return kind, p.k
    hash(p)
    return kind, p


def content_key(v) -> tuple | None:
    """A key under which arrays of NumPy of one layout and content meet, if they are small or uniform."""
    if type(v) is not ndarray:
        return None
    if v.size <= COMPARED_ELEMENTS:
        return v.shape, v.strides, v.dtype, v.tobytes()
    if v.dtype.kind not in "biuf" or v.itemsize not in (1, 2, 4, 8):
        return None
    bits = v.view(f"i{v.itemsize}")
    return (v.shape, v.strides, v.dtype, int(bits.flat[0])) if (bits == bits.flat[0]).all() else None


def index_key(at) -> tuple:
    """The same for an index, or a step of a view: numbers and slices, mostly."""
    kind = type(at)
    if kind is tuple:
        return kind, *[i if type(i) is int else index_key(i) for i in at]
    if kind in PLAIN:
        return kind, at
    return (kind, at.start, at.stop, at.step) if kind is slice else settings_key(at)


def settled_of(prim: Primitive, params: dict) -> tuple:
    """(settings as an instruction may hold them, their key: None where there is none)."""
    try:
        if prim in REGIONS:
            at = params["at"]
            if type(at) not in PLAIN and type(at) is not slice:
                params = {**params, "at": setting_copy(at)}
            key = (
                tuple([(kind, index_key(step)) for kind, step in params["path"]])
                if params["path"]
                else NO_STEPS
            )
            return params, (key, index_key(at), params.get("copy"))
        kinds = tuple(map(type, params.values()))
        if PLAIN.issuperset(kinds):
            return params, (*params.items(), kinds)
        params = {name: setting_copy(p) for name, p in params.items()}
        return params, tuple([(name, index_key(p)) for name, p in params.items()])
    except TypeError:
        return {name: setting_copy(p) for name, p in params.items()}, None
