"""Random programs with in-place writes: every derivative right, in every nesting, on NumPy and CuPy.

A failure prints the smallest program that is still wrong, as Python source.  With `-rP` each test prints its
share of programs judged."""

from collections import Counter

import _jets
import numpy as np
import pytest
import random_programs
from judged_programs import judge, outcome, report, shrunk
from random_programs import KINDS, Program, draw, source

import tapegrad as tg

BATCH = 40
CHECKS = (
    "value",
    "gradient",
    "second call",
    "value of jvp",
    "jvp",
    "pullback after another call",
    "pullback again",
    "argument",
    "RR and FR",
    "RF and FR",
    "FF and FR",
    "hmp and FR",
    "second order",
)


def run(seeds, xp=np, **settings):
    """Judge the programs of these seeds; fail with the first that is wrong, or if too many are not judged.

    Complex steps and differences have to confirm most gradients, and for products a part: not those of
    programs with transforms inside.  Jets follow NumPy; a few programs mean something else on CuPy, where a
    copy is a view."""
    done = Counter()
    for seed in seeds:
        program = draw(seed, **settings)
        verdict = judge(program, xp)
        done.update(set(verdict.done))
        done["judged"] += not verdict.unjudged and not verdict.wrong
        if verdict.wrong:
            pytest.fail(report(program, xp), pytrace=False)
    n = len(seeds)
    print(f"{done['judged']} of {n} judged;", dict(done))
    assert n - done["judged"] <= n // 20, done
    assert all(done[check] >= done["judged"] for check in CHECKS), done
    assert done["value by jets"] >= (done["judged"] if xp is np else 0.9 * n), done
    assert done["gradient by differences"] >= 0.8 * n and done["second order by differences"] >= 0.25 * n, (
        done
    )


def batches(first, number):
    return [range(k, k + BATCH) for k in range(first, first + number, BATCH)]


def named(seeds):
    return f"{seeds.start}-{seeds.stop - 1}"


@pytest.mark.one_in(2)
@pytest.mark.smoke
@pytest.mark.parametrize("seeds", batches(0, 80), ids=named)
def test_programs(seeds):
    run(seeds)


@pytest.mark.parametrize("seeds", batches(0, 40), ids=named)
def test_programs_without_a_shadow(seeds):
    """Plain arrays are then seen by the tape alone, while the program changes them."""
    run(seeds, bare=True)


@pytest.mark.cupy_only
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 90), marks=pytest.mark.long)], ids=named)
def test_programs_on_cupy(xp, seeds):
    run(seeds, xp, cupy=True)


@pytest.mark.long
@pytest.mark.parametrize("seeds", batches(10_000, 10_000), ids=named)
def test_ten_thousand_programs(seeds):
    run(seeds)


@pytest.mark.long
@pytest.mark.parametrize("seeds", batches(20_000, 2_000), ids=named)
def test_two_thousand_programs_without_a_shadow(seeds):
    run(seeds, bare=True)


@pytest.mark.long
@pytest.mark.cupy_only
@pytest.mark.parametrize("seeds", batches(30_000, 600), ids=named)
def test_six_hundred_programs_on_cupy(xp, seeds):
    run(seeds, xp, cupy=True)


# --- the judge ---


def off_by(monkeypatch, factor):
    """The judge expects gradients that are larger by that factor."""
    derivatives = _jets.derivatives

    def shifted(*args, **kwargs):
        y, g, product = derivatives(*args, **kwargs)
        return y, g * factor, product

    monkeypatch.setattr(_jets, "derivatives", shifted)


def test_a_wrong_derivative_is_seen(monkeypatch):
    """An engine that is off by a part in 10^8 is wrong, and so is one that raises."""
    program = next(p for p in map(draw, range(100)) if "tg" not in source(p).text)
    assert outcome(judge(program)) == "right"
    with monkeypatch.context() as patch:
        off_by(patch, 1 + 1e-8)
        assert [check for check, *_ in judge(program).wrong] == ["gradient"]
    monkeypatch.setattr(tg, "grad", lambda f: lambda x: x.missing)
    assert outcome(judge(program)) == "raised"


CANCELLING = """
def setting():
    def f(x):
        y = x * 1e10 + 9.0 * x * x
        return (y - x * 1e10).sum()
    return f, lambda: [], None
"""


@pytest.mark.parametrize("factor, expected", [(1 + 1e-7, "unjudged"), (1.001, "wrong")])
def test_rounding_is_told_from_a_mistake(monkeypatch, factor, expected):
    """The gradient of this program has about seven digits: an error below them is not judged, one above is
    wrong."""
    monkeypatch.setattr(
        random_programs, "source", lambda program: random_programs.Source(CANCELLING, False, ["x"])
    )
    off_by(monkeypatch, factor)
    assert outcome(judge(Program((), 1))) == expected


def test_an_overflow_is_unjudged(monkeypatch):
    text = CANCELLING.replace("1e10", "1e300 * 1e10")
    monkeypatch.setattr(random_programs, "source", lambda program: random_programs.Source(text, False, ["x"]))
    assert outcome(judge(Program((), 1))) == "unjudged"


# --- the programs themselves ---


def test_every_kind_is_drawn():
    """The default run reaches each kind of statement several times."""
    drawn = Counter(name for seed in range(400) for name, _ in draw(seed).statements)
    assert min(drawn[name] for name in KINDS) >= 5, drawn.most_common()[-5:]


def test_the_same_seed_gives_the_same_program():
    assert [source(draw(seed)).text for seed in range(20)] == [source(draw(seed)).text for seed in range(20)]


def test_programs_are_shrunk_to_what_fails():
    """Of a long program, the statement that matters stays, and runs."""

    def is_wrong(program):
        return "for k, r in enumerate(" in source(program).text

    program = next(p for p in map(draw, range(1000)) if len(p.statements) > 9 and is_wrong(p))
    small = shrunk(program, is_wrong)
    assert len(small.statements) <= 2
    assert "rows" in [name for name, _ in small.statements]
    assert len(source(small).names) == 1
    space = {"np": np, "__name__": "random_program"}
    exec(source(small).text, space)
    assert np.isfinite(space["setting"]()[0](np.ones(5)))


def test_a_report_is_a_program(monkeypatch):
    """What is printed for a failure can be pasted and run."""
    monkeypatch.setattr(random_programs, "KINDS", dict(KINDS))
    program = Program((("set_region", 1), ("augmented", 2), ("overlap", 3)), seed=5)
    text = report(program, is_wrong=lambda p: "x" in source(p).text)
    code = text.split("\n\n", 1)[1]
    space = {"__name__": "random_program"}
    exec(code, space)
    assert np.isfinite(space["f"](space["x"].copy()))
