"""How calls of NumPy's and CuPy's functions reach operations: by a face, by NEP 13 and NEP 18, or by
CuPy's hooks.

`call` is the only entrance. It finds the operation, translates the arguments from NumPy's signature,
and writes into `out=`."""

import contextlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.special

from .._core.arrays import NUMBERS, is_array, is_scalar, xp_of
from .._core.errors import ArgumentError, DroppedDerivativeError, NoRuleError, ShapeError, TapegradError
from .._core.foreign import argument, holds_objects
from .._core.lent_memory import lend
from .._core.primitive import (
    ADD_AT,
    any_tracked,
    holds_subarray,
    holds_variable,
    hook,
    is_tracked,
    layout_of,
    primal_of,
    seen,
    values_of,
    write,
)
from .._core.registry import late, load
from .._core.variable import HANDLES, SUBARRAYS, ArrayVariable, Variable, View
from . import creation, scans
from . import shaping as s
from .declare import NUMPY, shape, xp
from .indexing import overlaps
from .indexing.traced_indices import is_hidden, with_added
from .layouts import in_library_layout
from .names import reason
from .sorting import with_extremes


def no_rule(f) -> NoRuleError:
    why = reason(public_name(f))
    if why is not None:
        return NoRuleError(
            f"{public_name(f)} has no derivative rule in tapegrad: {why}; or give it one with "
            "tapegrad.rule(f, vjp=...), or cut the derivative with tapegrad.value(x)"
        )
    return NoRuleError(
        f"{public_name(f)} has no derivative rule in tapegrad; compose it of other operations, give it one "
        f"with "
        "tapegrad.rule(f, vjp=...), or cut the derivative with "
        f"{getattr(f, '__name__', f)}(tapegrad.value(x))"
    )


def function_for(f):
    """The operation for a NumPy or SciPy function, which may be declared on first use."""
    try:
        found = NUMPY.get(f)
    except TypeError:
        return None
    if found is None and "tapegrad.ops.on_demand" not in sys.modules:
        load("tapegrad.ops.on_demand")
        found = NUMPY.get(f)
    return found


def signature_of(f) -> inspect.Signature:
    """The signature of the library's f. If f has none, like C functions of NumPy before 2.4, that of the
    operation."""
    try:
        return inspect.signature(f)
    except (TypeError, ValueError):
        return inspect.signature(function_for(f))


def takes_matrices(f: Any) -> bool:
    """Is f of linear algebra, a Fourier transform or a special function, in which each list is an array?"""
    home = getattr(f, "__module__", None) or type(f).__module__
    return home.startswith(MATRIX_PACKAGES) and not isinstance(f, np.ufunc)


def array_like(x: Any) -> Any:
    """An array argument: a nested list, or a tuple of numbers with tracked ones, becomes an array.  Rows of
    different lengths are left to the function, and so is a list of plain arrays."""
    if type(x) is list:
        numbers = s.nests_variable(x) or not any(map(is_array, x))
    else:
        numbers = type(x) is tuple and s.nests_variable(x) and all([is_scalar(layout_of(e)) for e in x])
    if numbers:
        with contextlib.suppress(ValueError):
            return s.nested_to_array(x)
    return x


class Adapter:
    """Binds a call by the library's signature and passes the arguments by name. Leading required
    arguments are arrays and are passed by position. Library defaults are omitted. A parameter that the
    operation lacks must have its default, or have no influence on values."""

    def __init__(self, f, ours: Callable):
        self.f, self.declared, self.ours = f, ours, ours
        mine = inspect.signature(ours)
        self.theirs = signature_of(f)
        self.varying = any(p.kind is p.VAR_KEYWORD for p in mine.parameters.values())
        self.names = {
            n for n, p in mine.parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        }
        params = self.theirs.parameters
        self.places = 0  # the number of positional arguments with the same meaning
        for p, q in zip(mine.parameters.values(), params.values(), strict=False):
            if p.kind is p.VAR_POSITIONAL is q.kind:
                self.places = 99
            same = p.name == q.name or (
                p.default is p.empty is q.default and p.name not in params and q.name not in mine.parameters
            )
            if p.kind not in PLACED or q.kind not in PLACED or not same or q.name == "out":
                break
            self.places += 1
        self.leading = [
            q.name for q in [*params.values()][: self.places] if q.default is q.empty and q.kind in PLACED
        ]
        tells_lists = hasattr(ours, "takes_lists") or hasattr(ours, "followed") or not takes_matrices(f)
        several = any([q.kind is q.VAR_POSITIONAL for q in params.values()])
        self.arrays = 0 if tells_lists else 99 if several else len(self.leading)  # they come first
        self.has_out = "out" in params
        by_place = [q.name for q in params.values() if q.kind in PLACED]
        self.out = by_place.index("out") if "out" in by_place else 99
        self.plain = 99 if self.varying else self.places  # the number of arguments that need no translation
        self.direct = {
            n for n in self.names - {*self.leading, "out"} if n in params and own_default(params[n].default)
        }

    def takes(self, args: tuple) -> bool:
        """Is no array among the arguments a list?"""
        return LISTS.isdisjoint(map(type, args[: self.arrays]))

    def with_arrays(self, args: tuple) -> tuple:
        return args if self.takes(args) else (*map(array_like, args[: self.arrays]), *args[self.arrays :])

    def __call__(self, args: tuple, kwargs: dict):
        args = self.with_arrays(args)
        if self.varying:
            return self.ours(*args, **kwargs)
        if len(args) <= self.places and kwargs.keys() <= self.direct:
            for v in kwargs.values():
                if v is NO_VALUE:
                    break
            else:
                return self.ours(*args, **kwargs)
        bound = self.theirs.bind(*args, **kwargs).arguments
        first = []
        named = {}
        for name, value in bound.items():
            q = self.theirs.parameters[name]
            if name in self.leading:
                first.append(array_like(value) if self.arrays else value)
            elif q.kind is q.VAR_POSITIONAL:
                first.extend(value)
            elif q.kind is q.VAR_KEYWORD:
                for n, v in value.items():
                    self.pass_on(named, n, v, NO_VALUE)
            else:
                self.pass_on(named, name, value, q.default)
        return self.ours(*first, **named)

    def without_out(self, args: tuple, kwargs: dict) -> tuple[Any, tuple, dict]:
        """Return `out`, given by name or by position, and the other arguments."""
        out = kwargs.get("out")
        if "out" in kwargs and self.has_out:
            kwargs = {k: v for k, v in kwargs.items() if k != "out"}
        elif len(args) > self.out:
            bound = self.theirs.bind(*args, **kwargs).arguments
            out, args = bound["out"], args[: self.out]
            kwargs = {k: v for n, (k, v) in enumerate(bound.items()) if n >= len(args) and k != "out"}
        return out, args, kwargs

    def pass_on(self, named: dict, name: str, value, default) -> None:
        if value is NO_VALUE or same_argument(value, default):
            return
        if name in self.names:
            named[name] = value
        elif name not in HARMLESS:
            raise ArgumentError(f"{public_name(self.f)}: {name}= is not supported on a tracked Variable")


LISTS = {list, tuple}
MATRIX_PACKAGES = ("numpy.linalg", "numpy.fft", "scipy.linalg", "scipy.fft", "scipy.special")
PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
NO_VALUE = np._NoValue
HARMLESS = set(
    "order subok casting device check_finite workers optimize lwork driver lapack_driver overwrite_a "
    "overwrite_a_band overwrite_ab overwrite_b overwrite_c overwrite_input overwrite_qr overwrite_qru "
    "overwrite_qruv overwrite_x".split()
)


def own_default(x) -> bool:
    """Is the default a meaningful value, and not a library's private mark for 'not given'? (NumPy's own
    mark counts as a value.)"""
    return (
        x is NO_VALUE
        or x is None
        or x is inspect.Parameter.empty
        or isinstance(x, (bool, int, float, str, tuple, type))
    )


def same_argument(a, b) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, (bool, int, float, str, tuple)) and a == b)


def public_name(f) -> str:
    """The name under which users call f, such as numpy.linalg.solve."""
    name = getattr(f, "__name__", str(f))
    home = "numpy"
    if isinstance(f, np.ufunc):  # which tells no module
        ours = getattr(scipy.special, name, None) is f
        home = "scipy.special" if ours else "numpy" if hasattr(np, name) else "_"
    parts = (getattr(f, "__module__", None) or home).split(".")
    return ".".join([*[p for p in parts if not p.startswith("_")], name])


ADAPTERS: dict = {}


def adapter_of(f, ours: Callable) -> Adapter:
    adapter = ADAPTERS.get(f)
    if adapter is None or adapter.declared is not ours:
        adapter = ADAPTERS[f] = Adapter(f, ours)
    return adapter


MISTAKES = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


class UnpassableArgument(Exception):
    """An argument cannot be passed to the library a second time."""


def again(x):
    """An argument as writable plain data, for a second call that finds NumPy's error."""
    if isinstance(x, (list, tuple)) and type(x) in (list, tuple):
        return type(x)([again(v) for v in x])
    if isinstance(x, Variable):
        x = seen(x)
    if x is None or (callable(x) and not isinstance(x, type)):
        raise UnpassableArgument
    return x.copy() if is_array(x) else x


def as_the_library(f, args, kwargs: dict, error: Exception) -> Exception:
    """The error of f on plain values, if its class differs. Callers expect NumPy's exception."""
    if isinstance(error, TapegradError) and not isinstance(error, (ArgumentError, ShapeError)):
        return error
    try:
        given = (
            [x if x is None else again(x) for x in args],
            {k: x if x is None else again(x) for k, x in kwargs.items()},
        )
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            f(*given[0], **given[1])
    except UnpassableArgument:
        return error
    except Exception as theirs:
        return error if isinstance(error, type(theirs)) else theirs
    return error


def call(f, args: tuple, kwargs: dict, key=None):
    """f(*args, **kwargs) for arguments with Variables. `key`: NumPy's function of the same meaning, if f
    is CuPy's."""
    if isinstance(f, np.ufunc) and holds_subarray((args, kwargs)):
        return f(*args, **kwargs)  # NumPy finds whose `__array_ufunc__` acts
    try:
        return call_library(f, args, kwargs, key)
    except MISTAKES as error:
        if (other := as_the_library(f, args, kwargs, error)) is error:
            raise
        raise other from error


def call_library(f, args: tuple, kwargs: dict, key):
    key = f if key is None else key
    if isinstance(key, np.ufunc):
        return ufunc_call(key, "__call__", args, dict(kwargs))
    first = args[0] if args else None
    args, kwargs = tuple([argument(a) for a in args]), {k: argument(v) for k, v in kwargs.items()}
    if args and args[0] is not first and getattr(function_for(key), "writes", False):
        raise ArgumentError(
            f"{public_name(f)}: the first argument, of type "
            f"{type(first).__name__}{' and dtype object' if is_array(first) else ''}"
            ", is written; of tracked values make an array of floats, or write a[i] = value"
        )
    if not kwargs:
        adapter = ADAPTERS.get(key)
        if adapter is not None and len(args) <= adapter.plain:
            return adapter.ours(*adapter.with_arrays(args))
    ours = function_for(key)
    if ours is None:
        if any_tracked((args, kwargs)):
            raise no_rule(f)
        return f(*lend(args), **lend(kwargs))
    adapter = adapter_of(key, ours)
    out, args, kwargs = adapter.without_out(args, kwargs)
    if key in PIECE_BY_PIECE and out is not None and any([overlaps.lies_in(out, v) for v in args[0]]):
        y = overlaps.left_in(
            out, list(args[0]), lambda out, pieces: key(pieces, *args[1:], out=out, **kwargs)
        )
    else:
        y = adapter(args, kwargs)
    return y if out is None else (store if key in STRETCHED else store_all)(out, y)


# they write into `out` before they have read all inputs
PIECE_BY_PIECE = frozenset((np.concatenate, np.stack))
STRETCHED = frozenset((np.clip, np.einsum))  # the result is broadcast into `out`
OPERANDS = NUMBERS | HANDLES | {np.ndarray, np.float64}
AT = {np.add: 1.0, np.subtract: -1.0}
REDUCE = {
    np.add: np.sum,
    np.multiply: np.prod,
    np.maximum: np.max,
    np.minimum: np.min,
    np.logical_and: np.all,
    np.logical_or: np.any,
}
ACCUMULATE = {np.add: np.cumsum, np.multiply: np.cumprod}


def ufunc_call(ufunc, method: str, inputs, params: dict):
    """A ufunc with out=, where= or dtype=, or one of its methods."""
    if method == "at":
        return ufunc_at(ufunc, *inputs)
    if params.get("out") is ...:  # no number, but an array without axes
        y = ufunc_call(ufunc, method, inputs, {k: v for k, v in params.items() if k != "out"})
        return (
            tuple([call(np.asarray, (v,), {}) for v in y]) if type(y) is tuple else call(np.asarray, (y,), {})
        )
    # the usual case
    if (
        method == "__call__"
        and ufunc.nout == 1
        and len(params) == 1
        and type(params.get("out")) is ArrayVariable
    ):
        entry = NUMPY.get(ufunc)
        if entry is not None and len(inputs) == ufunc.nin and OPERANDS.issuperset(map(type, inputs)):
            return store(params["out"], entry(*inputs))
    if method in METHODS:
        return by_method(ufunc, method, inputs, params)
    if method == "outer" and len(inputs) == 2:
        a, b = [s.array_operand(x) for x in inputs]
        rank = len(shape(b))
        return ufunc_call(
            ufunc, "__call__", (reshape_any(a, shape(a) + (1,) * rank) if rank else a, b), params
        )
    if method != "__call__":
        raise no_rule(ufunc)
    if len(inputs) > ufunc.nin:
        params["out"], inputs = inputs[ufunc.nin :], inputs[: ufunc.nin]
    out = params.pop("out", None)
    where = params.pop("where", True)
    dtype, casting = params.pop("dtype", None), params.pop("casting", None)
    layout = {name: params.pop(name) for name in ("order",) if name in params}
    params.pop("subok", None)
    if params.get("axis") is not None and ufunc.signature:
        params["axes"] = [params.pop("axis")] * ufunc.nin + [()]
    if params.get("axes") is not None and ufunc.signature:
        return with_axes(ufunc, inputs, params.pop("axes"), {**params, "out": out})
    # (`isinstance` would ask a Variable for its class)
    inputs = [s.array_operand(x) for x in inputs]
    if params and not (params.keys() == {"signature"} and own_loop(ufunc, inputs, params["signature"])):
        raise ArgumentError(
            f"{public_name(ufunc)}: {', '.join(params)}= is not supported on a tracked Variable"
        )
    given = inputs
    entry = function_for(ufunc)
    among_objects = any(map(holds_objects, inputs))
    elements = among_objects or (entry is None and is_of_elements(ufunc))
    if elements:
        entry, inputs = None, [creation.objects(x) if isinstance(x, Variable) else x for x in inputs]
    elif dtype is not None or casting is not None:
        inputs, exact = in_loop(ufunc, inputs, dtype, casting)
        entry = entry if exact else None
    elif entry is None and any(is_tracked(x) for x in inputs):
        raise no_rule(ufunc)
    y = ufunc(*[values_of(x) for x in inputs]) if entry is None else entry(*inputs)
    if elements and not among_objects:
        y = tuple(map(numbers_among, y)) if type(y) is tuple else numbers_among(y)
    if out is None or (type(out) is tuple and all(o is None for o in out)):
        to = shape(y[0] if type(y) is tuple else y)
        if where is not True and not (
            np.broadcast_shapes(np.shape(where), to) == to and np.all(values_of(where))
        ):
            raise ArgumentError(
                f"numpy.{ufunc.__name__}: where= without out= leaves elements undefined; give out="
            )
        layout.update({k: v for k, v in (("dtype", dtype), ("casting", casting)) if v is not None})
        return in_library_layout(y, ufunc, given, layout) if layout else y
    if ufunc.nout > 1:
        return tuple([v if o is None else store(o, v, where) for o, v in zip(out, y, strict=True)])
    return store(out, y, where)


def is_of_elements(ufunc) -> bool:
    """Is it from `numpy.frompyfunc`, a function of elements?  (Functions of texts list no types.)"""
    return bool(ufunc.types) and all([set(t) <= set("O->") for t in ufunc.types])


def numbers_among(y):
    """What a function of elements made; an array if it holds numbers only, tracked ones among them."""
    found = y.ravel().tolist() if type(y) is np.ndarray else [None]
    numbers = holds_variable(found) and all([is_scalar(layout_of(v)) for v in found])
    return argument(y) if numbers else y


def with_axes(ufunc, inputs: tuple, axes: list, params: dict):
    """A function of the last axes, such as matmul, applied to other axes: they are moved to the end, and
    the result's axes back."""
    to = [tuple(a) if isinstance(a, (tuple, list)) else (a,) for a in axes]
    for n, (a, x, core) in enumerate(
        zip(to, inputs, re.findall(r"\(([^)]*)\)", ufunc.signature), strict=False)
    ):
        needed = min(core.count(",") + 1, len(shape(x))) if "?" in core else core.count(",") + 1
        if len(a) != needed:
            raise np.exceptions.AxisError(
                f"{ufunc.__name__}: operand {n} has {needed} core dimensions, and axes= names {len(a)}"
            )
    moved = [
        call(np.moveaxis, (x, a, tuple(range(-len(a), 0))), {}) for x, a in zip(inputs, to, strict=False)
    ]
    y = ufunc_call(
        ufunc, "__call__", tuple(moved), {k: v for k, v in params.items() if k != "out" or v is not None}
    )
    last = to[ufunc.nin] if len(to) > ufunc.nin else ()
    return call(np.moveaxis, (y, tuple(range(-len(last), 0)), last), {}) if last else y


def own_loop(ufunc, inputs: tuple, signature) -> bool:
    """Does signature= name the loop that the operands would take anyway?"""
    kinds = [getattr(layout_of(x), "dtype", type(x)) for x in inputs]
    loop = "".join([d.char for d in ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))])
    return isinstance(signature, str) and loop == signature.replace("->", "")


METHODS = {  # and the names of their arguments after the array
    "reduce": ("axis", "dtype", "out", "keepdims", "initial", "where"),
    "accumulate": ("axis", "dtype", "out"),
    "reduceat": ("indices", "axis", "dtype", "out"),
}


def by_method(ufunc, method: str, inputs: tuple, params: dict):
    """A method `reduce`, `accumulate` or `reduceat`: NumPy's function of the same meaning, or repeated
    calls of the ufunc."""
    params = {**dict(zip(METHODS[method], inputs[1:], strict=False)), **params}
    out = params.get("out")
    params["out"] = out = out[0] if isinstance(out, tuple) else out
    known: Any = REDUCE.get(ufunc) if method != "accumulate" else ACCUMULATE.get(ufunc)
    if known is not None and method != "reduceat":
        for name in [n for n in params if n not in inspect.signature(known).parameters]:
            if params.pop(name) is not None:
                raise ArgumentError(
                    f"{public_name(ufunc)}.reduce: {name}= is not supported on a tracked Variable"
                )
        return call(known, inputs[:1], {"axis": 0, **params})
    x, entry = inputs[0], function_for(ufunc)
    if entry is None and is_of_elements(ufunc) and out is None:
        given = {name: v for name, v in params.items() if name != "out"}
        return numbers_among(getattr(ufunc, method)(creation.objects(x), **given))
    if (ufunc not in scans.FOLLOWED and (known is None or "dd->d" not in ufunc.types)) or not isinstance(
        x, Variable
    ):
        raise no_rule(ufunc)
    dtype = params.get("dtype")
    x = x if dtype is None else cast_result(x, np.dtype(dtype))
    axis = params.get("axis", 0)
    if method == "accumulate":
        y = scans.accumulated(ufunc, entry, x, axis)
    elif method == "reduceat":
        one = {"axis": axis, "keepdims": True}
        y = scans.reduced_at(
            ufunc,
            lambda part: ufunc_call(ufunc, "reduce", (part,), dict(one)),
            x,
            values_of(params["indices"]),
            axis,
        )
    else:
        scans.refuse_where(ufunc, params.get("where"))
        initial = params.get("initial")
        y = scans.reduce_axis(
            ufunc, entry, x, axis, params.get("keepdims", False), None if initial is NO_VALUE else initial
        )
    if out is not None:
        return store_all(out, y)
    given = {k: v for k, v in params.items() if k == "axis" or not (v is None or v is NO_VALUE)}
    return in_library_layout(s.copy(y) if type(y) is View else y, getattr(ufunc, method), inputs[:1], given)


def in_loop(ufunc, inputs, dtype, casting: str | None) -> tuple:
    """The inputs in the dtypes of NumPy's loop for dtype= and casting=, and whether the loop passes
    derivatives (an integer loop does not)."""
    given = [
        type(x) if type(x) in NUMBERS else getattr(layout_of(x), "dtype", None) or np.asarray(x).dtype
        for x in inputs
    ]
    wanted = {} if dtype is None else {"signature": (*[None] * ufunc.nin, *[as_dtype(dtype)] * ufunc.nout)}
    loop = ufunc.resolve_dtypes((*given, *[None] * ufunc.nout), casting=casting or "same_kind", **wanted)
    exact = all(d.kind in "fc" or not is_tracked(x) for d, x in zip(loop, inputs, strict=False))
    if not exact and np.dtype(object) in loop:
        raise ArgumentError(
            f"{public_name(ufunc)}: dtype=object would drop the derivative of a tracked value; leave it away"
        )
    if exact and function_for(ufunc) is None and any(is_tracked(x) for x in inputs):
        raise no_rule(ufunc)
    inputs = [
        x if given[k] == loop[k] else cast_result(x if exact else primal_of(x), loop[k])
        for k, x in enumerate(inputs)
    ]
    return inputs, exact


def as_dtype(x):
    """The dtype that x names. A class of `numpy.dtypes` names its instance, which `numpy.dtype` does not
    find."""
    named = x
    return np.dtype(named() if isinstance(x, type) and issubclass(x, np.dtype) else x)


def cast_result(x, to: np.dtype):
    return call(np.astype, (x, to), {}) if isinstance(x, Variable) else xp_of(x).asarray(x).astype(to)[()]


def reshape_any(a, to: tuple):
    return s.reshape(a, to=to) if isinstance(a, Variable) else np.reshape(a, to)


@hook
def fast_add_at(x: Variable, at, y) -> bool:
    """Add with a fast path, if there is one. Returns whether it was done."""
    return False


def ufunc_at(ufunc, x, at, y=None) -> None:
    if not isinstance(x, Variable):
        if is_tracked(y) or (isinstance(y, (list, tuple)) and any_tracked(y)):
            raise DroppedDerivativeError(
                f"numpy.{ufunc.__name__}.at(a, i, x): a is a plain array, which cannot hold the derivative "
                f"of x"
            )
        return ufunc.at(x, lend(at), *(() if y is None else (lend(y),)))
    y = s.nested_to_array(y) if issubclass(type(y), (list, tuple)) else argument(y)
    if ufunc is np.add and fast_add_at(x, at, y):
        return None
    if ufunc in AT and is_hidden(at):
        late.write_value(x, with_added(x, y if AT[ufunc] > 0 else -y, at), Ellipsis)
        return None
    at = late.index(at)
    if ufunc in AT:
        late.refuse_lost(layout_of(x).dtype, y, f"numpy.{ufunc.__name__}.at(x, i, y)")
        write(ADD_AT, x, y if AT[ufunc] > 0 else -y, at)
        return None
    entry = NUMPY.get(ufunc)
    if entry is None:
        raise no_rule(ufunc)
    library = xp(x)
    n = library.arange(x.size).reshape(x.shape)[at]
    if ufunc in (np.maximum, np.minimum) and y is not None:
        late.write_value(x, with_extremes(x, y, library.asarray(n), ufunc is np.maximum), Ellipsis)
        return None
    places, order = n.ravel(), library.argsort(n.ravel(), kind="stable")
    ranked = places[order]
    turn = library.empty_like(places)  # how often the place was met before
    turn[order] = library.arange(n.size) - library.searchsorted(ranked, ranked)
    y = (
        None
        if y is None
        else NUMPY[np.broadcast_to](y, n.shape).reshape(-1)
        if isinstance(y, Variable)
        else np.broadcast_to(y, n.shape).ravel()
    )
    for k in range(int(turn.max()) + 1 if n.size else 0):
        chosen = library.flatnonzero(turn == k)
        where = library.unravel_index(places[chosen], x.shape)
        x[where] = entry(x[where]) if y is None else entry(x[where], y[chosen])
    return None


def store(out: Any, y: Any, where: Any = True) -> Any:
    """Write the result y into `out`, with the meaning of out=."""
    if type(out) is tuple:
        if issubclass(type(y), tuple):
            return tuple([store(o, v, where) for o, v in zip(out, y, strict=True)])
        out = out[0]
    if not isinstance(out, Variable):
        if is_tracked(y):
            raise DroppedDerivativeError(
                "out= is a plain array, which cannot hold a derivative; make it with numpy.zeros(n, "
                "like=x), or capture it"
            )
        xp_of(out).copyto(out, values_of(y), where=values_of(where))
        return out
    if where is True:
        late.write_value(out, y, Ellipsis)
    else:
        late.write_value(out, NUMPY[np.where](where, y, out), Ellipsis)
    return out


def store_all(out: Any, y: Any) -> Any:
    """Write the result y into `out`, of its shape. NumPy refuses another one, or fills a part of it."""
    if (found := shape(out[0] if type(out) is tuple else out)) != shape(y):
        raise ShapeError(f"out= has shape {found}, the result has shape {shape(y)}")
    return store(out, y)


# --- NEP 13 and NEP 18 ---


def array_ufunc(self, ufunc, method, *inputs, **params):
    if SUBARRAYS and holds_subarray((*inputs, *params.values())):
        return NotImplemented
    if not params and method == "__call__":
        entry = NUMPY.get(ufunc)
        if entry is not None and not (len(inputs) > 1 and any(map(holds_objects, inputs))):
            return entry(*inputs)
    return ufunc_call(ufunc, method, inputs, params)


def array_function(self, f, types, args, kwargs):
    if holds_subarray((args, kwargs)):
        return late.with_subarrays(f, args, kwargs)
    return call(f, args, kwargs)


# --- CuPy's hooks: only the name identifies a kernel ---

PREFIXES = (
    ("cupyx_scipy_special_", scipy.special),
    ("cupyx_scipy_", scipy.special),
    ("cupyx_", scipy.special),
    ("cupy_", np),
)
RENAMED = {
    "copy": np.copy, "elementwise_copy": np.copy, "round_ufunc": np.round, "min": np.min, "max": np.max,
    "array_equal": np.equal,
    "conjugate": np.conjugate, "negative_": np.negative, "square_": np.square, "nan_to_num_": np.nan_to_num,
    "fix": np.trunc,
    # CuPy exchanged the names of these two
    "ellipk": scipy.special.ellipkm1, "ellipkm1": scipy.special.ellipk,
}  # fmt: skip


def library_name(kernel):
    """NumPy's or SciPy's function of the same meaning as a CuPy kernel."""
    name, module = kernel.name, np
    for prefix, home in PREFIXES:
        if name.startswith(prefix):
            name, module = name[len(prefix) :], home
            break
    if name in RENAMED:
        return RENAMED[name]
    found = getattr(module, name, None) or getattr(np, name, None) or getattr(scipy.special, name, None)
    if isinstance(found, np.ufunc) and found.nin != getattr(kernel, "nin", found.nin):
        return None  # (CuPy's kernel of sph_harm has another function's name)
    return found if callable(found) else None


def cupy_elementwise(self, kernel, *args, **kwargs):
    f = library_name(kernel)
    if f is None:
        raise no_rule(SimpleNamespace(__name__=kernel.name, __module__="cupy"))
    nin = kernel.nin
    out = args[nin:] or kwargs.pop("out", None)
    kwargs = {k: v for k, v in kwargs.items() if k in ("dtype", "where") and v is not None}
    y = call(f, args[:nin], kwargs)
    if out is None or (isinstance(out, tuple) and all(o is None for o in out)):
        return y
    return store(out if isinstance(y, tuple) or not isinstance(out, tuple) else out[0], y)


def cupy_reduction(self, kernel, axis=None, dtype=None, out=None, keepdims=False):
    f = library_name(kernel)
    if f is None:
        raise no_rule(SimpleNamespace(__name__=kernel.name, __module__="cupy"))
    given = {"axis": axis, "dtype": dtype, "out": out, "keepdims": keepdims}
    return call(f, (self,), {k: v for k, v in given.items() if v is not None and v is not False})
