"""Programs at zeros, ties and ends of domains: a recording, each of its replays and `vmap` give what an eager
call gives, where a second sweep gave it, too."""

import random

import numpy as np
import pytest
import scipy.special

import tapegrad as tg

STEPS = (
    lambda x, y: np.abs(x),
    lambda x, y: np.sqrt(x**2) + y,
    lambda x, y: np.sqrt(abs(x)) * y,
    lambda x, y: np.maximum(x, y),
    lambda x, y: np.clip(x, -0.5, y),
    lambda x, y: np.where(x > 0, x * np.log(np.where(x > 0, x, 1)), 0),
    lambda x, y: scipy.special.xlogy(x, x) + y,
    lambda x, y: scipy.special.entr(abs(x)) * y,
    lambda x, y: scipy.special.rel_entr(abs(x), abs(y)),
    lambda x, y: np.linalg.norm(x) * y,
    lambda x, y: np.hypot(x, y),
    lambda x, y: x * y,
    lambda x, y: x - y,
    lambda x, y: x / (1e-300 + abs(x).sum()),
    lambda x, y: np.sign(x) * y,
    lambda x, y: abs(x) ** 1.5 + y,
    lambda x, y: np.power(abs(x), abs(y)),
    lambda x, y: np.sort(x) * y,
    lambda x, y: np.prod(x) + y,
    lambda x, y: np.max(x) * y,
    lambda x, y: np.std(x) + y,
    lambda x, y: x[y >= 0].sum() + y,
    lambda x, y: np.nansum(x / x * y) + x,
    lambda x, y: np.select([x < 0, x == 0], [y, x * 2], x**2),
    lambda x, y: scipy.special.elliprf(x**2, 1, 2),
    lambda x, y: np.interp(x, [-1, 0, 1], [0.5, 0, 2]) * y,
    lambda x, y: np.abs(x + 1j * y),
)
V = np.array([1.0, -0.5, 2.0])


def shares(x):
    """The entropy of the shares of x."""
    return scipy.special.entr(x / x.sum()).sum()


def roots(x):
    return np.sqrt(x**2) @ np.cos(np.arange(len(x)))


def drawn(seed):
    rng = random.Random(seed)
    steps = [(rng.choice(STEPS), rng.random() < 0.5) for _ in range(rng.randint(1, 4))]

    def f(x):
        y = x
        for step, mirrored in steps:
            y = step(y, x[::-1] if mirrored else x)
        return np.sum(y * np.cos(np.arange(len(x))))

    points = [np.array(rng.choices([0.0, -0.0, 1.0, -1.0, 0.5, 2.0], k=3)) for _ in range(2)]
    return f, [*points, np.array([0.3, -0.7, 0.9])]


def check(f, points, message=""):
    with np.errstate(all="ignore"):
        gradients, products = [tg.grad(f)(x) for x in points], [tg.hvp(f, x, V) for x in points]
        for first in (0, len(points) - 1):
            p = tg.prepare(f, points[first])
            for k in (first, *range(len(points)), 0, 0):
                np.testing.assert_allclose(p.grad(points[k]), gradients[k], 1e-7, 1e-9, err_msg=message)
                np.testing.assert_allclose(p.hvp(points[k], V), products[k], 1e-6, 1e-9, err_msg=message)
        found = tg.vmap(tg.grad(f))(np.stack(points))
        np.testing.assert_allclose(found, gradients, 1e-7, 1e-9, err_msg=message)


@pytest.mark.filterwarnings("ignore")
def test_a_share_of_zero():
    """The derivatives by the other shares are finite, in the first call of a prepared function, too."""
    x = np.array([0.0, 0.4, 0.6])
    found = np.array([np.inf, *(scipy.special.entr(x[1:]).sum() + np.log(x[1:])) * -1.0])
    for g in (tg.prepare(shares, x).grad, lambda x: tg.vmap(tg.grad(shares))(x[None])[0]):
        np.testing.assert_allclose(g(x), found, 1e-12)
    check(shares, [x, np.array([0.2, 0.0, 0.8]), np.array([0.2, 0.3, 0.5])])


@pytest.mark.filterwarnings("ignore")
def test_a_product_that_is_infinite_where_the_gradient_is_another():
    """(The gradient of the first sweep is nan there, and no result of the program.)"""
    with np.errstate(all="ignore"):  # (else a warning leads to a plain call)
        p = tg.prepare(roots, np.ones(2))
        for x in (1.0, 2.0, 3.0):
            p.hvp(np.array([x, 0.3]), V[:2])
        np.testing.assert_array_equal(p.hvp(np.array([0.0, 0.3]), V[:2]), np.zeros(2))
        q = tg.prepare(lambda x: np.sqrt(x**2) * 0.5, 1.0)
        assert [float(q.hvp(x, 2.0)) for x in (1.0, 2.0, 0.0)] == [0.0, 0.0, 0.0]


@pytest.mark.filterwarnings("ignore")
def test_an_infinite_second_derivative_beside_an_undefined_one():
    """f(x) = (x log x)**2 / 2 + ... has f'(0) = 0 and f''(0) = inf, whatever the other numbers are."""
    f = lambda x: scipy.special.pseudo_huber(1.0, scipy.special.entr(x)).sum()
    x = np.array([0.0, -0.5])  # the entropy of a negative number is -inf
    for product in (tg.prepare(f, -np.ones(2)).hvp, lambda x, v: tg.hvp(f, x, v)):
        product(np.array([-1.0, -2.0]), V[:2])
        np.testing.assert_array_equal(product(x, V[:2]), [np.inf, np.nan])
    stack = np.array([[0.0, 0.3], [-0.5, 0.3]])
    np.testing.assert_array_equal(tg.vmap(lambda x: tg.hvp(f, x, V[:2]))(stack)[:, 0], [np.inf, np.nan])


@pytest.mark.filterwarnings("ignore")
def test_random_programs_at_corners():
    for seed in range(12):
        check(*drawn(seed), message=f"seed {seed}")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_many_random_programs_at_corners():
    for seed in range(1000, 1500):
        check(*drawn(seed), message=f"seed {seed}")
