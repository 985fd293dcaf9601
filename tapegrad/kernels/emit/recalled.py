"""Inner loops of a data loop that are not run again in its backward sweep.

The sweep over a datum reads the carries of its inner loops. It would run them again. The forward pass
therefore stores these carries for all data, one step after another, with the final carry behind the last
step of each datum, as far as there is room. The sweep recalls what has been stored. It runs the loop of a
datum again if its last step has found no room. The numbers are the same.

On the tape, the numbers of the first step and of steps of each datum stand before the carries."""

from typing import Any

from ..graph.program import ProgramLoop
from .builder import BlockBuffer
from .llvm_builder import Builder
from .lower import LoweredProgram

INDEX = 4  # elements of a datum, of four bytes at least, for two whole numbers


class RecalledLoops(Builder):
    """The part of an emitter that stores and recalls the steps of inner loops.

    `low.recalled` holds, for each loop of a sweep that may be recalled, that of the forward pass."""

    low: LoweredProgram
    g: Any
    at_step: dict  # the number of the step of each loop that is written

    def value(self, i: int, env: dict) -> str:
        raise NotImplementedError

    def filled_with(self, out: BlockBuffer, shape: tuple, j: int, env: dict) -> None:
        raise NotImplementedError

    def room(self, n: int) -> str:
        """Return the number of steps of loop n that have a place on the tape."""
        return self(f"load i64, ptr {self(f'getelementptr i64, ptr %caps, i64 {2 * n + 1}')}, align 8")

    def begin_records(self, n: int) -> None:
        """Set the number of stored steps to zero before data loop n."""
        for body in self.low.bodies[n].inner:
            if body.number in self.low.recalled.values():
                name = f"%stored{body.number}"
                self.slots.append(f"  {name} = alloca i64, align 8")
                self.lines.append(f"  store i64 0, ptr {name}")

    def recorded(self, n: int) -> ProgramLoop | None:
        """Return the loop of the sweep that recalls loop n."""
        return next((self.low.bodies[r].loop for r, m in self.low.recalled.items() if m == n), None)

    def region_of(self, m: int) -> str:
        first = self(f"load i64, ptr {self(f'getelementptr i64, ptr %caps, i64 {2 * m}')}, align 8")
        return self(f"getelementptr {self.T}, ptr %tape, i64 {first}")

    def index_of(self, m: int, t: str) -> tuple[str, str]:
        """Return the places of the first step and of the number of steps of datum t."""
        first = self(f"getelementptr i64, ptr {self.region_of(m)}, i64 {self(f'mul i64 {t}, 2')}")
        return first, self(f"getelementptr i64, ptr {first}, i64 1")

    def record_place(self, m: int, loop: ProgramLoop, step: str) -> str:
        head = self(f"mul i64 %T, {INDEX}")
        at = self(f"add i64 {head}, {self(f'mul i64 {step}, {self.low.offsets(loop)[-1]}')}")
        return self(f"getelementptr {self.T}, ptr {self.region_of(m)}, i64 {at}")

    def record(self, m: int, loop: ProgramLoop, done: str, nodes: list[int], env: dict) -> str:
        """Store the carry, given by its nodes, of step `done` of this datum; return the step's number."""
        number = self(f"add i64 {self(f'load i64, ptr %stored{m}, align 8')}, {done}")
        last = self(f"sub i64 {self.room(m)}, 1")  # steps without room share a place
        at = self(f"select i1 {self(f'icmp slt i64 {number}, {last}')}, i64 {number}, i64 {last}")
        place = self.record_place(m, loop, at)
        for k, i in zip(self.low.offsets(loop), nodes, strict=False):
            self.stored_at(place, k, self.g.shape[i], i, env)
        return number

    def stored_at(self, place: str, k: int, shape: tuple, node: int, env: dict) -> None:
        """Store a node in component k of a stored step."""
        if shape:
            self.filled_with(BlockBuffer(place, k), shape, node, env)
        else:
            self.store(self.value(node, env), self(f"getelementptr {self.T}, ptr {place}, i64 {k}"))

    def end_record(self, m: int, trips: str, loop: ProgramLoop, env: dict) -> None:
        """Store the final carry of inner loop m, and where its steps are."""
        end = self.record(m, loop, trips, loop.final, env)
        begin = self(f"sub i64 {end}, {trips}")
        outer = next(b.number for b in self.low.outer if any(x.number == m for x in b.inner))
        for place, number in zip(self.index_of(m, self.at_step[outer]), (begin, trips), strict=True):
            self.lines.append(f"  store i64 {number}, ptr {place}, align 4")
        self.lines.append(f"  store i64 {self(f'add i64 {end}, 1')}, ptr %stored{m}, align 8")

    def recall(self, r: int, carry: list, k: int) -> None:
        """Recall loop r, with the places of its carry, if it is stored; else go on at label %again<k>."""
        m, body, line = self.low.recalled[r], self.low.bodies[r], self.lines.append
        loop = body.loop
        outer = next(b.number for b in self.low.outer if any(x.number == r for x in b.inner))
        begin, trips = [
            self(f"load i64, ptr {place}, align 4") for place in self.index_of(m, self.at_step[outer])
        ]
        end = self(f"add i64 {begin}, {trips}")
        fits = self(f"icmp slt i64 {end}, {self(f'sub i64 {self.room(m)}, 1')}")
        self.slots.append(f"  %base{r} = alloca ptr, align 8")
        line(f"  br i1 {fits}, label %recall{k}, label %again{k}\nrecall{k}:")
        last = self.record_place(m, loop, end)
        for at, to, c in zip(self.low.offsets(loop), carry, loop.carry, strict=False):
            shape = self.g.shape[c]
            if shape:
                self.filled_with(to, shape, c, {c: BlockBuffer(last, at)})
            else:
                self.store(self.read(self(f"getelementptr {self.T}, ptr {last}, i64 {at}")), to)
        line(f"  store i64 {trips}, ptr %trips{body.label}, align 8")
        line(f"  store ptr {self.record_place(m, loop, begin)}, ptr %base{r}, align 8")
        line(f"  br label %after{k}\nagain{k}:")
        first = self(f"load i64, ptr {self(f'getelementptr i64, ptr %caps, i64 {2 * r}')}, align 8")
        line(f"  store ptr {self(f'getelementptr {self.T}, ptr %tape, i64 {first}')}, ptr %base{r}, align 8")
