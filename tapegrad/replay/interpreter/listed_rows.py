"""Rows of the interpreter with the places of all their elements, by which loops are compiled."""

import numpy as np

from .machine_code import BODIES, NUMBER, OUTSIDE

NAME = {NUMBER[name]: name for name in (*BODIES, "guard")}
READS = {
    n: [c for c, x in enumerate(("%old", "%x", "%y", "%z")) if x in BODIES.get(name, "%x")]
    for n, name in NAME.items()
}
READS |= {NUMBER[name]: [0] for name in OUTSIDE}


class ListedRows:
    """The rows of a block, each with the places of all its elements."""

    def __init__(self) -> None:
        self.rows = []
        self.table = []
        self.length = 0

    def add(self, name: str, n: int, places: list) -> None:
        """`places`: of the result and the operands, each of the shape of the result."""
        fields = [NUMBER[name], n]
        for at in places:
            fields.append(self.length)
            self.table.append(at.ravel())
            self.length += at.size
        self.rows.append((*fields, *[0] * (6 - len(fields))))

    def outside(self, name: str, row: int, read: list, written: list) -> None:
        """A call of others, as two rows: the places that it reads, and those that it writes.  `row`: which
        row of the interpreter it is."""
        for writes, places in enumerate((read, written)):
            at = np.unique(np.concatenate([v.ravel() for v in places]))
            self.add(name, at.size, [at])
            self.rows[-1] = (*self.rows[-1][:4], writes, row)

    def settle(self) -> tuple:
        return np.array(self.rows, np.int64).reshape(-1, 6), np.concatenate(
            [*self.table, np.zeros(1, np.int64)]
        )
