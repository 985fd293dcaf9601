"""`audit`, `profile`: what is planted is found, by name and line, and what is right is left alone."""

import ctypes
import inspect
import struct

import numpy as np
import pytest
from cases import all_cases
from judged_programs import maker
from random_programs import draw, source

import tapegrad as tg
from tapegrad.errors import ArgumentError

pytestmark = pytest.mark.smoke

X = np.array([0.3, 1.1, -0.7])


def here(f):
    lines, first = inspect.getsourcelines(f)
    return f"{inspect.getsourcefile(f)}:{first + next(n for n, text in enumerate(lines) if 'HERE' in text)}"


# --- what is right ---

BUFFER, MATRIX = np.zeros(3), np.arange(9.0).reshape(3, 3) / 9


def filled(x, n):
    for _ in range(n):
        BUFFER[:] = np.tanh(MATRIX @ x)
    return BUFFER.sum() + np.linalg.norm(x)


def test_what_is_right_passes_and_is_told():
    BUFFER[:] = 0.25
    report = tg.audit(filled, X, 3)
    assert report.ok and report.failures == [] and [c.state for c in report.checks] == ["ok"] * 14
    assert dict(report.captured) == {
        "MATRIX (3, 3)": "read, not copied", "BUFFER (3,)": "written: copied, 24 B, handed back",
    }  # fmt: skip
    text = str(report)
    assert "all 14 checks hold" in text and "constant: argument 1 (int)" in text and "tanh(MATRIX @ x" in text
    assert (BUFFER == 0.25).all()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * np.sin(x),
        lambda x: {"a": x**2, "b": (x[0], x[1:])},
        lambda x: np.linalg.inv(np.diag(x) + 0.1).sum(),
        lambda x: np.fft.rfft(x),
        lambda x: tg.jvp(np.sin, (x,), (x,))[1].sum(),
    ],
)
def test_kinds_of_results(f):
    report = tg.audit(f, X)
    assert report.ok, report


def test_libraries_and_precisions(xp):
    scale = xp.asarray([2.0, 3.0, 4.0])
    assert tg.audit(lambda x: xp.sum(xp.exp(x) * scale), xp.asarray(X)).ok
    assert tg.audit(lambda x: xp.sum(xp.exp(x)), xp.asarray(X, "f4")).ok


def test_trees_several_arguments_and_small_numbers():
    assert tg.audit(lambda p, y: ((p["a"] * y - p["b"][0]) ** 2).sum(), {"a": X, "b": (1e-8,)}, 1e7 * X).ok


def audited(seeds):
    """Random programs that write in place, begin with their captured arrays as they were made, and are
    right."""
    wrong, states = [], set()
    for seed in seeds:
        program = draw(seed)
        if program.reset and source(program).exact:
            f = maker(program, np)[0]()[0]
            report = tg.audit(f, np.random.default_rng(seed).uniform(-0.9, 0.9, 5))
            states |= {c.state for c in report.checks}
            wrong += [(seed, report.failures)] if not report.ok else []
    return wrong, states


def test_right_programs_pass():
    with np.errstate(all="ignore"):
        assert audited(range(14)) == ([], {"ok"})


@pytest.mark.long
def test_many_right_programs_pass():
    with np.errstate(all="ignore"):
        wrong, states = audited(range(14, 800))
    assert wrong == [] and states <= {"ok", "refused", "unsure"}


@pytest.mark.long
def test_all_operations_pass():
    wrong = []
    with np.errstate(all="ignore"):
        for case in all_cases():
            report = tg.audit(case.f, *case.inputs) if case.order else None
            wrong += [(case.name, report.failures)] if report is not None and not report.ok else []
    assert wrong == []


def test_a_mode_that_refuses_is_no_failure():
    report = tg.audit(lambda x: (x * x).sum() if x[0] == 0.3 else (x * x).sum() * 1.0, X)
    assert report.ok and [c.name for c in report.checks if c.state == "refused"] == ["vmap against calls"]


# --- what is planted ---


def test_a_pointer():
    buffer = np.zeros(3)
    address = buffer.ctypes.data

    def f(x):
        buffer[:] = x * x
        return (x * np.frombuffer((ctypes.c_double * 3).from_address(address))).sum()

    report = tg.audit(f, X)
    assert (
        "captured arrays by other ways" in report.failures and "value against plain call" in report.failures
    )
    assert not report.ok and (buffer == 0).all()


def test_a_pointer_whose_value_is_right_by_chance():
    """The second call finds what the first one left: no value is wrong, and the derivative is lost."""
    buffer = X * X
    address = buffer.ctypes.data

    def f(x):
        buffer[:] = x * x
        return (x * np.frombuffer((ctypes.c_double * 3).from_address(address))).sum()

    report = tg.audit(f, X)
    assert (
        "captured arrays by other ways" in report.failures
        or "gradient against differences" in report.failures
    )
    assert "value against plain call" not in report.failures


def test_a_route_that_the_engine_refuses():
    buffer = np.zeros(3)
    raw = memoryview(buffer).cast("B")

    def f(x):
        buffer[:] = np.exp(x)
        return (x * [struct.unpack_from("d", raw, 8 * k)[0] for k in range(3)]).sum()

    report = tg.audit(f, X)
    assert report.failures == ["reverse mode"] and "RouteError" in str(report) and (buffer == 0).all()


def doubled(x):
    return x * x


def test_a_wrong_rule_is_named_with_its_line():
    wrong = tg.rule(doubled, vjp=lambda g, out, x: 3 * g * x)

    def f(x):
        y = np.sin(x)
        return wrong(y).sum()  # HERE

    report = tg.audit(f, X)
    assert set(report.failures) >= {"gradient against differences", "jvp against differences"}
    assert len(report.culprits) == 1 and report.culprits[0].startswith(here(f) + ": doubled: ")


def test_a_rule_wrong_in_one_mode():
    wrong = tg.rule(doubled, vjp=lambda g, out, x: 2 * g * x, jvp=lambda t, out, x: t[0] * x)
    report = tg.audit(lambda x: wrong(x).sum(), X)
    assert "gradient against jvp" in report.failures and "gradient against differences" not in report.failures


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x * tg.value(x)).sum(),
        lambda x: (x * np.asarray([float(tg.value(v)) for v in x])).sum(),
        lambda x: np.exp(tg.Const(np.sin)(tg.value(x))).sum() + x.sum(),
    ],
)
def test_a_lost_derivative(f):
    report = tg.audit(f, X)
    assert (
        "gradient against differences" in report.failures
        and report.culprits == []
        and "is lost between them" in str(report)
    )


def test_a_function_that_changes():
    counter = iter(range(10**6))
    assert "repeated call" in tg.audit(lambda x: x.sum() * next(counter), X).failures


def test_what_cannot_be_differentiated_fails():
    report = tg.audit(lambda x: np.busday_count("2020-01", "2021-01") * float.fromhex(x[0].hex()), X)
    assert report.failures == ["reverse mode"] and "DroppedDerivativeError" in str(report)


def test_a_nan():
    report = tg.audit(lambda x: np.log(x).sum(), X)
    assert "finite" in report.failures and "detect_anomalies" in str(report)


def test_a_corner_is_unsure():
    report = tg.audit(lambda x: np.abs(x - 0.3000001).sum(), X)
    assert report.ok and "unsure" in [c.state for c in report.checks]


def test_bad_input():
    for call in (
        lambda: tg.audit(3, X),
        lambda: tg.audit(doubled, 3),
        lambda: tg.profile("f", X),
        lambda: tg.profile(doubled),
    ):
        with pytest.raises(ArgumentError):
            call()


# --- profile ---


def test_profile_counts_by_line():
    BUFFER[:] = 0.5

    def f(x):
        y = np.sin(x) * 2
        for _ in range(4):
            y = np.exp(-y)  # HERE
        BUFFER[:] = y[:3]
        return BUFFER.sum()

    x = np.linspace(0, 1, 1000)
    report = tg.profile(f, x)
    lines = {text: line for line in report.lines if (text := line.text)}
    hot = lines["y = np.exp(-y)  # HERE"]
    assert hot.operations == 8 and hot.kept == 4 * 8000 and hot.forward > 0 < hot.backward
    assert lines["y = np.sin(x) * 2"].kept == 8000  # of x; the factor is a number
    assert report.kept == sum(line.kept for line in report.lines) and report.total > 0 < report.plain
    assert here(f) in str(report) and "32000 B" not in str(report) and "31.2 kB" in str(report)
    assert (BUFFER == 0.5).all()


def test_profile_takes_trees_arrays_and_devices(xp):
    report = tg.profile(lambda p: xp.tanh(p["w"]) * p["b"], {"w": xp.ones(4), "b": 2.0})
    assert report.operations == 2


def test_check_grads_follows_captured_buffers():
    def f(x):
        BUFFER[:] = np.tanh(MATRIX @ x)
        return (BUFFER * x).sum()

    tg.testing.check_grads(f, X)


def test_a_captured_array_that_is_left_otherwise():
    """f asks what it is given, and leaves another thing under a transform."""
    seen = np.full(2, 0.5)

    def f(x):
        seen[0] = 1.0 if isinstance(x, tg.Variable) else 2.0
        return (x * x).sum()

    assert tg.audit(f, X).failures == ["captured arrays afterwards"] and (seen == 0.5).all()


def test_a_write_of_what_was_there_is_a_write():
    kept = np.zeros(3)

    def f(x):
        kept[:] = x
        return (kept**2).sum()

    f(X)
    assert [what for name, what in tg.audit(f, X).captured if name.startswith("kept")] == [
        "written: copied, 24 B, handed back"
    ]


# --- what f alters is left as it was ---

HOLDERS = {  # how f counts: what it is made with, what it does, what tells it
    "a name": ("total = 0", "global total\n    total += 1", "total"),
    "a name that it makes": ("", "globals().setdefault('made', 0)\n    global made\n    made += 1",
    "globals().get('made')"),
    "an entry of a dict": ("count = {'n': 0}", "count['n'] += 1", "dict(count)"),
    "a new entry": ("count = {}", "count[len(count)] = 1", "dict(count)"),
    "a list": ("log = []", "log.append(len(log))", "list(log)"),
    "a set": ("met = {0}", "met.add(len(met))", "set(met)"),
    "a deque": ("last = collections.deque([1, 2])", "last.rotate(); last.append(3)", "list(last)"),
    "an attribute": ("class C: pass\nbox = C()\nbox.n = 0", "box.n += 1", "box.n"),
    "a new attribute": ("class C: pass\nbox = C()", "box.m = 1", "vars(box)"),
    "a slot": ("class C:\n    __slots__ = ('n',)\nbox = C()\nbox.n = 0", "box.n += 1", "box.n"),
    "deep inside": ("class C: pass\nbox = C()\nbox.parts = {'a': [[0]]}", "box.parts['a'][0][0] += 1",
    "box.parts['a'][0]"),
    "a cell": ("def outer():\n    n = 0\n    def tick():\n        nonlocal n\n        n += 1\n    return "
    "tick, lambda: n\n"
               "tick, told = outer()", "tick()", "told()"),
    "integers": ("seen = np.zeros(2, int)", "seen[1] += 1", "seen.tolist()"),
    "a buffer": ("room = np.zeros(3)", "room[:] = x", "room.tolist()"),
    "a generator": ("rng = np.random.default_rng(1)", "rng.random()", "str(rng.bit_generator.state)"),
    "a generator of Python's": ("rng = random.Random(1)", "rng.random()", "str(rng.getstate())"),
}  # fmt: skip
HEAD = "import collections, random\nimport numpy as np\n"


@pytest.mark.parametrize("report", [tg.audit, tg.profile, tg.graph])
def test_what_f_alters_is_left_as_it_was(report):
    for name, (setup, step, told) in HOLDERS.items():
        space = {"__name__": "users_own"}
        exec(f"{HEAD}{setup}\ndef f(x):\n    {step}\n    return (x * x).sum()\n", space)
        space["f"](X)
        before = repr(eval(told, space))
        report(space["f"], X)
        assert repr(eval(told, space)) == before, name
        space["f"](X)
        assert name in ("a new attribute", "a buffer") or repr(eval(told, space)) != before, name
