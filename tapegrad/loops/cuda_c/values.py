"""Numbers and pointers of CUDA C in a loop program."""

import itertools
from typing import NamedTuple

from ..program import LoopArray, Scalar
from ..views import Ranges
from ..writer import ZERO, ProgramWriter
from .parser import CNode, CParser, CVariable


class CNumber(NamedTuple):
    """A number of a C type.

    state: "" in the type's range; "index": small, computed from indices of threads, perhaps below 0; "lazy":
    modulo the range of an unsigned type."""

    v: Scalar
    type: str
    state: str = ""


class CPointer(NamedTuple):
    """The element `at` of an array's axis after those that `lead` fixes."""

    array: LoopArray
    type: str
    lead: tuple
    at: Scalar

    @property
    def place(self) -> tuple:
        return (*self.lead, self.at)

    @property
    def base(self) -> "CPointer":
        return self._replace(at=ZERO)


class KernelSource:
    """What all frames of one program share."""

    def __init__(self, parsed: CParser, of_thread: bool, dynamic_bytes: int = 0):
        self.parsed, self.of_thread, self.dynamic_bytes = parsed, of_thread, dynamic_bytes
        self.w = ProgramWriter()
        self.ranges = Ranges(self.w)
        self.special: dict[str, Scalar] = {}
        self.numbers, self.regions = itertools.count(), [0]
        self.names = {n.parts[0] for n in parsed.globals}
        self.shared: dict[CVariable, CPointer] = {}


def stored_type(type: str) -> str:
    """The type of a loop program that holds this C type."""
    return type if type in ("b1", "f4", "f8") else "i8"


def common_type(x: CNumber, y: CNumber) -> str:
    """The type that C's arithmetic converts both to."""
    kinds = {"i4" if v.type == "b1" else v.type for v in (x, y)}
    return next(k for k in ("f8", "f4", "u8", "i8", "u4", "i4") if k in kinds)


def is_not_free(n: CNode) -> bool:
    """May the evaluation of n fail, or have a side effect?"""
    return (
        n.kind in ("element", "call", "assign", "step")
        or (n.kind == "unary" and n.parts[0] == "*")
        or (n.kind == "binary" and n.parts[0] in ("/", "%"))
    )
