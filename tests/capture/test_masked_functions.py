"""NumPy's functions of a tracked array and a captured masked array: each is right, or raises.

Every ufunc and a list of functions and methods are called in several ways.  The value must be that of a plain
call, where masked elements do not count, and the gradient that of differences."""

import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import TapegradError

X = np.array([[1.3, 2.1, 0.7], [0.4, 1.9, 2.2]])
MASK = np.array([[0, 1, 0], [0, 0, 1]], bool)
M = np.ma.array([[0.5, 1.5, 2.5], [1.1, 0.2, 0.9]], mask=MASK)

FUNCTIONS = """sum mean std var prod cumsum cumprod min max sort ravel diff trapezoid average median squeeze
    transpose flip roll diagonal trace clip repeat tile nansum nanmean quantile interp unwrap gradient cov
    corrcoef dot inner vdot matmul outer kron tensordot where concatenate stack vstack hstack append choose
    take compress searchsorted select nan_to_num real copy asarray asanyarray array broadcast_to atleast_2d
    full_like zeros_like isclose ediff1d convolve count_nonzero ma.median ma.average ma.dot ma.where
    ma.concatenate ma.filled ma.var ma.anom ma.cov ma.compressed ma.sort ma.clip ma.power ma.cumsum""".split()


def function(name):
    f = np
    for part in name.split("."):
        f = getattr(f, part)
    return f


def calls():
    found = {}
    for name in dir(np):
        u = getattr(np, name)
        if isinstance(u, np.ufunc) and u.nin == 2:
            found[f"{name}(x, M)"] = lambda x, u=u: u(x, M)
            found[f"{name}(M, x)"] = lambda x, u=u: u(M, x)
            found[f"{name}.reduce(x M)"] = lambda x, u=u: u.reduce(x * M)
            found[f"{name}.outer(x, M)"] = lambda x, u=u: u.outer(x, M)
            found[f"{name}.outer(M, x)"] = lambda x, u=u: u.outer(M, x)
        elif isinstance(u, np.ufunc) and u.nin == 1:
            found[f"{name}(x M / 4)"] = lambda x, u=u: u(x * M / 4)
    for name in FUNCTIONS:
        f = function(name)
        found[f"{name}(x M)"] = lambda x, f=f: f(x * M)
        found[f"{name}(x, M)"] = lambda x, f=f: f(x, M)
        found[f"{name}(M, x)"] = lambda x, f=f: f(M, x)
        found[f"{name}([x, M])"] = lambda x, f=f: f([x, M])
        found[f"{name}(x M, axis)"] = lambda x, f=f: f(x * M, axis=0)
        found[f"{name}(x, M, 3)"] = lambda x, f=f: f(x, M, 3.0)
        found[f"{name}(MASK, x, M)"] = lambda x, f=f: f(MASK, x, M)
    for name in dir(M):
        if not name.startswith("_"):
            found[f"(x M).{name}()"] = lambda x, name=name: getattr(x * M, name)()
            found[f"x.{name}(M)"] = lambda x, name=name: getattr(x, name)(M)
            found[f"M.copy().{name}(x)"] = lambda x, name=name: getattr(M.copy(), name)(x)
            found[f"(x M).{name}"] = lambda x, name=name: getattr(x * M, name)
    return found


def summed(f):
    def call(x):
        y = f(x)
        return (y[0] if isinstance(y, (tuple, list)) else y).sum() + 0.0 * x[0, 0]

    return call


def one_sided(f, sign):
    """(f(x) - f(x - h)) / h for each element, or with the other sign."""
    base, found = float(f(X.copy())), np.zeros(X.shape)
    for at in np.ndindex(X.shape):
        e = np.zeros(X.shape)
        e[at] = sign * 1e-6
        found[at] = sign * (float(f(X + e)) - base) / 1e-6
    return base, found


def test_each_is_right_or_raises():
    right, wrong = 0, []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, f in calls().items():
            f = summed(f)
            try:
                value, left = one_sided(f, -1.0)
                want = one_sided(f, 1.0)[1]
            except Exception:
                continue  # no such call, or one that gives no numbers
            if not abs(value) < 1e6 or not np.allclose(left, want, rtol=1e-3, atol=1e-3):
                continue  # not differentiable there
            try:
                got, g = tg.value_and_grad(f)(X.copy())
            except (TapegradError, TypeError, AttributeError):
                continue
            at = np.isfinite(g)  # the slope of the square root of zero is infinite
            close = np.allclose(g[at], want[at], rtol=1e-4, atol=1e-4) and np.isclose(float(got), value)
            right += close
            if not close:
                wrong.append((name, value, float(got), want, g))
    assert not wrong, wrong
    assert right > 350


@pytest.mark.parametrize("method", ["outer", "__call__"])
def test_masks_of_both_operands_count(method):
    N = np.ma.array(X, mask=[[1, 0, 0], [0, 0, 0]])
    f = lambda x: getattr(np.multiply, method)(x * N, M).sum()
    value, g = tg.value_and_grad(f)(X)
    np.testing.assert_allclose(value, f(X))
    assert g[0, 0] == 0.0
    np.testing.assert_allclose(np.sum(g * X), f(X))
