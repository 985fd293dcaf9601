"""The rows of the interpreter that call others: NumPy's own loop for a function along lines, and BLAS for
products of matrices.

The loop of a ufunc for float64 is found in the object of the ufunc, whose layout NumPy's headers show; it
gives what NumPy gives, to the bit.  BLAS is SciPy's, which shows its functions to Cython.  Where either
cannot be found, other rows do the work."""

import ctypes
from typing import Any

import numpy as np

from ..._core.registry import load
from .banded import TEXT
from .strided_rows import MANY, VECTOR_ELEMENTS, field, sum_code

UFUNCS = {f.__name__: f for f in (np.exp, np.expm1, np.log, np.log1p, np.tanh, np.cosh)}
BLAS = ("dgemm", "dgemv")
NO, YES = 0x4E4E4E4E, 0x54545454  # "N" and "T" for BLAS: its matrices lie by columns


class UfuncHeader(ctypes.Structure):
    """The beginning of PyUFuncObject, behind the object header."""

    _fields_ = (
        ("nin", ctypes.c_int), ("nout", ctypes.c_int), ("nargs", ctypes.c_int), ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)), ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int), ("reserved", ctypes.c_int), ("name", ctypes.c_char_p),
    )  # fmt: skip


INNER = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 4)


def loop_of(f: Any) -> Any:
    """The address of (function, its data) of the loop of a ufunc of one number; None where what is found
    there is not that."""
    seen = UfuncHeader.from_address(id(f) + object.__basicsize__)
    counts = (seen.nin, seen.nout, seen.nargs, seen.ntypes) == (f.nin, f.nout, f.nargs, f.ntypes) == (1, 1, 2, len(f.types))
    if not counts or "d->d" not in f.types or seen.name != f.__name__.encode():
        return None
    k = f.types.index("d->d")
    held = (ctypes.c_void_p * 2)(seen.functions[k], seen.data[k])
    x, y = np.linspace(0.1, 0.9, 11), np.zeros(11)
    places, steps = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data), (ctypes.c_ssize_t * 2)(8, 8)
    INNER(held[0])(places, ctypes.byref(ctypes.c_ssize_t(11)), steps, held[1])
    return held if np.array_equal(y, f(x)) else None


def ufunc_loops() -> dict:
    """name -> its loop."""
    if object.__basicsize__ + ctypes.sizeof(UfuncHeader) > np.ufunc.__basicsize__:
        return {}
    found = {name: loop_of(f) for name, f in UFUNCS.items()}
    return {name: held for name, held in found.items() if held is not None}


LOOPS = ufunc_loops()


def loop_fields(name: str) -> list:
    """Where the loop is, as two fields of a row."""
    return np.array([ctypes.addressof(LOOPS[name])], np.int64).view(np.int32).tolist()


def blas() -> dict:
    """name -> the address of a function of BLAS."""
    capsules = load("scipy.linalg.cython_blas").__pyx_capi__
    name_of, address_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address_of.restype, address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return {name: address_of(capsules[name], name_of(capsules[name])) for name in BLAS}


FINITE = f"""
define internal i64 @finite(ptr %d, i64 %n) {{
entry:
  %whole = and i64 %n, {-VECTOR_ELEMENTS}
  %some = icmp sgt i64 %whole, 0
  br i1 %some, label %vector, label %rest
vector:
  %i = phi i64 [ 0, %entry ], [ %i1, %vector ]
  %sum = phi {MANY} [ zeroinitializer, %entry ], [ %sum1, %vector ]
  %p = getelementptr double, ptr %d, i64 %i
  %x = load {MANY}, ptr %p, align 8
  %zero = fsub {MANY} %x, %x
  %sum1 = fadd {MANY} %sum, %zero
  %i1 = add i64 %i, {VECTOR_ELEMENTS}
  %on = icmp slt i64 %i1, %whole
  br i1 %on, label %vector, label %rest
rest:
  %lanes = phi {MANY} [ zeroinitializer, %entry ], [ %sum1, %vector ]
  {sum_code("lanes", "none", "total").replace("%none", "0.0")}%few = icmp slt i64 %whole, %n
  br i1 %few, label %scalar, label %end
scalar:
  %j = phi i64 [ %whole, %rest ], [ %j1, %scalar ]
  %part = phi double [ %total, %rest ], [ %part1, %scalar ]
  %q = getelementptr double, ptr %d, i64 %j
  %y = load double, ptr %q
  %nought = fsub double %y, %y
  %part1 = fadd double %part, %nought
  %j1 = add i64 %j, 1
  %further = icmp slt i64 %j1, %n
  br i1 %further, label %scalar, label %end
end:
  %whether = phi double [ %total, %rest ], [ %part1, %scalar ]
  %fine = fcmp oeq double %whether, 0.0
  %answer = select i1 %fine, i64 0, i64 1
  ret i64 %answer
}}
"""


class UfuncCall:
    """A function along lines, by NumPy's loop: fields 4 and 5 of the row tell where (its address, its data)
    are."""

    name = "l_called"

    def text(self) -> str:
        fields = ((1, "n"), (2, "d"), (3, "a"), (6, "m"), (7, "od"), (8, "oa"), (11, "l"), (12, "ud"), (13, "ua"))
        return f"""{FINITE}
define internal i64 @{self.name}(ptr %row, ptr %arena) {{
entry:
  %args = alloca [2 x ptr]
  %second = getelementptr ptr, ptr %args, i64 1
  %size = alloca i64
  %steps = alloca [2 x i64]
  %step2 = getelementptr i64, ptr %steps, i64 1
  store i64 8, ptr %steps
  store i64 8, ptr %step2
  {"".join([field(k, name) for k, name in fields])}store i64 %n, ptr %size
  %held_p = getelementptr i32, ptr %row, i64 4
  %held = load ptr, ptr %held_p, align 4
  %code = load ptr, ptr %held
  %data_p = getelementptr ptr, ptr %held, i64 1
  %data = load ptr, ptr %data_p
  br label %third
third:
  %k = phi i64 [ 0, %entry ], [ %k1, %third_end ]
  %bad3 = phi i64 [ 0, %entry ], [ %bad1, %third_end ]
  %udk = mul i64 %k, %ud
  %d3 = add i64 %d, %udk
  %uak = mul i64 %k, %ua
  %a3 = add i64 %a, %uak
  br label %second_line
second_line:
  %j = phi i64 [ 0, %third ], [ %j1, %second_line ]
  %bad = phi i64 [ %bad3, %third ], [ %bad1, %second_line ]
  %odj = mul i64 %j, %od
  %d2 = add i64 %d3, %odj
  %oaj = mul i64 %j, %oa
  %a2 = add i64 %a3, %oaj
  %to = getelementptr double, ptr %arena, i64 %d2
  %from = getelementptr double, ptr %arena, i64 %a2
  store ptr %from, ptr %args
  store ptr %to, ptr %second
  call void %code(ptr %args, ptr %size, ptr %steps, ptr %data)
  %worse = call i64 @finite(ptr %to, i64 %n)
  %bad1 = or i64 %bad, %worse
  %j1 = add i64 %j, 1
  %again = icmp slt i64 %j1, %m
  br i1 %again, label %second_line, label %third_end
third_end:
  %k1 = add i64 %k, 1
  %anew = icmp slt i64 %k1, %l
  br i1 %anew, label %third, label %end
end:
  ret i64 %bad1
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
            given, before = "%i6, %i7, %i8, %i9, %i10, %one, %x, %i11, %y, %i12, %none, %to, %i13", BY_BANDS
        else:  # op(A), m, n, alpha, A, lda, x, incx, beta, y, incy; y is zero already
            given, before = "%i6, %i7, %i8, %one, %x, %i9, %y, %i10, %one, %to, %i11", "br label %full"
        types = ", ".join([f"ptr {name}" for name in given.split(", ")])
        return f"""{TEXT if self.of == "dgemm" else ""}
declare void @{self.of}({", ".join(["ptr"] * len(given.split(", ")))})
define internal i64 @{self.name}(ptr %row, ptr %arena) {{
  %one = alloca double
  %none = alloca double
  store double 1.0, ptr %one
  store double 0.0, ptr %none
  {field(1, "n")}{field(2, "d")}{field(3, "a")}{field(4, "b")}{"".join(ints)}%to = getelementptr double, ptr %arena, i64 %d
  %x = getelementptr double, ptr %arena, i64 %a
  %y = getelementptr double, ptr %arena, i64 %b
  {before}
full:
  call void @{self.of}({types})
  br label %end
end:
  %answer = call i64 @finite(ptr %to, i64 %n)
  ret i64 %answer
}}
"""


# (BLAS's first matrix is the second one of the product, and what lies by rows it takes as it is.)
INTEGERS = {5: "c", 6: "opy", 7: "opx", 8: "p", 9: "m", 10: "k", 11: "ldy", 12: "ldx"}
BY_BANDS = f"""{"".join([field(k, name) for k, name in INTEGERS.items()])}
  %room = getelementptr double, ptr %arena, i64 %c
  %y_rows = icmp eq i64 %opy, {NO}
  %x_rows = icmp eq i64 %opx, {NO}
  %yk = select i1 %y_rows, i64 %ldy, i64 1
  %yj = select i1 %y_rows, i64 1, i64 %ldy
  %xi = select i1 %x_rows, i64 %ldx, i64 1
  %xk = select i1 %x_rows, i64 1, i64 %ldx
  %by_bands = call i1 @banded(ptr %to, ptr %y, i64 %xi, i64 %xk, ptr %x, i64 %yk, i64 %yj, i64 %m, i64 %k, i64 %p, ptr %room)
  br i1 %by_bands, label %end, label %full"""


def vector_of(at: Any) -> int | None:
    """The step of a vector that BLAS takes."""
    step = at.strides[0] // 8 if at.size > 1 else 1
    return step if step > 0 else None


def blas_matrix(at: Any) -> tuple | None:
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


def gemm(x: Any, y: Any) -> list | None:
    """The integers for x y, which is packed by rows; None where they do not lie as BLAS takes them.  (It
    gives y^T x^T, by columns.)"""
    one, other = blas_matrix(y), blas_matrix(x)
    if one is None or other is None:
        return None
    m, inner, p = x.shape[0], x.shape[1], y.shape[1]
    return [YES if one[0] else NO, YES if other[0] else NO, p, m, inner, one[1], other[1], p]


def gemv(a: Any, x: Any) -> list | None:
    """The integers for the matrix a times x."""
    form, step = blas_matrix(a), vector_of(x)
    if form is None or step is None:
        return None
    m, n = a.shape
    return [NO, m, n, form[1], step, 1] if form[0] else [YES, n, m, form[1], step, 1]
