"""Names and dates of data: read from a Series or DataFrame, and attached to results.

pandas is never imported here. A caller with a Series has imported it, and its objects have the methods that
are needed."""

import sys
import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy

from .._core.errors import ArgumentError, DataError
from .._core.registry import load
from ..ops.nondifferentiable import warn_user

FARTHEST = 1_000_000  # steps in which a date is looked for


class LibraryBound:
    """A base class with an array library `xp`, which is pickled by its name."""

    xp: Any

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "xp": self.xp.__name__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, xp=sys.modules[state["xp"]])


@dataclass(frozen=True)
class Labels:
    """The labels of a table: the index of its rows, the names of its columns, and whether it was 1-d.

    The index of a plain array is None."""

    index: Any = None
    columns: tuple[str, ...] = ()
    single: bool = True

    def frame(self, values: numpy.ndarray, index=None, columns=None):
        """Return values (n,) or (n, p) as a Series or DataFrame if the data were one, otherwise as an
        array."""
        index = self.index if index is None else index
        if self.index is None:
            return values
        pandas = load("pandas")
        if values.ndim == 1:
            return pandas.Series(values, index=index, name=columns or self.columns[0])
        return pandas.DataFrame(values, index=index, columns=list(columns or self.columns))

    def require_same_dates(self, what: str, index) -> None:
        """Raise `DataError` if regressors have other dates or row labels than the data, if both have any."""
        if any([x is None or callable(x) or _is_count(x) for x in (self.index, index)]) or self.index.equals(
            index
        ):
            return
        raise DataError(
            f"{what} has other {'dates' if is_dates(index) else 'labels of rows'} than y; write "
            f"X.reindex(y.index)"
        )

    def require_next_dates(self, call: str, index, steps: int) -> None:
        """Raise `DataError` if the regressors of the steps ahead have other dates than these."""
        following = (
            _following(self.index, steps)
            if is_dates(self.index) and is_dates(index) and len(index) == steps
            else None
        )
        if following is not None and not following.equals(index):
            raise DataError(
                f"{call}: exog is for {span_text(index)}, and the steps ahead are {span_text(following)}"
            )

    def position(self, call: str, where, n: int, end: bool = False) -> int:
        """Return the number of the step at a place: a number, negative from the end, or a date, also after
        the n data.

        A date such as "1960" of monthly data is the first of its steps, or with `end` the last."""
        if isinstance(where, Integral) and not isinstance(where, bool):
            found = int(where) + (n if where < 0 else 0)
            if found < 0:
                raise ArgumentError(f"{call}={where}: there are {n} steps")
            return found
        if not is_dates(self.index):
            raise ArgumentError(f"{call}={where!r}: wanted the number of a step; y has no dates")
        longer, more = self.index, max(n, 64)
        try:
            while longer.slice_locs(where, where)[1] >= len(longer) and len(longer) < FARTHEST:
                following = _following(self.index, more)
                if following is None:
                    break
                longer, more = self.index.append(following), 4 * more
            first, last = longer.slice_locs(where, where)
        except (TypeError, ValueError, KeyError) as error:
            raise ArgumentError(
                f"{call}={where!r}: {error}; wanted a number or a date of the form of y's index"
            ) from error
        if first >= last:
            raise DataError(f"{call}={where!r}: no step has this date; y has {span_text(self.index)}")
        return last - 1 if end else first

    def continued(self, call: str, new: "Labels", steps: int):
        """Return the index of these rows and of the `steps` new ones; `DataError` unless these follow."""
        if self.index is None:
            return None
        following = _following(self.index, steps)
        if new.index is None or _is_count(new.index):
            return self.index.append(self.after(len(self.index), steps) if following is None else following)
        if following is None:
            good = is_dates(new.index) == is_dates(self.index) and (
                not is_dates(self.index) or new.index[0] > self.index[-1]
            )
        else:
            good = following.equals(new.index)
        if not good:
            asked = span_text(new.index)
            other = [_step(x) for x in (self.index, new.index) if is_dates(x)]
            if len(other) == 2 and None not in other and other[0] != other[1]:
                asked += f" in steps of {other[1].freqstr}, not {other[0].freqstr}"
            wanted = "" if following is None else f", and the next steps are {span_text(following)}"
            raise DataError(f"{call}: y is for {asked}; the data end at {date_text(self.index[-1])}{wanted}")
        steps_of = [x.freq for x in (following, new.index) if is_dates(x) and x.freq is not None]
        if len(steps_of) == 2 and steps_of[0] != steps_of[1]:
            known, other = [x.freqstr for x in steps_of]
            raise DataError(
                f"{call}: y has the frequency {other}, and the data {known}; write y.asfreq({known!r})"
            )
        whole = self.index.append(new.index)
        return type(whole)(whole, freq=following.freq) if is_dates(following) else whole

    def warn_of_gaps(self) -> None:
        """Warn if the dates have no constant step, because every row counts as one."""
        index = self.index
        if not is_dates(index) or len(index) < 3:
            return
        step = _step(index)
        if step is None or index[0] + (len(index) - 1) * step != index[-1]:
            warn_user(
                f"the dates of y, {span_text(index)}, have no constant step, "
                "and every row counts as one step. If dates are missing, make their values nan: y.asfreq('MS'), "
                "or y.reindex(pd.period_range(...)) for periods",
                UserWarning,
            )

    def places(self, n: int):
        """Return the positions of the n data on an axis: their dates, or 0 to n - 1."""
        return numpy.arange(n) if self.index is None else self.index

    def after(self, n: int, steps: int):
        """Return the positions of the next steps after n data; number on, with a warning, without a regular
        step."""
        if self.index is None:
            return numpy.arange(n, n + steps)
        following = _following(self.index, steps)
        if following is not None:
            return following
        warn_user(
            f"the index of y ({type(self.index).__name__}) has no constant step, so that the dates of the "
            f"forecasts are not known: they are numbered from {n}.  Give y an index with a freq "
            "(y.asfreq('MS')), or the forecasts their dates=",
            UserWarning,
        )
        return load("pandas").RangeIndex(n, n + steps)


def labels_of(y, shape: tuple[int, ...]) -> Labels:
    """Return the labels of the user's data, whose numbers have this shape."""
    single = len(shape) == 1
    index = getattr(y, "index", None)
    if index is None or callable(index) or not hasattr(y, "to_numpy"):
        return Labels(
            None, ("y",) if single or shape[-1] == 1 else tuple(f"y{i + 1}" for i in range(shape[-1])), single
        )
    if is_dates(index) and not (index.is_monotonic_increasing and index.is_unique):
        raise DataError(
            "y: its dates do not increase from row to row; write y.sort_index(), and keep one row for each "
            "date"
        )
    if single:
        return Labels(index, ("y" if y.name is None else str(y.name),), True)
    return Labels(index, tuple(map(str, y.columns)), False)


def is_dates(index) -> bool:
    return hasattr(index, "freq")


def _is_count(index) -> bool:
    """Return whether these are the default row numbers."""
    return getattr(index.dtype, "kind", "O") == "i" and bool((index == numpy.arange(len(index))).all())


def date_text(place) -> str:
    """Return a position on the time axis as text, without hours that are zero."""
    return str(place).removesuffix(" 00:00:00")


def span_text(index) -> str:
    """Return the first and the last position on the time axis as text."""
    return f"{date_text(index[0])} to {date_text(index[-1])}"


def _following(index, steps: int):
    """Return the next `steps` positions of an index by its own step, or None."""
    if is_dates(index):
        step = _step(index)
        return (
            None
            if step is None
            else type(index)([index[-1] + k * step for k in range(1, steps + 1)], freq=step)
        )
    if len(index) < 2 or getattr(index.dtype, "kind", "O") not in "iuf":
        return None
    gaps = numpy.diff(index)
    if gaps[0] <= 0 or not (gaps == gaps[0]).all():
        return None
    return load("pandas").Index(index[-1] + gaps[0] * numpy.arange(1, steps + 1), name=index.name)


def _step(index):
    """Return the step of dates: the index's own, or the one that all of them follow."""
    if index.freq is not None or len(index) < 3:
        return index.freq
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `inferred_freq` differs between releases of pandas
        found = index.inferred_freq
    return None if found is None else type(index)(index, freq=found).freq
