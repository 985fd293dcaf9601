"""The log-likelihood of a linear Gaussian state space model with one number observed at a step.

    x[0] ~ N(m0, P0)       y[t] = c . x[t] + e[t],  e[t] ~ N(0, r)       x[t + 1] = A x[t] + q[t],  q[t] ~ N(0, Q)

    model = kalman.Model(A, c, Q, r, m0, P0)
    kalman.loglik(model, y)                    (B,)
    kalman.loglik.value_and_grad(model, y)     (B,), and a Model of the gradients of each sample

m0 and P0 are those of the first observation's state, before it is seen.  Shapes: A (k, k), c (k,), Q (k, k), r (), m0 (k,), P0 (k, k);
each with an axis B of samples at the end, where the samples have their own; A, c, Q and r also with an axis T of steps in front
of these two: (T, k, k, B) or (T, k, k, 1).  A[t], Q[t] lead from step t to t + 1.  y (T,) or (T, B); nan is missing.  Of Q and P0 the
symmetric part counts, and their gradients are symmetric.  k is 1 to 8.

Source: Durbin and Koopman, Time Series Analysis by State Space Methods, sections 4.3 and 7.2.

>>> import numpy as np, tapegrad as tg
>>> one = np.ones((1, 1))
>>> walk = tg.kernels.kalman.Model(A=one, c=np.ones(1), Q=one, r=np.array([1.0, 2.0]), m0=np.zeros(1), P0=one)
>>> value, gradient = tg.kernels.kalman.loglik.value_and_grad(walk, np.array([1.0, np.nan, 3.0]))
>>> value.round(4), gradient.r.round(4)
(array([-3.9537, -4.086 ]), array([-0.1633, -0.1122]))
"""

from typing import Any, NamedTuple

import numpy as np

from ._filters import Argument, Filter
from ._lanes import (
    LANES,
    LOG_2_PI,
    add_product,
    at,
    copy,
    cube,
    load,
    nonnegative_diagonal,
    outcome,
    places,
    product,
    store,
    subtract_product,
)
from ._library import twin


class Model(NamedTuple):
    """The arguments of `loglik`, and the form of its gradients."""

    A: Any
    c: Any
    Q: Any
    r: Any
    m0: Any
    P0: Any


ARGUMENTS = (
    Argument("A", "kk", varies=True),
    Argument("c", "k", varies=True),
    Argument("Q", "kk", symmetric=True, varies=True),
    Argument("r", "", varies=True),
    Argument("m0", "k"),
    Argument("P0", "kk", symmetric=True),
)


# --- the model in plain Python: the kernel's documentation, its check, and the source of its higher derivatives ---


def start(model: Model) -> tuple:
    return model.m0, np.where(np.min(np.diag(model.P0)) >= 0, model.P0, np.nan)


def step(carry: tuple, model: Model, y: Any) -> tuple:
    """The mean and covariance of the next state, and the log density of y given those before it."""
    m, P = carry
    A, c, Q, r, _, _ = model
    here = ~np.isnan(y)
    valid = np.minimum(np.min(np.diag(Q)), r) >= 0
    u = P @ c
    S = np.where(here, c @ u + r, 1.0)
    v = np.where(here, y, 0.0) - c @ m
    term = np.where(here, -0.5 * (LOG_2_PI + np.log(S) + v * v / S), 0.0)
    gain = np.where(here, u / S, 0.0)
    m, P = m + gain * v, P - np.outer(u, u) * np.where(here, 1.0 / S, 0.0)
    return (A @ m, A @ P @ A.T + Q), np.where(valid, term, np.nan)


# --- the twin of kalman.cu ---


@twin
def update(c, r, y, m, P, u, g, rows, K, n):
    S, inverse, v = rows[0], rows[1], rows[2]
    for l in range(n):
        S[l] = r[0, l]
        v[l] = y[l]
    for i in range(K):
        product(u, i, P, at(i, 0), c, 0, n)
        for j in range(1, K):
            add_product(u, i, P, at(i, j), c, j, n)
    for i in range(K):
        for l in range(n):
            S[l] = S[l] + c[i, l] * u[i, l]
            v[l] = v[l] - c[i, l] * m[i, l]
    for l in range(n):
        here = y[l] == y[l]
        S[l] = S[l] if here else 1
        v[l] = v[l] if here else 0
        inverse[l] = 1 / S[l]
    for i in range(K):
        for l in range(n):
            u[i, l] = u[i, l] if y[l] == y[l] else 0
            g[i, l] = u[i, l] * inverse[l]
            m[i, l] = m[i, l] + g[i, l] * v[l]
    for i in range(K):
        for j in range(i + 1):
            subtract_product(P, at(i, j), g, i, u, j, n)


@twin
def predict(A, Q, m, P, mean, M, K, n):
    for i in range(K):
        product(mean, i, A, i * K, m, 0, n)
        for j in range(1, K):
            add_product(mean, i, A, i * K + j, m, j, n)
        for j in range(K):
            product(M, i * K + j, A, i * K, P, at(0, j), n)
            for p in range(1, K):
                add_product(M, i * K + j, A, i * K + p, P, at(p, j), n)
    for i in range(K):
        copy(m, i, mean, i, n)
        for j in range(i + 1):
            copy(P, at(i, j), Q, at(i, j), n)
            for p in range(K):
                add_product(P, at(i, j), M, i * K + p, A, j * K + p, n)


@twin
def predict_adjoint(A, m, P, A_bar, Q_bar, m_bar, P_bar, PA, mean, term, K, n):
    two = A.dtype.type(2)
    for i in range(K):
        for j in range(K):
            product(PA, i * K + j, P_bar, at(i, 0), A, j, n)
            for p in range(1, K):
                add_product(PA, i * K + j, P_bar, at(i, p), A, p * K + j, n)
    for i in range(K):
        for j in range(K):
            product(term, 0, PA, i * K, P, at(0, j), n)
            for p in range(1, K):
                add_product(term, 0, PA, i * K + p, P, at(p, j), n)
            for l in range(n):
                A_bar[i * K + j, l] = A_bar[i * K + j, l] + (m_bar[i, l] * m[j, l] + two * term[0, l])
    for i in range(K):
        for j in range(i + 1):
            for l in range(n):
                x = P_bar[at(i, j), l]
                Q_bar[at(i, j), l] = Q_bar[at(i, j), l] + (x if i == j else two * x)
    for j in range(K):
        product(mean, j, A, j, m_bar, 0, n)
        for i in range(1, K):
            add_product(mean, j, A, i * K + j, m_bar, i, n)
    for i in range(K):
        for j in range(i + 1):
            product(P_bar, at(i, j), A, i, PA, j, n)
            for p in range(1, K):
                add_product(P_bar, at(i, j), A, p * K + i, PA, p * K + j, n)
    for i in range(K):
        copy(m_bar, i, mean, i, n)


@twin
def update_adjoint(c, y, m, P, u, g, rows, c_bar, r_bar, m_bar, P_bar, w, u_bar, sums, K, n):
    half, two = c.dtype.type(0.5), c.dtype.type(2)
    inverse, v, q, e = rows[1], rows[2], sums[0], sums[1]
    for l in range(n):
        q[l] = 0
        e[l] = 0
    for i in range(K):
        product(w, i, P_bar, at(i, 0), u, 0, n)
        for j in range(1, K):
            add_product(w, i, P_bar, at(i, j), u, j, n)
        for l in range(n):
            q[l] = q[l] + w[i, l] * g[i, l]
            e[l] = e[l] + m_bar[i, l] * g[i, l]
    for l in range(n):
        vs = v[l] * inverse[l]
        S_bar = inverse[l] * (q[l] - half) + vs * (half * vs - e[l])
        q[l] = S_bar if y[l] == y[l] else 0
        e[l] = e[l] - vs  # the cotangent of v
        r_bar[0, l] = r_bar[0, l] + q[l]
    for i in range(K):
        for l in range(n):
            u_bar[i, l] = m_bar[i, l] * (v[l] * inverse[l]) - two * w[i, l] * inverse[l] + c[i, l] * q[l]
    for i in range(K):
        for l in range(n):
            w[i, l] = u[i, l] * q[l] - m[i, l] * e[l]
        for j in range(K):
            add_product(w, i, P, at(i, j), u_bar, j, n)
        for l in range(n):
            c_bar[i, l] = c_bar[i, l] + w[i, l]
            m_bar[i, l] = m_bar[i, l] - c[i, l] * e[l]
    for i in range(K):
        for j in range(i + 1):
            for l in range(n):
                P_bar[at(i, j), l] = P_bar[at(i, j), l] + half * (u_bar[i, l] * c[j, l] + c[i, l] * u_bar[j, l])


@twin
def arrays(K, dtype):
    """A, c, Q, r, m, P of a block of samples."""
    N = K * (K + 1) // 2
    matrix, vector, triangle = np.empty((K * K, LANES), dtype), np.empty((K, LANES), dtype), np.empty((N, LANES), dtype)
    return matrix, vector, triangle, np.empty((1, LANES), dtype), np.empty_like(vector), np.empty_like(triangle)


@twin
def scratch(K, dtype):
    """M; u; S, 1 / S, v and y; g."""
    return np.empty((K * K, LANES), dtype), np.empty((K, LANES), dtype), np.empty((4, LANES), dtype), np.empty((K, LANES), dtype)


@twin
def load_step(t, first, theta, data, s, n, place, modes, args, y):
    """Load the observations and arguments of step t."""
    for l in range(n):
        y[l] = data[0, t, s + l if data.shape[2] > 1 else 0]
    for a in range(4):
        if first or modes[a]:
            load(args[a], place[a], modes[a], theta, data, t, s, n)


@twin
def forward(theta, data, value, tape, s, n, K, place, modes, args, work, valid):
    """The filter of the samples s .. s + n; stores the carries if the tape is not empty."""
    A, c, Q, r, m, P = args
    M, u, rows, g = work
    total, seen, N = np.zeros(LANES), np.zeros(LANES, np.int64), data.shape[1]
    S, inverse, v, y = rows[0], rows[1], rows[2], rows[3]
    load(m, place[4], 0, theta, data, 0, s, n)
    load(P, place[5], 0, theta, data, 0, s, n)
    valid[:] = True
    nonnegative_diagonal(P, valid, K, n)
    for t in range(N):
        if tape.size:
            tape[t, :K, :n] = m[:, :n]
            tape[t, K:, :n] = P[:, :n]
        load_step(t, t == 0, theta, data, s, n, place, modes, args, y)
        update(c, r, y, m, P, u, g, rows, K, n)
        nonnegative_diagonal(Q, valid, K, n)
        for l in range(n):
            here = y[l] == y[l]
            total[l] += np.float64(np.log(S[l]) + v[l] * inverse[l] * v[l]) if here else 0.0
            seen[l] += here
            valid[l] = valid[l] and S[l] > 0 and r[0, l] >= 0
        if t + 1 < N:
            predict(A, Q, m, P, u, M, K, n)
    outcome(value, total, seen, valid, s, n)


@twin
def backward(theta, data, gradient, tape, s, n, K, place, modes, args, bars, work, valid):
    A, c, Q, r, m, P = args
    A_bar, c_bar, Q_bar, r_bar, m_bar, P_bar = bars
    M, u, rows, g = work
    after, R, w, u_bar, sums = np.empty_like(m), np.empty_like(P), np.empty_like(m), np.empty_like(m), np.empty_like(rows)
    y, N, two = rows[3], data.shape[1], P.dtype.type(2)
    for x in bars:
        x[:] = 0
    for t in range(N - 1, -1, -1):
        load_step(t, False, theta, data, s, n, place, modes, args, y)
        m[:, :n] = tape[t, :K, :n]
        P[:, :n] = tape[t, K:, :n]
        after[:] = m
        R[:] = P
        update(c, r, y, after, R, u, g, rows, K, n)
        if t + 1 < N:
            predict_adjoint(A, after, R, A_bar, Q_bar, m_bar, P_bar, M, w, sums, K, n)
        update_adjoint(c, y, m, P, u, g, rows, c_bar, r_bar, m_bar, P_bar, w, u_bar, sums, K, n)
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


def kalman_value(theta, data, value, B, N, K, modes, rows):
    args, work, valid = arrays(K, theta.dtype), scratch(K, theta.dtype), np.empty(LANES, np.bool_)
    place, none = places(modes, rows, N, 1), np.empty((0, 0, 0), theta.dtype)
    for s in range(0, B, LANES):
        forward(theta, data, value, none, s, min(LANES, B - s), K, place, modes, args, work, valid)


def kalman_value_and_grad(theta, data, value, gradient, tape, B, N, K, modes, rows):
    args, work, bars, valid = arrays(K, theta.dtype), scratch(K, theta.dtype), arrays(K, theta.dtype), np.empty(LANES, np.bool_)
    place = places(modes, rows, N, 1)
    for s in range(0, B, LANES):
        n = min(LANES, B - s)
        forward(theta, data, value, tape, s, n, K, place, modes, args, work, valid)
        backward(theta, data, gradient, tape, s, n, K, place, modes, args, bars, work, valid)


def twins(sizes: dict, modes: tuple) -> tuple:
    """The two functions for k states and these modes."""
    k = sizes["k"]
    rows, modes = np.array([a.rows(sizes) for a in ARGUMENTS]), np.array(modes)

    def value(theta, data, value, B, N):
        kalman_value(theta, cube(data), value, B, N, k, modes, rows)

    def both(theta, data, value, gradient, tape, B, N):
        kalman_value_and_grad(theta, cube(data), value, gradient, tape, B, N, k, modes, rows)

    return value, both


loglik = Filter("kalman", Model, ARGUMENTS, start, step, twins, lambda sizes: sizes["k"] * (sizes["k"] + 3) // 2)
