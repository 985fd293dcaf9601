"""The functions of flat arrays that derivatives of a user's function need: its pullback, its tangent map, and
its batched form.

Transforms follow the code of this module as if it were the user's (`_capture.kinds.OWN`). So the user's
function is followed also where several transforms are nested, and its captured buffers are right.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import tree
from .._core.trees import Const
from .._transforms.products import jvp, vjp
from .._transforms.vmap import vmap
from .layout import Layout, is_inexact


def evaluate(z: dict) -> Any:
    """The value of z["f"], a function of several arguments. Those in z["moved"] have derivatives."""
    args = list(z["fixed"])
    for place, x in zip(z["places"], z["moved"], strict=True):
        args[place] = x
    return z["f"](*args)


def point(
    f: Callable, layout: Layout, operands: Sequence[Any], active: Sequence[int]
) -> tuple[dict, list[int]]:
    """The argument of `evaluate`, and the places of the arguments that hold active operands."""
    args, places = layout.arranged(operands), sorted({layout.owners[k] for k in active})
    fixed = [None if n in places else a for n, a in enumerate(args)]
    return {
        "f": f,
        "moved": [args[n] for n in places],
        "places": Const(places),
        "fixed": Const(fixed),
    }, places


def linearized(
    f: Callable, layout: Layout, operands: Sequence[Any], wanted: tuple[int, ...]
) -> tuple[Any, Callable]:
    """The result of f, and the pullback to the wanted operands: from cotangents of the inexact results."""
    z, places = point(f, layout, operands, wanted)
    y, pull = vjp(evaluate, z)
    leaves, unflatten = tree.flatten(y)
    inexact = [is_inexact(r) for r in leaves]

    def pulled(cotangents: Sequence[Any]) -> tuple:
        left = iter(cotangents)
        found = pull(unflatten([next(left) if d else None for d in inexact]))["moved"]
        return layout.operands_of(dict(zip(places, found, strict=True)), wanted)

    return y, pulled


def pullback(f: Callable, layout: Layout, wanted: tuple[int, ...], transposed: bool) -> Callable:
    """The cotangents of the wanted operands, from the operands and cotangents of the inexact results.

    `transposed`: by the transpose of the Jacobian, else by its conjugate transpose."""
    n = layout.count
    conjugated = np.conj if transposed else lambda x: x

    def run(*xs: Any) -> tuple:
        found = linearized(f, layout, xs[:n], wanted)[1]([conjugated(w) for w in xs[n:]])
        return tuple([conjugated(c) for c in found])

    return run


def tangent(f: Callable, layout: Layout, active: tuple[int, ...]) -> Callable:
    """The tangents of the inexact results, from the operands and the tangents of the active ones."""
    n = layout.count

    def run(*xs: Any) -> tuple:
        z, places = point(f, layout, xs[:n], active)
        moved = dict(zip(active, xs[n:], strict=True))
        given = [moved.get(k, np.zeros_like(x) if is_inexact(x) else None) for k, x in enumerate(xs[:n])]
        args = layout.arranged(given, static=False)
        y, dy = jvp(
            evaluate, (z,), ({"f": None, "moved": [args[k] for k in places], "places": None, "fixed": None},)
        )
        return tuple(
            [t for r, t in zip(tree.flatten(y)[0], tree.flatten(dy)[0], strict=True) if is_inexact(r)]
        )

    return run


def batched(f: Callable, layout: Layout, mapped: tuple[bool, ...]) -> Callable:
    """The result for all samples, stacked along axis 0, as are the mapped operands."""
    axes = list(layout.arranged([0 if m else None for m in mapped], static=False))
    at = {"f": None, "moved": axes, "places": None, "fixed": None}

    def run(*xs: Any) -> Any:
        args = list(layout.arranged(xs))
        z = {
            "f": f,
            "moved": args,
            "places": Const(list(range(len(args)))),
            "fixed": Const([None] * len(args)),
        }
        return vmap(evaluate, in_axes=(at,))(z)

    return run
