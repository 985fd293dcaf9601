"""Values at corners, edges and in tails: numbers of HARD cases 3 to 15 and 61 to 63, and the settled choices
of elementwise
functions, reductions and special functions.  References are closed forms or mpmath."""

import itertools
from contextlib import nullcontext

import mpmath
import numpy as np
import pytest
import scipy.special as sp

import tapegrad as tg
from tapegrad.ops import reductions
from tapegrad.testing.derivative_checks import nested_derivative, plain_host_array

pytestmark = [pytest.mark.smoke, pytest.mark.usefixtures("quiet")]

WORDS2 = ["".join(w) for w in itertools.product("FR", repeat=2)]
WORDS3 = ["".join(w) for w in itertools.product("FR", repeat=3)]


def gradient(xp, f, *x):
    """The gradient of sum f by reverse, which must be that of forward mode along the unit vectors."""
    x = tuple([xp.asarray(v, dtype=float) for v in x])
    nums = tuple(range(len(x)))
    backward = [plain_host_array(g) for g in tg.grad(lambda *v: f(*v).sum(), nums)(*x)]
    for n in nums:
        columns = []
        for e in np.eye(x[n].size).reshape(x[n].size, *x[n].shape):
            v = tuple([xp.asarray(e) if k == n else xp.zeros_like(x[k]) for k in nums])
            columns.append(float(plain_host_array(tg.jvp(lambda *v: f(*v).sum(), x, v)[1])))
        np.testing.assert_allclose(np.array(columns).reshape(x[n].shape), backward[n], rtol=1e-13)
    return backward if len(x) > 1 else backward[0]


def derivative(xp, f, x, word):
    """A derivative of the scalar function f of a number, by one nesting."""
    one = (xp.asarray(1.0),)
    return float(
        plain_host_array(nested_derivative(lambda v: f(v), word, [one] * len(word))(xp.asarray(float(x))))
    )


def close(a, b, rtol=1e-13):
    np.testing.assert_allclose(plain_host_array(a), b, rtol=rtol, atol=1e-15)


def at_zero(xp, name):
    """A second derivative where there may be none warns; on a device, where to look would wait, it does
    not."""
    return (
        pytest.warns(tg.errors.NonDifferentiableWarning, match=f"^{name} at zero .*test_piecewise.py:")
        if xp is np
        else nullcontext()
    )


# --- hard cases 3 to 15 ---


def test_3_abs_at_zero(xp):
    close(gradient(xp, abs, [0.0, -2.0, 3.0]), [0, -1, 1])
    close(gradient(xp, np.fabs, [0.0, -2.0]), [0, -1])


def test_4_sqrt_at_zero(xp):
    assert gradient(xp, np.sqrt, [0.0])[0] == np.inf


def test_5_length_of_zero(xp):
    close(gradient(xp, reductions.root_sum_squares, [0.0, 0.0]), [0, 0])
    close(gradient(xp, np.hypot, [0.0, 3.0], [0.0, 4.0])[0], [0, 0.6])
    for word in WORDS2 + WORDS3:
        with at_zero(xp, "hypot"):
            assert derivative(xp, lambda t: np.hypot(t, 0.0 * t), 0.0, word) == 0
        with at_zero(xp, "abs of complex numbers"):
            assert derivative(xp, lambda t: abs(t + 0j), 0.0, word) == 0


def test_length_cubed_at_zero(xp):
    """H1b: |x|^3 x_n + x_0^2 has Hessian diag(2, 0, ...) at zero."""
    x, v, w = (xp.asarray(a) for a in ([0.0, 0.0, 0.0], [6.0, 7.0, 8.0], [1.0, 1.0, 1.0]))

    def f(x):
        return reductions.root_sum_squares(x) ** 3 * x[-1] + x[0] ** 2

    for word in WORDS2:
        with at_zero(xp, "norm"):
            assert float(plain_host_array(nested_derivative(f, word, [(v,), (w,)])(x))) == 12


def test_6_std_of_constant_data(xp):
    g = gradient(xp, np.std, [2.0, 2.0, 2.0])
    close(g, [0, 0, 0])


def test_7_ties_in_max(xp):
    close(gradient(xp, np.max, [1.0, 3.0, 3.0]), [0, 0.5, 0.5])
    close(gradient(xp, np.min, [1.0, 1.0, 3.0, 1.0]), [1 / 3, 1 / 3, 0, 1 / 3])
    close(gradient(xp, lambda x: np.max(x, axis=1), [[1.0, 1.0], [0.0, 2.0]]), [[0.5, 0.5], [0, 1]])


def test_8_maximum_of_the_same(xp):
    close(gradient(xp, lambda x: np.maximum(x, x), [1.0, -1.0]), [1, 1])
    close(gradient(xp, lambda x: np.fmin(x, x), [1.0, -1.0]), [1, 1])


@pytest.mark.parametrize("ties", [0.0, 2.0])
def test_8_where_one_is_nan_both_take_all(ties):
    """Also in a replay and in a batch, where nobody may look whether there are ties."""
    x, y = np.array([np.nan, 1.0, 2.0, 4.0]), np.array([1.0, np.nan, ties, 5.0])

    def f(x, y):
        return np.maximum(x, y).sum() - np.minimum(y, x).sum()

    half = 0.5 * (ties == 2.0)
    expected = [0, 0, 1 - 2 * half, -1], [0, 0, 2 * half - 1, 1]
    p = tg.prepare(f, x, y, argnums=(0, 1))
    for found in (tg.grad(f, (0, 1))(x, y), *[p.grad(x, y) for _ in range(3)]):
        close(found[0], expected[0])
        close(found[1], expected[1])
    one = tg.vmap(tg.grad(np.maximum, (0, 1)))(x, y)
    close(one[0], [1, 1, 1 - half, 0])
    close(one[1], [1, 1, half, 1])


def test_9_clip_at_the_edge(xp):
    close(gradient(xp, lambda x: np.clip(x, -1.0, 1.0), [-2.0, -1.0, 0.0, 1.0, 2.0]), [0, 0.5, 1, 0.5, 0])


@pytest.mark.parametrize("clip", [lambda x, *limits: x.clip(*limits), lambda x, *limits: np.clip(x, *limits)])
@pytest.mark.parametrize("limits", [("a",), (None, "a"), ({}, 1.0), (0.0, object())])
def test_9_a_limit_that_is_no_number(clip, limits):
    with pytest.raises(TypeError):
        clip(np.ones(3), *limits)
    with pytest.raises(TypeError):
        tg.grad(lambda x: [clip(x, *limits), x.sum()][1])(np.ones(3))


def test_10_where_guards(xp):
    """M9 and hard case 10."""
    close(gradient(xp, lambda x: np.where(x > 0, np.sqrt(x), 0.0), [0.0, -1.0, 4.0]), [0, 0, 0.25])
    close(gradient(xp, lambda x: np.where(x > 0, np.log(x), 0.0), [0.0, -1.0, 4.0]), [0, 0, 0.25])
    close(gradient(xp, lambda x: np.where(x > 0, x**-1.5, 0.0), [0.0, 1.0]), [0, -1.5])
    close(gradient(xp, lambda x: np.where(abs(x) < 1, np.arcsin(x), 0.0), [1.0, 2.0, 0.6]), [0, 0, 1.25])
    close(
        gradient(xp, lambda x: np.where(x > 0, sp.gammaln(x), 0.0), [0.0, -1.0, 1.0]), [0, 0, -np.euler_gamma]
    )
    for word in WORDS2 + WORDS3:
        assert derivative(xp, lambda x: np.where(x > 0, np.sqrt(x), 0.0), 0.0, word) == 0
        assert derivative(xp, lambda x: np.where(x > 0, np.log(x) / x, 0.0), 0.0, word) == 0


def test_minimum_of_one_and_reciprocal_at_zero(xp):
    close(gradient(xp, lambda x: np.minimum(1.0, 1.0 / x), [0.0]), [0])
    close(gradient(xp, lambda x: np.clip(1.0 / x, None, 1.0), [0.0]), [0])


def test_11_logaddexp_in_a_branch_not_taken(xp):
    f = lambda x: np.where(x > 0, np.logaddexp(np.log(x), np.log(x)), 0.0)
    close(gradient(xp, f, [0.0, 2.0]), [0, 0.5])
    x = xp.asarray([-np.inf, 1.0, -np.inf])
    g = tg.grad(lambda x: np.where(np.isinf(x), 0.0, np.logaddexp(x, x)).sum())(x)
    close(g, [0, 1, 0])


def test_logaddexp_tails(xp):
    close(gradient(xp, np.logaddexp, [1000.0, -1000.0], [0.0, 0.0])[0], [1, 0])
    for word in WORDS2:
        d = derivative(xp, lambda t: np.logaddexp(t, 0.0), -40.0, word)
        assert d == pytest.approx(np.exp(-40.0), rel=1e-12)
        d = derivative(xp, lambda t: np.logaddexp(t, 0.0), 40.0, word)
        assert d == pytest.approx(np.exp(-40.0), rel=1e-12)


def test_12_reciprocal_at_zero(xp):
    assert gradient(xp, lambda x: 1.0 / x, [0.0])[0] == -np.inf
    assert gradient(xp, np.reciprocal, [0.0])[0] == -np.inf


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 0.0, 1.0, 2.0, 3.0])
def test_13_powers_at_zero(xp, n):
    for k in (1, 2, 3):
        exact = float(np.prod([n - i for i in range(k)])) if n == k else 0.0
        for word in ["".join(w) for w in itertools.product("FR", repeat=k)]:
            assert derivative(xp, lambda x: x**n, 0.0, word) == exact
            assert derivative(xp, lambda x: np.power(x, xp.asarray(float(n))), 0.0, word) == exact


def test_powers_of_negative_numbers(xp):
    close(gradient(xp, lambda x: x**3.0, [-2.0]), [12])
    close(gradient(xp, lambda x: x ** xp.asarray([2.0, 3.0, -1.0]), [-2.0, -2.0, -2.0]), [-4, 12, -0.25])
    assert gradient(xp, lambda x: x**0.5, [0.0])[0] == np.inf


def test_14_zero_to_the_p(xp):
    close(gradient(xp, lambda p: 0.0**p, [0.0, 1.0, 2.5]), [0, 0, 0])
    close(gradient(xp, lambda x, p: x**p, [0.0, 2.0], [2.0, 0.0])[1], [0, np.log(2)])


def test_15_products_with_zeros(xp):
    close(gradient(xp, np.prod, [2.0, 0.0, 3.0]), [0, 6, 0])
    close(gradient(xp, np.prod, [0.0, 0.0, 3.0]), [0, 0, 0])
    x = xp.asarray([0.0, 0.0, 3.0, 5.0])
    h = plain_host_array(tg.hessian(np.prod)(x))
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[1, 0] = 15
    close(h, expected)
    t = plain_host_array(tg.jacobian(tg.hessian(np.prod))(xp.asarray([0.0, 0.0, 0.0])))
    assert t[0, 1, 2] == 1 and t.sum() == 6
    close(gradient(xp, np.cumprod, [2.0, 0.0, 3.0]), [1, 2 + 6, 0])


# --- 61 to 63 ---


def test_61_cast_to_int(xp):
    close(tg.grad(lambda x: (x.astype(int) * 1.0).sum() + x[0])(xp.asarray([1.5, 2.5])), [1, 0])


def test_62_complex_intermediate(xp):
    close(gradient(xp, lambda x: np.abs(np.exp(1j * x) + 1) ** 2, [0.3, 1.2]), -2 * np.sin([0.3, 1.2]), 1e-12)


def test_63_float32_is_kept(xp):
    x = xp.asarray([0.5, 1.5], dtype=xp.float32)

    def f(x):
        return (
            np.sin(x) * x**2 + np.sqrt(x) / 3 + np.mean(x) + np.std(x) + np.where(x > 1, x, 0) + sp.gammaln(x)
        ).sum()

    assert tg.grad(f)(x).dtype == tg.hvp(f, x, x).dtype == tg.jvp(f, (x,), (x,))[1].dtype == np.float32
    assert f(x if xp is np else np.asarray(x.get())).dtype == np.float32


# --- smoothness and precision ---


@pytest.mark.parametrize("x", [0.0, 1e-9, 1e-3, 0.3, 0.65, 2.5, -7.25])
def test_sinc_at_all_orders(xp, x):
    mpmath.mp.dps = 40
    for k in (1, 2, 3):
        exact = mpmath.diff(lambda t: mpmath.sincpi(t), mpmath.mpf(x), k)
        for word in {"F" * k, "R" * k, "FR" * (k // 2) + "R" * (k % 2)}:
            assert derivative(xp, np.sinc, x, word) == pytest.approx(float(exact), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("x", [-1e4, -300.0, -30.0, -5.0, 0.0, 3.0, 9.0, 37.0, 50.0])
def test_log_ndtr_tails(xp, x):
    mpmath.mp.dps = 60
    ratio = mpmath.npdf(x) / (mpmath.erfc(-mpmath.mpf(x) / mpmath.sqrt(2)) / 2)
    first, second = float(ratio), float(-ratio * (ratio + x))
    assert derivative(xp, sp.log_ndtr, x, "R") == pytest.approx(first, rel=1e-12)
    assert derivative(xp, sp.log_ndtr, x, "F") == pytest.approx(first, rel=1e-12)
    for word in WORDS2:
        assert derivative(xp, sp.log_ndtr, x, word) == pytest.approx(
            second, rel=1e-15 * max(x * x, 1e4), abs=1e-300
        )


def test_logistic_tails(xp):
    for x in (-700.0, -40.0, 40.0, 700.0):
        d = derivative(xp, sp.expit, x, "R")
        assert d == pytest.approx(float(mpmath.exp(-abs(x)) / (1 + mpmath.exp(-abs(x))) ** 2), rel=1e-12)
        assert derivative(xp, sp.log_expit, x, "F") == pytest.approx(
            float(1 / (1 + mpmath.exp(x))), rel=1e-12
        )


@pytest.mark.parametrize("x", [-np.inf, np.inf])
def test_log_ndtr_is_flat_at_infinity(xp, x):
    assert all(derivative(xp, sp.log_ndtr, x, word) == 0.0 for word in ("R", "F", "RF", "FR", "FF"))


@pytest.mark.parametrize("f, order", [(sp.j0, 0), (sp.j1, 1)])
@pytest.mark.parametrize("x", [0.0, 0.5, 2.3, 11.0])
def test_bessel_j(xp, f, order, x):
    for k in (1, 2, 3):
        assert derivative(xp, f, x, "FRF"[:k]) == pytest.approx(
            float(mpmath.besselj(order, x, derivative=k)), rel=1e-10, abs=1e-12
        )


@pytest.mark.parametrize("f, order", [(sp.i0, 0), (sp.i1, 1)])
@pytest.mark.parametrize("x", [0.0, 0.5, 11.5, 13.0, -30.0])
def test_bessel_i(xp, f, order, x):
    for k in (1, 2, 3):
        exact = mpmath.diff(lambda t: mpmath.besseli(order, t), mpmath.mpf(x), k)
        assert derivative(xp, f, x, "FRF"[:k]) == pytest.approx(float(exact), rel=1e-10, abs=1e-12)


def test_xlogy_at_zero(xp):
    close(gradient(xp, lambda y: sp.xlogy(0.0, y), [0.0, 2.0]), [0, 0])
    close(gradient(xp, lambda y: sp.xlogy(2.0, y), [4.0]), [0.5])


def test_logsumexp_with_minus_infinity(xp):
    x = xp.asarray([-np.inf, 0.0, 0.0])
    close(tg.grad(lambda x: reductions.logsumexp(x))(x), [0, 0.5, 0.5])
    rows = xp.asarray([[-np.inf, -np.inf], [0.0, 0.0]])
    g = tg.grad(lambda x: np.where(np.isinf(x[:, 0]), 0.0, reductions.logsumexp(x, axis=1)).sum())(rows)
    close(g, [[0, 0], [0.5, 0.5]])
    close(reductions.logsumexp(xp.asarray([1000.0, 1000.0])), 1000 + np.log(2))


def test_nan_is_passed_over(xp):
    x = [1.0, np.nan, 3.0]
    close(gradient(xp, np.nansum, x), [1, 0, 1])
    close(gradient(xp, np.nanmean, x), [0.5, 0, 0.5])
    close(gradient(xp, np.nanmax, x), [0, 0, 1])
    close(gradient(xp, lambda a: np.fmax(a, 2.0), x), [0, 0, 1])
    close(gradient(xp, np.nan_to_num, [1.0, np.nan, np.inf]), [1, 0, 0])
    close(gradient(xp, lambda a: np.nan_to_num(2.0 * a, copy=False), x), [2, 0, 2])
    close(tg.grad(lambda a: np.sum(np.nan_to_num([a[0], a[1], 3 * a[2]])))(np.array(x)), [1, 0, 3])


def test_parts_of_complex_numbers_that_are_nan():
    z = np.array([complex(1, np.nan), complex(-np.inf, 2), 3 + 4j])
    y, t = tg.jvp(lambda z: np.nan_to_num(z, nan=0.5, neginf=-7.0), (z,), (np.full(3, 1 + 2j),))
    close(y, [1 + 0.5j, -7 + 2j, 3 + 4j])
    close(t, [1, 2j, 1 + 2j])


def test_remainder_in_both(xp):
    close(gradient(xp, np.remainder, [7.5, -7.5], [2.0, 2.0])[1], [-3, 4])
    close(gradient(xp, np.fmod, [7.5, -7.5], [2.0, 2.0])[1], [-3, 3])


def test_parameters_without_a_rule():
    with pytest.raises(tg.errors.NoRuleError, match="obl_rad2 has no derivative in argument 3"):
        tg.jvp(lambda c: sp.obl_rad2(1, 3, c, 2.0)[1], (1.5,), (1.0,))


def test_settings_that_are_refused(xp):
    x = xp.asarray([1.0, 2.0])
    with pytest.raises(ValueError if xp is np else tg.errors.ArgumentError, match="no_such"):
        tg.grad(lambda x: np.quantile(x, 0.2, method="no_such"))(x)
