"""Which indices are known to lie within their arrays, and which are checked before a loop instead of in
it."""

from collections.abc import Iterable

from ..kernels.emit.builder import Affine
from .program import Allocate, Block, Compute, For, LayerOf, Load, LoopProgram, Scalar, Store


class AffineForms:
    """Integers as sums of others, learned from the statements that compute them."""

    def __init__(self, statements: Iterable = ()):
        self.forms: dict[Scalar, Affine] = {}
        for s in statements:
            self.learn(s)

    def of(self, v: Scalar) -> Affine:
        return self.forms.get(v, Affine(0, {v: 1})) if v.number is None else Affine(int(v.number))

    def learn(self, s) -> None:
        if not isinstance(s, Compute) or s.out.type != "i8" or s.op not in ("add", "sub", "mul"):
            return
        a, b = map(self.of, s.args)
        if s.op != "mul":
            self.forms[s.out] = a + b if s.op == "add" else a - b
        elif not a.terms or not b.terms:
            self.forms[s.out] = a * b.const if not b.terms else b * a.const

    def apart(self, i: tuple, j: tuple) -> list[int | None]:
        """The differences of two indices, as far as they are known numbers."""
        found = [self.of(v) - self.of(w) for v, w in zip(i, j, strict=True)]
        return [None if d.terms else d.const for d in found]


class CheckedAccesses(AffineForms):
    """An index that is affine in the index of the loop around it, in an access of each trip, lies between its
    first and its last value. These are checked before the loop."""

    def __init__(self, p: LoopProgram):
        super().__init__()
        self.inside = {}  # value or array -> how many loops are around its definition
        self.checks: dict[For, list] = {}
        self.safe = set()  # (access, axis)
        self.visit(p.body, None, 0)

    def visit(self, block: Block, loop: For | None, depth: int) -> None:
        for s in block.statements:
            for o in (*s.outs, *([s.array] if isinstance(s, (Allocate, LayerOf)) else [])):
                self.inside[o] = depth
            self.learn(s)
            if isinstance(s, (Load, Store)) and loop is not None:
                for k, i in enumerate(s.index):
                    self.consider(s, k, self.of(i), loop, depth)
            for b in s.blocks:
                for v in s.entering:
                    self.inside[v] = depth + 1
                self.visit(b, s if isinstance(s, For) else None, depth + 1)

    def consider(self, s, k: int, at: Affine, loop: For, depth: int) -> None:
        factor = at.terms.get(loop.index, 0)
        fixed = Affine(at.const, {v: c for v, c in at.terms.items() if v is not loop.index})
        n = s.array.shape[k]
        if (
            all(self.inside.get(v, 0) < depth for v in (*fixed.terms, *([n] if n.number is None else [])))
            and self.inside.get(s.array, 0) < depth
        ):
            self.safe.add((s, k))
            key = (
                id(s.array),
                k,
                factor,
                fixed.const,
                tuple(sorted((id(v), c) for v, c in fixed.terms.items())),
            )
            found = self.checks.setdefault(loop, [])
            if key not in [other for other, *_ in found]:
                found.append((key, s, k, factor, fixed))

    def before(self, loop: For) -> list:
        return [check for _, *check in self.checks.get(loop, [])]
