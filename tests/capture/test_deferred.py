"""Members of captured classes and attributes of captured instances are made when code reads them.  A call costs
what it reads, and nobody can tell the difference: each way to an attribute, and each change between calls."""

import abc
import copy
import inspect
import pickle
import threading
from dataclasses import dataclass, fields, replace
from inspect import getattr_static

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._capture.core import Shadow


class Model:
    scale = np.array([2.0, 3.0])

    def __init__(self):
        self.weights, self.kept = np.array([1.0, -1.0]), None

    def value(self, x):
        return np.sum(self.scale * self.weights * x**2)

    @property
    def doubled(self):
        return 2.0 * self.weights


class Slots:
    __slots__ = ("kept", "weights")

    def __init__(self):
        self.weights, self.kept = np.array([1.0, -1.0]), None


@dataclass
class Data:
    weights: np.ndarray
    kept: object


MODELS = {"plain": Model, "slots": Slots, "dataclass": lambda: Data(np.array([1.0, -1.0]), None)}
X = np.array([0.5, 2.0])


@pytest.fixture(params=MODELS, name="model")
def made_model(request):
    return MODELS[request.param]()


READS = {
    "attribute": lambda m: m.weights,
    "getattr": lambda m: getattr(m, "weights"),  # noqa: B009
    "of the class's method": lambda m: type(m).__getattribute__(m, "weights"),
    "of object": lambda m: object.__getattribute__(m, "weights"),
    "copy": lambda m: copy.copy(m).weights,
    "deepcopy": lambda m: copy.deepcopy(m).weights,
    "reduce": lambda m: copy.copy(copy.copy(m)).weights,
    "match": lambda m: matched(m),
    "after a write": lambda m: (setattr(m, "kept", 1), m.weights)[1],
    "after a deletion": lambda m: (delattr(m, "kept"), m.weights)[1],
    "isinstance": lambda m: m.weights if isinstance(m, type(m)) and hasattr(m, "weights") else None,
}


def matched(m):
    match m:
        case object(weights=w):
            return w


@pytest.mark.parametrize("way", READS)
def test_every_way_to_an_attribute(model, way):
    def f(x):
        return np.sum(READS[way](model) * x**2)

    np.testing.assert_allclose(tg.grad(f)(X), 2 * X * [1.0, -1.0])
    assert hasattr(model, "kept") == (way != "after a deletion")
    assert type(model.weights) is np.ndarray


def test_the_namespace_of_an_instance():
    for model in (Model(), Data(np.array([1.0, -1.0]), None)):
        for way in (vars, lambda m: m.__dict__, lambda m: object.__getattribute__(m, "__dict__")):

            def f(x, model=model, way=way):
                return np.sum(way(model)["weights"] * x**2) * len(way(model))

            np.testing.assert_allclose(tg.grad(f)(X), 4 * X * [1.0, -1.0])


def test_dataclasses_know_their_fields():
    data = Data(np.array([1.0, -1.0]), None)

    def f(x):
        other = replace(data, kept=x)
        return np.sum(other.kept * getattr(other, fields(data)[0].name))

    np.testing.assert_allclose(tg.grad(f)(X), [1.0, -1.0])


def test_a_write_and_a_deletion_before_any_read(model):
    def f(x):
        model.weights = x**2
        del model.kept
        return np.sum(model.weights)

    np.testing.assert_allclose(tg.grad(f)(X), 2 * X)
    np.testing.assert_array_equal(model.weights, X**2)
    assert not hasattr(model, "kept")


def test_an_instance_that_leaks_unread_is_the_users_afterwards(model):
    leaked = []
    keep = leaked.append  # a method of C: the list itself is the user's

    def f(x):
        tg.Const(keep).value(model)
        return np.sum(x**2)

    tg.grad(f)(X)
    (other,) = leaked
    assert type(other) is type(model)
    np.testing.assert_array_equal(other.weights, model.weights)
    assert type(other) is type(model)
    pickle.loads(pickle.dumps(other))


def test_what_changes_between_calls_is_seen():
    model = Model()

    def f(x):
        return model.value(x) + (np.sum(model.extra * x) if hasattr(model, "extra") else 0.0)

    g = tg.grad(f)
    for change, slope in [
        (lambda: None, [2.0, -12.0]),
        (lambda: setattr(Model, "scale", np.array([1.0, 1.0])), [1.0, -4.0]),
        (lambda: setattr(Model, "scale", 2.0), [2.0, -8.0]),
        (lambda: setattr(Model, "extra", property(lambda self: np.ones(2))), [3.0, -7.0]),
        (lambda: setattr(Model, "extra", np.full(2, 2.0)), [4.0, -6.0]),
        (lambda: delattr(Model, "extra"), [2.0, -8.0]),
        (lambda: setattr(model, "scale", np.array([0.0, 1.0])), [0.0, -4.0]),
        (lambda: setattr(Model, "value", lambda self, x: np.sum(self.doubled * x)), [2.0, -2.0]),
        (lambda: setattr(Model, "doubled", 3.0), [3.0, 3.0]),
    ]:
        change()
        np.testing.assert_allclose(g(X), slope)
        np.testing.assert_allclose(g(X), slope)
    before = {
        "scale": np.array([2.0, 3.0]),
        "value": value_of_a_model,
        "doubled": property(lambda self: 2.0 * self.weights),
    }
    for name, member in before.items():
        setattr(Model, name, member)


def value_of_a_model(self, x):
    return np.sum(self.scale * self.weights * x**2)


ANNOUNCED: list = []


class Shape(abc.ABC):
    """Derived classes are announced; the layout of their shadows must stay that of the class."""

    def __init_subclass__(cls, **options):
        ANNOUNCED.append(cls.__name__)

    @abc.abstractmethod
    def area(self): ...


class Disk(Shape):
    def __init__(self, r):
        self.r = r

    def area(self):
        return np.pi * self.r**2

    @classmethod
    def unit(cls):
        return cls(1.0)

    @staticmethod
    def twice(r):
        return 2.0 * r


STORE: dict = {}


def test_an_instance_made_inside_is_the_users_afterwards():
    def f(r):
        STORE["disk"] = Disk(Disk.twice(r))
        return STORE["disk"].area() + Disk.unit().area()

    assert tg.grad(f)(3.0) == pytest.approx(8 * np.pi * 3.0)
    assert ANNOUNCED == ["Disk"]
    assert type(STORE["disk"]) is Disk
    assert type(STORE["disk"].r) is not tg.Variable
    assert tg.grad(f)(3.0) == pytest.approx(8 * np.pi * 3.0)


def test_the_namespace_of_a_class():
    def f(x):
        members = vars(Model)
        named = {
            name for name, v in Model.__dict__.items() if inspect.isfunction(v) or isinstance(v, property)
        }
        assert named == {"__init__", "value", "doubled"}
        assert set(members) >= named
        return np.sum(members["scale"] * members["doubled"].fget(Model()) * x)

    np.testing.assert_allclose(tg.grad(f)(X), 2 * Model.scale * [1.0, -1.0])


def test_a_write_to_a_member_of_a_class():
    before = Model.scale.copy()

    def f(x):
        Model.scale[0] = x[0]
        Model.tally = np.sum(x)
        return Model().value(x) * Model.tally

    v = np.array([1.0, -0.5])
    h = 1e-6
    try:
        numeric = (f(X + h * v) - f(X - h * v)) / (2 * h)
        assert tg.grad(f)(X) @ v == pytest.approx(numeric, rel=1e-7)
        assert Model.scale[0] == X[0]
        assert Model.tally == X.sum()
    finally:
        Model.scale[:] = before
        del Model.tally


def test_a_call_costs_what_it_reads(monkeypatch):
    """Thousands of members, attributes and objects behind them, of which the function reads one each."""
    members = {f"m{k}": property(lambda self, k=k: self.parts[k]) for k in range(1000)}
    large = type("Large", (), {**members, "__module__": __name__, "first": lambda self: self.near.weights})
    x = large()
    x.near, x.rest = Model(), [Model() for _ in range(3)]
    for k in range(1000):
        setattr(x.near, f"other{k}", None)
        setattr(x.rest[0], f"far{k}", Model())
    replaced = []
    begin = Shadow.remember
    calls = 0

    def counted(self, *args):
        nonlocal calls
        calls += 1
        return begin(self, *args)

    held = Shadow.finish

    def finish(self, error=None):
        if self.on:
            replaced.append(len(self.hold))
        return held(self, error)

    monkeypatch.setattr(Shadow, "remember", counted)
    monkeypatch.setattr(Shadow, "finish", finish)
    np.testing.assert_allclose(tg.grad(lambda v: np.sum(x.first() * v**2))(X), 2 * X * [1.0, -1.0])
    assert replaced[0] < 30
    assert calls < 30


class Named:
    """Hashed by an attribute that leads back to a dict with it as a key."""

    def __init__(self, name):
        self.name, self.weights, self.others = name, np.array([1.0, -1.0]), {self: 2.0}

    def __hash__(self):
        return hash(self.name) if "name" in vars(self) else 0

    def __eq__(self, other):
        return self.name == other.name


class Keyed:
    __slots__ = ("name", "others", "weights")

    def __init__(self, name):
        self.name, self.weights = name, np.array([1.0, -1.0])
        self.others = {self: 2.0}

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return self.name == other.name


@pytest.mark.parametrize("kind", [Named, Keyed])
def test_an_instance_that_is_asked_while_it_is_read(kind):
    model = kind("a")

    def f(x):
        return model.others[model] * np.sum(model.weights * x**2)

    np.testing.assert_allclose(tg.grad(f)(X), 4 * X * [1.0, -1.0])


def test_threads_that_read_one_instance():
    for _ in range(20):
        model = Model()
        model.parts = {f"p{k}": Model() for k in range(50)}

        def f(x, model=model):
            found, ready = [], threading.Barrier(4)

            def ask():
                ready.wait()
                found.append([model.kept, model.weights, model.parts["p7"].weights])

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert len(found) == 4
            assert all(a[1] is found[0][1] and a[2] is found[0][2] for a in found)
            return np.sum(found[3][1] * found[2][2] * x**2)

        np.testing.assert_allclose(tg.grad(f)(X), 2 * X)


def test_members_looked_up_past_the_class():
    def f(x):
        assert isinstance(inspect.getattr_static(Model, "doubled"), property)
        assert isinstance(getattr_static(Disk, "twice"), staticmethod)
        assert inspect.signature(Model.value) == inspect.signature(value_of_a_model)
        return inspect.getattr_static(Model, "value")(Model(), x)

    np.testing.assert_allclose(tg.grad(f)(X), 2 * X * Model.scale * [1.0, -1.0])


class ReadsWeight:
    def __get__(self, x, kind=None):
        return x.w


class WithDescriptor:
    reads = ReadsWeight()

    def __init__(self):
        self.w = np.ones(2)


def test_a_descriptor_whose_method_was_not_read_yet():
    """Python calls the `__get__` of a class unbound."""
    x = WithDescriptor()

    def f(z):
        first = x.reads
        return (first * x.reads * z).sum()

    np.testing.assert_array_equal(tg.grad(f)(np.ones(2)), np.ones(2))


class StoredTwice:
    """A descriptor that has no `__get__`: it is read from the attributes of the object."""

    def __set__(self, x, value):
        vars(x)["w"] = vars(x)["same"] = value


class WithSetter:
    w = same = StoredTwice()

    def __init__(self, w):
        self.w = w


def test_a_descriptor_without_get():
    held = WithSetter(np.ones(2))

    def f(x):
        new = WithSetter(x)
        held.w = held.same * x
        return (held.w * new.same).sum() + new.w @ held.same

    np.testing.assert_array_equal(tg.grad(f)(np.array([1.0, 2.0])), [4.0, 8.0])
    np.testing.assert_array_equal(held.w, [1.0, 2.0])
    assert held.w is held.same


class Drawing:
    rng = np.random.default_rng(0)  # of the class

    def __init__(self, seed):
        self.own = np.random.default_rng(seed)

    def __call__(self, x):
        return (x * x * self.own.normal(size=2) * self.rng.normal(size=2)).sum()


def test_checkpoint_draws_what_was_drawn_from_attributes():
    def drawn(transform):
        Drawing.rng = np.random.default_rng(0)
        d = Drawing(1)
        return transform(d)(np.ones(2)), d.own.normal(), d.rng.normal()

    expected, found = drawn(tg.grad), drawn(lambda d: tg.grad(tg.checkpoint(lambda x: d(x))))
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1:] == expected[1:]
