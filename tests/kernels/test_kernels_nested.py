"""Loops within loops, within the step of a recursion, and within a likelihood: against closed forms, mpmath,
the same program in plain Python through the tape, and finite differences."""

import functools

import mpmath
import numpy as np
import pytest
from _kernel_cases import case, filtered, predator, triangle
from random_nests import disagreement

import tapegrad as tg
from tapegrad.errors import KernelError
from tapegrad.kernels.graph.blocks import LIMITS
from tapegrad.kernels.launch import cpu, recording, waiting

pytestmark = pytest.mark.one_in(4)  # its cases compile

kernels = tg.kernels


def close(a, b, rtol=1e-11):
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(np.max(np.abs(b), initial=0), 1e-3))


def depths(k, *shape):
    return [body.depth for body in k.lowered(*shape).bodies]


# --- Kepler's equation in a likelihood ---


def newton(M, e):
    return kernels.while_loop(
        lambda E: np.abs(E - e * np.sin(E) - M) > 1e-13 * (1 + M),
        lambda E: E - (E - e * np.sin(E) - M) / (1.0 - e * np.cos(E)),
        M + e * np.sin(M),
        60,
    )


def term(theta, d):
    """-(v - E(t))^2 / 2, E - e sin E = M.  Two more steps after convergence, and so have its derivatives of second order."""
    e, M = theta[0], d[0] * theta[1]
    E = newton(M, e)
    for _ in range(2):
        E = E - (E - e * np.sin(E) - M) / (1.0 - e * np.cos(E))
    return -0.5 * (d[1] - E) ** 2


def reference(theta, data):
    """Value, gradient and Hessian by e and the mean motion; gradient by the times and by v.  E_M = 1 / (1 - e cos E),
    E_e = sin E / (1 - e cos E), and once more."""
    mp = mpmath.mp.clone()
    mp.dps = 40
    e, w = mp.mpf(float(theta[0])), mp.mpf(float(theta[1]))
    value, gradient, hessian, by_data = mp.mpf(0), mp.matrix(2, 1), mp.matrix(2, 2), []
    for t, v in data.T:
        t, v = mp.mpf(float(t)), mp.mpf(float(v))
        E = mp.findroot(lambda E, t=t: E - e * mp.sin(E) - t * w, t * w + e * mp.sin(t * w))
        s, c, r = mp.sin(E), mp.cos(E), 1 / (1 - e * mp.cos(E))
        first = [s * r, t * r]  # by e and w
        dE, de = e * s, -c  # derivatives of 1 - e cos E by E and e
        second = [
            [(c * first[0]) * r - s * r * r * (dE * first[0] + de), 0],
            [-t * r * r * (dE * first[0] + de), -t * r * r * dE * first[1]],
        ]
        second[0][1] = second[1][0]
        value -= (v - E) ** 2 / 2
        for i in range(2):
            gradient[i] += (v - E) * first[i]
            for j in range(2):
                hessian[i, j] += (v - E) * second[i][j] - first[i] * first[j]
        by_data.append([(v - E) * w * r, -(v - E)])
    as_array = lambda m: np.array(m.tolist(), float)
    return float(value), as_array(gradient)[:, 0], as_array(hessian), np.array(by_data, float).T


DATA = np.stack(
    [np.array([0.0, 0.3, 1.7, 2.2, 3.9, 5.0, 8.8]), np.array([0.1, 0.2, 1.0, 2.5, 4.0, 5.5, 7.0])]
)


@pytest.mark.parametrize("batch", [1, 3, 17, 100])
def test_kepler_against_implicit_derivatives(batch):
    k = kernels.likelihood(term)
    theta = np.stack([np.linspace(0.05, 0.85, batch), np.linspace(1.3, 0.7, batch)])
    value, gradient = k.value_and_grad(theta, DATA)
    hessian = k.hessian(theta, DATA)
    v = np.stack([np.cos(np.arange(batch)), np.sin(np.arange(batch))])
    product = k.hvp(theta, v, DATA)
    for b in range(0, batch, 9):
        expected = reference(theta[:, b], DATA)
        close(value[b], expected[0], 1e-12)
        close(gradient[:, b], expected[1], 1e-11)
        close(hessian[b], expected[2], 1e-9)
        close(product[:, b], expected[2] @ v[:, b], 1e-9)
        close(tg.grad(lambda d, b=b: k(theta[:, b], d))(DATA), expected[3], 1e-11)


@pytest.mark.long
def test_kepler_of_every_kind():
    """Data of each sample, contributions, scores, float32, the sum over samples of the gradient by shared
    data."""
    k = kernels.likelihood(term)
    theta = np.stack([np.linspace(0.1, 0.7, 5), np.linspace(1.2, 0.8, 5)])
    expected = [reference(theta[:, b], DATA) for b in range(5)]
    values, gradients = [x[0] for x in expected], np.stack([x[1] for x in expected], -1)
    close(tg.grad(lambda d: k(theta, d).sum())(DATA), sum(x[3] for x in expected), 1e-11)
    each = DATA[:, :, None] * np.array([1.0, 1.1, 0.9, 1.0, 1.2])
    own = [reference(theta[:, b], each[:, :, b]) for b in range(5)]
    close(k(theta, each), [x[0] for x in own])
    close(k.grad(theta, each), np.stack([x[1] for x in own], -1))
    close(tg.grad(lambda d: k(theta, d).sum())(each), np.stack([x[3] for x in own], -1))
    close(k.contributions(theta, DATA).sum(axis=0), values)
    w = np.sin(np.arange(7.0))[:, None]
    close(
        tg.grad(lambda t: (k.contributions(t, DATA) * w).sum())(theta),
        np.einsum("nb,npb->pb", w * np.ones(5), k.scores(theta, DATA)),
    )
    close(k.scores(theta, DATA).sum(axis=0), gradients)
    close(k.fisher(theta, DATA), np.einsum("npb,nqb->bpq", k.scores(theta, DATA), k.scores(theta, DATA)))
    single = k.value_and_grad(theta.astype(np.float32), DATA.astype(np.float32))
    assert single[0].dtype == single[1].dtype == np.float32


def test_kepler_in_single_precision():
    k, theta, data = case("kepler")
    single = k.value_and_grad(theta.astype(np.float32), data.astype(np.float32))
    assert single[0].dtype == single[1].dtype == np.float32
    for a, b in zip(single, k.value_and_grad(theta, data), strict=True):
        close(a, b, 2e-3)


def test_missing_data_in_a_loop():
    """A square root that is nan for the number that stands in for a missing one."""

    def f(theta, y):
        s = kernels.while_loop(
            lambda s: s < y - 0.6, lambda s: s + np.sqrt(y - s - 0.55) * theta[0] + 0.2, 0.0 * y, 100
        )
        return -s * s * theta[1]

    k = kernels.likelihood(f, missing="skip")
    theta = np.stack([np.linspace(0.2, 0.9, 9), np.linspace(1.0, 2.0, 9)])
    data = np.array([1.0, np.nan, 3.0, 2.5, np.nan, 1.7])
    there = data[~np.isnan(data)]
    for a, b in zip(k.value_and_grad(theta, data), k.value_and_grad(theta, there), strict=True):
        assert np.isfinite(b).all()
        close(a, b)
    close(k.hessian(theta, data), k.hessian(theta, there))
    plain = lambda t: sum([f(t, y) for y in there])
    close(k.grad(theta, there)[:, 4], tg.grad(plain)(theta[:, 4]))


# --- steps of an equation of motion between the data of a filter ---


def observed(theta, data):
    state, total = np.array([1.4, 1.1]) + 0.1 * theta[0], 0.0
    for y, n in data.T:
        state = kernels.loop(int(n), lambda i, s: predator(s, theta, 0.04), state)
        r = y - state[0]
        state = state + 0.2 * np.array([1.0, 0.0]) * r
        total = total - 0.5 * r * r * np.exp(-2 * theta[4]) - theta[4]
    return total


@pytest.mark.long
def test_steps_of_runge_and_kutta_between_data():
    k, theta, data = case("substeps")
    assert depths(k, 5, 2) == [1, 2, 1, 2, 2], (
        "the filter, its steps; the sweep, the steps again, and their sweep"
    )
    value, gradient = k.value_and_grad(theta, data)
    hessian = k.hessian(theta, data)
    for b in (0, 5, 10):
        plain = lambda t: observed(t, data)
        v, g = tg.value_and_grad(plain)(theta[:, b])
        close(value[b], v)
        close(gradient[:, b], g)
        close(hessian[b], tg.hessian(plain)(theta[:, b]), 1e-9)
    by_data = tg.grad(lambda y: k(theta, y).sum())(data)
    shift = np.zeros_like(data)
    shift[0, 7] = 1e-6
    close(by_data[0, 7], (k(theta, data + shift) - k(theta, data - shift)).sum() / 2e-6, 1e-6)
    assert np.array_equal(by_data[1], np.zeros(data.shape[1])), "a number of steps has no derivative"


def test_missing_data_of_a_filter():
    """Without a datum the state moves on by as many steps as another function says."""

    def skip(state, theta):
        return kernels.loop(np.floor(3.0 + theta[5]), lambda i, s: predator(s, theta, 0.04), state)

    k = kernels.recursion(lambda t: np.array([1.4, 1.1]) + 0.1 * t[0], filtered, missing=skip)
    _, theta, data = case("substeps")
    theta = np.vstack([theta, np.linspace(-3.5, 2.0, 11)])
    data = data.copy()
    data[0, [0, 4, 5, 20]] = np.nan

    def plain(t):
        state, total = np.array([1.4, 1.1]) + 0.1 * t[0], 0.0
        for y, n in data.T:
            if np.isnan(y):
                steps = int(np.floor(3.0 + tg.value(t)[5]))
                state = kernels.loop(steps, lambda i, s: predator(s, t, 0.04), state)
                continue
            state, term = filtered(state, t, (y, int(n)))
            total = total + term
        return total

    value, gradient = k.value_and_grad(theta, data)
    for b in range(0, 11, 2):
        v, g = tg.value_and_grad(plain)(theta[:, b])
        close(value[b], v)
        close(gradient[:, b], g)


def test_loops_in_init():
    """A stationary variance by iteration to a fixed point, each sample with its own number of steps."""
    fixed = lambda a, q: kernels.while_loop(
        lambda c: abs(c[0] - c[1]) > 1e-15, lambda c: (a * a * c[0] + q, c[0]), (q, 0.0 * q), 3000
    )[0]
    step = lambda c, theta, y: (theta[0] * y, -0.5 * (y - c) ** 2 / fixed(theta[0], theta[1]))
    k = kernels.recursion(lambda theta: fixed(theta[0], theta[1]), step)
    theta = np.array([[0.1, 0.5, 0.9, 0.95], [1.0, 0.5, 2.0, 0.3]])
    data = np.array([0.3, -0.2, 0.9])
    assert depths(k, 2, 0, "F") == [1, 1, 1], "what does not vary with the data is moved out of their loop"

    def closed(t):
        v = t[1] / (1 - t[0] ** 2)
        c, total = v, 0.0
        for y in data:
            total, c = total - 0.5 * (y - c) ** 2 / v, t[0] * y
        return total

    value, gradient = k.value_and_grad(theta, data)
    close(value, closed(theta))
    close(gradient, tg.grad(lambda t: closed(t).sum())(theta), 1e-10)
    close(k.hessian(theta, data)[2], tg.hessian(closed)(theta[:, 2]), 1e-8)


# --- maps ---


@pytest.mark.parametrize("batch", [1, 3, 17, 100])
def test_three_loops_deep(batch):
    """The middle bound is the counter of the outer loop, the innermost goes on by its condition; samples take
    0 to 8 steps."""
    k = kernels.map(triangle)
    x, n = np.linspace(0.4, 1.6, batch), (np.arange(batch) * 5) % 9
    value, gradient = k(x, n), tg.grad(lambda x: k(x, n).sum())(x)
    second = tg.hvp(lambda x: k(x, n).sum(), x, np.ones(batch))
    third = tg.jvp(lambda x: tg.hvp(lambda x: k(x, n).sum(), x, np.ones(batch)), (x,), (np.ones(batch),))[1]
    for b in range(0, batch, 13):
        plain = lambda x, b=b: triangle(x, int(n[b]))
        close(value[b], plain(x[b]))
        close(gradient[b], tg.grad(plain)(x[b]))
        close(second[b], tg.grad(tg.grad(plain))(x[b]), 1e-10)
        close(third[b], tg.grad(tg.grad(tg.grad(plain)))(x[b]), 1e-9)


def test_four_loops_deep_on_threads(monkeypatch):
    """The innermost reads the counters of all; the bits are the same on three threads."""

    def f(x, n):
        last = lambda a, b, c, u: kernels.loop(
            c + 1 + a, lambda d, v: 0.9 * v + 0.1 * np.sin(x * v + a - b + c - d), u
        )
        middle = lambda a, t: kernels.loop(
            a + 1, lambda b, t: kernels.loop(b + 1, lambda c, u: last(a, b, c, u), t), t
        )
        return kernels.loop(n, lambda a, s: middle(a, s), x)

    k = kernels.map(f)
    x, n = np.linspace(0.3, 2.0, 300), np.arange(300) % 5
    gradient = tg.grad(lambda x: k(x, n).sum())(x)
    for b in (0, 3, 154, 299):
        v, g = tg.value_and_grad(lambda x, b=b: f(x, int(n[b])))(x[b])
        close(k(x, n)[b], v)
        close(gradient[b], g)
    monkeypatch.setattr(waiting, "THREADS", 3)
    monkeypatch.setattr(waiting, "THREADED_OPERATIONS", 10)
    assert np.array_equal(tg.grad(lambda x: k(x, n).sum())(x), gradient)


def test_a_loop_in_the_condition_of_another():
    def f(x):
        weight = lambda s: kernels.loop(20, lambda i, u: u + 0.01 * s, 0.0 * s)
        return kernels.while_loop(lambda s: weight(s) < x, lambda s: 1.3 * s + x, 0.1 * x, 60)

    k = kernels.map(f)
    x = np.linspace(0.3, 3.0, 19)
    close(k(x), [f(a) for a in x])
    close(tg.grad(lambda x: k(x).sum())(x), [tg.grad(f)(a) for a in x])


def test_trees_as_carry_and_parameters():
    def term(theta, d):
        turn = lambda c: c["a"] @ np.array([[0.9, 0.1], [theta["p"], 0.8]])
        step = lambda i, c: {"a": turn(c), "b": c["b"] + c["a"][0] * theta["q"][1]}
        c = kernels.loop(d[1], step, {"a": theta["q"], "b": d[0]})
        return c["b"] * c["a"].sum()

    k = kernels.likelihood(term)
    theta = {"p": np.linspace(0.1, 0.4, 40), "q": np.random.default_rng(0).normal(size=(2, 40))}
    data = np.stack([np.linspace(-1, 1, 9), np.arange(9.0)])

    def plain(p, q):
        total = 0.0
        for y, n in data.T:
            a, b = q, y
            for _ in range(int(n)):
                a, b = tg.numpy.stack([0.9 * a[0] + p * a[1], 0.1 * a[0] + 0.8 * a[1]]), b + a[0] * q[1]
            total = total + b * a.sum()
        return total

    value, gradient = k.value_and_grad(theta, data)
    for b in (0, 7, 39):
        v, g = tg.value_and_grad(plain, (0, 1))(theta["p"][b], theta["q"][:, b])
        close(value[b], v)
        close(gradient["p"][b], g[0])
        close(gradient["q"][:, b], g[1])


def test_a_continued_fraction_of_each_term():
    """tan x = x / (1 - x^2 / (3 - x^2 / (5 - ...))), from the inside out, summed over multiples of x."""

    def f(x, n):
        def tangent(x, terms):
            return x / kernels.loop(
                terms, lambda i, c: 2.0 * (terms - i) - 1.0 - x * x / c, 2.0 * terms + 1.0
            )

        return kernels.loop(n, lambda i, s: s + tangent(x * (i + 1) / 8, 12.0 + i), 0.0 * x)

    k = kernels.map(f)
    x, n = np.linspace(0.1, 1.2, 7), np.array([0, 1, 2, 3, 5, 8, 8])
    expected = np.array([sum(np.tan(a * (i + 1) / 8) for i in range(m)) for a, m in zip(x, n, strict=True)])
    slope = np.array(
        [sum((i + 1) / 8 / np.cos(a * (i + 1) / 8) ** 2 for i in range(m)) for a, m in zip(x, n, strict=True)]
    )
    close(k(x, n), expected)
    close(tg.grad(lambda x: k(x, n).sum())(x), slope)


def test_numbers_of_steps():
    """None, negative, fractional, nan, and more than there is room for at first."""
    power = lambda x, n: kernels.loop(
        20, lambda j, t: t + kernels.loop(n, lambda i, s: s * x, 1.0 + 0.0 * t), 0.0
    )
    k = kernels.map(power)
    n = np.array([np.nan, -3.0, 2.5, 0.0, 3.0, 500.0])
    x = np.array([2.0, 2.0, 2.0, 2.0, 2.0, 1.001])
    assert np.isnan(k(x, n)[0])
    close(k(x, n)[1:], 20 * x[1:] ** np.array([0, 2, 0, 3, 500]))
    close(
        tg.vjp(lambda x: k(x, tg.Const(n)), x)[1](np.ones(6)),
        20 * np.array([0, 0, 4, 0, 12, 500 * 1.001**499]),
    )
    bounded = kernels.map(
        lambda x, n: kernels.loop(
            18, lambda j, t: t + kernels.loop(n, lambda i, s: s * x, 1.0, max_steps=6), 0.0
        )
    )
    assert np.array_equal(
        bounded(np.full(3, 2.0), np.array([6.0, 7.0, 0.0])), [18 * 64, np.nan, 18], equal_nan=True
    )


def test_a_sweep_that_needs_the_counter_only():
    """The carry is needed after the loop and by no sweep."""
    k = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: s + x * np.exp(np.sin(0.1 * i)), 0.0) ** 2)
    n = np.array([0, 3, 70])
    weights = np.array([np.exp(np.sin(0.1 * np.arange(m))).sum() for m in n])
    close(tg.grad(lambda x: k(x, n).sum())(np.full(3, 0.7)), 1.4 * weights**2)


def test_counts_that_depend_on_counted_loops():
    """Where the tape has no room for all steps of a loop, those after it still take the numbers of steps that
    they should."""

    def f(x, n):
        first = kernels.loop(n, lambda i, s: s + 0.01 * np.sin(s * x), x)
        second = kernels.loop(np.floor(first * 1e3), lambda i, s: s * 0.999 + 0.001 * x, first)
        return kernels.loop(
            n, lambda i, s: kernels.loop(i + np.floor(s), lambda j, u: u + 0.001 * x / u, s), second
        )

    x, n = np.array([0.7, 1.0, 1.3]), np.array([150, 20, 90])
    gradient = tg.grad(lambda x: kernels.map(f)(x, n).sum())(x)

    def plain(x, n):
        loop = lambda n, body, c: kernels.loop(int(np.floor(tg.value(n))), body, c)
        first = loop(n, lambda i, s: s + 0.01 * np.sin(s * x), x)
        second = loop(tg.value(first) * 1e3, lambda i, s: s * 0.999 + 0.001 * x, first)
        return loop(
            n, lambda i, s: loop(i + np.floor(tg.value(s)), lambda j, u: u + 0.001 * x / u, s), second
        )

    close(gradient, [tg.grad(lambda x, m=m: plain(x, m))(a) for a, m in zip(x, n, strict=True)])


@pytest.mark.parametrize("inside", [False, True])
def test_what_comes_after_the_end_reaches_nothing(inside):
    """After its last step the state lies where the next one would be nan, and where two paths meet so would
    the derivative."""

    def f(x):
        def body(c):
            v = np.sqrt(x - c[0])
            return c[0] + 0.3 * v + 0.2, c[1] + v + np.where(v > 0.5, v, 0.0) + np.log(x - c[0] + 1e-3)

        root = lambda s: kernels.while_loop(lambda c: c[0] < x, body, (0.0 * x, s), 50)[1]
        return kernels.loop(20, lambda i, s: root(0.1 * s), 0.0 * x) if inside else root(0.0 * x)

    k = kernels.map(f)
    x = np.array([0.5, 1.0, 2.0, 3.3, 7.0])
    close(k(x), [f(a) for a in x])
    close(tg.grad(lambda x: k(x).sum())(x), [tg.grad(f)(a) for a in x])
    close(tg.hvp(lambda x: k(x).sum(), x, np.ones(5)), [tg.grad(tg.grad(f))(a) for a in x])


@pytest.mark.parametrize("inside", [False, True])
def test_a_loop_whose_result_is_not_taken_reaches_nothing(inside):
    """np.where took the other one, and in the loop there are only nans."""

    def f(x, n):
        chosen = lambda: np.where(x > 1.5, kernels.loop(n, lambda i, s: np.sqrt(s - 1.0) + x, x), x * x)
        return kernels.loop(n, lambda i, s: s + chosen(), 0.0 * x) if inside else chosen()

    k = kernels.map(f)
    x, n = np.array([0.5, 1.0, 2.0, 3.0]), np.array([2, 3, 2, 1])
    plain = [lambda x, m=m: f(x, int(m)) if x > 1.5 else (m * x * x if inside else x * x) for m in n]
    close(k(x, n), [g(a) for g, a in zip(plain, x, strict=True)])
    close(tg.grad(lambda x: k(x, n).sum())(x), [tg.grad(g)(a) for g, a in zip(plain, x, strict=True)])
    close(
        tg.hvp(lambda x: k(x, n).sum(), x, np.ones(4)),
        [tg.grad(tg.grad(g))(a) for g, a in zip(plain, x, strict=True)],
    )


def test_a_step_that_is_not_taken_asks_for_no_inner_steps():
    """Samples that are done would ask for 10^9 steps, which would take seconds."""
    f = lambda x: kernels.while_loop(
        lambda c: c < 10.0, lambda c: kernels.loop(np.where(c < 10, 3.0, 1e9), lambda i, s: s * x, c), x, 40
    )
    k = kernels.map(f)
    x = np.array([1.01, 1.5, 2.0, 9.0])
    plain = lambda x: kernels.while_loop(lambda c: c < 10.0, lambda c: c * x * x * x, x, 40)
    close(k(x), [plain(a) for a in x])
    close(tg.grad(lambda x: k(x).sum())(x), [tg.grad(plain)(a) for a in x])


def test_what_is_not_used_is_not_computed():
    """An inner loop, and a part of its carry, of which nothing depends."""

    def f(x, n):
        def body(i, s):
            kernels.loop(n, lambda j, u: u * x, s)
            a, b = kernels.loop(n, lambda j, c: (c[0] * x, np.exp(c[1])), (s, x))
            return a

        return kernels.loop(n, body, x)

    k = kernels.map(f)
    x, n = np.array([0.9, 1.1]), np.array([2, 3])
    close(k(x, n), x ** (1 + n * n))
    family, _ = k._family(((), ()), (False, True))
    low = tg.kernels.emit.lower.lower_program(family.derived("F", 0, ()))
    assert [len(b.loop.carry) for b in low.bodies] == [1, 1] and "exp" not in low.functions()


def test_equal_components_stay_one():
    """A covariance through steps of its differential equation: the four numbers of a symmetric matrix are
    three."""

    def f(a, n):
        def body(i, P):
            A = np.array([[0.0, 1.0], [-a, -0.3]])
            return kernels.loop(n, lambda j, P: P + 0.01 * (A @ P + P @ A.T + np.eye(2)), P)

        return kernels.loop(n, body, np.eye(2))[0, 1]

    k = kernels.map(f)
    family, _ = k._family(((), ()), (False, True))
    assert [
        len(b.loop.carry) for b in tg.kernels.emit.lower.lower_program(family.derived("F", 0, ())).bodies
    ] == [3, 3]
    a, n = np.array([0.5, 1.0, 2.0]), np.array([1, 2, 4])
    close(k(a, n), [f(x, int(m)) for x, m in zip(a, n, strict=True)])
    close(
        tg.grad(lambda a: k(a, n).sum())(a),
        [tg.grad(lambda x, m=m: f(x, int(m)))(x) for x, m in zip(a, n, strict=True)],
    )


def moved(loop):
    """A filter of an oscillator that moves by Euler's steps between the data."""

    def step(c, theta, d):
        A = np.array([[0.0, 1.0], [-theta[0], -0.3]])
        euler = lambda i, c: (
            c[0] + 0.05 * (A @ c[0]),
            c[1] + 0.05 * (A @ c[1] + c[1] @ A.T + np.eye(2) * theta[1]),
        )
        m, P = loop(d[1], euler, c)
        S, v = P[0, 0] + theta[2], d[0] - m[0]
        G = P[:, 0] / S
        return (m + G * v, P - np.outer(G, P[0])), -0.5 * (np.log(S) + v * v / S)

    return step


def test_equal_components_of_a_filter_with_missing_data():
    """Two means and three numbers of a covariance, which at the start are 0, t and 0: equal, fixed, and then
    not so."""
    start = lambda theta: (np.zeros(2), np.eye(2) * theta[1])
    k = kernels.recursion(start, moved(kernels.loop), missing="skip")
    assert [len(body.loop.carry) for body in k.lowered(3, 2).bodies] == [5] * 5
    rng = np.random.default_rng(0)
    data, theta = (
        np.stack([rng.normal(size=9), rng.integers(0, 30, 9)]),
        np.abs(rng.normal(size=(3, 4))) + 0.3,
    )
    data[0, [1, 4, 7]] = np.nan
    step = moved(lambda n, body, c: kernels.loop(int(tg.value(n)), body, c))

    def plain(t):
        c, total = start(t), 0.0
        for d in data.T[~np.isnan(data[0])]:
            c, term = step(c, t, d)
            total = total + term
        return total

    value, gradient = k.value_and_grad(theta, data)
    for b in range(4):
        v, g = tg.value_and_grad(plain)(theta[:, b])
        close(value[b], v)
        close(gradient[:, b], g)
    close(k.hessian(theta, data)[1], tg.hessian(plain)(theta[:, 1]), 1e-9)


def test_code_does_not_grow_with_the_steps():
    def size(n, m):
        k = kernels.recursion(
            lambda t: t[0], lambda c, t, y: (kernels.loop(n, lambda i, s: np.sin(s) + t[1] * i, c), c * y)
        )
        l = kernels.likelihood(
            lambda t, y: kernels.while_loop(lambda s: s < y, lambda s: s * t[0] + t[1], t[2], m)
        )
        return k.lowered(2, 0).instructions, l.lowered(3, 0, "R", 1).instructions

    assert size(17, 10) == size(10**6, 10**6)


@pytest.mark.parametrize("made", [list, np.array])
def test_a_body_that_takes_elements_of_a_list(made):
    """It is written out; where that would be long the error says what is wrong."""
    weights = made([0.1 * i for i in range(1001)])
    k = lambda n: kernels.likelihood(
        lambda theta, y: kernels.loop(n, lambda i, s: s * theta[0] + weights[i], y)
    )
    x, y = np.array([[0.5, 0.9]]), np.array([1.0, 2.0])
    expected = sum(functools.reduce(lambda s, w: s * x[0] + w, weights[:20], v) for v in y)
    close(k(20)(x, y), expected)
    inside = kernels.map(
        lambda x: kernels.loop(30, lambda i, s: kernels.loop(18, lambda j, u: 0.5 * u + weights[j] * x, s), x)
    )
    total = lambda x, s: functools.reduce(lambda u, w: 0.5 * u + w * x, weights[:18], s)
    close(inside(x[0]), [functools.reduce(lambda s, i, a=a: total(a, s), range(30), a) for a in x[0]])
    with pytest.raises(KernelError, match="known only when the kernel runs|traced value"):
        k(1001)(x, y)


def test_numbers_that_leave_a_body_otherwise():
    x = np.ones(2)

    def leak(outer):
        def f(x):
            box = []

            def body(i, s):
                box.append(2.0 * s)
                return s * x

            def around(j, s):
                return s + kernels.loop(20, body, s) + box[-1]

            return kernels.loop(10, around, x) if outer else kernels.loop(10, body, x) + box[-1]

        return f

    for outer in (False, True):
        with pytest.raises(KernelError, match="only the carry leaves a loop"):
            kernels.map(leak(outer))(x)
    with pytest.raises(KernelError, match="given 2 numbers and returned 3") as caught:
        kernels.recursion(
            lambda t: 1.0, lambda c, t, y: (c, kernels.loop(20, lambda i, s: (*s, s[0]), (c, c))[0])
        )(x[:1, None], x)
    assert "test_kernels_nested.py:" in str(caught.value)


def test_scores_of_a_loop_are_differentiated_forwards():
    k = kernels.likelihood(
        lambda t, y: kernels.while_loop(lambda s: s < y, lambda s: s * t[0] + t[1], t[2], 100)
    )
    theta, data = np.array([[1.1, 1.2], [0.3, 0.2], [0.2, 0.4]]), np.array([1.0, 2.0, 3.0])
    ours = tg.jvp(lambda t: k.scores(t, data), (theta,), (np.ones_like(theta),))[1]
    close(ours.sum(axis=0), k.hvp(theta, np.ones_like(theta), data))
    with pytest.raises(KernelError, match="forwards only"):
        tg.grad(lambda t: k.scores(t, data).sum())(theta)


# --- large matrices ---

STATES = 10


def start(theta):
    return np.zeros(STATES), np.eye(STATES)


def update(loop):
    """A filter of ten states, whose covariance moves by as many steps of its differential equation as the
    datum says."""

    def step(carry, theta, d):
        F = 0.1 * theta[: STATES**2].reshape(STATES, STATES)
        Q = 0.1 * np.diag(np.exp(theta[STATES**2 :]))

        def move(i, c):
            m, P = c
            slope = F @ P + P @ F.T + Q
            return m + F @ m + 0.01 * i, P + slope + 0.5 * (F @ slope + slope @ F.T)

        m, P = loop(d[1], move, carry)
        S, v = P[0, 0] + 1.0, d[0] - m[0]
        K = P[:, 0] / S
        return (m + K * v, P - np.outer(K, P[0])), -0.5 * (np.log(S) + v * v / S)

    return step


@pytest.mark.long
def test_matrices_kept_whole():
    rng = np.random.default_rng(0)
    data = np.stack([rng.normal(size=6), np.array([0.0, 3, 1, 2, 5, 2])])
    centre = np.concatenate(
        [0.7 * np.linalg.qr(rng.normal(size=(STATES, STATES)))[0].ravel(), np.log(np.full(STATES, 0.3))]
    )
    theta, w = centre[:, None] * (1 + 0.05 * rng.normal(size=(110, 5))), rng.normal(size=(110, 5))
    k = kernels.recursion(start, update(kernels.loop))
    low = k.lowered(110, 2)
    assert low.arena and [body.depth for body in low.bodies if body.blocks] == [1, 2, 1, 2, 2]
    move = update(lambda n, body, c: kernels.loop(int(tg.value(n)), body, c))

    def plain(t, data=data):
        carry, total = start(t), 0.0
        for n in range(data.shape[1]):
            carry, term = move(carry, t, data[:, n])
            total = total + term
        return total

    value, gradient = k.value_and_grad(theta, data)
    for b in (0, 4):
        v, g = tg.value_and_grad(plain)(theta[:, b])
        close(value[b], v)
        close(gradient[:, b], g)
    one = k.value_and_grad(theta[:, :1].copy(), data)
    assert np.array_equal(one[0], value[:1]) and np.array_equal(one[1], gradient[:, :1]), (
        "the bits of one sample and of several"
    )
    close(k.hvp(theta, w, data)[:, 1], tg.hvp(plain, theta[:, 1], w[:, 1]), 1e-9)
    close(tg.grad(lambda d: k(theta[:, 2:3], d).sum())(data), tg.grad(lambda d: plain(theta[:, 2], d))(data))


@pytest.mark.long
def test_vectors_kept_whole_three_loops_deep():
    M = 0.1 * np.random.default_rng(1).normal(size=(70, 70))

    def f(x, n):
        shrunk = lambda v: kernels.while_loop(
            lambda u: (u * u).sum() > 4.0 * x, lambda u: 0.8 * u + 0.01 * np.sin(M @ u), v, 60
        )
        step = lambda v, j: shrunk(np.tanh(M @ v + x) + 0.1 * j)
        return kernels.loop(
            n, lambda i, v: kernels.loop(i + 1, lambda j, v: step(v, j), v), np.ones(70) * x
        ).sum()

    k = kernels.map(f)
    x, n = np.array([0.3, 0.5, 0.7, 0.9, 1.1]), np.array([0, 1, 2, 3, 5])
    family, _ = k._family(((), ()), (False, True))
    assert tg.kernels.emit.lower.lower_program(family.derived("R", 0, ())).arena
    close(k(x, n), [f(a, int(m)) for a, m in zip(x, n, strict=True)])
    one = [lambda x, m=m: f(x, int(m)) for m in n]
    close(tg.grad(lambda x: k(x, n).sum())(x), [tg.grad(g)(a) for g, a in zip(one, x, strict=True)])
    close(
        tg.hvp(lambda x: k(x, n).sum(), x, np.ones(5)),
        [tg.grad(tg.grad(g))(a) for g, a in zip(one, x, strict=True)],
        1e-10,
    )


@pytest.mark.one_in(7)
@pytest.mark.parametrize("seed", range(10))
def test_random_nests_of_vectors_kept_whole(seed, monkeypatch):
    for name, most in (("nodes", 30), ("elements", 3), ("row", 2), ("products", 1)):
        monkeypatch.setattr(LIMITS, name, most)
    assert disagreement(seed, "vectors", seed % 2 == 0) < 1e-9


# --- steps of inner loops that the sweep recalls ---


def relaxed(m, theta, y):
    """A recursion whose step relaxes towards a datum: a while loop, then a counted loop of a pair."""
    x = kernels.while_loop(
        lambda x: np.abs(x - y) > 0.1 * theta[1], lambda x: x + theta[0] * (np.tanh(y) - np.tanh(x)), m, 90
    )
    n = np.floor(3 * np.abs(tg.value(y)))
    pair = kernels.loop(n, lambda i, c: (c[0] + 0.1 * theta[0] * c[1], c[1] * np.cos(c[0])), (x, m))
    return pair[0] + theta[1] * pair[1], np.stack([pair[0] ** 2, x * pair[1]])


@pytest.mark.parametrize("batch", [1, 5, 19])
def test_inner_steps_are_recalled_or_run_again(batch, monkeypatch):
    """The same bits with room for all steps, for some, and for none; the gradient of the program on a tape."""
    rng = np.random.default_rng(0)
    theta = np.stack([rng.uniform(0.2, 0.6, batch), rng.uniform(0.3, 1.0, batch)])
    data = rng.normal(size=13)
    found = []
    for room in (2**20, 5000, 1):
        monkeypatch.setattr(cpu, "RECALLED_BYTES", room)
        k = kernels.recursion(lambda theta: 0.3 * theta[0], relaxed)
        total = lambda theta, data, k=k: (k.path(theta, data) ** 2).sum()
        along = lambda theta, total=total: total(theta, data)
        lowered = k._families["path"].lowered("R", (0, 0), (2, 0, False), np.dtype(float))
        assert sorted(lowered.recalled.items()) == [(4, 1), (5, 2)]
        by_theta, by_data = tg.grad(total, argnums=(0, 1))(theta, data)
        found.append(np.concatenate([x.ravel() for x in (by_theta, by_data, tg.hvp(along, theta, theta))]))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])

    def plain(t):
        m, total = 0.3 * t[0], 0.0
        for y in data:
            m, pair = relaxed(m, t, y)
            total = total + (pair**2).sum()
        return total

    close(by_theta[:, -1], tg.grad(plain)(theta[:, -1]))


@pytest.mark.parametrize(("batch", "lanes"), [(1, 1), (5, 16), (40, 48)])
@pytest.mark.parametrize("own", [False, True])
def test_a_gradient_reads_the_steps_of_its_value(batch, lanes, own, monkeypatch):
    """The same bits as where the forward pass runs again, because there is room for 60 steps of 5 numbers, or
    for none; for each form of a launch, in three threads. Another value in between has steps of its own. The
    calls of a prepared gradient store their steps on the same tapes."""
    rng = np.random.default_rng(0)
    theta = np.stack([rng.uniform(0.2, 0.6, batch), rng.uniform(0.3, 1.0, batch)])
    data = rng.normal(size=(1, 13, batch) if own else 13)
    monkeypatch.setattr(waiting, "THREADED_OPERATIONS", 0)
    monkeypatch.setattr(waiting, "THREADS", 3)
    found = []
    for room in (2**22, 8 * lanes * (13 + 5 * 61), 0):
        monkeypatch.setattr(recording, "BYTES", room)
        k = kernels.recursion(lambda theta: 0.3 * theta[0], lambda m, t, y: relaxed(m, t, np.sum(y)))
        read, run = [], k._run_of

        def watched(family, kind, *more, run=run, read=read):
            read += [kind] if len(more) > 3 and more[3] is not None else []
            return run(family, kind, *more)

        monkeypatch.setattr(k, "_run_of", watched)
        for factor in (1.0, 0.9):
            y, pull = tg.vjp(lambda t, d, k=k: k.path(t, d), factor * theta, data)
            other = tg.grad(lambda t, k=k: (k.path(t, data) ** 2).sum())(0.5 * theta)
            found += [y, *pull(np.cos(y)), *pull(np.sin(y)), other]
        assert set(read) == {2**22: {"F", "R"}, 0: set()}.get(room, {"F"})
        p = tg.prepare(lambda t, k=k: (k.path(t, data) ** 2).sum(), theta)
        p.grad(theta)
        with monkeypatch.context() as patch:
            patch.setattr(recording.StepRecorder, "like", None)  # no tapes are made
            found.append(p.grad(0.5 * theta))
        assert np.array_equal(found[-1], other)
    each = len(found) // 3
    for a, b, c in zip(found[:each], found[each : 2 * each], found[2 * each :], strict=True):
        assert np.array_equal(a, b) and np.array_equal(a, c)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_random_nests_with_room_for_some_steps(seed, monkeypatch):
    monkeypatch.setattr(cpu, "RECALLED_BYTES", 900)
    assert disagreement(seed, "recursion", seed % 2 == 0) < 1e-9


# --- random programs ---


@pytest.mark.one_in(7)
@pytest.mark.parametrize("kind", ["map", "likelihood", "recursion"])
@pytest.mark.parametrize(
    "seed", [*range(7), *[pytest.param(n, marks=pytest.mark.long) for n in range(7, 42)]]
)
def test_random_nests(seed, kind):
    assert disagreement(seed, kind, seed % 2 == 0) < 1e-9


def test_bounds_that_are_no_whole_numbers():
    """int(n) steps, in the kernel as in plain Python; nan for nan."""
    n, x = np.array([3.0, 2.5, 0.0, -1.0, -0.5, np.nan, 0.99, 5.0]), np.full(8, 2.0)
    taken = np.array([3.0, 2.0, 0.0, 0.0, 0.0, np.nan, 0.0, 5.0])
    k = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: s * x, 1.0))
    np.testing.assert_array_equal(k(x, n), 2.0**taken)
    np.testing.assert_array_equal(
        tg.vjp(lambda x: k(x, tg.Const(n)), x)[1](np.ones(8))[:5], (taken * 2.0 ** (taken - 1))[:5]
    )
    limited = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: s * x, 1.0, max_steps=4))
    np.testing.assert_array_equal(limited(x, n), np.where(taken > 4, np.nan, 2.0**taken))
    inside = kernels.likelihood(
        lambda t, y: kernels.loop(y[0], lambda i, s: s * t[0], 1.0) * y[1], invalid="nan"
    )
    data = np.stack([n[:5], np.arange(5.0)])
    np.testing.assert_allclose(inside(np.array([2.0]), data), (2.0 ** taken[:5] * np.arange(5.0)).sum())
    assert kernels.loop(2.5, lambda i, s: s * 2, 1.0) == 4.0


NO_NUMBER = {
    "pow": lambda c, b: c**b * b,
    "sqrt": lambda c, b: np.sqrt(c) * b,
    "products": lambda c, b: np.log(c) * np.sqrt(c) * b * b,
}


@pytest.mark.parametrize("u", NO_NUMBER.values(), ids=NO_NUMBER)
def test_a_number_that_several_branches_leave_out(u):
    """It is nan here and is used twice; to second order, and in loops, its derivatives meet each other too."""

    def value(c, b):
        y = u(c, b)
        return np.where(c > 0, y * np.sin(b), b) ** 2 + np.where(c > 0.1, y * y, b)

    theta, ones = np.array([[-1.2], [0.7]]), np.ones(1)
    first, second = [[0.0], [2 * 0.7 + 1]], [[[0.0, 0.0], [0.0, 2.0]]]
    step = lambda c, theta, y: (c, value(c, theta[1]))
    for k, data in (
        (kernels.likelihood(lambda theta, y: value(*theta)), ones),
        (kernels.recursion(lambda theta: theta[0], step), ones[None]),
    ):
        np.testing.assert_allclose(k.grad(theta, data), first, rtol=1e-14)
        np.testing.assert_allclose(k.hessian(theta, data), second, rtol=1e-14)
