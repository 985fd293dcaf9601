"""What is a nan and does not matter, since it is overwritten or left out, has no part in a gradient: in
reverse mode as in forward mode."""

import random

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.special
import scipy.stats

import tapegrad as tg
from tapegrad._core.reverse import has_nan

W = np.array([0.7, -0.4, 0.9])
BAD = np.array([False, True, False, False, True, False, True])


def data(seed):
    X = np.random.default_rng(seed).normal(size=(7, 3))
    X[1], X[4, 2], X[6, 0] = np.nan, np.nan, np.nan
    return X


STEPS = {
    "exp": lambda t, X, w: np.exp(0.3 * t),
    "square": lambda t, X, w: t * t,
    "sin": lambda t, X, w: np.sin(t),
    "ratio": lambda t, X, w: t / (1.5 + t * t),
    "root": lambda t, X, w: np.sqrt(t * t + 1.0),
    "log": lambda t, X, w: np.log(t * t + 0.5),
    "factor": lambda t, X, w: t * w[0],
    "power": lambda t, X, w: (t * t + 1.0) ** w[1],
    "matmul": lambda t, X, w: t + 0.1 * (t[:, None] * X) @ w,
    "einsum": lambda t, X, w: np.einsum("ij,i,j->i", X, t, w),
    "rows": lambda t, X, w: np.sum((X - t[:, None]) ** 2 * w, axis=1) / 9,
    "mean": lambda t, X, w: t + np.mean(X * w * t[:, None], axis=1),
    "tail": lambda t, X, w: np.concatenate([t[:3] * w[2], t[3:]]),
    "cube": lambda t, X, w: np.power(t, 3) / 9,
}


def assigned(y, bad):
    y[bad] = 0.25


def copied(y, bad):
    np.copyto(y, 0.25, where=bad)


def put(y, bad):
    np.put(y, np.flatnonzero(bad), 0.25)


ENDINGS = {
    **{
        f.__name__: lambda y, bad, f=f: (y := y * 1.0, f(y, bad), y.sum())[-1]
        for f in (assigned, copied, put)
    },
    "where": lambda y, bad: np.where(bad, 0.25, y).sum(),
    "index": lambda y, bad: y[~bad].sum(),
    "nansum": lambda y, bad: np.nansum(np.where(np.isinf(y), np.nan, y)),
    "elements": lambda y, bad: sum(y[k] for k in np.flatnonzero(~bad)),
}


def program(seed):
    """(The function, that of the good rows alone)."""
    r = random.Random(seed)
    steps, ending, X = (
        [r.choice(list(STEPS)) for _ in range(r.randint(2, 4))],
        r.choice(list(ENDINGS)),
        data(seed),
    )

    def f(w):
        t = X @ w
        for name in steps:
            t = STEPS[name](t, X, w)
        return ENDINGS[ending](t, BAD)

    def good(w):
        t, Y = X[~BAD] @ w, X[~BAD]
        for name in steps:
            t = np.concatenate([t[:2] * w[2], t[2:]]) if name == "tail" else STEPS[name](t, Y, w)
        return t.sum()

    return f, good, (steps, ending)


def check(seed):
    f, good, name = program(seed)
    with np.errstate(all="ignore"):
        step = 1e-30j * np.eye(3)
        expected = np.array([good(W + e).imag for e in step]) * 1e30
        prepared = tg.prepare(f, W)
        for form, found in {
            "grad": tg.grad(f)(W),
            "jvp": np.array([tg.jvp(f, (W,), (e,))[1] for e in np.eye(3)]),
            "vjp": tg.vjp(f, W)[1](1.0),
            "vmap": tg.vmap(tg.grad(f))(np.stack([2 * W, W]))[1],
            "prepared": [prepared.grad(w) for w in (2 * W, 0.5 * W, W)][-1],
        }.items():
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=f"{form} of {name}")
        expected = tg.hessian(good)(W)
        for form, found in {
            "hessian": tg.hessian(f)(W),
            "hvp": np.stack([tg.hvp(f, W, e) for e in np.eye(3)]),
        }.items():
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10, err_msg=f"{form} of {name}")


@pytest.mark.parametrize("seed", range(2))
def test_random_programs(seed):
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_random_programs_long(seed):
    for k in range(20):
        check(1000 * seed + k)


# --- the derivative is undefined for some x alone ---

X = np.array([-1.0, 0.0, 0.04, 4.0])


def overwritten(x):
    y = np.exp(np.sqrt(x))
    y[x <= 0] = 0.0
    return y


EXPECTED = np.array([0.0, 0.0, np.exp(0.2) / 0.4, np.exp(2.0) / 4])


def test_compiled_and_replayed():
    """Recorded where all is a number."""
    with np.errstate(all="ignore"):
        p = tg.prepare(lambda x: overwritten(x).sum(), X, compile=True)
        for x in (X + 2, X + 3, X + 4, X, X + 2, X):
            found = p.grad(x)
        np.testing.assert_allclose(found, EXPECTED, rtol=1e-14)
        plan = tg.sparse.prepare_jacobian(lambda x: overwritten(x) * 1.0, X + 2, compile=True)
        for x in (X + 2, X + 3, X):
            found = plan(x)
        assert scipy.sparse.issparse(found)
        np.testing.assert_allclose(found.toarray(), np.diag(EXPECTED), rtol=1e-14)


def test_products_at_a_point():
    """Recorded where no product is 0 times inf."""
    f = lambda x: np.where(x > 0, np.log(x) * x, 0.0).sum()
    p = tg.prepare(f, np.ones(2))
    with np.errstate(all="ignore"):
        p.hvp(np.array([0.5, 2.0]), np.ones(2))
        assert (
            p.at(np.array([0.0, 2.0])).hvp(np.ones(2)).tolist()
            == tg.hvp(f, np.array([0.0, 2.0]), np.ones(2)).tolist()
            == [0.0, 0.5]
        )


def test_buffers_are_written_once():
    buffer, counts = np.zeros(4), np.zeros(1)

    def f(x):
        buffer[:] = overwritten(x)
        counts[0] += 1
        return buffer.sum()

    with np.errstate(all="ignore"):
        p = tg.prepare(f, X)
        for x in (X + 2, X + 3, X):
            found = p.grad(x)
    np.testing.assert_allclose(found, EXPECTED, rtol=1e-14)
    assert counts[0] == 3
    np.testing.assert_allclose(buffer, [0.0, 0.0, np.exp(0.2), np.exp(2.0)])


@pytest.mark.parametrize(
    "f",
    [lambda A: np.linalg.norm(A, axis=1), lambda A: A.max(1), lambda A: A.std(1)],
    ids=["norm", "max", "std"],
)
def test_rows(f):
    A = np.array([[3.0, 4.0], [np.nan, 1.0], [6.0, 8.0]])

    def loss(A):
        y = f(A)
        y[1] = 0.0
        return y.sum()

    expected = tg.grad(lambda A: f(A).sum())(A[::2])
    found = tg.grad(loss)(A)
    np.testing.assert_allclose(found[::2], expected)
    assert not found[1].any()


def test_of_numbers():
    f = lambda x: np.where(x > 0, np.exp(np.sqrt(x)), 0.0) * x
    with np.errstate(all="ignore"):
        assert (
            tg.grad(f)(-1.0)
            == tg.jvp(f, (-1.0,), (1.0,))[1]
            == tg.grad(lambda x: f(x[0]))(np.array([-1.0]))[0]
            == 0.0
        )


def test_a_given_zero_that_varies():
    """J^H w is linear in w: its derivative at w = 0 is not zero."""
    c = np.array([1.0, np.nan, 3.0])
    for f in (lambda x: np.exp(c) * x, lambda x: np.diag(c) @ x, lambda x: np.sqrt(c) * x):
        with np.errstate(all="ignore"):
            _, pull = tg.vjp(f, np.ones(3))
            found = tg.jvp(pull, (np.zeros(3),), (np.ones(3),))[1]
            np.testing.assert_array_equal(np.isnan(found), np.isnan(pull(np.ones(3))))
            forward, reverse = [
                np.isnan(np.diag(tg.jacobian(f, mode=mode)(np.ones(3)))) for mode in ("forward", "reverse")
            ]
        assert forward[1] and reverse[1]


def test_a_nan_that_matters_stays():
    with np.errstate(all="ignore"):
        assert np.isnan(tg.grad(lambda x: np.exp(np.sqrt(x)).sum())(X)[0])
        assert np.isnan(tg.grad(lambda x: (x * np.array([1.0, np.nan, 1.0, 1.0])).sum())(X)[1])
        assert np.isnan(tg.grad(lambda w: (data(0) @ w).sum())(W)).all()


STACKED = {
    "inv": np.linalg.inv,
    "solve": lambda a: np.linalg.solve(a, np.ones((4, 3, 2))),
    "det": np.linalg.det,
    "slogdet": lambda a: np.linalg.slogdet(a)[1] + 0.0,
    "cholesky": lambda a: np.linalg.cholesky(a @ np.swapaxes(a, -1, -2)),
    "expm": scipy.linalg.expm,
}


@pytest.mark.parametrize("name", STACKED)
def test_a_matrix_of_nan_that_is_overwritten(name):
    """The gradient of the others is that without it, and its own is zero; so in second order."""
    rng = np.random.default_rng(5)
    a, e = 1.0 + rng.random((4, 3, 3)) + 3 * np.eye(3), rng.standard_normal((4, 3, 3))
    bad = np.array([False, True, False, False])
    a[bad] *= -1.0

    def f(a, where=bad):
        y = STACKED[name](np.sqrt(a))
        y[where] = 0.0
        return (y * y).sum()

    with np.errstate(all="ignore"):
        found = tg.grad(f)(a), tg.hvp(f, a, e)
    right = np.where(bad[:, None, None], -a, a)

    def without(a):
        y = STACKED[name](np.sqrt(a))
        return (y[~bad] * y[~bad]).sum()

    for got, want in zip(found, (tg.grad(without)(right), tg.hvp(without, right, e)), strict=True):
        assert not got[bad].any()
        np.testing.assert_allclose(got[~bad], want[~bad], rtol=1e-9, atol=1e-12)


def test_a_finite_matrix_with_a_zero_cotangent_keeps_its_second_derivative():
    """det is 0 exactly in the third matrix: its cotangent is zero there, and not constant."""
    rng = np.random.default_rng(6)
    a, e = rng.standard_normal((3, 2, 2)), rng.standard_normal((3, 2, 2))
    a[1], a[2] = 0.0, np.diag([1.0, 0.0])
    below = np.ones((3, 1, 1))
    below[1] = 0.0

    def f(a):
        y = np.linalg.det(a / below)
        y[1] = 0.0
        return (y * y).sum()

    with np.errstate(all="ignore"):
        found = tg.hvp(f, a, e)
    want = tg.hvp(lambda a: (np.linalg.det(a[::2]) ** 2).sum(), a, e)
    assert want[2].any()
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-13)


def distances(x):
    return np.sqrt(((x[:, None] - x) ** 2).sum(-1))


ROOTS_OF_SQUARES = {
    "distances": lambda x: distances(x).sum(),
    "products": lambda x: (lambda d: np.sqrt((d * d).sum(-1)).sum())(x[:, None] - x),
    "power": lambda x: (((x[:, None] - x) ** 2).sum(-1) ** 0.5).sum(),
    "dot": lambda x: (lambda d: np.sqrt(d @ d))(x[0] - x[1]),
    "vdot": lambda x: (lambda d: np.sqrt(np.vdot(d, d)))(x[1] - x[0]),
    "vecdot": lambda x: (lambda d: np.sqrt(np.vecdot(d, d)))(x[1:] - x[:-1]).sum(),
    "fourth": lambda x: np.sqrt((x[0] - x[1]) ** 4).sum(),
    "mean": lambda x: np.sqrt(np.mean(np.square(x[0] - x[1]))) * x[2, 0] + x[1, 1],
}


@pytest.mark.parametrize("f", ROOTS_OF_SQUARES.values(), ids=ROOTS_OF_SQUARES)
def test_the_root_of_squares_is_even(f):
    """At zero its slope is the mean of those on both sides, in both modes and in all forms."""
    x = np.array([[0.3, -1.2], [0.3, -1.2], [2.0, 0.7]])
    means = np.empty_like(x)
    for k in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[k] = 1e-6
        means[k] = (f(x + e) - f(x - e)) / 2e-6
    slopes = [tg.jvp(f, (x,), (e.reshape(x.shape),))[1] for e in np.eye(x.size)]
    for found in (
        tg.grad(f)(x),
        np.reshape(slopes, x.shape),
        tg.prepare(f, x + np.arange(6.0).reshape(3, 2) ** 2).grad(x),
        tg.vmap(tg.grad(f))(np.stack([x, 2 * x]))[0],
    ):
        np.testing.assert_allclose(found, means, atol=1e-8)
    with pytest.warns(tg.errors.NonDifferentiableWarning, match="root of squares at zero"):
        tg.hvp(f, x, np.arange(6.0).reshape(3, 2))


def test_infinite_slopes_of_what_is_no_root_of_squares():
    """The derivative of cbrt(x^3) is 1, that of sqrt(x^1.5) infinite: none of these may be 0."""
    zeros = np.zeros(2)
    for f in (
        lambda x: np.cbrt(x * x * x).sum(),
        lambda x: np.cbrt(x**3).sum(),
        lambda x: np.sqrt(x**1.5).sum(),
        lambda x: np.sqrt(x * np.sqrt(x)).sum(),
        lambda x: ((x**3) ** (1 / 3)).sum(),
        lambda x: np.log(x**2).sum(),
        lambda x: (1 / np.sqrt(x * x)).sum(),
        lambda x: (x / np.sqrt(x @ x)).sum(),
        lambda x: np.cbrt(x * np.sin(x)).sum(),
    ):
        with np.errstate(all="ignore"):
            assert not np.isfinite(tg.grad(f)(zeros)).any()
    assert (tg.grad(lambda x: np.sqrt(x).sum() + np.sqrt(((x - x[::-1]) ** 2).sum()))(zeros) == np.inf).all()
    np.testing.assert_array_equal(tg.grad(lambda x: np.sqrt(x[0] ** 2 + x[1]))(zeros), [0, np.inf])


SHARES = {
    "entropy": lambda x: scipy.stats.entropy(x),
    "relative entropy": lambda x: scipy.stats.entropy(x, np.array([0.2, 0.3, 0.1, 0.4])),
    "by hand": lambda x: scipy.special.entr(x / x.sum()).sum(),
    "by a factor": lambda x: np.sqrt(x * (1 / x.sum())).sum(),
    "by rows": lambda x: np.cbrt(np.stack([x, 2 * x]) / np.stack([x, x * x]).sum(1, keepdims=True)).sum(),
}


@pytest.mark.parametrize("f", SHARES.values(), ids=SHARES)
def test_a_share_of_zero(f):
    """Its slope is infinite with respect to its own weight, and 0 with respect to the sum of all."""
    x = np.array([0.5, 0.0, 0.2, 0.9])
    others = np.array([0, 2, 3])
    with np.errstate(all="ignore"):
        prepared = tg.prepare(f, x + 1)
        replayed = [prepared.grad(at) for at in (x + 1, x + 2, x)][-1]
        found = [tg.grad(f)(x), tg.jacobian(f, mode="forward")(x), replayed]
    wanted = np.array([(f(x + 1e-6 * e) - f(x - 1e-6 * e)) / 2e-6 for e in np.eye(4)[others]])
    for slopes in found:
        assert np.isinf(slopes[1])
        np.testing.assert_allclose(slopes[others], wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.complex128])
def test_a_nan_is_found_in_any_layout_and_nothing_else(dtype):
    """Sums of squares that overflow or vanish are no nan, and warn of nothing."""
    x = np.array([[np.finfo(dtype).max, np.inf, -np.inf, 0.0, np.finfo(dtype).tiny] * 3] * 4, dtype)
    for v in (x, x.T, x[::2, ::-3], x[1], np.asfortranarray(x), x[:0], x[0, 0], x[:, 1:3]):
        with np.errstate(all="raise"):
            assert not has_nan(v)
        if np.size(v):
            bad = np.array(v, order="K")
            bad.flat[-1] = np.nan
            assert has_nan(bad) and has_nan(bad[..., ::-1] if bad.ndim else bad)
