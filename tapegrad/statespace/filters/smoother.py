"""The smoother: what all data say of each state, by the backward recursion of DK 4.4 and 6.4.5.

With predicted covariance P, gain K and G = I - K Z, an observation turns the weights (r, N) of the later
innovations into

    r <- Z' F^-1 v + G' r,        N <- Z' F^-1 Z + G' N G,

a transition into T' r and T' N T, and the smoothed state at t is a + P r with covariance P - P N P, where a
and P are the filtered moments at t and (r, N) stand before the update of t.  Nothing is inverted but F.

With a diffuse start (`filters.augmented`) a, v and r have a column for each diffuse element more, so that
this is the state for each delta; and delta is what all data say of it.  The start is not collapsed: P stays
small, and no digits are lost.
"""

from dataclasses import dataclass
from typing import Any

from ... import numpy as np
from .._matrices import call_data
from .._model import LinearGaussian
from .arrays import first_state, observed_moments
from .augmented import at_estimate, start_of
from .compiled import runner
from .gains import delta_of, gains
from .host import brought


@dataclass(frozen=True)
class SmootherResult:
    """States given all data.

    Attributes
    ----------
    mean, cov : arrays of shape (n, m) and (n, m, m)
        Of the states.
    signal, signal_cov : arrays of shape (n, p) and (n, p, p)
        Of the observations without noise, Z x + d.
    """

    mean: Any
    cov: Any
    signal: Any
    signal_cov: Any


def smooth(model: LinearGaussian, y: Any, joseph: bool = False) -> SmootherResult:
    """Compute mean and covariance of every state given all data, from the first step of a diffuse start on.

    Parameters
    ----------
    model, y, joseph
        As for `loglik`.

    Returns
    -------
    SmootherResult

    Raises
    ------
    DataError
        If the data leave a diffuse element undetermined. Other errors are as for `loglik`.

    See Also
    --------
    filter : States given the past.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> ss.smooth(ss.local_level(1.0, 0.5), [0.1, 0.4, -0.2, 0.3]).mean[:, 0].round(6)
    array([0.154118, 0.181176, 0.098824, 0.165882])
    """
    data = call_data("smooth", model, y)
    of = runner(model, data, joseph)
    s, n, start = of.s, data.steps, start_of(of.s, of.data)
    if start:
        start.require_determined("smooth", n - 1)
    x = of.moments(*first_state(s, start), 0, n)
    g = gains(s, of.data, x, 0, n)
    mean, P = x.filtered_mean, x.filtered_cov
    r, N = of.weights(g.L, g.Y.mT @ g.v, g.Z.mT @ g.Y)
    last = s.xp.zeros((1, *P.shape[1:]))
    r = np.concatenate([r[1:], last[:, :, :1] + s.xp.zeros((1, 1, r.shape[2]))])
    N = np.concatenate([N[1:], last])
    X = P @ g.T.mT
    V = P - X @ N @ X.mT
    delta, all_given = delta_of(x, start), (mean + X @ r, (V + V.mT) * 0.5)
    mean, cov = at_estimate(*all_given, delta)
    signal, signal_cov = at_estimate(*observed_moments(s, *all_given, 0, n), delta)
    fitted = signal + s.at(slice(n), "d")
    return brought(SmootherResult(mean, (cov + cov.mT) * 0.5, fitted, signal_cov), data.xp)
