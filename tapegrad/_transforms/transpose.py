"""A rule for one mode as a rule for the other: what is linear in its first argument is recorded, and pulled
back through."""

from typing import Any

from .._core import reverse as reverse
from .._core.errors import ArgumentError, ShapeError
from .._core.typing import AnyFunction, AnyList, AnyTuple, Params
from ..ops.declare import shape
from .call import constant_like, lowered_leaf


def checked_terms(name: str, terms: Any, args: AnyTuple) -> AnyTuple:
    terms = tuple(terms) if isinstance(terms, (tuple, list)) else (terms,)
    if len(terms) != len(args):
        raise ArgumentError(f"rule({name}): vjp returned {len(terms)} cotangents for {len(args)} arguments")
    for n, (c, a) in enumerate(zip(terms, args, strict=True)):
        if c is not None and shape(c) != shape(a):
            raise ShapeError(
                f"rule({name}): vjp returned shape {shape(c)} for argument {n} of shape {shape(a)}"
            )
    return terms  # type: ignore[no-any-return]


def transposed_vjp(vjp: AnyFunction, name: str, t: AnyTuple, out: Any, args: AnyTuple, params: Params) -> Any:
    """J t from w -> J^T w, which is linear in w: record it and pull t back through it."""
    outs = out if isinstance(out, tuple) else (out,)
    tape = reverse.Tape.at_a_point()
    ws = [tape.watch(constant_like(o, 0)) for o in outs]
    terms = checked_terms(
        name, vjp(tuple(ws) if isinstance(out, tuple) else ws[0], out, *args, **params), args
    )
    seeds = []
    for c, d in zip(terms, t, strict=True):
        _, slot = lowered_leaf(c, tape)
        if d is not None and slot is not None:
            seeds.append((slot, d))
    tape.close()
    G = reverse.pull(tape, seeds) if seeds else []
    tangents = tuple(
        [
            G[w._slot] if w._slot < len(G) and G[w._slot] is not None else constant_like(o, 0)
            for w, o in zip(ws, outs, strict=True)
        ]
    )
    return tangents if isinstance(out, tuple) else tangents[0]


def transposed_jvp(
    jvp: AnyFunction, g: Any, out: Any, need: AnyTuple, args: AnyTuple, params: Params
) -> AnyList:
    """J^T g from t -> J t, likewise."""
    tape = reverse.Tape.at_a_point()
    ts = [tape.watch(constant_like(a, 0)) if n else None for a, n in zip(args, need, strict=True)]
    d = jvp(tuple(ts), out, *args, **params)
    pairs = zip(d if isinstance(d, tuple) else (d,), g if isinstance(g, tuple) else (g,), strict=True)
    seeds = [(slot, c) for (_, slot), c in [(lowered_leaf(v, tape), c) for v, c in pairs] if slot is not None]
    tape.close()
    G = reverse.pull(tape, seeds) if seeds else []
    return [None if t is None or t._slot >= len(G) else G[t._slot] for t in ts]
