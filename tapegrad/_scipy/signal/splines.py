"""scipy.signal: coefficients of splines through equidistant samples, which compiled code computes."""

import inspect

import numpy as plain_np
import scipy.signal as sig

from ... import numpy as np
from ...ops.declare import ndim, shape
from ..linear_maps import apply_linear
from ..namespaces import as_float_array, plain_setting
from .filters import SIGNAL


class Spline:
    """Coefficients of a spline through equidistant samples: of each row of these axes, which are put together
    in the last."""

    def __init__(self, f, to: tuple, *settings):
        self.f, self.to, self.settings = f, to, settings

    def __call__(self, x):
        # SciPy's compiled code takes an array for contiguous that is not
        flat = plain_np.ascontiguousarray(x).reshape(-1, x.shape[-1])
        rows = [self.f(row.reshape(self.to), *self.settings).reshape(-1) for row in flat]
        return plain_np.array(rows).reshape(x.shape)

    def __eq__(self, other) -> bool:
        return isinstance(other, Spline) and (self.f, self.to, self.settings) == (
            other.f,
            other.to,
            other.settings,
        )

    def __hash__(self) -> int:
        return hash((self.f, self.to, self.settings))


def through_samples(f, axes: int, settings: dict):
    """The rule of f: linear in its first argument, over the last axes of it."""
    names = inspect.signature(f).parameters
    first = next(iter(names))

    def run(*args, **kwargs):
        given = inspect.signature(f).bind(*args, **kwargs).arguments
        x = as_float_array(given.pop(first))
        rest = [
            plain_setting(given.get(n, default), f"scipy.signal.{f.__name__}", n)
            for n, default in settings.items()
        ]
        to = shape(x)[ndim(x) - axes :]
        y = apply_linear(
            Spline(f, to, *map(float, rest)),
            np.reshape(x, (*shape(x)[: ndim(x) - axes], -1)) if axes > 1 else x,
        )
        return np.reshape(y, shape(x))

    run.__signature__ = inspect.signature(f)  # type: ignore[attr-defined]
    return run


for _f in (sig.cspline1d, sig.qspline1d):
    SIGNAL.rule(_f)(through_samples(_f, 1, {"lamb": 0.0}))
for _f in (sig.cspline2d, sig.qspline2d):
    SIGNAL.rule(_f)(through_samples(_f, 2, {"lamb": 0.0, "precision": -1.0}))
SIGNAL.rule(sig.symiirorder1)(through_samples(sig.symiirorder1, 1, {"c0": 1.0, "z1": 0.5, "precision": -1.0}))
SIGNAL.rule(sig.symiirorder2)(
    through_samples(sig.symiirorder2, 1, {"r": 0.5, "omega": 1.0, "precision": -1.0})
)
