"""The smoother: what all data say of each state, by the backward recursion of DK 4.4, 5.3 and 6.4.5.

With predicted covariance P, gain K and G = I - K Z, an observation turns the weights (r, N) of the later
innovations into

    r <- Z' F^-1 v + G' r,        N <- Z' F^-1 Z + G' N G,

a transition into T' r and T' N T, and the smoothed state at t is a + P r with covariance P - P N P, where a
and P are the filtered moments at t and (r, N) stand before the update of t.  Nothing is inverted but F.

While the covariance is P + kappa B, kappa to infinity, the weights are series in 1 / kappa: r = r0 + r1 /
kappa, N = N0 + N1 / kappa + N2 / kappa^2, and so is the gain of an element with F + kappa F_inf,

    K = K0 + K1 / kappa + ...,   K0 = M_inf / F_inf,   K1 = (M - K0 F) / F_inf.

Collecting powers gives the updates in `_back_diffuse`; products with a factor B' N0, which vanish, are left
out.
"""

from dataclasses import dataclass
from typing import Any

import numpy

from .. import numpy as np
from ._compiled import moments
from ._filter import Block, Diffuse, Moments, Path, Scalar, moments_on_arrays, observed, require_settled
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
        m = len(s.diffuse)
        mean, cov = _smoothed(s, path, [s.xp.zeros(m)], [s.xp.zeros((m, m))])
    else:
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
    n, m, here = data.steps, len(s.diffuse), None
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
    return Gains(Z, Y, K, T, T @ (numpy.eye(m) - K @ Z), here)


def _compiled(s: System, data: Observations, x: Moments, path: Path) -> tuple[Any, Any]:
    """Mean and covariance of each state.  With L all steps of the backward recursion are of one form, which a kernel runs; what it is
    made of is computed for all steps at once."""
    steps, n, m = len(path.updates), data.steps, len(s.diffuse)
    g = gains(s, data, x, steps)
    y = data.values[steps:] - (s.d[steps:n] if "d" in s.varying else s.d)
    v = (y if g.here is None else y * g.here) - (g.Z @ x.mean[steps:, :, None])[:, :, 0]
    u = (v[:, None, :] @ g.Y)[:, 0]
    upper, full = triangle(m)
    W = (np.swapaxes(g.Z, -1, -2) @ g.Y).reshape((n - steps, m * m))[:, upper]
    rows, T = np.concatenate([g.L.reshape((n - steps, m * m)), u, W], axis=1)[::-1].T, g.T
    found = weights(m).path(numpy.zeros(m + upper.size), rows)[:, ::-1].T
    r, N = found[:, :m], found[:, m:][:, full]
    last = numpy.zeros((1, m, m))
    rT = (np.concatenate([r[1:], last[0, :1]])[:, None, :] @ T)[:, 0]
    NT = np.swapaxes(T, -1, -2) @ np.concatenate([N[1:], last]) @ T
    a, P = x.filtered_mean[steps:], x.filtered_cov[steps:]
    mean, cov = a + (P @ rT[:, :, None])[:, :, 0], P - P @ NT @ P
    if not steps:
        return mean, cov
    T = s.at(steps if s.predict_first else steps - 1, "T")
    first, spread = _smoothed(s, path, [r[0] @ T], [T.T @ N[0] @ T])
    return np.concatenate([first, mean]), np.concatenate([spread, cov])


def _transitions(s: System, steps: int, n: int) -> Any:
    """What leads out of each step."""
    return s.T[numpy.minimum(numpy.arange(steps, n) + s.predict_first, n - 1)] if "T" in s.varying else s.T


def _smoothed(s: System, path: Path, r: list[Any], N: list[Any]) -> tuple[Any, Any]:
    """Mean and covariance of each state of a path; r, N: the weights behind it, as seen from the last state."""
    m = len(s.diffuse)
    means, covs = [], []
    for t in reversed(range(len(path.updates))):
        a, P, B = path.filtered[t]
        means.append(_mean(a, P, B, r))
        covs.append(_cov(P, B, N))
        if path.predicted[t][2] is not None and len(r) == 1:
            zero = s.xp.zeros((m, m))
            r, N = [r[0], s.xp.zeros(m)], [N[0], zero, zero]
        r, N = _back(r, N, path.updates[t], m, s.xp)
        i = t if s.predict_first else t - 1
        if i >= 0:
            T = s.at(i, "T")
            r, N = [x @ T for x in r], [T.T @ X @ T for X in N]
    return np.stack(means[::-1]), np.stack(covs[::-1])


def _mean(a: Any, P: Any, B: Any, r: list[Any]) -> Any:
    return a + P @ r[0] if B is None else a + P @ r[0] + B @ r[1]


def _cov(P: Any, B: Any, N: list[Any]) -> Any:
    V = P - P @ N[0] @ P
    if B is not None:
        X = P @ N[1] @ B
        V = V - X - X.T - B @ N[2] @ B
    return (V + V.T) * 0.5


def _back(r: list[Any], N: list[Any], updates: list[Any], m: int, xp: Any) -> tuple[list[Any], list[Any]]:
    """The weights before the updates of one step from those after.  Where the noise has joined the state
    (`update_diffuse`) its own weights are zero: no later step depends on it."""
    if not updates:
        return r, N
    if type(updates[0]) is Block:
        x = updates[0]
        Y = np.linalg.solve(x.S, x.Z)
        G = xp.eye(m) - x.G.T @ x.Z
        return [r[0] @ G + x.v @ Y], [G.T @ N[0] @ G + x.Z.T @ Y]
    size = updates[0].z.shape[0]
    if size > m:
        lift = xp.eye(m, size)
        r, N = [x @ lift for x in r], [lift.T @ X @ lift for X in N]
    eye = xp.eye(size)
    for x in reversed(updates):
        r, N = _back_scalar(r, N, x, eye) if type(x) is Scalar else _back_diffuse(r, N, x, eye)
    return [x[:m] for x in r], [X[:m, :m] for X in N]


def _back_scalar(r: list[Any], N: list[Any], x: Scalar, eye: Any) -> tuple[list[Any], list[Any]]:
    G = eye - np.outer(x.K, x.z)
    r, N = [y @ G for y in r], [G.T @ X @ G for X in N]
    return [r[0] + x.z * (x.v / x.F), *r[1:]], [N[0] + np.outer(x.z, x.z / x.F), *N[1:]]


def _back_diffuse(r: list[Any], N: list[Any], x: Diffuse, eye: Any) -> tuple[list[Any], list[Any]]:
    K0 = x.M_inf / x.F_inf
    K1 = (x.M - K0 * x.F) / x.F_inf
    G0, G1, zz = eye - np.outer(K0, x.z), -np.outer(K1, x.z), np.outer(x.z, x.z / x.F_inf)
    (r0, r1), (N0, N1, N2) = r, N
    X, Y = G1.T @ N0 @ G0, G1.T @ N1 @ G0
    return [r0 @ G0, x.z * (x.v / x.F_inf) + r1 @ G0 + r0 @ G1], [
        G0.T @ N0 @ G0,
        zz + G0.T @ N1 @ G0 + X + X.T,
        G0.T @ N2 @ G0 + Y + Y.T + G1.T @ N0 @ G1 - zz * (x.F / x.F_inf),
    ]
