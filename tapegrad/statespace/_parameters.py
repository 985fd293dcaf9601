"""The parameters of a fit: named blocks of numbers, and the free vector in which an optimiser moves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from .. import numpy as np
from .._core.arrays import to_host
from .._core.errors import ArgumentError
from ._constraints import Constraint, unconstrained


@dataclass
class ParameterBlock:
    """A parameter of a library model: its start, its constraint, and the names of a vector's elements."""

    start: Any
    constraint: Constraint
    labels: list[str] | None = None


class Parameters:
    """Named blocks of parameters and their positions in the unconstrained vector."""

    def __init__(self, start: Any, constraints: Any, labels: Mapping[str, list[str]] | None = None):
        self.given = start
        self.keyed = isinstance(start, Mapping)
        blocks = dict(start) if self.keyed else _elements(start, constraints)
        if not blocks:
            raise ArgumentError(f"start = {start}: no parameters")
        if not self.keyed and isinstance(constraints, Sequence):
            constraints = dict(zip(blocks, constraints, strict=True))
        constraint = _assigned(blocks, constraints)
        self.blocks: list[tuple[str, int, tuple[int, ...], Constraint]] = []
        self.names: list[str] = []
        self.constraint_of: list[Constraint] = []
        free = []
        for name, x in blocks.items():
            x = to_host(x)
            if x.dtype.kind not in "iuf":
                raise ArgumentError(f"start of {name}: dtype {x.dtype}; wanted real numbers")
            x = x.astype(float)
            self.blocks.append((name, len(self.names), x.shape, constraint[name]))
            free.append(constraint[name].start(name, x).reshape(-1))
            self.names += (labels or {}).get(name) or [name + (f"[{', '.join(map(str, i))}]" if i else "") for i in numpy.ndindex(x.shape)]
            self.constraint_of += [constraint[name]] * x.size
        self.start = numpy.concatenate(free)

    @property
    def bounded(self) -> numpy.ndarray:
        """Return which elements have a constraint, and may run into its bound."""
        return numpy.array([c.name != "unconstrained()" for c in self.constraint_of])

    def values(self, u: Any) -> dict[str, Any]:
        """Return the constrained parameters, block by block."""
        result = {}
        for name, at, shape, constraint in self.blocks:
            piece = u[at : at + int(numpy.prod(shape))].reshape(shape) if shape else u[at]
            result[name] = constraint.natural(piece)
        return result

    def tree(self, u: Any) -> Any:
        """Return the parameters in the form of `start`."""
        values = self.values(u)
        return values if self.keyed else np.stack(list(values.values()))

    def flat(self, u: Any) -> Any:
        return np.concatenate([x.reshape((-1,)) for x in self.values(u).values()])


def parameters_of(title: str, blocks: Mapping[str, ParameterBlock], start: Any, constraints: Any) -> Parameters:
    """Return the parameters of a library model, with the user's starts and constraints."""
    given = dict(start or {})
    for name in given:
        if name not in blocks:
            raise ArgumentError(f"start: {name!r} is not a parameter of {title}, which has {', '.join(blocks)}")
    if isinstance(constraints, Constraint):
        constraints = dict.fromkeys(blocks, constraints)
    rules = {name: block.constraint for name, block in blocks.items()} | dict(constraints or {})
    labels = {name: block.labels for name, block in blocks.items() if block.labels}
    return Parameters({name: block.start for name, block in blocks.items()} | given, rules, labels)


def _elements(start: Any, constraints: Any) -> dict[str, Any]:
    """Split a vector of parameters into numbers named theta[i]."""
    vector = to_host(start)
    if vector.ndim != 1:
        raise ArgumentError(f"start: shape {vector.shape}; wanted a vector, or a dict of names to numbers or arrays")
    if isinstance(constraints, Sequence) and len(constraints) != vector.size:
        raise ArgumentError(f"constraints: {len(constraints)} for {vector.size} parameters; wanted one for each")
    if isinstance(constraints, Mapping):
        raise ArgumentError("constraints: a dict names parameters, so start must be a dict too")
    return {f"theta[{i}]": x for i, x in enumerate(vector)}


def _assigned(blocks: Mapping[str, Any], constraints: Any) -> dict[str, Constraint]:
    """Return the constraint of each block."""
    if constraints is None or isinstance(constraints, Constraint):
        return dict.fromkeys(blocks, constraints or unconstrained())
    if not isinstance(constraints, Mapping):
        raise ArgumentError("constraints: start is a dict, so wanted one constraint or a dict of them")
    for name in constraints:
        if name not in blocks:
            raise ArgumentError(f"constraints: {name!r} is not a parameter; start has {', '.join(blocks)}")
    return {name: constraints.get(name, unconstrained()) for name in blocks}
