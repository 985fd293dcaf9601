"""Which values, arrays and stacks of a program depend on given parameters, and pass derivatives."""

from typing import Any

from .program import FLOATS, Allocate, Barrier, Block, Compute, If, Load, Loop, LoopProgram, Pop, Push, Store
from .scalars import passes


def active_set(p: LoopProgram, wrt: Any) -> set:
    """The active members of the program; `wrt` are active parameters."""
    active = set(wrt)
    size = -1
    while size != len(active):
        size = len(active)
        spread(p.body, active)
    return active


def relate(active: set, pairs: Any) -> None:
    """Mark the second of each pair where the first is active."""
    active.update([b for a, b in pairs if a in active and b.type in FLOATS])


def spread(block: Block, active: set) -> None:
    for s in block.statements:
        match s:
            case Compute() if passes(s.op):
                relate(active, [(a, s.out) for a in s.args])
            case Load():
                relate(active, [(s.array, s.out)])
            case Store():
                relate(active, [(s.value, s.array)])
            case Push():
                relate(active, [(s.value, s.stack)])
            case Pop():
                relate(active, [(s.stack, s.out)])
            case Loop():
                relate(active, zip(s.inits, s.args, strict=True))
                spread(s.body, active)
                relate(active, zip(s.body.yields, s.args, strict=True))
                relate(active, zip([*s.args, *s.inits], [*s.results, *s.results], strict=True))
                relate(active, zip(s.body.yields, s.results, strict=True))
            case If():
                for b in s.blocks:
                    spread(b, active)
                    relate(active, zip(b.yields, s.results, strict=True))


def is_touched(s: Any, active: set) -> bool:
    """Does the adjoint of this statement do anything?"""
    if isinstance(s, (Store, Allocate, Push)):
        return (s.stack if isinstance(s, Push) else s.array) in active
    if isinstance(s, Barrier):
        return True
    return any(v in active for v in s.outs) or any(
        is_touched(t, active) for b in s.blocks for t in b.statements
    )
