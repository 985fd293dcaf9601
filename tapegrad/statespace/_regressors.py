"""Regressors: their values and names, and the checks of them."""

from collections.abc import Sequence

import numpy
from numpy import ndarray

from .._core.arrays import to_host
from .._core.errors import ArgumentError, DataError, ShapeError


def checked_regressors(call: str, X) -> tuple[ndarray, tuple[str, ...]]:
    """Regressors (n, k) on the host, and their names."""
    try:
        values = numpy.asarray(X.to_numpy(dtype=float) if hasattr(X, "to_numpy") else to_host(X), dtype=float)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{call}: X is a {type(X).__name__} that does not hold real numbers alone: {error}"
        ) from error
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.size == 0:
        raise ShapeError(f"{call}: X has shape {numpy.shape(X)}; wanted (n,) or (n, k), time first")
    for t, i in numpy.argwhere(~numpy.isfinite(values))[:1]:
        raise DataError(f"{call}: X[{t}, {i}] is {values[t, i]}; regressors must be known at every step")
    columns = getattr(X, "columns", None)
    if columns is None and getattr(X, "name", None) is not None:
        columns = [X.name]
    return values, tuple(map(str, columns)) if columns is not None else _numbered(values.shape[1])


def _numbered(k: int) -> tuple[str, ...]:
    return tuple([f"x{i + 1}" for i in range(k)])


def require_rank(call: str, X: ndarray, rows: list[list[int]], names: Sequence[str], other: str) -> None:
    """Raise `DataError` if the columns of X (n, k) depend on each other at the steps with data.

    The last of them are the regressors with these names."""
    seen = X[[bool(elements) for elements in rows]]
    size = numpy.linalg.norm(seen, axis=0)
    seen = seen / numpy.where(size > 0, size, 1.0)
    if seen.size and (not size.all() or numpy.linalg.matrix_rank(seen) < min(seen.shape)):
        ranks = [numpy.linalg.matrix_rank(seen[:, : k + 1]) for k in range(seen.shape[1])]
        added = numpy.diff(ranks, prepend=0)[-len(names) :]
        found = ", ".join([name for name, more in zip(names, added, strict=True) if not more])
        beside = f", or belongs to the {other}" if other else ""
        raise DataError(
            f"{call}: regressors are collinear: where there are data, {found} is a sum of those before, or "
            f"0{beside}; leave it out"
        )


def future_regressors(exog, columns: list[tuple[str, ...]], steps: int) -> list[ndarray]:
    """The regressors of the steps ahead, part by part; `columns`: their names."""
    widths = [len(names) for names in columns]
    if not widths and exog is None:
        return []
    if not widths:
        raise ArgumentError("exog is given, and the model has no regressors")
    if exog is None:
        named = ", ".join([name for part in columns for name in part])
        raise ArgumentError(
            f"the model has regressors; give their values at the steps ahead, exog=X of {steps} rows: {named}"
        )
    X, names = checked_regressors("exog", exog)
    wanted = tuple([name for part in columns for name in part])
    if hasattr(exog, "columns") and not any(part == _numbered(len(part)) for part in columns):
        absent = [name for name in wanted if name not in names]
        if absent:
            raise DataError(
                f"exog has the columns {', '.join(names)}, and the regressors are {', '.join(wanted)}: no "
                f"{', '.join(absent)}"
            )
        X = X[:, [names.index(name) for name in wanted]]
    X = X.T if X.shape == (sum(widths), 1) and steps == 1 else X
    if X.shape != (steps, sum(widths)):
        raise ShapeError(f"exog has shape {X.shape}; wanted ({steps}, {sum(widths)}), a row for each step")
    return numpy.split(X, numpy.cumsum(widths)[:-1], axis=1)
