"""Maximum likelihood: an optimiser of SciPy with exact derivatives, then Newton steps to the last digit, then
standard errors from the exact observed information."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from .. import numpy as np
from .._transforms import jacobian
from .._tree import Const
from ..errors import ArgumentError, ConvergenceError, DataError
from ..optimize import Objective, run, to_host
from ._constraints import Constraint, unconstrained
from ._filter import loglik
from ._model import LinearGaussian, Observations

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None

GRADIENT = 1e-9  # wanted of the gradient in the unconstrained parameters, for a log-likelihood up to 1000 in size
FLAT = 1e-5  # second derivative below which a constrained parameter has run into its bound


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
    at_bound: list[str] = field(default_factory=list)

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


def fit(
    build: Callable[[Any], LinearGaussian],
    y: Any,
    start: Any,
    constraints: Any = None,
    method: str = "trust-exact",
    *,
    hess: str = "auto",
    options: Mapping[str, Any] | None = None,
    progress: bool | str = "auto",
    joseph: bool = False,
) -> FitResult:
    """Maximise the log-likelihood of `build(params)` given y (n,) or (n, p) over the parameters.

    start is a dict of names to numbers or arrays, or one vector; params has the same form.  constraints is
    one `Constraint` for all, a dict of some of the names, or for a vector a list with one for each element;
    what is not named is free.  method, hess and options go to `tapegrad.optimize.minimize`.  The optimiser is
    followed by Newton steps until the gradient in the unconstrained parameters is below 1e-9 (1e-12 of the
    log-likelihood if that is larger).  progress shows a bar (package tqdm): always, never, or with 'auto' in
    a terminal after two seconds.

    Raises `ArgumentError` if a start violates its constraint or the log-likelihood is not finite there,
    `ConvergenceError` if no maximum is reached, and what `loglik` raises.

    >>> from tapegrad import statespace as ss
    >>> y = [1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 4.0]
    >>> r = ss.fit(lambda p: ss.local_level(p["a"], p["b"]), y, {"a": 1.0, "b": 1.0}, ss.positive())
    >>> r.estimates.round(6), r.standard_errors.round(6)
    (array([0.714048, 0.616082]), array([0.508658, 0.568061]))
    """
    data = y if isinstance(y, Observations) else Observations(y)
    if not data.count:
        raise DataError(f"fit: all {data.steps} observations are missing (nan); there is nothing to fit")
    parameters = _Parameters(start, constraints)
    u = data.xp.asarray(parameters.start)
    first = float(to_host(loglik(build(parameters.tree(u)), data, joseph)))
    if not numpy.isfinite(first):
        raise ArgumentError(f"fit: the log-likelihood at start = {start} is {first}; start elsewhere")

    def negative_loglik(u: Any, build: Callable, data: Observations) -> Any:
        return -loglik(build(parameters.tree(u)), data, joseph)

    objective = Objective(negative_loglik, u, (build, Const(data)))
    with _Bar(progress, method) as bar:
        objective.watch = bar
        found = run(objective, method, hess, **({"options": dict(options)} if options else {}))
        u, value, gradient, H, steps = _polished(objective, found.flat, found)
    if not H.any():
        raise DataError(f"fit: {data.count} observed values do not determine the parameters: the log-likelihood does not depend on them")
    return _result(parameters, build, data, method, found, objective, u, value, gradient, H, steps)


def _polished(objective: Objective, u: numpy.ndarray, found: Any) -> tuple[numpy.ndarray, float, numpy.ndarray, numpy.ndarray, int]:
    """Newton steps from where the optimiser stopped.  A step is halved until the gradient falls; where none
    does, rounding is reached or this is no maximum."""
    value, gradient = objective(u)
    wanted = GRADIENT * max(1.0, abs(value) / 1000)
    for taken in range(50):
        H = objective.hessian(u)
        size = abs(gradient).max()
        if size <= wanted:
            return u, value, gradient, H, taken
        if numpy.linalg.eigvalsh(H)[0] <= 0:
            break
        step = numpy.linalg.solve(H, gradient)
        for _ in range(10):
            new_value, new_gradient = objective(u - step)
            if numpy.isfinite(new_value) and abs(new_gradient).max() < size and new_value <= value + 1e-9 * abs(value):
                break
            step = step / 2
        else:
            break
        u, value, gradient = u - step, new_value, new_gradient
    raise ConvergenceError(
        f"fit: no maximum reached.  {found.get('message', '')}  Stopped after {found.get('nit', 0)} "
        f"iterations and {taken} Newton steps at unconstrained parameters {u}, log-likelihood {-value:.10g}, "
        f"where the largest entry of the gradient is {abs(gradient).max():.3g} (wanted {wanted:.1g}).  Start "
        "elsewhere, give options={'maxiter': ...}, or another method"
    )


def _result(
    parameters: "_Parameters",
    build: Callable[[Any], LinearGaussian],
    data: Observations,
    method: str,
    found: Any,
    objective: Objective,
    u: numpy.ndarray,
    value: float,
    gradient: numpy.ndarray,
    H: numpy.ndarray,
    steps: int,
) -> FitResult:
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
    placed = objective.place(u)
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
        model=build(parameters.tree(placed)),
        method=method,
        message=str(found.message),
        iterations=int(found.nit),
        newton_steps=steps,
        evaluations=objective.evaluations,
        hessians=objective.hessians,
        products=objective.products,
        gradient=float(abs(gradient).max()),
        unconstrained=u,
        at_bound=[name for name, stuck in zip(parameters.names, bound, strict=True) if stuck],
    )


class _Parameters:
    """Named blocks of parameters and their places in the unconstrained vector."""

    def __init__(self, start: Any, constraints: Any):
        self.keyed = isinstance(start, Mapping)
        blocks = dict(start) if self.keyed else _elements(start, constraints)
        if not blocks:
            raise ArgumentError(f"start = {start}: no parameters")
        if not self.keyed and isinstance(constraints, Sequence):
            constraints = dict(zip(blocks, constraints, strict=True))
        constraint = _assigned(blocks, constraints)
        self.blocks: list[tuple[str, int, tuple[int, ...], Constraint]] = []
        self.names: list[str] = []
        self.constraint_of: list[Constraint] = []
        free = []
        for name, x in blocks.items():
            x = to_host(x)
            if x.dtype.kind not in "iuf":
                raise ArgumentError(f"start of {name}: dtype {x.dtype}; wanted real numbers")
            x = x.astype(float)
            self.blocks.append((name, len(self.names), x.shape, constraint[name]))
            free.append(constraint[name].start(name, x).reshape(-1))
            self.names += [name + (f"[{', '.join(map(str, i))}]" if i else "") for i in numpy.ndindex(x.shape)]
            self.constraint_of += [constraint[name]] * x.size
        self.start = numpy.concatenate(free)

    def values(self, u: Any) -> dict[str, Any]:
        """The parameters themselves, block by block."""
        result = {}
        for name, at, shape, constraint in self.blocks:
            piece = u[at : at + int(numpy.prod(shape))].reshape(shape) if shape else u[at]
            result[name] = constraint.natural(piece)
        return result

    def tree(self, u: Any) -> Any:
        """In the form of `start`."""
        values = self.values(u)
        return values if self.keyed else np.stack(list(values.values()))

    def flat(self, u: Any) -> Any:
        return np.concatenate([x.reshape((-1,)) for x in self.values(u).values()])


def _elements(start: Any, constraints: Any) -> dict[str, Any]:
    """A vector of parameters as numbers named theta[i]."""
    vector = to_host(start)
    if vector.ndim != 1:
        raise ArgumentError(f"start: shape {vector.shape}; wanted a vector, or a dict of names to numbers or arrays")
    if isinstance(constraints, Sequence) and len(constraints) != vector.size:
        raise ArgumentError(f"constraints: {len(constraints)} for {vector.size} parameters; wanted one for each")
    if isinstance(constraints, Mapping):
        raise ArgumentError("constraints: a dict names parameters, so start must be a dict too")
    return {f"theta[{i}]": x for i, x in enumerate(vector)}


def _assigned(blocks: Mapping[str, Any], constraints: Any) -> dict[str, Constraint]:
    """The constraint of each block."""
    if constraints is None or isinstance(constraints, Constraint):
        return dict.fromkeys(blocks, constraints or unconstrained())
    if not isinstance(constraints, Mapping):
        raise ArgumentError("constraints: start is a dict, so wanted one constraint or a dict of them")
    for name in constraints:
        if name not in blocks:
            raise ArgumentError(f"constraints: {name!r} is not a parameter; start has {', '.join(blocks)}")
    return {name: constraints.get(name, unconstrained()) for name in blocks}


class _Bar:
    """A progress bar that counts evaluations and shows the log-likelihood."""

    def __init__(self, progress: bool | str, label: str):
        if progress not in (True, False, "auto"):
            raise ArgumentError(f"progress={progress!r}: wanted True, False or 'auto'")
        if progress is True and tqdm is None:
            raise ArgumentError("progress=True needs the package tqdm: pip install tqdm")
        self._bar = None
        if progress is not False and tqdm is not None:
            # disable=None: only in a terminal
            quiet = {"disable": None, "delay": 2.0} if progress == "auto" else {}
            self._bar = tqdm(desc=label, unit=" evaluations", leave=False, **quiet)

    def __call__(self, value: float) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(f"log-likelihood {-value:.6f}", refresh=False)
            self._bar.update()

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: Any) -> None:
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()
