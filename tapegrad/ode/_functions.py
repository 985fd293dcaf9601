"""The user's functions of one trajectory, as functions of its numbers that a kernel traces."""

import inspect
from collections.abc import Callable

import numpy as np

from .._core.errors import ArgumentError, ShapeError
from ..kernels.trace.surroundings import origin, rebuilt_with
from ._arguments import ArgumentLayout


def traced_number(g: Callable, state: ArgumentLayout) -> Callable:
    """Return an event function as (t, y, args) -> number, to be traced."""

    def number(t, y, args):
        found = np.asarray(g(t, state.restored(y.copy())[0], *args))
        if found.shape not in ((), (1,)):
            raise ShapeError(
                f"ode: the event {origin(g)} returned shape {tuple(found.shape)}; it returns one number"
            )
        return found.reshape(())

    return rebuilt_with(number, g)


def traced_states(f: Callable, state: ArgumentLayout, count: int, fills: bool) -> Callable:
    """Return a function to states as (t, y, args) -> (n,), to be traced."""

    def states(t, y, args):
        y = state.restored(y.copy())[0]
        if fills:
            filled = state.restored(np.zeros(state.count))[0]
            if f(filled, t, y, *args) is not None:
                refuse_result(f, count)
            found = filled
        else:
            found = f(t, y, *args)
        found = [np.asarray(x) for x in state.leaves_of(found)]
        if [x.shape for x in found] != state.shapes:
            refuse_shapes(f, [x.shape for x in found], state.shapes)
        return np.concatenate([x.reshape(-1) for x in found])

    return rebuilt_with(states, f)


def traced_matrix(g: Callable, state: ArgumentLayout, noises: int) -> Callable:
    """Return a diffusion of several noises as (t, y, args) -> (n, noises), to be traced."""

    def matrix(t, y, args):
        found = np.asarray(g(t, state.restored(y.copy())[0], *args))
        if found.shape != (state.count, noises):
            raise ShapeError(
                f"ode: {origin(g)} returned shape {found.shape}; with noises={noises} it is {state.count, noises}"
            )
        return found

    return rebuilt_with(matrix, g)


def refuse_shapes(f: Callable, found: list, expected: list) -> None:
    texts = [", ".join(map(str, shapes)) for shapes in (found, expected)]
    raise ShapeError(f"ode: {origin(f)} returned shape {texts[0]} for a state of shape {texts[1]}")


def refuse_result(f: Callable, count: int) -> None:
    raise ArgumentError(
        f"ode: {origin(f)} takes {3 + count} arguments, so it is called as f(dy, t, y, ...) and fills "
        "dy, yet it returned a value. If it is f(t, y, ...), the call lacks an argument: solve(y0, theta)"
    )


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
