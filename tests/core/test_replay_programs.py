"""Random programs that write in place, recorded and replayed at other points: right, captured arrays included.

A function that rebinds a name, an attribute or a member at each call is run plainly ("state"); few others are."""

import contextlib
from collections import Counter

import numpy as np
import pytest
from judged_programs import argument, maker
from looped import same
from random_programs import draw, source

import tapegrad as tg
from tapegrad._tree import leaves
from tapegrad.errors import AliasError
from tapegrad.replay import _emitted

FORMS = {
    "value": (lambda f: f, lambda p: p.value),
    "grad": (tg.grad, lambda p: p.grad),
    "jvp": (lambda f: lambda x, v: tg.jvp(f, (x,), (v,)), lambda p: p.jvp),
    "hvp": (lambda f: lambda x, v: tg.hvp(f, x, v), lambda p: p.hvp),
}


def points(x):
    """Near, elsewhere, on the other side of each branch, and at the first again."""
    return [x, x * 1.01, np.linspace(0.4, -0.6, 5), -x, x]


def judged(seed, found, why):
    program = draw(seed)
    make = maker(program, np)[0]
    x, v = argument(seed, np)
    with np.errstate(all="ignore"):
        for name, (plain, prepared) in FORMS.items():
            (f, shown, _), (h, left, _) = make(), make()
            directions = (v,) if name in ("jvp", "hvp") else ()
            p = tg.prepare(h, x)
            for k, point in enumerate(points(x)):
                try:
                    want = plain(f)(point.copy(), *directions)
                except AliasError:
                    with contextlib.suppress(AliasError):  # (arguments of a recording have memory of their own, as those of jvp have)
                        got = prepared(p)(point.copy(), *directions)
                        assert name == "value" and same([got], [tg.jvp(f, (point.copy(),), (v,))[0]], 1e-9)
                    found["refused"] += 1
                    break
                got = prepared(p)(point.copy(), *directions)
                got, want = [[np.asarray(y) for y in leaves(ys)] for ys in (got, want)]
                about = f"seed {seed}, {name}, point {k}: {got} instead of {want}\n{source(program).text}"
                assert same(got, want, 1e-9), about
                assert same(leaves(left()), leaves(shown()), 1e-9), f"captured arrays: {about}"
            form = p.forms[name]
            assert not any([kept.failures for kept in form.programs]), f"seed {seed}, {name}: a replay raised"
            changes = form.eager is not None and form.eager.startswith("a call changes")
            found["state" if changes else "plain" if form.eager else "replayed"] += 1
            why[form.eager] += form.eager is not None and not changes
            found["replays"] += form.replays


def run(seeds):
    found, why = Counter(), Counter()
    for seed in seeds:
        judged(seed, found, why)
    print(dict(found), why.most_common(20))
    assert found["plain"] <= 0.02 * found["replayed"] and found["state"] <= found["replayed"], why.most_common(20)
    assert found["replays"] > 2 * found["replayed"]


@pytest.fixture(params=["small", "as if large"])
def arrays(request, monkeypatch):
    """Small arrays run in blocks; large ones one by one, in memory that is used again."""
    if request.param == "as if large":
        monkeypatch.setattr(_emitted, "LARGE", 1)
        monkeypatch.setattr(_emitted, "runs", lambda program, *rest: [])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(6)], ids=str)
def test_programs(arrays, seeds):
    run(seeds)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 250) for k in range(100_000, 110_000, 250)], ids=str)
def test_ten_thousand_programs(arrays, seeds):
    run(seeds)
