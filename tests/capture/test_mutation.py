"""In-place writes in plain code, with the cases that other systems get wrong or refuse."""

import tracemalloc

import numpy as np
import pytest
from _modes import check_first, check_second, complex_step, second_difference
from comparison import close, host

import tapegrad as tg

pytestmark = pytest.mark.smoke


def second(f, x, v, H):
    check_second(f, x, v, np.asarray(H) @ host(v).reshape(-1))


def test_m1_a_plain_constant_changes_meanwhile(xp):
    c0 = xp.array([1.0, 2.0])

    def f(x):
        c = c0.copy()
        s = 0.0
        for _ in range(3):
            s = s + (c * x**2).sum()
            c *= 2
        return s

    x = xp.array([1.0, 1.0])
    close(f(x), 21.0)
    check_first(f, x, [14.0, 28.0])
    second(f, x, xp.array([1.0, -2.0]), np.diag([14.0, 28.0]))


def test_m1_captured(xp):
    c = xp.array([1.0, 2.0])

    def f(x):
        s = 0.0
        for _ in range(3):
            s = s + (c * x**2).sum()
            c[:] = c * 2
        c[:] = c / 8
        return s

    check_first(f, xp.array([1.0, 1.0]), [14.0, 28.0])
    close(c, [1.0, 2.0])


@pytest.mark.parametrize("size", [2, 2000], ids=["small", "large"])
def test_m1_without_a_shadow(xp, size):
    """The array is written by code that tapegrad does not see: only the tape's own copies help."""
    c = xp.arange(1.0, size + 1)
    start = c.copy()

    def f(x):
        s = 0.0
        for _ in range(3):
            s = s + (c * x**2).sum()
            c.__imul__(2)
        c[...] = start
        return s

    x = xp.ones(size)
    with tg.Tape() as tape:
        z = tape.watch(x)
        y = f(z)
    close(tape.grad(y, z), 14.0 * host(start))
    close(tg.grad(tg.Const(f))(x), 14.0 * host(start))


def test_m2_elements_from_elements(xp):
    def f(x):
        y = x * 1
        y[0] = 2 * y[1]
        y[1] = y[1] ** 2
        return (y**2).sum()

    x = xp.array([1.0, 2.0])
    close(f(x), 32.0)
    check_first(f, x, [0.0, 48.0])
    close(tg.hessian(f)(x), [[0.0, 0.0], [0.0, 56.0]])
    second(f, x, xp.array([1.0, 3.0]), [[0.0, 0.0], [0.0, 56.0]])


def test_m3_write_through_a_view(xp):
    def f(x):
        y = x * 1
        v = y[1:]
        v *= 3
        y[0] *= v[0]
        return (y**2).sum() + v.sum()

    x = xp.array([1.0, 2.0, 3.0])
    check_first(f, x, [72.0, 75.0, 57.0])
    # y = (3 x0 x1, 3 x1, 3 x2): f = 9 x0^2 x1^2 + 9 x1^2 + 9 x2^2 + 3 x1 + 3 x2
    H = [[72.0, 72.0, 0.0], [72.0, 36.0, 0.0], [0.0, 0.0, 18.0]]
    second(f, x, xp.array([1.0, -1.0, 2.0]), H)


def test_m5_overwritten_after_use(xp):
    def f(x):
        y = x * 1
        v = y[:2]
        z = (y**2).sum() + (v**3).sum()
        y *= 0
        v += 5
        return z

    x = xp.array([1.0, 2.0, 3.0])
    check_first(f, x, [5.0, 16.0, 6.0])
    second(f, x, xp.array([1.0, 1.0, 1.0]), np.diag([8.0, 14.0, 2.0]))


def test_m6_the_last_write_wins():
    def f(v):
        a = np.zeros(3)
        a[[0, 0]] = v
        return a.sum()

    x = np.array([2.0, 3.0])
    close(f(x), 3.0)
    check_first(f, x, [0.0, 1.0])
    check_second(f, x, np.ones(2), [0.0, 0.0])


def test_m6_the_stored_winner(xp):
    """On a device the winner of equal indices is not defined: the derivative belongs to the value stored."""

    def f(v):
        a = xp.zeros(3)
        a[xp.array([0, 2, 0])] = v
        return a @ xp.array([2.0, 3.0, 5.0])

    x = xp.array([7.0, 8.0, 9.0])
    value, gradient = tg.value_and_grad(f)(x)
    kept = 0 if host(value) == 2 * 7 + 5 * 8 else 2
    expected = np.array([0.0, 5.0, 0.0])
    expected[kept] = 2.0
    close(gradient, expected)


def test_m7_a_block_of_a_larger_matrix(xp):
    def f(A):
        B = xp.zeros((4, 4))
        B[:2, :2] = A
        return B.sum()

    check_first(f, xp.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2)))


def test_m7_rows_into_a_result(xp):
    def f(p):
        res = xp.zeros(3)
        for m in range(3):
            res[m] = (p[m] * p[0]).sum()
        return res.sum()

    p = xp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    first = 2 * host(p)[0] + host(p)[1] + host(p)[2]
    expected = np.stack([first, host(p)[0], host(p)[0]])
    check_first(f, p, expected)
    v = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    check_second(f, p, xp.asarray(v), np.stack([2 * v[0] + v[1] + v[2], v[0], v[0]]))


def test_a_view_is_saved_and_its_base_overwritten(xp):
    """PyTorch returns a wrong gradient here without a word."""

    def f(x):
        y = x.copy()
        v = y[1:2]
        z = (v * v).sum()
        y += 10
        return z

    x = xp.array([3.0, 5.0])
    check_first(f, x, [0.0, 10.0])
    second(f, x, xp.array([1.0, 1.0]), [[0.0, 0.0], [0.0, 2.0]])


def test_an_element_is_what_the_library_makes_of_it(xp):
    """NumPy's y[1] is a number; CuPy's is a view, which sees later writes."""

    def f(x):
        y = x * 1
        square = y[1] ** 2
        e = y[1]
        y[1] = 7.0
        y[0] *= 3
        return square + e * x[0] + y.sum()

    x = xp.array([3.0, 5.0])
    if xp is np:
        close(f(x), 25 + 15 + 9 + 7.0)
        check_first(f, x, [5 + 3.0, 10 + 3.0])
        second(f, x, xp.array([1.0, 2.0]), [[0.0, 1.0], [1.0, 2.0]])
    else:
        close(f(x), 25 + 21 + 9 + 7.0)
        check_first(f, x, [7 + 3.0, 10.0])
        second(f, x, xp.array([1.0, 2.0]), [[0.0, 0.0], [0.0, 2.0]])


def test_powers_in_place(xp):
    """y *= y and y **= y: forward mode elsewhere is wrong at first order."""

    def f(x):
        y = xp.sin(x) + 2
        y *= y
        y **= y * 0.1
        y /= y + 1
        return y.sum()

    def plain(x):
        y = np.sin(x) + 2
        y = y * y
        y = y ** (y * 0.1)
        return (y / (y + 1)).sum()

    x = xp.array([0.3, 1.1, 2.0])
    check_first(f, x, complex_step(plain, host(x)))


def test_a_filled_trajectory(xp):
    def f(x0):
        X = xp.empty((6, 2))
        X[0] = x0
        for t in range(5):
            X[t + 1] = xp.sin(X[t]) * xp.array([1.1, 0.9]) + X[t, ::-1]
        return (X**2).sum()

    def plain(x0):
        x, s = x0, (x0**2).sum()
        for _ in range(5):
            x = np.sin(x) * [1.1, 0.9] + x[::-1]
            s = s + (x**2).sum()
        return s

    x = xp.array([0.5, -0.3])
    gradient = complex_step(plain, host(x))
    check_first(f, x, gradient)
    v, h = np.array([1.0, 2.0]), 1e-5
    difference = (complex_step(plain, host(x) + h * v) - complex_step(plain, host(x) - h * v)) / (2 * h)
    check_second(f, x, xp.asarray(v), difference, rtol=1e-7)


def test_arguments_stay_as_they_were(xp):
    def f(x, scratch):
        scratch[:] = x * 2
        x[0] = 0.0
        x += scratch
        return (x**2).sum()

    x, scratch = xp.array([1.0, 2.0]), xp.zeros(2)
    close(tg.grad(f)(x, scratch), [2 * 2 * 2.0, 2 * 9 * 2.0])
    close(x, [1.0, 2.0])
    close(scratch, [0.0, 0.0])
    close(tg.jvp(lambda x: f(x, scratch), (x,), (xp.array([1.0, 0.0]),))[1], 8.0)
    close(x, [1.0, 2.0])


# --- recomputed functions ---


def wave(xp, buf):
    """A step that works in a captured buffer, and the same without writes for three steps."""

    def step(y):
        buf[:] = xp.sin(y)
        buf[1:] *= y[:-1]
        return buf + 1

    def plain(x):
        y = x
        for _ in range(3):
            s = np.sin(y)
            y = np.concatenate([s[:1], s[1:] * y[:-1]]) + 1
        return (y**2).sum()

    return step, plain


def test_checkpoint_with_a_captured_buffer(xp):
    buf = xp.zeros(3)
    step, plain = wave(xp, buf)

    def f(x):
        y = x
        for _ in range(3):
            y = tg.checkpoint(step)(y)
        return (y**2).sum()

    x, v = np.array([0.3, -0.8, 1.4]), np.array([1.0, -2.0, 0.5])
    check_first(f, xp.asarray(x), complex_step(plain, x))
    check_second(f, xp.asarray(x), xp.asarray(v), second_difference(plain, x, v), rtol=1e-8)
    assert type(buf) is xp.ndarray


def test_checkpoint_that_writes_its_argument(xp):
    scratch = xp.zeros(3)

    def step(y, out):
        out[:] = xp.sin(y)
        out *= y
        return out + 1

    def f(x):
        y = tg.checkpoint(step)(x, scratch)
        return (y**2).sum() + scratch.sum()

    def plain(x):
        return ((np.sin(x) * x + 1) ** 2).sum() + (np.sin(x) * x).sum()

    x = np.array([0.3, -0.8, 1.4])
    close(tg.value_and_grad(f)(xp.asarray(x))[0], plain(x))
    check_first(f, xp.asarray(x), complex_step(plain, x))
    close(scratch, np.sin(x) * x)


def test_nested_checkpoints_take_the_square_root_of_the_memory():
    def steps(x, n):
        for _ in range(n):
            x = np.sin(x) * 1.001 + x * 1e-3
        return x

    def plain(x, count):
        return steps(x, count).sum()

    def nested(x, count):
        some = tg.checkpoint(steps)
        for _ in range(int(count**0.5)):
            x = some(x, int(count**0.5))
        return x.sum()

    def peak(f, count):
        tracemalloc.start()
        gradient = tg.grad(f)(np.linspace(0.1, 1.0, 2000), count)
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return memory, gradient

    small, large = peak(nested, 100), peak(nested, 1600)
    whole = peak(plain, 1600)
    close(large[1], whole[1])
    assert large[0] < 6 * small[0]  # 4 for 16 times the steps, and what does not grow
    assert large[0] < whole[0] / 8


def test_none_alone_as_an_index():
    """y[None] of a view and of a buffer, read and written, in second order too."""

    def f(y):
        z = y * 1.0
        z[None] += y[None] ** 2
        return (z[None] ** 3).sum() + (y[None] ** 3).sum()

    x = np.arange(1.0, 4.0)
    u, du, ddu = x + x * x, 1 + 2 * x, 2.0
    np.testing.assert_allclose(tg.grad(f)(x), 3 * u**2 * du + 3 * x**2)
    bend = 6 * u * du**2 + 3 * u**2 * ddu + 6 * x
    for h in (
        tg.hvp(f, x, np.ones(3)),
        tg.grad(lambda x: tg.grad(f)(x).sum())(x),
        tg.jvp(tg.grad(f), (x,), (np.ones(3),))[1],
    ):
        np.testing.assert_allclose(h, bend)


@pytest.mark.parametrize("part", [slice(None), slice(1, None)])
def test_a_captured_memory_map(tmp_path, part):
    """It is written like any other array, and the file with it."""
    path = tmp_path / "field.bin"
    field = np.memmap(path, float, "w+", shape=(3, 2))
    rows = field[part]

    def f(x):
        rows[-1] = x
        rows[0] = rows[-1] ** 2
        return (field**3).sum()

    x = np.array([0.5, -1.5])
    np.testing.assert_allclose(tg.grad(f)(x), 3 * x**2 + 6 * x**5)
    np.testing.assert_allclose(tg.jvp(f, (x,), (x,))[1], 3 * x**2 @ x + 6 * x**5 @ x)
    assert type(field) is np.memmap
    np.testing.assert_array_equal(np.fromfile(path).reshape(3, 2), field)
    np.testing.assert_array_equal(field[-1], x)


def swarm(x, rng):
    """Particles at random places, moved where they are."""
    places, speeds = rng.standard_normal((4, 2)), np.random.default_rng(7).uniform(size=(4, 2))
    np.random.seed(2)
    kicks = np.random.randn(2)
    places[0] = x
    for _ in range(3):
        speeds *= 0.9 * x[1]
        places += speeds * x[0] + kicks
        kicks -= 0.1 * x
    return (places**2).sum() + kicks.prod() * rng.random()


def test_drawn_arrays_can_be_written():
    x = np.array([0.4, 1.2])
    plain = lambda x: swarm(x, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    value, gradient = tg.value_and_grad(lambda x: swarm(x, rng))(x)
    assert value == plain(x)
    slopes = [(plain(x + e) - plain(x - e)) / 2e-6 for e in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-8)
    np.testing.assert_allclose(tg.jvp(plain, (x,), (x,))[1], gradient @ x, rtol=1e-12)
    assert type(np.random.default_rng(5).normal(size=2)) is np.ndarray
