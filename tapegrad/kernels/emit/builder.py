"""What the builders of LLVM text and of CUDA C share: the elements of buffers, operations that are one line
each, and expressions, with which `elementary` writes its functions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any


@dataclass(frozen=True)
class Affine:
    """const + sum of factor * loop variable."""

    const: int = 0
    terms: dict = field(default_factory=dict)

    def __add__(self, other: "Affine | int") -> "Affine":
        if isinstance(other, int):
            return Affine(self.const + other, self.terms)
        terms = dict(self.terms)
        for name, factor in other.terms.items():
            terms[name] = terms.get(name, 0) + factor
        return Affine(self.const + other.const, {n: f for n, f in terms.items() if f})

    __radd__ = __add__

    def __mul__(self, factor: int) -> "Affine":
        return Affine(self.const * factor, {n: f * factor for n, f in self.terms.items()} if factor else {})

    __rmul__ = __mul__

    def __sub__(self, other: "Affine | int") -> "Affine":
        return self + other * -1

    def __rsub__(self, other: int) -> "Affine":
        return self * -1 + other


@dataclass(frozen=True)
class BlockBuffer:
    """A buffer of elements: `base` is its address in the language of the emitter.

    A constant buffer has one number for all lanes. A wide buffer holds float64 in a float32 program."""

    base: str
    offset: int = 0
    constant: bool = False
    wide: bool = False


@dataclass(frozen=True)
class BlockAccess:
    """The elements at offset + strides * index of a buffer."""

    buffer: BlockBuffer
    offset: int
    strides: tuple

    def at(self, *index) -> Affine:
        out = Affine(self.offset)
        for stride, i in zip(self.strides, index, strict=True):
            out = out + (i if isinstance(i, Affine) else Affine(i)) * stride
        return out


def emit_read(b, x: BlockAccess, *index):
    return b.load(x.buffer, x.at(*index))


def emit_write(b, x: BlockAccess, value, *index) -> None:
    b.put(x.buffer, x.at(*index), value)


def one_line(text: str, kind: str) -> Callable[..., str]:
    """Return the method of a builder that writes `text`, the body of an f-string, as a value of this kind.

    In the text a, b and c are the operands, and self is the builder. The method is compiled, because
    programs have thousands of such lines."""
    return eval(f"lambda self, a=None, b=None, c=None: self.written(f{text!r}, {kind})")


class TextBuilder:
    """A builder whose operations are one line each: `forms` of a subclass holds these lines.

    They are ordered by the kind of the result, an expression; see `one_line`."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls, forms: dict[str, dict[str, str]] | None = None) -> None:
        for kind, lines in (forms or {}).items():
            for name, text in lines.items():
                setattr(cls, name, one_line(text, kind))

    def rcp(self, a):
        return self.div(self.c(1.0), a)

    def lt(self, a, b):
        return self.compare("lt", a, b)

    def gt(self, a, b):
        return self.compare("gt", a, b)

    def eq(self, a, b):
        return self.compare("eq", a, b)

    def same(self, a):
        return a

    across = False  # lanes hold neighbouring elements of one sample, not one element of several samples

    def in_all_lanes(self, x):
        """Return a number of one sample in the lanes of its columns."""
        return x

    def parts_of_row(self, first: Affine | int, n: int) -> list:
        """Return (builder, start, stop, step) of loops over the columns of a row: see `lanes_of_row`."""
        return [(self, first, n, 1)]

    def single(self, value: str) -> BlockBuffer:
        """Return a buffer of one element."""
        return BlockBuffer(self.address_of.format(self.cell(value)))


def operator_of(name: str) -> Callable:
    """Return a method that writes the builder's operation of this name."""
    return lambda self, *x: getattr(self.b, name)(self, *x)


def turned_operator_of(name: str) -> Callable:
    return lambda self, x: getattr(self.b, name)(x, self)


class Expression:
    """A value in a builder's language; Python's operators write the builder's operations."""

    __slots__ = ("b", "text")

    def __init__(self, b: "Expressions", text):
        self.b, self.text = b, text

    __add__, __sub__, __mul__, __truediv__ = map(operator_of, ("add", "sub", "mul", "div"))
    __radd__, __rsub__, __rmul__, __rtruediv__ = map(turned_operator_of, ("add", "sub", "mul", "div"))
    __neg__, __abs__, __or__, __lt__, __gt__ = map(operator_of, ("neg", "abs", "or_", "lt", "gt"))

    def __eq__(self, x: object):
        return self.b.eq(self, x)


class Expressions:
    """The operations of a builder on expressions; floats are constants, integers are operands as they are."""

    def __init__(self, builder):
        self.builder, self.bits = builder, builder.bits

    def text(self, x):
        return x.text if isinstance(x, Expression) else self.builder.c(x) if isinstance(x, float) else x

    def __getattr__(self, name: str) -> Callable:
        operation = getattr(self.builder, name)
        return lambda *x: Expression(self, operation(*[self.text(v) for v in x]))

    def written(self, f: Callable, *x):
        """Write f(self, *x) of values in the builder's language; return its value there."""
        return self.text(f(self, *[Expression(self, v) for v in x]))
