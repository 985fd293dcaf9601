"""Kernels of `cupyx.jit.rawkernel`, and functions of `cupy.vectorize`: CuPy's compiler writes them as CUDA C."""

import ast
import functools
import importlib.util
import inspect
import types
from collections.abc import Sequence

import cupy
import numpy as np
from cupy._functional.vectorize import _get_input_type
from cupyx.jit import _cuda_typerules, _cuda_types

from ..._core.arrays import is_array, xp_of
from ..._core.errors import ArgumentError
from ..._core.primitive import layout_of
from ..program import LoopProgram, LoopRefused
from .array_parser import ArrayParser
from .element_kernels import call_elementwise_kernel
from .kernel_program import KernelText
from .kernels import CKernel

# the routines of these functions are templates; the front end knows NumPy's function of the name
NUMPY_NAMES = frozenset(("minimum", "maximum", "remainder", "floor_divide"))


class NamedRoutines:
    """A universal function of CuPy's for its compiler: some routines are calls of NumPy's function."""

    def __init__(self, ufunc):
        self.ufunc, self.name, self.nin, self.nout = ufunc, ufunc.name, ufunc.nin, ufunc.nout
        self._ops, self._preamble = self, ""

    def named(self, op):
        name = self.name.removeprefix("cupy_")
        if op is None or not (name in NUMPY_NAMES or "integral_power" in op.routine):
            return op
        return types.SimpleNamespace(
            in_types=op.in_types,
            out_types=op.out_types,
            error_func=None,
            routine=f"out0 = STD::{name}(in0, in1)",
        )

    def _guess_routine_from_dtype(self, dtype):
        return self.named(self.ufunc._ops._guess_routine_from_dtype(dtype))

    def _guess_routine_from_in_types(self, *args):
        return self.named(self.ufunc._ops._guess_routine_from_in_types(*args))


@functools.cache
def compiler_with_lines():
    """A copy of CuPy's compiler: its text tells the user's lines and calls NumPy's functions by name."""

    def copy_of(name: str):
        spec = importlib.util.find_spec(f"cupyx.jit.{name}")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    compiler, functions = copy_of("_compile"), copy_of("_builtin_funcs")
    compiler._builtin_funcs, functions._compile = functions, compiler
    statement, parsed, call = compiler._transpile_stmt, compiler._parse_function_object, compiler._call_ufunc

    def parse(func):
        tree, text = parsed(func)
        for node in ast.walk(tree):
            vars(node)["in_file"] = getattr(node, "lineno", 1) + func.__code__.co_firstlineno - 1
        return tree, text

    def transpile(s, *args) -> list:
        return [f"#line {s.in_file}", *statement(s, *args)]

    compiler._parse_function_object, compiler._transpile_stmt = parse, transpile
    compiler._call_ufunc = lambda ufunc, *args: call(NamedRoutines(ufunc), *args)
    return compiler


def type_of_argument(x, mode: str):
    """What CuPy's compiler is told of an argument."""
    look = layout_of(x)
    if is_array(look) and (look.ndim or xp_of(look) is not np):
        return _cuda_types.CArray(look.dtype, look.ndim, True, True)
    if np.ndim(look) or np.asarray(look).dtype.kind not in "biuf":
        raise TypeError(f"{type(look)} is not supported for RawKernel")
    return _cuda_typerules.get_ctype_from_scalar(mode, look[()] if is_array(look) else look)


@functools.lru_cache(256)
def python_kernel(kernel, in_types: tuple) -> CKernel:
    """A kernel that `cupyx.jit.rawkernel` made, for arguments of these types."""
    func, head = kernel._func, ['extern "C"', "__global__"]
    made = compiler_with_lines().transpile(func, head, kernel._mode, in_types, _cuda_types.void)
    file = inspect.getsourcefile(func) or func.__name__
    return CKernel(KernelText(made.code, file, parser=ArrayParser), made.func_name)


def kernel_for(kernel, args: Sequence) -> CKernel:
    return python_kernel(kernel, tuple([type_of_argument(x, kernel._mode) for x in args]))


def launch_python_kernel(kernel, grid, block, args: Sequence, shared_bytes: int) -> None:
    """Launch a kernel of `cupyx.jit.rawkernel` on tracked arrays."""
    kernel_for(kernel, args)(grid, block, args, shared_bytes)


def program_of_launch(kernel, launch, args: Sequence, of_thread: bool) -> tuple[LoopProgram, list]:
    """The program of a kernel, of one thread or of all in order, and its arguments as NumPy arrays."""
    if launch is None:
        raise ArgumentError(f"{kernel.__name__} is a kernel: pass launch=(blocks, threads)")
    here = [x.get() if is_array(x) and xp_of(x) is not np else x for x in args]
    made = kernel_for(kernel, here)
    return made.text.program(made.entry, of_thread), made.values(launch[0], launch[1], here)


@functools.lru_cache(256)
def vectorized_kernel(v, in_types: tuple):
    """The elementwise kernel of a function of `cupy.vectorize`."""
    made = compiler_with_lines().transpile(v.pyfunc, ["__device__"], "numpy", in_types, None)
    names = [f"in{k}" for k in range(len(in_types))]
    outs, body = v._get_body(made.return_type, f"{made.func_name}({', '.join(names)})")
    params = ", ".join([f"{t.dtype} {name}" for t, name in zip(in_types, names, strict=True)])
    return cupy.ElementwiseKernel(params, outs, body, "cupy_vectorize", preamble=made.code)


def call_vectorized(v, args: Sequence):
    """Call a function of `cupy.vectorize` with tracked values."""
    if v.otypes is not None:
        raise LoopRefused("cupy.vectorize with otypes")
    looks = [layout_of(x) for x in args]
    in_types = tuple([_cuda_types.Scalar(_get_input_type(x)) for x in looks])
    return call_elementwise_kernel(vectorized_kernel(v, in_types), args)
