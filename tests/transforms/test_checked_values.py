"""Checks of values hold in every transform: what raises in a gradient raises in a prepared function and under
vmap, where values are hidden, and values are those of NumPy and SciPy."""

import warnings

import numpy as np
import pytest
import scipy.interpolate
import scipy.linalg
import scipy.optimize
import scipy.signal
import scipy.sparse
import scipy.spatial
import scipy.stats

import tapegrad as tg
from tapegrad._scipy.followed import is_python_class
from tapegrad.errors import NoRuleError, TapegradError

W = np.array([1.0, 4.0, 2.0, 7.0])


def matrix(x):
    return np.array([[x[0], 1.0], [1.0, x[1]], [2.0, 2.0 * x[1]]])


def quadratic(x):
    return np.array([1.0, x[0], x[1]])


# name: (function, a point where it is regular, a point where a check fails)
CHECKED = {
    "roots": (lambda x: np.roots(quadratic(x)).real @ W[:2], [3.0, 1.0], [2.0, 1.0]),
    "tf2zpk": (lambda x: scipy.signal.tf2zpk([1.0], quadratic(x))[1].real @ W[:2], [3.0, 1.0], [2.0, 1.0]),
    "eig": (lambda x: np.linalg.eig(np.diag(x))[0].real @ W[:2], [3.0, 1.0], [2.0, 2.0]),
    "eigvals": (lambda x: np.linalg.eigvals(np.diag(x)).real @ W[:2], [3.0, 1.0], [2.0, 2.0]),
    "orth": (lambda x: (scipy.linalg.orth(matrix(x)) ** 3).sum(), [3.0, 2.0], [2.0, 0.5]),
    "null_space": (
        lambda x: abs(scipy.linalg.null_space(np.array([[x[0], 1.0, 2.0], [1.0, x[1], 1.0]]))).sum(),
        [3.0, 2.0],
        [2.0, 0.5],
    ),
    "complete qr": (
        lambda x: np.linalg.qr(np.array([[x[0], 1.0], [x[1], 2.0], [x[1], 3.0]]), mode="complete")[0].sum(),
        [3.0, 2.0],
        [2.0, 0.0],
    ),
    "squareform": (
        lambda x: (scipy.spatial.distance.squareform(np.array([[0 * x[0], x[0]], [x[1], 0.0]])) ** 2).sum(),
        [3.0, 3.0],
        [2.0, 1.0],
    ),
    "periodic spline": (
        lambda x: scipy.interpolate.make_interp_spline(
            np.arange(4.0), np.array([x[0], 1.0, 2.0, x[1]]), bc_type="periodic"
        )(1.5),
        [3.0, 3.0],
        [2.0, 1.0],
    ),
    "nodes of a spline": (
        lambda x: scipy.interpolate.make_interp_spline(x, W)(1.5),
        [1.0, 2.0, 3.0, 4.0],
        [1.0, 3.0, 2.0, 4.0],
    ),
    "nodes of splrep": (
        lambda x: scipy.interpolate.splev(1.5, scipy.interpolate.splrep(x, W, s=0)),
        [1.0, 2.0, 3.0, 4.0],
        [1.0, 3.0, 2.0, 4.0],
    ),
    "points of a grid": (
        lambda x: scipy.interpolate.RegularGridInterpolator((x,), W)([1.5])[0],
        [1.0, 2.0, 3.0, 4.0],
        [1.0, 3.0, 2.0, 4.0],
    ),
    "knots of interp": (lambda x: np.interp(2.2, x, W), [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0]),
    "band": (
        lambda x: scipy.linalg.solveh_banded(np.array([[0.0, x[0]], [x[1], x[1]]]), np.ones(2)).sum(),
        [0.1, 2.0],
        [3.0, 2.0],
    ),
    "weights of lombscargle": (
        lambda x: scipy.signal.lombscargle(np.arange(4.0), W, [0.7], weights=x),
        [1.0, 2.0, 3.0, 4.0],
        [1.0, -2.0, 3.0, 4.0],
    ),
}


def outcome(f, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(f(*args))
        except (ValueError, np.linalg.LinAlgError) as error:
            return error


@pytest.mark.parametrize("name", CHECKED)
def test_a_check_of_values_holds_in_every_transform(name):
    f, *points = CHECKED[name]
    good, bad = map(np.array, points)
    prepared, both = tg.prepare(f, good), np.stack([good, bad])
    assert np.allclose(prepared.grad(good), tg.grad(f)(good))
    assert np.allclose(tg.vmap(tg.grad(f))(both[:1])[0], tg.grad(f)(good))
    failed = (TapegradError, ValueError, np.linalg.LinAlgError)
    for run in (tg.grad(f), prepared.grad, tg.prepare(f, bad).grad, lambda x: tg.vmap(tg.grad(f))(both)):
        with pytest.raises(failed):
            run(bad)
    plain = outcome(f, bad)
    for _ in range(2):
        assert np.allclose(prepared.value(good), f(good))
        value = outcome(prepared.value, bad)
        assert type(value) is type(plain)
        assert isinstance(plain, Exception) or np.allclose(value, plain)


def test_values_that_need_no_derivative_are_those_of_the_plain_function():
    f = lambda x: np.roots(quadratic(x))
    for x in (np.array([2.0, 1.0]), np.array([3.0, 1.0]), np.array([1.0, 1.0])):
        value = tg.prepare(f, x).value(x)
        assert value.dtype == f(x).dtype and np.array_equal(value, f(x))
        assert np.array_equal(tg.vmap(f)(x[None])[0], f(x))
    assert (
        tg.prepare(lambda x: np.poly(f(x)), np.array([1.0, 1.0])).value(np.array([1.0, 1.0])).dtype == float
    )
    singular = np.stack([np.ones((3, 3)), np.arange(9.0).reshape(3, 3)])
    for given, lower, upper in zip(
        singular, *tg.vmap(lambda a: scipy.linalg.lu(a)[1:])(singular), strict=True
    ):
        assert np.allclose([lower, upper], scipy.linalg.lu(given)[1:])


def test_the_second_order_sections_of_a_filter_with_a_double_zero():
    def f(x):
        sections = scipy.signal.tf2sos(*scipy.signal.butter(2, x[0]))
        return scipy.signal.sosfilt(sections, np.sin(np.arange(9.0))) @ np.arange(9.0)

    x = np.array([0.25])
    assert np.isclose(tg.prepare(f, x).value(x), f(x), rtol=1e-12)
    assert np.isclose(tg.vmap(f)(x[None])[0], f(x), rtol=1e-12)


def test_the_forward_jacobian_of_a_rotation_that_aligns_vectors_of_a_plane():
    points = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]])
    f = lambda x: scipy.spatial.transform.Rotation.align_vectors(points + x, points)[0].as_rotvec()
    x, h = np.array([0.3, 0.8, 1.2]), 1e-6
    slopes = np.stack([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(3)], 1)
    for mode in ("forward", "reverse"):
        if is_python_class(scipy.spatial.transform.Rotation):
            assert np.allclose(tg.jacobian(f, mode=mode)(x), slopes, atol=1e-8)
        else:  # compiled, before SciPy 1.17
            with pytest.raises(NoRuleError, match="align_vectors has no derivative rule"):
                tg.jacobian(f, mode=mode)(x)


def test_a_descending_grid_of_tracked_points():
    f = lambda p: scipy.interpolate.interpn((p,), W, [1.5])[0]
    p = np.array([4.0, 3.0, 2.0, 1.0])
    assert np.isclose(tg.value_and_grad(f)(p)[0], f(p))
    assert np.allclose(
        tg.grad(f)(p), tg.grad(lambda q: scipy.interpolate.interpn((q,), W[::-1], [1.5])[0])(p[::-1])[::-1]
    )
    assert np.allclose(
        tg.jvp(f, (p,), (np.ones(4),))[1], f(p - 0.5e-6) * 0 + (f(p + 5e-7) - f(p - 5e-7)) / 1e-6
    )


def test_least_squares_splines_take_repeated_nodes():
    x, t = np.array([0.0, 1.0, 1.0, 2.0, 3.0, 4.0]), np.array([0.0, 0.0, 2.0, 4.0, 4.0])
    f = lambda y: scipy.interpolate.make_lsq_spline(x, y, t, k=1)(1.7)
    y = np.array([0.0, 1.0, 2.0, 3.0, 1.0, 0.5])
    value, g = tg.value_and_grad(f)(y)
    assert np.isclose(value, f(y)) and np.allclose(g, [f(e) for e in np.eye(6)])


def test_find_leaves_out_zeros():
    def f(x):
        rows, _, values = scipy.sparse.find(scipy.sparse.csr_matrix((x, ([0, 1, 2], [0, 1, 2]))))
        return values.sum() * len(values) + rows.sum()

    with_zero, without = np.array([1.0, 0.0, 2.0]), np.array([1.0, 1.0, 2.0])
    p = tg.prepare(f, without)
    for x in (without, with_zero, without):
        assert p.value(x) == f(x) == tg.value_and_grad(f)(x)[0] == p.value_and_grad(x)[0]
        slopes = np.where(x != 0, np.count_nonzero(x), np.nan)  # that of a zero left out is unknown
        np.testing.assert_array_equal(p.grad(x), slopes)


def test_the_gradient_of_a_filter_whose_output_grows():
    """The sums of its gradient are direct: numbers of 1e25 meet such of 1."""
    n, x = 700, np.random.default_rng(0).standard_normal(700)
    weights = np.cos(np.arange(n))
    f = lambda a: scipy.signal.lfilter([1.0], np.array([1.0, a[0]]), x) @ weights
    a, y, dy, slope = -1.08, 0.0, 0.0, 0.0
    for k in range(n):
        y, dy = x[k] - a * y, -y - a * dy
        slope += weights[k] * dy
    runs = np.array([a]), np.array([[a], [0.1]])
    for g in (tg.grad(f)(runs[0]), tg.jacobian(f, mode="forward")(runs[0]), tg.vmap(tg.grad(f))(runs[1])[0]):
        assert np.allclose(g, slope, rtol=1e-10)


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e8])
@pytest.mark.parametrize("wide", [False, True])
def test_the_polar_factor_of_an_ill_conditioned_matrix(condition, wide):
    rng = np.random.default_rng(3)
    left, right, moved = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(3))
    a = left @ np.diag([1.0, 0.5, 0.3, 1.0 / condition]) @ right
    u = left @ right
    p = right.T @ np.diag([1.0, 0.5, 0.3, 1.0 / condition]) @ right
    m = right @ (u.T @ moved - moved.T @ u) @ right.T
    s = np.array([1.0, 0.5, 0.3, 1.0 / condition])
    wanted = u @ right.T @ (m / (s[:, None] + s)) @ right
    f = lambda a: scipy.linalg.polar(a, side="left")[0] if wide else scipy.linalg.polar(a)[0]
    value, tangent = tg.jvp(f, (a,), (moved,))
    assert np.allclose(value, u, atol=1e-7) and np.allclose(tangent, wanted, atol=1e-14 * condition)
    weights = rng.standard_normal((4, 4))
    _, pullback = tg.vjp(f, a)
    assert np.isclose(np.sum(pullback(weights) * moved), np.sum(weights * wanted), rtol=1e-13 * condition)
    assert wide or np.allclose(tg.jvp(scipy.linalg.polar, (a,), (moved,))[0][1], p, atol=1e-12)


def test_derivatives_of_the_polar_factor_at_the_identity_and_of_tall_matrices():
    rng = np.random.default_rng(4)
    for shape in ((3, 3), (5, 3)):
        weights = rng.standard_normal(shape)
        f = lambda a, w=weights: np.sum(scipy.linalg.polar(a)[0] * w)
        tg.testing.check_grads(f, (np.eye(*shape),))


@pytest.mark.parametrize(
    ("f", "a"),
    [
        (lambda a: scipy.linalg.rq(a, mode="economic")[0].sum(), np.ones((2, 3))),
        (lambda a: scipy.linalg.polar(a)[0].sum(), np.ones((3, 3))),
        (lambda a: np.linalg.eigvals(a).real.sum(), np.ones((3, 3))),
    ],
)
def test_factors_that_are_not_unique(f, a):
    regular = a + np.eye(*a.shape) * np.arange(1.0, len(a) + 1)[:, None]
    prepared = tg.prepare(f, regular)
    assert np.allclose(prepared.grad(regular), tg.grad(f)(regular))
    for run in (tg.grad(f), prepared.grad, lambda a: tg.vmap(tg.grad(f))(a[None])):
        with pytest.raises(np.linalg.LinAlgError):
            run(a)


def test_the_tail_of_kappa3():
    """log(1 - cdf), by the series of the power: the cdf is 1 to rounding."""
    z, a = 50.0, 9.0
    wanted = np.log(-np.expm1(-np.log1p(a * z**-a) / a))
    assert np.isclose(tg.value_and_grad(lambda z: scipy.stats.kappa3.logsf(z, a))(z)[0], wanted, rtol=1e-12)


@pytest.mark.parametrize("solve", [np.linalg.lstsq, scipy.linalg.lstsq])
def test_least_squares_with_a_constant_matrix_of_less_rank(solve):
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0], [2.0, 0.0, 2.0]])
    f = lambda b: solve(a, b, None)[0]
    b = np.array([1.0, -2.0, 0.5, 3.0])
    inverse = np.linalg.pinv(a)
    for mode in ("forward", "reverse"):
        assert np.allclose(tg.jacobian(f, mode=mode)(b), inverse)
    assert np.allclose(tg.prepare(f, b).jacobian(b + 1.0), inverse)
    assert np.allclose(tg.vmap(lambda b: tg.jvp(f, (b,), (b,))[1])(np.stack([b, -b])), [f(b), f(-b)])
    with pytest.raises(np.linalg.LinAlgError):
        tg.grad(lambda a: solve(a, b, None)[0].sum())(a)


@pytest.mark.parametrize("name", ["nnls", "lsq_linear"])
def test_bounded_least_squares_of_an_ill_conditioned_matrix(name):
    a = np.vander(np.linspace(0.0, 1.0, 30), 10)  # of condition 3.5e6
    b = a @ np.ones(10)
    f = {
        "nnls": lambda b: scipy.optimize.nnls(a, b)[0],
        "lsq_linear": lambda b: scipy.optimize.lsq_linear(a, b, bounds=(0.0, 2.0)).x,
    }[name]
    value, tangent = tg.jvp(f, (b,), (b,))
    assert np.allclose(value, 1.0, atol=1e-7) and np.allclose(tangent, 1.0, atol=1e-7)
