"""Products of one large matrix with elementwise work between them, A f(A x), some rows at a time: so the matrix is read once.

The rows of a tile stay in the cache from their first product to their last.  The tiles are the same whatever the number of threads."""

import copy
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ops.products import matmul
from ._elements import Element
from ._fused import Group, Summed, packed
from ._program import GROUP, Instruction
from ._regions import Moved, of_view, viewed, whole

WORTH = 1 << 20  # bytes of a matrix for which it pays
TILE = 1 << 19  # bytes of the rows of a tile


class Rows:
    """A group with the products before and after it.  `before`: number of the product -> the operand of the matrix; `after`: number of
    the product -> the value that is multiplied by the matrix; `tiled`: what is read or made row by row."""

    def __init__(self, group: Group, matrix: int, before: dict, after: dict, tiled: set):
        self.group, self.matrix, self.before, self.after, self.tiled = group, matrix, before, after, tiled
        self.shown = group.shown
        self.count, columns = self.shown[matrix][1]
        size = self.shown[matrix][3].itemsize
        self.tile = min(max(TILE // (columns * size) // 16 * 16, 16), self.count)
        inner = set(after.values())
        self.kept = [k for k in group.left if k not in inner]
        self.left = [*self.kept, *after]
        self.written = [k for k in self.kept if k in group.written]
        self.given = list(dict.fromkeys([matrix, *before.values(), *[a for a in group.given if a not in before]]))
        self.names = [*group.names, *[(k, "matmul") for k in (*before, *after)]]
        self.saved = group.saved
        self.parts = {n: of_rows(group, tiled, n) for n in {self.tile, self.count % self.tile} - {0}}

    @functools.cached_property
    def call(self) -> Callable:
        """Its call as a text: (*given, *memory for what is written or None)."""
        group, shown = self.group, self.shown
        space: dict = {"empty": np.empty, "dot": np.dot, "add": np.add.reduce, "array": np.array, "s": shown[self.matrix][2]}
        v, o, p, q = [lambda k, letter=letter: f"{letter}{k}" for letter in "vopq"]
        steps = [f"if {v(self.matrix)}.strides != s: return None"]
        for k in self.written:
            space[f"m{k}"] = functools.partial(np.empty, shown[k][1], shown[k][3])
            steps.append(f"if {o(k)} is None: {o(k)} = m{k}()")
        tiles = -(-self.count // self.tile)
        for k in self.after:
            space[f"n{k}"] = functools.partial(np.empty, (tiles, *shown[k][1]), shown[k][3])
            steps.append(f"{p(k)} = n{k}()")
        steps += [f"{q(k)} = []" for k in group.totals] + ["n = 0"]
        for start, stop in ((0, self.count // self.tile * self.tile), (self.count // self.tile * self.tile, self.count)):
            size = min(self.tile, stop - start)
            if not size:
                continue
            space[f"part{size}"] = self.parts[size]
            read = [f"A.dot({v(self.before[k])})" if k in self.before else v(k) + "[a:b]" * (k in self.tiled) for k in group.given]
            memory = [o(k) + "[a:b]" if k in self.written else "None" for k in group.written]
            lines = ["b = a + " + str(size), f"A = {v(self.matrix)}[a:b]", f"t = part{size}({', '.join([*read, *memory])})"]
            lines += ["if t is None: return None", f"{''.join([f't{k}, ' for k in group.left])} = t"]
            lines += [f"{q(k)}.append(t{k})" for k in group.totals]
            lines += [f"dot(t{r}, A, {p(k)}[n])" for k, r in self.after.items()] + ["n += 1"]
            steps += [f"for a in range({start}, {stop}, {size}):", *["    " + line for line in lines]]
        made = [f"{p(k)}.sum(0)" if k in self.after else f"add(array({q(k)}))" if k in group.totals else o(k) for k in self.left]
        head = f"def call({', '.join([*[v(k) for k in self.given], *[o(k) for k in self.written]])}):\n"
        text = head + "".join([f"    {line}\n" for line in [*steps, f"return ({', '.join(made)},)"]])
        exec(compile(text, "<tapegrad rows>", "exec"), space)
        return space["call"]

    def __call__(self, *given: Any) -> Any:
        """As of a group."""
        return self.call(*given)


def of_rows(group: Group, tiled: set, n: int) -> Group:
    """The group for n rows."""
    part = copy.copy(group)
    part.shown = dict(group.shown)
    for k in tiled:
        numpys, shape, _, dtype, owns = group.shown[k]
        part.shown[k] = (numpys, (n, *shape[1:]), packed((n, *shape[1:]), dtype.itemsize), dtype, owns)
    part.sums = {k: Summed(d.k, d.axes, (n, *d.shape[1:])) for k, d in group.sums.items()}
    part.code, part.pool = None, []
    return part


def joined(reader: Any) -> None:
    """Puts groups together with products of a matrix before and after them."""
    order, kinds = reader.order, reader.kinds
    place = {k: n for n, (k, _) in enumerate(order)}
    gone: set = set()
    for n, (key, i) in enumerate(order):
        if i.prim is not GROUP:
            continue
        found = tiles_of(i.params, kinds, reader)
        if found is None:
            continue
        gone.update([place[k] for k in (*found.before, *found.after)])
        order[n] = (key, Instruction(GROUP, tuple(found.given), found))
        reader.groups[reader.groups.index(i.params)] = found
        counted = [k for k in (*found.before, *found.after) if math.prod(kinds.shown[k][1]) >= kinds.small]
        reader.alone["matmul"] = reader.alone.get("matmul", 0) - len(counted)
    reader.alone = {name: n for name, n in reader.alone.items() if n}
    reader.order = [item for n, item in enumerate(order) if n not in gone]


def tiles_of(group: Group, kinds: Any, reader: Any) -> Rows | None:
    tiled = of_first_axis(group, kinds)
    if tiled is None:
        return None
    code = reader.by_number
    before: dict = {}
    for z in group.arrays:
        i = code.get(z)
        if z in tiled and i is not None and i.prim is matmul.prim and z not in kinds.ends and is_matrix(i.args[0], kinds):
            if all([u in group.values or u in group.sums for u in kinds.users[z]]) and kinds.shown[z][4]:
                before[z] = (same_matrix(i.args[0], kinds), i.args[1])
    after: dict = {}
    for r in group.stored:
        users = kinds.users.get(r, ())
        if r in kinds.ends or len(kinds.shown[r][1]) != 1 or not users:
            continue
        found = {u: matrix_after(code[u], r, kinds, code) for u in users if u not in group.values and u not in group.sums}
        if found and all([m is not None for m in found.values()]):
            after |= {u: (r, same_matrix(m, kinds)) for u, m in found.items()}
    for matrix in dict.fromkeys([*[args[0] for args in before.values()], *[m for _, m in after.values()]]):
        first = {z: args[1] for z, args in before.items() if args[0] == matrix}
        last = {u: r for u, (r, m) in after.items() if m == matrix}
        last = {u: r for u, r in last.items() if all([v in last or v in group.values or v in group.sums for v in kinds.users[r]])}
        _, shape, _, dtype, _ = kinds.shown[matrix]
        if len(first) + len(last) > 1 and math.prod(shape) * dtype.itemsize >= WORTH and shape[0] == next(iter(rows_of(group, tiled))):
            return Rows(group, matrix, first, last, tiled)
    return None


def same_matrix(a: int, kinds: Any) -> int:
    """The first constant that is the same matrix: each use of an array that is read-only may have noted one."""
    v = kinds.program.constants.get(a)
    if v is None:
        return a
    like = [k for k, w in kinds.program.constants.items() if kinds.shown[k][:4] == kinds.shown[a][:4]]
    return next(k for k in sorted(like) if kinds.program.constants[k] is v or np.array_equal(kinds.program.constants[k], v))


def rows_of(group: Group, tiled: set) -> set:
    return {group.shown[k][1][0] for k in tiled}


def is_matrix(a: int, kinds: Any) -> bool:
    """Is it a matrix that is there from the beginning, row by row?"""
    numpys, shape, strides, dtype, _ = kinds.shown[a]
    return a in kinds.there and bool(numpys) and len(shape) == 2 and strides == packed(shape, dtype.itemsize) and dtype.kind == "f"


def matrix_after(i: Instruction, r: int, kinds: Any, code: dict) -> int | None:
    """The matrix that a vector is multiplied by, r A or A' r."""
    if i.prim is not matmul.prim or i.args[0] == i.args[1]:
        return None
    if i.args[0] == r:
        return i.args[1] if is_matrix(i.args[1], kinds) else None
    turned = code.get(i.args[0])
    view = None if turned is None or not is_matrix(turned.args[0], kinds) else viewed(turned)
    if view is None or of_view(view, kinds.shown[turned.args[0]][1]) != transposed(kinds.shown[turned.args[0]][1]):
        return None
    return turned.args[0]


def transposed(shape: tuple) -> tuple:
    """The shape and the map of a transpose."""
    return shape[::-1], ((0, (0, 1)), (0, (1, 0)))


def of_first_axis(group: Group, kinds: Any) -> set | None:
    """What the group reads or makes row by row, if it is all work on rows by themselves; None if it is not."""
    tiled: set = set()
    count = {group.shown[k][1][:1] for k in group.values} | {d.shape[:1] for d in group.sums.values()}
    if len(count) != 1 or group.forms or () in count:
        return None
    for k, d in group.values.items():
        shape = group.shown[k][1]
        if type(d) is Moved and not (d.is_view and d.form is None and d.pieces[0].box is None and d.sources()[0][1] == whole(shape)):
            return None
        if type(d) not in (Element, Moved) or group.shown[k][2] != packed(shape, group.shown[k][3].itemsize):
            return None
        tiled.add(k)
        for a, m in d.sources():
            along = [j for j, (_, steps) in enumerate(m) if steps[0]]
            if not along or kinds.is_constant(a):
                continue
            if along != [0] or group.shown[a][2] != packed(group.shown[a][1], group.shown[a][3].itemsize):
                return None
            tiled.add(a)
    for k, d in group.sums.items():
        if k not in group.totals or d.k not in group.values:
            return None
    return tiled
