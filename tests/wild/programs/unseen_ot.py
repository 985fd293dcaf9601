import numpy as np
import ot

M = np.random.default_rng(0).uniform(0.1, 1.0, (4, 5))
a, b = np.full(4, 0.25), np.full(5, 0.2)
P = np.random.default_rng(1).normal(size=(4, 2))
Q = np.random.default_rng(2).normal(size=(5, 2))


def sinkhorn(x):
    return np.sum(ot.sinkhorn(a, b, x, 0.5, numItermax=50, warn=False) * x)


def sinkhorn_value(x):
    return ot.sinkhorn2(a, b, x, 0.5, numItermax=50, warn=False)


def cost(x):
    return ot.dist(x, Q)


def exact(x):
    return ot.emd2(a, b, x)


def one_dimensional(x):
    return ot.wasserstein_1d(x[:, 0], Q[:, 0])


def sliced(x):
    return ot.sliced_wasserstein_distance(x, Q, seed=0, n_projections=5)


def gaussians(x):
    return ot.gaussian.bures_wasserstein_distance(x[0], Q[0], np.eye(2), x.T @ x)


CALLS = [
    (sinkhorn, M), (sinkhorn_value, M), (cost, P), (exact, M), (one_dimensional, P), (sliced, P), (gaussians,
    P),
]  # fmt: skip
