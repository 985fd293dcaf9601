"""The entries of a sparse matrix from its products with sums of unit vectors.

`products` is one flat array: first the products of the column colours, of shape (colours, m), then those of
the row colours, of shape (colours, n). If each entry is alone in a product, `table` holds its place. In an
acyclic colouring, some entries become alone only after others have been subtracted."""

import copy
from typing import Any

import numba
import numpy as np
import scipy.sparse

from .._core.arrays import to_host, xp_of
from ._coloring import Coloring, mirror_positions


@numba.njit(cache=True)
def peeled(ip, ix, rows, mirror, colour, colours):  # pragma: no cover (compiled)
    """Return the order in which substitution finds the entries of a symmetric matrix.

    Each step holds four numbers: the entry, its mirror image, the sum that holds the entry alone, and the sum
    to subtract it from (-1: none). Entries are counted row by row. `rows` and `mirror` are the row and the
    mirror image of each entry."""
    n = ip.size - 1
    count = np.zeros(colours * n, np.int64)  # unknown entries of each sum
    for i in range(n):
        for a in range(ip[i], ip[i + 1]):
            count[colour[ix[a]] * n + i] += 1
    done = np.zeros(ix.size, np.bool_)
    steps = np.empty((ix.size, 4), np.int64)
    q = 0
    stack = np.empty(2 * ix.size + n, np.int64)
    top = 0
    for i in range(n):
        for a in range(ip[i], ip[i + 1]):
            j = ix[a]
            if j == i:
                steps[q, 0], steps[q, 1], steps[q, 2], steps[q, 3] = a, a, colour[i] * n + i, -1
                done[a] = True
                q += 1
            elif count[colour[j] * n + i] == 1:
                stack[top] = a
                top += 1
    while top:
        top -= 1
        a = stack[top]
        if done[a]:
            continue
        i, j = rows[a], ix[a]
        other = colour[i] * n + j
        steps[q, 0], steps[q, 1], steps[q, 2], steps[q, 3] = a, mirror[a], colour[j] * n + i, other
        done[a] = done[mirror[a]] = True
        q += 1
        count[other] -= 1
        if count[other] == 1:
            for b in range(ip[j], ip[j + 1]):
                if not done[b] and ix[b] != j and colour[ix[b]] == colour[i]:
                    stack[top] = b
                    top += 1
    return steps[:q]


@numba.njit(cache=True)
def substitute_sums(sums, steps, out):  # pragma: no cover (compiled)
    for k in range(steps.shape[0]):
        h = sums[steps[k, 2]]
        out[steps[k, 0]] = h
        out[steps[k, 1]] = h
        if steps[k, 3] >= 0:
            sums[steps[k, 3]] -= h


def direct(p: scipy.sparse.csr_array, coloring: Coloring) -> np.ndarray:
    """Return the place of each entry in the products, row by row."""
    m, n = p.shape
    row, column = np.repeat(np.arange(m), np.diff(p.indptr)), p.indices.astype(np.int64)
    if coloring.rows is None:
        places = coloring.columns[column] * m + row
        if coloring.kind == "star":  # an entry is alone at its own place or at its mirror image
            alone = np.bincount(places, minlength=0)[places] == 1
            places = np.where(alone, places, coloring.columns[row] * m + column)
        return places
    by_rows = coloring.counts()[0] * m + coloring.rows[row] * n + column
    if coloring.columns is None:
        return by_rows
    by_columns = coloring.columns[column] * m + row
    # both: use the sum of its column colour if the entry is alone there
    coloured = coloring.columns[column] >= 0
    by_columns = np.where(coloured, by_columns, 0)
    alone = coloured & (np.bincount(by_columns[coloured], minlength=1)[by_columns] == 1)
    return np.where(alone, by_columns, by_rows)


class Entries:
    """The entries of one pattern under one colouring, in the order of one format."""

    def __init__(self, pattern: scipy.sparse.csr_array, coloring: Coloring, format: str):
        self.pattern, self.format, self.steps = pattern, format, None
        self.table: Any = None
        order = None
        if format == "csc":
            numbered = scipy.sparse.csr_array(
                (np.arange(pattern.nnz), pattern.indices, pattern.indptr), shape=pattern.shape
            ).tocsc()
            order, self.structure = numbered.data, (numbered.indices, numbered.indptr)
        elif format == "coo":
            row = np.repeat(np.arange(pattern.shape[0], dtype=pattern.indices.dtype), np.diff(pattern.indptr))
            self.structure = row, pattern.indices
        else:
            self.structure = pattern.indices, pattern.indptr
        if coloring.kind == "acyclic":
            rows, mirror = (
                np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr)),
                mirror_positions(pattern.indptr, pattern.indices),
            )
            self.steps = peeled(
                pattern.indptr, pattern.indices, rows, mirror, coloring.columns, coloring.counts()[0]
            )
        else:
            self.table = direct(pattern, coloring)
            self.table = self.table if order is None else self.table[order]
        self.order = order  # places of the format's entries in the row order
        self.empty: Any = None  # a matrix without entries
        self.there: Any = None  # table and structure on the device

    def values(self, products):
        """Return the entries, given all products as one flat array."""
        if self.table is not None:
            table = self.table if xp_of(products) is np else self.on_device(xp_of(products))[0]
            return products.take(table)
        out = np.empty(self.pattern.nnz, products.dtype)
        sums = products.get() if xp_of(products) is not np else products.copy()
        substitute_sums(sums, self.steps, out)
        out = out if self.order is None else out[self.order]
        return out if xp_of(products) is np else xp_of(products).asarray(out)

    def ordered(self, entries: np.ndarray) -> np.ndarray:
        """Convert entries from the row order to the order of the format."""
        return entries if self.order is None else entries[self.order]

    def on_device(self, library) -> tuple:
        if self.there is None:
            table = None if self.table is None else library.asarray(self.table)
            self.there = table, [library.asarray(a) for a in self.structure]
        return self.there

    def matrix(self, data, module=scipy.sparse):
        """Return a sparse matrix of these entries, in memory of its own."""
        if module is scipy.sparse:
            if self.empty is None:
                self.empty = getattr(scipy.sparse, f"{self.format}_array")(
                    self.pattern.shape, dtype=data.dtype
                )
            found = copy.copy(self.empty)  # a new SciPy matrix would check all indices
            found.data = to_host(data)  # (f may compute on a device, though x is on the host)
            if self.format == "coo":
                found.coords = tuple([a.copy() for a in self.structure])
            else:
                found.indices, found.indptr = [a.copy() for a in self.structure]
                found.has_sorted_indices = found.has_canonical_format = True
            return found
        made = getattr(module, f"{self.format}_matrix")
        structure = [a.copy() for a in self.on_device(xp_of(data))[1]]
        return made(
            (data, structure) if self.format == "coo" else (data, *structure), shape=self.pattern.shape
        )
