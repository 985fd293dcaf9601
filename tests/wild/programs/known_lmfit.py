import numpy as np
from lmfit import Parameters
from lmfit.lineshapes import gaussian, lorentzian, pvoigt, skewed_gaussian, voigt
from lmfit.models import ExponentialModel, GaussianModel

t = np.linspace(-2.0, 2.0, 15)


def lineshape(x):
    return gaussian(t, x[0], x[1], x[2])


def lorentz(x):
    return lorentzian(t, amplitude=x[0], center=x[1], sigma=x[2])


def pseudo_voigt(x):
    return pvoigt(t, x[0], x[1], x[2], 0.4)


def voigt_profile(x):
    return voigt(t, x[0], x[1], x[2])


def skewed(x):
    return skewed_gaussian(t, x[0], x[1], x[2], 0.5)


def model_eval(x):
    return GaussianModel().eval(x=t, amplitude=x[0], center=x[1], sigma=x[2])


def composite_model(x):
    m = GaussianModel(prefix="g_") + ExponentialModel(prefix="e_")
    return m.eval(x=t, g_amplitude=x[0], g_center=x[1], g_sigma=x[2], e_amplitude=1.0, e_decay=2.0)


def parameters(x):
    p = Parameters()
    p.add("a", value=x[0])
    p.add("b", expr="2*a")
    return p["a"].value * p["b"].value


p3 = np.array([1.2, 0.3, 0.8])
CALLS = [
    (f, p3)
    for f in (
        lineshape,
        lorentz,
        pseudo_voigt,
        voigt_profile,
        skewed,
        model_eval,
        composite_model,
        parameters,
    )
]
