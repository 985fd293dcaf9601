"""Functions that go on where an operation raises or warns: recorded, batched, as sparse plans, at points on
both sides.

A plain call of NumPy's and differences judge plain transforms, which judge the rest: the same number, the
same error, or one of ours."""

import itertools
import warnings
from collections import Counter

import numpy as np
import pytest
from caught_programs import POINTS, Program

import tapegrad as tg
from tapegrad.errors import BatchError, GuardError, NonDifferentiableWarning, ReplayWarning

V = np.array([0.3, -0.7])
FORMS = {
    "value": (lambda f: f, lambda p: p.value),
    "grad": (tg.grad, lambda p: p.grad),
    "jvp": (lambda f: lambda x: tg.jvp(f, (x,), (V,))[1], lambda p: lambda x: p.jvp(x, V)[1]),
    "hvp": (lambda f: lambda x: tg.hvp(f, x, V), lambda p: lambda x: p.hvp(x, V)),
    "at": (
        lambda f: lambda x: tg.hvp(f, x, V),
        lambda p: lambda x: [here := p.at(x), here.hvp(-V), here.hvp(V)][-1],
    ),
    "nested": (lambda f: tg.grad(lambda x: tg.jvp(f, (x,), (V,))[1]), None),
    "vmap": (lambda f: lambda x: tg.vmap(f)(np.stack([x, x, x]))[1], None),
}
FILTERS = ("error", "ignore", "default")


def outcome(f, x):
    """A number or an array, or the class of an error."""
    try:
        y = f(x.copy())
        return y if type(y) is list else np.asarray(y)
    except Exception as error:
        return error


def agree(got, want, rtol=1e-9):
    if isinstance(got, Exception) or isinstance(want, Exception):
        return (
            isinstance(got, Exception)
            and isinstance(want, Exception)
            and (isinstance(got, type(want)) or type(want) is type(got))
        )
    return got.shape == want.shape and np.allclose(got, want, rtol, rtol, equal_nan=True)


def plainly(form, make, x):
    f, buf = make()
    return outcome(FORMS[form][0](f), x), buf


def recorded(form, make, first, on_change, compile):
    f, buf = make()
    nest, method = FORMS[form]
    if method is None:
        return tg.prepare(nest(f), first, on_change=on_change, compile=compile).value, buf
    return method(tg.prepare(f, first, on_change=on_change, compile=compile)), buf


def judged(program, form, on_change, filters, found, compile="auto"):
    """One prepared function, at all points, from the first on."""
    rng = np.random.default_rng(program.seed)
    points = [POINTS[k] for k in rng.permutation(len(POINTS))]
    points = [*points, *points[:3]]
    about = f"{form}, {on_change}, {filters}, seed {program.seed}\n{program.text}"
    with warnings.catch_warnings():
        warnings.simplefilter(filters)
        for told_once in (NonDifferentiableWarning, ReplayWarning):  # (a plain call tells of neither)
            warnings.simplefilter("ignore", told_once)
        with np.errstate(**({} if program.seed % 3 else {"over": "ignore"})):
            replayed, left = recorded(form, program.make, points[0], on_change, compile)
            plain = program.make()
            for x in points:
                want = outcome(FORMS[form][0](plain[0]), x)
                got = outcome(replayed, x)
                if isinstance(got, GuardError) and on_change == "raise":
                    found["refused"] += 1
                    left[:] = plain[1]
                    continue
                assert agree(got, want), f"{x}: {got!r} instead of {want!r}: {about}"
                if not isinstance(want, Exception):
                    assert np.allclose(left, plain[1]), f"{x}: captured {left} instead of {plain[1]}: {about}"
                found["right"] += 1
                left[:] = plain[1]


def of_plain(program):
    """Is the eager transform that of the plain function?  Its value is, and differences give the gradient
    where both sides go one way."""
    for x in POINTS:
        f, _ = program.make()
        want, (got, _) = outcome(f, x), plainly("value", program.make, x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = (
                outcome(tg.value_and_grad(program.make()[0]), x) if not isinstance(want, Exception) else None
            )
            assert agree(got, want)
            if found is None:
                continue
            value, gradient = tg.value_and_grad(program.make()[0])(x.copy())
            steps = [(x - 1e-6 * e, x + 1e-6 * e) for e in np.eye(2)]
            same = np.isfinite(want) and all(
                [program.ways(z) == program.ways(x) for pair in steps for z in pair]
            )
            sides = [(program.make()[0](a), program.make()[0](b)) for a, b in steps] if same else []
            # no kink, as of a root at zero
            same = same and all([abs(a + b - 2 * want) <= 1e-7 * (1 + abs(want)) for a, b in sides])
            differences = [(b - a) / 2e-6 for a, b in sides] if same else gradient
        assert np.allclose(value, want, 1e-12, equal_nan=True), program.text
        assert not x.all() or np.allclose(gradient, differences, 2e-4, 2e-4, equal_nan=True), (
            x,
            gradient,
            differences,
            program.text,
        )


def batched(program, found):
    """Samples in a batch: right or refused, and not refused where all of them go one way."""
    rng = np.random.default_rng(program.seed)
    one = [x for x in POINTS if program.ways(x) == program.ways(POINTS[0])]
    for some in (one, [POINTS[k] for k in rng.permutation(len(POINTS))[:3]]):
        for transform in (lambda f: f, tg.grad):
            want = [outcome(transform(program.make()[0]), x) for x in some]
            got = outcome(tg.vmap(transform(program.make()[0])), np.stack(some))
            failed = [w for w in want if isinstance(w, Exception)]
            if isinstance(got, BatchError):
                found["refused"] += 1
                assert some is not one or failed, f"{got}\n{program.text}"
                if "chunk=1" in str(got) and not failed:  # what the message says to write is right
                    one_by_one = transform(program.make()[0])
                    want = np.stack([one_by_one(x) for x in some])
                    alone = tg.vmap(transform(program.make()[0]), chunk=1)(np.stack(some))
                    assert agree(alone, want), f"{alone!r} instead of {want}\n{program.text}"
                    found["one by one"] += 1
            # a sample that is no model is nan
            elif failed and program.kind == "state space" and not isinstance(got, Exception):
                for y, w in zip(got, want, strict=True):
                    assert (
                        np.isnan(y).any() if isinstance(w, Exception) else agree(y, w) or np.isnan(y).any()
                    ), f"{got}, {want}\n{program.text}"
                found["right"] += 1
            elif failed:
                assert isinstance(got, Exception), f"{got} instead of {failed}\n{program.text}"
                found["raised"] += 1
            else:
                if program.kind == "state space":  # a sample that is no model is nan
                    want = np.where(np.isnan(got), np.nan, np.stack(want))
                assert agree(got, np.stack(want)), f"{got!r} instead of {want}\n{program.text}"
                found["right"] += 1


def planned(program, found, compile="auto"):
    """A sparse Jacobian, whose pattern depends on the way."""
    rng = np.random.default_rng(program.seed)
    make = lambda: program.make("y * 2.0 + buf")[0]
    for k in rng.permutation(4)[:2]:
        plan = outcome(lambda first: [tg.sparse.prepare_jacobian(make(), first, compile=compile)], POINTS[k])
        if isinstance(plan, Exception):
            want = outcome(tg.jacobian(make()), POINTS[k])
            assert agree(plan, want) or isinstance(plan, GuardError), (plan, want, program.text)
            found["refused"] += 1
            continue
        for x, setting in itertools.product(
            [x for x in (*POINTS, *POINTS[:2]) if x.all()], ({}, {"divide": "ignore"})
        ):
            with np.errstate(**setting):
                want = outcome(tg.jacobian(make()), x)
                got = outcome(lambda x: plan[0](x).toarray(), x)
            if isinstance(got, GuardError):
                found["refused"] += 1
                continue
            assert agree(got, want), (
                f"{x}, planned at {POINTS[k]}: {got!r} instead of {want!r}\n{program.text}"
            )
            found["right"] += 1


@pytest.mark.parametrize("seeds", [range(8), range(8, 16)], ids=str)
def test_recorded(seeds):
    found = Counter()
    for seed in seeds:
        program = Program(seed)
        forms, on_changes = [*FORMS], ("record", "raise")
        for form in (forms[seed % len(forms)], forms[(3 * seed + 1) % len(forms)]):
            judged(program, form, on_changes[seed % 2], FILTERS[seed % 3], found)
    assert found["right"] > 0.6 * found.total() and found["refused"] > 0, found


@pytest.mark.parametrize("seeds", [range(30, 42)], ids=str)
def test_batched(seeds):
    found = Counter()
    for seed in seeds:
        batched(Program(seed), found)
    assert found["right"] >= found["refused"] > 0, found


@pytest.mark.parametrize("seeds", [range(52, 56)], ids=str)
def test_sparse_plans(seeds):
    found = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            planned(Program(seed), found)
    assert found["right"] > 0 and found["refused"] > 0, found


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 50) for k in range(1000, 3000, 50)], ids=str)
def test_thousands(seeds):
    found = Counter()
    for seed in seeds:
        program = Program(seed)
        of_plain(program)
        for form, on_change in itertools.product(FORMS, ("record", "raise")):
            judged(program, form, on_change, FILTERS[seed % 3], found, (True, "auto", False)[seed % 5 % 3])
        batched(program, found)
        planned(program, found, ("auto", True)[seed % 2])
    print(dict(found))
