"""Generated kernels: derivatives by the data, contributions and final carries, scores, second order, inner
loops."""

import re
import tracemalloc

import numpy as np
import pytest
from _cuda_host import needs_compiler
from _kernel_cases import case
from comparison import close
from kernel_on_host import on_host
from kernel_programs import GAUSSIAN, GRADIENT, THETA, X, kernels, random_program
from kernel_recursions import DIFFUSE, KNOWN, MODELS, NILE, POINTS, summed

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.errors import ArgumentError, KernelError, ShapeError
from tapegrad.kernels import emit_cuda
from tapegrad.kernels.emit.lower import lower_program
from tapegrad.kernels.generated.arguments import with_ways
from tapegrad.kernels.launch import cpu, waiting
from tapegrad.kernels.launch.cpu import Launcher
from tapegrad.kernels.launch.cuda import cubin

pytestmark = pytest.mark.one_in(4)  # its cases compile

RNG = np.random.default_rng(0)


# --- derivatives by the data ---


def by_tape(theta, x):
    """GAUSSIAN by array operations: x (2, N) or (2, N, B)."""
    mu1, mu2, s1, s2 = (theta[k][:, None] for k in range(4))
    a, b = (x[0], x[1]) if x.ndim == 2 else (x[0].T, x[1].T)
    np_ = tg.numpy
    terms = (
        -0.5 * ((a - mu1) / s1) ** 2
        - 0.5 * ((b - mu2) / s2) ** 2
        - np_.log(s1)
        - np_.log(s2)
        - np.log(2 * np.pi)
    )
    return terms.sum(axis=1)


EACH = X[:, :, None] + 0.1 * RNG.normal(size=(2, 5, 3))


def nested(f, theta, data, seed=3):
    """First derivatives by both arguments; the four second orders, each direction and result over both; one
    third order."""
    rng = np.random.default_rng(seed)
    u, v = ((rng.normal(size=theta.shape), rng.normal(size=data.shape)) for _ in range(2))
    g = tg.grad(f, (0, 1))
    dot = lambda a, b: (a[0] * b[0]).sum() + (a[1] * b[1]).sum()
    slope = lambda *x: tg.jvp(f, x, u)[1]
    twice = lambda *x: dot(g(*x), u)
    yield f(theta, data)
    yield from g(theta, data)
    yield slope(theta, data)
    yield from tg.grad(twice, (0, 1))(theta, data)
    yield from tg.jvp(g, (theta, data), u)[1]
    yield from tg.grad(slope, (0, 1))(theta, data)
    yield tg.jvp(slope, (theta, data), v)[1]
    yield from tg.grad(lambda *x: tg.jvp(slope, x, v)[1], (0, 1))(theta, data)
    yield from tg.grad(lambda *x: dot(tg.grad(twice, (0, 1))(*x), v), (0, 1))(theta, data)


def agree(f, reference, theta, data, tolerance=1e-10):
    for a, b in zip(nested(f, theta, data), nested(reference, theta, data), strict=True):
        close(tg.value(a), tg.value(b), tolerance)


@pytest.mark.long
@pytest.mark.parametrize("data", [X, EACH], ids=["shared", "of each sample"])
def test_data_in_all_nestings(data):
    weights = np.array([1.0, -0.5, 2.0])
    loss = lambda f: lambda theta, x: 1e-3 * (weights * f(theta, x) ** 2).sum()
    agree(loss(GAUSSIAN), loss(by_tape), THETA, data)


def test_data_gradient_in_closed_form():
    w = np.array([1.0, 3.0, -2.0])
    found = tg.grad(lambda x: (w * GAUSSIAN(THETA, x)).sum())(X)
    expected = np.stack([(w * -(X[k][:, None] - THETA[k]) / THETA[2 + k] ** 2).sum(axis=1) for k in range(2)])
    close(found, expected)
    each = tg.grad(lambda x: (w * GAUSSIAN(THETA, x)).sum())(np.repeat(X[:, :, None], 3, axis=2))
    assert each.shape == (2, 5, 3)
    close(each.sum(axis=2), expected)
    one = tg.grad(lambda x: GAUSSIAN(THETA[:, 0], x))(X)
    close(one, -(X - THETA[:2, :1]) / THETA[2:, :1] ** 2)


def test_derivative_of_the_score_by_the_data():
    """d2 logL / d mu d x = 1 / sigma^2, d2 logL / d sigma d x = 2 (x - mu) / sigma^3."""
    J = tg.jacobian(lambda x: GAUSSIAN.value_and_grad(THETA, x)[1])(X)
    expected = np.zeros((4, 3, 2, 5))
    for k in range(2):
        expected[k, :, k] = 1 / THETA[2 + k][:, None] ** 2
        expected[2 + k, :, k] = 2 * (X[k] - THETA[k][:, None]) / THETA[2 + k][:, None] ** 3
    close(J, expected)
    v = RNG.normal(size=X.shape)
    close(
        tg.jvp(lambda x: GAUSSIAN.grad(THETA, x), (X,), (v,))[1], np.einsum("ibdn,dn->ib", expected, v), 1e-11
    )


@pytest.mark.long
def test_numbers_as_data():
    k = kernels.likelihood(lambda theta, y: -np.exp(theta[0]) * (y - theta[1]) ** 2 + np.sin(y * theta[1]))
    f = lambda theta, y: (
        -tg.numpy.exp(theta[0][:, None]) * (y - theta[1][:, None]) ** 2 + tg.numpy.sin(y * theta[1][:, None])
    ).sum(1)
    theta, y = RNG.normal(size=(2, 4)), RNG.normal(size=6)
    agree(lambda t, x: (k(t, x) ** 2).sum(), lambda t, x: (f(t, x) ** 2).sum(), theta, y)


@pytest.mark.parametrize("name", ["garch", "hidden Markov", "kalman cholesky"])
@pytest.mark.parametrize("each", [False, pytest.param(True, marks=pytest.mark.long)])
def test_data_of_recursions(name, each):
    init, step, theta, data = MODELS[name]()
    data = np.atleast_2d(data)[:, :6]
    scalar = data.shape[0] == 1
    plain, k = (
        summed(init, (lambda c, th, y: step(c, th, y[0])) if scalar else step),
        kernels.recursion(init, step),
    )
    if scalar:
        k = kernels.recursion(init, lambda c, th, y: step(c, th, y[0]))
    many = theta[:, None] + 0.05 * np.random.default_rng(9).normal(size=(theta.size, 3))
    w = np.array([1.0, 0.5, -2.0])
    x = data[:, :, None] + 0.1 * np.random.default_rng(5).normal(size=(*data.shape, 3)) if each else data

    def reference(theta, x):
        return sum(w[b] * plain(theta[:, b], x[:, :, b] if each else x) for b in range(3))

    rng = np.random.default_rng(4)
    u, v = rng.normal(size=many.shape), rng.normal(size=x.shape)
    loss = lambda theta, x: (w * k(theta, x)).sum()
    for f in (lambda f: tg.grad(f, (0, 1))(many, x), lambda f: tg.jvp(f, (many, x), (u, v))[1:]):
        for a, b in zip(f(loss), f(reference), strict=True):
            close(a, b, 1e-10)
    ours = tg.jvp(tg.grad(loss, (0, 1)), (many, x), (u, v))[1]
    theirs = tg.jvp(tg.grad(reference, (0, 1)), (many, x), (u, v))[1]
    again = tg.grad(
        lambda *a: sum((g * t).sum() for g, t in zip(tg.grad(loss, (0, 1))(*a), (u, v), strict=True)), (0, 1)
    )(many, x)
    for a, b, c in zip(ours, theirs, again, strict=True):
        close(a, b, 1e-9)
        close(c, b, 1e-9)


def test_a_missing_datum_has_derivative_zero():
    y = NILE.copy()
    y[[3, 50]] = np.nan
    f = lambda theta, y: (KNOWN(theta, y) * np.array([1.0, 2.0])).sum()
    slope = tg.grad(f, 1)(POINTS, y)
    assert np.array_equal(slope == 0, np.isnan(y)) and np.isfinite(slope).all()
    h = 1e-3
    for t in (0, 4, 99):
        e = h * (np.arange(100) == t)
        np.testing.assert_allclose(slope[t], (f(POINTS, y + e) - f(POINTS, y - e)) / (2 * h), rtol=1e-6)
    v = np.ones(100)
    close(tg.jvp(lambda y: f(POINTS, y), (y,), (v,))[1], slope.sum(), 1e-12)
    second = tg.jvp(tg.grad(f, (0, 1)), (POINTS, y), (np.ones((2, 2)), v))[1]
    assert np.isfinite(second[0]).all() and np.array_equal(second[1] == 0, np.isnan(y))
    x = np.insert(X, 2, np.nan, axis=1)
    x[1, 2] = 3.0
    slope = tg.grad(lambda x: GAUSSIAN(THETA, x).sum())(x)
    assert np.all(slope[:, 2] == 0)
    close(np.delete(slope, 2, axis=1), tg.grad(lambda x: GAUSSIAN(THETA, x).sum())(X))


def test_missing_data_that_the_step_looks_for():
    def own(carry, theta, y):
        gone = np.isnan(y)
        level = np.where(gone, carry, carry + theta[0] * (y - carry))
        return level, np.where(gone, 0.0, -((y - carry) ** 2))

    k = kernels.recursion(lambda theta: theta[1], own, missing="step")
    skip = kernels.recursion(lambda theta: theta[1], own, missing="skip")
    y, theta = np.array([1.0, np.nan, 2.0, 0.5]), np.array([[0.3, 0.6], [0.0, 1.0]])
    found, expected = (tg.grad(lambda y, k=k: k(theta, y).sum())(y) for k in (k, skip))
    assert found[1] == 0 and np.isfinite(found).all()
    close(found, expected)


def test_invalid_samples_leave_the_data_alone():
    theta = THETA.copy()
    theta[2, 1] = -0.2
    slope = tg.grad(lambda x: GAUSSIAN(theta, x)[[0, 2]].sum())(X)
    close(slope, tg.grad(lambda x: GAUSSIAN(THETA[:, [0, 2]], x).sum())(X))
    each = tg.vjp(lambda x: GAUSSIAN(theta, x), np.repeat(X[:, :, None], 3, 2))[1](np.ones(3))
    assert np.all(each[:, :, 1] == 0)
    close(each[:, :, 0], -(X - THETA[:2, :1]) / THETA[2:, :1] ** 2)


@pytest.mark.parametrize("batch", [0, 1, 2, 5, 8, 9, 64, 331])
def test_sum_over_samples_for_every_batch_and_any_threads(batch, monkeypatch):
    theta = np.tile(THETA, 120)[:, :batch] + 0.01 * np.random.default_rng(1).random((4, batch))
    w = np.random.default_rng(2).normal(size=batch)
    gradient = lambda: tg.vjp(lambda x: GAUSSIAN(theta, x), X)[1](w)
    expected = np.stack([(w * -(X[k][:, None] - theta[k]) / theta[2 + k] ** 2).sum(axis=1) for k in range(2)])
    monkeypatch.setattr(waiting, "THREADS", 1)
    one = gradient()
    close(one, expected, 1e-11)
    monkeypatch.setattr(waiting, "THREADS", 3)
    monkeypatch.setattr(waiting, "THREADED_OPERATIONS", 0)
    assert np.array_equal(one, gradient())


def test_data_in_float32():
    x = X.astype(np.float32)
    slope = tg.grad(lambda x: GAUSSIAN(THETA.astype(np.float32), x).sum())(x)
    assert slope.dtype == np.float32
    np.testing.assert_allclose(slope, tg.grad(lambda x: GAUSSIAN(THETA, x).sum())(X), rtol=1e-5)
    mixed = tg.grad(lambda x: GAUSSIAN(THETA, x).sum())(x)
    assert mixed.dtype == np.float32


def test_memory_of_the_data_gradient_does_not_grow_with_the_batch():
    x = np.random.default_rng(0).random((2, 20_000))
    peaks = []
    for batch in (640, 3200):
        theta = np.tile(THETA[:, :2], batch // 2)
        pullback = tg.vjp(lambda x, theta=theta: GAUSSIAN(theta, x), x)[1]
        pullback(np.ones(batch))
        tracemalloc.start()
        pullback(np.ones(batch))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.05 * peaks[0] and peaks[1] < 3200 * x.nbytes / 20, peaks


def test_const_data_have_no_derivative_even_if_tracked():
    f = lambda x: GAUSSIAN(THETA, tg.Const(x)).sum() + x.sum()
    assert np.array_equal(tg.grad(f)(X), np.ones_like(X))
    assert tg.jvp(f, (X,), (X,))[1] == X.sum()


def test_data_that_do_not_matter():
    k = kernels.likelihood(lambda theta, x: theta[0] * 2.0)
    assert np.array_equal(tg.grad(lambda x: k(np.ones((1, 3)), x).sum())(np.ones(4)), np.zeros(4))
    k = kernels.likelihood(lambda theta, x: 3.0)
    assert np.array_equal(tg.grad(lambda x: k(np.ones((1, 3)), x).sum())(np.ones(4)), np.zeros(4))


# --- contributions, final carries, scores ---


def parts_of(init, step, missing=None):
    """The Python functions themselves, one sample: contributions (T,) and the final carry."""

    def f(theta, data):
        carry, terms = init(theta), []
        for t in range(data.shape[-1]):
            carry, term = step(carry, theta, data[..., t])
            terms.append(term)
        return tg.numpy.stack(terms), carry

    return f


@pytest.mark.long
@pytest.mark.parametrize("name", ["garch", "hidden Markov", "kalman solve", "written in place"])
def test_contributions_and_final_carry(name):
    init, step, theta, data = MODELS[name]()
    data = data[..., :7]
    plain, k = parts_of(init, step), kernels.recursion(init, step)
    many = theta[:, None] + 0.05 * np.random.default_rng(9).normal(size=(theta.size, 3))
    terms, final = k.contributions(many, data), k.final(many, data)
    assert terms.shape == (7, 3)
    close(terms.sum(axis=0), k(many, data))
    rng = np.random.default_rng(6)
    w = rng.normal(size=(7, 3))
    weights = [rng.normal(size=np.shape(leaf)) for leaf in leaves(final)]
    for b in range(3):
        expected, carry = plain(many[:, b], data)
        close(terms[:, b], tg.value(expected))
        for ours, theirs in zip(leaves(final), leaves(carry), strict=True):
            close(ours[..., b], tg.value(theirs))

    def loss(theta, x):
        ends = zip(weights, leaves(k.final(theta, x)), strict=True)
        return (w * k.contributions(theta, x) ** 2).sum() + sum((u * c).sum() for u, c in ends)

    def reference(theta, x):
        out = 0.0
        for b in range(3):
            terms, carry = plain(theta[:, b], x)
            out = out + (w[:, b] * terms**2).sum()
            out = out + sum((u[..., b] * c).sum() for u, c in zip(weights, leaves(carry), strict=True))
        return out

    u, v = rng.normal(size=many.shape), rng.normal(size=data.shape)
    for a, b in zip(tg.grad(loss, (0, 1))(many, data), tg.grad(reference, (0, 1))(many, data), strict=True):
        close(a, b, 1e-10)
    close(*[tg.jvp(f, (many, data), (u, v))[1] for f in (loss, reference)], 1e-10)
    for a, b in zip(
        *[tg.jvp(tg.grad(f, (0, 1)), (many, data), (u, v))[1] for f in (loss, reference)], strict=True
    ):
        close(a, b, 1e-9)


def test_contributions_of_a_likelihood():
    terms = GAUSSIAN.contributions(THETA, X)
    close(terms, [GAUSSIAN(THETA, X[:, [t]]) for t in range(5)])
    w = RNG.normal(size=(5, 3))
    found = tg.grad(lambda x: (w * GAUSSIAN.contributions(THETA, x)).sum())(X)
    close(
        found, np.stack([(w * -(X[k][:, None] - THETA[k]) / THETA[2 + k] ** 2).sum(axis=1) for k in range(2)])
    )
    close(
        tg.grad(lambda t: (w * GAUSSIAN.contributions(t, X)).sum())(THETA),
        np.einsum("nb,npb->pb", w, GAUSSIAN.scores(THETA, X)),
    )
    assert GAUSSIAN.contributions(THETA[:, 0], X).shape == (5,)


def nile_tree():
    init = lambda th: {"level": 0.0, "variance": 1e7}

    def step(carry, th, y):
        F, v = carry["variance"] + np.exp(th["obs"]), y - carry["level"]
        K = carry["variance"] / F
        P = carry["variance"] - K * carry["variance"] + np.exp(th["drift"])
        return {"level": carry["level"] + K * v, "variance": P}, -0.5 * (
            np.log(2 * np.pi) + np.log(F) + v * v / F
        )

    return kernels.recursion(init, step, missing="skip")


def test_trees_of_parameters_and_carries():
    k, theta = nile_tree(), {"obs": POINTS[0], "drift": POINTS[1]}
    close(k.contributions(theta, NILE).sum(axis=0), KNOWN(POINTS, NILE))
    end = k.final(theta, NILE)
    level, variance = KNOWN.final(POINTS, NILE)
    close(end["level"], level)
    close(end["variance"], variance)
    slope = tg.grad(lambda t: k.final(t, NILE)["level"].sum())(theta)
    expected = tg.grad(lambda t: KNOWN.final(t, NILE)[0].sum())(POINTS)
    close(slope["obs"], expected[0])
    close(slope["drift"], expected[1])
    with pytest.raises(ArgumentError, match="not as a dict"):
        k.scores(theta, NILE)


def test_forecast_with_missing_data():
    """Data that are missing at the end move only the variance: the final carry is the forecast."""
    y = np.append(NILE, [np.nan] * 5)
    (level, variance), (a, P) = KNOWN.final(POINTS, NILE), KNOWN.final(POINTS, y)
    assert np.array_equal(level, a)
    close(P, variance + 5 * np.exp(POINTS[1]))
    assert np.array_equal(KNOWN.contributions(POINTS, y)[100:], np.zeros((5, 2)))
    slope = tg.grad(lambda y: KNOWN.final(POINTS, y)[0].sum())(y)
    assert np.all(slope[100:] == 0) and np.all(slope[:100] > 0)
    one = KNOWN.final(POINTS[:, 0], NILE)
    assert one[0].shape == () and one[0] == level[0]
    assert KNOWN.contributions(POINTS[:, 0], NILE).shape == (100,)


def test_final_carry_of_nothing():
    a, P = KNOWN.final(POINTS, np.empty(0))
    assert np.array_equal(a, [0, 0]) and np.array_equal(P, [1e7, 1e7])
    assert KNOWN.contributions(POINTS, np.empty(0)).shape == (0, 2)
    assert KNOWN.contributions(POINTS[:, :0], NILE).shape == (100, 0)
    k = kernels.recursion(lambda theta: (theta[0] * 2, np.eye(2)), lambda c, theta, y: (c, y))
    twice, eye = k.final(np.array([[1.0, 3.0]]), np.ones(4))
    assert np.array_equal(twice, [2, 6]) and np.array_equal(eye, np.repeat(np.eye(2)[:, :, None], 2, 2))
    assert np.array_equal(
        tg.grad(lambda t: k.final(t, np.ones(4))[0].sum())(np.array([[1.0, 3.0]])), [[2, 2]]
    )


@pytest.mark.parametrize("name", ["garch", "kalman inv"])
def test_scores_and_fisher_of_recursions(name):
    init, step, theta, data = MODELS[name]()
    k = kernels.recursion(init, step)
    many = theta[:, None] + 0.05 * np.random.default_rng(9).normal(size=(theta.size, 3))
    s = k.scores(many, data)
    T, p = data.shape[-1], theta.size
    assert s.shape == (T, p, 3)
    close(s.sum(axis=0), k.grad(many, data), 1e-11)
    close(np.cumsum(s, axis=0)[4], k.grad(many, data[..., :5]), 1e-11)
    close(k.fisher(many, data), np.einsum("tib,tjb->bij", s, s))
    one = k.scores(theta, data)
    assert one.shape == (T, p) and k.fisher(theta, data).shape == (p, p)
    w = np.random.default_rng(2).normal(size=s.shape)
    h, v = 1e-6, np.random.default_rng(3).normal(size=many.shape)
    d = (w * (k.scores(many + h * v, data) - k.scores(many - h * v, data))).sum() / (2 * h)
    f = lambda t: (w * k.scores(t, data)).sum()
    np.testing.assert_allclose((tg.grad(f)(many) * v).sum(), d, rtol=1e-6)
    np.testing.assert_allclose(tg.jvp(f, (many,), (v,))[1], d, rtol=1e-6)
    each = k.scores(many, np.repeat(np.atleast_2d(data)[:, :, None], 3, 2)) if data.ndim == 2 else s
    close(each, s)


def test_scores_of_likelihoods_are_differentiable():
    w = RNG.normal(size=(5, 4, 3))
    f = lambda t, x: (w * GAUSSIAN.scores(t, x)).sum()

    def reference(t, x):
        return sum(
            (w[n] * tg.grad(lambda t, n=n: by_tape(t, x[:, n : n + 1]).sum())(t)).sum() for n in range(5)
        )

    for a, b in zip(tg.grad(f, (0, 1))(THETA, X), tg.grad(reference, (0, 1))(THETA, X), strict=True):
        close(a, b, 1e-11)
    u = RNG.normal(size=THETA.shape)
    close(tg.jvp(lambda t: f(t, X), (THETA,), (u,))[1], (tg.grad(f)(THETA, X) * u).sum(), 1e-11)
    close(GAUSSIAN.fisher(THETA[:, 0], X), GAUSSIAN.fisher(THETA, X)[0])
    gone = np.insert(X, 2, np.nan, axis=1)
    assert np.array_equal(np.delete(GAUSSIAN.scores(THETA, gone), 2, axis=0), GAUSSIAN.scores(THETA, X))
    assert np.all(GAUSSIAN.scores(THETA, gone)[2] == 0)


def test_scores_of_invalid_samples():
    theta = THETA.copy()
    theta[2, 1] = -0.2
    s = GAUSSIAN.scores(theta, X)
    assert np.all(s[:, :, 1] == 0)
    close(s[:, :, [0, 2]].sum(axis=0), GRADIENT[:, [0, 2]])
    k = kernels.recursion(lambda th: 0.0, lambda c, th, y: (th[0] * y, np.log(th[1]) - (y - c) ** 2))
    s = k.scores(np.array([[0.5, 0.5], [1.0, -1.0]]), np.ones(3))
    assert np.all(s[:, :, 1] == 0) and np.isfinite(s).all() and np.all(s[1:, 0, 0] != 0)


def test_hessian_is_differentiable():
    """Third derivatives: of a Gaussian, d3 logL / d mu d mu d sigma = 2 N / sigma^3."""
    D = tg.jacobian(lambda t: GAUSSIAN.hessian(t, X))(THETA)
    assert D.shape == (3, 4, 4, 4, 3)
    for b in range(3):
        close(D[b, 0, 0, 2, b], 10 / THETA[2, b] ** 3)
        close(D[b, 1, 1, 3, b], 10 / THETA[3, b] ** 3)
        assert np.all(D[b, ..., np.arange(3) != b] == 0)
    v = RNG.normal(size=X.shape)
    h = 1e-6
    difference = (GAUSSIAN.hessian(THETA, X + h * v) - GAUSSIAN.hessian(THETA, X - h * v)) / (2 * h)
    found = tg.jvp(lambda x: GAUSSIAN.hessian(THETA, x), (X,), (v,))[1]
    np.testing.assert_allclose(found, difference, rtol=1e-6, atol=1e-4)
    logdet = lambda t: tg.numpy.linalg.slogdet(-GAUSSIAN.hessian(t, X))[
        1
    ].sum()  # as a Laplace approximation needs
    e = np.zeros_like(THETA)
    e[2, 0] = 1e-6
    np.testing.assert_allclose(
        tg.grad(logdet)(THETA)[2, 0], (logdet(THETA + e) - logdet(THETA - e)) / 2e-6, rtol=1e-6
    )
    w = RNG.normal(size=THETA.shape)
    close(
        tg.grad(lambda t: (w * GAUSSIAN.hvp(t, w, X)).sum())(THETA),
        np.einsum("bijkc,ib,jb->kc", D, w, w),
        1e-10,
    )


@pytest.mark.parametrize("method", ["contributions", "final", "scores", "hessian", "fisher"])
def test_bad_arguments(method):
    with pytest.raises(ShapeError, match=r"\(p, B\)"):
        getattr(KNOWN, method)(POINTS[None], NILE)
    with pytest.raises(ArgumentError, match="inf"):
        getattr(KNOWN, method)(POINTS, np.append(NILE, np.inf))
    with pytest.raises(KernelError, match="missing="):
        getattr(kernels.recursion(lambda th: 0.0, lambda c, th, y: (c, y * th[0])), method)(
            POINTS, np.append(NILE, np.nan)
        )


# --- CUDA C on the CPU ---


HOLES = np.where(np.isin(np.arange(len(NILE) - 1), (3, 70)), np.nan, NILE[1:])
KINDS = [
    ("value", "D", (0, 0)), ("value", "D", (1, 0)), ("value", "D", (0, 1)), ("value", "F", (0, 1)), ("value",
    "R", (0, 1)),
    ("each", "F", (1, 0)), ("each", "R", (0, 0)), ("each", "D", (0, 0)),
]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("name", ["gaussian", "holes", "garch"])
@pytest.mark.parametrize("what, kind, order", KINDS)
def test_cuda_source_gives_the_bits_of_the_cpu_kernel(name, what, kind, order, per_sample, monkeypatch):
    monkeypatch.setattr(cpu, "PARTS", 1)
    k, theta, data = (DIFFUSE, POINTS, HOLES) if name == "holes" else case(name)
    rng = np.random.default_rng(1)
    theta, dtype = np.ascontiguousarray(theta[:, np.arange(16) % theta.shape[1]]), np.dtype(float)
    directions = [rng.normal(size=theta.shape) for _ in range(order[0])]
    whole = with_ways(data, [rng.normal(size=data.shape) for _ in range(order[1])])
    if per_sample:
        whole = np.ascontiguousarray(np.repeat(np.atleast_2d(whole)[:, :, None], 16, axis=2))
    signature = theta.shape[0], 0 if data.ndim == 1 else 2, bool(np.isnan(data).any())
    low = lower_program(k._families[what].derived(kind, order, signature))
    inputs = [theta, *directions] + [rng.normal(size=(1, 16))] * (what == "value" and kind == "D")
    each = rng.normal(size=(1, data.shape[-1], 16))
    launcher = Launcher(low, dtype, per_sample)
    assert launcher.step_rows == (max(signature[1], 1) if kind == "D" else kind == "F" and what == "each")
    ours = [np.empty((r, 16)) for r in launcher.outputs]
    steps_out = np.zeros((launcher.step_rows, data.shape[-1]) + (() if launcher.summed else (16,)))
    launcher(inputs, whole, data.shape[-1], ours, 16, each, steps_out)
    ours += [steps_out] * bool(launcher.step_rows)
    for a, b in zip(ours, on_host(low, dtype, inputs, whole, each, 16, per_sample), strict=True):
        assert np.isfinite(a).all() and np.array_equal(a, b)


@pytest.mark.parametrize("kind, per_sample", [("D", False), ("D", True)])
@pytest.mark.parametrize("arch", [75, 90, 120])
def test_nvrtc_compiles_derivatives_by_the_data(kind, per_sample, arch):
    pytest.importorskip("cupy")
    source, _, _ = emit_cuda(KNOWN.lowered(2, 0, kind), np.float64, per_sample)
    code, log = cubin(source, arch, ("-std=c++17", "-fmad=false", "-default-device", "--ptxas-options=-v"))
    assert code[:4] == b"\x7fELF"
    assert max(int(n) for n in re.findall(r"(\d+) bytes spill stores", log)) <= 16


# --- loops inside loops and steps ---


def nest():
    """A root by Newton's steps, and a power with a bound of each sample, inside a loop with a run-time
    bound."""

    def f(x, n, m):
        def body(i, s):
            root = kernels.while_loop(
                lambda r: abs(r * r - x) > 1e-13 * x, lambda r: 0.5 * (r + x / r), 1.0 + x, 60
            )
            return s + root * kernels.loop(m, lambda j, p: p * x, 1.0, max_steps=6) * (i + 1.0)

        return kernels.loop(n, body, 0.0)

    return f


def test_loops_inside_loops():
    k = kernels.map(nest())
    x, n, m = np.array([0.3, 1.7, 2.2, 1.0]), np.array([0, 1, 5, 9]), np.array([3, 0, 6, 2])
    close(k(x, n, m), np.sqrt(x) * x**m * n * (n + 1) / 2)
    close(tg.grad(lambda x: k(x, n, m).sum())(x), (m + 0.5) * x ** (m - 0.5) * n * (n + 1) / 2, 1e-10)
    second = (m + 0.5) * (m - 0.5) * x ** (m - 1.5) * n * (n + 1) / 2
    close(tg.hvp(lambda x: k(x, n, m).sum(), x, np.ones(4)), second, 1e-9)
    assert np.isnan(k(x, n, m + 5)).tolist() == [
        False,
        False,
        True,
        True,
    ]  # more than max_steps, where the loop runs at all


def test_loops_inside_the_step_of_a_recursion():
    """A state that relaxes for as many small steps as the datum says."""

    def make(loop):
        def step(c, theta, d):
            y, n = d
            c = loop(n, lambda i, s: s + 0.1 * (theta[0] - s) - 0.01 * s**3 * i, c)
            return c, -0.5 * (y - c) ** 2 - np.exp(theta[1]) * c

        return lambda theta: theta[1], step

    rng = np.random.default_rng(0)
    data = np.stack([rng.normal(size=12), rng.integers(0, 5, 12)])
    theta = rng.normal(size=(2, 3))
    k = kernels.recursion(*make(lambda n, body, c: kernels.loop(n, body, c, max_steps=4)))
    plain = summed(*make(lambda n, body, c: kernels.loop(int(tg.value(n)), body, c)))
    value, gradient = k.value_and_grad(theta, data)
    for b in range(3):
        expected, slope = tg.value_and_grad(plain)(theta[:, b], tg.Const(data))
        close(value[b], expected)
        close(gradient[:, b], slope)
    data[1, 5] = 7
    assert np.all(k(theta, data) == -np.inf)  # the step asked for more than max_steps: nan, and so rejected
    fixed = kernels.recursion(*make(lambda n, body, c: kernels.loop(3, body, c)))
    expected = tg.grad(summed(*make(lambda n, body, c: kernels.loop(3, body, c))))(
        theta[:, 0], tg.Const(data)
    )
    close(fixed.grad(theta[:, 0], data), expected)


def test_bounds_of_loops():
    with pytest.raises(ArgumentError, match="above max_steps"):
        kernels.loop(5, lambda i, s: s, 1.0, max_steps=4)
    bounded = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: s * x, 1.0, max_steps=3))
    assert np.array_equal(bounded(np.array([2.0, 2.0]), np.array([3, 4])), [8.0, np.nan], equal_nan=True)


def test_loops_whose_reverse_needs_no_stored_step():
    """The sweep back still takes as many steps as the loop took."""
    k = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: s + x * i, 0.0))
    assert np.array_equal(tg.grad(lambda x: k(x, np.array([4, 100, 0])).sum())(np.ones(3)), [6, 4950, 0])
    doubling = lambda x, y: kernels.while_loop(
        lambda c: c[0] < y, lambda c: (2 * c[0], c[1] + x), (1.0, 0.0), 50
    )[1]
    k = kernels.map(doubling)
    y = np.array([0.5, 10.0, 1000.0])
    assert np.array_equal(k(np.ones(3), y), [0, 4, 10])
    assert np.array_equal(tg.grad(lambda x: k(x, tg.Const(y)).sum())(np.ones(3)), [0, 4, 10])


# --- random programs ---


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_by_theta_and_data(seed):
    run = random_program(seed)
    k = kernels.likelihood(lambda theta, x: run(np, theta, x))
    rng = np.random.default_rng(200 + seed)
    theta, x = rng.normal(size=(4, 5)), rng.normal(size=(2, 7) if seed % 2 else (2, 7, 5))
    u, v, w = rng.normal(size=theta.shape), rng.normal(size=x.shape), rng.normal(size=5)

    def on_tape(theta, x):
        y = [x[j][None] if x.ndim == 2 else x[j].T for j in range(2)]
        return (
            w[:, None] * (run(tg.numpy, [theta[j][:, None] for j in range(4)], y) + np.zeros((5, 7)))
        ).sum()

    ours = lambda theta, x: (w * k(theta, x)).sum()
    for a, b in zip(tg.grad(ours, (0, 1))(theta, x), tg.grad(on_tape, (0, 1))(theta, x), strict=True):
        close(a, b, 1e-10)
    for a, b in zip(
        *[tg.jvp(tg.grad(f, (0, 1)), (theta, x), (u, v))[1] for f in (ours, on_tape)], strict=True
    ):
        close(a, b, 1e-9)
    terms = lambda theta, x: (k.contributions(theta, x).T * w[:, None]).sum()
    for a, b in zip(*[tg.grad(f, (0, 1))(theta, x) for f in (terms, on_tape)], strict=True):
        close(a, b, 1e-10)
    close(np.einsum("npb,b->pb", k.scores(theta, x), w), tg.grad(on_tape)(theta, x), 1e-10)


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [*range(2), *[pytest.param(n, marks=pytest.mark.long) for n in range(2, 16)]]
)
def test_random_recursions(seed):
    """A carry of three numbers, one of which may not matter; its weights and those of each contribution are
    random."""
    first, second, third = (random_program(10 * seed + j) for j in range(3))

    def make(np_):
        def step(c, theta, y):
            a = np_.tanh(first(np_, [theta[0], theta[1], c[0], c[1]], [y, c[0]]))
            b = np_.tanh(second(np_, [theta[1], theta[0], c[1], 0.5], [y, c[0]]))
            return np_.stack([a, b, c[0] * y]), np_.sin(
                third(np_, [theta[0], theta[1], c[0], c[1]], [y, c[1]])
            )

        return lambda theta: np_.stack([0.0 * theta[0], theta[1], 0.0 * theta[0]]), step

    init, step = make(np)
    k = kernels.recursion(init, step)
    rng = np.random.default_rng(300 + seed)
    theta, data = rng.normal(size=(2, 4)), rng.normal(size=6)
    w, e, u, v = (
        rng.normal(size=(6, 4)),
        rng.normal(size=(3, 4)),
        rng.normal(size=theta.shape),
        rng.normal(size=6),
    )

    def on_tape(theta, data):
        begin, advance = make(tg.numpy)
        carry, total = begin(theta), 0.0
        for t in range(6):
            carry, term = advance(carry, theta, data[t] + np.zeros(4))
            total = total + (w[t] * term).sum()
        return total + (e * carry).sum()

    ours = lambda theta, data: (w * k.contributions(theta, data)).sum() + (e * k.final(theta, data)).sum()
    close(ours(theta, data), tg.value(on_tape(theta, data)), 1e-11)
    for a, b in zip(*[tg.grad(f, (0, 1))(theta, data) for f in (ours, on_tape)], strict=True):
        close(a, b, 1e-9)
    for a, b in zip(
        *[tg.jvp(tg.grad(f, (0, 1)), (theta, data), (u, v))[1] for f in (ours, on_tape)], strict=True
    ):
        close(a, b, 1e-8)
    slope = tg.grad(lambda t: (w[:, 0] * k.contributions(t, data)).sum())(theta[:, 0])
    close(np.einsum("tp,t->p", k.scores(theta[:, 0], data), w[:, 0]), slope, 1e-9)
