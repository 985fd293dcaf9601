"""map: a function of per-sample arguments becomes a kernel."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.pickling import PickledByCall, named_like
from ..._core.primitive import layout_of, values_of, watching
from ..._core.scope import OPEN, WATCHERS
from ..._core.trees import Const
from ..._core.variable import Variable
from ..._transforms.jacobian import jacobian
from ..trace.captured import steadily
from ..trace.tracing import trace_map
from .arguments import as_float, batch_of, contiguous_argument, kernel_name, launcher_of, stacked_rows
from .derivatives import Family, derivative_library


class MapKernel(PickledByCall):
    """A function of per-sample arguments; see `map_`."""

    def __init__(self, f: Callable):
        self.f, self.__name__, self.__doc__ = f, kernel_name(f), getattr(f, "__doc__", None)
        self._traced = ({}, [], False)  # families by shapes, captured objects, changed before?
        named_like(self, f)

    def _made(self) -> tuple:
        return MapKernel, (self.f,)

    _families = property(lambda self: self._traced[0])

    def __repr__(self) -> str:
        return f"<map kernel of {self.__name__}>"

    def __call__(self, *args: Any) -> Any:
        """Apply the kernel to arguments (..., B), the sample being the last axis; the results have it too."""
        if any([c.changed() for c in self._traced[1].copy()]):
            self._traced = {}, [], True  # one assignment, as in `kernel`
        for c in self._traced[1].copy():
            c.enter(self.__name__)
        values = [values_of(a.value) if isinstance(a, Const) else a for a in args]
        fixed = [isinstance(a, Const) or not _differentiable(v) for a, v in zip(args, values, strict=True)]
        arrays = [as_float(v, f"{self.__name__}: argument {n}") for n, v in enumerate(values)]
        batch = batch_of(self.__name__, arrays)
        shapes = tuple([tuple(a.shape[:-1]) if a.ndim else () for a in arrays])
        family, build = self._family(shapes, tuple(fixed))
        dtype = np.result_type(
            *[layout_of(a).dtype for a, c in zip(arrays, fixed, strict=True) if not c] or [np.float64]
        )
        xp = derivative_library(*[layout_of(a) for a in arrays])
        # numbers fit any library
        arrays = [xp.asarray(a) if type(a) is np.ndarray and not a.ndim else a for a in arrays]
        theta = stacked_rows([a for a, c in zip(arrays, fixed, strict=True) if not c], batch, dtype, xp)
        rest = stacked_rows([a for a, c in zip(arrays, fixed, strict=True) if c], batch, dtype, xp)
        again = (values, fixed) if watching() else ()  # a record keeps the caller's arrays only for watchers
        return build(family.F(self._launch(family, *again), theta, rest, ()))

    def _rerun(self, values: list, fixed: list, sample: int) -> None:
        """Run the function itself for one sample, with its derivative, so that a watcher sees its lines."""
        given = [v[..., sample] if np.ndim(v) else v for v in values]
        jacobian(self.f, tuple([n for n, c in enumerate(fixed) if not c]))(*given)

    def _family(self, shapes: tuple, fixed: tuple) -> tuple:
        key = shapes, fixed
        families, captured, general = self._traced
        if key not in families:
            order = [n for n, c in enumerate(fixed) if not c] + [n for n, c in enumerate(fixed) if c]
            place = {n: k for k, n in enumerate(order)}

            builds = []

            def trace():
                program, build = trace_map(
                    self.f, [shapes[n] for n in order], [place[n] for n in range(len(order))]
                )
                active = sum(program.inputs[: fixed.count(False)])
                program.inputs = [active, sum(program.inputs) - active]
                builds.append(build)
                return program

            traced = [steadily(trace, self.__name__, captured)]
            family = Family(
                self.__name__, lambda s: traced.pop() if traced else trace(), False, False, by_data=False
            )
            family.captured, family.general = captured, general
            families[key] = family, builds[-1]
        return families[key]

    def _launch(self, family: Family, values=None, fixed=None) -> Callable:
        def run(kind, n, arrays):
            theta, rest, *others = arrays
            dtype = theta.dtype
            xp = derivative_library(*arrays)
            launcher = family.launcher(kind, n, (), dtype, False, launcher_of(*arrays))
            batch = theta.shape[1]
            made = [xp.empty((rows, batch), dtype) for rows in launcher.outputs]
            if batch:
                launcher(
                    [contiguous_argument(x, dtype) for x in (theta, rest, *others)], None, 0, made, batch
                )
            if WATCHERS and OPEN.watcher is not None and values is not None:
                OPEN.watcher.launched(
                    self.__name__, theta, made[0], functools.partial(self._rerun, values, fixed)
                )
            return made[0]

        return run


def _differentiable(x) -> bool:
    return isinstance(x, (Variable, float)) or getattr(x, "dtype", np.dtype(int)).kind == "f"


def map_(f: Callable) -> MapKernel:
    """Make a kernel that applies f to each sample.

    Parameters
    ----------
    f : callable
        A function of one sample. It may use `loop` and `while_loop`.

    Returns
    -------
    Map
        The kernel. Its arguments have the shape (..., B) and results likewise, with the sample as the last
        axis. Integer arguments and those marked `Const` have no derivative.

    Raises
    ------
    ArgumentError
        In a call, if shapes do not fit.
    NoRuleError
        In a call, if f uses an operation that kernels do not have.

    See Also
    --------
    tapegrad.vmap : Any function of one sample, without compilation.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> k = tg.kernels.map(lambda a, b: a @ b)
    >>> k(np.ones((3, 2)), np.ones((3, 2)))
    array([3., 3.])
    """
    return MapKernel(f)
