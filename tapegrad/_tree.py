"""Trees of arrays: tuples, lists, dicts, named tuples and dataclasses, nested; the `Const` mark."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ._variable import Variable, View

LEAVES = frozenset((np.ndarray, np.float64, float, int, complex, Variable, View))  # the usual ones, told at once


class Const:
    """No derivative wanted: no record, no shadow, no adjoint.  The function gets the object itself.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x, data: (x * data).sum())(np.ones(2), tg.Const(np.array([3.0, 4.0])))
    array([3., 4.])
    """

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Const({self.value!r})"


def is_node(x: Any) -> bool:
    """Does x hold members?"""
    kind = type(x)  # what isinstance would ask of a Variable costs more
    return kind not in LEAVES and (issubclass(kind, (tuple, list, dict)) or hasattr(kind, "__dataclass_fields__"))


def children(x: Any) -> list:
    if isinstance(x, dict):
        return list(x.values())
    if isinstance(x, (tuple, list)):
        return list(x)
    return [getattr(x, f.name) for f in dataclasses.fields(x)]


def rebuilt(x: Any, members: list) -> Any:
    """A node like x with other members.  A dataclass is made without calling its `__init__`."""
    if isinstance(x, dict):
        return type(x)(zip(x, members, strict=True)) if type(x) is dict else _like_dict(x, members)
    if isinstance(x, tuple):
        return type(x)(*members) if hasattr(x, "_fields") else type(x)(members)
    if isinstance(x, list):
        return type(x)(members)
    y = object.__new__(type(x))
    if hasattr(x, "__dict__"):
        y.__dict__.update(x.__dict__)
    for f, m in zip(dataclasses.fields(x), members, strict=True):
        object.__setattr__(y, f.name, m)
    return y


def _like_dict(x: dict, members: list) -> dict:
    y = x.copy()
    y.update(zip(list(x), members, strict=True))
    return y


def tree_map(f: Callable, x: Any, *rest: Any) -> Any:
    """f of each leaf (and of the leaves at the same place in further trees), in the tree of x."""
    if is_node(x):
        others = [children(r) for r in rest]
        return rebuilt(x, [tree_map(f, c, *[o[i] for o in others]) for i, c in enumerate(children(x))])
    return f(x, *rest)


def leaves(x: Any) -> list:
    if not is_node(x):
        return [x]
    found: list = []
    for c in children(x):
        if type(c) in LEAVES:
            found.append(c)
        else:
            found += leaves(c)
    return found


def filled(x: Any, members: Iterator) -> Any:
    """The tree of x with other leaves, in the order of `leaves`; None for what x holds beyond them."""
    if not is_node(x):
        return next(members, None)
    return rebuilt(x, [next(members, None) if type(c) in LEAVES else filled(c, members) for c in children(x)])


def is_builtin(x: Any) -> bool:
    """Are all nodes of this tree tuples, lists and dicts, and not of other classes?"""
    kind = type(x)
    if kind is dict or kind is list or kind is tuple:
        return all([type(c) in LEAVES or is_builtin(c) for c in (x.values() if kind is dict else x)])
    return not is_node(x)


def structure(x: Any) -> str:
    """A short text of the tree, for messages."""
    if isinstance(x, dict):
        return "{" + ", ".join(f"{k!r}: {structure(v)}" for k, v in x.items()) + "}"
    if is_node(x):
        return type(x).__name__ + "(" + ", ".join(structure(c) for c in children(x)) + ")"
    s, kind = getattr(x, "shape", None), x.__class__.__name__  # of a Variable the class that it stands for
    return kind if s is None or s == () else f"{kind}{s}"
