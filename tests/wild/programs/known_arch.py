import numpy as np
from arch import arch_model
from arch.univariate import ConstantMean, GeneralizedError, Normal, StudentsT

r = np.random.default_rng(0).normal(size=40)


def normal_likelihood(x):
    return Normal().loglikelihood([], r, x)


def student_likelihood(x):
    return StudentsT().loglikelihood(x[:1], r, np.ones(40))


def generalized_likelihood(x):
    return GeneralizedError().loglikelihood(x[:1], r, np.ones(40))


def garch_likelihood(x):
    model = arch_model(r, mean="Zero", rescale=False)
    return model._loglikelihood(
        x, np.ones(40), model.volatility.backcast(r) * 0 + 1.0, model.volatility.variance_bounds(r)
    )


def residuals(x):
    return ConstantMean(r).resids(x)


CALLS = [
    (normal_likelihood, np.linspace(0.5, 1.5, 40)), (student_likelihood, np.array([6.0])),
    (generalized_likelihood, np.array([1.5])),
    (garch_likelihood, np.array([0.1, 0.1, 0.8])), (residuals, np.array([0.1])),
]  # fmt: skip
