import datetime

import astral
import astral.sun
import numpy as np
import suncalc
from dust_extinction.parameter_averages import CCM89, F99
from PyAstronomy import pyasl
from pysolar import radiation, solar

place = np.array([48.2, 11.6])
when = datetime.datetime(2024, 5, 4, 9, 30, tzinfo=datetime.UTC)
orbit = np.array([1.1, 0.3, 0.4])


def solar_altitude(x):
    return solar.get_altitude(x[0], x[1], when)


def solar_azimuth(x):
    return solar.get_azimuth(x[0], x[1], when)


def irradiance(x):
    return radiation.get_radiation_direct(when, 40.0 * x[0])


def astral_elevation(x):
    return astral.sun.elevation(astral.Observer(x[0], x[1], 520.0), when)


def astral_azimuth(x):
    return astral.sun.azimuth(astral.Observer(x[0], x[1]), when)


def suncalc_position(x):
    found = suncalc.get_position(when, x[1], x[0])
    return np.stack([found["azimuth"], found["altitude"]])


def kepler_orbit(x):
    return pyasl.KeplerEllipse(x[0], 1.0, e=x[1], Omega=30.0, w=20.0, i=50.0 * x[2]).xyzPos(0.3)


def planck(x):
    return pyasl.planck(5000.0 * x[0], lam=np.array([4e-7, 6e-7]))


def roche_potential(x):
    return pyasl.rochepot(x[0], x[1], x[2], 1.0, 0.4, 2.0)


def transit_duration(x):
    return pyasl.transitDuration(0.05 * x[0], 0.1 + x[1], 1.0, 88.0, 3.0)


def reddening(x):
    return pyasl.unred(np.array([3000.0, 4500.0, 6000.0]), np.array([1.0, 2.0, 1.5]) * x[0], x[1])


def rotation(x):
    wave = np.linspace(5000.0, 5010.0, 60)
    return pyasl.rotBroad(wave, 1.0 - 0.5 * x[0] * np.exp(-((wave - 5005.0) ** 2)), x[1], 50.0 * x[2])


def air_to_vacuum(x):
    return pyasl.airtovac2(5000.0 + 900.0 * x)


def extinction(x):
    return CCM89(Rv=3.1)(1.0 + x)


def extinction_of_star(x):
    return F99(Rv=3.1).extinguish(np.array([1.5, 2.0]), Ebv=x[0])


CALLS = [
    (f, place) for f in (solar_altitude, solar_azimuth, astral_elevation, astral_azimuth, suncalc_position)
]
CALLS += [
    (f, orbit)
    for f in (irradiance, kepler_orbit, planck, roche_potential, transit_duration, reddening, rotation)
]
CALLS += [(air_to_vacuum, orbit), (extinction, orbit), (extinction_of_star, orbit)]
