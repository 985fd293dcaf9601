"""`float`, `math`, `statistics`, classes of numbers and texts in code that is followed: values and errors of
a plain call, derivatives against differences."""

import cmath
import functools
import io
import json
import math
import pickle
import statistics
import warnings
from math import log as ln
from math import sqrt

import numpy as np
import pytest

import tapegrad as tg

X = np.array([0.7, 1.3])
H = 1e-5


def difference(f, x):
    return np.array([(f(x + H * e) - f(x - H * e)) / (2 * H) for e in np.eye(x.size)])


FUNCTIONS = {
    **{
        name: functools.partial(lambda f, x: f(x[0]) * x[1], getattr(math, name))
        for name in "acos asin asinh atan atanh cbrt cos cosh degrees erf erfc exp exp2 expm1 fabs gamma "
        "lgamma log10 log1p log2 "
        "radians sin sinh sqrt tan tanh".split()
    },
    "acosh": lambda x: math.acosh(x[1]) * x[0],
    "atan2, hypot, pow, fmod": lambda x: (
        math.atan2(x[0], x[1]) * math.hypot(*x) + math.pow(x[0], x[1]) + math.fmod(x[1], 0.5)
    ),
    "log with a base": lambda x: math.log(x[1], 10) + ln(x[0]) * sqrt(x[1]),
    "copysign, modf, ldexp": lambda x: (
        math.copysign(x[0], -1) + math.modf(x[1])[0] ** 2 + math.ldexp(x[0], 3)
    ),
    "of sequences": lambda x: (
        math.fsum(v * v for v in x) + math.dist(x, [0.0, 1.0]) + math.prod(x) + sum(map(float, x))
    ),
    **{  # of Python 3.12 and 3.13
        name: functools.partial(f, getattr(math, name))
        for name, f in {
            "fma": lambda fma, x: fma(x[0], x[1], x[0]) * x[1],
            "sumprod": lambda sumprod, x: sumprod(x, [x[1], 3.0]) * x[0],
        }.items()
        if hasattr(math, name)
    },
    "of values": lambda x: (math.floor(x[1]) + math.isfinite(x[0]) + math.isclose(x[0], 9.0)) * x[0],
    "complex": lambda x: (
        abs(cmath.exp(1j * x[0]) + complex(x[0], x[1]))
        + cmath.phase(x[0] + 1j)
        + abs(cmath.sqrt(-x[1]) + cmath.rect(*x))
    ),
    "statistics": lambda x: (
        statistics.fmean(x) * statistics.stdev(list(x)) + statistics.median(x) + statistics.geometric_mean(x)
    ),
    "statistics of pairs": lambda x: (
        statistics.covariance(x, [1.0, 3.0]) + statistics.linear_regression([1.0, 4.0], list(x * x)).intercept
    ),
    "a correlation": lambda x: statistics.correlation([x[0], x[1], 2.0], [1.0, 2.0, 5.0]),
    "float, item, tolist": lambda x: (
        float(x[0]) * x[1].item() + x.item(0) * sum(x.tolist()) + x.__array__()[1] + float(x[:1].sum())
    ),
    "classes of numbers": lambda x: (
        np.float64(x[0]) * np.float64([x[1], 2.0]).sum() + np.complex128(x[0]).real
    ),
    "methods of a class": lambda x: float.__mul__(x[0], x[1]) + float.__rsub__(x[0], 2.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name):
    f = FUNCTIONS[name]
    value, gradient = tg.value_and_grad(f)(X)
    assert value == pytest.approx(f(X), rel=1e-14)
    np.testing.assert_allclose(gradient, difference(f, X), rtol=1e-7)
    np.testing.assert_allclose(tg.jvp(f, (X,), (X,))[1], gradient @ X, rtol=1e-12)
    np.testing.assert_allclose(tg.hessian(f)(X), difference(lambda x: tg.grad(f)(x), X), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(tg.prepare(f, X).grad(X), gradient, rtol=1e-12)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: math.fsum([1e16, x[0], -1e16, x[1]]),
        lambda x: (
            math.sumprod([1e8, float(x[0]), -1e8], [1e8, float(x[1]), 1e8])
            if hasattr(math, "sumprod")
            else x[0]
        ),
        lambda x: math.fma(x[0], x[1], -(x[0] * x[1])) if hasattr(math, "fma") else x[0],
    ],
)
def test_sums_that_are_rounded_once(f):
    value, gradient = tg.value_and_grad(f)(X)
    assert value == f(X) != 0
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: math.sqrt(-x[0]), lambda x: math.log(x[0] - x[0]), lambda x: math.exp(2000 * x[0]),
        lambda x: float(x), lambda x: float((x[0],)), lambda x: complex([x[0]]),
        lambda x: math.sin(x), lambda x: x.item(), lambda x: x.item(5), lambda x: math.gcd(x[0], 2),
    ],
)  # fmt: skip
def test_errors_are_those_of_a_plain_call(f):
    with pytest.raises(Exception) as plain:
        f(X)
    with pytest.raises(type(plain.value)) as ours:
        tg.grad(f)(X)
    assert str(ours.value) == str(plain.value)


@pytest.mark.parametrize("f", [math.sin, math.sqrt, math.fabs, math.log, lambda z: math.hypot(z, 1.0)])
def test_functions_of_real_numbers_refuse_complex_ones(f):
    """They do not answer with the complex function."""
    z = np.array(1.5 + 2j)
    g = lambda z: z * f(z)
    ways = [
        g,
        lambda z: tg.jvp(g, (z,), (z,)),
        lambda z: tg.vjp(g, z),
        lambda z: tg.vmap(lambda x: tg.jvp(g, (x,), (x,)))(np.array([z, z])),
        lambda z: tg.prepare(g, z).value(z),
    ]
    for way in ways:
        with pytest.raises(TypeError, match="real number"):
            way(z)
    value, slope = tg.jvp(lambda z: math.prod([z, z]), (z,), (np.array(1.0 + 0j),))
    assert value == z * z and slope == 2 * z


def test_the_names_are_classes_still():
    captured = {}

    def f(x, kind=float):
        class Own(float):
            pass

        assert (
            [type(v) is float for v in (1.0, 1)] == [True, False]
            and kind is float
            and {float: 1, complex: 2}[complex] == 2
        )
        assert isinstance(kind(x[0]), float) and type(Own(2.0)) is Own and issubclass(Own, float)
        assert np.dtype(float) == np.zeros(2, dtype=float).dtype == np.float64 and np.dtype("f") in [
            np.int8,
            np.float32,
        ]
        assert (
            type(np.float32(1)) is np.float32
            and np.finfo(np.float32).eps > 1e-8
            and issubclass(np.float64, np.floating)
        )
        assert pickle.loads(pickle.dumps([float, np.float64])) == [float, np.float64]
        match x[0]:
            case float(v):
                captured["kind"] = float
                return v * v

    np.testing.assert_allclose(tg.grad(f)(X), [1.4, 0.0])
    assert captured["kind"] is float


def test_files_and_texts_have_plain_values(capsys):
    def f(x):
        file = io.BytesIO()
        np.save(file, x)
        np.savetxt(io.StringIO(), x)
        np.testing.assert_allclose(x, [0.7, 1.3])
        assert json.dumps({"x": x.tolist(), "y": [x[0]]}) == '{"x": [0.7, 1.3], "y": [0.7]}'
        with pytest.raises(AssertionError):
            np.testing.assert_array_less(x, 1.0)
        print(f"{x[0]:.2f}", np.format_float_positional(x[1]))
        return (x * x).sum()

    np.testing.assert_allclose(tg.grad(f)(X), 2 * X)
    assert capsys.readouterr().out == "0.70 1.3\n"


def test_repeated_places():
    def f(x):
        b = x * 1.0
        np.multiply.at(b, [0, 1, 0], np.array([2.0, 3.0, 4.0]) * x[1])
        np.divide.at(b, [1, 1], x[0])
        np.power.at(b, [0, 0], 2.0)
        np.negative.at(b, [1])
        return (b * [1.0, 2.0]).sum()

    np.testing.assert_allclose(tg.grad(f)(X), difference(f, X), rtol=1e-6)


def test_a_vectorized_function_of_parts():
    A = np.random.default_rng(0).normal(size=(2, 3, 3))

    def f(a):
        q, r = np.vectorize(np.linalg.qr, signature="(m,n)->(m,k),(k,n)")(a.reshape(A.shape))
        return np.sin(q).sum() + np.cos(r).sum()

    np.testing.assert_allclose(tg.grad(f)(A.ravel()), difference(f, A.ravel()), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("strides", [(8, 8), (16, 8), (0, 16)])
def test_as_strided(strides):
    f = lambda x: (
        np.lib.stride_tricks.as_strided(x, (2, 2), strides) * [[1.0, 2.0], [3.0, 4.0]] * x[0]
    ).sum()
    x = np.array([0.7, 1.3, -0.4, 2.0])
    np.testing.assert_allclose(tg.grad(f)(x), difference(f, x), rtol=1e-7)


class Meta(type):
    @property
    def name(cls):
        return cls.__name__


class Base(metaclass=Meta):
    name = "a member that the metaclass hides"

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def __setattr__(self, key, value):
        super.__setattr__(self, key, value)

    def value(self, x):
        return math.exp(x[0]) * self.scale


def test_a_class_whose_metaclass_has_properties():
    for _ in range(3):
        f = lambda x: (
            Base(2.0).value(x) * len(Base.name) * (Base(1.0).name == "a member that the metaclass hides")
        )
        np.testing.assert_allclose(tg.grad(f)(X), difference(f, X), rtol=1e-7)
    with warnings.catch_warnings(action="error"):
        assert Base.name == "Base" and vars(Base)["name"].startswith("a member")


class Parameter:
    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)

    def __complex__(self):
        return complex(self.value, 2 * self.value)

    def __int__(self):
        return int(self.value)


def test_an_object_that_defines_float_in_python():
    """Packages of parameters and of quantities define it; called from C it would have to return a plain float."""

    def f(x):
        p = Parameter(x[0] * x[1])
        return float(p) ** 2 + abs(complex(p)) ** 2 + int(Parameter(3.7)) * x[0] + float(Parameter(x[1]))

    assert np.allclose(tg.grad(f)(np.array([2.0, 3.0])), [219.0, 145.0])
    assert np.allclose(tg.jvp(f, (np.array([2.0, 3.0]),), (np.array([1.0, 2.0]),))[1], 509.0)


def test_a_float_method_with_another_result_raises_as_in_a_plain_call():
    def f(x):
        return x * float(Wrong())

    for call in (f, tg.grad(f)):
        with pytest.raises(TypeError, match=r"Wrong\.__float__ returned non-float \(type str\)"):
            call(2.0)


class Wrong:
    def __float__(self):
        return "one"
