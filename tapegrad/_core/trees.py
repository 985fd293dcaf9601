"""Trees of arrays: nested tuples, lists, dicts, named tuples, dataclasses, attrs classes and registered
classes; and the mark `Const`."""

import copy
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from .errors import ArgumentError
from .typing import AnyDict, AnyFunction, AnyList, AnyTuple
from .variable import HANDLES, SUBARRAYS, Subarray, Variable

# the usual ones, recognised without a search
LEAVES = frozenset((np.ndarray, np.float64, float, int, complex, *HANDLES))


def tuple_of(x: Any) -> AnyTuple:
    return x if isinstance(x, tuple) else (x,)


class Const:
    """Mark an argument or a function as constant: no derivative, no records.

    Parameters
    ----------
    value : object
        An argument, which the function then gets itself; or a function, whose captured objects are then
        constants.

    See Also
    --------
    value : Drops the derivative of a tracked value inside a function.

    Examples
    --------
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


def nested(f: AnyFunction) -> AnyFunction:
    """f of one object, as a function that maps it over lists, tuples and dicts as well."""

    @functools.wraps(f)
    def run(x: Any) -> Any:
        kind = type(x)
        if kind is list or kind is tuple:
            return kind([run(v) for v in x])
        return {k: run(v) for k, v in x.items()} if kind is dict else f(x)

    return run


REGISTERED: AnyDict = {}  # class -> (flatten, unflatten)
# in a shadow class: the class that it stands for (`typing` does not count a name with _abc_ as a member
# of a protocol)
REAL = "_abc_tapegrad_real"
T = TypeVar("T")
R = TypeVar("R")


def register_tree(
    cls: type[T], flatten: Callable[[T], tuple[Sequence[object], R]], unflatten: Callable[[R, list[Any]], T]
) -> None:
    """Register a class whose instances are trees in every transform.

    Tuples, lists, dicts, dataclasses and classes of attrs are trees without registration. Subclasses are
    registered by themselves.

    Parameters
    ----------
    cls : type
        The class.
    flatten : callable
        ``flatten(x)`` returns (members, rest): a sequence of members, and whatever else rebuilds x.
    unflatten : callable
        ``unflatten(rest, members)`` returns an instance. Members may be tracked values, trees of them, and in
        gradients None where a member has no derivative. So it must not inspect them.

    Raises
    ------
    ArgumentError
        If `cls` is not a class, or its instances are trees or leaves already.

    See Also
    --------
    ravel : A tree as one vector.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> class Line:
    ...     def __init__(self, slope, name):
    ...         self.slope, self.name = slope, name
    >>> tg.register_tree(Line, lambda x: ((x.slope,), x.name), lambda name, members: Line(*members, name))
    >>> g = tg.grad(lambda line: line.slope ** 2)(Line(3.0, "a"))
    >>> g.slope, g.name
    (np.float64(6.0), 'a')
    """
    if not isinstance(cls, type):
        raise ArgumentError(
            f"register_tree: {cls!r} is not a class; give the class, register_tree(type(x), ..)"
        )
    if issubclass(cls, (tuple, list, dict)) or issubclass(
        cls, (np.ndarray, np.generic, float, int, complex, str, Variable)
    ):
        raise ArgumentError(
            f"register_tree: {cls.__name__} is a tree or a leaf already, and so are its subclasses"
        )
    if not (callable(flatten) and callable(unflatten)):
        raise ArgumentError(
            f"register_tree({cls.__name__}): give two functions, flatten(x) and unflatten(rest, members)"
        )
    REGISTERED[cls] = flatten, unflatten


def is_node(x: Any) -> bool:
    """Does x have members?"""
    kind = type(x)  # `isinstance` costs more for a Variable
    return kind not in LEAVES and (
        issubclass(kind, (tuple, list, dict))
        or hasattr(kind, "__dataclass_fields__")
        or hasattr(kind, "__attrs_attrs__")
        or issubclass(kind, Subarray)
        or flattening_of(kind) is not None
    )


def fields_of(x: Any) -> AnyList:
    """The names of the fields of a dataclass, an attrs class or a subarray."""
    kind = type(x)
    if issubclass(kind, Subarray):
        return ["_array"]
    return [
        f.name for f in (kind.__attrs_attrs__ if hasattr(kind, "__attrs_attrs__") else dataclasses.fields(x))
    ]


def flattening_of(kind: type) -> AnyTuple | None:
    """(flatten, unflatten) of a registered class, or of its shadow class."""
    if not REGISTERED:
        return None
    return REGISTERED.get(original_class(kind))


def flattened(x: Any) -> AnyTuple:
    """(members, rest, unflatten) of a registered object."""
    ways = flattening_of(type(x))
    assert ways is not None
    found = ways[0](x)
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], (tuple, list))):
        raise ArgumentError(
            f"register_tree({type(x).__name__}): flatten(x) must give (members, rest), members in a tuple; "
            f"got {found!r}"
        )
    return *found, ways[1]


def children(x: Any) -> AnyList:
    if isinstance(x, dict):
        return list(x.values())
    if isinstance(x, (tuple, list)):
        return list(x)
    if flattening_of(type(x)) is not None:
        return list(flattened(x)[0])
    return [getattr(x, name) for name in fields_of(x)]


def rebuilt(x: Any, members: AnyList) -> Any:
    """A node like x with other members. A dataclass or attrs class is made without a call of `__init__`."""
    if isinstance(x, dict):
        return type(x)(zip(x, members, strict=True)) if type(x) is dict else _like_dict(x, members)
    if isinstance(x, tuple) and hasattr(x, "_fields"):  # (SciPy's have attributes beside the fields)
        named: Any = tuple.__new__(type(x), members)
        getattr(named, "__dict__", {}).update(getattr(x, "__dict__", {}))
        return named
    if isinstance(x, (tuple, list)):
        return type(x)(members)
    if flattening_of(type(x)) is not None:
        _, rest, unflatten = flattened(x)
        return unflatten(rest, members)
    y = object.__new__(type(x))
    if hasattr(x, "__dict__"):
        y.__dict__.update(x.__dict__)
    for name, m in zip(fields_of(x), members, strict=True):
        object.__setattr__(y, name, m)
    return y


def without_subarrays(x: Any) -> Any:
    """A tree with the arrays of its subarrays."""
    if not SUBARRAYS or not is_node(x):
        return x
    members = [without_subarrays(m) for m in children(x)]
    if issubclass(type(x), Subarray):
        return members[0]
    return x if all(map(operator.is_, members, children(x))) else rebuilt(x, members)


def _like_dict(x: AnyDict, members: AnyList) -> AnyDict:
    y = copy.copy(x)  # (`x.copy()` of a subclass may return a dict)
    y.update(zip(list(x), members, strict=True))
    return y


def members_like(x: Any, other: Any) -> AnyList | None:
    """The members of `other` in the order of those of the node x: by key in dicts, else by position. None
    if `other` has a different tree.

    Tuples and lists are interchangeable. A named tuple needs the same field names, any other object
    the same class."""
    if isinstance(x, dict):
        return [other[k] for k in x] if isinstance(other, dict) and other.keys() == x.keys() else None
    if isinstance(x, (tuple, list)):
        fields = getattr(x, "_fields", None)
        alike = isinstance(other, (tuple, list)) and len(other) == len(x)
        return (
            list(other) if alike and (fields is None or getattr(other, "_fields", fields) == fields) else None
        )
    if original_class(type(x)) is not original_class(type(other)):
        return None
    if flattening_of(type(x)) is None:
        return children(other)
    (mine, rest, _), (members, its, _) = flattened(x), flattened(other)
    return list(members) if len(members) == len(mine) and AuxiliaryData(rest) == AuxiliaryData(its) else None


def original_class(kind: type) -> type:
    """The class itself, or the class that a shadow class stands for."""
    found: type = type.__dict__["__dict__"].__get__(kind).get(REAL, kind)
    return found


class AuxiliaryData:
    """The remainder of a registered object beside its members, comparable with ==."""

    __slots__ = ("held",)

    def __init__(self, held: Any):
        self.held = held

    def __eq__(self, other: object) -> bool:
        if type(other) is not AuxiliaryData:
            return False
        a, b = self.held, other.held
        try:
            return a is b or bool(np.all(a == b))
        except Exception:  # an array inside a tuple, or a class whose == raises
            return (
                type(a) is type(b)
                and len(leaves(a)) == len(leaves(b))
                and all(map(np.array_equal, leaves(a), leaves(b)))
            )

    __hash__ = None  # type: ignore[assignment]


def tree_map(f: AnyFunction, x: Any, *rest: Any) -> Any:
    """Apply f to each leaf, together with the leaves at the same place in further trees. Returns a tree
    like x."""
    if is_node(x):
        if not rest:
            return rebuilt(x, [f(c) if type(c) in LEAVES else tree_map(f, c) for c in children(x)])
        others: Any = [members_like(x, r) for r in rest]
        if None in others:
            raise ArgumentError(
                f"the trees {describe_tree(x)} and {describe_tree(rest[others.index(None)])} are not alike"
            )
        return rebuilt(x, [tree_map(f, c, *[o[i] for o in others]) for i, c in enumerate(children(x))])
    return f(x, *rest)


def steps(x: Any) -> AnyList:
    """The access text of each member of a node: `['a']`, `[0]` or `.name`."""
    if isinstance(x, dict):
        return [f"[{k!r}]" for k in x]
    if hasattr(x, "_fields") or not isinstance(x, (tuple, list)) and flattening_of(type(x)) is None:
        return [f".{name}" for name in (x._fields if isinstance(x, tuple) else fields_of(x))]  # type: ignore[attr-defined]
    return [f"[{n}]" for n in range(len(children(x)))]


def paths(x: Any, path: str = "") -> AnyList:
    """The access paths of the leaves, in the order of `leaves`."""
    if not is_node(x):
        return [path]
    return [p for c, step in zip(children(x), steps(x), strict=True) for p in paths(c, path + step)]


def leaves(x: Any) -> AnyList:
    if not is_node(x):
        return [x]
    found: AnyList = []
    for c in children(x):
        if type(c) in LEAVES:
            found.append(c)
        else:
            found += leaves(c)
    return found


def with_leaves(x: Any, members: Iterator[Any]) -> Any:
    """The tree of x with other leaves, in the order of `leaves`; None for surplus leaves of x."""
    if not is_node(x):
        return next(members, None)
    return rebuilt(
        x, [next(members, None) if type(c) in LEAVES else with_leaves(c, members) for c in children(x)]
    )


def is_builtin(x: Any) -> bool:
    """Are all nodes of this tree plain tuples, lists and dicts?"""
    kind = type(x)
    if kind is dict or kind is list or kind is tuple:
        return all([type(c) in LEAVES or is_builtin(c) for c in (x.values() if kind is dict else x)])
    return not is_node(x)


def describe_tree(x: Any) -> str:
    """A short description of the tree, for messages."""
    if isinstance(x, dict):
        return "{" + ", ".join(f"{k!r}: {describe_tree(v)}" for k, v in x.items()) + "}"
    if is_node(x):
        return type(x).__name__ + "(" + ", ".join(describe_tree(c) for c in children(x)) + ")"
    s, kind = getattr(x, "shape", None), x.__class__.__name__  # for a Variable: the class that it stands for
    return kind if s is None or s == () else f"{kind}{s}"
