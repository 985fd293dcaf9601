"""Extended and unscented Kalman filters: non-linear models by the model's own functions.

    x[t+1] = f(x[t], params, t) + eta[t],   eta[t] ~ N(0, Q)        transition
    y[t]   = h(x[t], params, t) + eps[t],   eps[t] ~ N(0, R)        observation

The extended filter takes f and h for linear about the last estimate; their Jacobians are tapegrad's.  The
unscented filter carries 2 m + 1 points of the state's distribution through f and h (S. J. Julier and J. K.
Uhlmann, Unscented filtering and nonlinear estimation, Proceedings of the IEEE 92, 2004).

One step is one function, `StepFunctions`, which runs on arrays, tracked or not, and on the symbols of a
kernel.  A component of y that is missing is taken out of it: its innovation and its covariance with the state
are 0, its variance is 1."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..._core.errors import ArgumentError, NotPositiveDefiniteError, ShapeError
from ..._core.registry import SHADOW_MAKERS
from ..._transforms.jacobian import jacobian
from ..._transforms.tape import value
from ...kernels.generated.kernel import Recursion, recursion
from ...kernels.library.observation import joint_update, log_determinant
from ...kernels.trace.surroundings import rebuilt_with
from .._model import Start
from .._observations import as_observations
from .arrays import FilterResult

ADVICE = "A covariance, of the observation or of the state, is not positive definite, or the model's functions gave nan"


@dataclass(frozen=True)
class Nonlinear:
    """A non-linear model and its filter, made by `extended` or `unscented`.

    See Also
    --------
    extended, unscented : Make it, with examples.
    """

    transition: Callable
    observation: Callable
    transition_cov: Any
    observation_cov: Any
    start: Any
    weights: tuple | None = None  # alpha, beta, kappa of an unscented filter

    def loglik(self, params: Any, y: Any) -> Any:
        """Compute the approximate log-likelihood of y, of shape (n,) or (n, p), nan where missing.

        It is differentiable with respect to params and y.
        """
        total = 0.0
        for _, _, _, _, term in self._steps(params, y):
            total = total + term
        return total

    def filter(self, params: Any, y: Any) -> FilterResult:
        """Compute predicted and filtered means and covariances, innovations and log-likelihood terms.

        The result is a `FilterResult`.
        """
        data = as_observations(y)
        before, after, innovations, spread, terms = zip(*self._steps(params, data), strict=True)
        xp = data.xp
        gaps = xp.isnan(value(data.raw))
        loglik_terms = np.stack(terms)
        return FilterResult(
            predicted_mean=np.stack([x for x, _ in before]),
            predicted_cov=np.stack([P for _, P in before]),
            filtered_mean=np.stack([x for x, _ in after]),
            filtered_cov=np.stack([P for _, P in after]),
            innovations=np.where(gaps, np.nan, np.stack(innovations)),
            innovation_cov=np.stack(spread),
            loglik_terms=loglik_terms,
            loglik=loglik_terms.sum(),
            diffuse_steps=0,
            predicted_diffuse_cov=None,
        )

    def kernel(self) -> Recursion:
        """Make the log-likelihood a kernel for many parameter vectors, ``k(theta, data)``.

        theta is (p, B), or a dict of arrays (..., B). Data are (n,), or y.T of shape (p, n) if several
        numbers are observed. ``final`` of the kernel is (mean, covariance, steps) after the last step.

        Examples
        --------
        >>> import numpy as np
        >>> from tapegrad import statespace as ss
        >>> model = ss.extended(lambda x, p, t: p[0] * np.sin(x), lambda x, p, t: x, 0.1, 0.2, (np.zeros(1), 1.0))
        >>> model.kernel()(np.array([[0.5, 0.9]]), np.array([1.0, 0.2, 0.7])).round(6)
        array([-2.639521, -2.669987])
        """
        step, begin, start = StepFunctions(self), self._begin, self.start
        update, predict = step.update, step.predict
        start_of = rebuilt_with(lambda theta: (*begin(theta, np, start), 0.0), self.observation)

        def one(carry: tuple, theta, y) -> tuple:
            x, P, t = carry
            y = np.reshape(y, (-1,))
            _, (x, P), _, _, term = update(x, P, y, np.isnan(y), theta, t)
            x, P = predict(x, P, theta, t)
            return (x, P, t + 1.0), term

        rebuilt_with(one, self.observation).__name__ = getattr(self.observation, "__name__", "filter")
        return recursion(start_of, one, missing="step")

    def _begin(self, params, xp, start) -> tuple:
        """Return mean (m,) and covariance (m, m) of the first state."""
        given = start(params) if callable(start) else start
        if isinstance(given, Start):
            if np.any(given.diffuse) or given.stationary or given.predict_first:
                raise ArgumentError(
                    "a non-linear filter starts from a mean and a covariance: Start(mean, cov), neither "
                    "diffuse nor stationary"
                )
            given = given.mean, given.cov
        if not isinstance(given, tuple) or len(given) != 2:
            raise ArgumentError(
                "start: wanted (mean, cov), a Start of these, or a function of the parameters that gives "
                "the pair"
            )
        mean = vector(given[0])
        return mean, covariance("start: cov", given[1], len(mean), xp)

    def _steps(self, params, y):
        """Yield (mean, covariance) before and after each observation, the innovation, its covariance, the
        term."""
        data = as_observations(y)
        step, xp = StepFunctions(self, data.xp), data.xp
        x, P = self._begin(params, xp, self.start)
        for t in range(data.steps):
            missing = None
            if len(data.rows[t]) < data.width:
                missing = np.ones(data.width, bool)
                missing[data.rows[t]] = False
                missing = xp.asarray(missing)
            try:
                found = step.update(x, P, data.values[t], missing, params, t)
                finite = xp is not np or (
                    np.isfinite(value(found[4])) and np.isfinite(value(found[1][0])).all()
                )
                x, P = step.predict(*found[1], params, t) if finite and t + 1 < data.steps else found[1]
            except np.linalg.LinAlgError as error:
                raise NotPositiveDefiniteError(f"step {t} of the filter: {error}. {ADVICE}") from error
            if not finite:
                raise NotPositiveDefiniteError(f"step {t} of the filter is not finite. {ADVICE}")
            yield found


# A transform that follows captured arrays follows those of the model's functions, too.
SHADOW_MAKERS[Nonlinear] = lambda shadow, x: Nonlinear(*[shadow(getattr(x, f.name)) for f in fields(x)])


class StepFunctions:
    """The two halves of a step, as functions that can become a kernel."""

    def __init__(self, model: Nonlinear, xp=np):
        f = model.transition
        h = model.observation
        Q = model.transition_cov
        R = model.observation_cov
        weights = model.weights
        moments = extended_moments if weights is None else unscented_moments(*weights)

        @rebuilt_with
        def noise(name: str, given, k: int, params, t):
            return covariance(name, given(params, t) if callable(given) else given, k, xp)

        def update(x, P, y, missing, params, t) -> tuple:
            expected, S, C = moments(h, x, P, params, t)
            check_shape("observation", len(expected), len(y), "numbers are observed")
            S = S + noise("observation_cov", R, len(y), params, t)
            v, spread, seen = y - expected, S, None
            if missing is not None:
                seen, one = np.logical_not(missing), missing[:, None]
                v = np.where(missing, 0.0, np.where(missing, 0.0, y) - expected)
                C = np.where(missing, 0.0, C)
                S = np.where(one | missing, xp.eye(len(y)), S)
            mean, after, L, z = joint_update(x, P, C.T, S, v)
            term = -0.5 * (log_determinant(L, seen) + (z * z).sum())
            return (x, P), (mean, 0.5 * (after + after.T)), y - expected, spread, term

        def predict(x, P, params, t) -> tuple:
            mean, cov, _ = moments(f, x, P, params, t)
            check_shape("transition", len(mean), len(x), "states stand in start")
            cov = cov + noise("transition_cov", Q, len(x), params, t)
            return mean, 0.5 * (cov + cov.T)

        self.update, self.predict = rebuilt_with(update, h), rebuilt_with(predict, f)


def extended_moments(g: Callable, x, P, params, t) -> tuple:
    """Return mean and covariance of g(x, params, t), and the covariance of x with it, by linearisation."""
    J = jacobian(image)(x, g, params, t)  # g is an argument, so that its captured objects are followed
    C = P @ J.T
    return image(x, g, params, t), J @ C, C


def unscented_moments(alpha: float, beta: float, kappa: float) -> Callable:
    """Return a function for the same moments from weighted points."""

    def moments(g: Callable, x, P, params, t) -> tuple:
        m = len(x)
        scale = alpha**2 * (m + kappa)
        root = np.linalg.cholesky(P) * math.sqrt(scale)
        points = [x] + [x + root[:, k] for k in range(m)] + [x - root[:, k] for k in range(m)]
        images = np.stack([image(p, g, params, t) for p in points])
        first, each = (scale - m) / scale, 1 / (2 * scale)
        mean = first * images[0] + each * images[1:].sum(axis=0)
        d, e = images - mean, np.stack([p - x for p in points])
        central = first + 1 - alpha**2 + beta
        cov = central * np.outer(d[0], d[0]) + each * (d[1:].T @ d[1:])
        return mean, cov, each * (e[1:].T @ d[1:])

    return moments


def image(x, g: Callable, params, t):
    return vector(g(x, params, t))


def vector(z):
    """Return the result of a model's function as a vector (k,)."""
    z = np.stack(z) if isinstance(z, (list, tuple)) else z
    return np.reshape(z, (-1,))


def covariance(name: str, given, k: int, xp):
    """Return a (k, k) matrix from a variance, a vector of variances, or a matrix."""
    given = np.stack([vector(row) for row in given]) if isinstance(given, list) else given
    shape = np.shape(given)
    if shape not in ((), (1,), (k,), (k, k)):
        raise ShapeError(f"{name}: shape {shape}; wanted a variance, ({k},) variances or ({k}, {k})")
    return given if len(shape) == 2 else given * xp.eye(k)


def check_shape(name: str, got: int, wanted: int, why: str) -> None:
    if got != wanted:
        raise ShapeError(f"{name}: the function returned {got} numbers, and {wanted} {why}")


def extended(
    transition: Callable, observation: Callable, transition_cov: Any, observation_cov: Any, start: Any
) -> Nonlinear:
    """Make a non-linear state space model with an extended Kalman filter.

    Parameters
    ----------
    transition : callable
        ``transition(x, params, t)`` returns the next state, of shape (m,). t counts the steps from 0.
    observation : callable
        ``observation(x, params, t)`` returns what is observed of x, a number or an array of shape (p,).
    transition_cov, observation_cov : scalar, array or callable
        The covariances of the noise added to each: a variance, a vector of variances, a matrix, or a function
        of (params, t) that returns one of these.
    start : tuple or callable
        (mean, cov) of the first state, or a function of params that returns the pair.

    Returns
    -------
    Nonlinear
        It has ``loglik(params, y)``, differentiable to any order, and ``filter(params, y)``. ``kernel()``
        computes the log-likelihood and its derivatives for many parameters at once.

    Raises
    ------
    ShapeError
        In a call, if a state, an observation or a covariance does not fit.
    NotPositiveDefiniteError
        In a call, if a step of the filter is not finite or not positive definite.

    See Also
    --------
    unscented : A filter without Jacobians.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> from tapegrad import statespace as ss
    >>> grow = lambda x, p, t: x + p["r"] * x * (1 - x)
    >>> model = ss.extended(grow, lambda x, p, t: x, 1e-3, 1e-2, (np.array([0.2]), 0.01))
    >>> y = np.array([0.2, 0.3, 0.45, 0.5, 0.7])
    >>> value, gradient = tg.value_and_grad(model.loglik)({"r": 0.5}, y)
    >>> value.round(6), gradient["r"].round(6)
    (np.float64(5.270203), np.float64(1.455473))
    """
    return Nonlinear(transition, observation, transition_cov, observation_cov, start)


def unscented(
    transition: Callable,
    observation: Callable,
    transition_cov: Any,
    observation_cov: Any,
    start: Any,
    alpha: float = 1.0,
    beta: float = 2.0,
    kappa: float = 0.0,
) -> Nonlinear:
    """Make a non-linear state space model with an unscented Kalman filter, which needs no Jacobian.

    Parameters
    ----------
    transition, observation, transition_cov, observation_cov, start
        As for `extended`. Covariances of states must be positive definite, that of the start too.
    alpha, kappa : float
        The points stand alpha sqrt(m + kappa) standard deviations from the mean. Defaults are 1 and 0.
    beta : float, default 2
        The weight of the middle point in covariances.

    Returns
    -------
    Nonlinear
        As for `extended`.

    Raises
    ------
    ArgumentError
        If alpha, beta or kappa is not valid.
    ShapeError, NotPositiveDefiniteError
        As for `extended`.

    See Also
    --------
    extended : A filter with Jacobians.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> model = ss.unscented(lambda x, p, t: x, lambda x, p, t: np.exp(x), 0.1, 0.1, (np.zeros(1), 0.5))
    >>> model.filter(None, np.array([1.0, 2.0, 1.5])).filtered_mean[:, 0].round(6)
    array([-0.171448,  0.555503,  0.370852])
    """
    if not (alpha > 0 and kappa > -1 and all(isinstance(v, (int, float)) for v in (alpha, beta, kappa))):
        raise ArgumentError(
            f"unscented: alpha={alpha!r}, beta={beta!r}, kappa={kappa!r}; wanted numbers, alpha > 0 and "
            f"kappa > -1"
        )
    return Nonlinear(
        transition,
        observation,
        transition_cov,
        observation_cov,
        start,
        (float(alpha), float(beta), float(kappa)),
    )
