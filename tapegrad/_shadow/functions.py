"""Functions rebuilt with other surroundings: their globals, cells, defaults, and the modules that they name."""

import functools
import types
from typing import Any

from .. import _twins
from .._primitive import is_tracked, plain
from .kinds import EMPTY, is_foreign


class Globals(dict):
    """The globals of rebuilt functions of one module: each name is looked up in the module and shadowed at its first use."""

    __slots__ = ("real", "shadow")

    def __init__(self, real, shadow):
        super().__init__()
        self.real, self.shadow = real, shadow

    def __missing__(self, name):
        value = self.real[name]
        if self.shadow is None:  # the call has ended; this function leaked out of it
            return value
        new = self.shadow(value)
        dict.__setitem__(self, name, new)
        self.shadow.names.append((self, name, value, new))
        return new


class Module:
    """A user's module seen from a rebuilt function."""

    def __init__(self, real, shadow):
        self.__dict__.update(_tg_real=real, _tg_shadow=shadow)

    def __getattr__(self, name):
        value = getattr(self._tg_real, name)
        shadow = self._tg_shadow
        if shadow.seen is None:
            return value
        new = shadow(value)
        self.__dict__[name] = new
        shadow.attributes.append((self._tg_real, self.__dict__, name, value, new))
        return new


class Functions:
    """The part of a `Shadow` that replaces functions, whatever wraps them, and modules."""

    __slots__ = ()

    def function(self, f: Any) -> Any:
        space = f.__globals__
        closure = f.__closure__
        if "remake" in f.__dict__ and space.get("__name__") == "tapegrad._transforms":
            g = self(f.of)
            return f if g is f.of else f.remake(g)
        twin = _twins.function(f)
        if twin is not None:
            return twin
        if type(space) is not Globals and is_foreign(space.get("__name__")) and not f.__code__.co_filename.startswith("<doctest"):
            return self.library(f)
        mine = self.globals_of(space)
        if mine is space and not closure:
            return f
        g = types.FunctionType(f.__code__, mine, f.__name__, None, closure and tuple([self.cell(c) for c in closure]))
        self.seen[id(f)] = g  # before the cells are filled: a function may capture itself
        self.hold.append(f)
        for c in closure or ():
            self.fill(c)
        if f.__defaults__:
            g.__defaults__ = tuple([self(d) for d in f.__defaults__])
        if f.__kwdefaults__:
            g.__kwdefaults__ = {k: self(d) for k, d in f.__kwdefaults__.items()}
        g.__qualname__, g.__module__ = f.__qualname__, f.__module__
        if f.__dict__:
            g.__dict__.update({k: v for k, v in f.__dict__.items() if k != "__wrapped__"})
        return g

    def globals_of(self, space: dict) -> dict:
        if type(space) is Globals:  # rebuilt already for an outer transform; its closure may have captured since
            return space
        mine = self.seen.get(id(space))
        if mine is None:
            mine = self.seen[id(space)] = Globals(space, self)
            self.hold.append(space)
        return mine

    def cell(self, c: Any) -> Any:
        new = self.seen.get(id(c))
        if new is None:
            new = self.seen[id(c)] = types.CellType()
            self.hold.append(c)
        return new

    def fill(self, c: Any) -> None:
        new = self.seen[id(c)]
        try:
            value = c.cell_contents
        except ValueError:  # empty yet
            if not any(n is new for _, n, _, _ in self.cells):
                self.cells.append((c, new, EMPTY, EMPTY))
            return
        try:
            new.cell_contents  # noqa: B018
        except ValueError:
            shadow = self(value)
            new.cell_contents = shadow
            self.cells.append((c, new, value, shadow))

    def method(self, m: Any) -> Any:
        owner = self(m.__self__)
        f = self(m.__func__)
        return m if owner is m.__self__ and f is m.__func__ else types.MethodType(f, owner)

    def partial(self, p: Any) -> Any:
        return functools.partial(self(p.func), *[self(a) for a in p.args], **{k: self(v) for k, v in p.keywords.items()})

    def cached(self, c: Any) -> Any:
        """lru_cache would keep Variables from one call to the next."""
        return self(c.__wrapped__)

    def compiled(self, d: Any) -> Any:
        """An @njit function: on tracked values it runs as its Python function."""

        def call(*args, **kwargs):
            if any(is_tracked(a) for a in args) or any(is_tracked(a) for a in kwargs.values()):
                return self(d.py_func)(*args, **kwargs)
            return d(*[plain(a) for a in args], **{k: plain(a) for k, a in kwargs.items()})

        return call

    def const(self, c: Any) -> Any:
        return c.value

    def module(self, m: Any) -> Any:
        twin = _twins.module(m)
        if twin is not None:
            return twin
        return m if is_foreign(m.__name__) else Module(m, self)

    def library(self, f: Any) -> Any:
        return _twins.function(f) or f
