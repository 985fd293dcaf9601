"""Functions with a derivative of the user's own."""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .._capture.builtin import shadowed
from .._capture.routes import way_to_tracked
from .._core.arrays import is_array
from .._core.errors import ArgumentError, Attempt, ConvergenceError, heard, let_through, take_back
from .._core.pickling import PickledByCall
from .._core.primitive import (
    RECORDED,
    SAMPLED,
    any_tracked,
    bind,
    is_tracked,
    joint_primitive,
    layout_of,
    live,
    values_of,
)
from .._core.scope import OPEN
from .._core.trees import Const, is_node, leaves, tree_map
from .._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple, Params
from .._core.variable import Variable
from ..ops import shaping
from ..ops.declare import dtype as dtype_of
from ..ops.declare import shape
from .arguments import check_function, numpy_number, user_name, where_of
from .batching.rules import CustomRule, as_stack
from .call import arrays_of_tables, constant_like
from .forward_state import StoredState
from .rebind import note_carried
from .transpose import checked_terms, transposed_jvp, transposed_vjp
from .vmap import vmap

P = ParamSpec("P")
Y = TypeVar("Y")


def rule(
    f: Callable[P, Y],
    vjp: AnyFunction | None = None,
    jvp: AnyFunction | str | None = None,
    *,
    pure: bool = False,
) -> Callable[P, Y]:
    """Give a function a derivative of your own.

    Parameters
    ----------
    f : callable
        The function. It gets plain arrays and returns an array, a number or a tuple of these.
    vjp : callable, optional
        ``vjp(g, out, *args)`` returns one cotangent, or a tuple with one for each argument. None means zero.
    jvp : callable or "differences", optional
        ``jvp(t, out, *args)`` returns the tangent of the output. t is a tuple of tangents; None means zero.
        With only one of `vjp` and `jvp`, the other mode is its transpose. ``"differences"``: both modes, and
        their derivatives, are central differences of f at two steps, 4 calls of f for each direction.
    pure : bool, default False
        Say that the rules read nothing that f leaves behind but scratch memory that they write first.

    Returns
    -------
    callable
        A function like f, with this derivative. The rules get the arguments as they were at the call. If a
        rule reads what each run of f stores, which is plain, f is run again before the rule.

    Raises
    ------
    ArgumentError
        If neither rule is given; and, in a call, if the result depends on a tracked value that is not an
        argument, or is another tree.
    DroppedDerivativeError
        For a derivative through what f has stored.
    ShapeError
        If a rule returns another shape than its argument or output has.
    ConvergenceError
        If the differences at two steps disagree: f has a kink there, or noise.

    See Also
    --------
    tapegrad.kernels.raw : The same for your own CUDA C.
    tapegrad.implicit.root : Derivatives of a solution.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> sumsq = tg.rule(lambda x: (x * x).sum(), vjp=lambda g, out, x: 2 * g * x)
    >>> tg.grad(sumsq)(np.array([2.0, 3.0]))
    array([4., 6.])
    >>> tg.grad(tg.rule(lambda x: (x * x).sum(), jvp="differences"))(np.array([2.0, 3.0])).round(9)
    array([4., 6.])
    """
    check_function("rule", f)
    if vjp is None and jvp is None:
        raise ArgumentError(f"rule({user_name(f)}): give vjp=, jvp=, or both")
    if isinstance(jvp, str) and jvp != "differences":
        raise ArgumentError(f"rule({user_name(f)}): jvp={jvp!r}; it is a function, or 'differences'")
    return Rule(f, vjp, jvp, pure)


def without_gaps(g: Any, out: Any) -> Any:
    """The cotangents of several outputs, zeros for those that are None."""
    if not isinstance(g, list):
        return g
    return tuple([constant_like(o, 0) if c is None else c for c, o in zip(g, out, strict=True)])


def derivatives(name: str, vjp: Any, jvp: Any, stored: StoredState) -> AnyTuple:
    """The rules of an operation, where the user gave one of them or both.  They know nothing of the `Rule`:
    no cycle."""

    def ready(f: AnyFunction, args: AnyTuple, params: Params, values: AnyTuple | None = None) -> AnyFunction:
        """f, which may read what the function has stored."""
        if stored.grown and all([t.visibility == RECORDED for t in OPEN.hiding]):
            stored.run(*map(values_of, args), **params)
        if not stored.changes:
            return followed(f, values)
        lost = stored.derived and (OPEN.hiding or any_tracked(args))
        return stored.as_operation(name, f) if lost else stored.before(f)

    def pull(g: Any, out: Any, need: Any, *args: Any, **params: Any) -> Any:
        g = without_gaps(g, out)
        f = ready(jvp, args, params) if vjp is None else ready(vjp, args, params, (g, out, args))
        if vjp is None:
            return transposed_jvp(f, g, out, need, args, params)
        if not OPEN.hiding:
            return checked_terms(name, f(g, out, *args, **params), args)
        return batched_rule(
            lambda g, out, *xs: checked_terms(name, f(g, out, *xs, **params), xs), (g, out, *args)
        )

    def push(t: Any, out: Any, *args: Any, **params: Any) -> Any:
        f = ready(vjp, args, params) if jvp is None else ready(jvp, args, params, (tuple(t), out, args))
        if jvp is None:
            return transposed_vjp(f, name, t, out, args, params)
        if not OPEN.hiding:
            return f(tuple(t), out, *args, **params)
        return batched_rule(*without_none(lambda t, out, *xs: f(t, out, *xs, **params), tuple(t), out, args))

    return (pull,), push


def followed(f: AnyFunction, values: AnyTuple | None = None) -> AnyFunction:
    """The user's rule as the function that is being differentiated sees it, unless these values are plain."""
    return shadowed(f) if OPEN.shadows and (values is None or any_tracked(values)) else f


# --- differences ---


class Differences:
    """The rules of a function of plain real arrays by central differences.  What they
    compute is such a function
    again, so derivatives of any order follow."""

    def __init__(self, f: AnyFunction):
        self.f = f

    def jvp(self, t: AnyTuple, out: Any, *args: Any, **params: Any) -> Any:
        active = [k for k, d in enumerate(t) if d is not None]

        def along(*xs: Any) -> Any:
            y, slopes = self.slopes(
                xs[: len(args)], params, [dict(zip(active, xs[len(args) :], strict=True))]
            )
            return tree_of(y, slopes[0])

        return Rule(along, None, "differences")(*args, *[t[k] for k in active])

    def vjp(self, g: Any, out: Any, *args: Any, **params: Any) -> AnyList:
        active = [k for k, x in enumerate(args) if dtype_of(x).kind == "f"]
        sizes = [int(np.prod(shape(args[k]))) for k in active]

        def pulled(*xs: Any) -> Any:
            xs, cotangents = xs[: len(args)], xs[len(args) :]
            units = [{k: unit(xs[k], n)} for k, size in zip(active, sizes, strict=True) for n in range(size)]
            _, slopes = self.slopes(xs, params, units)
            products = iter(
                [sum([(c * d).sum() for c, d in zip(cotangents, slope, strict=True)]) for slope in slopes]
            )
            return tuple(
                [
                    filled_like(xs[k], [next(products) for _ in range(size)])
                    for k, size in zip(active, sizes, strict=True)
                ]
            )

        found = Rule(pulled, None, "differences")(*args, *leaves(g))
        terms: AnyList = [None] * len(args)
        for k, term in zip(active, found, strict=True):
            terms[k] = term
        return terms

    def value(self, xs: AnyList | AnyTuple, params: Params) -> Any:
        return arrays_of_tables(self.f(*xs, **params), True)

    def slopes(self, xs: AnyTuple, params: Params, directions: AnyList) -> AnyTuple:
        """(f at xs, the derivatives of its leaves along each direction {place: tangent})"""
        y = self.value(xs, params)
        kinds = {dtype_of(v) for v in (*xs, *leaves(y))}
        if any([kind.kind == "c" for kind in kinds]):
            raise ArgumentError(
                f"rule({user_name(self.f)}, jvp='differences'): complex arguments or results need a rule of "
                f"your own"
            )
        eps = max([float(np.finfo(kind).eps) for kind in kinds if kind.kind == "f"], default=EPS)
        return y, [self.along(xs, params, y, direction, eps) for direction in directions]

    def along(self, xs: AnyTuple, params: Params, y: Any, direction: AnyDict, eps: float) -> AnyList:
        """At a step h and at h/2, relative to the arguments; h is best for the extrapolation from both."""
        sizes = {k: np.maximum(np.abs(xs[k]), 1e-3 * largest(xs[k]) or 1.0) for k in direction}
        h = eps**0.2 / (max([largest(t / sizes[k]) for k, t in direction.items()]) or 1.0)
        wide, near = [self.central(xs, params, direction, step) for step in (h, h / 2)]
        for a, b, v in zip(wide, near, leaves(y), strict=True):
            noise = 1e3 * eps * largest(v) / h
            if not largest(a - b) <= AGREEMENT * max(largest(a), largest(b)) + noise:
                raise ConvergenceError(
                    f"rule({user_name(self.f)}, jvp='differences'){where_of(self.f)}: the differences at "
                    f"steps {h:.1e} and {h / 2:.1e} disagree: the function has a kink or noise near this "
                    "point, or changes too fast. Give it a rule of your own"
                )
        return [(4 * b - a) / 3 for a, b in zip(wide, near, strict=True)]

    def central(self, xs: AnyTuple, params: Params, direction: AnyDict, h: float) -> AnyList:
        ahead, behind = [
            leaves(
                self.value([x + s * direction[k] if k in direction else x for k, x in enumerate(xs)], params)
            )
            for s in (h, -h)
        ]
        return [(a - b) / (2 * h) for a, b in zip(ahead, behind, strict=True)]


EPS = float(np.finfo(float).eps)
AGREEMENT = 1e-3  # of differences at two steps, relative


def largest(x: Any) -> float:
    return float(np.max(np.abs(x))) if np.size(x) else 0.0


def unit(x: Any, n: int) -> Any:
    """1 at element n, for an array or a number."""
    e = np.zeros_like(x, order="C")
    e.reshape(-1)[n] = 1.0
    return e


def filled_like(x: Any, values: AnyList) -> Any:
    y = np.zeros_like(x, order="C")
    for n, v in enumerate(values):
        y.reshape(-1)[n] = v
    return y


def tree_of(y: Any, found: AnyList) -> Any:
    column = iter(found)
    return tree_map(lambda _: next(column), y)


# --- many samples ---

FEW_SAMPLES = 4  # samples that are done one after another as soon


def for_samples(name: str, together: AnyFunction, rules: AnyTuple) -> CustomRule:
    """Under `vmap`: the operation `together` on stacks, with rules on stacks, which are run for all samples
    at once where they take what `vmap` gives them, else for one after another."""
    (pull,), push = rules

    def pull_all(g: Any, out: Any, need: Any, *stacks: Any, **params: Any) -> Any:
        g = without_gaps(g, out)
        return per_sample(lambda g, out, *xs: pull(g, out, need, *xs, **params), (g, out, *stacks))

    def push_all(t: Any, out: Any, *stacks: Any, **params: Any) -> Any:
        return per_sample(*without_none(lambda t, out, *xs: push(t, out, *xs, **params), t, out, stacks))

    prim = joint_primitive(name, together, pull_all, push_all)
    return CustomRule(
        lambda trace, _, operands, params: bind(prim, [as_stack(trace, v, b) for v, b in operands], params)
    )


def per_sample(f: AnyFunction, stacks: AnyTuple) -> Any:
    """The results of f for each sample, stacked."""
    count = shape(leaves(stacks)[0])[0]
    sample: AnyFunction = lambda k: tree_map(lambda x: x[k], stacks)
    first = f(*sample(0)) if count else None
    if count >= FEW_SAMPLES:
        with Attempt():  # it may take plain arrays only
            together = vmap(Const(f))(*stacks)
            if is_first(first, together):
                return together
    return stack_results([first, *[f(*sample(k)) for k in range(1, count)]])


def stack_results(results: AnyList) -> Any:
    found, first = [leaves(y) for y in results], results[0]
    columns = iter([None if c[0] is None else shaping.stack(list(c)) for c in zip(*found, strict=True)])
    return tree_map(lambda _: next(columns), first)


def without_none(push: AnyFunction, t: AnyTuple, out: Any, args: AnyTuple) -> AnyTuple:
    """(a function, its arguments), which is `push` without the tangents that are None among its arguments."""
    active = [d is not None for d in t]

    def pushed(out: Any, *xs: Any) -> Any:
        given = iter(xs[len(active) :])
        return push(tuple([next(given) if a else None for a in active]), out, *xs[: len(active)])

    return pushed, (out, *args, *[d for d in t if d is not None])


def batched_rule(f: AnyFunction, args: AnyTuple) -> Any:
    """What a rule gives under `vmap`; where it takes plain arrays only, of one sample after another."""
    known = heard()
    try:
        return f(*args)
    except Exception as error:
        let_through(error)
        traces = [x._trace for x in map(live_one, leaves(args)) if x is not None]
        sampled = [t for t in traces if t.visibility == SAMPLED]
        trace = max(sampled, key=lambda t: t.level, default=None)
        # (A derivative within the samples would be lost in their stack.)
        if trace is None or any([t.level > trace.level for t in traces]):
            raise
        take_back(known)
    stacks = tree_map(trace.stacked, args)
    y = stack_results([batched_rule(f, tree_map(lambda x, k=k: x[k], stacks)) for k in range(trace.count)])
    return tree_map(lambda v: None if v is None else trace.made(v), y)


def live_one(x: Any) -> Any:
    """x, if an open trace has it."""
    x = live(x) if isinstance(x, Variable) else None
    return x if x is not None and x._trace is not None else None


def is_first(first: Any, together: Any) -> bool:
    """Does what all samples gave begin with what the first one gave?  (Code that asks what it is given may do
    another thing.)"""
    pairs = [
        (a, b) for a, b in zip(leaves(first), leaves(together), strict=True) if a is not None or b is not None
    ]
    plain = [(np.asarray(values_of(a)), np.asarray(values_of(b)[0])) for a, b in pairs]
    return all(
        [
            a.shape == b.shape and np.allclose(a, b, 1e-9, 1e-9 * np.abs(a).max(initial=0.0), equal_nan=True)
            for a, b in plain
        ]
    )


def checked_result(f: AnyFunction, y: Any) -> Any:
    """The result of f, which was given plain arrays: what an open transform watches in it came by another
    way."""
    y = arrays_of_tables(y, True)
    if any([is_tracked(v) for v in leaves(y)]):
        raise ArgumentError(
            f"rule({user_name(f)}){where_of(f)}: the result depends on {way_to_tracked(f)}, which an open "
            "transform watches and the function did not get as an argument; its derivative would be lost: "
            "pass it as an argument, or take tg.value of it"
        )
    results = y if type(y) is tuple else (y,)
    other = next((v for v in results if is_node(v)), None)
    if other is not None:
        raise ArgumentError(
            f"rule({user_name(f)}){where_of(f)}: the function returns a {type(other).__name__}; return an "
            "array, a number or a tuple of these, and make the rest of them outside"
        )
    return tuple(map(numpy_number, results)) if type(y) is tuple else numpy_number(y)


class Rule(PickledByCall):
    """A function with a derivative of the user's own."""

    def __init__(
        self, f: AnyFunction, vjp: AnyFunction | None, jvp: AnyFunction | str | None, pure: bool = False
    ):
        self.f, self.vjp, self.jvp, self.pure = f, vjp, jvp, pure
        self.fitting: set[AnyTuple] = set()  # (number of arguments, names of settings) that the rules take
        functools.update_wrapper(self, f)
        self.__name__ = user_name(f)
        if jvp == "differences":
            numeric = Differences(f)
            vjp, jvp = vjp or numeric.vjp, numeric.jvp
        stored = StoredState(f, [g for g in (self.vjp, self.jvp) if callable(g)], pure)
        (pull,), push = rules = derivatives(self.__name__, vjp, jvp, stored)
        run = lambda *args, **params: checked_result(f, stored.run(*args, **params))
        self.prim = joint_primitive(self.__name__, run, pull, push)
        self.prim.batch = for_samples(
            self.__name__,
            lambda *stacks, **params: checked_result(
                f, per_sample(lambda *xs: stored.run(*xs, **params), stacks)
            ),
            rules,
        )

    def __call__(self, *args: Any, **params: Any) -> Any:
        for n, a in enumerate(args):
            if not (is_array(layout_of(a)) or isinstance(layout_of(a), (int, float, complex, np.generic))):
                raise ArgumentError(
                    f"{self.__name__}: argument {n} of a function with a rule must be an array or a number; "
                    f"pass settings by keyword"
                )
        if (len(args), *params) not in self.fitting:
            self.check_rules(len(args), params)
        try:
            return bind(self.prim, args, params)
        except Exception as error:
            note_carried(error, [(a,) for a in args])
            raise

    def check_rules(self, count: int, params: Params) -> None:
        """Raise if a rule does not take what a call with so many arguments gives it."""
        for word, first, f in ("vjp", "g", self.vjp), ("jvp", "t", self.jvp):
            try:
                if callable(f):
                    inspect.signature(f).bind(*[None] * (2 + count), **params)
            except ValueError:  # compiled code, which does not tell
                continue
            except TypeError as error:
                given = ", ".join(
                    [first, "out", *[f"x{n}" for n in range(count)], *[f"{k}=" for k in params]]
                )
                raise ArgumentError(
                    f"rule({self.__name__}): {word} gets the result and the arguments, as {word}({given}), but does "
                    f"not take them: {error}"
                ) from None
        self.fitting.add((count, *params))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def _made(self) -> AnyTuple:
        return Rule, (self.f, self.vjp, self.jvp, self.pure)
