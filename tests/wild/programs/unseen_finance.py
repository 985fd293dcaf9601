import numpy as np
import numpy_financial as npf

flows = np.array([-100.0, 30.0, 42.0, 55.0])


def present_value(x):
    return npf.npv(0.08, x)


def payment(x):
    return npf.pmt(x[1] / 1000, 36, 8000.0)


def future(x):
    return npf.fv(x[1] / 1000, 12, -100.0, x[0])


def rate_of_return(x):
    return npf.irr(x)


def modified(x):
    return npf.mirr(x, 0.1, 0.12)


CALLS = [(f, flows) for f in (present_value, payment, future, rate_of_return, modified)]
