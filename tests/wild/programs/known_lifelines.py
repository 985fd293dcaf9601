import numpy as np
from lifelines import ExponentialFitter, KaplanMeierFitter, WeibullFitter

T = np.array([3.0, 5.0, 6.0, 8.0, 9.0])
E = np.array([1, 0, 1, 1, 1])


def weibull_survival(x):
    return np.exp(-WeibullFitter()._cumulative_hazard(x, T))


def weibull_hazard(x):
    return WeibullFitter()._hazard(x, T)


def exponential_fit(x):
    return ExponentialFitter().fit(x, E).lambda_


def kaplan_meier(x):
    return KaplanMeierFitter().fit(T, E, weights=x).survival_function_.to_numpy()


CALLS = [
    (weibull_survival, np.array([5.0, 1.3])),
    (weibull_hazard, np.array([5.0, 1.3])),
    (exponential_fit, T),
    (kaplan_meier, E + 0.5),
]
