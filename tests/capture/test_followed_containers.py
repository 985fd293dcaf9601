"""Arrays reached through containers, namespaces, weak references and other arrays over the same memory."""

import collections
import ctypes
import operator
import threading
import types
import weakref
from typing import NamedTuple

import numpy as np
import pytest
from followed import W, X, check, check_half_way, collected, differences

import tapegrad as tg

pytestmark = pytest.mark.smoke

CASES, case = collected()


@case
def counter_like():
    buf = np.zeros(3)
    c = collections.ChainMap({"a": buf}, {"b": buf})

    def f(x):
        buf[:] = x**2
        return (c["a"] * W).sum() + (c["b"] * x).sum()

    return f


@case
def many_arrays_of_all_kinds():
    buf, other = np.zeros(3), np.full(3, 0.5)
    pages = [
        buf,
        other,
        buf,
        np.ones(4)[1:],
        buf[1:],
        np.ones(3, ">f8"),
        np.arange(3),
        other,
        np.ones(3, np.float32),
    ]
    named = {"a": other, "b": buf, "c": np.ones(3)}
    fixed = (buf, (other, buf), np.ones(3))

    def f(x):
        pages[2][:] = x**2
        named["a"][1:] = pages[4] * x[1:]
        fixed[2][0] = x[0]
        assert pages[0] is buf is named["b"] is fixed[1][1]
        assert pages[7] is other
        return (
            (buf * W).sum()
            + (pages[1] * fixed[1][0] * pages[5] * pages[8]).sum()
            + (pages[3][1:] * pages[4]).sum()
            + (fixed[2] * x).sum()
        )

    return f


@case
def many_functions():
    buf = np.zeros(3)

    def once(x):
        return x * 2.0

    def twice(x, scale=W):
        return once(x) * scale

    def fill(x):
        buf[:] = x**2
        return x

    def noted(x):
        return x * noted.weight

    noted.weight = buf
    steps = [once, fill, twice, once, noted, lambda x: x + buf, np.sin, len][:6]
    plain = [lambda x: x * x, lambda x: x + 1.0, once]

    def f(x):
        assert steps[0] is steps[3] is plain[2] is once
        assert [g.__name__ for g in steps[:3]] == ["once", "fill", "twice"]
        plain[0].seen = x * 3.0
        for g in (*steps, *plain):
            x = g(x)
        return (x + plain[0].seen).sum()

    return f


@case
def userdict():
    buf = np.zeros(3)
    c = collections.UserDict(a=buf)

    def f(x):
        c["a"][:] = x**2
        return (buf * W).sum()

    return f


@case
def list_subclass():
    buf = np.zeros(3)

    class L(list):
        def total(self):
            return sum((v * W).sum() for v in self)

    c = L([buf])
    c.extra = buf

    def f(x):
        c.extra[:] = x**2
        return c.total()

    return f


@case
def defaultdict_grow():
    d = collections.defaultdict(lambda: np.zeros(3))

    def f(x):
        d["k"][:] = x**2
        return (d["k"] * W).sum()

    return f


@case
def deque_max():
    d = collections.deque([np.zeros(3)], maxlen=2)

    def f(x):
        d.append(x**2)
        d.append(x**3)
        return (d[0] * d[1]).sum()

    return f


@case
def sets():
    class A:
        pass

    a = A()
    a.b = np.zeros(3)
    s = {a}
    fs = frozenset([a])

    def f(x):
        for o in s:
            o.b[:] = x**2
        return sum((o.b * W).sum() for o in fs) + (a in s)

    return f


@case
def ns():
    n = types.SimpleNamespace(b=np.zeros(3))
    b = n.b

    def f(x):
        n.b[:] = x**2
        n.c = x * 2
        return (b * W).sum() + (n.c).sum()

    return f


@case
def slots_private():
    class S:
        __slots__ = ("__a", "b")

        def __init__(s):
            s.__a = np.zeros(3)
            s.b = s.__a

        def put(s, x):
            s.__a[:] = x**2

    s = S()

    def f(x):
        s.put(x)
        return (s.b * W).sum()

    return f


@case
def proxy():
    b = np.zeros(3)
    p = types.MappingProxyType({"a": b})

    def f(x):
        p["a"][:] = x**2
        return (b * W).sum()

    return f


@case
def weak():
    class A:
        pass

    a = A()
    a.b = np.zeros(3)
    r = weakref.ref(a)
    wv = weakref.WeakValueDictionary(k=a)
    wk = weakref.WeakKeyDictionary({a: 1.0})
    ws = weakref.WeakSet([a])

    def f(x):
        a.b[:] = x**2
        return (r().b * W).sum() + (wv["k"].b * x).sum() * wk[a] + sum(o.b.sum() for o in ws)

    return f


@case
def weak_array():
    b = np.zeros(3)
    r = weakref.ref(b)

    def f(x):
        b[:] = x**2
        return (r() * W).sum()

    return f


@case
def wkd():
    class K:
        pass

    k = K()
    fn = lambda: 1
    w = weakref.WeakKeyDictionary()
    w[k] = np.zeros(3)
    w[fn] = np.ones(3)
    w[K] = np.zeros(3)
    b = w[k]

    def f(x):
        b[:] = x**2
        return (w[k] * W).sum() + (w[fn] * x).sum() + w[K].sum()

    return f


@case
def tl_num():
    own = threading.local()
    own.a = 0.5

    def f(x):
        own.a = 0.5
        own.a *= x[1]
        return own.a * x[0]

    return f


@case
def tlocal():
    l = threading.local()
    l.a = np.zeros(3)
    b = l.a

    def f(x):
        l.a[:] = x**2
        l.c = x
        return (b * W).sum() + l.c.sum()

    return f


@case
def frombuffer():
    r = bytearray(48)
    a = np.frombuffer(r)
    b = np.frombuffer(r, offset=8, count=3)

    def f(x):
        a[1:4] = x**2
        return (b * W).sum()

    return f


@case
def frombuf_view():
    r = bytearray(48)
    a = np.frombuffer(r)[1:4]
    b = np.frombuffer(r)

    def f(x):
        a[:] = x**2
        return (b[1:4] * W).sum()

    return f


@case
def arena():
    r = np.zeros(80, np.uint8)
    a = r[:24].view(float)
    b = r[8:32].view(float)

    def f(x):
        a[:] = x**2
        return (b * W).sum()

    return f


@case
def structured():
    r = np.zeros(3, [("a", float), ("b", float)])
    a = r["a"]
    b = r["b"]

    def f(x):
        a[:] = x**2
        return (a * W).sum() + b.sum()

    return f


@case
def objarr():
    b = np.zeros(3)
    o = np.empty((2, 2), object)
    o[0, 0] = b
    o[1, 1] = b

    def f(x):
        o[0, 0][:] = x**2
        o[0, 1] = x
        return (o[1, 1] * W).sum() + (o[0, 1] ** 2).sum()

    return f


@case
def as_array():
    a = np.zeros(4)
    b = np.ctypeslib.as_array((ctypes.c_double * 4).from_buffer(a))

    def f(x):
        a[1:] = x**2
        return (b[1:] * W).sum()

    return f


@case
def as_array2():
    a = np.zeros(4)
    b = np.ctypeslib.as_array((ctypes.c_double * 4).from_buffer(a))

    def f(x):
        b[1:] = x**2
        return (a[1:] * W).sum()

    return f


@case
def dlpack():
    a = np.zeros(3)
    b = np.from_dlpack(a)

    def f(x):
        a[:] = x**2
        return (b * W).sum()

    return f


@case
def iface():
    a = np.zeros(3)

    class H:
        __array_interface__ = a.__array_interface__

    h = H()
    b = np.asarray(h)

    def f(x):
        a[:] = x**2
        return (b * W).sum()

    return f


@case
def asdata():
    a = np.zeros(3)
    b = np.asarray(a.data)

    def f(x):
        a[:] = x**2
        return (b * W).sum()

    return f


@case
def sub_attr():
    class C(np.ndarray):
        pass

    buf = np.zeros(3)
    c = np.ones(3).view(C)
    c.a = buf

    def f(x):
        return (c.a * x).sum() + (c * x).sum()

    return f


@case
def sub_plain():
    class C(np.ndarray):
        pass

    buf = np.zeros(3)
    c = buf.view(C)

    def f(x):
        c[:] = x**2
        return (buf * W).sum()

    return f


@case
def tuple_sub():
    class P(NamedTuple):
        a: object
        k: float

        def r(s, x):
            return (s.a * x).sum() * s.k

    p = P(np.zeros(3), 2.0)
    b = p.a

    def f(x):
        b[:] = x**2
        return p.r(x) + (p._replace(k=3.0).r(x))

    return f


@case
def keys_class():
    class A:
        pass

    t = {A: np.zeros(3), np.sin: np.zeros(3)}
    b = t[A]

    def f(x):
        b[:] = x**2
        return (t[A] * W).sum() + (t[np.sin]).sum()

    return f


@case
def itergetter():
    b = np.zeros(3)
    ns = types.SimpleNamespace(b=b)
    g = operator.attrgetter("b")

    def f(x):
        ns.b[:] = x**2
        return (g(ns) * W).sum()

    return f


@case
def bound():
    b = np.zeros(3)
    fill = b.fill
    get = b.__getitem__
    put = b.__setitem__
    L = []
    app = L.append

    def f(x):
        fill(2.0)
        put(1, x[0] ** 2)
        app(b)
        return (b * x).sum() + get(1) * x[1] + L[-1][1]

    return f


@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
def test_right_and_plain_afterwards(make):
    check(make)


@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
def test_half_way(make):
    check_half_way(make)


@pytest.mark.parametrize("order", [0, 1])
def test_two_widths_over_one_memory(order):
    """Reading both is right; writing either raises, and leaves both as they were."""
    a = np.arange(4.0)
    b = a.view(np.complex128 if order else np.float32)

    def read(x):
        return (a[:3] * x).sum() + b.real.sum()

    def write_one(x):
        s = b.real.sum()
        a[:3] = x**2
        return a.sum() + s

    def write_other(x):
        s = a.sum()
        b[0] = 2.0
        return x.sum() + s

    np.testing.assert_allclose(tg.grad(read)(X), a[:3])
    for f in (write_one, write_other):
        with pytest.raises(tg.errors.AliasError, match="shares memory"):
            tg.grad(f)(X)
        np.testing.assert_array_equal(a, np.arange(4.0))


def test_a_window_that_overlaps_itself_is_not_written():
    a = np.zeros(6)
    w = np.lib.stride_tricks.as_strided(a, (3, 3), (8, 8))

    def f(x):
        w[0] = x
        return a.sum()

    with pytest.raises(tg.errors.AliasError, match="share memory with each other"):
        tg.grad(f)(X)
    np.testing.assert_array_equal(a, np.zeros(6))


def test_a_window_that_overlaps_itself_is_read(xp):
    a = xp.zeros(6)
    w = xp.lib.stride_tricks.as_strided(a, (4, 3), (8, 8)) if xp is np else None
    if w is None:
        w = xp.lib.stride_tricks.sliding_window_view(a, 3)
    c = xp.asarray(np.arange(12.0).reshape(4, 3))

    def f(x):
        a[1:4] = x**2
        return (w * c * x[0]).sum() + (w[1:, 0] * w[:-1, 2]).sum()

    def by_numpy(x):
        b = np.zeros(6)
        b[1:4] = x**2
        v = np.lib.stride_tricks.sliding_window_view(b, 3)
        return (v * np.arange(12.0).reshape(4, 3) * x[0]).sum() + (v[1:, 0] * v[:-1, 2]).sum()

    right = differences(by_numpy, X)
    got = tg.grad(f)(xp.asarray(X))
    np.testing.assert_allclose(got if xp is np else got.get(), right, rtol=1e-6, atol=1e-8)
    forward = [float(tg.jvp(f, (xp.asarray(X),), (xp.asarray(e),))[1]) for e in np.eye(3)]
    np.testing.assert_allclose(forward, right, rtol=1e-6, atol=1e-8)


# --- what an inner transform puts into a holder of arrays of the outer function ---

HELD = np.full(5, 0.25)
ARRAYS = {
    "captured": lambda: HELD, "a view": lambda: HELD[1:4], "a view of a view": lambda: HELD[1:4][::-1],
    "made": lambda: np.zeros(3), "a view of made": lambda: np.zeros(3)[::-1],
}  # fmt: skip
PUTS = {
    "a number": lambda d, a, z: d.update(s=z),
    "a view": lambda d, a, z: d.update(s=a[1:]),
    "the array": lambda d, a, z: d.update({0: a, 1: a[::-1]}),
    "a tuple": lambda d, a, z: d.update(s=(a, a[1:])),
}
INSIDE = {
    "nothing": lambda d, a, z: None,
    "by the holder": lambda d, a, z: d[0].__setitem__(-1, z),
    "by the name": lambda d, a, z: a.__setitem__(0, z * 2),
    "a constant": lambda d, a, z: a.__setitem__(0, 2.0),
}


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_in_a_holder_stay_themselves_through_an_inner_transform(kind, put, inside):
    def total(v):
        return sum(map(total, v)) if type(v) is tuple else np.sum(v * 1.0)

    def f(x, watched, first):
        HELD[...] = 0.25
        a = ARRAYS[kind]()
        if first:
            a[0] = x[1]
        d = {0: a}

        def h(z):
            PUTS[put](d, a, z)
            INSIDE[inside](d, a, z)
            return (d[0] * z).sum()

        s = tg.grad(h)(1.0 * x[0] if watched else 1.0)
        a[1] = x[0] * 0.7
        a[-1] *= x[1]
        return s + 1.1 * a.sum() + sum([(k + 1.3) * total(v) for k, v in enumerate(d.values())])

    x, unit = np.array([0.7, 1.3]), np.eye(2)
    for watched in (False, True):
        for first in (False, True):
            value, slope = tg.value_and_grad(f)(x, watched, first)
            assert value == pytest.approx(f(x, watched, first), rel=1e-14)
            found = [tg.jvp(lambda x: f(x, watched, first), (x,), (e,))[1] for e in unit]
            moved = [(f(x + 1e-5 * e, watched, first) - f(x - 1e-5 * e, watched, first)) / 2e-5 for e in unit]
            np.testing.assert_allclose(slope, moved, rtol=1e-8, atol=1e-9)
            np.testing.assert_allclose(found, moved, rtol=1e-8, atol=1e-9)
