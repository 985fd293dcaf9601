"""Products with a square matrix that is zero but near its diagonal: an identity, a matrix times one,
differences on a grid.

Whether it is is seen when the product is done, by its elements.  A full matrix shows that it is none in its
first row.  The diagonal itself always counts as part of the band: so each element of the other operand is
multiplied, and one that is not finite is noted."""

from collections.abc import Callable

from ..costs import BAND_DIAGONALS, BANDED_UNKNOWNS

BAND_LANES = 32
MANY, ONES, INTS = f"<{BAND_LANES} x double>", f"<{BAND_LANES} x i1>", f"<{BAND_LANES} x i64>"
SPREAD = f"<{BAND_LANES} x i32> zeroinitializer"


def loop_code(i: str, start: str, stop: str, body: str, step: int = 1) -> str:
    """Lines that do `body` for %i from start to stop; %i_at is room for it."""
    return f"""store i64 {start}, ptr %{i}_at
  br label %{i}_test
{i}_test:
  %{i} = load i64, ptr %{i}_at
  %{i}_more = icmp slt i64 %{i}, {stop}
  br i1 %{i}_more, label %{i}_body, label %{i}_end
{i}_body:
  {body}
  %{i}_next = add i64 %{i}, {step}
  store i64 %{i}_next, ptr %{i}_at
  br label %{i}_test
{i}_end:
  """


def rooms(*names: str) -> str:
    return "".join([f"%{name}_at = alloca i64\n  " for name in names])


def in_lanes(i: str, body: Callable) -> str:
    """Lines that do body(%i, end, read, write) for elements from %i on, some at a time, of %n: `end` is for
    their names; `read` and `write` give the text that moves them, (name, pointer) -> text."""
    lanes = ", ".join([f"i64 {k}" for k in range(BAND_LANES)])
    mask = f"""%{i}_left = sub i64 %n, %{i}_whole
  %{i}_one = insertelement {INTS} poison, i64 %{i}_left, i64 0
  %{i}_all = shufflevector {INTS} %{i}_one, {INTS} poison, {SPREAD}
  %{i}_mask = icmp slt {INTS} <{lanes}>, %{i}_all
  """

    def read(name: str, p: str) -> str:
        return f"%{name}_p = getelementptr double, ptr {p}, i64 %{i}\n  %{name} = load {MANY}, ptr %{name}_p, align 8\n  "

    def write(name: str, p: str) -> str:
        return f"store {MANY} %{name}, ptr %{p}_p, align 8"

    def read_rest(name: str, p: str) -> str:
        given = f"ptr %{name}_p, i32 8, {ONES} %{i}_mask, {MANY} zeroinitializer"
        load = f"%{name} = call {MANY} @llvm.masked.load.v{BAND_LANES}f64.p0({given})"
        return f"%{name}_p = getelementptr double, ptr {p}, i64 %{i}_whole\n  {load}\n  "

    def write_rest(name: str, p: str) -> str:
        return f"call void @llvm.masked.store.v{BAND_LANES}f64.p0({MANY} %{name}, ptr %{p}_p, i32 8, {ONES} %{i}_mask)"

    return f"""%{i}_whole = and i64 %n, {-BAND_LANES}
  {loop_code(i, "0", f"%{i}_whole", body("m", read, write), BAND_LANES)}%{i}_some = icmp slt i64 %{i}_whole, %n
  br i1 %{i}_some, label %{i}_rest, label %{i}_done
{i}_rest:
  {mask}{body("r", read_rest, write_rest)}
  br label %{i}_done
{i}_done:
  """


def noted_code(end: str, read: Callable, write: Callable) -> str:
    return f"""{read(f"v{end}", "%row")}%other{end} = fcmp une {MANY} %v{end}, zeroinitializer
  %each{end} = zext {ONES} %other{end} to {INTS}
  %before{end} = load {INTS}, ptr %counts
  %after{end} = add {INTS} %before{end}, %each{end}
  store {INTS} %after{end}, ptr %counts"""


def diagonal_code(j: str, first: str) -> str:
    """Adds to %near what is not zero on one diagonal, which begins there."""
    body = f"""%{j}step = mul i64 %{j}, %away
  %{j}place = add i64 %{j}step, {first}
  %{j}p = getelementptr double, ptr %x, i64 %{j}place
  %{j}v = load double, ptr %{j}p
  %{j}other = fcmp une double %{j}v, 0.0
  %{j}one = zext i1 %{j}other to i64
  %{j}before = load i64, ptr %near
  %{j}after = add i64 %{j}before, %{j}one
  store i64 %{j}after, ptr %near"""
    return loop_code(j, "0", "%length", body)


# How many diagonals on a side are not zero, in n lines of n elements; -1 if more than `most`.  All elements
# are counted, and then those near the diagonal; a line now and then shows that there are too many.
WIDTH = f"""
define internal i64 @width(ptr %x, i64 %n, i64 %ld, i64 %most) {{
  {rooms("i", "j", "b", "k", "l")}%counts = alloca {INTS}
  %near = alloca i64
  store {INTS} zeroinitializer, ptr %counts
  store i64 0, ptr %near
  %both = mul i64 %most, 2
  %band = add i64 %both, 1
  {
    loop_code(
        "i",
        "0",
        "%n",
        '''%skip = mul i64 %i, %ld
  %row = getelementptr double, ptr %x, i64 %skip
  '''
        + in_lanes("j", noted_code)
        + f'''%turn = and i64 %i, 15
  %look = icmp eq i64 %turn, 0
  br i1 %look, label %looking, label %on
looking:
  %so_far = load {INTS}, ptr %counts
  %sum = call i64 @llvm.vector.reduce.add.v{BAND_LANES}i64({INTS} %so_far)
  %lines = add i64 %i, 1
  %room = mul i64 %lines, %band
  %over = icmp sgt i64 %sum, %room
  br i1 %over, label %full, label %on
on:''',
    )
}%all = load {INTS}, ptr %counts
  %total = call i64 @llvm.vector.reduce.add.v{BAND_LANES}i64({INTS} %all)
  {
    loop_code(
        "b",
        "0",
        "%band",
        '''%length = sub i64 %n, %b
  %away = add i64 %ld, 1
  %down = mul i64 %b, %ld
  %is_first = icmp eq i64 %b, 0
  '''
        + diagonal_code("k", "%b")
        + '''br i1 %is_first, label %one, label %other
other:
  '''
        + diagonal_code("l", "%down")
        + '''br label %one
one:
  %found = load i64, ptr %near
  %is_all = icmp eq i64 %found, %total
  %is_last = icmp eq i64 %b, %most
  br i1 %is_all, label %done, label %further
done:
  ret i64 %b
further:
  br i1 %is_last, label %full, label %next
next:''',
    )
}br label %full
full:
  ret i64 -1
}}
"""


def terms(kind: str) -> str:
    """c = the sum over t of x y, for a line of n elements: x stays along the line, or goes on with it."""

    def body(end: str, read: Callable, write: Callable) -> str:
        e = kind + end
        spread = f"""%{e}number = load double, ptr %{e}xt
  %{e}lane = insertelement {MANY} poison, double %{e}number, i64 0
  %{e}x = shufflevector {MANY} %{e}lane, {MANY} poison, {SPREAD}
  """
        inner = loop_code(
            f"t{e}",
            "0",
            "%terms",
            f"""%{e}xo = mul i64 %t{e}, %xt
  %{e}yo = mul i64 %t{e}, %yt
  %{e}xt = getelementptr double, ptr %x, i64 %{e}xo
  %{e}yt = getelementptr double, ptr %y, i64 %{e}yo
  {spread if kind == "one" else read(f"{e}x", f"%{e}xt")}{read(f"{e}y", f"%{e}yt")}%{e}old = load {MANY}, ptr %sum{kind}
  %{e}product = fmul contract {MANY} %{e}x, %{e}y
  %{e}new = fadd contract {MANY} %{e}old, %{e}product
  store {MANY} %{e}new, ptr %sum{kind}""",
        )
        return f"""store {MANY} zeroinitializer, ptr %sum{kind}
  {inner}{read(f"{e}c", "%c")}%{e}sum = load {MANY}, ptr %sum{kind}
  {write(f"{e}sum", f"{e}c")}"""

    return in_lanes(kind, body)


# c = the sum of x y over terms, for n elements; x and y with steps from element to element, and from term to
# term.
LINE = f"""
define internal void @line(ptr %c, ptr %x, i64 %xs, i64 %xt, ptr %y, i64 %ys, i64 %yt, i64 %n, i64 %terms) {{
  {rooms("one", "two", "l", "u", "tonem", "toner", "ttwom", "ttwor")}%sumone = alloca {MANY}
  %sumtwo = alloca {MANY}
  %ordered = icmp eq i64 %ys, 1
  %stays = icmp eq i64 %xs, 0
  br i1 %ordered, label %in_lanes, label %apart
in_lanes:
  br i1 %stays, label %single, label %both
single:
  {terms("one")}ret void
both:
  {terms("two")}ret void
apart:
  {
    loop_code(
        "u",
        "0",
        "%terms",
        '''%xo = mul i64 %u, %xt
  %yo = mul i64 %u, %yt
  %xu = getelementptr double, ptr %x, i64 %xo
  %yu = getelementptr double, ptr %y, i64 %yo
  %first = icmp eq i64 %u, 0
  %xv = load double, ptr %xu
  '''
        + loop_code(
            "l",
            "0",
            "%n",
            '''%yl = mul i64 %l, %ys
  %yp = getelementptr double, ptr %yu, i64 %yl
  %cp = getelementptr double, ptr %c, i64 %l
  %yv = load double, ptr %yp
  %cv = load double, ptr %cp
  %old = select i1 %first, double 0.0, double %cv
  %product = fmul contract double %xv, %yv
  %new = fadd contract double %old, %product
  store double %new, ptr %cp''',
        ),
    )
}ret void
}}
"""

# C = X Y, p columns and X square with these steps and this width: row by row, from Y's.
LEFT = f"""
define internal void @left(ptr %c, ptr %x, i64 %xi, i64 %xk, ptr %y, i64 %yk, i64 %yj, i64 %n, i64 %p, i64 %b) {{
  {rooms("i")}{
    loop_code(
        "i",
        "0",
        "%n",
        '''%low = sub i64 %i, %b
  %from = call i64 @llvm.smax.i64(i64 %low, i64 0)
  %high = add i64 %i, %b
  %beyond = add i64 %high, 1
  %to = call i64 @llvm.smin.i64(i64 %beyond, i64 %n)
  %terms = sub i64 %to, %from
  %ci = mul i64 %i, %p
  %cp = getelementptr double, ptr %c, i64 %ci
  %xrow = mul i64 %i, %xi
  %xcolumn = mul i64 %from, %xk
  %xplace = add i64 %xrow, %xcolumn
  %xp = getelementptr double, ptr %x, i64 %xplace
  %yrow = mul i64 %from, %yk
  %yp = getelementptr double, ptr %y, i64 %yrow
  call void @line(ptr %cp, ptr %xp, i64 0, i64 %xk, ptr %yp, i64 %yj, i64 %yk, i64 %p, i64 %terms)''',
    )
}ret void
}}
"""

# C = X Y, m rows and Y square of this width: its diagonals, put into %room, times X's rows.  Beside a row lie
# those before and after it, which meet zeros; where none do, it is a copy with zeros around it.
RIGHT = f"""
define internal void @right(ptr %c, ptr %x, i64 %xi, i64 %xk, ptr %y, i64 %yk, i64 %yj, i64 %m, i64 %n, i64 %b, ptr %room) {{
  {rooms("d", "j", "z", "i", "k")}%widths = mul i64 %b, 2
  %count = add i64 %widths, 1
  %filled = mul i64 %count, %n
  %copy = getelementptr double, ptr %room, i64 %filled
  %inner = getelementptr double, ptr %copy, i64 %b
  %length = add i64 %filled, %n
  %whole = add i64 %length, %widths
  %last = sub i64 %m, 1
  %back = sub i64 0, %b
  %step_k = icmp ne i64 %xk, 1
  %step_i = icmp ne i64 %xi, %n
  %loose = or i1 %step_k, %step_i
  {
    loop_code(
        "z",
        "0",
        "%whole",
        '''%zp = getelementptr double, ptr %room, i64 %z
  store double 0.0, ptr %zp''',
    )
}{
    loop_code(
        "d",
        "0",
        "%count",
        '''%off = sub i64 %d, %b
  %less = sub i64 0, %off
  %from = call i64 @llvm.smax.i64(i64 %less, i64 0)
  %over = sub i64 %n, %off
  %to = call i64 @llvm.smin.i64(i64 %over, i64 %n)
  %start = mul i64 %d, %n
  '''
        + loop_code(
            "j",
            "%from",
            "%to",
            '''%row = add i64 %j, %off
  %yrow = mul i64 %row, %yk
  %ycolumn = mul i64 %j, %yj
  %yplace = add i64 %yrow, %ycolumn
  %yp = getelementptr double, ptr %y, i64 %yplace
  %v = load double, ptr %yp
  %place = add i64 %start, %j
  %there = getelementptr double, ptr %room, i64 %place
  store double %v, ptr %there''',
        ),
    )
}{
    loop_code(
        "i",
        "0",
        "%m",
        '''%ci = mul i64 %i, %n
  %cp = getelementptr double, ptr %c, i64 %ci
  %xrow = mul i64 %i, %xi
  %xp = getelementptr double, ptr %x, i64 %xrow
  %is_first = icmp eq i64 %i, 0
  %is_last = icmp eq i64 %i, %last
  %at_end = or i1 %is_first, %is_last
  %alone = or i1 %at_end, %loose
  br i1 %alone, label %copied, label %between
between:
  %sooner = getelementptr double, ptr %xp, i64 %back
  br label %ready
copied:
  '''
        + loop_code(
            "k",
            "0",
            "%n",
            '''%xcolumn = mul i64 %k, %xk
  %xq = getelementptr double, ptr %xp, i64 %xcolumn
  %w = load double, ptr %xq
  %to_k = getelementptr double, ptr %inner, i64 %k
  store double %w, ptr %to_k''',
        )
        + '''br label %ready
ready:
  %xbegin = phi ptr [ %sooner, %between ], [ %copy, %k_end ]
  call void @line(ptr %cp, ptr %xbegin, i64 1, i64 1, ptr %room, i64 1, i64 %n, i64 %n, i64 %count)''',
    )
}ret void
}}
"""

# C (m, p) = X Y, if one of these is square and banded: was it?  The steps between rows and between columns
# follow each operand.
BANDED = f"""
define internal i1 @banded(ptr %c, ptr %x, i64 %xi, i64 %xk, ptr %y, i64 %yk, i64 %yj, i64 %m, i64 %n, i64 %p, ptr %room) {{
  %most0 = sub i64 %n, 8
  %most1 = sdiv i64 %most0, 16
  %most = call i64 @llvm.smin.i64(i64 %most1, i64 {BAND_DIAGONALS})
  %fits = icmp sge i64 %n, {BANDED_UNKNOWNS}
  %tall = icmp eq i64 %m, %n
  %ask_x = and i1 %fits, %tall
  br i1 %ask_x, label %of_x, label %not_x
of_x:
  %xld = call i64 @llvm.smax.i64(i64 %xi, i64 %xk)
  %xb = call i64 @width(ptr %x, i64 %n, i64 %xld, i64 %most)
  %is_x = icmp sge i64 %xb, 0
  br i1 %is_x, label %with_x, label %not_x
with_x:
  call void @left(ptr %c, ptr %x, i64 %xi, i64 %xk, ptr %y, i64 %yk, i64 %yj, i64 %n, i64 %p, i64 %xb)
  ret i1 1
not_x:
  %wide = icmp eq i64 %p, %n
  %ask_y = and i1 %fits, %wide
  br i1 %ask_y, label %of_y, label %not_y
of_y:
  %yld = call i64 @llvm.smax.i64(i64 %yk, i64 %yj)
  %yb = call i64 @width(ptr %y, i64 %n, i64 %yld, i64 %most)
  %is_y = icmp sge i64 %yb, 0
  br i1 %is_y, label %with_y, label %not_y
with_y:
  call void @right(ptr %c, ptr %x, i64 %xi, i64 %xk, ptr %y, i64 %yk, i64 %yj, i64 %m, i64 %n, i64 %yb, ptr %room)
  ret i1 1
not_y:
  ret i1 0
}}
"""

DECLARED = f"""
declare {MANY} @llvm.masked.load.v{BAND_LANES}f64.p0(ptr, i32, {ONES}, {MANY})
declare void @llvm.masked.store.v{BAND_LANES}f64.p0({MANY}, ptr, i32, {ONES})
declare i64 @llvm.vector.reduce.add.v{BAND_LANES}i64({INTS})
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
"""
TEXT = DECLARED + WIDTH + LINE + LEFT + RIGHT + BANDED


def workspace_size(n: int) -> int:
    """Elements of the room in which the diagonals of n by n are put together, and a row is copied."""
    return (2 * BAND_DIAGONALS + 2) * n + 2 * BAND_DIAGONALS if n >= BANDED_UNKNOWNS else 1
