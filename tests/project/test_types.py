"""Types: the list of what a Variable has is that of the class."""

import ast
import re
import tomllib
from pathlib import Path

import tapegrad as tg
from tapegrad._core.variable import FLOAT, ArrayVariable

# Of Python's object model and foreign libraries, or refused with a text of its own (tests of errors).
APART = frozenset(
    "__array_interface__ __array_priority__ __cupy_override_elementwise_kernel__ "
    "__cupy_override_reduction_kernel__ __dlpack__ __dlpack_device__ __module__ __slots__ argpartition as_integer_ratio byteswap choose "
    "ctypes data dump dumps get getfield hex is_integer partition ptp put resize setfield setflags "
    "to_device tofile".split()
)


def test_what_type_checkers_are_told_of_a_variable():
    tree = ast.parse((Path(tg.__file__).parent / "_core/attached.pyi").read_text())
    (told,) = [
        {m.name for m in c.body if isinstance(m, ast.FunctionDef)}
        for c in tree.body
        if isinstance(c, ast.ClassDef)
    ]
    there = {
        n
        for n in {*dir(ArrayVariable), *dir(FLOAT)}
        if not n.startswith("_") or (n.startswith("__") and n not in dir(object))
    }
    assert told <= set(dir(ArrayVariable)) | set(dir(FLOAT))
    # of Python 3.13; one that comes when it is asked for; of NumPy before 2.3
    made = {"__firstlineno__", "__static_attributes__", "__annotations__", "tostring"}
    assert there - told - made == APART


ROOT = Path(tg.__file__).parents[1]


def test_the_checker_leaves_no_module_out():
    """`mypy` reads every module of the package."""
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert not [o for o in (mypy, *mypy["overrides"]) if o.get("ignore_errors") or o.get("exclude")]
    assert "tapegrad" in mypy["files"]


def test_exceptions_are_few_and_named():
    text = "".join(p.read_text(encoding="utf-8") for p in ROOT.glob("tapegrad/**/*.py"))
    assert len(re.findall("type: ignore", text)) == len(re.findall(r"type: ignore\[[a-z, -]+\]", text)) < 60
