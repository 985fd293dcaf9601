"""Writes loop programs: statements into blocks, and variables that are assigned several times into single
assignment."""

from collections.abc import Callable
from typing import Any

from .program import (
    COMPARISONS,
    FIELDS,
    FLOATS,
    Accumulate,
    Allocate,
    Block,
    Compute,
    DoWhile,
    For,
    If,
    Load,
    LoopArray,
    LoopRefused,
    Pop,
    Push,
    Scalar,
    Statement,
    Store,
    literal,
)

FOLDED = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}


class StatementWriter:
    """Appends statements to the block that is open."""

    def __init__(self, block: Block | None = None):
        self.block, self.line = block or Block(), 0

    def put(self, s: Statement) -> None:
        s.line = s.line or self.line
        self.block.statements.append(s)

    def compute(self, op: str, *args: Scalar, type: str | None = None) -> Scalar:
        type = type or ("b1" if op in COMPARISONS else args[-1].type)
        if type == "i8" and len(args) == 2:
            a, b = args[0].number, args[1].number
            if a is not None and b is not None and op in FOLDED:
                return literal(FOLDED[op](a, b), type)
            if (b == 0 and op in ("add", "sub")) or (b == 1 and op == "mul"):
                return args[0]
        out = Scalar(type)
        self.put(Compute(out, op, args))
        return out

    def cast(self, v: Scalar, type: str) -> Scalar:
        if v.type == type:
            return v
        if v.number is not None and (type in FLOATS or v.type != "f8"):
            return literal(v.number, type)
        return self.compute("cast", v, type=type)

    def load(self, array: LoopArray, index) -> Scalar:
        out = Scalar(array.type)
        self.put(Load(out, array, tuple(index)))
        return out

    def store(self, array: LoopArray, index, value: Scalar) -> None:
        self.put(Store(array, tuple(index), value))

    def accumulate(self, array: LoopArray, index, value: Scalar) -> None:
        self.put(Accumulate(array, tuple(index), value))

    def atomic(self, op: str, array: LoopArray, index, value: Scalar) -> None:
        """Add or subtract a value, or store it if it compares so to the old content.

        No other thread comes between."""
        at, old = tuple(index), Scalar(array.type)
        if op in ("add", "sub"):
            self.accumulate(array, at, value if op == "add" else self.compute("neg", value))
            return
        self.put(Load(old, array, at, atomic=True))
        new = self.compute("select", self.compute(op, value, old), value, old, type=array.type)
        self.put(Store(array, at, new, atomic=True))

    def push(self, stack, value: Scalar) -> None:
        self.put(Push(stack, value))

    def pop(self, stack) -> Scalar:
        out = Scalar(stack.type)
        self.put(Pop(out, stack))
        return out

    def allocate(
        self, type: str, shape, name: str = "", shared: bool = False, zeroed: bool = True
    ) -> LoopArray:
        array = LoopArray(type, shape, name, shared)
        self.put(Allocate(array, zeroed))
        return array

    def within(self, block: Block, f: Callable, *x):
        """Call f while this block is open."""
        outer, self.block = self.block, block
        try:
            return f(*x)
        finally:
            self.block = outer

    def count(self, stop: Scalar, body: Callable, inits=()) -> list[Scalar]:
        """A loop over range(stop); body(index, *args) returns what is handed on."""
        index, args, block = Scalar("i8"), [Scalar(v.type) for v in inits], Block()
        block.yields = list(self.within(block, body, index, *args) or ())
        results = [Scalar(v.type) for v in inits]
        self.put(For(args, list(inits), block, results, index, (ZERO, stop, ONE)))
        return results

    def each(self, shape: tuple, body: Callable, inits=()) -> list[Scalar]:
        """Loops over all indices of this shape; body(index, *args) returns what is handed on."""

        def axis(index: tuple, *args: Scalar) -> list[Scalar]:
            if len(index) == len(shape):
                return body(index, *args) or []
            return self.count(shape[len(index)], lambda i, *more: axis((*index, i), *more), args)

        return axis((), *inits)

    def trips(self, start: Scalar, stop: Scalar, step: Scalar) -> Scalar:
        """The number of trips of range(start, stop, step)."""
        if step.number is not None and abs(step.number) == 1:
            span = self.compute("sub", *((stop, start) if step.number == 1 else (start, stop)))
        else:
            # -((start - stop) // step) rounds up
            span = self.compute("neg", self.compute("floordiv", self.compute("sub", start, stop), step))
        return self.compute("max", span, ZERO)

    def copy(self, target: LoopArray, source: LoopArray, at: tuple = (), of: tuple = ()) -> None:
        """target[at] = source[of], for all further indices."""
        self.each(
            source.shape[len(of) :],
            lambda index: self.store(target, (*at, *index), self.load(source, (*of, *index))),
        )


ZERO, ONE = literal(0, "i8"), literal(1, "i8")


class Rebound(Exception):
    """A name stands for several arrays, which differ between trips or branches."""


class Unmergeable:
    """What a name is after a branch or a loop that leaves different objects."""

    def __init__(self, *members):
        self.members: tuple = tuple(
            [n for m in members for n in (m.members if isinstance(m, Unmergeable) else (m,))]
        )


class NameScope:
    """The names of a block; in a loop, a name that is read becomes an argument."""

    def __init__(self, parent: "NameScope | None", changes=None):
        self.parent, self.is_loop = parent, changes is not None
        self.changes = changes or ()  # the names that a loop assigns
        self.names: dict[str, Any] = {}
        self.assigned: dict[str, None] = {}
        self.args: dict[str, Scalar] = {}
        self.read: dict[str, Any] = {}  # fixed objects that were read before they were assigned here

    def find(self, name: str):
        """The object of this name, or None."""
        if name in self.names:
            return self.names[name]
        if self.parent is None:
            return None
        found = self.parent.find(name)
        if self.is_loop and found is not None:
            if name not in self.changes:
                return found
            if isinstance(found, Scalar):
                found = self.args[name] = Scalar(found.type, name)
            else:
                self.read[name] = found
            self.names[name] = found
        return found


class ProgramWriter(StatementWriter):
    """The same, with names that may be assigned in branches and loops."""

    def __init__(self) -> None:
        super().__init__()
        self.scope = NameScope(None)
        self.same = {}  # argument of a loop that never changes -> what it is

    def scopes(self) -> list[NameScope]:
        """The scopes that are open."""
        found = [self.scope]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found

    def get(self, name: str):
        found = self.scope.find(name)
        if isinstance(found, Unmergeable):
            if all(hasattr(m, "origins") for m in found.members):
                raise Rebound(frozenset().union(*[m.origins for m in found.members]))
            raise LoopRefused(f"line {self.line}: {name} stands for different kinds of objects")
        if found is None:
            raise LoopRefused(f"line {self.line}: {name} is not defined here")
        return found

    def set(self, name: str, value) -> None:
        self.scope.names[name] = value
        self.scope.assigned[name] = None

    def scoped(self, block: Block, scope: NameScope, f: Callable):
        outer, self.scope = self.scope, scope
        try:
            return self.within(block, f)
        finally:
            self.scope = outer

    def branch(self, test: Scalar, then: Callable, other: Callable) -> None:
        if test.number is not None:
            (then if test.number else other)()
            return
        outer, sides = self.scope, []
        for f in (then, other):
            block, scope = Block(), NameScope(self.scope)
            self.scoped(block, scope, f)
            sides.append((block, scope))
        s = If(test, sides[0][0], sides[1][0], [])
        self.put(s)
        for name in {**sides[0][1].assigned, **sides[1][1].assigned}:
            a, b = [scope.names.get(name, outer.find(name)) for _, scope in sides]
            joined = self.joined(a, b)
            if joined is None:
                a, b = (literal(0, v.type) if u is None else u for u, v in ((a, b), (b, a)))
                joined = Scalar(a.type, name)
                for (block, _), v in zip(sides, (a, b), strict=True):
                    block.yields.append(v)
                s.results.append(joined)
            self.set(name, joined)

    def joined(self, a, b):
        """One object for both, or None where a result is needed."""
        if a is b:
            return a
        values = [v for v in (a, b) if v is not None]
        if all(isinstance(v, Scalar) for v in values):
            if len(values) == 2 and a.type != b.type:
                return Unmergeable(a, b)
            return a if len(values) == 2 and a.number is not None and a.number == b.number else None
        if len(values) == 1:
            return values[0]
        return a if type(a) is type(b) and not isinstance(a, Scalar) and a == b else Unmergeable(a, b)

    def loop(self, body: Callable, changes, bounds: tuple | None = None) -> None:
        """A loop over range(*bounds), body(index); or body() returns whether to go on.

        `changes`: the names that it may assign."""
        block, scope, outer = Block(), NameScope(self.scope, changes), self.scope
        index = Scalar("i8")
        test = self.scoped(block, scope, (lambda: body(index)) if bounds is not None else body)
        s = For([], [], block, [], index, bounds) if bounds is not None else DoWhile([], [], block, [], test)
        self.put(s)
        for name, arg in scope.args.items():
            if name not in scope.assigned or scope.names[name] is arg:
                self.same[arg] = outer.find(name)
        for name in scope.assigned:
            now, before = scope.names[name], outer.find(name)
            if isinstance(now, Scalar) and (before is None or isinstance(before, Scalar)):
                if scope.args.get(name) is now:
                    continue
                if before is not None and before.type != now.type:
                    raise LoopRefused(f"line {self.line}: {name} changes its type in a loop")
                s.args.append(scope.args.get(name) or Scalar(now.type, name))
                s.inits.append(before or literal(0, now.type))
                block.yields.append(now)
                s.results.append(Scalar(now.type, name))
                self.set(name, s.results[-1])
            else:
                joined = now if before is None else self.joined(before, now)
                if isinstance(joined, Unmergeable) and name in scope.read:
                    self.scope.names[name] = joined
                    self.get(name)  # raises
                self.set(name, joined)

    def resolve(self, block: Block) -> Block:
        """Replace arguments that never change."""

        def m(v):
            while v in self.same:
                v = self.same[v]
            return v

        def clean(block: Block) -> None:
            block.yields = [m(v) for v in block.yields]
            for s in block.statements:
                for word in FIELDS[type(s)]:
                    if word.isalpha():  # what it reads
                        x = getattr(s, word)
                        new = type(x)([m(v) for v in x]) if isinstance(x, (tuple, list)) else m(x)
                        setattr(s, word, new)
                if isinstance(s, Allocate):
                    s.array.shape = tuple([m(v) for v in s.array.shape])
                for b in s.blocks:
                    clean(b)

        clean(block)
        return block
