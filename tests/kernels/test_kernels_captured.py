"""What a kernel function captures is constant in the compiled code: when it changes the kernel is traced
anew, and where its derivative would be lost the call raises."""

import collections
import functools
import types

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import DroppedDerivativeError
from tapegrad.kernels.trace import tracing

pytestmark = pytest.mark.smoke

kernels = tg.kernels
Y = np.array([1.0, 2.0, 4.0])
THETA = np.array([[1.0, 3.0]])
SCALE = 2.0


def helper(x):
    return SCALE * x


class Model:
    def __init__(self):
        self.weights, self.options = np.array([2.0, 5.0]), {"power": 1.0, "shifts": [0.0]}

    def loglik(self, theta, y):
        return self.weights[0] * theta[0] * y ** self.options["power"] + self.options["shifts"][0]

    __call__ = loglik


def cases():
    """Kernel, what it is now as a function of theta and y, and the change."""
    pair = collections.namedtuple("Pair", "a b")(np.array([2.0]), 1.0)
    a, table, numbers, number = np.array([2.0]), {"a": [np.array([2.0])]}, [2.0, 1.0], 2.0

    def rebind():
        nonlocal number
        number = 7.0

    def put(x, key, value):
        return lambda: x.__setitem__(key, value)

    yield "array", lambda t, y: a[0] * t[0] * y, put(a, 0, 7.0)
    yield "cell", lambda t, y: number * t[0] * y, rebind
    yield "default", lambda t, y, a=a: a[0] * t[0] * y, put(a, 0, 8.0)
    yield "array in a dict", lambda t, y: table["a"][0][0] * t[0] * y, put(table["a"][0], 0, 7.0)
    yield "dict", lambda t, y: table["a"][0][0] * t[0] * y, put(table, "a", [np.array([9.0])])
    yield "named tuple", lambda t, y: pair.a[0] * t[0] * y, put(pair.a, 0, 7.0)
    yield "list", lambda t, y: numbers[0] * t[0] * y, put(numbers, 0, 7.0)
    yield "partial", functools.partial(lambda a, t, y: a[0] * t[0] * y, a), put(a, 0, 9.0)
    for name in ("method", "object"):
        m = Model()
        yield f"{name}: an array", m if name == "object" else m.loglik, put(m.weights, 0, 7.0)
        yield (
            f"{name}: another array",
            m if name == "object" else m.loglik,
            functools.partial(setattr, m, "weights", np.ones(3)),
        )
        yield f"{name}: in its dict", m if name == "object" else m.loglik, put(m.options, "power", 2.0)
        yield (
            f"{name}: in a list of its dict",
            m if name == "object" else m.loglik,
            put(m.options["shifts"], 0, 1.5),
        )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name, f, change", [pytest.param(*case, id=case[0]) for case in cases()])
def test_what_changed_is_traced_anew(name, f, change):
    k = kernels.likelihood(f)
    m = kernels.map(lambda t, f=f: f([t], 2.0))

    def agree():
        expected = np.array([sum(f(t, y) for y in Y) for t in THETA.T])
        for _ in range(2):  # the second call is a remembered launch
            np.testing.assert_allclose(k(THETA, Y), expected)
            np.testing.assert_allclose(k.value_and_grad(THETA, Y)[0], expected)
        np.testing.assert_allclose(k.contributions(THETA, Y).sum(axis=0), expected)
        np.testing.assert_allclose(k({"a": THETA[0]}["a"][None], Y), expected)
        np.testing.assert_allclose(m(THETA[0]), [f([t], 2.0) for t in THETA[0]])
        return expected

    before = agree()
    change()
    assert not np.allclose(agree(), before)


def test_globals_and_helpers(monkeypatch):
    k = kernels.likelihood(lambda t, y: helper(t[0]) * y)
    assert np.array_equal(k(THETA, Y), [14.0, 42.0])
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert np.array_equal(k(THETA, Y), [21.0, 63.0])
    monkeypatch.setitem(globals(), "helper", lambda x: x)
    assert np.array_equal(k(THETA, Y), [7.0, 21.0])


def test_recursions_and_trees_of_parameters():
    drift = np.array([0.5])
    k = kernels.recursion(lambda t: drift[0], lambda m, t, y: (m * t["a"], (y - m) * drift[0]))
    one = {"a": np.array([1.0, 2.0])}
    first = k.value_and_grad(one, Y)[0]
    drift[0] = 0.25
    np.testing.assert_allclose(k.value_and_grad(one, Y)[0], [0.25 * (7 - 0.75), 0.25 * (7 - 0.25 * 7)])
    assert not np.allclose(first, k(one, Y))
    np.testing.assert_allclose(k.final(one, Y), [0.25, 2.0])


def test_a_recorded_call_keeps_what_it_was_traced_with():
    a = np.array([2.0])
    k = kernels.likelihood(lambda t, y: a[0] * t[0] ** 2 * y)
    _, pullback = tg.vjp(lambda t, y: k(t, y), THETA, Y)
    a[0] = 100.0
    assert np.array_equal(k(THETA, Y), 100 * np.array([7.0, 63.0]))
    by_theta, by_data = pullback(np.ones(2))
    np.testing.assert_allclose(by_theta, 2 * 2 * 7 * THETA)
    np.testing.assert_allclose(by_data, np.full(3, 2 * (1.0 + 9.0)))
    assert np.array_equal(k(THETA, Y), 100 * np.array([7.0, 63.0]))


def test_traced_once_while_nothing_changes(monkeypatch):
    """Lists that the function itself writes while it is traced are what it left them."""
    seen, count = [0], []
    traced = tracing.Tracer.run
    monkeypatch.setattr(tracing.Tracer, "run", lambda self, *args: count.append(1) or traced(self, *args))
    nothing = np.array([np.nan, -0.0])

    def f(t, y):
        seen[0] += 1
        return t[0] * y + np.where(np.isnan(nothing[0]), 0.0, 1.0)

    k = kernels.likelihood(f)
    for _ in range(5):
        k(THETA, Y)
    assert len(count) == 1 and seen == [2]  # once more, to see that it gives the same


def test_an_array_that_is_written_under_differentiation_is_refused():
    a = np.zeros(1)
    k = kernels.likelihood(lambda t, y: a[0] * t[0] * y)
    m = kernels.map(lambda t: a[0] * t)

    def f(x, kernel=lambda: k(THETA, Y)):
        a[0] = x
        return kernel().sum()

    for kernel in (lambda: k(THETA, Y), lambda: m(THETA[0]), lambda: k.value_and_grad(THETA, Y)[0]):
        for g in (
            tg.grad(lambda x, kernel=kernel: f(x, kernel)),
            lambda x, kernel=kernel: tg.jvp(lambda x: f(x, kernel), (x,), (1.0,)),
        ):
            with pytest.raises(
                DroppedDerivativeError, match="captures an array of shape .1,. that the function under diff"
            ):
                g(2.0)
    assert f(2.0) == 56.0 and f(3.0) == 84.0
    assert (
        tg.grad(lambda x: k(x * THETA, Y).sum())(1.0) == 84.0
    )  # where it is only read there is nothing to lose


def test_attributes_that_the_function_does_not_read_may_change(monkeypatch):
    """Data that the object holds for other purposes are not compared."""

    class Fit(Model):
        def __init__(self):
            super().__init__()
            self.data, self.half, self.calls = np.zeros(10**6), 0.5, 0

        @property
        def factor(self):
            return 2 * self.half

        @functools.cached_property
        def shift(self):
            return self.options["shifts"][0]

        def loglik(self, theta, y):
            return super().loglik(theta, y) * self.factor + self.shift

        def run(self):
            self.calls += 1
            return self.kernel(THETA, self.data)

    fit, count = Fit(), []
    traced = tracing.Tracer.run
    monkeypatch.setattr(tracing.Tracer, "run", lambda self, *args: count.append(1) or traced(self, *args))
    fit.kernel = kernels.likelihood(fit.loglik)
    first = fit.kernel(THETA, Y)
    fit.data[3], fit.calls = 1.0, 7
    assert np.array_equal(fit.kernel(THETA, Y), first) and len(count) == 1
    fit.half = 1.0
    assert np.array_equal(fit.kernel(THETA, Y), 2 * first) and len(count) == 2
    fit.weights[0] = 4.0  # read by the method of the parent class
    assert np.array_equal(fit.kernel(THETA, Y), 4 * first) and len(count) == 3


def test_attributes_read_by_any_name():
    class Table:
        def __init__(self):
            self.x0, self.x1 = 1.0, 2.0

        def loglik(self, theta, y):
            return sum(getattr(self, f"x{n}") for n in range(2)) * theta[0] * y

    table = Table()
    k = kernels.likelihood(table.loglik)
    first = k(THETA, Y)
    table.x1 = 5.0
    assert np.array_equal(k(THETA, Y), 2 * first)


def test_attributes_of_a_namespace():
    tools = types.SimpleNamespace(power=2.0)
    k = kernels.likelihood(lambda t, y: np.abs(t[0]) ** tools.power * y)
    assert np.array_equal(k(THETA, Y), [7.0, 63.0])
    tools.power = 1.0
    assert np.array_equal(k(THETA, Y), [7.0, 21.0])
