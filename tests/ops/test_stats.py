"""tapegrad.stats against scipy.stats, and its derivatives."""

import numpy as np
import pytest
import scipy.stats
from cases import between, normal, positive
from families import CLASSIC as FAMILIES

import tapegrad as tg
from tapegrad import stats
from tapegrad.testing.derivative_checks import check_grads, plain_host_array

X, P, U = normal(3), positive(3), between(0.1, 0.9, 3)
LOC, SCALE = np.array(0.05), positive(3, seed=1)


def on(xp, *arrays):
    return tuple([xp.asarray(a) for a in arrays])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FAMILIES)
def test_log_density(xp, name):
    shapes, z = FAMILIES[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    x = z * SCALE + LOC
    args = on(xp, x, *shapes, LOC, SCALE)
    np.testing.assert_allclose(
        plain_host_array(ours.logpdf(*args)), theirs.logpdf(x, *shapes, LOC, SCALE), rtol=1e-12, atol=1e-13
    )
    np.testing.assert_allclose(
        plain_host_array(ours.pdf(*args)), theirs.pdf(x, *shapes, LOC, SCALE), rtol=1e-12
    )
    check_grads(ours.logpdf, args, order=2, eps=2e-4, rtol=1e-8)
    check_grads(
        lambda x, *s: ours.logpdf(x, *s, loc=0.1, scale=2.0),
        on(xp, 2 * z + 0.1, *shapes),
        order=2,
        eps=2e-4,
        rtol=1e-8,
    )


@pytest.mark.one_in(7)
@pytest.mark.parametrize("call", ["cdf", "sf", "logcdf", "logsf", "ppf", "isf"])
@pytest.mark.parametrize("name", FAMILIES)
def test_distribution_function(xp, name, call):
    shapes, z = FAMILIES[name]
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    x = U if call in ("ppf", "isf") else z * SCALE + LOC
    if xp is not np and name == "t":
        with pytest.raises(
            (AttributeError, tg.errors.ArgumentError),
            match="cupyx.scipy.special.*stdtr|CuPy has no such function",
        ):
            getattr(ours, call)(*on(xp, x, *shapes))
        return
    f, g = getattr(ours, call), getattr(theirs, call)
    s = on(xp, *shapes)
    np.testing.assert_allclose(
        plain_host_array(f(*on(xp, x), *s, *on(xp, LOC, SCALE))),
        g(x, *shapes, LOC, SCALE),
        rtol=1e-11,
        atol=1e-13,
    )
    check_grads(
        lambda x, loc, scale: f(x, *s, loc, scale), on(xp, x, LOC, SCALE), order=2, eps=2e-4, rtol=1e-8
    )


def test_outside_the_support(xp):
    x = xp.asarray([-1.0, 0.5, 2.0])
    for f, inside in (
        (stats.expon.logpdf, [-np.inf, -0.5, -2.0]),
        (stats.uniform.logpdf, [-np.inf, 0.0, -np.inf]),
    ):
        np.testing.assert_allclose(plain_host_array(f(x)), inside)
    with np.errstate(all="ignore"):
        g = tg.grad(lambda x: np.exp(stats.gamma.logpdf(x, 2.5)).sum())(x)
    assert plain_host_array(g)[0] == 0 and np.isfinite(plain_host_array(g)).all()
    assert (
        plain_host_array(stats.beta.cdf(x, 2.0, 3.0))[0] == 0
        and plain_host_array(stats.beta.cdf(x, 2.0, 3.0))[2] == 1
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_precision_is_that_of_the_library(xp, name):
    """scipy.stats computes in double precision whatever it is given; CuPy keeps single precision."""
    shapes, z = FAMILIES[name]
    x = xp.asarray(z, dtype=xp.float32)
    f = lambda x: getattr(stats, name).logpdf(x, *[2.5] * len(shapes), 0.0, 1.0).sum()
    value, g = tg.value_and_grad(f)(x)
    assert value.dtype == (np.float64 if xp is np else np.float32) and g.dtype == np.float32
    assert getattr(stats, name).logpdf(0.5, *[2.5] * len(shapes)).dtype == np.float64


def test_normal_tails(xp):
    x = xp.asarray([-40.0, -10.0, 10.0, 40.0])
    np.testing.assert_allclose(
        plain_host_array(stats.norm.logcdf(x)), scipy.stats.norm.logcdf(plain_host_array(x)), rtol=1e-13
    )
    np.testing.assert_allclose(
        plain_host_array(stats.norm.logsf(x)), scipy.stats.norm.logsf(plain_host_array(x)), rtol=1e-13
    )


DISCRETE = [
    ("poisson", [0, 1, 4], (P,)),
    ("binom", [0, 2, 5], (np.array([5, 5, 5]), U)),
    ("bernoulli", [0, 1, 1], (U,)),
]


@pytest.mark.parametrize("name, k, args", DISCRETE)
def test_discrete(xp, name, k, args):
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    k = np.array(k)
    a = on(xp, *args)
    np.testing.assert_allclose(
        plain_host_array(ours.logpmf(xp.asarray(k), *a)), theirs.logpmf(k, *args), rtol=1e-12
    )
    check_grads(lambda p: ours.logpmf(xp.asarray(k), *a[:-1], p), a[-1:], order=2, eps=2e-4, rtol=1e-8)
    assert plain_host_array(ours.logpmf(xp.asarray([-1, 0, 0]), *a))[0] == -np.inf


# --- multivariate normal ---

S = np.array([[2.0, 0.5], [0.5, 1.0]])
R = np.array([0.3, -0.7])


def test_f4(xp):
    r, s = on(xp, R, S)
    f = stats.multivariate_normal.logpdf
    assert float(plain_host_array(f(r, 0, s))) == pytest.approx(-2.4833992460913423, rel=1e-14)
    ds = plain_host_array(tg.grad(lambda s: f(r, 0, s))(s))
    np.testing.assert_allclose(
        ds, [[-0.216734693877551, -0.021632653061224], [-0.021632653061224, -0.179183673469388]], rtol=1e-11
    )
    np.testing.assert_allclose(
        plain_host_array(tg.grad(lambda r: f(r, 0, s))(r)),
        [-0.371428571428571, 0.885714285714286],
        rtol=1e-13,
    )
    np.testing.assert_allclose(
        plain_host_array(tg.hessian(lambda r: f(r, 0, s))(r)), -np.linalg.inv(S), rtol=1e-13
    )


def spd(m):
    return m @ m.swapaxes(-1, -2) + 2 * np.eye(m.shape[-1])


SHAPES = [
    ((3,), (3,), (3, 3)),
    ((4, 3), (3,), (3, 3)),
    ((2, 4, 3), (4, 3), (3, 3)),
    ((2, 3), (), (2, 3, 3)),
    ((3,), (2, 3), (4, 1, 3, 3)),
]


@pytest.mark.parametrize("x, mean, m", SHAPES)
def test_multivariate_normal(xp, x, mean, m):
    a, b, c = normal(*x), normal(*mean, seed=2), spd(normal(*m, seed=3))

    def f(x, mean, root):
        return stats.multivariate_normal.logpdf(x, mean, root @ np.swapaxes(root, -1, -2) + 2 * xp.eye(3))

    batch = np.broadcast_shapes(x[:-1], mean[:-1], m[:-2])
    want = np.empty(batch)
    for at in np.ndindex(*batch):
        want[at] = scipy.stats.multivariate_normal.logpdf(
            np.broadcast_to(a, (*batch, 3))[at],
            np.broadcast_to(b, (*batch, 3))[at],
            np.broadcast_to(c, (*batch, 3, 3))[at],
        )
    np.testing.assert_allclose(
        plain_host_array(stats.multivariate_normal.logpdf(*on(xp, a, b, c))), want, rtol=1e-12
    )
    check_grads(f, on(xp, a, b, normal(*m, seed=3)), order=2, rtol=1e-8)


def test_multivariate_normal_of_variances(xp):
    x, mean, v = normal(4, 3), normal(3, seed=1), positive(3)
    want = scipy.stats.multivariate_normal.logpdf(x, mean, np.diag(v))
    np.testing.assert_allclose(
        plain_host_array(stats.multivariate_normal.logpdf(*on(xp, x, mean, v))), want, rtol=1e-12
    )
    check_grads(stats.multivariate_normal.logpdf, on(xp, x, mean, v), order=2, rtol=1e-8)
    one = plain_host_array(stats.multivariate_normal.logpdf(*on(xp, x[:, 0]), 0.5, 2.0))
    np.testing.assert_allclose(one, scipy.stats.multivariate_normal.logpdf(x[:, 0], 0.5, 2.0), rtol=1e-12)


def test_multivariate_normal_errors():
    f = stats.multivariate_normal.logpdf
    with pytest.raises(tg.errors.ShapeError, match="last two axes must be equal"):
        f(R, 0, np.ones((2, 3))[:, :2][:1])
    with pytest.raises(tg.errors.ShapeError, match="last axis of x and of mean must have length 2"):
        f(np.ones(3), 0, S)
    with pytest.raises(tg.errors.NotPositiveDefiniteError):
        tg.grad(lambda s: f(R, 0, s))(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(tg.errors.NotPositiveDefiniteError, match="variance that is not positive"):
        f(R, 0, np.array([1.0, -1.0]))
    with pytest.raises(tg.errors.ArgumentError, match=r"gamma.logpdf takes \(x, a, loc=0, scale=1\)"):
        stats.gamma.logpdf(1.0)
