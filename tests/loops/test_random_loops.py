"""Random functions with loops: loop programs against the complex step of Python, and against the slow
interpreter."""

import warnings

import numba
import numpy as np
import pytest
from random_loops import ComplexNumPy, Random, point

import tapegrad as tg
from tapegrad.loops import operation, saved
from tapegrad.loops.adjoint import adjoint
from tapegrad.loops.machine import code_of
from tapegrad.loops.program import LoopRefused, Scalar
from tapegrad.loops.reference import interpreted


def check(seed, steps=0):
    """(program, arguments), or None where the values grow until complex steps are nan or without digits."""
    made, (a, b, c, k, s, n) = Random(seed, steps), point(seed)
    f, python = made.function(numba.njit), made.function(np=ComplexNumPy)
    one_array = seed % 5 == 0
    r = np.random.default_rng(seed)
    d = [r.standard_normal(5), r.standard_normal(5), r.standard_normal((4, 3)), 0.7]

    def g(a, b, c, s):
        a = a.copy()
        return f(a, a if one_array else b.copy(), c.copy(), k, s, n)

    A, B, C, S = (x + 1e-30j * t for x, t in zip((a, b, c, s), d, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = python(A, A if one_array else B, C, k, np.complex128(S), n)
    if not max(abs(want.real), abs(want.imag / 1e-30)) < (1e9 if steps else 1e60):
        return None
    value, gradient = tg.value_and_grad(g, argnums=(0, 1, 2, 3))(a, b, c, s)
    slope = sum(np.sum(x * t) for x, t in zip(gradient, d, strict=True))
    tangent = tg.jvp(g, (a, b, c, s), tuple(d))[1]
    found = [value, slope, tangent]
    np.testing.assert_allclose(
        found, [want.real, want.imag / 1e-30, want.imag / 1e-30], rtol=1e-9, atol=1e-9, err_msg=made.source
    )
    (programs,) = operation.FUNCTIONS[f.py_func].programs.values()
    if steps and "is not visible" in programs:  # an array made in the steps is used after them: refused
        return None
    assert not isinstance(programs, str), (programs, made.source)
    return programs[0].program, [a, c, k, s, n] if one_array else [a, b, c, k, s, n]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", [0, 1, 3, 5])
def test_random_functions(seed):
    assert check(seed) is not None


@pytest.mark.long
def test_many_random_functions():
    checked = [seed for seed in [2, 4, 6, 7, *range(100, 600)] if check(seed) is not None]
    assert len(checked) > 490


@pytest.mark.long
@pytest.mark.parametrize("kept", [False, True])
def test_many_random_functions_in_steps(kept, monkeypatch):
    """With stores undone wherever they can be, and where a tape keeps states."""
    if kept:
        monkeypatch.setattr(operation, "CHECKPOINTED_BYTES", 0)
    else:
        monkeypatch.setattr(saved, "RESTORING", 0.0)
    checked = [seed for seed in range(1000, 1100) if check(seed, steps=7) is not None]
    assert len(checked) > 80


@pytest.mark.long
@pytest.mark.parametrize("seed", [101, pytest.param(104, marks=pytest.mark.long)])
def test_machine_code_is_the_interpreters(seed):
    """The program, its adjoint, and the adjoint of that, run both ways; the interpreter checks each index."""
    p, args = check(seed)
    r = np.random.default_rng(seed)
    for order in range(3):
        arguments = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
        slow, fast = (
            interpreted(p, [x.copy() if isinstance(x, np.ndarray) else x for x in args]),
            code_of(p)(arguments),
        )
        for x, y in zip(slow, fast, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)
        if order < 2:
            wrt = tuple(k for k, q in enumerate(p.params) if q.type == "f8" and not (order and k % 2))
            p = adjoint(p, wrt)
            args += [r.standard_normal(()) if isinstance(q, Scalar) else None for q in p.params[len(args) :]]
            shapes = {a: x.shape for a, x in zip(p.params, args, strict=True) if isinstance(x, np.ndarray)}
            for k, q in enumerate(p.params):
                if args[k] is None:
                    same = next(x for a, x in shapes.items() if a.name == q.name.removesuffix("_bar"))
                    args[k] = r.standard_normal(same)
                elif isinstance(q, Scalar) and np.ndim(args[k]) == 0 and q.type == "f8":
                    args[k] = float(args[k])


def test_an_index_out_of_bounds_is_found_by_the_interpreter():
    f = numba.njit(
        Random(0)
        .function()
        .__class__(
            compile(
                "def f(x, n):\n s = 0.0\n for k in range(n):\n  s += x[k]\n return s", "", "exec"
            ).co_consts[0],
            {},
        )
    )
    x = np.ones(3)
    tg.grad(lambda x: f(x, 3))(x)
    (program,) = operation.FUNCTIONS[f.py_func].programs.values()
    with pytest.raises(tg.errors.KernelError, match=r"line 4: index \(3,\) is outside of x of shape \(3,\)"):
        interpreted(program[0].program, [x, 4])
    assert issubclass(LoopRefused, tg.errors.KernelError)
