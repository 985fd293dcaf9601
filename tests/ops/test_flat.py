"""x.flat as NumPy has it: an iterator, places in C order, an array beside functions; read and written."""

import numpy as np
import pytest

import tapegrad as tg

pytestmark = pytest.mark.smoke

A = np.array([[1.3, -0.4, 2.0], [0.7, 1.9, -1.1]])
CAPTURED = np.linspace(1.0, 2.0, 6).reshape(3, 2)


def assigned(a):
    b = np.zeros((3, 2))
    b.flat = a.flat
    return (b * CAPTURED.flat[3]).sum() * b[1, 0]


def written(a):
    b = np.zeros(6)
    b[:] = a.flat
    b[1:4] *= a.flat[[0, 5, 2]]
    return (b * CAPTURED.ravel()).sum()


def by_places(a):
    a.flat[2] = a.flat[0] ** 2
    a.flat[::2] *= 2
    a.flat[[1, 3]] = a.flat[4:6]
    return (a**2).sum()


def stepped(a):
    it, total = a.flat, 0.0
    first = next(it)
    for v in it:
        total = total + v * it.index + it.coords[0]
    return total * first


def functions(a):
    return (
        np.sum(a.flat) * np.max(a.flat)
        + np.dot(a.flat, CAPTURED.flat)
        + np.sin(a.flat).sum()
        + np.add(a.flat, 1.0)[2] ** 2
    )


def arrays(a):
    return (np.array(a.flat) * np.asarray(CAPTURED.flat)).sum() * np.concatenate([a.flat, a.flat])[
        7
    ] + a.flat.copy()[1] ** 2


def members(a):
    it = a.flat
    return (
        sum(k * v for k, v in enumerate(it))
        + max(a.flat) ** 2
        + it.base[0, 1]
        + np.fromiter(a.flat, float)[5] ** 3
    )


@pytest.mark.parametrize("f", [assigned, written, by_places, stepped, functions, arrays, members])
@pytest.mark.parametrize("order", ["C", "F"])
def test_derivatives(f, order):
    a, h, before = A.copy(order), 1e-6, CAPTURED.copy()
    want = np.array([(f(a + h * e) - f(a - h * e)) / (2 * h) for e in np.eye(6).reshape(6, 2, 3)]).reshape(
        2, 3
    )
    np.testing.assert_allclose(tg.value_and_grad(f)(a)[0], f(a.copy()), rtol=1e-14)
    np.testing.assert_allclose(tg.grad(f)(a), want, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(np.stack([a, a * 1.01]))[0], want, rtol=1e-7, atol=1e-8)
    p = tg.prepare(f, a * 1.02)
    for x in (a * 1.02, a * 1.01, a):
        np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), rtol=1e-12)
    np.testing.assert_array_equal(CAPTURED, before)


def test_steps_are_those_of_numpy():
    def steps(a):
        it = a.flat
        found = [(it.index, it.coords)]
        for _ in it:
            found.append((it.index, it.coords))
        return found, it is iter(it), len(it)

    for a in (A, A.T, np.zeros((2, 1, 3)), A[0]):
        seen = []
        tg.grad(lambda x, seen=seen: (seen.append(steps(x)), (x * x).sum())[1])(a)
        assert seen == [steps(a)]


def test_of_a_number_and_at_the_end():
    def f(x):
        it = np.array(x).flat
        assert len(it) == 1 and it.coords == () and it.index == 0
        y = next(it)
        with pytest.raises(StopIteration):
            next(it)
        return y * y

    assert tg.grad(f)(3.0) == 6.0
