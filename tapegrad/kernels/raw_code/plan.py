"""One call of a raw kernel on plain arrays: its checks, and the `CallPlan` shared by calls of the same
shapes."""

import math
from typing import Any

import numpy as np

from ..._core.arrays import is_array, xp_of
from ..._core.errors import ArgumentError, DeviceError, KernelError, ShapeError
from .declare import SLOTS, Arg, bind_dimensions

REALS = {np.dtype(np.float64): "double", np.dtype(np.float32): "float"}
GIVEN = object()
SMALL, FIRST = 2**17, 8  # output size up to which each call is checked; above it the first calls are


class CallPlan:
    """The facts that the shapes and dtypes of the arguments determine."""

    def __init__(self, k, values: tuple, known: dict):
        self.k, self.xp, self.device = k, *arrays_place(k, values)
        self.real = real_of(k, values)
        checked = [self.checked(a, v) for a, v in zip(k.given, values, strict=True)]
        self.known = bind_dimensions(k.__name__, k.args, checked, known)
        self.made = {}
        self.calls, self.large, self.marks = 0, False, False

    def values(self, values: tuple) -> list:
        """Return the arguments as the C function takes them."""
        return [self.checked(a, v) for a, v in zip(self.k.given, values, strict=True)]

    def checked(self, a: Arg, v):
        want = a.dtype(self.real)
        if a.dims is None:
            return self.scalar(a, v, want)
        if a.dims == () and isinstance(v, (np.generic, float)):
            v = np.asarray(v, want if type(v) is float else None)
            v = v if self.xp is np else self.xp.asarray(v)
        if not is_array(v):
            raise ArgumentError(
                f"{self.k.__name__}: argument {a.name} is {what(v)}; declared is {a.text!r}, wanted an "
                f"array of {want}"
            )
        if isinstance(v, np.ma.MaskedArray):
            raise ArgumentError(
                f"{self.k.__name__}: argument {a.name} is a masked array, and kernels see no mask; pass "
                f".filled(x)"
            )
        if v.dtype != want:
            raise ArgumentError(
                f"{self.k.__name__}: argument {a.name} has dtype {v.dtype}; declared is {a.text!r}, wanted "
                f"{want}: {a.name}.astype(numpy.{want})"
            )
        flags = v.flags
        if flags.c_contiguous and (self.xp is not np or flags.aligned):
            return v
        return self.xp.ascontiguousarray(v) if self.xp is not np else np.require(v, requirements=["C", "A"])

    def scalar(self, a: Arg, v, want: np.dtype):
        if is_array(v) and v.ndim == 0 and xp_of(v) is np:
            v = v[()]
        name, whole = self.k.__name__, isinstance(v, (int, np.integer)) and not isinstance(v, bool)
        if want.kind == "i":
            if not whole:
                raise ArgumentError(
                    f"{name}: argument {a.name} is {what(v)}; declared is {a.text!r}, wanted a whole number"
                )
            limits = np.iinfo(want)
            if not limits.min <= v <= limits.max:
                raise ArgumentError(
                    f"{name}: argument {a.name} is {v}, which {a.kind} cannot hold; declare it long long"
                )
        elif not whole and not isinstance(v, (float, np.floating)):
            raise ArgumentError(
                f"{name}: argument {a.name} is {what(v)}; declared is {a.text!r}, wanted a number (for an "
                f'array: "{a.text}[]")'
            )
        return want.type(v)

    def parameters(self, values: list, slots: int) -> tuple:
        """Return the parameters of the C function in order, and the new outputs among them."""
        self.marks = self.xp is np and self.calls < FIRST
        self.calls += self.large
        specs = self.made.get(slots)
        if specs is None:
            specs = self.made[slots] = self._specs(slots)
        given, made, outs = iter(values), [], []
        for spec, returned in specs:
            if spec is GIVEN:
                made.append(next(given).copy() if returned else next(given))
            elif type(spec) is tuple:
                made.append(self.xp.empty(*spec))
                if returned and self.marks:
                    marked(made[-1])
            else:
                made.append(spec)
            if returned:
                outs.append(made[-1])
        return made, outs

    def _specs(self, slots: int) -> list:
        known, specs = {**self.known, SLOTS: slots}, []
        for a in self.k.args:
            if a.given:
                specs.append((GIVEN, a.returned))
            elif a.role == "size":
                specs.append((np.int64(known[a.name]), False))
            else:
                shape = a.shape(known)
                if min(shape, default=0) < 0:
                    raise ShapeError(
                        f"{self.k.__name__}: {a.name}, declared {a.text!r}, would have shape {shape}"
                    )
                specs.append(((shape, a.dtype(self.real)), a.returned))
                self.large |= a.returned and math.prod(shape) > SMALL
        return specs


# as floating-point numbers: nan with a payload of ours
MARKS: dict[int, Any] = {8: np.uint64(0x7FF95AFE_C0DEFA11), 4: np.uint32(0x7FDEFA11)}


def marked(out: np.ndarray) -> None:
    """Mark each number of an output, before a kernel runs, with a value that no computation makes."""
    mark = MARKS.get(out.itemsize)
    if mark is not None:
        out.view(mark.dtype).fill(mark)


def unwritten(out: np.ndarray) -> np.ndarray | None:
    """Return the places that still have the mark after a run, or None."""
    mark = MARKS.get(out.itemsize)
    if mark is None or not out.size:
        return None
    left = out.view(mark.dtype) == mark
    return left if np.count_nonzero(left) else None


class UnsavedArgument:
    """Stands in rules for an argument that was declared `unsaved`."""

    def __init__(self, kernel: str, a: Arg, like):
        self.text, self.shape, self.dtype = (
            f"{kernel}: a rule read {a.name}, which is declared {a.text!r}: not kept",
            like.shape,
            like.dtype,
        )

    def __array__(self, *args, **kwargs):
        raise KernelError(self.text)

    def __getattr__(self, name: str):
        raise KernelError(self.text)

    def refuse(self, *args, **kwargs):
        raise KernelError(self.text)

    __array_ufunc__ = __array_function__ = __getitem__ = __neg__ = __float__ = refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = (
        __rpow__
    ) = __matmul__ = refuse


def plan_key(values: tuple, known: dict) -> tuple:
    """Return a key; calls with equal keys have equal plans."""
    parts: list = []
    for v in values:
        if type(v) is np.ndarray:
            parts.append((v.shape, v.dtype))
        elif is_array(v):
            parts.append((type(v), v.shape, v.dtype, None if isinstance(v, np.ndarray) else v.device.id))
        elif isinstance(v, (int, np.integer)):
            parts.append((type(v), int(v)))
        else:
            parts.append(type(v))
    return (*parts, *sorted(known.items()))


def arrays_place(k, values: tuple) -> tuple:
    """Return the library and the device of all arrays."""
    found: dict = {}
    for a, v in zip(k.given, values, strict=True):
        if is_array(v):
            xp = xp_of(v)
            found.setdefault((xp, None if xp is np else v.device.id), (a.name, v))
    if len(found) > 1:
        told = [
            f"{name} is on {'the host' if xp is np else f'device {n}'}"
            for (xp, n), (name, _) in found.items()
        ]
        raise DeviceError(f"{k.__name__}: {', '.join(told)}; move all to one with cupy.asarray(x)")
    for (xp, _), (_, v) in found.items():
        return xp, None if xp is np else v.device
    return np, None


def real_of(k, values: tuple) -> np.dtype:
    """Return the dtype of `real` in a call: that of the active arguments, or without any, of the others."""
    for roles in (("in", "inout"), ("const",)):
        for a, v in zip(k.given, values, strict=True):
            loose = (a.dims is None and not isinstance(v, np.generic)) or type(v) is float
            if a.kind == "real" and a.role in roles and not loose:
                d: Any = getattr(v, "dtype", None)
                if d not in REALS:
                    raise ArgumentError(
                        f"{k.__name__}: argument {a.name} is {what(v)}; declared is {a.text!r}, wanted "
                        f"float64 or float32"
                    )
                return d
    return np.dtype(np.float64)


def what(v) -> str:
    return f"an array of {v.dtype}" if is_array(v) else f"{v!r} ({type(v).__name__})"
