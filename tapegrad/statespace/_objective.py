"""Minus the log-likelihood of a model function, as a function of its free parameters: by a kernel, or on arrays where there is none.

The array tape differentiates what leads from the parameters to the numbers of the model, a few operations without a loop over time;
the kernel, an operation on that tape, all the rest."""

from collections.abc import Callable
from typing import Any

import numpy

from .. import numpy as np
from .._recording import value
from .._transforms import hessian, jacobian, value_and_grad
from .._tree import Const
from ..errors import KernelError
from ..optimize import Objective, to_host
from ._compiled import kalman_filter, run
from ._filter import loglik_on_arrays
from ._kernel import compiled
from ._model import LinearGaussian, Observations, system
from ._parameters import Parameters
from ._pattern import NotCompiled, pattern


class _Moved(Exception):
    """Numbers that were taken for constants depend on the parameters."""


class ModelObjective(Objective):
    """`way` says in words how the likelihood is computed, and why."""

    def __init__(
        self,
        build: Callable[[Any], LinearGaussian],
        data: Observations,
        parameters: Parameters,
        joseph: bool = False,
        prior: Callable[[Any], Any] | None = None,
        offset: float = 0.0,
    ):
        # The user's functions go through the transforms as arguments of ours, so that they are looked into.
        def negative(u: Any, build: Callable, prior: Any, data: Observations) -> Any:
            params = parameters.tree(u)
            return self._less_prior(loglik_on_arrays(build(params), data, joseph), params, prior)

        super().__init__(negative, data.xp.asarray(parameters.start), (build, prior, Const(data)))
        self.offset, self._parameters, self._joseph = offset, parameters, joseph
        self._on_arrays, self.pattern = self._f, None
        self._pattern_at = lambda u, depends=None: pattern(build, parameters, data, joseph, u, depends)
        self._adopt(self.start)

    def _adopt(self, u: numpy.ndarray, depends: numpy.ndarray | None = None) -> None:
        """Take the kernel for models near u, if there is one."""
        try:
            self.pattern = p = self._pattern_at(u, depends)
            self.kernel, self._f = compiled(p.layout), self._by_kernel
            q, n = p.constant.size, p.numbers.data.steps
            self.way = f"compiled filter: {p.layout.states} states, {q} numbers, {p.rows.shape[1]} of {n} steps"
        except (NotCompiled, KernelError) as error:
            self._without_pattern(u, error)
        self._value_and_grad, self._hessian = value_and_grad(self._f), hessian(self._f)

    def _without_pattern(self, u: numpy.ndarray, reason: Exception) -> None:
        """Let the kernel take the numbers of each model as they come; or filter on arrays."""
        _, build, _, data = self.args
        again = self.pattern is None and self._f != self._on_arrays
        self.pattern, self._f = None, self._by_model
        self.way = f"compiled filter, put together anew for each model: {reason}"
        try:
            if again:
                raise reason
            run(system(build(self._parameters.tree(u)), data.value), data.value, self._joseph, always=True)
        except (NotCompiled, KernelError) as error:
            self._f, self.way = self._on_arrays, f"filter on arrays: {error}"

    def _by_model(self, u: Any, _: Callable, build: Callable, prior: Any, data: Observations) -> Any:
        """Minus the log-likelihood."""
        params = self._parameters.tree(u)
        return self._less_prior(run(system(build(params), data), data, self._joseph, always=True).loglik(), params, prior)

    def _less_prior(self, total: Any, params: Any, prior: Any) -> Any:
        total = total + self.offset
        return -total if prior is None else -(total + prior(params))

    def _by_kernel(self, u: Any, _: Callable, build: Callable, prior: Any, data: Observations) -> Any:
        """Minus the log-likelihood."""
        p = self.pattern
        params = p.numbers.parameters.tree(u)
        x = self._numbers(build(params), data)
        total = self.kernel(p.constant + p.slope @ x[p.used], p.rows) + p.begun
        return self._less_prior(total if p.numbers.head is None else total + x[-1], params, prior)

    def _numbers(self, model: LinearGaussian, data: Observations) -> Any:
        p = self.pattern
        x = p.numbers.of(model, data)
        moved = ~p.free & (value(x) != p.known)
        if moved.any():
            raise _Moved(moved)
        return x

    def scores(self, u: numpy.ndarray) -> numpy.ndarray:
        """The derivatives of the log-likelihood terms of each step by the free parameters, (n, k)."""
        return self._settled(self._scores, u)

    def _scores(self, u: numpy.ndarray) -> numpy.ndarray:
        _, build, _, data = self.args
        p = self.pattern

        def terms(u: Any, build: Callable, data: Observations) -> Any:
            model = build(self._parameters.tree(u))
            if p is None:
                return kalman_filter(model, data, self._joseph).loglik_terms
            x = self._numbers(model, data)
            later = self.kernel.contributions(p.constant + p.slope @ x[p.used], p.rows)
            steps = data.steps - later.shape[0]
            if p.numbers.head is None:  # where each gain is constant, so is the term
                first = numpy.zeros(steps)
            else:
                first = kalman_filter(model, data.first(steps), p.numbers.joseph).loglik_terms if steps else numpy.zeros(0)
            return np.concatenate([first, later])

        return to_host(jacobian(terms, mode="forward")(self.place(u), build, data))

    def __call__(self, u: numpy.ndarray) -> tuple[float, numpy.ndarray]:
        return self._settled(super().__call__, u)

    def value(self, u: numpy.ndarray) -> float:
        """For methods that take no gradient; Newton's steps behind them do."""
        return self(u)[0]

    def last_point(self) -> numpy.ndarray:
        """Where it was asked last."""
        return self.start if self._last is None else self._last[0]

    def _settled(self, f: Callable, u: numpy.ndarray) -> Any:
        """f(u), with a pattern that holds at u."""
        while True:
            try:
                return f(u)
            except _Moved as error:
                self._adopt(u, self.pattern.free | error.args[0])
            except (NotCompiled, KernelError) as error:  # the start takes more steps here
                if self._f == self._on_arrays:
                    raise
                self._without_pattern(u, error)
                self._value_and_grad, self._hessian = value_and_grad(self._f), hessian(self._f)

    def hessian(self, u: numpy.ndarray) -> numpy.ndarray:
        return self._settled(super().hessian, u)

    def product(self, u: numpy.ndarray, v: numpy.ndarray) -> numpy.ndarray:
        return self._settled(lambda u: super(ModelObjective, self).product(u, v), u)
