"""Of each public function of NumPy's and SciPy's namespaces one thing is said: differentiated, constant, or refused and why; the page
that says it to users is made of that."""

import importlib
import re

import coverage_table
import numpy as np
import pytest
import scipy
import scipy.linalg

import tapegrad as tg
from tapegrad.errors import NoRuleError
from tapegrad.ops.names import NATURE, WHY

TABLE = coverage_table.table()


@pytest.mark.parametrize("space", TABLE)
def test_one_thing_is_said_of_each_function(space):
    assert len(TABLE[space]) > 10
    assert {name: said for name, said in TABLE[space].items() if len(said) != 1} == {}


def test_shares():
    """98 % of NumPy's functions with a derivative; of SciPy's what there is must not become less."""

    def share(*spaces):
        kinds = [kind for space in spaces for said in TABLE[space].values() for kind in said]
        found = kinds.count("differentiated")
        return found / (found + kinds.count("refused"))

    assert share("numpy", "numpy.linalg", "numpy.fft") > 0.98
    assert share("scipy.linalg") == share("scipy.fft") == share("scipy.special") == 1 and share("scipy.stats") > 0.9


def test_the_page_is_of_today():
    """Where the libraries are those that it was made with."""
    text = coverage_table.PAGE.read_text(encoding="utf-8")
    made = re.search(r"NumPy ([\d.]+) and SciPy ([\d.]+)", text).groups()
    assert made != (np.__version__, scipy.__version__) or text == coverage_table.page()
    assert text.count("\n## ") >= 7


@pytest.mark.parametrize("space", [s for s in WHY if WHY[s]])
def test_a_refused_name_says_why(space):
    """By its public name, as users call it."""
    module = importlib.import_module(space)
    for name, why in WHY[space].items():
        f = getattr(module, name, None)
        if f is None or not coverage_table.is_called(f):
            continue
        with pytest.raises(NoRuleError, match=re.escape(why)):
            call, n = coverage_table.face_of(space, name), getattr(f, "nin", 1)
            tg.grad(lambda x, call=call, n=n: call(*[x] * n))(0.5)


def test_what_is_constant_exists():
    """A name that no version of the library has is a slip."""
    for space in NATURE:
        module = importlib.import_module(space)
        assert sum(hasattr(module, name) for name in NATURE[space]) > 0.8 * len(NATURE[space])


def test_a_module_answers_for_its_own_functions_only():
    """scipy.spatial.distance has scipy.linalg's norm among its names, and does not know its rule."""
    tg.scipy.spatial  # noqa: B018 (it is made)
    x = np.array([3.0, 4.0])
    assert np.allclose(tg.grad(lambda x: scipy.linalg.norm(x))(x), x / 5)
