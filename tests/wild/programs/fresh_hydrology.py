import hydroeval
import lmoments3
import numpy as np
import pastas
import pyet

v = np.array([14.0, 17.5, 21.0, 11.0, 9.5])
observed = np.array([13.0, 18.1, 20.0, 12.0, 9.0])


def vapour_pressure(x):
    return pyet.calc_e0(x)


def psychrometric(x):
    return pyet.calc_psy(pyet.calc_press(100 * x), x)


def thermal_radiation(x):
    return pyet.calc_lambda(x) * pyet.calc_vpc(x)


def nash_sutcliffe(x):
    return hydroeval.evaluator(hydroeval.nse, x, observed)


def kling_gupta(x):
    return hydroeval.evaluator(hydroeval.kge, x, observed)


def gamma_response(x):
    return pastas.Gamma().step(np.array([x[0], 1.2, x[1]]), maxtmax=20)


def exponential_response(x):
    return pastas.Exponential().block(np.array([x[0], x[1]]), maxtmax=20)


def moments(x):
    return np.array(lmoments3.lmom_ratios(x, nmom=4))


CALLS = [
    (f, v)
    for f in (
        vapour_pressure, psychrometric, thermal_radiation, nash_sutcliffe, kling_gupta, gamma_response, exponential_response,
        moments,
    )
]  # fmt: skip
