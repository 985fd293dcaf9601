"""tg.testing.check_grads passes what is right and names what is wrong."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.testing import check_grads

pytestmark = pytest.mark.smoke


def test_trees_and_arguments_without_derivative(xp):
    def f(p, n, x):
        return {"a": p["w"] * x + n, "b": (np.sin(p["c"]), n)}

    check_grads(f, ({"w": xp.asarray([1.0, 2.0]), "c": 0.5, "name": "x"}, 3, xp.asarray([0.3, 0.4])), order=3)


def test_complex(xp):
    check_grads(lambda z: z * z * np.exp(z), xp.asarray([1.0 + 2.0j, 0.5j]))


def test_modes():
    check_grads(np.sin, np.ones(2), modes=("forward",), order=3)
    check_grads(np.sin, np.ones(2), modes=("reverse",), order=3)
    with pytest.raises(tg.errors.ArgumentError, match="modes="):
        check_grads(np.sin, np.ones(2), modes=("backward",))
    with pytest.raises(tg.errors.ArgumentError, match="no argument has float"):
        check_grads(np.sin, np.arange(3))


def wrong(vjp=lambda g, out, x: 2 * g * x, jvp=lambda t, out, x: 2 * t[0] * x):
    return tg.rule(lambda x: x * x, vjp=vjp, jvp=jvp)


def test_each_fault_is_named():
    x = np.array([0.5, 1.5])
    check_grads(wrong(), x, order=3)
    with pytest.raises(AssertionError, match="order 1, forward against differences differ by"):
        check_grads(wrong(jvp=lambda t, out, x: 3 * t[0] * x), x)
    with pytest.raises(AssertionError, match="order 1, reverse against forward by dot product"):
        check_grads(wrong(vjp=lambda g, out, x: 3 * g * x), x)
    with pytest.raises(AssertionError, match="order 2, forward over reverse|order 2, reverse over"):
        check_grads(wrong(vjp=lambda g, out, x: 2 * g * tg.value(x)), x)
    with pytest.raises(AssertionError, match="order 2, forward over forward against differences"):
        check_grads(
            wrong(vjp=lambda g, out, x: 2 * g * tg.value(x), jvp=lambda t, out, x: 2 * t[0] * tg.value(x)), x
        )
    with pytest.raises(AssertionError, match="reverse against differences"):
        check_grads(wrong(vjp=lambda g, out, x: 3 * g * x), x, modes=("reverse",))


def test_a_call_that_is_not_repeatable_is_named():
    count = [0]

    def f(x):
        count[0] += 1
        return x * count[0]

    with pytest.raises(AssertionError, match="second call|plain call"):
        check_grads(f, np.ones(2))


def test_what_only_a_followed_function_can_do():
    """A function that stores its argument in plain arrays: NumPy's names in it mean tapegrad's."""
    buffer = np.zeros(2)

    def f(x):
        state = np.array([x[0], 2.0])
        buffer[:] = state * x
        return np.append(buffer, np.asarray(x[1]))

    check_grads(f, np.array([0.3, 0.7]))
    check_grads(lambda p, x: f(p["a"]) * x, ({"a": np.array([0.3, 0.7])}, 2.0))
    assert type(buffer) is np.ndarray


def test_float32():
    check_grads(lambda x: np.sin(x) * x, np.array([0.3, 0.7], np.float32))
