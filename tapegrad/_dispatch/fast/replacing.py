"""Replacement of function bodies."""

import dis
from collections.abc import Callable
from types import FunctionType


def before(slow: FunctionType) -> FunctionType:
    """A copy of the function as it is now, for the fallback."""
    return FunctionType(slow.__code__, slow.__globals__, slow.__name__)


def replaces(slow: FunctionType) -> Callable:
    """A decorator: the function below becomes the body of `slow`, also for modules that have imported
    `slow`. The names that it reads are copied along."""

    def put(quick):
        for line in dis.get_instructions(quick):
            name = line.argval
            if line.opname == "LOAD_GLOBAL" and name in quick.__globals__:
                if slow.__globals__.setdefault(name, quick.__globals__[name]) is not quick.__globals__[name]:
                    raise NameError(f"{name} means something else in {slow.__module__}")
        slow.__code__ = quick.__code__
        return slow

    return put
