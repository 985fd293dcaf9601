"""Every line of the table of operations, recorded at one point and replayed at others, in value, gradient,
tangent and second order."""

import numpy as np
import pytest
import scipy.linalg
from cases import all_cases, all_lines
from looped import same

import tapegrad as tg
from tapegrad._core.trees import leaves


def weigh(y):
    y = y * (0.3 + 0.1 * np.cos(np.arange(y.size)).reshape(y.shape))
    return (y * y.conj()).real.sum() if y.dtype.kind == "c" else y.sum()


def forms_of(f, order, v):
    """(name, plain function, prepared function) of the arguments."""
    n = tuple(range(len(v)))

    def scalar(*args):
        return sum([weigh(y) for y in leaves(f(*args)) if y.dtype.kind in "fc"], 0.0 * abs(args[0]).sum())

    def push(*args):
        return tg.jvp(f, args, v)

    def second(*args):
        return tg.jvp(tg.grad(scalar, n), args, v)[1]

    yield "value", f, lambda args: tg.prepare(f, *args)
    if order:
        yield "grad", tg.grad(scalar, n), lambda args: tg.prepare(tg.grad(scalar, n), *args)
        yield "jvp", push, lambda args: tg.prepare(push, *args)
    if order > 1:
        yield "second", second, lambda args: tg.prepare(second, *args)


def near(x, k):
    return (x * (1 + 1e-4 * k * np.cos(np.arange(x.size)).reshape(x.shape))).astype(x.dtype)


def outcome(case):
    of_floats, first = case.of_floats()
    v = tuple([np.linspace(0.3, 1, x.size).reshape(x.shape).astype(x.dtype) for x in first])
    for form, plain, made in forms_of(of_floats, case.order, v):
        p = made(first)
        for k in (0, 1, 2, 3):
            args = tuple([near(x, k) for x in first])
            with np.errstate(all="ignore"):
                want, got = plain(*args), p(*args)
            want, got = [[np.asarray(y) for y in leaves(ys) if y is not None] for ys in (want, got)]
            assert same(got, want, 1e-10), f"{form}, point {k}: {got} instead of {want}"
        assert not any([kept.failures for kept in p.forms["value"].programs]), f"{form}: a replay raised"
        yield form, p.forms["value"].eager


def judged(cases):
    for case in cases:
        for form, why in outcome(case):
            assert why is None, f"{case}, {form} was run plainly: {why}"


@pytest.mark.filterwarnings("ignore")
def test_some_operations():
    judged(all_cases()[::20])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(20))
def test_all_operations(first):
    judged(all_cases()[first::20])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(10))
def test_all_that_is_declared_on_first_use(first):
    judged(all_lines()[first::10])


@pytest.mark.parametrize("sort", ["iuc", "lhp"])
def test_ordered_schur_form_is_an_operation(sort):
    """Its factors are computed anew at each replay, of which no condition but `on_change` tells."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 5)), np.eye(5) + 0.1 * rng.normal(size=(5, 5))

    def f(a):
        s, t, alpha, *_, z = scipy.linalg.ordqz(a, b, sort=sort, output="complex")
        return abs(alpha[0]) + abs(s[0, 1] / t[1, 1]) + abs(z[0, 0]) ** 2

    p = tg.prepare(f, a, on_change="raise")
    for k in range(4):
        x, v = a + 0.01 * k, rng.normal(size=(5, 5))
        slope = (f(x + 1e-5 * v) - f(x - 1e-5 * v)) / 2e-5
        assert np.isclose(np.sum(p.grad(x) * v), slope, rtol=1e-6)
