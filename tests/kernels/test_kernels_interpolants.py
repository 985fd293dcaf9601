"""Tables, interpolants and polynomials in kernels, against NumPy's and SciPy's own values and derivatives."""

import numpy as np
import pytest
import scipy.interpolate as itp

import tapegrad as tg
from tapegrad import kernels
from tapegrad.errors import KernelError

RNG = np.random.default_rng(0)
KNOTS, VALUES = np.sort(RNG.uniform(0, 10, 24)), RNG.normal(size=24)
INSIDE = np.concatenate([RNG.uniform(KNOTS[0], KNOTS[-1], 40), KNOTS])
POINTS = np.concatenate([INSIDE, [-1.0, 11.0, np.nan, np.inf, -np.inf]])


@pytest.mark.parametrize(
    "n", [1, 8, 9, 17, *[pytest.param(n, marks=pytest.mark.long) for n in (2, 3, 10, 11, 200)]]
)
def test_searches_and_linear_tables_of_any_length(n):
    """Up to eight numbers by selects, beyond by bisection; the table is captured, or a parameter."""
    nodes, values = np.sort(RNG.uniform(0, 10, n)), RNG.normal(size=n)
    points = np.concatenate([POINTS, nodes])
    for side in ("left", "right"):
        found = kernels.map(lambda t, side=side: np.searchsorted(nodes, t, side) * 1.0)(points)
        np.testing.assert_array_equal(found, np.searchsorted(nodes, points, side))
    expected = np.interp(points, nodes, values)
    np.testing.assert_allclose(
        kernels.map(lambda t: np.interp(t, nodes, values))(points), expected, atol=1e-14
    )
    table = np.repeat(values[:, None], len(points), 1)
    weighed = kernels.map(lambda t, v: np.interp(t, nodes, v) ** 2)
    np.testing.assert_allclose(weighed(points, table), expected**2, atol=1e-14)
    at = points[np.isfinite(points)]
    gradient = tg.grad(lambda v: weighed(at, v).sum())(table[:, np.isfinite(points)])
    units = np.stack([np.interp(at, nodes, unit) for unit in np.eye(n)])
    np.testing.assert_allclose(gradient, 2 * np.interp(at, nodes, values) * units, atol=1e-13)


def test_entries_that_only_the_run_tells():
    """Rows of a matrix, places from the end, out of range, and places that are no whole numbers."""
    table = RNG.normal(size=(12, 3))

    def f(k, m):
        return np.stack([m[k, 1] * m[k - 12, 2], m[:, 0][k], (m.T)[2, k]])

    places = np.array([0.0, 5.0, 11.0])
    found = kernels.map(f)(places, np.repeat(table[..., None], 3, -1))
    at = places.astype(int)
    np.testing.assert_array_equal(found, [table[at, 1] * table[at, 2], table[at, 0], table[at, 2]])
    lost = kernels.map(lambda k, m: m[k, 0])(
        np.array([12.0, 2.5, np.nan]), np.repeat(table[..., None], 3, -1)
    )
    assert np.isnan(lost).all()


def test_second_derivatives_by_a_table():
    """sum of table[k]^3: the Hessian is diagonal."""
    f = kernels.map(lambda k, v: v[k] ** 3)
    values = RNG.normal(size=16)
    places = np.array([2.0, 9.0, 9.0])
    loss = lambda v: f(places, np.repeat(v[:, None], 3, 1)).sum()
    expected = np.diag(6 * values * np.bincount(places.astype(int), minlength=16))
    np.testing.assert_allclose(tg.hessian(loss)(values), expected, atol=1e-12)


POWERS = itp.PPoly(RNG.normal(size=(3, 23)), KNOTS)
OBJECTS = {
    "CubicSpline": itp.CubicSpline(KNOTS, VALUES),
    "CubicSpline, inside": itp.CubicSpline(KNOTS, VALUES, extrapolate=False),
    "CubicSpline, periodic": itp.CubicSpline(KNOTS, [*VALUES[:-1], VALUES[0]], bc_type="periodic"),
    "PchipInterpolator": itp.PchipInterpolator(KNOTS, VALUES),
    "Akima1DInterpolator": itp.Akima1DInterpolator(KNOTS, VALUES),
    "PPoly": POWERS,
    "its derivative": POWERS.derivative(),
    "PPoly, descending": itp.PPoly(RNG.normal(size=(4, 23)), KNOTS[::-1]),
    "PPoly, descending, inside": itp.PPoly(RNG.normal(size=(2, 23)), KNOTS[::-1], extrapolate=False),
    "make_interp_spline": itp.make_interp_spline(KNOTS, VALUES),
    "linear spline": itp.make_interp_spline(KNOTS, VALUES, k=1),
    "spline of degree 5": itp.make_interp_spline(KNOTS, VALUES, k=5),
    "spline, inside": itp.BSpline(*itp.splrep(KNOTS, VALUES), extrapolate=False),
    "UnivariateSpline": itp.UnivariateSpline(KNOTS, VALUES, s=3.0),
    "UnivariateSpline, zeros": itp.UnivariateSpline(KNOTS, VALUES, s=0, ext=1),
    "UnivariateSpline, constant": itp.UnivariateSpline(KNOTS, VALUES, s=0, ext=3),
    "interp1d": itp.interp1d(KNOTS, VALUES, bounds_error=False),
    "interp1d, filled": itp.interp1d(KNOTS, VALUES, bounds_error=False, fill_value=(1.0, 2.0)),
    "interp1d, extrapolated": itp.interp1d(KNOTS, VALUES, fill_value="extrapolate"),
    "interp1d, cubic": itp.interp1d(KNOTS, VALUES, "cubic", fill_value="extrapolate"),
    "interp1d, quadratic": itp.interp1d(KNOTS, VALUES, "quadratic", bounds_error=False, fill_value=0.5),
    "Polynomial": np.polynomial.Polynomial([0.3, -1.0, 0.2, 0.01]),
    "Polynomial, mapped": np.polynomial.Polynomial([0.3, -1.0, 0.2], domain=[0, 10], window=[-2, 1]),
    "poly1d": np.poly1d([0.1, -0.4, 0.3]),
}


OFTEN = (
    "CubicSpline",
    "CubicSpline, inside",
    "make_interp_spline",
    "UnivariateSpline",
    "interp1d",
    "Polynomial",
)


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.long) for name in OBJECTS]
)
def test_objects_that_a_kernel_captures(name):
    """Values, and slopes against differences: inside, at the knots, and beyond."""
    f = OBJECTS[name]
    kernel = kernels.map(lambda t: f(t) * 1.0)
    at = POINTS[np.isfinite(POINTS)]
    np.testing.assert_allclose(kernel(at), f(at), rtol=1e-9, atol=1e-9)
    between = np.concatenate([INSIDE[:40], [-1.0, 11.0]])
    slopes = tg.grad(lambda t: kernel(t).sum())(between)
    differences = (f(between + 1e-6) - f(between - 1e-6)) / 2e-6
    there = np.isfinite(f(between))
    np.testing.assert_allclose(slopes[there], differences[there], rtol=1e-5, atol=1e-5)
    assert there.sum() >= 40


@pytest.mark.parametrize("name", ["CubicSpline", "make_interp_spline", "UnivariateSpline"])
@pytest.mark.parametrize("nu", [2, *[pytest.param(nu, marks=pytest.mark.long) for nu in (1, 3, 4)]])
def test_derivatives_that_are_asked_for(name, nu):
    f = OBJECTS[name]
    found = kernels.map(lambda t: f(t, nu) * 1.0)(INSIDE[:40])
    np.testing.assert_allclose(found, f(INSIDE[:40], nu) if nu < 4 else np.zeros(40), rtol=1e-8, atol=1e-8)


def test_an_object_of_several_functions():
    f = itp.CubicSpline(KNOTS, np.stack([VALUES, VALUES**2], 1))
    np.testing.assert_allclose(kernels.map(lambda t: f(t))(INSIDE), f(INSIDE).T, rtol=1e-9, atol=1e-9)


def test_methods_and_numbers_that_are_known():
    """What is called with plain numbers is SciPy's; results that are interpolants are taken as such."""
    f = OBJECTS["CubicSpline"]
    slope = lambda t: f.derivative()(t) * f(2.0) + f.integrate(1.0, 3.0) * f.x[1]
    expected = f(INSIDE, 1) * f(2.0) + f.integrate(1.0, 3.0) * f.x[1]
    np.testing.assert_allclose(kernels.map(slope)(INSIDE), expected, rtol=1e-9, atol=1e-9)
    across = itp.CubicSpline(KNOTS, np.stack([VALUES, VALUES**2]), axis=1)
    np.testing.assert_allclose(kernels.map(lambda t: across(t))(INSIDE), across(INSIDE), rtol=1e-9, atol=1e-9)
    with pytest.raises(KernelError, match="axis 1"):
        kernels.map(lambda t: across(np.stack([t, t])))(INSIDE)


def test_a_coefficient_that_changes():
    """The kernel is traced again."""
    f = itp.CubicSpline(KNOTS, VALUES)
    kernel = kernels.map(lambda t: f(t) * 1.0)
    kernel(INSIDE)
    f.c[-1] += 1.0
    np.testing.assert_allclose(kernel(INSIDE), f(INSIDE), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["nearest", "previous"])
def test_kinds_that_are_refused(kind):
    f = itp.interp1d(KNOTS, VALUES, kind, bounds_error=False)
    with pytest.raises(KernelError, match=kind):
        kernels.map(lambda t: f(t) * 1.0)(INSIDE)


def test_whole_parts():
    t = np.array([-1.5, 0.0, 2.999, 3.0])
    np.testing.assert_array_equal(kernels.map(lambda t: int(t) + 0.5 * int(2.7))(t), np.trunc(t) + 1.0)


def test_float32():
    """The text for a device is tested with the case "tables" of `_kernel_cases`."""
    f = lambda t, v: np.interp(t, KNOTS, v) * OBJECTS["CubicSpline"](t)
    t, v = INSIDE.astype("f4"), np.repeat(VALUES[:, None], len(INSIDE), 1).astype("f4")
    found = kernels.map(f)(t, v)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, np.interp(t, KNOTS, VALUES) * OBJECTS["CubicSpline"](t), rtol=2e-3, atol=2e-4
    )
