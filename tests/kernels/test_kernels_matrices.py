"""Kernels with large matrices: kept whole and emitted as loops.  Filters of 12 and 20 states against the array tape, small models and
random programs against the unrolled code, linear algebra against NumPy, CUDA C against the CPU bit for
bit."""

import os
import re
import shutil
import tempfile

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from _cuda_host import run_on_host
from comparison import close
from kernel_programs import random_program
from kernel_recursions import MODELS, summed

import tapegrad as tg
from tapegrad.errors import KernelError
from tapegrad.kernels import emit_cuda
from tapegrad.kernels.graph.blocks import LIMITS
from tapegrad.kernels.launch.cpu import Launcher
from tapegrad.kernels.launch.cuda import cubin

pytestmark = pytest.mark.one_in(4)  # its cases compile

os.environ.setdefault("TAPEGRAD_CACHE", tempfile.mkdtemp())
kernels = tg.kernels
LOG2PI = np.log(2 * np.pi)


def limits(monkeypatch, elements, row, products):
    monkeypatch.setattr(LIMITS, "elements", elements)
    monkeypatch.setattr(LIMITS, "row", row)
    monkeypatch.setattr(LIMITS, "products", products)


@pytest.fixture
def whole(monkeypatch):
    """All arrays of more than one element are blocks."""
    limits(monkeypatch, 1, 1, 1)


@pytest.fixture(autouse=True)
def long_form(monkeypatch):
    """Short programs, too, keep arrays of more than 64 elements whole."""
    monkeypatch.setattr(LIMITS, "nodes", -1)


# --- Kalman filters ---


def kalman(n, d, gain, start=None):
    rng = np.random.default_rng(n + d)
    H = rng.normal(size=(d, n))

    def init(theta):
        return np.zeros(n), np.eye(n)

    def step(carry, theta, y):
        m, P = carry
        A = theta[: n * n].reshape(n, n)
        m, P = A @ m, A @ P @ A.T + np.diag(np.exp(theta[n * n : n * n + n]))
        v, PH = y - H @ m, P @ H.T
        S = H @ PH + np.exp(theta[-1]) * np.eye(d)
        if gain == "inv":
            inverse = np.linalg.inv(S)
            K, terms = PH @ inverse, np.linalg.slogdet(S)[1] + v @ inverse @ v
        elif gain == "solve":
            K, terms = np.linalg.solve(S, PH.T).T, np.log(np.linalg.det(S)) + v @ np.linalg.solve(S, v)
        else:
            L = np.linalg.cholesky(S)
            z = scipy.linalg.solve_triangular(L, v, lower=True)
            K, terms = scipy.linalg.cho_solve((L, True), PH.T).T, 2 * np.sum(np.log(np.diag(L))) + z @ z
        P = P - K @ PH.T
        return (m + K @ v, 0.5 * (P + P.T)), -0.5 * (terms + d * LOG2PI)

    A = 0.8 * np.linalg.qr(rng.normal(size=(n, n)))[0]
    theta = np.concatenate([A.ravel(), np.log(np.full(n, 0.3)), [np.log(0.5)]])
    return init, step, theta, rng.normal(size=(d, 5))


FILTERS = [
    (12, 1, "inv"),
    (12, 2, "solve"),
    (12, 3, "cholesky"),
    (12, 12, "inv"),
    (20, 10, "cholesky"),
    (20, 12, "solve"),
    (20, 2, "inv"),
]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("n, d, gain", FILTERS)
def test_filters_against_the_array_tape(n, d, gain):
    init, step, theta, data = kalman(n, d, gain)
    k, f = kernels.recursion(init, step), summed(init, step)
    rng = np.random.default_rng(0)
    many = theta[:, None] + 0.01 * rng.normal(size=(theta.size, 9))
    value, gradient = k.value_and_grad(many, data)
    close(k(many, data), value)
    for b in (0, 8):
        expected, slope = tg.value_and_grad(f)(many[:, b].copy(), tg.Const(data))
        close(value[b], expected)
        close(gradient[:, b], slope, 1e-11)
        one, slope = k.value_and_grad(many[:, b].copy(), data)  # the scalar form
        assert one == value[b] and np.array_equal(slope, gradient[:, b])
    v = rng.normal(size=theta.size)
    close(k.hvp(theta, v, data), tg.hvp(lambda th: f(th, data), theta, v), 1e-10)


def test_a_filter_against_the_joint_density():
    """The data of a linear Gaussian model are jointly normal."""
    n, d = 12, 3
    init, step, theta, data = kalman(n, d, "cholesky")
    H, A = np.random.default_rng(n + d).normal(size=(d, n)), theta[: n * n].reshape(n, n)
    Q, R = np.diag(np.exp(theta[n * n : -1])), np.exp(theta[-1]) * np.eye(d)
    steps = data.shape[1]
    variance, blocks = [np.eye(n)], np.zeros((steps, d, steps, d))
    for t in range(steps):
        variance.append(A @ variance[-1] @ A.T + Q)
        for s in range(t + 1):
            cross = H @ np.linalg.matrix_power(A, t - s) @ variance[s + 1] @ H.T + (R if s == t else 0)
            blocks[t, :, s], blocks[s, :, t] = cross, cross.T
    joint = scipy.stats.multivariate_normal(np.zeros(steps * d), blocks.reshape(steps * d, steps * d))
    close(kernels.recursion(init, step)(theta, data), joint.logpdf(data.T.ravel()), 1e-11)


def test_third_derivative_of_a_filter():
    init, step, theta, data = kalman(12, 2, "inv")
    k = kernels.recursion(init, step)
    u, v = np.random.default_rng(1).normal(size=(2, theta.size)) * 0.1
    third = tg.jvp(lambda t: k.hvp(t, v, data), (theta,), (u,))[1]
    h = 1e-5
    differences = (k.hvp(theta + h * u, v, data) - k.hvp(theta - h * u, v, data)) / (2 * h)
    np.testing.assert_allclose(third, differences, rtol=1e-6, atol=1e-7 * np.abs(differences).max())


def test_float32_filter():
    init, step, theta, data = kalman(12, 2, "inv")
    k = kernels.recursion(init, step)
    value, gradient = k.value_and_grad(theta, data)
    small, slope = k.value_and_grad(theta.astype(np.float32), data.astype(np.float32))
    assert slope.dtype == np.float32
    np.testing.assert_allclose(small, value, rtol=1e-5)
    np.testing.assert_allclose(slope, gradient, atol=1e-4 * np.abs(gradient).max())


def test_missing_data_with_matrices():
    init, step, theta, data = kalman(12, 2, "inv")

    def unseen(carry, theta):
        m, P = carry
        A = theta[:144].reshape(12, 12)
        return A @ m, A @ P @ A.T + np.diag(np.exp(theta[144:156]))

    holes = data.copy()
    holes[0, 2] = np.nan
    k = kernels.recursion(init, step, missing=unseen)

    def by_hand(theta):
        carry, total = init(theta), 0.0
        for t in range(holes.shape[1]):
            if t == 2:
                carry = unseen(carry, theta)
                continue
            carry, term = step(carry, theta, holes[:, t])
            total = total + term
        return total

    value, gradient = k.value_and_grad(theta, holes)
    expected, slope = tg.value_and_grad(by_hand)(theta.copy())
    close(value, expected)
    close(gradient, slope, 1e-11)


# --- size of what is made ---


def test_code_and_workspace_do_not_grow_with_the_cube():
    sizes = {}
    for n in (12, 20, 40):
        init, step, theta, data = kalman(n, 2, "inv")
        low = kernels.recursion(init, step).lowered(theta.size, 2)
        source, _, _ = emit_cuda(low)
        sizes[n] = low.instructions, len(source), low.arena / n**2
    assert sizes[40][0] < 1.2 * sizes[12][0] and sizes[40][1] < 1.5 * sizes[12][1]
    assert max(arena for _, _, arena in sizes.values()) < 40


def structural():
    """Trend and monthly season: 13 states, few of the transition's elements are not 0."""
    F, Z = np.zeros((13, 13)), np.zeros(13)
    F[0, :2], F[1, 1], F[2, 2:], Z[0], Z[2] = 1.0, 1.0, -1.0, 1.0, 1.0
    F[np.arange(3, 13), np.arange(2, 12)] = 1.0

    def step(carry, theta, y):
        m, P = carry
        s, Q = np.exp(theta), np.zeros((13, 13))
        for k in range(3):
            Q[k, k] = s[k]
        m, P = F @ m, F @ P @ F.T + Q
        PZ = P @ Z
        S, v = Z @ PZ + s[3], y - Z @ m
        return (m + PZ * (v / S), P - np.outer(PZ, PZ) / S), -0.5 * (np.log(S) + v * v / S)

    return lambda theta: (np.zeros(13), 10 * np.eye(13)), step


@pytest.mark.long
def test_short_programs_are_unrolled(monkeypatch):
    """Zeros known while tracing cost nothing then, and a symmetric carry is one triangle."""
    init, step = structural()
    theta, y = np.array([-1.0, -2.0, -3.0, 0.0]), np.random.default_rng(11).normal(size=30).cumsum()
    whole = kernels.recursion(init, step)
    expected = (*whole.value_and_grad(theta, y), whole.hvp(theta, np.ones(4), y))
    assert any(whole.lowered(4, 0).program.g.shape)
    monkeypatch.undo()
    short = kernels.recursion(init, step)
    low = short.lowered(4, 0)
    assert not any(low.program.g.shape) and len(low.loops[0].carry) == 13 + 91
    for a, b in zip(
        (*short.value_and_grad(theta, y), short.hvp(theta, np.ones(4), y)), expected, strict=True
    ):
        close(a, b, 1e-10)
    init, step, theta, _ = kalman(12, 2, "inv")
    assert any(kernels.recursion(init, step).lowered(theta.size, 2).program.g.shape)


def test_workspace_does_not_grow_with_the_batch():
    init, step, theta, data = kalman(12, 2, "inv")
    k = kernels.recursion(init, step)
    for batch in (8, 256):
        k.value_and_grad(np.tile(theta[:, None], batch), data)
        launcher = k._family.launcher("VG", 0, (theta.size, 2, False), np.dtype(float), False)
        low = launcher.low
        stored = sum(size for _, size, _ in low.taped())
        assert stored == 12 + 144 and launcher.tape_bytes <= 64 * (low.arena + stored * data.shape[1]) + 64


# --- small models and random programs, with all their arrays as blocks ---


@pytest.mark.parametrize("name", MODELS)
def test_small_models_as_blocks(name, whole):
    init, step, theta, data = MODELS[name]()
    plain, k = summed(init, step), kernels.recursion(init, step)
    many = theta[:, None] + 0.05 * np.random.default_rng(9).normal(size=(theta.size, 9))
    value, gradient = k.value_and_grad(many, data)
    for b in (0, 8):
        expected, slope = tg.value_and_grad(plain)(many[:, b].copy(), tg.Const(data))
        close(value[b], expected)
        close(gradient[:, b], slope, 1e-11)
    v = np.random.default_rng(8).normal(size=theta.size)
    close(k.hvp(theta, v, data), tg.hvp(lambda th: plain(th, data), theta, v), 1e-10)


def _written(np, A, B, x):
    C = np.zeros((4, 4))
    for i in range(4):
        C[i] = A[3 - i] * x[i]
    C[1:3, 1:3] = B[:2, 2:]
    C[0, 0] += x[1]
    return C


MATRIX = [
    lambda np, A, B, x: A @ B,
    lambda np, A, B, x: A @ B @ A.T + np.eye(4),
    lambda np, A, B, x: A + 0.5 * B.T,
    lambda np, A, B, x: np.exp(0.1 * A) - x,
    lambda np, A, B, x: A * x[:, None] / (1.0 + B * B),
    lambda np, A, B, x: np.where(A > B, A, 0.1 * B * x),
    lambda np, A, B, x: np.maximum(A, B) - np.minimum(A.T, 0.3),
    lambda np, A, B, x: np.outer(x, A[1]) + np.diag(x),
    lambda np, A, B, x: np.concatenate([A[:2], B[1:3]], axis=0),
    lambda np, A, B, x: np.linalg.inv(A @ A.T + 2 * np.eye(4)),
    lambda np, A, B, x: np.linalg.solve(B + 4 * np.eye(4), A),
    lambda np, A, B, x: np.linalg.cholesky(A @ A.T + np.eye(4)),
    lambda np, A, B, x: np.stack([A[:, 0], B[0], x, A @ x], axis=1),
    lambda np, A, B, x: A - A.sum(axis=0) + np.sum(B, axis=1, keepdims=True),
    lambda np, A, B, x: np.diag(np.diag(A)) + np.tril(B) @ np.triu(A),
    lambda np, A, B, x: A[::-1] * B[:, ::-1] + A[2, 1] * B,
    lambda np, A, B, x: A ** 2 + np.tanh(B) ** 3 + np.linalg.slogdet(A @ A.T + np.eye(4))[1],
    lambda np, A, B, x: np.linalg.det(A + 3 * np.eye(4)) * 0.01 * B + np.trace(A),
    _written,
]  # fmt: skip
VECTOR = [
    lambda np, A, B, x: np.diag(A) * x,
    lambda np, A, B, x: A @ x + B[2],
    lambda np, A, B, x: x @ A / 3.0,
    lambda np, A, B, x: np.linalg.solve(A @ A.T + np.eye(4), x),
    lambda np, A, B, x: np.cumsum(x) * 0.3 + np.sum(A * B, axis=1),
    lambda np, A, B, x: np.array([x[3], A[0, 1], B.sum(), x @ x]),
]


def matrix_program(seed):
    rng = np.random.default_rng(seed)
    steps = [
        (rng.random() < 0.65, int(rng.integers(100)), [int(k) for k in rng.integers(0, 50, 3)])
        for _ in range(5)
    ]

    def run(np, theta, x):
        matrices, vectors = (
            [theta[:16].reshape(4, 4), theta[16:32].reshape(4, 4)],
            [theta[32:36], x * theta[36]],
        )
        for is_matrix, f, (a, b, c) in steps:
            table = MATRIX if is_matrix else VECTOR
            made = table[f % len(table)](
                np, matrices[-1 - a % 2], matrices[b % len(matrices)], vectors[c % len(vectors)]
            )
            made = made / (1.0 + 0.1 * np.sum(made * made))  # of moderate size
            (matrices if is_matrix else vectors).append(made)
        return np.sum(matrices[-1] * matrices[-2]) + np.sum(np.sin(vectors[-1] + matrices[-1][0]))

    return run


def all_orders(run, theta, x, v):
    k = kernels.likelihood(lambda theta, x: run(np, theta, x))
    value, gradient = k.value_and_grad(theta, x)
    single = tg.jvp(lambda t: k(t, x), (theta,), (v,))[1]
    return k(theta, x), value, gradient, single, k.hvp(theta, v, x)


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [*range(2), *[pytest.param(n, marks=pytest.mark.long) for n in range(2, 24)]]
)
def test_random_matrix_programs(seed, monkeypatch):
    run = matrix_program(seed)
    rng = np.random.default_rng(100 + seed)
    theta, x, v = 0.7 * rng.normal(size=(37, 9)), rng.normal(size=(4, 3)), rng.normal(size=(37, 9))
    limits(monkeypatch, 10**9, 10**9, 10**9)
    expected = all_orders(run, theta, x, v)
    for elements, row in [(1, 1), (6, 3)]:
        limits(monkeypatch, elements, row, elements)
        for a, b in zip(all_orders(run, theta, x, v), expected, strict=True):
            assert np.isfinite(a).all()
            close(a, b, 1e-9)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("seed", range(0, 25, 4))
def test_random_programs_of_numbers(seed, whole):
    """Elementwise programs with every number replaced by a block."""
    run = random_program(seed)
    rng = np.random.default_rng(seed)
    theta, x, v = rng.normal(size=(4, 5)), rng.normal(size=(2, 7)), rng.normal(size=(4, 5))
    shift = np.array([[0.0, 0.1, 0.2], [0.3, 0.4, 0.5]])
    wide = kernels.likelihood(lambda theta, x: np.sum(run(np, [theta[j] + 0.1 * shift for j in range(4)], x)))
    alone = kernels.likelihood(lambda theta, x: run(np, theta, x))
    shifted = [theta + 0.1 * s for s in shift.ravel()]
    close(wide(theta, x), sum(alone(t, x) for t in shifted), 1e-11)
    close(wide.grad(theta, x), sum(alone.grad(t, x) for t in shifted), 1e-10)
    close(wide.hvp(theta, v, x), sum(alone.hvp(t, v, x) for t in shifted), 1e-9)


@pytest.mark.long
@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_branch_that_is_not_taken_contributes_nothing(seed, monkeypatch):
    """Its value and derivatives are nan, and multiplied by exact zeros."""

    def masked(theta, x):
        A, r = theta[:16].reshape(4, 4), np.sqrt(theta[16:32].reshape(4, 4))
        product = np.where(r > 0, r, 0.0) @ A
        column = np.where(np.arange(1.0, 5.0) * x[0] > 1.0, 1.0, 0.0)
        kept = np.where(column > 0.5, A @ np.log(theta[16:32].reshape(4, 4).T * np.exp(x[0])), 0.0)
        chosen = np.where(x[1] > 0, np.linalg.solve(A @ A.T + np.eye(4), product), product * r.sum())
        return np.sum(product**2) + np.sum(kept * A) + np.sum(np.where(x[1] > 0, chosen @ A, 0.0))

    rng = np.random.default_rng(seed)
    theta, v = rng.normal(size=(32, 9)), rng.normal(size=(32, 9))
    theta[16:] = np.abs(theta[16:])
    theta[16:20] *= rng.choice([-1.0, 1.0], size=9)
    theta[16 + 4 * np.arange(4)] *= rng.choice([-1.0, 1.0], size=9)
    x = np.stack([rng.normal(size=3), [1.0, -1.0, 2.0]])
    found = []
    for elements in (10**9, 1):
        limits(monkeypatch, elements, elements, elements)
        k = kernels.likelihood(masked, invalid="nan")
        found.append((k(theta, x), *k.value_and_grad(theta, x), k.hvp(theta, v, x)))
    for a, b in zip(*found, strict=True):
        assert np.array_equal(np.isnan(a), np.isnan(b)) and np.isfinite(a).any()
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * np.nanmax(np.abs(a)))


# --- linear algebra of each sample ---


@pytest.mark.parametrize("n", [2, 3, 4])
def test_determinants_of_singular_matrices(n):
    """No pivot, a pivot that is zero halfway, a rank of less than n - 1."""
    rng = np.random.default_rng(n)
    A = np.zeros((n, n, 4))
    A[1:, 1:, 1] = rng.integers(-3, 4, (n - 1, n - 1))  # a column and a row of zeros
    A[:, :, 2] = rng.integers(-3, 4, (n, n))
    A[:, 0, 2] = 0.0
    A[:, :, 3] = np.outer(np.arange(1.0, n + 1), np.arange(2.0, n + 2))
    k = kernels.map(np.linalg.det)
    cofactors = [
        [
            (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(At, i, 0), j, 1))
            for i in range(n)
            for j in range(n)
        ]
        for At in np.moveaxis(A, -1, 0)
    ]
    close(k(A), np.zeros(4), 1e-14)
    close(tg.grad(lambda A: k(A).sum())(A).reshape(-1, 4).T, np.array(cofactors), 1e-13)


@pytest.mark.parametrize("n, samples", [(9, 21), (13, 21), (9, 1), (19, 2)])
def test_pivoted_elimination(n, samples):
    """Matrices that need row exchanges, each sample in its own order; one that exchanges rows only."""
    rng = np.random.default_rng(n)
    A, b, B = [rng.normal(size=(*rows, samples)) for rows in ((n, n), (n,), (n, 3))]
    A[0, 0] = 0.0
    A[..., 1:2] = np.eye(n)[rng.permutation(n)][..., None]
    f = lambda A, b, B: (
        np.linalg.solve(A, b),
        np.linalg.solve(A, B),
        np.linalg.inv(A),
        np.linalg.det(A),
        *np.linalg.slogdet(A),
    )
    k = kernels.map(f)
    x, X, inverse, det, sign, logdet = k(A, b, B)
    At = np.moveaxis(A, -1, 0)
    close(np.moveaxis(inverse, -1, 0), np.linalg.inv(At), 1e-9)
    close(x.T, np.linalg.solve(At, b.T[..., None])[..., 0], 1e-9)
    close(np.moveaxis(X, -1, 0), np.linalg.solve(At, np.moveaxis(B, -1, 0)), 1e-9)
    close(det, np.linalg.det(At), 1e-11)
    assert np.array_equal(sign, np.linalg.slogdet(At)[0])
    close(logdet, np.linalg.slogdet(At)[1], 1e-11)
    close(
        np.moveaxis(tg.grad(lambda A: k(A, b, B)[5].sum())(A), -1, 0),
        np.linalg.inv(At).transpose(0, 2, 1),
        1e-8,
    )
    weight = rng.normal(size=(n, samples))
    loss = lambda xp: lambda A, b: (weight * xp(A, b)).sum()
    ours = loss(lambda A, b: k(A, b, B)[0])
    theirs = lambda A, b: (
        weight.T * tg.numpy.linalg.solve(A.transpose(2, 0, 1), b.T[..., None])[..., 0]
    ).sum()
    for a, b_ in zip(tg.grad(ours, (0, 1))(A, b), tg.grad(theirs, (0, 1))(A, b), strict=True):
        close(a, b_, 1e-7)


def test_triangular_solves_and_factors():
    rng = np.random.default_rng(3)
    n = 10
    M, B = rng.normal(size=(n, n, 5)), rng.normal(size=(n, 2, 5))

    def f(M, B):
        L = np.linalg.cholesky(M @ M.T + n * np.eye(n))
        lower = [
            scipy.linalg.solve_triangular(L, B, lower=True, trans=t, unit_diagonal=u)
            for t in (0, 1)
            for u in (False, True)
        ]
        upper = [scipy.linalg.solve_triangular(M + 9 * np.eye(n), B, trans=t) for t in (0, 1)]
        return L, lower, upper, scipy.linalg.cho_solve((L, True), B)

    L, lower, upper, solved = kernels.map(f)(M, B)
    for s in range(5):
        a, b = M[..., s], B[..., s]
        factor = np.linalg.cholesky(a @ a.T + n * np.eye(n))
        close(L[..., s], factor)
        for got, (t, u) in zip(lower, [(0, False), (0, True), (1, False), (1, True)], strict=True):
            close(
                got[..., s],
                scipy.linalg.solve_triangular(factor, b, lower=True, trans=t, unit_diagonal=u),
                1e-10,
            )
        for got, t in zip(upper, (0, 1), strict=True):
            close(got[..., s], scipy.linalg.solve_triangular(a + 9 * np.eye(n), b, trans=t), 1e-10)
        close(solved[..., s], np.linalg.solve(a @ a.T + n * np.eye(n), b), 1e-10)


def test_a_bad_matrix_spoils_only_its_sample():
    rng = np.random.default_rng(4)
    A = rng.normal(size=(9, 9, 12))
    A = np.einsum("ijb,kjb->ikb", A, A) + np.eye(9)[..., None]
    good = kernels.map(np.linalg.cholesky)(A)
    A[:, :, 5] = -np.eye(9)
    L = kernels.map(np.linalg.cholesky)(A)
    assert np.isnan(L[:, :, 5]).any() and np.array_equal(np.delete(L, 5, 2), np.delete(good, 5, 2))
    A[:, :, 5] = 1.0
    x = kernels.map(np.linalg.inv)(A)
    assert not np.isfinite(x[:, :, 5]).all() and np.isfinite(np.delete(x, 5, 2)).all()


@pytest.mark.parametrize(
    "f",
    [
        np.linalg.inv,
        np.linalg.cholesky,
        lambda A: np.log(np.linalg.det(A)),
        lambda A: np.linalg.slogdet(A)[1],
    ],
)
def test_a_zero_cotangent_stays_zero_through_a_singular_matrix(f):
    A = np.random.default_rng(12).normal(size=(9, 9, 5))
    A[:, :, 2] = 0.0
    k = kernels.map(lambda A: (f(A @ A.T), A * 2.0))
    loss = lambda A: (k(A)[1] ** 2).sum()
    assert np.array_equal(tg.grad(loss)(A), 8 * A)


def test_only_the_lower_triangle_counts_for_cholesky():
    rng = np.random.default_rng(5)
    A = np.einsum("ijb,kjb->ikb", *[rng.normal(size=(10, 10, 3))] * 2) + 10 * np.eye(10)[..., None]
    k = kernels.map(lambda A: np.sum(np.linalg.cholesky(A) ** 3))
    gradient = tg.grad(lambda A: k(A).sum())(A)
    assert not np.triu(gradient[..., 0], 1).any()
    h, e = 1e-6, np.zeros_like(A)
    e[7, 2], e[4, 4] = 1.0, 0.5
    np.testing.assert_allclose((gradient * e).sum((0, 1)), (k(A + h * e) - k(A - h * e)) / (2 * h), rtol=1e-6)


# --- what Python and NumPy may do with large arrays ---


@pytest.mark.long
def test_functions_without_a_block_form_are_unrolled():
    rng = np.random.default_rng(6)
    A = rng.normal(size=(9, 9, 6))

    def f(A):
        C = np.exp(A)
        return {
            "max": np.max(C, axis=0), "cumsum": np.cumsum(C[0]), "einsum": np.einsum("ij,jk->ik", C, A),
            "prod": np.prod(C[:, 1]),
            "any": np.where(np.any(C > 5.0), 1.0, 0.0), "mask": np.where((C > 1.0) & ~(A > 2.0), C, 0.0).T,
            "var": np.var(C),
            "roll": np.roll(C, 1, axis=0)[:, ::2], "repeat": np.repeat(C[:2], 2, axis=0), "windows": C[[0, 0,
            1, 1, 2]],
            "power": np.abs(C) ** 0.7, "hypot": np.hypot(C, A), "mean": C.mean(axis=1), "clip": np.clip(A,
            -0.5, 0.5),
            "norm": np.linalg.norm(C), "abs": np.abs(A - 1),
        }  # fmt: skip

    out = kernels.map(f)(A)
    for s in range(6):
        for name, expected in f(A[..., s]).items():
            close(out[name][..., s], expected, 1e-11)
    loss = lambda out: sum((v * (k + 1)).sum() for k, v in enumerate(out.values()))
    h, e = 1e-6, rng.normal(size=A.shape)
    slope = tg.jvp(lambda A: loss(kernels.map(f)(A)), (A,), (e,))[1]
    np.testing.assert_allclose(
        slope, (loss(kernels.map(f)(A + h * e)) - loss(kernels.map(f)(A - h * e))) / (2 * h), rtol=1e-5
    )
    gradient = tg.grad(lambda A: loss(kernels.map(f)(A)))(A)
    close((gradient * e).sum(), slope, 1e-10)


def test_run_time_indices_and_writes():
    rng = np.random.default_rng(7)
    A, i = rng.normal(size=(9, 9, 10)), rng.integers(-9, 9, 10)

    def f(A, i):
        row, C = A[i] * 2.0, A * 1.0
        C[i] = row
        C[:, 3] = row
        C[2, 1] = np.sum(row)
        return C, C[i][2]

    C, picked = kernels.map(f)(A, i)
    for s in range(10):
        expected, value = f(A[..., s], int(i[s]))
        close(C[..., s], expected)
        close(picked[s], value)


def test_loops_with_matrices():
    rng = np.random.default_rng(8)
    A, n = 0.2 * rng.normal(size=(9, 9, 7)), rng.integers(0, 6, 7)
    k = kernels.map(lambda A, n: kernels.loop(n, lambda i, X: X @ A + np.eye(9) + i * A.T, np.eye(9)))
    out = k(A, n)

    def plain(A, s):
        X = np.eye(9)
        for i in range(int(n[s])):
            X = X @ A + np.eye(9) + i * A.T
        return X

    for s in range(7):
        close(out[..., s], plain(A[..., s], s))
    weight = rng.normal(size=A.shape)
    gradient = tg.grad(lambda A: (weight * k(A, n)).sum())(A)
    for s in (0, 3, 6):
        close(
            gradient[..., s],
            tg.grad(lambda X: (weight[..., s] * plain(X, s)).sum())(A[..., s].copy())
            if n[s]
            else 0 * A[..., s],
            1e-11,
        )
    v = rng.normal(size=A.shape)
    f = lambda A: (weight * k(A, n) ** 2).sum()
    h = 1e-6
    differences = (tg.grad(f)(A + h * v) - tg.grad(f)(A - h * v)) / (2 * h)
    np.testing.assert_allclose(tg.hvp(f, A, v), differences, rtol=1e-6, atol=1e-6 * np.abs(differences).max())
    grow = kernels.map(
        lambda A: kernels.while_loop(
            lambda X: np.sum(X * X) < 50.0, lambda X: X @ (A + 1.2 * np.eye(9)), np.eye(9), 40
        )
    )
    out = grow(A)
    for s in range(7):
        X = np.eye(9)
        while np.sum(X * X) < 50.0:
            X = X @ (A[..., s] + 1.2 * np.eye(9))
        close(out[..., s], X, 1e-11)


def test_carries_exchanged_and_transposed():
    """The next carry is made of parts of the old one."""

    def step(carry, theta, y):
        X, Y, z = carry
        Z = np.zeros((9, 9))
        Z[:4], Z[4:] = Y[5:], X[:5]
        return (Y, X.T, z[::-1] * theta[0]), np.sum(X * Y) * y + np.sum(z[:3]) + np.sum(Z * X) * theta[1]

    def init(theta):
        return (
            np.arange(81.0).reshape(9, 9) * theta[0] / 81,
            np.eye(9) * theta[1] + 0.5,
            np.linspace(0.0, 1.0, 12),
        )

    theta, y = np.array([0.7, 0.4]), np.array([0.3, -0.2, 0.9, 0.1, 1.4])
    k, f = kernels.recursion(init, step), summed(init, step)
    expected, slope = tg.value_and_grad(f)(theta.copy(), tg.Const(y))
    value, gradient = k.value_and_grad(theta, y)
    close(value, expected)
    close(gradient, slope, 1e-11)
    v = np.array([0.3, -1.0])
    close(k.hvp(theta, v, y), tg.hvp(lambda t: f(t, y), theta, v), 1e-10)


def test_two_equal_carries_and_a_constant_one():
    def step(carry, theta, y):
        X, Y, C = carry
        M = theta[:81].reshape(9, 9) * 0.1
        return (X @ M + C, Y @ M + C, C), np.sum(X) * y - np.trace(Y)

    rng = np.random.default_rng(10)
    theta, y = rng.normal(size=81), rng.normal(size=4)
    init = lambda theta: (np.eye(9), np.eye(9), np.ones((9, 9)))
    k, f = kernels.recursion(init, step), summed(init, step)
    low = k.lowered(81, 0)
    assert len(low.loops[0].carry) == 1
    expected, slope = tg.value_and_grad(f)(theta.copy(), tg.Const(y))
    value, gradient = k.value_and_grad(theta, y)
    close(value, expected)
    close(gradient, slope, 1e-11)


def test_a_step_that_catches_errors_is_traced_whole(monkeypatch):
    """The first trace, unrolled, stops where it becomes too long: not seen by the user's function."""
    monkeypatch.undo()

    def loglik(theta, x):
        try:
            A = theta.reshape(20, 20)
            return np.sum((A @ A) ** 2) * x
        except Exception:
            return theta[0] * x

    theta = np.random.default_rng(13).normal(size=400)
    k, A = kernels.likelihood(loglik), theta.reshape(20, 20)
    close(k(theta, np.ones(2)), 2 * np.sum((A @ A) ** 2))
    close(k.grad(theta, np.ones(2)), 4 * (A @ A @ A.T + A.T @ A @ A).ravel(), 1e-11)


def test_wrong_shapes_are_refused():
    k = kernels.recursion(
        lambda th: np.zeros((9, 9)), lambda c, th, y: (np.zeros((9, 10)) + th[0], y * th[0])
    )
    with pytest.raises(KernelError, match="81 numbers before the step and 90 after"):
        k(np.ones((1, 2)), np.ones(4))
    k = kernels.recursion(
        lambda th: np.zeros((9, 10)), lambda c, th, y: (np.zeros((10, 9)) + th[0], y * th[0])
    )
    with pytest.raises(KernelError, match="other shapes"):
        k(np.ones((1, 2)), np.ones(4))
    with pytest.raises(ValueError, match="do not fit"):
        kernels.map(lambda A, B: A @ B)(np.ones((9, 9, 2)), np.ones((10, 9, 2)))
    with pytest.raises(KernelError, match="shapes"):
        kernels.map(lambda A: A if np.sum(A) > 0 else A[0])(np.ones((9, 9, 2)))


# --- CUDA C ---


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="NOT RUN: CUDA C on the CPU, for there is no g++")
@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.long)])
@pytest.mark.parametrize("n, d, gain", [(12, 2, "inv"), (12, 9, "solve"), (20, 10, "cholesky")])
def test_cuda_source_gives_the_bits_of_the_cpu_kernel(n, d, gain, dtype):
    init, step, theta, data = kalman(n, d, gain)
    k, rng = kernels.recursion(init, step), np.random.default_rng(1)
    many, data = theta[:, None] + 0.01 * rng.normal(size=(theta.size, 11)), np.ascontiguousarray(data, dtype)
    for kind, order in (("VG", 0), ("R", 1)):
        inputs = [np.ascontiguousarray(x, dtype) for x in [many] + [rng.normal(size=many.shape)] * order]
        low = k.lowered(theta.size, d, kind, order)
        launcher = Launcher(low, np.dtype(dtype), False)
        ours = [np.empty((r, 11), dtype) for r in launcher.outputs]
        launcher(inputs, data, data.shape[1], ours, 11)
        for a, b in zip(ours, run_on_host(low, dtype, inputs, data, data.shape[1], 11), strict=True):
            assert np.isfinite(a).all() and np.array_equal(a, b)
        single = [np.empty((r, 1), dtype) for r in launcher.outputs]
        launcher([np.ascontiguousarray(x[:, :1]) for x in inputs], data, data.shape[1], single, 1)
        for a, b in zip(ours, single, strict=True):
            assert np.array_equal(a[:, :1], b)


@pytest.mark.long
@pytest.mark.parametrize("n, d, gain, dtype", [(20, 2, "inv", np.float64), (20, 10, "cholesky", np.float32)])
def test_nvrtc_compiles(n, d, gain, dtype):
    pytest.importorskip("cupy")
    init, step, theta, data = kalman(n, d, gain)
    source, _, _ = emit_cuda(kernels.recursion(init, step).lowered(theta.size, d), dtype)
    code, log = cubin(source, 90, ("-std=c++17", "-fmad=false", "-default-device", "--ptxas-options=-v"))
    assert code[:4] == b"\x7fELF"
    spilled = [int(x) for x in re.findall(r"(\d+) bytes spill stores", log)]
    assert spilled and max(spilled) < 1500, "whole matrices in registers"


def scaled_rows(x):
    return np.array([[1 - x[3], -2 * x[3]], [-x[4], 1 - 2 * x[4]]])


def projection(x):
    return np.eye(2) - np.outer(symmetric(x) @ np.array([1.0, 2.0]) / x[5], np.array([1.0, 2.0]))


def symmetric(x):
    return np.array([[x[0], x[1]], [x[1], x[2]]])


@pytest.mark.parametrize("factor", [scaled_rows, projection])
def test_congruence_whose_factor_no_node_uses(factor):
    """G P G' where an element -2 k of G is in the products as -2 (k p): the adjoint of the whole would go to
    a node that nobody reads."""
    weights = np.array([[0.3, 0.5], [0.5, -0.8]])

    def f(x):
        return (weights * (factor(x) @ symmetric(x) @ factor(x).T)).sum()

    x = np.array([1.3, 0.4, 2.0, 0.7, 0.2, 1.9])
    k = tg.kernels.map(f)
    ours = tg.grad(lambda x: k(x[:, None])[0])
    np.testing.assert_allclose(ours(x), tg.grad(f)(x), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(tg.jacobian(ours)(x), tg.hessian(f)(x), rtol=1e-12, atol=1e-12)


def test_congruence_with_an_element_of_its_middle():
    """A P A' with a 1 alone in the first row of A: the first element of the product is that of P, and goes on
    to P's own operands."""
    weights = np.array([[0.3, 0.5], [0.5, -0.8]])

    def f(x):
        A = np.array([[1.0, 0.0], [0.0, x[3]]])
        P = symmetric(x) * x[4]
        return (weights * (A @ P @ A.T)).sum()

    x = np.array([1.3, 0.4, 2.0, 0.7, 0.2])
    k = tg.kernels.map(f)
    np.testing.assert_allclose(tg.grad(lambda x: k(x[:, None])[0])(x), tg.grad(f)(x), rtol=1e-13)
