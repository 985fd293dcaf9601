"""tg.optimize.minimize against scipy.optimize.minimize with derivatives by hand."""

import warnings

import numpy as np
import pytest
import scipy.optimize
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint

import tapegrad as tg
from tapegrad.errors import ArgumentError, ConvergenceError, NotScalarError, TapegradError

pytestmark = pytest.mark.smoke

GRADIENT = ["CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP"]
SECOND = ["Newton-CG", "trust-ncg", "trust-krylov", "trust-constr", "dogleg", "trust-exact"]
WITHOUT = ["Nelder-Mead", "Powell", "COBYLA", "COBYQA"]
C = np.array([1.0, 2.0, 0.5])


def bowl(x):
    return np.exp(0.3 * (x - C)).sum() + ((x - C) ** 2).sum() + 0.1 * x[0] * x[1]


def bowl_grad(x):
    g = 0.3 * np.exp(0.3 * (x - C)) + 2 * (x - C)
    g[0] += 0.1 * x[1]
    g[1] += 0.1 * x[0]
    return g


def bowl_hess(x):
    H = np.diag(0.09 * np.exp(0.3 * (x - C)) + 2)
    H[0, 1] = H[1, 0] = 0.1
    return H


@pytest.mark.parametrize("method", GRADIENT + SECOND + WITHOUT)
def test_every_method_is_scipys(method):
    by_hand = {} if method in WITHOUT else {"jac": bowl_grad}
    if method in ("dogleg", "trust-exact"):
        by_hand["hess"] = bowl_hess
    elif method in SECOND:
        by_hand["hessp"] = lambda x, v: bowl_hess(x) @ v
    x0 = np.array([0.5, 0.0, 2.0])
    expected = scipy.optimize.minimize(bowl, x0, method=method, **by_hand)
    found = tg.optimize.minimize(bowl, x0, method=method)
    assert found.success and expected.success
    assert np.allclose(found.x, expected.x, rtol=0, atol=1e-9 if method not in WITHOUT else 1e-12)
    assert found.nit == expected.nit if "nit" in expected else found.nfev == expected.nfev
    assert x0.tolist() == [0.5, 0.0, 2.0]


WORK = np.zeros(3)


def in_place(x):
    """The bowl by way of a captured buffer and writes."""
    WORK[:] = x - C
    e = np.empty(3)
    for i in range(3):
        e[i] = np.exp(0.3 * WORK[i])
    WORK[:] *= WORK
    e += WORK
    return e.sum() + 0.1 * x[0] * x[1]


@pytest.mark.parametrize("method", GRADIENT + SECOND + WITHOUT)
def test_captured_buffers(method):
    tol = (
        1e-10 if method == "COBYLA" else None
    )  # by default its course decides on more digits than are compared
    found = tg.optimize.minimize(in_place, np.array([0.5, 0.0, 2.0]), method=method, tol=tol)
    expected = tg.optimize.minimize(bowl, np.array([0.5, 0.0, 2.0]), method=method, tol=tol)
    assert found.success and np.allclose(
        found.x, expected.x, rtol=0, atol=1e-7 if method in (*WITHOUT, "trust-constr") else 1e-9
    )
    assert type(WORK) is np.ndarray and np.isfinite(WORK).all()


def test_starting_points_as_scipy_takes_them():
    for x0 in (
        [0, 0, 2],
        (0, 0, 2),
        np.array([0, 0, 2]),
        [0.0, 0, np.int64(2)],
        np.array([0, 0, 2], np.float32).astype(int),
    ):
        r = tg.optimize.minimize(bowl, x0)
        assert isinstance(r.x, np.ndarray) and r.x.dtype == float and abs(bowl_grad(r.x)).max() < 1e-3
    assert tg.optimize.minimize(lambda x: (x - 2) ** 2, 7).x == pytest.approx(2.0)
    assert tg.optimize.minimize(lambda x: ((x - 2) ** 2).sum(), [[1, 2], [3, 4]]).x.shape == (2, 2)
    r = tg.optimize.minimize(
        lambda p: ((p["a"] - p["n"]) ** 2).sum() + (p["b"] ** 2).sum(), {"a": 3.0, "b": np.ones(2), "n": 2}
    )
    assert (
        r.x["a"] == pytest.approx(2.0) and r.x["b"] == pytest.approx([0.0, 0.0], abs=1e-8) and r.x["n"] == 2
    )
    with pytest.raises(
        tg.errors.ArgumentError, match="holds no number to be varied: integers in a tree are constants"
    ):
        tg.optimize.minimize(lambda p: (p["a"] - 1) ** 2, {"a": 3, "b": np.arange(2)})
    r = tg.optimize.minimize(lambda p: ((p[0] - 1) ** 2).sum() + p[1] ** 2, (np.zeros(2), 1.0))
    assert isinstance(r.x, tuple) and r.x[0] == pytest.approx([1.0, 1.0])
    f = lambda x, a, b: ((x - a) ** 2).sum() * b
    assert tg.optimize.minimize(f, [0, 0], args=(3.0, 2.0)).x == pytest.approx([3.0, 3.0])
    assert tg.optimize.minimize(lambda x, a: ((x - a) ** 2).sum(), [0, 0], args=3.0).x == pytest.approx(
        [3.0, 3.0]
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "method", [None, "L-BFGS-B", "TNC", "SLSQP", "trust-constr", "Nelder-Mead", "Powell", "COBYQA"]
)
def test_bounds(method):
    pairs = [(None, 0.5), (1.0, None), (-1.0, 0.0)]
    expected = scipy.optimize.minimize(bowl, np.zeros(3), jac=bowl_grad, method="L-BFGS-B", bounds=pairs).x
    limit = 1e-6 if method in (None, "L-BFGS-B", "TNC", "SLSQP") else 5e-4
    for bounds in (pairs, Bounds([-np.inf, 1.0, -1.0], [0.5, np.inf, 0.0])):
        assert np.allclose(
            tg.optimize.minimize(bowl, np.zeros(3), method=method, bounds=bounds).x, expected, atol=limit
        )
    by_name = {"a": (None, 0.5), "b": ([1.0, -1.0], [np.inf, 0.0])}
    f = lambda p: bowl(np.concatenate([np.reshape(p["a"], (1,)), p["b"]]))
    r = tg.optimize.minimize(f, {"a": 0.0, "b": np.zeros(2)}, method=method, bounds=by_name)
    assert np.allclose(r.flat, expected, atol=limit) and r.x["a"] <= 0.5 and r.x["b"][1] <= 0
    assert np.allclose(tg.optimize.minimize(f, {"a": 0.0, "b": np.zeros(2)}, method=method, bounds={}).flat,
                       tg.optimize.minimize(bowl, np.zeros(3)).x, atol=1e-3)  # fmt: skip


def disc(x):
    return 1.0 - x[0] ** 2 - x[1] ** 2 - 0.1 * np.exp(x[2])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", [None, "SLSQP", "trust-constr", "COBYLA", "COBYQA"])
def test_constraints(method):
    reference = scipy.optimize.minimize(
        bowl,
        np.zeros(3),
        jac=bowl_grad,
        method="SLSQP",
        constraints={"type": "ineq", "fun": disc},
        options={"ftol": 1e-14},
    ).x
    limit = 1e-6 if method in (None, "SLSQP") else 1e-3
    tight = {
        "SLSQP": {"ftol": 1e-14},
        "trust-constr": {"gtol": 1e-10, "xtol": 1e-12},
        None: {"ftol": 1e-14},
    }.get(method)
    for given in ({"type": "ineq", "fun": disc}, [NonlinearConstraint(disc, 0.0, np.inf)]):
        r = tg.optimize.minimize(bowl, np.zeros(3), method=method, constraints=given, options=tight)
        assert np.allclose(r.x, reference, atol=limit)
    tree = {"u": np.zeros(2), "v": 0.0}
    together = lambda p: np.concatenate([p["u"], np.reshape(p["v"], (1,))])
    given = {"type": "ineq", "fun": lambda p, radius: radius - 1 + disc(together(p)), "args": (1.0,)}
    r = tg.optimize.minimize(
        lambda p: bowl(together(p)), tree, method=method, constraints=given, options=tight
    )
    assert np.allclose(r.flat, reference, atol=limit) and r.x["u"].shape == (2,)


def test_equality_and_linear_constraints():
    A = LinearConstraint(np.ones((1, 3)), 1.0, 1.0)
    expected = scipy.optimize.minimize(
        bowl, np.zeros(3), jac=bowl_grad, method="SLSQP", constraints=A, options={"ftol": 1e-14}
    ).x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in ("SLSQP", "trust-constr"):
            for given in (
                A,
                {"type": "eq", "fun": lambda x: x.sum() - 1.0},
                NonlinearConstraint(lambda x: x.sum(), 1.0, 1.0),
            ):
                r = tg.optimize.minimize(bowl, np.zeros(3), method=method, constraints=given)
                assert np.allclose(r.x, expected, atol=1e-4), (method, given)


def test_exact_derivatives_of_constraints_are_used():
    """No value of the constraint is computed for differences: as many as SciPy asks with derivatives by
    hand."""
    calls = []

    def counted(x):
        calls.append(1)
        return disc(x)

    tg.optimize.minimize(bowl, np.zeros(3), constraints={"type": "ineq", "fun": counted})
    mine, calls = len(calls), []
    by_hand = lambda x: np.array([-2 * x[0], -2 * x[1], -0.1 * np.exp(x[2])])
    count = {
        "type": "ineq",
        "fun": lambda x: calls.append(1) or disc(x),
        "jac": lambda x: calls.append(1) or by_hand(x),
    }
    scipy.optimize.minimize(bowl, np.zeros(3), jac=bowl_grad, constraints=count)
    assert mine <= len(calls)


def test_callbacks():
    seen, full = [], []
    tg.optimize.minimize(
        lambda p: (p["a"] - 1) ** 2, {"a": 3.0}, method="BFGS", callback=lambda x: seen.append(x)
    )
    assert seen and set(seen[-1]) == {"a"} and seen[-1]["a"] == pytest.approx(1.0)

    def shown(intermediate_result):
        full.append(intermediate_result)

    tg.optimize.minimize(bowl, np.zeros(3), method="trust-exact", callback=shown)
    assert full[-1].x.shape == (3,) and np.isfinite(full[-1].fun)
    states = []
    tg.optimize.minimize(
        bowl,
        np.zeros(3),
        method="trust-constr",
        callback=lambda x, state: states.append((x, state.nit)) or False,
    )
    assert states[-1][0].shape == (3,) and states[-1][1] >= 1

    def stop(x):
        raise StopIteration

    r = tg.optimize.minimize(bowl, np.zeros(3), method="BFGS", callback=stop)
    assert not r.success and r.nit <= 1


def test_a_method_of_the_users_own():
    def newton(fun, x0, args, jac, hess, **options):
        x = x0
        for _ in range(20):
            x = x - np.linalg.solve(hess(x), jac(x))
        return scipy.optimize.OptimizeResult(x=x, fun=fun(x), success=True, nit=20)

    r = tg.optimize.minimize(bowl, [0, 0, 0], method=newton)
    assert abs(bowl_grad(r.x)).max() < 1e-10


def test_on_the_library(xp):
    c = xp.asarray(C)
    f = lambda p: ((p["x"] - c) ** 2).sum() + xp.exp(0.3 * (p["x"] - c)).sum()
    r = tg.optimize.minimize(
        f, {"x": xp.zeros(3)}, bounds={"x": (None, 1.0)}, options={"ftol": 1e-15, "gtol": 1e-9}
    )
    plain = tg.optimize.minimize(
        lambda x: ((x - C) ** 2).sum() + np.exp(0.3 * (x - C)).sum(),
        np.zeros(3),
        bounds=Bounds(-np.inf, 1.0),
        options={"gtol": 1e-9},
    )
    assert type(r.x["x"]) is type(c) and np.allclose(r.flat, plain.x, atol=1e-6)


def test_the_argument_is_not_written():
    def f(x):
        x -= C
        return (x * x).sum()

    x0 = np.zeros(3)
    for method in ("BFGS", "Nelder-Mead"):
        r = tg.optimize.minimize(f, x0, method=method)
        assert np.allclose(r.x, C, atol=1e-3) and (x0 == 0).all()


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: tg.optimize.minimize(bowl, np.zeros(3), method="simplex"),
            ArgumentError,
            "method='simplex'.*trust-exact",
        ),
        (lambda: tg.optimize.minimize(bowl, [[1.0], [2.0, 3.0]]), ArgumentError, "different lengths"),
        (
            lambda: tg.optimize.minimize(bowl, [True, False, True]),
            ArgumentError,
            "starting values are real numbers",
        ),
        (
            lambda: tg.optimize.minimize(bowl, np.zeros(3), jac=bowl_grad),
            ArgumentError,
            "minimize: jac= is for derivatives by hand",
        ),
        (lambda: tg.optimize.minimize(bowl, np.zeros(3), hess=bowl_hess), ArgumentError, "hess=.*'auto'"),
        (
            lambda: tg.optimize.minimize(bowl, np.zeros(3), maxiter=3),
            ArgumentError,
            "options={'maxiter': ...}",
        ),
        (lambda: tg.optimize.minimize(bowl, {}), ArgumentError, "no number to be varied"),
        (lambda: tg.optimize.minimize(lambda z: abs(z) ** 2, 1j), ArgumentError, "x0 is complex"),
        (lambda: tg.optimize.minimize(lambda x: x, np.zeros(3)), NotScalarError, "shape \\(3,\\)"),
        (
            lambda: tg.optimize.minimize(lambda x: x, np.zeros(3), method="Powell"),
            NotScalarError,
            "shape \\(3,\\)",
        ),
        (
            lambda: tg.optimize.minimize(lambda x: np.log(x).sum(), np.zeros(3) - 1),
            ConvergenceError,
            "not finite at the starting point",
        ),
        (
            lambda: tg.optimize.minimize(bowl, np.zeros(3), bounds={"a": (0, 1)}),
            ArgumentError,
            "x0 must be a dict",
        ),
        (
            lambda: tg.optimize.minimize(lambda p: p["a"] ** 2, {"a": 1.0}, bounds={"b": (0, 1)}),
            ArgumentError,
            "names 'b'.*'a'",
        ),
        (
            lambda: tg.optimize.minimize(lambda p: p["a"] ** 2, {"a": 1.0}, bounds={"a": 3}),
            ArgumentError,
            "bounds\\['a'\\] = 3",
        ),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_constants_among_the_arguments():
    """A plain call gets them as a transform passes them."""
    data = tg.Const(np.array([1.0, 2.0]))
    for method in ("Nelder-Mead", "BFGS", "trust-exact", "trust-ncg"):
        r = tg.optimize.minimize(
            lambda x, d: ((x - d) ** 2).sum() + (d * d).sum(), np.zeros(2), args=(data,), method=method
        )
        np.testing.assert_allclose(r.x, data.value, atol=1e-3)
    r = tg.optimize.least_squares(lambda x, d: x - 2.0 * d, np.zeros(2), args=(data,))
    np.testing.assert_allclose(r.x, 2.0 * data.value)
    r = tg.optimize.root(lambda x, d: x**3 - d, np.ones(2), args=(data,))
    np.testing.assert_allclose(r.x, np.cbrt(data.value))
    r = tg.optimize.minimize_many(lambda x, d: ((x - d) ** 2).sum(), np.zeros((1, 2)), args=(data,))
    np.testing.assert_allclose(r.x, data.value[None])


# --- within a transform ---

SEARCHES = {
    "minimize": lambda f, x0: tg.optimize.minimize(f, x0).x,
    "bfgs": lambda f, x0: tg.optimize.minimize(f, x0, method="bfgs").x,
    "without derivatives": lambda f, x0: tg.optimize.minimize(f, x0, method="nelder-mead", tol=1e-9).x,
    "products": lambda f, x0: tg.optimize.minimize(f, x0, method="trust-ncg").x,
    "a tree": lambda f, x0: tg.optimize.minimize(lambda p: f(p["x"]), {"x": x0}).x["x"],
    "least squares": lambda f, x0: tg.optimize.least_squares(lambda x: x - C0, x0).x,
    "root": lambda f, x0: tg.optimize.root(lambda x: x - C0, x0).x,
}
C0 = np.array([1.0, -2.0])
TRANSFORMS = {
    "jacobian": lambda g: tg.jacobian(g)(np.array([0.3, 0.4])),
    "jvp": lambda g: (
        np.outer(tg.jvp(g, (np.array([0.3, 0.4]),), (np.ones(2),))[1], [1, 1])
        - np.array([[-2.0, 1.0], [1.0, 0.0]])
    ),
    "grad of grad": lambda g: tg.jacobian(tg.grad(lambda a: (g(a) * a).sum() * a[0]))(np.array([0.3, 0.4])),
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_within_a_transform_a_search_is_constant_or_refused(search, transform):
    """The minimum of a function of plain numbers is a constant.  One that depends on what is differentiated has no derivative here."""
    plain, run = SEARCHES[search], TRANSFORMS[transform]
    f = lambda x: ((x - C0) ** 2).sum()
    found = run(lambda a: a[0] * plain(f, np.zeros(2)) + a[::-1] * 0.0)
    expected = run(lambda a: a[0] * C0 + a[::-1] * 0.0)
    assert np.allclose(found, expected, atol=1e-4)
    with pytest.raises(TapegradError, match="optimize within a transform|would drop the derivative"):
        run(lambda a: plain(lambda x: ((x - a) ** 2).sum(), a * 1.0))
