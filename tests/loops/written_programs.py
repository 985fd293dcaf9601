"""Random loop programs: nested loops and branches, carried values, local arrays, overlapping writes, integer
arithmetic of indices."""

import numpy as np

from tapegrad.loops.program import LoopArray, LoopProgram, Scalar, literal, pruned, verified, written
from tapegrad.loops.scalars import expansion, write
from tapegrad.loops.writer import ONE, ZERO, ProgramWriter

REALS = ("s", "t", "u")
COUNTERS = ("p", "q")


class RandomProgram:
    """A program of the arrays a (5), b (5), c (4 x 3), the integers k (6), a number s and an integer n."""

    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        w = self.w = ProgramWriter()
        shapes = {"a": 1, "b": 1, "c": 2}
        arrays = [LoopArray("f8", [Scalar("i8") for _ in range(n)], name) for name, n in shapes.items()]
        self.k = LoopArray("i8", [Scalar("i8")], "k")
        self.n = Scalar("i8", "n")
        s = Scalar("f8", "s")
        for name, value in (("s", s), ("t", literal(0.3, "f8")), ("u", literal(-0.2, "f8"))):
            w.set(name, value)
        for name in COUNTERS:
            w.set(name, ZERO)
        self.visible = list(arrays)
        self.block(0, [self.n], self.r.integers(3, 8))
        w.block.yields = [w.get(name) for name in REALS]
        p = LoopProgram("random", [*arrays, self.k, s, self.n], w.resolve(w.block), [])
        made = written(p)
        p.outs = [a for a in arrays if a in made]
        self.program = verified(pruned(verified(p)))

    def arguments(self):
        r = np.random.default_rng(int(self.r.integers(2**40)))
        real = r.standard_normal
        return [real(5), real(5), real((4, 3)), r.integers(0, 5, 6), float(real()), int(r.integers(1, 5))]

    def pick(self, *x):
        return x[self.r.integers(len(x))]

    # --- integers ---

    def integer(self, ints, depth=0):
        w = self.w
        if depth > 1 or self.r.random() < 0.4:
            return self.pick(*ints, literal(self.r.integers(0, 5), "i8"), w.get(self.pick(*COUNTERS)))
        if self.r.random() < 0.2:
            at = w.compute("mod", self.integer(ints, depth + 1), self.k.shape[0])
            return w.load(self.k, (at,))
        op = self.pick("add", "sub", "mul", "min", "max", "floordiv")
        other = literal(self.r.integers(1, 4), "i8") if op == "floordiv" else self.integer(ints, depth + 1)
        return w.compute(op, self.integer(ints, depth + 1), other)

    def place(self, ints):
        a = self.pick(*self.visible)
        return a, tuple(self.w.compute("mod", self.integer(ints), n) for n in a.shape)

    # --- numbers ---

    def value(self, ints, depth=0):
        w = self.w
        if depth > 2 or self.r.random() < 0.3:
            which = self.r.random()
            if which < 0.5:
                return w.load(*self.place(ints))
            if which < 0.8:
                return w.get(self.pick(*REALS))
            return w.cast(self.integer(ints), "f8") if which < 0.9 else literal(self.r.random(), "f8")
        x = self.value(ints, depth + 1)
        form = self.pick("add", "sub", "mul", "div", "sin", "exp", "tanh", "select")
        if form == "exp":
            x = w.compute("neg", w.compute("mul", x, x))
        if form in ("sin", "tanh", "exp"):
            return write(w, expansion(getattr(np, form), 1), (x,), "f8")
        y = self.value(ints, depth + 1)
        if form == "select":
            return w.compute("select", self.test(ints), x, y, type="f8")
        if form == "div":
            y = w.compute("add", literal(1.5, "f8"), w.compute("mul", y, y))
        made = w.compute(form, x, y)
        return w.compute("mul", literal(0.4, "f8"), made) if form == "mul" else made

    def test(self, ints):
        if self.r.random() < 0.5:
            return self.w.compute(self.pick("lt", "ne", "eq", "ge"), self.integer(ints), self.integer(ints))
        return self.w.compute(self.pick("lt", "gt"), self.value(ints, 2), self.value(ints, 2))

    # --- statements ---

    def block(self, nest, ints, count):
        w, inside = self.w, len(self.visible)
        for _ in range(count):
            kind = self.r.choice(8, p=[0.2, 0.2, 0.12, 0.08, 0.16, 0.08, 0.12, 0.04])
            if kind == 0:
                w.set(self.pick(*REALS), self.value(ints))
            elif kind == 1:
                value = self.value(ints)
                w.store(*self.place(ints), value)
            elif kind == 2:
                value = self.value(ints)
                w.accumulate(*self.place(ints), value)
            elif kind == 3:
                at = self.pick(*COUNTERS)
                w.set(at, w.compute("mod", w.compute("add", w.get(at), self.integer(ints)), literal(7, "i8")))
            elif kind == 4 and nest < 3:
                self.counted(nest, ints)
            elif kind == 5 and nest < 3:
                self.repeated(nest, ints)
            elif kind == 6 and nest < 4:
                w.branch(*self.branch(nest, ints))
            elif kind == 7:
                self.visible.append(w.allocate("f8", (literal(self.r.integers(1, 4), "i8"),), "v"))
        del self.visible[inside:]

    def branch(self, nest, ints):
        sides = [self.r.integers(0, 3) for _ in range(2)]
        return self.test(ints), *[lambda n=n: self.block(nest + 1, ints, n) for n in sides]

    def counted(self, nest, ints):
        number = lambda n: literal(n, "i8")
        few = self.w.compute("mod", self.integer(ints), number(4))
        bounds = self.pick(
            (ZERO, number(3), ONE),
            (ZERO, self.n, ONE),
            (number(4), ZERO, number(-1)),
            (number(5), number(-2), number(-3)),
            (ZERO, number(5), number(2)),
            (number(3), number(3), ONE),
            (few, number(3), ONE),
            (ZERO, few, ONE),
        )
        n = self.r.integers(1, 5)
        self.w.loop(lambda i: self.block(nest + 1, [*ints, i], n), (*REALS, *COUNTERS, "trips"), bounds)

    def repeated(self, nest, ints):
        w, n, most = self.w, self.r.integers(1, 4), literal(self.r.integers(1, 4), "i8")
        w.set("trips", ZERO)

        def turn():
            k = w.compute("add", w.get("trips"), ONE)
            w.set("trips", k)
            self.block(nest + 1, [*ints, k], n)
            w.set("trips", k)
            return w.compute("and", w.compute("lt", k, most), self.test(ints), type="b1")

        w.loop(turn, (*REALS, *COUNTERS, "trips"))
