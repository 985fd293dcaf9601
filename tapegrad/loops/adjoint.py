"""Reverse mode: the program that runs a program forwards, saves what is needed, and sweeps backwards.

Loops run backwards. A load becomes an accumulation into the cotangent of its array; a store takes the
cotangent of its element and clears it. A long loop of loops is swept in segments: the forward sweep keeps the
state at the beginning of each segment, and the backward sweep runs a segment again before it sweeps it."""

from dataclasses import replace
from typing import Any

from .program import (
    FLOATS,
    Accumulate,
    Allocate,
    Barrier,
    Block,
    Compute,
    For,
    If,
    Load,
    Loop,
    LoopArray,
    LoopProgram,
    LoopStack,
    Pop,
    Push,
    Scalar,
    Store,
    captured,
    copied,
    duplicate,
    literal,
    pruned,
    stacks_of,
    walk,
)
from .saved import SavedValues, is_touched
from .scalars import BOUNDED, partial, passes, pull, write
from .writer import ONE, ZERO, StatementWriter

# A zero cotangent gives zero through these, whatever they read.
LINEAR = frozenset(("add", "sub", "neg", "select", "cast", "times0"))


def adjoint(p: LoopProgram, wrt: tuple) -> LoopProgram:
    """The program of the cotangents of the parameters of p with these numbers.

    Its parameters are those of p; then, for each active array (`derived["shadows"]`), its cotangent at the
    end;
    then those of the scalars that p yields (floats only).  Its results are the cotangents of the active
    arrays at the beginning, then those of the active scalars."""
    return AdjointWriter(p, wrt).adjoint()


def resumed_adjoint(p: LoopProgram, wrt: tuple) -> LoopProgram:
    """The same, without the loops that `checkpoints` ran; what it kept stands after the parameters of p."""
    return AdjointWriter(p, wrt, kept={}, resumed=True).adjoint()


def checkpoints(p: LoopProgram, wrt: tuple) -> LoopProgram:
    """p, which also returns the states that its segments begin with, and the last ones.

    `derived["kept"]` are their arrays, further parameters and results; `derived["lengths"]` is a program of
    their lengths, or None where these take more than a few operations, or where nothing is kept."""
    return AdjointWriter(p, wrt, kept={}).checkpoints()


class AdjointWriter:
    """`kept`: arrays of checkpoints -> their shapes, where they are parameters; `resumed`: they are known."""

    def __init__(self, p: LoopProgram, wrt: tuple, kept: dict | None = None, resumed: bool = False):
        self.p, self.starts, self.given, self.resumed = p, [p.params[k] for k in wrt], kept, resumed
        self.plan = SavedValues(p, self.starts)
        self.active = self.plan.active
        self.w = StatementWriter()
        self.stacks: dict = {}  # stack of p -> its cotangents
        self.unsure: set = set()  # cotangents that are zero where the program took another way
        self.overwritten: dict = {}  # store that is undone -> the stack of what it overwrites
        self.kept: dict = {}  # loop in segments -> what the backward sweep must know
        self.shadows = [a for a in p.arrays if a in self.active]
        self.bars = {
            a: LoopArray(a.type, [Scalar("i8") for _ in a.shape], a.name + "_bar") for a in self.shadows
        }
        self.m: dict = {}
        for q in p.params:
            if isinstance(q, Scalar):
                self.m[q] = Scalar(q.type, q.name)
            else:
                self.m[q] = LoopArray(q.type, [Scalar("i8") for _ in q.shape], q.name)
                self.m.update(zip(q.shape, self.m[q].shape, strict=True))
        self.params = [self.m[q] for q in p.params]

    def checkpoints(self) -> LoopProgram:
        p, start, forward = self.p, self.w.block, dict(self.m)
        self.forward(p.body, forward, True)
        kept: Any = self.given
        lengths = [forward.get(n, n) for shape in kept.values() for n in shape]
        rooms = pruned(
            duplicate(LoopProgram(p.name + "_lengths", self.params, Block(start.statements, lengths), []))
        )
        simple = kept and all(isinstance(s, Compute) for s in rooms.body.statements)
        start.yields = [forward.get(y, y) for y in p.body.yields]
        derived = {"kept": list(kept), "lengths": rooms if simple else None}
        outs = [*[self.m[a] for a in p.outs], *kept]
        return pruned(LoopProgram(p.name, [*self.params, *kept], start, outs, p.file, derived))

    def adjoint(self) -> LoopProgram:
        p, m, start = self.p, self.m, self.w.block
        seeds = [Scalar(y.type, "seed") for y in p.body.yields if y.type in FLOATS]
        forward = dict(m)
        self.forward(p.body, forward, True)
        heights = LoopProgram(
            p.name + "_heights", [], Block(list(start.statements)), [], p.file, {}, p.launch
        )
        m.update({s.array: forward[s.array] for s in p.body.statements if isinstance(s, Allocate)})
        bars: dict = {}
        for y, seed in zip([y for y in p.body.yields if y.type in FLOATS], seeds, strict=True):
            self.add(bars, y, seed)
        self.backward(p.body, m, bars)
        start.yields = [bars.get(q) or literal(0, q.type) for q in self.starts if isinstance(q, Scalar)]
        params = [*self.params, *(self.given or ()), *[self.bars[a] for a in self.shadows], *seeds]
        outs = [self.bars[a] for a in self.shadows if a in self.starts]
        derived = {"shadows": self.shadows, "of": p, "twins": {bar: x for x, bar in self.stacks.items()}}
        if p.launch is not None:
            # the programs that tell how high the stacks are that the forward sweep fills
            made: Any = [x for x in stacks_of(heights) if x not in stacks_of(p)]
            derived["heights"] = pruned(duplicate(replace(heights, params=params, outs=made)))
        return pruned(LoopProgram(p.name + "_adjoint", params, start, outs, p.file, derived, p.launch))

    # --- forwards ---

    def forward(self, block: Block, m: dict, taped: bool) -> None:
        for s in block.statements:
            self.w.line = s.line
            if taped and s in self.plan.segmented:
                self.forward_in_segments(s, m)
            else:
                if taped and self.plan.stores.is_undone(s):
                    old = self.w.load(m.get(s.array, s.array), [m.get(i, i) for i in s.index])
                    self.w.push(self.overwritten.setdefault(s, LoopStack(old.type)), old)
                self.put(s, m, taped)
        if taped:
            for v in self.plan.saved[block]:
                self.w.push(self.plan.stacks[v], m[v])

    def put(self, s, m: dict, taped: bool) -> None:
        def inner(_, block: Block) -> Block:
            made = Block()
            self.w.within(made, self.forward, block, m, taped)
            made.yields = [m.get(y, y) for y in block.yields]
            return made

        trips = self.plan.trips.get(s)
        c = copied(s, m, inner)
        if taped and trips in self.plan.needed:
            before, m[trips] = Scalar("i8"), Scalar("i8", "trips")
            c.body.yields.append(self.w.within(c.body, self.w.compute, "add", before, ONE))
            c.args.append(before)
            c.inits.append(ZERO)
            c.results.append(m[trips])
        self.w.put(c)

    # --- segments ---

    def forward_in_segments(self, s: For, m: dict) -> None:
        w, plan = self.w, self.plan
        start, stop, step = [m.get(b, b) for b in s.bounds]
        n = w.trips(start, stop, step)
        # about as many segments as trips in each
        root = w.cast(w.compute("sqrt", w.cast(n, "f8")), "i8")
        length = w.compute("add", root, ONE)
        count = w.compute("floordiv", w.compute("add", n, root), length)
        layers = count if self.given is None else w.compute("add", count, ONE)
        states = [
            self.room(a.type, (layers, *m.get(a, a).shape), a.name + "_kept") for a in plan.segmented[s]
        ]
        carries = [self.room(a.type, (layers,), "carry_kept") for a in s.args]
        self.kept[s] = m[s] = length, count, n, states, carries

        def keep(h: Scalar, values) -> None:
            for a, kept in zip(plan.segmented[s], states, strict=True):
                w.copy(kept, m.get(a, a), at=(h,))
            for v, kept in zip(values, carries, strict=True):
                w.store(kept, (h,), v)

        def segment(h: Scalar, *values: Scalar) -> list[Scalar]:
            keep(h, values)
            first, here = self.part(m[s], h)
            return self.run_part(s, m, first, here, list(values), False)

        if self.resumed:
            results = self.take_state(s, m, count)
        else:
            results = w.count(count, segment, [m.get(v, v) for v in s.inits])
            if self.given is not None:
                keep(count, results)
        m.update(zip(s.results, results, strict=True))

    def room(self, type: str, shape: tuple, name: str) -> LoopArray:
        """A new array, or a parameter for it."""
        if self.given is None:
            return self.w.allocate(type, shape, name, zeroed=False)
        array = LoopArray(type, [Scalar("i8") for _ in shape], name)
        self.given[array] = shape
        return array

    def take_state(self, s: For, m: dict, h: Scalar) -> list[Scalar]:
        """Put back the arrays as segment h begins with them; return the carried values."""
        _, _, _, states, carries = self.kept[s]
        for a, kept in zip(self.plan.segmented[s], states, strict=True):
            self.w.copy(m.get(a, a), kept, of=(h,))
        return [self.w.load(kept, (h,)) for kept in carries]

    def part(self, known: tuple, h: Scalar) -> tuple[Scalar, Scalar]:
        """The first trip of segment h, and its number of trips."""
        w, (length, _, n, _, _) = self.w, known
        first = w.compute("mul", h, length)
        return first, w.compute("min", length, w.compute("sub", n, first))

    def run_part(
        self, s: For, m: dict, first: Scalar, here: Scalar, values: list[Scalar], taped: bool
    ) -> list[Scalar]:
        """Run the trips of one segment, from these carried values."""
        w = self.w
        inner = dict(m)

        def trip(j: Scalar, *args: Scalar) -> list[Scalar]:
            inner.update(zip(s.args, args, strict=True))
            inner[s.index] = self.place(s, m, w.compute("add", first, j))
            self.forward(s.body, inner, taped)
            return [inner.get(y, y) for y in s.body.yields]

        return w.count(here, trip, values)

    def place(self, s: For, m: dict, trip: Scalar) -> Scalar:
        """The index of the loop in this trip."""
        w, (start, _, step) = self.w, [m.get(b, b) for b in s.bounds]
        return w.compute("add", start, w.compute("mul", trip, step))

    # --- backwards ---

    def add(self, bars: dict, v: Scalar, bar: Scalar) -> None:
        if v in self.active and v.number is None and bar.number != 0:
            terms = [bars[v], bar] if v in bars else [bar]
            bars[v] = self.w.compute("add", *terms) if v in bars else bar
            self.derive(bars[v], terms)

    def derive(self, bar: Scalar, of: list[Scalar]) -> None:
        """Note that `bar` may be zero by control flow, if all of these are."""
        if all(b.number == 0 or b in self.unsure for b in of):
            self.unsure.add(bar)

    def backward(self, block: Block, m: dict, bars: dict) -> None:
        """Sweep a block; `m` maps values of p that are visible, `bars` holds their cotangents."""
        w = self.w
        for v in reversed(self.plan.saved[block]):
            m[v] = w.pop(self.plan.stacks[v])
        self.run_again(block, m)
        for s in self.plan.arrays.get(block, ()):
            self.bars[s.array] = w.allocate(
                s.array.type,
                [m.get(n, n) for n in s.array.shape],
                s.array.name + "_bar",
                s.array.shared,
            )
        first = self.plan.stores.first.get(block, ())
        for s in reversed(block.statements):
            if is_touched(s, self.active):
                w.line = s.line
                if s not in first:
                    self.undo(s, m)
                self.statement(s, m, bars)

    def run_again(self, block: Block, m: dict) -> None:
        """Run statements again, and undo the stores before those that read restored memory."""
        w, stores = self.w, self.plan.stores
        waiting = {}  # statements that depend on such loads, with their values
        for s in self.plan.again[block]:
            if (isinstance(s, Load) and stores.restored(s)) or any(v in waiting for v in s.operands):
                waiting.update(dict.fromkeys(s.outs, s))
            else:
                w.put(copied(s, m, lambda *_: Block()))
        for s in reversed(stores.first.get(block, ())):
            self.undo(s, m)
        for s in waiting.values():
            w.put(copied(s, m, lambda *_: Block()))

    def undo(self, s: Store, m: dict) -> None:
        if self.plan.stores.is_undone(s):
            old = self.w.pop(self.overwritten[s])
            self.w.store(m.get(s.array, s.array), [m.get(i, i) for i in s.index], old)

    def statement(self, s, m: dict, bars: dict) -> None:
        w = self.w
        match s:
            case Compute():
                self.computed(s, m, bars)
            case Load():
                bar = bars.pop(s.out, None)
                if bar is not None:
                    w.accumulate(self.bars[s.array], [m.get(i, i) for i in s.index], bar)
            case Store():
                at = [m.get(i, i) for i in s.index]
                if s.value in self.active:
                    self.add(bars, s.value, w.load(self.bars[s.array], at))
                if not isinstance(s, Accumulate):
                    w.store(self.bars[s.array], at, literal(0, s.array.type))
            case Push():
                self.add(bars, s.value, w.pop(self.bar_stack(s.stack)))
            case Pop():
                w.push(self.bar_stack(s.stack), bars.pop(s.out, None) or literal(0, s.out.type))
            case Loop():
                self.loop(s, m, bars)
            case If():
                self.branch(s, m, bars)
            case Barrier():
                w.put(Barrier())

    def bar_stack(self, stack: LoopStack) -> LoopStack:
        return self.stacks.setdefault(stack, LoopStack(stack.type))

    def computed(self, s: Compute, m: dict, bars: dict) -> None:
        bar = bars.pop(s.out, None)
        if bar is None or not passes(s.op):
            return
        given = (m.get(s.out, s.out), *[m.get(a, a) for a in s.args])
        w, kind = self.w, s.out.type
        sure = s.op in LINEAR or (s.op in BOUNDED and bar not in self.unsure)
        for k, a in enumerate(s.args):
            if a in self.active:
                if s.op == "cast":
                    share = w.cast(bar, a.type)
                elif sure:
                    share = write(w, pull(s.op, k), (bar, *given), kind)
                else:  # a zero cotangent stays zero; its own derivatives do not
                    share = w.compute("times0", bar, write(w, partial(s.op, k), given, kind))
                if s.op in ("select", "times0"):
                    self.unsure.add(share)
                else:
                    self.derive(share, [bar])
                self.add(bars, a, share)

    def branch(self, s: If, m: dict, bars: dict) -> None:
        outer = [v for v in captured(s) if v in self.active]
        seeds = [bars.pop(r, None) for r in s.results]
        sides = []
        for b in s.blocks:
            made, local = Block(), {v: bars[v] for v in outer if v in bars}

            def side(b: Block = b, local: dict = local) -> None:
                for y, seed in zip(b.yields, seeds, strict=True):
                    if seed is not None:
                        self.add(local, y, seed)
                self.backward(b, dict(m), local)

            self.w.within(made, side)
            sides.append((made, local))
        changed = [v for v in outer if any(local.get(v) is not bars.get(v) for _, local in sides)]
        for made, local in sides:
            made.yields = [local.get(v) or literal(0, v.type) for v in changed]
        results = [Scalar(v.type) for v in changed]
        for v, r in zip(changed, results, strict=True):
            self.derive(r, [bars.get(v) or literal(0, v.type)])
        self.w.put(If(m.get(s.test, s.test), sides[0][0], sides[1][0], results))
        bars.update(zip(changed, results, strict=True))

    def loop(self, s, m: dict, bars: dict) -> None:
        carried = [
            k
            for k, (a, r) in enumerate(zip(s.args, s.results, strict=True))
            if a in self.active or r in self.active
        ]
        outer = [v for v in captured(s) if v in self.active]
        inits = [bars.pop(s.results[k], None) or literal(0, s.results[k].type) for k in carried]
        inits += [bars.get(v) or literal(0, v.type) for v in outer]
        if s in self.plan.segmented:
            results = self.backward_in_segments(s, m, carried, outer, inits)
        elif isinstance(s, For):
            n = self.w.trips(*[m.get(b, b) for b in s.bounds])
            results = self.trips_back(s, m, carried, outer, inits, ZERO, n)
        else:
            results = self.trips_back(s, m, carried, outer, inits, ZERO, m[self.plan.trips[s]])
        for bar, init in zip(results, inits, strict=True):
            self.derive(bar, [init])
        bars.update(zip(outer, results[len(carried) :], strict=True))
        for k, bar in zip(carried, results, strict=False):
            self.add(bars, s.inits[k], bar)

    def trips_back(
        self, s, m: dict, carried: list, outer: list, inits: list, first: Scalar, n: Scalar
    ) -> list[Scalar]:
        """Sweep the trips first + n - 1, ..., first."""
        w = self.w
        branches = any(isinstance(t, If) and is_touched(t, self.active) for t in walk(s.body))

        def trip(r: Scalar, *args: Scalar) -> list[Scalar]:
            inner, local = dict(m), dict(zip(outer, args[len(carried) :], strict=True))
            for bar, init in zip(args, inits, strict=True):
                self.derive(bar, [] if branches else [init])
            if isinstance(s, For):
                last = w.compute("add", first, w.compute("sub", n, ONE))
                inner[s.index] = self.place(s, m, w.compute("sub", last, r))
            for k, bar in zip(carried, args, strict=False):
                self.add(local, s.body.yields[k], bar)
            self.backward(s.body, inner, local)
            return [local.get(v) or literal(0, v.type) for v in [*[s.args[k] for k in carried], *outer]]

        return w.count(n, trip, inits)

    def backward_in_segments(self, s: For, m: dict, carried: list, outer: list, inits: list) -> list[Scalar]:
        w = self.w
        known = self.kept[s]
        count = known[1]

        def segment(g: Scalar, *args: Scalar) -> list[Scalar]:
            h = w.compute("sub", w.compute("sub", count, ONE), g)
            values = self.take_state(s, m, h)
            first, here = self.part(known, h)
            self.run_part(s, m, first, here, values, True)
            for bar, init in zip(args, inits, strict=True):
                self.derive(bar, [init])
            return self.trips_back(s, m, carried, outer, list(args), first, here)

        return w.count(count, segment, inits)
