"""What a fit found: estimates, their covariance, information criteria, tables."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy

from .._transforms import jacobian
from ..errors import ConvergenceError
from ..optimize import to_host
from ._model import LinearGaussian, Observations
from ._parameters import Parameters

FLAT = 1e-5  # second derivative below which a constrained parameter has run into its bound


@dataclass(frozen=True)
class Problem:
    """What was fitted: a model built from parameters, to data."""

    build: Callable[[Any], LinearGaussian]
    data: Observations
    parameters: Parameters
    joseph: bool = False


@dataclass(frozen=True)
class Stop:
    """Where the search came to rest: the free parameters u (k,), minus the log-likelihood with its gradient and its
    second derivatives there, and what it took."""

    u: numpy.ndarray
    value: float
    gradient: numpy.ndarray
    hessian: numpy.ndarray
    method: str
    message: str
    iterations: int
    newton_steps: int
    evaluations: int
    hessians: int
    products: int


@dataclass(frozen=True)
class FitResult:
    """A maximum of the likelihood.

    `params` has the form of `start`; `names`, `estimates` and `standard_errors` (k,), `covariance` and
    `correlation` (k, k) list the same parameters element by element.  The covariance is the inverse of the
    observed information, exact second derivatives of the log-likelihood in the parameters themselves.  A
    parameter that has run into the bound of its constraint is named in `at_bound`; its standard error is nan,
    and the others are as if it were known.

    `iterations` are the optimiser's, `newton_steps` follow; `evaluations` (of value and gradient),
    `hessians`, `products` (Hessian times vector) count both.  `gradient` is the largest entry in the
    unconstrained parameters `unconstrained`.
    """

    params: Any
    names: list[str]
    estimates: numpy.ndarray
    standard_errors: numpy.ndarray
    covariance: numpy.ndarray
    correlation: numpy.ndarray
    loglik: float
    aic: float
    bic: float
    observations: int
    model: LinearGaussian
    method: str
    message: str
    iterations: int
    newton_steps: int
    evaluations: int
    hessians: int
    products: int
    gradient: float
    unconstrained: numpy.ndarray
    at_bound: list[str]
    problem: Problem = field(repr=False)
    stop: Stop = field(repr=False)

    def summary(self) -> str:
        """The result as a table of text."""
        width = max(9, *map(len, self.names))
        lines = [
            f"Maximum likelihood, {self.method}",
            f"log-likelihood {self.loglik:.10f}   AIC {self.aic:.6f}   BIC {self.bic:.6f}   observations {self.observations}",
            f"iterations {self.iterations} + {self.newton_steps} Newton   evaluations {self.evaluations}   "
            f"Hessians {self.hessians}   products {self.products}   gradient {self.gradient:.1e}",
            "",
            f"{'parameter':<{width}}  {'estimate':>18}  {'std. error':>16}",
        ]
        rows = zip(self.names, self.estimates, self.standard_errors, strict=True)
        lines += [f"{name:<{width}}  {x:>#18.12g}  {e:>#16.10g}" for name, x, e in rows]
        if self.at_bound:
            lines += ["", f"at the bound of the constraint, no standard error: {', '.join(self.at_bound)}"]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()


def result(problem: Problem, stop: Stop) -> FitResult:
    """The result of a search that has come to rest at a maximum; `ConvergenceError` if it is a saddle point."""
    parameters, data, u, value, H = problem.parameters, problem.data, stop.u, stop.value, stop.hessian
    k = u.size
    bound = numpy.array([c.name != "unconstrained()" for c in parameters.constraint_of]) & (numpy.diag(H) < FLAT)
    free = numpy.flatnonzero(~bound)
    inner = H[numpy.ix_(free, free)]
    if free.size and numpy.linalg.eigvalsh(inner)[0] <= 0:
        raise ConvergenceError(
            f"fit: stopped at a saddle point, unconstrained parameters {u}, log-likelihood {-value:.10g}; start elsewhere"
        )
    # At the maximum the gradient is zero, so the observed information in the parameters themselves is exactly
    # J^-T H J^-1, with J the derivative of the constraints: its inverse is J H^-1 J'.
    placed = data.xp.asarray(u)
    J = to_host(jacobian(parameters.flat)(placed))[:, free]
    covariance = J @ numpy.linalg.solve(inner, J.T)
    covariance = (covariance + covariance.T) / 2
    covariance[bound, :] = covariance[:, bound] = numpy.nan
    errors = numpy.sqrt(numpy.diag(covariance))
    return FitResult(
        params=parameters.tree(placed),
        names=parameters.names,
        estimates=to_host(parameters.flat(placed)),
        standard_errors=errors,
        covariance=covariance,
        correlation=covariance / numpy.outer(errors, errors),
        loglik=-value,
        aic=2 * value + 2 * k,
        bic=2 * value + k * float(numpy.log(data.count)),
        observations=data.count,
        model=problem.build(parameters.tree(placed)),
        method=stop.method,
        message=stop.message,
        iterations=stop.iterations,
        newton_steps=stop.newton_steps,
        evaluations=stop.evaluations,
        hessians=stop.hessians,
        products=stop.products,
        gradient=float(abs(stop.gradient).max()),
        unconstrained=u,
        at_bound=[name for name, stuck in zip(parameters.names, bound, strict=True) if stuck],
        problem=problem,
        stop=stop,
    )
