import emcee
import numpy as np
from emcee.autocorr import function_1d

c = np.sin(np.arange(16.0)) + 0.1 * np.arange(16.0)


def autocorrelation(x):
    return function_1d(x)


def probability(x):
    return emcee.EnsembleSampler(4, 2, lambda p: -0.5 * np.sum(p**2)).compute_log_prob(x.reshape(8, 2)[:4])[0]


CALLS = [(autocorrelation, c), (probability, c)]
