"""Rows of the interpreter with the places of all their elements, by which loops are compiled."""

from typing import Any

import numpy as np

from .machine_code import BODIES, NUMBER, OUTSIDE

NAME = {NUMBER[name]: name for name in (*BODIES, "guard")}
READS = {
    n: [c for c, x in enumerate(("%old", "%x", "%y", "%z")) if x in BODIES.get(name, "%x")]
    for n, name in NAME.items()
}
# (never within a loop: calls of others)
READS |= {NUMBER[name]: [0] for name in OUTSIDE}


class ListedRows:
    """The rows of a block, each with the places of all its elements."""

    def __init__(self) -> None:
        self.rows: list = []
        self.table: list = []
        self.length = 0

    def add(self, name: str, n: int, places: list) -> None:
        """`places`: of the result and the operands, each of the shape of the result."""
        fields = [NUMBER[name], n]
        for at in places:
            fields.append(self.length)
            self.table.append(at.ravel())
            self.length += at.size
        self.rows.append((*fields, *[0] * (6 - len(fields))))

    def outside(self, name: str, *operands: Any) -> None:
        """A call of others, which reads these."""
        at = np.concatenate([v.ravel() for v in operands])
        self.add(name, at.size, [at])

    def settle(self) -> tuple:
        return np.array(self.rows, np.int64).reshape(-1, 6), np.concatenate(
            [*self.table, np.zeros(1, np.int64)]
        )
