"""Captured arrays become Variables for the length of one call, and hold plain data after it.

A `Shadow` rebuilds the user's function with other surroundings: each float array that the function can reach (closure cells,
globals, defaults, attributes, containers, and through helper functions reached the same way) is replaced by a Variable over
the same memory, which is copied at the first write and written back at the end; the names of NumPy, CuPy and SciPy mean their
twins in tapegrad.  Nothing of the user's is altered meanwhile, so threads do not see each other.

Globals are looked up when the code first asks for them (`Globals.__missing__`), so what a call does not reach costs nothing.
Everything that was replaced is remembered in `Shadow.seen` by identity, so that aliases stay aliases, cycles end, and values
that the function rebound (globals, nonlocals, attributes, members of lists and dicts) are handed back as plain ones.

Reading order: `Shadow.__call__` here (what becomes what); arrays.py, functions.py, containers.py and classes.py for the kinds of
objects; restore.py for what happens afterwards."""

import collections
import functools
import types
import weakref
from typing import Any

import numpy as np

from .._array import is_array
from .._primitive import OPEN
from .._tree import Const
from .._variable import Variable, View
from .arrays import Arrays, acts_as_array, memory_of
from .builtin import Module
from .classes import Classes
from .containers import Containers
from .functions import Functions
from .kinds import ATOMS, HELD, is_user_class, state_of
from .restore import restore, users_own


class Shadow(Arrays, Functions, Containers, Classes):
    """A context: `with Shadow(f, args, on) as (g, args)`, in which g is to be called once."""

    __slots__ = (
        "f",
        "args",
        "on",
        "seen",
        "hold",
        "arrays",
        "names",
        "cells",
        "attributes",
        "lists",
        "objects",
        "classes",
        "members",
        "bare",
        "generics",
        "memories",
        "strangers",
        "left",
        "borrowed",
        "__weakref__",
    )

    def __init__(self, f: Any, args: list, on: bool = True):
        if isinstance(f, Const):
            f, on = f.value, False
        self.f, self.args, self.on = f, args, on

    def __enter__(self):
        OPEN.depth = getattr(OPEN, "depth", 0) + 1
        if not self.on:
            return self.f, self.args
        self.seen: dict = {}  # id of what was replaced -> what it became
        self.hold: list = []  # keeps those objects alive, so that no id is given twice
        self.arrays: list = []  # (array, Variable)
        self.names: list = []  # (Globals, name, value, shadow)
        self.cells: list = []  # (cell, new cell, value, shadow)
        self.attributes: list = []  # (object, new namespace, name, value, shadow)
        self.lists: list = []  # (container, new container, its contents as they were made)
        self.objects: list = []  # (object, new object, its attributes as they were made)
        self.classes: dict = {}  # shadow class -> class
        self.members: list = []  # (class, shadow class, its bases, its members as they were made)
        self.bare: list = []  # (function, shadow), of functions without attributes
        self.generics: list = []  # functions made by singledispatch
        self.memories: dict = {}  # (id of an owner of memory, dtype, offset) -> Variable
        self.strangers: list = []  # (array, Variable) of which nobody knows the owner
        self.left: list = []  # objects that were left alone
        self.borrowed = False
        try:
            g = self(self.f)
            self.borrowed = True  # arguments are values: nothing is written back to them
            args = [self(a) for a in self.args]
            self.borrowed = False
            OPEN.shadows = (*getattr(OPEN, "shadows", ()), self)
            return g, args
        except BaseException as error:
            self.__exit__(type(error))
            raise

    def __exit__(self, *error):
        OPEN.depth -= 1
        OPEN.shadows = tuple([s for s in getattr(OPEN, "shadows", ()) if s is not self])
        if error and error[0] is not None:
            self.finish()

    def finish(self) -> None:
        """Hand back what the function wrote.  Records may hold captured memory: so only once the backward sweep is done, or
        after `release`."""
        if self.on:
            self.on = False
            restore(self)

    def settle(self, y: Any) -> Any:
        """The output of f, whose containers are of the user's classes again; Variables stay."""
        kind = type(y)
        if kind is Variable or kind is View or kind in ATOMS or not self.on:
            return y
        if kind in self.classes:
            users_own(y, self.classes[kind])
            for v in state_of(y).values():
                self.settle(v)
        if isinstance(y, (tuple, list)):
            for v in y:
                self.settle(v)
        elif isinstance(y, dict):
            for v in y.values():
                self.settle(v)
        return y

    def release(self, records: list) -> None:
        """Give records that outlive the call copies of their own of captured memory."""
        if not self.on or not self.arrays:
            return
        captured = {memory_of(array) for array, _ in self.arrays}

        def own(v):
            return v.copy(order="K") if is_array(v) and memory_of(v) in captured else v

        for k, r in enumerate(records):
            if any(is_array(v) and memory_of(v) in captured for v in r[4:]):
                records[k] = r[:4] + tuple([own(v) for v in r[4:]])
            elif type(r[5]) is list:
                r[5][:] = [own(v) for v in r[5]]

    # --- what becomes what ---

    def __call__(self, x: Any) -> Any:
        kind = type(x)
        if kind in ATOMS:
            return x
        found = self.seen.get(id(x))
        if found is not None:
            return found
        make = MAKERS.get(kind)
        if make is None:
            make = self.maker(x, kind)
            if make is None:
                return self.leave(x)
        new = make(self, x)
        if new is not x:
            self.seen[id(x)] = new
            self.hold.append(x)
        return new

    def leave(self, x: Any) -> Any:
        """An object that is neither replaced nor entered: what it leads to is found afterwards, if at all."""
        self.left.append(x)
        return x

    def maker(self, x: Any, kind: type) -> Any:
        """How an object of a kind that is not in the table is shadowed; None: left alone."""
        if isinstance(x, np.generic):
            return Shadow.itself
        if isinstance(x, np.ndarray):
            return Shadow.array if acts_as_array(kind) else None
        if is_array(x):
            return Shadow.array
        if isinstance(x, type):
            return Shadow.klass
        if hasattr(kind, "py_func") or (kind.__module__.startswith("numba") and hasattr(x, "py_func")):
            return Shadow.compiled
        if isinstance(x, np.ufunc):
            return Shadow.library
        for base, make in BY_BASE:
            if isinstance(x, base):
                return make
        if is_user_class(kind) or kind in HELD:
            return Shadow.instance
        if callable(x) and getattr(x, "__module__", None) and x.__module__.partition(".")[0] in ("numpy", "scipy", "cupy", "cupyx"):
            return Shadow.library
        return None

    def itself(self, x: Any) -> Any:
        return x


BY_BASE = (
    ((dict, list, set, collections.deque), Shadow.container),
    ((tuple, frozenset, int, float, complex, str, bytes), Shadow.fixed),
    ((weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet), Shadow.weak),
    (weakref.ref, Shadow.reference),
)
MAKERS = {
    np.ndarray: Shadow.array,
    Variable: Shadow.handle,
    View: Shadow.handle,
    types.FunctionType: lambda shadow, f: shadow.function(f),
    types.BuiltinFunctionType: Shadow.builtin,
    types.MethodWrapperType: Shadow.builtin,
    types.MethodType: Shadow.method,
    types.ModuleType: Shadow.module,
    Module: Shadow.scope,
    np.ufunc: Shadow.library,
    functools.partial: Shadow.partial,
    type(functools.lru_cache(len)): Shadow.cached,
    list: Shadow.list_,
    tuple: Shadow.tuple_,
    dict: Shadow.dict_,
    frozenset: Shadow.frozenset_,
    staticmethod: Shadow.member,
    classmethod: Shadow.member,
    property: Shadow.member,
    types.MappingProxyType: Shadow.proxy,
    Const: Shadow.const,
    type: Shadow.klass,
}
