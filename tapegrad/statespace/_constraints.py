"""Constraints on parameters: smooth maps from all real numbers to the values allowed.

An optimiser moves freely in the unconstrained parameters u; the model gets `natural(u)`.  Each map keeps the
shape of its parameter, and is differentiated along with everything else.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy
from numpy import ndarray

from .. import numpy as np
from .._core.arrays import xp_of
from .._core.errors import ArgumentError
from .._transforms.tape import value

NEAREST = 8.0  # free number at which an autoregression is as near to a unit root as the digits allow


@dataclass(frozen=True)
class Constraint:
    """A smooth map from all real numbers to the allowed values of a parameter.

    Attributes
    ----------
    natural : callable
        Maps an array of free numbers to the parameter, with array operations.
    unconstrained : callable
        The inverse, for a plain starting value, which must lie inside.
    wanted : str
        Says in words what is allowed.

    See Also
    --------
    positive, interval, correlation, stationary, invertible, unconstrained : Ready-made constraints.
    """

    name: str
    wanted: str
    natural: Callable[[Any], Any]
    unconstrained: Callable[[ndarray], ndarray]
    inside: Callable[[ndarray], bool]

    def __repr__(self) -> str:
        return self.name

    @property
    def key(self) -> str | None:
        """Identify what `natural` computes, if it is one of the maps below."""
        f = _map_of(self.natural)
        return f"{f.__name__} {getattr(self.natural, 'args', '')}" if f in MAPS else None

    def end(self, u: float) -> float | None:
        """Return a free number that is at the nearest bound to within rounding, None if that is unknown."""
        natural: Any = self.natural
        f = _map_of(natural)
        if f is _completed_block:
            natural, f = natural.args[0], _map_of(natural.args[0])
        if f is exponential_constraint:
            return u - 30.0
        if f is _stationary and natural.args[0] > 0:
            return float(numpy.copysign(NEAREST, u))
        return float(numpy.copysign(15.0, u)) if f in (_from_interval, _stationary) else None

    def start(self, name: str, x: ndarray) -> ndarray:
        """Return the unconstrained starting value; raise an error that names the parameter if it is
        outside."""
        if not numpy.isfinite(x).all() or not self.inside(x):
            raise ArgumentError(f"start of {name} is {x}; {self.name} wants {self.wanted}")
        return self.unconstrained(x)


def unconstrained() -> Constraint:
    """No constraint: any real number.

    Returns
    -------
    Constraint

    See Also
    --------
    positive, interval : Bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> print(ss.unconstrained().natural(np.array([-1.5])))
    [-1.5]
    """
    return Constraint(
        "unconstrained()",
        "finite numbers",
        identity_constraint,
        identity_constraint,
        partial(logit_interval, -numpy.inf, numpy.inf),
    )


def positive() -> Constraint:
    """A constraint to values above zero, by the exponential: variances, rates.

    Returns
    -------
    Constraint

    See Also
    --------
    interval : Two bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> print(ss.positive().natural(np.array([0.0])))
    [1.]
    """
    return Constraint(
        "positive()",
        "numbers above 0",
        exponential_constraint,
        numpy.log,
        partial(logit_interval, 0.0, numpy.inf),
    )


def correlation() -> Constraint:
    """A constraint to values between -1 and 1, by the hyperbolic tangent.

    Returns
    -------
    Constraint

    See Also
    --------
    interval : Other bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> print(ss.correlation().natural(np.array([0.0])))
    [0.]
    """
    return replace(interval(-1, 1), name="correlation()")


def interval(low: float, high: float) -> Constraint:
    """A constraint to values between two bounds, by a shifted hyperbolic tangent.

    Parameters
    ----------
    low, high : float
        The bounds.

    Returns
    -------
    Constraint

    Raises
    ------
    ArgumentError
        If low is not below high.

    See Also
    --------
    positive : One bound.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> print(ss.interval(0.0, 2.0).natural(np.array([0.0])))
    [1.]
    """
    if not low < high:
        raise ArgumentError(f"interval({low}, {high}): wanted low < high")
    middle, half = (low + high) / 2, (high - low) / 2
    return Constraint(
        f"interval({low}, {high})",
        f"numbers between {low} and {high}",
        partial(_from_interval, middle, half),
        partial(_to_interval, middle, half),
        partial(logit_interval, low, high),
    )


def stationary() -> Constraint:
    """A constraint to the coefficients (k,) of a stationary autoregression, y[t] = phi[0] y[t-1] + ...

    Each partial autocorrelation is the tanh of a free number (J. F. Monahan, Biometrika 71 (1984) 403-404;
    O. E. Barndorff-Nielsen and G. Schou, J. Multivariate Anal. 3 (1973) 408-419).

    Returns
    -------
    Constraint

    See Also
    --------
    invertible : For a moving average.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> print(ss.stationary().natural(np.array([0.0, 0.5])).round(6))
    [0.       0.462117]
    """
    return _of_lags("stationary", "autoregression", 1.0)


def invertible() -> Constraint:
    """A constraint to the coefficients (k,) of an invertible moving average, y[t] = e[t] + theta[0] e[t-1] +
    ...

    They are minus the coefficients of a stationary autoregression.

    Returns
    -------
    Constraint

    See Also
    --------
    stationary : For an autoregression.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> print(ss.invertible().natural(np.array([0.0, 0.0])) + 0.0)
    [0. 0.]
    """
    return _of_lags("invertible", "moving average", -1.0)


def _of_lags(name, process, sign):
    maps: list = [partial(f, sign) for f in (_stationary, _free_of_stationary, _is_stationary)]
    article = "an" if sign < 0 else "a"
    return Constraint(f"{name}()", f"the coefficients of {article} {name} {process}", *maps)


def constraint_named(name: str) -> Constraint:
    """Return one of the constraints above from its name."""
    call, numbers = name.rstrip(")").split("(")
    known = {f.__name__: f for f in (unconstrained, positive, correlation, interval, stationary, invertible)}
    return known[call](*[float(x) for x in numbers.split(",") if x])


def partly_fixed(rule: Constraint, known: ndarray, shape: tuple[int, ...], labels: list[str]) -> Constraint:
    """Return the map from the free elements (k,) of a block to the whole block.

    `known` has the other elements, and nan for these. A map that mixes elements cannot be split."""
    free = numpy.isnan(known)
    f = _map_of(rule.natural)
    if free.any() and (f not in MAPS or f is _stationary):
        raise ArgumentError(
            f"fixed: {', '.join([x for x, moves in zip(labels, free, strict=True) if not moves])} belongs "
            f"with {', '.join([x for x, moves in zip(labels, free, strict=True) if moves])} by {rule.name}: "
            "fix all of them, or give the block unconstrained() in constraints"
        )
    natural = partial(
        _completed_block, rule.natural, numpy.nan_to_num(known), numpy.eye(known.size)[:, free], shape
    )
    return Constraint(rule.name, rule.wanted, natural, rule.unconstrained, rule.inside)


# The maps have module-level names, so that a constraint can be pickled.


def _map_of(natural):
    return getattr(natural, "func", natural)


def identity_constraint(x):
    return x


def exponential_constraint(u):
    return np.exp(u)


def logit_interval(low: float, high: float, x: ndarray) -> bool:
    return bool(((low < x) & (x < high)).all())


def _completed_block(natural: Callable, known: ndarray, places: ndarray, shape: tuple[int, ...], u):
    xp = xp_of(value(u))
    whole = xp.asarray(known)
    return (whole + xp.asarray(places) @ natural(u) if places.size else whole).reshape(shape)


def _from_interval(middle: float, half: float, u):
    return middle + half * np.tanh(u)


def _to_interval(middle: float, half: float, x: ndarray) -> ndarray:
    return numpy.arctanh((x - middle) / half)


def _stationary(sign: float, u):
    """Return coefficients; those of an autoregression keep a distance from a unit root, where the variance of
    the stationary start is infinite."""
    return _coefficients(np.tanh(np.clip(u, -NEAREST, NEAREST) if sign > 0 else u)) * sign


def _free_of_stationary(sign: float, x: ndarray) -> ndarray:
    return numpy.arctanh(_partial_autocorrelations(sign * x))


def _is_stationary(sign: float, x: ndarray) -> bool:
    return bool((abs(_partial_autocorrelations(sign * x)) < 1).all())


MAPS = (identity_constraint, exponential_constraint, _from_interval, _stationary)


def _coefficients(r):
    """Durbin and Levinson: phi_k = (phi_{k-1} - r_k reversed(phi_{k-1}), r_k)."""
    if r.ndim == 0:
        return r
    phi = r[:1]
    for k in range(1, r.shape[0]):
        last = r[k : k + 1]
        phi = np.concatenate([phi - last * phi[::-1], last])
    return phi


def _partial_autocorrelations(phi: ndarray) -> ndarray:
    """Invert the recursion; values of size 1 and more, where it stops, show that phi is not stationary."""
    phi = numpy.array(phi, float)
    r = numpy.atleast_1d(phi).copy()
    for k in range(r.size - 1, 0, -1):
        if abs(r[k]) >= 1:
            break
        r[:k] = (r[:k] + r[k] * r[:k][::-1]) / (1 - r[k] ** 2)
    return r.reshape(phi.shape)
