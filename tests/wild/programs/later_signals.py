import os

os.environ["CUPY_PYLOPS"] = "0"
import EntropyHub
import numpy as np
import pylops
import pyloudnorm
import python_speech_features as speech
from csaps import CubicSmoothingSpline
from pybaselines import Baseline

rng = np.random.default_rng(1)
t = np.linspace(0.0, 1.0, 40)
wave = np.sin(7 * t) + 0.1 * rng.normal(size=40)
sound = np.sin(np.arange(4000.0) / 7) * (1 + 0.1 * rng.normal(size=4000))


def smoothing(x):
    return CubicSmoothingSpline(t, x, smooth=0.9)(np.linspace(0.0, 1.0, 9))


def least_squares_baseline(x):
    return Baseline(t).asls(x, lam=1e2, p=0.1)[0]


def polynomial_baseline(x):
    return Baseline(t).poly(x, poly_order=3)[0]


def penalized_polynomial(x):
    return Baseline(t).penalized_poly(x, poly_order=2, threshold=0.3)[0]


def derivative_operator(x):
    return pylops.FirstDerivative(40, sampling=t[1]) @ x


def convolution_operator(x):
    return pylops.signalprocessing.Convolve1D(40, h=np.array([0.2, 0.5, 0.3]), offset=1) @ x


def regularized(x):
    D = pylops.SecondDerivative(40)
    return pylops.optimization.leastsquares.regularized_inversion(
        pylops.Identity(40), x, [D], epsRs=[2.0], iter_lim=400, atol=1e-14, btol=1e-14
    )[0]


def loudness(x):
    return pyloudnorm.Meter(4000, block_size=0.4).integrated_loudness(x)


def cepstrum(x):
    return speech.mfcc(x, 4000, nfft=128, nfilt=12, numcep=5)


def fuzzy_entropy(x):
    return EntropyHub.FuzzEn(x, m=2, r=(0.3, 2.0))[0]


def distribution_entropy(x):
    return EntropyHub.PermEn(x, m=3, Typex="weighted")[0]


CALLS = [
    (f, wave)
    for f in (
        *(smoothing, least_squares_baseline, polynomial_baseline, penalized_polynomial, derivative_operator),
        *(convolution_operator, regularized, fuzzy_entropy, distribution_entropy),
    )
]
CALLS += [(loudness, sound), (cepstrum, sound[:800])]
