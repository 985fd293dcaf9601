"""Minus the log-likelihood of a model function of its free parameters, by a kernel or on arrays.

The array tape differentiates the map from the parameters to the numbers of the model: a few operations
without a loop over time. The kernel, an operation on that tape, does the rest. For models that the library
knows by name, the kernel includes that map too."""

import contextlib
import hashlib
import math
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy
from numpy import ndarray

from .. import numpy as np
from .._core.arrays import to_host
from .._core.errors import KernelError, TapegradError
from .._core.trees import Const
from .._transforms.gradient import value_and_grad
from .._transforms.hessian_products import hmp
from .._transforms.jacobian import hessian, jacobian
from ..kernels.generated.kernel import Recursion, named_recursion
from ..optimize import Objective
from ._matrices import system
from ._model import LinearGaussian
from ._observations import Observations
from ._parameters import Parameters
from ._pattern import AffineNumbers, ChangedConstants, ModelPattern, NotAffine, NotCompiled, model_pattern
from .filters.arrays import LOG_2PI
from .filters.augmented import LostDigits, diffuse_regression
from .filters.compiled import CompiledFilter, kalman_filter, run_filter
from .filters.diffuse_start import loglik_on_arrays
from .filters.host import brought, host_data, model_of
from .filters.step_kernel import augmented, cache_key, compile_layout, definition, path_of

SWEPT_IN_TURN = 5  # directions up to which each has a sweep of its own
AT_ONCE = 8  # directions from which a sweep takes them together
TRACED = 60  # states times first steps up to which these are traced into a kernel


def kernel_of_model(
    name: str | None, p: ModelPattern, build: Callable, data: Observations, parts: tuple, **options
) -> Recursion:
    """Return a recursion of the free parameters and the first data, with the model function traced into it.

    `parts` are init(theta) and step(carry, theta, row). `name` says what `build` depends on."""
    head: Any = p.numbers.head
    parameters, still = p.numbers.parameters, numpy.flatnonzero(~p.free)
    maps = [(block, shape, constraint.key) for block, _, shape, constraint in parameters.blocks]
    steps = head.steps if head else 0
    k = parameters.start.size
    init, step = parts
    constants = head is None or (head.constants is not None and steps * p.layout.states <= TRACED)
    if name is None or p.begins is not None or not constants or None in [key for *_, key in maps]:
        raise NotCompiled("its name would have to hold functions or data")
    one = data.first(max(steps, 1))  # the numbers are those of any step

    def theta(u):
        begun = copy(one)
        begun.values = u[k:][:, None] if steps else one.values
        x = p.numbers.of(build(parameters.tree(u[:k])), begun)
        known = x[still].constant()
        if known is None or (known != p.known[still]).any():
            raise NotCompiled("numbers that were taken for constants depend on the parameters")
        return p.constant + p.slope @ x[p.used]

    gains = head.constants.errors if head else numpy.zeros(0)
    found = b"".join([x.tobytes() for x in (p.free, p.known[still], p.constant, p.used, gains)])
    affine = hashlib.sha256(found).hexdigest()
    key = f"{name} {parameters.keyed} {maps} {cache_key(p.layout)} {affine} {sorted(options)}"
    return named_recursion(key, init, step, build=theta, **options)


class CompiledObjective:
    """The filter as one kernel from the free parameters on, with the model function traced into it.

    It returns minus the value, less `offset`, and its derivatives. Where a diffuse start begins by constants,
    the first data follow the parameters."""

    way = ", with the model function"

    def __init__(self, name: str | None, p: ModelPattern, build: Callable, data: Observations, offset: float):
        self.kernel = kernel_of_model(name, p, build, data, definition(p.layout))
        head: Any = p.numbers.head
        self.rows, self.first = p.rows, data.values[: head.steps if head else 0, 0]
        self.offset = offset + (head.constants.loglik if head else 0.0)
        self.value_and_grad(p.numbers.parameters.start)  # traces it, unless it is on disk

    def value_and_grad(self, u: ndarray, *_) -> tuple[float, ndarray]:
        total, gradient = self.kernel.value_and_grad(numpy.concatenate([u, self.first]), self.rows)
        return -(total + self.offset), -gradient[: u.size]

    def hessian(self, u: ndarray, *_) -> ndarray:
        k, given = u.size, numpy.concatenate([u, self.first])
        many = numpy.repeat(given[:, None], k, axis=1)
        return -self.kernel.hvp(many, numpy.eye(given.size, k), self.rows)[:k]


class AffineObjective:
    """The filter as one kernel, where the numbers that depend on the parameters are affine in these.

    Each evaluation compares the numbers of its model with the affine map, and does not record the model
    function."""

    way = ", affine in the parameters"

    def __init__(self, p: ModelPattern, kernel: Recursion, build: Callable, offset: float, u: ndarray):
        self.pattern = p
        self.kernel = kernel
        self.build = build
        self.offset = offset + p.begun
        self.parameters, self.numbers = p.numbers.parameters, AffineNumbers(p, build, u)
        self._values(u + 0.1 * (1.0 + 0.5 * numpy.cos(numpy.arange(u.size))))

    def _values(self, u: ndarray) -> ndarray:
        """Return the constrained parameters, after a comparison of the model's numbers with the map."""
        v = self.parameters.flat(u)
        self.numbers.require(self.numbers.of(self.build(self.parameters.tree(u))), v)
        return v

    def value_and_grad(self, u: ndarray, *_) -> tuple[float, ndarray]:
        theta, J, _bent = self.numbers.theta(self._values(u))
        total, by_theta = self.kernel.value_and_grad(theta[:-1], self.pattern.rows)
        by_values = by_theta @ J[:-1] + J[-1]
        return -(total + theta[-1] + self.offset), -(by_values @ self.parameters.derivative(u))

    def hessian(self, u: ndarray, *_) -> ndarray:
        parameters = self.parameters
        theta, J, bent = self.numbers.theta(self._values(u))
        weights = numpy.append(self.kernel.value_and_grad(theta[:-1], self.pattern.rows)[1], 1.0)
        D, by_values = parameters.derivative(u), weights @ J
        moved, many = J[:-1] @ D, numpy.repeat(theta[:-1, None], u.size, axis=1)
        curved = moved.T @ self.kernel.hvp(many, moved, self.pattern.rows) + D.T @ bent(weights) @ D
        return -(curved + hessian(lambda u: by_values @ parameters.flat(u))(u))


class MissingValues(NamedTuple):
    """A model of complete data, and how missing values would change these.

    `data` holds arbitrary numbers for the missing values. `directions` (n, k) are the changes of the data for
    changes of `unit` of each missing value. `name` is that of the problem of complete data."""

    build: Callable[[Any], LinearGaussian]
    data: Observations
    directions: ndarray
    unit: float
    name: str | None


class ModelObjective(Objective):
    """The objective of a fit.

    `way` describes how the likelihood is computed, and why. `name` identifies everything but the parameters
    that `build` depends on."""

    def __init__(
        self,
        build: Callable[[Any], LinearGaussian],
        data: Observations,
        parameters: Parameters,
        joseph: bool = False,
        prior: Callable[[Any], Any] | None = None,
        offset: float = 0.0,
        name: str | None = None,
    ):
        # The user's functions are arguments of the transforms, so that their captured objects are followed.
        def negative(u, build: Callable, prior, data: Observations):
            params = parameters.tree(u)
            return self._less_prior(loglik_on_arrays(build(params), data, joseph), params, prior)

        super().__init__(negative, data.xp.asarray(parameters.start), (build, prior, Const(data)))
        self.offset = offset
        self.count = data.count
        self._parameters = parameters
        self._joseph = joseph
        self._on_arrays = self._f
        self.pattern: Any = None
        self.lowest = numpy.inf, self.start  # the lowest value so far, and its point
        self._curvature: Any = None  # a point, and the second derivatives there
        self._xp, self._data = data.xp, host_data(data)
        built = build if data.xp is numpy else lambda params: model_of(build, params, data.xp)
        self._pattern_at = lambda u, depends=None: model_pattern(
            built, parameters, self._data, joseph, u, depends
        )
        self._whole_of = lambda p: CompiledObjective(
            name if prior is None and data.xp is numpy else None, p, build, data, offset
        )
        self._affine = prior is None and data.xp is numpy  # whether an affine map is looked for
        self._adopt(self.start)

    def _adopt(self, u: ndarray, depends: ndarray | None = None) -> None:
        """Use the kernel for models near u, if there is one."""
        try:
            self.pattern = p = self._pattern_at(u, depends)
            self.kernel, self._f = compile_layout(p.layout), self._by_kernel
            q, n = p.constant.size, p.numbers.data.steps
            self.way = (
                f"compiled filter: {p.layout.states} states, {q} numbers, {p.rows.shape[1]} of {n} steps"
            )
        except (NotCompiled, KernelError) as error:
            self._without_pattern(u, error)
        self._differentiate()

    def _differentiate(self) -> None:
        """Set up the derivatives of the current way to compute the value."""
        self.whole: Any = None
        if self.pattern is not None:
            with contextlib.suppress(NotCompiled, KernelError):
                self.whole = self._whole_of(self.pattern)
            if self.whole is None and self._affine:
                with contextlib.suppress(NotCompiled, NotAffine, ChangedConstants, TapegradError, ValueError):
                    self.whole = AffineObjective(
                        self.pattern, self.kernel, self.args[1], self.offset, self.start
                    )
        if self.whole is None:
            self._value_and_grad, self._hessian = value_and_grad(self._f), self._by_directions
        else:
            self._value_and_grad, self._hessian = self.whole.value_and_grad, self.whole.hessian
            self.way += self.whole.way

    def _by_directions(self, u, *args):
        """Return the Hessian by a sweep for each of a few directions, or one for all of them."""
        units = self.place(numpy.eye(u.size if u.size <= SWEPT_IN_TURN else max(u.size, AT_ONCE), u.size))
        return hmp(self._f, u, units, args)[: u.size]

    def _without_pattern(self, u: ndarray, reason: Exception) -> None:
        """Fall back to a kernel that takes the numbers of each model as they come, or to arrays."""
        build = self.args[1]
        again = self.pattern is None and self._f != self._on_arrays
        self.pattern, self._f = None, self._by_model
        self.way = f"compiled filter, put together anew for each model: {reason}"
        try:
            if again:
                raise reason
            self._run(build, self._parameters.tree(u))
        except (NotCompiled, KernelError) as error:
            self._f, self.way = self._on_arrays, f"filter on arrays: {error}"

    def _run(self, build: Callable, params) -> CompiledFilter:
        return run_filter(
            system(model_of(build, params, self._xp), self._data), self._data, self._joseph, always=True
        )

    def _by_model(self, u, _: Callable, build: Callable, prior, *__):
        """Return minus the log-likelihood, with a kernel put together for each model."""
        params = self._parameters.tree(u)
        return self._less_prior(self._run(build, params).loglik(), params, prior)

    def _less_prior(self, total, params, prior):
        total = total + self.offset
        return -total if prior is None else -(brought(total, self._xp) + prior(params))

    def _by_kernel(self, u, _: Callable, build: Callable, prior, *__):
        """Return minus the log-likelihood, by the kernel of the pattern."""
        p = self.pattern
        params = p.numbers.parameters.tree(u)
        x = p.numbers_of(model_of(build, params, self._xp), self._data)
        total = self.kernel(p.constant + p.slope @ x[p.used], p.rows) + p.begun
        return self._less_prior(total if p.numbers.head is None else total + x[-1], params, prior)

    def scores(self, u: ndarray) -> ndarray:
        """Return the derivatives of the log-likelihood terms with respect to the free parameters, (n, k)."""
        return self._settled(self._scores, u)

    def _scores(self, u: ndarray) -> ndarray:
        build, p, data = self.args[1], self.pattern, self._data

        def terms(u, build: Callable):
            model = model_of(build, self._parameters.tree(u), self._xp)
            if p is None:
                return kalman_filter(model, data, self._joseph).loglik_terms
            x = p.numbers_of(model, data)
            later = self.kernel.contributions(p.constant + p.slope @ x[p.used], p.rows)
            steps = data.steps - later.shape[0]
            if p.numbers.head is None:  # if each gain is constant, so is the term
                first = numpy.zeros(steps)
            else:
                first = (
                    kalman_filter(model, data.first(steps), p.numbers.joseph).loglik_terms
                    if steps
                    else numpy.zeros(0)
                )
            return np.concatenate([first, later])

        return to_host(jacobian(terms, mode="forward")(self.place(u), build))

    def __call__(self, u: ndarray) -> tuple[float, ndarray]:
        value, gradient = self._settled(super().__call__, u)
        if value < self.lowest[0]:
            self.lowest = value, u.copy()
        return value, gradient

    def value(self, u: ndarray) -> float:
        """Return the value, for methods that take no gradient; the Newton steps after them do."""
        return self(u)[0]

    def last_point(self) -> ndarray:
        """Return the last point of evaluation."""
        return self.start if self._last is None else self._last[0]

    def _settled(self, f: Callable, u: ndarray):
        """Return f(u), with a pattern that is valid at u."""
        while True:
            try:
                return f(u)
            except ChangedConstants as error:
                self._adopt(u, self.pattern.free | error.args[0])
            except LostDigits:
                self._adopt(u, self.pattern.free)
            except NotAffine:
                self._affine = False
                self._differentiate()
            except (NotCompiled, KernelError) as error:
                if self._f == self._on_arrays:
                    raise
                self._without_pattern(u, error)
                self._differentiate()

    def hessian(self, u: ndarray) -> ndarray:
        if self._curvature is None or (self._curvature[0] != u).any():
            self._curvature = u.copy(), self._settled(super().hessian, u)
        return self._curvature[1]

    def product(self, u: ndarray, v: ndarray) -> ndarray:
        return self._settled(lambda u: super(ModelObjective, self).product(u, v), u)


class MissingValuesObjective(ModelObjective):
    """The objective of a model of which `missing` gives a smaller form, of complete data.

    The likelihood of the smaller form is a Gaussian function of the missing values. Its integral is the
    likelihood of the observed ones. One kernel filters the data and one series more for each missing value,
    all with the same numbers. Innovations are linear in the data, so a regression gives the integral. Where
    the smaller form has no kernel, the model itself is used."""

    def __init__(self, missing: MissingValues, *given):
        self.missing: MissingValues | None = missing
        super().__init__(*given)

    def _adopt(self, u: ndarray, depends: ndarray | None = None) -> None:
        if self.missing is not None:
            try:
                self._use(self.missing, u, depends)
            except (NotCompiled, KernelError):
                self.missing = depends = None
        if self.missing is None:
            super()._adopt(u, depends)

    def _use(self, missing: MissingValues, u: ndarray, depends: ndarray | None) -> None:
        """Use the kernel of the smaller form."""
        built, data, directions, unit, name = missing
        self.pattern = p = model_pattern(built, self._parameters, data, self._joseph, u, depends)
        if p.numbers.head is not None or p.begins is not None:
            raise NotCompiled("the model of complete data has a diffuse start")
        n, k = directions.shape
        kernel, through = path_of(p.layout, 1, 0), False
        rows = numpy.repeat(p.rows[:, :, None], 1 + k, axis=2)
        rows[0, :, 1:] += directions
        with contextlib.suppress(NotCompiled, KernelError):
            whole = kernel_of_model(name, p, built, data, augmented(p.layout, 1, 0), short=True)
            whole.path(numpy.repeat(u[:, None], 1 + k, axis=1), rows)  # traces it, unless it is on disk
            kernel, through = whole, True
        scale = k * (math.log(unit) + 0.5 * LOG_2PI)

        def negative(u, _: Callable, build: Callable, prior, *__):
            params = self._parameters.tree(u)
            theta = u if through else p.constant + p.slope @ p.numbers_of(built(params), data)[p.used]
            found = kernel.path(np.broadcast_to(theta[:, None], (theta.shape[0], 1 + k)), rows)
            white = found[1, :, :1]
            white = np.concatenate([white, found[1, :, 1:] - white], axis=1)
            integral = diffuse_regression(white, k, k)
            total = scale - 0.5 * (np.sum(found[0, :, 0]) + integral.square) - integral.log_det
            return -total if prior is None else prior(params) - total

        self._f, self.whole = negative, None
        self._value_and_grad, self._hessian = value_and_grad(negative), self._by_directions
        size = f"{p.layout.states} states, {p.constant.size} numbers, {n} steps"
        self.way = f"compiled filter: {size}, {k} missing values"

    def _without_pattern(self, u: ndarray, reason: Exception) -> None:
        if self.missing is None:
            super()._without_pattern(u, reason)
        else:
            self.missing = None
            self._adopt(u)

    def scores(self, u: ndarray) -> ndarray:
        """Return the scores of the model itself: those of single observations have no smaller form."""
        if self.missing is not None:
            self.missing = None
            self._adopt(u)
        return super().scores(u)
