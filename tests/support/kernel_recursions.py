"""Recursions that several tests of kernels use: filters, GARCH, a hidden Markov model, with their values in
other ways."""

from pathlib import Path

import numpy as np
import scipy.linalg

import tapegrad as tg

NILE = np.loadtxt(Path(__file__).parents[2] / "examples" / "data" / "nile.csv", delimiter=",", skiprows=3)[
    :, 1
]


LOG2PI = np.log(2 * np.pi)


kernels = tg.kernels


def step(carry, theta, y):
    a, P = carry
    obs, level = np.exp(theta)
    F, v = P + obs, y - a
    K = P / F
    return (a + K * v, P - K * P + level), -0.5 * (LOG2PI + np.log(F) + v * v / F)


def unseen(carry, theta):
    a, P = carry
    return a, P + np.exp(theta[1])


def known(theta):
    return 0.0, 1e7


def diffuse(theta):
    return NILE[0], np.exp(theta[0]) + np.exp(theta[1])


KNOWN = kernels.recursion(known, step, missing=unseen)


DIFFUSE = kernels.recursion(diffuse, step, missing=unseen)


POINTS = np.log(np.array([[15099.0, 1e4], [1469.1, 1e3]]))


MANY = np.log([[1e4], [1e3]]) + np.random.default_rng(0).standard_normal((4096, 2)).T


def formula(theta, y, start):
    """Value and gradient by the log variances, for all samples, in NumPy: the tangents run beside the
    filter."""
    obs, level = np.exp(theta)
    zero = np.zeros_like(obs)
    if start == "known":
        a, P, da, dP = zero, zero + 1e7, np.zeros((2, *obs.shape)), np.zeros((2, *obs.shape))
    else:
        a, P, da, dP = zero + NILE[0], obs + level, np.zeros((2, *obs.shape)), np.stack([obs, level])
    dobs, dlevel = np.stack([obs, zero]), np.stack([zero, level])
    value, gradient = zero, np.zeros((2, *obs.shape))
    for x in y:
        if np.isnan(x):
            P, dP = P + level, dP + dlevel
            continue
        F, dF, v, dv = P + obs, dP + dobs, x - a, -da
        value = value - 0.5 * (LOG2PI + np.log(F) + v * v / F)
        gradient = gradient - 0.5 * (dF / F + 2 * v * dv / F - v * v * dF / F**2)
        K, dK = P / F, dP / F - P * dF / F**2
        a, da = a + K * v, da + dK * v + K * dv
        P, dP = P * obs / F + level, (dP * obs + P * dobs) / F - P * obs * dF / F**2 + dlevel
    return value, gradient


def summed(init, step):
    """The Python functions themselves, one sample."""

    def f(theta, data):
        carry, total = init(theta), 0.0
        for t in range(data.shape[-1]):
            carry, term = step(carry, theta, data[..., t])
            total = total + term
        return total

    return f


H4 = np.array([[1.0, 0.0, 0.5, 0.0], [0.0, 1.0, 0.0, -0.5]])


def kalman(gain):
    def start(theta):
        return np.zeros(4), np.eye(4)

    def filter_step(carry, theta, y):
        m, P = carry
        A = theta[:16].reshape(4, 4)
        m, P = A @ m, A @ P @ A.T + np.diag(np.exp(theta[16:20]))
        v, S = y - H4 @ m, H4 @ P @ H4.T + np.diag(np.exp(theta[20:]))
        if gain == "inv":
            K = P @ H4.T @ np.linalg.inv(S)
            terms = np.log(np.linalg.det(S)) + v @ np.linalg.inv(S) @ v
        elif gain == "solve":
            K = np.linalg.solve(S, H4 @ P).T
            terms = np.linalg.slogdet(S)[1] + v @ np.linalg.solve(S, v)
        else:
            L = np.linalg.cholesky(S)
            z = scipy.linalg.solve_triangular(L, v, lower=True)
            K = scipy.linalg.cho_solve((L, True), H4 @ P).T
            terms = 2 * np.sum(np.log(np.diag(L))) + z @ z
        m, P = m + K @ v, P - K @ H4 @ P
        return (m, 0.5 * (P + P.T)), -0.5 * (terms + 2 * LOG2PI)

    rng = np.random.default_rng(0)
    A = 0.7 * np.linalg.qr(rng.normal(size=(4, 4)))[0]
    return (
        start,
        filter_step,
        np.concatenate([A.ravel(), np.log(np.full(4, 0.3)), np.log(np.full(2, 0.5))]),
        rng.normal(size=(2, 12)),
    )


def garch():
    def garch_step(carry, theta, y):
        h, e2 = carry
        h = np.exp(theta[0]) + theta[1] * e2 + theta[2] * h
        return (h, y * y), -0.5 * (np.log(h) + y * y / h)

    return (
        lambda theta: (np.exp(theta[0]), 0.1),
        garch_step,
        np.array([-1.0, 0.2, 0.6]),
        np.random.default_rng(1).normal(size=30),
    )


def hidden_markov():
    def weights(theta):
        e = np.exp(theta[3:12].reshape(3, 3))
        return e / e.sum(axis=1)[:, None]

    def hmm_step(p, theta, y):
        q = (p @ weights(theta)) * np.exp(-0.5 * (y - theta[:3]) ** 2)
        total = np.sum(q)
        return q / total, np.log(total)

    return (
        lambda theta: np.ones(3) / 3,
        hmm_step,
        np.random.default_rng(2).normal(size=12),
        np.random.default_rng(3).normal(size=20),
    )


def written_in_place():
    """AR(3) with a window kept by writing, and a matrix of outer products."""

    def ar_step(carry, theta, y):
        window, M = carry
        e = y - theta[:3] @ window
        new = np.zeros(3)
        new[1:] = window[:2]
        new[0] = y
        M = M * theta[4]
        for i in range(3):
            M[i, i] += new[i] * new[i]
        corner = np.maximum(e, 0.0) * np.clip(e, -0.5, 0.5)
        return (new, M), -0.5 * e * e / np.exp(theta[3]) - 0.5 * theta[3] - 0.01 * np.trace(M) + 0.1 * corner

    return (
        lambda theta: (np.zeros(3), np.eye(3)),
        ar_step,
        np.array([0.5, -0.3, 0.1, 0.2, 0.9]),
        np.random.default_rng(4).normal(size=15),
    )


MODELS = {
    "kalman inv": lambda: kalman("inv"),
    "kalman solve": lambda: kalman("solve"),
    "kalman cholesky": lambda: kalman("cholesky"),
    "garch": garch,
    "hidden Markov": hidden_markov,
    "written in place": written_in_place,
}
