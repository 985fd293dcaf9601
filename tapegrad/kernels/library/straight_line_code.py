"""The sweeps of sweeps.py for given sizes as straight-line LLVM code: the steps are run once in Python, on vectors that write down
what is done to them.

`Lane` stands for a vector in a register, `Cells` for the room (each vector a slot, which LLVM turns into registers), `Place` for an
array in memory.  A twin is run as it stands: only the names of other twins and of the operations of vectors.py mean something else."""

import types
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba.core.dispatcher import Dispatcher

from ..emit.block_code import Affine
from ..emit.llvm_builder import Builder
from . import vectors
from .handwritten import CHUNK
from .sweeps import Frame, Steps, Sums, nothing, outcome

LAST = 1 << 62  # a step beyond the end of any loop
HEAD = ("theta", "data", "value", "gradient", "tape")


class Writer(Builder):
    """The text of one function; `wide` writes what is in float64."""

    def __init__(self, width: int, bits: int):
        super().__init__(width, bits)
        self.wide = self
        if bits == 32:
            self.wide = Builder(width, 64)
            self.wide.lines, self.wide.slots, self.wide.fresh, self.wide.labels = self.lines, self.slots, self.fresh, self.labels

    def of(self, kind: str) -> Builder:
        return self.wide if kind == "double" else self

    def type_of(self, kind: str) -> str:
        return {"real": self.T, "double": self.wide.T, "mask": self.B, "number": self.real}[kind]

    def load_at(self, base: str, at: Affine, kind: str) -> "Lane":
        """From element `at` on."""
        place = self(f"getelementptr {self.real}, ptr {base}, i64 {self.count(at)}")
        return Lane(self, kind, self(f"load {self.type_of(kind)}, ptr {place}, align {self.align}"))

    def store_at(self, base: str, at: Affine, value: "Lane") -> None:
        place = self(f"getelementptr {self.real}, ptr {base}, i64 {self.count(at)}")
        self.lines.append(f"  store {self.type_of(value.kind)} {value.name}, ptr {place}, align {self.align}")


class Lane:
    """A vector in a register: real, double or mask; or one number."""

    def __init__(self, w: Writer, kind: str, name: str):
        self.w, self.kind, self.name = w, kind, name

    def operand(self, x: Any) -> str:
        """x as a vector like this."""
        if isinstance(x, Lane):
            if x.kind != self.kind:
                raise TypeError(f"{x.kind} beside {self.kind}")
            return x.name
        return self.w.of(self.kind).c(float(x))

    def arithmetic(self, op: str, a: Any, b: Any) -> "Lane":
        return Lane(self.w, self.kind, getattr(self.w.of(self.kind), op)(self.operand(a), self.operand(b)))

    def compared(self, op: str, other: Any) -> "Lane":
        return Lane(self.w, "mask", self.w.of(self.kind).compare(op, self.name, self.operand(other)))

    def __add__(self, other):
        return self.arithmetic("add", self, other)

    def __radd__(self, other):
        return self.arithmetic("add", other, self)

    def __sub__(self, other):
        return self.arithmetic("sub", self, other)

    def __rsub__(self, other):
        return self.arithmetic("sub", other, self)

    def __mul__(self, other):
        return self.arithmetic("mul", self, other)

    def __rmul__(self, other):
        return self.arithmetic("mul", other, self)

    def __truediv__(self, other):
        return self.arithmetic("div", self, other)

    def __rtruediv__(self, other):
        return self.arithmetic("div", other, self)

    def __neg__(self):
        return Lane(self.w, self.kind, self.w.of(self.kind).neg(self.name))

    def __lt__(self, other):
        return self.compared("lt", other)

    def __gt__(self, other):
        return self.compared("gt", other)

    def __ge__(self, other):
        return self.compared("ge", other)

    def __eq__(self, other):
        return self.compared("eq", other)

    __hash__ = None

    def __and__(self, other):
        return Lane(self.w, "mask", self.w.and_(self.name, other.name))


class Slot:
    """A slot for one vector."""

    def __init__(self, w: Writer, kind: str):
        self.w, self.kind, self.slot = w, kind, w.slot(w.type_of(kind))

    def get(self) -> Lane:
        return Lane(self.w, self.kind, self.w(f"load {self.w.type_of(self.kind)}, ptr {self.slot}, align 64"))

    def set(self, x: Lane) -> None:
        self.w.lines.append(f"  store {self.w.type_of(self.kind)} {x.name}, ptr {self.slot}, align 64")


class Cells:
    """The room: Rows of which each vector is a slot."""

    def __init__(self, w: Writer, slots: dict, first: int = 0, kind: str = "real"):
        self.w, self.slots, self.first, self.kind = w, slots, first, kind

    def cell(self, i: int) -> Slot:
        key = self.first + i, self.kind
        if key not in self.slots:
            self.slots[key] = Slot(self.w, self.kind)
        return self.slots[key]

    def __getitem__(self, i: int) -> Lane:
        return self.cell(i).get()

    def __setitem__(self, i: int, x: Any) -> None:
        self.cell(i).set(x if isinstance(x, Lane) else Lane(self.w, self.kind, self.w.of(self.kind).c(float(x))))

    def __add__(self, n: int) -> "Cells":
        return Cells(self.w, self.slots, self.first + n, self.kind)


class Place:
    """A Table: row i begins `stride` elements after the row before it; or Rows in memory."""

    def __init__(self, w: Writer, base: str, stride: Any, first: Affine | int = 0):
        self.w, self.base, self.stride, self.first = w, base, stride, first

    def at(self, i: Affine | int) -> Affine:
        if isinstance(self.stride, int):
            return Affine() + self.first + i * self.stride
        return Affine() + self.first + Affine(0, {self.w(f"mul i64 {self.w.count(i)}, {self.stride}"): 1})

    def __getitem__(self, i: Affine | int) -> Lane:
        return self.w.load_at(self.base, self.at(i), "real")

    def __setitem__(self, i: Affine | int, x: Lane) -> None:
        self.w.store_at(self.base, self.at(i), x)

    def __add__(self, i: Affine | int) -> "Place":
        return Place(self.w, self.base, self.stride, self.at(i))


# --- the operations of vectors.py ---


def like(*args: Any) -> Lane:
    return next(x for x in args if isinstance(x, Lane))


def function(name: str) -> Callable:
    def f(*args):
        x = like(*args)
        b = x.w.of(x.kind)
        made = b.function(name, x.name) if len(args) == 1 and name != "sqrt" else None
        return Lane(x.w, x.kind, made or getattr(b, name)(*[x.operand(a) for a in args]))

    return f


def where(mask, a, b):
    x = like(a, b)
    return Lane(x.w, x.kind, x.w.of(x.kind).select(mask.name, x.operand(a), x.operand(b)))


def whole(x, yes):
    return Lane(x.w, "mask", x.w.splat("i1", "true" if yes else "false"))


def double(x):
    if x.w.bits == 64:
        return Lane(x.w, "double", x.name)
    return Lane(x.w, "double", x.w(f"fpext {x.w.T} {x.name} to {x.w.wide.T}"))


def doubles(x):
    return Cells(x.w, x.slots, x.first, "double")


def narrow(x, y):
    if x.w.bits == 64:
        return Lane(x.w, "real", x.name)
    return Lane(x.w, "real", x.w(f"fptrunc {x.w.wide.T} {x.name} to {x.w.T}"))


def is_wide(x):
    return x.w.bits == 64


def splat(x, y):
    if isinstance(x, Lane):
        return Lane(y.w, "real", y.w.spread(x.name))
    return Lane(y.w, y.kind, y.operand(x))


def number(address, i, zero):
    return address.w.load_at(address.base, address.at(i), "number")


MEANING = {
    vectors.where: where,
    vectors.whole: whole,
    vectors.double: double,
    vectors.doubles: doubles,
    vectors.is_wide: is_wide,
    vectors.narrow: narrow,
    vectors.splat: splat,
    vectors.number: number,
    vectors.fma: function("fma"),
    vectors.fnma: function("fnma"),
    vectors.sqrt: function("sqrt"),
    vectors.exp: function("exp"),
    vectors.log: function("log"),
    vectors.log1p: function("log1p"),
}


def meaning(x: Any, known: dict) -> Any:
    """What a name means in a twin that is run in Python."""
    if isinstance(x, Dispatcher):
        if x not in known:
            f = x.py_func
            used = {n: f.__globals__[n] for n in f.__code__.co_names if n in f.__globals__}
            cells = [types.CellType(meaning(c.cell_contents, known)) for c in f.__closure__ or ()]
            around = {n: meaning(v, known) for n, v in used.items()} | {"__builtins__": f.__globals__["__builtins__"]}
            known[x] = types.FunctionType(f.__code__, around, f.__name__, f.__defaults__, tuple(cells) or None)
        return known[x]
    try:
        return MEANING.get(x, x)
    except TypeError:  # not hashable
        return x


# --- the sweeps ---


def layout_of(modes: np.ndarray, lines: int) -> np.ndarray:
    """As `placed`, the first rows being expressions."""
    layout, row, line = np.empty((len(modes), 3), object), Affine(), lines
    for a, (mode, n) in enumerate(modes.tolist()):
        layout[a] = mode, n, line if mode == 2 else row
        line += n if mode == 2 else 0
        row = row + (0 if mode == 2 else Affine(0, {"%N": n}) if mode == 1 else n)
    return layout


def straight(steps: Steps, frame: Frame, width: int, bits: int, each: bool, gradient: bool) -> str:
    """The text of kernel(theta, data, value, gradient, tape, B, N, blocks)."""
    w, known = Writer(width, bits), {}
    run = {name: meaning(f, known) for name, f in vars(steps).items()}
    decide, sizes = meaning(outcome, known), frame.sizes
    layout, N = layout_of(frame.modes, frame.lines), Affine(0, {"%N": 1})
    with w.range(0, Affine(0, {"%blocks": 1})) as k:
        s = k * width
        theta, data, slope = [Place(w, f"%{name}", "%B", s) for name in ("theta", "data", "gradient")]
        outside = theta, data, Place(w, "%data", 1), N, 0, each, slope
        tape, room = Place(w, "%tape", width), Cells(w, {})
        valid, total, seen = Slot(w, "mask"), Slot(w, "double"), Slot(w, "double")
        valid.set(run["begin"](room, outside, layout, sizes))
        zero = Lane(w, "double", w.wide.c(0.0))
        total.set(zero)
        seen.set(zero)
        with w.range(0, N) as t:
            if gradient:
                run["save"](room, tape + t * frame.stored, sizes)
            term, count, good = run["observe"](room, outside, t, layout, sizes)
            valid.set(valid.get() & good)
            total.set(total.get() + double(term))
            seen.set(seen.get() + double(count))
            run["move"](room, outside, t, layout, sizes)  # of no use after the last datum, and of no harm
        made, good = decide(total.get(), seen.get(), valid.get(), Lane(w, "real", w.c(0.0)))
        Place(w, "%value", 1, s)[0] = made
        valid.set(good)
        if gradient:
            with w.range(0, N) as back:
                t = N - 1 - back
                run["restore"](room, tape + t * frame.stored, sizes)
                run["recall"](room, outside, t, layout, sizes)
                with w.range(t, N - 1, LAST):  # not for the last datum
                    run["move_adjoint"](room, outside, t, layout, sizes)
                run["observe_adjoint"](room, outside, t, layout, sizes)
                run["store"](room, outside, t, layout, valid.get(), sizes)
                if steps.flush is not nothing:
                    place = Affine(0, {w(f"urem i64 {w.count(t)}, {CHUNK}"): 1})
                    with w.range(place, 1, LAST):
                        run["flush"](room, outside, t, layout, sizes)
            run["finish"](room, outside, layout, valid.get(), sizes)
    return whole_text(w)


def straight_sums(sums: Sums, frame: Frame, width: int, bits: int, each: bool) -> str:
    """The text of the same function for a sum."""
    w, known = Writer(width, bits), {}
    run = {name: meaning(f, known) for name, f in vars(sums).items()}
    sizes, special = frame.sizes, frame.stored
    layout, N = layout_of(frame.modes, frame.lines), Affine(0, {"%N": 1})
    with w.range(0, Affine(0, {"%blocks": 1})) as k:
        s = k * width
        theta, data, slope = [Place(w, f"%{name}", "%B", s) for name in ("theta", "data", "gradient")]
        outside = theta, data, Place(w, "%data", 1), N, 0, each, slope, Place(w, "%value", 1, s)
        room = Cells(w, {})
        run["begin"](room, outside, layout, sizes)
        for n in range(special):
            with w.range(n, N, LAST):  # if there is such a datum
                run["first"](room, outside, n, layout, sizes)
        with w.range(special, N, CHUNK) as start:
            end = w.count(start + CHUNK)
            end = w(f"select i1 {w(f'icmp slt i64 {end}, %N')}, i64 {end}, i64 %N")
            with w.range(start, Affine(0, {end: 1})) as t:
                run["observe"](room, outside, t, layout, sizes)
            run["flush"](room, outside, start, layout, sizes)
        run["finish"](room, outside, layout, sizes)
    return whole_text(w)


def whole_text(w: Writer) -> str:
    declared = {
        f"declare {b.T} @llvm.{x}.{b.suffix}({', '.join([b.T] * (3 if x == 'fma' else 1))})"
        for b in (w, w.wide)
        for x in ("fma", "floor", "sqrt", "fabs")
    }
    head = ", ".join([f"ptr noalias %{name}" for name in HEAD] + [f"i64 %{name}" for name in ("B", "N", "blocks")])
    body = "\n".join(["entry:", *w.slots, *w.lines, "  ret void"])
    return (
        f'target triple = "{llvm.get_default_triple()}"\n'
        + "\n".join(sorted(declared))
        + f'\ndefine void @kernel({head}) "prefer-vector-width"="512" {{\n{body}\n}}\n'
    )
