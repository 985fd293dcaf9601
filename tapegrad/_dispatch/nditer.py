"""`numpy.nditer` over arrays that may be tracked, an element at a time."""

import functools
import operator
from typing import Any

import numpy as np

from .._core.arrays import is_array
from .._core.errors import ArgumentError
from .._core.primitive import holds_variable, layout_of
from .._core.variable import Variable, variable
from ..ops.creation import asarray
from ..ops.declare import shape
from .subarrays import array_of

KNOWN = frozenset(
    "multi_index c_index f_index zerosize_ok refs_ok copy_if_overlap reduce_ok external_loop".split()
)
# attributes that give no elements
PLAIN_NAMES = frozenset(
    "close dtypes finished has_index index iterindex iternext itersize ndim nop reset shape".split()
)


class broadcast:
    """`numpy.broadcast` of arrays that may be tracked."""

    def __new__(cls, *xs):
        return object.__new__(cls) if holds_variable(xs) else np.broadcast(*xs)

    def __init__(self, *xs):
        self.given = [asarray(array_of(x)) for x in xs]
        self.real = np.broadcast(*[np.empty(shape(x), bool) for x in self.given])

    @functools.cached_property
    def arrays(self) -> list:
        return [np.broadcast_to(x, self.real.shape) for x in self.given]

    def __iter__(self):
        return self

    def __next__(self) -> tuple:
        k = self.real.index
        next(self.real)
        return tuple([a.flat[k] for a in self.arrays])

    def __getattr__(self, name: str):
        return [a.flat for a in self.arrays] if name == "iters" else getattr(self.real, name)


class nditer:
    """NumPy's own iterator goes over arrays of the same layouts, so the order is that of NumPy.  Nothing is
    read there.  Of other objects than Variables this is that iterator."""

    def __new__(cls, op, flags=None, op_flags=None, *args, **options):
        operands = op if isinstance(op, (list, tuple)) else (op,)
        if any([isinstance(x, Variable) for x in operands]):
            return object.__new__(cls)
        return np.nditer(op, flags or (), op_flags, *args, **options)

    def __init__(
        self,
        op,
        flags=None,
        op_flags=None,
        op_dtypes=None,
        order: str = "K",
        casting: str = "safe",
        op_axes=None,
        itershape=None,
        buffersize: int = 0,
    ):
        names = set(flags or ())
        if not names <= KNOWN or op_dtypes is not None or op_axes is not None:
            raise ArgumentError(
                "numpy.nditer: of a tracked array, elements are given with their own dtype (no "
                f"{', '.join([*sorted(names - KNOWN), 'op_dtypes', 'op_axes'])}); loop over "
                "numpy.ndindex(x.shape), or over rows"
            )
        self.lengths = None  # of the parts that are given, of an external loop
        self.one = not isinstance(op, (list, tuple))
        given = [x if x is None else asarray(x) for x in ([op] if self.one else op)]
        options = {} if itershape is None else {"itershape": itershape}
        make: Any = np.nditer
        places = [x if x is None else place_of(layout_of(x)) for x in given]
        if "external_loop" in names:
            if "multi_index" in names or any(
                ["readonly" not in each for each in flags_of_operands(op_flags)]
            ):
                raise ArgumentError("numpy.nditer: an external loop over a tracked array reads only")
            parts = make(places, [*names - {"copy_if_overlap"}], op_flags, order=order, **options)
            self.lengths = iter([np.size(v if len(places) == 1 else v[0]) for v in parts])
            names -= {"external_loop"}
        self.real = make(
            places, [*names - {"copy_if_overlap"}, "multi_index"], op_flags, order=order, **options
        )
        self.has_multi_index = "multi_index" in names
        self.operands = tuple(
            [variable(made) if x is None else x for x, made in zip(given, self.real.operands, strict=True)]
        )

    def element(self, k: int):
        """The element of an operand, as an array without axes over it; elements, in an external loop."""
        x = self.operands[k]
        at = (self.real.multi_index if self.lengths is None else self.part)[self.real.ndim - x.ndim :]
        if self.lengths is not None and not x.ndim:
            return x.reshape(1)[np.zeros(self.part.shape[1], int)]
        return x[(*[0 * i if n == 1 else i for n, i in zip(x.shape, at, strict=True)], ...)]

    @property
    def value(self):
        return self.element(0) if self.one else tuple([self[k] for k in range(len(self))])

    @property
    def multi_index(self) -> tuple:
        if not self.has_multi_index:
            raise ValueError("Iterator is not tracking a multi-index")
        return self.real.multi_index

    def __iter__(self):
        return self

    def __next__(self):
        if self.lengths is None:
            next(self.real)
        else:
            rows = [(next(self.real), self.real.multi_index)[1] for _ in range(next(self.lengths))]
            self.part = np.array(rows, int).T
        return self.value

    def __len__(self) -> int:
        return len(self.operands)

    def __getitem__(self, k):
        return self.element(range(len(self))[operator.index(k)])

    def __setitem__(self, k, value) -> None:
        self[k][...] = value

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def __getattr__(self, name: str):
        if name not in PLAIN_NAMES:
            raise AttributeError(f"numpy.nditer.{name} of a tracked array is not supported by tapegrad")
        return getattr(self.real, name)


def flags_of_operands(op_flags) -> list:
    """The flags of each operand, which are those of a reader if none are given."""
    flags = op_flags or [["readonly"]]
    return [flags] if isinstance(flags[0], str) else flags


def place_of(x) -> np.ndarray:
    """An array with the layout of x, of which no element may be read."""
    if not is_array(x):
        return np.empty((), np.result_type(x))
    return np.lib.stride_tricks.as_strided(np.empty(1, x.dtype), x.shape, x.strides)
