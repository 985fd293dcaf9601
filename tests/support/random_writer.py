"""What writes one random program: the arrays that it may capture, and the `Writer`.

Kinds of statement are small functions in `random_values`, `random_writes` and `random_captures`."""

import random
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

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
        "last = 0.25\n\ndef remember(v, keep=0.5):\n    nonlocal last\n    last = last * keep + v\n    "
        "return last\n",
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
                text.replace(found[2], f"{found[2]} * 1.0", 1)
                if found[1] != found[2] and text.count(found[2]) == 1
                else f"pass  # {text}"
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
        found = [
            a for a in self.pool if len(self.shape(a)) == 2 and (not square or len({*self.shape(a)}) == 1)
        ]
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


# --- kinds of statement ---


@dataclass(frozen=True)
class Kind:
    write: Callable
    weight: int
    exact: bool  # complex steps can follow it
    cupy: bool  # defined on CuPy
    bare: bool  # works without a shadow: writes no array that NumPy made


def kind(weight: int = 2, exact: bool = True, cupy: bool = True, bare: bool = True):
    def put(write):
        write.kind = Kind(write, weight, exact, cupy, bare)
        return write

    return put
