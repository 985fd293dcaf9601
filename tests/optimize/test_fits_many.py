"""least_squares_many and curve_fit_many against SciPy one by one, and on problems that fail."""

import numpy as np
import pytest
import scipy.optimize
from comparison import host

import tapegrad as tg
from tapegrad.errors import ArgumentError, KernelError, ShapeError
from tapegrad.optimize import curve_fit_many, least_squares_many

TIGHT = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
X = np.linspace(-3.0, 3.0, 30)


def peak(x, a, c, w, b, s):
    return a * np.exp(-0.5 * ((x - c) / w) ** 2) + b + s * x


def peaks(count, seed=0, noise=0.05):
    rng = np.random.default_rng(seed)
    truth = np.array([2.0, 0.3, 0.8, 0.5, 0.1])[:, None] * (1 + 0.2 * rng.normal(size=(5, count)))
    return peak(X[:, None], *truth) + noise * rng.normal(size=(30, count))


START = np.array([1.5, 0.0, 1.0, 0.3, 0.0])


def starts(count):
    return np.repeat(START[:, None], count, axis=1)


def one(y, start=START, **options):
    return scipy.optimize.least_squares(
        lambda p: peak(X, *p) - y, start, tg.jacobian(lambda p: peak(X, *p) - y), **TIGHT, **options
    )


def test_peaks_are_scipys():
    Y = peaks(40)
    r = curve_fit_many(peak, X, Y, starts(40))
    assert r.converged.all() and r.cov.shape == (5, 5, 40) and "40 problems, 40 converged" in repr(r)
    for b in range(40):
        x, cov = scipy.optimize.curve_fit(peak, X, Y[:, b], START, xtol=1e-14, ftol=1e-14)
        np.testing.assert_allclose(r.x[:, b], one(Y[:, b]).x, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(r.cov[:, :, b], cov, rtol=1e-4, atol=1e-9)
        np.testing.assert_allclose(r.standard_errors[:, b], np.sqrt(np.diag(r.cov[:, :, b])))
    assert abs(r.gradient).max() < 1e-9


@pytest.mark.one_in(3)
@pytest.mark.parametrize("loss", ["soft_l1", "huber", "cauchy", "arctan"])
def test_robust_losses(loss):
    rng = np.random.default_rng(1)
    Y = peaks(12, 1) + np.where(rng.uniform(size=(30, 12)) < 0.1, 1.0, 0.0)
    r = curve_fit_many(peak, X, Y, starts(12), loss=loss, f_scale=0.1)
    for b in np.flatnonzero(r.converged):
        known = scipy.optimize.least_squares(
            lambda p, y=Y[:, b]: peak(X, *p) - y,
            r.x[:, b],
            tg.jacobian(lambda p, y=Y[:, b]: peak(X, *p) - y),
            loss=loss,
            f_scale=0.1,
            **TIGHT,
        )
        assert np.isclose(r.cost[b], known.cost, rtol=1e-12)
        np.testing.assert_allclose(r.x[:, b], known.x, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(
            r.cov[:, :, b], np.linalg.inv(known.jac.T @ known.jac) * 2 * known.cost / 25, rtol=1e-4
        )
    assert r.converged.sum() > 9
    own = curve_fit_many(peak, X, Y, starts(12), loss=lambda z: 2 * (np.sqrt(1 + z) - 1), f_scale=0.1)
    assert loss != "soft_l1" or np.allclose(own.x, r.x, rtol=1e-12)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("loss", ["huber", "cauchy"])
def test_starts_at_which_all_residuals_are_outliers(loss):
    """There the matrix of the losses' second derivatives vanishes, and it comes back on the way."""
    rng, t = np.random.default_rng(3), np.linspace(0.0, 4.0, 30)
    truth = np.array([2.0, 0.7, 0.3])[:, None] * (1 + 0.2 * rng.normal(size=(3, 200)))
    decay = lambda a, k, c: a * np.exp(-k * (t if np.ndim(a) == 0 else t[:, None])) + c
    Y = decay(*truth) + 0.05 * rng.normal(size=(30, 200))
    Y[5] += 1.5 * (rng.uniform(size=200) < 0.5)
    start = np.array([1.0, 1.0, 0.0])
    r = least_squares_many(
        lambda p, y: decay(*p) - y, np.repeat(start[:, None], 200, axis=1), Y, loss=loss, f_scale=0.1
    )
    assert r.converged.all()
    for b in (7, 105):
        known = scipy.optimize.least_squares(
            lambda p, y=Y[:, b]: decay(*p) - y, start, loss=loss, f_scale=0.1, max_nfev=1000, **TIGHT
        )
        assert np.isclose(r.cost[b], known.cost, rtol=1e-10)


def test_bounds():
    Y = peaks(30, 2)
    low, high = np.array([0.0, -1.0, 0.75, -1.0, -0.02]), np.array([1.9, 0.25, 5.0, 0.45, 0.05])
    r = curve_fit_many(peak, X, Y, starts(30), bounds=(low, high))
    assert r.converged.all() and (abs(r.active_mask).sum(axis=0) > 0).any()
    for b in range(30):
        known = one(Y[:, b], bounds=(low, high))
        assert r.cost[b] <= known.cost * (1 + 1e-9)
        np.testing.assert_allclose(r.x[:, b], known.x, rtol=1e-5, atol=1e-5)
    assert (r.x >= low[:, None]).all() and (r.x <= high[:, None]).all()
    assert (r.gradient[r.active_mask < 0] > 0).all() and (r.gradient[r.active_mask > 0] < 0).all()
    free = abs(r.gradient[r.active_mask == 0])
    assert free.max() < 1e-8
    same = curve_fit_many(peak, X, Y, starts(30), bounds=scipy.optimize.Bounds(low, high))
    assert np.array_equal(same.x, r.x)
    wide = curve_fit_many(peak, X, Y, starts(30), bounds=(-np.inf, np.full((5, 30), np.inf)))
    np.testing.assert_allclose(wide.x, curve_fit_many(peak, X, Y, starts(30)).x, rtol=1e-9, atol=1e-10)


def test_sigma_and_missing_data():
    Y = peaks(8, 3)
    sigma = np.linspace(0.5, 2.0, 30)
    holes = np.where(np.random.default_rng(4).uniform(size=Y.shape) < 0.2, np.nan, Y)
    for y, s, absolute in (
        (Y, sigma, False),
        (Y, sigma[:, None] * np.ones(8), True),
        (holes, sigma, False),
        (holes, None, False),
    ):
        r = curve_fit_many(peak, X, y, starts(8), s, absolute, nan_policy="omit")
        assert r.converged.all()
        for b in range(8):
            keep = np.isfinite(y[:, b])
            given = {
                "sigma": None if s is None else sigma[keep],
                "absolute_sigma": absolute,
                "xtol": 1e-14,
                "ftol": 1e-14,
            }
            x, cov = scipy.optimize.curve_fit(peak, X[keep], y[keep, b], START, **given)
            np.testing.assert_allclose(r.x[:, b], x, rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(r.cov[:, :, b], cov, rtol=1e-4, atol=1e-9)


def test_shapes_of_x():
    Y = peaks(6, 5)
    known = curve_fit_many(peak, X, Y, starts(6))
    own = curve_fit_many(peak, np.repeat(X[:, None], 6, axis=1), Y, starts(6))
    assert np.array_equal(known.x, own.x)
    plane = lambda x, a, b: a * x[0] + b * x[1] ** 2
    points = np.random.default_rng(6).normal(size=(2, 30))
    for x in (points, np.repeat(points[:, :, None], 3, axis=2)):
        z = 2 * points[0][:, None] + np.array([1.0, 2.0, 3.0]) * points[1][:, None] ** 2
        r = curve_fit_many(plane, x, z, np.ones((2, 3)))
        np.testing.assert_allclose(r.x, [[2, 2, 2], [1, 2, 3]], rtol=1e-12)


def test_trees():
    Y = peaks(7, 7)
    P0 = {
        "height": np.full(7, 1.5),
        "place": np.stack([np.zeros(7), np.ones(7)]),
        "line": np.stack([np.full(7, 0.3), np.zeros(7)]),
    }
    f = lambda x, p: peak(x, p["height"], *p["place"], *p["line"])
    r = curve_fit_many(
        f, X, Y, P0, bounds={"height": (None, 2.0), "place": (np.array([[-1.0], [0.1]]), None)}
    )
    plain = curve_fit_many(
        peak, X, Y, starts(7), bounds=([-np.inf, -1, 0.1, -np.inf, -np.inf], [2.0] + [np.inf] * 4)
    )
    np.testing.assert_allclose(r.x["place"], plain.x[1:3], rtol=1e-12)
    assert r.standard_errors["line"].shape == (2, 7) and r.active_mask["height"].shape == (7,)
    assert r.x["height"].max() <= 2.0


def coupled(x, y, gain):
    """Residuals that read neighbours: not one function of one datum each."""
    path = np.cumsum(x[0] * np.exp(-x[1] * np.arange(8.0)))
    return gain * (path - y)


def test_residuals_of_all_data():
    rng = np.random.default_rng(8)
    Y = np.cumsum(
        np.array([1.0, 2.0, 0.5])[:, None] * np.exp(-0.3 * np.arange(8.0)), axis=1
    ).T + 0.05 * rng.normal(size=(8, 3))
    gain = np.array([1.0, 2.0, 3.0])
    r = least_squares_many(coupled, np.array([[1.0] * 3, [0.1] * 3]), (Y, gain))
    for b in range(3):
        known = scipy.optimize.least_squares(lambda x, b=b: coupled(x, Y[:, b], gain[b]), [1.0, 0.1], **TIGHT)
        np.testing.assert_allclose(r.x[:, b], known.x, rtol=1e-6)
    turned = curve_fit_many(
        lambda x, a: a * x / x.max(), X + 4, np.ones((30, 2)) * (X + 4)[:, None], np.ones((1, 2))
    )
    np.testing.assert_allclose(turned.x, 7.0, rtol=1e-12)


def test_an_index_among_the_data_is_seen():
    """One residual differs from all others: the loop over data is not taken."""

    def fun(x, y):
        r = x[0] - y
        r[3] = 10 * (x[0] - y[3])
        return r

    Y = np.random.default_rng(9).normal(size=(6, 4))
    w = np.array([1.0, 1.0, 1.0, 100.0, 1.0, 1.0])
    np.testing.assert_allclose(
        least_squares_many(fun, np.zeros((1, 4)), Y, gtol=0.0).x[0], w @ Y / w.sum(), rtol=1e-12
    )


@pytest.mark.parametrize("library", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def test_a_function_of_the_whole_batch(library):
    xp = pytest.importorskip(library)
    t = xp.linspace(0.0, 3.0, 20)
    rates = xp.asarray([0.5, 1.0, 2.0])
    Y = 2.0 * xp.exp(-t[:, None] * rates) + 0.1 * xp.cos(7 * t)[:, None]
    fun = lambda p, Y: p[0] * xp.exp(-p[1] * t[:, None]) - Y
    r = least_squares_many(fun, xp.ones((2, 3)), Y, vectorized=True, bounds=(xp.zeros(2), np.inf))
    assert bool(r.converged.all()) and type(r.x) is type(t)
    for b in range(3):
        y, s = host(Y)[:, b], host(t)
        known = scipy.optimize.least_squares(lambda p: p[0] * np.exp(-p[1] * s) - y, [1.0, 1.0], **TIGHT)
        np.testing.assert_allclose(host(r.x)[:, b], known.x, rtol=1e-6)


def test_bad_problems_harm_nobody():
    """One starts where a residual is nan, one walks into nan, one has no minimum, one has a parameter without
    effect."""

    def fun(x, kind):
        wall = np.stack([np.log(x[0]) - 1, x[1] - 2])
        away = np.stack([np.exp(-x[0]), x[1]])
        free = np.stack([x[0] - 3, 0 * x[1]])
        return np.where(kind == 0, wall, np.where(kind == 1, away, free))

    kind = np.array([0.0, 0.0, 1.0, 2.0, 0.0])
    X0 = np.array([[1.0, -1.0, 1.0, 1.0, 40.0], [0.0, 0.0, 1.0, 5.0, 0.0]])
    r = least_squares_many(fun, X0, kind, maxiter=60)
    assert r.converged[[0, 3, 4]].all() and not r.converged[1] and "not finite at the start" in r.message[1]
    assert np.array_equal(r.x[:, 1], X0[:, 1])
    np.testing.assert_allclose(r.x[:, [0, 4]].T, [[np.e, 2.0]] * 2, rtol=1e-10)
    np.testing.assert_allclose(r.x[:, 3], [3.0, 5.0])
    assert np.isinf(r.cov[:, :, 3]).all()
    alone = least_squares_many(fun, X0[:, :1], kind[:1], maxiter=60)
    assert np.array_equal(alone.x[:, 0], r.x[:, 0]) and alone.iterations[0] == r.iterations[0]


def test_parts_are_the_whole(monkeypatch):
    Y = peaks(50, 10)
    whole = curve_fit_many(peak, X, Y, starts(50))
    monkeypatch.setattr("tapegrad.optimize._residuals_many.PART_NUMBERS", 1)
    monkeypatch.setattr("tapegrad.optimize._residuals_many.LEAST_PART", 7)
    parts = curve_fit_many(peak, X, Y, starts(50))
    assert (
        np.array_equal(parts.x, whole.x)
        and np.array_equal(parts.cov, whole.cov)
        and np.array_equal(parts.iterations, whole.iterations)
    )


def test_exact_data_and_float32():
    Y = peaks(5, 11, noise=0.0)
    r = curve_fit_many(peak, X, Y, starts(5))
    assert r.converged.all() and r.cost.max() < 1e-28
    small = curve_fit_many(peak, X.astype(np.float32), Y.astype(np.float32), starts(5).astype(np.float32))
    assert small.x.dtype == np.float32 and small.converged.all()
    np.testing.assert_allclose(small.x, r.x, rtol=1e-3, atol=1e-3)


def test_within_a_transform():
    """Results do not depend on tracked values in silence."""
    Y = peaks(2)
    for of in (
        lambda y: curve_fit_many(peak, X, Y * y, starts(2)),
        lambda y: curve_fit_many(peak, X, Y, starts(2) * y),
    ):
        with pytest.raises(ArgumentError, match="within a transform"):
            tg.grad(lambda y, of=of: of(y).x.sum())(1.0)
    with pytest.raises(ArgumentError, match="within a transform"):
        tg.grad(lambda y: least_squares_many(lambda p: p - y, np.ones((1, 2)), vectorized=True).x.sum())(1.0)


def test_no_problem_and_nothing_written():
    assert curve_fit_many(peak, X, np.zeros((30, 0)), np.ones((5, 0))).x.shape == (5, 0)
    Y, P0 = peaks(3), starts(3)
    kept = Y.copy()
    curve_fit_many(peak, X, Y, P0).x[...] = 0
    assert np.array_equal(Y, kept) and np.array_equal(P0, starts(3))


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: curve_fit_many(peak, X, peaks(2), np.ones(5)), ShapeError, r"curve_fit_many: X0 has shape "
        r"\(5,\).*optimize.curve_fit"),
        (lambda: curve_fit_many(peak, X, peaks(2), starts(3)), ShapeError, r"wanted is \(N, B\), a column "
        r"for each of the 3 sets"),
        (lambda: curve_fit_many(peak, X[:5], peaks(2), starts(2)), ShapeError, r"x has shape \(5,\)"),
        (lambda: curve_fit_many(peak, X, peaks(2), starts(2), np.zeros(30)), ArgumentError, "not positive"),
        (lambda: curve_fit_many(peak, X, peaks(2), starts(2), np.ones(4)), ShapeError,
        r"sigma has shape \(4,\)"),
        (lambda: curve_fit_many(peak, X, peaks(2) * np.nan, starts(2)), ArgumentError, "nan_policy='omit'"),
        (lambda: curve_fit_many(peak, X, peaks(2), starts(2), nan_policy="propagate"), ArgumentError,
        "nan_policy='propagate'"),
        (lambda: curve_fit_many(peak, X, peaks(2), starts(2), loss="squares"), ArgumentError,
        "loss='squares'"),
        (lambda: curve_fit_many(peak, X, peaks(2), starts(2), f_scale=0.0), ArgumentError, "f_scale=0.0"),
        (lambda: curve_fit_many(peak, X, peaks(2), starts(2), bounds=(2.0, 1.0)), ArgumentError, "above the "
        "upper one for parameter 0 of"),
        (lambda: curve_fit_many(peak, X, peaks(2), starts(2), bounds=(0.1, 9.0)), ArgumentError, "outside "
        "of the bounds for parameter 1"),
        (lambda: curve_fit_many(peak, X, peaks(2), starts(2), bounds=(np.zeros(3), 1)), ShapeError,
        "bounds are numbers, 5 numbers"),
        (lambda: curve_fit_many(lambda x, a: a, X, peaks(2), np.ones((1, 2))), ShapeError,
        r"returned shape \(\) for"),
        (lambda: least_squares_many(lambda x, y: x - y, np.ones((1, 3)), np.ones((4, 2))), ShapeError,
        r"data\[0\] has shape \(4, 2\)"),
        (lambda: least_squares_many(lambda x: x, np.ones((1, 3)), gtol=-1.0), ArgumentError, "gtol=-1.0"),
        (lambda: least_squares_many(lambda x: x, np.ones((1, 3)), maxiter=0), ArgumentError, "maxiter=0"),
        (lambda: least_squares_many(lambda x: x.sum(), np.ones((2, 3)), vectorized=True), ShapeError,
        r"wanted is \(m, 3\)"),
        (lambda: least_squares_many(lambda x: x if len(range(x[0])) > 0 else -x, np.ones((1, 3))), KernelError,
        r"(?s)np\.where.*test_fits_many\.py"),
    ],
)  # fmt: skip
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()
