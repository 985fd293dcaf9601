"""Calls of solvers whose control flow depends on hidden values, such as root finders or solvers with a
step size.

Under `vmap` the call runs for one sample after another. In a recording it is one instruction. The call
is one operation on all Variables that its functions and arguments hold, captured ones included. Its
derivative is an operation of the same kind, which differentiates the call for one sample. So both
modes, any order and any nesting work."""

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._core.arrays import copy_with_layout, is_array, is_differentiable, same_bits, xp_of
from .._core.errors import BatchError, callers_line, heard, take_back
from .._core.primitive import (
    SAMPLED,
    Primitive,
    bind,
    handle,
    joint_primitive,
    layout_of,
    live,
    primal_of,
    values_of,
)
from .._core.reverse import Tape
from .._core.scope import OPEN, at_the_end_of, changed, scope_block
from .._core.trees import children, is_node, leaves, rebuilt, tree_map, with_leaves
from .._core.variable import Variable
from .._transforms.products import jvp, vjp
from .._transforms.rebind import Rebind, as_they_were, confirm, forgotten, out_of, with_all
from ..ops.declare import shape
from . import is_uniform, of_some, or_zeros

OUTPUT, FUNCTION = object(), object()  # stand for a number and for a function in a result
# flags and messages: a change between samples is detected at the call
SETTLED = (bool, np.bool_, str, type(None))
APART = object()  # stands for a part of a result that is not a number and differs between samples

MANY = 64  # samples beyond which no pullbacks are kept


def run_sequentially(
    name: str,
    f: Callable,
    args: tuple,
    kwargs: dict,
    by_steps: bool,
    each: Callable | None = None,
) -> Any:
    """f(*args, **kwargs) where a trace hides values. Under `vmap` it runs for one sample after another,
    if it cannot run for all at once.

    `by_steps`: the values decide the control flow, so a recording has the call as one instruction.
    `each`: f for plain arguments."""
    if by_steps and not all([t.visibility == SAMPLED for t in OPEN.hiding]):
        call = Call(name, f, args, kwargs, True)
        return call.result() if call.first.handles else f(*args, **kwargs)
    known = heard()
    try:
        return f(*args, **kwargs)
    except BatchError:
        if any(
            [
                callable(getattr(v, "random", None)) and not isinstance(v, Variable)
                for v in leaves([list(args), kwargs])
            ]
        ):
            raise  # it draws random numbers, which the samples would share
        call = Call(name, each or f, args, kwargs, False)
        if not call.first.handles:
            raise
    take_back(known)
    return call.result()


class Call:
    """One call as a function of the values of the Variables that its functions and arguments hold. These
    are copies made by `first`, with stand-ins for the Variables. So a pullback may run the call after
    the transform has ended."""

    constant = False  # has the result no derivative?

    def __init__(self, name: str, f: Callable, args: tuple, kwargs: dict, replayed: bool):
        self.name, self.f, self.where, self.replayed = name, f, callers_line(), replayed
        self.functions: list = []
        given = tree_map(self.without_function, [list(args), kwargs])
        self.original = tuple(self.functions), [given]
        self.first = Rebind(*self.original)
        with self.first as (functions, self.args):
            self.functions = functions
            self.first.arrays = []
        self.shapes: Any = None  # the shapes of the numbers
        # places of numbers whose shapes differ between samples -> two of these shapes
        self.ragged: dict = {}
        self.tree: Any = None  # the tree of the result, with numbers replaced by OUTPUT
        self.done = self.ran = False
        self.follows = False  # was the call run before, so that it leaves nothing behind again?
        # that the functions left outside of themselves, in the last run with such
        self.kept_floats: list = []
        self.wanted: list | None = None  # the values that are differentiated in reverse mode, as far as known
        # (values, which of them are differentiated, pullback) of the last plain values of each sample
        self.kept: list = []

    def __del__(self):
        at_the_end_of(self, "first")  # break the reference cycle between it and the functions

    def without_function(self, v: Any) -> Any:
        if not callable(v):
            return v
        self.functions.append(v)
        return FunctionPlaceholder(len(self.functions) - 1)

    def result(self) -> Any:
        def run(values: list) -> Any:
            values = [primal_of(v) for v in values] if self.constant else values
            swept = [k for k, v in enumerate(values) if any([type(t) is Tape for t in traces_of(v)])]
            self.wanted = swept if swept and not self.replayed else None
            return bind(sequential_primitive(self.name, self), values, {})

        handles, found = with_all(self.first, run)
        if self.replayed:
            confirm(bool(self.kept_floats), handles, self.numbers)
        self.done = True
        parts, numbers = [], enumerate(found)
        for path, v in parts_of(self.tree):
            if v is OUTPUT:
                k, number = next(numbers)
                v = handle(number)
                if k in self.ragged:
                    error = functools.partial(self.ragged_error, k)
                    v = RaggedArray(v, error) if have_ends(*self.ragged[k]) else RefusedValue(error)
            parts.append(FunctionOfSamples(self, path) if v is FUNCTION else v)
        return with_leaves(self.tree, iter(parts))

    def after(self, path: tuple, args: tuple, kwargs: dict) -> "Call":
        """The call of the function at a path of the result. It runs this call again."""

        def run(*given: Any, **settings: Any) -> Any:
            *before, (args, kwargs) = given
            found = self.f(*before, **settings)
            for k in path:
                found = found[k] if isinstance(found, dict) else children(found)[k]
            return found(*args, **kwargs)

        before, settings = self.in_place(self.functions, self.args)
        call = Call(self.name_of(path), run, (*before, (args, kwargs)), settings, self.replayed)
        call.follows, call.where, call.constant = True, self.where, self.constant
        call.first.state = [*call.first.state, *self.first.state]
        return call

    def name_of(self, path: tuple) -> str:
        parts = [f".{k}" if type(k) is str else f"[{k}]" for k in path]
        return "".join([self.name, "(...)" if parts else "", *parts])

    def __call__(self, *values: Any) -> tuple:
        """The numbers. If the pullback will be asked for, it is computed along."""
        full = not self.replayed and len(self.kept) >= MANY
        if self.wanted is None or full or any([isinstance(v, Variable) for v in values]):
            return self.numbers(*values)
        outs: tuple = self.recorded(values, self.wanted)[0]
        return outs

    def recorded(self, values: tuple, wanted: list) -> tuple:
        """(numbers, pullback) at plain values, which a recording may overwrite."""
        values = tuple([copy_with_layout(v) if is_array(v) else v for v in values])
        of, some = of_some(self.numbers, values, wanted)
        outs, pullback = vjp(of, *some)
        if self.replayed:
            self.kept, self.wanted = [], wanted
        if len(self.kept) < MANY:
            self.kept.append((values, wanted, pullback))
        return outs, pullback

    def pullback_at(self, values: tuple, wanted: list) -> Callable:
        for known, by, pullback in self.kept:
            if by == wanted and all(map(is_uniform, known, values)):
                found: Callable = pullback
                return found
        return self.recorded(values, wanted)[1]

    def numbers(self, *values: Any) -> tuple:
        """The first run alters what the functions change: in a recording the only one, else that of each
        sample."""
        if self.replayed and self.ran or self.done or self.follows:
            return self.repeated(*values)
        return self.run(*self.original, values, False)

    def repeated(self, *values: Any) -> tuple:
        """What the functions change is as it was before the call, and stays as it is now: so no derivative
        reads what they have kept."""
        with scope_block():
            as_they_were(self.first.state)
            return self.run(self.functions, self.args, values, True)

    def run(self, functions: Any, args: Any, values: tuple, again: bool) -> tuple:
        shadow = Rebind(functions, args, self.first, values)
        self.ran = True  # (also if it raises: the user may have rebound what the originals captured)
        with shadow as (functions, ((args, kwargs),)):
            args, kwargs = self.in_place(functions, [[args, kwargs]])
            with changed(of_one=True):
                y = self.f(*args, **kwargs)
            numbers = [v for v in leaves(y) if is_float_value(v)]
            self.seen(tree_map(stand_in, y))
            if any(
                [
                    value_was_written(shadow.handles[n][1], values[k])
                    for k, n in shadow.places.items()
                    if k < len(values)
                ]
            ):
                raise BatchError(
                    f"{self.where}: {self.name} goes another way for each sample, and its function writes a "
                    f"captured array, which would "
                    "hand values from one to the next; make the array inside of the function"
                )
            shadow.check_all(self.name)
            kept = shadow.check(self.name)
            if not again:
                self.check_kept(kept)
            outs = self.of_one_shape([out_of(v) for v in numbers])
        shadow.arrays = []
        if again:
            forgotten(shadow)
        else:
            shadow.finish()
        return outs

    @staticmethod
    def in_place(functions: Any, args: Any) -> Any:
        """The arguments and settings of the call, with the functions among them."""
        return tree_map(lambda v: functions[v.place] if isinstance(v, FunctionPlaceholder) else v, args[0])

    def check_kept(self, floats: list) -> None:
        floats = [handle(values_of(v)) for v in floats]
        if not self.replayed and floats and self.kept_floats and not same_trees(floats, self.kept_floats):
            raise BatchError(
                f"{self.where}: {self.name} runs for one sample after another, and its function keeps floats "
                "outside of itself (by a name, an attribute, in a list), which differ between samples; "
                "compute them from the result, or loop over the samples"
            )
        self.kept_floats = floats or self.kept_floats

    def of_one_shape(self, outs: list) -> tuple:
        """The numbers. Where lengths differ between samples, zeros stand between the first and last element.

        That is in a dict, whose other entries may be of use."""
        found = [shape(v) for v in outs]
        if self.shapes is None:
            self.shapes = found
        if len(found) != len(self.shapes):
            raise BatchError(
                f"{self.where}: {self.name}: its result has other parts for each sample; loop over them"
            )
        optional = isinstance(self.tree, dict) and not self.done
        for k, (a, b) in enumerate(zip(self.shapes, found, strict=True)):
            if a != b:
                if k not in self.ragged and not optional:
                    raise self.ragged_error(k, (a, b))
                self.ragged.setdefault(k, (a, b))
                x = outs[k]
                layout = layout_of(x)
                outs[k] = xp_of(layout).zeros(a, layout.dtype)
                if have_ends(*self.ragged[k]):
                    if not have_ends(a, b):
                        raise self.ragged_error(k, (a, b))
                    ends = (x[..., :1], outs[k][..., 1:-1], x[..., -1:])
                    outs[k] = np.concatenate(ends, -1) if a[-1] > 1 else x[..., :1]
        return tuple(outs)

    def ragged_error(self, k: int, shapes: tuple = ()) -> BatchError:
        a, b = shapes or self.ragged[k]
        name = self.name_of([path for path, v in parts_of(self.tree) if v is OUTPUT][k])
        return BatchError(
            f"{self.where}: {name} has shapes that differ between samples, {a} and {b}; ask for "
            "the results at given places (t_eval= of scipy.integrate.solve_ivp), or loop over the samples"
        )

    def entry_error(self, k: Any) -> BatchError:
        return BatchError(
            f"{self.where}: the entry {k!r} of the result of {self.name} may be another for each sample or "
            "call; loop over them"
        )

    def seen(self, tree: Any) -> None:
        tree = self.common(tree, tree if self.tree is None else self.tree)
        if tree is APART:
            raise BatchError(
                f"{self.where}: {self.name} gives an object for each sample; loop over the samples"
            )
        if self.done and not same_trees(tree, self.tree):
            raise BatchError(f"{self.where}: {self.name} ends in another way than when it was recorded")
        self.tree = tree

    def common(self, a: Any, b: Any) -> Any:
        """The common part of two samples' results that are not numbers. Entries of a dict that differ (step
        counts, messages), and in a recording all counts, raise an error where they are used."""
        if isinstance(a, dict) and type(a) is type(b):
            both = {k: self.common(v, b[k]) for k, v in a.items() if k in b}
            refused = lambda k: RefusedValue(functools.partial(self.entry_error, k))
            return dict_like(a, {k: refused(k) if v is APART else v for k, v in both.items()})
        if is_node(a) and type(a) is type(b) and len(children(a)) == len(children(b)):
            found = [self.common(v, w) for v, w in zip(children(a), children(b), strict=True)]
            if any([v is APART for v in found]):
                k = next(k for k, v in enumerate(found) if v is APART)
                raise BatchError(
                    f"{self.where}: {self.name}: item {k} of the result may be another for each sample or "
                    f"call; loop over them"
                )
            return rebuilt(a, found)
        return (
            a
            if a is OUTPUT
            or a is FUNCTION
            or (raises(a) and raises(b))
            or (same(a, b) and (not self.replayed or type(a) in SETTLED))
            else APART
        )


def traces_of(x: Any) -> Iterator:
    """The traces of x, from the innermost on, as far as they show what they hold."""
    while isinstance(x, Variable):
        x = live(x)
        trace = x._trace
        if trace is not None:
            yield trace
        x = trace.held(x) if trace is not None and trace.visibility == SAMPLED else x._value


def value_was_written(x: Variable, before: Any) -> bool:
    """Was x written since `before`? (Lent memory that is part of the result is compared by content.)"""
    if x._trace is not None and x._trace.lent:
        return not same_bits(values_of(x), values_of(before))
    return getattr(x, "_version", 0) > 0


class FunctionOfSamples:
    """A function in a result, such as dense output, which is another for each sample. Each of its calls runs
    the call that has made it again."""

    def __init__(self, call: Call, path: tuple):
        self.call, self.path = call, path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call.after(self.path, args, kwargs).result()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self.call.name_of(self.path)}.{name}: under vmap, and in a recording, this object can only be "
            "called"
        )


class RefusedValue(np.lib.mixins.NDArrayOperatorsMixin):
    """A part of a result that raises an error where it is used. `make(*given)` makes the error."""

    dtype = np.dtype(object)  # for who asks whether it is a number
    raises_where_used = True

    def __init__(self, make: Callable, *given: Any):
        self._make, self._given = make, given

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise self._make(*self._given)

    __array__ = __array_ufunc__ = __array_function__ = __getitem__ = __iter__ = __len__ = __float__ = (
        __bool__
    ) = __matmul__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()


def have_ends(a: tuple, b: tuple) -> bool:
    """Do arrays of these shapes differ in their last axis only, and have elements there?"""
    return len(a) == len(b) > 0 and a[:-1] == b[:-1] and min(a[-1], b[-1]) > 0


class RaggedArray(RefusedValue):
    """An array whose last axis has another length in each sample.

    Its first and its last element along that axis may be read: those of `ends`. Of one element, it is the
    first. `make`: see `RefusedValue`."""

    def __init__(self, ends: Any, make: Callable, turned: bool = False):
        super().__init__(make)
        self._ends, self._turned = ends, turned

    def __getitem__(self, key: Any) -> Any:
        key, n = key if type(key) is tuple else (key,), layout_of(self._ends).ndim
        reaches = self._turned or len([k for k in key if k is not Ellipsis]) == n or Ellipsis in key[:-1]
        at, rest = (key[0], key[1:]) if self._turned else (key[-1], key[:-1])
        ends = (0, -1) if layout_of(self._ends).shape[-1] > 1 else (0,)
        if not reaches or type(at) is not int or at not in ends:
            return self._refuse()
        found = self._ends[..., at]
        return found[rest] if rest else found

    @property
    def T(self) -> "RaggedArray":
        return RaggedArray(self._ends, self._make, layout_of(self._ends).ndim > 1 and not self._turned)


class FunctionPlaceholder:
    """Stands for a function among the arguments."""

    def __init__(self, place: int):
        self.place = place


def is_float_value(v: Any) -> bool:
    return is_differentiable(layout_of(v))


def stand_in(v: Any) -> Any:
    """What stands for a leaf of a result in its tree."""
    if is_float_value(v):
        return OUTPUT
    return FUNCTION if callable(v) and not isinstance(v, type) else v


def parts_of(tree: Any, path: tuple = ()) -> list:
    """The leaves of a tree with their paths: keys of dicts, numbers of other members."""
    if not is_node(tree):
        return [(path, tree)]
    keys = list(tree) if isinstance(tree, dict) else range(len(children(tree)))
    return [part for k, v in zip(keys, children(tree), strict=True) for part in parts_of(v, (*path, k))]


def raises(a: Any) -> bool:
    """Is this a part of a result that raises when it is used?"""
    return getattr(type(a), "raises_where_used", False)


def same(a: Any, b: Any) -> bool:
    if is_array(a) or is_array(b):
        return is_array(a) and is_array(b) and a.dtype == b.dtype and np.array_equal(a, b)
    return a is b or (type(a) is type(b) and bool(a == b) if type(a) in EXACT else False)


def same_trees(a: Any, b: Any) -> bool:
    if not is_node(a):
        return a is b or same(a, b) or (raises(a) and raises(b))
    if (
        type(a) is not type(b)
        or (isinstance(a, dict) and list(a) != list(b))
        or len(children(a)) != len(children(b))
    ):
        return False
    return all([same_trees(v, w) for v, w in zip(children(a), children(b), strict=True)])


def dict_like(a: dict, members: dict) -> dict:
    b = copy.copy(a)
    b.clear()
    b.update(members)
    return b


EXACT = (*SETTLED, int, np.int32, np.int64)

# --- the operation: numbers as a function of the values ---


def sequential_primitive(name: str, f: Callable) -> Primitive:
    """f, from values to a tuple of numbers, as an operation without a batching rule. (It refers to f, but
    f not to it, so there is no reference cycle.)"""

    def pull(g, out, need, *values):
        wanted, seeds = [k for k, n in enumerate(need) if n], or_zeros(g, out)

        def swept(*inputs):
            at = inputs[len(seeds) :]
            plain = not any([isinstance(v, Variable) for v in at])
            if isinstance(f, Call) and (f.replayed or f.wanted is not None) and plain:
                found = f.pullback_at(at, wanted)(inputs[: len(seeds)])
            else:
                of, some = of_some(getattr(f, "repeated", f), at, wanted)
                found = vjp(of, *some)[1](inputs[: len(seeds)])
            return tuple([out_of(c) for c in (found if len(wanted) > 1 else (found,))])

        terms: list = [None] * len(need)
        for k, c in zip(
            wanted,
            bind(sequential_primitive(f"pullback of {name}", swept), [*seeds, *values], {}),
            strict=True,
        ):
            terms[k] = c
        return terms

    def push(t, out, *values):
        wanted = [k for k, d in enumerate(t) if d is not None]

        def pushed(*inputs):
            of, some = of_some(getattr(f, "repeated", f), inputs[len(wanted) :], wanted)
            return tuple([out_of(d) for d in jvp(of, some, inputs[: len(wanted)])[1]])

        return bind(
            sequential_primitive(f"tangent of {name}", pushed), [*[t[k] for k in wanted], *values], {}
        )

    return joint_primitive(name, f, pull, push)
