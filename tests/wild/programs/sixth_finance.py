import mibian
import numpy as np
from nelson_siegel_svensson import NelsonSiegelCurve, NelsonSiegelSvenssonCurve
from nelson_siegel_svensson.calibrate import betas_ns_ols

market = np.array([1.40, 1.2, 0.9])
years = np.array([0.5, 1.0, 2.0, 5.0, 10.0])
rates = np.array([0.011, 0.014, 0.02, 0.028, 0.03])


def call_price(x):
    return mibian.BS([x[0], 1.35, 2.0 * x[1], 90], volatility=20.0 * x[2]).callPrice


def greeks(x):
    c = mibian.BS([x[0], 1.35, 2.0 * x[1], 90], volatility=20.0 * x[2])
    return np.stack([c.callDelta, c.putDelta, c.vega, c.callTheta, c.gamma, c.callRho])


def currency(x):
    return mibian.GK([x[0], 1.35, 2.0 * x[1], 1.0, 90], volatility=20.0 * x[2]).putPrice


def merton(x):
    return mibian.Me([52.0 * x[0], 70.0, 2.0 * x[1], 1.0, 90], volatility=20.0 * x[2]).callPrice


def curve(x):
    return NelsonSiegelCurve(0.03 * x[0], -0.02 * x[1], 0.01, 1.5 * x[2])(years)


def svensson(x):
    return NelsonSiegelSvenssonCurve(0.03 * x[0], -0.02, 0.01 * x[1], 0.02, 1.5 * x[2], 4.0).forward(years)


def level(x):
    return betas_ns_ols(x[2], years, rates * x[0])[0].beta1


CALLS = [(f, market) for f in (call_price, greeks, currency, merton, curve, svensson, level)]
