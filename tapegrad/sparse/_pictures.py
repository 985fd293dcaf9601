"""Pictures of a pattern and its colours. matplotlib is imported at the first call."""

import numpy as np

from .._core.errors import ArgumentError
from .._core.registry import load

POINT = 6.0  # largest width of an entry, in points


def plot_pattern(pattern, coloring, title: str, ax):
    """Draw the entries of the pattern, each in the colour of its product."""
    try:
        pyplot = load("matplotlib.pyplot")
    except ImportError as error:
        raise ArgumentError(
            "a picture needs the package matplotlib: pip install matplotlib, or 'tapegrad[plot]'"
        ) from error
    if ax is None:
        ax = pyplot.subplots(
            figsize=(6.0, 6.0 * min(max(pattern.shape[0] / max(pattern.shape[1], 1), 0.4), 1.6)),
            layout="constrained",
        )[1]
    m, n = pattern.shape
    row, column = np.repeat(np.arange(m), np.diff(pattern.indptr)), pattern.indices
    colours = np.zeros(pattern.nnz, int)
    if coloring is not None:
        of_columns = coloring.counts()[0]
        colours = -1 + np.zeros(pattern.nnz, int) if coloring.columns is None else coloring.columns[column]
        if coloring.rows is not None:
            by_rows = coloring.rows[row]
            colours = np.where(
                (colours < 0) | ((by_rows >= 0) & (coloring.columns is None)), by_rows + of_columns, colours
            )
    count = 1 if coloring is None else max(len(coloring), 1)
    side = 72 * min(ax.figure.get_size_inches()) * 0.8
    size = np.clip(side / max(m, n, 1), 0.4, POINT) ** 2
    shades = pyplot.get_cmap("turbo")((colours + 0.5) / count)
    ax.scatter(column, row, s=size, c=shades, marker="s", linewidths=0)
    ax.set(xlim=(-0.5, n - 0.5), ylim=(m - 0.5, -0.5), aspect="equal" if 0.2 < m / max(n, 1) < 5 else "auto")
    ax.set_title(title)
    ax.set_xlabel("unknown")
    ax.set_ylabel("element of the result")
    return ax
