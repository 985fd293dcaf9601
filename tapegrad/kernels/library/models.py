"""The base classes of the library's models: likelihoods in plain Python, compiled by `likelihood` or
`recursion`.

A model checks the shapes of theta (p, B) and of the data (d, N) or (d, N, B). It skips a datum that holds
nan. A sample whose parameters are not valid, or whose value is not finite, has the value -inf and
derivatives 0. For a float32 theta terms are added up in float64, and results are rounded to float32.
`handwritten` adds models whose value and gradient are CUDA C on a device."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError, ShapeError
from ..._core.pickling import PickledByCall
from ..._core.registry import load
from ..._core.variable import Variable
from ..emit.lower import SUMS
from ..generated.arguments import MissingCheck, checked_outs
from ..generated.derivatives import Family
from ..generated.generated_kernel import GeneratedKernel
from ..generated.kernel import Likelihood, Recursion

LOG_2_PI = 1.8378770664093454836


class LibraryKernel(PickledByCall):
    """A kernel of the library: pickled as its place there, or as another with options."""

    _base: Any = None  # the kernel of which this is one with options
    _options: dict = {}
    _place: tuple = ()  # the function that gave it, and its arguments; else it has a name in its module

    def _with(self, made, **options):
        made._base, made._options = self if self._base is None else self._base, options
        return made

    def __reduce__(self) -> tuple:
        if self._base is not None:
            return optioned, (self._base, self._options)
        return self._place or (library_kernel, kernel_place(self))

    def __copy__(self):
        return self

    def __deepcopy__(self, memo: dict):
        return self


def kernel_place(kernel) -> tuple[str, str]:
    """Module and name of a kernel of the library."""
    for module in [m for m in sys.modules if m.startswith("tapegrad.kernels.library.")]:
        for name, x in list(vars(sys.modules[module]).items()):
            if x is kernel:
                return module, name
    raise ArgumentError(
        f"{kernel.__name__} cannot be pickled: it stands in no module of tapegrad.kernels.library"
    )


def library_kernel(module: str, name: str):
    return getattr(load(module), name)


def optioned(kernel, options: dict):
    return kernel.options(**options)


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The parts of a model.

    `formula` is the model, made by `likelihood` or `recursion`. `key` is what it depends on beside the name.
    The first `observed` rows of the data are observations, and those below them arguments of each step (0:
    there are none). `fits(p, d)` says whether p rows of theta and d rows of data belong together. `wants`
    says in words what would."""

    name: str
    key: str = ""
    observed: int = 0
    formula: GeneratedKernel
    fits: Callable
    wants: str


class ModelKernel(LibraryKernel, GeneratedKernel):
    """A generated kernel with the library's conventions."""

    def __init__(self, definition: Definition, invalid: str = "reject"):
        super().__init__(replace(definition.formula._parts, invalid=invalid, sums=SUMS))
        self.definition = definition
        self.__name__ = self._family.name = definition.name
        self._family.observed = definition.observed
        self._is_missing = MissingCheck(definition.name, definition.observed or None)
        self._family.key = f"library {definition.name} {definition.key} {invalid}"
        self._keeps_nan = invalid == "nan"

    def options(self, *, invalid: str = "reject") -> "ModelKernel":
        """This kernel with `invalid='nan'`: a sample with parameters that are not valid has value and
        derivatives nan."""
        return self._with(type(self)(self.definition, invalid), invalid=invalid)

    def _of_tree(self, theta) -> tuple:
        raise ArgumentError(f"{self.__name__}: theta is one array, {self.definition.wants}")

    def _arguments(self, theta, data) -> tuple:
        theta, data, single = super()._arguments(theta, data)
        if data.ndim == 1:
            data = self._as_row(data)
        of = self.definition
        if not of.fits(theta.shape[0], data.shape[0]):
            shapes = f"theta has shape {tuple(theta.shape)} and the data {tuple(data.shape)}"
            raise ShapeError(f"{of.name}: {shapes}; wanted are {of.wants}")
        return theta, data, single

    def _as_row(self, data):
        """(1, N)."""
        row = data.reshape((1, -1))
        if not isinstance(data, Variable) and xp_of(data) is not np:
            self._is_missing.holds_for(row, data)
        return row

    def _run(self, kind: str, n: tuple, arrays: tuple, outs: list | None = None):
        """Launch; round what was summed in float64, and give invalid samples nan if that is asked for."""
        theta = arrays[0]
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

    def _filled(self, outs: list | None, made: list, theta):
        """The results, in `outs` where these are given."""
        if outs is not None:
            (p, batch), dtype = theta.shape, theta.dtype
            rooms = checked_outs(self.__name__, outs, [1, p][: len(outs)], batch, [dtype] * len(outs))
            for room, x in zip(rooms, made, strict=True):
                room[...] = x
            made = outs
        return made[0] if len(made) == 1 else tuple(made)


def made_nan(arrays: list, bad) -> list:
    """With nan in the samples that are bad."""
    xp = xp_of(bad)
    return [xp.where(bad, x.dtype.type(np.nan), x) for x in arrays]


class ModelLikelihood(ModelKernel, Likelihood):
    """A sum over data that are independent."""

    def _run_value(self, family: Family, kind: str, n: tuple, arrays: tuple, outs=None, **settings):
        """Data that samples share and that hold nan are left out before the launch."""
        theta, data = arrays[:2]
        if kind != "D" and n[1] == 0 and data.ndim == 2 and self._is_missing(data):
            xp = xp_of(data)
            here = xp.flatnonzero(~xp.isnan(data.sum(axis=0) if len(data) > 1 else data[0]))
            arrays = theta, data.take(here, axis=1), *arrays[2:]
            made = super()._run_value(family, kind, n, arrays, outs, **settings)
            self._traced.last = None, None  # that was another launch than one on all of the data
            return made
        return super()._run_value(family, kind, n, arrays, outs, **settings)


class ModelRecursion(ModelKernel, Recursion):
    """A recursion over time."""
