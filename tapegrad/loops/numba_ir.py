"""Numba's typed intermediate representation of a function, without code generation.

This is the only module that knows Numba's internal names. Numba's passes up to type inference are run by
hand. A function that is called is typed here, too: Numba would compile it, and for a device it would ask for
a driver."""

import contextlib
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import numba
from numba import types
from numba.core import bytecode, compiler, controlflow, errors, ir, registry, typed_passes
from numba.core.compiler_machinery import PassManager
from numba.core.dispatcher import _DispatcherBase
from numba.core.target_extension import target_override
from numba.core.typing.templates import make_concrete_template, signature

from .._core.registry import load
from .program import LoopRefused

LOCK = threading.RLock()


def cuda_parts() -> tuple:
    """(class of kernels, target, compiler flags) of numba.cuda."""
    return (
        load("numba.cuda.dispatcher").CUDADispatcher,
        load("numba.cuda.descriptor").cuda_target,
        load("numba.cuda.compiler").CUDAFlags(),
    )


class TypedFunction:
    """A function for these types of arguments: blocks of statements, and the types of names and calls."""

    def __init__(self, func, argtypes: tuple, device: bool):
        self.func, self.device = func, device
        self.name, self.file = func.__name__, func.__code__.co_filename
        try:
            with LOCK, helpers_typed_only(device):
                state = typed_state(func, argtypes, device)
        except errors.NumbaError as error:
            raise LoopRefused(f"Numba cannot type {func.__name__}: {what_numba_says(error)}") from error
        self.blocks, self.typemap, self.calltypes = state.func_ir.blocks, state.typemap, state.calltypes
        self.return_type = state.return_type
        self.raises = not device and leave_out_exceptions(self.blocks)
        self.flow = graph_of_blocks(self.blocks)


def what_numba_says(error: Exception) -> str:
    """The first line of a message that tells of the user's code, with its place."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    place = next((line.rstrip(":") for line in lines if line.startswith('File "')), "")
    return f"{lines[lines[0].startswith('Failed in') and len(lines) > 1]} {place}".strip()


def leave_out_exceptions(blocks: dict) -> bool:
    """Does any branch end in an exception?  Such branches go the other way, and the blocks are left out."""
    doomed = {
        b
        for b, block in blocks.items()
        if isinstance(block.terminator, (ir.Raise, ir.StaticRaise, ir.DynamicRaise))
    }
    count = 0
    while len(doomed) > count:
        count = len(doomed)
        targets = {b: block.terminator.get_targets() for b, block in blocks.items()}
        doomed |= {b for b, to in targets.items() if to and doomed.issuperset(to)}
    if min(blocks) in doomed:  # it always raises
        return False
    for b in doomed:
        del blocks[b]
    for block in blocks.values():
        kept = [b for b in block.terminator.get_targets() if b not in doomed]
        if len(kept) < len(block.terminator.get_targets()):
            block.body[-1] = ir.Jump(kept[0], block.terminator.loc)
    return bool(doomed)


def graph_of_blocks(blocks):
    flow = controlflow.CFGraph()
    for b in blocks:
        flow.add_node(b)
    for b, block in blocks.items():
        for target in block.terminator.get_targets():
            flow.add_edge(b, target)
    flow.set_entry_point(min(blocks))
    flow.process()
    return flow


def typed_state(func, argtypes: tuple, device: bool):
    """Numba's state after type inference."""
    _, target, flags = cuda_parts() if device else (None, registry.cpu_target, compiler.Flags())
    flags.nrt = not device
    flags.enable_pyobject = flags.force_pyobject = False
    with target_override("cuda" if device else "cpu"):
        target.typing_context.refresh()
        target.target_context.refresh()
        made = compiler.Compiler(
            target.typing_context, target.target_context, None, tuple(argtypes), None, flags, {}
        )
        made.state.func_id = bytecode.FunctionIdentity.from_function(func)
        made.state.status.can_fallback = False
        passes = PassManager("tapegrad")
        passes.passes.extend(compiler.DefaultPassBuilder.define_untyped_pipeline(made.state).passes)
        passes.add_pass(typed_passes.NopythonTypeInference, "types")
        passes.finalize()
        made.state.bc = bytecode.ByteCode(made.state.func_id)
        passes.run(made.state)
    return made.state


@contextlib.contextmanager
def helpers_typed_only(device: bool) -> Iterator[None]:
    kind: Any = cuda_parts()[0] if device else _DispatcherBase
    usual = kind.get_call_template

    def template(self, args, kws):
        # the body of an overload of Numba's own must exist; so must a function of another target
        own = not device and (self.py_func.__module__ or "").startswith("numba.")
        if kws or own or threading.get_ident() != owner:
            return usual(self, args, kws)
        result = typed_state(self.py_func, args, device).return_type
        name = self.py_func.__name__
        made = make_concrete_template(
            f"CallTemplate({name})", key=name, signatures=[signature(result, *args)]
        )
        return made, inspect.signature(self.py_func), args, kws

    def overload(self, args):
        try:
            return compiled(self, args)
        except KeyError:  # a function of Numba's own, such as int(): its machine code is not needed
            return None

    owner, compiled = threading.get_ident(), kind.get_overload
    kind.get_call_template = template
    if device:
        kind.get_overload = overload
    try:
        yield
    finally:
        kind.get_call_template, kind.get_overload = usual, compiled


def kind_of(t) -> str | None:
    """The type of a scalar in loop programs; None: it has none."""
    if isinstance(t, types.Boolean):
        return "b1"
    if isinstance(t, (types.Integer, types.IntegerLiteral)):
        return None if t in (types.uint64,) else "i8"
    return {types.float64: "f8", types.float32: "f4"}.get(t)


def narrow_integer(t) -> tuple[int, bool] | None:
    """(bits, signed) of an integer type with fewer than 64 bits."""
    bits: int = getattr(t, "bitwidth", 64) if isinstance(t, types.Integer) else 64
    return (bits, bool(getattr(t, "signed", True))) if bits < 64 else None


def type_of_array(kind: str, ndim: int):
    return types.Array(type_of_scalar(kind), ndim, "C")


def type_of_scalar(kind: str):
    return {"f8": types.float64, "f4": types.float32, "i8": types.int64, "b1": types.boolean}[kind]


def type_of_tuple(members):
    return types.Tuple(members)


def type_of_object(x):
    """The type of an argument that is no number or array; None: it has none."""
    try:
        return numba.typeof(x)
    except (errors.NumbaError, ValueError):
        return None


def is_array_type(t) -> bool:
    return isinstance(t, types.Array)


def is_tuple_type(t) -> bool:
    return isinstance(t, types.BaseTuple)


def is_device_kernel(d) -> bool:
    return type(d).__module__.startswith("numba.cuda")
