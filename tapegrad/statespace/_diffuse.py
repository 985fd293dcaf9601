"""The first steps after a diffuse start, where the covariance of the state is P + kappa A A', kappa to infinity (DK chapter 5): on
arrays, and in kernels.

An element y = z x + e of an observation meets an infinite variance where w = A' z is not zero.  Then it says what x is along A w, and
nothing else: with M = P z, F = z' M + h,

    K = A w / w'w,   a <- a + K v,   P <- P + K F K' - M K' - K M',   A <- A - A w w' / w'w.

Otherwise K = M / F, and this P is the usual one.  A is carried, and not A A', whose condition number is the square of that of A.

Backward, the weights of the later innovations are series in 1 / kappa, r0 + r1 / kappa and N0 + N1 / kappa + N2 / kappa^2, and so is the
gain: K + u / (w'w kappa) with u = M - K F.  Of r1, N1 and N2 there counts what A meets, n1 = A' r1, N1 = A' N1 and N2 = A' N2 A:

    E(x | all) = a + P r0 + A n1,   V(x | all) = P - P N0 P - A N1 P - (A N1 P)' - A N2 A'.

A' N0 = 0, since what is determined exactly has no more weight on what was unknown; a transition T turns A into T A, so that n1 and N2 do
not see it."""

import math
from typing import Any, NamedTuple

import numpy

from .. import numpy as np
from ._model import Observations, System

ROUNDING = 1e-9


class Element(NamedTuple):
    """One element.  `finite`, `infinite`: which variance it meets, as booleans or as numbers 1 and 0; neither if it is missing.  `per_F`
    is 1 / F, or 0 where it does not meet that, and `per_w` 1 / w'w, or 0."""

    z: Any
    v: Any
    F: Any
    M: Any
    K: Any
    w: Any
    finite: Any
    infinite: Any
    per_F: Any
    per_w: Any


def element(a: Any, P: Any, A: Any, z: Any, h: Any, y: Any, finite: Any, infinite: Any) -> tuple[Any, Any, Any, Element]:
    """The state behind an element, and the element."""
    v, M, w = y - z @ a, P @ z, z @ A
    F = z @ M + h
    per_F, per_w = _if(finite, lambda: 1.0 / F), _if(infinite, lambda: 1.0 / (w @ w))
    K = M * per_F if finite is not False else 0.0
    if infinite is not False:
        along = A @ w * per_w
        K, A = K + along if finite is not False else along, A - np.outer(along, w)
    X = np.outer(K * (F * 0.5) - M, K)
    return a + K * v, P + X + X.T, A, Element(z, v, F, M, K, w, finite, infinite, per_F, per_w)


def _if(flag: Any, number: Any) -> Any:
    """number(), or 0."""
    if isinstance(flag, bool):
        return number() if flag else 0.0
    return np.where(flag > 0.5, number(), 0.0)


def term(x: Element) -> Any:
    """-2 log density of an element."""
    size = _if(x.finite, lambda: np.log(2 * math.pi * x.F)) + _if(x.infinite, lambda: np.log(2 * math.pi * (x.w @ x.w)))
    return size + x.v * x.v * x.per_F


def elements(
    a: Any, P: Any, A: Any, Z: Any, H: Any, y: Any, finite: Any, infinite: Any, apart: bool, xp: Any = numpy
) -> tuple[Any, Any, Any, list[Element]]:
    """The elements of one observation, one after the other.  `apart`: the errors are independent, and H are their variances.  Otherwise
    they join the state for this step, z = (Z[i], e_i), h = 0 (DK 6.4.5)."""
    m, k = a.shape[0], len(finite)
    if apart:
        seen = [(Z[i], H[i]) for i in range(k)]
    else:
        eye, zeros = xp.eye(k), xp.zeros((m, k))
        seen = [(np.concatenate([Z[i], eye[i]]), 0.0) for i in range(k)]
        a = np.concatenate([a, xp.zeros(k)])
        P = np.concatenate([np.concatenate([P, zeros], axis=1), np.concatenate([zeros.T, H], axis=1)])
        A = np.concatenate([A, xp.zeros((k, A.shape[1]))])
    made = []
    for i, (z, h) in enumerate(seen):
        a, P, A, x = element(a, P, A, z, h, y[i], finite[i], infinite[i])
        made.append(x)
    return (a, P, A, made) if apart else (a[:m], P[:m, :m], A[:m], made)


class Weights(NamedTuple):
    """r0 (m,), n1 (q,), N0 (m, m), N1 (q, m), N2 (q, q)."""

    r0: Any
    n1: Any
    N0: Any
    N1: Any
    N2: Any


def behind(r0: Any, N0: Any, q: int, xp: Any = numpy) -> Weights:
    """The weights where nothing is infinite any more."""
    return Weights(r0, xp.zeros(q), N0, xp.zeros((q, N0.shape[0])), xp.zeros((q, q)))


def smoothed(a: Any, P: Any, A: Any, w: Weights) -> tuple[Any, Any]:
    """Mean and covariance of the state given all data."""
    X = A @ w.N1 @ P
    V = P - P @ w.N0 @ P - X - X.T - A @ w.N2 @ A.T
    return a + P @ w.r0 + A @ w.n1, (V + V.T) * 0.5


def through(w: Weights, T: Any) -> Weights:
    """The weights before a transition from those after."""
    return Weights(w.r0 @ T, w.n1, T.T @ w.N0 @ T, w.N1 @ T, w.N2)


def before(weights: Weights, seen: list[Element], xp: Any = numpy) -> Weights:
    """The weights before the elements of one observation.  Where the errors have joined the state their own weights are zero: no later
    step depends on them."""
    m = weights.r0.shape[0]
    size = seen[0].z.shape[0] if seen else m
    if size > m:
        lift = xp.eye(m, size)
        r0, n1, N0, N1, N2 = weights
        weights = Weights(r0 @ lift, n1, lift.T @ N0 @ lift, N1 @ lift, N2)
    for x in reversed(seen):
        weights = _before(weights, x)
    r0, n1, N0, N1, N2 = weights
    return Weights(r0[:m], n1, N0[:m, :m], N1[:, :m], N2) if size > m else weights


def _before(weights: Weights, x: Element) -> Weights:
    """Collected powers of 1 / kappa of the usual recursion r <- z v / F + G' r, N <- z z' / F + G' N G, G = I - K z'."""
    r0, n1, N0, N1, N2 = weights
    z, w, u = x.z, x.w * x.per_w, x.M - x.K * x.F
    S, g = N0 - np.outer(N0 @ x.K, z), np.outer(w, N1 @ u)
    return Weights(
        r0 + z * (x.v * x.per_F - r0 @ x.K),
        n1 + w * (x.v - u @ r0),
        S - np.outer(z, x.K @ S) + np.outer(z, z * x.per_F),
        N1 - np.outer(N1 @ x.K, z) + np.outer(w, z - u @ S),
        N2 - g - g.T + np.outer(w, w * (u @ N0 @ u - x.F)),
    )


def plan_of(s: System, data: Observations) -> tuple[list[list[bool]], bool]:
    """Which observed elements of the first steps meet an infinite variance, until none is left; and whether
    none is left.  It depends on T and Z alone.  Rounding is told from zero by the size of the terms of A' z."""
    A = unknown(s)
    plan: list[list[bool]] = []
    for t in range(data.steps):
        if not A.any():
            return plan, True
        if s.predict_first:
            A = _cleaned(s.host(t, "T") @ A, numpy.abs(s.host(t, "T")) @ numpy.abs(A))
        Z, informative = s.host(t, "Z"), []
        for i in data.rows[t]:
            w, size = Z[i] @ A, numpy.abs(Z[i]) @ numpy.abs(A)
            informative.append(bool(numpy.linalg.norm(w) > ROUNDING * numpy.linalg.norm(size)))
            if informative[-1]:
                orthogonal = numpy.linalg.qr(w[:, None], mode="complete")[0][:, 1:]
                A = _cleaned(A @ orthogonal, numpy.linalg.norm(A, axis=1, keepdims=True))
        plan.append(informative)
        if not s.predict_first and A.any():
            A = _cleaned(s.host(t, "T") @ A, numpy.abs(s.host(t, "T")) @ numpy.abs(A))
    return plan, not A.any()


def unknown(s: System) -> numpy.ndarray:
    """A at the start, (m, q): a column for each diffuse element."""
    return numpy.diag(s.diffuse.astype(float))[:, s.diffuse]


def _cleaned(A: numpy.ndarray, size: numpy.ndarray) -> numpy.ndarray:
    """A with entries that are rounding errors of sums of terms of this size set to zero."""
    return numpy.where(numpy.abs(A) > ROUNDING * size, A, 0.0)
