import numpy as np
import pvlib

angle = np.array([10.0, 35.0, 50.0])
time = np.array([20.0, 25.0, 31.0])


def incidence(x):
    return pvlib.irradiance.aoi_projection(30.0, 180.0, x, 170.0)


def airmass(x):
    return pvlib.atmosphere.get_relative_airmass(x)


def ineichen(x):
    return pvlib.clearsky.ineichen(x, 1.5, 3.0)["ghi"]


def cell_temperature(x):
    return pvlib.temperature.sapm_cell(800.0, x, 2.0, -3.5, -0.06, 3.0)


def faiman(x):
    return pvlib.temperature.faiman(x, 20.0)


def pvwatts(x):
    return pvlib.pvsystem.pvwatts_dc(x, 25.0, 100.0, -0.004)


def single_diode(x):
    return pvlib.pvsystem.singlediode(x, 1e-9, 0.2, 300.0, 1.5)["p_mp"]


def current(x):
    return pvlib.pvsystem.i_from_v(x, 7.0, 1e-9, 0.2, 300.0, 1.5)


def transposition(x):
    return pvlib.irradiance.haydavies(30.0, 180.0, x, 500.0, 1300.0, 40.0, 170.0)


def iam(x):
    return pvlib.iam.physical(x)


def erbs(x):
    return pvlib.irradiance.erbs(x, 40.0, 180)["dhi"]


def water(x):
    return pvlib.atmosphere.gueymard94_pw(x, 50.0)


CALLS = [
    (incidence, angle), (airmass, angle), (ineichen, angle), (cell_temperature, time), (faiman, 20 * angle),
    (pvwatts, 20 * angle), (single_diode, np.array([5.0, 7.0])), (current, time), (transposition, 5 * angle),
    (iam, angle),
    (erbs, 10 * angle), (water, time),
]  # fmt: skip
