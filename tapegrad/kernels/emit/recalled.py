"""Inner loops of a data loop that are not run again in its backward sweep.

The sweep over a datum reads the carries of its inner loops. It would run them again. So the forward pass puts
these carries on a stack, as far as there is room: those of the steps of a datum, then the final one with the
number of steps. The sweep takes them from the stack, the last datum first. It runs the loop of a
datum again if its final carry has found no room. The numbers are the same."""

from ..graph.program import ProgramLoop
from .builder import BlockBuffer
from .llvm_builder import Builder
from .walk import ProgramWalk


class RecalledLoops(ProgramWalk, Builder):
    """The part of an emitter that stores and recalls the steps of inner loops.

    `low.recalled` holds, for each loop of a sweep that may be recalled, that of the forward pass."""

    def number_at(self, place: str) -> str:
        return self(f"load i64, ptr {place}, align 8")

    def room(self, n: int) -> str:
        """Return the number of steps of loop n that have a place on the tape."""
        return self.number_at(self(f"getelementptr i64, ptr %caps, i64 {2 * n + 1}"))

    def region_of(self, n: int) -> str:
        first = self.number_at(self(f"getelementptr i64, ptr %caps, i64 {2 * n}"))
        return self(f"getelementptr {self.T}, ptr %tape, i64 {first}")

    def begin_records(self, n: int) -> None:
        """Empty the stacks of the loops in loop n."""
        for body in self.low.bodies[n].inner:
            if body.number in self.low.recalled.values():
                self.slots.append(f"  %stored{body.number} = alloca i64, align 8")
                self.lines.append(f"  store i64 0, ptr %stored{body.number}")

    def one_phase(self, records: bool, env: dict) -> None:
        """Write the forward loop, or what follows it; the tape of the block keeps the lengths of its stacks.

        `needed` receives the largest of them."""
        low, line = self.low, self.lines.append
        self.straight(low.sections[0], env)
        if records:
            self.loop(0, env)
        else:
            self.begin_records(0)
        for r, m in low.recalled.items():
            place = self.record_place(m, low.bodies[r].loop, self.room(m))
            if not records:
                line(f"  store i64 {self.number_at(place)}, ptr %stored{m}, align 8")
                continue
            count, most = self.number_at(f"%stored{m}"), self(f"getelementptr i64, ptr %needed, i64 {m}")
            line(f"  store i64 {count}, ptr {place}, align 8")
            old = self.number_at(most)
            more = self(f"icmp sgt i64 {count}, {old}")
            line(f"  store i64 {self(f'select i1 {more}, i64 {count}, i64 {old}')}, ptr {most}, align 8")
        if not records:
            self.region(low.sections[1:], low.outer[1:], env)

    def recorded(self, n: int) -> ProgramLoop | None:
        """Return the loop of the sweep that recalls loop n."""
        return next((self.low.bodies[r].loop for r, m in self.low.recalled.items() if m == n), None)

    def record_place(self, m: int, loop: ProgramLoop, number: str) -> str:
        at = self(f"mul i64 {number}, {self.low.offsets(loop)[-1] + 1}")  # the carry, and a number of steps
        return self(f"getelementptr {self.T}, ptr {self.region_of(m)}, i64 {at}")

    def record(self, m: int, loop: ProgramLoop, done: str, nodes: list, env: dict) -> tuple:
        """Store the carry, given by its nodes, after `done` steps of this datum; return number and place."""
        number = self(f"add i64 {self.number_at(f'%stored{m}')}, {done}")
        last = self(f"sub i64 {self.room(m)}, 1")  # steps without room share a place
        at = self(f"select i1 {self(f'icmp slt i64 {number}, {last}')}, i64 {number}, i64 {last}")
        place = self.record_place(m, loop, at)
        for k, i in zip(self.low.offsets(loop), nodes, strict=False):
            self.stored_at(place, k, self.g.shape[i], i, env)
        return number, place

    def stored_at(self, place: str, k: int, shape: tuple, node: int, env: dict) -> None:
        """Store a node in component k of a stored step."""
        if shape:
            self.filled_with(BlockBuffer(place, k), shape, node, env)
        else:
            self.store(self.value(node, env), self(f"getelementptr {self.T}, ptr {place}, i64 {k}"))

    def end_record(self, m: int, label: str, loop: ProgramLoop, env: dict) -> None:
        """Store the final carry of inner loop m, and the number of its steps."""
        trips = self.number_at(f"%trips{label}")
        number, place = self.record(m, loop, trips, loop.final, env)
        count = self(f"getelementptr {self.T}, ptr {place}, i64 {self.low.offsets(loop)[-1]}")
        self.lines.append(f"  store i32 {self(f'trunc i64 {trips} to i32')}, ptr {count}, align 4")
        self.lines.append(f"  store i64 {self(f'add i64 {number}, 1')}, ptr %stored{m}, align 8")

    def recall(self, r: int, carry: list, k: int) -> None:
        """Recall loop r, with the places of its carry, if it is stored; else go on at label %again<k>.

        A phase has stored all of them."""
        m, body, line = self.low.recalled[r], self.low.bodies[r], self.lines.append
        loop = body.loop
        end = self(f"sub i64 {self.number_at(f'%stored{m}')}, 1")
        self.slots.append(f"  %base{r} = alloca ptr, align 8")
        line(f"  store i64 {end}, ptr %stored{m}, align 8")
        if not self.phase:
            fits = self(f"icmp slt i64 {end}, {self(f'sub i64 {self.room(m)}, 1')}")
            line(f"  br i1 {fits}, label %recall{k}, label %again{k}\nrecall{k}:")
        last = self.record_place(m, loop, end)
        *offsets, size = self.low.offsets(loop)
        for at, to, c in zip(offsets, carry, loop.carry, strict=True):
            shape = self.g.shape[c]
            if shape:
                self.filled_with(to, shape, c, {c: BlockBuffer(last, at)})
            else:
                self.store(self.read(self(f"getelementptr {self.T}, ptr {last}, i64 {at}")), to)
        count = self(f"load i32, ptr {self(f'getelementptr {self.T}, ptr {last}, i64 {size}')}, align 4")
        trips = self(f"zext i32 {count} to i64")
        first = self.record_place(m, loop, self(f"sub i64 {end}, {trips}"))
        line(f"  store i64 {trips}, ptr %trips{body.label}, align 8")
        line(f"  store ptr {first}, ptr %base{r}, align 8")
        if not self.phase:
            line(f"  br label %after{k}\nagain{k}:")
            line(f"  store ptr {self.region_of(r)}, ptr %base{r}, align 8")

    def end_recall(self, r: int) -> None:
        """Take the steps of loop r from the stack."""
        name = f"%stored{self.low.recalled[r]}"
        left = self(f"sub i64 {self.number_at(name)}, {self.number_at(f'%trips{self.low.bodies[r].label}')}")
        self.lines.append(f"  store i64 {left}, ptr {name}, align 8")
