"""Functions whose derivative is zero or whose result is no array: comparisons, orders, counts, tests,
shapes and dtypes.

They run on primal values and make no record. For hidden values each is a primitive without rules, so
its result is hidden too. The trace is asked for the values only if the shape of the result depends on
them, or the result is text.

None of these functions returns floats. A function whose float result depends on a tracked argument has
a rule, or raises."""

import functools
import math
from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.lib.array_utils import normalize_axis_index

from .._core.arrays import is_array, is_differentiable, xp_of
from .._core.equal_numbers import are_apart
from .._core.errors import NoRuleError, frame_outside
from .._core.foreign import SIMPLE
from .._core.primitive import Primitive, any_tracked, bind, layout_of, primal_of, values_of
from .._core.searches import ROUNDED_TEXT, ZERO, may_agree, note_comparison, note_equality, note_loss
from .._core.trees import nested
from .._core.variable import HANDLES, Variable
from . import piecewise as piecewise
from .declare import NUMPY, ndim, shape
from .piecewise import without_noise
from .shaping import reshape

OF_LAYOUT = (
    "shape ndim size iscomplexobj isrealobj result_type can_cast common_type tril_indices_from "
    "triu_indices_from diag_indices_from min_scalar_type isscalar broadcast_shapes einsum_path "
    "isfortran".split()
)
OF_VALUES = (
    "nonzero flatnonzero argwhere array_repr array_str array2string indices format_float_positional "
    "format_float_scientific save savez savez_compressed savetxt".split()
)
OF_PRIMALS = (
    "all any count_nonzero array_equal array_equiv allclose isclose iscomplex isreal isneginf isposinf "
    "isin digitize argmax argmin nanargmax nanargmin argsort argpartition lexsort searchsorted isnan "
    "isinf isfinite signbit logical_and logical_or logical_not logical_xor equal not_equal less "
    "less_equal greater greater_equal unravel_index ravel_multi_index fix bitwise_and bitwise_or "
    "bitwise_xor bitwise_count invert left_shift right_shift gcd lcm isnat".split()
)
OF_MEMORY = ["may_share_memory", "shares_memory"]  # see overlaps.py
NAMES = OF_LAYOUT + OF_VALUES + OF_PRIMALS + OF_MEMORY
STEPS = ("fix", "assert_array_max_ulp")  # floats, but piecewise constant


def array_library(xs):
    for x in xs:
        if type(x) in (list, tuple):
            found = array_library(x)
            if found is not np:
                return found
        elif is_array(x) and xp_of(x) is not np:
            return xp_of(x)
    return np


def has_floats(y) -> bool:
    """Does a result contain a float or complex array or number?"""
    if isinstance(y, (list, tuple)):
        return any(has_floats(v) for v in y)
    return is_differentiable(layout_of(y))


class ArgumentPlaceholder:
    """Stands for the k-th hidden argument of a call."""

    __slots__ = ("k",)

    def __init__(self, k: int):
        self.k = k


def is_abstract(x) -> bool:
    return any([is_abstract(v) for v in x]) if type(x) in (list, tuple) else isinstance(x, Variable)


# Batching rules (`Primitive.batch`), for stacks with the samples along the first axis.


def _stacked_ufunc(run: Callable, stacks: list, params: dict):
    given = [*params["args"], *params["kwargs"].values()]
    rank = max(
        [ndim(x) - 1 for x in stacks] + [np.ndim(a) for a in given if type(a) is not ArgumentPlaceholder]
    )
    return run(
        *[reshape(x, to=shape(x)[:1] + (1,) * (rank + 1 - ndim(x)) + shape(x)[1:]) for x in stacks], **params
    )


BY_ELEMENT = ("isclose", "isneginf", "isposinf", "iscomplex", "isreal", "fix")
ALL_AXES = ("all", "any", "count_nonzero")
ONE_AXIS = {"argmax": None, "argmin": None, "argsort": -1}  # function -> its default axis


def _stacked_reduction(name: str) -> Callable:
    def rule(run, stacks, params):
        x, args, kwargs = stacks[0], list(params["args"]), dict(params["kwargs"])
        axis = args.pop(1) if len(args) > 1 else kwargs.pop("axis", ONE_AXIS.get(name))
        n = ndim(x) - 1
        if (
            type(args[0]) is not ArgumentPlaceholder
            or len(args) > 1
            or not n
            or (axis is None and kwargs.get("keepdims") and name in ONE_AXIS)
        ):
            return NotImplemented
        if axis is None and name in ONE_AXIS:
            x, n, axis = reshape(x, to=(shape(x)[0], -1)), 1, 0
        axes = range(n) if axis is None else axis if type(axis) is tuple else (axis,)
        axes = tuple([normalize_axis_index(a, n) + 1 for a in axes])
        return run(x, args=tuple(args), kwargs={**kwargs, "axis": axes if name in ALL_AXES else axes[0]})

    return rule


def emptied(tree) -> tuple:
    """(the Variables in arguments; the arguments with a `ArgumentPlaceholder` for each)"""
    hidden = []

    @nested
    def held(x):
        if not isinstance(x, Variable):
            return x
        hidden.append(x)
        return ArgumentPlaceholder(len(hidden) - 1)

    tree = held(tree)
    return hidden, tree


def filled(hidden, tree):
    return nested(lambda x: hidden[x.k] if type(x) is ArgumentPlaceholder else x)(tree)


def library_call(f: Callable, args, kwargs: dict):
    """The function of this name of the arguments' library. (CuPy sorts by the rows of an array only.)"""
    library = array_library(args)
    if f.__name__ == "lexsort" and library is not np and type(args[0]) in (tuple, list):
        args = library.stack(args[0]), *args[1:]
    return getattr(library, f.__name__, f)(*args, **kwargs)


UNNESTED, FLAT = SIMPLE | HANDLES, SIMPLE | {ArgumentPlaceholder}


def zero_derivative_of(f: Callable, of: Callable = primal_of) -> Callable:
    """The operation of a function without a derivative. `of`: what it gets of its arguments."""
    name, values = f.__name__, nested(of)

    def run(*hidden, args, kwargs):
        if kwargs or not FLAT.issuperset(map(type, args)):
            args, kwargs = filled(hidden, (args, kwargs))
        else:  # the usual case
            args = [hidden[a.k] if type(a) is ArgumentPlaceholder else a for a in args]
        return library_call(f, args, kwargs)

    prim = Primitive(name, run)
    prim.ufunc = f if isinstance(f, np.ufunc) else None  # type: ignore[assignment]
    if prim.ufunc or name in BY_ELEMENT:
        prim.batch = _stacked_ufunc
    elif name in ALL_AXES or name in ONE_AXIS:
        prim.batch = _stacked_reduction(name)

    def call(args, kwargs):
        hidden, (args, kwargs) = emptied((args, kwargs))
        return bind(prim, hidden, {"args": args, "kwargs": kwargs})

    def run_on(args, kwargs):
        if not kwargs and UNNESTED.issuperset(map(type, args)):  # the usual case
            given = [of(x) for x in args]
            if SIMPLE.issuperset(map(type, given)):
                return f(*given)
        given, named = values([*args]), values(kwargs)
        if is_abstract(given) or is_abstract(list(named.values())):
            return call(given, named)
        return library_call(f, given, named)

    def on_values(*args, **kwargs):
        y = run_on(args, kwargs)
        if has_floats(y) and name not in STEPS and any_tracked((args, kwargs)):
            raise NoRuleError(
                f"numpy.{name} gives floats here, which depend on a tracked Variable, and has no derivative "
                "rule for them; compose it of other operations, or cut the derivative with tapegrad.value(x)"
            )
        return y

    on_values.__name__ = name
    return on_values


for _names, _of in ((OF_LAYOUT, layout_of), (OF_VALUES, values_of), (OF_PRIMALS, primal_of)):
    for _name in _names:
        _f = getattr(np, _name)
        if _f not in NUMPY:
            NUMPY[_f] = zero_derivative_of(_f, _of)


for _f in (scipy.linalg.issymmetric, scipy.linalg.ishermitian, scipy.linalg.bandwidth):
    NUMPY[_f] = zero_derivative_of(_f, values_of)


def declare_testing() -> None:
    """The functions of `numpy.testing`, a module that is loaded on first use."""
    for name, f in vars(np.testing).items():
        if name.startswith("assert_"):
            NUMPY[f] = zero_derivative_of(f, values_of)


def with_out(operation: Callable) -> Callable:
    @functools.wraps(operation)
    def called(x, out=None):
        if out is None:
            return operation(x)
        out[...] = operation(x)
        return out

    return called


for _f in (np.isneginf, np.isposinf):
    NUMPY[_f] = with_out(NUMPY[_f])


def noting_order(operation: Callable) -> Callable:
    """The operation, which compares its first two arguments, or one with zero."""

    @functools.wraps(operation)
    def called(*sides, **settings):
        note_comparison((*sides, ZERO)[:2], frame_outside("tapegrad"))
        return operation(*sides, **settings)

    return called


def noting_equality(operation: Callable, answer: bool = True) -> Callable:
    """The operation, whose answer for two equal arguments this is."""

    @functools.wraps(operation)
    def called(*sides, **settings):
        found = operation(*sides, **settings)
        if may_agree(found, answer):
            frame = frame_outside("tapegrad")
            note_equality(sides[:2], frame)
            if are_apart(sides[:2], frame, lambda *_: True):
                return np.full(shape(found), not answer)[()]
        return found

    return called


def noting_rounding(operation: Callable) -> Callable:
    """The operation, which rounds to decimals."""

    @functools.wraps(operation)
    def called(x, decimals=0):
        if type(x) in HANDLES and type(decimals) is int and decimals > 0:
            layout = layout_of(x)
            if layout.dtype.kind in "fc" and 10.0**-decimals < math.sqrt(np.finfo(layout.dtype).eps):
                return without_noise(x, decimals=decimals)
            note_loss(x, frame_outside("tapegrad"), ROUNDED_TEXT)
        return operation(x, decimals)

    return called


for _f in (np.round, np.around):
    NUMPY[_f] = noting_rounding(NUMPY[_f])
for _f in (np.sign, np.less, np.less_equal, np.greater, np.greater_equal):
    NUMPY[_f] = noting_order(NUMPY[_f])
for _f in (np.equal, np.array_equal, np.isclose, np.allclose):
    NUMPY[_f] = noting_equality(NUMPY[_f])
NUMPY[np.not_equal] = noting_equality(NUMPY[np.not_equal], False)


NUMPY[np.iterable] = lambda y: bool(shape(y)) if isinstance(y, Variable) else np.iterable(y)
argsort, argpartition, searchsorted, any_of, lies_in, argmax = [
    NUMPY[f] for f in (np.argsort, np.argpartition, np.searchsorted, np.any, np.isin, np.argmax)
]
