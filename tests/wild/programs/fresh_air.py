import miepython
import numpy as np
import psychrolib
from ambiance import Atmosphere

psychrolib.SetUnitSystem(psychrolib.SI)
v = np.array([25.0, 0.5, 101325.0])


def humidity(x):
    return psychrolib.GetHumRatioFromRelHum(x[0], x[1], x[2])


def wet_bulb(x):
    return psychrolib.GetTWetBulbFromRelHum(x[0], x[1], x[2])


def enthalpy(x):
    return psychrolib.GetMoistAirEnthalpy(x[0], 0.01 * x[1])


def atmosphere(x):
    return Atmosphere(100 * x[:1]).density


def speed_of_sound(x):
    return Atmosphere(np.array([1000.0, 15000.0]) + x[0]).speed_of_sound


def scattering(x):
    return np.array(miepython.efficiencies_mx(1.5 - 0.1j * x[1], 0.1 * x[0]))


CALLS = [(f, v) for f in (humidity, wet_bulb, enthalpy, atmosphere, speed_of_sound, scattering)]
