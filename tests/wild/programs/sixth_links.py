import itur
import LightPipes as lp
import numpy as np

link = np.array([22.5, 31.0, 8.0])  # frequency (GHz), elevation (degrees), rain (mm / h)


def gases(x):
    return itur.models.itu676.gamma_exact(x[0], 1013.0, 7.5, 288.0).value * x[1]


def rain(x):
    return itur.models.itu838.rain_specific_attenuation(x[2], x[0], x[1], 45.0).value


def clouds(x):
    return itur.models.itu840.specific_attenuation_coefficients(x[0], x[2])


def refraction(x):
    return itur.models.itu453.radio_refractive_index(1000.0 + x[0], 8.0 + x[2], 290.0 + x[1]).value


def scintillation(x):
    return itur.models.itu618.scintillation_attenuation_sigma(
        0.0, 0.0, x[0], x[1], 0.5, 1.2, 10.0, 50.0
    ).value


def free_space(x):
    return itur.models.itu835.standard_temperature(x[2]).value


def spot(x):
    field = lp.Lens(lp.Begin(5e-3, 6.3e-7, 24), 0.1 * x[1])
    field = lp.CircAperture(field, 1.5e-3)
    return lp.Intensity(lp.Forvard(lp.MultIntensity(field, x[0]), 2.4))[10:14, 10:14]


def gauss(x):
    field = lp.GaussBeam(lp.Begin(5e-3, 6.3e-7, 20), 1e-3 * x[2] / 8.0)
    return lp.Intensity(lp.Fresnel(lp.Lens(field, x[1] / 30.0), 0.3))[8:12, 8:12]


def tilted(x):
    field = lp.Tilt(lp.GaussBeam(lp.Begin(5e-3, 6.3e-7, 20), 1e-3), 1e-5 * x[0], 1e-6 * x[1])
    return lp.Phase(field)[9:11, 9:11]


def zernike(x):
    field = lp.Zernike(lp.GaussBeam(lp.Begin(5e-3, 6.3e-7, 20), 1e-3), 2, 0, 1e-3, 1e-8 * x[2])
    return np.real(field.field)[9:11, 9:11]


CALLS = [
    (f, link)
    for f in (gases, rain, clouds, refraction, scintillation, free_space, spot, gauss, tilted, zernike)
]
