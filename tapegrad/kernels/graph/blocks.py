"""Arrays as single nodes of the graph, so that large matrices are not unrolled.

A node has a shape; () is a number, anything else a block. The elementwise operations, simplifications and
derivative rules of the graph hold for blocks unchanged. An operand with shape () acts on all elements. It may
also stand where a block is expected: the zero of the graph is the zero of any shape. The operations here move
elements or are linear algebra. Their derivatives use the same operations, so any order of derivative is a
repetition.

An element of a block has a name, a number above ELEMENT, which costs nothing to make. Slices, transposes,
stacking and writes into an array move elements; NumPy applies them to arrays of names. `pack` finds the
fewest strided pieces in such an array: a view of one block, or a block assembled from several."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .lengths import length_node

ELEMENT, BITS = 1 << 60, 28
MASK = (1 << BITS) - 1


@dataclass
class Limits:
    """Limits of unrolling into scalars.

    Programs of at most `nodes` nodes are unrolled, because they run faster. In longer ones arrays of at most
    `elements` are unrolled, arrays below `row` even as parts of a block, and matrix products of at most
    `products` multiplications."""

    nodes: float = 12_000
    elements: float = 64
    row: float = 9
    products: float = 600

    def large(self, n: int, from_block: bool = False) -> bool:
        return n > self.elements or (from_block and n >= self.row)


LIMITS = Limits()
UNROLLED = Limits(math.inf, math.inf, math.inf, math.inf)


@dataclass(frozen=True)
class BlockPiece:
    """Strided elements of source number `source`, and their places in the flat block."""

    source: int
    dims: tuple
    to: int
    to_strides: tuple
    at: int
    at_strides: tuple

    def places(self) -> np.ndarray:
        return strided(self.to, self.to_strides, self.dims)

    def origins(self) -> np.ndarray:
        return strided(self.at, self.at_strides, self.dims)


def strided(offset: int, strides: tuple, dims: tuple) -> np.ndarray:
    out = np.full(dims, offset, np.int64)
    for axis, (n, s) in enumerate(zip(dims, strides, strict=True)):
        out += (s * np.arange(n)).reshape((-1,) + (1,) * (len(dims) - axis - 1))
    return out


def element_total(shape: tuple) -> int:
    return math.prod(shape)


def injective(dims: tuple, strides: tuple) -> bool:
    """Return whether different indices reach different elements, along the axes with a stride."""
    reach = 0
    for s, n in sorted((abs(s), n) for s, n in zip(strides, dims, strict=True) if s and n > 1):
        if s <= reach:
            return False
        reach += s * (n - 1)
    return True


def contiguous_strides(shape: tuple) -> tuple:
    return tuple([element_total(shape[k + 1 :]) for k in range(len(shape))])


def triangle_ones(n: int, lower: bool, diagonal: float) -> np.ndarray:
    """Return a triangle of ones, with `diagonal` on the diagonal."""
    out = np.tri(n) if lower else np.tri(n).T.copy()
    np.fill_diagonal(out, diagonal)
    return out


class Blocks:
    """The part of Graph that handles blocks."""

    shape: Any
    op: Any
    const: Any
    zero: Any
    args: Any
    boolean: Any
    compare: Any
    select: Any
    raw: Any
    one: Any
    meta: Any
    node: Any
    mul: Any
    memo: Any
    vectors: Any

    # --- names of elements ---

    def names(self, i: int, shape: tuple | None = None) -> np.ndarray:
        """Return the names of the elements of block i; a number stands for each element of `shape`."""
        dims = self.shape[i]
        if not dims:
            return np.full(() if shape is None else shape, i, np.int64)
        op = self.op[i]
        if op in ("view", "assemble"):
            out = self._moved_names(i, lambda s: s)
        elif op == "array":
            out = np.array([self.const(x) for x in self.numbers(i).flat], np.int64)
        else:
            out = ELEMENT + (i << BITS) + np.arange(element_total(dims))
        return out.reshape(dims if shape is None else shape)

    def _moved_names(self, i: int, new) -> np.ndarray:
        """Return the names in a view or assembly whose sources are replaced by new(source); zero in gaps."""
        out = np.full(element_total(self.shape[i]), self.zero, np.int64)
        for piece in self.pieces(i):
            s = self.args[i][piece.source]
            source = self.names(new(s), self.shape[s]).ravel()
            out[piece.places()] = source[piece.origins()]
        return out

    def node_of(self, name: int) -> int:
        """Return the node of a named element."""
        if name < ELEMENT:
            return name
        block, k = (name - ELEMENT) >> BITS, name & MASK
        if self.op[block] in ("array", "view", "assemble"):
            return self.node_of(int(self.names(block).flat[k]))
        if self.boolean(block):
            return self.compare("ne", self.node_of(int(self.names(self.as_real(block)).flat[k])), self.zero)
        if self.gated_elements(block) and block != self.as_real(self.args[block][0]):
            return self.select(
                *[self.node_of(int(self.names(j, self.shape[block]).flat[k])) for j in self.args[block]]
            )
        return self.raw("elem", block, shape=(), meta=k)

    def nodes_of(self, names: np.ndarray) -> np.ndarray:
        """Replace each name in the array by a node."""
        if not (names >= ELEMENT).any():
            return names
        return np.array([self.node_of(int(x)) for x in names.flat], np.int64).reshape(names.shape)

    def boolean_name(self, name: int) -> bool:
        return self.boolean(name if name < ELEMENT else (name - ELEMENT) >> BITS)

    def as_real(self, i: int) -> int:
        return self.select(i, self.one, self.zero)

    def numbers(self, i: int) -> np.ndarray:
        """Return the values of a constant block."""
        return np.frombuffer(self.meta[i]).reshape(self.shape[i])

    def array(self, values: np.ndarray) -> int:
        """Return a constant block."""
        values = np.ascontiguousarray(values, float) + 0.0
        return self.raw("array", shape=values.shape, meta=values.tobytes())

    def vector(self, names: np.ndarray) -> int:
        """Return the block with these elements, which is packed once."""
        key = names.tobytes()
        if key not in self.vectors:
            self.vectors[key] = self.pack(names)
        return self.vectors[key]

    def entry(self, block: int, k: int) -> int:
        """Return element k of a vector, where node k is a whole number; nan out of range."""
        if self.op[k] != "const":
            return self.raw("entry", block, k, shape=())
        (known,), (n,) = self.args[k], self.shape[block]
        if not (0 <= known < n and known == int(known)):
            return self.const(math.nan)
        return self.node_of(int(self.names(block)[int(known)]))

    def entries(self, names: np.ndarray, axis: int, k: int) -> np.ndarray:
        """Return the elements k along an axis."""
        rows = np.moveaxis(names, axis, -1)
        found = [self.entry(self.vector(row), k) for row in rows.reshape(-1, rows.shape[-1])]
        return np.array(found, np.int64).reshape(rows.shape[:-1])

    # --- blocks from names ---

    def pack(self, names: np.ndarray) -> int:
        """Return the block with these elements."""
        shape, flat = names.shape, names.ravel()
        if not shape:
            return self.node_of(int(flat[0]))
        if self.boolean_name(int(flat[0])):
            return self._packed_bools(names)
        inside = flat >= ELEMENT
        if not inside.any() and all(self.op[i] == "const" for i in flat):
            return self.array(np.array([self.args[i][0] for i in flat]).reshape(shape))
        source, k = np.where(inside, (flat - ELEMENT) >> BITS, flat), np.where(inside, flat & MASK, 0)
        if (source == source[0]).all():
            found = self._view(int(source[0]), k.reshape(shape))
            if found is not None:
                return found
        self._name_constants(source, k, inside, shape)
        return self._assembled(source, k, shape)

    def pack_or_zero(self, names: np.ndarray) -> int:
        return self.zero if (names == self.zero).all() else self.pack(names)

    def _packed_bools(self, names: np.ndarray) -> int:
        whole = int(names.flat[0])
        if whole >= ELEMENT:
            block = (whole - ELEMENT) >> BITS
            if self.shape[block] == names.shape and (names == self.names(block)).all():
                return block
        flat = np.empty(names.size, np.int64)
        made = {}
        for n, name in enumerate(names.flat):
            block = (int(name) - ELEMENT) >> BITS if name >= ELEMENT else int(name)
            if block not in made:
                made[block] = (
                    self.names(self.as_real(block)).ravel() if name >= ELEMENT else [self.as_real(block)]
                )
            flat[n] = made[block][int(name) & MASK if name >= ELEMENT else 0]
        return self.compare("ne", self.pack(flat.reshape(names.shape)), self.zero)

    def _view(self, source: int, k: np.ndarray) -> int | None:
        shape, first = k.shape, int(k.flat[0])
        strides = tuple(
            [int(np.take(k, 1, axis).flat[0]) - first if n > 1 else 0 for axis, n in enumerate(shape)]
        )
        if not injective(shape, strides) or not np.array_equal(k, strided(first, strides, shape)):
            return None
        if self.shape[source] == shape and first == 0 and np.array_equal(k, np.arange(k.size).reshape(shape)):
            return source
        return self.raw("view", source, shape=shape, meta=(first, strides))

    def _name_constants(self, source: np.ndarray, k: np.ndarray, inside: np.ndarray, shape: tuple) -> None:
        """Make nonzero constants elements of one constant block."""
        at = [n for n in np.flatnonzero(~inside) if self.op[source[n]] == "const" and source[n] != self.zero]
        if not at:
            return
        values = np.zeros(source.size)
        values[at] = [self.args[source[n]][0] for n in at]
        source[at], k[at] = self.array(values.reshape(shape)), at

    def _assembled(self, source: np.ndarray, k: np.ndarray, shape: tuple) -> int:
        """Assemble a block from runs of elements in each row; equal runs at equal distances form one
        piece."""
        made: list[list] = []  # source, length, step, to, at, count, distance to, distance at
        last = {}
        columns = shape[-1]
        for to, length, s, at, step in contiguous_runs(source, k, columns, self.zero):
            key = s, length, step
            p = last.get(key)
            if p is not None and p[5] == 1 and injective((2, length), (at - p[4], step)):
                p[5:] = 2, to - p[3], at - p[4]
            elif (
                p is not None
                and p[5] > 1
                and to == p[3] + p[5] * p[6]
                and at == p[4] + p[5] * p[7]
                and injective((p[5] + 1, p[1]), (p[7], p[2]))
            ):
                p[5] += 1
            else:
                p = last[key] = [s, length, step, to, at, 1, 0, 0]
                made.append(p)
        sources = sorted({p[0] for p in made})
        pieces = []
        for s, length, step, to, at, count, down, across in made:
            dims, places, origins = (
                ((length,), (1,), (step,)) if count == 1 else ((count, length), (down, 1), (across, step))
            )
            pieces.append(BlockPiece(sources.index(s), dims, to, places, at, origins))
        return self.raw("assemble", *sources, shape=shape, meta=tuple(pieces))

    def pieces(self, i: int) -> tuple:
        if self.op[i] == "assemble":
            return self.meta[i]
        at, strides = self.meta[i]
        shape = self.shape[i]
        return (BlockPiece(0, shape, 0, contiguous_strides(shape), at, strides),)

    def spread(self, i: int, shape: tuple) -> int:
        """Return node i as a block of this shape."""
        return i if self.shape[i] == shape else self.pack(self.names(i, shape))

    def remade(self, i: int, x: list[int]) -> int:
        """Return node i with other operands."""
        op, meta = self.op[i], self.meta[i]
        if op in ("view", "assemble"):
            new = dict(zip(self.args[i], x, strict=True))
            return self.pack(self._moved_names(i, new.get).reshape(self.shape[i]))
        if op == "elem":
            return self.node_of(int(self.names(x[0], self.shape[self.args[i][0]]).flat[meta]))
        if op == "entry":
            return self.entry(self.spread(x[0], self.shape[self.args[i][0]]), x[1])
        if op == "sum":
            return self.sum(self.spread(x[0], self.shape[self.args[i][0]]), meta)
        if op in MAKERS:
            shaped = [
                j if j == self.zero else self.spread(j, self.shape[old])
                for j, old in zip(x, self.args[i], strict=True)
            ]
            return MAKERS[op](self, *shaped, *(() if op == "matmul" else meta or ()))
        return self.node(op, *x)

    # --- gates: select(c, a, 0), whose zeros are exact even where a is nan ---

    def gate(self, i: int):
        """Return (c, does a come first?, a) if a single number c gates i, otherwise None."""
        op, x = self.op[i], self.args[i]
        if op == "select" and self.zero in x[1:] and not self.shape[x[0]]:
            return x[0], x[2] == self.zero, self.spread(x[1] if x[2] == self.zero else x[2], self.shape[i])
        if op in ("view", "assemble"):
            gates = [self.gate(s) for s in x]
            if all(gates) and len({gate[:2] for gate in gates}) == 1:
                return *gates[0][:2], self.remade(i, [gate[2] for gate in gates])
        return None

    def through(self, i: int, make: Callable[[int], int]) -> int | None:
        """Apply the linear operation `make` with i's gate outside; None without a gate."""
        found = self.gate(i)
        if found is None:
            return None
        c, first, a = found
        return self.select(c, make(a), self.zero) if first else self.select(c, self.zero, make(a))

    def gated_elements(self, i: int) -> bool:
        """Return whether single elements of i are gated."""
        op, x = self.op[i], self.args[i]
        if op in ("view", "assemble"):
            return any(self.gated_elements(s) for s in x)
        return op == "select" and self.zero in x[1:]

    # --- operations ---

    def sum(self, x: int, axes: tuple | None = None) -> int:
        """Return the sum of a block over these axes."""
        if x == self.zero:
            return x
        shape = self.shape[x]
        axes = tuple(range(len(shape))) if axes is None else axes
        rest = tuple([n for k, n in enumerate(shape) if k not in axes])
        if self.op[x] == "view" and not self.shape[self.args[x][0]]:
            return self.spread(
                self.mul(self.const(element_total(shape) // element_total(rest)), self.args[x][0]), rest
            )
        found = self.through(x, lambda a: self.sum(a, axes))
        return self.raw("sum", x, shape=rest, meta=axes) if found is None else found

    def matmul(self, a: int, b: int) -> int:
        if self.zero in (a, b):
            return self.zero
        if self.identity(a):
            return b
        if self.identity(b):
            return a
        found = self.through(a, lambda a: self.matmul(a, b))
        if found is None:
            found = self.through(b, lambda b: self.matmul(a, b))
        if found is None:
            found = self.sparse_product(a, b)
        if found is None:
            gates = self.gated_elements(a), self.gated_elements(b)
            found = self.raw("matmul", a, b, shape=(self.shape[a][0], self.shape[b][1]), meta=gates)
        return found

    def sparse_product(self, a: int, b: int) -> int | None:
        """Return the product of a matrix, most of whose rows (or columns) have one element at most; or None.

        Its other rows are multiplied without the columns in which all of them are zero."""
        x, y = self.names(a), self.names(b)
        found = self._product_by_rows(x, y)
        if found is None:
            found = self._product_by_rows(y.T, x.T)
            found = None if found is None else found.T
        return None if found is None else self.pack_or_zero(found)

    def _product_by_rows(self, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        """Return the names of the product of matrices with the names x and y."""
        there = x != self.zero
        count, inner = there.sum(axis=1), there.any(axis=0)
        if 2 * (count < 2).sum() < len(count) and 2 * inner.sum() > len(inner):
            return None
        out = np.full((len(x), y.shape[1]), self.zero, np.int64)
        (one,) = np.nonzero(count == 1)
        at = there[one].argmax(axis=1)
        out[one] = y[at]
        (scaled,) = np.nonzero(x[one, at] != self.one)
        if scaled.size:
            rows, factors = one[scaled], x[one[scaled], at[scaled]]
            shape = rows.size, y.shape[1]
            factor = self.pack(np.repeat(factors[:, None], shape[1], axis=1))
            out[rows] = self.names(self.mul(factor, self.pack_or_zero(y[at[scaled]])), shape)
        (many,) = np.nonzero(count > 1)
        if many.size:
            inner = there[many].any(axis=0)
            left, right = self.pack(x[many][:, inner]), self.pack_or_zero(y[inner])
            out[many] = self.names(self.matmul(left, right), (many.size, y.shape[1]))
        return out

    def identity(self, i: int) -> bool:
        return self.op[i] == "array" and np.array_equal(self.numbers(i), np.eye(len(self.numbers(i))))

    def cholesky(self, a: int) -> int:
        """Return the lower Cholesky factor; only the lower triangle of a is read."""
        return self.raw("cholesky", a, shape=self.shape[a])

    def trisolve(self, t: int, b: int, lower: bool, transpose: bool, unit: bool) -> int:
        """Return t^-1 b, or t^-T b, for a triangle of t; `unit` takes its diagonal as 1."""
        if b == self.zero:
            return b
        found = self.through(b, lambda b: self.trisolve(t, b, lower, transpose, unit))
        return (
            self.raw("trisolve", t, b, shape=self.shape[b], meta=(lower, transpose, unit))
            if found is None
            else found
        )

    def lu(self, a: int) -> int:
        """Return the pivoted factors of a, and for each pair of rows whether it was exchanged.

        Only lusolve and logdet may use them; these have the derivatives with respect to a."""
        return self.raw("lu", a, shape=(2, *self.shape[a]))

    def lusolve(self, a: int, b: int) -> int:
        """Return a^-1 b, by the factors of a's transpose if only these exist."""
        turned, shape = self.pack(self.names(a).T), (2, *self.shape[a])
        if ("lu", (turned,), shape, None) in self.memo and ("lu", (a,), shape, None) not in self.memo:
            return self.lusolve_with(turned, self.lu(turned), b, True)
        return self.lusolve_with(a, self.lu(a), b, False)

    def lusolve_with(self, a: int, f: int, b: int, transpose: bool) -> int:
        """Return a^-1 b, or a^-T b, given f = lu(a)."""
        if b == self.zero:
            return b
        found = self.through(b, lambda b: self.lusolve_with(a, f, b, transpose))
        return (
            self.raw("lusolve", a, f, b, shape=self.shape[b], meta=(transpose,)) if found is None else found
        )

    def logdet(self, a: int, f: int) -> int:
        """Return log |det a|, given f = lu(a)."""
        return self.raw("logdet", a, f, shape=())

    def det(self, a: int, f: int) -> int:
        return self.raw("det", a, f, shape=())

    def detsign(self, f: int) -> int:
        return self.raw("detsign", f, shape=())

    # --- derivatives ---

    def pulled_moves(self, i: int, bar: int) -> list[tuple[int, int]]:
        """`pulled` for operations that move elements: the adjoints move back."""
        if self.op[i] == "elem":
            (x,) = self.args[i]
            names = np.full(self.shape[x], self.zero, np.int64)
            names.flat[self.meta[i]] = bar
            return [(x, self.pack_or_zero(names))]
        if self.op[i] == "entry":
            x, k = self.args[i]
            places = self.array(np.arange(self.shape[x][0]))
            return [(x, self.select(self.compare("eq", places, k), bar, self.zero))]
        bars = self.names(bar, self.shape[i]).ravel()
        shares = []
        homes: dict[int, list] = {}  # elements that are read several times have a place in several
        for piece in self.pieces(i):
            s = self.args[i][piece.source]
            names, origins = bars[piece.places()], piece.origins()
            repeated = tuple(
                [k for k, stride in enumerate(piece.at_strides) if stride == 0 and piece.dims[k] > 1]
            )
            if repeated:
                total = self.zero if (names == self.zero).all() else self.sum(self.pack(names), repeated)
                rest = tuple([n for k, n in enumerate(piece.dims) if k not in repeated])
                names = self.names(total, rest)
                for axis in reversed(repeated):
                    origins = np.take(origins, 0, axis)
            if not self.shape[s]:
                shares.append((s, self.node_of(int(names.reshape(-1)[0]))))
                continue
            free = [home for home in homes.setdefault(s, []) if (home[origins] == self.zero).all()]
            if not free:
                free = [np.full(element_total(self.shape[s]), self.zero, np.int64)]
                homes[s] += free
            free[0][origins] = names
        return shares + [
            (s, self.pack_or_zero(home.reshape(self.shape[s])))
            for s, found in homes.items()
            for home in found
        ]

    def fitted(self, share: int, i: int, j: int) -> int:
        """Return the share of operand j of an elementwise node i, in the shape of j."""
        if self.shape[j] or not self.shape[i] or share == self.zero:
            return share
        return (
            self.sum(share)
            if self.shape[share]
            else self.mul(self.const(element_total(self.shape[i])), share)
        )

    def pushed_moves(self, i: int, t: dict) -> int:
        if self.op[i] == "elem":
            (x,) = self.args[i]
            return self.node_of(int(self.names(t[x], self.shape[x]).flat[self.meta[i]]))
        if self.op[i] == "entry":
            x, k = self.args[i]
            return self.zero if t[x] == self.zero else self.entry(self.spread(t[x], self.shape[x]), k)
        return self.pack_or_zero(self._moved_names(i, t.get).reshape(self.shape[i]))


def contiguous_runs(source: np.ndarray, k: np.ndarray, columns: int, zero: int):
    """Yield (place, length, source, first element, step) of the runs in each row."""
    same = source[1:] == source[:-1]
    step = np.diff(k)
    n, size = 0, source.size
    while n < size:
        s = int(source[n])
        if s == zero:
            n += 1
            continue
        stop, end = n + 1, n - n % columns + columns
        d = 0
        if stop < end and same[n]:
            d = int(step[n])
            while stop < end and same[stop - 1] and step[stop - 1] == d:
                stop += 1
        yield n, stop - n, s, int(k[n]), d
        n = stop


MAKERS: dict[str, Callable] = {
    "matmul": Blocks.matmul, "cholesky": Blocks.cholesky, "trisolve": Blocks.trisolve, "lu": Blocks.lu,
    "lusolve": Blocks.lusolve_with,
    "logdet": Blocks.logdet, "det": Blocks.det, "detsign": Blocks.detsign, "length": length_node,
}  # fmt: skip
MOVES = frozenset(("elem", "entry", "view", "assemble"))
WHOLE = frozenset((*MAKERS, "sum"))  # derivatives: trace/whole_matrices.py, of lengths: lengths.py
BLOCK_OPS = MOVES | WHOLE
