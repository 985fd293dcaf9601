"""Each operation's word `batch`, proved on whatever the table of operations calls it with: values, tangents
and cotangents."""

import collections
import functools

import numpy as np
import pytest
from batched_words import WORDS, failing, watched_calls
from cases import all_cases, declared_late

from tapegrad.ops.declare import PRIMITIVES, primitive

UNPROVED = {
    "cofactor_slope",
    "noted",
    "to_device",
    "copy_to_host",
    "reciprocal_condition",
    "unknown",
    "has_close_values",
    "has_zero_values",
    "without_eta",
}  # only met at corners, in recordings, or on a device
UNPROVED |= {
    "sum_over_ranks",
    "rows_over_ranks",
    "shifted",
    "compared_over_ranks",
}  # over ranks (tests/parallel)
UNPROVED |= {
    "with_steady_cotangent",  # of complements (test_seldom_used.py)
    "last_writer",
    "places_of",
    "first_chosen",
}  # only met where an index differs from sample to sample (test_vmap_indices.py)


@functools.cache
def all_calls():
    calls = collections.defaultdict(dict)
    with np.errstate(all="ignore"):
        for case in all_cases():
            watched_calls(case, calls)
    return calls


HERE = {
    name: entry for name, entry in PRIMITIVES.items() if not declared_late(entry)
}  # the others: tests/ops/test_scipy_names.py
WORDED = sorted(name for name, entry in HERE.items() if entry.prim.batch is not None)


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_wrong_word_is_found():
    """Words given by name and guess: each is refuted by the table."""
    calls = all_calls()
    with np.errstate(all="ignore"):
        for word, name in (
            ("matrix", "solve_triangular"), ("matrix", "matmul"), ("elementwise", "inv"), ("axis",
            "transpose"), ("moves", "conj"),
            ("elementwise", "broadcast_to"), ("matrix", "sum"), ("axis", "reshape"), ("moves", "exp"),
        ):  # fmt: skip
            assert failing(word, calls[name].values()) is not None, (word, name)


def test_most_operations_have_a_word():
    """What an operation says by its forward rule, or as NumPy's ufunc, it need not say again."""
    counts = collections.Counter(
        b if isinstance(b := PRIMITIVES[n].prim.batch, str) else "own rule" for n in WORDED
    )
    print(
        f"{len(WORDED)} of {len(HERE)} operations have a word: {dict(counts)}; without: {sorted(set(HERE) - set(WORDED))}"
    )
    assert counts["elementwise"] > 120 and len(WORDED) > 0.9 * len(HERE)


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
