"""Room acoustics, heart beats, long memory, uncertain signals, resonances, noise."""

import desolver
import heartpy.analysis
import heartpy.preprocessing
import MFDFA
import nmrglue as ng
import numpy as np
import pyfar
import sdeint
from hankel import HankelTransform
from PyDynamic.misc.SecondOrderSystem import sos_FreqResp
from PyDynamic.uncertainty.interpolate import interp1d_unc
from PyDynamic.uncertainty.propagate_convolution import convolve_unc
from PyDynamic.uncertainty.propagate_DFT import GUM_DFT
from PyDynamic.uncertainty.propagate_filter import FIRuncFilter

TIMES = np.arange(64.0)
TONE = np.sin(0.3 * TIMES) * np.exp(-0.05 * TIMES)
NOISE = np.random.default_rng(17).standard_normal(256)
BEATS = 800 + 60 * np.sin(np.arange(1.0, 25.0)) + 10 * np.cos(3.0 * np.arange(24))
POINT = np.array([1.1, 0.9, 1.2])


def equaliser(x):
    signal = pyfar.Signal(TONE * x[0], 44100)
    return pyfar.dsp.filter.bell(signal, 1000, gain=6 * x[1], quality=2 * x[2]).time.ravel()


def lowpass_room(x):
    signal = pyfar.Signal(TONE + x[0] * np.cos(TIMES), 44100)
    return pyfar.dsp.rms(pyfar.dsp.filter.butterworth(signal, 3, 4000 * x[1]))


def octave_smoothing(x):
    signal = pyfar.Signal(TONE * (x[0] + x[1] * np.cos(TIMES)), 44100)
    return pyfar.dsp.smooth_fractional_octave(signal, 3)[0].time.ravel()


def inverse_room(x):
    response = pyfar.Signal(np.exp(-0.2 * x[0] * TIMES) + x[1] * (TIMES == 0), 44100)
    return pyfar.dsp.regularized_spectrum_inversion(response, (200, 16000)).time.ravel()


def convolved_room(x):
    one, two = pyfar.Signal(TONE * x[0], 44100), pyfar.Signal(np.exp(-0.1 * x[1] * TIMES), 44100)
    return pyfar.dsp.convolve(one, two).time.ravel()


def variability(x):
    rr = BEATS[:12] * x
    measures = {}
    heartpy.analysis.calc_ts_measures(rr, np.abs(np.diff(rr)), np.diff(rr) ** 2, measures, {})
    return np.array([measures[name] for name in ("bpm", "ibi", "sdnn", "sdsd", "rmssd", "hr_mad")])


def poincare(x):
    rr = BEATS[:12] * x
    measures = heartpy.analysis.calc_poincare(rr, np.zeros(12), {}, {"RR_list": rr, "RR_masklist": [0] * 12})
    return np.array([measures[name] for name in ("sd1", "sd2", "s", "sd1/sd2")])


def scaled_pulse(x):
    return heartpy.preprocessing.scale_data(TONE[:20] * x[0] + x[1] * np.arange(20.0))


def enhanced_peaks(x):
    return heartpy.preprocessing.enhance_peaks(np.exp(x[0] * TONE) + x[1], iterations=2)


def fluctuations(x):
    lags, spread = MFDFA.MFDFA(
        NOISE * (1 + x[0] * np.sin(0.1 * np.arange(256))), np.array([8, 16, 32]), q=[2.0]
    )
    return np.log(spread).ravel()


def multifractal(x):
    return MFDFA.MFDFA(np.exp(x[0] * NOISE), np.array([8, 16, 32]), q=np.array([-2.0, 3.0]), order=2)[
        1
    ].ravel()


def uncertain_spectrum(x):
    spectrum, covariance = GUM_DFT(TONE[:16] * x[0], np.diag(0.1 * x[1] + TONE[:16] ** 2))
    return np.append(spectrum, np.diag(covariance))


def uncertain_filter(x):
    taps = np.array([0.2, 0.5 * x[0], 0.3])
    values, spread = FIRuncFilter(TONE[:20], 0.1 * x[1], taps, 0.01 * np.eye(3))
    return np.append(values, spread)


def uncertain_convolution(x):
    values, covariance = convolve_unc(
        TONE[:8] * x[0], 0.1 * np.eye(8), np.array([0.5, x[1], 0.2]), 0.01 * np.eye(3)
    )
    return np.append(values, np.diag(covariance))


def uncertain_between(x):
    at = np.array([0.5, 1.5, 2.2]) * x[0]
    _, values, spread = interp1d_unc(at, TIMES[:8], TONE[:8] * x[1], 0.1 + 0.01 * TIMES[:8] * x[2])
    return np.append(values, spread)


def second_order_system(x):
    return np.abs(sos_FreqResp(x[0], 0.1 * x[1], 50 * x[2], np.linspace(1.0, 90.0, 12)))


def resonance_lines(x):
    at = np.arange(30.0)
    lines = ng.analysis.lineshapes1d
    return lines.sim_voigt_fwhm(at, 15 * x[0], 3 * x[1], 2 * x[2]) + lines.sim_pvoigt_fwhm(
        at, 12 * x[0], 4 * x[1], 0.4
    )


def resonance_spectrum(x):
    decay = np.exp((0.5j - 0.1 * x[0]) * TIMES)
    decay = ng.process.proc_base.gm(ng.process.proc_base.em(decay, lb=0.01 * x[1]), g1=0.01, g2=0.02 * x[2])
    return ng.process.proc_base.ps(ng.process.proc_base.fft(decay), p0=20 * x[0], p1=5.0).real


def hankel_transform(x):
    transform = HankelTransform(nu=0, N=60, h=0.02)
    return transform.transform(lambda r: np.exp(-x[0] * r**2 / 2) * x[1], 1.3 * x[1], ret_err=False)


def noisy_oscillator(x):
    steps = np.linspace(0.0, 1.0, 21)
    noise = 0.2 * np.sin(np.arange(20.0))[:, None]
    path = sdeint.itoEuler(
        lambda y, t: -x[0] * y, lambda y, t: np.array([[0.3 * x[1]]]), np.array([x[2]]), steps, dW=noise
    )
    return path.ravel()


def adaptive_pendulum(x):
    system = desolver.OdeSystem(
        lambda t, y: np.stack([y[1], -x[0] * np.sin(y[0])]),
        y0=np.stack([x[1], 0 * x[1]]),
        t=(0.0, 1.0),
        dt=0.05,
    )
    system.method = "RK45"
    system.integrate()
    return system.y[-1]


CALLS = [
    (equaliser, POINT),
    (lowpass_room, POINT[:2]),
    (octave_smoothing, POINT[:2]),
    (inverse_room, POINT[:2]),
    (convolved_room, POINT[:2]),
    (variability, 1 + 0.01 * np.cos(np.arange(12.0))),
    (poincare, 1 + 0.01 * np.cos(np.arange(12.0))),
    (scaled_pulse, [1.1, 0.02]),
    (enhanced_peaks, [0.9, 1.3]),
    (fluctuations, [0.4]),
    (multifractal, [0.4]),
    (uncertain_spectrum, POINT[:2]),
    (uncertain_filter, POINT[:2]),
    (uncertain_convolution, POINT[:2]),
    (uncertain_between, POINT),
    (second_order_system, POINT),
    (resonance_lines, POINT),
    (resonance_spectrum, POINT),
    (hankel_transform, POINT[:2]),
    (noisy_oscillator, POINT),
    (adaptive_pendulum, POINT[:2]),
]
