"""The data rows that kernels read, and the contents of their theta."""

import numpy
from numpy import ndarray

from ... import numpy as np
from ..._core.primitive import is_tracked, seen
from ..._transforms.tape import value
from .._matrices import ModelMatrices
from .._observations import Observations
from .step_kernel import (
    INPUT,
    OWN,
    REGRESSOR,
    KernelForm,
    constant_codes,
    kernel_form,
    starts,
    triangle_places,
)


def field_vector(x, size: int):
    """Return a field as a vector; a number stands for all elements."""
    return x.reshape((-1,)) if getattr(x, "ndim", 0) else x * numpy.ones(size)


def upper(a, P):
    """Return mean and upper triangle of the covariance as one vector."""
    return np.concatenate([a.reshape((-1,)), P.reshape((-1,))[triangle_places(P.shape[0])[0]]])


def at_steps(s: ModelMatrices, name: str, first: int, steps: int):
    """Return a field that varies over time at each step of the kernel, flat: (steps - first, entries)."""
    ahead = s.predict_first and name[0] in "TQc"
    x = s.series(name)[numpy.minimum(numpy.arange(first, steps) + ahead, steps - 1)]
    return x.reshape((steps - first, -1))


def codes_of_series(s: ModelMatrices, name: str, steps: int) -> ndarray:
    """Return the codes (`constant_codes`) of a field that varies over time; those of inputs are apart."""
    x = s.series(name)
    if name in s.inputs:
        return numpy.zeros(x[0].size, numpy.int8)
    if is_tracked(x):
        return numpy.full(x[0].size, OWN, numpy.int8)
    x = seen(x)[:steps].reshape(steps, -1)
    return constant_codes(x[0], (x != x[0]).any(axis=0))


def form_of_codes(s: ModelMatrices, data: Observations, joseph: bool, codes: list[ndarray]) -> KernelForm:
    """Return the form of a model with these codes of its fields LETTERS."""
    gaps = data.count < data.steps * data.width
    inputs = tuple(
        [(name, k, codes_of_series(s, REGRESSOR[name], data.steps).tobytes()) for name, k in input_sizes(s)]
    )
    return kernel_form(
        len(s.diffuse), data.width, gaps, joseph, s.varying, numpy.concatenate(codes).tobytes(), inputs
    )


def input_sizes(s: ModelMatrices) -> tuple[tuple[str, int], ...]:
    """Return the letters of the offsets that are regressions, and how many coefficients they have."""
    return tuple([(name, x.X.shape[2]) for name, x in s.inputs.items()])


def constant_fields(s: ModelMatrices, p: int) -> dict[str, slice]:
    """Return the places of what does not vary over time, in one vector."""
    return starts(len(s.diffuse), p, s.varying, input_sizes(s))


def vector_of(s: ModelMatrices, at: dict[str, slice]) -> list:
    """Return the constant fields as vectors, and the coefficients of inputs."""
    found = [s.inputs[name[0]].coefficients if name in INPUT.values() else getattr(s, name) for name in at]
    return [field_vector(x, place.stop - place.start) for x, place in zip(found, at.values(), strict=True)]


def data_rows(data: Observations, steps: int, gaps: bool = False) -> tuple[list[ndarray], bool]:
    """Return the observations after the first steps, one row for each element.

    If elements are missing, or with `gaps`, as many rows follow that mark the present ones."""
    y = data.values[steps:]
    y = y if y.dtype == float else y.astype(float)
    there = ~numpy.isnan(numpy.asarray(value(data.raw), float).reshape(data.steps, data.width)[steps:])
    gaps = gaps or not there.all()
    return [*(y[:, i] for i in range(data.width)), *(there.astype(float).T if gaps else ())], gaps


def kernel_data_rows(form: KernelForm, s: ModelMatrices, data: Observations, steps: int):
    """Return the data rows of a kernel that begins after these steps; those without the model are cached."""
    if form.lines or is_tracked(data.values):
        rows, _ = data_rows(data, steps, form.layout.gaps)
        series = {name: at_steps(s, name, steps, data.steps) for name in dict(form.lines)}
        return np.stack(rows + [series[name][:, e] for name, e in form.lines])
    if data.lines is None:
        data.lines = numpy.stack(data_rows(data, 0, form.layout.gaps)[0])
    return data.lines[:, steps:]
