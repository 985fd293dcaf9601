"""tg.optimize.least_squares, root and curve_fit against SciPy's own with derivatives by hand or by
differences."""

import numpy as np
import pytest
import scipy.optimize
from scipy.optimize import Bounds

import tapegrad as tg
from tapegrad.errors import ArgumentError, ConvergenceError, ShapeError

pytestmark = pytest.mark.smoke

T = np.linspace(0.0, 3.0, 25)
Y = 2.0 * np.exp(-1.1 * T) + 0.3 + 0.05 * np.random.default_rng(0).normal(size=25)


def residuals(p):
    return p[0] * np.exp(-p[1] * T) + p[2] - Y


def by_hand(p):
    e = np.exp(-p[1] * T)
    return np.stack([e, -p[0] * T * e, np.ones(25)], axis=1)


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
@pytest.mark.parametrize("loss", ["linear", "soft_l1", "huber", "cauchy", "arctan"])
def test_least_squares_is_scipys(method, loss):
    if method == "lm" and loss != "linear":
        with pytest.raises(ValueError, match="lm"):
            tg.optimize.least_squares(residuals, [1, 1, 0], method=method, loss=loss)
        return
    expected = scipy.optimize.least_squares(
        residuals, [1.0, 1.0, 0.0], by_hand, method=method, loss=loss, f_scale=0.1
    )
    found = tg.optimize.least_squares(residuals, [1, 1, 0], method=method, loss=loss, f_scale=0.1)
    assert (
        np.allclose(found.x, expected.x, rtol=1e-10)
        and found.nfev == expected.nfev
        and found.njev == expected.njev
    )
    assert np.allclose(found.jac, expected.jac, rtol=1e-10) and np.allclose(
        found.fun, expected.fun, rtol=1e-9, atol=1e-12
    )
    assert found.success and np.isclose(found.cost, expected.cost, rtol=1e-12)


def test_bounds_and_trees():
    limits = ([-np.inf, 0.0, 0.5], [1.5, np.inf, np.inf])
    expected = scipy.optimize.least_squares(residuals, [1.0, 1.0, 0.6], by_hand, bounds=limits)
    for bounds in (limits, Bounds(*limits)):
        assert np.allclose(
            tg.optimize.least_squares(residuals, [1.0, 1.0, 0.6], bounds=bounds).x, expected.x, rtol=1e-9
        )
    r = tg.optimize.least_squares(
        lambda p: {"all": residuals([p["a"], p["b"][0], p["b"][1]])[:, None]},
        {"a": 1.0, "b": np.array([1.0, 0.6])},
        bounds={"a": (None, 1.5), "b": ([0.0, 0.5], None)},
    )
    assert np.allclose(r.flat, expected.x, rtol=1e-9) and r.x["b"].shape == (2,)
    with pytest.raises(tg.errors.ArgumentError, match=r"bounds\['a'\] is for a constant .*int"):
        tg.optimize.least_squares(
            lambda p: p["b"] - p["a"], {"a": 1, "b": np.ones(2)}, bounds={"a": (None, 1.5)}
        )


WORK = np.zeros(25)


def in_place(p, y, *, scale=1.0):
    for i in range(25):
        WORK[i] = p[0] * np.exp(-p[1] * T[i])
    WORK[:] += p[2]
    WORK[:] -= y
    return WORK * scale


def smoothing(count):
    """A rough path through noisy data: residuals of the data and of second differences."""
    y = np.sin(np.linspace(0, 9, count)) + 0.3 * np.random.default_rng(2).normal(size=count)
    return lambda x: np.concatenate([x + 0.1 * np.sin(x) - y, 3.0 * np.diff(x, 2) * (1 + 0.1 * x[1:-1] ** 2)])


@pytest.mark.parametrize("loss", ["linear", "soft_l1", "huber", "cauchy"])
def test_gauss_newton_of_a_sparse_problem(loss):
    fun = smoothing(60)
    found = tg.optimize.least_squares(fun, np.zeros(60), method="gauss-newton", loss=loss, f_scale=0.3)
    tight = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
    known = scipy.optimize.least_squares(fun, found.x, tg.jacobian(fun), loss=loss, f_scale=0.3, **tight)
    assert found.success and np.isclose(found.cost, known.cost, rtol=1e-12)
    np.testing.assert_allclose(found.x, known.x, atol=1e-7)
    np.testing.assert_allclose(found.jac.toarray(), tg.jacobian(fun)(found.x), rtol=1e-10, atol=1e-12)
    assert abs(found.grad).max() < 1e-8 and found.nfev >= found.njev


def test_gauss_newton_of_many_unknowns():
    found = tg.optimize.least_squares(smoothing(20_000), np.zeros(20_000), method="gauss-newton")
    assert found.success and found.optimality < 1e-7 and found.nit < 40


def test_gauss_newton_that_fails():
    run = lambda fun, x, **more: tg.optimize.least_squares(fun, x, method="gauss-newton", **more)
    stopped = run(lambda x: np.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]]), [-1.2, 1.0], max_nfev=3)
    assert not stopped.success and "maxiter" in stopped.message
    assert run(
        lambda x: np.stack([np.log(x[0]) - 3.0, x[1]]), [1e-3, 1.0]
    ).success  # steps into nan are taken back
    assert run(lambda x: np.stack([x[0] - 1, 0.0 * x[1]]), [0.0, 5.0]).x[1] == 5.0  # J'J is singular
    for more, text in (
        ({"bounds": (0, 2)}, "takes no bounds"),
        ({"xtol": 1e-3}, "xtol= is no option"),
        ({"loss": abs}, "one of linear"),
    ):
        with pytest.raises(ArgumentError, match=text):
            run(lambda x: x - 1, [0.5, 0.5], **more)


def test_captured_buffers_and_arguments():
    expected = scipy.optimize.least_squares(residuals, [1.0, 1.0, 0.0], by_hand)
    found = tg.optimize.least_squares(in_place, [1.0, 1.0, 0.0], args=(Y,), kwargs={"scale": 1.0})
    assert np.allclose(found.x, expected.x, rtol=1e-9) and found.nfev == expected.nfev


def test_a_function_behind_the_residuals_writes_through_views():
    """The objects of the call lead to the same memory; they are not a way by which the function reaches
    it."""
    work = np.zeros(4)
    left, right = work[:2], work[2:]

    def simulate(p):
        work[:] = 0.0
        left[:] += p
        np.multiply(left, p[0], out=right)
        return work

    r = tg.optimize.least_squares(lambda p: simulate(p) - np.array([2.0, 3.0, 4.0, 6.0]), np.ones(2))
    np.testing.assert_allclose(r.x, [2.0, 3.0], atol=1e-8)
    solved = tg.optimize.root(lambda p: simulate(p)[2:] - np.array([4.0, 6.0]), np.ones(2))
    np.testing.assert_allclose(solved.x, [2.0, 3.0], atol=1e-8)


def test_least_squares_on_the_library(xp):
    t, y = xp.asarray(T), xp.asarray(Y)
    expected = scipy.optimize.least_squares(residuals, [1.0, 1.0, 0.0], by_hand)
    found = tg.optimize.least_squares(
        lambda p: p[0] * xp.exp(-p[1] * t) + p[2] - y, xp.asarray([1.0, 1.0, 0.0])
    )
    assert type(found.x) is type(t) and np.allclose(found.flat, expected.x, rtol=1e-9)


def test_steps_to_where_residuals_are_nan_are_taken_back():
    f = lambda p: np.stack([np.log(p[0]) - 3.0, np.sqrt(p[1]) - 0.01])
    found = tg.optimize.least_squares(f, [1e-3, 1.0], xtol=1e-12, ftol=1e-12, gtol=1e-12)
    assert np.allclose(found.x, [np.exp(3.0), 1e-4], rtol=1e-5)


@pytest.mark.parametrize("method", ["hybr", "lm", "broyden1", "krylov", "df-sane"])
def test_root(method):
    def f(x):
        return np.array([x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1.0, 0.5 * (x[1] - x[0]) ** 3 + x[1]])

    def jac(x):
        d = 1.5 * (x[0] - x[1]) ** 2
        return np.array([[1 + d, -d], [-d, 1 + d]])

    given = jac if method in ("hybr", "lm") else None
    expected = scipy.optimize.root(f, [0.1, 0.3], jac=given, method=method)
    found = tg.optimize.root(f, [0.1, 0.3], method=method)
    assert found.success and np.allclose(found.x, expected.x, rtol=1e-9)
    if given:
        assert found.nfev == expected.nfev and found.njev == expected.njev
    tree = tg.optimize.root(lambda p: list(f([p["a"], p["b"]])), {"a": 0.1, "b": 0.3}, method=method)
    assert set(tree.x) == {"a", "b"} and np.allclose(tree.flat, expected.x, rtol=1e-9)


def test_root_with_a_captured_buffer_and_arguments():
    work = np.zeros(2)

    def f(x, c):
        work[0] = x[0] * x[1] - c
        work[1] = x[0] - x[1]
        return work

    r = tg.optimize.root(f, [1.0, 2.0], args=4.0)
    assert r.success and np.allclose(r.x, 2.0)


def model(t, a, b, c):
    return a * np.exp(-b * t) + c


def model_jac(t, a, b, c):
    e = np.exp(-b * t)
    return np.stack([e, -a * t * e, np.ones_like(t)], axis=1)


L = np.random.default_rng(1).normal(size=(25, 25)) * 0.02
WIDTH = {None: None, "vector": np.linspace(0.03, 0.1, 25), "matrix": np.eye(25) * 0.0025 + L @ L.T}


@pytest.mark.parametrize("width", WIDTH)
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("method", ["lm", "trf", "dogbox"])
def test_curve_fit_is_scipys(width, absolute, method):
    given = {"sigma": WIDTH[width], "absolute_sigma": absolute, "method": method}
    expected = scipy.optimize.curve_fit(model, T, Y, jac=model_jac, **given)
    found = tg.optimize.curve_fit(model, T, Y, **given)
    assert np.allclose(found[0], expected[0], rtol=1e-9) and np.allclose(found[1], expected[1], rtol=1e-8)


def test_curve_fit_options():
    limits = (0.0, [3.0, 1.0, 2.0])
    for given in ({"bounds": limits}, {"p0": [1.0, 0.5, 0.0], "loss": "soft_l1", "method": "trf"}):
        expected = scipy.optimize.curve_fit(model, T, Y, jac=model_jac, **given)
        found = tg.optimize.curve_fit(model, T, Y, **given)
        assert np.allclose(found[0], expected[0], rtol=1e-9) and np.allclose(found[1], expected[1], rtol=1e-8)
    y = Y.copy()
    y[3] = np.nan
    with pytest.raises(ValueError, match="NaNs"):
        tg.optimize.curve_fit(model, T, y)
    found = tg.optimize.curve_fit(model, T, y, nan_policy="omit", full_output=True)
    keep = np.isfinite(y)
    assert len(found) == 5 and np.allclose(
        found[0], scipy.optimize.curve_fit(model, T[keep], y[keep], jac=model_jac)[0], rtol=1e-9
    )


def test_curve_fit_of_a_tree():
    expected = scipy.optimize.curve_fit(model, T, Y, jac=model_jac)
    f = lambda t, p: p["a"] * np.exp(-p["b"][0] * t) + p["b"][1]
    found, covariance = tg.optimize.curve_fit(f, T, Y, {"a": 1.0, "b": np.ones(2)})
    assert np.allclose([found["a"], *found["b"]], expected[0], rtol=1e-7) and np.allclose(
        covariance, expected[1], rtol=1e-6
    )
    found, _ = tg.optimize.curve_fit(f, T, Y, {"a": 1.0, "b": np.ones(2)}, bounds={"a": (None, 1.5)})
    assert found["a"] <= 1.5


def test_curve_fit_in_place_with_a_buffer():
    work = np.zeros(25)

    def f(t, a, b, c):
        work[:] = np.exp(-b * t)
        work[:] *= a
        work[:] += c
        return work.copy()

    expected = scipy.optimize.curve_fit(model, T, Y, jac=model_jac)
    assert np.allclose(tg.optimize.curve_fit(f, T, Y)[0], expected[0], rtol=1e-9)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: tg.optimize.least_squares(residuals, [1, 1, 0], jac=by_hand),
            ArgumentError,
            "least_squares: jac= is for",
        ),
        (lambda: tg.optimize.curve_fit(model, T, Y, jac="3-point"), ArgumentError, "curve_fit: jac= is for"),
        (
            lambda: tg.optimize.least_squares(lambda x: np.log(x), [1.0, -1.0]),
            ConvergenceError,
            "residual 1 is not finite",
        ),
        (lambda: tg.optimize.least_squares(lambda x: x * 1j, [1.0]), ArgumentError, "complex numbers"),
        (lambda: tg.optimize.root(lambda x: x, [1.0], jac=True), ArgumentError, "root: jac= is for"),
        (lambda: tg.optimize.root(lambda x: x[0], [1.0, 2.0]), ShapeError, "1 numbers for 2 unknowns"),
        (lambda: tg.optimize.root(lambda x: x * np.nan, [1.0, 2.0]), ConvergenceError, "not finite at x0"),
        (
            lambda: tg.optimize.curve_fit(model, T, Y, maxfev=1),
            ConvergenceError,
            "Optimal parameters not found",
        ),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_curve_fit_refuses_arrays_of_a_device(xp):
    if xp is np:
        assert len(tg.optimize.curve_fit(model, T, Y)) == 2
        return
    with pytest.raises(ArgumentError, match="xdata is a CuPy array"):
        tg.optimize.curve_fit(model, xp.asarray(T), Y)


@pytest.mark.parametrize("method", ["trf", "gauss-newton"])
def test_a_pattern_that_misses_an_entry(method):
    """SciPy called a point solved whose cost is a third above the minimum."""
    f = lambda x: np.concatenate([np.diff(x) ** 2, x[:1] * x[-1:] - 1, x**3])
    x = np.linspace(0.5, 1.5, 60)
    given = tg.sparse.pattern(f, x).toarray()
    given[59, 59] = False
    with pytest.raises(tg.errors.ArgumentError, match=r"misses entry \(59, 59\)"):
        tg.optimize.least_squares(f, x, method=method, sparse=given)
