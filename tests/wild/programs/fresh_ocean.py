import gsw
import numpy as np
import seawater

v = np.array([34.5, 12.0, 300.0])


def density(x):
    return seawater.dens(x[0], x[1], x[2])


def sound_speed(x):
    return seawater.svel(x[0], x[1], x[2])


def potential_temperature(x):
    return seawater.ptmp(x[0], x[1], x[2])


def modern_density(x):
    return gsw.rho(x[0], x[1], x[2])


CALLS = [(f, v) for f in (density, sound_speed, potential_temperature, modern_density)]
