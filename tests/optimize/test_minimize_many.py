"""tg.optimize.minimize_many against SciPy one by one, against closed forms, and on problems that fail."""

import numpy as np
import pytest
import scipy.optimize
from comparison import host
from scipy.special import expit

import tapegrad as tg
from tapegrad.errors import ArgumentError, KernelError, NotScalarError, ShapeError
from tapegrad.optimize import minimize_many
from tapegrad.optimize._batched import symmetric_eigenpairs

METHODS = ("newton", "bfgs")


def rosenbrock(x):
    return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(len(x) - 1))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("p", [2, 4])
def test_rosenbrock_one_by_one(method, p):
    X0 = np.random.default_rng(p).uniform(-2, 2, (p, 40))
    r = minimize_many(rosenbrock, X0, method=method)
    assert r.converged.all()
    limit = 1e-6 if method == "newton" else 1e-5
    for b in range(40):  # from p = 4 on it has a second minimum: whichever was found is one for SciPy, too
        found = scipy.optimize.minimize(
            rosenbrock, r.x[:, b], jac=tg.grad(rosenbrock), method="BFGS", options={"gtol": 1e-10}
        )
        assert np.allclose(found.x, r.x[:, b], rtol=0, atol=limit)
        assert np.isclose(r.fun[b], rosenbrock(r.x[:, b]), rtol=1e-12, atol=1e-20)
        assert np.allclose(r.gradient[:, b], tg.grad(rosenbrock)(r.x[:, b]), rtol=1e-9, atol=1e-11)
    if method == "newton":
        H = tg.hessian(rosenbrock)(r.x[:, 7])
        assert np.allclose(r.hessian[7], H, rtol=1e-12)
        assert np.allclose(r.inverse[7], np.linalg.inv(H), rtol=1e-9)
    else:
        assert r.hessian is None and r.inverse.shape == (40, p, p)


def logistic_data(seed, n, p, B):
    rng = np.random.default_rng(seed)
    A, beta = rng.normal(size=(n, p)), rng.normal(size=(p, B))
    return A, (rng.uniform(size=(n, B)) < expit(A @ beta)).astype(float)


@pytest.mark.parametrize("method", METHODS)
def test_logistic_regressions(method):
    A, Y = logistic_data(1, 60, 3, 50)

    def nll(beta, y):  # A is captured, y is each problem's own
        z = A @ beta
        return np.logaddexp(0.0, z).sum() - y @ z

    r = minimize_many(nll, np.zeros((3, 50)), (Y,), method)
    assert r.converged.all()
    for b in range(50):
        beta = np.zeros(3)
        for _ in range(50):  # iteratively reweighted least squares
            m = expit(A @ beta)
            beta = beta + np.linalg.solve((A.T * (m * (1 - m))) @ A, A.T @ (Y[:, b] - m))
        assert np.allclose(r.x[:, b], beta, rtol=1e-6 if method == "newton" else 1e-5)


def test_kernels_of_map():
    f = lambda x, a: (x[0] - a) ** 2 + x[1] ** 4 + x[1]
    a = np.arange(3.0)
    assert np.array_equal(
        minimize_many(tg.kernels.map(f), np.ones((2, 3)), (a,)).x, minimize_many(f, np.ones((2, 3)), (a,)).x
    )


@pytest.mark.long
def test_units_of_the_parameters_do_not_matter():
    A, Y = logistic_data(9, 80, 3, 40)
    counts = []
    for units in (np.ones(3), np.array([1e-5, 1.0, 1e5])):
        scaled = A * units
        r = minimize_many(
            lambda b, y, Z=scaled: np.logaddexp(0.0, Z @ b).sum() - y @ (Z @ b),
            np.zeros((3, 40)),
            (Y,),
            gtol=0.0,
        )
        assert r.converged.all()
        counts.append((r.x * units[:, None], np.median(r.iterations)))
    assert np.allclose(counts[0][0], counts[1][0], rtol=1e-6) and counts[1][1] < 25


def test_captured_arrays_are_read_at_each_call():
    target = np.array([1.0, 2.0])
    f = lambda x: ((x - target) ** 2).sum()
    assert np.allclose(minimize_many(f, np.zeros((2, 3))).x.T, [1, 2])
    target[:] = 5, 6
    assert np.allclose(minimize_many(f, np.zeros((2, 3))).x.T, [5, 6])


def test_arrays_made_in_the_function():
    def f(x, a):
        y = np.zeros(2)
        y[0] = x[0] - a
        y[1] = x[1] - np.array([x[0], 1.0]).sum()
        J = tg.jacobian(lambda x: np.array([x[0] ** 2, x[1]]))(x)
        return y @ y + 0 * J.sum()

    a = np.arange(3.0)
    r = minimize_many(f, np.zeros((2, 3)), (a,))
    assert r.converged.all() and np.allclose(r.x, [a, a + 1])


@pytest.mark.parametrize("method", METHODS)
def test_a_kernel_with_data_of_its_own_for_each_problem(method):
    rng = np.random.default_rng(3)
    y = rng.normal(2.0, 3.0, (1, 80, 30))
    k = tg.kernels.likelihood(lambda theta, y: 0.5 * ((y[0] - theta[0]) * np.exp(-theta[1])) ** 2 + theta[1])
    r = minimize_many(k, np.zeros((2, 30)), (y,), method)
    assert r.converged.all()
    assert np.allclose(r.x[0], y[0].mean(axis=0), rtol=1e-6)
    assert np.allclose(np.exp(r.x[1]), y[0].std(axis=0), rtol=1e-6)
    shared = minimize_many(k, np.zeros((2, 30)), (y[:, :, 0],), method)
    assert shared.converged.all() and np.allclose(shared.x.T, r.x[:, 0], rtol=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", METHODS)
def test_a_function_of_the_whole_batch(method, xp):
    y = np.random.default_rng(4).normal(2.0, 3.0, 70)
    captured = xp.asarray(y)
    prior = xp.asarray(np.linspace(0.5, 2.0, 9))

    def negative_posterior(X, prior):
        z = (captured[:, None] - X[0]) * xp.exp(-X[1])
        return (0.5 * z * z + X[1]).sum(axis=0) + 0.5 * (X[0] / prior) ** 2

    r = minimize_many(negative_posterior, xp.zeros((2, 9)), (prior,), method, vectorized=True)
    assert bool(r.converged.all()) and type(r.x) is type(prior)
    for b in range(9):
        s = float(prior[b])
        plain = lambda x: (0.5 * ((y - x[0]) * np.exp(-x[1])) ** 2 + x[1]).sum() + 0.5 * (x[0] / s) ** 2
        expected = tg.optimize.minimize(plain, np.zeros(2), tol=1e-10)
        assert np.allclose(host(r.x)[:, b], expected.x, atol=2e-6)


def test_kernels_in_a_function_of_the_whole_batch():
    k = tg.kernels.likelihood(lambda theta, y: -0.5 * ((y - theta[0]) * np.exp(-theta[1])) ** 2 - theta[1])
    y = np.random.default_rng(4).normal(2.0, 3.0, (1, 70, 9))
    r = minimize_many(lambda X, y: -k(X, y), np.zeros((2, 9)), (y,), vectorized=True)
    assert r.converged.all()
    assert np.allclose(r.x, [y[0].mean(axis=0), np.log(y[0].std(axis=0))], rtol=1e-8)


@pytest.mark.parametrize("library", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def test_the_kernel_path_is_the_vectorized_one(library):
    xp = pytest.importorskip(library)
    X0 = xp.asarray(np.random.default_rng(5).uniform(-1, 1, (2, 6)))
    a = xp.asarray(np.arange(1.0, 7.0))
    f = lambda x, a: (x[0] ** 2 - a) ** 2 + (x[1] - x[0]) ** 2 + 0.1 * x[0]
    r, vectorized = minimize_many(f, X0, (a,)), minimize_many(f, X0, (a,), vectorized=True)
    assert type(r.x) is type(a) and bool(r.converged.all())
    assert np.allclose(host(r.x), host(vectorized.x), atol=1e-9)
    assert np.array_equal(host(r.iterations), host(vectorized.iterations))


@pytest.mark.parametrize("method", METHODS)
def test_bad_problems_harm_nobody(method):
    """One starts where f is nan, one has no minimum, one runs into a wall of nan, and the rest are as if
    alone."""

    def f(x, kind):
        bowl = (x[0] - 3) ** 2 + (x[1] + 1) ** 2 * (1 + x[0] ** 2)
        wall = x[0] - np.log(x[0]) + x[1] ** 2  # nan for x[0] < 0
        return np.where(kind == 0, bowl, np.where(kind == 1, x[0] + x[1] ** 2, wall))

    kind = np.array([0.0, 1.0, 0.0, 2.0, 2.0, 0.0])
    X0 = np.array([[0.0, 1.0, 5.0, -1.0, 40.0, -3.0], [2.0, 1.0, 0.0, 1.0, 3.0, 1.0]])
    r = minimize_many(f, X0, (kind,), method, maxiter=100)
    assert r.converged.tolist() == [True, False, True, False, True, True]
    assert "maxiter" in r.message[1] and "not finite at the start" in r.message[3]
    assert r.iterations[1] == 100 and r.iterations[3] == 0
    assert np.array_equal(r.x[:, 3], X0[:, 3])
    assert np.allclose(r.x[:, [0, 2, 5]].T, [3, -1], atol=1e-6)
    assert np.allclose(r.x[:, 4], [1, 0], atol=1e-6)
    good = np.array([0, 2, 4, 5])
    alone = minimize_many(f, X0[:, good], (kind[good],), method, maxiter=100)
    assert np.array_equal(alone.iterations, r.iterations[good])
    assert np.allclose(alone.x, r.x[:, good], atol=1e-12)
    assert "6 problems, 4 converged" in repr(r) and "1 not converged: maxiter" in repr(r)


@pytest.mark.parametrize("method", METHODS)
def test_ill_conditioned(method):
    scales = 10.0 ** np.linspace(-4, 4, 5)
    f = lambda x, c: ((x - c) ** 2 * scales).sum() + 0.1 * ((x - c) ** 4 * scales**2).sum()
    c = np.random.default_rng(6).normal(size=(5, 20))
    r = minimize_many(f, np.zeros((5, 20)), (c,), method, gtol=1e-9)
    assert r.converged.all()
    assert np.allclose(r.x, c, atol=1e-4 if method == "bfgs" else 1e-5)


def test_from_a_saddle_and_through_indefinite_hessians():
    f = lambda x: 0.25 * x[0] ** 4 - 0.5 * x[0] ** 2 + 0.5 * x[1] ** 2  # a saddle at 0, minima at (+-1, 0)
    r = minimize_many(f, np.array([[0.0, 0.0, 0.3, -0.2], [0.0, 1.0, 1.0, 0.0]]))
    assert r.converged.all()
    assert np.allclose(abs(r.x), [[1, 1, 1, 1], [0, 0, 0, 0]], atol=1e-8)
    waves = lambda x: np.sin(3 * x[0]) * np.cos(2 * x[1]) + 0.05 * (x**2).sum()
    X0 = np.random.default_rng(7).uniform(-4, 4, (2, 200))
    r = minimize_many(waves, X0)
    assert r.converged.all() and (np.linalg.eigvalsh(r.hessian)[:, 0] > 0).all()
    assert abs(r.gradient).max() < 1e-7 and (r.fun <= [waves(x) for x in X0.T]).all()


@pytest.mark.parametrize("method", METHODS)
def test_rounding_is_recognised(method):
    """A value of 1e9 beside what depends on x: gtol cannot be reached (but where a gradient happens to be
    zero to the last bit)."""
    f = lambda x, c: 1e9 + 1e5 * (np.exp(x[0]) - c * x[0]) + 1e5 * (x[1] - np.sin(x[0])) ** 2
    c = np.linspace(0.5, 3, 30)
    r = minimize_many(f, np.zeros((2, 30)), (c,), method, gtol=0.0)
    assert r.converged.all() and any("rounding" in text for text in r.message)
    assert abs(r.x[0] - np.log(c)).max() < (1e-9 if method == "newton" else 1e-4)
    assert r.evaluations.max() < 100


@pytest.mark.parametrize("method", METHODS)
def test_a_kink_is_told(method):
    f = lambda x: np.where(x[0] > 0.3, x[0], 2 * (0.3 - x[0]) + 0.3) + x[1] ** 2
    r = minimize_many(f, np.array([[2.0], [1.0]]), method=method)
    assert not r.converged[0] and "kink" in r.message[0]
    assert abs(r.x[0, 0] - 0.3) < 1e-6


def test_float32():
    c = np.linspace(-1, 1, 8).astype(np.float32)
    r = minimize_many(lambda x, c: (x[0] - c) ** 2 + np.cosh(x[1]), np.zeros((2, 8), np.float32), (c,))
    assert r.x.dtype == np.float32 and r.converged.all()
    assert np.allclose(r.x[0], c, atol=1e-3)


def test_trees():
    X0 = {"a": np.zeros(4), "b": np.ones((3, 4))}
    c = np.arange(4.0)
    f = lambda p, c: (p["a"] - c) ** 2 + ((p["b"] - p["a"]) ** 2).sum()
    for vectorized in (False, True):
        g = (lambda p, c: (p["a"] - c) ** 2 + ((p["b"] - p["a"]) ** 2).sum(axis=0)) if vectorized else f
        r = minimize_many(g, X0, (c,), vectorized=vectorized)
        assert r.converged.all() and r.x["a"].shape == (4,) and r.gradient["b"].shape == (3, 4)
        assert np.allclose(r.x["a"], c) and np.allclose(r.x["b"], c)


def test_a_point_without_freedom():
    """A function that is constant: nothing to do."""
    r = minimize_many(lambda x: 0 * x[0] + 1.0, np.ones((1, 3)))
    assert r.converged.all() and (r.iterations == 0).all() and np.isnan(r.inverse).all()


def test_no_problem():
    r = minimize_many(lambda x: x @ x, np.ones((2, 0)))
    assert r.x.shape == (2, 0) and r.converged.shape == (0,)


def test_nothing_of_the_caller_is_written():
    X0, c = np.ones((2, 3)), np.arange(3.0)
    r = minimize_many(lambda x, c: (x[0] - c) ** 2 + x[1] ** 2, X0, (c,))
    assert (X0 == 1).all() and (c == np.arange(3.0)).all()
    r.x[...] = 0
    assert (X0 == 1).all()


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: minimize_many(rosenbrock, np.ones(2)), ShapeError, r"wanted is \(p, B\)"),
        (
            lambda: minimize_many(rosenbrock, np.ones((2, 2)), method="powell"),
            ArgumentError,
            "'newton' or 'bfgs'",
        ),
        (lambda: minimize_many(rosenbrock, np.ones((2, 2)), maxiter=0), ArgumentError, "maxiter=0"),
        (lambda: minimize_many(rosenbrock, np.ones((2, 2)), gtol=-1.0), ArgumentError, "gtol=-1.0"),
        (
            lambda: minimize_many(rosenbrock, np.ones((2, 2), complex)),
            ArgumentError,
            "X0 has dtype complex128",
        ),
        (
            lambda: minimize_many(lambda x, a: x @ x, np.ones((2, 2)), (np.ones(3),)),
            ShapeError,
            r"args\[0\] has shape \(3,\)",
        ),
        (lambda: minimize_many(lambda x: x * x, np.ones((2, 2))), NotScalarError, r"returned shape \(2,\)"),
        (
            lambda: minimize_many(lambda x: x * x, np.ones((2, 3)), vectorized=True),
            ShapeError,
            r"returned shape \(2, 3\)",
        ),
        (
            lambda: minimize_many(lambda x: x[0] if len(range(x[0])) > 0 else -x[0], np.ones((1, 2))),
            KernelError,
            r"(?s)np\.where.*test_minimize_many\.py",
        ),
        (
            lambda: minimize_many(tg.kernels.likelihood(lambda t, y: (y - t[0]) ** 2), np.ones((1, 2))),
            ArgumentError,
            "args=\\(data,\\)",
        ),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_random_exponential_families(method):
    """Convex random problems: whatever was found satisfies SciPy's own test, and agrees with it one by
    one."""
    rng = np.random.default_rng(8)
    for _ in range(30):
        p = int(rng.integers(1, 6))
        A, c = rng.normal(size=(8, p)), rng.normal(size=(p, 20))
        f = lambda x, c, A=A: np.exp(A @ x).sum() + np.exp(-(A @ x)).sum() + c @ x
        r = minimize_many(f, rng.normal(size=(p, 20)), (c,), method)
        assert r.converged.all()
        for b in range(20):
            found = tg.optimize.minimize(lambda x, c=c[:, b], f=f: f(x, c), np.zeros(p), tol=1e-11)
            assert np.allclose(r.x[:, b], found.x, atol=1e-7 if method == "newton" else 1e-5)


def test_within_a_transform():
    for data in (False, True):
        with pytest.raises(ArgumentError, match="within a transform"):
            given = (lambda y: (np.ones(2) * y,)) if data else lambda y: ()
            f = (
                (lambda y: lambda x, z: ((x - z) ** 2).sum(axis=0))
                if data
                else lambda y: lambda x: ((x - y) ** 2).sum(axis=0)
            )
            tg.grad(lambda y: minimize_many(f(y), np.ones((1, 2)), given(y), vectorized=True).x.sum())(1.0)


def test_curved_valleys():
    """Rosenbrock's, from afar and ten thousand times as steep: steps bent along the valley take half as many
    evaluations as straight ones (66 and 379, medians)."""
    X0 = np.random.default_rng(0).normal(size=(2, 100))
    far = tg.optimize.minimize_many(lambda x: 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2, 20 * X0)
    assert far.converged.all() and np.median(far.evaluations) < 55
    np.testing.assert_allclose(far.x, 1.0, rtol=1e-6)
    steep = tg.optimize.minimize_many(lambda x: 1e6 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2, 1.5 * X0)
    assert steep.converged.all() and np.median(steep.evaluations) < 220
    np.testing.assert_allclose(steep.x, 1.0, rtol=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", ["bfgs", "newton"])
@pytest.mark.parametrize("power", [2, 3, 4, 6])
def test_what_falls_without_end_has_not_converged(method, power):
    """-|x|^p from random starts near the end of the numbers; a steep function with a minimum converges."""
    X0 = np.random.default_rng(power).uniform(1.0, 3.0, (1, 5)) * 10.0 ** (280 / power)
    r = minimize_many(lambda x: -(x[0] ** power), X0, method=method, vectorized=True, maxiter=200)
    assert not r.converged.any()
    assert minimize_many(
        lambda x: (x[0] - 1.5) ** 2 * 1e8 + 1e8, np.ones((1, 5)), method=method, vectorized=True
    ).converged.all()


@pytest.mark.parametrize("p", [1, 2, 3])
def test_eigenpairs_of_many_matrices(p):
    H = np.random.default_rng(p).normal(size=(300, p, p))
    H = H + H.swapaxes(1, 2)
    H[0], H[1], H[2], H[3] = 0, np.eye(p), -np.eye(p)[::-1], 1e200 * H[3]
    H[4] = np.diag([1.0, -1.0, 2.0][:p])
    w, Q = symmetric_eigenpairs(H, np)
    size = abs(H).max(axis=(1, 2)) + 1e-300
    assert (abs(w - np.linalg.eigvalsh(H)).max(axis=1) <= 4e-15 * size).all()
    assert (abs((Q * w[:, None]) @ Q.swapaxes(1, 2) - H).max(axis=(1, 2)) <= 4e-15 * size).all()
    assert abs(Q @ Q.swapaxes(1, 2) - np.eye(p)).max() < 4e-15
