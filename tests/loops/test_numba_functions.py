"""Functions of Numba's with loops are differentiated as loop programs: against the complex step of their
Python code."""

import numba
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


@pytest.mark.one_in(7)
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


@numba.njit
def root(a, limit):
    x = a
    n = 0
    while abs(x * x - a) > 1e-13:
        x = 0.5 * (x + a / x)
        n += 1
        if n > limit:
            raise StopIteration("too many steps")
    return x


@numba.njit
def sum_of_powers(v, kind):
    if v.size == 0:
        raise ValueError("no elements")
    total = 0.0
    for i in range(v.size):
        total += root(v[i], 50) * pow(v[i], 1.5 if kind == "steep" else 0.5) + 0.0 * round(v[i], 2)
    return total


def test_exceptions_are_raised_and_texts_choose():
    x = np.array([2.0, 3.0, 5.0])
    for kind in (np.str_("steep"), "".join(["fl", "at"])):
        power = 2.0 if kind == "steep" else 1.0

        def f(x, kind=kind):
            return sum_of_powers(x, kind)

        for _ in range(2):
            np.testing.assert_allclose(tg.grad(f)(x), power * x ** (power - 1.0), rtol=1e-10)
        bent = power * (power - 1.0) * np.ones(3)
        np.testing.assert_allclose(tg.hvp(f, x, np.ones(3)), bent, rtol=1e-9, atol=1e-9)
    programs = operation.programs_of(sum_of_powers).programs
    assert len(programs) == 2 and not any([isinstance(made, str) for made in programs.values()])
    with pytest.raises(StopIteration, match="too many steps"):
        tg.grad(lambda x: root(x[0], 2))(x)
    with pytest.raises(ValueError, match="no elements"):
        tg.grad(lambda x: sum_of_powers(x[:0], "flat"))(x)
