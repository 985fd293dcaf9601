import numpy as np
from lifetimes import BetaGeoFitter, GammaGammaFitter, ParetoNBDFitter
from reliability.Distributions import (
    Gamma_Distribution,
    Loglogistic_Distribution,
    Normal_Distribution,
    Weibull_Distribution,
)
from reliability.Fitters import Fit_Weibull_2P
from reliability.Stress_strength import Probability_of_failure_normdist

FREQUENCY, RECENCY, AGE = np.array([[2, 1, 0, 4], [30.4, 1.7, 0.0, 20.1], [38.9, 38.9, 38.9, 25.0]])
MONETARY, TIMES = np.array([22.3, 11.8, 50.1, 18.0]), np.linspace(0.5, 12.0, 9)


def buyers(x):
    return BetaGeoFitter._negative_log_likelihood(
        np.log(x), FREQUENCY, RECENCY, AGE, np.ones(4), penalizer_coef=0.01
    )


def alive(x):
    model = BetaGeoFitter()
    model.params_ = dict(zip(("r", "alpha", "a", "b"), x, strict=True))
    return np.concatenate(
        [
            model.conditional_probability_alive(FREQUENCY, RECENCY, AGE),
            model.conditional_expected_number_of_purchases_up_to_time(5.0, FREQUENCY, RECENCY, AGE),
        ]
    )


def pareto_buyers(x):
    return ParetoNBDFitter._conditional_log_likelihood(x, FREQUENCY, RECENCY, AGE)


def spending(x):
    return GammaGammaFitter._negative_log_likelihood(np.log(x), FREQUENCY + 1, MONETARY, np.ones(4), 0.0)


def weibull(x):
    law = Weibull_Distribution(alpha=x[0], beta=x[1], gamma=x[2])
    return np.concatenate(
        [
            law.PDF(xvals=TIMES, show_plot=False),
            law.CHF(xvals=TIMES, show_plot=False),
            [law.mean, law.skewness],
        ]
    )


def gamma_life(x):
    law = Gamma_Distribution(alpha=x[0], beta=x[1])
    return np.concatenate([law.SF(xvals=TIMES, show_plot=False), law.HF(xvals=TIMES, show_plot=False)])


def remaining_life(x):
    law = Loglogistic_Distribution(alpha=x[0], beta=x[1])
    return np.array([law.mean_residual_life(2.0), law.quantile(0.3), law.standard_deviation])


def weibull_likelihood(x):
    return Fit_Weibull_2P.LL(x, TIMES, np.array([4.0, 14.0]))


def failure(x):
    return Probability_of_failure_normdist(
        stress=Normal_Distribution(mu=x[0], sigma=x[1]),
        strength=Normal_Distribution(mu=x[2], sigma=2.0),
        print_results=False,
    )


CALLS = [
    (buyers, [0.24, 4.4, 0.8, 2.4]),
    (alive, [0.24, 4.4, 0.8, 2.4]),
    (pareto_buyers, [0.55, 10.6, 0.61, 11.7]),
    (spending, [6.2, 3.7, 15.4]),
    (weibull, [5.0, 1.7, 0.2]),
    (gamma_life, [2.0, 1.9]),
    (remaining_life, [4.0, 2.6]),
    (weibull_likelihood, [6.0, 1.5]),
    (failure, [8.0, 1.5, 12.0]),
]
