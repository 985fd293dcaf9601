"""CARMA processes against filters in their state space, mpmath and closed forms."""

import mpmath
import numpy as np
import pytest
import scipy.linalg
from comparison import close
from light_curves import DATA, VARIANCE, T, Y, agrees, log_density
from raw_device import noted_launches  # noqa: F401 (the fixture `device`)

import tapegrad as tg
from tapegrad.errors import ArgumentError, ShapeError
from tapegrad.kernels import carma, celerite

ORDERS = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (4, 2), (5, 3)]


def carma_theta(p, q, batch, seed=0):
    """With jitter and mean."""
    rng = np.random.default_rng(seed)
    rows = [rng.uniform(0.3, 2, (p, batch)), rng.normal(size=(q, batch)), rng.uniform(0.5, 1, (1, batch))]
    return np.concatenate([*rows, rng.uniform(0.01, 0.1, (1, batch)), rng.normal(size=(1, batch))])


def state_space(theta, p, q):
    """A, the noise's covariance per time, the observed combination; and the stationary covariance, by the
    Lyapunov equation."""
    alpha = np.ones(1)
    for k in range(p // 2):
        alpha = np.convolve(alpha, [1, theta[2 * k + 1], theta[2 * k]])
    if p % 2:
        alpha = np.convolve(alpha, [1, theta[p - 1]])
    A, noise, b = np.eye(p, k=1), np.zeros((p, p)), np.eye(p)[0]
    A[-1], noise[-1, -1] = -alpha[:0:-1], theta[p + q] ** 2
    b[1 : q + 1] = theta[p : p + q]
    return A, noise, b, scipy.linalg.solve_continuous_lyapunov(A, -noise)


def filtered(theta, p, q, data):
    """The log-likelihood by a Kalman filter with matrix exponentials; theta with jitter and mean."""
    A, _, b, V = state_space(theta, p, q)
    m, P, total = np.zeros(p), V, 0.0
    for gap, y, variance in data.T:
        F = scipy.linalg.expm(A * gap)
        m, P = F @ m, V + F @ (P - V) @ F.T
        if y == y:
            S, e = b @ P @ b + variance + theta[-2], y - theta[-1] - b @ m
            total -= 0.5 * (np.log(2 * np.pi * S) + e * e / S)
            m, P = m + P @ b * e / S, P - np.outer(P @ b, P @ b) / S
    return total


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "p, q", [pytest.param(p, q, marks=[] if p + q in (1, 3, 8) else pytest.mark.long) for p, q in ORDERS]
)
def test_carma_by_a_filter_in_its_state_space(p, q):
    k, theta, data = carma.process(p=p, q=q, jitter=True, mean=True), carma_theta(p, q, 4), DATA.copy()
    data[1, [3, 20]] = np.nan
    value, gradient = k.value_and_grad(theta, data)
    close(value, [filtered(th, p, q, data) for th in theta.T], 1e-9)
    v, h = np.random.default_rng(4).normal(size=theta.shape), 1e-4
    move = lambda n: np.array([filtered(th, p, q, data) for th in (theta + n * h * v).T])
    differences = (8 * (move(1) - move(-1)) - (move(2) - move(-2))) / (12 * h)
    close((gradient * v).sum(axis=0), differences, 1e-6)
    close(k(theta, data), value, 1e-14)
    close(tg.grad(lambda x: k(x, data).sum())(theta), gradient, 1e-12)
    step = 1e-5
    by_gradients = (k.grad(theta + step * v, data) - k.grad(theta - step * v, data)) / (2 * step)
    close(k.hvp(theta, v, data), by_gradients, 1e-5)
    one = np.arange(4) < 1
    close(np.einsum("bij,jb->ib", k.hessian(theta, data), v)[:, one], k.hvp(theta, v, data)[:, one], 1e-9)
    assert k(theta[:, 0], data) == value[0]
    close(k.grad(theta[:, 0], data), gradient[:, 0], 1e-13)
    close(k.hessian(theta[:, 0], data), k.hessian(theta, data)[0], 1e-10)


@pytest.mark.parametrize("p, q", [(2, 1), (3, 1)])
def test_carma_statsmodels(p, q):
    """Its filter, with a transition of each step."""
    filters = pytest.importorskip("statsmodels.tsa.statespace.kalman_filter")
    theta = carma_theta(p, q, 1)[:, 0]
    A, _, b, V = state_space(theta, p, q)
    F = [scipy.linalg.expm(A * gap) for gap in [*DATA[0, 1:], 0.0]]
    f = filters.KalmanFilter(k_endog=1, k_states=p, k_posdef=p, loglikelihood_burn=0)
    f.bind(np.asfortranarray(Y[None] - theta[-1]))
    f["transition"], f["state_cov"] = np.stack(F, axis=-1), np.stack([V - x @ V @ x.T for x in F], axis=-1)
    f["design"], f["selection"], f["obs_cov"] = b[None], np.eye(p), (VARIANCE + theta[-2])[None, None]
    f.initialize_known(np.zeros(p), V)
    f.tolerance = 0.0
    np.testing.assert_allclose(
        carma.process(p=p, q=q, jitter=True, mean=True)(theta, DATA), f.loglike(), rtol=1e-11
    )


def test_carma_in_multiple_precision():
    """CARMA(2, 1) and (3, 1) from the residues at complex roots; value and gradient of five points."""
    t, y, variance = [x[:10:2].copy() for x in (T, Y, VARIANCE)]
    data = celerite.light_curve(t, y, variance)
    with mpmath.workdps(50):
        t, y, variance = [[mpmath.mpf(x) for x in a.tolist()] for a in (t, y, variance)]
        for p, point in (
            (2, [0.8, 0.5, 0.3, 0.7]),
            (2, [0.2, 1.7, -0.4, 0.7]),
            (3, [0.8, 0.5, 1.4, 0.3, 0.7]),
        ):

            def exact(*theta):
                h = mpmath.sqrt(mpmath.mpc(theta[1] ** 2 / 4 - theta[0]))
                roots = [-theta[1] / 2 + h, -theta[1] / 2 - h] + [-theta[2]] * (p - 2)
                beta, total = lambda z: 1 + theta[p] * z, []
                for n, r in enumerate(roots):
                    below = mpmath.fprod([r - x for k, x in enumerate(roots) if k != n]) * mpmath.fprod(
                        [-r - x for x in roots]
                    )
                    total.append((theta[-1] ** 2 * beta(r) * beta(-r) / below, r))
                K = mpmath.matrix(5, 5)
                for i in range(5):
                    for j in range(5):
                        K[i, j] = (
                            mpmath.re(mpmath.fsum(a * mpmath.exp(r * abs(t[i] - t[j])) for a, r in total))
                            + (i == j) * variance[i]
                        )
                column = mpmath.matrix(y)
                return (
                    -(column.T * mpmath.lu_solve(K, column))[0] / 2
                    - mpmath.log(mpmath.det(K)) / 2
                    - 2.5 * mpmath.log(2 * mpmath.pi)
                )

            value, gradient = carma.process(p=p, q=1).value_and_grad(np.array(point), data)
            at = [mpmath.mpf(x) for x in point]
            np.testing.assert_allclose(value, float(exact(*at)), rtol=1e-13)
            slope = [
                float(mpmath.diff(exact, at, tuple([int(i == j) for i in range(len(at))])))
                for j in range(len(at))
            ]
            close(gradient, np.array(slope), 1e-11)  # fmt: skip


def test_damped_random_walk():
    """CARMA(1, 0) in closed form; float32 too."""
    theta = np.array([[0.2, 1.5], [0.6, 0.9]])
    k = carma.process(p=1)
    for b in range(2):
        rate, sigma = theta[:, b]
        K = sigma**2 / (2 * rate) * np.exp(-rate * np.abs(T[:, None] - T)) + np.diag(VARIANCE)
        np.testing.assert_allclose(k(theta, DATA)[b], log_density(K, Y), rtol=1e-12)
    value, gradient = k.value_and_grad(theta.astype(np.float32), DATA.astype(np.float32))
    assert value.dtype == gradient.dtype == np.float32
    close(value, k(theta, DATA), 1e-5)
    close(gradient, k.grad(theta, DATA), 1e-4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "row, wrong",
    [(0, 0.0), (1, -0.1), (2, -1.0), (4, 0.0), (4, -1.0), (3, np.nan), (3, np.inf), (5, -0.1), (6, np.nan)],
)
def test_carma_that_is_not_valid(row, wrong):
    k, theta = carma.process(p=3, q=1, jitter=True, mean=True), carma_theta(3, 1, 4)
    value, gradient = k.value_and_grad(theta, DATA)
    bad, others = theta.copy(), np.arange(4) != 2
    bad[row, 2] = wrong
    v, g = k.value_and_grad(bad, DATA)
    assert v[2] == -np.inf and not g[:, 2].any() and not k.hvp(bad, np.ones_like(bad), DATA)[:, 2].any()
    close(v[others], value[others])
    close(g[:, others], gradient[:, others])
    assert not tg.grad(lambda x: np.where(np.isfinite(k(x, DATA)), k(x, DATA), 0.0).sum())(bad)[:, 2].any()
    v, g = k.options(invalid="nan").value_and_grad(bad, DATA)
    assert np.isnan(v[2]) and np.isnan(g[:, 2]).all() and np.isfinite(g[:, others]).all()


def test_carma_where_roots_of_factors_meet():
    """As long as it has a value, the gradient has six digits; closer, and in the meeting, it has none."""
    k = carma.process(p=3, q=1)
    seen = []
    for apart in (0.1, 0.01, 5e-3, 2e-3, 1e-3, 1e-6, 0.0):
        theta = np.array([2.0, 3.0, 1.0 + apart, 0.3, 1.0])  # roots -1, -2 and -1 - apart
        value, gradient = k.value_and_grad(theta, DATA)
        seen.append(np.isfinite(value))
        if seen[-1]:
            f = lambda x: filtered(np.array([*x, 0.0, 0.0]), 3, 1, DATA)
            h = 1e-4
            slope = np.array(
                [
                    8 * (f(theta + h * e) - f(theta - h * e)) - f(theta + 2 * h * e) + f(theta - 2 * h * e)
                    for e in np.eye(5)
                ]
            )
            np.testing.assert_allclose(value, f(theta), rtol=1e-8)
            close(gradient, slope / (12 * h), 1e-6)
        else:
            assert value == -np.inf and not gradient.any()
    assert seen == [True] * 3 + [False] * 4


def test_roots_that_meet_within_a_factor():
    """CARMA(2, 1) is smooth there."""
    k, h = carma.process(p=2, q=1), 1e-5
    theta = np.array([[0.25, 0.25, 0.25 - 1e-9, 0.25 + 1e-9], [1.0] * 4, [0.3] * 4, [0.8] * 4])
    theta = np.concatenate([theta, np.zeros((2, 4))])
    value, gradient = k.value_and_grad(theta[:4], DATA)
    close(value, [filtered(th, 2, 1, DATA) for th in theta.T], 1e-9)
    for n in range(4):
        v = h * np.eye(6)[n][:, None]
        moved = zip((theta + v).T, (theta - v).T, strict=True)
        close(
            gradient[n],
            [(filtered(a, 2, 1, DATA) - filtered(b, 2, 1, DATA)) / (2 * h) for a, b in moved],
            1e-6,
        )


def test_wrong_carma():
    for wrong in ({"p": 1, "q": 1}, {"p": 0}, {"p": 13}, {"p": 2.0}, {"p": 2, "q": -1}):
        with pytest.raises(ArgumentError, match="0 <= q < p <= 12"):
            carma.process(**wrong)
    k = carma.process(p=2, q=1)
    assert carma.process(p=2, q=1) is k and repr(k) == "<kernel carma(2, 1)>"
    with pytest.raises(
        ShapeError, match=r"carma\(2, 1\): theta has shape \(3, 2\); wanted is \(4, B\) or \(4,\)"
    ):
        k(np.ones((3, 2)), DATA)
    with pytest.raises(ShapeError, match=r"carma\(2, 1\): the data have shape \(40,\)"):
        k(np.ones((4, 2)), Y)
    assert k([1.0, 1, 1, 1], DATA) == k(np.ones((4, 1)), DATA)[0] and k.terms([1.0, 1, 1, 1]).shape == (4,)
    with pytest.raises(ShapeError, match="hvp: v has shape"):
        k.hvp(np.ones((4, 2)), np.ones((4, 3)), DATA)
    with pytest.raises(ArgumentError, match="complex128"):
        k.grad(np.ones((4, 2)) + 0j, DATA)
    with pytest.raises(ArgumentError, match="invalid="):
        k.options(invalid="raise")
    with pytest.raises(ArgumentError, match="the data hold inf"):
        k(np.ones((4, 2)), np.where(DATA == DATA[1, 3], np.inf, DATA))
    empty = k.value_and_grad(np.ones((4, 0)), DATA)
    assert empty[0].shape == (0,) and empty[1].shape == (4, 0)


@pytest.mark.long
def test_both_libraries(device):
    agrees(carma.process(p=3, q=1, mean=True), carma_theta(3, 1, 300)[[0, 1, 2, 3, 4, 6]], device)
