"""Random object graphs: float arrays in random nests of containers, classes, closures, modules and
decorators; f writes them by one route and reads them by another.

`random_graphs.txt` tells how one thing is put into another: lines that make the holder `{n}` of the thing
`{v}`, and, after arrows,
expressions that take the thing out of the holder `{o}` again (`{i}` is a fresh number).  A route is a nest of one to three kinds.  Two
or three routes to one thing, with writes and reads by any of them, make a program."""

import itertools
import pathlib
import random
import textwrap
from dataclasses import dataclass

from judged_routes import Text, lines_of, runs

# Arrays over memory of their own.
ARRAYS = lines_of(r"""
{n} = np.full(3, 0.5)
{n} = np.linspace(0.2, 0.8, 4)
{n} = np.full((2, 3), 0.4)
{n} = np.asfortranarray(np.full((3, 2), 0.4))
{n} = np.linspace(0.1, 0.9, 8)[1:5]
{n} = np.linspace(0.1, 0.9, 8)[::-2]
{n} = np.linspace(0.1, 0.9, 6).reshape(2, 3).T
{n} = np.frombuffer(bytearray(np.full(4, 0.3).tobytes()))
{n} = np.frombuffer(array.array('d', [0.3, 0.4, 0.5]))
{n} = np.array(0.5)
{n} = np.full(4, 0.5 + 0j).real
{n} = np.zeros(3, [('a', float), ('b', float)])['b']
{n} = np.ndarray((3,), float, mmap.mmap(-1, 64), 8)
{n} = np.ctypeslib.as_array((ctypes.c_double * 3)(0.1, 0.2, 0.3))
""")
# Other arrays over the memory of an array.
ALIASES = lines_of(r"""
{v}[...]
{v}[1:]
{v}[::-1]
{v}[::2]
{v}.T
{v}.reshape(-1)
{v}.view()
{v}.ravel()
np.asarray({v})
{v}[None]
np.lib.stride_tricks.as_strided({v})
np.lib.stride_tricks.as_strided({v}, {v}.shape, {v}.strides)
np.lib.stride_tricks.as_strided({v}, (2,), ({v}.strides[0],))
np.lib.stride_tricks.sliding_window_view({v}, 2, 0)
np.frombuffer({v})
np.frombuffer({v}, float, 1, 8)
np.asarray(memoryview({v}))
np.asarray({v}.data)
np.ndarray({v}.shape, {v}.dtype, {v})
np.ctypeslib.as_array((ctypes.c_double * {v}.size).from_buffer({v}))
np.from_dlpack({v})
np.asarray(types.SimpleNamespace(__array_interface__={v}.__array_interface__, kept={v}))
np.broadcast_to({v}, (2, *{v}.shape))
np.array_split({v}, 2)[0]
{v}.view([('a', float)])['a']
np.array({v}, copy=None)
{v}.real
np.squeeze({v})
np.require({v})
{v}.view(np.ndarray)
np.swapaxes({v}, 0, -1)
np.diagonal({v})
{v}.view(complex).real
np.ma.array({v}, copy=False).data
np.asmatrix({v}).A
np.atleast_2d({v})
np.asarray(np.matrix({v}, copy=False))
""")
# Families of expressions.
OBJECT = lines_of(r"""
{o}.a
getattr({o}, 'a')
operator.attrgetter('a')({o})
vars({o})['a']
{o}.__dict__['a']
eval('{o}.a')
""")
PLAIN_OBJECT = lines_of(r"""
{o}.a
getattr({o}, 'a')
operator.attrgetter('a')({o})
object.__getattribute__({o}, 'a')
""")
MAPPING = lines_of(r"""
{o}['k']
{o}.get('k')
list({o}.values())[0]
next(iter({o}.items()))[1]
{{**{o}}}['k']
dict({o})['k']
operator.itemgetter('k')({o})
(lambda k, **_: k)(**{o})
copy.copy({o})['k']
[{o}[k] for k in {o}][0]
""")
SEQUENCE = lines_of(r"""
{o}[1]
{o}[-1]
[*{o}][1]
list({o})[-1]
next(reversed({o}))
operator.itemgetter(1)({o})
(lambda p, q: q)(*{o})
{o}.__getitem__(1)
copy.copy({o})[1]
[a for a in {o}][1]
dict(enumerate({o}))[1]
list(zip({o}))[1][0]
list(map(lambda a: a, {o}))[1]
list(itertools.chain({o}))[1]
functools.reduce(lambda p, q: q, {o})
tuple({o})[1]
collections.deque({o}, 1)[0]
""")
CALL = ("{o}()",)
NEXT = lines_of(r"""
next({o})
{o}.__next__()
""")

FAMILIES = {
    "OBJECT": OBJECT,
    "PLAIN_OBJECT": PLAIN_OBJECT,
    "MAPPING": MAPPING,
    "SEQUENCE": SEQUENCE,
    "NEXT": NEXT,
}


def kinds() -> dict:
    """name -> (lines, expressions)."""
    found = {}
    for paragraph in (pathlib.Path(__file__).parent / "random_graphs.txt").read_text().strip().split("\n\n"):
        name, *lines = paragraph.split("\n")
        lines = textwrap.dedent("\n".join(lines)).split("\n")
        taken = [e for line in lines if line.startswith("-> ") for e in line[3:].split("; ")]
        found[name] = (
            "\n".join([line for line in lines if not line.startswith("-> ")]),
            tuple([e for t in taken for e in FAMILIES.get(t, (t,))]),
        )
    return found


KINDS = kinds()

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

WRITES = lines_of(r"""
{a}[...] = fit(x, {a}) ** 2
{a}[...] = fit(x, {a}) * {a}
{a}[...] += x[1] * 0.5
w = {a}
& w *= x[0]
w = {a}
& w += fit(x, w) * 0.3
np.copyto({a}, fit(x, {a}))
np.multiply({a}, x[2], out={a})
{a}.fill(x[0] * x[1])
{a}.flat[0] = x[0] * 0.7
np.add.at({a}, 0, x[1])
{a}[0] = x[0] * x[2]
{a}[-1:] -= x[:1]
np.put({a}, [0, 1], x[:2])
{a}[...] = 0.7
{a}[...] *= 1.3
for k in range(len({a})):
&     {a}[k] = {a}[k] * x[k % 3]
np.sin({a}, {a})
({a})[{a} > -9.0] = x[1] * 0.4
{a}.__setitem__(Ellipsis, fit(x, {a}) * 0.6)
{a}.__imul__(x[1])
""")
PLACED = lines_of(r"""
{a} *= x[0]
{a} = {a} * x[1]
{a} += fit(x, {a})
{a} = fit(x, {a}) + 0.1
{a} = np.full(3, 0.3)
{a} -= 0.2
""")
COUNTED = lines_of(r"""
{a} = {a} + x[0]
{a} *= x[1]
{a} += x[2] * {a}
{a} = x[0] * x[1]
{a} = 0.4
{a} = {a} * 1.5
""")
COUNTS = lines_of(r"""
s = s + {a}
s = s + {a} * x[2]
s = s + np.sin({a}) * x[0]
s = s + red(x * {a})
""")
READS = lines_of(r"""
s = s + red({a})
s = s + red({a}) * x[1]
s = s + (np.sin({a}) * fit(x, {a})).sum()
s = s + ({a} * {a}).sum() * 0.5
s = s + np.sum({a} * x[0])
w = {a} * 1.0
& s = s + red(w) * red({a})
s = s + sum([red(w) for w in [{a}]])
s = s + {a}.ravel()[-1] * x[2]
s = s + np.tensordot({a}, {a}, np.ndim({a})) * x[0]
s = s + np.concatenate([{a}.ravel(), x]).sum() * red({a})
""")


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
            e = self.rng.choice(taken if self.rng.random() < 0.5 else taken[:1]).format(
                o=e, n=name, i=name[1:]
            )
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
        body = [
            "def inner():\n    s = 0.0\n"
            + "\n".join("    " + u.replace("\n", "\n    ") for u in body)
            + "\n    return s",
            "s = inner()",
        ]
    return Text(tuple(p.head), tuple(body), tuple(shown), tuple(after), closure, seed)
