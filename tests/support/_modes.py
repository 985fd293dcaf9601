"""Derivatives in every mode and nesting, and values from elsewhere to compare them with."""

import numpy as np
from comparison import close, library

import tapegrad as tg


def total(x):
    return x.sum() if getattr(x, "shape", ()) else x


def basis(x):
    """Unit arrays of the shape and library of x."""
    shape, xp = x.shape, library(x)
    return [e.reshape(shape) for e in xp.eye(int(np.prod(shape)), dtype=x.dtype)]


def first_orders(f, x):
    """The gradient of a scalar function of one array, by each way there is, as pairs (name, gradient)."""
    yield "grad", tg.grad(f)(x)
    value, pullback = tg.vjp(f, x)
    yield "pullback", pullback(library(x).ones_like(value))
    slopes = [tg.jvp(f, (x,), (e,))[1] for e in basis(x)]
    yield "forward", library(x).stack([library(x).asarray(s) for s in slopes]).reshape(x.shape)
    yield "jacobian, reverse", tg.jacobian(f, mode="reverse")(x)
    yield "jacobian, forward", tg.jacobian(f, mode="forward")(x)


def second_orders(f, x, v):
    """Hessian times v of a scalar function of one array, by each nesting, as pairs (name, product)."""
    yield "hvp", tg.hvp(f, x, v)
    yield "forward over reverse", tg.jvp(tg.grad(f), (x,), (v,))[1]
    yield "reverse over reverse", tg.grad(lambda z: total(tg.grad(f)(z) * v))(x)
    yield "reverse over forward", tg.grad(lambda z: tg.jvp(f, (z,), (v,))[1])(x)
    columns = [tg.jvp(lambda z: tg.jvp(f, (z,), (v,))[1], (x,), (e,))[1] for e in basis(x)]
    yield "forward over forward", library(x).stack([library(x).asarray(c) for c in columns]).reshape(x.shape)


def check_first(f, x, gradient, rtol=1e-12, atol=0.0):
    for name, g in first_orders(f, x):
        try:
            close(g, gradient, rtol, atol)
            assert library(g) is library(x)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def check_second(f, x, v, product, rtol=1e-12, atol=0.0):
    for name, p in second_orders(f, x, v):
        try:
            close(p, product, rtol, atol)
            assert library(p) is library(x)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def derivative(mode, f):
    """The derivative of a function of one number, by forward ('F') or reverse ('R') mode."""
    if mode == "F":
        return lambda x: tg.jvp(f, (x,), (1.0,))[1]
    return tg.jacobian(f, mode="reverse")


def nested(modes, f):
    """The derivative of order len(modes), the first mode outermost."""
    for mode in reversed(modes):
        f = derivative(mode, f)
    return f


# --- values from elsewhere ---


def complex_step(f, x, h=1e-30):
    """Gradient of an analytic real function of one NumPy array (or number), exact to rounding."""
    x = np.asarray(x, float)
    g = np.empty(x.size)
    for k in range(x.size):
        z = x.astype(complex)
        z.reshape(-1)[k] += 1j * h
        g[k] = np.imag(f(z)) / h
    return g.reshape(x.shape)


def differences(f, x, h=1e-3):
    """Gradient of a smooth real function of one NumPy array by central differences, extrapolated twice."""
    x = np.asarray(x, float)
    g = np.empty(x.size)
    for k in range(x.size):

        def slope(step, k=k):
            a, b = x.copy(), x.copy()
            a.reshape(-1)[k] += step
            b.reshape(-1)[k] -= step
            return (f(a) - f(b)) / (2 * step)

        d1, d2, d3 = slope(h), slope(h / 2), slope(h / 4)
        e1, e2 = (4 * d2 - d1) / 3, (4 * d3 - d2) / 3
        g[k] = (16 * e2 - e1) / 15
    return g.reshape(x.shape)


def second_difference(f, x, v, h=1e-4):
    """Hessian times v of an analytic function, by central differences of complex steps (about 1e-11)."""
    g = lambda s: complex_step(f, np.asarray(x) + s * np.asarray(v))
    d = lambda s: (g(s) - g(-s)) / (2 * s)
    return (4 * d(h / 2) - d(h)) / 3


def check_program(f, x):
    """Value, both modes, second order, samples and a prepared function of a smooth program of one vector,
    against differences of the plain program."""
    want = differences(f, x)
    value, gradient = tg.value_and_grad(f)(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-12)
    np.testing.assert_allclose(gradient, want, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(tg.jvp(f, (x,), (x,))[1], want @ x, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(tg.vmap(f)(np.stack([x * 1.01, x]))[1], f(x), rtol=1e-12)
    slope = (tg.grad(f)(x * (1 + 1e-5)) - tg.grad(f)(x * (1 - 1e-5))) / 2e-5
    np.testing.assert_allclose(tg.hvp(f, x, x), slope, rtol=1e-6, atol=1e-7)
    prepared = tg.prepare(f, x)
    for k in (1.0, 1.1, 1.0):
        np.testing.assert_allclose(prepared.grad(x * k), tg.grad(f)(x * k), rtol=1e-10, atol=1e-12)
