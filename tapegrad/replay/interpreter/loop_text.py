"""The LLVM text of a compiled loop: elements of a row become lanes of a vector.

A row writes elements that do not depend on each other as one operation on a vector if its operands are
vectors already: results of such an operation, lines of memory, one number for all lanes, or what no trip
changes, which is read before the loop.  Costly functions get vectors made of their operands."""

import itertools

from ...kernels.emit import elementary
from ...kernels.emit.llvm_builder import WIDE, Builder
from ..costs import LINE_ELEMENTS, POINTER_PLACES
from .listed_rows import READS
from .machine_code import BODIES, COUNTED, LIBM, NUMBER, TANH_SLOPE, declared_intrinsics, tanh_slopes
from .strided_rows import FAILED, INFINITE, NO_NUMBER, WORD, vector_text

MOST_LANES = 8
NAN = "0x7FF8000000000000"
WORDS = ("old", "x", "y", "z")
COSTLY = frozenset((*LIBM, "tanh_slope", "div", "sqrt"))

FRAME = """{declared}
define i64 @loop(ptr %bases, i64 %trips, i64 %first, ptr %arena) {wide} {{
entry:
  {entry}
  br label %body
body:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %bad = phi double [ 0.0, %entry ], [ {bad}, %next ]
  %no_number = phi i1 [ {tolerant}, %entry ], [ {no_number}, %next ]
  {phis}
  {body}
  %failed = icmp ne i64 {failed}, 0
  br i1 %failed, label %guarded, label %next
next:
  %t1 = add i64 %t, 1
  %more = icmp slt i64 %t1, %trips
  br i1 %more, label %body, label %end
end:
  {end}
  %fine = fcmp oeq double {all_bad}, 0.0
  %class = select i1 {no_number}, i64 {no_number_class}, i64 {infinite_class}
  %answer = select i1 %fine, i64 0, i64 %class
  ret i64 %answer
guarded:
  %k0 = mul i64 %t, {guards}
  %k1 = add i64 %k0, {failed}
  %k2 = add i64 %k1, %first
  %k3 = add i64 %k2, {beyond}
  ret i64 %k3
}}
"""


class Lanes:
    """Elements of a row, none of which reads another: `made` are the names of the results, `given` those of
    the operands by columns."""

    def __init__(self, name: str, columns: int):
        self.name, self.made_names = name, set[str]()
        self.made = []
        self.given = [[] for _ in range(columns)]

    def add(self, made: str, given: list) -> None:
        self.made.append(made)
        self.made_names.add(made)
        for column, x in zip(self.given, given, strict=True):
            column.append(x)


def kind_of(n: int) -> str:
    return "double" if n == 1 else f"<{n} x double>"


class LoopText:
    """Writes the text of a `RerolledLoop`: `loop(bases, trips, first row, arena)`, as the interpreter's
    answers.  (The steps are in the text: they do not depend on the number of trips.)"""

    def __init__(self, loop):
        self.loop = loop
        self.fresh = itertools.count(loop.fresh + 1)
        self.entry = []
        self.body = []
        self.phis = []
        self.end = []
        self.vectors = {}  # names of the lanes -> their vector
        self.lane = {}  # name -> (vector, lane, lanes) where it is one of these
        self.read = set()  # names that were read from their vector
        self.carried = []  # (vector, its first value, the lanes after the trip)
        self.checks = []  # the same, of what tells whether results are finite
        self.functions = {}  # name of a function that is called -> its text
        self.widths = {1}
        self.cell_of = {value: cell for cell, value in loop.loads.items()}
        self.fixed = {v for cell, v in loop.loads.items() if not cell[1] and cell not in loop.written}
        self.failed, self.asked = "0", 0
        self.called = {}  # name of a call -> the register of its address
        self.answers = []  # 0 if a call found nothing
        self.pointers, self.bases = self.based()

    def text(self) -> str:
        loop = self.loop
        for s, d in self.steps.items():
            self.entry += [f"%a{s} = getelementptr i64, ptr %bases, i64 {s}", f"%b{s} = load i64, ptr %a{s}"]
            self.entry.append(f"%p{s} = getelementptr double, ptr %arena, i64 %b{s}")
            self.body += [f"%d{s} = mul i64 %t, {d}", f"%q{s} = getelementptr double, ptr %p{s}, i64 %d{s}"]
        for cell, value in loop.loads.items():
            if cell in loop.carried:
                first = self.loaded(self.entry, cell)
                self.phis.append((value, 1, first, loop.written[loop.carried[cell]]))
            else:
                lines = self.entry if value in self.fixed else self.body
                lines.append(f"{value} = load double, ptr {self.place(lines, cell)}")
        for line in loop.lines:
            if type(line) is Lanes:
                self.lanes(line)
            elif line[0] == "guard":
                self.guard(*line[1:])
            elif line[0] == "call":
                self.call(*line[1:])
            else:
                self.move(*line)
        self.store()
        bad, all_bad = self.checked()
        no_number = self.no_number()
        phis = [self.phi(*phi) for phi in self.carried_phis()]
        return FRAME.format(
            declared=self.declarations(),
            wide=WIDE,
            entry="\n  ".join(self.entry),
            phis="\n  ".join(phis),
            body="\n  ".join(self.body),
            end="\n  ".join(self.end),
            bad=bad,
            all_bad=all_bad,
            tolerant="false" if loop.tolerant else "true",
            no_number=no_number,
            no_number_class=NO_NUMBER,
            infinite_class=INFINITE,
            failed=self.failed,
            guards=loop.guards,
            beyond=FAILED,
        )

    def name(self) -> str:
        return f"%v{next(self.fresh)}"

    # --- memory ---

    def based(self) -> tuple:
        """(cell -> (its pointer, places beyond it), the places of the pointers in the first trip)."""
        found = {}
        bases = []
        self.steps = {}
        last = None
        loop = self.loop
        for d, b in sorted({(d, b) for b, d in (*loop.loads, *loop.stores, *loop.meeting)}):
            if last is None or last[0] != d or b - last[1] > max(abs(d), POINTER_PLACES):
                self.steps[len(bases)] = d
                bases.append(b)
            last = d, b
            found[b, d] = len(bases) - 1, b - bases[-1]
        return found, bases

    def place(self, lines: list, cell: tuple) -> str:
        """Where the cell lies in the first trip, or in this one."""
        found, (s, away) = self.name(), self.pointers[cell]
        base = f"%{'p' if lines is self.entry else 'q'}{s}"
        lines.append(f"{found} = getelementptr double, ptr {base}, i64 {away}")
        return found

    def loaded(self, lines: list, cell: tuple, n: int = 1) -> str:
        place, found = self.place(lines, cell), self.name()
        lines.append(f"{found} = load {kind_of(n)}, ptr {place}, align 8")
        return found

    def move(self, how: str, value: str, cell: tuple) -> None:
        place = self.place(self.body, cell)
        if how == "load":
            self.body.append(f"{value} = load double, ptr {place}")
        else:
            self.body.append(f"store double {self.scalar(value)}, ptr {place}")

    def store(self) -> None:
        """What others read, at the end of a trip."""
        stores, done = self.loop.stores, set()
        for (b, d), value in stores.items():
            vector, at, n = self.lane.get(value, ("", 1, 1))
            line = [(b + k, d) for k in range(n)]
            if not at and all([self.lane.get(stores.get(c)) == (vector, k, n) for k, c in enumerate(line)]):
                self.body.append(f"store {kind_of(n)} {vector}, ptr {self.place(self.body, (b, d))}, align 8")
                done.update(line)
        for cell, value in stores.items():
            if cell not in done:
                self.move("store", value, cell)

    # --- lanes ---

    def scalar(self, name: str) -> str:
        """The name, read from its vector if that is where it is."""
        if name in self.lane and name not in self.read:
            vector, at, n = self.lane[name]
            self.body.append(f"{name} = extractelement {kind_of(n)} {vector}, i64 {at}")
            self.read.add(name)
        return name

    def is_line(self, names: list) -> bool:
        """Are these neighbouring cells that are read from memory in each trip?"""
        first = self.cell_of.get(names[0])
        return first is not None and all(
            [
                cell == (first[0] + k, first[1]) and cell not in self.loop.carried
                for k, cell in enumerate(map(self.cell_of.get, names))
            ]
        )

    def is_fixed(self, names: list) -> bool:
        return all([name[0] != "%" or name in self.fixed for name in names])

    def is_carried(self, names: list) -> bool:
        return all([self.cell_of.get(name) in self.loop.carried for name in names])

    def source(self, names: list):
        """The vector whose lanes all of them are; None where there is none."""
        found = {self.lane[name][0] for name in names if name in self.lane}
        return self.lane[names[0]] if len(found) == 1 and all([name in self.lane for name in names]) else None

    def is_ready(self, names: list) -> bool:
        """Is a vector of these names there, or soon made?"""
        return (
            tuple(names) in self.vectors
            or len(set(names)) == 1
            or self.source(names) is not None
            or self.is_fixed(names)
            or self.is_line(names)
            or self.is_carried(names)
        )

    def vector(self, names: list) -> str:
        found = self.vectors.get(tuple(names))
        if found is None:
            found = self.vectors[tuple(names)] = self.new_vector(names)
        return found

    def new_vector(self, names: list) -> str:
        n, of = len(names), self.source(names)
        if of is not None:
            return self.shuffled(of[0], of[2], [self.lane[name][1] for name in names])
        if self.is_fixed(names):
            return self.inserted(self.entry, names)
        if self.is_line(names):
            return self.loaded(self.body, self.cell_of[names[0]], n)
        if len(set(names)) == 1:
            return self.shuffled(self.inserted(self.body, names[:1], n), n, [0] * n)
        if self.is_carried(names):
            return self.carried_vector(names)
        return self.inserted(self.body, [self.scalar(name) for name in names])

    def shuffled(self, vector: str, n: int, lanes: list) -> str:
        found, mask = self.name(), ", ".join([f"i32 {k}" for k in lanes])
        kind = kind_of(n)
        self.body.append(
            f"{found} = shufflevector {kind} {vector}, {kind} poison, <{len(lanes)} x i32> <{mask}>"
        )
        return found

    def inserted(self, lines: list, names: list, n: int = 0) -> str:
        """A vector of these lanes (and others, up to n)."""
        found, kind = "poison", kind_of(n or len(names))
        for k, name in enumerate(names):
            one = self.name()
            lines.append(f"{one} = insertelement {kind} {found}, double {name}, i64 {k}")
            found = one
        return found

    def carried_vector(self, names: list) -> str:
        """Numbers that the trip before left."""
        loop, found = self.loop, self.name()
        cells = [self.cell_of[name] for name in names]
        first = self.inserted(self.entry, [self.loaded(self.entry, cell) for cell in cells])
        self.carried.append((found, len(names), first, [loop.written[loop.carried[cell]] for cell in cells]))
        return found

    def carried_phis(self) -> list:
        """(name, lanes, first value, value after the trip) of what goes from one trip to the next."""
        found = []
        while len(found) < len(self.carried):  # (a vector may need another one)
            name, n, first, last = self.carried[len(found)]
            found.append((name, n, first, self.vector(last)))
        single = [(name, n, first, self.scalar(last)) for name, n, first, last in self.phis]
        return [*found, *single, *self.checks]

    def phi(self, name: str, n: int, first: str, last: str) -> str:
        return f"{name} = phi {kind_of(n)} [ {first}, %entry ], [ {last}, %next ]"

    # --- rows ---

    def lanes(self, row: Lanes) -> None:
        n, costly = len(row.made), row.name in COSTLY
        # (the interpreter has NumPy's loops for lines, and the functions of single numbers for less)
        fit = n > (LINE_ELEMENTS if row.name in LIBM else 1) and not self.loop.tolerant
        if not fit or not (costly or all([self.is_ready(names) for names in row.given])):
            for made, *given in zip(row.made, *row.given, strict=True):
                self.single(row.name, made, [self.scalar(x) for x in given])
            return
        given = [self.vector(names) for names in row.given]
        self.widths.add(n)
        made = (
            self.function(row.name, n, given[0]) if row.name in LIBM else self.operation(row.name, n, given)
        )
        self.vectors[tuple(row.made)] = made
        self.lane.update({name: (made, k, n) for k, name in enumerate(row.made)})

    def guard(self, truth: int, x: str) -> None:
        """The first guard that fails is kept, as 1 + its number."""
        self.asked += 1
        q, f, r, k = [self.name() for _ in range(4)]
        self.body += [
            f"{q} = fcmp {'oeq' if truth else 'une'} double {self.scalar(x)}, 0.0",
            f"{f} = icmp eq i64 {self.failed}, 0",
            f"{r} = and i1 {f}, {q}",
            f"{k} = select i1 {r}, i64 {self.asked}, i64 {self.failed}",
        ]
        self.failed = k

    def address(self, n: int) -> str:
        """What follows the bases, in the memory where these are."""
        place, found = self.name(), self.name()
        self.entry.append(f"{place} = getelementptr i64, ptr %bases, i64 {len(self.bases) + n}")
        self.entry.append(f"{found} = load ptr, ptr {place}")
        return found

    def call(self, name: str, begin: int) -> None:
        """A row that calls others, as the interpreter does it."""
        if not self.called:
            self.every_row = self.address(0)
        if name not in self.called:
            self.called[name] = self.address(1 + len(self.called))
        at, row, answer, fine, bad = [self.name() for _ in range(5)]
        n = f", i64 {self.loop.sample.rows[begin + 1]}" * (name in COUNTED)
        self.body += [
            f"{at} = mul i64 %t, {self.loop.every_row.shape[1]}",
            f"{row}f = getelementptr i32, ptr {self.every_row}, i64 {at}",
            f"{row} = getelementptr i32, ptr {row}f, i64 {begin}",
            f"{answer} = call i64 {self.called[name]}(ptr {row}, ptr %arena{n})",
            f"{fine} = icmp eq i64 {answer}, 0",
            f"{bad} = select i1 {fine}, double 0.0, double {NAN}",
        ]
        self.answers.append(bad)

    def single(self, name: str, made: str, given: list) -> None:
        self.body.append(self.renamed(BODIES[name], name, made, given))
        if name in LIBM:
            self.functions[name] = f"declare double @{name}(double)"
        if name == "tanh_slope":
            self.called_slopes("")

    def renamed(self, body: str, name: str, made: str, given: list) -> str:
        words = {WORDS[c]: x for c, x in zip(READS[NUMBER[name]], given, strict=True)}
        words |= {"r": made, **{word: f"{made}{word}" for word in "pqtuvw"}}
        return WORD.sub(lambda m: words[m[1]], body)

    def operation(self, name: str, n: int, given: list) -> str:
        if name == "tanh_slope":
            self.called_slopes(tanh_slopes(n))
        made = self.name()
        self.body.append(self.renamed(vector_text(BODIES[name], n), name, made, given))
        return made

    def called_slopes(self, text: str) -> None:
        self.functions |= {"cosh": "declare double @cosh(double)", "tanh_slope": TANH_SLOPE}
        if text:
            self.functions[text] = text

    def function(self, name: str, n: int, x: str) -> str:
        b = Builder(n, 64)
        b.fresh, b.lines = self.fresh, self.body
        return elementary.emit_function(b, name, x)

    def declarations(self) -> str:
        found = [*self.functions.values()]
        for n in sorted(self.widths):
            found += declared_intrinsics(n)
        return "\n".join(found)

    # --- are the results finite? ---

    def checked(self) -> tuple:
        """(what is 0 if all single results of the trips so far are finite, what is 0 if all results are)"""
        names = [*self.loop.checks]
        whole = {}  # vector -> how many of its lanes are asked for
        for vector in [self.lane[v][0] for v in names if v in self.lane]:
            whole[vector] = whole.get(vector, 0) + 1
        terms = {}
        for v in names:
            vector, at, n = self.lane.get(v, (v, 0, 1))
            if n == whole.get(vector, 1):
                if not at:
                    terms.setdefault(n, []).append(vector)
            else:
                terms.setdefault(1, []).append(self.scalar(v))
        bad = self.summed(1, terms.pop(1, []), "%bad", self.answers)
        all_bad = bad
        for n, some in terms.items():
            phi = self.name()
            total = self.summed(n, some, phi)
            self.checks.append((phi, n, "zeroinitializer", total))
            for k in range(n):
                one, both = self.name(), self.name()
                self.end.append(f"{one} = extractelement {kind_of(n)} {total}, i64 {k}")
                self.end.append(f"{both} = fadd double {all_bad}, {one}")
                all_bad = both
        return bad, all_bad

    def summed(self, n: int, values: list, before: str, others=()) -> str:
        """0 if all of them are finite, else no number."""
        terms = [*others]
        for v in values:
            z = self.name()
            self.body.append(f"{z} = fsub {kind_of(n)} {v}, {v}")
            terms.append(z)
        terms.append(before)
        while len(terms) > 1:
            z = self.name()
            self.body.append(f"{z} = fadd {kind_of(n)} {terms.pop(0)}, {terms.pop(0)}")
            terms.append(z)
        return terms[0]

    def no_number(self) -> str:
        """Is one of them no number?  (If that is not asked, all that is not finite counts as such.)"""
        found = "%no_number"
        for v in self.loop.checks if self.loop.tolerant else ():
            one, several = self.name(), self.name()
            self.body += [f"{one} = fcmp uno double {v}, 0.0", f"{several} = or i1 {found}, {one}"]
            found = several
        return found
