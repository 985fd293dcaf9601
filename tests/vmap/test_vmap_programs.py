"""Random programs that write in place under `tg.vmap`, against a loop over the samples: right or loud,
captured arrays included; and loud is hardly one that hands nothing from sample to sample."""

import itertools
from collections import Counter

import numpy as np
import pytest
from caught_programs import around
from comparison import host
from judged_programs import argument, maker
from looped import forms, further_forms, looped, near, same, vmapped
from random_programs import draw, source

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.errors import AliasError, BatchError

SAMPLES = 3
NAMES = (
    "value",
    "vmap of grad",
    "vmap of jvp",
    "grad of vmap",
    "vmap of hvp",
    "hvp of vmap",
    "grad of vmap of grad",
)  # at one point


def hands_on(make, stack):
    """Does a loop give other results, or leave other data, than each sample by itself?"""
    of_loop = make()
    want = looped(of_loop[0])(stack)
    column = []
    for x in stack:
        alone = make()
        column.append(alone[0](x.copy(order="K")))
    return not (
        same([np.stack([host(y) for y in column])], want, 1e-12)
        and same(leaves(alone[1]()), leaves(of_loop[1]()), 1e-12)
    )


def disagree(f, more):
    """Is there no plain vmap over the samples of both points either, for branches and masks on which they
    disagree?"""
    try:
        vmapped(f)(more)
    except BatchError as e:
        return "differs between samples" in str(e)
    return False


def judged(seed, found, samples=SAMPLES, xp=np, all_forms=True):
    program = draw(seed, cupy=xp is not np)
    make = maker(program, xp)[0]
    x, v = argument(seed, xp)
    stack, directions = [xp.stack([a * (1 - 0.01 * k) for k in range(samples)]) for a in (x, v)]
    with np.errstate(all="ignore"):
        try:
            state = hands_on(make, stack)
            more = xp.concatenate([stack, *near([stack])])
            state = state or hands_on(make, more)
        except (
            AliasError
        ):  # an inner transform of an array that its function captured, too: without vmap as well
            found["alias"] += 1
            return
        anew = lambda: make()[0]
        caught = [
            ("caught", *of) for _, *of in forms(lambda: around(make()[0], seed, xp), 1, [directions], 1)
        ]
        for form, batched, loop in itertools.chain(
            forms(anew, 1, [directions]), further_forms(anew, 1) if all_forms else (), caught
        ):
            try:
                want = loop(stack)
            except AliasError:
                found["alias"] += 1
                continue
            try:
                got = batched(stack)
            except BatchError as e:
                hands = state and ("sample to sample" in str(e) or "keeps a value" in str(e))
                known = (form not in NAMES and disagree(make()[0], more)) or (
                    form == "caught" and "except" in str(e)
                )
                found["state" if hands else "disagree" if known else "refused"] += 1
                continue
            got, want = [[host(y) for y in leaves(ys)] for ys in (got, want)]
            assert same(got, want, 1e-6), (
                f"seed {seed}, {form}: {got} instead of {want}\n{source(program).text}"
            )
            found["right"] += 1
        of_loop, of_batch = make(), make()
        try:
            looped(of_loop[0])(stack)
        except AliasError:
            return
        try:
            vmapped(of_batch[0])(stack)
        except BatchError:
            return
        assert same(leaves(of_batch[1]()), leaves(of_loop[1]()), 1e-6), (
            f"seed {seed}, captured arrays\n{source(program).text}"
        )


def run(seeds, samples=SAMPLES, xp=np, sparsely=False):
    found = Counter()
    for seed in seeds:
        judged(seed, found, samples, xp, not sparsely or seed % 6 == 0)
    print(dict(found))
    assert found["right"] > 0.6 * found.total() and found["refused"] <= 0.02 * (
        found["right"] + found["refused"]
    ), found


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(12), range(12, 24)], ids=str)
def test_programs(seeds):
    run(seeds, sparsely=True)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 250) for k in range(90_000, 100_000, 250)], ids=str)
def test_ten_thousand_programs(seeds):
    run(seeds, (2, 3, 5)[seeds.start // 250 % 3])  # 2 and 5 are lengths of many axes, too


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 20) for k in range(104_000, 104_080, 20)], ids=str)
def test_programs_on_cupy(seeds, xp):
    if xp is not np:
        run(seeds, xp=xp)


def test_the_judge_finds_a_batch_that_forgets(monkeypatch):
    """A captured array that hands a value on, without marks."""
    monkeypatch.setattr("tapegrad._transforms.batching.captured_marks.Marks.fail", lambda marks: None)
    total = np.zeros(1)

    def f(x):
        total[0] += x.sum()
        return total[0] * 1.0

    stack = np.arange(6.0).reshape(3, 2)
    assert not same(vmapped(f)(stack), looped(f)(stack))
    assert same([tg.vmap(lambda x: x.sum())(stack)], [stack.sum(1)])
