import numpy as np
import properscoring
import scoringrules

v = np.array([0.3, 1.2, 0.8, 2.1])
observed = np.array([0.5, 0.9, 1.1, 1.7])
ensemble = np.cos(np.arange(12.0)).reshape(4, 3)


def gaussian(x):
    return scoringrules.crps_normal(observed, x, 0.5 + x**2, backend="numpy")


def of_ensemble(x):
    return scoringrules.crps_ensemble(observed, ensemble * x[:, None], backend="numpy")


def energy(x):
    return scoringrules.es_ensemble(observed, ensemble.T * x, backend="numpy")


def logarithmic(x):
    return scoringrules.logs_normal(observed, x, 0.5 + x**2, backend="numpy")


def older_gaussian(x):
    return properscoring.crps_gaussian(observed, mu=x, sig=0.5 + x**2)


def older_ensemble(x):
    return properscoring.crps_ensemble(observed, ensemble * x[:, None])


CALLS = [(f, v) for f in (gaussian, of_ensemble, energy, logarithmic, older_gaussian, older_ensemble)]
