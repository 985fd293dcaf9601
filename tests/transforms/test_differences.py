"""`tg.rule(f, jvp="differences")`: derivatives of functions that cannot be followed, by central
differences."""

import pickle

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ArgumentError, ConvergenceError

X = np.array([0.3, 1.2, -2.0])


def opaque(x, y, k=2):
    assert type(x) in (np.ndarray, np.float64), "compiled code takes plain arrays"
    return np.array([np.sin(float(v)) for v in x]) * y**k


def loss(f):
    return lambda x, y=1.7: np.sum(f(x, y) ** 2)


def known(x, y, k=2):
    return np.sin(x) * y**k


numeric = tg.rule(opaque, jvp="differences")
TRANSFORMS = {
    "gradient": lambda f: tg.grad(loss(f))(X),
    "gradient by a number": lambda f: tg.grad(loss(f), argnums=1)(X, 1.7),
    "both": lambda f: np.concatenate([np.ravel(g) for g in tg.grad(loss(f), argnums=(0, 1))(X, 1.7)]),
    "tangent": lambda f: tg.jvp(lambda x: f(x, 1.7, k=3), (X,), (X[::-1],))[1],
    "Jacobian": lambda f: tg.jacobian(lambda x: f(x, 1.7))(X),
    "vmap": lambda f: tg.vmap(tg.grad(loss(f)))(np.stack([X, X + 1.0])),
    "prepared": lambda f: tg.prepare(loss(f), X).grad(X + 0.1),
}
SECOND = {
    "Hessian": lambda f: tg.hessian(loss(f))(X),
    "product": lambda f: tg.hvp(loss(f), X, X[::-1]),
    "tangent of a tangent": lambda f: tg.jvp(lambda x: tg.jvp(loss(f), (x,), (X,))[1], (X,), (X,))[1],
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_first_derivatives(name):
    np.testing.assert_allclose(TRANSFORMS[name](numeric), TRANSFORMS[name](known), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name):
    np.testing.assert_allclose(SECOND[name](numeric), SECOND[name](known), rtol=1e-6, atol=1e-6)


def test_several_results_and_integers():
    f = tg.rule(lambda x, n: (x**n, np.sum(x), n), jvp="differences")

    def g(f):
        return lambda x: np.sum(f(x, 3)[0]) * f(x, 3)[1]

    np.testing.assert_allclose(tg.grad(g(f))(X), tg.grad(g(lambda x, n: (x**n, np.sum(x))))(X), rtol=1e-10)


def test_single_precision():
    x = X.astype(np.float32)
    g = tg.grad(lambda x: np.sum(numeric(x, np.float32(1.7))))(x)
    assert g.dtype == np.float32
    np.testing.assert_allclose(g, np.cos(X) * 1.7**2, rtol=1e-4)


def test_one_derivative_of_ones_own_and_the_other_by_differences():
    f = tg.rule(lambda x: np.sum(np.asarray(x) ** 3), vjp=lambda g, out, x: 3 * g * x**2, jvp="differences")
    np.testing.assert_allclose(tg.grad(f)(X), 3 * X**2, rtol=0)
    np.testing.assert_allclose(tg.jvp(f, (X,), (X,))[1], np.sum(3 * X**3), rtol=1e-10)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.sum(np.abs(x - X - 1e-5)),  # a kink between the points
        lambda x: np.sum(x + 1e-5 * np.sin(1e9 * x)),  # noise
        lambda x: np.sum(np.sin(1e6 * x)),
        lambda x: np.sum(np.log(x - X.min())),  # outside of the domain
    ],
)
def test_disagreement_raises(f):
    with np.errstate(all="ignore"), pytest.raises(ConvergenceError, match="disagree"):
        tg.grad(tg.rule(f, jvp="differences"))(X)


def test_complex_numbers_raise():
    with pytest.raises(ArgumentError, match="complex"):
        tg.grad(lambda x: np.abs(tg.rule(lambda x: np.sum(x) * 1j, jvp="differences")(x)))(X)


def test_another_word_raises():
    with pytest.raises(ArgumentError, match="it is a function, or 'differences'"):
        tg.rule(opaque, jvp="numeric")


def test_it_is_pickled():
    again = pickle.loads(pickle.dumps(numeric))
    np.testing.assert_array_equal(tg.grad(loss(again))(X), tg.grad(loss(numeric))(X))


def test_the_number_of_calls():
    calls = []

    def counted(x):
        calls.append(1)
        return np.sum(np.asarray(x) ** 2)

    f = tg.rule(counted, jvp="differences")
    tg.jvp(f, (X,), (X,))
    assert len(calls) <= 6
    calls.clear()
    tg.grad(f)(X)
    assert len(calls) <= 4 * X.size + 2


def test_a_rule_that_asks_samples_for_values_within_a_derivative_of_samples():
    """The rules branch by values that differ between samples, below another transform: right, or loud."""
    slopes = np.array([1.0, 2.0, 3.0])

    def f(x):
        return np.exp(-slopes * x[0]) if tg.value(x)[0] > 0.6 else np.exp(-slopes * x[0]) + 0.0

    g = tg.rule(
        f,
        vjp=lambda w, out, x: tg.vjp(f, x)[1](w),
        jvp=lambda t, out, x: tg.jvp(f, (x,), (t[0],))[1],
    )
    points = np.array([[0.5], [0.7]])
    want = -slopes[:, None] * np.exp(-slopes[:, None] * points[:, :, None])
    np.testing.assert_allclose(tg.vmap(tg.jacobian(g, mode="reverse"))(points), want, 1e-12)
    with pytest.raises(tg.errors.BatchError, match="differs between samples"):
        tg.vmap(tg.jacobian(g, mode="forward"))(points)


def test_results_of_functions_with_a_rule():
    """A tuple of arrays and numbers, and no other tree."""
    of_two = tg.rule(lambda u: (u * 2, u.sum()), vjp=lambda g, out, u: g[0] * 2 + g[1])
    f = lambda x: (of_two(x)[0] * x).sum() + of_two(x)[1]
    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(tg.grad(f)(x), 4 * x + 1)
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(x[None]), [4 * x + 1])
    for made in (lambda u: {"a": u}, lambda u: [u], lambda u: (u, {"a": u}), lambda u: (u, (u, u))):
        with pytest.raises(
            ArgumentError, match=r"test_differences.py:\d+\): the function returns a (dict|list|tuple)"
        ):
            tg.grad(lambda x, made=made: tg.rule(made, vjp=lambda g, out, u: u)(x)["a"].sum())(x)
