"""x[mask] with a mask that differs between samples or replays: as many elements as it has, another number for each.

`Selected` stands for them, of the shape of x, until they are written back by the same mask or summed: elementwise functions of it are
taken everywhere, with one of the chosen elements in the place of those that are not, so that no function meets what it was kept from.
What needs their number asks for the mask: under `vmap` that raises, in a recording it is a guard."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._primitive import READ, bind, layout_of, primal_of
from .._variable import Variable
from ._define import dtype, ndim, primitive, shape, xp
from .corners import where
from .picking import agreed
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


def is_recorded(mask: Any) -> bool:
    """Is it hidden by a trace that may be asked for it, but whose answer then holds for no other mask?"""
    mask = primal_of(mask)
    return isinstance(mask, Variable) and not mask._trace.samples


def selected(x: Any, mask: Any) -> "Selected":
    mask, n = primal_of(mask), int(np.prod(shape(mask)))
    if not n or (not mask._trace.samples and not bool(np.any(mask))):
        return Selected(x, mask).plain_elements()
    row = first_chosen(reshape(mask, to=(n,)), reshape(primal_of(x), to=(n, *shape(x)[ndim(mask) :])))
    return Selected(where(along(mask, x), x, row), mask)


def along(mask: Any, x: Any) -> Any:
    return reshape(mask, to=shape(mask) + (1,) * (ndim(x) - ndim(mask)))


def written(x: Any, y: "Selected", at: Any) -> tuple:
    """(value, index), which x[at] = y comes down to."""
    if y.mask is None or not isinstance(at, Variable) or shape(at) != shape(y.mask) or shape(x)[ndim(at) :] != shape(y.full)[ndim(at) :]:
        return y.plain_elements(), at
    at = primal_of(at)
    if at is not y.mask and not bool(np.all(at == y.mask)):
        return y.plain_elements(), at
    return where(along(at, x), y.full, x), Ellipsis


def plain(v: Any) -> Any:
    if type(v) is Selected:
        return v.plain_elements()
    return type(v)([plain(w) for w in v]) if type(v) in (list, tuple) else v


def of_plain(name: str) -> Callable:
    return lambda v, *args, **kwargs: getattr(v.plain_elements(), name)(*plain(args), **kwargs)


class Selected(np.lib.mixins.NDArrayOperatorsMixin):
    """The elements of `full` where `mask` is true; of a mask None, all of it."""

    __slots__ = ("full", "mask")
    __array_priority__ = 1e6

    def __init__(self, full: Any, mask: Any):
        self.full, self.mask = full, mask

    def plain_elements(self) -> Any:
        """These elements by themselves: where the mask is the same for all, or may be asked for."""
        return self.full if self.mask is None else bind(READ, (self.full,), {"path": (), "at": agreed(self.mask), "copy": True})

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
        return getattr(self.plain_elements(), name)

    def __setitem__(self, at: Any, y: Any) -> None:
        self.full, self.mask = self.plain_elements(), None
        self.full[at] = y

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self.plain_elements(), *args, **kwargs)

    __len__, __iter__, __getitem__ = of_plain("__len__"), of_plain("__iter__"), of_plain("__getitem__")
    __bool__, __float__, __int__ = of_plain("__bool__"), of_plain("__float__"), of_plain("__int__")
    __matmul__, __rmatmul__, __str__ = of_plain("__matmul__"), of_plain("__rmatmul__"), of_plain("__str__")

    def joins(self, v: Any) -> bool:
        """Can v stand beside it in a function of the elements?"""
        if type(v) is Selected:
            return v.mask is not None and (v.mask is self.mask or (shape(v.mask) == shape(self.mask) and bool(np.all(v.mask == self.mask))))
        return np.ndim(layout_of(v)) < self.ndim

    def each(self, f: Callable, args: tuple, kwargs: dict) -> Any:
        if self.mask is None or not all([self.joins(v) for v in args]):
            return f(*plain(args), **kwargs)
        return Selected(f(*[v.full if type(v) is Selected else v for v in args], **kwargs), self.mask)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        if (
            method != "__call__"
            or ufunc.nout != 1
            or ufunc.signature is not None
            or kwargs
            or (out is not None and type(out[0]) is not Selected)
        ):
            kwargs = kwargs if out is None else {**kwargs, "out": plain(out)}
            return getattr(ufunc, method)(*plain(args), **kwargs)
        first = next(v for v in args if type(v) is Selected)
        new = first.each(ufunc, args, {})
        if out is None:
            return new
        to = dtype(out[0].full)
        full, mask = (new.full, new.mask) if type(new) is Selected else (new, None)
        out[0].full, out[0].mask = astype(full, to=to), mask
        return out[0]

    def __array_function__(self, f: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
        if f in REDUCTIONS and type(args[0]) is Selected:
            return args[0].reduced(f, *args[1:], **kwargs)
        if f in ELEMENTWISE and any([type(v) is Selected for v in args]):
            return next(v for v in args if type(v) is Selected).each(f, args, kwargs)
        return f(*plain(args), **{k: plain(v) for k, v in kwargs.items()})

    def reduced(self, f: Callable, axis: Any = None, **settings: Any) -> Any:
        if self.mask is None or settings or axis not in (None, 0) or not self.mask._trace.samples:
            return f(self.plain_elements(), axis=axis, **settings)
        axes = None if axis is None else tuple(range(ndim(self.mask)))
        mask = along(self.mask, self.full)
        if f is np.mean:
            count = np.sum(np.broadcast_to(mask, shape(self.full)), axis=axes)
            return self.reduced(np.sum, axis) / count
        none = NONE[f]
        if none is None:
            none = -np.inf if f in (np.max, np.amax) else np.inf
            if dtype(self.full).kind != "f" or not bool(np.all(np.any(self.mask))):  # NumPy raises where there is no element
                return f(self.plain_elements(), axis=axis)
        return f(where(mask, self.full, xp(self.full).asarray(none, dtype(self.full))), axis=axes)

    def copy(self) -> "Selected":
        return Selected(self.full, self.mask)

    def astype(self, to: Any) -> "Selected":
        return Selected(astype(self.full, to=np.dtype(to)), self.mask)


def reduction(f: Callable) -> Callable:
    return lambda v, axis=None, **settings: v.reduced(f, axis, **settings)


for _f in (np.sum, np.mean, np.prod, np.max, np.min, np.any, np.all):
    setattr(Selected, _f.__name__.removeprefix("a") if _f in (np.max, np.min) else _f.__name__, reduction(_f))
ELEMENTWISE = frozenset((np.where, np.clip, np.nan_to_num, np.round, np.real, np.imag, np.angle, np.sinc, np.copy))
NONE = {np.sum: 0, np.prod: 1, np.any: False, np.all: True, np.max: None, np.min: None, np.amax: None, np.amin: None}
REDUCTIONS = frozenset((*NONE, np.mean))
