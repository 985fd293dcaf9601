"""x[mask] under `vmap`, with a mask that differs between samples: as many elements as the mask has, another number for each.

`Selected` stands for them, of the shape of x, until they are written back by the same mask or summed: elementwise functions of it are
taken everywhere, with one of the chosen elements in the place of those that are not, so that no function meets what it was kept from.
What needs the number of the elements raises."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._primitive import layout_of, primal_of
from .._variable import Variable
from ._define import dtype, ndim, primitive, shape, xp
from .corners import where
from .picking import refuse
from .shaping import astype, broadcast_to, reshape
from .sorting import taken


def is_mask(x: Any, at: Any) -> bool:
    """Is this hidden index one mask for leading axes of x?"""
    return isinstance(at, Variable) and dtype(at).kind == "b" and 0 < ndim(at) <= ndim(x) and shape(at) == shape(x)[: ndim(at)]


def _first_of_samples(run: Any, stacks: list, params: dict) -> Any:
    """A sample that chooses none takes what another chooses (were it none in all of them, the mask would not differ)."""
    flags, rows = [primal_of(v) for v in stacks]
    count, n, *rest = shape(rows)
    one = (1,) * (1 + len(rest))
    at = broadcast_to(reshape(np.argmax(flags, axis=1), to=(count, *one)), to=(count, 1, *rest))
    first = reshape(taken(rows, at, 1), to=(count, *rest))
    other = run(reshape(flags, to=(count * n,)), reshape(rows, to=(count * n, *rest)))
    return where(reshape(np.any(flags, axis=1), to=(count, *one[1:])), first, other)


@primitive(batch=_first_of_samples)
def first_chosen(flags, rows):
    """The first row with a true flag."""
    return rows[flags.argmax()]


def selected(x: Any, mask: Any) -> "Selected":
    mask, n = primal_of(mask), int(np.prod(shape(mask)))
    if not n:
        return Selected(x, mask)
    row = first_chosen(reshape(mask, to=(n,)), reshape(primal_of(x), to=(n, *shape(x)[ndim(mask) :])))
    return Selected(where(along(mask, x), x, row), mask)


def along(mask: Any, x: Any) -> Any:
    return reshape(mask, to=shape(mask) + (1,) * (ndim(x) - ndim(mask)))


def written(x: Any, y: "Selected", at: Any) -> Any:
    """x after x[at] = y."""
    if not isinstance(at, Variable) or shape(at) != shape(y.mask) or not shape(x)[ndim(at) :] == shape(y.full)[ndim(at) :]:
        refuse()
    at = primal_of(at)
    if at is not y.mask and not bool(np.all(at == y.mask)):
        refuse()
    return where(along(at, x), y.full, x)


class Selected(np.lib.mixins.NDArrayOperatorsMixin):
    """The elements of `full` where `mask` is true."""

    __slots__ = ("full", "mask")
    __array_priority__ = 1e6

    def __init__(self, full: Any, mask: Any):
        self.full, self.mask = full, mask

    @property
    def __class__(self):  # as a Variable of an array has it
        return type(layout_of(self.full))

    @property
    def dtype(self) -> np.dtype:
        return dtype(self.full)

    @property
    def ndim(self) -> int:
        return 1 + ndim(self.full) - ndim(self.mask)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return refuse()

    def __len__(self) -> int:
        return refuse()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return refuse()

    __iter__ = __getitem__ = __setitem__ = __bool__ = __float__ = __int__ = __array__

    def operand(self, v: Any) -> Any:
        """v in a function of the elements."""
        if type(v) is Selected:
            if v.mask is not self.mask and not bool(np.all(v.mask == self.mask)):
                refuse()
            return v.full
        return v if np.ndim(layout_of(v)) < self.ndim else refuse()

    def each(self, f: Callable, args: tuple, kwargs: dict) -> "Selected":
        return Selected(f(*[self.operand(v) for v in args], **kwargs), self.mask)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        if method != "__call__" or ufunc.nout != 1 or ufunc.signature is not None or kwargs:
            return refuse()
        new = self.each(ufunc, args, kwargs)
        if out is None:
            return new
        if len(out) != 1 or type(out[0]) is not Selected:
            return refuse()
        out[0].full = astype(new.full, to=dtype(out[0].full))
        return out[0]

    def __array_function__(self, f: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
        if f in ELEMENTWISE:
            return self.each(f, args, kwargs)
        if f not in REDUCTIONS or type(args[0]) is not Selected:
            return refuse()
        return args[0].reduced(f, *args[1:], **kwargs)

    def reduced(self, f: Callable, axis: Any = None) -> Any:
        axes = None if axis is None else tuple(range(ndim(self.mask))) if axis == 0 else refuse()
        mask, kind = along(self.mask, self.full), dtype(self.full).kind
        if f is np.mean:
            count = np.sum(np.broadcast_to(mask, shape(self.full)), axis=axes)
            return self.reduced(np.sum, axis) / count
        none = NONE[f]
        if none is None:
            none = -np.inf if f is np.max else np.inf
            if kind != "f" or not bool(np.all(np.any(self.mask))):  # NumPy raises where there is no element
                refuse()
        return f(where(mask, self.full, xp(self.full).asarray(none, dtype(self.full))), axis=axes)

    def sum(self, axis: Any = None) -> Any:
        return self.reduced(np.sum, axis)

    def mean(self, axis: Any = None) -> Any:
        return self.reduced(np.mean, axis)

    def prod(self, axis: Any = None) -> Any:
        return self.reduced(np.prod, axis)

    def max(self, axis: Any = None) -> Any:
        return self.reduced(np.max, axis)

    def min(self, axis: Any = None) -> Any:
        return self.reduced(np.min, axis)

    def any(self, axis: Any = None) -> Any:
        return self.reduced(np.any, axis)

    def all(self, axis: Any = None) -> Any:
        return self.reduced(np.all, axis)

    def copy(self) -> "Selected":
        return Selected(self.full, self.mask)

    def astype(self, to: Any) -> "Selected":
        return Selected(astype(self.full, to=np.dtype(to)), self.mask)


ELEMENTWISE = frozenset((np.where, np.clip, np.nan_to_num, np.round, np.real, np.imag, np.angle, np.sinc, np.copy))
NONE = {np.sum: 0, np.prod: 1, np.any: False, np.all: True, np.max: None, np.min: None, np.amax: None, np.amin: None}
REDUCTIONS = frozenset((*NONE, np.mean))
