"""The Python code of numpy.ma is followed: masked arrays with a constant mask over tracked data."""

import numpy as np
import numpy.ma
import pytest

import tapegrad as tg

X = np.array([0.7, 1.9, 1.3, 0.4])
HELD = np.ma.array([1.0, 2.0, 3.0, 4.0], mask=[0, 0, 1, 0])


def assigned(m):
    m[0] = m[2] * 2.0
    m[3] = np.ma.masked
    m += 1.0
    return m.sum()


FUNCTIONS = {
    "reductions": lambda m: m.sum() + m.mean() * m.var() - m.std() + m.max() * m.min() + m.prod(),
    "operators": lambda m: (m * 2 + 1 - m**2 / 3.0).sum() + abs(m - 1).sum(),
    "data": lambda m: m.filled(3.0)[1] * m.filled(0.0)[0] + (m.compressed() ** 2).sum() + np.asarray(m).sum(),
    "ufuncs": lambda m: (
        np.exp(m).sum() + np.ma.log(m).sum() + numpy.ma.sqrt(m).sum() + np.ma.power(m, 2.0).sum()
    ),
    "numpy": lambda m: np.sum(m) + np.mean(m) + np.dot(m.filled(1.0), m.filled(2.0)),
    "parts": lambda m: (m[1:] * m[:-1]).sum() + m[0] * m[2] + m.reshape(2, 2).sum(axis=0)[1] + m.copy().sum(),
    "choice": lambda m: (
        np.ma.where(m > 1, m, -m).sum() + np.ma.masked_where(m > 1.0, m).sum() + m.clip(0.5, 1.5).sum()
    ),
    "captured": lambda m: (m * HELD).sum() + (HELD * m.data).sum(),
    "more": lambda m: np.ma.average(m) + np.ma.dot(m, m) + m.cumsum().sum() + (m.anom() ** 2).sum(),
    "joined": lambda m: np.ma.concatenate([m, m * 2]).sum() + np.ma.vstack([m, m]).mean(axis=0).sum(),
    "sorted": lambda m: (np.ma.sort(m) * np.arange(4)).sum() + np.ma.cov(m.reshape(2, 2)).sum(),
    "invalid": lambda m: np.ma.masked_invalid(m).sum() + np.ma.fix_invalid(m).sum(),
    "classes": lambda m: m.sum() if np.ma.isMaskedArray(m) and type(m) is np.ma.MaskedArray else 0.0,
    "medians": lambda m: np.ma.median(m) ** 2 + np.ma.median(m.reshape(2, 2) * m[0], axis=1).sum(),
    "assigned": assigned,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_masked_arrays(name):
    def f(x):
        return FUNCTIONS[name](np.ma.array(x * 1.0, mask=[0, 1, 0, 0]))

    value, gradient = tg.value_and_grad(f)(X)
    np.testing.assert_allclose(value, f(X), rtol=1e-13)
    slopes = [(f(X + 1e-6 * e) - f(X - 1e-6 * e)) / 2e-6 for e in np.eye(4)]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(tg.jvp(f, (X,), (np.ones(4),))[1], gradient.sum(), rtol=1e-12)


def test_what_nothing_can_follow_raises():
    with pytest.raises(tg.errors.DroppedDerivativeError, match="bytes-like"):
        tg.grad(lambda x: np.frombuffer(np.ma.array(x, mask=[0, 1, 0, 0]).tobytes()).sum())(X)


def test_a_masked_array_is_handed_back():
    held = np.ma.array(np.zeros(4), mask=[0, 0, 1, 0])

    def f(x):
        held[1] = x[1]
        return (held * x).sum()

    np.testing.assert_allclose(tg.grad(f)(X), [0.0, 2 * X[1], 0.0, 0.0])
    assert type(held) is np.ma.MaskedArray and held[1] == X[1] and held[2] is np.ma.masked
    assert list(held.mask) == [False, False, True, False]


def test_a_plain_array_takes_the_data_of_a_masked_one():
    """As NumPy stores it: without the mask."""
    plain = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])

    def stored(x):
        y = x * 1.0
        y[:] = plain
        y[0] *= x[1]
        y[1:] += np.ma.array(x, mask=plain.mask)[1:] * 2
        return y.sum() + x[2]

    x = np.array([1.0, 2.0, 3.0])
    assert tg.value_and_grad(stored)(x)[0] == stored(x)
    np.testing.assert_allclose(
        tg.grad(stored)(x), [(stored(x + e) - stored(x - e)) / 2e-4 for e in 1e-4 * np.eye(3)], atol=1e-8
    )
