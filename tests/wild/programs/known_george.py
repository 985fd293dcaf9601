import george
import numpy as np
from george import kernels

t = np.linspace(0.0, 2.0, 6)
y = np.sin(t)


def values(x):
    return kernels.ExpSquaredKernel(0.5).get_value(x[:, None])


def likelihood(x):
    gp = george.GP(1.2 * kernels.ExpSquaredKernel(0.5))
    gp.compute(t, 0.1)
    return gp.log_likelihood(x)


def prediction(x):
    gp = george.GP(1.2 * kernels.Matern32Kernel(0.5))
    gp.compute(t, 0.1)
    return gp.predict(x, t[:3], return_cov=False)


CALLS = [(values, t), (likelihood, y), (prediction, y)]
