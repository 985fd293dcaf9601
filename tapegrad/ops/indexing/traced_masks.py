"""x[mask] with a mask that differs between samples or replays, and so does the number of selected
elements.

`SelectedElements` stands for these elements, in the shape of x, until they are written back with the same
mask or summed. Elementwise functions are applied everywhere. One of the selected elements replaces those not
selected, so no function meets a value that the mask excluded. Code that needs the number of elements asks for
the mask: under `vmap` that raises, in a recording it is a guard."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.primitive import READ, SAMPLED, bind, is_tracked, layout_of, live, primal_of, values_of
from ..._core.trees import nested
from ..._core.variable import Elements, Variable, frozen
from ..declare import dtype, ndim, primitive, shape, xp
from ..piecewise import where
from ..shaping import astype, broadcast_to, reshape
from ..sorting import take_sorted
from .traced_indices import agreed


def is_mask(x, at) -> bool:
    """Is this hidden index one mask for leading axes of x?"""
    return (
        isinstance(at, Variable)
        and dtype(at).kind == "b"
        and 0 < ndim(at) <= ndim(x)
        and shape(at) == shape(x)[: ndim(at)]
    )


def _first_of_samples(run, stacks: list, params: dict):
    """The batching rule. A sample with no selected element takes one of another sample. (If no sample had
    any, the mask would not differ.)"""
    flags, rows = [primal_of(v) for v in stacks]
    count, n, *rest = shape(rows)
    one = (1,) * (1 + len(rest))
    at = broadcast_to(reshape(np.argmax(flags, axis=1), to=(count, *one)), to=(count, 1, *rest))
    first = reshape(take_sorted(rows, at, 1), to=(count, *rest))
    other = run(reshape(flags, to=(count * n,)), reshape(rows, to=(count * n, *rest)))
    return where(reshape(np.any(flags, axis=1), to=(count, *one[1:])), first, other)


@primitive(batch=_first_of_samples)
def first_chosen(flags, rows):
    """The first row whose flag is true."""
    return rows[flags.argmax()]


def is_recorded(mask) -> bool:
    """Is the mask hidden by a trace that can tell it, but whose answer holds for no other mask?"""
    mask = primal_of(mask)
    return isinstance(mask, Variable) and mask._trace.visibility != SAMPLED


def selected(x, mask) -> "SelectedElements":
    # its present value, unaffected by later writes
    mask, n = frozen(live(primal_of(mask))), int(np.prod(shape(mask)))
    if not n or (mask._trace.visibility != SAMPLED and not bool(np.any(mask))):
        return SelectedElements(x, mask).plain_elements()
    row = first_chosen(reshape(mask, to=(n,)), reshape(primal_of(x), to=(n, *shape(x)[ndim(mask) :])))
    return SelectedElements(where(mask_axis(mask, x), x, row), mask)


def mask_axis(mask, x):
    return reshape(mask, to=shape(mask) + (1,) * (ndim(x) - ndim(mask)))


def masked_write(x, y: "SelectedElements", at) -> tuple:
    """(value, index) for the write that x[at] = y amounts to."""
    if (
        y.mask is None
        or not isinstance(at, Variable)
        or shape(x)[ndim(at) :] != shape(y.full)[ndim(y.mask) :]
        or not same_mask(at, y.mask)
    ):
        return y.plain_elements(), at
    return where(mask_axis(y.mask, x), y.full, x), Ellipsis


def same_mask(mask, other) -> bool:
    """Are these the same mask? If that is unknown, their values are asked for."""
    mask = live(primal_of(mask))
    if isinstance(mask, Variable) and mask._trace is other._trace and mask._slot is other._slot:
        return True
    return shape(mask) == shape(other) and bool(np.all(mask == other))


@nested
def plain_mask(v):
    return v.plain_elements() if type(v) is SelectedElements else v


def of_plain(name: str) -> Callable:
    return lambda v, *args, **kwargs: getattr(v.plain_elements(), name)(*plain_mask(args), **kwargs)


class SelectedElements(Elements, np.lib.mixins.NDArrayOperatorsMixin):
    """The elements of `full` where `mask` is true. If `mask` is None, all elements."""

    __slots__ = ("full", "mask")
    __array_priority__ = 1e6

    def __init__(self, full, mask):
        self.full, self.mask = full, mask

    def plain_elements(self):
        """The elements as an array, if the mask is the same for all samples or can be asked for. From
        then on this object holds that array, so writes to it or to its views are seen here."""
        if self.mask is not None:
            self.full = bind(READ, (self.full,), {"path": (), "at": agreed(self.mask), "copy": True})
            self.mask = None
        return self.full

    def _handed_back(self):
        """The value that remains after the transform, if the function stored this object."""
        v = self.plain_elements()
        return v if is_tracked(v) else values_of(v)

    def _reported_class(self):  # the class that a Variable of an array reports
        return type(layout_of(self.full))

    __class__: Any = property(_reported_class)

    @property
    def dtype(self) -> np.dtype:
        return dtype(self.full)

    @property
    def ndim(self) -> int:
        return ndim(self.full) if self.mask is None else 1 + ndim(self.full) - ndim(self.mask)

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.plain_elements(), name)

    def __setitem__(self, at, y) -> None:
        self.plain_elements()[plain_mask(at)] = y

    def __array__(self, *args, **kwargs):
        return np.asarray(self.plain_elements(), *args, **kwargs)

    __len__, __iter__, __getitem__ = of_plain("__len__"), of_plain("__iter__"), of_plain("__getitem__")
    __bool__, __float__, __int__ = of_plain("__bool__"), of_plain("__float__"), of_plain("__int__")
    __matmul__, __rmatmul__, __str__ = of_plain("__matmul__"), of_plain("__rmatmul__"), of_plain("__str__")

    def joins(self, v) -> bool:
        """Can v be combined with this in an elementwise function?"""
        if type(v) is SelectedElements:
            return v is self or (v.mask is not None and same_mask(v.mask, self.mask))
        return np.ndim(layout_of(v)) < self.ndim

    def by_elements(self, args: tuple, kwargs: dict) -> bool:
        return (
            self.mask is not None
            and all([self.joins(v) for v in args])
            and not any([type(v) is SelectedElements or np.ndim(layout_of(v)) for v in kwargs.values()])
        )

    def each(self, f: Callable, args: tuple, kwargs: dict) -> "SelectedElements":
        return SelectedElements(
            f(*[v.full if type(v) is SelectedElements else v for v in args], **kwargs), self.mask
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args, out: tuple = (), **kwargs):
        first = next((v for v in args if type(v) is SelectedElements), self)
        elementwise = method == "__call__" and ufunc.nout == 1 and ufunc.signature is None and not kwargs
        if (
            elementwise
            and all([type(v) is SelectedElements for v in out])
            and first.by_elements((*args, *out), kwargs)
        ):
            new = first.each(ufunc, args, kwargs)
            if not out:
                return new
            if np.can_cast(new.dtype, out[0].dtype, "same_kind"):
                out[0].full = astype(new.full, to=out[0].dtype)
                return out[0]
        if out:
            kwargs = {**kwargs, "out": plain_mask(out)}
        return getattr(ufunc, method)(*plain_mask(args), **kwargs)

    def __array_function__(self, f: Callable, types, args: tuple, kwargs: dict):
        if f in REDUCTIONS and type(args[0]) is SelectedElements:
            return args[0].reduced(f, *args[1:], **kwargs)
        first = next((v for v in args if type(v) is SelectedElements), None)
        if (
            f in ELEMENTWISE
            and first is not None
            and "out" not in kwargs
            and first.by_elements(args, kwargs)
            and len(args) > (f is np.where)
        ):
            return first.each(f, args, kwargs)
        return f(*plain_mask(args), **plain_mask(kwargs))

    def reduced(self, f: Callable, axis=None, **settings):
        if self.mask is None or settings or axis not in (None, 0) or self.mask._trace.visibility != SAMPLED:
            return f(self.plain_elements(), axis=axis, **settings)
        axes = None if axis is None else tuple(range(ndim(self.mask)))
        mask = mask_axis(self.mask, self.full)
        if f is np.mean:
            count = np.sum(np.broadcast_to(mask, shape(self.full)), axis=axes)
            return self.reduced(np.sum, axis) / count
        none: float | None = NONE[f]
        if none is None:
            none = -np.inf if f in (np.max, np.amax) else np.inf
            # NumPy raises if no element is selected
            if dtype(self.full).kind != "f" or not bool(np.all(np.any(self.mask))):
                return f(self.plain_elements(), axis=axis)
        return f(where(mask, self.full, xp(self.full).asarray(none, dtype(self.full))), axis=axes)

    def copy(self, order: str = "C"):
        return self.full.copy(order) if self.mask is None else SelectedElements(self.full, self.mask)

    __copy__ = copy

    def __deepcopy__(self, memo: dict):
        return self.copy()

    def astype(self, to, **settings):
        if self.mask is None or settings:
            return self.plain_elements().astype(to, **settings)
        return SelectedElements(astype(self.full, to=np.dtype(to)), self.mask)


def reduction(f: Callable) -> Callable:
    return lambda v, axis=None, **settings: v.reduced(f, axis, **settings)


for _f in (np.sum, np.mean, np.prod, np.max, np.min, np.any, np.all):
    setattr(SelectedElements, _f.__name__, reduction(_f))
ELEMENTWISE = frozenset(
    (np.where, np.clip, np.nan_to_num, np.round, np.real, np.imag, np.angle, np.sinc, np.copy)
)
NONE = {
    np.sum: 0,
    np.prod: 1,
    np.any: False,
    np.all: True,
    np.max: None,
    np.min: None,
    np.amax: None,
    np.amin: None,
}
REDUCTIONS = frozenset((*NONE, np.mean))
