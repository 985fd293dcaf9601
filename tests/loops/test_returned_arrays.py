"""Functions that return arguments, chosen by swapped names or by a condition, and what callers then write to
them.

The reference is the Python function itself, with a complex step."""

import numpy as np
import pytest
from numba import njit

import tapegrad as tg
from tapegrad.errors import BatchError


def swapped(u, new, steps):
    for _ in range(steps):
        for i in range(1, u.shape[0] - 1):
            new[i] = u[i] + 0.05 * u[i] * (u[i + 1] - 2.0 * u[i] + u[i - 1])
        u, new = new, u
    return u


def both(u, new, steps):
    for _ in range(steps):
        new[1] = u[0] * u[2]
        u, new = new, u
    return new, u


def part(u, new, steps):
    for _ in range(steps):
        new[2] = u[0] * u[2]
        u, new = new, u
    return u[1:]


def own(u, new, steps):
    new = u.copy()
    for _ in range(steps):
        new[1] = u[0] * u[2]
        u, new = new, u
    return u


def chosen(u, new, steps):
    w = u if steps % 2 == 0 else new
    for i in range(w.shape[0]):
        w[i] *= 2.0
    return w


def twice(u, new, steps):
    y = 0.0 * u
    for i in range(u.shape[0]):
        y[i] = u[i] * new[i] ** steps
    return y, y


def overlapping(u, new, steps):
    y = 0.0 * u
    for i in range(u.shape[0]):
        y[i] = u[i] * new[i] ** steps
    return y, y[1:]


def user(f, steps):
    """A program that writes to what f returns, and reads its arguments afterwards."""

    def loss(x):
        a, b = x.copy(), 2.0 * x
        found = f(a, b, steps)
        y, z = found if isinstance(found, tuple) else (found, a)
        y[1] = 3.0 * x[4]
        z[2] *= x[3]
        more = f(b, a, 2)
        more = more[0] if isinstance(more, tuple) else more
        return np.sum(a * a * b) + np.sum(y * y) * z[2] + np.sum(more * more)

    return loss


FUNCTIONS = [swapped, both, part, own, chosen, twice, overlapping]
X = np.random.default_rng(4).uniform(0.3, 1.2, 6)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("steps", [3, 4])
@pytest.mark.parametrize("python", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_is_returned_is_the_argument(python, steps):
    want, loss = user(python, steps), user(njit(python), steps)
    value, gradient = tg.value_and_grad(loss)(X)
    np.testing.assert_allclose(value, want(X), rtol=1e-13)
    slopes = [want(X + 1e-30j * e).imag / 1e-30 for e in np.eye(6)]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-12)
    np.testing.assert_allclose(tg.vmap(tg.grad(loss))(np.stack([X, X]))[1], slopes, rtol=1e-12)
    np.testing.assert_allclose(tg.prepare(loss, 1.1 * X).grad(X), slopes, rtol=1e-12)


@njit
def larger(u, v):
    s = 0.0
    for i in range(u.shape[0]):
        s += u[i]
    w = u
    if s > 3.0:
        w = v
    w[0] = s
    return w


def test_samples_that_return_different_arguments():
    def loss(x):
        a, b = x.copy(), 2.0 * x
        y = larger(a, b)
        y[1] = 0.5
        return np.sum(a * b)

    samples = np.stack([0.1 * X, 2.0 * X])
    with pytest.raises(BatchError, match="differs between samples"):
        tg.vmap(loss)(samples)
    alike = samples[[1, 1]]
    np.testing.assert_allclose(tg.vmap(loss)(alike), [loss(x) for x in alike], rtol=1e-13)
