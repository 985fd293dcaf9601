"""Programs that the random ones found wrong, by hand."""

import numpy as np
import pytest
from _modes import check_first, check_second, differences
from comparison import close, host

import tapegrad as tg

X = np.array([0.6, -0.4, 0.3, 0.8, -0.2])
V = np.array([0.5, 1.0, -0.7, 0.2, 0.4])


def index_array_from_a_view(x):
    y = x * 1.0
    y[np.array([0, 3])] = y[1:3]
    y[np.arange(5) % 2 == 0] = y[3]
    return (y**2 * np.arange(1.0, 6.0)).sum()


def sum_whose_tangent_is_a_term(x):
    y = np.sin(x) + x
    m = y[:4].reshape(2, 2)
    rows = np.stack([r * m[-1, 0] for r in m])
    rows.flat[0] = m[0, 0] * 1.0
    s = rows.sum(0)
    z = x[:]
    np.sin(s[0], out=z, where=np.arange(5) % 2 == 0)
    return (x * x).sum() + (rows * 0.3).sum()


def captured_parts_of_a_complex_array(x):
    z = np.zeros(5) + 1j * np.linspace(0.1, 0.5, 5)
    real, imag = z.real, z.imag[1:]

    def h(y):
        real[:2] = y[:2] * 2
        imag[0] = y[0] * y[1]
        return (imag * imag).sum() + (real**3).sum()

    return (tg.grad(h)(x) ** 2).sum() + (real * x).sum() + imag[0]


def fortran_copies(x):
    m = np.sin(x)[:4].reshape(2, 2)
    f, c = np.asfortranarray(m), np.ascontiguousarray(m.T)
    k = np.array(m, order="F")
    m *= m
    return (f * [[1.0, 2.0], [3.0, 4.0]]).sum() + (c * c).sum() + k[0, 1] + m.sum()


def ravel_copies_what_is_not_contiguous(x):
    y = np.sin(x)
    a, b = y[::-1].ravel(), y[::2].ravel()
    y *= y
    return (a * np.arange(5.0)).sum() + (b * b).sum() + y.sum()


def pullback_at_a_read_only_view(x):
    m = x[:4].reshape(2, 2) * 1.0

    def h(z):
        z[1:] += z[:-1]
        return np.sin(z)

    y, back = tg.vjp(h, m.diagonal())
    return (back(y) * np.array([1.0, 2.0])).sum()


def memory_order_of_what_was_broadcast(x):
    y = np.sin(x) + x
    wide = np.broadcast_to(y, (2, 5))
    y += 0.5
    product = wide * 1.0
    flat = product.reshape(-1)
    flat[3] = flat[0] * 2.0
    return (product * np.arange(10.0).reshape(2, 5)).sum()


def real_tangent_of_a_complex_array(x):
    c = np.full(5, 0.25)
    z = x[:2] + 1j * c[:2]
    z.imag *= x[2]
    z.real = x[3]
    return (z.real * z.imag).sum() + x[4] ** 3


def python_complex_times_element(x):
    z = x + 1j * x[0]
    return (z * z.conj()).real.sum()


def broadcast_view_of_the_imaginary_part(x):
    z = x + 1j * np.sin(x)
    z.real[4] = x[0] * 0.5
    imag = z.imag
    wide = np.broadcast_to(imag, (2, 5))
    s = (tg.grad(lambda y: (y * y * y).sum())(imag) ** 2).sum()
    imag *= x[1]
    return (wide * np.arange(10.0).reshape(2, 5)).sum() + s


def value_of_an_inner_pullback_is_written(x):
    work = np.full(4, 0.6)
    part = work[1:]

    def h(z):
        part[1] = z[0] * z[1]
        z[1:] += z[:-1]
        return np.sin(z) * part[0]

    y, back = tg.vjp(h, part * 1.0)  # the array itself would be refused: h writes both
    y[0] = x[0] * 0.5
    first = back(np.sin(x[:3]))
    y[:2] *= first[:2]
    return (y * x[2:]).sum() + (back(y) * first).sum() + work[2]


def contiguous_copy_of_a_strided_view(x):
    ends = x[:4].reshape(2, 2).reshape(-1)[::3]
    kept = np.ascontiguousarray(ends)
    np.sin(x, out=x)
    return (kept * ends * np.array([1.0, 3.0])).sum() + (x**3).sum()


class Quantity:
    """Its array is one that was captured, or that depends on the argument."""

    def __init__(self, a):
        self.a = a

    def __array__(self, dtype=None, copy=None):
        return self.a


def objects_with_arrays(x):
    fixed, own, y = Quantity(np.linspace(0.2, 1.0, 5)), Quantity(x * x), np.zeros(5)
    y[1:] = Quantity(x[:-1])
    return (
        (np.asarray(own) ** 2).sum()
        + np.sum(own) * np.dot(x, fixed)
        + np.sqrt(Quantity(x * x + 1.0)).sum()
        + (y * np.add(own, x)).sum()
    )


def enumerated_elements(x):
    y, s = np.outer(x[:2], x[2:]), np.zeros((2, 3))
    for (i, j), v in np.ndenumerate(y):
        s[i, j] = v * v + i * j * v
    return (s * np.arange(6.0).reshape(2, 3)).sum() + sum([i * v**3 for (i,), v in np.ndenumerate(x)])


PROGRAMS = [
    objects_with_arrays, enumerated_elements,
    index_array_from_a_view, sum_whose_tangent_is_a_term, captured_parts_of_a_complex_array, fortran_copies,
    ravel_copies_what_is_not_contiguous, pullback_at_a_read_only_view, memory_order_of_what_was_broadcast,
    real_tangent_of_a_complex_array, python_complex_times_element, broadcast_view_of_the_imaginary_part,
    value_of_an_inner_pullback_is_written, contiguous_copy_of_a_strided_view,
]  # fmt: skip


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_found(f):
    plain = lambda x: f(x.copy())
    check_first(f, X, differences(plain, X), rtol=1e-8)
    slope = lambda s: (tg.grad(f)(X + s * V) - tg.grad(f)(X - s * V)) / (2 * s)
    check_second(f, X, V, (4 * slope(5e-4) - slope(1e-3)) / 3, rtol=1e-6)


def test_pullback_keeps_no_captured_memory(xp):
    """Views of one captured array: the pullback's records must not see what a later call writes."""
    whole = xp.asfortranarray(xp.full((3, 2), 0.5))
    row = whole[:, 1]

    def f(x):
        row[1:] = row[:-1] * x[0]
        return (whole * x[1]).sum()

    x = xp.array([0.7, 1.3])
    _, pullback = tg.vjp(f, x)
    now = pullback(1.0)
    tg.grad(f)(x * 2)
    close(pullback(1.0), host(now))
    close(now, [1.3 * (0.5 + 0.5), 0.5 * 4 + 0.7 * 1.0])


def test_aliases_in_a_dict_through_two_levels(xp):
    """One entry is rebound, the other is a view of a buffer: it is that view after an inner transform too."""
    buf = xp.full(4, 0.25)
    named = {"a": xp.full(2, 0.3), "b": buf[::2]}
    view = named["b"]

    def f(x):
        buf[...] = 0.25
        named["a"] = named["a"] * 0.0 + 0.3
        named["b"] *= x
        return (named["b"] * named["a"]).sum() + (buf**3).sum()

    x, v = xp.array([0.5, 1.5]), xp.array([1.0, 2.0])
    for _ in range(2):
        check_second(f, x, v, 6 * 0.25**3 * host(x) * host(v), rtol=1e-12)
        assert named["b"] is view
        close(view, 0.25 * host(x))
        close(buf, [0.125, 0.25, 0.375, 0.25])


def test_what_is_appended_to_a_captured_list_is_plain(xp):
    log: list = []

    def f(x):
        log.append(x[1:])
        log.append((x * 2, [x.sum()]))
        return (log[0] ** 2).sum()

    close(tg.grad(f)(xp.array([1.0, 2.0, 3.0])), [0.0, 4.0, 6.0])
    assert type(log[0]) is type(log[1][0]) is type(xp.zeros(1))
    close(log[0], [2.0, 3.0])
    close(log[1][1][0], 6.0)
