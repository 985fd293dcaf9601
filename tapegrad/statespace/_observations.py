"""The data of a state space model after the checks, and numbers as users give them."""

from functools import cached_property
from types import ModuleType
from typing import Any

import numpy
from numpy import ndarray

from .. import numpy as np
from .._core.arrays import is_array, to_host, xp_of
from .._core.errors import ArgumentError, DataError, ShapeError
from .._core.primitive import is_tracked, nests_variable, values_of
from .._core.trees import Const
from .._core.variable import Variable
from .._transforms.tape import value
from ._labels import LibraryBound, labels_of


class Observations(LibraryBound):
    """Data after the checks, as a copy.

    `loglik` and the other functions accept it in place of y. The pattern of missing values is then found only
    once.

    Parameters
    ----------
    y : array of shape (n,) or (n, p), Series or DataFrame
        The data, nan where missing.

    Attributes
    ----------
    values : array of shape (n, p)
        The data, 0 where missing.
    rows : list of list of int
        The observed elements of each step.
    labels : object
        Dates and names of a Series or DataFrame.

    Raises
    ------
    DataError
        If data are infinite.
    ArgumentError
        If `vmap` or a recording hides the data.

    See Also
    --------
    loglik : Takes observations.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> data = ss.Observations([1.0, float("nan"), 3.0])
    >>> data.steps, data.count, data.rows
    (3, 2, [[0], [], [0]])
    """

    def __init__(self, y):
        given = y.value if isinstance(y, Const) else y
        plain = type(given) is ndarray and given.dtype == float
        y = given if plain else as_given(_with_gaps(given))
        y = y.copy() if plain or is_array(y) else y
        shape = tuple(y.shape)
        if y.ndim == 1:
            y = y[:, None]
        if y.ndim != 2 or y.shape[0] == 0 or y.shape[1] == 0:
            raise ShapeError(f"y: shape {y.shape}; wanted (n,) or (n, p) with n and p at least 1, time first")
        self.labels = labels_of(given, shape)
        host = value(y)
        if isinstance(host, Variable):
            raise ArgumentError(
                "y: vmap and recording hide the data, of which the filter reads what is missing; loop over "
                "the series, or give them to fit_many"
            )
        self.xp: ModuleType = xp_of(host)
        host = to_host(host)
        if host.dtype.kind != "f":
            raise ArgumentError(f"y: dtype {host.dtype}; wanted real floating point")
        missing = None if numpy.isfinite(host).all() else numpy.isnan(host)
        self._missing = missing  # on the host; None where no value is missing
        for t, i in () if missing is None else numpy.argwhere(numpy.isinf(host))[:1]:
            raise DataError(
                f"y[{t}, {i}] is {host[t, i]}: infinite values cannot be filtered; nan means a missing value"
            )
        self.steps, self.width = host.shape
        self.count = host.size if missing is None else int((~missing).sum())
        self.raw = y
        self.start = None  # what these data imply for a diffuse start (`filters.augmented`),
        self.begin = None  # how filters begin on them (`filters.diffuse_start`),
        self.lines = None  # and the data rows of kernels
        self.values = y if missing is None else np.where(self.xp.asarray(missing), 0.0, y)

    @cached_property
    def rows(self) -> list[list[int]]:
        """Return the observed elements of each step."""
        rows = [list(range(self.width))] * self.steps
        if self._missing is not None:
            for t in numpy.flatnonzero(self._missing.any(axis=1)).tolist():
                rows[t] = numpy.flatnonzero(~self._missing[t]).tolist()
        return rows

    @property
    def host(self) -> ndarray:
        """Return the numbers of the data, (n, p), on the host and without derivatives."""
        return to_host(value(self.raw))

    def first(self, steps: int) -> "Observations":
        """Return the first rows."""
        return Observations(self.raw[:steps])

    def extended(self, steps: int) -> "Observations":
        """Return the data followed by `steps` missing rows."""
        gap = self.xp.full((steps, self.width), numpy.nan, value(self.raw).dtype)
        return Observations(np.concatenate([self.raw, gap]))

    def followed_by(self, call: str, y: Any) -> "Observations":
        """Return these data with new ones behind; their dates must follow."""
        new = y if isinstance(y, Observations) else Observations(self.row_of(y))
        if new.width != self.width:
            raise ShapeError(f"{call}: y has {new.width} series, and the data have {self.width}")
        index = self.labels.continued(call, new.labels, new.steps)
        raw = np.concatenate([self.raw, new.raw])
        return Observations(self.labels.frame(raw[:, 0] if self.labels.single else raw, index))

    def row_of(self, y: Any) -> Any:
        """Return y; one new row may be given as a number or, of several series, as a vector."""
        if hasattr(y, "index") and not callable(y.index):
            return y
        if not self.labels.single and numpy.ndim(y) == 1 and len(y) == self.width:
            return numpy.asarray(y, float)[None]
        return numpy.asarray([y], float) if numpy.ndim(y) == 0 else y

    def since(self, step: int) -> "Observations":
        """Return the rows from a step on, with their dates."""
        raw = self.raw[step:, 0] if self.labels.single else self.raw[step:]
        return Observations(
            raw if self.labels.index is None else self.labels.frame(raw, self.labels.index[step:])
        )

    def in_form(self, values: Any, index: Any = None) -> Any:
        """Return values (n, p) on the host in the form of the data: (n,), (n, p), a Series or a DataFrame."""
        values = to_host(values)
        return self.labels.frame(values[:, 0] if self.labels.single and self.width == 1 else values, index)


def as_observations(y) -> Observations:
    """Return the data after the checks, which data that had them pass as they are."""
    return y if isinstance(y, Observations) else Observations(y)


def _with_gaps(y):
    """Return the user's data, with nan where a mask or pandas marks missing values."""
    if isinstance(y, numpy.ma.MaskedArray):
        return numpy.ma.filled(y.astype(float), numpy.nan) if y.dtype.kind in "biuf" else y.data
    if isinstance(y, (str, bytes, dict, set)):
        raise ArgumentError(
            f"y: a {type(y).__name__}; wanted numbers (n,) or (n, p), or a Series or DataFrame"
        )
    try:
        if hasattr(y, "to_numpy"):
            return y.to_numpy(dtype=float, na_value=numpy.nan)
        return numpy.asarray(y, dtype=float) if isinstance(y, (list, tuple)) and not nests_variable(y) else y
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"y: a {type(y).__name__} that does not hold real numbers alone: {error}"
        ) from error


def as_given(x):
    """Return x as an array or number, tracked or plain; lists may hold tracked numbers."""
    if issubclass(type(x), numpy.ma.MaskedArray):
        raise ArgumentError(
            "a masked array among the parameters of a model: masks have no meaning there; pass "
            "x.filled(value)"
        )
    if isinstance(x, (list, tuple)):
        return numpy.asarray(x, dtype=float) if _of_numbers(x) else np.stack([as_given(item) for item in x])
    if type(x) in (int, float, bool):
        return numpy.float64(x)
    if isinstance(x, Variable) and not is_tracked(x):
        x = values_of(x)
    if not hasattr(x, "dtype") or (type(x) is ndarray and x.ndim == 0):
        return numpy.asarray(x, dtype=float)[()]
    return x.astype(float) if x.dtype.kind in "iub" else x


def _of_numbers(x) -> bool:
    """Return whether a nested list holds only plain numbers of the host."""
    if isinstance(x, (list, tuple)):
        return all(_of_numbers(item) for item in x)
    return issubclass(type(x), (int, float, numpy.generic, ndarray))
