"""Dual numbers: forward mode by hand."""

import operator
from typing import TYPE_CHECKING, Any

from .._core import forward as forward
from .._core.errors import ArgumentError, DroppedDerivativeError
from .._core.primitive import live, values_of, watched
from .._core.trees import leaves, tree_map
from .._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple
from .._core.variable import FLOAT, ArrayVariable, NumberVariable, Variable, frozen, variable
from ..ops import variable_methods as variable_methods  # it gives Variables their methods
from ..ops.linalg.degenerate_spectra import free_of_gauge
from .arguments import Inputs, enter_leaf
from .call import cast_to_primal, constant_like, derivative_out, value_out

if TYPE_CHECKING:
    from .._core.attached import Attached
else:
    Attached = object


class Traces:
    """The traces of dual numbers of some order, those of lower orders first.  They stay open."""

    __slots__ = ("traces",)

    def __init__(self, traces: AnyTuple):
        self.traces = traces

    def extended(self, order: int) -> "Traces":
        traces = self.traces
        while len(traces) < order:
            trace = watched(forward.Dual())
            trace.risen, trace.lower = DiscardingList(), traces
            traces = (*traces, trace)
        return Traces(traces)

    def holds(self, x: Any) -> bool:
        """May x be a value under these traces?"""
        return (
            not isinstance(x, Variable)
            or (x := live(x))._trace is None
            or x._trace.level < self.traces[0].level
        )

    def have(self, d: "Dual") -> bool:
        return d.traces == self.traces[: len(d.traces)]

    def takes(self, d: "Dual") -> bool:
        """May d be moved to these?"""
        return self.have(d) or all([self.holds(p) for p in dual_parts(d._x, d.traces)])

    def moved(self, x: Any, traces: AnyTuple) -> Any:
        """x, a Variable of `traces`, as one of these."""
        x = live(x) if isinstance(x, Variable) else x
        if not isinstance(x, Variable) or x._trace not in traces:
            return x
        mine = self.traces[traces.index(x._trace)]
        return mine.watch(self.moved(x._value, traces), self.moved(x._slot, traces))


class DiscardingList(list[Any]):
    """The handles that rose to a trace that never ends need not fall."""

    def append(self, x: Any) -> None:
        pass


def dual_parts(x: Any, traces: AnyTuple) -> AnyList:
    """The values and tangents of all orders that x is made of."""
    x = live(x) if isinstance(x, Variable) else x
    return (
        dual_parts(x._value, traces) + dual_parts(x._slot, traces)
        if isinstance(x, Variable) and x._trace in traces
        else [x]
    )


OF_PLAIN = [Traces(())]  # by order, those of dual numbers of plain arrays


def common_traces(xs: AnyList, order: int) -> Traces:
    """Traces for dual numbers and Variables together: those that one of them has, so that it is not moved, or
    those of plain arrays, or new ones."""
    duals = [x for x in xs if isinstance(x, Dual)]
    while len(OF_PLAIN) <= order:
        OF_PLAIN.append(OF_PLAIN[-1].extended(len(OF_PLAIN)))
    known = dict.fromkeys([d.traces for d in duals if len(d.traces) == order])
    for traces in (*known, OF_PLAIN[order].traces):
        found = Traces(traces)
        if all([found.takes(x) if isinstance(x, Dual) else found.holds(x) for x in xs]):
            return found
    return Traces(()).extended(order)


def apply_to_duals(f: Any, *args: Any, **kwargs: Any) -> Any:
    """f of Variables in the place of dual numbers."""
    met = [x for x in leaves((args, kwargs)) if isinstance(x, (Dual, Variable))]
    to = common_traces(met, max([len(x.traces) for x in met if isinstance(x, Dual)]))
    used: AnyDict = {}  # id of a handle -> the dual number, the handle

    def lowered(x: Any) -> Any:
        if not isinstance(x, Dual):
            return x
        handle = x._x if to.have(x) else to.moved(x._x, x.traces)
        used[id(handle)] = x, handle
        return handle

    def lifted(y: Any) -> Any:
        return (
            y if not isinstance(y, Variable) else used[id(y)][0] if id(y) in used else Dual._of(y, to.traces)
        )

    result = f(*tree_map(lowered, args), **tree_map(lowered, kwargs))
    if any([handle is not x._x and getattr(handle, "_version", 0) for x, handle in used.values()]):
        raise ArgumentError(
            "a tapegrad.Dual is written with a value of a transform that was opened after it was made; make "
            "the one that is written there: tapegrad.Dual(d.value, d.tangent)"
        )
    return tree_map(lifted, result)


class Dual(Attached):
    """A number or array with its derivative along one direction, the tangent: forward mode by hand.

    Operators, methods, functions of NumPy and SciPy, indexing and in-place writes work as on an array, and
    compute the tangent too.

    Parameters
    ----------
    value : array, number, Dual or tracked value
        The value, of float or complex dtype. It is copied.
    tangent : array, number, Dual or tracked value
        The derivative, with the shape of the value. It is copied. A Dual gives second derivatives.

    See Also
    --------
    jvp : Forward mode for a function.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> x = tg.Dual(np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    >>> (np.exp(x[1]) * x[0]).tangent == np.exp(2.0)
    np.True_
    >>> x = tg.Dual(tg.Dual(3.0, 1.0), tg.Dual(1.0, 0.0))
    >>> (x ** 3).tangent.tangent
    np.float64(18.0)
    """

    __slots__ = ("_x", "_traces")
    _x: Variable
    _traces: AnyTuple
    __array_priority__ = 2000

    def __init__(self, value: Any, tangent: Any):
        members = [x for x in (value, tangent) if isinstance(x, (Dual, Variable))]
        to = common_traces(
            members, 1 + max([len(x.traces) for x in members if isinstance(x, Dual)], default=0)
        )
        value, tangent = [to.moved(x._x, x.traces) if isinstance(x, Dual) else x for x in (value, tangent)]
        value = enter_leaf(Inputs("Dual", 0, (value,)).args[0], "Dual")
        self._x, self._traces = (
            to.traces[-1].watch(value, cast_to_primal("Dual", "tangent", tangent, value)),
            to.traces,
        )

    @classmethod
    def _of(cls, x: Variable, traces: AnyTuple) -> "Dual":
        d = cls.__new__(cls)
        d._x, d._traces = x, traces
        return d

    @property
    def traces(self) -> AnyTuple:
        """Those of its order, which rises when a dual number of higher order is written into it."""
        trace = live(self._x)._trace
        lower = getattr(trace, "lower", ())
        if len(lower) >= len(self._traces):
            self._traces = (*lower, trace)
        return self._traces

    @property
    def value(self) -> Any:
        """The number or array without the tangent of the outermost Dual, as a copy."""
        return self._part(0)

    @property
    def tangent(self) -> Any:
        """The derivative, with the shape of the value, as a copy."""
        return self._part(1)

    def _part(self, k: int) -> Any:
        *lower, top = self.traces
        x = live(self._x)
        v, t = (x._value, x._slot) if x._trace is top else (x, None)
        p = v if k == 0 else constant_like(v, 0) if t is None else free_of_gauge(v, t)
        if not lower:
            return value_out(p) if k == 0 else derivative_out(p, v)
        return Dual._of(frozen(p) if isinstance(p, Variable) else variable(p), tuple(lower))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_x", "_traces"):
            raise AttributeError(name)
        found = getattr(self._x, name)
        if callable(found):
            return lambda *args, **kwargs: apply_to_duals(getattr(type(self._x), name), self, *args, **kwargs)
        return Dual._of(found, self.traces) if isinstance(found, Variable) else found

    @property
    def flat(self) -> "FlatDual":  # type: ignore[override]
        return FlatDual(self)

    def __setattr__(self, name: str, y: Any) -> None:
        object.__setattr__(self, name, y) if name in Dual.__slots__ else apply_to_duals(
            setattr, self, name, y
        )

    def __repr__(self) -> str:
        return f"Dual({self.value!r}, {self.tangent!r})"

    def __reduce__(self) -> AnyTuple:
        return Dual, (self.value, self.tangent)

    def __hash__(self) -> int:
        if self.shape:
            raise TypeError("unhashable type: 'Dual' of an array")
        return hash(values_of(self._x))

    def __iter__(self) -> Any:
        len(self)  # raises where it is a number
        return (self[i] for i in range(len(self)))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return apply_to_duals(getattr(ufunc, method), *inputs, **kwargs)

    def __array_function__(self, f: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return apply_to_duals(f, *args, **kwargs)

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        return apply_to_duals(kernel, *args, **kwargs)

    def __cupy_override_reduction_kernel__(self, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        return apply_to_duals(kernel, self, *args, **kwargs)


class FlatDual:
    """`d.flat` of a dual array."""

    __slots__ = ("d",)

    def __init__(self, d: Dual):
        self.d = d

    def __getitem__(self, at: Any) -> Dual:
        return apply_to_duals(lambda x: x.flat[at], self.d)  # type: ignore[no-any-return]

    def __setitem__(self, at: Any, y: Any) -> None:
        apply_to_duals(lambda x, y: operator.setitem(x.flat, at, y), self.d, y)

    def __len__(self) -> int:
        return self.d.size

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))


def plain_only(name: str) -> AnyFunction:
    def method(d: Any, *args: Any, **kwargs: Any) -> None:
        raise DroppedDerivativeError(
            f"{name} of a tapegrad.Dual would drop its tangent in silence; use numpy's functions, which "
            f"keep it, or d.value"
        )

    return method


for _name in ("float", "complex"):
    setattr(Dual, f"__{_name}__", plain_only(f"{_name}(d), or math.f(d),"))
Dual.__array__ = plain_only("numpy.asarray(d), or a plain array with d in it,")  # type: ignore[method-assign]
APART = frozenset((*dir(object), *vars(Dual), "__dlpack__", "__dlpack_device__", "__deepcopy__", "__copy__"))
ORDERED = ("__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__")


def special_method(name: str) -> AnyFunction:
    """The special method of the number or array that a Dual holds."""

    def method(d: Any, *args: Any) -> Any:
        f = getattr(type(d._x), name, None)
        if f is None and hasattr(type(d._x), "__" + name[3:]):  # of `__iadd__`: Python takes `__add__`
            return NotImplemented
        if f is None:
            raise TypeError(f"a tapegrad.Dual of a number has no {name}, as numpy.float64 has none")
        return apply_to_duals(f, d, *args)

    return method


for _name, _f in {**vars(Variable), **vars(ArrayVariable), **vars(NumberVariable), **vars(FLOAT)}.items():
    if _name.startswith("__") and callable(_f) and (_name in ORDERED or _name not in APART):
        setattr(Dual, _name, special_method(_name))
