"""`tg.loops.source` and `tg.loops.check`."""

import numpy as np
import pytest
from device_kernels import block_norms, late_barrier
from loop_functions import CASES, heat, newton
from numba import njit

import tapegrad as tg
from tapegrad.loops import operation
from tapegrad.loops.program import Accumulate, literal, walk


@pytest.mark.parametrize(
    "name",
    [
        "thomas",
        "early_return",
        "newton",
        *[pytest.param(n, marks=pytest.mark.long) for n in ("heat, odd", "expressions")],
    ],
)
def test_check(name):
    f, args, more = CASES[name]
    assert len(tg.loops.check(f, *args, *more)) == 3


def test_check_of_a_kernel():
    x = np.random.default_rng(0).random(16)
    assert len(tg.loops.check(block_norms, x, np.zeros(1), launch=(2, 8))) == 4


def test_a_wrong_adjoint_is_found(monkeypatch):
    usual = operation.adjoint

    def wrong(p, wrt):
        made = usual(p, wrt)
        s = next(s for s in walk(made.body) if type(s) is Accumulate)
        s.value = literal(0.0, s.value.type)
        return made

    monkeypatch.setattr(operation, "adjoint", wrong)
    f, args, more = CASES["thomas"]
    with pytest.raises(tg.errors.KernelError, match="thomas: reverse and forward derivatives differ by"):
        tg.loops.check(f, *args, *more)


def test_source():
    text = tg.loops.source(newton, 3.0, 1.0)
    assert "while True:" in text
    assert ": x = 0.5 * (x + a / x)" in text
    u = np.ones((4, 4))
    text = tg.loops.source(heat, u, u.copy(), 0.1, 3, derivative="adjoint")
    assert ".append(" in text
    assert ".pop()" in text
    assert "u_bar" in text
    compile(text, "adjoint", "exec")


def test_source_of_what_is_refused():
    @njit
    def sorts(x):
        s = 0.0
        for k in range(3):
            s += np.sort(x)[k]
        return s

    with pytest.raises(tg.errors.KernelError, match=r"sorts, line \d+ of .*: a call of sort"):
        tg.loops.source(sorts, np.ones(3))
    with pytest.raises(tg.errors.KernelError, match="a barrier in a loop or branch"):
        tg.loops.source(late_barrier, np.ones(4), np.ones(4), launch=(1, 4))
    with pytest.raises(tg.errors.ArgumentError, match="was not made by numba.njit"):
        tg.loops.source(np.sin, 1.0)
    with pytest.raises(tg.errors.ArgumentError, match="'adjoint', 'tangent' or None"):
        tg.loops.source(newton, 3.0, 1.0, derivative="hessian")
