"""The arguments of a transform: how f and argnums are checked, and which leaves are active.

`Inputs` holds the arguments of one call."""

import functools
import types
from collections.abc import Collection
from typing import Any

import numpy as np

from .._core import reverse as reverse
from .._core.arrays import (
    copy_with_layout,
    is_array,
    is_differentiable,
    may_share_memory,
    memory_owner,
    xp_of,
)
from .._core.errors import (
    ArgumentError,
)
from .._core.foreign import REMEDIES, check_constants, library_of
from .._core.primitive import SAMPLED, layout_of, live
from .._core.scope import OPEN
from .._core.trees import (
    LEAVES,
    Const,
    describe_tree,
    is_builtin,
    is_node,
    leaves,
    with_leaves,
)
from .._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple
from .._core.variable import DIRECT, Variable, bottom, copied, frozen, variable
from ..ops.declare import dtype


def user_name(f: Any) -> str:
    if type(f) is types.FunctionType:
        return f.__name__
    while isinstance(f, (functools.partial, Const)):
        f = f.func if isinstance(f, functools.partial) else f.value
    return getattr(f, "__name__", type(f).__name__)


def where_of(f: Any) -> str:
    """Where f is defined, as ' (defined at file:line)'; an empty text if that is unknown."""
    code = getattr(getattr(f, "__wrapped__", f), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


USAGE = {"vjp": "vjp(f, x)", "jvp": "jvp(f, (x,), (v,))", "hvp": "hvp(f, x, v)", "hmp": "hmp(f, x, V)",
"linearize": "linearize(f, x)",
         "value_grad_hvp": "value_grad_hvp(f, x, v)", "prepare": "prepare(f, x)", "rule": "rule(f, vjp=..)",
         "inplace": "inplace(f, like)", "stateful": "stateful(f, a)"}  # fmt: skip


def check_function(call: str, f: Any) -> None:
    """Raise unless f is a function. `call` is the name of the transform."""
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
    """Check `argnums`, and return it as an int or a tuple of ints."""
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
    """Check `argnums`; None stands for all primals."""
    if argnums is None:
        return 0 if len(primals) == 1 else tuple(range(len(primals)))
    return checked_argnums(call, argnums)


def numpy_number(x: Any) -> Any:
    """Convert a Python float or complex number to NumPy's scalar type."""
    return np.float64(x) if type(x) is float else np.complex128(x) if type(x) is complex else x


def writable_value(x: Variable) -> Variable:
    """The value of a handle, for a function that may write its argument."""
    return x._trace.taken(x) if x._trace is not None and x._trace.visibility == SAMPLED else frozen(x)


def enter_leaf(x: Any, call: str = "") -> Any:
    """The value of an argument leaf, unaffected by later writes: arrays are copied, Variables are frozen."""
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
    """Raise for a subclass of `ndarray` with operators of its own, such as numpy.matrix."""
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
    """The arguments of one call of a transform.

    It knows which leaves are active, and builds the arguments for f. The key of a leaf is its number among
    the leaves of the arguments in `argnums`."""

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
        a, place = self.args[n], f"argument {n}"
        if is_node(a):
            members = self.flat[n]
            if not members or any(map(is_active, members)) or any([isinstance(x, Const) for x in members]):
                return
            a, place = members[0], f"no leaf of argument {n} is a float; the first"
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
            f"{self.call}: {place} has {kind}, which has no derivative; {hint}, or choose others with argnums="
        )

    def rebuilt(self, a: Any, members: AnyList) -> Any:
        """The argument a with other leaves."""
        if not is_node(a):
            return members[0]
        new = with_leaves(a, iter(members))
        if is_builtin(a) and all([isinstance(m, (Variable, float, int)) for m in members]):
            self.fresh.append(new)
        return new

    def replaced(self, new: AnyFunction, shared: Collection[int]) -> AnyList:
        """The arguments for f: `new(x)` in place of each leaf x, and `Const` removed.  `shared`: the ids of
        those that share memory."""
        aliased, out = {}, []
        for a in self.args:
            members = []
            for x in leaves(a):
                v = new(x)
                if v is not x and is_array(x):
                    self.given.append((x, v))
                    if id(x) in shared:
                        aliased[id(v)] = v
                members.append(v)
            out.append(a.value if isinstance(a, Const) else self.rebuilt(a, members))
        if aliased:
            OPEN.aliased = {**self.outer, **aliased}
        return out

    def enter(self, watch: AnyFunction) -> AnyList:
        """The arguments for f: `watch(key, value)` in place of each active leaf, and `Const` removed."""
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
        """The results in the tree of each argument in `argnums`: `found[key]` at active leaves, else None."""
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
    """The positions that `argnums` names among `count` arguments; negative ones count from the end."""
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
    """Does this leaf of an argument have a derivative?"""
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
