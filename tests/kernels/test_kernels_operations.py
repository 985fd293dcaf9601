"""What ops/ declares of an operation holds in kernels, too: the lines of the table of cases, value and
derivatives up to the third against the array operations."""

import numpy as np
import pytest
import scipy.special as sp
from _cuda_host import needs_compiler, run_on_host
from cases import all_cases

import tapegrad as tg
from tapegrad.kernels import emit_cuda
from tapegrad.kernels.emit import elementary
from tapegrad.kernels.emit.lower import lower_program
from tapegrad.kernels.graph.blocks import BLOCK_OPS
from tapegrad.kernels.graph.nodes import BOOLS, OPERATIONS, STEPS
from tapegrad.kernels.launch.cpu import Launcher
from tapegrad.ops.declare import NUMPY, PRIMITIVES, primitive, rules, same

pytestmark = pytest.mark.one_in(4)  # its cases compile

kernels = tg.kernels


def in_kernels(case):
    """Has the operation of this line, or of a ufunc that is composed one that it is composed of, a form in
    kernels?"""
    ours = NUMPY.get(case.f) if isinstance(case.f, np.ufunc) or case.f is np.sinc else None
    if ours is None:
        return False
    entries = [ours] if hasattr(ours, "prim") else [PRIMITIVES[name] for name in case.covers]
    return any(e.prim.scalar is not None for e in entries) and all(
        [np.asarray(a).dtype.kind == "f" for a in case.inputs]
    )


CASES = [case for case in all_cases() if in_kernels(case)]


def seeded(f, n):
    """The sum of f's derivative of order n along ones, and so on, by turns forward and reverse."""
    for k in range(n):
        if k % 2:
            f = lambda *x, f=f: tg.grad(lambda *x: f(*x).sum())(*x)
        else:
            f = lambda *x, f=f: tg.jvp(f, x, tuple([np.ones_like(a) for a in x]))[1]
    return f


@pytest.mark.one_in(7)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_values_and_derivatives(case):
    x = [a.ravel() for a in np.broadcast_arrays(*case.inputs)]
    k = kernels.map(case.f)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(k(*x), case.f(*x), rtol=1e-13, atol=1e-14)
        for order in range(1, case.order + 1):
            expected = seeded(case.f, order)(*x)
            np.testing.assert_allclose(
                seeded(k, order)(*x),
                expected,
                rtol=1e-11 * 10**order,
                atol=1e-13 * 10**order * abs(expected).max(),
            )


FAR = {
    sp.log_ndtr: [-1e4, -300.0, -13.0, 13.0, 40.0, 300.0], sp.erfcx: [-20.0, 3.0, 30.0, 1e8],
    np.tanh: [-300.0, -12.0, 0.0, 25.0, 300.0],
    sp.expit: [-700.0, -40.0, 0.0, 40.0, 700.0], sp.logit: [1e-300, 1e-9, 0.5, 1 - 1e-9], np.arcsinh: [-1e200,
    -1e9, 0.0, 1e-9, 1e200],
    np.arccosh: [1.0 + 1e-9, 1e9, 1e200], np.arctanh: [-1 + 1e-9, 0.0, 1e-9], np.sinc: [0.0, 1e-9, -0.4, 0.7,
    31.25, 1000.3],
    sp.exprel: [-700.0, -3.0, -1e-9, 0.0, 1e-9, 3.0, 700.0], sp.digamma: [-0.5, 1e-3, 1e6, 1e12],
    sp.gammaln: [-2.25, 1e-3, 1e6],
    sp.wrightomega: [-700.0, -50.5, -49.5, 0.0, 1 - 1e-9, 1 + 1e-9, 1e10, 1e17], np.arctan: [-1e200, 0.0,
    1e9],
}  # fmt: skip


@pytest.mark.parametrize("f", FAR, ids=lambda f: f.__name__)
def test_far_out_and_at_removable_singularities(f):
    x, k = np.array(FAR[f]), kernels.map(f)
    with np.errstate(all="ignore"):
        for order in (0, 1, 2):
            np.testing.assert_allclose(seeded(k, order)(x), seeded(f, order)(x), rtol=2e-12, atol=1e-300)


SINGULAR = {
    np.sqrt: 0.0, np.log: 0.0, np.log1p: -1.0, np.reciprocal: 0.0, np.arcsin: 1.0, np.arccos: -1.0,
    np.arctanh: -1.0, np.arccosh: 1.0,
    sp.logit: 1.0, sp.gammaln: 0.0, sp.digamma: -2.0, sp.gamma: 0.0,
}  # fmt: skip


@pytest.mark.parametrize("f", SINGULAR, ids=lambda f: f.__name__)
def test_what_is_masked_has_no_derivative(f):
    """A cotangent of zero stays zero through an infinite derivative, whether it is a choice or a number of
    the run."""
    x, k = np.array([SINGULAR[f]]), kernels.map(lambda x: np.where(x == SINGULAR[f], 3.0 * x, f(x)))
    assert tg.grad(lambda x: k(x).sum())(x)[0] == 3.0
    k = kernels.map(lambda x, y: f(x) * y)
    assert tg.grad(lambda x: k(x, np.zeros(1)).sum())(x)[0] == 0.0


@pytest.mark.long
def test_powers_of_zero_and_of_negative_numbers():
    """By the rules of the array operation: x^n at 0 is flat for n > 1, and whole powers of negative numbers
    are numbers."""
    x = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0, -2.0, -2.0, -2.0, 1.5, 3.0])
    n = np.array([2.0, 1.0, 0.0, 3.5, 1.5, 3.0, -0.5, 3.0, 2.0, -3.0, -0.7, 0.0])
    k, f = kernels.map(lambda x, n: x**n), lambda x, n: x**n
    np.testing.assert_allclose(k(x, n), f(x, n), rtol=1e-14)
    with np.errstate(all="ignore"):
        for which in (0, 1):
            mine, theirs = (tg.grad(lambda x, n, h=h: h(x, n).sum(), which)(x, n) for h in (k, f))
            np.testing.assert_allclose(mine, theirs, rtol=1e-14)
        for c in (1.7, 2.3, -0.4):
            k = kernels.map(lambda x, c=c: x**c)
            for order in (1, 2):
                mine, theirs = (seeded(h, order)(x[4:7]) for h in (k, lambda x, c=c: x**c))
                np.testing.assert_allclose(mine, theirs, rtol=1e-13)


def test_the_derivative_of_abs_at_nan_is_nan():
    k = kernels.map(lambda x: 2.0 * np.abs(x))
    np.testing.assert_array_equal(
        tg.grad(lambda x: k(x).sum())(np.array([-2.0, -0.0, 0.0, np.nan, 3.0])), [-2.0, 0.0, 0.0, np.nan, 2.0]
    )


def second(f, x, n, by, order):
    """The derivative of df/d(by[0]) in the direction of by[1], in each element, forwards over reverse or
    twice in reverse."""
    first = tg.grad(lambda x, n: f(x, n).sum(), by[0])
    if order == "reverse":
        return tg.grad(lambda x, n: first(x, n).sum(), by[1])(x, n)
    return tg.jvp(first, (x, n), [np.full(x.shape, float(k == by[1])) for k in range(2)])[1]


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("by", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_second_derivatives_of_powers(by, order):
    """In closed form; by the exponent there is none where the base is negative, which a direction that leaves
    it alone does not see."""
    x, n = (
        np.array([-2.0, -1.5, -2.0, -1.0, 2.0, 3.0, 0.5, 1.0]),
        np.array([3.0, 2.0, -2.0, -3.0, 0.0, 0.0, 1.5, 0.0]),
    )
    with np.errstate(invalid="ignore"):
        log = np.log(x)
        expected = {(0, 0): n * (n - 1) * x ** (n - 2), (1, 1): x**n * log**2}.get(
            by, x ** (n - 1) * (1 + n * log)
        )
    power = kernels.map(lambda x, n: x**n)
    np.testing.assert_allclose(second(power, x, n, by, order), expected, rtol=1e-14)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(second(lambda x, n: x**n, x, n, by, order), expected, rtol=1e-14)


def test_logical_functions_of_numbers():
    x, y = np.array([0.0, 0.0, 2.0, -1.0, np.nan]), np.array([0.0, 3.0, 0.0, 1.0, 0.0])
    for f in (np.logical_and, np.logical_or):
        np.testing.assert_array_equal(
            kernels.map(lambda x, y, f=f: np.where(f(x, y), 1.0, 0.0))(x, y), f(x, y)
        )
    np.testing.assert_array_equal(
        kernels.map(lambda x: np.where(np.logical_not(x), 1.0, 0.0))(x), np.logical_not(x)
    )


def test_instructions_are_those_of_the_emitters():
    """Each is declared by one operation, and each declared one can be written."""
    arithmetic = {"add", "sub", "mul", "neg", "rcp", "sqrt", "abs", "floor", "select"}
    declared = {name for name, known in OPERATIONS.items() if known.form is None} - BLOCK_OPS
    assert declared == arithmetic | (BOOLS - {"bool"}) | (elementary.FUNCTIONS.keys() - STEPS)
    for name in declared - BOOLS:
        known = OPERATIONS[name]
        for k in range(known.n):
            known.pull(k), known.partial(k)  # nothing in the rule asks for what symbols do not know


def test_one_declaration_is_enough():
    """A function that neither half has met: its value and the derivative of its derivative."""
    twice = np.frompyfunc(lambda x: x, 1, 1)

    @primitive(twice, scalar=lambda x: np.exp(-x * x) * x)
    def bump(x):
        return np.exp(-x * x) * x

    try:
        rules(bump, lambda g, out, x: g * np.exp(-x * x) * (1.0 - 2.0 * x * x), jvp=same)
        x = np.linspace(-1.0, 2.0, 7)
        k = kernels.map(lambda x: twice(3.0 * x))
        np.testing.assert_allclose(k(x), bump(3.0 * x))
        for order in (1, 2, 3):
            np.testing.assert_allclose(
                seeded(k, order)(x), seeded(lambda x: bump(3.0 * x), order)(x), rtol=1e-12, atol=1e-12
            )
    finally:
        del PRIMITIVES["bump"], NUMPY[twice]


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_long_form_that_is_used_often_is_called(dtype):
    """exprel of each element of a matrix: its derivative is 350 operations long.  Short, right, and the same bits in CUDA C."""
    k = kernels.likelihood(lambda theta, y: (sp.exprel(theta) * y).sum())
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    theta, y = rng.normal(size=(90, 5)).astype(dtype), rng.normal(size=(1,)).astype(dtype)
    gradient = tg.grad(lambda theta: k(theta, y).sum())(theta)
    expected = tg.grad(lambda theta: (sp.exprel(theta) * y).sum())(theta.astype(float))
    np.testing.assert_allclose(gradient, expected, rtol=20 * info.eps)
    v = rng.normal(size=theta.shape).astype(dtype)
    hvp = lambda f, *x: tg.hvp(lambda theta: f(theta).sum(), *x)
    expected = hvp(lambda theta: sp.exprel(theta) * y, theta.astype(float), v.astype(float))
    np.testing.assert_allclose(hvp(lambda theta: k(theta, y), theta, v), expected, rtol=4e3 * info.eps)
    low = lower_program(k._families["value"].derived("VG", 0, (90, 0, False)))
    assert low.instructions < 2000
    source, _, _ = emit_cuda(low, np.dtype(dtype))
    assert "__noinline__ real own_exprel_n_n_1(" in source and len(source) < 300_000
    launcher = Launcher(low, np.dtype(dtype), False)
    ours = [np.empty((r, 5), dtype) for r in launcher.outputs]
    launcher([theta], y, 1, ours, 5, None, None)
    for a, b in zip(ours, run_on_host(low, dtype, [theta], y, 1, 5), strict=True):
        assert np.isfinite(a).all() and np.array_equal(a, b.reshape(a.shape))
