"""Operations on large arrays that a recording holds as those they are made of: logsumexp, softmax."""

import warnings

import mpmath
import numpy as np
import pytest
import scipy.special as sp

import tapegrad as tg

X = np.random.default_rng(3).normal(size=(200, 5))
WIDE = np.random.default_rng(4).normal(size=(20, 70))
PROGRAMS = {
    "logsumexp": lambda x, axis: sp.logsumexp(x, axis=axis),
    "kept": lambda x, axis: x - sp.logsumexp(x, axis=axis, keepdims=True),
    "softmax": lambda x, axis: sp.softmax(x, axis=axis),
    "log_softmax": lambda x, axis: sp.log_softmax(x, axis=axis),
}


def operations(p, method):
    return [i.name for _, i in p.forms[method].programs[0].program.code]


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_those_of_eager_calls(name, axis, compile):
    for x in (X, WIDE):
        f = lambda x, name=name: (PROGRAMS[name](x, axis) ** 2 * 0.5).sum()
        p = tg.prepare(f, x, compile=compile)
        for k in range(4):
            at = x * (1.0 + 0.3 * k)
            for made, want in zip(p.value_and_grad(at), tg.value_and_grad(f)(at), strict=True):
                np.testing.assert_allclose(made, want, rtol=1e-13, atol=1e-14 * np.abs(want).max())


def test_a_value_and_its_gradient_share_the_exponentials():
    p = tg.prepare(lambda x: sp.logsumexp(x, axis=1).sum(), X)
    p.value_and_grad(X)
    assert operations(p, "value_and_grad").count("exp") == 1
    assert "log_sum_exp" not in operations(p, "value_and_grad")


def test_small_arrays_stay_one_operation():
    p = tg.prepare(lambda x: sp.logsumexp(x, axis=1).sum(), X[:10])
    p.value_and_grad(X[:10])
    assert operations(p, "value_and_grad")[0] == "log_sum_exp"


def test_against_many_digits():
    row = 30.0 * X[:150, :5]
    value, gradient = tg.prepare(lambda x: sp.logsumexp(x, axis=1).sum(), row).value_and_grad(row)
    with mpmath.workdps(40):
        sums = [mpmath.fsum([mpmath.exp(mpmath.mpf(float(v))) for v in r]) for r in row]
        want = float(mpmath.fsum([mpmath.log(s) for s in sums]))
        shares = np.array(
            [[float(mpmath.exp(float(v)) / s) for v in r] for r, s in zip(row, sums, strict=True)]
        )
    np.testing.assert_allclose(value, want, rtol=1e-15)
    far = (row.max(axis=1) - row.min(axis=1)).max()  # the difference in an exponent is rounded
    np.testing.assert_allclose(gradient, shares, rtol=far * 2.3e-16, atol=1e-300)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_not_finite(name, bad):
    """Results and warnings are those of a plain call."""
    x = X.copy()
    x[3, 2], x[7] = bad, -np.inf
    f = lambda x: PROGRAMS[name](x, 1)
    heard = []
    for call in (f, tg.prepare(f, X).value):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            for at in (X, x, x):
                y = call(at)
        heard.append(({str(w.message) for w in given if "run as" not in str(w.message)}, y))
    np.testing.assert_allclose(heard[1][1], heard[0][1], rtol=1e-14)
    p = tg.prepare(lambda x: f(x)[0].sum(), X)
    for at in (X, x, x):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(
                p.grad(at), tg.grad(lambda x: f(x)[0].sum())(at), rtol=1e-12, atol=1e-15
            )


def test_single_precision_and_complex_numbers():
    for x in (X.astype("f4"), X + 0.1j * X):
        f = lambda x: sp.logsumexp(x, axis=1).real.sum()
        np.testing.assert_allclose(tg.prepare(f, x).grad(x), tg.grad(f)(x), rtol=1e-5)


def test_a_hessian():
    f = lambda x: (sp.log_softmax(np.outer(x, X[:, 0]), axis=1) ** 2).mean()
    x = np.array([0.3, -0.2, 0.5])
    p = tg.prepare(f, x)
    for k in range(3):
        np.testing.assert_allclose(p.hessian(x + k), tg.hessian(f)(x + k), rtol=1e-10)
