"""Functions with memory seen as functions of values: `inplace`, `stateful` and `checkpoint`.

Each is a small callable object, which a shadow (see `_shadow`) enters to replace what it captured."""

from collections.abc import Callable
from typing import Any

from ._array import is_array, is_differentiable
from ._calls import full_like, name_of, number, value_out
from ._primitive import OPEN, Primitive, bind, is_tracked, live, plain, view
from ._shadow import EMPTY, MAKERS, Globals, Shadow, names_in
from ._transforms import jvp, vjp
from ._tree import leaves, structure, tree_map
from ._variable import Variable, View, bottom, frozen, variable
from .errors import ArgumentError, ShapeError
from .ops._define import dtype, shape
from .ops.shaping import copy


class inplace:
    """f fills its first argument: `inplace(f, like)(x, ...)` gives a fresh array (or tree of arrays) like `like`, filled by
    `f(out, x, ...)`; it starts as zeros.

    >>> import numpy as np, tapegrad as tg
    >>> def square(out, x):
    ...     out[:] = x * x
    >>> tg.jacobian(tg.inplace(square, np.zeros(2)))(np.array([1.0, 3.0]))
    array([[2., 0.],
           [0., 6.]])
    """

    def __init__(self, f: Callable, like: Any):
        self.f, self.like = f, like
        self.__name__ = f"inplace({name_of(f)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        out = tree_map(fresh, self.like)
        self.f(out, *args, **kwargs)
        return out


def fresh(a: Any) -> Any:
    """Zeros like a, as a Variable where a transform is open."""
    if not (is_array(a) or isinstance(a, Variable)):
        return a
    zeros = full_like(a, 0)
    if not is_array(zeros):
        zeros = plain(a) * 0
    return variable(zeros) if getattr(OPEN, "depth", 0) and zeros.dtype.kind in "fc" else zeros


class stateful:
    """Captured arrays as inputs and outputs: `g = stateful(f, a, b)`; `g((a0, b0), x)` gives `(f(x), (a1, b1))`, where f has
    found a0, b0 in its captured arrays a, b and left a1, b1 there.  The arrays themselves stay as they are.

    >>> import numpy as np, tapegrad as tg
    >>> total = np.zeros(1)
    >>> def add(x):
    ...     total[0] += x
    ...     return total[0] ** 2
    >>> g = tg.stateful(add, total)
    >>> tg.grad(lambda s, x: g((s,), x)[0])(np.array([2.0]), 1.0), total
    (array([6.]), array([0.]))
    """

    def __init__(self, f: Callable, *arrays: Any):
        self.f, self.arrays = f, arrays
        self.__name__ = f"stateful({name_of(f)})"
        for a in arrays:
            if not (is_array(a) or isinstance(a, Variable)):
                raise ArgumentError(f"{self.__name__}: name the captured arrays themselves, not {structure(a)}")

    def __call__(self, state: Any, *args: Any, **kwargs: Any) -> Any:
        if not all(isinstance(a, Variable) for a in self.arrays):
            shadow = Shadow(self, list(args))
            with shadow as (g, inner):
                y, after = g(state, *inner, **kwargs)
            y, after = tree_map(value_out, y), tuple([value_out(a) for a in after])
            shadow.finish()
            return y, after
        if not isinstance(state, (tuple, list)) or len(state) != len(self.arrays):
            raise ArgumentError(f"{self.__name__}: the state must be a tuple of {len(self.arrays)} arrays, got {structure(state)}")
        before = [frozen(a) for a in self.arrays]
        try:
            for a, s in zip(self.arrays, state, strict=True):
                if shape(s) != shape(a) or dtype(s) != dtype(a):
                    raise ShapeError(
                        f"{self.__name__}: a state of shape {shape(s)}, {dtype(s)} for an array of shape {shape(a)}, {dtype(a)}"
                    )
                a._become(copy(s) if isinstance(s, Variable) else variable(s.copy()))
            y = self.f(*args, **kwargs)
            return y, tuple([frozen(a) for a in self.arrays])
        finally:
            for a, b in zip(self.arrays, before, strict=True):
                a._become(b)
                a._saved = True


class Rebind(Shadow):
    """A shadow that replaces the Variables that a function captured by others: inputs and outputs of the function."""

    __slots__ = ("handles", "values")

    def __init__(self, f: Any, args: list, values: list | None = None):
        super().__init__(f, args)
        self.handles: list = []  # (captured Variable, its stand-in)
        self.values = values

    def __call__(self, x: Any) -> Any:
        if not isinstance(x, Variable):
            return super().__call__(x)
        found = self.seen.get(id(x))
        if found is not None:
            return found
        if type(x) is View:
            y = view(self(x._base), x._path[0])
            y._path = x._path
        else:
            y = self.stand_in(x)
            self.handles.append((x, y))
        self.seen[id(x)] = y
        self.hold.append(x)
        return y

    def stand_in(self, x: Variable) -> Variable:
        n = len(self.handles)
        value = live(x) if self.values is None else self.values[n]
        y = frozen(value) if isinstance(value, Variable) else variable(value)
        y._saved, y._version = True, 0
        return y

    def globals_of(self, space: dict) -> dict:
        found = self.seen.get(id(space))
        if found is None:
            found = self.seen[id(space)] = Globals(space, self)
            self.hold.append(space)
        return found

    def function(self, f: Any) -> Any:
        g = super().function(f)
        if g is not f and type(g.__globals__) is Globals:
            for name in names_in(f.__code__):  # at once: the captured arrays are to be known before the call
                try:
                    g.__globals__[name]
                except KeyError:
                    pass
        return g

    def check(self, call: str) -> None:
        """Values that left by other ways than arrays and the return value would lose their derivative."""
        for _, new, _, first in self.cells:
            try:
                now = new.cell_contents
            except ValueError:
                continue
            if now is not first and first is not EMPTY:
                refuse(call, now)
        for x, new, first in self.lists:
            if first is not None and self.differs(new, first):
                refuse(call, x)
        for space, name, _, first in self.names:
            if dict.get(space, name, first) is not first:
                refuse(call, space[name])
        for _, new, before in self.objects:
            for name, first in before.items():
                now = getattr(new, name, first)
                if now is not first:
                    refuse(call, now)


def refuse(call: str, now: Any) -> None:
    if any(is_tracked(v) for v in leaves(now)):
        raise ArgumentError(
            f"{call}: the function binds a name or attribute outside of itself to a new value; a checkpoint can follow what is "
            "returned and what is written into arrays: write name[...] = value, or return it"
        )


class checkpoint:
    """f, recomputed in the backward sweep instead of keeping its records.

    Arrays that f captured and writes are followed as usual.  Nest it to differentiate a loop of T steps in memory O(sqrt T).

    >>> import numpy as np, tapegrad as tg
    >>> def steps(x):
    ...     for _ in range(100):
    ...         x = np.sin(x)
    ...     return x
    >>> bool(tg.grad(tg.checkpoint(steps))(1.0) == tg.grad(steps)(1.0))
    True
    """

    def __init__(self, f: Callable):
        self.f = f
        self.__name__ = f"checkpoint({name_of(f)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not getattr(OPEN, "depth", 0):
            return self.f(*args, **kwargs)
        first = Rebind(self.f, [*args, kwargs])
        with first as (g, (*own_args, own_kwargs)):
            handles = [x for x, _ in first.handles]
        first.arrays = []
        step = Step(first, g, own_args, own_kwargs, self.__name__)
        outs = bind(step.primitive(), [live(x) for x in handles], {})
        for k, x in enumerate(handles):
            out = outs[step.count + k]
            if step.written[k] and isinstance(out, Variable):
                if out._trace is not None and out._trace is not x._trace:
                    out._trace.risen.append(x)
                x._become(out)
                x._saved = True
        members = iter(outs[: step.count])
        return tree_map(lambda v: next(members) if v is OUTPUT else v, step.tree)


OUTPUT = object()  # stands in the tree of a step's result for one of its outputs


class Step:
    """One call of a checkpointed function as a function of values: of the Variables that it captured or was given, to what it
    returns and to what it leaves in them.  f and its arguments are as `first` rebuilt them, with stand-ins for these Variables,
    so that a pullback may run it after the transform has ended."""

    def __init__(self, first: Rebind, f: Callable, args: list, kwargs: dict, name: str):
        self.first, self.f, self.args, self.kwargs, self.name = first, f, args, kwargs, name
        self.count, self.tree, self.written = 0, None, ()

    def __del__(self):
        self.first.finish()  # it knows the function that knows it: ends the cycle

    def __call__(self, *inputs: Any) -> tuple:
        shadow = Rebind(self.f, [*self.args, self.kwargs], list(inputs))
        with shadow as (g, (*args, kwargs)):
            y = g(*args, **kwargs)
            ys = [v for v in leaves(y) if is_differentiable(plain(v))]
            self.tree = tree_map(lambda v: OUTPUT if is_differentiable(plain(v)) else v, y)
            self.count = len(ys)
            self.written = [getattr(h, "_version", 0) > 0 for _, h in shadow.handles]
            shadow.check(self.name)
            outs = [out_of(v) for v in ys] + [out_of(h) for _, h in shadow.handles]
        shadow.arrays = []  # nothing is written back: what was written is an output
        shadow.finish()
        return tuple(outs)

    def primitive(self) -> Primitive:
        prim = Primitive(self.name, self)
        prim.holomorphic, prim.joint = False, True
        prim.keep_spec = lambda active: (tuple(range(len(active))), False)

        def reverse_rule(g, out, need, *inputs):
            y, pullback = vjp(self, *inputs)
            seeds = tuple([full_like(o, 0) if c is None else c for c, o in zip(g, y, strict=True)])
            terms = pullback(seeds)
            return terms if len(inputs) > 1 else (terms,)

        def forward_rule(t, out, *inputs):
            tangents = tuple([full_like(v, 0) if d is None else d for d, v in zip(t, inputs, strict=True)])
            return jvp(self, inputs, tangents)[1]

        prim.vjp, prim.jvp = (reverse_rule,), forward_rule
        return prim


def out_of(v: Any) -> Any:
    """A value that leaves the step: of this level as a Variable, untracked ones as plain copies."""
    if not isinstance(v, Variable):
        return v.copy() if is_array(v) else number(v)
    v = live(v)
    if v._trace is not None:
        return frozen(v)
    b = bottom(v)
    return b.copy() if is_array(b) else b


MAKERS[inplace] = lambda shadow, x: inplace(shadow(x.f), x.like)
MAKERS[stateful] = lambda shadow, x: stateful(shadow(x.f), *[shadow(a) for a in x.arrays])
MAKERS[checkpoint] = lambda shadow, x: checkpoint(shadow(x.f))
