"""LLVM text of a loop program.

Each array and stack has memory of its own, which the text says (`alias.scope`), so that LLVM may vectorise.
Indices are checked: before a loop where they are affine in its index, otherwise at the access. Code that
finds a wrong index writes nothing more, and its line becomes an error."""

import itertools
import sys
from typing import Any

from .places import CheckedAccesses
from .program import (
    BYTES,
    Accumulate,
    Allocate,
    Block,
    Compute,
    For,
    If,
    LayerOf,
    Load,
    LoopArray,
    LoopProgram,
    LoopStack,
    Pop,
    Push,
    Scalar,
    Store,
    walk,
    written,
)
from .scalar_text import REGISTER, ScalarText

STORED = {**REGISTER, "b1": "i8"}
NO_MEMORY = -1
LARGE = 2**22  # bytes from which on memory is of large pages, where the system has them
HEAD = """declare ptr @realloc(ptr, i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define internal ptr @grown(ptr %slot, ptr %room, i64 %need, i64 %size) noinline {
  %old = load ptr, ptr %slot
  %had = load i64, ptr %room
  %twice = mul i64 %had, 2
  %more = icmp sgt i64 %need, %twice
  %count = select i1 %more, i64 %need, i64 %twice
  %bytes = mul i64 %count, %size
  %plus = add i64 %bytes, 64
  %made = call ptr @realloc(ptr %old, i64 %plus)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %end, label %keep
keep:
  call void @use_large_pages(ptr %made, i64 %plus)
  store ptr %made, ptr %slot
  store i64 %count, ptr %room
  br label %end
end:
  ret ptr %made
}
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
define internal void @prefetch(ptr %first, i64 %bytes) noinline {
entry:
  %few = icmp slt i64 %bytes, 16384
  %most = select i1 %few, i64 %bytes, i64 16384
  br label %next
next:
  %at = phi i64 [0, %entry], [%after, %next]
  %line = getelementptr i8, ptr %first, i64 %at
  call void @llvm.prefetch.p0(ptr %line, i32 0, i32 2, i32 1)
  %after = add i64 %at, 64
  %more = icmp slt i64 %after, %most
  br i1 %more, label %next, label %end
end:
  ret void
}
"""
LARGE_PAGES = """define internal void @use_large_pages(ptr %made, i64 %bytes) {
  ret void
}
"""
# madvise(..., MADV_HUGEPAGE), as NumPy does for its arrays; of a whole mapping, or it could not grow
if sys.platform == "linux":
    LARGE_PAGES = f"""declare i32 @madvise(ptr, i64, i32)
define internal void @use_large_pages(ptr %made, i64 %bytes) {{
  %large = icmp uge i64 %bytes, {LARGE}
  br i1 %large, label %ask, label %end
ask:
  %at = ptrtoint ptr %made to i64
  %page = and i64 %at, -4096
  %skipped = sub i64 %at, %page
  %size = add i64 %bytes, %skipped
  %first = inttoptr i64 %page to ptr
  %done = call i32 @madvise(ptr %first, i64 %size, i32 14)
  br label %end
end:
  ret void
}}
"""


class ProgramText(ScalarText):
    """The text of one program: `void program(ptr numbers, ptr array, ...)`.

    `numbers` holds 8 bytes for each scalar parameter, for each length of an array, for the status, and for
    each result."""

    def __init__(self, p: LoopProgram):
        super().__init__()
        self.p = p
        self.names: dict[Any, str] = {}
        self.bases = {}  # array -> its pointer; allocated arrays and stacks have slots
        self.scopes = {}
        self.layers = {}  # layer -> its array, and the layers that it does not share memory with
        self.slotted = {}  # stack -> (slot, room, top)
        self.indexed = {}  # stack -> the pointer of this trip
        self.frees: list[str] = []
        self.accesses = CheckedAccesses(p)
        self.status = 0
        self.text = self.write()

    def line(self, text: str) -> None:
        self.b.lines.append("  " + text)

    def label(self, name: str) -> None:
        self.b.lines.append(f"  br label %{name}\n{name}:")

    def value(self, v: Scalar) -> str:
        if v.number is None:
            return self.names[v]
        if v.type in self.builders:
            return self.builders[v.type].c(v.number)
        return str(v.number).lower()

    # --- the whole ---

    def write(self) -> str:
        p, b = self.p, self.b
        count = itertools.count()
        for q in p.params:
            for v in (q,) if isinstance(q, Scalar) else q.shape:
                self.names[v] = self.number(v.type, next(count))
        self.status = next(count)
        for k, a in enumerate(p.arrays):
            self.bases[a] = f"%a{k}"
        self.block(p.body)
        for y in p.body.yields:
            value = b(f"zext i1 {self.value(y)} to i8") if y.type == "b1" else self.value(y)
            self.line(f"store {STORED[y.type]} {value}, ptr {self.field(next(count))}, align 8")
        self.label("end")
        for slot in self.frees:
            self.line(f"call void @free(ptr {b(f'load ptr, ptr {slot}')})")
        made = written(p)
        heads = [f"ptr noalias {'' if a in made else 'readonly '}%a{k}" for k, a in enumerate(p.arrays)]
        body = "\n".join(["entry:", *b.slots, *self.starts(), *b.lines, "  ret void"])
        functions = "".join(text for _, text in self.routines.values())
        declared = "".join(
            f"{line}\n" for f in self.builders.values() for line in f.declared("sqrt", "fabs", "floor", "fma")
        )
        return (
            f"{HEAD}{LARGE_PAGES}{declared}{functions}define void @program(ptr noalias %numbers"
            f'{"".join(", " + h for h in heads)}) "prefer-vector-width"="512" '
            f"{{\n{body}\n}}\n{self.metadata()}"
        )

    def starts(self) -> list[str]:
        made = [f"  store ptr null, ptr {slot}" for slot in self.frees]
        return made + [
            f"  store i64 0, ptr {x}" for _, room, top in self.slotted.values() for x in (room, top)
        ]

    def metadata(self) -> str:
        """Each array and stack is a scope; an access is in one of them and in none of the others.

        An access to a layer is also in the scope of its array, and not in those of other layers."""
        n = len(self.scopes)
        if not n:
            return ""
        layered = [self.layers.get(x) for x in self.scopes]
        whole = [k for k, of in enumerate(layered) if of is None]
        lines = ["!0 = distinct !{!0}"]
        lines += [
            f"!{k + 1} = distinct !{{!{k + 1}, !{3 * n + 2 if of else 0}}}" for k, of in enumerate(layered)
        ]
        inside, outside = [], []
        for k, of in enumerate(layered):
            base = k if of is None else self.scopes[of[0]]
            inside.append({base, k})
            outside.append([j for j in whole if j != base])
            outside[k] += [self.scopes[x] for x in of[1] if x in self.scopes] if of else []
        for first, lists in ((n + 1, inside), (2 * n + 1, outside)):
            for k, members in enumerate(lists):
                lines.append(f"!{first + k} = !{{{', '.join(f'!{j + 1}' for j in sorted(members))}}}")
        lines.append(f"!{3 * n + 2} = distinct !{{!{3 * n + 2}}}")
        return "\n".join(lines)

    def alias(self, x) -> str:
        """The scopes of an access to an array or stack (`finished` fills in their number)."""
        if x in self.layers:
            self.alias(self.layers[x][0])
        k = self.scopes.setdefault(x, len(self.scopes))
        return f", !alias.scope !S{k}S, !noalias !N{k}N"

    def number(self, kind: str, k: int) -> str:
        got = self.b(f"load {STORED[kind]}, ptr {self.field(k)}, align 8")
        return self.b(f"trunc i8 {got} to i1") if kind == "b1" else got

    def field(self, k: int) -> str:
        return self.b(f"getelementptr i64, ptr %numbers, i64 {k}")

    def fail(self, code: str) -> None:
        self.line(f"store i64 {code}, ptr {self.field(self.status)}, align 8")
        self.line("br label %end")

    def must(self, ok: str, code: str) -> None:
        k = next(self.b.labels)
        self.line(f"br i1 {ok}, label %fine{k}, label %bad{k}, !prof !LIKELY")
        self.b.lines.append(f"bad{k}:")
        self.fail(code)
        self.b.lines.append(f"fine{k}:")

    # --- memory ---

    def slot(self, kind: str) -> str:
        return self.b.slot(kind)

    def place(self, s) -> str:
        a, x = s.array, [self.value(i) for i in s.index]
        for k, i in enumerate(s.index):
            if (s, k) not in self.accesses.safe:
                self.must(self.b(f"icmp ult i64 {self.value(i)}, {self.value(a.shape[k])}"), str(s.line))
        at = x[0] if x else "0"
        for k in range(1, len(x)):
            at = self.b(f"mul nsw i64 {at}, {self.value(a.shape[k])}")
            at = self.b(f"add nsw i64 {at}, {x[k]}")
        return self.b(f"getelementptr inbounds {STORED[a.type]}, ptr {self.bases[a]}, i64 {at}")

    def fetch(self, kind: str, pointer: str, of) -> str:
        got = self.b(f"load {STORED[kind]}, ptr {pointer}, align {BYTES[kind]}{self.alias(of)}")
        return self.b(f"trunc i8 {got} to i1") if kind == "b1" else got

    def keep(self, kind: str, value: str, pointer: str, of) -> None:
        if kind == "b1":
            value = self.b(f"zext i1 {value} to i8")
        self.line(f"store {STORED[kind]} {value}, ptr {pointer}, align {BYTES[kind]}{self.alias(of)}")

    def grow(self, slot: str, room: str, need: str, size: int) -> None:
        """Make room for `need` elements."""
        k = next(self.b.labels)
        short = self.b(f"icmp sgt i64 {need}, {self.b(f'load i64, ptr {room}')}")
        self.line(f"br i1 {short}, label %grow{k}, label %room{k}")
        self.b.lines.append(f"grow{k}:")
        made = self.b(f"call ptr @grown(ptr {slot}, ptr {room}, i64 {need}, i64 {size})")
        self.must(self.b(f"icmp ne ptr {made}, null"), str(NO_MEMORY))
        self.label(f"room{k}")

    def stack(self, x: LoopStack) -> tuple[str, str, str]:
        if x not in self.slotted:
            self.slotted[x] = self.slot("ptr"), self.slot("i64"), self.slot("i64")
            self.frees.append(self.slotted[x][0])
        return self.slotted[x]

    def top(self, x: LoopStack, at: str, kind: str) -> str:
        return self.b(
            f"getelementptr inbounds {STORED[kind]}, ptr {self.b(f'load ptr, ptr {self.stack(x)[0]}')}, i64 "
            f"{at}"
        )

    # --- statements ---

    def block(self, block: Block) -> None:
        layers = [s for s in block.statements if isinstance(s, LayerOf)]
        for s in layers:
            self.layer(s, [t.array for t in layers if t.of is s.of and t is not s])
        for s in block.statements:
            if not isinstance(s, LayerOf):
                self.statement(s)

    def statement(self, s) -> None:
        match s:
            case Compute():
                self.names[s.out] = self.computed(s.op, s.out.type, [self.value(a) for a in s.args], s)
            case Load():
                self.names[s.out] = self.fetch(s.array.type, self.place(s), s.array)
            case Store():
                kind, pointer, value = s.array.type, self.place(s), self.value(s.value)
                if isinstance(s, Accumulate):
                    old = self.fetch(kind, pointer, s.array)
                    value = self.computed("add", kind, [old, value], s)
                self.keep(kind, value, pointer, s.array)
            case Push():
                self.push(s)
            case Pop():
                self.pop(s)
            case Allocate():
                self.allocate(s)
            case If():
                self.branch(s)
            case _:
                self.loop(s)

    def push(self, s: Push) -> None:
        kind = s.stack.type
        if s.stack in self.indexed:
            self.keep(kind, self.value(s.value), self.indexed[s.stack], s.stack)
            return
        slot, room, top = self.stack(s.stack)
        at = self.b(f"load i64, ptr {top}")
        after = self.b(f"add i64 {at}, 1")
        self.grow(slot, room, after, BYTES[kind])
        self.keep(kind, self.value(s.value), self.top(s.stack, at, kind), s.stack)
        self.line(f"store i64 {after}, ptr {top}")

    def pop(self, s: Pop) -> None:
        kind = s.stack.type
        pointer = self.indexed.get(s.stack)
        if pointer is None:
            top = self.stack(s.stack)[2]
            at = self.b(f"sub i64 {self.b(f'load i64, ptr {top}')}, 1")
            self.line(f"store i64 {at}, ptr {top}")
            pointer = self.top(s.stack, at, kind)
        self.names[s.out] = self.fetch(kind, pointer, s.stack)

    def allocate(self, s: Allocate) -> None:
        a = s.array
        slot, room = self.slot("ptr"), self.slot("i64")
        self.frees.append(slot)
        self.slotted[a] = slot, room, room
        size = "1"
        for n in a.shape:
            self.must(self.b(f"icmp ult i64 {self.value(n)}, {2**40}"), str(NO_MEMORY))
            size = self.b(f"mul i64 {size}, {self.value(n)}")
            self.must(self.b(f"icmp ult i64 {size}, {2**44}"), str(NO_MEMORY))
        self.grow(slot, room, self.b(f"add i64 {size}, 1"), BYTES[a.type])
        self.bases[a] = self.b(f"load ptr, ptr {slot}")
        bytes_ = self.b(f"mul i64 {size}, {BYTES[a.type] if s.zeroed else 0}")
        self.line(f"call void @llvm.memset.p0.i64(ptr align 8 {self.bases[a]}, i8 0, i64 {bytes_}, i1 false)")

    def layer(self, s: LayerOf, others: list[LoopArray]) -> None:
        at = self.value(s.layer)
        for n in s.array.shape:
            at = self.b(f"mul nsw i64 {at}, {self.value(n)}")
        self.bases[s.array] = self.b(
            f"getelementptr inbounds {STORED[s.of.type]}, ptr {self.bases[s.of]}, i64 {at}"
        )
        self.layers[s.array] = s.of, others

    def branch(self, s: If) -> None:
        k = next(self.b.labels)
        slots = [self.slot(REGISTER[r.type]) for r in s.results]
        self.line(f"br i1 {self.value(s.test)}, label %then{k}, label %else{k}")
        for name, b in (("then", s.then), ("else", s.other)):
            self.b.lines.append(f"{name}{k}:")
            self.block(b)
            self.assign(slots, b.yields)
            self.line(f"br label %join{k}")
        self.b.lines.append(f"join{k}:")
        self.take(slots, s.results)

    def assign(self, slots: list[str], values: list[Scalar]) -> None:
        for slot, v in zip(slots, values, strict=True):
            self.line(f"store {REGISTER[v.type]} {self.value(v)}, ptr {slot}")

    def take(self, slots: list[str], results: list[Scalar]) -> None:
        for slot, r in zip(slots, results, strict=True):
            self.names[r] = self.b(f"load {REGISTER[r.type]}, ptr {slot}")

    def loop(self, s) -> None:
        b, k = self.b, next(self.b.labels)
        slots = [self.slot(REGISTER[a.type]) for a in s.args]
        self.assign(slots, s.inits)
        if not isinstance(s, For):
            self.label(f"again{k}")
            self.take(slots, s.args)
            self.block(s.body)
            self.assign(slots, s.body.yields)
            self.line(f"br i1 {self.value(s.test)}, label %again{k}, label %past{k}")
            b.lines.append(f"past{k}:")
            self.take(slots, s.results)
            return
        start, stop, step = [self.value(v) for v in s.bounds]
        n = self.trip_count(s, start, stop, step)
        some = b(f"icmp sgt i64 {n}, 0")
        self.line(f"br i1 {some}, label %enter{k}, label %past{k}")
        b.lines.append(f"enter{k}:")
        self.check_before(s, n)
        owned = self.own_stacks(s)
        outer, self.indexed = self.indexed, dict(self.indexed)
        counter = self.slot("i64")
        bases = self.reserve(owned, n)
        self.line(f"store i64 0, ptr {counter}")
        self.label(f"trip{k}")
        i = b(f"load i64, ptr {counter}")
        for (x, pushes), base in zip(owned.items(), bases, strict=True):
            at = i if pushes else b(f"sub nsw i64 0, {i}")
            self.indexed[x] = b(f"getelementptr inbounds {STORED[x.type]}, ptr {base}, i64 {at}")
        whole = i if step == "1" else b(f"mul nsw i64 {i}, {step}")
        self.names[s.index] = whole if start == "0" else b(f"add nsw i64 {start}, {whole}")
        self.take(slots, s.args)
        self.block(s.body)
        self.assign(slots, s.body.yields)
        self.indexed = outer
        following = b(f"add nuw nsw i64 {i}, 1")
        self.line(f"store i64 {following}, ptr {counter}")
        self.line(f"br i1 {b(f'icmp slt i64 {following}, {n}')}, label %trip{k}, label %past{k}")
        b.lines.append(f"past{k}:")
        self.take(slots, s.results)

    def trip_count(self, s: For, start: str, stop: str, step: str) -> str:
        b = self.b
        if step in ("1", "-1"):
            return b(f"sub i64 {stop}, {start}") if step == "1" else b(f"sub i64 {start}, {stop}")
        self.must(b(f"icmp ne i64 {step}, 0"), str(s.line))
        return b(f"sub i64 0, {self.floor_division(b(f'sub i64 {start}, {stop}'), step)[0]}")

    def check_before(self, s: For, n: str) -> None:
        """Check the first and the last index of accesses of each trip that are affine in the loop's index.

        By 128 bits, so that an index that overflows in between is found too."""
        b = self.b
        wide = lambda v: b(f"sext i64 {self.value(v)} to i128")
        for access, k, factor, fixed in self.accesses.before(s):
            rest = str(fixed.const)
            for v, c in fixed.terms.items():
                rest = b(f"add i128 {rest}, {b(f'mul i128 {wide(v)}, {c}')}")
            start, step = wide(s.bounds[0]), wide(s.bounds[2])
            more = b(f"sub i128 {b(f'sext i64 {n} to i128')}, 1")
            last = b(f"add i128 {start}, {b(f'mul i128 {more}, {step}')}")
            for i in (start, last) if factor else (start,):
                at = b(f"add i128 {rest}, {b(f'mul i128 {i}, {factor}')}")
                self.must(b(f"icmp ult i128 {at}, {wide(access.array.shape[k])}"), str(access.line))

    def own_stacks(self, s: For) -> dict:
        """The stacks that each trip uses once; stack -> does it push?"""
        direct = [t for t in s.body.statements if isinstance(t, (Push, Pop)) and t.stack not in self.indexed]
        uses = [t.stack for t in walk(s.body) if isinstance(t, (Push, Pop))]
        return {t.stack: isinstance(t, Push) for t in direct if uses.count(t.stack) == 1}

    def reserve(self, owned: dict, n: str) -> list[str]:
        """Make room for the trips of a loop; the place of each stack in the first trip."""
        b, bases = self.b, []
        for x, pushes in owned.items():
            slot, room, top = self.stack(x)
            at = b(f"load i64, ptr {top}")
            after = b(f"{'add' if pushes else 'sub'} i64 {at}, {n}")
            if pushes:
                self.grow(slot, room, after, BYTES[x.type])
            self.line(f"store i64 {after}, ptr {top}")
            bases.append(self.top(x, at if pushes else b(f"sub i64 {at}, 1"), x.type))
            if not pushes:  # fetch what the next run of the loop pops: downwards the processor is late
                following = self.top(x, b(f"sub i64 {after}, {n}"), x.type)
                self.line(f"call void @prefetch(ptr {following}, i64 {b(f'mul i64 {n}, {BYTES[x.type]}')})")
        return bases


def finished(t: ProgramText) -> str:
    """The text with the numbers of its scopes."""
    n, text = len(t.scopes), t.text
    for k in range(n):
        text = text.replace(f"!S{k}S", f"!{n + 1 + k}").replace(f"!N{k}N", f"!{2 * n + 1 + k}")
    saturating = "".join(
        f"declare i64 @llvm.fptosi.sat.i64.{s}({f})\n" for s, f in (("f64", "double"), ("f32", "float"))
    )
    likely = f'\n!{3 * n + 1} = !{{!"branch_weights", i32 2000, i32 1}}\n'
    return saturating + text.replace("!LIKELY", f"!{3 * n + 1}") + likely
