"""Moving windows of pandas in followed code: its compiled sums over windows, for tracked values.

pandas' own Python code finds the windows.  x: the values of a column; window k has x[start[k]:end[k]], and a result
if at least `minp` of its values are no nan."""

from typing import Any

import numpy as plain_np
import pandas

from .. import numpy as np
from .._core.primitive import holds_variable, is_tracked, primal_of, values_of


def windows(x: Any, at: Any, inside: Any) -> tuple[Any, Any]:
    """The windows as rows of one length, and which of their elements count."""
    rows = x[plain_np.where(inside, at, 0)]
    return rows, inside & ~plain_np.isnan(values_of(primal_of(rows)))


def of_windows(statistic: Any, fewest: int = 1) -> Any:
    """The statistic of each window. `fewest`: how many values it needs at least."""

    def run(x: Any, start: Any, end: Any, minp: int, *args: Any, **settings: Any) -> Any:
        at = start[:, None] + plain_np.arange(max(1, int(plain_np.max(end - start, initial=0))))
        rows, counts = windows(x, at, at < end[:, None])
        n = counts.sum(1)
        enough = n >= max(minp, fewest)
        rows, counts, n = rows[enough], counts[enough], n[enough]
        found = np.full(len(enough), plain_np.nan)
        found[enough] = statistic(rows, counts, n, *args, **settings)
        return found

    return run


def power_sum(rows: Any, counts: Any, n: Any, power: int = 1) -> Any:
    """The sum of powers; of deviations from the mean beyond the first."""
    if power == 1:
        return np.sum(np.where(counts, rows, 0.0), axis=1)
    deviations = rows - (power_sum(rows, counts, n) / n)[:, None]
    return np.sum(np.where(counts, deviations, 0.0) ** power, axis=1)


def variance(rows: Any, counts: Any, n: Any, ddof: int = 1) -> Any:
    free = plain_np.maximum(n - ddof, 0)
    return np.where(free > 0, power_sum(rows, counts, n, 2) / plain_np.maximum(free, 1), plain_np.nan)


def skewness(rows: Any, counts: Any, n: Any) -> Any:
    second, third = [power_sum(rows, counts, n, k) / n for k in (2, 3)]
    return plain_np.sqrt(n * (n - 1.0)) / (n - 2.0) * third / second**1.5


def kurtosis(rows: Any, counts: Any, n: Any) -> Any:
    second, fourth = [power_sum(rows, counts, n, k) / n for k in (2, 4)]
    return ((n * n - 1.0) * fourth / second**2 - 3.0 * (n - 1.0) ** 2) / ((n - 2.0) * (n - 3.0))


def quantiles(rows: Any, counts: Any, n: Any, quantile: float = 0.5, interpolation: str = "linear") -> Any:
    return np.nanquantile(np.where(counts, rows, plain_np.nan), quantile, axis=1, method=interpolation)


def covariance(x: Any, y: Any, start: Any, end: Any, minp: int, ddof: int = 1) -> Any:
    x, y = x + 0.0 * y, y + 0.0 * x  # a value without its partner does not count
    n = OURS["roll_sum"](1.0 + 0.0 * values_of(primal_of(x)), start, end, 0)
    x, y = x - np.nanmean(x), y - np.nanmean(y)
    product, a, b = [OURS["roll_mean"](v, start, end, minp) for v in (x * y, x, y)]
    return (product - a * b) * plain_np.where(n > ddof, n / plain_np.maximum(n - ddof, 1), plain_np.nan)


def correlation(x: Any, y: Any, *bounds: Any) -> Any:
    x, y = x + 0.0 * y, y + 0.0 * x
    return covariance(x, y, *bounds) / np.sqrt(covariance(x, x, *bounds) * covariance(y, y, *bounds))


def applied(x: Any, start: Any, end: Any, minp: int, function: Any, raw: bool, args: Any, kwargs: Any) -> Any:
    """A function of the user's of each window."""
    seen = plain_np.concatenate([[0], plain_np.cumsum(~plain_np.isnan(values_of(primal_of(np.asarray(x)))))])
    parts = x if raw else x.iloc
    found = [
        function(parts[s:e], *args, **kwargs) if seen[e] - seen[s] >= minp else plain_np.nan
        for s, e in zip(start, end, strict=True)
    ]
    return np.array(found)


def decaying(
    x: Any, start: Any, end: Any, minp: int, com: float, adjust: bool, ignore_na: bool, deltas: Any, normalize: bool = True
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


def decaying_covariance(
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


def weighted(divide: bool) -> Any:
    """The sum or the mean of windows with weights."""

    def run(x: Any, weights: Any, minp: int) -> Any:
        at = plain_np.arange(len(x))[:, None] + plain_np.arange(1 - len(weights), 1)
        rows, counts = windows(x, at, at >= 0)
        found = np.sum(np.where(counts, rows, 0.0) * weights, axis=1)
        found = found / plain_np.sum(counts * weights, axis=1) if divide else found
        return np.where(counts.sum(1) >= minp, found, plain_np.nan)

    return run


OURS = {
    "roll_sum": of_windows(power_sum, 0),
    "roll_mean": of_windows(lambda rows, counts, n: power_sum(rows, counts, n) / n),
    "roll_var": of_windows(variance),
    "roll_skew": of_windows(skewness, 3),
    "roll_kurt": of_windows(kurtosis, 4),
    "roll_max": of_windows(lambda rows, counts, n: np.max(np.where(counts, rows, -plain_np.inf), axis=1)),
    "roll_min": of_windows(lambda rows, counts, n: np.min(np.where(counts, rows, plain_np.inf), axis=1)),
    "roll_median_c": of_windows(quantiles),
    "roll_quantile": of_windows(quantiles),
    "roll_cov": covariance,
    "roll_corr": correlation,
    "roll_apply": applied,
    "roll_weighted_sum": weighted(False),
    "roll_weighted_mean": weighted(True),
    "ewm": decaying,
    "ewmcov": decaying_covariance,
}


class Aggregations:
    """pandas' module of compiled sums over windows, with rules for tracked values. `column`: the class of columns
    of these."""

    def __init__(self, theirs: Any, column: type):
        self._theirs, self._column = theirs, column

    def __getattr__(self, name: str) -> Any:
        theirs, ours = getattr(self._theirs, name), OURS.get(name)

        def call(x: Any, *args: Any, **settings: Any) -> Any:
            held = x.array if isinstance(x, pandas.Series) else x
            if isinstance(held, self._column) or holds_variable((held, *args[:1]), is_tracked):
                return self._column(ours(x, *args, **settings))
            return theirs(x, *args, **settings)

        return call if ours else theirs
