"""Calls in functions of Numba's."""

from typing import Any

import numpy as np

from .numba_front import FrameWriter
from .numba_ir import TypedFunction, kind_of
from .program import FLOATS, Scalar, literal
from .scalar_frame import MATHS
from .views import ArrayView, Known, Range, Slice, TupleMembers
from .writer import ONE, ZERO

CASTS = {
    float: "f8", int: "i8", bool: "b1", np.float64: "f8", np.float32: "f4", np.int64: "i8", np.intp: "i8",
    np.int32: "i8", np.bool_: "b1"
}  # fmt: skip
NEW_ARRAYS: dict[Any, float | None] = {
    np.zeros: 0.0,
    np.empty: 0.0,
    np.ones: 1.0,
    np.zeros_like: 0.0,
    np.empty_like: 0.0,
    np.ones_like: 1.0,
    np.full: None,  # of the second argument
    np.full_like: None,
}


class CallFrame(FrameWriter):
    """One call of a function, with the calls in it."""

    def on_call(self, v, t):
        f = self.get(v.func)
        args = tuple([self.get(x) for x in v.args])
        named = {k: self.get(x) for k, x in v.kws}
        if not isinstance(f, Known) or v.vararg is not None:
            raise self.refuse("a call of an unknown function")
        f = f.object
        if isinstance(f, tuple):
            return self.method(f[0], f[1], args, t)
        if hasattr(f, "py_func"):
            return self.inlined(f, v, args)
        return self.called(f, args, named, t)

    def inlined(self, f, v, args: tuple):
        if f.py_func in self.callers:
            raise self.refuse(f"{f.py_func.__name__} calls itself")
        if v.kws:
            raise self.refuse("a call by keyword")
        line = self.w.line
        types = self.typed.calltypes[v].args
        frame = type(self)(
            self.source, TypedFunction(f.py_func, types, self.typed.device), args, self.callers
        )
        frame.args = tuple(
            [
                self.w.cast(x, kind_of(k) or x.type) if isinstance(x, Scalar) else x
                for x, k in zip(args, types, strict=True)
            ]
        )
        result = frame.run()
        self.w.line = line
        return Known(None) if result is None else result

    def called(self, f, args: tuple, named: dict, t):
        w, kind = self.w, kind_of(self.type_of(t))
        module = getattr(f, "__module__", None) or ""
        if f in (range,) or getattr(f, "__name__", "") == "prange":
            x: Any = tuple([self.scalar(a) for a in args])
            return Range({1: (ZERO, x[0], ONE), 2: (*x, ONE), 3: x}[len(x)])
        if f in (enumerate, zip) and args and not named:
            return self.members_of(f, args)
        if f is slice:
            cuts = [None if isinstance(a, Known) else self.scalar(a) for a in args]
            return Slice(tuple({1: [None, *cuts, None], 2: [*cuts, None], 3: cuts}[len(cuts)]))
        cast = CASTS.get(f) or kind_of(f)
        if cast is not None:
            return self.narrowed(w.cast(self.scalar(args[0]), cast), self.type_of(t))
        if f is type and isinstance(args[0], Scalar) and args[0].type in FLOATS:
            return Known(np.float64 if args[0].type == "f8" else np.float32)
        if f is len:
            return (
                literal(len(args[0].items), "i8") if isinstance(args[0], TupleMembers) else args[0].shape[0]
            )
        if f in NEW_ARRAYS:
            return self.new_array(f, args, named, t)
        if f in (min, max) and len(args) >= 2:
            return self.extreme("lt" if f is min else "gt", args, kind)
        if f is round and len(args) == 1 and kind == "i8":
            return w.cast(self.apply(np.rint, (self.scalar(args[0]),), "f8"), "i8")
        if f is round and len(args) == 2 and kind in FLOATS:
            unit = self.apply(np.power, (literal(10.0, "f8"), w.cast(self.scalar(args[1]), "f8")), "f8")
            steps = self.apply(np.rint, (self.apply(np.multiply, (self.scalar(args[0]), unit), "f8"),), "f8")
            return w.cast(self.apply(np.divide, (steps, unit), "f8"), kind)
        if f is round or f is print:
            raise self.refuse(f"{f.__name__}()")
        if f is np.dot and len(args) == 2 and not named:
            return self.method(args[0], "dot", args[1:], t)
        if f is abs or f is pow and len(args) == 2:
            f = np.absolute if f is abs else np.power
        elif module == "math":
            f = getattr(np, f.__name__, MATHS.get(f.__name__))
        if f is np.asarray and len(args) == 1 and not named and isinstance(args[0], ArrayView):
            return args[0]
        if f is np.sum and len(args) == 1 and not named:
            return self.method(args[0], "sum", (), t)
        if isinstance(f, np.ufunc) and not named:
            if kind == "i8" and f in (np.floor, np.ceil, np.trunc):
                return w.cast(self.apply(f, (self.scalar(args[0]),), "f8"), "i8")
            return self.elementwise(f, args, t)
        raise self.refuse(f"a call of {getattr(f, '__name__', f)}")

    def members_of(self, f, args: tuple) -> Range:
        """What enumerate or zip gives, by numbers from 0 on."""
        w, over = self.w, [self.iterated(x) for x in (args[:1] if f is enumerate else args)]
        trips = [w.trips(*r.bounds) for r in over]
        count = trips[0]
        for n in trips[1:]:
            count = w.compute("min", count, n)
        first = self.scalar(args[1]) if f is enumerate and len(args) > 1 else ZERO

        def member(k: Scalar) -> TupleMembers:
            found = []
            for r in over:
                at = w.compute("add", r.bounds[0], self.learned("mul", (k, r.bounds[2])))
                found.append(at if r.member is None else r.member(k))
            return TupleMembers((self.learned("add", (first, k)), *found) if f is enumerate else tuple(found))

        return Range((ZERO, count, ONE), member=member)

    def extreme(self, op: str, args: tuple, kind: str | None) -> Scalar:
        found = self.w.cast(self.scalar(args[0]), kind or "f8")
        for a in args[1:]:
            x = self.w.cast(self.scalar(a), kind or "f8")
            found = self.learned({"lt": "min", "gt": "max"}[op], (found,
            x)) if kind == "i8" else self.w.compute(
                "select", self.w.compute(op, x, found), x, found
            )  # fmt: skip
        return found

    def new_array(self, f, args: tuple, named: dict, t) -> ArrayView:
        given = args[0] if args else named.get("shape")
        kind = kind_of(self.type_of(t).dtype)
        if given is None or kind is None:
            raise self.refuse(f"a new array of Numba's type {self.type_of(t)}")
        shape = (
            given.shape
            if isinstance(given, ArrayView)
            else given.items
            if isinstance(given, TupleMembers)
            else (given,)
        )
        shape = tuple([self.scalar(n) for n in shape])
        value = NEW_ARRAYS[f]
        if value is None:
            filling = self.w.cast(self.scalar(args[1] if len(args) > 1 else named["fill_value"]), kind)
            return self.filled(kind, shape, lambda index: filling)
        if value:
            return self.filled(kind, shape, lambda index: literal(value, kind))
        return (
            self.filled(kind, shape, lambda index: literal(0, kind))
            if self.source.classes
            else self.source.array(kind, shape)
        )

    def method(self, x, name: str, args: tuple, t):
        if name == "copy" and not args:
            return self.filled(x.array.type, x.shape, lambda index: self.element_of(x, index, x.shape))
        if name == "sum" and not args and kind_of(self.type_of(t)) is not None:
            return self.total(x, kind_of(self.type_of(t)))
        if name == "dot" and len(args) == 1 and isinstance(x, ArrayView) and isinstance(args[0], ArrayView):
            return self.product(x, args[0], t)
        if name == "fill" and len(args) == 1:
            self.store(x, Known(Ellipsis), args[0])
            return Known(None)
        raise self.refuse(f"the method {name} of an array")

    def total(self, x: ArrayView, kind) -> Scalar:
        w = self.w

        def more(index: tuple, so_far: Scalar) -> list[Scalar]:
            return [w.compute("add", so_far, w.cast(self.element_of(x, index, x.shape), kind))]

        return w.each(x.shape, more, [literal(0, kind)])[0]
