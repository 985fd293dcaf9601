"""Python branches in kernel functions: the same function sample by sample is the reference."""

import numpy as np
import pytest
import scipy.integrate
from random_branches import branching_function

import tapegrad as tg
from tapegrad import kernels
from tapegrad.errors import KernelError

X = np.array([0.5, -2.0, -0.5, 3.0, 0.0, np.nan])
Y = np.array([0.3, 1.0, 1.0, 0.1, 2.0, 0.4])


def nested(x, y):
    if x > 0 and y < 1:
        z = x * y
    elif x < -1:
        z = np.log(-x)
    else:
        z = np.sin(y)
    return max(z, 0.2) + z


def written(x, y):
    a = np.zeros(3)
    a[0] = x
    if x > 0:
        a[1] = y**2
        y = y + 1.0
    if not 0.2 < y < 1.5:
        a[2] = np.sqrt(abs(y))
    return {"a": a * y, "s": a.sum()}


def derived(x, y):
    g = tg.grad(lambda v: v**3 if v > y else np.sin(v))(x)
    return g * x if g > 1 else -g


def whole(x, y):
    if np.isnan(x):
        return -np.inf
    return 1.0 if x > y else x


@pytest.mark.parametrize("f", (nested, written, derived, whole))
def test_branches_are_those_of_each_sample(f):
    flat = lambda x, y: np.array([*(r := f(x, y))["a"], r["s"]])
    one = flat if f is written else f
    k = kernels.map(one)
    wanted = np.stack([np.asarray(one(x, y)) for x, y in zip(X, Y, strict=True)], -1)
    np.testing.assert_allclose(k(X, Y), wanted, rtol=1e-14)
    sums = lambda x, y: np.sum(np.where(np.isfinite(x), k(x, y), 0.0))
    for argnum in (0, 1):
        found = tg.grad(sums, argnums=argnum)(X, Y)
        single = tg.grad(lambda x, y: np.sum(one(x, y)), argnums=argnum)
        slopes = [single(x, y) for x, y in zip(X[:-1], Y, strict=False)]
        np.testing.assert_allclose(found[:-1], slopes, rtol=1e-13, atol=1e-300)


def test_the_branch_of_a_likelihood():
    """Huber's loss: the second derivative jumps at the threshold, and is exact on both sides."""

    def huber(theta, y):
        r = (y - theta[0]) / theta[1]
        return -0.5 * r**2 if abs(r) < 1.0 else -(abs(r) - 0.5)

    data, theta = np.linspace(-3, 3, 13), np.array([[0.1, 0.3], [0.7, 1.1]])
    plain = lambda t: sum([huber(t, y) for y in data])
    k = kernels.likelihood(huber)
    np.testing.assert_allclose(k(theta, data), [plain(t) for t in theta.T], rtol=1e-14)
    found = tg.hessian(lambda t: k(t[:, None], data)[0])(theta[:, 1])
    np.testing.assert_allclose(found, tg.hessian(plain)(theta[:, 1]), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "seed", [*range(8), *[pytest.param(k, marks=pytest.mark.long) for k in range(8, 200)]]
)
def test_random_branches(seed):
    """As the function for each sample, or refused for its many paths."""
    f = branching_function(seed)
    x, y = 1.5 * np.random.default_rng(0).normal(size=24), np.random.default_rng(1).normal(size=24)
    k = kernels.map(f)
    try:
        found = k(x, y)
    except KernelError as error:
        assert "32 paths" in str(error) and seed > 7
        return
    np.testing.assert_allclose(found, [f(a, b) for a, b in zip(x, y, strict=True)], rtol=1e-11, atol=1e-12)
    for n in (0, 1):
        one = tg.grad(lambda x, y: 1.0 * f(x, y), argnums=n)
        slopes = [one(a, b) for a, b in zip(x, y, strict=True)]
        found = tg.grad(lambda x, y: np.sum(k(x, y)), argnums=n)(x, y)
        np.testing.assert_allclose(found, slopes, rtol=1e-9, atol=1e-10)


SEEN, LAST = [], {"x": 0.0}


def appends(x):
    if x > 0:
        SEEN.append(1)
        return x
    return x * len(SEEN)


def keeps(x):
    if x > 0:
        LAST["x"] = LAST["x"] + 1.0
    return x * LAST["x"]


class Counter:
    count = 0.0

    def step(self, x):
        if x > 0:
            self.count = self.count + 1.0
            return x
        return x * self.count


def raises(x):
    if x < -5:
        raise ValueError("too small")
    return x


def newton(x):
    while abs(x) > 1e-3:
        x = x / 2.0
    return x


def many(x):
    total = 0.0
    for k in range(6):
        total = total + (1.0 if x > k else x)
    return total


def in_a_loop(x):
    y = kernels.while_loop(lambda c: c < 4.0, lambda c: c * 2.0, x, 50)
    return y if y > 5.0 else -y


@pytest.mark.parametrize(
    ("f", "text"),
    (
        (appends, "changes what it captures"), (keeps, "changes what it captures"),
        (Counter().step, "changes what it captures"), (raises, "ValueError: too small"),
        (newton, "np.where"), (many, "has more than 32 paths"), (in_a_loop, "contains a loop of the kernel"),
        (lambda x: np.stack([x, x]) if x > 0 else x, "shapes"),
    ),
)  # fmt: skip
def test_branches_that_are_refused(f, text):
    with pytest.raises(KernelError, match=text) as caught:
        kernels.map(f)(X)
    assert "test_kernel_branches.py" in str(caught.value)


def pieces(t, y, p):
    """With four derivatives at the ends of the pieces: a jump would magnify rounding in the sizes of steps."""
    dose = p[2] * (t - 1.0) ** 5 * (2.0 - t) ** 5 if 1 <= t < 2 else 0.0
    out = p[0] * y[0]
    if y[0] > 0.1:
        out = out + p[1] * (y[0] - 0.1) ** 5
    return [100.0 * dose - out, out - p[1] * y[1]]


@pytest.mark.parametrize("method", ("RK45", "Radau"))
def test_a_right_hand_side_that_branches_is_a_kernel(method):
    """Under `vmap`, and in a recording: as the calls one by one."""
    times, start = np.linspace(0.5, 5, 9), [0.2, 0.0]

    def loss(p):
        given = {"args": (p,), "rtol": 1e-7, "atol": 1e-9}
        y = scipy.integrate.solve_ivp(pieces, (0, 5), start, method, times, **given).y
        return (y[1] ** 2).sum() + y[0, 3]

    points = np.array([1.0, 0.3, 2.0]) * np.linspace(0.9, 1.1, 70)[:, None]
    wanted = [tg.grad(loss)(p) for p in points[::23]]
    np.testing.assert_allclose(tg.vmap(tg.grad(loss))(points)[::23], wanted, rtol=1e-8, atol=1e-8)
    p = tg.prepare(loss, points[0])
    np.testing.assert_allclose([p.grad(x) for x in points[::23]], wanted, rtol=1e-8, atol=1e-8)
    assert "run as it is" not in p.report()
