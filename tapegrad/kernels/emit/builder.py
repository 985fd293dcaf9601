"""What the builders of LLVM text and of CUDA C share: operations that are one line each, as tables."""

from collections.abc import Callable
from typing import Any

from .block_code import BlockBuffer


class TextBuilder:
    """A builder whose operations are one line each: `forms` holds the line of each operation by its name.

    In a line, {0}, {1}, .. are the operands, and b is the builder."""

    forms: dict[str, Any]
    c: Any
    cell: Any
    written: Callable[..., Any]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        form = type(self).forms.get(name)
        if form is None:
            raise AttributeError(f"{type(self).__name__} has no operation {name}")
        return lambda *x: self.written(form, *x)

    def rcp(self, a: Any) -> Any:
        return self.div(self.c(1.0), a)

    def lt(self, a: Any, b: Any) -> Any:
        return self.compare("lt", a, b)

    def gt(self, a: Any, b: Any) -> Any:
        return self.compare("gt", a, b)

    def eq(self, a: Any, b: Any) -> Any:
        return self.compare("eq", a, b)

    def same(self, a: Any) -> Any:
        return a

    def single(self, value: str) -> BlockBuffer:
        """Return a buffer of one element."""
        return BlockBuffer(self.address_of.format(self.cell(value)))
