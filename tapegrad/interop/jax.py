"""Functions across tapegrad and JAX.

A function of tapegrad is one JAX primitive, `host_call`, that calls back to the host. Its rules build further
calls: the tangent map, which is linear in the tangents and therefore has a transpose, and the batched form.
JAX's cotangents are not conjugated, so the transpose conjugates on both sides.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import errors, tree
from .functions import HostFunction, captured_named, captured_tensors, is_number, with_reverse_rule
from .layout import Layout

try:
    import jax
    import jax.extend.core
    from jax.interpreters import ad, batching, mlir
except ImportError as error:
    raise ImportError("tapegrad.interop needs JAX here: pip install jax") from error

__all__ = ["from_jax", "to_jax"]

Outputs = tuple[tuple[tuple[int, ...], Any], ...]  # shape and dtype of each result

host_call = jax.extend.core.Primitive("tapegrad_host_call")
host_call.multiple_results = True


def on_host(function: HostFunction, outputs: Outputs, *operands: Any) -> list:
    """The results as NumPy arrays of the promised shapes and dtypes."""
    results = function(*[np.array(x) for x in operands])  # the function may write into its arguments
    shapes = [np.shape(y) for y in results]
    if shapes != [shape for shape, _ in outputs]:
        raise errors.ShapeError(
            f"to_jax: the function returned shapes {shapes}, where it was traced with "
            f"{[shape for shape, _ in outputs]}; "
            "the shapes of its results must not depend on values"
        )
    return [np.asarray(y, dtype) for y, (_, dtype) in zip(results, outputs, strict=True)]


def outputs_of(operands: Sequence[Any]) -> Outputs:
    return tuple([(tuple(x.shape), np.dtype(x.dtype)) for x in operands])


def is_inexact(output: tuple) -> bool:
    return output[1].kind in "fc"


@host_call.def_impl
def _impl(*operands: Any, function: HostFunction, outputs: Outputs, linear: int) -> list:
    return [jax.numpy.asarray(y) for y in on_host(function, outputs, *operands)]


@host_call.def_abstract_eval
def _abstract(*operands: Any, function: HostFunction, outputs: Outputs, linear: int) -> list:
    return [jax.core.ShapedArray(shape, dtype) for shape, dtype in outputs]


def _lowered(*operands: Any, function: HostFunction, outputs: Outputs, linear: int) -> Any:
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in outputs]
    return jax.pure_callback(functools.partial(on_host, function, outputs), results, *operands)


mlir.register_lowering(host_call, mlir.lower_fun(_lowered, multiple_results=True))


def _jvp(primals: Any, tangents: Any, *, function: HostFunction, outputs: Outputs, linear: int) -> tuple:
    """`linear`: the number of trailing operands in which the call is linear."""
    results = host_call.bind(*primals, function=function, outputs=outputs, linear=linear)
    active = tuple([k for k, t in enumerate(tangents) if type(t) is not ad.Zero])
    moving = tuple([o for o in outputs if is_inexact(o)])
    given = [ad.instantiate_zeros(tangents[k]) for k in active]
    found = iter(
        host_call.bind(
            *primals, *given, function=function.tangent(active), outputs=moving, linear=len(active)
        )
    )
    return results, [
        next(found) if is_inexact(o) else ad.Zero(jax.core.ShapedArray(o[0], jax.dtypes.float0))
        for o in outputs
    ]


ad.primitive_jvps[host_call] = _jvp


def _transpose(
    cotangents: Any, *operands: Any, function: HostFunction, outputs: Outputs, linear: int
) -> list:
    wanted = tuple([k for k, x in enumerate(operands) if ad.is_undefined_primal(x)])
    avals = [operands[k].aval for k in wanted]
    given = [
        jax.numpy.zeros(x.aval.shape, x.aval.dtype) if ad.is_undefined_primal(x) else x for x in operands
    ]
    ws = [ad.instantiate_zeros(w) for w in cotangents]
    pulled = function.pullback(wanted, len(ws), True)
    found = iter(host_call.bind(*given, *ws, function=pulled, outputs=outputs_of(avals), linear=len(ws)))
    return [next(found) if k in wanted else None for k in range(len(operands))]


ad.primitive_transposes[host_call] = _transpose


def _batch(operands: Any, dims: Any, *, function: HostFunction, outputs: Outputs, linear: int) -> tuple:
    mapped = tuple([isinstance(d, int) for d in dims])  # else JAX's mark for an operand without samples
    moved = [jax.numpy.moveaxis(x, d, 0) if m else x for x, d, m in zip(operands, dims, mapped, strict=True)]
    size = next(x.shape[0] for x, m in zip(moved, mapped, strict=True) if m)
    stacked = tuple([((size, *shape), dtype) for shape, dtype in outputs])
    results = host_call.bind(*moved, function=function.batched(mapped), outputs=stacked, linear=linear)
    return results, [0] * len(results)


batching.primitive_batchers[host_call] = _batch


def to_jax(f: Callable, out: Any = None) -> Callable:
    """See `tapegrad.interop.to_jax`."""
    known: dict = {}

    @functools.wraps(f)
    def of_jax(*args: Any) -> Any:
        operands = [jax.numpy.asarray(x) for x in tree.flatten(args)[0] if is_number(x)]
        key = tuple(
            [
                (path, outputs_of([jax.numpy.asarray(x)]) if is_number(x) else x)
                for path, x in tree.leaves_with_paths(args)
            ]
        )
        function, outputs, unflatten = (
            known[key] if key in known else known.setdefault(key, traced(f, args, operands, out))
        )
        return unflatten(host_call.bind(*operands, function=function, outputs=outputs, linear=0))

    return of_jax


def traced(f: Callable, args: tuple, operands: Sequence[Any], out: Any) -> tuple:
    """(function, outputs, function that makes the result of its leaves) for arguments of this structure."""
    layout = Layout(args, is_number)
    if out is None:
        r = np.random.default_rng(0)
        sample = layout.arranged([r.random(x.shape).astype(x.dtype) for x in operands])
        try:
            with captured_named(f):
                out = f(*sample)
        except Exception as error:
            error.add_note(
                "to_jax ran the function at random numbers to find the shape of its result; give it by out="
            )
            raise
    leaves, unflatten = tree.flatten(out)
    if any([isinstance(y, jax.core.Tracer) for y in leaves]):
        captured = [name for name, x in captured_tensors(f) if isinstance(x, jax.core.Tracer)]
        raise errors.ArgumentError(
            f"to_jax: the function computes with a tracer of JAX that it captured {captured}; pass it as an "
            "argument"
        )
    outputs = outputs_of([y if hasattr(y, "dtype") else np.asarray(y) for y in leaves])
    outputs = tuple([(shape, jax.dtypes.canonicalize_dtype(dtype)) for shape, dtype in outputs])
    return HostFunction(f, layout), outputs, unflatten


def from_jax(f: Callable) -> Callable:
    """See `tapegrad.interop.from_jax`."""

    def value(args: tuple) -> Any:
        return tree.map(
            lambda y: np.array(y) if isinstance(y, jax.Array) else y, f(*tree.map(to_jax_array, args))
        )

    def pullback(layout: Layout, wanted: tuple) -> Callable:
        def pulled(cotangents: tuple, operands: tuple) -> Any:
            def at(*moved: Any) -> tuple:
                placed = dict(zip(wanted, moved, strict=True))
                results = tree.flatten(
                    f(*layout.arranged([placed.get(k, x) for k, x in enumerate(operands)]))
                )[0]
                return tuple(
                    [y for y in results if jax.numpy.issubdtype(jax.numpy.result_type(y), jax.numpy.inexact)]
                )

            conjugate = jax.numpy.conj
            found = jax.vjp(at, *[operands[k] for k in wanted])[1](tuple([conjugate(w) for w in cotangents]))
            return tuple([conjugate(c) for c in found])

        return from_jax(pulled)

    return functools.wraps(f)(with_reverse_rule(value, pullback))


def to_jax_array(x: Any) -> Any:
    if not is_number(x):
        return x
    dtype = np.dtype(getattr(x, "dtype", type(x)))
    if dtype.kind in "fc" and jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise errors.ArgumentError(
            f"from_jax: JAX would round {dtype} to {jax.dtypes.canonicalize_dtype(dtype)}; "
            'write jax.config.update("jax_enable_x64", True) first, or pass float32'
        )
    return jax.numpy.asarray(x)
