import astropy.units as u
import numpy as np
from astropy.coordinates import CartesianRepresentation, CylindricalRepresentation
from astropy.stats import bootstrap, funcs
from astropy.visualization import AsinhStretch, LogStretch, ManualInterval, SqrtStretch
from photutils.background import MMMBackground, SExtractorBackground
from photutils.centroids import centroid_com, centroid_quadratic
from photutils.morphology import data_properties
from photutils.psf import CircularGaussianPSF, GaussianPSF, MoffatPSF
from plasmapy import formulary
from plasmapy.dispersion.analytical import stix, two_fluid
from pyEQL import activity_correction, ureg


def speeds(x):
    waves = formulary.Alfven_speed(x[0] * u.T, x[1] * 1e19 / u.m**3, "p+")
    sound = formulary.ion_sound_speed(
        T_e=x[2] * 1e6 * u.K, T_i=x[3] * 1e6 * u.K, ion="p+", gamma_e=1, gamma_i=3
    )
    return np.array([waves.to_value(u.km / u.s) / 1e3, sound.to_value(u.km / u.s) / 1e2])


def lengths(x):
    return np.array(
        [
            formulary.Debye_length(x[0] * 1e6 * u.K, x[1] * 1e19 / u.m**3).to_value(u.um),
            formulary.gyroradius(x[2] * u.T, "e-", T=x[0] * 1e6 * u.K).to_value(u.um),
            formulary.inertial_length(x[1] * 1e19 / u.m**3, "p+").to_value(u.cm),
        ]
    )


def velocities(x):
    v = np.linspace(-2e6, 2e6, 5) * u.m / u.s
    return formulary.Maxwellian_1D(v, x[0] * 1e4 * u.K, "e-", x[1] * 1e5 * u.m / u.s).value * 1e6


def cold_plasma(x):
    s, d, p = formulary.cold_plasma_permittivity_SDP(
        x[0] * u.T, ["e-", "D+"], [x[1] * 1e18, x[1] * 1e18] * u.m**-3, 2 * np.pi * 5e9 * u.rad / u.s
    )
    return np.array([s, d, p])


def warm_plasma(x):
    n = formulary.permittivity_1D_Maxwellian(
        5.6e9 * u.rad / u.s,
        1e5 * x[0] / u.m * u.rad,
        x[1] * 1e5 * u.K,
        x[2] * 1e25 / u.m**3,
        "Ne",
        z_mean=8.0,
    )
    return np.array([n.real, n.imag]) * 1e4


def dispersion(x):
    waves = two_fluid(
        B=x[0] * 1e-9 * u.T, ion="p+", k=np.array([0.01, 0.02]) * u.rad / u.m, n_i=x[1] * 1e6 / u.m**3,
        T_e=1.6e6 * u.K, T_i=x[2] * 1e5 * u.K, theta=30 * u.deg,
    )  # fmt: skip
    return np.concatenate([waves[name].value for name in ("fast_mode", "alfven_mode")])


def stix_waves(x):
    k = stix(
        B=x[0] * 1e-9 * u.T, w=np.array([2.0]) * 1e7 * u.rad / u.s, ions=["p+"], n_i=[x[1] * 1e6] / u.m**3,
        theta=np.array([0.3]) * u.rad,
    )  # fmt: skip
    return np.abs(np.nan_to_num(k.value)).ravel()


def activity(x):
    strength = ureg.Quantity(x[0], "mol/kg")
    debye = activity_correction.get_activity_coefficient_debyehuckel(strength, 1)
    davies = activity_correction.get_activity_coefficient_davies(strength, 2)
    return np.array(
        [
            debye.magnitude,
            davies.magnitude,
            x[1]
            * activity_correction.get_osmotic_coefficient_pitzer(
                strength, strength, 2.0, 0.0, 0.0765, 0.2664, 0.0, 0.00127, 1, -1, 1, 1
            ).magnitude,
        ]
    )


def point_spread(x):
    rows, columns = np.mgrid[:7, :7]
    star = GaussianPSF(flux=x[0], x_0=x[1], y_0=x[2], x_fwhm=x[3], y_fwhm=2.0, theta=20.0)
    return (
        star(columns, rows) + MoffatPSF(flux=x[0], x_0=3.0, y_0=x[2], alpha=x[3], beta=2.5)(columns, rows)
    ).ravel()


def centroids(x):
    rows, columns = np.mgrid[:9, :9]
    image = CircularGaussianPSF(flux=10.0, x_0=x[0], y_0=x[1], fwhm=x[2])(columns, rows)
    return np.concatenate([centroid_com(image), centroid_quadratic(image)])


def moments(x):
    rows, columns = np.mgrid[:9, :9]
    shape = data_properties(np.exp(-((rows - x[0]) ** 2) / x[2] - ((columns - x[1]) ** 2) / 9.0))
    return np.array([shape.xcentroid, shape.ycentroid, shape.semimajor_sigma.value])


def backgrounds(x):
    return np.array([SExtractorBackground()(x), MMMBackground()(x)])


def stretches(x):
    image = ManualInterval(x[0], x[1])(np.linspace(0.2, 3.0, 5))
    return np.concatenate(
        [AsinhStretch(0.1)(image), LogStretch(500.0)(image), (SqrtStretch() + AsinhStretch(0.3))(image)]
    )


def representations(x):
    there = CylindricalRepresentation(rho=x[0] * u.kpc, phi=x[1] * u.rad, z=x[2] * u.kpc)
    moved = there.to_cartesian() + CartesianRepresentation([1.0, 2.0, 0.5] * u.kpc)
    return np.array([moved.norm().value, moved.cross(there.to_cartesian()).x.value])


def signal_to_noise(x):
    noise = funcs.signal_to_noise_oir_ccd(100.0, x[0], x[1], x[2], 4.0, 9.0)
    with_draws = bootstrap(x, 3, bootfunc=np.mean)
    return np.array([noise, funcs.gaussian_fwhm_to_sigma * x[2], np.shape(with_draws)[0] * x[0]])


CALLS = [
    (speeds, [0.3, 2.0, 1.3, 0.8]),
    (lengths, [1.5, 2.0, 0.4]),
    (velocities, [3.0, 2.0]),
    (cold_plasma, [2.0, 1.3]),
    (warm_plasma, [1.2, 3.0, 2.0]),
    (dispersion, [8.3, 5.0, 4.0]),
    (stix_waves, [8.3, 5.0]),
    (activity, [0.4, 1.3]),
    (point_spread, [10.0, 3.2, 2.8, 2.3]),
    (centroids, [4.2, 3.8, 2.5]),
    (moments, [4.1, 3.7, 3.0]),
    (backgrounds, [1.0, 1.3, 0.8, 1.1, 0.95, 1.2, 1.05]),
    (stretches, [0.1, 3.5]),
    (representations, [3.0, 0.7, 1.2]),
    (signal_to_noise, [50.0, 3.0, 2.0]),
]
