"""Responses of the observations to a shock of the noise of the states."""

from typing import Any

import numpy

from ..._core.arrays import to_host
from ..._core.errors import ArgumentError, NotPositiveDefiniteError
from ..._transforms.tape import value
from .._matrices import checked_fields, matrix_field
from .._model import LinearGaussian
from .._observations import Observations


def responses_of(
    model: LinearGaussian, data: Observations, steps: int, impulse: Any, orthogonalized: bool, anchor: int
) -> numpy.ndarray:
    """Return Z T ... T R e of the steps 0 to `steps` after the shock e, (steps + 1, p)."""
    if not (isinstance(steps, (int, numpy.integer)) and steps >= 0):
        raise ArgumentError(f"impulse_responses: steps={steps!r}; wanted a whole number, at least 0")
    fields, m = checked_fields(model, data)
    field = {name: to_host(value(x)) for name, x in fields.items() if x is not None}
    varying = [name for name in "TZRQ" if name in field and field[name].ndim > 2]
    entering = model.start.predict_first

    def at(name: str, t: int, rows: int, columns: int) -> numpy.ndarray:
        x = field[name]
        if name not in varying:
            return matrix_field(x, rows, columns, numpy) if name != "Q" or x.ndim > 1 else x * numpy.eye(rows)
        if not 0 <= t < len(x):
            raise ArgumentError(
                f"impulse_responses: the model varies over time and is known for {len(x)} steps; wanted "
                f"fewer, or another anchor"
            )
        return x[t]

    before = anchor - (not entering)
    R = at("R", max(before, 0), m, 0) if "R" in field else numpy.eye(m)
    x = R @ _shock(at("Q", max(before, 0), R.shape[1], R.shape[1]), impulse, orthogonalized)
    found = []
    for t in range(anchor, anchor + steps + 1):
        if t > anchor:
            x = at("T", t if entering else t - 1, m, m) @ x
        found.append(at("Z", t, data.width, m) @ x)
    return numpy.array(found)


def _shock(Q: numpy.ndarray, impulse: Any, orthogonalized: bool) -> numpy.ndarray:
    r = len(Q)
    if isinstance(impulse, (int, numpy.integer)) and not 0 <= impulse < r:
        raise ArgumentError(f"impulse_responses: impulse={impulse}; the states have {r} noises")
    try:
        e = (
            numpy.eye(r)[impulse]
            if isinstance(impulse, (int, numpy.integer))
            else numpy.asarray(impulse, float)
        )
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
