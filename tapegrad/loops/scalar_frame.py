"""What the front ends share: control flow, and arithmetic on scalars by NumPy's functions."""

from typing import Any

import numpy as np
import scipy.special

from .control_flow import ControlFlow
from .program import COMPARISONS, FLOATS, Scalar, literal
from .scalars import expansion, write
from .views import Ranges
from .writer import ONE, ProgramWriter

# functions of the C library that NumPy lacks
MATHS = {
    "erf": scipy.special.erf, "erfc": scipy.special.erfc, "gamma": scipy.special.gamma,
    "lgamma": scipy.special.gammaln,
}  # fmt: skip
MOST_POWER = 64


class ScalarFrame(ControlFlow):
    """A call of a function; it writes operations on scalars."""

    w: ProgramWriter
    ranges: Ranges

    def refuse(self, what: str) -> Exception:
        raise NotImplementedError

    def apply(self, f: Any, x: tuple, kind: str) -> Scalar:
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

    def classified(self, f: Any, x: Scalar) -> Scalar:
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

    def integers(self, f: Any, x: tuple) -> Scalar:
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
