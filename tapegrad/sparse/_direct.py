"""The entries of a sparse matrix from a compiled loop, without colours or products.

The loop runs over the rows and writes each entry at its place in the matrix. `_rows` expresses each row of
the recorded product as an expression at places. `_coefficients` extracts the coefficients of the direction,
which are the entries. Only rows and columns that meet are computed. If the places of a coefficient do not
advance in regular steps, the loop writes to a buffer and a table scatters it."""

import math
from typing import Any

import numpy as np
import scipy.sparse

from .._core.errors import Attempt
from .._core.registry import load
from .._core.reverse import has_nan
from ..kernels.graph.blocks import strided
from ..replay.buffer_pool import packed
from ..replay.cached_program import EMITTER, CachedProgram
from ..replay.fusion.compiled_groups import CallMemory, GroupCode
from ..replay.fusion.nests import ArrayAccess
from ..replay.program import HEARD
from ..replay.scalar_graph import Exact
from ._coefficients import DIRECTION, LinearCoefficients, NotLinear
from ._pattern import asked_of
from ._rows import NotRowwise, RowwiseValues

MOST_ENTRY_TEXTS = 60  # expressions of loops, at most
MOST_TEXT_NODES = 20000  # nodes of all expressions, at most


class GroupPart:
    """The interface of a replay group that the code of the loop reads."""

    def __init__(self, rows: RowwiseValues, values: dict, given: list, data: int, loose: int, stored: list):
        self.kinds, self.shown, self.cuts, self.values = rows.kinds, rows.shown, rows.cuts, values
        self.watched = {k for k, i in rows.program.code if i.watched}
        self.forms = {k: rows.held[k] for k in stored if k in rows.held and rows.held[k] != rows.shape(k)}
        self.dtype = rows.shown[data][3]
        self.given = given
        self.arrays = [a for a in given if self.shown[a][1] or rows.program.shown[a][0]]
        self.single = [a for a in given if a not in self.arrays]
        self.stored = stored
        self.sums = {}
        self.totals = []
        self.written = self.left = [data, loose, *stored]
        self.code: Any = None
        self.pool: list = []


class Entry:
    """One coefficient of the rows of a box, with the places of its entries in the matrix."""

    def __init__(self, node: int, places: np.ndarray):
        self.node, self.places = node, places
        self.first = int(places.flat[0])
        ahead = [
            (0,) * d + (min(1, n - 1),) + (0,) * (places.ndim - d - 1) for d, n in enumerate(places.shape)
        ]
        self.steps = tuple([int(places[at]) - self.first for at in ahead])
        self.is_regular = bool((places == strided(self.first, self.steps, places.shape)).all())


class CoefficientCode(GroupCode):
    """The code of a group that writes coefficients in place of values."""

    group: Any

    def __init__(
        self, rows: RowwiseValues, part: GroupPart, outputs: list, keys: np.ndarray, n: int, direction: int
    ):
        self.group, self.shown, self.values, self.sums = part, part.shown, part.values, {}
        self.g, self.nests, self.direction, self.gathered = Exact(), {}, direction, rows.gathered
        self.is_sum = any([type(row) is np.ndarray for _, _, row in outputs])  # parts may add up
        self.table = {a: k for k, a in enumerate((*part.arrays, *part.written))}
        self.parts = {}
        self.linear = LinearCoefficients(self.g)
        self.keys, self.n = keys, n
        self.loose: list = []  # places of the entries in the buffer
        self.terms = []  # (extents, node, places of the entries), of which `_terms` makes operations
        self.graph = self.g
        self.covered = np.zeros(keys.size, np.bool_)
        for k, held, first in outputs:
            self.entries(k, held, first)
        for k in part.stored:
            self.store(k)
        for nest in self.nests.values():
            nest.checks = list(
                dict.fromkeys([m for c in nest.checks for m in (self.linear.of(c).values() or [c])])
            )
        if len(self.g.op) > MOST_TEXT_NODES:
            raise NotRowwise(f"texts of {len(self.g.op)} operations")

    def finish(self, data: int, loose: int) -> None:
        self.shown[loose] = (
            True,
            (sum([p.size for p in self.loose]),),
            (self.group.dtype.itemsize,),
            self.group.dtype,
            True,
        )
        self.compile([])

    def leaf(self, nest, a: int, place: tuple, form: tuple | None = None) -> int:
        if a != self.direction and a not in self.gathered:
            return super().leaf(nest, a, place, form)
        strides = packed(self.shown[a][1], 1)
        first, steps = nest.in_memory(place, strides)
        return self.g.input(DIRECTION, 0, (a, first, steps))

    def columns(self, leaf: int, extents: tuple) -> np.ndarray:
        a, first, steps = self.g.args[leaf][2]
        found = strided(first, steps, extents)
        return self.gathered[a].reshape(-1)[found] if a in self.gathered else found

    def entries(self, k: int, held: tuple, row) -> None:
        """Add the entries of one output; `row` is its first row or a table of rows."""
        size = self.group.dtype.itemsize
        strides = [math.prod(held[a + 1 :]) for a in range(len(held))]
        for nest, place, axes in self.boxes(k, held):
            first = sum([start * s for (start, _), s in zip(place, strides, strict=True)])
            rows = strided(first, tuple([strides[a] for a in axes]), nest.extents)
            rows = row.reshape(-1)[rows] if type(row) is np.ndarray else rows + row
            found = []
            node = self.node(nest, k, place)
            self.g.reciprocals.clear()
            for leaf, c in self.linear.of(node).items():
                if c != self.g.zero:
                    found.append(Entry(c, self.places(rows, self.columns(leaf, nest.extents))))
            met = (
                self.is_sum
                or len(found) > 1
                and bool((np.diff(np.sort(np.stack([e.places for e in found]), axis=0), axis=0) == 0).any())
            )
            for e in found:
                self.terms.append((nest.extents, e.node, e.places))
                self.covered[e.places] = True
                if e.is_regular and not met:
                    access = ArrayAccess(
                        self.table[self.group.left[0]], e.first * size, tuple([s * size for s in e.steps])
                    )
                else:
                    begin = sum([p.size for p in self.loose])
                    inner = [size * math.prod(nest.extents[d + 1 :]) for d in range(len(nest.extents))]
                    access = ArrayAccess(self.table[self.group.left[1]], begin * size, tuple(inner))
                    self.loose.append(e.places.reshape(-1))
                nest.stores.append((e.node, access))

    def places(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the places of these entries in the matrix."""
        asked = rows * self.n + columns
        found = np.searchsorted(self.keys, asked)
        if (found == self.keys.size).any() or (self.keys[found] != asked).any():
            raise NotRowwise("an entry that the pattern does not have")
        return found


class DirectEntries:
    """The entries at a point: `entries(values)` returns them, or None if only products can compute them."""

    zeros: Any  # a direction: it stands for the argument of the product

    def __init__(self, kept: CachedProgram, pattern: scipy.sparse.csr_array, output: int, direction: int):
        """Build the loop; `output` and `direction` are the numbers of the product and of its argument."""
        self.kept, program = kept, kept.recorded
        if program.generators:
            raise NotRowwise("random numbers")
        k, w = program.outputs[output][0], program.arguments[direction]
        if k is None:
            raise NotRowwise("a product that is always the same")
        written = [n for _, n in program.written]
        rows = RowwiseValues(program, [k, *written], w)
        before = rows.again([k])
        outputs = rows.parts(k)
        if any([rows.cuts.get(a, ()) is None for a, _, _ in outputs]):
            raise NotRowwise("a reshape of what is made of parts")
        if (
            sum([math.prod([len(c) + 1 for c in rows.cuts.get(a, ())]) for a, _, _ in outputs])
            > MOST_ENTRY_TEXTS
        ):
            raise NotRowwise("too many parts")
        stored = [n for n in dict.fromkeys(written) if self.is_stored(rows, n, before)]
        values, given = rows.used([a for a, _, _ in outputs] + stored, before)
        inputs = {*program.inputs}
        self.before = sorted((given - inputs) | {n for n in written if n not in stored and n not in inputs})
        given = sorted([a for a in given if a != w and not rows.kinds.is_constant(a)])
        data, loose = rows.number, rows.number + 1
        dtype = rows.shown[k][3]
        rows.shown[data] = (True, (pattern.nnz,), (dtype.itemsize,), dtype, True)
        rows.shown[loose] = (True, (0,), (dtype.itemsize,), dtype, True)
        part: Any = GroupPart(rows, values, given, data, loose, stored)
        n = pattern.shape[1]
        keys = np.repeat(np.arange(pattern.shape[0]) * n, np.diff(pattern.indptr)) + pattern.indices
        try:
            self.code = CoefficientCode(rows, part, outputs, keys, n, w)
        except NotLinear as error:
            raise NotRowwise(f"{error} of the direction") from error
        except AssertionError as error:
            raise NotRowwise("a box that is not cut") from error
        self.code.finish(data, loose)
        part.code = self.code
        self.part, self.stored = part, stored
        self.loose: Any = np.concatenate(self.code.loose) if self.code.loose else None
        if self.loose is None and self.code.is_sum:
            raise NotRowwise("no entries")
        self.twice = self.loose is not None and np.unique(self.loose).size < self.loose.size
        self.rest = np.flatnonzero(~self.code.covered)
        self.side = asked_of(program, self.before, program.guards)
        self.run_side: Any = None if self.side is None else load(EMITTER).EmittedProgram(self.side).run
        fixed = {**dict(program.captured), **program.constants}
        self.read = [fixed.get(a) for a in given]  # what the loop reads, with room for what varies
        place = {a: n for n, a in enumerate([*program.arguments, *self.before])}
        self.varying = [(n, place[a]) for n, a in enumerate(given) if a in place]
        self.unwritten = [None] * (len(part.written) - 1)
        self.pool: list = []

    def is_stored(self, rows: RowwiseValues, k: int, before: set) -> bool:
        """Return whether the loop writes a value that a plain call writes into a captured array."""
        root = rows.root(k)
        if root not in rows.values or rows.cuts.get(root) is None or root != k:
            return False
        try:
            rows.used([k], before)
        except NotRowwise:
            return False
        return rows.held[k] == rows.shape(k) and k not in rows.depends

    def __call__(self, values: list, out=None):
        """Return the entries row by row, in `out` if its dtype fits; None if only products can compute
        them."""
        if not self.kept.is_apart(values):
            return None
        if self.side is not None:
            with Attempt() as tried:
                found = self.run_side(*values)
            if tried.failed:
                return None  # an operation raised; the products report it
            if type(found) is not tuple or HEARD.shown is not None or HEARD.unsafe is not None:
                return None
            values = [*values, *found[0]]
        read = self.read.copy()
        for n, k in self.varying:
            read[n] = values[k]
        try:
            state = self.pool.pop()
        except IndexError:
            state = CallMemory(self.part)
        place = None if out is None or out.dtype != self.part.dtype else out
        made = self.code.call(state, *read, place, *self.unwritten)
        self.pool.append(state)
        if made is None:
            return None
        data, loose, *stored = made
        if self.code.is_sum:
            data = np.bincount(self.loose, loose, data.size).astype(data.dtype, copy=False)
        elif self.twice:
            data[self.loose] = 0.0
            np.add.at(data, self.loose, loose)
        elif self.loose is not None:
            data[self.loose] = loose
        if self.rest.size and not self.code.is_sum:
            data[self.rest] = 0.0
        if has_nan(data):
            return None  # a sweep may return a number here
        if self.kept.recorded.written:
            self.write([*values, *stored])
        return data

    def write(self, values: list) -> None:
        """Write into captured arrays what a plain call writes there."""
        program = self.kept.recorded
        env = dict(zip([*program.arguments, *self.before, *self.stored], values, strict=True))
        env = {**dict(program.captured), **program.constants, **env}
        for array, k in program.written:
            array[...] = env[k]
