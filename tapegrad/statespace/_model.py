"""Linear Gaussian state space models: their description, the checks, and ready-made ones.

    x[t+1] = T[t] x[t] + c[t] + R[t] eta[t],   eta[t] ~ N(0, Q[t])        transition
    y[t]   = Z[t] x[t] + d[t] + eps[t],        eps[t] ~ N(0, H[t])        observation

`LinearGaussian` is what the user writes; `ModelMatrices` is the same model after the checks, every matrix in
one form and in the array library of the data.  The letters are those of J. Durbin and S. J. Koopman, Time
Series Analysis by State Space Methods, 2nd edition (2012), cited below as DK.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy

from .. import numpy as np
from .._core.arrays import to_host, xp_of
from .._transforms.tape import value
from ._observations import as_given


@dataclass(frozen=True)
class Start:
    """The distribution of the first state.

    Parameters
    ----------
    mean : scalar or array of shape (m,), default 0
        The mean.
    cov : scalar, or array of shape (m,) of variances, or (m, m), default 0
        The covariance.
    diffuse : bool or sequence of m bool, default False
        True gives every element an infinite variance, treated exactly (DK chapter 5). A sequence marks some
        elements, and `mean` and `cov` then describe the rest.
    stationary : bool, default False
        Whether mean and covariance are those of the stationary distribution of the transition.
    predict_first : bool, default False
        Whether this is the state before the first transition, not the one of the first observation. Then
        T[t], c[t], Q[t] lead into time t instead of out of it.

    See Also
    --------
    LinearGaussian : Takes a start.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> ss.Start(mean=0.0, cov=1e7)
    Start(mean=0.0, cov=10000000.0, diffuse=False, stationary=False, predict_first=False)
    """

    mean: Any = 0.0
    cov: Any = 0.0
    diffuse: bool | Sequence[bool] = False
    stationary: bool = False
    predict_first: bool = False


@dataclass(frozen=True)
class LinearGaussian:
    """A linear Gaussian state space model with m states and p observations a step.

    A matrix may vary over time. It then has one more axis in front, of at least as many steps as the data.

    Parameters
    ----------
    transition : scalar (m = 1) or array of shape (m, m)
        The matrix T.
    observation : scalar (m = p = 1), or array of shape (m,) for p = 1, or (p, m)
        The matrix Z.
    transition_cov : scalar variance, or array of shape (r,) of variances, or (r, r)
        The covariance Q.
    observation_cov : scalar variance, or array of shape (p,) of variances, or (p, p)
        The covariance H.
    selection : array of shape (m, r), optional
        The matrix R. By default r = m, and the noise enters every state.
    transition_offset : scalar or array of shape (m,), default 0
        The vector c.
    observation_offset : scalar or array of shape (p,), default 0
        The vector d.
    start : Start, optional
        The distribution of the first state. The default is an exact diffuse start.
    state_names : sequence of str, optional
        Names of the m states, for errors and plots.

    Raises
    ------
    ShapeError
        When the model meets data, if a matrix does not fit. It names the matrix, its shape and the one
        wanted.

    See Also
    --------
    loglik, filter, smooth, forecast, simulate : What to do with a model.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> start = ss.Start(stationary=True)
    >>> model = ss.LinearGaussian(0.5, 1.0, transition_cov=2.0, observation_cov=1.0, start=start)
    >>> print(round(float(ss.loglik(model, [0.3, -1.0, 2.0])), 6))
    -5.620608
    """

    transition: Any
    observation: Any
    transition_cov: Any
    observation_cov: Any
    selection: Any = None
    transition_offset: Any = 0.0
    observation_offset: Any = 0.0
    start: Start = Start(diffuse=True)
    state_names: Sequence[str] | None = None


def local_level(observation_var: Any, level_var: Any, start: Start = Start(diffuse=True)) -> LinearGaussian:
    """Make a random walk observed with noise (DK chapter 2).

    The model is y[t] = mu[t] + eps[t], mu[t+1] = mu[t] + eta[t].

    Parameters
    ----------
    observation_var, level_var : scalar
        The variances of eps and eta.
    start : Start, optional
        The default is an exact diffuse start.

    Returns
    -------
    LinearGaussian

    See Also
    --------
    level : The same as a component of a sum.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(round(float(ss.loglik(ss.local_level(1.0, 0.5), [0.1, 0.4, -0.2, 0.3])), 6))
    -4.948418
    """
    return LinearGaussian(1.0, 1.0, level_var, observation_var, start=start)


def local_linear_trend(
    observation_var: Any, level_var: Any, slope_var: Any, start: Start = Start(diffuse=True)
) -> LinearGaussian:
    """Make a model of level and slope, both random walks (DK 3.2.1).

    The states are (mu, nu), with mu[t+1] = mu[t] + nu[t] + xi[t].

    Parameters
    ----------
    observation_var, level_var, slope_var : scalar
        The variances of the three noises.
    start : Start, optional
        The default is an exact diffuse start.

    Returns
    -------
    LinearGaussian

    See Also
    --------
    trend : The slope as a component of a sum.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> model = ss.local_linear_trend(1.0, 0.5, 0.1)
    >>> ss.forecast(model, [1.0, 2.0, 3.0, 4.0], steps=2).mean.round(6)
    array([[5.],
           [6.]])
    """
    T = numpy.array([[1.0, 1.0], [0.0, 1.0]])
    return LinearGaussian(
        T, numpy.array([1.0, 0.0]), np.stack([level_var, slope_var]), observation_var, start=start
    )


def arma(
    ar: Any, ma: Any = (), var: Any = 1.0, mean: Any = 0.0, observation_var: Any = 0.0
) -> LinearGaussian:
    """Make a stationary ARMA process about a mean, perhaps observed with noise (Harvey's form, DK 3.4).

    The process is y[t] = ar[0] y[t-1] + ... + e[t] + ma[0] e[t-1] + ...

    Parameters
    ----------
    ar : array of shape (k,)
        Coefficients of the autoregression; empty for none. If they are not stationary, the covariance of the
        start is not positive definite.
    ma : array of shape (l,), default ()
        Coefficients of the moving average.
    var : scalar, default 1
        The variance of e.
    mean : scalar, default 0
        The mean of y.
    observation_var : scalar, default 0
        The variance of the observation noise.

    Returns
    -------
    LinearGaussian

    See Also
    --------
    sarimax : Fits such a process.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> print(round(float(ss.loglik(ss.arma(np.array([0.5]), np.array([0.3])), [0.2, 1.0, -0.4])), 6))
    -4.118411
    """
    ar, ma = as_given(ar), as_given(ma)
    m = max(ar.shape[0], ma.shape[0] + 1)
    if ar.shape[0] < m:
        ar = np.concatenate([ar, xp_of(value(ar)).zeros(m - ar.shape[0])])
    xp = xp_of(value(ar))
    one, rest = xp.ones(1), m - 1 - ma.shape[0]
    T = np.concatenate([ar[:, None], xp.eye(m, m - 1)], axis=1)
    R = np.concatenate([one, ma, xp.zeros(rest)])
    start = Start(stationary=True)
    return LinearGaussian(T, numpy.eye(1, m)[0], var, observation_var, R[:, None], 0.0, mean, start)


@dataclass(frozen=True, eq=False)
class RegressionOffset:
    """An offset X[t] @ coefficients, in which only known regressors vary over time.

    X is (n, size, k) on the host. Kernels read it as data, and get the k coefficients as numbers."""

    X: numpy.ndarray
    coefficients: Any

    def array(self):
        """Return the offsets (n, size)."""
        n, size, k = self.X.shape
        return (
            xp_of(value(self.coefficients)).asarray(self.X.reshape(n * size, k)) @ self.coefficients
        ).reshape((n, size))

    def rows(self, at: slice) -> "RegressionOffset":
        return replace(self, X=self.X[at])

    def __array__(self, dtype=None, copy=None) -> numpy.ndarray:
        return numpy.asarray(to_host(value(self.array())), dtype)


# The largest number of axes of a constant field; one more is the time axis.
FIELD_AXES = {
    "transition": 2,
    "observation": 2,
    "transition_cov": 2,
    "observation_cov": 2,
    "selection": 2,
    "transition_offset": 1,
    "observation_offset": 1,
}


def model_after(model: LinearGaussian, steps: int, start: Start) -> LinearGaussian:
    """Return the model without its first steps, with another start."""
    cut: dict[str, Any] = {}
    for name, axes in FIELD_AXES.items():
        given = getattr(model, name)
        if isinstance(given, RegressionOffset):
            cut[name] = given.rows(slice(steps, None))
            continue
        x = None if given is None else as_given(given)
        if x is not None and x.ndim > axes:
            cut[name] = x[steps:]
    return replace(model, **cut, start=start)
