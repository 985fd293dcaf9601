"""Bonds, options, curves, copulas; likelihoods and priors of time-series models."""

import numpy as np
import pints
import pints.toy
from financepy.market.curves.discount_curve_flat import DiscountCurveFlat
from financepy.market.curves.discount_curve_nss import DiscountCurveNSS
from financepy.models.black_scholes import BlackScholes
from financepy.models.merton_firm import MertonFirm
from financepy.products.bonds.bond import Bond
from financepy.products.equity.equity_asian_option import AsianOptionValuationMethods, EquityAsianOption
from financepy.products.equity.equity_vanilla_option import EquityVanillaOption
from financepy.utils.date import Date
from financepy.utils.day_count import DayCountTypes
from financepy.utils.frequency import FrequencyTypes
from financepy.utils.global_types import OptionTypes
from pydlm import dlm, dynamic, seasonality, trend

TODAY, EXPIRY = Date(15, 3, 2023), Date(15, 3, 2025)
rng = np.random.default_rng(16)
TIMES = np.linspace(0.5, 10.0, 12)
COUNTS = 60.0 / (1 + 9.0 * np.exp(-0.6 * TIMES)) + rng.normal(size=12)


def bond_price(x):
    bond = Bond(
        Date(15, 3, 2020), Date(15, 9, 2029), 0.04, FrequencyTypes.SEMI_ANNUAL, DayCountTypes.ACT_ACT_ICMA
    )
    return np.array([bond.dirty_price_from_ytm(TODAY, x[0]), bond.modified_duration(TODAY, x[1])])


def option_value(x):
    option = EquityVanillaOption(EXPIRY, 100.0, OptionTypes.EUROPEAN_CALL)
    discount, dividend = DiscountCurveFlat(TODAY, x[1]), DiscountCurveFlat(TODAY, 0.01)
    return option.value(TODAY, 100 * x[0], discount, dividend, BlackScholes(x[2]))


def asian_option(x):
    option = EquityAsianOption(Date(15, 6, 2023), EXPIRY, 100.0, OptionTypes.EUROPEAN_CALL, 50)
    discount, dividend = DiscountCurveFlat(TODAY, 0.05), DiscountCurveFlat(TODAY, 0.01)
    method = AsianOptionValuationMethods.TURNBULL_WAKEMAN
    return option.value(TODAY, 100 * x[0], discount, dividend, BlackScholes(x[1]), method)


def svensson_curve(x):
    curve = DiscountCurveNSS(TODAY, x[0], x[1], x[2], x[3], 2.0, 5.0)
    return np.array([curve.df(Date(15, 3, 2024)), curve.zero_rate(Date(15, 9, 2030))])


def credit(x):
    firm = MertonFirm(100 * x[0], 80 * x[1], 1.0, x[2], 0.05, 0.2)
    return np.array([firm.credit_spread(), firm.prob_default(), firm.equity_value()])


def logistic_posterior(x):
    """The tutorial's inference: growth, capacity and noise."""
    problem = pints.SingleOutputProblem(pints.toy.LogisticModel(6), TIMES, COUNTS)
    likelihood = pints.GaussianLogLikelihood(problem)
    prior = pints.ComposedLogPrior(
        pints.NormalLogPrior(0.5, 0.3), pints.GammaLogPrior(20, 0.4), pints.HalfCauchyLogPrior(0, 2)
    )
    return pints.LogPosterior(likelihood, prior)(np.array([x[0], 50 * x[1], x[2]]))


def oscillator_error(x):
    model = pints.toy.SimpleHarmonicOscillatorModel()
    problem = pints.SingleOutputProblem(model, TIMES, np.cos(TIMES))
    return pints.RootMeanSquaredError(problem)(x)


def autoregressive_noise(x):
    problem = pints.SingleOutputProblem(pints.toy.LogisticModel(6), TIMES, COUNTS)
    return pints.AR1LogLikelihood(problem)(np.array([x[0], 50 * x[1], x[2], x[3]]))


def predators_and_prey(x):
    return pints.toy.LotkaVolterraModel().simulate(x, TIMES[:6])


def channel_current(x):
    model = pints.toy.HodgkinHuxleyIKModel()
    return model.simulate(model.suggested_parameters() * x, np.array([0.0, 5.0, 12.0, 30.0, 60.0]))


def transformed_density(x):
    density = pints.toy.RosenbrockLogPDF()
    scale = pints.ComposedTransformation(pints.LogTransformation(1), pints.LogitTransformation(1))
    return scale.convert_log_pdf(density)(x)


def dynamic_linear_model(x):
    data = list(10 + np.sin(np.arange(20.0)) * x[0])
    model = (
        dlm(data) + trend(degree=1, discount=0.95, name="trend") + seasonality(4, discount=0.99, name="week")
    )
    model.fitForwardFilter()
    return np.array(model.getMean(filterType="forwardFilter")[5:]) * x[1]


def forecast(x):
    features = [[float(k % 5)] for k in range(20)]
    model = dlm(list(x[0] * np.arange(20.0) + x[1] * np.cos(np.arange(20.0))))
    model = model + trend(degree=1, discount=0.9) + dynamic(features=features, discount=1.0, name="days")
    model.fitForwardFilter()
    mean, variance = model.predictN(N=3, featureDict={"days": [[0.0], [1.0], [2.0]]})
    return np.array(mean + variance)


CALLS = [
    (bond_price, [0.05, 0.04]),
    (option_value, [1.05, 0.04, 0.25]),
    (asian_option, [1.05, 0.25]),
    (svensson_curve, [0.04, -0.02, 0.015, 0.01]),
    (credit, [1.2, 0.9, 0.25]),
    (logistic_posterior, [0.55, 1.15, 1.3]),
    (oscillator_error, [0.9, 0.2, 0.15]),
    (autoregressive_noise, [0.55, 1.15, 0.3, 1.2]),
    (predators_and_prey, [0.9, 0.6, 1.1, 0.5]),
    (channel_current, [1.05, 0.95, 1.1, 0.9, 1.02]),
    (transformed_density, [0.3, -0.4]),
    (dynamic_linear_model, [1.2, 0.8]),
    (forecast, [0.3, 1.2]),
]
