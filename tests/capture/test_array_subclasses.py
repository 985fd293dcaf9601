"""Subclasses of np.ndarray are followed over tracked arrays. Each result has the class, the attributes and the
value of a plain call, in every mode."""

import abc
import copy
import math
import typing

import numpy as np
import pytest

import tapegrad as tg

X = np.array([0.7, 1.9, 1.3, 0.4])


class Signal(np.ndarray):
    """Attributes that go along, as NumPy's guide to subclassing writes them."""

    def __new__(cls, values, name=None):
        new = np.asarray(values).view(cls)
        new.name = name
        return new

    def __array_finalize__(self, template):
        if template is None or template.__class__ is np.ndarray:
            return
        self.name = getattr(template, "name", "none")

    @property
    def last(self):
        return self[-1]

    @classmethod
    def ramp(cls, n):
        return cls(np.arange(n), "ramp")

    def scaled(self, by):
        return self * by


class Loud(Signal):
    """A class derived from another one, with methods that call those of its base."""

    def scaled(self, by):
        return super().scaled(by) + 1.0

    def __getitem__(self, at):
        return super().__getitem__(at)


class Metres(np.ndarray):
    """A unit that ufuncs compute with."""

    power = 1

    def __array_finalize__(self, template):
        self.power = getattr(template, "power", 1)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **params):
        powers = [getattr(v, "power", 0) for v in inputs]
        plain = [np.asarray(v) for v in inputs]
        if out is not None:
            params["out"] = tuple([np.asarray(v) for v in out])
        y = super().__array_ufunc__(ufunc, method, *plain, **params)
        if ufunc is np.multiply:
            power = sum(powers)
        elif ufunc is np.sqrt:
            power = powers[0] / 2
        elif ufunc in (np.add, np.subtract, np.maximum):
            assert len(set(powers)) == 1, powers
            power = powers[0]
        else:
            return NotImplemented
        y = np.asarray(y).view(type(self))
        y.power = power
        return y


class Buffered(np.ndarray):
    """Made over the memory of another array."""

    def __new__(cls, values):
        new = super().__new__(cls, values.shape, float, values)
        new.source = values
        return new


class Unwrapped(np.ndarray):
    """Ufuncs give plain arrays."""

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return np.asarray(array)


outside = tg.Const(lambda a: np.asarray(a).sum())
HELD = Signal([1.0, 2.0, 3.0, 4.0], "held")


def seen(*values):
    """The classes and names of these, and the sum of their squares."""
    told = [(v.__class__.__name__, np.shape(v), getattr(v, "name", None)) for v in values]
    return sum([np.sum(np.asarray(v) * np.asarray(v)) for v in values]), told


OPERATIONS = {
    "operators": lambda s: (s + 1, 2.0 - s, s * s, s @ s, -s, s**2, s / np.ones(4), np.ones(4) * s, abs(s)),
    "methods": lambda s: (
        s.sum(),
        s.mean(),
        s.max(),
        s.cumsum(),
        s.reshape(2, 2),
        s.T,
        s.copy(),
        s.std(),
        s.dot(s),
    ),
    "views": lambda s: (
        s[1:],
        s[0],
        s[[0, 1]],
        s[s > 1],
        s[()],
        s[None],
        s.real,
        s.ravel(),
        s.view(np.ndarray),
    ),
    "functions": lambda s: (
        np.sin(s),
        np.sum(s),
        np.mean(s),
        np.var(s),
        np.concatenate([s, s]),
        np.where(s > 1, s, 0),
    ),
    "functions of more": lambda s: (
        np.stack([s, np.ones(4)]),
        np.outer(s, s),
        np.dot(s, s),
        np.linalg.norm(s),
        np.diff(s),
    ),
    "conversions": lambda s: (
        np.asarray(s),
        np.array(s),
        np.array(s, subok=True),
        np.asanyarray(s),
        np.zeros_like(s),
        s.astype(float),
    ),
    "own": lambda s: (
        s.last,
        s.scaled(3.0),
        Signal.ramp(4) * s,
        s * Signal.ramp(4),
        copy.deepcopy(s),
        copy.copy(s),
    ),
    "reductions": lambda s: (
        np.add.reduce(s),
        np.maximum.accumulate(s),
        np.add.outer(s, s),
        np.prod(s),
        np.any(s),
    ),
    "captured": lambda s: (HELD * s, s - HELD, HELD[1:] * s[1:], np.dot(HELD, s)),
    "modf": lambda s: (*np.modf(s), *np.divmod(s, 0.55)),
    "iteration": lambda s: tuple([v * 2 for v in s]),
    "tuples": lambda s: (
        np.clip(s, 0.5, 1.5),
        np.maximum(s, 1.0),
        np.repeat(s, 2),
        np.take(s, [0, 1]),
        np.squeeze(s),
    ),
}


def written(s):
    s[1] = s[0] * 2.0
    t = s[2:]
    t *= 3.0
    s += HELD
    np.multiply(s, 0.5, out=s)
    return s, t


OPERATIONS["writes"] = written


@pytest.mark.parametrize("kind", [Signal, Loud])
@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_those_of_a_plain_call(name, kind):
    told = []

    def f(x):
        y, classes = seen(*OPERATIONS[name](kind(x * 1.0, "s")))
        told.append(classes)
        return y

    plain = f(X)
    value, gradient = tg.value_and_grad(f)(X)
    assert told[1] == told[0]
    np.testing.assert_allclose(value, plain, rtol=1e-13)
    v = np.array([0.3, -1.0, 0.5, 0.2])
    slope = (f(X + 1e-6 * v) - f(X - 1e-6 * v)) / 2e-6
    np.testing.assert_allclose(gradient @ v, slope, rtol=1e-6)
    np.testing.assert_allclose(tg.jvp(f, (X,), (v,))[1], gradient @ v, rtol=1e-12)
    bent = (tg.grad(f)(X + 1e-5 * v) - tg.grad(f)(X - 1e-5 * v)) / 2e-5
    np.testing.assert_allclose(tg.hvp(f, X, v), bent, rtol=1e-5, atol=1e-6)


def test_the_ufuncs_of_a_unit():
    def f(x):
        m = (x * 1.0).view(Metres)
        area = m * m + np.sqrt(m * m * m * m)
        assert (area.power, np.add.reduce(area).power, (2.0 * m).power) == (2, 2, 1)
        assert isinstance(area, Metres) and type(area) is Metres
        m *= 2.0
        return np.sum(np.asarray(area.sum())) + np.asarray(m).sum()

    np.testing.assert_allclose(tg.grad(f)(X), 4 * X + 2)
    with pytest.raises(AssertionError, match="0"):
        tg.grad(lambda x: np.asarray((x * 1.0).view(Metres) + x).sum())(X)


@pytest.mark.filterwarnings(
    "ignore:Setting the shape on a NumPy array:DeprecationWarning"
)  # from NumPy 2.5 on
def test_a_shape_that_is_set():
    def f(x):
        y = x * 2.0
        y.shape = 2, 2
        part = x[1:4][:2]
        part.shape = (2, 1)
        part *= 3.0
        x = x * 1.0
        x.shape = (4, -1)
        return (y[0] * y[1]).sum() * x[0, 0] + x.sum() + part.sum()

    slopes = [(f(X + 1e-6 * e) - f(X - 1e-6 * e)) / 2e-6 for e in np.eye(4)]
    np.testing.assert_allclose(tg.grad(f)(X), slopes, rtol=1e-7)
    np.testing.assert_allclose(tg.jvp(f, (X,), (np.ones(4),))[1], np.sum(slopes), rtol=1e-7)
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(np.stack([X, X]))[1], slopes, rtol=1e-7)
    with pytest.raises(tg.errors.ArgumentError, match="reshape"):
        tg.grad(lambda x: (setattr(HELD, "shape", (2, 2)), np.sum(x))[1])(X)


def test_numbers():
    class Percent(np.ndarray):
        def __float__(self):
            return float(np.asarray(self)) / 100.0

    def f(x):
        one = x[1:2].reshape(()).view(Percent)
        return float(one) + math.sin(one) + float(Signal(x[0], "s")) + complex(Signal(x[0], "s")).real

    np.testing.assert_allclose(tg.grad(f)(X), [2.0, 0.01 * (1 + math.cos(X[1] / 100)), 0.0, 0.0])


def test_other_ways_of_making():
    np.testing.assert_allclose(
        tg.grad(lambda x: np.asarray(Buffered(x)[1:] * Buffered(x).source[1]).sum())(X)[1], X[1:].sum() + X[1]
    )

    def unwrapped(x):
        y = x.view(Unwrapped)
        assert type(np.sin(y)) is np.ndarray and type(y[1:]) is Unwrapped
        return np.sin(y).sum()

    np.testing.assert_allclose(tg.grad(unwrapped)(X), np.cos(X))

    def inside(x):
        class Here(np.ndarray):
            def twice(self):
                return self * 2

        return np.asarray(x.view(Here).twice()).sum()

    np.testing.assert_allclose(tg.grad(inside)(X), 2)


def test_what_is_captured_is_handed_back():
    held, box = Signal(np.zeros(4), "buffer"), {}

    def f(x):
        held[1:] = x[1:] * 2.0
        held.name = "written"
        box["made"] = Signal(x, "made")
        return np.sum(held * x)

    gradient = tg.grad(f)(X)
    np.testing.assert_allclose(gradient, [0.0, *4.0 * X[1:]])
    assert type(held) is Signal and held.name == "written"
    np.testing.assert_array_equal(held, [0.0, *2.0 * X[1:]])
    assert type(box["made"]) is Signal and box["made"].name == "made" and type(box["made"].sum()) is Signal
    np.testing.assert_array_equal(box["made"], X)


def test_results_and_trees():
    """A result is the array of numbers; an inner transform sees through the class."""
    np.testing.assert_allclose(tg.jacobian(lambda x: Signal(x, "s") * 2)(X), 2 * np.eye(4))
    value, aux = tg.value_and_grad(lambda x: (Signal(x, "s").sum(), Signal(x, "aux")), has_aux=True)(X)[0]
    assert value == X.sum() and type(aux) is np.ndarray
    np.testing.assert_allclose(
        tg.vmap(lambda x: Signal(x, "s").sum() * x)(np.outer([1.0, 2.0], X)).shape, (2, 4)
    )
    square = tg.checkpoint(lambda s: np.asarray(s * s).sum())
    np.testing.assert_allclose(tg.grad(lambda x: square(Signal(x, "s")))(X), 2 * X)
    p = tg.prepare(lambda x: np.sum(np.asarray(Signal(x, "s") * HELD)), X)
    np.testing.assert_allclose(p.grad(X + 1), HELD)


def test_compiled_code_refuses():
    def f(x):
        return np.frombuffer(memoryview(Signal(x, "s"))).sum()

    with pytest.raises((TypeError, tg.errors.DroppedDerivativeError)):
        tg.grad(f)(X)
    with pytest.raises(tg.errors.DroppedDerivativeError, match="Signal"):
        tg.grad(lambda x: outside(Signal(x, "s")))(X)


class Registered(np.ndarray):
    """Its functions are for arrays of this class only, as in NEP 18."""

    def __array_function__(self, f, types, args, kwargs):
        if f is not np.transpose:
            return super().__array_function__(f, types, args, kwargs)
        if not all(issubclass(t, Registered) for t in types):
            return NotImplemented
        return (2.0 * np.asarray(args[0]).T).view(Registered)


def test_the_types_of_an_array_function():
    f = lambda x: np.sum(np.asarray(np.transpose(x.view(Registered))) * np.arange(3.0))
    np.testing.assert_array_equal(tg.grad(f)(np.ones(3)), [0.0, 2.0, 4.0])


def test_functions_of_subclasses_and_of_arrays():
    """NumPy asks the class, which declines, and then runs the function itself."""
    weights = np.arange(3.0)

    def f(x):
        s = x.view(Registered)
        both = np.concatenate([np.einsum("i,i->i", s, weights * x), np.einsum("i,i->i", x, s)])
        return np.sum(both**2) + np.sum(np.asarray(np.transpose(s)) * x)

    x, v = np.array([0.5, -1.0, 2.0]), np.array([0.3, 0.2, -0.7])
    value, gradient = tg.value_and_grad(f)(x)
    assert float(value) == pytest.approx(float(f(x)), rel=1e-12)
    assert gradient @ v == pytest.approx((f(x + 1e-6 * v) - f(x - 1e-6 * v)) / 2e-6, rel=1e-7)


class Filled(np.ndarray):
    """`__init__` writes the array that `__new__` has made."""

    def __new__(cls, values):
        return np.empty(np.shape(values)).view(cls)

    def __init__(self, values):
        self.plain[:] = values

    @property
    def plain(self):
        return self.view(np.ndarray)


class Doubled(Filled):
    def __init__(self, values):
        super().__init__(values)
        self *= 2


class Tripling(type):
    def __call__(cls, *args):
        return super().__call__(*args) * 3


class Tripled(np.ndarray, metaclass=Tripling):
    def __new__(cls, values):
        return np.empty(np.shape(values)).view(cls)

    def __init__(self, values):
        self[:] = values


@pytest.mark.parametrize("kind, factor", [(Filled, 1.0), (Doubled, 2.0), (Tripled, 3.0)])
def test_an_array_is_initialised(kind, factor):
    def f(x):
        return np.sum(np.asarray(kind(x)) ** 2), type(kind(x)) is kind

    (value, same), gradient = tg.value_and_grad(f, has_aux=True)(X)
    assert value == pytest.approx(factor**2 * np.sum(X**2)) and same
    np.testing.assert_allclose(gradient, 2 * factor**2 * X)
    _, tangent = tg.jvp(lambda x: f(x)[0], (X,), (np.ones(4),))
    assert tangent == pytest.approx(2 * factor**2 * np.sum(X))


class Unit:
    """A unit of length, which takes the operators of arrays over."""

    __array_priority__ = 1000.0

    def __rtruediv__(self, s):
        return Metres.__truediv__(s, 1.0)

    def __rlshift__(self, x):
        return 2.0 * np.asarray(x).view(Signal)


class Prior(Signal):
    __array_priority__ = 2.0


def test_operators_are_left_to_what_has_priority():
    f = lambda x: np.sum((Prior(x) << Unit()) ** 2)
    assert f(X) == np.sum((2 * X) ** 2)
    np.testing.assert_array_equal(tg.grad(f)(X), 8 * X)
    assert Prior(X).__pow__(2, 3) is NotImplemented
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(Prior(x).__pow__(3, None)))(X), 3 * X**2)


@pytest.mark.parametrize("f", [np.stack, np.vstack, np.hstack, np.column_stack, np.atleast_2d])
def test_functions_that_python_code_of_numpy_composes(f):
    class Named(Loud):
        __array_priority__ = 5.0

        def __array_function__(self, f, types, args, kwargs):
            return super().__array_function__(f, types, args, kwargs)

    def joined(x):
        s = np.asarray(x).view(Named)
        y = f(s) if f is np.atleast_2d else f([s, 2.0 * s])
        assert y.__class__ is Named
        return np.sum(np.asarray(y) ** 2)

    assert tg.value_and_grad(joined)(X)[0] == joined(X)
    np.testing.assert_allclose(tg.grad(joined)(X), (2 if f is np.atleast_2d else 10) * X)


def test_broadcast_of_subclasses():
    def f(x):
        found = np.broadcast(Signal(x, "s"), np.ones((3, 1)), None)
        assert found.shape == (3, 4)
        return sum([a * b for a, b, _ in found])

    np.testing.assert_allclose(f(X), 3 * np.sum(X))
    np.testing.assert_array_equal(tg.grad(f)(X), np.full(4, 3.0))


class Counting(type):
    """A metaclass, as astropy's constants have one."""


class Constant(np.ndarray, metaclass=Counting):
    checked = False

    def __mul__(self, other):
        type(self).checked = True
        return super().__mul__(other)


HOLDING: typing.Any = typing.Union[int, Constant, typing.List[Constant]]  # noqa: UP006, UP007
SPEED = np.array([2.0]).view(Constant)


def test_a_class_behind_a_union_of_types_is_followed():
    def f(x):
        assert Constant in typing.get_args(HOLDING)
        return np.sum(np.asarray(SPEED * x))

    for _ in range(3):
        Constant.checked = False
        np.testing.assert_array_equal(tg.grad(f)(X), np.full(4, 2.0))
        assert Constant.checked is True and "_tg_of_arrays" not in vars(Constant)


class State(np.ndarray, metaclass=abc.ABCMeta):
    """Coordinates whose form is changed in place, as the package `beyond` does it."""

    def __new__(cls, coordinates, form):
        x = np.ndarray.__new__(cls, (2,), buffer=np.array([float(c) for c in coordinates]), dtype=float)
        x.form = form
        return x

    def __array_finalize__(self, template):
        self.form = getattr(template, "form", None)

    @abc.abstractmethod
    def energy(self): ...

    def to_polar(self):
        self.base.setfield([np.hypot(*self), np.arctan2(self[1], self[0])], dtype=float)
        self.form = "polar"


class Place(State):
    def energy(self):
        return self[0] ** 2 * self[1] + np.sum(self / np.linalg.norm(self))


def test_a_subclass_with_abstract_methods_that_is_set_in_place():
    def f(x):
        place = Place([x[0] ** 2, x[1]], "cartesian")
        place.to_polar()
        return place.energy() * isinstance(place, State) * (place.form == "polar")

    def written(x):
        p = np.array([np.hypot(x[0] ** 2, x[1]), np.arctan2(x[1], x[0] ** 2)])
        return p[0] ** 2 * p[1] + np.sum(p / np.sqrt(p @ p))

    x = np.array([0.7, 1.3])
    assert tg.value_and_grad(f)(x)[0] == pytest.approx(f(x), rel=1e-15)
    np.testing.assert_allclose(tg.grad(f)(x), tg.grad(written)(x), rtol=1e-13)
    np.testing.assert_allclose(tg.hvp(f, x, x), tg.hvp(written, x, x), rtol=1e-12)
