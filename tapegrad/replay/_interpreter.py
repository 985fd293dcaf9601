"""The machine code that runs blocks of small operations: an interpreter, compiled once for all programs and kept on disk.

A row says an operation, how many elements it has, and where in a table of indices those of the result and of the operands stand; the
indices are places in one array of float64, the arena.  So a slice, a transpose, a broadcast or a reshape is no row, but other indices.

A row may also stand for a compiled loop over many rows (_rolled.py).  The answer says whether a result was not finite: what NumPy would
note there is found out by who asked."""

import ctypes
import ctypes.util
from typing import Any

from .._late import load

LIBM = ("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "cosh")
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
}
EXACT = {
    "copy": "%r = bitcast double %x to double",
    "neg": "%r = fneg double %x",
    "abs": "%r = call double @llvm.fabs.f64(double %x)",
    **{
        name: f"%q = fcmp {how} double %x, %y\n  %r = uitofp i1 %q to double"
        for name, how in (("lt", "olt"), ("le", "ole"), ("eq", "oeq"), ("ne", "une"))
    },
    "select": "%q = fcmp une double %x, 0.0\n  %r = select i1 %q, double %y, double %z",
}
OPERATIONS = (*CHECKED, *EXACT, "guard")
NUMBER = {name: n for n, name in enumerate((*OPERATIONS, "loop"))}
ROW = 6  # operation, elements (of a guard: the truth), places in the table: result, operands (of a guard also its number, the fifth;
# of a loop: its address, that of its bases, trips, the number of its first row)


def element(local: str, table: str) -> str:
    return f"""%{local}p = getelementptr i32, ptr %{table}, i64 %i
  %{local}k = load i32, ptr %{local}p
  %{local}e = sext i32 %{local}k to i64
  %{local}s = getelementptr double, ptr %arena, i64 %{local}e
  %{local} = load double, ptr %{local}s
  """


def operation(name: str, body: str) -> str:
    """A function that gives 1 where a result was not finite."""
    read = "".join([element(x, table) for x, table in (("x", "a"), ("y", "b"), ("z", "c"), ("old", "d")) if f"%{x}" in body + "%old"])
    check = "%zero = fsub double %r, %r\n  %fine = fcmp oeq double %zero, 0.0\n  %bad = select i1 %fine, i64 %before, i64 1"
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


GUARD = f"""
define internal i64 @o_guard(i64 %n, ptr %d, ptr %a, ptr %b, ptr %c, ptr %arena) {{
  %i = add i64 0, 0
  {element("x", "a")}
  %q = fcmp une double %x, 0.0
  %truth = zext i1 %q to i64
  %differs = icmp ne i64 %truth, %n
  %failed = zext i1 %differs to i64
  %r = mul i64 %failed, 2
  ret i64 %r
}}
"""


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


def field(n: int) -> str:
    return f"%f{n} = getelementptr i64, ptr %row, i64 {n}\n  %t{n} = load i64, ptr %f{n}"


def text() -> str:
    """(Without a branch for each operation: 2 in the answer is a guard that failed, which ends the run, more than 2 is one within a loop;
    1 is kept.)"""
    places = "\n  ".join(
        [f"{field(n)}\n  %{p} = getelementptr i32, ptr %table, i64 %t{n}" for n, p in ((2, "d"), (3, "a"), (4, "b"), (5, "c"))]
    )
    arguments = "(i64 %t1, ptr %d, ptr %a, ptr %b, ptr %c, ptr %arena)"
    cases = "\n    ".join([f"i64 {n}, label %do_{name}" for name, n in NUMBER.items()])
    calls = "".join([f"do_{name}:\n  %r_{name} = call i64 @o_{name}{arguments}\n  br label %done\n" for name in OPERATIONS])
    results = ", ".join([f"[ %r_{name}, %do_{name} ]" for name in NUMBER])
    declared = "\n".join([f"declare double @{name}(double)" for name in (*LIBM, "llvm.sqrt.f64", "llvm.fabs.f64")])
    return f"""{declared}
{"".join([operation(name, body) for name, body in {**CHECKED, **EXACT}.items()])}{GUARD}{TANH_SLOPE}
define i64 @replay(ptr %rows, i64 %count, ptr %table, ptr %arena) {{
entry:
  br label %row_k
row_k:
  %k = phi i64 [ 0, %entry ], [ %k1, %kept ]
  %before = phi i64 [ 0, %entry ], [ %bad, %kept ]
  %at = mul i64 %k, {ROW}
  %row = getelementptr i64, ptr %rows, i64 %at
  {field(0)}
  {field(1)}
  {places}
  switch i64 %t0, label %stop [
    {cases}
  ]
{calls}do_loop:
  %loop = inttoptr i64 %t1 to ptr
  %bases = inttoptr i64 %t2 to ptr
  %r_loop = call i64 %loop(ptr %bases, i64 %t3, i64 %t4, ptr %arena)
  br label %done
done:
  %r = phi i64 {results}
  %failed = icmp uge i64 %r, 2
  br i1 %failed, label %guarded, label %kept
guarded:
  %by_row = icmp eq i64 %r, 2
  %number = add i64 %t4, 2
  %place = select i1 %by_row, i64 %number, i64 %r
  ret i64 %place
kept:
  %bad = or i64 %before, %r
  %k1 = add i64 %k, 1
  %go = icmp slt i64 %k1, %count
  br i1 %go, label %row_k, label %end
end:
  ret i64 %bad
stop:
  ret i64 1
}}
"""


STATE: dict = {}


def interpreter() -> Any:
    """`run(rows, count, table, arena)` of addresses: 0, or 1 where a result was not finite, or 2 + the number of a guard that failed.
    None where it cannot be made."""
    if "run" not in STATE:
        STATE["run"] = made()
    return STATE["run"]


def made() -> Any:
    llvm = load("llvmlite.binding")
    try:
        library = ctypes.CDLL(ctypes.util.find_library("m"))
        for name in LIBM:
            llvm.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    except (OSError, AttributeError):
        return None
    address = compiled(text(), "replay")
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(address)


def compiled(text: str, function: str) -> int:
    """The address of this function; the machine code is kept on disk."""
    return load("tapegrad.kernels.launch.cpu").compiled(text, function)
