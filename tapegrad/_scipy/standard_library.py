"""Python's modules of numbers, and `inspect`, in followed code."""

import functools
import inspect
import types

from .._dispatch.numbers import MODULES as NUMBERS


class SignatureQuestions(types.ModuleType):
    """`inspect`, with the answers about functions kept: SciPy's decorators ask in each call."""

    signature = staticmethod(functools.cache(inspect.signature))
    getfullargspec = staticmethod(functools.cache(inspect.getfullargspec))

    def __getattr__(self, name: str):
        return getattr(inspect, name)


MODULES = {**NUMBERS, "inspect": SignatureQuestions("inspect")}
