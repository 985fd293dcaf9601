"""The first steps after a diffuse start as one regression on their observations, with its derivatives.

Of a model of constant matrices, the observations y of the first steps and the state x after them are normal
for each delta (`filters.augmented`): their means are `mean` plus `effects` @ delta, and their covariance is
V. With a flat prior on delta, the state given y is N(mean_x + K (y - mean_y), U V U'), where U = [K, -1]. K
is the best gain without an effect of delta on the error, so the covariance does not change with K to first
order. The derivatives by the numbers of the model, in which mean and V are affine, therefore need no tape."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy

from ..._core.primitive import is_tracked
from ...ops.linalg.factorizations import solve_triangular
from .._matrices import ModelMatrices
from .._observations import Observations
from .arrays import LOG_2PI
from .augmented import DiffuseStart
from .data_rows import upper, vector_of
from .diffuse_start import BeginPhase
from .step_kernel import KernelForm, triangle_places

MOST_ROWS = 256  # observations of the first steps up to which one regression replaces the filter,
MOST_NUMBERS = 32  # and up to how many numbers of the model that depend on parameters


@dataclass(frozen=True)
class StartRegression:
    """The means (N + m,) and the covariance of N observations and the state after them, as affine maps.

    At the numbers x they are `mean` + x @ `means`, and `V` plus the sum of x times `covs`. `whole`: y are
    all data."""

    start: DiffuseStart
    whole: bool
    y: numpy.ndarray
    effects: numpy.ndarray
    mean: numpy.ndarray
    V: numpy.ndarray
    means: numpy.ndarray
    covs: numpy.ndarray

    def of(self, known: numpy.ndarray, slope: numpy.ndarray) -> "StartRegression":
        """Return the regression by v, where the numbers are known + slope @ v."""
        mean, V = known @ self.means + self.mean, numpy.tensordot(known, self.covs, 1) + self.V
        covs = numpy.tensordot(slope.T, self.covs, 1)
        return StartRegression(
            self.start, self.whole, self.y, self.effects, mean, V, slope.T @ self.means, covs
        )

    def at(self, x: numpy.ndarray) -> "RegressedState":
        return RegressedState(self, self.mean + x @ self.means, self.V + numpy.tensordot(x, self.covs, 1))


class RegressedState:
    """State and log-likelihood at some numbers; `begun` is the vector of `BeginPhase.state`."""

    def __init__(self, of: StartRegression, mean: numpy.ndarray, V: numpy.ndarray):
        self.of, n = of, of.y.size
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
        self.U = numpy.concatenate([(Y @ Q.T + B.T) @ back, -numpy.eye(len(A))], axis=1)
        self.w = back.T @ left  # M (y - mean), with
        free = back - Q @ (Q.T @ back)
        self.M = free.T @ free

    @cached_property
    def _moved(self) -> tuple[numpy.ndarray, ...]:
        """Return the derivatives of V, of the mean, and of both along w, of the observations; and U V."""
        n = self.of.y.size
        S, means = self.of.covs[:, :n, :n], self.of.means[:, :n]
        return S, means, S @ self.w + means, self.U @ self.of.covs

    def jacobian(self) -> numpy.ndarray:
        """Return the derivatives of `begun`."""
        S, means, along, UV = self._moved
        n, m, w = self.w.size, len(self.U), self.w
        P = (UV @ self.U.T).reshape(len(UV), m * m)[:, triangle_places(m)[0]]
        a = -self.of.means @ self.U.T - UV[:, :, :n] @ w
        loglik = 0.5 * ((along + means) @ w - numpy.tensordot(S, self.M))
        return numpy.concatenate([a, P, loglik[:, None]], axis=1).T

    def hessian(self, weights: numpy.ndarray) -> numpy.ndarray:
        """Return the second derivatives of weights @ begun."""
        S, _, along, UV = self._moved
        n, m, M = self.w.size, len(self.U), self.M
        W = numpy.zeros(m * m)
        W[triangle_places(m)[0]] = weights[m:-1]
        W = W.reshape(m, m)
        UV, SM = UV[:, :, :n], S @ M
        UVM = UV @ M
        means = along @ (weights[:m] @ UVM).T
        covs = numpy.tensordot((W + W.T) @ UV, UVM, ((1, 2), (1, 2)))
        loglik = 0.5 * numpy.tensordot(SM, SM, ((1, 2), (2, 1))) - along @ M @ along.T
        return means + means.T - covs + weights[-1] * loglik


@dataclass(frozen=True)
class RegressedPhase(BeginPhase):
    """The first steps, of which `regression` gives the state at the numbers of the model at `places`."""

    regression: StartRegression | Any = None
    places: numpy.ndarray | Any = None

    def state(self, form: KernelForm, x: Any, s: ModelMatrices, data: Observations) -> Any:
        return super().state(form, x, s, data) if is_tracked(x) else self.regression.at(x[self.places]).begun


def regressed(
    begin: BeginPhase | None, s: ModelMatrices, data: Observations, at: dict[str, slice], free: numpy.ndarray
) -> BeginPhase | None:
    """Return the same beginning as a regression, where that is possible and short.

    `free` marks the numbers of the fields `at` that depend on parameters; the others are those of `s`."""
    if begin is None or begin.start is None or s.varying or s.predict_first:
        return begin
    there, places, start = ~numpy.isnan(data.host[: begin.steps]), numpy.flatnonzero(free), begin.start
    turning = free[at["T"]].any() or free[at["Z"]].any()
    if turning or not 0 < there.sum() <= MOST_ROWS or places.size > MOST_NUMBERS:
        return begin
    known, E = numpy.concatenate(vector_of(s, at)), effects(s, there)
    moments = [joint_moments(1.0 * (numpy.arange(known.size) == k), at, E, there) for k in places]
    mean, V = joint_moments(numpy.where(free, 0.0, known), at, E, there)
    X = E[0] @ start.columns
    mean, V = mean + X @ start.centre, V + (X * start.spread) @ X.T
    means, covs = (numpy.stack([x[i] for x in moments]) for i in (0, 1))
    y, whole = data.host[: begin.steps][there], begin.steps == data.steps
    return RegressedPhase(
        begin.steps, None, start, StartRegression(start, whole, y, X, mean, V, means, covs), places
    )


def effects(s: ModelMatrices, there: numpy.ndarray) -> numpy.ndarray:
    """Return the effects of the state at each step, and of an input before the step after the last, on the
    observations that are `there` and the state after the last step: (n + 1, N + m, m)."""
    (n, p), m = there.shape, len(s.diffuse)
    powers = [numpy.eye(m)]
    for _ in range(n):
        powers.append(s.T @ powers[-1])
    E = numpy.zeros((n + 1, n, p, m))
    for t in range(n):
        E[t, t:] = s.Z @ numpy.stack(powers[: n - t])
    return numpy.concatenate([E[:, there], numpy.stack(powers[::-1])], axis=1)


def joint_moments(
    x: numpy.ndarray, at: dict[str, slice], E: numpy.ndarray, there: numpy.ndarray
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return mean and covariance of the observations and the state after them, of a model with the numbers x
    in the fields `at`, by the `effects`."""
    size, m = E.shape[1:]
    (step, element), p = numpy.nonzero(there), there.shape[1]
    P, Q, H = (x[at[name]].reshape(k, k) for name, k in (("cov", m), ("Q", m), ("H", p)))
    mean = E[0] @ x[at["mean"]] + E[1:].sum(axis=0) @ x[at["c"]]
    mean[:-m] += x[at["d"]][element]
    i, j = numpy.nonzero(Q)
    first, second = (numpy.moveaxis(E[1:, :, k], 1, 0).reshape(size, -1) for k in (i, j))
    V = E[0] @ P @ E[0].T + (first * numpy.tile(Q[i, j], len(E) - 1)) @ second.T
    V[:-m, :-m] += H[element[:, None], element] * (step[:, None] == step)
    return mean, V
