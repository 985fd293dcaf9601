"""What a search of SciPy's asks functions of the user for, on its way to a solution.

SciPy computes with plain numbers.  The points at which it asks move with the parameters, but no operation
says how; so what the user's functions keep of them, a path of iterates, the best value so far, has no
derivative that anybody knows."""

import contextlib
import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.arrays import IMMUTABLE
from ..._core.errors import Attempt, BatchError, let_through
from ..._core.primitive import READ, EndedTrace, Primitive, Trace, bind, handle, is_tracked, live, primal_of
from ..._core.registry import SHADOW_MAKERS
from ..._core.scope import OPEN, at_the_end_of_an_object, changed
from ..._core.trees import leaves, tree_map
from ..._core.variable import Variable, variable
from ..._transforms.rebind import LateVariable, Rebind, forgotten, once_more, out_of, with_all
from ...implicit.sequential import OUTPUT, Call, FunctionPlaceholder, is_float_value, traces_of
from ...ops.nondifferentiable import at_users_line
from ..namespaces import RecordedWhole, bare, holds_tracked, is_recorded, refusal_text
from ..plain_values import PlainRebind, on_plain_values


class ComposedFunction:
    """A function of ours made of some of the user's, which a shadow finds there."""

    def __init__(self, make: Callable, *functions):
        self.make, self.functions, self.run = make, functions, make(*functions)

    def __call__(self, *args):
        return self.run(*args)


SHADOW_MAKERS[ComposedFunction] = lambda shadow, x: ComposedFunction(x.make, *map(shadow, x.functions))

PLAIN = frozenset((np.ndarray, np.float64, float, int))


class SearchTrace(Trace):
    """Its Variables are the points at which the search asks, and what is computed of them.  When the search
    is over they are `lost`: they may be read, printed and compared, and computing with them is an error.
    After the transform they are plain.  `tracked`: has one of them met something that is tracked?"""

    __slots__ = ()

    def __init__(self, name: str):
        super().__init__()
        self.name, self.lost, self.tracked = name, False, False
        around = [s for s in OPEN.shadows if not isinstance(s, Rebind)] or OPEN.shadows
        around[-1].ending += (self,)

    def watch(self, x):
        """A copy: SciPy may go on in the same memory."""
        kind = getattr(x, "dtype", None)
        if type(x) is float or (kind is not None and kind.kind in "fc"):
            return variable(np.float64(x) if kind is None else x.copy(), self, 0)
        return x

    # No derivative is wanted of what is made here, so the operands come without; but a buffer has one of its
    # own.

    def step(self, prim, args, inputs, slots, params: dict):
        if self.lost and prim is not READ:
            raise self.loss()()
        self.tracked = self.tracked or any(map(is_tracked, inputs))
        out = bind(prim, inputs if prim.writes else [primal_of(v) for v in inputs], params)
        if prim.jvp is None:
            return tuple([handle(o) for o in out]) if type(out) is tuple else handle(out)
        return tuple([variable(o, self, 0) for o in out]) if type(out) is tuple else variable(out, self, 0)

    def loss(self):
        if not self.lost:
            return None
        return functools.partial(
            refusal_text,
            f"what a function kept while {self.name} ran",
            "the points at which it is asked move with the parameters, and nobody knows how",
            "what it returns, and compute the rest of that",
        )

    def close(self) -> None:
        super().close()
        self.__class__ = EndedSearch  # type: ignore[assignment]


class EndedSearch(EndedTrace):
    """A search after its transform.  Another run of a function, which finds its Variables, takes them for no
    inputs."""

    __slots__ = ()
    loss = SearchTrace.loss


class Search:
    """A context, in which SciPy is called with the functions `of(f)`.  `moves`: has one of them given
    something tracked, or are `args`? Before, its points are constant, unless they move from the beginning or
    the search is that of one sample; `fixed`: they always are."""

    def __init__(self, name: str, *args, moves: bool = False, fixed: bool = False):
        self.name, self.moves, self.by_args, self.fixed = name, moves, holds_tracked(*args), fixed
        self.trace: Any = None

    def point(self, x):
        if self.fixed or not ((self.moves or OPEN.of_one) and OPEN.shadows):
            # SciPy may go on in the same memory
            return x.copy() if isinstance(x, np.ndarray) and OPEN.shadows else x
        if self.trace is None:
            self.trace = SearchTrace(self.name)
        return self.trace.watch(x)

    def below(self, y):
        """y without the trace of the points."""
        if not isinstance(y, Variable):
            return y
        y = live(y)
        return y._value if y._trace is not None and y._trace is self.trace else y

    def of(self, f, first: int = 0, last: int | None = 1):
        """f on plain values.  The point is in its arguments from `first` up to `last`."""
        if not callable(f):
            return f

        @functools.wraps(f, updated=())
        def plainly(*args, **settings):
            asked = [*args]
            asked[first:last] = map(self.point, asked[first:last])
            if "intermediate_result" in settings:
                found = settings["intermediate_result"] = copy.copy(settings["intermediate_result"])
                found.update({key: self.point(found[key]) for key in ("x", "fun") if key in found})
            y = f(*asked, **settings)
            if self.trace is None or self.moves:
                self.moves = self.moves or self.by_args or holds_tracked(y)
            else:
                self.moves = self.trace.tracked or holds_tracked(tree_map(self.below, y))
            return bare(y)

        return plainly

    def __enter__(self) -> "Search":
        return self

    def __exit__(self, *error) -> None:
        self.moves = self.moves or self.by_args
        if self.trace is not None:
            self.trace.fall()
            self.trace.lost = True


class KeptValues(Exception):
    """Raised where functions on plain values leave something behind."""


class PlainCallback:
    """A function on plain values, as SciPy calls it. `known`: its first call leaves nothing behind."""

    def __init__(self, f: Callable, shadow: PlainRebind, known: bool):
        functools.update_wrapper(self, f, updated=())
        self.f, self.shadow, self.known, self.tracked = f, shadow, known, False

    def __call__(self, *args, **settings):
        y = self.f(*args, **settings)
        if not self.known:
            self.known = True
            check_unaltered(self.shadow)
        if type(y) not in PLAIN:
            self.tracked = self.tracked or holds_tracked(y)
            y = bare(y)
        return y


def check_unaltered(shadow: PlainRebind) -> None:
    if shadow.altered() or shadow.written():
        raise KeptValues


def searched(f: Callable, args: tuple, kwargs: dict, moving, **points: bool) -> tuple:
    """(SciPy's result on plain values, does it move with a parameter, do the functions leave nothing behind?)

    `moving`: what it moves with, besides what the functions have captured; `points`: how its points move, as
    a `Search` is told. The first search uses copies of the functions on plain values. If these alter
    anything, or fail, SciPy searches again with functions that are followed."""
    name, given = f"scipy.{f.__module__.split('.')[1]}.{f.__name__}", [*args, *kwargs.values()]
    if is_recorded():
        instruction = SearchInstruction(name, f, args, kwargs)
        handles = instruction.first.handles
        if handles:
            moves = any([not t.visibility for x, _ in handles for t in traces_of(x)])
            return instruction.result(), moves, True

    def run(of):
        plain = [of(v) if callable(v) else v if hasattr(v, "lb") else bare(v) for v in given]
        return at_users_line(f, *plain[: len(args)], **dict(zip(kwargs, plain[len(args) :], strict=True)))

    functions = [v for v in given if callable(v)]
    with Attempt(BatchError):  # the user's error is raised again
        if points and OPEN.hiding:  # of equal samples a function may read what it wrote
            raise KeptValues
        with on_plain_values(*functions) as (shadow, plain), changed(depth=0):
            watched = [PlainCallback(g, shadow, False) for g in plain]
            each = iter(watched)
            found = run(lambda _: next(each))
            check_unaltered(shadow)
        return found, shadow.found or holds_tracked(moving) or any([w.tracked for w in watched]), True
    with Search(name, moving, **points) as search:
        found = run(lambda v: search.of(v, 0, None))
    return found, search.moves, False


def called_again(f: Callable, pure: bool, arrays: bool = True):
    """A context of f that SciPy has called, to be called again; `pure`: it leaves nothing behind."""
    return contextlib.nullcontext((f,)) if pure else once_more(f, arrays=arrays)


class SearchInstruction(Call):
    """SciPy's search on plain values as one instruction of a recording. Its results have no derivative."""

    def __init__(self, name: str, f: Callable, args: tuple, kwargs: dict):
        self.failed = False
        self.idle = []  # shadows that wait for another run, with their functions
        super().__init__(name, f, args, kwargs, True)

    def __del__(self):
        super().__del__()
        for shadow, _ in getattr(self, "idle", ()):
            at_the_end_of_an_object(forgotten, shadow)

    def result(self):
        primitive = Primitive(self.name, self.numbers)
        primitive.external = True
        _, found = with_all(self.first, lambda values: bind(primitive, values, {}))
        if self.failed:
            raise RecordedWhole
        outs = iter(found)
        self.done = True
        return tree_map(lambda v: next(outs) if v is OUTPUT else v, self.tree)

    def run(self, functions, args, values: tuple, again: bool) -> tuple:
        try:
            y = self.searched(values)
        except LateVariable:
            raise
        except Exception as error:
            let_through(error)
            if self.ran:
                raise
            self.failed = True
            return ()
        self.seen(tree_map(lambda v: OUTPUT if is_float_value(v) else v, y))
        numbers = self.of_one_shape([out_of(v) for v in leaves(y) if is_float_value(v)])
        self.ran = True
        return numbers

    def searched(self, values: tuple):
        try:
            shadow, watched = self.idle.pop()
            shadow.taken_up(values)
        except IndexError:
            shadow, watched = PlainRebind(tuple(self.functions), True, (), self.first, values), None
        with shadow as (functions, _), changed(depth=0):
            shadow.kept, lasts = False, watched is not None or not shadow.numbers
            watched = watched or [PlainCallback(g, shadow, self.ran) for g in functions]

            def plain(v):
                if isinstance(v, FunctionPlaceholder):
                    return watched[v.place]
                return v if type(v) in IMMUTABLE else shadow(v)

            args, kwargs = tree_map(plain, self.args[0])
            y = self.f(*args, **kwargs) if self.ran else at_users_line(self.f, *args, **kwargs)
            shadow.check_all(self.name)
            check_unaltered(shadow)
            shadow.kept = lasts and shadow.is_lasting()
        if shadow.kept:
            self.idle.append((shadow, watched))
        return y
