"""The user's functions of one trajectory, as functions of its numbers that a kernel traces."""

import inspect
from collections.abc import Callable

from .. import numpy as np
from .._core.errors import ArgumentError, ShapeError
from ..kernels.trace.branches import branching
from ..kernels.trace.surroundings import origin, rebuilt_with
from ._arguments import ArgumentLayout


def on_all_paths(once: Callable, users: Callable) -> Callable:
    """Return a function that calls one of the user, whose Python branches are choices in a kernel."""
    rebuilt_with(once, users)
    return rebuilt_with(lambda *args: branching(lambda: once(*args)), users)


def traced_array(g: Callable, state: ArgumentLayout, shapes: tuple, text: str) -> Callable:
    """Return a function as (t, y, args) -> array of the first of these shapes, to be traced.

    `text` is the error for another shape."""

    def once(t, y, args):
        found = np.asarray(g(t, state.restored(y.copy())[0], *args))
        if found.shape not in shapes:
            raise ShapeError(f"ode: {text.format(origin(g), tuple(found.shape))}")
        return found.reshape(shapes[0])

    return on_all_paths(once, g)


def traced_states(f: Callable, state: ArgumentLayout, count: int, fills: bool) -> Callable:
    """Return a function to states as (t, y, args) -> (n,), to be traced."""

    def once(t, y, args):
        y = state.restored(y.copy())[0]
        if fills:
            filled = state.restored(np.zeros(state.count))[0]
            if f(filled, t, y, *args) is not None:
                raise ArgumentError(
                    f"ode: {origin(f)} takes {3 + count} arguments, so it is called as f(dy, t, y, ...) and "
                    "fills dy, yet it returned a value. If it is f(t, y, ...), the call lacks an argument: "
                    "solve(y0, theta)"
                )
            found = filled
        else:
            found = f(t, y, *args)
        found = [np.asarray(x) for x in state.leaves_of(found)]
        shapes = tuple([x.shape for x in found])
        if shapes != state.shapes:
            texts = [", ".join(map(str, some)) for some in (shapes, state.shapes)]
            raise ShapeError(f"ode: {origin(f)} returned shape {texts[0]} for a state of shape {texts[1]}")
        return np.concatenate([x.reshape(-1) for x in found])

    return on_all_paths(once, f)


def fills_first(f: Callable, count: int) -> bool:
    """Return whether f is f(dy, t, y, ...), which fills dy, and not f(t, y, ...)."""
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return False
    for given, found in ((2 + count, False), (3 + count, True)):
        try:
            signature.bind(*[None] * given)
        except TypeError:
            continue
        return found
    raise ArgumentError(
        f"ode: {origin(f)} takes neither (t, y) nor (dy, t, y), followed by the {count} arguments of the call"
    )
