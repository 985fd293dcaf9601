"""What the adjoint does for speed: sums into neighbours, stores that are undone, states that a tape keeps,
loops with long bodies.

The references are the complex step of the Python code, and its product with the gradient."""

import numba
import numpy as np
import pytest

import tapegrad as tg
from tapegrad.loops import operation, saved
from tapegrad.loops.program import DoWhile, walk


def made(text):
    space = {"np": np}
    exec(compile(text, "<passes>", "exec"), space)
    return space["f"]


def check(python, *args):
    """Compare the gradient by the first argument, and a product with the Hessian, with the complex step."""
    f, (x, *more), r = numba.njit(python), args, np.random.default_rng(0)
    g = tg.grad(lambda x: f(x.copy(), *more))
    d = r.standard_normal(x.shape)
    want = python(x + 1e-30j * d, *more).imag / 1e-30
    np.testing.assert_allclose(np.sum(g(x) * d), want, rtol=1e-10)
    h = 1e-3
    slopes = [python(x + k * h * d + 1e-30j * d, *more).imag for k in (1, -1, 2, -2)]
    curve = (8 * (slopes[0] - slopes[1]) - (slopes[2] - slopes[3])) / (12 * h * 1e-30)
    product = tg.jvp(g, (x,), (d,))[1]
    np.testing.assert_allclose(np.sum(product * d), curve, rtol=1e-6, atol=1e-6)
    ((program, _),) = operation.FUNCTIONS[f.py_func].programs.values()
    return program.program


PLACES = [
    "x[i, j - 1]; x[i, j]; x[i, j + 1]; x[i - 1, j]; x[i + 1, j]",
    "x[i, j]; x[i, j + 4]; x[i, j + 5]",
    "x[j, i]; x[j + 1, i]",
    "x[j, j]; x[j, j + 1]; x[j + 1, j + 1]",
    "x[i, 9 - j]; x[i, 8 - j]; x[i, 7 - j]; x[i, 9 - j]",
    "x[i, 2 * j]; x[i, 2 * j + 1]; x[i, 2 * j + 2]",
    "x[i, 0]; x[i, 1]; x[i, 2]",
    "x[j, 9 - j]; x[j, 8 - j]",
    "x[i, j]; x[i, 9 - j]; x[i, j + 1]; x[i, 8 - j]",
    "x[k[j], j]; x[k[j], j + 1]",
    "x[i, k[j]]; x[i, k[j] + 1]",
    "x[i, j]; x[i + 0, j + 0]; x[i, j + i]",
]


@pytest.mark.one_in(60)
@pytest.mark.parametrize("bounds", ["1, n", "0, n - n", "n - 1, 0, -1", "1, n, 2"])
@pytest.mark.parametrize("places", PLACES)
def test_sums_into_neighbours(places, bounds):
    terms = " + ".join(f"np.sin({0.3 + 0.1 * k} * {p})" for k, p in enumerate(places.split("; ")))
    text = f"""
def f(x, k, n):
    s = 0.0 * x[0, 0]
    for i in range(1, 4):
        for j in range({bounds}):
            s += ({terms}) * ({places.split("; ")[-1]})
    return s
"""
    x = 0.5 * np.random.default_rng(1).standard_normal((12, 14))
    check(made(text), x, np.array([3, 1, 1, 0, 2, 6]), 5)


STEPS = {
    "swapped": """
def f(u, steps):
    new = u.copy()
    for _ in range(steps):
        for i in range(1, u.shape[0] - 1):
            new[i] = u[i] + 0.1 * u[i] * (u[i + 1] - 2.0 * u[i] + u[i - 1])
        u, new = new, u
    return np.sum(u * u)
""",
    "in place": """
def f(u, steps):
    for _ in range(steps):
        for i in range(1, u.shape[0] - 1):
            u[i] = 0.5 * u[i] * u[i] + 0.1 * u[i - 1] * u[i + 1] - 0.2 * u[i + 1] * u[i]
    return np.sum(u * u)
""",
    "twice in one body": """
def f(u, steps):
    for t in range(steps):
        for i in range(1, u.shape[0] - 1):
            a = u[i] * u[i - 1]
            u[i] = a * u[i + 1] + 0.3
            u[i - 1] = u[i] * a * u[i - 1] + 0.1
    return np.sum(u * u)
""",
    "around an inner loop": """
def f(u, steps):
    for t in range(steps):
        u[0] = u[0] * u[1] + 0.2
        for i in range(1, u.shape[0]):
            u[i] = u[i] * u[0] * 0.5 + 0.1 * u[i] * u[i]
        u[1] = u[0] * u[2] * u[3]
    return np.sum(u * u)
""",
    "in a branch": """
def f(u, steps):
    for t in range(steps):
        for i in range(1, u.shape[0] - 1):
            if i % 2 == t % 2:
                u[i] = u[i] * u[i] * 0.7 - 0.2 * u[i - 1] * u[i + 1] * u[i]
            else:
                u[i - 1] = u[i] * u[i + 1] * u[i - 1] - u[i] * 0.3
    return np.sum(u * u)
""",
    "while": """
def f(u, steps):
    for t in range(steps):
        i = 1
        while i < u.shape[0] - 1:
            u[i] = u[i] * u[i] * 0.7 - 0.2 * u[i - 1] * u[i + 1] * u[i]
            i += 1 + t % 2
    return np.sum(u * u)
""",
}


@pytest.mark.long
@pytest.mark.one_in(12)
@pytest.mark.parametrize("undo", ["less", "all"])
@pytest.mark.parametrize("name", STEPS)
def test_stores_that_are_undone(name, undo, monkeypatch):
    """Where that saves less, and wherever it can be done."""
    if undo == "all":
        monkeypatch.setattr(saved, "RESTORING", 0.0)
    program = check(made(STEPS[name]), 0.3 + 0.4 * np.random.default_rng(1).random(9), 7)
    plan = saved.SavedValues(program, [program.params[0]])
    assert plan.segmented
    if undo == "all" or name == "swapped":
        assert plan.stores.arrays


@pytest.mark.long
@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", STEPS)
def test_states_that_a_tape_keeps(name, monkeypatch):
    """The tape's forward sweep keeps them, so that the backward sweep begins there."""
    resumed = []
    pulled = operation.LoopOperation.pulled
    noted = lambda *args: (resumed.append(len(args[-1]) > 0), pulled(*args))[1]
    monkeypatch.setattr(operation, "CHECKPOINTED_BYTES", 0)
    monkeypatch.setattr(operation.LoopOperation, "pulled", noted)
    x = 0.3 + 0.4 * np.random.default_rng(1).random(9)
    check(made(STEPS[name]), x, 7)
    assert any(resumed)
    f = numba.njit(made(STEPS[name].replace("return np.sum(u * u)", "return u")))
    run = lambda x: 1.0 * f(x.copy(), 11)
    _, pullback = tg.vjp(run, x)
    jacobian = tg.jacobian(run)(x)
    want = np.stack([tg.jvp(run, (x,), (e,))[1] for e in np.eye(9)], axis=1)
    np.testing.assert_allclose(jacobian, want, rtol=1e-12, atol=1e-14)
    for e in np.eye(9)[2:4]:  # the states are read again
        np.testing.assert_allclose(pullback(e), e @ want, rtol=1e-12, atol=1e-14)


@pytest.mark.long
def test_a_loop_with_a_long_body_is_counted():
    """Its jumps need a longer bytecode."""
    lines = "\n".join(f"            s += np.sin(x[i] * {0.1 * k}) * x[i - 1]" for k in range(40))
    python = made(f"""
def f(x, n):
    s = 0.0 * x[0]
    for t in range(n):
        for i in range(1, x.shape[0]):
{lines}
    return s
""")
    program = check(python, np.linspace(-1.0, 1.5, 6), 2)
    assert not [s for s in walk(program.body) if isinstance(s, DoWhile)]
