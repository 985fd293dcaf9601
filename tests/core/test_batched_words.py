"""Each operation's word `batch`, proved on whatever the table of operations calls it with: values, tangents and cotangents."""

import collections
import functools

import numpy as np
import pytest
from batched_words import WORDS, holds
from cases import all_cases
from hidden_values import Escaped, Hidden, at_both
from third_trace import Calls

import tapegrad as tg
from tapegrad.ops._define import PRIMITIVES, primitive

MOST = 12  # calls of an operation, of different shapes and settings
UNPROVED = {"cofactor_slope", "noted", "to_device", "to_host", "unknown", "without_eta"}  # only met at corners, or on a device
UNPROVED |= {"last_writer", "places_of"}  # only met where an index differs from sample to sample (test_vmap_indices.py)


DECLARED = {entry.prim for entry in PRIMITIVES.values()}


class HiddenCalls(Hidden):
    """Keeps what primitives are given where values are hidden: orders, masks and kinds of matrices are found by operations there."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def step(self, prim, args, inputs, slots, params):
        self.calls.append((prim, [v if s is None else s[0] for v, s in zip(inputs, slots, strict=True)], params))
        return super().step(prim, args, inputs, slots, params)


def watched_calls(case, calls):
    """Adds the calls of primitives that the line's value, tangent and cotangents make."""
    active = [n for n, a in enumerate(case.inputs) if np.asarray(a).dtype.kind in "fc" and not isinstance(a, (list, tuple))]

    def f(*xs):
        given = list(case.inputs)
        for n, x in zip(active, xs, strict=True):
            given[n] = x
        return case.f(*given)

    for reverse in (False, True):
        trace = Calls()
        xs = tuple([trace.watch(np.array(case.inputs[n])) for n in active])
        if reverse:
            y, pullback = tg.vjp(f, *xs)
            pullback(y)
        else:
            tg.jvp(f, xs, xs)
        trace.close()
        keep(trace.calls, calls)
    xs = tuple([np.asarray(case.inputs[n]) for n in active])
    for way in (lambda *xs: tg.jvp(f, xs, xs), lambda *xs: (lambda y, pullback: pullback(y))(*tg.vjp(f, *xs))):
        hidden = HiddenCalls()
        try:
            at_both(way, xs, xs, lambda hidden=hidden: hidden)
        except Escaped:
            pass
        keep(hidden.calls, calls)


def keep(found, calls):
    for prim, inputs, params in [call for call in found if call[0] in DECLARED]:
        kept = calls[prim.name]
        if len(kept) < MOST:
            kinds = [(getattr(a, "shape", None), getattr(a, "dtype", type(a))) for a in inputs]
            kept.setdefault(repr((kinds, params))[:200], (prim, inputs, params))


@functools.cache
def all_calls():
    calls = collections.defaultdict(dict)
    with np.errstate(all="ignore"):
        for case in all_cases():
            watched_calls(case, calls)
    return calls


def failing(word, calls):
    """The first of the calls for which the word does not hold, at two or three samples; three is also the length of many axes."""
    for prim, inputs, params in calls:
        for count in (2, 3):
            try:
                good = holds(word, prim, inputs, params, count)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            if not good:
                return [getattr(a, "shape", a) for a in inputs], params
    return None


WORDED = sorted(name for name, entry in PRIMITIVES.items() if entry.prim.batch is not None)


@pytest.mark.filterwarnings("ignore")
def test_the_words_of_all_operations_hold():
    wrong = {}
    for name in WORDED:
        word, calls = PRIMITIVES[name].prim.batch, all_calls()[name].values()
        assert calls or name in UNPROVED, name
        assert callable(word) or word in WORDS, name
        with np.errstate(all="ignore"):
            why = failing(word, calls)
        if why is not None:
            wrong[name] = word, why
    assert wrong == {}


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_word_is_found():
    """Words given by name and guess: each is refuted by the table."""
    calls = all_calls()
    with np.errstate(all="ignore"):
        for word, name in (
            ("matrix", "solve_triangular"), ("matrix", "matmul"), ("elementwise", "inv"), ("axis", "transpose"), ("moves", "conj"),
            ("elementwise", "broadcast_to"), ("matrix", "sum"), ("axis", "reshape"), ("moves", "exp"),
        ):  # fmt: skip
            assert failing(word, calls[name].values()) is not None, (word, name)


def test_most_operations_have_a_word():
    """What an operation says by its forward rule, or as NumPy's ufunc, it need not say again."""
    counts = collections.Counter(b if isinstance(b := PRIMITIVES[n].prim.batch, str) else "own rule" for n in WORDED)
    print(f"{len(WORDED)} of {len(PRIMITIVES)} operations have a word: {dict(counts)}; without: {sorted(set(PRIMITIVES) - set(WORDED))}")
    assert counts["elementwise"] > 120 and len(WORDED) > 0.9 * len(PRIMITIVES)


def test_words_are_kept():
    registered = dict(PRIMITIVES)
    try:

        @primitive(batch="moves")
        def backward(x):
            return x[::-1].copy()
    finally:
        PRIMITIVES.clear()
        PRIMITIVES.update(registered)
    assert backward.prim.batch == "moves" and not backward.prim.linear
    assert PRIMITIVES["sign"].prim.batch == "elementwise" and not PRIMITIVES["sign"].prim.same  # a ufunc
    assert PRIMITIVES["sum"].prim.linear and PRIMITIVES["sin"].prim.same and not PRIMITIVES["sin"].prim.linear
