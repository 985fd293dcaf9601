"""likelihood and recursion: a Python function of one sample becomes a kernel for many, with derivatives.

    k = tg.kernels.likelihood(loglik)       # loglik(theta, datum) -> a number
    k(theta, data)                          # theta (p, B), data (d, N) or (N,): (B,)
    k.value_and_grad(theta, data)           # (B,), (p, B)

The function is traced once. Its NumPy code may use np.log, @, np.linalg, np.where and indexing. It may write
into small arrays that it makes. Captured numbers and arrays are constants, as of the first call. `arguments`
checks arguments; `derivatives` chooses derivatives."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError
from ..._core.primitive import bind, live, values_of
from ..._core.reverse import Tape
from ..._core.trees import tree_map
from ..._core.variable import Variable
from ..._transforms.gradient import value_and_grad
from ...ops.piecewise import where
from ..trace.tracing import trace_likelihood, trace_recursion
from .arguments import (
    is_tree,
)
from .generated_kernel import BLOCKS, GeneratedKernel, KernelParts
from .recorded import RecordedRun


class Likelihood(GeneratedKernel):
    """A kernel that sums over data, made by `likelihood`; ``k(theta, data)`` returns the values (B,).

    See Also
    --------
    likelihood : Makes it, with an example.
    """

    def _rerun(self, theta, data, sample):
        build, numbers, each = self._steps_of(theta, data, sample)
        for y in each:
            value_and_grad(lambda x, y=y: self._parts.f(build(x), y))(numbers)

    def scores(self, theta: Any, data: Any) -> Any:
        """Compute the gradient of each term in one sweep, (N, p, B), or (N, p) for theta (p,).

        A term that is not finite has the gradient 0, unless invalid='nan'.
        """
        theta, data, single = self._arguments(theta, data)
        s = self._families["scores"].F(self._runs["scores"], theta, data).transpose((1, 0, 2))
        return s[:, :, 0] if single else s


class Recursion(GeneratedKernel):
    """A kernel with a carry, made by `recursion`; ``k(theta, data)`` returns the values (B,).

    See Also
    --------
    recursion : Makes it, with an example.
    """

    def _rerun(self, theta, data, sample):
        build, numbers, each = self._steps_of(theta, data, sample)

        def run(x):
            th, total = build(x), 0.0
            carry = self._parts.init(th)
            for y in each:
                carry, term = self._parts.f(carry, th, y)
                total = total + np.sum(term)
            return total

        value_and_grad(run)(numbers)

    def final(self, theta: Any, data: Any) -> Any:
        """Compute the carry after the last datum.

        It is a tree like the one of `init`, with the sample as the last axis of each array (none for
        theta (p,)). It is what the steps give, whatever `invalid` is.

        Examples
        --------
        >>> import numpy as np, tapegrad as tg
        >>> k = tg.kernels.recursion(lambda theta: 0.0, lambda m, theta, y: (theta[0] * m + y, -((y - m) ** 2)))
        >>> k.final(np.array([[0.5, 2.0]]), np.array([1.0, 2.0]))
        array([2.5, 4. ])
        """
        if is_tree(theta):
            kernel, rows, _ = self._of_tree(theta)
            return kernel.final(rows, data)
        theta, data, single = self._arguments(theta, data)
        family = self._families["final"]
        rows = family.F(self._runs["final"], theta, data)
        with family.lock:
            layout = family.program((theta.shape[0], 0 if data.ndim == 1 else data.shape[0], False), 0).layout
        samples = () if single else (theta.shape[1],)
        rows = rows[:, 0] if single else rows
        return tree_map(
            lambda at: rows[at.ravel()[0]] if not at.ndim else rows[at.ravel()].reshape(at.shape + samples),
            layout,
        )

    def path(self, theta, data):
        """Compute what the steps return in place of a contribution, which may be an array of k numbers.

        The result is (k, N, B), or (k, N) for theta (p,).

        Examples
        --------
        >>> import numpy as np, tapegrad as tg
        >>> k = tg.kernels.recursion(lambda theta: 0.0, lambda m, theta, y: (theta[0] * m + y, np.stack([m, m * m])))
        >>> k.path(np.array([0.5]), np.array([2.0, 4.0, 0.0]))
        array([[ 0.,  2.,  5.],
               [ 0.,  4., 25.]])
        """
        theta, data, single = self._arguments(theta, data)
        run = self._runs["path"]
        if isinstance(theta, Variable) and isinstance(live(theta)._trace, Tape):
            run = RecordedRun(self, *run.args)
        rows = self._families["path"].F(run, theta, data)
        return rows[:, :, 0] if single else rows

    def path_of_column(self, arrays: tuple, data, first: int) -> tuple:
        """Compute `path` of one sample as one operation: its first rows, and the others.

        theta (p,) is made of arrays of float64."""
        traced = self._now()
        family = traced.families["path"]
        run: Any = traced.runs["path"]
        if any([isinstance(x, Variable) and isinstance(live(x)._trace, Tape) for x in arrays]):
            run = RecordedRun(self, family)
        return bind(family.column(), (*arrays, data), {"run": run, "first": first})

    def scores(self, theta, data):
        """Compute the gradient of each term, (T, p, B), or (T, p) for theta (p,).

        It is computed in forward mode, in p directions. A term that is not finite has the gradient 0, unless
        invalid='nan'.
        """
        theta, data, single = self._arguments(theta, data)
        p, batch = theta.shape
        many, units, repeated = self._unit_directions(theta, data)
        s = self._families["each"].F(self._runs["each"], many, repeated, (units,))[0]
        s = s.reshape((s.shape[0], p, batch))
        if self._rejects:
            terms = values_of(
                self._families["each"].F(self._runs["each"], values_of(theta), values_of(data))[0]
            )
            s = where(xp_of(terms).isfinite(terms)[:, None, :], s, 0.0)
        return s[:, :, 0] if single else s


def likelihood(
    loglik: Callable, *, missing: str = "skip", invalid: str = "reject", sums: Any = None
) -> Likelihood:
    """Make a kernel for a sum over data of loglik(theta, datum).

    Parameters
    ----------
    loglik : callable
        ``loglik(theta, datum)`` returns a number. theta is the p parameters of one sample, as an array that
        can be unpacked, or a tree; datum is a number for data (N,), and an array (d,) for data (d, N).
    missing : {'skip', 'step'}, default 'skip'
        'skip' leaves out a datum with nan; with 'step' loglik gets it.
    invalid : {'reject', 'nan'}, default 'reject'
        'reject' gives a sample whose value is nan the value -inf and derivatives 0. 'nan' leaves them as
        they are.
    sums : dtype, optional
        ``numpy.float64``: for a float32 theta, terms are computed in float32 and added in float64. The value
        is float64, and gradients are rounded to float32 at the end. For a float64 theta nothing changes.

    Returns
    -------
    Likelihood
        The kernel ``k(theta, data)``. theta is (p, B) for B samples, or (p,) for one. Data are (N,), (d, N)
        or (d, N, B). The value is (B,), and gradients are (p, B).

    Raises
    ------
    ArgumentError
        If an option is unknown; and in a call, if data are infinite or shapes do not fit.

    See Also
    --------
    recursion : For data that depend on the past.
    map : For functions of any shape.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> def normal(theta, x):
    ...     mu, sigma = theta
    ...     return -0.5 * ((x - mu) / sigma) ** 2 - np.log(sigma)
    >>> k = tg.kernels.likelihood(normal)
    >>> theta = np.array([[0.0, 1.0], [1.0, 2.0]])        # two samples: (mu, sigma) = (0, 1) and (1, 2)
    >>> value, gradient = k.value_and_grad(theta, np.array([1.0, 2.0]))
    >>> value.round(4)
    array([-2.5   , -1.5113])
    >>> gradient
    array([[ 3.   ,  0.25 ],
           [ 3.   , -0.875]])
    """
    if missing not in ("skip", "step"):
        raise ArgumentError(f"missing={missing!r}: 'skip' or 'step'")

    def trace(s, build, what):
        return trace_likelihood(
            loglik, *s, missing == "skip", build, what, invalid == "reject", blocks=what in BLOCKS
        )

    made = Likelihood(KernelParts(loglik, trace, missing, invalid, sums))
    made._call = functools.partial(likelihood, missing=missing, invalid=invalid, sums=sums), (loglik,)
    return made


def recursion(
    init: Callable, step: Callable, *, missing: Any = None, invalid: str = "reject", sums: Any = None
) -> Recursion:
    """Make a kernel for a recursion over data, such as a filter.

    The recursion is ``carry = init(theta)``, and ``carry, contribution = step(carry, theta, datum)`` for each
    datum. The value is the sum of the contributions.

    Parameters
    ----------
    init : callable
        ``init(theta)`` returns the carry: a number, an array, or a tree of these.
    step : callable
        ``step(carry, theta, datum)`` returns the next carry and a number.
    missing : 'step', 'skip', callable or None, default None
        What nan in the data means. 'step': the step looks for nan itself, with numpy.where. 'skip': the step
        is left out. A function ``missing(carry, theta)`` returns the next carry; the contribution is 0. None
        raises.
    invalid, sums : optional
        As for `likelihood`. With `sums` the carry stays float32, and contributions and adjoints are added in
        float64.

    Returns
    -------
    Recursion
        The kernel ``k(theta, data)``, with data (T,), (d, T), or (d, T, B) if each sample has its own.

    Raises
    ------
    ArgumentError
        If an option is unknown; and in a call, if data do not fit, or nan is met without `missing`.

    See Also
    --------
    likelihood : For independent data.
    tapegrad.statespace.loglik : Kalman filters of any linear Gaussian model.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> k = tg.kernels.recursion(lambda theta: 0.0, lambda m, theta, y: (theta[0] * y, -0.5 * (y - m) ** 2))
    >>> k.value_and_grad(np.array([[0.5]]), np.array([1.0, 2.0]))
    (array([-1.625]), array([[1.5]]))
    """
    if not (missing in (None, "skip", "step") or callable(missing)):
        raise ArgumentError(
            f"missing={missing!r}: None, 'skip', 'step', or a function (carry, theta) -> carry"
        )

    made = Recursion(parts_of_recursion(init, step, missing, invalid, sums))
    made._call = functools.partial(recursion, missing=missing, invalid=invalid, sums=sums), (init, step)
    return made


def parts_of_recursion(
    init: Callable, step: Callable, missing, invalid: str, sums=None, pure: bool = False
) -> KernelParts:
    def trace(s, build, what):
        return trace_recursion(init, step, *s, missing, build, what, blocks=what in BLOCKS, pure=pure)

    return KernelParts(step, trace, missing, invalid, sums, init)


def named_recursion(
    key: str, init: Callable, step: Callable, short: bool = False, build: Callable | None = None
) -> Recursion:
    """Make a recursion of pure functions that `key` identifies in every process.

    The program stored on disk under the key is used without a trace. nan stays nan. Only the step itself may
    check for missing data. `short` says that it runs for few steps, which limits the time of compilation.
    `build` returns theta of the kernel's rows, once for all steps."""
    made = Recursion(parts_of_recursion(init, step, "step", "nan", pure=True), build, key, short)
    made._call = named_recursion, (key, init, step, short, build)
    return made
