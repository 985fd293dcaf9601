"""The part of the CUDA emitter that stores the carries of steps and loads them; `cuda` describes the tape.

If the tape has no room for all carries, only every c-th is stored. The backward sweep then recomputes the c
steps of a segment when it reaches the last of them. It stores them in c further rows after the loop's."""

from ..graph.program import ProgramLoop
from .builder import BlockBuffer, TextBuilder
from .cuda_builder import WARP


class TapeCode(TextBuilder):
    """A mixin of the emitter's `Text`."""

    def taped(self, n: int, t: str) -> str:
        """Return the number under which step t of loop n is stored; a step without room shares the last
        number."""
        if not (self.low.overruns and n in self.low.counted):
            return t
        return self.let(f"{t} < room{n} ? {t} : room{n} - 1", "i64")

    def place(self, n: int, loop: ProgramLoop, t: str, k: int) -> str:
        return f"mine[(start{n} + {t} * {self.low.offsets(loop)[-1]}) * {WARP} + {k * WARP}]"

    def block_on_tape(self, n: int, loop: ProgramLoop, t: str, k: int) -> BlockBuffer:
        name = f"b{next(self.fresh)}"
        self.line(f"real* const {name} = &{self.place(n, loop, t, k)};")
        return BlockBuffer(name)

    def stored_at(self, n: int, loop: ProgramLoop, t: str, k: int) -> str:
        """Return the place of the stored carry of step t: its own, or one in the recomputed segment."""
        if self.every == 1:
            return self.place(n, loop, t, k)
        return f"mine[(segment{n} + {t} % {self.every} * {len(loop.carry)}) * {WARP} + {k * WARP}]"

    def store(self, n: int, loop: ProgramLoop, t: str, carry: list, env: dict) -> None:
        if self.every > 1:
            self.line(f"if ({t} % {self.every} == 0) {{")
            t = f"({t} / {self.every})"
        for k, c, name in zip(self.low.offsets(loop)[:-1], loop.carry, carry, strict=True):
            if self.g.shape[c]:
                self.filled_with(self.block_on_tape(n, loop, t, k), self.g.shape[c], c, env)
            else:
                self.line(f"{self.place(n, loop, t, k)} = {name};")
        if self.every > 1:
            self.line("}")

    def segment(self, m: int, outer: dict, u: str, t: str) -> None:
        """At the last step t of a segment, recompute its steps from the stored carry."""
        body, env = self.low.bodies[m], dict(outer)
        loop, c = body.loop, self.every
        v, carry = f"v{next(self.fresh)}", [f"r{next(self.fresh)}" for _ in body.loop.carry]
        self.line(f"if ({u} == 0 || ({t} + 1) % {c} == 0) {{")
        for k, name in enumerate(carry):
            self.line(f"real {name} = {self.place(m, loop, f'({t} / {c})', k)};")
        self.line(f"for (i64 {v} = {t} / {c} * {c}; ; ++{v}) {{")
        for k, name in enumerate(carry):
            self.line(f"{self.stored_at(m, loop, v, k)} = {name};")
        self.line(f"if ({v} == {t}) break;")
        env.update(zip(loop.carry, carry, strict=True))
        for _, _, load in self.loads(m, v, env):
            load()
        self.region(body.sections, body.inner, env)
        following = [self.let(self.value(x, env)) for x in loop.next]
        for name, value in zip(carry, following, strict=True):
            self.line(f"{name} = {value};")
        self.line("}")
        self.line("}")
