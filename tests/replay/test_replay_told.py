"""Nothing falls back in silence: where calls of a prepared function run plainly, one warning and the report
say why.  The search counts the plain calls, whatever led to them."""

import contextlib
import random
import time
import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import AliasError, ReplayWarning
from tapegrad.replay.costs import TOLD_CALLS
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

    return f, lambda k: np.full(3, 2.5 + k % 20)


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

    def counted(form, *args):
        y = plain(form, *args)  # an error is loud
        found.append(form.name)
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
