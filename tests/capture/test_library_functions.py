"""Functions of NumPy's own Python code that have no public name, and results `out=...`, in followed code."""

import numpy as np
import pytest
from numpy.lib import _function_base_impl as private

import tapegrad as tg
from tapegrad.ops.declare import NUMPY_VERSION

X, V = np.array([0.3, 1.1, 2.1, 0.7, -0.9]), np.array([0.2, -0.4, 0.7, 0.1, 0.5])


def stored(y, v):
    y[()] = v * y
    return y


CALLS = {
    "implementation": lambda x: (
        np.median._implementation(x) * np.percentile._implementation(x, 30.0)
        + np.pad._implementation(x, 2, mode="edge").sum()
    ),
    "private": lambda x: private._quantile(x, np.array([0.3, 0.6]), 0, "linear").sum() * x[0],
    "by its caller": lambda x: private._ureduce(
        x, func=lambda a, axis, out: np.sum(a**3, axis), axis=0, out=None
    ),
    "the usual loop": lambda x: (
        np.add(x, 1, signature="dd->d") * np.multiply(x, [1] * 5, signature="dd->d")
    ).sum(),
}
if NUMPY_VERSION >= (2, 3):
    CALLS |= {
        "array without axes": lambda x: stored(np.multiply(x[0], 2.0, out=...), x[1])[()],
        "out=... of parts": lambda x: np.modf(x * 1.5, out=...)[0].sum() * np.add.reduce(x, out=...)[()],
    }


@pytest.mark.parametrize("f", CALLS.values(), ids=CALLS)
def test_right(f):
    value, gradient = tg.value_and_grad(f)(X)
    assert float(value) == pytest.approx(f(X.copy()), rel=1e-14)  # (one sorts in place)
    slope = (f(X + 1e-6 * V) - f(X - 1e-6 * V)) / 2e-6
    assert gradient @ V == pytest.approx(slope, rel=1e-7)
    assert float(tg.jvp(f, (X,), (V,))[1]) == pytest.approx(slope, rel=1e-7)


def test_a_substitute_in_numpy_is_followed(monkeypatch):
    real = np.asarray
    monkeypatch.delitem(vars(tg.numpy), "asarray", raising=False)  # as before its first use
    monkeypatch.setattr(np, "asarray", lambda x, *args, **settings: 3.0 * real(x, *args, **settings))
    x = np.array([1.0, 2.0])
    assert np.array_equal(tg.grad(lambda x: np.sum(np.asarray(x) ** 2 + real(x)))(x), 18.0 * x + 1.0)
