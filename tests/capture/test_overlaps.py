"""Arrays that share memory: writes whose source lies in their target, and the questions whether two arrays
share memory.

The judge is NumPy, which buffers some of these writes and does others element by element."""

import itertools

import numpy as np
import pytest
from overlapping_writes import WRITES, program

import tapegrad as tg

MODES = ("reverse", "forward", "nested", "prepare", "vmap")


def result(f, x, v, mode):
    """(value, derivative along v)."""
    if mode == "reverse":
        y, g = tg.value_and_grad(f)(x)
        return y, (g * v).sum()
    if mode == "forward":
        return tg.jvp(f, (x,), (v,))
    if mode == "nested":  # along v from within another transform
        return f(x), tg.grad(lambda s: tg.jvp(f, (x * 1.0,), (s * v,))[1])(1.0)
    if mode == "prepare":
        y, g = tg.prepare(f, v.copy(order="K")).value_and_grad(x)
        return y, (g * v).sum()
    y, d = tg.vmap(lambda x: tg.jvp(f, (x,), (v,)))(np.stack([x, v]))
    return y[0], d[0]


def compare(name, seed, mode):
    f, x, v = program(name, seed)
    try:
        right = f(x.copy(order="K"))
    except (ValueError, IndexError) as error:
        with pytest.raises((type(error), tg.errors.TapegradError)):
            result(f, x, v, mode)
        return 0
    h = 1e-6
    slope = (f(x + h * v) - f(x - h * v)) / (2 * h)
    try:
        y, d = result(f, x, v, mode)
    except tg.errors.BatchError:
        assert mode == "vmap" and "mask" in name
        return 0
    assert abs(y - right) < 1e-9, (name, seed, mode, y, right)
    assert abs(d - slope) < 1e-6 * (1 + abs(slope)), (name, seed, mode, d, slope)
    return 1


@pytest.mark.parametrize("name", WRITES)
def test_a_source_in_its_target_is_read_as_numpy_reads_it(name):
    done = [compare(name, seed, mode) for seed, mode in zip(range(10), itertools.cycle(MODES), strict=False)]
    assert sum(done) >= 3


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRITES)
def test_many_sources_in_their_targets(name, mode):
    done = sum(compare(name, seed, mode) for seed in range(100, 160))
    assert done > 10 or (name, mode) == ("mask of values", "vmap")  # it differs between samples


def test_an_order_that_cannot_be_told_raises():
    def of_parts(x):
        y = x * 1.0
        y.imag.flat[1:] = y.imag[:-1]
        return y.real.sum()

    def long(x):
        y = x * 1.0
        y.flat[1:] = y[:-1]
        return y.sum()

    with pytest.raises(tg.errors.AliasError, match="source.copy"):
        tg.grad(of_parts)(np.ones(3) + 0j)
    with pytest.raises(tg.errors.AliasError, match="source.copy"):
        tg.grad(long)(np.ones(1 << 12, np.float16))
    assert tg.grad(long)(np.ones(1 << 12, np.float32))[0] == 1 << 12


# --- do two arrays share memory? ---


def views(y, z, r):
    """Views of the two arrays, of one handle each or of none."""
    found = [y, z]
    for _ in range(6):
        a = found[r.integers(len(found))]
        k = r.integers(5)
        found.append(
            [
                lambda a: a[1:],
                lambda a: a[::2],
                lambda a: a[: len(a) // 2 + 1],
                lambda a: a.reshape(-1)[::-1],
                lambda a: a.copy(),
            ][k](a)
        )
    return found


@pytest.mark.parametrize("mode", ["reverse", "forward", "nested", "prepare", "vmap"])
@pytest.mark.parametrize("asked", [np.shares_memory, np.may_share_memory], ids=lambda f: f.__name__)
def test_whether_two_arrays_share_memory(asked, mode):
    for seed in range(4):
        state = np.zeros(9)
        late, early = state[3:], state[:5]  # views of one array that the function captures

        def f(x, seed=seed, state=state, late=late, early=early):
            r = np.random.default_rng(seed)
            y, z = x * 1.0, np.zeros(4)
            said = []
            for _ in range(3):
                several = [*views(y, z, r), state, late, early, late[1:], x]
                said += [asked(a, b) for a, b in itertools.product(several, several)]
                [
                    lambda: y.fill(2.0),
                    lambda: z.__setitem__(slice(2), x[:2]),
                    lambda: early.__setitem__(slice(4), x),
                ][r.integers(3)]()
                y[r.integers(4)] = x[0]
            return (x * np.cos(np.arange(len(said)) * np.array(said)).sum()).sum()

        x, v = np.array([0.7, -1.3, 2.1, 0.4]), np.ones(4)
        y, d = result(f, x, v, mode)
        assert y == pytest.approx(f(x), rel=1e-12) and d == pytest.approx(f(v), rel=1e-12)


def test_an_argument_shares_memory_with_what_it_shared_it_with_outside():
    a = np.arange(6.0)
    apart = np.arange(6.0)

    def f(x, y, z):
        return (
            float(np.shares_memory(x, y))
            + 10 * np.shares_memory(x, a)
            + 100 * np.shares_memory(x, z)
            + 0 * x.sum()
        )

    given = a[:4], a[2:], apart
    assert tg.value_and_grad(f, (0, 1, 2))(*given)[0] == f(*given) == 11.0
