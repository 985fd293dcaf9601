"""The traversal of a lowered program that both emitters share: sections, loops, instructions, blocks, types.

An emitter is a `ProgramWalk` and a builder. It defines how to write an instruction (`instruction`), a loop
(`loop`), a routine and its call (`routine_text`, `call_routine`) and a constant block (`constant_text`). It
also defines the layout of memory: how an input is read (`input`, `step_total`) and an output written
(`store_output`)."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ..graph.blocks import BLOCK_OPS, element_total
from .block_code import BlockCode
from .builder import Affine, BlockAccess, BlockBuffer
from .lower import Body

SAME = nullcontext()


class ProgramWalk(BlockCode):
    typed_by: tuple  # attributes of a builder that depend on its type
    sigil = ""  # precedes the name of a parameter

    def typed(self, wide: bool) -> AbstractContextManager:
        """Inside, this is a builder of float64, or of the program's dtype."""
        bits = 64 if wide else self.own
        return SAME if bits == self.bits else self.of(self.builder(bits), self.typed_by)

    @contextmanager
    def of(self, other, names: tuple) -> Iterator[None]:
        """Inside, these attributes are those of another builder."""
        before = {name: getattr(self, name) for name in names}
        self.__dict__.update({name: getattr(other, name) for name in names})
        yield
        self.__dict__.update(before)

    def load(self, buffer: BlockBuffer, at: Affine) -> str:
        with self.typed(buffer.wide):
            return super().load(buffer, at)

    def load_at(self, buffer: BlockBuffer, at: str) -> str:
        with self.typed(buffer.wide):
            return super().load_at(buffer, at)

    def put(self, buffer: BlockBuffer, at: Affine, value: str) -> None:
        with self.typed(buffer.wide):
            super().put(buffer, at, value)

    def value(self, i: int, env: dict) -> str:
        op = self.g.op[i]
        if op == "const":
            return self.constant(self.g.args[i][0])
        if op == "bool":
            return self.truth(self.g.args[i][0])
        return env[i]

    def constant(self, x: float) -> str:
        """Return a number of the user's function or of a derivative of it."""
        return self.c(x)

    def region(self, sections: list, inner: list[Body], env: dict) -> None:
        """Write straight code with loops in between."""
        for k, code in enumerate(sections):
            self.straight(code, env)
            if k < len(inner):
                self.loop(inner[k].number, env)

    def straight(self, code: list, env: dict) -> None:
        for i, op, args in code:
            if self.g.shape[i] or op in BLOCK_OPS:
                self.block(i, op, args, env)
            else:
                self.straight_scalar([(i, op, args)], env)

    def straight_scalar(self, code: list, env: dict) -> None:
        for i, op, args in code:
            with self.typed(i in self.low.wide):
                env[i] = self.instruction(op, args, [self.value(j, env) for j in args])

    def load_inputs(self, env: dict) -> None:
        g, used = self.g, self.low.used()
        for node, group, k in self.low.parameters():
            if g.shape[node]:
                env[node] = self.home((None, node))
                with self.range(0, element_total(g.shape[node])) as r:
                    self.put(env[node], r, self.input(f"in{group}", r + k))
            else:
                env[node] = self.input(f"in{group}", k)
        for wide in (False, True):
            count = g.input("N", 0, int(wide))
            if count in used:
                with self.typed(wide):
                    env[count] = self.step_total()

    def store_outputs(self, env: dict) -> None:
        for group, nodes in enumerate(self.low.program.groups):
            row = 0
            for o in nodes:
                with self.typed(self.low.precise is not None and self.low.precise[group]):
                    for k, value in self.row_by_row(o, env) if self.g.shape[o] else [(0, self.value(o, env))]:
                        self.store_output(f"out{group}", k + row, value)
                row += element_total(self.g.shape[o])

    def constants(self, j: int) -> BlockBuffer:
        """Return a constant block as a global array."""
        wide = j in self.low.wide
        if j not in self.globals:
            with self.typed(wide):
                self.globals[j] = self.constant_text(self.g.numbers(j).ravel(), len(self.globals))
        return BlockBuffer(self.globals[j][0], constant=True, wide=wide)

    def routine(self, op: str, code: Callable, accesses: list[BlockAccess], sizes: tuple) -> None:
        """Call the function that `code` writes; the first access is the result."""
        key = op, sizes, tuple([(a.strides, a.buffer.constant) for a in accesses]), self.bits
        if key not in self.routines:
            b = self.builder(self.bits)
            given = [
                BlockAccess(BlockBuffer(f"{self.sigil}p{n}", 0, a.buffer.constant), 0, a.strides)
                for n, a in enumerate(accesses)
            ]
            code(b, *given, *sizes)
            self.routines[key] = self.routine_text(f"{op}{len(self.routines)}", b, len(accesses))
        self.call_routine(self.routines[key][0], accesses)
