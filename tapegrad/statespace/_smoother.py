"""The smoother: what all data say of each state, by the backward recursion of DK 4.4, 5.3 and 6.4.5.

With predicted covariance P, gain K and G = I - K Z, an observation turns the weights (r, N) of the later
innovations into

    r <- Z' F^-1 v + G' r,        N <- Z' F^-1 Z + G' N G,

a transition into T' r and T' N T, and the smoothed state at t is a + P r with covariance P - P N P, where a
and P are the filtered moments at t and (r, N) stand before the update of t.  Nothing is inverted but F.

The first steps after a diffuse start go back as `_diffuse` says.
"""

from dataclasses import dataclass
from typing import Any

import numpy

from .. import numpy as np
from ._compiled import First, moments
from ._diffuse import before, behind, smoothed, through
from ._filter import Block, Moments, Path, moments_on_arrays, observed, require_determined, require_settled
from ._host import brought
from ._kernel import triangle, weights
from ._model import LinearGaussian, Observations, System, given


@dataclass(frozen=True)
class SmootherResult:
    """States given all data: mean (n, m) and cov (n, m, m); and what they say of the noise-free observations
    Z x + d: `signal` (n, p) and `signal_cov` (n, p, p)."""

    mean: Any
    cov: Any
    signal: Any
    signal_cov: Any


def smooth(model: LinearGaussian, y: Any, joseph: bool = False) -> SmootherResult:
    """Mean and covariance of every state given all of y; arguments and errors as in `loglik`.

    Right from the first step of a diffuse start on.  Raises `DataError` if the data leave a diffuse
    element undetermined.

    >>> from tapegrad import statespace as ss
    >>> ss.smooth(ss.local_level(1.0, 0.5), [0.1, 0.4, -0.2, 0.3]).mean[:, 0].round(6)
    array([0.154118, 0.181176, 0.098824, 0.165882])
    """
    data = given("smooth", model, y)
    s, there, found = moments(model, data, joseph)
    if found is None:
        x, path, _, settled = moments_on_arrays(s, data, joseph)
        require_settled(settled, "smooth")
        require_determined(path.met, s, "smooth")
        m = len(s.diffuse)
        mean, cov = _smoothed(s, path, s.xp.zeros(m), s.xp.zeros((m, m)))
    else:
        require_determined(found[1].met, s, "smooth")
        mean, cov = _compiled(s, there, *found)
    return brought(SmootherResult(mean, cov, *observed(s, mean, cov, 0, data.steps, noise=False)), data.xp)


@dataclass(frozen=True)
class Gains:
    """Of each step behind the first ones: Z, Y = F^-1 Z and the gain K, in which a missing element is seen as nothing, the transition T
    out of it, and L = T (I - K Z).  `here`: which elements are there, or None for all."""

    Z: Any
    Y: Any
    K: Any
    T: Any
    L: Any
    here: numpy.ndarray | None


def gains(s: System, data: Observations, x: Moments, steps: int) -> Gains:
    n, here = data.steps, None
    Z, H = (getattr(s, name)[steps:n] if name in s.varying else getattr(s, name) for name in "ZH")
    if data.count < n * data.width:  # a missing element is seen as nothing, with an error of variance 1
        here = numpy.array([numpy.isin(numpy.arange(data.width), row) for row in data.rows[steps:]], float)
        Z = Z * here[:, :, None]
        H = H * (here[:, :, None] * here[:, None, :]) + numpy.eye(data.width) * (1.0 - here)[:, :, None]
    U = Z @ x.cov[steps:]
    F = U @ np.swapaxes(Z, -1, -2) + H
    if data.width == 1:
        G, Y = U / F, Z / F
    else:
        G, Y = np.linalg.solve(F, U), np.linalg.solve(F, Z + numpy.zeros((n - steps, 1, 1)))
    K, T = np.swapaxes(G, -1, -2), _transitions(s, steps, n)
    return Gains(Z, Y, K, T, T - (T @ K) @ Z, here)


def _compiled(s: System, data: Observations, x: Moments, first: First | Path) -> tuple[Any, Any]:
    """Mean and covariance of each state.  With L all steps of the backward recursion are of one form, which a kernel runs; what it is
    made of is computed for all steps at once."""
    steps, n, m = first.steps, data.steps, len(s.diffuse)
    g = gains(s, data, x, steps)
    y = data.values[steps:] - (s.d[steps:n] if "d" in s.varying else s.d)
    v = (y if g.here is None else y * g.here) - (g.Z @ x.mean[steps:, :, None])[:, :, 0]
    u = (v[:, None, :] @ g.Y)[:, 0]
    upper, full = triangle(m)
    W = (np.swapaxes(g.Z, -1, -2) @ g.Y).reshape((n - steps, m * m))[:, upper]
    rows = np.concatenate([g.L.reshape((n - steps, m * m)), u, W], axis=1)[::-1].T
    found = weights(m).path(numpy.zeros(m + upper.size), rows)[:, ::-1].T
    r, N = found[:, :m], found[:, m:][:, full]
    last = numpy.zeros((1, m, m))
    r_after, N_after = np.concatenate([r[1:], last[0, :1]]), np.concatenate([N[1:], last])
    P = x.filtered_cov[steps:]
    X = P @ np.swapaxes(g.T, -1, -2)
    mean, cov = x.filtered_mean[steps:] + (X @ r_after[:, :, None])[:, :, 0], P - X @ N_after @ np.swapaxes(X, -1, -2)
    if not steps:
        return mean, cov
    if isinstance(first, First):
        means, covs = first.smoothed(r[0], N[0])
    else:
        T = s.at(steps if s.predict_first else steps - 1, "T")
        means, covs = _smoothed(s, first, r[0] @ T, T.T @ N[0] @ T)
    return np.concatenate([means, mean]), np.concatenate([covs, cov])


def _transitions(s: System, steps: int, n: int) -> Any:
    """What leads out of each step."""
    return s.T[numpy.minimum(numpy.arange(steps, n) + s.predict_first, n - 1)] if "T" in s.varying else s.T


def _smoothed(s: System, path: Path, r: Any, N: Any) -> tuple[Any, Any]:
    """Mean and covariance of each state of a path; r, N: the weights behind it, as seen from the last state."""
    means, covs, weights = [], [], None
    for t in reversed(range(len(path.updates))):
        a, P, A = path.filtered[t]
        first = path.predicted[t][2]
        if weights is None and first is not None:
            weights = behind(r, N, first.shape[1], s.xp)
        if weights is None or A is None:
            V = P - P @ N @ P
            mean, cov = a + P @ r, (V + V.T) * 0.5
        else:
            mean, cov = smoothed(a, P, A, weights)
        means.append(mean)
        covs.append(cov)
        i = t if s.predict_first else t - 1
        T = s.at(i, "T") if i >= 0 else None
        if weights is not None:
            weights = before(weights, path.updates[t], s.xp)
            weights = weights if T is None else through(weights, T)
        else:
            r, N = _back(r, N, path.updates[t], s.xp)
            r, N = (r, N) if T is None else (r @ T, T.T @ N @ T)
    return np.stack(means[::-1]), np.stack(covs[::-1])


def _back(r: Any, N: Any, updates: list[Any], xp: Any) -> tuple[Any, Any]:
    """The weights before the updates of one step from those after."""
    if not updates:
        return r, N
    x = updates[0]
    if type(x) is Block:
        Y = np.linalg.solve(x.S, x.Z)
        G = xp.eye(len(r)) - x.G.T @ x.Z
        return r @ G + x.v @ Y, G.T @ N @ G + x.Z.T @ Y
    G = xp.eye(len(r)) - np.outer(x.K, x.z)
    return r @ G + x.z * (x.v / x.F), G.T @ N @ G + np.outer(x.z, x.z / x.F)
