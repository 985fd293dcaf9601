"""Minus the log-likelihood of a model function, as a function of its free parameters: by a kernel, or on arrays where there is none.

With x(u) the numbers of the model and l(theta) the kernel, theta = b + S x, the derivatives are

    gradient  (dx/du)' S' l',      Hessian  J' l'' J + d2/du2 <S' l', x(u)>,   J = S dx/du,

where the array tape differentiates x, a few operations without a loop over time, and the kernel l, in all directions in one launch."""

from collections.abc import Callable
from typing import Any

import numpy

from .._transforms import hessian, jacobian, value_and_grad
from .._recording import value
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

    def __init__(self, build: Callable[[Any], LinearGaussian], data: Observations, parameters: Parameters, joseph: bool):
        def free(u: Any) -> LinearGaussian:
            return build(parameters.tree(u))

        def negative_loglik(u: Any, free: Callable, data: Observations) -> Any:
            return -loglik(free(u), data, joseph)

        super().__init__(negative_loglik, data.xp.asarray(parameters.start), (free, Const(data)))
        self.pattern: Pattern | None = None
        self._adopt(free, data, joseph, self.start)

    def _adopt(self, free: Callable, data: Observations, joseph: bool, u: numpy.ndarray, depends: Any = None) -> None:
        """Take the kernel for models near u, if there is one."""
        try:
            found = pattern(free, data, joseph, u, depends)
            self.pattern, self.kernel, self._value_and_grad = found, compiled(found.layout), value_and_grad(self._by_kernel)
            theirs = len(found.constant)
            self.way = f"compiled filter: {found.layout.states} states, {theirs} numbers, {found.rows.shape[1]} of {data.steps} steps"
        except (NotCompiled, KernelError) as error:
            if self.pattern is not None:
                raise
            self.way = f"filter on arrays: {error}"

    def _by_kernel(self, u: Any, _: Callable, free: Callable, data: Observations) -> Any:
        """Minus the log-likelihood."""
        p = self.pattern
        x = p.numbers(u, free, data)
        self._require_still(x)
        total = self.kernel(p.constant + p.slope @ x[p.used], p.rows) + p.begun
        return -(total + x[-1]) if p.numbers.head is not None else -total

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
                numbers = self.pattern.numbers
                self._adopt(numbers.build, numbers.data, numbers.joseph, u, self.pattern.free | error.args[0])

    def _weights(self, gradient: numpy.ndarray) -> numpy.ndarray:
        """Of minus the log-likelihood by the numbers."""
        p = self.pattern
        w = numpy.zeros(p.known.size)
        w[p.used] = -(gradient @ p.slope)
        if p.numbers.head is not None:
            w[-1] = -1.0
        return w

    def hessian(self, u: numpy.ndarray) -> numpy.ndarray:
        if self.pattern is None:
            return super().hessian(u)
        self.hessians += 1
        with numpy.errstate(all="ignore"):
            H = self._settled(self._hessian_by_kernel, u)
        self._require_finite(H, u)
        return (H + H.T) * 0.5

    def _hessian_by_kernel(self, u: numpy.ndarray) -> numpy.ndarray:
        numbers = self.pattern.numbers
        D = jacobian(numbers, mode="forward")(u, *numbers.arguments)
        moved = ~self.pattern.free & (D != 0).any(axis=1)
        if moved.any():
            raise _Moved(moved)
        x = numpy.asarray(numbers(u, numbers.build, numbers.data))
        self._require_still(x)
        p = self.pattern
        theta = p.constant + p.slope @ x[p.used]
        J = p.slope @ D[p.used]
        curved = self.kernel.hvp(numpy.repeat(theta[:, None], u.size, axis=1), J, p.rows)
        w = self._weights(self.kernel.grad(theta, p.rows))
        bent = hessian(lambda u, *rest: w @ numbers(u, *rest))(u, *numbers.arguments)
        return bent - J.T @ curved

    def product(self, u: numpy.ndarray, v: numpy.ndarray) -> numpy.ndarray:
        if self.pattern is None:
            return super().product(u, v)
        self.products += 1
        if self._bent is None or not numpy.array_equal(self._bent[0], u):
            with numpy.errstate(all="ignore"):
                self._bent = u.copy(), self._settled(self._hessian_by_kernel, u)
            self._require_finite(self._bent[1], u)
        return self._bent[1] @ v

    _bent: tuple[numpy.ndarray, numpy.ndarray] | None = None  # the point of the last product, and the Hessian there
