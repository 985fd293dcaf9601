"""Responses of the observations to a shock of the noise of the states."""

from numbers import Integral
from typing import Any

import numpy
from numpy import ndarray

from ..._core.arrays import to_host
from ..._core.errors import ArgumentError, NotPositiveDefiniteError
from ..._transforms.tape import value
from .._matrices import checked_fields, matrix_field


def impulse_responses(
    fit: Any,
    steps: int = 1,
    impulse: Any = 0,
    orthogonalized: bool = False,
    cumulative: bool = False,
    anchor: Any = 0,
) -> Any:
    """Compute the responses of the series to a shock of the states' noise, 0 to `steps` steps after it.

    Parameters
    ----------
    steps : int, default 1
        The number of steps after the shock.
    impulse : int or array of shape (r,), default 0
        Which noise has a shock of 1, or the sizes of the shocks of all.
    orthogonalized : bool, default False
        Whether the shock is one standard deviation of an independent part of the noise, by the Cholesky
        factor of its covariance.
    cumulative : bool, default False
        Whether responses are summed.
    anchor : int or date, default 0
        The step of the shock, for a model that varies over time.

    Returns
    -------
    array of shape (steps + 1,) or (steps + 1, p), Series or DataFrame
    """
    model, data = fit.model, fit.data
    first = data.labels.position("impulse_responses: anchor", anchor, data.steps)
    if not (isinstance(steps, Integral) and steps >= 0):
        raise ArgumentError(f"impulse_responses: steps={steps!r}; wanted a whole number, at least 0")
    fields, m = checked_fields(model, data)
    field = {name: to_host(value(x)) for name, x in fields.items() if x is not None}
    varying = [name for name in "TZRQ" if name in field and field[name].ndim > 2]
    entering = model.start.predict_first

    def at(name: str, t: int, rows: int, columns: int) -> ndarray:
        x = field[name]
        if name not in varying:
            return matrix_field(x, rows, columns, numpy) if name != "Q" or x.ndim > 1 else x * numpy.eye(rows)
        if not 0 <= t < len(x):
            raise ArgumentError(
                f"impulse_responses: the model varies over time and is known for {len(x)} steps; wanted "
                f"fewer, or another anchor"
            )
        return x[t]

    before = first - (not entering)
    R = at("R", max(before, 0), m, 0) if "R" in field else numpy.eye(m)
    x = R @ _shock(at("Q", max(before, 0), R.shape[1], R.shape[1]), impulse, orthogonalized)
    found = []
    # Z T ... T R e of the steps after the shock e
    for t in range(first, first + steps + 1):
        if t > first:
            x = at("T", t if entering else t - 1, m, m) @ x
        found.append(at("Z", t, data.width, m) @ x)
    responses = numpy.cumsum(found, axis=0) if cumulative else numpy.array(found)
    return data.in_form(responses, numpy.arange(steps + 1))


def _shock(Q: ndarray, impulse, orthogonalized: bool) -> ndarray:
    r = len(Q)
    if isinstance(impulse, Integral) and impulse not in range(r):
        raise ArgumentError(f"impulse_responses: impulse={impulse}; the states have {r} noises")
    try:
        e = numpy.eye(r)[impulse] if isinstance(impulse, Integral) else numpy.asarray(impulse, float)
    except (TypeError, ValueError):
        e = numpy.zeros(0)
    if e.shape != (r,):
        raise ArgumentError(
            f"impulse_responses: impulse={impulse!r}; wanted the number of a noise, 0 to {r - 1}, or ({r},) numbers"
        )
    if not orthogonalized:
        return e
    try:
        return numpy.linalg.cholesky(Q) @ e
    except numpy.linalg.LinAlgError as error:
        raise NotPositiveDefiniteError(
            "impulse_responses: the covariance of the states' noise is singular; use orthogonalized=False"
        ) from error
