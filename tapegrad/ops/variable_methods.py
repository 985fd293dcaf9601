"""Adds operators, methods, protocols, views and in-place writes to Variable. No other file changes the
class.

Reading order: operators; writes; attributes; methods, which are NumPy's functions of the same name;
conversions, which raise on a tracked Variable; the protocols through which NumPy and CuPy functions
arrive (ops/protocols.py)."""

import abc
import builtins
import dis
import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable
from sys import _getframe as getframe
from typing import Any

import numpy as np

from .._core.abstract_arrays import AbstractText, shown_class
from .._core.array_content import memo_key
from .._core.arrays import NUMBERS, is_array, xp_of
from .._core.equal_numbers import are_apart, equal_somewhere, truth
from .._core.errors import (
    ArgumentError,
    BatchError,
    DroppedDerivativeError,
    NoRuleError,
    asks_attribute,
)
from .._core.foreign import asked_by, has_reflected
from .._core.lent_memory import lend, place_of_data
from .._core.primitive import (
    RECORDED,
    SAMPLED,
    EndedTrace,
    any_tracked,
    is_subarray,
    is_tracked,
    layout_of,
    live,
    primal_of,
    values_of,
)
from .._core.registry import late
from .._core.scope import OPEN
from .._core.searches import may_agree, new_search, note_comparison, note_equality, note_loss
from .._core.serialized import note_formatted, note_written
from .._core.variable import HANDLES, NUMBER_CLASSES, ArrayVariable, NumberVariable, Variable, View, variable
from . import creation as creation
from . import elementwise as e
from . import families as families
from . import piecewise
from . import protocols as _protocols
from . import shaping as s
from .declare import NUMPY, shape, xp
from .declare import dtype as dtype_of
from .indexing import views
from .indexing.flags import flags_of, set_flags
from .indexing.flat import FlatIterator, assign_flat
from .indexing.hidden_regions import is_read_at
from .indexing.traced_indices import is_hidden, is_hidden_mask, with_written
from .indexing.traced_masks import SelectedElements, masked_write
from .indexing.views import index, layout_source
from .indexing.writes import refuse_lost, write_value
from .protocols import call as call
from .protocols import no_rule
from .protocols import store as store

V: Any = Variable


# --- operators ---


def _entry(f) -> Callable:
    """The operation for f, or a function that raises because there is none."""
    if f in NUMPY:
        return NUMPY[f]

    def missing(*args):
        if any_tracked(args):
            raise no_rule(f)
        return f(*lend(args))

    return missing


def _inplace(op: Callable, ufunc) -> Callable:
    def method(a, b):
        c = op(a, b)
        if c is not NotImplemented:
            write_value(a, c, Ellipsis)
            return a
        return ufunc(a, b, out=(a,)) if is_subarray(b) else c

    return method


def _reflected(op: Callable) -> Callable:
    def method(a, b):
        return op(b, a)

    return method


OPERATORS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "pow": np.power,
    "matmul": np.matmul,
    "mod": np.remainder, "floordiv": np.floor_divide, "divmod": np.divmod,
}  # fmt: skip
for _name, _f in OPERATORS.items():
    _op = _entry(_f)
    setattr(V, f"__{_name}__", _op)
    setattr(V, f"__r{_name}__", _reflected(_op))
    if _name != "divmod":
        setattr(V, f"__i{_name}__", _inplace(_op, _f))
V.__neg__ = e.negative
V.__pos__ = e.positive
V.__abs__ = _entry(np.absolute)
V.__round__ = lambda x, digits=None: (
    round(values_of(x)) if digits is None else call(np.round, (x, digits), {})
)


def is_plain_number(x) -> bool:
    """Is x a plain number of the caller (`Trace.is_number`)?"""
    return bool(OPEN.hiding) and (t := live(x))._trace is not None and t._trace.is_number(t)


def _primal_operator(op: Callable, f) -> Callable:
    """Comparisons, and operators of booleans and integers, on primal values. Their derivative is zero."""
    orders, elementwise = f in ORDERS, f in COMPARISONS.values()
    hidden = getattr(piecewise, f.__name__) if elementwise else _entry(f)  # (here the sides are noted)
    answers = {np.equal: (True, np.True_), np.not_equal: (False, np.False_)}.get(f, ())  # for equal sides

    def method(a, b):
        if answers and OPEN.equalities is not None and are_apart((a, b), getframe(1), equal_somewhere):
            return np.full(np.broadcast_shapes(shape(a), np.shape(b)), f is np.not_equal)[()]
        if type(b) in PLAIN and type(a) is not View and type(x := a._value) in PLAIN:  # the usual case
            trace = a._trace
            if trace is None:
                return op(x, b)
            if not trace.visibility:
                if orders:
                    frame = getframe(1)
                    place = id(frame.f_code) + frame.f_lasti
                    search = trace.searches.get(place) or new_search(trace, place)
                    if not search.over:
                        search.visit(trace, (a, b), (x, b), frame)
                found = op(x, b)
                if answers:
                    yes, numpys = answers
                    if found is yes or found is numpys or type(found) is np.ndarray and may_agree(found, yes):
                        note_equality((a, b), getframe(1))
                return found
        if type(b) not in HANDLES and isinstance(b, (list, tuple)):  # (a Variable's class is a question)
            b = s.nested_to_array(b)
        if orders:
            note_comparison((a, b), getframe(1))
        x, y = primal_of(a), primal_of(b)
        if isinstance(x, Variable) or isinstance(y, Variable):
            # None or a text: the content of a does not matter
            if isinstance(x, Variable) and type(y) not in NUMBERS and type(y).__module__ == "builtins":
                like = layout_of(x)
                return op(np.ones(like.shape, like.dtype) if is_array(like) else like.dtype.type(1), y)
            return hidden(x, y)
        found = NotImplemented if has_reflected(y, elementwise and is_array(x)) else op(x, y)
        if answers and may_agree(found, answers[0]):
            note_equality((a, b), getframe(1))
        return found

    return method


PLAIN = frozenset((float, int, np.float64, np.ndarray))
ORDERS = frozenset((np.less, np.less_equal, np.greater, np.greater_equal))
COMPARISONS = {
    "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
OF_BITS = {
    "and_": np.bitwise_and,
    "or_": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
for _name, _f in COMPARISONS.items():
    setattr(V, f"__{_name}__", _primal_operator(getattr(operator, _name), _f))
for _name, _f in OF_BITS.items():
    _op = _primal_operator(getattr(operator, _name), _f)
    setattr(V, f"__{_name.strip('_')}__", _op)
    setattr(V, f"__r{_name.strip('_')}__", _reflected(_op))
    setattr(V, f"__i{_name.strip('_')}__", _inplace(_op, _f))
V.__invert__ = _entry(np.invert)


def _hash(x):
    note_loss(x, getframe(1))
    return hash(values_of(x))


V.__hash__ = _hash


# --- elements and rows; writes ---


class Sequences(metaclass=abc.ABCMeta):  # noqa: B024
    """Classes whose instances `match` treats as sequences, although `isinstance` does not."""

    __abc_tpflags__ = np.ndarray.__flags__ & (1 << 5)  # Py_TPFLAGS_SEQUENCE, from NumPy 2.5 on


Sequences.register(ArrayVariable)


def _iter(x):
    """Yield one element at a time, so that writes in the loop body are seen."""
    if not shape(x):
        raise TypeError("iteration over a 0-d array")
    return map(x.__getitem__, range(shape(x)[0]))


def _setitem(x, at, y):
    if type(y) is SelectedElements:
        y, at = masked_write(x, y, at)
    if type(at) is not int and (is_hidden(at) or is_hidden_mask(x, at, y)):
        if is_read_at(y, x, at):
            return  # x[i] += y ends with the assignment of a region to itself
        y = with_written(x, s.array_operand(y), at)
        at = Ellipsis
    write_value(x, y, index(at))


late.write_value, late.index, late.refuse_lost = write_value, index, refuse_lost
V.__getitem__, V.__setitem__ = views.getitem, _setitem
V.__iter__ = _iter
V.__contains__ = lambda x, y: bool((primal_of(x) == primal_of(y)).any())
V.__delitem__ = lambda x, at: operator.delitem(layout_of(x), at)  # raises as NumPy does


# --- attributes ---


def _class_of(x):
    """NumPy's class of the value. (CuPy would take its own class as permission to read the memory.)

    Where code that is followed writes `x.__class__`, it is what this class is called there."""
    kind = shown_class(type(layout_source(x)))
    if asks_attribute(sys._getframe(2)):
        return late.class_meant(kind)
    if is_plain_number(x):
        return complex if issubclass(kind, complex) else float
    return kind if issubclass(kind, (np.ndarray, np.generic)) or kind in NUMBERS else type(x)


late.class_of = _class_of


def _set(view: Callable) -> Callable:
    return lambda x, y: write_value(view(x), y, Ellipsis)


def _shape(x):
    if type(x) is View and x._seen != x._base._version:
        return layout_source(x).shape
    v = x._value
    while isinstance(v, Variable):
        v = v._value
    return v.shape


def _set_shape(x, to):
    """The handle gets another shape. Others that look at its memory by the old one forbid it."""
    if not is_array(layout_source(x)):
        raise AttributeError("attribute 'shape' of 'numpy.generic' objects is not writable")
    there = np.empty(_shape(x), bool).reshape(to).shape
    if there == _shape(x):
        return
    if type(x) is not View and hasattr(x, "_version"):
        raise ArgumentError("x.shape = s: x is captured, written or has views; write x = x.reshape(s)")
    if type(x) is View:
        y = views.reshape(x, there, copy=False)
        x._base, x._path, x._seen, x._value = y._base, y._path, -1, None
    else:
        y = s.reshape(s.copy(x, "C"), to=there)
        x._value, x._trace, x._slot = y._value, y._trace, y._slot
        x._saved = True


def _resize(x, *new_shape, refcheck=True):
    """`ndarray.resize`: the first elements, and zeros behind them."""
    to = new_shape[0] if len(new_shape) == 1 and isinstance(new_shape[0], (tuple, list)) else new_shape
    to = tuple([operator.index(n) for n in to])
    if not is_array(layout_source(x)) or not x.flags.c_contiguous | x.flags.f_contiguous:
        raise ValueError("resize only works on single-segment arrays")
    if type(x) is View or hasattr(x, "_version"):
        raise NoRuleError("x.resize(s): x is captured, written, or has views; fill y = numpy.zeros(s)")
    fortran = not x.flags.c_contiguous
    size, flat = math.prod(to), s.reshape(x.T if fortran else x, to=(-1,))
    y = flat[:size] if size <= x.size else s.embed(flat, axis=0, start=0, size=size)
    y = s.reshape(s.copy(y, "C"), to=to[::-1] if fortran else to)
    y = s.transpose(y, axes=tuple(range(len(to)))[::-1]) if fortran else y
    x._value, x._trace, x._slot, x._saved = y._value, y._trace, y._slot, True


V.resize = _resize


def _to_device(x, device, /, *, stream=None):
    if device != x.device:
        raise ValueError(f"Unsupported device: {device!r}.")
    return x


V.to_device = _to_device


V.setflags = set_flags


def _dtype(x):
    v = (x._base if type(x) is View else x)._value
    while isinstance(v, Variable):
        v = v._value
    return v.dtype if type(x) is not View or v.dtype.kind != "c" else dtype_of(x)


V.shape = property(_shape, _set_shape)
V._set_shape = _set_shape  # from NumPy 2.5 on its own code calls this method
V.dtype = property(_dtype)
V.ndim = property(lambda x: len(x.shape))
V.size = property(lambda x: int(np.prod(x.shape)))
V.itemsize = property(lambda x: dtype_of(x).itemsize)
V.nbytes = property(lambda x: x.size * x.itemsize)
V.strides = property(lambda x: layout_source(x).strides)
V.flags = property(flags_of)
V.base = property(lambda x: x._base if type(x) is View else None)
V.device = property(lambda x: getattr(layout_source(x), "device", "cpu"))
V.grad = property(lambda x: late.gradient(x))  # these two are for a manual tape
V.backward = property(lambda x: late.backward(x))
V.T = property(views.reversed_axes)
V.mT = property(views.matrix_transpose)
V.real = property(views.real, _set(views.real))
V.imag = property(views.imag, _set(views.imag))
V.flat = property(FlatIterator, assign_flat)
V.__len__ = lambda x: len(layout_source(x))
V.__array_namespace__ = lambda x, api_version=None: xp(x)


# --- methods ---


def _sum(x, axis=None, dtype=None, out=None, keepdims=False, **rest):
    if dtype is None and out is None and not rest:
        return s.sum(x, axis, keepdims)
    return call(np.sum, (x,), dict(axis=axis, dtype=dtype, out=out, keepdims=keepdims, **rest))


def _method(name: str, f) -> Callable:
    def method(x, *args, **kwargs):
        return call(f, (x, *args), kwargs)

    method.__name__ = name
    method.__doc__ = f"numpy.{f.__name__} of this array"
    return method


METHODS = (
    "all any argmax argmin argpartition argsort choose clip cumprod cumsum diagonal dot max mean min "
    "nonzero prod ptp put ravel repeat round searchsorted squeeze std swapaxes take trace var"
)
for _name in METHODS.split():
    setattr(V, _name, _method(_name, getattr(np, _name)))


def _shape_of(to: tuple):
    return to[0] if len(to) == 1 else to


def _astype(x, dtype, order="K", casting="unsafe", subok=True, copy=True):
    if casting == "same_value":
        np.asarray(values_of(x)).astype(dtype, casting=casting)  # raises as NumPy does
    elif casting != "unsafe" and not np.can_cast(dtype_of(x), dtype, casting):
        raise TypeError(f"astype: {dtype_of(x)} cannot be cast to {np.dtype(dtype)} by the rule {casting!r}")
    y = call(np.astype, (x, dtype), {} if copy is True else {"copy": copy})
    if order == "A":
        flags = layout_source(x).flags
        order = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
    return creation.in_memory_order(y, order)


def _in_place(f) -> Callable:
    """x.sort() and x.partition(): write the result of the function into x."""

    def method(x, *args, **kwargs):
        write_value(x, call(f, (x, *args), kwargs), Ellipsis)

    return method


def own_conj(x):
    """A real array itself, unlike numpy.conj, which copies."""
    return s.conj(x) if dtype_of(x).kind == "c" else x


V.sum, V.astype = _sum, _astype
V.reshape = lambda x, *to, order="C", copy=None: views.reshape(x, _shape_of(to), order, copy=copy)
V.transpose = lambda x, *axes: views.transpose(
    x,
    None if not axes else axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes,
)
V.flatten = lambda x, order="C": s.copy(views.ravel(x, order))
V.compress = lambda x, condition, axis=None, out=None: call(np.compress, (condition, x, axis), {"out": out})
V.conj = V.conjugate = lambda x, out=None: own_conj(x) if out is None else store(out, s.conj(x))
V.copy = lambda x, order="C": s.copy(x, order)
V.__copy__ = lambda x: s.copy(x)
V.__deepcopy__ = lambda x, memo: memo.setdefault(id(x), s.copy(x))
V.fill = lambda x, y: write_value(x, y, Ellipsis)
_sort = _in_place(np.sort)
V.sort = lambda x, axis=-1, kind=None, order=None, **rest: _sort(x, operator.index(axis), kind, order, **rest)
V.partition = _in_place(np.partition)


# --- conversions ---


def _dropping(name: str, run: Callable, lent: bool = False, of: str = " of a tracked value") -> Callable:
    """A method that drops the derivative. `run` gets the array, or (`lent`) the handle."""

    def method(x, *args, **kwargs):
        if is_tracked(x) and not is_plain_number(x):
            raise DroppedDerivativeError(
                f"{name}{of} would drop its derivative in silence; use numpy's functions, which keep it, or "
                f"tapegrad.value(x) where the plain number is wanted"
            )
        return run(x if lent else values_of(x), *args, **kwargs)

    return method


_plain_float = _dropping(
    "a plain number made of a tracked value, by float(x) or math.f(x) in code that is not followed, or "
    "storing it in a plain array (numpy.zeros(n, like=x) makes one that keeps derivatives),", float, of="",
)  # fmt: skip
BINARY = dis.opmap["BINARY_OP"]
REMAINDERS = [i.arg for i in dis.get_instructions(compile("a % b; a %= b", "", "exec")) if i.opcode == BINARY]


def is_formatting(frame) -> bool:
    """Is the instruction `a % b`?  It asks b for a plain number only if a is a text."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at] == BINARY and code[at + 1] in REMAINDERS


def _float(x):
    if is_tracked(x) and is_formatting(sys._getframe(1)):
        y = float(values_of(x))
        note_formatted(y)
        return y
    return _plain_float(x)


V.__float__ = _float
V.__complex__ = _dropping("complex(x)", complex)


def _item(x, *at):
    """One element as a number; a tracked one stays tracked."""
    layout = layout_of(x)
    if layout.dtype.kind not in "fc" or not is_tracked(x):
        return values_of(x).item(*at)
    one = np.arange(layout.size).reshape(layout.shape).item(*at)  # or NumPy's error
    y = x.reshape(-1)[one] if is_array(layout) else x
    return creation.cast(y, np.dtype(complex if layout.dtype.kind == "c" else float))


def _tolist(x):
    if not is_tracked(x):
        return values_of(x).tolist()
    return [_tolist(v) for v in x] if shape(x) else _item(x)


V.item, V.tolist = _item, _tolist
V.tobytes = lambda x, order="C": memo_key(x, values_of(x).tobytes(order))
V.tofile = _dropping("x.tofile()", lambda a, *i, **k: a.tofile(*i, **k))
V.dump = _dropping("x.dump()", lambda a, *i: a.dump(*i))
V.dumps = _dropping("x.dumps()", lambda a: a.dumps())
V.get = _dropping("x.get()", lambda a, *i, **k: a.get(*i, **k))
V.__reduce_ex__ = _dropping("pickling", lambda x, protocol: lend(x).__reduce_ex__(protocol), lent=True)
V.data = property(_dropping("x.data", lambda x: lend(x).data, lent=True))
V.ctypes = property(_dropping("x.ctypes", lambda x: lend(x, True).ctypes, lent=True))
V.__dlpack__ = _dropping("DLPack", lambda x, *i, **k: lend(x).__dlpack__(*i, **k), lent=True)
V.__dlpack_device__ = lambda x: layout_of(x).__dlpack_device__()
# No __cuda_array_interface__ or __cupy_get_ndarray__: with them CuPy would take the memory first.
V.__array_interface__ = property(lambda x: place_of_data(x, sys._getframe(1)))


BY_ELEMENTS = "dot", "choose", "searchsorted"
OPERATIONS = frozenset([BINARY, dis.opmap["COMPARE_OP"]])


def array_method(x, dtype=None, copy=None):
    if is_tracked(x) and layout_of(x).dtype.kind in "biu":
        if isinstance(hidden := primal_of(x), Variable) and hidden._trace.visibility == RECORDED:
            return np.asarray(values_of(hidden), dtype)  # a value that the recording is valid for
        raise BatchError(
            "integers or truth values that differ between samples cannot index a plain array a, nor be stored in "
            "one: write numpy.take(a, i), make it inside, numpy.zeros(n, int), or loop over the samples"
            + asked_by()
        )
    if is_tracked(x):
        code, at = (frame := sys._getframe(1)).f_code, frame.f_lasti
        if calls_method(code, at, "__array__"):  # not NumPy's own call
            return call(np.array, (x,), {"dtype": dtype, "copy": copy})
        if code.co_code[at] in OPERATIONS or any([calls_method(code, at, name) for name in BY_ELEMENTS]):
            return creation.objects(x)  # `a.dot(x)`, `a * [x, y]` of a plain array: by elements
        raise DroppedDerivativeError(
            "numpy.asarray(x), or storing x in a plain array, would drop the derivative of a tracked "
            "value in silence; use tapegrad.numpy.asarray, make the array with numpy.zeros(n, like=x), "
            "or write tapegrad.value(x)" + asked_by()
        )
    a = values_of(x)
    if xp_of(a) is not np:
        raise TypeError("implicit conversion of a CuPy array to NumPy; use tapegrad.value(x).get()")
    return np.array(lend(x), dtype=dtype, copy=copy) if not copy else np.array(a, dtype=dtype)


V.__array__ = array_method
STORES = frozenset(dis.opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in dis.opmap)


@functools.lru_cache(999)
def calls_method(code, at: int, name: str) -> bool:
    """Is the instruction a call of the method `name`? (Both begin at the same source position.)"""
    line, _, column, _ = next(itertools.islice(code.co_positions(), at // 2, None))
    named = [i.positions for i in dis.get_instructions(code) if i.argval == name]
    return (line, column) in [(p.lineno, p.col_offset) for p in named if p is not None]


def is_store(code, at: int) -> bool:
    """Is the instruction a store, or a call of `a.fill`?"""
    return code.co_code[at] in STORES or calls_method(code, at, "fill")


def _stored(convert: Callable, what: str) -> Callable:
    """A conversion to a constant. NumPy also calls it when x is stored in an array of `what`, which would
    silently drop the derivative."""

    def method(x):
        frame = sys._getframe(1)
        if dtype_of(x).kind in "fc" and is_store(frame.f_code, frame.f_lasti) and is_tracked(x):
            raise DroppedDerivativeError(
                f"storing a tracked value in an array of {what} would drop its derivative in silence; make "
                "the array of floats, numpy.zeros(n), or store tapegrad.value(x)"
            )
        return convert(x)

    return method


V.__bool__ = _stored(truth, "truth values")
V.__int__ = _stored(lambda x: int(values_of(x)), "integers")
V.__trunc__, V.__floor__, V.__ceil__ = [
    lambda x, to=f: to(values_of(x)) for f in (math.trunc, math.floor, math.ceil)
]
V.is_integer = lambda x: values_of(x).is_integer()
V.as_integer_ratio = _dropping("x.as_integer_ratio()", lambda a: a.as_integer_ratio())
V.hex = _dropping("x.hex()", lambda a: a.hex())
V.__index__ = lambda x: operator.index(values_of(x))


KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


def _text(write: Callable) -> Callable:
    """The text of the values. For hidden values it names only their kind, without a digit. So a search
    for a number in the text, or in a longer text that includes it, fails."""

    def method(x, *spec):
        p = primal_of(x)
        if isinstance(p, Variable):
            t = p._trace
            if not (
                t.visibility == RECORDED
                or isinstance(t, EndedTrace)
                or t.visibility == SAMPLED
                and t.is_plain(p)
            ):
                return AbstractText(
                    f"<{'array of ' * is_array(layout_of(p))}{KINDS[dtype_of(p).kind]}, not known here>"
                )
            p = values_of(p)
        text = write(p, *spec)
        if is_tracked(x):
            note_written(text)
        return text

    return method


V.__repr__ = _text(lambda p: f"Variable({p!r})")
V.__str__ = _text(str)
V.__format__ = _text(lambda p, spec: format(p[()] if isinstance(p, np.ndarray) and not p.shape else p, spec))


INSTEAD = {
    "byteswap": "the derivative is by numbers, which keep their bytes in the order of the machine: leave it out"
}


def _without_rule(name: str) -> Callable:
    def method(x, *args, **kwargs):
        if is_tracked(x) or any_tracked(args):
            instead = INSTEAD.get(name, "compose it of other operations")
            raise NoRuleError(
                f"x.{name}() of a tracked value is not supported by tapegrad; {instead}, or cut the "
                f"derivative with tapegrad.value(x).{name}(){asked_by()}"
            )
        return getattr(lend(x), name)(*lend(args), **lend(kwargs))

    method.__name__ = name
    return method


for _name in {*dir(np.ndarray)} - {*dir(V)}:
    if not _name.startswith("_") and hasattr(np.ndarray((0, 0)), _name):
        setattr(V, _name, _without_rule(_name))


plain_view = _without_rule("view")


def _view(x, dtype=None, type=None):
    """A view for an equal dtype and class, else plain memory."""
    dtype, type = [
        None if k is np.ndarray or getattr(k, "real", k) is np.ndarray else k for k in (dtype, type)
    ]
    if type is None and (dtype is None or np.dtype(dtype) == dtype_of(x)):
        return views.slice_of(x, (Ellipsis,)) if is_array(layout_source(x)) else x
    for k in (dtype, type):
        if isinstance(k, builtins.type) and issubclass(k, np.ndarray):
            subarray = late.subarray_class(k)
            if subarray is None:
                raise ArgumentError(
                    f"a view of a tracked array as {k.__module__}.{k.__qualname__}, which is not followed: "
                    "use arrays"
                )
            return late.subarray_over(subarray, _view(x, None if k is dtype else dtype), x)
    if type is None and np.dtype(dtype).names is not None and dtype_of(x).kind in "fc":
        return late.seen_with_fields(x, np.dtype(dtype))
    if type is None and is_tracked(x) and {np.dtype(dtype), dtype_of(x)} in PAIRED:
        return seen_as(x, np.dtype(dtype))
    return plain_view(x, *[k for k in (dtype, type) if k is not None])


V.view = _view


def _getfield(x, dtype, offset=0):
    """The numbers themselves, or a part of complex ones."""
    own, wanted = dtype_of(x), np.dtype(dtype)
    if wanted == own and not offset:
        return _view(x)
    if {own, wanted} in PAIRED and own.kind == "c" and offset in (0, wanted.itemsize):
        return x.imag if offset else x.real
    if is_tracked(x):
        raise NoRuleError(
            f"x.getfield({wanted}, {offset}) of a tracked array of {own}: the bytes of a number have no "
            "derivative. Write x.real, x.imag, or x.astype(dtype)"
        )
    return plain_getfield(x, dtype, offset)


plain_getfield = _without_rule("getfield")
V.getfield = _getfield
V.setfield = lambda x, val, dtype, offset=0: write_value(_getfield(x, dtype, offset), val, Ellipsis)
# a complex dtype and that of its parts
PAIRED = [{np.dtype(np.complex128), np.dtype(np.float64)}, {np.dtype(np.complex64), np.dtype(np.float32)}]


def seen_as(x, to: np.dtype):
    """Complex numbers as pairs of real ones, or the reverse.  It is a copy, so writing either is an error."""
    size = x.shape
    if not size or x.strides[-1] != x.dtype.itemsize:
        raise ValueError(
            "To change to a dtype of a different size, the last axis must be contiguous"
            if size
            else "Changing the dtype of a 0d array is only supported if the itemsize is unchanged"
        )
    y: Any
    if to.kind == "f":
        y = s.reshape(call(np.stack, ([x.real, x.imag],), {"axis": -1}), to=(*size[:-1], 2 * size[-1]))
    elif size[-1] % 2:
        raise ValueError(
            "When changing to a larger dtype, its size must be a divisor of the total size in bytes of the "
            "last axis of the array."
        )
    else:
        y = variable(xp(x).empty((*size[:-1], size[-1] // 2), to))
        y.real, y.imag = x[..., ::2], x[..., 1::2]
    base = x._base if builtins.type(x) is View else x
    base._saved = y._saved = True
    OPEN.aliased = {**OPEN.aliased, id(base): base, id(y): y}
    return y


# --- protocols ---

V.__array_ufunc__ = _protocols.array_ufunc
V.__array_function__ = _protocols.array_function
V.__cupy_override_elementwise_kernel__ = _protocols.cupy_elementwise
V.__cupy_override_reduction_kernel__ = _protocols.cupy_reduction


# --- the special methods of each class ---

# For all classes. NumPy's functions arrive through the first two; without the others Python would call
# `__float__`.
OF_ALL = frozenset("__array_ufunc__ __array_function__ __floor__ __ceil__ __trunc__".split())
_of_class = {ArrayVariable: np.ndarray, **{ours: kind for kind, ours in NUMBER_CLASSES.items()}}
for _name, _f in [*vars(V).items()]:
    _homes = [c for c, kind in _of_class.items() if hasattr(kind, _name)]
    if 0 < len(_homes) < len(_of_class) and _name not in OF_ALL:
        delattr(Variable, _name)
        for _c in _homes:
            setattr(_c, _name, _f)
ArrayVariable.__hash__ = None  # type: ignore[assignment, method-assign]
# else Python would iterate with `__getitem__`, which numbers have
NumberVariable.__iter__ = None  # type: ignore[assignment, method-assign]


def _repeating(op: Callable) -> Callable:
    """A product with a sequence, which Python evaluates by repeating the sequence."""

    def method(a, b):
        return NotImplemented if isinstance(b, (list, tuple, str, bytes)) else op(a, b)

    return method


for _kind, _c in NUMBER_CLASSES.items():
    if issubclass(_kind, np.integer):
        for _name in ("__mul__", "__rmul__"):
            setattr(_c, _name, _repeating(getattr(V, _name)))
