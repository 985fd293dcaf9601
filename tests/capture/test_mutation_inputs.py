"""Bad input to code that writes in place: clear errors, captured arrays as a plain call would have left them,
and the engine usable afterwards."""

import numpy as np
import pytest
from comparison import close, host

import tapegrad as tg
from tapegrad.errors import DeviceError, DroppedDerivativeError

pytestmark = pytest.mark.smoke

TRANSFORMS = {
    "grad": lambda f, x: tg.grad(f)(x),
    "jvp": lambda f, x: tg.jvp(f, (x,), (x,))[1],
    "vjp": lambda f, x: tg.vjp(f, x)[1](1.0),
    "hvp": lambda f, x: tg.hvp(f, x, x),
    "reverse over reverse": lambda f, x: tg.grad(lambda z: (tg.grad(f)(z) * z).sum())(x),
}
transforms = pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)


def still_works(xp):
    """No level is left open, no handle left behind."""
    buf = xp.zeros(3)

    def f(x):
        buf[1:] = x * x
        buf[0] = buf[1] * buf[2]
        return buf.sum()

    x = xp.array([2.0, 3.0])
    close(tg.grad(f)(x), [4.0 + 36.0, 6.0 + 24.0])
    close(tg.hvp(f, x, xp.array([1.0, 0.0])), [2.0 + 2 * 9.0, 24.0])
    assert type(buf) is type(xp.zeros(1))
    close(buf, [36.0, 4.0, 9.0])


def refused(transform, f, x, error, *words):
    """f is refused with these words in the message (or in that of the cause)."""
    with pytest.raises(error) as caught:
        transform(f, x)
    text = f"{caught.value} {caught.value.__cause__}"
    for word in words:
        assert word in text, text


# --- a tracked value where no derivative can be held ---


WRITES = {
    "element": lambda c, x: c.__setitem__(0, x[0]),
    "slice": lambda c, x: c.__setitem__(slice(2), x),
    "out=": lambda c, x: np.multiply(x, x, out=c[:2]),
    "copyto": lambda c, x: np.copyto(c[:2], x),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_tracked_value_into_a_constant(write):
    """`Const` says: no shadow.  The array stays plain, and cannot take the value."""
    plain, x = np.zeros(3), np.ones(2)

    def f(x, c):
        write(c, x)
        return c.sum()

    for call in (
        lambda: tg.grad(tg.Const(lambda x: f(x, plain)))(x),
        lambda: tg.jvp(tg.Const(lambda x: f(x, plain)), (x,), (x,)),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert "derivative" in f"{caught.value} {caught.value.__cause__}"
    close(plain, np.zeros(3))
    still_works(np)


@transforms
def test_tracked_value_into_a_captured_read_only_array(xp, transform):
    if xp is not np:
        buf = xp.broadcast_to(xp.zeros(1), (3,))
        f = lambda x: (xp.broadcast_to(buf, (2, 3)).__setitem__((0, 0), x[0]), x.sum())[1]
    else:
        buf = np.zeros(3)
        buf.flags.writeable = False

        def f(x):
            buf[0] = x[0]
            return buf.sum()

    refused(transform, f, xp.ones(2), ValueError, "read-only")
    close(buf, np.zeros(3))
    still_works(xp)


@transforms
@pytest.mark.parametrize(
    "view", [np.diagonal, lambda m: np.broadcast_to(m[0], (3, 2))], ids=["diagonal", "broadcast"]
)
def test_read_only_views(transform, view):
    def f(x):
        m = np.outer(x, x)
        view(m)[0] = x[0]
        return m.sum()

    with pytest.raises(ValueError, match="read-only"):
        f(np.ones(2))
    refused(transform, f, np.ones(2), ValueError, "read-only")
    still_works(np)


@transforms
@pytest.mark.parametrize("dtype", [int, bool])
@pytest.mark.parametrize("captured", [True, False], ids=["captured", "made inside"])
def test_tracked_values_into_an_integer_buffer(xp, transform, dtype, captured):
    buf = xp.zeros(3, dtype)

    def f(x):
        counts = buf if captured else xp.zeros(3, dtype)
        counts[1:] = x
        return counts.sum() * x.sum()

    with pytest.raises((TypeError, ValueError)) as caught:
        transform(f, xp.ones(2))
    assert "derivative" in f"{caught.value} {caught.value.__cause__}"
    assert buf.dtype == dtype
    close(buf, np.zeros(3, dtype))
    still_works(xp)


def test_an_element_of_an_integer_buffer_is_refused():
    """NumPy would store int(x), and the derivative would be lost."""
    counts = np.zeros(3, int)

    def f(x):
        counts[0] = 7
        counts[1] = x[0] * 3
        return counts.sum() * x.sum()

    with pytest.raises(DroppedDerivativeError, match="array of integers"):
        tg.grad(f)(np.array([1.5, 2.5]))
    close(counts, [7, 0, 0])


def test_integer_buffers_take_plain_values(xp):
    counts = xp.zeros(3, int)

    def f(x):
        counts[1] += 1
        return (x * counts[1]).sum()

    close(tg.grad(f)(xp.ones(2)), [1.0, 1.0])
    close(tg.grad(f)(xp.ones(2)), [2.0, 2.0])
    close(counts, [0, 2, 0])


@transforms
def test_complex_value_into_a_real_array(xp, transform):
    buf = xp.full(3, 0.5)

    def f(x):
        buf[0] = 1.5
        buf[1:] = x * (1 + 2j)
        return buf.sum()

    refused(transform, f, xp.ones(2), TypeError, "complex", "y.real")
    close(buf, [1.5, 0.5, 0.5])
    still_works(xp)


# --- indices and shapes ---

SHAPES = {
    "too long": lambda b, x: b.__setitem__(slice(0, 2), x),
    "matrix into a vector": lambda b, x: b.__setitem__(slice(None), x[:2, None] * x[:2]),
    "augmented": lambda b, x: b.__iadd__(x),
    "out=": lambda b, x: np.multiply(x, x, out=b),
    "copyto": lambda b, x: np.copyto(b, x),
    "index array": lambda b, x: b.__setitem__([0, 1], x),
}


@transforms
@pytest.mark.parametrize("write", SHAPES.values(), ids=SHAPES)
def test_shapes_that_do_not_broadcast(transform, write):
    buf = np.full(4, 0.5)

    def f(x):
        buf[0] = 2.0
        write(buf, x)
        return buf.sum()

    x = np.array([1.0, 2.0, 3.0])
    with pytest.raises(ValueError):
        f(x)
    buf[:] = 0.5
    refused(transform, f, x, ValueError, "shape")
    close(buf, [2.0, 0.5, 0.5, 0.5])
    still_works(np)


INDICES = {
    "element": lambda b, x: b.__setitem__(4, x[0]),
    "negative": lambda b, x: b.__setitem__(-5, x[0]),
    "array": lambda b, x: b.__setitem__(np.array([0, 4]), x[:2]),
    "too many": lambda b, x: b.__setitem__((0, 0), x[0]),
    "mask": lambda b, x: b.__setitem__(np.ones(3, bool), x[0]),
    "read": lambda b, x: b.__setitem__(0, b[4] * x[0]),
    "add.at": lambda b, x: np.add.at(b, [0, 4], x[:2]),
    "put": lambda b, x: np.put(b, [0, 4], x[:2]),
    "float": lambda b, x: b.__setitem__(1.5, x[0]),
}


@transforms
@pytest.mark.parametrize("write", INDICES.values(), ids=INDICES)
def test_indices_out_of_range(transform, write):
    buf = np.full(4, 0.5)

    def f(x):
        buf[3] = 2.0
        write(buf, x)
        return buf.sum()

    x = np.array([1.0, 2.0, 3.0])
    with pytest.raises(IndexError):
        f(x)
    buf[:] = 0.5
    refused(transform, f, x, IndexError, "ind")
    close(buf, [0.5, 0.5, 0.5, 2.0])
    still_works(np)


# --- captured arrays, after an exception as after a plain call ---


@transforms
def test_writes_up_to_an_exception_are_kept(xp, transform):
    buf, rows, numbers = xp.zeros(3), [xp.zeros(2), xp.zeros(2)], {"count": 0.0, "last": xp.zeros(2)}
    inner = buf[1:]

    def f(x):
        buf[0] = x[0] * 2
        inner[1] = x[1]
        rows[1] += x
        numbers["count"] += 1
        numbers["last"] = x * 3
        if numbers["count"] > 0:
            raise ArithmeticError("half-way")
        buf[:] = 7.0
        return buf.sum()

    kept = rows[1]
    with pytest.raises(ArithmeticError, match="half-way"):
        transform(f, xp.array([1.0, 4.0]))
    assert rows[1] is kept
    for a in (buf, inner, *rows, numbers["last"]):
        assert type(a) is type(xp.zeros(1))
    close(buf, [2.0, 0.0, 4.0])
    close(inner, [0.0, 4.0])
    close(rows[0], [0.0, 0.0])
    close(rows[1], [1.0, 4.0])
    close(numbers["last"], [3.0, 12.0])
    assert numbers["count"] == 1.0
    still_works(xp)


@transforms
@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, ValueError])
def test_interrupted_in_an_inner_transform(transform, error):
    buf = np.zeros(2)

    def f(x):
        buf[0] = x[0]

        def h(z):
            buf[1] = z * x[1] * 3
            raise error

        return tg.grad(h)(x[0]) + buf.sum()

    with pytest.raises(error):
        transform(f, np.array([2.0, 5.0]))
    assert type(buf) is np.ndarray
    close(buf, [2.0, 30.0])
    still_works(np)


def test_an_error_while_handing_back(xp):
    """An object that refuses its plain value back raises, and nothing stays open."""

    class Once:
        def __init__(self):
            object.__setattr__(self, "value", 1.0)

        @property
        def double(self):
            return self.value * 2

    once = Once()

    def f(x):
        once.value = x.sum() * once.double
        return once.value * 1.0

    close(tg.grad(f)(xp.array([1.0, 2.0])), [2.0, 2.0])
    assert float(once.value) == 6.0
    with pytest.raises(AttributeError):
        tg.grad(lambda x: (setattr(once, "double", x), x.sum())[1])(xp.ones(2))
    still_works(xp)


# --- sizes that change meanwhile ---


@transforms
def test_a_captured_array_resized_meanwhile(transform):
    """The memory of a captured array is shared: an error says so, the array keeps its size."""
    buf = np.zeros(3)

    def f(x):
        buf[0] = x[0]
        buf.resize(5, refcheck=False)
        return buf.sum()

    with pytest.raises(NotImplementedError, match="resize"):
        transform(f, np.ones(2))
    close(buf, [1.0, 0.0, 0.0])
    still_works(np)


@transforms
def test_shape_set_in_place(transform):
    buf = np.zeros(4)

    def f(x):
        buf[0] = x[0]
        buf.shape = (4,)
        buf.shape = (2, 2)
        return buf.sum()

    with pytest.raises(tg.errors.ArgumentError, match=r"x = x.reshape\(s\)"):
        transform(f, np.ones(2))
    close(buf, [1.0, 0.0, 0.0, 0.0])
    still_works(np)


def test_a_captured_array_rebound_to_another_size(xp):
    """`state.buf = np.zeros(5)`: an attribute may get another array, as in a plain call."""

    class State:
        def __init__(self):
            self.buf = xp.zeros(3)

    state = State()

    def f(x):
        state.buf[:2] = x
        bigger = xp.zeros(state.buf.shape[0] + 1)
        bigger[: state.buf.shape[0]] = state.buf
        state.buf = bigger
        return (bigger**2).sum()

    x = xp.array([1.0, 2.0])
    for size in (4, 5):
        close(tg.grad(f)(x), [2.0, 4.0])
        assert type(state.buf) is type(x) and state.buf.shape == (size,)
        close(state.buf[:2], host(x))


@pytest.mark.cupy_only
def test_numbers_become_arrays_where_they_are_needed(xp):
    """A tracked number belongs to no device: what CuPy makes of it, or writes of a list of it, lies on the
    device."""

    def f(x, y):
        a = xp.full((2, 3), x) + xp.linspace(0.0, y, 3)
        a[0, 1:] = x * y
        xp.put(a, [0, 3], [x, y * y])
        xp.fill_diagonal(a, y)
        return (a * xp.arange(6.0).reshape(2, 3)).sum()

    x, y = 0.7, 1.3
    found = tg.grad(f, (0, 1))(x, y)
    # f = 0 y + 1 x y + 2 x y + 3 y^2 + 4 y + 5 (x + y)
    np.testing.assert_allclose(float(f(x, y)), 3 * x * y + 3 * y * y + 9 * y + 5 * x)
    np.testing.assert_allclose([float(v) for v in found], [3 * y + 5, 3 * x + 6 * y + 9])


@pytest.mark.cupy_only
def test_an_array_of_the_other_library_is_not_written(xp):
    buf = xp.zeros(3)

    def f(x):
        buf[...] = x
        return (buf * buf).sum()

    with pytest.raises(DeviceError, match=r"x\[\.\.\.\] = y met a NumPy and a CuPy array"):
        tg.grad(f)(np.ones(3))
    assert not buf.any()
