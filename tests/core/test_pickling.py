"""Kernels, transforms and results are pickled and copied where the user's functions can be, and raise where
they cannot; processes of both kinds map them."""

import copy
import dataclasses
import functools
import multiprocessing
import pickle
import sys
import types

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad._core.registry import MODELS
from tapegrad.errors import ArgumentError
from tapegrad.kernels.library import models

kernels = tg.kernels
THETA = np.array([[0.2, -0.1, 0.4], [0.3, 0.5, 1.0]])
DATA = np.array([0.4, 1.1, -0.3])
SCALE = 2.0
MATRIX = np.array([[2.0, 1.0], [1.0, 3.0]])


def normal(theta, y):
    return -SCALE * (y - theta[0]) ** 2 + np.log(theta[1])


def start(theta):
    return theta[0]


def step(m, theta, y):
    return theta[1] * m + 0.1 * y, -((y - m) ** 2)


def unobserved(m, theta):
    return theta[1] * m


def product(a, b):
    return a * np.sin(b)


def quadratic(x):
    return x @ MATRIX @ x + np.sin(x).sum()


def outer(x):
    return np.multiply.outer(x, x)


def fill(out, x):
    out[:] = x * x


def cotangent(g, out, x):
    return 3 * g * x**2


def cube(x):
    return x**3


def filled(x, y, B):
    y[:] = x**3


@kernels.likelihood
def decorated(theta, y):
    return -theta[1] * (y - theta[0]) ** 2


@tg.grad
def slope(x):
    return (x**3).sum()


@functools.partial(tg.rule, vjp=cotangent)
def ruled(x):
    return x**3


class Model:
    def __init__(self, scale):
        self.scale = np.array([scale])

    def loglik(self, theta, y):
        return -self.scale[0] * (y - theta[0]) ** 2 + theta[1]

    def __call__(self, x):
        return self.scale[0] * (x**2).sum()


def build(p):
    return ss.local_level(p["a"], p["b"])


CUBE = """
extern "C" __global__ void cube(const real* x, real* y, long long B) {
  const long long threads = (long long)gridDim.x * blockDim.x;
  for (long long b = blockIdx.x * (long long)blockDim.x + threadIdx.x; b < B; b += threads) y[b] = x[b] * x[b] * x[b];
}"""
ARGS = ["in real x[B]", "out real y[B]", "size B"]
X = np.array([0.3, -1.2])
both = kernels.likelihood(normal)


def kernel_cases():
    yield "likelihood", both, lambda k: k.value_and_grad(THETA, DATA)
    yield (
        "settings",
        kernels.likelihood(normal, invalid="nan", missing="step", sums=np.float64),
        lambda k: k(-THETA, DATA),
    )
    yield "recursion", kernels.recursion(start, step), lambda k: k.value_and_grad(THETA, DATA)
    holes = np.array([0.4, np.nan, 1.0])
    yield (
        "recursion with missing data",
        kernels.recursion(start, step, missing=unobserved),
        lambda k: k(THETA, holes),
    )
    yield "map", kernels.map(product), lambda k: k(X, X)
    yield "decorated", decorated, lambda k: k(THETA, DATA)
    yield "of a method", kernels.likelihood(Model(3.0).loglik), lambda k: k(THETA, DATA)
    yield "of a partial", kernels.likelihood(functools.partial(normal)), lambda k: k(THETA, DATA)
    yield "gaussian", kernels.gaussian.loglik, lambda k: k(np.abs(THETA), DATA)
    yield "gaussian, nan", kernels.gaussian.loglik.options(invalid="nan"), lambda k: k(-THETA, DATA)
    yield (
        "raw",
        kernels.raw(CUBE, "cube", ARGS, vjp=cotangent, cpu=filled, samples="B", block=64),
        lambda k: tg.grad(lambda x: k(x).sum())(X),
    )


def transform_cases():
    yield "grad", tg.grad(quadratic), lambda g: g(X)
    yield "value_and_grad", tg.value_and_grad(quadratic, argnums=(0,)), lambda g: g(X)
    yield "without shadow", tg.grad(quadratic, shadow=False), lambda g: g(X)
    yield "jacobian", tg.jacobian(outer, mode="forward"), lambda g: g(X)
    yield "hessian", tg.hessian(quadratic), lambda g: g(X)
    yield "nested", tg.jacobian(tg.grad(quadratic)), lambda g: g(X)
    yield "of NumPy", tg.grad(np.linalg.norm), lambda g: g(X)
    yield "of an object", tg.grad(Model(2.0)), lambda g: g(X)
    yield "of a kernel", tg.grad(functools.partial(both, data=DATA)), lambda g: g(THETA[:, 0])
    yield "decorator", slope, lambda g: g(X)
    yield "rule", tg.rule(cube, vjp=cotangent), lambda g: tg.jacobian(g)(X)
    yield "rule as a decorator", ruled, lambda g: tg.jacobian(g)(X)
    yield "checkpoint", tg.checkpoint(quadratic), lambda g: tg.grad(g)(X)
    yield "inplace", tg.inplace(fill, np.zeros(2)), lambda g: tg.jacobian(g)(X)


CASES = [pytest.param(x, ask, id=name) for name, x, ask in (*kernel_cases(), *transform_cases())]


def same(a, b):
    if isinstance(a, tuple):
        return len(a) == len(b) and all([same(x, y) for x, y in zip(a, b, strict=True)])
    return np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
@pytest.mark.parametrize("x, ask", CASES)
def test_pickled(x, ask, protocol):
    expected = ask(x)
    again = pickle.loads(pickle.dumps(x, protocol))
    assert type(again) is type(x) and again.__name__ == x.__name__
    assert same(ask(again), expected)
    assert same(ask(pickle.loads(pickle.dumps([again, again], protocol))[1]), expected)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("x, ask", CASES)
def test_copied(x, ask, how):
    assert same(ask(how(x)), ask(x))


def test_a_deep_copy_has_objects_of_its_own():
    model = Model(2.0)
    k, g = kernels.likelihood(model.loglik), tg.grad(model)
    other, slope_ = copy.deepcopy((k, g))
    before = k(THETA, DATA), g(X)
    model.scale[0] = 5.0
    assert same(other(THETA, DATA), before[0]) and same(slope_(X), before[1])
    assert not same(k(THETA, DATA), before[0]) and not same(g(X), before[1])


@pytest.mark.parametrize("module", MODELS)
def test_the_library(module):
    """Every kernel in every module, and those that the functions `process` give."""
    found = [x for x in vars(getattr(kernels, module)).values() if isinstance(x, models.LibraryKernel)]
    if module == "celerite":
        found = [kernels.celerite.process(real=1, jitter=True)]
    if module == "carma":
        found = [kernels.carma.process(p=2, q=1)]
    assert found
    for k in found:
        assert pickle.loads(pickle.dumps(k)) is k is copy.deepcopy(k) is copy.copy(k)
        other = pickle.loads(pickle.dumps(k.options(invalid="nan")))
        assert other is not k and type(other) is type(k)


@pytest.mark.parametrize("make", [
    tg.grad, tg.hessian, kernels.likelihood, kernels.map, tg.checkpoint, lambda f: kernels.recursion(f, step),
    lambda f: tg.rule(f, vjp=cotangent), lambda f: tg.rule(cube, vjp=f), lambda f: tg.inplace(f, np.zeros(2)),
    lambda f: tg.grad(tg.grad(f)),
])  # fmt: skip
def test_functions_without_a_name(make):
    x = make(lambda x: x)
    with pytest.raises(
        ArgumentError, match=r"cannot be pickled.*lambda.*\n?.*def at the top level of a module"
    ):
        pickle.dumps(x)
    assert copy.deepcopy(x).__name__ == x.__name__  # copies need no name


def test_objects_that_hold_a_lock():
    class Local:
        def __call__(self, x):
            return x.sum()

    with pytest.raises(ArgumentError, match=r"grad\(Local\) cannot be pickled"):
        pickle.dumps(tg.grad(Local()))


BY_VALUE = """
import io, pickle, types
def square(name): return lambda x: x * x
class Pickler(pickle.Pickler):
    def reducer_override(self, x):
        return (square, (x.__name__,)) if isinstance(x, types.FunctionType) and x.__name__ == "<lambda>" else NotImplemented
def dumps(x):
    file = io.BytesIO()
    Pickler(file).dump(x)
    return file.getvalue()
"""


def test_packages_that_pickle_functions_by_value(monkeypatch):
    """Their picklers take over where pickle itself would give up."""
    module = types.ModuleType("cloudpickle.cloudpickle")
    exec(BY_VALUE, vars(module))
    monkeypatch.setitem(sys.modules, "cloudpickle", types.ModuleType("cloudpickle"))
    monkeypatch.setitem(sys.modules, "cloudpickle.cloudpickle", module)
    assert pickle.loads(module.dumps(tg.grad(lambda x: x * x)))(3.0) == 6.0
    assert np.array_equal(pickle.loads(module.dumps(kernels.map(lambda x: x * x)))(X), X * X)


def test_methods_that_are_transforms():
    class Problem:
        weight = 3.0

        def loss(self, x):
            return self.weight * (x**2).sum()

        slope = tg.grad(loss, argnums=1)
        curve = tg.hessian(loss, argnums=1)

    assert np.array_equal(Problem().slope(X), 6 * X) and np.array_equal(Problem().curve(X), 6 * np.eye(2))


def test_results():
    y = np.array([1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 4.0])
    fit = ss.fit(build, y, {"a": 1.0, "b": 1.0}, ss.positive())
    found = tg.optimize.minimize(quadratic, X)
    for how in (lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy):
        again, other = how(fit), how(found)
        assert str(again) == str(fit) and again.params == fit.params
        assert same(again.covariance, fit.covariance)
        for field in dataclasses.fields(fit.model):
            a, b = getattr(fit.model, field.name), getattr(again.model, field.name)
            assert type(a) is type(b) and (not isinstance(a, np.ndarray) or same(a, b))
        assert (
            same(other.x, found.x)
            and other.evaluations == found.evaluations
            and other.success == found.success
        )


def value_of(given):
    x, point = given
    return x(point)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(method):
    """Kernels and gradients are mapped, and work in the other process, also where this one has launched
    before."""
    big = np.abs(np.random.default_rng(0).normal(size=(2, 3000))) + 0.5
    kernel = functools.partial(both, data=np.linspace(-1, 1, 500))
    work = [
        (kernel, big),
        (kernel, big[:, :3]),
        (tg.grad(quadratic), X),
        (decorated_on_data, THETA),
        (tg.hessian(quadratic), X),
    ]
    expected = [value_of(w) for w in work]
    with multiprocessing.get_context(method).Pool(1) as pool:
        for a, b in zip(pool.map(value_of, work), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)  # a kernel's own history may change its last bit
        for a, b in zip(
            pool.map(tg.grad(quadratic), [X, 2 * X]),
            [tg.grad(quadratic)(X), tg.grad(quadratic)(2 * X)],
            strict=True,
        ):
            assert same(a, b)


decorated_on_data = functools.partial(decorated, data=DATA)
