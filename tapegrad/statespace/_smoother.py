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
from ._filter import Block, Diffuse, Scalar, loglik_of, observed, recursion, require_settled
from ._model import LinearGaussian, Observations, system


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
    data = y if isinstance(y, Observations) else Observations(y)
    s = system(model, data)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        path, settled = recursion(s, data, joseph)
        loglik_of(path, data)  # raises if a variance is not positive
    require_settled(settled, "smooth")
    m = len(s.diffuse)
    r, N = [s.xp.zeros(m)], [s.xp.zeros((m, m))]
    means, covs = [], []
    for t in reversed(range(data.steps)):
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
    mean, cov = np.stack(means[::-1]), np.stack(covs[::-1])
    return SmootherResult(mean, cov, *observed(s, mean, cov, 0, data.steps, noise=False))


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
    (`_update_diffuse`) its own weights are zero: no later step depends on it."""
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
