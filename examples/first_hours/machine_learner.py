"""First hour of a machine learner: a network in NumPy, trained by Adam on a tree of parameters.

Two interleaved spirals, two hidden layers. The Hessian's largest eigenvalue comes from products alone.
"""

import numpy as np
from scipy.sparse.linalg import eigsh

import tapegrad as tg

rng = np.random.default_rng(0)
turn = np.sqrt(rng.random(400)) * 3 * np.pi
sign = np.where(np.arange(400) % 2, 1.0, -1.0)
inputs = np.stack(
    [sign * turn * np.cos(turn), sign * turn * np.sin(turn)], 1
) / 10 + 0.02 * rng.standard_normal((400, 2))
labels = (sign > 0) * 1.0

sizes = [2, 32, 32, 1]
params = [
    {"W": rng.standard_normal((m, n)) / np.sqrt(m) * 2, "b": np.zeros(n)}
    for m, n in zip(sizes[:-1], sizes[1:], strict=True)
]


def predict(params, x):
    for layer in params[:-1]:
        x = np.tanh(x @ layer["W"] + layer["b"])
    return (x @ params[-1]["W"] + params[-1]["b"])[:, 0]


def loss(params, x, y):
    logit = predict(params, x)
    return np.mean(np.logaddexp(0.0, logit) - y * logit)


step = tg.value_and_grad(loss)
theta, restore = tg.ravel(params)
mean, square = np.zeros_like(theta), np.zeros_like(theta)
for n in range(1, 1001):
    value, gradient = step(restore(theta), inputs, labels)
    g, _ = tg.ravel(gradient)
    mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g**2
    theta = theta - 0.02 * (mean / (1 - 0.9**n)) / (np.sqrt(square / (1 - 0.999**n)) + 1e-8)
    if n % 200 == 0:
        print(f"step {n:5}  loss {value:.4f}")

accuracy = np.mean((predict(restore(theta), inputs) > 0) == labels)
H = tg.operators.hessian(lambda t: loss(restore(t), inputs, labels), theta)
print(
    f"accuracy {accuracy:.3f}, largest eigenvalue of the Hessian {eigsh(H, 1, which='LA', return_eigenvectors=False)[0]:.4g}"
)
assert accuracy > 0.97
