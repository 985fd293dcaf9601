"""x[i] under `tg.vmap`, where i differs between samples and NumPy gives a view: writes through it and through
the array are seen by both, as in a loop."""

import random

import numpy as np
import pytest
from looped import same

import tapegrad as tg
from tapegrad.errors import BatchError

X, K = np.array([1.5, 2.0, -0.5]), np.array([0, 1, 1])

# Statements on a = x * ones((2, 3)), b = x * ones((3, 2)), c = x * ones((2, 2, 3)), with the sample's number x
# and index i. Each is followed by the sum of all arrays, weighted.
STATEMENTS = """
r = a[i]; r[0] = x**2
a[i][0] = x**2
b[:, i][0] = x**2
b[..., i][1] *= x
r = b[..., i]; r += x
r = a[i]; r *= x; a[0] += r
r = a[i]; a[i] = x; a[1, 2] = r.sum() * x
r = b[:, i]; b[:] *= x; b[0] = r[1] + r[2]
r = a[i][::-1]; r[0] = x**2; a[0, 1] = r[2] * 3
r = c[i, 1]; r[0] = x; c[0, i][1] = r[0] * 2
np.fill_diagonal(c[:, :, i], x)
np.add(1.0, x, out=b[:, i])
np.copyto(b[:, i], x**2)
a[i].fill(x**2)
a.T[:, i][1] = x**2
a.reshape(3, 2)[:, i][0] = x**2
a[i], a[1 - i] = a[1 - i] * x, a[i]
r = a[i]; t = a[1]; r += t; t[0] = r[1] * x
r = c[i]; r[i][1:] = x; q = r[:, i]; c *= 2.0; a[0, 0] = q.sum() * r[0, 0]
np.cumsum(a[i], out=a[1 - i])
rows = [a[i], a[0]]; rows[0][1] = x**2; rows[1][2] += rows[0][1]
r = a[i]; r[r > 1.0] = x * 0.5
for r in c[i]: r[0] = x * r[1]
a[i].sort(); a[i][::-1][0] = x**2
""".strip().splitlines()
RESULT = (
    "(a * w[:6].reshape(2, 3)).sum() + (b * w[6:12].reshape(3, 2)).sum() + (c * w.reshape(2, 2, 3)).sum()"
)


def function_of(statement):
    line = statement if statement.startswith("for ") else statement.replace("; ", "\n    ")
    text = f"""
def f(x, i):
    a, b, c = x * np.arange(6.0).reshape(2, 3), x + np.zeros((3, 2)), np.cos(x) * np.ones((2, 2, 3))
    {line}
    return {RESULT}
"""
    space = {"np": np, "w": np.sin(np.arange(12.0) + 1.0), "__name__": "views_at_indices"}
    exec(compile(text, f"<{statement}>", "exec"), space)
    return space["f"]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_values_and_derivatives_are_those_of_a_loop(statement):
    f = function_of(statement)
    want = [np.stack([g(x, k) for x, k in zip(X, K, strict=True)]) for g in (f, tg.grad(f), second(f))]
    total = lambda x: tg.vmap(f)(x, K).sum()
    one = np.ones(3)
    assert same(
        [tg.vmap(f)(X, K), tg.vmap(tg.grad(f))(X, K), tg.grad(total)(X)], [want[0], want[1], want[1]], 1e-12
    )
    assert same([tg.jvp(total, (X,), (one,))[1], tg.hvp(total, X, one)], [want[1].sum(), want[2]], 1e-12)


@pytest.mark.parametrize("statement", STATEMENTS[::8])
def test_a_prepared_call(statement):
    total = lambda x: tg.vmap(function_of(statement))(x, K).sum()
    p = tg.prepare(total, X)
    assert same([p.grad(X * 0.5), p.grad(X)], [tg.grad(total)(X * 0.5), tg.grad(total)(X)], 1e-12)


def second(f):
    return lambda x, i: tg.grad(lambda x: tg.grad(f)(x, i))(x)


def test_a_captured_table_ends_as_after_a_loop():
    table, plain = np.zeros((2, 3)), np.zeros((2, 3))

    def f(rows, x, i):
        rows[...] = x
        row = rows[i]
        row[0] = x**2
        return (rows * row).sum()

    want = [f(plain, x, k) for x, k in zip(X, K, strict=True)]
    assert same([tg.vmap(lambda x, i: f(table, x, i))(X, K), table], [np.stack(want), plain], 1e-14)


def test_rows_of_nested_samples_and_of_a_checkpoint():
    f = function_of("r = a[i]; r[:] = np.sin(r) * x; a[i, 0] += r[1]")
    pairs = np.array([[0, 1], [1, 1], [0, 0]])
    nested = tg.vmap(tg.vmap(f, in_axes=(None, 0)))
    want = [[f(x, k) for k in row] for x, row in zip(X, pairs, strict=True)]
    assert same([nested(X, pairs)], [np.array(want)], 1e-13)
    total = lambda x: tg.vmap(f)(x, K).sum()
    assert same([tg.grad(tg.checkpoint(total))(X)], [tg.grad(total)(X)], 1e-13)


def test_a_captured_table_that_hands_something_on_is_refused():
    table = np.zeros((2, 3))

    def f(x, i):
        row = table[i]
        row[0] = x
        return table.sum()  # with what earlier samples have written

    with pytest.raises(BatchError, match="from sample to sample"):
        tg.vmap(f)(X, K)


def test_a_reshaped_column_and_a_read_only_array_are_refused():
    def column(x, i):
        a = x * np.ones((3, 2, 2))
        a[:, i].reshape(-1)[0] = 2.0
        return a.sum()

    with pytest.raises(BatchError, match="a reshaped view"):
        tg.vmap(column)(X, K)
    repeated = lambda x, i: np.broadcast_to(x * np.ones(3), (2, 3))[i].__setitem__(0, 2.0)
    with pytest.raises(ValueError, match="read-only"):
        tg.vmap(repeated)(X, K)


def test_shared_memory_is_seen():
    shared = lambda x, i: np.shares_memory((a := x * np.ones((2, 3)))[i], a) + 0.0 * x
    assert np.array_equal(tg.vmap(shared)(X, K), np.ones(3))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(400))
def test_statements_one_after_the_other(seed):
    r = random.Random(seed)
    lines = [s for s in STATEMENTS if not s.startswith("for ")]
    test_values_and_derivatives_are_those_of_a_loop("; ".join(r.sample(lines, r.randint(2, 5))))


# --- what the derivative of a root does under two transforms ---


def test_a_root_of_what_all_samples_share():
    """Its slope takes the product of a stack and a number."""

    def f(x):
        root = lambda y: np.sqrt(1.0 + x @ y)
        return tg.vmap(lambda w: tg.jvp(root, (2.0 * x,), (w,))[1])(np.eye(2)).sum()

    g = lambda x: 0.5 * x.sum() / np.sqrt(1.0 + 2.0 * x @ x)  # the same, written out
    x, v = np.array([0.3, -0.5]), np.array([0.4, 0.2])
    want = tg.hvp(g, x, v)
    products = (
        tg.hvp(f, x, v),
        tg.grad(lambda z: tg.grad(f)(z) @ v)(x),
        tg.grad(lambda z: tg.jvp(f, (z,), (v,))[1])(x),
    )
    assert same(products, [want] * 3, 1e-12)


def test_least_squares_with_a_captured_matrix():
    A, B = np.random.default_rng(0).normal(size=(5, 3)), np.random.default_rng(1).normal(size=(2, 5))
    f = lambda b: np.linalg.lstsq(A, b)[0].sum()
    assert np.allclose(tg.vmap(f)(B), [f(b) for b in B], rtol=1e-12)
