"""Likelihoods that several tests of kernels use: a Gaussian with its derivatives in closed form, and random
programs."""

import numpy as np

import tapegrad as tg

THETA = np.array([[0.5, 0.6, 0.7], [0.5, 0.4, 0.3], [0.1, 0.2, 0.15], [0.1, 0.2, 0.25]])


X = np.array([[0, 0.5, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9, 1.0]])


VALUE = np.array([-28.663534402106271, -10.720006207705724, -21.79453582424009])


GRADIENT = np.array([[-80, 150, 250, 500], [-32.5, 50, 38.75, 87.5], [-80, 40, 5660 / 27, 66.4]]).T


SECOND = np.array(
    [
        [-500, -500, -8500, -16000, 1600, -3000],
        [-125, -125, -831.25, -1562.5, 325, -500],
        [-2000 / 9, -80, -125200 / 27, -956.8, 3200 / 3, -320],
    ]
)


kernels = tg.kernels


def gaussian(theta, x):
    mu1, mu2, s1, s2 = theta
    d1, d2 = (x[0] - mu1) / s1, (x[1] - mu2) / s2
    return -0.5 * (d1 * d1 + d2 * d2) - np.log(s1) - np.log(s2) - np.log(2 * np.pi)


GAUSSIAN = kernels.likelihood(gaussian)


UNARY = [
    lambda np, a: np.exp(0.3 * np.tanh(a)), lambda np, a: np.log(1.0 + a * a), lambda np,
    a: np.sqrt(0.5 + a * a), lambda np, a: np.sin(a),
    lambda np, a: 1.0 / (1.5 + np.cos(a)), lambda np, a: np.where(a > 0.1, a, 0.2 * a), lambda np,
    a: np.abs(a - 0.3), lambda np, a: -a,
    lambda np, a: np.log1p(np.abs(a)), lambda np, a: np.expm1(0.2 * a), lambda np, a: np.tanh(a) ** 3,
    lambda np, a: (1.0 + a * a) ** -0.5,
]  # fmt: skip


BINARY = [
    lambda np, a, b: a * b, lambda np, a, b: a + b, lambda np, a, b: a - 2.0 * b, lambda np, a,
    b: a / (1.0 + b * b),
    lambda np, a, b: np.maximum(a, b), lambda np, a, b: np.where(a < b, a * b, a + b), lambda np, a,
    b: np.minimum(a, 0.5) * b,
]  # fmt: skip


def random_program(seed):
    """A list of steps; each takes earlier values (4 parameters, 2 components of a datum, what was computed)
    by number."""
    rng = np.random.default_rng(seed)
    steps = []
    for n in range(14):
        last = 6 + n
        f = UNARY[rng.integers(len(UNARY))] if rng.random() < 0.5 else BINARY[rng.integers(len(BINARY))]
        operands = rng.integers(0, last, 2) if f in BINARY else rng.integers(0, last, 1)
        steps.append((f, [int(k) for k in operands]))

    def run(np, theta, x):
        values = [theta[0], theta[1], theta[2], theta[3], x[0], x[1]]
        for f, operands in steps:
            values.append(f(np, *[values[k] for k in operands]))
        return values[-1] + values[-2] * values[-3] + values[-4]

    return run
