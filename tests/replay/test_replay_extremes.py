"""Compiled loops over extremes, and integers as operands: what NumPy gives."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.replay import emitted
from tapegrad.replay.fusion import compiled_groups, loops
from tapegrad.replay.fusion.register_tiles import tile_of

RNG = np.random.default_rng(11)
X = RNG.normal(size=(37, 53))


@pytest.fixture(autouse=True)
def all_that_can_be(monkeypatch):
    """Each instruction that can be is in a group, whether it pays or not."""
    monkeypatch.setattr(emitted, "block_ranges", lambda program, *_: [])
    monkeypatch.setattr(compiled_groups.Group, "gain", lambda self, now: 1.0)


def grouped(f, *points, method="value", names=(), rtol=1e-12):
    """f at each point by a replay with groups in it, and by a plain call; `names`: what must be in a
    group."""
    p = tg.prepare(f, points[0], compile=True)
    plain = f if method == "value" else getattr(tg, method)(f)
    for x in (points[0], points[0], points[0], *points):
        with np.errstate(all="ignore"):
            got, want = leaves(getattr(p, method)(x)), leaves(plain(x))
        for a, b in zip(got, want, strict=True):
            assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol, rtol)
    kept = p.forms[method].programs[0]
    inside = {name for group in kept.emitted.groups for _, name in group.names}
    assert inside.issuperset(names) and not kept.failures, (inside, p.report())
    return kept


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_extremes(axis, dtype):
    x = X.astype(dtype)
    several = x.copy()
    several[3, 5], several[7, 2:4], several[9] = np.nan, np.inf, -np.inf
    f = lambda x: ((x * 2).max(axis=axis), (x + 1).min(axis=axis), (x * x).sum())
    points = x, several, np.full_like(x, -np.inf), np.zeros_like(x)
    grouped(f, *points, names={"highest", "lowest"}, rtol=1e-12 if dtype == "f8" else 1e-4)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 4095, 4097, 9000])
def test_extremes_of_any_length(n):
    x = RNG.normal(size=n)
    grouped(lambda x: ((x * 3).max(), (x - 1).min()), x, -x, np.abs(x), -np.abs(x))
    grouped(lambda x: (np.stack([x, -x, x * x]) * 2.0).max(axis=0), x, -x)


def softmax(x):
    z = x - x.max(axis=1, keepdims=True)
    e = np.exp(z)
    p = e / e.sum(axis=1, keepdims=True)
    return (p * p).sum()


@pytest.mark.parametrize("method", ["value", "grad"])
def test_softmax(method):
    ties = np.round(X)
    grouped(
        softmax,
        X,
        X * 3,
        ties,
        method=method,
        names={"highest"} | ({"equal", "divide", "copy"} if method == "grad" else set()),
    )


def test_the_gradient_of_an_extreme_is_shared_out_among_equals():
    grouped(
        lambda x: (x.max(axis=0) * 2.0).sum() + x.min() ** 2,
        np.round(X),
        X,
        method="grad",
        names={"equal"},
    )


def test_counts_that_others_read_are_integers():
    f = lambda x: ((x > 0.1).sum(axis=1), x / (x > 0.1).sum(axis=1, keepdims=True), (x * 2).sum())
    for x in (X, X + 0.5):
        p = tg.prepare(f, x, compile=True)
        for _ in range(4):
            for a, b in zip(p.value(x), f(x), strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_allclose(a, b, 1e-13)


@pytest.mark.parametrize("kind", ["i8", "i4"])
def test_integers_as_operands(kind):
    large = RNG.integers(-(2**31), 2**31 - 1, size=X.shape).astype(kind)
    if kind == "i8":
        large = large * 2**31 + large
    few = np.arange(53, dtype=kind)
    for whole in (large, large[::-1], large.T.copy().T, few, large[:, :1]):
        f = lambda x, whole=whole: (
            x * whole + 0.5,
            np.where(x > 0, x, whole),
            (x - whole).sum(),
            whole / (x * x + 1.0),
        )
        grouped(f, X, -X, names={"multiply", "select", "subtract"})
    exact = lambda x: (
        x * 2.0,
        large > 2**40 if kind == "i8" else large > 5,
        large // 2,
        x + (large == large + 1),
    )
    grouped(exact, X)


def test_integers_beside_float32_are_numpys():
    whole = np.arange(53)
    f = lambda x: (x * whole + x, x * whole.astype("i2"), x * 2)
    grouped(f, X.astype("f4"), rtol=1e-6)


def program(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 40, size=rng.integers(1, 4)).tolist())
    steps = rng.integers(0, 9, size=rng.integers(2, 6)).tolist()
    whole, axis = rng.integers(-5, 6, size=shape), int(rng.integers(len(shape)))

    def f(x):
        total = 0.0
        for s in steps:
            if s == 0:
                x = x - x.max(axis=axis, keepdims=True)
            elif s == 1:
                x = x * whole + 0.1
            elif s == 2:
                x = np.exp(-x * x)
            elif s == 3:
                x = x / ((x > 0.2).sum(axis=axis, keepdims=True) + 1.0)
            elif s == 4:
                total = total + x.min() * 2.0
            elif s == 5:
                x = np.where(x > whole, x, whole) * 0.5
            elif s == 6:
                total = total + (x * x).sum(axis=axis).max()
            elif s == 7:
                x = x[::-1] + x
            else:
                total = total + np.ptp(x, axis=axis).sum()
        return (x * x).sum() + total

    return f, rng.normal(size=shape), np.round(rng.normal(size=shape))


def search(seeds):
    for seed in seeds:
        f, x, ties = program(seed)
        for method in ("value", "grad"):
            try:
                grouped(f, x, ties, -x, method=method, rtol=1e-9)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, {method}: {error}") from error


def test_random_programs():
    search(range(8))


@pytest.mark.long
def test_many_random_programs():
    search(range(100, 350))


@pytest.mark.parametrize(
    "f",
    [
        lambda a: (lambda v: v * np.sign(v[0]))(np.linalg.eigh(a + a.T)[1][:, -1]) @ [1.0, 2.0, 3.0],
        lambda a: np.linalg.svd(a @ a.T)[1].sum(),
        lambda a: (lambda w, v: ((v * np.exp(w)) @ v.T)[0, 1])(*np.linalg.eigh(a @ a.T)),
    ],
)
@pytest.mark.filterwarnings("ignore:prepare")
def test_equal_eigenvalues_are_not_replayed(f):
    """Of a matrix of rank one: eager derivatives are right, and those of a recording were nan."""
    rng = np.random.default_rng(0)
    equal, p = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), tg.prepare(f, np.eye(3))
    for k in range(7):
        a = equal if k == 5 else rng.normal(size=(3, 3))
        if k == 5:
            assert "run as it is" not in p.report()
        np.testing.assert_allclose(p.grad(a), tg.grad(f)(a), rtol=1e-10, atol=1e-12)
        assert np.isfinite(p.grad(a)).all()
    assert "equal eigenvalues or singular values" in p.report()


def tiles(monkeypatch):
    """How many sums kept their cells in registers, as a list that grows."""
    found = []

    def counted(nest, operations):
        found.append(tile_of(nest, operations))
        return found[-1]

    monkeypatch.setattr(loops, "tile_of", counted)
    monkeypatch.setattr(compiled_groups, "CODES", {})
    return found


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", [(43, 5), (43, 1, 5), (41, 2, 3), (67, 13), (9, 4, 4, 2), (150, 1)])
def test_sums_over_leading_axes(shape, dtype, monkeypatch):
    found = tiles(monkeypatch)
    rng = np.random.default_rng(3)
    x, row, cell = (
        rng.normal(size=s).astype(dtype) for s in (shape, (shape[0], *[1] * (len(shape) - 1)), shape[1:])
    )
    mask, count = (
        rng.random(cell.shape[:-1] + (1,)) < 0.5,
        rng.integers(-3, 4, shape) if dtype == "f8" else x[::-1],
    )

    def f(x):
        y = np.where(mask, x * row, x - cell) * count
        return y.sum(axis=0), (y * y).max(axis=0), y, y.sum()

    points = x, -x, np.asfortranarray(x), x[::-1]
    for point in points:
        grouped(f, point, rtol=1e-11 if dtype == "f8" else 2e-3)
    assert [tile for tile in found if tile] or shape[-1] == 1


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", [(43, 5), (6, 7, 8), (300, 2), (3, 90)])
def test_truth_values_are_counted(shape, dtype):
    x = np.random.default_rng(4).normal(size=shape).astype(dtype)

    def f(x):
        near = abs(x) < 0.7
        first, last = near.sum(axis=0), near.sum(axis=-1, keepdims=True)
        return first, last, near.sum(), (x / (last + 1)).sum(axis=0), x * first

    other = np.full_like(x, np.nan)
    grouped(
        f, x, -x * 2, other, np.zeros_like(x), names={"sum", "less"}, rtol=1e-12 if dtype == "f8" else 1e-4
    )


def test_a_sum_over_leading_axes_adds_row_after_row(monkeypatch):
    """A nan or an infinite value reaches its own cell only, and the order of a sum is that of NumPy."""
    found = tiles(monkeypatch)
    x = np.random.default_rng(5).normal(size=(200, 50))
    other = x.copy()
    other[3, 4], other[150, 49] = np.nan, np.inf
    p = tg.prepare(lambda x: (x * 3).sum(axis=0), x, compile=True)
    for point in (x, x, other, -x):
        np.testing.assert_array_equal(p.value(point), (point * 3).sum(axis=0))
    assert found[0].rows == 1
