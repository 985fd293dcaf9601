import numpy as np
from antropy import hjorth_params, spectral_entropy, svd_entropy
from pygam import LinearGAM, s
from ruptures.costs import CostL2, CostRbf

t = np.linspace(0, 3, 40)
y = np.sin(5 * t) + 0.3 * t
gam = LinearGAM(s(0, n_splines=6)).fit(t[:, None], y)


def hjorth(x):
    return np.array(hjorth_params(x))


def entropy_svd(x):
    return svd_entropy(x, normalize=True)


def entropy_spectral(x):
    return spectral_entropy(x, 100.0, method="fft")


def change_cost(x):
    return CostL2().fit(x).error(3, 20)


def change_cost_rbf(x):
    return CostRbf(gamma=0.5).fit(x[:, None]).error(3, 20)


def additive_predict(x):
    return gam.predict(x[1:5, None])


def additive_fit(x):
    return LinearGAM(s(0, n_splines=6)).fit(t[:, None], x).coef_


CALLS = [(f, y) for f in (hjorth, entropy_svd, entropy_spectral, change_cost, change_cost_rbf)]
CALLS += [(additive_predict, t + 0.01), (additive_fit, y)]
