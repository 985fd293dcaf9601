"""Repeated launches on the CPU, on other arrays of the same shapes, within a few microseconds.

Four tenths of a short call went into passing addresses, and two tenths into the check for nan and inf. A few
lines of machine code read the addresses from the headers of the array objects, and everything constant from a
table of the last launch. They launch only if all data are finite."""

import ctypes
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .cpu import HEADER, Launcher, data_pointer, function_address, processor


class LastLaunch(NamedTuple):
    """The last launch: the data to repeat it on arrays of these shapes and this dtype, as run(ids ..,
    table)."""

    theta: tuple
    data: tuple
    dtype: np.dtype
    samples: int
    value: np.dtype
    run: Callable  # returns false, without a launch, if the data contain nan or inf
    table: int
    kept: tuple  # objects that the table points to


REPEAT_LANES = 8
LOOK = """
  br label %many
many:
  %i = phi i64 [0, %entry], [%i.next, %enter]
  %sum = phi VECTOR [zeroinitializer, %entry], [%sum.next, %enter]
  %i.next = add i64 %i, LANES
  %full = icmp sle i64 %i.next, %t7
  br i1 %full, label %enter, label %few
enter:
  %i.p = getelementptr REAL, ptr %data.a, i64 %i
  %x = load VECTOR, ptr %i.p, align SIZE
  %d = fsub VECTOR %x, %x
  %sum.next = fadd VECTOR %sum, %d
  br label %many
few:
  %total = call REAL @llvm.vector.reduce.fadd.vLANESfBITS(REAL -0.0, VECTOR %sum)
  br label %one
one:
  %j = phi i64 [%i, %few], [%j.next, %next]
  %s = phi REAL [%total, %few], [%s.next, %next]
  %more = icmp slt i64 %j, %t7
  br i1 %more, label %next, label %end
next:
  %j.p = getelementptr REAL, ptr %data.a, i64 %j
  %y = load REAL, ptr %j.p, align SIZE
  %e = fsub REAL %y, %y
  %s.next = fadd REAL %s, %e
  %j.next = add i64 %j, 1
  br label %one
end:
  %fine = fcmp oeq REAL %s, 0.0
  br i1 %fine, label %go, label %stop
stop:
  ret i32 0
go:
"""  # x - x is 0, or nan where x is nan or inf


@functools.cache
def by_objects(outputs: int, bits: int) -> Callable:
    """Return repeat(id of theta, of data, of each output, address of the table).

    It serves code with one input and this number of outputs. The table holds the code, its last six
    arguments, and the size of the data."""
    names = ["theta", "data", *[f"out{k}" for k in range(outputs)]]
    lines = []
    for n in names:
        lines += [
            f"%{n}.p = getelementptr i8, ptr %{n}, i64 {HEADER}",
            f"%{n}.a = load ptr, ptr %{n}.p, align 8",
        ]
    kinds = ["ptr", "ptr", "i64", "i64", "i64", "ptr", "ptr", "i64"]
    for k, kind in enumerate(kinds):
        lines += [
            f"%t{k}.p = getelementptr i64, ptr %table, i64 {k}",
            f"%t{k} = load {kind}, ptr %t{k}.p, align 8",
        ]
    given = [f"ptr %{n}.a" for n in names] + [f"{kind} %t{k}" for k, kind in enumerate(kinds[:7]) if k]
    real = {64: "double", 32: "float"}[bits]
    words = {
        "VECTOR": f"<{REPEAT_LANES} x {real}>",
        "REAL": real,
        "LANES": str(REPEAT_LANES),
        "BITS": str(bits),
        "SIZE": str(bits // 8),
    }
    look = functools.reduce(lambda text, word: text.replace(*word), words.items(), LOOK)
    head = ", ".join([f"ptr %{n}" for n in names] + ["ptr %table"])
    body = "\n  ".join(lines) + look + f"  call void %t0({', '.join(given)})\n  ret i32 1"
    sum_of = (
        f"declare {real} @llvm.vector.reduce.fadd.v{REPEAT_LANES}f{bits}({real}, <{REPEAT_LANES} x {real}>)"
    )
    text = f'target triple = "{processor().triple}"\n{sum_of}\ndefine i32 @repeat({head}) {{\nentry:\n  {body}\n}}\n'
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * (len(names) + 1))(
        function_address(text, "repeat")
    )


def launch_table(
    launcher: Launcher, width: int, batch: int, steps: int, places: tuple, looked: int
) -> np.ndarray:
    """Return the table of `by_objects`; `places` are the addresses of the tape, of caps and of needed."""
    form = ctypes.cast(launcher.forms[width], ctypes.c_void_p).value
    tape, *others = places
    return np.array([form, tape, batch, steps, batch // width, *others, looked], np.int64)


def launched(
    launcher: Launcher, theta: np.ndarray, data: np.ndarray, single: bool, looked: int
) -> LastLaunch | None:
    """Return the data to repeat this thread's last launch; None if it takes more than one launch.

    `single`: one sample, for which the caller's theta has no axis. `looked`: the number of data that must be
    finite."""
    steps, batch = data.shape[-1], theta.shape[1]
    width = launcher.width_for(batch)
    if (
        launcher.memory is None
        or batch % width
        or launcher.counted
        or width in launcher.quick  # whose code is replaced later
        or not launcher.is_simple(batch, steps)
        or not HEADER
    ):
        return None
    caps, needed, tape = launcher.local.found
    table = launch_table(launcher, width, batch, steps, (tape, caps, needed[0]), looked)
    run, kept = by_objects(len(launcher.outputs), 8 * theta.itemsize), (launcher, launcher.memory, table)
    shape = theta.shape[:1] if single else theta.shape
    return LastLaunch(
        shape, data.shape, theta.dtype, batch, launcher.types[0], run, data_pointer(table), kept
    )


def fits_launch(last: LastLaunch | None, theta, data) -> bool:
    """Return whether a launch on these arrays is like the last one."""
    if last is None or not (type(theta) is np.ndarray is type(data)):
        return False
    return theta.shape == last.theta and data.shape == last.data and theta.dtype is last.dtype is data.dtype


def repeat_launch(last, theta: np.ndarray, data: np.ndarray, gradient: bool):
    """Return value, or value and gradient, by repeating the last launch; None if the data hold nan or inf.

    A column of a table is copied, which takes little time."""
    theta = theta if theta.flags.c_contiguous else np.ascontiguousarray(theta)
    data = data if data.flags.c_contiguous else np.ascontiguousarray(data)
    v = np.empty(last.samples, last.value)
    if gradient:
        g = np.empty(theta.shape, last.dtype)
        if not last.run(id(theta), id(data), id(v), id(g), last.table):
            return None
        return (v, g) if theta.ndim == 2 else (v[0], g)
    if not last.run(id(theta), id(data), id(v), last.table):
        return None
    return v if theta.ndim == 2 else v[0]
