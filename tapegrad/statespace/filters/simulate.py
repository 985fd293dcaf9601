"""Draws of states and observations: from a model, and from a model given data (the simulation smoother).

A draw given data is a draw x+, y+ of the model, plus the smoothed state of y - y+ under the same model
without its means: J. Durbin and S. J. Koopman, Biometrika 89 (2002) 603-615.  The gains do not depend on the
data, so that one filter serves all draws."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy
from numpy import ndarray

from ..._core.arrays import to_host
from ..._core.errors import ArgumentError, NotPositiveDefiniteError
from ..._transforms.tape import value
from .._matrices import ROUNDING, ModelMatrices, call_data, system
from .._model import LinearGaussian
from .._observations import Observations
from .arrays import first_state
from .augmented import DiffuseStart, start_of
from .compiled import runner
from .gains import gains


class Draws(NamedTuple):
    """Draws of a model.

    Attributes
    ----------
    states : array of shape (draws, n, m)
    observations : array of shape (draws, n, p)
    """

    states: ndarray
    observations: ndarray


def simulate(model: LinearGaussian, steps: int, draws: int = 1, rng: Any = None, width: int = 1) -> Draws:
    """Draw states and observations from a model.

    Diffuse elements of the start begin at its mean, 0.

    Parameters
    ----------
    model : LinearGaussian
        The model.
    steps : int
        The number of steps.
    draws : int, default 1
        The number of draws.
    rng : int or numpy.random.Generator, optional
        A seed or a generator.
    width : int, default 1
        The number of observations a step, if the model does not say.

    Returns
    -------
    Draws

    Raises
    ------
    ArgumentError
        If `steps` or `draws` is not a positive integer.
    ShapeError
        If a matrix does not fit.
    NotPositiveDefiniteError
        If a covariance has a negative eigenvalue.

    See Also
    --------
    simulate_smoother : Draws given data.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> ss.simulate(ss.local_level(1.0, 0.5), steps=3, draws=2, rng=0).observations.shape
    (2, 3, 1)
    """
    _require_counts("simulate", draws=draws, steps=steps)
    Z = numpy.shape(model.observation)
    width = Z[-2] if len(Z) >= 2 else width
    s = system(_on_host(model), Observations(numpy.zeros((steps, width))))
    states, observations = _drawn(s, steps, draws, numpy.random.default_rng(rng))
    return Draws(states.transpose(2, 0, 1), observations.transpose(2, 0, 1))


def simulate_smoother(model: LinearGaussian, y: Any, draws: int = 1, rng: Any = None) -> Draws:
    """Draw states given data, and observations where data are missing.

    Parameters
    ----------
    model : LinearGaussian
        The model.
    y : array of shape (n,) or (n, p), or Observations
        The data, nan where missing.
    draws : int, default 1
        The number of draws.
    rng : int or numpy.random.Generator, optional
        A seed or a generator.

    Returns
    -------
    Draws
        The observations are y where there are data.

    Raises
    ------
    ArgumentError
        If `draws` is not a positive integer.
    DataError
        If the data leave a diffuse element undetermined.

    See Also
    --------
    smooth : Mean and covariance.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> r = ss.simulate_smoother(ss.local_level(1.0, 0.5), [0.1, float("nan"), -0.2], draws=1000, rng=0)
    >>> r.states.shape, r.observations[7, :, 0].round(2)
    ((1000, 3, 1), array([ 0.1 ,  ..., -0.2 ]))
    """
    _require_counts("simulate_smoother", draws=draws)
    data = Observations(call_data("simulate_smoother", model, y).host)
    of = runner(_on_host(model), data, False)
    s, start = of.s, start_of(of.s, data)
    if start:
        start.require_determined("simulate_smoother", data.steps - 1)
    states, observations = _drawn(s, data.steps, draws, numpy.random.default_rng(rng))
    moved = _smoothed_means(of, start, data.raw[:, :, None] - observations)
    for t, rows in enumerate(data.rows):
        observations[t] = _completed(s, t, rows, observations[t], data.raw[t], moved[t])
    return Draws((states + moved).transpose(2, 0, 1), observations.transpose(2, 0, 1))


def _completed(
    s: ModelMatrices, t: int, rows: list[int], drawn: ndarray, y: ndarray, moved: ndarray
) -> ndarray:
    """Return the observations of one step, with draws for the missing ones.

    A draw is moved with the state, and with the noise that is correlated with the observed noise."""
    if len(rows) == len(y):
        return numpy.broadcast_to(y[:, None], drawn.shape)
    Z, H = s.host(t, "Z"), s.host(t, "H")
    result = drawn + Z @ moved
    if rows:
        noise = y[rows, None] - drawn[rows] - Z[rows] @ moved
        result = result + H[:, rows] @ numpy.linalg.pinv(H[numpy.ix_(rows, rows)], hermitian=True) @ noise
        result[rows] = y[rows, None]
    return result


def _require_counts(call: str, **counts) -> None:
    for name, count in counts.items():
        if not (isinstance(count, (int, numpy.integer)) and count >= 1):
            raise ArgumentError(f"{call}({name}={count!r}): wanted a whole number, at least 1")


def _on_host(model: LinearGaussian) -> LinearGaussian:
    """Return the model in plain numbers of the host."""

    def plain(x):
        return x if x is None or isinstance(x, (list, tuple)) else to_host(value(x))

    start = replace(model.start, mean=plain(model.start.mean), cov=plain(model.start.cov))
    return replace(
        model,
        **{f.name: plain(getattr(model, f.name)) for f in fields(model) if f.name != "start"},
        start=start,
    )


def _root(cov: ndarray) -> ndarray:
    """Return R with R R' = cov, which may be singular."""
    size, axes = numpy.linalg.eigh((cov + cov.T) / 2)
    if size[0] < -ROUNDING * abs(size).max():
        raise NotPositiveDefiniteError(
            f"a covariance of the model has the eigenvalue {size[0]:.6g}; wanted none below 0"
        )
    return axes * numpy.sqrt(numpy.maximum(size, 0.0))


def _drawn(s: ModelMatrices, n: int, draws: int, rng: numpy.random.Generator) -> tuple[ndarray, ndarray]:
    """Return states (n, m, draws) and observations (n, p, draws) of the model."""
    m, p = len(s.diffuse), s.host(0, "Z").shape[0]

    def each(name: str, form: Callable = lambda x: x) -> list[ndarray]:
        """Return a field at each step, in this form."""
        return [form(s.host(t, name)) for t in range(n)] if name in s.varying else [form(s.host(0, name))] * n

    def column(size: int) -> Callable:
        return lambda x: numpy.broadcast_to(x, (size,))[:, None]

    T = each("T")
    Z = each("Z")
    c = each("c", column(m))
    d = each("d", column(p))
    state_noise, noise = each("Q", _root), each("H", _root)
    x = column(m)(to_host(s.mean)) + _root(to_host(s.cov)) @ rng.standard_normal((m, draws))
    states, observations = numpy.empty((n, m, draws)), numpy.empty((n, p, draws))
    for t in range(n):
        if t or s.predict_first:
            i = t if s.predict_first else t - 1
            x = T[i] @ x + c[i] + state_noise[i] @ rng.standard_normal((m, draws))
        states[t] = x
        observations[t] = Z[t] @ x + d[t] + noise[t] @ rng.standard_normal((p, draws))
    return states, observations


def _smoothed_means(of, start: DiffuseStart | None, y: ndarray) -> ndarray:
    """Return the smoothed states (n, m, draws) of y (n, p, draws), by the gains of one filter.

    The start has mean 0, and there are no offsets."""
    s, data, (n, _, draws) = of.s, of.data, y.shape
    x = of.moments(*first_state(s, start), 0, n)
    g = gains(s, data, x, 0, n)
    columns, P = x.filtered_mean, x.filtered_cov
    y = y if g.here is None else numpy.where(g.here[:, :, None] > 0, y, 0.0)
    means = numpy.empty((n, P.shape[1], draws))
    behind = numpy.empty((n, P.shape[1], draws + columns.shape[2] - 1))
    a, r = numpy.zeros(means.shape[1:]), numpy.zeros(behind.shape[1:])
    for t, moved in enumerate(g.T @ (g.K @ y)):
        means[t] = a
        a = g.L[t] @ a + moved
    errors = y - g.Z @ means
    shares = g.Y.mT @ numpy.concatenate([errors, g.v[:, :, 1:]], axis=2)
    back = g.L.mT
    for t in reversed(range(n)):
        behind[t] = r
        r = shares[t] + back[t] @ r
    found = numpy.concatenate([means + g.K @ errors, columns[:, :, 1:]], axis=2) + P @ (g.T.mT @ behind)
    if start is None or not start.rank:
        return found[:, :, :draws]
    Q, R = numpy.linalg.qr(-x.rows(0, n)[:, 1:])
    start.require_conditioned(R, True)
    white = numpy.linalg.solve(numpy.linalg.cholesky(g.F), errors).reshape(-1, draws)
    return found[:, :, :draws] + found[:, :, draws:] @ numpy.linalg.solve(R, Q.T @ white)
