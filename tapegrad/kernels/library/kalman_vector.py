"""The log-likelihood of a linear Gaussian state space model with several numbers observed at a step.

    x[0] ~ N(m0, P0)       y[t] = C x[t] + e[t],  e[t] ~ N(0, R)       x[t + 1] = A x[t] + q[t],  q[t] ~ N(0, Q)

    model = kalman_vector.Model(A, C, Q, R, m0, P0)
    kalman_vector.loglik(model, y)                    (B,)
    kalman_vector.loglik.value_and_grad(model, y)     (B,), and a Model of the gradients of each sample

As `kalman`, but for C (d, k), R (d, d), of which the symmetric part counts, and y (d, T) or (d, T, B), in which any element may be nan:
the others at that step are used.  k is 1 to 8, d 1 to 4.

Source: Durbin and Koopman, Time Series Analysis by State Space Methods, sections 4.3, 4.10 and 7.2.

>>> import numpy as np, tapegrad as tg
>>> one = np.ones((1, 1))
>>> walk = tg.kernels.kalman_vector.Model(A=one, C=np.ones((2, 1)), Q=one, R=np.eye(2), m0=np.zeros(1), P0=one)
>>> value, gradient = tg.kernels.kalman_vector.loglik.value_and_grad(walk, np.array([[1.0, np.nan, 3.0], [2.0, 1.0, 2.0]]))
>>> gradient.R.round(4)
array([[-0.2955,  0.2218],
       [ 0.2218, -0.4685]])
"""

from typing import Any, NamedTuple

import numpy as np

from .filter_twins import dot, dot_column, filter_steps, filter_sweeps
from .filters import Argument, Filter, Parts
from .handwritten import twin
from .kalman import start
from .on_cpu import Sweeps
from .sweeps import LOG_2_PI
from .vectors import fma, fnma, log, splat, sqrt, where, whole


class Model(NamedTuple):
    """The arguments of `loglik`, and the form of its gradients."""

    A: Any
    C: Any
    Q: Any
    R: Any
    m0: Any
    P0: Any


ARGUMENTS = (
    Argument("A", "kk", varies=True),
    Argument("C", "dk", varies=True),
    Argument("Q", "kk", symmetric=True, varies=True),
    Argument("R", "dd", symmetric=True, varies=True),
    Argument("m0", "k"),
    Argument("P0", "kk", symmetric=True),
)


def step(carry: tuple, model: Model, y: Any) -> tuple:
    """The mean and covariance of the next state, and the log density of y given those before it."""
    m, P = carry
    A, C, Q, R, _, _ = model
    d = len(y)
    h = np.where(np.isnan(y), 0.0, 1.0)
    valid = np.minimum(np.min(np.diag(Q)), np.min(np.diag(R))) >= 0
    C = C * h.reshape(d, 1)
    S = C @ P @ C.T + np.where(np.outer(h, h) > 0, R, np.eye(d))
    v = np.where(h > 0, y, 0.0) - C @ m
    L = np.linalg.cholesky(S)
    W = np.linalg.solve(L, C @ P).T
    z = np.linalg.solve(L, v)
    term = -0.5 * (np.sum(h) * LOG_2_PI + 2.0 * np.sum(np.log(np.diag(L))) + z @ z)
    m, P = m + W @ z, P - W @ W.T
    return (A @ m, A @ P @ A.T + Q), np.where(valid, term, np.nan)


# --- the twin of kalman_vector.cu ---


@twin
def at(i, j):
    """Where an element of a symmetric matrix stands in its lower triangle."""
    return i * (i + 1) // 2 + j if i >= j else j * (j + 1) // 2 + i


@twin
def layout(work, K, D):
    """U, W, V, S, v, z of `work`, and G, PG, s, e of the adjoint."""
    U, n = work, D * (D + 1) // 2
    V = U + 2 * K * D
    v = V + 2 * n
    G = v + 2 * D
    return U, U + K * D, V, V + n, v, v + D, G, G + K * D, G + 2 * K * D, G + (2 * K * D + D)


@twin
def innovation(C, R, y, m, P, U, S, v, K, D):
    for i in range(K):
        for a in range(D):
            U[i * D + a] = where(y[a] == y[a], dot(P + i * K, C + a * K, K), 0)
    for a in range(D):
        x = y[a]
        for i in range(K):
            x = fnma(C[a * K + i], m[i], x)
        v[a] = where(y[a] == y[a], x, 0)
        for b in range(a + 1):
            x = R[at(a, b)]
            for i in range(K):
                x = fma(C[a * K + i], U[i * D + b], x)
            S[at(a, b)] = where((y[a] == y[a]) & (y[b] == y[b]), x, 1 if a == b else 0)


@twin
def factor(S, V, D):
    """S becomes L; V = 1 / L.  The sum of the logarithms of its diagonal, and whether S is positive definite."""
    positive, logs = whole(S[0], True), splat(0, S[0])
    for a in range(D):
        for b in range(a + 1):
            x = S[at(a, b)]
            for c in range(b):
                x = fnma(S[at(a, c)], S[at(b, c)], x)
            if a == b:
                positive = positive & (x > 0)
                S[at(a, b)] = sqrt(x)
            else:
                S[at(a, b)] = x / S[at(b, b)]
    for a in range(D):
        logs = logs + log(S[at(a, a)])
        V[at(a, a)] = 1 / S[at(a, a)]
        for b in range(a):
            x = S[at(a, b)] * V[at(b, b)]
            for c in range(b + 1, a):
                x = fma(S[at(a, c)], V[at(c, b)], x)
            V[at(a, b)] = -(x * V[at(a, a)])
    return logs, positive


@twin
def update(args, y, m, P, m_after, P_after, work, K, D):
    U, W, V, S, v, z, _, _, _, _ = layout(work, K, D)
    innovation(args[1], args[3], y, m, P, U, S, v, K, D)
    logs, positive = factor(S, V, D)
    squares, count = splat(0, logs), splat(0, logs)
    for a in range(D):
        count = count + where(y[a] == y[a], splat(1, logs), 0)
        z[a] = dot(V + at(a, 0), v, a + 1)
        squares = fma(z[a], z[a], squares)
        for i in range(K):
            x = dot(U + i * D, V + at(a, 0), a + 1)
            W[i * D + a] = x
            m_after[i] = fma(x, z[a], m_after[i] if a else m[i])
    for i in range(K):
        for j in range(i + 1):
            x = P[i * K + j]
            for a in range(D):
                x = fnma(W[i * D + a], W[j * D + a], x)
            P_after[i * K + j] = x
            P_after[j * K + i] = x
    return 2 * logs + squares, count, positive


@twin
def innovation_adjoint(y, V, G, PG, s, m_bar, e, z, S_bar, K, D):
    for a in range(D):
        e[a] = dot_column(m_bar, G + a, D, K)
        z[a] = where(y[a] == y[a], e[a] - s[a], 0)
    for a in range(D):
        for b in range(a + 1):
            x, inverse = G[a] * PG[b], splat(0, e[a])
            for i in range(1, K):
                x = fma(G[i * D + a], PG[i * D + b], x)
            for c in range(a, D):
                inverse = fma(V[at(c, a)], V[at(c, b)], inverse)
            x = fma(-0.5, fma(e[a], s[b], s[a] * e[b]), x)
            x = fma(-0.5, fnma(s[a], s[b], inverse), x)
            S_bar[at(a, b)] = where((y[a] == y[a]) & (y[b] == y[b]), x, 0)


@twin
def update_adjoint(args, y, m, P, m_bar, P_bar, bars, work, K, D):
    C, C_bar, R_bar = args[1], bars[1], bars[3]
    U, W, V, S_bar, _, z, G, PG, s, e = layout(work, K, D)  # S has served
    for a in range(D):
        x = splat(0, z[a])
        for c in range(a, D):
            x = fma(V[at(c, a)], z[c], x)
        s[a] = x
        for i in range(K):
            x = splat(0, s[a])
            for c in range(a, D):
                x = fma(W[i * D + c], V[at(c, a)], x)
            G[i * D + a] = x
    for i in range(K):
        for a in range(D):
            PG[i * D + a] = dot_column(P_bar + i * K, G + a, D, K)
    innovation_adjoint(y, V, G, PG, s, m_bar, e, z, S_bar, K, D)
    for i in range(K):
        for a in range(D):  # U_bar, in place of PG
            x = fma(m_bar[i], s[a], -2 * PG[i * D + a])
            for b in range(D):
                x = fma(C[b * K + i], S_bar[at(a, b)], x)
            PG[i * D + a] = where(y[a] == y[a], x, 0)
    for a in range(D):
        for i in range(K):
            x = fnma(z[a], m[i], C_bar[a * K + i])
            for b in range(D):
                x = fma(S_bar[at(a, b)], U[i * D + b], x)
            for j in range(K):
                x = fma(P[i * K + j], PG[j * D + a], x)
            C_bar[a * K + i] = x
            m_bar[i] = fnma(C[a * K + i], z[a], m_bar[i])
        for b in range(a + 1):
            x = S_bar[at(a, b)]
            R_bar[at(a, b)] = R_bar[at(a, b)] + (x if a == b else 2 * x)
    for i in range(K):
        for j in range(i + 1):
            x = P_bar[i * K + j]
            for a in range(D):
                x = fma(0.5, fma(PG[i * D + a], C[a * K + j], PG[j * D + a] * C[a * K + i]), x)
            P_bar[i * K + j] = x
            P_bar[j * K + i] = x


STEPS = filter_steps(update, update_adjoint)


def sweeps(sizes: dict, modes: list) -> Sweeps:
    """On NumPy arrays, for these sizes; mode and rows of each argument."""
    d = sizes["d"]
    return filter_sweeps(STEPS, 4 * sizes["k"] * d + d * (d + 1) + 4 * d, sizes, modes)


loglik = Filter(
    Parts(
        stem="kalman_vector",
        kind=Model,
        arguments=ARGUMENTS,
        start=start,
        step=step,
        sweeps=sweeps,
        stored=lambda sizes: sizes["k"] * (sizes["k"] + 3) // 2,
    )
)
