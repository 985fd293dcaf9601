"""Of each public function of NumPy's and SciPy's namespaces one thing is said: differentiated, constant, or
refused and why; the page that says it to users is made of that."""

import datetime
import importlib
import re

import coverage_table
import executed
import numpy as np
import pytest
import scipy
import scipy.linalg

import tapegrad as tg
from tapegrad.errors import NoRuleError
from tapegrad.ops.names import NATURE, WHY

TABLE = coverage_table.table()
EXECUTED = executed.read()
IN_PARTS = 71  # of which the default run executes one, another one each day


# Deprecated in the oldest releases and removed since: refused, as all that has no rule.
REMOVED = {"in1d", "trapz", "clpmn", "lpmn", "lpn", "sph_harm", "kron", "find_repeats"}


@pytest.mark.parametrize("space", TABLE)
def test_one_thing_is_said_of_each_function(space):
    assert len(TABLE[space]) > 10
    known = {name: said for name, said in TABLE[space].items() if said or name not in REMOVED}
    assert {name: said for name, said in known.items() if len(said) != 1} == {}


def test_shares():
    """98 % of NumPy's functions with a derivative; of SciPy's what there is must not become less."""

    def share(*spaces):
        kinds = [kind for space in spaces for said in TABLE[space].values() for kind in said]
        found = kinds.count("differentiated")
        return found / (found + kinds.count("refused"))

    assert share("numpy", "numpy.linalg", "numpy.fft") > 0.98
    assert (
        share("scipy.linalg") == share("scipy.fft") == share("scipy.special") == 1
        and share("scipy.stats") > 0.9
    )


def test_the_page_is_of_today():
    """Where the libraries are those that it was made with."""
    text = coverage_table.PAGE.read_text(encoding="utf-8")
    made = re.search(r"NumPy ([\d.]+) and SciPy ([\d.]+\d)", text).groups()
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


# --- executed ---


def test_every_differentiated_name_is_executed():
    """In both modes and to second order on NumPy, by calls of which none is wrong in either library."""
    assert not executed.made_here() or set(EXECUTED) == set(coverage_table.differentiated())
    for name, entry in EXECUTED.items():
        assert {entry.numpy[mode] for mode in ("reverse", "forward", "second")} == {executed.RIGHT}, name
        assert executed.WRONG not in {*entry.numpy.values(), *(entry.cupy or {}).values()}, name
        assert entry.lines and (not executed.made_here() or set(entry.lines) <= set(executed.lines())), name


def kept(said, now, name):
    """What the file says to be right is right now, and nothing is wrong."""
    for mode, verdict in now.items():
        assert verdict != executed.WRONG and (verdict == executed.RIGHT or said[mode] != executed.RIGHT), (
            name,
            mode,
            verdict,
        )


def today():
    part = datetime.date.today().toordinal() % IN_PARTS
    return [
        (name, entry)
        for n, (name, entry) in enumerate(EXECUTED.items())
        if n % IN_PARTS == part and not entry.slow
    ]


@pytest.mark.filterwarnings("ignore")  # of the libraries' own
@pytest.mark.skipif(
    not executed.made_here(), reason="tests/support/executed.txt is of other versions of the libraries"
)
def test_some_of_today():
    for name, entry in today():
        kept(
            entry.numpy,
            executed.of_name([executed.on_numpy(executed.lines()[line]) for line in entry.lines]),
            name,
        )


@pytest.mark.filterwarnings("ignore")  # of the libraries' own
@pytest.mark.cupy_only
def test_some_of_today_on_cupy(xp):
    for name, entry in today():
        if entry.cupy is not None:
            kept(
                entry.cupy,
                executed.of_name([executed.on_cupy(executed.lines()[line], xp) for line in entry.lines]),
                name,
            )


@pytest.mark.filterwarnings("ignore")  # of the libraries' own
@pytest.mark.long
@pytest.mark.skipif(
    not executed.made_here(), reason="tests/support/executed.txt is of other versions of the libraries"
)
def test_all_as_the_file_says():
    by_name = executed.lines_by_name()
    now, _ = executed.executed({name: by_name[name] for name in coverage_table.differentiated()})
    said = lambda entries: {name: (e.numpy, e.cupy, e.lines) for name, e in entries.items()}
    assert said(now) == said(EXECUTED)


@pytest.mark.cupy_only
def test_a_wrong_derivative_is_found(xp):
    """In each mode, in each library, where a line computes another function than its plain one."""

    def dropped(x):
        return np.sin(x) * tg.value(x)

    def turned(x):
        return np.sin(x) if type(tg.value(x)) is np.ndarray else np.sin(x) * 2 - tg.value(np.sin(x))

    x = np.array([0.3, 1.2])
    right, wrong = executed.Line("sin", lambda x: np.sin(x), (x,)), executed.Line("dropped", dropped, (x,))
    assert (
        set(executed.on_numpy(right).values())
        == set(executed.on_cupy(right, xp).values())
        == {executed.RIGHT}
    )
    said = executed.on_numpy(wrong)
    assert said["forward"].startswith(executed.WRONG) and said["reverse"].startswith(executed.WRONG)
    said = executed.on_cupy(executed.Line("turned", turned, (x,)), xp)
    assert [v.partition(":")[0] for v in said.values()] == [executed.WRONG] * 3


def test_a_line_is_written_in_the_names_of_a_library():
    seen = executed.Names()
    executed.written(lambda x: scipy.linalg.norm(np.abs(x)), seen)(np.ones(2))
    assert ("scipy.linalg", "norm") in seen.seen and {("numpy", "abs"), ("numpy", "absolute")} <= seen.seen
