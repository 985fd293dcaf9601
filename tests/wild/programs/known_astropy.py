import astropy.units as u
import numpy as np
from astropy.convolution import Gaussian1DKernel, convolve
from astropy.coordinates import SkyCoord, angular_separation, spherical_to_cartesian
from astropy.cosmology import FlatLambdaCDM, Planck18
from astropy.modeling.models import BlackBody, Gaussian1D, Gaussian2D, Polynomial1D, Sersic1D, Voigt1D
from astropy.stats import biweight_location, circmean, mad_std, sigma_clipped_stats
from astropy.timeseries import LombScargle

t = np.linspace(0.0, 4.0, 12)
y = np.sin(2 * t) + 0.1 * t


def gaussian(x):
    return Gaussian1D(amplitude=x[0], mean=x[1], stddev=x[2])(t)


def gaussian_evaluate(x):
    return Gaussian1D.evaluate(t, x[0], x[1], x[2])


def gaussian_2d(x):
    return Gaussian2D(1.0, 0.2, 0.3, 0.5, 0.6)(x, t[:5])


def polynomial(x):
    return Polynomial1D(2, c0=1.0, c1=0.5, c2=-0.2)(x)


def compound(x):
    return (Gaussian1D(1.0, 1.0, 0.5) + Polynomial1D(1, c0=0.1, c1=0.2))(x)


def sersic(x):
    return Sersic1D(1.0, 2.0, 3.0)(x)


def voigt(x):
    return Voigt1D(0.5, 1.0, 0.3, 0.4)(x)


def black_body(x):
    return BlackBody(5000 * u.K)(x * 1e14 * u.Hz).value * 1e6


def units(x):
    return (x * u.km / (2.0 * u.s)).to(u.m / u.s).value


def units_of_root(x):
    return np.sqrt((x * u.m) ** 2 + (3.0 * u.cm) ** 2).to_value(u.m)


def hubble(x):
    return FlatLambdaCDM(H0=70, Om0=0.3).efunc(x)


def distance(x):
    return Planck18.luminosity_distance(x).value


def separation(x):
    return angular_separation(x[0], x[1], x[2], x[3])


def cartesian(x):
    return spherical_to_cartesian(x[0], x[1], x[2])[0]


def sky(x):
    return SkyCoord(x[0] * u.rad, x[1] * u.rad).separation(SkyCoord(1.0 * u.rad, 0.5 * u.rad)).rad


def location(x):
    return biweight_location(x)


def circular(x):
    return circmean(x)


def mad(x):
    return mad_std(x)


def clipped(x):
    return sigma_clipped_stats(x, sigma=3.0)[0]


def smooth(x):
    return convolve(x, Gaussian1DKernel(1.0))


def periodogram(x):
    return LombScargle(t, x).power(np.array([0.3, 0.5]), method="slow")


CALLS = [
    (gaussian, np.array([1.0, 2.0, 0.7])), (gaussian_evaluate, np.array([1.0, 2.0, 0.7])), (gaussian_2d,
    t[1:6]), (polynomial, t),
    (compound, t), (sersic, t[1:]), (voigt, t), (black_body, t[1:4]), (units, t), (units_of_root, t[1:]),
    (hubble, t), (distance, t[1:4]),
    (separation, np.array([0.1, 0.2, 0.5, 0.7])), (cartesian, np.array([1.0, 0.3, 0.4])), (sky, np.array([0.4,
    0.2])), (location, y),
    (circular, y), (mad, y), (clipped, y), (smooth, y), (periodogram, y),
]  # fmt: skip
