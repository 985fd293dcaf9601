"""A tracked value answers questions of type as the number or array that it stands for.  The judge is the
plain value itself."""

import collections.abc
import copy
import functools
import math
import numbers
import operator
import typing

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._capture.type_queries import type_
from tapegrad._core.arrays import is_array, is_differentiable, is_scalar
from tapegrad._core.variable import Variable

X = np.array([0.7, -1.3, 2.1])

# What a tracked value may stand for: made of the array x of float64.
STANDS = {
    "float64": lambda x: x[0] * 2,
    "float64 of a sum": lambda x: x.sum(),
    "float32": lambda x: x.astype(np.float32)[1],
    "complex128": lambda x: x[0] * (1 + 2j),
    "complex64": lambda x: (x * (1 + 2j)).astype(np.complex64)[2],
    "array": lambda x: x * 2,
    "view": lambda x: (x * 2)[1:],
    "matrix": lambda x: np.outer(x, x),
    "transpose": lambda x: np.outer(x, x + 1).T,
    "empty": lambda x: x[:0],
}
CLASSES = [
    float, int, complex, bool, str, list, tuple, object, np.ndarray, np.generic, np.number, np.inexact,
    np.floating, np.complexfloating,
    np.integer, np.float64, np.float32, np.complex128, np.complex64, numbers.Number, numbers.Complex,
    numbers.Real, numbers.Rational,
    numbers.Integral, collections.abc.Sequence, collections.abc.Mapping, collections.abc.Callable, type,
    np.memmap,
]  # fmt: skip


def asked(question, stand):
    """(the answer of the plain value, in reverse mode, in forward mode, in a nested transform)."""
    answers = []

    def f(x):
        answers.append(question(stand(x)))
        return (x * x).sum()

    f(X)
    tg.grad(f)(X)
    tg.jvp(f, (X,), (X,))
    tg.hvp(f, X, X)
    return answers


@pytest.mark.parametrize("name", STANDS)
def test_isinstance(name):
    for c in CLASSES:
        answers = asked(lambda v, c=c: isinstance(v, c), STANDS[name])
        assert len(set(answers)) == 1, (c, answers)
    answers = asked(lambda v: isinstance(v, (str, float, np.ndarray)), STANDS[name])
    assert len(set(answers)) == 1
    answers = asked(lambda v: v.__class__, STANDS[name])
    assert len(set(answers)) == 1


@pytest.mark.parametrize("name", STANDS)
def test_calls_that_ask(name):
    """The same value, or the same kind of error, as of the plain value."""

    def outcome(question):
        def run(v):
            try:
                return question(v)
            except (TypeError, IndexError) as error:
                return {TypeError, IndexError}.intersection(type(error).__mro__).pop()

        return run

    questions = [
        len, callable, np.ndim, np.shape, np.size, np.isscalar, np.iterable, operator.length_hint,
        np.isrealobj, np.iscomplexobj,
        lambda v: len(list(v)), lambda v: len([*v]), lambda v: sum(1 for _ in v), lambda v: 1.0 in v,
        lambda v: v[0] is None,
        lambda v: v[:0].shape, lambda v: v[()].shape, lambda v: range(v), lambda v: [1, 2, 3][v],
        lambda v: v(), operator.index,
        lambda v: (lambda *a: len(a))(*v), lambda v: len(tuple(zip(v, v, strict=True))),
        lambda v: len(dict.fromkeys(range(len(v)))),
        lambda v: getattr(v, "__len__", None) is None, lambda v: getattr(v, "__iter__", None) is None,
        lambda v: copy.copy(v).shape, lambda v: copy.deepcopy(v).dtype, lambda v: isinstance(v, type),
        lambda v: repr(v.dtype),
    ]  # fmt: skip
    for n, question in enumerate(questions):
        answers = asked(outcome(question), STANDS[name])
        assert all(a == answers[0] for a in answers), (n, answers)


def test_match():
    def kind(v):
        match v:
            case int():
                return "int"
            case float():
                return "float"
            case np.floating():
                return "floating"
            case complex():
                return "complex"
            case [_, *_]:
                return "sequence"
            case np.ndarray():
                return "array"
        return "other"

    def length(v):
        match v:
            case []:
                return 0
            case [_]:
                return 1
            case [_, _, _]:
                return 3
            case [[_, _, _], *_]:
                return "matrix"
            case [_, *_]:
                return "more"
        return "none"

    for name, stand in STANDS.items():
        for question in (kind, length):
            answers = asked(question, stand)
            assert len(set(answers)) == 1, (name, answers)
    assert asked(kind, STANDS["float64"])[0] == "float" and asked(kind, STANDS["float32"])[0] == "floating"


@functools.singledispatch
def told(v):
    return "other"


@told.register(float)
def _(v):
    return "float"


@told.register(numbers.Real)
def _(v):
    return "real"


@told.register(np.ndarray)
def _(v):
    return "array"


@told.register(complex)
def _(v):
    return "complex"


def test_singledispatch():
    for name, stand in STANDS.items():
        answers = asked(told, stand)
        assert len(set(answers)) == 1, (name, answers)


BRANCHES = [
    lambda x: (x * 3.0).sum() if isinstance(x[0], float) else x[0],
    lambda x: (x * 3.0).sum() if isinstance(x.sum(), numbers.Number) else x[0],
    lambda x: (x * 3.0).sum() if not hasattr(x[0], "__iter__") else x[0],
    lambda x: (x * 3.0).sum() if isinstance(x, np.ndarray) and not isinstance(x, float) else x[0],
    lambda x: flat_sum([x[0], [x[1], x, [x[2] * x[0]]]]),
    lambda x: x[0] ** 2 if isinstance(x.astype(np.float32)[0], float) else x[1] ** 2,
    lambda x: sum(v * k for k, v in enumerate(x) if isinstance(v, np.floating)),
    lambda x: math.floor(x[2]) * x[0] + math.ceil(x[0]) * x[1] + math.trunc(x[2]) * x[2],
    lambda x: x[0] if x[2].is_integer() else x[1],
]


def flat_sum(tree):
    """As code that walks nested lists does."""
    if isinstance(tree, (int, float)):
        return tree
    return sum([flat_sum(t) for t in tree])


@pytest.mark.parametrize("f", BRANCHES)
def test_the_branch_of_a_plain_call_is_taken(f):
    numeric = [(f(X + h) - f(X - h)) / 2e-6 for h in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(tg.grad(f)(X), numeric, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose([tg.jvp(f, (X,), (e,))[1] for e in np.eye(3)], numeric, rtol=1e-6, atol=1e-8)


def test_random_questions_of_numbers():
    """Operators and functions of numbers, by random sequences: the type and value are those of the plain
    value."""
    rng = np.random.default_rng(5)
    steps = [
        lambda v: v + 1, lambda v: 2.5 * v, lambda v: v**2, lambda v: -v, abs, lambda v: v / 3, np.sin,
        np.float64(2.0).__mul__,
        lambda v: v.real, lambda v: v - np.float32(0.5), lambda v: np.multiply(v, 2), lambda v: round(v, 3),
        lambda v: v % 2,
        lambda v: v // 0.3, lambda v: v.conj(), lambda v: v.astype(np.float32), lambda v: v.astype(float),
        lambda v: np.array([v, 1.0])[0], lambda v: v.sum(), lambda v: np.sum([v, v]), lambda v: max(v, 0.1),
        lambda v: np.where(True, v, 0.0)[()], copy.copy, lambda v: v.reshape(1)[0], lambda v: sum([v, v]),
    ]  # fmt: skip
    questions = [
        lambda v: v.__class__,
        lambda v: isinstance(v, float),
        lambda v: isinstance(v, numbers.Real),
        lambda v: hasattr(v, "__len__"),
    ]
    for _ in range(150):
        chosen = [steps[i] for i in rng.integers(len(steps), size=4)]

        def walk(x, chosen=chosen):
            v = x[0]
            for step in chosen:
                v = step(v)
            return v

        for question in questions:
            answers = asked(question, walk)
            assert len(set(answers)) == 1, (answers, [steps.index(s) for s in chosen])


class Holder:
    def __init__(self, type):
        self.type = type

    def kind_of(self, a):
        return a.dtype.type


def kinds_of(x):
    for d in (x.dtype, np.zeros(3).dtype, np.arange(3).dtype):
        yield d.type


CODES_WITH_MANY_NAMES = {
    "names": "def f(x):\n" + "".join(f"    getattr(x, 'a', 0).a{i} = {i}\n" for i in range(300)),
    "constants": "def f(x):\n" + "".join(f"    y = {i}.5\n" for i in range(300)),
}


def with_many(kind):
    space = {"np": np, "getattr": lambda x, name, default: Holder(0)}
    exec(
        CODES_WITH_MANY_NAMES[kind] + "    return (x.dtype.type is np.float64, x.__class__ is np.ndarray)",
        space,
    )
    return space["f"]


IDENTITIES = [
    lambda x: x.dtype.type is np.float64,
    lambda x: x.astype(np.float32).dtype.type is not np.float64,
    lambda x: (x.__class__ is np.ndarray, x[0].__class__ is np.float64, 3.0.__class__ is float),
    lambda x: [d is np.float64 for d in kinds_of(x)] + [d is np.int64 for d in kinds_of(x)],
    lambda x: Holder(3.0).kind_of(x) is np.float64 and Holder(4.0).type == 4.0,
    lambda x: (Holder(x).__class__ is Holder, Holder(x).__class__.__name__),
    lambda x: Holder(x).type.sum().__class__ is np.float64,
    lambda x: {np.int64: 1, np.float64: 2}[x.dtype.type],
    lambda x: np.zeros(2, x.dtype.type).dtype.type is np.float64,
    lambda x: [np.dtype(c).type is t for c, t in (("i4", np.int32), ("u1", np.uint8), ("c8", np.complex64))],
    with_many("names"),
    with_many("constants"),
]  # fmt: skip


@pytest.mark.parametrize("question", IDENTITIES)
def test_identity_of_classes(question):
    answers = asked(question, lambda x: x)
    assert answers[1:] == answers[:1] * 3


def test_a_class_that_is_missing_raises_as_in_a_plain_call():
    with pytest.raises(AttributeError, match="'numpy.float64' object has no attribute 'type'"):
        tg.grad(lambda x: x.sum().type)(X)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.int8, np.uint16, np.uint64, np.longlong])
def test_integer_types_called(kind):
    """The derivative of truncation is zero."""

    def f(x):
        return kind(x[2]) * x[0] + (kind(x * x) * x).sum()

    def facts(x):
        n, a = kind(x[2]), kind(x * x)
        return n, a.dtype, isinstance(n, kind), np.iinfo(kind).max, np.zeros(2, kind).dtype

    answers = asked(facts, lambda x: x)
    assert answers[1:] == answers[:1] * 3
    value, gradient = tg.value_and_grad(f)(X)
    assert value == f(X)
    np.testing.assert_array_equal(gradient, [2.0, 0, 0] + (X * X).astype(kind))
    np.testing.assert_array_equal(tg.prepare(f, X).grad(X + 0.01), gradient)
    np.testing.assert_array_equal(tg.vmap(tg.grad(f))(np.stack([X, X])), [gradient, gradient])


# --- what the engine itself asks ---


def test_the_engine_knows_a_variable_from_an_array():
    seen = []

    def f(x):
        for v in (x, x[0], x[1:]):
            assert (
                type(v) in (np.float64, np.ndarray) and isinstance(v, Variable) and isinstance(v, tg.Variable)
            )
            assert not is_array(v) and not is_scalar(v) and not is_differentiable(v)
            seen.append(v)
        return x.sum()

    tg.grad(f)(X)
    assert len(seen) == 3


def test_arrays_of_cupy_keep_their_own_answer(xp):
    f = lambda x: (x * 3.0).sum() if isinstance(x, xp.ndarray) and not isinstance(x[0], str) else x[0]
    assert float(tg.grad(f)(xp.asarray(X))[1]) == 3.0


def test_absent_methods_say_so():
    for question, words in (
        (len, "has no len"),
        (iter, "not iterable"),
        (lambda v: list(v), "not iterable"),
        (lambda v: 1 in v, "iterable"),
    ):
        with pytest.raises(TypeError, match=f"numpy.float64.*{words}"):
            tg.grad(lambda x, q=question: (q(x[0]), x.sum())[1] if q is not iter else next(q(x[0])))(X)
    with pytest.raises(IndexError):
        tg.grad(lambda x: x[0][0])(X)


def test_iteration_sees_writes_of_the_loop():
    def f(x):
        b = np.zeros(3)
        b[:] = x
        total = 0.0
        for i, v in enumerate(b):
            total = total + v
            if i < 2:
                b[i + 1] = b[i + 1] * v
        return total

    numeric = [(f(X + h) - f(X - h)) / 2e-6 for h in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(tg.grad(f)(X), numeric, rtol=1e-6)


def test_protocols_of_typing():
    for protocol in (typing.SupportsFloat, typing.SupportsAbs):
        assert set(asked(lambda v, p=protocol: isinstance(v, p), STANDS["float64"])) == {True}


def test_the_twin_of_type():
    """`type` in code that is followed."""
    seen = []

    def f(x):
        for v in (x, x[0], x[1:], x.astype(np.float32)[0], x[0] * 1j, np.arange(3), 2.0, "a", f):
            seen.append(type(v))
        assert type(x) is np.ndarray and type(x[0]) is np.float64 and type(x.sum()) in (float, np.float64)
        assert {np.ndarray: 1, np.float64: 2}[type(x)] == 1 and issubclass(type(x), np.ndarray)
        return x.sum()

    f(X)
    plain, seen[:] = list(seen), []
    tg.grad(f)(X)
    assert [c.__name__ for c in seen] == [c.__name__ for c in plain]
    assert all(a == b for a, b in zip(seen, plain, strict=True))


def test_the_twin_of_type_makes_classes():
    ask = type_
    made = ask("Made", (list,), {"k": 3})
    assert type(made) is type and made.k == 3 and made([1, 2]) == [1, 2]

    class Meta(ask):
        def __call__(cls, *args):
            made = super().__call__(*args)
            made.marked = True
            return made

    class Thing(metaclass=Meta):
        pass

    assert (
        Thing().marked
        and isinstance(Thing, Meta)
        and isinstance(Thing, type)
        and isinstance(Thing, ask)
        and not isinstance(3, ask)
    )
    assert issubclass(Meta, ask) and issubclass(type, ask) and not issubclass(int, ask)
    assert {type: 1}[ask] == 1 and hash(ask) == hash(type) and ask(int) is type and ask(Thing) is Meta
    with pytest.raises(TypeError):
        ask()


def test_the_twin_of_memoryview():
    """A captured array lends its memory; a tracked one says why not."""
    captured = np.arange(3.0)

    def f(x):
        m = memoryview(captured)
        assert isinstance(m, memoryview) and issubclass(type(m), memoryview)
        return (x * m[1]).sum()

    assert tg.grad(f)(X).tolist() == [1.0] * 3
    with pytest.raises(tg.errors.DroppedDerivativeError, match="memoryview.*value"):
        tg.grad(lambda x: x[0] * memoryview(x)[0])(X)
