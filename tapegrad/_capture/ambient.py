"""Context variables, results of futures, and exceptions made outside, seen from f."""

from contextvars import ContextVar
from typing import Any

from .classes import InstanceState
from .kinds import HEAP, Capture, Holder, put_state, state_of


class ContextValue(Holder):
    """A context variable.  What f sets is set at once, for the context keeps it, and made plain
    afterwards."""

    __slots__ = ("real", "shadow", "placed", "first")

    def __init__(self, real: ContextVar, shadow: Any):
        self.real, self.shadow = real, shadow
        self.placed: list = []
        self.first: Any = None

    def get(self, *default: Any) -> Any:
        value = self.real.get(*default)
        if self.shadow.seen is None or any([value is v for v in (*self.placed, *default)]):
            return value
        return self.shadow(value)

    def set(self, value: Any) -> Any:
        token = self.real.set(value)
        self.placed.append(value)
        self.first = self.first or token
        return token

    words = "a context variable"

    @staticmethod
    def named(change: tuple) -> list:
        return [(ContextValue.words, v) for v in change[2].placed[-1:]]

    @staticmethod
    def altered(shadow: Any, change: tuple) -> bool:
        return False  # what f set was set at once

    @staticmethod
    def undo(back: Any, change: tuple) -> None:
        self = change[2]
        value = self.real.get(None)
        if any([value is v for v in self.placed]):
            if back.undo:
                self.real.reset(self.first)
            else:
                self.real.set(back(value))
        self.placed = []

    __class__: Any = property(lambda self: ContextVar)

    def __getattr__(self, name):
        return getattr(self.real, name)


class AmbientCapture(Capture):
    """The part of a `Shadow` that replaces what this file is about."""

    def ambient(self, x: ContextVar) -> Any:
        new = ContextValue(x, self)
        self.changes.append((ContextValue, x, new))
        return new

    def future(self, x: Any) -> Any:
        """One that is running yet must stay itself: a thread will end it."""
        return self.instance(x) if x.done() else self.leave(x)

    def exception(self, x: BaseException) -> Any:
        """One that was not raised yet, holds what is shadowed, and has no fields of its own kind (as
        `OSError` has)."""
        kind = type(x)
        builtin = next(c for c in kind.__mro__ if not c.__flags__ & HEAP)
        if (
            x.__traceback__
            or x.__context__
            or x.__cause__
            or builtin.__basicsize__ != BaseException.__basicsize__
        ):
            return self.leave(x)
        args, state = self(x.args), state_of(x)
        before = {name: self(value) for name, value in state.items()}
        if args is x.args and all([v is before[name] for name, v in state.items()]):
            return self.leave(x)
        new = BaseException.__new__(kind, *args)
        put_state(new, before)
        self.changes.append((InstanceState, x, new, before))
        return new
