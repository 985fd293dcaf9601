"""Operations whose result nobody reads: a replay does them where they may raise, or warn a function that
listens."""

import itertools
import warnings

import numpy as np
import pytest

import tapegrad as tg

X = np.array([0.5, 0.25])
POINTS = [X, 1.1 * X, np.array([-1.5, 0.25]), X, np.array([0.0, 2.0]), np.array([1e200, -1.0]), 0.9 * X]
FORMS = {
    "value": (lambda p, x: p.value(x), lambda f, x: f(x)),
    "grad": (lambda p, x: p.grad(x), lambda f, x: tg.grad(f)(x)),
    "jvp": (lambda p, x: p.jvp(x, X), lambda f, x: tg.jvp(f, (x,), (X,))),
    "hvp": (lambda p, x: p.hvp(x, X), lambda f, x: tg.hvp(f, x, X)),
    "at": (lambda p, x: p.at(x).hvp(X), lambda f, x: tg.hvp(f, x, X)),
}


def symmetric(x):
    a = np.zeros((2, 2))
    a[0, 0] = a[1, 1] = 1.0
    a[0, 1] = a[1, 0] = x[0]
    return a


def singular(x):
    return np.stack([x, 2.0 * x]) + np.eye(2) * (x[0] > 0)


RAISE = {
    "cholesky": lambda x: np.linalg.cholesky(symmetric(x)),
    "inv": lambda x: np.linalg.inv(singular(x)),
    "solve": lambda x: np.linalg.solve(singular(x), x),
    "index": lambda x: x[np.argsort(x) + 2 * (x < 0)],
    "take": lambda x: np.take(x, np.array([0, 1]) - 3 * (x < 0)),
    "along": lambda x: np.take_along_axis(x, np.array([0, 1]) + 2 * (x < 0), 0).sum(),
}
WARN = {
    "log": np.log, "sqrt": lambda x: np.sqrt(x).sum(), "divide": lambda x: 1.0 / x,
    "power": lambda x: (x**2.5).mean(),
    "square": lambda x: (x * x).sum(), "exp": lambda x: np.exp(np.abs(x) * 500.0)[0] * x,
    "arccos": lambda x: np.cos(np.arccos(x)), "one number": lambda x: x[1] / x[0],
    "max": lambda x: np.log(x.min()) * x.max(),
}  # fmt: skip


def caught(does, x):
    """What a function may notice of an operation that raises."""
    try:
        does(x)
    except (np.linalg.LinAlgError, IndexError):
        return True
    return False


def raised(does, x):
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            does(x)
    except FloatingPointError:
        return True
    return False


def called(does, x):
    heard = []
    with np.errstate(divide="call", over="call", invalid="call", call=lambda kind, flag: heard.append(kind)):
        does(x)
    return bool(heard)


def an_error(does, x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            does(x)
        except RuntimeWarning:
            return True
    return False


def recorded(does, x):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        does(x)
    return bool(heard)


CASES = [*[(name, caught) for name in RAISE], *itertools.product(WARN, (raised, called, an_error, recorded))]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("name, noticed", CASES, ids=lambda v: getattr(v, "__name__", v))
def test_what_is_noticed_decides(name, noticed, compile):
    does = (RAISE if noticed is caught else WARN)[name]

    def f(x):
        return np.sin(x).sum() if noticed(does, x) else np.cos(x).sum()

    assert len({noticed(does, x) for x in POINTS}) == 2
    for form, (replayed, plainly) in FORMS.items():
        p = tg.prepare(f, X, compile=compile)
        for x in POINTS:
            got, want = replayed(p, x), plainly(f, x)
            assert np.allclose(got, want, rtol=1e-12, atol=0), (form, x, got, want)


@pytest.mark.parametrize("form", FORMS)
def test_warnings_that_are_errors_everywhere(form):
    """A function that catches nothing gives what it gives; one that does is recorded as it hears them."""

    def catching(x):
        try:
            np.log(x)
        except RuntimeWarning:
            return (x**3).sum()
        return (x**2).sum()

    replayed, plainly = FORMS[form]
    for first in ("error", "ignore"):
        p = tg.prepare(catching, X)
        for kind, x in itertools.product((first, "error", "ignore"), (X, -X, X)):
            with warnings.catch_warnings():
                warnings.simplefilter(kind)
                got, want = replayed(p, x), plainly(catching, x)
            assert np.allclose(got, want, rtol=1e-12, atol=0), (kind, x)


def test_what_may_not_raise_and_is_not_read_is_left_out():
    p = tg.prepare(lambda x: (np.sqrt(x[:, None] * x + 2.0) @ np.log(x)).sum() + x.max(), X)
    for _ in range(3):
        p.grad(X)
    kept = p.forms["grad"].programs[0].program
    assert not kept.asked and len(kept.code) < kept.recorded - 3


def flags_in_a_loop(x):
    path = np.zeros((30, 3))
    path[0] = x
    try:
        with np.errstate(all="raise"):
            for t in range(29):
                path[t + 1] = path[t] * 0.9 + 0.01
                np.sqrt(path[t])
                np.log(path[t] + 0.5)
    except FloatingPointError:
        return (x**4).sum() + 1.0
    return (path**2).sum()


def factors_in_a_loop(x):
    y = x
    for _ in range(40):
        y = np.tanh(y) * 1.1
        try:
            np.linalg.cholesky(np.eye(3) * 0.7 + np.diag(y))
        except np.linalg.LinAlgError:
            return (x**4).sum()
    return (y**2).sum()


def flags_of_large_arrays(x):
    line = np.linspace(0.0, 1.0, 5000) * x[0] + x[1]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        np.log(line).sum()
        np.sqrt(line + 0.1)
    return (line**3).sum() if heard else (line**2).sum()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize(
    "f", [flags_in_a_loop, factors_in_a_loop, flags_of_large_arrays], ids=lambda f: f.__name__
)
def test_in_loops_and_groups(f, compile):
    points = [
        np.array(x)
        for x in (
            [0.5, 0.3, 0.2],
            [0.6, 0.3, 0.2],
            [0.5, 0.2, 0.1],
            [-1.5, 0.3, 0.2],
            [0.4, 0.3, 0.9],
            [0.5, -0.2, -3.3],
        )
    ]
    p = tg.prepare(f, points[0], compile=compile)
    for x in (*points, *points):
        got, want = p.value_and_grad(x), tg.value_and_grad(f)(x)
        assert np.allclose(got[0], want[0], rtol=1e-12) and np.allclose(got[1], want[1], rtol=1e-11), x
        assert np.allclose(p.grad(x), want[1], rtol=1e-11) and np.allclose(p.value(x), want[0], rtol=1e-12), x
