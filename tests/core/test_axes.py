"""Random programs on each axis of what ordinary code does besides arithmetic: right, or refused by an error
of tapegrad's, never wrong.

`python tests/core/test_axes.py FIRST NUMBER` judges that many programs from seed FIRST, the axes by turns,
and prints one table."""

import sys
import warnings
from collections import Counter

import numpy as np
import pytest
import random_foreign
import random_graphs
import random_views
import test_caught_exceptions
import test_hashing
import test_interrupts
import typed_programs
from caught_programs import Program
from judged_programs import argument, maker
from judged_routes import judge, report
from random_programs import draw, source

import tapegrad as tg
from tapegrad._core.variable import Variable
from tapegrad.errors import AliasError

DIRECTION = np.array([0.8, 0.5, -0.9, 0.3, 0.6])
STRUCK = {
    "grad": lambda f, x: tg.grad(f)(x),
    "jvp": lambda f, x: tg.jvp(f, (x,), (DIRECTION,))[1],
    "hvp": lambda f, x: tg.hvp(f, x, DIRECTION),
    "pullback": lambda f, x: tg.vjp(f, x)[1](1.0),
    "replay": lambda f, x: [p := tg.prepare(f, x), p.grad(x)][-1],
    "vmap": lambda f, x: tg.vmap(f)(np.stack([x, x]))[1],
}


def dtypes(seed):
    typed = typed_programs.drawn(seed)
    kind = typed_programs.outcome(typed)
    if kind in ("wrong", "raised"):
        raise AssertionError(typed_programs.report(typed))
    return kind


def routes(draw):
    """Of programs whose judge is `judged_routes`; an error of another's is refused too."""

    def axis(seed):
        text, deep = draw(seed), seed % 3 == 0
        verdict = judge(text, deep)
        if verdict.silent():
            raise AssertionError(report(text, deep))
        kind = verdict.outcome()
        return "right" if kind == "right" else "refused" if kind in ("loud", "raised") else "unjudged"

    return axis


def caught(seed):
    """Exceptions and warnings: as it is, recorded, in a batch and as a sparse plan."""
    program, found = Program(seed), Counter()
    forms = [*test_caught_exceptions.FORMS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        test_caught_exceptions.of_plain(program)
        test_caught_exceptions.judged(
            program,
            forms[seed % len(forms)],
            ("record", "raise")[seed % 2],
            test_caught_exceptions.FILTERS[seed % 3],
            found,
        )
        test_caught_exceptions.batched(program, found)
        if seed % 4 == 0:
            test_caught_exceptions.planned(program, found)
    return "refused" if found["refused"] else "right"


def hashing(seed):
    test_hashing.judge(seed)
    return "right"


def interrupts(seed):
    """An exception at one instruction; afterwards the same call, and one of a new function, give what they
    gave."""
    r = np.random.default_rng(seed)
    program = draw(seed)
    make, x = maker(program, np)[0], argument(seed, np)[0]
    name = str(r.choice([*STRUCK]))

    def begun():
        f, show, reset = make()

        def check():
            assert not any([isinstance(v, Variable) for v in show()]), (
                f"{name}, a Variable is left\n{source(program).text}"
            )

        def call():
            reset()
            return STRUCK[name](f, x.copy())

        return call, check

    with np.errstate(all="ignore"):
        try:
            expected = begun()[0]()
        except (AliasError, tg.errors.BatchError):
            return "refused"
        if not np.all(np.isfinite(expected)):
            return "unjudged"
        count = test_interrupts.struck(begun, None)[0].count
        test_interrupts.strike(
            f"{name}\n{source(program).text}", begun, expected, int(r.integers(1, count + 1))
        )
    return "right"


AXES = {
    "dtypes": dtypes, "exceptions and warnings": caught, "hashing and equality": hashing,
    "foreign objects": routes(random_foreign.draw),
    "object graphs": routes(random_graphs.draw), "views": routes(random_views.draw), "interrupts": interrupts,
}  # fmt: skip


def run(name, seeds):
    found = Counter([AXES[name](seed) for seed in seeds])
    print(dict(found))
    assert found["unjudged"] <= 0.15 * len(seeds) + 3, found
    return found


@pytest.mark.parametrize("name", AXES)
@pytest.mark.filterwarnings("ignore")
def test_programs(name):
    run(name, range(2))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 50) for k in range(90_000, 91_450, 50)], ids=str)
@pytest.mark.parametrize("name", AXES)
def test_ten_thousand_programs(name, seeds):
    run(name, seeds)


# --- the judge of dtypes ---


def test_a_wrong_derivative_is_seen(monkeypatch):
    typed = next(
        t
        for t in map(typed_programs.drawn, range(100))
        if not t.digits and "tg" not in source(t.program).text
    )
    assert typed_programs.judge(typed) == ([], [])
    exact = tg.jvp
    monkeypatch.setattr(tg, "jvp", lambda *args: (lambda y, t: (y, t * (1 + 1e-5)))(*exact(*args)))
    assert {"jvp", "FF", "RF"} >= {check for check, *_ in typed_programs.judge(typed)[0]} >= {"jvp"}
    monkeypatch.setattr(tg, "grad", lambda f: lambda x: x.missing)
    assert typed_programs.outcome(typed) == "wrong"
    assert "seed" in typed_programs.report(typed)


@pytest.mark.long
def test_every_form_is_drawn():
    """Of real and of complex numbers."""
    found = {
        (t.complex, form)
        for t in map(typed_programs.drawn, range(300))
        for form in t.forms
        if form in typed_programs.text_of(t, False)
    }
    assert found == {(c, form) for c in (False, True) for form in typed_programs.FORMS}


def main(first, number):
    found = {name: Counter() for name in AXES}
    for k in range(int(number)):
        name = [*AXES][k % len(AXES)]
        try:
            found[name][AXES[name](int(first) + k // len(AXES))] += 1
        except Exception as error:
            found[name]["wrong"] += 1
            print(f"{name}, seed {int(first) + k // len(AXES)}: {type(error).__name__}: {error}", flush=True)
        if k % 500 == 499:
            print(k + 1, {n: dict(c) for n, c in found.items()}, flush=True)
    print({n: dict(c) for n, c in found.items()}, dict(sum(found.values(), Counter())))


if __name__ == "__main__":
    main(*sys.argv[1:])
