"""`numpy.nditer` over arrays that may be tracked, an element at a time."""

import operator
from typing import Any

import numpy as np

from .._core.arrays import is_array
from .._core.errors import ArgumentError
from .._core.primitive import holds_variable, layout_of
from .._core.variable import Variable, variable
from ..ops.creation import asarray
from ..ops.declare import shape

KNOWN = frozenset(
    ("multi_index", "c_index", "f_index", "zerosize_ok", "refs_ok", "copy_if_overlap", "reduce_ok")
)
# attributes that give no elements
PLAIN_NAMES = frozenset(
    "close dtypes finished has_index index iterindex iternext itersize ndim nop reset shape".split()
)


class broadcast:
    """`numpy.broadcast` of arrays that may be tracked."""

    def __new__(cls, *xs: Any) -> Any:
        return object.__new__(cls) if holds_variable(xs) else np.broadcast(*xs)

    def __init__(self, *xs: Any):
        given = [asarray(x) for x in xs]
        self.arrays = np.broadcast_arrays(*given)
        self.real = np.broadcast(*[np.empty(shape(x), bool) for x in given])

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> tuple:
        k = self.real.index
        next(self.real)
        return tuple([a.flat[k] for a in self.arrays])

    def __getattr__(self, name: str) -> Any:
        return [a.flat for a in self.arrays] if name == "iters" else getattr(self.real, name)


class nditer:
    """NumPy's own iterator goes over arrays of the same layouts, so the order is that of NumPy.  Nothing is
    read there.  Of other objects than Variables this is that iterator."""

    def __new__(cls, op: Any, flags: Any = None, op_flags: Any = None, *args: Any, **options: Any) -> Any:
        operands = op if isinstance(op, (list, tuple)) else (op,)
        if any([isinstance(x, Variable) for x in operands]):
            return object.__new__(cls)
        return np.nditer(op, flags or (), op_flags, *args, **options)

    def __init__(
        self,
        op: Any,
        flags: Any = None,
        op_flags: Any = None,
        op_dtypes: Any = None,
        order: str = "K",
        casting: str = "safe",
        op_axes: Any = None,
        itershape: Any = None,
        buffersize: int = 0,
    ):
        names = set(flags or ())
        if not names <= KNOWN or op_dtypes is not None or op_axes is not None:
            raise ArgumentError(
                "numpy.nditer: of a tracked array, only single elements with their own dtype are given (no "
                f"{', '.join([*sorted(names - KNOWN), 'op_dtypes', 'op_axes'])}); loop over "
                "numpy.ndindex(x.shape), or over rows"
            )
        self.one = not isinstance(op, (list, tuple))
        given = [x if x is None else asarray(x) for x in ([op] if self.one else op)]
        options = {} if itershape is None else {"itershape": itershape}
        make: Any = np.nditer
        self.real = make(
            [x if x is None else place_of(layout_of(x)) for x in given],
            [*names - {"copy_if_overlap"}, "multi_index"],
            op_flags,
            order=order,
            **options,
        )
        self.has_multi_index = "multi_index" in names
        self.operands = tuple(
            [variable(made) if x is None else x for x, made in zip(given, self.real.operands, strict=True)]
        )

    def element(self, k: int) -> Any:
        """The element of an operand, as an array without axes over it."""
        x = self.operands[k]
        at = self.real.multi_index[self.real.ndim - x.ndim :]
        return x[(*[0 if n == 1 else i for n, i in zip(x.shape, at, strict=True)], ...)]

    @property
    def value(self) -> Any:
        return self.element(0) if self.one else tuple([self[k] for k in range(len(self))])

    @property
    def multi_index(self) -> tuple:
        if not self.has_multi_index:
            raise ValueError("Iterator is not tracking a multi-index")
        return self.real.multi_index

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        next(self.real)
        return self.value

    def __len__(self) -> int:
        return len(self.operands)

    def __getitem__(self, k: Any) -> Any:
        return self.element(range(len(self))[operator.index(k)])

    def __setitem__(self, k: Any, value: Any) -> None:
        self[k][...] = value

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name not in PLAIN_NAMES:
            raise AttributeError(f"numpy.nditer.{name} of a tracked array is not supported by tapegrad")
        return getattr(self.real, name)


def place_of(x: Any) -> np.ndarray:
    """An array with the layout of x, of which no element may be read."""
    if not is_array(x):
        return np.empty((), np.result_type(x))
    return np.lib.stride_tricks.as_strided(np.empty(1, x.dtype), x.shape, x.strides)
