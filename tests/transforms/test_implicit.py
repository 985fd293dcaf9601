"""tg.implicit: against closed forms, differences and the complex step, in both modes and to third order."""

import gc

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
from scipy.sparse import linalg

import tapegrad as tg
from tapegrad.errors import ArgumentError, ConvergenceError, ShapeError, SingularError

pytestmark = pytest.mark.smoke

A = np.array([2.0, 4.0])
COUPLED = np.array([[4.0, 1.0], [0.5, 3.0]])


def newton(F, x, *params):
    """The user's own, of plain NumPy and tg.jacobian."""
    for _ in range(30):
        x = x - np.linalg.solve(tg.jacobian(F)(x, *params), F(x, *params))
    return x


def brentq(F, x0, *params):
    return scipy.optimize.brentq(F, 1e-3, 10.0, xtol=1e-15, rtol=1e-15, args=params)


def coupled(th):
    """F has th captured; the solver is SciPy's."""

    def F(x):
        return COUPLED @ x + np.sin(x) * th[0] - th[1] ** 2 * np.array([1.0, 2.0])

    return tg.implicit.root(F, lambda F, x0: scipy.optimize.root(F, x0, tol=1e-14).x)(np.zeros(2))


def by_newton(th, n=60):
    """The same equations, the iterations differentiated through: complex numbers too."""
    x = 0 * th
    for _ in range(n):
        x = x - np.linalg.solve(
            COUPLED + np.diag(np.cos(x) * th[0]),
            COUPLED @ x + np.sin(x) * th[0] - th[1] ** 2 * np.array([1.0, 2.0]),
        )
    return x


def test_square_root_to_the_third_order():
    sqrt = tg.implicit.root(lambda x, a: x * x - a, lambda F, x0, a: brentq(F, x0, a))
    f = tg.grad(sqrt, 1)
    g = tg.grad(f, 1)
    h = tg.grad(g, 1)
    for got, want in (
        (sqrt(1.0, 4.0), 2),
        (f(1.0, 4.0), 0.25),
        (g(1.0, 4.0), -1 / 32),
        (h(1.0, 4.0), 3 / 256),
    ):
        assert got == pytest.approx(want, rel=1e-12)
    assert tg.jvp(lambda a: sqrt(1.0, a), (4.0,), (1.0,))[1] == pytest.approx(0.25)
    assert tg.jvp(lambda a: tg.jvp(lambda a: sqrt(1.0, a), (a,), (1.0,))[1], (4.0,), (1.0,))[
        1
    ] == pytest.approx(-1 / 32)
    assert tg.grad(sqrt)(1.0, 4.0) == 0


def test_coupled_equations_against_the_complex_step_and_the_iterations():
    th = np.array([0.7, 1.3])
    step = np.stack([by_newton(th + 1e-30j * e).imag / 1e-30 for e in np.eye(2)], 1)
    for mode in ("forward", "reverse"):
        np.testing.assert_allclose(tg.jacobian(coupled, mode=mode)(th), step, rtol=1e-11)

    def both(solution):
        return lambda th: np.sum(solution(th) ** 2 * np.array([1.0, 3.0]))

    H, want = tg.hessian(both(coupled))(th), tg.hessian(both(by_newton))(th)
    np.testing.assert_allclose(H, want, rtol=1e-9)
    np.testing.assert_allclose(tg.hvp(both(coupled), th, np.ones(2)), want.sum(1), rtol=1e-9)
    np.testing.assert_allclose(
        tg.jacobian(tg.hessian(both(coupled)))(th),
        tg.jacobian(tg.hessian(both(by_newton)))(th),
        rtol=1e-7,
        atol=1e-9,
    )
    tg.testing.check_grads(both(coupled), (th,))


def test_fixed_point_of_trees():
    def F(x, p):
        return {"a": np.cos(x["a"]) * p["k"], "n": 3, "b": 0.5 * x["b"] * x["a"].sum() / 3 + p["k"]}

    def iterate(F, x, *params):
        for _ in range(200):
            x = F(x, *params)
        return x

    x0 = {"a": np.ones(2), "n": 3, "b": 0.5}
    g = tg.implicit.fixed_point(F, iterate)

    def through(solution):
        def f(k):
            x = solution(x0, {"k": k})
            return x["a"].sum() * x["b"]

        return f

    for d in (tg.grad, lambda f: tg.grad(tg.grad(f)), lambda f: lambda k: tg.jvp(f, (k,), (1.0,))[1]):
        ours, theirs = d(through(g))(0.6), d(through(lambda x, p: iterate(F, x, p)))(0.6)
        assert ours == pytest.approx(theirs, rel=1e-10)
    assert g(x0, {"k": 0.6})["n"] == 3


def ridge(w, lam):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((30, 4))
    y = X @ np.ones(4) + rng.standard_normal(30)
    return 0.5 * np.sum((X @ w - y) ** 2) + 0.5 * np.exp(lam) * np.sum(w**2)


def ridge_closed(lam):
    H = tg.hessian(lambda w: ridge(w, -np.inf))(np.zeros(4))
    return np.linalg.solve(H + np.exp(lam) * np.eye(4), -tg.grad(lambda w: ridge(w, -np.inf))(np.zeros(4)))


def bfgs(F, x0, *params):
    return scipy.optimize.minimize(F, x0, args=params, jac=tg.grad(F), tol=1e-9).x


def ours(F, x0, *params):
    return tg.optimize.minimize(lambda w: F(w, *params), x0).x


@pytest.mark.one_in(3)
@pytest.mark.parametrize("solver", [bfgs, ours])
@pytest.mark.parametrize(
    "solve", [None, "dense", linalg.cg, linalg.minres, linalg.gmres, lambda A, b: linalg.lsqr(A, b)[0]]
)
def test_minimum(solver, solve):
    g = tg.implicit.minimum(ridge, solver, solve=solve)
    H = tg.hessian(lambda w: ridge(w, 0.3))(np.zeros(4))
    w = g(np.zeros(4), 0.3)
    first = -np.linalg.solve(H, np.exp(0.3) * w)
    np.testing.assert_allclose(tg.jacobian(g, 1)(np.zeros(4), 0.3), first, rtol=1e-8)
    np.testing.assert_allclose(
        tg.jvp(lambda lam: g(np.zeros(4), lam), (0.3,), (2.0,))[1], 2 * first, rtol=1e-8
    )
    want = -np.linalg.solve(H, np.exp(0.3) * (w + 2 * first))
    np.testing.assert_allclose(tg.jacobian(tg.jacobian(g, 1), 1)(np.zeros(4), 0.3), want, rtol=1e-7)


def test_scipys_solvers_and_captured_values():
    def product(th, solver=brentq):
        return tg.implicit.root(lambda x: x**3 - th[0] * th[1], solver)(1.0)

    for solver in (
        brentq,
        lambda F, x0: scipy.optimize.newton(F, x0, tol=1e-15),
        lambda F, x0: scipy.optimize.fsolve(F, x0, xtol=1e-15)[0],
    ):
        np.testing.assert_allclose(tg.grad(product)(A, solver), [1 / 3, 1 / 6], rtol=1e-12)
        np.testing.assert_allclose(
            tg.hessian(product)(A, solver), [[-1 / 9, 1 / 36], [1 / 36, -1 / 36]], rtol=1e-11
        )
    np.testing.assert_allclose(tg.grad(tg.checkpoint(product))(A), [1 / 3, 1 / 6], rtol=1e-12)


def test_captured_buffers():
    held, scratch = np.zeros(2), np.zeros(2)
    root = tg.implicit.root(lambda x: x**2 - held, newton)

    def through_held(a):
        held[:] = a * a
        return root(np.ones(2)).sum()

    np.testing.assert_allclose(tg.grad(through_held)(A), [1, 1])
    np.testing.assert_allclose(tg.hessian(through_held)(A), 0, atol=1e-12)
    assert held.tolist() == [4, 16]

    def F(x, a):
        scratch[0] = x[0] ** 2 - a[0]
        scratch[1] = x[1] * x[0] - a[1]
        return scratch.copy()

    fills = tg.implicit.root(F, newton)

    def through_scratch(a):  # what F leaves there is that of the solution: zero, whatever a is
        return fills(np.ones(2), a).sum() + scratch[0] + 3 * scratch[1]

    a, b = A
    np.testing.assert_allclose(tg.grad(through_scratch)(A), [1 / (2 * a**0.5) - b / (2 * a**1.5), a**-0.5])
    H = [[-0.25 * a**-1.5 + 0.75 * b * a**-2.5, -0.5 * a**-1.5], [-0.5 * a**-1.5, 0]]
    np.testing.assert_allclose(tg.hessian(through_scratch)(A), H, atol=1e-12)
    assert abs(scratch).max() < 1e-12


def test_a_minimum_of_a_function_that_writes():
    scratch = np.zeros(3)

    def F(w, lam):
        scratch[:] = w - np.array([1.0, 2.0, 3.0])
        scratch[1:] *= 2.0
        return (scratch**2).sum() + lam * (w * w).sum()

    g, c = tg.implicit.minimum(F, bfgs), np.array([1.0, 4.0, 4.0])
    np.testing.assert_allclose(g(np.zeros(3), 2.0), c * [1, 2, 3] / (c + 2), rtol=1e-7)
    np.testing.assert_allclose(tg.jacobian(g, 1)(np.zeros(3), 2.0), -c * [1, 2, 3] / (c + 2) ** 2, rtol=1e-7)


def test_nested():
    inner = tg.implicit.root(lambda y, x: y**3 - x, lambda F, y0, x: np.cbrt(x))

    def outer(th):
        return tg.implicit.root(lambda x: inner(1.0, x) + x - th, brentq)(1.0)

    assert outer(2.0) == pytest.approx(1) and tg.grad(outer)(2.0) == pytest.approx(0.75)
    assert tg.grad(tg.grad(outer))(2.0) == pytest.approx(3 / 32)


def test_complex_and_single_precision():
    def heron(F, z, w):
        for _ in range(50):
            z = z - F(z, w) / (2 * z)
        return z

    root, w = tg.implicit.root(lambda z, w: z * z - w, heron), np.array([1 + 2j, 3 - 1j])
    np.testing.assert_allclose(
        tg.jacobian(root, 1, holomorphic=True)(w, w), np.diag(0.5 / np.sqrt(w)), rtol=1e-12
    )
    np.testing.assert_allclose(
        tg.grad(lambda w: abs(root(w, w)).sum())(w), tg.grad(lambda w: abs(np.sqrt(w)).sum())(w)
    )
    mixed = tg.implicit.root(
        lambda z, a: z * np.conj(z) * z - a * (1 + 1j), lambda F, z, a: (1 + 1j) * np.cbrt(a / 2)
    )  # not holomorphic
    assert tg.grad(lambda a: mixed(1j, a).real)(2.0) == pytest.approx(1 / 6)
    single = tg.grad(lambda a: root(np.ones(2, np.float32), a).sum())(np.array([4, 9], np.float32))
    assert single.dtype == np.float32 and single.tolist() == pytest.approx([1 / 4, 1 / 6])


def test_many_samples():
    def f(th):
        return tg.implicit.root(lambda x: x**3 - th[0] * th[1], brentq)(1.0)

    many = np.array([[2.0, 4.0], [1.0, 8.0], [3.0, 1.0]])
    for d in (tg.grad, tg.hessian):
        np.testing.assert_allclose(tg.vmap(d(f))(many), [d(f)(th) for th in many], rtol=1e-12)
    np.testing.assert_allclose(
        tg.grad(lambda M: tg.vmap(f)(M).sum())(many), [tg.grad(f)(th) for th in many], rtol=1e-12
    )


def test_on_cupy_too(xp):
    def cubes(F, x, a):
        for _ in range(30):
            x = x - F(x, a) / (3 * x * x)
        return x

    g, a = tg.implicit.root(lambda x, a: x**3 - a, cubes), xp.asarray([1.0, 8.0])
    first, second = (
        tg.grad(lambda a: g(xp.ones(2), a).sum())(a),
        tg.hessian(lambda a: g(xp.ones(2), a).sum())(a),
    )
    assert type(first) is type(a)
    assert first.tolist() == pytest.approx([1 / 3, 1 / 12]) and second.ravel().tolist() == pytest.approx(
        [-2 / 9, 0, 0, -1 / 144]
    )
    assert tg.jvp(lambda a: g(xp.ones(2), a), (a,), (a,))[1].tolist() == pytest.approx([1 / 3, 2 / 3])


def test_a_linear_solver_of_the_users_on_cupy_too(xp):
    """By conjugate gradients on the normal equations: A and its adjoint."""

    def solve(A, b):
        y, r = 0 * b, b
        p = s = A.rmatvec(r)
        for _ in range(10):
            q = A.matvec(p)
            if float(q @ q) == 0:
                break
            step = (s @ s) / (q @ q)
            y, r, before = y + step * p, r - step * q, s
            s = A.rmatvec(r)
            p = s + (s @ s) / (before @ before) * p
            if float(abs(s).max()) < 1e-14:
                break
        return y

    M = xp.asarray([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.5, 0.0, 4.0]])
    g = tg.implicit.root(lambda x, a: M @ x - a * a, lambda F, x0, a: xp.linalg.inv(M) @ (a * a), solve=solve)
    a = xp.asarray([1.0, 2.0, 3.0])
    J = 2 * xp.linalg.inv(M) * a
    for mode in ("forward", "reverse"):
        assert bool(abs(tg.jacobian(lambda a: g(xp.zeros(3), a), mode=mode)(a) - J).max() < 1e-10)


def test_matrix_free():
    n, q = 3000, np.linspace(0, 1, 3000)

    def F(u, q):
        padded = np.concatenate([np.zeros(1), u, np.zeros(1)])
        return 2 * u - padded[2:] - padded[:-2] + 0.1 * u**3 + 0.5 * u - q

    def krylov(F, u, q):
        return scipy.optimize.newton_krylov(lambda u: F(u, q), u, f_tol=1e-10)

    u = tg.implicit.root(F, krylov)(np.zeros(n), q)
    banded = np.zeros((3, n))
    banded[0], banded[1], banded[2] = -1, 2.5 + 0.3 * u**2, -1
    want = scipy.linalg.solve_banded((1, 1), banded, 2 * u)
    for solve in (None, linalg.bicgstab):
        f = tg.implicit.root(F, krylov, solve=solve)
        np.testing.assert_allclose(tg.grad(lambda q: np.sum(f(np.zeros(n), q) ** 2))(q), want, rtol=1e-6)
    d = np.sin(q)
    assert tg.jvp(lambda q: np.sum(f(np.zeros(n), q) ** 2), (q,), (d,))[1] == pytest.approx(
        want @ d, rel=1e-6
    )


# --- what is no solution is said ---


def solved(F, solver, x0=1.0, **settings):
    return lambda a: tg.implicit.root(F, solver, **settings)(x0, a)


def parabola(x, a):
    return x * x - a


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (
            solved(parabola, lambda F, x0, a: x0),
            ConvergenceError,
            r"root\(parabola\): <lambda>.*did not solve it: \|F\(x\)\| is 1 ",
        ),
        (solved(parabola, lambda F, x0, a: np.nan), ConvergenceError, "is nan there"),
        (
            solved(parabola, lambda F, x0, a: np.ones(3)),
            ShapeError,
            r"returned floats of shape \(3,\), and x0 has shape \(\)",
        ),
        (solved(parabola, lambda F, x0, a: None), ShapeError, "returned floats of no shape"),
        (
            solved(lambda x, a: (x * x).sum() - a, lambda F, x0, a: x0, np.ones(2)),
            ShapeError,
            "one equation for each unknown",
        ),
        (
            solved(parabola, lambda F, x0, a: (a + 0j) ** 0.5),
            ArgumentError,
            "the solution is complex and x0 is real",
        ),
        (solved(parabola, lambda F, x0, a: x0, 1), ArgumentError, "x0 is int, which has no derivative"),
        (solved(parabola, lambda F, x0, a: x0, np.arange(2)), ArgumentError, "x0 is of dtype int64"),
    ],
)
def test_no_solution(f, error, text, differentiated):
    with pytest.raises(error, match=text):
        (tg.grad(f) if differentiated else f)(2.0)


@pytest.mark.parametrize("F", [lambda x, a: (x * a).sum(), lambda x, a: (x, a)])
def test_a_fixed_point_has_the_shapes_of_x(F):
    g = tg.implicit.fixed_point(F, lambda F, x0, a: x0)
    for f in (g, lambda x0, a: tg.grad(lambda a: g(x0, a).sum())(a)):
        with pytest.raises(ShapeError, match="one equation for each unknown"):
            f(np.ones(3), 2.0)


def test_tolerance():
    near = solved(parabola, lambda F, x0, a: np.sqrt(a) + 1e-3)
    with pytest.raises(ConvergenceError, match="allow more with tol="):
        tg.grad(near)(4.0)
    assert tg.grad(solved(parabola, lambda F, x0, a: np.sqrt(a) + 1e-3, tol=0.1))(4.0) == pytest.approx(
        0.5 / 2.001
    )


def test_singular():
    with pytest.raises(
        SingularError, match=r"the derivative by x of the equations of parabola.*is singular at the solution"
    ) as caught:
        tg.grad(solved(parabola, lambda F, x0, a: 0.0))(0.0)
    assert isinstance(caught.value, np.linalg.LinAlgError)
    M = np.array([[1.0, 2.0], [2.0, 4.0 + 1e-16]])
    with pytest.raises(SingularError):
        tg.grad(
            lambda a: tg.implicit.root(lambda x: M @ x - a, lambda F, x0: np.zeros(2))(np.zeros(2)).sum()
        )(np.zeros(2))
    with pytest.raises(SingularError, match="the Hessian of"):
        tg.grad(lambda a: tg.implicit.minimum(lambda x: (x - a) ** 4, lambda F, x0: tg.value(a))(0.0))(1.0)
    for solve in (linalg.cg, linalg.gmres):
        with pytest.raises(ConvergenceError, match="Is the Jacobian singular"):
            f = tg.implicit.root(lambda x, a: M @ x - a, lambda F, x0, a: np.zeros(2), solve=solve)
            tg.grad(lambda a: f(np.zeros(2), a)[0])(np.zeros(2))


def test_what_was_read_has_changed():
    factor = [1.0]

    def F(x, a):
        return x * x - a * factor[0]

    _, pullback = tg.vjp(lambda a: tg.implicit.root(F, lambda F, x0, a: np.sqrt(a * factor[0]))(1.0, a), 4.0)
    factor[0] = 2.0
    assert pullback(1.0) == 0.25  # what was read then
    assert factor == [2.0]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: tg.implicit.root(3, 4), "implicit.root: give two functions"),
        (lambda: tg.implicit.minimum(np.sin, np.cos, solve="lu"), "solve='lu'; it is a function"),
        (lambda: tg.implicit.minimum(np.sin, np.cos, tol=-1), "tol=-1; it is the largest residual"),
        (
            lambda: tg.grad(tg.implicit.root(parabola, lambda F, x0, a: a**0.5), 1)(1.0, 4),
            r"grad\(implicit.root\(parabola\)\): argument 1 has type int",
        ),
    ],
)
def test_bad_input(make, text):
    with pytest.raises(ArgumentError, match=text):
        make()


def test_a_solver_that_writes_its_arguments():
    def solver(F, x0, a):
        x0[:] = np.sqrt(a)
        a[:] = 0
        return x0

    x0, a = np.ones(2), np.array([4.0, 9.0])
    g = tg.implicit.root(lambda x, a: x * x - a, solver)
    assert g(x0, a).tolist() == [2, 3] and tg.grad(lambda a: g(x0, a).sum())(a).tolist() == pytest.approx(
        [1 / 4, 1 / 6]
    )
    assert x0.tolist() == [1, 1] and a.tolist() == [4, 9]


def test_in_a_prepared_function():
    scale = 2.0
    g = tg.implicit.root(lambda x, a: scale * x**3 - a, lambda F, x0, a: np.cbrt(a / scale))

    def f(a):
        return (g(np.ones(2), a) ** 2).sum()

    p = tg.prepare(f, A)
    for now in (2.0, 3.0):
        scale = now
        for a in (A, 2 * A, 0.3 * A):
            for ours, theirs in (
                (p.value(a), f(a)),
                (p.grad(a), tg.grad(f)(a)),
                (p.hvp(a, A), tg.hvp(f, a, A)),
            ):
                np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_nothing_is_left_for_the_collector_and_calls_are_counted():
    calls = 0

    def F(x, a):
        nonlocal calls
        calls += 1
        return x * x - a

    def f(a):
        return tg.implicit.root(F, lambda F, x0, a: np.sqrt(a) if F(x0, a) is not None else x0)(1.0, a)

    tg.grad(f)(4.0)
    assert calls == 2  # the solver's and the residual, as in a plain call
    while gc.collect():  # what other tests left: a recording that dies may let another one go
        pass
    gc.disable()
    try:
        for d in (tg.grad, tg.hessian, lambda f: lambda a: tg.jvp(f, (a,), (1.0,))):
            d(f)(4.0)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_data_get_no_derivative(monkeypatch):
    """What nobody asks for is not computed: F captures a matrix."""
    X = np.random.default_rng(0).standard_normal((50, 3))
    seen = []
    monkeypatch.setattr(
        "tapegrad.implicit.vjp",
        lambda f, *inputs: seen.append([np.shape(v) for v in inputs]) or tg.vjp(f, *inputs),
    )
    g = tg.implicit.root(lambda x, a: X.T @ (X @ x) - a, lambda F, x0, a: np.linalg.solve(X.T @ X, a))
    G = tg.grad(lambda a: g(np.zeros(3), a)[0])(np.ones(3))
    np.testing.assert_allclose(G, np.linalg.inv(X.T @ X)[0], rtol=1e-10)
    assert seen == [[(3,)]]


def test_the_solver_sees_plain_values_and_the_pullback_stays():
    seen = []

    def solver(F, x0, a):
        seen.extend([type(x0), type(a), float(F(x0, a))])
        return np.sqrt(a)

    x0, a = np.ones(2), np.array([4.0, 9.0])
    g = tg.implicit.root(lambda x, a: x * x - a, lambda F, x0, a: solver(lambda x, a: F(x, a)[0], x0, a))
    y, pullback = tg.vjp(lambda a: g(x0, a), a)
    assert seen == [np.ndarray, np.ndarray, -3.0]
    x0 += 7
    a += 7
    for _ in range(2):
        np.testing.assert_allclose(pullback(np.ones(2)), [1 / 4, 1 / 6])
    assert np.isnan(pullback(np.array([np.nan, 1.0]))).all()


class Cache:
    def __init__(self):
        self.value, self.entries, self.calls = None, {}, 0

    def by_attribute(self, make):
        if self.value is None:
            self.value = make()
        return self.value

    def by_entry(self, make):
        self.calls += 1
        if "a" not in self.entries:
            self.entries["a"] = make()
        return self.entries["a"]


@pytest.mark.filterwarnings("ignore::tapegrad.errors.ReplayWarning")
@pytest.mark.parametrize("kind", ["by_attribute", "by_entry"])
@pytest.mark.parametrize("solve", ["root", "fixed_point", "fsolve", "quad"])
def test_functions_that_keep_what_they_compute(solve, kind):
    """A derivative does not read what the solver's runs have kept: it is right, or the cache is refused."""

    def run(a, constant):
        cache = Cache()
        kept = lambda p: getattr(cache, kind)(lambda: np.ones(2) if constant else np.exp(p)) * p
        if solve == "root":
            y = tg.implicit.root(lambda x, p: x - kept(p), lambda F, x, p: x - F(x, p))(0.0 * a, a)
        elif solve == "fixed_point":
            y = tg.implicit.fixed_point(lambda x, p: kept(p), lambda F, x, p: F(x, p))(0.0 * a, a)
        elif solve == "fsolve":
            y = scipy.optimize.fsolve(lambda x: x - kept(a), np.zeros(2))
        else:
            return scipy.integrate.quad(lambda t: (2.0 * t * kept(a)).sum(), 0.0, 1.0)[0], cache.calls
        return y.sum(), cache.calls

    a, v = np.array([0.5, -0.3]), np.array([1.0, 2.0])
    for constant, right in ((True, np.ones(2)), (False, np.exp(a) * (1.0 + a))):
        f = lambda a: run(a, constant)[0]
        modes = {
            "grad": lambda: tg.grad(f)(a) @ v,
            "jvp": lambda: tg.jvp(f, (a,), (v,))[1],
            "vmap": lambda: tg.vmap(tg.grad(f))(a[None])[0] @ v,
            "prepare": lambda: tg.prepare(f, a).grad(a) @ v,
        }
        for mode, derivative in modes.items():
            try:
                found = derivative()
            except ArgumentError as error:
                assert not constant and "keeps a value with a derivative" in str(error), mode
            else:
                np.testing.assert_allclose(found, right @ v, rtol=1e-7, err_msg=mode)
    if solve in ("root", "fixed_point"):  # a solver of the user's own is called as often as in a plain call
        calls = []
        tg.grad(lambda a: (lambda y, n: (calls.append(n), y)[1])(*run(a, True)))(a)
        assert calls == [run(a, True)[1]]
