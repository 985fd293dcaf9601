"""Random programs of ufuncs: values, captured arrays afterwards, derivatives in both modes, and replays at other
points with other captured data.  What is refused is loud."""

from collections import Counter

import numpy as np
import pytest
from random_ufuncs import NARROW, WIDE, V, Writer, X, reset, run, slope, state, world

import tapegrad as tg

SEEDS = [pytest.param(range(4), id="some"), pytest.param(range(4, 300), marks=pytest.mark.long, id="many")]


def answers(space, x, changed):
    """(what, a function that gives it) of every way to ask for a derivative or a value."""
    f = space["f"]
    prepared = tg.prepare(f, X)
    reset(space, False)
    prepared.grad(X)
    yield "value", lambda: tg.value_and_grad(f)(x)[0]
    yield "value", lambda: prepared.value(x)
    yield "slope", lambda: tg.grad(f)(x) @ V
    yield "slope", lambda: tg.jvp(f, (x,), (V,))[1]
    yield "slope", lambda: prepared.grad(x) @ V


def judge(seed: int) -> Counter:
    source = Writer(seed, 8).source()
    narrow, wide = world(source, NARROW), world(source, WIDE)
    count: Counter = Counter()
    for x, changed in ((X, False), (X * 0.9, True), (-X, False)):
        try:
            wanted = {"value": run(narrow, x, changed), "slope": slope(wide, x, changed)}
        except (ValueError, IndexError):
            continue
        run(narrow, x, changed)
        after = state(narrow)
        try:
            asked = list(answers(narrow, x, changed))
        except Exception:
            count["refused"] += 5
            continue
        for what, ask in asked:
            reset(narrow, changed)
            try:
                found = ask()
            except Exception:
                count["refused"] += 1
                continue
            want = wanted[what]
            if want is None or not np.isfinite(found):
                count["not told"] += 1
                continue
            assert abs(found - want) <= (1e-4 if what == "value" else 2e-3) * (1 + abs(want)), (
                f"{what}\n{source}"
            )
            np.testing.assert_allclose(state(narrow), after, 1e-4, 1e-4, err_msg=source)
            count["right"] += 1
    return count


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", SEEDS)
def test_random_programs_of_ufuncs(seeds):
    with np.errstate(all="ignore"):
        found = sum([judge(seed) for seed in seeds], Counter())
    assert found["right"] > 2 * found["refused"], found
