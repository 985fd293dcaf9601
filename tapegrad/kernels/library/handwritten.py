"""What the library kernels share: likelihoods whose value and gradient are CUDA C written by hand, with a Numba twin for NumPy arrays.

A model is a module `m.py` beside its `m.cu`.  The .cu holds two entries for each model of that name, and the module their twin, for
NumPy arrays: functions of the same arguments, or the steps of a recursion (sweeps.py), of which on_cpu.py makes such functions:

    name_value(theta, data, value, B, N)
    name_value_and_grad(theta, data, value, gradient, [work arrays,] B, N)

theta (p, B), data (d, N) or (d, N, B), value (B,), gradient (p, B).  They skip a datum that holds nan, and give a sample whose
parameters are not valid, or whose value is not finite, the value -inf and derivatives 0.  The module holds the model a second time,
as plain Python for `likelihood` or `recursion`: it documents the kernel, checks it in the tests, and is the source of all
derivatives beyond the first."""

import hashlib
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numba.core.caching import FunctionCache

from ..._array import xp_of
from ..._late import load
from ..._pickling import Remade
from ..._variable import Variable
from ...errors import ArgumentError, ShapeError
from ..generated.arguments import checked_outs, contiguous
from ..generated.kernel import Generated, Likelihood, Recursion
from ..raw_code.kernel import raw
from .own_functions import device_functions

FOLDER = Path(__file__).parent
PRELUDE = (FOLDER / "prelude.cu").read_text()
CHUNK = 128  # as in prelude.cu
LOCK = threading.RLock()
STAMP = hashlib.sha256(b"".join([p.read_bytes() for p in sorted(FOLDER.parent.rglob("*.py"))])).hexdigest()


class TwinCache(FunctionCache):
    """Numba's cache on disk looks at the file of a function alone; a twin takes functions from other files of the kernels too."""

    def _index_key(self, sig: Any, codegen: Any) -> tuple:
        return STAMP, sig, codegen.magic_tuple(), called(self._py_func)


def called(f: Callable) -> tuple:
    """The twins that f was made with: functions that one function makes differ in these alone."""
    twins = [cell.cell_contents.py_func for cell in f.__closure__ or ()]
    return tuple([(g.__module__, g.__qualname__, called(g)) for g in twins])


def twin(f: Callable) -> Callable:
    """f compiled by Numba with IEEE arithmetic, kept on disk where the package's folder or the user's can be written."""
    compiled = njit(nogil=True, error_model="numpy")(f)
    try:
        compiled._cache = TwinCache(f)
    except RuntimeError:  # Numba found no folder that it can write
        return compiled
    return compiled


def inlined(f: Callable) -> Callable:
    """A twin for the inner loops of others."""
    return njit(nogil=True, error_model="numpy", forceinline=True)(f)


@twin
def aligned(rows, width, like):
    """An empty array of the dtype of `like` at the beginning of a cache line: vectors across two lines cost a factor of 2 or 3."""
    room = np.empty(rows * width + 64 // like.itemsize, like.dtype)
    skip = (-room.ctypes.data % 64) // like.itemsize
    return room[skip : skip + rows * width].reshape(rows, width)


@twin
def with_samples(data):
    """(d, N, B), or (d, N, 1) for data that all samples share."""
    if data.ndim == 3:
        return data
    return data.reshape(data.shape[0], data.shape[1], 1)


class Shelved(Remade):
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
        return self._place or (taken, placed(self))

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict) -> Any:
        return self


def placed(kernel: Any) -> tuple[str, str]:
    """Module and name of a kernel of the library."""
    for module in [m for m in sys.modules if m.startswith("tapegrad.kernels.library.")]:
        for name, x in list(vars(sys.modules[module]).items()):
            if x is kernel:
                return module, name
    raise ArgumentError(f"{kernel.__name__} cannot be pickled: it stands in no module of tapegrad.kernels.library")


def taken(module: str, name: str) -> Any:
    return getattr(load(module), name)


def optioned(kernel: Any, options: dict) -> Any:
    return kernel.options(**options)


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What a model by hand consists of.

    `name`: that of its entries in the .cu of name `stem`.  `formula`: the same model by `likelihood` or `recursion`.  `fit(p, d)`: the
    macros, a dict, for p rows of theta and d rows of data, or None where they do not fit; `wants` says in words what would.  `value`,
    `both`: the twins.  `work(p, d)`: declarations of the work arrays of `both`, in which its twin has `workers` slots."""

    name: str
    stem: str
    formula: Generated
    fit: Callable
    wants: str
    value: Callable
    both: Callable
    work: Callable = lambda p, d: ()
    workers: int = 1


class Handwritten(Shelved, Generated):
    """A generated kernel whose value and gradient are launched from a .cu or its twin."""

    def __init__(self, definition: Definition, invalid: str = "reject"):
        f, trace, missing, *_ = definition.formula._parts
        super().__init__(f, trace, missing, invalid)
        self.definition = definition
        self.__name__ = self._family.name = self._is_missing.name = definition.name
        self._keeps_nan = invalid == "nan"
        text = (FOLDER / f"{definition.stem}.cu").read_text()
        self._text = PRELUDE + device_functions(text) + text
        self._kernels: dict = {}

    def options(self, *, invalid: str = "reject") -> "Handwritten":
        """This kernel with `invalid='nan'`: a sample with parameters that are not valid has value and derivatives nan."""
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

    def _made(self, p: int, d: int, each: bool, missing: bool, twins: bool = True) -> tuple:
        """Without twins the CUDA C itself runs on the host."""
        of, source = self.definition, self.source(p, d, each, missing)
        common = {"samples": "B", "workers": of.workers}
        value, both = (of.value, of.both) if twins else (None, None)
        given = (f"in real theta[{p}, B]", f"const real data[{d}, N, B]" if each else f"const real data[{d}, N]", "out real value[B]")
        sizes = ("size B", "size N")
        args = [*given, f"out real gradient[{p}, B]", *of.work(p, d), *sizes]
        gradient = raw(source, f"{of.name}_value_and_grad", args, cpu=both, **common)

        def pull(g, out, theta, data):
            return g * gradient(theta, data)[1], None

        return raw(source, f"{of.name}_value", [*given, *sizes], vjp=pull, cpu=value, **common), gradient

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
        """The first derivative by theta by hand, those beyond it and those by the data generated."""
        if n != (0, 0) or kind == "D":
            return super()._run(kind, n, arrays, outs)
        theta, data = arrays
        (p, batch), missing = theta.shape, self._is_missing(data)
        theta, data = contiguous(theta, theta.dtype), contiguous(data, theta.dtype)
        rooms = None if outs is None else checked_outs(self.__name__, outs, [1, p][: len(outs)], batch, [theta.dtype] * len(outs))
        made = self._launched(kind, theta, data, missing, None if self._keeps_nan else rooms)
        if self._keeps_nan:
            xp = xp_of(made[0])
            made = [xp.where(made[0] == -np.inf, theta.dtype.type(np.nan), x) for x in made]
        if kind == "R":
            return made[1]
        if outs is not None:
            for room, x in zip(rooms, made, strict=True):
                if room is not x:
                    room[...] = x
            made = outs
        return made[0] if kind == "F" else tuple(made)

    def _launched(self, kind: str, theta: Any, data: Any, missing: bool, rooms: list | None) -> list:
        """The value, and but for kind F the gradient; in `rooms` where a twin runs that needs no work arrays of the caller's."""
        p, batch = theta.shape
        of = self.definition
        if not type(theta) is np.ndarray is type(data) or (of.workers and of.work(p, data.shape[0])):
            value, both = self.kernels(p, data.shape[0], data.ndim == 3, missing)
            return [value(theta, data)] if kind == "F" else list(both(theta, data))
        made = rooms or [np.empty((1, batch), theta.dtype), np.empty((p, batch), theta.dtype)][: 1 if kind == "F" else 2]
        if batch:
            (of.value if kind == "F" else of.both)(theta, data, made[0][0], *made[1:], batch, data.shape[1])
        return [made[0][0], *made[1:]] if rooms is None else made


class HandwrittenLikelihood(Handwritten, Likelihood):
    """A sum over data that are independent."""


class HandwrittenRecursion(Handwritten, Recursion):
    """A recursion over time."""
