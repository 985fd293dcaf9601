"""Factorisations of small matrices in NumPy's words, for what acts as an array: symbols of kernels, and
places of the interpreter.

The first two axes are those of a matrix; further axes are a stack. Nothing branches on a value, and nothing
raises: a matrix without a factor gives what is not finite."""

from typing import Any, NamedTuple

import numpy as np


def joined(rows: list):
    return np.concatenate([row[None] for row in rows])


def outer(column, row):
    """The products of the elements of a column with those of a row, or with one number of each matrix."""
    return (column[:, None] if row.ndim == column.ndim else column) * row


def lower_factor(a):
    """The Cholesky factor, column by column."""
    columns: list = []
    zeros = np.zeros((len(a), *a.shape[2:]))
    for j in range(len(a)):
        column = a[j:, j]
        for known in columns:
            column = column - outer(known[j:], known[j])
        top = np.sqrt(column[:1])
        columns.append(np.concatenate([zeros[:j], top, column[1:] / top]))
    return np.swapaxes(joined(columns), 0, 1)


def substituted(a, b, lower: bool, unit: bool = False):
    """The solution for a triangle, whose other elements are not read."""
    n, rows = len(a), []
    for j in range(n) if lower else reversed(range(n)):
        row, b = (b[0], b[1:]) if lower else (b[-1], b[:-1])
        rows.append(row if unit else row / a[j, j])
        if len(b):
            b = b - outer(a[j + 1 :, j] if lower else a[:j, j], rows[-1])
    return joined(rows if lower else rows[::-1])


def exchanged(rows, exchanges: list | None = None) -> tuple:
    """The first row after it was exchanged with each later one, the others, and the conditions; by default
    that their first element is larger."""
    top, rest, found = rows[0], [], []
    for k in range(1, len(rows)):
        row = rows[k]
        larger = abs(row[0]) > abs(top[0]) if exchanges is None else exchanges[k - 1]
        rest.append(np.where(larger, top, row))
        top = np.where(larger, row, top)
        found.append(larger)
    return top, joined(rest), found


class Elimination(NamedTuple):
    """The elimination of a matrix, in which the larger of two candidates becomes the pivot.

    `steps` hold for each column but the last the conditions on which rows were exchanged with that of the
    pivot, and the factors of what was subtracted."""

    upper: Any
    steps: list

    def solution(self, b):
        done = []
        for exchanges, factors in self.steps:
            top, b, _ = exchanged(b, exchanges)
            done.append(top)
            b = b - outer(factors, top)
        return substituted(self.upper, joined([*done, b[0]]), False)

    def sign(self):
        """The sign of the exchanges."""
        found: Any = 1.0
        for exchanges, _ in self.steps:
            for larger in exchanges:
                found = np.where(larger, -found, found)
        return found

    def determinant(self):
        found = self.sign()
        for k in range(len(self.upper)):
            found = found * self.upper[k, k]
        return found


def eliminated(a) -> Elimination:
    rows, steps, zeros = [], [], np.zeros((len(a), *a.shape[2:]))
    for j in range(len(a) - 1):
        top, rest, exchanges = exchanged(a)
        rows.append(np.concatenate([zeros[:j], top]))
        steps.append((exchanges, rest[:, 0] / top[0]))
        a = rest[:, 1:] - outer(steps[-1][1], top[1:])
    return Elimination(joined([*rows, np.concatenate([zeros[:-1], a[0]])]), steps)
