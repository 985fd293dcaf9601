"""Models whose value and gradient on a device are CUDA C written by hand; all else is generated.

Beside the model's module stands its `m.cu`, with two entries:

    name_value(theta, data, value, B, N)
    name_value_and_grad(theta, data, value, gradient, [work arrays,] B, N)

theta (p, B), data (d, N) or (d, N, B), value (B,), gradient (p, B). They follow the conventions of `models`.
Such code stays where the generated kernel needs more than 1.3 times its registers or instructions."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..._core.arrays import xp_of
from ..._core.scope import lock
from ..generated.arguments import contiguous_argument
from ..raw_code.kernel import raw
from .models import Definition, ModelKernel, ModelLikelihood, ModelRecursion, made_nan
from .own_functions import device_functions

FOLDER = Path(__file__).parent
PRELUDE = (FOLDER / "prelude.cu").read_text()
LOCK = lock()


@dataclass(frozen=True, kw_only=True)
class HandwrittenDefinition(Definition):
    """The parts of a model with CUDA C, which is the file of its name.

    `macros(p, d)` are the macros for p rows of theta and d rows of data. `work(p, d)` declares the work
    arrays of the gradient."""

    macros: Callable = lambda p, d: {}
    work: Callable = lambda p, d: ()


class HandwrittenKernel(ModelKernel):
    """A generated kernel whose value and gradient on a device are launched from a .cu."""

    definition: HandwrittenDefinition

    def __init__(self, definition: HandwrittenDefinition, invalid: str = "reject"):
        super().__init__(definition, invalid)
        text = (FOLDER / f"{definition.name}.cu").read_text()
        self._text = PRELUDE + device_functions(text) + text
        self._kernels = {}

    def source(self, p: int, d: int, each: bool = False, missing: bool = False) -> str:
        """The CUDA C for p rows of theta and d rows of data; `real` is still to be defined."""
        macros = {"DATA_EACH": int(each), "MISSING": int(missing), **self.definition.macros(p, d)}
        return "".join(f"#define {name} {text}\n" for name, text in macros.items()) + self._text

    def kernels(self, p: int, d: int, each: bool = False, missing: bool = False) -> tuple:
        """The two `raw` kernels, of the value and of value and gradient."""
        key = p, d, each, missing
        with LOCK:
            if key not in self._kernels:
                self._kernels[key] = self._compiled(*key)
            return self._kernels[key]

    def _compiled(self, p: int, d: int, each: bool, missing: bool) -> tuple:
        of, source = self.definition, self.source(p, d, each, missing)
        given = (
            f"in real theta[{p}, B]",
            f"const real data[{d}, N, B]" if each else f"const real data[{d}, N]",
            "out real value[B]",
        )
        sizes = ("size B", "size N")
        args = [*given, f"out real gradient[{p}, B]", *of.work(p, d), *sizes]
        return (
            raw(source, f"{of.name}_value", [*given, *sizes], samples="B"),
            raw(source, f"{of.name}_value_and_grad", args, samples="B"),
        )

    def _run(self, kind: str, n: tuple, arrays: tuple, outs: list | None = None):
        theta, data = arrays[:2]
        if n == (0, 0) and kind in ("F", "R", "VG") and xp_of(theta) is not np:
            return self._filled(outs, self._on_device(kind, theta, data), theta)
        return super()._run(kind, n, arrays, outs)

    def _on_device(self, kind: str, theta, data) -> list:
        p, missing = theta.shape[0], self._is_missing(data)
        theta, data = contiguous_argument(theta, theta.dtype), contiguous_argument(data, theta.dtype)
        value, both = self.kernels(p, data.shape[0], data.ndim == 3, missing)
        made = [value(theta, data)] if kind == "F" else list(both(theta, data))
        if self._keeps_nan:
            made = made_nan(made, made[0] == -np.inf)
        return made[1:] if kind == "R" else made


class HandwrittenLikelihood(HandwrittenKernel, ModelLikelihood):
    """A sum over data that are independent."""


class HandwrittenRecursion(HandwrittenKernel, ModelRecursion):
    """A recursion over time."""
