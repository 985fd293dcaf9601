"""Generated kernels for recursions: the Nile, a Kalman filter with matrices, GARCH, a hidden Markov model, missing data."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

import tapegrad as tg
from tapegrad.errors import KernelError

os.environ.setdefault("TAPEGRAD_CACHE", tempfile.mkdtemp())

NILE = np.loadtxt(Path(__file__).parents[1] / "examples" / "data" / "nile.csv", delimiter=",", skiprows=3)[:, 1]
LOG2PI = np.log(2 * np.pi)
kernels = tg.kernels


def close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max(initial=0.0))


# --- the local level model of the Nile, parameters log variances ---


def step(carry, theta, y):
    a, P = carry
    obs, level = np.exp(theta)
    F, v = P + obs, y - a
    K = P / F
    return (a + K * v, P - K * P + level), -0.5 * (LOG2PI + np.log(F) + v * v / F)


def unseen(carry, theta):
    a, P = carry
    return a, P + np.exp(theta[1])


def known(theta):
    return 0.0, 1e7


def diffuse(theta):
    return NILE[0], np.exp(theta[0]) + np.exp(theta[1])


KNOWN = kernels.recursion(known, step, missing=unseen)
DIFFUSE = kernels.recursion(diffuse, step, missing=unseen)
POINTS = np.log(np.array([[15099.0, 1e4], [1469.1, 1e3]]))
MANY = np.log([[1e4], [1e3]]) + np.random.default_rng(0).standard_normal((4096, 2)).T


def formula(theta, y, start):
    """Value and gradient by the log variances, for all samples, in NumPy: the tangents run beside the filter."""
    obs, level = np.exp(theta)
    zero = np.zeros_like(obs)
    if start == "known":
        a, P, da, dP = zero, zero + 1e7, np.zeros((2, *obs.shape)), np.zeros((2, *obs.shape))
    else:
        a, P, da, dP = zero + NILE[0], obs + level, np.zeros((2, *obs.shape)), np.stack([obs, level])
    dobs, dlevel = np.stack([obs, zero]), np.stack([zero, level])
    value, gradient = zero, np.zeros((2, *obs.shape))
    for x in y:
        if np.isnan(x):
            P, dP = P + level, dP + dlevel
            continue
        F, dF, v, dv = P + obs, dP + dobs, x - a, -da
        value = value - 0.5 * (LOG2PI + np.log(F) + v * v / F)
        gradient = gradient - 0.5 * (dF / F + 2 * v * dv / F - v * v * dF / F**2)
        K, dK = P / F, dP / F - P * dF / F**2
        a, da = a + K * v, da + dK * v + K * dv
        P, dP = P * obs / F + level, (dP * obs + P * dobs) / F - P * obs * dF / F**2 + dlevel
    return value, gradient


def test_nile_both_starts():
    value, gradient = DIFFUSE.value_and_grad(POINTS, NILE[1:])
    close(value - 0.5 * LOG2PI, [-633.464563648878371, -638.204406204717274], 1e-13)
    np.testing.assert_allclose(gradient[:, 1] / np.exp(POINTS[:, 1]), [0.0021166153900217, 0.0037634132111984], rtol=1e-10)
    np.testing.assert_allclose(gradient[:, 0] / np.exp(POINTS[:, 0]), [-5.9113952775617e-8, -4.2021454701408e-8], rtol=1e-5)
    value, gradient = KNOWN.value_and_grad(POINTS, NILE)
    close(value, [-641.585578459415321, -646.325375603490326], 1e-13)
    np.testing.assert_allclose(gradient[:, 1] / np.exp(POINTS[:, 1]), [0.0021166549415388, 0.0037628993419063], rtol=1e-10)


def test_nile_hessian():
    """In the variances themselves: from log variances by the chain rule."""
    s = np.array([1e4, 1e3])
    k = kernels.recursion(lambda v: (NILE[0], v[0] + v[1]), lambda c, v, y: step(c, np.log(v), y))
    H = k.hessian(s, NILE[1:])
    np.testing.assert_allclose(H[[0, 0, 1], [0, 1, 1]], [-7.42510205441e-7, -1.00286967229e-6, -5.05072023292e-6], rtol=1e-9)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("kernel, start", [(KNOWN, "known"), (DIFFUSE, "diffuse")])
def test_f11_thousands_of_samples(kernel, start, holes):
    y = NILE.copy() if start == "known" else NILE[1:].copy()
    if holes:
        y[[5, 20, 21, 22, 98]] = np.nan
    value, gradient = kernel.value_and_grad(MANY, y)
    expected, slope = formula(MANY, y, start)
    close(value, expected, 1e-10)
    assert np.max(np.abs(gradient - slope) / np.abs(slope).max(axis=0)) < 1e-10
    if start == "diffuse":
        value, gradient = kernel.value_and_grad(MANY.astype(np.float32), y)
        np.testing.assert_allclose(value, expected, rtol=2e-6)
        error = np.linalg.norm(gradient - slope, axis=0) / np.linalg.norm(slope, axis=0)
        assert error.max() < 2e-4


def test_missing_data_must_be_spoken_of():
    y = NILE.copy()
    y[3] = np.nan
    with pytest.raises(KernelError, match="missing="):
        kernels.recursion(known, step)(POINTS, y)
    skipped = kernels.recursion(known, step, missing="skip")
    close(skipped(POINTS, y), skipped(POINTS, np.delete(NILE, 3)))

    def own(carry, theta, y):
        (a, P), ll = step(carry, theta, y)
        b, Q = unseen(carry, theta)
        gone = np.isnan(y)
        return (np.where(gone, b, a), np.where(gone, Q, P)), np.where(gone, 0.0, ll)

    value, gradient = kernels.recursion(known, own, missing="step").value_and_grad(POINTS, y)
    expected, slope = KNOWN.value_and_grad(POINTS, y)
    close(value, expected)
    close(gradient, slope)


# --- models with vectors and matrices against the same functions on the array tape ---


def summed(init, step):
    """The Python functions themselves, one sample."""

    def f(theta, data):
        carry, total = init(theta), 0.0
        for t in range(data.shape[-1]):
            carry, term = step(carry, theta, data[..., t])
            total = total + term
        return total

    return f


H4 = np.array([[1.0, 0.0, 0.5, 0.0], [0.0, 1.0, 0.0, -0.5]])


def kalman(gain):
    def start(theta):
        return np.zeros(4), np.eye(4)

    def filter_step(carry, theta, y):
        m, P = carry
        A = theta[:16].reshape(4, 4)
        m, P = A @ m, A @ P @ A.T + np.diag(np.exp(theta[16:20]))
        v, S = y - H4 @ m, H4 @ P @ H4.T + np.diag(np.exp(theta[20:]))
        if gain == "inv":
            K = P @ H4.T @ np.linalg.inv(S)
            terms = np.log(np.linalg.det(S)) + v @ np.linalg.inv(S) @ v
        elif gain == "solve":
            K = np.linalg.solve(S, H4 @ P).T
            terms = np.linalg.slogdet(S)[1] + v @ np.linalg.solve(S, v)
        else:
            L = np.linalg.cholesky(S)
            z = scipy.linalg.solve_triangular(L, v, lower=True)
            K = scipy.linalg.cho_solve((L, True), H4 @ P).T
            terms = 2 * np.sum(np.log(np.diag(L))) + z @ z
        m, P = m + K @ v, P - K @ H4 @ P
        return (m, 0.5 * (P + P.T)), -0.5 * (terms + 2 * LOG2PI)

    rng = np.random.default_rng(0)
    A = 0.7 * np.linalg.qr(rng.normal(size=(4, 4)))[0]
    return start, filter_step, np.concatenate([A.ravel(), np.log(np.full(4, 0.3)), np.log(np.full(2, 0.5))]), rng.normal(size=(2, 12))


def garch():
    def garch_step(carry, theta, y):
        h, e2 = carry
        h = np.exp(theta[0]) + theta[1] * e2 + theta[2] * h
        return (h, y * y), -0.5 * (np.log(h) + y * y / h)

    return lambda theta: (np.exp(theta[0]), 0.1), garch_step, np.array([-1.0, 0.2, 0.6]), np.random.default_rng(1).normal(size=30)


def hidden_markov():
    def weights(theta):
        e = np.exp(theta[3:12].reshape(3, 3))
        return e / e.sum(axis=1)[:, None]

    def hmm_step(p, theta, y):
        q = (p @ weights(theta)) * np.exp(-0.5 * (y - theta[:3]) ** 2)
        total = np.sum(q)
        return q / total, np.log(total)

    return lambda theta: np.ones(3) / 3, hmm_step, np.random.default_rng(2).normal(size=12), np.random.default_rng(3).normal(size=20)


def written_in_place():
    """AR(3) with a window kept by writing, and a matrix of outer products."""

    def ar_step(carry, theta, y):
        window, M = carry
        e = y - theta[:3] @ window
        new = np.zeros(3)
        new[1:] = window[:2]
        new[0] = y
        M = M * theta[4]
        for i in range(3):
            M[i, i] += new[i] * new[i]
        corner = np.maximum(e, 0.0) * np.clip(e, -0.5, 0.5)
        return (new, M), -0.5 * e * e / np.exp(theta[3]) - 0.5 * theta[3] - 0.01 * np.trace(M) + 0.1 * corner

    return lambda theta: (np.zeros(3), np.eye(3)), ar_step, np.array([0.5, -0.3, 0.1, 0.2, 0.9]), np.random.default_rng(4).normal(size=15)


MODELS = {
    "kalman inv": lambda: kalman("inv"),
    "kalman solve": lambda: kalman("solve"),
    "kalman cholesky": lambda: kalman("cholesky"),
    "garch": garch,
    "hidden Markov": hidden_markov,
    "written in place": written_in_place,
}


@pytest.mark.parametrize("name", MODELS)
def test_models_against_the_array_tape(name):
    init, step, theta, data = MODELS[name]()
    plain, k = summed(init, step), kernels.recursion(init, step)
    many = theta[:, None] + 0.05 * np.random.default_rng(9).normal(size=(theta.size, 9))
    value, gradient = k.value_and_grad(many, data)
    assert np.isfinite(value).all()
    for b in range(0, 9, 4):
        expected, slope = tg.value_and_grad(plain)(many[:, b].copy(), tg.Const(data))
        close(value[b], expected)
        close(gradient[:, b], slope, 1e-11)
    v = np.random.default_rng(8).normal(size=theta.size)
    close(k.hvp(theta, v, data), tg.hvp(lambda th: plain(th, data), theta, v), 1e-10)
    H = k.hessian(theta, data)
    close(H @ v, k.hvp(theta, v, data), 1e-10)


@pytest.mark.parametrize("n", [3, 4])
def test_pivoted_elimination(n):
    """solve, inv, det, slogdet of matrices that need row exchanges, each sample in its own order."""
    rng = np.random.default_rng(n)
    A, b = rng.normal(size=(n, n, 40)), rng.normal(size=(n, 40))
    A[0, 0] = 0.0
    k = kernels.map(lambda A, b: (np.linalg.solve(A, b), np.linalg.inv(A), np.linalg.det(A), np.linalg.slogdet(A)[1]))
    x, inverse, det, logdet = k(A, b)
    At = np.moveaxis(A, -1, 0)
    close(np.moveaxis(inverse, -1, 0), np.linalg.inv(At), 1e-10)
    close(x.T, np.linalg.solve(At, b.T[..., None])[..., 0], 1e-10)
    close(det, np.linalg.det(At), 1e-11)
    close(logdet, np.linalg.slogdet(At)[1], 1e-11)
    grad = tg.grad(lambda A: k(A, b)[3].sum())(A)
    close(np.moveaxis(grad, -1, 0), np.linalg.inv(At).transpose(0, 2, 1), 1e-9)


def test_symmetric_carry_costs_one_triangle():
    init, step, theta, data = kalman("inv")
    low = kernels.recursion(init, step).lowered(22, 2)
    assert [len(loop.carry) for loop in low.loops] == [14, 14]


def test_stored_steps_of_a_block_do_not_grow_with_the_batch():
    init, step, theta, data = kalman("inv")
    k = kernels.recursion(init, step)
    long = np.random.default_rng(0).normal(size=(2, 1000))
    for batch in (8, 512):
        k.value_and_grad(np.tile(theta[:, None], batch), long)
        launcher = k._family.launcher("VG", 0, (22, 2, False), np.dtype(float), False)
        assert launcher.tape_bytes < 2e6


def test_a_carry_that_changes_size_is_refused():
    k = kernels.recursion(lambda th: np.zeros(2), lambda c, th, y: (np.zeros(3), y * th[0]))
    with pytest.raises(KernelError, match="2 numbers before the step and 3 after"):
        k(np.ones((1, 2)), np.ones(4))


def test_empty_and_single_data():
    assert np.array_equal(KNOWN(POINTS, np.empty(0)), [0.0, 0.0])
    value, gradient = KNOWN.value_and_grad(POINTS, NILE[:1])
    expected, slope = formula(POINTS, NILE[:1], "known")
    close(value, expected)
    close(gradient, slope)
