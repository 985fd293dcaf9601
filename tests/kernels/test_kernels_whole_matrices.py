"""All that a kernel gives holds for programs whose matrices are kept whole: data, contributions, carries,
scores, special functions."""

import numpy as np
import pytest
import scipy.linalg
import scipy.special

import tapegrad as tg
from tapegrad.kernels.graph.blocks import LIMITS
from tapegrad.ops.declare import PRIMITIVES

pytestmark = pytest.mark.one_in(4)  # its cases compile

N, T = 12, 7
RNG = np.random.default_rng(0)
Y = RNG.normal(size=T)
CENTRE = np.concatenate([0.7 * np.linalg.qr(RNG.normal(size=(N, N)))[0].ravel(), np.log(np.full(N, 0.3))])


def init(theta):
    return np.zeros(N), np.eye(N)


def step(carry, theta, y):
    m, P = carry
    A = theta[: N * N].reshape(N, N)
    m, P = A @ m, A @ P @ A.T + np.diag(np.exp(theta[N * N :]))
    S, v = P[0, 0] + 1.0, y - m[0]
    K = P[:, 0] / S
    return (m + K * v, P - np.outer(K, P[0])), -0.5 * (np.log(S) + v * v / S)


def by_tape(theta, y):
    """The terms and the last carry, by array operations."""
    carry, terms = init(theta), []
    for t in range(len(y)):
        carry, term = step(carry, theta, y[t])
        terms.append(term)
    return tg.numpy.stack(terms), carry


def close(found, expected, tolerance=1e-9):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.fixture(scope="module", params=[0, 1])
def point(request):
    return CENTRE * (1 + 0.05 * np.random.default_rng(request.param).normal(size=CENTRE.shape))


K = tg.kernels.recursion(init, step)


def test_the_matrices_are_kept_whole():
    assert K.lowered(N * N + N, 0).arena > 0


@pytest.mark.long
def test_derivatives_by_the_data(point):
    close(tg.grad(lambda y: K(point, y))(Y), tg.grad(lambda y: by_tape(point, y)[0].sum())(Y))
    w = np.cos(np.arange(T))
    ours = tg.jvp(lambda y: tg.grad(lambda t: K(t, y))(point), (Y,), (w,))[1]
    close(ours, tg.jvp(lambda y: tg.grad(lambda t: by_tape(t, y)[0].sum())(point), (Y,), (w,))[1], 1e-8)


@pytest.mark.long
def test_contributions_carries_and_scores(point):
    w = np.sin(np.arange(T))
    terms, (m, P) = by_tape(point, Y)
    close(K.contributions(point, Y), terms)
    close(
        tg.grad(lambda t: (K.contributions(t, Y) * w).sum())(point),
        tg.grad(lambda t: (by_tape(t, Y)[0] * w).sum())(point),
    )
    for found, expected in zip(K.final(point, Y), (m, P), strict=True):
        close(found, expected)
    close(K.scores(point, Y), tg.jacobian(lambda t: by_tape(t, Y)[0])(point))


def test_missing_data(point):
    holes = Y.copy()
    holes[3] = np.nan
    k = tg.kernels.recursion(init, step, missing="skip")
    for found, expected in zip(
        k.value_and_grad(point, holes), K.value_and_grad(point, np.delete(Y, 3)), strict=True
    ):
        close(found, expected, 1e-12)


LATER = [
    pytest.param(name, marks=pytest.mark.long) for name in ("gammaln", "ndtr", "log_ndtr", "expit", "logit")
]


@pytest.mark.long
@pytest.mark.parametrize("name", ["erf", "digamma", "wrightomega", *LATER])
def test_special_functions(name):
    f = getattr(scipy.special, name)
    a, b = RNG.normal(size=(2, N, N, 2))

    def by_kernel(a):
        B = a @ b_one
        return np.sum(f(B * B + 0.5))

    b_one = b[:, :, 0]
    k = tg.kernels.map(by_kernel)

    def reference(a):
        B = np.einsum("ijk,jl->ilk", a, b_one)
        return f(B * B + 0.5).sum((0, 1))

    close(k(a), reference(a), 1e-12)
    close(tg.grad(lambda a: k(a).sum())(a), tg.grad(lambda a: reference(a).sum())(a))
    close(tg.hvp(lambda a: k(a).sum(), a, a), tg.hvp(lambda a: reference(a).sum(), a, a), 1e-8)


W, I = RNG.normal(size=(N, N)), np.eye(N)
OF_MATRICES = {
    "matmul": lambda a: np.sum(W * (a @ W)),
    "cholesky_lower": lambda a: np.sum(W * np.linalg.cholesky(a + a.T + 9.0 * I)),
    "solve_triangular": lambda a: np.sum(W * scipy.linalg.solve_triangular(a + 4.0 * I, W, lower=True)),
    "solve_matrix": lambda a: np.sum(W * np.linalg.solve(a + 9.0 * I, W)),
    "det": lambda a: np.linalg.det(0.2 * a + I),
    "sign_and_log": lambda a: np.linalg.slogdet(a + 9.0 * I)[1],
}


@pytest.mark.parametrize("name", OF_MATRICES)
def test_derivatives_are_the_rules_of_the_operations(name, monkeypatch):
    """They have no other: where a rule is twice what it was, so is what a kernel gives, forwards and in
    reverse."""
    monkeypatch.setattr(LIMITS, "nodes", -1)  # short programs, too, keep matrices whole
    f, prim, x = OF_MATRICES[name], PRIMITIVES[name].prim, np.random.default_rng(5).normal(size=(N, N))

    def found():
        k = tg.kernels.map(f)
        return tg.grad(lambda x: k(x[..., None]).sum())(x), tg.jvp(
            lambda x: k(x[..., None]).sum(), (x,), (np.cos(x),)
        )[1]

    def doubled(rule):
        def twice(*args, **settings):
            found = rule(*args, **settings)
            return (
                tuple([None if x is None else 2.0 * x for x in found])
                if isinstance(found, tuple)
                else 2.0 * found
            )

        return twice

    gradient, slope = found()
    for _ in range(6):  # from then on the operation has code of its own
        close(gradient, tg.grad(f)(x))
    close(slope, np.sum(gradient * np.cos(x)))
    monkeypatch.setattr(prim, "vjp", tuple([doubled(rule) for rule in prim.vjp]))
    monkeypatch.setattr(prim, "jvp", doubled(prim.jvp))
    for mine, before in zip(found(), (gradient, slope), strict=True):
        close(mine, 2.0 * before)


def test_a_matrix_is_factored_once(monkeypatch):
    """Its transpose, which the rules of solve and slogdet take, is solved with by its factors."""
    monkeypatch.setattr(LIMITS, "nodes", -1)

    def f(a, b):
        return (
            np.sum(W * np.linalg.solve(a, b)) + np.linalg.slogdet(a)[1] + np.sum(W * np.linalg.solve(a.T, b))
        )

    k = tg.kernels.map(f)
    tg.grad(lambda a, b: k(a, b).sum())(9.0 * I[..., None], W[..., None])
    ((family, _),) = k._families.values()
    assert family.program((), 0).g.op.count("lu") == 1


@pytest.mark.long
@pytest.mark.parametrize("k", range(4))
def test_sparse_rows_and_columns(k, monkeypatch):
    """Rows with one element are moved and scaled; the others are multiplied without the zeros."""
    monkeypatch.setattr(LIMITS, "nodes", 0)
    g = np.random.default_rng(k)
    n = 11 + k
    fixed, places = np.zeros((n, n)), np.full((n, n), -1)
    for i in range(n):
        at = g.choice(n, size=g.choice([0, 1, 1, 1, 1, n // 2]), replace=False)
        for j in at:
            if g.random() < 0.3:
                places[i, j] = g.integers(3)
            else:
                fixed[i, j] = g.choice([1.0, 1.0, -1.0, 0.5])
    entries = np.where(places >= 0, places, 3 + np.arange(n * n).reshape(n, n))

    def step(P, theta, y):
        A = np.concatenate([theta, fixed.ravel()])[entries]
        P = A @ P @ A.T / (1 + theta[0] ** 2)
        return P + np.eye(n), np.log((P[0] * P[:, 2]).sum() ** 2 + y * y) + (A.T @ P)[1, 2] * 0.1

    kernel = tg.kernels.recursion(lambda theta: np.diag(np.full(n, theta[1])), step)
    theta, v = g.normal(size=3), g.normal(size=3)
    assert kernel.lowered(3, 0).arena > 0

    def by_array(theta):
        P, total = theta[1] * np.eye(n), 0.0
        for y in Y:
            P, term = step(P, theta, y)
            total = total + term
        return total

    ours = lambda theta: kernel(theta, Y)
    close(ours(theta), by_array(theta))
    close(tg.grad(ours)(theta), tg.grad(by_array)(theta))
    close(tg.hvp(ours, theta, v), tg.hvp(by_array, theta, v), 1e-8)
