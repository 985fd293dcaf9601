"""Random object graphs: float arrays in random nests of containers, classes, closures, modules and decorators; f writes them by one
route and reads them by another.

`KINDS` tells how one thing is put into another: lines that make the holder `{n}` of the thing `{v}`, and expressions that take the
thing out of the holder `{o}` again.  A route is a nest of one to four kinds.  Two routes to one thing make a program."""

import itertools
import random
from dataclasses import dataclass

from judged_routes import Text, runs

# Arrays over memory of their own.
ARRAYS = (
    "{n} = np.full(3, 0.5)",
    "{n} = np.linspace(0.2, 0.8, 4)",
    "{n} = np.full((2, 3), 0.4)",
    "{n} = np.asfortranarray(np.full((3, 2), 0.4))",
    "{n} = np.linspace(0.1, 0.9, 8)[1:5]",
    "{n} = np.linspace(0.1, 0.9, 8)[::-2]",
    "{n} = np.linspace(0.1, 0.9, 6).reshape(2, 3).T",
    "{n} = np.frombuffer(bytearray(np.full(4, 0.3).tobytes()))",
    "{n} = np.frombuffer(array.array('d', [0.3, 0.4, 0.5]))",
    "{n} = np.array(0.5)",
    "{n} = np.full(4, 0.5 + 0j).real",
    "{n} = np.zeros(3, [('a', float), ('b', float)])['b']",
    "{n} = np.ndarray((3,), float, mmap.mmap(-1, 64), 8)",
    "{n} = np.ctypeslib.as_array((ctypes.c_double * 3)(0.1, 0.2, 0.3))",
)
# Other arrays over the memory of an array.
ALIASES = (
    "{v}[...]", "{v}[1:]", "{v}[::-1]", "{v}[::2]", "{v}.T", "{v}.reshape(-1)", "{v}.view()", "{v}.ravel()", "np.asarray({v})", "{v}[None]",
    "np.lib.stride_tricks.as_strided({v})", "np.lib.stride_tricks.as_strided({v}, {v}.shape, {v}.strides)",
    "np.lib.stride_tricks.as_strided({v}, (2,), ({v}.strides[0],))", "np.lib.stride_tricks.sliding_window_view({v}, 2, 0)",
    "np.frombuffer({v})", "np.frombuffer({v}, float, 1, 8)", "np.asarray(memoryview({v}))", "np.asarray({v}.data)",
    "np.ndarray({v}.shape, {v}.dtype, {v})", "np.ctypeslib.as_array((ctypes.c_double * {v}.size).from_buffer({v}))",
    "np.from_dlpack({v})", "np.asarray(types.SimpleNamespace(__array_interface__={v}.__array_interface__, kept={v}))",
    "np.broadcast_to({v}, (2, *{v}.shape))", "np.array_split({v}, 2)[0]", "{v}.view([('a', float)])['a']", "np.array({v}, copy=None)",
    "{v}.real", "np.squeeze({v})", "np.require({v})", "{v}.view(np.ndarray)", "np.swapaxes({v}, 0, -1)", "np.diagonal({v})",
    "{v}.view(complex).real", "np.ma.array({v}, copy=False).data", "np.asmatrix({v}).A", "np.atleast_2d({v})", "np.asarray(np.matrix({v}, copy=False))",
)  # fmt: skip
OBJECT = "{o}.a", "getattr({o}, 'a')", "operator.attrgetter('a')({o})", "vars({o})['a']", "{o}.__dict__['a']", "eval('{o}.a')"
PLAIN_OBJECT = "{o}.a", "getattr({o}, 'a')", "operator.attrgetter('a')({o})", "object.__getattribute__({o}, 'a')"
MAPPING = (
    "{o}['k']", "{o}.get('k')", "list({o}.values())[0]", "next(iter({o}.items()))[1]", "{{**{o}}}['k']", "dict({o})['k']",
    "operator.itemgetter('k')({o})", "(lambda k, **_: k)(**{o})", "copy.copy({o})['k']", "[{o}[k] for k in {o}][0]",
)  # fmt: skip
SEQUENCE = (
    "{o}[1]", "{o}[-1]", "[*{o}][1]", "list({o})[-1]", "next(reversed({o}))", "operator.itemgetter(1)({o})", "(lambda p, q: q)(*{o})",
    "{o}.__getitem__(1)", "copy.copy({o})[1]", "[a for a in {o}][1]", "dict(enumerate({o}))[1]", "list(zip({o}))[1][0]",
    "list(map(lambda a: a, {o}))[1]", "list(itertools.chain({o}))[1]", "functools.reduce(lambda p, q: q, {o})", "tuple({o})[1]",
    "collections.deque({o}, 1)[0]",
)  # fmt: skip
CALL = ("{o}()",)
NEXT = ("next({o})", "{o}.__next__()")

# (lines, expressions); `{i}` is a fresh number.
KINDS = {
    # containers
    "list": ("{n} = [0.5, {v}]", SEQUENCE + ("{o}[1:][0]", "({o} + [1.0])[1]", "({o} * 2)[3]")),
    "tuple": ("{n} = (0.5, {v})", SEQUENCE),
    "namedtuple": ("P{i} = collections.namedtuple('P{i}', 'k a')\n{n} = P{i}(0.5, {v})", SEQUENCE + ("{o}.a", "{o}._asdict()['a']")),
    "NamedTuple": ("class P{i}(typing.NamedTuple):\n    k: float\n    a: object\n{n} = P{i}(0.5, {v})", SEQUENCE + ("{o}.a",)),
    "dict": ("{n} = {{'k': {v}, 'j': 0.5}}", MAPPING + ("({o} | {{}})['k']", "{o}.setdefault('k', 0.0)", "{o}.copy()['k']")),
    "deque": ("{n} = collections.deque([0.5, {v}])", ("{o}[1]", "{o}[-1]", "[*{o}][1]", "{o}.copy()[1]", "next(reversed({o}))")),
    "bounded deque": ("{n} = collections.deque([0.5, {v}], 2)", ("{o}[1]", "{o}[-1]", "list({o})[1]")),
    "defaultdict": ("{n} = collections.defaultdict(list, k={v})", MAPPING),
    "defaultdict's maker": ("{n} = collections.defaultdict(lambda: {v})", ("{o}['k']", "{o}.default_factory()", "{o}[3]")),
    "OrderedDict": ("{n} = collections.OrderedDict(k={v})", MAPPING + ("{o}[next(reversed({o}))]",)),
    "ChainMap": ("{n} = collections.ChainMap({{}}, {{'k': {v}}})", ("{o}['k']", "{o}.get('k')", "{o}.maps[1]['k']", "{o}.parents['k']")),
    "UserDict": ("{n} = collections.UserDict(k={v})", ("{o}['k']", "{o}.get('k')", "{o}.data['k']", "list({o}.values())[0]")),
    "UserList": ("{n} = collections.UserList([0.5, {v}])", ("{o}[1]", "{o}.data[1]", "[*{o}][1]")),
    "mapping proxy": ("{n} = types.MappingProxyType({{'k': {v}}})", MAPPING),
    "list subclass": ("class L{i}(list):\n    pass\n{n} = L{i}([0.5, {v}])", SEQUENCE),
    "list subclass with its own get": (
        "class L{i}(list):\n    def __getitem__(self, k):\n        return super().__getitem__(k + 1)\n{n} = L{i}([0.5, {v}])",
        ("{o}[0]", "[*{o}][1]", "list.__getitem__({o}, 1)"),
    ),
    "dict subclass": ("class D{i}(dict):\n    pass\n{n} = D{i}(k={v})", MAPPING),
    "dict subclass with attributes": (
        "class D{i}(dict):\n    def __getattr__(self, k):\n        return self[k]\n{n} = D{i}(k={v})",
        ("{o}.k", "{o}['k']"),
    ),
    "dict subclass with missing": (
        "class D{i}(dict):\n    kept = None\n    def __missing__(self, k):\n        return self.kept\n{n} = D{i}()\n{n}.kept = {v}",
        ("{o}['k']", "{o}.kept"),
    ),
    "tuple subclass": ("class T{i}(tuple):\n    pass\n{n} = T{i}((0.5, {v}))", SEQUENCE),
    "object array": ("{n} = np.empty(2, object)\n{n}[1] = {v}", ("{o}[1]", "{o}[-1]", "{o}.flat[1]", "{o}.tolist()[1]", "[*{o}][1]", "{o}.item(1)")),
    "object array of two axes": ("{n} = np.empty((2, 2), object)\n{n}[1, 0] = {v}", ("{o}[1, 0]", "{o}.T[0, 1]", "{o}[1][0]")),
    "0-d object array": ("{n} = np.empty((), object)\n{n}[()] = {v}", ("{o}[()]", "{o}.item()")),
    "object field": ("{n} = np.zeros(2, [('a', object), ('b', float)])\n{n}['a'][1] = {v}", ("{o}['a'][1]", "{o}[1]['a']")),
    "set of holders": ("class H{i}:\n    pass\nh{i} = H{i}()\nh{i}.a = {v}\n{n} = {{h{i}}}", ("next(iter({o})).a", "[h.a for h in {o}][0]")),
    "frozenset of holders": ("class H{i}:\n    pass\nh{i} = H{i}()\nh{i}.a = {v}\n{n} = frozenset([h{i}])", ("next(iter({o})).a", "[*{o}][0].a")),
    "key of a dict": ("class H{i}:\n    pass\nh{i} = H{i}()\nh{i}.a = {v}\n{n} = {{h{i}: 0.5}}", ("next(iter({o})).a", "[*{o}][0].a")),
    "set of functions": ("def g{i}():\n    return {v}\n{n} = {{g{i}}}", ("[*{o}][0]()",)),
    "slice": ("{n} = slice({v})", ("{o}.stop",)),
    "cycle of containers": ("{n} = [0.5, {v}]\n{n}.append({n})", ("{o}[2][2][1]", "{o}[1]")),
    "dictionary of defaults": ("{n} = dict.fromkeys('ab', {v})", ("{o}['a']", "{o}['b']")),
    # instances
    "namespace": ("{n} = types.SimpleNamespace(a={v})", OBJECT),
    "argparse namespace": ("{n} = argparse.Namespace(a={v})", OBJECT),
    "instance": ("class C{i}:\n    pass\n{n} = C{i}()\n{n}.a = {v}", OBJECT + ("copy.copy({o}).a",)),
    "instance with init": ("class C{i}:\n    def __init__(self, a):\n        self.a = a\n{n} = C{i}({v})", OBJECT + ("type({o})({o}.a).a",)),
    "slots": ("class C{i}:\n    __slots__ = ('a',)\n{n} = C{i}()\n{n}.a = {v}", PLAIN_OBJECT + ("type({o}).a.__get__({o})",)),
    "inherited slots": (
        "class B{i}:\n    __slots__ = ('a',)\nclass C{i}(B{i}):\n    __slots__ = ('b',)\n    def r(self):\n        return self.a\n"
        "{n} = C{i}()\n{n}.a = {v}",
        PLAIN_OBJECT + ("{o}.r()",),
    ),
    "slots and dict": ("class C{i}:\n    __slots__ = ('b', '__dict__')\n{n} = C{i}()\n{n}.a = {v}\n{n}.b = 1.0", OBJECT),
    "private name": ("class C{i}:\n    def __init__(self, a):\n        self.__a = a\n    def r(self):\n        return self.__a\n{n} = C{i}({v})", ("{o}.r()",)),
    "dataclass": ("@dataclasses.dataclass\nclass C{i}:\n    a: object\n    b: float = 0.5\n{n} = C{i}({v})", OBJECT + ("dataclasses.replace({o}).a",)),
    "frozen dataclass": ("@dataclasses.dataclass(frozen=True)\nclass C{i}:\n    a: object\n{n} = C{i}({v})", OBJECT),
    "slotted dataclass": ("@dataclasses.dataclass(slots=True)\nclass C{i}:\n    a: object\n{n} = C{i}({v})", PLAIN_OBJECT),
    "field with a factory": (
        "@dataclasses.dataclass\nclass C{i}:\n    a: object = dataclasses.field(default_factory=lambda: {v})\n{n} = C{i}()",
        ("{o}.a", "type({o})().a"),
    ),
    "abstract": (
        "class A{i}(abc.ABC):\n    @abc.abstractmethod\n    def r(self): ...\nclass C{i}(A{i}):\n    def __init__(self, a):\n        self.a = a\n"
        "    def r(self):\n        return self.a\n{n} = C{i}({v})",
        ("{o}.r()", "{o}.a"),
    ),
    "abstract property": (
        "class A{i}(abc.ABC):\n    @property\n    @abc.abstractmethod\n    def r(self): ...\n    def q(self):\n        return self.r\n"
        "class C{i}(A{i}):\n    b = {v}\n    @property\n    def r(self):\n        return self.b\n{n} = C{i}()",
        ("{o}.r", "{o}.q()"),
    ),
    "protocol": (
        "class A{i}(typing.Protocol):\n    def r(self): ...\nclass C{i}(A{i}):\n    def __init__(self, a):\n        self.a = a\n"
        "    def r(self):\n        return self.a\n{n} = C{i}({v})",
        ("{o}.r()", "{o}.a"),
    ),
    "generic": (
        "Q{i} = typing.TypeVar('Q{i}')\nclass C{i}(typing.Generic[Q{i}]):\n    def __init__(self, a):\n        self.a = a\n    def r(self):\n"
        "        return self.a\n{n} = C{i}[float]({v})",
        ("{o}.r()", "{o}.a"),
    ),
    "metaclass": (
        "class M{i}(type):\n    def r(cls):\n        return cls.a\nclass {n}(metaclass=M{i}):\n    a = {v}",
        ("{o}.r()", "{o}.a", "{o}().a", "type({o}).r({o})"),
    ),
    "attribute of a metaclass": ("class M{i}(type):\n    a = {v}\nclass {n}(metaclass=M{i}):\n    pass", ("{o}.a", "type({o}).a")),
    "init_subclass": (
        "class B{i}:\n    def __init_subclass__(cls, a, **k):\n        cls.a = a\n        super().__init_subclass__(**k)\n"
        "class {n}(B{i}, a={v}):\n    def r(self):\n        return self.a",
        ("{o}.a", "{o}().r()"),
    ),
    "enumeration": ("class E{i}(enum.Enum):\n    A = 1\nE{i}.A.a = {v}\n{n} = E{i}.A", ("{o}.a", "type({o})['A'].a", "type({o})(1).a")),
    "value of an enumeration": (
        "class {n}(enum.Enum):\n    A = ({v},)\n    def r(self):\n        return self.value[0]",
        ("{o}.A.value[0]", "{o}.A.r()", "{o}['A'].value[0]", "[*{o}][0].value[0]"),
    ),
    "class attribute": ("class {n}:\n    a = {v}", ("{o}.a", "{o}().a", "getattr({o}, 'a')", "vars({o})['a']", "{o}.__dict__['a']", "{o}.mro()[0].a")),
    "inherited class attribute": ("class B{i}:\n    a = {v}\nclass {n}(B{i}):\n    pass", ("{o}.a", "{o}().a", "{o}.__mro__[1].a", "{o}.__base__.a")),
    "overridden class attribute": (
        "class B{i}:\n    a = 2.0\n    def r(self):\n        return self.a\nclass C{i}(B{i}):\n    a = {v}\nclass {n}(C{i}):\n    pass",
        ("{o}.a", "{o}().r()", "super({o}, {o}).a"),
    ),
    "attribute over a class's": ("class C{i}:\n    a = np.zeros(3)\n    def r(self):\n        return self.a\n{n} = C{i}()\n{n}.a = {v}", ("{o}.a", "{o}.r()")),
    "diamond": (
        "class B{i}:\n    a = {v}\n    def r(self):\n        return self.a\nclass C{i}(B{i}):\n    def r(self):\n        return super().r()\n"
        "class D{i}(B{i}):\n    def r(self):\n        return super().r()\nclass {n}(C{i}, D{i}):\n    pass",
        ("{o}().r()", "{o}.a"),
    ),
    "class method": ("class {n}:\n    a = {v}\n    @classmethod\n    def r(cls):\n        return cls.a", ("{o}.r()", "{o}().r()")),
    "static method": ("class {n}:\n    @staticmethod\n    def r(a={v}):\n        return a", ("{o}.r()", "{o}().r()")),
    "property": (
        "class C{i}:\n    def __init__(self, a):\n        self._a = a\n    @property\n    def a(self):\n        return self._a\n{n} = C{i}({v})",
        ("{o}.a", "type({o}).a.fget({o})", "type({o}).a.__get__({o})"),
    ),
    "property of a closure": ("def g{i}(a):\n    class C:\n        a_ = property(lambda self: a)\n    return C()\n{n} = g{i}({v})", ("{o}.a_",)),
    "cached property": (
        "class C{i}:\n    def __init__(self, a):\n        self._a = a\n    @functools.cached_property\n    def a(self):\n        return self._a\n"
        "{n} = C{i}({v})",
        ("{o}.a",),
    ),
    "cached property that was read": (
        "class C{i}:\n    def __init__(self, a):\n        self._a = a\n    @functools.cached_property\n    def a(self):\n        return self._a\n"
        "{n} = C{i}({v})\n{n}.a",
        ("{o}.a",),
    ),
    "descriptor": (
        "class F{i}:\n    def __set_name__(self, owner, name):\n        self.name = '_' + name\n    def __get__(self, x, owner=None):\n"
        "        return self if x is None else getattr(x, self.name)\nclass C{i}:\n    a = F{i}()\n{n} = C{i}()\n{n}._a = {v}",
        ("{o}.a",),
    ),
    "descriptor that holds": (
        "class F{i}:\n    def __init__(self, a):\n        self.kept = a\n    def __get__(self, x, owner=None):\n        return self.kept\n"
        "class {n}:\n    a = F{i}({v})",
        ("{o}.a", "{o}().a"),
    ),
    "getattr": (
        "class C{i}:\n    def __init__(self, a):\n        self._d = {{'a': a}}\n    def __getattr__(self, k):\n        if k == '_d':\n"
        "            raise AttributeError(k)\n        return self._d[k]\n{n} = C{i}({v})",
        ("{o}.a", "getattr({o}, 'a')", "{o}._d['a']"),
    ),
    "getattribute": (
        "class C{i}:\n    def __getattribute__(self, k):\n        return object.__getattribute__(self, k)\n{n} = C{i}()\n{n}.a = {v}",
        ("{o}.a", "getattr({o}, 'a')"),
    ),
    "getitem": (
        "class C{i}:\n    def __init__(self, a):\n        self.a = a\n    def __getitem__(self, k):\n        if k:\n            raise IndexError\n"
        "        return self.a\n{n} = C{i}({v})",
        ("{o}[0]", "[*{o}][0]", "{o}.a"),
    ),
    "iter": (
        "class C{i}:\n    def __init__(self, a):\n        self.a = a\n    def __iter__(self):\n        yield self.a\n{n} = C{i}({v})",
        ("[*{o}][0]", "next(iter({o}))", "{o}.a"),
    ),
    "callable object": ("class C{i}:\n    def __init__(self, a):\n        self.a = a\n    def __call__(self):\n        return self.a\n{n} = C{i}({v})", CALL),
    "operator": (
        "class C{i}:\n    def __init__(self, a):\n        self.a = a\n    def __matmul__(self, other):\n        return self.a\n"
        "    def __neg__(self):\n        return self.a\n{n} = C{i}({v})",
        ("-{o}", "{o} @ 1", "operator.neg({o})"),
    ),
    "context": (
        "class C{i}:\n    def __init__(self, a):\n        self.a = a\n    def __enter__(self):\n        return self.a\n"
        "    def __exit__(self, *e):\n        pass\nw{i} = C{i}({v})\ndef {n}():\n    with w{i} as a:\n        return a",
        CALL,
    ),
    "class in a function": (
        "def g{i}(a):\n    class C:\n        b = a\n        def r(self):\n            return a\n    return C()\n{n} = g{i}({v})",
        ("{o}.b", "{o}.r()"),
    ),
    "subclass of a thread": ("class C{i}(threading.Thread):\n    pass\n{n} = C{i}()\n{n}.a = {v}", ("{o}.a",)),
    "subclass of a number": ("class C{i}(float):\n    pass\n{n} = C{i}(2.0)\n{n}.a = {v}", ("{o}.a",)),
    "subclass of a string": ("class C{i}(str):\n    pass\n{n} = C{i}('t')\n{n}.a = {v}", ("{o}.a",)),
    "subclass of an exception": ("class C{i}(Exception):\n    pass\n{n} = C{i}()\n{n}.a = {v}", ("{o}.a",)),
    "exception": ("{n} = ValueError({v})", ("{o}.args[0]",)),
    "exception that is raised": (
        "class C{i}(Exception):\n    pass\ndef {n}(e=C{i}({v})):\n    try:\n        raise e\n    except C{i} as found:\n        return found.args[0]",
        CALL,
    ),
    "attribute of an array": ("class C{i}(np.ndarray):\n    pass\n{n} = np.zeros(2).view(C{i})\n{n}.a = {v}", ("{o}.a",)),
    # functions
    "function": ("def {n}():\n    return {v}", CALL),
    "lambda": ("{n} = lambda: {v}", CALL),
    "closure": ("def g{i}(a):\n    def inner():\n        return a\n    return inner\n{n} = g{i}({v})", ("{o}()", "{o}.__closure__[0].cell_contents")),
    "nested closure": ("def g{i}(a):\n    return lambda: (lambda: a)()\n{n} = g{i}({v})", CALL),
    "default": ("def {n}(a={v}):\n    return a", ("{o}()", "{o}.__defaults__[0]")),
    "keyword default": ("def {n}(*, a={v}):\n    return a", ("{o}()", "{o}.__kwdefaults__['a']")),
    "function attribute": ("def {n}():\n    return {n}.a\n{n}.a = {v}", ("{o}()", "{o}.a", "{o}.__dict__['a']")),
    "partial": ("{n} = functools.partial(lambda a: a, {v})", ("{o}()", "{o}.args[0]")),
    "partial of a keyword": ("{n} = functools.partial(lambda *, a: a, a={v})", ("{o}()", "{o}.keywords['a']")),
    "partial of a builtin": ("{n} = functools.partial(getattr, {v})", ("{o}('__class__') and {o}.args[0]",)),
    "partial method": (
        "class C{i}:\n    def r(self, a):\n        return a\n    q = functools.partialmethod(r, {v})\n{n} = C{i}()",
        ("{o}.q()", "type({o})().q()"),
    ),
    "bound method": ("class C{i}:\n    def __init__(self, a):\n        self.a = a\n    def r(self):\n        return self.a\n{n} = C{i}({v}).r", ("{o}()", "{o}.__self__.a")),
    "method of a thing": ("{n} = types.MethodType(lambda self: self, {v})", ("{o}()", "{o}.__self__")),
    "bound method of a list": ("{n} = [{v}].__getitem__", ("{o}(0)", "{o}.__self__[0]")),
    "bound method of a dict": ("{n} = {{'k': {v}}}.get", ("{o}('k')",)),
    "copier of a list": ("{n} = [{v}].copy", ("{o}()[0]",)),
    "bound method of a deque": ("{n} = collections.deque([{v}]).__getitem__", ("{o}(0)",)),
    "lru_cache": ("@functools.lru_cache\ndef {n}():\n    return {v}", ("{o}()", "{o}.__wrapped__()")),
    "lru_cache that was filled": ("@functools.lru_cache\ndef {n}():\n    return {v}\n{n}()", CALL),
    "cache of a list": ("@functools.cache\ndef {n}():\n    return [{v}]\n{n}()", ("{o}()[0]",)),
    "cached method": (
        "class C{i}:\n    def __init__(self, a):\n        self.a = a\n    @functools.cache\n    def r(self):\n        return self.a\n{n} = C{i}({v})\n{n}.r()",
        ("{o}.r()", "{o}.a"),
    ),
    "wraps": (
        "def d{i}(g):\n    @functools.wraps(g)\n    def w(*a, **k):\n        return g(*a, **k)\n    return w\n@d{i}\ndef {n}():\n    return {v}",
        ("{o}()", "{o}.__wrapped__()"),
    ),
    "decorator that holds": (
        "def d{i}(a):\n    def d(g):\n        @functools.wraps(g)\n        def w():\n            return g(a)\n        return w\n    return d\n"
        "@d{i}({v})\ndef {n}(a):\n    return a",
        CALL,
    ),
    "decorator class": (
        "class D{i}:\n    def __init__(self, g):\n        functools.update_wrapper(self, g)\n        self.g = g\n    def __call__(self, *a):\n"
        "        return self.g(*a)\n@D{i}\ndef {n}():\n    return {v}",
        CALL,
    ),
    "context manager": (
        "@contextlib.contextmanager\ndef w{i}():\n    yield {v}\ndef {n}():\n    with w{i}() as a:\n        return a",
        CALL,
    ),
    "exit stack": ("def {n}(c=contextlib.nullcontext({v})):\n    with contextlib.ExitStack() as t:\n        return t.enter_context(c)", CALL),
    "null context": ("{n} = contextlib.nullcontext({v})", ("{o}.enter_result", "{o}.__enter__()")),
    "single dispatch": (
        "@functools.singledispatch\ndef {n}(k):\n    return 0.5\n@{n}.register\ndef _(k: int):\n    return {v}",
        ("{o}(1)", "{o}.dispatch(int)(1)"),
    ),
    "single dispatch method": (
        "class C{i}:\n    a = {v}\n    @functools.singledispatchmethod\n    def r(self, k):\n        return self.a\n    @r.register\n"
        "    def _(self, k: int):\n        return self.a\n{n} = C{i}()",
        ("{o}.r(1)", "{o}.r('t')"),
    ),
    "memo": (
        "memo{i} = {{}}\ndef {n}():\n    if 'k' not in memo{i}:\n        memo{i}['k'] = {v}\n    return memo{i}['k']",
        CALL,
    ),
    "vectorize": ("{n} = np.vectorize(lambda k: {v}, otypes=[object])", ("{o}(1)[()]", "{o}.pyfunc(1)")),
    "recursion": ("def {n}(k=3):\n    return {n}(k - 1) if k else {v}", CALL),
    "loop": ("def {n}():\n    for k, a in enumerate([{v}]):\n        return a", CALL),
    "match": ("def {n}():\n    match {{'k': {v}}}:\n        case {{'k': a}}:\n            return a", CALL),
    "star": ("def {n}(*a, **k):\n    first, *_ = [{v}]\n    return first", CALL),
    "walrus": ("def {n}():\n    return [a for k in range(1) if (a := {v}) is not None][0]", CALL),
    "exec": ("def {n}():\n    found = {{'a': {v}}}\n    exec('b = a', found)\n    return found['b']", CALL),
    "handed round": ("def g{i}(k):\n    return k()\ndef {n}():\n    return g{i}(lambda: {v})", CALL),
    "async": (
        "async def g{i}():\n    return {v}\ndef {n}():\n    try:\n        g{i}().send(None)\n    except StopIteration as e:\n        return e.value",
        CALL,
    ),
    # iterators that were begun outside
    "generator": ("def g{i}(a):\n    while True:\n        yield a\n{n} = g{i}({v})\nnext({n})", NEXT + ("{o}.send(None)",)),
    "generator not begun": ("def g{i}(a):\n    while True:\n        yield a\n{n} = g{i}({v})", NEXT),
    "generator expression": ("{n} = (a for a in itertools.repeat({v}))", NEXT),
    "generator function": ("def g{i}():\n    yield {v}\ndef {n}():\n    return next(g{i}())", CALL),
    "yield from": ("def g{i}():\n    yield from [{v}]\ndef {n}():\n    return [*g{i}()][0]", CALL),
    "cycle": ("{n} = itertools.cycle([{v}])", NEXT),
    "repeat": ("{n} = itertools.repeat({v})", NEXT),
    "bound next": ("{n} = itertools.repeat({v}).__next__", CALL),
    "map": ("{n} = map(lambda k: {v}, itertools.count())", NEXT),
    "zip": ("{n} = zip(itertools.repeat({v}), itertools.count())", ("next({o})[0]",)),
    "enumerate": ("{n} = enumerate(itertools.repeat({v}))", ("next({o})[1]",)),
    "filter": ("{n} = filter(lambda a: True, itertools.repeat({v}))", NEXT),
    "chain": ("{n} = itertools.chain(itertools.repeat({v}))", NEXT),
    "iterator of a list": ("{n} = iter([{v}] * 200)", NEXT),
    "iterator of a dict": ("{n} = iter({{k: {v} for k in range(200)}}.values())", NEXT),
    "tee": ("{n} = itertools.tee(itertools.repeat({v}))", ("next({o}[0])",)),
    "iterator of a call": ("{n} = iter(lambda: {v}, 7)", ("{o}.__reduce__()[1][0]()",)),
    "view of a dict": ("{n} = {{'k': {v}}}.values()", ("[*{o}][0]", "next(iter({o}))")),
    "items of a dict": ("{n} = {{'k': {v}}}.items()", ("[*{o}][0][1]", "{o}.mapping['k']")),
    # references of other kinds
    "weak reference": ("{n} = weakref.ref({v})", CALL),
    "weak reference to a holder": ("class C{i}:\n    pass\nw{i} = C{i}()\nw{i}.a = {v}\n{n} = weakref.ref(w{i})", ("{o}().a",)),
    "weak proxy": ("class C{i}:\n    pass\nw{i} = C{i}()\nw{i}.a = {v}\n{n} = weakref.proxy(w{i})", ("{o}.a",)),
    "weak method": ("class C{i}:\n    a = {v}\n    def r(self):\n        return self.a\nw{i} = C{i}()\n{n} = weakref.WeakMethod(w{i}.r)", ("{o}()()",)),
    "weak values": ("class C{i}:\n    pass\nw{i} = C{i}()\nw{i}.a = {v}\n{n} = weakref.WeakValueDictionary(k=w{i})", ("{o}['k'].a", "{o}.get('k').a")),
    "weak keys": ("class C{i}:\n    pass\nw{i} = C{i}()\n{n} = weakref.WeakKeyDictionary()\n{n}[w{i}] = {v}", ("[*{o}.values()][0]", "{o}[w{i}]")),
    "weak set": ("class C{i}:\n    pass\nw{i} = C{i}()\nw{i}.a = {v}\n{n} = weakref.WeakSet([w{i}])", ("[*{o}][0].a",)),
    "thread local": ("{n} = threading.local()\n{n}.a = {v}", ("{o}.a", "{o}.__dict__['a']")),
    "context variable": ("{n} = contextvars.ContextVar('k{i}')\n{n}.set({v})", ("{o}.get()",)),
    "default of a context variable": ("{n} = contextvars.ContextVar('k{i}', default={v})", ("{o}.get()",)),
    "copied context": ("k{i} = contextvars.ContextVar('k{i}', default={v})\n{n} = contextvars.copy_context()", ("{o}.run(k{i}.get)",)),
    "future": ("{n} = concurrent.futures.Future()\n{n}.set_result({v})", ("{o}.result()",)),
    "optimize result": ("{n} = scipy.optimize.OptimizeResult(x={v})", ("{o}.x", "{o}['x']")),
    "property object": ("{n} = property(lambda self: {v})", ("{o}.fget(0)", "{o}.__get__(0)")),
    "attribute getter": ("class C{i}:\n    a = {v}\n{n} = functools.partial(operator.attrgetter('a'), C{i}())", CALL),
    # modules
    "module": ("{n} = types.ModuleType('route_{n}')\n{n}.a = {v}", ("{o}.a", "getattr({o}, 'a')", "{o}.__dict__['a']", "vars({o})['a']")),
    "module with code": (
        "{n} = types.ModuleType('route_{n}')\n{n}.a = {v}\nexec('def r():\\n    return a\\ndef q():\\n    return globals()[\"a\"]', {n}.__dict__)",
        ("{o}.r()", "{o}.a", "{o}.q()"),
    ),
    "imported": (
        "m{i} = sys.modules['route_{n}'] = types.ModuleType('route_{n}')\nm{i}.a = {v}\ndef {n}():\n    import route_{n}\n    return route_{n}.a",
        CALL,
    ),
    "imported from": (
        "m{i} = sys.modules['route_{n}'] = types.ModuleType('route_{n}')\nm{i}.a = {v}\ndef {n}():\n    from route_{n} import a\n    return a",
        CALL,
    ),
    "imported by importlib": (
        "m{i} = sys.modules['route_{n}'] = types.ModuleType('route_{n}')\nm{i}.a = {v}\ndef {n}():\n    return importlib.import_module('route_{n}').a",
        CALL + ("sys.modules['route_{n}'].a", "__import__('route_{n}').a"),
    ),
    "class of a module": (
        "m{i} = sys.modules['route_{n}'] = types.ModuleType('route_{n}')\nexec('class C:\\n    pass\\ndef r():\\n    return C.a', m{i}.__dict__)\n"
        "m{i}.C.a = {v}\n{n} = m{i}.C",
        ("{o}.a", "{o}().a", "sys.modules['route_{n}'].r()"),
    ),
    "global": ("{n} = {v}", ("{o}", "globals()['{o}']", "globals().get('{o}')", "eval('{o}')", "sys.modules[__name__].__dict__['{o}']")),
    "global of a function": ("global g_{n}\ng_{n} = {v}\ndef {n}():\n    return g_{n}", ("{o}()", "globals()['g_{n}']", "{o}.__globals__['g_{n}']")),
}  # fmt: skip

HOLDERS = {  # things that hold an array and may be given another
    "list": ("{n} = [0.5, {v}]", "{o}[1]"),
    "dict": ("{n} = {{'k': {v}}}", "{o}['k']"),
    "instance": ("class C{i}:\n    pass\n{n} = C{i}()\n{n}.a = {v}", "{o}.a"),
    "class": ("class {n}:\n    a = {v}", "{o}.a"),
    "deque": ("{n} = collections.deque([0.5, {v}])", "{o}[1]"),
    "defaultdict": ("{n} = collections.defaultdict(list, k={v})", "{o}['k']"),
    "slots": ("class C{i}:\n    __slots__ = ('a',)\n{n} = C{i}()\n{n}.a = {v}", "{o}.a"),
    "namespace": ("{n} = types.SimpleNamespace(a={v})", "{o}.a"),
    "dataclass": ("@dataclasses.dataclass\nclass C{i}:\n    a: object\n{n} = C{i}({v})", "{o}.a"),
    "function": ("def {n}():\n    pass\n{n}.a = {v}", "{o}.a"),
    "module": ("{n} = types.ModuleType('route_{n}')\n{n}.a = {v}", "{o}.a"),
    "object array": ("{n} = np.empty(2, object)\n{n}[1] = {v}", "{o}[1]"),
    "dict subclass": ("class D{i}(dict):\n    pass\n{n} = D{i}(k={v})", "{o}['k']"),
    "list subclass": ("class L{i}(list):\n    pass\n{n} = L{i}([0.5, {v}])", "{o}[1]"),
    "OrderedDict": ("{n} = collections.OrderedDict(k={v})", "{o}['k']"),
    "enumeration": ("class E{i}(enum.Enum):\n    A = 1\n{n} = E{i}.A\n{n}.a = {v}", "{o}.a"),
    "thread local": ("{n} = threading.local()\n{n}.a = {v}", "{o}.a"),
}

WRITES = (
    "{a}[...] = fit(x, {a}) ** 2",
    "{a}[...] = fit(x, {a}) * {a}",
    "{a}[...] += x[1] * 0.5",
    "w = {a}\nw *= x[0]",
    "w = {a}\nw += fit(x, w) * 0.3",
    "np.copyto({a}, fit(x, {a}))",
    "np.multiply({a}, x[2], out={a})",
    "{a}.fill(x[0] * x[1])",
    "{a}.flat[0] = x[0] * 0.7",
    "np.add.at({a}, 0, x[1])",
    "{a}[0] = x[0] * x[2]",
    "{a}[-1:] -= x[:1]",
    "np.put({a}, [0, 1], x[:2])",
    "{a}[...] = 0.7",
    "{a}[...] *= 1.3",
    "for k in range(len({a})):\n    {a}[k] = {a}[k] * x[k % 3]",
    "np.sin({a}, {a})",
    "({a})[{a} > -9.0] = x[1] * 0.4",
    "{a}.__setitem__(Ellipsis, fit(x, {a}) * 0.6)",
    "{a}.__imul__(x[1])",
)
PLACED = ("{a} *= x[0]", "{a} = {a} * x[1]", "{a} += fit(x, {a})", "{a} = fit(x, {a}) + 0.1", "{a} = np.full(3, 0.3)", "{a} -= 0.2")
COUNTED = ("{a} = {a} + x[0]", "{a} *= x[1]", "{a} += x[2] * {a}", "{a} = x[0] * x[1]", "{a} = 0.4", "{a} = {a} * 1.5")
COUNTS = ("s = s + {a}", "s = s + {a} * x[2]", "s = s + np.sin({a}) * x[0]", "s = s + red(x * {a})")
READS = (
    "s = s + red({a})",
    "s = s + red({a}) * x[1]",
    "s = s + (np.sin({a}) * fit(x, {a})).sum()",
    "s = s + ({a} * {a}).sum() * 0.5",
    "s = s + np.sum({a} * x[0])",
    "w = {a} * 1.0\ns = s + red(w) * red({a})",
    "s = s + sum([red(w) for w in [{a}]])",
    "s = s + {a}.ravel()[-1] * x[2]",
    "s = s + np.tensordot({a}, {a}, np.ndim({a})) * x[0]",
    "s = s + np.concatenate([{a}.ravel(), x]).sum() * red({a})",
)


class Writer:
    """Writes one graph."""

    def __init__(self, rng):
        self.rng, self.count = rng, 0
        self.head: list = []
        self.named: list = []

    def number(self) -> int:
        self.count += 1
        return self.count

    def put(self, lines: str, v: str) -> str:
        """A holder of v; its name."""
        i = self.number()
        n = f"c{i}"
        self.head.append(lines.format(n=n, v=v, i=i))
        return n

    def nest(self, v: str, depth: int, kinds: tuple = ()):
        """(root, how the thing v is taken out of it, as a function of nothing but the text of the root)."""
        steps = []
        for _ in range(depth):
            name = self.rng.choice(kinds or list(KINDS))
            lines, taken = KINDS[name]
            v = self.put(lines, v)
            steps.append((v, taken))
        return v, steps

    def taken(self, root: str, steps: list) -> str:
        """One expression for the thing; a new choice at each call."""
        e = root
        for name, taken in reversed(steps):
            e = self.rng.choice(taken if self.rng.random() < 0.5 else taken[:1]).format(o=e, n=name, i=name[1:])
        return e


@dataclass
class Thing:
    """What routes lead to: an array, a holder of one, or a holder of a number.  `held`: the array or number in it."""

    name: str
    array: str
    held: str
    writes: tuple
    reads: tuple


def thing(p: Writer) -> Thing:
    kind = p.rng.random()
    if kind < 0.15:
        lines, held = HOLDERS[p.rng.choice(list(HOLDERS))]
        return Thing(p.put(lines, "0.5"), "", held, COUNTED, COUNTS)
    a = p.put(p.rng.choice(ARRAYS), "")
    if kind < 0.35:
        lines, held = HOLDERS[p.rng.choice(list(HOLDERS))]
        return Thing(p.put(lines, a), a, held, WRITES + PLACED * 3, READS)
    return Thing(a, a, "{o}", WRITES, READS)


def draw(seed: int, kinds: tuple = ()) -> Text:
    """A program that NumPy can run."""
    return next(t for k in itertools.count() if runs(t := attempt(random.Random(f"{seed} {k}"), seed, kinds)))


def attempt(rng, seed: int, kinds: tuple) -> Text:
    p = Writer(rng)
    closure = rng.random() < 0.4
    body, shown, after = [], [], []
    reads: list = []
    for _ in range(rng.choice((1, 1, 2))):
        t = thing(p)
        routes = []
        for _ in range(rng.choice((2, 2, 3))):
            v = t.name
            if t.held == "{o}" and rng.random() < 0.4:
                v = p.put("{n} = " + rng.choice(ALIASES), v)
            routes.append(p.nest(v, rng.choice((0, 1, 1, 1, 2, 2, 3)), kinds))
        if t.array and rng.random() < 0.5:
            p.head.append(f"del {t.array}")
        way = lambda route, t=t: t.held.format(o=p.taken(*route))
        used = False
        for _ in range(rng.choice((2, 3, 4, 5))):
            texts = t.reads if used and rng.random() < 0.5 else t.writes
            used |= texts is t.writes
            body.append(rng.choice(texts).format(a=way(rng.choice(routes))))
        reads += [rng.choice(t.reads).format(a=way(route)) for route in routes]
        shown += [way(route) for route in routes]
        if rng.random() < 0.4:
            a = way(rng.choice(routes))
            after.append(f"({a})[...] = 0.9" if t.array and rng.random() < 0.7 else f"{a} = 0.8 * {a}")
    rng.shuffle(reads)
    body += reads
    if rng.random() < 0.2:
        body = ["def inner():\n    s = 0.0\n" + "\n".join("    " + u.replace("\n", "\n    ") for u in body) + "\n    return s", "s = inner()"]
    return Text(tuple(p.head), tuple(body), tuple(shown), tuple(after), closure, seed)
