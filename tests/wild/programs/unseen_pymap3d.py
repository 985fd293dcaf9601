import numpy as np
import pymap3d as pm

p = np.array([42.0, -82.0, 200.0])


def ecef(x):
    return np.array(pm.geodetic2ecef(x[0], x[1], x[2])) / 1e6


def enu(x):
    return np.array(pm.geodetic2enu(x[0], x[1], x[2], 42.1, -82.1, 100.0)) / 1e3


def back(x):
    return np.array(pm.ecef2geodetic(1e6 * x[0] / 42, 1e6 * x[1] / 20, 4.5e6))[:2]


def azimuth(x):
    return np.array(pm.enu2aer(x[0], x[1], x[2]))


CALLS = [(f, p) for f in (ecef, enu, back, azimuth)]
