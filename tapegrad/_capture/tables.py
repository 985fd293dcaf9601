"""pandas in followed code: columns of tables and series keep tracked values."""

import functools
import operator
import sys
from typing import Any

import numpy as plain_np
import pandas
import pandas.core.dtypes.cast
import pandas.core.dtypes.missing
import pandas.core.nanops
from pandas.api.extensions import ExtensionArray, ExtensionDtype
from pandas.api.indexers import check_array_indexer
from pandas.core.construction import sanitize_array
from pandas.core.dtypes.cast import LossySetitemError
from pandas.core.internals.blocks import Block, new_block
from pandas.core.internals.managers import BlockManager
from pandas.core.window import ewm, rolling

from .. import numpy as np
from .._core.arrays import is_array
from .._core.primitive import holds_variable, is_tracked, layout_of, primal_of, values_of
from .._core.scope import OPEN
from .._core.variable import HANDLES
from .._dispatch.faces import TRACKED
from ..ops.shaping import nested_to_array
from .builtin import PatchedModule


class TrackedDtype(ExtensionDtype):
    """Floats with derivatives."""

    name, type, kind, na_value, _is_numeric = TRACKED, float, "f", plain_np.nan, True
    numpy_dtype = plain_np.dtype(float)  # which pandas compares with others

    @classmethod
    def construct_array_type(cls) -> Any:
        return TrackedColumn

    def _get_common_dtype(self, dtypes: list) -> Any:
        numbers = [isinstance(d, TrackedDtype) or getattr(d, "kind", "O") in "biuf" for d in dtypes]
        return self if all(numbers) else None


def unwrapped(x: Any) -> Any:
    return x._x if isinstance(x, TrackedColumn) else x


def wrapped(y: Any) -> Any:
    layout = layout_of(y)
    return TrackedColumn(y) if is_array(layout) and layout.ndim == 1 and layout.dtype.kind == "f" else y


class TrackedColumn(ExtensionArray):
    """A column of a table."""

    def __init__(self, x: Any):
        self._held = x

    @property
    def _x(self) -> Any:
        """Plain after the transform: a table from outside may have been given the column."""
        if not OPEN.depth:
            self._held = values_of(primal_of(self._held))
        return self._held

    @classmethod
    def _from_sequence(cls, scalars: Any, *, dtype: Any = None, copy: bool = False) -> Any:
        return cls(np.array(nested_to_array(list(scalars)), float))

    @classmethod
    def _concat_same_type(cls, parts: Any) -> Any:
        return cls(np.concatenate([p._x for p in parts]))

    dtype = property(lambda self: TrackedDtype())

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, at: Any) -> Any:
        return wrapped(self._x[check_array_indexer(self, at)])

    def __setitem__(self, at: Any, value: Any) -> None:
        if OPEN.depth and type(self._held) not in HANDLES:  # of an earlier transform
            self._held = np.array(self._held)
        self._x[check_array_indexer(self, at)] = unwrapped(value)

    def __iter__(self) -> Any:
        return iter(self._x)

    def isna(self) -> Any:
        return values_of(np.isnan(primal_of(self._x)))  # (samples of vmap may agree in this)

    def copy(self) -> Any:
        return TrackedColumn(np.array(self._x))

    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> Any:
        at = plain_np.asarray(indices, int)
        if not allow_fill:
            return TrackedColumn(self._x[at])
        missing = at < 0
        fill = plain_np.nan if fill_value is None or fill_value is pandas.NA else fill_value
        found = self._x[plain_np.where(missing, 0, at)] if len(self) else np.full(len(at), fill)
        return TrackedColumn(np.where(missing, fill, found))

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        if dtype in (object, "object"):
            return self.to_numpy(object)
        if isinstance(dtype, TrackedDtype) or dtype in (float, "float", "float64"):
            return self.copy() if copy else self
        return plain_np.asarray(self._x, dtype)  # which drops the derivative, or raises

    def to_numpy(self, dtype: Any = None, copy: bool = False, na_value: Any = None) -> Any:
        of_table = sys._getframe(1).f_code.co_name == "as_array"  # pandas makes NumPy's array of it
        if not of_table and (dtype is None or dtype not in (object, "object")):
            return np.array(self._x) if copy else self._x
        found = plain_np.empty(len(self), object)
        for n, x in enumerate(self._x):
            found[n] = x
        return found

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.to_numpy(object) if dtype in (None, object) else plain_np.asarray(self._x, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        if any(isinstance(x, (pandas.Series, pandas.DataFrame, pandas.Index)) for x in inputs):
            return NotImplemented
        return wrapped(getattr(ufunc, method)(*map(unwrapped, inputs), **settings))

    def _reduce(self, name: str, *, skipna: bool = True, keepdims: bool = False, **settings: Any) -> Any:
        if name in ("skew", "kurt") and not keepdims:
            n, least = plain_np.array([len(self)]), 3 + (name == "kurt")
            found = WINDOW_RULES[f"roll_{name}"](self._x, n * 0, n, least)[0]
            return found if skipna or not self.isna().any() else plain_np.nan
        if name not in ("sum", "prod", "mean", "var", "std", "min", "max", "median", "sem"):
            raise TypeError(f"{name} of tracked values: write it with numpy, of column.to_numpy()")
        x = self._x
        x = x[~self.isna()] if skipna and not OPEN.hiding else x  # (which hides where numbers are missing)
        least = (
            0 if name in ("sum", "prod") else 1 + settings.get("ddof", 1) * (name in ("var", "std", "sem"))
        )
        if len(x) < max(least, settings.get("min_count", 0)):
            return TrackedColumn(plain_np.array([plain_np.nan])) if keepdims else plain_np.nan
        reduce = getattr(np, f"{'nan' * (skipna and bool(OPEN.hiding))}{'std' if name == 'sem' else name}")
        y = reduce(x, **({"ddof": settings.get("ddof", 1)} if name in ("var", "std", "sem") else {}))
        y = y / np.sqrt(np.sum(~np.isnan(x)) if skipna else len(x)) if name == "sem" else y
        return TrackedColumn(y[None]) if keepdims else y

    def _quantile(self, qs: Any, interpolation: str) -> Any:
        return TrackedColumn(np.quantile(self._x[~self.isna()], qs, method=interpolation))

    def interpolate(self, *, method: str, index: Any, limit_direction: str, **settings: Any) -> Any:
        limits = settings.get("limit") is not None or settings.get("limit_area") is not None
        if limits or method not in ("linear", "index", "values", "time"):
            raise TypeError(f"interpolate({method=}) of tracked values: write it with numpy.interp")
        known = ~self.isna()
        of_index = index.asi8 if hasattr(index, "asi8") else index.to_numpy()  # times in whole units
        at = plain_np.arange(len(self)) if method == "linear" else of_index
        beyond = {"forward": (plain_np.nan, None), "backward": (None, plain_np.nan), "both": (None, None)}
        left, right = beyond[limit_direction]
        return TrackedColumn(np.interp(at, at[known], self._x[known], left, right))

    def _values_for_argsort(self) -> Any:
        return values_of(primal_of(self._x))

    def _accumulate(self, name: str, *, skipna: bool = True, **settings: Any) -> Any:
        if name not in ("cumsum", "cumprod"):
            raise TypeError(f"{name} of tracked values: write it with numpy, of column.to_numpy()")
        missing = self.isna() & skipna  # they stay so, and count nothing
        found = getattr(np, name)(np.where(missing, float(name == "cumprod"), self._x))
        return TrackedColumn(np.where(missing, plain_np.nan, found))


def binary(f: Any) -> Any:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, (pandas.Series, pandas.DataFrame, pandas.Index)):
            return NotImplemented
        return wrapped(f(self._x, unwrapped(other)))

    return method


for _name in ("add", "sub", "mul", "truediv", "pow", "floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne"):
    _f = getattr(operator, _name)
    setattr(TrackedColumn, f"__{_name}__", binary(_f))
    setattr(TrackedColumn, f"__r{_name}__", binary(lambda a, b, f=_f: f(b, a)))
for _name in ("neg", "pos", "abs"):
    _f = getattr(operator, _name)
    setattr(TrackedColumn, f"__{_name}__", lambda self, f=_f: TrackedColumn(f(self._x)))


def column(x: Any, shares: bool = False) -> Any:
    """A column of a table, from an array that may be tracked. `shares`: it is not to be copied."""
    if type(x) not in HANDLES or layout_of(x).ndim != 1:
        return x
    # it may be given a tracked value later
    shared = (shares or not COPIES) and layout_of(x).dtype.kind == "f"
    if is_tracked(x) or shared:
        return TrackedColumn(x if shared else np.array(x))
    return values_of(x)


COPIES = int(pandas.__version__.partition(".")[0]) > 2  # does pandas copy the arrays that it is given?


def numbers_with_tracked(x: Any) -> bool:
    """Are these, in a list or an array of objects, numbers, and some of them tracked?"""
    listed = isinstance(x, (list, tuple)) or (type(x) is plain_np.ndarray and x.dtype == object)
    parts = list(x) if listed else []
    return holds_variable(parts, is_tracked) and all(
        [x is None or type(x) in HANDLES or isinstance(x, (float, int, plain_np.number)) for x in parts]
    )


def column_of(data: Any, index: Any) -> Any:
    """What pandas is given for a column: of numbers, of which some are tracked, it is a tracked column."""
    if type(data) in HANDLES and not layout_of(data).ndim and is_tracked(data) and index is not None:
        data = np.full(len(index), data)
    if numbers_with_tracked(data):
        return TrackedColumn._from_sequence([plain_np.nan if x is None else x for x in data])
    return column(data)


def sanitized(data: Any, index: Any, dtype: Any = None, *args: Any, **settings: Any) -> Any:
    """Pandas' own `sanitize_array`, which makes each column, within a transform too."""
    if OPEN.depth and dtype in (None, plain_np.dtype(float), pandas.Float64Dtype()):
        data = column_of(data, index)
        dtype = None if isinstance(data, TrackedColumn) else dtype
    return sanitize_array(data, index, dtype, *args, **settings)


for _module in (pandas.core.frame, pandas.core.series, pandas.core.internals.construction):
    _module.sanitize_array = sanitized


# --- tracked values that are put into columns of floats, which become tracked ones ---


def has_tracked(x: Any) -> bool:
    return isinstance(x, TrackedColumn) or numbers_with_tracked(x) or (type(x) in HANDLES and is_tracked(x))


def can_hold(dtype: Any, x: Any, theirs: Any = pandas.core.dtypes.cast.np_can_hold_element) -> Any:
    """Pandas' own `np_can_hold_element`: a column that cannot hold a value gets another type."""
    if OPEN.depth and dtype.kind == "f" and has_tracked(x):
        raise LossySetitemError
    return theirs(dtype, x)


def coerced_block(
    self: Any, other: Any, *args: Any, theirs: Any = Block.coerce_to_target_dtype, **settings: Any
) -> Any:
    """Pandas' own method that gives a column the type that a value needs."""
    if self.dtype.kind != "f" or not has_tracked(other):
        return theirs(self, other, *args, **settings)
    return new_block(TrackedColumn(np.array(self.values.ravel(), float)), self._mgr_locs, ndim=self.ndim)


def filled_block(self: Any, value: Any, *args: Any, theirs: Any = Block.fillna, **settings: Any) -> Any:
    """Pandas' own `fillna` of columns of one type."""
    if self.dtype.kind != "f" or not has_tracked(value):
        return theirs(self, value, *args, **settings)
    columns = (
        [coerced_block(b, value) for b in self._split()] if self.ndim > 1 else [coerced_block(self, value)]
    )
    return [filled for b in columns for filled in b.fillna(value, *args, **settings)]


def values_of_block(self: Any, theirs: Any = Block.external_values) -> Any:
    """Pandas' own `series.values`: an array."""
    return unwrapped(theirs(self))


def column_set(
    self: Any,
    loc: int,
    idx: Any,
    value: Any,
    inplace_only: bool = False,
    theirs: Any = BlockManager.column_setitem,
) -> None:
    """Pandas' own way to put a value into a column; `inplace_only`: the column keeps its type."""
    theirs(self, loc, idx, value, inplace_only and not has_tracked(value))


def missing(x: Any, *args: Any, theirs: Any = pandas.core.dtypes.missing._isna) -> Any:
    """Pandas' own `isna`."""
    return values_of(np.isnan(primal_of(x))) if type(x) in HANDLES else theirs(x, *args)


for _module in (pandas.core.dtypes.cast, pandas.core.internals.blocks, pandas.core.internals.managers):
    _module.np_can_hold_element = can_hold
Block.coerce_to_target_dtype, Block.fillna, Block.external_values = (
    coerced_block,
    filled_block,
    values_of_block,
)
BlockManager.column_setitem = column_set
pandas.core.dtypes.missing._isna = missing


# --- tables from outside, as operands of tracked values ---


def with_tracked_columns(x: Any) -> Any:
    """A series, an index, or the numbers of a table, in columns that tracked values can be computed with."""
    if not isinstance(x, pandas.DataFrame):
        plain = x.dtype.kind in "biuf" and not isinstance(x.dtype, TrackedDtype)
        values = TrackedColumn(x.to_numpy(float)) if plain else x.array
        if isinstance(x, pandas.Index):
            return pandas.Index(values, name=x.name)
        return pandas.Series(values, x.index, name=x.name)
    found = pandas.DataFrame({n: with_tracked_columns(x.iloc[:, n]) for n in range(x.shape[1])}, x.index)
    found.columns = x.columns
    return found


def labelled(x: Any, like: Any) -> Any:
    """A number or array that meets a table as pandas takes it: for each row of a series, for each column of a
    table, or for all elements."""
    ndim = layout_of(x).ndim
    if not isinstance(like, pandas.DataFrame):
        return TrackedColumn(x if ndim else np.full(len(like), x)) if ndim < 2 else x
    if ndim == 2:
        return CLASSES[pandas.DataFrame].of_array(x, like.index, like.columns)
    row = x if ndim else np.full(like.shape[1], x)
    return pandas.Series(TrackedColumn(row), like.columns)


def with_tracked_operand(theirs: Any) -> Any:
    """Pandas' own method of all operators, or comparisons, whose other operand may be tracked."""

    def method(self: Any, other: Any, op: Any) -> Any:
        if type(other) in HANDLES and layout_of(other).dtype.kind == "f":
            self, other = with_tracked_columns(self), labelled(other, self)
        return theirs(self, other, op)

    return method


def with_tracked_factor(theirs: Any) -> Any:
    """Pandas' own `dot`, whose factor may be tracked."""

    @functools.wraps(theirs)
    def dot(self: Any, other: Any) -> Any:
        if type(other) not in HANDLES:
            return theirs(self, other)
        found = np.dot(self.to_numpy(), other)
        if isinstance(self, pandas.Series):
            return found
        kind = pandas.Series if layout_of(found).ndim == 1 else pandas.DataFrame
        return CLASSES[kind](found, index=self.index)

    return dot


def of_number(theirs: Any) -> Any:
    """Pandas' own method of `table.mul` and the like, whose other operand may be a tracked number."""

    def method(self: Any, other: Any, op: Any, *, fill_value: Any = None, **settings: Any) -> Any:
        if type(other) in HANDLES and not layout_of(other).ndim and fill_value is None:
            return self._arith_method(other, op)
        return theirs(self, other, op, fill_value=fill_value, **settings)

    return method


def whole_table(theirs: Any) -> Any:
    """Pandas' own way to a table's numbers as one array, which is tracked where a column is. Pandas itself
    gets objects."""

    @functools.wraps(theirs)
    def numbers(self: Any, *args: Any, **settings: Any) -> Any:
        found = theirs(self, *args, **settings)
        asked = args or not settings.keys() <= {"copy"}
        if found.dtype != object or asked or found.size == 0 or not OPEN.depth:
            return found
        inside = sys._getframe(1).f_globals.get("__name__", "").startswith("pandas.")
        return found if inside or not numbers_with_tracked(found.ravel()) else nested_to_array(found.tolist())

    return numbers


def table_moments(theirs: Any, ours: Any) -> Any:
    """Pandas' own `cov` or `corr`, which are compiled. Tables with tracked columns and without missing numbers
    go to NumPy's function."""

    @functools.wraps(theirs)
    def moments(self: Any, *args: Any, **settings: Any) -> Any:
        numbers = self.to_numpy()
        if type(numbers) not in HANDLES or args or settings or self.isna().to_numpy().any():
            return theirs(self, *args, **settings)
        found = np.reshape(ours(numbers, rowvar=False), (self.shape[1], -1))
        return CLASSES[pandas.DataFrame].of_array(found, self.columns, self.columns)

    return moments


pandas.DataFrame.to_numpy = whole_table(pandas.DataFrame.to_numpy)
pandas.DataFrame.values = property(whole_table(pandas.DataFrame.values.fget))
pandas.DataFrame._flex_arith_method = of_number(pandas.DataFrame._flex_arith_method)
for _class in (pandas.Series, pandas.DataFrame, pandas.Index):
    for _name in ("_arith_method", "_cmp_method"):
        setattr(_class, _name, with_tracked_operand(getattr(_class, _name)))
for _class in (pandas.Series, pandas.DataFrame):
    _class.dot = with_tracked_factor(_class.dot)


def of_arrays(
    c: type, arrays: list, *args: Any, theirs: Any = pandas.DataFrame._from_arrays, **given: Any
) -> Any:
    """Pandas' own way to make a table of the columns that an operation gave."""
    return theirs.__func__(c, [column(x, True) for x in arrays], *args, **given)


pandas.DataFrame._from_arrays = classmethod(of_arrays)
for _name, _f in (("cov", np.cov), ("corr", np.corrcoef)):
    setattr(pandas.DataFrame, _name, table_moments(getattr(pandas.DataFrame, _name), _f))


# --- moving windows: pandas' compiled sums over windows, for tracked values ---
# pandas' own Python code finds the windows.  x: the values of a column.  Window k has x[start[k]:end[k]], and
# a result if at least `minp` of its values are no nan.


def window_rows(x: Any, at: Any, inside: Any) -> tuple[Any, Any]:
    """The windows as rows of one length, and which of their elements count."""
    rows = x[plain_np.where(inside, at, 0)]
    return rows, inside & ~plain_np.isnan(values_of(primal_of(rows)))


def window_sums(statistic: Any, fewest: int = 1) -> Any:
    """The statistic of each window. `fewest`: how many values it needs at least."""

    def run(x: Any, start: Any, end: Any, minp: int, *args: Any, **settings: Any) -> Any:
        at = start[:, None] + plain_np.arange(max(1, int(plain_np.max(end - start, initial=0))))
        rows, counts = window_rows(x, at, at < end[:, None])
        n = counts.sum(1)
        enough = n >= max(minp, fewest)
        rows, counts, n = rows[enough], counts[enough], n[enough]
        found = np.full(len(enough), plain_np.nan)
        found[enough] = statistic(rows, counts, n, *args, **settings)
        return found

    return run


def window_power_sum(rows: Any, counts: Any, n: Any, power: int = 1) -> Any:
    """The sum of powers; of deviations from the mean beyond the first."""
    if power == 1:
        return np.sum(np.where(counts, rows, 0.0), axis=1)
    deviations = rows - (window_power_sum(rows, counts, n) / n)[:, None]
    return np.sum(np.where(counts, deviations, 0.0) ** power, axis=1)


def window_variance(rows: Any, counts: Any, n: Any, ddof: int = 1) -> Any:
    free = plain_np.maximum(n - ddof, 0)
    return np.where(free > 0, window_power_sum(rows, counts, n, 2) / plain_np.maximum(free, 1), plain_np.nan)


def window_skewness(rows: Any, counts: Any, n: Any) -> Any:
    second, third = [window_power_sum(rows, counts, n, k) / n for k in (2, 3)]
    return plain_np.sqrt(n * (n - 1.0)) / (n - 2.0) * third / second**1.5


def window_kurtosis(rows: Any, counts: Any, n: Any) -> Any:
    second, fourth = [window_power_sum(rows, counts, n, k) / n for k in (2, 4)]
    return ((n * n - 1.0) * fourth / second**2 - 3.0 * (n - 1.0) ** 2) / ((n - 2.0) * (n - 3.0))


def window_quantiles(
    rows: Any, counts: Any, n: Any, quantile: float = 0.5, interpolation: str = "linear"
) -> Any:
    return np.nanquantile(np.where(counts, rows, plain_np.nan), quantile, axis=1, method=interpolation)


def window_covariance(x: Any, y: Any, start: Any, end: Any, minp: int, ddof: int = 1) -> Any:
    x, y = x + 0.0 * y, y + 0.0 * x  # a value without its partner does not count
    n = WINDOW_RULES["roll_sum"](1.0 + 0.0 * values_of(primal_of(x)), start, end, 0)
    x, y = x - np.nanmean(x), y - np.nanmean(y)
    product, a, b = [WINDOW_RULES["roll_mean"](v, start, end, minp) for v in (x * y, x, y)]
    return (product - a * b) * plain_np.where(n > ddof, n / plain_np.maximum(n - ddof, 1), plain_np.nan)


def window_correlation(x: Any, y: Any, *bounds: Any) -> Any:
    x, y = x + 0.0 * y, y + 0.0 * x
    return window_covariance(x, y, *bounds) / np.sqrt(
        window_covariance(x, x, *bounds) * window_covariance(y, y, *bounds)
    )


def window_values_of(
    x: Any, start: Any, end: Any, minp: int, function: Any, raw: bool, args: Any, kwargs: Any
) -> Any:
    """A function of the user's of each window."""
    seen = plain_np.concatenate([[0], plain_np.cumsum(~plain_np.isnan(values_of(primal_of(np.asarray(x)))))])
    parts = x if raw else x.iloc
    found = [
        function(parts[s:e], *args, **kwargs) if seen[e] - seen[s] >= minp else plain_np.nan
        for s, e in zip(start, end, strict=True)
    ]
    return np.array(found)


def decaying_means(
    x: Any, start: Any, end: Any, minp: int, com: float, adjust: bool, ignore_na: bool, deltas: Any,
    normalize: bool = True,
) -> Any:  # fmt: skip
    """Means, or sums, whose weights fall by com / (1 + com) a step."""
    found: list = []
    for s, e in zip(start, end, strict=True):
        held, weight, n = plain_np.nan, 1.0, 0
        for i in range(s, e):
            now, is_first = x[i], held != held
            counts = now == now
            n += int(counts)
            if is_first:
                held = now
            elif counts or not ignore_na:
                fall = (com / (1.0 + com)) ** (1.0 if deltas is None or i == s else deltas[i - 1])
                held, weight = (held, weight * fall) if normalize else (held * fall, weight)
                if counts:
                    new = 1.0 if adjust or not normalize else 1.0 / (1.0 + com)
                    held = (weight * held + new * now) / (weight + new) if normalize else held + now
                    weight = weight + new if adjust else 1.0
            found.append(held if n >= minp else plain_np.nan)
    return np.array(found)


def decaying_covariances(
    x: Any, start: Any, end: Any, minp: int, y: Any, com: float, adjust: bool, ignore_na: bool, bias: bool
) -> Any:
    fall, found = com / (1.0 + com), []
    new = 1.0 if adjust else 1.0 / (1.0 + com)
    for s, e in zip(start, end, strict=True):
        mean, held, n, weights = None, 0.0, 0, plain_np.ones(3)  # the old weight, all weights, their squares
        for i in range(s, e):
            now = np.array([x[i], y[i]])
            counts = not plain_np.isnan(values_of(primal_of(now))).any()
            n += int(counts)
            if mean is None:
                mean = now if counts else None
            elif counts or not ignore_na:
                weights = weights * (fall, fall, fall**2)
                if counts:
                    old, old_mean = weights[0], mean
                    mean = (old * old_mean + new * now) / (old + new)
                    held = old * (held + np.prod(old_mean - mean)) + new * np.prod(now - mean)
                    held = held / (old + new)
                    weights = weights + (new, new, new**2)
                    weights = weights if adjust else weights / weights[0] ** plain_np.array([1, 1, 2])
            free = 1.0 if bias else 1.0 - weights[2] / weights[1] ** 2
            found.append(held / free if n >= minp and free > 0 and mean is not None else plain_np.nan)
    return np.array(found)


def weighted_windows(divide: bool) -> Any:
    """The sum or the mean of windows with weights."""

    def run(x: Any, weights: Any, minp: int) -> Any:
        at = plain_np.arange(len(x))[:, None] + plain_np.arange(1 - len(weights), 1)
        rows, counts = window_rows(x, at, at >= 0)
        found = np.sum(np.where(counts, rows, 0.0) * weights, axis=1)
        found = found / plain_np.sum(counts * weights, axis=1) if divide else found
        return np.where(counts.sum(1) >= minp, found, plain_np.nan)

    return run


WINDOW_RULES = {
    "roll_sum": window_sums(window_power_sum, 0),
    "roll_mean": window_sums(lambda rows, counts, n: window_power_sum(rows, counts, n) / n),
    "roll_var": window_sums(window_variance),
    "roll_skew": window_sums(window_skewness, 3),
    "roll_kurt": window_sums(window_kurtosis, 4),
    "roll_max": window_sums(lambda rows, counts, n: np.max(np.where(counts, rows, -plain_np.inf), axis=1)),
    "roll_min": window_sums(lambda rows, counts, n: np.min(np.where(counts, rows, plain_np.inf), axis=1)),
    "roll_median_c": window_sums(window_quantiles),
    "roll_quantile": window_sums(window_quantiles),
    "roll_cov": window_covariance,
    "roll_corr": window_correlation,
    "roll_apply": window_values_of,
    "roll_weighted_sum": weighted_windows(False),
    "roll_weighted_mean": weighted_windows(True),
    "ewm": decaying_means,
    "ewmcov": decaying_covariances,
}


class WindowAggregations:
    """pandas' module of compiled sums over windows, with rules for tracked values. `column`: the class
    of columns of these."""

    def __init__(self, theirs: Any, column: type):
        self._theirs, self._column = theirs, column

    def __getattr__(self, name: str) -> Any:
        theirs = getattr(self._theirs, name)
        ours: Any = WINDOW_RULES.get(name)

        def call(x: Any, *args: Any, **settings: Any) -> Any:
            held = x.array if isinstance(x, pandas.Series) else x
            if isinstance(held, self._column) or holds_variable((held, *args[:1]), is_tracked):
                return self._column(ours(x, *args, **settings))
            return theirs(x, *args, **settings)

        return theirs if ours is None else call


def float_values(x: Any, convert: Any = rolling.ensure_float64) -> Any:
    """Pandas' own `ensure_float64`, which gives windows their values, of columns that may be tracked."""
    return x.to_numpy() if isinstance(getattr(x, "array", None), TrackedColumn) else convert(x)


rolling.ensure_float64 = float_values
rolling.window_aggregations = ewm.window_aggregations = WindowAggregations(
    rolling.window_aggregations, TrackedColumn
)


class TableClass:
    """A class of pandas, called with what may be tracked."""

    def __init__(self, theirs: type):
        self._theirs = theirs

    def __call__(self, data: Any = None, *args: Any, **settings: Any) -> Any:
        if not holds_variable((data,)):
            return self._theirs(data, *args, **settings)
        if type(data) in HANDLES and self._theirs is pandas.DataFrame:
            return self.of_array(data, *args, **settings)
        if isinstance(data, dict):  # pandas copies a column of these, not one that it makes
            data = {k: column(v) for k, v in data.items()}
        return self._theirs(column(data, settings.get("copy") is False), *args, **settings)

    def of_array(
        self, x: Any, index: Any = None, columns: Any = None, dtype: Any = None, copy: Any = None
    ) -> Any:
        x = x[:, None] if layout_of(x).ndim == 1 else x
        parts = {n: column(x[:, n], copy is False) for n in range(layout_of(x).shape[1])}
        found = self._theirs(parts, index, copy=bool(copy))
        if columns is not None:
            found.columns = columns
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, self._theirs)

    def __subclasscheck__(self, c: Any) -> bool:
        return issubclass(c, self._theirs)

    def __mro_entries__(self, bases: tuple) -> tuple:
        return (self._theirs,)

    def __or__(self, other: Any) -> Any:
        return self._theirs | other

    def __ror__(self, other: Any) -> Any:
        return other | self._theirs

    def __eq__(self, other: Any) -> bool:
        return other is self or other is self._theirs

    def __hash__(self) -> int:
        return hash(self._theirs)


def table_reduction(theirs: Any) -> Any:
    """A reduction of pandas' private `nanops`: NumPy's function for tracked values."""
    name = theirs.__name__

    def run(x: Any, *, axis: Any = None, skipna: bool = True, **settings: Any) -> Any:
        if not holds_variable((x,), is_tracked):
            return theirs(x, axis=axis, skipna=skipna, **settings)
        if name in ("nanvar", "nanstd"):
            settings.setdefault("ddof", 1)
        return getattr(np, name if skipna else name.removeprefix("nan"))(x, axis=axis, **settings)

    return run


CLASSES = {c: TableClass(c) for c in (pandas.DataFrame, pandas.Series)}
MODULE = PatchedModule(pandas, **{c.__name__: ours for c, ours in CLASSES.items()})
NAN_REDUCTIONS = ("nansum", "nanprod", "nanmean", "nanmedian", "nanvar", "nanstd", "nanmin", "nanmax")
PANDAS_FACES = CLASSES | {
    f: table_reduction(f) for f in [getattr(pandas.core.nanops, name) for name in NAN_REDUCTIONS]
}
