"""Arrays reached through classes of every kind: what overrides what, and which methods run, is as in a plain
call."""

import abc
import collections
import copy
import ctypes
import dataclasses
import enum
import functools
import gc
import inspect
import threading
import weakref
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import pytest
from followed import W, X, check, check_half_way, collected, module

import tapegrad as tg

pytestmark = pytest.mark.smoke

CASES, case = collected()


SHARED = np.zeros(3)


class Grade(enum.IntEnum):
    A = 1
    B = 2

    def r(self, x):
        return (SHARED * x).sum() * int(self)


@case
def protocol():
    T = TypeVar("T")

    @runtime_checkable
    class P(Protocol):
        def r(self, x): ...

    class B(Generic[T]):
        def __init__(s):
            s.b = np.zeros(3)

        def r(s, x):
            return (s.b * x).sum()

    o = B()
    b = o.b

    def f(x):
        b[:] = x**2
        assert isinstance(o, P) and isinstance(o, B)
        return o.r(x)

    return f


@case
def metaclass():
    reg = []

    class M(type):
        def __new__(m, name, bases, ns):
            c = super().__new__(m, name, bases, ns)
            reg.append(name)
            return c

        def total(cls):
            return (cls.buf * W).sum()

        def __call__(cls, *a):
            return super().__call__(*a)

    class A(metaclass=M):
        buf = np.zeros(3)

    class B(A):
        def __init__(s):
            s.z = 1

    def f(x):
        B.buf[:] = x**2
        assert reg == ["A", "B"]
        B()
        return A.total() + B.total()

    return f


@case
def init_subclass():
    seen = []

    class A:
        def __init_subclass__(cls, *, tag, **k):
            super().__init_subclass__(**k)
            seen.append(tag)
            cls.tag = tag

        buf = np.zeros(3)

    class B(A, tag="b"):
        def r(s, x):
            return (s.buf * x).sum()

    o = B()

    def f(x):
        n = len(seen)
        o.buf[:] = x**2

        class C(B, tag="c"):
            k = np.ones(3)

        assert len(seen) == n + 1 and C.tag == "c"
        return C().r(x) + o.r(x)

    return f


@case
def enums():
    class M(enum.Enum):
        A = (1,)
        B = (2,)

        def __init__(s, k):
            s.w = np.zeros(3)

        def r(s, x):
            return (s.w * x).sum()

    w = M.A.w

    def f(x):
        w[:] = x**2
        assert (
            M["A"] is M.A
            and M((1,)) is M.A
            and list(M) == [M.A, M.B]
            and M.A.name == "A"
            and isinstance(M.A, M)
        )
        return M.A.r(x) + M.B.r(x)

    return f


@case
def intenum():
    def f(x):
        SHARED[:] = x**2
        assert Grade.A == 1 and Grade(2) is Grade.B
        return Grade.B.r(x)

    return f


@case
def enum_iter():
    class E(enum.Enum):
        A = 1

    E.A.a = np.zeros(3)

    def f(x):
        E.A.a = x * 2
        return sum((m.a * x).sum() for m in E)

    return f


@case
def supers():
    class A:
        def __init__(s):
            s.b = np.zeros(3)

        def r(s, x):
            return (s.b * x).sum()

        @classmethod
        def make(cls):
            return cls()

    class B(A):
        def __init__(s):
            super().__init__()
            s.c = s.b

        def r(s, x):
            return super().r(x) + super().r(x)

        @classmethod
        def make(cls):
            return super().make()

    class C(A):
        def r(s, x):
            return 2 * super().r(x)

    class D(B, C):
        pass

    d = D()

    def f(x):
        d.c[:] = x**2
        e = D.make()
        e.b[:] = x
        return d.r(x) + e.r(x) + B.make().r(x)

    return f


@case
def super2():
    class B:
        a = {"k": np.zeros(3)}

    class C(B):
        a = 3.0

    b = B.a["k"]

    def f(x):
        b[:] = x**2
        return (super(C, C).a["k"] * W).sum() * C.a

    return f


@case
def dataclass_():
    @dataclasses.dataclass
    class D:
        b: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))
        k: float = 2.0

    d = D()

    def f(x):
        d.b[:] = x**2
        e = dataclasses.replace(d, k=3.0)
        return (
            (e.b * x).sum() * e.k
            + D().b.sum()
            + sum(v.sum() if hasattr(v, "sum") else v for v in dataclasses.asdict(d).values())
        )

    return f


@case
def abcreg():
    class A(abc.ABC):
        @abc.abstractmethod
        def r(s, x): ...

    class K:
        def __init__(s):
            s.b = np.zeros(3)

        def r(s, x):
            return (s.b * x).sum()

    A.register(K)
    k = K()

    class Bad(A):
        pass

    def f(x):
        k.b[:] = x**2
        try:
            Bad()
            raise SystemExit
        except TypeError:
            pass
        return k.r(x) * (2 if isinstance(k, A) else 5)

    return f


@case
def nested():
    class A:
        def __init__(s):
            s.b = np.zeros(3)

        def r(s, x):
            return (s.b * x).sum()

    class B(A):
        def r(s, x):
            return super().r(x) * 2

    o = B()
    d = collections.deque([o])

    def f(x):
        def g(y):
            o.b[:] = y**2
            return d[0].r(y)

        return (tg.grad(g)(x) * W).sum() + (tg.jvp(g, (x,), (np.ones(3),))[1])

    return f


@case
def subclasses():
    class A:
        pass

    class B(A):
        w = np.zeros(3)

    w = B.w

    def f(x):
        w[:] = x**2
        assert A.__subclasses__() == [B]  # which also keeps it alive
        return sum((c.w * x).sum() for c in A.__subclasses__())

    return f


@case
def abc_nested_static():
    class Rule(abc.ABC):
        @property
        @abc.abstractmethod
        def w(s): ...
        @staticmethod
        @abc.abstractmethod
        def k(): ...

    buf = np.zeros(3)

    class J(Rule):
        @property
        def w(s):
            return buf

        @w.setter
        def w(s, v):
            buf[:] = v

        @staticmethod
        def k():
            return buf

    j = J()

    def f(x):
        j.w = x**2
        return (j.k() * x).sum()

    return f


@case
def singlemethod():
    class K:
        def __init__(s):
            s.b = np.zeros(3)

        @functools.singledispatchmethod
        def h(s, o, x):
            return 0 * x.sum()

        @h.register
        def _(s, o: int, x):
            return (s.b * x).sum()

        def p(s, k, x):
            s.b[:] = k * x**2

        p2 = functools.partialmethod(p, 2)

        @functools.cached_property
        def view(s):
            return s.b[1:]

    k = K()

    def f(x):
        k.p2(x)
        return k.h(1, x) + k.view.sum()

    return f


@case
def class_in_f():
    m = module(
        "followed_module",
        """
class Base:
    b=np.zeros(3)
    def r(self,x): return (self.b*x).sum()
def f(x):
    class K(Base):
        w=W*2
        z=np.zeros(3)
        def r(self,x): return super().r(x)+(self.w*x).sum()+(self.z).sum()
    Base.b[:]=x**2
    K.z[:]=x**3
    return K().r(x)
""",
    )
    return m.f


@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
def test_right_and_plain_afterwards(make):
    check(make)


@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
def test_half_way(make):
    check_half_way(make)


def test_classes_made_in_functions_die():
    def one():
        class Local:
            def __init__(self):
                self.b = np.zeros(3)

            def r(self, x):
                self.b[:] = x
                return (self.b**2).sum()

        class Child(Local):
            def r(self, x):
                return 2 * super().r(x)

        tg.grad(Child().r)(X)
        return weakref.ref(Local), weakref.ref(Child)

    found = [one() for _ in range(5)]
    gc.collect()
    assert [r() for pair in found for r in pair] == [None] * 10


def test_nothing_is_left_to_the_collector():
    class A:
        kind = np.ones(3)

        def __init_subclass__(cls, *, tag, **options):
            super().__init_subclass__(**options)

    class B(A, tag=1):
        def __init__(self):
            self.b = np.zeros(3)

        def r(self, x):
            self.b[:] = x**2
            return (self.b * self.kind).sum()

    class C(enum.Enum):
        A = 1

    @functools.singledispatch
    def h(o, x):
        return o.r(x)

    b = B()

    def f(x):
        return h(b, x) * C.A.value

    tg.grad(f)(X), tg.grad(f)(X)
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            tg.grad(f)(X)
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert [s.__name__ for s in A.__subclasses__()] == ["B"]
    assert B.__subclasses__() == []


def test_four_nests_in_four_threads():
    class A:
        def __init__(self):
            self.b = np.zeros(3)

        def r(self, x):
            self.b[:] = x
            return (self.b * x**2).sum()

    class B(A):
        def r(self, x):
            return super().r(x) * x[0]

    class C(B):
        scale = 2.0

        def r(self, x):
            return super().r(x) * self.scale

    def nested(f, depth):
        return f if depth == 0 else nested(lambda x: tg.grad(f)(x).sum(), depth - 1)

    def plain(x, depth):
        """2 x0 sum x^3, and its derivative along (1, 1, 1) again and again."""
        ones = np.ones(3)
        t = np.polynomial.Polynomial
        along = t([0])
        for xi, e in zip(x, ones, strict=True):
            along = along + t([xi, e]) ** 3
        return (2 * t([x[0], 1]) * along).deriv(depth)(0.0) if depth else 2 * x[0] * (x**3).sum()

    wrong = []

    def work():
        o = C()
        for _ in range(3):
            for depth in range(5):
                try:
                    value = nested(o.r, depth)(X)
                    if not np.allclose(value, plain(X, depth), rtol=1e-10):
                        wrong.append((depth, value))
                except Exception as error:
                    wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


@pytest.mark.parametrize("depth", [1, 2])
def test_what_comes_out_is_of_the_users_classes(depth):
    @dataclasses.dataclass
    class D:
        a: object

    class P(NamedTuple):
        a: object

    kept = D(np.zeros(3))

    def f(x):
        kept.a[:] = x
        return (x**2).sum(), (D(2 * x), [P(x)], kept)

    def g(x):
        return tg.grad(lambda y: f(y)[0])(x).sum(), f(x)[1]

    _, (d, [p], k) = tg.grad(f if depth == 1 else g, has_aux=True)(X)
    assert type(d) is D and type(p) is P and type(k) is D
    np.testing.assert_array_equal(d.a, 2 * X)
    np.testing.assert_array_equal(p.a, X)
    np.testing.assert_array_equal(k.a, X)
    assert type(tg.jvp(lambda x: P(x**2), (X,), (X,))[1]) is P


# --- classes that are asked for their place among others, and for their namespaces ---


class Root:
    scale, rate = 2.0, np.ones(3)


class Middle(Root):
    scale = 3.0


class Leaf(Middle):
    pass


class Slotted:
    __slots__ = ("a",)


def rebound(ask):
    def f(x):
        Root.scale = x[0]
        return ask() * x[1]

    return f


PLACES = {
    "base": lambda x: Middle.__base__.scale * x,
    "bases": lambda x: Leaf().__class__.__bases__[0].__bases__[0].scale * x,
    "order": lambda x: Leaf.__mro__[2].scale * x,
    "order of a type": lambda x: type(Leaf()).__mro__[-2].scale * x,
    "mro()": lambda x: Leaf.mro()[2].scale * x,
    "getattr": lambda x: getattr(Middle, "__base__").scale * x,  # noqa: B009
    "inspect": lambda x: inspect.getmro(Leaf)[2].scale * x,
    "how many": lambda x: len(Leaf.__mro__) * len(Leaf.__bases__) * x,
    "the same": lambda x: (Leaf.__mro__[2] is Root) * (Leaf.__base__ is Middle) * (type(Leaf) == type) * x,  # noqa: E721
    "namespaces in order": lambda x: (
        [c.__dict__["scale"] for c in Leaf.__mro__ if "scale" in c.__dict__][-1] * x
    ),
    "namespace": lambda x: sum(v for k, v in vars(Root).items() if k == "scale") * x,
    "name in a namespace": lambda x: ("scale" in Middle.__dict__) * x,
    "bound anew, by base": rebound(lambda: Middle.__base__.scale),
    "bound anew, by bases": rebound(lambda: Leaf.__bases__[0].__bases__[0].scale),
    "bound anew, in order": rebound(
        lambda: [c.__dict__["scale"] for c in Leaf.mro() if "scale" in c.__dict__][-1]
    ),
    "bound anew, by getattr": rebound(lambda: getattr(Middle, "__base__").scale),  # noqa: B009
}


@pytest.mark.parametrize("name", PLACES)
def test_a_class_knows_its_place(name):
    f = PLACES[name]

    def total(v):
        Middle.__base__.rate[:] = v
        return (f(v) * np.array([1.0, 2.0, 3.0])).sum() * Leaf.__mro__[2].rate.sum()

    def run(call):
        try:
            return call(total)
        finally:
            Root.scale, Root.rate = 2.0, np.ones(3)

    v, h = np.array([0.7, -1.3, 2.1]), 1e-20
    right = []
    for e in np.eye(3):
        Root.rate = np.ones(3, complex)
        right.append(run(lambda t, e=e: t(v + 1j * h * e)).imag / h)
    assert np.allclose(run(lambda t: tg.grad(t)(v)), right, rtol=1e-13)
    inner = lambda t: tg.grad(lambda u: tg.jvp(t, (u,), (v,))[1])(v)
    hvp = run(lambda t: tg.hvp(t, v, v))
    assert np.allclose(run(inner), hvp, rtol=1e-12)
    assert type(Leaf) is type and Leaf.__mro__ == (Leaf, Middle, Root, object)


def test_classes_made_of_followed_ones():
    """With another metaclass among the bases, by a class statement inside f."""

    def f(v):
        class Both(Leaf, abc.ABC):
            rate = v

        class Kept(Leaf, metaclass=abc.ABCMeta):
            pass

        assert Both.__mro__[1:] == (Leaf, Middle, Root, abc.ABC, object) and Both.__bases__ == (Leaf, abc.ABC)
        assert isinstance(Both(), abc.ABC) and issubclass(Kept, Root)
        return (Both.rate * Kept.scale * v).sum()

    v = np.array([0.7, -1.3, 2.1])
    assert np.allclose(tg.grad(f)(v), 6 * v)


def test_slots_are_read_along_the_bases():
    class Named:
        __slots__ = ("__name__", "a")

    class More(Named):
        __slots__ = ("b",)

    class Free(More):
        pass

    m = Free()
    m.__name__, m.a, m.b = "m", np.ones(3), np.ones(3)

    def f(v):
        m.a = m.a * v
        names = [n for c in type(m).__mro__ for n in c.__dict__.get("__slots__", ())]
        assert names == ["b", "__name__", "a"] and Free.__name__ == "Free" and m.__name__ == "m"
        return sum(np.sum(getattr(m, n) * v) for n in names if n != "__name__")

    v = np.array([0.7, -1.3, 2.1])
    assert np.allclose(tg.grad(f)(v), 2 * v + 1)
    assert np.allclose(m.a, v) and m.b.tolist() == [1.0, 1.0, 1.0]


def test_copies_of_instances_with_slots():
    s = Slotted()
    s.a = np.ones(3)

    def f(v):
        again = copy.copy(s)
        again.a = again.a * v
        return (copy.deepcopy(again).a * v).sum()

    v = np.array([0.7, -1.3, 2.1])
    assert np.allclose(tg.grad(f)(v), 2 * v)
    assert s.a.tolist() == [1.0, 1.0, 1.0]


MEMBERS = {
    "enumeration": ("class L(enum.Enum):\n    a = 1\nl = L.a", "l is L.a", "L.a is l"),
    "flag": ("class L(enum.Flag):\n    a = 1\n    b = 2\nl = L.b", "l is L.b and l in (L.a | l)",
    "L.b is l and {L.b: 1}[l]"),
    "attribute": ("class L: pass\nl = L.one = L()", "l is L.one", "L.one is l"),
    "slots": ("class L:\n    __slots__ = 'a'\nl = L.one = L()", "l is L.one", "L.one is l"),
    "registry": ("class L(list):\n    all = []\nl = L([1.0])\nL.all.append(l)", "l is L.all[0]",
    "L.all[0] is l"),
    "mapping": ("class L(dict): pass\nl = L(a=1.0)\nL.all = {'l': l}", "l is L.all['l']", "L.all['l'] is l"),
    "queue": ("class L(collections.deque): pass\nl = L.one = L([1.0])", "l is L.one", "L.one is l"),
    "tuple": ("class L(tuple): pass\nl = L.one = L([[1.0]])", "l is L.one", "L.one is l"),
    "base": ("class L:\n    def __init_subclass__(c): L.one = c\nclass l(L): pass", "l is L.one",
    "L.one is l"),
    "metaclass": ("class L(type):\n    all = []\nclass l(metaclass=L): pass\nL.all.append(l)",
    "l is L.all[0]", "L.all[0] is l"),
    "partial": ("class L(functools.partial): pass\nl = L.one = L(max)", "l is L.one", "L.one is l"),
}  # fmt: skip


@pytest.mark.parametrize("order", [0, 1], ids=["object first", "class first"])
@pytest.mark.parametrize("kind", MEMBERS)
def test_an_object_to_which_its_class_leads_is_one(kind, order):
    """Whichever of the two is met first, for each of them leads to the other."""
    text = MEMBERS[kind]
    space = {"enum": enum, "collections": collections, "functools": functools, "__name__": "user"}
    exec(
        text[0] + f"\ndef f(x):\n    assert {text[1 + order]}\n    return x * x if {text[2 - order]} else x",
        space,
    )
    assert tg.grad(space["f"])(3.0) == 6.0
    assert tg.jvp(space["f"], (3.0,), (1.0,))[1] == 6.0


def test_attributes_of_an_object_to_which_its_class_leads():
    class Model:
        last = None

        def __init__(self):
            self.state, Model.last = 0.0, self

    a = Model()

    def f(x):
        a.state = x[0] * x[1]
        return Model.last.state * x[2]

    assert tg.grad(f)(np.array([1.0, 2.0, 3.0])).tolist() == [6.0, 3.0, 2.0]
    assert Model.last is a and a.state == 2.0


def test_a_class_that_c_code_makes_is_of_the_module():
    """It looks for the name of the module in the globals themselves."""

    class Own(ctypes.Structure):
        _fields_ = [("n", ctypes.c_int)]

    made = []

    def f(x):
        made.append(ctypes.POINTER(Own))
        return (x * len(made)).sum()

    assert tg.grad(f)(X).tolist() == [1.0] * len(X)
    assert made[0].__module__ == __name__
    assert tg.grad(lambda x: (x * len(made)).sum())(X).tolist() == [1.0] * len(X)


def test_classes_with_a_metaclass_that_is_derived_from_that_of_another_base():
    class Registering(abc.ABCMeta):
        pass

    class Gate(metaclass=Registering):
        def of(self):
            return np.sum([self.angle * np.ones(2), self.angle**2 * np.ones(2)], axis=0)

    Named = abc.ABCMeta("Named", (), {})

    class Turn(Named, Gate):
        def __init__(self, angle):
            self.angle = angle

    f = lambda x: (Turn(x[0]).of() * x[1:]).sum()
    x = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(tg.grad(f)(x), [6.0, 0.75, 0.75])


def test_a_class_of_code_whose_globals_have_no_name():
    space = {"np": np}
    exec("class Gas:\n    def h(self, T):\n        return np.asarray(T, dtype=float) ** 2", space)
    gas = space["Gas"]()
    assert type(gas).__module__ == "builtins"
    np.testing.assert_allclose(tg.grad(lambda t: gas.h(t))(3.0), 6.0)
