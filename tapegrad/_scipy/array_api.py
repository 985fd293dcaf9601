"""What SciPy's code asks about the array library of its arguments, answered for tracked values."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import numpy as faces


def result_type(*xs, force_floating: bool = False, **_):
    """SciPy's `xp_result_type`, in one step."""
    given = [faces.asarray(x) if isinstance(x, (list, tuple)) else x for x in xs if x is not None]
    return np.result_type(*[getattr(x, "dtype", x) for x in given], *[1.0] * force_floating)


class ElementUpdate:
    """`array_api_extra.at(x)[i].set(y)` and its kin."""

    def __init__(self, x, at=Ellipsis):
        self.x, self.at = x, at

    def __getitem__(self, at) -> "ElementUpdate":
        return ElementUpdate(self.x, at)

    def set(self, y, copy: bool | None = None, **_):
        """(SciPy counts on it that an array is written in place.)"""
        if not getattr(self.x, "ndim", 0):
            where = True if self.at is Ellipsis else self.at
            if getattr(y, "ndim", 0):  # x[mask] of a number has no element or one
                return faces.where(where, y[0], self.x) if y.shape[0] else self.x
            return faces.where(where, y, self.x)
        x = faces.array(self.x) if copy else self.x
        x[self.at] = y
        return x

    def add(self, y, **options):
        return self.set(self.x[self.at] + y, **options)

    def multiply(self, y, **options):
        return self.set(self.x[self.at] * y, **options)

    def divide(self, y, **options):
        return self.set(self.x[self.at] / y, **options)


def apply_where(condition, args, f: Callable, g: Callable | None = None, /, *, fill_value=None, **_):
    """`array_api_extra.apply_where` with both branches evaluated, so that the condition may be hidden."""
    xs = args if isinstance(args, (tuple, list)) else (args,)
    with np.errstate(all="ignore"):
        return faces.where(condition, f(*xs), fill_value if g is None else g(*xs))


ARRAY_LIBRARIES = ("numpy", "cupy", "torch", "jax", "array_api_strict", "dask")


def array_api(library) -> dict[str, Any]:
    """SciPy's questions about the library of its arguments, which is ours."""
    return {
        "array_namespace": lambda *xs, **_: library,
        "at": ElementUpdate,
        "apply_where": apply_where,
        "xp_size": lambda x: x.size,
        "xp_copy": lambda x, xp=None, **_: library.array(x),
        "_asarray": lambda x, dtype=None, **_: (
            x if getattr(x, "ndim", 0) and x.dtype == (dtype or x.dtype) else library.asarray(x, dtype)
        ),
        **{
            f"is_{kind}{end}": lambda xp, kind=kind: kind == "numpy"
            for kind in ARRAY_LIBRARIES
            for end in ("", "_namespace")
        },
        "is_lazy_array": lambda x: False,
        "xp_result_type": result_type,
        "_demean": lambda a, mean, axis, **_: a - mean,
        "is_marray": lambda xp: False,
        "is_torch_array": lambda x: False,
        "device": lambda x: "cpu",
        "xp_result_device": lambda *xs: "cpu",
        "is_dask": lambda xp: False,
        "xp_default_dtype": lambda xp: np.float64,
        "xp_capabilities": lambda *args, **settings: lambda f: f,
    }
