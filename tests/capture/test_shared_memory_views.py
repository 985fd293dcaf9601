"""Captured arrays over one memory become views of one: named by their elements, whatever the width and order
of the memory."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import tapegrad as tg
from tapegrad._core.primitive import shortened, view
from tapegrad._core.variable import variable
from tapegrad.errors import AliasError, ArgumentError
from tapegrad.ops.indexing.regions import region

pytestmark = pytest.mark.smoke


def arrays():
    g = np.random.default_rng(3)
    for order in "CF":
        for dtype in (np.float64, np.float32, np.complex128):
            yield np.array(g.standard_normal((4, 5)), dtype, order=order)
    yield g.standard_normal((2, 3, 4)).transpose(2, 1, 0)
    yield np.arange(6.0)


@pytest.mark.parametrize("a", list(arrays()), ids=lambda a: f"{a.dtype}-{a.shape}-{a.flags.c_contiguous}")
def test_a_long_path_is_shortened_to_elements(a):
    """However the array, or a cotangent of it, lies in memory."""
    x = variable(a)
    y, there = x, a
    for _ in range(3):
        for step in (("at", slice(1, None)), ("transpose", tuple(range(a.ndim))[::-1])):
            y, there = view(y, step), region(there, (step,))
    path = shortened(x, y._path)
    assert len(path) <= 2
    for like in (
        a,
        np.ascontiguousarray(a),
        np.asfortranarray(a),
        np.repeat(a, 2, axis=0)[::2],
        a.astype(np.complex64),
    ):
        np.testing.assert_array_equal(region(like, path), region(like, y._path))


@pytest.mark.parametrize("order", ["C", "F"])
def test_views_of_one_array_in_any_order(order):
    F = np.array(np.arange(12.0).reshape(3, 4), order=order)
    before = F.copy()
    a, b, c = F[1:, ::2], F[:, 1:][::-1], F.T[1:3]

    def f(x):
        b[0, 0] = x[0] * x[1]
        c[1] *= x[1]
        return np.sum(a * a) + np.sum(F) * x[0] + c[0, 2] * a[1, 1]

    def plain(x, F):
        F = F.astype(x.dtype)
        F[2, 1] = x[0] * x[1]
        F[:, 2] *= x[1]
        return np.sum(F[1:, ::2] ** 2) + np.sum(F) * x[0] + F[2, 1] * F[2, 2]

    x = np.array([0.7, -1.2])
    expected = np.array([plain(x + 1e-30j * e, before).imag / 1e-30 for e in np.eye(2)])

    def ran(transform):
        F[...] = before
        return transform()

    np.testing.assert_allclose(ran(lambda: tg.grad(f)(x)), expected, rtol=1e-13)
    np.testing.assert_allclose(ran(lambda: tg.jvp(f, (x,), (x,))[1]), expected @ x, rtol=1e-13)
    h = ran(lambda: tg.hessian(f)(x))
    np.testing.assert_allclose(ran(lambda: tg.hvp(f, x, x)), h @ x, rtol=1e-12)
    step = 1e-6
    by_differences = [
        (ran(lambda e=e: tg.grad(f)(x + step * e)) - ran(lambda e=e: tg.grad(f)(x - step * e))) / (2 * step)
        for e in np.eye(2)
    ]
    np.testing.assert_allclose(h, by_differences, rtol=1e-6, atol=1e-7)


def test_parts_of_a_complex_array():
    c = np.array([1 + 2j, 3 + 4j, 5 + 6j])
    p, q = c.real[1:], c.imag[::-1]

    def f(x):
        q[0] = x * x
        p[0] = 3 * x
        return np.sum(c.imag * p.sum())

    value, gradient = tg.value_and_grad(f)(2.0)
    assert value == (2 + 4 + 4) * (6 + 5) and gradient == 4 * 11 + 10 * 3
    np.testing.assert_array_equal(c, [1 + 2j, 6 + 4j, 5 + 4j])


def test_numbers_of_a_complex_array_may_be_read():
    """They are no elements of it: what is written into the one cannot be followed into the other."""
    c = np.array([1 + 2j, 3 + 4j])
    v = c.view(np.float64)
    assert tg.value_and_grad(lambda x: np.sum(v * x) + np.sum(c.real) * x)(2.0) == (28.0, 14.0)

    def written(x):
        v[0] = x
        return np.sum(c.real) * x

    with pytest.raises(AliasError):
        tg.grad(written)(2.0)
    np.testing.assert_array_equal(c, [1 + 2j, 3 + 4j])


# --- windows of tracked values are views ---


def with_late_writes(x):
    a = x * 1.0
    v = sliding_window_view(a, 3)
    s = (v**2).sum()
    a[2] = x[0] * x[1]
    a[1:3] *= 2
    s = s + (v[1:, 0] * v[:-1, 2]).sum()
    b = v[2]
    a[3] = x[5]
    return s + (b * np.arange(3)).sum() + v.mean()


WINDOWS = {
    "filtered": lambda x: (sliding_window_view(x.reshape(-1), 3) * np.arange(3)).sum(-1) @ np.ones(10) ** 2,
    "planes": lambda x: (sliding_window_view(x, (2, 3)) ** 2 * np.arange(3)).sum(),
    "along an axis": lambda x: (
        sliding_window_view(x, 2, axis=1)[..., 0] * sliding_window_view(x, 2, 1)[..., 1]
    ).sum(),
    "twice along it": lambda x: (sliding_window_view(x, (2, 2), axis=(0, 0)) ** 3).sum(),
    "of a transpose": lambda x: sliding_window_view(x.T[1:], (2, 2)).max(axis=(-1, -2)).sum(),
    "of windows": lambda x: (sliding_window_view(sliding_window_view(x[0], 2), 2, axis=0) ** 2).sum(),
    "written afterwards": lambda x: with_late_writes(x.reshape(-1)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_tracked_values(name):
    f = WINDOWS[name]
    x = np.random.default_rng(5).standard_normal((3, 4))
    v, h = np.cos(np.arange(12.0)).reshape(3, 4), 1e-6
    along = lambda g: (g(x + h * v) - g(x - h * v)) / (2 * h)
    value, gradient = tg.value_and_grad(f)(x)
    assert value == f(x)
    np.testing.assert_allclose((gradient * v).sum(), along(f), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(tg.jvp(f, (x,), (v,))[1], (gradient * v).sum(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(tg.hvp(f, x, v), along(tg.grad(f)), rtol=1e-6, atol=1e-7)
    stacked = tg.vmap(tg.grad(f))(np.stack([x, 2 * x]))
    np.testing.assert_allclose(stacked[1], tg.grad(f)(2 * x), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(tg.prepare(f, x).grad(2 * x), stacked[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size, axis", [(30, 0), ((2, 2, 2), None), (-1, 0), (2, 5)])
def test_windows_that_numpy_does_not_make(size, axis):
    x = np.ones((3, 4))
    for call in (sliding_window_view, lambda x, *to: tg.grad(lambda x: sliding_window_view(x, *to).sum())(x)):
        with pytest.raises(ValueError):
            call(x, size, axis)


def test_windows_are_read_only():
    def write(x):
        sliding_window_view(x * 2.0, 2)[0] = 1.0
        return x.sum()

    for call in (write, tg.grad(write)):
        with pytest.raises(ValueError, match="read-only"):
            call(np.ones(4))
    with pytest.raises(ArgumentError, match="writeable=True"):
        tg.grad(lambda x: sliding_window_view(x, 2, writeable=True).sum())(np.ones(4))


LINKS = {
    "windows": lambda v: sliding_window_view(v, 2, 0), "last": lambda v: sliding_window_view(v, 2, -1),
    "real": lambda v: v.real,
    "imag": lambda v: v.imag, "T": lambda v: v.T, "part": lambda v: v[1:], "step": lambda v: v[..., ::-1],
    "row": lambda v: v[0],
    "new": lambda v: v[None], "places": lambda v: v[[0, -1, 0]], "repeated": lambda v: np.broadcast_to(v, (2,
    *v.shape)),
    "reshape": lambda v: v.reshape(v.shape[0], -1), "conj": lambda v: v.conj(),
    "diagonal": lambda v: v.diagonal(),
}  # fmt: skip


def linear(seed):
    """A linear function that reads a complex array by a chain of views, in which real and imaginary parts and
    windows meet."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(4, 3, 3)) + 1j * rng.normal(size=(4, 3, 3))
    chain = []
    v = a
    for name in [
        *rng.choice(["real", "imag"], 1),
        *rng.choice(["windows", "last"], 1),
        *rng.choice(list(LINKS), 3),
    ]:
        chain.insert(int(rng.integers(0, len(chain) + 1)), str(name))
    kept = []
    for name in chain:
        try:
            w = LINKS[name](v)
        except (ValueError, IndexError):
            continue
        if w.size and 0 < w.ndim < 7:
            v = w
            kept.append(name)
    weights = rng.normal(size=v.shape)

    def f(x):
        v = a * x
        for name in kept:
            v = LINKS[name](v)
        return (v.real * weights).sum() + (v.imag * weights[..., ::-1]).sum()

    return f, kept, rng.normal(size=(4, 3, 3))


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 3000), marks=pytest.mark.long)], ids=str)
def test_parts_and_windows_in_any_order(seeds):
    for seed in seeds:
        f, chain, x = linear(seed)
        d = np.random.default_rng(seed + 1).normal(size=x.shape)
        wanted = f(d)
        g = tg.grad(f)(x)
        np.testing.assert_allclose(np.vdot(g, d), wanted, rtol=1e-9, atol=1e-9, err_msg=str(chain))
        np.testing.assert_allclose(tg.jvp(f, (x,), (d,))[1], wanted, rtol=1e-9, atol=1e-9, err_msg=str(chain))
        if seed % 4 == 0:
            np.testing.assert_allclose(
                tg.vmap(tg.grad(f))(np.stack([x, d]))[1], g, rtol=1e-9, atol=1e-9, err_msg=str(chain)
            )
            np.testing.assert_allclose(tg.prepare(f, x).grad(d), g, rtol=1e-9, atol=1e-9, err_msg=str(chain))


VIEWS_OF = {
    "transposed": lambda v: v.T, "slice": lambda v: v[1:], "diagonal": np.diagonal,
    "broadcast": lambda v: np.broadcast_to(v, (2, 3, 3)),
    "windows": lambda v: np.lib.stride_tricks.sliding_window_view(v, 2, 0),
    "reshaped": lambda v: v.reshape(9),
    "strided": lambda v: np.lib.stride_tricks.as_strided(v, (2, 2), (8, 8)), "turned": np.rot90,
    "buffer": lambda v: np.asarray(memoryview(v)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(VIEWS_OF.keys() - {"buffer"}))  # memory in other hands: an error
def test_a_pullback_keeps_what_a_view_of_a_written_array_held(name):
    """It is called after the captured array got its new content."""
    start = np.random.default_rng(0).normal(size=(3, 3))
    captured = start.copy()
    x = np.array([0.2, 0.4, 0.9])

    def f(x):
        w = VIEWS_OF[name](captured)
        s = (x[0] * w * x.sum()).sum()
        captured[...] = captured * (1 - 0.5 * x.sum())
        return s

    right = VIEWS_OF[name](start).sum() * (x[0] + np.array([x.sum(), 0.0, 0.0]))
    np.testing.assert_allclose(tg.grad(f)(x), right, rtol=1e-12)
    captured[...] = start
    pull = tg.vjp(f, x)[1]
    np.testing.assert_allclose(pull(1.0), right, rtol=1e-12)
    captured[...] = start
    np.testing.assert_allclose(tg.linearize(f, x)[1].T(1.0), right, rtol=1e-12)


@pytest.mark.parametrize("name", VIEWS_OF)
def test_arguments_that_share_memory_are_found(name):
    """Whatever stands between a view and its array."""
    a = np.random.default_rng(0).normal(size=(3, 3))

    def f(x, y):
        x[0, 0] = 7.0 * x[1, 1]
        return x.sum() * y.sum()

    with pytest.raises(AliasError):
        tg.grad(f, (0, 1))(a, VIEWS_OF[name](a))
