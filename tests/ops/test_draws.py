"""Draws with tracked parameters: NumPy's numbers, and derivatives by reparametrisation."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import BatchError, NoRuleError

X = np.array([0.6, 1.3, 2.2])
# draws of X that are, by NumPy's own code, a smooth function of the parameters and of the seed
SMOOTH = {
    "normal": lambda r, x: r.normal(x, x**2),
    "normal by keyword": lambda r, x: r.normal(scale=x, size=(4, 3)),
    "uniform": lambda r, x: r.uniform(-x, high=2 * x),
    "exponential": lambda r, x: r.exponential(x, 3),
    "laplace": lambda r, x: r.laplace(x, x**2),
    "logistic": lambda r, x: r.logistic(x, x**2),
    "gumbel": lambda r, x: r.gumbel(x, x**2),
    "rayleigh": lambda r, x: r.rayleigh(x),
    "lognormal": lambda r, x: r.lognormal(x, 0.3 * x),
    "weibull": lambda r, x: r.weibull(x),
    "power": lambda r, x: r.power(x),
    "pareto": lambda r, x: r.pareto(x),
    "triangular": lambda r, x: r.triangular(-x, 0.2 * x**2, x + 1, (50, 3)),
    "gamma's scale": lambda r, x: r.gamma(2.0, x),
    "a number": lambda r, x: r.normal(x[0], x[1]) * x[2],
}


def generators():
    return np.random.default_rng(3), np.random.RandomState(3)


def slope(f, x, v, h=1e-5):
    return (8 * (f(x + h * v) - f(x - h * v)) - (f(x + 2 * h * v) - f(x - 2 * h * v))) / (12 * h)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("name", SMOOTH)
def test_draws_that_are_smooth_in_the_parameters(name, kind):
    def f(x):
        return np.sum(np.cos(SMOOTH[name](generators()[kind], x)))

    v = np.array([1.0, -0.5, 0.3])
    value, gradient = tg.value_and_grad(f)(X)
    assert value == pytest.approx(f(X), rel=1e-14)
    assert gradient @ v == pytest.approx(slope(f, X, v), rel=1e-7)
    assert tg.jvp(f, (X,), (v,))[1] == pytest.approx(gradient @ v, rel=1e-12)
    assert tg.hvp(f, X, v) @ v == pytest.approx(slope(lambda x: tg.grad(f)(x) @ v, X, v), rel=1e-6)


def test_the_stream_goes_on_as_in_a_plain_call():
    def f(x, rng):
        return np.sum(rng.normal(x) * rng.gamma(2.0, x) + rng.standard_normal(3))

    value, _ = tg.value_and_grad(lambda x: f(x, np.random.default_rng(5)))(X)
    assert value == pytest.approx(f(X, np.random.default_rng(5)), rel=1e-14)


def test_functions_of_the_module():
    def f(x):
        np.random.seed(3)
        return np.sum(np.random.normal(x, x) ** 2)

    np.random.seed(3)
    z = np.random.normal(X, X)
    np.testing.assert_allclose(tg.grad(f)(X), 2 * z * z / X)


def test_a_prepared_function_draws_anew():
    rng = np.random.default_rng(7)
    p = tg.prepare(lambda x: np.sum(rng.normal(0.0, x)), X)
    first, second = p.grad(X), p.grad(X)
    assert np.all(first != second)
    again = np.random.default_rng(7)
    drawn = [again.normal(0.0, X) / X for _ in range(8)]
    assert any(np.allclose(second, z) for z in drawn)


@pytest.mark.parametrize(
    "draw",
    [
        lambda r, x: r.poisson(x),
        lambda r, x: r.gamma(x),
        lambda r, x: r.gamma(x, x),
        lambda r, x: r.vonmises(0.0, x),
        lambda r, x: r.binomial(3, x / 4),
    ],
)
def test_other_laws_refuse(draw):
    with pytest.raises(NoRuleError, match="standard_normal"):
        tg.grad(lambda x: np.sum(draw(np.random.default_rng(3), x) * x))(X)


def test_a_scale_of_zero():
    g = tg.grad(lambda x: np.sum(np.random.default_rng(3).normal(1.0, x)))(np.zeros(2))
    np.testing.assert_allclose(g, np.random.default_rng(3).normal(size=2))


def test_numpy_judges_the_parameters():
    with pytest.raises(ValueError, match="scale"):
        tg.grad(lambda x: np.sum(np.random.default_rng(3).normal(0.0, -x)))(X)


@pytest.mark.parametrize("name", SMOOTH)
def test_generators_made_inside_give_each_sample_and_each_replay_its_numbers(name):
    def f(x):
        return np.sum(np.cos(SMOOTH[name](generators()[len(name) % 2], x)))

    rows = [X, 0.7 * X, X[::-1].copy()]
    wanted = [tg.value_and_grad(f)(x) for x in rows]
    values, gradients = tg.vmap(tg.value_and_grad(f))(np.stack(rows))
    prepared = tg.prepare(f, X, on_change="raise")
    for row, value, gradient, (known, slopes) in zip(rows, values, gradients, wanted, strict=True):
        for found in ((value, gradient), prepared.value_and_grad(row)):
            assert found[0] == pytest.approx(known, rel=1e-13)
            np.testing.assert_allclose(found[1], slopes, rtol=1e-11)


@pytest.mark.filterwarnings("ignore::tapegrad.errors.ReplayWarning")
def test_parameters_that_numpy_refuses_are_refused_in_a_replay():
    f = lambda x: np.sum(np.random.default_rng(3).normal(0.0, x))
    p = tg.prepare(f, X)
    assert p.grad(X) == pytest.approx(tg.grad(f)(X))
    with pytest.raises(ValueError, match="scale"):
        p.grad(-X)
    assert p.grad(0.0 * X) == pytest.approx(tg.grad(f)(X))
    with pytest.raises(BatchError):
        tg.vmap(f)(np.array([[1.0], [-1.0]]))
