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

from ._filters import Argument, Filter
from ._lanes import LANES, LOG_2_PI, add_product, at, cube, load, nonnegative_diagonal, outcome, places, product, store
from ._library import twin
from .kalman import predict, predict_adjoint, start


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
def innovation(C, R, y, m, P, U, S, v, K, D, n):
    for i in range(K):
        for a in range(D):
            product(U, i * D + a, P, at(i, 0), C, a * K, n)
            for j in range(1, K):
                add_product(U, i * D + a, P, at(i, j), C, a * K + j, n)
            for l in range(n):
                U[i * D + a, l] = U[i * D + a, l] if y[a, l] == y[a, l] else 0
    for a in range(D):
        for l in range(n):
            v[a, l] = y[a, l]
        for i in range(K):
            for l in range(n):
                v[a, l] = v[a, l] - C[a * K + i, l] * m[i, l]
        for l in range(n):
            v[a, l] = v[a, l] if y[a, l] == y[a, l] else 0
        for b in range(a + 1):
            for l in range(n):
                S[at(a, b), l] = R[at(a, b), l]
            for i in range(K):
                add_product(S, at(a, b), C, a * K + i, U, i * D + b, n)
            for l in range(n):
                here = y[a, l] == y[a, l] and y[b, l] == y[b, l]
                S[at(a, b), l] = S[at(a, b), l] if here else (1 if a == b else 0)


@twin
def factor(S, V, logs, positive, D, n):
    """S becomes L; V = 1 / L."""
    for a in range(D):
        for b in range(a + 1):
            for c in range(b):
                for l in range(n):
                    S[at(a, b), l] = S[at(a, b), l] - S[at(a, c), l] * S[at(b, c), l]
            for l in range(n):
                x = S[at(a, b), l]
                if a == b:
                    positive[l] = positive[l] and x > 0
                S[at(a, b), l] = np.sqrt(x) if a == b else x / S[at(b, b), l]
    for l in range(n):
        logs[l] = 0
    for a in range(D):
        for l in range(n):
            logs[l] = logs[l] + np.log(S[at(a, a), l])
            V[at(a, a), l] = 1 / S[at(a, a), l]
        for b in range(a):
            product(V, at(a, b), S, at(a, b), V, at(b, b), n)
            for c in range(b + 1, a):
                add_product(V, at(a, b), S, at(a, c), V, at(c, b), n)
            for l in range(n):
                V[at(a, b), l] = -(V[at(a, b), l] * V[at(a, a), l])


@twin
def update(C, R, y, m, P, work, positive, K, D, n):
    U, W, V, S, v, z, logs, squares = work
    innovation(C, R, y, m, P, U, S, v, K, D, n)
    factor(S, V, logs[0], positive, D, n)
    for l in range(n):
        squares[0, l] = 0
    for a in range(D):
        product(z, a, V, at(a, 0), v, 0, n)
        for b in range(1, a + 1):
            add_product(z, a, V, at(a, b), v, b, n)
        add_product(squares, 0, z, a, z, a, n)
        for i in range(K):
            product(W, i * D + a, U, i * D, V, at(a, 0), n)
            for b in range(1, a + 1):
                add_product(W, i * D + a, U, i * D + b, V, at(a, b), n)
            add_product(m, i, W, i * D + a, z, a, n)
    for i in range(K):
        for j in range(i + 1):
            for a in range(D):
                for l in range(n):
                    P[at(i, j), l] = P[at(i, j), l] - W[i * D + a, l] * W[j * D + a, l]


@twin
def innovation_adjoint(y, V, G, PG, s, m_bar, e, z, S_bar, K, D, n):
    half = V.dtype.type(0.5)
    for a in range(D):
        product(e, a, G, a, m_bar, 0, n)
        for i in range(1, K):
            add_product(e, a, G, i * D + a, m_bar, i, n)
        for l in range(n):
            z[a, l] = e[a, l] - s[a, l] if y[a, l] == y[a, l] else 0
    for a in range(D):
        for b in range(a + 1):
            o = at(a, b)
            product(S_bar, o, G, a, PG, b, n)
            for i in range(1, K):
                add_product(S_bar, o, G, i * D + a, PG, i * D + b, n)
            for l in range(n):
                inverse = V.dtype.type(0)
                for c in range(a, D):
                    inverse = inverse + V[at(c, a), l] * V[at(c, b), l]
                x = S_bar[o, l] - half * (e[a, l] * s[b, l] + s[a, l] * e[b, l]) - half * (inverse - s[a, l] * s[b, l])
                S_bar[o, l] = x if y[a, l] == y[a, l] and y[b, l] == y[b, l] else 0


@twin
def update_adjoint(C, y, m, P, work, extra, C_bar, R_bar, m_bar, P_bar, K, D, n):
    U, W, V, S, e, z, _, _ = work  # S and v have served
    G, PG, s = extra
    half, two = C.dtype.type(0.5), C.dtype.type(2)
    s[:], G[:] = 0, 0
    for a in range(D):
        for c in range(a, D):
            add_product(s, a, V, at(c, a), z, c, n)
        for i in range(K):
            for c in range(a, D):
                add_product(G, i * D + a, W, i * D + c, V, at(c, a), n)
    for i in range(K):
        for a in range(D):
            product(PG, i * D + a, P_bar, at(i, 0), G, a, n)
            for j in range(1, K):
                add_product(PG, i * D + a, P_bar, at(i, j), G, j * D + a, n)
    innovation_adjoint(y, V, G, PG, s, m_bar, e, z, S, K, D, n)
    for i in range(K):
        for a in range(D):
            o = i * D + a
            for l in range(n):
                PG[o, l] = m_bar[i, l] * s[a, l] - two * PG[o, l]
            for b in range(D):
                add_product(PG, o, C, b * K + i, S, at(a, b), n)
            for l in range(n):
                PG[o, l] = PG[o, l] if y[a, l] == y[a, l] else 0
    for a in range(D):
        for i in range(K):
            o = a * K + i
            for l in range(n):
                C_bar[o, l] = C_bar[o, l] - z[a, l] * m[i, l]
                m_bar[i, l] = m_bar[i, l] - C[o, l] * z[a, l]
            for b in range(D):
                add_product(C_bar, o, S, at(a, b), U, i * D + b, n)
            for j in range(K):
                add_product(C_bar, o, P, at(i, j), PG, j * D + a, n)
        for b in range(a + 1):
            for l in range(n):
                x = S[at(a, b), l]
                R_bar[at(a, b), l] = R_bar[at(a, b), l] + (x if a == b else two * x)
    for i in range(K):
        for j in range(i + 1):
            for a in range(D):
                for l in range(n):
                    x = PG[i * D + a, l] * C[a * K + j, l] + PG[j * D + a, l] * C[a * K + i, l]
                    P_bar[at(i, j), l] = P_bar[at(i, j), l] + half * x


@twin
def arrays(K, D, dtype):
    """A, C, Q, R, m, P of a block of samples."""
    matrix, wide, triangle = np.empty((K * K, LANES), dtype), np.empty((D * K, LANES), dtype), np.empty((K * (K + 1) // 2, LANES), dtype)
    return matrix, wide, triangle, np.empty((D * (D + 1) // 2, LANES), dtype), np.empty((K, LANES), dtype), np.empty_like(triangle)


@twin
def scratch(K, D, dtype):
    """U, W, V, S, v, z, logs, squares."""
    wide, triangle, short = np.empty((K * D, LANES), dtype), np.empty((D * (D + 1) // 2, LANES), dtype), np.empty((D, LANES), dtype)
    return (
        wide, np.empty_like(wide), triangle, np.empty_like(triangle), short, np.empty_like(short),
        np.empty((1, LANES), dtype), np.empty((1, LANES), dtype),
    )  # fmt: skip


@twin
def load_step(t, first, theta, data, s, n, place, modes, args, y):
    """Load the observations and arguments of step t."""
    for a in range(len(y)):
        for l in range(n):
            y[a, l] = data[a, t, s + l if data.shape[2] > 1 else 0]
    for a in range(4):
        if first or modes[a]:
            load(args[a], place[a], modes[a], theta, data, t, s, n)


@twin
def forward(theta, data, value, tape, s, n, K, D, place, modes, args, work, y, valid):
    """The filter of the samples s .. s + n; stores the carries if the tape is not empty."""
    A, C, Q, R, m, P = args
    logs, squares = work[6], work[7]
    mean, M = np.empty_like(m), np.empty_like(A)
    total, seen, N = np.zeros(LANES), np.zeros(LANES, np.int64), data.shape[1]
    two = P.dtype.type(2)
    load(m, place[4], 0, theta, data, 0, s, n)
    load(P, place[5], 0, theta, data, 0, s, n)
    valid[:] = True
    nonnegative_diagonal(P, valid, K, n)
    for t in range(N):
        if tape.size:
            tape[t, :K, :n] = m[:, :n]
            tape[t, K:, :n] = P[:, :n]
        load_step(t, t == 0, theta, data, s, n, place, modes, args, y)
        update(C, R, y, m, P, work, valid, K, D, n)
        nonnegative_diagonal(R, valid, D, n)
        nonnegative_diagonal(Q, valid, K, n)
        for l in range(n):
            total[l] += np.float64(two * logs[0, l] + squares[0, l])
            for a in range(D):
                seen[l] += y[a, l] == y[a, l]
        if t + 1 < N:
            predict(A, Q, m, P, mean, M, K, n)
    outcome(value, total, seen, valid, s, n)


@twin
def backward(theta, data, gradient, tape, s, n, K, D, place, modes, args, bars, work, y, valid):
    A, C, Q, R, m, P = args
    A_bar, C_bar, Q_bar, R_bar, m_bar, P_bar = bars
    after, T, mean, M, term = np.empty_like(m), np.empty_like(P), np.empty_like(m), np.empty_like(A), np.empty_like(m)
    extra = np.empty_like(work[0]), np.empty_like(work[0]), np.empty_like(work[4])
    positive, N, two = np.empty(LANES, np.bool_), data.shape[1], P.dtype.type(2)
    for x in bars:
        x[:] = 0
    for t in range(N - 1, -1, -1):
        load_step(t, False, theta, data, s, n, place, modes, args, y)
        m[:, :n] = tape[t, :K, :n]
        P[:, :n] = tape[t, K:, :n]
        after[:] = m
        T[:] = P
        update(C, R, y, after, T, work, positive, K, D, n)
        if t + 1 < N:
            predict_adjoint(A, after, T, A_bar, Q_bar, m_bar, P_bar, M, mean, term, K, n)
        update_adjoint(C, y, m, P, work, extra, C_bar, R_bar, m_bar, P_bar, K, D, n)
        for a in range(4):
            if modes[a]:
                store(gradient, bars[a], place[a], modes[a], t, s, n, valid)
    for i in range(K):
        for j in range(i):
            for l in range(n):
                P_bar[at(i, j), l] = two * P_bar[at(i, j), l]
    for a in range(6):
        if not modes[a]:
            store(gradient, bars[a], place[a], 0, 0, s, n, valid)


def kalman_vector_value(theta, data, value, B, N, K, D, modes, rows):
    dtype, valid = theta.dtype, np.empty(LANES, np.bool_)
    args, work, y = arrays(K, D, dtype), scratch(K, D, dtype), np.empty((D, LANES), dtype)
    place, none = places(modes, rows, N, D), np.empty((0, 0, 0), dtype)
    for s in range(0, B, LANES):
        forward(theta, data, value, none, s, min(LANES, B - s), K, D, place, modes, args, work, y, valid)


def kalman_vector_value_and_grad(theta, data, value, gradient, tape, B, N, K, D, modes, rows):
    dtype, valid = theta.dtype, np.empty(LANES, np.bool_)
    args, bars, work, y = arrays(K, D, dtype), arrays(K, D, dtype), scratch(K, D, dtype), np.empty((D, LANES), dtype)
    place = places(modes, rows, N, D)
    for s in range(0, B, LANES):
        n = min(LANES, B - s)
        forward(theta, data, value, tape, s, n, K, D, place, modes, args, work, y, valid)
        backward(theta, data, gradient, tape, s, n, K, D, place, modes, args, bars, work, y, valid)


def twins(sizes: dict, modes: tuple) -> tuple:
    """The two functions for k states, d observations and these modes."""
    k, d = sizes["k"], sizes["d"]
    rows, modes = np.array([a.rows(sizes) for a in ARGUMENTS]), np.array(modes)

    def value(theta, data, value, B, N):
        kalman_vector_value(theta, cube(data), value, B, N, k, d, modes, rows)

    def both(theta, data, value, gradient, tape, B, N):
        kalman_vector_value_and_grad(theta, cube(data), value, gradient, tape, B, N, k, d, modes, rows)

    return value, both


loglik = Filter("kalman_vector", Model, ARGUMENTS, start, step, twins, lambda sizes: sizes["k"] * (sizes["k"] + 3) // 2)
