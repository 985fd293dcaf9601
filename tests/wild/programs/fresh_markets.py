import empyrical
import numpy as np
from py_vollib.black_scholes import black_scholes
from py_vollib.black_scholes.greeks.analytical import delta
from py_vollib.ref_python.black_scholes import black_scholes as reference

returns = np.array([0.01, -0.02, 0.015, 0.003, -0.007, 0.012])
market = np.array([0.008, -0.015, 0.01, 0.001, -0.009, 0.011])
terms = np.array([100.0, 95.0, 0.5, 0.02, 0.25])


def sharpe(x):
    return empyrical.sharpe_ratio(x)


def sortino(x):
    return empyrical.sortino_ratio(x)


def drawdown(x):
    return empyrical.max_drawdown(x)


def market_beta(x):
    return empyrical.beta(x, market)


def option(x):
    return black_scholes("c", x[0], x[1], x[2], x[3], x[4])


def option_delta(x):
    return delta("p", x[0], x[1], x[2], x[3], x[4])


def reference_option(x):
    return reference("c", x[0], x[1], x[2], x[3], x[4])


CALLS = [(f, returns) for f in (sharpe, sortino, drawdown, market_beta)]
CALLS += [(f, terms) for f in (option, option_delta, reference_option)]
