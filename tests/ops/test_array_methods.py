"""Methods and functions of arrays that are used less: views of another dtype, `resize`, `nditer`, the square
Q of a tall matrix, and arrays with fields, which refuse."""

import numpy as np
import pytest
import scipy.linalg

import tapegrad as tg
from tapegrad import errors

x0 = np.array([0.7, 1.3, 2.1, 0.4, 1.1, 0.9])
v0 = np.cos(np.arange(6) + 0.3)
FIELDS = [("a", float), ("b", float)]
weights = np.arange(1.0, 9.0)


def resized(x):
    y = x**2
    y.resize((3, 2))
    return np.sum(y * weights[:6].reshape(3, 2))


def resized_larger(x):
    y = x**2
    y.resize(2, 4, refcheck=False)
    return np.sum((y + 1) ** 3)


def resized_smaller(x):
    y = x**3
    y.resize(4)
    return np.sum(y * weights[:4])


def loop(x):
    total = 0.0
    for v in np.nditer(x):
        total = total + v * np.sin(v)
    return total


def loop_in_memory_order(x):
    total, k = 0.0, 1
    for v in np.nditer(x.reshape(2, 3).T):
        total, k = total + k * v**2, k + 1
    return total


def loop_in_fortran_order(x):
    total, k = 0.0, 1
    for v in np.nditer(x.reshape(2, 3), order="F"):
        total, k = total + k * v**2, k + 1
    return total


def loop_that_writes(x):
    y = x.copy()
    with np.nditer(y, op_flags=["readwrite"]) as elements:
        for v in elements:
            v[...] = 2 * v * v
    return np.sum(y * x)


def loop_with_places(x):
    total = 0.0
    elements = np.nditer(x.reshape(2, 3), flags=["multi_index"])
    for v in elements:
        total = total + v**2 * (elements.multi_index[0] + 2 * elements.multi_index[1])
    return total


def loop_by_hand(x):
    total = 0.0
    elements = np.nditer(x.reshape(2, 3), flags=["c_index"])
    while not elements.finished:
        total = total + elements[0] ** 2 * elements.index
        elements.iternext()
    return total


def loop_over_two(x):
    out = np.zeros_like(x)
    for a, b in np.nditer([x, out], op_flags=[["readonly"], ["writeonly"]]):
        b[...] = a**3
    return np.sum(out * weights[:6])


def loop_that_makes_its_result(x):
    elements = np.nditer([x.reshape(2, 3), x[:3], None])
    for a, b, c in elements:
        c[...] = a * b
    return np.sum(elements.operands[2] ** 2)


def pairs(x):
    return x[:3] + 1j * x[3:]


FUNCTIONS = {
    "real as complex": lambda x: np.sum(np.abs((x**2).view(np.complex128)) ** 3),
    "complex as real": lambda x: np.sum(pairs(x).view(float) ** 3),
    "columns": lambda x: np.sum(pairs(x).view(float).reshape(3, 2)[:, 1] ** 3),
    "rows": lambda x: np.sum((x.reshape(3, 2) * 2).view(complex).imag ** 3),
    "there and back": lambda x: np.sum(pairs(x).view(float).view(complex).real ** 2 * weights[:3]),
    "resize": resized,
    "resize larger": resized_larger,
    "resize smaller": resized_smaller,
    "to_device": lambda x: np.sum(x.to_device("cpu") ** 2),
    "nditer": loop,
    "nditer of a transpose": loop_in_memory_order,
    "nditer, order F": loop_in_fortran_order,
    "nditer writes": loop_that_writes,
    "nditer multi_index": loop_with_places,
    "nditer iternext": loop_by_hand,
    "nditer of two": loop_over_two,
    "nditer allocates": loop_that_makes_its_result,
    "complete R": lambda x: np.sum(np.linalg.qr(x.reshape(3, 2), mode="complete")[1] ** 3),
    "complete Q": lambda x: np.sum(np.linalg.qr(x.reshape(3, 2), mode="complete").Q ** 3),
    "full Q and R": lambda x: np.sum((lambda q, r: q[:, 1:] @ r[1:])(*scipy.linalg.qr(x.reshape(3, 2))) ** 3),
    "full of one column": lambda x: np.sum(scipy.linalg.qr(x.reshape(6, 1))[0][:, 2:] ** 3),
    "complex Q": lambda x: np.sum(np.abs(np.linalg.qr(pairs(x).reshape(3, 1), mode="complete")[0] + 1) ** 2),
    "full, pivoted": lambda x: np.sum(scipy.linalg.qr(x.reshape(3, 2), pivoting=True)[0] ** 3),
}


def slope(f, x, v, h=1e-4):
    """Central differences of order four."""
    a, b = [np.asarray(f(x + k * h * v)) - np.asarray(f(x - k * h * v)) for k in (1, 2)]
    return (8 * a - b) / (12 * h)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name):
    f = FUNCTIONS[name]
    value, gradient = tg.value_and_grad(f)(x0)
    np.testing.assert_allclose(value, f(x0.copy()), rtol=1e-13)
    np.testing.assert_allclose(np.sum(gradient * v0), slope(f, x0, v0), rtol=1e-8)
    np.testing.assert_allclose(tg.jvp(f, (x0,), (v0,))[1], np.sum(gradient * v0), rtol=1e-11)
    np.testing.assert_allclose(tg.hvp(f, x0, v0), slope(tg.grad(f), x0, v0), rtol=1e-7, atol=1e-8)


USUAL = (
    "complex as real",
    "resize larger",
    "nditer writes",
    "nditer allocates",
    "complete Q",
)  # the others: long


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in USUAL else pytest.mark.long)
        for name in FUNCTIONS
        if name != "full, pivoted"  # the order of the columns is one of values
    ],
)
def test_many_samples_and_prepared(name):
    f = FUNCTIONS[name]
    points = np.stack([x0, 1.02 * x0])
    wanted = [tg.grad(f)(p) for p in points]
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(points), wanted, rtol=1e-12)
    prepared = tg.prepare(f, x0)
    for p, g in zip(points, wanted, strict=True):
        np.testing.assert_allclose(prepared.grad(p), g, rtol=1e-12)


def write_view(x):
    z = pairs(x)
    y = z.view(float)
    y[0] = 3.0
    return np.sum(np.abs(z) ** 2)


def write_base(x):
    z = pairs(x)
    y = z.view(float)
    z[0] = 3.0
    return np.sum(y**2)


def write_buffer(x):
    z = np.zeros(2, complex)
    z[0] = x[0]
    y = z.view(float)
    z[1] = x[1]
    return np.sum(y**2)


@pytest.mark.parametrize("f", [write_view, write_base, write_buffer])
def test_writing_what_has_a_view_of_another_dtype(f):
    with pytest.raises(errors.AliasError, match="another dtype"):
        tg.grad(f)(x0)


def test_a_view_that_numpy_refuses():
    with pytest.raises(ValueError, match="last axis must be contiguous"):
        tg.grad(lambda x: np.sum(pairs(x)[::2].view(float)))(x0)
    with pytest.raises(ValueError, match="divisor"):
        tg.grad(lambda x: np.sum(x[:3].copy().view(complex).real))(x0)


def test_resize_of_what_has_views():
    def f(x):
        y = x**2
        z = y[1:]
        y.resize(3)
        return np.sum(z)

    with pytest.raises(errors.NoRuleError, match="views"):
        tg.grad(f)(x0)


def test_the_square_q_where_it_has_no_derivative():
    with pytest.raises(errors.ArgumentError, match="zero below the diagonal"):
        tg.grad(lambda x: np.sum(np.linalg.qr(x.reshape(3, 2), mode="complete")[0]))(
            np.array([1.0, 2.0, 0.0, 3.0, 0.0, 0.0])
        )


def test_nditer_of_plain_arrays_and_what_it_refuses():
    a = np.arange(6).reshape(2, 3)

    def f(x):
        rows = [np.sum(chunk) for chunk in np.nditer(a, flags=["external_loop"], order="F")]
        return np.sum(x) * rows[0]

    np.testing.assert_array_equal(tg.grad(f)(x0), np.full(6, 3.0))
    with pytest.raises(errors.ArgumentError, match="buffered"):
        tg.grad(lambda x: sum([np.sum(c) for c in np.nditer(x, flags=["buffered"])]))(x0)
    with pytest.raises(errors.ArgumentError, match="reads only"):
        tg.grad(lambda x: [c.fill(1.0) for c in np.nditer(x, ["external_loop"], ["readwrite"])])(x0)


@pytest.mark.parametrize("order", "CFK")
@pytest.mark.parametrize(
    "view",
    [lambda x: x, lambda x: x.T, lambda x: x[::-1, ::2], lambda x: x[:, 1], lambda x: x.transpose(1, 0, 2)],
)
def test_parts_of_an_external_loop(order, view):
    x = np.sin(np.arange(24.0)).reshape(2, 3, 4)
    v = np.cos(x)

    def f(x):
        parts = [*np.nditer([view(x), 2.0], flags=["external_loop"], order=order)]
        return sum(
            [np.sum(np.sin(a * b) * np.arange(1, 1 + len(a))) * k for k, (a, b) in enumerate(parts, 1)]
        )

    wanted = np.imag(f(x + 1e-30j * v)) / 1e-30
    np.testing.assert_allclose(np.sum(tg.grad(f)(x) * v), wanted, rtol=1e-13)
    np.testing.assert_allclose(tg.jvp(f, (x,), (v,))[1], wanted, rtol=1e-13)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: np.array([(x[0], x[1])], dtype=FIELDS), lambda x: x[:1]),
        (lambda x: np.asarray((x[0], 2.0), dtype=FIELDS), lambda x: x[0]),
        (lambda x: np.full(3, x[0], dtype=FIELDS), lambda x: np.full(3, x[0])),
        (lambda x: np.fromiter(((a, 2 * a) for a in x), dtype=FIELDS), lambda x: x),
        (lambda x: x.astype(FIELDS), lambda x: x),
    ],
)
def test_an_array_with_fields_is_made_of_tracked_values(make, expected):
    total = lambda make: lambda x: np.sum(np.asarray(make(x)) ** 2 * x[0])
    gradient = tg.grad(total(lambda x: make(x)["a"]))(x0)
    np.testing.assert_array_equal(gradient, tg.grad(total(expected))(x0))


def test_a_structured_array_like_another_is_filled_by_its_fields():
    with pytest.raises(errors.DroppedDerivativeError):
        tg.grad(lambda x: np.sum(np.full_like(np.zeros(2, FIELDS), x[0])["a"]))(x0)


def test_an_array_with_fields_of_constants():
    captured = np.array([(1.0, 2.0), (3.0, 4.0)], dtype=FIELDS)

    def f(x):
        made = np.array([(1.0, 2.0), (np.sum(captured["a"]), 4.0)], dtype=FIELDS)
        return np.sum(captured["a"] * x[:2]) + made["a"][1] * x[2] + np.full(2, 3.0, FIELDS)["b"][0] * x[3]

    np.testing.assert_array_equal(tg.grad(f)(x0), [1.0, 3.0, 4.0, 3.0, 0.0, 0.0])


def test_setflags():
    buf = np.zeros(3)

    def f(x):
        y = x**2
        y.setflags(write=False)
        x.setflags(write=False)
        buf[:] = x
        spread = np.broadcast_to(x, (2, 3))
        spread.setflags(write=True)
        for a in (y, x, spread):
            with pytest.raises(ValueError, match="read-only"):
                a[0] = 1.0
        y.setflags(write=True)
        y[0] = x[1]
        return np.sum(y * x) + np.sum(buf**2)

    x = x0[:3].copy()
    wanted = np.array([x[1], x[0] + 3 * x[1] ** 2, 3 * x[2] ** 2])
    np.testing.assert_allclose(tg.grad(f)(x), wanted + 2 * x)
    assert x.flags.writeable
    bent = np.array([1.0, 1 + 6 * x[1], 6 * x[2]]) + 2
    np.testing.assert_allclose(tg.hvp(f, x, np.ones(3)), bent)


def test_where_without_out_that_leaves_no_element_undefined():
    def f(x):
        return np.sum(np.multiply(x, x, where=~np.isnan(x)))

    np.testing.assert_allclose(tg.grad(f)(x0), 2 * x0)
    for where in (np.ones((3, 6), bool), x0 > 1):  # the first widens the result
        with pytest.raises(errors.ArgumentError, match="where="):
            tg.grad(lambda x, where=where: np.sum(np.multiply(x, x, where=where)))(x0)
