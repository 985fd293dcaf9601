"""Newton's method and BFGS for many small problems at once; `_many` calls this module.

A problem is a row of every array here, and takes its own steps. Each pass evaluates one trial point of every
unfinished problem. A problem that rejects its step tries a shorter one while the others move on. Finished
rows are removed from the batch when there are many. References: Moré and Sorensen, SIAM J. Sci. Stat. Comput.
4 (1983), for the trust region; Nocedal and Wright, Numerical Optimization, for BFGS."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from .._core.scope import quiet

GRADIENT, ROUNDING, LIMIT, START, STUCK, CURVATURE, LOST, RUNNING = 0, 1, 2, 3, 4, 5, 6, -1
TEXTS = {
    GRADIENT: "converged: the gradient is below gtol",
    ROUNDING: "converged: the value and its gradient are exact to rounding",
    LIMIT: "not converged: maxiter steps were not enough",
    START: "not converged: the function or its gradient is not finite at the start",
    STUCK: "not converged: no step along the gradient lowers the function, which may have a kink or a wrong "
    "derivative here",
    CURVATURE: "not converged: the second derivative is not finite at the start",
    LOST: "not converged: a parameter has lost its effect on the residuals; start elsewhere, or give bounds",
}
FINISHED = 0.2  # share of finished rows at which they are removed
SMALL_GAIN = 1e-9  # of |f|: below this gain a step is judged by its gradient
LEAST_GAIN = 1e-12  # of |f|: below this gain, without a lower gradient, rounding is reached
POOR, HOPE, BEND = 0.25, 0.25, 0.5  # actual by expected gain, gain by length: when to bend a step; the most
FLAT_GRADIENT = 0.1  # of |f| or 1: above this, gradient times x exceeds rounding
CALM = 1e-5  # of |f| or 1: if no step helps, rounding can hide a gradient up to this


def row_dot(a, b):
    return (a * b).sum(axis=1)


def batched_matvec(A, b):
    """Return the product of each matrix with its vector."""
    return (A @ b[:, :, None])[:, :, 0]


def row_maximum(a):
    return abs(a.T.copy()).max(axis=0)  # ten times as fast as a maximum over a short last axis


def symmetric_eigenpairs(H, xp: ModuleType) -> tuple[Any, Any]:
    """Return the ascending eigenvalues (b, p) and the eigenvectors (b, p, p) of symmetric matrices.

    Two parameters take one Jacobi rotation (Golub and Van Loan, Matrix Computations, 8.5), of all matrices at
    once: LAPACK needs nine times as long for a thousand of them."""
    if H.shape[1] != 2:
        return xp.linalg.eigh(H)
    a, b, c = H[:, 0, 0], H[:, 0, 1], H[:, 1, 1]
    with quiet():
        ratio = (c - a) / (2 * b)
        tangent = xp.copysign(1 / (abs(ratio) + xp.sqrt(1 + ratio * ratio)), ratio)
    tangent = xp.where(b == 0, 0.0, tangent)
    cosine = 1 / xp.sqrt(1 + tangent * tangent)
    sine, w = tangent * cosine, xp.stack([a - tangent * b, c + tangent * b], 1)
    Q = xp.stack([xp.stack([cosine, sine], 1), xp.stack([-sine, cosine], 1)], 1)
    swapped = w[:, :1] > w[:, 1:]
    return xp.where(swapped, w[:, ::-1], w), xp.where(swapped[:, :, None], Q[:, :, ::-1], Q)


class BatchState:
    """The unfinished problems.

    `value_and_grad(X, which)` returns values (b,) and gradients (p, b) at the points X (p, b) of the problems
    with the numbers `which`."""

    rows: tuple[str, ...] = ("which", "x", "f", "g", "status", "iterations", "evaluations")
    own: tuple[str, ...] = ()  # the rows of one method
    matrix: str  # the matrix that is returned

    def __init__(self, value_and_grad: Callable, X, xp: ModuleType, gtol: float, maxiter: int):
        self.value_and_grad = value_and_grad
        self.xp = xp
        self.gtol = gtol
        self.maxiter = maxiter
        self.dtype = X.dtype
        self.eps = float(np.finfo(X.dtype).eps)
        p, n = X.shape
        self.which = xp.arange(n)
        self.x = X.T.astype(np.float64)
        self.status = xp.full(n, RUNNING)
        self.iterations, self.evaluations = xp.zeros(n, int), xp.zeros(n, int)
        self.f, self.g = self.evaluated(self.x)
        self.status[~self.finite(self.f, self.g)] = START

    def evaluated(self, x) -> tuple:
        """Return value and gradient, by rows."""
        self.evaluations += self.running
        f, g = self.value_and_grad(self.xp.ascontiguousarray(x.T, dtype=self.dtype), self.which)
        return f.astype(np.float64), g.T.astype(np.float64)

    def rounded(self, x):
        """Round the points to the dtype in which the function is computed."""
        return x.astype(self.dtype).astype(np.float64)

    def finite(self, f, g):
        return self.xp.isfinite(f) & self.xp.isfinite(g).all(axis=1)

    @property
    def running(self):
        return self.status == RUNNING

    @property
    def flat(self):
        """Return whether rounding can hide the descent.

        It cannot if the gradient times x is as large as the value; then f decreases without bound."""
        return row_maximum(self.g * self.x) <= FLAT_GRADIENT * self.xp.maximum(1.0, abs(self.f))

    def put(self, at, **values) -> None:
        """Replace the rows `at` of the arrays of these names."""
        for name, new in values.items():
            old = getattr(self, name)
            setattr(self, name, self.xp.where(at[:, None] if old.ndim > 1 else at, new, old))

    def end(self, which, status: int) -> None:
        which = which & self.flat if status == ROUNDING else which
        self.status[self.running & which] = status

    def solved(self) -> dict[str, Any]:
        """Run all problems and return the last point of each."""
        found = {name: getattr(self, name).copy() for name in (*self.rows, self.matrix)}
        while True:
            done = ~self.running
            finished = int(done.sum())
            if finished and finished >= FINISHED * len(done):
                for name in found:
                    found[name][self.which[done]] = getattr(self, name)[done]
                for name in (*self.rows, *self.own):
                    setattr(self, name, getattr(self, name)[~done])
            if not len(self.which):
                return found
            with quiet():
                self.advance()

    def advance(self) -> None:
        """Evaluate every running problem once."""
        raise NotImplementedError


class Newton(BatchState):
    """Newton's method in trust regions, with the eigenvalues of exact Hessians (Moré and Sorensen).

    The step minimises the quadratic model within a ball. With H = Q diag(w) Q' and a = Q' g, the step is -Q a
    / (w + shift). The shift is 0 if H is positive definite and the step is short enough. Otherwise the shift
    gives the step the length of the radius.

    The parameters are scaled by D, so their units do not matter. D holds the square roots of the diagonal of
    the first |H|, divided by their geometric mean."""

    own = ("H", "w", "Q", "radius", "D", "bent", "is_bent")
    matrix = "H"

    def __init__(
        self, value_and_grad: Callable, hessian: Callable, X, xp: ModuleType, gtol: float, maxiter: int
    ):
        super().__init__(value_and_grad, X, xp, gtol, maxiter)
        self.hessian = hessian
        n, p = self.x.shape
        self.H = xp.broadcast_to(xp.eye(p), (n, p, p)).copy()
        self.w, self.Q, self.D = xp.ones((n, p)), self.H.copy(), xp.ones((n, p))
        with quiet():
            self.end(~self.curved(self.x, self.running), CURVATURE)
            self.measure()
            self.bent, self.is_bent = xp.zeros((n, p)), xp.zeros(n, bool)
            self.radius = xp.maximum(1.0, 0.1 * xp.sqrt(row_dot(self.D * self.x, self.D * self.x)))
            self.look()

    def measure(self) -> None:
        """Set D, and the eigenvalues in its units."""
        xp = self.xp
        size = xp.sqrt((self.Q**2 * abs(self.w)[:, None, :]).sum(axis=2))
        size = xp.maximum(size, 1e-6 * size.max(axis=1, keepdims=True))
        D = size / xp.exp(xp.log(size).mean(axis=1, keepdims=True))
        self.D = xp.where(xp.isfinite(D), D, 1.0)
        self.w, self.Q = symmetric_eigenpairs(self.H / (self.D[:, :, None] * self.D[:, None, :]), xp)

    def curved(self, x, at):
        """Compute the Hessians at x of the rows `at`; return for every row that its Hessian is finite."""
        xp = self.xp
        chosen = xp.flatnonzero(at)
        if not len(chosen):
            return ~at
        every = 2 * len(chosen) > len(at)  # for most rows compute all, whose data are contiguous
        of, which = (x, self.which) if every else (x[chosen], self.which[chosen])
        H = self.hessian(xp.ascontiguousarray(of.T, dtype=self.dtype), which).astype(np.float64)
        H = H[chosen] if every else H
        good = xp.isfinite(H).all(axis=(1, 2))
        kept = chosen[good]
        if len(kept):
            H = 0.5 * (H[good] + H[good].mT)
            self.H[kept] = H
            D = self.D[kept]
            self.w[kept], self.Q[kept] = symmetric_eigenpairs(H / (D[:, :, None] * D[:, None, :]), xp)
        fine = xp.ones(len(at), bool)
        fine[chosen] = good
        return fine

    def look(self) -> None:
        """End at minima; go on where the gradient is zero and the curvature negative."""
        scale = row_maximum(self.w)
        self.end((row_maximum(self.g) <= self.gtol) & (self.w[:, 0] >= -1e-8 * scale), GRADIENT)

    def step(self) -> tuple:
        """Return (step, expected gain, shift)."""
        xp, w, radius = self.xp, self.w, self.radius
        a = batched_matvec(self.Q.mT, self.g / self.D)
        scale = row_maximum(w)
        least = w.shape[1] * self.eps * scale + 1e-300
        shift = xp.maximum(least - w[:, 0], 0.0)
        first = xp.maximum((abs(a) / radius[:, None] - w).max(axis=1), shift)
        s = -a / (w + shift[:, None])
        outside = row_dot(s, s) > radius**2
        shift = xp.where(outside, first, shift)
        # Newton's method on 1 / length = 1 / radius, which approaches the root from the left
        for _ in range(10):
            d = w + shift[:, None]
            s = -a / d
            size = row_dot(s, s)
            length = xp.sqrt(size)
            more = size / row_dot(s, s / d) * (length - radius) / radius
            shift = xp.where(outside & (more > 0), shift + more, shift)
        s = -a / (w + shift[:, None])
        missing = radius**2 - row_dot(s, s)
        # the hard case: go to the edge along the lowest eigenvector
        along = (w[:, 0] < -least) & (missing > 0)
        s[:, 0] += xp.where(along, xp.where(s[:, 0] < 0, -1.0, 1.0) * xp.sqrt(xp.maximum(missing, 0.0)), 0.0)
        gain = -row_dot(s, a + 0.5 * w * s)
        return batched_matvec(self.Q, s) / self.D, gain, shift

    def bend(self, s, shift, f, g) -> tuple:
        """Return the step s (in units of D) bent along a curved valley, and the value expected there.

        A straight step along a curved valley ends on its wall. The gradient there is g + H s + r. The
        remainder r is half the third derivative applied to s twice. The step s - (H + shift)^-1 r follows the
        valley to second order."""
        h = g / self.D
        r = batched_matvec(self.Q.mT, h - self.g / self.D) - self.w * batched_matvec(self.Q.mT, s)
        c = -r / (self.w + shift[:, None])
        c = self.xp.where(abs(c) <= BEND * self.xp.sqrt(row_dot(s, s))[:, None], c, 0.0)
        expected = f + row_dot(batched_matvec(self.Q.mT, h) + 0.5 * self.w * c, c)
        return batched_matvec(self.Q, c), expected

    def advance(self) -> None:
        xp, running, bent = self.xp, self.running, self.is_bent
        s, gain, shift = self.step()
        free = shift <= 1e-6 * row_maximum(self.w)
        x = self.rounded(self.x + xp.where(running[:, None], xp.where(bent[:, None], self.bent, s), 0.0))
        s = self.D * (x - self.x)
        length = xp.sqrt(row_dot(s, s))
        f, g = self.evaluated(x)
        finite = self.finite(f, g)
        size = abs(self.f)
        noise = 10 * self.eps * size
        ratio = xp.where(finite, (self.f - f + noise) / (gain + noise), -1.0)
        c, expected = self.bend(s, shift, f, g)
        again = (
            running
            & finite
            & ~bent
            & (ratio < POOR)
            & (self.f - expected > HOPE * gain)
            & (gain > SMALL_GAIN * size)
        )
        self.is_bent, self.bent = again, (s + c) / self.D
        calmer = (row_maximum(g) < 0.5 * row_maximum(self.g)) & (f <= self.f + SMALL_GAIN * size)
        taken = (
            running
            & finite
            & ~again
            & ((ratio > 1e-4) & (gain > noise) | free & (gain <= SMALL_GAIN * size) & calmer)
        )
        fine = self.curved(x, taken)
        taken &= fine
        ratio = xp.where(taken, ratio, -1.0)
        edge = length > 0.9 * self.radius
        radius = xp.where(
            ratio < 0.25, 0.25 * length, xp.where((ratio > 0.75) & edge, 2 * self.radius, self.radius)
        )
        self.put(~again, radius=radius)
        self.put(taken, x=x, g=g, f=f)
        self.iterations += running
        self.look()
        failed = ~taken & ~again
        self.end(failed & free & (gain <= LEAST_GAIN * size), ROUNDING)
        lost = failed & (self.radius <= self.eps * (row_maximum(self.D * self.x) + 1e-300))
        self.end(lost & (row_maximum(self.g) <= CALM * xp.maximum(1.0, size)), ROUNDING)
        self.end(lost, STUCK)
        self.end(self.iterations >= self.maxiter, LIMIT)


class Bfgs(BatchState):
    """BFGS on the inverse Hessian; each line search meets Wolfe's conditions in a bracket of its own."""

    own = ("B", "d", "slope", "t", "low", "high", "tries", "fresh", "idle", "lowest", "calmest")
    matrix = "B"

    def __init__(self, value_and_grad: Callable, X, xp: ModuleType, gtol: float, maxiter: int):
        super().__init__(value_and_grad, X, xp, gtol, maxiter)
        n, p = self.x.shape
        self.B = xp.broadcast_to(xp.eye(p), (n, p, p)).copy()
        self.fresh = xp.ones(n, bool)  # B is still the identity
        self.d, self.slope, self.t = xp.zeros((n, p)), xp.zeros(n), xp.zeros(n)
        self.low = xp.zeros(n)
        self.high = xp.zeros(n)
        self.tries = xp.zeros(n, int)
        self.idle = xp.zeros(n, int)  # consecutive steps with neither a lower value nor half the gradient
        self.lowest, self.calmest = self.f.copy(), row_maximum(self.g)
        with quiet():
            self.search(self.running)

    def search(self, at) -> None:
        """Start new line searches for the rows `at`, or end them."""
        xp = self.xp
        self.end(at & (row_maximum(self.g) <= self.gtol), GRADIENT)
        d = -batched_matvec(self.B, self.g)
        slope = row_dot(d, self.g)
        lost = at & ~(slope < 0)
        self.forget(lost)
        d = xp.where(lost[:, None], -self.g, d)
        slope = xp.where(lost, -row_dot(self.g, self.g), slope)
        first = xp.minimum(1.0, 1.0 / xp.sqrt(row_dot(self.g, self.g)))
        start = xp.where(self.fresh, first, 1.0)
        self.put(at, d=d, slope=slope, t=start, low=0.0, high=np.inf, tries=0)
        self.end(at & ~self.fresh & (-self.slope <= 1e-3 * self.eps * abs(self.f)), ROUNDING)

    def forget(self, at) -> None:
        self.B[at] = self.xp.eye(self.x.shape[1])
        self.fresh = self.fresh | at

    def advance(self) -> None:
        xp, running = self.xp, self.running
        x = self.rounded(self.x + xp.where(running[:, None], self.t[:, None] * self.d, 0.0))
        f, g = self.evaluated(x)
        finite = self.finite(f, g)
        size = abs(self.f)
        low_enough = finite & (f <= self.f + 1e-4 * self.t * self.slope + 10 * self.eps * size)
        flat_enough = row_dot(g, self.d) >= 0.9 * self.slope
        self.tries += running
        taken = running & low_enough & (flat_enough | (self.tries >= 12) & (f < self.f))
        self.update(taken, x - self.x, g - self.g)
        self.bracket(running & ~taken, low_enough, f, finite)
        lower, calmer = taken & (f < self.lowest), taken & (row_maximum(g) < 0.5 * self.calmest)
        self.put(lower, lowest=f)
        self.put(calmer, calmest=row_maximum(g))
        self.idle = xp.where(lower | calmer, 0, self.idle + taken)
        self.put(taken, x=x, g=g, f=f)
        self.iterations += taken
        little = -self.slope <= LEAST_GAIN * size
        failed = running & ~taken & ((self.tries >= 40) | little & (self.tries >= 8))
        small = row_maximum(self.g) <= CALM * xp.maximum(1.0, size)
        lost = failed & self.fresh | (self.idle >= 3)
        self.end(failed & little | lost & small, ROUNDING)
        self.end(lost, STUCK)
        self.forget(failed)
        self.search(self.running & (taken | failed))
        self.end(self.iterations >= self.maxiter, LIMIT)

    def bracket(self, at, low_enough, f, finite) -> None:
        """Choose the next trial of a line search.

        Without a bracket it lies further out. In a bracket it is the minimum of a parabola, or the middle."""
        xp, t = self.xp, self.t
        self.put(at & ~low_enough, high=t)
        self.put(at & low_enough, low=t)
        width = self.high - self.low
        parabola = -self.slope * t * t / (2 * (f - self.f - self.slope * t))
        inside = finite & (self.low == 0) & (parabola > 0.1 * width) & (parabola < 0.5 * width)
        within = xp.where(inside, parabola, self.low + 0.5 * width)
        self.put(at, t=xp.where(xp.isinf(self.high), 3 * t, within))

    def update(self, taken, s, y) -> None:
        """Update B after the steps s, which changed the gradients by y; the first update scales the
        identity."""
        xp = self.xp
        sy, yy = row_dot(s, y), row_dot(y, y)
        at = xp.flatnonzero(taken & (sy > self.eps * xp.sqrt(yy * row_dot(s, s))))
        if not len(at):
            return
        s, y, sy, yy = s[at], y[at], sy[at], yy[at]
        B = xp.where(self.fresh[at][:, None, None], (sy / yy)[:, None, None] * xp.eye(s.shape[1]), self.B[at])
        By = batched_matvec(B, y)
        cross = By[:, :, None] * s[:, None, :] / sy[:, None, None]
        outer = s[:, :, None] * s[:, None, :] * ((1 + row_dot(y, By) / sy) / sy)[:, None, None]
        self.B[at] = B - cross - cross.mT + outer
        self.fresh[at] = False
