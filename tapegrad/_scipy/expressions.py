"""numexpr in followed code.  Its expressions are Python's, and its functions have the names of NumPy's."""

import sys

import numexpr

from .. import numpy as np
from .._core.errors import ArgumentError
from .._core.primitive import holds_variable

FUNCTIONS = {name: getattr(np, name, f) for name, f in numexpr.expressions.functions.items()}
FUNCTIONS["complex"] = lambda a, b: a + 1j * b


def evaluate(ex, local_dict=None, global_dict=None, out=None, **settings):
    """`numexpr.evaluate`, of arrays that may be tracked."""
    frame = sys._getframe(1)
    here = frame.f_locals if local_dict is None else local_dict
    around = frame.f_globals if global_dict is None else global_dict
    code = compile(ex.strip(), "<numexpr>", "eval")
    names = [n for n in code.co_names if n in here or n in around]
    values = {n: here[n] if n in here else around[n] for n in names}
    if not holds_variable((tuple(values.values()), out)):
        return numexpr.evaluate(ex, values, {}, out, **settings)
    if settings.keys() - {"order", "casting", "sanitize", "optimization", "truediv", "disable_cache"}:
        raise ArgumentError(
            f"numexpr.evaluate: {', '.join(settings)} with a tracked array; write the expression"
        )
    y = np.asarray(eval(code, {"__builtins__": {}}, values | FUNCTIONS))
    if out is None:
        return y
    out[...] = y
    return out


def __getattr__(name: str):
    return getattr(numexpr, name)
