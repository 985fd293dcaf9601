"""Bodies that take a shorter way than NumPy's function: the values, the layout in memory and the derivatives
are those of the function."""

import random

import numpy as np
import pytest
import scipy.special

import tapegrad as tg
from tapegrad.ops import einsum, reductions, shaping

rng = np.random.default_rng(7)


def gradient_of(f, *at, weights=None):
    """(f's value, the gradients of sum(weights * f))."""
    value, pullback = tg.vjp(f, *at)
    g = pullback(np.ones_like(value) if weights is None else weights)
    return value, g if len(at) > 1 else (g,)


def operand(labels, size, choice):
    """A random array, in C order, Fortran's, or strided."""
    x = rng.standard_normal([size[a] for a in labels])
    if choice == 1:
        return np.asfortranarray(x)
    return np.repeat(x, 2, axis=0)[::2] if choice == 2 else x


def random_subscripts(pick):
    labels = "abcde"
    size = {a: pick.choice((1, 2, 3, 4)) for a in labels}
    x, y = (pick.sample(labels, pick.randint(1, 4)) for _ in range(2))
    both = [a for a in x if a in y]
    summed = pick.sample(both, pick.randint(0, len(both)))
    result = [a for a in dict.fromkeys(x + y) if a not in summed]
    pick.shuffle(result)
    operands = [operand(labels, size, pick.randrange(3)) for labels in (x, y)]
    return ",".join(("".join(x), "".join(y))) + "->" + "".join(result), operands


def strides_of(x):
    return [s for s, n in zip(x.strides, x.shape, strict=True) if n > 1]


def check_einsum(seed):
    pick = random.Random(seed)
    for _ in range(100):
        text, (x, y) = random_subscripts(pick)
        want = np.einsum(text, x, y)
        got, (gx, gy) = gradient_of(
            lambda x, y, text=text: np.einsum(text, x, y),
            x,
            y,
            weights=(w := rng.standard_normal(want.shape)),
        )
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)
        how = einsum.as_matrices(text)
        for there in (einsum._product_of(text, x, y), how and how(x, y)):
            assert there is None or strides_of(there) == strides_of(want), text
        (left, right), result = text.split("->")[0].split(","), text.split("->")[1]
        np.testing.assert_allclose(
            gx, np.einsum(f"{result},{right}->{left}", w, y, optimize=False), rtol=1e-12, atol=1e-12
        )
        np.testing.assert_allclose(
            gy, np.einsum(f"{result},{left}->{right}", w, x, optimize=False), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("few", [-1, 4096])
def test_einsum_of_two_by_matmul(monkeypatch, few):
    monkeypatch.setattr(einsum, "FEW_MULTIPLICATIONS", few)
    check_einsum(random.randrange(10**6) if few < 0 else 11)


@pytest.mark.long
def test_einsum_of_two_by_matmul_at_length(monkeypatch):
    monkeypatch.setattr(einsum, "FEW_MULTIPLICATIONS", -1)
    for _ in range(50):
        check_einsum(random.randrange(10**9))


@pytest.mark.parametrize("seed", range(40))
def test_einsum_that_needs_no_preparation(seed):
    """Two or three operands with labels that are summed with others', in any spelling: read once, and laid
    out as NumPy's."""
    pick, r = random.Random(seed), np.random.default_rng(seed)
    labels = [pick.sample("abcde", pick.randint(1, 3)) for _ in range(pick.choice((2, 3)))]
    named = [a for p in labels for a in p]
    result = pick.sample(
        sorted(set(named)), pick.randint(sum(named.count(a) == 1 for a in set(named)) > 0, len(set(named)))
    )
    text = ",".join(map("".join, labels)) + pick.choice(("->", " -> ")) + "".join(result)
    size = {a: pick.choice((2, 3, 5, 1 if pick.random() < 0.2 else 4)) for a in "abcde"}
    orders = pick.choices("CCF", k=len(labels))
    xs = [
        r.standard_normal([size[a] for a in p]).copy(order) for p, order in zip(labels, orders, strict=True)
    ]
    want, lies = np.einsum(text, *xs), []

    def f(*xs):
        y = np.einsum(text, *xs)
        lies.append(y.strides if np.ndim(y) else ())
        return (y * y).sum()

    gradient = tg.grad(f, tuple(range(len(xs))))(*xs)
    assert 1 in want.shape or lies[0] == np.asarray(want).strides
    for k, (x, g) in enumerate(zip(xs, gradient, strict=True)):
        v = r.standard_normal(x.shape)
        slope = 2 * (want * np.einsum(text, *xs[:k], v, *xs[k + 1 :])).sum()
        assert np.isclose((g * v).sum(), slope, rtol=1e-10, atol=1e-10), text
    with pytest.raises(ValueError, match="einsum"):
        tg.grad(f)(*xs, xs[0])


@pytest.mark.parametrize("optimize", [False, True, ("greedy", 9), ["einsum_path", (0, 2), (0, 1, 2)]])
def test_einsum_of_many_takes_two_at_a_time(optimize):
    """In NumPy's order or the given one, in the type of all operands, with derivatives of both kinds."""
    r = np.random.default_rng(4)
    text, small = "ab,asc,st,btd->cd", np.array([[100, 27], [3, -100]], np.int8)
    A, B, C = r.standard_normal((3, 3)), r.standard_normal((3, 2, 4)), 1j * r.standard_normal((3, 2, 5))
    f = lambda *xs: np.einsum(text, xs[0], xs[1], small, xs[2], optimize=optimize)
    y, pull = tg.vjp(f, A, B, C)
    np.testing.assert_allclose(y, np.einsum(text, A, B, small, C), rtol=1e-13)
    assert y.dtype == np.complex128
    w = r.standard_normal(y.shape) + 1j * r.standard_normal(y.shape)
    for k, (x, g) in enumerate(zip((A, B, C), pull(w), strict=True)):
        v = r.standard_normal(x.shape)
        moved = [v if n == k else z for n, z in enumerate((A, B, C))]
        slope = np.einsum(text, *moved[:2], small, moved[2])
        np.testing.assert_allclose((g * v).sum().real, (w.conj() * slope).sum().real, rtol=1e-11)
    of_bytes = lambda x: np.einsum("a,ab,bc->c", small[0], small, x)
    np.testing.assert_allclose(tg.vjp(of_bytes, A[:2])[0], of_bytes(A[:2]), rtol=1e-13)


def test_einsum_of_many_is_one_block():
    """No operation of a contraction of four operands stays with NumPy's own loops."""
    r = np.random.default_rng(0)
    A, H = r.standard_normal((6, 8, 2, 8)), r.standard_normal((2, 2))

    def f(A):
        E = np.eye(8)
        for a in A:
            E = np.einsum("ab,asc,st,btd->cd", E, a, H, a)
        return np.trace(E)

    p = tg.prepare(f, A)
    for _ in range(40):
        g = p.grad(A)
    np.testing.assert_allclose(g, tg.grad(f)(A), rtol=1e-11, atol=1e-9)
    report = p.report()
    assert "in 1 blocks" in report and "calls of Python" not in report


def test_einsum_refuses_what_does_not_fit():
    f = lambda x: np.einsum("ij,jk->ik", x, np.ones((4, 2))).sum()
    with pytest.raises(ValueError, match="label"):
        tg.grad(f)(np.ones((2, 3)))


@pytest.mark.parametrize("axis", [-1, 2])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("n", [2, 3, 7, 8, 15, 16])
def test_reductions_over_short_rows(axis, keepdims, n):
    x = rng.integers(0, 4, (40, 20, n)) * 0.5  # ties, too
    for f in (np.sum, np.max, np.min):
        want = f(x, axis=axis, keepdims=keepdims)
        w = rng.standard_normal(want.shape)
        got, (g,) = gradient_of(lambda x, f=f: f(x, axis=axis, keepdims=keepdims), x, weights=w)
        assert np.array_equal(got, want)
        assert got.strides == want.strides
        full = w if keepdims else w[..., None]
        hits = np.ones(x.shape) if f is np.sum else x == f(x, axis=axis, keepdims=True)
        np.testing.assert_allclose(
            g, full * hits / (1 if f is np.sum else hits.sum(-1, keepdims=True)), rtol=1e-15
        )


def test_nan_and_infinity_in_short_rows():
    x = rng.standard_normal((300, 3))
    x[3, 1], x[5], x[6] = np.nan, np.inf, -np.inf
    for entry, f in ((shaping.sum, np.sum), (reductions.highest, np.max), (reductions.lowest, np.min)):
        np.testing.assert_array_equal(entry(x, axis=-1), f(x, axis=-1))


@pytest.mark.parametrize("shape", [(7,), (3, 4), (4, 3, 2), (0, 3), ()])
def test_roll(shape):
    x = rng.standard_normal(shape)
    for y in (x, x.T, x[::2] if x.ndim else x):
        for axis in (None, *range(-y.ndim, y.ndim)):
            for shift in (-5, -1, 0, 2, 13, np.int64(3)):
                w = rng.standard_normal(y.shape)
                got, (g,) = gradient_of(lambda y, s=shift, a=axis: np.roll(y, s, a), y, weights=w)
                assert np.array_equal(got, np.roll(y, shift, axis))
                assert np.array_equal(g, np.roll(w, -shift, axis))
    if x.ndim:
        with pytest.raises(np.exceptions.AxisError):
            tg.grad(lambda x: np.roll(x, 1, x.ndim).sum())(x)


@pytest.mark.parametrize("method", ["linear", "lower", "weibull", "midpoint"])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_quantiles_of_a_vector_are_those_of_a_row(method, n):
    x = rng.integers(0, 5, n) * 1.0  # ties: the order is that of a stable sort
    for q in (0, 0.0, 0.25, 0.5, 0.9, 1.0, 1):
        got, (g,) = gradient_of(lambda x, q=q: np.quantile(x, q, method=method), x)
        row, (r,) = gradient_of(lambda x, q=q: np.quantile(x, q, axis=1, method=method), x[None])
        assert got == row[0] == np.quantile(x, q, method=method)
        assert np.array_equal(g, r[0])
        assert g.sum() == pytest.approx(1)
    assert tg.grad(lambda q: np.quantile(np.array([1.0, 3.0, 4.0]), q))(0.3) == pytest.approx(4)


def test_medians():
    x = np.array([3.0, 1.0, 2.0, 7.0])
    np.testing.assert_allclose(tg.grad(np.median)(x), [0.5, 0, 0.5, 0])
    np.testing.assert_allclose(
        tg.hessian(lambda x: np.median(x) ** 2)(x[:3]), [[0, 0, 0], [0, 0, 0], [0, 0, 2]]
    )
    assert tg.grad(np.median)(x.astype("f")).dtype == np.float32
    x[1] = np.nan
    value, gradient = tg.value_and_grad(np.median)(x)
    assert np.isnan(value)
    assert not gradient.any()
    assert tg.grad(lambda x: np.median(x, keepdims=True)[0, 0])(np.ones((3, 3)) + np.eye(3)).sum() == 1


@pytest.mark.parametrize("kind", ["i8", "i1", "u1"])
@pytest.mark.parametrize("at", [[0, 0, 2, 1], [[1, 1], [2, 0]], [-1, 2, -3, 0], []])
def test_rows_by_index(kind, at):
    at = np.array(at, "i8").astype(kind) if kind != "u1" else np.abs(np.array(at, "i8")).astype(kind)
    for shape in ((4,), (4, 3), (4, 2, 3)):
        x = rng.standard_normal(shape)
        for y in (x, np.asfortranarray(x)):
            w = rng.standard_normal(y[at].shape)
            want = np.zeros(shape)
            np.add.at(want, at, w)
            assert np.array_equal(gradient_of(lambda y: y[at], y, weights=w)[1][0], want)
    x = np.zeros((200, 3))
    f = lambda v: (np.add.at(x, at, v), (x * x).sum())[1]
    assert tg.grad(f)(0.5) == pytest.approx(
        2 * 0.5 * 3 * (np.bincount(at.ravel().astype("i8") % 200, minlength=1) ** 2).sum()
    )


def test_nested_lists():
    def f(x):
        y = x * 1.0
        v = y[1:]
        M = np.array([[x[0], 2.0, v[0]], (np.float64(1), x[2] * x[1], y[2])])
        return (M * M).sum() + np.array([x[0], 3]).prod() + np.array([[x, x], [x, 2 * x]]).sum()

    x = np.array([1.5, -0.5, 2.0])
    want = np.array([2 * x[0] + 3, 2 * x[1] + 2 * x[1] * x[2] ** 2, 2 * x[2] + 2 * x[2] * x[1] ** 2]) + 5
    np.testing.assert_allclose(tg.grad(f)(x), want, rtol=1e-14)
    np.testing.assert_allclose(tg.jvp(f, (x,), (np.ones(3),))[1], want.sum(), rtol=1e-14)
    deep = tg.grad(lambda x: np.array([[[x[0]], [x[1]]], [[x[2]], [1.0]]])[1, 0, 0] ** 2)
    np.testing.assert_allclose(deep(x), [0, 0, 4])
    with pytest.raises(ValueError):
        tg.grad(lambda x: np.array([[x[0], x[1]], [x[2]]]).sum())(x)


@pytest.mark.parametrize("width", [1, 2, 5, 8, 9, 20])
@pytest.mark.parametrize("shape", [(0,), (50,), (6, 7)])
def test_rows_read_by_an_array_of_integers(shape, width):
    x, at = rng.standard_normal((10, width)), rng.integers(-10, 10, shape)
    for layout in (
        x,
        np.asfortranarray(x),
        np.repeat(x, 2, axis=0)[::2],
        rng.standard_normal((10, width, 2)),
    ):
        w = rng.standard_normal((*shape, *layout.shape[1:]))
        got, (g,) = gradient_of(lambda x: x[at], layout, weights=w)
        assert np.array_equal(got, layout[at])
        want = np.zeros(layout.shape)
        np.add.at(want, at, w)
        np.testing.assert_allclose(g, want, rtol=1e-13, atol=1e-14)
        at2 = tg.jvp(lambda x: x[at], (layout,), (layout * 2,))[1]
        np.testing.assert_array_equal(at2, layout[at] * 2)
    with pytest.raises(IndexError, match="out of bounds"):
        tg.grad(lambda x: x[np.array([0, 10])].sum())(x)


def test_places_are_those_at_the_time_of_reading():
    """The arrays of an index are copied: the function may change them."""
    x, i, j = rng.standard_normal((5, 4)), np.array([0, 2, 4]), np.array([1, 1, 3])

    def f(x):
        i[:], j[:] = [0, 2, 4], [1, 1, 3]
        rows, numbers = x[i] * 2.0, x[i, j] * 3.0
        i[:], j[:] = 0, 0
        return rows.sum() + numbers.sum()

    want = np.zeros((5, 4))
    want[[0, 2, 4]] = 2.0
    want[[0, 2, 4], [1, 1, 3]] += 3.0
    assert np.array_equal(tg.grad(f)(x), want)


BROADCAST = [
    *[
        ((130, 3), (3,)),
        ((130, 3), (1, 3)),
        ((40, 5, 4), (4,)),
        ((40, 5, 4), (5, 4)),
        ((40, 127), (40, 1)),
        ((4, 129), (4, 1)),
    ],
    *[((4, 300), (4, 1)), ((9, 9, 2), (9, 1, 1)), ((9, 9, 2), (1, 9, 1)), ((80,), (1,)), ((80,), ())],
]


@pytest.mark.parametrize("shapes", BROADCAST)
def test_cotangents_summed_over_what_was_broadcast(shapes):
    x, b = [rng.standard_normal(s) for s in shapes]
    w = rng.standard_normal(x.shape)
    for layout in (w, np.asfortranarray(w)):
        _, (gx, gb) = gradient_of(lambda x, b: x + b, x, b, weights=layout)
        lead = x.ndim - b.ndim
        axes = tuple(k for k in range(x.ndim) if k < lead or b.shape[k - lead] != x.shape[k])
        np.testing.assert_array_equal(gx, w)
        np.testing.assert_allclose(gb, w.sum(axes).reshape(b.shape), rtol=1e-12, atol=1e-13)
        assert np.shape(gb) == b.shape


def test_zero_times_infinity_in_every_layout():
    """The cotangent 0 stays 0 though the slope is infinite."""
    x = np.zeros((300, 3))
    x[1:] = rng.random((299, 3)) + 1.0
    for a in (x, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2]):
        g = tg.grad(lambda a: (np.sqrt(a) * (a > 0.5)).sum())(a)
        np.testing.assert_allclose(g[1:], 0.5 / np.sqrt(x[1:]), rtol=1e-14)
        assert not g[0].any()


def test_add_at_by_its_short_way_and_by_others():
    at = np.array([0, 3, 3, -1, 0])
    buf = np.arange(5.0)

    def f(x, y):
        h = np.zeros(5)
        np.add.at(h, at, x)  # a vector of our own
        kept = h * h
        np.add.at(h, at, y)  # which a record keeps
        np.add.at(buf, at, x * y)  # captured
        return (kept * 2.0 + h * h + buf).sum()

    def plain(x, y):
        h, b = np.zeros(5), np.arange(5.0)
        np.add.at(h, at, x)
        kept = h * h
        np.add.at(h, at, y)
        np.add.at(b, at, x * y)
        return (kept * 2.0 + h * h + b).sum()

    x, y, v = rng.standard_normal((3, 5))
    want, after = plain(x, y), np.arange(5.0)
    np.add.at(after, at, x * y)
    value, (gx, gy) = tg.value_and_grad(f, (0, 1))(x, y)
    assert np.isclose(value, want, rtol=1e-14)
    assert np.array_equal(buf, after)
    step = 1e-6
    for g, moved in ((gx, lambda s: plain(x + s * v, y)), (gy, lambda s: plain(x, y + s * v))):
        assert np.isclose(g @ v, (moved(step) - moved(-step)) / (2 * step), rtol=1e-8)
    buf[:] = np.arange(5.0)
    assert np.isclose(tg.jvp(f, (x, y), (v, 0 * v))[1], gx @ v, rtol=1e-13)
    for bad in (np.array([5]), np.array([-6])):
        with pytest.raises(IndexError):
            tg.grad(lambda x, bad=bad: (h := np.zeros(5), np.add.at(h, bad, x[:1] * 1.0), h.sum())[-1])(x)
    with pytest.raises(ValueError):
        tg.grad(lambda x: (h := np.zeros(5), np.add.at(h, at, x[:2] * 1.0), h.sum())[-1])(x)


@pytest.mark.parametrize("shape", [(300, 3), (300, 15), (7,), (2, 400), (40, 30, 4)])
@pytest.mark.parametrize("axis", [-1, 0, None])
def test_sums_of_exponentials_beside_their_text(shape, axis):
    x = rng.standard_normal(shape) * 3
    x.flat[5] = 700.0
    want = np.log(np.exp(np.longdouble(x) - 700).sum(axis=axis)) + 700
    w = rng.standard_normal(want.shape)
    got, (g,) = gradient_of(lambda x: scipy.special.logsumexp(x, axis), x, weights=w)
    np.testing.assert_allclose(got, want.astype(float), rtol=1e-13, atol=1e-14)
    e = np.exp(np.longdouble(x) - 700)
    full = w if axis is None else np.expand_dims(w, axis)
    np.testing.assert_allclose(
        g, (full * e / e.sum(axis=axis, keepdims=True)).astype(float), rtol=1e-12, atol=1e-300
    )


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_a_row_of_nan_does_not_hide_a_tie(axis):
    x = np.array([[1.0, 2.0, 2.0], [0.5, np.nan, 3.0], [4.0, 1.0, 0.0]])
    for f in (np.max, np.min):
        with np.errstate(all="ignore"):
            top = f(x, axis=axis, keepdims=True)
            want = (x == top) / (x == top).sum(axis=axis, keepdims=True)
            _, (g,) = gradient_of(lambda x, f=f: f(x, axis=axis, keepdims=True), x)
        np.testing.assert_array_equal(g, want)
