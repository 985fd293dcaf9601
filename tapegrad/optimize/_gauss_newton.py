"""Gauss-Newton with damping for one large problem: a sparse Jacobian, and a factorisation of J'J.

SciPy's `least_squares` solves with a sparse Jacobian by LSMR, whose steps are not exact. The damping is that
of `_marquardt`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from numpy import ndarray
from scipy.optimize import OptimizeResult

from .._core.errors import ArgumentError, NotPositiveDefiniteError
from .._core.registry import load
from ._batched import GRADIENT, LIMIT, LOST, ROUNDING, SMALL_GAIN, STUCK, TEXTS
from ._marquardt import FIRST_DAMPING, MOST_DAMPING, NOISE, SHORT_STEP, calm, lost
from ._residual_kernels import LOSSES, checked_loss, weights

METHOD = "gauss-newton"
EPS = float(np.finfo(float).eps)


class NormalEquations:
    """Cost, gradient and Gauss-Newton matrix at a point."""

    def __init__(self, values: Callable, jacobian: Callable, phi: Callable, x: ndarray):
        self.x, self.r, self.jacobian = x, values(x), jacobian
        with np.errstate(all="ignore"):  # a trial point may be far away
            cost, self.slope, self.curvature = weights(phi, self.r, np.ones(self.r.shape))
        self.cost = float(cost) if np.isfinite(self.r).all() else np.inf

    def differentiate(self) -> None:
        """Compute what needs the Jacobian."""
        self.J = self.jacobian(self.x)
        scaled = scipy.sparse.diags_array(np.sqrt(self.curvature)) @ self.J
        self.A, self.g = (scaled.T @ scaled).tocsr(), self.J.T @ self.slope
        self.diagonal = self.A.diagonal()
        size = np.sqrt(2 * self.cost * self.diagonal)
        self.cosine = float(np.max(abs(self.g) / np.where(size > 0, size, np.inf), initial=0.0))

    def calm(self) -> bool:
        """Return whether rounding hides what the cost can gain along any one parameter."""
        return bool(calm(self.cost, self.cosine, self.diagonal, self.x, EPS))


def sparse_gauss_newton(
    values: Callable, jacobian: Callable, start: ndarray, phi: Callable, gtol: float, maxiter: int
) -> OptimizeResult:
    """Minimise the sum of phi over residuals; `values(x)` returns these, `jacobian(x)` their Jacobian."""
    cholesky = load("tapegrad.sparse._cholesky").cholesky
    at = NormalEquations(values, jacobian, phi, start)
    at.differentiate()
    damping = FIRST_DAMPING
    growth = 2.0
    D = at.diagonal
    evaluations = 1
    jacobians = 1
    status = LIMIT
    steps = 0
    if at.cosine <= gtol or at.cost == 0:
        status, maxiter = GRADIENT, 0
    while steps < maxiter:
        steps += 1
        H = at.A + scipy.sparse.diags_array(damping * np.where(D > 0, D, 1.0))
        try:
            s = cholesky(H).solve(-at.g)
        except NotPositiveDefiniteError:
            s = np.zeros_like(at.x)
        new = NormalEquations(values, jacobian, phi, at.x + s)
        evaluations += 1
        expected = -float(s @ (at.g + 0.5 * (at.A @ s)))
        gain = at.cost - new.cost
        noise = NOISE * EPS * at.cost
        short = damping < 1 and D @ s**2 <= SHORT_STEP**2 * (D @ new.x**2)
        hidden = expected <= SMALL_GAIN * at.cost and new.cost <= (1 + SMALL_GAIN) * at.cost
        taken = bool(gain > max(1e-4 * expected, noise))
        if taken or hidden:
            new.differentiate()
            jacobians += 1
            taken = taken or new.cosine < at.cosine
        if taken:
            at, D = new, np.maximum(D, new.diagonal)
            damping *= 1 / 3 if hidden else max(1 / 3, 1 - (2 * gain / expected - 1) ** 3)
            growth = 2.0
        else:
            damping, growth = damping * growth, 2 * growth
        if at.cosine <= gtol or at.cost == 0:
            status = LOST if at.cost and lost(at.diagonal, D, 0.0).any() else GRADIENT
        elif (short or not taken and damping >= 1) and at.calm():
            status = ROUNDING
        elif not taken and damping >= MOST_DAMPING:
            status = LOST if lost(at.diagonal, D, EPS).any() else STUCK
        else:
            continue
        break
    return OptimizeResult(
        x=at.x, cost=at.cost, fun=at.r, jac=at.J, grad=at.g, optimality=float(np.max(abs(at.g), initial=0.0)),
        nfev=evaluations,
        njev=jacobians, nit=steps, status=status, success=status in (GRADIENT, ROUNDING),
        message=TEXTS[status],
        active_mask=np.zeros(at.x.size, int),
    )  # fmt: skip


def by_gauss_newton(
    values: Callable, jacobian: Callable, start: ndarray, bounds, options: dict
) -> OptimizeResult:
    """Run `sparse_gauss_newton` with the options of `least_squares`."""
    call = f"least_squares with method={METHOD!r}"
    given: dict[str, Any] = {"gtol": 1e-10, "max_nfev": 500, "loss": "linear", "f_scale": 1.0}
    for name in options:
        if name not in given:
            raise ArgumentError(f"{call}: {name}= is no option; there are {', '.join(given)}")
    given.update(options)
    low, high = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds
    if np.isfinite(low).any() or np.isfinite(high).any():
        raise ArgumentError(f"{call} takes no bounds; use method='trf'")
    if given["loss"] not in LOSSES:
        raise ArgumentError(f"{call}: loss={given['loss']!r}; it is one of {', '.join(LOSSES)}")
    phi = checked_loss(call, given["loss"], given["f_scale"], given["gtol"], given["max_nfev"])
    return sparse_gauss_newton(values, jacobian, start, phi, given["gtol"], given["max_nfev"])
