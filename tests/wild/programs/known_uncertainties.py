import numpy as np
from uncertainties import ufloat, umath, unumpy


def product(x):
    return (ufloat(x[0], 0.1) * ufloat(x[1], 0.2)).nominal_value


def spread(x):
    return (ufloat(x[0], 0.1) * ufloat(x[1], 0.2)).std_dev


def sine(x):
    return umath.sin(ufloat(x[0], 0.1)).std_dev


def arrays(x):
    return unumpy.nominal_values(unumpy.exp(unumpy.uarray(x, 0.1 * np.ones(2))))


CALLS = [(f, np.array([0.8, 1.3])) for f in (product, spread, sine, arrays)]
