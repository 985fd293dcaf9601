"""Statistics of samples under the names of scipy.stats: values, both modes, second order, and tracked data in
gaussian_kde."""

import calls_laws
import numpy as np
import pytest
import scipy.spatial
import scipy.stats
from sample_statistics import ALL, CALLS, FURTHER, NEAR, SEARCHED, X

import tapegrad as tg
from tapegrad import stats
from tapegrad._core.trees import leaves
from tapegrad._scipy.statistics import STATS
from tapegrad.ops.names import NATURE
from tapegrad.testing import check_grads

pytestmark = pytest.mark.smoke


@pytest.mark.filterwarnings("ignore:`kurtosistest` p-value may be inaccurate")  # before SciPy 1.17
@pytest.mark.parametrize("name", CALLS)
def test_statistics(name):
    """Values, plain and inside of a transform; by default some of the derivatives, in the long run all."""
    call, x = CALLS[name], ALL[name]
    rtol = NEAR.get(name.split()[0], 1e-11)
    expected = leaves(call(scipy.stats, x))
    for found in (call(stats, x), tg.jvp(lambda x: call(stats, x), (x,), (0.0 * x,))[0]):
        for a, b in zip(leaves(found), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13)
    if list(CALLS).index(name) % 4 == 0 and name.split()[0] not in SEARCHED:
        derivatives(name)


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
def test_derivatives_of_statistics(name):
    derivatives(name)


def derivatives(name):
    eps = 1e-4 if name in FURTHER else 1e-3
    check_grads(
        lambda x: CALLS[name](stats, x),
        (ALL[name],),
        order=2,
        eps=eps,
        rtol=1e-6 if name in FURTHER else 1e-7,
        atol=1e-7,
    )


def test_every_statistic_is_called():
    called = {name.split()[0] for name in CALLS}
    called |= {"tukey_hsd"}  # (of SciPy from 1.17 on)
    called |= {name for name, *_ in calls_laws.CALLS}
    followed = {f.__name__ for f in STATS.rules if not isinstance(f, type)} - NATURE["scipy.stats"]
    assert followed - called == set() and called - {"gaussian_kde"} - followed == {
        n for n in called if not hasattr(scipy.stats, n)
    }


def test_unmodified_names():
    from scipy.stats import gaussian_kde, skew

    f = lambda x: (
        skew(x)
        + scipy.stats.kurtosis(x)
        + gaussian_kde(x).logpdf(0.3)[0]
        + scipy.stats.gaussian_kde(x).pdf(0.2).sum()
    )
    h, d = 1e-6, np.cos(np.arange(6.0))
    numeric = (f(X + h * d) - f(X - h * d)) / (2 * h)
    assert tg.grad(f)(X) @ d == pytest.approx(numeric, rel=1e-8)
    assert tg.jvp(f, (X,), (d,))[1] == pytest.approx(numeric, rel=1e-8)


def test_what_is_not_followed_is_refused():
    for f in (
        lambda x: scipy.stats.dunnett(x, control=x * x).pvalue,
        lambda x: scipy.stats.weightedtau(x, x * x).statistic,
    ):
        with pytest.raises(tg.errors.TapegradError, match="scipy.stats"):
            tg.grad(f)(X)


@pytest.mark.parametrize("last", [6.0, 7.0, 0.25])
def test_correlation_of_proportional_samples(last):
    """Clipping to 1 removes rounding, not derivatives: r'' is -|w|^2 / |x|^2, w the part of v across x."""
    x, v = np.array([1.0, 2.0, 3.0, 5.0, 4.0, last]), np.array([0.3, -1.0, 0.2, 0.7, 0.5, -0.4])
    d, e = x - x.mean(), v - v.mean()
    across = e - d * (d @ e) / (d @ d)
    wanted = -(across @ across) / (d @ d)
    for f, sign in (
        (lambda y: np.corrcoef(y, 2 * x + 1)[0, 1], 1),
        (lambda y: np.corrcoef(y, 1 - x)[0, 1], -1),
        (lambda y: scipy.stats.pearsonr(y, 2 * x + 1)[0], 1),
        (lambda y: scipy.spatial.distance.correlation(y, 2 * x + 1), -1),
    ):
        assert tg.hvp(f, x, v) @ v == pytest.approx(sign * wanted, rel=1e-6)
        assert abs(tg.grad(f)(x)).max() < 1e-12
