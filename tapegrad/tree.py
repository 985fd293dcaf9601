"""Trees of arrays, as every transform sees them.

A tree is a nesting of tuples, lists, dicts, named tuples, dataclasses, attrs classes and classes of
`tapegrad.register_tree`. Everything else is a leaf, None included. The functions serve updates written for
one array, for example those of an optimiser, on whole trees of parameters.
"""

from collections.abc import Callable
from typing import Any

from ._core.errors import ArgumentError
from ._core.trees import leaves, paths, tree_map, with_leaves

__all__ = ["flatten", "leaves_with_paths", "map"]


def map(f: Callable, tree: Any, *rest: Any) -> Any:
    """Apply a function to each leaf.

    Parameters
    ----------
    f : callable
        ``f(leaf, *others)``. `others` are the leaves at the same place in `rest`.
    tree : tree
        Gives the structure of the result.
    *rest : trees
        Trees of the same structure.

    Returns
    -------
    tree
        A tree like `tree` of the results.

    Raises
    ------
    ArgumentError
        If a further tree has another structure.

    See Also
    --------
    tapegrad.ravel : One flat vector for a whole tree.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> p = {"slope": np.array([1.0, 2.0]), "shift": 0.5}
    >>> g = tg.grad(lambda p: (p["slope"] ** 2).sum() + p["shift"])(p)
    >>> tg.tree.map(lambda a, b: a - 0.1 * b, p, g)
    {'slope': array([0.8, 1.6]), 'shift': np.float64(0.4)}
    """
    return tree_map(f, tree, *rest)


def flatten(tree: Any) -> tuple[list, Callable[[Any], Any]]:
    """Return the leaves of a tree, and a function that rebuilds the tree.

    Parameters
    ----------
    tree : tree
        Any nesting of containers.

    Returns
    -------
    leaves : list
        In the order of `leaves_with_paths`.
    unflatten : callable
        ``unflatten(leaves)`` returns a tree of the same structure. It raises `ArgumentError` for another
        number of leaves.

    See Also
    --------
    tapegrad.ravel : One flat vector.

    Examples
    --------
    >>> import tapegrad as tg
    >>> leaves, unflatten = tg.tree.flatten({"a": 1.0, "b": (2.0, 3.0)})
    >>> leaves
    [1.0, 2.0, 3.0]
    >>> unflatten([10.0, 20.0, 30.0])
    {'a': 10.0, 'b': (20.0, 30.0)}
    """
    found = leaves(tree)

    def unflatten(members: Any) -> Any:
        members = list(members)
        if len(members) != len(found):
            raise ArgumentError(f"unflatten: the tree has {len(found)} leaves, got {len(members)}")
        return with_leaves(tree, iter(members))

    return found, unflatten


def leaves_with_paths(tree: Any) -> list[tuple[str, Any]]:
    """Return each leaf with the text of its access path.

    Parameters
    ----------
    tree : tree
        Any nesting of containers.

    Returns
    -------
    list of (str, object)
        The path is what Python code appends to the tree's name.

    See Also
    --------
    flatten : The leaves alone.

    Examples
    --------
    >>> import tapegrad as tg
    >>> tg.tree.leaves_with_paths({"a": 1.0, "b": (2.0, 3.0)})
    [("['a']", 1.0), ("['b'][0]", 2.0), ("['b'][1]", 3.0)]
    """
    return list(zip(paths(tree), leaves(tree), strict=True))
