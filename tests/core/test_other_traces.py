"""What a trace that is neither Tape nor Dual is given: entry points, slots and fields of its own, safe rules
where it hides values; and the file of short ways, without which the engine runs."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from frames import calls, frames_of
from layers import trees
from third_trace import Counting, Hiding, value

import tapegrad as tg
from tapegrad._core.forward import Dual
from tapegrad._core.primitive import HOOKS, Trace, bind
from tapegrad._core.reverse import PART, AdaptedRule, primitive_of
from tapegrad._core.variable import View
from tapegrad.ops.declare import PRIMITIVES

FAST = "tapegrad._dispatch.fast" in sys.modules
TESTS = Path(__file__).parent
X, W = np.array([0.3, 0.7, -0.4]), np.array([1.0, -2.0, 0.5])


def program(x):
    """Views, writes, products, elements, several outputs, a constant that a value is written into."""
    a = np.zeros((3, 3), like=x)
    a[0] = x * 2.0
    a[1:, 0] += np.sin(x[:2])
    a[2, 2] = x[0] * x[1]
    b = a.T @ a + np.eye(3) * 2.0
    b[1] *= x
    w, v = np.linalg.eigh(b + b.T)
    return (np.diagonal(b) * x).sum() + (w * w).sum() + np.linalg.solve(b, x)[1] + b.reshape(-1)[4]


def watched(trace, f):
    """f under the trace."""

    def g(x):
        t = trace()
        y = f(t.watch(x))
        t.close()
        return y

    return g


# --- a third trace ---


def test_a_third_trace_sees_each_operation_and_changes_nothing():
    plain = program(tg.Variable(X))
    trace = Counting()
    y = program(trace.watch(X))
    trace.close()
    assert float(y) == float(plain)
    assert trace.counts["eigh_of"] == trace.counts["sin"] == 1
    assert trace.counts["multiply"] == 5 and trace.counts["assign"] >= 3 and trace.counts["read"] >= 4


@pytest.mark.parametrize("place", ["below the tape", "above it", "both"])
def test_a_third_trace_nests_with_derivatives(place):
    f = tg.Const(program if place == "below the tape" else watched(Counting, program))
    below = (lambda g: g) if place == "above it" else lambda g: watched(Counting, g)
    right = tg.grad(program)(X), tg.jvp(program, (X,), (W,))[1], tg.hvp(program, X, W)
    np.testing.assert_array_equal(tg.value(below(tg.grad(f))(X)), right[0])
    np.testing.assert_array_equal(tg.value(below(lambda x: tg.jvp(f, (x,), (W,))[1])(X)), right[1])
    np.testing.assert_allclose(tg.value(below(lambda x: tg.hvp(f, x, W))(X)), right[2], rtol=1e-13)


@pytest.mark.parametrize(
    "f", [lambda x: np.sin(x), lambda x: x * x, lambda x: x * 2.0, lambda x: x.sum(), lambda x: W * x]
)
def test_a_third_trace_gets_a_generated_entry(f):
    """The arguments come lowered: `bind` looks at none of them.  (Through NumPy's protocol there is more on
    the way.)"""
    trace = Counting()
    x = trace.watch(X)
    f(x)
    names = frames_of(lambda: f(x))
    trace.close()
    assert ("bind" in names or "lower" in names) <= (not FAST)
    assert "step" in names


def test_the_generated_entry_calls_less():
    """An operation of two arguments by its entry point, and by `bind`."""
    trace = Counting()
    x, multiply = trace.watch(X), PRIMITIVES["multiply"]
    entry, slow = calls(lambda: multiply(x, x)), calls(lambda: bind(multiply.prim, (x, x), {}))
    trace.close()
    assert entry < slow or not FAST


def test_a_trace_has_fields_of_its_own_and_may_end():
    class Plain(Trace):  # no word of __slots__
        def __init__(self):
            super().__init__()
            self.own = 1

    t = Plain()
    t.close()
    assert t.own == 1 and type(t) is not Plain


def test_slots_are_told_apart_by_the_trace():
    """Slots that are strings are handed on as they are when a handle moves; those of a dual are copied."""
    for trace, watch in ((Counting(), lambda t: t.watch(X)), (Dual(), lambda t: t.watch(X, W.copy()))):
        x = watch(trace) * 1.0
        kept = x * 1.0 if isinstance(trace, Counting) else x._slot
        x._saved = True
        x[0] = 5.0  # x moves
        assert (
            (x._slot == "assign")
            if isinstance(trace, Counting)
            else (x._slot is not kept and kept[0] == W[0])
        )
        trace.close()


def test_the_table_of_states_has_a_row_for_each_field():
    rows = {
        line.split()[0]
        for line in sys.modules["tapegrad._core.variable"].__doc__.splitlines()
        if line.startswith("  _")
    }
    assert rows == {*tg.Variable.__slots__, *View.__slots__}


@pytest.mark.parametrize(
    "order", [lambda f, x: tg.grad(f)(x), lambda f, x: tg.grad(lambda x: tg.grad(f)(x)[0])(x)]
)
def test_a_nan_of_hidden_values_repeats_the_sweep(order):
    """0 times inf is met by the values that the trace holds, not by the ones that it shows."""
    mask = np.array([True, False, True])
    x = np.array([0.5, 0.0, 2.0])
    f = lambda x: np.where(mask, x * np.log(x), 0.0).sum()
    with np.errstate(all="ignore"):
        right = order(f, x)
    trace = Hiding()
    found = value(order(f, trace.watch(x)))
    trace.close()
    assert np.isfinite(right).all()
    np.testing.assert_array_equal(found, right)


# --- records name their primitives ---


def test_each_rule_belongs_to_one_primitive():
    for name, entry in PRIMITIVES.items():
        for rule in entry.prim.vjp or ():
            assert rule.prim is entry.prim, name


def test_each_record_names_its_primitive():
    with tg.Tape() as tape:
        x = tape.watch(X)
        y = (x * 2 + W.astype(np.float32)) @ np.outer(x, x) * np.linalg.qr(np.outer(x, x) + np.eye(3))[0][0]
        z = np.zeros(3, like=x)
        z[1:] = y[:2]
        (z * 1j).imag.sum()
    records = tape._trace.records
    names = [p.name for p in map(primitive_of, records) if p is not None]
    unnamed = [r for r in records if primitive_of(r) is None]
    for name in ("multiply", "add", "matmul", "qr_of", "assign", "read", "imag", "sum"):
        assert name in names or (name == "imag" and "read" in names)
    assert all(r[2] is PART or r == (None,) * 7 for r in unnamed) and len(unnamed) == 3
    assert not FAST or any(type(r[0]) is AdaptedRule for r in records)


# --- the engine without its short ways ---

ELSEWHERE = {
    "_transforms/tape": "has its own tape ended?",
    "implicit/sequential": "will a pullback be asked for?",
    "_capture/builtin": "exec and compile of the user's, followed",
    "_capture/dependencies/walk": "the check of what a program read",
    "testing/diagnostics/profile": "what a tape keeps",
    "loops/universal": "the loop over the elements or cores of what numba.vectorize or guvectorize made",
    "replay/emitted": "a replay's own text",
    "replay/tree_text": "the text that takes arguments apart and puts results together",
    "replay/fusion/compiled_groups": "the text that calls a compiled group",
    "replay/fusion/row_products": "the text that calls compiled rows",
}


def short_ways(name, tree):
    """Lines that ask whether a trace is a tape or a dual, or that run generated text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            asked = [getattr(c, "id", getattr(c, "attr", None)) for c in node.comparators]
            if "Tape" in asked or "Dual" in asked:
                yield node.lineno
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", None)) == "exec"
        ):
            if not name.startswith("kernels/"):  # kernels have texts of their own
                yield node.lineno


@pytest.mark.long  # `.ci/run` runs it
def test_short_ways_stand_in_one_folder():
    places = {name.replace(".", "/"): tree for name, tree in trees().items()}
    found = {place: list(short_ways(place, tree)) for place, tree in places.items()}
    assert sum([len(found.pop(name)) for name in [*found] if name.startswith("_dispatch/fast/")]) > 10
    assert {name for name, lines in found.items() if lines} <= set(ELSEWHERE)


def test_each_hook_is_filled():
    files = {f.__name__: Path(f.__code__.co_filename).parent.name for f in HOOKS}
    assert len(files) == len(HOOKS) > 5
    assert {n for n, file in files.items() if (file == "fast") != FAST} == set()


def run_without(args):
    environment = {**os.environ, "TAPEGRAD_FAST": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", *args]
    return subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True)


@pytest.mark.long
def test_without_short_ways_this_file_passes():
    if FAST:
        done = run_without([str(TESTS / "test_other_traces.py")])
        assert done.returncode == 0, done.stdout[-3000:]


FILES = sorted(
    path.relative_to(TESTS.parent)
    for path in TESTS.parent.rglob("test_*.py")
    if path.name != "test_other_traces.py"
)


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=str)
def test_without_short_ways(file):
    """The whole suite; a file whose tests are all long or for a device leaves with 5."""
    done = run_without([str(TESTS.parent / file)])
    assert done.returncode == 0 or (done.returncode == 5 and "deselected" in done.stdout), done.stdout[-3000:]
