"""Random object graphs, view chains and foreign writes: the derivative is right, or an error of tapegrad's
own is raised.

The judge is NumPy, running the same text at points of a line (`judged_routes.py`).  A failure prints the
smallest text that is still wrong.  With `-rP` each test prints how many were right and how many raised."""

from collections import Counter

import judged_routes
import numpy as np
import pytest
import random_foreign
import random_graphs
import random_views
from judged_routes import Text, Verdict, judge, report, runs, shrunk

import tapegrad as tg

SEARCHERS = {"graphs": random_graphs.draw, "views": random_views.draw, "foreign": random_foreign.draw}
BATCH = 40
# the share that may raise an exception that is not tapegrad's own: loud, but poor
FOREIGN = {"graphs": 0.1, "views": 0.2, "foreign": 0.1}
# the share that may raise at all, give or take what chance does in one batch
LOUD = {"graphs": 0.25, "views": 0.4, "foreign": 0.45}
DEEP = 3  # one program in so many is judged in second order and at a second call


def run(kind: str, seeds: range) -> None:
    found = Counter()
    for seed in seeds:
        deep = seed % DEEP == 0
        text = SEARCHERS[kind](seed)
        verdict = judge(text, deep)
        found[verdict.outcome()] += 1
        if verdict.silent():
            pytest.fail(report(text, deep), pytrace=False)
    print(dict(found))
    assert found["unsure"] <= len(seeds) // 4, found
    assert found["raised"] <= FOREIGN[kind] * len(seeds) + 3, found
    loud, n = LOUD[kind], len(seeds)
    # 3.5 standard deviations above the share: one of five hundred batches is beyond two and a half of them
    assert found["raised"] + found["loud"] <= loud * n + 3.5 * (loud * (1 - loud) * n) ** 0.5, found


def batches(number: int, first: int = 0) -> list:
    return [range(k, min(k + BATCH, first + number)) for k in range(first, first + number, BATCH)]


def named(x):
    return f"{x.start}-{x.stop - 1}" if isinstance(x, range) else x


@pytest.mark.smoke
@pytest.mark.parametrize("seeds", batches(20), ids=named)
@pytest.mark.parametrize("kind", SEARCHERS)
def test_programs(kind, seeds):
    run(kind, seeds)


@pytest.mark.long
@pytest.mark.parametrize("seeds", batches(4000, 10_000), ids=named)
@pytest.mark.parametrize("kind", SEARCHERS)
def test_four_thousand_programs(kind, seeds):
    run(kind, seeds)


def one_route(name: str, expression: str, back: bool) -> Text:
    """An array that is written by its name and read by one route, or the other way round."""
    lines = random_graphs.KINDS[name][0].format(n="c2", v="c1", i=2)
    ways = ["c1", expression.format(o="c2", n="c2", i=2)]
    a, b = ways[::-1] if back else ways
    return Text(
        ("c1 = np.linspace(0.2, 0.6, 3)", lines),
        (f"({a})[...] = x * x", f"s = s + red({b}) * x[0]"),
        (ways[1],),
    )


def both(names, *ids: str):
    """Parameters (name, back)."""
    marks = [[], pytest.mark.long]  # by default each name in one of the two orders
    pairs = [
        pytest.param(name, back, id=f"{name}-{ids[back]}", marks=marks[(k + back) % 2])
        for k, name in enumerate(names)
        for back in (False, True)
    ]
    return pytest.mark.parametrize("name, back", pairs)


@pytest.mark.one_in(3)
@both(random_graphs.KINDS, "name first", "route first")
def test_each_route(name, back):
    """By each expression of each kind, alone."""
    texts = [one_route(name, expression, back) for expression in random_graphs.KINDS[name][1]]
    sound = [text for text in texts if runs(text)]
    assert len(sound) >= len(texts) - 2 and sound, [text.source() for text in texts]
    for text in sound:
        if judge(text).silent():
            pytest.fail(report(text), pytrace=False)


@both(random_graphs.ARRAYS, "array first", "alias first")
def test_each_alias(name, back):
    """Two captured arrays over the same memory: one is written, the other read."""
    found = Counter()
    for alias in random_graphs.ALIASES:
        a, b = ("c2", "c1") if back else ("c1", "c2")
        head = (name.format(n="c1"), "c2 = " + alias.format(v="c1"))
        text = Text(head, (f"{a}[...] = fit(x, {a}) * 0.8", f"s = s + red({b}) * x[0]"), ("c1", "c2"))
        if runs(text):
            verdict = judge(text, deep=False)
            found[verdict.outcome()] += 1
            if verdict.silent():
                pytest.fail(report(text, deep=False), pytrace=False)
    print(dict(found))
    assert found["right"] >= 10, found


# --- the judge ---

SOUND = Text(("buf = np.full(3, 0.5)",), ("buf[...] = x * x", "s = s + red(buf) * x[0]"), ("buf",))


def test_a_sound_program_is_right():
    verdict = judge(SOUND)
    assert verdict.outcome() == "right"
    assert {*verdict.right} == {"grad", "second call", "jvp", "pullback", "f raises", "hvp", "RR", "RF", "FF"}


@pytest.mark.parametrize("off", [1 + 1e-6, 0.0])
def test_a_wrong_derivative_is_seen(monkeypatch, off):
    exact = tg.value_and_grad
    monkeypatch.setattr(tg, "value_and_grad", lambda f: lambda x: (lambda y, g: (y, g * off))(*exact(f)(x)))
    assert [check for check, *_ in judge(SOUND).wrong] == ["grad", "second call"]


def test_a_wrong_second_derivative_is_seen(monkeypatch):
    exact = tg.hvp
    monkeypatch.setattr(tg, "hvp", lambda *args: exact(*args) * 1.001)
    assert [check for check, *_ in judge(SOUND).wrong] == ["hvp"]


def test_what_is_left_is_seen(monkeypatch):
    """A captured array that is not as a plain call leaves it, an argument that was written, a Variable that
    stayed."""
    exact = tg.value_and_grad

    def careless(change):
        return lambda f: lambda x: (exact(f)(x), change(f.__globals__, x))[0]

    monkeypatch.setattr(tg, "value_and_grad", careless(lambda space, x: space["buf"].fill(0.0)))
    assert judge(SOUND, deep=False).wrong[0][0] == "grad, left in buf"
    monkeypatch.setattr(tg, "value_and_grad", careless(lambda space, x: x.fill(0.0)))
    assert judge(SOUND, deep=False).wrong[0][0] == "grad"
    monkeypatch.setattr(
        tg, "value_and_grad", careless(lambda space, x: space["f"].__dict__.update(kept=[tg.Variable(x)]))
    )
    assert judge(SOUND, deep=False).wrong[0][:2] == ("grad, left", "a Variable at /dict/function/dict/list")


def test_errors_are_told_apart(monkeypatch):
    def raising(error):
        def transform(f):
            raise error

        return transform

    monkeypatch.setattr(tg, "value_and_grad", raising(tg.errors.AliasError("said")))
    assert judge(SOUND, deep=False).outcome() == "loud"
    monkeypatch.setattr(tg, "value_and_grad", raising(KeyError("of the engine")))
    verdict = judge(SOUND, deep=False)
    assert verdict.outcome() == "raised"
    assert verdict.wrong[0] == ("grad", "KeyError: 'of the engine'", None)


def test_programs_that_numpy_refuses_are_not_judged():
    assert not runs(Text((), ("s = s + x[7]",)))
    assert judge(Text((), ("s = s + x[7]",))).unjudged.startswith("invalid: IndexError")
    assert not runs(Text((), ("s = s + 1.0",)))  # no derivative to be wrong


def test_programs_are_shrunk_to_what_fails(monkeypatch):
    """Of a long text, the lines that matter stay."""
    monkeypatch.setattr(
        judged_routes,
        "judged",
        lambda text, deep: Verdict(wrong=[("grad", 1.0, 2.0)] if "t = x[0]" in text.body else []),
    )
    long = Text(
        tuple(f"a{k} = {k}" for k in range(9)),
        ("s = s + x[1]", "t = x[0]", "s = s + t", "s = s * 2.0"),
        ("a1",),
    )
    assert shrunk(long) == Text((), ("t = x[0]",), ())


@pytest.mark.parametrize("kind", SEARCHERS)
def test_the_same_seed_gives_the_same_program(kind):
    assert [SEARCHERS[kind](seed) for seed in range(5)] == [SEARCHERS[kind](seed) for seed in range(5)]


def test_links_are_views():
    """The links of view chains share memory with what they are given: some that every user knows are among
    them."""
    found = {text for texts in random_views.links() for text in texts}
    assert {
        "{a}.T",
        "np.ravel({a})",
        "{a}.view()",
        "np.diagonal({a})",
        "np.real({a})",
        "{a}.conj()",
        "np.einsum('ii->i', {a})",
    } <= found
    a = np.full((3, 3), 0.5)
    assert all(
        np.shares_memory(a, eval(text.replace("{a}", "a"))) for text in ("np.flip(a)", "a.swapaxes(0, 1)")
    )
