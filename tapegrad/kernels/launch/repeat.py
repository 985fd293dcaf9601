"""A launch on the CPU once more, on other arrays of the same shapes, for a few microseconds in all.

Four tenths of a short call went into telling addresses to the kernel.  A few lines of machine code read the addresses of the data
from the headers of the array objects, and all that does not change from a table of the last launch."""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from .cpu import HEADER, Launcher, address, compiled


@functools.cache
def by_objects(outputs: int) -> Callable:
    """again(id of theta, of data, of each output, address of the table): a kernel with one input and so many outputs; the table
    holds the kernel and its last six arguments."""
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
    text = f'target triple = "{llvm.get_default_triple()}"\ndefine void @again({head}) {{\n  {body}\n}}\n'
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(names) + 1))(compiled(text, "again"))


def repeatable(launcher: Launcher, steps: int, batch: int) -> tuple | None:
    """After a launch in this thread: the function to call on the ids of theta, data and outputs and a last argument, that
    argument, and what must be kept meanwhile.  None where more than one launch is due."""
    width = launcher.width_for(batch)
    if launcher.memory is None or batch % width or launcher.counted or not launcher.is_simple(batch, steps) or not HEADER:
        return None
    form = launcher.forms[width]
    caps, needed, tape = launcher.local.found
    table = np.array([ctypes.cast(form, ctypes.c_void_p).value, tape, batch, steps, batch // width, caps, needed[0]], np.int64)
    return by_objects(len(launcher.outputs)), address(table), (launcher, launcher.memory, table)


def unchanged(plan: tuple | None, theta: Any, data: Any) -> bool:
    """Do these arrays fit the remembered launch?"""
    if plan is None or not (type(theta) is np.ndarray is type(data)):
        return False
    return (
        theta.shape == plan[0]
        and data.shape == plan[1]
        and theta.dtype is plan[2] is data.dtype
        and theta.flags.c_contiguous
        and data.flags.c_contiguous
    )
