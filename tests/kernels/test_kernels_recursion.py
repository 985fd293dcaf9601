"""Generated kernels for recursions: the Nile, a Kalman filter with matrices, GARCH, a hidden Markov model,
missing data."""

import numpy as np
import pytest
from comparison import close
from kernel_recursions import (
    DIFFUSE,
    KNOWN,
    LOG2PI,
    MANY,
    MODELS,
    NILE,
    POINTS,
    formula,
    kalman,
    kernels,
    known,
    step,
    summed,
    unseen,
)

import tapegrad as tg
from tapegrad.errors import KernelError

pytestmark = pytest.mark.smoke

# --- the local level model of the Nile, parameters log variances ---


def test_nile_both_starts():
    value, gradient = DIFFUSE.value_and_grad(POINTS, NILE[1:])
    close(value - 0.5 * LOG2PI, [-633.464563648878371, -638.204406204717274], 1e-13)
    np.testing.assert_allclose(
        gradient[:, 1] / np.exp(POINTS[:, 1]), [0.0021166153900217, 0.0037634132111984], rtol=1e-10
    )
    np.testing.assert_allclose(
        gradient[:, 0] / np.exp(POINTS[:, 0]), [-5.9113952775617e-8, -4.2021454701408e-8], rtol=1e-5
    )
    value, gradient = KNOWN.value_and_grad(POINTS, NILE)
    close(value, [-641.585578459415321, -646.325375603490326], 1e-13)
    np.testing.assert_allclose(
        gradient[:, 1] / np.exp(POINTS[:, 1]), [0.0021166549415388, 0.0037628993419063], rtol=1e-10
    )


def test_nile_hessian():
    """In the variances themselves: from log variances by the chain rule."""
    s = np.array([1e4, 1e3])
    k = kernels.recursion(lambda v: (NILE[0], v[0] + v[1]), lambda c, v, y: step(c, np.log(v), y))
    H = k.hessian(s, NILE[1:])
    np.testing.assert_allclose(
        H[[0, 0, 1], [0, 1, 1]], [-7.42510205441e-7, -1.00286967229e-6, -5.05072023292e-6], rtol=1e-9
    )


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


@pytest.mark.one_in(3)
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
    k = kernels.map(
        lambda A, b: (np.linalg.solve(A, b), np.linalg.inv(A), np.linalg.det(A), np.linalg.slogdet(A)[1])
    )
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


def a_rotation(carry, theta, y):
    """A step that hands out an array."""
    x, P = carry
    T = np.array([[theta[0], -theta[1]], [theta[1], theta[0]]])
    x = T @ x + np.array([y[0], np.sin(y[1])])
    P = T @ P @ T.T + np.outer(x, x)
    return (x, P), np.concatenate([x, P[np.triu_indices(2)]])


@pytest.mark.parametrize("batch", [(), (3,)])
def test_steps_that_hand_out_arrays(batch):
    """Values and derivatives to second order against the loop over the steps."""
    g = np.random.default_rng(4)
    k = tg.kernels.recursion(lambda theta: (np.zeros(2), np.eye(2)), a_rotation)
    theta, y, w = 0.5 * g.normal(size=(2, *batch)), g.normal(size=(2, 6)), g.normal(size=(5, 6, *batch))

    def loop(theta, y):
        carry, out = (np.zeros(2), np.eye(2)), []
        for t in range(y.shape[1]):
            carry, handed = a_rotation(carry, theta, y[:, t])
            out.append(handed)
        return np.stack(out, axis=1)

    def all_of(theta, y):
        return np.stack([loop(theta[:, b], y) for b in range(3)], axis=2) if batch else loop(theta, y)

    np.testing.assert_allclose(k.path(theta, y), all_of(theta, y), rtol=1e-13)
    ours, plain = (lambda theta, y, f=f: (f(theta, y) * w).sum() for f in (k.path, all_of))
    for found, wanted in zip(tg.grad(ours, (0, 1))(theta, y), tg.grad(plain, (0, 1))(theta, y), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)
    v = (np.cos(theta), np.sin(y))
    np.testing.assert_allclose(
        tg.jvp(k.path, (theta, y), v)[1], tg.jvp(all_of, (theta, y), v)[1], rtol=1e-11, atol=1e-12
    )
    second = (tg.hvp(lambda theta, f=f: f(theta, y), theta, v[0]) for f in (ours, plain))
    np.testing.assert_allclose(*second, rtol=1e-11)


def test_steps_that_hand_out_arrays_without_a_datum():
    k = tg.kernels.recursion(
        lambda theta: 1.0,
        lambda m, theta, y: (m * theta[0] + y, np.stack([m, y])),
        missing=lambda m, theta: 2.0 * m,
    )
    np.testing.assert_allclose(
        k.path(np.array([0.5]), np.array([3.0, np.nan, 1.0])), [[1.0, 0.0, 7.0], [3.0, 0.0, 1.0]]
    )
    with pytest.raises(tg.errors.KernelError, match="one number for each datum"):
        k(np.array([0.5]), np.array([3.0]))
