"""The machine code that runs blocks of small operations: an interpreter, compiled once for all programs and
kept on disk.

A row says an operation, how many elements it has, and where in one array of float64, the arena, those of the
result and of the operands lie: one element, or lines of them (interpreter.strided_rows.py), or each at a
place that a table tells.  So a slice, a transpose, a broadcast or a reshape is no row, but other places.

A row may also call NumPy's loop of a function or BLAS (interpreter.foreign_calls.py), or stand for a compiled
loop over many rows (interpreter.loop_rerolling.py).  The answer says whether a result was not finite: what
NumPy would note there is found out by who asked."""

import ctypes
import ctypes.util
import functools
import math
import platform
import re

from ..._core.errors import Attempt
from ..._core.registry import load
from ...kernels.emit import elementary
from ...kernels.emit.llvm_builder import Builder
from .foreign_calls import (
    BlasCall,
    IndexedLine,
    LapackCall,
    OrderedLine,
    UfuncCall,
    blas,
)
from .strided_rows import (
    BITS,
    FAILED,
    FIELDS,
    INFINITE,
    MANY,
    NO_NUMBER,
    SIZE,
    VECTOR_ELEMENTS,
    WIDE,
    WIDE_ELEMENTS,
    RowFunction,
    class_of_size,
    field,
)

LIBM = ("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "cosh")  # along lines: those of the kernels
# Operations: name -> the text that makes %r of %x, %y and %z, and of %old, what was there.
CHECKED = {
    "add": "%r = fadd double %x, %y",
    "sub": "%r = fsub double %x, %y",
    "mul": "%r = fmul double %x, %y",
    "div": "%r = fdiv double %x, %y",
    "sqrt": "%r = call double @llvm.sqrt.f64(double %x)",
    **{name: f"%r = call double @{name}(double %x)" for name in LIBM},
    "tanh_slope": "%r = call double @tanh_slope(double %x, double %y)",
    "addto": "%r = fadd double %old, %x",
    "muladd": "%p = fmul double %x, %y\n  %r = fadd double %old, %p",
    # as NumPy's loops for vectors: the second of equal numbers
    **{
        name: f"%p = fcmp {how} double %x, %y\n  %q = fcmp uno double %x, 0.0\n  %t = or i1 %p, %q\n"
        "  %r = select i1 %t, double %x, double %y"
        for name, how in (("max", "ogt"), ("min", "olt"))
    },
    # x where it is less than y in absolute value; z, which is no number, elsewhere
    "within": """%p = call double @llvm.fabs.f64(double %x)
  %u = fcmp olt double %p, %y
  %r = select i1 %u, double %x, double %z""",
    # an index x of y elements, counted from the first; z, which is no number, for others
    "index": """%p = fcmp olt double %x, 0.0
  %q = fadd double %x, %y
  %t = select i1 %p, double %q, double %x
  %u = fcmp olt double %t, %y
  %v = fcmp oge double %t, 0.0
  %w = and i1 %u, %v
  %r = select i1 %w, double %t, double %z""",
}
ROUNDING = ("floor", "ceil", "trunc", "rint")
EXACT = {
    "copy": "%r = bitcast double %x to double",
    "neg": "%r = fneg double %x",
    "abs": "%r = call double @llvm.fabs.f64(double %x)",
    **{name: f"%r = call double @llvm.{name}.f64(double %x)" for name in ROUNDING},
    "copysign": "%r = call double @llvm.copysign.f64(double %x, double %y)",
    **{
        name: f"%q = fcmp {how} double %x, %y\n  %r = uitofp i1 %q to double"
        for name, how in (("lt", "olt"), ("le", "ole"), ("eq", "oeq"), ("ne", "une"))
    },
    "select": "%q = fcmp une double %x, 0.0\n  %r = select i1 %q, double %y, double %z",
}
BODIES = {**CHECKED, **EXACT}
OPERATIONS = (*BODIES, "guard")
OPERANDS = {name: sum([f"%{v}" in body for v in "xyz"]) for name, body in BODIES.items()}
# Operations on lines: which operands go on (1), and which stay (0).
WAYS = {1: ("1", "0"), 2: ("11", "10", "01"), 3: ("111", "011", "110", "101", "100")}
IN_LINES = {
    f"{name} {way}": RowFunction(name, BODIES[name], way, False, name in CHECKED)
    for name in OPERANDS
    if name not in LIBM
    for way in WAYS[OPERANDS[name]]
}
SUMMED = {"addto": "addto sum 1", "muladd": "muladd sum 11"}  # of which the result stays
IN_LINES |= {
    row: RowFunction(name, BODIES[name], row.split()[-1], True, True) for name, row in SUMMED.items()
}
# An infinite result of a finite number becomes nan.  The block is then done again by NumPy, which warns.
OWN_FUNCTION = """%t = call double @own_{name}(double %x)
  %p = fmul double %x, 0.0
  %q = fmul double %t, 0.0
  %u = fcmp ord double %p, 0.0
  %v = fcmp uno double %q, 0.0
  %w = and i1 %u, %v
  %r = select i1 %w, double %q, double %t"""
IN_LINES |= {
    f"{name} {way}": RowFunction(
        name, OWN_FUNCTION.format(name=name), way, False, True, ends="wvs" if way == "1" else "vs"
    )
    for name in LIBM
    for way in WAYS[1]
}
SINGLE = {f"{name} one": name for name in BODIES}
# Two operations one after the other along lines, of which only the second result is kept: (x how y) how z.
SECOND = {
    "mul": "fmul double %p, %z",
    "add": "fadd double %p, %z",
    "sub": "fsub double %p, %z",
    "rsub": "fsub double %z, %p",
}
PAIRED = {
    f"{first}_{second}": f"%p = f{first} double %x, %y\n  %r = {SECOND[second]}"
    for first, seconds in (("mul", SECOND), ("add", ("mul", "add")), ("sub", ("mul", "add")))
    for second in seconds
}
IN_LINES |= {
    f"{name} {way}": RowFunction(name, body, way, False, True)
    for name, body in PAIRED.items()
    for way in ("111", "110", "101")
}
# Lines that begin at places of a table, of the operations that gather and scatter them.
TABLED = {
    f"{row} tabled": RowFunction(f.operation, f.body, row.split()[-1], f.summed, f.checked, True)
    for row, f in IN_LINES.items()
    if f.operation in ("copy", "addto", "add", "sub", "mul", "muladd")
}
OUTSIDE: dict = {
    "called": UfuncCall(), "dgemm": BlasCall("dgemm"), "dgemv": BlasCall("dgemv"),
    **{name: LapackCall(name) for name in LapackCall.GIVEN},
    "gathered": IndexedLine(False), "scattered": IndexedLine(True), "ordered": OrderedLine(),
}  # fmt: skip
FUNCTIONS = IN_LINES | TABLED | OUTSIDE  # rows that are a function of the row and the arena
COUNTED = {*IN_LINES, *TABLED, "called", "gathered", "scattered"}  # and of the elements
# Rows that say how results are judged.  `strict`: there are no infinite ones.  `exact`: what the processor
# notes between `heard` and `noted` decides alone; the number of a row `noted` is the sum of its `EVENTS`.
JUDGING = ("strict", "exact", "heard", "noted")
NUMBER = {name: n for n, name in enumerate((*OPERATIONS, *SINGLE, *FUNCTIONS, "loop", *JUDGING))}
# A row: operation, elements (of a guard: the truth), where the result and the operands are; of lines what
# interpreter.strided_rows.py says.
ROW, SHORT_ROW, CALL_ROW = (
    16,
    6,
    19,
)  # fields of rows of FUNCTIONS and of loops; of others; of calls of ufuncs
WIDTH = {
    name: CALL_ROW if name == "called" else ROW if name in FUNCTIONS or name == "loop" else SHORT_ROW
    for name in NUMBER
}


def row_of(name: str, *fields: int) -> tuple:
    """A row with these fields after its operation, and zeros."""
    return NUMBER[name], *fields, *[0] * (WIDTH[name] - 1 - len(fields))


# (The operand y of a guard is its number.  Of a loop: the trips; y is the number of its first row; the
# addresses of its code and of its bases follow from field 6 on.)


def element(local: str, table: str) -> str:
    return f"""%{local}p = getelementptr i32, ptr %{table}, i64 %i
  %{local}k = load i32, ptr %{local}p
  %{local}e = sext i32 %{local}k to i64
  %{local}s = getelementptr double, ptr %arena, i64 %{local}e
  %{local} = load double, ptr %{local}s
  """


def classified(r: str, end: str = "") -> str:
    """The class of a number: 0 if it is finite."""
    return f"""%bits{end} = bitcast double %{r}{end} to i64
  %size{end} = and i64 %bits{end}, {SIZE}
  {class_of_size(f"size{end}", f"class_{r}{end}")}
  """


def checked_operation(name: str, body: str) -> str:
    """A function of the places of all elements, which gives the classes of the results."""
    read = "".join(
        [
            element(x, table)
            for x, table in (("x", "a"), ("y", "b"), ("z", "c"), ("old", "d"))
            if f"%{x}" in body + "%old"
        ]
    )
    check = f"{classified('r')}%bad = or i64 %before, %class_r"

    return f"""
define internal i64 @o_{name}(i64 %n, ptr %d, ptr %a, ptr %b, ptr %c, ptr %arena) {{
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %before = phi i64 [ 0, %entry ], [ %bad, %body ]
  {read}{body}
  {check if name in CHECKED else "%bad = add i64 %before, 0"}
  store double %r, ptr %olds
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %end
end:
  ret i64 %bad
}}
"""


def single(name: str) -> str:
    """One element, at places that the row tells."""
    body = BODIES[name]
    used = [(x, t) for x, t in (("x", "a"), ("y", "b"), ("z", "c"), ("old", "d")) if f"%{x}" in body]
    text = "".join(
        [
            f"%{x}w = getelementptr double, ptr %arena, i64 %{t}\n  %{x} = load double, ptr %{x}w\n  "
            for x, t in used
        ]
    )
    text += f"{body}\n  %to = getelementptr double, ptr %arena, i64 %d\n  store double %r, ptr %to\n  "
    end = f"_{name}"
    if name in CHECKED:
        return renamed(text, end) + classified("r", end) + f"%answer{end} = or i64 0, %class_r{end}"
    return renamed(text, end) + f"%answer{end} = add i64 0, 0"


def renamed(text: str, end: str) -> str:
    return re.sub(r"%(x|y|z|old|r|[pqtuvw]|to|[xyz]w|oldw)\b", rf"%\1{end}", text)


LOOP = """%code_p = getelementptr i32, ptr %row, i64 6
  %bases_p = getelementptr i32, ptr %row, i64 8
  %code_l = load ptr, ptr %code_p, align 4
  %bases_l = load ptr, ptr %bases_p, align 4
  %answer_loop = call i64 %code_l(ptr %bases_l, i64 %n, i64 %b, ptr %arena)"""
# An infinite result is right if it came of infinite operands: the processor notes divisions by zero and
# overflows.
# (Where it is not known how to ask, each infinite result ends the run.  So it does after the row `strict`.)
EVENTS = {"invalid": 1, "divide": 4, "over": 8}  # bits of the status
HAS_STATUS = platform.machine().lower() in ("x86_64", "amd64")
STATUS = (
    "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)" if HAS_STATUS else ""
)
NO_EVENTS = (
    """%status = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %status)
  %status_found = load i32, ptr %status
  %status_clear = and i32 %status_found, -14
  store i32 %status_clear, ptr %status
  call void @llvm.x86.sse.ldmxcsr(ptr %status)"""
    if HAS_STATUS
    else ""
)


def noted_events(n, exact: bool = False) -> str:
    """Keep what the processor noted so far (loops of NumPy's clear it).  `exact`: in such blocks."""
    if not HAS_STATUS:
        return "store i64 1, ptr %events\n  "
    return f"""call void @llvm.x86.sse.stmxcsr(ptr %status)
  %status_{n} = load i32, ptr %status
  %bits_{n} = trunc i64 {"%n" if exact else EVENTS["divide"] + EVENTS["over"]} to i32
  %some_{n} = and i32 %status_{n}, %bits_{n}
  %kind_{n} = load i64, ptr %exactly
  %asked_{n} = icmp {"ne" if exact else "eq"} i64 %kind_{n}, 0
  %told_{n} = select i1 %asked_{n}, i32 %some_{n}, i32 0
  %wide_{n} = zext i32 %told_{n} to i64
  %earlier_{n} = load i64, ptr %events
  %events_{n} = or i64 %earlier_{n}, %wide_{n}
  store i64 %events_{n}, ptr %events
  """


JUDGED = {
    "strict": "store i64 1, ptr %strictly",
    "exact": "store i64 1, ptr %exactly",
    "heard": NO_EVENTS.partition("\n")[2].replace("%status_", "%status_of_row_"),
    "noted": noted_events("row", True),
}
STATES = ("events", "strictly", "exactly")
GUARD = """%x_guard = getelementptr double, ptr %arena, i64 %a
  %v_guard = load double, ptr %x_guard
  %q_guard = fcmp une double %v_guard, 0.0
  %truth_guard = zext i1 %q_guard to i64
  %differs_guard = icmp ne i64 %truth_guard, %n
  %failed_guard = zext i1 %differs_guard to i64
  %answer_guard = mul i64 %failed_guard, 4"""


TANH_SLOPE = """
define internal double @tanh_slope(double %x, double %y) {
  %p = fmul double %y, %y
  %near = fcmp olt double %p, 0.99
  br i1 %near, label %less, label %tail
less:
  %d = fsub double 1.0, %p
  ret double %d
tail:
  %c = call double @cosh(double %x)
  %q = fdiv double 1.0, %c
  %r = fmul double %q, %q
  ret double %r
}
"""


def tanh_slopes(n: int) -> str:
    """`tanh_slope` of several numbers."""
    many = f"<{n} x double>"
    ones, edges = [f"<{', '.join([f'double {v}'] * n)}>" for v in (1.0, 0.99)]
    each = "".join(
        [
            f"""%x{k} = extractelement {many} %x, i64 {k}
  %y{k} = extractelement {many} %y, i64 {k}
  %s{k} = call double @tanh_slope(double %x{k}, double %y{k})
  %r{k} = insertelement {many} {f"%r{k - 1}" if k else "poison"}, double %s{k}, i64 {k}
  """
            for k in range(n)
        ]
    )
    return f"""
define internal {many} @tanh_slope_of_{n}({many} %x, {many} %y) {{
  %p = fmul {many} %y, %y
  %near = fcmp olt {many} %p, {edges}
  %d = fsub {many} {ones}, %p
  %every = call i1 @llvm.vector.reduce.and.v{n}i1(<{n} x i1> %near)
  br i1 %every, label %less, label %tail
less:
  ret {many} %d
tail:
  {each}ret {many} %r{n - 1}
}}
"""


def own_function(name: str) -> str:
    """A function of several numbers, and of one."""
    text = ""
    for n, kind in ((VECTOR_ELEMENTS, MANY), (WIDE_ELEMENTS, WIDE)):
        b = Builder(n, 64)
        y = elementary.emit_function(b, name, "%x")
        body = "\n".join(b.lines)
        text += f"define internal {kind} @own_{name}_of_{n}({kind} %x) {{\n{body}\n  ret {kind} {y}\n}}\n"
    return f"""
{text}define internal double @own_{name}(double %x) {{
  %some = insertelement {MANY} zeroinitializer, double %x, i64 0
  %all = call {MANY} @own_{name}_of_{VECTOR_ELEMENTS}({MANY} %some)
  %one = extractelement {MANY} %all, i64 0
  ret double %one
}}
"""


def declared_intrinsics(n: int) -> list:
    """What the operations call, for vectors of n elements."""
    kind, suffix = ("double", "f64") if n == 1 else (f"<{n} x double>", f"v{n}f64")
    found = Builder(n, 64).declared("sqrt", "fabs", "fma", *ROUNDING)
    found.append(f"declare {kind} @llvm.copysign.{suffix}({kind}, {kind})")
    return found + [f"declare i1 @llvm.vector.reduce.and.v{n}i1(<{n} x i1>)"] * (n > 1)


def declarations() -> str:
    """What the functions call."""
    found = [f"declare double @{name}(double)" for name in LIBM]
    for width in (1, VECTOR_ELEMENTS, WIDE_ELEMENTS):
        found += declared_intrinsics(width)
    found.append("declare i64 @llvm.smin.i64(i64, i64)")
    many = f"<{VECTOR_ELEMENTS} x i64>"
    largest = f"""declare i64 @llvm.vector.reduce.smax.v{VECTOR_ELEMENTS}i64({many})
declare {many} @llvm.smax.v{VECTOR_ELEMENTS}i64({many}, {many})
declare i64 @llvm.smax.i64(i64, i64)"""
    largest_of_wide = f"""declare i64 @llvm.vector.reduce.smax.v{WIDE_ELEMENTS}i64({BITS[WIDE]})
declare {BITS[WIDE]} @llvm.smax.v{WIDE_ELEMENTS}i64({BITS[WIDE]}, {BITS[WIDE]})"""
    return "\n".join([*found, largest, largest_of_wide, STATUS])


@functools.cache
def interpreter_text() -> str:
    """(`FAILED` in the answer of a row is a guard that failed, which ends the run, and more is one within a
    loop.  What is less is kept.)"""
    answers, widths, code = [], [], ""
    for name, n in NUMBER.items():
        if name == "guard":
            body, answer = GUARD, "%answer_guard"
        elif name == "loop":
            body, answer = noted_events(n) + LOOP, "%answer_loop"  # (it may call others)
        elif name in SINGLE:
            body, answer = single(SINGLE[name]), f"%answer_{SINGLE[name]}"
        elif name in JUDGED:
            body, answer = JUDGED[name], "0"
        elif name in FUNCTIONS:
            given = ", i64 %n" * (name in COUNTED) + ", ptr %table" * (name in TABLED)
            body, answer = (
                f"{noted_events(n) if name in OUTSIDE else ''}"
                f"%answer_{n} = call i64 @{FUNCTIONS[name].name}(ptr %row, ptr %arena{given})",
                f"%answer_{n}",
            )
        else:
            body = "".join([f"%{p}_{n} = getelementptr i32, ptr %table, i64 %{p}\n  " for p in FIELDS])
            given = ", ".join([f"ptr %{p}_{n}" for p in FIELDS])
            body, answer = (
                f"{body}%answer_{n} = call i64 @o_{name}(i64 %n, {given}, ptr %arena)",
                f"%answer_{n}",
            )
        code += f"do_{n}:\n  {body}\n  br label %done\n"
        answers.append(f"[ {answer}, %do_{n} ]")
        widths.append(f"[ {WIDTH[name]}, %do_{n} ]")
    functions = [
        *[checked_operation(name, body) for name, body in BODIES.items()],
        TANH_SLOPE,
        tanh_slopes(VECTOR_ELEMENTS),
        *[own_function(name) for name in LIBM],
        *[f.text() for f in FUNCTIONS.values()],
    ]
    cases = "\n    ".join([f"i64 {n}, label %do_{n}" for n in NUMBER.values()])
    return f"""{declarations()}
{"".join(functions)}
define i64 @replay(ptr %block, ptr %arena) {{
entry:
  %rows = load ptr, ptr %block
  %length_at = getelementptr i64, ptr %block, i64 1
  %length = load i64, ptr %length_at
  %table_at = getelementptr i64, ptr %block, i64 2
  %table = load ptr, ptr %table_at
  {NO_EVENTS}
  {"".join([f"%{state} = alloca i64" + chr(10) + "  " for state in STATES])}store i64 0, ptr %events
  store i64 0, ptr %strictly
  store i64 0, ptr %exactly
  br label %row_k
row_k:
  %k = phi i64 [ 0, %entry ], [ %k1, %kept ]
  %before = phi i64 [ 0, %entry ], [ %bad, %kept ]
  %row = getelementptr i32, ptr %rows, i64 %k
  {"".join([field(m, name) for m, name in enumerate(("what", "n", *FIELDS))])}switch i64 %what, label %stop [
    {cases}
  ]
{code}done:
  %r = phi i64 {", ".join(answers)}
  %width = phi i64 {", ".join(widths)}
  %failed = icmp uge i64 %r, {FAILED}
  br i1 %failed, label %guarded, label %kept
guarded:
  %by_row = icmp eq i64 %r, {FAILED}
  %number = add i64 %b, 2
  %number_in_loop = sub i64 %r, {FAILED - 1}
  %place = select i1 %by_row, i64 %number, i64 %number_in_loop
  ret i64 %place
kept:
  %bad = or i64 %before, %r
  %k1 = add i64 %k, %width
  %go = icmp slt i64 %k1, %length
  br i1 %go, label %row_k, label %end
end:
  %exact = load i64, ptr %exactly
  %by_events = icmp ne i64 %exact, 0
  br i1 %by_events, label %judged, label %by_values
by_values:
  %no_number = and i64 %bad, {NO_NUMBER}
  %infinite = icmp eq i64 %bad, {INFINITE}
  br i1 %infinite, label %seen, label %told
seen:
  {noted_events("end")}br label %judged
judged:
  %all_events = load i64, ptr %events
  %strict = load i64, ptr %strictly
  %objections = or i64 %all_events, %strict
  %objection = icmp ne i64 %objections, 0
  %objected = zext i1 %objection to i64
  ret i64 %objected
told:
  ret i64 %no_number
stop:
  ret i64 1
}}
"""


STATE: dict = {}


def interpreter():
    """`run(block, arena)` of addresses: 0, or 1 where a result was no number or became infinite, or 2 + the
    number of a guard that failed. None where it cannot be made. A block is the address of its rows, their
    length, and the address of its table."""
    if "run" not in STATE:
        STATE["run"] = build_interpreter()
    return STATE["run"]


def build_interpreter():
    with Attempt(of=(OSError, AttributeError)) as tried:
        library = ctypes.CDLL(ctypes.util.find_library("m"))
        places = {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in LIBM}
        load("tapegrad.kernels.launch.cpu").add_symbols({**places, **blas()})
    if tried.failed:
        return None
    address = compile_text(interpreter_text(), "replay", math.inf)
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(address)


@functools.cache
def address_of_call(name: str) -> int:
    """The address of the function of rows of `OUTSIDE`."""
    return compile_text(interpreter_text(), OUTSIDE[name].name, math.inf)


def compile_text(text: str, *how) -> int:
    """The address of a function of this text; the machine code is kept on disk."""
    return load("tapegrad.kernels.launch.cpu").function_address(text, *how)
