"""A function that writes captured arrays and then raises: they are left as a plain call leaves them, whether
the error leaves the transform or is caught inside of it."""

import numpy as np
import pytest
from scipy.integrate import quad

import tapegrad as tg
from tapegrad.errors import DroppedDerivativeError

X, V = np.array([0.5, 0.3, -0.2]), np.array([1.0, 0.4, 0.3])
buf = np.zeros(3)
calls = [0]
draws = np.random.default_rng(1)


def step(z):
    calls[0] += 1
    buf[:] = z * 2.0
    buf[1] *= z[0]
    if z[0] > -99.0:
        raise ValueError("no")
    return z * 3.0


def total(z):
    return step(z).sum()


LEAVING = {
    "grad": lambda: tg.grad(total)(X),
    "hvp": lambda: tg.hvp(total, X, V),
    "vmap": lambda: tg.vmap(step)(X[None]),
    "checkpoint": lambda: tg.grad(tg.checkpoint(total))(X),
    "jvp of checkpoint": lambda: tg.jvp(tg.checkpoint(step), (X,), (V,)),
    "linearize": lambda: tg.linearize(step, X),
    "prepared value": lambda: tg.prepare(total, X).value(X),
    "prepared grad": lambda: tg.prepare(total, X).grad(X),
    "prepared hvp": lambda: tg.prepare(total, X).hvp(X, V),
    "loop": lambda: tg.grad(lambda x: tg.loop(2, lambda k, z: step(z), x).sum())(X),
    "implicit root": lambda: tg.grad(lambda x: root(x).sum())(X),
}


def root(x):
    return tg.implicit.root(lambda z, p: step(p), lambda F, z, p: F(z, p))(0.0 * x, x)


@pytest.mark.parametrize("name", LEAVING)
def test_error_leaves_the_transform(name):
    buf[:], calls[0] = 9.0, 0
    with pytest.raises(ValueError, match="no"):
        LEAVING[name]()
    np.testing.assert_array_equal(buf, [1.0, 0.3, -0.4])


def test_draws_before_an_error_are_drawn():
    def f(x):
        calls[0] += 1
        buf[:] = draws.normal(size=3)
        raise ValueError((buf * x).sum())

    draws.bit_generator.state = np.random.default_rng(1).bit_generator.state
    want = np.random.default_rng(1).normal(size=6)
    with pytest.raises(ValueError):
        tg.prepare(f, X).grad(X)
    np.testing.assert_array_equal(buf, want[:3])
    np.testing.assert_array_equal(draws.normal(size=3), want[3:])


CAUGHT = {
    "call": step,
    "grad": lambda x: tg.grad(total)(x),
    "jvp": lambda x: tg.jvp(step, (x,), (x,)),
    "vmap": lambda x: tg.vmap(step)(np.stack([x])),
    "checkpoint": lambda x: tg.checkpoint(step)(x),
    "checkpoint within": lambda x: tg.checkpoint(lambda z: tg.checkpoint(step)(z))(x),
    "prepare": lambda x: tg.prepare(total, x).value(x),
}
MODES = {
    "reverse": lambda f: (f(X), tg.grad(f)(X) @ V),
    "forward": lambda f: tg.jvp(f, (X,), (V,)),
    "second": lambda f: (f(X), tg.grad(lambda x: tg.jvp(f, (x,), (x,))[1])(X) @ V / 4.0),  # f is of degree 4
    "batched": lambda f: (f(X), tg.vmap(tg.grad(f))(X[None])[0] @ V),
    "prepared": lambda f: (f(X), tg.prepare(f, X).grad(X) @ V),
    "recomputed": lambda f: (f(X), tg.grad(tg.checkpoint(f))(X) @ V),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CAUGHT)
def test_error_is_caught_inside(name, mode):
    def f(x):
        buf[:] = 0.5
        try:
            CAUGHT[name](x)
        except ValueError:
            return buf[1] ** 2
        return x.sum()

    value, slope = MODES[mode](f)
    np.testing.assert_allclose([value, slope], [0.09, 4 * 0.3 * (0.3 * V[0] + 0.5 * V[1])], rtol=1e-12)


@pytest.mark.parametrize("call", [root, lambda x: tg.loop(2, lambda k, z: step(z), x)])
def test_what_is_written_without_a_derivative_is_an_error(call):
    def f(x):
        try:
            call(x)
        except ValueError:
            return buf.sum()
        return x.sum()

    with pytest.raises(DroppedDerivativeError, match="after it had changed arrays or names"):
        tg.grad(f)(X)


class Found(Exception):
    pass


def find(z):
    raise Found(z * 2.0)


def found_by(call):
    def f(x):
        try:
            call(x)
        except Found as found:
            return (found.args[0] ** 2).sum()
        return x.sum()

    return f


FOLLOWED = {
    "call": find,
    "grad": lambda x: tg.grad(lambda z: find(z).sum())(x),
    "jvp": lambda x: tg.jvp(find, (x,), (x,)),
    "vmap": lambda x: tg.vmap(find)(x[None]),
    "quad": lambda x: quad(lambda t: find(x).sum(), 1.0, 1.5),
}
AS_A_WHOLE = {
    "checkpoint": lambda x: tg.checkpoint(find)(x),
    "loop": lambda x: tg.loop(3, lambda k, z: find(z), x),
    "root": lambda x: tg.implicit.root(lambda z, p: find(p), lambda F, z, p: F(z, p))(0.0 * x, x),
    "rule": lambda x: tg.rule(find, jvp=lambda t, y, z: t)(x),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_numbers_in_an_error_keep_their_derivative(name):
    f = found_by(FOLLOWED[name])
    for g in (tg.grad(f)(X), tg.vmap(tg.grad(f))(X[None])[0], tg.jvp(tg.grad(f), (X,), (X,))[1]):
        np.testing.assert_allclose(g, 8.0 * X, rtol=1e-12)


@pytest.mark.parametrize("name", AS_A_WHOLE)
def test_numbers_in_an_error_without_their_derivative(name):
    f = found_by(AS_A_WHOLE[name])
    for run in (tg.grad(f), lambda x: tg.jvp(f, (x,), (x,)), lambda x: tg.prepare(f, x).grad(x)):
        with pytest.raises(DroppedDerivativeError, match="a Found leaves a function"):
            run(X)
    with pytest.raises(Found):  # not caught: it passes
        tg.grad(lambda x: AS_A_WHOLE[name](x).sum())(X)


@pytest.mark.filterwarnings("ignore::tapegrad.errors.ReplayWarning")
def test_numbers_in_an_error_of_a_recorded_solver():
    p = tg.prepare(found_by(FOLLOWED["quad"]), X)
    for x in (X, X, 2.0 * X):  # run as it is
        np.testing.assert_allclose(p.grad(x), 8.0 * x, rtol=1e-12)
