"""Translation of calls of CuPy's functions to NumPy's parameters, whose names, order and defaults can
differ."""

import inspect
from collections.abc import Callable

from .protocols import signature_of

PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
OWN = (int, float, str)  # types of defaults that may mean something else than NumPy's; False is None in NumPy
VARYING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Translation:
    """Translates the arguments of CuPy's f into those of NumPy's `key`. A parameter whose name NumPy
    lacks corresponds to the first NumPy parameter that CuPy lacks. Different defaults are passed
    explicitly. `trivial`: no translation is needed."""

    def __init__(self, f: Callable, key: Callable):
        self.name, self.theirs = f.__name__, inspect.signature(f)
        mine, others = self.theirs.parameters, signature_of(key).parameters
        if any([p.kind in VARYING for p in mine.values()]):
            self.trivial = True
            return
        alone = [n for n, p in others.items() if n not in mine and p.kind in PLACED]
        self.names = {n: n if n in others or not alone else alone.pop(0) for n in mine}
        self.more = {n for n in others if n not in self.names.values()}
        self.order = [n for n, p in others.items() if p.kind in PLACED]
        placed = [self.names[n] for n, p in mine.items() if p.kind in PLACED]
        alike = [a == b for a, b in zip(placed, self.order, strict=False)]
        self.defaults = {
            self.names[n]: p.default
            for n, p in mine.items()
            if self.names[n] in others
            and p.default
            and isinstance(p.default, OWN)
            and p.default != others[self.names[n]].default
        }
        # the number of positional arguments with the same meaning
        self.plain = 0 if self.defaults else [*alike, False].index(False)
        renamed = any([n != to and n in mine for n, to in self.names.items()])
        self.trivial = not renamed and not self.defaults and all(alike) and len(placed) <= len(self.order)

    def __call__(self, args: tuple, kwargs: dict) -> tuple[list, dict]:
        more = {n: v for n, v in kwargs.items() if n in self.more}  # above all `like=`
        try:
            bound = self.theirs.bind(*args, **{n: v for n, v in kwargs.items() if n not in more}).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}() {error}") from None
        given = {self.names[n]: v for n, v in bound.items()}
        named = {**more, **{n: v for n, v in self.defaults.items() if n not in given}}
        placed = []
        for n, v in given.items():
            if len(placed) < len(self.order) and self.order[len(placed)] == n:
                placed.append(v)
            else:
                named[n] = v
        return placed, named


def translation_of(f: Callable, key: Callable) -> Translation | None:
    """The translation, or None if both functions take the same parameters or their signatures are
    unknown."""
    try:
        found = Translation(f, key)
    except (TypeError, ValueError):
        return None
    return None if found.trivial else found
