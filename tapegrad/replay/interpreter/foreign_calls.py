"""The rows of the interpreter that call others: NumPy's own loop for a function along lines, and BLAS for
products of matrices, LAPACK for systems of which the matrix comes again.

The loop of a ufunc for float64 is found in the object of the ufunc, whose layout NumPy's headers show.  It
gives what NumPy gives, to the bit, for ufuncs of SciPy and for matrices too.  BLAS is SciPy's, which shows
its functions to Cython.  Where either cannot be found, other rows do the work, or Python does."""

import ctypes
import functools
import re
import warnings

import numpy as np

from ..._core.registry import load
from .strided_rows import (
    BITS,
    EXPONENT,
    INFINITE,
    NO_NUMBER,
    PARAMETERS,
    SIZE,
    WIDE,
    WIDE_ELEMENTS,
    field,
    many,
)

BLAS = {
    "dgemm": "blas",
    "dgemv": "blas",
    **dict.fromkeys(("dgetrf", "dgetrs", "dgeqr2", "dorg2r", "dgbsv"), "lapack"),
}
NO, YES = 0x4E4E4E4E, 0x54545454  # "N" and "T" for BLAS: its matrices lie by columns


class UfuncHeader(ctypes.Structure):
    """The beginning of PyUFuncObject, behind the object header."""

    _fields_ = (
        ("nin", ctypes.c_int), ("nout", ctypes.c_int), ("nargs", ctypes.c_int), ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)), ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int), ("reserved", ctypes.c_int), ("name", ctypes.c_char_p),
    )  # fmt: skip


INNER = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 4)
SAMPLES = np.linspace(0.1, 0.9, 11)  # at which a loop is tried
MATRIX = np.array([[2.0, 0.5], [0.5, 3.0]])
CALL_ARGUMENTS = 4  # of a ufunc that a row calls, results included
STEPS_AT, SIZES_AT, TOLERANT_AT = 2, 14, 18  # numbers of a `call_plan` before these


@functools.cache
def ufunc_loop(f, kind: str = ""):
    """The addresses of the loop of a ufunc for these types, and of its data; None where what is found there
    is not that.  `kind`: the types as NumPy writes them; if none, float64."""
    if object.__basicsize__ + ctypes.sizeof(UfuncHeader) > np.ufunc.__basicsize__ or f.nargs > CALL_ARGUMENTS:
        return None
    seen, kind = UfuncHeader.from_address(id(f) + object.__basicsize__), kind or of_floats(f)
    counts = (seen.nin, seen.nout, seen.nargs, seen.ntypes) == (f.nin, f.nout, f.nargs, len(f.types))
    if not counts or kind not in f.types or seen.name != f.__name__.encode():
        return None
    k = f.types.index(kind)
    found = seen.functions[k], seen.data[k] if seen.data else None
    if found[0] is None:
        return None
    x = (
        [SAMPLES + 1.0] * (f.nin - 1) + [SAMPLES]  # (of zeta the first is above 1)
        if f.signature is None
        else [SAMPLES[:4], np.array(1.0)]  # of a Fourier transform
        if ",()->" in f.signature
        else [MATRIX, MATRIX[0]][: f.nin]
        if "(m)->" in f.signature
        else [MATRIX] * f.nin
    )
    x = [v * (1.0 + 0.5j) if t == "D" else v for v, t in zip(x, kind, strict=False)]
    with warnings.catch_warnings():  # an order is not a whole number here
        warnings.simplefilter("ignore")
        want = f(*x, np.zeros(4, kind[-1])) if ",()->" in str(f.signature) else f(*x)
    want = want if type(want) is tuple else (want,)
    y = [np.zeros_like(v) for v in want]
    arrays = [*x, *y]
    cores, core = [v.strides if f.signature else () for v in arrays], ()
    if f.signature:
        core = core_sizes(f.signature, [v.shape for v in arrays])
    plan = call_plan(
        *found, 11 if f.signature is None else 1, tuple([v.itemsize for v in arrays]), cores, core
    )
    places, address = (ctypes.c_void_p * f.nargs)(*[v.ctypes.data for v in arrays]), ctypes.addressof(plan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        INNER(plan[0])(places, address + 8 * SIZES_AT, address + 8 * STEPS_AT, plan[1])
    return found if all([np.array_equal(a, b) for a, b in zip(y, want, strict=True)]) else None


def of_floats(f) -> str:
    return f"{'d' * f.nin}->{'d' * f.nout}"


@functools.cache
def kept_plan(*plan):
    return call_plan(*plan)


def call_plan(code, data, size: int, steps: tuple, cores=(), core: tuple = (), tolerant: bool = False):
    """How a loop is called: its address, that of its data, the steps in bytes, the sizes.  `cores`: strides of
    the matrices of a generalized ufunc; `core`: their sizes; `tolerant`: does the processor note what the
    function notes?"""
    steps = (*steps, *[s for strides in cores for s in strides])
    plan = (ctypes.c_int64 * (TOLERANT_AT + 1))(code, data or 0, *steps)
    plan[TOLERANT_AT] = tolerant
    plan[SIZES_AT : SIZES_AT + 1 + len(core)] = [size, *core]
    return plan


def core_sizes(signature: str, shapes: list) -> tuple:
    """The sizes of the core dimensions of a generalized ufunc, in the order in which its signature names
    them."""
    names = [part.split(",") for part in re.findall(r"\(([^)]*)\)", signature)]
    sizes = {
        name: n
        for part, shape in zip(names, shapes, strict=True)
        for name, n in zip(part, shape, strict=False)
    }
    return tuple(sizes.values())


def blas() -> dict:
    """name -> the address of a function of BLAS or LAPACK."""
    capsules = {name: load(f"scipy.linalg.cython_{library}").__pyx_capi__ for name, library in BLAS.items()}
    name_of, address_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address_of.restype, address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return {name: address_of(found[name], name_of(found[name])) for name, found in capsules.items()}


WIDE_BITS, SIZES = BITS[WIDE], many(SIZE, WIDE_ELEMENTS)
FINITE = f"""
define internal i64 @finite(ptr %d, i64 %n) {{
entry:
  %whole = and i64 %n, {-WIDE_ELEMENTS}
  %some = icmp sgt i64 %whole, 0
  br i1 %some, label %vector, label %rest
vector:
  %i = phi i64 [ 0, %entry ], [ %i1, %vector ]
  %top = phi {WIDE_BITS} [ zeroinitializer, %entry ], [ %top1, %vector ]
  %p = getelementptr double, ptr %d, i64 %i
  %x = load {WIDE}, ptr %p, align 8
  %bits = bitcast {WIDE} %x to {WIDE_BITS}
  %sizes = and {WIDE_BITS} %bits, {SIZES}
  %top1 = call {WIDE_BITS} @llvm.smax.v{WIDE_ELEMENTS}i64({WIDE_BITS} %top, {WIDE_BITS} %sizes)
  %i1 = add i64 %i, {WIDE_ELEMENTS}
  %on = icmp slt i64 %i1, %whole
  br i1 %on, label %vector, label %rest
rest:
  %lanes = phi {WIDE_BITS} [ zeroinitializer, %entry ], [ %top1, %vector ]
  %total = call i64 @llvm.vector.reduce.smax.v{WIDE_ELEMENTS}i64({WIDE_BITS} %lanes)
  %few = icmp slt i64 %whole, %n
  br i1 %few, label %scalar, label %end
scalar:
  %j = phi i64 [ %whole, %rest ], [ %j1, %scalar ]
  %part = phi i64 [ %total, %rest ], [ %part1, %scalar ]
  %q = getelementptr double, ptr %d, i64 %j
  %y = load double, ptr %q
  %ybits = bitcast double %y to i64
  %size = and i64 %ybits, {SIZE}
  %part1 = call i64 @llvm.smax.i64(i64 %part, i64 %size)
  %j1 = add i64 %j, 1
  %further = icmp slt i64 %j1, %n
  br i1 %further, label %scalar, label %end
end:
  %whether = phi i64 [ %total, %rest ], [ %part1, %scalar ]
  %fine = icmp slt i64 %whether, {EXPONENT}
  %answer = select i1 %fine, i64 0, i64 1
  ret i64 %answer
}}
"""


CLASS = f"""
define internal i64 @class_of(ptr %d, i64 %n) {{
entry:
  %bad = call i64 @finite(ptr %d, i64 %n)
  %fine = icmp eq i64 %bad, 0
  br i1 %fine, label %end, label %body
body:
  %j = phi i64 [ 0, %entry ], [ %j1, %body ]
  %found = phi i64 [ {INFINITE}, %entry ], [ %found1, %body ]
  %p = getelementptr double, ptr %d, i64 %j
  %x = load double, ptr %p
  %nan = fcmp uno double %x, 0.0
  %found1 = select i1 %nan, i64 {NO_NUMBER}, i64 %found
  %j1 = add i64 %j, 1
  %more = icmp slt i64 %j1, %n
  br i1 %more, label %body, label %end
end:
  %class = phi i64 [ 0, %entry ], [ %found1, %body ]
  ret i64 %class
}}
"""


class UfuncCall:
    """A ufunc along lines, by its loop.  Fields 2 to 5 tell where operands and result begin, in the order of the
    ufunc; 7 to 10 and 12 to 15 the steps between lines, and lines of them.  Fields 16 and 17 tell where the
    `call_plan` is.  Infinite results of functions of NumPy's are told from others.  Of the argument in
    field 18 as many elements are checked as field 1 says.  (Its address is read before the call: loops of matrices
    advance the addresses that they are given.)"""

    name = "l_called"

    def text(self) -> str:
        fields = [(6, "m"), (11, "l"), (18, "out")]
        fields += [
            (start + k, f"{name}{k}")
            for start, name in ((2, "a"), (7, "o"), (12, "u"))
            for k in range(CALL_ARGUMENTS)
        ]
        outer = [
            f"%v{k} = mul i64 %k, %u{k}\n  %b{k} = add i64 %a{k}, %v{k}\n  " for k in range(CALL_ARGUMENTS)
        ]
        inner = [
            f"%w{k} = mul i64 %j, %o{k}\n  %c{k} = add i64 %b{k}, %w{k}\n  %s{k} = getelementptr double, "
            f"ptr %arena, i64 %c{k}\n  "
            f"%q{k} = getelementptr ptr, ptr %args, i64 {k}\n  store ptr %s{k}, ptr %q{k}\n  "
            for k in range(CALL_ARGUMENTS)
        ]
        return f"""{FINITE}{CLASS}
define i64 @{self.name}({PARAMETERS}) {{
entry:
  %args = alloca [{CALL_ARGUMENTS} x ptr]
  {"".join([field(k, name) for k, name in fields])}%plan_p = getelementptr i32, ptr %row, i64 16
  %plan = load ptr, ptr %plan_p, align 4
  %code = load ptr, ptr %plan
  %data_p = getelementptr ptr, ptr %plan, i64 1
  %data = load ptr, ptr %data_p
  %steps = getelementptr i64, ptr %plan, i64 {STEPS_AT}
  %sizes = getelementptr i64, ptr %plan, i64 {SIZES_AT}
  %tolerant_p = getelementptr i64, ptr %plan, i64 {TOLERANT_AT}
  %tolerant_l = load i64, ptr %tolerant_p
  %tolerant = icmp ne i64 %tolerant_l, 0
  %result = getelementptr ptr, ptr %args, i64 %out
  br label %third
third:
  %k = phi i64 [ 0, %entry ], [ %k1, %third_end ]
  %bad3 = phi i64 [ 0, %entry ], [ %bad1, %third_end ]
  {"".join(outer)}br label %second
second:
  %j = phi i64 [ 0, %third ], [ %j1, %second ]
  %bad = phi i64 [ %bad3, %third ], [ %bad1, %second ]
  {"".join(inner)}%to = load ptr, ptr %result
  call void %code(ptr %args, ptr %sizes, ptr %steps, ptr %data)
  %class = call i64 @class_of(ptr %to, i64 %n)
  %some = icmp ne i64 %class, 0
  %strictly = select i1 %some, i64 {NO_NUMBER}, i64 0
  %worse = select i1 %tolerant, i64 %class, i64 %strictly
  %bad1 = or i64 %bad, %worse
  %j1 = add i64 %j, 1
  %again = icmp slt i64 %j1, %m
  br i1 %again, label %second, label %third_end
third_end:
  %k1 = add i64 %k, 1
  %anew = icmp slt i64 %k1, %l
  br i1 %anew, label %third, label %end
end:
  ret i64 %bad1
}}
"""


class IndexedLine:
    """A line read at indices that are values: to[j] = x[at[j]], or (`scattered`) to[at[j]] += x[j].  Fields 2 to
    4 tell where `to`, x and the indices begin, 6 and 7 the steps of `to` and x, 5 how many places there are.
    An index beyond them gives 1."""

    def __init__(self, scattered: bool):
        self.scattered, self.name = scattered, f"l_{'scattered' if scattered else 'gathered'}"

    def text(self) -> str:
        fields = ((2, "d"), (3, "a"), (4, "b"), (5, "size"), (6, "sd"), (7, "sa"))
        to, x = ("%at", "%j") if self.scattered else ("%j", "%at")
        made = (
            """%old = load double, ptr %to
  %r = fadd double %old, %x
  %zero = fsub double %r, %r
  %finite = fcmp oeq double %zero, 0.0
  """
            if self.scattered
            else "%r = bitcast double %x to double\n  %finite = icmp eq i64 0, 0\n  "
        )
        return f"""
define i64 @{self.name}({PARAMETERS}) {{
entry:
  {"".join([field(k, name) for k, name in fields])}br label %body
body:
  %j = phi i64 [ 0, %entry ], [ %j1, %next ]
  %k = add i64 %b, %j
  %kp = getelementptr double, ptr %arena, i64 %k
  %index = load double, ptr %kp
  %low = fptosi double %index to i64
  %negative = icmp slt i64 %low, 0
  %high = add i64 %low, %size
  %at = select i1 %negative, i64 %high, i64 %low
  %within = icmp ult i64 %at, %size
  br i1 %within, label %move, label %bad
move:
  %dk = mul i64 {to}, %sd
  %d1 = add i64 %d, %dk
  %to = getelementptr double, ptr %arena, i64 %d1
  %ak = mul i64 {x}, %sa
  %a1 = add i64 %a, %ak
  %from = getelementptr double, ptr %arena, i64 %a1
  %x = load double, ptr %from
  {made}store double %r, ptr %to
  br i1 %finite, label %next, label %bad
next:
  %j1 = add i64 %j, 1
  %more = icmp slt i64 %j1, %n
  br i1 %more, label %body, label %end
end:
  ret i64 0
bad:
  ret i64 1
}}
"""


class OrderedLine:
    """The indices that sort a line, as NumPy's stable sort gives them, by merging. Fields 2 to 4 tell where
    the indices, the line and working memory of four lines begin, 6 and 7 the steps of indices and line. What
    is not finite gives 1. So do equal elements if field 5 is 0: their order is that of NumPy's own sort."""

    name = "l_ordered"

    def text(self) -> str:
        fields = ((1, "n"), (2, "d"), (3, "a"), (4, "b"), (5, "stable"), (6, "sd"), (7, "sa"))
        return f"""
define i64 @{self.name}(ptr %row, ptr %arena) {{
entry:
  {"".join([field(k, name) for k, name in fields])}%keys0 = getelementptr double, ptr %arena, i64 %b
  %numbers0 = getelementptr double, ptr %keys0, i64 %n
  %keys1 = getelementptr double, ptr %numbers0, i64 %n
  %numbers1 = getelementptr double, ptr %keys1, i64 %n
  br label %fill
fill:
  %j = phi i64 [ 0, %entry ], [ %j1, %fill ]
  %jk = mul i64 %j, %sa
  %ja = add i64 %a, %jk
  %jp = getelementptr double, ptr %arena, i64 %ja
  %jx = load double, ptr %jp
  %jf = sitofp i64 %j to double
  %key_p = getelementptr double, ptr %keys0, i64 %j
  %number_p = getelementptr double, ptr %numbers0, i64 %j
  store double %jx, ptr %key_p
  store double %jf, ptr %number_p
  %j1 = add i64 %j, 1
  %unfilled = icmp slt i64 %j1, %n
  br i1 %unfilled, label %fill, label %filled
filled:
  %bad = call i64 @finite(ptr %keys0, i64 %n)
  br label %pass
pass:
  %width = phi i64 [ 1, %filled ], [ %width1, %passed ]
  %keys = phi ptr [ %keys0, %filled ], [ %keys_to, %passed ]
  %numbers = phi ptr [ %numbers0, %filled ], [ %numbers_to, %passed ]
  %keys_to = phi ptr [ %keys1, %filled ], [ %keys, %passed ]
  %numbers_to = phi ptr [ %numbers1, %filled ], [ %numbers, %passed ]
  %sorted = icmp sge i64 %width, %n
  br i1 %sorted, label %write, label %merge
merge:
  %low = phi i64 [ 0, %pass ], [ %high, %merged ]
  %middle1 = add i64 %low, %width
  %middle = call i64 @llvm.smin.i64(i64 %middle1, i64 %n)
  %high1 = add i64 %middle1, %width
  %high = call i64 @llvm.smin.i64(i64 %high1, i64 %n)
  br label %step
step:
  %k = phi i64 [ %low, %merge ], [ %k1, %step ]
  %l = phi i64 [ %low, %merge ], [ %l1, %step ]
  %r = phi i64 [ %middle, %merge ], [ %r1, %step ]
  %some_l = icmp slt i64 %l, %middle
  %some_r = icmp slt i64 %r, %high
  %at_l = select i1 %some_l, i64 %l, i64 %low
  %at_r = select i1 %some_r, i64 %r, i64 %low
  %pl = getelementptr double, ptr %keys, i64 %at_l
  %pr = getelementptr double, ptr %keys, i64 %at_r
  %xl = load double, ptr %pl
  %xr = load double, ptr %pr
  %first = fcmp ole double %xl, %xr
  %none_r = xor i1 %some_r, true
  %wanted = or i1 %none_r, %first
  %take = and i1 %some_l, %wanted
  %from = select i1 %take, i64 %at_l, i64 %at_r
  %key = select i1 %take, double %xl, double %xr
  %np = getelementptr double, ptr %numbers, i64 %from
  %number = load double, ptr %np
  %kt = getelementptr double, ptr %keys_to, i64 %k
  %nt = getelementptr double, ptr %numbers_to, i64 %k
  store double %key, ptr %kt
  store double %number, ptr %nt
  %left = zext i1 %take to i64
  %right = sub i64 1, %left
  %l1 = add i64 %l, %left
  %r1 = add i64 %r, %right
  %k1 = add i64 %k, 1
  %unmerged = icmp slt i64 %k1, %high
  br i1 %unmerged, label %step, label %merged
merged:
  %others = icmp slt i64 %high, %n
  br i1 %others, label %merge, label %passed
passed:
  %width1 = shl i64 %width, 1
  br label %pass
write:
  %m = phi i64 [ 0, %pass ], [ %m1, %write ]
  %before = phi i64 [ -1, %pass ], [ %m, %write ]
  %equal = phi i64 [ 0, %pass ], [ %equal1, %write ]
  %md = mul i64 %m, %sd
  %m2 = add i64 %d, %md
  %to = getelementptr double, ptr %arena, i64 %m2
  %mp = getelementptr double, ptr %numbers, i64 %m
  %mx = load double, ptr %mp
  store double %mx, ptr %to
  %later = icmp sgt i64 %m, 0
  %at_before = select i1 %later, i64 %before, i64 0
  %kp = getelementptr double, ptr %keys, i64 %m
  %kb = getelementptr double, ptr %keys, i64 %at_before
  %kx = load double, ptr %kp
  %ky = load double, ptr %kb
  %same = fcmp oeq double %kx, %ky
  %tie = and i1 %same, %later
  %tied = zext i1 %tie to i64
  %equal1 = or i64 %equal, %tied
  %m1 = add i64 %m, 1
  %unwritten = icmp slt i64 %m1, %n
  br i1 %unwritten, label %write, label %end
end:
  %any_order = sub i64 1, %stable
  %unknown = and i64 %equal1, %any_order
  %answer = or i64 %bad, %unknown
  ret i64 %answer
}}
"""


class BlasCall:
    """C = A B, of matrices (`dgemm`) or of a matrix and a vector (`dgemv`): the fields from 6 on are the
    integers that BLAS takes, and it is given their addresses."""

    def __init__(self, name: str):
        self.of, self.name = name, f"l_{name}"

    def text(self) -> str:
        ints = [f"%i{k} = getelementptr i32, ptr %row, i64 {k}\n  " for k in range(6, 14)]
        if self.of == "dgemm":  # op(A), op(B), m, n, k, alpha, A, lda, B, ldb, beta, C, ldc
            given = "%i6, %i7, %i8, %i9, %i10, %one, %x, %i11, %y, %i12, %none, %to, %i13"
        else:  # op(A), m, n, alpha, A, lda, x, incx, beta, y, incy; y is zero already
            given = "%i6, %i7, %i8, %one, %x, %i9, %y, %i10, %one, %to, %i11"
        types = ", ".join([f"ptr {name}" for name in given.split(", ")])
        return f"""
declare void @{self.of}({", ".join(["ptr"] * len(given.split(", ")))})
define i64 @{self.name}(ptr %row, ptr %arena) {{
  %one = alloca double
  %none = alloca double
  store double 1.0, ptr %one
  store double 0.0, ptr %none
  {field(1, "n")}{field(2, "d")}{field(3, "a")}{field(4, "b")}{"".join(ints)}%to = getelementptr double, ptr %arena, i64 %d
  %x = getelementptr double, ptr %arena, i64 %a
  %y = getelementptr double, ptr %arena, i64 %b
  call void @{self.of}({types})
  %answer = call i64 @finite(ptr %to, i64 %n)
  ret i64 %answer
}}
"""


class LapackCall:
    """The factors of a matrix (`dgetrf`), the solution by them (`dgetrs`) or by a band (`dgbsv`) where the
    operand is already, or an orthogonal factor and what it is found by (`dorg2r`, `dgeqr2`). Fields 6 to 8
    are "N" or "T", the rows and the columns. Of a band fields 9 to 11 are the diagonals below and above, and
    the numbers that a column takes. After the matrix lie its pivots, or the scales of its reflections and
    then working memory."""

    GIVEN = {
        "dgetrf": "%i7, %i7, %lu, %i7, %pivots, %info",
        "dgetrs": "%i6, %i7, %i8, %lu, %i7, %pivots, %to, %i7, %info",
        "dgeqr2": "%i7, %i8, %lu, %i7, %scales, %work, %info",
        "dorg2r": "%i7, %i8, %i8, %lu, %i7, %scales, %work, %info",
        "dgbsv": "%i7, %i9, %i10, %i8, %lu, %i11, %exchanges, %to, %i7, %info",
    }

    def __init__(self, name: str):
        self.of, self.name, self.given = name, f"l_{name}", self.GIVEN[name]

    def text(self) -> str:
        ints = [f"%i{k} = getelementptr i32, ptr %row, i64 {k}\n  " for k in range(6, 12)]
        types = ", ".join([f"ptr {name}" for name in self.given.split(", ")])
        fields = ((1, "n"), (2, "d"), (3, "a"), (7, "order"), (8, "columns"), (11, "high"))
        return f"""
declare void @{self.of}({", ".join(["ptr"] * len(self.given.split(", ")))})
define i64 @{self.name}(ptr %row, ptr %arena) {{
  %info = alloca i32
  {"".join([field(k, name) for k, name in fields])}{"".join(ints)}
  %to = getelementptr double, ptr %arena, i64 %d
  %lu = getelementptr double, ptr %arena, i64 %a
  %square = mul i64 %order, %order
  %pivots = getelementptr double, ptr %lu, i64 %square
  %size = mul i64 %order, %columns
  %scales = getelementptr double, ptr %lu, i64 %size
  %work = getelementptr double, ptr %scales, i64 %columns
  %bands = mul i64 %order, %high
  %exchanges = getelementptr double, ptr %lu, i64 %bands
  call void @{self.of}({types})
  %state = load i32, ptr %info
  %found = icmp eq i32 %state, 0
  %worse = call i64 @finite(ptr %to, i64 %n)
  %answer = select i1 %found, i64 %worse, i64 1
  ret i64 %answer
}}
"""


def vector_of(at) -> int | None:
    """The step of a vector that BLAS takes."""
    step = at.strides[0] // 8 if at.size > 1 else 1
    return step if step > 0 else None


def in_one_piece(at) -> bool | None:
    return at.flags.c_contiguous or None


def blas_matrix(at) -> tuple | None:
    """(is it taken as it lies, by columns?, its leading dimension)"""
    (m, n), (s, t) = at.shape, [step // 8 for step in at.strides]
    if t == 1 or n == 1:  # by rows: BLAS sees the transpose
        ld, by_columns = s if m > 1 else n, False
        if ld >= n and (t == 1 or n == 1):
            return by_columns, max(ld, 1)
    if s == 1 or m == 1:
        ld = t if n > 1 else m
        if ld >= m:
            return True, max(ld, 1)
    return None


def gemm(x, y):
    """The integers for x y, which is packed by rows; None where they do not lie as BLAS takes them.  (It
    gives y^T x^T, by columns.)"""
    one, other = blas_matrix(y), blas_matrix(x)
    if one is None or other is None:
        return None
    m, inner, p = x.shape[0], x.shape[1], y.shape[1]
    return [YES if one[0] else NO, YES if other[0] else NO, p, m, inner, one[1], other[1], p]


def gemv(a, x):
    """The integers for the matrix a times x."""
    form, step = blas_matrix(a), vector_of(x)
    if form is None or step is None:
        return None
    m, n = a.shape
    return [NO, m, n, form[1], step, 1] if form[0] else [YES, n, m, form[1], step, 1]
