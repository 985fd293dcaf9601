from datetime import datetime

import boule
import numpy as np
import ppigrf
import thermofeel
from geopy.distance import geodesic, great_circle
from haversine import haversine
from pygeodesy import ellipsoidalVincenty, sphericalTrigonometry
from windpowerlib import density, wind_speed

place = np.array([48.2, 16.4, 52.5, 13.4])
weather = np.array([301.0, 3.2, 305.0, 293.0])


def circle(x):
    return great_circle((x[0], x[1]), (x[2], x[3])).km


def ellipsoid(x):
    return geodesic((x[0], x[1]), (x[2], x[3])).km


def half_versed(x):
    return haversine((x[0], x[1]), (x[2], x[3]))


def sphere(x):
    return sphericalTrigonometry.LatLon(x[0], x[1]).distanceTo(sphericalTrigonometry.LatLon(x[2], x[3]))


def vincenty(x):
    return ellipsoidalVincenty.LatLon(x[0], x[1]).distanceTo(ellipsoidalVincenty.LatLon(x[2], x[3]))


def magnetic_field(x):
    return np.concatenate([np.ravel(b) for b in ppigrf.igrf(x[1], x[0], 10.0 + x[3], datetime(2021, 3, 28))])


def gravity(x):
    return boule.WGS84.normal_gravity((x[0], x[1], 1000.0 * x[3]))


def radius(x):
    return boule.WGS84.geocentric_radius(x[:2])


def heat_stress(x):
    return thermofeel.calculate_utci(
        x[0] + np.zeros(1), x[1] + np.zeros(1), x[2] + np.zeros(1), td_k=x[3] + np.zeros(1)
    )


def heat_index(x):
    return thermofeel.calculate_heat_index_simplified(x[0] + np.zeros(1), 60.0 + x[1] + np.zeros(1))


def bulb(x):
    return thermofeel.calculate_wbgt_simple(x[:1], 50.0 + x[1:2])


def profile(x):
    return wind_speed.logarithmic_profile(5.0 + x[1], 10.0, 80.0, 0.15 + 1e-3 * x[1])


def air(x):
    return density.ideal_gas(101325.0 + x[2], 10.0, 80.0, x[0])


CALLS = [
    (f, place) for f in (circle, ellipsoid, half_versed, sphere, vincenty, magnetic_field, gravity, radius)
]
CALLS += [(f, weather) for f in (heat_stress, heat_index, bulb, profile, air)]
