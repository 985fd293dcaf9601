"""Functions with memory seen as functions of values: `inplace`, `stateful` and `checkpoint`.

Each is a small callable object, which a shadow (see `_shadow`) enters to replace what it captured."""

import random
import types
import zlib
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from . import _stand_ins
from ._array import is_array, is_differentiable, kept, xp_of
from ._calls import check_function, full_like, name_of, number, value_out
from ._pickling import Remade
from ._primitive import OPEN, Primitive, bind, is_tracked, layout_of, live, own, primal_of, view
from ._shadow import MAKERS, Globals, Module, Names, Shadow, names_in
from ._shadow.ambient import Ambient
from ._shadow.containers import Contents, Reference
from ._shadow.iterators import ITERATORS, Passed
from ._shadow.kinds import put_state, state_of
from ._shadow.restore import restore
from ._transforms import jvp, vjp
from ._tree import leaves, structure, tree_map
from ._variable import Variable, View, bottom, frozen, variable
from .errors import ArgumentError, GuardError, ShapeError
from .ops._define import dtype, shape
from .ops._flat import Flat
from .ops.shaping import copy

P = ParamSpec("P")
Y = TypeVar("Y")


class inplace(Remade, Generic[Y]):
    """f fills its first argument: `inplace(f, like)(x, ...)` gives a fresh array (or tree of arrays) like `like`, filled by
    `f(out, x, ...)`; it starts as zeros.

    >>> import numpy as np, tapegrad as tg
    >>> def square(out, x):
    ...     out[:] = x * x
    >>> tg.jacobian(tg.inplace(square, np.zeros(2)))(np.array([1.0, 3.0]))
    array([[2., 0.],
           [0., 6.]])
    """

    def __init__(self, f: Callable, like: Y):
        check_function("inplace", f)
        self.f, self.like = f, like
        self.__name__ = f"inplace({name_of(f)})"

    def _made(self) -> tuple:
        return inplace, (self.f, self.like)

    def __call__(self, *args: Any, **kwargs: Any) -> Y:
        out = tree_map(fresh, self.like)
        self.f(out, *args, **kwargs)
        return out


def fresh(a: Any) -> Any:
    """Zeros like a, as a Variable where a transform is open."""
    if not (is_array(a) or isinstance(a, Variable)):
        return a
    zeros = full_like(a, 0)
    if not is_array(zeros):
        zeros = layout_of(a).dtype.type(0)
    return variable(zeros) if OPEN.depth and zeros.dtype.kind in "fc" else zeros


class stateful(Remade, Generic[Y]):
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

    def __init__(self, f: Callable[..., Y], *arrays: Any):
        check_function("stateful", f)
        self.f, self.arrays = f, arrays
        self.__name__ = f"stateful({name_of(f)})"
        for a in arrays:
            if not (is_array(a) or isinstance(a, Variable)):
                raise ArgumentError(f"{self.__name__}: name the captured arrays themselves, not {structure(a)}")

    def _made(self) -> tuple:
        return stateful, (self.f, *self.arrays)

    def __call__(self, state: Any, *args: Any, **kwargs: Any) -> tuple[Y, tuple]:
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

    __slots__ = ("handles", "places", "of", "values", "state", "generators")

    def __init__(self, f: Any, args: list, of: "Rebind | None" = None, values: tuple = ()):
        """`of`, `values`: the shadow that found the captured Variables, and what these are now; None: this one finds them, and keeps
        what f reads besides as it is now."""
        super().__init__(f, args)
        self.handles: list = []  # (captured Variable, its stand-in)
        self.places: dict = {}  # (id of a stand-in; `of` given: place of a captured Variable there) -> place in `handles`
        self.of, self.values = of, values
        self.state: list = []  # captured numbers, containers of such, integer arrays, with what they held
        self.generators: list = []  # of random numbers

    def __call__(self, x: Any) -> Any:
        if not isinstance(x, Variable):
            kind = type(x)
            if id(x) not in self.seen and (kind in REPLACED or hasattr(kind, "_handed_back")):
                self.hold.append(x)
                self.seen[id(x)] = (REPLACED.get(kind) or Rebind.carried)(self, x)
            if id(x) not in self.seen and isinstance(x, np.vectorize):
                return self.vectorized(x)
            if kind is types.MethodType and type(x.__self__) in REPLACED and getattr(type(x.__self__), x.__name__, None) is x.__func__:
                return getattr(self(x.__self__), x.__name__)
            new = x if type(x) is np.ndarray and x.dtype.kind in "fc" else super().__call__(x)  # memory in other hands stays plain
            if new is x and (type(x) in (list, dict) or is_array(x)):
                self.state.append((x, held(x)))
            elif new is x and isinstance(x, BaseException) and any([s.seen and x in s.seen.values() for s in OPEN.shadows]):
                raise ArgumentError(
                    f"checkpoint: the function reads an exception made outside, {x!r:.60}, that was raised since; reach what it holds by "
                    "a name"
                )
            elif isinstance(x, GENERATORS) and not any([x is g for g in self.generators]):
                self.generators.append(x)
            return new
        found = self.seen.get(id(x))
        if found is not None:
            return found
        if type(x) is View:
            y = view(self(x._base), x._path[0])
            y._path = x._path
        else:
            y = self.stand_in(x)
        self.seen[id(x)] = y
        self.hold.append(x)
        return y

    def stand_in(self, x: Variable) -> Variable:
        place, value = None, None
        if self.of is None:
            value = live(x)
        else:
            place = self.of.place(x)
            if place in self.places:
                return self.handles[self.places[place]][1]
            value = self.values[place] if place < len(self.values) else primal_of(live(x))
        y = frozen(value) if isinstance(value, Variable) else variable(value)
        y._saved, y._version = True, 0
        if self.of is None and id(x) in self.places:
            place = self.places[id(y)] = self.places[id(x)]
            self.handles[place] = (x, y)
        else:
            self.places[id(y) if place is None else place] = len(self.handles)
            self.handles.append((x, y))
        return y

    def place(self, x: Variable) -> int:
        """Of a captured Variable, or of its stand-in.  One that this shadow has not met stands for itself."""
        y = self.seen.get(id(x), x)
        if id(y) not in self.places:
            self.places[id(y)] = len(self.handles)
            self.handles.append((y, y))
        return self.places[id(y)]

    def carried(self, x: Any) -> Any:
        """An object of ours for one of SciPy's; of SciPy's own in it, it knows how they are made."""
        kind = type(x)
        new = object.__new__(kind)
        own = state_of(x, kind)
        put_state(new, {name: v if _stand_ins.of_instance(type(v)) is not None else self(v) for name, v in own.items()})
        return new

    def drawn(self, x: Any) -> Any:
        if type(x) is Drawn:
            return Drawn(self, x, True)
        if self.of is None:
            return Drawn(self, x, False)
        self.iterator(getattr(x, "real", x))  # what it walks along
        return Drawn(self, self.of(x), False)

    def along(self, x: Any) -> Any:
        """A run of the function itself goes on with an iterator where it is; those after it begin where that began."""
        if self.of is None:
            return Along(self(x.base), [*x.place])
        return Flat(self(x.base), [*x.place] if type(x) is Along else x.place)

    def made_outside(self) -> set:
        return set()  # all is made anew, globals included

    def globals_of(self, space: dict) -> dict:
        found = self.seen.get(id(space))
        if found is None:
            found = self.seen[id(space)] = Globals(space, self)
            self.changes.append((Names, space, found))
            self.hold.append(space)
        return found

    def function(self, f: Any) -> Any:
        g = super().function(f)
        if g is not f and type(g.__globals__) is Globals:
            names = names_in(f.__code__)
            if "random" in names:
                self.generators += [np.random.mtrand._rand, random._inst]
            ask(g.__globals__, names)  # at once: the captured arrays are to be known before the call
        return g

    def check_all(self, call: str) -> None:
        """Were all captured Variables known?"""
        if len(self.of.handles) > len(self.values):
            ended(self)
            raise Late(
                f"{call}: run again, the function reads an array that it did not read at first. It reads something that has changed (an "
                "attribute, a file, an unseeded random generator): pass it as an argument"
            )

    def check(self, call: str) -> None:
        """Values that left by other ways than arrays and the return value would lose their derivative."""
        own = {id(y) for _, y in self.handles}  # an array that was captured may be stored
        for change in self.changes:
            for now in change[0].put(change):
                if id(now) not in own:
                    refuse(call, now)


def ask(space: Globals, names: set) -> None:
    """The names that a function may read, and, as attributes, those of its modules."""
    met, todo = {id(space)}, [space]
    for space in todo:
        for name in names:
            try:
                found = space[name]
            except KeyError:
                continue
            if type(found) is Module and id(vars(found)) not in met:
                met.add(id(vars(found)))
                todo.append(vars(found))


class Drawn(Passed):
    """An iterator made outside.  What it gave is kept, and given again to a recomputation, whose own is one over this one."""

    __slots__ = ("again", "at", "items")

    def __init__(self, shadow: Rebind, real: Any, again: bool):
        super().__init__(real, shadow)
        self.items: list = real.items if type(real) is Drawn else []
        self.at, self.again = 0, again

    def __next__(self):
        kept = self.real
        if self.at == len(self.items):
            self.items.append(next(kept.real))
            kept.given(self.items[-1])
        item = self.items[self.at]
        self.at += 1
        return self.given(kept.given(item) if self.again else item)

    def send(self, value):
        raise ArgumentError("checkpoint: the function sends values to a generator made outside: make the generator inside")


class Along(Flat):
    """One as it was when the function was called."""

    __slots__ = ()


REPLACED: dict = {  # what a shadow has put in the place of an object, which another one is to replace again
    **dict.fromkeys((*ITERATORS, Passed, Drawn), Rebind.drawn),
    Ambient: Rebind.ambient,
    Flat: Rebind.along,
    Along: Rebind.along,
    Reference: lambda shadow, x: Reference(shadow(x.target)),
}


def refuse(call: str, now: Any) -> None:
    if any(is_tracked(v) for v in leaves(now)):
        raise ArgumentError(
            f"{call}: the function binds a name or attribute outside of itself to a new value; a checkpoint can follow what is "
            "returned and what is written into arrays: write name[...] = value, or return it"
        )


# --- is what is recomputed what was computed? ---

GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)


def held(x: Any) -> Any:
    """What a container of numbers, or an integer array, holds."""
    if is_array(x):
        return None if xp_of(x) is not np else x.copy() if x.nbytes <= 4096 else zlib.crc32(np.ascontiguousarray(x))
    return list(x.items()) if type(x) is dict else list(x)


def moved(x: Any, before: Any) -> bool:
    """(Not asked of a device, where it would wait.)"""
    now = held(x)
    if is_array(x):
        return xp_of(x) is np and not np.array_equal(now, before)
    try:
        return len(now) != len(before) or any([a is not b and a != b for a, b in zip(now, before, strict=True)])
    except ValueError:  # there is an array now
        return True


def hold(x: Any, numbers: Any) -> None:
    """(Of a large array only a checksum was kept.)"""
    if is_array(x):
        if isinstance(numbers, np.ndarray):
            x[...] = numbers
    elif type(x) is dict:
        x.clear()
        x.update(numbers)
    else:
        x[:] = numbers


def ended(shadow: Shadow) -> None:
    """Nothing is handed back; containers of numbers, which had no shadow, are left to `Step.as_before`."""
    if shadow.on:
        shadow.on = False
        shadow.changes = [c for c in shadow.changes if c[0] is not Contents or c[3] is not None]
        restore(shadow, undo=True)


def drawn_to(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.get_state() if isinstance(generator, np.random.RandomState) else generator.getstate()


def set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.setstate(state)


def mark(v: Any) -> tuple:
    """(shape, a few sums) of an output, by which it is known again without being kept: the rounding of a sum may differ from one
    run to the next, with the place of the data in memory; on a device the sums stay there.  None in their place where a trace hides
    the values."""
    a = primal_of(v)
    if isinstance(a, Variable):
        return shape(a), dtype(a), None
    xp = xp_of(a)
    a = xp.asarray(a)
    flat = a.ravel().view(a.real.dtype)
    finite = xp.isfinite(flat)
    flat = xp.where(finite, flat, 0).astype(np.float64)
    return a.shape, a.dtype, xp.stack([(flat * xp.linspace(1, 2, flat.size)).sum(), abs(flat).sum(), (finite * xp.arange(flat.size)).sum()])


def alike(first: tuple, now: tuple) -> Any:
    """Are two marks of one output?  On a device the answer stays there."""
    (shape_, kind, a), (shape_now, _, b) = first, now
    if shape_ != shape_now or a is None or b is None:
        return shape_ == shape_now
    tolerance = 4 * np.sqrt(np.finfo(kind).eps) * np.cbrt(np.finfo(kind).eps)  # well above rounding, far below a changed number
    same = (abs(a - b)[:2] <= tolerance * a[1]).all() & (a[2] == b[2])
    return bool(same) if xp_of(a) is np else same


class Late(GuardError):
    """A function has met captured Variables that were not known when it was called: the first time it is called again, with these."""


def with_all(first: Rebind, run: Callable) -> tuple:
    """(The captured Variables, what `run` makes of their values)"""
    while True:
        handles = [x for x, _ in first.handles]
        try:
            return handles, run([live(x) for x in handles])
        except Late:
            if len(first.handles) == len(handles):
                raise


class checkpoint(Remade, Generic[P, Y]):
    """f, recomputed in the backward sweep instead of keeping its records.

    Arrays that f captured and writes are followed as usual; random generators that it captured draw the same numbers again.  What
    f reads must be as it was: GuardError where a captured number or integer array has changed, or the recomputation gives other
    values (on a device, where comparing would wait, the derivative is nan).  Nest it to differentiate a loop of T steps in memory
    O(sqrt T).

    >>> import numpy as np, tapegrad as tg
    >>> def steps(x):
    ...     for _ in range(100):
    ...         x = np.sin(x)
    ...     return x
    >>> bool(tg.grad(tg.checkpoint(steps))(1.0) == tg.grad(steps)(1.0))
    True
    """

    def __init__(self, f: Callable[P, Y]):
        check_function("checkpoint", f)
        self.f = f
        self.__name__ = f"checkpoint({name_of(f)})"

    def _made(self) -> tuple:
        return checkpoint, (self.f,)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Y:
        if not OPEN.depth:
            return self.f(*args, **kwargs)
        first = Rebind(self.f, [*args, kwargs])
        with first as (g, (*own_args, own_kwargs)):
            first.arrays = []
        step = Step(first, (self.f, args, kwargs), (g, own_args, own_kwargs), self.__name__)
        handles, outs = with_all(first, lambda values: bind(step.primitive(), values, {}))
        for k, x in enumerate(handles):
            out = outs[step.count + k]
            if step.written[k] and isinstance(out, Variable):
                if not getattr(x, "_version", 0):
                    own(x)
                if out._trace is not None and out._trace is not x._trace:
                    out._trace.risen.append(x)
                x._become(out)
                x._saved = True
        members = iter(outs[: step.count])
        return tree_map(lambda v: next(members) if v is OUTPUT else v, step.tree)


OUTPUT = object()  # stands in the tree of a step's result for one of its outputs


class Step:
    """One call of a checkpointed function as a function of values: of the Variables that it captured or was given, to what it
    returns and to what it leaves in them.  The first run is that of the function itself.  Later ones are of it and its arguments
    as `first` rebuilt them before, with stand-ins for these Variables and other objects as they were, and hand nothing back; so a
    pullback may run it after the transform has ended."""

    def __init__(self, first: Rebind, run: tuple, kept: tuple, name: str):
        """`run`, `kept`: (function, arguments, those by keyword)"""
        self.first, self.run, self.kept, self.name = first, run, kept, name
        self.count, self.tree, self.written = 0, None, ()
        self.marks: list | None = None  # of the outputs of the first run
        self.before: list = []  # (captured numbers, what they were, whether f itself has altered them)
        self.draws: list = []  # (generator, its state before)
        self.poison: Any = None  # on a device: nan where a recomputation has given other values

    def __del__(self):
        ended(self.first)  # it knows the function that knows it: ends the cycle

    def __call__(self, *inputs: Any) -> tuple:
        present = self.as_before() if self.marks is not None else ()
        try:
            return self.ran(inputs)
        finally:
            for x, now in present:
                hold(x, now)

    def ran(self, inputs: tuple) -> tuple:
        f, args, kwargs = self.run
        again = self.marks is not None
        shadow = Rebind(f, [*args, kwargs], self.first, inputs)
        with shadow as (g, (*args, kwargs)):
            later = [(r, drawn_to(r)) for r in shadow.generators]
            if again:
                for r, state in self.draws:
                    set_state(r, state)
            else:
                self.draws = later
            try:
                y = g(*args, **kwargs)
            finally:
                if again:
                    for r, state in later:
                        set_state(r, state)
            ys = [v for v in leaves(y) if is_differentiable(layout_of(v))]
            self.tree = tree_map(lambda v: OUTPUT if is_differentiable(layout_of(v)) else v, y)
            self.count = len(ys)
            if not again and len(self.first.handles) > len(inputs):
                for r, state in later:
                    set_state(r, state)
                for x, before in shadow.state:
                    if moved(x, before):
                        hold(x, before)
            shadow.check_all(self.name)
            handles = [shadow.handles[shadow.places[k]][1] if k in shadow.places else v for k, v in enumerate(inputs)]
            self.written = [getattr(h, "_version", 0) > 0 for h in handles]
            shadow.check(self.name)
            outs = [out_of(v) for v in ys + handles]
            self.check_levels(inputs, outs)
            marks = [mark(v) for v in ys + [h for h, w in zip(handles, self.written, strict=True) if w]]
            if again:
                self.check_values(marks)
            else:
                self.marks, self.before = marks, [(x, b, moved(x, b)) for x, b in shadow.state]
                self.run = self.kept
        shadow.arrays = []  # nothing is written back: what was written is an output
        if again:
            ended(shadow)
        else:
            shadow.finish()
        return tuple(outs)

    def as_before(self) -> list:
        """Captured numbers that f itself alters are set to what they were: gives them, with what they are now."""
        for x, before, altered in self.before:
            if not altered and moved(x, before):
                raise GuardError(
                    f"{self.name}: what the function reads has changed since it was called: {type(x).__name__} "
                    f"{repr(x)[:60]}. It is run again in the backward sweep: pass what changes as an argument, or give each call "
                    "its own copy"
                )
        present = [(x, held(x)) for x, _, altered in self.before if altered]
        for x, before, altered in self.before:
            if altered:
                hold(x, before)
        return present

    def check_levels(self, inputs: tuple, outs: list) -> None:
        """None of the values that came in is of as near a transform as one that leaves: it was read past the stand-ins."""
        if level_of(outs) > level_of(inputs):
            raise ArgumentError(
                f"{self.name}: the function reads tracked values that lie in an object which a checkpoint does not follow: pass them as "
                "arguments, or make the object inside"
            )

    def check_values(self, marks: list) -> None:
        same = [len(marks) == len(self.marks), *[alike(a, b) for a, b in zip(self.marks, marks, strict=False)]]
        if any([s is False for s in same]):
            self.refuse_values()
        for s in same:
            if s is not True:
                nan = xp_of(s).where(s, 0.0, np.nan)
                self.poison = nan if self.poison is None else self.poison + nan

    def refuse_values(self) -> None:
        raise GuardError(
            f"{self.name}: run again in the backward sweep, the function gave other values than before. It reads something that has "
            "changed (an attribute, a file, an unseeded random generator): pass it as an argument"
        )

    def spoiled(self, terms: tuple) -> tuple:
        """Derivatives, nan where they belong to other values."""
        if self.poison is None:
            return terms
        return tuple([c if c is None else c + self.poison.astype(dtype(c)) for c in terms])

    def primitive(self) -> Primitive:
        prim = Primitive(self.name, self)
        prim.holomorphic, prim.joint, prim.batch = False, True, "inside"
        prim.keep_spec = lambda active: (tuple(range(len(active))), False)

        def reverse_rule(g, out, need, *inputs):
            y, pullback = vjp(self, *inputs)
            seeds = tuple([full_like(o, 0) if c is None else c for c, o in zip(g, y, strict=True)])
            terms = pullback(seeds)
            return self.spoiled(terms if len(inputs) > 1 else (terms,))

        def forward_rule(t, out, *inputs):
            tangents = tuple([full_like(v, 0) if d is None else d for d, v in zip(t, inputs, strict=True)])
            return self.spoiled(jvp(self, inputs, tangents)[1])

        prim.vjp, prim.jvp = (reverse_rule,), forward_rule
        return prim


def level_of(values: Any) -> int:
    return max([v._trace.level for v in values if isinstance(v, Variable) and v._trace is not None], default=0)


def out_of(v: Any) -> Any:
    """A value that leaves the step: of this level as a Variable, untracked ones as plain copies."""
    if not isinstance(v, Variable):
        return kept(v) if is_array(v) else number(v)
    v = live(v)
    if v._trace is not None:
        return frozen(v)
    b = bottom(v)
    return kept(b) if is_array(b) else b


MAKERS[inplace] = lambda shadow, x: inplace(shadow(x.f), x.like)
MAKERS[stateful] = lambda shadow, x: stateful(shadow(x.f), *[shadow(a) for a in x.arrays])
MAKERS[checkpoint] = lambda shadow, x: checkpoint(shadow(x.f))
