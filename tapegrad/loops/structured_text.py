"""What the texts of loop programs share: names, lines, and the user's lines as comments."""

import itertools
import linecache
from collections.abc import Iterable
from typing import Any

from .program import Block


class StructuredText:
    """Lines of text for the statements of a program; a subclass writes a statement."""

    indent, comment = "    ", "# "

    def __init__(self, file: str, taken: Iterable[str] = ()):
        self.file, self.line = file, 0
        self.names: dict[Any, str] = {}
        self.taken = set(taken)
        self.lines: list[str] = []

    def put(self, depth: int, text: str) -> None:
        self.lines.append(self.indent * depth + text)

    def name(self, v: Any) -> str:
        if v not in self.names:
            base = self.word(v)
            others = (f"{base}_{k}" for k in itertools.count(1))
            self.names[v] = next(n for n in itertools.chain((base,), others) if n not in self.taken)
            self.taken.add(self.names[v])
        return self.names[v]

    def word(self, v: Any) -> str:
        """The first part of v's name, as an identifier."""
        return "".join([c if c.isalnum() else "_" for c in v.name.split(".")[0]]).strip("_") or "t"

    def block(self, block: Block, depth: int) -> None:
        for s in block.statements:
            if s.line and s.line != self.line:
                self.line = s.line
                text = linecache.getline(self.file, s.line).strip().rstrip("\\")
                if text:
                    self.put(depth, f"{self.comment}{s.line}: {text}")
            self.statement(s, depth)

    def statement(self, s: Any, depth: int) -> None:
        raise NotImplementedError
