"""Nothing falls back in silence: where calls of a prepared function run plainly, one warning and the report
say why.  The search counts the plain calls, whatever led to them."""

import contextlib
import math
import random
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import AliasError, ReplayWarning
from tapegrad.replay import cached_program
from tapegrad.replay.cached_program import CachedProgram
from tapegrad.replay.costs import TOLD_CALLS, TRIED_REPLAYS
from tapegrad.replay.form import TransformForm

CALLS = 40


class Counter:
    calls = 0


def counts_its_calls():
    def f(x):
        Counter.calls += 1
        return (x * x).sum() + 0.0 * Counter.calls

    return f, lambda k: np.ones(3) + 0.1 * k


def evaluates_a_text():
    return lambda x: (x * eval("2.0 + 1.0")).sum(), lambda k: np.ones(3) + 0.1 * k


def reads_the_clock():
    return lambda x: (x * time.time()).sum(), lambda k: np.ones(3) + 0.1 * k


def draws_by_python():
    return lambda x: (x * random.random()).sum(), lambda k: np.ones(3) + 0.1 * k


def takes_another_way_each_time():
    def f(x):
        for _ in range(int(x[0])):
            x = x * 1.01
        return x.sum()

    return f, lambda k: np.full(3, 2.5 + k % 12)


def has_another_shape_each_time():
    return lambda x: (x * x).sum(), lambda k: np.ones(2 + k)


def warns():
    def f(x):
        warnings.warn("look", UserWarning, stacklevel=2)
        return (x * x).sum()

    return f, lambda k: np.ones(3) + 0.1 * k


def writes_into_the_argument():
    kept = np.ones(4)

    def f(x):
        kept[1:] = 2.0 * x[:3]
        return (kept * kept).sum()

    return f, lambda k: kept


def is_no_number():
    return lambda x: np.sqrt(x - 100.0).sum(), lambda k: np.ones(3) + 0.1 * k


def divides_by_zero():
    return lambda x: (1.0 / (x - x)).sum(), lambda k: np.ones(3) + 0.1 * k


def reads_a_file():
    def f(x):
        with open(__file__) as file:
            return x.sum() * len(file.read(1))

    return f, lambda k: np.ones(3) + 0.1 * k


def grows_a_list():
    met: list = []

    def f(x):
        met.append(1)
        return (x * x).sum() * len(met)

    return f, lambda k: np.ones(3) + 0.1 * k


def solves_with_infinities():
    return lambda x: np.linalg.solve(np.eye(3) * x, x).sum(), lambda k: np.array([1.0, 2.0, np.inf])


def catches_an_error():
    def f(x):
        try:
            return np.linalg.cholesky(np.eye(2) * x[0]).sum()
        except np.linalg.LinAlgError:
            return x.sum()

    return f, lambda k: np.array([(-1.0) ** k, 1.0])


CONSTRUCTS = [
    counts_its_calls, evaluates_a_text, reads_the_clock, draws_by_python, takes_another_way_each_time,
    has_another_shape_each_time, warns, writes_into_the_argument, is_no_number, divides_by_zero, reads_a_file,
    grows_a_list, solves_with_infinities, catches_an_error,
]  # fmt: skip


@contextlib.contextmanager
def plain_calls(monkeypatch):
    """The number of calls that run plainly."""
    found, plain = [], TransformForm.plain

    def counted(of_form, *args):
        y = plain(of_form, *args)  # an error is loud
        found.append(of_form.name)
        return y

    with monkeypatch.context() as patched:
        patched.setattr(TransformForm, "plain", counted)
        yield found


@pytest.mark.parametrize("method", ["grad", pytest.param("value", marks=pytest.mark.long)])
@np.errstate()
@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda f: f.__name__)
def test_whatever_runs_plainly_is_told_once(construct, method, monkeypatch):
    f, at = construct()
    p = tg.prepare(f, at(0))
    with plain_calls(monkeypatch) as plain, warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        np.seterr(all="ignore")
        for k in range(CALLS):
            with contextlib.suppress(AliasError):  # of the plain call
                getattr(p, method)(at(k))
    told = [str(w.message) for w in given if w.category is ReplayWarning]
    if len(plain) >= TOLD_CALLS:
        assert told and "run as" in told[0], p.report()
        assert "run as" in p.report()
    assert len(told) == len({*told})


# --- what preparing costs ---


class Clock:
    """Each replay of bound calls takes so many ns."""

    def __init__(self, step):
        self.now, self.step = 0, step

    def thread_time_ns(self):
        self.now += self.step
        return self.now

    thread_time = staticmethod(time.thread_time)


@pytest.mark.parametrize("replays", [2, 5, 17])
def test_the_text_waits_until_the_replays_have_cost_as_much(replays, monkeypatch):
    monkeypatch.setattr(CachedProgram, "writing_cost", float(replays - 1))
    monkeypatch.setattr(cached_program.WRITING, "factor", 1 / cached_program.REPAID)
    monkeypatch.setattr(cached_program, "time", Clock(1))
    f = lambda x: (np.sin(x) * x).sum()
    x = np.linspace(0.1, 1.0, 5)
    p = tg.prepare(f, x)
    p.grad(x)
    for k in range(1, replays + 3):
        np.testing.assert_allclose(p.grad(x + k), tg.grad(f)(x + k), rtol=1e-14)
        assert (p.forms["grad"].programs[0].emitted is not None) == (k >= replays)


def test_what_texts_have_taken_tells_what_the_next_one_takes():
    """The first one, which loads the interpreter, does not."""
    writing = cached_program.WritingTime()
    first = writing.factor
    writing.add(1e3)
    assert writing.factor == first
    for _ in range(60):
        writing.add(0.5)
    assert abs(writing.factor - 0.5) < 1e-6


def test_modules_that_write_texts_wait_too(monkeypatch):
    """In a process that has none yet."""
    monkeypatch.setattr(cached_program, "LOADING_NS", 4.0 / cached_program.REPAID)
    monkeypatch.setattr(cached_program, "EMITTER", "tapegrad.replay.unloaded")
    monkeypatch.setattr(cached_program.WRITING, "factor", 1 / cached_program.REPAID)
    kept = SimpleNamespace(
        compile="auto", cuda_graph=False, joint=0, emitted=None, early=False, writing_cost=3.0
    )
    for kept.spent in (2, 3, 6, 7):
        assert CachedProgram.is_paid(kept) == (kept.spent == 7)
    early = SimpleNamespace(**{**vars(kept), "early": True, "recording": 1})
    for early.spent in (2, 3):  # a text that is written at once
        assert CachedProgram.is_paid(early) == (early.spent == 3)
    monkeypatch.setattr(cached_program, "EMITTER", "sys")
    for kept.spent in (2, 3):
        assert CachedProgram.is_paid(kept) == (kept.spent == 3)


def test_asked_for_it_is_written_at_once(monkeypatch):
    monkeypatch.setattr(CachedProgram, "writing_cost", math.inf)
    x = np.linspace(0.1, 1.0, 5)
    p = tg.prepare(lambda x: (np.sin(x) * x).sum(), x, compile=True)
    for _ in range(3):
        p.grad(x)
    assert p.forms["grad"].programs[0].emitted is not None


@pytest.mark.parametrize("compile", ["auto", True])
@pytest.mark.parametrize("faster", [0, 1])
def test_the_faster_of_two_texts_stays(faster, compile, monkeypatch):
    monkeypatch.setattr(cached_program, "TRIED_REPLAYS", TRIED_REPLAYS)
    x = np.linspace(0.1, 1.0, 2000)
    f = lambda x: (np.sin(x) * np.exp(x)).sum()
    p = tg.prepare(f, x, compile=compile)
    for _ in range(3):
        p.grad(x)
    kept = p.forms["grad"].programs[0]
    if compile == "auto":
        kept.due = kept.replays  # as if compiling had paid
        monkeypatch.setattr(type(kept.emitted), "worthwhile", lambda self, *ns: 0.0)
    p.grad(x)
    assert len(kept.trial) == 2
    texts = [text for text, _ in kept.trial]
    for n, (_, seconds) in enumerate(kept.trial):
        seconds[:] = [1e-9 if n == faster else 1e9] * (TRIED_REPLAYS - 1)
    for _ in range(2):
        np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), rtol=1e-14)
    assert kept.emitted is texts[faster] and not kept.trial


@pytest.mark.parametrize("share, replays", [(0.4, 6), (0.8, 16)])
def test_a_trial_that_is_clear_is_short(share, replays, monkeypatch):
    """Three replays by each of two texts, or eight, by a clock that the texts move."""
    monkeypatch.setattr(cached_program, "TRIED_REPLAYS", TRIED_REPLAYS)
    clock, x = [0.0], np.linspace(0.1, 1.0, 2000)
    monkeypatch.setattr(cached_program.time, "thread_time", lambda: clock[0])
    p = tg.prepare(lambda x: (np.sin(x) * np.exp(x)).sum(), x)
    for _ in range(3):
        p.grad(x)
    kept = p.forms["grad"].programs[0]

    class Timed:
        def __init__(self, seconds, text):
            self.seconds, self.text = seconds, text

        def run(self, *values):
            clock[0] += self.seconds
            return self.text.run(*values)

    texts = [Timed(seconds, kept.emitted) for seconds in (1.0, share)]
    kept.trial, count = [(text, []) for text in texts], 0
    while kept.trial:
        p.grad(x)
        count += 1
    assert count == replays and kept.emitted is texts[1]


def test_another_thread_may_end_the_trial():
    x = np.linspace(0.1, 1.0, 2000)
    f = lambda x: (np.sin(x) * np.exp(x)).sum()
    p = tg.prepare(f, x)
    for _ in range(3):
        p.grad(x)
    kept = p.forms["grad"].programs[0]
    text = kept.emitted

    class Ending:
        def run(self, *values):
            kept.trial = []
            return text.run(*values)

    kept.trial = [(Ending(), []), (text, [])]
    np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), rtol=1e-14)  # a fault would be a ReplayWarning
    assert kept.emitted is text and not kept.failures


@pytest.mark.parametrize("ranks", [0, 2])
def test_ranks_take_the_same_text(ranks, monkeypatch):
    """Times differ between ranks, so they decide nothing there."""
    monkeypatch.setattr(cached_program, "TRIED_REPLAYS", TRIED_REPLAYS)
    x = np.linspace(0.1, 1.0, 2000)
    p = tg.prepare(lambda x: (np.sin(x) * np.exp(x)).sum(), x)
    for _ in range(3):
        p.grad(x)
    kept = p.forms["grad"].programs[0]
    kept.joint = ranks
    monkeypatch.setattr(type(kept.emitted), "worthwhile", lambda self, *ns: 0.0)
    kept.write()
    assert bool(kept.trial) == (not ranks)


def test_a_cotangent_is_not_added_to_zeros():
    """Of one number read beside another use of its array: six instructions a step, with the product twice."""

    def f(x):
        for _ in range(50):
            x = x * x[1, 2]
        return x.sum()

    x = np.random.default_rng(0).normal(size=(3, 3))
    x[1, 2] = 0.97
    p = tg.prepare(f, x)
    for at in (x, x + 0.01, x * np.where(x > 0, 1.0, 0.0)):
        for _ in range(2):
            expected = tg.grad(f)(at)
            np.testing.assert_array_equal(p.grad(at), expected)
            np.testing.assert_array_equal(np.signbit(p.grad(at)), np.signbit(expected))
    assert p.forms["grad"].programs[0].program.recorded < 6 * 50 + 20
