"""The engine under a trace that keeps the values to itself: right or loud, never wrong; and the loud ones are
few.

What batching and recording need of it, before they are there."""

import logging
from collections import Counter

import numpy as np
import pytest
from cases import all_cases
from hidden_values import Escaped, Hidden, at_both
from judged_programs import argument, maker
from random_programs import draw, source

import tapegrad as tg
from tapegrad._core import primitive
from tapegrad._core.arrays import copy_with_layout
from tapegrad._core.trees import leaves
from tapegrad._core.variable import like_layout
from tapegrad.ops import piecewise

FORMS = {
    "grad": lambda f, v: tg.grad(f),
    "jvp": lambda f, v: lambda x: tg.jvp(f, (x,), (v,)),
    "hvp": lambda f, v: lambda x: tg.hvp(f, x, v),
}


def near(x):
    y = np.array(x * (1 + 1e-4 * np.cos(np.arange(x.size)).reshape(x.shape)).astype(x.dtype))
    return like_layout(y, x) if np.ndim(x) else y[()]  # it lies in memory as x does


def same(got, want):
    got, want = [[v for v in leaves(tree) if v is not None] for tree in (got, want)]
    return len(got) == len(want) and all(
        np.shape(a) == np.shape(b)
        and np.asarray(a).dtype == np.asarray(b).dtype
        and np.allclose(a, b, 1e-7, 1e-9, equal_nan=True)
        for a, b in zip(got, want, strict=True)
    )


def outcome(make, first, second):
    """'right', 'wrong' or 'loud' (and why) for the function that `make()` gives, new for each run."""
    with np.errstate(all="ignore"):
        want = [make()(*[copy_with_layout(np.asarray(a))[()] for a in point]) for point in (first, second)]
        try:
            got = at_both(make(), first, second)
        except Exception as e:
            return "loud", f"{type(e).__name__}: {e}"
    return (
        ("right", "")
        if all(same(a, b) for a, b in zip(got, want, strict=True))
        else ("wrong", f"{got} instead of {want}")
    )


# --- random mutating programs ---


def run(seeds, bare=False):
    found, why = Counter(), Counter()
    for seed in seeds:
        program = draw(seed, bare=bare)
        make = maker(program, np)[0]
        x, v = argument(seed, np)
        for form, lift in FORMS.items():
            f = lambda lift=lift, make=make, v=v: lift(tg.Const(make()[0]) if bare else make()[0], v)
            result, reason = outcome(f, (x,), (near(x),))
            assert result != "wrong", f"seed {seed}, {form}: {reason}\n{source(program).text}"
            found[result] += 1
            why[reason] += bool(reason)
    print(dict(found), why.most_common(10))
    assert found["loud"] <= 0.02 * found.total(), why.most_common(10)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seeds", [range(40), range(40, 80)], ids=str)
def test_programs(seeds):
    run(seeds)


def test_programs_without_a_shadow():
    run(range(40), bare=True)


def between(seeds):
    """Transforms around the trace, too: its lanes hold tracked values then."""
    for seed in seeds:
        make = maker(draw(seed), np)[0]
        x, v = argument(seed, np)
        mixed = lambda ys: ys[0] * 1.3 + ys[1] * ys[1] * 0.2
        # both packed, as below
        hidden = lambda f: lambda x: mixed([y[0] for y in at_both(f, (x * 1.0,), (x * 1.0001,))])
        known = lambda x, make=make: mixed([make()[0](x * 1.0), make()[0](x * 1.0001)])
        with np.errstate(all="ignore"):
            for form, lift in FORMS.items():
                got, want = lift(hidden(make()[0]), v)(x), lift(known, v)(x)
                assert same(got, want), (
                    f"seed {seed}, {form}: {got} instead of {want}\n{source(draw(seed)).text}"
                )


def test_programs_between_transforms():
    between(range(30))


@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(k, k + 250) for k in range(80_000, 82_000, 250)], ids=str)
def test_two_thousand_programs_between_transforms(seeds):
    between(seeds)


@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(k, k + 250) for k in range(60_000, 70_000, 250)], ids=str)
def test_ten_thousand_programs(seeds):
    run(seeds)


@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(k, k + 250) for k in range(70_000, 72_000, 250)], ids=str)
def test_two_thousand_programs_without_a_shadow(seeds):
    run(seeds, bare=True)


# --- every operation ---


def weigh(y):
    y = y * (0.3 + 0.1 * np.cos(np.arange(y.size)).reshape(y.shape))
    return (y * y.conj()).real.sum() if y.dtype.kind == "c" else y.sum()


def forms_of(f, order, v):
    yield "value", f
    n = tuple(range(len(v)))

    def scalar(*args):
        return sum([weigh(y) for y in leaves(f(*args)) if y.dtype.kind in "fc"], 0.0 * abs(args[0]).sum())

    if order:
        yield "grad", tg.grad(scalar, n)
        yield "jvp", lambda *args: tg.jvp(f, args, v)
    if order > 1:
        yield "hvp", lambda *args: tg.jvp(tg.grad(scalar, n), args, v)[1]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", all_cases(), ids=repr)
def test_operations(case):
    of_floats, first = case.of_floats()
    v = tuple([np.linspace(0.3, 1, x.size).reshape(x.shape).astype(x.dtype) for x in first])
    for form, f in forms_of(of_floats, case.order, v):
        result, reason = outcome(lambda f=f: f, first, tuple([near(x) for x in first]))
        assert result == "right", f"{form}: {reason}"


def of_matrix(a):
    """exp of a symmetric matrix, weighed: smooth where eigenvalues are equal."""
    w, v = np.linalg.eigh(a)
    return (((v * np.exp(w)) @ v.T) * np.arange(9.0).reshape(3, 3)).sum()


@pytest.mark.filterwarnings("ignore:a derivative of eigenvectors")
@pytest.mark.parametrize(
    "f", [of_matrix, lambda a: np.linalg.eigh(a)[0][0] * 2.0, lambda a: np.linalg.svd(a)[1].sum()]
)
def test_equal_eigenvalues_are_right_or_nan(f):
    """Nobody can see here that they are equal."""
    a = np.diag([1.0, 1.0, 2.0])
    e = np.array([[0.3, 0.5, 0.1], [0.5, -0.2, 0.4], [0.1, 0.4, 0.7]])
    for g in (tg.grad(f), lambda a: tg.jvp(f, (a,), (e,))[1]):
        got, want = np.array(at_both(g, (a,), (a,))[1][0]), g(a)
        assert np.all(np.isnan(got) | np.isclose(got, want, 1e-10, 1e-10)), (got, want)
    apart = a + np.diag([0.0, 0.1, 0.0])
    assert outcome(lambda: tg.grad(f), (apart,), (near(apart),)) == ("right", "")


# --- the judge ---

X = np.array([0.3, -0.7, 0.2])


def test_a_rule_that_looks_at_values_is_seen(monkeypatch):
    """As the rule of `maximum` was, before it asked for primal values."""
    f = lambda: tg.grad(lambda x: np.maximum(x, x[::-1] * 2.0).sum())
    assert outcome(f, (X,), (near(X),)) == ("right", "")
    monkeypatch.setattr(piecewise, "primal_of", primitive.layout_of)
    result, reason = outcome(f, (X,), (near(X),))
    assert result == "loud" and reason.startswith("Escaped")


def test_a_value_frozen_at_one_point_is_wrong_at_the_other():
    """A trace that answers with the values of its first lane, and no guard."""

    class Careless(Hidden):
        def values(self, x):
            return self.lanes(x)[0]

    f = lambda x: x * int(x.sum() * 1e6)
    got = at_both(f, (X,), (near(X),), Careless)
    assert same(got[0], f(X)) and not same(got[1], f(near(X)))


def test_truths_and_counts_are_guards():
    f = lambda x: x * 2.0 if x[0] > 0 else x[: int((x > 0).sum())]
    assert same(at_both(f, (X,), (near(X),))[1], f(near(X)))
    with pytest.raises(Escaped, match="truth that differs"):
        at_both(f, (X,), (-X,))
    with pytest.raises(Escaped, match="values of dtype int64"):
        at_both(lambda x: x[: int((x > 0).sum())], (X,), (-X,))


def test_a_nan_of_one_lane_repeats_the_sweep():
    """Right where a product is 0 times inf, and where none is."""
    f = tg.grad(lambda x: np.where(x > 0, np.log(x) * x, 0.0).sum())
    points = np.array([0.5, 2.0]), np.array([0.0, 2.0])
    with np.errstate(all="ignore"):
        assert same(at_both(f, points[:1], points[1:])[1], f(points[1]))


def test_text_of_hidden_values_is_of_their_kind():
    shown = []
    at_both(lambda x: shown.extend([repr(x), str(x), f"{x}"]) or x, (X,), (X,))
    assert [f"is {text}" for text in shown] == ["is <array of float, not known here>"] * 3


def test_text_of_hidden_values_is_not_read():
    readers = [
        lambda t: t == "2.0", lambda t: float(t), lambda t: int(t), lambda t: len(t),
        lambda t: {"2.0": 1.0}.get(t), lambda t: t.split(),
        lambda t: "2" in t, lambda t: bool(t), lambda t: ("x" + t) < "y", lambda t: (t + "x")[0],
        lambda t: "2.0" != str(t),
        lambda t: hash(t),
    ]  # fmt: skip
    for read in readers:
        for write in (str, repr, lambda x: format(x, "20"), lambda x: f"{x}"):
            with pytest.raises(
                tg.errors.BatchError, match=r"test_hidden_values.py:\d+: reading the text of a tracked value"
            ):
                tg.vmap(lambda x, read=read, write=write: (read(write(x)), x)[1])(X)


@pytest.mark.parametrize("dtype", [float, np.float32, complex, int, np.uint8, bool])
@pytest.mark.parametrize("stack", [np.arange(3), np.arange(6).reshape(3, 2)], ids=["numbers", "arrays"])
def test_no_number_is_found_in_a_longer_text(stack, dtype):
    """Whatever part of the text is taken for a number."""
    texts = []

    def f(x):
        texts.extend(
            [f"x is {x}", f"{x!r} is x", f"x {x:.3f}", f"{x} {x}", str([x]), str((x, None)), repr({"x": x})]
        )
        return x

    tg.vmap(f)(stack.astype(dtype))
    assert len(texts) == 7
    assert [found for text in texts if type(text) is str for found in numbers_in(text)] == []
    assert {"1", "1.5"} <= set(numbers_in("x is 1.5"))


def numbers_in(text):
    parts = {text[start:stop] for start in range(len(text)) for stop in range(start + 1, len(text) + 1)}
    return [part for part in parts if any([is_number(part, read) for read in (float, int, complex)])]


def is_number(part, read):
    try:
        read(part)
    except ValueError:
        return False
    return True


def test_text_under_vmap_is_shown(capsys, caplog):
    table = np.array([1.5, 2.5])

    def f(x):
        print(x, f"x is {x}", [x])
        logging.getLogger("model").warning(f"{x}")
        return x * float(str(table[1])) * len(repr(table))  # the same for all samples

    assert np.array_equal(tg.vmap(f)(X), X * 2.5 * len("Variable(array([1.5, 2.5]))"))
    text = "<float, not known here>"
    assert capsys.readouterr().out == f"{text} x is {text} [{text}]\n"
    assert caplog.messages == [text]
