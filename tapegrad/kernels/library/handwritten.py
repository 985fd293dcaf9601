"""What the library kernels share: likelihoods in plain Python, of which all is generated but the value and
the gradient of CuPy arrays, which are CUDA C written by hand.

A model is a module `m.py` beside its `m.cu`.  The module holds the model as plain Python for `likelihood` or
`recursion`, the .cu two entries for each model of that name:

    name_value(theta, data, value, B, N)
    name_value_and_grad(theta, data, value, gradient, [work arrays,] B, N)

theta (p, B), data (d, N) or (d, N, B), value (B,), gradient (p, B).  They skip a datum that holds nan, and
give a sample whose parameters are not valid, or whose value is not finite, the value -inf and derivatives 0.
Of a float32 theta both add up in float64 and round the results to float32."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError, ShapeError
from ..._core.pickling import PickledByCall
from ..._core.registry import load
from ..._core.scope import lock
from ..._core.variable import Variable
from ..emit.lower import SUMS
from ..generated.arguments import checked_outs, contiguous_argument
from ..generated.derivatives import Family
from ..generated.kernel import GeneratedKernel, Likelihood, Recursion
from ..raw_code.kernel import raw
from .own_functions import device_functions

FOLDER = Path(__file__).parent
PRELUDE = (FOLDER / "prelude.cu").read_text()
LOG_2_PI = 1.8378770664093454836
LOCK = lock()


class LibraryKernel(PickledByCall):
    """A kernel of the library: pickled as its place there, or as another with options."""

    _base: Any = None  # the kernel of which this is one with options
    _options: dict = {}
    _place: tuple = ()  # the function that gave it, and its arguments; else it has a name in its module

    def _with(self, made: Any, **options: Any) -> Any:
        made._base, made._options = self if self._base is None else self._base, options
        return made

    def __reduce__(self) -> tuple:
        if self._base is not None:
            return optioned, (self._base, self._options)
        return self._place or (handwritten_kernel, kernel_place(self))

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict) -> Any:
        return self


def kernel_place(kernel: Any) -> tuple[str, str]:
    """Module and name of a kernel of the library."""
    for module in [m for m in sys.modules if m.startswith("tapegrad.kernels.library.")]:
        for name, x in list(vars(sys.modules[module]).items()):
            if x is kernel:
                return module, name
    raise ArgumentError(
        f"{kernel.__name__} cannot be pickled: it stands in no module of tapegrad.kernels.library"
    )


def handwritten_kernel(module: str, name: str) -> Any:
    return getattr(load(module), name)


def optioned(kernel: Any, options: dict) -> Any:
    return kernel.options(**options)


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What a model by hand consists of.

    `name`: that of its entries in the .cu of name `stem`.  `formula`: the model by `likelihood` or
    `recursion`; `key`: what it depends on beside the name.  `observed`: so many rows of the data are
    observations, those below them arguments of each step (0: there are none).  `fit(p, d)`: the macros, a
    dict, for p rows of theta and d rows of data, or None where they do not fit; `wants` says in words what
    would.  `work(p, d)`: declarations of the work arrays of the gradient."""

    name: str
    stem: str
    key: str = ""
    observed: int = 0
    formula: GeneratedKernel
    fit: Callable
    wants: str
    work: Callable = lambda p, d: ()


class HandwrittenKernel(LibraryKernel, GeneratedKernel):
    """A generated kernel whose value and gradient on a device are launched from a .cu."""

    def __init__(self, definition: Definition, invalid: str = "reject"):
        super().__init__(replace(definition.formula._parts, invalid=invalid, sums=SUMS))
        self.definition = definition
        self.__name__ = self._family.name = self._is_missing.name = definition.name
        self._family.key = f"library {definition.stem} {definition.name} {definition.key} {invalid}"
        self._keeps_nan = invalid == "nan"
        text = (FOLDER / f"{definition.stem}.cu").read_text()
        self._text = PRELUDE + device_functions(text) + text
        self._kernels: dict = {}

    def options(self, *, invalid: str = "reject") -> "HandwrittenKernel":
        """This kernel with `invalid='nan'`: a sample with parameters that are not valid has value and
        derivatives nan."""
        return self._with(type(self)(self.definition, invalid), invalid=invalid)

    def source(self, p: int, d: int, each: bool = False, missing: bool = False) -> str:
        """The CUDA C for p rows of theta and d rows of data; `real` is still to be defined."""
        macros = {"DATA_EACH": int(each), "MISSING": int(missing), **self.definition.fit(p, d)}
        return "".join(f"#define {name} {text}\n" for name, text in macros.items()) + self._text

    def kernels(self, p: int, d: int, each: bool = False, missing: bool = False) -> tuple:
        """The two `raw` kernels, of the value and of value and gradient."""
        key = p, d, each, missing
        with LOCK:
            if key not in self._kernels:
                self._kernels[key] = self._made(*key)
            return self._kernels[key]

    def _made(self, p: int, d: int, each: bool, missing: bool) -> tuple:
        of, source = self.definition, self.source(p, d, each, missing)
        given = (
            f"in real theta[{p}, B]",
            f"const real data[{d}, N, B]" if each else f"const real data[{d}, N]",
            "out real value[B]",
        )
        sizes = ("size B", "size N")
        args = [*given, f"out real gradient[{p}, B]", *of.work(p, d), *sizes]
        gradient = raw(source, f"{of.name}_value_and_grad", args, samples="B")

        def pull(g, out, theta, data):
            return g * gradient(theta, data)[1], None

        return raw(source, f"{of.name}_value", [*given, *sizes], vjp=pull, samples="B"), gradient

    def _of_tree(self, theta: Any) -> tuple:
        raise ArgumentError(f"{self.__name__}: theta is one array, {self.definition.wants}")

    def _arguments(self, theta: Any, data: Any) -> tuple:
        theta, data, single = super()._arguments(theta, data)
        if data.ndim == 1:
            data = self._as_row(data)
        of = self.definition
        if of.fit(theta.shape[0], data.shape[0]) is None:
            shapes = f"theta has shape {tuple(theta.shape)} and the data {tuple(data.shape)}"
            raise ShapeError(f"{of.name}: {shapes}; wanted are {of.wants}")
        return theta, data, single

    def _as_row(self, data: Any) -> Any:
        """(1, N)."""
        row = data.reshape((1, -1))
        if not isinstance(data, Variable) and xp_of(data) is not np:
            self._is_missing.holds_for(row, data)
        return row

    def _run(self, kind: str, n: tuple, arrays: tuple, outs: list | None = None) -> Any:
        """The first derivative by theta on a device by hand, all else generated."""
        theta, data = arrays[:2]
        if n == (0, 0) and kind != "D" and xp_of(theta) is not np:
            return self._filled(outs, self._on_device(kind, theta, data), theta)
        narrow = self._family.wide(theta.dtype) and kind in ("F", "VG", "VGD")
        nan = self._keeps_nan and n == (0, 0) and kind != "D"
        if not (narrow or nan):
            return super()._run(kind, n, arrays, outs)
        made = super()._run("VG" if nan and kind != "VGD" else kind, n, arrays)
        made = list(made) if isinstance(made, tuple) else [made]
        if nan:
            made = made_nan(made, ~np.isfinite(made[0]))
            made = {"F": made[:1], "R": made[1:]}.get(kind, made)
        if narrow:
            made[0] = made[0].astype(theta.dtype)
        return self._filled(outs, made, theta)

    def _remember(self, kind: str, theta: np.ndarray, data: np.ndarray, single: bool) -> None:
        """Only where a launch gives what the caller is to get."""
        if not (self._keeps_nan or self._family.wide(theta.dtype)):
            super()._remember(kind, theta, data, single)

    def _filled(self, outs: list | None, made: list, theta: Any) -> Any:
        """The results, in `outs` where these are given."""
        if outs is not None:
            (p, batch), dtype = theta.shape, theta.dtype
            rooms = checked_outs(self.__name__, outs, [1, p][: len(outs)], batch, [dtype] * len(outs))
            for room, x in zip(rooms, made, strict=True):
                room[...] = x
            made = outs
        return made[0] if len(made) == 1 else tuple(made)

    def _on_device(self, kind: str, theta: Any, data: Any) -> list:
        p, missing = theta.shape[0], self._is_missing(data)
        theta, data = contiguous_argument(theta, theta.dtype), contiguous_argument(data, theta.dtype)
        value, both = self.kernels(p, data.shape[0], data.ndim == 3, missing)
        made = [value(theta, data)] if kind == "F" else list(both(theta, data))
        if self._keeps_nan:
            made = made_nan(made, made[0] == -np.inf)
        return made[1:] if kind == "R" else made


def made_nan(arrays: list, bad: Any) -> list:
    """With nan in the samples that are bad."""
    xp = xp_of(bad)
    return [xp.where(bad, x.dtype.type(np.nan), x) for x in arrays]


class HandwrittenLikelihood(HandwrittenKernel, Likelihood):
    """A sum over data that are independent."""

    def _run_value(self, family: Family, kind: str, n: tuple, arrays: tuple, outs: list | None = None) -> Any:
        """Data that samples share and that hold nan are left out before the launch."""
        theta, data = arrays[:2]
        if kind != "D" and n[1] == 0 and data.ndim == 2 and self._is_missing(data):
            xp = xp_of(data)
            here = xp.flatnonzero(~xp.isnan(data.sum(axis=0) if len(data) > 1 else data[0]))
            made = super()._run_value(family, kind, n, (theta, data.take(here, axis=1), *arrays[2:]), outs)
            self._traced.last = None, None  # that was another launch than one on all of the data
            return made
        return super()._run_value(family, kind, n, arrays, outs)


class HandwrittenRecursion(HandwrittenKernel, Recursion):
    """A recursion over time."""
