"""A law of scipy.stats under the spellings that programs have: each must have the derivative of
`scipy.stats.name.call(x, ...)`."""

import functools

import numpy as np
import pytest
import scipy.stats
from families import CLASSIC, CONTINUOUS, LAWS, functions_of
from plain_values import SLOW, first

import tapegrad as tg
from tapegrad import stats

NAMES = [n for n in {**CLASSIC, **CONTINUOUS} if n not in SLOW and n != "studentized_range"]


def spellings(law, call, shapes, loc, scale):
    """(text, function of x): the law, its method or a frozen law is captured in some way."""
    method, frozen, params = getattr(law, call), law(*shapes, loc, scale), (*shapes, loc, scale)
    held, Holder = (
        {"law": law},
        type("Holder", (), {"law": law, "at": lambda self, x: getattr(self.law, call)(x, *params)}),
    )
    yield "a captured law", lambda x: getattr(law, call)(x, *params)
    yield "a captured method", lambda x: method(x, *params)
    yield (
        "keywords",
        lambda x: method(
            x,
            **dict(zip([n.strip() for n in (law.shapes or "").split(",") if n], shapes, strict=True)),
            loc=loc,
            scale=scale,
        ),
    )
    yield "args=", lambda x: method(x, *params[:-1], scale=scale)
    yield "a frozen law made outside", lambda x: getattr(frozen, call)(x)
    yield "a frozen law by keywords", lambda x: getattr(law(*shapes, loc=loc, scale=scale), call)(x)
    yield "a method of a frozen law", (lambda f: lambda x: f(x))(getattr(frozen, call))
    yield (
        "a partial",
        functools.partial(method, **({"loc": loc, "scale": scale} if not shapes else {}))
        if not shapes
        else (lambda f: lambda x: f(x, *params))(functools.partial(method)),
    )
    yield "in a dict", lambda x: getattr(held["law"], call)(x, *params)
    yield "of a class", Holder().at
    yield "a method of a frozen law, mapped", lambda x: next(map(getattr(frozen, call), [x]))


@pytest.mark.filterwarnings("ignore:The shape parameter of the erlang")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if k % 8 == 0 else pytest.mark.long) for k, n in enumerate(NAMES)]
)
def test_every_spelling_has_the_derivative(name):
    shapes, z = {**CLASSIC, **CONTINUOUS}[name]
    law, shapes, loc, scale = getattr(scipy.stats, name), first(shapes), 0.05, 1.3
    x = float(np.ravel(z)[0]) * scale + loc
    for call in functions_of(getattr(stats, name))[::2]:
        right = tg.grad(lambda x, c=call: getattr(getattr(scipy.stats, name), c)(x, *shapes, loc, scale))(x)
        for text, f in spellings(law, call, shapes, loc, scale):
            assert tg.grad(f)(x) == pytest.approx(right, rel=1e-12), (call, text)


@pytest.mark.parametrize("name", [n for n in LAWS if n != "poisson_binom"])
def test_laws_of_vectors_frozen_or_aliased(name):
    x, params, _ = LAWS[name]
    law, call = getattr(scipy.stats, name), "logpmf" if "multinomial" in name else "logpdf"
    rest, params = (params[:1], params[1:]) if name == "normal_inverse_gamma" else ((), params)
    frozen, method = law(*params), getattr(law, call)
    x = x * 1.0
    right = tg.vjp(lambda x: getattr(getattr(scipy.stats, name), call)(x, *rest, *params), x)
    for f in (
        lambda x: getattr(frozen, call)(x, *rest),
        lambda x: method(x, *rest, *params),
        lambda x: getattr(law(*params), call)(x, *rest),
    ):
        value, pullback = tg.vjp(f, x)
        np.testing.assert_allclose(value, right[0], rtol=1e-13)
        np.testing.assert_allclose(pullback(np.ones_like(value)), right[1](np.ones_like(value)), rtol=1e-13)


@pytest.mark.parametrize("seed", range(8))
def test_singular_normal_laws(seed):
    """A constant covariance without full rank: the density in the space that it spans."""
    rng = np.random.default_rng(seed)
    n, rank = rng.integers(2, 6), 1
    root = rng.standard_normal((n, max(rank, n - 1 - seed % 2)))
    cov, mean = root @ root.T, rng.standard_normal(n)
    x, d = mean + root @ rng.standard_normal(root.shape[1]), root @ rng.standard_normal(root.shape[1])
    f = lambda x: scipy.stats.multivariate_normal.logpdf(x, mean, cov, allow_singular=True)
    value, slope = tg.jvp(f, (x,), (d,))
    assert value == f(x)
    assert slope == pytest.approx((f(x + 1e-6 * d) - f(x - 1e-6 * d)) / 2e-6, rel=1e-6, abs=1e-6)
    assert tg.grad(f)(x) @ d == pytest.approx(slope, rel=1e-10)
    assert f(x + 1.0) == -np.inf or tg.value_and_grad(f)(x + rng.standard_normal(n))[0] == -np.inf
