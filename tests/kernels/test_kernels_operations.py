"""What ops/ declares of an operation holds in kernels, too: the lines of tests/cases_*.py, value and derivatives up to the third against
the array operations."""

import numpy as np
import pytest
from cases import all_cases

import tapegrad as tg
from tapegrad.kernels.emit import elementary
from tapegrad.kernels.graph.nodes import BOOLS, OPERATIONS, STEPS
from tapegrad.ops._define import NUMPY, PRIMITIVES, primitive, rules, same

kernels = tg.kernels


def in_kernels(case):
    """Has the operation of this line, or of a ufunc that is composed one that it is composed of, a form in kernels?"""
    ours = NUMPY.get(case.f) if isinstance(case.f, np.ufunc) or case.f is np.sinc else None
    if ours is None:
        return False
    entries = [ours] if hasattr(ours, "prim") else [PRIMITIVES[name] for name in case.covers]
    return any(e.prim.scalar is not None for e in entries) and all([np.asarray(a).dtype.kind == "f" for a in case.inputs])


CASES = [case for case in all_cases() if in_kernels(case)]


def seeded(f, n):
    """The sum of f's derivative of order n along ones, and so on, by turns forward and reverse."""
    for k in range(n):
        if k % 2:
            f = lambda *x, f=f: tg.grad(lambda *x: f(*x).sum())(*x)
        else:
            f = lambda *x, f=f: tg.jvp(f, x, tuple([np.ones_like(a) for a in x]))[1]
    return f


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_values_and_derivatives(case):
    x = [a.ravel() for a in np.broadcast_arrays(*case.inputs)]
    k = kernels.map(case.f)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(k(*x), case.f(*x), rtol=1e-13, atol=1e-14)
        for order in range(1, case.order + 1):
            expected = seeded(case.f, order)(*x)
            np.testing.assert_allclose(seeded(k, order)(*x), expected, rtol=1e-11 * 10**order, atol=1e-13 * 10**order * abs(expected).max())


def test_instructions_are_those_of_the_emitters():
    """Each is declared by one operation, and each declared one can be written."""
    arithmetic = {"add", "sub", "mul", "neg", "rcp", "sqrt", "abs", "floor"}
    declared = {name for name, known in OPERATIONS.items() if known.form is None}
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
            np.testing.assert_allclose(seeded(k, order)(x), seeded(lambda x: bump(3.0 * x), order)(x), rtol=1e-12, atol=1e-12)
    finally:
        del PRIMITIVES["bump"], NUMPY[twice]
