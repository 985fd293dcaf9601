"""Random programs that write in place, recorded and replayed at other points: right, captured arrays
included.

A function that rebinds a name, an attribute or a member at each call is run plainly ("state"); few others
are."""

import contextlib
import importlib
import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from caught_programs import around
from judged_programs import argument, maker
from looped import same
from random_programs import draw, source

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.errors import AliasError
from tapegrad.replay import emitted

FORMS = {
    "value": (lambda f: f, lambda p: p.value),
    "grad": (tg.grad, lambda p: p.grad),
    "jvp": (lambda f: lambda x, v: tg.jvp(f, (x,), (v,)), lambda p: p.jvp),
    "hvp": (lambda f: lambda x, v: tg.hvp(f, x, v), lambda p: p.hvp),
}
NESTED = {  # f and a direction -> a second derivative, prepared as a whole
    "forward over reverse": lambda f: lambda x, v: tg.jvp(tg.grad(f), (x,), (v,))[1],
    "reverse over forward": lambda f: lambda x, v: tg.grad(lambda x: tg.jvp(f, (x,), (v,))[1])(x),
    "reverse over reverse": lambda f: lambda x, v: tg.grad(lambda x: (tg.grad(f)(x) * v).sum())(x),
    "forward over forward": lambda f: lambda x, v: tg.jvp(lambda x: tg.jvp(f, (x,), (v,))[1], (x,), (v,))[1],
}


class Constants:
    """A captured array whose content changes from call to call, and a number that changes once."""

    def __init__(self):
        self.scale, self.factor = np.ones(2), 0.5

    def move(self, k):
        self.scale[:] = 1.0 + 0.02 * k
        self.factor = 0.5 if k < 3 else -0.75

    def around(self, f):
        return lambda x: f(x * self.scale[1]) * self.factor


def forms_of(make, x, v, all_forms, seed=0):
    """(name, plain function, prepared one, its form, captured arrays after each, constants to be moved)"""
    for name, (plain, method) in FORMS.items():
        (f, shown, _), (h, left, _) = make(), make()
        p = tg.prepare(h, x)
        yield name, plain(f), method(p), p.forms[name], shown, left, None
    for name, nest in NESTED.items() if all_forms else ():
        (f, shown, _), (h, left, _) = make(), make()
        p = tg.prepare(nest(h), x, v)
        yield name, nest(f), p, p.forms["value"], shown, left, None
    (f, shown, _), (h, left, _) = make(), make()
    p = tg.prepare(around(h, seed), x)
    yield "caught", tg.grad(around(f, seed)), p.grad, p.forms["grad"], shown, left, None
    (f, shown, _), (h, left, _), constants = make(), make(), Constants()
    p = tg.prepare(constants.around(h), x)
    yield "constants", tg.grad(constants.around(f)), p.grad, p.forms["grad"], shown, left, constants


def points(x):
    """Near, elsewhere, on the other side of each branch, and at the first again."""
    return [x, x * 1.01, np.linspace(0.4, -0.6, 5), -x, x]


def beside(make, x, v, all_forms, seed, name, k, directions):
    """What a plain function gives at a point a rounding away, after the same calls before."""
    plain, constants = next(
        (form[1], form[-1]) for form in forms_of(make, x, v, all_forms, seed) if form[0] == name
    )
    for j, point in enumerate(points(x)[: k + 1]):
        if constants is not None:
            constants.move(j)
        y = plain(point * (1 + 1e-15) if j == k else point.copy(), *directions)
    return [np.asarray(u) for u in leaves(y)]


def within(got, want, moved):
    """Is the difference no more than a rounding of the point makes?"""
    return got.shape == want.shape and np.abs(got - want).max(initial=0) <= np.abs(moved - want).max(
        initial=0
    )


def judged(seed, found, why, all_forms=True):
    program = draw(seed)
    make = maker(program, np)[0]
    x, v = argument(seed, np)
    with np.errstate(all="ignore"):
        for name, plain, prepared, form, shown, left, constants in forms_of(make, x, v, all_forms, seed):
            directions = (v,) if name in ("jvp", "hvp", *NESTED) else ()
            for k, point in enumerate(points(x)):
                if constants is not None:
                    constants.move(k)
                try:
                    want = plain(point.copy(), *directions)
                except AliasError:
                    with contextlib.suppress(
                        AliasError
                    ):  # (arguments of a recording have memory of their own, as those of jvp have)
                        got = prepared(point.copy(), *directions)
                        assert name == "value" and same(
                            [got], [tg.jvp(plain, (point.copy(),), (v,))[0]], 1e-9
                        )
                    found["refused"] += 1
                    break
                got = prepared(point.copy(), *directions)
                got, want = [[np.asarray(y) for y in leaves(ys)] for ys in (got, want)]
                about = f"seed {seed}, {name}, point {k}: {got} instead of {want}\n{source(program).text}"
                if not same(got, want, 1e-9):  # of numbers of 1e45 a sine has few digits
                    moved = beside(make, x, v, all_forms, seed, name, k, directions)
                    assert all(
                        [
                            same([a], [b], 1e-9) or within(a, b, c)
                            for a, b, c in zip(got, want, moved, strict=True)
                        ]
                    ), about
                    found["rounding"] += 1
                assert same(leaves(left()), leaves(shown()), 1e-9), f"captured arrays: {about}"
            assert name == "caught" or not any([kept.failures for kept in form.programs]), (
                f"seed {seed}, {name}: a replay raised"
            )
            changes = form.eager is not None and form.eager.startswith("a call changes")
            found["state" if changes else "plain" if form.eager else "replayed"] += 1
            why[form.eager] += form.eager is not None and not changes
            found["replays"] += form.replays


def run(seeds, sparsely=False):
    found, why = Counter(), Counter()
    for seed in seeds:
        judged(seed, found, why, not sparsely or seed % 6 == 1)
    print(dict(found), why.most_common(20))
    assert found["plain"] <= 0.02 * found["replayed"] and found["state"] <= found["replayed"], (
        why.most_common(20)
    )
    assert found["replays"] > 2 * found["replayed"] and found["rounding"] <= 0.002 * found["replayed"]


@pytest.fixture(params=["small", "as if large"])
def arrays(request, monkeypatch):
    """Small arrays run in blocks; large ones one by one, in memory that is used again."""
    if request.param == "as if large":
        monkeypatch.setattr(emitted, "REUSED_BYTES", 1)
        monkeypatch.setattr(emitted, "block_ranges", lambda program, *rest: [])


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(6)], ids=str)
def test_programs(arrays, seeds):
    run(seeds, sparsely=True)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 250) for k in range(100_000, 110_000, 250)], ids=str)
def test_ten_thousand_programs(arrays, seeds):
    run(seeds)


@pytest.mark.long
def test_no_replay_of_the_reaction_and_diffusion_benchmark_is_done_twice(monkeypatch):
    """Its groups take what blocks give: parts of an array, without the gaps that they had when recorded."""
    monkeypatch.setattr(os, "environ", dict(os.environ))  # the benchmarks set variables
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    mutation = importlib.import_module("mutation")
    for name in ("mutation", "_harness"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(mutation, "STEPS", 10)
    f, p = mutation.gm3_loss(128), mutation.P
    q = tg.prepare(f, p, compile=True)
    for k in range(4):
        np.testing.assert_allclose(q.grad(p + 0.01 * k), tg.grad(f)(p + 0.01 * k), rtol=1e-10)
    kept = q.forms["grad"].programs[0]
    assert kept.emitted.groups and not kept.refusals and not kept.failures
