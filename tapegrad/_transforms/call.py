"""One call of a transform: how f is run once, how results are checked and returned.

Reading order: results; `run_once`; `RecordedCall` (reverse) and `run_forward`. The arguments are in
`_transforms.arguments`."""

import math
import re
import sys
from typing import Any

import numpy as np

from .._capture import THREADS, Shadow, memory_of, mine, protect
from .._core import reverse as reverse
from .._core.arrays import (
    is_array,
    is_differentiable,
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
from .._core.foreign import argument, is_table
from .._core.forward import Dual
from .._core.primitive import Trace, handle, layout_of, live, values_of, watched
from .._core.scope import OPEN, WATCHERS, scope_block
from .._core.searches import tell_searches
from .._core.trees import (
    LEAVES,
    Const,
    children,
    describe_tree,
    is_node,
    leaves,
    members_like,
    steps,
    tree_map,
    without_subarrays,
)
from .._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple
from .._core.variable import DIRECT, FLOAT, HANDLES, Variable, bottom, frozen
from .._dispatch.faces import has_objects, numbers_of_table
from ..ops import shaping
from ..ops.declare import dtype, shape, xp
from ..ops.linalg.degenerate_spectra import free_of_gauge
from .arguments import (
    Inputs,
    check_function,
    check_operators,
    is_active,
    numpy_number,
    user_name,
    where_of,
    writable_value,
)

# --- results ---

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
    """A derivative as a result for the caller, with the kind and dtype of `like`, and memory of its own in
    C order. It is a Variable only within an outer transform; `plain` says that there is none."""
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
    """A plain result. Within another transform it becomes a Variable of level 0, because the user may write
    tracked values into it."""
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
    """The auxiliary output, with plain values in place of Variables of ended transforms."""

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
    """What a function returned, with object arrays of tracked numbers, and columns and tables of them, as
    arrays of numbers, and with the arrays of subarrays."""
    if type(y) in HANDLES:
        return y

    def elements(v: Any) -> Any:
        if has_objects(v) or hasattr(type(v), "plain_elements"):
            return argument(v)
        return arrays_of_tables(v)

    return tree_map(elements, without_subarrays(y))


def arrays_of_tables(y: Any, plain: bool = False) -> Any:
    """What a function returned, with columns and tables of tracked numbers as arrays: labels have no place in
    a derivative. `plain`: other floats too, which are tracked in another run."""

    def array(v: Any) -> Any:
        if not is_table(v):
            return v
        numbers = numbers_of_table(v)
        return v.to_numpy() if plain and numbers is v and v.to_numpy().dtype.kind == "f" else numbers

    return y if type(y) in LEAVES else tree_map(array, y)


def run_once(
    f: AnyFunction,
    trace: Trace,
    inputs: Inputs,
    args: AnyList,
    kwargs: AnyDict,
    read: AnyFunction,
    lift: AnyFunction | None = None,
    watch: Any = None,
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
        shadow.watch = watch
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
    """The error to raise in place of `error`, which f raised, or None. A common mistake is explained in a
    note."""
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
                f"{user_name(f)}{where_of(f)}: compiled code got a tracked value where it takes an array, "
                "so it has no derivative. Write the call with numpy (of a DataFrame, with "
                "x = s.to_numpy()), or give "
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
    """Explain in a note that a list of numbers is not an array."""
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
            tell_searches(tape, self.size_of, any([s is not None for _, s in self.low]))

    def finish(self) -> None:
        """End the call; no sweep follows."""
        reverse.release(self.tape)
        self.shadow.finish()

    def value(self) -> Any:
        members = iter(self.low)
        return tree_map(lambda _: value_out(next(members)[0]), self.tree)

    def cotangents(self, call: str, w: Any, what: str = "cotangent") -> AnyList:
        """One cotangent, or None, for each leaf of the output."""
        active = [y if s is not None else None for y, s in self.low]
        return cast_leaves(call, what, leaves_like(call, what, w, self.tree), active)

    def gradient(self, cotangents: AnyList) -> AnyDict:
        """The gradient by key, as results for the caller, for one cotangent (or None) of each output leaf."""
        found, plain, watched = self.pull(cotangents), not OPEN.depth, self.inputs.watched
        if len(watched) == 1:
            ((key, x),) = watched.items()
            return {key: derivative_out(found.get(key), x, plain)}
        return {key: derivative_out(found.get(key), x, plain) for key, x in watched.items()}

    def pull(self, cotangents: AnyList, low: AnyList | None = None) -> AnyDict:
        """The cotangents of the inputs by key, for one cotangent (or None) of each output leaf, or each of
        `low`."""
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


def cast_leaves(call: str, what: str, given: AnyList, primals: AnyList) -> AnyList:
    """One tangent or cotangent, or None, for each primal, or None."""
    return [
        None if w is None or y is None else cast_to_primal(call, what, w, y)
        for w, y in zip(given, primals, strict=True)
    ]


def cast_to_primal(call: str, what: str, w: Any, y: Any) -> Any:
    """Check a tangent or cotangent w against its primal y, and cast it to the dtype of y. The shapes must be
    equal; a complex w for a real y raises."""
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
    """The leaves of w, which must have the structure of `tree`. None stands for zero."""
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
    """Run f at `args` in forward mode. Return its value, the tangent, and the auxiliary output or None.

    `tangents`: one for each of the arguments `nums`."""
    if not isinstance(args, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(f"{call}: primals and tangents must be tuples: jvp(f, (x,), (v,))")
    if len(nums) != len(tangents):
        raise ArgumentError(f"{call}: {len(nums)} primals but {len(tangents)} tangents")
    inside = OPEN.inside
    if inside is not None:
        traced: AnyTuple = inside.run_forward(call, f, args, nums, tangents, lift, has_aux)
        return traced
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
        y, pairs, aux = found
        if dual.searches:
            tell_searches(dual, max, any([t is not None for _, t in pairs]))
    return (*value_and_tangent(y, pairs), plain_tree(aux) if has_aux else None)


def with_auxiliary(call: str, f: AnyFunction, y: Any) -> AnyTuple:
    """The pair that f returned."""
    if not (isinstance(y, tuple) and len(y) == 2):
        raise ArgumentError(f"{call}: with has_aux=True, {user_name(f)} must return a pair (value, aux)")
    return y


def value_and_tangent(tree: Any, pairs: AnyList) -> AnyTuple:
    values, slopes = iter(pairs), iter(pairs)
    value = tree_map(lambda _: value_out(next(values)[0]), tree)

    def tangent(_: Any) -> Any:
        y, t = next(slopes)
        t = t if t is None else free_of_gauge(y, t)
        return derivative_out(t, numpy_number(y)) if is_differentiable(layout_of(y)) else None

    return value, tree_map(tangent, tree)
