"""Random NumPy programs that write in place, as readable Python source.

A `Program` is a list of statements, each the name of a kind and a seed.  `source(program)` writes it out:
kinds are the small functions in the table `KINDS`, and a `Writer` runs every line on plain arrays as it is
written, so that indices and shapes fit the arrays that are there.  So a program from which statements were
dropped is a program again, and can be shrunk.

Reading order: `Program` and `source` at the end; `Writer`; then the kinds."""

import random
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

# Arrays and objects that a program may capture: how each is made, how f resets it, what it needs, and what is
# compared afterwards.
CAPTURED = {
    "buf": ("buf = np.full(5, 0.25)", "buf[...] = 0.25", (), "buf"),
    "part": ("part = buf[1:4]", None, ("buf",), "part"),
    "fbuf": ('fbuf = np.full((3, 2), 0.5, order="F")', "fbuf[...] = 0.5", (), "fbuf"),
    "frow": ("frow = fbuf[:, 1]", None, ("fbuf",), "frow"),
    "pair": (
        "pair = [np.full(4, 0.1), np.full((2, 2), 0.2)]",
        "pair[0][...], pair[1][...] = 0.1, 0.2",
        (),
        "*pair",
    ),
    "named": (
        'named = {"a": np.full(4, 0.3), "b": buf[::2]}',
        'named["a"] = np.full(4, 0.3)',
        ("buf",),
        'named["a"], named["b"]',
    ),
    "box": ("box = Box()", "box.reset()", (), "box.field, box.last"),
    "work": ("work = np.full(4, 0.6)", "work[...] = 0.6", (), "work"),
    "shared": ("shared = np.full((2, 3), 0.4)", "shared[...] = 0.4", (), "shared"),
    "log": ("log = []", "log.clear()", (), "*log"),
    "remember": (
        "last = 0.25\n\ndef remember(v, keep=0.5):\n    nonlocal last\n    last = last * keep + v\n    return last\n",
        "remember(0.25, 0.0)",
        (),
        "last",
    ),
}
DEFAULTS = ("work",)  # captured as the default of an argument
GLOBALS = ("shared",)  # captured as a global
HELPERS = {
    "Box": """
        class Box:
            def __init__(self):
                self.field, self.last = np.full(4, 0.5), 0.25

            def reset(self):
                self.field[...], self.last = 0.5, 0.25

            def step(self, u, k):
                self.field[k] = u * 0.7
                self.field[1:] += self.field[:-1] * 0.5
                return self.field
        """,
    "weigh": """
        def weigh(a, c):
            return (a * (c + 0.07 * np.arange(a.size).reshape(a.shape))).sum()
        """,
    "both": """
        def both(p, q, i, j):
            p[i] = q[j] * p[0]
            q[0] += p[i] * 0.5
            p[1:] -= q[:-1] * 0.3
        """,
    "fill": """
        def fill(out, a):
            for k in range(len(out)):
                out[k] = a[k] * 0.8 if k == 0 else np.sin(a[k]) + out[k - 1] * 0.5
        """,
}


class Shapes:
    """Stands for tapegrad while a program is written: results of the right shape."""

    def grad(self, h):
        return lambda z: (h(z * 1.0), z * 1.0)[1]

    def jvp(self, h, primals, tangents):
        return (y := h(*[z * 1.0 for z in primals])), y * 1.0

    def vjp(self, h, z):
        return h(z * 1.0), lambda w: z * 1.0

    def hvp(self, h, z, v):
        return (h(z * 1.0), z * 1.0)[1]


class NoFit(Exception):
    """No array is there to which the statement could apply."""


class Writer:
    """Writes one program.  `pool`: the names of its arrays."""

    def __init__(self, bare: bool, views: bool):
        self.bare, self.views = bare, views  # no captured arrays; elements are read as 0-d views
        self.lines: list = []
        self.captured: list = []
        self.helpers: list = []
        self.count = 0
        self.space = {"np": np, "tg": Shapes(), "__name__": "random_program"}
        self.rng = random.Random(0)

    def line(self, text: str) -> None:
        text = self.apart(textwrap.dedent(text).strip("\n"))
        exec(text, self.space)
        self.lines.append(text)

    def apart(self, text: str) -> str:
        """NumPy reads the right side late where overlapping 1-d regions differ in step (a[::2] = a[:3])."""
        found = re.fullmatch(r"([a-z]\w*(?:\[[^=]*\])) = ([a-z]\w*(?:\[[^=]*\])?)", text) or re.fullmatch(
            r"np.copyto\((\w+), (\w+\S*)\)", text
        )
        if not found or found[1].endswith('"]'):
            return text
        target, value = self.value(found[1]), self.value(found[2])
        if np.ndim(value) and np.shares_memory(target, value) and target.strides != value.strides:
            return (
                text.replace(found[2], f"{found[2]} * 1.0", 1) if found[1] != found[2] and text.count(found[2]) == 1 else f"pass  # {text}"
            )
        return text

    def value(self, text: str):
        return eval(text, self.space)

    def shape(self, text: str) -> tuple:
        return np.shape(self.value(text))

    def pick(self, *options):
        return self.rng.choice(options)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def new(self, text: str) -> str:
        """A new array of the program."""
        name = self.name("a")
        self.line(f"{name} = {text}")
        self.pool.append(name)
        if len(self.pool) > 10:
            del self.pool[2]
        return name

    def use(self, name: str) -> str:
        """A captured array or object, or a function of the table above."""
        if name in HELPERS:
            if name not in self.helpers:
                self.helpers.append(name)
                exec(textwrap.dedent(HELPERS[name]), self.space)
            return name
        if self.bare:
            raise NoFit
        if name not in self.captured:
            make, _, needs, _ = CAPTURED[name]
            for n in needs + (("Box",) if name == "box" else ()):
                self.use(n)
            self.captured.append(name)
            exec(make.replace("nonlocal", "global"), self.space)
        return name

    # --- choosing among what is there ---

    def any(self) -> str:
        return self.pick(*self.pool)

    def vector(self, least: int = 1) -> str:
        found = [a for a in self.pool if len(self.shape(a)) == 1 and self.shape(a)[0] >= least]
        if not found:
            raise NoFit
        return self.pick(*found)

    def matrix(self, square: bool = False) -> str:
        found = [a for a in self.pool if len(self.shape(a)) == 2 and (not square or len({*self.shape(a)}) == 1)]
        if found and self.chance(0.8):
            return self.pick(*found)
        return self.new(f"{self.vector(4)}[:4].reshape(2, 2)")

    def writable(self, a: str) -> str:
        if not self.value(a).flags.writeable or 0 in self.value(a).strides:
            raise NoFit
        return a

    def place(self, n: int) -> int:
        return self.rng.randrange(-1, n)

    def places(self, n: int, k: int, distinct: bool = False) -> str:
        """k places below n, as a list or an array."""
        if distinct and k > n:
            raise NoFit
        at = self.rng.sample(range(n), k) if distinct else [self.rng.randrange(n) for _ in range(k)]
        return str(at) if self.chance(0.5) else f"np.array({at})"

    def mask(self, n: int) -> str:
        """A mask that depends on no value, or on values that stay far from the edge."""
        return self.pick(
            f"np.arange({n}) % {self.pick(2, 3)} == {self.pick(0, 1)}",
            f"np.array({[self.chance(0.6) for _ in range(n)]})",
        )

    def element(self, w: str) -> str:
        at = ", ".join([str(self.place(n)) for n in self.shape(w)])
        return f"{w}[{at}, ...]" if self.views else f"{w}[{at}]"

    def region(self, u: str, least: int = 0) -> str:
        """A basic index of u, for which at least `least` elements remain."""
        n = len(self.shape(u))
        for _ in range(20):
            at = [self.slice(k) for k in self.shape(u)][: self.rng.randint(1, n)]
            if self.chance(0.1):
                at.insert(self.rng.randint(0, len(at)), "None")
            if self.chance(0.15):
                at.append("...")
            found = f"[{', '.join(at)}]"
            if np.prod(self.shape(u + found)) >= max(1, least) and self.shape(u + found) >= (least,)[:least]:
                return found
        raise NoFit

    def slice(self, n: int) -> str:
        i = self.rng.randrange(n)
        return self.pick(
            str(self.place(n)),
            f"{i}:",
            f":{i + 1}",
            "::2",
            "::-1",
            ":",
            f"{n - 1}:{-n - 1}:-{self.pick(1, 2)}",
            f"{i}:{i + 2}",
        )

    def fit(self, shape: tuple) -> str:
        """An expression that broadcasts to the shape, read from some array."""
        w = self.any()
        s = self.shape(w)
        if len(s) == len(shape) and all(a >= b for a, b in zip(s, shape, strict=True)):
            return w if s == shape and self.chance(0.7) else w + f"[{', '.join(f':{k}' for k in shape)}]"
        if len(s) == 1 and len(shape) == 2 and s[0] >= shape[1]:
            return f"{w}[:{shape[1]}]"
        if len(s) == 2 and len(shape) == 1 and s[1] >= shape[0]:
            return f"{w}[{self.place(s[0])}, :{shape[0]}]"
        return self.element(w)

    def term(self, shape: tuple) -> str:
        """The same with some arithmetic on it."""
        e = self.fit(shape)
        return self.pick(
            e,
            f"{e} * 0.7",
            f"np.sin({e})",
            f"{e} * {self.element(self.any())}",
            f"{e} - 0.2",
            f"0.5 * {self.fit(shape)} + {e}",
        )

    def copy(self, e: str) -> str:
        """An element as an array of its own, where a view of it would be altered by the statement."""
        return f"({e} * 1.0)"


# --- the table ---


@dataclass(frozen=True)
class Kind:
    write: Callable
    weight: int
    exact: bool  # complex steps can follow it
    cupy: bool  # defined on CuPy
    bare: bool  # works without a shadow: writes no array that NumPy made


KINDS: dict = {}


def kind(weight: int = 2, exact: bool = True, cupy: bool = True, bare: bool = True):
    def put(write):
        KINDS[write.__name__] = Kind(write, weight, exact, cupy, bare)
        return write

    return put


# values


@kind()
def product(p):
    u = p.any()
    p.new(f"{u} * {p.fit(p.shape(u))}")


@kind()
def unary(p):
    u = p.any()
    p.new(
        p.pick(
            "np.sin({})",
            "np.exp({} * 0.1)",
            "np.tanh({})",
            "-{}",
            "{} + 0.3",
            "{} - 0.1",
            "np.sqrt({0} * {0} + 1.3)",
            "{} ** 2",
        ).format(u)
    )


@kind()
def combination(p):
    u = p.any()
    p.new(f"{p.pick('0.5', '1.0', p.element(p.any()))} * {u} {p.pick('+', '-')} {p.fit(p.shape(u))} * 0.4")


@kind(1)
def quotient(p):
    u = p.any()
    e = p.fit(p.shape(u))
    p.new(f"{u} / ({e} * {e} + 2.5)")


@kind(1)
def chosen(p):
    u = p.vector()
    p.new(f"np.where({p.mask(p.shape(u)[0])}, {u}, {p.term(p.shape(u))})")


@kind(1)
def copied(p):
    u = p.any()
    p.new(p.pick("{}.copy()", "np.copy({})", "np.zeros_like({0}) + {0}", "{} * 1.0").format(u))


@kind(1, bare=False)
def converted(p):
    u = p.any()
    p.new(
        p.pick(
            "np.array({})",
            "np.asarray({})",
            "np.asfortranarray({})",
            "np.ascontiguousarray({})",
            'np.array({}, order="F")',
        ).format(u)
    )


@kind(1)
def gathered(p):
    u = p.vector()
    p.new(f"{u}[{p.places(p.shape(u)[0], p.rng.randint(1, 4))}]")


@kind(1)
def masked(p):
    u = p.vector(2)
    n = p.shape(u)[0]
    at = f"np.arange({n}) != {p.rng.randrange(n)}"
    p.new(f"{u}[{at}] * {p.element(p.any())}")


@kind(1)
def joined(p):
    u, w = p.vector(), p.vector()
    p.new(
        p.pick(
            f"np.concatenate(({u}, {w}))[:6]",
            f"np.stack([{u}, {u} * 0.5])",
            f"np.hstack(({w}, {p.element(u)}))[-5:]",
        )
    )


@kind(1)
def reduced(p):
    m = p.matrix()
    p.new(
        p.pick(
            f"{m}.sum(0)",
            f"np.mean({m}, axis=1)",
            f"{m}.sum(axis=-1, keepdims=True)",
            f"np.cumsum({m}, axis=0)",
        )
    )


@kind(1)
def matrix_product(p):
    m = p.matrix()
    n = p.shape(m)[1]
    w = p.pick(f"{m}.T", f"np.sin({m}).T", f"{m}[:, ::-1].T", f"np.linspace(0.1, 0.4, {n})", f"{m}[0]")
    p.new(f"{m} @ {w} * 0.5")


@kind(2)
def several_operands(p):
    u = p.vector()
    n = p.shape(u)[0]
    others = [w for w in p.pool if p.shape(w) == (n,)]
    v, w = p.pick(*others), p.pick(*others)
    p.new(p.pick(f'np.einsum("i,i,i->i", {u}, {v}, {w})', f'np.einsum("i,i,j->j", {u}, {v}, {w}) * 0.3'))


@kind(1)
def comprehension(p):
    m = p.matrix()
    p.new(f"np.stack([r * {p.element(p.any())} for r in {m}])")


@kind(1)
def generator(p):
    u, w = p.vector(), p.any()
    p.new(f"{w} * 0.1 * sum({u}[k] * (k + 1) for k in range({p.shape(u)[0]}))")


# views


@kind(4)
def view(p):
    u = p.any()
    at = p.region(u, 1)
    if not 1 <= len(p.shape(u + at)) <= 2:
        raise NoFit
    p.new(u + at)


@kind()
def view_of_a_view(p):
    u = p.vector(3)
    p.new(p.pick(f"{u}[1:][::-1]", f"{u}[::-1][1:]", f"{u}[:3][::2]", f"{u}[::-1][::2]", f"{u}[None, :][0, 1:]"))


@kind()
def reshaped(p):
    u = p.vector(4)
    p.new(
        p.pick(
            f"{u}[:4].reshape(2, 2)",
            f"{u}[:4].reshape((2, 2)).T",
            f"{u}[-4:].reshape(2, -1)",
            f'{u}[:4].reshape((2, 2), order="F")',
        )
    )


@kind()
def flattened(p):
    m = p.matrix()
    p.new(
        p.pick(
            f"{m}.reshape(-1)",
            f"{m}.ravel()",
            f"{m}.T.reshape(-1)",
            f"{m}.flatten()",
            f'{m}.ravel(order="F")',
        )
    )


@kind()
def transposed(p):
    m = p.matrix()
    p.new(
        p.pick(
            f"{m}.T",
            f"np.swapaxes({m}, 0, 1)",
            f"{m}.transpose(1, 0)",
            f"np.flip({m}, 0)",
            f"np.moveaxis({m}, 0, 1)",
        )
    )


@kind(1)
def fortran(p):
    m = p.matrix()
    p.new(p.pick(f'{m}.copy(order="F")', f"np.copy({m}.T)", f"np.sin({m}.T)", f"({m} * {m}).T"))


@kind(1)
def diagonal(p):
    m = p.matrix()
    p.new(p.pick(f"{m}.diagonal()", f"np.diagonal({m})", f"np.diag({m})"))


@kind(1)
def stepped_diagonal(p):
    m = p.matrix(square=True)
    n = p.shape(m)[0]
    p.new(f"{m}.reshape(-1)[::{n + 1}]")


@kind(1, bare=False)
def broadcast(p):
    u = p.vector()
    p.new(f"np.broadcast_to({u}, (2, {p.shape(u)[0]}))")


@kind(1)
def split(p):
    u = p.vector(4)
    a, b = p.name("a"), p.name("a")
    p.line(f"{a}, {b} = np.split({u}[:4], 2)")
    p.pool += [a, b]


# writes


@kind(4)
def set_region(p):
    u = p.writable(p.any())
    at = p.region(u)
    p.line(f"{u}{at} = {p.term(p.shape(u + at))}")


@kind(4)
def augmented(p):
    u = p.writable(p.any())
    at = p.region(u)
    op = p.pick("+", "-", "*", "/", "**")
    e = p.fit(p.shape(u + at))
    e = {"/": f"{e} * {e} + 1.5", "**": p.pick("2", "2.0", "3")}.get(op, p.pick(e, f"{e} * 0.5"))
    p.line(f"{u}{at} {op}= {e}")


@kind()
def augmented_whole(p):
    u = p.writable(p.any())
    e = p.term(p.shape(u))
    p.line(
        p.pick(
            f"{u} += {e}",
            f"{u} -= {e}",
            f"{u} *= {e}",
            f"{u} /= 1.5 + np.sin({e})",
            f"{u} **= 2",
            f"{u} *= 0.5",
        )
    )


@kind()
def power_of_itself(p):
    u = p.writable(p.any())
    p.line(f"np.sin({u}, out={u})")  # powers of powers would overflow
    p.line(f"{u} *= {u}")
    p.line(f"{u} += 0.6")
    p.line(f"{u} **= {p.pick(u, p.fit(p.shape(u)), '0.5')}")


@kind()
def write_through_a_view(p):
    u = p.writable(p.any())
    at = p.region(u, 1)
    if not p.shape(u + at):
        raise NoFit
    v = p.name("v")
    p.line(f"{v} = {u}{at}")
    at = p.region(v)
    p.line(f"{v}{at} {p.pick('=', '+=', '*=')} {p.term(p.shape(v + at))}")
    if p.chance(0.3):
        p.pool.append(v)


@kind(3)
def overlap(p):
    u = p.writable(p.vector(3))
    p.line(
        p.pick(
            f"{u}[1:] += {u}[:-1]",
            f"{u}[:-1] = {u}[1:]",
            f"{u}[1:] = {u}[:-1] * 0.5",
            f"{u}[...] = {u}[::-1]",
            f"{u}[::-1] += {u}",
            f"{u}[1:] *= {u}[:-1]",
            f"{u}[:2] -= {u}[1:3]",
            f"{u}[-2:], {u}[:2] = {u}[:2], {u}[-2:]",
            f"{u}[1:] = {u}[1:] + {u}[:-1] * {u}[1:]",
        )
    )


@kind()
def overlap_of_rows(p):
    m = p.writable(p.matrix(square=True))
    p.line(
        p.pick(
            f"{m} += {m}.T",
            f"{m}[...] = {m}.T",
            f"{m}.T[...] = {m} * {p.element(p.any())}",
            f"{m}[1:] = {m}[:-1]",
            f"{m}[:, 1:] -= {m}[:, :-1]",
            f"{m}[0], {m}[-1] = {m}[-1], {m}[0]",
            f"{m} *= {m}[0]",
            f"{m} -= {m}[:, :1]",
        )
    )


@kind(1)
def swap(p):
    u = p.writable(p.vector(2))
    i, j = p.rng.sample(range(p.shape(u)[0]), 2)
    p.line(f"{u}[{i}], {u}[{j}] = {p.copy(f'{u}[{j}]')}, {p.copy(f'{u}[{i}]')}")


@kind()
def with_itself(p):
    u = p.writable(p.any())
    p.line(p.pick(f"{u} += {u}", f"{u} *= {u}", f"{u} -= {u} * {u}", f"{u} *= {u} + 0.5", f"{u} -= {u}[::-1]"))


@kind()
def out(p):
    u = p.writable(p.any())
    e, w = p.fit(p.shape(u)), p.fit(p.shape(u))
    p.line(
        p.pick(
            f"np.multiply({u}, {w}, out={u})",
            f"np.sin({u}, out={u})",
            f"np.add({u}, {p.element(p.any())}, out={u})",
            f"np.subtract({u}, {e} * {w}, {u})",
            f"np.exp({u} * 0.1, {u})",
        )
    )


@kind()
def out_of_a_region(p):
    u = p.writable(p.vector(2))
    n = p.shape(u)[0]
    p.line(
        p.pick(
            f"np.sin({u}[:-1], out={u}[1:])",
            f"np.multiply({u}[1:], {u}[:-1], out={u}[:-1])",
            f"np.add({u}[::-1], {p.fit((n,))}, out={u})",
            f"np.cumsum({u} * 0.5, out={u})",
            f"np.multiply({u}[:1], {p.term((1,))}, out={u}[-1:])",
        )
    )


@kind(1)
def out_of_a_matrix(p):
    m = p.writable(p.matrix(square=True))
    u = p.writable(p.vector(p.shape(m)[0]))
    n = p.shape(m)[0]
    p.line(
        p.pick(
            f"np.matmul({m}, np.sin({m}), out={m})",
            f"np.sum({m}, axis=0, out={u}[:{n}])",
            f"np.matmul({m}, {m}[0], out={u}[:{n}])",
            f"np.mean({m}, 1, out={u}[:{n}])",
        )
    )


@kind(1, cupy=False)
def where(p):
    u = p.writable(p.vector())
    n = p.shape(u)[0]
    p.line(
        p.pick(
            f"np.multiply({u}, {p.fit((n,))}, out={u}, where={p.mask(n)})",
            f"np.sin({p.fit((n,))}, out={u}, where={p.mask(n)})",
            f"np.add({u}, {u}[::-1], out={u}, where={p.mask(n)})",
        )
    )


@kind(1)
def add_at(p):
    u = p.writable(p.vector())
    p.line(f"np.add.at({u}, {p.places(p.shape(u)[0], 3)}, {p.term((3,))})")


@kind(1, cupy=False)
def subtract_at(p):
    u = p.writable(p.vector())
    p.line(f"np.subtract.at({u}, {p.places(p.shape(u)[0], 3)}, {p.term((3,))})")


@kind(1)
def add_at_of_a_matrix(p):
    m = p.writable(p.matrix())
    r, c = p.shape(m)
    p.line(f"np.add.at({m}, ({p.places(r, 3)}, {p.places(c, 3)}), {p.term((3,))})")


@kind()
def fancy_write(p):
    u = p.writable(p.vector(2))
    at = p.places(p.shape(u)[0], 2, distinct=True)
    p.line(f"{u}[{at}] {p.pick('=', '+=', '*=')} {p.term((2,))}")


@kind(cupy=False)
def fancy_write_with_duplicates(p):
    u = p.writable(p.vector())
    p.line(f"{u}[{p.places(p.shape(u)[0], 4)}] {p.pick('=', '+=', '*=', '-=')} {p.term((4,))}")


@kind(1, cupy=False)
def fancy_write_of_a_matrix(p):
    m = p.writable(p.matrix())
    r, c = p.shape(m)
    at = p.pick(
        f"{p.places(r, 3)}, {p.places(c, 3)}",
        f":, {p.places(c, 2)}",
        f"{p.places(r, 2)}",
        f"{p.place(r)}, {p.places(c, 3)}",
    )
    p.line(f"{m}[{at}] {p.pick('=', '+=', '*=')} {p.term(p.shape(f'{m}[{at}]'))}")


@kind()
def masked_write(p):
    u = p.writable(p.vector())
    at = p.name("at")
    p.line(f"{at} = {p.mask(p.shape(u)[0])}")
    p.line(
        p.pick(
            f"{u}[{at}] = {p.element(p.any())}",
            f"{u}[{at}] *= {p.element(p.any())}",
            f"{u}[{at}] = {u}[::-1][{at}] * 0.8",
            f"{u}[{at}] += {u}[{at}]",
        )
    )


@kind(1)
def mask_of_values(p):
    u = p.writable(p.vector())
    n = p.shape(u)[0]
    ramp = [0.9, -0.9, 0.5, -0.4, 1.2, -1.5][:n] + [0.7] * (n - 6)
    p.line(f"{u}[...] = np.sin({u}) * 0.3 + np.array({ramp})")
    p.line(f"{u}[{u} > 0] *= {p.element(p.any())}")


@kind(1)
def copyto(p):
    u = p.writable(p.vector())
    n = p.shape(u)[0]
    p.line(f"np.copyto({u}, {p.term((n,))}{p.pick('', f', where={p.mask(n)}')})")


@kind(1)
def put(p):
    u = p.writable(p.vector(3))
    at = p.places(p.shape(u)[0], 3, distinct=True)
    p.line(p.pick(f"np.put({u}, {at}, {p.vector(3)}[:3])", f"{u}.put({at}, {p.vector(3)}[-3:])"))


@kind(1)
def fill(p):
    u = p.writable(p.any())
    p.line(p.pick(f"{u}.fill({p.copy(p.element(p.any()))})", f"{u}[...] = 0.4", f"{u}[...] = {p.copy(p.element(u))}"))


@kind(1)
def fill_diagonal(p):
    m = p.writable(p.matrix())
    p.line(f"np.fill_diagonal({m}, {p.copy(p.element(p.any()))})")


@kind(1)
def flat(p):
    m = p.writable(p.matrix())
    p.line(f"{m}.flat[{p.place(p.value(m).size)}] = {p.copy(p.element(p.any()))}")


@kind(1)
def sort(p):
    u = p.writable(p.vector())
    n = p.shape(u)[0]
    ramp = [0.6, 0.1, 1.1, -0.4, -0.9, 1.6][:n] + [2.1 + 0.5 * k for k in range(n - 6)]
    p.line(f"{u}[...] = np.sin({u}) * 0.2 + np.array({ramp})")
    p.line(f"{u}.sort()")


@kind()
def rows(p):
    m = p.writable(p.matrix())
    e = p.copy(p.element(p.any()))
    p.line(
        p.pick(
            f"for r in {m}:\n    r *= {p.pick('2', '0.7', e)}",
            f"for k, r in enumerate({m}):\n    r[k % {p.shape(m)[1]}] += {e}",
            f"for r, s in zip({m}, {m}[::-1]):\n    r += s * 0.5",
            f"for k in range(1, len({m})):\n    {m}[k] = np.sin({m}[k - 1]) + {m}[k] * 0.5",
        )
    )


@kind(1)
def elementwise_loop(p):
    u = p.writable(p.vector(2))
    p.line(f"for k in range(len({u}) - 1):\n    {u}[k + 1] {p.pick('=', '+=', '*=')} np.sin({u}[k]) * {p.pick('0.9', f'{u}[k + 1]')}")


@kind(1)
def twice(p):
    u = p.writable(p.vector(2))
    n = p.shape(u)[0]
    p.use("both")
    p.line(p.pick(f"both({u}, {u}, {p.place(n)}, {p.place(n)})", f"both({u}, {u}[::-1], {p.place(n)}, {p.place(n)})"))


@kind(1, exact=False)
def complex_parts(p):
    u = p.vector(2)
    n, z = p.shape(u)[0], p.name("z")
    p.line(f"{z} = {u} + 1j * {p.fit((n,))}")
    for _ in range(2):
        p.line(
            p.pick(
                f"{z}.real[{p.place(n)}] = {p.element(p.any())} * 0.5",
                f"{z}.imag *= {p.element(p.any())}",
                f"{z}.imag[1:] += {z}.real[:-1]",
                f"{z} *= {z}[::-1] * (0.5 - 0.2j)",
                f"{z}.real = {p.fit((n,))}",
            )
        )
    p.new(p.pick(f"{z}.real", f"{z}.imag", f"({z} * {z}.conj()).real", f"{z}.real * {z}.imag"))


# arrays made inside


@kind(2, bare=False)
def made(p):
    u = p.any()
    n = p.shape(u)
    e = p.term(n)
    b = p.new(
        p.pick(
            f"np.zeros({n})",
            f"np.full({n}, 0.3)",
            f"np.ones({n})",
            f"np.empty_like({u})",
            f'np.zeros({n}, order="F")',
        )
    )
    p.line(f"{b}[...] = {e}")
    if p.chance(0.5):
        at = p.region(b)
        p.line(f"{b}{at} {p.pick('=', '-=')} {p.term(p.shape(b + at))}")


@kind(1, bare=False)
def filled(p):
    u = p.vector()
    p.use("fill")
    b = p.new(f"np.empty({p.shape(u)[0]})")
    p.line(f"fill({b}, {u})")


@kind(1, bare=False)
def trajectory(p):
    u = p.vector(2)
    b = p.new("np.zeros((4, 2))")
    p.line(f"{b}[0] = {u}[:2]")
    p.line(f"for k in range(3):\n    {b}[k + 1] = np.sin({b}[k]) * 0.9 + {b}[k, ::-1] * {p.element(p.any())}")


# captured arrays


@kind(2, bare=False)
def buffer(p):
    buf = p.use("buf")
    u = p.vector()
    k = min(5, p.shape(u)[0])
    p.line(
        p.pick(
            f"{buf}[:{k}] = {u}[:{k}]",
            f"{buf}[...] *= {p.element(p.any())}",
            f"{buf}[1:] += {buf}[:-1]",
            f"{buf}[-{k}:] -= {u}[:{k}] * 0.5",
        )
    )
    if p.chance(0.4):
        p.new(p.pick(f"{buf} * 1.0", f"{buf}[::-1]", f"{buf}[1:]"))


@kind(1, bare=False)
def buffer_view(p):
    part = p.use("part")
    p.line(
        p.pick(
            f"{part}[:] = {part} * {p.element(p.any())}",
            f"{part}[1:] += {part}[:-1]",
            f"{part}[...] -= 0.1",
            f"{part}[...] = {p.term((3,))}",
        )
    )
    p.new(p.pick(f"{part} + buf[:3]", f"{part}[::-1]", "buf[2:]"))


@kind(1, bare=False)
def fortran_buffer(p):
    fbuf, frow = p.use("fbuf"), p.use("frow")
    p.line(
        p.pick(
            f"{fbuf}[:, 0] = {p.element(p.any())}",
            f"{frow}[1:] = {frow}[:-1] * {p.element(p.any())}",
            f"{fbuf}[0] += {frow}[:2]",
            f"{fbuf}[...] *= 0.8",
        )
    )
    p.new(p.pick(f"{fbuf}[0]", f"{fbuf}.T.reshape(-1)[:5]", f"{frow} * 0.5", f"{fbuf} * {p.element(p.any())}"))


@kind(1, bare=False)
def list_of_buffers(p):
    pair = p.use("pair")
    p.line(
        p.pick(
            f"{pair}[0][:2] = {p.term((2,))}",
            f"{pair}[1][0] = {pair}[0][:2] * {p.element(p.any())}",
            f"for b in {pair}:\n    b *= {p.element(p.any())}",
            f"{pair}[1] = {pair}[1] * {p.element(p.any())}",
        )
    )
    p.new(p.pick(f"{pair}[0]", f"{pair}[1]", f"{pair}[1] @ {pair}[0][1:3]"))


@kind(1, bare=False)
def dict_of_buffers(p):
    d = p.use("named")
    p.line(
        p.pick(
            f'{d}["a"][1] = {p.copy(p.element(p.any()))}',
            f'{d}["b"][:2] += {p.term((2,))}',
            f'{d}["a"] = {d}["a"] * {p.element(p.any())}',
        )
    )
    p.new(p.pick(f'{d}["a"] + 0.1', f'{d}["b"]', "buf * 0.5"))


@kind(1, bare=False)
def attributes(p):
    box = p.use("box")
    p.line(
        p.pick(
            f"{box}.step({p.copy(p.element(p.any()))}, {p.place(4)})",
            f"{box}.field *= {p.element(p.any())}",
            f"{box}.field = {box}.field + {p.fit((4,))}",
            f"{box}.last = {p.copy(p.element(p.any()))} + {box}.last",
        )
    )
    p.new(p.pick(f"{box}.field[::2]", f"{box}.field * {box}.last", f"{box}.field"))


@kind(1, bare=False)
def default_argument(p):
    work = p.use("work")
    p.line(
        p.pick(
            f"{work}[1:] *= {p.element(p.any())}",
            f"{work}[...] = {p.term((4,))}",
            f"{work}[::2] = {work}[1::2]",
        )
    )
    p.new(f"{work}{p.pick('[::-1]', '[1:]', ' * 0.5')}")


@kind(1, bare=False)
def global_array(p):
    shared = p.use("shared")
    p.line(
        p.pick(
            f"{shared}[0] = {p.term((3,))}",
            f"{shared}[:, 1] += {p.term((2,))}",
            f"{shared}[1] *= {shared}[0]",
            f"{shared}.T[0] = {p.element(p.any())}",
        )
    )
    p.new(p.pick(f"{shared}", f"{shared}[1]", f"{shared}.T @ {shared} * 0.3"))


@kind(1, bare=False)
def rebound_nonlocal(p):
    p.use("remember")
    p.new(f"{p.any()} * remember({p.copy(p.element(p.any()))})")


@kind(1, bare=False)
def appended(p):
    log, u = p.use("log"), p.vector(2)
    p.line(f"{log}.append({p.pick(f'{u} * 1.0', f'{u}.copy()', f'{u}[::-1] * 0.5', f'({u} * 0.5)[1:]')})")
    p.new(f"{log}[-1] + {log}[0].sum()")


# plain arrays that change on the way


@kind(2)
def plain_operand(p):
    u = p.any()
    n = p.shape(u)[-1]
    c = p.pick("c", "c[::-1]") if n <= 6 else None
    if c is None:
        raise NoFit
    p.new(
        p.pick(
            f"{u} * {c}[:{n}]",
            f"{u} + {c}[:{n}] * {p.fit(p.shape(u))}",
            f"{u} / (1.5 + {c}[:{n}])",
            f"np.sin({c}[:{n}] * {u})",
        )
    )


@kind(2)
def plain_changed(p):
    p.line(
        p.pick(
            "c *= 1.3",
            f"c[{p.place(6)}] = 0.2",
            "c[1:] = c[:-1].copy()",
            "c -= 0.05",
            "c[...] = c[::-1].copy()",
        )
    )


@kind(1)
def plain_written(p):
    u = p.writable(p.vector())
    n = min(6, p.shape(u)[0])
    p.line(p.pick(f"{u}[:{n}] = c[:{n}]", f"{u}[:{n}] = c[:{n}] * {p.term((n,))}", f"{u}[:{n}] += c[:{n}]"))


# transforms inside


def inner_function(p, z: str, *lines: str) -> str:
    h = p.name("h")
    p.line(f"def {h}({z}):\n" + "\n".join("    " + line for line in lines))
    return h


def held(p) -> str:
    return p.copy(p.element(p.any()))


@kind(1, exact=False, bare=False)
def inner_gradient(p):
    u, w = p.writable(p.vector(2)), p.vector()
    n = p.shape(u)[0]
    h = inner_function(
        p,
        "z",
        f"{u}[{p.place(n)}] = z * {p.element(w)}",
        f"s = {u}[0] * z",
        f"{u}[0] = s * 0.5",
        f"return s * s + ({u} * z).sum()",
    )
    p.new(f"tg.grad({h})({held(p)}) * {p.any()}")


@kind(1, exact=False, bare=False)
def inner_gradient_with_views(p):
    u, w = p.writable(p.vector(2)), p.writable(p.vector(2))
    n, k = p.shape(u)[0], p.rng.randint(1, 2)
    h = inner_function(
        p,
        "z",
        f"p = {u}[:{k}]",
        p.pick(f"s = (p * z * {w}[:{k}]).sum()", f's = np.einsum("i,i,->", p, {w}[:{k}], z)'),
        f"{w}[{p.place(2)}] = s * z",
        f"{u}[{p.place(n)}] = 0.5 * z",
        "p *= z",
        f"return s * s + ({u} * z).sum()",
    )
    p.new(f"tg.grad({h})({held(p)}) * {u}")


@kind(1, exact=False, bare=False)
def inner_gradient_two_levels(p):
    u, w = p.writable(p.vector(2)), p.any()
    i = p.place(p.shape(u)[0])
    h = p.name("h")
    p.line(
        f"""
def {h}(z):
    def inner(y):
        {u}[{i}] = y * z * {p.element(w)}
        return {u}[{i}] * y + {u}[0] * z
    s = tg.grad(inner)(z * 1.0)
    return s * z + {u}[{i}]
"""
    )
    p.new(f"tg.grad({h})({held(p)}) * {p.any()}")


@kind(1, exact=False, bare=False)
def inner_gradient_of_a_vector(p):
    buf, u = p.use("buf"), p.vector(2)
    h = inner_function(
        p,
        "z",
        f"{buf}[1:3] = z[:1] * {p.element(p.any())}",
        f"z[0] = {buf}[{p.place(5)}]",
        f"return ({buf} * {buf}).sum() * z[0] + (z * z * z).sum()",
    )
    p.new(f"tg.grad({h})({u})")


@kind(1, exact=False, bare=False)
def inner_jvp(p):
    u = p.writable(p.vector(2))
    n = p.shape(u)[0]
    h = inner_function(p, "z", f"{u}[{p.place(n)}] = z * {p.element(p.any())}", f"{u}[1:] *= z", f"return {u} * z")
    y, t = p.name("y"), p.name("a")
    p.line(f"{y}, {t} = tg.jvp({h}, ({held(p)},), ({held(p)},))")
    p.pool.append(t)
    if p.chance(0.5):
        p.line(f"{t}[{p.place(n)}] = {y}[0] * {p.element(u)}")


@kind(1, exact=False, bare=False)
def inner_pullback(p):
    u, w = p.writable(p.vector(2)), p.vector(2)
    n = p.shape(w)[0]
    h = inner_function(
        p,
        "z",
        f"{u}[{p.place(p.shape(u)[0])}] = z[0] * z[1]",
        "z[1:] += z[:-1]",
        f"return np.sin(z) * {u}[0]",
    )
    y, back = p.name("a"), p.name("back")
    p.line(f"{y}, {back} = tg.vjp({h}, {w})")
    p.pool.append(y)
    p.line(f"{y}[0] = {p.element(u)} * 0.5")
    p.new(f"{back}({p.term((n,))} + np.zeros({n}))")
    if p.chance(0.5):
        p.line(f"{u}[0] *= 0.5")
        p.new(f"{back}({y})")


@kind(1, exact=False, bare=False)
def inner_hvp(p):
    u = p.writable(p.vector(2))
    h = inner_function(p, "z", f"{u}[:2] = z[:2] * {p.element(p.any())}", "z *= z", f"return ({u}[:2] * z[:2]).sum() + z[0]")
    p.new(f"tg.hvp({h}, {p.vector(2)}[:2] * 1.0, {p.vector(2)}[:2] * 0.5)")


# --- programs ---


@dataclass(frozen=True)
class Program:
    """`bare`: to be differentiated without a shadow.  `views`: elements are read as 0-d views, as CuPy does.
    `reset`: f begins with the captured arrays as they were made.  `silent`: arrays left out of the result."""

    statements: tuple
    seed: int
    bare: bool = False
    views: bool = False
    reset: bool = True
    silent: frozenset = field(default=frozenset())


@dataclass
class Source:
    text: str
    exact: bool
    names: list  # of the arrays that make up the result


def draw(seed: int, bare: bool = False, cupy: bool = False, only: tuple = ()) -> Program:
    """A program.  Half of them draw from a part of the kinds, so that these meet each other often."""
    rng = random.Random(seed)
    names = [n for n, k in KINDS.items() if (k.bare or not bare) and (k.cupy or not cupy) and (not only or n in only)]
    if rng.random() < 0.5 and len(names) > 15:
        names = rng.sample(names, 15)
    weights = [KINDS[n].weight for n in names]
    chosen = rng.choices(names, weights, k=rng.randint(3, 16))
    statements = tuple([(n, rng.randrange(1 << 30)) for n in chosen])
    return Program(statements, seed, bare, views=cupy or rng.random() < 0.25, reset=rng.random() < 0.7)


def source(program: Program) -> Source:
    p = Writer(program.bare, program.views)
    p.space["x"] = np.linspace(-0.7, 0.8, 5)
    p.pool = ["x"]
    p.line("c = np.linspace(0.1, 0.9, 6)")
    p.new("np.sin(x) + x")
    exact = True
    for name, seed in program.statements:
        p.rng = random.Random(seed)
        try:
            with np.errstate(all="ignore"):
                KINDS[name].write(p)
        except NoFit:
            continue
        exact &= KINDS[name].exact
    p.use("weigh")
    names = [n for n in p.pool if n not in program.silent] or ["x"]
    result = " + ".join([f"weigh({n}, {0.3 + 0.1 * k:.1f})" for k, n in enumerate(names)])
    resets = [CAPTURED[n][1] for n in p.captured if CAPTURED[n][1]]
    made = [CAPTURED[n][0] for n in p.captured if n not in GLOBALS]
    defaults = "".join([f", {n}={n}" for n in DEFAULTS if n in p.captured])
    shown = ", ".join([CAPTURED[n][3] for n in sorted(p.captured, key="log".__eq__)])
    parts = [
        *[CAPTURED[n][0] for n in p.captured if n in GLOBALS],
        *[textwrap.dedent(HELPERS[n]).strip() + "\n" for n in p.helpers],
        "def setting():",
        *[textwrap.indent(m, "    ") for m in made],
        "    def reset():",
        *[f"        {line}" for line in resets or ["pass"]],
        f"    def f(x{defaults}):",
        *[f"        {line}" for line in resets if program.reset],
        *[textwrap.indent(line, "        ") for line in p.lines],
        f"        return {result}",
        f"    return f, lambda: [{shown}], reset",
    ]
    return Source("\n".join(parts) + "\n", exact, names)
