"""What the front ends share: control flow, and arithmetic on scalars by NumPy's functions."""

from typing import Any

import numpy as np
import scipy.special

from .program import COMPARISONS, FLOATS, LoopRefused, Scalar, literal
from .scalars import expansion, write
from .views import Ranges
from .writer import ONE, ProgramWriter

# functions of the C library that NumPy lacks
MATHS = {
    "erf": scipy.special.erf, "erfc": scipy.special.erfc, "gamma": scipy.special.gamma,
    "lgamma": scipy.special.gammaln,
}  # fmt: skip
MOST_POWER = 64
MOST_REGIONS = 2000


class ControlFlow:
    """From the graph of a function's blocks to loops and branches. A subclass writes the statements of a
    block.

    An edge to a block in `stops` ends a region. A branch joins where all its paths meet. Otherwise the code
    after it stands in both of its sides. A loop with several ways out notes which of them was taken.

    `w` is a `ProgramWriter`, `flow` a graph of Numba's kind, `prefix` is put before names."""

    w: Any
    prefix: str

    def __init__(self, flow, count: list):
        self.flow, self.count = flow, count
        self.loops = {loop.header: loop for loop in flow.loops().values()}
        self.joins = {}
        after = flow.post_dominators()
        for b, found in after.items():
            others = found - {b}
            self.joins[b] = next((c for c in others if all(d in after[c] for d in others)), None)

    # --- of the subclass ---

    def statements(self, b) -> None: ...

    def moves(self, source, target) -> None: ...

    def ending(self, b) -> tuple:
        """("return",), ("jump", target) or ("branch", test, then, other)."""
        raise NotImplementedError

    def counted(self, header) -> tuple | None:
        """(bounds, enter(index), body, after) of a loop over a range."""
        raise NotImplementedError

    def is_jump(self, b) -> bool:
        """Does this block do nothing but jump?"""
        return False

    def assigned(self, blocks) -> set:
        raise NotImplementedError

    # --- regions ---

    def go(self, source, target, stops: dict) -> None:
        self.moves(source, target)
        self.arrive(target, stops)

    def arrive(self, b, stops: dict) -> None:
        if b not in stops:
            self.region(b, stops)
        elif stops[b] is not None:
            stops[b]()

    def region(self, b, stops: dict, entered: bool = False) -> None:
        self.count[0] += 1
        if self.count[0] > MOST_REGIONS:
            raise LoopRefused("its branches and loops are too intricate")
        if b in self.loops and not entered:
            self.loop(b, stops)
            return
        self.statements(b)
        end = self.ending(b)
        if end[0] == "jump":
            self.go(b, end[1], stops)
        elif end[0] == "branch":
            join = self.joins[b]
            joined = join is not None and join not in stops
            inner = {**stops, join: None} if joined else stops
            self.w.branch(end[1], lambda: self.go(b, end[2], inner), lambda: self.go(b, end[3], inner))
            if joined:
                self.region(join, stops)

    def loop(self, h, stops: dict) -> None:
        loop = self.loops[h]
        ways_out = {(b, t) for b in loop.body for t, _ in self.flow.successors(b) if t not in loop.body}
        changes = self.assigned(loop.body)
        head = h
        for _ in loop.body:
            if self.is_jump(head):
                head = next(t for t, _ in self.flow.successors(head))
        known = self.counted(head) if {b for b, _ in ways_out} == {head} else None
        if known is not None:
            bounds, enter, body, after = known

            def trip(index) -> None:
                enter(index)
                self.go(head, body, {h: None})

            self.w.loop(trip, changes, bounds)
            self.go(head, after, stops)
            return
        exits = sorted({t for _, t in ways_out})
        again, taken = f"{self.prefix}again{h}", f"{self.prefix}taken{h}"

        def leave(k: int) -> None:
            self.w.set(again, literal(False, "b1"))
            self.w.set(taken, literal(k, "i8"))

        inner: dict = {t: lambda k=k: leave(k) for k, t in enumerate(exits)}
        inner[h] = lambda: self.w.set(again, literal(True, "b1"))

        def turn():
            self.region(h, inner, entered=True)
            return self.w.get(again)

        self.w.loop(turn, {*changes, again, taken})
        self.dispatch(h, exits, taken, stops)

    def dispatch(self, h, exits: list, taken: str, stops: dict) -> None:
        """Go on at the exit that was taken."""
        if len(exits) == 1:
            self.arrive(exits[0], stops)
            return
        join = self.joins[h]
        while join is not None and join in self.loops[h].body:
            join = self.joins[join]
        joined = join is not None and join not in stops
        inner = {**stops, join: None} if joined else stops

        def choose(k: int) -> None:
            if k == len(exits) - 1:
                self.arrive(exits[k], inner)
                return
            test = self.w.compute("eq", self.w.get(taken), literal(k, "i8"))
            self.w.branch(test, lambda: self.arrive(exits[k], inner), lambda: choose(k + 1))

        choose(0)
        if joined:
            self.region(join, stops)


class ScalarFrame(ControlFlow):
    """A call of a function; it writes operations on scalars."""

    w: ProgramWriter
    ranges: Ranges

    def refuse(self, what: str) -> Exception:
        raise NotImplementedError

    def apply(self, f, x: tuple, kind: str) -> Scalar:
        """A function of NumPy's, or an operation of the program's, on numbers."""
        w = self.w
        if isinstance(f, str):
            if f in COMPARISONS:
                common = (
                    "f8"
                    if "f8" in [v.type for v in x] or {v.type for v in x} == {"f4", "i8"}
                    else max((v.type for v in x), key="b1 i8 f4 f8".find)
                )
                x = tuple([w.cast(v, "i8" if common == "b1" else common) for v in x])
            return self.learned(f, x)
        if f in (np.isnan, np.isinf, np.isfinite):
            return self.classified(f, x[0])
        if kind in ("i8", "b1"):
            return self.integers(f, tuple([w.cast(v, "i8") for v in x]))
        if (
            f is np.power
            and x[1].number is not None
            and x[1].number == int(x[1].number)
            and abs(x[1].number) <= MOST_POWER
        ):
            return self.power(w.cast(x[0], kind), int(x[1].number))
        x = tuple([w.cast(v, kind) for v in x])
        direct = {np.add: "add", np.subtract: "sub", np.multiply: "mul", np.true_divide: "div"}.get(f)
        if direct is not None:
            return w.compute(direct, *x)
        recipe = expansion(f, len(x))
        if recipe is None:
            raise self.refuse(f"{getattr(f, '__name__', f)} has no derivative in loop programs")
        return write(w, recipe, x, kind)

    def classified(self, f, x: Scalar) -> Scalar:
        """Whether a number is nan, infinite or finite."""
        w = self.w
        if x.type not in FLOATS:
            return literal(f is np.isfinite, "b1")
        if f is np.isnan:
            return w.compute("isnan", x, type="b1")
        size = self.apply(np.absolute, (x,), x.type)
        return w.compute("eq" if f is np.isinf else "lt", size, literal(np.inf, x.type))

    def power(self, x: Scalar, n: int) -> Scalar:
        w = self.w
        if n <= 0:
            one = literal(1.0, x.type)
            return one if n == 0 else w.compute("div", one, self.power(x, -n))
        if n == 1:
            return x
        half = self.power(x, n // 2)
        square = w.compute("mul", half, half)
        return w.compute("mul", square, x) if n % 2 else square

    def learned(self, op: str, x: tuple) -> Scalar:
        out = self.w.compute(op, *x)
        self.ranges.learn(out, op, x)
        return out

    def integers(self, f, x: tuple) -> Scalar:
        name = {
            np.add: "add", np.subtract: "sub", np.multiply: "mul", np.floor_divide: "floordiv",
            np.remainder: "mod", np.absolute: "abs", np.negative: "neg", np.minimum: "min", np.maximum: "max",
        }.get(f)  # fmt: skip
        if f is np.power and x[1].number is not None and 0 <= x[1].number <= MOST_POWER:
            made = ONE
            for _ in range(x[1].number):
                made = self.learned("mul", (made, x[0]))
            return made
        if name is None:
            raise self.refuse(f"{getattr(f, '__name__', f)} of integers")
        return self.learned(name, x)
