"""Laplace's method: exact Gaussian integrals, quadrature, differences, many latents, and bad input."""

import time

import numpy as np
import pytest
import scipy.sparse
import scipy.special
import scipy.stats

import tapegrad as tg
from tapegrad.errors import ArgumentError, ConvergenceError, NotPositiveDefiniteError, RouteError

RANDOM = np.random.default_rng(2)
LOG2PI = np.log(2 * np.pi)


def normal(e, sd):
    return (-0.5 * (e / sd) ** 2 - np.log(sd) - 0.5 * LOG2PI).sum()


def ar1(theta, z):
    """The density of an AR(1) process: correlation tanh theta[0], standard deviation exp theta[1] of the
    changes."""
    phi, sd = np.tanh(theta[0]), np.exp(theta[1])
    return normal(z[1:] - phi * z[:-1], sd + 0 * z[1:]) + normal(z[:1], sd / np.sqrt(1 - phi**2) + 0 * z[:1])


def gaussian(theta, z, y):
    return ar1(theta, z) + normal(y - z - theta[2], 0.5 + 0 * y)


def exact_gaussian(theta, y):
    phi, sd, n = np.tanh(theta[0]), np.exp(theta[1]), len(y)
    lag = abs(np.arange(n)[:, None] - np.arange(n))
    cov = sd**2 / (1 - phi**2) * phi**lag + 0.25 * np.eye(n)
    return (
        -0.5 * np.linalg.slogdet(cov)[1]
        - 0.5 * (y - theta[2]) @ np.linalg.solve(cov, y - theta[2])
        - 0.5 * n * LOG2PI
    )


def poisson(theta, z, y):
    rate = theta[2] + z
    return ar1(theta, z) + (y * rate - np.exp(rate)).sum()


THETA = np.array([0.6, -0.4, 0.3])
Y = RANDOM.normal(size=12)
COUNTS = RANDOM.poisson(2.0, 40).astype(float)


def differences(f, x, h=1e-3):
    """Of the sixth order."""
    at = lambda e: (
        f(x + 3 * h * e)
        - 9 * f(x + 2 * h * e)
        + 45 * f(x + h * e)
        - (f(x - 3 * h * e) - 9 * f(x - 2 * h * e) + 45 * f(x - h * e))
    )
    return np.array([at(e) / (60 * h) for e in np.eye(x.size)])


def test_gaussian_models_are_exact():
    """Value, gradient, Hessian and a third derivative, by reverse and forward mode."""
    f, exact = lambda th: tg.laplace(gaussian, th, np.zeros(12), Y), lambda th: exact_gaussian(th, Y)
    for g in (f, tg.sparse.prepare_laplace(gaussian, THETA, np.zeros(12), Y)):
        np.testing.assert_allclose(g(THETA), exact(THETA), rtol=1e-12)
        np.testing.assert_allclose(tg.grad(g)(THETA), tg.grad(exact)(THETA), rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(tg.hessian(g)(THETA), tg.hessian(exact)(THETA), rtol=1e-9, atol=1e-10)
        v = np.array([0.3, -1.0, 0.7])
        np.testing.assert_allclose(tg.jvp(g, (THETA,), (v,))[1], tg.grad(exact)(THETA) @ v, rtol=1e-10)
        third = lambda f: tg.jvp(lambda th: tg.grad(lambda th: tg.grad(f)(th) @ v)(th), (THETA,), (v,))[1]
        np.testing.assert_allclose(third(g), third(exact), rtol=1e-8, atol=1e-9)


def test_poisson_against_differences():
    """Whole marginals at other parameters, each with its own mode, know nothing of the derivatives."""
    f = tg.sparse.prepare_laplace(poisson, THETA, np.zeros(40), COUNTS)
    g = tg.grad(f)(THETA)
    np.testing.assert_allclose(g, differences(f, THETA), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(tg.hessian(f)(THETA), differences(tg.grad(f), THETA), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        tg.grad(lambda th: tg.laplace(poisson, th, np.zeros(40), COUNTS))(THETA), g, rtol=1e-9
    )
    prepared = tg.prepare(f, THETA)
    np.testing.assert_allclose(prepared.grad(THETA + 0.1), tg.grad(f)(THETA + 0.1), rtol=1e-9)


def test_mode_and_standard_errors():
    value, (mode, errors) = tg.laplace(poisson, THETA, np.zeros(40), COUNTS, has_aux=True)
    np.testing.assert_allclose(tg.grad(poisson, 1)(THETA, mode, COUNTS), 0.0, atol=1e-10)
    H = -tg.hessian(poisson, 1)(THETA, mode, COUNTS)
    np.testing.assert_allclose(errors, np.sqrt(np.diagonal(np.linalg.inv(H))), rtol=1e-10)
    expected = poisson(THETA, mode, COUNTS) - 0.5 * np.linalg.slogdet(H)[1] + 20 * LOG2PI
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    sensitivity = tg.jacobian(lambda th: tg.laplace(poisson, th, np.zeros(40), COUNTS, has_aux=True)[1][0])(
        THETA
    )
    cross = tg.jacobian(lambda th: tg.grad(poisson, 1)(th, mode, COUNTS))(THETA)
    np.testing.assert_allclose(sensitivity, np.linalg.solve(H, cross), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("count, bound", [(5, 0.02), (500, 2e-4)])
def test_against_quadrature(count, bound):
    """One latent with `count` observations: the error of the approximation falls as 1 / count."""
    y = RANDOM.poisson(3.0, count).astype(float)
    joint = lambda th, z, y: normal(z - th, 1.0 + 0 * z) + (y * z - np.exp(z)).sum()
    grid = np.linspace(-3, 5, 400001)
    logs = -0.5 * (grid - 0.7) ** 2 - 0.5 * LOG2PI + y.sum() * grid - count * np.exp(grid)
    by_quadrature = logs.max() + np.log(np.trapezoid(np.exp(logs - logs.max()), grid))
    assert abs(tg.laplace(joint, 0.7, np.zeros(1), y) - by_quadrature) < bound


@pytest.mark.long
def test_spatial_field_and_crossed_effects():
    """A mesh, and two factors whose Hessian has dense blocks: against dense linear algebra."""
    k = 6
    T = scipy.sparse.diags_array(
        [np.full(k - 1, -1.0), np.full(k, 2.0), np.full(k - 1, -1.0)], offsets=[-1, 0, 1]
    )
    Q = (
        scipy.sparse.kron(T, scipy.sparse.eye_array(k)) + scipy.sparse.kron(scipy.sparse.eye_array(k), T)
    ).tocsr()
    y = RANDOM.poisson(2.0, k * k).astype(float)
    w, _ = np.linalg.eigh(Q.toarray())

    def field(th, z, y):
        prior = (
            0.5 * np.log(np.exp(th[1]) + w).sum()
            + 0.5 * k * k * th[0]
            - 0.5 * np.exp(th[0]) * (z @ (Q @ z) + np.exp(th[1]) * (z @ z))
        )
        return prior - 0.5 * k * k * LOG2PI + (y * z - np.exp(z)).sum()

    first, second = RANDOM.integers(0, 7, 60), RANDOM.integers(0, 5, 60)
    hits = RANDOM.integers(0, 2, 60).astype(float)

    def crossed(th, z, hits):
        eta = z[first] + z[7 + second]
        likelihood = (hits * eta - np.log1p(np.exp(eta))).sum()
        return (
            likelihood + normal(z[:7], np.exp(th[0]) + 0 * z[:7]) + normal(z[7:], np.exp(th[1]) + 0 * z[7:])
        )

    for joint, n, data in ((field, k * k, y), (crossed, 12, hits)):
        th = np.array([0.2, -0.3])
        f = tg.sparse.prepare_laplace(joint, th, np.zeros(n), data)
        value, (mode, _) = f(th, has_aux=True)
        H = -tg.hessian(joint, 1)(th, mode, data)
        np.testing.assert_allclose(
            value, joint(th, mode, data) - 0.5 * np.linalg.slogdet(H)[1] + 0.5 * n * LOG2PI, rtol=1e-12
        )
        np.testing.assert_allclose(tg.grad(f)(th), differences(f, th), rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(tg.hessian(f)(th), differences(tg.grad(f), th), rtol=1e-8, atol=1e-8)


LIKELIHOODS = {
    "logistic": lambda y, eta: y * eta - np.log1p(np.exp(eta)),
    "stable logistic": lambda y, eta: (
        y * eta - np.where(eta > 0, eta + np.log1p(np.exp(-abs(eta))), np.log1p(np.exp(eta)))
    ),
    "negative binomial": lambda y, eta: (
        scipy.special.gammaln(y + np.exp(0.1 * eta)) + y * eta - (y + 2) * np.log(2 + np.exp(eta))
    ),
    "Bessel": lambda y, eta: -((y - eta) ** 2) + scipy.special.jv(1, 0.1 * eta),
    "sorted": lambda y, eta: -((y - eta) ** 2) - np.log1p(np.exp(np.sort(eta))),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("negative binomial", "sorted") else pytest.mark.long)
        for name in LIKELIHOODS
    ],
)
def test_crossed_effects_of_many_colours(name):
    """The entries as operations on arrays: against differences and dense algebra; data are read anew."""
    rng, a, b, count = np.random.default_rng(3), 24, 21, 400
    i, j = rng.integers(0, a, count), rng.integers(0, b, count)
    y, likelihood = rng.poisson(1.0, count).astype(float), LIKELIHOODS[name]

    def joint(th, z, y):
        u, v = z[:a], z[a:]
        eta = th[2] + np.exp(th[0]) * u[i] + v[j]
        return likelihood(y, eta).sum() - 0.5 * (u @ u) - 0.5 * (v @ v) * np.exp(-2 * th[1]) - b * th[1]

    th, z0 = np.array([-0.7, -0.9, 0.5]), np.zeros(a + b)
    f = tg.sparse.prepare_laplace(joint, th, z0, y)
    assert f.mode.plan.colors > 16 and f.mode.has_terms == (name != "sorted")
    value, (mode, _) = f(th, has_aux=True)
    H = -tg.hessian(joint, 1)(th, mode, y)
    dense = joint(th, mode, y) - 0.5 * np.linalg.slogdet(H)[1] + 0.5 * z0.size * LOG2PI
    np.testing.assert_allclose(value, dense, rtol=1e-12)
    np.testing.assert_allclose(tg.hessian(f)(th), differences(tg.grad(f), th), rtol=1e-6, atol=1e-6)
    each = [tg.hvp(f, th, e) for e in np.eye(3)]
    np.testing.assert_allclose(tg.hessian(f)(th), each, rtol=1e-9, atol=1e-9)
    for _ in range(2):
        np.testing.assert_allclose(tg.grad(f)(th), differences(f, th), rtol=1e-7, atol=1e-7)
        y += 0.1


@pytest.mark.long
def test_a_field_by_a_sparse_matrix_and_places_among_the_data():
    """A precision as a sparse matrix keeps the Hessian's pattern; so do indices that are data."""
    k = 40
    T = scipy.sparse.diags_array([-np.ones(k - 1), 2 * np.ones(k), -np.ones(k - 1)], offsets=[-1, 0, 1])
    eye = scipy.sparse.eye_array(k)
    Q = (scipy.sparse.kron(T, eye) + scipy.sparse.kron(eye, T)).tocsr()
    unit, at = scipy.sparse.eye_array(k * k).tocsr(), RANDOM.integers(0, k * k, 900)
    y = RANDOM.poisson(2.0, at.size).astype(float)

    def joint(th, z, y, at):
        P = np.exp(th[0]) * (Q + np.exp(th[1]) * unit)
        prior = 0.5 * tg.sparse.cholesky(P).logdet() - 0.5 * z @ (P @ z)
        return prior + (y * z[at] - np.exp(z[at])).sum() - 0.5 * k * k * LOG2PI

    th = np.array([0.2, -0.3])
    f = tg.sparse.prepare_laplace(joint, th, np.zeros(k * k), y, at)
    assert f.mode.plan.pattern.nnz == Q.nnz
    value, (mode, _) = f(th, has_aux=True)
    P = np.exp(th[0]) * (Q.toarray() + np.exp(th[1]) * np.eye(k * k))
    H = P + np.diag(np.bincount(at, np.exp(mode[at]), k * k))
    expected = 0.5 * np.linalg.slogdet(P)[1] - 0.5 * mode @ P @ mode + (y * mode[at] - np.exp(mode[at])).sum()
    np.testing.assert_allclose(value, expected - 0.5 * np.linalg.slogdet(H)[1], rtol=1e-12)
    np.testing.assert_allclose(tg.grad(f)(th), differences(f, th), rtol=1e-8, atol=1e-8)
    y[:] = y[::-1].copy()  # data are read at each call
    np.testing.assert_allclose(f(th), tg.laplace(joint, th, np.zeros(k * k), y, at), rtol=1e-12)
    at[:] = at[::-1].copy()  # but not places, which decide the pattern
    with pytest.raises(ArgumentError, match="have changed"):
        f(th)


def test_history_does_not_matter():
    """A factor of the call before serves while it shrinks the steps; the mode does not depend on it."""
    k = 12
    y = RANDOM.poisson(2.0, (k, k)).astype(float)

    def joint(th, z, y):
        q = ((z[1:] - z[:-1]) ** 2).sum() + ((z[:, 1:] - z[:, :-1]) ** 2).sum() + np.exp(th[1]) * (z**2).sum()
        return (y * z - np.exp(z)).sum() - 0.5 * np.exp(th[0]) * q

    f = tg.sparse.prepare_laplace(joint, np.zeros(2), np.zeros((k, k)), y)
    assert f.mode.analysis.is_filled
    for th in np.array(
        [[0.0, 0.0], [0.0, 0.0], [0.01, 0.0], [1.0, -3.0], [4.0, 2.0], [-6.0, -6.0], [0.0, 0.0]]
    ):
        value, (mode, _) = f(th, has_aux=True)
        fresh, (own, _) = tg.laplace(joint, th, np.zeros((k, k)), y, has_aux=True)
        np.testing.assert_allclose(mode, own, rtol=0, atol=1e-13 * max(1.0, abs(own).max()))
        np.testing.assert_allclose(value, fresh, rtol=1e-14)


def test_trees_shapes_and_samples():
    joint = lambda th, z, y: (
        normal(y - z, np.exp(th["noise"]) + 0 * y) + normal(z - th["mean"][0], 1.0 + 0 * z)
    )
    y = RANDOM.normal(size=(3, 2))
    tree = {"noise": 0.1, "mean": np.array([0.5])}
    f = tg.sparse.prepare_laplace(joint, tree, np.zeros((3, 2)), y)
    exact = lambda th: normal(y - th["mean"][0], np.sqrt(1 + np.exp(2 * th["noise"])) + 0 * y)
    value, g = tg.value_and_grad(f)(tree)
    expected = tg.grad(exact)(tree)
    np.testing.assert_allclose(value, exact(tree), rtol=1e-12)
    assert abs(g["noise"] - expected["noise"]) < 1e-10 and abs(g["mean"] - expected["mean"]).max() < 1e-10
    assert f(tree, has_aux=True)[1][0].shape == (3, 2)
    many = tg.sparse.prepare_laplace(gaussian, THETA, np.zeros(12), Y)
    points = THETA + 0.1 * RANDOM.normal(size=(5, 3))
    np.testing.assert_allclose(tg.vmap(many)(points), [exact_gaussian(th, Y) for th in points], rtol=1e-11)
    np.testing.assert_allclose(
        tg.vmap(tg.grad(many))(points), [tg.grad(many)(th) for th in points], rtol=1e-9
    )


def test_indefinite_hessians_far_from_the_mode():
    """Student errors: far out the log-joint is not concave, and plain Newton steps diverge."""
    y = np.array([0.3, -0.2, 8.0])
    joint = lambda s, z, y: (
        -2.5 * np.log1p(((y - z) / s) ** 2 / 4).sum() - 3 * np.log(s) + normal(z, 3.0 + 0 * z)
    )
    start = np.array([30.0, -25.0, -40.0])
    value, (mode, _) = tg.laplace(joint, 1.0, start, y, has_aux=True)
    np.testing.assert_allclose(tg.grad(joint, 1)(1.0, mode, y), 0.0, atol=1e-9)
    assert np.linalg.eigvalsh(-tg.hessian(joint, 1)(1.0, mode, y)).min() > 0
    f = lambda s: tg.laplace(joint, s, start, y)
    assert abs(tg.grad(f)(1.0) - (f(1.0 + 1e-5) - f(1.0 - 1e-5)) / 2e-5) < 1e-7


@pytest.mark.long
def test_hundred_thousand_latents():
    """Work grows linearly: four times the latents take at most eight times as long. (Both problems are
    larger than the caches of a processor.)"""
    took, values = [], []
    for n in (25_000, 100_000):
        y = np.random.default_rng(0).poisson(2.0, n).astype(float)
        f = tg.sparse.prepare_laplace(poisson, THETA, np.zeros(n), y)
        tg.value_and_grad(f)(THETA)
        times = []
        for k in range(3):
            begin = time.process_time()
            value, g = tg.value_and_grad(f)(THETA + 1e-3 * k)
            times.append(time.process_time() - begin)
        took.append(min(times))
        values.append(value / n)
        v = np.array([1.0, -0.5, 0.3])
        along = (f(THETA + 2e-3 + 1e-4 * v) - f(THETA + 2e-3 - 1e-4 * v)) / 2e-4
        assert abs(g @ v - along) < 1e-7 * abs(along) + 1e-4
    assert abs(values[0] - values[1]) < 0.02 and took[1] < 8 * took[0]


NOT_CONCAVE = lambda th, z: (z**2).sum() * th
SHARED = np.ones(3)


def test_failures_are_loud():
    z = np.zeros(3)
    with pytest.raises((ConvergenceError, NotPositiveDefiniteError)):
        tg.laplace(NOT_CONCAVE, 1.0, z + 0.1)
    with pytest.raises(NotPositiveDefiniteError, match="some of which it does not hold"):
        tg.laplace(lambda th, z: -th * (z[:2] ** 2).sum(), 1.0, z)
    with pytest.raises(ConvergenceError, match="not finite at z0"):
        tg.laplace(lambda th, z: -th * (np.log(z) ** 2).sum(), 1.0, z)
    with pytest.raises(ConvergenceError, match="Newton steps"):
        tg.laplace(lambda th, z: -np.exp(-th * z).sum(), 1.0, z)  # a mode at infinity
    with pytest.raises(ArgumentError, match="data carry derivatives"):
        tg.grad(lambda y: tg.laplace(gaussian, THETA, np.zeros(12), y))(Y)
    with pytest.raises(ArgumentError, match="one array of latents"):
        tg.laplace(lambda t, z: -t * (z["u"] ** 2).sum(), 1.0, {"u": np.zeros(2)})
    with pytest.raises(ArgumentError, match="no number"):
        tg.laplace(gaussian, THETA, np.zeros(0), Y)
    with pytest.raises(ArgumentError, match="its shapes"):
        tg.sparse.prepare_laplace(gaussian, THETA, np.zeros(12), Y)(THETA[:2])
    named = tg.sparse.prepare_laplace(
        lambda th, z: -(th["a"] ** th["k"]) * ((z - th["b"]) ** 2).sum(), {"a": 1.0, "b": 2.0, "k": 2}, z
    )
    assert abs(named({"a": 3.0, "b": 1.0, "k": 2}) - 1.5 * np.log(np.pi / 9)) < 1e-12
    for other in (
        {"b": 2.0, "a": 1.0, "k": 2},
        {"a": 1.0, "b": 2.0, "k": 3},
        {"a": 1.0, "b": 2.0, "k": 2.0},
        [1.0, 2.0, 2],
    ):
        with pytest.raises(ArgumentError, match="theta differs"):
            named(other)
    with pytest.raises(ArgumentError, match="vmap and recording"):
        tg.vmap(lambda th: tg.laplace(gaussian, th, np.zeros(12), Y))(THETA[None])
    with pytest.raises(ArgumentError, match="open transform"):
        tg.grad(lambda s: tg.laplace(lambda th, z: -s * (z**2).sum() * th, 1.0, z))(1.0)
    f = tg.sparse.prepare_laplace(lambda th, z: -(SHARED * z**2).sum() * th, 1.0, z)

    def outer(th):
        SHARED[0] = th
        return f(th)

    with pytest.raises(RouteError, match="SHARED"):
        tg.grad(outer)(2.0)
