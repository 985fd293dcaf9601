"""What a kernel function captured: globals, closure cells, defaults and attributes, as they were when it was traced.

They are constants of the compiled code.  So before each launch they are compared with what they are now: a kernel whose surroundings
have changed is traced anew, and one whose captured array is being written by a function under differentiation refuses, for the
derivative through that array would be lost."""

import functools
import types
from typing import Any

import numpy as np

from .._primitive import OPEN
from .._shadow import is_foreign
from ..errors import DroppedDerivativeError

ATOMS = (int, float, bool, complex, str, bytes, type(None), np.generic)
FIXED = (types.ModuleType, types.BuiltinFunctionType, types.FunctionType, types.MethodType, type, np.ufunc)
DEPTH = 4  # of containers in containers
ANYTHING = frozenset(("getattr", "vars", "__dict__", "attrgetter", "__getattribute__", "locals", "eval", "exec"))  # read by other names


class Same:
    """Equal to the same object only; keeps it alive, so that no other object has its place."""

    __slots__ = ("x",)

    def __init__(self, x: Any):
        self.x = x

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and self.x is other.x

    __hash__ = None


def fingerprint(x: Any, names: Any = None, depth: int = DEPTH) -> Any:
    """Equal for what leads to the same constants; of an object's attributes those in `names` count (None: all).

    >>> a = np.array([1.0, 2.0])
    >>> before = fingerprint({"scale": 2.0, "a": a})
    >>> a[0] = 3.0
    >>> fingerprint({"scale": 2.0, "a": a}) == before
    False
    """
    kind = type(x)
    if issubclass(kind, np.ndarray) and x.dtype != object:
        return kind, x.shape, x.dtype.str, x.tobytes()
    if issubclass(kind, ATOMS):
        return kind, repr(x)  # nan is equal to itself, and 0.0 is not -0.0
    if depth:
        if isinstance(x, (list, tuple)):
            return kind, [fingerprint(v, names, depth - 1) for v in x]
        if isinstance(x, dict):
            return kind, {Key(k): fingerprint(v, names, depth - 1) for k, v in x.items()}
        if not isinstance(x, FIXED) and (kind is types.SimpleNamespace or not is_foreign(kind.__module__)):
            read = reachable(kind, names)
            attributes = getattr(x, "__dict__", {}).items()
            return Same(x), {k: fingerprint(v, names, depth - 1) for k, v in attributes if read is None or k in read}
    return Same(x)


def words(code: types.CodeType) -> set[str]:
    """The names that a function's code uses, and its texts, which may be names for getattr."""
    found = {*code.co_names, *[c for c in code.co_consts if isinstance(c, str)]}
    return found.union(*[words(c) for c in code.co_consts if isinstance(c, types.CodeType)])


@functools.lru_cache(maxsize=64)
def reachable(kind: type, names: frozenset | None) -> set | None:
    """The names of attributes that code with these names may read of an object of this class, through its methods too; None: any.

    >>> class Model:
    ...     def loglik(self, theta, y):
    ...         return self.scaled(theta) * y
    ...     def scaled(self, theta):
    ...         return self.scale * theta
    ...     def plot(self):
    ...         return self.picture
    >>> found = reachable(Model, frozenset(words(Model.loglik.__code__)))
    >>> "scale" in found, "picture" in found
    (True, False)
    """
    if names is None or hasattr(kind, "__getattr__"):
        return None
    found, new = set(names), set(names)
    while new:
        if not ANYTHING.isdisjoint(new):
            return None
        more: set = set()
        for value in [c.__dict__[name] for name in new for c in kind.__mro__[:-1] if name in c.__dict__]:  # super() may ask for any
            inner = [getattr(value, a, None) for a in ("__func__", "fget", "func", "__wrapped__")]
            codes = [v.__code__ for v in (value, *inner) if isinstance(v, types.FunctionType)]
            if not codes and hasattr(type(value), "__get__"):
                return None
            for code in codes:
                more |= words(code)
        new = more - found
        found |= new
    return found


class Key:
    """A key of a dict by its text."""

    def __init__(self, k: Any):
        self.text = repr(k)

    def __eq__(self, other: object) -> bool:
        return type(other) is Key and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


class Captured:
    """What one trace captured."""

    def __init__(self) -> None:
        self.names: list = []  # (namespace, name, value)
        self.cells: list = []  # (cell, value)
        self.values: list = []  # all values that may change in place
        self.codes: list = []  # of the functions that ran
        self.read: frozenset = frozenset()  # the names in them
        self.arrays: list = []  # of these, with what they held
        self.prints: list = []

    def name(self, space: dict, name: str, value: Any) -> None:
        if not isinstance(value, types.ModuleType):
            self.names.append((space, name, value))
            self.hold(value)

    def cell(self, cell: Any, value: Any) -> None:
        self.cells.append((cell, value))
        self.hold(value)

    def hold(self, value: Any) -> None:
        inside = issubclass(type(value), (np.ndarray, list, tuple, dict, types.SimpleNamespace))
        if isinstance(value, (*ATOMS, *FIXED)) or (is_foreign(type(value).__module__) and not inside):
            return
        steady = type(value) is tuple and all(isinstance(v, (*ATOMS, *FIXED)) for v in value)
        if not steady and not any(value is v for v in self.values):
            self.values.append(value)

    def settle(self, kernel: str) -> None:
        """The trace is done: what the function itself did to lists of its own is part of it."""
        self.refuse_written(kernel)
        self.arrays = [(v, v.shape, v.tobytes()) for v in self.values if type(v) is np.ndarray and v.dtype != object]
        self.read = frozenset().union(*[words(code) for code in self.codes])
        rest = [v for v in self.values if type(v) is not np.ndarray or v.dtype == object]
        self.prints = [(v, fingerprint(v, self.read)) for v in rest]

    def changed(self) -> bool:
        """Is anything another than it was?"""
        for space, name, value in self.names:
            if space.get(name, self) is not value and fingerprint(space.get(name, self)) != fingerprint(value):
                return True
        for cell, value in self.cells:
            try:
                now = cell.cell_contents
            except ValueError:
                return True
            if now is not value and fingerprint(now) != fingerprint(value):
                return True
        for array, shape, content in self.arrays:
            if array.shape != shape or array.tobytes() != content:
                return True
        for value, before in self.prints:
            if fingerprint(value, self.read) != before:
                return True
        return False

    def refuse_written(self, kernel: str) -> None:
        """Raises DroppedDerivativeError where an open transform has written, or holds in another place, an array captured here."""
        for shadow in getattr(OPEN, "shadows", ()):
            for x in self.values:
                stand_in = shadow.seen.get(id(x)) if isinstance(x, np.ndarray) else None
                if getattr(stand_in, "_version", 0):
                    raise DroppedDerivativeError(
                        f"the kernel {kernel} captures an array of shape {x.shape} that the function under differentiation has written. "
                        "What a kernel captures is constant: pass the array as data or as parameters of the kernel"
                    )
