"""Random methods that keep something of a call in the attributes of their object, and in its lists and dicts."""

import numpy as np

NUMBERS = ("self.s", "self.t", "self.box.s", "self.d['s']", "self.d['t']")
ARRAYS = (
    "self.a",
    "self.b",
    "self.box.a",
    "self.slotted.a",
    "self.d['a']",
    "self.new",
    "self.buffer",
    "self.fixed",
)
LISTS = ("self.h", "self.g")


class Box:
    def __init__(self):
        self.a, self.s = np.ones(3), 1.0


class Slotted:
    __slots__ = ("a",)

    def __init__(self):
        self.a = np.full(3, 0.5)


class Keeping:
    """The methods are put here."""

    t = 2.0

    def __init__(self):
        self.a, self.b, self.buffer, self.fixed = np.ones(3), np.zeros(3), np.zeros(3), np.arange(3.0)
        self.s, self.k, self.flag = 1.0, 0, False
        self.box, self.slotted = Box(), Slotted()
        self.d, self.h, self.g = {"a": np.ones(3), "s": 1.0, "t": 0.5}, [1.0], []
        self.order = np.arange(3)


class Writer:
    """The text of one method.  `readable`: what may be read without regard to the state before the call; with
    a small probability anything is read."""

    def __init__(self, rng, careless):
        self.rng, self.careless = rng, careless
        self.lines, self.depth = [], 1
        self.arrays, self.numbers, self.lists = ["x", "y"], ["x[0]", "x.sum()"], []

    def put(self, text):
        self.lines.append("    " * self.depth + text)

    def pick(self, options):
        return options[self.rng.integers(len(options))]

    def array(self):
        if self.rng.random() < self.careless:
            return self.pick(ARRAYS[:5] + ARRAYS[6:])
        return self.pick(self.arrays)

    def number(self):
        return self.pick(NUMBERS) if self.rng.random() < self.careless else self.pick(self.numbers)

    def array_value(self):
        a, b, s = self.array(), self.array(), self.number()
        return self.pick((
            f"np.sin({a})", f"{a} * 0.5 + {b}", f"np.tanh({s}) * {a}", f"{a}", f"{a}[::-1]", f"np.zeros(3) + {b}",
            f"np.outer({a}, {b})[1]", f"np.array([{s}, 1.0, 2.0])", f"{a} * 1.0",
        ))  # fmt: skip

    def number_value(self):
        a, b, s = self.array(), self.array(), self.number()
        return self.pick(
            (f"np.cos({a}).sum()", f"{a} @ {b} * 0.1", f"{s} * 0.5", f"{a}[1]", "3.0", f"np.tanh({s})")
        )

    def statement(self):
        kind = self.rng.integers(15)
        write = getattr(self, f"kind_{kind}", self.bind_array)
        write()

    def bind_array(self):
        place = self.pick(("y", *ARRAYS[:6]))
        self.put(f"{place} = {self.array_value()}")
        self.arrays.append(place)

    def kind_0(self):
        place = self.pick(NUMBERS)
        self.put(f"{place} = {self.number_value()}")
        self.numbers.append(place)

    def kind_1(self):
        place = self.pick(LISTS)
        self.put(
            self.pick(
                (f"{place}.clear()", f"{place} = []", f"{place}[:] = [{self.number()}]", f"del {place}[:]")
            )
        )
        self.lists.append(place)

    def kind_2(self):
        if self.lists or self.rng.random() < self.careless:
            place = self.pick(self.lists or LISTS)
            self.put(f"{place}.append({self.pick((self.number_value(), self.array_value()))})")

    def kind_3(self):
        if self.lists or self.rng.random() < self.careless:
            self.put(f"y = y + sum([np.sum(v) for v in {self.pick(self.lists or LISTS)}])")

    def kind_4(self):
        self.put(f"self.buffer[{self.pick((':', '0', '1:'))}] = {self.number_value()}")

    def kind_5(self):
        target = self.array()
        if target not in ("x", "self.fixed"):
            self.put(f"if {target}.flags.writeable:")
            self.put(f"    {target}[{self.rng.integers(3)}] = {self.number_value()}")

    def kind_6(self):
        self.put(f"if {self.number_value()} > 0.3:")
        kept = [*self.arrays], [*self.numbers], [*self.lists]
        self.depth += 1
        for _ in range(self.rng.integers(1, 3)):
            self.statement()
        self.put("pass")
        self.depth -= 1
        self.arrays, self.numbers, self.lists = kept

    def kind_7(self):
        self.put(f"for k in range({self.rng.integers(2, 5)}):")
        kept = [*self.arrays], [*self.numbers], [*self.lists]
        self.depth += 1
        for _ in range(self.rng.integers(1, 3)):
            self.statement()
        self.put("self.k = k")
        self.depth -= 1
        self.arrays, self.numbers, self.lists = kept

    def kind_8(self):
        self.put(self.pick((
            "self.flag = bool(x[0] > 0)", "self.order = np.argsort(x)", "self.size = x.size",
            "self.name = 'a' * x.size", "self.same = self.fixed", "self.part = self.buffer[1:]",
            f"self.pair = ({self.array()}, {self.number()})", f"self.tree = {{'y': {self.array()}, 'k': 1}}",
            "self.x = x", "self.again = self.h", "self.inner = self.box", "self.order = np.arange(4)[1:]",
        )))  # fmt: skip

    def kind_9(self):
        self.put(
            f"self.d.clear(); self.d['s'] = {self.number()}; self.d['a'] = {self.array()}; self.d['t'] = 1.0"
        )

    def kind_10(self):
        if self.rng.random() < self.careless * 4:
            self.put(self.pick((
                "self.k += 1", "self.s += 1.0", "self.once = hasattr(self, 'once')", "self.a = self.a * 0.5 + x",
                "y = y * (1.0 if self.flag else 0.5)", "y = y * len(self.h)", "y = y * len(self.d)",
                "y = y * (1.0 if 'late' in self.d else 2.0); self.d['late'] = 1", "y = y * getattr(self, 'k')",
                "self.h += [1.0]", "y = y + self.d.get('s', 0.0)", "self.d.pop('late', None)",
            )))  # fmt: skip

    def text(self):
        self.put("y = x * 1.0")
        for _ in range(self.rng.integers(2, 9)):
            self.statement()
        self.put(f"return np.sum(y * x) + {self.number_value()}")
        return "def f(self, x):\n" + "\n".join(self.lines)


def random_method(seed):
    """Return (class with the method f, its text)."""
    rng = np.random.default_rng(seed)
    text = Writer(rng, rng.choice((0.0, 0.0, 0.05, 0.2))).text()
    space = {"np": np, "__name__": __name__}
    exec(compile(text, f"<method {seed}>", "exec"), space)
    return type("Keeping", (Keeping,), {"f": space["f"], "__module__": __name__}), text
