"""Programs whose adjoints take short ways, A P A' as a whole and carries made of data alone, against the
array tape."""

import numpy as np
import pytest
from comparison import close

import tapegrad as tg

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(2, 7))


def square(theta):
    return theta[:9].reshape(3, 3)


def companion(theta):
    A = np.zeros((3, 3))
    A[0], A[1, 0], A[2, 1] = theta[:3], 1.0, 1.0
    return A


def alike(theta):
    """Rows that are the same, and one of zeros."""
    A = np.zeros((3, 3))
    A[0], A[1] = theta[:3], theta[:3]
    return A


def growing(theta):
    """Each row has what the row before it has, and more: partial sums of one element are another."""
    A = np.zeros((3, 3))
    A[0, 0], A[1, :2], A[2] = theta[0], theta[:2], theta[:3]
    return A


def wide(theta):
    return theta[:6].reshape(2, 3)


def all_elements(N, theta):
    return N


def with_its_user(N, theta):
    """An element is used by what another element is added to."""
    return N + np.outer(N[0], N[0]) * theta[9]


MATRICES = [square, companion, alike, growing]
USES = {
    "all": lambda N: np.sum(np.sin(N)),
    "diagonal": lambda N: np.sum(np.sin(np.diag(N))),
    "corner": lambda N: np.sin(N[0, 1]),
    "products": lambda N: N[0, 0] * N[1, 0] + np.sin(N[1, 1] * N[0, 0]),
}


def model(matrix, after, use):
    def init(theta):
        return np.eye(3) * 0.5 + 0.1 * theta[9]

    def step(P, theta, y):
        A = matrix(theta)
        N = after(A @ P @ A.T, theta)
        return 0.4 * N + np.diag(np.exp(0.1 * theta[9:12])), use(N) * y[0] + y[1]

    return init, step


def by_tape(init, step, theta, data):
    carry, total = init(theta), 0.0
    for t in range(data.shape[1]):
        carry, term = step(carry, theta, data[:, t])
        total = total + term
    return total


@pytest.mark.one_in(7)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("after", [with_its_user, pytest.param(all_elements, marks=pytest.mark.long)])
@pytest.mark.parametrize("matrix", MATRICES)
def test_congruences(matrix, after, use):
    init, step = model(matrix, after, USES[use])
    k = tg.kernels.recursion(init, step)
    theta = 0.5 * np.random.default_rng(1).normal(size=(12, 3))
    value, gradient = k.value_and_grad(theta, Y)
    v = np.random.default_rng(2).normal(size=theta.shape)
    product = k.hvp(theta, v, Y)
    for b in range(3):
        f = lambda th: by_tape(init, step, th, Y)
        expected, slope = tg.value_and_grad(f)(theta[:, b])
        close(value[b], expected)
        close(gradient[:, b], slope)
        close(product[:, b], tg.hvp(f, theta[:, b], v[:, b]), 1e-11)
    found = tg.grad(lambda y: k(theta, y).sum())(Y)
    close(found, tg.grad(lambda y: sum([by_tape(init, step, theta[:, b], y) for b in range(3)]))(Y), 1e-11)


def test_congruences_of_congruences():
    """A product in the middle of another one, and one that is no square matrix of the carry."""

    def f(theta, x):
        A, C = theta[:9].reshape(3, 3), theta[9:15].reshape(2, 3)
        P = A @ (np.eye(3) * x[0]) @ A.T + np.eye(3)
        S = C @ (A @ P @ A.T) @ C.T
        return np.sin(S[0, 0]) + S[0, 1] * x[1] + np.cos(S[1, 1]) * P[2, 0]

    k, theta = tg.kernels.likelihood(f), 0.5 * np.random.default_rng(3).normal(size=(15, 2))
    gradient = k.grad(theta, Y)
    for b in range(2):
        close(gradient[:, b], tg.grad(lambda th: sum([f(th, Y[:, t]) for t in range(7)]))(theta[:, b]))


def test_elements_that_are_those_of_the_middle():
    """Rows that select and add up: elements of the product are elements of the other matrix."""

    def f(theta, x):
        B, A = theta.reshape(2, 2), np.array([[1.0, 0.0], [1.0, 1.0]])
        P = B @ np.array([[2.0, 0.5], [0.5, 1.0]]) @ B.T + np.eye(2) * x[0]
        N = A @ P @ A.T
        M = A.T @ N @ A
        return np.sin(N[0, 0]) + N[0, 1] * x[1] + np.cos(N[1, 1]) + np.sum(np.sin(M)) * P[0, 1]

    k, theta = tg.kernels.likelihood(f), 0.5 * np.random.default_rng(6).normal(size=(4, 3))
    gradient = k.grad(theta, Y)
    for b in range(3):
        close(gradient[:, b], tg.grad(lambda th: sum([f(th, Y[:, t]) for t in range(7)]))(theta[:, b]))


@pytest.mark.parametrize("inverse", [1.0, -1.0, 0.5])
def test_congruences_of_an_inverse(inverse):
    """Of the inverse in the middle a sign or a factor is pulled out; and a filter whose program is numbered
    anew."""

    def init(theta):
        return np.zeros(2), np.eye(2)

    def step(carry, theta, y):
        m, P = carry
        A, h = theta[:4].reshape(2, 2), np.array([[1.0, 0.3], [-0.2, 1.0]])
        m, P = A @ m, A @ P @ A.T + np.diag(np.exp(theta[4:6]))
        v, PH = y - h @ m, P @ h.T
        S = h @ PH + np.eye(2)
        det = S[0, 0] * S[1, 1] - S[0, 1] * S[0, 1]
        Si = inverse * np.array([[S[1, 1], -S[0, 1]], [-S[0, 1], S[0, 0]]]) / det
        return (m + PH @ Si @ v, P - PH @ Si @ PH.T), -0.5 * (np.log(det) + v @ Si @ v)

    k, theta = tg.kernels.recursion(init, step), 0.3 * np.random.default_rng(5).normal(size=(6, 3))
    value, gradient = k.value_and_grad(theta, Y)
    for b in range(3):
        expected, slope = tg.value_and_grad(lambda th: by_tape(init, step, th, Y))(theta[:, b])
        close(value[b], expected)
        close(gradient[:, b], slope)


def test_half_of_the_products():
    """Eight states: a dense product's adjoint by its single elements would take 2,112 multiplications."""

    def step(P, theta, y):
        A = theta.reshape(8, 8)
        N = A @ P @ A.T
        return N, np.sum(N)

    low = tg.kernels.recursion(lambda theta: np.eye(8), step).lowered(64, 0)
    code = [op for _, op, _ in low.bodies[1].code]
    assert sum([op in ("mul", "fma", "fms", "fnma") for op in code]) < 1500


@pytest.mark.parametrize("also", [False, True])
def test_a_carry_made_of_data_alone(also):
    """The last two data, and with `also` a number that depends on theta beside them."""

    def init(theta):
        return np.zeros(2), 0.0, theta[0] if also else 0.0

    def step(carry, theta, y):
        lags, count, level = carry
        e = np.where(count < 2, 0.0, y[0] - theta[1:] @ lags) * np.exp(theta[0]) - level
        return (np.stack([y[0], lags[0]]), count + 1.0, 0.5 * level), -e * e

    k, theta = tg.kernels.recursion(init, step), np.random.default_rng(4).normal(size=(3, 4))
    data = Y[:1]
    low = k.lowered(3, 1)
    assert len(low.bodies) == 1 + also, "a sweep back only where something is to be swept"
    gradient, v = k.grad(theta, data), np.ones_like(theta)
    product, W = k.hvp(theta, v, data), np.arange(1.0, 5.0)
    for b in range(4):
        f = lambda th: by_tape(init, step, th, data)
        close(gradient[:, b], tg.grad(f)(theta[:, b]))
        close(product[:, b], tg.hvp(f, theta[:, b], v[:, b]), 1e-11)
    found = tg.grad(lambda y: (W * k(theta, y)).sum())(data)
    close(found, tg.grad(lambda y: sum([W[b] * by_tape(init, step, theta[:, b], y) for b in range(4)]))(data))
    mixed = tg.jvp(lambda y: k.grad(theta, y), (data,), (np.ones_like(data),))[1]
    h = 1e-6
    close(mixed, (k.grad(theta, data + h) - k.grad(theta, data - h)) / (2 * h), 1e-7)


def test_steps_that_look_for_nan_with_and_without_it():
    """Where no datum is nan, isnan is false while tracing; what is shown of a program holds for all data."""

    def step(m, theta, y):
        here = ~np.isnan(y)
        e = np.where(here, y, 0.0) - m
        return theta[0] * np.where(here, y, m), np.where(here, -e * e, 0.0)

    def reference(theta, data):
        m, total = 0.0, 0.0
        for y in data:
            if y == y:
                total, m = total - (y - m) ** 2, y
            m = theta[0] * m
        return total

    k = tg.kernels.recursion(lambda theta: 0.0, step, missing="step")
    holes = Y[0].copy()
    holes[[1, 4]] = np.nan
    theta = np.array([[0.3, -0.6]])
    for data in (Y[0], holes, Y[0]):
        close(k(theta, data), [reference(theta[:, b], data) for b in range(2)])
    assert any(op == "isnan" for _, op, _ in k.lowered(1, 0).bodies[0].code)
    inside = k._family.launcher("F", 0, (1, 0, False), np.dtype(float), False).low
    assert not any(op in ("isnan", "select") for _, op, _ in inside.bodies[0].code)


def element(theta, at, kind, factor):
    """What may stand in a matrix: constants, parameters, and multiples, functions and branches of them."""
    x = theta[at]
    return [0.0, 1.0, x, factor * x, np.sin(x), np.where(x > 0, factor * x, 0.0)][kind]


def random_program(rng):
    """init, step and the number of parameters of a recursion that takes a few products A N A' one after the
    other."""
    k, p = int(rng.integers(2, 4)), int(rng.integers(2, 6))
    at, kinds = rng.integers(0, p, size=(3, k, k)), rng.integers(0, 6, size=(3, k, k))
    factors, choices = rng.choice([1.0, -1.0, 0.5], size=(3, k, k)), rng.integers(0, 6, size=4)

    def matrix(theta, n):
        M = np.zeros((k, k))
        for i, j in np.ndindex(k, k):
            M[i, j] = element(theta, at[n, i, j], kinds[n, i, j], factors[n, i, j])
        return M

    def chained(N, A, B, theta, y):
        total = 0.0
        for choice in choices:
            if choice == 0:
                N = A @ N @ A.T
            elif choice == 1:
                N = B @ N @ B.T + np.diag(np.exp(theta[0] * np.ones(k)))
            elif choice == 2:
                N = N - np.outer(N[0], N[0]) / (2.0 + N[0, 0] ** 2)
            elif choice == 3:
                chosen = np.where(theta[0] > 0.1, A, B)
                N = chosen @ N @ chosen.T
            elif choice == 4:
                N = A @ (factors[0, 0, 0] * N / (1 + y[1] ** 2)) @ A.T
            else:
                N = B.T @ N @ B + N
            total = total + np.sin(N[0, k - 1]) * y[1]
        return total + np.sum(np.sin(N))

    def init(theta):
        return np.eye(k) * 0.3 + theta[0] * 0.1

    def step(P, theta, y):
        A, B, C = [matrix(theta, n) for n in range(3)]
        N = A @ P @ A.T
        term = (
            chained(0.5 * (C + C.T) + np.eye(k) * y[0], A, B, theta, y)
            + np.sum(np.cos(N)) * y[1]
            + 0.01 * np.sum(theta)
        )
        return 0.3 * N + np.eye(k) * y[0] * 0.1, term

    return init, step, p


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "seed", [*range(3), *[pytest.param(n, marks=pytest.mark.long) for n in range(3, 300)]]
)
def test_random_programs(seed):
    rng = np.random.default_rng(seed)
    init, step, p = random_program(rng)
    k, theta = tg.kernels.recursion(init, step), 0.6 * rng.normal(size=(p, 2))
    value, gradient = k.value_and_grad(theta, Y[:, :4])
    for b in range(2):
        expected, slope = tg.value_and_grad(lambda th: by_tape(init, step, th, Y[:, :4]))(theta[:, b])
        close(value[b], expected, 1e-11)
        close(gradient[:, b], slope, 1e-10)


GAINS = {
    "a gain of 0": lambda M, F, here: M * np.where(here, 1.0 / F, 0.0),
    "an infinite variance": lambda M, F, here: M / np.where(here, F, np.inf),
    "a choice of vectors": lambda M, F, here: np.where(np.isnan(F) | ~here, 0.0, M) / F,
}


@pytest.mark.parametrize("gain", GAINS)
def test_a_covariance_stays_one_triangle_where_data_are_missing(gain):
    """The carry is the mean and one triangle; value and gradient are those of the array tape."""

    def start(theta):
        return np.zeros(3), np.eye(3) * theta[9]

    def step(carry, theta, y):
        a, P = carry
        A, here = theta[:9].reshape(3, 3), ~np.isnan(y)
        M, F, v = P[:, 0], P[0, 0] + 1.0, np.where(here, y, 0.0) - a[0]
        K = GAINS[gain](M, F, here)
        P = A @ (P - np.outer(K, M)) @ A.T + np.eye(3)
        term = np.where(here, -0.5 * (np.log(F) + v * v / F), 0.0)
        return (A @ (a + K * np.where(here, v, 0.0)), P), term

    theta, y = np.append(0.5 * RNG.normal(size=9), 0.7), RNG.normal(size=9)
    y[[0, 4, 8]] = np.nan
    k = tg.kernels.recursion(start, step, missing="step")
    assert len(k.lowered(10, 0, "VG").loops[0].carry) == 3 + 6

    def plain(theta):
        carry, total = start(theta), 0.0
        for datum in y:
            carry, term = step(carry, theta, datum)
            total = total + term
        return total

    for found, wanted in zip(k.value_and_grad(theta, y), tg.value_and_grad(plain)(theta), strict=True):
        close(found, wanted, 1e-12)


@pytest.mark.parametrize("states", [1, 4, 8])
def test_the_library_filter_carries_a_mean_and_one_triangle(states):
    n = states
    M = tg.kernels.kalman.Model(np.eye(n), np.ones(n), np.eye(n), np.ones(2), np.zeros(n), np.eye(n))
    call = tg.kernels.kalman.loglik._packed(M, np.ones(5), True)
    low = tg.kernels.kalman.loglik.kernel(call).lowered(len(call.theta), 1, "VG")
    assert len(low.loops[0].carry) == n * (n + 3) // 2
