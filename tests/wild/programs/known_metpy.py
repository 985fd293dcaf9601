import metpy.calc as mpcalc
import numpy as np
from metpy.units import units

t = np.array([10.0, 15.0, 22.0])


def saturation(x):
    return mpcalc.saturation_vapor_pressure(x * units.degC).to("hPa").magnitude


def dewpoint(x):
    return mpcalc.dewpoint_from_relative_humidity(x * units.degC, 0.6 * units.dimensionless).magnitude


def potential_temperature(x):
    return mpcalc.potential_temperature(850.0 * units.hPa, x * units.degC).magnitude


def mixing_ratio(x):
    return mpcalc.mixing_ratio(x * units.hPa, 1000.0 * units.hPa).magnitude


def wind(x):
    return mpcalc.wind_speed(x * units("m/s"), 3.0 * units("m/s")).magnitude


def heat_index(x):
    return mpcalc.heat_index((x + 20) * units.degC, 0.6 * units.dimensionless).magnitude


def equivalent(x):
    return mpcalc.equivalent_potential_temperature(
        850.0 * units.hPa, 20.0 * units.degC, x[0] * units.degC
    ).magnitude


def coriolis(x):
    return mpcalc.coriolis_parameter(x * units.degrees).magnitude * 1e4


CALLS = [
    (f, t)
    for f in (
        saturation,
        dewpoint,
        potential_temperature,
        mixing_ratio,
        wind,
        heat_index,
        equivalent,
        coriolis,
    )
]
