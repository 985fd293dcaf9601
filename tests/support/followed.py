"""How a program that reaches an array by two routes is checked: against differences of itself, run by NumPy
alone."""

import gc
import sys
import types

import numpy as np

import tapegrad as tg

X = np.array([0.7, -1.3, 2.1])
W = np.array([0.3, 1.7, -0.9])


def differences(f, x, h=1e-3):
    """The gradient of f as NumPy computes it, by differences of sixth order."""
    gradient = np.zeros(x.size)
    for i, e in enumerate(np.eye(x.size)):
        a, b, c = [float(f(x + k * h * e)) - float(f(x - k * h * e)) for k in (1, 2, 3)]
        gradient[i] = (45 * a - 9 * b + c) / (60 * h)
    return gradient


def holds_variable(f):
    """Does anything that f leads to hold a Variable?  By what the collector says of each object, so of any kind of holder."""
    todo, met = [f], set()
    while todo:
        x = todo.pop()
        if id(x) in met or isinstance(x, types.ModuleType):
            continue
        met.add(id(x))
        if isinstance(x, tg.Variable):
            return True
        if isinstance(x, type) and x.__module__ not in (f.__module__, "followed_module"):
            continue
        if isinstance(x, dict) and "__builtins__" in x:
            continue
        todo += gc.get_referents(x)
    return False


def collected():
    """A list, and the decorator that puts a function into it."""
    cases = []

    def case(make):
        cases.append(make)
        return make

    return cases, case


def check(make):
    """`make()` gives a fresh f(x): a number."""
    right = differences(make(), X)
    f, plain = make(), make()
    plain(X)
    value, gradient = tg.value_and_grad(f)(X)
    np.testing.assert_allclose(value, float(make()(X)), rtol=1e-12)
    np.testing.assert_allclose(gradient, right, rtol=1e-7, atol=1e-8)
    assert not holds_variable(f)
    y = X[::-1].copy()
    np.testing.assert_allclose(f(y), plain(y), rtol=1e-12)  # what is left is what a plain call leaves
    np.testing.assert_allclose(tg.grad(f)(X), differences(make(), X), rtol=1e-7, atol=1e-8)
    forward = [tg.jvp(make(), (X,), (e,))[1] for e in np.eye(3)]
    np.testing.assert_allclose(forward, right, rtol=1e-7, atol=1e-8)
    weighed = tg.grad(lambda x: tg.grad(f)(x) @ W)(X)
    np.testing.assert_allclose(weighed, tg.hvp(make(), X, W), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        weighed, differences(lambda x: tg.grad(make())(x) @ W, X), rtol=1e-6, atol=1e-7
    )
    assert not holds_variable(f)


def check_half_way(make):
    """The same state as a plain call leaves when f raises at its end."""
    f, plain = make(), make()

    def broken(h):
        def g(x):
            h(x)
            raise KeyError("half way")

        return g

    for call in (lambda: tg.grad(broken(f))(X), lambda: broken(plain)(X)):
        try:
            call()
        except KeyError:
            pass
    assert not holds_variable(f)
    y = X[::-1].copy()
    np.testing.assert_allclose(f(y), plain(y), rtol=1e-12)


def module(name, text):
    """A module of the user's with this text, found by import."""
    m = sys.modules[name] = types.ModuleType(name)
    exec("import numpy as np\nW = np.array([0.3, 1.7, -0.9])\nbuf = np.zeros(3)\n" + text, m.__dict__)
    return m
