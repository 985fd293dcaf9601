import numpy as np
import pyhf

model = pyhf.simplemodels.uncorrelated_background([5.0, 10.0], [50.0, 60.0], [5.0, 12.0])
data = np.array([53.0, 65.0, *model.config.auxdata])


def log_density(x):
    return model.logpdf(x, data)


def expected(x):
    return model.expected_data(x)


def expected_main(x):
    return model.expected_actualdata(x)


def likelihood(x):
    return pyhf.infer.mle.twice_nll(x, data, model)


CALLS = [(f, np.array([1.2, 1.05, 0.97])) for f in (log_density, expected, expected_main, likelihood)]
