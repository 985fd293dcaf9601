import numpy as np
from linearmodels.iv import IV2SLS, IVGMM, IVLIML
from linearmodels.system import SUR

rng = np.random.default_rng(0)
Z = rng.normal(size=(30, 2))
X = np.column_stack([np.ones(30), rng.normal(size=30)])
e = Z @ np.ones(2) + rng.normal(size=30)
y = X @ np.array([1.0, 0.5]) + e + rng.normal(size=30)


def two_stage(x):
    return IV2SLS(x, X, e, Z).fit().params.to_numpy()


def liml(x):
    return IVLIML(x, X, e, Z).fit().params.to_numpy()


def gmm(x):
    return IVGMM(x, X, e, Z).fit().params.to_numpy()


def seemingly_unrelated(x):
    return SUR({"a": {"dependent": x, "exog": X}, "b": {"dependent": e, "exog": X}}).fit().params.to_numpy()


CALLS = [(two_stage, y), (liml, y), (gmm, y), (seemingly_unrelated, y)]
