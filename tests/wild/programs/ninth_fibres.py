import numpy as np
import ofiber as of
from pypolar import ellipsometry, fresnel, jones, mueller

waves = np.array([1.2e-6, 1.4e-6, 1.55e-6])


def glass_indices(x):
    coefficients = of.glass(2)
    return np.concatenate([of.n(coefficients, x), 1e-6 * of.dn(coefficients, x), of.n_group(coefficients, x)])


def doped(x):
    return of.n(of.doped_glass(x[0]), waves)


def mode_value(x):
    return of.LP_mode_value(x[0], 0, 1)


def mode_irradiance(x):
    b = of.LP_mode_value(x[0], 1, 1)
    return np.array([of.LP_core_irradiance(x[0], b, 1), of.LP_clad_irradiance(x[0], b, 1)])


def radial_field(x):
    b = of.LP_mode_value(x[0], 0, 1)
    return of.LP_radial_field(x[0], b, 0, np.array([0.0, 0.5, 1.5]))


def mode_field(x):
    return np.array([of.MFR(x[0]), of.PetermannW(x[0]), of.PetermannW_Approx(x[0]), of.V_d2bV_by_V(x[0], 0)])


def dispersion(x):
    return 1e6 * np.array(of.Dispersion(of.doped_glass(0.06), x[0], x[1], 1.5e-6))


def planar_modes(x):
    return np.array([of.TE_crossing(x[0], 1), of.TM_crossing(x[0], x[1], 1.49, 2)])


def planar_field(x):
    return of.TE_field(x[0], 1.0, np.array([0.1, 0.4, 0.9]), 1)


def graded(x):
    return of.power_law_profile(x[0], 1.45, x[1], 5e-6, np.array([1e-6, 3e-6, 7e-6]))


def noise(x):
    return np.array([1e9 * of.shot_noise(1e-6 * x[0], 1e-9, 1e9), of.best_APD_gain(1e-6 * x[0], x[1], 1e-9, 0.7, 300.0),
                     np.log(of.BER_at_SNR(x[2]))])  # fmt: skip


def reflections(x):
    m = x[0] - 1j * x[1]
    return np.array([fresnel.R_par(m, x[2]), fresnel.R_per(m, x[2]), fresnel.R_unpolarized(m, x[2]),
                     fresnel.T_unpolarized(1.5, x[2]), fresnel.brewster(x[0])])  # fmt: skip


def ellipsometer(x):
    rho = ellipsometry.rho_from_m(x[0] - 1j * x[1], x[2])
    m = ellipsometry.m_from_rho(rho * 1.01, x[2])
    return np.array([*ellipsometry.tanpsi_Delta_from_rho(rho), m.real, m.imag])


def rotating_analyser(x):
    phi = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    signal = ellipsometry.RAE_from_rho(phi, x[0] * np.exp(1j * x[1]), x[2])
    return np.array(ellipsometry.find_fourier(phi, signal))


def jones_chain(x):
    field = jones.op_retarder(x[1], x[2]) @ jones.op_linear_polarizer(x[0]) @ jones.field_elliptical(0.3, 0.2)
    return np.array([jones.intensity(field), jones.ellipse_azimuth(field), jones.ellipticity_angle(field),
                     *jones.jones_to_stokes(field)])  # fmt: skip


def mueller_chain(x):
    s = (
        mueller.op_retarder(x[0], x[1])
        @ mueller.op_fresnel_reflection(1.5, x[2])
        @ mueller.stokes_elliptical(0.8, 0.3, 0.1)
    )
    return np.array([mueller.intensity(s), mueller.degree_of_polarization(s), mueller.ellipse_orientation(s),
                     mueller.ellipticity_angle(s)])  # fmt: skip


CALLS = [
    (glass_indices, np.array([0.8e-6, 1.3e-6, 1.55e-6])),
    (doped, np.array([0.063])),
    (mode_value, np.array([3.2])),
    (mode_irradiance, np.array([4.1])),
    (radial_field, np.array([2.2])),
    (mode_field, np.array([1.9])),
    (dispersion, np.array([1.447, 4e-6])),
    (planar_modes, np.array([9.0, 1.5])),
    (planar_field, np.array([9.0])),
    (graded, np.array([1.46, 2.2])),
    (noise, np.array([1.0, 50.0, 12.0])),
    (reflections, np.array([1.5, 0.3, 0.7])),
    (ellipsometer, np.array([1.5, 0.3, 0.9])),
    (rotating_analyser, np.array([0.4, 0.9, 0.6])),
    (jones_chain, np.array([0.4, 0.9, 0.6])),
    (mueller_chain, np.array([0.4, 0.9, 0.6])),
]
