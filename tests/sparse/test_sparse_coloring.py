"""Colours, by what they are for: brute force over random patterns, and matrices got back from products."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from sparse_functions import brusselator

import tapegrad as tg
from tapegrad.sparse._coloring import KINDS, ORDERS
from tapegrad.sparse._decompress import Entries

pytestmark = pytest.mark.smoke

sp = tg.sparse


def patterns(count, seed=0):
    r = np.random.default_rng(seed)
    for k in range(count):
        m, n = r.integers(1, 12, 2)
        p = r.random((m, n)) < r.choice([0.1, 0.25, 0.5])
        if k % 4 == 0:
            p[r.integers(m)] = True
        if k % 5 == 0:
            p[:, r.integers(n)] = True
        yield p


def symmetric(count, seed=1):
    r = np.random.default_rng(seed)
    for k in range(count):
        n = r.integers(1, 12)
        p = r.random((n, n)) < r.choice([0.1, 0.2, 0.4])
        p |= p.T
        if k % 3:
            np.fill_diagonal(p, True)
        yield p


def rows_of(pattern):
    return [np.flatnonzero(row) for row in pattern]


def is_columns(pattern, colours):
    return all(len(set(colours[cs])) == len(cs) for cs in rows_of(pattern)) and bool(
        (colours[pattern.any(0)] >= 0).all()
    )


def is_star(pattern, colours):
    """Neighbours differ, and each path of four vertices has three colours."""
    near = [set(np.flatnonzero(row)) - {k} for k, row in enumerate(pattern)]
    if any(colours[a] == colours[b] for a in range(len(near)) for b in near[a]):
        return False
    for b in range(len(near)):
        for a, c in itertools.permutations(near[b], 2):
            if colours[a] == colours[c] and any(colours[d] == colours[b] for d in near[c] - {a, b}):
                return False
    return True


def is_acyclic(pattern, colours):
    """Neighbours differ, and the edges of two colours are a forest: fewer than vertices in each part."""
    edges = [(a, b) for a, b in zip(*np.nonzero(np.triu(pattern, 1)), strict=True)]
    if any(colours[a] == colours[b] for a, b in edges):
        return False
    for pair in itertools.combinations(set(colours.tolist()), 2):
        parent = list(range(len(pattern)))

        def root(v, parent=parent):
            while parent[v] != v:
                v = parent[v]
            return v

        for a, b in edges:
            if {colours[a], colours[b]} == set(pair):
                if root(a) == root(b):
                    return False
                parent[root(a)] = root(b)
    return True


def judged(count, seed):
    for order in ORDERS:
        for p in patterns(count, seed):
            c = sp.coloring(p, "columns", order)
            assert is_columns(p, c.columns) and c.rows is None
            c = sp.coloring(p, "rows", order)
            assert is_columns(p.T, c.rows) and c.columns is None
        for p in symmetric(count, seed + 1):
            star, acyclic = sp.coloring(p, "star", order), sp.coloring(p, "acyclic", order)
            assert is_star(p, star.columns), (p.astype(int), star.columns)
            assert is_acyclic(p, acyclic.columns), (p.astype(int), acyclic.columns)


def recovered(count, seed):
    """Random matrices of these patterns, from their products."""
    r = np.random.default_rng(seed)
    fewer = 0
    for kind in KINDS:
        for p in symmetric(count, seed) if kind in ("star", "acyclic") else patterns(count, seed):
            A = np.where(p, r.normal(size=p.shape), 0.0)
            A = A + A.T if kind in ("star", "acyclic") else A
            c = sp.coloring(p, kind, ORDERS[r.integers(len(ORDERS))])
            parts = [np.zeros(0)]
            for colours, matrix in ((c.columns, A), (c.rows, A.T)):
                if colours is not None:
                    seeds = colours[None, :] == np.arange(colours.max(initial=-1) + 1)[:, None]
                    parts.append((seeds @ matrix.T).reshape(-1))
            products = np.concatenate(parts)
            for format in ("csr", "csc", "coo"):
                entries = Entries(scipy.sparse.csr_array(p), c, format)
                B = entries.matrix(entries.values(products))
                np.testing.assert_allclose(B.toarray(), A, atol=1e-12)
                assert B.nnz == p.sum()
            if kind == "both":
                fewer += len(c) < min(len(sp.coloring(p, "columns")), len(sp.coloring(p, "rows")))
    return fewer


def test_colours_of_random_patterns():
    judged(12, 3)


def test_matrices_are_recovered():
    assert recovered(40, 5) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 30, 2))
def test_colours_of_many_patterns(seed):
    judged(100, seed)
    recovered(200, seed)


def test_known_numbers():
    tridiagonal = np.eye(9) + np.eye(9, k=1) + np.eye(9, k=-1)
    assert len(sp.coloring(tridiagonal)) == 3
    assert len(sp.coloring(tridiagonal, "star")) == 3 and len(sp.coloring(tridiagonal, "acyclic")) == 2
    assert len(sp.coloring(np.eye(5), "star")) == 1 and len(sp.coloring(np.zeros((4, 5)))) == 0
    assert len(sp.coloring(np.ones((3, 7)))) == 7 and len(sp.coloring(np.ones((3, 7)), "rows")) == 3
    dense_row_and_column = (
        np.eye(30) + np.eye(30)[:1].T @ np.ones((1, 30)) + np.ones((30, 1)) @ np.eye(30)[:1]
    )
    assert len(sp.coloring(dense_row_and_column, "both")) == 3
    assert (
        repr(sp.coloring(dense_row_and_column, "both"))
        == "<coloring (both, natural): 2 of columns and 1 of rows>"
    )


def test_orders():
    """Smallest last is the order of ascending degrees from the end; random is the same each time."""
    hub = np.eye(6) + np.eye(6)[:1].T @ np.ones((1, 6)) + np.ones((6, 1)) @ np.eye(6)[:1]
    for order in ORDERS:
        assert len(sp.coloring(hub, "star", order)) == 2
    p = sp.pattern(*brusselator(6))
    assert {order: len(sp.coloring(p, order=order)) for order in ("natural", "smallest_last")} == {
        "natural": 10,
        "smallest_last": 8,
    }
    assert (sp.coloring(p, order="random").columns == sp.coloring(p, order="random").columns).all()


def test_hub_of_many_leaves():
    n = 1_000
    at = np.concatenate([np.zeros(n, int), np.arange(n)])
    hub = scipy.sparse.coo_array(
        (np.ones(2 * n), (at, np.concatenate([np.arange(n), np.zeros(n, int)]))), shape=(n, n)
    )
    for kind in ("star", "acyclic"):
        assert len(sp.coloring(hub, kind)) == 2
