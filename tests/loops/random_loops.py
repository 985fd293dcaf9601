"""Random functions with loops, as Python source: nests, conditions, integer arithmetic of indices, names that
are swapped, local arrays, break, continue, while, helpers, early returns."""

import types

import numpy as np

HEAD = """
def helper(x, v, i):
    t = 0.0
    for q in range(2):
        t += x * v[(i + q) % 5]
        if t > 0.8:
            t = t * 0.5 + x
    v[i % 5] = v[i % 5] * 0.5 + t
    return t - x
"""


class Random:
    """One function f(a, b, c, k, s, n): arrays of 5, of 5, of 4 x 3, integers, a number, an integer.

    Its statements stand in a loop of that many steps, if there are any."""

    def __init__(self, seed, steps=0):
        self.r = np.random.default_rng(seed)
        self.names = 0
        self.lines = []
        self.local = []
        self.write(1, "s, t = s, 0.3")
        if steps:
            self.write(1, f"for step in range({steps}):")
        self.block(1 + bool(steps), 0, ["step"] if steps else [], self.r.integers(3, 7), bool(steps))
        for line in ("for z in range(5):", "    s += np.cos(a[z]) * (z + 1.0) - 0.3 * b[z]",
        "for z in range(4):",
                     "    s += c[z, z % 3] * c[z, 2]", "return s + t"):  # fmt: skip
            self.write(1, line)
        self.source = HEAD + "\ndef f(a, b, c, k, s, n):\n" + "\n".join(self.lines) + "\n"

    def write(self, depth, line):
        self.lines.append("    " * depth + line)

    def pick(self, *x):
        return x[self.r.integers(len(x))]

    def new(self, letter):
        self.names += 1
        return f"{letter}{self.names}"

    def index(self, ints, n):
        i = self.pick(*ints) if ints else str(self.r.integers(0, n))
        j = self.pick(*ints, "n") if ints else "n"
        form = self.pick(
            "{i}",
            "{i} + {c}",
            "{c} - {i}",
            "{i} * 2 + {j}",
            "{i} // 2",
            "k[{i} % 6]",
            "{i} * {j} - 1",
            "-{i}",
            "min({i}, {j})",
            "abs({i} - {j})",
        )
        return f"({form.format(i=i, j=j, c=self.r.integers(0, 4))}) % {n}"

    def element(self, ints, local):
        which = self.pick("a", "b", "c", "a", *local)
        if which == "c":
            return f"c[{self.index(ints, 4)}, {self.index(ints, 3)}]"
        return f"{which}[{self.index(ints, 3 if which in local else 5)}]"

    def value(self, ints, local, depth=0):
        if depth > 2 or self.r.random() < 0.3:
            return self.pick(
                "s",
                "t",
                self.element(ints, local),
                self.element(ints, local),
                "0.7",
                f"{self.pick(*ints, '2')} * 0.2",
            )
        x = lambda: self.value(ints, local, depth + 1)
        form = self.pick(
            "({} + {})",
            "({} - {})",
            "({} * {}) * 0.4",
            "np.sin({})",
            "np.exp(-{} ** 2)",
            "({} / (1.5 + {} ** 2))",
            "np.cos({}) * {}",
        )
        return form.format(*[x() for _ in range(form.count("{}"))])

    def condition(self, ints, local):
        if ints and self.r.random() < 0.4:
            return f"{self.pick(*ints)} {self.pick('<', '>', '==', '!=')} {self.index(ints, 3)}"
        return f"{self.value(ints, local, 2)} {self.pick('<', '>')} {self.value(ints, local, 1)}"

    def block(self, depth, nest, ints, count, loops=0, local=()):
        local = list(local)
        for _ in range(count):
            kind = self.r.choice(
                12, p=[0.13, 0.2, 0.12, 0.15, 0.12, 0.05, 0.05, 0.04, 0.04, 0.03, 0.05, 0.02]
            )
            if kind == 0:
                self.write(depth, f"{self.pick('s', 't')} = {self.value(ints, local)}")
            elif kind == 1:
                self.write(depth, f"{self.element(ints, local)} = {self.value(ints, local)}")
            elif kind == 2:
                self.write(
                    depth,
                    f"{self.element(ints, local)} {self.pick('+=', '-=', '*=')} {self.value(ints, local)}",
                )
            elif kind == 3 and nest < 3:
                i = self.new("i")
                bounds = self.pick(
                    "3",
                    "n",
                    "1, 4",
                    "4, 0, -1",
                    "0, 5, 2",
                    "3, 3",
                    "5, -2, -3",
                    "k[1], 4",
                    f"{self.pick(*ints, '0')}, 3",
                )
                self.write(depth, f"for {i} in range({bounds}):")
                self.block(depth + 1, nest + 1, [*ints, i], self.r.integers(1, 4), loops + 1, local)
            elif kind == 4 and nest < 4:
                self.write(depth, f"if {self.condition(ints, local)}:")
                self.block(depth + 1, nest + 1, ints, self.r.integers(1, 3), loops, local)
                if self.r.random() < 0.5:
                    self.write(depth, "else:")
                    self.block(depth + 1, nest + 1, ints, self.r.integers(1, 3), loops, local)
            elif kind == 5 and nest < 2:
                w = self.new("w")
                self.write(depth, f"{w} = 0")
                self.write(depth, f"while {w} < {self.r.integers(1, 4)} and {self.condition(ints, local)}:")
                self.write(depth + 1, f"{w} += 1")
                self.block(depth + 1, nest + 1, [*ints, w], self.r.integers(1, 3), loops + 1, local)
            elif kind == 6:
                self.write(depth, "a, b = b, a")
            elif kind == 7:
                self.write(
                    depth,
                    f"s += helper({self.value(ints, local, 1)}, {self.pick('a', 'b')}, {self.index(ints, 5)})",
                )
            elif kind == 8:
                v = self.new("v")
                self.write(depth, f"{v} = np.zeros({self.pick('3', 'n + 1')})")
                local.append(v)
            elif kind == 9 and loops:
                self.write(depth, f"if {self.condition(ints, local)}:")
                self.write(depth + 1, self.pick("break", "continue"))
            elif kind == 10:
                self.write(depth, f"s += {self.value(ints, local)}")
            elif kind == 11:
                self.write(depth, f"if {self.condition(ints, local)}:")
                self.write(depth + 1, f"return s * {self.value(ints, local, 1)}")
            else:
                self.write(depth, f"t = t * 0.5 + {self.value(ints, local)}")

    def function(self, wrap=lambda f: f, np=np):
        """The function, its helper included, wrapped."""
        space = {"np": np}
        exec(compile(self.source, "<random loops>", "exec"), space)
        space["helper"] = wrap(space["helper"])
        return wrap(space["f"])


ComplexNumPy = types.SimpleNamespace(zeros=lambda n: np.zeros(n, complex), sin=np.sin, cos=np.cos, exp=np.exp)


def point(seed):
    r = np.random.default_rng(seed + 1000)
    return (
        r.standard_normal(5),
        r.standard_normal(5),
        r.standard_normal((4, 3)),
        r.integers(0, 5, 6),
        0.4137,
        int(r.integers(2, 5)),
    )
