"""Python's types of numbers, and its modules `math`, `cmath` and `inspect`, in followed code."""

import cmath
import functools
import inspect
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import numpy as faces
from .namespaces import bare, carries, holds_tracked


class NumberType(type):
    """A stand-in for a type of numbers: called, it keeps what is tracked, and asked for, it is that type."""

    real: type
    dtype: np.dtype  # by which NumPy takes the class for this dtype

    def __call__(cls, x=0, *more):
        if not carries((x,)):
            return cls.real(x, *more)
        return x + cls.real(0) if holds_tracked(x) and cls.real is not int else cls.real(bare(x))

    def __instancecheck__(cls, x):
        return isinstance(x, cls.real)

    def __eq__(cls, other):
        return other is cls or other is cls.real

    def __hash__(cls):
        return hash(cls.real)


class SignatureQuestions(types.ModuleType):
    """`inspect`, with the answers about functions kept: SciPy's decorators ask in each call."""

    signature = staticmethod(functools.cache(inspect.signature))
    getfullargspec = staticmethod(functools.cache(inspect.getfullargspec))

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)


def number_type(real: type) -> type:
    return NumberType(real.__name__, (), {"real": real, "dtype": np.dtype(real)})


# NumPy's functions of these names are others: its product is that of all elements
BY_OPERATORS = {"prod": math.prod, "remainder": lambda x, y: x - y * round(bare(x) / bare(y))}


def on_numbers(module: types.ModuleType, name: str) -> Callable:
    """A function of Python's `math` or `cmath`, or of NumPy's of that name where the argument is tracked."""
    f = getattr(module, name)

    def run(*args, **kwargs):
        if name == "prod" or not carries(args):  # (Python's own multiplies anything)
            return f(*args, **kwargs)
        if name in BY_OPERATORS:
            return BY_OPERATORS[name](*args, **kwargs)
        if holds_tracked(args) and name not in ("ceil", "floor", "trunc"):
            return getattr(faces, name)(*args)
        return f(*bare(args), **kwargs)

    return run


def of_numbers(module: types.ModuleType) -> types.ModuleType:
    new = types.ModuleType(module.__name__)
    vars(new).update({n: on_numbers(module, n) if callable(v) else v for n, v in vars(module).items() if not n.startswith("_")})
    return new


NUMBERS = {real.__name__: number_type(real) for real in (float, int, complex)}
MATH = {module.__name__: of_numbers(module) for module in (math, cmath)}
MODULES = {**MATH, "inspect": SignatureQuestions("inspect")}
