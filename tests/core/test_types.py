"""Types: the list of what a Variable has is that of the class, and programs with types run."""

import ast
from pathlib import Path

import numpy as np
from typed_programs import Rod, banana, by_hand, fit_level, fit_rod, newton, random_walk, slopes

import tapegrad as tg

# Of Python's object model and foreign libraries, or refused with a text of its own (tests of errors).
APART = frozenset(
    "__array_priority__ __cupy_override_elementwise_kernel__ __cupy_override_reduction_kernel__ __dlpack__ __dlpack_device__ __module__ "
    "__slots__ argpartition as_integer_ratio byteswap choose ctypes data dump dumps get getfield hex is_integer partition ptp put resize "
    "setfield setflags to_device tofile".split()
)


def test_what_type_checkers_are_told_of_a_variable():
    tree = ast.parse((Path(tg.__file__).parent / "_attached.pyi").read_text())
    (told,) = [{m.name for m in c.body if isinstance(m, ast.FunctionDef)} for c in tree.body if isinstance(c, ast.ClassDef)]
    there = {n for n in dir(tg.Variable) if not n.startswith("_") or (n.startswith("__") and n not in dir(object))}
    assert told <= set(dir(tg.Variable))
    assert there - told == APART


def test_typed_programs_run():
    params, forecast = fit_level(random_walk(200))
    assert params.keys() == {"level", "noise"} and forecast.shape == (3,)
    np.testing.assert_allclose(fit_rod(Rod(20, np.zeros(12)).run(np.array([0.2])).copy()), [0.2], rtol=1e-4)
    np.testing.assert_allclose(newton(np.array([-1.2, 1.0, 0.5])), np.ones(3), atol=1e-8)
    np.testing.assert_allclose(slopes(np.ones((4, 3))), np.zeros((4, 3)), atol=1e-12)
    np.testing.assert_array_equal(by_hand(np.array([1.0, 2.0])), [3.0, 4.0])
    assert banana(np.ones(3)) == 0.0
