"""The beginning of the ordinary filter after a diffuse start: state and log-likelihood of the first steps.

If the first observations are as many as the diffuse elements and determine them well, the state after them is
an affine map of the model's numbers (`Constants`). Otherwise the augmented filter (`filters.augmented`) runs
until it may be collapsed."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy
from numpy import ndarray

from ... import numpy as np
from ..._core.primitive import is_tracked
from .._matrices import ModelMatrices, system
from .._model import LinearGaussian
from .._observations import Observations
from .arrays import LOG_2PI, ArrayFilter, Moments, first_state, run_recursion, scalar_loglik
from .augmented import DiffuseStart, collapsed, condition, plain_model, start_of
from .data_rows import kernel_data_rows, upper
from .step_kernel import INPUT, KernelForm, path_of, triangle_places

COLLAPSE = 300.0  # condition number of the whitened diffuse columns below which the start may be collapsed


@dataclass(frozen=True)
class BeginPhase:
    """`steps` of the data are filtered before the ordinary kernel: by `constants`, or with columns of
    `start`."""

    steps: int
    constants: "Constants | None" = None
    start: DiffuseStart | Any = None

    def state(self, form: KernelForm, x, s: ModelMatrices, data: Observations):
        """Return mean, upper triangle of the covariance and log-likelihood after these steps, as one vector.

        `x` holds the constant fields of the model, of this form. Raise `LostDigits` if the numbers need more
        steps."""
        if self.constants is not None:
            return np.concatenate(
                [upper(*self.constants.state(s, data)), numpy.array([self.constants.loglik])]
            )
        mean, cov = first_state(s, self.start)
        if not self.steps:
            return np.concatenate([upper(mean, cov), numpy.zeros(1)])
        n, whole = self.steps, self.steps == data.steps
        rows = kernel_data_rows(form, s, data, 0)[:, : n if whole else n + 1]
        found = (
            path_of(form.layout, mean.shape[1]).path(np.concatenate([upper(mean, cov), x[form.at]]), rows).T
        )
        return collapsed_path(found, n, form.layout.width, self.start, whole)


def collapsed_path(found, n: int, p: int, start: DiffuseStart, whole: bool):
    """Return the vector of `BeginPhase.state` from the output of the augmented kernel, (..., steps,
    numbers)."""
    c = 1 + start.rank
    white = found[..., :n, 1 : 1 + p * c].reshape((*found.shape[:-2], n * p, c))
    begun = collapsed(white, found[..., -1, 1 + p * c :], start, whole)
    size = np.sum(found[..., :n, :1], axis=-2)
    return np.concatenate([begun[..., :-1], begun[..., -1:] - 0.5 * size], axis=-1)


def moments_by_kernel(
    form: KernelForm,
    numbers,
    s: ModelMatrices,
    data: Observations,
    mean,
    cov,
    begin: int,
    end: int,
) -> Moments:
    """Return the moments of steps begin to end, from the state before them.

    `numbers` are those of the kernel after the first state."""
    m = form.layout.states
    p = form.layout.width
    columns = mean.shape[-1] if mean.ndim > 1 else 1
    n = end - begin
    theta, (pairs, full) = np.concatenate([upper(mean, cov), numbers]), triangle_places(m)
    x = path_of(form.layout, columns, 2).path(theta, kernel_data_rows(form, s, data, begin)[:, :n]).T
    first, width = 1 + p * columns, m * columns + pairs.size
    states = [x[:, at : at + width] for at in (first, first + width)]
    means = [z[:, : -pairs.size].reshape((n, m, columns)) for z in states]
    covs = [z[:, -pairs.size :][:, full] for z in states]
    return Moments(means[0], covs[0], x[:, 0], x[:, 1:first].reshape((n, p, columns)), means[1], covs[1])


def loglik_on_arrays(
    model: LinearGaussian, data: Observations, joseph: bool = False, s: ModelMatrices | None = None
):
    """Return the log-likelihood by array operations, step by step; `s` is the system of the model."""
    with numpy.errstate(divide="ignore", invalid="ignore"):
        total = scalar_loglik(model, data) if data.width == 1 else None
        if total is not None:
            return total
        s = s or system(model, data)
        constants = constants_of(s, data, is_tracked(s.T) or is_tracked(s.Z))
        begin = 0
        start = None
        if constants is not None:
            a, P = constants.state(s, data)
            total = constants.loglik
            begin = constants.steps
        else:
            start = start_of(s, data)
            start = start.seen() if start else None
            (a, P), total = first_state(s, start), 0.0
        path = run_recursion(s, data, joseph, a, P, begin)
        found = path.whitened()
        if start is None or not start.rank:
            return total - 0.5 * sum(
                [np.sum(size) + np.sum(white * white) for _, size, white in found], s.xp.zeros(())
            )
        size, white = (np.concatenate([x[i].reshape((-1, *x[i].shape[2:])) for x in found]) for i in (1, 2))
        return collapsed(white, upper(path.mean[-1], path.cov[-1]), start, True)[-1] - 0.5 * np.sum(size)


def begin_of(
    s: ModelMatrices, data: Observations, moving: bool, joseph: bool, anew: bool = False
) -> BeginPhase | Any:
    """Return how the filter begins, or None if it begins with the kernel.

    `moving`: transition or observation matrix are differentiated. `anew` ignores the cached beginning of the
    data."""
    bare = start_of(s, data, placed=False)
    if bare is None:
        return BeginPhase(0) if s.predict_first else None
    known = data.begin
    if known is None or anew or known[0] is not bare.rows or known[1] != moving:
        constants = constants_of(s, data, moving)
        if constants is not None:
            found = BeginPhase(constants.steps, constants)
        else:
            start = start_of(s, data).seen()
            found = BeginPhase(last_step(s, data, start, joseph), None, start)
        known = data.begin = bare.rows, moving, found
    return known[2]


def constants_of(s: ModelMatrices, data: Observations, moving: bool) -> "Constants | None":
    """Return the first steps if as many observations as diffuse elements determine the start, otherwise
    None."""
    return Constants(s, start_of(s, data, placed=False)) if is_determined(s, data, moving) else None


def is_determined(s: ModelMatrices, data: Observations, moving: bool) -> bool:
    """Return whether as many observations as diffuse elements determine a diffuse start well."""
    start = start_of(s, data, placed=False)
    if (
        start is None
        or moving
        or s.hidden
        or data.width > 1
        or s.predict_first
        or not start.rank
        or data.xp is not numpy
    ):
        return False
    return start.condition <= COLLAPSE


def last_step(s: ModelMatrices, data: Observations, start: DiffuseStart, joseph: bool) -> int:
    """Return the number of steps before the start may be collapsed.

    If numbers are hidden it is unknown, and the whole sample is augmented."""
    numbers, r, n = plain_model(s), start.rank, data.steps
    if numbers is None or not r:
        return n if r else 0
    if is_tracked(data.values) or data.xp is not numpy:
        data = Observations(data.host)
    s, steps = replace(s, **numbers, xp=numpy), start.least
    while True:
        x = ArrayFilter(s, data, joseph).moments(*first_state(s, start), 0, steps)
        well = lambda k, x=x: condition(x.rows(0, k)[:, 1:]) <= COLLAPSE
        if well(steps):
            break
        if steps == n:
            return n
        steps = min(2 * steps, n)
    low = r - 1
    while steps - low > 1:
        middle = (low + steps) // 2
        low, steps = (low, middle) if well(middle) else (middle, steps)
    return steps


class Constants:
    """The first steps of one series, as many as delta has elements, which determine delta.

    With X the rows of the noise-free observations, delta is X^-1 times their residuals. The state after them
    is T^k A delta plus a sum over the inputs. An input w with covariance W contributes X w with covariance X
    W X'. The parts of transition and observation matrix that delta passes are constant."""

    def __init__(self, s: ModelMatrices, start: DiffuseStart):
        m, r = len(s.diffuse), start.rank
        self.steps = n = start.least
        rows, at = start.rows[:r], start.at[:r, 0]
        self.loglik = -0.5 * r * LOG_2PI - float(numpy.linalg.slogdet(rows)[1])
        A = start.columns[:, :r]
        for t in range(n):
            A = s.host(t, "T") @ A
        gains = numpy.zeros((n, m))
        gains[at] = numpy.linalg.solve(rows.T, A.T)
        self.errors = gains
        self.first, effects = self._effects(s)
        self.noise = effects.reshape(m, n, m).swapaxes(0, 1)

    def _effects(self, s: ModelMatrices) -> tuple[Any, Any]:
        """Return how the state after these steps depends on the first state, (m, m), and on the inputs of
        each step, (m, n m)."""
        X, effects = numpy.eye(len(s.diffuse)), []
        for t in reversed(range(self.steps)):
            effects.append(X)
            X = X @ s.at(t, "T") - self.errors[t][:, None] * s.at(t, "Z")
        return X, np.concatenate(effects[::-1], axis=1)

    def state(self, s: ModelMatrices, data) -> tuple[Any, Any]:
        """Return mean and covariance for any tracked numbers of the system and the data."""
        n = self.steps
        m = len(s.diffuse)
        errors = self.errors
        first, W = self._effects(s)
        c, d, Q, H = (s.at(slice(n), name) for name in "cdQH")
        a = first @ s.mean + errors.T @ (data.values[:n, 0] - (d[:, 0] if "d" in s.varying else d))
        if type(c) is not ndarray or c.any():
            a = a + W @ (c * numpy.ones((n, m))).reshape((n * m,))
        if "Q" in s.varying:
            X = W.reshape((m, n, m)).transpose(1, 0, 2)
            P = np.sum(X @ Q @ X.mT, axis=0)
        else:
            P = (W.reshape((m * n, m)) @ Q).reshape((m, n * m)) @ W.T
        P = P + (errors.T * H[..., 0, 0]) @ errors
        if type(s.cov) is not ndarray or s.cov.any():
            P = P + first @ s.cov @ first.T
        return a, (P + P.T) * 0.5

    def slope(self, s: ModelMatrices, at: dict[str, slice], used: ndarray) -> ndarray:
        """Return the derivative of mean and upper triangle of the covariance with respect to the used
        numbers: the state of a system in which one number is 1, and the others are 0."""
        m, data = len(s.diffuse), SimpleNamespace(values=numpy.zeros((self.steps, 1)))
        made = numpy.zeros((m + triangle_places(m)[0].size, used.size))
        zero: dict[str, Any] = {
            name: numpy.zeros(numpy.shape(getattr(s, name))) for name in ("mean", "cov", *"QHcd")
        }
        for j, e in enumerate(used):
            name = next(name for name, place in at.items() if place.start <= e < place.stop)
            k = int(e) - at[name].start
            if name in INPUT.values():
                unit = s.inputs[name[0]].X[:, :, k]
            else:
                unit = numpy.reshape(numpy.arange(zero[name].size) == k, zero[name].shape).astype(float)
            made[:, j] = upper(*self.state(replace(s, **{**zero, name.split()[0]: unit}), data))
        return made
