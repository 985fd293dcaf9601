"""A function of tapegrad as another library calls it: of a flat list of arrays.

The pullback, the tangent map and the batched form of a `HostFunction` are `HostFunction`s, so derivatives of
any order need no more. Each is made once for each choice of operands: libraries that keep compiled programs
by identity find it again.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import tree
from .._core.foreign import library_of
from .._transforms.custom_rule import rule
from . import derived
from .layout import Layout, is_inexact


@contextmanager
def captured_named(f: Callable) -> Iterator[None]:
    """A block that runs f. To its errors it adds which tensors of other libraries f has captured."""
    try:
        yield
    except Exception as error:
        for name, x in captured_tensors(f):
            error.add_note(
                f"{getattr(f, '__name__', 'the function')} captured {name}, a {type(x).__name__} of "
                f"{library_of(type(x))}. Here it computes with arrays: pass {name} as an argument, which "
                "keeps its derivative, or capture its numbers as an array"
            )
        raise


def captured_tensors(f: Callable) -> list[tuple[str, Any]]:
    """The names and values that f reads from around it and that are tensors of the other libraries."""
    if not inspect.isfunction(f):
        return []
    found = inspect.getclosurevars(f)
    return [
        (name, x)
        for name, x in {**found.globals, **found.nonlocals}.items()
        if hasattr(x, "dtype") and library_of(type(x)) in ("torch", "jax", "jaxlib", "pytensor")
    ]


class HostFunction:
    """A function of flat arrays.

    Parameters
    ----------
    f : callable
        Takes argument trees.
    layout : Layout
        The places of the operands in the arguments.
    """

    def __init__(self, f: Callable, layout: Layout):
        self.f, self.layout = f, layout
        self.unflatten: Callable = tuple  # the latest result as f returned it, from its leaves
        self._derived: dict[tuple, HostFunction] = {}

    def _flat(self, y: Any) -> tuple:
        self.unflatten = tree.flatten(tree.map(lambda x: None, y))[1]
        return tuple(tree.flatten(y)[0])

    def __call__(self, *operands: Any) -> tuple:
        with captured_named(self.f):
            return self._flat(self.f(*self.layout.arranged(operands)))

    def linearized(self, operands: Sequence[Any], wanted: tuple[int, ...]) -> tuple[tuple, Callable]:
        """The results, and the pullback to the wanted operands."""
        with captured_named(self.f):
            y, pulled = derived.linearized(self.f, self.layout, operands, wanted)
        return self._flat(y), pulled

    def _made(self, make: Callable, operands: int, *key: Any) -> "HostFunction":
        found = self._derived.get((make, key))
        if found is None:
            layout = Layout([np.zeros(())] * operands, lambda x: True)
            found = self._derived[make, key] = HostFunction(make(self.f, self.layout, *key), layout)
        return found

    def tangent(self, active: tuple[int, ...]) -> "HostFunction":
        """The tangents of the inexact results, from the operands and the tangents of the active ones."""
        return self._made(derived.tangent, self.layout.count + len(active), active)

    def pullback(self, wanted: tuple[int, ...], results: int, transposed: bool = False) -> "HostFunction":
        """The cotangents of the wanted operands, from the operands and `results` cotangents."""
        return self._made(derived.pullback, self.layout.count + results, wanted, transposed)

    def batched(self, mapped: tuple[bool, ...]) -> "HostFunction":
        """The results of all samples, stacked along axis 0, as are the mapped operands."""
        return self._made(derived.batched, len(mapped), mapped)


def is_number(x: Any) -> bool:
    """Is x an array or a real or complex number?"""
    return hasattr(x, "dtype") or type(x) in (float, complex)


def with_reverse_rule(value: Callable[[tuple], Any], pullback: Callable) -> Callable:
    """A foreign function of arrays, for tapegrad. Forward mode is the transpose of the reverse rule.

    Parameters
    ----------
    value : callable
        ``value(args)`` calls the foreign function with argument trees of arrays, and returns a tree of
        arrays.
    pullback : callable
        ``pullback(layout, wanted)`` returns a function of (cotangents, operands), tuples of arrays, that
        gives the cotangents of the wanted operands. The cotangents are those of the inexact results. The
        function has a reverse rule in turn.
    """

    def of_arrays(*args: Any) -> Any:
        layout = Layout(args, is_number)
        function = HostFunction(lambda *args: value(args), layout)
        operands = [x for x in tree.flatten(args)[0] if is_number(x)]
        wanted = tuple([k for k, x in enumerate(operands) if is_inexact(x)])
        pulled = pullback(layout, wanted)

        def vjp(g: Any, out: Any, *operands: Any) -> tuple:
            ws = tuple([w for w, y in zip(g, out, strict=True) if is_inexact(y)])
            found = dict(zip(wanted, pulled(ws, operands), strict=True))
            return tuple([found.get(k) for k in range(len(operands))])

        results = rule(function, vjp=vjp, pure=True)(*operands)
        return function.unflatten(results)

    return of_arrays
