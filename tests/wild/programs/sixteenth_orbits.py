"""Orbits, transfers, fatigue and the response of oscillators."""

import numpy as np
from beyond.config import config
from beyond.dates import Date, timedelta
from beyond.orbits import Orbit, StateVector
from beyond.orbits.man import KeplerianImpulsiveMan
from eqsig import AccSignal, im, sdof
from FLife import SpectralData
from FLife.freq_domain import Dirlik, TovoBenasciutti, ZhaoBaker
from FLife.multiaxial import EquivalentStress
from lamberthub import battin1984, gooding1990, izzo2015

config.update({"eop": {"missing_policy": "pass"}})
START = Date(2023, 3, 15, 12)
MOTION = np.sin(np.arange(200.0) * 0.13) * np.exp(-(((np.arange(200.0) - 80) / 40) ** 2))
FREQUENCIES = np.arange(0.0, 60.0, 1.0)


def drifting_orbit(x):
    """Elements, their secular drift, and the position a day later."""
    elements = [7.2e6 * x[0], 0.01 * x[1], 0.9 * x[2], 0.3, 0.7, 0.2]
    orbit = Orbit(elements, START, "keplerian_mean", "EME2000", "J2")
    return np.asarray(orbit.propagate(START + timedelta(hours=5)).copy(form="keplerian"))[2:5]


def kepler_position(x):
    orbit = Orbit([7.2e6 * x[0], 0.1 * x[1], 0.9, 0.3, 0.7, x[2]], START, "keplerian", "EME2000", "Kepler")
    return np.asarray(orbit.propagate(timedelta(minutes=20)))[:3] / 1e6


def equinoctial(x):
    state = StateVector([*(7e6 * x[:3]), *(7e3 * x[3:])], START, "cartesian", "EME2000")
    return np.asarray(state.copy(form="equinoctial"))[1:] + np.asarray(state.copy(form="spherical"))[1:]


def manoeuvre(x):
    orbit = Orbit([7.2e6, 0.01, 0.9, 0.3, 0.7, 0.2], START, "keplerian", "EME2000", "Kepler").copy(
        form="cartesian"
    )
    return KeplerianImpulsiveMan(START, da=2e4 * x[0], di=0.01 * x[1]).dv(orbit)


def transfer(x):
    r1, r2 = np.array([15945.34, 0.0, 0.0]) * x[0], np.array([12214.83899, 10249.46731, 0.0]) * x[1]
    return np.concatenate(izzo2015(398600.4418, r1, r2, 4560 * x[2]))


def another_transfer(x):
    r1, r2 = np.array([5000.0, 10000.0, 2100.0]) * x[0], np.array([-14600.0, 2500.0, 7000.0]) * x[1]
    return np.concatenate(gooding1990(398600.4418, r1, r2, 3600 * x[2]))


def old_transfer(x):
    r1, r2 = np.array([5000.0, 10000.0, 2100.0]) * x[0], np.array([-14600.0, 2500.0, 7000.0]) * x[1]
    return np.concatenate(battin1984(398600.4418, r1, r2, 3600 * x[2], prograde=True))


def fatigue_life(x):
    spectrum = 10 * np.exp(-(((FREQUENCIES - 20 * x[0]) / 5) ** 2)) + x[1] * np.exp(-FREQUENCIES / 20)
    data = SpectralData(input={"PSD": spectrum, "f": FREQUENCIES})
    return np.log([m(data).get_life(C=1.8e22, k=5.0 * x[2]) for m in (Dirlik, TovoBenasciutti, ZhaoBaker)])


def fatigue_of_a_record(x):
    record = 10 * np.sin(np.arange(3000.0) * 0.3 * x[0]) + x[1] * np.cos(np.arange(3000.0) ** 1.2)
    data = SpectralData(input={"time_history": record, "dt": 0.01}, nperseg=512)
    return np.array([np.log(Dirlik(data).get_life(C=1.8e22, k=7.3)), data.alpha2])


def multiaxial_stress(x):
    shape = np.exp(-(((FREQUENCIES - 20) / 8) ** 2))[:, None, None]
    matrix = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 0.8]]) * x[0] + np.eye(3) * x[1]
    stress = EquivalentStress(input={"PSD": shape * matrix, "f": FREQUENCIES})
    stress.EVMS()
    return np.array([*stress.psd[::20, 1], Dirlik(stress).get_life(C=1e12, k=4.0) / 1e6])


def oscillator_spectra(x):
    displacement, velocity, acceleration = sdof.pseudo_response_spectra(
        MOTION * x[0], 0.02, np.array([0.3, 0.7, 1.5]), 0.05 * x[1]
    )
    return displacement + velocity + acceleration


def intensities(x):
    signal = AccSignal(MOTION * x[0] + 0.1 * x[1] * np.cos(0.3 * np.arange(200.0)), 0.02)
    return np.array([im.calc_arias_intensity(signal)[-1], im.calc_cav(signal)[-1], signal.pgv, signal.pgd])


def smoothed_spectrum(x):
    signal = AccSignal(MOTION * x[0] + 0.1 * x[1] * np.cos(0.3 * np.arange(200.0)), 0.02)
    signal.butter_pass((0.5, 10))
    return signal.smooth_fa_spectrum[::8]


CALLS = [
    (drifting_orbit, [1.05, 1.2, 0.9]),
    (kepler_position, [1.05, 1.2, 0.4]),
    (equinoctial, [0.9, 0.3, 0.4, -0.3, 0.9, 0.2]),
    (manoeuvre, [1.1, 0.8]),
    (transfer, [1.01, 1.02, 1.05]),
    (another_transfer, [1.01, 1.02, 1.05]),
    (old_transfer, [1.01, 1.02, 1.05]),
    (fatigue_life, [1.1, 2.2, 1.05]),
    (fatigue_of_a_record, [1.02, 3.1]),
    (multiaxial_stress, [1.1, 0.4]),
    (oscillator_spectra, [1.1, 0.9]),
    (intensities, [1.1, 0.9]),
    (smoothed_spectrum, [1.1, 0.9]),
]
