import numpy as np
from aotools.functions import zernike
from aotools.image_processing import centroiders
from aotools.turbulence import atmos_conversions, slopecovariance, turb
from astropy.modeling import functional_models, models
from astropy.stats import biweight_location, biweight_scale, circstats, mad_std, rayleightest
from astropy.timeseries import LombScargle
from colossus.cosmology import cosmology, power_spectrum
from colossus.lss import bias, mass_function
from PyAstronomy import pyasl

cosmology.setCosmology("planck18")
TIMES = np.cumsum(0.3 + 0.2 * np.sin(np.arange(14.0) ** 1.3))


def turbulence(x):
    distances = np.linspace(0.2, 3.0, 6)
    return np.concatenate(
        [
            turb.phase_covariance(distances, x[0], x[1]),
            slopecovariance.structure_function_vk(distances, x[0], x[1]),
        ]
    )


def seeing(x):
    heights = np.array([10.0, 1000.0, 5000.0, 10000.0])
    wind = np.array([5.0, 8.0, 12.0, 25.0])
    return np.array(
        [
            atmos_conversions.coherenceTime(x * 1e-14, wind) * 1e3,
            atmos_conversions.isoplanaticAngle(x * 1e-14, heights),
            atmos_conversions.cn2_to_seeing(np.sum(x) * 1e-14),
        ]
    )


def wavefront(x):
    return zernike.phaseFromZernikes(x, 8)[2:6, 1:7]


def centroid(x):
    rows, columns = np.mgrid[:7, :7]
    spot = np.exp(-((rows - x[0]) ** 2 + (columns - x[1]) ** 2) / (2 * x[2] ** 2))
    return centroiders.centre_of_gravity(spot)


def sersic(x):
    r, y = np.linspace(0.5, 4.0, 5), np.linspace(-1.0, 1.0, 5)
    profile = functional_models.Sersic2D(x[0], x[1], x[2], 0.3, 0.1, x[3], x[4])
    return profile(r, y) + functional_models.Moffat2D(x[0], 0.2, 0.1, x[1], x[2])(r, y)


def compound(x):
    both = models.Voigt1D(0.3, x[0], x[1], x[2]) + models.Drude1D(x[3], 2.0, 0.5) * models.Const1D(x[4])
    return both(np.linspace(-1.0, 3.0, 7))


def periodogram(x):
    return LombScargle(TIMES, x, np.linspace(0.1, 0.3, 14), nterms=2).power(
        np.array([0.2, 0.33, 0.61]), method="chi2"
    )


def robust(x):
    return np.array([biweight_location(x), biweight_scale(x), mad_std(x)])


def directions(x):
    return np.array(
        [circstats.circmean(x), circstats.circvar(x), rayleightest(x), circstats.vonmisesmle(x)[1]]
    )


def transfer(x):
    k = np.array([0.01, 0.1, 1.0])
    return power_spectrum.modelEisenstein98(k, x[0], x[1], x[2], 2.7255)


def haloes(x):
    sigma = x[0] / np.array([0.8, 1.4, 2.3])
    return np.concatenate([bias.modelSheth01(1.69 / sigma), mass_function.modelSheth99(sigma * x[1], 0.0)])


def orbit(x):
    ellipse = pyasl.KeplerEllipse(x[0], x[1], e=x[2], Omega=x[3], i=x[4], w=x[5])
    return ellipse.xyzPos(np.array([0.3, 1.1])).ravel()


def broadened(x):
    return pyasl.rotBroad(
        np.linspace(5000.0, 5002.0, 21), 1.0 - 0.5 * np.exp(-(np.linspace(-3, 3, 21) ** 2)) * x[2], x[0], x[1]
    )[8:13]


CALLS = [
    (turbulence, [0.15, 22.0]),
    (seeing, [40.0, 12.0, 9.0, 3.0]),
    (wavefront, [0.1, 0.4, -0.3, 0.2, 0.15, -0.1]),
    (centroid, [3.2, 2.7, 1.3]),
    (sersic, [1.2, 2.1, 1.7, 0.3, 0.4]),
    (compound, [1.5, 0.6, 0.4, 0.8, 1.1]),
    (periodogram, np.sin(2.1 * TIMES) + 0.1 * np.cos(7.0 * TIMES)),
    (robust, [0.3, 1.1, 0.7, 2.9, 1.8, 0.2, 1.3]),
    (directions, [0.3, 1.1, 0.7, 2.1, 1.8]),
    (transfer, [0.7, 0.3, 0.048]),
    (haloes, [1.68, 1.2]),
    (orbit, [1.3, 2.4, 0.35, 40.0, 65.0, 20.0]),
    (broadened, [0.6, 25.0, 0.8]),
]
