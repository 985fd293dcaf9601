"""Black holes, orbits about them, radiation, microlensing, tides, seawater, microwaves, aircraft."""

import aerosandbox as asb
import astropy.units as u
import kerrgeopy
import MulensModel
import naima
import numpy as np
import precession
import PyCO2SYS
import pyrtlib.utils
import pyTMD.astro
import pyTMD.ellipse
import speclite.filters
import spectres
import stingray
import stingray.modeling
import ussa1976.core
from astropy.modeling.models import Lorentz1D

POINT = np.array([1.1, 0.9, 1.2])
WAVES = np.linspace(4000.0, 7000.0, 61)
TIMES = np.linspace(-30.0, 30.0, 25)


def spins_of_holes(x):
    deltachi, kappa, chieff = precession.angles_to_conserved(
        0.9 * x[0], 1.1, 0.7, 500 * x[1], 0.8 * x[2], 0.6, 0.9
    )
    return np.concatenate([deltachi, kappa, chieff])


def precession_period(x):
    deltachi, kappa, chieff = precession.angles_to_conserved(
        0.9 * x[0], 1.1, 0.7 * x[1], 500 * x[2], 0.8, 0.6, 0.9
    )
    lower, upper = precession.deltachilimits(kappa, 500 * x[2], chieff, 0.8, 0.6, 0.9)
    return np.concatenate(
        [lower, upper, 1e-6 * precession.eval_tau(kappa, 500 * x[2], chieff, 0.8, 0.6, 0.9)]
    )


def remnant(x):
    angles = (0.9 * x[0], 1.1 * x[1])
    mass = precession.remnantmass(*angles, 0.7 * x[2], 0.6, 0.9)
    return np.concatenate([mass, precession.remnantspin(*angles, 0.7, 0.7 * x[2], 0.6, 0.9)])


def geodesic_constants(x):
    energy, momentum, carter = kerrgeopy.constants_of_motion(0.8 * x[0], 10 * x[1], 0.2 * x[2], 0.6)
    return np.array([energy, momentum, carter])


def geodesic_frequencies(x):
    return np.array(kerrgeopy.fundamental_frequencies(0.8 * x[0], 10 * x[1], 0.2 * x[2], 0.6))


def synchrotron(x):
    electrons = naima.models.ExponentialCutoffPowerLaw(x[0] * 1e35 / u.eV, 10 * u.TeV, 2.1 * x[1], 30 * u.TeV)
    model = naima.models.Synchrotron(electrons, B=100 * x[2] * u.uG)
    return np.log(model.flux(np.logspace(2, 4, 5) * u.eV, distance=1 * u.kpc).value)


def pulses_of_lenses(x):
    model = MulensModel.Model({"t_0": 2.0 * x[0], "u_0": 0.3 * x[1], "t_E": 20.0 * x[2]})
    return model.get_magnification(TIMES)


def binary_sources(x):
    model = MulensModel.Model(
        {"t_0_1": 2.0 * x[0], "u_0_1": 0.3, "t_0_2": 8.0, "u_0_2": 0.5 * x[1], "t_E": 20.0 * x[2]}
    )
    return model.get_magnification(TIMES, source_flux_ratio=0.1)


def rebinned_spectrum(x):
    flux = x[0] + x[1] * np.exp(-(((WAVES - 5500) / (300 * x[2])) ** 2))
    return np.concatenate(spectres.spectres(WAVES[5:-5:3], WAVES, flux, 0.1 * flux))


def magnitude_of_band(x):
    response = speclite.filters.FilterResponse(
        WAVES * u.Angstrom,
        np.exp(-(((WAVES - 5500) / 400) ** 4)) * (WAVES > 4000) * (WAVES < 7000),
        {"group_name": "own", "band_name": "v"},
    )
    flux = x[0] + x[1] * np.exp(-(((WAVES - 5500) / (300 * x[2])) ** 2))
    return response.get_ab_magnitude(flux * 1e-17, WAVES)


def periodogram_of_curve(x):
    times = np.arange(64.0)
    counts = 50 * x[0] + 20 * x[1] * np.sin(times * x[2]) + 5 * np.cos(3 * times)
    curve = stingray.Lightcurve(times, counts, dt=1.0, skip_checks=True, err_dist="gauss", err=np.ones(64))
    return stingray.Powerspectrum(curve, norm="frac").power


def likelihood_of_lines(x):
    frequency = np.linspace(0.1, 10, 50)
    model = Lorentz1D(amplitude=2.0, x_0=3.0, fwhm=1.0)
    likelihood = stingray.modeling.PSDLogLikelihood(frequency, 2 + np.sin(frequency), model, m=4)
    return likelihood.evaluate(np.array([3.0, 2.0, 1.0]) * x)


def places_of_sun(x):
    return np.concatenate(pyTMD.astro.solar_ecef(np.array([58000.0, 58010.3]) + x[:2] * x[2]))


def tidal_ellipse(x):
    return np.concatenate(
        pyTMD.ellipse.ellipse(np.array([0.3 + 0.2j]) * x[0], np.array([0.1 - 0.4j]) * x[1] + 0.1j * x[2])
    )


def carbonate_system(x):
    found = PyCO2SYS.sys(2300 * x[0], 1900 * x[1], 1, 2, salinity=32 * x[2], temperature=18.0)
    return np.array([found[k] for k in ("pH", "pCO2", "saturation_calcite", "k_carbonic_1")]).ravel()


def moist_air(x):
    pressure, temperature = 1000 * np.array([x[0], 0.9]), 280 * np.array([x[1], 1.02])
    humidity = pyrtlib.utils.e2mr(pressure, 10 * x[2] * np.ones(2))
    return np.concatenate(
        [
            pyrtlib.utils.virtual_temperature(temperature, humidity),
            pyrtlib.utils.satvap(temperature),
            np.concatenate(pyrtlib.utils.mr2rh(pressure, temperature, humidity)),
        ]
    )


def gravity_with_height(x):
    return ussa1976.core.compute_gravity(np.array([1e4, 5e4]) * x[:2]) * x[2]


def wing_by_vortices(x):
    wing = asb.Wing(
        xsecs=[
            asb.WingXSec(xyz_le=[0, 0, 0], chord=x[0], airfoil=asb.Airfoil("naca2412")),
            asb.WingXSec(xyz_le=[0.1, 3 * x[1], 0.1], chord=0.6, twist=-2.0, airfoil=asb.Airfoil("naca2412")),
        ],
        symmetric=True,
    )
    plane = asb.Airplane(wings=[wing], xyz_ref=[0, 0, 0], s_ref=4.0, c_ref=0.8, b_ref=6.0)
    method = asb.VortexLatticeMethod(
        plane,
        asb.OperatingPoint(velocity=20.0, alpha=4 * x[2]),
        spanwise_resolution=3,
        chordwise_resolution=2,
    )
    found = method.run()
    return np.array([found["CL"], found["CD"], found["Cm"]])


CALLS = [
    (spins_of_holes, POINT),
    (precession_period, POINT),
    (remnant, POINT),
    (geodesic_constants, POINT),
    (geodesic_frequencies, POINT),
    (synchrotron, POINT),
    (pulses_of_lenses, POINT),
    (binary_sources, POINT),
    (rebinned_spectrum, POINT),
    (magnitude_of_band, POINT),
    (periodogram_of_curve, POINT),
    (likelihood_of_lines, POINT),
    (places_of_sun, POINT),
    (tidal_ellipse, POINT),
    (carbonate_system, POINT),
    (moist_air, POINT),
    (gravity_with_height, POINT),
    (wing_by_vortices, POINT),
]
