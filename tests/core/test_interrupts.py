"""An interrupt, or the error of a time limit, may strike after any call or jump of tapegrad.  It comes out as
it is, and afterwards everything is as before: nothing is open, NumPy's settings, the collector and the user's
objects are as they were or as the function left them, and the next call gives the right numbers.

Three searches: an exception after each of these instructions (by default a sample that differs from day to
day), real signals at random times, and signals in the first calls of a process."""

import contextlib
import datetime
import dis
import functools
import gc
import importlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

import tapegrad as tg
from tapegrad import cache
from tapegrad._capture import threads
from tapegrad._capture.remembered import memory_of
from tapegrad._core import registry, scope
from tapegrad._core.reverse import COLLECTOR
from tapegrad._core.variable import Variable

OURS = (os.path.dirname(tg.__file__) + os.sep, "<entry of", "<tapegrad replay>")
TODAY = random.Random(datetime.date.today().toordinal())
X = np.array([0.7, -1.2, 1.9])
V = np.array([1.0, 0.5, -2.0])


# --- programs: each gives numbers, and those expected; what it captured and alters is made anew for each ---

PLACE = """
import numpy as np
scale = 2.0
buffer = np.zeros(3)
rows = [np.ones(3), 1.5]
table = {"a": np.full(3, 2.0), "n": 0}
class Box:
    pass
box = Box()
box.weight = np.ones(3)
box.kept = None

def f(x):
    global last
    buffer[:] = x * rows[0]
    table["n"] = table["n"] + 1
    table["a"][1] = x[0]
    box.kept = buffer.sum()
    last = x[2] * 1.0
    return scale * (buffer * buffer * x).sum() + last * box.weight.sum() * 0 + table["a"][0] * x[1]
"""


def value(x):
    return 2.0 * (x**3).sum() + 2.0 * x[1]


def gradient(x):
    return 6.0 * x**2 + np.array([0.0, 2.0, 0.0])


class Place:
    """A module of the user's, made anew."""

    def __init__(self):
        self.module = types.ModuleType("users_own")
        self.module.__file__ = "<users own>"
        exec(compile(PLACE, "<users own>", "exec"), self.module.__dict__)
        self.f = self.module.f
        self.names = {name: v for name, v in vars(self.module).items() if name != "last"}

    def check(self):
        """Every object is there, and plain; an array holds what it held, or what f writes."""
        m = self.module
        assert {name: id(v) for name, v in self.names.items()} == {
            n: id(v) for n, v in vars(m).items() if n != "last"
        }
        plain = [m.buffer, m.rows[0], m.table["a"], m.box.weight, *([m.last] if hasattr(m, "last") else [])]
        for v in (*plain, m.box.kept, m.table["n"], m.rows[1]):
            assert not isinstance(v, Variable)
        assert (
            len(m.rows) == 2
            and m.rows[1] == 1.5
            and list(m.table) == ["a", "n"]
            and sorted(vars(m.box)) == ["kept", "weight"]
        )
        assert np.array_equal(m.buffer, np.zeros(3)) or np.allclose(m.buffer, X, rtol=1e-12)
        assert np.array_equal(m.table["a"], np.full(3, 2.0)) or np.allclose(m.table["a"], [2.0, X[0], 2.0])
        assert np.array_equal(m.rows[0], np.ones(3)) and m.box.kept is None or np.isclose(m.box.kept, X.sum())


def of_place(call):
    def program():
        place = Place()
        return lambda: call(place.f), place.check

    return program


def unplaced(call):
    def program():
        return call(), lambda: None

    return program


def by_hand(f):
    with tg.Tape() as tape:
        x = tape.watch(X)
        y = 2.0 * (x * x * x).sum() + 2.0 * x[1]
    return tape.grad(y, x)


def watched(f):
    with tg.detect_anomalies():
        return tg.grad(f)(X)


def prepared():
    p = tg.prepare(lambda x: 2.0 * (x * x * x).sum() + 2.0 * x[1], X)
    calls = iter([lambda: None] * TODAY.randrange(4))
    for _ in calls:
        p.grad(X)
    return lambda: p.grad(X)


def pulled():
    pullback = tg.vjp(Place().f, X)[1]
    return lambda: pullback(1.0)


def checkpointed():
    buffer = np.zeros(3)

    def f(x):
        buffer[:] = x * x
        return (buffer * x).sum() * 2.0 + 2.0 * x[1]

    return lambda: tg.grad(tg.checkpoint(f))(X)


def repeated():
    """A transform whose shadow waits for the next call."""
    box = types.SimpleNamespace(weight=np.full(3, 2.0), rows=[np.ones(3), 1.5], table={"a": np.full(3, 2.0)})
    held = [box.weight, *box.rows, box.table["a"]]
    g = tg.grad(lambda x: (box.weight * x * x * x * box.rows[0]).sum() + box.table["a"][0] * x[1])
    for _ in range(3):
        g(X)
    assert memory_of(g.of).waiting

    def check():
        now = [box.weight, *box.rows, *box.table.values()]
        assert [*map(id, now)] == [*map(id, held)]
        assert np.array_equal(box.weight, np.full(3, 2.0)) and np.array_equal(box.rows[0], np.ones(3))

    return lambda: g(X), check


def kernel():
    shift = TODAY.random()
    k = tg.kernels.likelihood(lambda t, y: -((y - t[0] - shift) ** 2))
    return lambda: (
        k.value_and_grad(np.array([[0.5]]), np.array([1.0, 2.0]))[1][0, 0] + 4 * shift - 4.0 + gradient(X)
    )


def recorded():
    """The first call of a prepared function."""
    return tg.prepare(Place().f, X).grad


def decay(k):
    end = scipy.integrate.solve_ivp(lambda t, y: -k * y, (0.0, 1.0), X**2, rtol=1e-9, atol=1e-12).y[:, -1]
    return end.sum()


def root(k):
    return scipy.optimize.root(lambda z: z**3 + z - k, np.zeros(3), tol=1e-12).x.sum()


def fitted():
    y = np.cumsum(np.random.default_rng(3).standard_normal(40))
    model = tg.statespace.level()
    expected = tg.statespace.fit(model, y).estimates
    return lambda: X + (tg.statespace.fit(model, y).estimates - expected).sum()


H = np.diag(12.0 * X)
ROOT = np.array([np.roots([1.0, 0.0, 1.0, -k])[-1].real for k in X])
PROGRAMS = {  # name -> (program, what it gives)
    "value_and_grad": (of_place(lambda f: tg.value_and_grad(f)(X)[1]), gradient(X)),
    "jvp": (of_place(lambda f: tg.jvp(f, (X,), (V,))[1]), gradient(X) @ V),
    "hvp": (of_place(lambda f: tg.hvp(f, X, V)), H @ V),
    "gradient of a gradient": (of_place(lambda f: tg.grad(lambda x: (tg.grad(f)(x) * V).sum())(X)), H @ V),
    "hessian": (of_place(lambda f: tg.hessian(f)(X)), H),
    "vmap": (
        unplaced(
            lambda: (
                lambda: tg.vmap(tg.grad(lambda x: 2.0 * (x * x * x).sum() + 2.0 * x[1]))(np.stack([X, X]))[1]
            )
        ),
        gradient(X),
    ),
    "repeated": (repeated, gradient(X)),
    "checkpoint": (unplaced(checkpointed), gradient(X)),
    "linearize": (of_place(lambda f: tg.linearize(f, X)[1].T(1.0)), gradient(X)),
    "pullback": (unplaced(pulled), gradient(X)),
    "tape by hand": (of_place(by_hand), gradient(X)),
    "anomalies": (of_place(watched), gradient(X)),
    "replay": (unplaced(prepared), gradient(X)),
    "kernel": (unplaced(kernel), gradient(X)),
    "recording": (unplaced(lambda: functools.partial(recorded(), X)), gradient(X)),
    "solve_ivp": (unplaced(lambda: lambda: tg.grad(decay)(X)), -(X**2) * np.exp(-X)),
    "root": (unplaced(lambda: lambda: tg.grad(root)(X)), 1.0 / (3.0 * ROOT**2 + 1.0)),
    "minimize": (
        unplaced(
            lambda: lambda: tg.optimize.minimize(lambda x: ((x - X) ** 2).sum(), np.zeros(3), method="bfgs").x
        ),
        X,
    ),
    "fit": (unplaced(fitted), X),
    "audit": (of_place(lambda f: tg.audit(f, X).ok * gradient(X)), gradient(X)),
}
LONG = {"hessian", "solve_ivp", "vmap", "kernel", "minimize", "anomalies", "checkpoint", "fit", "audit"}
USUAL = [name for name in PROGRAMS if name not in ("audit", "solve_ivp")]


# --- what must hold afterwards ---


def settings():
    return np.geterr(), np.geterrcall(), gc.isenabled()


def check_closed(before):
    assert settings() == before
    state = scope.OPEN.__dict__
    assert {name: state[name] for name in scope.CLOSED if name != "outside"} == {
        k: v for k, v in scope.CLOSED.items() if k != "outside"
    }
    assert not threads.THREADS and not threads.WRITERS and not scope.WATCHERS and not COLLECTOR.pausing
    assert not any(lock._is_owned() for lock in scope.LOCKS)


def check_interrupted(program, expected, call, check, before):
    """After an interrupt.  (Its traceback is held by the caller, as a console does.)"""
    check_closed(before)
    check()
    for again in (call, program()[0]):
        found = again()
        assert not isinstance(found, Variable)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    check()
    check_closed(before)


# --- an exception at each instruction ---

# Python prints what is raised in the first instructions of a destructor, and goes on.
DESTRUCTORS = ("__del__", "at_the_end_of", "at_the_end_of_an_object")
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


# the instructions after which CPython looks for signals
CHECKED = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME")


@functools.cache
def deliveries(code):
    """The places of the code at which a signal may arrive.

    CPython delivers it within the instruction before, so both instructions must have the same handler.  No
    place lies between the end of a `with` block and its `__exit__`."""
    entries = dis.Bytecode(code).exception_entries

    def handlers(i):
        return [e.target for e in entries if e.start <= i.offset < e.end]

    steps = itertools.pairwise(dis.get_instructions(code))
    return {i.offset for last, i in steps if last.opname in CHECKED and handlers(last) == handlers(i)}


class Struck:
    """Raises at the k-th place in our code where a signal may come; `count`: how many there were.  `within`: in
    functions of this name only."""

    def __init__(self, k=None, within=None):
        self.within = within
        self.k, self.count, self.done, self.place = k, 0, False, ""
        self.lost = []  # what came in a destructor or in the callback of a weak reference

    def __call__(self, frame, event, arg):
        code = frame.f_code
        if not code.co_filename.startswith(OURS) or self.within not in (None, code.co_name):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.inside

    def inside(self, frame, event, arg):
        if event == "opcode" and frame.f_lasti in deliveries(frame.f_code):
            self.count += 1
            if self.count == self.k:
                self.done, self.place = True, frame.f_code.co_name
                signal.raise_signal(signal.SIGALRM)
        return self.inside


def isolated(call):
    """A generator that calls.  It has a stack of handled exceptions of its own.

    CPython forgets to take an exception off that stack when a trace function raises at the end of an `except`
    block (at `POP_EXCEPT`), where no signal is ever delivered.  Otherwise each exception raised in later tests
    would have it as its `__context__`.
    """
    yield call()


def struck(program, k, kind=KeyboardInterrupt, within=None):
    """(The tracer, the error, the call, the check) of one run."""

    def handler(*_):
        raise kind

    call, check = program()
    tracer, error, outer, hook = Struck(k, within), None, sys.gettrace(), sys.unraisablehook
    sys.unraisablehook = lambda unraisable: tracer.lost.append(unraisable.exc_type)
    again, before, start = [], signal.signal(signal.SIGALRM, handler), scope._thread.start_new_thread
    scope._thread.start_new_thread = lambda run, args: again.append(run)
    sys.settrace(tracer)
    try:
        next(isolated(call))
        if again:  # it came in a destructor, and would come again at a time that nobody knows
            raise KeyboardInterrupt
    except BaseException as caught:
        error = caught
    finally:
        sys.settrace(outer)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook, scope._thread.start_new_thread = hook, start
    assert sys.exc_info() == (None, None, None)
    return tracer, error, call, check


def strike(name, program, expected, k, kind=KeyboardInterrupt, within=None):
    before = settings()
    tracer, error, call, check = struck(program, k, kind, within)
    if tracer.done and tracer.place not in DESTRUCTORS and tracer.lost != [kind]:
        assert type(error) is kind, (name, k, error)
    check_interrupted(program, expected, call, check, before)
    del error


class OverTime(TimeoutError):
    """What the handler of a user's time limit raises."""


def places(name, share):
    """(a place, what is raised there), so many."""
    program, _ = PROGRAMS[name]
    program()[0]()  # what is made once is made
    count = struck(program, None)[0].count
    drawn = TODAY.sample(range(1, count + 1), min(count, share))
    return zip(drawn, itertools.cycle((KeyboardInterrupt, OverTime)))


@pytest.mark.parametrize("name", USUAL)
def test_an_exception_at_an_instruction(name):
    for k, kind in places(name, 1 if name in LONG else 3):
        strike(name, *PROGRAMS[name], k, kind)


@pytest.mark.parametrize("name", ["replay", "recording", "root"])
def test_the_error_of_a_time_limit_is_no_way_that_failed(name):
    for k, _ in places(name, 4):
        strike(name, *PROGRAMS[name], k, OverTime)


def test_the_error_of_a_time_limit_while_a_container_is_handed_back():
    program, expected = PROGRAMS["jvp"]
    count = struck(program, None, within="put")[0].count
    assert count
    for k in range(1, count + 1):
        strike("jvp", program, expected, k, OverTime, "put")


def test_the_error_of_a_time_limit_is_none_of_the_folder_of_compiled_code():
    program = unplaced(lambda: lambda: cache.load_code("0" * 64))
    for k in range(1, struck(program, None, within="load_code")[0].count + 1):
        assert type(struck(program, k, OverTime, "load_code")[1]) is OverTime
    assert k > 1


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_exception_at_every_instruction(name):
    """(Of the longest programs at 2,000.)"""
    for k, kind in places(name, 2_000 if name in LONG else 40_000):
        strike(name, *PROGRAMS[name], k, kind)


# --- real signals ---


def interrupted(call, delay):
    """The exception that a signal makes of a call, which is repeated until it comes.

    None if it came in a destructor or in the callback of a weak reference, also of an object of an earlier
    test that the collector meets here: Python hands such an exception to `sys.unraisablehook` and goes on.
    """
    lost, hook = [], sys.unraisablehook
    until = time.monotonic() + delay + 30.0

    def met(unraisable):
        (lost.append if unraisable.exc_type is KeyboardInterrupt else hook)(unraisable)

    try:
        sys.unraisablehook = met
        signal.setitimer(signal.ITIMER_REAL, delay)
        while not lost and time.monotonic() < until:
            call()
    except BaseException as error:
        return error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # another error may come before the signal
        sys.unraisablehook = hook
    assert lost, "the signal did not come"
    return None


def signalled(name, count):
    """Interrupts at random times of calls."""
    program, expected = PROGRAMS[name]
    call, check = program()
    call()
    begun = time.perf_counter()
    call()
    usual, before = time.perf_counter() - begun, settings()
    for n in range(count):
        if n % 20 == 0:
            call, check = program()
            call()
        error = interrupted(call, TODAY.uniform(1e-5, 2 * max(usual, 1e-3)))
        assert error is None or type(error) is KeyboardInterrupt, (name, n, error)
        check_closed(before)
        check()
        if n % 10 == 0:
            np.testing.assert_allclose(call(), expected, rtol=1e-6)
        del error
    check_interrupted(program, expected, call, check, before)


@contextlib.contextmanager
def alarms():
    """(An interrupt in a destructor is raised again as SIGINT, which a process in the background ignores.)"""
    kinds = signal.SIGALRM, signal.SIGINT
    before = [signal.signal(kind, signal.default_int_handler) for kind in kinds]
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


@pytest.mark.parametrize("name", USUAL)
def test_signals(name):
    with alarms():
        signalled(name, 2 if name in LONG else 10)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_many_signals(name):
    """100,000 in all, most of them in the short programs."""
    with alarms():
        signalled(name, 3_000 if name in LONG else 12_000)


# --- while modules load ---


@pytest.mark.parametrize("count", [2, pytest.param(150, marks=pytest.mark.long)])
def test_signals_in_the_first_calls_of_a_process(count):
    """These load modules and declare operations."""
    program = os.path.join(os.path.dirname(__file__), "..", "support", "interrupted_loading.py")
    run = subprocess.run(
        [sys.executable, program, str(count), str(TODAY.random())], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


def test_handlers_of_signals_wait_while_modules_load():
    with alarms():
        before, loaded = signal.getsignal(signal.SIGALRM), []
        with pytest.raises(KeyboardInterrupt), registry.LoadTransaction():
            signal.raise_signal(signal.SIGALRM)
            with registry.LoadTransaction():
                signal.raise_signal(signal.SIGALRM)
            loaded.append(True)
        assert loaded and signal.getsignal(signal.SIGALRM) is before
        with pytest.raises(ValueError), registry.LoadTransaction():
            raise ValueError
        assert signal.getsignal(signal.SIGALRM) is before


def classes_with_destructors():
    modules = [m for name, m in sys.modules.items() if name.startswith("tapegrad.")]
    found = {c for m in modules for c in vars(m).values() if isinstance(c, type)}
    return [c for c in found if "__del__" in vars(c)]


def test_destructors_of_objects_whose_constructor_was_interrupted(monkeypatch):
    """They raise nothing, which Python would print."""
    told = []
    for name in ("implicit", "scipy.integrate", "kernels"):
        importlib.import_module(f"tapegrad.{name}")
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    made = classes_with_destructors()
    for c in made:
        c.__new__(c)
    gc.collect()
    assert len(made) >= 3 and not told
