"""A record's saved values can be changed by nobody: every operation as "operate, overwrite each operand, setting and result in place,
then sweep".  Forward mode, which computes derivatives at once, is the reference."""

import functools
import itertools

import numpy as np
import pytest
from _calls_seen import active, calls
from sealed import BrokenSealError, sealed

import tapegrad as tg
from tapegrad import _tape
from tapegrad._array import is_array
from tapegrad._variable import Variable
from tapegrad.ops import products, shaping


def leaves_of(x):
    return [v for e in x for v in leaves_of(e)] if type(x) in (list, tuple) else [x]


def floats(x):
    return [v for v in leaves_of(x) if (isinstance(v, Variable) or is_array(v)) and v.dtype.kind in "fc"]


def overwrite(x):
    """Everything in x that can be written, with other contents."""
    if type(x) is list:
        for v in x:
            overwrite(v)
        x.clear()
    elif type(x) is tuple:
        for v in x:
            overwrite(v)
    elif isinstance(x, (Variable, np.ndarray)) and np.size(x) and np.shape(x):
        if isinstance(x, Variable) or x.flags.writeable:
            try:
                x[...] = 7 if x.dtype.kind in "iufc" else ~x
            except ValueError:
                assert not x.flags.writeable
    return x


def rebuilt(x, operands):
    """The arguments x with its float arrays taken from the iterator `operands`, other arrays and lists copied."""
    if active(x) and isinstance(x, np.ndarray):
        return next(operands)
    if type(x) in (list, tuple):
        return type(x)([rebuilt(v, operands) for v in x])
    return x.copy() if isinstance(x, np.ndarray) else x


def local(n, x):
    b = np.zeros(x.shape, x.dtype)
    b[...] = x
    return b


def fresh(n, x):
    return x * 1.0


def viewed(n, x):
    b = np.zeros((2, *x.shape), x.dtype)
    b[1] = x
    return b[1] if x.shape else b[1:].reshape(())


def seen(n, x):
    """A view of a cold base: nothing was written into it."""
    y = x * 1.0
    return y[...] if x.shape else y


def plain(n, x):
    """An array that nothing watches, and that is no Variable."""
    return tg.value(x).copy()


BUFFERS = {"local and hot": local, "a result": fresh, "a view of a hot buffer": viewed, "a view of a cold buffer": seen, "a plain array": plain, "captured": None}


def program(f, args, kwargs, kind, tracked):
    """(function of the float arrays, the arrays).  `tracked`: which of them are, where the kind is 'a plain array'."""
    arrays = floats((args, list(kwargs.values())))
    captured = [np.zeros_like(a) for a in arrays]
    weights: list = []

    def run(*xs):
        if kind == "captured":
            for b, x in zip(captured, xs, strict=True):
                b[...] = x
            made = captured
        else:
            make = BUFFERS[kind]
            made = [(fresh if kind == "a plain array" and n == tracked else make)(n, x) for n, x in enumerate(xs)]
        operands = iter(made)
        a = rebuilt(args, operands)
        k = {name: rebuilt(v, operands) for name, v in kwargs.items()}
        out = f(*a, **k)  # in the shadow, f is its face
        ys = floats(out)
        if not weights:
            weights.extend([np.random.default_rng(n).standard_normal(np.shape(y)) for n, y in enumerate(ys)])
        total = 0.0
        for w, y in zip(weights, ys, strict=True):
            total = total + (w * y * y).sum().real
        overwrite([a, list(k.values()), list(ys)])
        return total

    return run, arrays


def check(f, args, kwargs, kind, tracked=0):
    """Reverse mode against forward mode; the number of arrays checked."""
    run, arrays = program(f, args, kwargs, kind, tracked)
    rng = np.random.default_rng(1)
    v = tuple([rng.standard_normal(a.shape) for a in arrays])
    value, tangent = tg.jvp(run, tuple(arrays), v)
    again, pullback = tg.vjp(run, *arrays)
    c = pullback(1.0)
    c = c if len(arrays) > 1 else (c,)
    slope = sum([float((np.conj(g) * d).real.sum()) for g, d in zip(c, v, strict=True)])
    np.testing.assert_allclose(value, again, rtol=1e-12)
    np.testing.assert_allclose(slope, float(tangent), rtol=1e-8, atol=1e-8 * max(1.0, abs(float(value))))
    return len(arrays)


@functools.cache
def grid():
    """(call, kind of buffer, number of the tracked array, as large?) for all calls."""
    rows = []
    for f, args, kwargs in calls():
        n = len(floats((args, list(kwargs.values()))))
        if not n or not floats_out(f, args, kwargs):
            continue
        for kind, large in itertools.product(BUFFERS, (False, True)):
            rows += [(f, args, kwargs, kind, t, large) for t in (range(n) if kind == "a plain array" else (0,))]
    return rows


def floats_out(f, args, kwargs):
    with np.errstate(all="ignore"):
        operands = iter([a.copy() for a in floats((args, list(kwargs.values())))])
        try:
            return floats(f(*rebuilt(args, operands), **{k: rebuilt(v, operands) for k, v in kwargs.items()}))
        except Exception:
            return []


def run_grid(rows, monkeypatch):
    wrong, arrays = [], 0
    for f, args, kwargs, kind, tracked, large in rows:
        monkeypatch.setattr(_tape, "SMALL", -1 if large else 4096)
        try:
            with np.errstate(all="ignore"), sealed():
                arrays += check(f, args, kwargs, kind, tracked)
        except Exception as error:
            sizes = [np.shape(a) for a in floats((args, list(kwargs.values())))]
            wrong.append(f"{f.__name__} of {sizes} {kwargs}, {kind} {tracked}{', large' if large else ''}: {type(error).__name__} {str(error).strip()[:300]}")
    print(f"{len(rows)} programs with {arrays} arrays of {len({row[0] for row in rows})} functions")
    assert not wrong, f"{len(wrong)} of {len(rows)}:\n" + "\n".join(wrong)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_operands_settings_and_results_overwritten_before_the_sweep(monkeypatch):
    run_grid(grid(), monkeypatch)


@pytest.mark.filterwarnings("ignore")
def test_a_sample_of_operands_settings_and_results_overwritten(monkeypatch):
    run_grid(grid()[::7], monkeypatch)
