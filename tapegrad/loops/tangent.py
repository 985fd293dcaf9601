"""Forward mode: a program with tangents beside its values."""

from .program import (
    FLOATS,
    Allocate,
    Block,
    Compute,
    DoWhile,
    For,
    If,
    Load,
    LoopArray,
    LoopProgram,
    LoopStack,
    Pop,
    Push,
    Scalar,
    Store,
    copied,
    literal,
    pruned,
    stacks_of,
)
from .saved import active_set
from .scalars import BOUNDED, partial, write
from .writer import StatementWriter


def tangent(p: LoopProgram, wrt: tuple) -> LoopProgram:
    """The program of the tangents of p's results, for tangents of the parameters with these numbers.

    Its parameters are those of p, then the tangents of all float arrays that are active, then of the scalars.
    `derived["shadows"]` lists the active arrays."""
    return TangentWriter(p, wrt).made


class TangentWriter:
    def __init__(self, p: LoopProgram, wrt: tuple):
        self.active = active_set(p, [p.params[k] for k in wrt])
        self.w = StatementWriter()
        self.new: dict = {}
        self.t: dict = {}  # value, array or stack -> its tangent
        for q in p.params:
            self.new[q] = Scalar(q.type, q.name) if isinstance(q, Scalar) else None
        for a in p.arrays:
            shape = [Scalar("i8") for _ in a.shape]
            self.new.update(zip(a.shape, shape, strict=True))
            self.new[a] = LoopArray(a.type, shape, a.name)
        shadows = [a for a in p.arrays if a in self.active]
        for a in shadows:
            self.t[a] = LoopArray(a.type, [Scalar("i8") for _ in a.shape], a.name + "_dot")
        scalars = [p.params[k] for k in wrt if isinstance(p.params[k], Scalar)]
        for v in scalars:
            self.t[v] = Scalar(v.type, v.name + "_dot")
        body = self.block(p.body)
        body.yields = [self.of(y) for y in p.body.yields if y.type in FLOATS]
        params = [self.new[q] for q in p.params] + [self.t[a] for a in shadows] + [self.t[v] for v in scalars]
        outs = [self.t[a] for a in p.outs if a in self.active]
        derived = {"shadows": shadows, "of": p, "twins": {self.t[x]: x for x in stacks_of(p) if x in self.t}}
        self.made = pruned(LoopProgram(p.name + "_tangent", params, body, outs, p.file, derived, p.launch))

    def of(self, v: Scalar) -> Scalar:
        return self.t[v] if v in self.t else literal(0, v.type)

    def m(self, v):
        return self.new.get(v, v)

    def block(self, block: Block) -> Block:
        made = Block()
        self.w.within(made, self.statements, block)
        made.yields = [self.m(y) for y in block.yields]
        return made

    def doubled(self, owner, block: Block) -> Block:
        """A block of a loop or branch; what it yields has its tangents after it."""
        made = self.block(block)
        made.yields += [
            self.of(y) for y, r in zip(block.yields, owner.results, strict=True) if r in self.active
        ]
        return made

    def statements(self, block: Block) -> None:
        for s in block.statements:
            self.statement(s)

    def statement(self, s) -> None:
        w, on = self.w, self.active
        w.line = s.line
        if isinstance(s, (For, DoWhile)):
            for a, r in zip(s.args, s.results, strict=True):
                if r in on:
                    self.t[a], self.t[r] = Scalar(a.type), Scalar(a.type)
        elif isinstance(s, If):
            for r in s.results:
                if r in on:
                    self.t[r] = Scalar(r.type)
        elif isinstance(s, (Push, Pop)) and s.stack in on and s.stack not in self.t:
            self.t[s.stack] = LoopStack(s.stack.type)
        c = copied(s, self.new, self.doubled)
        w.put(c)
        match s:
            case Compute() if s.out in on:
                self.t[s.out] = self.moved(s)
            case Load() if s.out in on:
                self.t[s.out] = w.load(self.t[s.array], c.index)
            case Store() if s.array in on:
                w.put(type(c)(self.t[s.array], c.index, self.of(s.value)))
            case Push() if s.stack in on:
                w.push(self.t[s.stack], self.of(s.value))
            case Pop() if s.stack in on:
                self.t[s.out] = w.pop(self.t[s.stack])
            case Allocate() if s.array in on:
                self.t[s.array] = w.allocate(s.array.type, c.array.shape, "", s.array.shared)
            case For() | DoWhile():
                more = [k for k, r in enumerate(s.results) if r in on]
                c.args += [self.t[s.args[k]] for k in more]
                c.inits += [self.of(s.inits[k]) for k in more]
                c.results += [self.t[s.results[k]] for k in more]
            case If():
                c.results += [self.t[r] for r in s.results if r in on]

    def moved(self, s: Compute) -> Scalar:
        """The tangent of a computed value."""
        w, kind = self.w, s.out.type
        if s.op == "cast":
            return w.cast(self.of(s.args[0]), kind)
        moving = [k for k, a in enumerate(s.args) if a in self.active]
        op = "mul" if s.op in BOUNDED else "times0"
        given, total = (self.new[s.out], *[self.m(a) for a in s.args]), None
        for k in moving:
            terms = [self.of(s.args[k]), write(w, partial(s.op, k), given, kind)]
            if s.op == "times0" and k == 1:  # its first operand decides
                terms.reverse()
            term = w.compute(op, *terms)
            total = term if total is None else w.compute("add", total, term)
        return total or literal(0, kind)
