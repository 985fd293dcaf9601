import numpy as np
import nvector as nv
import utm
from colossus.cosmology import cosmology
from colossus.halo import concentration, profile_nfw
from geographiclib.geodesic import Geodesic

cosmo = cosmology.setCosmology("planck18", persistence="")
towns = np.array([48.1, 11.6, 52.5, 13.4])
redshifts = np.array([0.3, 0.9, 1.7])


def expansion(x):
    return cosmo.Hz(x)


def distance(x):
    return cosmo.luminosityDistance(x)


def growth(x):
    return cosmo.growthFactor(x)


def power(x):
    return cosmo.matterPowerSpectrum(x)


def halo(x):
    return profile_nfw.NFWProfile(rhos=x[0] * 1e6, rs=x[1] * 100).density(np.array([10.0, 80.0]))


def halo_mass(x):
    return profile_nfw.NFWProfile(rhos=x[0] * 1e6, rs=x[1] * 100).enclosedMass(np.array([10.0, 80.0]))


def concentrations(x):
    return concentration.concentration(x * 1e13, "200c", 0.0, model="duffy08")


def geodesic(x):
    return Geodesic.WGS84.Inverse(x[0], x[1], x[2], x[3])["s12"] / 1e5


def destination(x):
    found = Geodesic.WGS84.Direct(x[0], x[1], x[2], 1e5 * x[3])
    return np.array([found["lat2"], found["lon2"]])


def grid(x):
    return np.array(utm.from_latlon(x[0], x[1])[:2]) / 1e5


def back(x):
    return np.array(utm.to_latlon(1e4 * x[0], 1e5 * x[2], 32, "U"))


def horizontal(x):
    n = nv.lat_lon2n_E(np.radians(x[:2]), np.radians(x[2:]))
    return np.concatenate(
        [np.ravel(nv.mean_horizontal_position(n)), [nv.great_circle_distance(n[:, :1], n[:, 1:])[0]]]
    )


CALLS = [(f, redshifts) for f in (expansion, distance, growth, power, halo, halo_mass, concentrations)]
CALLS += [(f, towns) for f in (geodesic, destination, grid, back, horizontal)]
