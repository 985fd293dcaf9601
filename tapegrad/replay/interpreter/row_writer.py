"""Rows of the interpreter for operations on places of an arena.

A row goes along lines where its places lie in such, else by a table of places.  The bodies of operations
(interpreter.placed_arrays.py) and the instructions of a block (interpreter.blocks.py) write them."""

import ctypes
import itertools
import math

import numpy as np

from ..costs import (
    BLAS_MATRIX_PRODUCTS,
    BLAS_VECTOR_PRODUCTS,
    BLOCK_MATRICES,
    BOX_ELEMENTS,
    LINE_ELEMENTS,
    TABLED_ELEMENTS,
    has_vector_loop,
)
from .arena import INDEX_BYTES, Arena, zero_strides
from .foreign_calls import (
    CALL_ARGUMENTS,
    NO,
    blas_matrix,
    core_sizes,
    gemm,
    gemv,
    in_one_piece,
    kept_plan,
    of_floats,
    ufunc_loop,
    vector_of,
)
from .line_layouts import in_calls, in_lines, tabled_lines
from .listed_rows import ListedRows
from .machine_code import LIBM, SINGLE, SUMMED, row_of

SINGLE_ROW = {name: row for row, name in SINGLE.items()}


class RowWriter:
    """Writes rows.  `exact`: only those that give what NumPy gives for all values; `listing`: are the places
    of all elements kept, so that loops can be compiled?

    `along`: how many rows go along lines.  The temporary array number `awaited` becomes `target`."""

    def __init__(self, arena: Arena, exact: bool = False, listing: bool = False):
        self.arena, self.exact, self.nothing = arena, exact, arena.nothing
        self.rows = []
        self.listed = ListedRows() if listing else None
        self.along = self.awaited = 0
        self.target = arena.nothing

    def number(self, v: float):
        """The place of a constant number."""
        return self.arena.number(v)

    def constant(self, v):
        """The places of a constant array."""
        return self.arena.taken_for_ever(v)

    def row(self, name: str, to, *operands) -> None:
        """One operation, as a single element or as lines where its places are such, else by the table."""
        cuts = self.arena.cuts_of(to, operands) if to.size >= BOX_ELEMENTS else None
        if cuts is not None:
            wide = [to, *[at if at.shape == to.shape else np.broadcast_to(at, to.shape) for at in operands]]
            for box in itertools.product(*[itertools.starmap(slice, itertools.pairwise(c)) for c in cuts]):
                self.part(name, *[at[box] for at in wide])
        else:
            self.part(name, to, *operands)

    def imaginary(self, at):
        """The places of the imaginary parts."""
        return self.arena.moved(at, 1)

    def pair_of(self, at, kind: str) -> tuple:
        """The places of the real and of the imaginary parts."""
        return at, self.imaginary(at) if kind in "cD" else self.nothing

    def part(self, name: str, to, *operands) -> None:
        if self.listed is not None and to.size:
            self.listed.add(
                name,
                to.size,
                [at if at.shape == to.shape else at + zero_strides(to.shape) for at in (to, *operands)],
            )
        if to.size == 1:
            self.rows.append(row_of(SINGLE_ROW[name], 1, *[at.item() for at in (to, *operands)]))
            return
        if to.size > LINE_ELEMENTS and name in LIBM and (self.exact or has_vector_loop(name)):
            self.called(getattr(np, name), to, *operands, kind="d->d")
            return
        if (
            to.size > LINE_ELEMENTS
            and name in SUMMED
            and not any(to.strides)
            and not self.adds_lines(operands)
        ):
            listed, self.listed = self.listed, None  # what is added is listed where it lies
            operands = tuple([self.packed(at, to.shape, "d") for at in operands])
            self.listed = listed
        if not to.size or (to.size > LINE_ELEMENTS and self.lines(name, to, operands)):
            return
        if to.size < TABLED_ELEMENTS or not self.tabled(name, to, operands):
            places = [self.arena.indices(at, to.shape) for at in (to, *operands)]
            self.rows.append(row_of(name, to.size, *places))

    def temporary(self, *shape: int, **settings):
        """For the body of an operation."""
        self.awaited -= 1
        return self.target if self.awaited == 0 else self.arena.temporary(*shape, **settings)

    def forms(self, places: tuple):
        """What `joined_axes` takes; None where some do not lie in lines."""
        forms = [None if at.size == 1 else self.arena.form_of(at) for at in places]
        return None if False in forms else forms

    def lines(self, name: str, to, operands: tuple) -> bool:
        forms = self.forms((to, *operands))
        found = in_lines(name, to.shape, *forms) if forms is not None else None
        if found is None:
            return False
        row, size, (m, l), (over, beyond) = found
        first = [at.item(0) for at in (to, *operands)]
        rest, none = [0] * (4 - len(first)), [0] * (4 - len(over))
        self.rows.append(row_of(row, size, *first, *rest, m, *over, *none, l, *beyond))
        self.along += 1
        return True

    def tabled(self, name: str, to, operands: tuple) -> bool:
        """The same along lines that begin anywhere."""
        found = tabled_lines(name, to, operands)
        if found is None:
            return False
        row, size, starts = found
        tables = [self.arena.indices(at, at.shape) for at in starts]
        self.rows.append(row_of(row, size, *tables, *[0] * (4 - len(tables)), starts[0].size))
        self.along += 1
        return True

    def adds_lines(self, operands) -> bool:
        """Do the terms of one sum lie in lines?"""
        forms = self.forms(operands)
        return forms is not None and all([form is None or form[1][-1] == INDEX_BYTES for form in forms])

    def called(self, ufunc, to, *operands, kind: str = "") -> None:
        """A ufunc, element by element, for types that `ufunc_loop` takes; a result of which all steps are 0
        gathers them."""
        kind = kind or of_floats(ufunc)
        if not to.size or self.call(ufunc, to, operands, kind):
            return
        given = [
            self.packed(at, to.shape, t) if any(at.strides) else at
            for at, t in zip(operands, kind, strict=False)
        ]
        width = 1 + (kind[-1] == "D")
        made = self.arena.temporary(*to.shape, width=width) if any(to.strides) else to
        self.call(ufunc, made, given, kind)
        if made is not to:
            for target, source in [
                *zip(self.pair_of(to, kind[-1]), self.pair_of(made, kind[-1]), strict=True)
            ][:width]:
                self.row("copy", target, source)

    def call(self, ufunc, to, operands, kind: str) -> bool:
        made = self.call_loop(ufunc, to, operands, kind)
        if made:
            self.note_call("called", operands, [to], kind)
        return made

    def call_loop(self, ufunc, to, operands, kind: str) -> bool:
        loop, forms, width = ufunc_loop(ufunc, kind), self.forms((to, *operands)), 1 + (kind[-1] == "D")
        found = in_calls(to.shape, width, *forms) if loop is not None and forms is not None else None
        if found is None:
            return False
        size, (step, *steps), counts, outer = found
        numpys = getattr(np, ufunc.__name__, None) is ufunc
        plan = kept_plan(*loop, size, tuple([8 * s for s in (*steps, step)]), (), (), numpys)
        checked, outer = width * size if step else 1, [[*o[1:], o[0]] for o in outer]
        self.call_row(plan, checked, [*operands, to], len(operands), counts, outer)
        return True

    def packed(self, at, shape: tuple, kind: str):
        """Numbers of a kind, broadcast to a shape, one after the other."""
        fresh = self.arena.temporary(*shape, width=1 + (kind == "D"))
        parts = [*zip(self.pair_of(fresh, kind), self.pair_of(at, kind), strict=True)]
        called = fresh.size > LINE_ELEMENTS and self.call_loop(np.positive, fresh, (at,), f"{kind}->{kind}")
        for to, x in parts[: 1 + (kind == "D")]:
            if not called:
                self.row("copy", to, x)
            elif self.listed is not None:
                self.listed.add("copy", to.size, [to, x + zero_strides(to.shape)])
        return fresh

    def note_call(self, name: str, read, written, kind: str = "") -> None:
        """The last row calls others, which read and write these places, of numbers of these kinds."""
        if self.listed is not None:
            kinds = kind.replace("->", "") or "d" * (len(read) + len(written))
            parts = [self.pair_of(at, t) for at, t in zip((*read, *written), kinds, strict=True)]
            given, left = [[*itertools.chain(*some)] for some in (parts[: len(read)], parts[len(read) :])]
            self.listed.outside(name, len(self.rows) - 1, given, left)

    def indexed(self, name: str, to, x, at) -> None:
        """Lines of which one is read, or written, at indices that are values."""
        x = self.laid_out(x, self.arena.view_of)
        lines = [self.arena.view_of(v) for v in (to, x, at)]
        if lines[2] is None or lines[2][1] != (INDEX_BYTES,):
            packed = self.arena.temporary(*at.shape)
            self.row("copy", packed, at)
            at, lines[2] = packed, self.arena.view_of(packed)
        size, steps = len(to if name == "scattered" else x), [line[1][0] // INDEX_BYTES for line in lines[:2]]
        if len(at):
            self.outside_row(name, (x, at, to), to, len(at), *[line[0] for line in lines], size, *steps)

    def ordered(self, to, x, stable: bool) -> None:
        """The indices that sort a line."""
        working = self.arena.temporary(4 * len(x))
        x = self.laid_out(x, self.arena.view_of)
        lines = [self.arena.view_of(v) for v in (to, x, working)]
        steps = [line[1][0] // INDEX_BYTES for line in lines[:2]]
        self.outside_row("ordered", (x,), to, len(x), *[line[0] for line in lines], int(stable), *steps)

    def outside_row(self, name: str, read: tuple, written, *fields: int) -> None:
        """A call of others, which reads and writes these places."""
        self.rows.append(row_of(name, *fields))
        self.note_call(name, read, (written,))

    def of_matrices(self, ufunc, results, *operands, kind: str = "", lines: int = 0) -> None:
        """A generalized ufunc of matrices, for types that `ufunc_loop` takes.  The last result tells whether
        it was found.  `lines`: it is done so many times, along the first axis of what has one."""
        kind = kind or of_floats(ufunc)
        places = [
            at if self.arena.view_of(at) is not None else self.packed(at, at.shape, t)
            for at, t in zip(operands, kind, strict=False)
        ]
        places += results
        shapes, steps = [at.shape for at in places], [self.arena.view_of(at)[1] for at in places]
        outer = (8,) * len(places)
        if lines:
            outer = tuple([step[0] if step else 0 for step in steps])
            shapes, steps = [s[1:] for s in shapes], [s[1:] for s in steps]
        plan = kept_plan(
            *ufunc_loop(ufunc, kind), lines or 1, outer, tuple(steps), core_sizes(ufunc.signature, shapes)
        )
        checked = results[-1].size * (1 + (kind[-1] == "D"))
        self.call_row(plan, checked, places, len(places) - 1, (1, 1), ((), ()))
        self.note_call("called", places[: len(operands)], places[len(operands) :], kind)

    def lapack(self, name: str, to, packed, n: int, columns: int, form: int = NO, *band: int) -> None:
        packed = self.laid_out(packed, in_one_piece)
        places = to.item(0), packed.item(0), 0, 0
        self.outside_row(name, (to, packed), np.append(to, packed), to.size, *places, form, n, columns, *band)

    def call_row(self, plan, checked: int, places, out: int, counts: tuple, outer) -> None:
        first, *rest = [
            [*some, *[0] * (CALL_ARGUMENTS - len(some))] for some in ([at.item(0) for at in places], *outer)
        ]
        address = np.array([ctypes.addressof(plan)], np.int64).view(np.int32).tolist()
        self.rows.append(
            row_of("called", checked, *first, counts[0], *rest[0], counts[1], *rest[1], *address, out)
        )

    def matmul(self, to, x, y) -> None:
        if to.ndim > 2 and math.prod(to.shape[:-2]) > BLOCK_MATRICES:  # a row for each product of the stack
            for i, j in np.ndindex(to.shape[-2:]):
                self.row("copy", to[..., i, j], self.nothing)
                for k in range(x.shape[-1]):
                    self.row("muladd", to[..., i, j], x[..., i, k], y[..., k, j])
            return
        if to.ndim > 2:
            for place in np.ndindex(to.shape[:-2]):
                # (of an axis of one there is but one)
                each = [place[len(place) + 2 - at.ndim :] for at in (x, y)]
                each = [
                    tuple([min(i, n - 1) for i, n in zip(at_k, at.shape, strict=False)])
                    for at_k, at in zip(each, (x, y), strict=True)
                ]
                self.matmul(to[place], x[each[0]], y[each[1]])
            return
        rows = x if x.ndim == 2 else x[None]
        columns = y if y.ndim == 2 else y[:, None]
        m, inner, p = rows.shape[0], rows.shape[1], columns.shape[1]
        if x.ndim + y.ndim > 2 and m * inner * p >= (
            BLAS_MATRIX_PRODUCTS if min(m, p) > 1 else BLAS_VECTOR_PRODUCTS
        ):
            self.product(to, x, y)
            return
        out = to.reshape(m, p)
        self.row("copy", to, self.nothing)
        shape = (inner, m, p)
        self.row(
            "muladd",
            np.broadcast_to(out, shape),
            np.broadcast_to(rows.T[:, :, None], shape),
            columns[:, None, :],
        )

    def product(self, to, x, y) -> None:
        """A row for BLAS; what does not lie as that takes it is copied."""
        if x.ndim == 1:
            x, y = y.T, x
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        of_vector = y.ndim == 1
        x, y = self.laid_out(x, blas_matrix), self.laid_out(y, vector_of if of_vector else blas_matrix)
        if to.ndim == 2 and not of_vector and to.strides[0] < to.strides[1]:
            to, x, y = to.T, y.T, x.T
        if not to.flags.c_contiguous:  # one matrix of a stack
            made = self.arena.temporary(*to.shape)
            self.product(made, x, y)
            self.row("copy", to, made)
            return
        if of_vector:
            self.row("copy", to, self.nothing)
        name, integers = ("dgemv", gemv(x, y)) if of_vector else ("dgemm", gemm(x, y))
        places = [to.item(0), *([x.item(0), y.item(0)] if of_vector else [y.item(0), x.item(0)]), 0]
        self.outside_row(name, (x, y, to), to, to.size, *places, *integers)

    def laid_out(self, at, form):
        if id(at.base) in self.arena.counting and form(at) is not None:
            return at
        fresh = self.arena.temporary(*at.shape)
        self.row("copy", fresh, at)
        return fresh
