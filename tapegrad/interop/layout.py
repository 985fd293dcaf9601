"""How a flat list of arrays becomes the arguments of a user's function."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import tree


def is_inexact(x: Any) -> bool:
    """Is x a real or complex floating-point array or number?"""
    return np.dtype(getattr(x, "dtype", type(x) if isinstance(x, (float, complex)) else object)).kind in "fc"


class Layout:
    """The places of arrays, called operands, in argument trees.

    Parameters
    ----------
    args : sequence of trees
        The arguments of a call.
    is_operand : callable
        Whether a leaf is an operand. The other leaves stay as they are.
    """

    def __init__(self, args: Sequence[Any], is_operand: Callable[[Any], bool]):
        leaves, self._unflatten = tree.flatten(tuple([tree.map(lambda x: None, a) for a in args]))
        given = tree.flatten(tuple(args))[0]
        self._static = [None if is_operand(x) else x for x in given]
        self._places = [k for k, x in enumerate(given) if is_operand(x)]
        owners = [n for n, a in enumerate(args) for _ in tree.flatten(a)[0]]
        self.owners = [owners[k] for k in self._places]  # the argument of each operand
        self.count = len(self._places)

    def arranged(self, operands: Sequence[Any], static: bool = True) -> tuple:
        """The argument trees that hold these operands. `static`: with the other leaves, else None there."""
        leaves = list(self._static) if static else [None] * len(self._static)
        for k, x in zip(self._places, operands, strict=True):
            leaves[k] = x
        args: tuple = self._unflatten(leaves)
        return args

    def operands_of(self, trees: dict[int, Any], wanted: Sequence[int]) -> tuple:
        """The wanted operands, from trees by argument. None where a tree holds none."""
        leaves: list = []
        for n, a in enumerate(self._unflatten([None] * len(self._static))):
            size = len(tree.flatten(a)[0])
            leaves += [None] * size if trees.get(n) is None else tree.flatten(trees[n])[0]
        return tuple([leaves[self._places[k]] for k in wanted])
