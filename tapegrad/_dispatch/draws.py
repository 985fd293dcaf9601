"""Draws whose parameters are tracked, by reparametrisation: a draw is a function of the parameters and of a
standard draw, which does not depend on them.

NumPy draws with standard parameters from the same stream.  The formula is the one in NumPy's own code, so the
derivative is that of the program with its seed.  A parameter by which NumPy chooses what it draws (the shape of
gamma and beta, all parameters of counts) has no such formula, and must not be tracked."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._core.primitive import is_tracked, primal_of, truth_of
from ..ops.declare import NUMPY, shape

exp, log, expm1, log1p, sqrt, where, array, cholesky, eigh, svd = [
    NUMPY[f]
    for f in (
        np.exp, np.log, np.expm1, np.log1p, np.sqrt, np.where, np.array, np.linalg.cholesky, np.linalg.eigh,
        np.linalg.svd,
    )
]  # fmt: skip


class Law(NamedTuple):
    """`defaults`: parameter -> its default (`...`: none), in the order of NumPy's arguments.  `standard`: the
    parameters of the standard draw (None: the parameter itself).  `formula(z, *parameters)` is the draw.
    `holds(*parameters)`: NumPy accepts them."""

    defaults: dict
    standard: tuple
    formula: Callable
    holds: Callable = lambda *parameters: parameters[-1] > 0


def of_triangle(z, left, mode, right):
    u, whole, first = z * z, right - left, mode - left
    low = u * whole <= first
    rising = left + sqrt(where(low, u * whole * first, 1.0))
    return where(low, rising, right - sqrt(where(low, 1.0, (1 - u) * whole * (right - mode))))


PLACED = Law({"loc": 0.0, "scale": 1.0}, (0.0, 1.0), lambda z, loc, scale: loc + scale * z)
SCALED = Law({"scale": 1.0}, (1.0,), lambda z, scale: scale * z)
LAWS = {
    **dict.fromkeys(("normal", "laplace", "logistic", "gumbel"), PLACED),
    **dict.fromkeys(("exponential", "rayleigh"), SCALED),
    "uniform": Law(
        {"low": 0.0, "high": 1.0},
        (0.0, 1.0),
        lambda u, low, high: low + (high - low) * u,
        lambda low, high: high > low,
    ),
    "lognormal": Law(
        {"mean": 0.0, "sigma": 1.0}, (0.0, 1.0), lambda y, mean, sigma: exp(mean + sigma * log(y))
    ),
    "weibull": Law({"a": ...}, (1.0,), lambda z, a: exp(log(z) / a)),
    "power": Law({"a": ...}, (1.0,), lambda u, a: exp(log(u) / a)),
    "pareto": Law({"a": ...}, (1.0,), lambda y, a: expm1(log1p(y) / a)),
    "triangular": Law(
        {"left": ..., "mode": ..., "right": ...},
        (0.0, 1.0, 1.0),
        of_triangle,
        lambda left, mode, right: (left < mode) & (mode < right),
    ),
    "gamma": Law({"shape": ..., "scale": 1.0}, (None, 1.0), lambda z, _, scale: scale * z),
}


def root_of(cov, method: str | None):
    """NumPy's factor A of a covariance A A^T. `method`: that of a Generator; None: a RandomState, which takes
    the right singular vectors."""
    if method == "cholesky":
        return cholesky(cov)
    if method == "eigh":
        s, u = eigh(cov)
        return u * sqrt(abs(s))
    u, s, vt = svd(cov)
    return (vt.T if method is None else u) * sqrt(s)


def normal_vectors(real, draw: Callable, mean, cov, size=None, *rest, **settings):
    """`multivariate_normal`, of which mean and cov may be tracked."""
    mean, cov = array(mean), array(cov)
    draw([primal_of(mean), primal_of(cov), 0, *rest], settings)  # NumPy judges the parameters
    d = len(mean)
    z = draw([np.zeros(d), np.eye(d), size], {})
    method = None if isinstance(real, np.random.RandomState) else settings.get("method", "svd")
    return mean + z @ root_of(cov, method).T


def parameters_of(name: str, args: tuple, kwargs: dict) -> list:
    return [
        args[k] if k < len(args) else kwargs.get(p, default)
        for k, (p, default) in enumerate(LAWS[name].defaults.items())
    ]


def has_formula(name: str, args: tuple, kwargs: dict) -> bool:
    """Is the draw a differentiable function of what is tracked among these?"""
    if name == "multivariate_normal":
        return True
    if name not in LAWS or kwargs.get("out") is not None:
        return False
    fixed = zip(parameters_of(name, args, kwargs), LAWS[name].standard, strict=True)
    return not any([z is None and is_tracked(p) for p, z in fixed])


def holds_hidden(name: str, args: tuple, kwargs: dict) -> bool:
    """Does NumPy accept the parameters, which a trace hides?  A recording is valid for this answer."""
    return name in LAWS and truth_of(np.all(LAWS[name].holds(*parameters_of(name, args, kwargs))))


def reparametrised(real, draw: Callable, name: str, args: tuple, kwargs: dict, accepted: bool = False):
    """`real` is NumPy's generator, `draw(args, kwargs)` its method, or the operation that a recording notes.
    `accepted`: the parameters need no check by NumPy."""
    if name == "multivariate_normal":
        return normal_vectors(real, draw, *args, **kwargs)
    law, params = LAWS[name], parameters_of(name, args, kwargs)
    count = len(params)
    size = args[count] if len(args) > count else kwargs.get("size")
    plain = [primal_of(p) for p in params]
    common = np.broadcast_shapes(*map(shape, plain))
    if not accepted:
        draw(plain, {"size": (0, *common)})  # NumPy judges the parameters
    standard = [p if s is None else s for p, s in zip(plain, law.standard, strict=True)]
    z = draw(standard, {"size": (common or None) if size is None else size})
    return law.formula(z, *params)
