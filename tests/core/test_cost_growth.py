"""What a call costs is in proportion to what it does: views of views, captured memory, trees, calls of
Python's."""

import gc
import random
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from frames import calls

import tapegrad as tg
from tapegrad._core import scope
from tapegrad._core.arrays import same_bits
from tapegrad._core.trees import leaves, with_leaves

X = np.array([0.3, 0.4, 0.5])


# --- views of views ---


@pytest.mark.parametrize("n", [3, 520, 1201])
def test_transposes_of_transposes(n):
    A, W = np.random.default_rng(n).standard_normal((2, 3, 4))

    def f(A):
        B = A * 1.0
        for _ in range(n):
            B = B.T
        return ((B.T if n % 2 else B) * W).sum() + (B * B).sum()

    assert np.allclose(tg.grad(f)(A), W + 2 * A)
    assert np.allclose(tg.jvp(f, (A,), (W,))[1], (W * W).sum() + 2 * (A * W).sum())
    assert np.allclose(tg.hvp(f, A, W), 2 * W)


def steps(draw, shape, n):
    """A chain of functions that NumPy answers with views, for an array of this shape, and the shape at the
    end."""
    found, a = [], np.zeros(shape)
    for _ in range(n):
        kinds = ["transpose", "flat", "slice", "split"]
        kind = draw.choice(kinds)
        if kind == "transpose" and a.ndim > 1:
            axes = list(range(a.ndim))
            draw.shuffle(axes)

            def step(b, axes=tuple(axes)):
                return b.transpose(axes)
        elif kind == "flat" and a.flags.c_contiguous:

            def step(b):
                return b.reshape(-1)
        elif kind == "split" and a.flags.c_contiguous and a.size % 2 == 0 and a.ndim < 4:

            def step(b, to=(2, a.size // 2)):
                return b.reshape(to)
        else:
            axis = draw.randrange(a.ndim)
            at = (slice(None),) * axis + (
                draw.choice([slice(1, None), slice(None, None, -1), slice(None, None, 2), slice(0, -1)]),
            )
            if 0 in a[at].shape or a[at].size < 4:
                at = (Ellipsis,)

            def step(b, at=at):
                return b[at]

        a = step(a)
        found.append(step)
    return found, a.shape


@pytest.mark.parametrize("seed", range(60))
def test_long_chains_of_views(seed):
    """Read and written, of cold and hot arrays; the judge is NumPy, for the function is linear but for a
    square at the end."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    shape = draw.choice([(64,), (8, 6), (3, 4, 5)])
    chain, end = steps(draw, shape, draw.randrange(4, 25))
    x, v, W, U = rng.standard_normal((4, *shape))
    y = rng.standard_normal(end)
    hot = draw.random() < 0.5
    keep = draw.randrange(len(chain))

    def f(x):
        b = x * U
        if hot:
            b[...] = b * 1.5
        views = [b]
        for step in chain:
            views.append(step(views[-1]))
        total = (views[-1] * y).sum()
        views[-1][...] = views[-1] * y + 0.25
        views[keep][...] *= 2.0
        return total + (b * b * W).sum()

    def slope(f, x, v):
        return f(x + 1e-200j * v).imag / 1e-200  # complex step

    g = tg.grad(f)(x)
    assert np.isclose((g * v).sum(), slope(f, x, v), rtol=1e-10)
    assert np.isclose(tg.jvp(f, (x,), (v,))[1], slope(f, x, v), rtol=1e-10)
    assert np.allclose(tg.hvp(f, x, v), tg.grad(f)(x + v) - g)  # it is quadratic


def test_captured_arrays_by_long_chains():
    """A window over a captured array, by a chain of views, is read and written where it lies."""
    root = np.arange(40.0).reshape(4, 10)
    part = root[1:, 2:9]

    def f(x):
        b = part
        for _ in range(6):
            b = b.T[:, ::-1].T
        for _ in range(5):
            b = b[:, 1:] if b.shape[1] > 3 else b
        b[...] = b * x
        return (root * root).sum()

    expected = root.copy()
    a, b = root.copy(), np.zeros(root.shape, bool)
    b[1:, 6:9] = True
    slope = (2 * 3.0 * a * a)[b].sum()
    assert np.isclose(tg.grad(f)(3.0), slope)
    expected[b] *= 3.0
    assert np.array_equal(root, expected)


def test_paths_stay_short():
    def f(x):
        b = x * 1.0
        for _ in range(300):
            b = b[1:]
        assert len(b._path) < 6
        return b.sum()

    assert tg.grad(f)(np.ones(310)).sum() == 10


# --- memory ---


def test_pullback_holds_captured_memory_once():
    A = np.random.default_rng(0).standard_normal((300, 300)) / 20
    x = np.ones(300)

    def f(x):
        for _ in range(20):
            x = A @ x
        return x

    expected = np.linalg.matrix_power(A.T, 20) @ x
    tg.vjp(f, x)
    gc.collect()
    tracemalloc.start()
    _, pullback = tg.vjp(f, x)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 1.5 * A.nbytes
    A *= 2  # nothing of the records changes with it
    assert np.allclose(pullback(x), expected, atol=0)


def test_same_bits():
    rng = np.random.default_rng(0)
    for dtype in (np.float16, np.float32, np.float64, np.longdouble, np.complex64, np.complex128):
        for shape in ((), (0,), (5,), (3, 70000), (70000, 3), (2, 3, 4)):
            a = rng.standard_normal(shape).astype(dtype)
            if a.size:
                a[(0,) * a.ndim] = np.nan
            for b in (a.copy(), a.copy(order="F")):
                assert same_bits(a, b)
                assert same_bits(a.T, b.T)
                for _ in range(3 if a.size else 0):
                    at = tuple([rng.integers(n) for n in shape])
                    before = b[at]
                    b[at] = 7.25
                    assert not same_bits(a, b)
                    b[at] = before
    assert not same_bits(np.zeros(3), -np.zeros(3))
    wide = rng.standard_normal((40, 40))
    assert same_bits(wide[::2, ::-3], wide.copy()[::2, ::-3])


def test_plain_operands_that_change_meanwhile():
    """Large ones are compared with their last copy."""
    data = np.ones(1000)

    def f(x):
        total = 0.0
        for k, value in enumerate((3.0, -0.0, 5.0, 5.0, 7.0)):
            data[k] = value
            total = total + (x * data).sum() * 10.0**k
        return total

    sums = [1002.0, 1001.0, 1005.0, 1009.0, 1015.0]
    assert np.isclose(tg.grad(tg.Const(f))(2.0), sum([s * 10.0**k for k, s in enumerate(sums)]))


# --- trees and arguments ---


def test_filled_is_the_tree_of_the_leaves():
    tree = {"a": [1.0, (2.0, X)], "b": {"c": 3.0}, "d": ()}
    assert with_leaves(tree, iter(leaves(tree))) == tree
    assert leaves(tree)[2] is X
    assert with_leaves([1.0, 2.0], iter([5.0])) == [5.0, None]


def test_a_tree_changed_between_the_value_and_the_pullback():
    p = {"a": X.copy(), "b": 2.0}
    _, pullback = tg.vjp(lambda p: (p["a"] * p["b"]).sum(), p)
    p["c"] = 1.0
    g = pullback(1.0)
    assert np.array_equal(g["a"], np.full(3, 2.0))
    assert np.isclose(g["b"], X.sum())
    assert g["c"] is None


def test_trees_that_f_changes_are_its_own():
    p = {"a": X.copy(), "b": [1.0, 2.0]}

    def f(p):
        p["a"] = p["a"] * p["b"][0]
        p["b"].append(3.0)
        return (p["a"] * p["b"][2]).sum()

    g = tg.grad(f)(p)
    assert np.array_equal(g["a"], np.full(3, 3.0))
    assert np.isclose(g["b"][0], 3 * X.sum())
    assert p["b"] == [1.0, 2.0]
    assert np.array_equal(p["a"], X)


@pytest.mark.unsealed
def test_calls_of_a_gradient():
    """(Once there were 291 for the vector, 93 for each leaf of the tree, 19 for each captured array, 14 for
    each function.)"""

    def f(x):
        return (x * x).sum()

    def g(p):
        return (p[0] * p[1]).sum()

    def reads(n):
        arrays = [np.ones(3) for _ in range(n)]
        return lambda x: (x * arrays[0]).sum()

    def functions(n):
        found = [(lambda: lambda x: x)() for _ in range(n)]
        return lambda x: (x * len(found)).sum()

    def tree(n):
        return [np.ones(3) for _ in range(n)]

    # (without the short ways 236)
    def kept(h):
        """From the third call on the copy of a function is kept, from the fifth on operations have code."""
        for _ in range(5):
            tg.grad(h)(X)
        return h

    kept(f)
    assert calls(lambda: tg.grad(f)(X)) < (150 if "tapegrad._dispatch.fast" in sys.modules else 260)
    assert calls(lambda: tg.grad(g)(tree(110))) - calls(lambda: tg.grad(g)(tree(10))) < 60 * 100
    for of in (reads, functions):
        few, many = kept(of(10)), kept(of(110))
        assert calls(lambda many=many: tg.grad(many)(X)) - calls(lambda few=few: tg.grad(few)(X)) < 10 * 100


# --- the further arguments of hvp ---


def filling():
    buffer = np.zeros(3)

    def f(x):
        buffer[:] = x * x
        return (buffer**2).sum()

    return f, buffer


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: lambda x: f(x), lambda f: [f][0], tg.checkpoint])
def test_a_function_with_captured_buffers_as_an_argument(wrap):
    f, _ = filling()
    given = wrap(f)

    def h(x, f):
        return f(x) + x.sum()

    v = np.array([1.0, -1.0, 0.5])
    assert np.allclose(tg.hvp(h, X, v, (given,)), 12 * X**2 * v)
    assert np.allclose(tg.hmp(h, X, np.eye(3), (given,)), np.diag(12 * X**2))
    value, gradient, product = tg.value_grad_hvp(h, X, v, (given,))
    assert np.allclose(value, (X**4).sum() + X.sum())
    assert np.allclose(gradient, 4 * X**3 + 1)
    assert np.allclose(product, 12 * X**2 * v)


def test_minimize_with_such_an_argument():
    f, _ = filling()
    found = tg.optimize.minimize(
        lambda x, f: f(x - 1.0) + ((x - 1.0) ** 2).sum(), X, (f,), method="trust-ncg"
    )
    assert found.success
    assert np.allclose(found.x, 1.0, atol=1e-6)


def test_further_arguments_of_all_kinds():
    v, data = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.5, -1.0])

    def h(x, a, b, c):
        assert type(b) is np.ndarray
        return (a * x**3 + b * x * x).sum() * c["k"]

    expected = (6 * data * X + 2 * data) * v * 2.0
    assert np.allclose(tg.hvp(h, X, v, (data, tg.Const(data), {"k": 2.0})), expected)
    assert np.allclose(tg.hmp(h, X, v[None], (data, tg.Const(data), {"k": 2.0})), expected[None])
    assert np.allclose(tg.hvp(h, X, v, [data, tg.Const(data), {"k": 2.0}]), expected)
    inner = tg.grad(lambda a: (tg.hvp(h, X, v, (a, tg.Const(data), {"k": 2.0}))).sum())(data)
    assert np.allclose(inner, 6 * X * v * 2.0)


# --- writes in forward mode ---


def recursion(x):
    r, s = np.zeros((12, 3), x.dtype, like=x), np.ones(12, x.dtype, like=x)
    r[0] = x
    for i in range(11):
        r[i + 1] = r[i] * 0.9 + s[i]
        r[i + 1, 1] = r[i, 0] * r[i, 2]
        r[i + 1, 0:2] = r[i, 1:3] * x[0]
        s[i + 1] = r[i + 1, 2] if i % 3 else 2.0
        if i % 4 == 3:
            r[i] = 0.5
            r[2:4] = x
            r[4:6] = r[2:4]
    return (r**2).sum() + (s * r[:, 0]).sum()


def test_rows_elements_and_slices_written_in_forward_mode():
    v = np.array([0.5, -1.0, 2.0])
    slope = recursion(X + 1e-200j * v).imag / 1e-200
    assert np.isclose(tg.jvp(recursion, (X,), (v,))[1], slope, rtol=1e-12)
    assert np.isclose((tg.grad(recursion)(X) * v).sum(), slope, rtol=1e-12)
    second = (tg.grad(recursion)(X + 1e-6 * v) - tg.grad(recursion)(X - 1e-6 * v)) / 2e-6
    assert np.allclose(tg.hvp(recursion, X, v), second, rtol=1e-6)
    twice = tg.jvp(lambda x: tg.jvp(recursion, (x,), (v,))[1], (X,), (v,))[1]
    assert np.isclose(twice, (tg.hvp(recursion, X, v) * v).sum(), rtol=1e-10)


def test_forward_writes_keep_what_was_read_before():
    def f(x):
        b = np.zeros(3, x.dtype, like=x)
        b[:] = x
        b[0] = x[1] * x[2]
        old, view, whole = b[0], b[1:], b * 1.0
        b[0] = 5.0
        b[1] = b[0] * x[0]
        b[2] = b[1]
        return np.array([old, view[0], whole[0], whole[1], b[2]])

    v = np.array([1.0, 2.0, 3.0])
    assert np.allclose(tg.jvp(f, (X,), (v,))[1], f(X + 1e-200j * v).imag / 1e-200)


def test_bad_forward_writes_harm_nothing():
    def f(x, write):
        b = np.zeros(3, like=x)
        b[:] = x
        with pytest.raises((IndexError, ValueError)):
            write(b, x)
        return b

    def outside(b, x):
        b[3] = x[0]

    def shape(b, x):
        b[0:2] = x

    for write in (outside, shape):
        y, t = tg.jvp(lambda x, write=write: f(x, write), (X,), (X + 1,))
        assert np.array_equal(y, X)
        assert np.array_equal(t, X + 1)


# --- floating-point settings ---


@pytest.mark.parametrize(
    "now, put", [(scope.now, scope.put), (scope._told, scope._put)], ids=["variable", "functions"]
)
def test_settings_are_as_errstate_has_them(now, put):
    before, first = np.geterr(), now()
    seen = []
    with np.errstate(divide="call", invalid="ignore", call=lambda kind, flag: seen.append(kind)):
        inner = now()
    with np.errstate(over="raise"):
        around = now()
        put(inner)
        assert np.geterr()["divide"] == "call"
        assert np.geterr()["invalid"] == "ignore"
        np.ones(1) / np.zeros(1)
        put(around)
        assert np.geterr()["over"] == "raise"
    assert seen == ["divide by zero"]
    put(first)
    assert np.geterr() == before and np.geterrcall() is None


def test_a_transform_leaves_the_settings():
    with np.errstate(divide="raise"):
        with pytest.raises(FloatingPointError):
            tg.grad(lambda x: (x / 0.0).sum())(X)
        assert np.geterr()["divide"] == "raise"
        assert np.array_equal(tg.grad(lambda x: (x * x).sum())(X), 2 * X)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        tg.grad(lambda x: (x / 0.0).sum())(X)


def test_settings_in_many_threads():
    found = []

    def work(n):
        with np.errstate(divide="ignore" if n % 2 else "raise"):
            for _ in range(20):
                try:
                    g = tg.grad(lambda x: (1.0 / (x - x)).sum())(X)
                    found.append((n % 2, "none", np.isnan(g).all()))
                except FloatingPointError:
                    found.append((n % 2, "raised", True))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 120
    assert {(odd, what) for odd, what, _ in found} == {(1, "none"), (0, "raised")}
