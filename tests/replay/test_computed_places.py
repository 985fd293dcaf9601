"""Integers in compiled loops, and elements that are read or added at indices which a loop computes."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.replay import emitted
from tapegrad.replay.fusion import compiled_groups

RNG = np.random.default_rng(27)
TABLE, IMAGE = RNG.normal(size=300), RNG.normal(size=(20, 30))
POINTS = RNG.uniform(-40.0, 340.0, 400)


@pytest.fixture(autouse=True)
def small_arrays_too(monkeypatch):
    """Groups are made of what the interpreter would do as fast."""
    monkeypatch.setattr(compiled_groups, "BLOCK_ELEMENT_NS", 4.0)
    monkeypatch.setattr(compiled_groups, "BLOCK_INDEX_NS", 8.0)
    monkeypatch.setattr(emitted, "BLOCK_ELEMENT_NS", 4.0)


def compared(f, *calls, method="value", names=(), refusals=0):
    """f at each call with its loops compiled, bit for bit as plainly but for sums; these names are in loops."""
    prepared = tg.prepare(f, *calls[0], compile=True)
    plain = f if method == "value" else getattr(tg, method)(f)
    for args in (calls[0], calls[0], calls[0], *calls):
        got, want = np.asarray(getattr(prepared, method)(*args)), np.asarray(plain(*args))
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, 1e-13, 1e-13 * np.abs(want).max(initial=0.0))
        np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))
    kept = prepared.forms[method].programs[0]
    assert not kept.failures and kept.refusals == refusals, prepared.report()
    found = [name for group in kept.emitted.groups for _, name in group.names]
    assert set(names) <= set(found), prepared.report()
    return kept.emitted


def linear(x, table=TABLE):
    """Linear interpolation as its users write it."""
    x = np.clip(x, 0.0, len(table) - 1.001)
    i = np.floor(x).astype(int)
    u = x - i
    return np.sum(((1 - u) * table[i] + u * table[i + 1]) ** 2)


def bilinear(p):
    y, x = np.clip(p[0], 0, 18.9), np.clip(p[1], 0, 28.9)
    i, j = y.astype(int), x.astype(np.int32)
    v, u = y - i, x - j
    top = (1 - u) * IMAGE[i, j] + u * IMAGE[i, j + 1]
    bottom = (1 - u) * IMAGE[i + 1, j] + u * IMAGE[i + 1, j + 1]
    return np.sum((1 - v) * top * np.sin(top) + v * bottom)


@pytest.mark.parametrize("method", ["value", "grad"])
def test_interpolation(method):
    names = ("astype", "taken_by")
    compared(linear, (POINTS,), (POINTS[::-1] / 2,), (POINTS + 50,), method=method, names=names)
    places = RNG.uniform(-2.0, 32.0, (2, 11, 40))
    compared(
        bilinear, (places,), (-places,), (places[::-1] * 0.7,), method=method, names=(*names, "places_of")
    )


def test_gradients_of_a_table_are_added_at_the_indices():
    def f(table, x):
        return linear(x, table * table)

    made = compared(
        f, (TABLE, POINTS), (TABLE[::-1].copy(), -POINTS), method="grad", names=("added_by", "taken_by")
    )
    assert made.groups
    step = 1e-30j
    gradient = tg.prepare(f, TABLE, POINTS, compile=True).grad(TABLE, POINTS)
    for k in (0, 7, 150, 299):
        z = TABLE.astype(complex)
        z[k] += step
        np.testing.assert_allclose(gradient[k], f(z, POINTS).imag / 1e-30, 1e-12, 1e-12)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shape", [(200,), (10, 20), (5, 1, 40), (2, 2, 2, 2, 25)])
def test_indices_of_any_shape(shape):
    def f(x, at):
        i = (at * 7).astype(int)
        return np.sum(np.cos(np.sin(x)[i] * at) + x[-i - 1] * x[i])

    x = RNG.normal(size=30)
    calls = [(x * s, RNG.uniform(-4.2, 4.2, shape)) for s in (1, 2, -1)]
    compared(f, *calls, names=("taken_by",))
    compared(f, *calls, method="grad", names=("added_by",))


def test_rows_and_columns_at_indices():
    def f(x, at):
        i = np.floor(at).astype(int)
        rows = np.take_along_axis(x, i[:, None] % 1 + i[:, None], axis=1)
        return np.sum(rows**2 * at[:, None]) + np.sum(x[:, i] * np.exp(-at))

    x = RNG.normal(size=(150, 9))
    calls = [(x, RNG.uniform(-9.0, 9.0, 150)) for _ in range(3)]
    compared(f, *calls)
    compared(f, *calls, method="grad")


I, J = RNG.integers(-40, 40, (5, 60)), RNG.integers(-6, 6, (5, 60))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "at",
    [
        (I,), (I, J), (slice(None), J), (J[0], slice(None)), (I[:, ::2], J[:, 1::2]), (I[:1], J[:, :1], slice(None)),
        (slice(None), slice(None), J[0] % 3), (slice(None), J[0], J[1] % 3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("order", ["C", "F", "gaps"])
def test_indices_that_are_constant(at, order):
    """Reads, and sums at equal indices, of arrays in any memory order."""
    x = RNG.normal(size=(40, 6, 3))
    x = np.asfortranarray(x) if order == "F" else np.repeat(x, 2, axis=1)[:, ::2] if order == "gaps" else x
    w = RNG.normal(size=x[at].shape)

    def f(x, w):
        z = np.cos(x)
        np.add.at(z, at, w * w)
        return np.sum(np.sin(x)[at] * w * x[at]) + np.sum(np.exp(-z))

    calls = [(x, w), (x, -2 * w), (x, w[::-1].copy())]
    names = ("read", "add_at") if order == "C" else ()
    compared(f, *calls, names=names)
    compared(f, *calls, method="grad", names=names)
    want = np.zeros_like(x)
    np.add.at(want, at, w)
    prepared = tg.prepare(lambda x, w: np.sum(x[at] * w), x, w, compile=True)
    for _ in range(4):
        np.testing.assert_allclose(prepared.grad(x, w), want, 1e-13, 1e-13)


@pytest.mark.parametrize("bad", [300.5, -301.5])
def test_an_index_out_of_bounds(bad):
    def f(x):
        return np.sum(TABLE[np.trunc(x).astype(int)] * x)

    x = RNG.uniform(-299.0, 299.0, 200)
    prepared = tg.prepare(f, x, compile=True)
    wrong = x.copy()
    wrong[117] = bad
    for _ in range(3):
        np.testing.assert_allclose(prepared.value(x), f(x), 1e-13)
    assert prepared.forms["value"].programs[0].emitted.groups
    for _ in range(2):
        with pytest.raises(IndexError):
            prepared.value(wrong)
        np.testing.assert_allclose(prepared.value(x), f(x), 1e-13)


def integers(n, x):
    """Values of integers, which wrap around and have no negative zero."""
    i = (x * 3).astype(n)
    k = np.maximum(i * i - 4 * i, -i) * np.where(i > 2, i, -3)
    zero = np.copysign(1.0, -(i * 0) * x[0]) + 1 / np.where(i * 0 == 0, 1.0, x)
    return np.stack([k + 0.5 * x, x - np.abs(i), np.where(i == k, 0.0, -1.0), zero, 1.0 * (-i * (i == 0))])


@pytest.mark.parametrize("n", [np.int64, np.int32, "cast"])
def test_arithmetic_of_integers(n):
    f = (lambda x: integers(np.int64, x)) if n == "cast" else lambda x: integers(n, x)
    calls = [(RNG.normal(size=200) * s,) for s in (1, 10, 0.1, 0.0, -0.0)]
    compared(f, *calls, names=("astype",))


@pytest.mark.parametrize(
    ("kind", "far"), [(np.int64, 2.0**53), (np.int64, 3.0e15), (np.int32, 2.0**20), (np.int32, 123456.0)]
)
def test_integers_that_a_float_does_not_hold(kind, far):
    """Products and sums beyond 53 bits, and of 32 bits, are NumPy's own."""

    def f(x):
        i = x.astype(kind)
        return (i * i + 1 - i * i) * 1.0 + (i * 4097 + 1) * 0.5

    near = RNG.uniform(-100.0, 100.0, 200)
    prepared = tg.prepare(f, near, compile=True)
    for x in (near, near, near, near + far, near):
        np.testing.assert_array_equal(prepared.value(x), f(x))
    assert prepared.forms["value"].programs[0].emitted.groups


def test_large_integers_in_memory():
    big = np.arange(200) + 2**53

    def f(x, i):
        return np.where(i + 1 > i, x, -x) * ((i + 1) - i) + (i < big) * x

    x, small = RNG.normal(size=200), np.arange(200)
    prepared = tg.prepare(f, x, small, compile=True)
    for i in (small, small, small, big, big + 3, -big, small):
        np.testing.assert_array_equal(prepared.value(x, i), f(x, i))


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_casts_of_what_is_no_integer():
    def f(x):
        return x.astype(int) * 1.0

    near = RNG.normal(size=200)
    prepared = tg.prepare(f, near, compile=True)
    for far in (0.0, 0.0, 0.0, np.nan, np.inf, 1e300, -1e19):
        x = near.copy()
        x[3] = far if far else x[3]
        np.testing.assert_array_equal(prepared.value(x), f(x))


def random_program(rng):
    """Gathers, writes and sums at indices that are computed of floats, in a random order."""
    n, steps = int(rng.integers(100, 160)), rng.integers(0, 9, 7)
    shift, factor = int(rng.integers(-20, 20)), int(rng.integers(1, 4))

    def f(x, y):
        for k in steps:
            i = np.clip(np.floor(y * 20), -n, n - 1).astype(int)
            j = np.minimum(np.abs(i * factor + shift), n - 1)
            if k == 0:
                x = x[i] * y
            elif k == 1:
                x = np.sin(x)[j] + x
            elif k == 2:
                y = y + 0.01 * np.where(i > j, x, y[j])
            elif k == 3:
                x = x.reshape(2, -1)[:, j % (n // 2)].ravel()[:n] if n % 2 == 0 else x[::-1]
            elif k == 4:
                z = np.zeros(n) + x
                np.add.at(z, j, y)
                x = z
            elif k == 5:
                x = np.interp(y, np.linspace(-3.0, 3.0, n), x)
            elif k == 6:
                x = np.take(x, np.stack([i, j])).sum(axis=0) / (1 + np.abs(i - j))
            elif k == 7:
                z = x.copy()
                z[j] = y
                x = z + x
            else:
                x = x + (i - j) * y
        return np.sum(x * x) / n + np.sum(y**2)

    return f, n


@pytest.mark.one_in(7)
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed, count=3):
    rng = np.random.default_rng([seed, 5])
    for _ in range(count):
        f, n = random_program(rng)
        calls = [(rng.normal(size=n), rng.normal(size=n)) for _ in range(2)]
        prepared = tg.prepare(f, *calls[0], argnums=(0, 1), compile=True)
        for args in (calls[0], calls[0], calls[0], *calls):
            got, want = prepared.value_and_grad(*args), tg.value_and_grad(f, argnums=(0, 1))(*args)
            np.testing.assert_allclose(got[0], want[0], 1e-11)
            for a, b in zip(got[1], want[1], strict=True):
                np.testing.assert_allclose(a, b, 1e-9, 1e-11 * np.abs(b).max())
        kept = prepared.forms["value_and_grad"].programs
        assert not any([each.failures for each in kept]), prepared.report()


@pytest.mark.long
def test_many_random_programs():
    for seed in range(100, 160):
        test_random_programs(seed, 5)


def test_sums_of_what_is_written_through_a_reshape():
    def f(x):
        z = np.sin(np.zeros((4, 1000)) + x[0, :1000])
        z.reshape(8, 500)[3:5] = np.exp(x[1]).reshape(2, 500)
        return np.sum(z), z.sum(axis=1)

    x = RNG.normal(size=(2, 1000))
    prepared = tg.prepare(f, x, compile=True)
    for _ in range(4):
        for got, want in zip(prepared.value(x), f(x), strict=True):
            np.testing.assert_allclose(got, want, 1e-13)
    assert not prepared.forms["value"].programs[0].failures
