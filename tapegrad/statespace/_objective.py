"""Minus the log-likelihood of a model function, as a function of its free parameters: by a kernel, or on arrays where there is none.

The array tape differentiates what leads from the parameters to the numbers of the model, a few operations without a loop over time;
the kernel, an operation on that tape, all the rest."""

from collections.abc import Callable
from typing import Any

import numpy

from .._recording import value
from .._transforms import hessian, value_and_grad
from .._tree import Const
from ..errors import KernelError
from ..optimize import Objective
from ._filter import loglik
from ._kernel import compiled
from ._model import LinearGaussian, Observations
from ._parameters import Parameters
from ._pattern import NotCompiled, Pattern, pattern


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
            return self._less_prior(loglik(build(params), data, joseph), params, prior)

        super().__init__(negative, data.xp.asarray(parameters.start), (build, prior, Const(data)))
        self.offset = offset
        self.pattern: Pattern | None = None
        self._pattern_at = lambda u, depends=None: pattern(build, parameters, data, joseph, u, depends)
        self._adopt(self.start)

    def _adopt(self, u: numpy.ndarray, depends: numpy.ndarray | None = None) -> None:
        """Take the kernel for models near u, if there is one."""
        try:
            found = self._pattern_at(u, depends)
            self.pattern, self.kernel = found, compiled(found.layout)
            self._f = self._by_kernel
            self._value_and_grad, self._hessian = value_and_grad(self._f), hessian(self._f)
            q, n = found.constant.size, found.numbers.data.steps
            self.way = f"compiled filter: {found.layout.states} states, {q} numbers, {found.rows.shape[1]} of {n} steps"
        except (NotCompiled, KernelError) as error:
            if self.pattern is not None:
                raise
            self.way = f"filter on arrays: {error}"

    def _less_prior(self, total: Any, params: Any, prior: Any) -> Any:
        total = total + self.offset
        return -total if prior is None else -(total + prior(params))

    def _by_kernel(self, u: Any, _: Callable, build: Callable, prior: Any, data: Observations) -> Any:
        """Minus the log-likelihood."""
        p = self.pattern
        params = p.numbers.parameters.tree(u)
        x = p.numbers.of(build(params), data)
        self._require_still(x)
        total = self.kernel(p.constant + p.slope @ x[p.used], p.rows) + p.begun
        return self._less_prior(total if p.numbers.head is None else total + x[-1], params, prior)

    def _require_still(self, x: Any) -> None:
        moved = ~self.pattern.free & (value(x) != self.pattern.known)
        if moved.any():
            raise _Moved(moved)

    def __call__(self, u: numpy.ndarray) -> tuple[float, numpy.ndarray]:
        return self._settled(super().__call__, u)

    def _settled(self, f: Callable, u: numpy.ndarray) -> Any:
        """f(u), with a pattern that holds at u."""
        while True:
            try:
                return f(u)
            except _Moved as error:
                self._adopt(u, self.pattern.free | error.args[0])

    def hessian(self, u: numpy.ndarray) -> numpy.ndarray:
        return self._settled(super().hessian, u)

    def product(self, u: numpy.ndarray, v: numpy.ndarray) -> numpy.ndarray:
        return self._settled(lambda u: super(ModelObjective, self).product(u, v), u)
