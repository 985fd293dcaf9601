"""Models and data of a device, on the host: one series is filtered step by step, for which a processor is faster than a device, whose
array operations would be a launch each.  The move is an operation of the tape, so the model function and its derivatives stay where its
arrays are."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from types import ModuleType
from typing import Any

import numpy

from ..._core.arrays import is_array, to_host, xp_of
from ..._core.primitive import Primitive, bind, is_tracked, layout_of
from ..._core.trees import tree_map
from ..._transforms.tape import value
from .._model import LinearGaussian, Observations

MOVED = Primitive("moved", lambda x, to, back: to_host(x) if to is numpy else to.asarray(x))
MOVED.vjp, MOVED.joint = (lambda g, out, need, x, to, back: (moved(g, back, to),),), True
MOVED.jvp = lambda t, out, x, to, back: moved(t[0], to, back)
MOVED.keep_spec = lambda active: ((), False)


def moved(x: Any, to: ModuleType, back: ModuleType) -> Any:
    """x of the library `back` as an array of `to`."""
    return bind(MOVED, (x,), {"to": to, "back": back})


def brought(x: Any, to: ModuleType) -> Any:
    """An array in this library, lists and the fields of a result, too; other objects as they are."""
    if isinstance(x, (list, tuple)):
        return [brought(item, to) for item in x]
    if is_dataclass(x):
        return replace(x, **{f.name: brought(getattr(x, f.name), to) for f in fields(x)})
    like = layout_of(x)
    return moved(x, to, xp_of(like)) if (is_array(like) or isinstance(like, numpy.generic)) and xp_of(like) is not to else x


def on_host(data: Observations) -> Observations:
    """The same data in NumPy arrays; data under differentiation as they are."""
    if data.xp is numpy or is_tracked(data.values):
        return data
    return Observations(to_host(value(data.raw)))


def on_processor(model: LinearGaussian, data: Observations) -> tuple[LinearGaussian, Observations]:
    """The same model and data in NumPy arrays, under differentiation as they are."""
    if data.xp is numpy:
        return model, data
    return brought(model, numpy), Observations(brought(data.raw, numpy))


def model_of(build: Callable, params: Any, xp: ModuleType) -> LinearGaussian:
    """build(params), where build works in the library xp; on the host."""
    if xp is numpy:
        return build(params)
    model = build(tree_map(lambda x: xp.asarray(x) if issubclass(type(x), (numpy.generic, numpy.ndarray)) else x, params))
    return brought(model, numpy) if isinstance(model, LinearGaussian) else model
