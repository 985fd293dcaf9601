"""Functions of tapegrad in PyTensor graphs, for PyMC among others."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import errors, tree
from .functions import HostFunction
from .layout import Layout

try:
    import pytensor.tensor as pt
    from pytensor.gradient import DisconnectedType, disconnected_type
    from pytensor.graph.basic import Apply, Variable
    from pytensor.graph.op import Op
except ImportError as error:
    raise ImportError("tapegrad.interop needs PyTensor here: pip install 'pytensor>=3'") from error

__all__ = ["to_pytensor"]


def is_inexact(x: Any) -> bool:
    return np.dtype(x.type.dtype).kind in "fc"


class HostOp(Op):
    """The call of a `HostFunction`. Its derivatives are calls of the derived functions."""

    __props__ = ("function", "types")

    def __init__(self, function: HostFunction, types: tuple):
        self.function, self.types = function, types

    def make_node(self, *inputs: Any) -> Apply:
        return Apply(self, [pt.as_tensor_variable(x) for x in inputs], [t() for t in self.types])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        results = self.function(*[np.array(x) for x in inputs])  # the function may write into its arguments
        for y, t, storage in zip(results, self.types, output_storage, strict=True):
            if np.ndim(y) != t.ndim:
                raise errors.ShapeError(
                    f"to_pytensor: a result has {np.ndim(y)} dimensions, out= promised {t.ndim}"
                )
            storage[0] = np.asarray(y, t.dtype)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list:
        wanted = tuple([k for k, x in enumerate(inputs) if is_inexact(x)])
        moving = [(y, w) for y, w in zip(outputs, cotangents, strict=True) if is_inexact(y)]
        ws = [y.zeros_like() if isinstance(w.type, DisconnectedType) else w for y, w in moving]
        op = HostOp(self.function.pullback(wanted, len(ws)), tuple([inputs[k].type for k in wanted]))
        found = iter(op(*inputs, *ws, return_list=True))
        return [next(found) if is_inexact(x) else disconnected_type() for x in inputs]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list:
        active = tuple([k for k, t in enumerate(tangents) if not isinstance(t.type, DisconnectedType)])
        types = tuple([y.type for y in outputs if is_inexact(y)])
        op = HostOp(self.function.tangent(active), types)
        found = iter(op(*inputs, *[tangents[k] for k in active], return_list=True))
        return [next(found) if is_inexact(y) else disconnected_type() for y in outputs]

    def connection_pattern(self, node: Apply) -> list:
        return [[is_inexact(x) and is_inexact(y) for y in node.outputs] for x in node.inputs]


def to_pytensor(f: Callable, out: Any = 0.0) -> Callable:
    """See `tapegrad.interop.to_pytensor`."""
    leaves, unflatten = tree.flatten(out)
    types = tuple([pt.TensorType(np.asarray(y).dtype, shape=(None,) * np.ndim(y)) for y in leaves])

    @functools.wraps(f)
    def of_variables(*args: Any) -> Any:
        is_operand: Callable[[Any], bool] = lambda x: isinstance(x, Variable)
        op = HostOp(HostFunction(f, Layout(args, is_operand)), types)
        return unflatten(op(*[x for x in tree.flatten(args)[0] if is_operand(x)], return_list=True))

    return of_variables
