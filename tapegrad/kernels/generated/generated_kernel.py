"""What likelihood and recursion kernels share: calls, derivatives, launches of a generated program."""

import functools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError, KernelError, ShapeError
from ..._core.pickling import PickledByCall, named_like
from ..._core.primitive import is_tracked, layout_of, live
from ..._core.reverse import Tape
from ..._core.scope import OPEN, WATCHERS
from ..._core.trees import leaves, tree_map
from ..._core.variable import ArrayVariable, Variable
from ...ops import shaping
from ..emit.lower import SUMS, LoweredProgram
from ..launch.repeat import LastLaunch, fits_launch, launched, repeat_launch
from .arguments import (
    FLOATS,
    MissingCheck,
    as_float,
    batch_of,
    checked_outs,
    contiguous_argument,
    is_tree,
    kernel_name,
    launcher_of,
    list_of,
    stacked_rows,
    sums_of,
    with_ways,
)
from .derivatives import Family

ARRAYS = frozenset((np.ndarray, ArrayVariable))
BLOCKS = ("value", "each", "path")  # traced with large matrices as blocks, where that is shorter


@dataclass(frozen=True)
class KernelParts:
    """The definition of a kernel: the function that names it, how it is traced, and its options."""

    f: Callable
    trace: Callable
    missing: Any
    invalid: str
    sums: Any = None
    init: Any = None  # of a recursion

    def __post_init__(self) -> None:
        if self.invalid not in ("reject", "nan"):
            raise ArgumentError(f"invalid={self.invalid!r}: 'reject' (value -inf, gradient 0) or 'nan'")
        sums_of(self.sums)


class TracedKernel:
    """The traces and launches of a kernel's functions; it is replaced when a captured object changes."""

    def __init__(self, kernel, families: dict):
        self.kernel, self.families, self.family = kernel, families, families["value"]
        # `F`, `VG`: the last launch of the value, and of value and gradient
        self.launches = threading.local()
        self.last: tuple = (None, None)  # the launcher of the last call
        self.captured = []
        self.seconds = [0.0]  # spent on traces and compilation
        for family in families.values():
            family.captured, family.seconds = self.captured, self.seconds
        self.runs = {what: functools.partial(kernel._run_of, family) for what, family in families.items()}
        # an operation on a tape keeps the trace that it was made with
        self.recorded = (
            functools.partial(kernel._run_value, self.family)
            if type(kernel)._run is GeneratedKernel._run
            else kernel._run
        )

    def renewed(self) -> "TracedKernel":
        return TracedKernel(self.kernel, {what: family.renewed() for what, family in self.families.items()})


def of_rows(arrays: list, tree) -> tuple[list, Callable]:
    """The shapes of the arrays of a tree, each without its last axis, the samples; and what makes the tree of
    these arrays as rows."""
    shapes = [tuple(a.shape[:-1]) if a.ndim else () for a in arrays]
    cuts = np.cumsum([0] + [math.prod(s) for s in shapes])

    def restore(rows):
        place = iter(range(len(shapes)))

        def part(_):
            k = next(place)
            return rows[cuts[k] : cuts[k + 1]].reshape(shapes[k] + tuple(rows.shape[1:]))

        return tree_map(part, tree)

    return shapes, restore


class GeneratedKernel(PickledByCall):
    """The base class of likelihood and recursion kernels; `likelihood` and `recursion` make them."""

    scores: Callable

    def __init__(
        self, parts: KernelParts, build: Callable | None = None, key: str | None = None, short: bool = False
    ):
        """Define the kernel.

        `build` makes a tree theta of its rows. `key` names the program on disk, in place of its trace.
        `short` says that the kernel runs for few steps, which limits the time of compilation."""
        self.__name__, self.missing = kernel_name(parts.f), parts.missing
        self.__doc__ = getattr(parts.f, "__doc__", None)
        self._is_missing = MissingCheck(self.__name__)
        self._parts, self._build = parts, build
        self._rejects = parts.invalid == "reject"
        self._call: tuple = ()
        named_like(self, parts.f)
        self._trees = {}
        families = {
            what: Family(
                self.__name__,
                functools.partial(parts.trace, build=build, what=what),
                what == "value",
                what == "value" and self._rejects,
                sums=what == "value" and sums_of(parts.sums),
            )
            for what in ("value", "each", "path", "final", "scores")
        }
        for what, family in families.items():
            family.key = None if key is None else f"{key} {what}"
            family.short = short
        self._traced = TracedKernel(self, families)

    def _made(self) -> tuple:
        return self._call

    _family = property(lambda self: self._traced.family)
    _families = property(lambda self: self._traced.families)
    _captured = property(lambda self: self._traced.captured)
    _launches = property(lambda self: self._traced.launches)
    _recorded = property(lambda self: self._traced.recorded)
    _runs = property(lambda self: self._traced.runs)

    def _now(self) -> TracedKernel:
        """Return the current trace; replace it by an empty one if a captured object has changed.

        The replacement is one assignment. After an interrupt the old trace is still there, and is replaced
        then."""
        traced = self._traced
        for c in traced.captured.copy():  # of which other threads remove traces in progress
            if c.changed():
                self._traced = traced = traced.renewed()
                return traced
        if OPEN.shadows:
            for c in traced.captured.copy():
                c.enter(self.__name__)
        return traced

    @property
    def compile_seconds(self) -> float:
        """The time that was spent here on traces and compilation, derivatives included."""
        return self._traced.seconds[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} kernel of {self.__name__}>"

    # --- calls ---

    def __call__(self, theta: Any, data: Any, out: Any = None) -> Any:
        """The value for each sample, (B,); theta (p, B), data (N,), (d, N) or (d, N, B).  theta (p,) gives
        one number.

        theta may be a dict, named tuple or dataclass of arrays (..., B): the function then gets such a tree
        for one sample. theta and data may be tracked; the derivative by data that samples share is the sum
        over the samples."""
        last = self._now().launches.__dict__.get("F")
        if (
            out is None
            and not WATCHERS
            and fits_launch(last, theta, data)
            and (found := repeat_launch(last, theta, data, False)) is not None
        ):
            return found
        if is_tree(theta):
            kernel, rows, _ = self._of_tree(theta)
            return kernel(rows, data, out)
        theta, data, single = self._arguments(theta, data)
        self._refuse_out(out, theta, data)
        if isinstance(theta, Variable) and isinstance(live(theta)._trace, Tape):
            v = self._family.apply("VG", (0, 0), (theta, data), self._recorded)[0]
        elif isinstance(theta, Variable) or isinstance(data, Variable):
            v = self._family.F(self._recorded, theta, data)
        else:
            v = self._run("F", (0, 0), (theta, data), list_of(out))
            if type(theta) is np.ndarray is type(data):
                self._remember("F", theta, data, single)
        return v[0] if single else v

    def value_and_grad(self, theta: Any, data: Any, out: Any = None) -> tuple:
        """Compute the value (B,) and the gradient (p, B) in one launch.

        `out` is a pair of arrays to fill. The gradient of a tree is such a tree.
        """
        last = self._now().launches.__dict__.get("VG")
        if (
            out is None
            and not WATCHERS
            and fits_launch(last, theta, data)
            and (found := repeat_launch(last, theta, data, True)) is not None
        ):
            return found
        if is_tree(theta):
            if out is not None:
                raise ArgumentError(
                    f"{self.__name__}.value_and_grad: out= is for theta as an array (p, B), not for a tree"
                )
            kernel, rows, restore = self._of_tree(theta)
            value, gradient = kernel.value_and_grad(rows, data)
            return value, restore(gradient)
        theta, data, single = self._arguments(theta, data)
        self._refuse_out(out, theta, data)
        if isinstance(theta, Variable) or isinstance(data, Variable):
            v, g = self._family.apply("VG", (0, 0), (theta, data), self._recorded)
        else:
            v, g = self._run("VG", (0, 0), (theta, data), list_of(out))
            if type(theta) is np.ndarray is type(data):
                self._remember("VG", theta, data, single)
        return (v[0], g[:, 0]) if single else (v, g)

    def _remember(self, kind: str, theta: np.ndarray, data: np.ndarray, single: bool) -> None:
        """Store, for this thread, what the next call on similar arrays needs."""
        found: LastLaunch | None = None
        traced = self._traced
        key, launcher = traced.last
        ours = kind, (0, 0), theta.shape[0], data.shape[:-1], False, np.ndarray, theta.dtype.char
        # (another thread may have launched since)
        if key == ours and data.ndim < 3 and theta.size and theta.dtype is data.dtype:
            found = launched(launcher, theta, data, single, self._is_missing.count(data))
        traced.launches.__dict__[kind] = found

    def grad(self, theta: Any, data: Any) -> Any:
        """Compute the gradient of each sample, (p, B)."""
        return self.value_and_grad(theta, data)[1]

    def hvp(self, theta: Any, v: Any, data: Any) -> Any:
        """Multiply the Hessian of each sample by v[:, sample]; v and the result are (p, B)."""
        theta, data, single = self._arguments(theta, data)
        v = as_float(v, f"{self.__name__}.hvp: v")
        if single:
            v = v.reshape(-1, 1)
        if tuple(v.shape) != tuple(theta.shape):
            raise ShapeError(f"{self.__name__}.hvp: v has shape {tuple(v.shape)}, theta {tuple(theta.shape)}")
        h = self._family.gradient("R", self._recorded, theta, data, (v,), (), None)
        return h[:, 0] if single else h

    def hessian(self, theta: Any, data: Any) -> Any:
        """Compute the Hessians, (B, p, p): one Hessian-vector product for each parameter, in one launch."""
        theta, data, single = self._arguments(theta, data)
        p, batch = theta.shape
        many, units, repeated = self._unit_directions(theta, data)
        h = (
            self._family.gradient("R", self._recorded, many, repeated, (units,), (), None)
            .reshape((p, p, batch))
            .transpose((2, 0, 1))
        )
        h = 0.5 * (h + h.transpose((0, 2, 1))) + 0.0  # no -0
        return h[0] if single else h

    def contributions(self, theta: Any, data: Any) -> Any:
        """Compute the term of each datum, (N, B), or (N,) for theta (p,).

        The terms are what the function returns, whatever `invalid` is.

        Examples
        --------
        >>> import numpy as np, tapegrad as tg
        >>> k = tg.kernels.likelihood(lambda theta, x: -((x - theta[0]) ** 2))
        >>> k.contributions(np.array([1.0]), np.array([2.0, 3.0]))
        array([-1., -4.])
        """
        if is_tree(theta):
            kernel, rows, _ = self._of_tree(theta)
            return kernel.contributions(rows, data)
        theta, data, single = self._arguments(theta, data)
        each = self._families["each"].F(self._runs["each"], theta, data)[0]
        return each[:, 0] if single else each

    def fisher(self, theta: Any, data: Any) -> Any:
        """Compute the sum over data of the outer products of the scores, (B, p, p)."""
        s = self.scores(theta, data)
        dtype = layout_of(s).dtype
        if self._family.wide(dtype):
            s = s.astype(SUMS)
        f = np.einsum("ni,nj->ij", s, s) if s.ndim == 2 else xp_of(layout_of(s)).einsum("nib,njb->bij", s, s)
        return f.astype(dtype) if self._family.wide(dtype) else f

    def lowered(
        self,
        theta_rows: int,
        data_rows: int,
        kind: str = "VG",
        order: Any = 0,
        missing: bool = False,
        dtype: Any = np.float64,
    ) -> LoweredProgram:
        """Return the program of one kernel, for `emit_cuda` and for inspection.

        kind is 'F', 'R', 'D' or 'VG', as in `derivatives`. order is the number of directions of theta, or the
        pair of those of theta and of the data. `dtype` is that of theta, for kernels with `sums`."""
        family = self._now().family
        with family.lock:
            signature = theta_rows, data_rows, missing or self.missing == "step"
            return family.lowered(kind, order, signature, np.dtype(dtype))

    # --- arguments ---

    def _of_tree(self, theta) -> tuple:
        """Return the kernel for rows in place of this tree, the rows (p, B), and the function from rows to a
        tree."""
        arrays = [as_float(x, f"{self.__name__}: theta") for x in leaves(theta)]
        batch = batch_of(self.__name__, arrays)
        shapes, restore = of_rows(arrays, theta)
        numbers = iter(shapes)
        key = repr(tree_map(lambda _: next(numbers), theta))
        kernel = self._trees.get(key)
        if kernel is None:
            kernel = self._trees[key] = type(self)(self._parts, restore)
        dtype = np.result_type(*[layout_of(a).dtype for a in arrays])
        return kernel, stacked_rows(arrays, batch, dtype), restore

    def _arguments(self, theta, data) -> tuple:
        self._now()
        x = layout_of(theta)
        y = layout_of(data)
        if (
            ARRAYS.issuperset((type(theta), type(data)))
            and xp_of(x) is np is xp_of(y)
            and x.ndim == 2
            and 0 < y.ndim < 3
            and x.dtype in FLOATS
            and y.dtype in FLOATS
            and (x is theta or is_tracked(theta))
            and (y is data or is_tracked(data))
        ):
            return theta, data, False  # the usual case, in one line
        if is_tree(theta):
            raise ArgumentError(
                f"{self.__name__}: this method takes theta as an array (p, B), not as a "
                f"{type(theta).__name__}"
            )
        theta, data = as_float(theta, f"{self.__name__}: theta"), as_float(data, f"{self.__name__}: data")
        single = theta.ndim == 1
        if single:
            theta = theta.reshape(-1, 1)
        if theta.ndim != 2 or data.ndim not in (1, 2, 3):
            raise ShapeError(
                f"{self.__name__}: theta has shape {tuple(theta.shape)} and data {tuple(data.shape)}; "
                "wanted are (p, B) and (N,), (d, N) or (d, N, B)"
            )
        if data.ndim == 3 and data.shape[2] != theta.shape[1]:
            raise ShapeError(
                f"{self.__name__}: theta {tuple(theta.shape)} has {theta.shape[1]} samples, the data have "
                f"{data.shape[2]}"
            )
        return theta, data, single

    def _refuse_out(self, out, *arguments) -> None:
        if out is not None and any([isinstance(x, Variable) for x in arguments]):
            raise ArgumentError(
                f"{self.__name__}: out= cannot hold a derivative, and theta or the data are tracked: leave "
                f"it away"
            )

    def _unit_directions(self, theta, data) -> tuple:
        """Repeat each sample p times, once for each unit direction: theta (p, p B), directions (p, p B),
        data."""
        xp, (p, batch) = xp_of(layout_of(theta)), theta.shape
        many = shaping.broadcast_to(theta[:, None, :], (p, p, batch)).reshape((p, p * batch))
        units = xp.broadcast_to(xp.eye(p, dtype=layout_of(theta).dtype)[:, :, None], (p, p, batch)).reshape(
            p, p * batch
        )
        if data.ndim == 3:
            d, n = data.shape[:2]
            data = shaping.broadcast_to(data[:, :, None, :], (d, n, p, batch)).reshape((d, n, p * batch))
        return many, units, data

    # --- launches ---

    def _run(self, kind: str, n: tuple, arrays: tuple, outs: list | None = None):
        """Launch a kernel of the value on plain arrays."""
        return self._run_value(self._family, kind, n, arrays, outs)

    def _run_value(
        self,
        family: Family,
        kind: str,
        n: tuple,
        arrays: tuple,
        outs: list | None = None,
        *,
        numbers: bool = False,
    ):
        """Launch a kernel of the value; `numbers`: the data are one number a step, of shape (1, N, B)."""
        theta, data = arrays[:2]
        missing = self._is_missing(data)
        key = kind, n, theta.shape[0], data.shape[:-1], missing, type(theta), theta.dtype.char
        traced = self._traced
        last, launcher = traced.last
        if key != last or family is not traced.family or numbers:
            launcher = self._launcher(family, kind, n, arrays, missing, numbers)
            if not numbers and family is traced.family:
                traced.last = key, launcher
        return self._looked_at(arrays, self._launch(launcher, kind, n, arrays, outs, False))

    def _run_of(
        self, family: Family, kind: str, n: tuple, arrays: tuple, numbers: bool = False, launcher=None
    ):
        """Launch a kernel of any family on plain arrays."""
        if launcher is None:
            launcher = self._launcher(family, kind, n, arrays, self._is_missing(arrays[1]), numbers)
        return self._looked_at(arrays, self._launch(launcher, kind, n, arrays, None, not family.scalar))

    def _looked_at(self, arrays: tuple, found):
        if WATCHERS and OPEN.watcher is not None:
            OPEN.watcher.launched(
                self.__name__, arrays[0], found, functools.partial(self._rerun, *arrays[:2])
            )
        return found

    def _rerun(self, theta: np.ndarray, data: np.ndarray, sample: int) -> None:
        """Run the function itself for one sample, datum by datum, with its derivative, so that a watcher sees
        it."""
        raise NotImplementedError

    def _steps_of(self, theta, data, sample: int) -> tuple:
        """Return the arguments of the function: (theta of its numbers, the numbers, the list of data)."""
        data = data[..., sample] if data.ndim == 3 else data
        each = [y if data.ndim > 1 else y[()] for y in data.T]
        skips = self.missing != "step"
        return (
            self._build or (lambda x: x),
            theta[:, sample].copy(),
            [y for y in each if not (skips and np.isnan(y).any())],
        )

    def _launch(self, launcher, kind: str, n: tuple, arrays: tuple, outs: list | None, vector: bool):
        theta, data = arrays[:2]
        dtype, batch, shape = theta.dtype, theta.shape[1], data.shape
        steps = shape[0 if len(shape) == 1 else 1]
        first, last = 2 + n[0], 2 + n[0] + n[1]
        inputs = [contiguous_argument(x, dtype) for x in (theta, *arrays[2:first])]
        each = steps_out = None
        for w in arrays[last:]:
            if launcher.streams:
                each = contiguous_argument(w, dtype)
            else:
                inputs.append(contiguous_argument(w if w.ndim == 2 else w[None], dtype))
        xp = xp_of(theta)
        if launcher.step_rows:
            made_by, samples = (xp.zeros, ()) if launcher.summed else (xp.empty, (batch,))
            steps_out = made_by((launcher.step_rows, steps, *samples), dtype)
        if outs is None:
            made = [
                xp.empty((rows, batch), kind)
                for rows, kind in zip(launcher.outputs, launcher.types, strict=True)
            ]
        else:
            made = rooms = checked_outs(self.__name__, outs, launcher.outputs, batch, launcher.types)
            if type(theta) is np.ndarray and (
                launcher.overlaps(batch) or not launcher.is_simple(batch, steps)
            ):
                made = [np.empty_like(x) for x in rooms]  # an interrupted launch may still write into these
        if batch:
            whole = contiguous_argument(with_ways(data, arrays[first:last]), dtype)
            if each is None is steps_out:
                launcher(inputs, whole, steps, made, batch)
            else:
                launcher(inputs, whole, steps, made, batch, each, steps_out)
        if outs is not None and made is not rooms:
            for room, x in zip(rooms, made, strict=True):
                room[...] = x
        if kind == "D":
            return xp.zeros(shape, dtype) if steps_out is None else steps_out.reshape(shape)
        if kind == "VGD":
            return made[0][0], made[1], steps_out
        if steps_out is not None:
            return steps_out
        if kind == "R" or vector:
            return made[0]
        if outs is None:
            outs = [made[0][0], *made[1:]]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _launcher(
        self, family: Family, kind: str, n: tuple, arrays: tuple, missing: bool, numbers: bool = False
    ):
        if missing and self.missing is None:
            raise KernelError(
                f"{self.__name__}: the data hold nan. Say what a step does without a datum: "
                "missing=function(carry, theta) that gives the carry after it, missing='skip' to leave the "
                "step out, or missing='step' if the step itself looks for nan, by np.where(np.isnan(y), ...)"
            )
        theta, data = arrays[:2]
        signature = theta.shape[0], 0 if data.ndim == 1 or numbers else data.shape[0], missing
        return family.launcher(kind, n, signature, theta.dtype, data.ndim == 3, launcher_of(*arrays))
