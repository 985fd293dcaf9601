"""The residuals of many problems as one function: costs, gradients and Gauss-Newton matrices at once.

`_residuals_many` calls this module."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._core.arrays import xp_of
from .._core.errors import ArgumentError, Attempt, ShapeError
from .._transforms.gradient import grad
from .._transforms.jacobian import jacobian
from .._transforms.products import jvp
from ..kernels.generated.arguments import kernel_name
from ..kernels.generated.kernel import recursion
from ..kernels.graph.blocks import UNROLLED
from ..kernels.trace.surroundings import rebuilt_with
from ..kernels.trace.tracing import Tracer
from ._flat import plain_result

# A loss rho(z) of z = (r / f_scale)^2 replaces the square of a residual r.
LOSSES: dict[str, Callable] = {
    "linear": lambda z: z,
    "soft_l1": lambda z: 2 * (np.sqrt(1 + z) - 1),
    "huber": lambda z: np.where(z <= 1, z, 2 * np.sqrt(np.where(z <= 1, 1.0, z)) - 1),
    "cauchy": np.log1p,
    "arctan": np.arctan,
}
MOST_UNROLLED = 2000  # residuals of a function whose residuals are not those of one datum each


def checked_loss(call: str, loss, f_scale: float, gtol: float, maxiter: float) -> Callable:
    """Return what replaces half the square of a residual; raise for options that mean nothing."""
    if not callable(loss) and loss not in LOSSES:
        raise ArgumentError(f"{call}: loss={loss!r}; it is a function or one of {', '.join(LOSSES)}")
    for name, value in (("f_scale", f_scale), ("maxiter", maxiter)):
        if not value > 0:
            raise ArgumentError(f"{call}: {name}={value!r}; it is a number above 0")
    if not gtol >= 0:
        raise ArgumentError(f"{call}: gtol={gtol!r}; it is a number, 0 or above")
    rho = loss if callable(loss) else LOSSES[loss]
    return rebuilt_with(lambda r: 0.5 * f_scale**2 * rho((r / f_scale) ** 2), rho)


def flat_residuals(y):
    """Return the residuals of a problem in a kernel as a vector."""
    return np.reshape(np.stack(y) if isinstance(y, (list, tuple)) else y, (-1,))


def acts_by_datum(residuals: Callable, p: int, arrays: list, count: int) -> bool:
    """Return whether residual i is one function, the same for all i, of the parameters and of datum i.

    The function is traced on all data and on each datum alone. The nodes of a graph are unique, so equal
    results are the same nodes."""
    t = Tracer(UNROLLED)
    shapes = [tuple(a.shape[:-1]) if a.ndim else () for a in arrays]
    starts = np.cumsum([p, *[math.prod(s) for s in shapes]])
    inputs = [t.inputs("th", 0, int(a), s) for a, s in zip(starts, shapes, strict=False)]

    def both(theta, *given) -> tuple:
        each = [
            flat_residuals(residuals(theta, *[g[i : i + 1] if g.shape else g for g in given]))
            for i in range(count)
        ]
        return flat_residuals(residuals(theta, *given)), each

    with Attempt():  # what the function cannot do is said where its kernel is traced
        whole, each = t.run(rebuilt_with(both, residuals), t.inputs("th", 0, 0, (p,)), *inputs)
        return whole.shape == (count,) and all(
            [y.shape == (1,) and y.ids[0] == i for y, i in zip(each, whole.ids, strict=True)]
        )
    return False


class CompiledResiduals:
    """Residuals of one problem as a kernel that gives cost, gradient and Gauss-Newton matrix of many.

    Where residual i reads datum i alone, the kernel is a loop over the data. Otherwise it is one long
    step."""

    def __init__(self, call: str, residuals: Callable, restore: Callable, data: list, rows, phi: Callable):
        self.data, self.dtype = data, rows.dtype
        of_rows = rebuilt_with(lambda theta, *given: residuals(restore(theta), *given), residuals)
        counts = {a.shape[0] for a in data if a.ndim > 1}
        self.steps = counts.pop() if len(counts) == 1 and min(counts) > 1 else 1
        if self.steps > 1 and not acts_by_datum(of_rows, len(rows), data, self.steps):
            self.steps = 1
        split = self.steps > 1
        shapes = [
            (1, *a.shape[1:-1]) if split and a.ndim > 1 else tuple(a.shape[:-1]) if a.ndim else ()
            for a in data
        ]
        cuts = [int(c) for c in np.cumsum([0, *[math.prod(s) for s in shapes]])]
        p, self.width, self.xp = len(rows), cuts[-1] * self.steps, xp_of(rows)

        def one(theta, datum):
            given = [
                datum[a:b].reshape(s) if s else datum[a]
                for a, b, s in zip(cuts, cuts[1:], shapes, strict=False)
            ]
            return flat_residuals(of_rows(theta, *given))

        def step(carry, theta, datum) -> tuple:
            r = one(theta, datum)
            if r.size > MOST_UNROLLED:
                raise ArgumentError(
                    f"{call}: {kernel_name(residuals)} returned {r.size} residuals that are not one function "
                    f"of one datum each; above {MOST_UNROLLED} this takes too long to compile. Pass data as "
                    "arguments, or use vectorized=True"
                )
            J = jacobian(one, mode="forward")(theta, datum)
            cost, slope, curvature = weights(phi, r, np.ones(r.shape))
            A = (J.T * curvature) @ J
            parts = [r.size, cost, *(slope @ J), *[A[i, j] for i in range(p) for j in range(i, p)]]
            return carry + np.stack(parts), 0.0

        rebuilt_with(one, residuals)
        rebuilt_with(step, residuals).__name__ = kernel_name(residuals)
        terms = 2 + p + p * (p + 1) // 2
        self.kernel = recursion(lambda theta: np.zeros(terms), step, missing="step", invalid="nan")

    def part(self, at: slice) -> "CompiledPart":
        """Return the problems of a slice."""
        count = at.stop - at.start
        arrays = [a if a.ndim == 0 or a.shape[-1] == 1 else a[..., at] for a in self.data]
        if self.steps > 1:
            inner = [math.prod(a.shape[1:-1]) for a in arrays]
            arrays = [
                a.reshape((self.steps if a.ndim > 1 else 1, d, -1 if a.size else 0))
                for a, d in zip(arrays, inner, strict=True)
            ]
            arrays = [self.xp.broadcast_to(a.swapaxes(0, 1), (a.shape[1], self.steps, count)) for a in arrays]
        else:
            arrays = [
                self.xp.broadcast_to(a, (*a.shape[:-1], count)).reshape((-1 if a.size else 0, 1, count))
                for a in arrays
            ]
        data = (
            self.xp.concatenate(arrays).astype(self.dtype, copy=False)
            if arrays
            else self.xp.zeros((1, 1, count), self.dtype)
        )
        return CompiledPart(self, constant(data))


def constant(data):
    """Return an array that nobody writes, so that a kernel looks for nan in it once."""
    if type(data) is np.ndarray:
        data.flags.writeable = False
    return data


class CompiledPart:
    """The data (d, N, b) of some problems, and their kernel."""

    def __init__(self, whole: CompiledResiduals, data):
        self.whole = whole
        self.data = data
        self.last = (None, data)
        self.counts = 0

    def __call__(self, X, which) -> tuple:
        if len(which) != self.data.shape[2] and self.last[0] is not which:
            self.last = which, constant(self.data.take(which, axis=2))
        data = self.data if len(which) == self.data.shape[2] else self.last[1]
        rows = self.whole.kernel.final(X, data).astype(np.float64, copy=False)
        self.counts = int(rows[0, 0])
        return rows[1], rows[2 : 2 + len(X)], rows[2 + len(X) :]


def weights(phi: Callable, r, ones) -> tuple:
    """Return the sum of phi over residuals, phi', and phi'' where it is positive (as in SciPy's robust
    losses)."""

    def total(r):
        return phi(r).sum()

    slope, curvature = jvp(grad(total), (r,), (ones,))
    return phi(r).sum(axis=0), slope, np.maximum(curvature, np.finfo(float).eps)


class VectorizedResiduals:
    """Residuals as a differentiable function of the whole batch; column b depends on column b of the
    parameters alone."""

    width = 1

    def __init__(self, call: str, f: Callable, data: list, rows, phi: Callable):
        self.call = call
        self.f = f
        self.data = data
        self.xp = xp_of(rows)
        self.phi = phi

    def part(self, at: slice) -> "VectorizedPart":
        """Return the problems of a slice."""
        return VectorizedPart(self, [a[..., at] if a.ndim else a for a in self.data])


@dataclass
class VectorizedPart:
    """The data of some problems, and their residuals."""

    whole: VectorizedResiduals
    data: list
    counts: int = 0

    def __call__(self, X, which) -> tuple:
        whole, p = self.whole, len(X)
        xp, given = whole.xp, [a[..., which] if a.ndim else a for a in self.data]
        units = xp.eye(p, dtype=X.dtype)[:, :, None] + xp.zeros(X.shape, X.dtype)

        def residuals(X):
            return whole.f(X, *given)

        pushed = [jvp(residuals, (X,), (unit,)) for unit in units]
        r = plain_result(pushed[0][0])
        if r.ndim != 2 or r.shape[1] != X.shape[1]:
            raise ShapeError(
                f"{whole.call}: with vectorized=True the function returned shape {tuple(r.shape)} for "
                f"{X.shape[1]} problems; wanted is (m, {X.shape[1]})"
            )
        self.counts = len(r)
        J = xp.stack([d for _, d in pushed], axis=1)
        cost, slope, curvature = weights(whole.phi, r, xp.ones(r.shape, r.dtype))
        A = xp.einsum("mjn,mn,mkn->jkn", J, curvature, J)
        return cost, xp.einsum("mn,mkn->kn", slope, J), A[np.triu_indices(p)]
