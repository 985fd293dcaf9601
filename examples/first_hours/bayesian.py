"""First hour of a Bayesian: one log-likelihood, a thousand chains of Hamiltonian Monte Carlo.

The model is a normal sample with unknown mean and scale. Its posterior is known: the mean has a t density.
"""

import numpy as np
from scipy import stats

import tapegrad as tg

rng = np.random.default_rng(1)
y = rng.normal(2.0, 1.5, 40)


def loglik(theta, y):
    """One parameter vector and one datum; the kernel does thousands of both."""
    mean, log_scale = theta
    z = (y - mean) / np.exp(log_scale)
    return -0.5 * z * z - log_scale


kernel = tg.kernels.likelihood(loglik)  # compiled once; value and gradient of all chains in one pass


def sample(chains=1000, draws=200, warmup=50, step=0.15, leaps=12):
    q = np.array([[y.mean()], [np.log(y.std())]]) + 0.1 * rng.standard_normal((2, chains))
    kept = []
    for n in range(draws + warmup):
        p = rng.standard_normal(q.shape) / 0.2  # a mass of 1 / 0.2^2
        value, slope = kernel.value_and_grad(q, y)
        energy, new, momentum = 0.02 * (p**2).sum(0) - value, q, p
        for _ in range(leaps):
            momentum = momentum + 0.5 * step * slope
            new = new + step * 0.04 * momentum
            value, slope = kernel.value_and_grad(new, y)
            momentum = momentum + 0.5 * step * slope
        accept = np.log(rng.random(q.shape[1])) < energy - (0.02 * (momentum**2).sum(0) - value)
        q = np.where(accept, new, q)
        if n >= warmup:
            kept.append(q)
    return np.stack(kept)


draws = sample()
# Flat priors of mean and log scale: (mean - ybar) / (s / sqrt(n)) has a t density with n - 1 degrees of
# freedom.
exact = stats.t(len(y) - 1, y.mean(), y.std(ddof=1) / np.sqrt(len(y)))
print(
    f"posterior mean {draws[:, 0].mean():.4f} (exact {exact.mean():.4f}), sd {draws[:, 0].std():.4f} (exact "
    f"{exact.std():.4f})"
)
assert abs(draws[:, 0].mean() - exact.mean()) < 0.02 and abs(draws[:, 0].std() / exact.std() - 1) < 0.03
