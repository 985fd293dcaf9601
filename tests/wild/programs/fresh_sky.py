import numpy as np
from galpy.potential import LogarithmicHaloPotential, MiyamotoNagaiPotential, evaluatePotentials
from galpy.util import coords
from skyfield.api import wgs84
from skyfield.functions import rot_x, to_spherical
from skyfield.keplerlib import propagate

v = np.array([0.9, 0.3, 0.4])


def halo(x):
    return LogarithmicHaloPotential(normalize=1.0)(x[0], x[1])


def disc_force(x):
    return MiyamotoNagaiPotential(a=x[1], b=0.05, normalize=1.0).Rforce(x[0], x[2])


def sum_of_potentials(x):
    return evaluatePotentials(
        [LogarithmicHaloPotential(amp=x[0]), MiyamotoNagaiPotential(amp=x[1])], 1.0, x[2]
    )


def galactic(x):
    return coords.radec_to_lb(x[0], x[1])


def spherical(x):
    return to_spherical(rot_x(x[0]) @ x)


def geodetic(x):
    return wgs84.latlon(x[0], x[1], x[2]).itrs_xyz.au


def kepler(x):
    return propagate(x, np.array([-0.2, 1.0, 0.1]), 0.0, np.array([1.0, 2.0]), 1.0)[0]


CALLS = [(f, v) for f in (halo, disc_force, sum_of_potentials, galactic, spherical, geodetic, kepler)]
