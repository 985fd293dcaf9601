"""A launch on the CPU once more, on other arrays of the same shapes, for a few microseconds in all.

Four tenths of a short call went into telling addresses to the code.  A few lines of machine code read the addresses of the data
from the headers of the array objects, and all that does not change from a table of the last launch."""

import ctypes
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np

from .cpu import HEADER, Launcher, address, compiled


class Launched(NamedTuple):
    """The last launch, by which one on arrays of these shapes and this dtype is made without looking further: run(ids .., table)."""

    theta: tuple
    data: tuple
    dtype: np.dtype
    samples: int
    value: type  # dtype of the value
    run: Callable
    table: int
    kept: tuple  # what the table points to


@functools.cache
def by_objects(outputs: int) -> Callable:
    """repeat(id of theta, of data, of each output, address of the table): code with one input and so many outputs; the table
    holds the code and its last six arguments."""
    names = ["theta", "data", *[f"out{k}" for k in range(outputs)]]
    lines = []
    for n in names:
        lines += [f"%{n}.p = getelementptr i8, ptr %{n}, i64 {HEADER}", f"%{n}.a = load ptr, ptr %{n}.p, align 8"]
    kinds = ["ptr", "ptr", "i64", "i64", "i64", "ptr", "ptr"]
    for k, kind in enumerate(kinds):
        lines += [f"%t{k}.p = getelementptr i64, ptr %table, i64 {k}", f"%t{k} = load {kind}, ptr %t{k}.p, align 8"]
    given = [f"ptr %{n}.a" for n in names] + [f"{kind} %t{k}" for k, kind in enumerate(kinds) if k]
    lines += [f"call void %t0({', '.join(given)})", "ret void"]
    head = ", ".join([f"ptr %{n}" for n in names] + ["ptr %table"])
    body = "\n  ".join(lines)
    text = f'target triple = "{llvm.get_default_triple()}"\ndefine void @repeat({head}) {{\n  {body}\n}}\n'
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(names) + 1))(compiled(text, "repeat"))


def launched(launcher: Launcher, theta: np.ndarray, data: np.ndarray, single: bool) -> Launched | None:
    """After a launch in this thread: what launches like it take.  None where more than one launch is due.  `single`: one sample, for
    which the caller's theta has no axis."""
    steps, batch = data.shape[-1], theta.shape[1]
    width = launcher.width_for(batch)
    if launcher.memory is None or batch % width or launcher.counted or not launcher.is_simple(batch, steps) or not HEADER:
        return None
    form = launcher.forms[width]
    caps, needed, tape = launcher.local.found
    table = np.array([ctypes.cast(form, ctypes.c_void_p).value, tape, batch, steps, batch // width, caps, needed[0]], np.int64)
    run, kept = by_objects(len(launcher.outputs)), (launcher, launcher.memory, table)
    shape = theta.shape[:1] if single else theta.shape
    return Launched(shape, data.shape, theta.dtype, batch, launcher.types[0], run, address(table), kept)


def fits(last: Launched | None, theta: Any, data: Any) -> bool:
    """Is a launch on these arrays like the last one?"""
    if last is None or not (type(theta) is np.ndarray is type(data)):
        return False
    return (
        theta.shape == last.theta
        and data.shape == last.data
        and theta.dtype is last.dtype is data.dtype
        and theta.flags.c_contiguous
        and data.flags.c_contiguous
    )


def repeated(last: Launched, theta: np.ndarray, data: np.ndarray, gradient: bool) -> Any:
    """Value, or value and gradient, by a launch like the last one."""
    v = np.empty(last.samples, last.value)
    if gradient:
        g = np.empty(theta.shape, last.dtype)
        last.run(id(theta), id(data), id(v), id(g), last.table)
        return (v, g) if theta.ndim == 2 else (v[0], g)
    last.run(id(theta), id(data), id(v), last.table)
    return v if theta.ndim == 2 else v[0]
