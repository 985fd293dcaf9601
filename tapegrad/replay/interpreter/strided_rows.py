"""The rows of the interpreter whose operands lie in lines of the arena: a loop over lines of lines, of which
each is done some elements at a time.  An operand goes on with the result, or stays where it is all along a
line; or the result stays, and a line is added up there.  Of some rows a table tells where each line begins
(`tabled`).

Rows have, after their operation: the elements of a line; where the result and the operands begin; how many
lines, and the steps between them; how many of these, and the steps between."""

import re

VECTOR_ELEMENTS = 4  # elements that are done at once
WIDE_ELEMENTS = 16  # elements of a function that are done at once: it waits for each of its operations
MANY, WIDE = [f"<{n} x double>" for n in (VECTOR_ELEMENTS, WIDE_ELEMENTS)]
EXPONENT, SIZE = 0x7FF << 52, (1 << 63) - 1  # the bits of an infinite number, and all but the sign
BITS = {MANY: f"<{VECTOR_ELEMENTS} x i64>", WIDE: f"<{WIDE_ELEMENTS} x i64>", "double": "i64"}
ENDS = {"s": (1, "double"), "v": (VECTOR_ELEMENTS, MANY), "w": (WIDE_ELEMENTS, WIDE)}
WORD = re.compile(r"%(old|[rxyzpqtuvw])\b")  # of the text of an operation
FIELDS = "dabc"  # the result, and the operands x, y, z
# The answer of a row: of results, and what else ends the run; of a guard.
NO_NUMBER, INFINITE, FAILED = 1, 2, 4
PARAMETERS = "ptr %row, ptr %arena, i64 %n"


def many(v: int, n: int = VECTOR_ELEMENTS) -> str:
    return f"<{', '.join([f'i64 {v}'] * n)}>"


def class_of_size(size: str, to: str) -> str:
    """The class of a number by its bits without the sign: 0 if it is finite."""
    return f"""%endless_{to} = icmp eq i64 %{size}, {EXPONENT}
  %none_{to} = icmp sgt i64 %{size}, {EXPONENT}
  %kind_{to} = select i1 %endless_{to}, i64 {INFINITE}, i64 0
  %{to} = select i1 %none_{to}, i64 {NO_NUMBER}, i64 %kind_{to}"""


def field(n: int, name: str) -> str:
    return f"%f{n} = getelementptr i32, ptr %row, i64 {n}\n  %g{n} = load i32, ptr %f{n}\n  %{name} = sext i32 %g{n} to i64\n  "


def vector_text(body: str, n: int) -> str:
    """The text for several elements."""
    for one, many in (
        ("0.0", "zeroinitializer"),
        ("f64", f"v{n}f64"),
        ("double", f"<{n} x double>"),
        ("i1 ", f"<{n} x i1> "),
    ):
        body = body.replace(one, many)
    return re.sub(r"@(tanh_slope|own_\w+)\(", rf"@\1_of_{n}(", body)


def sum_code() -> str:
    """%total: the sum of the elements of %lanes, and %alone."""
    text, last = "", "alone"
    for n in range(VECTOR_ELEMENTS):
        text += f"%e{n} = extractelement {MANY} %lanes, i64 {n}\n  %total{n} = fadd double %{last}, %e{n}\n  "
        last = f"total{n}"
    return text + f"%total = fadd double %{last}, 0.0\n  "


class RowFunction:
    """The function of such rows, by its text: `body` makes %r of %x, %y, %z and of %old, what was there;
    `way` says of each operand whether it goes on (1) or stays (0).  `summed`: the result stays.  If `checked`,
    it gives bits of `NO_NUMBER` and `INFINITE` for such results. `ends`: how many elements are done at
    once, by `ENDS`."""

    def __init__(
        self,
        name: str,
        body: str,
        way: str,
        summed: bool,
        checked: bool,
        tabled: bool = False,
        ends: str = "vs",
    ):
        self.ends = ends
        self.operation, self.body, self.summed, self.checked, self.tabled = (
            name,
            body,
            summed,
            checked,
            tabled,
        )
        self.name = f"l_{name}_{way}{'_summed' * summed}{'_tabled' * tabled}"
        self.operands = [(x, f, on == "1") for x, f, on in zip("xyz", FIELDS[1:], way, strict=False)]
        self.used = ["d", *[f for _, f, _ in self.operands]]

    def step(self, end: str, at: str) -> str:
        """What is done to the elements at `at`: several, or one (`end` is s)."""
        (n, kind), one = ENDS[end], "one" if end == "s" else "all"
        text, names = "", {}
        for x, f, on in self.operands:
            names[x] = x + (end if on else one)
            if on:
                text += f"%{x}{end}g = getelementptr double, ptr %{f}p, i64 {at}\n  %{x}{end} = load {kind}, ptr %{x}{end}g, align 8\n  "
        room = f"%sum{end}"
        if not self.summed:
            room = f"%to{end}"
            text += f"{room} = getelementptr double, ptr %dp, i64 {at}\n  "
        if "%old" in self.body:
            text += f"%old{end} = load {kind}, ptr {room}, align 8\n  "
        body = vector_text(self.body, n) if n > 1 else self.body
        text += WORD.sub(lambda m: f"%{names.get(m[1], m[1] + end)}", body)
        text += f"\n  store {kind} %r{end}, ptr {room}, align 8\n  "
        return text + ("" if self.summed else self.noted(f"r{end}", end, kind))

    def noted(self, r: str, end: str, kind: str) -> str:
        """(By the bits: arithmetic with what is not finite would be noted by the processor.)"""
        if not self.checked:
            return ""
        bits, n = BITS[kind], ENDS[end][0]
        size, largest = (SIZE, "llvm.smax.i64") if n == 1 else (many(SIZE, n), f"llvm.smax.v{n}i64")
        return f"""%bits{r} = bitcast {kind} %{r} to {bits}
  %size{r} = and {bits} %bits{r}, {size}
  %top{r} = load {bits}, ptr %top{end}
  %above{r} = call {bits} @{largest}({bits} %top{r}, {bits} %size{r})
  store {bits} %above{r}, ptr %top{end}
  """

    def line(self) -> str:
        """At the beginning of a line."""
        text = ""
        for f in self.used:
            if self.tabled:
                text += f"%{f}3 = add i64 %{f}, %j\n  %{f}o = getelementptr i32, ptr %table, i64 %{f}3\n  "
                text += f"%{f}k = load i32, ptr %{f}o\n  %{f}2 = sext i32 %{f}k to i64\n  "
            else:
                text += f"%{f}o = mul i64 %j, %o{f}\n  %{f}2 = add i64 %{f}3, %{f}o\n  "
            text += f"%{f}p = getelementptr double, ptr %arena, i64 %{f}2\n  "
        for x, f, on in self.operands:
            if not on:
                text += f"""%{x}one = load double, ptr %{f}p
  %{x}first = insertelement {MANY} poison, double %{x}one, i64 0
  %{x}all = shufflevector {MANY} %{x}first, {MANY} poison, <{VECTOR_ELEMENTS} x i32> zeroinitializer
  """
        if self.summed:
            text += f"%before = load double, ptr %dp\n  store double %before, ptr %sums\n  store {MANY} zeroinitializer, ptr %sumv\n  "
        return text

    def end_of_line(self) -> str:
        if not self.summed:
            return ""
        text = f"%lanes = load {MANY}, ptr %sumv\n  %alone = load double, ptr %sums\n  {sum_code()}"
        return text + f"store double %total, ptr %dp\n  {self.noted('total', 's', 'double')}"

    def text(self) -> str:
        starts = [field(2 + FIELDS.index(f), f) for f in self.used]
        steps = [
            field(n + FIELDS.index(f), which + f) for n, which in ((7, "o"), (12, "u")) for f in self.used
        ]
        outer = [f"%{f}u = mul i64 %k, %u{f}\n  %{f}3 = add i64 %{f}, %{f}u\n  " for f in self.used]
        if self.tabled:  # (one level of lines)
            steps, outer = [], []
        rooms = [
            f"%top{end} = alloca {BITS[kind]}\n  store {BITS[kind]} {zero}, ptr %top{end}\n  "
            for end, (_, kind), zero in self.each_end()
        ]
        bounds = [f"%bound{end} = and i64 %n, {-n}\n  " for end, (n, _), _ in self.each_end()]
        return f"""
define internal i64 @{self.name}({PARAMETERS}{", ptr %table" * self.tabled}) {{
entry:
  {"".join(rooms)}%sumv = alloca {MANY}
  %sums = alloca double
  {field(6, "m")}{field(11, "l")}{"".join(starts)}{"".join(steps)}{"".join(bounds)}br label %third
third:
  %k = phi i64 [ 0, %entry ], [ %k1, %third_end ]
  {"".join(outer)}br label %second
second:
  %j = phi i64 [ 0, %third ], [ %j1, %second_end ]
  {self.line()}br label %head{self.ends[0]}
{self.loops()}second_end:
  {self.end_of_line()}%j1 = add i64 %j, 1
  %again = icmp slt i64 %j1, %m
  br i1 %again, label %second, label %third_end
third_end:
  %k1 = add i64 %k, 1
  %anew = icmp slt i64 %k1, %l
  br i1 %anew, label %third, label %end
end:
  {self.top()}{class_of_size("top", "answer")}
  ret i64 %answer
}}
"""

    def each_end(self) -> list:
        return [(end, ENDS[end], "0" if end == "s" else "zeroinitializer") for end in self.ends]

    def loops(self) -> str:
        """A loop for each number of elements that are done at once, from where the one before it ends."""
        text, begin = "", "0"
        following = [*[f"head{end}" for end in self.ends[1:]], "second_end"]
        for (end, (n, _), _), then in zip(self.each_end(), following, strict=True):
            text += f"""head{end}:
  %some{end} = icmp slt i64 {begin}, %bound{end}
  br i1 %some{end}, label %loop{end}, label %{then}
loop{end}:
  %i{end} = phi i64 [ {begin}, %head{end} ], [ %next{end}, %loop{end} ]
  {self.step(end, f"%i{end}")}%next{end} = add i64 %i{end}, {n}
  %on{end} = icmp slt i64 %next{end}, %bound{end}
  br i1 %on{end}, label %loop{end}, label %{then}
"""
            begin = f"%bound{end}"
        return text

    def top(self) -> str:
        """The largest size of a result."""
        text, last = "", "0"
        for end, (n, kind), _ in self.each_end():
            bits = BITS[kind]
            text += f"%met{end} = load {bits}, ptr %top{end}\n  "
            met = f"%met{end}"
            if n > 1:
                text += f"%one{end} = call i64 @llvm.vector.reduce.smax.v{n}i64({bits} {met})\n  "
                met = f"%one{end}"
            text += f"%most{end} = call i64 @llvm.smax.i64(i64 {last}, i64 {met})\n  "
            last = f"%most{end}"
        return text + f"%top = add i64 {last}, 0\n  "
