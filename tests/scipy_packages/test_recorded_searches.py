"""Searches of scipy.optimize: SciPy runs on plain copies of the functions, and what a rule adds to its result
is recorded. The references are closed forms and Newton's method in complex numbers."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.optimize as opt
from scipy.integrate import quad

import tapegrad as tg
from tapegrad.errors import ConvergenceError, NoRuleError, ShapeError, SingularError

X = np.array([1.1, 0.4])
STEPS = (1.0, 1.02, 0.9, 1.05, 1.07, 0.93)
TIMES = np.linspace(0.0, 1.0, 7)
TIGHT = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}


def cube_root(a):
    return opt.brentq(lambda z: z**3 - a, 0.0, 9.0, xtol=1e-15)


def test_derivatives_of_each_order():
    """A chord step for each transform: one too few would leave the last order wrong."""
    f, factor = cube_root, 1.0
    for order in range(5):
        assert f(1.7) == pytest.approx(factor * 1.7 ** (1 / 3 - order), rel=1e-11)
        factor *= 1 / 3 - order
        f = tg.grad(f)
    push = lambda f: lambda a: tg.jvp(f, (a,), (1.0,))[1]
    assert push(tg.grad(push(cube_root)))(1.7) == pytest.approx(10 / 27 * 1.7 ** (-8 / 3), rel=1e-11)


def system(z, x):
    """Two equations, for real and complex numbers."""
    return np.stack([z[0] ** 3 + x[0] * z[0] + 0.3 * z[1] - x[1], z[1] - np.sin(z[0] * x[1]) - x[0] ** 2])


def newton_solution(x):
    """By Newton's method; the Jacobian is that of complex steps."""
    z = np.zeros(2, complex)
    for _ in range(60):
        J = np.stack([(system(z + 1e-7 * e, x) - system(z - 1e-7 * e, x)) / 2e-7 for e in np.eye(2)], 1)
        z = z - np.linalg.solve(J, system(z, x))
    return z


def by_fsolve(x):
    return opt.fsolve(lambda z: system(z, x), [0.0, 0.0], xtol=1e-14)


def by_root(x):
    return opt.root(system, [0.0, 0.0], args=(x,), tol=1e-14).x


def by_squares(x):
    return opt.least_squares(lambda z: system(z, x), [0.0, 0.0], **TIGHT).x


@pytest.mark.parametrize("solve", [by_fsolve, by_root, by_squares])
def test_a_system_against_complex_steps(solve):
    p, g = (
        tg.prepare(lambda x: (solve(x) ** 2).sum(), X),
        lambda x: tg.grad(lambda x: (solve(x) ** 2).sum())(x),
    )
    for s in STEPS:
        x = s * X
        exact = [(newton_solution(x + 1e-25j * e) ** 2).sum().imag / 1e-25 for e in np.eye(2)]
        np.testing.assert_allclose(g(x), exact, rtol=1e-9)
        np.testing.assert_allclose(p.grad(x), exact, rtol=1e-9)
    second = np.stack([(g(X + 1e-5 * e) - g(X - 1e-5 * e)) / 2e-5 for e in np.eye(2)])
    np.testing.assert_allclose(tg.hessian(lambda x: (solve(x) ** 2).sum())(X), second, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(p.hessian(X), second, rtol=1e-6, atol=1e-8)


def nested(x):
    inner = lambda y: opt.brentq(lambda z: z**3 + z - y * x[0], -9, 9, xtol=1e-15)
    return opt.brentq(lambda y: inner(y) + y - x[1], -9, 9, xtol=1e-15)


def nested_slope(x):
    """y + z = x1 and z^3 + z = x0 y: the derivative of y, by hand."""
    y = nested(x)
    z = x[1] - y
    slope = 3 * z * z + 1
    return np.array([-y, slope]) / (slope + x[0])


def test_nested_roots():
    p = tg.prepare(nested, X)
    for s in STEPS:
        np.testing.assert_allclose(tg.grad(nested)(s * X), nested_slope(s * X), rtol=1e-10)
        np.testing.assert_allclose(p.grad(s * X), nested_slope(s * X), rtol=1e-10)
    assert p.forms["grad"].recordings == 1
    h = [(nested_slope(X + 1e-6 * e) - nested_slope(X - 1e-6 * e)) / 2e-6 for e in np.eye(2)]
    np.testing.assert_allclose(tg.hessian(nested)(X), h, rtol=1e-6)


def roots_in_turn(x):
    z, scale = 0.0, {"of": [x[1], 2.0]}
    for k in range(4):
        z = opt.brentq(lambda y: y**3 + y - z - x[0] * k * scale["of"][0], -9, 9, xtol=1e-15)
    return z


def test_a_replay_runs_the_searches_alone():
    """The derivative has no instruction of its own in Python."""
    p, g = tg.prepare(roots_in_turn, X), tg.grad(roots_in_turn)
    for s in STEPS:
        np.testing.assert_allclose(p.grad(s * X), g(s * X), rtol=1e-11)
    slopes = [(roots_in_turn(X + 1e-6 * e) - roots_in_turn(X - 1e-6 * e)) / 2e-6 for e in np.eye(2)]
    np.testing.assert_allclose(g(X), slopes, rtol=1e-7)
    assert p.forms["grad"].recordings == 1
    assert "4 scipy.optimize.brentq" in p.report() and "pullback" not in p.report()


def test_a_branch_of_the_equation():
    """The recording holds for one branch at the solution; the search takes both."""
    f = lambda a: opt.brentq(lambda z: z**3 - a if z > 1.0 else z - a, -5, 5, xtol=1e-15)
    p = tg.prepare(f, 0.5)
    for a in (0.5, 1.5, 0.6, 2.0, 0.7, 2.5):
        assert p.grad(a) == pytest.approx(1.0 if a < 1 else a ** (-2 / 3) / 3, rel=1e-10)


def test_what_a_later_branch_keeps():
    """A function that leaves nothing behind while it is recorded may do so in a replay."""
    log = []

    def f(a):
        def equation(z):
            if a > 2.0:
                log.append(a)
            return z**3 - a

        return opt.brentq(equation, 0, 9, xtol=1e-15)

    for transform in (tg.prepare(f, 1.0).grad, tg.grad(f)):
        for a in (1.0, 1.1, 3.0, 1.2, 3.1):
            log.clear()
            f(a)
            plain = [*log]
            log.clear()
            assert transform(a) == pytest.approx(a ** (-2 / 3) / 3, rel=1e-10)
            assert log == plain


def test_a_function_may_write_its_argument():
    """SciPy gives `minimize` copies of the point; the derivative is taken at one, too."""

    def f(x):
        def distance(z):
            z *= 2.0
            return ((z - x) ** 2).sum()

        return opt.minimize(distance, [0.5, 0.5], tol=1e-12).x.sum()

    for transform in (tg.grad(f), tg.prepare(f, X).grad):
        np.testing.assert_allclose(transform(X), 0.5, rtol=1e-9)


def test_callbacks_keep_their_signature():
    """SciPy tells by their names what they are given."""
    values = []

    def f(x):
        def look(intermediate_result):
            assert intermediate_result.fun >= 0.0

        def note(intermediate_result):
            values.append(float(tg.value(intermediate_result.fun)))

        distance = lambda z: ((z - x) ** 2).sum() + 0.5 * (z * z).sum()
        settings = {"tol": 1e-12, "method": "BFGS"}
        return (
            opt.minimize(distance, [0.1, 0.1], callback=look, **settings).x.sum()
            + opt.minimize(distance, [0.1, 0.1], callback=note, **settings).x.sum()
        )

    p = tg.prepare(f, X)
    for s in STEPS[:3]:
        np.testing.assert_allclose(tg.grad(f)(s * X), 4 / 3, rtol=1e-7)
        np.testing.assert_allclose(p.grad(s * X), 4 / 3, rtol=1e-7)
    assert values


def test_parameters_of_a_local_search():
    """Given by `minimizer_kwargs`, they move the solution."""
    distance = lambda z, x: ((z - x) ** 2).sum() + 0.5 * (z * z).sum()

    def f(x):
        local = {"args": (x,), "tol": 1e-12}
        return opt.basinhopping(distance, [0.1, 0.1], niter=1, rng=1, minimizer_kwargs=local).x.sum()

    np.testing.assert_allclose(tg.grad(f)(X), 2 / 3, rtol=1e-7)
    np.testing.assert_allclose(tg.prepare(f, X).grad(X), 2 / 3, rtol=1e-7)


def test_bounds_that_move():
    def f(x):
        found = opt.minimize_scalar(
            lambda z: (z - x[0]) ** 2 + x[1] * z * z,
            bounds=(0, 3 * x[0]),
            method="bounded",
            options={"xatol": 1e-11},
        )
        return found.x

    p = tg.prepare(f, X)
    for s in STEPS:
        x = s * X
        exact = [1 / (1 + x[1]), -x[0] / (1 + x[1]) ** 2]
        np.testing.assert_allclose(tg.grad(f)(x), exact, rtol=1e-8)
        np.testing.assert_allclose(p.grad(x), exact, rtol=1e-8)
    with pytest.raises(ConvergenceError, match="is not the solution"):
        tg.grad(
            lambda a: opt.minimize_scalar(lambda z: (z - a) ** 2, bounds=(2 * a, 9.0), method="bounded").x
        )(1.0)


def test_a_parameter_that_is_stored():
    """The search hands plain parameters to the function: what is stored of them has lost its derivative."""
    kept = {}

    def f(x):
        def equation(z, a):
            kept["a"] = a
            return z**3 - a

        return opt.brentq(equation, 0, 9, args=(x[0],)) * kept["a"]

    with pytest.raises(NoRuleError, match="kept while scipy"):
        tg.grad(f)(X)


def test_results_of_a_fit_within_a_recording():
    """The Jacobian at the solution has its derivative there, too; an estimate of the search has none."""
    model = lambda a: lambda z: z[0] * np.exp(-z[1] * TIMES) - a * np.exp(-0.8 * a * TIMES)
    f = lambda a: (opt.least_squares(model(a), [1.0, 1.0], **TIGHT).jac ** 2).sum()
    p = tg.prepare(f, 1.3)
    for a in (1.3, 1.31, 1.32):
        z = np.array([a, 0.8 * a])
        slope = lambda a: np.stack([np.exp(-0.8 * a * TIMES), -a * TIMES * np.exp(-0.8 * a * TIMES)])
        exact = (slope(a + 1e-6) ** 2 - slope(a - 1e-6) ** 2).sum() / 2e-6
        np.testing.assert_allclose(opt.least_squares(model(a), [1.0, 1.0], **TIGHT).x, z, rtol=1e-6)
        np.testing.assert_allclose([tg.grad(f)(a), p.grad(a)], exact, rtol=1e-6)
    estimate = lambda a: opt.minimize(lambda z: a * z[0] ** 2 + z[0], [1.0], method="BFGS").hess_inv[0, 0]
    with pytest.raises(NoRuleError, match="what the search made on its way"):
        tg.prepare(estimate, 1.3).grad(1.3)


def test_bad_solutions_are_told():
    flat = lambda a: opt.root(
        lambda z: np.stack([z[0] + z[1] - a, 2 * z[0] + 2 * z[1] - 2 * a]), [0.0, 0.0]
    ).x[0]
    many = lambda a: opt.root(
        lambda z: np.stack([z[0] - a, z[1] + a, z[0] + z[1]]), [0.0, 0.0], method="lm"
    ).x[0]
    far = lambda a: opt.minimize(lambda z: np.exp(-z[0] * a), [1.0], method="BFGS", options={"maxiter": 1}).x[
        0
    ]
    crossed = lambda a: opt.brentq(lambda z: z * z + a, -1, 1)
    for f, error in (
        (flat, SingularError),
        (many, ShapeError),
        (far, ConvergenceError),
        (crossed, ValueError),
    ):
        for call in (tg.grad(f), tg.prepare(f, 1.2).grad):
            with pytest.raises(error):
                call(1.2)


BRANCHES = {
    "brentq": lambda a: opt.brentq(lambda z: -1.0 if z < 0.1 else z**3 - a, 0, 4, xtol=1e-15) ** 3,
    "minimize": lambda a: opt.minimize(lambda z: 100.0 - z[0] if z[0] < 1 else (z[0] - a) ** 2, [0.5]).x[0],
    "minimize_scalar": lambda a: (
        opt.minimize_scalar(
            lambda z: (z - a) ** 2 if z > 0.5 else 10.0 - z, bounds=(-8, 3), method="bounded"
        ).x
    ),
    "quad": lambda a: quad(lambda t: 3.0 if t < 0.1 else a * t, 0, 1, points=[0.1])[0] / 0.495,
}


@pytest.mark.parametrize("name", BRANCHES)
def test_where_the_first_point_says_nothing(name):
    """SciPy asks first at a point where the function does not depend on the parameter."""
    f = BRANCHES[name]
    assert tg.grad(f)(2.0) == pytest.approx(1.0, rel=1e-6)
    assert tg.prepare(f, 2.0).grad(2.0) == pytest.approx(1.0, rel=1e-6)


def test_searches_keep_the_copies_of_functions():
    """What is copied once stands for other values of arrays and numbers, in several threads at once."""
    scale, limits = np.array([1.0, 2.0]), [0.0, 9.0]

    def f(x):
        buffer, pair = np.zeros(3), {"of": [x[0], x * 2]}
        buffer[1:] = x
        z = opt.brentq(
            lambda z, a: z**3 * pair["of"][1][1] + z * buffer[1:][0] - a * scale[1], *limits, (x[1],)
        )
        return opt.brentq(lambda y: y**3 + y * z - scale[0], *limits)

    p, rng = tg.prepare(f, X), np.random.default_rng(0)
    points = rng.uniform(0.5, 1.5, (16, 2))
    for k, x in enumerate(points):
        scale[:] = 1 + k % 3, 2
        np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), rtol=1e-9)
    assert p.forms["grad"].recordings == 1
    wanted = [tg.grad(f)(x) for x in points]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            np.testing.assert_allclose([*pool.map(p.grad, points)], wanted, rtol=1e-9)


def test_a_minimum_that_is_the_start():
    """Slopes below SciPy's tolerance end the search where it begins, far from the minimum for its size."""
    near = np.array([1.0, 2.0])
    f = lambda p: opt.minimize(lambda x: ((x - 1e-6 * p) ** 2).sum(), np.zeros(2)).x.sum()
    recorded = tg.prepare(f, 1e6 * near).grad
    np.testing.assert_allclose(recorded(1e6 * near), [1e-6, 1e-6], rtol=1e-9)
    for transform in (tg.grad(f), recorded, lambda p: tg.vmap(tg.grad(f))(p[None])):
        with pytest.raises(ConvergenceError, match="is not the solution"):
            transform(near)
    g = lambda p: opt.minimize(lambda x: ((x - p) ** 2).sum(), near + 1e-7).x.sum()
    np.testing.assert_allclose(tg.grad(g)(near), [1.0, 1.0])
    h = lambda p: opt.minimize(lambda x: ((x - x * p) ** 2).sum(), np.zeros(2)).x.sum()
    np.testing.assert_allclose(tg.grad(h)(np.array([2.0, 3.0])), [0.0, 0.0])
