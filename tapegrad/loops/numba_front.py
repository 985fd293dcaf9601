"""From Numba's typed statements to a loop program."""

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .numba_ir import TypedFunction, is_array_type, is_tuple_type, kind_of, narrow_integer
from .program import (
    COMPARISONS,
    FLOATS,
    LoopArray,
    LoopRefused,
    Scalar,
    literal,
    type_of_elements,
    type_of_number,
)
from .scalar_frame import ScalarFrame
from .views import ArrayView, Known, Range, Ranges, TupleMembers
from .writer import ONE, ZERO, ProgramWriter

BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
    "floordiv": np.floor_divide, "mod": np.remainder,
    "pow": np.power, "and_": "and", "or_": "or", "xor": "xor", "lshift": "shl", "rshift": "shr",
    **{k: k for k in COMPARISONS},
}  # fmt: skip
OPERATORS = {getattr(operator, prefix + k.rstrip("_")if prefix else k): v for k,
v in BINARY.items() for prefix in ("", "i")
             if hasattr(operator, prefix + k.rstrip("_") if prefix else k)}  # fmt: skip
WHICH = " which"


@dataclass(frozen=True)
class Items:
    """A tuple by name: its members have names of their own, which may be assigned in branches and loops."""

    count: int

    def names(self, name: str) -> list[str]:
        return [f"{name} {k}" for k in range(self.count)]


def names_of(name: str, t) -> list[str]:
    """The names that stand for an object of Numba's type t."""
    members = Items(len(t)).names(name) if is_tuple_type(t) else []
    inner = [n for member, of in zip(members, t, strict=False) for n in names_of(member, of)]
    return [name, name + WHICH, *inner]


class FunctionSource:
    """What all frames of one program share.

    `classes` are sets of origins of arrays; a name may stand for any array of a class.  These arrays are then
    layers of one."""

    def __init__(self, classes: tuple, of_thread: bool = False):
        self.w, self.of_thread = ProgramWriter(), of_thread
        self.classes = classes
        self.layers = {}  # class -> (its array, origin -> number)
        self.special: dict[str, Scalar] = {}  # of a kernel: threadIdx.x and others
        self.ranges = Ranges(self.w)
        self.numbers = itertools.count()
        self.regions = [0]
        self.constants: list[tuple[LoopArray, np.ndarray]] = []
        self.made = itertools.count()  # numbers the places that make arrays
        self.raises = False  # may a function of the program raise an exception?

    def class_of(self, origin) -> frozenset:
        return next((c for c in self.classes if origin in c), frozenset())

    def layer(self, origin, kind: str, shape: tuple) -> ArrayView:
        """The array of this origin as one of its class."""
        members = self.class_of(origin)
        if members not in self.layers:
            stacked = self.w.allocate(kind, (literal(len(members), "i8"), *shape), "layers")
            self.layers[members] = stacked, {o: k for k, o in enumerate(sorted(members, key=str))}
        stacked, numbers = self.layers[members]
        if stacked.type != kind or len(stacked.shape) != len(shape) + 1:
            raise LoopRefused("a name stands for arrays of different types")
        return ArrayView(
            stacked,
            (literal(numbers[origin], "i8"), *[(ZERO, ONE, n) for n in stacked.shape[1:]]),
            members,
            True,
        )

    def array(self, kind: str, shape: tuple) -> ArrayView:
        """A new array of zeros."""
        origin = f"new{next(self.made)}"
        if not self.class_of(origin):
            array = self.w.allocate(kind, shape, origin)
            return whole(array, frozenset((origin,)))
        view = self.layer(origin, kind, shape)
        if self.w.scope.parent is not None or any(a is not b for a, b in zip(shape, view.shape, strict=True)):
            raise LoopRefused(
                "a name stands for several arrays, of which one is made in a loop or has another shape"
            )
        return view


class FrameWriter(ScalarFrame):
    """One call of a function: its statements, with its names."""

    def __init__(self, source: FunctionSource, typed: TypedFunction, args: tuple, callers: tuple = ()):
        self.source, self.w, self.typed, self.args = source, source.w, typed, args
        self.ranges, self.callers = source.ranges, (*callers, typed.func)
        source.raises |= typed.raises
        self.prefix = f"{typed.name}.{next(source.numbers)}." if callers else ""
        super().__init__(typed.flow, source.regions)

    def run(self):
        self.region(self.flow.entry_point(), {})
        name = self.prefix + "return"
        return None if self.w.scope.find(name) is None else self.named(name)

    def refuse(self, what: str) -> LoopRefused:
        return LoopRefused(f"{self.typed.name}, line {self.w.line} of {self.typed.file}: {what}")

    # --- names and types ---

    def get(self, v):
        return self.named(self.prefix + v.name)

    def named(self, name: str):
        """The object of this name."""
        x = self.w.get(name)
        if isinstance(x, Items):
            return TupleMembers(tuple(map(self.named, x.names(name))))
        if isinstance(x, ArrayView) and x.layered:
            return replace(x, parts=(self.w.get(name + WHICH), *x.parts[1:]))
        return x

    def name(self, name: str, x) -> None:
        if isinstance(x, TupleMembers):
            members, x = x.items, Items(len(x.items))
            for inner, y in zip(x.names(name), members, strict=True):
                self.name(inner, y)
        elif isinstance(x, ArrayView) and x.layered:  # one of several arrays: which, is a number
            self.w.set(name + WHICH, x.parts[0])
            x = replace(x, parts=(None, *x.parts[1:]))
        self.w.set(name, x)

    def type_of(self, v):
        return self.typed.typemap[v.name]

    def put(self, v, x) -> None:
        self.name(self.prefix + v.name, self.converted(x, self.type_of(v)))

    def converted(self, x, t):
        if isinstance(x, TupleMembers) and is_tuple_type(t):
            return TupleMembers(tuple([self.converted(y, of) for y, of in zip(x.items, t, strict=True)]))
        if isinstance(x, Scalar):
            kind = kind_of(t)
            if kind is None:
                raise self.refuse(f"a value of Numba's type {t}")
            return self.w.cast(x, kind)
        return x

    def scalar(self, x) -> Scalar:
        if isinstance(x, ArrayView):
            return self.w.load(x.array, self.ranges.element(x))
        if not isinstance(x, Scalar):
            raise self.refuse("an object that is no number is used as one")
        return x

    # --- of ControlFlow ---

    def assigned(self, blocks) -> set:
        found = {
            n
            for b in blocks
            for s in self.typed.blocks[b].body
            if type(s).__name__ == "Assign"
            for n in names_of(self.prefix + s.target.name, self.type_of(s.target))
        }
        names = (x.name for scope in self.w.scopes() for x in scope.names.values() if isinstance(x, Range))
        return found | set(names)

    def moves(self, source, target) -> None:
        found = []
        for s in self.typed.blocks[target].body:
            if getattr(getattr(s, "value", None), "op", None) == "phi":
                for v, b in zip(s.value.incoming_values, s.value.incoming_blocks, strict=True):
                    if (
                        b == source
                        and hasattr(v, "name")
                        and self.w.scope.find(self.prefix + v.name) is not None
                    ):
                        found.append((s.target, self.get(v)))
        for v, x in found:  # all at once: names may be swapped
            self.put(v, x)

    def ending(self, b) -> tuple:
        s = self.typed.blocks[b].body[-1]
        kind = type(s).__name__
        self.w.line = s.loc.line
        if kind == "Jump":
            return "jump", s.target
        if kind == "Branch":
            return "branch", self.truth(self.get(s.cond)), s.truebr, s.falsebr
        if kind == "Return":
            self.name(self.prefix + "return", self.converted(self.get(s.value), self.typed.return_type))
            return ("return",)
        raise self.refuse("an exception that may be raised" if "Raise" in kind else kind)

    def truth(self, x) -> Scalar:
        if isinstance(x, Known):
            return literal(bool(x.object), "b1")
        return self.w.cast(self.scalar(x), "b1")

    def is_jump(self, b) -> bool:
        """Such a block stands before the header of a loop whose bytecode is long."""
        *rest, last = self.typed.blocks[b].body
        return type(last).__name__ == "Jump" and all(
            getattr(getattr(s, "value", None), "op", None) == "phi" for s in rest
        )

    def counted(self, header) -> tuple | None:
        body = self.typed.blocks[header].body
        step = next((s for s in body if getattr(getattr(s, "value", None), "op", None) == "iternext"), None)
        if step is None:
            return None
        self.put_all(body[: body.index(step)])
        r = self.iterated(self.get(step.value.value))
        first = next(s for s in body if getattr(getattr(s, "value", None), "op", None) == "pair_first")
        low = self.ranges.of(r.bounds[0])
        if r.bounds[2].number is None or r.bounds[2].number < 0:
            low = self.ranges.of(r.bounds[1])
            low = None if low is None or r.bounds[2].number is None else low + 1
        end = body[-1]

        def enter(index: Scalar) -> None:
            if low is not None:
                self.ranges.least[index] = low
            self.put(first.target, index if r.member is None else r.member(index))
            self.put_all(
                [
                    s
                    for s in body[body.index(first) + 1 :]
                    if getattr(getattr(s, "value", None), "op", None) != "pair_second"
                ]
            )

        return r.bounds, enter, end.truebr, end.falsebr

    def statements(self, b) -> None:
        self.put_all(self.typed.blocks[b].body)

    def put_all(self, body) -> None:
        for s in body:
            self.w.line = s.loc.line
            kind = type(s).__name__
            if kind == "Assign":
                self.assign(s.target, s.value)
            elif kind in ("SetItem", "StaticSetItem"):
                index = s.index if kind == "SetItem" else s.index_var
                self.store(
                    self.get(s.target),
                    Known(s.index) if index is None else self.get(index),
                    self.get(s.value),
                    getattr(self.type_of(s.target), "dtype", None),
                )
            elif kind not in ("Jump", "Branch", "Return", "Del", "Raise", "StaticRaise", "StaticTryRaise"):
                raise self.refuse(kind)

    # --- statements ---

    def assign(self, t, v) -> None:
        kind = type(v).__name__
        if kind == "Arg":
            self.put(t, self.args[v.index])
        elif kind in ("Const", "Global", "FreeVar"):
            self.put(t, self.constant(v.value))
        elif kind == "Var":
            self.put(t, self.get(v))
        elif kind == "Expr":
            write_it = getattr(self, "on_" + v.op, None)
            if write_it is None:
                raise self.refuse(f"Numba's operation {v.op}")
            x = write_it(v, t)
            if x is not None:
                self.put(t, x)
        else:
            raise self.refuse(kind)

    def constant(self, x):
        kind = type_of_number(x)
        if kind is not None:
            return literal(x, kind)
        if isinstance(x, tuple):
            return TupleMembers(tuple([self.constant(y) for y in x]))
        if isinstance(x, np.ndarray):
            return self.constant_array(x)
        return Known(x)

    def constant_array(self, x: np.ndarray) -> ArrayView:
        """A global array, which Numba freezes."""
        for a, known in self.source.constants:
            if known is x:
                return whole(a)
        kind = type_of_elements(x.dtype)
        if kind is None:
            raise self.refuse(f"an array of dtype {x.dtype}")
        a = LoopArray(kind, [Scalar("i8") for _ in x.shape], f"constant{len(self.source.constants)}")
        self.source.constants.append((a, x))
        return whole(a)

    def at(self, x) -> tuple:
        return tuple(
            [
                self.scalar(i) if isinstance(i, ArrayView) else i
                for i in (x.items if isinstance(x, TupleMembers) else (x,))
            ]
        )

    def narrowed(self, x: Scalar, t) -> Scalar:
        """An integer modulo the range of Numba's type t."""
        bits = narrow_integer(t)
        if bits is None:
            return x
        if x.number is not None:
            half = 2 ** (bits[0] - 1) if bits[1] else 0
            return literal((x.number + half) % 2 ** bits[0] - half, "i8")
        if not bits[1]:
            return self.w.compute("and", x, literal(2 ** bits[0] - 1, "i8"))
        unused = literal(64 - bits[0], "i8")
        return self.w.compute("shr", self.w.compute("shl", x, unused), unused)

    def store(self, target, at, value, dtype=None) -> None:
        if not isinstance(target, ArrayView):
            raise self.refuse("an assignment to a part of something else than an array")
        view, w = self.ranges.indexed(target, self.at(at)), self.w
        kind = view.array.type
        if isinstance(value, ArrayView) and value.shape and value.array is view.array:  # they may overlap
            value = self.filled(
                value.array.type,
                value.shape,
                lambda index, value=value: w.load(value.array, place_in(w, value, index)),
            )

        def element(index: tuple) -> None:
            x = self.element_of(value, index, view.shape)
            w.store(view.array, place_in(w, view, index), self.narrowed(w.cast(x, kind), dtype))

        w.each(view.shape, element)

    def element_of(self, x, index: tuple, shape: tuple) -> Scalar:
        """The element of an operand of array expressions; an axis of length 1 is repeated."""
        if not isinstance(x, ArrayView):
            return self.scalar(x)
        own = index[len(index) - len(x.shape) :]
        made = []
        for i, n, m in zip(own, x.shape, shape[len(shape) - len(x.shape) :], strict=True):
            if n is not m and n.number != 1:  # another length is no index
                i = self.w.compute("select", self.w.compute("eq", n, m), i, literal(-1, "i8"))
                i = self.w.compute("select", self.w.compute("eq", n, ONE), ZERO, i)
            made.append(ZERO if n.number == 1 else i)
        return self.w.load(x.array, place_in(self.w, x, tuple(made)))

    def filled(self, kind: str, shape: tuple, element: Callable) -> ArrayView:
        """A new array of these elements."""
        w, view = self.w, self.source.array(kind, shape)
        w.each(
            shape,
            lambda index: w.store(view.array, place_in(w, view, index), w.cast(element(index), kind)),
        )
        return view

    def product(self, a: ArrayView, b: ArrayView, target):
        """The product of vectors and matrices."""
        w, n, m, t = self.w, a.shape[-1], b.shape[0], self.type_of(target)
        kind = kind_of(getattr(t, "dtype", t))
        if kind not in FLOATS or max(len(a.shape), len(b.shape)) > 2:
            raise self.refuse(f"a product of Numba's type {t}")

        def entry(i: tuple, j: tuple) -> Scalar:
            def term(k: Scalar, total: Scalar) -> list[Scalar]:
                # (another length is no index)
                at = k if n is m else w.compute("select", w.compute("eq", n, m), k, literal(-1, "i8"))
                x = w.load(a.array, place_in(w, a, (*i, k)))
                y = w.load(b.array, place_in(w, b, (at, *j)))
                return [w.compute("add", total, w.compute("mul", w.cast(x, kind), w.cast(y, kind)))]

            return w.count(n, term, [literal(0, kind)])[0]

        rows, columns = a.shape[:-1], b.shape[1:]
        if not rows and not columns:
            return entry((), ())
        shape, r = (*rows, *columns), len(rows)
        return self.filled(kind, shape, lambda index: entry(index[:r], index[r:]))

    # --- expressions ---

    def elementwise(self, f, operands: tuple, target):
        """f of numbers, or of arrays element by element."""
        t = self.type_of(target)
        if not is_array_type(t):
            kind = kind_of(t)
            if kind is None:
                raise self.refuse(f"a value of Numba's type {t}")
            return self.apply(f, tuple([self.scalar(x) for x in operands]), kind)
        kind = kind_of(t.dtype)
        if kind is None:
            raise self.refuse(f"an array of Numba's type {t}")
        shape = self.common_shape([x for x in operands if isinstance(x, ArrayView)], t.ndim)
        return self.filled(
            kind,
            shape,
            lambda index: self.apply(f, tuple([self.element_of(x, index, shape) for x in operands]), kind),
        )

    def common_shape(self, views: list, ndim: int) -> tuple:
        w, made = self.w, []
        for k in range(-ndim, 0):
            lengths = list(dict.fromkeys(v.shape[k] for v in views if len(v.shape) >= -k))
            n = lengths[0]
            for m in lengths[1:]:
                n = w.compute("select", w.compute("eq", n, ONE), m, n)
            made.append(n)
        return tuple(made)

    def on_binop(self, v, t):
        f, a, b = OPERATORS.get(v.fn), self.get(v.lhs), self.get(v.rhs)
        if v.fn is operator.matmul and isinstance(a, ArrayView) and isinstance(b, ArrayView):
            return self.product(a, b, t)
        if f is None:
            raise self.refuse(f"the operator {v.fn.__name__}")
        if isinstance(a, Known) and isinstance(b, Known):  # texts, for one
            return self.constant(v.fn(a.object, b.object))
        if isinstance(a, TupleMembers) and isinstance(b, TupleMembers) and f is np.add:
            return TupleMembers(a.items + b.items)
        return self.elementwise(f, (a, b), t)

    def on_inplace_binop(self, v, t):
        a = self.get(v.lhs)
        if not (isinstance(a, ArrayView) and a.shape):
            return self.on_binop(v, t)
        self.store(a, Known(Ellipsis), self.on_binop(v, t))
        return a

    def on_unary(self, v, t):
        name, x = v.fn if isinstance(v.fn, str) else v.fn.__name__, self.get(v.value)
        if name in ("not_", "not"):
            return self.w.compute("not", self.truth(x))
        if name in ("neg", "-"):
            return self.elementwise(np.negative, (x,), t)
        if name in ("pos", "+"):
            return x
        raise self.refuse(f"the operator {name}")

    def on_cast(self, v, t):
        return self.get(v.value)

    on_exhaust_iter = on_cast

    def on_phi(self, v, t) -> None:
        """(`moves`)"""

    def on_getiter(self, v, t):
        x = replace(self.iterated(self.get(v.value)), name=f"{self.prefix}{t.name} trips")
        self.w.set(x.name, ZERO)
        return x

    def iterated(self, x) -> Range:
        """The numbers of the members of what is iterated over."""
        if isinstance(x, ArrayView) and x.shape:
            return Range((ZERO, x.shape[0], ONE), member=lambda k: self.item(x, k))
        if not isinstance(x, Range):
            raise self.refuse(
                "a loop over something else than a range, an array, or these by enumerate or zip"
            )
        return x

    def on_iternext(self, v, t):
        w, r = self.w, self.get(v.value)
        if r.member is not None:
            raise self.refuse("a loop over an array with several ways out; write it over range(len(x))")
        k, (start, _, step) = w.get(r.name), r.bounds
        w.set(r.name, self.learned("add", (k, ONE)))
        return TupleMembers(
            (w.compute("add", start, w.compute("mul", k, step)), w.compute("lt", k, w.trips(*r.bounds)))
        )

    def on_pair_first(self, v, t):
        return self.get(v.value).items[0]

    def on_pair_second(self, v, t):
        return self.get(v.value).items[1]

    def on_build_tuple(self, v, t):
        return TupleMembers(tuple([self.get(x) for x in v.items]))

    def on_getattr(self, v, t):
        x = self.get(v.value)
        if isinstance(x, ArrayView):
            if v.attr == "shape":
                return TupleMembers(x.shape)
            if v.attr == "ndim":
                return literal(len(x.shape), "i8")
            if v.attr == "size":
                n = ONE
                for m in x.shape:
                    n = self.learned("mul", (n, m))
                return n
            return Known((x, v.attr))
        if isinstance(x, Known):
            return self.attribute(x.object, v.attr)
        raise self.refuse(f"the attribute {v.attr}")

    def attribute(self, x, name: str):
        return self.constant(getattr(x, name))

    def on_getitem(self, v, t):
        return self.item(self.get(v.value), self.get(v.index))

    on_typed_getitem = on_getitem

    def on_static_getitem(self, v, t):
        x = self.get(v.value)
        if isinstance(x, TupleMembers):
            picked = x.items[v.index]
            return TupleMembers(picked) if isinstance(v.index, slice) else picked
        return self.item(x, self.get(v.index_var) if v.index_var is not None else self.constant(v.index))

    def item(self, x, at):
        if isinstance(x, TupleMembers) and isinstance(at, Scalar) and at.number is not None:
            return x.items[at.number]
        if not isinstance(x, ArrayView):
            raise self.refuse("an index of something else than an array")
        view = self.ranges.indexed(x, self.at(at))
        return view if view.shape else self.scalar(view)


def whole(a: LoopArray, origins: frozenset = frozenset()) -> ArrayView:
    return ArrayView(a, tuple([(ZERO, ONE, n) for n in a.shape]), origins)


def place_in(w: ProgramWriter, view: ArrayView, index: tuple) -> tuple:
    """The index in the array of an element of a view."""
    given, made = iter(index), []
    for p in view.parts:
        if isinstance(p, tuple):
            start, step, _ = p
            i = next(given)
            p = i if start is ZERO and step is ONE else w.compute("add", start, w.compute("mul", i, step))
        made.append(p)
    return tuple(made)
