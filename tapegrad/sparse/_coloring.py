"""Colouring of sparsity patterns: one product computes all columns (or rows) of one colour.

A product uses the sum of the unit vectors of a colour. The kinds are:

- `columns`, `rows`: two columns (rows) of one colour share no row (column).
- `both`: products from the left compute some rows; products from the right compute the rest.
- `star`, for symmetric patterns: each entry is alone in one of its two places.
- `acyclic`, for symmetric patterns: the entries between two colours form a forest, solved from its leaves.

The colouring is greedy: each vertex takes the first free colour, in one of five orders. Numba compiles the
loops and stores them on disk. References: Gebremedhin, Manne and Pothen, SIAM Review 47 (2005), for the
kinds; Gebremedhin, Tarafdar, Manne and Pothen, SIAM J. Sci. Comput. 29 (2007), for star and acyclic."""

from typing import Any

import numba
import numpy as np
import scipy.sparse

from .._core.errors import ArgumentError
from ._pattern import given_pattern

KINDS = ("columns", "rows", "both", "star", "acyclic")
ORDERS = ("natural", "largest_first", "smallest_last", "incidence_degree", "random")


@numba.njit(cache=True)
def neighbours(ip, ix, jp, jx):  # pragma: no cover (compiled)
    """Return (bounds, members): for each column, the columns that share a row with it."""
    n = jp.size - 1
    mark = np.full(n, -1, np.int64)
    bounds = np.zeros(n + 1, np.int64)
    for fill in range(2):
        members = np.empty(bounds[n] if fill else 0, np.int64)
        p = 0
        mark[:] = -1
        for c in range(n):
            mark[c] = c
            for a in range(jp[c], jp[c + 1]):
                r = jx[a]
                for b in range(ip[r], ip[r + 1]):
                    d = ix[b]
                    if mark[d] != c:
                        mark[d] = c
                        if fill:
                            members[p] = d
                        p += 1
            bounds[c + 1] = p
    return bounds, members


@numba.njit(cache=True)
def heap_push(heap, size, key):  # pragma: no cover (compiled)
    """Insert a key into a binary min-heap of `size` numbers."""
    i = size
    while i > 0 and heap[(i - 1) // 2] > key:
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    heap[i] = key


@numba.njit(cache=True)
def least(heap, size):  # pragma: no cover (compiled)
    """Pop the smallest key of the heap."""
    found, key, i, c = heap[0], heap[size - 1], 0, 1
    while c < size - 1:
        if c + 1 < size - 1 and heap[c + 1] < heap[c]:
            c += 1
        if heap[c] >= key:
            break
        heap[i] = heap[c]
        i, c = c, 2 * c + 1
    heap[i] = key
    return found


@numba.njit(cache=True)
def by_degree(bounds, members, last):  # pragma: no cover (compiled)
    """Return an order of the vertices of a graph by degree.

    `last` is the order "smallest last". It is filled from the end; each step takes a vertex with the fewest
    neighbours that remain. Otherwise the order is filled from the start; each step takes a vertex with the
    most neighbours already taken. The first vertex wins a tie."""
    n = bounds.size - 1
    degree = np.zeros(n, np.int64)
    step = 1 if last else -1
    heap, size = np.empty(n + members.size + 1, np.int64), 0
    for v in range(n):
        if last:
            degree[v] = bounds[v + 1] - bounds[v]
        heap_push(heap, size, step * degree[v] * n + v)
        size += 1
    order = np.empty(n, np.int64)
    taken = np.zeros(n, np.bool_)
    k = 0
    while k < n:
        v = least(heap, size) % n
        size -= 1
        if taken[v]:  # a stale entry of the heap
            continue
        taken[v] = True
        order[n - 1 - k if last else k] = v
        k += 1
        for a in range(bounds[v], bounds[v + 1]):
            w = members[a]
            if not taken[w]:
                degree[w] -= step
                heap_push(heap, size, step * degree[w] * n + w)
                size += 1
    return order


@numba.njit(cache=True)
def greedy(ip, ix, jp, jx, order, colour, mark):  # pragma: no cover (compiled)
    """Colour the columns so that two with an entry in the same row differ; -1 marks an empty column.

    `colour` and `mark` hold -1 at the start. Loops that make no arrays compile in half the time."""
    for q in range(colour.size):
        c = order[q]
        if jp[c] == jp[c + 1]:
            continue
        for a in range(jp[c], jp[c + 1]):
            r = jx[a]
            for b in range(ip[r], ip[r + 1]):
                k = colour[ix[b]]
                if k >= 0:
                    mark[k] = c
        k = 0
        while mark[k] == c:
            k += 1
        colour[c] = k


@numba.njit(cache=True)
def star(ip, ix, order, colour, mark, first, met, sizes):  # pragma: no cover (compiled)
    """Colour the vertices of a symmetric pattern so that neighbours differ and every path of four vertices
    has at least three colours.

    A path is checked when its last vertex is coloured. That vertex is an end of the path, or it stands
    between two vertices of one colour. `first` and `met` hold a neighbour of v for each colour, `sizes` the
    sizes of the colours. All but these hold -1 at the start."""
    for q in range(colour.size):
        v = order[q]
        for a in range(ip[v], ip[v + 1]):
            w = ix[a]
            c = colour[w]
            if w == v or c < 0:
                continue
            mark[c] = v
            again = met[c] == v
            u = first[c]
            if not again:
                met[c], first[c] = v, w
            elif u >= 0:
                first[c] = -1
                for b in range(ip[u], ip[u + 1]):
                    x = ix[b]
                    if x != v and x != u and colour[x] >= 0:
                        mark[colour[x]] = v
            if sizes[c] == 1:
                continue  # no path ends in another vertex of this colour
            for b in range(ip[w], ip[w + 1]):
                x = ix[b]
                d = colour[x]
                if x == v or x == w or d < 0 or mark[d] == v:
                    continue
                if again:
                    mark[d] = v
                    continue
                for e in range(ip[x], ip[x + 1]):
                    y = ix[e]
                    if y != w and y != x and colour[y] == c:
                        mark[d] = v
                        break
        k = 0
        while mark[k] == v:
            k += 1
        colour[v] = k
        sizes[k] += 1


@numba.njit(cache=True)
def set_root(parent, e):  # pragma: no cover (compiled)
    while parent[e] != e:
        parent[e] = parent[parent[e]]
        e = parent[e]
    return e


@numba.njit(cache=True)
def acyclic(ip, ix, order, edge):  # pragma: no cover (compiled)
    """Colour the vertices of a graph so that neighbours differ and edges between two colours form no cycle.

    The two-coloured trees are disjoint sets of edges. `edge` gives both places of an edge the same number."""
    n = ip.size - 1
    colour, mark = np.full(n, -1, np.int64), np.full(n + 1, -1, np.int64)
    parent = np.arange(ix.size)
    visited, by = np.full(ix.size, -1, np.int64), np.full(ix.size, -1, np.int64)
    first, met = np.full(n + 1, -1, np.int64), np.full(n + 1, -1, np.int64)
    for q in range(n):
        v = order[q]
        for a in range(ip[v], ip[v + 1]):
            w = ix[a]
            if w != v and colour[w] >= 0:
                mark[colour[w]] = v
        for a in range(ip[v], ip[v + 1]):
            w = ix[a]
            if w == v or colour[w] < 0:
                continue
            for b in range(ip[w], ip[w + 1]):
                x = ix[b]
                if x == v or x == w or colour[x] < 0 or mark[colour[x]] == v:
                    continue
                tree = set_root(parent, edge[b])
                if visited[tree] != v:
                    visited[tree], by[tree] = v, w
                elif by[tree] != w:  # v would close a cycle
                    mark[colour[x]] = v
        k = 0
        while mark[k] == v:
            k += 1
        colour[v] = k
        for a in range(ip[v], ip[v + 1]):
            w = ix[a]
            if w == v or colour[w] < 0:
                continue
            if met[colour[w]] == v:
                parent[set_root(parent, edge[a])] = set_root(parent, first[colour[w]])
            else:
                met[colour[w]], first[colour[w]] = v, edge[a]
            for b in range(ip[w], ip[w + 1]):
                if ix[b] != v and ix[b] != w and colour[ix[b]] == k:
                    parent[set_root(parent, edge[a])] = set_root(parent, edge[b])
    return colour


class Coloring:
    """The colours of a sparsity pattern.

    Attributes
    ----------
    columns, rows : array of int or None
        A colour for each column or row, and -1 for one that needs none. None if `kind` has none on that side.
        ``len()`` is the number of colours.
    """

    def __init__(self, kind: str, order: str, columns: Any, rows: Any):
        self.kind, self.order, self.columns, self.rows = kind, order, columns, rows

    def counts(self) -> tuple[int, int]:
        """Return the number of colours of (columns, rows)."""
        columns, rows = [0 if c is None else int(c.max(initial=-1)) + 1 for c in (self.columns, self.rows)]
        return columns, rows

    def __len__(self) -> int:
        return sum(self.counts())

    def __repr__(self) -> str:
        columns, rows = self.counts()
        parts = [f"{n} of {what}" for n, what in ((columns, "columns"), (rows, "rows")) if n] or ["none"]
        return f"<coloring ({self.kind}, {self.order}): {' and '.join(parts)}>"


def vertex_order(order: str, n: int, graph) -> np.ndarray:
    """Return the vertices in this order; `graph()` gives (bounds, members) of the neighbours."""
    if order == "natural":
        return np.arange(n)
    if order == "random":
        return np.random.default_rng(0).permutation(n)
    bounds, members = graph()
    if order == "largest_first":
        return np.argsort(-np.diff(bounds), kind="stable")
    return by_degree(bounds, members, order == "smallest_last")


def transpose_pattern(p: scipy.sparse.csr_array) -> tuple:
    """Return (indptr, indices) of the columns."""
    t = p.tocsc()
    return t.indptr, t.indices


def one_sided(p: scipy.sparse.csr_array, order: str) -> np.ndarray:
    ip, ix, (jp, jx) = p.indptr, p.indices, transpose_pattern(p)
    vertices = vertex_order(order, p.shape[1], lambda: neighbours(ip, ix, jp, jx))
    colour, mark = unset(p.shape[1], 2)
    greedy(ip, ix, jp, jx, vertices, colour, mark)
    return colour


def unset(n: int, count: int) -> list:
    """Return arrays of -1 for the compiled loops: the first one for n vertices, the others for n + 1
    colours."""
    return [np.full(n + (k > 0), -1, np.int64) for k in range(count)]


def without_diagonal(p: scipy.sparse.csr_array) -> tuple:
    row = np.repeat(np.arange(p.shape[0]), np.diff(p.indptr))
    bounds = np.zeros(p.shape[0] + 1, np.int64)
    off = p.indices != row
    np.cumsum(np.bincount(row[off], minlength=p.shape[0]), out=bounds[1:])
    return bounds, p.indices[off].astype(np.int64)


def mirror_positions(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the place of the mirror image of each entry of a symmetric pattern."""
    n = len(indptr) - 1
    numbered = scipy.sparse.csr_array((np.arange(len(indices)), indices, indptr), shape=(n, n))
    return numbered.tocsc().data


def selected_rows(p: scipy.sparse.csr_array, chosen: np.ndarray) -> scipy.sparse.csr_array:
    """Return p with all other rows empty."""
    keep = np.repeat(chosen, np.diff(p.indptr))
    indptr = np.zeros_like(p.indptr)
    np.cumsum(np.where(chosen, np.diff(p.indptr), 0), out=indptr[1:])
    return scipy.sparse.csr_array((p.data[keep], p.indices[keep], indptr), shape=p.shape)


TRIED_ROW_LIMITS = 8  # thresholds for full rows that are tried


def two_sided_coloring(p: scipy.sparse.csr_array, order: str) -> tuple:
    """Return (colours of columns, colours of rows) of a two-sided colouring.

    The fullest rows are computed as rows. Columns then need no colours for them. The number of such rows
    minimises the number of colours."""
    sizes = np.diff(p.indptr)
    limits = np.unique(sizes)[::-1]
    if limits.size > TRIED_ROW_LIMITS:
        limits = limits[np.unique(np.geomspace(1, limits.size, TRIED_ROW_LIMITS).astype(int) - 1)]
    best = None
    for limit in [None, *limits.tolist()]:
        full = sizes >= limit if limit is not None else np.zeros(len(sizes), np.bool_)
        columns = one_sided(selected_rows(p, ~full), order)
        rows = one_sided(csr(selected_rows(p, full).T), order)
        count = columns.max(initial=-1) + rows.max(initial=-1) + 2
        if best is None or count < best[0]:
            best = count, columns, rows
    assert best is not None
    return best[1:]


def csr(p) -> scipy.sparse.csr_array:
    p = p.tocsr()
    p.sort_indices()
    return p


def coloring_of(p: scipy.sparse.csr_array, kind: str, order: str) -> Coloring:
    if kind == "columns":
        return Coloring(kind, order, one_sided(p, order), None)
    if kind == "rows":
        return Coloring(kind, order, None, one_sided(csr(p.T), order))
    if kind == "both":
        columns, rows = two_sided_coloring(p, order)
        turned = two_sided_coloring(csr(p.T), order)
        if turned[0].max(initial=-1) + turned[1].max(initial=-1) < columns.max(initial=-1) + rows.max(
            initial=-1
        ):
            rows, columns = turned
        return Coloring(kind, order, columns, rows)
    bounds, members = without_diagonal(p)
    vertices = vertex_order(order, p.shape[0], lambda: (bounds, members))
    if kind == "star":
        colours, mark, first, met = unset(vertices.size, 4)
        star(bounds, members, vertices, colours, mark, first, met, np.zeros(vertices.size + 1, np.int64))
    else:
        places = mirror_positions(bounds, members)
        colours = acyclic(bounds, members, vertices, np.minimum(places, np.arange(places.size)))
    empty = np.diff(p.indptr) == 0
    return Coloring(kind, order, renumbered(np.where(empty, -1, colours)), None)


def renumbered(colours: np.ndarray) -> np.ndarray:
    """Renumber the colours so that none is unused."""
    used = np.unique(colours[colours >= 0])
    return np.where(colours >= 0, np.searchsorted(used, colours), -1)


def best_coloring(p: scipy.sparse.csr_array, order: str) -> Coloring:
    """Return the colouring of a Jacobian with the fewest colours.

    Columns are tried first, then rows, then both sides if the colours far outnumber the mean row.
    """
    found = coloring_of(p, "columns", order)
    filled = np.diff(p.indptr)
    mean = p.nnz / max(p.shape[0], 1)
    if len(found) <= 3 * max(mean, 1.0) and len(found) <= 2 * max(p.nnz / max(p.shape[1], 1), 1.0):
        return found  # another colouring could save little
    rows = coloring_of(p, "rows", order)
    if len(rows) < len(found):
        found = rows
    if len(found) > 3 * max(mean, 1.0) and filled.max(initial=0) > 0:
        both = coloring_of(p, "both", order)
        if len(both) < len(found):
            found = both
    return found


def coloring(pattern: Any, kind: str = "columns", order: str = "natural") -> Coloring:
    """Colour the columns or rows of a sparsity pattern.

    Columns (or rows) of one colour are computed together by one product.

    Parameters
    ----------
    pattern : sparse matrix or array
        The pattern, of shape (m, n). Nonzero entries count.
    kind : {'columns', 'rows', 'both', 'star', 'acyclic'}, default 'columns'
        What is coloured. 'star' and 'acyclic' are for symmetric patterns.
    order : str, default 'natural'
        The order in which colours are assigned: 'natural', 'largest_first', 'smallest_last',
        'incidence_degree' or 'random'.

    Returns
    -------
    Coloring
        `columns` and `rows` hold an integer colour for each, and -1 where none is needed. They are None if
        that side has no colours. ``len()`` is the number of colours.

    Raises
    ------
    ArgumentError
        If `kind` or `order` is unknown, or the pattern is not symmetric and has to be.

    See Also
    --------
    pattern : Finds the pattern.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> c = tg.sparse.coloring(np.eye(5) + np.eye(5, k=1))
    >>> len(c), c.columns
    (2, array([0, 1, 0, 1, 0]))
    """
    checked_words("coloring", kind, KINDS, order)
    p = given_pattern("coloring", pattern, np.shape(pattern))
    if kind in ("star", "acyclic") and (p.shape[0] != p.shape[1] or (p != p.T).nnz):
        raise ArgumentError(
            f"coloring: kind={kind!r} is for a symmetric pattern; this one, of shape {p.shape}, is not"
        )
    return coloring_of(p, kind, order)


def checked_words(call: str, kind: str | None, kinds: tuple, order: str) -> None:
    if kind is not None and kind not in kinds:
        raise ArgumentError(f"{call}: kind={kind!r}; it is one of {', '.join(map(repr, kinds))}")
    if order not in ORDERS:
        raise ArgumentError(f"{call}: order={order!r}; it is one of {', '.join(map(repr, ORDERS))}")
