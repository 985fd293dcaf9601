"""Small operations of a program as one call of the interpreter: each of its operations, views, writes,
guards, and what NumPy does."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg
import scipy.special
from bare_blocks import NO_TABLE, bare_block, block_of

import tapegrad as tg
from tapegrad._core.primitive import Primitive
from tapegrad._core.trees import leaves
from tapegrad.ops.declare import signature_of
from tapegrad.replay.fusion import compiled_groups
from tapegrad.replay.interpreter import arena as _arena
from tapegrad.replay.interpreter import blocks, instruction_kinds, row_writer
from tapegrad.replay.interpreter.arena import arena_view, view_steps
from tapegrad.replay.interpreter.foreign_calls import ufunc_loop
from tapegrad.replay.interpreter.machine_code import (
    CHECKED,
    IN_LINES,
    LIBM,
    NUMBER,
    OPERATIONS,
    PAIRED,
    ROUNDING,
    TABLED,
    interpreter,
)
from tapegrad.replay.interpreter.placed_bodies import NoRows, PlacedBody, placed_body
from tapegrad.replay.record.instructions import Instruction, moved_places

X = np.array([0.3, 0.7, 1.2, 0.4])


@pytest.fixture(autouse=True)
def blocks_that_do_not_pay(monkeypatch):
    monkeypatch.setattr(instruction_kinds, "TRANSFER_ROWS", 0)
    monkeypatch.setattr(row_writer, "has_vector_loop", lambda name: False)


def blocked(f, *points, inside=None):
    """f at each point by a replay with blocks, the same as plainly."""
    p = tg.prepare(f, *points[0])
    for args in (points[0], points[0], points[0], *points):
        with np.errstate(all="ignore"):
            got, want = leaves(p.value(*args)), leaves(f(*args))
        for a, b in zip(got, want, strict=True):
            assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, 4e-16 if inside is None else inside, 1e-300)
    kept = p.forms["value"].programs[0]
    assert kept.emitted.blocks > 0 and not kept.failures
    return p


def test_the_interpreter_is_there():
    assert interpreter() is not None


def body_of(prim, arrays):
    """Its body for vectors."""
    args, layout = tuple(range(arrays)), (True, (2,), (8,), np.dtype(float), True)
    return placed_body(
        arrays, Instruction(prim, args, {}), dict.fromkeys((*args, arrays), layout), "f" * (arrays + 1)
    )


def elementwise_bodies():
    """Names of elementwise operations of numbers that run on places."""
    for name, entry in tg.ops.declare.PRIMITIVES.items():
        signature = signature_of(entry.prim.run)
        plain = entry.prim.scalar is not None and not signature.settings and len(signature.arrays) < 3
        if plain and body_of(entry.prim, len(signature.arrays)) is not None:
            yield name


PLACED = sorted(elementwise_bodies())


def test_a_new_operation_has_rows_by_its_body():
    prim = Primitive("halved_square", lambda x: 0.5 * x * x)
    prim.vjp, prim.declared = (lambda g, out, x: g * x,), True
    body = body_of(prim, 1)
    assert not body.name and body.target == 1  # the second product becomes the result
    assert body_of(tg.ops.declare.PRIMITIVES["add"].prim, 2).name == "add"
    assert {"sqrt", "square", "sign", "deg2rad", "bell", "times0", "root_slope", "log2"} <= {*PLACED}


def test_what_but_moves_elements_is_found_by_its_result():
    x, at = np.arange(12.0).reshape(3, 4) + 1.0, moved_places(lambda x: np.tril(x)[::-1].T, (3, 4))
    np.testing.assert_array_equal(np.append(x, 0.0)[at], np.tril(x)[::-1].T)
    np.testing.assert_array_equal(
        moved_places(lambda x: np.pad(x[[0, 0, 2]], 2), (3,)), [-1, -1, 0, 0, 2, -1, -1]
    )
    assert moved_places(lambda x: x.T, (0, 2)).shape == (2, 0)
    assert moved_places(np.cumsum, (3,)) is None
    assert moved_places(lambda x: 0.5 * x, (3,)) is None
    assert moved_places(lambda x: x[:0].sum() / 0, (3,)) is None


@pytest.mark.parametrize(
    "name", [name for name in PLACED if name not in ("tanh_slope", "maximum", "minimum")]
)
def test_each_operation_is_that_of_its_primitive(name):
    g = tg.ops.declare.PRIMITIVES[name]
    two = len(signature_of(g.prim.run).arrays) == 2

    def f(x, y):
        x, y = x + 0.0 * y, y + 0.0 * x
        z = g(x, y) if two else g(x)
        z = g(z, y) if two else g(abs(z) + 0.1)
        return z, z * 1.0, z + x

    blocked(f, (X, X[::-1] + 0.1), (X * 1.1, X + 0.5), inside=1e-14)


def test_the_slope_of_tanh_far_out():
    f = tg.grad(lambda x: (np.tanh(x * 1.0) * np.tanh(x * 2.0)).sum())
    blocked(f, (X,), (X * 5,), (X * 30,), (-X * 5,), inside=1e-13)


@pytest.mark.parametrize("name", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
def test_comparisons_choose(name):
    compare = getattr(np, name)
    f = lambda x, y: (np.where(compare(x + 0.0, y * 1.0), x * 2.0, y * 3.0 + x), compare(x * 1.0, 0.4), x + y)
    blocked(f, (X, X[::-1].copy()), (X[::-1].copy(), X), (X, X.copy()))


EDGES = {
    "sign": lambda x: np.sign(x * 1.0) + np.sign(-x) * 2.0,
    "heaviside": lambda x: np.heaviside(x * 1.0, 0.5) * x + np.heaviside(-x, x),
    "isnan": lambda x: np.where(np.isnan(x * 1.0), 3.0, x * 2.0) * np.isfinite(x * 1.0),
    "isinf": lambda x: np.where(np.isinf(x + 0.0), 1.0, x) + np.isnan(x * 1.0),
    "logical": lambda x: np.where(np.logical_and(x * 1.0, x - 0.3), x * 2.0, -x) + np.logical_not(x * 1.0),
    "masks": lambda x: ((x * 1.0 > 0) + (x * 2.0 > 0.4)) * x * 1.0,
    "angles": lambda x: np.deg2rad(x * 1.0) + np.rad2deg(x) + np.fabs(x),
    "powers": lambda x: (x * 1.0) ** 3 + (x + 0.0) ** 5 * x,
    "copies": lambda x: np.conj(x * 1.0) * np.real(x) + np.positive(x) * 2.0,
}


@pytest.mark.parametrize("name", EDGES)
def test_operations_by_their_declaration_at_the_edge(name):
    """At nan, infinities, subnormal numbers and zeros of both signs, also the gradient."""
    f, tiny = EDGES[name], 1e-320
    total = lambda x: np.sum(f(x) * 1.0)
    p, q, gradient = tg.prepare(f, X), tg.prepare(total, X), tg.grad(total)
    points = (
        X,
        X,
        X,
        np.array([np.nan, -0.0, np.inf, 1.0]),
        np.array([-np.inf, 0.0, -1.0, 1e308]),
        np.array([tiny, -tiny, 5.0, -0.0]),
        -X,
    )
    with np.errstate(all="ignore"):
        for x in points:
            got, want = p.value(x), f(x)
            np.testing.assert_allclose(got, want, 1e-14, 0)
            np.testing.assert_array_equal(np.signbit(got)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])
            np.testing.assert_allclose(q.grad(x), gradient(x), 1e-14, 0)
    assert p.forms["value"].programs[0].emitted.blocks > 0


def test_every_operation_of_the_interpreter_is_met():
    met = set()
    for name in (*PLACED, "equal", "less_equal", "not_equal", *ROUNDING, "copysign"):
        prim, b = tg.ops.declare.PRIMITIVES[name].prim, NoRows()
        at = [np.zeros(2, np.int64) for _ in signature_of(prim.run).arrays]
        PlacedBody(
            Instruction(prim, tuple(range(len(at))), {}), (2,), ((2,),) * len(at), "f" * (len(at) + 1)
        ).run(b, Instruction(prim, (), {}), at)
        met |= {name for name, _ in b.rows} - {""}
    assert set(OPERATIONS) == met | {"copy", "select", "addto", "muladd", "guard", "index", "within"}


def views(x):
    m = (x * 2.0).reshape(2, 2)
    y = m.T + m
    y = y[::-1, 1:] * m[:, :1] + np.broadcast_to(x[:2], (2, 2)) - x[[0, 3]][:, None]
    z = np.concatenate([y.ravel(), x * 0.5, np.array([x[0] * x[1], 2.0])])
    return (
        y,
        z.sum(),
        z[1::2] * 3.0,
        np.stack([z, z[::-1]]).sum(axis=0),
        np.pad(x * 1.0, 1),
        np.roll(x * 1.0, 1),
        m @ m,
        m @ x[:2],
        x @ x,
    )


def test_views_products_and_sums():
    blocked(views, (X,), (X * 1.3,), inside=1e-14)
    p = tg.prepare(views, X)
    weighed = lambda x: sum([(v * v).sum() for v in views(x)])
    p = tg.prepare(weighed, X)
    for k in range(1, 6):
        np.testing.assert_allclose(p.grad(X * k), tg.grad(weighed)(X * k), 1e-12)
        np.testing.assert_allclose(p.hvp(X * k, X), tg.hvp(weighed, X * k, X), 1e-12)


def writes(x):
    a = np.zeros(4)
    a[:] = x * 2.0
    before = a[1:3] * 1.0
    seen = a[::2]
    b = a.copy()
    a[1:] += a[:-1]
    a[::-1] *= x
    a[[0, 0, 2]] = x[1:] * 2.0
    np.add.at(a, [1, 1, 3], x[:3])
    m = np.asfortranarray((x * 1.0).reshape(2, 2))
    m[0] += m[1]
    m.T[1] = x[:2]
    return a, b, before, seen * 1.0, m, m.ravel(order="K") * 1.0


def test_writes_and_who_sees_them():
    blocked(writes, (X,), (X * 1.3,))


def test_arrays_in_another_memory_order():
    f = lambda m, x: (
        m * 2.0 + m.T,
        (m + x)[:, 0] * 1.0,
        m.T.ravel(order="K") * x[0],
        (m * x).copy(order="F") + 1.0,
    )
    m = np.arange(16.0).reshape(4, 4)
    for order in ("C", "F"):
        blocked(f, (np.array(m, order=order), X), (np.array(m + 1, order=order), X * 2))


def test_a_captured_buffer_within_a_block():
    buffer, total = np.zeros((3, 4)), np.zeros(())

    def f(x):
        for k in range(3):
            buffer[k] = np.sin(x * (k + 1.0)) + buffer[k - 1] * 0.5
        total[...] += (buffer * buffer).sum()
        return total * 1.0

    p, other, found = tg.prepare(f, X), [], []
    for k in range(1, 7):
        found.append((p.grad(X * k), buffer.copy(), total.copy()))
    buffer[:], total[...] = 0.0, 0.0
    for k in range(1, 7):
        other.append((tg.grad(f)(X * k), buffer.copy(), total.copy()))
    for got, want in zip(found, other, strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, 1e-13)
    assert p.forms["grad"].programs[0].emitted.blocks and p.forms["grad"].recordings == 1


def test_a_branch_within_a_block():
    def f(x):
        y = x * 2.0 + 1.0
        y = y * x if y[0] > x[1] else y - x
        y = y * y + x
        return (y * x).sum() if y.sum() > 1.0 else (y - x).sum()

    p = tg.prepare(f, X)
    for x in (X, X, X, -X, X * 0.1, X, -X, X * 0.1, -2 * X):
        np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), 1e-14)
    strict = tg.prepare(f, X, on_change="raise")
    for _ in range(4):
        strict.grad(X)
    with pytest.raises(tg.errors.GuardError, match=r"a condition is no longer True"):
        strict.grad(np.array([-3.0, 0.7, 1.2, 0.4]))


def test_what_is_not_finite_is_left_to_numpy():
    f = lambda x: (np.where(x > 0, np.log(x) * x, 0.0) + x * x * 2.0 + x).sum()
    p = tg.prepare(f, X)
    zero = np.array([0.0, 0.5, 1.0, 2.0])
    with np.errstate(all="ignore"):
        for x in (X, X, X, zero, X, zero, X * np.inf, X * np.nan):
            np.testing.assert_array_equal(p.grad(x), tg.grad(f)(x))
    for x in (X, X, X):
        p.value(x)
    with pytest.warns(RuntimeWarning) as heard:
        value = p.value(zero)
    with pytest.warns(RuntimeWarning) as plainly:
        assert value == f(zero)
    assert {str(w.message) for w in heard} == {str(w.message) for w in plainly}


def test_single_precision_and_integers_are_left_to_numpy():
    f = lambda x: ((x * 2 + x * x) * x - x, x * x + x)
    for x in (X.astype(np.float32), np.arange(4)):
        p = tg.prepare(f, x) if x.dtype.kind != "i" else tg.prepare(lambda y: f(x)[0] * y.sum(), X)
        at = x if x.dtype.kind != "i" else X
        for k in range(4):
            got = leaves(p.value(at * k))
            want = leaves(f(at * k)) if x.dtype.kind != "i" else [f(x)[0] * (at * k).sum()]
            for a, b in zip(got, want, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)


def test_results_of_blocks_are_fresh():
    f = lambda x: (x * 2.0 + x, (x * 3.0 - x)[1:], ((x * x) + 1.0).reshape(2, 2).T)
    p = tg.prepare(f, X)
    kept = []
    for k in range(6):
        kept.append([y.copy() for y in p.value(X * k)])
        for y in p.value(X * k):
            y[...] = -1.0
    for k, ys in enumerate(kept):
        for a, b in zip(ys, f(X * k), strict=True):
            np.testing.assert_array_equal(a, b)


def test_places_that_are_a_view_and_places_that_are_none():
    arena = np.arange(20.0)
    for at in (
        np.arange(6).reshape(2, 3).T,
        np.arange(12)[::-2],
        np.array(3),
        np.broadcast_to(np.arange(3), (2, 3)),
        np.zeros((0, 2), int),
    ):
        np.testing.assert_array_equal(arena_view(arena, at.shape, view_steps(at), 1), arena[at])
    assert view_steps(np.array([3, 1, 2, 19])) is None and view_steps(np.array([0, 19, 19])) is None


# --- operations on small matrices ---


def spd(n, k=0):
    a = np.random.default_rng(n + k).normal(size=(n, n))
    return a @ a.T + np.eye(n)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_small_systems(n):
    general = lambda k: np.random.default_rng(10 * n + k).normal(size=(n, n))
    b = np.random.default_rng(n).normal(size=(n, 3))

    def f(a, s, b):
        a, s = a * 1.0 + 0.0, s * 1.0 + 0.0
        L = np.linalg.cholesky(s)
        return (
            np.linalg.solve(a, b),
            np.linalg.solve(a.T, b[:, 0]),
            L,
            np.linalg.solve(s, b) + 0.0,
            np.trace(s) * 2.0,
            np.tril(a) * 1.0,
        )

    blocked(f, *[(general(k), spd(n, k), b * (k + 1)) for k in range(4)], inside=1e-11)
    weighed = lambda a, s, b: sum([(v * v).sum() for v in f(a, s, b)])
    p = tg.prepare(weighed, general(0), spd(n), b, argnums=(0, 1, 2))
    for k in range(4):
        args = general(k), spd(n, k), b * (k + 1)
        for got, want in zip(p.grad(*args), tg.grad(weighed, (0, 1, 2))(*args), strict=True):
            np.testing.assert_allclose(got, want, 1e-9, 1e-9 * abs(want).max())
    assert p.forms["grad"].programs[0].emitted.blocks


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_small_triangles(trans, lower, unit):
    a, b = spd(3), np.arange(6.0).reshape(3, 2) - 2.0

    def f(a, b):
        a, b = a * 1.0 + 0.0, b + 1.0
        solved = scipy.linalg.solve_triangular(a, b, trans, lower, unit)
        return solved * 1.0, scipy.linalg.solve_triangular(a, b[:, 0] * 1.0, trans, lower, unit) + 0.0

    blocked(f, (a, b), (a + 1.0, b * 2.0), inside=1e-13)


def test_a_larger_pivot_is_taken():
    f = lambda a, b: np.linalg.solve(a * 1.0 + 0.0, b * 2.0 + 1.0) * 1.0 + 0.0
    b = np.array([1.0, 2.0, 3.0])
    swapped = np.array([[0.0, 1.0, 2.0], [1e-20, 2.0, 0.5], [3.0, 0.0, 1.0]])
    blocked(f, (spd(3), b), (swapped, b), (swapped[::-1].copy(), b), (swapped.T.copy(), b), inside=1e-13)


def test_singular_and_indefinite_matrices_raise_as_they_do_plainly():
    solve = tg.prepare(lambda a, b: np.linalg.solve(a * 1.0, b + 1.0) * 2.0 + 1.0, spd(2), np.ones(2))
    factor = tg.prepare(lambda a: (np.linalg.cholesky(a * 1.0 + 0.0) * 2.0 + 1.0) * 2.0, spd(2))
    for _ in range(3):
        solve.value(spd(2), np.ones(2))
        factor.value(spd(2))
    for bad in (np.ones((2, 2)), np.zeros((2, 2))):
        with pytest.raises(np.linalg.LinAlgError):
            solve.value(bad, np.ones(2))
    for bad in (-np.eye(2), np.ones((2, 2)), np.zeros((2, 2)), np.array([[1.0, 3.0], [3.0, 1.0]])):
        with pytest.raises(np.linalg.LinAlgError):
            factor.value(bad)
    assert np.allclose(solve.value(spd(2), np.ones(2)), np.linalg.solve(spd(2), 2 * np.ones(2)) * 2 + 1)


def test_derivatives_of_a_factor_by_whether_its_matrix_is_symmetric():
    f = lambda a: (np.linalg.cholesky(a * 1.0 + 0.0) ** 2 * np.arange(9.0).reshape(3, 3)).sum()
    p = tg.prepare(f, spd(3))
    lower = np.tril(spd(3))
    for a in (
        spd(3),
        spd(3, 1),
        spd(3),
        lower,
        spd(3) + 1e-3 * np.triu(np.ones((3, 3)), 1),
        np.diag([1.0, 2.0, 3.0]),
        spd(3, 2),
    ):
        np.testing.assert_allclose(p.grad(a), tg.grad(f)(a), 1e-11, 1e-12)
    assert p.forms["grad"].programs[0].emitted.blocks


def test_what_was_read_at_repeated_indices_is_written_element_by_element():
    def f(x):
        y = np.sin(x)[np.array([1, 1, 0])]
        y[1] = x[0]
        y[2] += y[0] * x[1]
        return (y * np.array([1.0, 2.0, 3.0])).sum() * x[2] + np.cos(y[0])

    p = tg.prepare(f, X)
    for k in range(4):
        assert np.allclose(p.value(X * (1 + k)), f(X * (1 + k)), rtol=1e-13)
        assert np.allclose(p.grad(X * (1 + k)), tg.grad(f)(X * (1 + k)), rtol=1e-13)
    assert "blocks" in p.report()


# --- lines: rows and columns, steps, what is broadcast, sums ---


def a_view(rng, x):
    """A part of x, or x turned."""
    for _ in range(rng.integers(0, 4)):
        kind = rng.integers(0, 6)
        if kind == 0 and x.ndim:
            at = [slice(None)] * x.ndim
            step = int(rng.choice([1, 1, 2, -1, -2]))
            at[rng.integers(x.ndim)] = (
                slice(None, None, step)
                if rng.integers(2)
                else slice(1, None)
                if step > 0
                else slice(None, -1)
            )
            part = x[tuple(at)]
            x = part if 0 not in part.shape else x
        elif kind == 1:
            x = x.transpose([int(k) for k in rng.permutation(x.ndim)])
        elif kind == 2 and x.ndim < 4:
            x = np.expand_dims(x, int(rng.integers(x.ndim + 1)))
        elif kind == 3 and x.ndim > 1:
            x = x[int(rng.integers(len(x)))]
        elif kind == 4:
            x = x.reshape(-1)
        elif kind == 5 and x.ndim:
            axis = int(rng.integers(x.ndim))
            x = np.concatenate([x, x], axis) if x.size < 200 else x
    return x


def line_program(seed):
    rng = np.random.default_rng(seed)
    shape = tuple([int(n) for n in rng.integers(1, 10, size=rng.integers(1, 4))])
    draws = [int(n) for n in rng.integers(0, 2**31, size=60)]

    def f(x, y):
        given, values = iter(draws), [x, y, x * 2.0]
        for _ in range(12):
            r = np.random.default_rng(next(given))
            a, b = [a_view(r, values[r.integers(len(values))]) for _ in range(2)]
            kind = r.integers(0, 8)
            try:
                to = np.broadcast_shapes(a.shape, b.shape)
            except ValueError:
                b, to = b.sum() * 0.1, a.shape
            if kind < 4:
                z = (a + b, a - b, a * b, a / (1.5 + b * b))[kind]
            elif kind == 4:
                z = np.where(a > b, a * 0.5, -b)
            elif kind == 5:
                z = a.sum(axis=int(r.integers(a.ndim))) if a.ndim else a * 1.0
            elif kind == 6 and a.ndim == 2:
                z = a @ a.T * 0.3
            else:
                z = np.broadcast_to(a, to) + np.zeros(to)
                if z.ndim:
                    z[..., ::2] = 0.25
                    z[..., 1:] += 0.5 * z[..., :-1]
            if z.size < 800:
                values.append(z / (1.0 + abs(z).sum() / z.size))
        return values[3:]

    return f, rng.normal(size=shape), rng.normal(size=shape)


def judged_lines(seeds):
    lines = 0
    for seed in seeds:
        f, x, y = line_program(seed)
        weighed = lambda x, y, f=f: sum([(v * v).sum() for v in f(x, y)])
        p, q = tg.prepare(f, x, y), tg.prepare(weighed, x, y)
        for k in range(4):
            at = x + 0.01 * k, y - 0.01 * k
            for got, want in zip(p.value(*at), f(*at), strict=True):
                np.testing.assert_allclose(got, want, 1e-11, 1e-13, err_msg=f"seed {seed}")
            np.testing.assert_allclose(
                q.grad(*at), tg.grad(weighed)(*at), 1e-10, 1e-12, err_msg=f"seed {seed}"
            )
        for form in (p.forms["value"], q.forms["grad"]):
            kept = form.programs[0]
            assert not kept.failures
            if kept.emitted is not None:
                lines += sum([block.along for block in kept.emitted.made])
    assert lines > 20 * len(seeds), lines


@pytest.mark.filterwarnings("ignore")
def test_lines_of_every_layout():
    judged_lines(range(8))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 250) for k in range(100_000, 103_000, 250)], ids=str)
def test_lines_of_three_thousand_programs(seeds):
    judged_lines(seeds)


OF_ROWS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
    "copy": np.positive, "neg": np.negative, "max": np.maximum, "min": np.minimum,
    "within": lambda x, most, other: np.where(abs(x) < most, x, other),
    "index": lambda x, n, other: np.where((-n <= x) & (x < n), np.where(x < 0, x + n, x), other),
    "abs": np.abs, "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "select": lambda c,
    x, y: np.where(c != 0, x, y),
    "tanh_slope": lambda x, y: np.where(y * y < 0.99, 1 - y * y, 1 / np.cosh(x) ** 2),
    **{
        f"{a}_{b}": lambda x, y, z, f=f, g=g: g(f(x, y), z)
        for a, f in (("mul", np.multiply), ("add", np.add), ("sub", np.subtract))
        for b, g in (("mul", np.multiply), ("add", np.add), ("sub", np.subtract), ("rsub", lambda p,
        z: z - p))
    },
}  # fmt: skip
OF_ROWS |= {name: getattr(np, name) for name in (*LIBM, *ROUNDING, "copysign")}
WITHIN = {"addto": 1e-15, "muladd": 1e-15, "tanh_slope": 1e-15, **dict.fromkeys(LIBM, 4e-16)}


@pytest.mark.parametrize("row", IN_LINES)
@pytest.mark.parametrize("shape", [(4,), (5,), (3, 6), (2, 3, 9)], ids=str)
def test_each_kind_of_line(row, shape):
    """In a few lines of lines that are no one line, and where something is not finite."""
    name, way, rng = row.split()[0], row.split()[-1], np.random.default_rng(0)
    wide = (*shape[:-1], shape[-1] + 2)
    for bad in (False, True):
        arena = _arena.Arena(SimpleNamespace(shown={}), NO_TABLE)
        values = [rng.integers(0, 4, size=wide) / 2 + 0.5 for _ in range(1 + len(way))]
        if name == "select":
            values[1] -= 1.0
        if bad:
            values[-1][..., 0] = np.inf
        places = [arena.taken_for_ever(v)[..., :-2] for v in values]
        values = [v[..., :-2] for v in values]
        stays = ["0" if " sum " in row else "1", *way]
        for k, goes in enumerate(stays):
            if goes == "0":
                places[k], values[k] = [np.broadcast_to(v[..., :1], shape) for v in (places[k], values[k])]
        block = block_of(arena)
        block.row(name, *places)
        memory = _arena.ArenaMemory(arena)
        arena.settle()
        block.settle()
        assert block.code[0] == NUMBER[row] and block.along == 1
        with np.errstate(invalid="ignore"):
            old, made = (
                values[0],
                OF_ROWS[name](*values[1:])
                if name in OF_ROWS
                else values[1] * values[2]
                if way[1:]
                else values[1],
            )
        if name not in OF_ROWS:
            made = (old[..., 0] + made.sum(-1))[..., None] if " sum " in row else old + made
        found = block.run(block.address, memory.address)
        np.testing.assert_allclose(memory.arena[places[0]], np.broadcast_to(made, shape), WITHIN.get(name, 0))
        # an infinite result of an infinite operand is right
        assert found == bool((name in CHECKED or name in PAIRED) and np.isnan(made).any()), (found, made)


@pytest.mark.parametrize("row", TABLED)
@pytest.mark.parametrize("bad", [False, True])
def test_each_kind_of_line_that_begins_anywhere(row, bad):
    name, way, rng = row.split()[0], row.split()[-2], np.random.default_rng(0)
    summed, lines, n = " sum " in row, 9, 10
    block, pool = bare_block(*[rng.integers(0, 4, size=(20, n)) / 2 + 0.5 for _ in range(1 + len(way))])
    rows = [rng.permutation(20)[:lines] for _ in pool]
    places = [
        at[r] if goes == "1" else at[r][:, :1] for at, r, goes in zip(pool, rows, f"1{way}", strict=True)
    ]
    to = places[0][:, :1] if summed else places[0]
    block.row(name, np.broadcast_to(to, (lines, n)), *places[1:])
    memory = _arena.ArenaMemory(block.arena)
    memory.arena[places[-1][0, 0]] = np.nan if bad else 0.25
    old, *values = [memory.arena[at] for at in (to, *places[1:])]
    made = OF_ROWS[name](*values) if name in OF_ROWS else values[0] * values[-1] if way[1:] else values[0]
    made = np.broadcast_to(made, (lines, n))
    if name not in OF_ROWS:
        made = (old + made.sum(-1, keepdims=True)) if summed else old + made
    block.arena.settle()
    block.settle()
    assert block.code[0] == NUMBER[row]
    answer = block.run(block.address, memory.address)
    np.testing.assert_allclose(memory.arena[to], made, 1e-15)
    assert answer == bool(bad and name in CHECKED)


def run_of(block):
    memory = _arena.ArenaMemory(block.arena)
    block.arena.settle()
    block.settle()
    return memory.arena, block.run(block.address, memory.address)


# --- what others do: NumPy's loops, BLAS ---


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("name", LIBM)
def test_functions_along_lines_have_the_bits_of_numpy(name, vectors, monkeypatch):
    """Where NumPy has loops of vectors, and in exact blocks."""
    monkeypatch.setattr(row_writer, "has_vector_loop", lambda name: vectors)
    for shape, bad in (((4,), False), ((3, 37), False), ((2, 3, 9), True)):
        x = np.random.default_rng(0).uniform(0.1, 2.0, size=(*shape[:-1], shape[-1] + 2))
        x[..., 1] = np.nan if bad else 0.5
        block, (at, to) = bare_block(x, np.zeros(shape))
        block.exact = not vectors
        block.row(name, to, at[..., :-2])
        assert [row[0] for row in block.rows] == [NUMBER["called"]]
        found, answer = run_of(block)
        np.testing.assert_array_equal(found[to], getattr(np, name)(x[..., :-2]))
        assert answer == bad


def along_line(name, x):
    """The answer of a block with this row, and the result."""
    block, (at, to) = bare_block(x, np.zeros(x.shape))
    block.row(name, to, at)
    assert [row[0] for row in block.rows] == [NUMBER[f"{name} 1"]]
    found, answer = run_of(block)
    return answer, found[to]


@pytest.mark.parametrize("name", LIBM)
def test_own_functions_along_lines(name):
    """Within two units in the last place (tanh: three) of a longer type; the bits do not depend on the place
    in a line."""
    units = 3.0 if name == "tanh" else 2.0
    rng, f, least = np.random.default_rng(0), getattr(np, name), -0.99 if name == "log1p" else -8.0
    far = 2.0 ** rng.uniform(-60, 46.9 if name in ("sin", "cos") else 9.4, 55)
    for x in (rng.uniform(least, 4, (3, 37)), rng.uniform(-0.1, 0.1, 41), np.arange(40) * np.pi, far):
        x = np.abs(x) + 1e-3 if name == "log" else x
        answer, found = along_line(name, x)
        want = f(x.astype(np.longdouble))
        assert not answer
        np.testing.assert_array_less(np.abs(found - want), units * np.spacing(np.abs(f(x))) + 1e-300)
    found = [along_line(name, np.full(n, 2.5))[1][-1] for n in (4, 5, 6, 7, 9)]
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("exp", 709.8),
        ("expm1", 709.8),
        ("cosh", 710.5),
        ("log", 0.0),
        ("log1p", -1.0),
        ("sin", 2.0**48),
        ("cos", 2.0**48),
    ],
)
def test_what_own_functions_leave_to_numpy(name, least):
    """What NumPy warns of, and angles from 2^47 on: one such element, in a vector and after it."""
    for k in (1, 6):
        x = np.full(7, 0.5)
        x[k] = least
        answer, found = along_line(name, x)
        assert answer == 1 and np.isnan(found[k])


@pytest.mark.parametrize("name", LIBM)
def test_own_functions_of_infinite_numbers(name):
    with np.errstate(invalid="ignore"):
        for v in (np.inf, -np.inf, np.nan, -0.0):
            x = np.full(7, 0.5)
            x[[1, 6]] = v
            if name == "log" and v == 0:
                continue
            answer, found = along_line(name, x)
            np.testing.assert_array_equal(found[[1, 6]], getattr(np, name)(x[[1, 6]]))
            if not np.isnan(found).any():
                np.testing.assert_array_equal(
                    np.signbit(found[[1, 6]]), np.signbit(getattr(np, name)(x[[1, 6]]))
                )
            assert answer == np.isnan(found).any()


def test_a_loop_is_taken_only_for_float64():
    assert (
        ufunc_loop(np.isnan) is None
        and ufunc_loop(np.left_shift) is None
        and ufunc_loop(np.divmod) is not None
    )
    assert all(
        [ufunc_loop(f) is not None for f in (np.sqrt, np.arctan2, scipy.special.erf, scipy.special.betainc)]
    )


def test_the_trial_of_a_loop_does_not_warn(recwarn):
    """The orders of expn and yn are whole numbers, and those of the trial are not."""
    warnings.simplefilter("always")
    for f in (scipy.special.expn, scipy.special.yn):
        ufunc_loop.__wrapped__(f)
    assert not recwarn.list


# How the places of a matrix of a shape lie: the shape of the array, and the view of it.
LAID_OUT = {
    "as it is": (lambda s: s, lambda v: v),
    "transposed": (lambda s: s[::-1], lambda v: v.T),
    "every other row": (lambda s: (2 * s[0], *s[1:]), lambda v: v[::2]),
    "every other column": (lambda s: (*s[:-1], 2 * s[-1]), lambda v: v[..., ::2]),
    "backwards": (lambda s: s, lambda v: v[::-1]),
    "a corner": (lambda s: tuple([n + 1 for n in s]), lambda v: v[tuple([slice(1, None)] * v.ndim)]),
    "broadcast": (lambda s: (1, *s[1:]), lambda v: np.broadcast_to(v, v.shape) if v.size == 1 else v),
}
PRODUCTS = [
    ((6, 4), (4, 3)), ((1, 8), (8, 5)), ((5, 8), (8, 1)), ((8, 1), (1, 8)), ((1, 1), (1, 1)),
    ((6, 4), (4,)), ((4,), (4, 6)), ((1, 4), (4,)),
    ((3, 6, 4), (3, 4, 2)), ((1, 6, 4), (3, 4, 2)), ((6, 4), (3, 4, 2)), ((2, 1, 3, 3), (3, 3, 3)),
]  # fmt: skip


@pytest.mark.parametrize("one", LAID_OUT)
@pytest.mark.parametrize("other", LAID_OUT)
def test_products_by_blas(monkeypatch, one, other):
    monkeypatch.setattr(row_writer, "BLAS_MATRIX_PRODUCTS", 0)
    monkeypatch.setattr(row_writer, "BLAS_VECTOR_PRODUCTS", 0)
    rng = np.random.default_rng(1)
    for shapes in PRODUCTS:
        values = [
            rng.normal(size=LAID_OUT[how][0](shape)) for how, shape in zip((one, other), shapes, strict=True)
        ]
        shown = lambda pair, shapes=shapes: [
            np.broadcast_to(LAID_OUT[how][1](v), shape)
            for how, v, shape in zip((one, other), pair, shapes, strict=True)
        ]
        a, b = shown(values)
        for bad in (False, True):
            block, places = bare_block(*values)
            to = block.arena.consecutive((a @ b).shape, ())
            block.matmul(to, *shown(places))
            block.arena.free_temporaries()
            assert {row[0] for row in block.rows} & {NUMBER["dgemm"], NUMBER["dgemv"]}
            memory = _arena.ArenaMemory(block.arena)
            memory.arena[to] = np.nan  # what was there before is of no account
            memory.arena[shown(places)[0].flat[0]] = np.inf if bad else a.flat[0]
            block.arena.settle()
            block.settle()
            assert block.run(block.address, memory.address) == bad
            if not bad:
                np.testing.assert_allclose(memory.arena[to], a @ b, 1e-13, 1e-13)


def test_rolled_arrays_are_cut_into_boxes():
    x = np.arange(40.0 * 12).reshape(40, 12)
    block, (at, to) = bare_block(x, np.zeros(x.shape))
    given = np.roll(at, (5, 3), (0, 1))
    block.row("add", to, given, at)
    assert len(block.rows) == 4
    found, answer = run_of(block)
    np.testing.assert_array_equal(found[to], np.roll(x, (5, 3), (0, 1)) + x)
    assert answer == 0


def test_what_is_written_twice_is_written_in_order():
    x = np.arange(200.0)
    block, (at, to) = bare_block(x, np.zeros(150))
    places = to[np.r_[0:100, 50:150][::-1]]
    block.row("copy", places, at)
    found, _ = run_of(block)
    want = np.zeros(150)
    want[np.r_[0:100, 50:150][::-1]] = x
    np.testing.assert_array_equal(found[to], want)


GATED = {
    "nan": lambda x: np.nansum(np.exp(x + NANS) * 2.0 + np.exp(NANS * 3.0 + x)),
    "missing": lambda x: np.where(np.isnan(NANS), 0.0, (NANS - x) ** 2 + np.log(x * x + 1.0)).sum(),
    "quiet logs": lambda x: quiet_logs(x),
    "forbidden ways": lambda x: in_logs(x),
    "zero lengths": lambda x: np.exp(-np.sqrt(((x[:8, None] - x[None, :8]) ** 2) * 1.0)).sum(),
}
NANS = np.where(np.arange(40) % 3, 0.5, np.nan)


def quiet_logs(x):
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.maximum(x - x.mean(), 0.0) * 2.0
        return np.where(y > 0, y * np.log(y), 0.0).sum() + (y / y)[-3:].sum()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GATED)
def test_values_that_are_no_numbers_stay_in_exact_blocks(name):
    f, x = GATED[name], np.linspace(0.1, 0.4, 40)
    p, gradient = tg.prepare(f, x), tg.grad(f)
    for k in range(1, 50):
        np.testing.assert_allclose(p.value(x * k), f(x * k), 1e-13)
        np.testing.assert_allclose(p.grad(x * k), gradient(x * k), 1e-12)
    kept = [p.forms[form].programs[0] for form in ("value", "grad")]
    assert all([each.emitted.blocks and not each.failures for each in kept])
    assert any([each.emitted.kinds.exact for each in kept])


def test_an_exact_block_notices_what_numpy_warns_of():
    f = lambda x: np.nansum(np.log(x * 2.0) + NANS * 1.0 + 1.0 / (x + 1.0))
    p = tg.prepare(f, np.ones(40))
    for k in range(12):
        p.value(np.full(40, 1.0 + k))
    assert p.forms["value"].programs[0].emitted.kinds.exact
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        p.value(np.zeros(40))
    with pytest.warns(RuntimeWarning, match="invalid value"):
        p.value(np.full(40, -2.0))
    assert np.isfinite(p.value(np.ones(40)))


INFINITE = {
    "mask": lambda x: (np.exp(x + MASK) * 2.0 + np.exp(MASK * 3.0 + x)).sum(),
    "lines": lambda x: (np.exp(np.repeat(x, 40) + np.repeat(MASK, 40)) * 2.0).sum(),
    "least so far": lambda x: least_so_far(x),
    "bounds": lambda x: np.clip(x * 3.0, -np.inf, np.where(MASK == 0, np.inf, 2.0) * 1.0).sum(),
    "logsumexp": lambda x: scipy.special.logsumexp(x + MASK) * 2.0,
    "forbidden ways": lambda x: in_logs(x),
}
MASK = np.where(np.arange(40) % 3, 0.0, -np.inf)


def least_so_far(x):
    least = np.inf
    for k in range(12):
        y = ((x - 0.1 * k) ** 2).sum()
        if abs(y - least) < 1e-300:
            break
        least = min(least, y)
    return least


def in_logs(x):
    """A hidden Markov model whose state does not go down."""
    ways = np.log(np.where(np.tri(5).T > 0, 0.3, 1.0)) + np.where(np.tri(5).T > 0, 0.0, -np.inf)
    alpha = x[:5]
    for k in range(30):
        alpha = np.logaddexp.reduce(alpha[:, None] + ways, axis=0) + x[k % 40] * np.arange(5)
    return alpha.max()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("name", INFINITE)
def test_infinite_values_of_infinite_ones_stay_in_blocks(name, compile, monkeypatch):
    # Where `exp` is slow the rows of "lines" are worth a group, and groups give infinite values up.
    monkeypatch.setattr(compiled_groups, "slow_element_ns", lambda name, operations: 1.0)
    f, x = INFINITE[name], np.linspace(0.1, 0.4, 40)
    p = tg.prepare(f, x, compile=compile)
    for k in (*range(1, 16), *[15] * 20):
        np.testing.assert_allclose(p.value(x * k), f(x * k), 1e-13)
    kept = p.forms["value"].programs[0]
    assert kept.emitted.blocks and not kept.failures and "often not finite" not in p.report()


def test_a_value_that_becomes_infinite_is_noticed_in_a_block():
    f = lambda x: np.where(MASK == 0, 1.0 / (x * 2.0) + np.abs(x) * 1e308 * 10.0, MASK * 2.0).min() * 2.0
    p = tg.prepare(f, np.ones(40) * 1e-9)
    for k in range(6):
        p.value(np.full(40, 1e-9 + 1e-12 * k))
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        p.value(np.zeros(40))
    with pytest.warns(RuntimeWarning, match="overflow"):
        p.value(np.ones(40))


# --- two operations in one row ---

LONG = np.linspace(0.3, 0.9, 40)


def paired(x, y):
    """Products, sums and differences with one reader, with more, and with operands that are written
    meanwhile."""
    a, b = x * y, x - y
    buffer = x * 1.5
    held = buffer * y
    buffer[:7] = y[:7] * 2.0
    both = (x * 0.7 + y) * b - (x + 0.5) * (y - 0.25) + held
    often, sums = a * x, (buffer[None] * np.stack([x, y])).sum(axis=1)
    return both, b - a * 3.0, often + often, (x * b).sum(), sums, (x + y) * 0.5 - x * 0.3, held * 1.0


def test_two_operations_in_one_row(monkeypatch):
    names = set()
    lines = blocks.InstructionBlock.lines
    monkeypatch.setattr(
        blocks.InstructionBlock,
        "lines",
        lambda self, name, *rest: lines(self, name, *rest) and names.add(name) is None,
    )
    blocked(paired, (LONG, LONG[::-1].copy()), (LONG * 1.3, LONG * LONG), inside=1e-15)
    assert {"mul_add", "mul_rsub", "add_mul", "muladd"} <= names, names


def test_a_product_that_a_later_block_reads():
    def f(x, y):
        p = x * y
        q = np.cumsum(p + x) * 2.0
        return q - p * 3.0 + (p * y) * 0.5, q.sum() * x

    blocked(f, (LONG, LONG + 1), (LONG * 2, LONG), inside=1e-14)


def test_two_operations_of_which_the_first_is_not_finite():
    f = lambda x, y: (x * y) * 0.0 + (x * y + 1.0) + (x - y) * (x + y)
    big = np.full(40, 1e200)
    with np.errstate(all="ignore"):
        p = tg.prepare(f, LONG, LONG)
        for at in (LONG, LONG, LONG, big, LONG):
            np.testing.assert_array_equal(p.value(at, at), f(at, at))


def test_a_guard_that_fails_gives_the_memory_back():
    """Data sets in turn, each by its own recording: a replay that ends early keeps its memory for the next."""

    def f(x):
        y = np.sin(x) * x
        for k in range(6):
            y = y + x * k if y[k] > 0 else y - 2.0 * x
        return (y * y).sum()

    p = tg.prepare(f, np.ones(6), compile=True)
    points = [np.full(6, 0.5), np.full(6, -0.5)]
    for n in range(24):  # the second recording waits until as many calls have paid for it
        p.grad(points[n % 2])
    programs = p.forms["grad"].programs
    pools = [kept.emitted.arena.pool for kept in programs]
    kept = [[*pool] for pool in pools]
    assert len(programs) == 2 and [*map(len, pools)] == [1, 1]
    for n in range(8):
        np.testing.assert_allclose(p.grad(points[n % 2]), tg.grad(f)(points[n % 2]), rtol=1e-13)
    assert all(
        a is b for pool, before in zip(pools, kept, strict=True) for a, b in zip(pool, before, strict=True)
    )
