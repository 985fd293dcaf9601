"""Arrays reached through what wraps functions, caches, imports and text that is run."""

import contextlib
import copy
import functools
import importlib
import sys

import numpy as np
import pytest
import wrapt
from followed import W, X, check, check_half_way, collected, module
from scipy.stats import norm

import tapegrad as tg
from tapegrad.errors import AliasError

CASES, case = collected()


@case
def func_attr():
    def g(x):
        return (g.buf * x).sum()

    g.buf = np.zeros(3)
    g.calls = 0

    def f(x):
        g.buf[:] = x**2
        g.calls += 1
        return g(x)

    return f


@case
def ctxman():
    b = np.zeros(3)

    @contextlib.contextmanager
    def scope(x):
        b[:] = x**2
        yield b
        b[:] = 0

    def f(x):
        with scope(x) as c:
            return (b * c * W).sum()

    return f


@case
def single():
    b = np.zeros(3)

    class K:
        pass

    @functools.singledispatch
    def h(o, x):
        return 0 * x.sum()

    @h.register
    def _(o: K, x):
        return (b * x).sum()

    h(K(), X)
    k = K()

    def f(x):
        b[:] = x**2
        return h(k, x)

    return f


@case
def wraps():
    b = np.zeros(3)

    def deco(fn):
        @functools.wraps(fn)
        def inner(*a):
            return fn(*a) * 2

        return inner

    @deco
    def h(x):
        return (b * x).sum()

    def f(x):
        b[:] = x**2
        return h(x) + h.__wrapped__(x)

    return f


@case
def imports():
    def f(x):
        import numpy as q
        import numpy.linalg as la
        import scipy.special as sp
        from numpy import zeros
        from scipy import special

        m = importlib.import_module("numpy")
        z = zeros(3)
        z[:] = q.sin(x)
        return z.sum() + m.exp(x).sum() + la.norm(x) + sp.erf(x).sum() + special.gammaln(x**2).sum()

    return f


@case
def import_user():
    module("followed_module", "def r(x): return (buf*x).sum()")

    def f(x):
        import followed_module
        from followed_module import r

        followed_module.buf[:] = x**2
        assert sys.modules["followed_module"] is followed_module
        return r(x) + (vars(followed_module)["buf"] * W).sum() + getattr(followed_module, "missing", 1.0)

    return f


@case
def evals():
    m = module(
        "followed_module",
        """
def f(x):
    buf[:]=x**2
    ns={'x':x,'np':np}
    exec('import numpy as q\\ny=q.sin(x)',ns)
    loc={}
    exec('z=buf*W',None,loc) if 0 else exec('z=buf*W',globals(),loc)
    return eval('(buf*W*np.cos(x)).sum()')+ns['y'].sum()+loc['z'].sum()
""",
    )
    return m.f


@case
def lru_method():
    class A:
        @functools.lru_cache  # noqa: B019
        def work(s, n):
            return np.zeros(n)

    a = A()

    def f(x):
        a.work(3)[:] = x**2
        return (a.work(3) * W).sum()

    return f


@case
def lru_state():
    b = np.zeros(3)

    @functools.cache
    def s(k):
        return (b * W).sum() * k

    def f(x):
        b[:] = x**2
        s.cache_clear()
        return s(2.0)

    return f


@case
def lru_tracked():
    @functools.lru_cache
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def f(x):
        return x[0] ** fib(5)

    return f


@case
def lru_two():
    @functools.lru_cache(maxsize=4)
    def table(n):
        return {"w": np.zeros(n), "k": n}

    table(3)["w"][:] = 5.0

    def f(x):
        t = table(3)
        s = (t["w"] * x).sum()
        t["w"][:] = x**2
        return s * 0 + (table(3)["w"] * x).sum()

    return f


@case
def lru_in_class_static():
    class Q:
        @staticmethod
        @functools.cache
        def t():
            return np.zeros(3)

    def f(x):
        Q.t()[:] = x**2
        return (Q().t() * W).sum()

    return f


@case
def exitstack():
    b = np.zeros(3)

    @contextlib.contextmanager
    def s(v):
        b[:] = v
        yield

    class CM(contextlib.ContextDecorator):
        def __enter__(s):
            b[:] = 0
            return s

        def __exit__(s, *a):
            return False

    @CM()
    def h(x):
        return (b * x).sum()

    def f(x):
        with contextlib.ExitStack() as st:
            st.enter_context(s(x**2))
            r = (b * x).sum()
        return r + h(x)

    return f


@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
def test_right_and_plain_afterwards(make):
    check(make)


@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
def test_half_way(make):
    check_half_way(make)


def test_a_cache_answers_as_in_a_plain_call():
    calls = []

    @functools.lru_cache
    def table(n):
        calls.append(n)
        return {"w": np.zeros(n)}

    w = table(3)["w"]

    def f(x):
        assert table(3) is table(3)
        table(3)["w"][:] = x**2
        return (table(3)["w"] * x).sum() + table(2)["w"].sum()

    np.testing.assert_allclose(tg.grad(f)(X), 3 * X**2)
    assert calls == [3, 2] and table(3)["w"] is w
    np.testing.assert_allclose(w, X**2)
    tg.grad(f)(2 * X)
    assert calls == [3, 2] and type(table(3)["w"]) is np.ndarray


def test_scipy_stats_by_name():
    def f(x):
        return norm.logpdf(x, 0.5, 2.0).sum()

    np.testing.assert_allclose(tg.grad(f)(X), -(X - 0.5) / 4)


def test_globals_answers_as_the_dict_of_the_module():
    m = module(
        "followed_module",
        """
first, second = 1.0, 2.0
def f(x):
    g = globals()
    assert "first" in g and "nobody" not in g and g.get("nobody", 5) == 5 and g["second"] == 2.0
    assert {"first", "second", "f"} <= set(g) and len(g) == len(g.keys()) and ("first", 1.0) in g.items()
    g["made"] = x[0] * 2
    g.setdefault("third", 3.0)
    assert g.pop("first") == 1.0 and "first" not in g
    buf[:] = x ** 2
    return (g["buf"] * g["W"]).sum() + made * third
""",
    )
    np.testing.assert_allclose(tg.grad(m.f)(X), 2 * X * W + [6, 0, 0])
    assert not hasattr(m, "first") and m.made == 2 * X[0] and type(m.made) is np.float64 and m.third == 3.0
    np.testing.assert_allclose(m.buf, X**2)


def test_iterators_can_be_copied():
    def f(x):
        it = iter([x[0], x[1]])
        next(it)
        return next(copy.copy(it)) * next(it)

    np.testing.assert_allclose(tg.grad(f)(X), [0, 2 * X[1], 0])


# --- functions among the arguments, names that are deleted ---


def filler():
    b = np.zeros(3)

    def fill(x, scale=b):
        b[:] = x**2
        return (b * scale * W).sum()

    return fill, b


class Filling:
    def __init__(self):
        self.b = np.zeros(3)

    def fill(self, x):
        self.b[:] = x**2
        return (self.b * self.b * W).sum()


GIVEN = {
    "itself": lambda g: (lambda x, g: g(x), g),
    "in a list": lambda g: (lambda x, g: g[0](x), [g]),
    "in a dict": lambda g: (lambda x, g: g["of"][1](x), {"of": (1.0, g)}),
    "a partial": lambda g: (lambda x, g: g(x), functools.partial(g)),
    "captured, too": lambda g: (lambda x, h: 0.5 * (h(x) + g(x)), g),
}


@pytest.mark.parametrize("method", [False, True])
@pytest.mark.parametrize("name", GIVEN)
def test_what_a_function_among_the_arguments_has_captured_is_captured(name, method):
    owner = Filling()
    g, b = (owner.fill, owner.b) if method else filler()
    f, given = GIVEN[name](g)
    found = tg.grad(f)(X, given)
    np.testing.assert_allclose(found, 4 * X**3 * W)
    np.testing.assert_array_equal(b, X**2)
    np.testing.assert_allclose(tg.hvp(f, X, W, (given,)), 12 * X**2 * W * W)


def test_an_array_that_is_an_argument_and_captured_by_another_argument():
    g, b = filler()
    assert tg.grad(lambda x, b, g: (b * x).sum())(X, b, g).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(AliasError):
        tg.grad(lambda x, b, g: g(x) + b.sum())(X, b, g)


NAMES = """
kept, made, read = np.zeros(3), np.zeros(3), np.zeros(3)

def unread(x):
    global kept
    del kept
    return missing() * (x**2).sum()

def bound(x):
    global made
    made = 2 * x
    s = (made * x).sum()
    del made
    return s

def written(x):
    global read
    read[:] = x
    s = (read * x).sum()
    del read
    try:
        return read.sum()
    except NameError:
        return s

def again(x):
    global read
    def inner():
        global read
        del read
    inner()
    read = x * x
    return read.sum()

def missing():
    try:
        kept
    except NameError:
        return 1.0
    return 2.0
"""


@pytest.mark.parametrize(
    "name, left", [("unread", "kept"), ("bound", "made"), ("written", "read"), ("again", None)]
)
def test_names_that_are_deleted(name, left):
    plain, ours = module("plain_names", NAMES), module("our_names", NAMES)
    value, gradient = tg.value_and_grad(getattr(ours, name))(X)
    assert value == getattr(plain, name)(X)
    np.testing.assert_allclose(gradient, (4 if name == "bound" else 2) * X)
    assert vars(ours).keys() == vars(plain).keys()
    assert left is None or not hasattr(ours, left)
    if left is None:
        np.testing.assert_array_equal(ours.read, X**2)


def test_a_nonlocal_that_is_deleted():
    b = np.zeros(3)

    def f(x):
        nonlocal b
        b[:] = x
        s = (b * x).sum()
        del b
        return s

    np.testing.assert_allclose(tg.grad(f)(X), 2 * X)
    with pytest.raises(NameError):
        b  # noqa: B018


def test_functions_and_methods_that_wrapt_wraps():
    buf = np.zeros(2)

    @wrapt.decorator
    def doubled(f, instance, args, kwargs):
        buf[:] = args[0]
        return 2 * f(*args, **kwargs)

    @doubled
    def sine(x):
        return np.sin(x)

    class Law:
        scale = 3.0

        @doubled
        def of_instance(self, x):
            return self.scale * np.exp(x)

        @doubled
        @classmethod
        def of_class(cls, x):
            return cls.scale * x**2

        @doubled
        @staticmethod
        def of_none(x):
            return x**3

    method = Law().of_instance

    def f(x):
        return sine(x) + Law().of_instance(x) + method(x) + Law.of_class(x) + Law.of_none(x) + buf[0] * x

    x = 0.7
    slope = 2 * np.cos(x) + 12 * np.exp(x) + 12 * x + 6 * x**2 + 2 * x
    bent = -2 * np.sin(x) + 12 * np.exp(x) + 12 + 12 * x + 2
    np.testing.assert_allclose(tg.grad(f)(x), slope, rtol=1e-12)
    np.testing.assert_allclose(buf, x)
    np.testing.assert_allclose(tg.hvp(f, x, 1.0), bent, rtol=1e-12)
