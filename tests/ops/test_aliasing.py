"""What shares memory: every operation says so where it is declared, and the result of every function shares
memory with its arguments exactly where NumPy's does, whatever the options.

The calls are those of tests/support/cases_*.py, each with other values of its options and other layouts of
its arguments, and those of
the list CALLS.  NumPy judges: after a write into an argument the result must show what NumPy's shows, and the other way round."""

import copy
import inspect
import itertools
import operator
from collections import Counter

import numpy as np
import pytest
from _calls_seen import calls
from cases import all_cases, all_lines, declared_late
from comparison import floats, leaves_of
from grid import derivatives, on
from hidden_values import at_both

import tapegrad as tg
from tapegrad._core.arrays import may_share_memory
from tapegrad._core.primitive import READ
from tapegrad._core.variable import Variable
from tapegrad.ops.declare import PRIMITIVES, primitive
from tapegrad.ops.protocols import call
from tapegrad.ops.special.declare import valued

for _table in (all_cases, all_lines):
    _table()  # its files declare what they call
LATE = {name for name, entry in PRIMITIVES.items() if declared_late(entry)}
HOST_ONLY = {
    name for name, entry in PRIMITIVES.items() if entry.prim.run.__module__.startswith("tapegrad.sparse")
}
EYE = np.arange(9.0).reshape(3, 3) + np.eye(3)
COMPLEX = EYE * (1 + 2j)
CUBE = np.arange(8.0).reshape(2, 2, 2)
LINE = np.array([0.5, -1.5, 2.5])

# --- operations ---


class Watched:
    """Bodies of operations that note whose result shares memory with an array that it got."""

    def __init__(self):
        self.ran, self.sharing, self.mutable = set(), set(), set()

    def body(self, prim, run):
        def watched(*args, **params):
            out = run(*args, **params)
            self.ran.add(prim.name)
            if any(may_share_memory(a, o) for a in args for o in leaves_of(out)) and not prim.writes:
                self.sharing.add(prim.name)
            return out

        watched.__signature__ = inspect.signature(run)
        return watched


@pytest.fixture
def watched(monkeypatch):
    w = Watched()
    for entry in PRIMITIVES.values():
        body = w.body(entry.prim, entry.prim.run)
        monkeypatch.setattr(entry.prim, "run", body)
        monkeypatch.setitem(entry.__globals__, "run", body)
    return w


@pytest.mark.long
@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore")
def test_operations_that_share_memory_say_so(watched, xp):
    """Bodies and rules of all operations, on inputs of three layouts, one of them of length one along every
    axis."""
    layouts = (lambda a: a, np.asfortranarray, lambda a: a[tuple([slice(0, 1)] * a.ndim)])
    with np.errstate(all="ignore"):
        for case in all_cases():
            if xp is not np and case.numpy_only:
                continue
            for n, layout in enumerate(layouts if xp is np else layouts[:1]):
                x = [layout(a) if isinstance(a, np.ndarray) else a for a in case.inputs]
                try:
                    derivatives(case, on(xp, x))
                except Exception:
                    if n < 2:  # a shape of ones does not fit every operation
                        raise
    for f in (
        np.sort,
        lambda x: np.linalg.cholesky(x @ x.T + np.eye(3)),
    ):  # where values are hidden other bodies run
        at_both(lambda x, f=f: tg.jvp(tg.grad(lambda x: (f(x) ** 2).sum()), (x,), (EYE,)), (EYE,), (EYE,))
    for f in (lambda x: -np.linalg.det(x + 2.0 * EYE), lambda x: np.sqrt(x @ x.T + EYE).sum()):
        if xp is np:
            tg.jvp(tg.grad(f), (EYE + 0.5,), (EYE,))
    said = {name for name, entry in PRIMITIVES.items() if entry.prim.aliases} | {READ.name}
    print(
        f"{len(watched.ran)} of {len(PRIMITIVES)} operations ran; sharing memory: {sorted(watched.sharing)}"
    )
    assert watched.sharing <= said
    ranks = {"sum_over_ranks", "rows_over_ranks", "shifted", "compared_over_ranks"}  # tests/parallel
    said -= ranks | LATE  # the test below
    assert xp is not np or said - watched.sharing <= {
        "without_eta",
        "with_steady_cotangent",
        "broadcast_to",
    }  # NumPy: what is small is copied
    replayed = {"lu_packed", "lu_solution"}  # tests/replay/test_shared_factors.py
    usual = (
        set(PRIMITIVES) - LATE - ranks - replayed - (set() if xp is np else HOST_ONLY)
    )  # the others: below
    assert len(watched.ran & usual) > (0.95 if xp is np else 0.85) * len(usual)


@pytest.mark.long
def test_operations_that_are_declared_on_first_use_say_so(watched):
    with np.errstate(all="ignore"):
        for line in all_lines():
            derivatives(line, line.inputs)
    said = {name for name in LATE if PRIMITIVES[name].prim.aliases}
    assert watched.sharing & LATE == said and len(watched.ran & LATE) > 0.95 * len(LATE) > 100


def test_a_value_that_stands_for_a_result_is_not_written_into():
    own = np.ones(2)

    def f(x, own):
        y = valued(x * 2.0, own)
        y *= 3.0
        return y.sum()

    assert tg.grad(f)(LINE[:2], own).tolist() == [6.0, 6.0] and own.tolist() == [1.0, 1.0]
    assert tg.jvp(f, (LINE[:2], own), (own, 0.0 * own)) == (6.0, 12.0) and own.tolist() == [1.0, 1.0]


def test_an_operation_that_shares_memory_protects_both_ends(xp):
    """The word `aliases` does it: an operation made here, whose body gives what it got."""
    registered = dict(PRIMITIVES)
    try:

        @primitive(aliases=True)
        def same_array(x, *, k=0):
            return x

        @primitive(aliases=True)
        def first_of(*xs):
            return xs[0]
    finally:
        PRIMITIVES.clear()
        PRIMITIVES.update(registered)
    same_array.prim.vjp = first_of.prim.vjp = None
    for operation, watch in itertools.product(
        (lambda x: same_array(x), lambda x: first_of(x, 1.0)), (True, False)
    ):
        for written in (0, 1):
            with tg.Tape() as tape:
                a = tape.watch(xp.ones(3)) if watch else Variable(xp.ones(3))
                x = a * 1.0
                pair = x, operation(x)
                pair[written][...] = 5.0
                assert tg.value(pair[1 - written]).tolist() == [1.0] * 3


# --- functions ---

# Calls that no case makes: (function, arguments, keywords).
CALLS = [
    *[(np.einsum, (text, EYE), {}) for text in ("ii->i", "ij->ji", "ij->ij", "ij->i", "ii->", "ij", "ji",
    "i...->...i", "...", "ii")],
    (np.einsum, ("ijj->ji", CUBE), {}),
    (np.einsum, ("iij->ji", CUBE), {}),
    (np.einsum, (EYE, [0, 0], [0]), {}),
    (np.einsum, (EYE, [1, 0]), {}),
    *[(np.array, (EYE,), {"copy": c}) for c in (True, False, None)],
    *[(np.array, (LINE,), {"copy": None, "ndmin": 2, "order": o}) for o in ("K", "C", "F", "A")],
    *[(f, (EYE,), {}) for f in (np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray,
    np.require, np.asarray_chkfinite)],
    *[(np.asarray, (EYE,), {"copy": c}) for c in (True, False, None)],
    *[(np.require, (EYE,), {"requirements": r}) for r in ("C", "F", ["C", "O"], ["W"], "E")],
    *[(np.astype, (EYE, d), {"copy": c}) for c in (True, False) for d in (float, np.float32, complex)],
    *[(np.nan_to_num, (EYE,), {"copy": c}) for c in (True, False)],
    *[
        (np.meshgrid, (LINE, LINE + 1), {"copy": c, "sparse": s, "indexing": i})
        for c, s, i in itertools.product((True, False), (True, False), ("xy", "ij"))
    ],
    *[(np.meshgrid, (LINE,), {"copy": c}) for c in (True, False)],
    (np.broadcast_arrays, (EYE, EYE), {}),
    (np.broadcast_arrays, (EYE,), {}),
    (np.broadcast_to, (EYE, (3, 3)), {}),
    *[(f, (EYE,), {}) for f in (np.real, np.imag, np.conj, np.real_if_close, np.copy, np.squeeze)],
    *[(f, (EYE,), {}) for f in (np.atleast_1d, np.atleast_2d, np.atleast_3d)],
    *[(f, (COMPLEX,), {}) for f in (np.real, np.imag, np.conj, np.real_if_close)],
    *[(f, (LINE, EYE), {}) for f in (np.atleast_1d, np.atleast_2d, np.atleast_3d)],
    *[(np.ravel, (a, o), {}) for a in (EYE, EYE.T, EYE[::2]) for o in "CFAK"],
    *[(np.reshape, (a, (9,), o), {}) for a in (EYE, EYE.T) for o in "CFA"],
    *[(np.reshape, (EYE, (9,)), {"copy": c}) for c in (True, False, None)],
    *[(np.linalg.matrix_power, (EYE, n), {}) for n in (0, 1, 2)],
    (np.linalg.multi_dot, ([EYE, EYE],), {}),
    *[(f, (EYE,), {}) for f in (np.matrix_transpose, np.linalg.matrix_transpose, np.linalg.diagonal,
    np.transpose, np.permute_dims)],
    *[(f, (EYE, ()), {}) for f in (np.flip, np.transpose)],
    *[(f, (LINE[:1],), {}) for f in (np.transpose, np.flip, np.diag, np.diagflat, np.unstack, np.squeeze,
    np.tile, np.trim_zeros)],
    *[(np.rot90, (EYE, k), {}) for k in range(4)],
    *[(f, (EYE, ()), {}) for f in (np.sum, np.max, np.mean, np.prod, np.squeeze)],
    *[(np.expand_dims, (LINE, a), {}) for a in (0, 1, ())],
    (np.concatenate, ([EYE],), {}),
    (np.block, (EYE,), {}),
    (np.block, ([EYE],), {}),
    *[(f, ([LINE],), {}) for f in (np.vstack, np.hstack, np.dstack, np.stack, np.column_stack)],
    (np.split, (LINE, 1), {}),
    (np.delete, (LINE, []), {}),
    (np.insert, (LINE, [], 1.0), {}),
    (np.take, (LINE, slice(None)), {}),
    (np.select, ([LINE > 9], [LINE], 0.0), {}),
    (np.moveaxis, (EYE, 0, 0), {}),
    (np.swapaxes, (EYE, 0, 0), {}),
    (np.rollaxis, (EYE, 0), {}),
    (np.roll, (EYE, 0), {}),
    (np.pad, (EYE, 0), {}),
    (np.tril, (EYE, 5), {}),
    (np.resize, (EYE, (3, 3)), {}),
    (np.repeat, (EYE, 1, 0), {}),
    (np.tile, (EYE, 1), {}),
    (np.outer, (LINE[:1], LINE[:1]), {}),
    (np.cross, (LINE, LINE), {}),
    (np.tensordot, (EYE, EYE, 1), {}),
    (np.fft.fftshift, (LINE, ()), {}),
    (np.unwrap, (LINE,), {}),
    (np.round, (LINE, 1), {}),
    (np.clip, (LINE, None, None), {}),
    (np.ix_, (LINE > 0,), {}),
]  # fmt: skip
OPTIONS = {
    "axis": (None, 0, -1, ()),
    "order": ("C", "F", "A", "K"),
    "copy": (True, False, None),
    "k": (0,),
    "offset": (0,),
    "shift": (0,),
}


def optional(f, args, kwargs):
    """The call, and the call with each of its options changed."""
    yield args, kwargs
    try:
        bound = inspect.signature(f).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return
    for name, p in bound.signature.parameters.items():
        default = p.default
        values = OPTIONS.get(
            name, (not default,) if isinstance(default, bool) and not name.startswith("overwrite") else ()
        )
        for v in values:
            if p.kind is p.KEYWORD_ONLY or name not in list(bound.arguments)[: len(args)]:
                yield args, {**kwargs, name: v}
            else:
                n = list(bound.arguments).index(name)
                yield (*args[:n], v, *args[n + 1 :]), kwargs


LAYOUTS = {
    "as it is": lambda a: a.copy(),
    "Fortran": lambda a: a.copy(order="F"),
    "turned": lambda a: np.flip(np.flip(a).copy()),
    "one": lambda a: a[tuple([slice(0, 1)] * a.ndim)].copy(),
}


def mapped(x, f):
    if isinstance(x, np.ndarray):
        return f(x)
    return type(x)([mapped(v, f) for v in x]) if type(x) in (list, tuple) else x


def effect(run, args, kwargs, into, n):
    """A write into argument or result number n of the call: (was it allowed?, which elements of the arguments
    have changed, which of the results)."""
    out = run(args, kwargs)
    xs, ys = floats((args, list(kwargs.values()))), floats(out)
    before = [np.array(tg.value(x)) for x in xs + ys]
    try:
        (xs if into == "argument" else ys)[n][...] = 7.25
        allowed = True
    except (ValueError, TypeError, tg.errors.TapegradError):
        allowed = False
    changed = [np.array(tg.value(x)) != b for x, b in zip(xs + ys, before, strict=True)]
    return allowed, changed[: len(xs)], changed[len(xs) :]


def fresh(args, kwargs, lift=lambda a: a):
    anew = lambda a: lift(a.copy(order="K")) if a.dtype.kind in "fc" else a.copy()
    return mapped(args, anew), {k: mapped(v, anew) for k, v in kwargs.items()}


def compare(f, args, kwargs, tally, ours=None):
    """Write into each argument and each result, in NumPy and in tapegrad; what differs."""
    try:
        a, k = fresh(args, kwargs)
        out = f(*a, **k)
    except Exception:
        tally["refused by NumPy"] += 1
        return
    xs, ys = floats((a, list(k.values()))), floats(out)
    if not ys:
        return
    tally["calls"] += 1
    tally["calls that share memory"] += any(np.shares_memory(x, y) for x in xs for y in ys)
    places = [("argument", n) for n in range(len(xs))] + [("result", n) for n in range(len(ys))]
    for (into, n), watching in itertools.product(places, (True, False)):
        allowed, *wanted = effect(lambda a, k: f(*a, **k), *fresh(args, kwargs), into, n)
        with tg.Tape() as tape:
            try:
                did, *got = effect(
                    ours or (lambda a, k: call(f, a, k)),
                    *fresh(args, kwargs, tape.watch if watching else Variable),
                    into,
                    n,
                )
            except (tg.errors.TapegradError, TypeError, ValueError, IndexError):
                tally["refused"] += 1
                continue
        tally["compared"] += 1
        if did and not allowed:  # NumPy shows it read-only: the write must not reach an argument
            got, wanted = got[:1], wanted[:1]
        tally["write refused"] += allowed and not did
        if (did or not allowed) and not alike(got, wanted):
            sizes = [np.shape(x) for x in floats(args)]
            yield f"{f.__name__} of {sizes} {kwargs}: {into} {n} written, {'tracked' if watching else 'not tracked'}"


def alike(a, b):
    a, b = leaves_of(a), leaves_of(b)
    return len(a) == len(b) and all(np.array_equal(u, v) for u, v in zip(a, b, strict=True))


def run_calls(seen):
    tally, wrong = Counter(), []
    with np.errstate(all="ignore"):
        for f, args, kwargs in seen:
            for layout in LAYOUTS.values():
                for a, k in optional(f, mapped(args, layout), kwargs):
                    wrong += compare(f, a, k, tally)
    print(dict(tally), len({f for f, _, _ in seen}), "functions")
    assert not wrong, "\n".join(sorted(set(wrong)))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_functions_share_memory_where_numpys_do():
    run_calls([*calls()[::6], *CALLS])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_all_functions_share_memory_where_numpys_do():
    run_calls([*calls(), *CALLS])


# --- methods and attributes ---

METHODS = [
    *[(f"astype({d}, copy={c})", lambda a, d=d, c=c: a.astype(d, copy=c)) for d in ("f8", "f4",
    "c16") for c in (True, False)],
    *[(f"ravel({o})", lambda a, o=o: a.ravel(o)) for o in "CFAK"],
    *[(f"flatten({o})", lambda a, o=o: a.flatten(o)) for o in "CFAK"],
    *[(f"reshape(-1, {o})", lambda a, o=o: a.reshape(-1, order=o)) for o in "CFA"],
    *[(name, lambda a, name=name: getattr(a, name)) for name in ("T", "mT", "real", "imag")],
    *[
        (f"{name}()", lambda a, name=name: getattr(a, name)())
        for name in ("conj", "conjugate", "copy", "transpose", "squeeze", "diagonal", "round", "__pos__",
        "__copy__", "__abs__", "cumsum")
    ],
    *[(f"{name}(0)", lambda a, name=name: getattr(a, name)(0)) for name in ("take", "repeat", "diagonal",
    "cumprod", "max", "__round__")],
    *[(f"{name}(axis=())", lambda a, name=name: getattr(a, name)(axis=())) for name in ("sum", "max", "mean",
    "squeeze")],
    ("swapaxes(0, -1)", lambda a: a.swapaxes(0, -1)),
    ("transpose(1, 0)", lambda a: a.transpose(1, 0)),
    ("take(0, axis=0)", lambda a: a.take(0, axis=0)),
    ("take([0], axis=0)", lambda a: a.take([0], axis=0)),
    ("clip(None, None)", lambda a: a.clip(None, None)),
    ("repeat(1, 0)", lambda a: a.repeat(1, 0)),
    ("deepcopy", lambda a: copy.deepcopy(a)),
    *[(f"[{t}]", lambda a, t=t: eval(f"a[{t}]")) for t in ("0", "...", "...,0", ":", "::2", "::-1", "None",
    "0,...")],
    *[(f"[{t}]", lambda a, t=t: eval(f"a[{t}]")) for t in ("(0,)", "[0]", "a*0==0", "0:1,[0]")],
    ("[np.array(0)]", lambda a: a[np.array(0)]),
    ("[True]", lambda a: a[True]),
    ("iter", lambda a: list(a)),
    ("+= 0", lambda a: operator.iadd(a, 0)),
    ("reshape(shape, copy=True)", lambda a: a.reshape(a.shape, copy=True)),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_methods_share_memory_where_numpys_do():
    tally, wrong = Counter(), []
    for (name, method), a in itertools.product(
        METHODS, (EYE, COMPLEX, LINE, CUBE, np.array(2.5), np.ones((1, 1)))
    ):
        for layout in LAYOUTS.values():
            method.__name__ = name
            wrong += compare(method, (layout(a),), {}, tally, lambda a, k: method(*a))
    print(dict(tally), len(METHODS), "methods")
    assert not wrong, "\n".join(sorted(set(wrong)))
