"""Models and data of a device, moved to the host.

One series is filtered step by step, which a CPU does faster than a device, where each array operation is a
launch. The move is an operation of the tape. The model function and its derivatives stay on the device."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from types import ModuleType

import numpy

from ..._core.arrays import is_array, to_host, xp_of
from ..._core.primitive import Primitive, bind, is_tracked, layout_of
from ..._core.trees import tree_map
from .._model import LinearGaussian
from .._observations import Observations

MOVED = Primitive("moved", lambda x, to, back: to_host(x) if to is numpy else to.asarray(x))
MOVED.vjp, MOVED.joint = (lambda g, out, need, x, to, back: (to_library(g, back, to),),), True
MOVED.jvp = lambda t, out, x, to, back: to_library(t[0], to, back)
MOVED.keep_spec = lambda active: ((), False)


def to_library(x, to: ModuleType, back: ModuleType):
    """Return x of the library `back` as an array of `to`."""
    return bind(MOVED, (x,), {"to": to, "back": back})


def brought(x, to: ModuleType):
    """Return an array, a list or the fields of a result in this library; other objects are unchanged."""
    if isinstance(x, (list, tuple)):
        return [brought(item, to) for item in x]
    if is_dataclass(x) and not isinstance(x, type):
        return replace(x, **{f.name: brought(getattr(x, f.name), to) for f in fields(x)})
    like = layout_of(x)
    return (
        to_library(x, to, xp_of(like))
        if (is_array(like) or isinstance(like, numpy.generic)) and xp_of(like) is not to
        else x
    )


def host_data(data: Observations) -> Observations:
    """Return the data in NumPy arrays; data under differentiation are unchanged."""
    if data.xp is numpy or is_tracked(data.values):
        return data
    return Observations(data.host)


def on_processor(model: LinearGaussian, data: Observations) -> tuple[LinearGaussian, Observations]:
    """Return model and data in NumPy arrays that remain under differentiation."""
    if data.xp is numpy:
        return model, data
    return brought(model, numpy), Observations(brought(data.raw, numpy))


def model_of(build: Callable, params, xp: ModuleType) -> LinearGaussian:
    """Return build(params) on the host, where build works in the library xp."""
    if xp is numpy:
        return build(params)
    model = build(
        tree_map(
            lambda x: xp.asarray(x) if issubclass(type(x), (numpy.generic, numpy.ndarray)) else x, params
        )
    )
    return brought(model, numpy) if isinstance(model, LinearGaussian) else model
