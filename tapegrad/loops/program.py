"""The loop program: typed scalars in single assignment, arrays, loops with bounds known at run time,
branches.

A `LoopProgram` has parameters (scalars and arrays), a body, and results: the final content of some of its
arrays, then the scalars that the body yields.  No two of its arrays share memory.  Control flow is a tree of
blocks, and a value is visible in its block and in the blocks within.  Loops and branches hand values on as
arguments, yields and results.  Derivatives of a program are programs, so that they nest.

Types are "f8", "f4", "i8" and "b1". The operations on floats are those of the graph of kernels
(`kernels.graph.nodes.OPERATIONS`), with their derivatives; further ones act on integers and booleans."""

import functools
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._core.errors import KernelError
from ..kernels.graph.nodes import COMPARE

FLOATS = ("f8", "f4")
BYTES = {"f8": 8, "f4": 4, "i8": 8, "b1": 1}
# operations of two numbers by the sign of C, beside "floordiv", "mod", "min" and "max"
SIGNS = {
    **COMPARE, "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>",
}  # fmt: skip
COMPARISONS = frozenset(COMPARE)
DTYPES = {"f8": np.float64, "f4": np.float32, "i8": np.int64, "b1": np.bool_}


class LoopRefused(KernelError):
    """A function or kernel that has no loop program; the message names the user's line."""


def type_of_number(x) -> str | None:
    """The type of a number of Python's or NumPy's; None: it has none."""
    if isinstance(x, (float, np.floating)):
        return "f4" if isinstance(x, np.float32) else "f8"
    if isinstance(x, (bool, np.bool_)):
        return "b1"
    return "i8" if isinstance(x, (int, np.integer)) else None


@functools.cache
def type_of_elements(d: np.dtype) -> str | None:
    """The type of the elements of arrays of this dtype; None: they have none."""
    kind = {"f": f"f{d.itemsize}", "i": "i8", "b": "b1"}.get(d.kind)
    return kind if kind in DTYPES and d.byteorder != ">" else None


class Scalar:
    """A value of a program; `number` is not None for a literal."""

    __slots__ = ("name", "number", "type")

    def __init__(self, type: str, name: str = "", number=None):
        self.type, self.name, self.number = type, name, number


def literal(number, type: str) -> Scalar:
    return Scalar(type, "", {"i8": int, "b1": bool}.get(type, float)(number))


class LoopArray:
    """Memory of this type, in C order; its shape consists of scalars.

    The threads of a block have one `shared` array."""

    __slots__ = ("name", "shape", "shared", "type")

    def __init__(self, type: str, shape: Iterable[Scalar], name: str = "", shared: bool = False):
        self.type, self.shape, self.name, self.shared = type, tuple(shape), name, shared


class LoopStack:
    """A stack of scalars of this type, as high as memory allows."""

    __slots__ = ("name", "type")

    def __init__(self, type: str, name: str = ""):
        self.type, self.name = type, name


@dataclass(eq=False)
class Block:
    statements: list = field(default_factory=list)
    yields: list[Scalar] = field(default_factory=list)


@dataclass(eq=False, kw_only=True)
class Statement:
    """`atomic`: a part of an access that no other thread interrupts."""

    line: int = 0
    atomic: bool = False

    operands = property(lambda self: ())
    outs = property(lambda self: ())
    blocks = property(lambda self: ())


@dataclass(eq=False)
class Compute(Statement):
    out: Scalar
    op: str
    args: tuple[Scalar, ...]

    operands = property(lambda self: self.args)
    outs = property(lambda self: (self.out,))


@dataclass(eq=False)
class Load(Statement):
    out: Scalar
    array: LoopArray
    index: tuple[Scalar, ...]

    operands = property(lambda self: self.index)
    outs = property(lambda self: (self.out,))


@dataclass(eq=False)
class Store(Statement):
    array: LoopArray
    index: tuple[Scalar, ...]
    value: Scalar

    operands = property(lambda self: (*self.index, self.value))


class Accumulate(Store):
    """array[index] += value"""


@dataclass(eq=False)
class Push(Statement):
    stack: LoopStack
    value: Scalar

    operands = property(lambda self: (self.value,))


@dataclass(eq=False)
class Pop(Statement):
    out: Scalar
    stack: LoopStack

    outs = property(lambda self: (self.out,))


@dataclass(eq=False)
class Allocate(Statement):
    """A new array, of zeros unless each element is stored first; it lives until the end of its block."""

    array: LoopArray
    zeroed: bool = True

    operands = property(lambda self: self.array.shape)


@dataclass(eq=False)
class LayerOf(Statement):
    """`array` is the memory of `of[layer]`, in machine code.

    The other accesses of its block are not to this layer."""

    array: LoopArray
    of: LoopArray
    layer: Scalar

    operands = property(lambda self: (self.layer,))


class Barrier(Statement):
    """The threads of a block wait for each other (until `threads.split_threads`)."""


@dataclass(eq=False)
class Loop(Statement):
    """`args` are `inits` in the first trip, and in others what the body yielded; the last become
    `results`."""

    args: list[Scalar]
    inits: list[Scalar]
    body: Block
    results: list[Scalar]

    outs = property(lambda self: self.results)
    blocks = property(lambda self: (self.body,))


@dataclass(eq=False)
class For(Loop):
    """The trips of range(start, stop, step)."""

    index: Scalar
    bounds: tuple[Scalar, Scalar, Scalar]

    operands = property(lambda self: (*self.bounds, *self.inits))
    entering = property(lambda self: (self.index, *self.args))


@dataclass(eq=False)
class DoWhile(Loop):
    """The body, and again as long as it makes `test` true."""

    test: Scalar

    operands = property(lambda self: self.inits)
    entering = property(lambda self: self.args)


@dataclass(eq=False)
class If(Statement):
    test: Scalar
    then: Block
    other: Block
    results: list[Scalar]

    operands = property(lambda self: (self.test,))
    outs = property(lambda self: self.results)
    blocks = property(lambda self: (self.then, self.other))
    entering = ()


@dataclass(eq=False)
class LoopProgram:
    name: str
    params: list[Scalar | LoopArray]
    body: Block
    outs: list[LoopArray]
    file: str = ""
    derived: dict = field(default_factory=dict)  # its derivatives and its code, once made
    launch: int | None = (
        None  # what one thread of a kernel does: its parameters from here on are the launch's
    )

    @property
    def arrays(self) -> list[LoopArray]:
        return [p for p in self.params if isinstance(p, LoopArray)]


def duplicate(p: LoopProgram) -> LoopProgram:
    """A copy that shares nothing but its parameters and stacks."""
    return replace(p, body=copied_block(p.body, {}), derived={})


def stacks_of(p: LoopProgram) -> list[LoopStack]:
    return list(dict.fromkeys(s.stack for s in walk(p.body) if isinstance(s, (Push, Pop))))


def walk(block: Block) -> Iterator:
    """All statements, those of inner blocks after the one that has them."""
    for s in block.statements:
        yield s
        for b in s.blocks:
            yield from walk(b)


def yielded(s, b: Block) -> list[Scalar]:
    """What a block of statement s hands on."""
    return [*b.yields, s.test] if isinstance(s, DoWhile) else b.yields


def written(p: LoopProgram) -> set[LoopArray]:
    return {s.array for s in walk(p.body) if isinstance(s, Store)}


def captured(s) -> list[Scalar]:
    """The values from outside that the blocks of a statement use, in order; no literals."""
    inside = set()
    found = {}

    def visit(s) -> None:
        for b in s.blocks:
            inside.update(s.entering)
            for t in b.statements:
                found.update(dict.fromkeys(t.operands))
                visit(t)
                inside.update(t.outs)
            found.update(dict.fromkeys(yielded(s, b)))

    visit(s)
    return [v for v in found if v not in inside and v.number is None]


# --- copies ---


# the fields of a statement in the order in which a copy is made: what it reads, =makes, or a :block
FIELDS = {
    Compute: ("args", "=out"),
    Load: ("array", "index", "=out"),
    Store: ("array", "index", "value"),
    Accumulate: ("array", "index", "value"),
    Push: ("stack", "value"),
    Pop: ("stack", "=out"),
    Allocate: ("=array",),
    LayerOf: ("of", "layer", "=array"),
    Barrier: (),
    For: ("inits", "bounds", "=index", "=args", ":body", "=results"),
    DoWhile: ("inits", "=args", ":body", "=results", "test"),
    If: ("test", ":then", ":other", "=results"),
}


def copied(s, new: dict, inner: Callable[[Any, Block], Block]):
    """A copy of a statement; `new` maps values, arrays and stacks, and learns those that it defines.

    `inner` copies the blocks."""

    def m(x):
        return type(x)([new.get(v, v) for v in x]) if isinstance(x, (tuple, list)) else new.get(x, x)

    def fresh(x):
        if isinstance(x, list):
            return [fresh(v) for v in x]
        array = isinstance(x, LoopArray)
        new[x] = LoopArray(x.type, m(x.shape), x.name, x.shared) if array else Scalar(x.type, x.name)
        return new[x]

    made = copy(s)
    for word in FIELDS[type(s)]:
        name = word.lstrip("=:")
        x = getattr(s, name)
        setattr(made, name, fresh(x) if word[0] == "=" else inner(s, x) if word[0] == ":" else m(x))
    return made


def copied_block(block: Block, new: dict, change: Callable | None = None) -> Block:
    """A copy of a block and of the blocks within; change(s, inner) lists what stands for statement s.

    `inner` is what `copied` takes."""

    def inner(_, block: Block) -> Block:
        made = Block()
        for s in block.statements:
            made.statements += [copied(s, new, inner)] if change is None else change(s, inner)
        made.yields = [new.get(y, y) for y in block.yields]
        return made

    return inner(None, block)


# --- dead code ---


class Liveness:
    """What the results of a program depend on."""

    def __init__(self, p: LoopProgram):
        self.live = {*p.body.yields, *p.outs}
        size = -1
        while size != len(self.live):
            size = len(self.live)
            self.visit(p.body)

    def is_live(self, s) -> bool:
        if isinstance(s, (Store, Allocate)):
            return s.array in self.live
        if isinstance(s, (Push, Pop)):
            return s.stack in self.live
        return (
            isinstance(s, Barrier)
            or any(o in self.live for o in s.outs)
            or any(self.is_live(t) for b in s.blocks for t in b.statements)
        )

    def visit(self, block: Block) -> None:
        for s in reversed(block.statements):
            if isinstance(s, Pop) and s.out in self.live:
                self.live.add(s.stack)
            if isinstance(s, Loop):
                for k, (a, r) in enumerate(zip(s.args, s.results, strict=True)):
                    if a in self.live or r in self.live:
                        self.live.update((a, r, s.body.yields[k], s.inits[k]))
            if isinstance(s, If):
                for k, r in enumerate(s.results):
                    if r in self.live:
                        self.live.update((s.then.yields[k], s.other.yields[k]))
            for b in s.blocks:
                self.visit(b)
            if self.is_live(s):
                self.live.update(
                    s.bounds if isinstance(s, For) else (s.test,) if isinstance(s, DoWhile) else s.operands
                )
                if isinstance(s, Load):
                    self.live.add(s.array)


def pruned(p: LoopProgram) -> LoopProgram:
    """The program without what its results do not need."""
    known = Liveness(p)

    def clean(block: Block, keep: list[bool]) -> Block:
        made = []
        for s in block.statements:
            if known.is_live(s):
                if isinstance(s, Loop):
                    k = [a in known.live for a in s.args]
                    s.body = clean(s.body, k)
                    s.args, s.inits, s.results = (
                        [v for v, yes in zip(x, k, strict=True) if yes] for x in (s.args, s.inits, s.results)
                    )
                elif isinstance(s, If):
                    k = [r in known.live for r in s.results]
                    s.then, s.other = clean(s.then, k), clean(s.other, k)
                    s.results = [v for v, yes in zip(s.results, k, strict=True) if yes]
                made.append(s)
        return Block(made, [v for v, yes in zip(block.yields, keep, strict=True) if yes])

    p.body = clean(p.body, [True] * len(p.body.yields))
    return p


# --- the verifier ---


class Verifier:
    """Checks that each value is defined once and where it is visible, and that types agree."""

    def __init__(self, p: LoopProgram):
        self.seen = set()
        visible = set()
        for q in p.params:
            for v in (q,) if isinstance(q, Scalar) else (q, *q.shape):
                self.define(v, visible)
        self.block(p.body, visible, p.body.yields)
        self.must(all(a in p.params for a in p.outs), "a result is no parameter", None)

    def must(self, holds: bool, what: str, s) -> None:
        if not holds:
            where = f" (line {s.line}, {type(s).__name__})" if s is not None else ""
            raise LoopRefused(f"the loop program is not valid: {what}{where}")

    def define(self, v, visible: set, s=None) -> None:
        self.must(v not in self.seen, f"{v.name or 'a value'} is defined twice", s)
        self.seen.add(v)
        visible.add(v)

    def used(self, values, visible: set, s=None) -> None:
        for v in values:
            known = v.number is not None or v in visible
            self.must(known, f"{v.name or 'a value'} is used where it is not defined", s)

    def block(self, block: Block, visible: set, yields: list[Scalar]) -> None:
        for s in block.statements:
            self.statement(s, visible)
        self.used(yields, visible)

    def statement(self, s, visible: set) -> None:
        self.used(s.operands, visible, s)
        if isinstance(s, (Load, Store)):
            self.must(s.array in visible, f"the array {s.array.name} is not visible", s)
            self.must(len(s.index) == len(s.array.shape), "an index of another length", s)
            self.must(all(i.type == "i8" for i in s.index), "an index is no integer", s)
            self.must(
                (s.out if isinstance(s, Load) else s.value).type == s.array.type,
                "another type than the array's",
                s,
            )
        if isinstance(s, (Push, Pop)):
            self.must(
                (s.out if isinstance(s, Pop) else s.value).type == s.stack.type,
                "another type than the stack's",
                s,
            )
        if isinstance(s, Allocate):
            self.define(s.array, visible, s)
        if isinstance(s, Compute):
            self.must((s.op in COMPARISONS) <= (s.out.type == "b1"), "a comparison that is no truth value", s)
        for b in s.blocks:
            inner = set(visible)
            for v in s.entering:
                self.define(v, inner, s)
            self.block(b, inner, yielded(s, b))
            types = [[v.type for v in x] for x in (b.yields, s.results)]
            self.must(types[0] == types[1], "results of other types than what is handed on", s)
        if isinstance(s, Loop):
            types = [[v.type for v in x] for x in (s.args, s.inits, s.results)]
            self.must(types[0] == types[1] == types[2], "a carried value changes its type", s)
        for v in s.outs:
            self.define(v, visible, s)


def verified(p: LoopProgram) -> LoopProgram:
    Verifier(p)
    return p
