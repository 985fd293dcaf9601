"""A record's saved values can be changed by nobody: every operation as "operate, overwrite each operand,
setting and result in place, then sweep".  Forward mode, which computes derivatives at once, is the
reference."""

import dis
import functools
import inspect
import itertools

import numpy as np
import pytest
from _calls_seen import active, calls
from comparison import floats
from sealed import BrokenSealError, sealed

import tapegrad as tg
from tapegrad._core import reverse
from tapegrad._core.variable import Variable
from tapegrad.ops import shaping
from tapegrad.ops.declare import PRIMITIVES, reads


def overwrite(x):
    """Everything in x that can be written, with other contents."""
    if type(x) is list:
        for v in x:
            overwrite(v)
        x.clear()
    elif type(x) is tuple:
        for v in x:
            overwrite(v)
    elif isinstance(x, (Variable, np.ndarray)) and np.size(x) and np.shape(x):
        if isinstance(x, Variable) or x.flags.writeable:
            try:
                x[...] = 7 if x.dtype.kind in "iufc" else ~x
            except ValueError:
                assert not x.flags.writeable
    return x


def rebuilt(x, operands, xp=np):
    """The arguments x with its float arrays taken from the iterator `operands`, other arrays and lists
    copied."""
    if active(x) and isinstance(x, np.ndarray):
        return next(operands)
    if type(x) in (list, tuple):
        return type(x)([rebuilt(v, operands, xp) for v in x])
    return xp.array(x) if isinstance(x, np.ndarray) else x


def local(n, x):
    b = np.zeros(x.shape, x.dtype, like=x)
    b[...] = x
    return b


def fresh(n, x):
    return x * 1.0


def viewed(n, x):
    b = np.zeros((2, *x.shape), x.dtype, like=x)
    b[1] = x
    return b[1] if x.shape else b[1:].reshape(())


def seen(n, x):
    """A view of a cold base: nothing was written into it."""
    y = x * 1.0
    return y[...] if x.shape else y


def plain(n, x):
    """An array that nothing watches, and that is no Variable."""
    return tg.value(x).copy()


BUFFERS = {
    "local and hot": local,
    "a result": fresh,
    "a view of a hot buffer": viewed,
    "a view of a cold buffer": seen,
    "a plain array": plain,
    "captured": None,
}


def program(f, args, kwargs, kind, tracked, xp):
    """(function of the float arrays, the arrays).  `tracked`: which of them are, where the kind is 'a plain
    array'."""
    arrays = [xp.asarray(a) for a in floats((args, list(kwargs.values())))]
    captured = [xp.zeros_like(a) for a in arrays]
    weights: list = []

    def run(*xs):
        if kind == "captured":
            for b, x in zip(captured, xs, strict=True):
                b[...] = x
            made = captured
        else:
            make = BUFFERS[kind]
            made = [
                (fresh if kind == "a plain array" and n == tracked else make)(n, x) for n, x in enumerate(xs)
            ]
        operands = iter(made)
        a = rebuilt(args, operands, xp)
        k = {name: rebuilt(v, operands, xp) for name, v in kwargs.items()}
        out = f(*a, **k)  # in the shadow, f is its face
        ys = floats(out)
        if not weights:
            weights.extend(
                [xp.asarray(np.random.default_rng(n).standard_normal(np.shape(y))) for n, y in enumerate(ys)]
            )
        total = 0.0
        for w, y in zip(weights, ys, strict=True):
            total = total + (w * y * y).sum().real
        overwrite([a, list(k.values()), list(ys)])
        return total

    return run, arrays


def check(f, args, kwargs, kind, tracked=0, xp=np):
    """Reverse mode against forward mode; the number of arrays checked."""
    run, arrays = program(f, args, kwargs, kind, tracked, xp)
    rng = np.random.default_rng(1)
    v = tuple([xp.asarray(rng.standard_normal(a.shape)) for a in arrays])
    value, tangent = tg.jvp(run, tuple(arrays), v)
    again, pullback = tg.vjp(run, *arrays)
    c = pullback(1.0)
    c = c if len(arrays) > 1 else (c,)
    slope = sum([float((xp.conj(g) * d).real.sum()) for g, d in zip(c, v, strict=True)])
    np.testing.assert_allclose(float(value), float(again), rtol=1e-12)
    np.testing.assert_allclose(slope, float(tangent), rtol=1e-8, atol=1e-8 * max(1.0, abs(float(value))))
    return len(arrays)


@functools.cache
def grid():
    """(call, kind of buffer, number of the tracked array, as large?) for all calls."""
    rows = []
    for f, args, kwargs in calls():
        n = len(floats((args, list(kwargs.values()))))
        if not n or f is np.empty_like or not floats_out(f, args, kwargs):  # its elements are undefined
            continue
        for kind, large in itertools.product(BUFFERS, (False, True)):
            rows += [
                (f, args, kwargs, kind, t, large) for t in (range(n) if kind == "a plain array" else (0,))
            ]
    return rows


def floats_out(f, args, kwargs):
    with np.errstate(all="ignore"):
        operands = iter([a.copy() for a in floats((args, list(kwargs.values())))])
        try:
            return floats(f(*rebuilt(args, operands), **{k: rebuilt(v, operands) for k, v in kwargs.items()}))
        except Exception:
            return []


def run_grid(rows, monkeypatch, xp=np):
    wrong, arrays, refused = [], 0, 0
    for f, args, kwargs, kind, tracked, large in rows:
        monkeypatch.setattr(reverse, "COPIED_BYTES", -1 if large else 4096)
        try:
            with np.errstate(all="ignore"), sealed():
                arrays += check(f, args, kwargs, kind, tracked, xp)
        except Exception as error:
            if xp is not np and not isinstance(error, AssertionError):
                refused += 1  # CuPy lacks the function, or one of its options
                continue
            sizes = [np.shape(a) for a in floats((args, list(kwargs.values())))]
            place = f"{f.__name__} of {sizes} {kwargs}, {kind} {tracked}{', large' if large else ''}"
            wrong.append(f"{place}: {type(error).__name__} {str(error).strip()[:300]}")
    print(
        f"{len(rows)} programs with {arrays} arrays of {len({row[0] for row in rows})} functions, {refused} "
        f"refused"
    )
    assert refused < 0.5 * len(rows)
    assert not wrong, f"{len(wrong)} of {len(rows)}:\n" + "\n".join(wrong)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_operands_settings_and_results_overwritten_before_the_sweep(monkeypatch, xp):
    run_grid(grid(), monkeypatch, xp)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_sample_of_operands_settings_and_results_overwritten(monkeypatch, xp):
    run_grid(grid()[:: 11 if xp is np else 53], monkeypatch, xp)


# --- the seal itself ---


def test_a_broken_seal_names_the_operation():
    with sealed():
        with tg.Tape() as tape:
            x = tape.watch(np.ones(3))
            y = np.exp(x)
            total = y.sum()
            y._value[0] = 9.0  # what nobody else can do
    with pytest.raises(BrokenSealError, match=r"a record of exp was altered.*\(3,\)"):
        tape.grad(total, x)


@pytest.mark.parametrize("operation", [shaping.reshape, shaping.transpose], ids=lambda f: f.prim.name)
def test_the_grid_finds_an_operation_that_does_not_say_that_it_shares_memory(operation, monkeypatch):
    entry, name = operation.prim.call, operation.prim.name
    np.inner(Variable(np.ones((2, 2))), np.ones((2, 2)))  # the first call writes the code of both
    before, made = entry.__code__, {}
    if hasattr(entry, "text"):
        exec(
            "\n".join([t for t in entry.text.splitlines() if "x._saved = y._saved" not in t]),
            entry.__globals__,
            made,
        )
        entry.__globals__[name] = entry
    try:
        entry.__code__ = made[name].__code__ if made else before
        monkeypatch.setattr(entry.prim, "aliases", False)
        with pytest.raises(AssertionError, match="(inner|dot) of"):
            run_grid(
                [row for row in grid() if row[0].__name__ in ("inner", "dot", "tensordot", "kron")],
                monkeypatch,
            )
    finally:
        entry.__code__ = before


def test_settings_are_kept_like_operands():
    """Index arrays, masks, slices whose bounds are arrays, lists: all changed before the sweep."""
    w = np.array([0.3, 1.7, -0.9])

    def put(x):
        z, at, n = x * 2, np.array([2, 0]), np.array(1)
        np.put_along_axis(z, at, x[:2] ** 2, 0)
        v = z[n:]
        z[n:] *= 2.0
        at[:], n[...] = 1, 2
        return (z * z * w).sum() + (v * v).sum()

    def masks(x):
        m, i, j = np.array([True, False, True]), [0, 2], np.array([1, 1, 0])
        y = np.where(m, x, x * x) + np.take_along_axis(x, j, None)
        z = np.zeros(3)
        np.add.at(z, j, x)
        np.multiply(x, x, out=z, where=m)
        z[i] += x[i]
        m[:], i[0], j[:] = False, 1, 2
        return (y * z * w).sum()

    def nodes(x):
        g, p = np.linspace(-2.0, 3.0, 6), np.array([0.3, 0.6])
        h, k = g**2, np.ones(2)
        y = (
            np.interp(x, g, h).sum()
            + np.quantile(x, p).sum()
            + np.convolve(x, k)[1] * np.average(x, weights=w * w)
        )
        axes, to = [0], [1, 3]
        z = np.fft.fftn(np.reshape(x, to), axes=axes).real
        g[:], h[:], p[:], k[:], axes[0], to[0] = 0, 1, 0.9, 0, 1, 9
        return y + (z * z * w).sum()

    for f in (put, masks, nodes):
        x, g, h = np.array([0.7, -1.3, 2.1]), np.zeros(3), 1e-5
        for n, e in enumerate(np.eye(3)):
            g[n] = (f(x + h * e) - f(x - h * e)) / (2 * h)
        with sealed():
            np.testing.assert_allclose(tg.grad(f)(x), g, rtol=1e-7, atol=1e-8)


def test_what_a_rule_reads():
    """By its code, against what `dis` says of it; the name of an argument as text, in a rule that raises, is
    no reading."""

    def by_dis(rule):
        lines = [
            i
            for i in dis.get_instructions(rule)
            if any([kind in i.opname for kind in ("FAST", "DEREF", "CLOSURE", "CELL")])
        ]
        seen = {n for i in lines for n in (i.argval if isinstance(i.argval, tuple) else (i.argval,))}
        return [
            name in seen or p.kind is p.VAR_POSITIONAL
            for name, p in inspect.signature(rule).parameters.items()
        ]

    def written(g, out, x, y, *, k=1):
        a1 = a2 = a3 = a4 = a5 = a6 = a7 = a8 = a9 = a10 = a11 = a12 = 1
        x = x + a12
        return a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + a10 + a11

    space = {}
    exec(
        f"def long(g, out, {', '.join([f'q{i}' for i in range(300)])}): return q5 + q270 + (lambda: q299 + "
        f"q3)()",
        space,
    )
    own = [
        written,
        space["long"],
        lambda g, out, x, y: x * y,
        lambda g, out, x, y: [[g + u for u in x] for v in range(3)],
        lambda g, out, x, y: (lambda: (lambda: y)())(),
        lambda g, out, x, *rest, k, l: g * k,
    ]
    rules = own + [r for e in PRIMITIVES.values() for r in e.prim.vjp or ()]
    assert len(rules) > 250
    for rule in rules:
        assert reads(rule) == by_dis(rule), rule
    assert reads(own[3]) == [True, False, True, False] and reads(own[4]) == [False, False, False, True]
