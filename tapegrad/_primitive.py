"""Primitive: an array operation with its derivative rules; Trace: one open transform; bind: apply the one to the other.

`bind` hands a primitive to the innermost trace among its arguments; that trace lowers the arguments and binds again, one level
down, until no trace is left and NumPy or CuPy runs.  Most operations of one or two arguments take a shorter way, a function
generated for them in ops/_define.py, which does the same."""

import itertools
import threading
from typing import Any

import numpy as np

from ._array import is_array
from ._foreign import OBJECTS, argument
from ._variable import Variable, View, bottom, copied, frozen, has_tangent, is_saved, new_view, variable
from .errors import AliasError


class Primitive:
    """`run` is the plain array body.  `vjp` holds a reverse rule for each input (or one joint rule), `jvp` the forward rule.
    `pull` replaces `vjp` for the operations on regions, which work on a buffer's cotangent where it lies.  `writes`: input 0
    is altered in place and is the output.  `multi`: the output is a tuple of this length.  `aliases`: the output may share memory
    with an input, so both ends are marked as saved, and whichever is written first moves away.  `scalar`: what it is in a kernel
    (`ops/_define.primitive`)."""

    __slots__ = (
        "name",
        "run",
        "call",
        "vjp",
        "jvp",
        "joint",
        "pull",
        "keep_spec",
        "writes",
        "multi",
        "shapes",
        "_keeps",
        "infix",
        "holomorphic",
        "aliases",
        "scalar",
    )

    def __init__(self, name, run, shapes=(), writes=False, multi=0, infix=None, holomorphic=True, aliases=False):
        self.name, self.run, self.shapes, self.writes, self.multi, self.infix = name, run, shapes, writes, multi, infix
        self.holomorphic, self.aliases = holomorphic and not multi, aliases
        self.vjp = self.jvp = self.pull = self.keep_spec = self.scalar = None
        self.joint, self._keeps = False, {}

    def keeps(self, slots: tuple) -> tuple:
        """(indices of the inputs that the rules of the active inputs read, do they read the output?); once a pattern."""
        key = tuple([s is not None for s in slots])
        found = self._keeps.get(key)
        if found is None:
            found = self._keeps[key] = self.keep_spec(key)
        return found

    def __repr__(self):
        return f"<primitive {self.name}>"


OPEN = threading.local()  # `depth`: how many transforms are open in this thread; `shadows`: theirs (_shadow)


class Trace:
    """One open transform.  A later trace has a higher level, so the innermost acts first.

    All fields of all traces stand here, for a trace that ends changes its class to `Ended`."""

    __slots__ = ("level", "risen", "records", "copies", "trusted", "saved_bytes", "paused", "swept", "layouts", "look")
    levels = itertools.count(1)
    short = None  # a tape's method
    lent = False  # is it a loan (_loans.py)?

    def __init__(self):
        self.level, self.risen = next(Trace.levels), []

    def close(self) -> None:
        """End the transform.  Handles that rose to this level, because one of its values was written into them, fall back;
        Variables that leaked out of it are from now on the values that they wrap."""
        self.__class__ = Ended
        for x in self.risen:
            if x._trace is self:
                below = x._value
                if isinstance(below, Variable):
                    saved = is_saved(x)
                    x._become(below)
                    x._saved = saved
                    if below._trace is not None:
                        below._trace.risen.append(x)
                else:
                    x._trace = x._slot = None
                    x._version = getattr(x, "_version", 0) + 1
        self.risen = []

    def release(self) -> None:
        """Let go of all that was kept."""
        self.records, self.copies, self.layouts = [], {}, {}


class Ended(Trace):
    """A trace after its transform: its Variables are their values."""

    __slots__ = ()

    def apply(self, prim, args, params):
        return bind(prim, [a._value if isinstance(a, Variable) and a._trace is self else a for a in args], params)


def bind(prim: Primitive, args: Any, params: dict) -> Any:
    """The general way to apply a primitive: any number of arguments, any trace."""
    top, level, handles, objects = None, 0, False, False
    for a in args:
        c = type(a)
        if c is View:
            if a._seen != a._base._version:
                refresh(a)
        elif c is not Variable:
            if c is np.ndarray and a.dtype is OBJECTS:
                objects = True
            continue
        handles = True
        t = a._trace
        if t is not None and t.level > level:
            top, level = t, t.level
    if objects and handles:  # its elements may be tracked by whatever trace
        return bind(prim, [argument(a) for a in args], params)
    if top is not None:
        out = top.apply(prim, args, params)
        return both_saved(args, out) if prim.aliases else out
    if not handles:
        return prim.run(*args, **params)
    out = prim.run(*[a._value if isinstance(a, Variable) else a for a in args], **params)
    out = tuple([handle(o) for o in out]) if type(out) is tuple else handle(out)
    return both_saved(args, out) if prim.aliases else out


def both_saved(args: Any, out: Any) -> Any:
    """The output may lie in the memory of an input: the next write to either moves away from it."""
    for x in (*args, *(out if type(out) is tuple else (out,))):
        if isinstance(x, Variable):
            x._saved = True
    return out


def lower(a: Any, trace: Trace) -> tuple:
    """What `a` is below `trace`, and its slot there (None: a constant)."""
    if not isinstance(a, Variable):
        return argument(a), None
    if a._trace is trace:
        return a._value, a._slot
    if a._trace is None:
        return a._value, None
    return (a._trace.now(), None) if a._trace.lent else (a, None)


def handle(x: Any) -> Any:
    """A constant result as a Variable of level 0, so that it may be written with tracked values; integers stay plain."""
    if isinstance(x, Variable) or getattr(x, "dtype", np.dtype(object)).kind not in "fc":
        return x
    return variable(x)


def live(x: Variable) -> Variable:
    """x, or the value under it where its transforms have ended, with views read."""
    if type(x) is View and x._seen != x._base._version:
        refresh(x)
    while isinstance(x._trace, Ended):
        below = x._value
        if not isinstance(below, Variable):
            y = variable(below)
            y._saved = True
            return y
        x = below
    return x


def plain(x: Any) -> Any:
    """The plain array or number under a Variable; anything else as it is."""
    if type(x) is View and x._seen != x._base._version:
        refresh(x)
    return bottom(x)


def settled(x: View) -> Variable:
    """A view read and frozen, for use as a value."""
    if x._seen != x._base._version:
        refresh(x)
    return frozen(x)


def is_tracked(x: Any) -> bool:
    """Does an open transform watch x?"""
    return isinstance(x, Variable) and live(x)._trace is not None


# Views and writes.  (`Trace.read` is the short way to record READ.)  A view of a view is a view of the base by a longer path, so
# that reading or writing any view costs its region, whatever lies between.  Bodies and rules of these three stand in
# ops/indexing.py.
READ = Primitive("read", None)  # (x; path, at, copy)
ASSIGN = Primitive("assign", None, writes=True)  # (x, y; path, at)
ADD_AT = Primitive("add_at", None, writes=True)  # (x, y; path, at)


def view(x: Variable, step: tuple) -> View:
    """The view of x by one more step; it is read when it is first used."""
    y = new_view(View)
    if type(x) is View:
        y._base = x._base
        y._path = x._path + (step,)
    else:
        y._base = x
        y._path = (step,)
        try:
            x._version  # noqa: B018 (unset until it matters)
        except AttributeError:
            x._version = 0
    y._seen = -1
    y._value = y._trace = y._slot = None
    return y


TRANSPOSED = ("transpose", (1, 0))


def turned(x: Variable) -> View:
    """The transpose of a matrix.  Until it is read, the place of its value holds x, from which it may be read."""
    y = view(x, TRANSPOSED)
    y._value = x
    return y


def unread_transpose(y: View) -> Variable | None:
    """The matrix of which y, made by `turned` and not yet read, is the transpose, if it may be read from that by alias: nothing
    was written, and one tape is open at most."""
    source = y._value
    if y._base._version:
        return None
    if type(source) is View and source._seen:
        refresh(source)
    trace = source._trace
    return source if type(source._value) is np.ndarray and (trace is None or trace.short is not None) else None


def refresh(y: View) -> None:
    """Read the base again: by alias while it was never written (then it must not be written where it lies), else by copy."""
    base = y._base
    source = unread_transpose(y) if y._seen == -1 and y._value is not None else None
    if source is not None:
        base._saved = True
        y._value, y._trace, y._seen = source._value.T, source._trace, 0
        y._slot = None if y._trace is None else y._trace.short(READ.vjp[1], source._slot)
        return
    hot = base._version > 0
    if not hot:
        base._saved = True
    value, trace = base._value, base._trace
    if type(value) is np.ndarray and not isinstance(trace, Ended):  # one level at most: the short way
        y._value = READ.run(value, path=y._path, at=None, copy=hot)
        y._trace, y._slot = trace, None if trace is None else trace.read(base._slot, value, y._path, None, hot)
        y._seen = base._version
        return
    now = bind(READ, (base,), {"path": y._path, "at": None, "copy": hot})
    if isinstance(now, Variable):
        y._value, y._trace, y._slot = now._value, now._trace, now._slot
    else:
        y._value, y._trace, y._slot = now, None, None
    y._seen = base._version


def own(x: Variable) -> None:
    """Move the handle to memory of its own before it is written, unless nobody else can hold it."""
    if getattr(x, "_version", 0) and not is_saved(x):
        return
    if id(x) in getattr(OPEN, "aliased", ()):
        raise AliasError(
            "an argument that shares memory with another argument is written: the other would have to change with it; "
            "pass x.copy(), or one array, and take views of it inside the function"
        )
    if not is_saved(x) and not has_tangent(x):
        b = bottom(x)
        if is_array(b) and b.base is None and b.flags.c_contiguous | b.flags.f_contiguous:
            x._version = getattr(x, "_version", 0) + 1
            return
    if not getattr(x, "_version", 0):
        for shadow in getattr(OPEN, "shadows", ()):
            shadow.first_write(x)
    x._become(copied(x))


def is_itself(source: tuple, path: tuple, at: Any) -> bool:
    """Is the view by the steps `source` the region `at` of the view by the steps `path`?  (`at` may hold arrays, steps do not.)"""
    if at is Ellipsis and source == path:
        return True
    if len(source) != len(path) + 1 or source[-1][0] != "at" or source[:-1] != path:
        return False
    step = source[-1][1]
    if type(step) is tuple and type(at) is tuple and len(step) == len(at):
        return all([type(i) is type(j) and i == j for i, j in zip(step, at, strict=True)])
    return type(step) is type(at) is not tuple and step == at


def write(prim: Primitive, x: Variable, y: Any, at: Any) -> None:
    """Apply ASSIGN or ADD_AT to the region `at` of the handle x: in place at the bottom, and for every level above."""
    base, path = (x._base, x._path) if type(x) is View else (x, ())
    if base._trace is not None and base._trace.lent:
        return base._trace.write(prim, base, path, y, at)
    if type(base._trace) is Ended:
        base._become(frozen(live(base)))
        base._saved = True
    if type(y) is View:
        if y._base is base and prim is ASSIGN and is_itself(y._path, path, at):
            return  # x[1:] += y ends with the assignment of a region to itself
        if y._seen != y._base._version:
            refresh(y)
    own(base)
    if y is base:
        y = copied(base)
    elif type(y) is View and y._base is base:
        refresh(y)  # the base is hot now: a copy, so that the right side is read first
    out = bind(prim, (base, y), {"path": path, "at": at})
    if not isinstance(out, Variable):
        out = variable(out)
    trace = out._trace
    if trace is not None and trace is not base._trace:
        trace.risen.append(base)
    base._become(out)
