import numpy as np
from iapws import IAPWS97
from iapws._iapws import _Dielectric, _ThCond, _Viscosity
from iapws.iapws97 import _PSat_T, _Region1, _Region2, _TSat_P


def saturation_pressure(x):
    return _PSat_T(x[0])


def saturation_temperature(x):
    return _TSat_P(x[0] / 300)


def liquid(x):
    return _Region1(x[0], 3.0)["h"]


def steam(x):
    return _Region2(x[0] + 200.0, 0.1)["v"]


def enthalpy(x):
    return IAPWS97(T=x[0], P=1.0).h


def viscosity(x):
    return _Viscosity(998.0, x[0]) * 1e3


def conductivity(x):
    return _ThCond(998.0, x[0])


def dielectric(x):
    return _Dielectric(998.0, x[0])


p2 = np.array([320.0, 410.0])
CALLS = [
    (f, p2)
    for f in (
        saturation_pressure,
        saturation_temperature,
        liquid,
        steam,
        enthalpy,
        viscosity,
        conductivity,
        dielectric,
    )
]
