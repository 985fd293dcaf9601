"""Code that is followed asks captured objects the questions that tell them apart: `id`, `hash`, classes,
annotations, documentation. It gets the answers of a plain call, before and after the objects change."""

import collections
import dataclasses
import functools
import types
import typing
import weakref

import numpy as np
import pytest
import scipy.stats

import tapegrad as tg

X = np.array([0.3, -0.4, 0.8])


class Model:
    weights = np.arange(3.0)

    def __init__(self):
        self.scale = np.full(3, 2.0)


@dataclasses.dataclass
class Settings:
    rate: float = 1.0
    start: np.ndarray | None = None


def decorated(f):
    @functools.wraps(f)
    def call(x):
        return f(x)

    return call


@decorated
def documented(x: float):
    """Four words of text"""
    return x


model, array, reference = Model(), np.ones(3), weakref.ref(Model)
documented.__type_params__ = Model.__type_params__ = (typing.TypeVar("T"),)  # `def f[T](x)` of Python 3.12
BY_ID = {id(model): 2.0, id(array): 3.0, id(documented): 5.0, id(Model): 7.0}
BY_HASH = {hash(model): 2.0, hash(documented): 5.0, hash(Model): 7.0}
QUESTIONS = {
    "id": lambda: sum([BY_ID.get(id(x), 0.0) for x in (model, array, documented, Model)]),
    "hash": lambda: sum([BY_HASH.get(hash(x), 0.0) for x in (model, documented, Model)]),
    "documentation": lambda: len((documented.__doc__ or "").split()),
    "annotations": lambda: len(documented.__annotations__),
    "annotations of a class": lambda: len(typing.get_type_hints(Settings)) + len(Settings.__annotations__),
    "type parameters": lambda: len(documented.__type_params__) + 2 * len(Model.__type_params__),
    "ufuncs": lambda: 2 * isinstance(np.sin, np.ufunc) + (type(np.add) is np.ufunc),
    "functions of libraries": lambda: 1 + isinstance(np.sum, types.FunctionType),
    "weak references": lambda: 2 * isinstance(reference, weakref.ref) + (type(reference) is weakref.ref),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_those_of_a_plain_call(question):
    ask = QUESTIONS[question]
    f = lambda x: np.sum(x) * ask()
    want = float(ask())
    assert want > 0
    for _ in range(6):  # the shadow of a function waits from its second call on
        np.testing.assert_array_equal(tg.grad(f)(X), np.full(3, want))
    np.testing.assert_array_equal(tg.jacobian(f, mode="forward")(X), np.full(3, want))
    np.testing.assert_array_equal(tg.vmap(tg.grad(f))(X[None])[0], np.full(3, want))
    np.testing.assert_array_equal(tg.prepare(f, X).grad(X), np.full(3, want))


def test_state_keyed_by_id_is_that_of_the_users_objects():
    state: dict = {}

    def f(x):
        state[id(model)] = state.get(id(model), 0.0) * 0.5 + x[0]
        return state[id(model)] ** 2

    for total in (0.3, 0.45, 0.525):
        np.testing.assert_allclose(tg.grad(f)(X), [2 * total, 0, 0], rtol=1e-14)
        np.testing.assert_allclose(state[id(model)], total)
    assert list(state) == [id(model)]


def test_prepared_call_tells_equal_objects_apart_by_id():
    held = [Model()]
    known = {id(held[0]): 3.0}
    f = lambda x: np.sum(np.sin(x)) * known.get(id(held[0]), 1.0)
    p, first = tg.prepare(f, X), held[0]
    for held[0] in (first, Model(), first, Model()):
        want = np.cos(X) * (3.0 if held[0] is first else 1.0)
        for _ in range(2):
            np.testing.assert_allclose(p.grad(X), want)


def test_keywords_of_a_partial_object_are_read_anew_and_written():
    def scaled(x, c, seen):
        seen[0] = x[1]
        return np.sum(np.sin(x) * c)

    part = functools.partial(scaled, c=1.5, seen=[0.0])

    def f(x):
        part.keywords["last"] = x[2]
        del part.keywords["last"]
        return part(x)

    for c in (1.5, 2.25, -1.0, 2.25):
        part.keywords["c"] = c
        for _ in range(4):
            np.testing.assert_allclose(tg.grad(f)(X), np.cos(X) * c)
    assert part.keywords == {"c": 2.25, "seen": [X[1]]}


@pytest.mark.filterwarnings("ignore:Setting the shape")  # of NumPy 2.5
@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (1, 6)])
def test_prepared_call_sees_that_an_array_was_reshaped_in_place(shape):
    a = np.arange(6.0)
    p = tg.prepare(lambda x: np.sum(x) * len(a) * a.sum(), X)
    for now in ((6,), shape, (6,), shape):
        a.shape = now
        for _ in range(2):
            np.testing.assert_array_equal(p.grad(X), np.full(3, now[0] * 15.0))


def test_prepared_call_sees_that_an_array_has_grown():
    a = np.arange(1.0, 4.0)
    p = tg.prepare(lambda x: np.sum(x) * len(a) * a[0], X)
    for n in (3, 4, 7):
        a.resize(n, refcheck=False)
        for _ in range(2):
            np.testing.assert_array_equal(p.grad(X), np.full(3, float(n)))


def test_checkpoint_of_a_class_with_arrays():
    @tg.checkpoint
    def step(x):
        return np.sin(x) * Model.weights * model.scale

    f = lambda x: np.sum(step(step(x)))
    plain = lambda x: np.sum(np.sin(np.sin(x) * Model.weights * 2) * Model.weights * 2)
    np.testing.assert_allclose(tg.grad(f)(X), tg.grad(plain)(X), rtol=1e-14)
    g = tg.checkpoint(lambda x: np.sum(x) * (type(model) is Model))  # reads no array
    np.testing.assert_array_equal(tg.grad(g)(X), np.ones(3))


def test_checkpoint_of_a_counter_of_floats():
    counts = collections.defaultdict(float)

    @tg.checkpoint
    def f(x):
        counts["a"] += 1
        return np.sum(x) * counts["a"]

    for n in (1, 2, 3):
        np.testing.assert_array_equal(tg.grad(f)(X), np.full(3, float(n)))


def test_an_expectation_under_vmap_draws_nothing():
    f = lambda m: scipy.stats.norm.expect(lambda u: u**3, loc=m, scale=2.0)
    means = np.array([0.3, -1.0, 2.0])
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(means), 3 * means**2 + 12, rtol=1e-6)
