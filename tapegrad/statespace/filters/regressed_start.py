"""The first steps after a diffuse start as one regression on their observations, with its derivatives.

Of a model of constant matrices, the observations y of the first steps and the state x after them are normal
for each delta (`filters.augmented`): their means are `mean` plus `effects` @ delta, and their covariance is
V. With a flat prior on delta, the state given y is N(mean_x + K (y - mean_y), U V U'), where U = [K, -1]. K
is the best gain without an effect of delta on the error, so the covariance does not change with K to first
order. The derivatives by the numbers of the model, in which mean and V are affine, therefore need no tape."""

from dataclasses import dataclass
from typing import Any

import numpy
from numpy import ndarray

from ..._core.primitive import is_tracked
from ...ops.linalg.factorizations import solve_triangular
from .._matrices import ModelMatrices
from .._observations import Observations
from .arrays import LOG_2PI
from .augmented import DiffuseStart
from .data_rows import upper, vector_of
from .diffuse_start import BeginPhase
from .step_kernel import KernelForm, triangle_places

REGRESSED_ROWS = 256  # observations of the first steps up to which one regression replaces the filter,
REGRESSED_NUMBERS = 32  # and up to how many numbers of the model that depend on parameters


@dataclass(frozen=True)
class StartRegression:
    """The means (N + m,) and the covariance of N observations and the state after them, as affine maps.

    At the numbers x they are `mean` + x @ `means`, and `V` plus the sum of x times `covs`. `whole`: y are
    all data."""

    start: DiffuseStart
    whole: bool
    y: ndarray
    effects: ndarray
    mean: ndarray
    V: ndarray
    means: ndarray
    covs: ndarray

    def of(self, known: ndarray, slope: ndarray) -> "StartRegression":
        """Return the regression by v, where the numbers are known + slope @ v."""
        mean, V = known @ self.means + self.mean, numpy.tensordot(known, self.covs, 1) + self.V
        covs = numpy.tensordot(slope.T, self.covs, 1)
        return StartRegression(
            self.start, self.whole, self.y, self.effects, mean, V, slope.T @ self.means, covs
        )


class RegressedState:
    """State and log-likelihood at some numbers x.

    `begun` is the vector of `BeginPhase.state`, and `jacobian` its derivative."""

    def __init__(self, of: StartRegression, x: ndarray):
        n = of.y.size
        mean = of.mean + x @ of.means
        V = of.V + numpy.tensordot(x, of.covs, 1)
        X, A = of.effects[:n], of.effects[n:]
        L = numpy.linalg.cholesky(V[:n, :n])
        back = solve_triangular(L, numpy.eye(n), lower=True)
        B, white = back @ V[:n, n:], back @ (of.y - mean[:n])
        Q, R = numpy.linalg.qr(back @ X)
        of.start.require_conditioned(R, of.whole)
        u = Q.T @ white
        left = white - Q @ u
        more = Q.T @ left  # once more, for the digits of what is left
        left, u = left - Q @ more, u + more
        root = solve_triangular(R, numpy.eye(len(R)))
        Y = (A - B.T @ back @ X) @ root
        loglik = -0.5 * (left @ left + n * LOG_2PI) - numpy.log(abs(numpy.diag(L))).sum()
        loglik -= numpy.log(abs(numpy.diag(R))).sum()
        a = mean[n:] + A @ (root @ u) + B.T @ left
        self.begun = numpy.append(upper(a, V[n:, n:] - B.T @ B + Y @ Y.T), loglik)
        U = numpy.concatenate([(Y @ Q.T + B.T) @ back, -numpy.eye(len(A))], axis=1)
        w = back.T @ left  # M (y - mean), with
        free = back - Q @ (Q.T @ back)
        self.M = free.T @ free
        # the derivatives of V, and of V w and the mean, of the observations; then those of U V
        self.S, means = of.covs[:, :n, :n], of.means[:, :n]
        self.along, UV = self.S @ w + means, U @ of.covs
        self.UV, m = UV[:, :, :n], len(A)
        P = (UV @ U.T).reshape(x.size, m * m)[:, triangle_places(m)[0]]
        logs = 0.5 * ((self.along + means) @ w - numpy.tensordot(self.S, self.M))
        moved = -of.means @ U.T - self.UV @ w
        self.jacobian = numpy.concatenate([moved, P, logs[:, None]], axis=1).T

    def hessian(self, weights: ndarray) -> ndarray:
        """Return the second derivatives of weights @ begun."""
        UV, along, SM = self.UV, self.along, self.S @ self.M
        m = UV.shape[1]
        UVM = UV @ self.M
        loglik = 0.5 * numpy.tensordot(SM, SM, ((1, 2), (2, 1)))
        W = numpy.zeros((m, m))
        W.flat[triangle_places(m)[0]] = weights[m:-1]
        means = along @ (weights[:m] @ UVM).T
        covs = numpy.tensordot((W + W.T) @ UV, UVM, ((1, 2), (1, 2)))
        return means + means.T - covs + weights[-1] * (loglik - along @ self.M @ along.T)


@dataclass(frozen=True)
class RegressedPhase(BeginPhase):
    """The first steps, of which `regression` gives the state at the numbers of the model at `places`."""

    regression: StartRegression | Any = None
    places: ndarray | Any = None

    def state(self, form: KernelForm, x, s: ModelMatrices, data: Observations):
        return (
            super().state(form, x, s, data)
            if is_tracked(x)
            else RegressedState(self.regression, x[self.places]).begun
        )


def regressed(
    begin: BeginPhase | None, s: ModelMatrices, data: Observations, at: dict[str, slice], free: ndarray
) -> BeginPhase | None:
    """Return the same beginning as a regression, where that is possible and short.

    `free` marks the numbers of the fields `at` that depend on parameters; the others are those of `s`."""
    if begin is None or begin.start is None or s.varying or s.predict_first:
        return begin
    there = ~numpy.isnan(data.host[: begin.steps])
    places = numpy.flatnonzero(free)
    start = begin.start
    turning = free[at["T"]].any() or free[at["Z"]].any()
    if turning or not 0 < there.sum() <= REGRESSED_ROWS or not 0 < places.size <= REGRESSED_NUMBERS:
        return begin
    (step, element), known = numpy.nonzero(there), numpy.concatenate(vector_of(s, at))
    E = effects(s, step, element, begin.steps)
    numbers = [1.0 * (numpy.arange(known.size) == k) for k in places]
    moments = [joint_moments(x, at, E, step, element) for x in (numpy.where(free, 0.0, known), *numbers)]
    (mean, *means), (V, *covs) = zip(*moments, strict=True)
    X, whole = E[0] @ start.columns, begin.steps == data.steps
    mean, V = mean + X @ start.centre, V + (X * start.spread) @ X.T
    y = data.host[: begin.steps][there]
    means = numpy.stack(means)
    covs = numpy.stack(covs)
    regression = StartRegression(start, whole, y, X, mean, V, means, covs)
    return RegressedPhase(begin.steps, None, start, regression, places)


def effects(s: ModelMatrices, step: ndarray, element: ndarray, steps: int) -> ndarray:
    """Return the effects of the state at each step on the observations (of these steps and elements) and on
    the state after the last: (steps + 1, N + m, m)."""
    m, found = len(s.diffuse), [numpy.eye(step.size + len(s.diffuse))[:, step.size :]]
    for t in reversed(range(steps)):
        X = found[-1] @ s.T
        X[:-m][step == t] = s.Z[element[step == t]]
        found.append(X)
    return numpy.stack(found[::-1])


def joint_moments(
    x: ndarray, at: dict[str, slice], E: ndarray, step: ndarray, element: ndarray
) -> tuple[ndarray, ndarray]:
    """Return mean and covariance of the observations and the state after them, of a model with the numbers x
    in the fields `at`, by the `effects`."""
    m, p = E.shape[2], x[at["d"]].size
    P, Q, H = (x[at[name]].reshape(k, -1) for name, k in (("cov", m), ("Q", m), ("H", p)))
    mean = E[0] @ x[at["mean"]] + E[1:].sum(axis=0) @ x[at["c"]]
    mean[:-m] += x[at["d"]][element]
    i, j = numpy.nonzero(Q)
    V = E[0] @ P @ E[0].T + numpy.tensordot(E[1:, :, i] * Q[i, j], E[1:, :, j], ((0, 2), (0, 2)))
    V[:-m, :-m] += H[element[:, None], element] * (step[:, None] == step)
    return mean, V
