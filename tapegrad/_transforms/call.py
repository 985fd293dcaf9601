"""One call of a transform: how arguments are watched, how f is run once, how results are checked and handed
out.

Reading order: names and numbers; `Inputs`; results; `run_once`; `RecordedCall` (reverse) and
`run_forward`."""

import functools
import math
import re
import sys
import types
from collections.abc import Collection
from typing import Any

import numpy as np

from .._capture import THREADS, Shadow, memory_of, mine, protect
from .._core import reverse as reverse
from .._core.arrays import (
    copy_with_layout,
    is_array,
    is_differentiable,
    may_share_memory,
    memory_owner,
    owned,
    xp_of,
)
from .._core.errors import (
    ArgumentError,
    DeviceError,
    NoRuleError,
    NotScalarError,
    ShapeError,
    TapegradError,
    heard_error,
    raise_swallowed,
)
from .._core.float_errors import unwatch, watch_errors
from .._core.foreign import REMEDIES, argument, check_constants, library_of
from .._core.forward import Dual
from .._core.primitive import SAMPLED, Trace, handle, layout_of, live, values_of, watched
from .._core.scope import OPEN, WATCHERS, scope_block
from .._core.searches import tell_searches
from .._core.trees import (
    LEAVES,
    Const,
    children,
    describe_tree,
    is_builtin,
    is_node,
    leaves,
    members_like,
    steps,
    tree_map,
    with_leaves,
    without_subarrays,
)
from .._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple
from .._core.variable import DIRECT, FLOAT, HANDLES, Variable, bottom, copied, frozen, variable
from .._dispatch.faces import has_objects
from ..ops import shaping
from ..ops.declare import dtype, shape, xp
from ..ops.linalg.degenerate_spectra import free_of_gauge

# --- arguments and results ---


def user_name(f: Any) -> str:
    if type(f) is types.FunctionType:
        return f.__name__
    while isinstance(f, (functools.partial, Const)):
        f = f.func if isinstance(f, functools.partial) else f.value
    return getattr(f, "__name__", type(f).__name__)


def where_of(f: Any) -> str:
    """' (defined at file:line)', or nothing."""
    code = getattr(getattr(f, "__wrapped__", f), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


USAGE = {"vjp": "vjp(f, x)", "jvp": "jvp(f, (x,), (v,))", "hvp": "hvp(f, x, v)", "hmp": "hmp(f, x, V)",
"linearize": "linearize(f, x)",
         "value_grad_hvp": "value_grad_hvp(f, x, v)", "prepare": "prepare(f, x)", "rule": "rule(f, vjp=..)",
         "inplace": "inplace(f, like)", "stateful": "stateful(f, a)"}  # fmt: skip


def check_function(call: str, f: Any) -> None:
    """Is f a function?  `call`: the name of what was called."""
    if callable(f.value if type(f) is Const else f):
        return
    f = f.value if type(f) is Const else f
    what = (
        describe_tree(f)
        if isinstance(f, (float, complex, Variable, np.generic)) or is_array(f)
        else repr(f)[:60]
    )
    usage = USAGE.get(call, f"{call}(f)(x)")
    maybe = (
        ", perhaps a value f(x)"
        if is_array(layout_of(f)) or isinstance(layout_of(f), (float, complex, np.generic))
        else ""
    )
    raise ArgumentError(
        f"{call}: the first argument is {what}{maybe}, not a function. Give the function itself: {usage}"
    )


def checked_argnums(call: str, argnums: Any) -> int | AnyTuple:
    """`argnums` in Python's numbers: an int, or a tuple of ints."""
    if type(argnums) is int:
        return argnums
    several = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    if not several or not all(
        [isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in several]
    ):
        what = (
            repr(argnums)
            if isinstance(argnums, (str, int, float, bool, tuple, list, type(None)))
            else describe_tree(argnums)
        )
        usage = USAGE.get(call)
        hint = (
            f"Arguments of f go to what {call} returns: {call}(f)(x)"
            if usage is None
            else f"Write {usage[:-1]}, argnums=0)"
        )
        raise ArgumentError(
            f"{call}: argnums is {what[:60]}; it is an int, or a tuple of ints: the positions of the "
            f"arguments to differentiate. {hint}"
        )
    numbers = tuple([int(n) for n in several])
    return numbers if several is argnums else numbers[0]


def all_positions(call: str, argnums: int | AnyTuple | None, primals: AnyTuple) -> int | AnyTuple:
    """`argnums` of a call that differentiates by all primals where it names none."""
    if argnums is None:
        return 0 if len(primals) == 1 else tuple(range(len(primals)))
    return checked_argnums(call, argnums)


def numpy_number(x: Any) -> Any:
    """An active Python number as one of NumPy's."""
    return np.float64(x) if type(x) is float else np.complex128(x) if type(x) is complex else x


def writable_value(x: Variable) -> Variable:
    """The value of a handle, for a function that may write its argument."""
    return x._trace.taken(x) if x._trace is not None and x._trace.visibility == SAMPLED else frozen(x)


def enter_leaf(x: Any, call: str = "") -> Any:
    """An argument leaf as a value that nobody else alters: plain arrays are copied, Variables frozen."""
    if type(x) is np.ndarray:
        return copy_with_layout(x)
    if isinstance(x, Variable):
        x = live(x)
        b = bottom(x)
        if x._trace is None:
            return copy_with_layout(b) if is_array(b) else b
        read_only = is_array(b) and xp_of(b) is np and not b.flags.writeable
        return copied(x) if read_only else writable_value(x)
    check_operators(f"{call}: an argument" if call else "an argument", x)
    return copy_with_layout(x) if is_array(x) else numpy_number(x)


OPERATORS = frozenset(("__add__", "__mul__", "__matmul__", "__array_ufunc__", "__array_function__"))


def check_operators(what: str, x: Any) -> None:
    """numpy.matrix, masked arrays and others compute other things than arrays of their numbers do."""
    kind = type(x)
    if kind is np.ndarray or not issubclass(kind, np.ndarray):
        return
    for c in kind.__mro__[: kind.__mro__.index(np.ndarray)]:
        if not OPERATORS.isdisjoint(c.__dict__):
            raise ArgumentError(
                f"{what} is of {kind.__module__}.{kind.__qualname__}, whose operators are not those of an "
                f"array, which tapegrad "
                "differentiates: pass numpy.asarray(x), of a masked array x.filled(...)"
            )


class Inputs:
    """The arguments of one call: which leaves are active, and how to build the tuple that f gets.  A key is
    the number of a leaf among those of the arguments that `argnums` names."""

    def __init__(self, call: str, argnums: int | AnyTuple, args: AnyTuple):
        self.call, self.args = call, args
        if type(argnums) is int and 0 <= argnums < len(args):
            self.single, self.nums = True, (argnums,)
        else:
            self.single, self.nums = isinstance(argnums, int), positions(call, argnums, len(args))
        self.flat: AnyList
        self.watched: AnyDict = {}  # key -> value of the active leaf
        self.given: AnyList = []  # (the caller's array, the handle that stands for it)
        self.fresh: AnyList = []  # trees made here that hold nothing but Variables and numbers
        self.outer = OPEN.aliased
        # the usual call
        if len(args) == 1 and type(args[0]) is np.ndarray and args[0].dtype.kind in "fc" and self.nums:
            self.flat, self.constants = [args], []
            return
        self.flat = [[a] if type(a) in LEAVES else leaves(a) for a in args]
        self.constants = [a.value for a in args if type(a) is Const]
        for n in self.nums:
            if not is_active(args[n]):
                self._check(n)

    def _check(self, n: int) -> None:
        a = self.args[n]
        if is_node(a):
            return
        if isinstance(a, Const):
            raise ArgumentError(
                f"{self.call}: argument {n} is marked Const, and argnums asks for its derivative"
            )
        library = library_of(type(a))
        if library in PLAIN_OF:
            raise ArgumentError(
                f"{self.call}: argument {n} is a {type(a).__name__} of {library}; tapegrad differentiates by "
                f"arrays of NumPy and CuPy, and by numbers: pass {PLAIN_OF[library]}"
            )
        known = is_array(layout_of(a)) or isinstance(a, np.generic)
        kind = f"dtype {dtype(a)}" if known else f"type {type(a).__name__}"
        hint = (
            f"pass float({a!r})"
            if type(a) in (int, bool)
            else "pass x.astype(float)"
            if known
            else "pass a float array"
        )
        raise ArgumentError(
            f"{self.call}: argument {n} has {kind}, which has no derivative; {hint}, or choose others with "
            f"argnums="
        )

    def rebuilt(self, a: Any, members: AnyList) -> Any:
        """An argument with these leaves."""
        if not is_node(a):
            return members[0]
        new = with_leaves(a, iter(members))
        if is_builtin(a) and all([isinstance(m, (Variable, float, int)) for m in members]):
            self.fresh.append(new)
        return new

    def enter(self, watch: AnyFunction) -> AnyList:
        """The arguments with every active leaf replaced by `watch(key, value)`; Const taken off."""
        if (
            len(self.args) == 1
            and type(x := self.args[0]) is np.ndarray
            and x.dtype.kind in "fc"
            and self.nums == (0,)
        ):
            value = self.watched[0] = copy_with_layout(x)
            v = watch(0, value)
            self.given.append((x, v))
            return [v]
        out = list(self.args)
        shared = (
            overlapping([x for xs in self.flat for x in xs]) if len(out) > 1 or len(self.flat[0]) > 1 else ()
        )
        aliased = {}
        key = 0
        for n in self.nums:
            x = self.args[n]
            if type(x) is np.ndarray and not shared and x.dtype.kind in "fc":
                value = self.watched[key] = copy_with_layout(x)
                out[n] = v = watch(key, value)
                self.given.append((x, v))
                key += 1
                continue
            members: AnyList = []
            for x in self.flat[n]:
                if is_active(x):
                    value = self.watched[key] = enter_leaf(x, self.call)
                    v = watch(key, value)
                    if is_array(x):
                        self.given.append((x, v))
                        if shared and id(x) in shared:
                            aliased[id(v)] = v
                    x = v
                elif isinstance(x, Const):
                    x = x.value
                elif type(x) not in PLAINLY:
                    check_constants(f"{self.call}: argument {n}", self.args[n])
                members.append(x)
                key += 1
            a = self.args[n]
            if not is_node(a):
                out[n] = members[0]
                continue
            out[n] = with_leaves(a, iter(members))
            if PLAINLY.issuperset(map(type, members)) and is_builtin(a):
                self.fresh.append(out[n])
        if shared:
            for n, a in enumerate(out):
                if id(a) in shared and n not in self.nums:
                    out[n] = v = variable(a)
                    v._saved, aliased[id(v)] = True, v
                    self.given.append((a, v))
            OPEN.aliased = {**self.outer, **aliased}
        return [a.value if isinstance(a, Const) else a for a in out] if self.constants else out

    def results(self, found: AnyDict) -> Any:
        """Per argument asked for, its tree with what was found for each key at the active leaves, and None
        elsewhere."""
        if self.single and type(self.args[self.nums[0]]) in LEAVES:
            return found.get(0)
        trees, key = [], 0
        for n in self.nums:
            a = self.args[n]
            end = key + len(self.flat[n])
            trees.append(with_leaves(a, map(found.get, range(key, end))) if is_node(a) else found.get(key))
            key = end
        return trees[0] if self.single else tuple(trees)


PLAIN_OF = {**REMEDIES, "pandas": "s.to_numpy()"}
PLAINLY = DIRECT | {float, int, complex, bool, str, type(None)}


def positions(call: str, argnums: int | AnyTuple, count: int) -> AnyTuple:
    """The arguments that `argnums` (of `checked_argnums`) names in a call with `count` arguments."""
    wanted = argnums if isinstance(argnums, tuple) else (argnums,)
    if not all([-count <= n < count for n in wanted]):
        hint = (
            ""
            if count
            else "; arguments by keyword are constants: pass by position what is to be differentiated"
        )
        raise ArgumentError(
            f"{call}: argnums={argnums!r} does not fit a call with {count} positional arguments{hint}"
        )
    found = tuple([n % count for n in wanted])
    if len(set(found)) < len(found):
        raise ArgumentError(f"{call}: argnums={argnums!r} names an argument twice")
    return found


def is_active(x: Any) -> bool:
    """Is this leaf of an argument one that has a derivative?"""
    kind = type(x)
    if kind is np.ndarray:
        return x.dtype.kind in "fc"
    return kind is float or is_differentiable(x) or (isinstance(x, Variable) and dtype(x).kind in "fc")


NOTHING: frozenset[Any] = frozenset()


def overlapping(arrays: AnyList) -> Collection[int]:
    """The ids of those plain arrays that share memory with another one of the list."""
    if len({id(a) for a in arrays}) == len(arrays) and all(
        [getattr(a, "base", None) is None for a in arrays]
    ):
        return NOTHING  # each has memory of its own
    roots: AnyDict = {}
    for a in arrays:
        if type(a) is np.float64 or type(a) is float:
            continue
        if is_array(a) and a.dtype.kind in "fc":
            roots.setdefault(id(memory_owner(a)), []).append(a)
    groups = [g for g in roots.values() if len(g) > 1]
    return {
        id(a)
        for g in groups
        for i, a in enumerate(g)
        if any(may_share_memory(a, b) for b in g[:i] + g[i + 1 :])
    }


COPIED_RESULT_BYTES = 4096  # bytes; to copy so little costs less than to ask whether that is needed


def constant_like(x: Any, c: float) -> Any:
    """A constant of the shape and dtype of x.  A number of NumPy's own is 6 times as fast as a 0-d array."""
    if type(x) is np.float64:
        return np.float64(c)
    x = layout_of(x)
    if not is_array(x):
        return dtype(x).type(c)
    if x.shape == () and xp_of(x) is np:
        return x.dtype.type(c)
    return xp_of(x).full(x.shape, c, x.dtype)


def derivative_out(g: Any, like: Any, plain: bool = False) -> Any:
    """A derivative for the caller: the kind and dtype of `like`, memory of its own, in C order; a Variable
    only within an outer transform. `plain`: there is none."""
    if plain or not OPEN.depth:  # the usual ones, told at once
        if type(like) is np.ndarray:
            if g is None:
                return np.zeros(like.shape, like.dtype)
            if type(g) is np.ndarray and g.dtype is like.dtype and g.nbytes <= COPIED_RESULT_BYTES:
                return g.copy()
        elif type(like) is type(g) is np.float64:
            return g
    if g is None:
        g = constant_like(like, 0)
    if isinstance(g, Variable):
        g = live(g)
        if g._trace is not None:
            want = dtype(like)
            g = frozen(g) if dtype(g) == want else shaping.fit_to_shape(g, shape(g), want)
            return g if not is_array(b := bottom(g)) or b.flags.c_contiguous else shaping.copy(g, "C")
        g = bottom(g)
    return plain_result(_plain_out(g, layout_of(like)))


def plain_result(a: Any) -> Any:
    """A plain result; within another transform as a Variable of level 0, for the user may write tracked
    values into it."""
    return handle(a) if OPEN.depth and is_array(a) else a


def _plain_out(g: Any, like: Any) -> Any:
    if not is_array(like):
        return dtype(like).type(g.item() if is_array(g) else g) if xp_of(g) is np else g
    if not is_array(g):
        return xp_of(like).asarray(g, dtype=like.dtype)
    if g.dtype != like.dtype:
        return (
            g.astype(like.dtype)
            if like.dtype.kind == "c" or g.dtype.kind != "c"
            else g.real.astype(like.dtype)
        )
    if g.base is None and g.nbytes > COPIED_RESULT_BYTES and sys.getrefcount(g) <= 5 and g.flags.c_contiguous:
        return g  # nobody else holds it: no copy
    return g.copy()


def value_out(y: Any) -> Any:
    """What a function returned, one level down, as a result for the caller."""
    if isinstance(y, Variable):
        y = live(y)
        if y._trace is not None:
            return frozen(y)
        y = bottom(y)
    return plain_result(owned(y)) if is_array(y) else np.float64(y) if type(y) is float else y


def plain_tree(y: Any) -> Any:
    """Auxiliary output: every Variable of an ended transform as its plain value."""

    def leaf(v: Any) -> Any:
        if has_objects(v):
            v = v.copy()
            v.reshape(-1)[:] = [plain_tree(e) for e in v.flat]
            return v
        return value_out(v) if isinstance(v, Variable) else v

    return tree_map(leaf, without_subarrays(y))


def lowered_leaf(y: Any, trace: Trace) -> AnyTuple:
    """(value below `trace`, slot or None) of one output leaf, read while the trace is open."""
    if type(y) in DIRECT and y._trace is trace:
        return y._value, y._slot
    if isinstance(y, Variable):
        y = live(y)
        if y._trace is trace:
            return y._value, y._slot
        if y._trace is not None and (loss := y._trace.loss()) is not None:
            raise loss()
        return (frozen(y) if y._trace is not None else bottom(y)), None
    return y, None


def returned(y: Any) -> Any:
    """What a function returned, with object arrays of tracked numbers as arrays of numbers, and with the
    arrays of subarrays."""
    if type(y) in HANDLES:
        return y
    elements = lambda v: argument(v) if has_objects(v) or hasattr(type(v), "plain_elements") else v
    return tree_map(elements, without_subarrays(y))


def run_once(
    f: AnyFunction,
    trace: Trace,
    inputs: Inputs,
    args: AnyList,
    kwargs: AnyDict,
    read: AnyFunction,
    lift: AnyFunction | None = None,
) -> Shadow:
    """f once, with its captured arrays as Variables; `read` sees the output while the trace is open.  To be
    called in a block of `scope_block`, which closes the trace if f raises; the shadow that is returned wants
    `finish()`, which lets captured arrays hold plain data again.  `lift` makes of the shadowed f the function
    that is to be run, its gradient for example."""
    once = OPEN.depth or trace.visibility or type(f) is Const
    make = Shadow if once else memory_of(f).shadow
    shadow = make(f, args, inputs.given, inputs.fresh)
    shadow.ending = (trace,)
    if trace.visibility:
        shadow.within_hiding -= 1  # it is that of this trace
    watched(trace)
    state, thorough, handler = OPEN.__dict__, isinstance(f, Const), None
    outer = state["dropped"]
    try:
        g, args = shadow.__enter__()
        state["dropped"] = []
        handler = watch_errors()
        if kwargs or inputs.constants:
            shadow.pass_plain((*inputs.constants, *kwargs.values()))
        y = (g if lift is None else lift(g))(*args, **kwargs)
        if WATCHERS and OPEN.watcher is not None:
            OPEN.watcher.returned(f, y)
        read(y if type(y) in HANDLES else shadow.settle(y))
    except BaseException as error:
        unwatch(handler, thorough)
        ours = in_our_words(error, f, inputs, outer)
        state["dropped"] = outer
        if ours is not None:
            raise ours from error
        raise
    unwatch(handler, thorough)
    dropped, state["dropped"], state["aliased"] = state["dropped"], outer, inputs.outer
    shadow.__exit__()
    if dropped:
        raise_swallowed(dropped)
    return shadow


def in_our_words(error: BaseException, f: AnyFunction, inputs: Inputs, outer: Any) -> TapegradError | None:
    """An error that has left f, if it is one of compiled code.  It gets a note where a usual mistake is
    behind it."""
    ours = heard_error(error, OPEN.dropped or [], outer)
    error = ours or error
    if isinstance(error, TypeError):
        # CuPy's words
        if str(error).startswith("Unsupported type <class 'numpy.") or "(expected cupy" in str(error):
            return DeviceError(
                f"{user_name(f)}{where_of(f)}: an operation met a NumPy and a CuPy array; move one with "
                f"cupy.asarray(a) or a.get()"
            )
        if COMPILED_ARGUMENT.match(str(error)):
            return NoRuleError(
                f"{user_name(f)}{where_of(f)}: compiled code got a tracked value where it takes an array, so it "
                "has no derivative. Write the call with numpy (of a DataFrame, with x = s.to_numpy()), or give "
                "it a rule with tapegrad.rule"
            )
        if not callable(f):
            check_function(inputs.call.partition("(")[0], f)
        note_lists(error, inputs.args)
    return ours


COMPILED_ARGUMENT = re.compile(
    rf"Argument '\w+' has incorrect type \(expected numpy.ndarray, got ({'|'.join([k.__name__ for k in HANDLES])})\)"
)


def note_lists(error: TypeError, args: AnyTuple) -> None:
    """A list of numbers is no array: what works on arrays fails on it."""
    for n, a in enumerate(args):
        if type(a) in (list, tuple) and a and all([type(x) in (float, int, complex, list) for x in a]):
            error.add_note(
                f"argument {n} is a {type(a).__name__}, and each number in it is differentiated by itself; "
                "pass numpy.array(x) if the function works on an array"
            )


# --- reverse mode ---


class RecordedCall:
    """f recorded once: its value, and the tape to pull on.  To be made in a block of `scope_block`, which
    finishes it."""

    def __init__(
        self,
        call: str,
        f: AnyFunction,
        argnums: Any,
        args: AnyTuple,
        kwargs: AnyDict,
        has_aux: bool = False,
        lift: AnyFunction | None = None,
        swept: bool = True,
    ):
        self.inputs = inputs = Inputs(call, argnums, args)
        self.tape = tape = reverse.Tape(swept)
        self.slots: AnyDict = {}
        self.aux: Any = None
        part, OPEN.apart = OPEN.apart, False
        if not part:
            tape.leaves = {}

        def watch(key: Any, value: Any) -> Any:
            x = tape.watch(value)
            self.slots[key] = x._slot
            if not part:
                tape.leaves[x._slot] = value
            return x

        def read(y: Any) -> None:
            if has_aux:
                y, self.aux = with_auxiliary(call, f, y)
            self.tree = y = returned(y)
            self.low = (
                [lowered_leaf(y, tape)] if type(y) in HANDLES else [lowered_leaf(v, tape) for v in leaves(y)]
            )
            tape.outputs = self.low

        entered = inputs.enter(watch)
        if inputs.constants:
            tape.trusted = frozenset(map(id, inputs.constants))
        self.shadow = run_once(f, tape, inputs, entered, kwargs, read, lift)
        if tape.searches:
            tell_searches(tape, self.size_of)

    def finish(self) -> None:
        """No sweep follows."""
        reverse.release(self.tape)
        self.shadow.finish()

    def value(self) -> Any:
        members = iter(self.low)
        return tree_map(lambda _: value_out(next(members)[0]), self.tree)

    def gradient(self, cotangents: AnyList) -> AnyDict:
        """Per key, what is handed out for one cotangent (or None) of each output leaf."""
        found, plain, watched = self.pull(cotangents), not OPEN.depth, self.inputs.watched
        if len(watched) == 1:
            ((key, x),) = watched.items()
            return {key: derivative_out(found.get(key), x, plain)}
        return {key: derivative_out(found.get(key), x, plain) for key, x in watched.items()}

    def pull(self, cotangents: AnyList, low: AnyList | None = None) -> AnyDict:
        """Given one cotangent (or None) for each output leaf, or each of `low`: the cotangents of the inputs,
        by key."""
        seeds = []
        for (_, s), g in zip(low or self.low, cotangents, strict=True):
            if s is not None and g is not None:
                seeds.append((s, g))
        if not seeds:
            return {}
        if not THREADS:  # nobody has captured anything
            G = reverse.pull(self.tape, seeds)
        else:
            with scope_block(), mine() as own:
                if own.stashed or len(THREADS) > 1:
                    protect(self.tape.records)
                G = reverse.pull(self.tape, seeds)
        found, top = {}, len(G)
        for key, s in self.slots.items():
            if s < top:
                found[key] = G[s]
        return found

    def size_of(self, seeds: AnyList) -> float:
        """The size of the cotangents of the inputs, given those of some slots."""
        found = self.pull([g for _, g in seeds], [(None, s) for s, _ in seeds])
        return math.hypot(*[np.linalg.norm(reverse.known(g)[0]) for g in found.values() if g is not None])


WITH_AUX = ("grad", "value_and_grad", "hessian", "hvp", "value_grad_hvp", "hmp")


def scalar_error(call: str, f: AnyFunction, y: Any) -> NotScalarError:
    name, what = user_name(f), call.partition("(")[0]
    if is_node(y):
        pair = " (has_aux=True allows a pair)" if what in WITH_AUX else ""
        return NotScalarError(
            f"{call}: {name}{where_of(f)} returned {describe_tree(y)}; {what} needs one real scalar{pair}"
        )
    if y is None or isinstance(y, str):
        return NotScalarError(
            f"{call}: {name}{where_of(f)} returned {y!r}; {what} needs a real scalar: is a return missing?"
        )
    if shape(y) != ():
        one = "`y[0]` or " if np.prod(shape(y)) == 1 else ""
        return NotScalarError(
            f"{call}: {name}{where_of(f)} returned shape {shape(y)}; {what} needs a scalar. Return "
            f"{one}`y.sum()`, or use jacobian({name})"
        )
    if dtype(y).kind == "O":
        return NotScalarError(
            f"{call}: {name}{where_of(f)} returned a {type(y).__name__}; {what} needs a real scalar"
        )
    return NotScalarError(
        f"{call}: {name}{where_of(f)} returned a value of dtype {dtype(y)}; {what} needs a real float. "
        f"Return its .real or abs(y)**2, or use jacobian({name})"
    )


def check_scalar(call: str, f: AnyFunction, y: Any) -> None:
    if type(y) is FLOAT and type(y._value) is np.float64:
        return
    if is_node(y) or y is None or type(y) is str or shape(y) != () or dtype(y).kind not in "fiub":
        raise scalar_error(call, f, y)


def cast_to_primal(call: str, what: str, w: Any, y: Any) -> Any:
    """A tangent or cotangent, checked against its primal y: exact shape; widths are cast; complex for real
    raises."""
    w = numpy_number(w)
    if not isinstance(w, (Variable, np.generic, int)) and not is_array(w):
        w = np.asarray(w)
    if isinstance(w, Variable):
        w = live(w)
    if not is_array(layout_of(w)) and is_array(layout_of(y)) and xp(y) is not np and shape(w) == ():
        w = xp(y).asarray(w)
    elif type(w) is int:
        w = np.float64(w)
    if shape(w) != shape(y):
        of = "value" if what in ("cotangent", "seed") else "primal"
        raise ShapeError(
            f"{call}: the {what} has shape {shape(w)}, the {of} has shape {shape(y)}; they must be equal"
        )
    if is_array(layout_of(w)) and is_array(layout_of(y)) and xp(w) is not xp(y):
        raise ArgumentError(
            f"{call}: the {what} is a {xp(w).__name__} array, the primal a {xp(y).__name__} array"
        )
    check_operators(f"{call}: the {what}", w)
    have, want = dtype(w), dtype(y)
    if have.kind == "c" and want.kind != "c":
        raise ArgumentError(
            f"{call}: the {what} is complex, the primal is real ({want}); pass the {what}'s .real"
        )
    if have.kind not in "biufc":
        raise ArgumentError(
            f"{call}: the {what} has dtype {have}; it must be a number or an array of numbers"
        )
    if isinstance(w, Variable) and w._trace is not None:
        return frozen(w) if have == want else shaping.astype(w, to=want)
    w = values_of(w)
    return w.astype(want) if have != want else owned(w) if is_array(w) else w


def leaves_like(call: str, what: str, w: Any, tree: Any, path: str = "") -> AnyList:
    """The leaves of w, which must have the tree of `tree`; None (or for constants anything) counts as
    zero."""
    if is_node(tree):
        if w is None:
            return [None] * len(leaves(tree))
        members = members_like(tree, w) if is_node(w) else None
        if members is None:
            at = f" at {path}" if path else ""
            raise ArgumentError(
                f"{call}: the {what}{at} is {form(w)}, the primal is {form(tree)}; they must be alike"
            )
        places = zip(members, children(tree), steps(tree), strict=True)
        return [leaf for a, b, step in places for leaf in leaves_like(call, what, a, b, path + step)]
    if path and is_node(w) and is_active(tree) and not isinstance(w, (tuple, list)):
        raise ArgumentError(
            f"{call}: the {what} at {path} is {form(w)}, the primal is {describe_tree(tree)}; they must be "
            f"alike"
        )
    return [w]


def form(x: Any) -> str:
    """The structure of a tree, with the names of its fields."""
    named = is_node(x) and [s[1:] for s in steps(x) if s[0] == "."]
    return describe_tree(x) + (f" with fields {', '.join(named)}" if named else "")


# --- forward mode ---


def run_forward(
    call: str,
    f: AnyFunction,
    args: AnyTuple,
    nums: AnyTuple,
    tangents: AnyTuple,
    lift: Any = None,
    has_aux: bool = False,
) -> AnyTuple:
    """(output tree, pairs (value, tangent or None) of its leaves, auxiliary output) of f at `args`.

    `tangents`: one for each of the arguments `nums`."""
    if not isinstance(args, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(f"{call}: primals and tangents must be tuples: jvp(f, (x,), (v,))")
    if len(nums) != len(tangents):
        raise ArgumentError(f"{call}: {len(nums)} primals but {len(tangents)} tangents")
    dual = Dual()
    inputs = Inputs(call, nums, tuple(args))
    flat = [
        leaf
        for n, t in zip(inputs.nums, tangents, strict=True)
        for leaf in leaves_like(call, "tangent", t, args[n])
    ]

    def watch(key: Any, value: Any) -> Any:
        t = flat[key]
        if t is None:
            return value
        t = cast_to_primal(call, "tangent", t, value)
        return dual.watch(value, writable_value(live(t)) if isinstance(t, Variable) else t)

    found: AnyList = []

    def read(y: Any) -> None:
        y, aux = with_auxiliary(call, f, y) if has_aux else (y, None)
        y = returned(y)
        found.extend((y, [lowered_leaf(v, dual) for v in leaves(y)], aux))

    with scope_block():
        run_once(f, dual, inputs, inputs.enter(watch), {}, read, lift).finish()
        if dual.searches:
            tell_searches(dual, max)
    return tuple(found)


def with_auxiliary(call: str, f: AnyFunction, y: Any) -> AnyTuple:
    """The pair that f returned."""
    if not (isinstance(y, tuple) and len(y) == 2):
        raise ArgumentError(f"{call}: with has_aux=True, {user_name(f)} must return a pair (value, aux)")
    return y


def value_and_tangent(tree: Any, pairs: AnyList, _: Any = None) -> AnyTuple:
    values, slopes = iter(pairs), iter(pairs)
    value = tree_map(lambda _: value_out(next(values)[0]), tree)

    def tangent(_: Any) -> Any:
        y, t = next(slopes)
        t = t if t is None else free_of_gauge(y, t)
        return derivative_out(t, numpy_number(y)) if is_differentiable(layout_of(y)) else None

    return value, tree_map(tangent, tree)
