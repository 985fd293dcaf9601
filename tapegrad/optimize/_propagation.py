"""`tapegrad.propagate`: the covariance of a function of estimates, by the delta method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import numpy as np
from .._core.arrays import is_array
from .._core.errors import ArgumentError, ShapeError
from .._core.primitive import layout_of, primal_of
from .._core.scope import entry
from .._transforms.jacobian import jacobian
from .._transforms.tape import ravel


@dataclass(frozen=True)
class Propagated:
    """What `propagate` returns.

    Attributes
    ----------
    value : array or tree
        The value of the function; with ``order=2`` its mean.
    cov : array of shape (m, m)
        The covariance of the flat vector of the m numbers of `value`.
    standard_errors : array or tree
        The square roots of its diagonal, like `value`.
    """

    value: Any
    cov: Any
    standard_errors: Any


@entry
def propagate(f: Callable, x: Any, cov: Any, order: int = 1) -> Propagated:
    """Propagate the covariance of x through f by the delta method.

    Parameters
    ----------
    f : callable
        ``f(x)`` returns an array, a number or a tree of these.
    x : array, number or tree
        The mean, such as estimates.
    cov : array
        The covariance of the flat vector of x, of shape (n, n), or the variances, of shape (n,).
    order : {1, 2}, default 1
        With 2 the second derivatives add to mean and covariance what they add for a normal distribution.

    Returns
    -------
    Propagated
        ``.value``, ``.cov`` and ``.standard_errors``. They carry derivatives within a transform.

    Raises
    ------
    ArgumentError
        If `cov` is not symmetric or has a negative eigenvalue, or if `order` is unknown.
    ShapeError
        If `cov` does not fit x.

    See Also
    --------
    tapegrad.optimize.curve_fit : Estimates and their covariance.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> p = tg.propagate(lambda x: x[0] * x[1], np.array([2.0, 3.0]), np.array([[0.01, 0.0], [0.0, 0.04]]))
    >>> round(float(p.value), 6), round(float(p.standard_errors), 6)
    (6.0, 0.5)
    """
    if order not in (1, 2):
        raise ArgumentError(f"propagate: order={order!r}; it is 1 or 2")
    flat, restore = ravel(x * 1.0 if isinstance(x, int) else x)
    y, back = ravel(f(restore(flat)))
    cov = checked_covariance(cov, flat)

    def vector(u):
        return ravel(f(restore(u)))[0]

    J = jacobian(vector)(flat)
    spread = J @ cov @ J.T
    if order == 2:
        H = jacobian(jacobian(vector))(flat)
        bent = H @ cov
        y = y + 0.5 * np.trace(bent, axis1=1, axis2=2)
        spread = spread + 0.5 * np.einsum("aij,bji->ab", bent, bent)
    return Propagated(back(y), spread, back(np.sqrt(np.diagonal(spread))))


def checked_covariance(cov, flat):
    n = layout_of(flat).shape[0]
    cov = cov if hasattr(cov, "shape") else np.asarray(cov, float)
    if tuple(cov.shape) == (n,):
        return np.diag(cov)
    if cov.size == n * n == 1:
        cov = cov.reshape((1, 1))
    if tuple(cov.shape) != (n, n):
        raise ShapeError(
            f"propagate: cov has shape {tuple(cov.shape)}; wanted is ({n}, {n}), or ({n},) for variances"
        )
    if bool((np.diagonal(cov) < 0).any()):
        raise ArgumentError("propagate: cov has a negative variance")
    if bool((abs(cov - cov.T) > 1e-8 * abs(cov).max()).any()):
        raise ArgumentError("propagate: cov is not symmetric")
    plain = primal_of(cov)
    if is_array(plain) and bool((abs(plain) < np.inf).all()):
        smallest = float(np.linalg.eigvalsh(plain)[0])
        if smallest < -1e-8 * float(abs(plain).max()):
            raise ArgumentError(f"propagate: cov has the negative eigenvalue {smallest:.3g}")
    return cov
