"""The parameters of a fit: named blocks of numbers, and the free vector in which an optimiser moves."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy
from numpy import ndarray

from .. import numpy as np
from .._core.arrays import to_host
from .._core.errors import ArgumentError
from .._transforms.jacobian import jacobian
from ._constraints import Constraint, constraint_named, partly_fixed, unconstrained

COMPLEX_STEP = 1e-40  # of complex steps


@dataclass
class ParameterBlock:
    """A parameter of a library model: its start, its constraint, and the names of a vector's elements."""

    start: Any
    constraint: Constraint
    labels: list[str] | None = None


class NamedValues(dict):
    """The parameters of a fit by their names, and their elements by those of `FitResult.names`."""

    labels: Mapping[str, Sequence[str]]

    def __missing__(self, name):
        for block, labels in self.labels.items():
            if name in labels:
                return np.reshape(self[block], (-1,))[list(labels).index(name)]
        known = ", ".join(sum(map(list, self.labels.values()), []))
        raise KeyError(f"{name!r} is not a parameter; wanted one of {known}")


class Parameters:
    """Named blocks of parameters and their positions in the unconstrained vector.

    Elements in `fixed`, by block or by element name, have a given value and no position: `names` leaves them
    out."""

    def __init__(
        self,
        start,
        constraints,
        labels: Mapping[str, list[str]] | None = None,
        fixed: Mapping[str, Any] | None = None,
    ):
        self.given = start
        self.keyed = isinstance(start, Mapping)
        blocks = dict(start) if self.keyed else _elements(start, constraints)
        if not blocks:
            raise ArgumentError(f"start = {start}: no parameters")
        if not self.keyed and isinstance(constraints, Sequence):
            constraints = dict(zip(blocks, constraints, strict=True))
        constraint = _assigned(blocks, constraints)
        self._whole: list[tuple[str, ndarray, Constraint, list[str]]] = []
        for name, x in blocks.items():
            x = to_host(x)
            if x.dtype.kind not in "iuf":
                raise ArgumentError(f"start of {name}: dtype {x.dtype}; wanted real numbers")
            own = (labels or {}).get(name) or [
                name + (f"[{', '.join(map(str, i))}]" if i else "") for i in numpy.ndindex(x.shape)
            ]
            self._whole.append((name, x.astype(float), constraint[name], own))
        self._place(fixed or {})

    def _place(self, fixed: Mapping[str, Any]) -> None:
        """Give the elements that are not fixed their positions."""
        known = self._values_of(fixed)
        self.fixed: dict[str, float] = {}
        self.blocks: list[tuple[str, int, tuple[int, ...], Constraint]] = []
        self.names: list[str] = []
        self.constraint_of: list[Constraint] = []
        self._moving: dict[str, ndarray] = {}
        for name, x, rule, labels in self._whole:
            held = known[name]
            free = numpy.isnan(held)
            self.fixed |= {label: float(held[k]) for k, label in enumerate(labels) if not free[k]}
            shape, self._moving[name] = x.shape, free
            if not free.all():
                rule, shape = partly_fixed(rule, held, x.shape, labels), (int(free.sum()),)
            self.blocks.append((name, len(self.names), shape, rule))
            self.names += [label for label, moves in zip(labels, free, strict=True) if moves]
            self.constraint_of += [rule] * int(free.sum())
        self.start = self.start_at({name: x for name, x, *_ in self._whole})
        if not self.start.size:
            raise ArgumentError(
                "fixed: every parameter has a value, so that there is nothing to estimate; leave one out"
            )

    def start_at(self, values: Mapping[str, Any]) -> ndarray:
        """Return the free vector at these values of the blocks, or at the starts of a `ParameterBlock`."""
        parts = []
        for name, _, shape, rule in self.blocks:
            x = numpy.asarray(getattr(values[name], "start", values[name]), float).reshape(-1)[
                self._moving[name]
            ]
            parts.append(rule.start(name, x.reshape(shape)).reshape(-1))
        return numpy.concatenate(parts)

    def _values_of(self, fixed: Mapping[str, Any]) -> dict[str, ndarray]:
        """Return the fixed values of each block, nan where an element is free."""
        known = {name: numpy.full(x.size, numpy.nan) for name, x, *_ in self._whole}
        at = {label: (name, k) for name, _, _, labels in self._whole for k, label in enumerate(labels)}
        for name, given in fixed.items():
            x = numpy.asarray(given, float)
            if not numpy.isfinite(x).all():
                raise ArgumentError(f"fixed: {name} is {given}; wanted finite numbers")
            if name in at and not x.ndim:
                block, k = at[name]
                known[block][k] = x
            elif name in known and x.size in (1, known[name].size):
                known[name][:] = x.reshape(-1)
            elif name in known:
                raise ArgumentError(f"fixed: {name} has {x.size} values; wanted {known[name].size}")
            else:
                raise ArgumentError(f"fixed: {name!r} is not a parameter; wanted one of {', '.join(at)}")
        return known

    def stored(self) -> dict[str, Any]:
        """Return the parameters as plain data, for `parameters_from`."""
        own = [rule.name for _, _, rule, _ in self._whole if rule.key is None]
        if own:
            raise ArgumentError(f"save: {own[0]} is a constraint of your own, which a file cannot hold")
        blocks = [[name, x, rule.name, labels] for name, x, rule, labels in self._whole]
        return {"keyed": self.keyed, "blocks": blocks, "fixed": self.fixed}

    def moved(self, u: ndarray, fixed: Mapping[str, Any] | None = None) -> "Parameters":
        """Return the same parameters with a start at u, and perhaps further ones fixed."""
        there, values = copy(self), self.values(u)
        there._whole = [(name, to_host(values[name]), rule, labels) for name, _, rule, labels in self._whole]
        if fixed:
            there._place({**self.fixed, **fixed})
        else:
            there.start = u
        return there

    @property
    def bounded(self) -> ndarray:
        """Return which elements have a constraint, and may run into its bound."""
        return numpy.array([c.name != "unconstrained()" for c in self.constraint_of])

    def values(self, u) -> dict[str, Any]:
        """Return the constrained parameters, block by block, with the fixed ones."""
        return values_of_blocks(u, self.blocks)

    def tree(self, u):
        """Return the parameters in the form of `start`."""
        return tree_of(u, self.blocks, self.keyed)

    def named(self, u):
        """Return the parameters in the form of `start`; those of a dict with the names of elements too."""
        found = self.tree(u)
        if self.keyed:
            found = NamedValues(found)
            found.labels = {name: labels for name, *_, labels in self._whole}
        return found

    def flat(self, u):
        """Return the constrained parameters that are not fixed, in the order of `names`."""
        whole = np.concatenate([x.reshape((-1,)) for x in self.values(u).values()])
        return whole[numpy.flatnonzero(numpy.concatenate([*self._moving.values()]))] if self.fixed else whole

    def derivative(self, u: ndarray, xp=numpy) -> ndarray:
        """Return the derivative of `flat` by u.

        Complex steps give all digits of maps of this library, without the first calls of a tape."""
        if None in [constraint.key for constraint in self.constraint_of]:
            return to_host(jacobian(self.flat)(xp.asarray(u)))
        step = COMPLEX_STEP * 1j
        if len(self.blocks) == u.size:
            return numpy.diag(self.flat(u + step).imag / COMPLEX_STEP)
        columns = [self.flat(u + step * e).imag for e in numpy.eye(u.size)]
        return numpy.stack(columns, axis=1) / COMPLEX_STEP

    @property
    def process(self) -> ndarray:
        """Return which free parameters are partial autocorrelations of a stationary or invertible process."""
        return numpy.array([c.name in ("stationary()", "invertible()") for c in self.constraint_of], bool)


def values_of_blocks(u, blocks: Sequence[tuple]) -> dict[str, Any]:
    """Return the constrained parameters of these blocks: (name, place, shape, constraint) of each."""
    result = {}
    for name, at, shape, constraint in blocks:
        piece = u[at : at + int(numpy.prod(shape))].reshape(shape) if shape else u[at]
        result[name] = constraint.natural(piece)
    return result


def tree_of(u, blocks: Sequence[tuple], keyed: bool):
    """Return the parameters in the form of the start: a dict, or a vector."""
    values = values_of_blocks(u, blocks)
    return values if keyed else np.stack(list(values.values()))


def parameters_from(stored: dict[str, Any]) -> Parameters:
    """Return parameters from plain data."""
    blocks = stored["blocks"]
    start = {name: x for name, x, *_ in blocks}
    rules = {name: constraint_named(rule) for name, _, rule, _ in blocks}
    found = Parameters(start, rules, {name: labels for name, *_, labels in blocks}, stored["fixed"])
    found.keyed = stored["keyed"]
    return found


def parameters_of(
    title: str,
    blocks: Mapping[str, ParameterBlock],
    start,
    constraints,
    fixed: Mapping[str, Any] | None,
) -> Parameters:
    """Return the parameters of a library model, with the user's starts, constraints and fixed values."""
    given = dict(start or {})
    for name in given:
        if name not in blocks:
            raise ArgumentError(
                f"start: {name!r} is not a parameter of {title}, which has {', '.join(blocks)}"
            )
    if isinstance(constraints, Constraint):
        constraints = dict.fromkeys(blocks, constraints)
    rules = {name: block.constraint for name, block in blocks.items()} | dict(constraints or {})
    labels = {name: block.labels for name, block in blocks.items() if block.labels}
    return Parameters({name: block.start for name, block in blocks.items()} | given, rules, labels, fixed)


def _elements(start, constraints) -> dict[str, Any]:
    """Split a vector of parameters into numbers named theta[i]."""
    vector = to_host(start)
    if vector.ndim != 1:
        raise ArgumentError(
            f"start: shape {vector.shape}; wanted a vector, or a dict of names to numbers or arrays"
        )
    if isinstance(constraints, Sequence) and len(constraints) != vector.size:
        raise ArgumentError(
            f"constraints: {len(constraints)} for {vector.size} parameters; wanted one for each"
        )
    if isinstance(constraints, Mapping):
        raise ArgumentError("constraints: a dict names parameters, so start must be a dict too")
    return {f"theta[{i}]": x for i, x in enumerate(vector)}


def _assigned(blocks: Mapping[str, Any], constraints) -> dict[str, Constraint]:
    """Return the constraint of each block."""
    if constraints is None or isinstance(constraints, Constraint):
        return dict.fromkeys(blocks, constraints or unconstrained())
    if not isinstance(constraints, Mapping):
        raise ArgumentError("constraints: start is a dict, so wanted one constraint or a dict of them")
    for name in constraints:
        if name not in blocks:
            raise ArgumentError(f"constraints: {name!r} is not a parameter; start has {', '.join(blocks)}")
    return {name: constraints.get(name, unconstrained()) for name in blocks}
