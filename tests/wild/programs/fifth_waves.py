import abel
import mcfit
import numpy as np
import peakutils
from neurodsp import filt, spectral, timefrequency
from specparam.modes import funcs

noise = np.sin(np.arange(200) * 0.31) + 0.4 * np.cos(np.arange(200) * 0.97) + 0.01 * np.arange(200)
k = np.logspace(-3, 2, 32)
image = np.exp(-((np.arange(21) - 10.0)[:, None] ** 2 + (np.arange(21) - 10.0) ** 2) / 20.0)
three = np.array([1.2, 0.6, 0.8])


def baseline(x):
    return peakutils.baseline(x, deg=2, max_it=3)


def centroid(x):
    return peakutils.centroid(np.arange(3.0), x)


def fitted_peak(x):
    t = np.arange(40.0)
    return peakutils.gaussian_fit(t, x[0] * np.exp(-((t - 20.0 * x[1]) ** 2) / (2 * (5.0 * x[2]) ** 2)))


def band_pass(x):
    return filt.filter_signal_fir(x, 100.0, "bandpass", (8.0, 12.0), n_cycles=3, remove_edges=False)


def butterworth(x):
    return filt.filter_signal_iir(x, 100.0, "lowpass", 20.0, 3)


def welch(x):
    return np.log(spectral.compute_spectrum_welch(x, 100.0, nperseg=64)[1])


def multitaper(x):
    return np.log(spectral.compute_spectrum_multitaper(x, 100.0)[1])


def wavelet_power(x):
    return np.abs(timefrequency.compute_wavelet_transform(x, 100.0, [5.0, 12.0])) ** 2


def amplitude(x):
    return timefrequency.amp_by_time(x, 100.0, (8.0, 12.0), remove_edges=False, n_cycles=3)[20:180]


def rotated_spectrum(x):
    return spectral.rotate_powerlaw(np.array([1.0, 2.0, 4.0]), x, 0.7, 2.0)


def knee(x):
    return funcs.lorentzian_function(np.array([1.0, 3.0, 10.0]), x[0], x[1], x[2])


def skewed_peak(x):
    return funcs.skewed_gaussian_function(np.array([7.0, 10.0, 12.0]), 10.0, x[0], 2.0, x[1])


def correlation_function(x):
    return mcfit.P2xi(k)(x[0] * k ** x[1] / (1.0 + k**3))[1]


def hankel(x):
    return mcfit.Hankel(k, nu=0)(x[0] * np.exp(-x[1] * k**2))[1]


def smoothed_variance(x):
    return mcfit.TophatVar(k)(x[0] * k ** x[1] / (1.0 + k**3))[1]


def inverse_abel(x):
    return abel.Transform(x, method="hansenlaw").transform


def three_point(x):
    return abel.Transform(x, method="three_point", transform_options={"basis_dir": None}).transform


def forward_abel(x):
    return abel.Transform(x, direction="forward", method="direct").transform


CALLS = [(f, noise) for f in (baseline, band_pass, butterworth, welch, multitaper, wavelet_power, amplitude)]
CALLS += [(f, three) for f in (centroid, fitted_peak, rotated_spectrum, knee, skewed_peak)]
CALLS += [(f, three) for f in (correlation_function, hankel, smoothed_variance)]
CALLS += [(f, image) for f in (inverse_abel, three_point, forward_abel)]
