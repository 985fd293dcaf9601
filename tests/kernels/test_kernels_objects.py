"""A kernel function reaches code through objects: methods, classes, containers and modules.  Each gives what the function gives as
plain Python, and its derivative."""

import functools
import math
import types

import numpy as np
import pytest

import tapegrad as tg

kernels = tg.kernels


class Model:
    rates = {"square": lambda x: math.pow(x, 2.0)}

    def __init__(self, scale):
        self.scale, self.link = scale, functools.partial(np.multiply, 2.0)

    def helper(self, x):
        return math.exp(self.scale * x)

    @property
    def doubled(self):
        return Model(2.0 * self.scale)

    @classmethod
    def unit(cls):
        return cls(1.0)

    @staticmethod
    def shifted(x):
        return np.array([x, 1.0])[0] + math.sin(x)

    def __call__(self, x):
        return self.helper(x)


class Derived(Model):
    def helper(self, x):
        return super().helper(x) + math.log1p(x)


MODEL, DERIVED = Model(0.5), Derived(0.5)
TABLE = {"sin": math.sin, "own": lambda x: math.atan(x), "model": MODEL}
PAIR = (lambda x: math.cosh(x), DERIVED.helper)
ELSEWHERE = types.ModuleType("of_a_test")
exec("import math\ndef f(x): return math.tanh(x)\nclass C:\n    f = staticmethod(f)\n", vars(ELSEWHERE))

THROUGH_OBJECTS = {
    "method": lambda x: MODEL.helper(x),
    "bound method of a derived class": lambda x: PAIR[1](x),
    "property and call": lambda x: MODEL.doubled(x),
    "class method": lambda x: Model.unit().helper(x),
    "static method": lambda x: DERIVED.shifted(x),
    "table in a class": lambda x: Model.rates["square"](x),
    "attribute with a partial function": lambda x: MODEL.link(x),
    "dict": lambda x: TABLE["sin"](x) + TABLE["own"](x) + TABLE["model"](x),
    "tuple": lambda x: PAIR[0](x),
    "module": lambda x: ELSEWHERE.f(x) + ELSEWHERE.C.f(x),
    "object made inside": lambda x: Derived(0.25)(x),
}


@pytest.mark.parametrize("name", THROUGH_OBJECTS)
def test_code_that_is_reached_through_objects(name):
    f, x = THROUGH_OBJECTS[name], np.array([0.3, 0.7, 1.2])
    k = kernels.map(f)
    np.testing.assert_allclose(k(x), [f(v) for v in x], rtol=1e-13)
    slope = [(f(v + 1e-6) - f(v - 1e-6)) / 2e-6 for v in x]
    np.testing.assert_allclose(tg.grad(lambda x: k(x).sum())(x), slope, rtol=1e-8)
    assert type(MODEL) is Model and MODEL.__dict__.keys() == {"scale", "link"}
