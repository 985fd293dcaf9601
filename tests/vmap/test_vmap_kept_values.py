"""Functions that keep values under names while they run under `tg.vmap`: a loop's numbers, or an error."""

import copy
import dataclasses
import datetime
import decimal
import fractions
import functools
import inspect
import operator

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import BatchError, DroppedDerivativeError

X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
HELD = None
NAME = "".join(["h"])
GET = operator.attrgetter(NAME)


class Reads:
    def __get__(self, x, kind):
        return x.h


class Layer:
    """`calls` counts the runs by an integer, which is not followed."""

    reads = Reads()

    def __init__(self):
        self.h, self.calls, self.other = np.zeros(2), [], None

    def own(self):
        return self.h

    def __len__(self):
        return 1

    def __iter__(self):
        yield self.h

    def __mul__(self, x):
        return self.h * x

    def __getattr__(self, name):
        if name == "unknown":
            return self.h
        raise AttributeError(name)


class Plain:
    """No method of it reads anything."""

    def __init__(self):
        self.h, self.calls, self.other = np.zeros(2), [], None


class Reading(Plain):
    def own(self):
        return self.h


class Shown(Layer):
    def __format__(self, spec):
        return str(float(self.h.sum()))


@dataclasses.dataclass
class Data:
    h: object


def bound_first(layer, x):
    layer.h = x * 2
    return (layer.h * x).sum()


def bound_in_both_branches(layer, x):
    if len(x) > 5:
        layer.h = x * 2
    else:
        layer.h = x * 3
    return (layer.h * x).sum()


def never_read(layer, x):
    layer.h = np.sin(x)
    layer.other = {"x": [x * 1.0]}
    return (x * x).sum()


def bound_in_a_loop_and_read_there(layer, x):
    total = 0.0
    for k in range(3):
        layer.h = x * k
        total = total + (layer.h * x).sum()
    return total


def of_a_global(layer, x):
    global HELD
    HELD = x * 2
    return (HELD * x).sum()


ONCE = [bound_first, bound_in_both_branches, never_read, bound_in_a_loop_and_read_there, of_a_global]


def read_by_another(layer, x):
    layer.h = x * 2
    return (layer.own() * x).sum()


def after_a_loop(layer, x):
    for _ in range(len(x)):
        layer.h = x * 2
    return (layer.h * x).sum()


def in_an_except_clause(layer, x):
    try:
        layer.h = x * 2
        layer.missing  # noqa: B018
    except AttributeError:
        return (layer.h * x).sum()


def second_trip(layer, x):
    total = 0.0
    for k in range(2):
        if k == 1:
            total = total + (layer.h * x).sum()
        layer.h = x * 2
    return total - (layer.h * x).sum() + (x * x).sum()


RIGHT = [*ONCE, read_by_another, after_a_loop, in_an_except_clause, second_trip]


def keeping(read):
    """Reads what was kept, and keeps another value."""

    def f(layer, x):
        y = read(layer)
        layer.h = x * 2
        return (y * x).sum()

    return f


def maybe_bound(layer, x):
    if len(x) > 5:
        layer.h = x
    y = (layer.h * x).sum()
    layer.h = x * 2
    return y


def of_another_object(layer, x):
    layer.h = x * 2
    y = (layer.other.h * x).sum()
    layer.other.h = x
    return y


def rebound_argument(layer, x):
    layer.h = x * 2
    layer = layer.other
    y = (layer.h * x).sum()
    layer.h = x
    return y


def by_a_pattern(layer, x):
    match layer:
        case Plain(h=y):
            pass
    layer.h = x * 2
    return (y * x).sum()


READERS = {
    "attribute": lambda s: s.h, "method": lambda s: s.own(), "getattr": lambda s: getattr(s, NAME),
    "vars": lambda s: vars(s)[NAME],
    "dict": lambda s: s.__dict__[NAME], "attrgetter": GET, "partial": functools.partial(lambda k, s: s.h * k,
    1.0),
    "descriptor": lambda s: s.reads, "__getattr__": lambda s: s.unknown, "operator": lambda s: s * 1.0,
    "iteration": lambda s: next(iter(s)),
    "unpacked": lambda s: [*s][0], "inner": lambda s: (lambda: s.h)(),
    "comprehension": lambda s: [s.h for _ in range(1)][0],
    "eval": lambda s: eval("s.h"), "object": lambda s: object.__getattribute__(s, NAME),
    "copy": lambda s: copy.copy(s).h,
    "members": lambda s: dict(inspect.getmembers(s))[NAME],
    "class": lambda s: type(s).own(s),
}  # fmt: skip
HANDED_ON = [maybe_bound, of_another_object, rebound_argument, by_a_pattern]
AROUND = {
    "vmap": (lambda f: tg.vmap(f)(X), lambda f: np.stack([f(x) for x in X])),
    "vmap of grad": (lambda f: tg.vmap(tg.grad(f))(X), lambda f: np.stack([tg.grad(f)(x) for x in X])),
    "grad of vmap": (
        lambda f: tg.grad(lambda X: tg.vmap(f)(X).sum())(X),
        lambda f: tg.grad(lambda X: sum([f(x * 1.0) for x in X]))(X),
    ),
}


def made(f, kind=Plain):
    layer = kind()
    layer.other = kind()

    def run(x):
        layer.calls.append(0)
        return f(layer, x)

    return layer, run


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("f", RIGHT, ids=lambda f: f.__name__)
def test_what_hands_nothing_on(f, around):
    batched, loop = AROUND[around]
    kind = Plain if f is not read_by_another else Reading
    (layer, g), (other, h) = made(f, kind), made(f, kind)
    if f not in ONCE:
        g = functools.partial(f, layer)  # (run twice, it may not count its calls)
    np.testing.assert_allclose(batched(g), loop(h), rtol=1e-12)
    np.testing.assert_allclose(layer.h, other.h, rtol=1e-12)
    assert len(layer.calls) == (f in ONCE)


@pytest.mark.parametrize(
    "around", ["grad of vmap", *[pytest.param(a, marks=pytest.mark.long) for a in ("vmap", "vmap of grad")]]
)
@pytest.mark.parametrize(
    "f", [*map(keeping, READERS.values()), *HANDED_ON], ids=[*READERS, *[f.__name__ for f in HANDED_ON]]
)
def test_what_hands_something_on_is_loud(f, around):
    layer, _ = made(f, Layer if f not in HANDED_ON else Plain)
    with pytest.raises(BatchError, match="keeps a value"):
        AROUND[around][0](functools.partial(f, layer))
    assert type(layer.h) is np.ndarray


def test_text_that_is_read():
    layer, _ = made(None, Shown)
    with pytest.raises((BatchError, DroppedDerivativeError)):
        tg.vmap(functools.partial(keeping(lambda s: float(f"{s}")), layer))(X)


@pytest.mark.parametrize("call", [
    lambda f, read: tg.vmap(f)(X, read=read), lambda f, read: tg.vmap(f)(X, tg.Const(read)),
    lambda f, read: tg.grad(lambda X: tg.vmap(f)(X, read=read).sum())(X), lambda f,
    read: tg.vmap(functools.partial(f, read=read))(X),
])  # fmt: skip
def test_readers_among_the_arguments(call):
    layer = Layer()

    def f(x, read):
        y = read(layer)
        layer.h = x * 2
        return (y * x).sum()

    with pytest.raises(BatchError, match="keeps a value"):
        call(f, lambda s: s.h)


def test_names_of_outer_functions():
    def setting():
        kept, runs = None, []

        def write(x):
            nonlocal kept
            runs.append(0)
            kept = x * 2
            return x.sum()

        return write, lambda: (kept, len(runs))

    for around in AROUND.values():
        write, read = setting()
        around[0](write)
        assert read()[0].tolist() == [10.0, 14.0] and read()[1] == 1


def test_data_classes():
    d = Data(np.zeros(2))

    def f(x):
        y = dataclasses.replace(d).h
        d.h = x * 2
        return (y * x).sum()

    with pytest.raises(BatchError, match="keeps a value in an attribute of a Data"):
        tg.vmap(f)(X)


def forgetting(keep):
    last = 0.25

    def remember(v):
        nonlocal last
        last = last * keep + v
        return last

    return lambda x: (x * (remember(0.25) + 0.5)).sum()


@pytest.mark.parametrize("around", AROUND)
def test_a_value_that_is_multiplied_by_zero_is_not_handed_on(around):
    """In the second run it is one of each sample, and the same for all."""
    batched, loop = AROUND[around]
    np.testing.assert_allclose(batched(forgetting(0.0)), loop(forgetting(0.0)), rtol=1e-14)
    with pytest.raises(BatchError, match="keeps a value in a name of an outer function"):
        batched(forgetting(0.5))


# --- arrays of integers and truth values, which nobody follows, under a name that is bound anew ---

START = np.arange(3)


def name(x):
    global HELD
    HELD = (START if HELD is None else HELD) + 1
    return x.sum() * HELD.sum()


def attribute(x, layer=Plain()):  # noqa: B008
    layer.other = (START if layer.other is None else layer.other) + 1
    return x.sum() * layer.other.sum()


def entry(x, table={"k": START}):  # noqa: B006
    table["k"] = table["k"] + 1
    return x.sum() * table["k"].sum()


def element(x, row=[START]):  # noqa: B006
    row[0] = row[0][::-1]
    return x[row[0][:1] % 2].sum() * row[0][0]


class Counter:
    k = START


def member(x):
    Counter.k = Counter.k * 2
    return x.sum() * Counter.k.sum()


def truths(x, row=[START > 0]):  # noqa: B006
    row[0] = ~row[0]
    return x[row[0][:2]].sum()


@pytest.mark.parametrize("f", [name, attribute, entry, element, member, truths], ids=lambda f: f.__name__)
def test_an_array_of_integers_that_is_bound_anew_is_loud(f):
    global HELD
    try:
        with pytest.raises(BatchError, match="keeps a value"):
            tg.vmap(f)(X)
    finally:
        HELD = None


def test_an_array_of_integers_that_is_bound_before_it_is_read():
    box = Plain()

    def f(x):
        box.other = np.array([1, 0])
        return x[box.other][0] * 2

    np.testing.assert_array_equal(tg.vmap(f)(X), [f(x) for x in X])


@pytest.mark.parametrize(
    "start, after",
    [
        (np.int32(1), lambda k: np.int32(k + 1)), (np.float32(1), lambda k: k * np.float32(2)),
        (np.bool_(True), lambda k: ~k),
        (fractions.Fraction(1, 2), lambda k: k + 1), (datetime.timedelta(1), lambda k: k * 2), (slice(0, 1),
        lambda k: slice(k.stop + 1)),
        (decimal.Decimal(2), lambda k: k * 2), ((START,), lambda k: (k[0] + 1,)),
        (np.datetime64("2020-01-01"), lambda k: k + np.timedelta64(1, "D")),
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_a_value_that_is_bound_anew_is_loud(start, after):
    box = Plain()
    box.other = start

    def f(x):
        box.other = after(box.other)
        return x.sum() * len(str(box.other))

    with pytest.raises(BatchError, match="keeps a value"):
        tg.vmap(f)(X)
    box.other = start
    np.testing.assert_array_equal(tg.vmap(lambda x: setattr(box, "other", start) or x.sum())(X), X.sum(1))
