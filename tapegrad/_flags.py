"""Settings of `np.errstate`, each made once.

NumPy keeps the setting in a context variable, and `np.errstate` makes it anew each time, which costs more than most operations on
small arrays.  The variable is found by looking at what `np.errstate` changes in the context; should it change anything else, or
more, then `np.errstate` itself is used."""

import contextvars
import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def _found() -> Any:
    before = contextvars.copy_context()
    with np.errstate(all="ignore"):
        inside = contextvars.copy_context()
    changed = [v for v in inside if inside[v] is not before.get(v)]
    return changed[0] if len(changed) == 1 else None


VARIABLE = _found()


class Setting:
    """What `np.errstate(**modes)` sets: `leave(setting.enter())` around what is to run under it."""

    __slots__ = ("modes", "value")

    def __init__(self, **modes: Any):
        self.modes, self.value = modes, None
        if VARIABLE is not None:
            with np.errstate(**modes):
                self.value = now()

    def enter(self) -> Any:
        if VARIABLE is not None:
            return VARIABLE.set(self.value)
        context = np.errstate(**self.modes)
        context.__enter__()
        return context


def leave(entered: Any) -> None:
    if type(entered) is contextvars.Token:
        VARIABLE.reset(entered)
    else:
        entered.__exit__(None, None, None)


def _unknown() -> Any:
    return None


# The setting in force, as an object that is never altered; None where that is not known.
now: Callable[[], Any] = _unknown if VARIABLE is None else functools.partial(VARIABLE.get, VARIABLE)
