import laserbeamsize
import numpy as np
import padasip
import pycwt
import splines
from commpy.filters import rcosfilter
from commpy.modulation import QAMModem
from hurst import compute_Hc
from vmdpy import VMD

t = np.arange(32.0)
signal = np.sin(0.4 * t) + 0.3 * np.cos(1.7 * t)
past = padasip.input_from_history(np.cos(0.9 * t), 4)
corners = np.array([[0.0, 0.0], [1.0, 0.5], [2.0, -0.3], [3.1, 1.0]])
small = np.array([0.4, 0.7, 1.1])
grid = np.mgrid[0:16, 0:16]
generator = np.random.default_rng(3)
walk = 50 + np.cumsum(generator.normal(size=120))


def least_mean_squares(x):
    y, e, w = padasip.filters.FilterLMS(n=4, mu=0.05, w="zeros").run(x[: len(past)], past)
    return e


def normalised(x):
    y, e, w = padasip.filters.FilterNLMS(n=4, mu=0.5, w="zeros").run(x[: len(past)], past)
    return y


def recursive(x):
    y, e, w = padasip.filters.FilterRLS(n=4, mu=0.98, w="zeros").run(x[: len(past)], past)
    return w[-1]


def raised_cosine(x):
    return rcosfilter(16, 0.3 + 0.1 * x[0], 1.0 + 0.01 * x[1], 4.3)[1]


def soft_bits(x):
    return QAMModem(4).demodulate(np.array([0.3, -0.5]) + 1j * x[:2], "soft", noise_var=x[2])


def transform(x):
    waves = pycwt.cwt(x, 1.0, 0.5, 2.0, 4, pycwt.Morlet(6))[0]
    return np.abs(waves) ** 2


def wavelet(x):
    return np.abs(pycwt.DOG(2).psi(x))


def modes(x):
    return VMD(x, 200.0, 0.0, 2, 0, 1, 1e-3)[0]


def catmull_rom(x):
    return splines.CatmullRom(x, endconditions="natural").evaluate([0.3, 1.6, 2.2])


def natural(x):
    return splines.Natural(x).evaluate(1.4)


def bernstein(x):
    return splines.Bernstein([x]).evaluate([0.2, 0.7])


def beam(x):
    image = np.exp(-((grid[0] - 7 - x[0]) ** 2 / 9) - (grid[1] - 8 - x[1]) ** 2 / 16) * x[2]
    return laserbeamsize.basic_beam_size(image)[:4]


def widths(x):
    return np.array(
        [laserbeamsize.beam_radius(x[0], 1e-3, 300.0 * x[1]), laserbeamsize.z_rayleigh(x[2], 1e-3)]
    )


def exponent(x):
    return compute_Hc(x, kind="price", simplified=True)[0]


CALLS = [(f, signal) for f in (least_mean_squares, normalised, recursive, transform, wavelet, modes)]
CALLS += [(f, small) for f in (raised_cosine, soft_bits, beam, widths)]
CALLS += [(f, corners) for f in (catmull_rom, natural, bernstein)] + [(exponent, walk)]
