"""Functions across tapegrad and PyTorch. `autograd.Function` carries the derivatives in one direction,
`tg.rule` in the other."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import errors, tree
from .functions import HostFunction, is_number, with_reverse_rule
from .layout import Layout

try:
    import torch
except ImportError as error:
    raise ImportError("tapegrad.interop needs PyTorch here: pip install torch") from error

try:
    import cupy
except ImportError:
    cupy = None

__all__ = ["from_torch", "to_torch"]


def is_inexact(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def to_array(t: torch.Tensor) -> Any:
    """The tensor's memory as an array of NumPy or CuPy."""
    t = t.detach().resolve_conj().resolve_neg()
    if t.is_cuda:
        if cupy is None:
            raise errors.DeviceError(
                "a tensor on a GPU needs CuPy: pip install 'tapegrad[cuda13x]', or move it with .cpu()"
            )
        return cupy.from_dlpack(t)
    if t.dtype == torch.bfloat16:
        raise errors.ArgumentError("NumPy has no bfloat16: convert the tensor with .float()")
    return t.numpy()


def to_tensor(x: Any) -> torch.Tensor:
    """The array as a tensor: its own memory where PyTorch can use it."""
    if cupy is not None and isinstance(x, cupy.ndarray):
        return torch.from_dlpack(x)
    x = np.asarray(x)
    usable = x.flags.writeable and x.dtype.isnative and all([s >= 0 for s in x.strides])
    return torch.from_numpy(x if usable else np.array(x, dtype=x.dtype.newbyteorder("=")))


class Call(torch.autograd.Function):
    """The call of a `HostFunction` of tensors. `kept` holds the pullback of the call, if one may be asked
    for."""

    @staticmethod
    def forward(function: HostFunction, kept: dict, *tensors: torch.Tensor) -> Any:
        arrays = [to_array(t) for t in tensors]
        wanted = tuple([k for k, t in enumerate(tensors) if t.requires_grad])
        if wanted and kept.get("keep"):
            results, kept["pull"] = function.linearized(arrays, wanted)
            kept["wanted"] = wanted
        else:
            results = function(*[a.copy() for a in arrays])  # the function may write into its arguments
        return tuple([to_tensor(y) for y in results])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.function, ctx.kept, tensors = *inputs[:2], inputs[2:]
        ctx.inexact = [is_inexact(y) for y in output]
        ctx.mark_non_differentiable(*[y for y, d in zip(output, ctx.inexact, strict=True) if not d])
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        tensors = ctx.saved_tensors
        ws = [w for w, d in zip(cotangents, ctx.inexact, strict=True) if d]
        wanted = tuple([k for k, need in enumerate(ctx.needs_input_grad[2:]) if need])
        if not torch.is_grad_enabled() and ctx.kept.get("wanted") == wanted:
            found = tuple([to_tensor(c) for c in ctx.kept["pull"]([to_array(w) for w in ws])])
        else:
            found = call(ctx.function.pullback(wanted, len(ws)), [*tensors, *ws])
        given: list = [None] * len(tensors)
        for k, c in zip(wanted, found, strict=True):
            given[k] = c
        return None, None, *given

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        active = tuple([k for k, t in enumerate(tangents[2:]) if t is not None])
        found = iter(
            call(ctx.function.tangent(active), [*ctx.saved_tensors, *[tangents[2:][k] for k in active]])
        )
        return tuple([next(found) if d else None for d in ctx.inexact])

    @staticmethod
    def vmap(info: Any, in_dims: tuple, function: HostFunction, kept: dict, *tensors: torch.Tensor) -> Any:
        dims = in_dims[2:]
        moved = [t if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims, strict=True)]
        of_samples = function.batched(tuple([d is not None for d in dims]))
        results = call(of_samples, moved)
        function.unflatten = of_samples.unflatten
        return results, tuple([0] * len(results))


def call(function: HostFunction, tensors: Sequence[torch.Tensor]) -> tuple:
    """The results as tensors."""
    results: tuple = Call.apply(function, {"keep": torch.is_grad_enabled()}, *tensors)
    return results


def to_torch(f: Callable) -> Callable:
    """See `tapegrad.interop.to_torch`."""

    @functools.wraps(f)
    def of_tensors(*args: Any) -> Any:
        function = HostFunction(f, Layout(args, lambda x: isinstance(x, torch.Tensor)))
        results = call(function, [x for x in tree.flatten(args)[0] if isinstance(x, torch.Tensor)])
        return function.unflatten(results)

    return of_tensors


def from_torch(f: Callable) -> Callable:
    """See `tapegrad.interop.from_torch`."""

    def value(args: tuple) -> Any:
        with torch.no_grad():
            return tree.map(
                lambda y: to_array(y) if isinstance(y, torch.Tensor) else y, f(*tree.map(as_operand, args))
            )

    def pullback(layout: Layout, wanted: tuple) -> Callable:
        def pulled(cotangents: tuple, operands: tuple) -> Any:
            def at(*moved: torch.Tensor) -> tuple:
                placed = dict(zip(wanted, moved, strict=True))
                y = f(*layout.arranged([placed.get(k, x) for k, x in enumerate(operands)]))
                return tuple([y for y in tree.flatten(y)[0] if isinstance(y, torch.Tensor) and is_inexact(y)])

            return torch.func.vjp(at, *[operands[k] for k in wanted])[1](cotangents)

        return from_torch(pulled)

    return functools.wraps(f)(with_reverse_rule(value, pullback))


def as_operand(x: Any) -> Any:
    return to_tensor(x) if is_number(x) else x
