"""`tg.vmap`: axes, trees, captured arrays, branches, nesting, chunks, and what it refuses."""

import contextvars
import ctypes
import math
import operator
import random
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from comparison import host
from looped import forms, looped, same, vmapped

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.errors import AliasError, ArgumentError, BatchError, DroppedDerivativeError, ShapeError

pytestmark = pytest.mark.smoke

X = np.random.default_rng(3).normal(size=(4, 3))
A = np.random.default_rng(4).normal(size=(3, 3)) + 3 * np.eye(3)


def agree(f, *stacks):
    got, want = vmapped(f)(*stacks), looped(f)(*stacks)
    assert same(got, want), (got, want)


# --- axes and trees ---


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_in_axes(axis):
    m = np.random.default_rng(0).normal(size=(2, 3, 4))
    f = lambda x: np.sin(x) @ np.ones(x.shape[1]) * x.T[0].sum()
    want = np.stack([f(s) for s in np.moveaxis(m, axis, 0)])
    np.testing.assert_allclose(tg.vmap(f, in_axes=axis)(m), want, rtol=1e-14)
    np.testing.assert_allclose(tg.vmap(f, axis, out_axes=1)(m), want.T, rtol=1e-14)
    np.testing.assert_allclose(tg.vmap(f, axis, out_axes=-1)(m), want.T, rtol=1e-14)


def test_the_result_does_not_depend_on_memory_order():
    f = lambda x: (x.reshape(-1) * np.arange(6.0), x.T.ravel(), x.ravel("K") if x.flags.forc else x.ravel())
    m = np.random.default_rng(0).normal(size=(4, 2, 3))
    for stack in (m, np.asfortranarray(m), m[::-1], m.transpose(0, 2, 1)):
        assert same(vmapped(f)(stack), looped(f)(stack))


def f_ordered(x):
    a = x.reshape(2, 2).copy(order="F")
    b = a.ravel(order="F")
    a.flat[0] = b[3] * 2.0
    return a, b


def picked_and_reshaped(x):
    a = x[np.array([3, 3, 0, 2])][:4].reshape(2, 2)
    b = a.ravel()
    a[1] *= x[0]
    m = np.stack([x, x * 2])[:, [0, 2, 2]]
    n = m.ravel(order="F")
    m[0, 1] = x[1]
    return a, b, m, n


def turned(x):
    m = np.round(x.reshape(2, 2).T, 3) + x[0]
    v = m.T.reshape(-1)
    v[2] = x[3] * x[2]
    t = np.asfortranarray(m * x[0])
    u = t.T.reshape(-1)
    u *= 3.0
    return m, v, t, u


@pytest.mark.parametrize("f", [f_ordered, picked_and_reshaped, turned])
@pytest.mark.parametrize("count", [2, 4])
def test_a_reshaped_result_is_a_view_where_it_is_one_in_a_loop(f, count):
    x = np.random.default_rng(8).normal(size=(count, 4))
    agree(f, x)
    agree(tg.grad(lambda x: sum([(y * y).sum() for y in f(x)])), x)


def test_trees_and_arguments_that_are_the_same_for_all():
    f = lambda p, y, k: {"r": (p["a"] @ y, p["b"][0] * k), "s": 2.0}
    p = {"a": X, "b": [np.arange(4.0)]}
    got = tg.vmap(f, in_axes=({"a": 0, "b": 0}, None, None))(p, np.ones(3), 3)
    np.testing.assert_allclose(got["r"][0], X.sum(1), rtol=1e-14)
    np.testing.assert_array_equal(got["r"][1], 3 * np.arange(4.0))
    np.testing.assert_array_equal(got["s"], np.full(4, 2.0))
    same_for_all = tg.vmap(lambda x, y: (x * y, y), in_axes=(0, None), out_axes=(1, None))(X, np.ones(3))
    assert same_for_all[0].shape == (3, 4) and same_for_all[1].shape == (3,)


def test_what_is_captured_is_the_same_for_all():
    got = tg.vmap(lambda x: (A, x), out_axes=(None, 0))(X)
    assert type(got[0]) is type(got[1]) is np.ndarray and got[0] is not A and (got[0] == A).all()
    assert tg.vmap(lambda x: A)(X).shape == (4, 3, 3)


def test_integers_and_booleans_are_mapped_too():
    agree(lambda x, k, b: np.where(b, x * k, -x), X, np.arange(4), np.array([True, False, True, True]))
    agree(lambda k: (k + 1, k > 1, k / 2), np.arange(4))
    got = tg.vmap(lambda x, k: x * k, in_axes=(0, None))(X, 2)
    np.testing.assert_array_equal(got, X * 2)


def test_keywords_and_constants():
    got = tg.vmap(lambda x, c, *, scale: x @ c * scale)(X, np.ones((4, 3)), scale=np.float64(2.0))
    np.testing.assert_allclose(got, 2 * X.sum(1), rtol=1e-14)
    got = tg.vmap(lambda x, data: x @ data)(X, tg.Const(A))
    np.testing.assert_allclose(got, X @ A, rtol=1e-14)


def test_float32_and_complex():
    agree(lambda x: np.exp(x).sum() * x, X.astype(np.float32))
    agree(lambda x: (x * x.conj()).real.sum() + abs(x), X + 1j * X[::-1])


def test_no_samples():
    assert tg.vmap(lambda x: np.sin(x).sum())(np.zeros((0, 3))).shape == (0,)
    assert tg.vmap(tg.grad(lambda x: np.sin(x).sum()))(np.zeros((0, 3))).shape == (0, 3)


def test_the_function_runs_once():
    calls = []
    tg.vmap(lambda x: (calls.append(1), x)[1])(X)
    assert calls == [1]


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 9])
def test_chunks(chunk):
    calls = []

    def f(x):
        calls.append(1)
        return {"y": A @ x, "n": None}, x[0]

    got = tg.vmap(f, out_axes=({"y": 1, "n": 0}, 0), chunk=chunk)(X)
    np.testing.assert_allclose(got[0]["y"], A @ X.T, rtol=1e-13)
    np.testing.assert_array_equal(got[1], X[:, 0])
    assert got[0]["n"] is None and len(calls) == -(-4 // chunk)
    g = lambda x: tg.vmap(lambda v: (v**3).sum(), chunk=chunk)(x).sum()
    np.testing.assert_allclose(tg.grad(g)(X), 3 * X**2, rtol=1e-14)


M = np.random.default_rng(4).normal(size=(4, 3, 2))
C = np.arange(6.0).reshape(2, 3) - 2
WITHOUT_DERIVATIVE = {
    "compared": lambda x, m: (x > 0, x < C, C.T >= m, x[0] > C, 3 > x, x == m.T, np.equal(x, x[::-1])),
    "argmax": lambda x, m: (
        np.argmax(m),
        np.argmax(m, 0),
        np.argmin(m, axis=-1),
        np.argmax(m, axis=1, keepdims=True),
        x.argmax(),
    ),
    "kept": lambda x, m: (np.argmax(m, keepdims=True), np.argmax(x[0]), np.nanargmax(m, 0)),
    "argsort": lambda x, m: (
        np.argsort(m),
        np.argsort(m, axis=0),
        np.argsort(m, axis=None),
        np.lexsort((x,)),
    ),
    "any": lambda x, m: (
        np.any(m > 0),
        (m > 0).all(0),
        np.any(m > 1, axis=(0, 1)),
        np.any(x[0] > 0),
        np.all(m > 0, keepdims=True),
    ),
    "counted": lambda x, m: (
        np.count_nonzero(m > 0, axis=1),
        np.sum(x > 0),
        (x > 0).sum() * x,
        (x > 0) * 1.0 @ m,
    ),
    "logical": lambda x, m: (
        np.logical_and(m > 0, x[:, None] > 0) | (m < -1),
        ~(x > 0),
        np.bitwise_and(x > 0, True),
    ),
    "searched": lambda x, m: (
        np.searchsorted(np.sort(x), 0.1),
        np.digitize(x, np.array([-1, 0, 1.0])),
        np.isin(x, [x[0]]),
    ),
    "close": lambda x, m: (np.isclose(m, m * 1.0), np.signbit(x), np.floor(x), x // 0.3, np.round(x, 1)),
    "composed": lambda x, m: (
        np.median(x),
        np.percentile(m, 30, axis=0),
        np.interp(x, np.sort(m[:, 0]), m[:, 1]),
        np.cov(m),
    ),
    "elements": lambda x, m: (
        np.array([x[0], 1.0, m[0, 0]]),
        np.vectorize(lambda a: a * 2)(x),
        np.fromiter((a for a in x), float),
    ),
}


@pytest.mark.parametrize("name", WITHOUT_DERIVATIVE)
def test_functions_without_derivative(name):
    agree(WITHOUT_DERIVATIVE[name], X, M)


# --- programs that write ---


def recurrence(x):
    y = np.zeros(3)
    y[0] = x[0]
    for k in range(1, 3):
        y[k] = y[k - 1] * x[k] + np.sin(x[0])
    v = y[1:]
    v *= x[:2]
    y[::2] += v
    w = y.reshape(3, 1)
    w[1] = w[0] * 2
    return y @ A @ y


@pytest.mark.parametrize(
    "f", [recurrence, tg.grad(recurrence), tg.hessian(recurrence), tg.jacobian(tg.grad(recurrence))]
)
def test_programs_that_write(f):
    agree(f, X)


def test_index_arrays():
    rows, cols = np.array([0, 2, 2]), np.array([1, 1, 0])

    def f(x):
        m = np.outer(x, x)
        m[rows, cols] = x
        m[:, cols] *= 2
        np.add.at(m, (rows, cols), x)
        t = np.stack([m, m.T])
        t[rows[:2] // 2, :, cols[:2]] = x * 3
        return t[0, :, cols], m[m.sum() * 0 < 1], t[:, None, [True, False, True]], t[..., rows, :]

    agree(f, X)


# --- nesting ---


def f(x):
    return (np.sin(A @ x) * x).sum() + x[0] * x[1] ** 2


def test_in_transforms():
    weights = np.arange(1.0, 5)
    over = lambda run: lambda X: (run(X) * weights).sum()
    loop = lambda X: np.stack([f(x) for x in X])
    for t in (
        tg.grad,
        lambda g: lambda x: tg.hvp(g, x, X * 0.3),
        lambda g: lambda x: tg.jvp(g, (x,), (X,))[1],
        tg.hessian,
    ):
        np.testing.assert_allclose(t(over(tg.vmap(f)))(X), t(over(loop))(X), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(tg.jacobian(tg.vmap(f))(X), tg.jacobian(loop)(X), rtol=1e-12, atol=1e-13)


def test_around_transforms():
    v = np.array([0.3, -1.0, 0.5])
    for g in (
        tg.grad(f), tg.value_and_grad(f), tg.hessian(f), tg.jacobian(lambda x: x * f(x)), lambda x: tg.hvp(f,
        x, x),
        lambda x: tg.jvp(f, (x,), (v,)), lambda x: tg.vjp(lambda y: y * f(y), x)[1](v), lambda x: tg.hmp(f, x,
        np.eye(3)),
        tg.checkpoint(f), tg.grad(lambda x: tg.checkpoint(lambda y: np.sin(y) * f(y))(x).sum()),
    ):  # fmt: skip
        agree(g, X)


def test_vmap_in_vmap():
    m = np.random.default_rng(0).normal(size=(2, 4, 3))
    np.testing.assert_allclose(tg.vmap(tg.vmap(f))(m), [[f(x) for x in row] for row in m], rtol=1e-13)
    pairs = tg.vmap(lambda x: tg.vmap(lambda y: x @ A @ y + recurrence(x * y))(X))(X)
    np.testing.assert_allclose(pairs, [[x @ A @ y + recurrence(x * y) for y in X] for x in X], rtol=1e-12)
    g = tg.grad(lambda m: (tg.vmap(tg.vmap(tg.grad(recurrence), in_axes=1), in_axes=2)(m) ** 2).sum())
    turned = m.transpose(2, 1, 0)
    want = tg.grad(
        lambda m: sum(
            [(tg.grad(recurrence)(m[:, i, k] * 1.0) ** 2).sum() for i in range(4) for k in range(2)]
        )
    )
    np.testing.assert_allclose(g(turned), want(turned), rtol=1e-11)


def test_rules_of_the_user():
    for r in (
        tg.rule(lambda x: np.sin(x).sum(), vjp=lambda g, out, x: g * np.cos(x)),
        tg.rule(lambda x: np.sin(x).sum(), jvp=lambda t, out, x: (np.cos(x) * t[0]).sum()),
    ):
        agree(r, X)
        agree(tg.grad(lambda x, r=r: r(x * x)), X)
        np.testing.assert_allclose(tg.grad(lambda X, r=r: tg.vmap(r)(X).sum())(X), np.cos(X), rtol=1e-14)


def test_rules_run_once_where_they_can():
    """For all samples at once; one after another where they ask for plain arrays, or do another thing with
    others."""
    calls = []

    def noted(x):
        calls.append(1)
        return np.sin(x).sum()

    def plainly(x):
        assert type(x) is np.ndarray
        return np.asarray(x) ** 2

    of_two = lambda g, out, x, y: (g * np.cos(x) * y.sum(), (g * np.sin(x)).sum() + 0 * y)
    cases = [
        (tg.rule(noted, vjp=lambda g, out, x: g * np.cos(x)), 1),
        (tg.rule(lambda x, y: np.sin(x) * y.sum(), vjp=of_two), 2),
        (tg.rule(lambda x: (np.sin(x), x.sum()), jvp=lambda t, out, x: (np.cos(x) * t[0], t[0].sum())), 1),
        (tg.rule(plainly, vjp=lambda g, out, x: 2 * g * x), 1),
        (
            tg.rule(
                lambda x: x * 2 if x[0] > 0 else x * 3, vjp=lambda g, out, x: g * np.where(x[0] > 0, 2.0, 3.0)
            ),
            1,
        ),
        (
            tg.rule(lambda x: x * x if isinstance(x, np.ndarray) else x * 7, vjp=lambda g, out, x: 2 * g * x),
            1,
        ),
    ]
    for r, arity in cases:
        stacks = (X, X[::-1] * 0.5)[:arity]
        for form, batched, loop in forms(lambda r=r: r, arity, [np.cos(x) for x in stacks]):
            assert same(batched(*stacks), loop(*stacks)), form
    wary = tg.rule(plainly, vjp=lambda g, out, x: 2 * np.asarray(g) * plainly(x) / x)
    agree(tg.grad(lambda x: wary(x).sum()), X)
    agree(lambda x: tg.vmap(lambda c: tg.grad(lambda y: (wary(y) * c).sum())(x))(X), X)
    del calls[:]
    tg.grad(lambda X: tg.vmap(cases[0][0])(X).sum())(X)
    assert len(calls) == 2  # for the first sample, and for all


# --- CuPy ---


def test_on_cupy(xp):
    a, stack = xp.asarray(A), xp.asarray(X)
    buffer = xp.zeros(3)
    rows = xp.asarray(np.array([2, 0]))

    def g(x):
        buffer[:] = x * 2
        y = xp.zeros(3)
        y[1:] = buffer[:2] * x[0]
        y[rows] += x[:2]
        v = y[::2]
        v *= 3.0
        return (
            xp.where(y > 0, y, a @ x).sum() + xp.exp(-x @ x) + xp.cumsum(x).max() + xp.linalg.solve(a, x)[1]
        )

    for h in (g, tg.grad(g), lambda x: tg.hvp(g, x, x), tg.hessian(g)):
        want = np.stack([host(h(x)) for x in stack])
        got = tg.vmap(h)(stack)
        assert type(got) is type(stack)
        np.testing.assert_allclose(host(got), want, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(host(buffer), 2 * X[-1], rtol=1e-15)
    got = tg.grad(lambda s: (tg.vmap(g)(s) ** 2).sum())(stack)
    want = tg.grad(lambda s: sum([g(x * 1.0) ** 2 for x in s]))(stack)
    np.testing.assert_allclose(host(got), host(want), rtol=1e-11)
    picks = xp.asarray(np.array([0, 2, 1, 1]))
    got = tg.vmap(lambda x, k: x[k] * 2)(stack, picks)
    np.testing.assert_array_equal(host(got), 2 * X[np.arange(4), [0, 2, 1, 1]])
    with pytest.raises(BatchError, match="differs between samples"):
        tg.vmap(lambda x: x if x[0] > 0 else -x)(stack)
    with pytest.raises(BatchError, match="sample to sample"):
        tg.vmap(lambda x: buffer.__iadd__(x).sum())(stack)


# --- many directions at once ---


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_jacobians_by_batches_of_sweeps(mode, xp, monkeypatch):
    """The same numbers as one sweep after another, in one batch and in several."""
    w = xp.asarray(np.random.default_rng(5).normal(size=(12, 12)) / 3)
    x = xp.asarray(np.random.default_rng(6).normal(size=12))

    def g(x):
        y = xp.zeros((3, 4))
        y[:] = xp.tanh(w @ x).reshape(3, 4) * x[0]
        y[1:] *= y[:-1]
        return {"y": y, "c": x[:3] * (1 + 2j)}

    def scalar(x):
        return (g(x)["y"] ** 2).sum()

    directions = xp.asarray(np.random.default_rng(7).normal(size=(9, 12)))
    calls = [
        lambda: tg.jacobian(g, mode=mode)(x),
        lambda: tg.hessian(scalar)(x),
        lambda: tg.hmp(scalar, x, directions),
    ]
    want = {}
    for few, room in ((1000, 1 << 22), (2, 1 << 22), (2, 300)):
        monkeypatch.setattr("tapegrad._transforms.many_directions.FEW_SWEEPS", few)
        monkeypatch.setattr("tapegrad._transforms.many_directions.SWEEP_BYTES", room)
        for n, call in enumerate(calls):
            found = call()
            for k, y in enumerate(leaves(found)):
                y = want.setdefault((n, k), host(y)), host(y)
                assert y[0].dtype == y[1].dtype
                np.testing.assert_allclose(y[1], y[0], rtol=1e-12, atol=1e-13)


def test_a_rule_that_takes_plain_arrays_is_swept_one_after_another():
    r = tg.rule(lambda x: np.sin(x), vjp=lambda g, out, x: np.asarray(g) * np.cos(x))
    x = np.arange(10.0)
    np.testing.assert_allclose(tg.jacobian(r)(x), np.diag(np.cos(x)), rtol=1e-15)
    np.testing.assert_allclose(
        tg.jacobian(lambda x: tg.jacobian(r)(x) @ np.ones(10))(x), -np.diag(np.sin(x)), rtol=1e-12, atol=1e-12
    )


# --- branches ---


@pytest.mark.parametrize("ask", [int, math.trunc, math.floor, math.ceil, operator.index])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: x[0],
        lambda x: x[0] * 1j,
        lambda x: np.array(x[0]),
        lambda x: np.array(x[0] * 1j),
        lambda x: np.array([x[0]]),
    ],
)
def test_a_value_on_which_all_samples_agree_has_the_class_of_a_plain_one(ask, make):
    """NumPy answers for a number, and raises for an array without dimensions."""

    def answer(x):
        try:
            answers.append(ask(make(x)))
        except TypeError:
            answers.append(TypeError)
        return x.sum()

    answers = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy 2.2 deprecates the conversion of a vector
        answer(X[0])
        tg.vmap(answer)(X[[0, 0]])
    assert answers[1:] == answers[:1] * (len(answers) - 1) and len(answers) > 1


def test_a_branch_on_which_all_samples_agree():
    def g(x):
        n = int((x > -99).sum())
        while n > 2:
            n -= 1
        return x[:n] * 2 if (x * x).sum() >= 0 and not np.isnan(x).any() else x

    agree(g, X)
    agree(tg.grad(lambda x: g(x).sum()), X)


def test_a_branch_on_which_they_differ():
    with pytest.raises(
        BatchError,
        match=r"vmap\(g\): .*test_vmap.py:\d+: `if`.* differs between samples \(true for \d of "
        r"4\).*numpy.where",
    ):

        def g(x):
            return x if x[0] > 0 else -x

        tg.vmap(g)(X)
    with pytest.raises(BatchError, match="a value is asked for"):
        tg.vmap(lambda x: x[: int(abs(x[0]) * 3)])(X)
    with pytest.raises(BatchError, match="a mask that differs|shapes that differ|a value is asked for"):
        tg.vmap(lambda x: x[x > 0])(X)
    np.testing.assert_allclose(tg.vmap(lambda x: x * float(x[0]))(X), X * X[:, :1])


def test_an_error_that_is_swallowed_is_raised_again():
    def g(x):
        try:
            return x if x[0] > 0 else -x
        except TypeError:
            return x

    with pytest.raises(BatchError, match="except"):
        tg.vmap(g)(X)


# --- captured arrays ---


def test_a_captured_buffer_ends_with_the_last_sample():
    buffer, matrix = np.zeros(3), np.full((3, 3), 7.0)
    tail = buffer[1:]

    def g(x):
        buffer[:] = x * 2
        tail[:] *= x[0]
        matrix[1, :2] = buffer[:2]
        return (buffer * x).sum() + matrix[1, 1]

    for h in (g, tg.grad(g), lambda x: tg.hvp(g, x, x)):
        buffer[:], matrix[:] = 0, 7
        want = looped(h)(X)
        after = buffer.copy(), matrix.copy()
        buffer[:], matrix[:] = 0, 7
        assert same(vmapped(h)(X), want)
        np.testing.assert_allclose(buffer, after[0], rtol=1e-15)
        np.testing.assert_allclose(matrix, after[1], rtol=1e-15)
    buffer[:] = 0
    tg.grad(lambda X: tg.vmap(g)(X).sum())(X)
    np.testing.assert_allclose(buffer, after[0], rtol=1e-15)


def test_captured_views_of_one_memory():
    z = np.zeros(8, complex)
    row = z[1:6]
    parts, every = row.imag, row.real[::2]
    square = np.zeros((3, 4), order="F")
    column, block = square[:, 1], square[:2, ::2]
    places = np.array([2, 0, 2])

    def g(x):
        z[:] = x[0] * 1.5
        parts[:3] = x
        every[:] = x * x[1]
        row.imag[places] += x
        z.real.reshape(2, 4)[np.array([0, 1]), ::2] = x[:2, None]
        square[:] = x[0]
        column[:] = x
        block[...] *= x[1]
        block.T[0] = x[:2]
        return (
            (z * z.conj()).real.sum()
            + (z * z).imag.sum()
            + (square * square.T.reshape(3, 4)).sum()
            + column[1] * every[0] * parts[1]
        )

    for h in (g, tg.grad(g), lambda x: tg.hvp(g, x, x)):
        agree(h, X)
        left = z.copy(), square.copy()
        z[:], square[:] = 0, 0
        vmapped(h)(X)
        assert np.allclose(z, left[0]) and np.allclose(square, left[1])
    got = tg.grad(lambda X: (tg.vmap(g)(X) ** 2).sum())(X)
    np.testing.assert_allclose(got, tg.grad(lambda X: sum([g(x * 1.0) ** 2 for x in X]))(X), rtol=1e-12)


def test_captured_data_stay():
    data = A.copy()
    agree(lambda x: data @ x + data[0] if data[0, 0] > 0 else x, X)
    agree(lambda x: x * float(data.sum()) + np.asarray(data)[0], X)
    assert (data == A).all()


@pytest.mark.parametrize(
    "outer",
    [lambda g: tg.vmap(g), lambda g: tg.vmap(tg.grad(g)), lambda g: tg.grad(lambda X: tg.vmap(g)(X).sum())],
)
def test_state_from_sample_to_sample_raises(outer):
    total, table = np.zeros(1), np.zeros((2, 3))

    def add(x):
        total[0] += x.sum()
        return total[0] * 1.0

    def read_then_write(x):
        y = x.sum() * total[0]
        total[:] = x[1]
        return y

    def count(x):
        total[0] += 1.0
        return x.sum() * total[0]

    def row(x):
        y = (table[0] * x).sum()
        table[:, 1:] = x[0]
        return y

    def scatter(x):
        np.add.at(table, (np.array([0, 1]), np.array([2, 2])), x[:2])
        return x.sum()

    for g in (add, read_then_write, count, row, scatter):
        with pytest.raises(
            BatchError, match=r"test_vmap.py:\d+: a captured array of shape .* from sample to sample"
        ):
            outer(g)(X)


def test_state_in_names_and_containers_raises():
    log, held = [], {"last": np.zeros(3)}
    last = 0.0

    def name(x):
        nonlocal last
        last = last * 0.5 + x.sum()
        return last

    def item(x):
        held["last"] = held["last"] + x
        return held["last"].sum()

    for g, where in (
        (lambda x: (log.append(x.sum()), x.sum())[1], "a list"),
        (name, "a name of an outer function"),
        (item, "a dict"),
    ):
        for h in (g, tg.grad(g)):
            with pytest.raises(BatchError, match=f"keeps a value in {where}"):
                tg.vmap(h)(X)


def test_what_is_kept_and_not_handed_on():
    """In names, attributes and containers, as a loop leaves it; under derivatives too."""
    log, held, last = [], {"last": np.zeros(3)}, 0.25

    class Cell:
        h = np.zeros(3)
        trace: list = []

        def step(self, x):
            self.h = self.h * 0.0 + np.tanh(A @ x)
            self.trace = [self.h[0], {"h": self.h}]
            return self.h

    cell = Cell()

    def of_a_list(x):
        log.clear()
        log.append(x * 2)
        log.append(log[0].sum())
        return log[-1] * log[0]

    def of_names(x):
        nonlocal last
        last = last * 0.0 + x @ A @ x
        held["last"] = np.sin(x)
        held["last"][1:] *= x[0]
        return last * held["last"]

    for g in (of_a_list, of_names, cell.step):
        total = lambda x, g=g: (g(x) ** 2).sum()
        for h in (g, tg.grad(total), tg.jacobian(g), lambda x, t=total: tg.hvp(t, x, x)):
            agree(h, X)
        looped(g)(X)
        after = leaves([log, held, last, cell.h, cell.trace])
        for h in (
            lambda g: tg.vmap(g),
            lambda g: tg.grad(lambda X: tg.vmap(lambda x: (g(x) ** 2).sum())(X).sum()),
        ):
            h(g)(X)
            assert same(leaves([log, held, last, cell.h, cell.trace]), after)
        over = lambda run: lambda X, t=total: (run(X) * np.arange(1.0, 5)).sum()
        batch, loop = over(tg.vmap(total)), over(lambda X, t=total: np.stack([t(x) for x in X]))
        for t in (
            tg.grad,
            tg.hessian,
            lambda g: lambda x: tg.hvp(g, x, X),
            lambda g: lambda x: tg.jvp(g, (x,), (X,))[1],
        ):
            np.testing.assert_allclose(t(batch)(X), t(loop)(X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        tg.vmap(lambda x: tg.vmap(lambda y: of_a_list(x * y).sum())(X))(X),
        [[(4 * (x * y) * (x * y).sum()).sum() for y in X] for x in X],
    )


def test_what_is_kept_and_handed_on_where_no_value_shows_it():
    """At zero weights the results do not depend on the state, and their derivatives do."""
    state = [np.zeros(3)]

    def recurrent(w, x):
        y = w @ x + w @ state[0]
        state[0] = x * 1.0
        return y

    def counted(x):
        state[0] = state[0] * state[0] + x
        return x.sum()

    for g in (lambda w: tg.vmap(recurrent, (None, 0))(w, X).sum(), lambda w: tg.vmap(counted)(X * w).sum()):
        for t in (tg.grad(g), lambda w, g=g: tg.jvp(g, (w,), (w + 1,)), tg.hessian(g)):
            state[0] = np.zeros(3)
            with pytest.raises(BatchError, match="keeps a value"):
                t(np.zeros(3))


def test_what_is_handed_on_inside_of_other_objects():
    class Node:
        def __init__(self, value, before):
            self.value, self.before = value, before

    class Chain:
        last = Node(np.zeros(3), None)

        def push(self, x):
            y = (self.last.value * x).sum()
            self.last = Node(x * 2, None)
            return y

        def replace(self, x):
            self.last = Node(x * 2, None)
            self.call = lambda: self.last.value * x
            return self.call().sum()

    chain = Chain()
    for h in (chain.push, tg.grad(chain.push)):
        with pytest.raises(BatchError, match="keeps a value in an attribute of a Chain"):
            tg.vmap(h)(X)
    agree(chain.replace, X)
    agree(tg.grad(chain.replace), X)
    np.testing.assert_array_equal(chain.last.value, 2 * X[-1])


def test_a_branch_on_what_was_kept():
    last = [0.0]

    def g(x):
        y = x * 2 if last[0] > 10 else x
        last[0] = x[0]
        return y

    with pytest.raises(BatchError):
        tg.vmap(g)(np.array([[20.0], [1.0], [3.0]]))


def test_what_only_the_first_sample_leaves():
    class Box:
        field = np.zeros(3)

    box, original = Box(), Box.field

    def g(x):
        box.field[...] = x
        box.field = box.field * 2
        return box.field.sum()

    with pytest.raises(BatchError, match="keeps a value"):
        tg.vmap(g)(X)
    assert original is Box.field


def test_random_numbers():
    rng = np.random.default_rng(0)
    seeded = lambda x: x + np.random.default_rng(7).standard_normal(3)
    agree(seeded, X)
    agree(tg.grad(lambda x: (seeded(x) ** 2).sum()), X)
    for g in (
        lambda x: x + rng.standard_normal(3),
        lambda x: x * np.random.rand(),
        lambda x: x * np.random.default_rng().normal(),
    ):
        for h in (g, tg.jacobian(g)):
            with pytest.raises(BatchError, match=r"test_vmap.py:\d+: numpy.random: .* the same numbers"):
                tg.vmap(h)(X)
    with pytest.raises(BatchError, match="Python's `random`"):
        tg.vmap(lambda x: x * random.random())(X)
    made_inside = lambda x: (lambda r: tg.vmap(lambda y: y * r.standard_normal())(X) @ x)(
        np.random.default_rng(3)
    )
    with pytest.raises(BatchError, match="the same numbers"):
        tg.vmap(made_inside)(X)


# --- bad input ---


def test_bad_axes():
    g = lambda x: x
    with pytest.raises(
        ShapeError, match=r"vmap\(<lambda>\): argument 0: axis 2 is out of range for shape \(4, 3\)"
    ):
        tg.vmap(g, in_axes=2)(X)
    with pytest.raises(ShapeError, match="argument 1: axis 0 is out of range for float, which has no axes"):
        tg.vmap(lambda x, y: x)(X, 2.0)
    with pytest.raises(
        ShapeError,
        match="numbers of samples differ: 4 along axis 0 of argument 0, 3 along axis 0 of argument 1",
    ):
        tg.vmap(lambda x, y: x)(X, A)
    with pytest.raises(ArgumentError, match="maps no argument"):
        tg.vmap(g, in_axes=None)(X)
    with pytest.raises(ArgumentError, match="no argument to map over"):
        tg.vmap(lambda **k: 1)(x=X)
    with pytest.raises(ArgumentError, match="does not fit a call with 1 positional"):
        tg.vmap(g, in_axes=(0, 0))(X)
    with pytest.raises(ArgumentError, match="does not fit"):
        tg.vmap(g, in_axes=({"a": 0},))(X)
    with pytest.raises(ArgumentError, match="an axis is an int, or None"):
        tg.vmap(g, in_axes=("rows",))(X)


def test_bad_results():
    with pytest.raises(ArgumentError, match="out_axes=None for a result that depends on the sample"):
        tg.vmap(lambda x: x, out_axes=None)(X)
    with pytest.raises(ShapeError, match=r"out_axes=2 is out of range for a result of shape \(3,\)"):
        tg.vmap(lambda x: x, out_axes=2)(X)
    with pytest.raises(ArgumentError, match="returned str"):
        tg.vmap(lambda x: "text")(X)
    with pytest.raises(ArgumentError, match="does not fit"):
        tg.vmap(lambda x: x, out_axes=(0, 1))(X)


@pytest.mark.parametrize("chunk", [0, -1, 2.0, True])
def test_bad_chunks(chunk):
    with pytest.raises(ArgumentError, match="chunk="):
        tg.vmap(lambda x: x, chunk=chunk)


def test_arguments_that_share_memory():
    def g(x, y):
        x[0] = 5.0
        return x.sum() + y.sum()

    agree(lambda x, y: x @ y, X, X)
    agree(g, X, X[::-1].copy())
    for second in (X, X[:, ::-1]):
        with pytest.raises(AliasError, match=r"take x\.copy\(\)"):
            tg.vmap(g)(X, second)
    with pytest.raises(AliasError, match=r"take x\.copy\(\)"):
        tg.vmap(lambda x, y: g(y, x), in_axes=(0, None))(X, X[0])
    data = X.copy()
    with pytest.raises(AliasError):
        tg.vmap(lambda x: data.__setitem__(0, 1.0) or x.sum())(data)
    assert (data == X).all()


def test_an_error_inside_leaves_everything_closed():
    buffer = np.zeros(3)

    def g(x):
        buffer[:] = x
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tg.vmap(g)(X)
    np.testing.assert_array_equal(buffer, X[-1])
    agree(f, X)


ORDERS = {
    "C": lambda a: a.copy(),
    "F": np.asfortranarray,
    "turned": lambda a: a.transpose(2, 0, 1).copy().transpose(1, 2, 0),
    "backwards": lambda a: a[::-1, :, ::-1].copy()[::-1, :, ::-1],
    "gaps": lambda a: np.repeat(a, 2, axis=2)[:, :, ::2],
}
OUTER = {
    "value": lambda f: f,
    "grad": lambda f: tg.grad(lambda x: np.sin(f(x)).sum()),
    "jvp": lambda f: lambda x: tg.jvp(f, (x,), (x + 1,))[1],
    "prepare": lambda f: lambda x: tg.prepare(f, x).value(x),
    "prepare with Const": lambda f: (
        lambda x: tg.prepare(lambda x, c: f(x) * c, x, tg.Const(2.0)).value(x, tg.Const(2.0))
    ),
    "vmap": lambda f: lambda x: tg.vmap(lambda y, c: f(y) * c, in_axes=(0, None))(x[None], tg.Const(2.0)),
}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("order", ORDERS)
def test_stacks_that_a_transform_around_knows(order, outer):
    """Captured by its function, or its argument, in any order of memory: buffers end as a loop leaves
    them."""
    stack, left = ORDERS[order](np.sin(np.arange(36.0)).reshape(4, 3, 3)), np.zeros(5)

    def g(a):
        left[:] = a.sum()
        left[0] += a[0, 0]
        return a * left[1]

    looped = lambda stack: np.stack([g(stack[k]) for k in range(4)])
    for of in (
        lambda over: lambda x: over(stack) * x.sum(),
        lambda over: over,
        lambda over: lambda x: over(stack)[0].sum() * over(x),
    ):
        ends = []
        for over in (looped, tg.vmap(g)):
            left[:] = 0
            ends.append([OUTER[outer](of(over))(stack), left.copy()])
        np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-12)
        np.testing.assert_array_equal(ends[1][1], ends[0][1])


def test_a_write_through_an_address_raises():
    raw = np.full(3, 0.3)

    def writes(x):
        ctypes.cast(raw.ctypes.data, ctypes.POINTER(ctypes.c_double))[0] = 0.8
        return (raw * x).sum()

    def reads(x):
        return ctypes.cast(raw.ctypes.data, ctypes.POINTER(ctypes.c_double))[0] * x.sum()

    stack = np.arange(6.0).reshape(2, 3)
    assert np.allclose(tg.vmap(reads)(stack), 0.3 * stack.sum(1))
    for f in (writes, tg.grad(writes)):
        with pytest.raises(BatchError, match="by its address"):
            tg.vmap(f)(stack)


def test_a_name_by_a_context_variable():
    held = contextvars.ContextVar("held")
    held.set({"a": 0.5})
    stack = np.arange(6.0).reshape(2, 3)
    assert np.allclose(tg.vmap(lambda x: (held.get()["a"] * x).sum())(stack), 0.5 * stack.sum(1))


def test_windows_of_an_array_without_axes():
    number = np.array(0.5)
    window = np.atleast_2d(number)

    def f(x):
        window[0, 0] = x[0] * 0.7
        window.flat[0] += x[1]
        return (number * x).sum() + window.sum()

    stack = np.arange(6.0).reshape(2, 3)
    assert np.allclose(tg.vmap(tg.grad(f))(stack), [tg.grad(f)(x) for x in stack])
    assert np.allclose(tg.vmap(f)(stack), [f(x) for x in stack])


def test_a_write_into_memory_that_was_handed_out_raises():
    raw = np.full(3, 0.3)

    def writes(x):
        np.asarray(raw.data)[0] = 0.8
        return (raw * x).sum()

    with pytest.raises(BatchError, match="handed out"):
        tg.vmap(writes)(np.arange(6.0).reshape(2, 3))
    assert np.allclose(raw, 0.3)
    with pytest.raises(ValueError, match="read-only"):  # the function's own

        def refuses(x):
            frozen = np.zeros(3)
            frozen.flags.writeable = False
            frozen[0] = 1.0
            return x.sum()

        tg.vmap(refuses)(np.arange(6.0).reshape(2, 3))


def test_an_element_of_a_view_is_all_that_is_read():
    """The rest of the view is written only afterwards."""
    waves = np.full((3, 6), 0.5)

    def f(x):
        new = waves[2]
        new[1:-1] = x[0] ** 2
        new[0], new[-1] = new[1] * x[1], new.reshape(2, 3)[0, 2] + 1.0
        rows = waves[:2]
        rows[1, 2:] = x[1]
        rows[1][1] = rows[1][2] ** 2
        rows[1][0] = rows[1, 1] * 2.0
        return new.sum() + rows[1].sum()

    x = np.arange(6.0).reshape(3, 2) / 7
    want = [f(row) for row in x]
    left = waves.copy()
    for form in (
        tg.vmap(f),
        lambda x: tg.vmap(tg.value_and_grad(f))(x)[0],
        lambda x: tg.prepare(tg.vmap(f), x).value(x),
    ):
        waves[:] = 0.5
        assert np.allclose(form(x), want) and np.array_equal(waves, left)


def test_a_rule_that_reads_its_result_under_several_transforms():
    """The slope of tanh is worked out of its value, which counts for nothing in the derivative of the
    slope."""
    w = np.array([[1.0, 0.2], [-0.3, 0.8]])
    flow = lambda z: np.tanh(w @ z) + z
    f = lambda x: np.linalg.slogdet(tg.jacobian(flow)(x))[1] + (flow(x) ** 2).sum()
    x, v = np.array([[0.5, 0.2], [0.4, -0.1], [1.5, 0.3]]), np.array([[1.0, -0.5], [0.3, 0.7], [0.2, 0.1]])
    got = tg.hvp(lambda x: tg.vmap(f)(x).sum(), x, v)
    assert np.allclose(got, [tg.hvp(f, a, b) for a, b in zip(x, v, strict=True)], rtol=1e-12)
    forward = tg.jvp(lambda x: tg.vmap(tg.grad(f))(x), (x,), (v,))[1]
    assert np.allclose(forward, got, rtol=1e-12)


WRITES_OF_ITSELF = {
    "reversed": "b[::-1] = b", "a view": "v = b[::-1]; v[...] = b", "ravel": "b.ravel()[::-1] = b",
    "places": "b[[1, 2, 0]] = b",
    "copyto": "np.copyto(b[::-1], b)", "sum": "b += b", "sort": "b.sort()",
    "swap": "b[:1], b[-1:] = b[-1:], b[:1]",
    "flat": "b.flat = b[::-1]",
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES_OF_ITSELF)
def test_a_captured_array_that_is_written_with_itself_hands_something_on(name):
    space: dict = {"np": np}
    line = WRITES_OF_ITSELF[name]
    head = "def made():\n    b = np.array([1.0, 4.0, 2.0])\n    def f(x):\n        nonlocal b\n"
    exec(f"{head}        {line}\n        return (b * x).sum()\n    return f", space)
    with pytest.raises(BatchError):
        tg.vmap(space["made"]())(np.ones((3, 3)))


@pytest.mark.parametrize("write", [np.add.at, np.subtract.at], ids=["add", "subtract"])
def test_a_tracked_value_that_is_added_to_integers_is_loud(write):
    def f(x):
        k = np.argsort(x)
        write(k, [0], x[1])
        return (k * x).sum()

    x = np.array([0.7, 0.2, 0.3])
    for call in (tg.grad(f), tg.prepare(f, x).grad, lambda x: tg.vmap(tg.grad(f))(x[None])):
        with pytest.raises(DroppedDerivativeError):
            call(x)


def test_a_stack_without_samples():
    """It has a result where the shapes are enough, else a clear error."""
    none = np.zeros((0, 3))

    def written(x):
        y = np.outer(x, x)
        np.fill_diagonal(y, 0.0)
        y[0] += np.sin(x)
        return y

    assert tg.vmap(written)(none).shape == (0, 3, 3)
    assert tg.vmap(tg.jacobian(written))(none).shape == (0, 3, 3, 3)
    assert tg.vmap(tg.grad(lambda x: (x * x).sum()))(none).shape == (0, 3)
    with pytest.raises(BatchError, match="the stack has no samples.*return early"):
        tg.vmap(lambda x: np.stack([v for v in x if tg.value(v).size > 1]))(none)
    with pytest.raises(BatchError, match="`if`.*of a stack without samples"):
        tg.vmap(lambda x: x if x[0] > 0 else -x)(none)


class Pair(NamedTuple):
    u: Any
    v: Any


@dataclass
class Params:
    pair: Any
    scale: Any
    count: Any = 3


def test_gradients_by_trees_of_the_users_classes():
    """`f` makes these objects anew in each run, so they keep nothing from sample to sample."""
    X, s = np.arange(6.0).reshape(2, 3), np.array([2.0, 3.0])
    f = lambda p: (p.pair.u * p.pair.v).sum() * p.scale
    g = tg.vmap(tg.grad(f), in_axes=(Params(Pair(0, 0), 0, None),))(Params(Pair(X, X + 1), s))
    np.testing.assert_array_equal(g.pair.u, (X + 1) * s[:, None])
    np.testing.assert_array_equal(g.pair.v, X * s[:, None])
    np.testing.assert_array_equal(g.scale, (X * (X + 1)).sum(1))


def test_a_shape_may_stand_in_an_array_of_integers():
    def blocks(x):
        sizes = np.empty(2, int)
        sizes[:] = 3, 2
        return x.reshape(sizes).sum(0)

    xs = np.arange(12.0).reshape(2, 6)
    np.testing.assert_array_equal(tg.vmap(blocks)(xs), [blocks(x) for x in xs])
