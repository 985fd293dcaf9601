"""From a model function to its kernel.

A pattern says which numbers of the matrices depend on the parameters, which entries are 0 and 1, how the
filter begins, and what the data rows hold. All numbers of a model form one vector (`ConstantFields`). The
kernel's theta is an affine map of those that depend on the parameters.

If as many observations as a diffuse start has elements determine it, under a transition without parameters,
the state after them is affine in the numbers (`filters.diffuse_start.Constants`). Otherwise the augmented
filter runs over the first steps, and the state after them joins the numbers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy
from numpy import ndarray

from .. import numpy as np
from .._core.arrays import xp_of
from .._core.errors import TapegradError
from .._core.primitive import is_tracked
from .._transforms.jacobian import jacobian
from .._transforms.tape import value
from ._matrices import ModelMatrices, system
from ._model import LinearGaussian
from ._observations import Observations
from ._parameters import Parameters
from .filters.arrays import NotCompiled
from .filters.data_rows import (
    codes_of_series,
    constant_fields,
    form_of_codes,
    kernel_data_rows,
    upper,
    vector_of,
)
from .filters.diffuse_start import BeginPhase, Constants, begin_of
from .filters.regressed_start import RegressedPhase, RegressedState, regressed
from .filters.step_kernel import (
    FIELDS,
    LETTERS,
    EntryLayout,
    KernelForm,
    announce,
    constant_codes,
    triangle_places,
)

NAMES = {
    "T": "transition",
    "Z": "observation",
    "Q": "transition_cov",
    "H": "observation_cov",
    "c": "transition_offset",
}
NAMES |= {"d": "observation_offset"}
AFFINE = 1e-13  # relative difference of numbers from an affine map that is rounding


@dataclass(frozen=True)
class ConstantFields:
    """The numbers of a model that do not vary over time, as one vector: the fields of FIELDS, flat, and the
    coefficients of inputs.

    If the filter does not begin by constants (`head`), mean, covariance (upper triangle) and log-likelihood
    of the first steps follow."""

    parameters: Parameters
    data: Observations
    joseph: bool
    at: dict[str, slice]
    states: int
    head: BeginPhase | Any = None
    form: KernelForm | Any = None

    def __call__(self, u, build: Callable, data: Observations):
        return self.of(build(self.parameters.tree(u)), data)

    def of(self, model: LinearGaussian, data: Observations):
        return self.of_system(system(model, data), data)

    def of_system(self, s: ModelMatrices, data: Observations):
        for name in sorted(s.varying - set(s.inputs)):
            if is_tracked(getattr(s, name)):
                raise NotCompiled(f"{NAMES[name]} varies over time and depends on the parameters")
        x = np.concatenate(vector_of(s, self.at))
        return x if self.head is None else np.concatenate([x, self.head.state(self.form, x, s, data)])


class ChangedConstants(Exception):
    """Numbers that were assumed constant depend on the parameters."""


@dataclass(frozen=True)
class ModelPattern:
    """theta = constant + slope @ numbers[used].

    The log-likelihood is the result of the kernel on `rows`, plus `begun` for the steps before these (with a
    head, plus the last of the numbers). `known` holds the numbers at one point; those that are not `free` are
    constant. `all_rows` includes the first steps. `begins` are the first steps, if the state after them is an
    affine map."""

    numbers: ConstantFields
    layout: EntryLayout
    known: ndarray
    free: ndarray
    used: ndarray
    constant: ndarray
    slope: ndarray
    begun: float
    rows: ndarray
    all_rows: ndarray
    begins: Constants | None = None

    def numbers_of(self, model: LinearGaussian, data: Observations):
        """Return the numbers of a model, which must be of this pattern."""
        x = self.numbers.of(model, data)
        moved = ~self.free & (value(x) != self.known)
        if moved.any():
            raise ChangedConstants(moved)
        return x


class NotAffine(Exception):
    """The numbers of a model are not affine in its parameters."""


class AffineNumbers:
    """The numbers of a pattern that are used, as known + slope @ v, with v the constrained parameters.

    Where the first steps are a regression, these are the numbers that it needs."""

    def __init__(self, p: ModelPattern, build: Callable, u: ndarray):
        head, self.pattern, parameters = p.numbers.head, p, p.numbers.parameters
        if not isinstance(head, RegressedPhase | None):
            raise NotAffine
        self.fields, self.used = replace(p.numbers, head=None), p.used if head is None else head.places
        J = jacobian(lambda u, build: self.of(build(parameters.tree(u))), mode="forward")(u, build)
        self.slope, v = numpy.linalg.solve(parameters.derivative(u).T, J.T).T, parameters.flat(u)
        self.known = self.of(build(parameters.tree(u))) - self.slope @ v
        self.size = abs(self.known) + abs(self.slope) @ abs(v)
        fields, k = max(at.stop for at in p.numbers.at.values()), self.used.size
        self.regression = None if head is None else head.regression.of(self.known, self.slope)
        # the places of the kernel's numbers among these and those of the first steps
        self.here = numpy.where(p.used < fields, numpy.searchsorted(self.used, p.used), k + p.used - fields)

    def of(self, model: LinearGaussian):
        """Return the numbers of a model, which must be of the pattern."""
        p, x = self.pattern, self.fields.of(model, self.fields.data)
        moved = ~p.free[: x.size] & (value(x) != p.known[: x.size])
        if moved.any():
            raise ChangedConstants(moved)
        return x[self.used]

    def theta(self, v: ndarray) -> tuple[ndarray, ndarray, Callable]:
        """Return theta with the log-likelihood of the first steps, and their derivatives by v.

        The third result is a function from weights to the second derivatives of weights @ theta."""
        p = self.pattern
        here = self.here
        state = self.regression and RegressedState(self.regression, v)
        begun, by = (state.begun, state.jacobian) if state else (numpy.zeros(1), numpy.zeros((1, v.size)))
        x, J = numpy.append(self.known + self.slope @ v, begun), numpy.concatenate([self.slope, by])

        def bent(weights: ndarray):
            own = numpy.zeros(x.size)
            own[here], own[-1] = weights[:-1] @ p.slope, weights[-1]
            return state.hessian(own[-begun.size :]) if state else numpy.zeros((v.size, v.size))

        theta = numpy.append(p.constant + p.slope @ x[here], x[-1])
        return theta, numpy.append(p.slope @ J[here], J[-1:], axis=0), bent

    def require(self, x: ndarray, v: ndarray) -> None:
        """Raise if numbers (..., q) at the parameters v (..., k) are not those of the map."""
        size = self.size + abs(v) @ abs(self.slope.T)
        if not (abs(x - self.known - v @ self.slope.T) <= AFFINE * size).all():
            raise NotAffine


def model_pattern(
    build: Callable,
    parameters: Parameters,
    data: Observations,
    joseph: bool,
    u: ndarray,
    depends: ndarray | None = None,
    begin: BeginPhase | None = None,
    apart: bool = True,
) -> ModelPattern:
    """Return the pattern of the models near the free parameters u; raise `NotCompiled` if there is none.

    `depends` marks numbers that are known to depend on u. `begin` is the beginning of the filter, if known.
    If `apart`, a diffuse start may begin by constants beside states whose transition depends on u."""
    s = system(build(parameters.tree(u)), data)
    _refuse(s, data)
    numbers = ConstantFields(parameters, data, joseph, constant_fields(s, data.width), len(s.diffuse))
    known, free = _examined(numbers, s, build, u)
    if depends is not None:
        free |= depends[: free.size]
    passed = _passed(s, numbers, free) if apart else numpy.ones(numbers.states, bool)
    turning = [free[numbers.at[x]].reshape(-1, passed.size) for x in "TZ" if x in numbers.at]
    moving = any(x[:, passed].any() for x in turning)
    begin = begin or begin_of(s, data, moving, joseph, anew=True)
    if moving and begin is not None and begin.start is not None and begin.start.rank < s.diffuse.sum():
        raise NotCompiled("what the data see of the diffuse start may depend on the parameters")
    form = form_of_pattern(s, numbers, known, free)
    announce(form.layout, data.steps)
    if begin is not None and (begin.constants is None or any(x.any() for x in turning)):
        begin = regressed(begin, s, data, numbers.at, free) if apart else begin
        numbers = replace(numbers, head=begin, form=form)
        known = numpy.asarray(numbers(u, build, data))
        free = numpy.concatenate([free, numpy.ones(known.size - free.size, bool)])
    return _laid_out(s, numbers, form, known, free, begin)


def _passed(s: ModelMatrices, numbers: ConstantFields, free: ndarray) -> ndarray:
    """Return which states the diffuse elements of the start come to."""
    T = (
        s.series("T").any(axis=0)
        if "T" in s.varying
        else (s.T != 0) | free[numbers.at["T"]].reshape(s.T.shape)
    )
    passed, before = s.diffuse.copy(), -1
    while passed.sum() > before:
        before = passed.sum()
        passed |= T[:, passed].any(axis=1)
    return passed


def _refuse(s: ModelMatrices, data: Observations) -> None:
    """Raise `NotCompiled` for models that no kernel covers."""
    if data.xp is not numpy or any(xp_of(value(getattr(s, name))) is not numpy for name in FIELDS):
        raise NotCompiled("the data are on a device")
    if is_tracked(data.values):
        raise NotCompiled("the data are under differentiation")


def _examined(
    numbers: ConstantFields, s: ModelMatrices, build: Callable, u: ndarray
) -> tuple[ndarray, ndarray]:
    """Return the numbers at u, and which of them change at points around u.

    A number may depend on u only elsewhere. The objective, which compares at each point, finds that. Raise if
    there is no model around u, because then nothing would seem to depend on u."""
    known = numpy.asarray(numbers.of_system(s, numbers.data))
    free, looked = numpy.zeros(known.size, bool), False
    for size in (0.01, -0.03, 0.1):
        try:
            around = u + size * (1.0 + 0.5 * numpy.cos(numpy.arange(u.size)))
            other = system(build(numbers.parameters.tree(around)), numbers.data)
            free |= numpy.asarray(numbers.of_system(other, numbers.data)) != known
        except (TapegradError, ValueError, ArithmeticError):  # no model there
            continue
        looked = True
        for name in sorted(s.varying - set(s.inputs)):
            if name not in other.varying or (value(getattr(s, name)) != value(getattr(other, name))).any():
                raise NotCompiled(f"{NAMES[name]} varies over time and depends on the parameters")
    if not looked:
        raise NotCompiled(
            "there is no model at the points around the start, so it cannot be seen what depends on the "
            "parameters"
        )
    return known, free


def form_of_pattern(s: ModelMatrices, numbers: ConstantFields, known: ndarray, free: ndarray) -> KernelForm:
    codes = {name: codes_of_series(s, name, numbers.data.steps) for name in s.varying}
    codes |= {name: constant_codes(known[at], free[at]) for name, at in numbers.at.items()}
    return form_of_codes(s, numbers.data, numbers.joseph, [codes[name] for name in LETTERS])


def _laid_out(
    s: ModelMatrices,
    numbers: ConstantFields,
    form: KernelForm,
    known: ndarray,
    free: ndarray,
    begin: BeginPhase | None,
) -> ModelPattern:
    m, data, steps = numbers.states, numbers.data, begin.steps if begin else 0
    k = m + triangle_places(m)[0].size
    origin = form.begun
    if numbers.head is not None:  # the result of the first steps follows the fields
        origin = numpy.concatenate([max(at.stop for at in numbers.at.values()) + numpy.arange(k), form.at])
    begins = begin.constants if begin and numbers.head is None else None
    used = numpy.unique(origin[free[origin]]) if begins is None else numpy.flatnonzero(free)
    slope = (origin[:, None] == used).astype(float)
    constant = numpy.where(free[origin], 0.0, known[origin])
    total = 0.0
    if begins is not None:
        slope[:k] = begins.slope(s, numbers.at, used)
        constant[:k] = upper(*begins.state(s, data)) - slope[:k] @ known[used]
        total = begins.loglik
    rows = numpy.ascontiguousarray(kernel_data_rows(form, s, data, 0))
    return ModelPattern(
        numbers,
        form.layout,
        known,
        free,
        used,
        constant,
        slope,
        total,
        numpy.ascontiguousarray(rows[:, steps:]),
        rows,
        begins,
    )
