"""The accepted steps of SciPy's BDF as linear equations, whose solution is the derivative of a solution.

A step carries the backward differences D of the states, the first of which is the state. With the slope K at
its end, the state there is m D + c K, and the differences are M D + w K. Orders and sizes are constants, and
so are m, M, c and w. Tangents obey dK = J (m dD + c dK) + r, where J is the Jacobian of f at the end."""

from typing import Any, NamedTuple

import numpy as np

from ... import numpy as traced_np
from .linear_steps import SMALL_SYSTEM, LinearSteps, RefinedSteps, SparseJacobians, inverses, products
from .right_side import all_real

HIGHEST_ORDER = 5  # the highest order
KAPPA = np.array([0, -0.1850, -1 / 9, -0.0823, -0.0415, 0])
GAMMA = np.append(0.0, np.cumsum(1 / np.arange(1, HIGHEST_ORDER + 1)))
ALPHA = (1 - KAPPA) * GAMMA


def rescaling(factor):
    """Return the matrix that makes differences of points `factor` times as far apart.

    The first rows and columns are that of a lower order."""
    columns = np.arange(1.0, HIGHEST_ORDER + 1)
    rows, units = [(-factor) * columns], [-columns]
    for i in range(1, HIGHEST_ORDER):
        rows.append(rows[-1] * (i - factor * columns) / (i + 1))
        units.append(units[-1] * (i - columns) / (i + 1))
    return np.array(units).T @ traced_np.stack(rows, 1)


def interpolation(s):
    """Return the weights of the differences at a time so many steps after the last point."""
    found = [s]
    for k in range(1, HIGHEST_ORDER):
        found.append(found[-1] * (s + k) / (1.0 + k))
    return traced_np.stack(found)


class MultistepSteps(NamedTuple):
    """The steps that BDF has taken. The stages are the start and the ends: `T`, `Y` have the shapes (steps +
    1, 1) and (steps + 1, 1, n). `orders`, `sizes`, `D`: what is carried after each step."""

    ends: Any
    states: Any
    T: Any
    Y: Any
    orders: Any
    sizes: Any
    D: Any
    K: Any = None

    def equations(self, J) -> "MultistepEquations":
        return MultistepEquations(self, J)

    def stages(self, states, K, at: slice):
        return states[at, None]

    def weights(self, at, x):
        """Return the weights of the differences of steps, from the first on, at shares x of the steps."""
        powers = interpolation((x - 1.0) * (np.diff(self.ends) / self.sizes)[at])
        return powers.T * (self.orders[:, None] >= np.arange(1, HIGHEST_ORDER + 1))[at]


def multistep_steps(parts: list, y0) -> MultistepSteps:
    """Return the steps of SciPy's interpolants, which hold the differences after each step."""
    ends = np.array([parts[0].t_old, *[part.t for part in parts]])
    D = np.zeros((len(parts), HIGHEST_ORDER + 1, len(y0)), np.result_type(y0, parts[0].D))
    for part, to in zip(parts, D, strict=True):
        to[: len(part.D)] = part.D
    y = np.concatenate([y0[None], D[:, 0]])
    y, D = all_real(y, D)
    orders, sizes = np.array([[part.order, part.denom[0]] for part in parts]).T
    return MultistepSteps(ends, y, ends[:, None], y[:, None], orders.astype(int), sizes, D[:, 1:])


def rescaled(order: int, factor: float):
    """Return the matrix that makes differences, up to an order, of points `factor` times as far apart."""
    found = np.eye(HIGHEST_ORDER + 1)
    if factor != 1.0:
        found[1 : order + 1, 1 : order + 1] = rescaling(factor)[:order, :order]
    return found


class MultistepEquations(LinearSteps):
    """The map (dy at the start, r) -> (dy, dK, differences) at the start and the ends, and its transpose.

    The Jacobians have the shape (steps + 1, 1, n, n)."""

    def __init__(self, steps: MultistepSteps, J):
        self.J, self.steps, self.n = J, len(steps.orders), J.shape[-1]
        self.size = (self.steps + 2) * self.n
        self.results = (self.steps + 1) * self.n * (2 + HIGHEST_ORDER)
        h = np.diff(steps.ends)
        orders = np.append(1, steps.orders[:-1])
        self.first = h[0]
        before = np.append(h[0], steps.sizes[:-1])
        rows = np.arange(HIGHEST_ORDER + 1)
        self.c = h / ALPHA[orders]
        self.M = np.empty((self.steps, HIGHEST_ORDER + 1, HIGHEST_ORDER + 1))
        self.w = []
        for k, q in enumerate(orders):
            valid, reached = rows <= q, rows <= q + 1
            after = rescaled(steps.orders[k], steps.sizes[k] / h[k])
            step = np.triu(np.outer(valid, valid)) - np.outer(reached, valid * GAMMA / ALPHA[q])
            self.M[k] = after @ step @ rescaled(q, h[k] / before[k])
            self.w.append(self.c[k] * after @ reached)
        A = self.c[:, None, None]
        ends = SparseJacobians(J.entries[1:], J.pattern) if type(J) is SparseJacobians else J[1:]
        small = self.n <= SMALL_SYSTEM
        self.inverse = inverses(A, ends) if small else None
        self.refined: Any = None if small else RefinedSteps(A, ends)

    def slope(self, k: int, c, back: bool):
        """Return (1 - c J)^-1 c for a step, or the transpose."""
        if self.inverse is not None:
            return (self.inverse[k].T if back else self.inverse[k]) @ c
        return self.refined.solve(k, c[None], back)[0]

    def product(self, k: int, x, back: bool):
        return products(self.J, slice(k, k + 1), slice(None), x[None, None], back)[0, 0]

    def solved(self, z) -> tuple:
        r = z[self.n :].reshape(self.steps + 1, self.n, -1)
        D, K = np.zeros((self.steps + 1, HIGHEST_ORDER + 1, *r.shape[1:])), np.empty(r.shape)
        D[0, 0] = z[: self.n]
        K[0] = r[0] + self.product(0, D[0, 0], False)
        D[0, 1] = self.first * K[0]
        for k in range(self.steps):
            D[k + 1] = np.tensordot(self.M[k], D[k], 1)
            K[k + 1] = self.slope(k, r[k + 1] + self.product(k + 1, D[k + 1, 0], False), False)
            D[k + 1] += self.w[k][:, None, None] * K[k + 1]
        return D[:, 0], K, D[:, 1:]

    def transposed(self, g) -> tuple:
        count = (self.steps + 1) * self.n
        y, K = g[: 2 * count].reshape(2, self.steps + 1, self.n, -1)
        D = g[2 * count :].reshape(self.steps + 1, HIGHEST_ORDER, self.n, -1)
        r, adjoint = np.empty(K.shape), np.zeros((HIGHEST_ORDER + 1, *K.shape[1:]))
        for k in reversed(range(self.steps)):
            adjoint[0] += y[k + 1]
            adjoint[1:] += D[k + 1]
            r[k + 1] = self.slope(k, K[k + 1] + np.tensordot(self.w[k], adjoint, 1), True)
            adjoint[0] += self.product(k + 1, r[k + 1], True)
            adjoint = np.tensordot(self.M[k].T, adjoint, 1)
        adjoint[0] += y[0]
        r[0] = K[0] + self.first * (adjoint[1] + D[0, 0])
        return adjoint[0] + self.product(0, r[0], True), r
