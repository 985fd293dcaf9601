"""Functions of Numba's with loops are differentiated as loop programs: against the complex step of their
Python code."""

import numpy as np
import pytest
from loop_functions import CASES, NOT_COMPLEX, heat

import tapegrad as tg
from tapegrad.loops import operation

pytestmark = pytest.mark.one_in(4)  # its cases compile


def copied(args):
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def whole(name):
    """The case as a function of its differentiated arguments; they may be written."""
    f, args, more = CASES[name]
    return (lambda *x: f(*[a.copy() if hasattr(a, "copy") else a for a in x], *more)), args


def reference(name, args, direction):
    """The derivative of the Python code: its complex step, or a difference."""
    f, _, more = CASES[name]
    f = getattr(f, "py_func", f)
    if name not in NOT_COMPLEX:
        f = getattr(f, "python", f)
        return f(*[a + 1e-30j * d for a, d in zip(args, direction, strict=True)], *more).imag / 1e-30
    h = 1e-3
    at = lambda k: f(*[a + k * h * d for a, d in zip(args, direction, strict=True)], *more)
    return sum(w * (at(k) - at(-k)) for k, w in enumerate((4 / 5, -1 / 5, 4 / 105, -1 / 280), 1)) / h


@pytest.fixture
def refusals(monkeypatch):
    """The functions that were not loop programs."""
    found = []
    usual = operation.NumbaFunction.__call__

    def call(self, *args):
        try:
            return usual(self, *args)
        except operation.LoopRefused as error:
            found.append(str(error))
            raise

    monkeypatch.setattr(operation.NumbaFunction, "__call__", call)
    return found


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_derivatives(name, refusals):
    f, args = whole(name)
    rng = np.random.default_rng(1)
    direction = [
        rng.standard_normal(np.shape(a)) if isinstance(a, np.ndarray) else rng.standard_normal() for a in args
    ]
    direction = [
        np.where(a == 0.0, 0.0, d) for a, d in zip(args, direction, strict=True)
    ]  # (a guarded division)
    n = tuple(range(len(args)))
    value, gradient = tg.value_and_grad(f, argnums=n)(*args)
    assert refusals == []
    np.testing.assert_allclose(value, f(*args), rtol=1e-14)
    slope = sum(np.sum(g * d) for g, d in zip(gradient, direction, strict=True))
    _, tangent = tg.jvp(f, args, tuple([d if np.ndim(d) else float(d) for d in direction]))
    np.testing.assert_allclose(tangent, slope, rtol=1e-11, atol=1e-11)
    loose = 1e-7 if name in NOT_COMPLEX else 1e-12
    np.testing.assert_allclose(slope, reference(name, args, direction), rtol=loose, atol=loose)


def test_prepared_with_arrays_that_look_alike(refusals):
    """They are two arrays to a recording, too: the call stays a loop program."""
    f = lambda x: heat(x.copy(), x.copy(), 0.1, 3)
    x = np.random.default_rng(2).random((5, 5))
    p = tg.prepare(f, x)
    for y in (x, x + 0.1):
        value, gradient = p.value_and_grad(y)
        np.testing.assert_allclose(value, f(y), rtol=1e-13)
        np.testing.assert_allclose(gradient, tg.grad(f)(y), rtol=1e-13)
    assert not refusals
