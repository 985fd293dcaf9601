"""Structured arrays: what stands for an array with fields in code that is followed.

A structured array holds one array for each field, which may be tracked. Its layout is a plain array of the same
dtype. The layout tells which elements an index chooses, and receives the values afterwards.

NumPy's functions of arrays with fields move elements, or compare them. Which functions do so is not listed
here. A function is first called with numbers that show whether it does the same to each field."""

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib import recfunctions

from .._core.errors import ArgumentError, DroppedDerivativeError
from .._core.primitive import any_tracked, values_of
from .._core.registry import late
from .._core.scope import OPEN
from .._core.serialized import note_written
from .._core.trees import nested
from .._core.variable import HANDLES, SUBARRAYS, Subarray, View, variable
from ..ops.indexing.views import index

ANSWERS = (int, bool, str, type(None), np.dtype, np.integer, np.bool_, type(np.zeros(0).flags))


def has_float_fields(to: np.dtype) -> bool:
    """Has the dtype fields that can be followed, one of them of floats?"""
    if to.names is None or to.hasobject:
        return False
    parts = [to[name].base for name in to.names]
    return any([p.kind in "fc" and p.isnative or has_float_fields(p) for p in parts])


class StructuredArray(Subarray):
    """An array with fields. `_array`: the array of each field, by its name."""

    __array_priority__ = 1000.0
    __hash__: Any = None
    __class__: Any = property(lambda x: type(x._layout))
    _array: Any
    _layout: Any

    def __getitem__(self, at):
        if isinstance(at, str):
            return self._array[at][...] if at in self._array else self._layout[at]
        if is_names(at):
            return structured(self._layout[list(at)], {name: self._array[name] for name in at})
        at = index(at)
        places = of_fields(at, self._layout.ndim)
        return structured(self._layout[at], {name: v[places] for name, v in self._array.items()})

    def __setitem__(self, at, value):
        if isinstance(at, str):
            put(self._array[at] if at in self._array else self._layout[at], ..., value)
            return
        target = self
        if is_names(at):
            target, at = self[at], ...
        at = index(at)
        places = of_fields(at, target._layout.ndim)
        parts = parts_of(value, target._layout.dtype)
        for field, part in zip(target._array.values(), parts, strict=True):
            put(field, places, part)

    def __len__(self):
        return len(self._layout)

    def __iter__(self):
        return iter([self[k] for k in range(len(self))])

    def __eq__(self, other):
        return operator.eq(plain(self), plain(other))

    def __ne__(self, other):
        return operator.ne(plain(self), plain(other))

    def __repr__(self):
        return written(self, repr(plain(self)))

    def __str__(self):
        return written(self, str(plain(self)))

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), self.copy())

    def __reduce_ex__(self, protocol):
        return np.array(self).__reduce_ex__(protocol)

    def __getattr__(self, name):
        layout = self._layout
        if (
            isinstance(layout, (np.recarray, np.record))
            and name in self._array
            and not hasattr(np.ndarray, name)
        ):
            return self[name]
        found = getattr(layout, name)
        if name.startswith("__"):
            raise AttributeError(name)
        if isinstance(found, ANSWERS) or type(found) is tuple:
            return found
        if not callable(found):
            return by_fields(operator.attrgetter(name), (self,), {})
        return lambda *args, **kwargs: by_fields(
            lambda x, *rest, **named: getattr(x, name)(*rest, **named), (self, *args), kwargs
        )

    def __setattr__(self, name, value):
        if name == "shape":
            new = self.reshape(value)
            self.__dict__["_layout"], self._array = new._layout, new._array
        elif name == "_array":
            object.__setattr__(self, name, value)
        elif name in self._array and isinstance(self._layout, (np.recarray, np.record)):
            self[name] = value
        else:
            raise ArgumentError(f"x.{name} = y of an array with fields is not supported; write x[name] = y")

    def __array__(self, dtype=None, copy=None):
        if any_tracked((self,)):
            raise DroppedDerivativeError(
                "an array with fields, whose values are tracked, met a function that reads all of it, and "
                "would drop the derivative in silence; give it the fields, x[name], or "
                "tapegrad.value(x[name])"
            )
        found = np.array(plain(self), dtype=dtype)
        found.flags.writeable = bool(copy)  # who writes the memory of x would write a copy
        return found

    def __array_ufunc__(self, ufunc, method, *inputs, **params):
        given = (
            plain
            if ufunc in (np.equal, np.not_equal)
            else nested(lambda x: np.asarray(x) if kind_of(x) else x)
        )
        return getattr(ufunc, method)(*given(inputs), **given(params))

    def __array_function__(self, f, types, args, kwargs):
        return by_fields(f, args, kwargs)

    def tolist(self):
        return [x.tolist() for x in self]

    def item(self, *at):
        places = np.arange(self._layout.size).reshape(self._layout.shape).item(*at)  # raises as NumPy does
        return self.ravel()[places].tolist()

    def fill(self, value):
        self[...] = value

    def sort(self, axis=-1, kind=None, order=None):
        self[...] = np.sort(self, axis, kind, order)

    def view(self, dtype=None, type=None):
        kind, to = (dtype, type) if isinstance(dtype, META) else (type, dtype)
        real = next((c for c in (np.ndarray, np.recarray) if kind == c), None)
        if real is not None and to is None:
            return structured(self._layout.view(real), self._array)
        if to is None and kind is None:
            return self[...]
        like = self._layout.view(*[k for k in (dtype, type) if k is not None])
        return unstructured(self, like.dtype).reshape(like.shape)

    def getfield(self, dtype, offset=0):
        for name, (kind, place, *_) in self._layout.dtype.fields.items():
            if place == offset and kind == np.dtype(dtype):
                return self[name]
        raise ArgumentError(f"x.getfield({dtype}, {offset}) is no field of {self._layout.dtype}")


class StructuredRecord(StructuredArray):
    """One element of an array with fields."""

    def __getitem__(self, at):
        if isinstance(at, (int, np.integer)):
            at = self._layout.dtype.names[at]
        found = StructuredArray.__getitem__(self, at)
        return found[()] if isinstance(at, str) and not np.ndim(layout_of(found)) else found

    def __setitem__(self, at, value):
        StructuredArray.__setitem__(
            self, self._layout.dtype.names[at] if isinstance(at, (int, np.integer)) else at, value
        )

    def __iter__(self):
        return iter([self[name] for name in self._array])

    def tolist(self):
        return tuple([v.tolist() if kind_of(v) or np.ndim(v) else v for v in self])

    def item(self, *at):
        return self.tolist()


META = type


def kind_of(x) -> bool:
    return issubclass(type(x), StructuredArray)


def layout_of(x):
    return x._layout if kind_of(x) else x


def structured(layout, fields: dict) -> StructuredArray:
    kind = StructuredRecord if isinstance(layout, np.void) else StructuredArray
    SUBARRAYS.add(kind)
    x: Any = object.__new__(kind)
    x.__dict__["_layout"], x._array = layout, fields
    return x


def structured_over(layout):
    """A new array with fields; any other object as it is."""
    if not has_float_fields(layout.dtype):
        return layout
    return structured(layout, {name: field_over(layout[name]) for name in layout.dtype.names})


def field_over(x):
    x = x.view(np.ndarray)
    if x.dtype.names is not None:
        return structured_over(x)
    if x.dtype.kind not in "fc" or not x.dtype.isnative:
        return x
    v = variable(x)
    v._saved = True  # the layout holds the memory
    return v


def seen_with_fields(x, to: np.dtype):
    """x.view(to) of an array of floats: each field is a view of x."""
    names: Any = to.names
    n = len(names)
    like = np.zeros(x.shape, x.dtype).view(to)  # raises as NumPy does
    if any([to[name] != x.dtype for name in names]):
        raise ArgumentError(f"x.view({to}) of a tracked array of {x.dtype}: a field is of another dtype")
    return structured(like, {name: x[..., k::n] for k, name in enumerate(names)})


late.structured_over, late.seen_with_fields = structured_over, seen_with_fields


def is_names(at) -> bool:
    return isinstance(at, list) and bool(at) and all([isinstance(name, str) for name in at])


def of_fields(at, rank: int) -> tuple:
    """The same index for the arrays of fields, which may have further axes."""
    at = at if isinstance(at, tuple) else (at,)
    taken = sum(
        [
            np.ndim(i) if getattr(i, "dtype", None) == np.bool_ else 1
            for i in at
            if i is not None and i is not ...
        ]
    )
    rest = (slice(None),) * max(rank - taken, 0)
    k = next((k for k, i in enumerate(at) if i is ...), None)
    return (*at, ...) if k is None else (*at[:k], *rest, *at[k + 1 :], ...)


def put(field, at, value) -> None:
    if type(field) is np.ndarray and any_tracked((value,)):
        raise DroppedDerivativeError(
            f"a tracked value is written into a field of {field.dtype}, which would drop its derivative in "
            "silence; give the field the dtype float, or write tapegrad.value(x)"
        )
    field[at] = value


def parts_of(value, to: np.dtype) -> list:
    """What each field gets when `value` is written into elements of dtype `to`."""
    assert to.names is not None
    if kind_of(value):
        return [v.copy() for v in value._array.values()]
    names = getattr(getattr(value, "dtype", None), "names", None)
    if names:
        return [value[name] for name in names]
    if isinstance(value, tuple):
        if len(value) != len(to.names):
            raise ValueError(
                f"could not assign tuple of length {len(value)} to structure with {len(to.names)} fields."
            )
        return list(value)
    if isinstance(value, list):
        return [*from_nested(value, to)._array.values()]
    return [value] * len(to.names)


def from_nested(x, to: np.dtype):
    """An array of dtype `to`, of nested lists of tuples."""
    if kind_of(x):
        return x.copy() if x._layout.dtype == to else x.astype(to)
    size, first = [], x
    while isinstance(first, list):
        size.append(len(first))
        first = first[0] if first else ()
    size += () if isinstance(first, tuple) or kind_of(first) else np.shape(first)
    made = structured_over(np.zeros(size, to))

    def fill(at, x):
        if isinstance(x, list):
            for k, e in enumerate(x):
                fill((*at, k), e)
        else:
            made[at] = x

    fill((), x)
    return made


late.structured_from = from_nested


@nested
def plain(x):
    """The values."""
    if type(x) in HANDLES:
        return values_of(x)
    if not kind_of(x):
        return x
    found = x._layout.copy()
    filled(found, x)
    return found


def filled(layout, x: StructuredArray) -> None:
    """The values of x, written into a plain array."""
    for name, v in x._array.items():
        layout[name] = plain(v)


def handed_back(x: StructuredArray, back: Callable):
    """The plain array for which x stood."""
    if any_tracked((x,)):
        return x  # a value of an outer transform stays what it is
    filled(x._layout, x)
    return x._layout


def written(x, text: str) -> str:
    if any_tracked([x]):
        note_written(text)
    return text


def replaced(tree, by: Callable):
    return nested(lambda x: by(x) if kind_of(x) else x)(tree)


def by_fields(f, args: tuple, kwargs: dict, run=None):
    """f(*args, **kwargs), where structured arrays are among the arguments.  `run`: f for Variables, if NumPy
    does not dispatch f."""
    if f in (np.asarray, np.asanyarray) and len(args) == 1 and kind_of(args[0]) and not kwargs:
        return args[0]
    if f is recfunctions.structured_to_unstructured and kind_of(args[0]) and len(args) == 1 and not kwargs:
        return unstructured(args[0], None)
    f = np.zeros_like if f is np.empty_like else f
    found = []
    given = args, kwargs
    replaced(given, found.append)
    if len({x._layout.dtype for x in found}) == 1 and moves_elements(f, given, found):
        return assembled(f, f if run is None else run, given, found[0]._layout.dtype.names)
    if f is np.sort:
        return sorted_by_values(*args, **kwargs)
    return of_values(f, given, found)


def called(f, given, by: Callable):
    args, kwargs = replaced(given, by)
    return f(*args, **kwargs)


def assembled(f, run, given, names):
    layout = called(f, given, lambda x: x._layout)
    fields = {name: called(run, given, lambda x, name=name: x._array[name]) for name in names}
    if isinstance(layout, (list, tuple)):
        return [structured(v, {name: fields[name][k] for name in names}) for k, v in enumerate(layout)]
    return structured(layout, fields)


def moves_elements(f, given, found: list) -> bool:
    """Does f do the same to each field, whatever their values are?"""
    names = found[0]._layout.dtype.names
    for rising, others in itertools.product(names, (-1, 0)):
        probes, start = {}, 1
        for x in found:
            probes[id(x)], start = probe(x._layout, rising, start, others)
        before = {key: p.tobytes() for key, p in probes.items()}
        try:
            with np.errstate(all="ignore"):
                whole = called(f, given, lambda x, of=probes: of[id(x)])
                parts = {
                    name: called(f, given, lambda x, at=name, of=probes: of[id(x)][at]) for name in names
                }
        except (TypeError, ValueError, LookupError, AttributeError):
            return False
        if any([p.tobytes() != before[key] for key, p in probes.items()]):
            raise ArgumentError(
                f"{getattr(f, '__name__', f)} writes an array with fields: write x[name][...] = y instead"
            )
        if not all([same_field(whole, name, part) for name, part in parts.items()]):
            return False
    return True


def same_field(whole, name: str, part) -> bool:
    if isinstance(whole, (list, tuple)):
        return len(whole) == len(part) and all(
            [same_field(w, name, p) for w, p in zip(whole, part, strict=True)]
        )
    if not isinstance(whole, (np.ndarray, np.void)) or whole.dtype.names is None:
        return False
    field = whole[name]
    return (
        isinstance(part, np.ndarray | np.generic)
        and (np.shape(part), part.dtype) == (np.shape(field), field.dtype)
        and np.array_equal(part, field)
    )


def probe(layout, rising: str, start: int, others: int) -> tuple:
    """(an array like `layout` with one field in rising order, and the others in falling order, or 0; the next
    number)."""
    new = layout.copy()
    for name in layout.dtype.names:
        field = layout[name]
        numbers = np.arange(start, start + np.size(field)).reshape(np.shape(field))
        if field.dtype.names is None:
            new[name] = (numbers if name == rising else others * (numbers - 1000)).astype(field.dtype)
    return new, start + layout.size


def sorted_by_values(a, axis=-1, kind=None, order=None, **rest):
    a = a.ravel() if axis is None else a
    axis = -1 if axis is None else axis
    places = np.argsort(plain(a), axis, kind, order, **rest)
    return by_fields(lambda x: np.take_along_axis(x, places, axis), (a,), {})


def of_values(f, given, found: list):
    """What f gives for the values, if no derivative is lost."""
    y = called(f, given, plain)
    if isinstance(y, str):
        return written(found, y)
    if not has_no_floats(y):
        if any_tracked(found):
            raise DroppedDerivativeError(
                f"{getattr(f, '__name__', f)} of an array with fields, whose values are tracked, would "
                "drop their derivative in "
                "silence; call it for each field, x[name]"
            )
        if isinstance(y, (np.ndarray, np.void)) and has_float_fields(y.dtype):
            return structured_over(y)
    return y


def has_no_floats(y) -> bool:
    if isinstance(y, (list, tuple)):
        return all(map(has_no_floats, y))
    return isinstance(y, ANSWERS) or (isinstance(y, (np.ndarray, np.generic)) and y.dtype.kind in "biuSUmM")


def unstructured(x: StructuredArray, to):
    """The fields along a new last axis.  NumPy may give a view, so writing either is an error."""
    kinds = {x._layout.dtype[name] for name in x._array}
    if len(kinds) != 1 or (to is not None and {to} != kinds):
        raise ArgumentError(f"fields of {x._layout.dtype} as one array: write numpy.stack of x[name]")
    y: Any = np.stack([*x._array.values()], -1)
    if type(y) in HANDLES:
        bases = [v._base if type(v) is View else v for v in x._array.values()]
        for v in (*bases, y):
            v._saved = True
        OPEN.aliased = {**OPEN.aliased, **{id(v): v for v in (*bases, y)}}
    return y
