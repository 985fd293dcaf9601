"""Primitive: an array operation with its derivative rules; Trace: one open transform; bind: apply the one to
the other.

`bind` hands a primitive to the innermost trace among its arguments; that trace lowers the arguments and binds
again, one level down, until no trace is left and NumPy or CuPy runs.  Most operations of one or two arguments
take a shorter way, a function generated for them in _dispatch.fast, which does the same."""

import itertools
import weakref
from typing import Any

import numpy as np

from .arrays import IMMUTABLE, NARROW, address, is_array, is_narrow, widened
from .errors import AliasError, callers_code, callers_line, quoted
from .foreign import argument, as_array
from .scope import OPEN, WATCHERS
from .typing import AnyDict, AnyFunction, AnyList, AnyTuple, Params
from .variable import (
    HANDLES,
    SUBARRAYS,
    PlainSubarray,
    Subarray,
    Variable,
    View,
    bottom,
    copied,
    frozen,
    has_tangent,
    is_saved,
    new,
    variable,
)


class Primitive:
    """`run` is the plain array body.  `vjp` holds a reverse rule for each input (or one joint rule), `jvp`
    the forward rule. `pull` replaces `vjp` for the operations on regions, which work on a buffer's cotangent
    where it lies.  `writes`: input 0 is altered in place and is the output.  `multi`: the output is a tuple
    of this length.  `aliases`: the output may share memory with an input, so both ends are marked as saved,
    and whichever is written first moves away.  `scalar` and the words after it are those of the declaration
    (`ops.declare.primitive`), which every executor reads.  `declared`: it is an operation of tapegrad's own.
    `opened`: the same of other operations, for a recording of large arrays.  `narrow`: the dtypes of operands
    of an elementwise operation that are converted first, if one is tracked.

    `same`, `linear`: what the words of its declaration say.  `multilinear`: linear in each of its inputs.
    `batch` says how the body does many samples at once, each array with a first axis for them; it is one of
    the following, or None (sample by sample), or a function (run, stacked arrays, params), which may give
    NotImplemented (sample by sample), or a `Way` (_transforms/batching/rules.py), which is told what the
    samples share:
      "elementwise"  each element of the result is made of those in its place (as broadcast) in the operands
      "axis"         it acts along the axes that its settings `axis` or `axes` name (None: all), which move on
      by one "matrix"       it acts on the last axes, however many stand before "moves"        each element of
      the result is one of the operands', or 0, which does not depend on values "inside"       its body is
      made of operations, which are batched each by itself
    A word is a claim: tests/vmap/test_batching_declarations.py proves those of all operations."""

    __slots__ = (
        *(
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
        ),
        *(
            "aliases",
            "same",
            "linear",
            "multilinear",
            "batch",
            "scalar",
            "ufunc",
            "total",
            "rough",
            "reduces",
            "known_as",
            "by_values",
        ),
        *("declared", "external", "opened", "narrow"),
    )
    vjp: Any
    jvp: Any
    pull: Any
    call: Any
    keep_spec: Any
    batch: Any
    scalar: Any
    _keeps: dict[AnyTuple, AnyTuple]

    def __init__(
        self,
        name: str,
        run: Any,
        shapes: Any = (),
        writes: Any = False,
        multi: Any = 0,
        infix: Any = None,
        holomorphic: Any = True,
        aliases: Any = False,
    ) -> None:
        self.name, self.run, self.shapes, self.writes, self.multi, self.infix = (
            name,
            run,
            shapes,
            writes,
            multi,
            infix,
        )
        self.holomorphic, self.aliases, self.known_as = holomorphic and not multi, aliases, name
        self.vjp = self.jvp = self.pull = self.keep_spec = self.batch = self.scalar = self.ufunc = None
        self.reduces = self.opened = None
        self.narrow = NARROW
        self.joint = self.same = self.linear = self.multilinear = self.total = self.rough = self.declared = (
            self.external
        ) = self.by_values = False
        self._keeps = {}

    def keeps(self, slots: AnyTuple) -> AnyTuple:
        """(indices of the inputs that the rules of the active inputs read, do they read the output?); once a
        pattern."""
        key = tuple([s is not None for s in slots])
        found = self._keeps.get(key)
        if found is None:
            found = self._keeps[key] = self.keep_spec(key)
        return found

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


def watching() -> bool:
    return bool(WATCHERS) and OPEN.watcher is not None


def watched(trace: "Trace") -> Any:
    """The trace, known to who looks at each operation of this thread."""
    if WATCHERS and OPEN.watcher is not None:
        OPEN.watcher.opened(trace)
    return trace


# What a trace shows of its values: all; shape, dtype and memory order of one of many samples, or of a
# recording, which tells values on condition that they stay so; or nothing else.
VISIBLE, SAMPLED, RECORDED, HIDDEN = range(4)
NOTHING: Params = {}


class Trace:
    """One open transform.  A later trace has a higher level, so the innermost acts first.

    A trace says what an operation is at its level: by `apply`, or by `step`, which gets the arguments
    lowered; one of the two is to be overridden.  A Variable of it has the value one level down.  The fields
    in `__slots__` are those of all traces and of tapes, which are read most; others may have fields of their
    own, for a trace that ends changes its class to `EndedTrace`.

    `single`, `pair` and `element` are short ways of `step`, which generated entry points and `_dispatch.fast`
    take. The last one may answer that it has not done it."""

    __slots__ = (
        *("level", "risen", "__dict__", "__weakref__"),
        *("records", "copies", "trusted", "saved_bytes", "swept", "layouts", "look"),
        "searches",
    )
    level: float
    searches: AnyDict  # place of a comparison -> what is known of those there (_core/searches.py)
    risen: list[Variable]
    records: Any
    copies: AnyDict
    layouts: dict[int, tuple[Any, AnyTuple]]  # id of a value -> that, and its layout
    levels = itertools.count(1)
    visibility = VISIBLE
    lent = False  # is it a loan (_core/lent_memory.py)?
    # the ranks that share its arguments, once one of its values was combined over them (parallel/ranks.py)
    over_ranks: Any = None
    swept_in: Any = None  # the tape during whose sweep it is swept
    # Are its slots arrays, which belong to the handle as its value does?  Then `copied_slot(slot, x)` copies
    # one, and
    # `laid_slot(slot, value)` gives it in the memory order of `value`, `memory(slot)` the array.
    holds = False

    def __init__(self) -> None:
        self.level, self.risen, self.searches = next(Trace.levels), [], {}
        if self.visibility:
            OPEN.hiding = (*OPEN.hiding, self)

    def conditions(self) -> int:
        """Return how many conditions on hidden values hold this transform to what it has done."""
        return 0

    def drop_conditions(self, count: int) -> None:
        """Keep that many conditions: nothing depends on the answers to later ones."""

    def without_derivatives(self, x: Variable) -> Variable:
        """x without the derivatives that its slot carries."""
        return x

    def close(self) -> None:
        """End the transform.  Handles that rose to this level, because one of its values was written into
        them, fall back; Variables that leaked out of it are from now on the values that they wrap.  May be
        repeated."""
        if self.visibility:
            OPEN.hiding = tuple([t for t in OPEN.hiding if t is not self])
        self.__class__ = EndedTrace
        self.fall()

    def end(self, error: Any) -> None:
        """(`_core.scope.close`) The transform is over, in order or not."""
        self.close()

    def fall(self) -> None:
        """Handles that rose to this level become what they are one level down."""
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

    def values(self, x: Variable) -> Any:
        """What x is one level down.  A trace that hides its values may answer, answer on condition that they
        stay so, or refuse."""
        return x._value

    def held(self, x: Variable) -> Any:
        """What x is one level down, of a trace that hides its values, for who does not hand it on; None:
        nobody knows."""
        return None

    def truth(self, x: Variable) -> bool:
        """The truth of x, one element of a trace that hides its values; likewise."""
        return bool(values_of(x))

    def picks(self, x: Variable) -> bool:
        """Is the index x, whose values this trace hides, an operand of what is read or written by it?  Else
        its values are asked for."""
        return False

    def is_number(self, x: Variable) -> bool:
        """Is x, whose values this trace hides, a plain number of the caller's, for which it may be asked?"""
        return False

    def seems_finite(self, x: Variable) -> bool:
        """Are all values of x finite, as far as the trace knows without an operation?"""
        return False

    def draws(self, name: str) -> None:
        """A random generator from outside is about to draw.  A trace that runs the function once for many
        times may refuse, or note it as an operation (`draw`)."""

    def external(self, what: str, group: Any) -> None:
        """An operation is about to exchange data with other processes of a group (`exchanges.py`).  It must
        run once in each call."""

    def freeze(self, x: Any) -> None:
        """What is computed now depends on the present content of the plain array x: an operation takes it as
        a constant, or a kernel was compiled with it."""

    def looped(self, name: str) -> None:
        """Under this trace a `vmap` runs this operation on one sample after the other."""

    def loss(self) -> AnyFunction | None:
        """What makes the error that says why nobody knows the derivatives of its Variables; None where the
        trace does.

        (An error counts as raised from the moment it is made.)"""
        return None

    def adopt(self, x: Variable) -> None:
        """An array that the function captured: the trace may make it its own."""

    def apply(self, prim: "Primitive", args: Any, params: Params) -> Any:
        """The operation at this level."""
        inputs, slots = zip(*[lower(a, self) for a in args], strict=True)
        return self.step(prim, args, inputs, slots, params)

    def step(self, prim: "Primitive", args: Any, inputs: Any, slots: Any, params: Params) -> Any:
        """What `apply` does, with the arguments lowered."""
        return self.apply(
            prim, [a if isinstance(a, Variable) else v for a, v in zip(args, inputs, strict=True)], params
        )

    def single(self, prim: "Primitive", x: Variable, v: Any, i: Any) -> Any:
        """The same with one argument, of the value v and the slot i, and without settings."""
        return self.step(prim, (x,), (v,), (i,), NOTHING)

    def pair(self, prim: "Primitive", a: Any, b: Any, v: Any, w: Any, i: Any, j: Any) -> Any:
        """The same with two."""
        return self.step(prim, (a, b), (v, w), (i, j), NOTHING)

    def element(self, x: Variable, at: Any) -> Any:
        """The element x[at] of an array, or None."""

    def release(self) -> None:
        """Let go of all that was kept."""
        self.records, self.copies, self.layouts = [], {}, {}


class TransparentTrace(Trace):
    """A trace whose Variables are read as the values under them."""

    __slots__ = ()

    def apply(self, prim: Any, args: Any, params: Params) -> Any:
        return bind(
            prim,
            [self.beneath(a) if isinstance(a, Variable) and a._trace is self else a for a in args],
            params,
        )

    def beneath(self, x: Variable) -> Any:
        """The value as which x is read."""
        return x._value

    def values(self, x: Variable) -> Any:
        return self.beneath(x)


class EndedTrace(TransparentTrace):
    """A trace after its transform: its Variables are their values."""

    __slots__ = ()

    def close(self) -> None:
        self.fall()


HOOKS: AnyList = []
WIDE = frozenset((float, int, np.float64))  # classes of numbers in which rules can compute


def hook(f: Any) -> Any:
    """The function may get another body, which does the same sooner (_dispatch.fast)."""
    HOOKS.append(f)
    return f


def bind(prim: Primitive, args: Any, params: Params) -> Any:
    """The general way to apply a primitive: any number of arguments, any trace."""
    top, level, handles, others, narrow = None, 0, False, False, False
    for a in args:
        c = type(a)
        if c is View:
            if a._seen != a._base._version:
                refresh(a)
        elif c not in HANDLES:
            if (code := a.dtype.char) == "O" if c is np.ndarray else c is list or c is tuple:
                others = True
            elif code in prim.narrow if c is np.ndarray else c not in WIDE and is_narrow(a, prim.narrow):
                narrow = True
            continue
        handles = True
        t = a._trace
        if t is not None and t.level > level:
            top, level = t, t.level
    if others and handles:  # their elements may be tracked by whatever trace
        return bind(prim, [as_array(a) for a in args], params)
    if top is not None:
        if narrow and prim.batch == "elementwise":
            args = wide_operands(args, prim.narrow)
        out = top.apply(prim, args, params)
        return both_saved(args, out) if prim.aliases else out
    if not handles:
        return prim.run(*args, **params)
    out = prim.run(*[a._value if isinstance(a, Variable) else a for a in args], **params)
    out = handles_of(out)
    return both_saved(args, out) if prim.aliases else out


def wide_operands(args: Any, codes: frozenset[str] = NARROW) -> Any:
    """The operands, of which one is tracked, those of these dtypes in one in which rules can compute."""
    others = [layout_of(a).dtype for a in args if type(a) in HANDLES]
    return [widened(a, others[0]) if others and is_narrow(a, codes) else a for a in args]


def both_saved(args: Any, out: Any) -> Any:
    """The output may lie in the memory of an input: the next write to either moves away from it."""
    for x in (*args, *(out if type(out) is tuple else (out,))):
        if isinstance(x, Variable):
            x._saved = True
    return out


def lower(a: Any, trace: Trace) -> AnyTuple:
    """What `a` is below `trace`, and its slot there (None: a constant)."""
    if not isinstance(a, Variable):
        return argument(a), None
    if a._trace is trace:
        return a._value, a._slot
    if a._trace is None:
        return a._value, None
    return (a._trace.now(), None) if a._trace.lent else (a, None)


def handle(x: Any) -> Any:
    """A constant result as a Variable of level 0, so that it may be written with tracked values; integers
    stay plain."""
    if isinstance(x, Variable) or getattr(x, "dtype", np.dtype(object)).kind not in "fc":
        return x
    return variable(x)


def handles_of(out: Any) -> Any:
    """Return `handle` of a result, or of each one of a tuple."""
    return tuple([handle(o) for o in out]) if type(out) is tuple else handle(out)


def path_to_owner(x: Variable) -> AnyTuple:
    """Return the handle that owns the memory of x, and the steps from there to x."""
    return (x._base, x._path) if type(x) is View else (x, ())


def joint_primitive(
    name: str, run: Any, pull: Any, push: Any, reads_output: bool = True, multi: int = 0
) -> Primitive:
    """Return an operation with one reverse rule for all inputs, which keeps all of them.

    The operation refers to its rules, and they must not refer to the operation: there is no reference
    cycle."""
    prim = Primitive(name, run, multi=multi)
    prim.holomorphic, prim.joint = False, True
    prim.keep_spec = lambda active: (tuple(range(len(active))), reads_output)
    prim.vjp, prim.jvp = (pull,), push
    return prim


def live(x: Variable) -> Variable:
    """x, or the value under it where its transforms have ended, with views read."""
    if type(x) is View and x._seen != x._base._version:
        refresh(x)
    while isinstance(x._trace, TransparentTrace):
        below = x._trace.beneath(x)
        if not isinstance(below, Variable):
            y = variable(below)
            y._saved = True
            return y
        x = below
    return x


# What lies under a Variable is asked for in one of four ways.  A rule that chooses by values chooses by
# operations on `primal_of`, so that it is right under a trace that hides them too.


def layout_of(x: Any) -> Any:
    """What lies under all levels of x, for its shape, dtype, library and memory order: its elements may be
    nobody's values. Anything else as it is."""
    if type(x) is View and x._seen != x._base._version:
        refresh(x)
    return bottom(x)


def values_of(x: Any) -> Any:
    """The plain array or number under a Variable, for which each trace is asked; anything else as it is."""
    if type(x) is View and x._seen != x._base._version:
        refresh(x)
    while isinstance(x, Variable):
        trace = x._trace
        x = trace.values(x) if trace is not None and trace.visibility else x._value
    return x


def primal_of(x: Any) -> Any:
    """x without its derivatives, those beneath a `vmap` included: the plain array or number, or a Variable
    of the trace that hides it."""
    if type(x) is View and x._seen != x._base._version:
        refresh(x)
    while isinstance(x, Variable):
        trace = x._trace
        if trace is not None and trace.visibility:
            return trace.without_derivatives(x)
        x = x._value
    return x


def seen(x: Any) -> Any:
    """The values of x where they may be looked at, else None: no trace hides them, and they are not on a
    device, which would have to be waited for."""
    x = primal_of(x)
    return x if issubclass(type(x), (np.ndarray, np.generic)) else None


def truth_of(x: Any) -> bool:
    x = primal_of(x)
    return x._trace.truth(x) if isinstance(x, Variable) else bool(x)


def frozen_view(x: View) -> Variable:
    """A view read and frozen, for use as a value."""
    if x._seen != x._base._version:
        refresh(x)
    return frozen(x)


def is_tracked(x: Any) -> bool:
    """Does an open transform watch x?"""
    if not isinstance(x, Variable):
        return False
    x = live(x)
    return x._trace is not None and not (x._trace.visibility == SAMPLED and x._trace.is_plain(x))


def has_derivative(x: Any) -> bool:
    """Does an open transform differentiate by x?"""
    return is_tracked(x) and primal_of(x) is not live(x)


def holds_variable(
    xs: Any,
    test: AnyFunction | None = None,
    others: AnyFunction | None = None,
    inside: AnyTuple = (list, tuple, dict),
) -> bool:
    """Is a Variable among xs, or in the containers there, which are of the classes `inside`?  If `test` is
    given, only Variables that pass it count.  `others(x)` answers for an object of another class."""
    for x in xs:
        kind = type(x)  # (`isinstance` would ask a Variable for its class)
        if kind in HANDLES:
            if test is None or test(x):
                return True
        elif kind is np.ndarray and others is None or kind in IMMUTABLE:
            continue
        elif issubclass(kind, inside):
            if holds_variable(x.values() if issubclass(kind, dict) else x, test, others, inside):
                return True
        elif issubclass(kind, Subarray) and holds_variable((x._array,), test):
            return True
        elif others is not None and others(x):
            return True
    return False


def any_tracked(xs: Any) -> bool:
    return holds_variable(xs, is_tracked)


def nests_variable(x: Any) -> bool:
    """Is x a Variable, or one of the elements of a nested sequence x?"""
    return holds_variable((x,), inside=(list, tuple))


def is_subarray(x: Any) -> bool:
    return issubclass(type(x), (Subarray, PlainSubarray))


def holds_subarray(xs: Any) -> bool:
    """Is a subarray among xs, or in the containers there?"""
    return bool(SUBARRAYS) and holds_variable(xs, lambda x: False, is_subarray)


# Views and writes.  A view of a view is a view of the base by a longer path, so
# that reading or writing any view costs its region, whatever lies between.  Bodies and rules of these three
# stand in ops/indexing.py.
READ = Primitive("read", None)  # (x; path, at, copy)
ASSIGN = Primitive("assign", None, writes=True)  # (x, y; path, at)
ADD_AT = Primitive("add_at", None, writes=True)  # (x, y; path, at)


def view(x: Variable, step: AnyTuple) -> View:
    """The view of x by one more step; it is read when it is first used."""
    y = new(View)
    if type(x) is View:
        y._base = x._base
        path = x._path + (step,)
        y._path = path if len(path) < LONG_PATH_STEPS else shortened(x._base, path)
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


LONG_PATH_STEPS = 5  # steps
PLACES = frozenset(("at", "reshape", "transpose", "window"))  # steps that only choose elements, each once


def shortened(base: Variable, path: AnyTuple) -> AnyTuple:
    """A long path as one step or two, where it leads to a part of an array that lies in order: so a view of a
    view of a view costs as much as a view."""
    b = bottom(base)
    if not PLACES.issuperset([kind for kind, _ in path]) or not is_array(b) or not b.flags.forc:
        return path
    r = READ.run(b, path=path, at=None, copy=False)
    first, size = address(r) - address(b), b.itemsize
    if not r.size or r.dtype != b.dtype or not 0 <= first < b.nbytes:  # nothing, or a reshaped copy
        return path
    turned = () if b.flags.c_contiguous else (("transpose", tuple(range(b.ndim))[::-1]),)
    return (*turned, ("window", (r.shape, first // size, tuple([s // size for s in r.strides]))))


@hook
def refresh(y: View) -> None:
    """Read the base again: by alias while it was never written (then it must not be written where it lies),
    else by copy."""
    base = y._base
    hot = base._version > 0
    if not hot:
        base._saved = True
    now = bind(READ, (base,), {"path": y._path, "at": None, "copy": hot})
    if isinstance(now, Variable):
        y._value, y._trace, y._slot = now._value, now._trace, now._slot
    else:
        y._value, y._trace, y._slot = now, None, None
    y._seen = base._version


def own_memory(x: Variable) -> None:
    """Move the handle to memory of its own before it is written, unless nobody else can hold it."""
    if getattr(x, "_version", 0) and not is_saved(x):
        return
    if id(x) in OPEN.aliased:
        raise AliasError(
            f"{callers_line()}: {quoted(callers_code())}an array is written that shares memory with "
            "another argument, or with a view of another dtype: the other would have to change with it; take "
            "x.copy(), or pass one array, and take views of it inside the function"
        )
    if not is_saved(x) and not has_tangent(x):
        b = bottom(x)
        if is_array(b) and b.base is None and b.flags.c_contiguous | b.flags.f_contiguous:
            x._version = getattr(x, "_version", 0) + 1
            return
    if not getattr(x, "_version", 0):
        for shadow in OPEN.shadows:
            shadow.first_write(x)
    for copies in OPEN.copies:
        copies.append((weakref.ref(b := bottom(x)), callers_line(), b.nbytes))
    x._become(copied(x))


def is_itself(source: AnyTuple, path: AnyTuple, at: Any) -> bool:
    """Is the view by the steps `source` the region `at` of the view by the steps `path`?  (`at` may hold
    arrays, steps do not.)"""
    if at is Ellipsis and source == path:
        return True
    if len(source) != len(path) + 1 or source[-1][0] != "at" or source[:-1] != path:
        return False
    step = source[-1][1]
    if type(step) is tuple and type(at) is tuple and len(step) == len(at):
        return all([type(i) is type(j) and i == j for i, j in zip(step, at, strict=True)])
    return type(step) is type(at) is not tuple and step == at


def write(prim: Primitive, x: Variable, y: Any, at: Any) -> None:
    """Apply ASSIGN or ADD_AT to the region `at` of the handle x: in place at the bottom, and for every level
    above."""
    base, path = path_to_owner(x)
    if base._trace is not None and base._trace.lent:
        base._trace.write(prim, base, path, y, at)
        return
    if isinstance(base._trace, EndedTrace):
        base._become(frozen(live(base)))
        base._saved = True
    if type(y) is View:
        if y._base is base and prim is ASSIGN and is_itself(y._path, path, at):
            return  # x[1:] += y ends with the assignment of a region to itself
        if y._seen != y._base._version:
            refresh(y)
    own_memory(base)
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
