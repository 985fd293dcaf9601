"""The loop program, run slowly and literally: the meaning that executors are compared with.

It checks every index.  Values may be any numbers that NumPy's functions take, complex ones included."""

import operator
from collections.abc import Generator
from typing import Any

import numpy as np

from .._core.errors import KernelError
from .program import (
    COMPARISONS,
    Accumulate,
    Allocate,
    Barrier,
    Block,
    Compute,
    DoWhile,
    For,
    If,
    Load,
    LoopArray,
    LoopProgram,
    Pop,
    Push,
    Scalar,
    Store,
)
from .scalars import operation

INTEGERS: dict[str, Any] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "mod": operator.mod, "min": min,
    "max": max, "neg": operator.neg, "shl": operator.lshift, "shr": operator.rshift, "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor, "not": operator.not_, "select": lambda c, a, b: a if c else b, "abs": abs,
}  # fmt: skip
COMPARED = {k: getattr(operator, k) for k in COMPARISONS}


def computed(op: str, kind: str, x: list):
    if op in COMPARED:
        return COMPARED[op](*[np.real(v) for v in x])
    if op == "cast":
        return (
            bool(x[0])
            if kind == "b1"
            else int(np.real(x[0]))
            if kind == "i8"
            else x[0]
            if isinstance(x[0], complex)
            else float(x[0])
        )
    if op == "isnan":
        return bool(np.isnan(x[0]))
    if kind in ("i8", "b1") or op in ("select",):
        y = INTEGERS[op](*[int(v) for v in x] if kind == "i8" else x)
        return (y + 2**63) % 2**64 - 2**63 if kind == "i8" else y  # as machine integers wrap
    if op == "primal":
        return x[0]
    if op == "tanh_slope":  # its primitive takes tanh(x), too
        return 1.0 / np.cosh(x[0]) ** 2
    if op == "times0":
        return x[0] * x[1] if x[0] != 0 else 0.0
    return x[0] / x[1] if op == "div" else operation(op).prim.run(*x)


class Interpreter:
    """One run of a program: `env` holds scalars, arrays and stacks."""

    def __init__(self, p: LoopProgram, args):
        self.env: dict = {}
        for q, x in zip(p.params, args, strict=True):
            self.env[q] = x
            if isinstance(q, LoopArray):
                self.env.update(zip(q.shape, x.shape, strict=True))
        self.p = p
        self.steps = self.block(p.body)

    def results(self) -> list:
        """Run to the end."""
        with np.errstate(all="ignore"):
            while True:
                try:
                    next(self.steps)
                except StopIteration as end:
                    return [*[self.env[a] for a in self.p.outs], *end.value]

    def __getitem__(self, v: Scalar):
        return v.number if v.number is not None else self.env[v]

    def block(self, block: Block) -> Generator[Any, None, list]:
        """A generator that stops at each barrier, and returns what the block yields."""
        for s in block.statements:
            match s:
                case Barrier():
                    yield s
                case For() | DoWhile():
                    yield from self.loop(s)
                case If():
                    found = yield from self.block(s.then if self[s.test] else s.other)
                    self.env.update(zip(s.results, found, strict=True))
                case _:
                    self.statement(s)
        return [self[y] for y in block.yields]

    def place(self, s) -> tuple:
        at = tuple([int(self[i]) for i in s.index])
        if any(not 0 <= i < n for i, n in zip(at, self.env[s.array].shape, strict=True)):
            raise KernelError(
                f"line {s.line}: index {at} is outside of {s.array.name or 'an array'} of shape "
                f"{self.env[s.array].shape}"
            )
        return at

    def loop(self, s) -> Generator[Any, None, None]:
        values = [self[v] for v in s.inits]
        trips = iter(range(*[self[b] for b in s.bounds])) if isinstance(s, For) else None
        while True:
            if trips is not None:
                i = next(trips, None)
                if i is None:
                    break
                self.env[s.index] = i
            self.env.update(zip(s.args, values, strict=True))
            values = yield from self.block(s.body)
            if trips is None and not self[s.test]:
                break
        self.env.update(zip(s.results, values, strict=True))

    def statement(self, s) -> None:
        env = self.env
        match s:
            case Compute():
                env[s.out] = computed(s.op, s.out.type, [self[a] for a in s.args])
            case Load():
                env[s.out] = env[s.array][self.place(s)]
            case Accumulate():
                env[s.array][self.place(s)] += self[s.value]
            case Store():
                env[s.array][self.place(s)] = self[s.value]
            case Push():
                env.setdefault(s.stack, []).append(self[s.value])
            case Pop():
                env[s.out] = env[s.stack].pop()
            case Allocate():
                kinds = {env[q].dtype for q in env if isinstance(q, LoopArray) and q.type in ("f8", "f4")}
                wide = complex if any(k.kind == "c" for k in kinds) else s.array.type
                env[s.array] = np.zeros(
                    [self[n] for n in s.array.shape], wide if s.array.type in ("f8", "f4") else s.array.type
                )


def interpreted(p: LoopProgram, args) -> list:
    """The results of a program for these arguments; its arrays are written in place."""
    return Interpreter(p, args).results()
